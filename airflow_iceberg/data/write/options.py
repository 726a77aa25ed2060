"""The `write.*` properties of a table as checked options, and the locations of data files. Does not import pyarrow.

A property that this writer does not follow is logged as a warning; one that would lead to wrong files (ORC,
encryption) is an UnsupportedError: encryption at once, another format if files are written.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_iceberg.data.write.metrics import MetricsConfig
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.properties import known
from airflow_iceberg.format.properties.known import AVRO_PREFIX, DELETE_PREFIX, PARQUET_PREFIX, WRITE_PREFIX
from airflow_iceberg.format.properties.property import ColumnValues
from airflow_iceberg.format.properties.table_properties import WRITTEN_FORMATS, TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms import murmur3

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.sort_orders import SortOrder

log = logging.getLogger(__name__)

# The smallest and largest level of codecs; other levels are clamped by one library and fail in another.
_LEVELS = {"zstd": (-131_072, 22), "gzip": (-1, 9), "brotli": (-1, 11)}
# The versions of data pages: the property's names to pyarrow's.
PAGE_VERSIONS: Mapping[str, str] = {"v1": "1.0", "v2": "2.0"}
# Avro has no row groups: rows wait only until they are worth a call of the encoder.
_AVRO_PORTION_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BloomFilter:
    """A Bloom filter of one column in each row group.

    Attributes:
        false_positives: the share of absent values that the filter accepts, between 0 and 1.
        distinct_values: the number of values that it is sized for.
    """

    false_positives: float
    distinct_values: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """How data files are written.

    Attributes:
        file_format: the format of the files, "parquet" or "avro"; another one that the table asks for is refused before
            the first file is written.
        compression: a value of `format.properties.kinds.CODECS`, or for Avro of `AVRO_CODEC`.
        compression_level: the codec's level; None is its default.
        target_file_size_bytes: the size on disk at which a file is closed.
        row_group_size_bytes: the size of a row group on disk, or for Avro of the rows that are encoded at a time.
        page_size_bytes: the size of a page before compression.
        page_version: a value of PAGE_VERSIONS.
        dict_size_bytes: the largest dictionary of a column chunk; with a larger one it is written plain.
        bloom_filters: Bloom filters by full column name.
        without_statistics: full names of columns without statistics in the footer, and so in the manifest.
        without_dictionary: full names of columns whose values are written plain.
        object_storage: whether files are spread over hashed directories.
        partitioned_paths: whether paths with hashed directories have the partition, too.
        max_buffered_bytes: the largest size of Arrow memory that waits for encoding, over all partitions of a writer.
        max_open_files: the largest number of files that are open at a time.
        format_property: the name of the property that has chosen the format.
    """

    file_format: str = TableProperties.file_format.default
    compression: str = TableProperties.compression_codec.default
    compression_level: int | None = TableProperties.compression_level.default
    target_file_size_bytes: int = TableProperties.target_file_size_bytes.default
    row_group_size_bytes: int = TableProperties.row_group_size_bytes.default
    page_size_bytes: int = TableProperties.page_size_bytes.default
    page_row_limit: int = TableProperties.page_row_limit.default
    page_version: str = PAGE_VERSIONS[TableProperties.page_version.default]
    dict_size_bytes: int = TableProperties.dict_size_bytes.default
    bloom_filters: Mapping[str, BloomFilter] = field(default_factory=dict)
    without_statistics: frozenset[str] = frozenset()
    without_dictionary: frozenset[str] = frozenset()
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    object_storage: bool = TableProperties.object_storage_enabled.default
    partitioned_paths: bool = TableProperties.object_storage_partitioned_paths.default
    max_buffered_bytes: int = 512 << 20
    max_open_files: int = 64
    format_property: str = TableProperties.file_format.name

    @staticmethod
    def from_properties(
        properties: Mapping[str, str],
        schema: Schema,
        sort_order: "SortOrder | None" = None,
        *,
        writes_files: bool = True,
        takes_format: bool = True,
    ) -> "WriteOptions":
        """Read the options of a table, for files of a schema.

        Args:
            sort_order: for the metrics modes.
            writes_files: whether files are written in any case; if not, `check_format` is called before the first one.
            takes_format: whether who asks can name another format, for messages.

        Raises:
            InvalidInputError: a value is not of its kind or out of range.
            UnsupportedError: the table requires encryption or another file format.
        """
        _refuse_encryption(properties)
        for warning in known.property_warnings(properties):
            log.warning("%s", warning)
        found = WriteOptions._read(properties, schema, sort_order)
        if writes_files:
            found.check_format(takes_format=takes_format)
        return found

    def check_format(self, *, takes_format: bool = True) -> None:
        """Check that files in the table's format can be written; arguments as of `from_properties`.

        Raises:
            UnsupportedError: the table requires another file format.
        """
        if self.file_format not in WRITTEN_FORMATS:
            name, kind, way_out = self.format_property, "delete", ""
            if name == TableProperties.file_format.name:
                kind = "data"
                way_out = (
                    "set write_format='parquet' to write Parquet files into the table, or " if takes_format else ""
                )
            raise UnsupportedError(
                f"property {name} is '{self.file_format}': {kind} files are written as parquet or avro only; {way_out}"
                f"set the property to one of these"
            )

    @staticmethod
    def of_deletes(properties: Mapping[str, str]) -> "WriteOptions":
        """Read the encoding of position delete files: `write.delete.*`, by default that of data files.

        Delete files of a table with ORC files are Parquet, unless it asks for others by `write.delete.format.default`.

        Raises:
            InvalidInputError: a value is not of its kind or out of range.
        """
        table = TableProperties.of(properties)
        of_data = table.file_format if table.file_format in WRITTEN_FORMATS else TableProperties.file_format.default
        chosen = {
            key: value
            for key, value in properties.items()
            if key.startswith((PARQUET_PREFIX, AVRO_PREFIX)) and ".column." not in key
        }
        for prefix in (PARQUET_PREFIX, AVRO_PREFIX):
            own_prefix = DELETE_PREFIX + prefix.removeprefix(WRITE_PREFIX)
            own = {key: value for key, value in properties.items() if key.startswith(own_prefix)}
            known.check_values(own)
            chosen |= {prefix + key.removeprefix(own_prefix): value for key, value in own.items()}
        chosen[TableProperties.file_format.name] = table.delete_file_format or of_data
        return replace(WriteOptions._read(chosen, Schema()), format_property=TableProperties.delete_file_format.name)

    @staticmethod
    def _read(properties: Mapping[str, str], schema: Schema, sort_order: "SortOrder | None" = None) -> "WriteOptions":
        table = TableProperties.of(properties)
        is_avro = table.file_format == "avro"
        return WriteOptions(
            file_format=table.file_format,
            compression=table.avro_compression_codec if is_avro else table.compression_codec,
            compression_level=_compression_level(table),
            target_file_size_bytes=table.target_file_size_bytes,
            row_group_size_bytes=_AVRO_PORTION_BYTES if is_avro else table.row_group_size_bytes,
            page_size_bytes=table.page_size_bytes,
            page_row_limit=table.page_row_limit,
            page_version=PAGE_VERSIONS[table.page_version],
            dict_size_bytes=table.dict_size_bytes,
            bloom_filters=_bloom_filters(table, schema),
            without_statistics=_disabled_columns(table.stats_enabled, schema),
            without_dictionary=_disabled_columns(table.dict_encoding_enabled, schema),
            metrics=MetricsConfig.from_properties(properties, schema, sort_order),
            object_storage=table.object_storage_enabled,
            partitioned_paths=table.object_storage_partitioned_paths,
        )

    def file_location(self, data_location: str, partition_path: str, name: str) -> str:
        """Return the location of a data file.

        Args:
            data_location: the result of `data_location`.
            partition_path: the path of the partition, "" when unpartitioned.
            name: the name of the file, unique below the data location.
        """
        # Differs from Java: with object storage and a data path outside the table's location Java adds the names of
        # database and table after the hash. Readers accept any path, and the names of our files are unique anyway.
        if self.object_storage and not self.partitioned_paths:
            return f"{data_location}/{_entropy(name)}-{name}"
        tail = f"{partition_path}/{name}" if partition_path else name
        return f"{data_location}/{_entropy(tail)}/{tail}" if self.object_storage else f"{data_location}/{tail}"


def in_format(metadata: "TableMetadata", write_format: str | None) -> "TableMetadata":
    """Return a table as it is written in a format; None is the format that its properties choose.

    Raises:
        InvalidInputError: a format that is not written.
    """
    found = checked_format(write_format)
    if found is None:
        return metadata
    return replace(metadata, properties={**metadata.properties, TableProperties.file_format.name: found})


def checked_format(write_format: str | None) -> str | None:
    """Return the name of a format in lower case; errors as of `in_format`."""
    if write_format is None:
        return None
    found = str(write_format).strip().lower()
    if found not in WRITTEN_FORMATS:
        raise InvalidInputError(f"write_format is {write_format!r}, expected one of {', '.join(WRITTEN_FORMATS)}")
    return found


def data_location(location: str, properties: Mapping[str, str]) -> str:
    """Return the directory of a table's data files, without a slash at its end.

    `write.data.path` wins over the names of that property in older versions of Iceberg.
    """
    table = TableProperties.of(properties)
    hashed = table.object_storage_path if table.object_storage_enabled else None
    chosen = table.data_path or hashed or table.folder_storage_path
    return (chosen or f"{location.rstrip('/')}/data").rstrip("/")


def _entropy(name: str) -> str:
    """Return four directories from the hash of a name, by which an object store spreads the load over its servers."""
    bits = format(murmur3.hash_bytes(name.encode("utf-8")) & 0xFFFFF, "020b")
    return f"{bits[:4]}/{bits[4:8]}/{bits[8:12]}/{bits[12:]}"


def _refuse_encryption(properties: Mapping[str, str]) -> None:
    table = TableProperties.of(properties)
    if table.encryption_key_id:
        raise UnsupportedError(
            f"property {TableProperties.encryption_key_id} is set: encrypted tables are not written, because "
            "the data would not be encrypted"
        )


def _compression_level(table: TableProperties) -> int | None:
    codec, level, name = table.compression_codec, table.compression_level, TableProperties.compression_level.name
    if table.file_format == "avro":
        codec, level = table.avro_compression_codec, table.avro_compression_level
        name = TableProperties.avro_compression_level.name
    found = level if codec in _LEVELS else None
    least, most = _LEVELS.get(codec, (0, 0))
    if found is not None and not least <= found <= most:
        raise InvalidInputError(
            f"property {name} is '{found}', and {codec} has levels from {least} to {most}; choose one of these"
        )
    return found


def _disabled_columns(enabled: ColumnValues[bool], schema: Schema) -> frozenset[str]:
    names = sorted(column for column in enabled.columns() if not enabled.of(column))
    return frozenset(_known_columns(names, enabled, schema))


def _known_columns(names: Iterable[str], values: ColumnValues[bool], schema: Schema) -> Iterator[str]:
    for name in names:
        if name in schema.names:
            yield name
        else:
            key = values.property_name(name)
            log.warning("property %s names a column that the table does not have: it is ignored", key)


def _bloom_filters(table: TableProperties, schema: Schema) -> dict[str, BloomFilter]:
    enabled = table.bloom_filter_enabled
    asked = sorted(column for column in enabled.columns() if enabled.of(column))
    return {column: _bloom_filter(table, column) for column in _known_columns(asked, enabled, schema)}


def _bloom_filter(table: TableProperties, column: str) -> BloomFilter:
    share = table.bloom_filter_fpp.of(column)
    most = _values_in(table.bloom_filter_max_bytes, share)
    return BloomFilter(false_positives=share, distinct_values=min(table.bloom_filter_ndv.of(column) or most, most))


def _values_in(size_bytes: int, share: float) -> int:
    """Return how many distinct values a split-block filter of this size takes at a rate of false positives."""
    # The size of a filter is a power of two; a filter laid out for one more value would have the next one.
    bits = 8 * 2 ** int(math.log2(max(size_bytes, 32)))
    return max(1, int(-bits * math.log1p(-(share ** (1 / 8))) / 8))
