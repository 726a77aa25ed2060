"""Statements over tables whose names are nearly the same: twins in case, equal last names, keys inside structs.

Each case knows the rows after it by exact names: a model in plain Python, where a name is a path of fields.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_iceberg.expressions.merge_clauses import field_of, quoted
from airflow_iceberg.format.names import fold

COLUMNS, FIELDS = ["id", "ID", "v", "V", "ä", "Ä", "a", "A", "b", "s"], ["id", "ID", "x", "X", "a", "ä", "Ä"]
Row = dict[str, Any]
Path = tuple[str, ...]
OUT = "out"


def kind_of(dice: random.Random, depth: int, twins: float) -> pa.DataType:
    if depth == 2 or dice.random() < 0.6 + depth * 0.2:
        return pa.int64()
    return pa.struct([(name, kind_of(dice, depth + 1, twins)) for name in names_of(dice, FIELDS, twins)])


def names_of(dice: random.Random, pool: list[str], twins: float) -> list[str]:
    """Return some names; in most of the lists none differs from another one by case alone."""
    found = dice.sample(pool, dice.randint(2, 4))
    if dice.random() < twins:
        return found
    return list({fold(name): name for name in found}.values())


def leaves(fields: Any, prefix: Path = ()) -> list[Path]:
    found: list[Path] = []
    for item in fields:
        path = (*prefix, item.name)
        found += leaves(item.type, path) if pa.types.is_struct(item.type) else [path] if item.type == pa.int64() else []
    return found


def value(dice: random.Random, kind: pa.DataType, nulls: float) -> Any:
    if dice.random() < nulls:
        return None
    if pa.types.is_struct(kind):
        return {item.name: value(dice, item.type, nulls) for item in kind}
    return dice.randrange(6)


def at(row: Any, path: Path) -> Any:
    for name in path:
        row = None if row is None else row[name]
    return row


def with_value(row: Any, path: Path, new: Any, kind: Any) -> Any:
    """Return a row, or a struct, with another value at a path; around it no struct is null any more."""
    if not path:
        return new
    known = row or {item.name: None for item in kind}
    inner = next(item.type for item in kind if item.name == path[0])
    return {**known, path[0]: with_value(known[path[0]], path[1:], new, inner)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A statement.

    Attributes:
        schema: the columns of the table; `rows` are in it before, `expected` after the statement.
        given: the rows of the source; None without a source.
        upsert, on, clauses: a merge; `sets`, `where` are an update; `query` reads the table as `src`.
    """

    name: str
    schema: pa.Schema
    rows: list[Row]
    given: pa.Table | None = None
    upsert: bool = False
    on: Any = None
    clauses: str | None = None
    sets: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    query: str | None = None
    expected: list[Row]
    mode: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}: {self.on or self.sets or self.query}, {self.clauses or self.where} of {self.schema}"


def made(seed: str, dialect: str) -> Case:
    """Make a case."""
    dice = random.Random(seed)
    twins = dice.choice([0, 0.2, 0.6])
    while True:
        columns = [(name, kind_of(dice, 0, twins)) for name in names_of(dice, COLUMNS, twins)]
        schema = pa.schema([*columns, ("n", pa.int64())])
        if dice.random() < 0.3:
            schema = schema.append(pa.field("pts", pa.list_(pa.struct([("id", pa.int32()), ("x", pa.int32())]))))
        if len(leaves(schema)) > 2:
            break
    rows = [dict.fromkeys(schema.names) | _row(dice, schema, 0.05) for _ in range(dice.randint(3, 12))]
    known = {
        "schema": schema,
        "rows": rows,
        "mode": dice.choice(["copy-on-write", "merge-on-read"]),
        "version": dice.choice([2, 3]),
    }
    kind = dice.choice([_upsert, _merge, _merge, _update, _query])
    return Case(name=f"{kind.__name__[1:]} {seed}", **known, **kind(_Maker(dice, dialect, schema, rows)))


def _row(dice: random.Random, schema: Any, nulls: float) -> Row:
    return {item.name: value(dice, item.type, nulls) for item in schema if not pa.types.is_list(item.type)}


@dataclass
class _Maker:
    dice: random.Random
    dialect: str
    schema: pa.Schema
    rows: list[Row]

    def leaf(self, schema: pa.Schema | None = None) -> Path:
        return self.dice.choice(leaves(self.schema if schema is None else schema))

    def sql(self, side: str, path: Path) -> str:
        return field_of(side, path, dialect=self.dialect)

    def plain(self, path: Path) -> str:
        return ".".join(quoted(name, self.dialect) for name in path)

    def source(self) -> tuple[pa.Schema, list[Row]]:
        """Return the columns and rows of a source: those of the table in another order, and at times one more."""
        dice, fields = self.dice, list(self.schema)
        dice.shuffle(fields)
        if dice.random() < 0.4:
            taken = set(self.schema.names)
            fields.insert(0, pa.field(dice.choice([name for name in [*COLUMNS, "N"] if name not in taken]), pa.int64()))
        schema = pa.schema(fields)
        return schema, [dict.fromkeys(schema.names) | _row(dice, schema, 0) for _ in range(dice.randint(1, 8))]


def _distinct(rows: list[Row], keys: list[Path]) -> list[Row]:
    return list({repr([at(row, path) for path in keys]): row for row in rows}.values())


def _upsert(make: _Maker) -> dict[str, Any]:
    schema, found = make.source()
    keys = list(dict.fromkeys(make.leaf() for _ in range(make.dice.randint(1, 2))))
    source = _distinct(found, keys)
    by_key = {tuple(at(row, path) for path in keys): {name: row[name] for name in make.schema.names} for row in source}
    mine = [tuple(at(row, path) for path in keys) for row in make.rows]
    expected = [by_key.get(key, row) for key, row in zip(mine, make.rows, strict=True)]
    expected += [row for key, row in by_key.items() if key not in mine]
    on = [".".join(path) for path in keys]
    return {"given": pa.Table.from_pylist(source, schema), "upsert": True, "on": on, "expected": expected}


def _merge(make: _Maker) -> dict[str, Any]:
    dice = make.dice
    schema, found = make.source()
    mine, theirs = make.leaf(), make.leaf(schema)
    on: Any = f"{make.sql('target', mine)} = {make.sql('source', theirs)}"
    if dice.random() < 0.4:
        theirs, on = mine, [".".join(mine)]
    source = _distinct(found, [theirs])
    by_key = {at(row, theirs): row for row in source}
    column, new = make.leaf(), make.leaf(schema)
    actions: dict[str, Callable[[Row, Row], Row | None]] = {
        "delete": lambda row, other: None,
        f"update set {make.plain(column)} = {make.sql('source', new)}": lambda row, other: with_value(
            row, column, at(other, new), make.schema
        ),
        "update set *": lambda row, other: {name: other[name] for name in make.schema.names},
    }
    action = dice.choice(list(actions))
    matched = [(row, by_key.get(at(row, mine))) for row in make.rows]
    after = [row if other is None else actions[action](row, other) for row, other in matched]
    clauses, expected = f"when matched then {action}", [row for row in after if row is not None]
    if dice.random() < 0.5:
        top = dice.choice([path for path in leaves(make.schema) if len(path) == 1])
        clauses += f" when not matched then insert ({make.plain(top)}) values ({make.sql('source', new)})"
        keys = {at(row, mine) for row in make.rows}
        others = [row for key, row in by_key.items() if key not in keys]
        expected += [{**dict.fromkeys(make.schema.names), top[0]: at(row, new)} for row in others]
    given = pa.Table.from_pylist(source, schema)
    return {"given": given, "on": on, "clauses": clauses, "expected": expected}


def _update(make: _Maker) -> dict[str, Any]:
    column, new, by, number = make.leaf(), make.leaf(), make.leaf(), make.dice.randrange(6)
    name = make.dice.choice([make.plain(column), ".".join(column)])
    where = make.dice.choice([make.sql("target", by), make.plain(by)])
    return {
        "sets": {name: f"{make.sql('target', new)} + 10"},
        "where": f"{where} = {number}",
        "expected": [
            with_value(row, column, None if at(row, new) is None else at(row, new) + 10, make.schema)
            if at(row, by) == number
            else row
            for row in make.rows
        ],
    }


def _query(make: _Maker) -> dict[str, Any]:
    wanted, by, number = make.leaf(), make.leaf(), make.dice.randrange(6)
    of = make.dice.choice(["src", "t"])
    where = make.dice.choice([make.sql(of, by), make.plain(by)])
    alias = "" if of == "src" else " as t"
    return {
        "query": f"select {make.sql(of, wanted)} as {OUT} from src{alias} where {where} = {number}",
        "expected": [{OUT: at(row, wanted)} for row in make.rows if at(row, by) == number],
    }


def names_twins(message: str) -> bool:
    """Whether a message names two columns that differ by case alone."""
    names = re.findall(r"'([^']+)'", message)
    return any(one != other and fold(one) == fold(other) for one in names for other in names)
