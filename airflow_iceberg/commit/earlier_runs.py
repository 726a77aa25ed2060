"""A task ran, somebody cleared it, it runs again: which files of the earlier run does the new one replace?

The rule: every row that the earlier run committed goes in the same commit in which the new rows come. Where that
cannot be told (its files were compacted away, or the history that would tell has expired), the commit is refused and
nothing is doubled. What is done with the answer is in `commit.snapshot_action`.
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
    "run it with on_rerun='append' if the earlier rows are gone or may stay, with on_rerun='skip' to leave the table "
    "as it is, or replace the rows yourself"
)


def check_not_overtaken(metadata: TableMetadata, key: OperationKey, branch: str) -> None:
    """Refuse the commit of a process that outlived its task: a run after a later clear has committed already.

    Raises:
        IncompatibleChangeError: the branch holds a later epoch of the same work.
    """
    for epoch, snapshot in find_other_epochs(metadata, key, branch):
        if epoch > key.epoch:
            raise IncompatibleChangeError(
                f"operation {key} was overtaken: the task was cleared, and its run number {epoch} committed snapshot "
                f"{snapshot.snapshot_id} already; nothing was committed"
            )


class EarlierRuns:
    """Finds the live data files that earlier runs of one task added to a branch.

    The snapshots of the branch tell, as long as they are kept. Where they were expired, the names of the files tell:
    each bears the token of its task and the number of its epoch. Manifests are read once, however often the table has
    to be looked at again, and not at all for the first try of a task that nobody cleared.

    Args:
        try_number: of the task; from the second try on, a commit of an earlier try may have been expired already.
        replace: whether the rows of earlier epochs go.
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
        """Say which rows the commit has replaced, on the base that `files_to_replace` was last asked for.

        Args:
            table: its location.
        """
        if self._found is not None:
            what, snapshots = self._found
            log.info(
                "%s, branch %s: the task was cleared, so its new rows replaced those of its earlier run: %s, %s",
                *(table, branch, what, snapshots),
            )

    def files_to_replace(self, metadata: TableMetadata) -> frozenset[str]:
        """Return the paths of the live files that the new rows replace; empty when no earlier run committed.

        Raises:
            IncompatibleChangeError: it cannot be told which rows of the table are those of the earlier run.
        """
        self._found = None
        check_not_overtaken(metadata, self._key, self._branch)
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
            f"committed in snapshot {ids}" if ids else "committed in a snapshot that was expired since",
        )

    def _history_tells_all(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether a commit of this run could not have left the branch's history by expiry."""
        oldest = list(metadata.ancestors(head.snapshot_id))[-1]
        if oldest.parent_snapshot_id is None:
            return True
        # Tries of this epoch alone began with the run, earlier epochs whenever it could begin at all.
        after = self._key.run_after_ms if self._replace else self._key.started_ms
        return after is not None and oldest.timestamp_ms < after

    def _by_name(self, metadata: TableMetadata, live: Mapping[str, ManifestEntry]) -> frozenset[str]:
        """Return the live files that bear the token of this work, if they are all that can be left of it."""
        token = f"{self._key.file_token}-" if self._replace else f"{self._key.file_token}-{self._key.epoch}-"
        found = frozenset(path for path in live if _name(path).startswith(token))
        if found:
            # v1 numbers no files: any of them may be the younger one.
            first = min(live[path].file_sequence_number or 0 for path in found) or -1
            for path, entry in live.items():
                if (entry.file_sequence_number or 0) > first and not _is_appended(metadata, entry):
                    raise self._unknown_rows(f"file {path} is younger than its files and may hold rows of them")
        return found

    def _check_never_rewritten(self, metadata: TableMetadata, live: Mapping[str, ManifestEntry]) -> None:
        """Refuse when a commit of this work could have been there, and be hidden by now."""
        if self._replace:
            raise self._unknown_rows("no live file bears its name")
        for path, entry in live.items():
            if not _is_appended(metadata, entry):
                raise self._unknown_rows(f"file {path} may hold rows of an earlier try")

    def _unknown_rows(self, why: str) -> IncompatibleChangeError:
        return IncompatibleChangeError(
            f"cannot tell which rows of an earlier run of {self._key.work} are in the table: the history of branch "
            f"{self._branch!r} does not reach back to it (snapshots were expired), and {why}; {WAYS_OUT}"
        )

    def _added_by(self, snapshot: Snapshot) -> Iterator[str]:
        for entry in self._entries_of(snapshot, only_added_by=snapshot.snapshot_id):
            if entry.status is EntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file.file_path

    def _own_rows_of(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield the files with rows of this task's own: an overwrite adds files with rows that it carries over, too."""
        if snapshot.operation == "append":
            yield from self._added_by(snapshot)
        else:
            yield from (path for path in self._added_by(snapshot) if APPENDED_FILE.match(_name(path)))

    def _check_gone_for_good(
        self, metadata: TableMetadata, head: Snapshot, missing: set[str], earlier: list[Snapshot]
    ) -> None:
        """Refuse when a file of the earlier run was rewritten: its rows live on in files with rows of others.

        A snapshot that only removes files took the rows with them, and so did one whose new files all bear the name of
        new rows (an overwrite by a task). One that adds other files (compaction, an update by copy-on-write) may have
        carried the rows over, unless it is a run of this same task.
        """
        if not missing:
            return
        own = {snapshot.snapshot_id for snapshot in earlier}
        still_to_come = set(own)
        for snapshot in metadata.ancestors(head.snapshot_id):
            # By their place in the history: v1 gives all snapshots the sequence number 0.
            if not still_to_come:
                return
            still_to_come.discard(snapshot.snapshot_id)
            if snapshot.operation == "append" or snapshot.snapshot_id in own:
                continue
            # Told from the manifests: a summary may leave out what was added.
            if self._removed_by(snapshot) & missing and self._may_carry(snapshot):
                raise self._rewritten(snapshot)

    def _may_carry(self, snapshot: Snapshot) -> bool:
        return any(not APPENDED_FILE.match(_name(path)) for path in self._added_by(snapshot))

    def _rewritten(self, snapshot: Snapshot) -> IncompatibleChangeError:
        who = snapshot.summary.get(OPERATION_KEY) or snapshot.summary.get("engine-name") or "another writer"
        return IncompatibleChangeError(
            f"cannot replace the rows of the earlier run of {self._key.work}: snapshot {snapshot.snapshot_id} "
            f"(operation {snapshot.operation}, by {who}) rewrote its files together with other rows; {WAYS_OUT}"
        )

    def _removed_by(self, snapshot: Snapshot) -> set[str]:
        return {
            entry.data_file.file_path
            for entry in self._entries_of(snapshot, only_added_by=snapshot.snapshot_id)
            if entry.status is EntryStatus.DELETED and entry.snapshot_id == snapshot.snapshot_id
        }

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
    """Whether a file is known to hold rows that came with it, and not rows of older files."""
    if APPENDED_FILE.match(_name(entry.data_file.file_path)):
        return True
    snapshot = None if entry.snapshot_id is None else metadata.snapshot(entry.snapshot_id)
    return snapshot is not None and snapshot.operation == "append"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
