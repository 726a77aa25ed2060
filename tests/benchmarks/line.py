"""What a line of the report is: two sides that do the same, each in processes of its own.

Here: the values. Not here: the lines themselves (the modules in `__main__.AREAS`), the processes (`contest` starts
them, `contestant` is what they run), medians and the report (`measure`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What a side is given.

    Attributes:
        folder: tables and rows that are made once and kept for the next time.
        work: an empty folder of the side's own, removed at its end.
        rows: of lineitem.
    """

    folder: Path
    work: Path
    rows: int


Side = Callable[[Bench], AbstractContextManager[Run]]


def nothing(bench: Bench) -> None:
    """Prepare nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the report.

    Attributes:
        name: selects the line on the command line.
        what: what is measured; `{rows}` in it is the number of rows of lineitem.
        against: name of the peer, or the limit that stands for one.
        unit: unit of what both sides return.
        ours, peer: called in a process of its own; gives a function that runs once and returns the seconds, or what
            else `unit` says. A number is an absolute limit.
        goal: the largest ratio that is good enough.
        prepare: makes what both sides need and keep; called in a process of its own, every time.
        warm_up: runs of each side that do not count: a JVM needs some to compile what it runs.
        least_runs: short runs need more than others for a median that says something.
        in_turns: whether the sides alternate, so that other work on the machine meets both alike. False measures one
            side after the other: Spark ends Python workers that are idle for a minute.
    """

    name: str
    what: str
    against: str
    unit: str = "seconds"
    ours: Side
    peer: Side | float
    goal: float
    prepare: Callable[[Bench], object] = nothing
    warm_up: int = 1
    least_runs: int = 1
    in_turns: bool = True

    def title(self, rows: int, against: str | None = None) -> str:
        return f"{self.what.format(rows=f'{rows:,}')}, vs {against or self.against}, {self.unit}"
