"""The earlier runs of a cleared task: which of their files does the commit of a later epoch replace?

All rows that the earlier epoch committed are deleted in the commit that adds the new rows. If they cannot be determined
(their files were compacted, or the history has expired), the commit is rejected, so that no row is added twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from airflow_iceberg.commit.operation_key import APPENDED_FILE, OPERATION_KEY, OperationKey, find_other_epochs
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

WAYS_OUT = (
    "run it with on_rerun='append' if the earlier rows are deleted or to be kept, with on_rerun='skip' to leave the "
    "table as it is, or replace the rows yourself"
)


def check_no_later_epoch(metadata: TableMetadata, key: OperationKey, branch: str) -> None:
    """Refuse the commit of a process that outlived its task: a run after a later clear has committed already.

    Raises:
        IncompatibleChangeError: the branch holds a later epoch of the same work.
    """
    for epoch, snapshot in find_other_epochs(metadata, key, branch):
        if epoch > key.epoch:
            raise IncompatibleChangeError(
                f"operation {key} was superseded: the task was cleared, and its clear epoch {epoch} has committed "
                f"snapshot {snapshot.snapshot_id}; nothing was committed"
            )


class EarlierEpochs:
    """Finds the live data files that earlier epochs of one task added to a branch.

    The branch's snapshots tell, as long as they are kept; after their expiry the file names do, which hold the token of
    the task and its epoch. Each manifest is read once over all attempts, and none for the first try of a task that was
    never cleared.

    Args:
        try_number: the task's try; from the second on, a commit of an earlier try may have been expired.
        replace: whether the rows of earlier epochs are replaced.
    """

    def __init__(self, io: FileIO, key: OperationKey, branch: str, *, try_number: int, replace: bool) -> None:
        self._io = io
        self._key = key
        self._branch = branch
        self._retried = try_number > 1
        self._replace = replace and key.epoch > 0
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}
        self._found: tuple[str, str] | None = None

    def log_replaced(self, table: str, branch: str) -> None:
        """Log which rows the commit has replaced, as the last call of `files_to_replace` found them.

        Args:
            table: the table's location.
        """
        if self._found is not None:
            what, snapshots = self._found
            log.info(
                "%s, branch %s: the task was cleared, so its new rows replaced those of its earlier run: %s, %s",
                *(table, branch, what, snapshots),
            )

    def files_to_replace(self, metadata: TableMetadata) -> frozenset[str]:
        """Return the paths of the live files that the new rows replace; empty when no earlier epoch has committed.

        Raises:
            IncompatibleChangeError: the rows of the earlier epoch cannot be told from other rows.
        """
        self._found = None
        check_no_later_epoch(metadata, self._key, self._branch)
        head = metadata.ref_snapshot(self._branch)
        if head is None or not (self._replace or self._retried):
            return frozenset()
        earlier = [snapshot for _, snapshot in find_other_epochs(metadata, self._key, self._branch)]
        earlier = earlier if self._replace else []
        knows_all = self._history_tells_all(metadata, head)
        if knows_all and not earlier:
            return frozenset()
        live = {entry.data_file.file_path: entry for entry in self._entries_of(head) if entry.is_live}
        added = {path for snapshot in earlier for path in self._own_rows_of(snapshot)}
        self._check_gone_for_good(metadata, head, added - live.keys(), earlier)
        named = frozenset() if knows_all else self._by_name(metadata, live)
        if not (knows_all or earlier or named):
            self._check_never_rewritten(metadata, live)
        replaced = named | (added & live.keys())
        self._remember([live[path] for path in replaced], earlier)
        return replaced

    def _remember(self, replaced: list[ManifestEntry], earlier: list[Snapshot]) -> None:
        if not self._replace or not (replaced or earlier):
            return
        records = sum(entry.data_file.record_count for entry in replaced)
        ids = ", ".join(str(snapshot.snapshot_id) for snapshot in earlier)
        self._found = (
            f"{_counted(records, 'row')} in {_counted(len(replaced), 'data file')}",
            f"committed in snapshot {ids}" if ids else "committed in a snapshot that has expired",
        )

    def _history_tells_all(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether no commit of this work can have left the branch's history by expiry."""
        oldest = list(metadata.ancestors(head.snapshot_id))[-1]
        if oldest.parent_snapshot_id is None:
            return True
        # Tries of this epoch began after the run was started, earlier epochs after the run could begin.
        after = self._key.run_after_ms if self._replace else self._key.started_ms
        return after is not None and oldest.timestamp_ms < after

    def _by_name(self, metadata: TableMetadata, live: Mapping[str, ManifestEntry]) -> frozenset[str]:
        """Return the live files whose names hold the token of this work, if no other file can hold its rows."""
        token = f"{self._key.file_token}-" if self._replace else f"{self._key.file_token}-{self._key.epoch}-"
        found = frozenset(path for path in live if _name(path).startswith(token))
        if found:
            # v1 has no sequence numbers: any file may be the younger one.
            first = min(live[path].file_sequence_number or 0 for path in found) or -1
            for path, entry in live.items():
                if (entry.file_sequence_number or 0) > first and not _is_appended(metadata, entry):
                    raise self._unknown_rows(f"file {path} is younger than its files and may hold rows of them")
        return found

    def _check_never_rewritten(self, metadata: TableMetadata, live: Mapping[str, ManifestEntry]) -> None:
        """Refuse when a commit of this work may have been there, and cannot be seen any more."""
        if self._replace:
            raise self._unknown_rows("no live file has its name")
        for path, entry in live.items():
            if not _is_appended(metadata, entry):
                raise self._unknown_rows(f"file {path} may hold rows of an earlier try")

    def _unknown_rows(self, why: str) -> IncompatibleChangeError:
        return IncompatibleChangeError(
            f"cannot tell which rows of an earlier run of {self._key.work} are in the table: the history of branch "
            f"{self._branch!r} does not reach back to it (snapshots were expired), and {why}; {WAYS_OUT}"
        )

    def _changed_by(self, snapshot: Snapshot, status: EntryStatus = EntryStatus.ADDED) -> Iterator[str]:
        for entry in self._entries_of(snapshot, only_added_by=snapshot.snapshot_id):
            if entry.status is status and entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file.file_path

    def _own_rows_of(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield the files with new rows of this task: an overwrite also adds files with carried rows."""
        is_append = snapshot.operation == "append"
        return (path for path in self._changed_by(snapshot) if is_append or APPENDED_FILE.match(_name(path)))

    def _check_gone_for_good(
        self, metadata: TableMetadata, head: Snapshot, missing: set[str], earlier: list[Snapshot]
    ) -> None:
        """Refuse when a file of the earlier epoch was rewritten, so that its rows are now in files with other rows.

        A snapshot that only removes files deleted the rows with them, and so did one whose new files all have the names
        of new rows (an overwrite by a task). Any other (compaction, update by copy-on-write) may have carried the rows
        over, unless it belongs to this same task.
        """
        if not missing:
            return
        own = {snapshot.snapshot_id for snapshot in earlier}
        remaining = set(own)
        for snapshot in metadata.ancestors(head.snapshot_id):
            # By the order of the history: v1 gives all snapshots the sequence number 0.
            if not remaining:
                return
            remaining.discard(snapshot.snapshot_id)
            if snapshot.operation == "append" or snapshot.snapshot_id in own:
                continue
            # From the manifests: a summary may leave out what was added.
            may_carry = any(not APPENDED_FILE.match(_name(path)) for path in self._changed_by(snapshot))
            if may_carry and not missing.isdisjoint(self._changed_by(snapshot, EntryStatus.DELETED)):
                who = snapshot.summary.get(OPERATION_KEY) or snapshot.summary.get("engine-name") or "another writer"
                raise IncompatibleChangeError(
                    f"cannot replace the rows of the earlier run of {self._key.work}: snapshot {snapshot.snapshot_id} "
                    f"(operation {snapshot.operation}, by {who}) rewrote its files together with other rows; {WAYS_OUT}"
                )

    def _entries_of(self, snapshot: Snapshot, *, only_added_by: int | None = None) -> Iterator[ManifestEntry]:
        for manifest in read_manifests(self._io, snapshot):
            if manifest.content is not ManifestContent.DATA:
                continue
            if only_added_by is not None and manifest.added_snapshot_id != only_added_by:
                continue
            path = manifest.manifest_path
            if path not in self._entries:
                self._entries[path] = tuple(read_entries(self._io, manifest))
            yield from self._entries[path]


def _is_appended(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether a file is known to hold new rows, and not rows of older files."""
    if APPENDED_FILE.match(_name(entry.data_file.file_path)):
        return True
    snapshot = None if entry.snapshot_id is None else metadata.snapshot(entry.snapshot_id)
    return snapshot is not None and snapshot.operation == "append"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
