"""fsspec's local file system, which opens files as the store does: without following links below a table's location."""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

from fsspec.implementations.local import LocalFileSystem


class Files(Protocol):
    """What the file system needs of the store."""

    def follows_no_link(self, path: str) -> bool: ...
    def open_file(self, path: str) -> BinaryIO: ...
    def open_new(self, path: str) -> BinaryIO: ...


class GuardedFileSystem(LocalFileSystem):  # type: ignore[misc]
    """The file system of a store."""

    # fsspec would keep an instance, and its store, for the life of the process.
    cachable = False

    def __init__(self, store: Files, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store = store

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        # Below a table's location they are made with the file.
        if not self.store.follows_no_link(self._strip_protocol(path)):
            super().makedirs(path, exist_ok=exist_ok)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if not self.store.follows_no_link(path):
            return super()._open(path, mode, block_size, **kwargs)
        if mode == "rb":
            return self.store.open_file(path)
        if mode in ("wb", "xb"):
            return self.store.open_new(path)
        raise ValueError(f"cannot open {path} in mode {mode!r}: files of a table are read or written as a whole")
