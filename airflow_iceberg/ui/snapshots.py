"""What the pages show of a snapshot, and of properties and summaries.

They are texts of anybody. So each is cut before secrets are looked for in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import Any
from urllib.parse import unquote

from airflow_iceberg.commit.operation_key import DAG_ID
from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.hooks.late_threads import stopper
from airflow_iceberg.inventory.limited import LimitedFileIO
from airflow_iceberg.operations.history.runs import Run, find_runs
from airflow_iceberg.redaction import hide
from airflow_iceberg.scan.counted_files import ChangedFile, changed_files
from airflow_iceberg.table import Table
from airflow_iceberg.ui.render import begun

# How operation keys stand in summaries, also in documents.
_WORDS = re.compile(r"[\s\",\[\]{}]+")
_SLASHES_OF_A_KEY = 4
MOST_FILES = 200
MOST_INPUTS = 20
MOST_PROPERTIES = 300
_MOST_REFS = 200
MOST_DAGS = 50
# Nobody is asked about the DAGs that more than this may name.
_LONGEST_OF_AIRFLOW = 1_000_000
LONGEST_TEXT = 8_192
"""More than is shown of a text, with that in which secrets are looked for."""
_LONGEST_VALUE, _LONGEST_NAME = 100_000, 1_000


class Inputs(dict[str, Any]):
    """What a run has read, as far as it is shown.

    Attributes:
        count: of all.
    """

    count = 0


def shown_run(run: Run) -> Run:
    """Return who made a snapshot, without what is longer than a page shows."""
    inputs = Inputs((name[:LONGEST_TEXT], _cut(value)) for name, value in islice(run.inputs.items(), MOST_INPUTS))
    inputs.count = len(run.inputs)
    texts: dict[str, Any] = {
        name: value[:LONGEST_TEXT]
        for name in ("operation", "dag_id", "run_id", "task_id", "operation_key", "writer")
        if isinstance(value := getattr(run, name), str)
    }
    return replace(run, inputs=inputs, published_operation_key=None, refs=run.refs[:_MOST_REFS], **texts)


def _cut(value: Any) -> Any:
    """Return what is told of an input, without more than is shown."""
    if not isinstance(value, Mapping):
        return None
    shown = (("table", "table"), ("snapshot_id", "snapshot-id"))
    return {name: str(value[stored])[:LONGEST_TEXT] for name, stored in shown if value.get(stored)}


def properties_of(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return names and values, the values without secrets that are told by their names or by what is around them."""
    names = nsmallest(MOST_PROPERTIES, properties)
    return tuple((name[:LONGEST_TEXT], _without_secrets(name, properties[name])) for name in names)


def _without_secrets(name: str, value: str) -> str:
    is_document = value.lstrip()[:1] in ("{", "[")  # in the beginning of one its secrets are not found
    if len(name) > _LONGEST_NAME or len(value) > (LONGEST_TEXT if is_document else _LONGEST_VALUE):
        return f"({len(value):,} characters, not shown)"
    return begun(value, lambda head: str(hide(name, head)))


def named_dags(summary: Mapping[str, str]) -> tuple[str, ...]:
    """Return the DAGs that a summary names: that of its task, and those of the operation keys in what Airflow wrote.

    More than `MOST_DAGS` stand for too many to ask for: what Airflow wrote is then shown to nobody.
    """
    found = {summary[DAG_ID]: None} if DAG_ID in summary else {}
    told = {name: value for name, value in summary.items() if name.startswith("airflow.")}
    if sum(map(len, told.values())) > _LONGEST_OF_AIRFLOW:
        return tuple(map(str, range(MOST_DAGS + 1)))
    for value in told.values():
        words = _WORDS.split(value)
        found |= {unquote(word.partition("/")[0]): None for word in words if word.count("/") >= _SLASHES_OF_A_KEY}
    return tuple(found)[: MOST_DAGS + 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotView:
    """One snapshot: who made it, its summary, and its files.

    Attributes:
        dag_ids: the DAGs that its summary names.
        is_cut: whether it has changed more files than are shown.
        error, problem: why its files could not be read.
    """

    run: Run
    summary: tuple[tuple[str, str], ...]
    dag_ids: tuple[str, ...] = ()
    files: tuple[ChangedFile, ...] = ()
    is_cut: bool = False
    error: str = ""
    problem: IcebergError | None = None


def snapshot_view(table: Table, run: Run, most_files: int = MOST_FILES) -> SnapshotView:
    """Return what is shown of a snapshot."""
    snapshot = table.metadata.snapshot(run.snapshot_id)
    if snapshot is None:
        raise _unknown(table, run.snapshot_id)
    said: dict[str, Any] = {
        "run": run,
        "summary": properties_of(snapshot.summary),
        "dag_ids": named_dags(snapshot.summary),
    }
    try:
        files, is_cut = changed_files(
            table.metadata, LimitedFileIO(table.io, check=stopper()), snapshot, most=most_files
        )
    except IcebergError as error:
        return SnapshotView(**said, error=str(error), problem=error)
    return SnapshotView(**said, files=files, is_cut=is_cut)


def run_of(table: Table, snapshot_id: int) -> Run:
    """Return who made a snapshot.

    Raises:
        NotFoundError: the table has no such snapshot.
    """
    runs = find_runs(table.metadata, snapshot_ids=(snapshot_id,))
    if not runs:
        raise _unknown(table, snapshot_id)
    return shown_run(runs[0])


def _unknown(table: Table, snapshot_id: int) -> NotFoundError:
    return NotFoundError(f"table {table.name} has no snapshot {snapshot_id}; it may have expired")
