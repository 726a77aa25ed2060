"""Generated merges and updates, in the words of Spark's SQL that DuckDB understands as well.

The tables are those of `cases`: types × transforms × versions × deletes × evolution. Here: the source of a merge, the
condition by which rows match, clauses, conditions and values. Not here: running a case (`merge_runs`).
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.case_types import Kind
from tests.support.cases import COW, MOR, TEXT, Base, Row, bases, random_row

DUCKDB, SPARK = "duckdb", "spark"
PER_BASE = 4
UPSERT = "when matched then update set * when not matched then insert *"


@dataclass(frozen=True, kw_only=True)
class RowStatement:
    """What is done to the table.

    Attributes:
        operation: "merge", "upsert", "update" or "delete".
        on: columns, or a condition.
        clauses: of a merge.
        set, where: of an update, or `where` of a delete; it may read the table `picked` of `merge_runs`.
        columns, rows: the source of a merge.
    """

    operation: str
    mode: str
    on: str | tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    columns: Mapping[str, Kind] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    @property
    def condition(self) -> str:
        if isinstance(self.on, str):
            return self.on
        return " and ".join(f"target.{name} = source.{name}" for name in self.on)

    @property
    def text(self) -> str:
        """All SQL of it."""
        return " ".join([self.condition, *self.clauses, *self.set, *self.set.values(), self.where or ""])

    def __str__(self) -> str:
        if self.operation == "update":
            values = ", ".join(f"{name} = {value}" for name, value in self.set.items())
            return f"{self.mode} update set {values} where {self.where}"
        if self.operation == "delete":
            return f"{self.mode} delete where {self.where}"
        lines = "\n    ".join(str(dict(row)) for row in self.rows)
        return f"{self.mode} {self.operation} on {self.condition}\n  " + "\n  ".join(self.clauses) + f"\n    {lines}"


@dataclass(frozen=True, kw_only=True)
class MergeCase:
    """A statement on a table."""

    number: int
    base: Base
    statement: RowStatement

    @property
    def name(self) -> str:
        base, statement = self.base, self.statement
        words = [f"{self.number:04}", f"v{base.version}", str(base.final["p"]), "_".join(base.partition_by) or "plain"]
        words += [base.evolution, base.deletes, statement.operation, statement.mode]
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)

    def __str__(self) -> str:
        return f"case {self.number}: {self.statement}\n  on {self.base}"


def generate(count: int, seed: int) -> list[MergeCase]:
    """Return so many cases, the same ones for the same numbers."""
    return _generated(count, seed, lambda maker: maker.statement())


def generate_deletes(count: int, seed: int) -> list[MergeCase]:
    """Return so many deletes by predicates that only an engine can evaluate, the same ones for the same numbers."""
    return _generated(count, seed, lambda maker: maker.delete())


def _generated(count: int, seed: int, make: Callable[["_Maker"], RowStatement]) -> list[MergeCase]:
    dice = random.Random(seed)
    cases: list[MergeCase] = []
    for base in (found for found in bases(dice) if found.is_for_spark):
        for _ in range(PER_BASE):
            if len(cases) == count:
                return cases
            cases.append(MergeCase(number=len(cases), base=base, statement=make(_Maker(dice, base))))
    return cases


class _Maker:
    def __init__(self, dice: random.Random, base: Base) -> None:
        self.dice = dice
        self.base = base
        self.note = "note" if "note" in base.final else "remark"
        self.mode = dice.choice([COW, MOR]) if base.version > 1 else COW

    def statement(self) -> RowStatement:
        dice, base = self.dice, self.base
        operation = dice.choices(["merge", "upsert", "update"], [7, 1, 2])[0]
        if operation == "update":
            values = dict(self._values(dice.randint(1, 3), has_source=False))
            where = self._condition(has_target=True, has_source=False)
            return RowStatement(operation=operation, mode=self.mode, set=values, where=where)
        on = ("id",) if operation == "upsert" else self._on()
        columns = {**base.final, "op": TEXT}
        clauses = (UPSERT,) if operation == "upsert" else tuple(self._clauses())
        rows = tuple(self._rows(on, chance_of_null=0.01 if operation == "upsert" else 0.06))
        given = {"on": on, "clauses": clauses, "columns": columns, "rows": rows}
        return RowStatement(operation=operation, mode=self.mode, **given)

    def delete(self) -> RowStatement:
        dice, note = self.dice, self.note
        ways = [
            "abs(target.id - 4) = 2",
            "cast(target.id as string) like '%1'",
            "cast(target.p as string) is null",
            "target.id > target.n",
            "cast(target.n as bigint) * 2 >= target.id",
            f"upper(target.{note}) = target.{note}",
            "coalesce(target.n, 0) = 0",
            "nullif(target.n, 3) is null",
            "case when target.p is null then target.n > 1 else target.id % 3 = 0 end",
            "target.id in (select id from picked)",
            "target.id not in (select id from picked)",
            "target.id not in (select id from picked where id is not null)",
            "target.n in (select n from picked where picked.id > 2)",
            "exists (select 1 from picked where picked.id = target.id)",
            "exists (select 1 from picked where picked.n = target.n and picked.id <> target.id)",
            "not exists (select 1 from picked where picked.id = target.id)",
            "target.id > 1 and exists (select 1 from picked where picked.id = target.id)",
        ]
        if self.base.final["p"].is_float:
            ways += ["target.p = target.p", "isnan(target.p) or abs(target.p) > 1", "target.p + 1 > target.n"] * 2
        where = dice.choice(ways)
        if dice.random() < 0.3 and "select" not in where:
            other = self._condition(has_target=True, has_source=False)
            where = f"{where} {dice.choice(['and', 'or'])} {other}"
        return RowStatement(operation="delete", mode=self.mode, where=where)

    # -- the source ------------------------------------------------------------------------------------------------

    def _on(self) -> str | tuple[str, ...]:
        ways = [
            ("id",),
            "target.id = source.id",
            "source.p = target.p",
            "target.p = source.p",
            "target.p = source.p and (target.id = source.id)",
            ("p", "q"),
            f"source.{self.note} = target.{self.note} and source.n = target.n",
            "target.id = source.id and target.n > 2",
            "target.id = source.id and (source.op = 'u' or target.q is null)",
            "target.p is not distinct from source.p",
            "target.id = source.id + 1",
            "target.id % 5 = source.id and target.n is not null",
            "target.n > 4",
        ]
        return self.dice.choice(ways)

    def _rows(self, on: str | tuple[str, ...], chance_of_null: float) -> Iterator[Row]:
        dice, base = self.dice, self.base
        by_id = "id" in on
        taken = set()
        known = dice.sample(base.rows, min(len(base.rows), dice.choice([0, 2, 4, 8])))
        if on == "target.n > 4":
            known = known[:1]
        for row in [*known, *([None] * (dice.randint(0, 3) if by_id else 0))]:
            known_value = {} if row is None else row
            pools = {n: [*kind.values, None, *[known_value.get(n)] * 2] for n, kind in base.final.items()}
            made = {**random_row(dice, base.final, pools, 0), "op": dice.choice(["u", "u", "d", "i", None])}
            made["id"] = 1000 + len(taken) if row is None else row["id"]
            if dice.random() < chance_of_null:
                made["id"] = None
            if not by_id and row is not None:
                made |= {name: row[name] for name in ("p", "q", "n", self.note)}
            key = repr(made["id"] if by_id else (made["p"] == 0 or made["p"]))
            # Rows of the same key are rejected, most often.
            if key in taken and dice.random() < 0.85:
                continue
            taken.add(key)
            yield made
            if dice.random() < 0.02:
                yield {**made, "op": "u"}

    # -- clauses ---------------------------------------------------------------------------------------------------

    def _clauses(self) -> Iterator[str]:
        dice = self.dice
        kinds = dice.choices(["matched", "not matched", "not matched by source"], [5, 3, 2], k=dice.randint(1, 4))
        kinds.sort(key=["matched", "not matched", "not matched by source"].index)
        for at, rows in enumerate(kinds):
            is_last = at + 1 == len(kinds) or kinds[at + 1] != rows
            has_target, has_source = rows != "not matched", rows != "not matched by source"
            condition = ""
            if not is_last or dice.random() < 0.5:
                condition = f" and {self._condition(has_target=has_target, has_source=has_source)}"
            yield f"when {rows}{condition} then {self._action(rows)}"

    def _action(self, rows: str) -> str:
        dice = self.dice
        if rows == "not matched":
            if dice.random() < 0.4:
                return "insert *"
            names = ["id", *dice.sample([n for n in self.base.final if n != "id"], dice.randint(1, 5))]
            dice.shuffle(names)
            values = [dice.choice(self._expressions(name, has_target=False, has_source=True)) for name in names]
            return f"insert ({', '.join(names)}) values ({', '.join(values)})"
        if dice.random() < 0.3:
            return "delete"
        if rows == "matched" and dice.random() < 0.25:
            return "update set *"
        has_source = rows == "matched"
        values = self._values(dice.randint(1, 3), has_source=has_source)
        return "update set " + ", ".join(
            f"{'target.' if dice.random() < 0.3 else ''}{name} = {value}" for name, value in values
        )

    def _values(self, count: int, *, has_source: bool) -> Iterator[tuple[str, str]]:
        for name in self.dice.sample([name for name in self.base.final if name != "id"], count):
            yield name, self.dice.choice(self._expressions(name, has_target=True, has_source=has_source))

    def _condition(self, *, has_target: bool, has_source: bool) -> str:
        note = self.note
        ways = []
        if has_target:
            ways += ["target.n > 2", f"target.{note} is null", "target.id % 2 = 0", "not (target.n < 3)"]
            ways += [f"length(target.{note}) > 1", "target.q is not null", "target.st is null", "target.st.a = 1"]
            ways += ["(target.p is null or target.n = 5)"]
            if self.base.final["p"].is_float:
                ways += ["isnan(target.p)", "target.p = 0", "target.p > 1"] * 2
        if has_source:
            ways += ["source.op = 'u'", "source.op = 'd'", "source.op in ('u', 'i')", "source.q is not null"]
            ways += ["source.op is not null", "source.p is null"]
        if has_target and has_source:
            ways += ["target.p = source.p", "source.n > target.n", "target.q is distinct from source.q"]
        condition = self.dice.choice(ways)
        if self.dice.random() < 0.2:
            condition = f"({condition} or {self.dice.choice(ways)})"
        return condition

    def _expressions(self, name: str, *, has_target: bool, has_source: bool) -> list[str]:
        kind = self.base.final[name]
        if name == "id":
            return ["source.id"]
        ways = ["null"]
        if has_source:
            ways += [f"source.{name}"] * 4
        if has_target:
            ways += [f"target.{name}"]
        if has_source and has_target:
            ways += [f"coalesce(source.{name}, target.{name})", f"coalesce(target.{name}, source.{name})"]
            ways += [f"case when target.n > 1 then source.{name} else target.{name} end"]
        side = "target" if has_target else "source"
        ways += self._computed(kind, f"{side}.{name}", side)
        return ways

    def _computed(self, kind: Kind, column: str, side: str) -> list[str]:
        by_type = {
            "int": ["7", f"{column} / 2", f"coalesce({column}, 0) % 7 + 1", f"{column} * 0.5", f"{side}.id"],
            "long": ["7", f"{column} / 2", f"coalesce({column}, 0) % 7 + 1", f"{side}.id"],
            "string": [f"upper({column})", f"{column} || 'x'", "'new'", f"cast({side}.id as string)"],
            "boolean": [f"not {column}", "true", f"{side}.n > 2"],
            "float": [f"{column} * 2", "1.25", f"{side}.n", f"cast({side}.n as double) / 3"],
            "double": [f"{column} * 2", "1.25", f"{side}.n", "0.1"],
            "decimal(9, 2)": [f"{column} * 1.5", "1.25", "1.005", "-1.005", f"{side}.id"],
            "decimal(18, 4)": ["1.25", "1.00005", "-1.00015", f"{side}.id"],
            "decimal(38, 10)": ["1.25", "0.00000000005", f"{side}.id"],
            "date": ["date '2026-03-01'"],
            "timestamptz": ["timestamp '2026-03-01 01:02:03'"] if self.base.number % 2 else [],
        }
        return by_type.get(kind.type, [])
