"""Changing a table without touching its rows: the result of `Table.alter`, and the way there.

What a list of changes looks like says `plan.alter_table`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.commit.actions.alter_table import AlterTable
from airflow_iceberg.commit.engine import commit
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.properties.known import check_values
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import PrimitiveType

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlterResult:
    """What became of a list of changes.

    Attributes:
        changed: whether something was committed; False when the result of the list stood already.
        schema_id, spec_id, sort_order_id, format_version: of the table now.
    """

    table: str
    changed: bool
    schema_id: int
    spec_id: int
    sort_order_id: int
    format_version: int
    metadata_location: str

    def to_xcom(self) -> dict[str, Any]:
        """Return the result for other tasks."""
        return {
            "table": self.table,
            "changed": self.changed,
            "schema_id": self.schema_id,
            "spec_id": self.spec_id,
            "sort_order_id": self.sort_order_id,
            "format_version": self.format_version,
            "metadata_location": self.metadata_location,
        }


def alter(catalog: Catalog, state: TableState, changes: Sequence[Mapping[str, Any]]) -> tuple[TableState, AlterResult]:
    """Make a list of changes in one commit and return the table's new state.

    Raises:
        InvalidInputError, NotFoundError, AlreadyExistsError: as `plan.alter_table.evolve`; nothing was changed.
        UnsupportedError: the table is one that is not written here.
        StalePlanError: another table has come to its name.
        CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
    """
    name = str(state.table)
    check_properties(_asked_properties(changes))
    action = AlterTable(changes, table=name, table_uuid=state.metadata.table_uuid or "", new_uuid=str(uuid4()))
    after = commit(catalog, state, action)
    metadata = after.metadata
    _warn_of_case(name, state.metadata.schema(), metadata.schema())
    result = AlterResult(
        table=name,
        changed=action.changed,
        schema_id=metadata.current_schema_id,
        spec_id=metadata.default_spec_id,
        sort_order_id=metadata.default_sort_order_id,
        format_version=metadata.format_version,
        metadata_location=after.metadata_location,
    )
    return after, result


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse values that a write or a commit would stumble over later, while who sets them is there.

    What a table has already is left alone: other engines may know more values.

    Raises:
        InvalidInputError: names the property, its value and what is expected.
    """
    check_values(properties)
    for known in (TableProperties.file_format, TableProperties.delete_file_format):
        text = properties.get(known.name)
        if text is not None and not known.is_moot(text):
            log.warning("property %s is '%s': files of this format come from other engines alone", known, text)


def _asked_properties(changes: Any) -> dict[str, str]:
    """Return the properties that a list of changes sets; what is no such list is found by who reads it."""
    listed = changes if isinstance(changes, list | tuple) else ()
    asked = [change.get("set_properties") for change in listed if isinstance(change, Mapping)]
    pairs = [pair for one in asked if isinstance(one, Mapping) for pair in one.items()]
    return {str(key): property_text("set_properties", str(key), value) for key, value in pairs}


def _warn_of_case(table: str, before: Schema, after: Schema) -> None:
    """Say so when names of columns came to differ by case alone: Iceberg tells them apart, Spark and Hive do not."""
    same = _same_but_for_case(after) - _same_but_for_case(before)
    if same:
        log.warning(
            "table %s has columns that differ by case alone, which Spark and Hive cannot tell apart: %s",
            table,
            ", ".join(sorted(same)),
        )


def _same_but_for_case(schema: Schema) -> set[str]:
    counts = Counter(name.casefold() for name in schema.names)
    return {name for name in schema.names if counts[name.casefold()] > 1}


def differences(metadata: TableMetadata, schema: Mapping[str, Any] | Schema) -> list[str]:
    """Return in words which columns a description has that the table lacks, or has with another type.

    Types inside lists, maps and structs are not compared: their ids differ even where they are the same.
    """
    there = {column.name: column for column in metadata.schema().fields}
    found = []
    for column in schema_from_shorthand(schema).fields:
        mine = there.get(column.name)
        if mine is None:
            found.append(f"it has no column {column.name!r}")
        elif isinstance(mine.type, PrimitiveType) and mine.type != column.type:
            found.append(f"column {column.name!r} is of type {mine.type}, not {column.type}")
    return found
