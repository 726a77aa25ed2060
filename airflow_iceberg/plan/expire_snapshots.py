"""Which snapshots and refs a table keeps: the retention rules of branches and tags.

Here: the decision, from metadata and a time alone. Not here: the change (`commit.actions.expire_snapshots`), and which
files become unreachable.

1. `main` is kept; another ref is kept until its snapshot is older than the maximum age of the ref.
2. Each kept branch keeps its head, and its ancestors while there are fewer than its minimum or they are young enough;
   the first other ancestor ends this. A tag keeps its snapshot.
3. Snapshots that no ref reaches (staged, rolled back) are kept while they are young enough.

Spec: Snapshot Retention Policy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH, SnapshotRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Expiry:
    """The snapshots (in the order of the table's metadata) and the refs (by name) that are removed."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is removed."""
        return not (self.snapshot_ids or self.refs)


def find_expired(
    metadata: TableMetadata,
    *,
    now_ms: int,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    snapshot_ids: Collection[int] = (),
) -> Expiry:
    """Return the snapshots and refs that a table need not keep.

    Args:
        older_than_ms: time before which snapshots expire; by default the table's `history.expire.max-snapshot-age-ms`
            (5 days) before now. A branch's own setting wins.
        retain_last: number of snapshots of each branch that are kept whatever their age; by default the table's
            `history.expire.min-snapshots-to-keep` (1). A branch's own setting wins.
        snapshot_ids: more snapshots to remove, whatever their age.
    Raises:
        InvalidInputError: `gc.enabled` is false, a number is out of range, or a kept ref is at one of `snapshot_ids`.
        NotFoundError: the table has no such snapshot.
    """
    rules = _Rules.of(metadata, now_ms=now_ms, older_than_ms=older_than_ms, retain_last=retain_last)
    refs = {name: ref for name, ref in metadata.refs.items() if rules.keeps_ref(name, ref, metadata)}
    _check_ids(metadata, refs, snapshot_ids)
    kept = {i for ref in refs.values() for i in rules.kept_by(ref, metadata)}
    reached = {i for ref in refs.values() for i in _reached_by(ref, metadata)}
    old = {s.snapshot_id for s in metadata.snapshots if s.timestamp_ms < rules.older_than_ms}
    gone = ((reached | old) - kept) | set(snapshot_ids)
    expired = tuple(s.snapshot_id for s in metadata.snapshots if s.snapshot_id in gone)
    return Expiry(snapshot_ids=expired, refs=tuple(name for name in metadata.refs if name not in refs))


def _check_ids(metadata: TableMetadata, refs: dict[str, SnapshotRef], snapshot_ids: Collection[int]) -> None:
    for snapshot_id in snapshot_ids:
        if metadata.snapshot(snapshot_id) is None:
            raise NotFoundError(f"cannot expire snapshot {snapshot_id}: table {metadata.location} does not have it")
        names = sorted(name for name, ref in refs.items() if ref.snapshot_id == snapshot_id)
        if names:
            raise InvalidInputError(
                f"cannot expire snapshot {snapshot_id}: it is still referenced by {', '.join(map(repr, names))}; drop "
                f"or move that branch or tag first"
            )


def _reached_by(ref: SnapshotRef, metadata: TableMetadata) -> list[int]:
    """Return the snapshots that a ref reaches: all ancestors of a branch, the snapshot of a tag."""
    if not ref.is_branch:
        return [ref.snapshot_id]
    return [snapshot.snapshot_id for snapshot in metadata.ancestors(ref.snapshot_id)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rules:
    now_ms: int
    older_than_ms: int
    min_to_keep: int
    max_ref_age_ms: int

    @classmethod
    def of(cls, metadata: TableMetadata, *, now_ms: int, older_than_ms: int | None, retain_last: int | None) -> _Rules:
        check_may_delete(metadata)
        properties = TableProperties.of(metadata.properties)
        age_ms = properties.max_snapshot_age_ms
        if retain_last is not None and retain_last < 1:
            raise InvalidInputError(f"unexpected retain_last {retain_last} (expected at least 1)")
        return cls(
            now_ms=now_ms,
            older_than_ms=now_ms - age_ms if older_than_ms is None else older_than_ms,
            min_to_keep=retain_last or properties.min_snapshots_to_keep,
            max_ref_age_ms=properties.max_ref_age_ms,
        )

    def keeps_ref(self, name: str, ref: SnapshotRef, metadata: TableMetadata) -> bool:
        if name == MAIN_BRANCH:
            return True
        snapshot = metadata.snapshot(ref.snapshot_id)
        longest = self.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        return snapshot is not None and self.now_ms - snapshot.timestamp_ms <= longest

    def kept_by(self, ref: SnapshotRef, metadata: TableMetadata) -> list[int]:
        """Return the snapshots that a ref keeps."""
        if not ref.is_branch:
            return [ref.snapshot_id]
        minimum = self.min_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        age_ms = ref.max_snapshot_age_ms
        since_ms = self.older_than_ms if age_ms is None else self.now_ms - age_ms
        kept: list[int] = []
        for snapshot in metadata.ancestors(ref.snapshot_id):
            if len(kept) >= minimum and snapshot.timestamp_ms < since_ms:
                break
            kept.append(snapshot.snapshot_id)
        return kept or [ref.snapshot_id]  # the head is kept, also where the minimum is 0 or less


def check_may_delete(metadata: TableMetadata) -> None:
    """Reject tables whose files may belong to other tables: InvalidInputError if `gc.enabled` is false."""
    if not TableProperties.of(metadata.properties).gc_enabled:
        raise InvalidInputError(
            f"table {metadata.location} has {TableProperties.gc_enabled}=false: its files may belong to other tables "
            f"or catalog branches, too; nothing is expired or deleted"
        )
