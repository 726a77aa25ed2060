"""Generated cases of one operation on one table, for us and for Iceberg Java alike, with SQL's answer to each.

Here: tables (`Base`: how one is made, step by step, and which rows it holds then), statements (`Statement`), and
`generate`, which crosses them from a seed. Not here: predicates and what is true of them (`case_predicates`), types and
their values (`case_types`), running a case (`case_runs`, and `java_cases` on Java's side).

Every generated table has the columns `id` (a number that no other row has), `p` and `q` (of any type), `n`, `note`,
`st` (a struct) and `tags`.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.case_predicates import Predicate, any_predicate
from tests.support.case_types import KINDS, Kind, kinds_of

Row = Mapping[str, Any]
COW, MOR = "copy-on-write", "merge-on-read"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of making a table.

    Attributes:
        do: "insert", "sql" (with `{t}` for the table), "equality" (delete these ids by an equality delete file) or
            "default" (add the column `extra` with a default).
    """

    do: str
    sql: str = ""
    rows: tuple[Row, ...] = ()
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Base:
    """A table before the operation.

    Attributes:
        columns: name and kind of each, as they are created.
        final: the same when all steps are done.
        partition_by: in the words of `Table.create`.
        deletes: "none", "position", "vector" or "equality".
        spec_after: the partitioning that is current in the end.
        rows: those that are left when all steps are done.
    """

    number: int
    version: int
    created_as: int
    columns: Mapping[str, Kind]
    final: Mapping[str, Kind]
    partition_by: tuple[str, ...]
    deletes: str
    evolution: str
    properties: Mapping[str, str]
    steps: tuple[Step, ...]
    rows: tuple[Row, ...]

    @property
    def terms(self) -> frozenset[str]:
        """The partition fields that it has or has had, as they were given."""
        added = [step.sql.rpartition(" with " if " with " in step.sql else " field ")[2] for step in self.steps]
        return frozenset([*self.partition_by, *(text for text in added if text)])

    @property
    def is_for_spark(self) -> bool:
        """Whether Spark has all of its types; else Java makes nothing and reads by its own classes."""
        return all(kind.sql is not None for kind in self.final.values())

    def __str__(self) -> str:
        parts = ", ".join(self.partition_by) or "unpartitioned"
        upgraded = f" (made as v{self.created_as})" if self.created_as != self.version else ""
        kinds = f"p {self.final['p']}, q {self.final['q']}"
        return f"v{self.version}{upgraded}, {kinds}, by {parts}, evolution {self.evolution}, deletes {self.deletes}"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is done to the table.

    Attributes:
        operation: one of OPERATIONS.
        mode: of a delete.
        through: "table" for the methods of Table, "job" for a plan that the executor of this process runs.
        rows: new ones.
    """

    operation: str
    mode: str = COW
    through: str = "table"
    predicate: Predicate | None = None
    rows: tuple[Row, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    strategy: str = "binpack"
    sort_by: tuple[str, ...] = ()

    @property
    def where(self) -> str | None:
        return None if self.predicate is None else self.predicate.sql

    def __str__(self) -> str:
        what = [self.operation, self.through]
        what += [self.mode] if self.operation == "delete" else []
        what += [f"{len(self.rows)} rows"] if self.rows else []
        what += [f"where {self.where}"] if self.where else []
        if self.operation == "compact":
            what += [self.strategy, *self.sort_by, str(dict(self.options))]
        return " ".join(what)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A statement on a table."""

    number: int
    base: Base
    statement: Statement

    @property
    def name(self) -> str:
        base, statement = self.base, self.statement
        words = [f"{self.number:04}", f"v{base.version}", str(base.final["p"]), "_".join(base.partition_by) or "plain"]
        words += [base.evolution, base.deletes, statement.operation]
        words += [statement.mode] if statement.operation == "delete" else []
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)

    def expected(self) -> list[Row] | None:
        """Return the rows that SQL leaves; None for a dynamic overwrite, which SQL does not define."""
        rows, statement = list(self.base.rows), self.statement
        match statement.operation:
            case "append":
                return rows + list(statement.rows)
            case "overwrite":
                return list(statement.rows)
            case "overwrite where":
                return [row for row in rows if not statement.predicate.selects(row)] + list(statement.rows)
            case "overwrite partitions":
                return None
            case "delete":
                return [row for row in rows if not statement.predicate.selects(row)]
        return rows

    def __str__(self) -> str:
        return f"case {self.number}: {self.statement}\n  on {self.base}"


OPERATIONS = {
    "delete": 22,
    "overwrite where": 7,
    "overwrite partitions": 6,
    "overwrite": 2,
    "append": 3,
    "compact": 8,
    "rewrite manifests": 2,
    "expire": 2,
}
PER_BASE = 4


def generate(count: int, seed: int) -> list[Case]:
    """Return so many cases, the same ones for the same numbers."""
    dice = random.Random(seed)
    cases: list[Case] = []
    for base in bases(dice):
        for _ in range(PER_BASE):
            if len(cases) == count:
                return cases
            cases.append(Case(number=len(cases), base=base, statement=_statement(dice, base)))
    return cases


# -- tables ------------------------------------------------------------------------------------------------------------


def bases(dice: random.Random) -> Iterator[Base]:
    """Yield tables without end: each factor goes through all its levels, independently of the others."""
    # Of types that Spark does not have, with which Java does no statement, one transform will do.
    chosen = [(kind, kind.transforms if kind.sql else dice.sample(kind.transforms, 1)) for kind in KINDS]
    pairs = _cycle(dice, [(kind, transform) for kind, transforms in chosen for transform in transforms])
    versions = _cycle(dice, [1, 2, 2, 3, 3, 3])
    deletes = {
        1: itertools.repeat("none"),
        2: _cycle(dice, ["none", "position", "position", "equality"]),
        3: _cycle(dice, ["none", "vector", "vector", "equality"]),
    }
    layouts = _cycle(dice, ["one", "one", "one", "two", "none", "void"])
    evolutions = _cycle(dice, ["none", "none", "none", "spec", "spec", "column", "promotion", "rename", "upgrade"])
    for number in itertools.count():
        kind, transform = next(pairs)
        version = max(next(versions), kind.since)
        evolution = next(evolutions)
        if evolution == "column" and version == 3 and dice.random() < 0.6:
            evolution = "default"
        yield _base(dice, number, kind, transform, version, next(layouts), next(deletes[version]), evolution)


def _cycle(dice: random.Random, levels: list[Any]) -> Iterator[Any]:
    while True:
        yield from dice.sample(levels, len(levels))


def _base(
    dice: random.Random,
    number: int,
    kind: Kind,
    transform: str,
    version: int,
    layout: str,
    deletes: str,
    evolution: str,
) -> Base:
    created_as = version
    if evolution == "upgrade":
        created_as = dice.choice([1, 2]) if version == 3 else 1
        created_as = max(created_as, kind.since) if version == 3 else created_as
        if version == 1 or created_as == version:
            created_as, evolution = version, "none"
    others = kinds_of(created_as, for_spark=kind.sql is not None)
    q = dice.choice(others)
    columns = {"id": KINDS_BY_TYPE["long"], "p": kind, "q": q, "n": KINDS_BY_TYPE["int"], "note": TEXT}
    columns |= {"st": PLACE, "tags": TAGS}
    if kind.sql is None and evolution not in ("none", "default"):
        evolution = "none"  # Spark does not get to see the table
        created_as = version
    partition_by = _partitioning(dice, kind, transform, q, layout)
    maker = _Maker(dice, columns, partition_by, created_as)
    _make(maker, dice, version, deletes, evolution)
    granularity = dice.choice(["file", "partition"])
    return Base(
        number=number,
        version=version,
        created_as=created_as,
        columns=columns,
        final=dict(maker.columns),
        partition_by=partition_by,
        deletes=deletes,
        evolution=evolution,
        properties={
            "format-version": str(created_as),
            "write.delete.mode": MOR if version > 1 else COW,
            "write.update.mode": dice.choice([MOR, COW]) if version > 1 else COW,
            "write.delete.granularity": granularity,
            "write.update.distribution-mode": "none",
            "write.distribution-mode": "none",
            "write.delete.distribution-mode": "none",
            "write.merge.distribution-mode": "none",
            "write.spark.fanout.enabled": "true",
            **({"write.metadata.metrics.default": "counts"} if dice.random() < 0.1 else {}),
        },
        steps=tuple(maker.steps),
        rows=tuple(maker.rows),
    )


def term(kind_transform: str, column: str) -> str:
    """Return a partition field in the words of `Table.create`."""
    name, _, argument = kind_transform.partition("[")
    if name == "identity":
        return column
    return f"{name}({argument.rstrip(']')}, {column})" if argument else f"{name}({column})"


def _partitioning(dice: random.Random, kind: Kind, transform: str, q: Kind, layout: str) -> tuple[str, ...]:
    first = term(transform, "p")
    match layout:
        case "none":
            return ()
        case "two":
            seconds = [term(t, "q") for t in q.transforms] + ["note", "truncate(1, note)", "st.b", "bucket(2, id)"]
            return tuple(dice.sample([first, dice.choice(seconds)], 2))
        case "void":
            return (first, "void(note)") if dice.random() < 0.5 else ("void(p)", "bucket(3, id)")
    return (first,)


class _Maker:
    """Makes a table, step by step, and keeps the rows that it has then."""

    def __init__(
        self, dice: random.Random, columns: Mapping[str, Kind], partition_by: tuple[str, ...], version: int
    ) -> None:
        self.dice = dice
        self.columns = dict(columns)
        self.partition_by = partition_by
        self.version = version
        self.steps: list[Step] = []
        self.rows: list[Row] = []
        self.next_id = 0
        self.pools = {name: _pool(dice, kind) for name, kind in columns.items()}

    def insert(self, count: int) -> None:
        rows = tuple(self.row() for _ in range(count))
        self.steps.append(Step(do="insert", rows=rows))
        self.rows += rows

    def row(self) -> Row:
        self.next_id += 1
        return random_row(self.dice, self.columns, self.pools, self.next_id)

    def sql(self, text: str) -> None:
        self.steps.append(Step(do="sql", sql=text))

    def delete(self, how: str, count: int) -> None:
        gone = sorted(self.dice.sample([row["id"] for row in self.rows], count))
        if how == "equality":
            self.steps.append(Step(do="equality", ids=tuple(gone)))
        else:
            self.sql(f"delete from {{t}} where id in ({', '.join(map(str, gone))})")
        self.rows = [row for row in self.rows if row["id"] not in gone]

    def update(self, count: int) -> None:
        changed = sorted(self.dice.sample([row["id"] for row in self.rows], count))
        self.sql(f"update {{t}} set n = 5 where id in ({', '.join(map(str, changed))})")
        self.rows = [{**row, "n": 5} if row["id"] in changed else row for row in self.rows]

    def add_column(self, name: str, kind: Kind, default: Any) -> None:
        self.columns[name] = kind
        self.pools[name] = _pool(self.dice, kind)
        self.rows = [{**row, name: default} for row in self.rows]

    def rename(self, old: str, new: str) -> None:
        for mapping in (self.columns, self.pools):
            items = [(new if name == old else name, value) for name, value in mapping.items()]
            mapping.clear()
            mapping.update(items)
        self.rows = [{(new if name == old else name): value for name, value in row.items()} for row in self.rows]


def _make(maker: _Maker, dice: random.Random, version: int, deletes: str, evolution: str) -> None:
    maker.insert(dice.randint(8, 14))
    if evolution == "upgrade":
        if maker.version == 2 and deletes != "none":
            maker.delete("position", dice.randint(1, 3))
        maker.sql(f"alter table {{t}} set tblproperties ('format-version'='{version}')")
    else:
        _evolve(maker, dice, evolution)
    maker.insert(dice.randint(6, 12))
    if deletes != "none":
        maker.delete(deletes, dice.randint(1, 6))
    if maker.columns["p"].sql is not None and dice.random() < 0.3:
        maker.update(dice.randint(1, 4))
    if dice.random() < 0.5:
        maker.insert(dice.randint(2, 5))
    if deletes != "none" and dice.random() < 0.4:
        maker.delete(deletes, dice.randint(1, 4))


def _evolve(maker: _Maker, dice: random.Random, evolution: str) -> None:
    match evolution:
        case "spec":
            for text in _new_spec(dice, maker.partition_by):
                maker.sql(text)
        case "column":
            maker.sql("alter table {t} add column extra int")
            maker.add_column("extra", KINDS_BY_TYPE["int"], None)
        case "default":
            maker.steps.append(Step(do="default"))
            maker.add_column("extra", KINDS_BY_TYPE["int"], 7)
        case "promotion":
            maker.sql("alter table {t} alter column n type bigint")
            maker.columns["n"] = KINDS_BY_TYPE["long"]
            maker.pools["n"] = _pool(dice, KINDS_BY_TYPE["long"])
        case "rename":
            maker.sql("alter table {t} rename column note to remark")
            maker.rename("note", "remark")


def spark_term(text: str) -> str:
    """Return a partition field in the words of Java's SQL."""
    for unit in ("year", "month", "day", "hour"):
        if text.startswith(f"{unit}("):
            return text.replace(unit, f"{unit}s", 1)
    return text


def _new_spec(dice: random.Random, partition_by: tuple[str, ...]) -> list[str]:
    fields = [text for text in partition_by if not text.startswith("void")]
    new = dice.choice([text for text in ("bucket(3, id)", "note", "truncate(5, n)", "st.a") if text not in fields])
    ways = [[f"alter table {{t}} add partition field {new}"]]
    if fields:
        old = spark_term(dice.choice(fields))
        ways.append([f"alter table {{t}} drop partition field {old}"])
        ways.append([f"alter table {{t}} replace partition field {old} with {new}"])
    return dice.choice(ways)


def _pool(dice: random.Random, kind: Kind) -> list[Any]:
    """Return the few values that a column takes: several rows share each, and so partitions hold several rows."""
    values = dice.sample(kind.values, min(len(kind.values), dice.randint(2, 5)))
    return [*values, None] if dice.random() < 0.8 else values


def random_row(dice: random.Random, columns: Mapping[str, Kind], pools: Mapping[str, list[Any]], number: int) -> Row:
    return {name: number if name == "id" else dice.choice(pools[name]) for name in columns}


# -- statements --------------------------------------------------------------------------------------------------------


def _statement(dice: random.Random, base: Base) -> Statement:
    names = list(OPERATIONS)
    operation = dice.choices(names, [OPERATIONS[name] for name in names])[0]
    through = dice.choice(["table", "job"])
    statement = Statement(operation=operation, through=through)
    match operation:
        case "delete":
            mode = dice.choice([COW, MOR]) if base.version > 1 else COW
            return replace(statement, mode=mode, predicate=any_predicate(dice, base.final, base.rows))
        case "append" | "overwrite" | "overwrite partitions":
            return replace(statement, rows=_new_rows(dice, base, dice.randint(1, 8)))
        case "overwrite where":
            return _overwrite_where(dice, base, statement)
        case "compact":
            return _compaction(dice, base, statement)
    return statement


def _new_rows(dice: random.Random, base: Base, count: int) -> tuple[Row, ...]:
    known = {name: [row[name] for row in base.rows] for name in base.final}
    pools = {name: [*kind.values, None, *known[name], *known[name]] for name, kind in base.final.items()}
    return tuple(random_row(dice, base.final, pools, 1000 + number) for number in range(count))


def _overwrite_where(dice: random.Random, base: Base, statement: Statement) -> Statement:
    predicate = any_predicate(dice, base.final, base.rows)
    rows = [row for row in _new_rows(dice, base, 40) if predicate.selects(row)][: dice.randint(0, 6)]
    return replace(statement, predicate=predicate, rows=tuple(rows))


def _compaction(dice: random.Random, base: Base, statement: Statement) -> Statement:
    options = {"rewrite-all": "true"} if dice.random() < 0.6 else {"min-input-files": "2", "delete-file-threshold": "1"}
    if dice.random() < 0.3:
        options["remove-dangling-deletes"] = "true"
    strategy = dice.choice(["binpack", "binpack", "sort", "zorder"])
    note = "note" if "note" in base.final else "remark"
    orders = {
        "binpack": [()],
        "sort": [("id desc nulls last",), ("n asc nulls first", "id desc nulls last"), (f"{note} desc nulls first",)],
        "zorder": [("id", "n"), (note, "id")],
    }
    predicate = any_predicate(dice, base.final, base.rows) if dice.random() < 0.4 else None
    sort_by = dice.choice(orders[strategy])
    return replace(statement, options=options, strategy=strategy, sort_by=sort_by, predicate=predicate, through="job")


KINDS_BY_TYPE = {kind.type: kind for kind in KINDS}
TEXT = KINDS_BY_TYPE["string"]
PLACE = Kind(
    "struct<a: int, b: string>",
    "struct<a: int, b: string>",
    ({"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 2, "b": None}, {"a": 3, "b": "ä"}),
)
TAGS = Kind("list<string>", "array<string>", ([], ["a"], ["b", None, "😀"]))
