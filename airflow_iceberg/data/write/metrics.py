"""Column statistics of a data file: the metrics modes of the table's properties, and the values for a manifest.

Most numbers come from the footer that the Parquet writer makes anyway: its minima and maxima are exact for every type
of the format, without NaN, strings compared by bytes. Taken from the rows are counts of NaN, and bounds of columns with
a value that is too long for the footer. Not here: how a bound is shortened and encoded (`format.values.bytes`).
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.properties.metrics_mode import NONE, MetricsKind, MetricsMode
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values import bytes as values
from airflow_iceberg.format.values.digits import whole_number

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_iceberg.format.sort_orders import SortOrder

log = logging.getLogger(__name__)

# With a larger value Parquet's C++ writer omits minimum and maximum of the whole column chunk.
MAX_FOOTER_VALUE_BYTES = 4096
_EXACT = Context(prec=60)
DEFAULT_MODE = MetricsMode(MetricsKind.TRUNCATE, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsConfig:
    """The metrics mode of every column of a table: `modes` by field id, `default` for the others."""

    default: MetricsMode = DEFAULT_MODE
    modes: Mapping[int, MetricsMode] = field(default_factory=dict)

    def mode(self, field_id: int) -> MetricsMode:
        return self.modes.get(field_id, self.default)

    @staticmethod
    def from_properties(
        properties: Mapping[str, str], schema: Schema, sort_order: "SortOrder | None" = None
    ) -> "MetricsConfig":
        """Read the modes from table properties.

        The first 100 columns (`write.metadata.metrics.max-inferred-column-defaults`; top-level columns before nested
        ones) have truncate(16), later ones none, unless `write.metadata.metrics.default` is set. Columns of the sort
        order, by which files are skipped, get at least truncate(16). A column's own property wins. An invalid mode, and
        a property for an unknown column, are logged and ignored: a data load must not fail for them.
        """
        modes: dict[int, MetricsMode] = {}
        default = _default_mode(properties, schema, modes)
        promoted = default if default.has_bounds else DEFAULT_MODE
        for item in sort_order.fields if sort_order is not None else ():
            if item.transform.preserves_order:
                modes[item.source_id] = promoted
        modes.update(_column_modes(properties, schema, default))
        return MetricsConfig(default=default, modes=modes)


def _default_mode(properties: Mapping[str, str], schema: Schema, modes: dict[int, MetricsMode]) -> MetricsMode:
    """Return the mode for all columns; fill `modes` for the first columns if only they have metrics."""
    configured = TableProperties.of(properties).metrics_default
    if configured is not None:
        return _mode_or(configured, DEFAULT_MODE, TableProperties.metrics_default.name)
    limit = _max_inferred(properties)
    inferred = list(_by_level(schema.fields))
    if len(inferred) <= limit:
        return DEFAULT_MODE
    modes.update(dict.fromkeys(inferred[:limit], DEFAULT_MODE))
    return NONE


def _by_level(fields: Sequence[t.NestedField]) -> Iterator[int]:
    """Yield the ids of the columns in the order in which Iceberg Java counts them.

    First the columns of this level, then those inside of the first nested column, and so on.
    """
    inner = {item.id: t.child_fields(item.type) for item in fields}
    yield from (item.id for item in fields if not inner[item.id])
    for children in inner.values():
        yield from _by_level(children)


def _max_inferred(properties: Mapping[str, str]) -> int:
    known = TableProperties.metrics_max_inferred_columns
    text = TableProperties.of(properties).metrics_max_inferred_columns
    number = whole_number(text.strip())
    if number is not None:
        return number
    log.warning("property %s is '%.40s', not a number of columns: %s is used", known, text, known.default)
    return int(known.default)


def _column_modes(properties: Mapping[str, str], schema: Schema, default: MetricsMode) -> dict[int, MetricsMode]:
    modes: dict[int, MetricsMode] = {}
    configured = TableProperties.of(properties).metrics_of_columns
    for column in configured.columns():
        key, field_id = configured.property_name(column), schema.names.get(column)
        if field_id is None:
            log.warning("property %s names a column that the table does not have: it is ignored", key)
        else:
            modes[field_id] = _mode_or(configured.of(column), default, key)
    return modes


def _mode_or(text: str, fallback: MetricsMode, key: str) -> MetricsMode:
    try:
        return MetricsMode.parse(text)
    except InvalidInputError as error:
        log.warning("property %s is ignored: %s", key, error)
        return fallback


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafColumn:
    """A column of a Parquet file: a field without fields of its own.

    Attributes:
        path: the names from the top to the field.
        repeated: whether the field is inside a list or a map, where the format has sizes only.
    """

    field_id: int
    type: t.LeafType
    path: tuple[str, ...]
    repeated: bool


def leaf_columns(schema: Schema) -> tuple[LeafColumn, ...]:
    """Return the columns of a Parquet file with this schema, in the file's order; unknown has no column."""
    return tuple(leaf for child in schema.fields for leaf in _leaves(child, (), repeated=False))


def _leaves(item: t.NestedField, path: tuple[str, ...], *, repeated: bool) -> Iterator[LeafColumn]:
    path = (*path, item.name)
    children: tuple[t.NestedField, ...] = ()
    match item.type:
        case t.StructType():
            children = item.type.fields
        case t.ListType():
            children, repeated = (item.type.element_field,), True
        case t.MapType():
            children, repeated = (item.type.key_field, item.type.value_field), True
        case t.UnknownType():
            return
        case t.PrimitiveType() | t.VariantType():
            yield LeafColumn(field_id=item.id, type=item.type, path=path, repeated=repeated)
    for child in children:
        yield from _leaves(child, path, repeated=repeated)


@dataclass(kw_only=True)
class FileMetrics:
    """The statistics of one data file by field id, in the form of `DataFile`.

    Attributes:
        column_sizes: sizes on disk, in bytes.
        value_counts: numbers of values, with nulls and NaN.
        lower_bounds: bounds in the single-value binary form.
        split_offsets: the offsets of the row groups; None for a format without them.
    """

    record_count: int
    split_offsets: tuple[int, ...] | None
    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


class MetricsPlan:
    """The statistics of each column (`leaf_columns`), for all files of a writer."""

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
            if isinstance(column.type, t.FloatType | t.DoubleType):
                self.floats.append((position, column.path))
            if mode.has_bounds and isinstance(column.type, t.StringType | t.BinaryType):
                self.texts.append((position, column.path))


def _positions(columns: tuple[LeafColumn, ...]) -> Iterator[tuple[int, LeafColumn]]:
    """Yield each column with its position in the file, where a variant has two columns: its metadata and its value."""
    position = 0
    for column in columns:
        yield position, column
        position += 2 if isinstance(column.type, t.VariantType) else 1


class MetricsAccumulator:
    """Measures one file: `observe` each row group, then `finish` with the footer."""

    def __init__(self, plan: MetricsPlan) -> None:
        self._plan = plan
        self._nan_counts = {position: 0 for position, _ in plan.floats}
        self._long_bounds: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._row_groups = 0

    def observe(self, table: "pa.Table") -> None:
        """Measure the rows of one row group, for values that the footer will not have."""
        for position, path in self._plan.floats:
            self._nan_counts[position] += count_nan(leaf_values(table, path))
        for position, path in self._plan.texts:
            bounds = _bounds_of_long_values(leaf_values(table, path))
            if bounds is not None:
                self._long_bounds[self._row_groups, position] = bounds
        self._row_groups += 1

    def finish(self, footer: "pq.FileMetaData") -> FileMetrics:
        """Return the statistics of the file, from its footer and the observed row groups."""
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        offsets = tuple(offset_of(group.column(0)) for group in groups)
        found = FileMetrics(record_count=footer.num_rows, split_offsets=offsets)
        for position, column, mode in self._plan.measured:
            self._measure(position, column, mode, [group.column(position) for group in groups], found)
        return found

    def _measure(
        self,
        position: int,
        column: LeafColumn,
        mode: MetricsMode,
        chunks: "list[pq.ColumnChunkMetaData]",
        found: FileMetrics,
    ) -> None:
        key = column.field_id
        if not isinstance(column.type, t.VariantType):  # as in Java, which has no size and no bounds of a variant
            found.column_sizes[key] = sum([chunk.total_compressed_size for chunk in chunks])
        # As in Java, which has no counts and no bounds of fields inside lists and maps.
        if column.repeated:
            return
        statistics = [chunk.statistics for chunk in chunks]
        if not all(item is not None and item.has_null_count for item in statistics):
            return  # unknown, which a count of 0 would not say
        found.value_counts[key] = sum([chunk.num_values for chunk in chunks])
        found.null_value_counts[key] = sum([item.null_count for item in statistics])
        if position in self._nan_counts:
            found.nan_value_counts[key] = self._nan_counts[position]
        if mode.has_bounds and not isinstance(column.type, t.VariantType):
            put_raw_bounds(column, mode, self._raw_bounds(position, column.type, statistics), found)

    def _raw_bounds(self, position: int, type_: t.LeafType, statistics: list[Any]) -> tuple[Any, Any] | None:
        """Return the smallest and the largest value in a comparable form, None when no row group has a value."""
        lows, highs = [], []
        for number, item in enumerate(statistics):
            known = self._long_bounds.get((number, position))
            if known is None and item.has_min_max:
                known = comparable(type_, item.min_raw), comparable(type_, item.max_raw)
            if known is not None:
                lows.append(known[0])
                highs.append(known[1])
        return (min(lows), max(highs)) if lows else None


def put_raw_bounds(column: LeafColumn, mode: MetricsMode, bounds: tuple[Any, Any] | None, found: FileMetrics) -> None:
    """Add the bounds of a column, in the form that `canonical` takes, shortened as its mode says."""
    if bounds is not None:
        put_bounds(column, mode, _value_or_none(column.type, bounds[0]), _value_or_none(column.type, bounds[1]), found)


def _value_or_none(type_: t.LeafType, raw: Any) -> t.Value:
    """Return the canonical value of a comparable one; None for one that the type cannot have, which makes no bound.

    New rows have no such values (`data.cast.valid`), but rows of other writers are carried from file to file as they
    are: texts that are no UTF-8, and decimals with too many digits.
    """
    try:
        value = canonical(type_, raw)
    except UnicodeDecodeError:
        return None
    return None if isinstance(type_, t.DecimalType) and not type_.has_room_for(value) else value


def put_bounds(column: LeafColumn, mode: MetricsMode, low: t.Value, high: t.Value, found: FileMetrics) -> None:
    """Add the bounds of a column, shortened as its metrics mode says.

    Args:
        low, high: canonical values, NaN among them, which is no bound, as None is.
    """
    # None stands for NaN, and for an upper bound that cannot be shortened.
    lower = values.lower_bound(column.type, low, mode.length)
    upper = values.upper_bound(column.type, high, mode.length)
    if lower is not None:
        found.lower_bounds[column.field_id] = values.to_bytes(column.type, lower)
    if upper is not None:
        found.upper_bounds[column.field_id] = values.to_bytes(column.type, upper)


def comparable(type_: t.IcebergType, raw: Any) -> Any:
    """Return a footer's physical value in a form whose order in Python is the format's."""
    if isinstance(type_, t.DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def canonical(type_: t.IcebergType, raw: Any) -> Any:
    """Return the canonical value of a comparable one."""
    match type_:
        case t.DecimalType():
            return raw if isinstance(raw, Decimal) else Decimal(raw).scaleb(-type_.scale, _EXACT)
        case t.StringType():
            return raw.decode("utf-8")
        case t.UUIDType():
            return raw if isinstance(raw, uuid.UUID) else uuid.UUID(bytes=raw)
    return raw


def offset_of(chunk: "pq.ColumnChunkMetaData") -> int:
    """Return the offset of a column chunk, which begins with its dictionary page if it has one."""
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        return int(min(chunk.dictionary_page_offset, chunk.data_page_offset))
    return int(chunk.data_page_offset)


def leaf_values(table: "pa.Table", path: tuple[str, ...]) -> Any:
    """Return the values of a field that is in no list or map; null where a parent is null."""
    import pyarrow.compute as pc

    column = table.column(path[0])
    # One name at a time: Arrow reads a name with a dot as a path.
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def count_nan(column: Any) -> int:
    """Return the number of NaN in a column."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.is_nan(column), min_count=0).as_py())


def _bounds_of_long_values(column: Any) -> tuple[bytes, bytes] | None:
    """Return minimum and maximum as bytes if a value is too long for the footer's statistics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        # Only the distinct values are read: decoded, long ones may need too much memory.
        if all(_bounds_of_long_values(chunk.dictionary) is None for chunk in column.chunks):
            return None
        # Some of them may be unused.
        column = pa.chunked_array(
            [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in column.chunks],
            type=column.type.value_type,
        )
    longest = pc.max(pc.binary_length(column)).as_py()
    if longest is None or longest <= MAX_FOOTER_VALUE_BYTES:
        return None
    found = pc.min_max(column.cast(pa.binary()))
    return found["min"].as_py(), found["max"].as_py()
