"""Glue's documents of tables and databases: names, columns, parameters. Values only.

Not here: requests (`glue.client`), the catalog (`glue.catalog`).

The columns are for users and for tools that list tables; the metadata file in the parameters is authoritative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_iceberg.catalogs.base import Namespace, TableId
from airflow_iceberg.catalogs.hive.column_types import column_type
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.types import NestedField

TABLE_TYPE, ICEBERG = "table_type", "ICEBERG"
METADATA_LOCATION = "metadata_location"
PREVIOUS_METADATA_LOCATION = "previous_metadata_location"

_EXTERNAL = "EXTERNAL_TABLE"
# What a description of a database is called: by PyIceberg, by Iceberg Java and Spark.
_DESCRIPTIONS = ("Description", "comment")
_LOCATION = "location"
# Of a table that is there, all that may be sent back.
_KEPT = (
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TargetTable",
)
_MAX_COMMENT, _MAX_TYPE, _MAX_DESCRIPTION = 255, 131_072, 2_048
# Glue stores names in lower case: one with a capital letter could be written, and never be found again as it was.
_NAME = re.compile(r"[^A-Z\x00-\x1f]{1,255}")

Json = dict[str, Any]


def is_name(name: str) -> bool:
    """Tell whether Glue can store a database or table of exactly this name."""
    return bool(_NAME.fullmatch(name)) and name == name.lower()


def database_of(catalog: str, namespace: Namespace) -> str:
    """Return the database that a namespace is.

    Raises:
        InvalidInputError: it has several levels, or a name that Glue would change.
    """
    if len(namespace) != 1 or not is_name(namespace[0]):
        raise InvalidInputError(
            f"namespace {'.'.join(namespace)} of catalog {catalog}: a database of Glue has one level and a name in "
            "lower case of at most 255 characters"
        )
    return namespace[0]


def table_input(
    table: TableId, metadata: TableMetadata, location: str, *, previous: str | None, found: Mapping[str, Any] | None
) -> Json:
    """Return Glue's document of a table; entries of other programs are kept.

    Args:
        location: of the metadata file.
        previous: of the one before.
        found: Glue's document as it was read, None for a new table.
    """
    found = found or {}
    parameters = {**(found.get("Parameters") or {}), TABLE_TYPE: ICEBERG, METADATA_LOCATION: location}
    if previous:
        parameters[PREVIOUS_METADATA_LOCATION] = previous
    storage = dict(found.get("StorageDescriptor") or {})
    comments = {each["Name"]: each["Comment"] for each in storage.get("Columns") or () if each.get("Comment")}
    storage |= {"Location": metadata.location, "Columns": columns(metadata, comments)}
    document = {key: found[key] for key in _KEPT if key in found}
    if description := metadata.properties.get("comment"):
        document["Description"] = description[:_MAX_DESCRIPTION]
    return {
        **document,
        "Name": table.name,
        "TableType": found.get("TableType") or _EXTERNAL,
        "Parameters": parameters,
        "StorageDescriptor": storage,
    }


def copied_input(name: str, found: Mapping[str, Any], parameters: Mapping[str, str]) -> Json:
    """Return the document that makes a table like the one that was found, under a name and with these parameters."""
    document = {key: found[key] for key in (*_KEPT, "TableType", "StorageDescriptor") if key in found}
    return {**document, "Name": name, "Parameters": dict(parameters)}


def columns(metadata: TableMetadata, comments: Mapping[str, str]) -> list[Json]:
    """Return the columns of the current schema, then those that only older schemas had.

    Args:
        comments: by column; those of columns without a documentation of their own stay.
    """
    described: dict[str, Json] = {}
    for is_current, field in _fields(metadata):
        if field.name in described:
            continue
        column = {
            "Name": field.name,
            "Type": column_type(field.type, zoned="timestamp", other="string")[:_MAX_TYPE],
            "Parameters": {
                "iceberg.field.id": str(field.id),
                "iceberg.field.optional": str(not field.required).lower(),
                "iceberg.field.current": str(is_current).lower(),
            },
        }
        if comment := field.doc or comments.get(field.name):
            column["Comment"] = comment[:_MAX_COMMENT]
        described[field.name] = column
    return list(described.values())


def database_input(name: str, properties: Mapping[str, str], found: Mapping[str, Any] | None = None) -> Json:
    """Return Glue's document of a database; its location and description are fields of their own there."""
    rest = {key: value for key, value in properties.items() if key != _LOCATION and key not in _DESCRIPTIONS}
    document: Json = {"Name": name, "Parameters": rest}
    if location := properties.get(_LOCATION):
        document["LocationUri"] = location
    if description := next((properties[key] for key in _DESCRIPTIONS if properties.get(key)), None):
        document["Description"] = description
    for key in ("CreateTableDefaultPermissions", "TargetDatabase"):
        if found and key in found:
            document[key] = found[key]
    return document


def database_properties(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a database; the description under PyIceberg's name."""
    properties = {str(key): str(value) for key, value in (found.get("Parameters") or {}).items()}
    if found.get("LocationUri"):
        properties[_LOCATION] = str(found["LocationUri"])
    if found.get("Description"):
        properties[_DESCRIPTIONS[0]] = str(found["Description"])
    return properties


def without_aliases(properties: Mapping[str, str], changed: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without descriptions under another name, if the change gives one."""
    if any(name in changed for name in _DESCRIPTIONS):
        return {key: value for key, value in properties.items() if key not in _DESCRIPTIONS}
    return dict(properties)


def is_iceberg(found: Mapping[str, Any]) -> bool:
    """Tell whether a table of Glue is one of Iceberg."""
    parameters = found.get("Parameters") or {}
    return str(parameters.get(TABLE_TYPE, "")).upper() == ICEBERG and bool(parameters.get(METADATA_LOCATION))


def _fields(metadata: TableMetadata) -> Iterator[tuple[bool, NestedField]]:
    for field in metadata.schema().fields:
        yield True, field
    for schema in metadata.schemas:
        if schema.schema_id != metadata.current_schema_id:
            for field in schema.fields:
                yield False, field
