"""A worker that watches a task that runs a Spark job: the processes that `test_driver_ends` kills.

    python -m tests.airflow.job_chain FOLDER {"keeps_lock": true, "alarm_while_cancelled": true, "try": 2, "rows": 3}

The worker does what Airflow's supervisor does to a task: it forks the task, whose standard input is a socket to it, and
waits for its end. The task does what Airflow's task runner does: it calls `on_kill` on SIGTERM and after its execution
timeout, which is an hour, or whenever SIGALRM comes. What the task raised is in FOLDER/error.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tests.airflow.killed_operator import BEGUN, context_of

USERS_CODE = str(Path(__file__).parent / "endless_rows.py")


def worker(folder: Path, options: dict[str, Any]) -> None:
    ours, of_task = socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        os.dup2(of_task.fileno(), 0)
        of_task.close()
        run_task(folder, options)
    of_task.close()
    os.waitpid(pid, 0)


def run_task(folder: Path, options: dict[str, Any]) -> None:
    error = "none"
    try:
        execute(folder, options)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    finally:
        (folder / "error.part").write_text(error)
        (folder / "error.part").replace(folder / "error")
        os._exit(1)


def execute(folder: Path, options: dict[str, Any]) -> None:
    from airflow.providers.common.compat.sdk import AirflowTaskTimeout
    from airflow.sdk import DAG
    from airflow.sdk.execution_time.timeout import timeout

    from airflow_iceberg.backends.config import SparkConfig
    from airflow_iceberg.operators.append import IcebergAppendOperator

    with DAG("chain", schedule=None, start_date=BEGUN):
        task = IcebergAppendOperator(
            task_id="task",
            table="s.t",
            python_callable="endless_rows:hold",
            op_kwargs={
                "folder": str(folder),
                "keeps_lock": options.get("keeps_lock", False),
                "rows": options.get("rows", 0),
            },
            spark_config=SparkConfig(py_files=(USERS_CODE,), conf={"spark.ui.enabled": "false"}),
        )
    if options.get("alarm_while_cancelled"):
        alarm_while_cancelled()
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    try:
        with timeout(3600):
            context = context_of(task, {"try": options.get("try", 1), "epoch": 0})
            context["ti"].map_index = options.get("map_index", -1)
            task.execute(context)
    except AirflowTaskTimeout:
        task.on_kill()
        raise


def alarm_while_cancelled() -> None:
    """Let the execution timeout come in the middle of the first cancellation."""
    from airflow_iceberg.backends.driver_link import DriverLink

    real = DriverLink.end_drivers
    calls: list[int] = []

    def end_drivers(link: DriverLink) -> None:
        calls.append(1)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGALRM)
        real(link)

    DriverLink.end_drivers = end_drivers  # type: ignore[method-assign]


if __name__ == "__main__":
    worker(Path(sys.argv[1]), json.loads(sys.argv[2]))
