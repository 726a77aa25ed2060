"""The operation key: what identifies a task's work, and how its commit is found again.

The summary of a snapshot is the only place that is written in the same atomic step as the data. So whether a task has
committed is read from the table, never from Airflow's database. What follows from it (reuse, replace, refuse) is
decided in `commit.earlier_epochs`. This module imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

from airflow_iceberg.errors import InvalidInputError

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot

OPERATION_KEY = "airflow.operation-key"
DAG_ID = "airflow.dag-id"
RUN_ID = "airflow.run-id"
TASK_ID = "airflow.task-id"
MAP_INDEX = "airflow.map-index"
TRY_NUMBER = "airflow.try-number"
# In a snapshot that publishes another one: the key of the task that wrote the rows.
PUBLISHED_OPERATION_KEY = "airflow.published-operation-key"

OnRerun = Literal["replace", "append", "skip"]
ON_RERUN: tuple[OnRerun, ...] = ("replace", "append", "skip")

# Names of data files with new rows of a task; see `OperationKey.file_prefix`.
APPENDED_FILE = re.compile(r"[0-9a-f]{12}-\d+-\d+-[0-9a-f]{12}-")

# Entries by which Iceberg's publish_changes knows staged and published snapshots.
_STAGED = ("wap.id", "published-wap-id", "source-snapshot-id")

# Characters of run ids that stay readable; a slash would make two different keys look alike.
_SAFE = ":+@ ,;=()[]"


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationKey:
    """The work of one task in one DAG run; the same for all automatic retries.

    Attributes:
        map_index: the index of a mapped task, -1 for other tasks.
        epoch: the number of times that a person has cleared the task; `ti.max_tries - task.retries`.
        run_after_ms: the earliest possible start of the DAG run, if known: the history of a table that reaches back to
            it has all commits of the run. Not part of the key.
        started_ms: the start of the DAG run (the last one, after a clear), if known: all tries of this epoch are newer.
            Not part of the key.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    epoch: int = 0
    run_after_ms: int | None = None
    started_ms: int | None = None

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.map_index < -1:
            raise InvalidInputError(
                f"operation key of task {self.dag_id}.{self.task_id}: expected epoch >= 0 and map index >= -1, "
                f"got {self.epoch} and {self.map_index}"
            )

    def __str__(self) -> str:
        return f"{self.work}/{self.epoch}"

    @property
    def work(self) -> str:
        """The key without its epoch: it does not change when a person clears the task."""
        names = (quote(part, safe=_SAFE) for part in (self.dag_id, self.run_id, self.task_id))
        return "/".join((*names, str(self.map_index)))

    @property
    def file_token(self) -> str:
        """Twelve hexadecimal digits that stand for `work` in names of data files."""
        return hashlib.sha256(self.work.encode()).hexdigest()[:12]

    def file_prefix(self, try_number: int, unique: str) -> str:
        """Return the beginning of the names of one try's data files, which tells their task after the snapshot has
        expired.

        Args:
            unique: twelve random hexadecimal digits.
        """
        return f"{self.file_token}-{self.epoch}-{try_number}-{unique}"

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
        try:
            dag_id, run_id, task_id, map_index, epoch = parts
            return cls(
                dag_id=unquote(dag_id),
                run_id=unquote(run_id),
                task_id=unquote(task_id),
                map_index=int(map_index),
                epoch=int(epoch),
            )
        except ValueError as error:
            raise InvalidInputError(f"not an operation key: {text!r}, expected dag/run/task/map index/epoch") from error

    def summary(self, try_number: int) -> dict[str, str]:
        """Return the entries of this key in the summary of a snapshot."""
        return {
            OPERATION_KEY: str(self),
            DAG_ID: self.dag_id,
            RUN_ID: self.run_id,
            TASK_ID: self.task_id,
            MAP_INDEX: str(self.map_index),
            TRY_NUMBER: str(try_number),
        }


def find_landed(metadata: TableMetadata, key: OperationKey, branch: str) -> Snapshot | None:
    """Return the snapshot in the history of `branch` that has exactly this key; None also if it was rolled back."""
    return next(find_all_landed(metadata, key, branch), None)


def find_all_landed(metadata: TableMetadata, key: OperationKey, branch: str) -> Iterator[Snapshot]:
    """Yield all snapshots in the history of `branch` that have exactly this key, newest first."""
    text = str(key)
    return (snapshot for snapshot in _history(metadata, branch) if text in keys_of(snapshot))


def find_other_epochs(metadata: TableMetadata, key: OperationKey, branch: str) -> list[tuple[int, Snapshot]]:
    """Return (epoch, snapshot) of the same work under other clear epochs, newest first."""
    prefix = key.work + "/"
    texts = ((text, snapshot) for snapshot in _history(metadata, branch) for text in keys_of(snapshot))
    return [
        (OperationKey.parse(text).epoch, snapshot)
        for text, snapshot in texts
        if text.startswith(prefix) and text != str(key)
    ]


def keys_of(snapshot: Snapshot) -> list[str]:
    """Return the keys of the works whose rows a snapshot has brought to its branch: its own, and the published one."""
    found = (snapshot.summary.get(name) for name in (OPERATION_KEY, PUBLISHED_OPERATION_KEY))
    return [text for text in found if text is not None]


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
            raise InvalidInputError(f"snapshot property {name!r}: expected text, got {type(value).__name__}")
