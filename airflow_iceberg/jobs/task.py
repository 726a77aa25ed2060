"""What one task of a job has to do, and what it did.

Not here: how each kind of task is executed (a module for each operation), and who chooses (`jobs.run_task`).

What a task did is in its TaskReport, a small JSON document. Data files and slices that no report names are ignored, so
that a repeated or killed attempt does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_iceberg.format.names import Path
from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.protocol.merge_task import Clause
from airflow_iceberg.jobs.protocol.result import FileChange, InventoryUnitResult, JobError
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.jobs.protocol.table_input import FileUnit, WorkItem
from airflow_iceberg.jobs.sources.unit import Unit

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.source_columns import SourceColumns

# -- what becomes of the rows of a source ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Rows are written into data files."""

    phase: ClassVar[str] = "write"


@dataclass(frozen=True, slots=True)
class Spill:
    """Rows are cut into this number of buckets of whole partitions, for the exchange."""

    phase: ClassVar[str] = "spill"

    buckets: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Rows are kept in a spill file, and their keys are sampled, for a sort."""

    phase: ClassVar[str] = "collect"


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows of a merge's source are kept in a spill file, and its keys once more by themselves, as columns 0, 1 ….

    Attributes:
        keys: where they are in the rows.
    """

    phase: ClassVar[str] = "source"

    keys: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Rows are the changes of a merge, which are brought to the files that they change.

    Attributes:
        clauses: the clauses, with all their columns.
        files: the number of files of the table that rows may be in.
    """

    phase: ClassVar[str] = "match"

    clauses: tuple[Clause, ...]
    files: int


Staging = Write | Spill | Collect | Keep | Change


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """What one task has to do; a class for each kind. Its number in the phase, from 0, is part of the file names."""

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StageUnits(TaskSpec):
    """Read source files, and stage their rows.

    Attributes:
        columns: the columns of the source of a merge; None for an append, whose rows get those of the table.
    """

    units: tuple[Unit, ...]
    staging: Staging
    columns: SourceColumns | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribeUnits(TaskSpec):
    """Find the columns of source files."""

    phase: ClassVar[str] = "describe"

    units: tuple[Unit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatherBuckets(TaskSpec):
    """Write spilled rows into data files; a group of slices holds whole buckets."""

    groups: tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CutRanges(TaskSpec):
    """Cut collected rows into ranges of keys, by the boundaries in the file `ranges`."""

    slices: tuple[Slice, ...]
    ranges: SealedFile


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRanges(TaskSpec):
    """Sort ranges one after the other, and write them into data files; a group holds the slices of a range."""

    groups: tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemTask(TaskSpec):
    """Do something with the files of a work item."""

    item: WorkItem


class CompactItem(ItemTask):
    """Write the rows of the files into new ones, in the order in which they are read."""


class SortItem(ItemTask):
    """Sort the rows of the files in memory, and write them."""


class SampleItem(ItemTask):
    """Sample the keys of the rows of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpillItem(ItemTask):
    """Cut the rows of the files into ranges of keys, by the boundaries in the file `ranges`."""

    ranges: SealedFile


@dataclass(frozen=True, kw_only=True, slots=True)
class GatherItem(ItemTask):
    """Sort ranges one after the other, and write them; the item's files show whether all are of one partition."""

    groups: tuple[tuple[Slice, ...], ...]


class DeleteItem(ItemTask):
    """Delete the selected rows from the files."""


Edit = tuple[tuple[FileUnit, tuple[Slice, ...]], ...]
"""A file in all places where the table lists it, each with the slices of its changes, whose buckets have the numbers of
the clauses."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EditFiles(TaskSpec):
    """Apply the changes of a merge to files of the table."""

    edits: tuple[Edit, ...]
    clauses: tuple[Clause, ...]


class CompareFiles(EditFiles):
    """Tell whether the changes of a merge change anything in files of the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InsertRows(TaskSpec):
    """Write the new rows of a merge into data files; a group of slices holds whole buckets."""

    groups: tuple[tuple[Slice, ...], ...]


class InventoryUnit(TaskSpec):
    """Run the unit of an inventory that has the task's number."""


# -- reports -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport:
    """What one task did.

    Attributes:
        data_files: the new files as `DataFile.to_dict` documents.
        changes: the changed files of the table, of a delete.
        record_count: the number of rows written or spilled.
        sample: the file with the sampled keys; None for none.
        columns: the columns of source files, as `FileColumns.to_dict` documents.
        is_stopped: whether it did nothing, because another task had failed.
    """

    number: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[FileChange, ...] = ()
    record_count: int = 0
    slices: tuple[Slice, ...] = ()
    sample: SealedFile | None = None
    unit: InventoryUnitResult | None = None
    columns: tuple[Mapping[str, Any], ...] = ()
    error: JobError | None = None
    is_stopped: bool = False

    @classmethod
    def of_slices(cls, number: int, slices: tuple[Slice, ...], *, sample: SealedFile | None = None) -> Self:
        """Return the report of a task that spilled rows."""
        return cls(number=number, slices=slices, record_count=sum(one.record_count for one in slices), sample=sample)

    def to_json(self) -> str:
        """Return the report as text for the driver."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, default=asdict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a report that `to_json` of the same version wrote."""
        document = json.loads(text)
        unit, error = document.pop("unit"), document.pop("error")
        if unit is not None:
            unit = InventoryUnitResult(**{**unit, "file": SealedFile.of_fields(unit["file"])})
        return cls(
            data_files=tuple(document.pop("data_files")),
            columns=tuple(document.pop("columns")),
            changes=tuple(FileChange(**change) for change in document.pop("changes")),
            slices=tuple(
                Slice(**{**piece, "parts": tuple(map(tuple, piece["parts"]))}) for piece in document.pop("slices")
            ),
            sample=SealedFile.of_fields(document.pop("sample")),
            unit=unit,
            error=None if error is None else JobError(**error),
            **document,
        )
