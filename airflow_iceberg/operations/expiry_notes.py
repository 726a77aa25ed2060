"""Notes of an expiry: the snapshots that an attempt removes, written before it commits.

With them the next expiry deletes the files of a killed one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.reachable_files import statistics_paths
from airflow_iceberg.operations.staging import STAGING_FOLDER

if TYPE_CHECKING:
    from airflow_iceberg.commit.operation_key import OperationKey
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata


NOTE, PREFIX = "expired.json", "expire-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Snapshots to remove, as they were noted before the commit."""

    location: str
    table_uuid: str | None
    snapshots: tuple[Snapshot, ...]
    statistics: tuple[str, ...]


class Notes:
    """The notes of one task (all tries), or of one call outside of Airflow."""

    def __init__(self, table: OpenTable, operation_key: OperationKey | None) -> None:
        self._table = table
        token = uuid4().hex[:12] if operation_key is None else operation_key.file_token
        self._prefix = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/{PREFIX}{token}"

    def write(self, metadata: TableMetadata, snapshot_ids: Sequence[int]) -> None:
        """Note the snapshots that an attempt removes."""
        wanted = set(snapshot_ids)
        document = {
            "version": 1,
            "table-uuid": metadata.table_uuid,
            "snapshots": [
                {
                    "snapshot-id": snapshot.snapshot_id,
                    "manifest-list": snapshot.manifest_list,
                    "manifests": None if snapshot.manifests is None else list(snapshot.manifests),
                }
                for snapshot in metadata.snapshots
                if snapshot.snapshot_id in wanted
            ],
            "statistics": list(statistics_paths(metadata, snapshot_ids)),
        }
        self._table.io.create(f"{self._prefix}/{uuid4().hex[:12]}/{NOTE}", json.dumps(document).encode())

    def due(self, metadata: TableMetadata) -> Iterator[Note]:
        """Yield the notes, with only those of their snapshots that the table does not have any more."""
        for status in list(self._table.io.list(self._prefix)):
            if status.location.endswith(f"/{NOTE}") and (note := self.read(status.location, metadata)):
                yield note

    def read(self, location: str, metadata: TableMetadata) -> Note | None:
        """Return a note as `due` does; None if it is of another table.

        Raises:
            FormatError: it is damaged.
        """
        note = _read_note(location, self._table.io.read(location))
        # The table was dropped and created again in the same location: the files of the old one are not deleted.
        if note.table_uuid not in (None, metadata.table_uuid):
            return None
        known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return replace(note, snapshots=tuple(s for s in note.snapshots if s.snapshot_id not in known))


def _read_note(location: str, data: bytes) -> Note:
    try:
        fields = Fields(json.loads(data), "", location)
    except ValueError as error:
        raise FormatError(f"a note of expired snapshots is damaged: {error}", path=location) from error
    return Note(
        location=location,
        table_uuid=fields.opt_str("table-uuid"),
        snapshots=tuple(_noted_snapshot(item) for item in fields.items("snapshots")),
        statistics=tuple(str(path) for path in fields.list("statistics")),
    )


def _noted_snapshot(fields: Fields) -> Snapshot:
    manifests = fields.list("manifests") if "manifests" in fields else None
    return Snapshot(
        snapshot_id=fields.int("snapshot-id"),
        timestamp_ms=0,
        manifest_list=fields.opt_str("manifest-list"),
        manifests=None if manifests is None else tuple(str(path) for path in manifests),
        summary={},
    )
