"""What the manifests of a table say, for conditions whose answer the metadata file does not have.

In a triggerer files are read with the limits of `inventory.limited`; the worker of a sensor has its memory for itself.
Everything heavy is imported on use, in a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.hooks.late_threads import stopper
from airflow_iceberg.plan.conditions.decision import PartitionCount, PartitionTexts

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableState
    from airflow_iceberg.format.snapshots import Snapshot

T = TypeVar("T")

_MOST_PARTITIONS = 100_000
_MOST_SNAPSHOTS = 256
# What one of them may take in memory to be kept.
_MOST_KEPT_BYTES = 128 << 10
_ends_at: ContextVar[float | None] = ContextVar("airflow_iceberg_facts_end", default=None)


class TakesLongError(UnsupportedError):
    """The facts of a snapshot were not read within the time that its reader has for them."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let facts that are read in this block, in this thread, end by `TakesLongError` if that takes longer."""
    token = _ends_at.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends_at.reset(token)


class TableFacts:
    """The facts of one state of a table; all who wait for the table share what was read once.

    Args:
        is_limited: whether no more is read than the work of others beside it allows.
    """

    def __init__(self, catalog: Catalog, state: TableState, *, is_limited: bool = True) -> None:
        self._catalog = catalog
        self._is_limited = is_limited
        self._state = state
        self._lock = threading.RLock()
        self._partitions: dict[int, tuple[PartitionCount, ...]] = {}
        self._touched: dict[int, tuple[Mapping[str, str], ...] | None] = {}
        # The last one that is large: all who wait ask for it in turn.
        self._large: dict[int, tuple[Mapping[str, str], ...] | None] = {}

    def partitions(self, snapshot_id: int) -> tuple[PartitionCount, ...]:
        """Return the partitions of a snapshot."""
        with self._lock:
            if snapshot_id not in self._partitions:
                most = _MOST_PARTITIONS if self._is_limited else None
                counts = self._inspection().partition_counts(snapshot_id, most=most)
                found = tuple(
                    PartitionCount(
                        texts=self._texts(spec_id, values), data_files=files, records=records, position_deletes=deletes
                    )
                    for spec_id, values, (files, records, deletes) in counts
                )
                _remember(self._partitions, snapshot_id, found, 1)
            return self._partitions[snapshot_id]

    def touched(self, snapshot: Snapshot) -> tuple[Mapping[str, str], ...] | None:
        """Return the partitions in which a snapshot added or removed files; None if there are too many to tell."""
        from airflow_iceberg.inventory.limited import is_within

        with self._lock:
            number = snapshot.snapshot_id
            if number in self._large:
                return self._large[number]
            if number not in self._touched:
                found = self._inspection().touched_partitions(number)
                texts = None if found is None else tuple(self._texts(*key) for key in found)
                if not is_within(texts, _MOST_KEPT_BYTES):
                    _remember(self._large, number, texts, 1)
                    return texts
                _remember(self._touched, number, texts, _MOST_SNAPSHOTS)
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
        from airflow_iceberg.inventory.limited import LimitedFileIO
        from airflow_iceberg.table import Table

        files = self._state.io or self._catalog.io
        if not self._is_limited:
            return Table(self._state, io=files, catalog=self._catalog).inspect
        # Bound to this thread's end: manifests are read in others.
        end, late = _ends_at.get(), stopper()

        def check() -> None:
            late()
            if end is not None and time.monotonic() > end:
                raise TakesLongError("what its manifests say was not read in time")

        return Table(self._state, io=LimitedFileIO(files, check=check), catalog=self._catalog).inspect


def _remember(known: dict[int, T], number: int, found: T, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[number] = found
