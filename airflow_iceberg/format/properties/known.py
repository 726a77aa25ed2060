"""All table properties of Iceberg's writers, and whether this writer follows them.

Here: the properties that are not attributes of `TableProperties`, the list of all properties (a test compares it with
`docs/write-properties.md`), and the warnings about properties that are set and not followed. Not here: what the values
do (the modules of the operations).
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_iceberg.format.properties import kinds
from airflow_iceberg.format.properties.property import Known, State, unused, warned
from airflow_iceberg.format.properties.table_properties import (
    AVRO_CODEC,
    DISTRIBUTION_MODE,
    PAGE_VERSION,
    TableProperties,
)

WRITE_PREFIX = "write."
PARQUET_PREFIX, AVRO_PREFIX, DELETE_PREFIX = "write.parquet.", "write.avro.", "write.delete."

_NOT_READ = (
    warned("write.parquet.row-group-check-min-record-count", kinds.positive),
    warned("write.parquet.row-group-check-max-record-count", kinds.positive),
    warned("write.parquet.row-group-size-track-uncompressed", kinds.boolean, "false"),
    warned("write.parquet.bloom-filter-adaptive-enabled", kinds.boolean, "false"),
    warned("write.parquet.shred-variants", kinds.boolean, "false", note="; variants are written whole"),
    warned("write.parquet.variant-inference-buffer-size", kinds.positive),
    unused("write.orc.*"),
    warned("write.location-provider.impl", kinds.anything),
    warned("write.manifest.compression-codec", kinds.one_of("gzip", "snappy", "zstd", "uncompressed"), "gzip"),
    warned("write.manifest.compression-level", kinds.compression_level, "", "null"),
    warned("write.manifest-lists.enabled", kinds.boolean, "true"),
    warned("write.delete.distribution-mode", DISTRIBUTION_MODE, "none"),
    warned(
        "write.delete.granularity",
        kinds.one_of("file", "partition"),
        "file",
        note="; each delete file is about one data file",
    ),
    warned("write.delete.target-file-size-bytes", kinds.positive),
    Known(name="write.delete.parquet.compression-codec", check=kinds.codec),
    Known(name="write.delete.parquet.compression-level", check=kinds.compression_level),
    Known(name="write.delete.parquet.row-group-size-bytes", check=kinds.positive),
    Known(name="write.delete.parquet.page-size-bytes", check=kinds.positive),
    Known(name="write.delete.parquet.page-row-limit", check=kinds.positive),
    Known(name="write.delete.parquet.page-version", check=PAGE_VERSION),
    Known(name="write.delete.parquet.dict-size-bytes", check=kinds.positive),
    warned("write.delete.parquet.row-group-check-min-record-count", kinds.positive),
    warned("write.delete.parquet.row-group-check-max-record-count", kinds.positive),
    Known(name="write.delete.avro.compression-codec", check=AVRO_CODEC),
    Known(name="write.delete.avro.compression-level", check=kinds.compression_level),
    unused("write.delete.orc.*"),
    warned("write.update.distribution-mode", DISTRIBUTION_MODE, "none"),
    warned("write.merge.distribution-mode", DISTRIBUTION_MODE, "none"),
    warned("write.merge.cardinality-check.enabled", kinds.boolean, "true"),
    unused("write.upsert.enabled", kinds.boolean),
    warned(
        "write.wap.enabled",
        kinds.boolean,
        "false",
        note="; rows are written to the given branch, by default to main at once",
    ),
    Known(name="write.spark.fanout.enabled", check=kinds.boolean),
    warned("write.spark.accept-any-schema", kinds.boolean, "false"),
    unused("write.spark.auto-schema-evolution.enabled", kinds.boolean),
    warned("write.spark.advisory-partition-size-bytes", kinds.positive),
)
"""The `Known` ones, of position delete files, are followed: `data.write.options` reads them as those of data files."""

_READ = tuple(each for each in vars(TableProperties).values() if isinstance(each, Known))
PROPERTIES: Mapping[str, Known] = {each.name: each for each in (*_READ, *_NOT_READ)}
"""The properties by name; a name that ends in ".*" is a prefix. A full name takes precedence over a prefix."""


def find_property(name: str) -> Known | None:
    """Return what is known of a property, None if it is not a property of Iceberg."""
    if name in PROPERTIES:
        return PROPERTIES[name]
    prefixes = [key for key in PROPERTIES if key.endswith(".*") and name.startswith(key[:-1])]
    return PROPERTIES[max(prefixes, key=len)] if prefixes else None


def check_values(properties: Mapping[str, str]) -> None:
    """Refuse values that are not of the kind of their property; unknown properties may have any value.

    Raises:
        InvalidInputError: names the property, its value and what is expected.
    """
    for name, text in properties.items():
        known = find_property(name)
        if known is not None:
            known.check(name, text)


def property_warnings(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a text for each `write.*` property that is set and not followed."""
    found = []
    for name in sorted(filter(lambda name: name.startswith(WRITE_PREFIX), properties)):
        known = find_property(name)
        if known is None:
            found.append(f"property {name} is set, and this writer does not support it")
        elif known.state is State.WARNED and not known.is_moot(properties[name]):
            found.append(f"property {name} is set, and this writer does not follow it{known.note}")
    return tuple(found)
