"""What the pages show of a table: plain values, worked out from its metadata, and bounded however large it is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from airflow_iceberg.commit.write_result import count_of
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.type_text import begun_type
from airflow_iceberg.hooks.late_threads import stopper
from airflow_iceberg.inventory.limited import LimitedFileIO
from airflow_iceberg.operations.history.diff import schema_changes
from airflow_iceberg.operations.history.runs import Run, find_runs
from airflow_iceberg.operations.reports.table_facts import RefFacts, ref_facts, table_facts
from airflow_iceberg.plan.compact import RewriteOptions
from airflow_iceberg.scan.counted_files import CountedFiles, count_files
from airflow_iceberg.table import Table
from airflow_iceberg.ui.chart import Chart, draw
from airflow_iceberg.ui.health import Finding, find
from airflow_iceberg.ui.snapshots import LONGEST_TEXT, shown_run

RUNS_ON_A_PAGE = 50
MOST_PARTITIONS = 50
MOST_REFS = 200
MOST_COLUMNS = 500
MOST_SCHEMAS = 20
MOST_CHANGES = 100
MOST_MAINTENANCE = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Snapshots with who made them, the newest first.

    Attributes:
        newer, older: the numbers of the pages beside this one; None if there is none.
    """

    runs: tuple[Run, ...]
    first: int
    total: int
    newer: int | None
    older: int | None


def timeline(metadata: TableMetadata, *, branch: str | None, page: int) -> Timeline:
    """Return one page of a table's snapshots.

    Args:
        branch: the branch or tag whose history it is; None: all snapshots.
        page: its number, from 1 on.

    Raises:
        NotFoundError: no such branch.
    """
    skip = (page - 1) * RUNS_ON_A_PAGE
    runs = find_runs(metadata, branch=branch, skip=skip, most=RUNS_ON_A_PAGE + 1)
    return Timeline(
        runs=tuple(map(shown_run, runs[:RUNS_ON_A_PAGE])),
        first=skip + 1,
        total=len(metadata.snapshots),
        newer=page - 1 if page > 1 else None,
        older=page + 1 if len(runs) > RUNS_ON_A_PAGE else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column, nested ones with dots in their names."""

    field_id: int
    name: str
    type: str
    is_required: bool
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaChange:
    """A schema of the table, and how it differs from the one before."""

    schema_id: int
    since_ms: int | None
    changes: tuple[str, ...]
    is_current: bool


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a schema."""
    found = []
    for name, number in islice(schema.names.items(), MOST_COLUMNS):
        field = schema.fields_by_id[number]
        kind, doc = begun_type(field.type, LONGEST_TEXT), str(field.doc or "")[:LONGEST_TEXT]
        found.append(Column(field_id=number, name=name[:LONGEST_TEXT], type=kind, is_required=field.required, doc=doc))
    return tuple(found)


def schema_history(metadata: TableMetadata) -> tuple[SchemaChange, ...]:
    """Return the schemas of a table, the newest first, each with the time of its first snapshot."""
    since: dict[int, int] = {}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None:
            since.setdefault(snapshot.schema_id, snapshot.timestamp_ms)
    ordered = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    pairs = list(zip([None, *ordered], ordered, strict=False))[-MOST_SCHEMAS:]
    return tuple(
        SchemaChange(
            schema_id=after.schema_id,
            since_ms=since.get(after.schema_id),
            changes=() if before is None else _changes(before, after),
            is_current=after.schema_id == metadata.current_schema_id,
        )
        for before, after in reversed(pairs)
    )


def _changes(before: Schema, after: Schema) -> tuple[str, ...]:
    changes = schema_changes(before, after, by_id=True, most=LONGEST_TEXT)
    return tuple(one[:LONGEST_TEXT] for one in islice(changes, MOST_CHANGES))


def refs_of(metadata: TableMetadata) -> tuple[RefFacts, ...]:
    """Return the first branches and tags."""
    return ref_facts(metadata, most=MOST_REFS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Maintenance:
    """The compactions among the snapshots that the table has.

    Attributes:
        runs: the newest of them, with bytes of the files that each removed and added.
        fewer_files, saved_bytes: of all of them together; less than nothing if files became larger.
    """

    runs: tuple[tuple[Run, int, int], ...]
    count: int
    fewer_files: int
    saved_bytes: int


def maintenance_of(metadata: TableMetadata) -> Maintenance:
    """Return what compactions have done: the snapshots that replace files and change no rows."""
    done = [one for one in metadata.snapshots if one.operation == "replace"]
    newest = {one.snapshot_id: one for one in done[::-1][:MOST_MAINTENANCE]}
    runs = find_runs(metadata, snapshot_ids=newest) if newest else ()
    return Maintenance(
        runs=tuple((shown_run(run), *_bytes(newest[run.snapshot_id])) for run in runs),
        count=len(done),
        fewer_files=sum(_files(one, "deleted", "removed") - _files(one, "added", "added") for one in done),
        saved_bytes=sum(removed - added for removed, added in map(_bytes, done)),
    )


def _files(snapshot: Snapshot, data: str, deletes: str) -> int:
    return count_of(snapshot, f"{data}-data-files") + count_of(snapshot, f"{deletes}-delete-files")


def _bytes(snapshot: Snapshot) -> tuple[int, int]:
    return count_of(snapshot, "removed-files-size"), count_of(snapshot, "added-files-size")


def charts_of(metadata: TableMetadata, size: Any, number: Any) -> tuple[Chart, ...]:
    """Draw how the table has grown, by the totals in the summaries of main's snapshots.

    Args:
        size, number: make text of a number of bytes, and of a count.
    """
    head = metadata.current_snapshot()
    history = [] if head is None else list(metadata.ancestors(head.snapshot_id))[::-1]
    kinds = (
        ("Size", "total-files-size", size),
        ("Rows", "total-records", number),
        ("Data files", "total-data-files", number),
    )
    drawn = (
        draw(title, [(one.timestamp_ms, count_of(one, name)) for one in history if name in one.summary], shown)
        for title, name, shown in kinds
    )
    return tuple(chart for chart in drawn if chart is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """The files of the current snapshot, and what the table needs.

    Attributes:
        small_below: the size in bytes below which a compaction rewrites a file.
        error, problem: why the files were not counted.
    """

    small_below: int
    counted: CountedFiles | None = None
    findings: tuple[Finding, ...] = ()
    error: str = ""
    problem: IcebergError | None = None


def health_of(table: Table) -> Health:
    """Count the files of a table; that they cannot be read is a finding of its own."""
    metadata = table.metadata
    try:
        options = RewriteOptions.of({}, metadata.properties)
    except IcebergError:
        options = RewriteOptions()  # a property that is wrong is not the page's concern
    small_below = options.min_file_size_bytes
    try:
        counted = count_files(
            metadata,
            LimitedFileIO(table.io, check=stopper()),
            metadata.current_snapshot(),
            small_below=small_below,
            min_small_files=options.min_input_files,
            most_partitions=MOST_PARTITIONS,
        )
    except IcebergError as error:
        return Health(small_below=small_below, error=str(error), problem=error)
    findings = find(counted, snapshots=len(metadata.snapshots), metadata_files=len(metadata.metadata_log))
    return Health(small_below=small_below, counted=counted, findings=findings)


def facts_of(table: Table) -> dict[str, Any]:
    """Return what a table is, no more of it than a page shows."""
    return table_facts(table, longest=LONGEST_TEXT)
