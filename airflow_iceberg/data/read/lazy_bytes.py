"""The bytes of a file, for the reader of a container that is not read into memory as a whole."""

from __future__ import annotations

from typing import Any

_CHUNK = 1 << 20


class LazyBytes:
    """The bytes of a file, read in chunks on demand, and only once if they are read in order."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        handle.seek(0, 2)
        self._size = handle.tell()
        self._start = 0
        self._chunk = b""

    def __len__(self) -> int:
        return int(self._size)

    def __getitem__(self, key: int | slice) -> int | bytes:
        if isinstance(key, int):
            offset = key - self._start
            if not 0 <= offset < len(self._chunk):
                self._load(key, _CHUNK)
                offset = 0
            return self._chunk[offset]
        start, stop, _ = key.indices(self._size)
        if start < self._start or stop > self._start + len(self._chunk):
            self._load(start, max(stop - start, _CHUNK))
        return self._chunk[start - self._start : stop - self._start]

    def _load(self, start: int, size: int) -> None:
        self._handle.seek(start)
        self._chunk = bytes(self._handle.read(size))
        self._start = start
