"""What operators share: the work of their task, the rendering of options, jobs, the report.

`execute` of each operator builds a request, calls an operation with its work, and reports the result. Not here: what an
operation does (`operations`), where a job runs (`backends`), which error is retried (`retries`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.redaction import secrets_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.backends.backend import Backend
    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.commit.write_result import OperationResult
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.operations.file_inventory import FileInventory
    from airflow_iceberg.operations.work import Work


class TableOperator(BaseOperator):
    """An operator that works on one table, in this process.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
    """

    template_fields: Sequence[str] = ("table", "iceberg_conn_id")

    def __init__(self, *, table: str, iceberg_conn_id: str = IcebergHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """Render the templates, and mask secrets in them: Airflow stores and shows the rendered fields."""
        super().render_template_fields(context, jinja_env)
        mask_secrets({name: getattr(self, name, None) for name in self.template_fields})

    def work(self, context: Context) -> Work:
        """Load the table, and return the work of this task."""
        from airflow_iceberg.operations.work import Work

        return Work(
            IcebergHook(self.iceberg_conn_id).load_table(self.table),
            operation_key=operation_key_of(context),
            try_number=int(context["ti"].try_number),
        )

    def report(self, context: Context, result: OperationResult, lines: Iterable[str]) -> dict[str, Any]:
        """Report the result in the log, in asset events and in XCom; the same if an earlier try has committed it."""
        for line in lines:
            self.log.info("%s: %s", result.table, line)
        xcom = result.to_xcom()
        self._add_to_asset_events(context, xcom)
        return xcom

    def _add_to_asset_events(self, context: Context, extra: Mapping[str, Any]) -> None:
        """Add the result to the events of the task's outlets, except aliases, which name no asset by themselves."""
        from airflow.sdk import Asset
        from airflow.sdk.definitions.asset import AssetRef

        for outlet in self.outlets or ():
            if isinstance(outlet, Asset | AssetRef):
                context["outlet_events"][outlet].extra.update(extra)

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render the fields of option classes, too, into a copy, since they are frozen."""
        if not is_dataclass(content) or isinstance(content, type):
            return super().render_template(content, context, jinja_env, seen_oids)
        rendered = {
            item.name: self.render_template(getattr(content, item.name), context, jinja_env) for item in fields(content)
        }
        return replace(content, **rendered)


class JobOperator(TableOperator):
    """An operator that may run jobs.

    Args:
        spark_conn_id: the id of the `spark` connection that jobs are submitted to; None runs them in this process.
        spark_config: resources and options of the Spark jobs, a `SparkConfig` or a dictionary of its fields.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "spark_conn_id", "spark_config")
    template_fields_renderers: ClassVar[dict[str, str]] = {"spark_config": "json"}
    _backend: Backend | None = None
    _is_killed: bool = False

    def __init__(
        self,
        *,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config

    def work(self, context: Context) -> Work:
        """Load the table, and return the work of this task, whose jobs run on the Spark connection."""
        work = super().work(context)
        return replace(work, run=lambda plan: self.run_job(work.table, plan, name=str(work.operation_key)))

    def on_kill(self) -> None:
        """Cancel the job, and start no other; the next try starts from the beginning."""
        self._is_killed = True
        if self._backend is not None:
            self._backend.cancel()

    def open_backend(
        self, table: OpenTable, source: Source | None, *, name: str, inputs: Mapping[str, OpenTable] | None = None
    ) -> Backend:
        """Return the back end that runs jobs, after checking that it can."""
        from airflow_iceberg.backends.backend import open_backend

        config = SparkConfig.of(self.spark_config)
        asked = sorted({"spark.wap.id", "spark.wap.branch"} & set(config.conf))
        if asked:
            raise InvalidInputError(
                f"task {self.task_id}: {asked[0]} is a setting of Iceberg's Spark writer, which is not used here; set "
                f"branch={config.conf[asked[0]]!r} to write to a branch of the table; Table.create_branch creates one"
            )
        self._backend = open_backend(self.spark_conn_id, config, table=table, source=source, inputs=inputs, name=name)
        if self._is_killed:
            # Killed by a signal between two jobs of the task, or while its first one was planned.
            self._backend.cancel()
        return self._backend

    def run_job(self, table: OpenTable, plan: JobPlan, *, name: str) -> JobResult:
        """Run a job on the Spark connection, and return the files that it staged; raises the job's own error."""
        from airflow_iceberg.backends.backend import run_job

        inputs = self.opened_inputs(plan)
        return run_job(self.open_backend(table, plan.source, name=name, inputs=inputs), table, plan)

    def opened_inputs(self, plan: JobPlan) -> Mapping[str, OpenTable]:
        """Return the tables that a job's source reads, as they were loaded for its plan."""
        return {}


class InventoryOperator(JobOperator):
    """An operator that reads all manifests of a table, and may list its files.

    Args:
        spark_from_files: the number of files from which on a Spark job reads them; 1,000,000.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "spark_from_files")

    def __init__(self, *, spark_from_files: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_from_files = spark_from_files

    def work(self, context: Context) -> Work:
        """Return the work of this task; without a Spark connection it has no jobs."""
        work = super().work(context)
        return work if self.spark_conn_id is not None else replace(work, run=None)

    def open_inventory(self, work: Work) -> FileInventory:
        """Return the file inventory, after checking that a job can run if one is needed."""
        from airflow_iceberg.operations.file_inventory import FileInventory, expected_files

        inventory = FileInventory(work, spark_from_files=whole_number("spark_from_files", self.spark_from_files))
        if inventory.is_for_spark(expected_files(work.table.metadata)):
            self.open_backend(work.table, None, name=str(work.operation_key))
        return inventory


def mask_secrets(arguments: Mapping[str, Any]) -> None:
    """Mask the secrets in arguments of a task in all that Airflow logs, stores and shows of it from here on."""
    from airflow.sdk.log import mask_secret

    for name, value in arguments.items():
        given = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        text = given if isinstance(given, str) else json.dumps(given, default=str)
        for secret in secrets_of({name: text}):
            mask_secret(secret)
