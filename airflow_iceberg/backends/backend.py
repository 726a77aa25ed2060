"""Where jobs run: the back ends, and their choice by the connection's type."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from airflow_iceberg.backends.config import SparkConfig, storage_properties
from airflow_iceberg.backends.spark_submit import SparkSubmit
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StalePlanError, UnsupportedError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source
    from airflow_iceberg.storage.base import FileIO


log = logging.getLogger(__name__)


SUBMITTED_TYPES = ("spark", "yarn", "k8s", "local", "mesos")


class Backend(Protocol):
    """Where jobs run.

    Attributes:
        is_killed: whether the job was cancelled; its files are not used, whatever it reports.
    """

    is_killed: bool

    def run(self, plan: JobPlan) -> None:
        """Run a job to its end; raises AirflowException when it ended badly, whatever it wrote."""

    def cancel(self) -> None:
        """End the job that is running, if any; called from a signal handler, and again while it runs."""

    def explain(self, error: IcebergError) -> IcebergError:
        """Return an error of a job with its cause first, where the back end knows more than the job could say."""


def open_backend(
    spark_conn_id: str | None, config: SparkConfig, *, table: OpenTable, source: Source | None, name: str
) -> Backend:
    """Return the back end of a connection, ready to run; whatever can be known to be missing is found here.

    Args:
        spark_conn_id: None runs the job in this process.
        table: the table of the job.
        source: the source of new rows; None for a job that reads the table alone.
        name: what the job is called where it runs.
    Raises:
        NotFoundError: no such connection, no Spark, no Java.
        InvalidInputError: the connection is of another type, or two versions of Spark lie over each other.
        UnsupportedError: a back end, or a source for it, that this version does not have.
    """
    if spark_conn_id is None:
        if source is not None and source.kind in ("sql", "callable"):
            what = "a sql query" if source.kind == "sql" else "a python_callable"
            raise UnsupportedError(
                f"{what} needs Spark, got spark_conn_id=None; name a connection of type spark, or load files"
            )
        return InProcess(table.io)
    connection = _connection(spark_conn_id)
    _check_type(connection)
    return SparkSubmit(connection, config, storage=storage_properties(_reaching(table)), name=name)


def run_job(backend: Backend, table: OpenTable, plan: JobPlan) -> JobResult:
    """Run a job and return what it staged.

    Raises:
        IcebergError: the job was cancelled; or its own error, of the class that the job raised.
        StalePlanError: the job died without a word; carries the last lines of its output.
    """
    from airflow_iceberg.operations.staging import read_result

    ended_badly: AirflowException | None = None
    try:
        backend.run(plan)
    except AirflowException as error:
        ended_badly = error
    if backend.is_killed:
        # No StalePlanError, after which some operations would re-plan and start the next job.
        raise IcebergError(f"the job for table {plan.table} was killed; nothing was committed") from ended_badly
    try:
        result = read_result(table.io, plan)
    except StalePlanError as error:
        if ended_badly is None:
            raise
        raise StalePlanError(f"{backend.explain(error)}; {ended_badly}") from ended_badly
    except IcebergError as error:
        raise backend.explain(error) from error
    if ended_badly is not None:
        # Spark can fail while it shuts down, long after the result was written.
        log.warning("the job wrote its result and ended badly afterwards: %s", ended_badly)
    return result


def _reaching(table: OpenTable) -> Mapping[str, str]:
    """Return the properties by which the table's files are reached: with what its REST catalog lent for them."""
    lent = getattr(table.io, "current_properties", None)
    return {**table.catalog.properties, **(lent() if lent is not None else {})}


class InProcess:
    """Runs a job over threads of this very process, without a JVM."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self.is_killed = False

    def run(self, plan: JobPlan) -> None:
        """Run the job to its end."""
        from airflow_iceberg.jobs.run_local import run_local

        run_local(plan, self._io, is_stopped=lambda: self.is_killed)

    def cancel(self) -> None:
        """Begin no further task of the job; those that run end by themselves, or with this process."""
        self.is_killed = True

    def explain(self, error: IcebergError) -> IcebergError:
        """Return the error as it is."""
        return error


def _connection(conn_id: str) -> Connection:
    from airflow.sdk import BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        # The Spark provider's hook would go on with master yarn and say so at level INFO.
        raise NotFoundError(
            f"spark connection {conn_id!r} does not exist; create it with a master as its host (local[*], yarn, "
            f"spark://host:7077, k8s://https://host), or load files in the process with spark_conn_id=None"
        ) from error


def _check_type(connection: Connection) -> None:
    kind = connection.conn_type
    if kind == "spark_connect":
        raise UnsupportedError(
            f"connection {connection.conn_id!r} is of type spark_connect, which is not supported yet; "
            f"use one of type spark"
        )
    if kind not in SUBMITTED_TYPES:
        raise InvalidInputError(f"connection {connection.conn_id!r} is of type {kind!r}, expected 'spark'")
