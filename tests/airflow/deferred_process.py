"""One process of a task that may be deferred: `python -m tests.airflow.deferred_process < event-or-null`.

It knows the operator's arguments (in DEFERRED_TASK) and the event of the trigger, and prints what Airflow would store:
the trigger of a deferral, or the result.
"""

import importlib
import json
import os
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

from airflow.providers.common.compat.sdk import TaskDeferred


def main() -> None:
    kind, options = json.loads(os.environ["DEFERRED_TASK"])
    operator = getattr(importlib.import_module("airflow_iceberg.operators"), kind)(task_id="t", **options)
    started = datetime(2026, 1, 2, tzinfo=UTC)
    run = SimpleNamespace(start_date=started, run_after=started, logical_date=None, clear_number=0)
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1, max_tries=0)
    context = {"ti": ti, "dag_run": run, "task": operator}
    event = json.load(sys.stdin)
    try:
        result = operator.execute(context) if event is None else operator.execute_complete(context, event)
    except TaskDeferred as deferral:
        answer = {"trigger": deferral.trigger.serialize()}
    else:
        answer = {"result": result}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
