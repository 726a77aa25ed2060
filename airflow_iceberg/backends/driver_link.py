"""The link between a task and the driver that it has started: each learns at once that the other has ended.

Here: the task's end, a socket in a folder that only this user can enter. The system closes it however the task ends, so
that no process id is compared or stored. Not here: the driver's end (`jobs.spark.driver_guard`).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

# The longest path of a socket that every system accepts; folders for temporary files can be longer.
_LONGEST_PATH = 100
_STDIN, _STDERR = 0, 2


class DriverLink:
    """Open while a job runs; a driver that connects gets the task's standard error for its last messages.

    Args:
        on_lost_worker: a function, called in a thread when the Airflow worker that watches this task has ended.
    """

    def __init__(self, on_lost_worker: Callable[[], None]) -> None:
        self._on_lost_worker = on_lost_worker
        self._drivers: dict[int, socket.socket] = {}
        self._has_to_end = False
        self._folder = tempfile.mkdtemp(prefix="airflow-iceberg-")
        if len(self.path) > _LONGEST_PATH:
            os.rmdir(self._folder)
            self._folder = tempfile.mkdtemp(prefix="airflow-iceberg-", dir="/tmp")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="iceberg-driver-link", daemon=True)

    @property
    def path(self) -> str:
        """The path of the task's socket."""
        return os.path.join(self._folder, "task")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def end_drivers(self) -> None:
        """Ask all drivers to end, also those that connect later; safe in signal handlers, and repeatedly."""
        self._has_to_end = True
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        for driver in list(self._drivers.values()):
            _tell_to_end(driver)

    def wait(self, seconds: float) -> bool:
        """Wait until all drivers have ended, and return whether they have.

        It polls: a signal handler that waits for a lock can wait for the code that it has interrupted.
        """
        deadline = time.monotonic() + seconds
        while self._drivers and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self._drivers

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_drivers()
        self._stop.close()
        self._thread.join()
        self._listener.close()
        self._stopped.close()
        # For a driver that still runs, and for one that has just connected, this is the end of the task.
        for driver in self._drivers.values():
            driver.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._stopped, select.POLLIN)
        if stat.S_ISSOCK(os.fstat(_STDIN).st_mode):
            # The supervisor's end of it closes when the worker ends. Only that is noticed, nothing is read.
            poll.register(_STDIN, 0)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._stopped.fileno():
                    return
                if descriptor == self._listener.fileno():
                    driver = self._accept()
                    poll.register(driver, select.POLLIN)
                    continue
                poll.unregister(descriptor)
                if descriptor == _STDIN:
                    threading.Thread(target=self._on_lost_worker, daemon=True).start()
                else:
                    _take_leave(self._drivers.pop(descriptor))

    def _accept(self) -> socket.socket:
        driver, _ = self._listener.accept()
        self._drivers[driver.fileno()] = driver
        with contextlib.suppress(OSError):
            socket.send_fds(driver, [b"l"], [_STDERR])
        if self._has_to_end:
            _tell_to_end(driver)
        return driver


def _tell_to_end(driver: socket.socket) -> None:
    with contextlib.suppress(OSError):
        driver.send(b"e")


def _take_leave(driver: socket.socket) -> None:
    """Answer a guard whose driver has ended: the task lives, and logs that itself."""
    _tell_to_end(driver)
    with contextlib.suppress(OSError):
        # With an unread byte the other side would lose the answer.
        driver.recv(1)
    driver.close()
