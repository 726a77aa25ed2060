"""Snapshots, the branches and tags that name them, and the summary of a snapshot's change.

Here: `Snapshot`, `SnapshotRef`, and the summary with its totals. Not here: which snapshots a table has
(`metadata.table_metadata`) and how they are added and removed (`metadata.updates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.format.values.digits import MAX_LONG, whole_number

MAIN_BRANCH = "main"

_SNAPSHOT_KEYS = frozenset(
    (
        *("snapshot-id", "parent-snapshot-id", "sequence-number", "timestamp-ms", "manifest-list", "manifests"),
        *("summary", "schema-id", "first-row-id", "added-rows", "key-id"),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of a table at one time.

    Attributes:
        sequence_number: sequence number of the commit; 0 in v1.
        manifest_list: location, or None where v1 has the locations in `manifests`.
        schema_id: current schema at the time of the snapshot; None from old writers.
        first_row_id: first of the `added_rows` row ids of this snapshot; v3.
        key_id: key of an encrypted manifest list; v3.
        unknown: other keys of the document, written back unchanged.
    Spec: Snapshots.
    """

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    timestamp_ms: int
    manifest_list: str | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    schema_id: int | None = None
    first_row_id: int | None = None
    added_rows: int | None = None
    key_id: str | None = None
    manifests: tuple[str, ...] | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operation(self) -> str:
        """The kind of the change; `overwrite`, which readers must assume, if the summary does not name it."""
        return self.summary.get("operation", "overwrite")

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, path: str | None = None, where: str = "snapshot") -> Snapshot:
        """Read the JSON form; raises FormatError for a key that is missing or of another type."""
        fields = Fields(value, where, path)
        manifests = fields.list("manifests") if "manifests" in fields else None
        if manifests is not None and not all(isinstance(item, str) for item in manifests):
            fields.fail("manifests", "unexpected item (expected str)")
        manifest_list = fields.opt_str("manifest-list")
        if manifest_list is None and manifests is None:
            raise FormatError(f"missing field '{fields.place('manifest-list')}'", path=path)
        return cls(
            snapshot_id=fields.int("snapshot-id"),
            parent_snapshot_id=fields.opt_int("parent-snapshot-id"),
            sequence_number=fields.opt_int("sequence-number") or 0,
            timestamp_ms=fields.int("timestamp-ms"),
            manifest_list=manifest_list,
            summary=_summary(fields),
            schema_id=fields.opt_int("schema-id"),
            first_row_id=fields.opt_int("first-row-id"),
            added_rows=fields.opt_int("added-rows"),
            key_id=fields.opt_str("key-id"),
            manifests=None if manifests is None else tuple(manifests),
            unknown={} if _SNAPSHOT_KEYS.issuperset(value) else fields.rest(_SNAPSHOT_KEYS),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, in the order in which Iceberg Java writes it."""
        manifests = None if self.manifests is None or self.manifest_list is not None else list(self.manifests)
        entries = {
            "sequence-number": self.sequence_number if self.sequence_number > 0 else None,
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": self.parent_snapshot_id,
            "timestamp-ms": self.timestamp_ms,
            "summary": dict(self.summary) if self.summary else None,
            "manifest-list": self.manifest_list,
            "manifests": manifests,
            "schema-id": self.schema_id,
            "first-row-id": self.first_row_id,
            "added-rows": self.added_rows,
            "key-id": self.key_id,
        }
        return {key: value for key, value in entries.items() if value is not None} | dict(self.unknown)


def _summary(fields: Fields) -> Mapping[str, str]:
    summary = fields.data.get("summary") or {}
    # Tables have thousands of summaries: each value is checked once, and only an error is located exactly.
    if isinstance(summary, dict) and all(type(value) is str for value in summary.values()):
        return summary
    return fields.str_map("summary")


# An int, and longs, of Iceberg Java: nobody could read a table with greater ones.
_RETENTION = {"min_snapshots_to_keep": 2**31 - 1, "max_snapshot_age_ms": MAX_LONG, "max_ref_age_ms": MAX_LONG}
_REF_KEYS = frozenset(("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"))


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotRef:
    """A branch or a tag.

    Attributes:
        min_snapshots_to_keep: number for a branch, like `max_snapshot_age_ms`; None means the table's default.
        max_ref_age_ms: age at which the ref expires; None means the table's default; main never expires.
    Spec: Snapshot References.
    """

    snapshot_id: int
    type: Literal["branch", "tag"] = "branch"
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.type not in ("branch", "tag"):
            raise InvalidInputError(f"unexpected type {self.type!r} of a snapshot reference (expected branch or tag)")
        if self.type == "tag" and (self.min_snapshots_to_keep, self.max_snapshot_age_ms) != (None, None):
            raise InvalidInputError(
                "a tag keeps one snapshot: min-snapshots-to-keep and max-snapshot-age-ms are for branches"
            )
        for name, most in _RETENTION.items():
            value, what = getattr(self, name), name.replace("_", "-")
            if value is not None and value <= 0:
                raise InvalidInputError(f"unexpected value {value} (expected at least 1) of {what}")
            if value is not None and value > most:
                raise InvalidInputError(f"unexpected value {value} (expected at most {most}) of {what}")

    @property
    def is_branch(self) -> bool:
        """Whether this is a branch."""
        return self.type == "branch"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, path: str | None = None, where: str = "ref") -> SnapshotRef:
        """Read the JSON form; raises FormatError for a key that is missing or has a wrong type or value."""
        fields = Fields(value, where, path)
        kind = fields.str("type").lower()
        if kind not in ("branch", "tag"):
            fields.fail("type", f"unexpected value {kind!r} (expected branch or tag)")
        try:
            return cls(
                snapshot_id=fields.int("snapshot-id"),
                type="tag" if kind == "tag" else "branch",
                min_snapshots_to_keep=fields.opt_int("min-snapshots-to-keep"),
                max_snapshot_age_ms=fields.opt_int("max-snapshot-age-ms"),
                max_ref_age_ms=fields.opt_int("max-ref-age-ms"),
                unknown=fields.rest(_REF_KEYS),
            )
        except InvalidInputError as error:
            raise FormatError(f"{error} in '{where}'", path=path) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        result: dict[str, Any] = {"snapshot-id": self.snapshot_id, "type": self.type}
        optional = {
            "min-snapshots-to-keep": self.min_snapshots_to_keep,
            "max-snapshot-age-ms": self.max_snapshot_age_ms,
            "max-ref-age-ms": self.max_ref_age_ms,
        }
        return result | {key: value for key, value in optional.items() if value is not None} | dict(self.unknown)


# Total: the entries that are added to it and subtracted from it.
_TOTALS: Mapping[str, tuple[str, str]] = {
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
# The name by sign: data files are deleted, delete files are removed.
_DELTAS: Mapping[str, tuple[str, str]] = {
    "data-files": ("added-data-files", "deleted-data-files"),
    "equality-delete-files": ("added-equality-delete-files", "removed-equality-delete-files"),
    "position-delete-files": ("added-position-delete-files", "removed-position-delete-files"),
    "delete-files": ("added-delete-files", "removed-delete-files"),
    "dvs": ("added-dvs", "removed-dvs"),
    "records": ("added-records", "deleted-records"),
    "files-size": ("added-files-size", "removed-files-size"),
    "position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
_COMPUTED = frozenset(
    (
        *_TOTALS,
        *(name for pair in _DELTAS.values() for name in pair),
        "operation",
        "changed-partition-count",
        "partition-summaries-included",
    )
)


def summarize(
    *,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    previous: Mapping[str, str] | None,
    operation: str | None = None,
    properties: Mapping[str, str] | None = None,
    specs: Mapping[int, PartitionSpec] | None = None,
    schema: Schema | None = None,
    partition_limit: int = 0,
) -> dict[str, str]:
    """Return the summary of a snapshot.

    Args:
        previous: summary of the snapshot that the target branch points to; None without one.
        operation: the operation; by default derived from the files that are added and removed.
        properties: more entries; those that are computed here win.
        specs: partition specs by id; like `schema`, needed only for summaries of partitions.
        partition_limit: most changed partitions that are summarized one by one (`write.summary.partition-limit`).
    Spec: Appendix F, Optional Snapshot Summary Fields.
    """
    deltas = _Deltas()
    partitions: dict[Any, _Deltas] = {}
    some_file: dict[Any, DataFile] = {}
    for files, sign in ((added, 0), (removed, 1)):
        for file in files:
            deltas.count(file, sign)
            key = file.spec_id, tuple(map(canonical_key, file.partition))
            partitions.setdefault(key, _Deltas()).count(file, sign)
            some_file.setdefault(key, file)
    result = {key: value for key, value in (properties or {}).items() if key not in _COMPUTED}
    result = {"operation": operation or deltas.operation(), **result, **deltas.entries()}
    result["changed-partition-count"] = str(len(partitions))
    if specs is not None and schema is not None and len(partitions) <= partition_limit and partitions:
        result["partition-summaries-included"] = "true"
        for key, own in partitions.items():
            name = specs[some_file[key].spec_id].partition_path(some_file[key].partition, schema)
            if name:
                result[f"partitions.{name}"] = ",".join(f"{k}={v}" for k, v in own.entries().items())
    return result | _totals(deltas.entries(), previous)


class _Deltas:
    """Counts of files, rows and bytes that are added (sign 0) and removed (sign 1)."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, file: DataFile, sign: int) -> None:
        self._add("files-size", sign, file.size_bytes)
        if file.content is FileContent.DATA:
            self._add("data-files", sign, 1)
            self._add("records", sign, file.record_count)
            return
        self._add("delete-files", sign, 1)
        if file.content is FileContent.EQUALITY_DELETES:
            self._add("equality-delete-files", sign, 1)
            self._add("equality-deletes", sign, file.record_count)
        else:
            self._add("dvs" if file.is_deletion_vector else "position-delete-files", sign, 1)
            self._add("position-deletes", sign, file.record_count)

    def _add(self, name: str, sign: int, amount: int) -> None:
        key = _DELTAS[name][sign]
        self.counts[key] = self.counts.get(key, 0) + amount

    def entries(self) -> dict[str, str]:
        """Return the deltas other than 0, in the order in which Iceberg Java writes them."""
        names = (name for pair in _DELTAS.values() for name in pair)
        return {name: str(self.counts[name]) for name in names if self.counts.get(name)}

    def operation(self) -> str:
        """Derive the operation: append if rows are added, delete if rows are removed, overwrite if both."""
        adds = "added-data-files" in self.counts
        removes = "deleted-data-files" in self.counts or "added-delete-files" in self.counts
        removes = removes or (not adds and "removed-delete-files" in self.counts)
        if adds and removes:
            return "overwrite"
        return "delete" if removes else "append"


def _totals(deltas: Mapping[str, str], previous: Mapping[str, str] | None) -> dict[str, str]:
    """Return the totals; a total that the previous snapshot does not have as a number is left out, never invented."""
    result = {}
    for name, (plus, minus) in _TOTALS.items():
        before = whole_number("0" if previous is None else previous.get(name, ""))
        if before is not None:
            total = before + int(deltas.get(plus, "0")) - int(deltas.get(minus, "0"))
            if 0 <= total <= MAX_LONG:
                result[name] = str(total)
    return result
