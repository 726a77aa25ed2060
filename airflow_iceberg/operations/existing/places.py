"""Where the files of a new table may lie beside those of its source: neither within the other.

A table beside its source does not own the source's files. If one lay within the other, the next search for orphan files
would take files of the one for those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.storage.gate import place_of


def check_apart(location: str | None, properties: Mapping[str, str], source: str, folders: Sequence[str]) -> None:
    """Check the places of a new table.

    Args:
        location: that of the table; None if a server chooses it.
        properties: those of the table, which may name places of new files.
        source: what the user has named.
        folders: the locations of its files.
    Raises:
        InvalidInputError: a place is in a folder of the source, or the source in it.
    """
    own = {**({"the location of the new table": location} if location else {}), **_paths_of(properties)}
    for (what, place), folder in product(own.items(), folders):
        if place_of(place).is_below(place_of(folder)):
            raise InvalidInputError(
                f"{what}, {place}, is in the folder of its source, {source}; choose another one, or migrate the source"
            )
        if place_of(folder).is_below(place_of(place)):
            raise InvalidInputError(
                f"{what}, {place}, has the folder of its source in it, {folder}: what is written there later would be "
                f"orphan files of the new table, which are deleted; choose a location beside the source"
            )


def _paths_of(properties: Mapping[str, str]) -> dict[str, str]:
    known = TableProperties.of(properties)
    named = {
        TableProperties.data_path.name: known.data_path,
        TableProperties.folder_storage_path.name: known.folder_storage_path,
        TableProperties.object_storage_path.name: known.object_storage_path,
        TableProperties.metadata_path.name: known.metadata_path,
    }
    return {f"property {name} of the new table": path for name, path in named.items() if path}
