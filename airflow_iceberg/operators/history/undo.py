"""The operator that undoes a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.history.targets import Selection


class IcebergUndoOperator(TableOperator):
    """Takes back what a DAG run, or a task of it, has changed in a table, in one commit, although others wrote since.

    Rows that the run has added are removed: its files, or, in format version 3, its rows in files that were
    compacted or merged since. Rows that it has deleted or replaced are restored if that is provably right.
    Otherwise the task fails with the reason, and nothing is changed. A second undo of the same run has nothing to
    do; a task of the run that is cleared afterwards writes its rows again.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        operation_key: the key of one task, as `airflow iceberg runs` shows it; or, instead of it,
        undo_dag_id, undo_run_id: the DAG run to undo; by default this task's own run.
        undo_task_id, undo_map_index: only this task of the run, and this index of a mapped task.
        branch: the branch of the table to change.
        dry_run: whether nothing is changed, and the result says how many rows and which files it would be, and which
            later runs have read them.
        snapshot_properties: additional entries of the snapshot's summary.
        iceberg_conn_id: the id of the catalog's connection.

    Returns:
        the fields of `UndoResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        *("operation_key", "undo_dag_id", "undo_run_id", "undo_task_id", "undo_map_index", "branch", "is_dry_run"),
        "snapshot_properties",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"snapshot_properties": "json"}
    ui_color = "#f0dada"

    def __init__(
        self,
        *,
        operation_key: str | None = None,
        undo_dag_id: str | None = None,
        undo_run_id: str | None = None,
        undo_task_id: str | None = None,
        undo_map_index: int | str | None = None,
        branch: str = "main",
        dry_run: bool | str = False,
        snapshot_properties: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.branch = branch
        super().__init__(**kwargs)
        self.operation_key = operation_key
        # Not `dag_id` and so on, which are those of this task.
        self.undo_dag_id = undo_dag_id
        self.undo_run_id = undo_run_id
        self.undo_task_id = undo_task_id
        self.undo_map_index = undo_map_index
        # Not `dry_run`, which is a method of Airflow's.
        self.is_dry_run = dry_run
        self.snapshot_properties = snapshot_properties

    def execute(self, context: Context) -> dict[str, Any]:
        """Undo the run."""
        from airflow_iceberg.operations.history.undo import UndoRequest, undo

        with airflow_failures():
            request = UndoRequest(
                selection=self._selection(context),
                branch=self.branch,
                dry_run=true_or_false("dry_run", self.is_dry_run),
                snapshot_properties=self.snapshot_properties or {},
            )
            result = undo(self.work(context), request)
        return self.report(context, result, result.lines())

    def _selection(self, context: Context) -> Selection:
        from airflow_iceberg.operations.history.targets import Selection

        if self.undo_dag_id is not None and self.undo_run_id is None and self.undo_dag_id != context["ti"].dag_id:
            raise InvalidInputError(
                f"undo_dag_id is {self.undo_dag_id!r}, and no undo_run_id says which of its runs is undone; give it, "
                f"too"
            )
        by_key, own = self.operation_key is not None, operation_key_of(context)
        dag_id = self.undo_dag_id or (None if by_key else own.dag_id)
        run_id = self.undo_run_id or (None if by_key else own.run_id)
        return Selection(
            operation_key=self.operation_key,
            dag_id=dag_id,
            run_id=run_id,
            started_ms=own.run_after_ms if (dag_id, run_id) == (own.dag_id, own.run_id) else None,
            task_id=self.undo_task_id,
            map_index=whole_number("undo_map_index", self.undo_map_index),
        )
