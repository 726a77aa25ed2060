"""One task of a job: read rows, make them fit, write them. Pure functions of (plan, work); they know no Spark.

Kinds of work: `write` reads source files and writes data files; `spill` reads source files and writes slices for the
exchange; `gather` reads slices and writes data files; `collect`, `cut` and `merge` (in `jobs.append_sorted`) bring
rows into the table's order; `rewrite` (in `jobs.compact`) reads files of the table. The rows of a query come in from
outside (`write_rows`, `spill_rows`). What a task did comes back as a TaskReport, a small JSON document: data files and
slices that no report names do not exist as far as anybody else is concerned, so that a doubled or killed attempt is
harmless.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.phase import RunTasks, Timings, checked, clean_exchange, target_file_size_bytes
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.sources.files import task_count
from airflow_iceberg.jobs.task import GATHER, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def gather(
    plan: JobPlan,
    io: "FileIO",
    spilled: Sequence[TaskReport],
    run: RunTasks,
    *,
    parallelism: int,
    timings: Timings,
) -> list[TaskReport]:
    """Write the data files from what was spilled, then remove the spill files."""
    slices = [piece for report in spilled for piece in report.slices]
    target = target_file_size_bytes(plan)
    size = sum(piece.size_bytes for piece in slices) // exchange.MEMORY_TO_PARQUET
    count = task_count(size, parallelism=parallelism, target_file_size_bytes=target) if slices else 0
    dealt = exchange.deal(slices, count, target_file_size_bytes=target) if slices else []
    specs = [TaskSpec(number=i, kind=GATHER, groups=groups) for i, groups in enumerate(dealt)]
    with timings.phase("gather"):
        reports = checked(run(specs), io)
    _check_rows(spilled, reports)
    clean_exchange(plan, io)
    return reports


def needs_exchange(plan: JobPlan) -> bool:
    """Return whether rows of one partition have to be brought together by the job."""
    return not plan.spec.is_unpartitioned and plan.distribution_mode != "none"


def sorts_over_tasks(plan: JobPlan) -> bool:
    """Return whether all rows are brought into one order; else each task sorts its own, if any sorts."""
    return plan.arrangement == "sort" and plan.distribution_mode == "range"


def _check_rows(spilled: Sequence[TaskReport], written: Sequence[TaskReport]) -> None:
    before, after = (sum(report.record_count for report in reports) for reports in (spilled, written))
    if before != after:
        raise IcebergError(f"the exchange took in {before} rows and gave out {after}; nothing may be committed")
