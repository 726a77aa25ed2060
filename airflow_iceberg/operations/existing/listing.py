"""Which existing files are meant: those of a list, of a table of a metastore, or those below a folder.

The values of a partition are those that the metastore lists, or the names of the folders `name=value`.

Below a folder, names that begin with "_" or "." are skipped, as Hive and Spark do, and the metadata of the table
itself. Every location passes the gate of the table: later readers of the table could not open it otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.catalogs.existing_tables import ExistingTable, HasExistingTables
from airflow_iceberg.commit.actions.add_files import named
from airflow_iceberg.data.existing.partition import HIVE_NULL, folder_values
from airflow_iceberg.data.existing.target import ExistingFile
from airflow_iceberg.errors import InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionField
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.values.bytes import parse_literal
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import GatedFileIO, place_of


def absolute(location: str) -> str:
    """Return a location with its scheme: a local path may be given without."""
    return f"file://{location}" if location.startswith("/") else location


def is_table_name(source: str) -> bool:
    """Whether a source is the name of a table: every location has a slash."""
    return "/" not in source


def existing_table(catalog: Catalog, name: str) -> ExistingTable:
    """Return a table of the metastore that is the catalog.

    Raises:
        NotFoundError, UnsupportedError: see `HasExistingTables.existing_table`; or the catalog has Iceberg tables only.
    """
    return hive_catalog(catalog, name).existing_table(TableId.of(name))


def hive_catalog(catalog: Catalog, name: str) -> HasExistingTables:
    """Return the catalog; raises UnsupportedError if it has Iceberg tables only."""
    if not isinstance(catalog, HasExistingTables):
        raise UnsupportedError(
            f"source {name!r} is the name of a table, and catalog {catalog.name} has Iceberg tables only; give the "
            f"location of a folder, such as s3://old-lake/orders, or take a catalog of type hive"
        )
    return catalog


def listed_files(io: FileIO, locations: Sequence[str]) -> list[ExistingFile]:
    """Return the files of a list.

    Raises:
        InvalidInputError: the list is empty, or names a file twice; or one is outside of the table's gate.
    """
    if not locations:
        raise InvalidInputError("the list of files to add is empty; name at least one")
    found = [absolute(location) for location in locations]
    seen: dict[object, str] = {}
    twice = {one for one in found if seen.setdefault(place_of(one), one) is not one}
    if twice:
        raise InvalidInputError(f"the list of files to add has some twice: {named(sorted(twice))}; name each once")
    for location in found:
        _check(io, location)
    return [ExistingFile(location=one, folders=_folders(_above(one), one)) for one in found]


def files_below(
    io: FileIO, source: str, *, ignored: Iterable[str] = (), named: Collection[str] = ()
) -> list[ExistingFile]:
    """Return the files below a folder, sorted by location.

    The folder itself, and those above it, may be of partitions: `…/day=2026-01-01`. Those at its end count as the ones
    below it do; those further up only by the names that are given, since `…/env=prod/orders` may mean something else.

    Args:
        ignored: folders whose files are left out: those of the table's own metadata.
        named: names of partition fields and of their columns, in lower case.

    Raises:
        NotFoundError: there are none.
        InvalidInputError: the folder is outside of the table's gate, or two folders of a file contradict each other.
    """
    root = absolute(source).rstrip("/")
    _check(io, root)
    own = [place_of(each) for each in ignored]
    outer = _own_folders(root, named)
    found = []
    for status in io.list(root):
        parts = status.location[len(root) :].strip("/").split("/")
        if any(_is_hidden(part) for part in parts) or any(place_of(status.location).is_below(each) for each in own):
            continue
        folders = _folders((*outer, *parts[:-1]), status.location)
        found.append(ExistingFile(location=status.location, folders=folders, size_bytes=status.size_bytes))
    if not found:
        raise NotFoundError(
            f"there are no files below {source}, names that begin with '_' or '.' aside; check the location, and name "
            f"single files in a list"
        )
    return sorted(found, key=lambda file: file.location)


def _own_folders(root: str, named: Collection[str]) -> list[str]:
    """Return those folders `name=value` of a source's location that are partitions of its files."""
    parts = [*_above(root), root.rsplit("/", 1)[-1]]
    last = len(parts)
    while last and _is_partition(parts[last - 1]):
        last -= 1
    outer = [
        part for part in parts[:last] if _is_partition(part) and _decoded(part.partition("=")[0], root).lower() in named
    ]
    return [*outer, *parts[last:]]


def _is_partition(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(name and equals)


def partition_names(metadata: TableMetadata) -> frozenset[str]:
    """Return the names by which folders may give values of partition fields, in lower case."""
    schema = metadata.schema()
    fields = [field for field in metadata.spec().fields if isinstance(field.transform, IdentityTransform)]
    names = (name for field in fields for name in (field.name, schema.find_name(field.source_id)))
    return frozenset(name.lower() for name in names if name)


def files_of_table(
    io: FileIO, found: ExistingTable, partitions: Iterable[ExistingFile], *, ignored: Iterable[str] = ()
) -> list[ExistingFile]:
    """Return the files of partitions of a table that is no Iceberg table, sorted by location.

    As for Hive, a partition has the files that lie directly in its folder, whatever the names of the folders above it.

    Args:
        partitions: those of `partitions_of` that are meant.
        ignored: as of `files_below`.

    Raises:
        InvalidInputError: a folder is outside of the gate, or has folders of its own, in which rows may be.
    """
    files = []
    own = [place_of(each) for each in ignored]
    for partition in partitions:
        _check(io, partition.location)
        for status in io.list(partition.location):
            *above, name = status.location[len(partition.location) :].strip("/").split("/")
            if any(map(_is_hidden, (*above, name))) or any(place_of(status.location).is_below(each) for each in own):
                continue
            if above:
                raise InvalidInputError(
                    f"cannot take over {found.table}: {status.location} lies in a folder below that of its partition, "
                    f"{partition.location}; move such files up, or name single files in a list"
                )
            files.append(replace(partition, location=status.location, size_bytes=status.size_bytes))
    return sorted(files, key=lambda file: file.location)


def partitions_of(found: ExistingTable) -> list[ExistingFile]:
    """Return the folders of a table's partitions with their values."""
    return [ExistingFile(location=each.location, folders=each.values) for each in found.partitions]


def in_partition(
    metadata: TableMetadata,
    files: Sequence[ExistingFile],
    partition_filter: Mapping[str, Any],
    *,
    what: str = "files",
) -> list[ExistingFile]:
    """Return the files whose folders have these partition values; `what` is the word for them in an error.

    Raises:
        NotFoundError: there are none.
        InvalidInputError: the filter does not fit the table.
    """
    chosen = _filtered(metadata, files, partition_filter)
    if not chosen:
        raise NotFoundError(f"none of the {len(files)} {what} of the source is in partition {dict(partition_filter)}")
    return chosen


def _filtered(
    metadata: TableMetadata, files: Sequence[ExistingFile], partition_filter: Mapping[str, Any]
) -> list[ExistingFile]:
    schema, spec = metadata.schema(), metadata.spec()
    wanted = {}
    for name, value in partition_filter.items():
        field = _field(metadata, name)
        is_null = value is None or value == HIVE_NULL
        wanted[field.source_id] = None if is_null else parse_literal(schema.fields_by_id[field.source_id].type, value)
    values = ((file, folder_values(file, spec, schema)) for file in files)
    return [file for file, found in values if all(k in found and found[k] == v for k, v in wanted.items())]


def _field(metadata: TableMetadata, name: str) -> PartitionField:
    fields = [field for field in metadata.spec().fields if isinstance(field.transform, IdentityTransform)]
    for field in fields:
        if name in (field.name, metadata.schema().find_name(field.source_id)):
            return field
    known = ", ".join(field.name for field in fields) or "none"
    raise InvalidInputError(
        f"partition_filter names {name!r}, which is no partition field of the table that has the values of a column "
        f"(those are: {known})"
    )


def metadata_folders(metadata: TableMetadata) -> list[str]:
    """Return the folders of a table's metadata, whose Avro files are no data."""
    moved = TableProperties.of(metadata.properties).metadata_path
    return [f"{metadata.location.rstrip('/')}/metadata", *([moved] if moved else [])]


def check_files(io: FileIO, files: Iterable[DataFile]) -> None:
    """Refuse files that a table may not use; raises InvalidInputError."""
    for file in files:
        _check(io, file.file_path)


def _check(io: FileIO, location: str) -> None:
    if isinstance(io, GatedFileIO):
        io.check(location, "add")


def _above(location: str) -> list[str]:
    """Return the folders of a location, without scheme and authority."""
    return location.partition("://")[2].split("/")[1:-1]


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _folders(parts: Iterable[str], location: str) -> dict[str, str]:
    """Return names and values of the folders `name=value`, decoded as Hive encodes them."""
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if equals and name:
            name, value = _decoded(name, location), _decoded(value, location)
            if found.setdefault(name, value) != value:
                raise InvalidInputError(
                    f"cannot add {location}: two of its folders give '{name}' a value, {found[name]!r} and {value!r}"
                )
    return found


def _decoded(text: str, location: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"cannot add {location}: folder '{text}' is not UTF-8 when it is decoded, so that it is no value of a "
            f"partition; nothing was committed"
        ) from None
