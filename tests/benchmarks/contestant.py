"""The process that one side of one line is measured in; `contest.Contestant` starts it and speaks to it.

    python -m tests.benchmarks.contestant MODULE LINE ours|peer|prepare FOLDER WORK ROWS

It imports the line's module alone and says `ready`. Then it runs once for each line of standard input and answers with
a JSON object, until standard input ends. It runs from the checkout that it measures, so all that it imports is of that.
"""

import gc
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import psutil

from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.measure import Stopwatch


def find(module: str, name: str) -> Line:
    lines: Iterable[Line] = importlib.import_module(module).LINES
    return next(line for line in lines if line.name == name)


def main(arguments: list[str]) -> None:
    """Measure a side, or prepare a line."""
    module, name, side, folder, work, rows = arguments
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed must not mix with the answers
    line = find(module, name)
    bench = Bench(folder=Path(folder), work=Path(work), rows=int(rows))
    if side == "prepare":
        line.prepare(bench)
        return
    opened = line.ours if side == "ours" else line.peer
    if isinstance(opened, float | int):
        raise ValueError(f"the {side} of {name} is a limit: there is nothing to run")
    with opened(bench) as run:
        _say(answers, {"ready": True})
        for _ in sys.stdin:
            _say(answers, _measured(run))


def _say(answers: TextIO, answer: dict[str, float]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _measured(run: Run) -> dict[str, float]:
    gc.collect()
    Stopwatch.processor_seconds = 0.0
    value = run()
    return {"value": value, "processor_seconds": Stopwatch.processor_seconds, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Return the peak memory of the largest of the processes that this side has running."""
    me = psutil.Process()
    return max(peak_mb(process.pid) for process in (me, *me.children(recursive=True)))


def peak_mb(pid: int | str = "self") -> float:
    """Return the peak memory of a process; 0 if it has ended.

    Not `getrusage`: that counts what the process that has started this one had.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
