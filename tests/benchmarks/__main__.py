"""Measures side by side with the peers: `python -m tests.benchmarks [area | line …]`, or `make bench ARGS="…"`.

Each line is measured in processes of its own, one for each side, which are warmed up alike (`contest`). Prints a line
`name | ours | peer | ratio | goal | spread` a measurement, and writes them as a list of objects to `build/bench.json`.
A goal that is missed is marked and fails nothing: a busy machine must not break a build. The exit code is 1 only when a
line could not be measured at all.

`--compare CHECKOUT` measures our side of two checkouts of this repository: the other checkout stands for the peer, and
the goal is 1.1. Each side runs the code of its own checkout, the benchmark included, so the other one must have these
files in `tests/benchmarks`, too.
"""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import lineitem
from tests.benchmarks.contest import Contest
from tests.benchmarks.line import Line
from tests.benchmarks.measure import HEADER, RUNS, Measurement, note, write_report
from tests.support.airflow_home import ROOT

BUILD = ROOT / "build"
# The modules of an area's lines.
AREAS = {
    "imports": ("imports",),
    "commit": ("commits",),
    "plan": ("plans",),
    "local": ("in_process", "upserts"),
    "spark": ("appends",),
    "maintain": ("maintain_metadata", "maintain_files", "maintain_rows", "existing_files"),
    "row-level": ("row_level",),
    "changes": ("changes",),
    "history": ("history",),
    "paimon": ("paimon",),
    "sensors": ("sensors",),
}


def lines_of(area: str) -> list[tuple[Line, str]]:
    """Return the lines of an area, each with its module."""
    modules = (f"tests.benchmarks.{name}" for name in AREAS[area])
    return [(line, module) for module in modules for line in importlib.import_module(module).LINES]


def selected(names: Sequence[str]) -> list[tuple[Line, str]]:
    """Return the lines that some names select, all of them for no name.

    Raises:
        KeyError: there is neither an area nor a line of a name.
    """
    by_area = {area: lines_of(area) for area in AREAS}
    by_name = {line.name: (line, module) for found in by_area.values() for line, module in found}
    chosen = {}
    for name in names or AREAS:
        # "commit", "imports", "paimon" and "sensors" are an area and a line: the area is meant.
        for line, module in by_area.get(name) or [by_name[name]]:
            chosen[line.name] = (line, module)
    return list(chosen.values())


def main(arguments: list[str]) -> int:
    """Measure the lines that were asked for."""
    description = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=description)
    parser.add_argument("names", nargs="*", metavar="area|line", help=f"areas are {', '.join(AREAS)}; all by default")
    parser.add_argument("--list", action="store_true", help="print the lines and measure nothing")
    parser.add_argument("--rows", type=int, default=lineitem.ROWS, help="rows of lineitem; fewer to try things out")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each side, of which the median counts")
    parser.add_argument("--compare", type=Path, metavar="CHECKOUT", help="measure another checkout in the peer's place")
    parser.add_argument("--report", type=Path, help="where the report is written; build/bench.json by default")
    options = parser.parse_args(arguments)
    try:
        lines = selected(options.names)
    except KeyError as error:
        parser.error(f"no area and no line {error}; --list prints them")
    if options.list:
        for line, _ in lines:
            print(f"{line.name}: {line.title(options.rows)}")
        return 0
    if options.compare is not None:
        options.compare = options.compare.resolve()
        if not (options.compare / "tests" / "benchmarks" / "contestant.py").is_file():
            parser.error(f"{options.compare} has no tests/benchmarks/contestant.py, which measures its side")
        lines = _once(lines)
    contest = Contest(folder=BUILD / "bench", rows=options.rows, runs=options.runs, other=options.compare)
    default = "bench.json" if options.compare is None else "bench-compared.json"
    return run(contest, lines, options.report or BUILD / default)


def _once(lines: Sequence[tuple[Line, str]]) -> list[tuple[Line, str]]:
    """Return lines without those in which our side does the same again, for another peer."""
    return list({(line.what, line.unit): (line, module) for line, module in reversed(lines)}.values())[::-1]


def run(contest: Contest, lines: Sequence[tuple[Line, str]], report: Path) -> int:
    """Measure line by line and write the report after each, so that what was measured is never lost."""
    measurements: list[Measurement] = []
    broken = []
    print(HEADER, flush=True)
    for line, module in lines:
        note(f"-- {line.name}; load {os.getloadavg()[0]:.1f}")
        try:
            measurements.append(contest.measure(line, module))
        except Exception:
            traceback.print_exc()
            broken.append(line.name)
            continue
        print(measurements[-1].line(), flush=True)
        write_report(measurements, report)
    for measurement in measurements:
        if not measurement.is_met:
            print(f"goal missed: {measurement.name}: {measurement.ratio:.3f} > {measurement.goal:g}")
    if broken:
        note(f"could not be measured: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
