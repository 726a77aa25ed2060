"""What a DAG file pays for importing our operators, sensors and triggers, on top of `airflow.sdk`.

The peer is the limit of 0.1 s. Each import happens in a child of its own, forked from a process that has imported
`airflow.sdk` and nothing else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.measure import note
from tests.support.airflow_home import settings

LIMIT_SECONDS, GOAL = 0.1, 1.0
MODULES = (
    "airflow_iceberg.operators._rows",
    "airflow_iceberg.operators.create_table",
    "airflow_iceberg.sensors.iceberg",
    "airflow_iceberg.triggers.iceberg",
)
PROBE = """
import importlib, json, os, sys, time
import airflow.sdk
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
for module in sys.argv[1:]:
    if os.fork() == 0:
        started = time.perf_counter()
        importlib.import_module(module)
        print(json.dumps({"module": module, "seconds": time.perf_counter() - started}), flush=True)
        os._exit(0)
    os.wait()
"""


@contextmanager
def ours(bench: Bench) -> Iterator[Run]:
    yield lambda: _slowest(bench.work)


LINES = (
    Line(
        name="imports",
        what="import of operators, sensors, triggers beyond airflow.sdk",
        against=f"the limit of {LIMIT_SECONDS} s",
        ours=ours,
        peer=LIMIT_SECONDS,
        goal=GOAL,
    ),
)


def _slowest(home: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *MODULES],
        # pip compiles what it installs. Here the run that warms up does.
        env=os.environ | settings(home) | {"PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    taken = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(taken) != len(MODULES):
        raise RuntimeError(f"of {len(MODULES)} imports {len(taken)} came through: {done.stderr[-2000:]}")
    slowest = max(taken, key=lambda item: item["seconds"])
    note(f"    {slowest['module']}: {slowest['seconds']:.3f} s")
    return float(slowest["seconds"])
