"""What a job reads of the table itself: data files with the deletes that apply to them, cut into work items.

The work document has a JSON line for each item, compressed with gzip. It is stored next to the job plan, so that a plan
is small however large the table is.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.decompression import DOCUMENT_LIMIT, gunzip
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec, with_sources
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import StructType
from airflow_iceberg.jobs.protocol.document import Document, count
from airflow_iceberg.jobs.protocol.seal import SealedFile

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.plan.scan import FileScanTask
    from airflow_iceberg.storage.base import FileIO

WORK_FILE = "work.jsonl.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileUnit:
    """A data file of the table, or some of its row groups.

    Attributes:
        file: the file, without its column statistics, which readers of rows do not need.
        sequence_number: the data sequence number of the file.
        delete_files: the delete files that apply to it.
        parts: (first, end, count): the row groups from `first` to before `end`, of `count`; None is the whole file.
    """

    file: DataFile
    sequence_number: int
    delete_files: tuple[DataFile, ...] = ()
    parts: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, task: FileScanTask) -> Self:
        return cls(
            file=task.file.without_statistics(),
            sequence_number=task.sequence_number,
            delete_files=tuple(file.without_statistics() for file in task.delete_files),
        )

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read, estimated without opening the file."""
        first, end, count = self.parts or (0, 1, 1)
        return self.file.file_size_in_bytes * (end - first) // count


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkItem:
    """The files that one task reads, in this order.

    Attributes:
        number: the number of the item in the job, from 0.
        group: the number of the group of files that a commit replaces together.
    """

    number: int
    group: int
    units: tuple[FileUnit, ...]

    @property
    def size_bytes(self) -> int:
        return sum(unit.size_bytes for unit in self.units)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableInput(Document):
    """How to read the table's own files.

    Attributes:
        work: the work document.
        schemas: all schemas of the table, which equality deletes need; the first is the one to read by.
        specs: all partition specs of the table.
        name_mapping: the table's property `schema.name-mapping.default`.
    """

    work: SealedFile
    schemas: tuple[Schema, ...]
    specs: tuple[PartitionSpec, ...]
    name_mapping: str | None = None

    def __post_init__(self) -> None:
        if not self.schemas:
            raise InvalidInputError("no schema to read the table's files by")

    @classmethod
    def write(cls, io: FileIO, metadata: TableMetadata, items: Iterable[WorkItem], *, work_location: str) -> Self:
        """Write the work document, and return what the plan says of it; raises StorageError if it cannot be written."""
        schemas = metadata.newest_schemas()
        types = _partition_types(metadata.partition_specs, schemas)
        lines = (json.dumps(_item_to_dict(item, types), separators=(",", ":")) for item in items)
        document = gzip.compress("\n".join(lines).encode(), compresslevel=3, mtime=0)
        return cls(
            work=SealedFile.create(io, work_location, document),
            schemas=schemas,
            specs=metadata.partition_specs,
            name_mapping=TableProperties.of(metadata.properties).name_mapping,
        )

    @property
    def schema(self) -> Schema:
        """The schema to read by."""
        return self.schemas[0]

    @property
    def partition_types(self) -> dict[int, StructType]:
        """The types of partition tuples, by spec."""
        return _partition_types(self.specs, self.schemas)


def _partition_types(specs: Iterable[PartitionSpec], schemas: tuple[Schema, ...]) -> dict[int, StructType]:
    return {spec.spec_id: spec.partition_type(with_sources(spec, schemas)) for spec in specs}


def read_work(io: FileIO, table: TableInput) -> tuple[WorkItem, ...]:
    """Read the work document; raises FormatError if it was changed or is damaged, NotFoundError if there is none."""
    types, path = table.partition_types, table.work.location
    data = table.work.content(io, what="work document of a job")
    try:
        text = gunzip(data, limit=DOCUMENT_LIMIT).decode()
        documents = [json.loads(line) for line in text.split("\n") if line]
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise FormatError(f"the work document of a job is damaged: {error}", path=path) from error
    lines = [Fields(document, f"line {number}", path) for number, document in enumerate(documents, 1)]
    return tuple(
        WorkItem(
            number=count(line, "number"),
            group=count(line, "group"),
            units=tuple(_unit_from_dict(unit, types) for unit in line.items("units")),
        )
        for line in lines
    )


def _item_to_dict(item: WorkItem, types: Mapping[int, StructType]) -> dict[str, Any]:
    return {"number": item.number, "group": item.group, "units": [_unit_to_dict(unit, types) for unit in item.units]}


def _unit_to_dict(unit: FileUnit, types: Mapping[int, StructType]) -> dict[str, Any]:
    return {
        "file": unit.file.to_dict(types[unit.file.spec_id]),
        "sequence-number": unit.sequence_number,
        "delete-files": [file.to_dict(types[file.spec_id]) for file in unit.delete_files],
        "parts": None if unit.parts is None else list(unit.parts),
    }


def _unit_from_dict(fields: Fields, types: Mapping[int, StructType]) -> FileUnit:
    parts = fields.int_list("parts") if "parts" in fields else None
    if parts is not None and not (len(parts) == 3 and 0 <= parts[0] < parts[1] <= parts[2]):
        fields.fail("parts", f"unexpected row groups {list(parts)} (expected first, end and their number)")
    return FileUnit(
        file=_file(fields.mapping("file"), types, fields.path),
        sequence_number=count(fields, "sequence-number"),
        delete_files=tuple(_file(item, types, fields.path) for item in fields.list("delete-files")),
        parts=None if parts is None else (parts[0], parts[1], parts[2]),
    )


def _file(document: Mapping[str, Any], types: Mapping[int, StructType], path: str | None) -> DataFile:
    spec_id = Fields(document, "file", path).int("spec-id")
    if spec_id not in types:
        raise FormatError(
            f"a file of the work document is of spec {spec_id!r}, which the plan does not have", path=path
        )
    return DataFile.from_dict(document, types[spec_id], path=path)


def cut_group(units: Sequence[FileUnit], *, split_size_bytes: int) -> list[tuple[FileUnit, ...]]:
    """Cut the files of a group into runs of about the same size, one for each output file and task.

    A file that is larger than a run is cut between row groups, by the split offsets of its manifest entry.
    """
    runs: list[list[FileUnit]] = [[]]
    filled = 0
    for piece in (piece for unit in units for piece in _pieces(unit, split_size_bytes)):
        # A run ends where the next piece would make it larger than its size by more than is missing without it.
        if runs[-1] and filled + piece.size_bytes / 2 > split_size_bytes:
            runs.append([])
            filled = 0
        runs[-1].append(piece)
        filled += piece.size_bytes
    return [tuple(_joined(run)) for run in runs if run]


def _pieces(unit: FileUnit, split_size_bytes: int) -> list[FileUnit]:
    groups = len(unit.file.split_offsets or ())
    is_divisible = unit.file.file_format == "parquet" and groups > 1
    if not is_divisible or unit.size_bytes <= split_size_bytes:
        return [unit]
    return [replace(unit, parts=(index, index + 1, groups)) for index in range(groups)]


def _joined(run: Sequence[FileUnit]) -> list[FileUnit]:
    """Join neighbouring pieces of one file, so that it is opened once."""
    joined: list[FileUnit] = []
    for unit in run:
        last = joined[-1].parts if joined and joined[-1].file.file_path == unit.file.file_path else None
        # The table may list the file once more: then its first piece comes after the last one.
        if last is not None and unit.parts is not None and last[1] == unit.parts[0]:
            joined[-1] = replace(unit, parts=(last[0], unit.parts[1], last[2]))
        else:
            joined.append(unit)
    return joined
