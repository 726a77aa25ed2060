"""Every `write.*` property that Iceberg's writers know, and what this one does about it.

Here: the list, held against `docs/write-properties.md` by a test, which values each takes, and what is said about
properties that are set and not followed. Not here: what the values do (`options`, `metrics`, and the modules of the
operations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.kinds import (
    Check,
    anything,
    boolean,
    codec,
    level,
    one_of,
    place,
    positive,
    share,
    whole,
)
from airflow_iceberg.format.properties.metrics_mode import MetricsMode


class State(Enum):
    """What becomes of a property."""

    FOLLOWED = "followed"
    WARNED = "warning"
    """It is not followed, and a warning says so."""
    REFUSED = "refused"
    """Values that cannot be followed are an error, since files would be wrong."""
    UNUSED = "no effect"
    """It is about something that is not done here: other file formats, other engines, updates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A property, or all of a prefix.

    Attributes:
        check: refuses values that are not of its kind.
        is_moot: tells of a value whether it asks for what is done anyway: then there is nothing to warn about.
    """

    state: State
    check: Check = anything
    is_moot: Callable[[str], bool] = lambda value: False


def _is(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in words


def _metrics_mode(name: str, text: str) -> MetricsMode:
    try:
        return MetricsMode.parse(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"property {name}: {error}") from error


def _followed(check: Check) -> Known:
    return Known(state=State.FOLLOWED, check=check)


def _warned(check: Check, *moot: str) -> Known:
    return Known(state=State.WARNED, check=check, is_moot=_is(*moot))


def _unused(check: Check = anything) -> Known:
    return Known(state=State.UNUSED, check=check)


_FORMAT = one_of("parquet", "avro", "orc")
_MODE = one_of("copy-on-write", "merge-on-read")
_ISOLATION = one_of("serializable", "snapshot")
_DISTRIBUTION = one_of("none", "hash", "range")
_PAGE_VERSION = one_of("v1", "v2")

WRITE_PROPERTIES: Mapping[str, Known] = {
    "write.format.default": Known(state=State.REFUSED, check=_FORMAT, is_moot=_is("parquet")),
    "write.target-file-size-bytes": _followed(positive),
    "write.distribution-mode": _followed(_DISTRIBUTION),
    "write.parquet.row-group-size-bytes": _followed(positive),
    "write.parquet.page-size-bytes": _followed(positive),
    "write.parquet.page-row-limit": _followed(positive),
    "write.parquet.page-version": _followed(_PAGE_VERSION),
    "write.parquet.dict-size-bytes": _followed(positive),
    "write.parquet.dict-encoding-enabled.column.*": _followed(boolean),
    "write.parquet.compression-codec": _followed(codec),
    "write.parquet.compression-level": _followed(level),
    "write.parquet.row-group-check-min-record-count": _warned(positive),
    "write.parquet.row-group-check-max-record-count": _warned(positive),
    "write.parquet.row-group-size-track-uncompressed": _warned(boolean, "false"),
    "write.parquet.bloom-filter-max-bytes": _followed(positive),
    "write.parquet.bloom-filter-adaptive-enabled": _warned(boolean, "false"),
    "write.parquet.bloom-filter-enabled.column.*": _followed(boolean),
    "write.parquet.bloom-filter-fpp.column.*": _followed(share),
    "write.parquet.bloom-filter-ndv.column.*": _followed(positive),
    "write.parquet.stats-enabled.column.*": _followed(boolean),
    "write.parquet.shred-variants": _warned(boolean, "false"),
    "write.parquet.variant-inference-buffer-size": _warned(positive),
    "write.avro.*": _unused(),
    "write.orc.*": _unused(),
    "write.data.path": _followed(place),
    "write.folder-storage.path": _followed(place),
    "write.object-storage.path": _followed(place),
    "write.object-storage.enabled": _followed(boolean),
    "write.object-storage.partitioned-paths": _followed(boolean),
    "write.location-provider.impl": _warned(anything),
    "write.metadata.path": _followed(place),
    "write.metadata.compression-codec": _followed(one_of("none", "gzip")),
    "write.metadata.previous-versions-max": _followed(whole),
    "write.metadata.delete-after-commit.enabled": _followed(boolean),
    "write.metadata.metrics.default": _followed(_metrics_mode),
    "write.metadata.metrics.column.*": _followed(_metrics_mode),
    "write.metadata.metrics.max-inferred-column-defaults": _followed(whole),
    "write.manifest.compression-codec": _warned(one_of("gzip", "snappy", "zstd", "uncompressed"), "gzip"),
    "write.manifest.compression-level": _warned(level, "", "null"),
    "write.manifest-lists.enabled": _warned(boolean, "true"),
    "write.summary.partition-limit": _followed(whole),
    "write.delete.mode": _followed(_MODE),
    "write.delete.isolation-level": _followed(_ISOLATION),
    "write.delete.distribution-mode": _warned(_DISTRIBUTION, "none"),
    "write.delete.granularity": _warned(one_of("file", "partition"), "file"),
    "write.delete.format.default": Known(state=State.REFUSED, check=_FORMAT, is_moot=_is("parquet")),
    "write.delete.target-file-size-bytes": _warned(positive),
    "write.delete.parquet.compression-codec": _followed(codec),
    "write.delete.parquet.compression-level": _followed(level),
    "write.delete.parquet.row-group-size-bytes": _followed(positive),
    "write.delete.parquet.page-size-bytes": _followed(positive),
    "write.delete.parquet.page-row-limit": _followed(positive),
    "write.delete.parquet.page-version": _followed(_PAGE_VERSION),
    "write.delete.parquet.dict-size-bytes": _followed(positive),
    "write.delete.parquet.row-group-check-min-record-count": _warned(positive),
    "write.delete.parquet.row-group-check-max-record-count": _warned(positive),
    "write.delete.avro.*": _unused(),
    "write.delete.orc.*": _unused(),
    "write.update.mode": _unused(_MODE),
    "write.update.isolation-level": _unused(_ISOLATION),
    "write.update.distribution-mode": _unused(_DISTRIBUTION),
    "write.merge.mode": _unused(_MODE),
    "write.merge.isolation-level": _unused(_ISOLATION),
    "write.merge.distribution-mode": _unused(_DISTRIBUTION),
    "write.merge.cardinality-check.enabled": _unused(boolean),
    "write.upsert.enabled": _unused(boolean),
    "write.wap.enabled": _warned(boolean, "false"),
    "write.spark.fanout.enabled": _followed(boolean),
    "write.spark.accept-any-schema": _warned(boolean, "false"),
    "write.spark.auto-schema-evolution.enabled": _unused(boolean),
    "write.spark.advisory-partition-size-bytes": _warned(positive),
}
"""By name; a name that ends in ".*" is a prefix. Where both fit, the full name counts."""

_OTHERS: Mapping[str, Check] = {
    "gc.enabled": boolean,
    "commit.manifest-merge.enabled": boolean,
    "history.expire.max-snapshot-age-ms": whole,
    "history.expire.min-snapshots-to-keep": positive,
    "history.expire.max-ref-age-ms": whole,
}
"""Properties that are not about writing files, and which values they take."""

_NOTES: Mapping[str, str] = {
    "write.wap.enabled": "; rows go to the branch that is named, by default to main at once",
    "write.parquet.shred-variants": "; variants are written whole",
    "write.delete.granularity": "; each delete file is about one data file",
}


def find_property(name: str) -> Known | None:
    """Return what is known of a property, None if it is not a property of Iceberg's."""
    exact = WRITE_PROPERTIES.get(name)
    if exact is not None:
        return exact
    prefixes = [key for key in WRITE_PROPERTIES if key.endswith(".*") and name.startswith(key[:-1])]
    return WRITE_PROPERTIES[max(prefixes, key=len)] if prefixes else None


def check_values(properties: Mapping[str, str]) -> None:
    """Refuse values that are not of the kind of their property; properties that are not known may be anything.

    Raises:
        InvalidInputError: names the property, its value and what is expected.
    """
    for name, text in properties.items():
        known = find_property(name)
        check = _OTHERS.get(name) if known is None else known.check
        if check is not None:
            check(name, text)


def property_warnings(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a text for each `write.*` property that is set and not followed."""
    found = []
    for name in sorted(properties):
        if not name.startswith("write."):
            continue
        known = find_property(name)
        if known is None:
            found.append(f"property {name} is set, and this writer does not know it")
        elif known.state is State.WARNED and not known.is_moot(properties[name]):
            found.append(f"property {name} is set, and this writer does not follow it{_NOTES.get(name, '')}")
    return tuple(found)


ENCRYPTION_KEY = "encryption.key-id"
