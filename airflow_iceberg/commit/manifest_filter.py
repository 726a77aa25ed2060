"""The manifest filter: which manifests and files a commit removes: by name, partition or predicate, with their
deletes.

Here: `FilesToRemove`, and `ManifestFilter`, which applies it to one base: which manifests to open, which of their files
to remove. Not here: writing the remaining manifests (`snapshot_writer`), and conflicts with other writers
(`conflicts`).

A manifest that cannot list such a file is not opened. A file that may hold other rows than those to delete is an error:
a job has to rewrite it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from airflow_iceberg.commit.file_filters import PartitionFilter, RowFilter, partition_key
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

Identity = tuple[str, int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesToRemove:
    """The files to remove; a file is removed if any of these selects it.

    Attributes:
        files: data files by their path, from their own partition alone, and delete files by name.
        paths: data files of which only the path is known: every manifest is searched.
        partitions: one file of each partition whose files are all removed, also delete files.
        row_filter: a bound predicate that selects all files that hold only matching rows.
        new_vectors: deletion vectors that this commit adds: other vectors of the same data files must be removed.
    """

    files: tuple[DataFile, ...] = ()
    paths: frozenset[str] = frozenset()
    partitions: tuple[DataFile, ...] = ()
    row_filter: Expression = ALWAYS_FALSE
    new_vectors: tuple[DataFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.paths or self.partitions or self.new_vectors) and self.row_filter == ALWAYS_FALSE


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedData:
    """The removed data files, which decide about delete files.

    Attributes:
        removed: the removed data files: delete files for these alone are removed, too.
        min_sequence_number: the lowest number of the remaining data; older delete files apply to nothing. 0 in v1.
    """

    removed: tuple[DataFile, ...] = ()
    min_sequence_number: int = 0


class ManifestFilter:
    """Decides which manifests and files of one base are removed.

    Args:
        concurrent: snapshots that were committed after this change was planned: if one of them added a file that cannot
            be removed whole, the change is re-planned, while for an older file it is the caller's error. None: not
            known.
        with_data: the data files that the commit removes, for the filter of delete manifests; None for data manifests.
    """

    def __init__(
        self,
        removal: FilesToRemove,
        metadata: TableMetadata,
        *,
        concurrent: frozenset[int] | None = frozenset(),
        with_data: RemovedData | None = None,
    ) -> None:
        is_for_deletes, with_data = with_data is not None, with_data or RemovedData()
        self._removal = removal
        self._concurrent = concurrent
        self._min_sequence_number = with_data.min_sequence_number
        self._identities: frozenset[Identity] = frozenset(file.identity for file in removal.files)
        data = [file for file in removal.files if file.content is FileContent.DATA]
        # A path may be listed in several partitions, with rows of its own in each: it is removed from those named.
        self._places = frozenset((file.file_path, *partition_key(file)) for file in (*data, *with_data.removed))
        self._gone = removal.paths.union(path for path, _, _ in self._places)
        self._with_vectors = frozenset(file.referenced_data_file for file in removal.new_vectors)
        self._nearby = PartitionFilter(
            (*removal.files, *removal.new_vectors, *with_data.removed) if is_for_deletes else data,
            metadata,
        )
        self._partitions = PartitionFilter(removal.partitions, metadata)
        self._filter = RowFilter(removal.row_filter, metadata)
        self.key: Hashable = (
            self._identities,
            self._gone,
            self._places,
            self._partitions.keys,
            removal.row_filter,
            self._with_vectors,
            self._min_sequence_number,
        )

    def may_concern(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list a file to remove."""
        if not manifest.may_have_live_files:
            return False
        # Files of which only the path is known, and their vectors, may be anywhere.
        if self._removal.paths:
            return True
        is_old = 0 <= manifest.min_sequence_number < self._min_sequence_number
        if manifest.content is ManifestContent.DELETES and is_old:
            return True
        return (
            self._nearby.may_concern(manifest)
            or self._partitions.may_concern(manifest)
            or (self._removal.row_filter != ALWAYS_FALSE and self._filter.may_concern(manifest))
        )

    def paths_of_data(self) -> frozenset[str] | None:
        """Return the paths of the data files to remove; None if more than the path decides."""
        if self._removal.partitions or self._removal.row_filter != ALWAYS_FALSE:
            return None
        return self._gone.union(path for path, _ in self._identities)

    def takes(self, entry: ManifestEntry) -> bool:
        """Whether a live file is removed.

        Raises:
            InvalidInputError: the predicate selects some of its rows, but not all.
            StalePlanError: the same, and the file was, or may have been, added after the change was planned; or a data
                file would have two deletion vectors.
        """
        file = entry.data_file
        if self._partitions.concerns(file):
            return True
        if file.content is FileContent.DATA:
            return self._is_gone(file.file_path, file) or self._is_selected(entry)
        return file.identity in self._identities or self._takes_delete(entry)

    def _is_gone(self, path: str, file: DataFile) -> bool:
        """Whether a data file is removed from the partition of a file: of its own, or of deletes of its rows."""
        if path not in self._gone:
            return False
        return path in self._removal.paths or (path, *partition_key(file)) in self._places

    def _takes_delete(self, entry: ManifestEntry) -> bool:
        file = entry.data_file
        if file.referenced_data_file is not None and self._is_gone(file.referenced_data_file, file):
            return True
        # 0 is a file of v1, or one without a known number.
        if 0 < (entry.sequence_number or 0) < self._min_sequence_number:
            return True
        if file.is_deletion_vector and file.referenced_data_file in self._with_vectors:
            raise StalePlanError(
                f"data file {file.referenced_data_file} has a deletion vector already, in {file.file_path}, which the "
                f"new one does not replace; re-plan on the latest snapshot"
            )
        return self._removal.row_filter != ALWAYS_FALSE and self._filter.covers(file)

    def _is_selected(self, entry: ManifestEntry) -> bool:
        if self._removal.row_filter == ALWAYS_FALSE:
            return False
        file = entry.data_file
        if self._filter.covers(file):
            return True
        if not self._filter.concerns(file):
            return False
        problem = (
            f"file {file.file_path} may hold rows that '{self._removal.row_filter}' selects and others: its metadata "
            f"cannot prove that all its rows are selected"
        )
        if self._concurrent is None:
            raise StalePlanError(
                f"{problem}; it may have been added since this change was planned, which the table's history no longer "
                f"shows (snapshots were expired, or the branch was rolled back); re-plan"
            )
        if entry.snapshot_id in self._concurrent:
            raise StalePlanError(f"{problem}; snapshot {entry.snapshot_id} added it meanwhile; re-plan")
        raise InvalidInputError(f"{problem}; rewrite it (copy-on-write) or write delete files for its rows")


def missing(wanted: Iterable[DataFile], removed: Iterable[ManifestEntry]) -> list[DataFile]:
    """Return the named files that were not there to be removed, data files in their partition."""
    found = {_place_of(entry.data_file) for entry in removed}
    return [file for file in wanted if _place_of(file) not in found]


def _place_of(file: DataFile) -> Hashable:
    return (file.file_path, *partition_key(file)) if file.content is FileContent.DATA else file.identity
