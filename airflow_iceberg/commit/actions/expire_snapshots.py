"""Expire snapshots: the commit to metadata; the files are deleted afterwards by `operations.expire_snapshots`.

`plan.expire_snapshots` selects the snapshots again on each base, so that new branches and tags are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId, check_same_table, is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, RemoveSnapshots, Update
from airflow_iceberg.plan.expire_snapshots import Expiry, find_expired


class ExpireSnapshots(Action):
    """Removes the snapshots, branches and tags that have outlived their retention; see `plan.expire_snapshots`.

    Args:
        before_attempt: a function, called with the base and the snapshots that this attempt removes.

    Attributes:
        expiry: the snapshots that the last attempt removed, which are those of the commit once it has landed.
    """

    def __init__(
        self,
        *,
        table_uuid: str,
        new_uuid: str,
        now_ms: Callable[[], int],
        older_than_ms: int | None = None,
        retain_last: int | None = None,
        snapshot_ids: Collection[int] = (),
        before_attempt: Callable[[TableMetadata, Sequence[int]], None] | None = None,
    ) -> None:
        self._table_uuid = table_uuid
        self._new_uuid = new_uuid
        # One point in time for all attempts, so that each expires the same snapshots.
        self._now_ms = now_ms()
        self._older_than_ms = older_than_ms
        self._retain_last = retain_last
        self._snapshot_ids = tuple(snapshot_ids)
        self._before_attempt = before_attempt
        self.expiry = Expiry()

    def __call__(self, metadata: TableMetadata) -> Change:
        check_same_table(metadata, self._table_uuid)
        self.expiry = find_expired(
            metadata,
            now_ms=self._now_ms,
            older_than_ms=self._older_than_ms,
            retain_last=self._retain_last,
            # Without those that another writer has expired meanwhile.
            snapshot_ids=[i for i in self._snapshot_ids if metadata.snapshot(i) is not None],
        )
        if self.expiry.is_empty:
            return Change(updates=(), requirements=())
        updates: tuple[Update, ...] = tuple(RemoveSnapshotRef(ref_name=name) for name in self.expiry.refs)
        if self.expiry.snapshot_ids:
            if self._before_attempt is not None:
                self._before_attempt(metadata, self.expiry.snapshot_ids)
            updates = (*updates, RemoveSnapshots(snapshot_ids=self.expiry.snapshot_ids))
        # A branch that moved meanwhile may reach a removed snapshot. REST has no requirement "no other refs", but a new
        # ref can only point to an older snapshot, which every catalog with a pointer refuses to remove then.
        refs = tuple(
            AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in sorted(metadata.refs.items())
        )
        return of_this_table(metadata, updates, refs, new_uuid=self._new_uuid)

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the snapshots and refs of the last attempt are removed, by any writer."""
        # Another table with this name does not have them either.
        if self.expiry.is_empty or not is_same_table(metadata, self._table_uuid):
            return None
        is_left = any(metadata.snapshot(i) for i in self.expiry.snapshot_ids) or (
            set(self.expiry.refs) & metadata.refs.keys()
        )
        return None if is_left else Outcome.COMMITTED

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """True: what expires is decided again, and to remove it twice does no harm."""
        return True
