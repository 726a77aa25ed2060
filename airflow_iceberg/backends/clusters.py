"""Which cluster a Spark connection means, whether its drivers run there, and who can be asked for them.

Not here: submitting (`backends.spark_submit`), what an application is known by (`backends.applications`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_iceberg.backends.asking import Manager
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.kubernetes import NAMESPACE, ApiServer, is_kubernetes, namespace_of
from airflow_iceberg.backends.kubernetes_access import SETTINGS
from airflow_iceberg.backends.private_files import default_settings
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.errors import IcebergError, InvalidInputError

if TYPE_CHECKING:
    from airflow.sdk import Connection

MODE = "spark.submit.deployMode"


def is_yarn(connection: Connection) -> bool:
    """Whether jobs of a connection run on YARN."""
    return connection.conn_type == "yarn" or (connection.host or "").startswith("yarn")


def is_on_cluster(connection: Connection, config: SparkConfig) -> bool:
    """Whether drivers run on the cluster, and not on this machine."""
    mode = config.deploy_mode or connection.extra_dejson.get("deploy-mode")
    return (mode or config.conf.get(MODE)) == "cluster"


def reason_to_wait(connection: Connection, config: SparkConfig) -> str | None:
    """Return why jobs of a connection cannot be asked for by others than spark-submit; None if they can."""
    name = repr(connection.conn_id)
    if not is_on_cluster(connection, config):
        return (
            f"the driver of connection {name} is a process of the task, in deploy mode client; YARN and Kubernetes in "
            f"deploy mode cluster can be asked for a job"
        )
    if not (is_yarn(connection) or is_kubernetes(connection)):
        return f"the cluster of connection {name} is not asked for its jobs, YARN and Kubernetes can be"
    try:
        open_manager(connection, config, {**os.environ, **config.env_vars})
    except IcebergError as error:
        return str(error)
    return None


def open_manager(connection: Connection, config: SparkConfig, environment: Mapping[str, str]) -> Manager:
    """Return who knows the applications of a connection, on YARN or on Kubernetes.

    Args:
        environment: the variables of this process and of spark-submit.
    Raises:
        IcebergError: its address, or who this process is to it, is unknown.
    """
    extra = connection.extra_dejson
    if is_yarn(connection):
        return ResourceManager.of(extra, environment, config.conf, user=config.proxy_user)
    found = {name: configured(name, config, environment) for name in (*SETTINGS, NAMESPACE)}
    found[NAMESPACE] = namespace_of(extra, config.conf, found[NAMESPACE])
    return ApiServer.of(connection, environment, {name: value for name, value in found.items() if value})


def configured(name: str, config: SparkConfig, environment: Mapping[str, str]) -> str | None:
    """Return a setting of Spark that a user or the machine's spark-defaults.conf makes."""
    if config.conf.get(name):
        return str(config.conf[name])
    path = Path(config.properties_file) if config.properties_file else None
    with contextlib.suppress(InvalidInputError, OSError):
        path = path or default_settings(environment)
        for line in reversed((path.read_text(errors="replace") if path else "").splitlines()):
            found, *value = re.split(r"\s*[\s=:]\s*", line.strip(), maxsplit=1)
            if found == name and value:
                return value[0]
    return None
