"""Local paths below certain folders, opened without following symbolic links.

Others can write to a table's folder, and could put a link there, or in the place of a folder, to what only this process
may read or delete. So paths below such a folder are opened from it downwards, folder by folder: between a check of the
path and its use a link could take its place. Nothing is remembered between two calls.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.local_roots import LocalRoots, Located

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# On the way to a file: a folder that may be passed through need not be readable.
_PASS_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Guarded:
    """Opens paths: without roots any path, as the system does; with roots only what is in them, and no link there."""

    def __init__(self, roots: LocalRoots | None) -> None:
        self._roots = roots

    @property
    def follows_links(self) -> bool:
        return self._roots is None

    def _located(self, path: str) -> Located | None:
        if self._roots is None:
            return None
        try:
            found = self._roots.locate(path)
        except InvalidInputError as error:
            raise OSError(errno.EINVAL, "the path has '..' in it", path) from error
        if found is None:
            raise OSError(errno.EACCES, "the path is outside of the folders that may be used", path)
        return found

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int | None, str]]:
        """Yield an open folder and the name in it, for functions of `os` with `dir_fd`.

        Without roots, and for a root itself, these are None and the path, with which the same functions follow links.

        Args:
            make: whether missing folders are made.
        """
        located = self._located(path)
        if located is None:
            yield None, path
            return
        root, names = located
        if not names:
            yield None, root.rstrip("/") or "/"
            return
        folder = _open_root(root, make=make)
        try:
            for name in names[:-1]:
                inner = _enter(folder, name, path, make=make)
                os.close(folder)
                folder = inner
            yield folder, names[-1]
        finally:
            os.close(folder)

    def open_folder(self, path: str) -> int:
        """Return an open folder."""
        with self.parent(path) as (folder, name):
            if folder is None:
                return os.open(name, _OPEN_FOLDER)
            return _enter(folder, name, path, flags=_OPEN_FOLDER | os.O_NOFOLLOW)

    def open_file(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return an open regular file."""
        with self.parent(path) as (folder, name):
            return open_in(folder, name, flags, mode)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; one that exists is no error."""
        with self.parent(path, make=True) as (folder, name):
            if folder is None:
                os.makedirs(name, exist_ok=True)
            else:
                os.close(_enter(folder, name, path, make=True))


def _open_root(root: str, *, make: bool) -> int:
    # It had no link in it when it was resolved: one in its place has been put there since.
    name = root.rstrip("/") or "/"
    try:
        return os.open(name, _PASS_FOLDER)
    except FileNotFoundError:
        if not make:
            raise
        os.makedirs(name, exist_ok=True)
        return os.open(name, _PASS_FOLDER)


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
    kind = os.fstat(file).st_mode
    if not stat.S_ISREG(kind):
        os.close(file)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        raise OSError(errno.EINVAL, f"{name} is not a regular file", name)
    return file


def _enter(folder: int, name: str, path: str, *, make: bool = False, flags: int = _PASS_FOLDER) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return _enter(folder, name, path, flags=flags)
    except OSError:
        refuse_link(folder, name)
        raise


def refuse_link(folder: int | None, name: str) -> None:
    """Raise OSError if the name is one of a symbolic link."""
    if folder is None:
        return
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            message = f"{name} is a symbolic link; below a table's location none is followed, nor below the warehouse"
            raise OSError(errno.ELOOP, message, name)
