"""In which places a table lists the data files of which a commit deletes rows by position.

A table may list a data file in several partitions, with rows of its own in each. Deletes by position name a file by its
path: a reader applies them in all of its places, or stops at those of another partition. Who plans a change may have
left out a place with its whole partition, so each commit looks for the paths in all manifests of data, before anything
is written. In a table without partitions there is no other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeVar

from airflow_iceberg.commit.attempts.kept import Kept
from airflow_iceberg.commit.file_filters import PartitionKey, partition_key
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.listed_paths import count_paths, find_files
from airflow_iceberg.plan.deletes import referenced_file
from airflow_iceberg.storage.base import FileIO

T = TypeVar("T")

# The number of manifests that are read at the same time: each is held without its compression.
READ_THREADS = 4


class Places:
    """The places of data files; each manifest is searched once over all attempts."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        # By the row of the manifest, which never changes, and the paths.
        self._counts: Kept[Counter[str]] = Kept()
        self._files: Kept[tuple[DataFile, ...]] = Kept()

    def check_one_partition(
        self,
        new: Iterable[DataFile],
        added: Sequence[DataFile],
        manifests: Iterable[ManifestFile],
        metadata: TableMetadata,
        *,
        is_as_planned: bool,
    ) -> None:
        """Check that files of which rows are deleted by position are in the partition of these deletes alone.

        Args:
            new: files with the commit's own sequence number, among them the deletes: older deletes, which an undo
                restores, do not apply to what was added since.
            added: all files that the commit adds.
            manifests: the other manifests of the new snapshot.
            is_as_planned: whether nobody has committed since the deletes were planned: then a place of each file is
                known, and only a second one is looked for.

        Raises:
            UnsupportedError: one is in another partition, too.
        """
        deletes = _deletes_by_path(new)
        data = [m for m in manifests if m.content is ManifestContent.DATA and m.may_have_live_files]
        specs = {key[0] for key in deletes.values()}.union(m.partition_spec_id for m in data)
        if not deletes or (len(specs) == 1 and metadata.spec(*specs).is_unpartitioned):
            return
        paths = frozenset(deletes)
        counts = _of_each(data, partial(self._count, paths))
        known = 1 if is_as_planned else 0
        again = {path for path, count in sum(counts, Counter[str]()).items() if count > known}
        again.update(file.file_path for file in added if file.content is FileContent.DATA and file.file_path in paths)
        if again:
            listing = [m for m, found in zip(data, counts, strict=True) if not again.isdisjoint(found)]
            for file in chain(added, *_of_each(listing, partial(self._find, frozenset(again)))):
                wanted = deletes.get(file.file_path)
                if wanted is not None and partition_key(file) != wanted:
                    raise _in_other_partition(file)

    def _count(self, paths: frozenset[str], manifest: ManifestFile) -> Counter[str]:
        return self._counts.of(manifest, paths, make=lambda: count_paths(self._io, manifest, paths))

    def _find(self, paths: frozenset[str], manifest: ManifestFile) -> tuple[DataFile, ...]:
        return self._files.of(manifest, paths, make=lambda: tuple(find_files(self._io, [manifest], paths)))


def _of_each(manifests: Sequence[ManifestFile], read: Callable[[ManifestFile], T]) -> list[T]:
    with ThreadPoolExecutor(READ_THREADS) as pool:
        return list(pool.map(read, manifests))


def _deletes_by_path(files: Iterable[DataFile]) -> dict[str, PartitionKey]:
    """Return the partitions of deletes by position that name one data file, by its path."""
    found: dict[str, PartitionKey] = {}
    for file in files:
        path = referenced_file(file) if file.content is FileContent.POSITION_DELETES else None
        if path is not None:
            found[path] = partition_key(file)
    return found


def _in_other_partition(file: DataFile) -> UnsupportedError:
    return UnsupportedError(
        f"data file {file.file_path}, of which rows are to be deleted by position, is in the table more than once, in "
        f"several partitions, one of them {file.partition} of spec {file.spec_id}, and such deletes are those of all "
        f"of them; nothing was committed; use mode 'copy-on-write', or compact the table before"
    )
