"""The Spark provider's hook for submissions, with this machine's Spark, stricter masking, and no orphaned drivers.

A separate module because the provider's takes most of a second to import; it is imported when a job starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_iceberg.backends.config import STORAGE_VARIABLE, Machine
from airflow_iceberg.backends.spark_output import SparkOutput
from airflow_iceberg.redaction import shown_command

_PR_SET_PDEATHSIG = 1
_REAP_SECONDS = 10
_STORAGE = re.compile(rf"({STORAGE_VARIABLE}=)(\{{.*?\}})(?=\s--|\s\S+\.py\b|$)")


class IcebergSubmitHook(SparkSubmitHook):
    """Submits with the spark-submit of `machine`; everything else is the provider's."""

    def __init__(self, *, machine: Machine, **kwargs: Any) -> None:
        self._machine = machine
        self._is_killed = False
        super().__init__(**kwargs)
        self.output = SparkOutput(master=str(self._connection["master"]))

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit and wait; a driver on this machine ends when the task's process does."""
        if self._is_killed:
            raise AirflowException("the job was killed before it was submitted")
        # The task's own standard input is its connection to the supervisor.
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        if self._connection["deploy_mode"] != "cluster" and sys.platform == "linux":
            # Without this a killed task leaves a Spark behind that competes with the next try for the machine, and
            # whose files are not used.
            kwargs.setdefault("preexec_fn", _die_with_parent(ctypes.CDLL(None, use_errno=True)))
        try:
            return super().submit(application, **kwargs)
        finally:
            if self._submit_sp is not None:
                self.output.exit_code = self._submit_sp.returncode

    def on_kill(self) -> None:
        """Kill the submission, also while it starts; may be called again."""
        self._is_killed = True
        super().on_kill()

    def reap(self) -> None:
        """Wait until a killed spark-submit has ended; not for signal handlers, which may interrupt the wait."""
        if self._submit_sp is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._submit_sp.wait(_REAP_SECONDS)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._is_killed and self._submit_sp is not None:
            # A signal came between the start of the process and the moment when it was known here.
            self._submit_sp.kill()
        self.log.info("::group::Output of spark-submit")
        try:
            super()._process_spark_submit_log(self.output.watched(itr))
        finally:
            self.log.info("::endgroup::")

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command = super()._build_spark_submit_command(application)
        # For this process only: the provider sends `env_vars` to the cluster, on the command line.
        self._env = {**self._machine.environment, **(self._env or {})}
        return command

    def _get_spark_binary_path(self) -> list[str]:
        return [self._machine.binary]

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        if isinstance(connection_cmd, str):
            # The value of the variable is JSON, with blanks in it.
            connection_cmd = _STORAGE.sub(r"\1******", connection_cmd).split(" ")
        return super()._mask_cmd(shown_command(connection_cmd))


def _die_with_parent(libc: ctypes.CDLL) -> Any:
    task = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != task:
            os._exit(1)  # the task has ended meanwhile

    return prepare
