"""What a commit removes with the rows of the task's earlier runs: whole files, and rows of files with other rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from airflow_iceberg.commit.manifest_filter import FilesToRemove
from airflow_iceberg.commit.runs.rows import Refused, RunRows
from airflow_iceberg.commit.snapshot_writer import AddedFiles
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkedRows:
    """Rows of earlier epochs that lie in files with other rows, and are marked as deleted.

    Attributes:
        vectors: new deletion vectors.
        removed: deletion vectors that they replace, and data files of which no row is left.
        row_count: the number of the rows.
    """

    vectors: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    row_count: int = 0

    @property
    def data_files(self) -> frozenset[str | None]:
        """The data files of which rows are marked, beside delete files that are removed."""
        named = (one.referenced_data_file for one in self.vectors)
        return frozenset((*named, *(one.file_path for one in self.removed)))


class MarkRows(Protocol):
    """Finds rows by their row ids, and writes deletion vectors for them."""

    def __call__(self, metadata: TableMetadata, rows: RunRows, refused: Refused) -> MarkedRows:
        """Mark the rows in the carriers of a run, on the branch as `metadata` has it.

        Raises:
            IncompatibleChangeError: `refused`; a writer has not kept the row ids.
        """

    def remove_unused(self, used: Callable[[], Collection[str]]) -> None:
        """Delete the vectors that were written for plans and lost attempts; never raises.

        Args:
            used: returns the locations of the delete files that the commit has added.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """What a commit removes with the rows of earlier epochs.

    Attributes:
        paths: data files that are removed.
        marked: rows of others' files.
        properties: entries for the summary of the commit.
    """

    paths: frozenset[str] = frozenset()
    marked: MarkedRows = MarkedRows()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def gone(self) -> frozenset[str]:
        """The data files that are removed."""
        return self.paths.union(one.file_path for one in self.marked.removed if one.content is FileContent.DATA)

    @property
    def added(self) -> tuple[AddedFiles, ...]:
        """What the commit adds."""
        return (AddedFiles(files=self.marked.vectors),) if self.marked.vectors else ()

    def with_removal(self, removal: FilesToRemove) -> FilesToRemove:
        """Return what the commit removes, besides what it removes itself."""
        return replace(
            removal,
            paths=removal.paths | self.paths,
            files=(*removal.files, *self.marked.removed),
            new_vectors=(*removal.new_vectors, *self.marked.vectors),
        )
