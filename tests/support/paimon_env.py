"""The environment of the other readers and writers of Paimon, `.venv-paimon`: programs run there and answer in JSON."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.airflow_home import ROOT
from tests.support.iceberg_java_env import python_of

PROGRAM = ROOT / "tests" / "support" / "paimon_peer.py"


def paimon_python() -> Path:
    return python_of(".venv-paimon", "PAIMON_PYTHON", "pypaimon")


def peer(command: str, *arguments: object, program: Path = PROGRAM) -> Any:
    """Run a command of `paimon_peer` and return its answer, None where it has none."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"TZ": "UTC"}
    done = subprocess.run(
        [paimon_python(), program, command, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout) if done.stdout.strip() else None
