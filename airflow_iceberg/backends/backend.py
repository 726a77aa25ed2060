"""Where jobs run: the back ends, and their choice by the connection's type."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from airflow_iceberg.backends import clusters
from airflow_iceberg.backends.config import SparkConfig, storage_of
from airflow_iceberg.backends.connect import SparkConnect, session_secret
from airflow_iceberg.backends.pages import SparkPages
from airflow_iceberg.backends.spark_submit import SparkSubmit
from airflow_iceberg.errors import (
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    UnsupportedError,
    advised,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.storage.base import FileIO


log = logging.getLogger(__name__)

CONNECTED_TYPE = "spark_connect"
SUBMITTED_TYPES = ("spark", "yarn", "k8s", "local", "mesos")


class Backend(Protocol):
    """Where jobs run. The files of a job whose `is_killed` is set are not used, whatever it reports."""

    is_killed: bool

    def run(self, plan: JobPlan) -> None:
        """Run a job to its end; raises AirflowException when it ended with an error, whatever it wrote."""

    def read_result(self, io: FileIO, plan: JobPlan) -> JobResult:
        """Return the result of the job that was run.

        Raises:
            StalePlanError: it ended without one.
            FormatError: somebody else has written it, or it is damaged.
        """

    def cancel(self) -> None:
        """End the running job, if any; called from a signal handler, possibly several times."""

    def explain(self, error: IcebergError) -> IcebergError:
        """Return an error of a job with its cause first, where the back end knows more than the job."""


def open_backend(
    spark_conn_id: str | None,
    config: SparkConfig,
    *,
    table: OpenTable,
    source: Source | None,
    inputs: Mapping[str, OpenTable] | None = None,
    name: str,
    tell: Callable[[SparkPages], None] | None = None,
) -> Backend:
    """Return the back end of a connection; checks all requirements that can be known before the job runs.

    Args:
        spark_conn_id: the id of a connection of type spark or spark_connect; None runs the job in this process.
        source: the source of new rows; None for a job that only reads the table.
        inputs: the tables that the source reads, by the names that it has for them.
        name: the job's name where it runs.
        tell: called with the pages of the job's Spark application, once they are known.
    Raises:
        NotFoundError: no such connection, no Spark, no Java.
        InvalidInputError: the connection is of another type, or two versions of Spark are installed over each other.
        UnsupportedError: a back end, or a source for it, that this version does not have.
    """
    if spark_conn_id is None:
        if source is not None and source.kind == "callable":
            raise UnsupportedError(
                "a python_callable needs Spark, got spark_conn_id=None; name a connection of type spark, or use sql or "
                "files"
            )
        return InProcess(table.io, {name: one.io for name, one in (inputs or {}).items()})
    connection = _connection(spark_conn_id)
    _check_type(connection)
    storage, reached = storage_of(table), {key: storage_of(one) for key, one in (inputs or {}).items()}
    others = {key: properties for key, properties in reached.items() if properties != storage}
    shared: dict[str, Any] = {"storage": storage, "inputs": others, "name": name}
    if connection.conn_type == CONNECTED_TYPE:
        secret = session_secret(table.catalog.properties)
        return SparkConnect(connection, config, io=table.io, secret=secret, **shared)
    return SparkSubmit(connection, config, tell=tell, **shared)


def run_job(backend: Backend, table: OpenTable, plan: JobPlan) -> JobResult:
    """Run a job and return its result, with the cause of its error if the back end knows it.

    Raises:
        IcebergError: the job was cancelled.
        StalePlanError: the job ended without a result; the message has the last lines of its output.
        UnsupportedError: the same, since the driver lacks a package.
    """
    from airflow_iceberg.jobs.protocol.result import JobError

    ended_badly: AirflowException | None = None
    try:
        backend.run(plan)
    except AirflowException as error:
        ended_badly = error
    if backend.is_killed:
        raise killed(plan) from ended_badly
    try:
        result = backend.read_result(table.io, plan)
    except StalePlanError as error:
        if ended_badly is None:
            raise
        explained = backend.explain(error)
        failed = type(explained)(f"{explained}; {ended_badly}")
        failed.advice = explained.advice
        raise failed from ended_badly
    if result.error is not None:
        return replace(result, error=JobError.from_exception(backend.explain(result.error.to_exception())))
    if ended_badly is not None:
        # Spark can fail while it shuts down, long after the result was written.
        log.warning("the job wrote its result, and then ended with an error: %s", ended_badly)
    return result


def killed(plan: JobPlan) -> IcebergError:
    """Return the error of a job that was cancelled.

    No StalePlanError, after which some operations would plan again and start the next job.
    """
    return IcebergError(f"the job for table {plan.table} was killed; nothing was committed")


def reason_to_wait(spark_conn_id: str | None, config: SparkConfig) -> str | None:
    """Return why jobs on a connection cannot be asked for from outside; None if they can: then `submit` works.

    Raises:
        NotFoundError, InvalidInputError, UnsupportedError: as of `open_backend`.
    """
    if spark_conn_id is None:
        return "it runs in this process (spark_conn_id=None)"
    connection = _connection(spark_conn_id)
    _check_type(connection)
    if connection.conn_type == CONNECTED_TYPE:
        return (
            f"the driver of a job on Spark Connect (connection {connection.conn_id!r}) is a process of the task, which "
            f"plans each stage and collects what the server's workers report; no other process can go on with it"
        )
    return clusters.reason_to_wait(connection, config)


def submitting(backend: Backend) -> SparkSubmit:
    """Return a back end whose job nobody has to wait for: one for which `reason_to_wait` has given no reason."""
    assert isinstance(backend, SparkSubmit)
    return backend


def submit_job(backend: SparkSubmit, plan: JobPlan) -> dict[str, Any]:
    """Submit a job, and return its reference.

    Raises:
        IcebergError: the job was cancelled.
        StalePlanError, UnsupportedError: it was not submitted; as of `run_job`.
    """
    failed: AirflowException | None = None
    reference: dict[str, Any] = {}
    try:
        reference = backend.submit(plan)
    except AirflowException as error:
        failed = error
    if backend.is_killed:
        raise killed(plan) from failed
    if failed is not None:
        raise backend.explain(StalePlanError(f"the job for table {plan.table} was not submitted: {failed}")) from failed
    return reference


class InProcess:
    """Runs a job over threads of this process, without a JVM."""

    def __init__(self, io: FileIO, inputs: Mapping[str, FileIO]) -> None:
        self._io = io
        self._inputs = inputs
        self._result: JobResult | None = None
        self.is_killed = False

    def run(self, plan: JobPlan) -> None:
        from airflow_iceberg.jobs.run_local import run_local

        self._result = run_local(plan, self._io, inputs=self._inputs, is_stopped=lambda: self.is_killed)

    def read_result(self, io: FileIO, plan: JobPlan) -> JobResult:
        """Return the result as this process has it: others could have changed the document."""
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Start no further task of the job; running tasks end by themselves, or with this process."""
        self.is_killed = True

    def explain(self, error: IcebergError) -> IcebergError:
        return error


def _connection(conn_id: str) -> Connection:
    from airflow.sdk import BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        # The Spark provider's hook would continue with master yarn and log that at level INFO.
        raise advised(
            NotFoundError(f"spark connection {conn_id!r} does not exist"),
            "create it with a master as its host (local[*], yarn, spark://host:7077, k8s://https://host), or load "
            "files in the process with spark_conn_id=None",
        ) from error


def _check_type(connection: Connection) -> None:
    kind = connection.conn_type
    if kind not in (*SUBMITTED_TYPES, CONNECTED_TYPE):
        raise InvalidInputError(
            f"connection {connection.conn_id!r} is of type {kind!r}, expected 'spark' or {CONNECTED_TYPE!r}"
        )
