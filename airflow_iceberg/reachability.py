"""Which files a table's snapshots reach, and which only those that were expired did.

Here: the difference of two states of a table, by path; sizes of what each ref keeps alive. Not here: which snapshots go
(`plan.retention`), deleting (`expiring`).

A path is the identity of a file on disk: several deletion vectors share a Puffin file, and a path can leave a table and
come back. So nothing is decided by single entries: what only expired manifests name may go, unless a live entry of a
snapshot that stays has the same path. Memory: the paths that may go, not those that stay.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_iceberg.commit.snapshot_writer import read_manifests
from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.manifest_io import read_columns
from airflow_iceberg.plan.orphans import Spelling
from airflow_iceberg.spec.manifests import FileContent, ManifestFile
from airflow_iceberg.spec.metadata import TableMetadata
from airflow_iceberg.spec.snapshots import Snapshot
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

THREADS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletable:
    """Files that nothing of a table reaches any more.

    Attributes:
        content: data and delete files with their kind.
        sizes: bytes of each of them, as the table knows it.
    """

    content: Mapping[str, FileContent] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    manifests: tuple[str, ...] = ()
    manifest_lists: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()

    def count(self, content: FileContent) -> int:
        """Return the number of files of a kind."""
        return sum(kind is content for kind in self.content.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of the data and delete files."""
        return sum(self.sizes.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing."""
        return not (self.content or self.manifests or self.manifest_lists or self.statistics)


def find_deletable(io: FileIO, gone: Iterable[Snapshot], after: TableMetadata, statistics: Iterable[str]) -> Deletable:
    """Return what was reached from snapshots that are gone, and is not reached from those that stay.

    Args:
        gone: snapshots that are not in `after` any more; what is missing of them already is passed over.
        after: the table as it is now, read after the snapshots went.
        statistics: paths of statistics files of the snapshots that are gone.
    Raises:
        FormatError, NotFoundError, StorageError: something that stays cannot be read: then nothing may be deleted.
    """
    kept_lists = {snapshot.manifest_list for snapshot in after.snapshots}
    gone = [snapshot for snapshot in gone if snapshot.manifest_list is None or snapshot.manifest_list not in kept_lists]
    kept = _manifests(io, after.snapshots)
    only_gone = {path: m for path, m in _gone_manifests(io, gone).items() if path not in kept}
    content, sizes = _candidates(io, list(only_gone.values()))
    spellings = _Spellings(content)
    for paths, _, _ in _paths(io, kept.values(), live=True) if content else ():
        for path in paths:
            for stays in spellings.of(path):
                if content.pop(stays, None) is not None:
                    del sizes[stays]
    kept_statistics = statistics_paths(after)
    return Deletable(
        content=content,
        sizes=sizes,
        manifests=tuple(only_gone),
        manifest_lists=tuple(snapshot.manifest_list for snapshot in gone if snapshot.manifest_list),
        statistics=tuple(path for path in dict.fromkeys(statistics) if path not in kept_statistics),
    )


class _Spellings:
    """Candidates by the file that they mean: writers may name one file by `s3://` and by `s3a://`.

    Where all paths begin alike, as nearly always, they are compared as they stand and nothing is kept in memory.
    """

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths
        self._prefixes = tuple({_store(path) for path in paths})
        self._by_path: dict[str, list[str]] | None = None

    def of(self, path: str) -> Sequence[str]:
        """Return the candidates that are the same path, whatever scheme and authority; in doubt a file stays."""
        if len(self._prefixes) == 1 and path.startswith(self._prefixes[0]):
            return (path,) if path in self._paths else ()
        if self._by_path is None:
            self._by_path = {}
            for candidate in self._paths:
                self._by_path.setdefault(Spelling().split(candidate)[2], []).append(candidate)
        return self._by_path.get(Spelling().split(path)[2], ())


def _store(path: str) -> str:
    """Return scheme and authority of a path as they stand, `s3://bucket/`."""
    scheme, colon, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/" if colon else ""


def statistics_paths(metadata: TableMetadata, snapshot_ids: Iterable[int] | None = None) -> tuple[str, ...]:
    """Return the paths of statistics and partition statistics files, of some snapshots or of all."""
    wanted = None if snapshot_ids is None else set(snapshot_ids)
    return tuple(
        str(entry["statistics-path"])
        for entry in (*metadata.statistics, *metadata.partition_statistics)
        if "statistics-path" in entry and (wanted is None or entry.get("snapshot-id") in wanted)
    )


def _manifests(io: FileIO, snapshots: Sequence[Snapshot]) -> dict[str, ManifestFile]:
    """Return the manifests of snapshots by path; one that cannot be read is an error."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda snapshot: read_manifests(io, snapshot), snapshots))
    return {manifest.manifest_path: manifest for manifests in found for manifest in manifests}


def _gone_manifests(io: FileIO, snapshots: Sequence[Snapshot]) -> dict[str, ManifestFile]:
    """Return the manifests of expired snapshots; where the list is gone, an earlier try has deleted it last of all."""

    def read(snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        try:
            return read_manifests(io, snapshot)
        except NotFoundError:
            return ()

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(read, snapshots))
    return {manifest.manifest_path: manifest for manifests in found for manifest in manifests}


def _candidates(io: FileIO, manifests: Sequence[ManifestFile]) -> tuple[dict[str, FileContent], dict[str, int]]:
    """Return what manifests name, deleted entries too, with kind and size in bytes."""
    content: dict[str, FileContent] = {}
    sizes: dict[str, int] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda manifest: io.exists(manifest.manifest_path), manifests))
    there = [manifest for manifest, is_there in zip(manifests, found, strict=True) if is_there]
    if len(there) < len(manifests):
        log.info("%d manifests are gone already, with the files that they named", len(manifests) - len(there))
    for paths, kinds, lengths in _paths(io, there, live=False):
        content.update(zip(paths, kinds, strict=True))
        sizes.update(zip(paths, lengths, strict=True))
    return content, sizes


_Paths = tuple[Sequence[str], Sequence[FileContent], Sequence[int]]


def _paths(io: FileIO, manifests: Iterable[ManifestFile], *, live: bool) -> Iterator[_Paths]:
    """Yield paths, kinds and sizes of entries, some manifests at a time."""
    kinds = tuple(FileContent)
    for part in read_columns(io, manifests):
        if isinstance(part, tuple):
            entries = [entry for entry in part[1] if entry.is_live or not live]
            files = [entry.data_file for entry in entries]
            yield (
                [file.file_path for file in files],
                [file.content for file in files],
                [file.file_size_in_bytes for file in files],
            )
            continue
        rows = part.is_live.nonzero()[0].tolist() if live else range(len(part))
        contents, lengths = part.content.tolist(), part.file_size_in_bytes.tolist()
        yield (
            [part.file_path[row] for row in rows],
            [kinds[contents[row]] for row in rows],
            [lengths[row] for row in rows],
        )


# -- what keeps what alive ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RefSize:
    """What a branch or tag keeps alive.

    Attributes:
        size_bytes: of all data and delete files that its snapshots reach.
        exclusive_bytes: of those that no other ref's snapshots reach.
    """

    name: str
    snapshots: int
    size_bytes: int
    exclusive_bytes: int


def sizes_of_refs(io: FileIO, metadata: TableMetadata) -> tuple[RefSize, ...]:
    """Return for each ref what it keeps alive. Memory: the paths of all live files."""
    owners: dict[str, set[str]] = {}
    manifests: dict[str, ManifestFile] = {}
    counts: dict[str, int] = {}
    for name, ref in metadata.refs.items():
        head = metadata.snapshot(ref.snapshot_id)
        reached = list(metadata.ancestors(ref.snapshot_id)) if ref.is_branch else [s for s in (head,) if s]
        counts[name] = len(reached)
        for path, manifest in _manifests(io, reached).items():
            manifests[path] = manifest
            owners.setdefault(path, set()).add(name)
    files: dict[str, tuple[int, frozenset[str]]] = {}
    for path, names in owners.items():
        for paths, _, lengths in _paths(io, [manifests[path]], live=True):
            for file, length in zip(paths, lengths, strict=True):
                known = files.get(file)
                files[file] = (length, frozenset(names) if known is None else known[1] | names)
    return tuple(
        RefSize(
            name=name,
            snapshots=counts[name],
            size_bytes=sum(length for length, names in files.values() if name in names),
            exclusive_bytes=sum(length for length, names in files.values() if names == {name}),
        )
        for name in sorted(metadata.refs)
    )
