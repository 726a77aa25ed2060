"""Column statistics of a data file: which to keep, and how they come about while the file is written.

Here: the metrics modes of the table's properties, the leaf columns of a schema in Parquet's order, the accumulator
that a writer feeds with row groups. Not here: how a bound is shortened and encoded (`format.values.bytes`), the writer
(`data.write.partitioned`).

Most numbers come from the footer that the Parquet writer makes anyway: its minima and maxima are exact for every type
of the format, NaN left out, strings compared by bytes. What a footer does not tell is taken from the rows: counts of
NaN, and bounds of columns with a value so long that the writer leaves its statistics out.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.metrics_mode import NONE, MetricsKind, MetricsMode
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
    VariantType,
    child_fields,
)
from airflow_iceberg.format.values import bytes as values

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_iceberg.format.sort_orders import SortOrder

log = logging.getLogger(__name__)

MAX_FOOTER_VALUE_BYTES = 4096
"""Above this size of a value Parquet's C++ writer leaves minimum and maximum of the whole column chunk out."""

_EXACT = Context(prec=60)
DEFAULT_MODE = MetricsMode(MetricsKind.TRUNCATE, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsConfig:
    """The metrics mode of every column of a table.

    Attributes:
        default: the mode of columns without one of their own.
        modes: modes by field id.
    """

    default: MetricsMode = DEFAULT_MODE
    modes: Mapping[int, MetricsMode] = field(default_factory=dict)

    def mode(self, field_id: int) -> MetricsMode:
        """Return the mode of a column."""
        return self.modes.get(field_id, self.default)

    @staticmethod
    def from_properties(
        properties: Mapping[str, str], schema: Schema, sort_order: "SortOrder | None" = None
    ) -> "MetricsConfig":
        """Read the modes from table properties.

        The first 100 columns (`write.metadata.metrics.max-inferred-column-defaults`; those at the top come before those
        inside of others) have truncate(16), later ones none, unless `write.metadata.metrics.default` says something
        for all. Columns that the sort order sorts by get at least truncate(16): they are what files are skipped by. A
        column's own property wins over all. A mode that cannot be read, and a property for a column that is not there,
        are logged and passed over: a data load must not fail for them.
        """
        modes: dict[int, MetricsMode] = {}
        default = _default_mode(properties, schema, modes)
        promoted = default if default.has_bounds else DEFAULT_MODE
        for field_id in _sorted_columns(sort_order):
            modes[field_id] = promoted
        modes.update(_column_modes(properties, schema, default))
        return MetricsConfig(default=default, modes=modes)


def _default_mode(properties: Mapping[str, str], schema: Schema, modes: dict[int, MetricsMode]) -> MetricsMode:
    """Return the mode for all columns; fill `modes` for the first ones where only they have metrics."""
    configured = TableProperties.of(properties).metrics_default
    if configured is not None:
        return _mode_or(configured, DEFAULT_MODE, TableProperties.metrics_default.name)
    limit = _max_inferred(properties)
    inferred = list(_by_level(schema.fields))
    if len(inferred) <= limit:
        return DEFAULT_MODE
    modes.update(dict.fromkeys(inferred[:limit], DEFAULT_MODE))
    return NONE


def _by_level(fields: Sequence[NestedField]) -> Iterator[int]:
    """Yield the ids of the columns in the order in which they are counted, which is Java's.

    First the columns that stand here, then those inside of the first one that has any, and so on.
    """
    inner = {item.id: child_fields(item.type) for item in fields}
    yield from (item.id for item in fields if not inner[item.id])
    for children in inner.values():
        yield from _by_level(children)


def _max_inferred(properties: Mapping[str, str]) -> int:
    known = TableProperties.metrics_max_inferred_columns
    text = TableProperties.of(properties).metrics_max_inferred_columns
    if text.strip().isdecimal():
        return int(text)
    log.warning("property %s is '%s', not a number of columns: %s is used", known, text, known.default)
    return int(known.default)


def _column_modes(properties: Mapping[str, str], schema: Schema, default: MetricsMode) -> dict[int, MetricsMode]:
    modes: dict[int, MetricsMode] = {}
    configured = TableProperties.of(properties).metrics_of_columns
    for column in configured.columns():
        key, field_id = configured.property_name(column), schema.names.get(column)
        if field_id is None:
            log.warning("property %s names a column that the table does not have: it is passed over", key)
        else:
            modes[field_id] = _mode_or(configured.of(column), default, key)
    return modes


def _mode_or(text: str, fallback: MetricsMode, key: str) -> MetricsMode:
    try:
        return MetricsMode.parse(text)
    except InvalidInputError as error:
        log.warning("property %s is passed over: %s", key, error)
        return fallback


def _sorted_columns(sort_order: "SortOrder | None") -> Iterator[int]:
    for item in sort_order.fields if sort_order is not None else ():
        if item.transform.preserves_order:
            yield item.source_id


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafColumn:
    """A column of a Parquet file: a field without fields of its own.

    Attributes:
        path: names from the top to the field.
        repeated: inside a list or a map, where the format keeps sizes only.
    """

    field_id: int
    type: PrimitiveType
    path: tuple[str, ...]
    repeated: bool


def leaf_columns(schema: Schema) -> tuple[LeafColumn, ...]:
    """Return the columns of a Parquet file with this schema, in the file's order; unknown takes no column."""
    return tuple(leaf for child in schema.fields for leaf in _leaves(child, (), repeated=False))


def _leaves(item: NestedField, path: tuple[str, ...], *, repeated: bool) -> Iterator[LeafColumn]:
    path = (*path, item.name)
    children: tuple[NestedField, ...] = ()
    match item.type:
        case StructType():
            children = item.type.fields
        case ListType():
            children, repeated = (item.type.element_field,), True
        case MapType():
            children, repeated = (item.type.key_field, item.type.value_field), True
        case UnknownType():
            return
        case PrimitiveType():
            yield LeafColumn(field_id=item.id, type=item.type, path=path, repeated=repeated)
    for child in children:
        yield from _leaves(child, path, repeated=repeated)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileMetrics:
    """The statistics of one data file by field id, as a manifest has them.

    Attributes:
        record_count: rows of the file.
        column_sizes: bytes on disk.
        value_counts: values, nulls and NaN included.
        lower_bounds: single-value binary form; what has no bound is left out.
        split_offsets: where the row groups begin.
    """

    record_count: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]


class MetricsPlan:
    """What to measure of each column: made once for all files of a writer.

    Args:
        columns: `leaf_columns` of the files' schema.
    """

    def __init__(self, columns: tuple[LeafColumn, ...], config: MetricsConfig) -> None:
        self.measured: list[tuple[int, LeafColumn, MetricsMode]] = []  # by position among the file's columns
        self.floats: list[tuple[int, tuple[str, ...]]] = []
        self.texts: list[tuple[int, tuple[str, ...]]] = []
        for position, column in _positions(columns):
            mode = config.mode(column.field_id)
            if not mode.has_counts:
                continue
            self.measured.append((position, column, mode))
            if column.repeated:
                continue
            if isinstance(column.type, FloatType | DoubleType):
                self.floats.append((position, column.path))
            if mode.has_bounds and isinstance(column.type, StringType | BinaryType):
                self.texts.append((position, column.path))


def _positions(columns: tuple[LeafColumn, ...]) -> Iterator[tuple[int, LeafColumn]]:
    """Yield each column with its position in the file, where a variant takes two: its metadata and its value."""
    position = 0
    for column in columns:
        yield position, column
        position += 2 if isinstance(column.type, VariantType) else 1


class MetricsAccumulator:
    """Takes the statistics of one file: `observe` each row group, then `finish` with the footer."""

    def __init__(self, plan: MetricsPlan) -> None:
        self._plan = plan
        self._nan_counts = {position: 0 for position, _ in plan.floats}
        self._long_bounds: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._row_groups = 0

    def observe(self, table: "pa.Table") -> None:
        """Take from the rows what the footer will not have.

        Args:
            table: the rows of exactly one row group.
        """
        for position, path in self._plan.floats:
            self._nan_counts[position] += _count_nan(_leaf_values(table, path))
        for position, path in self._plan.texts:
            bounds = _bounds_of_long_values(_leaf_values(table, path))
            if bounds is not None:
                self._long_bounds[self._row_groups, position] = bounds
        self._row_groups += 1

    def finish(self, footer: "pq.FileMetaData") -> FileMetrics:
        """Return the statistics of the file.

        Args:
            footer: of the written file; its row groups are the observed ones.
        """
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        found = _Found()
        for position, column, mode in self._plan.measured:
            self._measure(position, column, mode, [group.column(position) for group in groups], found)
        return FileMetrics(
            record_count=footer.num_rows,
            column_sizes=found.column_sizes,
            value_counts=found.value_counts,
            null_value_counts=found.null_value_counts,
            nan_value_counts=found.nan_value_counts,
            lower_bounds=found.lower_bounds,
            upper_bounds=found.upper_bounds,
            split_offsets=tuple(_offset(group.column(0)) for group in groups),
        )

    def _measure(
        self,
        position: int,
        column: LeafColumn,
        mode: MetricsMode,
        chunks: "list[pq.ColumnChunkMetaData]",
        found: "_Found",
    ) -> None:
        key = column.field_id
        if not isinstance(column.type, VariantType):  # as in Java, which keeps no size and no bounds of a variant
            found.column_sizes[key] = sum([chunk.total_compressed_size for chunk in chunks])
        # Java keeps no counts and no bounds of fields inside lists and maps.
        if column.repeated:
            return
        statistics = [chunk.statistics for chunk in chunks]
        if not all(item is not None and item.has_null_count for item in statistics):
            return  # unknown is left out: a count of 0 would be a lie
        found.value_counts[key] = sum([chunk.num_values for chunk in chunks])
        found.null_value_counts[key] = sum([item.null_count for item in statistics])
        if position in self._nan_counts:
            found.nan_value_counts[key] = self._nan_counts[position]
        if mode.has_bounds and not isinstance(column.type, VariantType):
            _put_bounds(column, mode, self._raw_bounds(position, column.type, statistics), found)

    def _raw_bounds(self, position: int, type_: PrimitiveType, statistics: list[Any]) -> tuple[Any, Any] | None:
        """Return the smallest and the largest value in a comparable form, None when no row group has a value."""
        lows, highs = [], []
        for number, item in enumerate(statistics):
            known = self._long_bounds.get((number, position))
            if known is None and item.has_min_max:
                known = _comparable(type_, item.min_raw), _comparable(type_, item.max_raw)
            if known is not None:
                lows.append(known[0])
                highs.append(known[1])
        return (min(lows), max(highs)) if lows else None


class _Found:
    """The statistics of a file while they are put together."""

    def __init__(self) -> None:
        self.column_sizes: dict[int, int] = {}
        self.value_counts: dict[int, int] = {}
        self.null_value_counts: dict[int, int] = {}
        self.nan_value_counts: dict[int, int] = {}
        self.lower_bounds: dict[int, bytes] = {}
        self.upper_bounds: dict[int, bytes] = {}


def _put_bounds(column: LeafColumn, mode: MetricsMode, bounds: tuple[Any, Any] | None, found: _Found) -> None:
    if bounds is None:
        return
    low, high = _canonical(column.type, bounds[0]), _canonical(column.type, bounds[1])
    # None stands for NaN, and for an upper bound that cannot be shortened.
    lower = values.lower_bound(column.type, low, mode.length)
    upper = values.upper_bound(column.type, high, mode.length)
    if lower is not None:
        found.lower_bounds[column.field_id] = values.to_bytes(column.type, lower)
    if upper is not None:
        found.upper_bounds[column.field_id] = values.to_bytes(column.type, upper)


def _comparable(type_: IcebergType, raw: Any) -> Any:
    """Return a footer's physical value so that Python's order is the format's."""
    if isinstance(type_, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _canonical(type_: IcebergType, raw: Any) -> Any:
    """Return the canonical value of a comparable one."""
    match type_:
        case DecimalType():
            return Decimal(raw).scaleb(-type_.scale, _EXACT)
        case StringType():
            return raw.decode("utf-8")
        case UUIDType():
            return uuid.UUID(bytes=raw)
    return raw


def _offset(chunk: "pq.ColumnChunkMetaData") -> int:
    """Return where a column chunk begins: at its dictionary page when it has one."""
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        return int(min(chunk.dictionary_page_offset, chunk.data_page_offset))
    return int(chunk.data_page_offset)


def _leaf_values(table: "pa.Table", path: tuple[str, ...]) -> Any:
    """Return the values of a field that is in no list or map; null where a parent is null."""
    import pyarrow.compute as pc

    column = table.column(path[0])
    # One name at a time: a name with a dot would be taken for a path.
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def _count_nan(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.is_nan(column), min_count=0).as_py())


def _bounds_of_long_values(column: Any) -> tuple[bytes, bytes] | None:
    """Return minimum and maximum as bytes if a value is too long for the footer's statistics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        # No more is looked at than the distinct values: long ones, once for each row, may be too much for the memory.
        if all(_bounds_of_long_values(chunk.dictionary) is None for chunk in column.chunks):
            return None
        # Some of them may stand for no row.
        column = pa.chunked_array(
            [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in column.chunks],
            type=column.type.value_type,
        )
    longest = pc.max(pc.binary_length(column)).as_py()
    if longest is None or longest <= MAX_FOOTER_VALUE_BYTES:
        return None
    found = pc.min_max(column.cast(pa.binary()))
    return found["min"].as_py(), found["max"].as_py()
