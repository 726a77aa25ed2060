"""Whether a server's word about a table is that of the table's metadata file, and whether it may purge a table.

Reads and commits believe the server. But its word alone could make any files in the store those of a table, so that an
expiry would delete them with credentials that the server does not have itself. So the file that it names is read first:
who cannot write where another table has its metadata cannot make one that says so.
"""

from __future__ import annotations

import logging

from airflow_iceberg.catalogs.locations import Locations
from airflow_iceberg.catalogs.metadata_file import read_metadata
from airflow_iceberg.catalogs.names import TableId
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, StorageError, UnsupportedError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.ownership import metadata_below, places_of
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import GatedFileIO, ungated

log = logging.getLogger(__name__)


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


def refuse_shared(catalog: Locations, table: TableId) -> None:
    """Refuse to let a server purge a table in whose place another one is; it decides if we cannot look there.

    Raises:
        InvalidInputError: another table surely is there.
    """
    try:
        state = catalog._settled_state(catalog.load(table))
        gate = catalog.gate(table, state.metadata, state.metadata_location)
        files = GatedFileIO(ungated(state.io or catalog.io), gate)
        why, is_sure = catalog._doubt_by_names(state, drops=True)
        proven, is_final = catalog._proven_gate(files, state)
        # The server deletes what the metadata names: a table anywhere below may be named, too.
        location, folder = state.metadata.location, state.metadata_location.rpartition("/")[0]
        is_lost = is_final and location in set(gate.own) - set(proven.own)
        if why is None or not is_sure:
            why = f"another table is in its place, {location}, or in one above or below it; drop it without purge"
            if not (is_lost or any(metadata_below(files, location, own=folder))):
                return
    except (StorageError, FormatError, InvalidInputError, UnsupportedError) as error:
        log.info("cannot look for other tables in the place of %s: %s", table, error)
        return
    raise InvalidInputError(f"cannot purge {table}, nothing was dropped: {why}")
