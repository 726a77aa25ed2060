"""Rows of a DAG run whose snapshots have expired: what the live files of a branch still tell of them.

The name of a data file with new rows holds a token of the work, its epoch, and a mark that tells run, task and map
index (`runs.marks`). Files that were rewritten have lost all that: they may hold rows of anybody.

Not here: whether the history tells all, so that no file need be asked (`commit.earlier_epochs`, `runs.doubts`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from airflow_iceberg.commit.operation_key import ITEM, OnRerun, OperationKey, is_later
from airflow_iceberg.commit.runs.consumed import all_kept
from airflow_iceberg.commit.runs.marks import Mark, item_digest, task_digest
from airflow_iceberg.commit.runs.names import is_appended, mark_of, parts_of, token_of
from airflow_iceberg.commit.runs.tasks import RunTasks
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import DataFile, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot

WAYS_OUT = (
    "run it with on_rerun='append' if the earlier rows are deleted or to be kept, with on_rerun='skip' to leave the "
    "table as it is, or replace the rows yourself"
)

_WAYS_OUT = (
    "set on_removed='remove' to take these rows out in the same commit, unless they were made from changes of a table, "
    "or on_removed='keep' to leave them; if another map index of the task is to write something else now, clear this "
    "one again when it has; a write_key, which says what each index of a task stands for, holds in any order of the "
    "items"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpiredRows:
    """What the live files of a branch tell of the rows that a work has written.

    Attributes:
        live: the live data files of the branch, by their paths.
        is_own_known: whether the history tells all that the run itself has committed, if not what one of the same id
            has that was deleted before.
    """

    key: OperationKey
    branch: str
    on_rerun: OnRerun
    metadata: TableMetadata
    live: Mapping[str, ManifestEntry]
    is_own_known: bool = False

    def named(self) -> frozenset[str]:
        """Return the files whose names hold the token of this work.

        Raises:
            IncompatibleChangeError: one of them is of a run after a later clear, whose snapshot has expired.
        """
        found: set[str] = set()
        for path in self.live:
            token, epoch, try_number = parts_of(path)
            if token not in self.key.file_tokens:
                continue
            own = self.key.epoch if token == self.key.file_token else self.key.older_epoch
            if epoch != own and is_later(self.key, epoch, try_number, own=own):
                raise IncompatibleChangeError(
                    f"operation {self.key} was superseded: the task was cleared, and its next run has added file "
                    f"{path}; nothing was committed"
                )
            if epoch == own or self.on_rerun != "append":
                found.add(path)
        return frozenset(found)

    def written(self) -> frozenset[str]:
        """Return the files of this work that the write replaces; errors as of `named`."""
        # What the history tells of is known better by it.
        return self._gone(self.named()) if self.is_own_known else self.named()

    def _gone(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of some files whose snapshots are not in the history of the branch any more."""
        head = self.metadata.ref_snapshot(self.branch)
        history = () if head is None else self.metadata.ancestors(head.snapshot_id)
        known = {snapshot.snapshot_id for snapshot in history}
        return frozenset(path for path in paths if self.live[path].snapshot_id not in known)

    # -- refusals ------------------------------------------------------------------------------------------------------

    def check_none_younger(
        self, found: Collection[str], settles: Callable[[DataFile], bool] = lambda file: False
    ) -> None:
        """Refuse if rows of the files that were found by their names may have been rewritten into others since.

        Args:
            settles: as of `removed`.

        Raises:
            IncompatibleChangeError: there is a younger file of which that cannot be told.
        """
        # v1 has no sequence numbers: any file may be the younger one.
        first = min((self.live[path].file_sequence_number or 0 for path in found), default=0) or -1
        for path, entry in self.live.items() if found else ():
            is_younger = (entry.file_sequence_number or 0) > first
            if is_younger and not (settles(entry.data_file) or is_appended(self.metadata, entry)):
                raise self._unknown(f"file {path} is younger than its files and may hold rows of them")

    def check_nothing_lost(self, *, is_cleared: bool = False) -> None:
        """Refuse when no file is named like one of this work, and a commit of it may have been there all the same.

        Raises:
            IncompatibleChangeError: the task was cleared, or a file may hold rows of an earlier try.
        """
        if self.is_own_known:
            return
        if is_cleared:
            raise self._unknown("no live file has its name")
        for path, entry in self.live.items():
            if not is_appended(self.metadata, entry):
                raise self._unknown(f"file {path} may hold rows of an earlier try")

    def doubt_of_a_deleted_run(self, settles: Callable[[DataFile], bool]) -> str | None:
        """Return why a run of this id that was deleted may have written rows which cannot be seen any more, if it may.

        Nothing says that there was such a run: each backfill of a table that is maintained comes here, and so does each
        run whose id tells no time. So none is refused.
        """
        doubtful = self._rewritten(settles) if self.is_own_known and self.key.on_removed != "keep" else None
        if doubtful is None:
            return None
        return (
            f"cannot tell whether a run with the id {self.key.run_id!r} was there before, and was deleted: its rows "
            f"may be in file {doubtful}, since the history of branch {self.branch!r} does not reach back to its "
            f"beginning (snapshots were expired); if there was one, they are in the table beside those of this run"
        )

    def check_no_other_try(self, *, is_first: bool) -> None:
        """Refuse a first try that its task has given up: a later try has committed while it ran, and has expired.

        A later try replaces what it finds by its name.

        Raises:
            IncompatibleChangeError: there is a file of another try, or of a later epoch.
        """
        for path in sorted(self.named()):
            _, epoch, try_number = parts_of(path)
            if is_first and epoch == self.key.epoch and try_number > 1:
                raise IncompatibleChangeError(
                    f"operation {self.key} was superseded: try {try_number} of the same task has added file {path}; "
                    f"nothing was committed"
                )

    def _unknown(self, why: str) -> IncompatibleChangeError:
        own = "; a key of your own tells more with started_ms, the start of the work"
        no_start = "" if self.key.started_ms else own
        return IncompatibleChangeError(
            f"cannot tell which rows of an earlier run of {self.key.work} are in the table: the history of branch "
            f"{self.branch!r} does not reach back to it (snapshots were expired), and {why}; {WAYS_OUT}{no_start}"
        )

    # -- the items of a mapped task ------------------------------------------------------------------------------------

    def check_same_item(self, named: Collection[str]) -> None:
        """Refuse to skip if this index has written, under its name, something else than what it stands for now.

        Raises:
            IncompatibleChangeError: it has.
        """
        key, items = self.key, {mark.item for path in named if (mark := mark_of(path)) is not None}
        if None not in {key.mark.item, *items} and items and key.mark.item not in items:
            raise IncompatibleChangeError(
                f"map index {key.map_index} of task {key.dag_id}.{key.task_id} was expanded with other values when it "
                f"added file {sorted(named)[0]}, and on_rerun is 'skip', so that those of today would not be written; "
                f"nothing was committed; give the task a write_key, or set on_rerun='replace'"
            )

    # -- rows that no task will write again ----------------------------------------------------------------------------

    def removed(
        self,
        earlier: Collection[Snapshot],
        removes: Callable[[DataFile], bool],
        *,
        settles: Callable[[DataFile], bool],
    ) -> frozenset[str]:
        """Return the files of the run that no task of it will write again, and that the write is to take out.

        The rules are those of `runs.removed`, for files whose snapshots are gone.

        Args:
            earlier: the commits of this work that are in the history.
            removes: whether the write removes a file in any case.
            settles: whether no row of a file can be there twice after the write.

        Raises:
            IncompatibleChangeError: there are some, and nobody has said what is to become of them.
        """
        key, run = self.key, self.key.mark.run
        if key.run_tasks is None or key.on_removed == "keep" or self.on_rerun == "append":
            return frozenset()
        marks = {path: mark for path in self.live if (mark := mark_of(path)) is not None and mark.run == run}
        others = self._gone([path for path in marks if token_of(path) not in key.file_tokens])
        siblings = _Siblings(key, key.run_tasks, marks, earlier)
        found = {
            path: why
            for path in sorted(others)
            if (why := siblings.why(path)) is not None and not removes(self.live[path].data_file)
        }
        changes = self._tasks_that_read_changes() if found else frozenset()
        for path, why in found.items():
            if key.on_removed != "remove" or marks[path].task in changes:
                raise IncompatibleChangeError(
                    f"file {path} holds rows of this DAG run that no task will write again (its snapshot has expired): "
                    f"{why}; the rows of operation {key} may be the same; nothing was committed; {_WAYS_OUT}"
                )
        doubtful = self._rewritten(settles) if siblings.is_changed else None
        if doubtful is not None:
            raise IncompatibleChangeError(
                f"map index {key.map_index} of task {key.dag_id}.{key.task_id} was expanded with other values before, "
                f"and file {doubtful} may hold rows of another index that stood for those of now: it was rewritten, or "
                f"is of another program, and its snapshot has expired; nothing was committed; set on_removed='keep' if "
                f"there are none, or if they are to stay; a write_key says what each index stands for in any order"
            )
        return frozenset(found)

    def _rewritten(self, settles: Callable[[DataFile], bool]) -> str | None:
        """Return a file that may hold rows of anybody; None if there is none but those that the write settles."""
        return next(
            (
                path
                for path, entry in self.live.items()
                if not (settles(entry.data_file) or is_appended(self.metadata, entry))
            ),
            None,
        )

    def _tasks_that_read_changes(self) -> frozenset[str]:
        """Return the digests of tasks that have read changes of tables: nobody would read these again."""
        works = (str(entry.get("work")) for _, inputs in all_kept(self.metadata) for entry in inputs.values())
        keys = (OperationKey.find(f"{work}/0") for work in works)
        return frozenset(key.mark.task for key in keys if key is not None)


class _Siblings:
    """Why files of a run are of work that none of its tasks will do again.

    Args:
        marks: those of all files of the run.
        earlier: as of `ExpiredRows.removed`.
    """

    def __init__(
        self, key: OperationKey, tasks: RunTasks, marks: Mapping[str, Mark], earlier: Collection[Snapshot]
    ) -> None:
        self._key, self._own, self._tasks, self._marks, self._earlier = key, key.mark, tasks, marks, earlier

    def why(self, path: str) -> str | None:
        """Return why no task will write the rows of a file again; None if one may."""
        key, mark, own, epoch = self._key, self._marks[path], self._own, parts_of(path)[1]
        if mark.task != own.task:
            return self._why_of_other(mark)
        if mark.index == own.index >= 0 or epoch > key.epoch:
            return None
        if mark.is_by_key != own.is_by_key:
            is_of_now = epoch == key.epoch or self._writes_both
            return None if is_of_now else f"the task has {'a' if own.is_by_key else 'no'} write_key now"
        if own.is_by_key:
            # Which keys the other indexes have now is not known.
            is_other = key.map_index < 0 and key.write is None and epoch < key.epoch
            return f"the task's write_key is {key.write_key!r} now" if is_other else None
        if (mark.index < 0) != (own.index < 0):
            return f"the task is {'not mapped' if own.index < 0 else 'mapped'} now"
        if own.index < 0:
            return None
        if epoch < key.epoch and self._has_moved(mark):
            return f"what map index {mark.index} stood for is map index {own.index} now"
        if self._indexes is not None and mark.index not in self._indexes:
            return f"the task has no map index {mark.index} in this run any more"
        return None

    def _why_of_other(self, mark: Mark) -> str | None:
        is_mapped = self._mapped.get(mark.task)
        if is_mapped is None:
            return "the DAG has no such task any more"
        if not mark.is_by_key and is_mapped != (mark.index >= 0):
            return f"its task is {'mapped' if is_mapped else 'not mapped'} now"
        return None

    def _has_moved(self, mark: Mark) -> bool:
        """Whether another index has written before what this one stands for now, and this one something else."""
        own = self._own
        if own.item is None or mark.item != own.item:
            return False
        alike = {one.index for one in self._marks.values() if one.task == own.task and one.item == own.item}
        if not self._own_items and len(alike) > 1:
            return False  # several indexes stand for the same, and so may this one that has not written yet
        return own.item not in self._own_items

    @cached_property
    def is_changed(self) -> bool:
        """Whether this index is known to have stood for something else, and never for what it stands for now."""
        known = self._own_items - {None}
        return self._own.item is not None and bool(known) and self._own.item not in known

    @cached_property
    def _own_items(self) -> frozenset[str | None]:
        """The digests of what this index has written, as far as it is known; None for writes that do not say."""
        own, said = self._own, (snapshot.summary.get(ITEM) for snapshot in self._earlier)
        of_files = (one.item for one in self._marks.values() if (one.task, one.index) == (own.task, own.index))
        return frozenset([*of_files, *(None if item is None else item_digest(item) for item in said)])

    @cached_property
    def _mapped(self) -> Mapping[str, bool]:
        """Whether each task of the DAG is mapped, by its digest."""
        return {task_digest(self._key.dag_id, one): is_mapped for one, is_mapped in self._tasks.tasks().items()}

    @cached_property
    def _indexes(self) -> Collection[int] | None:
        """The indexes of the task, of which Airflow is asked once; None if it does not say."""
        return self._tasks.indexes()

    @cached_property
    def _writes_both(self) -> bool:
        """Whether the task's function writes with a write_key and without one, by the files of one epoch."""
        kinds: dict[int, set[bool]] = {}
        for path, mark in self._marks.items():
            if mark.task == self._own.task and self._key.write is not None:
                kinds.setdefault(parts_of(path)[1], set()).add(mark.is_by_key)
        return any(len(kind) > 1 for kind in kinds.values())
