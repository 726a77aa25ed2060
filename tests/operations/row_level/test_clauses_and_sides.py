"""Generated merges, held against what DuckDB says of the same SQL over the two sides alone: what a clause may name, and
which rows come of it. A text that DuckDB refuses there is refused here; nothing of ours is seen.
"""

import random
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog
from tests.support.sampling import SEED, some

MATCHED, NOT_MATCHED, BY_SOURCE = "matched", "not matched", "not matched by source"
FROM = {
    MATCHED: "target, source where target.id = source.id",
    NOT_MATCHED: "source where source.id not in (select id from target)",
    BY_SOURCE: "target where target.id not in (select id from source)",
}
STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])
TARGET = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "v": pa.array([10, None, 30, 40, 50], pa.int64()),
        "t": ["a", "b", None, "d", "e"],
        "s": pa.array(
            [{"x": 1, "y": "p"}, {"x": 2, "y": None}, None, {"x": None, "y": "q"}, {"x": 5, "y": "r"}], STRUCT
        ),
        "_merge_pos": pa.array([7, 7, 8, 8, 9], pa.int64()),
    }
)
SOURCE = pa.table(
    {
        "id": pa.array([2, 4, 5, 8, 9], pa.int64()),
        "v": pa.array([200, 400, None, 800, 900], pa.int64()),
        "w": pa.array([5, 6, 7, None, 9], pa.int64()),
        "s": pa.array(
            [{"x": 20, "y": "S"}, None, {"x": 50, "y": "T"}, {"x": 80, "y": None}, {"x": 1, "y": "U"}], STRUCT
        ),
    }
)
FEED = pa.table({"id": pa.array([1, 2, 4, 8, 8], pa.int64()), "k": pa.array([3, 1, 4, 1, 5], pa.int64())})
NUMBERS = [
    *[
        "source.v",
        "target.v",
        "v",
        "w",
        "_merge_pos",
        "source.w",
        "target._merge_pos",
        "SOURCE.V",
        '"target"."v"',
        "id",
    ],
    *["source.nope", "nope", "target.w", "source.t", "s.x", "source.s.x", "target.s.x", "target.s.nope", "7", "null"],
    *["#1", "#2", "#5", "#10", "columns('v')", "columns('v|w')", "greatest(*columns('v|w|_merge.*'))", "count(*)"],
    *["coalesce(*columns('.*v$'))", "columns(*)", "list_value(*columns('id|v'))[1]"],
    "(select max(k) from feed)",
    "(select max(k) from feed where feed.id = source.id)",
    "(select max(k) from feed where feed.id = target.id)",
    "(select max(k) from feed where feed.id = v)",
    "(select max(k + w) from feed)",
    "(select max(source.k) from feed source)",
    "(select max(target.id) from target)",
    "(select sum(v) from source)",
    "(select count(*) from target t where t.id < source.id)",
    "(select count(*) from target t where t.id < target.id)",
    "(select max(length(to_json(source))) from feed)",
    "(select sum((select max(k) from feed f where f.id = feed.id and f.k < source.w)) from feed)",
]
TEXTS = [
    *[
        "to_json(target)",
        "to_json(source)",
        "md5(target::varchar)",
        "source::varchar",
        "to_json(s)",
        "s.y",
        "source.s.y",
    ],
    *["to_json(struct_pack(*columns('.*')))", "to_json(list_value(source, source))", "(select to_json(target))"],
    *["concat_ws('-', *columns(*))", "target.t", "t", "upper(t) || 'x'", "to_json({'a': target, 'b': source.w})"],
]
TRUTHS = [
    "source is not null",
    "target is null",
    "source = source",
    "source.s.x > 1",
    "v is null",
    "target is distinct from source",
]


class Maker:
    """Makes clauses: nine of ten texts have a meaning for the rows that they are for."""

    def __init__(self, dice: random.Random, oracle: "Oracle") -> None:
        self.dice = dice
        self.oracle = oracle

    def _one(self, texts: list[str], rows: str) -> str:
        known = [text for text in texts if self.oracle.takes(text, rows)]
        return self.dice.choice(known if self.dice.random() < 0.93 else texts)

    def number(self, rows: str) -> str:
        one, other = self._one(NUMBERS, rows), self._one(NUMBERS, rows)
        ways = [one, one, one, f"{one} + 1", f"coalesce({one}, {other})"]
        ways += [f"case when {self.truth(rows)} then {one} else 3 end"] if self.dice.random() < 0.3 else []
        return self.dice.choice(ways)

    def text(self, rows: str) -> str:
        return self._one(TEXTS, rows)

    def truth(self, rows: str) -> str:
        number = self._one(NUMBERS, rows)
        ways = [self._one(TRUTHS, rows), f"{number} > 5", f"{number} is not null", f"length({self.text(rows)}) > 30"]
        ways += [f"exists (select 1 from feed where feed.id = {number})", f"{number} in (select id from feed)"]
        return self.dice.choice(ways)

    def clause(self, rows: str) -> "Clause":
        dice = self.dice
        condition = self.truth(rows) if dice.random() < 0.5 else None
        if rows != NOT_MATCHED and dice.random() < 0.15:
            return Clause(rows, condition, {})
        values = {"v": self.number(rows)}
        if dice.random() < 0.5:
            values["t"] = self.text(rows)
        if rows == NOT_MATCHED:
            values = {"id": dice.choice(["id", "source.id"]), **values}
        return Clause(rows, condition, values)

    def clauses(self) -> "list[Clause]":
        kinds = self.dice.choice(
            [[MATCHED], [NOT_MATCHED], [BY_SOURCE]] * 2 + [[MATCHED, NOT_MATCHED], [MATCHED, BY_SOURCE]]
        )
        if self.dice.random() < 0.2:
            kinds = [MATCHED, NOT_MATCHED, BY_SOURCE]
        found = []
        for rows in kinds:
            found.append(self.clause(rows))
            if found[-1].condition is not None and self.dice.random() < 0.4:
                found.append(self.clause(rows))
        return found


@dataclass(frozen=True)
class Clause:
    rows: str
    condition: str | None
    values: dict

    @property
    def sql(self) -> str:
        condition = f" and {self.condition}" if self.condition else ""
        if not self.values:
            return f"when {self.rows}{condition} then delete"
        if self.rows == NOT_MATCHED:
            action = f"insert ({', '.join(self.values)}) values ({', '.join(self.values.values())})"
        else:
            action = f"update set {', '.join(f'{name} = {value}' for name, value in self.values.items())}"
        return f"when {self.rows}{condition} then {action}"


class Oracle:
    """DuckDB over the sides alone."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        for name, rows in (("target", TARGET), ("source", SOURCE), ("feed", FEED)):
            self.connection.register(f"given_{name}", rows)
            self.connection.execute(f"create table {name} as select * from given_{name}")

    @cache  # noqa: B019 - one for the module
    def takes(self, text: str, rows: str) -> bool:
        try:
            self._columns(f"select ({text}) from {FROM[rows]}", 1)
        except ValueError:
            return False
        return True

    def rows(self, clause: Clause, given: str) -> dict:
        """Return what a clause says of each row of its kind, by id; raises ValueError if it says nothing."""
        texts = [clause.condition or "true", *clause.values.values()]
        side = "source" if clause.rows == NOT_MATCHED else "target"
        for text in texts:  # one by one: a text may end in several columns
            self._columns(f"select ({text}) from {given}", 1)
        query = f"select {side}.id, {', '.join(f'({text})' for text in texts)} from {given}"
        return {row[0]: row[1:] for row in self._columns(query, 1 + len(texts))}

    def _columns(self, query: str, count: int) -> list:
        try:
            found = self.connection.execute(query)
            if len(found.description) != count:
                raise ValueError(query)
            return found.fetchall()
        except duckdb.Error as error:
            raise ValueError(str(error)) from error

    def merged(self, clauses: "list[Clause]") -> dict:
        """Return the rows of the table after a merge, by id."""
        said = [self.rows(clause, FROM[clause.rows]) for clause in clauses]
        found = {row["id"]: {"v": row["v"], "t": row["t"]} for row in TARGET.to_pylist()}
        ids = {row["id"] for row in SOURCE.to_pylist()}
        for key in sorted({*found, *ids}):
            rows = MATCHED if key in found and key in ids else BY_SOURCE if key in found else NOT_MATCHED
            of = zip(clauses, said, strict=True)
            chosen = next(((c, rows_of[key]) for c, rows_of in of if c.rows == rows and rows_of[key][0]), None)
            if chosen is None:
                continue
            clause, values = chosen
            if not clause.values:
                del found[key]
                continue
            new = dict(zip(clause.values, values[1:], strict=True))
            found[key] = {**found.get(key, {"v": None, "t": None}), **{n: v for n, v in new.items() if n != "id"}}
        return found


def new_table() -> Table:
    schema = {"id": "long", "v": "long", "t": "string", "s": "struct<x: long, y: string>", "_merge_pos": "long"}
    table = Table.create(MemoryCatalog(), "db.t", schema=schema)
    table.append(TARGET)
    return table


def rows_of(table: Table) -> dict:
    return {row["id"]: {"v": row["v"], "t": row["t"]} for row in table.refresh().scan().to_arrow().to_pylist()}


def inputs() -> dict[str, Input]:
    found = {}
    for name, rows, schema in (
        ("feed", FEED, {"id": "long", "k": "long"}),
        ("sent", SOURCE, {"id": "long", "v": "long", "w": "long", "s": "struct<x: long, y: string>"}),
    ):
        table = Table.create(MemoryCatalog(), f"db.{name}", schema=schema)
        table.append(rows)
        found[name] = Input(open=lambda table=table: table)
    return found


def shown(rows: dict) -> dict:
    """Return rows as a table of this type has them: a struct or a list becomes no text by itself."""
    return {
        key: {name: None if value is None else str(value) for name, value in row.items()} for key, row in rows.items()
    }


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.mark.generated
@pytest.mark.parametrize("seed", some(range(200), each=40))
def test_a_merge_sees_what_sql_gives_it(seed, oracle):
    dice = random.Random(seed + SEED * 1_000_000)
    for _ in range(4):
        clauses = Maker(dice, oracle).clauses()
        check(clauses, oracle, "target.id = source.id")


def check(clauses, oracle, on):
    table, about = new_table(), "\n".join(clause.sql for clause in clauses)
    try:
        expected = oracle.merged(clauses)
    except ValueError as error:
        expected = error
    given = {name: one for name, one in inputs().items() if name == "sent" or "feed" in about}
    request = MergeRequest(
        rows=Source.from_sql("select * from sent", dialect="duckdb"),
        on=on,
        clauses=about,
        dialect="duckdb",
        inputs=given,
    )
    files = {name: one.open().io for name, one in given.items()}
    try:
        merge(Work(table, run=lambda plan: run_local(plan, table.io, inputs=files)), request)
        found = rows_of(table)
    except InvalidInputError as error:
        found = error
    if isinstance(expected, ValueError):
        assert isinstance(found, InvalidInputError), f"{about}\nexpected {expected}\nfound {found}"
    else:
        assert not isinstance(found, InvalidInputError), f"{about}\n{found}"
        assert shown(found) == shown(expected), about
