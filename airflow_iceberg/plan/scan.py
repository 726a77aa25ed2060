"""Which files a scan reads.

Here: from the manifests of a snapshot to the data files that may hold selected rows, in one pass. Not here: opening
manifests (the caller's `read`), the rules of pruning (`projection`, `metrics`), reading rows (`data.read`).

Files are dropped at three stages: whole manifests by their partition summaries, files by their partition, files by
their column statistics. A manifest that is dropped is not opened. Delete manifests are opened first; which of their
files apply to a data file is decided in `deletes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.errors import FormatError
from airflow_iceberg.plan.deletes import DeleteIndex
from airflow_iceberg.plan.expressions import ALWAYS_FALSE, ALWAYS_TRUE, AlwaysFalse, AlwaysTrue, Expression
from airflow_iceberg.plan.filters import parse_filter
from airflow_iceberg.plan.metrics import file_may_match, may_match, summary_range
from airflow_iceberg.plan.projection import Residuals, project
from airflow_iceberg.spec.manifests import (
    DataFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)

if TYPE_CHECKING:
    from airflow_iceberg.plan.expressions import Column
    from airflow_iceberg.plan.metrics import ColumnRange
    from airflow_iceberg.spec.metadata import TableMetadata
    from airflow_iceberg.spec.partitioning import PartitionSpec
    from airflow_iceberg.spec.schema import Schema

ReadManifest = Callable[[ManifestFile], Iterable[ManifestEntry]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileScanTask:
    """A data file to read.

    Attributes:
        file: the data file.
        sequence_number: data sequence number of the file.
        delete_files: the delete files that apply to it: a deletion vector or position deletes, then equality deletes.
        residual: what still has to be asked of each row; ``AlwaysTrue`` where the partition says it all.
    """

    file: DataFile
    sequence_number: int = 0
    delete_files: tuple[DataFile, ...] = ()
    residual: Expression = ALWAYS_TRUE


def plan_files(
    manifests: Iterable[ManifestFile],
    read: ReadManifest,
    *,
    metadata: TableMetadata,
    schema: Schema,
    row_filter: str | Expression | None = None,
    case_sensitive: bool = True,
) -> Iterator[FileScanTask]:
    """Yield the data files that may hold selected rows, in the order of the manifests.

    Args:
        manifests: of one snapshot.
        read: opens a manifest; entries with everything inherited.
        metadata: for the partition specs.
        schema: of the snapshot that is read; the filter is bound to it.
    Raises:
        FormatError: delete files that contradict each other or say too little.
        NotFoundError, InvalidInputError: the filter does not fit the schema.
    Spec: Scan Planning.
    """
    expression = parse_filter(row_filter, schema, case_sensitive)
    if expression == ALWAYS_FALSE:
        return iter(())
    pruners = _Pruners(expression, metadata)
    kept = [manifest for manifest in manifests if pruners.of(manifest).may_hold(manifest)]
    # Deletes apply within a partition, or everywhere if they are of an unpartitioned spec, which never is pruned: so
    # those of manifests that were dropped cannot reach a selected row.
    delete_entries = (
        entry
        for manifest in kept
        if manifest.content is ManifestContent.DELETES
        for entry in read(manifest)
        if entry.status is not EntryStatus.DELETED
    )
    deletes = DeleteIndex(delete_entries, metadata=metadata, row_filter=expression)
    return _plan(kept, read, pruners, deletes)


def _plan(
    manifests: list[ManifestFile], read: ReadManifest, pruners: _Pruners, deletes: DeleteIndex
) -> Iterator[FileScanTask]:
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA:
            yield from pruners.of(manifest).tasks(read(manifest), deletes)


class _Pruners:
    """One pruner for each partition spec, made when a manifest asks for it."""

    def __init__(self, expression: Expression, metadata: TableMetadata) -> None:
        self._expression = expression
        self._metadata = metadata
        self._by_spec: dict[int, _Pruner] = {}

    def of(self, manifest: ManifestFile) -> _Pruner:
        spec_id = manifest.partition_spec_id
        if spec_id not in self._by_spec:
            self._by_spec[spec_id] = _Pruner(self._expression, self._metadata.spec(spec_id))
        return self._by_spec[spec_id]


class _Pruner:
    """Decides about the manifests and files of one partition spec."""

    def __init__(self, expression: Expression, spec: PartitionSpec) -> None:
        self._expression = expression
        self._spec = spec
        self._projected = project(expression, spec)
        self._residuals = Residuals(expression, spec)
        self._positions = {field.field_id: index for index, field in enumerate(spec.fields)}

    def may_hold(self, manifest: ManifestFile) -> bool:
        """Tell whether a manifest may list a file with selected rows."""
        if not manifest.may_have_live_files:
            return False
        summaries = manifest.partitions
        if isinstance(self._projected, AlwaysTrue) or summaries is None or len(summaries) != len(self._positions):
            return not isinstance(self._projected, AlwaysFalse)

        def ranges(column: Column) -> ColumnRange:
            assert column.field_id is not None
            return summary_range(summaries[self._positions[column.field_id]], column.type)

        return may_match(self._projected, ranges)

    def tasks(self, entries: Iterable[ManifestEntry], deletes: DeleteIndex) -> Iterator[FileScanTask]:
        """Yield the live files that may hold selected rows."""
        takes_all = isinstance(self._expression, AlwaysTrue)
        for entry in entries:
            if entry.status is EntryStatus.DELETED:
                continue
            file = entry.data_file
            residual = self._expression if takes_all else self._residual(file)
            if residual is not ALWAYS_FALSE and (takes_all or file_may_match(residual, file)):
                yield FileScanTask(
                    file=file,
                    sequence_number=entry.sequence_number or 0,
                    delete_files=deletes.of(entry) if deletes else (),
                    residual=residual,
                )

    def _residual(self, file: DataFile) -> Expression:
        if len(file.partition) != len(self._positions):
            raise FormatError(
                f"expected a partition of {len(self._positions)} values in spec {self._spec.spec_id}, "
                f"got {len(file.partition)}, for data file '{file.file_path}'"
            )
        return self._residuals.of(file.partition)
