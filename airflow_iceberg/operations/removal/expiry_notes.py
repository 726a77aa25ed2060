"""Notes of an expiry: the snapshots that an attempt removes, written before it commits.

With them the next expiry deletes the files of a killed one. Anybody who can write to the table's folder can write a
note, so that it names no files: only snapshots, and the version of the table that had them. Their files are taken from
that version, which the table's metadata log has to name. An expiry that was not killed knows its snapshots itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_iceberg.catalogs.metadata_file import read_metadata
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.reachable_files import statistics_paths
from airflow_iceberg.jobs.protocol.document import read_bytes, read_fields
from airflow_iceberg.operations.staging import STAGING_FOLDER

if TYPE_CHECKING:
    from airflow_iceberg.commit.operation_key import OperationKey
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata

log = logging.getLogger(__name__)

NOTE, PREFIX = "expired.json", "expire-"
TITLE, VERSION = "note of an expiry", 2
MOST_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Snapshots to remove, as the table had them before the commit."""

    location: str
    snapshots: tuple[Snapshot, ...]
    statistics: tuple[str, ...]

    @classmethod
    def of(cls, location: str, metadata: TableMetadata, snapshot_ids: Collection[int]) -> Note:
        """Return the note at a location about snapshots of a version of the table."""
        return cls(
            location=location,
            snapshots=tuple(one for one in metadata.snapshots if one.snapshot_id in snapshot_ids),
            statistics=statistics_paths(metadata, snapshot_ids),
        )

    def without(self, metadata: TableMetadata) -> Note:
        """Return the note with only those snapshots that the table does not have any more."""
        known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return replace(self, snapshots=tuple(one for one in self.snapshots if one.snapshot_id not in known))


class Notes:
    """The notes of one task (all tries), or of one call outside of Airflow."""

    def __init__(self, table: OpenTable, operation_key: OperationKey | None) -> None:
        self._table = table
        token = uuid4().hex[:12] if operation_key is None else operation_key.file_token
        self._prefix = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/{PREFIX}{token}"
        self._own: dict[str, Note] = {}

    def write(self, metadata: TableMetadata, snapshot_ids: Sequence[int]) -> None:
        """Note the snapshots that an attempt removes from a version of the table."""
        document = {
            "version": VERSION,
            "table-uuid": metadata.table_uuid,
            "last-updated-ms": metadata.last_updated_ms,
            "snapshot-ids": list(snapshot_ids),
        }
        location = f"{self._prefix}/{uuid4().hex[:12]}/{NOTE}"
        self._table.io.create(location, json.dumps(document).encode())
        self._own[location] = Note.of(location, metadata, set(snapshot_ids))

    def due(self, metadata: TableMetadata) -> Iterator[Note]:
        """Yield the notes, with only those of their snapshots that the table does not have any more."""
        for status in list(self._table.io.list(self._prefix)):
            if status.location.endswith(f"/{NOTE}") and (note := self.read(status.location, metadata)):
                yield note

    def is_own(self, note: Note) -> bool:
        """Whether this call has written a note, so that its content is known."""
        return note.location in self._own

    def read(self, location: str, metadata: TableMetadata) -> Note | None:
        """Return a note as `due` does; None if it is of another table, or if nothing proves what it says."""
        if location in self._own:
            return self._own[location].without(metadata)
        try:
            note = self._proved(location, metadata)
        except (FormatError, InvalidInputError, UnsupportedError, NotFoundError) as error:
            log.warning("%s: what an expiry had noted cannot be used: %s", self._table.name, error)
            return None
        return None if note is None else note.without(metadata)

    def _proved(self, location: str, metadata: TableMetadata) -> Note | None:
        """Return a note with the snapshots of the version that it names.

        Raises:
            FormatError, UnsupportedError: it is damaged, or of another version of this package.
            InvalidInputError: it leads to a location outside of the table's gate.
            NotFoundError: the note is gone, or the metadata log has no such version any more.
        """
        data = read_bytes(self._table.io, location, title=TITLE, most_bytes=MOST_BYTES)
        fields = read_fields(data, title=TITLE, version=VERSION, path=location)
        # The table was dropped and created again in the same location: the files of the old one are not deleted.
        if fields.opt_str("table-uuid") != metadata.table_uuid:
            return None
        updated_ms, snapshot_ids = fields.int("last-updated-ms"), set(fields.int_list("snapshot-ids"))
        for logged_ms, file in metadata.metadata_log:
            if logged_ms == updated_ms:
                before = read_metadata(self._table.io, file)
                if before.table_uuid == metadata.table_uuid and before.last_updated_ms == updated_ms:
                    return Note.of(location, before, snapshot_ids)
        raise NotFoundError(
            f"{location} is about a version of the table that its metadata log does not name; the files of the "
            f"snapshots are left for the next removal of orphan files"
        )
