"""Expiring snapshots: the commit to metadata. No file is deleted here: only once this is known to have landed may the
files go that nothing reaches any more.

What goes is decided in `plan.expire_snapshots`, on each base anew: a branch or tag that somebody made meanwhile is
seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from airflow_iceberg.commit.checks import check_same_table, is_same_table, of_this_table
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, RemoveSnapshots, Update
from airflow_iceberg.plan.expire_snapshots import Expiry, find_expired


class ExpireSnapshots:
    """Removes the snapshots, branches and tags that have outlived their retention; see `plan.expire_snapshots`.

    Args:
        before_attempt: called with the base and the snapshots that this attempt removes.

    Attributes:
        expiry: what the last attempt removed; what landed, once the commit has.
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
        # One moment over all attempts: what is told to go before the first one goes, and nothing more.
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
            # One that another writer has expired meanwhile is gone as it should be.
            snapshot_ids=[i for i in self._snapshot_ids if metadata.snapshot(i) is not None],
        )
        if self.expiry.is_empty:
            return Change(updates=(), requirements=())
        updates: tuple[Update, ...] = tuple(RemoveSnapshotRef(ref_name=name) for name in self.expiry.refs)
        if self.expiry.snapshot_ids:
            if self._before_attempt is not None:
                self._before_attempt(metadata, self.expiry.snapshot_ids)
            updates = (*updates, RemoveSnapshots(snapshot_ids=self.expiry.snapshot_ids))
        # A branch that moved meanwhile may reach a snapshot that goes. Nobody can ask for "no other refs" (REST), but
        # a new one can only point to a snapshot of before, which every catalog with a pointer refuses to lose.
        refs = tuple(
            AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in sorted(metadata.refs.items())
        )
        return of_this_table(metadata, updates, refs, new_uuid=self._new_uuid)

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Whether what the last attempt removed is gone, whoever did it."""
        # Another table of this name does not have them either.
        if self.expiry.is_empty or not is_same_table(metadata, self._table_uuid):
            return False
        return not any(metadata.snapshot(i) for i in self.expiry.snapshot_ids) and not (
            set(self.expiry.refs) & metadata.refs.keys()
        )

    def succeeded(self, metadata: TableMetadata) -> None:
        """Nothing was written besides the catalog's own metadata file."""

    def failed(self) -> None:
        """Nothing was written besides the catalog's own metadata file."""
