"""Maintenance and changes of rows, side by side with Iceberg Java's procedures and statements on the same tables.

Here: the lines, each of which can be measured alone (`--only expiry`); all of them share two Spark sessions. What they
measure is in `maintain_metadata`, `maintain_files` and `maintain_rows`. Tables are made once and kept below
`build/bench/maintain`, some 2 GB and 200,000 empty files; delete the folder to have them made anew.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tests.benchmarks import maintain_files, maintain_metadata, maintain_rows
from tests.benchmarks.maintained import Sides
from tests.benchmarks.measure import Measurement, note

Line = Callable[[Sides, int, int], Iterator[Measurement]]
LINES: dict[str, Line] = {
    "expiry": lambda sides, rows, runs: maintain_metadata.expiry(sides, runs=runs),
    "manifests": lambda sides, rows, runs: maintain_metadata.manifests(sides, runs=runs),
    "orphans": lambda sides, rows, runs: maintain_metadata.orphans(sides, runs=runs),
    "binpack": lambda sides, rows, runs: maintain_files.binpack(sides, rows=rows, runs=runs),
    "sort": lambda sides, rows, runs: maintain_files.sort(sides, rows=rows, runs=runs),
    "copy-on-write": lambda sides, rows, runs: maintain_rows.copy_on_write(sides, runs=runs),
    "merge-on-read": lambda sides, rows, runs: maintain_rows.merge_on_read(sides, runs=runs),
    "overwrite": lambda sides, rows, runs: maintain_rows.dynamic_overwrite(sides, rows=rows, runs=runs),
}


def measure(folder: Path, *, rows: int, runs: int, only: Collection[str] = ()) -> Iterator[Measurement]:
    """Measure the lines that were asked for, all by default.

    Args:
        rows: of lineitem, where a line uses it.
        only: names in LINES.
    """
    with Sides(folder) as sides:
        for name, line in LINES.items():
            if not only or name in only:
                note(f"  - {name}")
                yield from line(sides, rows, runs)
