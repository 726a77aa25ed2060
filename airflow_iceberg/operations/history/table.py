"""The methods of a table about its history: `runs`, `undo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_iceberg import operations
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.history.runs import Run, find_runs
from airflow_iceberg.operations.history.targets import Selection
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    from airflow_iceberg.operations.history.undo import UndoResult


class HasHistory(OpenTable):
    """A table that tells which runs made its snapshots, and takes them back."""

    def runs(
        self,
        *,
        branch: str | None = None,
        dag_id: str | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
    ) -> tuple[Run, ...]:
        """Return which DAG run, task and try made which snapshot, newest first; only metadata is read.

        Args:
            branch: only the history of this branch or tag; None: all snapshots that the table has.
            dag_id, run_id, task_id: only the snapshots of this DAG, run or task; those of other writers have none.

        Raises:
            NotFoundError: no such branch.
        """
        return find_runs(self.metadata, branch=branch, dag_id=dag_id, run_id=run_id, task_id=task_id)

    def undo(
        self,
        operation_key: OperationKey | str | None = None,
        *,
        dag_id: str | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
        map_index: int | None = None,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> UndoResult:
        """Take back what a task or a DAG run has changed, in one commit, although others have committed since.

        Args:
            operation_key: the key of a task, as `runs` shows it; a key of your own tells with `started_ms` when its
                work began, for a table whose snapshots expire. Or, instead of it,
            dag_id, run_id, task_id, map_index: a DAG run, one task of it, or one index of a mapped task.
            dry_run: whether nothing is changed; the result says how many rows and which files it would be, and who has
                read them.

        Raises:
            NotFoundError: no snapshot of the table is of this run.
            IncompatibleChangeError: it cannot be proved which rows are to be removed or restored.
        """
        selection = Selection(
            operation_key=None if operation_key is None else str(operation_key),
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            started_ms=operation_key.started_ms if isinstance(operation_key, OperationKey) else None,
        )
        request = operations.undo.UndoRequest(
            selection=selection, branch=branch, dry_run=dry_run, snapshot_properties=dict(snapshot_properties or {})
        )
        return operations.undo.undo(Work(self), request)
