"""A program that executes operators in processes that are killed at a chosen step of their I/O.

    python -m tests.airflow.killed_operator

Reads one order a line, `{"operator": …, "arguments": {…}, "try": 1, "epoch": 0, "die_at": 7}`, executes the operator's
`execute` in a process of its own, and answers with one line: `{"killed": …, "steps": …, "result": …, "error": …}`. The
process is a fork of one that has imported everything, so that an order takes as long as its work. Airflow's settings
and connections come with the environment.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RETRIES = 3
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def execute(order: dict[str, Any], answer: Path) -> None:
    """Execute an operator as the task of one DAG run, and leave the answer."""
    from airflow.sdk import DAG

    from airflow_iceberg import operators
    from airflow_iceberg.decorators import iceberg as decorated
    from tests.support import mortal

    name, arguments = order["operator"], order["arguments"]
    kind = getattr(operators, name, None) or getattr(decorated, name)
    if "rows_of" in arguments:
        arguments |= {"python_callable": rows_of_file, "op_args": [arguments.pop("rows_of")]}
    if "changes" in arguments:
        arguments["inputs"] = {"i": operators.Changes(arguments.pop("changes"), since="last")}
    with DAG("killed", schedule=None, start_date=BEGUN):
        task = kind(task_id="task", retries=RETRIES, **arguments)
    if order["die_at"] is None:
        mortal.count()
    else:
        mortal.arm(order["die_at"])
    told: dict[str, Any] = {"killed": False}
    try:
        told["result"] = task.execute(context_of(task, order))
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
        told["trace"] = traceback.format_exc()
    mortal.arm(None)
    answer.write_text(json.dumps({**told, "steps": mortal.steps(), "kinds": mortal.kinds()}))


def rows_of_file(path: str) -> Any:
    """Return rows, as the function of a decorator does."""
    import pyarrow.parquet as pq

    return pq.read_table(path)


def context_of(task: Any, order: dict[str, Any]) -> Any:
    """Return what Airflow hands to a task: a try of a run, which was cleared so many tries ago."""
    ti = SimpleNamespace(
        dag_id="killed",
        run_id="run",
        task_id="task",
        map_index=-1,
        try_number=order["try"],
        max_tries=RETRIES + order["epoch"],
        xcom_push=lambda **_: None,
    )
    return {
        "ti": ti,
        "task": task,
        "dag_run": SimpleNamespace(run_after=BEGUN, start_date=BEGUN),
        "outlet_events": {},
    }


def main() -> None:
    """Answer until the input ends."""
    answer = Path(tempfile.mkdtemp()) / "answer"
    for line in sys.stdin:
        order = json.loads(line)
        answer.unlink(missing_ok=True)
        if "modules" in order:
            # What an operator imports as it goes is imported here, once.
            for name in order["modules"]:
                with suppress(ImportError):
                    importlib.import_module(name)
            told: dict[str, Any] = {}
        else:
            told = _in_a_process(order, answer)
        print(json.dumps(told), flush=True)


def _in_a_process(order: dict[str, Any], answer: Path) -> dict[str, Any]:
    pid = os.fork()
    if not pid:
        # Whatever Airflow prints must not mix with the answers.
        os.dup2(2, 1)
        code = 1
        try:
            execute(order, answer)
            if order.get("names_modules"):
                answer.write_text(json.dumps({**json.loads(answer.read_text()), "modules": list(sys.modules)}))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"killed": True}
    assert os.WEXITSTATUS(status) == 0, order
    told: dict[str, Any] = json.loads(answer.read_text())
    return told


if __name__ == "__main__":
    main()
