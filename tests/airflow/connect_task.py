"""A task that runs a job on Spark Connect, in a process of its own, which `test_connect` kills.

    python -m tests.airflow.connect_task FOLDER {"table": "s.t", "try": 1, "arguments": {…}}

It does what Airflow's task runner does: it calls `on_kill` on SIGTERM. What the task raised is in FOLDER/error.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.airflow.killed_operator import BEGUN, context_of


def main(folder: Path, order: dict[str, Any]) -> None:
    from airflow.sdk import DAG

    from airflow_iceberg.operators.append import IcebergAppendOperator

    with DAG("killed", schedule=None, start_date=BEGUN):
        task = IcebergAppendOperator(
            task_id="task", table=order["table"], spark_conn_id="connect", **order["arguments"]
        )
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    error = "none"
    try:
        task.execute(context_of(task, {"try": order["try"], "epoch": 0}))
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    finally:
        (folder / "error.part").write_text(error)
        (folder / "error.part").replace(folder / "error")
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
