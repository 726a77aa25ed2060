"""What operators share: the work of their task, the rendering of options, jobs, the report.

`execute` of each operator builds a request, calls an operation with its work, and reports the result. Not here: what an
operation does (`operations`), where a job runs (`backends`), which error is retried (`retries`).
"""

from __future__ import annotations

import inspect
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.providers.common.compat.sdk import conf

from airflow_iceberg import links
from airflow_iceberg.assets import MAIN, check_partition_keys, declare_asset, tell_assets, verb_of
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.hooks.arguments import interval_s, whole_number
from airflow_iceberg.hooks.digests import slow_digest
from airflow_iceberg.hooks.given import CheckedArguments
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._key import left_by, operation_key_of, taken_up
from airflow_iceberg.redaction import printable
from airflow_iceberg.retries import airflow_failures, from_event, tell_of_kill
from airflow_iceberg.triggers.job import POLL_INTERVAL_S, IcebergJobTrigger

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_iceberg.backends.backend import Backend
    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.commit.operation_key import OperationKey
    from airflow_iceberg.commit.write_result import OperationResult
    from airflow_iceberg.hooks.connection import CatalogConfig
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.operations.deferral.handle import Handle
    from airflow_iceberg.operations.file_inventory import FileInventory
    from airflow_iceberg.operations.work import Work


class TableOperator(CheckedArguments):
    """An operator that works on one table, in this process.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        asset_events: whether the table's asset is an outlet of the task, and has an event for its commit.
        partition_keys: what the events call the partitions that the commit touched: `"path"`, `day=2026-01-01`, or
            `"value"`, `2026-01-01`, for tables with one partition field that is a column itself or its day.
    """

    template_fields: Sequence[str] = ("table", "iceberg_conn_id", "partition_keys")
    is_maintenance: ClassVar[bool] = False  # whether the commits change no rows
    branch: Any = MAIN  # that is committed to; set before the outlets are made
    operator_extra_links: Collection[BaseOperatorLink] = (links.TableLink(), links.SnapshotLink())
    _config: CatalogConfig | None = None
    _opened_table: OpenTable | None = None
    _result: OperationResult | None = None

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        asset_events: bool = True,
        partition_keys: Literal["path", "value"] = "path",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.asset_events = asset_events
        self.partition_keys = partition_keys
        self.added_asset = declare_asset(self)

    def changes_rows(self) -> bool:
        """Tell whether the commits change rows; DAGs that wait for rows are not started by others."""
        return not self.is_maintenance

    def told_branch(self) -> Any:
        """Return the branch whose asset tells of the commits."""
        return self.branch

    def work(self, context: Context) -> Work:
        """Load the table, and return the work of this task."""
        from airflow_iceberg.operations.work import Work

        check_partition_keys(self.partition_keys)
        self._opened_table = self._load_table()
        return Work(
            self._opened_table,
            operation_key=operation_key_of(context, self),
            try_number=int(context["ti"].try_number),
        )

    def on_kill(self) -> None:
        """Say in the log that the task is being ended."""
        tell_of_kill()

    def report(self, context: Context, result: OperationResult, lines: Iterable[str]) -> dict[str, Any]:
        """Report the result in the log, in asset events and in XCom; the same if an earlier try has committed it."""
        for line in lines:
            self.log.info("%s: %s", result.table, printable(" ".join(line.splitlines())))
        self._result = result
        xcom = result.to_xcom()
        tell_assets(self, context, result, self._table_after)
        return xcom

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what the task has read and written; called by Airflow's provider of OpenLineage, if there is one."""
        from airflow_iceberg.lineage import operator_lineage

        if self._result is None:
            return None
        inputs = self.tables_read(self._result)
        return operator_lineage(self._table_after(), self._result, inputs, verb=verb_of(self))

    def tables_read(self, result: OperationResult) -> Mapping[str, OpenTable]:
        """Return the tables that the rows were made from, by the names in the result."""
        return {}

    def _table_after(self) -> OpenTable:
        """Return the table after the operation; those that make one, or find one, have not loaded it."""
        return self._opened_table or self._load_table()

    def _load_table(self) -> OpenTable:
        hook = IcebergHook(self.iceberg_conn_id)
        self._config = hook.config
        return hook.load_table(self.table)

    def pages(self, ti_key: Any) -> dict[str, str]:
        """Return the addresses of the pages of the table and its new snapshot; none if there was no connection."""
        result = self._result
        config = self._config or (IcebergHook(self.iceberg_conn_id).config if result else None)
        return links.pages(self, config, result.made_snapshot_ids if result else (), ti_key) if config else {}


class JobOperator(TableOperator):
    """An operator that may run jobs.

    Args:
        spark_conn_id: the id of the `spark` or `spark_connect` connection that jobs run on; None runs them in this
            process.
        spark_config: resources and options of the Spark jobs, a `SparkConfig` or a dictionary of its fields.
        deferrable: whether the task frees its worker slot while a job runs on a cluster that can be asked for it: YARN
            or Kubernetes, in deploy mode cluster. Elsewhere the task waits. It needs a triggerer.
        poll_interval: seconds between two looks of the triggerer at the job.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        *("spark_conn_id", "spark_config", "poll_interval"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"spark_config": "json"}
    # Why no later process can go on with the jobs of an operator; None if one can.
    reason_to_wait: ClassVar[str | None] = None
    operator_extra_links: Collection[BaseOperatorLink] = (
        *TableOperator.operator_extra_links,
        *(links.SparkUiLink(), links.SparkHistoryLink(), links.StagingLink()),
    )
    _instance: Any = None
    _backend: Backend | None = None
    _is_killed = has_jobs = leaves_staging = False
    _ends_at: float | None = None
    # What the process before this one has left, and how the job has ended.
    _before: tuple[Handle, str] | None = None
    _key: Mapping[str, Any] | None = None
    _asks_anew: bool = False

    def __init__(
        self,
        *,
        spark_conn_id: str | None = "spark_default",
        spark_config: SparkConfig | Mapping[str, Any] | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float | str = POLL_INTERVAL_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_config = spark_config
        self.deferrable = deferrable
        self.poll_interval = poll_interval

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Go on with the job of the process before this one, after the trigger has told how it ended."""
        told, self.has_jobs, self.leaves_staging = dict(event or {}), True, False
        try:
            with airflow_failures():
                self._take_over(context, told, told.get("left") or {})
            # Airflow has begun this process with another method, and would warn of a call of `execute`.
            return inspect.unwrap(type(self).execute)(self, context)
        finally:
            # `dag.test()` makes the next try with the same object.
            self._before = self._key = self._ends_at = None
            self._asks_anew = False

    def _take_over(self, context: Context, told: Mapping[str, Any], left: Mapping[str, Any]) -> None:
        from airflow_iceberg.operations.deferral.handle import Handle

        self._before = Handle.of(left.get("handle") or {}), str(told.get("message", ""))
        self._ends_at = left["ends_at"]
        # A clear of another task of the run would change the key.
        self._key = left["operation_key"]
        if told["status"] != "ended":
            self._give_up(context, self._before[0], left["reference"])
            raise IcebergError(told["message"]) if told["status"] == "timeout" else from_event(told)
        if self._asked(left["asked"]["salt"]) != left["asked"]:
            self._ask_anew(context, self._before[0])

    def work(self, context: Context) -> Work:
        """Load the table, and return the work of this task, whose jobs run on the Spark connection."""
        work, self._instance = super().work(context), context["ti"]
        if self._key is not None:
            work = replace(work, operation_key=taken_up(self._key, work.operation_key))
        table, key = work.table, work.operation_key
        assert key is not None

        def run(plan: JobPlan) -> JobResult:
            links.tell_staging(self._instance, plan.staging_location)
            return self.run_job(table, plan, name=str(key))

        if not self._defers():
            return replace(work, run=run)
        from airflow_iceberg.operations.deferral.jobs import DeferredJobs

        start = partial(self._start_job, table, key)
        if self._before is None:
            if self.execution_timeout is not None:
                self._ends_at = time.time() + self.execution_timeout.total_seconds()
            jobs = DeferredJobs(table, start=start, wait=run)
            return replace(work, run=jobs, deferred=jobs)
        handle, ended = self._before
        jobs = DeferredJobs(table, start=start, wait=run, handle=handle, ended=ended)
        # After hours, somebody may have taken the files of the job for orphans.
        return replace(work, run=jobs, deferred=jobs, started_s=-math.inf)

    def _defers(self) -> bool:
        """Whether the task is deferred while its jobs run; logs why not."""
        if self._asks_anew or self._before is not None or not self.deferrable:
            return self._before is not None
        return self._can_be_asked()

    def _can_be_asked(self) -> bool:
        from airflow_iceberg.backends.backend import reason_to_wait

        reason = self.reason_to_wait or reason_to_wait(self.spark_conn_id, SparkConfig.of(self.spark_config))
        if reason is not None:
            self.log.info("deferrable is set, and this task waits for its job all the same: %s", reason)
        return reason is None

    def _start_job(
        self, table: OpenTable, key: OperationKey, plan: JobPlan, handle_of: Callable[[str], Handle]
    ) -> None:
        """Submit a job, and defer the task until it has ended; return if the connection, edited meanwhile, cannot."""
        from airflow_iceberg.backends.backend import submit_job, submitting
        from airflow_iceberg.backends.deferred import Deferred

        if not self._can_be_asked():
            return
        links.tell_staging(self._instance, plan.staging_location)
        backend = submitting(self.open_backend(table, plan.source, name=str(key), inputs=self.opened_inputs(plan)))
        handle = handle_of(backend.result_key).to_dict()
        reference = submit_job(backend, plan)
        self.leaves_staging = True
        self.log.info("the job was submitted, and the task is deferred until it has ended: %s", reference)
        left = {
            "handle": handle,
            "reference": reference,
            "operation_key": left_by(key),
            "asked": self._asked(secrets.token_hex(16)),
            "ends_at": self._ends_at,
        }
        raise Deferred(
            trigger=IcebergJobTrigger(
                reference=reference,
                ends_at=self._ends_at,
                poll_interval=interval_s("poll_interval", self.poll_interval),
                left=left,
            ),
            method_name="execute_complete",
        )

    def _asked(self, salt: str) -> dict[str, str]:
        """Return what tells whether a task asks for the same again; it shows no argument."""
        arguments = {name: getattr(self, name, None) for name in self.template_fields}
        return {"salt": salt, "digest": slow_digest(arguments, salt)}

    def _ask_anew(self, context: Context, handle: Handle) -> None:
        """Give up a job that has run for another request, and wait for the job of this one.

        A template that gives another text at each rendering would do so at the next one, too.
        """
        from airflow_iceberg.operations.deferral.jobs import discard

        self.log.warning(
            "the task does not ask for what it asked for when it was deferred, so that its job runs once more, and the "
            "task waits for it; an edited DAG, or a template of the current time, may be the cause"
        )
        discard(super().work(context).table, handle)
        self._before, self._asks_anew = None, True

    def _give_up(self, context: Context, handle: Handle, reference: Mapping[str, Any]) -> None:
        """End a job that nobody waits for any more, and delete its documents."""
        from airflow_iceberg.backends.following import follow
        from airflow_iceberg.operations.deferral.jobs import discard

        try:
            follow(reference).end()
            discard(super().work(context).table, handle)
        except IcebergError as error:
            self.log.warning("the job may still run, and what it leaves is not deleted: %s", error)

    def on_kill(self) -> None:
        """Cancel the job, and start no other; the next try starts from the beginning."""
        self._is_killed = True
        super().on_kill()
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
        tell, self.has_jobs = partial(links.tell_application, self._instance), True
        self._backend = open_backend(
            self.spark_conn_id, config, table=table, source=source, inputs=inputs, name=name, tell=tell
        )
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
    reason_to_wait = "it reads the table's manifests in several jobs, some of them after its commit"

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
