"""The table properties that this writer reads, as typed attributes: name, kind and default of each.

Here: the values of a table (`TableProperties.of(metadata.properties).gc_enabled`) and the names of the properties
(`TableProperties.gc_enabled.name`). Not here: properties that are known and not read (`known`), what a property does
(the modules of the operations).

Each property is read on demand: a bad value that an operation does not need must not fail it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties import kinds
from airflow_iceberg.format.properties.metrics_mode import MetricsMode
from airflow_iceberg.format.properties.property import by_column, followed, refused

MIB = 1024 * 1024
FILE_FORMAT = kinds.one_of("parquet", "avro", "orc")
WRITTEN_FORMATS = ("parquet", "avro")
ROW_CHANGE_MODE = kinds.one_of("copy-on-write", "merge-on-read")
ISOLATION_LEVEL = kinds.one_of("serializable", "snapshot")
DISTRIBUTION_MODE = kinds.one_of("none", "hash", "range")
PAGE_VERSION = kinds.one_of("v1", "v2")
_FROM_0 = kinds.at_least(0)
AVRO_CODEC = kinds.one_of("gzip", "zstd", "snappy", "uncompressed")


def _metrics_mode(name: str, text: str) -> MetricsMode:
    try:
        return MetricsMode.parse(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"property {name}: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class TableProperties:
    """The properties of one table.

    Attributes:
        texts: values by name, as in the table's metadata.
    """

    texts: Mapping[str, str]

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Self:
        """Return the typed form of `metadata.properties`; nothing is read yet."""
        return cls(texts=texts)

    # -- the table
    format_version = followed("format-version", kinds.integer, None, check=kinds.anything)
    encryption_key_id = refused("encryption.key-id", kinds.anything, None)
    name_mapping = followed("schema.name-mapping.default", kinds.anything, None)

    # -- data files
    file_format = refused("write.format.default", kinds.word, "parquet", *WRITTEN_FORMATS, check=FILE_FORMAT)
    # Differs from Java: it takes 0 or less, too, and then closes a file after each 1,000 rows.
    target_file_size_bytes = followed(
        "write.target-file-size-bytes", kinds.above_zero_or(512 * MIB), 512 * MIB, check=kinds.positive
    )
    distribution_mode = followed("write.distribution-mode", kinds.word, None, check=DISTRIBUTION_MODE)
    data_path = followed("write.data.path", kinds.optional_text, None, check=kinds.location)
    folder_storage_path = followed("write.folder-storage.path", kinds.optional_text, None, check=kinds.location)
    object_storage_path = followed("write.object-storage.path", kinds.optional_text, None, check=kinds.location)
    object_storage_enabled = followed("write.object-storage.enabled", kinds.is_true, False, check=kinds.boolean)
    object_storage_partitioned_paths = followed(
        "write.object-storage.partitioned-paths", kinds.is_true, True, check=kinds.boolean
    )

    # -- Parquet
    compression_codec = followed("write.parquet.compression-codec", kinds.codec, "zstd")
    compression_level = followed("write.parquet.compression-level", kinds.compression_level, None)
    row_group_size_bytes = followed("write.parquet.row-group-size-bytes", kinds.positive, 128 * MIB)
    page_size_bytes = followed("write.parquet.page-size-bytes", kinds.positive, MIB)
    page_row_limit = followed("write.parquet.page-row-limit", kinds.positive, 20_000)
    page_version = followed("write.parquet.page-version", PAGE_VERSION, "v1")
    dict_size_bytes = followed("write.parquet.dict-size-bytes", kinds.positive, 2 * MIB)
    dict_encoding_enabled = by_column(
        "write.parquet.dict-encoding-enabled.column.*", kinds.is_true, True, check=kinds.boolean
    )
    stats_enabled = by_column("write.parquet.stats-enabled.column.*", kinds.is_true, True, check=kinds.boolean)
    bloom_filter_enabled = by_column(
        "write.parquet.bloom-filter-enabled.column.*", kinds.is_true, False, check=kinds.boolean
    )
    bloom_filter_fpp = by_column("write.parquet.bloom-filter-fpp.column.*", kinds.fraction, 0.01)
    bloom_filter_ndv = by_column("write.parquet.bloom-filter-ndv.column.*", kinds.positive, None)
    bloom_filter_max_bytes = followed("write.parquet.bloom-filter-max-bytes", kinds.positive, MIB)

    # -- Avro
    avro_compression_codec = followed("write.avro.compression-codec", AVRO_CODEC, "gzip")
    avro_compression_level = followed("write.avro.compression-level", kinds.compression_level, None)

    # -- column metrics: a data load must not fail for a mode that cannot be read, so modes are texts here
    metrics_default = followed("write.metadata.metrics.default", kinds.anything, None, check=_metrics_mode)
    metrics_of_columns = by_column(
        "write.metadata.metrics.column.*", kinds.anything, "truncate(16)", check=_metrics_mode
    )
    metrics_max_inferred_columns = followed(
        "write.metadata.metrics.max-inferred-column-defaults", kinds.anything, "100", check=kinds.non_negative_int
    )

    # -- deletes
    delete_mode = followed("write.delete.mode", kinds.optional_text, None, check=ROW_CHANGE_MODE)
    delete_isolation_level = followed("write.delete.isolation-level", kinds.anything, None, check=ISOLATION_LEVEL)
    update_mode = followed("write.update.mode", kinds.optional_text, None, check=ROW_CHANGE_MODE)
    update_isolation_level = followed("write.update.isolation-level", kinds.anything, None, check=ISOLATION_LEVEL)
    merge_mode = followed("write.merge.mode", kinds.optional_text, None, check=ROW_CHANGE_MODE)
    merge_isolation_level = followed("write.merge.isolation-level", kinds.anything, None, check=ISOLATION_LEVEL)
    delete_file_format = refused("write.delete.format.default", kinds.word, None, *WRITTEN_FORMATS, check=FILE_FORMAT)

    # -- metadata files
    metadata_path = followed("write.metadata.path", kinds.optional_text, None, check=kinds.location)
    metadata_compression_codec = followed("write.metadata.compression-codec", kinds.one_of("none", "gzip"), "none")
    metadata_previous_versions_max = followed(
        "write.metadata.previous-versions-max", kinds.integer, 100, check=kinds.non_negative_int
    )
    metadata_delete_after_commit = followed(
        "write.metadata.delete-after-commit.enabled", kinds.is_true, False, check=kinds.boolean
    )
    summary_partition_limit = followed("write.summary.partition-limit", kinds.integer, 0, check=kinds.non_negative_int)

    # -- commits; the defaults that differ from Java's are chosen by `commit.engine`
    retry_num_retries = followed("commit.retry.num-retries", _FROM_0, None, check=kinds.non_negative_int)
    retry_min_wait_ms = followed("commit.retry.min-wait-ms", _FROM_0, 100, check=kinds.non_negative_int)
    retry_max_wait_ms = followed("commit.retry.max-wait-ms", _FROM_0, None, check=kinds.non_negative_int)
    retry_total_timeout_ms = followed("commit.retry.total-timeout-ms", _FROM_0, 1_800_000, check=kinds.non_negative_int)
    status_check_num_retries = followed("commit.status-check.num-retries", _FROM_0, 3, check=kinds.non_negative_int)
    status_check_min_wait_ms = followed("commit.status-check.min-wait-ms", _FROM_0, 1_000, check=kinds.non_negative_int)
    status_check_max_wait_ms = followed(
        "commit.status-check.max-wait-ms", _FROM_0, 60_000, check=kinds.non_negative_int
    )
    status_check_total_timeout_ms = followed(
        "commit.status-check.total-timeout-ms", _FROM_0, 1_800_000, check=kinds.non_negative_int
    )
    manifest_target_size_bytes = followed("commit.manifest.target-size-bytes", _FROM_0, 8 * MIB, check=kinds.positive)
    manifest_min_count_to_merge = followed("commit.manifest.min-count-to-merge", kinds.integer, 100)
    manifest_merge_enabled = followed("commit.manifest-merge.enabled", kinds.is_true, True, check=kinds.boolean)

    # -- expiry of snapshots
    gc_enabled = followed("gc.enabled", kinds.is_true, True, check=kinds.boolean)
    # Differs from Java: ages below 0, for which it expires all snapshots but the heads, or drops all refs but main.
    max_snapshot_age_ms = followed(
        "history.expire.max-snapshot-age-ms", kinds.non_negative_int, 5 * 24 * 60 * 60 * 1000
    )
    min_snapshots_to_keep = followed("history.expire.min-snapshots-to-keep", kinds.integer, 1)
    max_ref_age_ms = followed("history.expire.max-ref-age-ms", kinds.non_negative_int, 2**63 - 1)

    # -- reading
    split_size_bytes = followed("read.split.target-size", kinds.byte_count, 128 * MIB, check=kinds.anything)
