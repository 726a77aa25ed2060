"""The types of the specification, versions 1 to 3.

Here: primitive and nested types, and type strings. Not here: the JSON of metadata (`type_json`), lookup by name
(`schemas.schema`), Arrow's types (`arrow.types`), values (`values`), types as people write them (`schemas.shorthand`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.json_fields import MAX_INT

Value: TypeAlias = Any
"""A canonical Python value: the Python type that represents each Iceberg type.

boolean bool; int, long int; float, double float; date int (days); time int (µs); timestamp and timestamptz int (µs
since the epoch, UTC); timestamp_ns and timestamptz_ns int (ns); string str; uuid uuid.UUID; fixed, binary, geometry,
geography and variant bytes; decimal decimal.Decimal of exactly the type's scale; struct tuple in field order; list
tuple; map dict; null None.
"""

MAX_DECIMAL_PRECISION = 38
DEFAULT_CRS = "OGC:CRS84"
DEFAULT_EDGE_ALGORITHM = "spherical"
EDGE_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")


@dataclass(frozen=True, slots=True)
class IcebergType:
    """Any type of the specification. Types are values: they are equal when their contents are."""


@dataclass(frozen=True, slots=True)
class PrimitiveType(IcebergType):
    """A type of one value, which can be compared, hashed and sorted, except where a rule says that it cannot.

    `variant` is none: it is a type of its own, as in the specification.
    """

    name: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BooleanType(PrimitiveType):
    """True or false."""

    name: ClassVar[str] = "boolean"


@dataclass(frozen=True, slots=True)
class IntegerType(PrimitiveType):
    """32-bit signed integers; may become long."""

    name: ClassVar[str] = "int"


@dataclass(frozen=True, slots=True)
class LongType(PrimitiveType):
    """64-bit signed integers."""

    name: ClassVar[str] = "long"


@dataclass(frozen=True, slots=True)
class FloatType(PrimitiveType):
    """32-bit IEEE 754; may become double."""

    name: ClassVar[str] = "float"


@dataclass(frozen=True, slots=True)
class DoubleType(PrimitiveType):
    """64-bit IEEE 754."""

    name: ClassVar[str] = "double"


@dataclass(frozen=True, slots=True)
class DateType(PrimitiveType):
    """A calendar day, as days since 1970-01-01."""

    name: ClassVar[str] = "date"


@dataclass(frozen=True, slots=True)
class TimeType(PrimitiveType):
    """A time of day, as microseconds since midnight."""

    name: ClassVar[str] = "time"


@dataclass(frozen=True, slots=True)
class TimestampType(PrimitiveType):
    """Date and time without a zone, in microseconds."""

    name: ClassVar[str] = "timestamp"


@dataclass(frozen=True, slots=True)
class TimestamptzType(PrimitiveType):
    """An instant, in microseconds since the epoch, UTC."""

    name: ClassVar[str] = "timestamptz"


@dataclass(frozen=True, slots=True)
class TimestampNsType(PrimitiveType):
    """Date and time without a zone, in nanoseconds. Version 3."""

    name: ClassVar[str] = "timestamp_ns"


@dataclass(frozen=True, slots=True)
class TimestamptzNsType(PrimitiveType):
    """An instant, in nanoseconds since the epoch, UTC. Version 3."""

    name: ClassVar[str] = "timestamptz_ns"


@dataclass(frozen=True, slots=True)
class StringType(PrimitiveType):
    """Characters of any length."""

    name: ClassVar[str] = "string"


@dataclass(frozen=True, slots=True)
class UUIDType(PrimitiveType):
    """16 bytes, big endian."""

    name: ClassVar[str] = "uuid"


@dataclass(frozen=True, slots=True)
class BinaryType(PrimitiveType):
    """Bytes of any length."""

    name: ClassVar[str] = "binary"


@dataclass(frozen=True, slots=True)
class UnknownType(PrimitiveType):
    """The type of a column that holds only nulls and uses no bytes in a file. Version 3."""

    name: ClassVar[str] = "unknown"


@dataclass(frozen=True, slots=True)
class VariantType(IcebergType):
    """A semi-structured value: two binaries, metadata and value, in a file. Version 3."""

    name: ClassVar[str] = "variant"

    def __str__(self) -> str:
        return self.name


LeafType: TypeAlias = PrimitiveType | VariantType
"""A type without fields of its own: what metadata write as a text."""


@dataclass(frozen=True, slots=True)
class FixedType(PrimitiveType):
    """Exactly `length` bytes."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 0:
            raise InvalidInputError(f"invalid type 'fixed[{self.length}]': the length must not be negative")
        if self.length > MAX_INT:
            raise InvalidInputError(f"invalid type fixed of so many bytes: the length must not be above {MAX_INT}")

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True, slots=True)
class DecimalType(PrimitiveType):
    """Fixed-point numbers of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MAX_DECIMAL_PRECISION:
            raise InvalidInputError(f"invalid type '{self}': the precision must be from 1 to {MAX_DECIMAL_PRECISION}")
        if not 0 <= self.scale <= self.precision:
            raise InvalidInputError(f"invalid type '{self}': the scale must be from 0 to the precision")

    def has_room_for(self, value: Decimal) -> bool:
        """Whether a value has no more digits than the type, before the point."""
        return value.copy_abs() < Decimal(1).scaleb(self.precision - self.scale)

    def __str__(self) -> str:
        # With a blank, like Java: some readers compare type strings as text.
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True, eq=False)
class GeometryType(PrimitiveType):
    """Geospatial features on a plane, as WKB. Version 3.

    Attributes:
        crs: coordinate reference system as it was written; None stands for OGC:CRS84.
    """

    crs: str | None = None

    def __str__(self) -> str:
        return f"geometry({self.crs})" if self.crs else "geometry"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeometryType) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return "geometry", (self.crs or DEFAULT_CRS).casefold()


@dataclass(frozen=True, slots=True, eq=False)
class GeographyType(PrimitiveType):
    """Geospatial features on a globe, as WKB. Version 3.

    Attributes:
        crs: coordinate reference system, as in GeometryType.
        algorithm: the interpolation of the edge between two points; None stands for spherical.
    """

    crs: str | None = None
    algorithm: str | None = None

    def __post_init__(self) -> None:
        if self.algorithm is not None and self.algorithm.lower() not in EDGE_ALGORITHMS:
            allowed = ", ".join(EDGE_ALGORITHMS)
            raise InvalidInputError(f"unknown edge algorithm '{self.algorithm}' of a geography (allowed: {allowed})")

    def __str__(self) -> str:
        if self.algorithm:
            return f"geography({self.crs or DEFAULT_CRS}, {self.algorithm})"
        return f"geography({self.crs})" if self.crs else "geography"

    def _key(self) -> tuple[str, str]:
        return (self.crs or DEFAULT_CRS).casefold(), (self.algorithm or DEFAULT_EDGE_ALGORITHM).lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeographyType) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedField:
    """A field of a struct, or the element, key or value of a list or map seen as one.

    Attributes:
        doc: the comment of the column.
        initial_default: JSON single value for rows written before the field was added, undecoded. Version 3.
        write_default: JSON single value for rows whose writer leaves the field out, undecoded. Version 3.
    """

    id: int
    name: str
    type: IcebergType
    required: bool = False
    doc: str | None = None
    initial_default: Any = field(default=None, hash=False)
    write_default: Any = field(default=None, hash=False)

    def __str__(self) -> str:
        doc = f" ({self.doc})" if self.doc else ""
        return f"{self.id}: {self.name}: {'required' if self.required else 'optional'} {self.type}{doc}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StructType(IcebergType):
    """A tuple of named, typed fields. Names and ids are checked by the schema that holds it."""

    fields: tuple[NestedField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{', '.join(str(child) for child in self.fields)}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListType(IcebergType):
    """A list of elements of one type."""

    element_id: int
    element: IcebergType
    element_required: bool = False

    @property
    def element_field(self) -> NestedField:
        """The element as a field named ``element``."""
        return NestedField(id=self.element_id, name="element", type=self.element, required=self.element_required)

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class MapType(IcebergType):
    """A map from keys, which are always required, to values."""

    key_id: int
    key: IcebergType
    value_id: int
    value: IcebergType
    value_required: bool = False

    @property
    def key_field(self) -> NestedField:
        """The key as a required field named ``key``."""
        return NestedField(id=self.key_id, name="key", type=self.key, required=True)

    @property
    def value_field(self) -> NestedField:
        """The value as a field named ``value``."""
        return NestedField(id=self.value_id, name="value", type=self.value, required=self.value_required)

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


GEOSPATIAL = (GeometryType, GeographyType)
"""The types whose values have no order, no hash and no defaults, although they are primitive."""
NUMBERS = (IntegerType, LongType, FloatType, DoubleType)
TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_OTHERS = (StringType, UUIDType, BinaryType, UnknownType, VariantType)
NAMED_TYPES: Mapping[str, LeafType] = {
    kind.name: kind() for kind in (BooleanType, *NUMBERS, DateType, TimeType, *TIMESTAMPS, *_OTHERS)
}
"""The types without parameters, by their names."""

PARAMETRIC_FORMS = ("fixed[L]", "decimal(P, S)", "geometry(CRS)", "geography(CRS, ALGORITHM)")

_FIXED = re.compile(r"fixed\s*\[\s*(\d{1,10})\s*\]", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)", re.IGNORECASE)
# A CRS may have brackets and commas itself: NAD83(2011). It ends where the type ends; an algorithm is a last word.
_GEOSPATIAL = re.compile(r"(geometry|geography)\s*(?:\((.*)\))?", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"\w+")


def _geospatial(found: re.Match[str]) -> PrimitiveType:
    crs, algorithm = (found[2] or "").strip(), None
    if found[1].lower() == "geometry":
        return GeometryType(crs or None)
    around, comma, last = crs.rpartition(",")
    if comma and _WORD.fullmatch(last.strip()):
        crs, algorithm = around.strip(), last.strip()
    return GeographyType(crs or None, algorithm)


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], PrimitiveType]], ...] = (
    (_FIXED, lambda found: FixedType(int(found[1]))),
    (_DECIMAL, lambda found: DecimalType(int(found[1]), int(found[2]))),
    (_GEOSPATIAL, _geospatial),
)


def parse_leaf(text: str) -> LeafType | None:
    """Return the type of a type string, None for an unknown one. As in Java, case and blanks do not matter.

    Raises:
        InvalidInputError: the parameters are out of range, like a decimal of 39 digits.
    """
    text = text.strip()
    parametric = (build(found) for pattern, build in _PATTERNS if (found := pattern.fullmatch(text)))
    return NAMED_TYPES.get(text.lower()) or next(parametric, None)


def child_fields(type_: IcebergType) -> tuple[NestedField, ...]:
    """Return the direct fields of a type: those of a struct, or element, key and value; none for a primitive."""
    if isinstance(type_, StructType):
        return type_.fields
    if isinstance(type_, ListType):
        return (type_.element_field,)
    if isinstance(type_, MapType):
        return (type_.key_field, type_.value_field)
    return ()


def walk_fields(fields: tuple[NestedField, ...]) -> Iterator[NestedField]:
    """Yield the fields and all fields nested in them, parents first."""
    for child in fields:
        yield child
        yield from walk_fields(child_fields(child.type))
