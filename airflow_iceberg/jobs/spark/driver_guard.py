"""A process next to the driver of a job, which kills the driver when its task or its spark-submit has ended.

Not here: the task's end of the link (`airflow_iceberg.backends.driver_link`), and how spark-submit ends with its task
(`backends._submit_hook`).

A process and not a thread: code of the user can hold Python's lock for minutes. Standard library only, because it
starts before anything else is imported.
"""

import atexit
import contextlib
import ctypes
import os
import select
import signal
import socket
import stat
import sys
from typing import NoReturn

# The path of the task's socket; only set for a driver on the task's machine (deploy mode client).
TASK_VARIABLE = "AIRFLOW_ICEBERG_TASK"
# PythonRunner sets it for the driver that it starts, and has the other end of that driver's standard input.
GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
KILLED = 137
_PR_SET_PDEATHSIG = 1
_STDIN, _STDOUT, _STDERR = 0, 1, 2
# How long the end of a driver may remain unnoticed while its children keep its pipe open.
_LOOK_MS = 100


def start_guard(job: str) -> None:
    """Make this process, which the log calls `job`, end with its spark-submit and with the task that started that."""
    if GATEWAY_VARIABLE not in os.environ:
        return  # started by hand: there is no parent to end with
    path = os.environ.pop(TASK_VARIABLE, None)
    task = None
    if path is not None:
        task = _connect(path)
        if task is None:
            _say(_STDOUT, job, "the task ended before the driver had started")
            os._exit(KILLED)
    driver = os.getpid()
    ended, open_while_alive = os.pipe()
    if os.fork() == 0:
        os.close(open_while_alive)
        _guard(job, driver, ended, task)
    os.close(ended)
    atexit.register(_report_own_end, open_while_alive, driver)
    if task is not None:
        task.close()
    if sys.platform == "linux":
        # In case the guard is killed, too.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _report_own_end(guard: int, driver: int) -> None:
    # Forked children of the driver call this, too.
    if os.getpid() == driver:
        with contextlib.suppress(OSError):
            os.write(guard, b".")


def _connect(path: str) -> socket.socket | None:
    """Return the link to the task, None when the task has ended."""
    task = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        task.connect(path)
    except OSError:
        task.close()
        return None
    return task


def _guard(job: str, driver: int, ended: int, task: socket.socket | None) -> NoReturn:
    """Wait for the end of the driver, of the task or of spark-submit; never returns into the driver's program."""
    try:
        # Signals to the process group are for the driver. The guard ends after it.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        log = _log_of(task)
        reason = _wait(driver, ended, task)
        if reason is not None:
            _kill(driver)
            if task is None or _has_ended(task):
                _say(log, job, reason)
    finally:
        os._exit(0)


def _log_of(task: socket.socket | None) -> int:
    """Return the file descriptor of the log: the task's standard error, which the task sends, or this process's."""
    if task is None:
        return _STDERR
    try:
        _, descriptors, _, _ = socket.recv_fds(task, 1, 1)
    except OSError:
        descriptors = []
    if not descriptors:
        return _STDERR  # the task has ended meanwhile
    # spark-submit waits for the end of the driver's output, which the guard must not keep open.
    for descriptor in (_STDOUT, _STDERR):
        os.dup2(descriptors[0], descriptor)
    os.close(descriptors[0])
    return _STDERR


def _wait(driver: int, ended: int, task: socket.socket | None) -> str | None:
    """Return why the driver was killed or has to be, None when it ends by itself."""
    parents = {} if task is None else {task.fileno(): "the task"}
    if stat.S_ISFIFO(os.fstat(_STDIN).st_mode) or stat.S_ISSOCK(os.fstat(_STDIN).st_mode):
        parents[_STDIN] = "spark-submit"
    poll = select.poll()
    for descriptor in (ended, *parents):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_LOOK_MS)}
        for descriptor in parents:
            # The task also sends a byte when the driver has to end.
            if descriptor in ready and not (descriptor == _STDIN and _read(_STDIN)):
                return f"{parents[descriptor]} has ended"
        if ended in ready:
            if _read(ended):
                return None
            poll.unregister(ended)
        if os.getppid() != driver:
            # Linux kills the driver together with spark-submit, and can do so before the pipe is closed.
            return "the driver was killed"


def _has_ended(task: socket.socket) -> bool:
    """Tell the task that the driver has ended; return whether the task has ended, too, and cannot log it itself.

    A living task may still commit: the driver may have written its result already.
    """
    with contextlib.suppress(OSError):
        task.send(b"d")
        return not _read(task.fileno())
    return True


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1)
    except OSError:
        return b""


def _kill(driver: int) -> None:
    """Kill the driver, and wait until it has ended; the link to the task remains open until then."""
    poll = select.poll()
    # Only a living parent is the driver; another process may have its number by now.
    while os.getppid() == driver:
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
        poll.poll(10)


def _say(log: int, job: str, reason: str) -> None:
    with contextlib.suppress(OSError):
        os.write(log, f"airflow_iceberg: {job}: killed; nothing was committed ({reason})\n".encode())
