"""What the DAGs of `dags` and `dags_of_maintenance` share: a task installs its own death in its process, once."""

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

FOLDER = Path(os.environ["AIRFLOW_ICEBERG_TEST_LAKE"])
# More than one: on a busy machine a try can end before it reaches its task.
DEFAULTS = {"retries": 8, "retry_delay": timedelta(0)}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def dag(name: str) -> DAG:
    return DAG(name, schedule="@once", start_date=BEGIN, catchup=True, default_args=DEFAULTS)


def is_first(name: str, try_number: int) -> bool:
    """Whether no try of a task has come here before; write down that this one has."""
    mark = FOLDER / f"killed-{name}"
    if mark.exists():
        return False
    mark.write_text(str(try_number))
    return True


def die(*, with_worker: bool = False) -> None:
    """Be killed as by the kernel; `with_worker` takes the process that watches the task along."""
    if with_worker:
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def before(owner: Any, name: str) -> None:
    replace(owner, name, lambda real: lambda *_, **__: die())


def after(owner: Any, name: str, **how: bool) -> None:
    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> None:
            real(*args, **kwargs)
            die(**how)

        return call

    replace(owner, name, make)
