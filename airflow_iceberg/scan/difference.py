"""How the rows of two snapshots of a table differ, whether one is an ancestor of the other or not.

Not here: the changes of each snapshot of a range (`changelog`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.data.changelog import ChangelogReader
from airflow_iceberg.data.read.selection import identifier_ids
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.changes import difference_of
from airflow_iceberg.scan.changelog import reader_of
from airflow_iceberg.scan.table_scan import TableScan

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.plan.changelog import SnapshotChanges
    from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The data files whose rows differ between two snapshots, and a reader of these rows.

    Attributes:
        changes: the files that only one of the snapshots has, or to which other deletes apply.
    """

    changes: SnapshotChanges
    reader: ChangelogReader

    @property
    def record_count(self) -> int:
        """The number of rows in the files, of which any may be the same in both."""
        return sum(one.file.record_count for one in self.changes.files)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that differ, with `_change_type`: those of the first snapshot, then those of the second."""
        return self.reader.rows([self.changes])


def find_difference(
    metadata: TableMetadata,
    io: FileIO,
    before: Snapshot | None,
    after: Snapshot,
    *,
    identifier_columns: Sequence[str] = (),
) -> Difference:
    """Return how the rows of a snapshot differ from those of another one; None stands for a table without rows.

    Args:
        identifier_columns: the columns that identify a row, for updates; by default the identifier fields of the table,
            or the row's id (version 3), or none.

    Raises:
        NotFoundError: no such column.
    """
    whole = TableScan.of(metadata, io, snapshot_id=after.snapshot_id)
    has_identity = bool(identifier_columns or whole.schema.identifier_field_ids) or metadata.format_version >= 3
    identifiers = identifier_ids(
        metadata, whole.schema, compute_updates=has_identity, identifier_columns=identifier_columns
    )
    reader = reader_of(whole, ("*",), identifiers)
    return Difference(changes=difference_of(io, metadata, before, after), reader=reader)
