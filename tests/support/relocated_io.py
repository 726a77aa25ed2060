"""A FileIO for tables that do not lie where their metadata says."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import fsspec

from airflow_iceberg.storage.base import FileIO, FileStatus


class RelocatedFileIO:
    """Maps locations with one prefix to another on the way in, and back on the way out of a listing.

    `mapping` is tried in order: the first prefix that fits is replaced. Locations inside data files are not seen.
    """

    def __init__(self, inner: FileIO, mapping: Mapping[str, str]) -> None:
        self.inner = inner
        self.mapping = dict(mapping)

    def actual(self, location: str) -> str:
        return _swap(location, self.mapping.items())

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self.inner.read(self.actual(location), offset=offset, length=length)

    def create(self, location: str, data: bytes) -> None:
        self.inner.create(self.actual(location), data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        back = [(new, old) for old, new in self.mapping.items() if prefix.startswith(old)]
        for status in self.inner.list(self.actual(prefix)):
            yield replace(status, location=_swap(status.location, back))

    def delete(self, locations: Iterable[str]) -> None:
        self.inner.delete(self.actual(location) for location in locations)

    def exists(self, location: str) -> bool:
        return self.inner.exists(self.actual(location))

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        return self.inner.filesystem(self.actual(location))


def _swap(location: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        if location.startswith(old):
            return new + location[len(old) :]
    return location
