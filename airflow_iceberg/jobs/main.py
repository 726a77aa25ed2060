"""The program that spark-submit starts: `main.py PLAN_LOCATION`.

One file that needs nothing but Python and pyspark to start; `airflow_iceberg` itself comes beside it, as the zip in
`--py-files` or installed on the cluster. Storage properties, which may hold secrets, come as JSON in the environment
variable AIRFLOW_ICEBERG_STORAGE and never on the command line. Its imports are in its functions: what is missing goes
into a message, or into the result document once there can be one.

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


def main(arguments: list[str]) -> int:
    """Run the plan at a location and print one line about its result."""
    if len(arguments) != 1:
        return _fail("usage: main.py PLAN_LOCATION")
    try:
        from airflow_iceberg.jobs.spark.driver_guard import start_guard

        # Before anything that takes long is imported.
        start_guard(f"job {arguments[0]}")

        from airflow_iceberg.errors import IcebergError
        from airflow_iceberg.jobs.protocol.plan import JobPlan
        from airflow_iceberg.storage.stores.fsspec_io import load_file_io
    except ImportError as error:
        return _fail(_missing(error))
    try:
        storage = json.loads(os.environ.get(STORAGE_VARIABLE) or "{}")
        io = load_file_io(storage)
        plan = JobPlan.from_json(io.read(arguments[0]), path=arguments[0])
    except (IcebergError, ValueError) as error:
        return _fail(f"cannot read the job plan {arguments[0]}: {error}")
    try:
        return _run(plan, io, storage)
    except IcebergError as error:
        return _fail(f"{plan.table}: no result written: {error}")


def _run(plan: "JobPlan", io: "FileIO", storage: dict[str, str]) -> int:
    from airflow_iceberg.jobs.protocol.result import JobResult, write_result

    try:
        from airflow_iceberg.jobs.spark.run import run_spark

        spark = _session(plan)
    except Exception as error:  # noqa: BLE001 - whatever keeps Spark from starting belongs into the result
        traceback.print_exc()
        result = write_result(plan, io, JobResult.failed(_readable(error)))
    else:
        try:
            result = run_spark(plan, io, spark, storage=storage)
        finally:
            spark.stop()
    return _say(plan, result)


def _readable(error: Exception) -> Exception:
    """Return an error of Spark without the stack traces in its text, and a missing package with what to do."""
    from airflow_iceberg.errors import IcebergError

    if isinstance(error, ImportError):
        return IcebergError(_missing(error))
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


def _say(plan: "JobPlan", result: "JobResult") -> int:
    what = f"airflow_iceberg: {plan.operation} {plan.table}"
    if result.error is not None:
        _print(f"{what}: failed: {result.error.kind}: {result.error.message}")
        return 1
    rows, files, seconds = result.record_count, len(result.data_files), result.timings.get("total", 0.0)
    if plan.operation == "inventory":
        _print(f"{what}: found {rows} files in {len(result.units)} tasks in {seconds:.1f} s ({result.engine})")
        return 0
    _print(f"{what}: staged {rows} rows in {files} files in {seconds:.1f} s ({result.engine})")
    return 0


def _fail(message: str) -> int:
    _print(f"airflow_iceberg: {message}")
    return 2


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
