"""Generated merges and updates whose query, condition and clauses read the same inputs: the rows are those of the same
statement over inputs of which everything is read.
"""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog
from tests.support.sampling import SEED, some

COLUMNS = ("id", "a", "b", "c")


def rows(dice: random.Random, count: int, *, are_ids: bool) -> pa.Table:
    columns = {name: [dice.choice([None, *range(6)]) for _ in range(count)] for name in COLUMNS[1:]}
    ids = dice.sample(range(12), count) if are_ids else [dice.randrange(12) for _ in range(count)]
    return pa.table({name: pa.array(values, pa.int64()) for name, values in {"id": ids, **columns}.items()})


def table_of(name: str, *appends: pa.Table) -> Table:
    table = Table.create(MemoryCatalog(), f"db.{name}", schema=dict.fromkeys(COLUMNS, "long"), partition_by=["a"])
    for one in appends:
        table.append(one)
    return table


class Maker:
    """Makes texts over `feed` and `other`, by the columns of the sides that they see."""

    def __init__(self, dice: random.Random, sides: tuple[str, ...]) -> None:
        self.dice = dice
        self.sides = sides

    def seen(self) -> str:
        side = self.dice.choice([*self.sides, None] if len(self.sides) == 1 else self.sides)
        return f"{side}.{self.dice.choice(COLUMNS)}" if side else self.dice.choice(COLUMNS)

    def predicate(self, alias: str, depth: int = 0) -> str:
        dice = self.dice
        column = f"{alias}.{dice.choice(COLUMNS)}"
        ways = [
            f"{column} = {dice.randrange(6)}",
            f"{column} > {dice.randrange(6)}",
            f"{column} is null",
            f"{column} in ({dice.randrange(6)}, {dice.randrange(6)})",
            f"{column} is not distinct from {alias}.{dice.choice(COLUMNS)}",
            f"coalesce({column}, 1) = {dice.randrange(6)}",
        ]
        if self.sides:
            ways.append(f"{column} = {dice.choice(self.sides)}.{dice.choice(COLUMNS)}")
        if depth < 2:
            one, other = self.predicate(alias, depth + 1), self.predicate(alias, depth + 1)
            ways += [f"{one} and {other}"] * 2 + [f"({one} or {other})", f"not ({one})"]
        return dice.choice(ways)

    def number(self) -> str:
        dice, alias, table = self.dice, self.dice.choice(["f", "g"]), self.dice.choice(["feed", "other", "feed"])
        value = dice.choice([f"max({alias}.{dice.choice(COLUMNS)})", "count(*)", f"sum(length(to_json({alias})))"])
        where = f" where {self.predicate(alias)}" if dice.random() < 0.7 else ""
        joined = f" join feed j on j.id = {alias}.id" if dice.random() < 0.2 else ""
        subquery = f"(select {value} from {table} {alias}{joined}{where})"
        return dice.choice([subquery, subquery, f"coalesce({subquery}, 0) + 1", *([self.seen()] if self.sides else [])])

    def truth(self) -> str:
        dice, table = self.dice, self.dice.choice(["feed", "other"])
        column = self.seen()
        ways = [f"exists (select 1 from {table} f where {self.predicate('f')})", f"{self.number()} > 2"]
        ways += [f"{column} in (select f.{dice.choice(COLUMNS)} from {table} f where {self.predicate('f')})"]
        ways += [f"{column} > 2", f"{column} is null"]
        return dice.choice(ways)

    def query(self) -> str:
        """Return a query with one row an id."""
        dice = self.dice
        where = f" where {self.predicate('f')}" if dice.random() < 0.8 else ""
        joined = dice.choice(["", "", " left join other o on o.id = f.id", " join other o on o.a = f.a"])
        return f"select f.id, max(f.a) as a, min(f.b) as b, max(f.c) as c from feed f{joined}{where} group by f.id"


def clauses(dice: random.Random) -> str:
    found = []
    for kind in dice.sample(["matched", "not matched", "not matched by source"], dice.randint(1, 3)):
        sides = {"matched": ("target", "source"), "not matched": ("source",)}.get(kind, ("target",))
        maker = Maker(dice, sides)
        condition = f" and {maker.truth()}" if dice.random() < 0.5 else ""
        if kind == "not matched":
            action = f"insert (id, a) values (source.id, {maker.number()})"
        else:
            action = "delete" if dice.random() < 0.15 else f"update set a = {maker.number()}, b = {maker.number()}"
        found.append(f"when {kind}{condition} then {action}")
    return "\n".join(found)


def done(request: MergeRequest | UpdateRequest, given: tuple[pa.Table, ...], fields: tuple[str, ...]) -> object:
    """Return the rows after a statement, or its error."""
    table, feed, other = (table_of(name, one) for name, one in zip(("t", "feed", "other"), given, strict=True))
    opened = {"feed": feed, "other": other}
    inputs = {
        name: Input(open=lambda one=one: one, selected_fields=fields)
        for name, one in opened.items()
        if name in str(request)
    }
    files = {name: opened[name].io for name in inputs}
    work = Work(table, run=lambda plan: run_local(plan, table.io, inputs=files))
    try:
        (merge if isinstance(request, MergeRequest) else update)(work, replace(request, inputs=inputs))
    except InvalidInputError as error:
        return str(error)
    return sorted(map(str, table.refresh().scan().to_arrow().to_pylist()))


@pytest.mark.generated
@pytest.mark.parametrize("seed", some(range(60), each=15))
def test_as_over_whole_inputs(seed):
    dice = random.Random(seed + SEED * 1_000_000)
    for _ in range(2):
        given = (rows(dice, 8, are_ids=True), rows(dice, 9, are_ids=False), rows(dice, 6, are_ids=False))
        if dice.random() < 0.2:
            maker = Maker(dice, ("target",))
            request = UpdateRequest(set={"a": maker.number()}, where=maker.truth(), dialect="duckdb")
        else:
            on = "target.id = source.id" + (
                f" and {Maker(dice, ('target', 'source')).truth()}" if dice.random() < 0.2 else ""
            )
            query = Source.from_sql(Maker(dice, ()).query(), dialect="duckdb")
            request = MergeRequest(rows=query, on=on, clauses=clauses(dice), dialect="duckdb")
        expected = done(request, given, COLUMNS)  # named columns: nothing is left out
        assert done(request, given, ("*",)) == expected, request
        assert not isinstance(expected, str) or "DuckDB cannot" not in expected, f"{request}\n{expected}"
