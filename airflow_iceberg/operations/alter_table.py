"""Alter a table: its schema, partitioning, sort order, properties or format version; no row changes.

Here: `alter_table`, and the checks of properties. The changes themselves are in `plan.alter_table`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from airflow_iceberg.commit.actions.alter_table import AlterTable
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.write_result import OperationResult
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.manifests.entries import ManifestContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.properties.known import check_values
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.work import Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlterTableRequest:
    """Changes of a table.

    Attributes:
        changes: `[{"add_column": {"name": "price", "type": "decimal(9, 2)"}}, {"drop_column": "old"}]`; see
            `plan.alter_table` and docs/how-to/alter-a-table.md.
    """

    changes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AlterTableResult(OperationResult):
    """What an alter did; nothing, when the table had all changes already.

    Attributes:
        schema_id, spec_id, sort_order_id, format_version, metadata_location: the table's after the call.
    """

    schema_id: int
    spec_id: int
    sort_order_id: int
    format_version: int
    metadata_location: str


def alter_table(work: Work, request: AlterTableRequest) -> AlterTableResult:
    """Make a list of changes in one commit.

    Raises:
        InvalidInputError, NotFoundError, AlreadyExistsError: as `plan.alter_table.changes.evolve`; nothing was changed.
        UnsupportedError: this version does not write the table.
        StalePlanError: another table has the name now.
        CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
    """
    table, before = work.table, work.table.metadata
    check_properties(_asked_properties(request.changes))
    action = AlterTable(
        request.changes,
        table=table.name,
        table_uuid=before.table_uuid or "",
        work=None if work.operation_key is None else work.operation_key.file_token,
        new_uuid=str(uuid4()),
        before_commit=partial(_warn_of_equality_deletes, table),
    )
    landed = table.land(action)
    metadata = table.metadata
    _warn_of_case(table.name, before.schema(), metadata.schema())
    return AlterTableResult(
        table=table.name,
        outcome=landed.outcome,
        operation_key=work.key_text,
        schema_id=metadata.current_schema_id,
        spec_id=metadata.default_spec_id,
        sort_order_id=metadata.default_sort_order_id,
        format_version=metadata.format_version,
        metadata_location=table.metadata_location,
    )


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse values that would later make a write or a commit fail.

    Properties that a table has already are not checked: other engines may know more values.

    Raises:
        InvalidInputError: names the property, its value and what is expected.
    """
    check_values(properties)
    for known in (TableProperties.file_format, TableProperties.delete_file_format):
        text = properties.get(known.name)
        if text is not None and not known.is_moot(text):
            log.warning("property %s is '%s': files of this format come from other engines alone", known, text)


def _asked_properties(changes: Any) -> dict[str, str]:
    """Return the properties that a list of changes sets; `plan.alter_table` refuses what is no such list."""
    listed = changes if isinstance(changes, list | tuple) else ()
    asked = [change.get("set_properties") for change in listed if isinstance(change, Mapping)]
    pairs = [pair for one in asked if isinstance(one, Mapping) for pair in one.items()]
    return {str(key): property_text("set_properties", str(key), value) for key, value in pairs}


def _warn_of_equality_deletes(table: OpenTable, before: TableMetadata, after: TableMetadata) -> None:
    """Warn before columns of equality deletes are dropped: Iceberg Java looks for them in the current schema alone."""
    dropped = before.schema().fields_by_id.keys() - after.schema().fields_by_id.keys()
    if not dropped:
        return
    try:
        used = dropped & _equality_ids(table, before)
    except IcebergError as error:
        log.warning("%s: cannot tell whether equality deletes use the dropped columns: %s", table.name, error)
        return
    if used:
        message = (
            "%s: equality deletes use the columns that are dropped (%s); Iceberg Java cannot read the table until a "
            "compaction of all files with deletes has removed them: compact it, best before the columns are dropped"
        )
        log.warning(message, table.name, ", ".join(str(before.schema().find_name(one)) for one in sorted(used)))


def _equality_ids(table: OpenTable, metadata: TableMetadata) -> set[int]:
    """Return the columns of all equality deletes that a branch or tag has."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    snapshots = [one for one in metadata.snapshots if one.snapshot_id in heads]
    asked = [one for one in snapshots if one.summary.get("total-equality-deletes") != "0"]
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in asked
        for manifest in read_manifests(table.io, snapshot)
        if manifest.content is ManifestContent.DELETES and manifest.may_have_live_files
    }
    entries = (entry for manifest in manifests.values() for entry in read_entries(table.io, manifest))
    return {field_id for entry in entries if entry.is_live for field_id in entry.data_file.equality_ids or ()}


def _warn_of_case(table: str, before: Schema, after: Schema) -> None:
    """Warn when names of columns differ only by case: distinct in Iceberg, the same in Spark and Hive."""
    same = ", ".join(sorted(_same_but_for_case(after) - _same_but_for_case(before)))
    if same:
        message = "table %s has columns that differ by case alone, which Spark and Hive cannot tell apart: %s"
        log.warning(message, table, same)


def _same_but_for_case(schema: Schema) -> set[str]:
    counts = Counter(map(fold, schema.names))
    return {name for name in schema.names if counts[fold(name)] > 1}
