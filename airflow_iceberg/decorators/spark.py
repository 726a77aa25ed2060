"""Functions that return a Spark DataFrame: a session in the task's process, as `@task.pyspark` makes it, and its jobs.

The rows do not come into this process: the session's workers write the data files. Not here: how (`jobs.spark.run`).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow.providers.common.compat.sdk import BaseHook

from airflow_iceberg.backends.config import storage_of
from airflow_iceberg.backends.environment import as_environment, job_environment
from airflow_iceberg.errors import IcebergError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.protocol.source import Source

log = logging.getLogger(__name__)

PARAMETERS = ("spark", "sc")
_CLASSIC = ("spark", "generic")


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session of Spark.

    Attributes:
        end: ends it with all that runs on it, also from a signal handler.
        readable: returns an error of it without secrets.
    """

    spark: Any
    end: Callable[[], None]
    readable: Callable[[Exception], Exception] = lambda error: error


class FrameJobs:
    """The session of one task, which begins when the first job runs, and the function, which is called once.

    Args:
        function: returns a DataFrame for a session.
        name: the function's name in errors.
        conn_id: the id of a connection of type spark or spark_connect; None for a Spark in this process.
        config: settings of Spark, which come before those of the connection.
        app_name: the name of the application.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        name: str,
        conn_id: str | None,
        config: Mapping[str, Any],
        app_name: str,
    ) -> None:
        from airflow_iceberg.jobs.spark.held_frames import new_source

        self._function = function
        self._name = name
        self._conn_id = conn_id
        self._config = config
        self._app_name = app_name
        self._session: Session | None = None
        self._open = ExitStack()
        self._frame: Any = None
        self._is_killed = False
        self.source: Source = new_source()

    def run(self, table: OpenTable, plan: JobPlan) -> JobResult:
        """Run a job on the session; an error of the function is raised as it is."""
        from airflow_iceberg.backends.backend import killed
        from airflow_iceberg.jobs.spark.errors import as_iceberg_error
        from airflow_iceberg.jobs.spark.held_frames import held
        from airflow_iceberg.jobs.spark.run import run_spark

        if self._is_killed:
            raise killed(plan)
        if self._session is None:
            opened = opened_session(self._conn_id, self._config, app_name=self._app_name)
            self._session = self._open.enter_context(opened)
        if self._is_killed:  # while the session was opened
            raise killed(plan)
        spark, readable = self._session.spark, self._session.readable
        if self._frame is None:
            self._frame = self._called(spark)
        with held(self.source, self._frame):
            result = run_spark(
                plan,
                table.io,
                spark,
                storage=storage_of(table),
                as_error=lambda error: readable(as_iceberg_error(error)),
            )
        if self._is_killed:
            raise killed(plan)
        return result

    def _called(self, spark: Any) -> Any:
        frame = self._function(spark)
        if not hasattr(frame, "mapInArrow"):
            raise InvalidInputError(
                f"function {self._name!r} has a Spark session and returned a {type(frame).__name__}, expected a Spark "
                f"DataFrame; a function of other rows has no parameter 'spark', and needs no spark_conn_id"
            )
        return frame

    def kill(self) -> None:
        """End what runs, and start nothing else; from a signal handler, and repeatedly."""
        self._is_killed = True
        if self._session is not None:
            try:
                self._session.end()
            except IcebergError as error:
                log.warning("the Spark session cannot be ended: %s", error)

    def stop(self) -> None:
        """Stop the session, and whatever runs on it."""
        self._session = self._frame = None
        self._open.close()


@contextmanager
def opened_session(conn_id: str | None, config: Mapping[str, Any], *, app_name: str) -> Iterator[Session]:
    """Open a session for a connection, as `@task.pyspark` does, and stop it at the end of the block.

    Raises:
        InvalidInputError: the connection is of another type, or a setting is none of a session of Spark Connect.
        UnsupportedError: there is no pyspark.
        IcebergError: the server of Spark Connect does not answer.
    """
    from airflow_iceberg.backends.backend import CONNECTED_TYPE

    connection = BaseHook.get_connection(conn_id) if conn_id else None
    if connection is not None and connection.conn_type == CONNECTED_TYPE:
        with _connected(connection, config) as session:
            yield session
        return
    if connection is not None and connection.conn_type not in _CLASSIC:
        raise InvalidInputError(
            f"connection {conn_id!r} has the type {connection.conn_type!r}, expected spark or spark_connect"
        )
    spark = _submitted(connection, config, app_name=app_name)
    try:
        yield Session(spark=spark, end=spark.stop)
    finally:
        spark.stop()


@contextmanager
def _connected(connection: Connection, config: Mapping[str, Any]) -> Iterator[Session]:
    from airflow_iceberg.backends.connect import server_of
    from airflow_iceberg.jobs.spark.connect import close, configure, connect_mode

    server, session_id = server_of(connection), str(uuid4())
    with connect_mode():
        spark = server.open(session_id)
        try:
            configure(spark, config)
            # A session that a signal has interrupted may hold locks of its client: it is ended by another one.
            yield Session(spark=spark, end=lambda: server.end(session_id), readable=server.readable)
        finally:
            close(spark)


def _submitted(connection: Connection | None, config: Mapping[str, Any], *, app_name: str) -> Any:
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnsupportedError(f"a function that returns a Spark DataFrame needs pyspark here: {error}") from error
    settings: dict[str, str] = {"spark.app.name": app_name, "spark.master": "local[*]"}
    if connection is not None:
        if connection.host:
            settings["spark.master"] = f"{connection.host}:{connection.port}" if connection.port else connection.host
        settings |= {str(key): str(value) for key, value in connection.extra_dejson.items()}
    settings |= {str(key): str(value) for key, value in config.items()}
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    # The JVM of a local master starts Python workers of its own, which need the packages of this process.
    is_local = settings["spark.master"].startswith("local") and "PYSPARK_PYTHON" not in os.environ
    with as_environment({"PYSPARK_PYTHON": sys.executable} if is_local else {}):
        with _java_started_with(job_environment(os.environ, {})):
            return SparkSession.builder.config(conf=conf).getOrCreate()


@contextmanager
def _java_started_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Let pyspark start Java with these variables, and its own.

    It would hand on all of this process, to the workers of a local master, too, and takes no others.
    """
    from pyspark import java_gateway

    start = java_gateway.Popen

    def started(command: Any, **options: Any) -> Any:
        own = {name: value for name, value in options["env"].items() if os.environ.get(name) != value}
        return start(command, **{**options, "env": {**variables, **own}})

    java_gateway.Popen = started
    try:
        yield
    finally:
        java_gateway.Popen = start
