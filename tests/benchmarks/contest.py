"""Measures a line: starts a process for each side, lets them take turns, and ends them.

Here: the processes and their turns. Not here: what runs in them (`contestant`, and the line's own module).
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.benchmarks.line import Bench, Line
from tests.benchmarks.measure import Measurement, Samples, note
from tests.support.airflow_home import ROOT
from tests.support.processes import end_process

COMPARED_GOAL = 1.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """How lines are measured.

    Attributes:
        folder: tables and rows that are made once and kept.
        rows: of lineitem.
        runs: runs of each side that count.
        other: a checkout whose side is measured in place of the peer's; it needs the same `tests/benchmarks`.
    """

    folder: Path
    rows: int
    runs: int
    other: Path | None = None

    def measure(self, line: Line, module: str) -> Measurement:
        """Measure a line.

        Raises:
            RuntimeError: the process of a side has ended early; its error is on standard error.
        """
        self._prepare(line, module)
        sides = self._sides(line, module)
        samples = {name: Samples() for name in sides}
        with contextlib.ExitStack() as stack:
            running: dict[str, Contestant] = {}
            for name, counts in self._turns(line, tuple(sides)):
                if name not in running:
                    if not line.in_turns:
                        stack.close()
                    running[name] = stack.enter_context(sides[name])
                answer = running[name].run()
                if counts:
                    samples[name] = samples[name].and_(answer)
        for name, found in samples.items():
            note(f"  {name}: {found}")
        return self._measurement(line, samples)

    def _prepare(self, line: Line, module: str) -> None:
        with Contestant(line, module, "prepare", ROOT, self._bench(line, "prepare")) as preparing:
            preparing.finish()

    def _sides(self, line: Line, module: str) -> "dict[str, Contestant]":
        sides = {"ours": Contestant(line, module, "ours", ROOT, self._bench(line, "ours"))}
        if self.other is not None:
            sides["peer"] = Contestant(line, module, "ours", self.other, self._bench(line, "other"))
        elif callable(line.peer):
            sides["peer"] = Contestant(line, module, "peer", ROOT, self._bench(line, "peer"))
        return sides

    def _bench(self, line: Line, side: str) -> Bench:
        return Bench(folder=self.folder, work=self.folder / "work" / f"{line.name}-{side}", rows=self.rows)

    def _turns(self, line: Line, names: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Yield whose turn it is, and whether the run counts: the same number of each side's runs are its warm-up.

        Each second round begins with the other side: which comes first in a round has its own influence.
        """
        runs = [number >= line.warm_up for number in range(line.warm_up + max(self.runs, line.least_runs))]
        if line.in_turns:
            return ((name, counts) for number, counts in enumerate(runs) for name in names[:: -1 if number % 2 else 1])
        return ((name, counts) for name in names for counts in runs)

    def _measurement(self, line: Line, samples: Mapping[str, Samples]) -> Measurement:
        if self.other is not None:
            title = line.title(self.rows, str(self.other))
            return Measurement(name=title, ours=samples["ours"], peer=samples["peer"], goal=COMPARED_GOAL)
        peer = samples["peer"] if callable(line.peer) else Samples(values=(float(line.peer),))
        return Measurement(name=line.title(self.rows), ours=samples["ours"], peer=peer, goal=line.goal)


class Contestant:
    """One side of a line, in a process that starts with the `with` block and imports the code of one checkout."""

    def __init__(self, line: Line, module: str, side: str, checkout: Path, bench: Bench) -> None:
        self._who, self._work, self._checkout = f"{side} of {line.name} in {checkout}", bench.work, checkout
        values = (module, line.name, side, bench.folder, bench.work, bench.rows)
        self._command = [sys.executable, "-m", "tests.benchmarks.contestant", *map(str, values)]
        self._is_prepare = side == "prepare"

    def __enter__(self) -> Self:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._process = subprocess.Popen(
            self._command,
            cwd=self._checkout,
            env={**os.environ, "PYTHONPATH": str(self._checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not self._is_prepare:
            self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        end_process(self._process, seconds=120)
        shutil.rmtree(self._work, ignore_errors=True)

    def run(self) -> dict[str, float]:
        # The pages that the one before has written must not be flushed at this one's expense.
        os.sync()
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def finish(self) -> None:
        if self._process.wait():
            raise RuntimeError(f"the process for {self._who} failed with exit code {self._process.returncode}")

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {self._who} has ended, with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found
