"""Where the rows of a run are now: the one answer on which a clear replaces them, and an undo takes them back.

The snapshots of a branch are read in their order, from the first one of the run on, by what their manifests say that
they have added and removed; summaries are not asked where manifests tell. Each file that may hold rows of the run is
followed:

======================================  ================================================================================
new files of the run                    hold its rows, and no others
rewritten by the run's own task         (a merge after an append, a compaction of these files alone) hold only its rows,
                                        if all that was rewritten or marked as deleted was of this kind
rewritten by anybody else, or together  may hold rows of the run beside others: found by row ids (version 3), or it is
with other rows                         refused
files of new rows, by their names       hold no rows of the run, whatever was removed with them
deletes                                 have taken rows away, and brought none
======================================  ================================================================================

Not here: which snapshots are of a run (`earlier_epochs`, `operations.history.targets`), and reading rows by their ids
(`operations.history.lineage`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_iceberg.commit.conflicts import ChangedFiles, describe
from airflow_iceberg.commit.operation_key import APPENDED_FILE, EXISTING_FILES, undone_in
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import EntryStatus, FileContent, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.deletes import DeleteIndex, referenced_file

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES

Refused = Callable[[str], IncompatibleChangeError]
"""Makes the error that says why the rows are not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Whose rows are looked for.

    Attributes:
        history: the snapshots of the branch from the first one of the task on, oldest first.
        own: the ids of the snapshots of the task's earlier runs.
        wanted: those of them whose new rows are looked for.
        kept: those of them whose rows are to stay.
        current: the ids of the snapshots that the task has committed since, which count on what is there now.
        replaced_in: the ids of the snapshots of the task whose rows one of its later snapshots has replaced: it has
            carried none of them; None if it does not say.
        has_new_rows: whether a file that one of the task's snapshots has added, by its path, holds new rows alone; None
            if it is a file of another work.
    """

    history: Sequence[Snapshot]
    own: Collection[int]
    wanted: Collection[int]
    kept: Collection[int] = frozenset()
    current: Collection[int] = frozenset()
    replaced_in: Callable[[Snapshot], Collection[int]] = lambda _: frozenset()
    has_new_rows: Callable[[Snapshot, str], bool | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Carrier:
    """A live file that may hold rows of the run beside others, and the snapshot that has written it."""

    snapshot: Snapshot
    entry: ManifestEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRows:
    """Where the rows of a run are.

    Attributes:
        files: live files that hold rows of the run, and no others.
        carriers: live files that may hold some beside others.
        written: all files that the run has written, live or not: their row ids are those of its rows.
        snapshots: the ids of the snapshots whose rows these are: the wanted ones, and those of other writes of the task
            whose rows are in the same files.
    """

    files: tuple[ManifestEntry, ...] = ()
    carriers: tuple[Carrier, ...] = ()
    written: tuple[ManifestEntry, ...] = ()
    snapshots: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Followed:
    """A file that may hold rows of the task.

    Attributes:
        by: the snapshot that has added it.
        sources: the snapshots of the task whose rows it may hold.
        is_pure: whether it holds no other rows.
        unclear: the snapshot of the task's present run that has changed its rows.
    """

    entry: ManifestEntry
    by: Snapshot
    sources: frozenset[int]
    is_pure: bool = True
    unclear: Snapshot | None = None


def find_rows_of(
    files: ChangedFiles, metadata: TableMetadata, run: Run, live: Collection[ManifestEntry], refused: Refused
) -> RunRows:
    """Return where the rows of a run are.

    Args:
        live: the live data files of the branch.

    Raises:
        IncompatibleChangeError: `refused`; it is not known where they are, or whose they are.
    """
    follower = _Follower(files=files, metadata=metadata, run=run, refused=refused)
    for snapshot in run.history:
        follower.follow(snapshot)
    return follower.found(live)


def may_hold_rows_of(files: ChangedFiles, metadata: TableMetadata, run: Run, refused: Refused) -> frozenset[str]:
    """Return the paths of all files that have ever held rows of the run, or may have held some.

    Raises:
        IncompatibleChangeError: `refused`; it is not known which.
    """
    follower = _Follower(files=files, metadata=metadata, run=run, refused=refused)
    for snapshot in run.history:
        follower.follow(snapshot)
    return frozenset(path for path, one in follower.known.items() if one.sources.intersection(run.wanted))


def check_row_ids(metadata: TableMetadata, rows: RunRows, refused: Refused) -> None:
    """Check that the rows of the run can be found in files with other rows.

    Raises:
        IncompatibleChangeError: `refused`; the table, or a file of the run, has no row ids.
    """
    if not rows.carriers:
        return
    by = describe(rows.carriers[0].snapshot)
    if metadata.format_version < 3:
        raise refused(
            f"{by} rewrote its files together with other rows, or may have written rows of the run into other files "
            f"with new values ({rows.carriers[0].entry.data_file.file_path}), and rows are found again by their row "
            f"ids only in format version 3"
        )
    without = [entry for entry in rows.written if entry.data_file.first_row_id is None]
    if without:
        raise refused(
            f"{by} may have written rows of the run into other files, and file {without[0].data_file.file_path} had no "
            f"row ids, as it was written before the table's upgrade to version 3"
        )


def is_new_file(snapshot: Snapshot, path: str) -> bool:
    """Whether a file that a snapshot has added is known to hold new rows, and no rows of older files.

    Not an overwrite by a program that is no task: it may have read the rows that it writes.
    """
    return has_only_new_rows(snapshot) or APPENDED_FILE.match(path.rsplit("/", 1)[-1]) is not None


def may_carry_rows(snapshot: Snapshot, added: Iterable[str]) -> bool:
    """Whether the new files of a snapshot may hold rows of older files: by a compaction, or an update.

    Args:
        added: the paths of its new files, from the manifests: a summary may leave out what was added.
    """
    return any(not is_new_file(snapshot, path) for path in added)


def has_only_new_rows(snapshot: Snapshot) -> bool:
    """Whether all files that a snapshot has added hold new rows."""
    return snapshot.operation == "append" or EXISTING_FILES in snapshot.summary


@dataclass(kw_only=True, slots=True)
class _Follower:
    """What is known of the files of a task, up to a snapshot."""

    files: ChangedFiles
    metadata: TableMetadata
    run: Run
    refused: Refused
    known: dict[str, _Followed] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def follow(self, snapshot: Snapshot) -> None:
        """Take the changes of the next snapshot into account."""
        added = list(self.files.of(snapshot, EntryStatus.ADDED, _DATA))
        removed = {entry.data_file.file_path: entry for entry in self.files.of(snapshot, EntryStatus.DELETED, _DATA)}
        deletes = list(self.files.of(snapshot, EntryStatus.ADDED, _DELETES))
        is_own = snapshot.snapshot_id in self.run.own
        # Whoever deletes by key adds rows with new values as new ones.
        by_key = any(entry.data_file.content is FileContent.EQUALITY_DELETES for entry in deletes)
        carried, new = list[ManifestEntry](), list[ManifestEntry]()
        for entry in added:
            (carried if by_key or self._may_carry(snapshot, entry, is_own=is_own) else new).append(entry)
        if carried and (self.known or is_own):
            self._carry(snapshot, carried, removed, deletes)
        self.gone |= removed.keys() & self.known.keys()
        for entry in new:
            self._add(snapshot, entry, is_own=is_own)

    def _may_carry(self, snapshot: Snapshot, entry: ManifestEntry, *, is_own: bool) -> bool:
        path = entry.data_file.file_path
        if undone_in(snapshot) and (path in self.known or _is_restored(snapshot, entry)):
            return False
        return self.run.has_new_rows(snapshot, path) is False if is_own else not is_new_file(snapshot, path)

    def _add(self, snapshot: Snapshot, entry: ManifestEntry, *, is_own: bool) -> None:
        """Add a file of new rows, or one that is there again."""
        path = entry.data_file.file_path
        if undone_in(snapshot) and path in self.known:
            self.gone.discard(path)
        elif is_own and self.run.has_new_rows(snapshot, path):
            # What a later run of the task has added again is in its entry.
            self._check_once(snapshot, path)
            self.known[path] = _Followed(entry=entry, by=snapshot, sources=frozenset({snapshot.snapshot_id}))
            self.gone.discard(path)
        elif path in self.known:
            self._check_once(snapshot, path)
            del self.known[path]

    def _check_once(self, snapshot: Snapshot, path: str) -> None:
        if path in self.known and path not in self.gone:
            raise self.refused(
                f"file {path} of the run was added to the table once more, by other work ({describe(snapshot)})"
            )

    def _carry(
        self,
        snapshot: Snapshot,
        carried: Sequence[ManifestEntry],
        removed: Mapping[str, ManifestEntry],
        deletes: Sequence[ManifestEntry],
    ) -> None:
        """Take files into account that may hold rows of older ones."""
        touched = [one for path, one in self.known.items() if path in removed and path not in self.gone]
        touched += self._marked(snapshot, deletes, removed)
        is_own = snapshot.snapshot_id in self.run.own
        if is_own or snapshot.snapshot_id in self.run.current:
            replaced = self.run.replaced_in(snapshot)
            touched = [one for one in touched if not one.sources.issubset(replaced)]
        if not (touched or is_own):
            return
        is_pure = self._is_alone(removed, deletes) and (is_own or _only_moves(snapshot, carried, removed.values()))
        sources = frozenset[int]().union(*(one.sources for one in touched))
        if is_own and is_pure and snapshot.operation != "replace":
            sources |= {snapshot.snapshot_id}
        if not sources:
            return
        unclear = next((one.unclear for one in touched if one.unclear is not None), None)
        if snapshot.snapshot_id in self.run.current and snapshot.operation != "replace":
            unclear = unclear or snapshot
        for entry in carried:
            followed = _Followed(entry=entry, by=snapshot, sources=sources, is_pure=is_pure, unclear=unclear)
            self._check_once(snapshot, entry.data_file.file_path)
            self.known[entry.data_file.file_path] = followed
            self.gone.discard(entry.data_file.file_path)

    def _marked(
        self, snapshot: Snapshot, deletes: Sequence[ManifestEntry], removed: Collection[str]
    ) -> Iterable[_Followed]:
        """Return the files of which a snapshot has deleted rows, which may be in its own files with new values."""
        index = DeleteIndex(deletes, metadata=self.metadata) if deletes else None
        found = []
        for path, one in self.known.items() if index else ():
            applied = index.of(one.entry) if index and path not in self.gone and path not in removed else ()
            for delete in applied:
                if delete.content is FileContent.EQUALITY_DELETES:
                    raise self.refused(
                        f"{describe(snapshot)} has added the equality deletes {delete.file_path} together with new "
                        f"rows: these may be rows of the run with new values, which have new row ids"
                    )
            if applied:
                found.append(one)
        return found

    def _is_alone(self, removed: Collection[str], deletes: Iterable[ManifestEntry]) -> bool:
        """Whether all rows that were rewritten, or marked as deleted, are surely rows of the task."""
        paths = (*removed, *(referenced_file(delete.data_file) for delete in deletes))
        return all(path in self.known and self.known[path].is_pure and path not in self.gone for path in paths)

    # -- the answer ----------------------------------------------------------------------------------------------------

    def found(self, live: Collection[ManifestEntry]) -> RunRows:
        """Return where the rows are, among the files of the branch as it is now."""
        there = {entry.data_file.file_path: entry for entry in live}
        self._check_single(live)
        now = {path: one for path, one in self.known.items() if path in there}
        wanted = self._together(now.values())
        mine = {path: one for path, one in self.known.items() if one.sources & wanted}
        for path, one in mine.items():
            if path not in there and path not in self.gone:
                raise self.refused(
                    f"file {path} of {describe(one.by)} is not in the table, and no snapshot says that it has removed "
                    f"it, so that it is not known where its rows are"
                )
            if one.unclear is not None and path in there:
                raise self.refused(
                    f"{describe(one.unclear)}, which this run of the task has committed, has changed rows of the "
                    f"earlier run, so that they cannot be replaced without it; write in the order of the earlier run"
                )
        whole = {path for path, one in mine.items() if self._is_whole(one)}
        return RunRows(
            files=tuple(there[path] for path in mine if path in whole and path in there),
            carriers=tuple(
                Carrier(snapshot=one.by, entry=there[path])
                for path, one in mine.items()
                if path not in whole and path in there
            ),
            written=tuple(one.entry for path, one in mine.items() if one.is_pure and one.sources <= wanted),
            snapshots=wanted,
        )

    def _is_whole(self, one: _Followed) -> bool:
        return one.is_pure and one.sources.isdisjoint(self.run.kept)

    def _together(self, now: Collection[_Followed]) -> frozenset[int]:
        """Return the wanted snapshots, and those whose rows are in the same files as theirs: these go together."""
        wanted = frozenset(self.run.wanted)
        while True:
            more = wanted.union(*(one.sources for one in now if self._is_whole(one) and one.sources & wanted))
            if more == wanted:
                return wanted
            wanted = more

    def _check_single(self, live: Iterable[ManifestEntry]) -> None:
        """Check that no file of the task is listed twice: files are removed by their paths, with the rows of both."""
        for path, count in Counter(e.data_file.file_path for e in live if e.data_file.file_path in self.known).items():
            if count > 1:
                raise self.refused(f"file {path} of the run was added to the table once more, by other work")


def _is_restored(snapshot: Snapshot, entry: ManifestEntry) -> bool:
    """Whether an undo has added a file as it was before: with its old number. Version 1 has none."""
    return 0 < (entry.sequence_number or 0) < (snapshot.sequence_number or 0)


def _only_moves(snapshot: Snapshot, added: Iterable[ManifestEntry], removed: Iterable[ManifestEntry]) -> bool:
    """Whether a snapshot is a compaction: its new files hold rows of those that it has removed, and no others."""
    rows = [sum(entry.data_file.record_count for entry in entries) for entries in (added, removed)]
    return snapshot.operation == "replace" and rows[0] <= rows[1]


def grouped(carriers: Iterable[Carrier]) -> tuple[tuple[Snapshot, frozenset[str]], ...]:
    """Return the snapshots that have written the carriers, and their files."""
    by_id: dict[int, tuple[Snapshot, set[str]]] = {}
    for carrier in carriers:
        found = by_id.setdefault(carrier.snapshot.snapshot_id, (carrier.snapshot, set()))
        found[1].add(carrier.entry.data_file.file_path)
    return tuple((snapshot, frozenset(paths)) for snapshot, paths in by_id.values())


def without(rows: RunRows, is_gone: Callable[[ManifestEntry], bool]) -> RunRows:
    """Return the rows without the carriers that the change removes as a whole, whatever they hold."""
    return replace(rows, carriers=tuple(one for one in rows.carriers if not is_gone(one.entry)))
