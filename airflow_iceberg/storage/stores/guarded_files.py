"""A local file system for fsspec that opens files as the store does: in its folders, and without following links."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Protocol

from fsspec.spec import AbstractFileSystem


class Files(Protocol):
    """What the file system needs of the store."""

    def open_file(self, path: str) -> BinaryIO: ...
    def open_new(self, path: str) -> BinaryIO: ...


class GuardedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The file system of a store: files are read or written as a whole, all else is the store's."""

    protocol = ("file", "local")
    # fsspec would keep an instance, and its store, for the life of the process.
    cachable = False

    def __init__(self, store: Files, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.guarded_store = store

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        with self._open(path) as file:
            return {"name": path, "type": "file", "size": os.fstat(file.fileno()).st_size}

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing: folders are made with the first file in them."""

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            return self.guarded_store.open_file(path)
        if mode in ("wb", "xb"):
            return self.guarded_store.open_new(path)
        raise ValueError(f"cannot open {path} in mode {mode!r}: files of a table are read or written as a whole")

    def open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        # The base class would look for compression and text, and wrap the file.
        return self._open(path, mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        with self._open(path) as file:
            content: bytes = file.read()
        return content[start:end]
