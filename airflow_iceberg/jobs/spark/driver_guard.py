"""Ends the driver of a job when the task or the spark-submit that it works for has ended.

Here: a small process next to the driver, which waits for that and kills it. Not here: the other end of the link, in the
task (`airflow_iceberg.backends.driver_link`), and what ends spark-submit with its task (`_submit_hook`).

A process and not a thread: code of the user can keep Python's lock for minutes, and a thread would wait for it as long.
Standard library only, because it starts before anything else is imported.
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

# The path of the task's socket; set for a driver on the task's machine (deploy mode client) alone.
TASK_VARIABLE = "AIRFLOW_ICEBERG_TASK"
# PythonRunner sets it for the driver that it starts, and keeps the other end of that driver's standard input.
GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
KILLED = 137
_PR_SET_PDEATHSIG = 1
_STDIN, _STDOUT, _STDERR = 0, 1, 2
# How long it may take until it is noticed that the driver has ended while children of the driver keep its pipe open.
_LOOK_MS = 100


def start_guard(job: str) -> None:
    """Make this process end with the spark-submit that started it and with the task that started that.

    Args:
        job: what the log calls this process's work.
    """
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
    atexit.register(_tell_that_it_ends_by_itself, open_while_alive, driver)
    if task is not None:
        task.close()
    if sys.platform == "linux":
        # Should the guard be killed, too.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tell_that_it_ends_by_itself(guard: int, driver: int) -> None:
    # Children that were forked from the driver end, too.
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
    """Wait for the end of the driver, or of what it works for; never returns into the driver's program."""
    try:
        # What is sent to the whole process group is for the driver. The guard ends after it.
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
    """Return where to write: the task's own standard error, which the task sends, or this process's."""
    if task is None:
        return _STDERR
    try:
        _, descriptors, _, _ = socket.recv_fds(task, 1, 1)
    except OSError:
        descriptors = []
    if not descriptors:
        return _STDERR  # the task has ended meanwhile
    # spark-submit is not kept waiting for the end of the driver's output.
    for descriptor in (_STDOUT, _STDERR):
        os.dup2(descriptors[0], descriptor)
    os.close(descriptors[0])
    return _STDERR


def _wait(driver: int, ended: int, task: socket.socket | None) -> str | None:
    """Return why the driver was or is to be killed, None when it ends by itself."""
    parents = {} if task is None else {task.fileno(): "the task"}
    if stat.S_ISFIFO(os.fstat(_STDIN).st_mode) or stat.S_ISSOCK(os.fstat(_STDIN).st_mode):
        parents[_STDIN] = "spark-submit"
    poll = select.poll()
    for descriptor in (ended, *parents):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_LOOK_MS)}
        for descriptor in parents:
            # The task also says something when the driver has to end.
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
    """Tell the task that the driver has ended; return whether the task has ended before, and cannot log it itself.

    A task that lives has not said that nothing was committed yet: the driver may have written its result already.
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
    """Kill the driver, and wait until it has ended: the link to the task stays open as long."""
    poll = select.poll()
    # Only a parent that lives is the driver; its number may be another process's by now.
    while os.getppid() == driver:
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
        poll.poll(10)


def _say(log: int, job: str, reason: str) -> None:
    with contextlib.suppress(OSError):
        os.write(log, f"airflow_iceberg: {job}: killed; nothing was committed ({reason})\n".encode())
