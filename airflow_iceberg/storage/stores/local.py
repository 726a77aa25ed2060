"""The local file system: read, create-if-absent, list, delete on plain paths, and the store `file://` made of them.

Lives here: what POSIX gives us for an atomic create. Not here: locations and schemes (`fsspec_io`).
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from airflow_iceberg.storage.stores.store import Location, Settings

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_TRIES = 100
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}


def read(path: str, offset: int, length: int | None) -> bytes:
    """Return the bytes of a file from an offset on, at most `length` of them."""
    with open(path, "rb") as file:
        if offset:
            file.seek(offset)
        return file.read() if length is None else file.read(length)


def create(path: str, data: bytes) -> None:
    """Create a file that nobody can see before it is complete and on the disk.

    `rename` replaces its target on POSIX and `O_EXCL` shows a file that is still being written, so neither will do:
    the bytes go to a temporary name beside the target, are synced, and `link` gives them the final name, which
    fails when the name is taken.

    Raises:
        FileExistsError: the name is taken.
        OSError: anything else; the name may have been given when the failure came after the link.
    """
    directory = os.path.dirname(path)
    # Not a hidden name: what a crash leaves behind is to be found by the removal of orphan files. It must not look
    # like a version of the metadata ("v3.…") either.
    temporary = os.path.join(directory, f"{uuid.uuid4().hex}.tmp")
    _write_synced(temporary, data)
    try:
        _link(temporary, path)
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    _sync_directory(directory)


def walk(directory: str) -> Iterator[tuple[str, int, int]]:
    """Yield (path relative to the directory, size, time in ms) of each file at any depth; links only lead to files."""
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        below = f"{inner}/" if inner else ""
        try:
            folder = os.open(os.path.join(directory, inner) if inner else directory, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            continue  # never there, or removed while we walk: it has no files
        try:
            # By descriptor, since the kernel looks up the whole path again for each status otherwise.
            with os.scandir(folder) as found:
                entries = list(found)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(below + entry.name)
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield below + entry.name, status.st_size, status.st_mtime_ns // 1_000_000
        finally:
            os.close(folder)


def delete(path: str) -> None:
    """Remove a file; one that isn't there is no error."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def is_file(path: str) -> bool:
    """Tell whether there is a file; unlike `os.path.isfile`, a directory that may not be read is an error, not a no."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write_synced(path: str, data: bytes) -> None:
    try:
        descriptor = _open_new(path)
    except FileNotFoundError:
        descriptor = _open_in_new_directory(path)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            _write_all(file.fileno(), data)
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _open_in_new_directory(path: str) -> int:
    """Make the directory and the file; another task may remove the directory again as long as it is empty."""
    for attempt in range(1, _TRIES + 1):
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return _open_new(path)
        except FileNotFoundError:
            if attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def _open_new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # Over NFS the reply to a link that worked can be lost and the repeated call says "exists". The number of
        # names that our own file has tells the truth.
        if os.stat(temporary).st_nlink != 2:
            raise
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            message = "this file system has no hard links, so a file cannot be created safely; use another one"
            raise OSError(error.errno, message, path) from error
        raise


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


class LocalStore:
    """Files of this machine, through the standard library: half the cost of fsspec's wrapper, and a real `create`."""

    is_local: ClassVar[bool] = True
    is_conditional: ClassVar[bool] = False
    answers_are_final: ClassVar[bool] = True

    def __init__(self, instance: str, settings: Settings) -> None: ...

    @classmethod
    def instance_of(cls, location: Location) -> str:
        """Return nothing: there is one machine."""
        return ""

    @classmethod
    def path_of(cls, location: Location) -> str:
        """Return the path."""
        return location.path

    def filesystem(self) -> Any:
        """Return fsspec's file system."""
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(auto_mkdir=True)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Return the bytes of a file."""
        return read(path, offset, length)

    def create(self, path: str, data: bytes) -> None:
        """Make a file that isn't there."""
        create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file and rename it over whatever is there."""
        temporary = os.path.join(os.path.dirname(path), f"{uuid.uuid4().hex}.tmp")
        _write_synced(temporary, data)
        try:
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        """Return the files below a directory."""
        return walk(path)

    def delete(self, paths: Sequence[str]) -> Mapping[str, Exception]:
        """Remove files, one by one."""
        failures: dict[str, Exception] = {}
        for path in paths:
            try:
                delete(path)
            except OSError as error:
                failures[path] = error
        return failures

    def is_file(self, path: str) -> bool:
        """Tell whether there is a file."""
        return is_file(path)

    def names(self, path: str, prefix: str) -> list[str]:
        """Return the files of a directory whose names begin like this."""
        return [name for name, is_directory in self.children(path) if name.startswith(prefix) and not is_directory]

    def children(self, path: str) -> list[tuple[str, bool]]:
        """Return what is directly in a directory."""
        try:
            with os.scandir(path) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_directory(self, path: str) -> bool:
        """Tell whether there is a directory."""
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def remove_empty(self, path: str, above: str) -> None:
        """Remove a directory, those in it and the one above it, each if it is empty; links are not followed."""
        for directory, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)
        with suppress(OSError):
            os.rmdir(above)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        import shutil

        with suppress(FileNotFoundError):
            shutil.rmtree(path)
