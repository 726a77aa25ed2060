"""Add files: existing Parquet, ORC and Avro files join a table where they are; only metadata is written.

Files that readers of Iceberg would misread are refused, or, if that is wanted, written anew in the same commit.

    from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
    from airflow_iceberg.operations.work import Work

    add_files(Work(table), AddFilesRequest(source="s3://old-lake/orders", partition_filter={"ds": "2026-01-01"}))

Here: the order of the steps. Not here: which files are meant (`operations.existing.listing`), what a footer tells and
whether a file fits (`data.existing`), the commit's rules (`commit.actions.add_files`).

The files were there before, and are not this operation's to delete: not after an error, nor after a commit that was
lost. From the commit on they are files of the table, which an expiry may delete if they lie in a location of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from airflow_iceberg.commit.actions.add_files import AddFiles
from airflow_iceberg.commit.actions.add_files import named as first_of
from airflow_iceberg.commit.compose import with_name_mapping
from airflow_iceberg.commit.operation_key import EXISTING_FILES, OnRerun, check_properties
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.data.existing.describe import describe
from airflow_iceberg.data.existing.rewrite import rows_of
from airflow_iceberg.data.existing.target import ExistingFile, Target, UnfitFileError
from airflow_iceberg.data.write.metrics import MetricsConfig
from airflow_iceberg.data.write.rows import rows_writer
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.existing.listing import (
    existing_table,
    files_below,
    files_of_table,
    in_partition,
    is_table_name,
    listed_files,
    metadata_folders,
    partition_names,
    partitions_of,
)
from airflow_iceberg.operations.new_rows import check_on_rerun, check_options, earlier_epochs, find_earlier
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.alter_table.properties import name_mapping_of
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import local_path, place_of

log = logging.getLogger(__name__)

# Footers are read at the same time, since stores answer slowly. Threads with local ones mostly wait for each other.
THREADS, _LOCAL_THREADS = 16, 4
_AHEAD = 4
"""So many footers for each thread are held at once at most."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddFilesRequest:
    """Which files join the table.

    Attributes:
        files: their locations; or
        source: a folder: all files below it. Folders `name=value` give the values of partition fields. Or the name of
            a table of the Hive Metastore that is the catalog, `old.orders`, which is no Iceberg table.
        partition_filter: the partition values, by name, of the files of `source` that are meant; None for all.
        check_duplicate_files: whether a file that the branch has already is an error.
        rewrite_unfit: whether the rows of files that readers would misread are written into new files of the table, in
            the same commit; by default such a file is an error.
        on_rerun: what happens to the files of an earlier run after the task was cleared: "replace" leaves the table
            with the files that are named now, "append" adds them, "skip" does nothing.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    files: Sequence[str] | None = None
    source: str | None = None
    partition_filter: Mapping[str, Any] | None = None
    check_duplicate_files: bool = True
    rewrite_unfit: bool = False
    branch: str = MAIN_BRANCH
    create_branch: bool = False
    on_rerun: OnRerun = "replace"
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_on_rerun(self.on_rerun)
        check_properties(self.snapshot_properties, own=(EXISTING_FILES,))
        if (self.files is None) == (self.source is None):
            raise InvalidInputError(
                f"exactly one of files and source is needed, got {'none' if self.files is None else 'both'}"
            )
        if isinstance(self.files, str):
            raise InvalidInputError(f"files is the text {self.files!r}, expected a list of locations")
        if self.partition_filter and self.source is None:
            raise InvalidInputError("partition_filter selects files of source; leave it out with files")


@creates_branch
def add_files(work: Work, request: AddFilesRequest) -> WriteResult:
    """Add existing files in one commit; a try that finds the commit of an earlier try reports it.

    Files without rows are left out. If the table has no name mapping, it gets that of its schema in the same commit.

    Raises:
        NotFoundError: a file, or all files below the folder, do not exist.
        AlreadyExistsError: the branch has some of the files already.
        InvalidInputError: a file does not fit the table, its partition is not known, or it is outside of the locations
            that the table may use.
        FormatError, UnsupportedError: a file is damaged, encrypted, or of another format.
        CommitUnknownError: cannot tell whether the commit has landed.
    """
    found = find_earlier(work, request)
    if found is not None:
        return found
    return work.on_latest(lambda: _add(work, request), branch=request.branch)


def _add(work: Work, request: AddFilesRequest) -> WriteResult:
    table = work.table
    check_options(table, writes_files=False)
    target = target_of(table.metadata)
    if request.source is not None and is_table_name(request.source):
        found = existing_table(table.catalog, request.source)
        partitions = partitions_of(found)
        if request.partition_filter:
            partitions = in_partition(table.metadata, partitions, request.partition_filter, what="partitions")
        existing = files_of_table(table.io, found, partitions, ignored=metadata_folders(table.metadata))
    elif request.source is not None:
        named = partition_names(table.metadata)
        existing = files_below(table.io, request.source, ignored=metadata_folders(table.metadata), named=named)
        if request.partition_filter:
            existing = in_partition(table.metadata, existing, request.partition_filter)
    else:
        existing = listed_files(table.io, request.files or ())
    found_files = check_existing(table.io, existing, target, rewrite_unfit=request.rewrite_unfit)
    report(table.name, existing, found_files, target)
    if not found_files.unfit:
        return commit_files(work, request, found_files.fit, target)
    check_options(table, takes_format=False)
    prefix = staging.new_file_prefix(work.operation_key, work.try_number or 1)
    rewritten = rewrite(table.io, found_files.unfit, table.metadata, target, file_prefix=prefix)
    paths = [file.file_path for file in rewritten]
    return commit_files(work, request, (*found_files.fit, *rewritten), target, paths=paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedFiles:
    """What the footers of existing files say.

    Attributes:
        fit: the entries of the files that join the table, without those that have no rows.
        unfit: the files that readers would misread, whose rows are written anew.
    """

    fit: tuple[DataFile, ...]
    unfit: tuple[ExistingFile, ...] = ()


def check_existing(
    io: FileIO, files: Iterable[ExistingFile], target: Target, *, rewrite_unfit: bool = False
) -> CheckedFiles:
    """Check files against a table, and nothing else.

    Raises:
        InvalidInputError: a file does not fit; or readers would misread it, unless it may be written anew.
        NotFoundError, FormatError, UnsupportedError, StorageError: see `data.existing.describe`.
    """

    def look(file: ExistingFile) -> DataFile | ExistingFile:
        try:
            return describe(io, file, target)
        except UnfitFileError:
            if not rewrite_unfit:
                raise
            return file

    fit, unfit = [], []
    for found in at_once(look, files):
        if isinstance(found, ExistingFile):
            unfit.append(found)
        elif found.record_count:
            fit.append(found)
    return CheckedFiles(fit=tuple(fit), unfit=tuple(unfit))


def rewrite(
    io: FileIO,
    files: Sequence[ExistingFile],
    metadata: TableMetadata,
    target: Target,
    *,
    file_prefix: str,
    folder: str | None = None,
) -> tuple[DataFile, ...]:
    """Write the rows of files into new ones, as an append does; after an error the new files are deleted.

    Args:
        folder: where the files are written; None for the table's own place of data files.
    Raises:
        InvalidInputError: a value does not fit its column; names column, file, row and value.
    """
    writer = rows_writer(io, metadata, target.schema, file_prefix, folder=folder)
    try:
        for file in files:
            for rows in rows_of(io, file, target):
                writer.write(rows)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def report(name: str, existing: Sequence[ExistingFile], found: CheckedFiles, target: Target) -> None:
    """Log what is worth to know of the files of a commit."""
    empty = len(existing) - len(found.fit) - len(found.unfit)
    if empty:
        log.info("%s: %d files without rows are left out", name, empty)
    if found.unfit:
        paths = [file.location for file in found.unfit]
        log.info("%s: the rows of %d files are written into new files: %s", name, len(paths), first_of(paths))
    wants_statistics = any(target.metrics.mode(column.field_id).has_counts for column in target.columns)
    without = [file.file_path for file in found.fit if not (file.null_value_counts or file.lower_bounds)]
    if without and wants_statistics:
        log.warning(
            "%s: %d of %d added files have no statistics, so that filters cannot skip them by values other than those "
            "of their partition: %s; write them anew, with a compaction or by an append, if filters matter",
            *(name, len(without), len(found.fit), first_of(without)),
        )


def commit_files(
    work: Work, request: AddFilesRequest, files: Sequence[DataFile], target: Target, *, paths: Sequence[str] = ()
) -> WriteResult:
    """Commit the entries of existing files, and of new ones, whose locations are `paths`."""
    # Without the paths of existing files: these are not deleted, whatever becomes of the commit.
    written = list(paths)
    with work.new_files(written):
        settings = work.settings(request, {EXISTING_FILES: "true"}, table_uuid=work.table.metadata.table_uuid)
        action = AddFiles(
            work.table.io,
            files,
            settings,
            written_schema=target.schema,
            earlier=earlier_epochs(work, request, settings, written),
            place=place_of,
            check_duplicate_files=request.check_duplicate_files,
        )
        return work.commit(with_name_mapping(action, target.name_mapping, planned=target.schema), written)


def target_of(metadata: TableMetadata) -> Target:
    """Return what files are checked against.

    Raises:
        InvalidInputError: the table's partition spec cannot be written.
    """
    schema, spec = metadata.schema(), metadata.spec()
    spec.validate(schema)
    return Target(
        schema=schema,
        spec=spec,
        metrics=MetricsConfig.from_properties(metadata.properties, schema, metadata.sort_order()),
        name_mapping=TableProperties.of(metadata.properties).name_mapping or name_mapping_of(schema),
        format_version=metadata.format_version,
        schemas=metadata.schemas,
    )


def at_once(read: Callable[[ExistingFile], T], files: Iterable[ExistingFile]) -> Iterator[T]:
    """Yield what is read of each file, in order, by a few threads that are never far ahead."""
    files = iter(files)
    first = next(files, None)
    if first is None:
        return
    threads = THREADS if local_path(first.location) is None else _LOCAL_THREADS
    pool = ThreadPoolExecutor(threads, thread_name_prefix="iceberg-footer")
    waiting: deque[Future[T]] = deque()
    try:
        for file in chain([first], files):
            if len(waiting) >= _AHEAD * threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(read, file))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
