"""What table properties say about writing data files, read once and checked.

Here: `write.*` properties as a value, where data files go. Not here: what the options do (`data.write.partitioned`),
metrics modes (`data.write.metrics`). Importing this module costs no pyarrow.

A property that is set and that this writer does not follow is logged as a warning, never passed over in silence; one
that would lead to wrong files (another file format, encryption) is an UnsupportedError.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_iceberg.data.write.metrics import MetricsConfig
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.properties import kinds as values
from airflow_iceberg.format.properties.known import check_values, property_warnings
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms import murmur3

if TYPE_CHECKING:
    from airflow_iceberg.format.sort_orders import SortOrder

log = logging.getLogger(__name__)

MIB = 1024 * 1024

_CODEC = "write.parquet.compression-codec"
# Levels of the codecs that have some; what lies outside is clamped by one library and fails in another.
_LEVELS = {"zstd": (-131_072, 22), "gzip": (-1, 9), "brotli": (-1, 11)}

_BLOOM_ENABLED = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_BLOOM_NDV = "write.parquet.bloom-filter-ndv.column."
_BLOOM_MAX_BYTES = "write.parquet.bloom-filter-max-bytes"
_STATS_ENABLED = "write.parquet.stats-enabled.column."
_DICTIONARY_ENABLED = "write.parquet.dict-encoding-enabled.column."
_PARQUET, _DELETE_PARQUET = "write.parquet.", "write.delete.parquet."
PAGE_VERSIONS: Mapping[str, str] = {"v1": "1.0", "v2": "2.0"}
"""Versions of data pages as the property names them, and as pyarrow does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BloomFilter:
    """A Bloom filter of one column in each row group.

    Attributes:
        false_positives: the share of absent values that the filter lets pass, between 0 and 1.
        distinct_values: the number of values it is laid out for.
    """

    false_positives: float
    distinct_values: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """How data files are written.

    Attributes:
        compression: a value of `property_values.CODECS`.
        compression_level: None is the codec's own default.
        target_file_size_bytes: a file is closed at about this size on disk.
        row_group_size_bytes: size of a row group on disk.
        page_size_bytes: size of a page before compression.
        page_row_limit: most rows of a page.
        page_version: a value of PAGE_VERSIONS.
        dict_size_bytes: a column chunk whose dictionary grows larger is written plain.
        bloom_filters: by full column name.
        without_statistics: full names of columns that get no statistics in the footer, and so none in the manifest.
        without_dictionary: full names of columns whose values are written plain.
        object_storage: spread files over hashed directories.
        partitioned_paths: keep the partition in the path then.
        max_buffered_bytes: Arrow memory that waits for encoding, over all partitions of a writer.
        max_open_files: files that are open at a time.
    """

    compression: str = "zstd"
    compression_level: int | None = None
    target_file_size_bytes: int = 512 * MIB
    row_group_size_bytes: int = 128 * MIB
    page_size_bytes: int = MIB
    page_row_limit: int = 20_000
    page_version: str = "1.0"
    dict_size_bytes: int = 2 * MIB
    bloom_filters: Mapping[str, BloomFilter] = field(default_factory=dict)
    without_statistics: frozenset[str] = frozenset()
    without_dictionary: frozenset[str] = frozenset()
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    object_storage: bool = False
    partitioned_paths: bool = True
    max_buffered_bytes: int = 512 * MIB
    max_open_files: int = 64

    @staticmethod
    def from_properties(
        properties: Mapping[str, str], schema: Schema, sort_order: "SortOrder | None" = None
    ) -> "WriteOptions":
        """Read the options of a table.

        Args:
            properties: of the table.
            schema: that the files are written with; column names in properties are looked up here.
            sort_order: of the table, for the metrics modes.
        Raises:
            InvalidInputError: a value is not of its kind or out of range.
            UnsupportedError: the table asks for encryption or for another file format.
        """
        _refuse_unsupported(properties)
        for warning in property_warnings(properties):
            log.warning("%s", warning)
        return WriteOptions._read(properties, schema, sort_order)

    @staticmethod
    def of_deletes(properties: Mapping[str, str]) -> "WriteOptions":
        """Read how position delete files are encoded: `write.delete.parquet.*`, and where that is silent as data files.

        Raises:
            InvalidInputError: a value is not of its kind or out of range.
        """
        own = {key: value for key, value in properties.items() if key.startswith(_DELETE_PARQUET)}
        check_values(own)
        chosen = {_PARQUET + key.removeprefix(_DELETE_PARQUET): value for key, value in own.items()}
        of_data = {
            key: value for key, value in properties.items() if key.startswith(_PARQUET) and ".column." not in key
        }
        return WriteOptions._read({**of_data, **chosen}, Schema())

    @staticmethod
    def _read(properties: Mapping[str, str], schema: Schema, sort_order: "SortOrder | None" = None) -> "WriteOptions":
        compression = values.codec(_CODEC, properties.get(_CODEC, "zstd"))
        return WriteOptions(
            compression=compression,
            compression_level=_level(properties, compression),
            target_file_size_bytes=_positive(properties, "write.target-file-size-bytes", 512 * MIB),
            row_group_size_bytes=_positive(properties, "write.parquet.row-group-size-bytes", 128 * MIB),
            page_size_bytes=_positive(properties, "write.parquet.page-size-bytes", MIB),
            page_row_limit=_positive(properties, "write.parquet.page-row-limit", 20_000),
            page_version=_page_version(properties),
            dict_size_bytes=_positive(properties, "write.parquet.dict-size-bytes", 2 * MIB),
            bloom_filters=_bloom_filters(properties, schema),
            without_statistics=_disabled_columns(properties, schema, _STATS_ENABLED),
            without_dictionary=_disabled_columns(properties, schema, _DICTIONARY_ENABLED),
            metrics=MetricsConfig.from_properties(properties, schema, sort_order),
            object_storage=_boolean(properties, "write.object-storage.enabled", False),
            partitioned_paths=_boolean(properties, "write.object-storage.partitioned-paths", True),
        )

    def file_location(self, data_location: str, partition_path: str, name: str) -> str:
        """Return where a data file goes.

        Args:
            data_location: what `data_location` gave.
            partition_path: "" when unpartitioned.
            name: of the file, unique below the data location.
        """
        # Differs from Java: with object storage and a data path outside the table's location Java adds the names of
        # database and table after the hash. Readers take any path, and the names of our files are unique without.
        if self.object_storage and not self.partitioned_paths:
            return f"{data_location}/{_entropy(name)}-{name}"
        tail = f"{partition_path}/{name}" if partition_path else name
        return f"{data_location}/{_entropy(tail)}/{tail}" if self.object_storage else f"{data_location}/{tail}"


def data_location(location: str, properties: Mapping[str, str]) -> str:
    """Return the directory of a table's data files, without a slash at its end.

    Args:
        location: of the table.
        properties: `write.data.path` wins, then the names that older versions of Iceberg gave it.
    """
    keys = ["write.data.path", "write.folder-storage.path"]
    if _boolean(properties, "write.object-storage.enabled", False):
        keys.insert(1, "write.object-storage.path")
    for key in keys:
        if properties.get(key):
            return properties[key].rstrip("/")
    return f"{location.rstrip('/')}/data"


def _entropy(name: str) -> str:
    """Return four directories from the hash of a name, so that an object store spreads the load over its servers."""
    bits = format(murmur3.hash_bytes(name.encode("utf-8")) & 0xFFFFF, "020b")
    return f"{bits[:4]}/{bits[4:8]}/{bits[8:12]}/{bits[12:]}"


def _refuse_unsupported(properties: Mapping[str, str]) -> None:
    file_format = properties.get("write.format.default", "parquet")
    if file_format.strip().lower() != "parquet":
        raise UnsupportedError(
            f"property write.format.default is '{file_format}': data files are written as parquet only; "
            "remove the property or set it to parquet"
        )
    if properties.get("encryption.key-id"):
        raise UnsupportedError(
            "property encryption.key-id is set: encrypted tables are not written, as the data would lie in the clear"
        )


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    key = "write.parquet.compression-level"
    if codec not in _LEVELS or key not in properties:
        return None
    found, (least, most) = values.level(key, properties[key]), _LEVELS[codec]
    if found is not None and not least <= found <= most:
        raise InvalidInputError(
            f"property {key} is '{properties[key]}', and {codec} has levels from {least} to {most}; choose one of these"
        )
    return found


def _page_version(properties: Mapping[str, str]) -> str:
    key = "write.parquet.page-version"
    return PAGE_VERSIONS[str(values.one_of(*PAGE_VERSIONS)(key, properties.get(key, "v1")))]


def _disabled_columns(properties: Mapping[str, str], schema: Schema, prefix: str) -> frozenset[str]:
    names = {
        key.removeprefix(prefix) for key in properties if key.startswith(prefix) and not _boolean(properties, key, True)
    }
    return frozenset(_known_columns(names, prefix, schema))


def _known_columns(names: Iterable[str], prefix: str, schema: Schema) -> Iterator[str]:
    for name in sorted(names):
        if name in schema.names:
            yield name
        else:
            log.warning("property %s%s names a column that the table does not have: it is passed over", prefix, name)


def _positive(properties: Mapping[str, str], key: str, default: int) -> int:
    return values.positive(key, properties[key]) if key in properties else default


def _boolean(properties: Mapping[str, str], key: str, default: bool) -> bool:
    return values.boolean(key, properties[key]) if key in properties else default


def _bloom_filters(properties: Mapping[str, str], schema: Schema) -> dict[str, BloomFilter]:
    found: dict[str, BloomFilter] = {}
    for key in sorted(properties):
        name = key.removeprefix(_BLOOM_ENABLED)
        if name == key or not _boolean(properties, key, False):
            continue
        if name not in schema.names:
            log.warning("property %s names a column that the table does not have: it is passed over", key)
        else:
            found[name] = _bloom_filter(properties, name)
    return found


def _bloom_filter(properties: Mapping[str, str], name: str) -> BloomFilter:
    key = _BLOOM_FPP + name
    share = values.share(key, properties.get(key, "0.01"))
    most = _values_in(_positive(properties, _BLOOM_MAX_BYTES, MIB), share)
    return BloomFilter(false_positives=share, distinct_values=min(_positive(properties, _BLOOM_NDV + name, most), most))


def _values_in(size_bytes: int, share: float) -> int:
    """Return how many distinct values a split-block filter of this size takes at a rate of false positives."""
    # The size of a filter is a power of two; a filter laid out for one more value would have the next one.
    bits = 8 * 2 ** int(math.log2(max(size_bytes, 32)))
    return max(1, int(-bits * math.log1p(-(share ** (1 / 8))) / 8))
