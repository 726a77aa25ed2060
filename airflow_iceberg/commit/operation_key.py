"""Who makes a commit: the key that a task leaves in the summary of its snapshot, and how to find it again.

The summary of a snapshot is the only place that is written in the same atomic step as the data. So the question "did
this task commit already?" is put to the table, never to Airflow's database. What is done about the answer (reuse,
replace, refuse) lives in `commit.earlier_runs`; this module imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal
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

OnRerun = Literal["replace", "append", "skip"]
ON_RERUN: tuple[OnRerun, ...] = ("replace", "append", "skip")

# Names of data files with new rows of a task, see `OperationKey.file_prefix`.
APPENDED_FILE = re.compile(r"[0-9a-f]{12}-\d+-\d+-[0-9a-f]{12}-")

# Entries that tell Iceberg's publish_changes what is to be published and what was.
_STAGED = ("wap.id", "published-wap-id", "source-snapshot-id")

# Characters of run ids that stay readable; a slash would make two different keys look alike.
_SAFE = ":+@ ,;=()[]"


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationKey:
    """One piece of work of one DAG run, the same over all automatic retries of its task.

    Attributes:
        map_index: index of a mapped task, -1 for a task that is not mapped.
        epoch: how often a person cleared the task; `ti.max_tries - task.retries`.
        run_after_ms: when the DAG run could have begun at the earliest, where known; it tells how far back the history
            of a table has to reach to know all that the run committed. Not part of the key.
        started_ms: when the DAG run began (again, after a clear), where known; no try of this epoch is older. Not part
            of the key.
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
        """The key without its epoch: what is the same before and after a person clears the task."""
        names = (quote(part, safe=_SAFE) for part in (self.dag_id, self.run_id, self.task_id))
        return "/".join((*names, str(self.map_index)))

    @property
    def file_token(self) -> str:
        """Twelve hexadecimal digits that stand for `work` in the names of data files."""
        return hashlib.sha256(self.work.encode()).hexdigest()[:12]

    def file_prefix(self, try_number: int, unique: str) -> str:
        """Return how the names of the data files of one try begin: they tell whose they are when no snapshot does.

        Args:
            unique: twelve random hexadecimal digits.
        """
        return f"{self.file_token}-{self.epoch}-{try_number}-{unique}"

    def carried_prefix(self, try_number: int, unique: str) -> str:
        """Return how the names of files begin whose rows were carried over from files that they replace.

        After a clear such files stay: their rows are not this task's.

        Args:
            unique: as for `file_prefix`.
        """
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
        """Return the entries that a commit of this operation adds to its snapshot's summary."""
        return {
            OPERATION_KEY: str(self),
            DAG_ID: self.dag_id,
            RUN_ID: self.run_id,
            TASK_ID: self.task_id,
            MAP_INDEX: str(self.map_index),
            TRY_NUMBER: str(try_number),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteResult:
    """What a write did, or found done.

    Attributes:
        snapshot_id: the snapshot that holds the rows; None when nothing was ever committed.
        operation: the snapshot's operation; None when there is no snapshot.
        outcome: `committed` by this call, `found` (an earlier try committed it), `skipped` (a run before the task was
            cleared committed it, and the caller asked for nothing more), or `empty` (no rows, nothing committed).
    """

    table: str
    branch: str
    outcome: Literal["committed", "found", "skipped", "empty"]
    snapshot_id: int | None = None
    operation: str | None = None
    added_data_files: int = 0
    added_records: int = 0
    added_files_size_bytes: int = 0
    deleted_data_files: int = 0
    deleted_records: int = 0
    operation_key: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values, see `xcom_of`."""
        return xcom_of(self)


def xcom_of(result: Any) -> dict[str, Any]:
    """Return the fields of a result as plain values, and whether this very try has done the work.

    The snapshot id is text, since JavaScript rounds integers above 2**53.

    Args:
        result: with the fields `outcome` and, if it has one, `snapshot_id`.
    """
    found = {item.name: getattr(result, item.name) for item in fields(result)}
    if found.get("snapshot_id") is not None:
        found["snapshot_id"] = str(found["snapshot_id"])
    return {**found, "done_by_this_try": result.outcome == "committed"}


def result_of(
    snapshot: Snapshot, *, table: str, branch: str, outcome: Literal["committed", "found", "skipped"]
) -> WriteResult:
    """Describe a snapshot that holds the work, from its own summary."""

    def count(name: str) -> int:
        return int(snapshot.summary.get(name, "0"))

    return WriteResult(
        table=table,
        branch=branch,
        outcome=outcome,
        snapshot_id=snapshot.snapshot_id,
        operation=snapshot.operation,
        added_data_files=count("added-data-files"),
        added_records=count("added-records"),
        added_files_size_bytes=count("added-files-size"),
        deleted_data_files=count("deleted-data-files"),
        deleted_records=count("deleted-records"),
        operation_key=snapshot.summary.get(OPERATION_KEY),
    )


def find_landed(metadata: TableMetadata, key: OperationKey, branch: str) -> Snapshot | None:
    """Return the snapshot in the history of `branch` that carries exactly this key.

    A snapshot that was rolled back is not in the branch's history: its rows are not in the table, so the work is
    not done.
    """
    text = str(key)
    return next((s for s in _history(metadata, branch) if s.summary.get(OPERATION_KEY) == text), None)


def find_other_epochs(metadata: TableMetadata, key: OperationKey, branch: str) -> list[tuple[int, Snapshot]]:
    """Return (epoch, snapshot) of the same work before and after other clears, newest first."""
    prefix = key.work + "/"
    found = []
    for snapshot in _history(metadata, branch):
        text = snapshot.summary.get(OPERATION_KEY, "")
        if text.startswith(prefix) and text != str(key):
            found.append((OperationKey.parse(text).epoch, snapshot))
    return found


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = metadata.ref_snapshot(branch)
    return iter(()) if head is None else metadata.ancestors(head.snapshot_id)


def check_properties(properties: Mapping[str, str], *, own: Sequence[str] = ()) -> None:
    """Refuse snapshot properties that would overwrite what the engine itself writes.

    Args:
        own: further names, which an operation writes itself.
    Raises:
        InvalidInputError: a name is reserved or a value is not text.
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
                f"made here; write to a branch of the table, look at it there, and bring main forward to it"
            )
        if not isinstance(value, str):
            raise InvalidInputError(f"snapshot property {name!r}: expected text, got {type(value).__name__}")
