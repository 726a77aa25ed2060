"""Which data files hold the rows that a snapshot has changed.

Here: from the manifests of two snapshots to the data files whose live rows differ: files that were added or removed,
and files to which other deletes apply. The manifests that both have are not opened, unless deletes have changed. Not
here: which rows of such files have changed (`data.changelog`), which snapshots are read (`snapshot_range`).

What is compared is the state of both snapshots, not what the entries of a manifest say of the past: so a file that was
rewritten into another manifest is no change, whatever its status there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from airflow_iceberg.expressions.metrics import file_may_match
from airflow_iceberg.expressions.projection import Residuals
from airflow_iceberg.expressions.tree import AlwaysFalse, AlwaysTrue, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.plan.deletes import DeleteIndex, referenced_file

ReadLive: TypeAlias = Callable[[ManifestFile], Iterable[ManifestEntry]]
"""A function that returns the live entries of a manifest, with inherited values."""
ReadSome: TypeAlias = Callable[[Sequence[ManifestFile], "Collection[str] | None"], Iterable[ManifestEntry]]
"""A function that returns the live entries of data manifests, or only those of some paths."""

_Identity: TypeAlias = tuple[str, int | None, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """A data file whose live rows may differ between two snapshots.

    Attributes:
        sequence_number: its data sequence number.
        before: the delete files that applied to it in the first snapshot; None: it was not there.
        after: those of the second one.
    """

    file: DataFile
    sequence_number: int
    before: tuple[DataFile, ...] | None
    after: tuple[DataFile, ...] | None

    def without_statistics(self) -> FileChange:
        """Return the change without the statistics, which only planning needs."""
        return FileChange(
            file=self.file.without_statistics(),
            sequence_number=self.sequence_number,
            before=_stripped(self.before),
            after=_stripped(self.after),
        )


def _stripped(files: tuple[DataFile, ...] | None) -> tuple[DataFile, ...] | None:
    return None if files is None else tuple(file.without_statistics() for file in files)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotChanges:
    """The files that hold what one snapshot has changed.

    Attributes:
        ordinal: the number of the snapshot among those that were read and that may have changed rows, from 0.
    """

    ordinal: int
    snapshot_id: int
    files: tuple[FileChange, ...]


def changed_files(
    before: Sequence[ManifestFile],
    after: Sequence[ManifestFile],
    *,
    read: ReadLive,
    read_some: ReadSome,
    metadata: TableMetadata,
    row_filter: Expression,
) -> Iterator[FileChange]:
    """Yield the data files whose live rows may differ between two snapshots, in the order of the manifests.

    Args:
        before: the manifests of the first snapshot; none for a table without rows.
        row_filter: a bound predicate; files without such rows are left out.

    Raises:
        FormatError: delete files that contradict each other or are incomplete.
    Spec: Scan Planning; Snapshots.
    """
    if isinstance(row_filter, AlwaysFalse):
        return
    gone, new = _difference(before, after, ManifestContent.DATA, read)
    gone_deletes, new_deletes = _difference(before, after, ManifestContent.DELETES, read)
    deletes_before = _deletes(before, read, metadata, wanted=bool(gone or gone_deletes or new_deletes))
    deletes_after = _deletes(after, read, metadata, wanted=bool(new or gone_deletes or new_deletes))

    # What the partition decides, its values decide: a file of Hive may have others in the column, which nobody reads.
    residuals = {spec.spec_id: Residuals(row_filter, spec) for spec in metadata.partition_specs}

    def may_match(file: DataFile) -> bool:
        return isinstance(row_filter, AlwaysTrue) or file_may_match(residuals[file.spec_id].of(file.partition), file)

    for entry in gone:
        if may_match(entry.data_file):
            yield _change(entry, deletes_before.of(entry), None)
    left = Counter(map(identity, new))
    for entry in _with_other_deletes(after, gone_deletes, new_deletes, read_some, metadata):
        if left[identity(entry)]:
            left[identity(entry)] -= 1
        elif may_match(entry.data_file):
            was, now = deletes_before.of(entry), deletes_after.of(entry)
            if {file.identity for file in was} != {file.identity for file in now}:
                yield _change(entry, was, now)
    for entry in new:
        if may_match(entry.data_file):
            yield _change(entry, None, deletes_after.of(entry))


def _change(
    entry: ManifestEntry, before: tuple[DataFile, ...] | None, after: tuple[DataFile, ...] | None
) -> FileChange:
    return FileChange(
        file=entry.data_file, sequence_number=entry.sequence_number or 0, before=before, after=after
    ).without_statistics()


def identity(entry: ManifestEntry) -> _Identity:
    """Return the key of a file: with another sequence number, other deletes apply to it."""
    return (*entry.data_file.identity, entry.sequence_number or 0)


def _difference(
    before: Iterable[ManifestFile], after: Iterable[ManifestFile], content: ManifestContent, read: ReadLive
) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """Return the live files that only the first snapshot has, and those that only the second one has.

    A file may be listed several times, and more often in one of the snapshots.
    """
    old = {manifest.manifest_path: manifest for manifest in before if manifest.content is content}
    now = {manifest.manifest_path: manifest for manifest in after if manifest.content is content}
    gone = [entry for path, one in old.items() if path not in now for entry in read(one)]
    new = [entry for path, one in now.items() if path not in old for entry in read(one)]
    return _without(gone, new), _without(new, gone)


def _without(entries: Iterable[ManifestEntry], others: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    left, found = Counter(map(identity, others)), []
    for entry in entries:
        key = identity(entry)
        if left[key]:
            left[key] -= 1
        else:
            found.append(entry)
    return found


def _deletes(
    manifests: Iterable[ManifestFile], read: ReadLive, metadata: TableMetadata, *, wanted: bool
) -> DeleteIndex:
    of_deletes = [one for one in manifests if wanted and one.content is ManifestContent.DELETES]
    return DeleteIndex((entry for one in of_deletes for entry in read(one)), metadata=metadata)


def _with_other_deletes(
    after: Iterable[ManifestFile],
    gone: Sequence[ManifestEntry],
    new: Sequence[ManifestEntry],
    read_some: ReadSome,
    metadata: TableMetadata,
) -> Iterator[ManifestEntry]:
    """Yield the data files of a snapshot to which some delete files may apply that were added or removed."""
    changed = [entry.data_file for entry in (*gone, *new)]
    if not changed:
        return
    manifests = [one for one in after if one.content is ManifestContent.DATA]
    by_position = [file for file in changed if file.content is FileContent.POSITION_DELETES]
    paths = {referenced_file(file) for file in by_position}
    if len(by_position) == len(changed) and None not in paths:
        yield from read_some(manifests, {path for path in paths if path is not None})
        return
    if not any(file.content is FileContent.EQUALITY_DELETES for file in changed):
        specs = {file.spec_id for file in changed}
        manifests = [one for one in manifests if one.partition_spec_id in specs]
    # Two indexes: a deletion vector takes the place of another one of the same file.
    indexes = [DeleteIndex(entries, metadata=metadata) for entries in (gone, new)]
    for entry in read_some(manifests, None):
        if any(index.of(entry) for index in indexes):
            yield entry
