"""What the kernel says was done in a folder, by whoever did it: also by libraries that open files themselves.

`local_calls` sees the calls of Python, and what they look at; here are those of Arrow, DuckDB and other processes, too.
The kernel tells who opens, lists, reads, writes, makes, moves or removes; not who only asks for a status.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HEAD = struct.Struct("iIII")
_NAMES = {
    0x001: "read", 0x002: "write", 0x004: "change attributes", 0x008: "close", 0x010: "close", 0x020: "open",
    0x040: "move away", 0x080: "move in", 0x100: "create", 0x200: "delete", 0x400: "delete", 0x800: "move",
}  # fmt: skip
IS_THERE = sys.platform == "linux"


class KernelWatch:
    """Watches a folder with all folders in it.

    Attributes:
        seen: what was done, as "<verb> <path>".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[str] = []

    @contextmanager
    def watching(self) -> Iterator["KernelWatch"]:
        if not IS_THERE:  # the other watch is everywhere
            yield self
            return
        library = ctypes.CDLL(None, use_errno=True)
        watch = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "cannot watch folders")
        try:
            places: dict[int, Path] = {}
            for place in (self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())):
                number = library.inotify_add_watch(watch, os.fsencode(place), sum(_NAMES))
                if number < 0:
                    raise OSError(ctypes.get_errno(), "cannot watch", str(place))
                places[number] = place
            yield self
            self.seen += _events(watch, places)
        finally:
            os.close(watch)


def _events(watch: int, places: dict[int, Path]) -> Iterator[str]:
    while True:
        try:
            data = os.read(watch, 1 << 16)
        except BlockingIOError:
            return
        start = 0
        while start < len(data):
            number, mask, _, size = _HEAD.unpack_from(data, start)
            name = os.fsdecode(data[start + _HEAD.size : start + _HEAD.size + size].rstrip(b"\0"))
            start += _HEAD.size + size
            # A queue that is full (no place) is an event, too: then more was done than could be told.
            verbs = [verb for bit, verb in _NAMES.items() if mask & bit] or ["more"]
            yield f"{verbs[0]} {places[number] / name if number in places else '?'}"
