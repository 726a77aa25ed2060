"""A remote file of which the bytes of a row group are fetched before Arrow asks for them: they are seen first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

# As Arrow does: small holes are fetched too, and a request does not become larger than this by joining ranges.
_HOLE_BYTES, _JOINED_BYTES = 8 << 10, 32 << 20


class FetchedFile:
    """A file for `pyarrow.PythonFile`, which asks for bytes from one thread at a time.

    Args:
        handle: a file of fsspec.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        handle.seek(0, 2)
        self.size = int(handle.tell())
        self._at = 0
        self._starts: list[int] = []
        self._parts: list[bytes] = []

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read these ranges, (start, length), and keep them in place of those before."""
        self._starts, self._parts = [], []
        for start, end in _joined(ranges):
            self._handle.seek(start)
            self._parts.append(self._handle.read(end - start))
            self._starts.append(start)

    def read(self, size: int = -1) -> Any:
        start = self._at
        end = self.size if size is None or size < 0 else min(start + size, self.size)
        if end <= start:
            return b""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and end <= self._starts[index] + len(self._parts[index]):
            first = self._starts[index]
            found: Any = memoryview(self._parts[index])[start - first : end - first]
        else:
            self._handle.seek(start)
            found = self._handle.read(end - start)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    @property
    def closed(self) -> bool:
        return bool(self._handle.closed)

    def close(self) -> None:
        """Do nothing: who has opened the handle closes it."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if length <= 0:
            continue
        if found:
            first, end = found[-1]
            if start - end <= _HOLE_BYTES and max(end, start + length) - first <= _JOINED_BYTES:
                found[-1] = first, max(end, start + length)
                continue
        found.append((start, start + length))
    return found
