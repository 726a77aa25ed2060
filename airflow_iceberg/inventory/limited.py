"""A FileIO for who looks at tables of strangers beside the work of others: it says how much of a file is read.

What a manifest list says about the size of a manifest may be forged, and a few bytes may decompress to gigabytes. So
`manifests` asks the FileIO for its limits, and neither reads nor decodes more. Jobs and commits have no limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.avro.container import Limits
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.gate import ungated

# A manifest of Iceberg Java has 8 MB; 100,000 manifests are 20 MB, which PyIceberg writes as one block.
_OF_A_MANIFEST = Limits(most_bytes=192 << 20, most_block_bytes=4 << 20, most_records=1_000_000)
_OF_A_LIST = Limits(most_bytes=64 << 20, most_block_bytes=32 << 20, most_records=200_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLimits:
    """How much of a table's files is read.

    Attributes:
        metadata_bytes: of a metadata file, as it is stored and decompressed.
        metadata_values: how many values a metadata file has, about: each is an object.
        file_bytes: of a manifest or a manifest list as it is stored.
        manifest, manifest_list: of one that is decompressed.
    """

    metadata_bytes: int = 256 << 20
    metadata_values: int = 12_000_000
    file_bytes: int = 48 << 20
    manifest: Limits = _OF_A_MANIFEST
    manifest_list: Limits = _OF_A_LIST


class LimitedFileIO(FileIO):
    """A FileIO whose files are read up to a size; see `FileIO`.

    Attributes:
        inner: the FileIO without limits.
    """

    def __init__(self, inner: FileIO, limits: ReadLimits | None = None) -> None:
        self.inner = inner
        self.limits = ReadLimits() if limits is None else limits

    def __repr__(self) -> str:
        return f"LimitedFileIO({self.inner!r})"

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if length is not None:
            return self.inner.read(location, offset=offset, length=length)
        most = self.limits.metadata_bytes if _is_metadata(location) else self.limits.file_bytes
        data = self.inner.read(location, offset=offset, length=most + 1)
        if len(data) > most:
            raise UnsupportedError(f"{location} has more than {most} bytes, which are not read here")
        return data

    def create(self, location: str, data: bytes) -> None:
        self.inner.create(location, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        return self.inner.list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        self.inner.delete(locations)

    def exists(self, location: str) -> bool:
        return self.inner.exists(location)

    def within(self, roots: Any) -> FileIO | None:
        inner = self.inner.within(roots)
        return None if inner is None else LimitedFileIO(inner, self.limits)

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self.inner.filesystem(location)


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
