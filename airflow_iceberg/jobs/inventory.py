"""Inventory: one task for each unit of a file inventory (`inventory.units`), and a file with the result of each.

Not here: which units there are, and what their results mean (`operations.file_inventory`, which reads these files).
"""

from __future__ import annotations

import uuid

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.inventory.units import read_outcome, read_unit, run_unit
from airflow_iceberg.jobs.context import TaskContext
from airflow_iceberg.jobs.phase import Job
from airflow_iceberg.jobs.protocol.plan import InventoryTask
from airflow_iceberg.jobs.protocol.result import SUCCEEDED, InventoryUnitResult, JobResult
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.task import InventoryUnit, TaskReport


def inventory_unit(context: TaskContext[InventoryTask], spec: InventoryUnit) -> TaskReport:
    """Run one unit and write its result, under a name that no other attempt has."""
    io, document = context.io, context.task.units[spec.number]
    try:
        unit = read_unit(document.content(io, what="document of a unit of an inventory"), path=document.location)
        data = run_unit(io, unit)
    except ImportError as error:
        raise UnsupportedError(
            f"the Python of the workers lacks what reads manifests ({error}); install fastavro there, or read the "
            f"manifests in the process with spark_conn_id=None"
        ) from error
    location = f"{context.plan.inventory_location}/{spec.number:06d}-{uuid.uuid4().hex[:12]}.arrow"
    file = SealedFile.create(io, location, data)
    result = InventoryUnitResult(number=spec.number, file=file, rows=read_outcome(data).rows)
    return TaskReport(number=spec.number, unit=result)


def inventory(job: Job[InventoryTask]) -> JobResult:
    """Run every unit of the plan."""
    reports = job.run("inventory", [InventoryUnit(number=number) for number in range(len(job.task.units))])
    units = tuple(report.unit for report in reports if report.unit is not None)
    return JobResult(
        status=SUCCEEDED, units=units, record_count=sum(one.rows for one in units), timings=job.timings.total()
    )
