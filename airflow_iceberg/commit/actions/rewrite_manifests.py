"""Rewrite manifests: the same files, in fewer manifests that are sorted by partition.

The manifests are selected on each base, so that nothing is re-planned: a retry keeps what it has written as long as all
the manifests that it replaces are still there, and they would be rewritten in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.commit.attempts.kept import Basis, Kept
from airflow_iceberg.commit.earlier_epochs import check_no_later_epoch
from airflow_iceberg.commit.manifest_merging import MergePolicy
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.manifests.avro import manifest_of_records
from airflow_iceberg.format.manifests.copying import EncodedEntries, EntryEncoder
from airflow_iceberg.format.manifests.entries import UNASSIGNED_SEQ, ManifestContent, ManifestFile
from airflow_iceberg.format.manifests.summaries import summarize_partitions
from airflow_iceberg.format.metadata.requirements import check_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.format.snapshots import summarize
from airflow_iceberg.inventory.manifests import read_columns
from airflow_iceberg.storage.base import FileIO

THREADS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rewritten:
    sources: tuple[ManifestFile, ...]
    results: tuple[ManifestFile, ...]
    entry_count: int


class RewriteManifests(SnapshotAction):
    """Rewrites the live entries of manifests: clustered by partition, in manifests of the target size.

    Each entry becomes an existing one with explicit sequence numbers and row ids; entries of deleted files are left
    out.

    Args:
        spec_ids: the partition specs whose manifests are rewritten; None for all.
        target_size_bytes: size of a manifest; by default the table's `commit.manifest.target-size-bytes`.
        only_if_better: leaves manifests alone that would not become fewer.
    """

    def __init__(
        self,
        io: FileIO,
        settings: CommitSettings,
        *,
        spec_ids: Collection[int] | None = None,
        target_size_bytes: int | None = None,
        only_if_better: bool = True,
    ) -> None:
        super().__init__(io, settings)
        if target_size_bytes is not None and target_size_bytes < 1:
            raise InvalidInputError(f"target_size_bytes is {target_size_bytes}, expected at least 1")
        self._io = io
        self._spec_ids = None if spec_ids is None else frozenset(spec_ids)
        self._target = target_size_bytes
        self._only_if_better = only_if_better
        # By basis, content and target size; besides, the sources, from whose rows entries inherit, must be there.
        self._done: Kept[_Rewritten | None] = Kept()

    def changes(self, metadata: TableMetadata, parent: Any) -> Any:
        """Not called: the files are kept, their manifests change."""
        raise NotImplementedError

    def __call__(self, metadata: TableMetadata) -> Change:
        settings = self.settings
        check_same_table(metadata, settings.table_uuid)
        if settings.operation_key is not None:
            check_no_later_epoch(metadata, settings.operation_key, settings.branch)
        parent = metadata.ref_snapshot(settings.branch)
        manifests = self.inherited(parent)
        rewritten = [done for group in self._groups(manifests) if (done := self._rewrite(group, metadata))]
        if parent is None or not rewritten:
            return Change(updates=(), requirements=())
        gone = {source.manifest_path for done in rewritten for source in done.sources}
        kept = [m for m in manifests if m.manifest_path not in gone and m.may_have_live_files]
        new = [result for done in rewritten for result in done.results]
        summary = summarize(
            added=(),
            removed=(),
            previous=parent.summary,
            operation="replace",
            properties={
                **settings.properties,
                "manifests-created": str(len(new)),
                "manifests-kept": str(len(kept)),
                "manifests-replaced": str(len(gone)),
                "entries-processed": str(sum(done.entry_count for done in rewritten)),
            },
        )
        return self.change(self.snapshot(metadata, parent, (*new, *kept), summary), metadata, parent)

    def _groups(self, manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
        groups: dict[tuple[int, ManifestContent], list[ManifestFile]] = {}
        for manifest in manifests:
            spec_id = manifest.partition_spec_id
            if self._spec_ids is None or spec_id in self._spec_ids:
                groups.setdefault((spec_id, manifest.content), []).append(manifest)
        return list(groups.values())

    def _rewrite(self, group: Sequence[ManifestFile], metadata: TableMetadata) -> _Rewritten | None:
        basis, content = self.writer.basis(metadata, group[0].partition_spec_id), group[0].content
        target = self._target or MergePolicy.of(metadata).target_size_bytes
        return self._done.of(
            *(basis, content, target),
            make=lambda: self._rewrite_all(group, content, target, basis),
            # Manifests for an earlier base are valid as long as their sources are in the table, with the same row ids.
            still=lambda before: before is not None and set(before.sources) <= set(group),
        )

    def _rewrite_all(
        self, group: Sequence[ManifestFile], content: ManifestContent, target: int, basis: Basis
    ) -> _Rewritten | None:
        count = -(-sum(manifest.manifest_length for manifest in group) // target)
        live = [manifest for manifest in group if manifest.may_have_live_files]
        if self._only_if_better and len(group) <= count:
            return None
        encoder = EntryEncoder(**_kind(content, basis))
        entries = EncodedEntries.joined(_encoded(self._io, live, encoder))
        _check_complete(entries, live, content)
        results = self._write(entries, count, content, basis)
        return _Rewritten(sources=tuple(group), results=results, entry_count=len(entries))

    def _write(
        self, entries: EncodedEntries, count: int, content: ManifestContent, basis: Basis
    ) -> tuple[ManifestFile, ...]:
        order = _by_partition(entries.partitions)
        size = max(1, -(-len(order) // max(1, count)))
        chunks = [entries.taken(order[start : start + size]) for start in range(0, len(order), size)]
        with ThreadPoolExecutor(THREADS) as pool:  # compression takes longest, and releases the interpreter's lock
            files = pool.map(lambda chunk: manifest_of_records(chunk.records, **_kind(content, basis)), chunks)
            results = tuple(
                self._describe(chunk, self.writer.place_manifest(data, basis), len(data), content, basis)
                for chunk, data in zip(chunks, files, strict=True)
            )
        written = sum(result.existing_files_count or 0 for result in results)
        if written != len(entries):
            raise FormatError(f"rewrote {written} manifest entries of {len(entries)}; nothing was committed")
        return results

    def _describe(
        self, entries: EncodedEntries, path: str, length: int, content: ManifestContent, basis: Basis
    ) -> ManifestFile:
        partitions = {id(partition): partition for partition in entries.partitions}.values()
        return ManifestFile(
            manifest_path=path,
            manifest_length=length,
            partition_spec_id=basis.spec.spec_id,
            content=content,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=min(entries.sequence_numbers),
            added_snapshot_id=self.settings.snapshot_id,
            added_files_count=0,
            existing_files_count=len(entries),
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=sum(entries.record_counts),
            deleted_rows_count=0,
            partitions=summarize_partitions(partitions, spec=basis.spec, schema=basis.schema),
        )


def _kind(content: ManifestContent, basis: Basis) -> dict[str, Any]:
    return {
        "schema": basis.schema,
        "spec": basis.spec,
        "format_version": basis.format_version,
        "content": content,
    }


def _encoded(io: FileIO, manifests: Iterable[ManifestFile], encoder: EntryEncoder) -> Iterator[EncodedEntries]:
    for part in read_columns(io, manifests, places=True):
        yield encoder.of_entries(part[1]) if isinstance(part, tuple) else encoder.of_columns(part)


def _check_complete(entries: EncodedEntries, manifests: Iterable[ManifestFile], content: ManifestContent) -> None:
    """Check that the entries are those that the manifest list counts, and each delete file is there once.

    Data files may be listed several times, as by `add_files` without a check: their rows are there as often.

    Raises:
        FormatError: the table's metadata contradicts itself; a rewrite would make it permanent.
    """
    expected = 0
    for manifest in manifests:
        if manifest.added_files_count is None or manifest.existing_files_count is None:
            break
        expected += manifest.added_files_count + manifest.existing_files_count
    else:
        if expected != len(entries):
            raise FormatError(f"read {len(entries)} live manifest entries, but the manifest list counts {expected}")
    doubled = len(entries) - len(set(entries.identities)) if content is ManifestContent.DELETES else 0
    if doubled:
        raise FormatError(f"{doubled} delete files are listed more than once in the manifests; nothing was committed")


def _by_partition(partitions: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return the rows in the order of their partitions, and within a partition as they are."""
    # Most partitions have many files: only the partitions are compared.
    distinct = sorted(dict.fromkeys(partitions), key=_partition_order)
    ranks = {partition: rank for rank, partition in enumerate(distinct)}
    return sorted(range(len(partitions)), key=[ranks[partition] for partition in partitions].__getitem__)


def _partition_order(partition: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """Sort by partition values, null first; values without an order are sorted by their text."""
    return tuple((value is not None, _comparable(value)) for value in partition)


def _comparable(value: Any) -> Any:
    if value is None or value != value:
        return 0
    return getattr(value, "bytes", value)
