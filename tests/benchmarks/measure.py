"""How a measurement is taken and what it looks like: medians of alternating runs, one line and one JSON object each."""

import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil

RUNS = 3
HEADER = "name | ours | peer | ratio | goal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One line of the report; it is met when ratio <= goal.

    Attributes:
        name: what was measured, against whom, and the unit of `ours` and `peer`.
        ours, peer: medians, in the unit that the name says. Where the goal is an absolute limit, it is the peer.
        goal: the largest ratio that is good enough.
    """

    name: str
    ours: float
    peer: float
    goal: float

    @property
    def ratio(self) -> float:
        """Ours by the peer's: below 1 we are the faster one."""
        return round(self.ours / self.peer, 3)

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio <= self.goal

    def line(self) -> str:
        """Return the measurement as a line of the report."""
        return f"{self.name} | {self.ours:.3f} | {self.peer:.3f} | {self.ratio:.3f} | {self.goal:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as an object of `bench.json`."""
        return {
            "name": self.name,
            "ours": round(self.ours, 4),
            "peer": round(self.peer, 4),
            "ratio": self.ratio,
            "goal": self.goal,
        }


def write_report(measurements: Iterable[Measurement], path: Path) -> None:
    """Write all measurements as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([measurement.to_dict() for measurement in measurements], indent=2) + "\n")


def alternate(contestants: Mapping[str, Callable[[], float]], *, runs: int, warm_up: int = 1) -> dict[str, float]:
    """Return the median seconds of each contestant.

    They take turns, so that whatever else the machine does meets all of them alike.

    Args:
        contestants: each call is one run and returns its seconds; what it does before and after does not count.
        runs: that count.
        warm_up: runs before that, which don't.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    processor: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warm_up + runs):
        for name, contestant in contestants.items():
            # The pages that the one before has written must not be flushed at this one's expense.
            os.sync()
            gc.collect()
            Stopwatch.processor_seconds = 0.0
            taken = contestant()
            if number >= warm_up:
                seconds[name].append(taken)
                processor[name].append(Stopwatch.processor_seconds)
    for name, taken_seconds in seconds.items():
        walls, work = (", ".join(f"{value:.3f}" for value in found) for found in (taken_seconds, processor[name]))
        note(f"  {name}: {walls} s; processor time {work} s")
    return {name: statistics.median(taken_seconds) for name, taken_seconds in seconds.items()}


class Stopwatch:
    """Measures the seconds of a `with` block.

    Attributes:
        processor_seconds: of all blocks since it was set to 0: what this process and all that it has started have
            computed, over all cores. On a machine that others keep busy it says more than the seconds do.
    """

    seconds = 0.0
    processor_seconds: ClassVar[float] = 0.0

    def __enter__(self) -> "Stopwatch":
        self._before = _processor_seconds()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        after = _processor_seconds()
        Stopwatch.processor_seconds += sum(taken - self._before.get(process, 0.0) for process, taken in after.items())


def _processor_seconds() -> dict[psutil.Process, float]:
    """Return what each process has computed so far; those of Spark outlive a run, and so count in full."""
    me, found = psutil.Process(), {}
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # has just ended
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def note(text: str) -> None:
    """Say on standard error how it goes; standard output has the measurements only."""
    print(text, file=sys.stderr, flush=True)
