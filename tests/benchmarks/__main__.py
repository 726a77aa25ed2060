"""Measures side by side with the peers: `python -m tests.benchmarks [area …] [--only LINE …]`, or `make bench`.

Prints a line `name | ours | peer | ratio | goal` a measurement and writes them as a list of objects to
`build/bench.json`. A goal that is missed is marked and fails nothing: a busy machine must not break a build. The exit
code is 1 only when an area could not be measured at all.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.benchmarks import lineitem
from tests.benchmarks.measure import HEADER, RUNS, Measurement, note, write_report
from tests.support.airflow_home import ROOT

BUILD = ROOT / "build"
FOLDER = BUILD / "bench"

Area = Callable[[argparse.Namespace], Iterator[Measurement]]


def files(options: argparse.Namespace) -> Iterator[Measurement]:
    """Append of Parquet files through Spark, with Iceberg Java and bare pyarrow."""
    from tests.benchmarks import appends

    return appends.measure_files(lineitem.make(FOLDER, rows=options.rows), FOLDER, runs=options.runs)


def query(options: argparse.Namespace) -> Iterator[Measurement]:
    """Append of a query, with Iceberg Java."""
    from tests.benchmarks import appends

    return appends.measure_query(lineitem.make(FOLDER, rows=options.rows), FOLDER, runs=options.runs)


def commit(options: argparse.Namespace) -> Iterator[Measurement]:
    """A commit on a table of 100,000 files, with PyIceberg."""
    from tests.benchmarks import commits

    return commits.measure(FOLDER, runs=options.runs)


def plan(options: argparse.Namespace) -> Iterator[Measurement]:
    """Plans and the table of files of 100,000 files, with PyIceberg and Iceberg Java, and what memory they take."""
    from tests.benchmarks import plans

    return plans.measure(FOLDER, runs=options.runs)


def imports(options: argparse.Namespace) -> Iterator[Measurement]:
    """What importing the modules of a DAG costs."""
    from tests.benchmarks import imports

    return imports.measure(runs=options.runs)


def local(options: argparse.Namespace) -> Iterator[Measurement]:
    """The back end without a JVM, with PyIceberg."""
    from tests.benchmarks import in_process

    return in_process.measure(lineitem.make(FOLDER, rows=options.rows), FOLDER, runs=options.runs)


def paimon(options: argparse.Namespace) -> Iterator[Measurement]:
    """A Paimon table of 100,000 files, with pypaimon."""
    from tests.benchmarks import paimon

    return paimon.measure(FOLDER, runs=options.runs)


def maintain(options: argparse.Namespace) -> Iterator[Measurement]:
    """Compaction, expiry, orphans, manifests, deletes and overwrites, with Iceberg Java and bare pyarrow."""
    from tests.benchmarks import maintain

    return maintain.measure(FOLDER, rows=options.rows, runs=options.runs, only=options.only)


AREAS: Mapping[str, Area] = {
    area.__name__: area for area in (imports, commit, plan, local, files, query, maintain, paimon)
}


def main(arguments: list[str]) -> int:
    """Measure the areas that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("areas", nargs="*", metavar="area", help=f"one of {', '.join(AREAS)}; all by default")
    parser.add_argument("--rows", type=int, default=lineitem.ROWS, help="rows of lineitem; fewer to try things out")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs a measurement, of which the median counts")
    parser.add_argument("--only", nargs="+", default=(), metavar="line", help="lines of the area maintain alone")
    parser.add_argument("--report", type=Path, default=BUILD / "bench.json")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.areas if name not in AREAS]:
        parser.error(f"no area {', '.join(unknown)}; there are {', '.join(AREAS)}")
    if options.only:
        from tests.benchmarks.maintain import LINES

        if unknown := [name for name in options.only if name not in LINES]:
            parser.error(f"no line {', '.join(unknown)}; there are {', '.join(LINES)}")
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Measure area by area and write the report after each, so that what was measured is never lost."""
    measurements: list[Measurement] = []
    broken = []
    print(HEADER, flush=True)
    for name in options.areas or AREAS:
        note(f"-- {name}; load {os.getloadavg()[0]:.1f}")
        try:
            for measurement in AREAS[name](options):
                measurements.append(measurement)
                print(measurement.line(), flush=True)
        except Exception:
            traceback.print_exc()
            broken.append(name)
        write_report(measurements, options.report)
    for measurement in measurements:
        if not measurement.is_met:
            print(f"goal missed: {measurement.name}: {measurement.ratio:.3f} > {measurement.goal:g}")
    if broken:
        note(f"could not be measured: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
