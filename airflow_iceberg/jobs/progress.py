"""How far a job is, in the log: tasks, files, rows, bytes, share and rate, at least every 15 seconds.

One object for all places where jobs run: threads count what their tasks report, and Spark's driver asks Spark how many
tasks have ended, and what they did. The driver's lines are in the output of spark-submit, which is in the task's log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_iceberg.jobs.task import TaskReport
from airflow_iceberg.redaction import said

log = logging.getLogger(__name__)

INTERVAL_S = 15.0
_LOOK_S = 1.0
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class Progress:
    """What the tasks of a job have done so far.

    Args:
        what: the job, `append sales.orders`.
        say: called with each line.
        clock: returns seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        say: Callable[[str], None] = log.info,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float | None = None,
    ) -> None:
        self._what, self._say, self._clock = what, say, clock
        self._interval_s = INTERVAL_S if interval_s is None else interval_s
        self._lock = threading.Lock()
        self._started_s = self._said_s = clock()
        self._tasks = self._done = self._files = self._rows = self._bytes = 0

    def begin(self, tasks: int | None) -> None:
        """Say that a phase begins.

        Args:
            tasks: how many tasks it has; None if Spark decides that.
        """
        with self._lock:
            self._started_s = self._said_s = self._clock()
            self._tasks, self._done, self._files, self._rows, self._bytes = tasks or 0, 0, 0, 0, 0
            self._say(f"{self._what}: {'tasks' if tasks is None else _counted(tasks, 'task')} started")

    def add(self, report: TaskReport) -> None:
        """Count what a task has done."""
        with self._lock:
            self._done += 1
        self.count(report)

    def count(self, report: TaskReport) -> None:
        """Count what a task has done, where others tell how many have ended."""
        files, rows, size = counts_of(report)
        with self._lock:
            self._files += files
            self._rows += rows
            self._bytes += size

    def counted(self, files: int, rows: int, size: int) -> None:
        """Take over what all tasks together have done so far."""
        with self._lock:
            self._files, self._rows, self._bytes = files, rows, size

    def ended(self, done: int, tasks: int) -> None:
        """Take over how many tasks have ended; what they did is told elsewhere."""
        with self._lock:
            self._done, self._tasks = done, max(tasks, done)

    def look(self) -> None:
        """Say how far the job is if that was not said for the interval."""
        with self._lock:
            now = self._clock()
            if now - self._said_s >= self._interval_s:
                self._said_s = now
                self._say(self._line(now))

    def _line(self, now: float) -> str:
        seconds = max(now - self._started_s, 1e-3)
        share = f" ({100 * self._done // self._tasks} %)" if self._tasks else ""
        of = f" of {self._tasks}" if self._tasks else ""
        line = f"{self._what}: {self._done}{of} tasks ended{share} after {seconds:.0f} s"
        if not self._rows and not self._files:
            return line
        return (
            f"{line}: {_counted(self._files, 'file')}, {_counted(self._rows, 'row')}, {_size(self._bytes)}; "
            f"{self._rows / seconds:,.0f} rows/s, {_size(int(self._bytes / seconds))}/s"
        )


def counts_of(report: TaskReport) -> tuple[int, int, int]:
    """Return the files, rows and bytes of a task."""
    sizes = [int(one.get("file-size-in-bytes") or 0) for one in report.data_files]
    return len(sizes), report.record_count, sum(sizes)


@contextmanager
def watched(progress: Progress, ask: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Say how far a job is while the block runs.

    Args:
        ask: called before each look, in another thread; its errors are of no importance.
    """
    end = threading.Event()

    def look() -> None:
        while not end.wait(_LOOK_S):
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - the job goes on, whatever is known of it
                log.debug("nothing is known of the job's tasks: %s", said(error))
            progress.look()

    thread = threading.Thread(target=look, name="iceberg-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(_LOOK_S)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
