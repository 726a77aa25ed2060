"""What a measurement looks like: medians and spreads, one line and one JSON object each; and the stopwatch."""

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil

RUNS = 3
HEADER = "name | ours | peer | ratio | goal | spread"


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """What the runs of one side gave.

    Attributes:
        values: in the unit of the line.
        processor_seconds: what the side's processes computed in each run, over all cores.
        peak_mb: peak memory of the largest of its processes up to each run.
    """

    values: tuple[float, ...] = ()
    processor_seconds: tuple[float, ...] = ()
    peak_mb: tuple[float, ...] = ()

    def and_(self, answer: Mapping[str, float]) -> "Samples":
        return Samples(
            values=(*self.values, answer["value"]),
            processor_seconds=(*self.processor_seconds, answer["processor_seconds"]),
            peak_mb=(*self.peak_mb, answer["peak_mb"]),
        )

    def __str__(self) -> str:
        values, work = (", ".join(f"{value:.3f}" for value in found) for found in (self.values, self.processor_seconds))
        return f"{values}; processor time {work} s; peak {max(self.peak_mb, default=0):.0f} MB"

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        return f"{min(self.values):.3f}–{max(self.values):.3f}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "values": [round(value, 4) for value in self.values],
            "processor_seconds": [round(value, 2) for value in self.processor_seconds],
            "peak_mb": round(max(self.peak_mb, default=0)),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One line of the report; it is met when ratio <= goal.

    Attributes:
        name: what was measured, against whom, and the unit of `ours` and `peer`.
        ours, peer: runs of both sides. Where the goal is an absolute limit, it is the peer.
        goal: the largest ratio that is good enough.
    """

    name: str
    ours: Samples
    peer: Samples
    goal: float

    @property
    def ratio(self) -> float:
        """Our median by the peer's: below 1 we are the faster one."""
        return round(self.ours.median / self.peer.median, 3)

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.goal

    def line(self) -> str:
        medians = f"{self.ours.median:.3f} | {self.peer.median:.3f}"
        spread = f"{self.ours.spread}, {self.peer.spread}"
        return f"{self.name} | {medians} | {self.ratio:.3f} | {self.goal:g} | {spread}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ours": round(self.ours.median, 4),
            "peer": round(self.peer.median, 4),
            "ratio": self.ratio,
            "goal": self.goal,
            "runs": {"ours": self.ours.to_dict(), "peer": self.peer.to_dict()},
        }


def write_report(measurements: Iterable[Measurement], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([measurement.to_dict() for measurement in measurements], indent=2) + "\n")


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
            if process == me:  # programs that were started and have ended
                found[process] += times.children_user + times.children_system
    return found


def note(text: str) -> None:
    """Say on standard error how it goes; standard output has the measurements only."""
    print(text, file=sys.stderr, flush=True)
