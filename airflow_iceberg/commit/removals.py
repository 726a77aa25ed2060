"""What a commit takes out of a table: files by name, by partition, by predicate, and the deletes that go with them.

Here: `Removal`, the question, and `RemovalFilter`, which answers it for one base of the commit: which manifests to
open, which of their files go. Not here: writing the manifests that are left (`snapshot_writer`), and whether the
commit may still be made (`conflicts`).

A manifest that cannot list such a file is not opened. Files that cannot be proved to go as a whole are an error: their
rows are for a job to rewrite.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from airflow_iceberg.commit.scopes import FilterScope, PartitionScope
from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

Identity = tuple[str, int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What is to go; a file goes that any of these asks for.

    Attributes:
        files: data files and delete files, by name; their partitions tell where to look.
        paths: data files that are known by their path alone: every manifest is looked through for them.
        partitions: files, one for each partition whose files all go, delete files too.
        row_filter: all files that hold nothing but rows that it selects; bound.
        new_vectors: deletion vectors that this commit adds: others of the same data files have to go.
    """

    files: tuple[DataFile, ...] = ()
    paths: frozenset[str] = frozenset()
    partitions: tuple[DataFile, ...] = ()
    row_filter: Expression = ALWAYS_FALSE
    new_vectors: tuple[DataFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing can go."""
        return not (self.files or self.paths or self.partitions or self.new_vectors) and self.row_filter == ALWAYS_FALSE


@dataclass(frozen=True, kw_only=True, slots=True)
class WithData:
    """Delete files that go because of what becomes of the data files.

    Attributes:
        removed: the data files that go: what deletes rows of them alone goes with them.
        min_sequence_number: of all data that is left; older delete files apply to nothing any more. 0 in v1.
    """

    removed: tuple[DataFile, ...] = ()
    min_sequence_number: int = 0


class RemovalFilter:
    """Decides for the manifests and files of one base.

    Args:
        concurrent: snapshots that were committed after this change was planned: what they brought and this change
            cannot take as a whole is a reason to plan again, not a fault of the caller's. None when nobody can tell
            which these are: any of the files may have come meanwhile.
        with_data: for delete manifests, once it is known which data files go.
    """

    def __init__(
        self,
        removal: Removal,
        metadata: TableMetadata,
        *,
        concurrent: frozenset[int] | None = frozenset(),
        with_data: WithData | None = None,
    ) -> None:
        is_for_deletes, with_data = with_data is not None, with_data or WithData()
        self._removal = removal
        self._concurrent = concurrent
        self._min_sequence_number = with_data.min_sequence_number
        self._identities: frozenset[Identity] = frozenset(file.identity for file in removal.files)
        self._gone = removal.paths.union(
            (file.file_path for file in removal.files if file.content is FileContent.DATA),
            (file.file_path for file in with_data.removed),
        )
        self._with_vectors = frozenset(file.referenced_data_file for file in removal.new_vectors)
        self._nearby = PartitionScope(
            (*removal.files, *removal.new_vectors, *with_data.removed)
            if is_for_deletes
            else [file for file in removal.files if file.content is FileContent.DATA],
            metadata,
        )
        self._partitions = PartitionScope(removal.partitions, metadata)
        self._filter = FilterScope(removal.row_filter, metadata)
        self.key: Hashable = (
            self._identities,
            self._gone,
            self._partitions.keys,
            removal.row_filter,
            self._with_vectors,
            self._min_sequence_number,
        )

    def may_concern(self, manifest: ManifestFile) -> bool:
        """Tell whether a manifest may list a file that goes."""
        if not manifest.may_have_live_files:
            return False
        # Files that are known by path alone, and their vectors, may be anywhere.
        if self._removal.paths:
            return True
        if manifest.content is ManifestContent.DELETES and self._may_be_too_old(manifest):
            return True
        return (
            self._nearby.may_concern(manifest)
            or self._partitions.may_concern(manifest)
            or (self._removal.row_filter != ALWAYS_FALSE and self._filter.may_concern(manifest))
        )

    def _may_be_too_old(self, manifest: ManifestFile) -> bool:
        return 0 <= manifest.min_sequence_number < self._min_sequence_number

    def paths_of_data(self) -> frozenset[str] | None:
        """Return the paths that data files have which go; None where more than the path decides."""
        if self._removal.partitions or self._removal.row_filter != ALWAYS_FALSE:
            return None
        return self._gone.union(path for path, _ in self._identities)

    def takes(self, entry: ManifestEntry) -> bool:
        """Tell whether a live file goes.

        Raises:
            InvalidInputError: the predicate selects some of its rows and not all.
            StalePlanError: so it does, and the file came after the change was planned, or may have; or a data file
                would have two deletion vectors.
        """
        file = entry.data_file
        if file.identity in self._identities or self._partitions.concerns(file):
            return True
        if file.content is FileContent.DATA:
            return file.file_path in self._gone or self._is_selected(entry)
        return self._takes_delete(entry)

    def _takes_delete(self, entry: ManifestEntry) -> bool:
        file = entry.data_file
        if file.referenced_data_file is not None and file.referenced_data_file in self._gone:
            return True
        # 0 is a file of v1, or one whose number nobody knows.
        if 0 < (entry.sequence_number or 0) < self._min_sequence_number:
            return True
        if file.is_deletion_vector and file.referenced_data_file in self._with_vectors:
            raise StalePlanError(
                f"data file {file.referenced_data_file} has a deletion vector already, in {file.file_path}, which the "
                f"new one does not replace; plan again on the newer table"
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
            f"cannot prove that it goes as a whole"
        )
        if self._concurrent is None:
            raise StalePlanError(
                f"{problem}; it may have come since this change was planned, which the table's history does not tell "
                f"any more (snapshots were expired, or the branch was rolled back), plan again"
            )
        if entry.snapshot_id in self._concurrent:
            raise StalePlanError(f"{problem}; snapshot {entry.snapshot_id} brought it meanwhile, plan again")
        raise InvalidInputError(f"{problem}; rewrite it (copy-on-write) or write delete files for its rows")


def missing(removal: Iterable[DataFile], removed: Iterable[ManifestEntry]) -> list[DataFile]:
    """Return the files that were to go by name and were not there."""
    found = {entry.data_file.identity for entry in removed}
    return [file for file in removal if file.identity not in found]
