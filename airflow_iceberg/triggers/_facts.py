"""What the manifests of a table say, for conditions whose answer the metadata file does not have.

Everything heavy is imported on use, in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_iceberg.plan.conditions.decision import PartitionCount, PartitionTexts

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableState
    from airflow_iceberg.format.snapshots import Snapshot


class TableFacts:
    """The facts of one state of a table; all who wait for the table share what was read once."""

    def __init__(self, catalog: Catalog, state: TableState) -> None:
        self._catalog = catalog
        self._state = state
        self._lock = threading.RLock()
        self._partitions: dict[int, tuple[PartitionCount, ...]] = {}
        self._touched: dict[int, tuple[Mapping[str, str], ...] | None] = {}

    def partitions(self, snapshot_id: int) -> tuple[PartitionCount, ...]:
        """Return the partitions of a snapshot."""
        with self._lock:
            if snapshot_id not in self._partitions:
                counts = self._inspection().partition_counts(snapshot_id)
                self._partitions[snapshot_id] = tuple(
                    PartitionCount(
                        texts=self._texts(spec_id, values), data_files=files, records=records, position_deletes=deletes
                    )
                    for spec_id, values, (files, records, deletes) in counts
                )
            return self._partitions[snapshot_id]

    def touched(self, snapshot: Snapshot) -> tuple[Mapping[str, str], ...] | None:
        """Return the partitions in which a snapshot added or removed files; None if there are too many to tell."""
        with self._lock:
            number = snapshot.snapshot_id
            if number not in self._touched:
                found = self._inspection().touched_partitions(number)
                self._touched[number] = None if found is None else tuple(self._texts(*key) for key in found)
            return self._touched[number]

    def added_records(self, snapshot: Snapshot) -> int | None:
        """Return the number of rows in the files that a snapshot added; None if it cannot be told."""
        rows: int | None = self._inspection().added_rows(snapshot.snapshot_id)
        return rows

    def _texts(self, spec_id: int, values: tuple[Any, ...]) -> dict[str, str]:
        metadata = self._state.metadata
        texts = metadata.spec(spec_id).partition_texts(values, metadata.schema_of_spec(spec_id))
        return PartitionTexts(texts, [name for name, value in zip(texts, values, strict=True) if value is None])

    def _inspection(self) -> Any:
        from airflow_iceberg.table import Table

        return Table(self._state, io=self._state.io or self._catalog.io, catalog=self._catalog).inspect
