"""Where a walk over a table's files runs: in this process when it is small, on Spark when it is large.

Here: the one threshold, and the way of a walk through a job: its documents, how far it is, what came of it. Not here:
the walk itself (`inventory.units`), which is the same in both places, and the job (`jobs.inventory`).

    from airflow_iceberg.operations.file_inventory import Walker

    outcomes = Walker(Work(table))(units, what="files of the table")
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.inventory.run import EVERY_SECONDS, Progress, in_bytes, walk_here
from airflow_iceberg.inventory.units import Unit, UnitResult, read_outcome, total_files, write_unit
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import WalkedUnit, walked_location
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.jobs.protocol.result import JobResult

log = logging.getLogger(__name__)

# From so many files on a walk is a job on Spark, if there is one: a process reads the manifests of a million files in
# about ten seconds, which is what it takes a Spark to start.
SPARK_FROM_FILES = 1_000_000
THREADS = 8


class Walker:
    """Walks for one operation on a table: in this process, or in a job where `work.run` runs one.

    Args:
        spark_from_files: from so many files on a walk is a job.
    """

    def __init__(self, work: Work, *, spark_from_files: int | None = None) -> None:
        self._work = work
        self._table = work.table
        self._from_files = SPARK_FROM_FILES if spark_from_files is None else spark_from_files
        if self._from_files < 0:
            raise InvalidInputError(f"spark_from_files is {self._from_files}, expected 0 or more files")

    def is_for_spark(self, files: int) -> bool:
        """Tell whether a walk over so many files is a job."""
        return self._work.run is not None and files >= self._from_files

    def __call__(self, units: Sequence[Unit], *, what: str, files: int | None = None) -> Generator[UnitResult]:
        """Run units; see `Walk`."""
        count = total_files(units) if files is None else files
        progress = Progress(f"{self._table.name}: {what}", whole=sum(unit.weight for unit in units))
        if units and self.is_for_spark(count):
            outcomes = self._on_spark(units, what, count, progress)
        else:
            outcomes = walk_here(self._table.io, units, progress)
        walked_files = size_bytes = 0
        with closing(outcomes):  # whoever has seen enough leaves neither threads nor documents behind
            for outcome in outcomes:
                walked_files, size_bytes = walked_files + outcome.files, size_bytes + outcome.size_bytes
                yield outcome
        log.info("%s: %s: %d files of %s", self._table.name, what, walked_files, in_bytes(size_bytes))

    def _on_spark(self, units: Sequence[Unit], what: str, files: int, progress: Progress) -> Generator[UnitResult]:
        """Let a job run the units, and read what it wrote, a unit at a time."""
        io, name = self._table.io, self._table.name
        log.info("%s: %s: about %d files, from %d on a job on Spark looks", name, what, files, self._from_files)
        plan = self._plan(len(units))
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(lambda place, unit: io.create(place, write_unit(unit)), plan.source.units, units))
            staging.create_plan(io, plan)
            with _watched(self._table, plan, units, progress):
                walked_units = self._work.run_job(plan, lambda result: _in_order(plan, result, len(units)))
            for walked in walked_units:
                outcome = read_outcome(io.read(walked.location), path=walked.location)
                if outcome.rows != walked.rows:
                    raise FormatError(
                        f"the job wrote {walked.rows} rows and {outcome.rows} are there", path=walked.location
                    )
                yield outcome
        finally:
            staging.clear(io, plan)

    def _plan(self, units: int) -> JobPlan:
        metadata = self._table.metadata
        prefix = staging.new_staging(metadata, self._work.operation_key, self._work.try_number)
        return JobPlan(
            operation="walk",
            operation_key=self._work.key_text,
            try_number=self._work.try_number,
            table=self._table.name,
            table_location=metadata.location,
            table_uuid=metadata.table_uuid or "",
            format_version=metadata.format_version,
            schema=metadata.schema(),
            spec=metadata.spec(),
            data_location=metadata.location,
            staging_location=prefix,
            location=f"{prefix}/plan.json",
            result_location=f"{prefix}/result.json",
            file_prefix=prefix.rpartition("/")[2],
            source=Source(kind="units", units=tuple(f"{prefix}/units/{number:06d}.json.gz" for number in range(units))),
            distribution_mode="none",
        )


def expected_files(metadata: TableMetadata) -> int:
    """Return how many files a table has, by the summaries of its snapshots; 0 where they do not say."""
    found = 0
    for snapshot in metadata.snapshots:
        totals = (snapshot.summary.get(name, "0") for name in ("total-data-files", "total-delete-files"))
        found = max(found, sum(int(total) for total in totals if total.isdecimal()))
    return found


def _in_order(plan: JobPlan, result: JobResult, count: int) -> list[WalkedUnit]:
    """Return what came of each unit, exactly once; with one of them missing a live file might look like a dead one."""
    walked = sorted(result.walked, key=lambda one: one.number)
    if [one.number for one in walked] != list(range(count)):
        raise FormatError(f"the job walked {len(walked)} of {count} units", path=plan.result_location)
    return walked


@contextmanager
def _watched(table: OpenTable, plan: JobPlan, units: Sequence[Unit], progress: Progress) -> Iterator[None]:
    """Say how far a job is while it runs, by the files that it has written."""
    ended = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not ended.wait(EVERY_SECONDS):
            try:
                names = [status.location.rpartition("/")[2] for status in table.io.list(walked_location(plan))]
            except IcebergError as error:
                log.debug("%s: cannot see how far the job is: %s", table.name, error)
                continue
            for number in {int(name.partition("-")[0]) for name in names} - seen:
                seen.add(number)
                progress.come_past(units[number].files, units[number].weight)
                progress.finish(units[number].weight)

    thread = threading.Thread(target=look, name="iceberg-walk-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
