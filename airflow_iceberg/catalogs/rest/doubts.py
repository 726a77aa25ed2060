"""Whether a server's word about a table is that of the table's metadata file.

Reads and commits believe the server. But its word alone could make any files in the store those of a table, so that an
expiry would delete them with credentials that the server does not have itself. So the file that it names is read first:
who cannot write where another table has its metadata cannot make one that says so.
"""

from __future__ import annotations

from airflow_iceberg.catalogs.metadata_file import read_metadata
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.ownership import places_of
from airflow_iceberg.storage.base import FileIO


def doubt(io: FileIO, state: TableState) -> str | None:
    """Say why a state may not be the one in the table's metadata file; None if it surely is."""
    if not state.metadata_location:
        return "its server does not name its metadata file"
    try:
        found = read_metadata(io, state.metadata_location)
    except IcebergError as error:
        return f"it cannot be checked what its server says about it: {error}"
    if _identity(found) == _identity(state.metadata):
        return None
    return f"its server says something else about it than {state.metadata_location}"


def _identity(metadata: TableMetadata) -> tuple[object, ...]:
    """Return what decides which files are deleted."""
    snapshots = frozenset((each.snapshot_id, each.manifest_list) for each in metadata.snapshots)
    return metadata.table_uuid, places_of(metadata), snapshots
