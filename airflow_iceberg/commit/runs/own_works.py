"""The commits of one task in the history of a branch, by all of its writes: those of its earlier runs, and of this one.

An operator makes one write, a function with `task_table` several, each with a name. All writes of one task, in one run
and with one map index, belong together: what one of them has done to the rows of another is not somebody else's change.
Not here: where their rows are now (`rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_iceberg.commit.operation_key import (
    APPENDED_FILE,
    AUDITED_SNAPSHOT_ID,
    EXISTING_FILES,
    Kin,
    OperationKey,
    find_kin,
    find_undone,
    keys_of,
    kin_of,
)
from airflow_iceberg.commit.runs.names import token_of
from airflow_iceberg.commit.runs.removed import Removed
from airflow_iceberg.commit.runs.rows import Refused, has_only_new_rows
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

ON_RERUN_ENTRY = "airflow.on-rerun"
"""Entry of the summary of a write of new rows: what is to happen to them after a clear, as its author has said."""

REPLACED_SNAPSHOTS = "airflow.replaced-snapshots"
"""Entry of a summary: the ids of the snapshots of earlier runs of the task whose rows the commit has replaced, with
commas between."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCommit:
    """A snapshot with work of the task.

    Attributes:
        kin: how its run is related to this one.
        key: its operation key.
    """

    kin: Kin
    key: OperationKey
    snapshot: Snapshot


def find_own(metadata: TableMetadata, key: OperationKey, branch: str) -> Iterator[OwnCommit]:
    """Yield the commits of a task in the history of a branch, by all of its writes, newest first."""
    head = metadata.ref_snapshot(branch)
    for snapshot in () if head is None else metadata.ancestors(head.snapshot_id):
        for text in keys_of(snapshot):
            other = OperationKey.find(text) if text.startswith(f"{key.run}/") else None
            kin = None if other is None else kin_of(replace(key, write=other.write), text, snapshot)
            if other is not None and kin is not None:
                yield OwnCommit(kin=kin, key=other, snapshot=snapshot)


def find_earlier_epochs(metadata: TableMetadata, key: OperationKey, branch: str) -> list[Snapshot]:
    """Return the snapshots of the same work in earlier epochs, newest first; those that were undone have no rows."""
    found = [snapshot for kin, snapshot, _ in find_kin(metadata, key, branch) if kin is Kin.EARLIER]
    head = metadata.ref_snapshot(branch)
    undone = find_undone(metadata.ancestors(head.snapshot_id)) if found and head is not None else {}
    return [snapshot for snapshot in found if snapshot.snapshot_id not in undone]


def replaced_in(snapshot: Snapshot) -> frozenset[int]:
    """Return the ids of the snapshots of earlier runs whose rows a snapshot has replaced."""
    texts = snapshot.summary.get(REPLACED_SNAPSHOTS, "").split(",")
    return frozenset(number for text in texts if (number := whole_number(text)) is not None)


def replaced_entry(snapshot_ids: Collection[int]) -> dict[str, str]:
    """Return the entry of a summary that `replaced_in` reads; none without snapshots."""
    return {REPLACED_SNAPSHOTS: ",".join(map(str, sorted(snapshot_ids)))} if snapshot_ids else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWorks:
    """The commits of a task that are not undone, as a write with its key sees them.

    Attributes:
        history: the snapshots of the branch from the first of these commits on, oldest first.
        earlier: those of earlier runs.
        current: those of this run.
        wanted: the ids of those whose rows the write replaces: earlier ones of the same write, and of all other writes
            that are to be replaced after a clear.
        kept: the ids of those that add existing files, or whose rows are to stay, if they are of other writes.
        undone: the ids of those that would be wanted if they were not undone, and of the snapshots that have undone
            them. The write replaces them as well: nobody is to restore them.
        of_write: the earlier ones of the same write, newest first.
        tokens: the tokens that names of files of these works have.
    """

    history: tuple[Snapshot, ...] = ()
    earlier: Mapping[int, Snapshot]
    current: frozenset[int] = frozenset()
    wanted: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    undone: Mapping[int, int] = field(default_factory=dict)
    of_write: tuple[Snapshot, ...] = ()
    tokens: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, metadata: TableMetadata, key: OperationKey, branch: str, *, removed: Sequence[Removed] = ()
    ) -> OwnWorks:
        """Find the commits in the history of a branch.

        Args:
            removed: commits of other tasks, or indexes, of the run whose rows the write replaces as well.
        """
        found = list(find_own(metadata, key, branch))
        others_of_run = {one.snapshot.snapshot_id for one in removed}
        found += [OwnCommit(kin=Kin.EARLIER, key=one.key, snapshot=one.snapshot) for one in removed]
        head = metadata.ref_snapshot(branch)
        if head is None or not found:
            return cls(earlier={})
        history = list(metadata.ancestors(head.snapshot_id))
        undone = find_undone(history)
        gone = {
            one.snapshot.snapshot_id: undone[one.snapshot.snapshot_id]
            for one in found
            if one.kin is Kin.EARLIER and one.snapshot.snapshot_id in undone
            if one.key.write == key.write or _said(one.snapshot) == "replace"
        }
        found = [one for one in found if one.snapshot.snapshot_id not in undone]
        earlier = {one.snapshot.snapshot_id: one.snapshot for one in found if one.kin is Kin.EARLIER}
        of_write = {
            one.snapshot.snapshot_id: one.snapshot
            for one in found
            if one.kin is Kin.EARLIER and one.key.write == key.write and one.snapshot.snapshot_id not in others_of_run
        }
        others = [s for number, s in earlier.items() if number not in of_write and number not in others_of_run]
        kept = {s.snapshot_id for s in others if EXISTING_FILES in s.summary or _said(s) in ("append", "skip")}
        wanted = {s.snapshot_id for s in others if _said(s) == "replace"} - kept
        ids = {one.snapshot.snapshot_id for one in found}
        oldest = max((at for at, one in enumerate(history) if one.snapshot_id in ids), default=-1)
        return cls(
            history=tuple(reversed(history[: oldest + 1])),
            earlier=earlier,
            current=frozenset(one.snapshot.snapshot_id for one in found if one.kin is Kin.SAME),
            wanted=frozenset(wanted | of_write.keys() | others_of_run),
            kept=frozenset(kept),
            undone=gone,
            of_write=tuple(of_write.values()),
            tokens=frozenset(token for one in found for token in one.key.file_tokens) | set(key.file_tokens),
        )

    def check_undone(self, live: Iterable[ManifestEntry], refused: Refused) -> None:
        """Check that no file is left of the snapshots that summaries call undone: these may be forged.

        Raises:
            IncompatibleChangeError: `refused`; there is one.
        """
        for entry in live:
            by = self.undone.get(entry.snapshot_id or 0)
            if by is not None:
                raise refused(
                    f"snapshot {by} says that it has undone snapshot {entry.snapshot_id}, of which file "
                    f"{entry.data_file.file_path} is still in the table: its summary is forged"
                )

    def has_new_rows(self, snapshot: Snapshot, path: str, refused: Refused) -> bool | None:
        """Whether a file that one of these commits has added holds new rows of the task alone; None: of another work.

        Raises:
            IncompatibleChangeError: `refused`; it was published with the rows of others.
        """
        name = path.rsplit("/", 1)[-1]
        published = keys_of(snapshot, own=False)
        if len(published) < 2 and AUDITED_SNAPSHOT_ID not in snapshot.summary:
            return has_only_new_rows(snapshot) or APPENDED_FILE.match(name) is not None
        if APPENDED_FILE.match(name):
            return True if token_of(path) in self.tokens else None
        if EXISTING_FILES in snapshot.summary and len(published) == 1:
            return True
        raise refused(
            f"snapshot {snapshot.snapshot_id} has published its rows from another branch, and file {path} of it may "
            f"hold rows of others as well"
        )


def _said(snapshot: Snapshot) -> str | None:
    """Return what is to happen to the new rows of a snapshot after a clear; None if it has none, or does not say."""
    return None if keys_of(snapshot, own=False) else snapshot.summary.get(ON_RERUN_ENTRY)


def still_there(metadata: TableMetadata, works: OwnWorks) -> tuple[Snapshot, ...]:
    """Return the earlier commits of the write whose rows no other write has replaced since.

    That of another part of the task, or of another task, may have taken them for rows that nobody writes again.
    """
    replaced = frozenset[int]().union(*(replaced_in(one) for one in works.history))
    return tuple(one for one in works.of_write if one.snapshot_id not in replaced)
