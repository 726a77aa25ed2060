"""Which delete files apply to no data file any more: they can be removed, and no deleted row reappears.

Pure: entries in, files out. Not here: which delete files apply to a data file that is read (`deletes`), the commit that
removes the dangling ones (`operations.compact`).

    deletion vector,               its data file was removed, or is newer than it
    positions of one data file
    positions of several files     all data files of its partition and spec are newer than it
    equality                       all of them are as new as it, or newer; an equality delete of an unpartitioned spec
                                   applies everywhere, and is compared with all data files of the table

Spec: Scan Planning.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.plan.deletes import partition_key, referenced_file


class _LiveData:
    """Sequence numbers of the live data files of a snapshot: of wanted paths, and the lowest by partition and spec."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self.files: dict[str, int] = {}
        self.lowest: dict[Hashable, int] = {}
        self.lowest_of_all: int | None = None

    def add(self, file: DataFile, sequence_number: int) -> None:
        if file.file_path in self._wanted:
            # A file may be listed several times.
            self.files[file.file_path] = min(self.files.get(file.file_path, sequence_number), sequence_number)
        key = partition_key(file)
        self.lowest[key] = min(self.lowest.get(key, sequence_number), sequence_number)


def dangling_deletes(
    data: Iterable[tuple[DataFile, int]], deletes: Iterable[ManifestEntry], metadata: TableMetadata
) -> tuple[DataFile, ...]:
    """Return the delete files that apply to no data file.

    Args:
        data: the live data files of a snapshot, each with its data sequence number.
        deletes: its live delete files.
    """
    entries = list(deletes)
    if not entries:
        return ()
    paths = (referenced_file(entry.data_file) for entry in entries)
    live = _LiveData(frozenset(path for path in paths if path is not None))
    for file, sequence_number in data:
        live.add(file, sequence_number)
    live.lowest_of_all = min(live.lowest.values(), default=None)
    is_global = {spec.spec_id: spec.is_unpartitioned for spec in metadata.partition_specs}
    return tuple(entry.data_file for entry in entries if _is_dangling(entry, live, is_global))


def _is_dangling(entry: ManifestEntry, live: _LiveData, is_global: dict[int, bool]) -> bool:
    file, number = entry.data_file, entry.sequence_number or 0
    path = referenced_file(file) if file.content is FileContent.POSITION_DELETES else None
    if path is not None:
        return path not in live.files or live.files[path] > number
    lowest = live.lowest.get(partition_key(file))
    if file.content is FileContent.POSITION_DELETES:
        return lowest is None or lowest > number
    if is_global.get(file.spec_id, True):
        lowest = live.lowest_of_all
    return lowest is None or lowest >= number
