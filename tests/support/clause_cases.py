"""Clauses × sides: what a clause of a merge may name, where, and which value it has, in the words of Spark's SQL.

    for case in cases():
        case.clause                  # "when not matched by source then update set v = v"
        case.is_refused              # as by Spark with Iceberg Java
        case.expected                # the rows after the merge, as {id: v}

Not here: running a case.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from airflow_iceberg.table import Table

MATCHED, NOT_MATCHED, BY_SOURCE = "matched", "not matched", "not matched by source"
STRUCT = pa.struct([("x", pa.int64())])
COLUMNS = {"id": "long", "v": "long", "part": "string", "s": "struct<x: long>"}
TARGET = [{"id": 1, "v": 10, "part": "a", "s": {"x": 1}}, {"id": 2, "v": 20, "part": "b", "s": {"x": 2}}]
SOURCE = [{"id": 2, "v": 200, "w": 5, "s": {"x": 20}}, {"id": 8, "v": 800, "w": 7, "s": {"x": 80}}]
FEED = [(1, 3), (2, 1), (4, 4), (8, 2)]

Value = Callable[[dict[str, Any], dict[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Text:
    """An expression, and its value in each clause in which it has one.

    Attributes:
        values: by the rows of a clause; for other rows it is refused.
        is_java: whether Java evaluates it in `values`; Spark's MERGE has no stars, and few subqueries.
        is_spark: whether it is SQL of Spark alone.
    """

    sql: str
    values: Mapping[str, Value]
    is_java: bool = True
    is_spark: bool = False


def _of(name: str, side: str, *rows: str) -> dict[str, Value]:
    return {each: partial(_column, side, name) for each in rows}


def _column(side: str, name: str, t: dict[str, Any], s: dict[str, Any]) -> Any:
    row = t if side == "target" else s
    for part in name.split("."):
        row = row[part]
    return row


def _k(key: int | None) -> int | None:
    return dict(FEED).get(key)  # type: ignore[arg-type]


def _everywhere(value: Value) -> dict[str, Value]:
    return dict.fromkeys((MATCHED, NOT_MATCHED, BY_SOURCE), value)


def _length(row: dict[str, Any]) -> int:
    return len(json.dumps(row, separators=(",", ":")))


T, S = (MATCHED, BY_SOURCE), (MATCHED, NOT_MATCHED)
TEXTS = [
    *[Text(sql=sql, values=_of("v", "source", *S)) for sql in ("source.v", "SOURCE.V", "coalesce(source.v, 0)")],
    *[Text(sql=sql, values=_of("v", "target", *T)) for sql in ("target.v", "Target.V", "target.v + 0")],
    Text(sql="v", values={**_of("v", "source", NOT_MATCHED), **_of("v", "target", BY_SOURCE)}),
    Text(sql="V + id * 0", values={**_of("v", "source", NOT_MATCHED), **_of("v", "target", BY_SOURCE)}),
    Text(sql="s.x", values={**_of("s.x", "source", NOT_MATCHED), **_of("s.x", "target", BY_SOURCE)}),
    Text(sql="w", values=_of("w", "source", *S)),
    Text(sql="source.s.x", values=_of("s.x", "source", *S)),
    Text(sql="target.s.x", values=_of("s.x", "target", *T)),
    Text(sql="length(part)", values={each: lambda t, s: 1 for each in T}),
    Text(sql="case when source.v > 1 then target.v end", values=_of("v", "target", MATCHED)),
    Text(sql="target.id + source.id", values={MATCHED: lambda t, s: t["id"] + s["id"]}),
    *[Text(sql=sql, values={}) for sql in ("nope", "source.nope", "target.w", "source.part", "target.s.nope")],
    Text(sql="7", values=_everywhere(lambda t, s: 7)),
    Text(sql="null", values=_everywhere(lambda t, s: None)),
    Text(sql="(select max(k) from {feed} feed)", values=_everywhere(lambda t, s: 4)),
    Text(sql="(select max(source.k) from {feed} source)", values=_everywhere(lambda t, s: 4)),
    Text(
        sql="(select max(k) from {feed} feed where feed.id = source.id)",
        values={each: lambda t, s: _k(s["id"]) for each in S},
        is_java=False,
    ),
    Text(
        sql="(select max(k) from {feed} feed where feed.id = target.id)",
        values={each: lambda t, s: _k(t["id"]) for each in T},
        is_java=False,
    ),
    Text(sql="(select max(nope) from {feed} feed)", values={}),
    Text(sql="count(1)", values={}),
    *[
        Text(sql=sql, values=_everywhere(lambda t, s: 0), is_java=False, is_spark=True)
        for sql in ("xxhash64(*) * 0", "instr(to_json(struct(*)), '_pos')", "cardinality(array(struct(*))) - 1")
    ],
    Text(
        sql="length(to_json(struct(target.*)))",
        values={each: lambda t, s: _length(t) for each in T},
        is_java=False,
        is_spark=True,
    ),
    Text(
        sql="length(to_json(struct(source.*)))",
        values={each: lambda t, s: _length(s) for each in S},
        is_java=False,
        is_spark=True,
    ),
    # The comma between the sides replaces two brackets.
    Text(
        sql="length(to_json(struct(*)))",
        values=_everywhere(lambda t, s: _length(t) + _length(s) - 1 if t and s else _length(t or s)),
        is_java=False,
        is_spark=True,
    ),
    # Those of the row around a subquery.
    Text(
        sql="(select length(to_json(struct(source.*))))",
        values={each: lambda t, s: _length(s) for each in S},
        is_java=False,
        is_spark=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ClauseCase:
    """A text in a clause: as its condition, or as a value."""

    number: int
    rows: str
    is_condition: bool
    text: Text

    @property
    def name(self) -> str:
        place = "condition" if self.is_condition else "value"
        return f"{self.rows}-{place}-{self.text.sql}".replace("{feed} ", "")

    @property
    def clause(self) -> str:
        sql = self.text.sql
        if self.is_condition:
            action = "insert (id, v) values (source.id, 1)" if self.rows == NOT_MATCHED else "update set v = 1"
            return f"when {self.rows} and {sql} > 1 then {action}"
        action = f"insert (id, v) values (source.id, {sql})" if self.rows == NOT_MATCHED else f"update set v = {sql}"
        return f"when {self.rows} then {action}"

    @property
    def is_refused(self) -> bool:
        return self.rows not in self.text.values

    @property
    def expected(self) -> dict[int, Any]:
        """The rows after the merge, as {id: v}; those before it, if it is refused."""
        found = {row["id"]: row["v"] for row in TARGET}
        if self.is_refused:
            return found
        target = {MATCHED: TARGET[1], BY_SOURCE: TARGET[0]}.get(self.rows, {})
        source = {MATCHED: SOURCE[0], NOT_MATCHED: SOURCE[1]}.get(self.rows, {})
        value = self.text.values[self.rows](target, source)  # type: ignore[arg-type]
        key = int((target or source)["id"])  # type: ignore[call-overload]
        if not self.is_condition:
            found[key] = value
        elif value is not None and value > 1:
            found[key] = 1
        return found


def cases() -> list[ClauseCase]:
    """Return all of them."""
    made = [(rows, at, text) for text in TEXTS for rows in (MATCHED, NOT_MATCHED, BY_SOURCE) for at in (False, True)]
    return [
        ClauseCase(number=number, rows=rows, is_condition=at, text=text) for number, (rows, at, text) in enumerate(made)
    ]


def fill(table: Table) -> Table:
    """Append the rows of the table."""
    schema = pa.schema({"id": pa.int64(), "v": pa.int64(), "part": pa.string(), "s": STRUCT})
    table.append(pa.Table.from_pylist(TARGET, schema=schema))
    return table


def sent() -> pa.Table:
    schema = pa.schema({"id": pa.int64(), "v": pa.int64(), "w": pa.int64(), "s": STRUCT})
    return pa.Table.from_pylist(SOURCE, schema=schema)


def feed() -> pa.Table:
    ids, numbers = zip(*FEED, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(numbers, pa.int64())})
