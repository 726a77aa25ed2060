"""The calls that reach the operating system: which files they touch, and something that happens between two of them."""

import builtins
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

# (name of a function of `os`, keyword of the folder of its first path, keyword of that of its second path)
_CHANGES = (
    ("unlink", "dir_fd", None),
    ("remove", "dir_fd", None),
    ("rmdir", "dir_fd", None),
    ("mkdir", "dir_fd", None),
    ("link", "src_dir_fd", "dst_dir_fd"),
    ("rename", "src_dir_fd", "dst_dir_fd"),
    ("replace", "src_dir_fd", "dst_dir_fd"),
)


class ForeignCallError(AssertionError):
    """A call has come to the files of others."""


class LocalCalls:
    """Watches the calls of this process, and refuses those that come to a foreign folder.

    Attributes:
        foreign: a folder, with all that is in it, that no call may open, list, change or look into.
        before_call: called with the number of each call before it is made, from 0.
        touched: what calls have come to in the foreign folder.
    """

    def __init__(self, foreign: Path, before_call: Callable[[int], None] = lambda number: None) -> None:
        self.foreign = foreign
        self.before_call = before_call
        self.touched: list[str] = []
        self.count = 0
        self._inodes = {_identity(os.stat(path)) for path in (foreign, *foreign.rglob("*"))}
        self._content = content(foreign)
        self._is_inside = False

    @contextmanager
    def watching(self) -> Iterator["LocalCalls"]:
        patches = [patch.object(os, name, self._change(name, *keys)) for name, *keys in _CHANGES]
        patches += [
            patch.object(os, "open", self._opening(os.open)),
            patch.object(builtins, "open", self._opening(builtins.open)),
            patch.object(os, "scandir", self._looking("scandir")),
            patch.object(os, "listdir", self._looking("listdir")),
            patch.object(os, "stat", self._looking("stat")),
            patch.object(os, "lstat", self._looking("lstat")),
        ]
        for each in patches:
            each.start()
        try:
            yield self
        finally:
            for each in patches:
                each.stop()

    def check(self) -> None:
        """Nothing was touched, and the folder is as it was."""
        assert self.touched == []
        assert content(self.foreign) == self._content

    def _opening(self, function: Any) -> Any:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            self._before()
            file = function(path, *args, **kwargs)
            descriptor = file if isinstance(file, int) else file.fileno()
            self._note("open", path, self._stat(descriptor))
            return file

        return call

    def _looking(self, name: str) -> Any:
        function = getattr(os, name)

        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            # The library's functions for whole trees look first, and go on only if it is the same folder afterwards.
            self._before()
            if name in ("scandir", "listdir"):
                self._note(name, path, self._stat(path))
            return function(path, *args, **kwargs)

        return call

    def _change(self, name: str, *keys: Any) -> Any:
        function = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before()
            for path, key in ((path, key) for path, key in zip(args, keys, strict=False) if key is not None):
                parent = os.path.dirname(os.fspath(path)) or "."
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._note(name, path, self._stat(parent, dir_fd=kwargs.get(key)))
            return function(*args, **kwargs)

        return call

    def _before(self) -> None:
        if not self._is_inside:  # what happens there makes calls, too
            self._is_inside = True
            try:
                self.before_call(self.count)
            finally:
                self._is_inside = False
            self.count += 1

    def _stat(self, path: Any, **kwargs: Any) -> os.stat_result:
        return _real_stat(path, **kwargs)

    def _note(self, name: str, path: Any, status: os.stat_result) -> None:
        if not self._is_inside and _identity(status) in self._inodes:
            self.touched.append(f"{name} {path}")
            raise ForeignCallError(f"{name} {path}")


_real_stat = os.stat


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def content(folder: Path) -> dict[str, Any]:
    """Return the files, folders and links below a folder, with their bytes, and when they were changed."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        name = str(path.relative_to(folder))
        found[name] = (path.read_bytes() if stat.S_ISREG(status.st_mode) else None, status.st_mtime_ns)
    return found
