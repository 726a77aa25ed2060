"""Generated structs in updates: values that lack, exchange, rename or add fields at some depth, or have other numbers.

    for case in cases(100, seed=1):
        case.type, case.stored             # of the table's column `s`
        case.given, case.value             # of the value that a row gets
        case.expected                      # the row's value after it; REFUSED where it does not fit

The model resolves a value by the names of its fields, at every depth. Not here: running a case.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa

REFUSED = "refused"
NAMES = ("x", "y", "z", "element", "key", "id")
DUCKDB, SPARK = "duckdb", "spark"
WAYS = ("same", "lack", "exchange", "add", "rename", "numbers", "null")
STATEMENTS = ("update", "set", "star", "upsert", "insert", "insert of columns")


class Type:
    """A type of values."""


@dataclass(frozen=True)
class Leaf(Type):
    """Numbers or texts: "int", "long", "double", "string", or the scale of a decimal of nine digits."""

    kind: str | int


@dataclass(frozen=True)
class Struct(Type):
    """Fields, in their order."""

    fields: tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class Listed(Type):
    """A list."""

    element: Type


@dataclass(frozen=True)
class Mapped(Type):
    """A map with texts as keys."""

    value: Type


@dataclass(frozen=True, kw_only=True)
class StructCase:
    """A value that the row with id 1, or a new one with id 2, gets by a statement."""

    number: int
    type: Type
    stored: Any
    given: Type
    value: Any
    way: str
    statement: str
    mode: str
    source: str
    expected: Any

    @property
    def name(self) -> str:
        return f"{self.number:03}-{self.way}-{self.statement}-{self.source}-{self.mode}".replace(" ", "_")

    @property
    def is_new(self) -> bool:
        return self.statement.startswith("insert")

    @property
    def key(self) -> int:
        return 2 if self.is_new else 1

    @property
    def rows(self) -> dict[int, Any]:
        """The rows after it, as {id: s}."""
        found = {1: plain(self.stored, self.type)}
        return found if self.expected == REFUSED else {**found, self.key: plain(self.expected, self.type)}

    @property
    def clauses(self) -> str:
        return {
            "set": "when matched then update set s = source.s",
            "star": "when matched then update set *",
            "upsert": "when matched then update set * when not matched then insert *",
            "insert": "when not matched then insert *",
            "insert of columns": "when not matched then insert (s, id) values (source.s, source.id)",
        }[self.statement]

    def literal(self, dialect: str) -> str:
        return literal(self.value, self.given, dialect)

    def arrow(self) -> pa.Table:
        """Return the rows of a source."""
        values = pa.array([self.value], arrow(self.given))
        return pa.table({"id": pa.array([self.key], pa.int64()), "s": values})


def cases(count: int, seed: int) -> list[StructCase]:
    """Return so many cases, the same ones for the same numbers."""
    dice = random.Random(f"structs {seed}")
    return [_case(dice, number) for number in range(count)]


def _case(dice: random.Random, number: int) -> StructCase:
    kind = _with_struct(dice)
    way = WAYS[number % len(WAYS)]
    given = _changed(dice, kind, way)
    value = None if way == "null" and dice.random() < 0.5 else _value(dice, given, nulls=0.3 if way == "null" else 0.1)
    return StructCase(
        number=number,
        type=kind,
        stored=_value(dice, kind, nulls=0.1),
        given=given,
        value=value,
        way=way,
        statement=STATEMENTS[number // len(WAYS) % len(STATEMENTS)],
        mode=dice.choice(["copy-on-write", "merge-on-read"]),
        source=dice.choice(["rows", "query"]),
        expected=_resolved(value, given, kind) if _fits(given, kind) else REFUSED,
    )


# -- types and values --------------------------------------------------------------------------------------------------


def _with_struct(dice: random.Random) -> Type:
    made = _type(dice, 3)
    return made if any(_structs(made)) else Struct((("x", made), ("y", Leaf("int"))))


def _type(dice: random.Random, depth: int) -> Type:
    ways = [_leaf, _leaf, _struct, _struct, _list, _map] if depth else [_leaf]
    return dice.choice(ways)(dice, depth)


def _leaf(dice: random.Random, depth: int) -> Type:
    return Leaf(dice.choice(["int", "long", "double", "string", 1, 2]))


def _struct(dice: random.Random, depth: int) -> Type:
    names = dice.sample(NAMES, dice.randint(1, 3))
    return Struct(tuple((name, _type(dice, depth - 1)) for name in names))


def _list(dice: random.Random, depth: int) -> Type:
    return Listed(_type(dice, depth - 1))


def _map(dice: random.Random, depth: int) -> Type:
    return Mapped(_type(dice, depth - 1))


def _structs(kind: Type) -> Iterator[Struct]:
    match kind:
        case Struct():
            yield kind
            for _, inner in kind.fields:
                yield from _structs(inner)
        case Listed(inner) | Mapped(inner):
            yield from _structs(inner)


def _changed(dice: random.Random, kind: Type, way: str) -> Type:
    """Return a type with another struct at some depth, or with other numbers."""
    if way == "numbers":
        return _mapped(kind, lambda one: one, lambda leaf: Leaf(_other_number(dice, leaf.kind)))
    structs = list(_structs(kind))
    if way == "lack":
        # Never the only field: no engine has a struct without any.
        structs = [one for one in structs if len(one.fields) > 1]
    if not structs or way in ("same", "null"):
        return kind
    chosen, seen = dice.choice(structs), iter(range(1000))
    wanted = next(at for at, one in enumerate(_structs(kind)) if one is chosen)

    def change(one: Struct) -> Struct:
        return _changed_struct(dice, one, way) if next(seen) == wanted else one

    return _mapped(kind, change, lambda leaf: leaf)


def _mapped(kind: Type, struct: Any, leaf: Any) -> Type:
    match kind:
        case Struct():
            changed = struct(kind)
            known = dict(kind.fields)
            fields = [(n, _mapped(one, struct, leaf) if known.get(n) is one else one) for n, one in changed.fields]
            return Struct(tuple(fields))
        case Listed(inner):
            return Listed(_mapped(inner, struct, leaf))
        case Mapped(inner):
            return Mapped(_mapped(inner, struct, leaf))
    return leaf(kind)


def _changed_struct(dice: random.Random, one: Struct, way: str) -> Struct:
    fields = list(one.fields)
    if way == "lack":
        fields.pop(dice.randrange(len(fields)))
    elif way == "exchange":
        fields.reverse()
    elif way == "add":
        fields.insert(dice.randint(0, len(fields)), ("more", Leaf("int")))
    elif way == "rename":
        at = dice.randrange(len(fields))
        fields[at] = ("other", fields[at][1])
    return Struct(tuple(fields))


def _other_number(dice: random.Random, kind: str | int) -> str | int:
    return kind if kind == "string" else dice.choice(["int", "long", "double", 1, 3])


def _value(dice: random.Random, kind: Type, nulls: float) -> Any:
    match kind:
        case Struct():
            return {name: None if dice.random() < nulls else _value(dice, inner, nulls) for name, inner in kind.fields}
        case Listed(inner):
            return [_value(dice, inner, nulls) for _ in range(dice.randint(1, 2))]
        case Mapped(inner):
            return [(key, _value(dice, inner, nulls)) for key in dice.sample("abc", dice.randint(1, 2))]
        case Leaf("string"):
            return dice.choice(["a", "it's", ""])
        case Leaf("double"):
            return dice.choice([0.5, -1.75, 3.0, 12.25])
        case Leaf(int(scale)):
            return Decimal(dice.randint(-9999, 9999)).scaleb(-scale)
    return dice.randint(-9, 9)


# -- the model ---------------------------------------------------------------------------------------------------------


def _fits(given: Type, kind: Type) -> bool:
    match given, kind:
        case Struct(), Struct():
            there, wanted = dict(given.fields), dict(kind.fields)
            return there.keys() == wanted.keys() and all(_fits(there[name], wanted[name]) for name in wanted)
        case (Listed(one), Listed(other)) | (Mapped(one), Mapped(other)):
            return _fits(one, other)
    return True


def _resolved(value: Any, given: Type, kind: Type) -> Any:
    if value is None:
        return None
    match given, kind:
        case Struct(), Struct():
            there = dict(given.fields)
            return {name: _resolved(value[name], there[name], inner) for name, inner in kind.fields}
        case Listed(one), Listed(other):
            return [_resolved(item, one, other) for item in value]
        case Mapped(one), Mapped(other):
            return [(key, _resolved(item, one, other)) for key, item in value]
        case _, Leaf("int" | "long"):
            return int(Decimal(value).quantize(Decimal(1), ROUND_DOWN))
        case _, Leaf("double"):
            return float(value)
        case _, Leaf(int(scale)):
            return Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return value


def plain(value: Any, kind: Type) -> Any:
    """Return a value whose maps have no order, and whose decimals are of their scale."""
    if value is None:
        return None
    match kind:
        case Struct():
            return {name: plain(value[name], inner) for name, inner in kind.fields}
        case Listed(inner):
            return [plain(item, inner) for item in value]
        case Mapped(inner):
            return sorted((key, plain(item, inner)) for key, item in value)
    return value


# -- in the words of others --------------------------------------------------------------------------------------------


def arrow(kind: Type) -> pa.DataType:
    match kind:
        case Struct():
            return pa.struct([(name, arrow(inner)) for name, inner in kind.fields])
        case Listed(inner):
            return pa.list_(arrow(inner))
        case Mapped(inner):
            return pa.map_(pa.string(), arrow(inner))
        case Leaf(int(scale)):
            return pa.decimal128(9, scale)
        case Leaf(name):
            return {"int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "string": pa.string()}[name]
    raise AssertionError(kind)


def shorthand(kind: Type) -> str:
    """Return a type as `Table.create` reads it."""
    match kind:
        case Struct():
            return f"struct<{', '.join(f'{name}: {shorthand(inner)}' for name, inner in kind.fields)}>"
        case Listed(inner):
            return f"list<{shorthand(inner)}>"
        case Mapped(inner):
            return f"map<string, {shorthand(inner)}>"
        case Leaf(int(scale)):
            return f"decimal(9, {scale})"
        case Leaf(name):
            return name
    raise AssertionError(kind)


def sql_type(kind: Type, dialect: str) -> str:
    is_spark = dialect == SPARK
    match kind:
        case Struct():
            fields = [f"{name}{': ' if is_spark else ' '}{sql_type(inner, dialect)}" for name, inner in kind.fields]
            return f"struct<{', '.join(fields)}>" if is_spark else f"struct({', '.join(fields)})"
        case Listed(inner):
            return f"array<{sql_type(inner, dialect)}>" if is_spark else f"{sql_type(inner, dialect)}[]"
        case Mapped(inner):
            return f"map<string, {sql_type(inner, dialect)}>" if is_spark else f"map(text, {sql_type(inner, dialect)})"
        case Leaf(int(scale)):
            return f"decimal(9, {scale})"
        case Leaf(name):
            return "bigint" if name == "long" else name
    raise AssertionError(kind)


def literal(value: Any, kind: Type, dialect: str) -> str:
    """Return an expression with a value, of exactly this type."""
    if value is None:
        return f"cast(null as {sql_type(kind, dialect)})"
    is_spark = dialect == SPARK
    match kind:
        case Struct():
            parts = [(name, literal(value[name], inner, dialect)) for name, inner in kind.fields]
            if is_spark:
                return f"named_struct({', '.join(f'{name!r}, {text}' for name, text in parts)})"
            return "{" + ", ".join(f"'{name}': {text}" for name, text in parts) + "}"
        case Listed(inner):
            items = ", ".join(literal(item, inner, dialect) for item in value)
            return f"array({items})" if is_spark else f"[{items}]"
        case Mapped(inner):
            parts = [(f"'{key}'", literal(item, inner, dialect)) for key, item in value]
            if is_spark:
                return f"map({', '.join(f'{key}, {text}' for key, text in parts)})"
            return "map {" + ", ".join(f"{key}: {text}" for key, text in parts) + "}"
        case Leaf("string"):
            text = value.replace("'", "\\'" if is_spark else "''")
            return f"'{text}'"
    return f"cast('{value}' as {sql_type(kind, dialect)})"
