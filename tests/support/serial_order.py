"""The history of a table, held against the changes that were planned on it: it must be a serial order of them.

    order = SerialOrder(catalog)
    order.expect(planned, change)       # a snapshot of this id means this change
    ...                                 # writers commit, in whatever way
    order.follow()                      # after each step

The rows of each snapshot are those of its parent after its change; the newest follows the one that was the newest
before; files keep the numbers and row ids that they have got. Here: what must be true of the table. Not here: what a
writer is told (the tests).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OPERATION_KEY
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.table import Table
from tests.support.changes import NAME, Change, Planned, Rows, live_entries, rows_in


class SerialOrder:
    """Follows main from the state of the table that the catalog has now.

    Args:
        made: the changes that brought it there.

    Attributes:
        rows: what main has, by the changes alone.
    """

    def __init__(self, catalog: Catalog, made: Iterable[Change] = ()) -> None:
        self._catalog = catalog
        self._changes: dict[int, Change] = {}
        # Of all snapshots that ever were; None is the table without any.
        self._rows_at: dict[int | None, Rows] = {None: Counter()}
        # By path and place: numbers and first row id, and the rows of data files.
        self._files: dict[object, tuple[int | None, int | None]] = {}
        self._spans: dict[object, tuple[int, int]] = {}
        start = catalog.load(NAME).metadata
        self._head = start.current_snapshot_id
        self._last_number = start.last_sequence_number
        self._rows_at[self._head] = reduce(lambda rows, change: +change.after(rows), made, Counter())

    @property
    def rows(self) -> Rows:
        return self._rows_at[self._head]

    def expect(self, planned: Planned, change: Change) -> None:
        if planned.snapshot_id is not None:
            self._changes[planned.snapshot_id] = change

    def has(self, planned: Planned) -> bool:
        """Tell whether a change has made its snapshot, be it gone by now."""
        return planned.snapshot_id in self._rows_at

    def rolled_back(self, snapshot_id: int) -> None:
        self._head = snapshot_id
        snapshot = self._catalog.load(NAME).metadata.snapshot(snapshot_id)
        if snapshot is None or snapshot.first_row_id is None:
            # Of before version 3: the next commit gives row ids to its files, once more to some.
            self._spans = {}

    def follow(self) -> None:
        """Look at what has come, after each step: no more than two snapshots may be new."""
        table = Table.load(self._catalog, NAME)
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id not in self._rows_at:
                self._add(snapshot, table.metadata)
        self._check_head(table)
        assert rows_in(table) == self.rows
        check_totals(table)
        check_row_ids(table)
        if table.metadata.format_version > 1:
            self._check_files(table)

    def check_history(self) -> None:
        """All snapshots that are left have the rows that they had when they were made."""
        table = Table.load(self._catalog, NAME)
        for snapshot in table.snapshots():
            found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            rows = Counter(zip(found["part"].to_pylist(), found["id"].to_pylist(), strict=True))
            assert rows == self._rows_at[snapshot.snapshot_id]

    def _add(self, snapshot: Snapshot, metadata: TableMetadata) -> None:
        before = self._rows_at[snapshot.parent_snapshot_id]
        self._rows_at[snapshot.snapshot_id] = +self._changes[snapshot.snapshot_id].after(before)
        if metadata.format_version > 1:
            assert snapshot.sequence_number > self._last_number
            self._last_number = snapshot.sequence_number

    def _check_head(self, table: Table) -> None:
        """Nobody's snapshot is left out, and no task's work is in twice."""
        head = table.current_snapshot()
        history = [] if head is None else list(table.metadata.ancestors(head.snapshot_id))
        # The parent of the oldest counts as well, which an expiry may have taken.
        ids = [snapshot.snapshot_id for snapshot in history] + [None, *(s.parent_snapshot_id for s in history)]
        assert self._head in ids
        self._head = None if head is None else head.snapshot_id
        keys = Counter(snapshot.summary.get(OPERATION_KEY) for snapshot in history)
        assert all(count == 1 for key, count in keys.items() if key is not None)

    def _check_files(self, table: Table) -> None:
        """What a file has got it keeps; it has the number of its snapshot, and no row id of another file's rows."""
        numbers = {snapshot.snapshot_id: snapshot.sequence_number for snapshot in table.metadata.snapshots}
        for entry in live_entries(table):
            file, name = entry.data_file, entry.data_file.identity
            found = (entry.sequence_number, entry.file_sequence_number)
            if name not in self._files:
                assert entry.snapshot_id is not None
                assert entry.file_sequence_number == numbers.get(entry.snapshot_id, entry.file_sequence_number)
            assert self._files.setdefault(name, found) == found
            if file.first_row_id is not None:
                self._check_span(entry)

    def _check_span(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        span = (file.first_row_id or 0, (file.first_row_id or 0) + file.record_count)
        if file.identity not in self._spans:
            assert all(span[1] <= start or end <= span[0] for start, end in self._spans.values())
        assert self._spans.setdefault(file.identity, span) == span


def check_totals(table: Table) -> None:
    """The summary's totals are those of the files, and no file is live twice."""
    head = table.current_snapshot()
    if head is None:
        return
    entries = live_entries(table)
    identities = [entry.data_file.identity for entry in entries]
    assert len(set(identities)) == len(identities)
    data = [entry.data_file for entry in entries if entry.data_file.content == 0]
    deletes = [entry.data_file for entry in entries if entry.data_file.content != 0]
    summary = {name: int(head.summary[name]) for name in ("total-records", "total-data-files", "total-delete-files")}
    assert summary == {
        "total-records": sum(file.record_count for file in data),
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
    }
    vectors = Counter(file.referenced_data_file for file in deletes if file.is_deletion_vector)
    assert all(count == 1 for count in vectors.values())
    assert vectors.keys() <= {file.file_path for file in data}


def check_row_ids(table: Table) -> None:
    """In v3 all files have row ids, below the next one, and none overlap among those that were never rewritten."""
    head = table.current_snapshot()
    # Files of before an upgrade get theirs with the first commit after it.
    if head is None or head.first_row_id is None:
        return
    spans = sorted(
        (entry.data_file.first_row_id, entry.data_file.record_count)
        for entry in live_entries(table)
        if entry.data_file.content == 0
    )
    end = 0
    for first, count in spans:
        assert first >= end
        end = first + count
    assert end <= table.metadata.next_row_id
