"""Runs: which DAG run, task and try made which snapshot, what it added and removed, and what it read.

All of it stands in the summaries of the snapshots, so that only the table's metadata is read. Other writers fill
summaries, too: what they leave out is None or 0 here, and what is no number counts as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from airflow_iceberg.commit.operation_key import (
    DAG_ID,
    MAP_INDEX,
    OPERATION_KEY,
    PUBLISHED_OPERATION_KEY,
    RUN_ID,
    TASK_ID,
    TRY_NUMBER,
    find_undone,
    undone_in,
)
from airflow_iceberg.commit.write_result import RowCounts, count_of, inputs_of
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.values.digits import whole_number

_IDS = ("snapshot_id", "parent_snapshot_id", "undone_by")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A snapshot, and the task that made it.

    Attributes:
        dag_id, run_id, task_id, map_index, try_number, operation_key: the task; None if no task of Airflow made it.
        published_operation_key: in a snapshot that publishes another one, the key of the task that wrote the rows.
        writer: the program that made the snapshot, if it says so.
        refs: the branches and tags whose head it is.
        is_in_main: whether it is in the history of main.
        added_records, updated_records, deleted_records: rows that are new, that got new values, and that are gone. A
            compaction has none.
        inputs: what was read: catalog, table, uuid and snapshot (as text) by the name of the input.
        undone_by: the snapshot that has undone this one, on any branch.
        undoes: the snapshots that this one has undone.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    committed_at_ms: int
    operation: str
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
    operation_key: str | None = None
    published_operation_key: str | None = None
    writer: str | None = None
    refs: tuple[str, ...] = ()
    is_in_main: bool = False
    added_records: int = 0
    updated_records: int = 0
    deleted_records: int = 0
    added_data_files: int = 0
    deleted_data_files: int = 0
    added_delete_files: int = 0
    removed_delete_files: int = 0
    inputs: Mapping[str, Any] = field(default_factory=dict)
    undone_by: int | None = None
    undoes: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; snapshot ids are texts, since JavaScript rounds integers above 2**53."""
        plain = {**asdict(self), "refs": list(self.refs), "undoes": [str(one) for one in self.undoes]}
        return {**plain, **{name: str(plain[name]) for name in _IDS if plain[name] is not None}}


def find_runs(
    metadata: TableMetadata,
    *,
    branch: str | None = None,
    dag_id: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    snapshot_ids: Collection[int] | None = None,
    skip: int = 0,
    most: int | None = None,
) -> tuple[Run, ...]:
    """Return who made the snapshots of a table, newest first.

    Args:
        branch: only the history of this branch or tag; None: all snapshots that the table has.
        dag_id, run_id, task_id: only the snapshots of this DAG, run or task.
        snapshot_ids: only these snapshots.
        skip, most: how many of the newest ones are left out, and how many follow; None: all.

    Raises:
        NotFoundError: no such branch.
    """
    main = {snapshot.snapshot_id for snapshot in _history(metadata, MAIN_BRANCH)}
    refs: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        refs.setdefault(ref.snapshot_id, []).append(name)
    newest_first = _newest_first(metadata)
    undone = find_undone(newest_first)
    found = iter(newest_first) if branch is None else _history(metadata, branch)
    if snapshot_ids is not None:
        found = (one for one in found if one.snapshot_id in snapshot_ids)
    wanted = {DAG_ID: dag_id, RUN_ID: run_id, TASK_ID: task_id}
    asked = [(name, value) for name, value in wanted.items() if value is not None]
    chosen = (one for one in found if all(one.summary.get(name) == value for name, value in asked))
    return tuple(
        _run(snapshot, tuple(refs.get(snapshot.snapshot_id, ())), snapshot.snapshot_id in main, undone)
        for snapshot in islice(chosen, skip, None if most is None else skip + most)
    )


def _newest_first(metadata: TableMetadata) -> list[Snapshot]:
    # Stable: snapshots of one millisecond, and those of a clock that went back, stay in the order of the table.
    return sorted(metadata.snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms))[::-1]


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = metadata.ref_snapshot(branch)
    return iter(()) if head is None else metadata.ancestors(head.snapshot_id)


def _run(snapshot: Snapshot, refs: tuple[str, ...], is_in_main: bool, undone: Mapping[int, int]) -> Run:
    summary = snapshot.summary
    rows = RowCounts.of(snapshot)
    map_index = summary.get(MAP_INDEX)
    return Run(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        committed_at_ms=snapshot.timestamp_ms,
        operation=snapshot.operation,
        dag_id=summary.get(DAG_ID),
        run_id=summary.get(RUN_ID),
        task_id=summary.get(TASK_ID),
        map_index=-1 if map_index == "-1" else whole_number(map_index or ""),
        try_number=whole_number(summary.get(TRY_NUMBER, "")),
        operation_key=summary.get(OPERATION_KEY),
        published_operation_key=summary.get(PUBLISHED_OPERATION_KEY),
        writer=summary.get("engine-name") or ("spark" if "spark.app.id" in summary else None),
        refs=refs,
        is_in_main=is_in_main,
        added_records=max(rows.added, 0),
        updated_records=rows.updated,
        deleted_records=max(rows.deleted, 0),
        added_data_files=count_of(snapshot, "added-data-files"),
        deleted_data_files=count_of(snapshot, "deleted-data-files"),
        added_delete_files=count_of(snapshot, "added-delete-files"),
        removed_delete_files=count_of(snapshot, "removed-delete-files"),
        inputs=inputs_of(snapshot),
        undone_by=undone.get(snapshot.snapshot_id),
        undoes=undone_in(snapshot),
    )
