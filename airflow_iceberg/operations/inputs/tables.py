"""Inputs: tables that the query or the callable of new rows reads, each pinned to one snapshot.

    inputs = {"orders": Input(open=lambda: Table.load(catalog, "sales.orders"), ref="audited")}
    append(work, AppendRequest(rows=Source.from_sql("select * from orders"), inputs=inputs))

Here: which snapshot, which columns and which rows of it are read, and how the commit says so. A retry pins again: only
the commit that lands counts, and its summary names what it has read. Not here: what a query needs
(`expressions.query`), reading (`jobs.spark.inputs`, `jobs.duckdb_query`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.runs.consumed import Range
from airflow_iceberg.commit.write_result import INPUTS
from airflow_iceberg.data.read.selection import changelog_columns, choose_snapshot, identifier_ids, project
from airflow_iceberg.errors import IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.query import ALL, Need, Statement, needs_of_all, tables_of
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, all_of
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import METADATA_COLUMNS
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.pinned import PinnedChanges, PinnedTable, locations_of, named
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.changes import Changes, Consumer, choose_range
from airflow_iceberg.operations.inputs.reads import check_same_reads, reads_of
from airflow_iceberg.redaction import hide

# A name that every engine takes without quotes.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """A table to read, and what of it.

    Attributes:
        open: loads the table; called when the job is planned.
        snapshot_id, ref, as_of_ms: the snapshot, by at most one of the three; the current one by default.
        row_filter: a predicate in SQL; only rows that satisfy it are read.
        predicate_params: the values of the predicate's placeholders, `:name`, by name.
        selected_fields: the columns, also metadata columns; "*" is all.
    """

    open: Callable[[], OpenTable]
    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    row_filter: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    selected_fields: Sequence[str] = ("*",)

    def __post_init__(self) -> None:
        if isinstance(self.selected_fields, str):
            raise InvalidInputError(f"selected_fields is the text {self.selected_fields!r}, expected a list of columns")


def check_inputs(
    inputs: Mapping[str, Input | Changes],
    rows: object,
    *,
    by_condition: Collection[str] | None = (),
    taken: Collection[str] = (),
) -> None:
    """Check the names of inputs, before any table is loaded.

    Args:
        by_condition: the names, in small letters, that the condition of an overwrite reads; None if it is not known.
        taken: the argument of `check_names`.

    Raises:
        InvalidInputError: a name that cannot be one of a view, or that no query reads; a source of files.
    """
    if not inputs:
        return
    check_names(inputs, taken=taken)
    left = [] if by_condition is None else sorted(name for name in inputs if name.lower() not in by_condition)
    if not isinstance(rows, Source) or rows.kind == "files":
        if left:
            raise InvalidInputError(
                "inputs are tables that sql or python_callable reads, and the rows come from elsewhere"
            )
        return
    if rows.kind == "callable" and (both := sorted(inputs.keys() & rows.kwargs.keys())):
        raise InvalidInputError(f"{both[0]!r} is an input, and one of op_kwargs, too; rename one of them")
    read = None if rows.sql is None else tables_of(rows.sql, dialect=rows.dialect)
    unread = [] if read is None else [name for name in left if name.lower() not in read]
    if unread:
        raise InvalidInputError(f"inputs has {unread[0]!r}, and the query does not read it; leave it out")


def check_names(inputs: Mapping[str, Input | Changes], *, taken: Collection[str] = ()) -> None:
    """Check the names of inputs.

    Args:
        taken: names that the SQL has for other rows, in small letters.

    Raises:
        InvalidInputError: a name that cannot be one of a view, or means something else.
    """
    for name in inputs:
        if not _NAME.fullmatch(str(name)):
            raise InvalidInputError(f"{name!r} cannot be the name of an input; expected letters, digits and '_'")
        if name.lower() in taken:
            raise InvalidInputError(
                f"an input cannot be named {name!r}, which is the name of the table's own rows, or of the source's; "
                f"rename it"
            )
    if len({name.lower() for name in inputs}) < len(inputs):
        raise InvalidInputError(f"two inputs have the same name in other letters: {', '.join(sorted(inputs))}")


def pin_all(inputs: Mapping[str, Input | Changes], consumer: Consumer) -> tuple[PinnedTable, ...]:
    """Load the inputs, and read of each what its author says; errors as of `pin`."""
    if consumer.pinned is not None:
        return consumer.pinned
    found = {}
    for name, one in inputs.items():
        with _named(name):
            found[name] = _pinned(name, one, consumer)
    return tuple(found.values())


def pin(
    inputs: Mapping[str, Input | Changes], source: Source, consumer: Consumer, *, beside: Sequence[Statement] = ()
) -> tuple[PinnedTable, ...]:
    """Load the inputs, and choose what is read of each.

    Args:
        beside: the argument of `narrowed`.

    Raises:
        NotFoundError: no such table, snapshot, ref or column.
        InvalidInputError: a predicate that does not fit the columns; changes that cannot be told.
        IncompatibleChangeError: it is not known which changes were read before.
        UnsupportedError: an encrypted table.
    """
    tables = pin_all(inputs, consumer)
    # Those of a job that was started have been narrowed already.
    return tables if consumer.pinned is not None else narrowed(tables, inputs, source, beside=beside)


def narrowed(
    tables: Sequence[PinnedTable],
    inputs: Mapping[str, Input | Changes],
    source: Source,
    *,
    beside: Sequence[Statement] = (),
) -> tuple[PinnedTable, ...]:
    """Return pinned tables with only the columns and rows that the query of a source needs.

    Args:
        beside: further texts that read the same tables in this task, such as the clauses of a merge.
    """
    found = {table.name: table for table in tables}
    if source.sql is None:
        return tuple(found.values())
    query = Statement(text=source.sql, dialect=source.dialect, params=source.sql_args)
    wanted = needs_of_all([query, *beside], {name: table.schema for name, table in found.items()})
    if "sql" in source.withheld_values() or any(hide("sql", one.text) != one.text for one in beside):
        # The plan withholds the query, because of a secret in it; a filter would bring the secret into the plan.
        wanted = {name: replace(need, row_filter=ALWAYS_TRUE) for name, need in wanted.items()}
    return tuple(_narrowed(table, inputs[name], wanted[name]) for name, table in found.items())


def _pinned(name: str, one: Input | Changes, consumer: Consumer) -> PinnedTable:
    table = one.open()
    metadata = table.metadata
    if TableProperties.of(metadata.properties).encryption_key_id is not None:
        raise UnsupportedError(f"table {table.name} is encrypted and cannot be read here")
    if not table.metadata_location:
        raise UnsupportedError(f"the catalog gives no metadata file of table {table.name}, which a job would read")
    changes, snapshot_id, schema, known = _chosen(name, one, metadata, consumer)
    fields = tuple(one.selected_fields)
    if changes is not None and changes.mode == "changelog":
        changelog_columns(metadata, schema, fields)
        identifier_ids(
            metadata,
            schema,
            compute_updates=changes.compute_updates,
            identifier_columns=changes.identifier_columns,
        )
    else:
        project(metadata, schema, fields, case_sensitive=True)
    row_filter = parse_filter(one.row_filter, schema, params=one.predicate_params)
    if changes is not None:
        changes = replace(changes, reads=reads_of(changes, row_filter, fields))
        check_same_reads(changes, known)
    return PinnedTable(
        name=name,
        table=table.name,
        catalog=table.catalog.name,
        table_uuid=metadata.table_uuid or "",
        table_location=metadata.location,
        metadata_location=table.metadata_location,
        snapshot_id=snapshot_id,
        schema=schema,
        selected_fields=fields,
        row_filter=row_filter,
        locations=locations_of(table.io),
        changes=changes,
    )


def _chosen(
    name: str, one: Input | Changes, metadata: TableMetadata, consumer: Consumer
) -> tuple[PinnedChanges | None, int | None, Schema, Range | None]:
    """Return which changes are read, up to which snapshot, its columns, and the watermark."""
    if isinstance(one, Input):
        snapshot, schema = choose_snapshot(metadata, snapshot_id=one.snapshot_id, ref=one.ref, as_of_ms=one.as_of_ms)
        return None, None if snapshot is None else snapshot.snapshot_id, schema, None
    changes, last, known = choose_range(name, one, metadata, consumer)
    place = {"snapshot_id": last, "ref": None} if changes.is_again else {"snapshot_id": None, "ref": one.ref}
    return changes, last, choose_snapshot(metadata, as_of_ms=None, **place)[1], known


def _narrowed(table: PinnedTable, one: Input | Changes, need: Need) -> PinnedTable:
    """Return a table with only the columns and rows that a query needs, as far as its author has left them open."""
    if table.changes is not None and table.changes.mode == "changelog":
        return table  # a row is compared as a whole, and the query may ask for columns of the changelog
    if need is ALL or tuple(one.selected_fields) != ("*",) or table.schema.names.keys() & METADATA_COLUMNS.keys():
        return table
    columns = table.selected_fields if need.columns is None else need.columns
    return replace(table, selected_fields=columns, row_filter=all_of(table.row_filter, need.row_filter))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the input in an error."""
    try:
        yield
    except IcebergError as error:
        raise named(name, error) from error


def summary_of(tables: Sequence[PinnedTable]) -> dict[str, str]:
    """Return the entry of a snapshot's summary that names what its rows were made from."""
    if not tables:
        return {}
    read = {
        table.name: {
            "catalog": table.catalog,
            "table": table.table,
            "table-uuid": table.table_uuid,
            "snapshot-id": None if table.snapshot_id is None else str(table.snapshot_id),
            **({} if table.changes is None else _entry(table.changes)),
        }
        for table in tables
    }
    return {INPUTS: json.dumps(read)}


def _entry(changes: PinnedChanges) -> dict[str, Any]:
    """Return what the summary says of changes: also `commit.watermarks` reads it."""
    first = changes.from_snapshot_id
    more: dict[str, Any] = {"again": True} if changes.is_again else {}
    if changes.consumer is not None:
        more["consumer"] = changes.consumer
    if changes.reads is not None:
        more["reads"] = changes.reads
    return {"mode": changes.mode, "from-snapshot-id": None if first is None else str(first), **more}
