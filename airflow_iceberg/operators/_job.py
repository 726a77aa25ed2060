"""What operators share that run jobs: whose work it is, rendering of option classes, the back end, cancelling it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.submit import SparkConfig

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.operation import OperationKey
    from airflow_iceberg.jobs.protocol import JobPlan, JobResult, Source
    from airflow_iceberg.submit import Backend
    from airflow_iceberg.table import Table

Result = TypeVar("Result")


class JobOperator(BaseOperator):
    """An operator whose work, or part of it, runs where `spark_conn_id` says: on a Spark, or in this process."""

    table: str
    iceberg_conn_id: str
    spark_conn_id: str | None
    spark_config: SparkConfig | None
    _backend: Backend | None = None
    _is_killed: bool = False

    def carry_out(self, context: Context, work: Callable[..., Result]) -> Result:
        """Load the table and do work on it that may run jobs.

        Args:
            work: called with the table and, by name, what runs a job, the operation's key and the number of the try.
        """
        operation = operation_of(context)
        table = IcebergHook(self.iceberg_conn_id).load_table(self.table)
        return work(
            table,
            run=lambda plan: self.run_job(table, plan, name=str(operation)),
            operation=operation,
            try_number=int(context["ti"].try_number),
        )

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render the fields of the option classes, too: they are frozen, so a rendered copy takes their place."""
        if not is_dataclass(content) or isinstance(content, type):
            return super().render_template(content, context, jinja_env, seen_oids)
        rendered = {
            item.name: self.render_template(getattr(content, item.name), context, jinja_env) for item in fields(content)
        }
        return replace(content, **rendered)

    def on_kill(self) -> None:
        """Cancel the job and start no other; what it staged stays unreferenced, and the next try starts afresh."""
        self._is_killed = True
        if self._backend is not None:
            self._backend.cancel()

    def open_backend(self, table: Table, source: Source, *, name: str) -> Backend:
        """Return what runs jobs; whatever can be known to be missing is found here."""
        from airflow_iceberg.submit import open_backend

        config = self.spark_config or SparkConfig()
        asked = sorted({"spark.wap.id", "spark.wap.branch"} & set(config.conf))
        if asked:
            raise InvalidInputError(
                f"task {self.task_id}: {asked[0]} is a setting of Iceberg's Spark writer, which does not run here; say "
                f"branch={config.conf[asked[0]]!r} to write to a branch of the table, and publish that"
            )
        self._backend = open_backend(self.spark_conn_id, config, table=table, source=source, name=name)
        if self._is_killed:
            # By a signal between two jobs of the task, or while its first one was planned.
            self._backend.cancel()
        return self._backend

    def run_job(self, table: Table, plan: JobPlan, *, name: str) -> JobResult:
        """Run a job where the connection says and return what it staged; raises the job's own error."""
        from airflow_iceberg.submit import run_job

        return run_job(self.open_backend(table, plan.source, name=name), table, plan)


def operation_of(context: Context) -> OperationKey:
    """Return the key of this task's work: the same at every automatic retry, another one after a person cleared it.

    Clearing sets `max_tries` to the tries so far plus the task's retries, so the difference counts the tries before the
    clear. It is kept between 0 and the tries before this one: a DAG whose `retries` were edited between two tries would
    otherwise come to numbers that no clear can have given.
    """
    from airflow_iceberg.commit.operation import OperationKey

    ti = context["ti"]
    epoch = int(ti.max_tries) - int(context["task"].retries or 0)
    begun = _beginnings_ms(context)
    return OperationKey(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if ti.map_index is None else int(ti.map_index),
        epoch=min(max(epoch, 0), max(int(ti.try_number) - 1, 0)),
        run_after_ms=min(begun) if begun else None,
        started_ms=begun.pop() if begun else None,
    )


def _beginnings_ms(context: Context) -> list[int]:
    """Return when the run could have begun and when it did, in ms; of a backfill these are years apart."""
    run = context.get("dag_run")
    moments = (getattr(run, "run_after", None), getattr(run, "start_date", None))
    return [int(moment.timestamp() * 1000) for moment in moments if moment]
