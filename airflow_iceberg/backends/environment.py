"""The environment of a job: those variables of the Airflow worker that a job needs.

A driver on the worker's machine, and on a local master its Python workers, inherit the environment of spark-submit.
They run code of the DAG's author, and need neither Airflow's connections, keys and database nor the secrets of other
programs. Not here: the list (`jobs.spark.kept_variables`), the variables that a job gets beyond the worker's
(`backends.spark_submit`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping

from airflow_iceberg.jobs.spark.kept_variables import checked_names, kept_variables

log = logging.getLogger(__name__)

OPTION = "job_environment_variables"
"""The option that names variables which jobs need beyond the list."""
_SECTION = "airflow_iceberg"


def job_environment(worker: Mapping[str, str], storage: Mapping[str, str], *, is_told: bool = True) -> dict[str, str]:
    """Return the variables of the worker that a job gets, and say in the log which ones it does not get.

    Args:
        worker: the worker's environment.
        storage: the properties by which the job reaches the table's files.
        is_told: whether the log says so.
    Raises:
        InvalidInputError: the option does not name variables.
    """
    kept = kept_variables(worker, storage, further_names())
    left = sorted(name for name in worker.keys() - kept.keys() if "AIRFLOW" not in name.upper())
    if left and is_told:
        # One line for each job: whoever misses a variable in one looks for its name in the job's log.
        log.info(
            "the job gets %d of the worker's variables, and not %s; name those that it needs in env_vars of "
            "spark_config, or for all jobs in the option %s of the section [%s]",
            len(kept),
            ", ".join(left),
            OPTION,
            _SECTION,
        )
    return kept


def further_names() -> tuple[str, ...]:
    """Return the variables that jobs get beyond the list, as the option names them.

    Raises:
        InvalidInputError: it does not name variables.
    """
    from airflow.providers.common.compat.sdk import conf

    given = str(conf.get(_SECTION, OPTION, fallback="") or "")
    return checked_names(given, what=f"option [{_SECTION}] {OPTION}")


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
