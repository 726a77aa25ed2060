"""A task in a process of its own, under a process that watches it as Airflow's worker does: `job_chain`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.support.airflow_home import ROOT

# For a machine that does a hundred other things.
SECONDS = 300.0


class TaskProcess:
    """A task whose job works until it is ended, or gives rows; see `endless_rows`.

    Args:
        told: a function that says more when something was waited for in vain.
    """

    def __init__(self, folder: Path, options: dict[str, Any], told: Callable[[], str] = lambda: "") -> None:
        self.folder, self._told = folder, told
        folder.mkdir()
        with (folder / "log").open("wb") as log:
            self.worker = subprocess.Popen(
                [sys.executable, "-m", "tests.airflow.job_chain", str(folder), json.dumps(options)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def wait_for(self, answer: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := answer()):
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.log[-5000:]}\n{self._told()[-5000:]}"
            time.sleep(0.1)
        return found

    def wait_until_it_works(self) -> None:
        self.wait_for((self.folder / "begun").exists, "the function to begin")

    def is_submitting(self) -> bool:
        with contextlib.suppress(psutil.Error):
            return any("org.apache.spark.deploy.SparkSubmit" in one.cmdline() for one in self._processes())
        return False

    def cancel(self) -> None:
        """Send what Airflow sends to the task; `on_kill` is called."""
        self._processes()[0].send_signal(signal.SIGTERM)

    def ended(self) -> str:
        """Wait for the end, and return the task's error."""
        self.wait_for(lambda: self.worker.poll() is not None, "the task to end")
        return (self.folder / "error").read_text()

    def die(self) -> None:
        """Kill all of it, as a machine that is switched off."""
        # The task first: it would cancel its job when it loses its worker.
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.worker.kill()
        self.worker.wait()

    def lose_worker(self) -> None:
        """Kill what watches the task, as the system does when memory runs out; the task itself lives on."""
        self.worker.kill()
        self.worker.wait()

    def _processes(self) -> list[psutil.Process]:
        """Return the task, and all that it has started."""
        try:
            return psutil.Process(self.worker.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
