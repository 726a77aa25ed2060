"""A FileIO that counts what is read through it, over a real one."""

from __future__ import annotations

from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO


class CountingFileIO(FsspecFileIO):
    """Counts bytes and calls.

    Attributes:
        bytes_read: of all files together.
        calls: what was asked, with the location.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.calls: list[tuple[str, str]] = []

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.calls.append(("read", location))
        data = super().read(location, offset=offset, length=length)
        self.bytes_read += len(data)
        return data

    def exists(self, location: str) -> bool:
        self.calls.append(("exists", location))
        return super().exists(location)
