"""A walk over a table's files as a job: a task a unit, and a file with what came of it.

Here: what `inventory.units` does, handed out to tasks. Not here: which units there are, and what their outcomes mean
(`operations.file_inventory`, which reads the files that are written here).
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.inventory.units import read_outcome, read_unit, run_unit
from airflow_iceberg.jobs import phase
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, JobResult, WalkedUnit, walked_location
from airflow_iceberg.jobs.task import WALK, TaskReport, TaskSpec

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def walk_units(plan: JobPlan, io: FileIO, run: phase.RunTasks, *, timings: phase.Timings) -> JobResult:
    """Run every unit of the plan.

    Args:
        run: runs task specs and returns their reports, in any order.
    """
    specs = [TaskSpec(number=number, kind=WALK) for number in range(len(plan.source.units))]
    with timings.phase("walk"):
        reports = phase.checked(run(specs), io)
    walked = tuple(report.walked for report in reports if report.walked is not None)
    return JobResult(
        status=SUCCEEDED,
        walked=walked,
        record_count=sum(one.rows for one in walked),
        timings=timings.total(),
    )


def run_walk(context: TaskContext, number: int) -> TaskReport:
    """Run one unit and write what came of it, under a name that no other attempt has."""
    started = time.monotonic()
    plan, io = context.plan, context.io
    place = plan.source.units[number]
    try:
        data = run_unit(io, read_unit(io.read(place), path=place))
    except ImportError as error:
        raise UnsupportedError(
            f"the Python of the workers lacks what reads manifests ({error}); install fastavro there, or read the "
            f"manifests in the process with spark_conn_id=None"
        ) from error
    location = f"{walked_location(plan)}/{number:06d}-{uuid.uuid4().hex[:12]}.arrow"
    io.create(location, data)
    walked = WalkedUnit(number=number, location=location, rows=read_outcome(data).rows)
    return TaskReport(number=number, walked=walked, seconds=time.monotonic() - started)
