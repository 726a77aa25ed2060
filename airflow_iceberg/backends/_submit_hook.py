"""The Spark provider's hook for submissions, with this machine's Spark, tighter masking, and no orphans.

A module of its own because the provider's costs most of a second to import; only `submit` imports it, when a job
starts.
"""

from __future__ import annotations

import ctypes
import re
import signal
import sys
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_iceberg.backends.config import STORAGE_VARIABLE, Machine
from airflow_iceberg.redaction import shown_command

_PR_SET_PDEATHSIG = 1
_STORAGE = re.compile(rf"({STORAGE_VARIABLE}=)(\{{.*?\}})(?=\s--|\s\S+\.py\b|$)")


class IcebergSubmitHook(SparkSubmitHook):
    """Submits with a given spark-submit; everything else is the provider's.

    Args:
        machine: the program to call and the environment to give it.
    """

    def __init__(self, *, machine: Machine, **kwargs: Any) -> None:
        self._machine = machine
        super().__init__(**kwargs)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit and wait; a driver on this machine ends when the task's process does."""
        if self._connection["deploy_mode"] != "cluster" and sys.platform == "linux":
            # Without this a killed task leaves a Spark behind that competes with the next try's for the machine. What
            # it stages would count for nothing.
            kwargs.setdefault("preexec_fn", _die_with_parent(ctypes.CDLL(None, use_errno=True)))
        return super().submit(application, **kwargs)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command = super()._build_spark_submit_command(application)
        # For the process alone: the provider sends `env_vars` to the cluster, on the command line.
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
    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return prepare
