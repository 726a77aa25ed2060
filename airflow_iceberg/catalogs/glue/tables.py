"""Glue's documents of tables and databases: names, columns, parameters. Values only.

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
# The names of a database's description in PyIceberg, and in Iceberg Java and Spark.
_DESCRIPTIONS = ("Description", "comment")
_LOCATION = "location"
# The fields of an existing table that may be sent back.
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
# Glue stores names in lower case: a name with a capital letter could be written, and not be found again.
_NAME = re.compile(r"[^A-Z\x00-\x1f]{1,255}")

Json = dict[str, Any]


def is_name(name: str) -> bool:
    """Tell whether Glue can store a database or table of exactly this name."""
    return bool(_NAME.fullmatch(name)) and name == name.lower()


def database_of(catalog: str, namespace: Namespace) -> str:
    """Return the name of a namespace's database; `InvalidInputError` unless Glue can store exactly this name."""
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
        location: location of the metadata file.
        previous: location of the one before.
        found: Glue's document as it was read, None for a new table.
    """
    found = found or {}
    parameters = {**parameters_of(found), TABLE_TYPE: ICEBERG, METADATA_LOCATION: location}
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
    """Return a copy of a table's document with another name and other parameters."""
    document = {key: found[key] for key in (*_KEPT, "TableType", "StorageDescriptor") if key in found}
    return {**document, "Name": name, "Parameters": dict(parameters)}


def columns(metadata: TableMetadata, comments: Mapping[str, str]) -> list[Json]:
    """Return the columns of the current schema, then those that only older schemas had.

    Args:
        comments: comments by column, for columns without a documentation in the schema.
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
    """Return Glue's document of a database, in which location and description are separate fields."""
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
    properties = {str(key): str(value) for key, value in parameters_of(found).items()}
    if found.get("LocationUri"):
        properties[_LOCATION] = str(found["LocationUri"])
    if found.get("Description"):
        properties[_DESCRIPTIONS[0]] = str(found["Description"])
    return properties


def without_aliases(properties: Mapping[str, str], changed: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without descriptions under any name, if the change has one."""
    if any(name in changed for name in _DESCRIPTIONS):
        return {key: value for key, value in properties.items() if key not in _DESCRIPTIONS}
    return dict(properties)


def parameters_of(found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the parameters of a document, which may have none."""
    return (found or {}).get("Parameters") or {}


def is_iceberg(found: Mapping[str, Any]) -> bool:
    """Tell whether a table of Glue is an Iceberg table."""
    parameters = parameters_of(found)
    return str(parameters.get(TABLE_TYPE, "")).upper() == ICEBERG and bool(parameters.get(METADATA_LOCATION))


def _fields(metadata: TableMetadata) -> Iterator[tuple[bool, NestedField]]:
    for field in metadata.schema().fields:
        yield True, field
    for schema in metadata.schemas:
        if schema.schema_id != metadata.current_schema_id:
            for field in schema.fields:
                yield False, field
