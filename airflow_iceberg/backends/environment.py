"""The environment of a job: that of the Airflow worker, without what belongs to Airflow and without secrets.

A driver on the worker's machine, and on a local master its Python workers, inherit the environment of spark-submit.
They run code of the DAG's author, and need neither Airflow's connections, keys and database nor the secrets of other
programs. Not here: what a secret is (`redaction`), and the variables that a job gets beyond the worker's
(`backends.spark_submit`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from airflow_iceberg.redaction import secrets_of

log = logging.getLogger(__name__)

# AIRFLOW_CONN_…, AIRFLOW__CORE__FERNET_KEY, _AIRFLOW_WWW_USER_PASSWORD, __AIRFLOW_SUPERVISOR_FD.
_OF_AIRFLOW = re.compile(r"_*AIRFLOW", re.IGNORECASE)
# Java and Spark need their own settings, and no request leaves some networks without a proxy. Their values may hold a
# password, such as that of a trust store.
_NEEDED = re.compile(
    r"(?:SPARK|PYSPARK|HADOOP|HDFS|YARN|KRB5|JAVA)_|KRB5|_?JAVA_OPTIONS$|JDK_JAVA_OPTIONS$|.*_PROXY$", re.IGNORECASE
)
# The variables by which clients of a store find credentials, and the properties that take their place.
_STORES: Mapping[str, tuple[str, ...]] = {
    "AWS_": ("s3.", "client."),
    "AZURE_": ("adls.",),
    "GOOGLE_": ("gcs.",),
    "HF_": ("hf.",),
}


def job_environment(worker: Mapping[str, str], storage: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the worker that a job gets.

    These are all but Airflow's, and those that are or contain a secret. Credentials of a store are left where the
    properties of the table's store have none of their own, which the job then finds as the worker would.

    Args:
        worker: the worker's environment.
        storage: the properties by which the job reaches the table's files.
    """
    kept, withheld = {}, []
    for name, value in worker.items():
        if _OF_AIRFLOW.match(name):
            continue
        if secrets_of({name: value}) and not (_NEEDED.match(name) or _is_for_the_table(name, storage)):
            withheld.append(name)
        else:
            kept[name] = value
    _tell(withheld)
    return kept


def _is_for_the_table(name: str, storage: Mapping[str, str]) -> bool:
    """Whether a variable is a credential of a store for which the connection has none."""
    for variables, properties in _STORES.items():
        if name.upper().startswith(variables):
            return not secrets_of({key: value for key, value in storage.items() if key.startswith(properties)})
    return False


def _tell(withheld: Iterable[str]) -> None:
    if names := ", ".join(sorted(withheld)):
        log.info(
            "the job does not get these variables of the worker, which may be secrets: %s; name those that it needs in "
            "env_vars of spark_config",
            names,
        )


@contextlib.contextmanager
def as_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process inside the block: for the search for a Spark, and for its start."""
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
