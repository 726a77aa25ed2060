"""The methods of a table about its history: `runs`."""

from __future__ import annotations

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.operations.history.runs import Run, find_runs


class HasHistory(OpenTable):
    """A table that tells which runs made its snapshots."""

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
