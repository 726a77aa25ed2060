"""A FileIO for who looks at tables of strangers beside the work of others: it says how much of a file is read.

What a manifest list says about the size of a manifest may be forged, and a few bytes may decompress to gigabytes. So
`manifests` asks the FileIO for its limits, and neither reads nor decodes more. Jobs and commits have no limits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from airflow_iceberg.errors import UnsupportedError, advised
from airflow_iceberg.format.avro.container import Limits
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.gate import ungated

# A manifest of Iceberg Java has 8 MB; 100,000 manifests are 20 MB, which PyIceberg writes as one block. All limits
# together keep what one look at a table takes below 256 MB, whatever is in its files.
_OF_A_MANIFEST = Limits(most_bytes=40 << 20, most_block_bytes=4 << 20, most_records=100_000)
_OF_A_LIST = Limits(most_bytes=32 << 20, most_block_bytes=24 << 20, most_records=100_000)
# Of one table: metadata of thousands of snapshots.
MOST_KEPT_BYTES = 16 << 20
_TEXT_BYTES = 49
_known: dict[type, tuple[str, ...]] = {}
_PLAIN = frozenset((str, int, float, bool, bytes, type(None)))
IN_WORKER = "wait for it in a worker, with deferrable=False"
TO_DO = f"expire snapshots of the table, or {IN_WORKER}"
MANIFESTS_AHEAD = 2
"""How many manifests are in memory: what their list says about their sizes may be forged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLimits:
    """How much of a table's files is read.

    Attributes:
        metadata_bytes: of a metadata file, as it is stored and decompressed.
        answer_bytes: of the answer of a catalog's server with the metadata in it, which is held while it is read.
        metadata_values: how many values a metadata file has, about: each is an object.
        metadata_memory: how much memory a metadata file takes while it is read, about.
        file_bytes: of a manifest or a manifest list as it is stored.
        manifest, manifest_list: of one that is decompressed.
    """

    metadata_bytes: int = 64 << 20
    answer_bytes: int = 32 << 20
    metadata_values: int = 12_000_000
    metadata_memory: int = 232 << 20
    file_bytes: int = 24 << 20
    manifest: Limits = _OF_A_MANIFEST
    manifest_list: Limits = _OF_A_LIST


class LimitedFileIO(FileIO):
    """A FileIO whose files are read up to a size; see `FileIO`.

    Args:
        check: called before each request; raises what ends the work that sends it.

    Attributes:
        inner: the FileIO without limits.
    """

    def __init__(
        self, inner: FileIO, limits: ReadLimits | None = None, *, check: Callable[[], None] | None = None
    ) -> None:
        self.inner = inner
        self.limits = ReadLimits() if limits is None else limits
        self._check = check or _go_on

    def __repr__(self) -> str:
        return f"LimitedFileIO({self.inner!r})"

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self._check()
        if length is not None:
            return self.inner.read(location, offset=offset, length=length)
        most = self.limits.metadata_bytes if _is_metadata(location) else self.limits.file_bytes
        data = self.inner.read(location, offset=offset, length=most + 1)
        if len(data) > most:
            raise too_large(f"{location} has more than {most} bytes, which are not read here")
        return data

    def create(self, location: str, data: bytes) -> None:
        self.inner.create(location, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        for one in self.inner.list(prefix):
            self._check()
            yield one

    def delete(self, locations: Iterable[str]) -> None:
        self.inner.delete(locations)

    def exists(self, location: str) -> bool:
        self._check()
        return self.inner.exists(location)

    def within(self, roots: Any) -> FileIO | None:
        inner = self.inner.within(roots)
        return None if inner is None else LimitedFileIO(inner, self.limits, check=self._check)

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self.inner.filesystem(location)


def too_large(text: str) -> UnsupportedError:
    """Return the error of a file that is larger than the limits, with what to do about it: workers have none."""
    return advised(UnsupportedError(text), TO_DO)


def may_keep(io: FileIO, value: object) -> bool:
    """Tell whether a value may stay in memory: where reads are limited, it must not be large."""
    return limits_of(io) is None or is_within(value, MOST_KEPT_BYTES)


def is_within(value: object, most_bytes: int) -> bool:
    """Tell whether a value and all that it holds take so many bytes of memory at most, about."""
    left, waiting = most_bytes, [value]
    while waiting and left >= 0:
        one = waiting.pop()
        left -= sys.getsizeof(one)
        if type(one) in _PLAIN:
            continue
        if isinstance(one, Mapping):
            texts = [*one, *one.values()]
            if all(type(each) is str for each in texts):  # properties and summaries, which are nearly all of a table
                left -= sum(map(len, texts)) + _TEXT_BYTES * len(texts)
            else:
                waiting += texts
        elif isinstance(one, tuple | list | set | frozenset):
            waiting += one
        else:
            waiting += [getattr(one, name, None) for name in _attributes(type(one))]
    return left >= 0


def _attributes(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes of a class, if it is one of data."""
    if kind not in _known:
        _known[kind] = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
    return _known[kind]


def _go_on() -> None:
    """Let all work go on."""


def limits_of(io: FileIO) -> ReadLimits | None:
    """Return how much of a table's files a FileIO reads; None for all of them."""
    found = io if isinstance(io, LimitedFileIO) else ungated(io)
    return found.limits if isinstance(found, LimitedFileIO) else None


def manifest_limits(io: FileIO) -> Limits | None:
    """Return how much of a manifest is decoded."""
    found = limits_of(io)
    return None if found is None else found.manifest


def list_limits(io: FileIO) -> Limits | None:
    """Return how much of a manifest list is decoded."""
    found = limits_of(io)
    return None if found is None else found.manifest_list


def _is_metadata(location: str) -> bool:
    return ".metadata.json" in location.rpartition("/")[2]
