"""What operators share that run jobs: rendering of option classes, the back end, cancelling it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.submit import SparkConfig

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.jobs.protocol import JobPlan, JobResult, Source
    from airflow_iceberg.submit import Backend
    from airflow_iceberg.table import Table


class JobOperator(BaseOperator):
    """An operator whose work, or part of it, runs where `spark_conn_id` says: on a Spark, or in this process."""

    spark_conn_id: str | None
    spark_config: SparkConfig | None
    _backend: Backend | None = None

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
        """Cancel the job; what it staged stays unreferenced, and the next try starts afresh."""
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
        return self._backend

    def run_job(self, table: Table, plan: JobPlan, *, name: str) -> JobResult:
        """Run a job where the connection says and return what it staged; raises the job's own error."""
        from airflow_iceberg.submit import run_job

        return run_job(self.open_backend(table, plan.source, name=name), table, plan)
