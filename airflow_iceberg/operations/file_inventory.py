"""Where a file inventory runs: in this process for a small table, in a job on Spark for a large one.

Here: the threshold, and the job's documents, progress and results. Not here: what a unit does (`inventory.units`),
which is the same in both places, and the job (`jobs.inventory`).

    from airflow_iceberg.operations.file_inventory import FileInventory

    outcomes = FileInventory(Work(table))(units, what="files of the table")
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.write_result import count_of
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.inventory.run import EVERY_SECONDS, Progress, in_bytes, run_units
from airflow_iceberg.inventory.units import Unit, UnitResult, read_outcome, write_unit
from airflow_iceberg.jobs.protocol.plan import InventoryTask, JobPlan
from airflow_iceberg.jobs.protocol.result import InventoryUnitResult
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot
    from airflow_iceberg.jobs.protocol.result import JobResult

log = logging.getLogger(__name__)

# From this number of files on an inventory is a job on Spark, if there is one: a process reads the manifests of a
# million files in about ten seconds, the time that Spark takes to start.
SPARK_FROM_FILES = 1_000_000
THREADS = 8
# The name of the result of a unit: its number, and random digits; see `jobs.inventory`.
_RESULT_NAME = re.compile(r"([0-9]{6,9})-[0-9a-f]{12}\.arrow")


class FileInventory:
    """Runs units for one operation on a table: in this process, or in a job if `work.run` runs one.

    Args:
        spark_from_files: the number of files from which on the units run in a job.
    """

    def __init__(self, work: Work, *, spark_from_files: int | None = None) -> None:
        self._work = work
        self._table = work.table
        self._from_files = SPARK_FROM_FILES if spark_from_files is None else spark_from_files
        if self._from_files < 0:
            raise InvalidInputError(f"spark_from_files is {self._from_files}, expected 0 or more files")

    def is_for_spark(self, files: int) -> bool:
        """Whether units for about this number of files run in a job."""
        return self._work.run is not None and files >= self._from_files

    def __call__(self, units: Sequence[Unit], *, what: str, files: int | None = None) -> Generator[UnitResult]:
        """Run units; see `RunUnits`."""
        count = sum(unit.files for unit in units) if files is None else files
        progress = Progress(f"{self._table.name}: {what}", whole=sum(unit.weight for unit in units))
        if units and self.is_for_spark(count):
            outcomes = self._in_job(units, what, count, progress)
        else:
            outcomes = run_units(self._table.io, units, progress)
        found_files = size_bytes = 0
        with closing(outcomes):  # a caller that stops early leaves neither threads nor documents
            for outcome in outcomes:
                found_files, size_bytes = found_files + outcome.files, size_bytes + outcome.size_bytes
                yield outcome
        log.info("%s: %s: %d files of %s", self._table.name, what, found_files, in_bytes(size_bytes))

    def _in_job(self, units: Sequence[Unit], what: str, files: int, progress: Progress) -> Generator[UnitResult]:
        """Run the units in a job, and read its results one at a time."""
        io, name = self._table.io, self._table.name
        log.info(
            "%s: %s: about %d files; from %d files on a job on Spark reads them", name, what, files, self._from_files
        )
        prefix = self._work.new_staging()
        places = tuple(f"{prefix}/units/{number:06d}.json.gz" for number in range(len(units)))
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                documents = tuple(
                    pool.map(lambda place, unit: SealedFile.create(io, place, write_unit(unit)), places, units)
                )
            plan = self._work.write_plan(InventoryTask(units=documents), prefix)
            with _watched(self._table, plan, units, progress):
                results = self._work.run_job(plan, lambda result: _in_order(plan, result, len(units)))
            for one in results:
                path = one.file.location
                outcome = read_outcome(one.file.content(io, what="result of a unit of an inventory"), path=path)
                if outcome.rows != one.rows:
                    raise FormatError(f"the job wrote {one.rows} rows and {outcome.rows} were found", path=path)
                yield outcome
        finally:
            staging.clear(io, prefix)


def expected_files(metadata: TableMetadata) -> int:
    """Return the number of a table's files by the summaries of its snapshots; 0 if they do not tell."""

    def total(snapshot: Snapshot) -> int:
        return sum(count_of(snapshot, name) for name in ("total-data-files", "total-delete-files"))

    return max(map(total, metadata.snapshots), default=0)


def _in_order(plan: JobPlan, result: JobResult, count: int) -> list[InventoryUnitResult]:
    """Return the result of each unit exactly once: without one of them a live file might look unreachable.

    Raises:
        FormatError: a unit is missing or duplicated, or its result is not a file of this job.
    """
    units = sorted(result.units, key=lambda one: one.number)
    if [one.number for one in units] != list(range(count)):
        raise FormatError(f"the job ran {len(units)} of {count} units", path=plan.result_location)
    for one in units:
        name = _RESULT_NAME.fullmatch(one.file.location.removeprefix(f"{plan.inventory_location}/"))
        if name is None or int(name[1]) != one.number:
            raise FormatError(f"{one.file.location} is not a file of job {plan.file_prefix}", path=plan.result_location)
    return units


@contextmanager
def _watched(table: OpenTable, plan: JobPlan, units: Sequence[Unit], progress: Progress) -> Iterator[None]:
    """Log the progress of a running job, by the files that it has written."""
    ended = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not ended.wait(EVERY_SECONDS):
            try:
                names = [status.location.rpartition("/")[2] for status in table.io.list(plan.inventory_location)]
            except IcebergError as error:
                log.debug("%s: cannot see how far the job is: %s", table.name, error)
                continue
            # Others can write there, too: under any name.
            done = {int(match[1]) for match in map(_RESULT_NAME.fullmatch, names) if match}
            for number in (done - seen) & set(range(len(units))):
                seen.add(number)
                progress.count(units[number].files, units[number].weight)
                progress.finish(units[number].weight)

    thread = threading.Thread(target=look, name="iceberg-inventory-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
