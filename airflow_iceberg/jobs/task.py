"""What one task of a job has to do, and what it did.

Here: a value for each kind of task. Of an append: `StageUnits`, `GatherBuckets`, `CutRanges`, `MergeRanges`; of a
compaction: `CompactItem`, `SortItem`, `SampleItem`, `SpillItem`, `GatherItem`; of a delete: `DeleteItem`; of an
inventory: `InventoryUnit`. Not here: what is done for each kind (a module for each operation), and who chooses
(`jobs.run_task`).

What a task did is in its TaskReport, a small JSON document. Data files and slices that no report names do not exist for
anybody else, so that a doubled or killed attempt is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.protocol.result import FileChange, InventoryUnitResult, JobError
from airflow_iceberg.jobs.protocol.table_input import WorkItem
from airflow_iceberg.jobs.sources.unit import Unit

# -- what becomes of the rows of a source ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Rows are written into data files."""

    phase: ClassVar[str] = "write"


@dataclass(frozen=True, slots=True)
class Spill:
    """Rows are cut into buckets of whole partitions, for the exchange.

    Attributes:
        buckets: the number of buckets.
    """

    phase: ClassVar[str] = "spill"

    buckets: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Rows are kept in a spill file, and their keys are sampled, for a sort."""

    phase: ClassVar[str] = "collect"


Staging = Write | Spill | Collect


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """What one task has to do; a class for each kind.

    Attributes:
        number: the number of the task in its phase, from 0; part of the file names.
    """

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StageUnits(TaskSpec):
    """Read source files, and stage their rows."""

    units: tuple[Unit, ...]
    staging: Staging


@dataclass(frozen=True, kw_only=True, slots=True)
class GatherBuckets(TaskSpec):
    """Write spilled rows into data files; a group of slices holds whole buckets."""

    groups: tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CutRanges(TaskSpec):
    """Cut collected rows into ranges of keys, by the boundaries at the location `ranges`."""

    slices: tuple[Slice, ...]
    ranges: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRanges(TaskSpec):
    """Sort ranges one after the other, and write them into data files; a group holds the slices of a range."""

    groups: tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactItem(TaskSpec):
    """Write the rows of files of the table into new ones, in the order in which they are read."""

    item: WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class SortItem(TaskSpec):
    """Sort the rows of files of the table in memory, and write them."""

    item: WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleItem(TaskSpec):
    """Sample the keys of the rows of files of the table."""

    item: WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class SpillItem(TaskSpec):
    """Cut the rows of files of the table into ranges of keys, by the boundaries at the location `ranges`."""

    item: WorkItem
    ranges: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GatherItem(TaskSpec):
    """Sort ranges one after the other, and write them; files of the item tell whether all are of one partition."""

    item: WorkItem
    groups: tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteItem(TaskSpec):
    """Delete the selected rows from files of the table."""

    item: WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryUnit(TaskSpec):
    """Run the unit of an inventory that has the task's number."""


# -- reports -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport:
    """What one task did.

    Attributes:
        number: the number of the task.
        data_files: the new files as `DataFile.to_dict` documents.
        changes: the changed files of the table, of a delete.
        record_count: the number of rows written or spilled.
        slices: the slices that were spilled.
        sample: the location of the sampled keys; None for none.
        unit: the result of the unit of an inventory.
        error: why the task failed, None if it did not.
        is_stopped: whether it did nothing, because another task had failed.
    """

    number: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[FileChange, ...] = ()
    record_count: int = 0
    slices: tuple[Slice, ...] = ()
    sample: str | None = None
    unit: InventoryUnitResult | None = None
    error: JobError | None = None
    is_stopped: bool = False

    @classmethod
    def of_slices(cls, number: int, slices: tuple[Slice, ...], *, sample: str | None = None) -> Self:
        """Return the report of a task that spilled rows."""
        return cls(
            number=number, slices=slices, record_count=sum(piece.record_count for piece in slices), sample=sample
        )

    def to_json(self) -> str:
        """Return the report as text for the way back to the driver."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, default=asdict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a report that `to_json` of the same version wrote."""
        document = json.loads(text)
        unit, error = document.pop("unit"), document.pop("error")
        return cls(
            data_files=tuple(document.pop("data_files")),
            changes=tuple(FileChange(**change) for change in document.pop("changes")),
            slices=tuple(
                Slice(**{**piece, "parts": tuple(map(tuple, piece["parts"]))}) for piece in document.pop("slices")
            ),
            unit=None if unit is None else InventoryUnitResult(**unit),
            error=None if error is None else JobError(**error),
            **document,
        )
