"""Local paths below certain folders, opened without following symbolic links.

Others can write to a table's folder, and could put a link there, or in the place of a folder, to what only this process
may read or delete. So paths below such a folder are opened from it downwards, folder by folder: between a check of the
path and its use a link could take its place. Links above the folder are followed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Guarded:
    """The folders below which no link is followed."""

    def __init__(self) -> None:
        self._folders: frozenset[str] = frozenset()

    def add(self, folder: str) -> None:
        """Guard a folder; safe in threads."""
        self._folders |= {re.sub("/+", "/", folder).rstrip("/")}

    def is_below(self, path: str) -> bool:
        """Whether a path is below a guarded folder."""
        return bool(self.split(path)[1])

    def split(self, path: str) -> tuple[str, list[str]]:
        """Return the topmost guarded folder that a path is in, and the parts of the path below it.

        A path that is in none of them, or is one of them, has no parts, and is returned itself.

        Raises:
            OSError: a part is "..".
        """
        if "//" in path:
            path = re.sub("/+", "/", path)
        end = 0
        while self._folders and (end := path.find("/", end + 1)) >= 0:
            if path[:end] in self._folders:
                parts = [part for part in path[end:].split("/") if part not in ("", ".")]
                if ".." in parts:
                    raise OSError(errno.EINVAL, "the path has '..' in it", path)
                return path[:end], parts
        return path, []

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int | None, str]]:
        """Yield an open folder and the name in it, for functions of `os` with `dir_fd`.

        Outside of guarded folders these are None and the path, with which the same functions follow links.

        Args:
            make: whether missing folders are made.
        """
        root, parts = self.split(path)
        if not parts:
            yield None, path
            return
        folder = _open_root(root, make=make)
        try:
            for part in parts[:-1]:
                inner = _enter(folder, part, path, make=make)
                os.close(folder)
                folder = inner
            yield folder, parts[-1]
        finally:
            os.close(folder)

    def open_folder(self, path: str) -> int:
        """Return an open folder."""
        with self.parent(path) as (folder, name):
            return os.open(name, _OPEN_FOLDER) if folder is None else _enter(folder, name, path)

    def open_file(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return an open regular file."""
        with self.parent(path) as (folder, name):
            return open_in(folder, name, flags, mode)


def _open_root(root: str, *, make: bool) -> int:
    try:
        return os.open(root, _OPEN_FOLDER)
    except FileNotFoundError:
        if not make:
            raise
        os.makedirs(root, exist_ok=True)
        return os.open(root, _OPEN_FOLDER)


def open_in(folder: int | None, name: str, flags: int, mode: int = 0o666) -> int:
    """Return an open regular file of a folder that `Guarded.parent` has yielded."""
    if folder is None:
        return os.open(name, flags | os.O_CLOEXEC, mode)
    try:
        # A named pipe would wait for its other end.
        file = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=folder)
    except OSError:
        refuse_link(folder, name)
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, f"{name} is not a regular file", name)
    return file


def _enter(folder: int, name: str, path: str, *, make: bool = False) -> int:
    flags = _OPEN_FOLDER | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return _enter(folder, name, path)
    except OSError:
        refuse_link(folder, name)
        raise


def refuse_link(folder: int | None, name: str) -> None:
    """Raise OSError if the name is one of a symbolic link."""
    if folder is None:
        return
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, f"{name} is a symbolic link; below a table's location none is followed", name)
