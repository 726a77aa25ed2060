"""Starting a job with spark-submit, following it, and cancelling it, and the checks before it starts.

How a job ended according to the back end is a hint; only the result document that the job has written counts.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow.providers.common.compat.sdk import AirflowException

from airflow_iceberg.backends.applications import TAGS, Applications
from airflow_iceberg.backends.clusters import configured, is_on_cluster, is_yarn, open_manager
from airflow_iceberg.backends.config import PRIVATE_VARIABLE, STORAGE_VARIABLE, Machine, SparkConfig
from airflow_iceberg.backends.driver_link import DriverLink
from airflow_iceberg.backends.environment import as_environment, further_names, job_environment
from airflow_iceberg.backends.kubernetes import WAITS, is_kubernetes
from airflow_iceberg.backends.kubernetes_access import submit_settings
from airflow_iceberg.backends.pages import SparkPages, history_page
from airflow_iceberg.backends.private_files import default_settings, write_private, write_settings
from airflow_iceberg.errors import (
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    UnsupportedError,
    advised,
    switch,
)
from airflow_iceberg.jobs.protocol.one_time_signature import new_seed, public_key
from airflow_iceberg.jobs.spark.driver_guard import TASK_VARIABLE
from airflow_iceberg.redaction import SPARK_PATTERN, SPARK_VARIABLES_PATTERN, is_secret_setting, secrets_of
from airflow_iceberg.storage.addresses import endpoint_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.backends.asking import Manager
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)
# Python workers keep the memory that Arrow frees for a minute. The next file needs as much again, and the kernel's
# clearing of new pages took a tenth of a compaction's processor time.
WORKER_SETTINGS: Mapping[str, str] = {"spark.executorEnv.MIMALLOC_PURGE_DELAY": "60000"}
# The task starts the job again, with new names for its files: YARN must not do so by itself with the old ones.
# Never more: a seed signs one document, and a second driver would sign another one.
YARN_SETTINGS: Mapping[str, str] = {"spark.yarn.maxAppAttempts": "1"}
DEFAULT_BINARY = "spark-submit"
# How long a driver may take to end after it was killed; the system needs milliseconds.
END_SECONDS = 10


def spark_environment(storage: Mapping[str, str]) -> dict[str, str]:
    """Return the variables from which Spark's own readers of S3 take their credentials, for driver and executors."""
    if not storage.get("s3.access-key-id"):
        return {}
    names = {
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "AWS_SESSION_TOKEN",
        "s3.region": "AWS_REGION",
        "s3.endpoint": "AWS_ENDPOINT_URL",
    }
    given = {**storage, "s3.endpoint": endpoint_of(storage, "s3.endpoint")}
    return {variable: value for name, variable in names.items() if (value := given.get(name))}


def spark_settings(storage: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark's own readers of S3 that are not secret."""
    endpoint = endpoint_of(storage, "s3.endpoint")
    if not endpoint:
        return {}
    is_path_style = not switch(storage, "s3.force-virtual-addressing")
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": str(is_path_style).lower(),
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(endpoint.lower().startswith("https")).lower(),
    }


class SparkSubmit:
    """Submits a job with spark-submit, through the Spark provider's hook, and waits for it if it is to."""

    def __init__(
        self,
        connection: Connection,
        config: SparkConfig,
        *,
        storage: Mapping[str, str],
        inputs: Mapping[str, Mapping[str, str]],
        name: str,
        tell: Callable[[SparkPages], None] | None = None,
    ) -> None:
        self._tell = tell
        self._connection, self._conn_id = connection, connection.conn_id
        self._config = config
        self._storage = storage
        self._inputs = inputs
        self._name = name
        self._hook: Any = None
        self._link: DriverLink | None = None
        self._applications: Applications | None = None
        # Signs the result, so that the task knows that its own job has written it.
        self._result_secret = new_seed()
        self._is_logged = False
        self._waits = True
        self.is_killed = False
        extra = self._extra = connection.extra_dejson
        master = self._master = connection.host or ""
        self._is_yarn, self._is_on_cluster = is_yarn(connection), is_on_cluster(connection, config)
        self._is_kubernetes = is_kubernetes(connection)
        if connection.conn_type == "spark" and not master:
            raise InvalidInputError(
                f"spark connection {self._conn_id!r} has no host; "
                f"set it to a master: local[*], yarn, spark://host:7077 or k8s://https://host"
            )
        if self._is_on_cluster and master.startswith("spark://"):
            raise advised(
                UnsupportedError(
                    f"spark connection {self._conn_id!r}: Spark's standalone master runs no Python programs in deploy "
                    f"mode cluster"
                ),
                "use deploy mode client",
            )
        if self._is_on_cluster and not self._is_yarn and any(map(secrets_of, (storage, *self._inputs.values()))):
            raise UnsupportedError(
                f"spark connection {self._conn_id!r}: outside of YARN, a driver in deploy mode cluster would get the "
                f"catalog's storage credentials on spark-submit's command line; use deploy mode client, or let the "
                f"cluster have its own credentials and take them out of the catalog's connection"
            )
        self._machine = self._find_spark(extra.get("spark-binary") or DEFAULT_BINARY)

    def run(self, plan: JobPlan) -> None:
        """Submit the job and follow it to its end."""
        # A folder of this submission only, which no other user can enter: in a shared one another user could put
        # another zip in its place.
        with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder, DriverLink(self._lose_worker) as link:
            self._link = link
            try:
                self._submit(plan, folder)
            finally:
                link.end_drivers()
                if not link.wait(END_SECONDS):
                    log.warning("a driver of connection %r has not ended after %s s", self._conn_id, END_SECONDS)

    def submit(self, plan: JobPlan) -> dict[str, Any]:
        """Submit the job without waiting for its end; in deploy mode cluster on YARN and Kubernetes alone."""
        self._waits = False
        with tempfile.TemporaryDirectory(prefix="airflow-iceberg-") as folder:
            self._submit(plan, folder)
        if self.is_killed:
            return {}
        assert self._applications is not None
        try:
            return self._applications.reference(self._hook.application_id)
        except BaseException:
            self.cancel()
            raise

    def _submit(self, plan: JobPlan, folder: str) -> None:
        from airflow_iceberg.jobs.spark.package import build_zip, main_program

        task = None if self._link is None else self._link.path
        self._hook = hook = self._open_hook(plan, build_zip(folder), task=task)
        if self._applications is not None and self._is_on_cluster and not self.is_killed:
            self._applications.end_earlier()
        if self.is_killed:
            return
        hook.output.tell = partial(self._tell_pages, hook.environment)
        try:
            hook.submit(str(main_program()))
        except AirflowException:
            if self._applications is not None and not self.is_killed:
                # spark-submit can fail alone.
                self._applications.end_own(was_killed=False)
            raise
        except BaseException:  # Airflow's timeout is no Exception, and the job must not outlive it
            self.cancel()
            hook.reap()
            raise

    @property
    def result_key(self) -> str:
        return public_key(self._result_secret)

    def read_result(self, io: FileIO, plan: JobPlan) -> JobResult:
        """Return the result that the driver has signed."""
        from airflow_iceberg.operations.staging import read_result

        return read_result(io, plan, key=self.result_key)

    def cancel(self) -> None:
        """Kill the submission with its driver, and on a cluster the application."""
        self.is_killed = True
        was_running = self._hook is not None and self._hook.is_running
        if self._link is not None:
            self._link.end_drivers()
        if self._hook is not None:
            self._hook.on_kill()
            if self._applications is not None and self._hook.was_submitted:
                self._applications.end_own(was_killed=was_running)
        if self._link is not None:
            # Airflow may start the next try as soon as this returns.
            self._link.wait(END_SECONDS)
        # Logged once, also when the first of two cancellations was interrupted by the other.
        if not self._is_logged:
            self._is_logged = True
            log.warning("job %r: killed; nothing was committed", self._name)

    def explain(self, error: IcebergError) -> IcebergError:
        """Return an error that the job could not explain with the cause that Spark's output names.

        Its class is that of the error, but for a package that the driver lacks, which no retry installs.
        """
        if self._hook is None or type(error) not in (IcebergError, StalePlanError):
            return error
        output, died = self._hook.output, isinstance(error, StalePlanError)
        cause = output.cause(str(error), died=died)
        if not cause:
            return error
        kind = UnsupportedError if output.lacks_package(died=died) else type(error)
        explained = kind(f"{cause}; {error}")
        explained.advice = output.advice(died=died)
        return explained

    def _tell_pages(self, environment: Mapping[str, str], pages: SparkPages) -> None:
        # YARN counts the starts of a driver, of which there is one (`YARN_SETTINGS`).
        attempt = "1" if self._is_yarn and self._is_on_cluster else ""
        history = history_page(pages.application_id, self._extra, self._config, environment, attempt=attempt)
        if self._tell is not None:
            self._tell(replace(pages, history_page=history))

    def _lose_worker(self) -> None:
        self.cancel()
        # The task's log has ended with the worker; this may be logged elsewhere, too.
        log.warning("the Airflow worker that watched this task has ended")

    def _open_hook(self, plan: JobPlan, core: Path, *, task: str | None = None) -> Any:
        from airflow_iceberg.backends._submit_hook import IcebergSubmitHook

        config, folder = self._config, core.parent
        public, secret = self._settings()
        private = self._write_private(plan, folder)
        # A driver on a cluster cannot reach the task's socket.
        links = {} if self._is_on_cluster else {TASK_VARIABLE: task, PRIVATE_VARIABLE: private}
        here = {**job_environment(os.environ, self._storage), **self._machine.environment}
        here |= {name: str(path) for name, path in links.items() if path is not None}
        properties_file = config.properties_file
        public |= self._identify(plan, here)
        if self._is_kubernetes:
            known, variables = submit_settings(self._extra, folder, is_on_cluster=self._is_on_cluster)
            public, here = {**public, **known}, {**here, **variables}
        if secret and not self._is_on_cluster:
            base = Path(properties_file) if properties_file else default_settings(here)
            properties_file = str(write_settings(folder / "spark.properties", secret, base=base))
        else:
            public |= secret
        return IcebergSubmitHook(
            conn_id=self._conn_id,
            machine=replace(self._machine, environment=here, folder=str(folder)),
            waits=self._waits,
            conf=public,
            env_vars=self._cluster_variables(private) or None,
            files=str(private) if self._is_on_cluster else None,
            py_files=",".join([str(core), *config.py_files]),
            jars=",".join(config.jars) or None,
            packages=",".join(config.packages) or None,
            driver_memory=config.driver_memory,
            executor_memory=config.executor_memory,
            num_executors=config.num_executors,
            executor_cores=config.executor_cores,
            total_executor_cores=config.total_executor_cores,
            properties_file=properties_file,
            proxy_user=config.proxy_user,
            yarn_queue=config.queue,
            deploy_mode=config.deploy_mode,
            name=f"airflow_iceberg {plan.operation} {plan.table} {self._name}",
            application_args=[plan.location, str(plan.seal)],
        )

    def _identify(self, plan: JobPlan, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the settings by which the application of this submission is found on its cluster."""
        reached = {**environment, **{name: str(value) for name, value in self._config.env_vars.items()}}
        if not (self._is_yarn or (self._is_kubernetes and self._is_on_cluster)):
            return {}

        def manager() -> Manager:
            # A program that a kubeconfig names may need what the job must not have.
            return open_manager(self._connection, self._config, {**os.environ, **reached})

        self._applications = applications = Applications(plan.operation_key, plan.table_uuid, manager)
        waits = str(self._waits).lower()
        if self._is_kubernetes:
            return {**applications.labels(), WAITS: waits}
        settings = {TAGS: applications.tags(configured(TAGS, self._config, reached))}
        return {**settings, "spark.yarn.submit.waitAppCompletion": waits} if self._is_on_cluster else settings

    def _settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return Spark's settings: those for the command line, and those that hold secrets."""
        ours = {
            "spark.redaction.regex": f"{SPARK_PATTERN}|{SPARK_VARIABLES_PATTERN}",
            **WORKER_SETTINGS,
            **spark_settings(self._storage),
        }
        always = YARN_SETTINGS if self._is_yarn and self._is_on_cluster else {}
        settings = {name: str(value) for name, value in {**ours, **self._config.conf, **always}.items()}
        secret = {name: value for name, value in settings.items() if is_secret_setting(name, value)}
        return {name: value for name, value in settings.items() if name not in secret}, secret

    def _write_private(self, plan: JobPlan, folder: Path) -> Path:
        """Write what only the driver may know.

        That is what signs the result, what the plan withholds of the source, how inputs of other connections are
        reached, and for a driver on YARN the table's files, too: there it is in a folder of the application that only
        its user can read.
        """
        values = plan.withheld_values()
        private = {"result-secret": self._result_secret, "source": values, "inputs": self._inputs}
        if self._is_yarn and self._is_on_cluster:
            private["storage"] = self._storage
        return write_private(folder / f"private-{uuid4().hex}.json", json.dumps(private).encode())

    def _cluster_variables(self, private: Path) -> dict[str, str]:
        """Return the variables of a driver on a cluster, which the hook sends as Spark properties."""
        if not self._is_on_cluster:
            return {}
        storage = {} if self._is_yarn else self._storage_variable()
        return {**self._config.env_vars, **storage, PRIVATE_VARIABLE: private.name}

    def _credentials_of_clients(self) -> dict[str, str]:
        """Return the variables for clients of S3 that are not ours; none if tables of several connections are read.

        An input's client would take them, too: the address of one store, and the keys of another.
        """
        return {} if self._inputs else spark_environment(self._storage)

    def _storage_variable(self) -> dict[str, str]:
        return {STORAGE_VARIABLE: json.dumps(self._storage)} if self._storage else {}

    def _find_spark(self, binary: str) -> Machine:
        """Find spark-submit and the variables that it needs on this machine.

        A driver in client mode is a process of this machine: it gets the storage's properties in its environment, which
        neither the command line nor Spark's UI shows. So it gets `env_vars`, which the provider's hook would put on the
        command line for some masters.
        """
        from airflow_iceberg.jobs.spark.installation import find_submit

        local = {} if self._is_on_cluster else {**self._credentials_of_clients(), **self._storage_variable()}
        with as_environment(self._config.env_vars):
            try:
                path, found = find_submit(binary, more=(*further_names(), *self._config.env_vars))
            except (NotFoundError, UnsupportedError) as error:
                found_none = type(error)(f"cannot submit with connection {self._conn_id!r}: {error}")
                found_none.advice = error.advice
                raise found_none from error
        local |= {} if self._is_on_cluster else {name: str(value) for name, value in self._config.env_vars.items()}
        return Machine(binary=str(path), environment={**self._python(found), **local})

    def _python(self, found: Mapping[str, str]) -> dict[str, str]:
        """Make a driver in client mode, and on a local master its workers, run on the Python of this environment.

        Executors on a cluster do not have this machine's files, and use the Python of the cluster.
        """
        variables = dict(found)
        python = variables.pop("PYSPARK_PYTHON", None)
        chosen = {"spark.pyspark.python", "spark.pyspark.driver.python"} & set(self._config.conf)
        if python is None or chosen or self._is_on_cluster:
            return variables
        name = "PYSPARK_PYTHON" if self._master.startswith("local") else "PYSPARK_DRIVER_PYTHON"
        return {**variables, name: python}
