"""The program that spark-submit starts: `main.py PLAN_LOCATION PLAN_SEAL`.

One file that needs only Python and pyspark to start; `airflow_iceberg` itself is in the zip of `--py-files` or
installed on the cluster. Storage properties, which may hold secrets, are JSON in the environment variable
AIRFLOW_ICEBERG_STORAGE and never on the command line; AIRFLOW_ICEBERG_PRIVATE names the file with the secrets of the
source, with what the result is signed with, and on YARN with the storage properties. Its imports are in its functions:
a missing package is named in a message, or in the result document once there can be one.

Exit code: 0 the result document says succeeded, 1 it says failed, 2 no result document could be written.
"""

import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.storage.base import FileIO

STORAGE_VARIABLE = "AIRFLOW_ICEBERG_STORAGE"
PRIVATE_VARIABLE = "AIRFLOW_ICEBERG_PRIVATE"


def main(arguments: list[str]) -> int:
    """Run the plan at a location and print one line with its result."""
    if len(arguments) != 2:
        return _end(2, "usage: main.py PLAN_LOCATION PLAN_SEAL")
    location, seal = arguments
    try:
        from airflow_iceberg.jobs.spark.driver_guard import start_guard

        # Before anything that takes long is imported.
        start_guard(f"job {location}")

        from airflow_iceberg.errors import IcebergError
        from airflow_iceberg.jobs.protocol.plan import JobPlan
        from airflow_iceberg.storage.stores.fsspec_io import load_file_io
    except ImportError as error:
        return _end(2, _missing(error))
    try:
        private = _private()
        storage = private.get("storage") or json.loads(os.environ.get(STORAGE_VARIABLE) or "{}")
        io = load_file_io(storage)
        # Everything that the job will do is in the plan, and anybody who can write to the table's folder can change it.
        plan = JobPlan.open(io, location, seal).completed(private.get("source", {}))
    except (IcebergError, ValueError, OSError) as error:
        return _end(2, f"cannot read the job plan {location}: {error}")
    try:
        return _run(plan, io, storage, private)
    except IcebergError as error:
        return _end(2, f"{plan.table}: no result written: {error}")


def _private() -> dict[str, Any]:
    """Return what only the driver may know: from a file that only it can read.

    On a cluster it was sent with `--files` and is in the driver's working directory.
    """
    # Not for the user's code, whose processes inherit the environment.
    path = os.environ.pop(PRIVATE_VARIABLE, None)
    if path is None:
        return {}
    with open(path, "rb") as file:
        return dict(json.load(file))


def _run(plan: "JobPlan", io: "FileIO", storage: dict[str, str], private: dict[str, Any]) -> int:
    from airflow_iceberg.jobs.protocol.heartbeat import kept_alive
    from airflow_iceberg.jobs.protocol.result import JobResult, write_result

    secret, inputs = private.get("result-secret"), private.get("inputs")
    try:
        from airflow_iceberg.jobs.spark.run import run_spark

        spark = _session(plan)
        _say_progress(spark)
    except Exception as error:  # noqa: BLE001 - any error that keeps Spark from starting belongs in the result
        traceback.print_exc()
        result = write_result(plan, io, JobResult.failed(_readable(error)), secret=secret)
    else:
        try:
            # The task may be deferred, and its process gone.
            with kept_alive(plan.gated(io), plan.staging_location):
                result = run_spark(plan, io, spark, storage=storage, inputs=inputs, secret=secret)
        finally:
            spark.stop()
    return _say(plan, result)


def _readable(error: Exception) -> Exception:
    """Return an error of Spark without stack traces, and for a missing package what to do."""
    from airflow_iceberg.jobs.spark.errors import as_iceberg_error

    return as_iceberg_error(error)


def _missing(error: ImportError) -> str:
    return (
        f"cannot import airflow_iceberg under {sys.executable} ({error}); pass its zip with --py-files, and "
        "install pyarrow and fsspec for the Python of the driver and the workers (PYSPARK_PYTHON)"
    )


def _session(plan: "JobPlan") -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(f"airflow_iceberg {plan.operation} {plan.table}").getOrCreate()


def _say_progress(spark: Any) -> None:
    """Let the output of the driver, which is in the task's log, say which application runs and how far it is."""
    import logging

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("airflow_iceberg: %(message)s"))
    log = logging.getLogger("airflow_iceberg.jobs.progress")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    context = spark.sparkContext
    page = f", its page is {context.uiWebUrl}" if context.uiWebUrl else ""
    log.info("the Spark application is %s%s", context.applicationId, page)


def _say(plan: "JobPlan", result: "JobResult") -> int:
    what = f"{plan.operation} {plan.table}"
    if result.error is not None:
        return _end(1, f"{what}: failed: {result.error.kind}: {result.error.message}")
    rows, seconds = result.record_count, result.timings.get("total", 0.0)
    found = f"staged {rows} rows in {len(result.data_files)} files"
    if plan.operation == "inventory":
        found = f"found {rows} files in {len(result.units)} tasks"
    return _end(0, f"{what}: {found} in {seconds:.1f} s ({result.engine})")


def _end(exit_code: int, message: str) -> int:
    sys.stdout.write(f"airflow_iceberg: {message}\n")
    sys.stdout.flush()
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
