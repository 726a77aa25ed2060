"""Glue's documents of tables and databases: names, columns, parameters. Values only.

The columns are for users and for tools that list tables; the metadata file in the parameters is authoritative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.catalogs.base import Namespace, TableId, join_levels
from airflow_iceberg.catalogs.hive.column_types import column_type
from airflow_iceberg.catalogs.owners import Named
from airflow_iceberg.catalogs.pointer import Pointer
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
# The signs that a text of Glue on one line may have, in names of columns, their types and comments. Descriptions of
# tables and databases may have line breaks, too.
_COLUMN_NAME = re.compile(r"[\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]{1,255}")
_BREAKS = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_REFUSED = re.compile(r"[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFUSED_IN_TEXTS = re.compile(r"[^\t\r\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FIELD_ID, _IS_CURRENT = "iceberg.field.id", "iceberg.field.current"

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class GlueVersion:
    """Glue's version of a table, the token of its state; two states with one metadata file are the same state.

    Attributes:
        version_id: the table's version; None after our own commit, whose answer lacks it, until the next one.
        found: Glue's document of the table.
    """

    version_id: str | None = field(default=None, compare=False)
    found: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


def is_name(name: str) -> bool:
    """Tell whether Glue can store a database or table of exactly this name."""
    return bool(_NAME.fullmatch(name)) and name == name.lower()


def database_of(catalog: str, namespace: Namespace) -> str:
    """Return the name of a namespace's database; `InvalidInputError` unless Glue can store exactly this name."""
    if len(namespace) != 1 or not is_name(namespace[0]):
        raise InvalidInputError(
            f"namespace {join_levels(namespace)} of catalog {catalog}: a database of Glue has one level and a name in "
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
    comments = _Comments(storage.get("Columns") or ())
    storage |= {"Location": metadata.location, "Columns": columns(metadata, comments)}
    document = {key: found[key] for key in _KEPT if key in found}
    if description := metadata.properties.get("comment"):
        document["Description"] = _REFUSED_IN_TEXTS.sub("", description)[:_MAX_DESCRIPTION]
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


def columns(metadata: TableMetadata, comments: _Comments) -> list[Json]:
    """Return the columns of the current schema, then those that only older schemas had.

    A column whose name Glue refuses is left out.

    Args:
        comments: the comments in Glue, for columns without a documentation in the schema.
    """
    described: dict[str, Json] = {}
    for is_current, column in _fields(metadata):
        if column.name in described or not _COLUMN_NAME.fullmatch(column.name):
            continue
        document = {
            "Name": column.name,
            "Type": _line(column_type(column.type, zoned="timestamp", other="string"))[:_MAX_TYPE],
            "Parameters": {
                _FIELD_ID: str(column.id),
                "iceberg.field.optional": str(not column.required).lower(),
                _IS_CURRENT: str(is_current).lower(),
            },
        }
        if comment := _line(column.doc or comments.of(column)):
            document["Comment"] = comment[:_MAX_COMMENT]
        described[column.name] = document
    return list(described.values())


class _Comments:
    """The comments of the columns in a document of Glue.

    A comment belongs to the field that its column was made of: another column may have got the name since. Without the
    id of a field, as other programs write columns, it belongs to the name.
    """

    def __init__(self, described: Iterable[Mapping[str, Any]]) -> None:
        self._by_id: dict[str, str] = {}
        self._by_name: dict[str, str] = {}
        # Of two columns of one name or id the current one comes first.
        for each in sorted(described, key=lambda each: parameters_of(each).get(_IS_CURRENT) == "false"):
            field_id, comment = parameters_of(each).get(_FIELD_ID), each.get("Comment")
            if comment and field_id is not None:
                self._by_id.setdefault(str(field_id), comment)
            elif comment:
                self._by_name.setdefault(each["Name"], comment)

    def of(self, column: NestedField) -> str:
        """Return the comment of a column, "" for none."""
        return self._by_id.get(str(column.id)) or self._by_name.get(column.name, "")


def _line(text: str) -> str:
    """Return a text on one line: a break becomes a blank, and other signs that Glue refuses are left out."""
    return _REFUSED.sub("", _BREAKS.sub(" ", text)).strip()


def database_input(name: str, properties: Mapping[str, str], found: Mapping[str, Any] | None = None) -> Json:
    """Return Glue's document of a database, in which location and description are separate fields."""
    rest = {key: value for key, value in properties.items() if key != _LOCATION and key not in _DESCRIPTIONS}
    document: Json = {"Name": name, "Parameters": rest}
    if location := properties.get(_LOCATION):
        document["LocationUri"] = location
    if description := next((properties[key] for key in _DESCRIPTIONS if properties.get(key)), None):
        document["Description"] = _REFUSED_IN_TEXTS.sub("", description)
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


def is_view(found: Mapping[str, Any]) -> bool:
    """Tell whether an entry is a view: one of Iceberg, of Hive, of Athena."""
    return any("VIEW" in str(kind).upper() for kind in (found.get("TableType"), parameters_of(found).get(TABLE_TYPE)))


def other_kind(found: Mapping[str, Any] | None) -> str | None:
    """Return in words what an entry is, if there is one, and it is no Iceberg table."""
    if found is None or is_iceberg(found):
        return None
    return "a view" if is_view(found) else "a table of Glue, and none of Iceberg"


def pointer_of(found: Mapping[str, Any]) -> Pointer:
    """Return the pointer of an Iceberg table's document."""
    version = found.get("VersionId")
    token = GlueVersion(version_id=None if version is None else str(version), found=found)
    return Pointer(metadata_location=str(found["Parameters"][METADATA_LOCATION]), token=token)


def pointers_in(namespace: Namespace, tables: Iterable[Mapping[str, Any]], *, other_than: TableId) -> Iterator[Named]:
    """Yield the other Iceberg tables among the documents of a database, with their metadata files and locations."""
    for found in filter(is_iceberg, tables):
        if (namespace, found["Name"]) != (other_than.namespace, other_than.name):
            pointer = str(found["Parameters"][METADATA_LOCATION])
            yield namespace, str(found["Name"]), pointer, told_location(found)


def told_location(found: Mapping[str, Any] | None) -> str | None:
    """Return the location that the document of an Iceberg table has beside its metadata."""
    if found is None or not is_iceberg(found):
        return None
    return str((found.get("StorageDescriptor") or {}).get("Location") or "") or None


def document_of(pointer: Pointer) -> Mapping[str, Any]:
    """Return the document that a pointer came from; empty for one of our own commit."""
    return pointer.token.found or {} if isinstance(pointer.token, GlueVersion) else {}


def _fields(metadata: TableMetadata) -> Iterator[tuple[bool, NestedField]]:
    for column in metadata.schema().fields:
        yield True, column
    for schema in metadata.schemas:
        if schema.schema_id != metadata.current_schema_id:
            for column in schema.fields:
                yield False, column
