"""The earlier runs of a cleared task: which of their files does the commit of a later epoch replace?

All rows that the earlier epoch committed are deleted in the commit that adds the new rows, wherever they are now
(`runs.rows`). If that is not known (they were compacted together with others, or the history has expired), the commit
is rejected, so that no row is added twice. A retry asks the same: the commit of an earlier try may have expired, and
then its rows are replaced, too. So does a first try whose run may have been there before, and was deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from airflow_iceberg.commit.attempts.kept import Kept
from airflow_iceberg.commit.conflicts import ChangedFiles, describe
from airflow_iceberg.commit.operation_key import Kin, OnRerun, OperationKey
from airflow_iceberg.commit.runs.consumed import entries_of
from airflow_iceberg.commit.runs.doubts import history_tells_all
from airflow_iceberg.commit.runs.expired import WAYS_OUT, ExpiredRows
from airflow_iceberg.commit.runs.names import name_of
from airflow_iceberg.commit.runs.own_works import (
    ON_RERUN_ENTRY,
    OwnWorks,
    find_own,
    replaced_entry,
    replaced_in,
    still_there,
)
from airflow_iceberg.commit.runs.removed import Removed, find_removed, ways_out
from airflow_iceberg.commit.runs.replaced import MarkedRows, MarkRows, Replaced
from airflow_iceberg.commit.runs.rows import Refused, Run, RunRows, check_row_ids, find_rows_of, without
from airflow_iceberg.commit.write_result import CARRIED_ROWS
from airflow_iceberg.errors import IncompatibleChangeError, NotFoundError, StalePlanError
from airflow_iceberg.format.manifests.entries import DataFile, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

NO_SNAPSHOT = -1
"""The head of a branch that has no snapshot: no snapshot has this id."""


def check_no_later_epoch(metadata: TableMetadata, key: OperationKey, branch: str) -> None:
    """Refuse the commit of a process that outlived its task: a run after a later clear has committed already.

    Raises:
        IncompatibleChangeError: the branch holds a later epoch of the same work.
    """
    for own in find_own(metadata, key, branch):
        if own.kin is Kin.LATER:
            raise IncompatibleChangeError(
                f"operation {key} was superseded: the task was cleared, and its next run has committed snapshot "
                f"{own.snapshot.snapshot_id} (operation {own.key}); nothing was committed"
            )


class EarlierEpochs:
    """Finds the live data files that earlier epochs of one task added to a branch.

    The branch's snapshots tell, as long as they are kept; after their expiry the file names do, which hold the token of
    the task and its epoch. Each manifest is read once over all attempts, and none for the first try of a task that was
    never cleared, if the history reaches back to when a run with this id can have begun.

    Args:
        try_number: the task's try; from the second on, a commit of an earlier try may have been expired. None if any
            call may be the second one.
        on_rerun: "replace" the rows of earlier epochs, "append" to them, or "skip" the work.
        since: the head of the branch when the work began, or NO_SNAPSHOT; None if it is not known.
        has_expired: whether a commit of the work is known to have expired, whatever its key says of clears.
        planned: the table when the work began: the history may lose what was there then while a job runs.
        replaces_its_like: whether the write replaces all rows that are like its own, as an overwrite does whose filter
            its rows have to satisfy: none of them can be there twice.
        mark: marks rows in files with other rows; without it a commit is refused that needs this.
    """

    def __init__(
        self,
        io: FileIO,
        key: OperationKey,
        branch: str,
        *,
        try_number: int | None,
        on_rerun: OnRerun = "replace",
        since: int | None = None,
        has_expired: bool = False,
        planned: TableMetadata | None = None,
        replaces_its_like: bool = False,
        mark: MarkRows | None = None,
    ) -> None:
        self._io = io
        self.mark = mark
        self._files = ChangedFiles(io)
        self._key, self._branch, self._on_rerun = key, branch, on_rerun
        self._since = since
        self._has_expired = has_expired
        self._planned = planned
        self._replaces_its_like = replaces_its_like
        self._has_told = False
        # What has left the history is asked for only then: it takes reading all manifests.
        self._is_cleared = on_rerun != "append" and key.may_be_cleared
        self._may_have_expired = try_number != 1 or self._is_cleared
        # By the row of the manifest, from which entries inherit.
        self._entries: Kept[tuple[ManifestEntry, ...]] = Kept()
        self._found: tuple[str, str] | None = None

    def log_replaced(self, table: str, branch: str) -> None:
        """Log which rows the commit has replaced, as the last call of `replaced` found them.

        Args:
            table: the table's location.
        """
        if self._found is not None:
            gone = ", or of work that is not in the DAG any more" if self._key.on_removed == "remove" else ""
            log.info(
                "%s, branch %s: the task was cleared, so its new rows replaced those of its earlier run%s: %s, %s",
                *(table, branch, gone, *self._found),
            )

    def replaced(
        self,
        metadata: TableMetadata,
        *,
        removes: Callable[[DataFile], bool] = lambda file: False,
        rewrites: Callable[[DataFile], bool] = lambda file: False,
    ) -> Replaced:
        """Return what the new rows replace; nothing when no earlier epoch has committed.

        Args:
            removes: whether the commit removes a file in any case, without carrying rows of earlier epochs over.
            rewrites: whether it removes a file, and its new files may hold such rows.

        Raises:
            IncompatibleChangeError: the rows of the earlier epoch cannot be told from other rows.
            StalePlanError: an earlier epoch has committed meanwhile, and the work is to be skipped then.
        """
        self._found = None
        check_no_later_epoch(metadata, self._key, self._branch)
        head = metadata.ref_snapshot(self._branch)
        said = {ON_RERUN_ENTRY: self._on_rerun}
        if head is None:
            return Replaced(properties=said)
        works = OwnWorks(earlier={})
        if self._on_rerun != "append":
            works = OwnWorks.of(metadata, self._key, self._branch, removed=self._removed(metadata, head, removes))
        if self._on_rerun == "skip" and (there := still_there(metadata, works)):
            raise StalePlanError(
                f"an earlier run of {self._key.work} has committed snapshot {there[0].snapshot_id} meanwhile, and "
                f"on_rerun is 'skip'; nothing was committed"
            )
        is_told = self._is_told(metadata, head)
        if self._has_gap(metadata, head):
            self._expired(metadata, head).check_no_other_try(is_first=not self._may_have_expired)
        if works.undone:
            works.check_undone(self._live(head).values(), self._refused)
        if is_told and not works.wanted:
            return Replaced(properties=said | replaced_entry(works.undone))
        live = self._live(head)
        rows = self._rows_of(metadata, works, head) if works.wanted else RunRows()
        named = frozenset() if is_told else self._by_name(metadata, head, works, removes)
        marked = self._marked(metadata, without(rows, lambda entry: removes(entry.data_file)), rewrites)
        paths = named.union(entry.data_file.file_path for entry in rows.files)
        self._remember([live[path] for path in paths], marked.row_count, works, rows)
        ids = rows.snapshots.union(works.undone)
        return Replaced(paths=paths, marked=marked, properties=said | replaced_entry(ids))

    def check_removed(self, metadata: TableMetadata) -> None:
        """Check that no rows of the run are there that no task of it will write again, if nothing is said of them; nor
        any of a deleted run of its id that cannot be told from others.

        Raises:
            IncompatibleChangeError: there are some, or may be.
        """
        head = metadata.ref_snapshot(self._branch)
        if head is not None and self._on_rerun != "append":
            self._removed(metadata, head)
            # Before a job of hours. A run whose id is a name asks at its commit alone: each would read all manifests.
            is_late = bool(self._key.earliest_ms) and self._on_rerun != "skip"
            if is_late and self._knows_all(metadata, head) and self._may_be_again(metadata):
                works = OwnWorks.of(metadata, self._key, self._branch)
                self._has_told = True  # by the commit
                with suppress(NotFoundError):  # expired since it was loaded: the commit asks again, on a newer state
                    self._by_name(metadata, head, works, lambda file: False)

    def _removed(
        self, metadata: TableMetadata, head: Snapshot, removes: Callable[[DataFile], bool] = lambda file: False
    ) -> tuple[Removed, ...]:
        """Return the commits of the run that no task will make again, and whose rows this write takes out."""
        if self._key.on_removed == "keep":
            return ()
        found = find_removed(metadata, self._key, self._branch, skips=self._on_rerun == "skip")
        out = found if self._key.on_removed == "remove" else ()
        # Nobody would read again the changes that such rows were made from.
        out = tuple(one for one in out if not entries_of(metadata, one.snapshot))
        found = tuple(one for one in found if one not in out)
        if not found:
            return out

        def refused(why: str) -> IncompatibleChangeError:
            first = found[0]
            return IncompatibleChangeError(
                f"snapshot {first.snapshot.snapshot_id} holds rows of this DAG run that no task will write again "
                f"(operation {first.key}): {first.why}; the rows of operation {self._key} may be the same{why}; "
                f"nothing was committed; {ways_out(self._key, first)}"
            )

        works = OwnWorks.of(metadata, self._key, self._branch, removed=found)
        ids = frozenset(one.snapshot.snapshot_id for one in found)
        rows = self._rows_of(metadata, replace(works, wanted=ids), head, lambda why: refused(f", and {why}"))
        if any(not removes(entry.data_file) for entry in (*rows.files, *(one.entry for one in rows.carriers))):
            raise refused("")
        return out

    def _rows_of(
        self, metadata: TableMetadata, works: OwnWorks, head: Snapshot, refused: Refused | None = None
    ) -> RunRows:
        """Return where the rows are that earlier epochs have written, by this write and by others of the task."""
        refused = refused or self._refused

        def taken_out(snapshot: Snapshot) -> frozenset[int]:
            # Older versions did not say; they have replaced whatever was there.
            is_old = ON_RERUN_ENTRY not in snapshot.summary and CARRIED_ROWS in snapshot.summary
            return frozenset(works.earlier) if is_old else replaced_in(snapshot)

        run = Run(
            history=works.history,
            own=works.earlier,
            wanted=works.wanted,
            kept=works.kept,
            current=works.current,
            replaced_in=taken_out,
            has_new_rows=lambda snapshot, path: works.has_new_rows(snapshot, path, refused),
        )
        live = [entry for entry in self._entries_of(head) if entry.is_live]
        return find_rows_of(self._files, metadata, run, live, refused)

    def _marked(self, metadata: TableMetadata, rows: RunRows, rewrites: Callable[[DataFile], bool]) -> MarkedRows:
        if not rows.carriers:
            return MarkedRows()
        check_row_ids(metadata, rows, self._refused)
        if self.mark is None:
            by = describe(rows.carriers[0].snapshot)
            raise self._refused(f"{by} rewrote its files together with other rows, which are not read here")
        marked = self.mark(metadata, rows, self._refused)
        data_files = marked.data_files
        for carrier in rows.carriers:
            if rewrites(carrier.entry.data_file) and carrier.entry.data_file.file_path in data_files:
                raise self._refused(
                    f"{describe(carrier.snapshot)} has written some of them into file "
                    f"{carrier.entry.data_file.file_path}, which this change rewrites as well"
                )
        return marked

    def _refused(self, why: str) -> IncompatibleChangeError:
        return IncompatibleChangeError(
            f"cannot replace the rows of the earlier run of {self._key.work}: {why}; nothing was committed; {WAYS_OUT}"
        )

    def expired(self, metadata: TableMetadata) -> list[DataFile]:
        """Return the live files of this work whose snapshots have expired, for work that is skipped if it was done.

        Raises:
            IncompatibleChangeError: it cannot be told whether there was one.
        """
        head = metadata.ref_snapshot(self._branch)
        if head is None or self._is_told(metadata, head):
            return []
        expired = self._expired(metadata, head)
        named = expired.written()
        if not named:
            expired.check_nothing_lost(is_cleared=self._is_cleared)
        elif self._on_rerun == "skip":
            expired.check_same_item(named)
        return [expired.live[path].data_file for path in sorted(named)]

    def changed_before(self, metadata: TableMetadata) -> list[DataFile]:
        """Return the live files of another try of this epoch whose snapshot has expired, for work that changes rows,
        and that would not have the same effect a second time.

        Raises:
            IncompatibleChangeError: it cannot be told whether an earlier try has committed.
        """
        head = metadata.ref_snapshot(self._branch)
        if head is None or not (self._may_have_expired or self._has_gap(metadata, head)):
            return []
        if self._history_tells_all(metadata, head):
            return []
        live = self._live(head)
        start = f"carried-{self._key.file_token}-{self._key.epoch}-"
        found = [live[path].data_file for path in sorted(live) if name_of(path).startswith(start)]
        # A first try is the only one, but for a task that is given up while it runs.
        if not found and self._may_have_expired:
            raise IncompatibleChangeError(
                f"cannot tell whether an earlier try of {self._key.work} has changed the table: the history of branch "
                f"{self._branch!r} does not reach back to it (snapshots were expired), and no live file has its name; "
                f"look at the rows, and run it in a new DAG run if they are not changed; keep snapshots longer than a "
                f"task with its retries takes"
            )
        return found

    def _live(self, head: Snapshot) -> dict[str, ManifestEntry]:
        return {entry.data_file.file_path: entry for entry in self._entries_of(head) if entry.is_live}

    def _remember(self, files: list[ManifestEntry], marked: int, works: OwnWorks, rows: RunRows) -> None:
        """Keep what the log is to tell, if the commit lands."""
        if not (files or marked or works.of_write):
            return
        records = marked + sum(entry.data_file.record_count for entry in files)
        earlier = [number for number in works.earlier if number in rows.snapshots]
        ids = ", ".join(map(str, earlier))
        others = f" and {_counted(marked, 'row')} in files with other rows" if marked else ""
        self._found = (
            f"{_counted(records - marked, 'row')} in {_counted(len(files), 'data file')}{others}",
            f"committed in snapshot {ids}" if ids else "committed in a snapshot that has expired",
        )

    def _knows_all(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether all commits of this work are in the branch's history."""
        return not self._has_expired and (not self._may_have_expired or self._history_tells_all(metadata, head))

    def _is_told(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether all commits of this work, and of runs with its id that were deleted, are in the branch's history."""
        return self._knows_all(metadata, head) and not self._may_be_again(metadata)

    def _may_be_again(self, metadata: TableMetadata) -> bool:
        """Whether a run with the same id, which was deleted, may have made commits that have left the history."""
        if self._on_rerun == "append" or self._key.earliest_ms is None:
            return False
        head = metadata.ref_snapshot(self._branch)
        if self._planned is not None and self._branch in self._planned.refs:
            now = {snapshot.snapshot_id for snapshot in metadata.ancestors(head.snapshot_id)} if head else set()
            if not OwnWorks.of(self._planned, self._key, self._branch).wanted <= now:
                return True  # its commits were in the history when the work began, and have expired since
            metadata, head = self._planned, self._planned.ref_snapshot(self._branch)
        return head is not None and not history_tells_all(metadata, head, self._key.earliest_ms or None)

    def _history_tells_all(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether no commit of this work can have left the branch's history by expiry."""
        # Tries of this epoch began after the run was started, earlier epochs after the run could begin.
        after = self._key.run_after_ms if self._is_cleared else self._key.started_ms
        return history_tells_all(metadata, head, after)

    def _has_gap(self, metadata: TableMetadata, head: Snapshot) -> bool:
        """Whether commits since the work began may have left the history: one of a later epoch, too."""
        if self._since is None:
            return False
        history = list(metadata.ancestors(head.snapshot_id))
        is_known = any(snapshot.snapshot_id == self._since for snapshot in history)
        return not is_known and history[-1].parent_snapshot_id is not None

    # -- the names of files --------------------------------------------------------------------------------------------

    def _expired(self, metadata: TableMetadata, head: Snapshot) -> ExpiredRows:
        return ExpiredRows(
            key=self._key,
            branch=self._branch,
            on_rerun=self._on_rerun,
            metadata=metadata,
            live=self._live(head),
            is_own_known=self._knows_all(metadata, head),
        )

    def _by_name(
        self, metadata: TableMetadata, head: Snapshot, works: OwnWorks, removes: Callable[[DataFile], bool]
    ) -> frozenset[str]:
        """Return the live files that go, by their names, if no other file can hold rows of them."""
        expired = self._expired(metadata, head)
        settles = (lambda file: True) if self._replaces_its_like else removes
        removed = expired.removed(works.of_write, removes, settles=settles)
        named = expired.written()
        if not (named or works.of_write):
            expired.check_nothing_lost(is_cleared=self._is_cleared)
            self._tell(expired.doubt_of_a_deleted_run(settles))
        # A clear may have another filter: only a first try knows that its like is what it wrote.
        expired.check_none_younger(named | removed, settles if self._knows_all(metadata, head) else removes)
        return named | removed

    def _tell(self, doubt: str | None) -> None:
        """Log a doubt once over all attempts; without a warning for a run whose id is a name, since each has it."""
        if doubt is not None and not self._has_told:
            self._has_told = True
            log.log(logging.WARNING if self._key.earliest_ms else logging.INFO, "%s", doubt)

    def _entries_of(self, snapshot: Snapshot) -> Iterator[ManifestEntry]:
        for manifest in read_manifests(self._io, snapshot):
            if manifest.content is ManifestContent.DATA:
                yield from self._entries.of(manifest, make=partial(self._read, manifest))

    def _read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        return tuple(read_entries(self._io, manifest))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
