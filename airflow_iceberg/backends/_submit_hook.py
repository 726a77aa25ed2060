"""The Spark provider's hook for submissions: with this machine's Spark, no secrets, and no orphaned drivers.

A separate module because the provider's takes most of a second to import; it is imported when a job starts.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_iceberg.backends.config import STORAGE_VARIABLE, Machine
from airflow_iceberg.backends.private_files import write_private
from airflow_iceberg.backends.spark_output import SparkOutput
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import is_secret_argument, shown_command

_PR_SET_PDEATHSIG = 1
_REAP_SECONDS = 10
_STORAGE = re.compile(rf"({STORAGE_VARIABLE}=)(\{{.*?\}})(?=\s--|\s\S+\.py\b|$)")


class IcebergSubmitHook(SparkSubmitHook):
    """Submits with the spark-submit of `machine`; everything else is the provider's.

    Args:
        waits: whether spark-submit waits for the end of the job.

    Attributes:
        environment: all variables of spark-submit, and so of a driver on this machine.
    """

    _is_open = False
    _is_of_kubernetes = False

    def __init__(self, *, machine: Machine, waits: bool = True, **kwargs: Any) -> None:
        self._machine = machine
        self.environment: dict[str, str] = dict(machine.environment)
        self._is_killed = False
        super().__init__(**kwargs)
        self._is_open = True
        if not waits:
            # The provider demands the exit code of a driver pod, also of one that has only been submitted.
            self._spark_exit_code = 0
        self.output = SparkOutput(master=str(self._connection["master"]))

    @property
    def _is_kubernetes(self) -> bool:
        """Whether the master is Kubernetes.

        Not in the provider's constructor: there it demands its client library, by which it deletes pods, and which
        nothing here needs.
        """
        return self._is_open and self._is_of_kubernetes

    @_is_kubernetes.setter
    def _is_kubernetes(self, value: bool) -> None:
        self._is_of_kubernetes = value

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit and wait; spark-submit, and a driver on this machine, end when the task's process does."""
        if self._is_killed:
            raise AirflowException("the job was killed before it was submitted")
        # The task's own standard input is its connection to the supervisor.
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs["env"] = self.environment
        if sys.platform == "linux":
            # Without this a killed task leaves a Spark behind that competes with the next try for the machine, or
            # submits to a cluster after that has looked there; and whose files are not used.
            kwargs.setdefault("preexec_fn", _die_with_parent(ctypes.CDLL(None, use_errno=True)))
        try:
            return super().submit(application, **kwargs)
        finally:
            if self._submit_sp is not None:
                self.output.exit_code = self._submit_sp.returncode

    @property
    def was_submitted(self) -> bool:
        """Whether spark-submit was started."""
        return self._submit_sp is not None

    @property
    def is_running(self) -> bool:
        """Whether spark-submit runs."""
        return self._submit_sp is not None and self._submit_sp.poll() is None

    @property
    def application_id(self) -> str | None:
        """The id of the application on YARN, if spark-submit has logged it."""
        return self._yarn_application_id

    def on_kill(self) -> None:
        """Kill the submission, also while it starts; may be called again."""
        self._is_killed = True
        if not (self._is_yarn or self._is_kubernetes):
            super().on_kill()
        elif self._submit_sp is not None and self.is_running:
            # The provider would then call the command `yarn` or the client library of Kubernetes, which few workers
            # have; see `backends.applications`.
            self._submit_sp.kill()

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
        command: list[str] = super()._build_spark_submit_command(application)
        # The provider would add these variables to all of the worker's.
        self.environment.update(self._env or {})
        self._env = None
        _check_no_secret(command)
        return command

    def _create_keytab_path_from_base64_keytab(self, base64_keytab: str, principal: str | None) -> str:
        """Write the connection's keytab for this submission alone.

        The provider's file has a name that another user can guess and create first, and everybody may read it.
        """
        try:
            keytab = base64.b64decode(base64_keytab, validate=True)
        except ValueError:
            raise InvalidInputError(
                f"extra field 'keytab' of spark connection {self._conn_id!r} is not base64; expected the output of "
                f"base64 <keytab>"
            ) from None
        return str(write_private(Path(self._machine.folder) / "keytab", keytab))

    def _get_spark_binary_path(self) -> list[str]:
        return [self._machine.binary]

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        if isinstance(connection_cmd, str):
            # The value of the variable is JSON, with blanks in it.
            connection_cmd = _STORAGE.sub(r"\1******", connection_cmd).split(" ")
        return super()._mask_cmd(shown_command(connection_cmd))


def _check_no_secret(command: list[str]) -> None:
    """Raise InvalidInputError for a secret on a command line, which every user of this machine can read."""
    for option, argument in pairwise(command):
        name = argument.partition("=")[0] if option == "--conf" else option
        # The storage's properties have been checked one by one.
        if not name.endswith(f".{STORAGE_VARIABLE}") and is_secret_argument(argument):
            raise InvalidInputError(
                f"{name!r} of the Spark job holds a secret, which spark-submit's command line would show to every user "
                f"of this machine; put settings into a properties_file that only the worker can read, or let the "
                f"cluster have its own credentials"
            )


def _die_with_parent(libc: ctypes.CDLL) -> Any:
    task = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != task:
            os._exit(1)  # the task has ended meanwhile

    return prepare
