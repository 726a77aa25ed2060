"""Runs the units of a file inventory over threads of this process, and logs the progress."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from airflow_iceberg.inventory.units import Unit, UnitResult, read_outcome, run_unit
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# Stores answer slowly and in parallel; decoding is sequential.
THREADS = 16
# The compressed size of the manifests that are read ahead, at least two units; decoded they are many times larger.
AHEAD_BYTES = 4 << 20
# The time after which it is known whether threads wait for their store.
LOOK_SECONDS = 0.05
EVERY_SECONDS = 10.0


class Progress:
    """Logs the progress of work: files, bytes and the fraction that is done, at most one line in some seconds.

    Args:
        what: the beginning of the line: "sales.orders: files of expired snapshots".
        whole: the amount of all work, in any unit.
    """

    def __init__(
        self, what: str, *, whole: int, every_seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._whole = whole
        self._done = self._files = self._bytes = 0
        self._every_seconds = EVERY_SECONDS if every_seconds is None else every_seconds
        self._clock = clock
        self._said = clock()
        self._lock = threading.Lock()

    def count(self, files: int, size_bytes: int) -> None:
        """Count files; may be called from any thread."""
        with self._lock:
            self._files += files
            self._bytes += size_bytes
            self._say_if_due()

    def finish(self, part: int) -> None:
        """Count a part of the whole as done; may be called from any thread."""
        with self._lock:
            self._done += part
            self._say_if_due()

    def _say_if_due(self) -> None:
        now = self._clock()
        if now - self._said < self._every_seconds:
            return
        self._said = now
        share = 1.0 if self._whole <= 0 else min(self._done / self._whole, 1.0)
        log.info("%s: %d files of %s so far, %.0f %% done", self._what, self._files, in_bytes(self._bytes), 100 * share)


def in_bytes(count: int) -> str:
    """Return a readable number of bytes: `1.4 GiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


class RunUnits(Protocol):
    """Runs units and yields the result of each, in their order."""

    def __call__(self, units: Sequence[Unit], *, what: str, files: int | None = None) -> Generator[UnitResult]:
        """Run units.

        Args:
            what: the subject of log lines.
            files: the expected number of files, if the units do not know it.

        Raises:
            FormatError, NotFoundError, StorageError: a file cannot be read.
        """
        ...


def run_units(
    io: FileIO, units: Iterable[Unit], progress: Progress, *, threads: int = THREADS
) -> Generator[UnitResult]:
    """Yield the result of each unit, in their order; memory does not grow with their number.

    Raises:
        FormatError, NotFoundError, StorageError: the error of the first unit that fails.
    """
    rest = iter(units)
    waiting: deque[tuple[Unit, Future[bytes]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="iceberg-inventory")
    pace = _Pace()
    try:
        while True:
            while not waiting or (
                (pace.is_wide or not waiting[-1][0].in_small_steps)
                and (len(waiting) < 2 or (len(waiting) <= threads and _weight(waiting) < AHEAD_BYTES))
            ):
                unit = next(rest, None)
                if unit is None:
                    break
                waiting.append((unit, pool.submit(run_unit, io, unit, progress.count)))
            if not waiting:
                return
            unit, future = waiting[0]
            if unit.in_small_steps and not pace.is_wide and pace.look(future):
                continue
            waiting.popleft()
            outcome = read_outcome(future.result())
            progress.finish(unit.weight)
            yield outcome
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Pace:
    """Decides whether units of small steps run in parallel: only if they wait for their store.

    A local disk answers at once. Threads that list it pass the interpreter's lock to each other at every file, and
    sixteen of them need three times as long as one.

    Attributes:
        is_wide: whether units run in parallel; final once it is true.
    """

    def __init__(self) -> None:
        self.is_wide = False
        self._waited = self._computed = 0.0

    def look(self, future: Future[bytes]) -> bool:
        """Wait for a unit that runs alone, for a moment at most; return whether it leaves the processor idle."""
        started, computed = time.monotonic(), time.process_time()
        wait((future,), timeout=LOOK_SECONDS)
        self._waited += time.monotonic() - started
        self._computed += time.process_time() - computed
        if self._waited >= LOOK_SECONDS:
            self.is_wide = self._computed < self._waited / 2
            self._waited = self._computed = 0.0
        return self.is_wide


def _weight(waiting: Iterable[tuple[Unit, object]]) -> int:
    return sum(unit.weight for unit, _ in waiting)
