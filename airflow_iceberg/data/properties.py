"""Every `write.*` property that Iceberg's writers know, and what this one does about it.

Here: the list, held against `docs/write-properties.md` by a test, and what is said about properties that are set and
not followed. Not here: reading the values (`options`, `metrics`, and the modules of the operations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum


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
        is_moot: tells of a value whether it asks for what is done anyway: then there is nothing to warn about.
    """

    state: State
    is_moot: Callable[[str], bool] = lambda value: False


def _is(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in words


_followed, _unused = Known(state=State.FOLLOWED), Known(state=State.UNUSED)
_refused, _warned = Known(state=State.REFUSED), Known(state=State.WARNED)

WRITE_PROPERTIES: Mapping[str, Known] = {
    "write.format.default": _refused,
    "write.target-file-size-bytes": _followed,
    "write.distribution-mode": _followed,
    "write.parquet.row-group-size-bytes": _followed,
    "write.parquet.page-size-bytes": _followed,
    "write.parquet.page-row-limit": _followed,
    "write.parquet.page-version": _followed,
    "write.parquet.dict-size-bytes": _followed,
    "write.parquet.compression-codec": _followed,
    "write.parquet.compression-level": _followed,
    "write.parquet.row-group-check-min-record-count": _warned,
    "write.parquet.row-group-check-max-record-count": _warned,
    "write.parquet.bloom-filter-max-bytes": _followed,
    "write.parquet.bloom-filter-enabled.column.*": _followed,
    "write.parquet.bloom-filter-fpp.column.*": _followed,
    "write.parquet.bloom-filter-ndv.column.*": _followed,
    "write.parquet.stats-enabled.column.*": _followed,
    "write.parquet.shred-variants": Known(state=State.WARNED, is_moot=_is("false")),
    "write.parquet.variant-inference-buffer-size": _warned,
    "write.avro.*": _unused,
    "write.orc.*": _unused,
    "write.data.path": _followed,
    "write.folder-storage.path": _followed,
    "write.object-storage.path": _followed,
    "write.object-storage.enabled": _followed,
    "write.object-storage.partitioned-paths": _followed,
    "write.location-provider.impl": _warned,
    "write.metadata.path": _followed,
    "write.metadata.compression-codec": _followed,
    "write.metadata.previous-versions-max": _followed,
    "write.metadata.delete-after-commit.enabled": _followed,
    "write.metadata.metrics.default": _followed,
    "write.metadata.metrics.column.*": _followed,
    "write.metadata.metrics.max-inferred-column-defaults": _followed,
    "write.manifest.compression-codec": _warned,
    "write.manifest.compression-level": _warned,
    "write.manifest-lists.enabled": Known(state=State.WARNED, is_moot=_is("true")),
    "write.summary.partition-limit": _followed,
    "write.delete.mode": _followed,
    "write.delete.isolation-level": _followed,
    "write.delete.distribution-mode": Known(state=State.WARNED, is_moot=_is("none")),
    "write.delete.granularity": Known(state=State.WARNED, is_moot=_is("file")),
    "write.delete.format.default": _refused,
    "write.delete.target-file-size-bytes": _warned,
    "write.delete.parquet.compression-codec": _followed,
    "write.delete.parquet.*": _warned,
    "write.delete.avro.*": _unused,
    "write.delete.orc.*": _unused,
    "write.update.mode": _unused,
    "write.update.isolation-level": _unused,
    "write.update.distribution-mode": _unused,
    "write.merge.mode": _unused,
    "write.merge.isolation-level": _unused,
    "write.merge.distribution-mode": _unused,
    "write.merge.cardinality-check.enabled": _unused,
    "write.upsert.enabled": _unused,
    "write.wap.enabled": Known(state=State.WARNED, is_moot=_is("false")),
    "write.spark.fanout.enabled": _followed,
    "write.spark.accept-any-schema": Known(state=State.WARNED, is_moot=_is("false")),
    "write.spark.advisory-partition-size-bytes": _warned,
}
"""By name; a name that ends in ".*" is a prefix. Where both fit, the full name counts."""

_NOTES: Mapping[str, str] = {
    "write.wap.enabled": "; rows go to the branch that the operator names",
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
