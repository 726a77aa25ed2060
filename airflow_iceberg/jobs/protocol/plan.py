"""What a job has to do: `JobPlan`, a header and one task; written by Airflow, read by the job.

Imports neither pyarrow nor pyspark: the process that waits for a job imports this, too. Not here: the JSON form
(`jobs.protocol.document`), who writes a plan (`operations`), who runs it (`jobs.run_plan`). Who can read the table's
folder can read a plan, so it contains no secret: storage properties are passed in the environment, and the arguments of
a callable in a file for the driver (`jobs.main`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.json import expression_from_json
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.document import Document, StoredDocument
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.pinned import Locations, PinnedTable
from airflow_iceberg.jobs.protocol.seal import Seal, SealedFile
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.table_input import TableInput
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings, check_mode, check_positive
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

DISTRIBUTION_MODES = ("none", "hash", "range")


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition(Document):
    """A predicate that a job reads without knowing SQL.

    Attributes:
        text: the predicate as its author wrote it, for messages.
        predicate: the predicate bound to a schema, or with names only if columns may get other types in the job.
    """

    text: str
    predicate: Expression


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendTask(Document):
    """Write the rows of a source into new data files.

    Attributes:
        spec: the partition spec of the files.
        source: the source of the rows.
        distribution_mode: "none" (each task writes what it reads), "hash" (one task gets all rows of a partition),
            "range" (sorted rows are brought into one order over all tasks, others as for hash).
        sorts_rows: whether rows are sorted by the sort order before they are written, and files claim it.
        row_check: the condition that every row has to satisfy; None for no check.
        last_column_id: the highest field id that the table ever assigned, where new columns of the source are added to
            the schema; None where they are refused.
        inputs: the tables that a query or a callable reads.
    """

    kind: ClassVar[str] = "append"

    write: WriteSettings
    spec: PartitionSpec
    source: Source
    distribution_mode: str = "hash"
    sorts_rows: bool = False
    row_check: Condition | None = None
    last_column_id: int | None = None
    inputs: tuple[PinnedTable, ...] = ()

    def __post_init__(self) -> None:
        if self.distribution_mode not in DISTRIBUTION_MODES:
            known = ", ".join(DISTRIBUTION_MODES)
            raise InvalidInputError(
                f"unknown {TableProperties.distribution_mode} {self.distribution_mode!r}; one of {known}"
            )

    @property
    def claimed_order_id(self) -> int:
        """The id of the sort order that the files claim; 0 for none."""
        return self.write.sort_order.order_id if self.sorts_rows else 0

    @property
    def rows_schema(self) -> Schema:
        """The schema that rows are cast to: write defaults exist from version 3 on."""
        return self.write.rows_schema

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the task from its JSON form."""
        write = WriteSettings.from_dict(fields.child("write"))
        check = fields.opt_child("row-check")
        row_check = None if check is None else Condition.read(check, predicate=_predicate(check, write.schema))
        return cls.read(fields, write=write, row_check=row_check)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZOrder(Document):
    """The columns of a Z-order.

    Attributes:
        columns: full names of the columns.
        text_bytes: the number of leading bytes of text and binary values that are compared.
        most_bytes: the largest number of bytes that rows are compared by.
    """

    columns: tuple[str, ...]
    text_bytes: int
    most_bytes: int

    def __post_init__(self) -> None:
        check_positive("number of bytes of a text in a z-order", self.text_bytes)
        check_positive("number of bytes of a z-order", self.most_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorting(Document):
    """How a compaction sorts the rows of a group.

    Attributes:
        zorder: the columns of a Z-order; None sorts by the sort order of the write settings.
        claimed_order_id: the id of the sort order that the files claim; 0 for none.
        ranges_per_output: the smallest number of ranges that are sorted one after the other for an output file.
    """

    zorder: ZOrder | None = None
    claimed_order_id: int = 0
    ranges_per_output: int = 1

    def __post_init__(self) -> None:
        check_positive("number of ranges of an output", self.ranges_per_output)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactTask(Document):
    """Write the rows of the files of `table` into new files; without `sorting` in the order in which they are read."""

    kind: ClassVar[str] = "compact"

    write: WriteSettings
    spec: PartitionSpec
    table: TableInput
    sorting: Sorting | None = None

    @property
    def claimed_order_id(self) -> int:
        return 0 if self.sorting is None else self.sorting.claimed_order_id


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteTask(Document):
    """Delete rows from the table's files.

    Attributes:
        table: the files that may hold selected rows.
        row_filter: the predicate that selects rows, bound to the table's schema.
        mode: one of DELETE_MODES.
    """

    kind: ClassVar[str] = "delete"

    write: WriteSettings
    table: TableInput
    row_filter: Expression
    mode: str

    def __post_init__(self) -> None:
        check_mode(self.mode)

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the task from its JSON form."""
        table = TableInput.from_dict(fields.child("table"))
        return cls.read(fields, table=table, row_filter=_predicate(fields, table.schema, "row-filter"))


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryTask(Document):
    """Read manifests, or list files, for the units (`inventory.units`) of these documents."""

    kind: ClassVar[str] = "inventory"

    units: tuple[SealedFile, ...]


Task = AppendTask | CompactTask | DeleteTask | MergeTask | InventoryTask
_TASKS = (AppendTask, CompactTask, DeleteTask, MergeTask, InventoryTask)
TASKS: Mapping[str, type[Task]] = {kind.kind: kind for kind in _TASKS}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan(StoredDocument):
    """All that a job needs to know: it has no catalog.

    Attributes:
        operation_key: the text of the Airflow task's key, for logs; None outside of Airflow.
        try_number: the number of the Airflow task's try, from 1.
        table: the table's name for messages, e.g. "sales.orders".
        staging_location: a prefix of this try alone; the job may write anything below it.
        parallelism: the number of tasks that run at the same time; None leaves it to the engine.
        locations: what the job may read, write and delete of the table; None for a table without a catalog.
    """

    title: ClassVar[str] = "job plan"

    operation_key: str | None = None
    try_number: int = 1
    table: str
    table_uuid: str
    staging_location: str
    parallelism: int | None = None
    locations: Locations | None = None
    task: Task

    def __post_init__(self) -> None:
        if self.parallelism is not None:
            check_positive("parallelism", self.parallelism)
        if not self.file_prefix:
            raise InvalidInputError(f"staging location {self.staging_location!r} does not end in a name")

    def gated(self, io: FileIO) -> FileIO:
        """Return access to the table's files through the gate of the plan."""
        if self.locations is None:
            return io
        return self.locations.gate.around(io)

    @property
    def operation(self) -> str:
        return self.task.kind

    @property
    def location(self) -> str:
        """The location of this document."""
        return f"{self.staging_location}/plan.json"

    @property
    def seal(self) -> Seal:
        """The seal of this document, which the job gets with its arguments."""
        return Seal.of(self.to_json())

    @property
    def result_location(self) -> str:
        """The location of the JobResult; created once, never replaced."""
        return f"{self.staging_location}/result.json"

    @property
    def table_location(self) -> str:
        """The table's location: a staging location is two folders below it."""
        return self.staging_location.rsplit("/", 2)[0]

    @property
    def inventory_location(self) -> str:
        """The prefix of the files that an inventory writes; their names begin with the number of their unit."""
        return f"{self.staging_location}/inventory"

    @property
    def file_prefix(self) -> str:
        """The start of every data file's name; no other try has it."""
        return self.staging_location.rpartition("/")[2]

    @property
    def inputs(self) -> tuple[PinnedTable, ...]:
        """The tables that the source reads."""
        return self.task.inputs if isinstance(self.task, AppendTask | MergeTask) else ()

    @property
    def source(self) -> Source | None:
        """The source of rows; None for a job that reads the table alone."""
        return self.task.source if isinstance(self.task, AppendTask | MergeTask) else None

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of the values that a plan which was read from its document lacks."""
        own = self.task.withheld if isinstance(self.task, MergeTask) else ()
        return (*own, *(() if self.source is None else self.source.withheld))

    def withheld_values(self) -> dict[str, Any]:
        """Return the values that the document does not hold, by names; the driver of a job gets them on another way."""
        own = self.task.withheld_values() if isinstance(self.task, MergeTask) else {}
        return {**own, **({} if self.source is None else self.source.withheld_values())}

    def completed(self, values: Mapping[str, Any]) -> Self:
        """Return a plan that was read from its document with the values that this does not hold."""
        task = self.task
        if isinstance(task, MergeTask):
            own = {name: values[name] for name in task.withheld if name in values}
            task, values = task.completed(own), {name: values[name] for name in values if name not in own}
        if isinstance(task, AppendTask | MergeTask) and task.source is not None:
            return replace(self, task=replace(task, source=task.source.completed(values)))
        if values:
            raise InvalidInputError(f"the job was given {', '.join(sorted(values))}, which its plan does not withhold")
        return replace(self, task=task)

    @classmethod
    def open(cls, io: FileIO, location: str, seal: str) -> Self:
        """Read a plan from its location.

        Args:
            seal: the text form of its seal.

        Raises:
            InvalidInputError: no seal.
            FormatError: it is not the sealed one, or damaged.
            NotFoundError, StorageError: it cannot be read.
            UnsupportedError: it is of another version.
        """
        plan = cls.from_json(Seal.parse(seal).content(io, location, what=cls.title), path=location)
        if plan.location != location:
            raise FormatError(f"the plan is one for {plan.location}", path=location)
        return plan

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the plan from its JSON form."""
        task = fields.child("task")
        kind = task.str("kind")
        if kind not in TASKS:
            raise UnsupportedError(f"job operation {kind!r} is not supported; one of {', '.join(TASKS)}")
        return cls.read(fields, task=TASKS[kind].from_dict(task))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        document = StoredDocument.to_dict(self)  # super() needs the class that `slots=True` has replaced
        return {**document, "task": {"kind": self.task.kind, **document["task"]}}


def _predicate(fields: Fields, schema: Schema, key: str = "predicate") -> Expression:
    return expression_from_json(fields.mapping(key), schema, path=fields.path)
