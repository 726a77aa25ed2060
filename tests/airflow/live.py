"""A whole Airflow in processes of its own: API server, scheduler with LocalExecutor, DAG processor and triggerer.

On the loopback interface, in a folder and a process group of its own; what dies in it can take nothing else along.
"""

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import psutil

from tests.support.airflow_home import ROOT, migrate, settings

T = TypeVar("T")


class LiveAirflow:
    """Started on entry, healthy when that returns; all its processes are gone on exit."""

    def __init__(self, home: Path, *, dags: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {**os.environ, **settings(home, dags_folder=dags), **self._options(), **environment}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token: str | None = None

    def _options(self) -> dict[str, str]:
        return {
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            # A worker that was killed together with its task is noticed by its missing heartbeats alone.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._stop)
            migrate(self.home)
            self._start("api-server", "--host", "127.0.0.1", "--port", str(self.port))
            self._start("scheduler", "--skip-serve-logs")
            self._start("dag-processor")
            self.start_triggerer()
            self.wait_for(self._healthy, "Airflow to be healthy")
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start_triggerer(self, name: str = "triggerer") -> None:
        """Start a triggerer, also in place of one that was killed, or a second one, under another name."""
        self._start("triggerer", "--skip-serve-logs", name=name)

    def kill_triggerer(self, name: str = "triggerer") -> None:
        """Kill a triggerer and what it has started, as the kernel does."""
        process = self._processes.pop(name)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def started_by_tasks(self) -> list[psutil.Process]:
        """Return what runs below the scheduler: workers, tasks, and all that these have started."""
        return psutil.Process(self._processes["scheduler"].pid).children(recursive=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Airflow's to its end, beside what runs."""
        words = [sys.executable, "-m", "airflow", *command]
        return subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)

    def _start(self, *command: str, name: str | None = None) -> None:
        log = (self.home / f"{name or command[0]}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: its children are signalled with it, and nobody else.
                start_new_session=True,
            )
        self._processes[name or command[0]] = process

    def _stop(self) -> None:
        for process in self._processes.values():
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + 8
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        for process in self._processes.values():
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def _healthy(self) -> bool:
        try:
            health = self.call("GET", "/api/v2/monitor/health", token=False)
        except (OSError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(health[part]["status"] == "healthy" for part in parts)

    @property
    def token(self) -> str:
        """What lets a user in: a header of requests, or a cookie of a browser."""
        self._token = self._token or self.call("GET", "/auth/token", token=False)["access_token"]
        return self._token

    def call(self, method: str, path: str, body: Any = None, *, token: bool = True) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                # The database is one file, which a busy machine locks for longer than Airflow waits.
                if error.code != 500 or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
        except urllib.error.HTTPError as error:
            if error.code == 404:  # not parsed yet
                return []
            raise
        return found

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances"
        found: list[dict[str, Any]] = self.call("GET", path)["task_instances"]
        return found

    def log(self, task: Mapping[str, Any], try_number: int | None = None) -> str:
        """Return what the UI shows as the log of a task's try, by default its last one, a line an event."""
        number = try_number or task["try_number"]
        path = f"{path_of(task)}/logs/{number}?map_index={task['map_index']}&full_content=true"
        return "\n".join(json.dumps(event) for event in self.call("GET", path)["content"])

    def mark_failed(self, task: Mapping[str, Any]) -> None:
        """Mark a task failed, as the button in the UI does."""
        self.call("PATCH", path_of(task), {"new_state": "failed"})

    def xcom(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}"
        answer = self.call("GET", f"{path}/xcomEntries/return_value?map_index={map_index}&stringify=false")
        return answer["value"]

    def ended(self, dag_id: str, run_id: str | None = None) -> tuple[str, list[dict[str, Any]]]:
        """Wait for a run of a DAG, by default its only one, to succeed; return its id and its tasks."""

        def found() -> dict[str, Any] | None:
            runs = (run for run in self.runs(dag_id) if run_id in (None, run["dag_run_id"]))
            return next((run for run in runs if run["state"] in ("success", "failed")), None)

        run = self.wait_for(found, f"the run of {dag_id} to end")
        assert run["state"] == "success", self.logs()
        return run["dag_run_id"], self.tasks(dag_id, run["dag_run_id"])

    def trigger(self, dag_id: str) -> str:
        """Start a run without a logical date, and return its id."""
        return str(self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of the only run of a DAG, as the button in the UI does, and wait until it starts again."""
        body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, "reset_dag_runs": True}
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", body)
        self.wait_for(lambda: self.runs(dag_id)[0]["state"] != "success", "the run to start again")

    def wait_for(self, answer: Callable[[], T | None], what: str, *, timeout_s: float = 550) -> T:
        deadline = time.monotonic() + timeout_s
        while True:
            found = answer()
            if found:
                return found
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{self.logs()}"
            time.sleep(0.5)

    def logs(self, lines: int = 40) -> str:
        """Return the ends of all logs: of the components, and of every try of every task."""
        ends = []
        for path in sorted(self.home.rglob("*.log")):
            ends.append(f"--- {path.relative_to(self.home)}")
            ends += path.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(ends)


def path_of(task: Mapping[str, Any]) -> str:
    """Return the path of a task instance in the API."""
    run_id = quote(task["dag_run_id"], safe="")
    return f"/api/v2/dags/{task['dag_id']}/dagRuns/{run_id}/taskInstances/{task['task_id']}"


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
