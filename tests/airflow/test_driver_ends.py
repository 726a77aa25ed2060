"""The driver of a job ends with its task: every process of the chain is killed, and all others end.

Worker, task, spark-submit, driver and the driver's guard are real processes with a real Spark. Nothing is waited for
but conditions, each with a limit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_iceberg.jobs.spark.installation import spark_home
from tests.airflow.conftest import Lake
from tests.support.airflow_home import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.services]
START_SECONDS = 300.0
# Milliseconds pass until all have ended; the limit is for a machine that does a hundred other things.
END_SECONDS = 60.0
NAMES = ("worker", "task", "spark-submit", "driver", "guard")


class Chain:
    """The processes, by their names."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.worker = process
        self.seen: dict[int, psutil.Process] = {}

    def find(self) -> dict[str, psutil.Process]:
        try:
            all_of_them = psutil.Process(self.worker.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return {}
        found = {"worker": psutil.Process(self.worker.pid)}
        for process in all_of_them:
            self.seen[process.pid] = process
            try:
                words = process.cmdline()
                parent = process.ppid()
            except psutil.Error:
                continue
            if parent == self.worker.pid:
                found["task"] = process
            elif words and words[0].endswith("java") and "org.apache.spark.deploy.SparkSubmit" in words:
                found["spark-submit"] = process
            elif any(word.endswith("jobs/main.py") for word in words[:3]):
                found["driver" if found.get("driver") is None or parent != found["driver"].pid else "guard"] = process
        self.seen[self.worker.pid] = found["worker"]
        return found

    def wait_for(self, *names: str) -> dict[str, psutil.Process]:
        def there() -> dict[str, psutil.Process] | None:
            found = self.find()
            return found if found.keys() >= set(names) else None

        return wait_for(there, f"{names} to start", self, START_SECONDS)

    def wait_until_it_works(self) -> dict[str, psutil.Process]:
        """Wait until the user's function runs, and return all processes."""
        wait_for(lambda: (self.folder / "begun").exists(), "the function to begin", self, START_SECONDS)
        return self.wait_for(*NAMES)

    def alive(self) -> list[str]:
        alive = []
        for process in self.seen.values():
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
            except psutil.Error:
                continue
        return alive

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        """Send a signal to a process; wait until nobody is left, and check that the user's function has stopped."""
        self.find()[name].send_signal(how)
        self.worker.wait(END_SECONDS)  # it waits for its task; a task whose worker was killed ends by itself
        started = time.monotonic()
        wait_for(lambda: not self.alive(), "all processes to end", self, END_SECONDS)
        sys.stderr.write(f"all have ended after {time.monotonic() - started:.2f} s\n")
        beats = self.folder / "beats"
        before = beats.stat().st_size if beats.exists() else 0
        time.sleep(0.2)
        assert (beats.stat().st_size if beats.exists() else 0) == before

    def error(self) -> str:
        return (self.folder / "error").read_text()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def wait_for(answer: Callable[[], Any], what: str, chain: Chain, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = answer()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for {what}; {chain.alive()}\n{chain.log()[-3000:]}"
        time.sleep(0.05)


@pytest.fixture
def start(lake: Lake, tmp_path: Path, airflow_db: Path) -> Iterator[Callable[..., Chain]]:
    chains = []

    def begin(*, path: str | None = None, **options: bool) -> Chain:
        lake.create()
        environment = {
            **os.environ,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "PYTHONPATH": str(ROOT),
            **({"SPARK_HOME": path} if path else {}),
        }
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.airflow.job_chain", str(tmp_path), json.dumps(options)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        chains.append(Chain(tmp_path, process))
        return chains[-1]

    yield begin
    for chain in chains:
        chain.find()
        for process in chain.seen.values():
            if process.is_running():
                process.kill()
        chain.worker.wait()


class TestAProcessThatIsKilled:
    """Whichever of them dies first, the others end, and the function of the user with them."""

    @pytest.mark.parametrize(
        "victim", ["task", "worker", "spark-submit", pytest.param("driver", marks=pytest.mark.long)]
    )
    def test_takes_all_others_along(self, victim, lake, start):
        chain = start()
        chain.wait_until_it_works()
        chain.end(victim)
        assert lake.load().current_snapshot() is None
        if victim in ("spark-submit", "driver"):
            who = "spark-submit" if victim == "spark-submit" else "the driver"
            first = chain.error().splitlines()[0]
            assert first.startswith(f"AirflowException: {who} was killed by SIGKILL; most often memory ran out: ")
            assert "; the job for table s.t ended " in first
            assert "nothing was committed" in first
        else:
            assert "killed; nothing was committed" in chain.log()

    @pytest.mark.parametrize("victim", ["task", pytest.param("spark-submit", marks=pytest.mark.long)])
    def test_and_its_guard_before_it(self, victim, start):
        """A function that keeps Python's lock, too: no thread of the driver could notice anything."""
        chain = start(keeps_lock=True)
        found = chain.wait_until_it_works()
        found["guard"].kill()
        # The driver does not ask for its end, so that it stays in the list of processes.
        wait_for(lambda: found["guard"].status() == psutil.STATUS_ZOMBIE, "the guard to end", chain, END_SECONDS)
        chain.end(victim)

    @pytest.mark.parametrize("moment", ["spark-submit", "driver"])
    def test_while_the_driver_is_starting(self, moment, start):
        chain = start()
        chain.wait_for(moment)
        chain.end("task")
        assert not (chain.folder / "begun").exists()


class TestAScriptBetweenTaskAndSpark:
    """It does not end with the task, nor does the Spark that it has started; the driver does, and Spark then."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        home = tmp_path / "spark"
        (home / "bin").mkdir(parents=True)
        (home / "jars").symlink_to(spark_home() / "jars")
        script = home / "bin" / "spark-submit"
        script.write_text(
            f'#!/bin/sh\nexport SPARK_HOME="{spark_home()}"\n"$SPARK_HOME/bin/spark-submit" "$@"\nexit $?\n'
        )
        script.chmod(0o755)
        return str(home)

    def test_a_killed_task_ends_them_through_the_driver(self, path, start):
        chain = start(path=path, keeps_lock=True)
        chain.wait_until_it_works()
        chain.end("task")
        assert "killed; nothing was committed (the task has ended)" in chain.log()

    def test_a_driver_that_starts_after_the_tasks_end_does_nothing(self, path, start):
        chain = start(path=path)
        chain.wait_for("spark-submit")
        chain.end("task")
        assert not (chain.folder / "begun").exists()


class TestATaskThatIsCancelled:
    """By Airflow, with SIGTERM, or after its execution timeout: it waits until its driver has ended, and says so."""

    def test_after_its_timeout(self, lake, start):
        chain = start(keeps_lock=True)
        chain.wait_until_it_works()
        chain.end("task", signal.SIGALRM)
        assert chain.error().startswith("AirflowTaskTimeout: ")
        assert "killed; nothing was committed" in chain.log()
        assert lake.load().current_snapshot() is None

    @pytest.mark.parametrize("alarm", [False, pytest.param(True, marks=pytest.mark.long)])
    def test_by_a_signal_and_by_its_timeout_meanwhile(self, alarm, lake, start):
        chain = start(alarm_while_cancelled=alarm)
        chain.wait_until_it_works()
        chain.end("task", signal.SIGTERM)
        expected = (
            "AirflowTaskTimeout: " if alarm else "AirflowException: the job for table s.t was killed; nothing was "
        )
        assert chain.error().startswith(expected)
        assert "killed; nothing was committed" in chain.log()
        assert lake.load().current_snapshot() is None
