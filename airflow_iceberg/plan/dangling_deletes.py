"""Which delete files apply to no data file any more, and can go without a row coming back.

Pure: entries in, files out. Not here: which delete files apply to a data file that is read (`deletes`), the commit that
takes the dangling ones out (`operations.compact`).

    deletion vector,               its data file is gone, or is newer than it
    positions of one data file
    positions of several files     all data files of its partition and spec are newer than it
    equality                       all of them are as new as it, or newer; an equality delete of an unpartitioned spec
                                   applies everywhere, and is measured against all data files of the table

Spec: Scan Planning.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.plan.deletes import referenced_file


@dataclass(kw_only=True, slots=True)
class LiveData:
    """What has to be known of the data files of a snapshot.

    Attributes:
        wanted: paths that are asked for.
        files: sequence numbers of those that are live.
        lowest: the lowest sequence number, by partition and spec.
        lowest_of_all: in the table, None where it has no data files.
    """

    wanted: frozenset[str]
    files: dict[str, int] = field(default_factory=dict)
    lowest: dict[Hashable, int] = field(default_factory=dict)
    lowest_of_all: int | None = None

    def add(self, file: DataFile, sequence_number: int) -> None:
        """Take a live data file into account."""
        if file.file_path in self.wanted:
            self.files[file.file_path] = sequence_number
        key = _partition_key(file)
        self.lowest[key] = min(self.lowest.get(key, sequence_number), sequence_number)
        of_all = self.lowest_of_all
        self.lowest_of_all = sequence_number if of_all is None else min(of_all, sequence_number)


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
    live = LiveData(wanted=frozenset(path for path in paths if path is not None))
    for file, sequence_number in data:
        live.add(file, sequence_number)
    is_global = {spec.spec_id: spec.is_unpartitioned for spec in metadata.partition_specs}
    return tuple(entry.data_file for entry in entries if _is_dangling(entry, live, is_global))


def _is_dangling(entry: ManifestEntry, live: LiveData, is_global: dict[int, bool]) -> bool:
    file, number = entry.data_file, entry.sequence_number or 0
    path = referenced_file(file) if file.content is FileContent.POSITION_DELETES else None
    if path is not None:
        return path not in live.files or live.files[path] > number
    lowest = live.lowest.get(_partition_key(file))
    if file.content is FileContent.POSITION_DELETES:
        return lowest is None or lowest > number
    if is_global.get(file.spec_id, True):
        lowest = live.lowest_of_all
    return lowest is None or lowest >= number


def _partition_key(file: DataFile) -> Hashable:
    return file.spec_id, canonical_key(file.partition)
