"""The files that a table's snapshots reach, and those that only expired snapshots reached.

Here: the difference of two states of a table, by path; the size of the files that each ref keeps. Not here: which
snapshots expire (`plan.expire_snapshots`), reading manifests (`inventory.units`), deleting
(`operations.expire_snapshots`).

A file is identified by its path: several deletion vectors share a Puffin file, and a path can leave a table and come
back. So nothing is decided by single entries: a file that only expired manifests name may be deleted, unless a live
entry of a remaining snapshot has the same path, under any scheme and authority, and however it is spelled
(`inventory.spellings`). Memory: the packed paths of the files
to delete, and eight bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.format.manifests.entries import FileContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.named_files import find_manifests
from airflow_iceberg.inventory.run import RunUnits
from airflow_iceberg.inventory.spellings import Spellings, links_below
from airflow_iceberg.inventory.units import UnitResult, manifest_units
from airflow_iceberg.plan.orphan_files import file_name
from airflow_iceberg.plan.path_hashes import FirstOfEach, Hashes, HashSet, Mask
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import GatedFileIO, own_only


class DeletableFiles:
    """Data and delete files that may be deleted, with kind and size.

    Attributes:
        foreign: the number of files that nothing reaches any more, outside of the table's own locations; they are kept.
    """

    def __init__(self, io: FileIO, spellings: Spellings | None = None) -> None:
        self._io = io
        self._spellings = spellings or Spellings("")
        self.foreign = 0
        self._parts: list[UnitResult] = []
        self._hashes = HashSet()
        self._stays: Mask = np.zeros(0, np.bool_)
        self._counts: NDArray[np.int64] = np.zeros(len(FileContent), np.int64)
        self.size_bytes = 0

    def __len__(self) -> int:
        return int(self._counts.sum())

    def count(self, content: FileContent) -> int:
        """Return the number of files of a kind."""
        return int(self._counts[content])

    def paths(self) -> Iterator[list[str]]:
        """Yield the paths, each once, in batches."""
        for batch, chosen in self._chosen():
            if chosen.any():
                yield own_only(self._io, batch.column("path").filter(number_array(chosen)).to_pylist())[0]

    def _take(self, part: UnitResult) -> None:
        self._parts.append(part)
        for batch in part.batches():
            self._hashes.add(self._spellings.hashes(batch)[0])

    def _keep(self, parts: Iterable[UnitResult]) -> None:
        """Keep files that are live elsewhere, and those of which nobody knows whether they are."""
        self._stays = np.zeros(len(self._hashes), np.bool_)
        names: set[str] = set()
        if len(self._hashes):
            for part in parts:
                for batch in part.batches():
                    hashes, _, lost = self._spellings.hashes(batch)
                    self._stay(hashes)
                    names |= lost
        for part in self._parts:
            for batch in part.batches():
                hashes, is_lost, _ = self._spellings.hashes(batch)
                self._stay(hashes[is_lost])
                if names:
                    paths = batch.column("path").to_pylist()
                    self._stay(hashes[np.array([file_name(each) in names for each in paths], np.bool_)])
        for batch, chosen in self._chosen():
            is_own = own_mask(self._io, batch.column("path"))
            self.foreign += int((chosen & ~is_own).sum())
            chosen = chosen & is_own
            sizes = numbers_of(batch.column("size_bytes"))[chosen]
            kinds = numbers_of(batch.column("content"))[chosen]
            self.size_bytes += int(sizes.sum())
            self._counts += np.bincount(kinds, minlength=len(FileContent))

    def _stay(self, hashes: Hashes) -> None:
        places, is_there = self._hashes.places(hashes)
        self._stays[places[is_there]] = True

    def _chosen(self) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        first = FirstOfEach(self._stays)
        for part in self._parts:
            for batch in part.batches():
                places, _ = self._hashes.places(self._spellings.hashes(batch)[0])
                yield batch, first(places)


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletable:
    """Files that nothing of a table reaches any more, and that are below the table's own locations."""

    content: DeletableFiles
    manifests: tuple[str, ...] = ()
    manifest_lists: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    foreign_metadata: int = 0

    @property
    def foreign(self) -> int:
        """The number of all files that are kept because they are outside of the table's own locations."""
        return self.content.foreign + self.foreign_metadata


def find_deletable(
    io: FileIO, gone: Sequence[Snapshot], after: TableMetadata, statistics: Iterable[str], *, inventory: RunUnits
) -> Deletable:
    """Return the files that removed snapshots reached, and remaining snapshots do not reach.

    Args:
        gone: snapshots that are not in `after` any more; files of theirs that are missing are skipped.
        after: the table as it is now, read after the snapshots were removed.
        statistics: paths of statistics files of the removed snapshots.
        inventory: a function that reads the manifests, here or on Spark.

    Raises:
        FormatError, NotFoundError, StorageError: a remaining file cannot be read: then nothing may be deleted.
        InvalidInputError: the table as it is now is older than the removed snapshots.
    """
    _check_is_later(gone, after)
    spellings = Spellings(after.location, links_below(io, after.location))
    kept_lists = [snapshot.manifest_list for snapshot in after.snapshots if snapshot.manifest_list]
    only_lists = set(spellings.unreached((one.manifest_list for one in gone if one.manifest_list), kept_lists))
    gone = [one for one in gone if one.manifest_list is None or one.manifest_list in only_lists]
    kept = find_manifests(io, after.snapshots) if gone else {}
    # If the list is missing, an earlier try has deleted it, as the last file.
    found = find_manifests(io, gone, may_be_missing=True)
    only_gone = [found[path] for path in spellings.unreached(found, kept)]
    manifests, others = own_only(io, (manifest.manifest_path for manifest in only_gone))
    lists, more = own_only(io, (snapshot.manifest_list for snapshot in gone if snapshot.manifest_list))
    unused, most = own_only(io, spellings.unreached(statistics, statistics_paths(after)))
    return Deletable(
        content=_deletable_files(io, spellings, only_gone, list(kept.values()), inventory),
        manifests=tuple(manifests),
        manifest_lists=tuple(lists),
        statistics=tuple(unused),
        foreign_metadata=others + more + most,
    )


def _check_is_later(gone: Sequence[Snapshot], after: TableMetadata) -> None:
    """Refuse a state that was before the removed snapshots: it does not know what came between."""
    newest = max((one.sequence_number or 0 for one in gone), default=0)
    if newest > after.last_sequence_number:
        raise InvalidInputError(
            f"the table at {after.location} is at sequence number {after.last_sequence_number}, and a snapshot that "
            f"was removed from it had {newest}: it was set back to an older state; no file is deleted"
        )


def _deletable_files(
    io: FileIO,
    spellings: Spellings,
    gone: Sequence[ManifestFile],
    kept: Sequence[ManifestFile],
    inventory: RunUnits,
) -> DeletableFiles:
    files = DeletableFiles(io, spellings)
    if not gone:
        return files
    # With deleted entries: their files may be live in no remaining snapshot.
    first = manifest_units(gone, is_live=False, with_paths=True, may_be_missing=True, folders=spellings.folders)
    last = manifest_units(kept, is_live=True, folders=spellings.folders)
    parts = inventory([*first, *last], what="files that expired snapshots reached")
    for part in islice(parts, len(first)):
        files._take(part)
    files._keep(parts)
    parts.close()
    return files


def own_mask(io: FileIO, paths: pa.Array) -> Mask:
    """Tell of each path whether it is below the table's own locations."""
    if not isinstance(io, GatedFileIO):
        return np.ones(len(paths), np.bool_)
    given = paths.to_pylist()
    io.look_ahead(given)
    return np.fromiter(map(io.owns, given), np.bool_, len(given))


def statistics_paths(metadata: TableMetadata, snapshot_ids: Iterable[int] | None = None) -> tuple[str, ...]:
    """Return the paths of statistics and partition statistics files, of some snapshots or of all."""
    wanted = None if snapshot_ids is None else set(snapshot_ids)
    return tuple(
        str(entry["statistics-path"])
        for entry in (*metadata.statistics, *metadata.partition_statistics)
        if "statistics-path" in entry and (wanted is None or entry.get("snapshot-id") in wanted)
    )


# -- the size of refs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RefSize:
    """The files that a branch or tag keeps.

    Attributes:
        size_bytes: the size of all data and delete files that its snapshots reach.
        exclusive_bytes: the size of the files that no other ref's snapshots reach.
    """

    name: str
    snapshots: int
    size_bytes: int
    exclusive_bytes: int


def sizes_of_refs(io: FileIO, metadata: TableMetadata, *, inventory: RunUnits) -> tuple[RefSize, ...]:
    """Return the size of each ref. Memory: some 20 bytes for each entry of a manifest that a ref reaches.

    Raises:
        FormatError, NotFoundError, StorageError: a file cannot be read.
    """
    counts: dict[str, int] = {}
    owners: dict[int, set[str]] = {}
    for name, ref in metadata.refs.items():
        head = metadata.snapshot(ref.snapshot_id)
        reached = list(metadata.ancestors(ref.snapshot_id)) if ref.is_branch else [s for s in (head,) if s]
        counts[name] = len(reached)
        for snapshot in reached:
            owners.setdefault(snapshot.snapshot_id, set()).add(name)
    by_owners = _manifests_by_owners(io, metadata, owners)
    spellings = Spellings(metadata.location, links_below(io, metadata.location))
    sizes, alone = _sizes_by_owners(by_owners, spellings, inventory)
    return tuple(
        RefSize(name=name, snapshots=counts[name], size_bytes=sizes.get(name, 0), exclusive_bytes=alone.get(name, 0))
        for name in sorted(metadata.refs)
    )


def _manifests_by_owners(
    io: FileIO, metadata: TableMetadata, owners: Mapping[int, set[str]]
) -> dict[frozenset[str], list[ManifestFile]]:
    """Return manifests by the refs that reach them; each list is read once, and each manifest is there once."""
    snapshots: dict[frozenset[str], list[Snapshot]] = {}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in owners:
            snapshots.setdefault(frozenset(owners[snapshot.snapshot_id]), []).append(snapshot)
    manifests: dict[str, ManifestFile] = {}
    reaching: dict[str, frozenset[str]] = {}
    for names, group in snapshots.items():
        for path, manifest in find_manifests(io, group).items():
            manifests[path] = manifest
            reaching[path] = reaching.get(path, frozenset()) | names
    found: dict[frozenset[str], list[ManifestFile]] = {}
    for path, names in reaching.items():
        found.setdefault(names, []).append(manifests[path])
    return found


def _sizes_by_owners(
    by_owners: Mapping[frozenset[str], Sequence[ManifestFile]], spellings: Spellings, inventory: RunUnits
) -> tuple[dict[str, int], dict[str, int]]:
    """Return for each ref the bytes of its files, and of those that are its own alone; each file once."""
    owners = list(by_owners)
    units = [
        (number, unit)
        for number, names in enumerate(owners)
        for unit in manifest_units(by_owners[names], is_live=True, folders=spellings.folders)
    ]
    parts = inventory([unit for _, unit in units], what="files that refs keep alive")
    hashes, sizes, numbers = [_NO_HASHES], [_NO_SIZES], [_NO_NUMBERS]
    for (number, _), part in zip(units, parts, strict=True):
        for batch in part.batches():
            hashes.append(spellings.hashes(batch)[0])
            sizes.append(numbers_of(batch.column("size_bytes")))
            numbers.append(np.full(batch.num_rows, number, np.int32))
    return _added_up(owners, np.concatenate(hashes), np.concatenate(sizes), np.concatenate(numbers))


_NO_HASHES, _NO_SIZES, _NO_NUMBERS = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int32)


def _added_up(
    owners: Sequence[frozenset[str]], hashes: Hashes, sizes: NDArray[np.int64], numbers: NDArray[np.int32]
) -> tuple[dict[str, int], dict[str, int]]:
    # Sorted by file, and within a file by owners: each file is a run, and most runs have the same owners.
    order = np.lexsort((numbers, hashes))
    hashes, sizes, numbers = hashes[order], sizes[order], numbers[order]
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1]))) if len(hashes) else _NO_NUMBERS
    ends = np.append(starts[1:], len(hashes))
    is_plain = numbers[starts] == numbers[ends - 1] if len(hashes) else np.zeros(0, np.bool_)
    plain = starts[is_plain]
    totals: dict[frozenset[str], int] = {}
    sums = np.zeros(len(owners), np.int64)
    np.add.at(sums, numbers[plain], sizes[plain])
    for names, size in zip(owners, sums.tolist(), strict=True):
        totals[names] = totals.get(names, 0) + size
    for start, end in zip(starts[~is_plain].tolist(), ends[~is_plain].tolist(), strict=True):
        names = frozenset[str]().union(*(owners[number] for number in set(numbers[start:end].tolist())))
        totals[names] = totals.get(names, 0) + int(sizes[start])
    found: dict[str, int] = {}
    alone: dict[str, int] = {}
    for names, size in totals.items():
        for name in names:
            found[name] = found.get(name, 0) + size
        if len(names) == 1:
            (name,) = names
            alone[name] = alone.get(name, 0) + size
    return found, alone
