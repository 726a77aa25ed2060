"""The local file system, `file://`, and how POSIX creates a file atomically."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from airflow_iceberg.storage.stores.store import Location, Store

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_TRIES = 100
# The plan of a job has the query and the predicates of its task; only the user of the worker runs the job.
_PRIVATE = "/plan.json"
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}


class LocalStore(Store):
    """Files of this machine, through the standard library: half the cost of fsspec, and an atomic `create`."""

    is_local = True
    answers_are_final = True

    @classmethod
    def path_of(cls, location: Location) -> str:
        return location.path

    def filesystem(self) -> Any:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(auto_mkdir=True)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        with open(path, "rb") as file:
            if offset:
                file.seek(offset)
            return file.read() if length is None else file.read(length)

    def create(self, path: str, data: bytes) -> None:
        """Create a file that nobody can see before it is complete and on the disk.

        `rename` replaces its target on POSIX, and `O_EXCL` shows a file that is still being written. So the bytes are
        written to a temporary name in the same directory and synced, and `link` gives them the final name: it fails
        when the name is taken. After another `OSError` the file may exist or not.
        """
        temporary = _temporary_name(path)
        _write_synced(temporary, data, mode=0o600 if path.endswith(_PRIVATE) and "/.staging/" in path else 0o666)
        try:
            _link(temporary, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        _sync_directory(os.path.dirname(path))

    def replace(self, path: str, data: bytes) -> None:
        temporary = _temporary_name(path)
        _write_synced(temporary, data)
        try:
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        """Yield (path below the directory, size, time in ms) of each file; links to directories are not followed."""
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            below = f"{inner}/" if inner else ""
            try:
                folder = os.open(os.path.join(path, inner) if inner else path, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it never existed, or was removed during the walk: it has no files
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

    def _delete_file(self, path: str) -> None:
        os.unlink(path)

    def is_file(self, path: str) -> bool:
        """Tell whether there is a file; unlike for `os.path.isfile`, an unreadable directory is an error."""
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def children(self, path: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(path) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def remove_empty(self, path: str, above: str) -> None:
        for directory, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)
        with suppress(OSError):
            os.rmdir(above)

    def remove_tree(self, path: str) -> None:
        import shutil

        with suppress(FileNotFoundError):
            shutil.rmtree(path)


def _temporary_name(path: str) -> str:
    """Return a new name in the same directory.

    It is not a hidden name: what a crash leaves must be found by the removal of orphan files. Nor does it look like a
    version of the metadata ("v3.…").
    """
    return os.path.join(os.path.dirname(path), f"{uuid.uuid4().hex}.tmp")


def _write_synced(path: str, data: bytes, *, mode: int = 0o666) -> None:
    try:
        descriptor = _open_new(path, mode)
    except FileNotFoundError:
        descriptor = _open_in_new_directory(path, mode)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            _write_all(file.fileno(), data)
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _open_in_new_directory(path: str, mode: int) -> int:
    """Create the directory and the file; another task may remove the directory again as long as it is empty."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return _open_new(path, mode)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return _open_new(path, mode)


def _open_new(path: str, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # Over NFS the answer to a link that worked can be lost, and the repeated call fails with "exists". The number
        # of names of our own file shows what happened.
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
