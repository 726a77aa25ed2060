"""Starting a job where a connection says, following it, and cancelling it.

Here: the back ends, their choice by the connection's type, and what is checked before anything is started. Not here:
the job itself (`jobs`), and the subclass of the Spark provider's hook, which costs most of a second to import
(`_submit_hook`).

A back end's word about how a job ended is a hint; the truth is the result document that the job wrote or did not write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from airflow_iceberg.backends.driver_link import DriverLink
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StalePlanError, UnsupportedError
from airflow_iceberg.jobs.driver_guard import TASK_VARIABLE

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.jobs.protocol import JobPlan, JobResult, Source
    from airflow_iceberg.storage.base import FileIO
    from airflow_iceberg.table import Table

log = logging.getLogger(__name__)

STORAGE_VARIABLE = "AIRFLOW_ICEBERG_STORAGE"
# What a job needs to reach the table's files; everything else in a catalog's properties is the catalog's own business,
# its credentials above all.
STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.")
# Spark's own pattern knows neither credentials nor account keys; what matches is hidden in its log, UI and events.
REDACTION = f"(?i)secret|passw|token|credential|access.?key|account.?key|connection.?string|{STORAGE_VARIABLE}"
_SECRET_SETTING = re.compile(REDACTION.removeprefix("(?i)"), re.IGNORECASE)
# Python workers keep for a minute what Arrow gives back. The next file needs as much again, and the pages that the
# kernel hands out, cleared first, took a tenth of a compaction's processor time.
WORKER_SETTINGS: Mapping[str, str] = {"spark.executorEnv.MIMALLOC_PURGE_DELAY": "60000"}
DEFAULT_BINARY = "spark-submit"
# How long a driver may take to end after it was killed; the system needs milliseconds.
END_SECONDS = 10
SUBMITTED_TYPES = ("spark", "yarn", "k8s", "local", "mesos")


@dataclass(frozen=True, kw_only=True, slots=True)
class SparkConfig:
    """Resources and options of a submitted job, all optional; the connection says where it runs.

    Attributes:
        conf: Spark properties, `{"spark.sql.shuffle.partitions": "16"}`.
        env_vars: environment variables of the driver.
        driver_memory, executor_memory: such as "4g".
        num_executors, executor_cores, total_executor_cores: as for spark-submit.
        py_files, jars, packages: further Python files, jars and Maven coordinates.
        deploy_mode: "client" or "cluster"; the connection's own by default.
        queue: YARN queue; the connection's own by default.
        properties_file: instead of spark-defaults.conf.
        proxy_user: whom to act for.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    executor_memory: str | None = None
    num_executors: int | None = None
    executor_cores: int | None = None
    total_executor_cores: int | None = None
    py_files: Sequence[str] = ()
    jars: Sequence[str] = ()
    packages: Sequence[str] = ()
    deploy_mode: str | None = None
    queue: str | None = None
    properties_file: str | None = None
    proxy_user: str | None = None

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows and keeps of the DAG: the settings that were made, without secrets."""
        settings = {name: getattr(self, name) for name in self.__slots__}
        shown = {name: value for name, value in settings.items() if value not in (None, (), {}, [])}
        for name in ("conf", "env_vars"):
            if name in shown:
                shown[name] = {key: hide(key, value) for key, value in shown[name].items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in shown.items()}

    def __repr__(self) -> str:
        return f"SparkConfig({self.serialize()!r})"

    # Airflow turns what it does not know into text.
    __str__ = __repr__


def hide(key: str, value: Any) -> Any:
    """Return a setting's value as logs and forms may show it."""
    return "***" if _SECRET_SETTING.search(str(key)) else value


class Backend(Protocol):
    """Where jobs run.

    Attributes:
        is_killed: the job was cancelled; what it stages is not used, whatever it reports.
    """

    is_killed: bool

    def run(self, plan: JobPlan) -> None:
        """Run a job to its end; raises AirflowException when it ended badly, whatever it wrote."""

    def cancel(self) -> None:
        """End the job that is running, if any; called from a signal handler, and again while it runs."""

    def explain(self, error: IcebergError) -> IcebergError:
        """Return an error of a job with its cause first, where the back end knows more than the job could say."""


def open_backend(spark_conn_id: str | None, config: SparkConfig, *, table: Table, source: Source, name: str) -> Backend:
    """Return the back end of a connection, ready to run; whatever can be known to be missing is found here.

    Args:
        spark_conn_id: None runs the job in this process.
        table: that the job writes to.
        name: what the job is called where it runs.
    Raises:
        NotFoundError: no such connection, no Spark, no Java.
        InvalidInputError: the connection is of another type, or two versions of Spark lie over each other.
        UnsupportedError: a back end, or a source for it, that this version does not have.
    """
    if spark_conn_id is None:
        if source.kind in ("sql", "callable"):
            what = "a sql query" if source.kind == "sql" else "a python_callable"
            raise UnsupportedError(
                f"{what} needs Spark, got spark_conn_id=None; name a connection of type spark, or load files"
            )
        return InProcess(table.io)
    connection = _connection(spark_conn_id)
    _check_type(connection)
    return SparkSubmit(connection, config, storage=storage_properties(_reaching(table)), name=name)


def run_job(backend: Backend, table: Table, plan: JobPlan) -> JobResult:
    """Run a job and return what it staged.

    Raises:
        IcebergError: the job was cancelled; or its own error, of the class that the job raised.
        StalePlanError: the job died without a word; carries the last lines of its output.
    """
    ended_badly: AirflowException | None = None
    try:
        backend.run(plan)
    except AirflowException as error:
        ended_badly = error
    if backend.is_killed:
        # No StalePlanError, upon which some operations would plan again and start the next job.
        raise IcebergError(f"the job for table {plan.table} was killed; nothing was committed") from ended_badly
    try:
        result = table.read_result(plan)
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


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return of a catalog's properties those by which a job reaches the table's files."""
    return {key: value for key, value in properties.items() if key.startswith(STORAGE_PREFIXES)}


def _reaching(table: Table) -> Mapping[str, str]:
    """Return the properties by which the table's files are reached: with what its REST catalog lent for them."""
    lent = getattr(table.io, "current_properties", None)
    return {**table.catalog.properties, **(lent() if lent is not None else {})}


def spark_environment(storage: Mapping[str, str]) -> dict[str, str]:
    """Return the variables from which Spark's own readers of S3 take their credentials.

    Spark reads them in the driver and hands them to its executors inside its own messages.
    """
    if not storage.get("s3.access-key-id"):
        return {}
    names = {
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "AWS_SESSION_TOKEN",
        "s3.region": "AWS_REGION",
        "s3.endpoint": "AWS_ENDPOINT_URL",
    }
    return {variable: storage[name] for name, variable in names.items() if storage.get(name)}


def spark_settings(storage: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark's own readers of S3 that are no secrets."""
    endpoint = storage.get("s3.endpoint")
    if not endpoint:
        return {}
    is_path_style = storage.get("s3.force-virtual-addressing", "").lower() != "true"
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": str(is_path_style).lower(),
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https")).lower(),
    }


class InProcess:
    """Runs a job over threads of this very process: files only, no JVM."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self.is_killed = False

    def run(self, plan: JobPlan) -> None:
        """Run the job to its end."""
        from airflow_iceberg.jobs.local import run_local

        run_local(plan, self._io, is_stopped=lambda: self.is_killed)

    def cancel(self) -> None:
        """Begin no further task of the job; those that run end by themselves, or with this process."""
        self.is_killed = True

    def explain(self, error: IcebergError) -> IcebergError:
        """Return the error as it is."""
        return error


class SparkSubmit:
    """Submits a job with spark-submit, through the Spark provider's hook, and waits for it."""

    def __init__(self, connection: Connection, config: SparkConfig, *, storage: Mapping[str, str], name: str) -> None:
        self._conn_id = connection.conn_id
        self._config = config
        self._storage = storage
        self._name = name
        self._hook: Any = None
        self._link: DriverLink | None = None
        self._is_logged = False
        self.is_killed = False
        extra = connection.extra_dejson
        master = self._master = connection.host or ""
        self._deploy_mode = config.deploy_mode or extra.get("deploy-mode") or "client"
        if connection.conn_type == "spark" and not master:
            raise InvalidInputError(
                f"spark connection {self._conn_id!r} has no host; "
                f"set it to a master: local[*], yarn, spark://host:7077 or k8s://https://host"
            )
        if self._deploy_mode == "cluster" and master.startswith("spark://"):
            raise UnsupportedError(
                f"spark connection {self._conn_id!r}: Spark's standalone master runs no Python programs in deploy mode "
                f"cluster; use client"
            )
        if self._deploy_mode == "cluster" and any(_SECRET_SETTING.search(key) for key in storage):
            raise UnsupportedError(
                f"spark connection {self._conn_id!r}: a driver in deploy mode cluster would get the catalog's storage "
                f"credentials on spark-submit's command line; use deploy mode client, or let the cluster have its own "
                f"credentials and take them out of the catalog's connection"
            )
        self._machine = self._find_spark(extra.get("spark-binary") or DEFAULT_BINARY)

    def run(self, plan: JobPlan) -> None:
        """Submit the job and follow it to its end."""
        from airflow_iceberg.jobs.package import build_zip, main_program

        # A folder of this submission's own: in a shared one somebody else could lay a zip of his in our way.
        with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder, DriverLink(self._lose_worker) as link:
            self._link = link
            self._hook = hook = self._open_hook(plan, build_zip(folder), task=link.path)
            if self.is_killed:
                return
            try:
                hook.submit(str(main_program()))
            except AirflowException:
                raise
            except BaseException:  # Airflow's timeout is no Exception, and the job must not outlive it
                self.cancel()
                hook.reap()
                raise
            finally:
                link.end_drivers()
                if not link.wait(END_SECONDS):
                    log.warning("a driver of connection %r has not ended after %s s", self._conn_id, END_SECONDS)

    def cancel(self) -> None:
        """Kill the submission with its driver, and on a cluster the application."""
        self.is_killed = True
        if self._link is not None:
            self._link.end_drivers()
        if self._hook is not None:
            self._hook.on_kill()
        if self._link is not None:
            # Airflow may start the next try as soon as this returns.
            self._link.wait(END_SECONDS)
        # Said once, also when the first of two cancellations was interrupted by the other.
        if not self._is_logged:
            self._is_logged = True
            log.warning("job %r: killed; nothing was committed", self._name)

    def explain(self, error: IcebergError) -> IcebergError:
        """Return an error that the job could not explain with what the output of Spark says about its cause."""
        if self._hook is None or type(error) not in (IcebergError, StalePlanError):
            return error
        cause = self._hook.output.cause(str(error), died=isinstance(error, StalePlanError))
        return type(error)(f"{cause}; {error}") if cause else error

    def _lose_worker(self) -> None:
        self.cancel()
        # The worker has taken the task's log along; it may be kept elsewhere, too.
        log.warning("the Airflow worker that watched this task has ended")

    def _open_hook(self, plan: JobPlan, core: Path, *, task: str | None = None) -> Any:
        from airflow_iceberg._submit_hook import IcebergSubmitHook

        config = self._config
        # A driver on a cluster cannot reach the task's socket.
        link = {} if task is None or self._deploy_mode == "cluster" else {TASK_VARIABLE: task}
        return IcebergSubmitHook(
            conn_id=self._conn_id,
            machine=replace(self._machine, environment={**self._machine.environment, **link}),
            conf={
                "spark.redaction.regex": REDACTION,
                **WORKER_SETTINGS,
                **spark_settings(self._storage),
                **config.conf,
            },
            env_vars=self._env_vars() or None,
            py_files=",".join([str(core), *config.py_files]),
            jars=",".join(config.jars) or None,
            packages=",".join(config.packages) or None,
            driver_memory=config.driver_memory,
            executor_memory=config.executor_memory,
            num_executors=config.num_executors,
            executor_cores=config.executor_cores,
            total_executor_cores=config.total_executor_cores,
            properties_file=config.properties_file,
            proxy_user=config.proxy_user,
            yarn_queue=config.queue,
            deploy_mode=config.deploy_mode,
            name=f"airflow_iceberg {plan.operation} {plan.table} {self._name}",
            application_args=[plan.location],
        )

    def _env_vars(self) -> dict[str, str]:
        """What the driver needs wherever it runs; the hook takes it to the cluster as Spark properties."""
        return {**self._config.env_vars, **(self._storage_variable() if self._deploy_mode == "cluster" else {})}

    def _storage_variable(self) -> dict[str, str]:
        return {STORAGE_VARIABLE: json.dumps(self._storage)} if self._storage else {}

    def _find_spark(self, binary: str) -> Machine:
        """Find spark-submit and the variables that it needs on this machine.

        A driver in client mode is a process of this machine: it gets the storage's properties by its environment, where
        neither the command line nor Spark's UI shows them.
        """
        from airflow_iceberg.jobs.local_spark import find_submit

        is_here = self._deploy_mode != "cluster"
        local = {**spark_environment(self._storage), **self._storage_variable()} if is_here else {}
        with _as_environment(self._config.env_vars):
            try:
                path, found = find_submit(binary)
            except (NotFoundError, UnsupportedError) as error:
                raise type(error)(f"cannot submit with connection {self._conn_id!r}: {error}") from error
        return Machine(binary=str(path), environment={**self._python(found), **local})

    def _python(self, found: Mapping[str, str]) -> dict[str, str]:
        """Make a driver in client mode, and on a local master its workers, run on the Python of this environment.

        Executors on a cluster do not have this machine's files: their Python is theirs to choose.
        """
        variables = dict(found)
        python = variables.pop("PYSPARK_PYTHON", None)
        chosen = {"spark.pyspark.python", "spark.pyspark.driver.python"} & set(self._config.conf)
        if python is None or chosen or self._deploy_mode == "cluster":
            return variables
        name = "PYSPARK_PYTHON" if self._master.startswith("local") else "PYSPARK_DRIVER_PYTHON"
        return {**variables, name: python}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """How Spark is started on this machine.

    Attributes:
        binary: spark-submit, with its path.
        environment: variables of that process alone; they go to no cluster and on no command line.
    """

    binary: str
    environment: Mapping[str, str] = field(repr=False)


@contextlib.contextmanager
def _as_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let the search for Spark see the variables that the job will see (SPARK_HOME, JAVA_HOME, PYSPARK_PYTHON)."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
