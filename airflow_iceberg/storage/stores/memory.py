"""fsspec's memory file system: one dictionary for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from airflow_iceberg.storage.directories import FsspecDirectories
from airflow_iceberg.storage.stores.store import Location, Settings, Store


class MemoryStore(FsspecDirectories, Store):
    """Files in the memory of this process; paths begin with a slash."""

    _creating = threading.Lock()

    def __init__(self, instance: str, settings: Settings) -> None:
        super().__init__(self.filesystem())

    @classmethod
    def path_of(cls, location: Location) -> str:
        return f"/{(location.authority + location.path).lstrip('/')}"

    def filesystem(self) -> Any:
        from fsspec.implementations.memory import MemoryFileSystem

        return MemoryFileSystem()

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        end = None if length is None else offset + length
        content: bytes = self.filesystem().cat_file(path)
        return content[offset:end]

    def create(self, path: str, data: bytes) -> None:
        filesystem = self.filesystem()
        with self._creating:
            if filesystem.exists(path):
                raise FileExistsError(path)
            filesystem.pipe_file(path, data)

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        root = path.rstrip("/")
        for name, info in self.filesystem().find(root or "/", detail=True).items():
            if name != root:  # fsspec gives the file itself when the prefix is one
                yield name[len(root) + 1 :], info["size"], _milliseconds(info.get("created"))

    def _delete_file(self, path: str) -> None:
        self.filesystem().rm_file(path)

    def is_file(self, path: str) -> bool:
        return bool(self.filesystem().isfile(path))


def _milliseconds(created: Any) -> int | None:
    seconds = created.timestamp() if hasattr(created, "timestamp") else created  # older fsspec: a datetime
    return None if seconds is None else int(seconds * 1000)
