"""The operation key: what identifies a task's work, and which snapshots of a table hold it.

The summary of a snapshot is the only place that is written in the same atomic step as the data. So whether a task has
committed is read from the table, never from Airflow's database. What follows from it (reuse, replace, refuse) is
decided in `commit.earlier_epochs`; what Airflow tells of a task, in `hooks.task_key`. Nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

from airflow_iceberg.commit.runs.marks import MARK, Mark, item_digest, run_digest, task_digest
from airflow_iceberg.errors import InvalidInputError, came, check_storable
from airflow_iceberg.format.values.digits import whole_number

if TYPE_CHECKING:
    from airflow_iceberg.commit.runs.tasks import RunTasks
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot

OPERATION_KEY = "airflow.operation-key"
DAG_ID = "airflow.dag-id"
RUN_ID = "airflow.run-id"
TASK_ID = "airflow.task-id"
MAP_INDEX = "airflow.map-index"
TRY_NUMBER = "airflow.try-number"
WRITE = "airflow.write"
# In a snapshot of a mapped task: a digest of what its index stands for, see `OperationKey.item`.
ITEM = "airflow.map-item"
# In a snapshot that publishes others: the keys of the tasks that wrote the rows, one a line.
PUBLISHED_OPERATION_KEY = "airflow.published-operation-key"
# In a snapshot with the changes of one that was audited on another branch: the id of that one.
AUDITED_SNAPSHOT_ID = "airflow.audited-snapshot-id"

# In the snapshot of an undo: the ids of the snapshots whose changes it has taken back, with commas between; and the
# operation keys of what it has undone, as a JSON list.
UNDONE_SNAPSHOTS = "airflow.undone-snapshots"
UNDONE_KEYS = "airflow.undone-operation-keys"
# In a snapshot that added existing files, whose names tell nothing of their task: all of them hold new rows.
EXISTING_FILES = "airflow.existing-files"

CREATED_BY = "airflow.created-by"
"""The table property that identifies the task that created the table: its key without the epoch, once without the
installation."""

OnRerun = Literal["replace", "append", "skip"]
ON_RERUN: tuple[OnRerun, ...] = ("replace", "append", "skip")
OnRemoved = Literal["keep", "remove"]
ON_REMOVED: tuple[OnRemoved, ...] = ("keep", "remove")

# Names of data files with new rows of a task; see `OperationKey.file_prefix`. Older versions wrote no mark. An object
# store whose paths have no partitions has a hash first.
APPENDED_FILE = re.compile(
    r"(?:[01]{8}-)?(?P<token>[0-9a-f]{12})-(?P<epoch>[0-9]{1,40})-(?P<try>[0-9]{1,20})-[0-9a-f]{12}-"
    rf"(?:{MARK}-)?"
)

# The clocks of schedulers, workers and other writers may differ by this much: a snapshot whose time is before the start
# of a run by more than it was committed before the run.
CLOCKS_DIFFER_MS = 10 * 60 * 1000

# The digits of an epoch that hold the run's number of clears, and those that hold the task's number of tries.
PARTS = 10_000
# What the place of the map index begins with in a key with a `write_key`.
_BY_AUTHOR = "="
_LONGEST = {"write": 100, "write_key": 500}

# Entries by which Iceberg's publish_changes knows staged and published snapshots.
SOURCE_SNAPSHOT_ID = "source-snapshot-id"
"""Entry of the summary of a cherry-pick: the snapshot whose files it has."""
_STAGED = ("wap.id", "published-wap-id", SOURCE_SNAPSHOT_ID)

# Characters of run ids that stay readable; a slash would make two different keys look alike.
_SAFE = ":+@ ,;=()[]"


def epoch_of(*, started_us: int, clear_number: int, max_tries: int) -> int:
    """Return a number that is the same for all automatic retries of a task, and greater after a clear.

    It does not depend on the task's `retries`, which a DAG author may change between two tries.

    Args:
        started_us: the start of the DAG run in microseconds, which a run has anew after it is deleted and created
            again; 0 if unknown.
        clear_number: the number of times that tasks of the run were cleared.
        max_tries: the number of the task's last try, which a clear of the task changes.
    """
    clears, tries = (min(max(part, 0), PARTS - 1) for part in (clear_number, max_tries))
    return (max(started_us, 0) * PARTS + clears) * PARTS + tries


class Kin(Enum):
    """How another commit of a task is related to the work of this try."""

    SAME = "same"
    """The same work, of an earlier try."""
    EARLIER = "earlier"
    """The work before a person cleared the task, or before the run was deleted and created again."""
    LATER = "later"
    """The work after a clear that this process has outlived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationKey:
    """The work of one task in one DAG run; the same for all automatic retries.

    Attributes:
        map_index: the index of a mapped task, -1 for other tasks.
        epoch: greater each time that the work is to be done again: 0, 1, 2 …, or the number of `epoch_of`.
        installation: the id of the Airflow installation; None for keys of other programs, and of older versions.
        write: the name of one of several writes of a task, which is work of its own; None for the work of an operator.
        write_key: what the author calls the part of the task's work that this is, a file or a region; it stands in the
            key instead of the map index.
        try_number: the number of the task's try, if known; it grows over all clears of a run.
        is_cleared: whether an earlier epoch may have committed; None: if the epoch is not 0.
        run_after_ms: the earliest possible start of the DAG run, if known: the history of a table that reaches back to
            it has all commits of the run.
        started_ms: the start of the DAG run (the last one, after a clear), if known: all tries of this epoch are newer.
        earliest_ms: a time before all commits of any run with this id, also of one that was deleted before this one was
            created; 0 if its id tells none; None: no other run has had the id.
        older_epoch: the epoch in the first form of this key, which had no installation: `max_tries - retries`.
        item: a digest of the values that this index of a mapped task was expanded with.
        on_removed: what becomes of rows of the run that no task of it will write again: "keep" or "remove" them; None:
            a write that meets some is refused.
        run_tasks: what tells which tasks the run has; None if nothing does, as outside of Airflow.

    The attributes after `write_key` are not part of the key.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    epoch: int = 0
    installation: str | None = None
    write: str | None = None
    write_key: str | None = None
    try_number: int | None = field(default=None, compare=False)
    is_cleared: bool | None = field(default=None, compare=False)
    run_after_ms: int | None = field(default=None, compare=False)
    started_ms: int | None = field(default=None, compare=False)
    earliest_ms: int | None = field(default=None, compare=False)
    older_epoch: int | None = field(default=None, compare=False)
    item: str | None = field(default=None, compare=False)
    on_removed: OnRemoved | None = field(default=None, compare=False)
    run_tasks: RunTasks | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_storable("of a task", {"dag_id": self.dag_id, "run_id": self.run_id, "task_id": self.task_id})
        if self.epoch < 0 or self.map_index < -1 or self.installation == "":
            raise InvalidInputError(
                f"operation key of task {self.dag_id}.{self.task_id}: expected epoch >= 0, map index >= -1 and an "
                f"installation that is not empty, got {self.epoch}, {self.map_index} and {self.installation!r}"
            )
        if self.on_removed not in (None, *ON_REMOVED):
            raise InvalidInputError(f"unknown on_removed {self.on_removed!r}; one of {', '.join(ON_REMOVED)}")
        for what, name in (("write", self.write), ("write_key", self.write_key)):
            if name is not None and not (name.strip() and name.isprintable() and len(name) <= _LONGEST[what]):
                raise InvalidInputError(
                    f"the {what} of task {self.dag_id}.{self.task_id} is named {name!r}, expected a name of at most "
                    f"{_LONGEST[what]} characters"
                )

    def __str__(self) -> str:
        return f"{self.work}/{self.epoch}"

    @property
    def run(self) -> str:
        """The DAG and its run, with which all keys of the run begin, whatever the installation."""
        return f"{quote(self.dag_id, safe=_SAFE)}/{quote(self.run_id, safe=_SAFE)}"

    @property
    def task(self) -> str:
        """The task in its run, whatever the installation: `work` in the first form of the key."""
        write = "" if self.write is None else f"#{quote(self.write, safe=_SAFE)}"
        return f"{self.run}/{quote(self.task_id, safe=_SAFE)}{write}/{self.part}"

    @property
    def part(self) -> str:
        """The part of a mapped task: its map index, or what the author calls it."""
        return str(self.map_index) if self.write_key is None else _BY_AUTHOR + quote(self.write_key, safe=_SAFE)

    @property
    def work(self) -> str:
        """The key without its epoch: it does not change when a person clears the task."""
        if self.installation is None:
            return self.task
        return f"{self.run}/{quote(self.installation, safe=_SAFE)}{self.task.removeprefix(self.run)}"

    @property
    def may_be_cleared(self) -> bool:
        """Whether an earlier epoch of the same run may have committed."""
        return self.epoch > 0 if self.is_cleared is None else self.is_cleared

    @property
    def file_token(self) -> str:
        """Twelve hexadecimal digits that stand for `work` in names of data files."""
        return hashlib.sha256(self.work.encode()).hexdigest()[:12]

    @property
    def file_tokens(self) -> tuple[str, ...]:
        """The tokens by which files of this work are known: also the one that older versions wrote."""
        older = hashlib.sha256(self.task.encode()).hexdigest()[:12]
        return (self.file_token,) if self.older_epoch is None else (self.file_token, older)

    @property
    def mark(self) -> Mark:
        """What names of data files tell of this work, besides the token."""
        by_index = self.write_key is None and self.map_index >= 0
        return Mark(
            run=run_digest(self.run, self.installation),
            task=task_digest(self.dag_id, self.task_id),
            index=self.map_index if by_index else -1,
            item=item_digest(self.item) if by_index and self.item is not None else None,
            is_by_key=self.write_key is not None,
        )

    def file_prefix(self, try_number: int, unique: str) -> str:
        """Return how the names of one try's data files begin, which tell of its work after the snapshot has expired.

        Args:
            unique: twelve random hexadecimal digits.
        """
        return f"{self.file_token}-{self.epoch}-{try_number}-{unique}-{self.mark}"

    def carried_prefix(self, try_number: int, unique: str) -> str:
        """Return the beginning of the names of files with carried rows, which a later clear does not remove."""
        return f"carried-{self.file_prefix(try_number, unique)}"

    @classmethod
    def parse(cls, text: str) -> OperationKey:
        """Read a key from a snapshot's summary.

        Raises:
            InvalidInputError: the text is not an operation key.
        """
        parts = text.split("/")
        installation = unquote(parts.pop(2)) if len(parts) == 6 else None
        try:
            dag_id, run_id, task, part, epoch = parts
            task_id, is_named, write = task.partition("#")
            return cls(
                installation=installation,
                dag_id=unquote(dag_id),
                run_id=unquote(run_id),
                task_id=unquote(task_id),
                write=unquote(write) if is_named else None,
                map_index=-1 if part.startswith(_BY_AUTHOR) else int(part),
                write_key=unquote(part.removeprefix(_BY_AUTHOR)) if part.startswith(_BY_AUTHOR) else None,
                epoch=int(epoch),
            )
        except ValueError as error:
            raise InvalidInputError(
                f"not an operation key: {text!r}, expected dag/run/installation/task/map index/epoch"
            ) from error

    @classmethod
    def find(cls, text: str) -> OperationKey | None:
        """Return the key that a text is; None for one of another writer."""
        try:
            return cls.parse(text)
        except InvalidInputError:
            return None

    def summary(self, try_number: int) -> dict[str, str]:
        """Return the entries of this key in the summary of a snapshot."""
        return {
            OPERATION_KEY: str(self),
            DAG_ID: self.dag_id,
            RUN_ID: self.run_id,
            TASK_ID: self.task_id,
            MAP_INDEX: str(self.map_index),
            TRY_NUMBER: str(try_number),
            **({} if self.write is None else {WRITE: self.write}),
            **({} if self.item is None else {ITEM: self.item}),
        }


def kin_of(key: OperationKey, text: str, snapshot: Snapshot) -> Kin | None:
    """Return how the work of a key in a snapshot's summary is related to that of `key`; None: it is other work."""
    other = OperationKey.find(text) if text.startswith(f"{key.run}/") else None
    if other is None or other.task != key.task:
        return None
    if other.installation == key.installation:
        return _kin_of_epoch(key, other.epoch, key.epoch, snapshot)
    if other.installation is None and key.older_epoch is not None:
        # The older version's key says nothing of the run: a commit before the start is of another epoch, or run.
        if key.started_ms is not None and snapshot.timestamp_ms < key.started_ms - CLOCKS_DIFFER_MS:
            return Kin.EARLIER
        return _kin_of_epoch(key, other.epoch, key.older_epoch, snapshot)
    # Workers of one installation may be configured differently. No two runs start in the same microsecond.
    return Kin.SAME if has_same_start(key, other.epoch) else None


def has_same_start(key: OperationKey, epoch: int | None) -> bool:
    """Whether an epoch is that of a key, and holds the start of a run to the microsecond."""
    return epoch == key.epoch and key.epoch // PARTS**2 % 1_000_000 > 0


def _kin_of_epoch(key: OperationKey, epoch: int, own: int, snapshot: Snapshot) -> Kin:
    if epoch == own:
        return Kin.SAME
    # An index of another item counts its own tries.
    is_same_index = snapshot.summary.get(MAP_INDEX) == str(key.map_index)
    try_number = whole_number(snapshot.summary.get(TRY_NUMBER, "")) if is_same_index else None
    return Kin.LATER if is_later(key, epoch, try_number, own=own) else Kin.EARLIER


def is_later(key: OperationKey, epoch: int, try_number: int | None, *, own: int | None = None) -> bool:
    """Whether another epoch of the same work began after that of `key`.

    Args:
        try_number: a try of the other epoch.
        own: the epoch of `key` if it is not its own: that of an older version.
    """
    own = key.epoch if own is None else own
    run, own_run = epoch // PARTS, own // PARTS
    # `max_tries` becomes smaller if a DAG author reduces the retries; the number of the try only grows.
    if run == own_run and try_number and key.try_number and try_number != key.try_number:
        return try_number > key.try_number
    return epoch > own


def find_landed(metadata: TableMetadata, key: OperationKey, branch: str) -> Snapshot | None:
    """Return the snapshot in the history of `branch` that holds this work; None also if it was rolled back."""
    return next(find_all_landed(metadata, key, branch), None)


def find_all_landed(metadata: TableMetadata, key: OperationKey, branch: str) -> Iterator[Snapshot]:
    """Yield all snapshots in the history of `branch` that hold this work, newest first."""
    return (snapshot for kin, snapshot, _ in find_kin(metadata, key, branch) if kin is Kin.SAME)


def find_kin(metadata: TableMetadata, key: OperationKey, branch: str) -> Iterator[tuple[Kin, Snapshot, str]]:
    """Yield the snapshots of this work, in this epoch and in others, and their keys, newest first."""
    for snapshot in _history(metadata, branch):
        for text in keys_of(snapshot):
            kin = kin_of(key, text, snapshot)
            if kin is not None:
                yield kin, snapshot, text


def keys_of(snapshot: Snapshot, *, own: bool = True) -> list[str]:
    """Return the keys of the works whose rows a snapshot has brought to its branch: its own, and the published ones."""
    names = (OPERATION_KEY, PUBLISHED_OPERATION_KEY) if own else (PUBLISHED_OPERATION_KEY,)
    return [text for name in names for text in snapshot.summary.get(name, "").split("\n") if text]


def undone_in(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the ids of the snapshots that a snapshot has undone; none unless it is an undo."""
    texts = snapshot.summary.get(UNDONE_SNAPSHOTS, "").split(",")
    return tuple(number for text in texts if (number := whole_number(text)) is not None)


def find_undone(history: Iterable[Snapshot]) -> dict[int, int]:
    """Return the snapshots that are undone, and by which snapshot; an undo that was undone itself counts no more.

    Args:
        history: snapshots, newest first.
    """
    found: dict[int, int] = {}
    for snapshot in history:
        if snapshot.snapshot_id not in found:
            found |= dict.fromkeys(undone_in(snapshot), snapshot.snapshot_id)
    return found


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = metadata.ref_snapshot(branch)
    return iter(()) if head is None else metadata.ancestors(head.snapshot_id)


def check_properties(properties: Mapping[str, str], *, own: Sequence[str] = ()) -> None:
    """Refuse snapshot properties that a commit writes itself.

    Args:
        own: further names, which the operation writes itself.
    Raises:
        InvalidInputError: a name is reserved, or a value is not text.
    """
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"snapshot_properties are {properties!r}, expected names and texts")
    for name, value in properties.items():
        if not isinstance(name, str):
            raise InvalidInputError(f"snapshot property {name!r}: expected a name as text, got {type(name).__name__}")
        if name.startswith("airflow.") or name in ("operation", *own):
            raise InvalidInputError(f"snapshot property {name!r} is written by the commit itself; choose another name")
        if name in _STAGED:
            raise InvalidInputError(
                f"snapshot property {name!r} marks snapshots that were staged to be published later, which are not "
                f"made here; set branch to write to a branch of the table instead (Table.create_branch creates one)"
            )
        if not isinstance(value, str):
            raise InvalidInputError(f"snapshot property {name!r}: expected text, got {came(value)}")
