"""The files of a job's result, checked: a result may name files of its own job only, each where the job writes it.

A result is no proof by itself: others can write to the folder where it lies, and a worker of a cluster can report
anything. Not here: reading the result (`operations.staging`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, StalePlanError, StorageError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import AppendTask, CompactTask, DeleteTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.storage.base import FileIO

THREADS = 16
# What follows the prefix of the job: numbers of tasks and files and a uuid, see `data.write` and `data.row_changes`.
_NAME = re.compile(r"(-[0-9a-f]{4,12})+(-deletes)?\.(parquet|avro|puffin)")
# With hashed paths without partitions the hash is a part of the name.
_HASH = re.compile(r"^[01]{8}-")
_MAGIC = {"parquet": b"PAR1", "avro": b"Obj\x01", "puffin": b"PFA1"}
# Formats whose files begin with these bytes; the others end with them, too.
_AT_THE_START = ("avro",)


def staged_files(plan: JobPlan, result: JobResult) -> tuple[DataFile, ...]:
    """Return all data files of an append or a compaction, checked against the plan.

    Raises:
        FormatError: a document is damaged, or names a file that is not of this job.
    """
    documents = [*result.data_files, *(document for group in result.groups for document in group.data_files)]
    return read_files(plan, documents, schema=result.schema)


def read_files(
    plan: JobPlan, documents: Iterable[Mapping[str, Any]], *, schema: Schema | None = None
) -> tuple[DataFile, ...]:
    """Return the data files of documents, checked against the plan as in `staged_files`.

    Args:
        schema: the schema of the files; the plan's by default.
    """
    task = plan.task
    assert isinstance(task, AppendTask | CompactTask)
    files = _Files(plan, [task.spec], schema or task.write.schema).read(documents)
    for file in files:
        if file.content is not FileContent.DATA:
            raise _foreign(plan, file, "a delete file")
    return files


def read_changed_files(plan: JobPlan, documents: Iterable[Mapping[str, Any]]) -> tuple[DataFile, ...]:
    """Return the data files and position delete files of a delete or a merge, checked as in `staged_files`."""
    task = plan.task
    assert isinstance(task, DeleteTask | MergeTask)
    specs = task.specs if isinstance(task, MergeTask) else task.table.specs
    files = _Files(plan, specs, task.write.schema).read(documents)
    for file in files:
        if file.content is FileContent.EQUALITY_DELETES:
            raise _foreign(plan, file, "an equality delete file")
    return files


class _Files:
    """Reads documents of files by the specs and the schema that a job writes them with."""

    def __init__(self, plan: JobPlan, specs: Sequence[PartitionSpec], schema: Schema) -> None:
        task = plan.task
        assert isinstance(task, AppendTask | CompactTask | DeleteTask | MergeTask)
        properties = TableProperties.of(task.write.properties)
        self._plan = plan
        self._data_location = task.write.data_location.rstrip("/")
        self._schema = schema
        self._specs = {spec.spec_id: (spec, spec.partition_type(schema)) for spec in specs}
        self._options = WriteOptions(
            object_storage=properties.object_storage_enabled,
            partitioned_paths=properties.object_storage_partitioned_paths,
        )

    def read(self, documents: Iterable[Mapping[str, Any]]) -> tuple[DataFile, ...]:
        found: dict[Any, DataFile] = {}
        for document in documents:
            file = self._file(document)
            key = file.identity if file.is_deletion_vector else file.file_path
            if key in found:
                raise _foreign(self._plan, file, "it is named twice")
            found[key] = file
        return tuple(found.values())

    def _file(self, document: Mapping[str, Any]) -> DataFile:
        path, spec_id = self._plan.result_location, document.get("spec-id")
        if type(spec_id) is not int or spec_id not in self._specs:
            raise FormatError(f"a file is of spec {spec_id!r}, which the plan does not have", path=path)
        spec, partition_type = self._specs[spec_id]
        try:
            file = DataFile.from_dict(document, partition_type, path=path)
        except InvalidInputError as error:
            raise FormatError(f"broken description of a file: {error}", path=path) from error
        folder, _, name = file.file_path.rpartition("/")
        own = name if self._options.partitioned_paths else _HASH.sub("", name)
        match = _NAME.fullmatch(own.removeprefix(self._plan.file_prefix))
        if match is None or not own.startswith(self._plan.file_prefix):
            raise _foreign(self._plan, file, "its name is not one of the job")
        if file.file_format != match[3] or (match[3] == "puffin") != file.is_deletion_vector:
            raise _foreign(self._plan, file, f"a file of format {file.file_format}")
        if file.record_count < 0 or file.file_size_in_bytes < 0:
            raise _foreign(self._plan, file, "its counts are negative")
        has_partition = spec.fields and file.file_format != "puffin"
        partition_path = spec.partition_path(file.partition, self._schema) if has_partition else ""
        expected = self._options.file_location(self._data_location, partition_path, own)
        if file.file_path != expected:
            raise _foreign(self._plan, file, f"expected in {expected.rpartition('/')[0]}, got {folder}")
        return file


def _foreign(plan: JobPlan, file: DataFile, why: str) -> FormatError:
    return FormatError(f"file {file.file_path} is not one of job {plan.file_prefix}: {why}", path=plan.result_location)


def check_stored(io: FileIO, plan: JobPlan, files: Iterable[DataFile]) -> None:
    """Check that files are in the store, of the size and the format that the result says: a small read or two for each.

    Raises:
        FormatError: a file is another one.
        StalePlanError: one was deleted, or moved to quarantine, while the job ran; the others are deleted now.
        StorageError: a file cannot be read.
    """
    sizes = {(file.file_path, file.file_size_in_bytes, file.file_format) for file in files}

    def missing(one: tuple[str, int, str]) -> str | None:
        location, size_bytes, file_format = one
        magic = _MAGIC[file_format]
        try:
            # One byte more than the file should have left: none of them is there.
            end = io.read(location, offset=max(size_bytes - len(magic), 0), length=len(magic) + 1)
            starts = file_format in _AT_THE_START
            found = io.read(location, offset=0, length=len(magic)) if starts else end
        except NotFoundError:
            return location
        if found != magic or len(end) != len(magic):
            raise FormatError(
                f"file {location} is not a {file_format} file of {size_bytes} bytes, as the job reported it",
                path=plan.result_location,
            )
        return None

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [pool.submit(missing, one) for one in sorted(sizes)]
    gone = {location for answer in answers if (location := answer.result())}
    if gone:
        with suppress(StorageError):  # orphan files, which are removed later
            io.delete(sorted({location for location, _, _ in sizes} - gone))
    check_none_missing(sorted(gone), len(sizes), table=plan.table)


def check_none_missing(missing: Sequence[str], count: int, *, table: str) -> None:
    """Raise StalePlanError if some of so many new files are missing."""
    if missing:
        raise StalePlanError(
            f"{len(missing)} of {count} new files for table {table} are gone before their commit, such as "
            f"{missing[0]}: they were deleted or moved to quarantine while the job ran; nothing was committed, run it "
            f"again, and let older_than of remove_orphan_files be longer than the longest job"
        )
