"""`FsspecFileIO`: locations of every supported scheme, served by fsspec file systems.

Lives here: taking a location apart, the table scheme -> store, and the translation of a store's errors into ours.
Not here: the local file system's own calls (`local`). A new scheme is a new `_Store` in `_STORES`: it says how the file
system is made and how a file is created *if absent*, since each store has its own condition for that and fsspec's
exclusive modes don't keep it everywhere.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.storage import local
from airflow_iceberg.storage.base import FileIO, FileStatus

if TYPE_CHECKING:
    import fsspec

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


class _Store(Protocol):
    """One kind of store, by path; raises `OSError` and its subclasses as the standard library does."""

    def filesystem(self) -> fsspec.AbstractFileSystem: ...
    def read(self, path: str, offset: int, length: int | None) -> bytes: ...
    def create(self, path: str, data: bytes) -> None: ...
    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]: ...
    def delete(self, path: str) -> None: ...
    def is_file(self, path: str) -> bool: ...


class _LocalStore:
    """The local file system through the standard library: half the cost of fsspec's wrapper, and a real `create`."""

    def filesystem(self) -> fsspec.AbstractFileSystem:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(auto_mkdir=True)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        return local.read(path, offset, length)

    def create(self, path: str, data: bytes) -> None:
        local.create(path, data)

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        for name, status in local.walk(path):
            yield name, status.st_size, status.st_mtime_ns // 1_000_000

    def delete(self, path: str) -> None:
        local.delete(path)

    def is_file(self, path: str) -> bool:
        return local.is_file(path)


class _MemoryStore:
    """fsspec's memory file system: one dictionary for the whole process."""

    _creating = threading.Lock()

    def filesystem(self) -> fsspec.AbstractFileSystem:
        from fsspec.implementations.memory import MemoryFileSystem

        return MemoryFileSystem()

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        end = None if length is None else offset + length
        content: bytes = self.filesystem().cat_file(path)
        return content[offset:end]

    def create(self, path: str, data: bytes) -> None:
        filesystem = self.filesystem()
        with self._creating:
            if filesystem.exists(path):
                raise FileExistsError(path)
            filesystem.pipe_file(path, data)

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        root = path.rstrip("/")
        for name, info in self.filesystem().find(root or "/", detail=True).items():
            if name != root:  # fsspec gives the file itself when the prefix is one
                yield name[len(root) + 1 :], info["size"], _milliseconds(info.get("created"))

    def delete(self, path: str) -> None:
        try:
            self.filesystem().rm_file(path)
        except (FileNotFoundError, KeyError):
            return

    def is_file(self, path: str) -> bool:
        return bool(self.filesystem().isfile(path))


# Object stores and HDFS join here, each with its own condition (design page, section 5).
_STORES: Mapping[str, Callable[[Mapping[str, str]], _Store]] = {
    "file": lambda _: _LocalStore(),
    "memory": lambda _: _MemoryStore(),
}


class FsspecFileIO(FileIO):
    """Files of every scheme in `_STORES`; see `FileIO` for what each method promises.

    Args:
        properties: settings of the stores (endpoints, keys), as a catalog's properties give them.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = dict(properties or {})
        self._stores: dict[str, _Store] = {}

    def __repr__(self) -> str:
        return "FsspecFileIO()"  # the properties may hold keys

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file."""
        store, path = self._resolve(location)
        with _translated("read", location):
            return store.read(path, offset, length)

    def create(self, location: str, data: bytes) -> None:
        """Make a file that isn't there yet, all or nothing."""
        store, path = self._resolve(location)
        with _translated("create", location):
            store.create(path, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        """Yield every file below a directory, at any depth."""
        store, path = self._resolve(prefix)
        base = prefix if prefix.endswith("/") else f"{prefix}/"
        with _translated("list", prefix):
            for name, size_bytes, modified_ms in store.walk(path):
                yield FileStatus(location=base + name, size_bytes=size_bytes, modified_ms=modified_ms)

    def delete(self, locations: Iterable[str]) -> None:
        """Remove files; one that isn't there is no error."""
        failures: list[StorageError] = []
        for location in locations:
            store, path = self._resolve(location)
            try:
                with _translated("delete", location):
                    store.delete(path)
            except StorageError as error:
                failures.append(error)
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise StorageError(f"{failures[0]}{more}") from failures[0]

    def exists(self, location: str) -> bool:
        """Tell whether there is a file at the location."""
        store, path = self._resolve(location)
        with _translated("look for", location):
            return store.is_file(path)

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the fsspec file system of a location and the path in it."""
        store, path = self._resolve(location)
        return store.filesystem(), path

    def _resolve(self, location: str) -> tuple[_Store, str]:
        scheme, path = split_location(location)
        store = self._stores.get(scheme)
        if store is None:
            if scheme not in _STORES:
                known = ", ".join(f"{name}://" for name in sorted(_STORES))
                raise UnsupportedError(
                    f"cannot use {location}: scheme '{scheme}' is not supported yet, use one of {known}"
                )
            store = self._stores[scheme] = _STORES[scheme](self._properties)
        return store, path


def load_file_io(properties: Mapping[str, str] | None = None) -> FileIO:
    """Return the FileIO for a catalog's properties."""
    return FsspecFileIO(properties)


def split_location(location: str) -> tuple[str, str]:
    """Return (scheme, path) of a location: "file:///a", "file:/a" and "/a" are all ("file", "/a").

    Nothing is decoded: a `%2F` in a partition path is part of the file's name.

    Raises:
        InvalidInputError: not absolute, or a local path on another host.
    """
    match = _SCHEME.fullmatch(location)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", location)
    if scheme == "file":
        return scheme, _local_path(location, rest)
    if not rest.startswith("//") or rest == "//":
        raise InvalidInputError(f"'{location}' is not a location: expected '{scheme}://' and a path")
    return scheme, f"/{rest.lstrip('/')}"


def _local_path(location: str, rest: str) -> str:
    path = rest
    if location[:5].lower() == "file:" and rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidInputError(f"'{location}' names the host '{host}': write file:///path for a local file")
        path = slash + path
    if not path.startswith("/"):
        raise InvalidInputError(f"'{location}' is not an absolute location: write it as file:///path or /path")
    if "\0" in path:
        raise InvalidInputError(f"{location!r} is not a location: it holds a NUL character")
    return path


@contextmanager
def _translated(verb: str, location: str) -> Iterator[None]:
    """Turn what a store raises into our errors, with the location and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"cannot {verb} {location}: there is no such file") from error
    except FileExistsError as error:
        raise AlreadyExistsError(f"cannot {verb} {location}: it exists already") from error
    except PermissionError as error:
        raise StorageError(
            f"cannot {verb} {location}: permission denied, check who owns it and the process's user"
        ) from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot {verb} {location}: {_reason(error)}") from error


def _milliseconds(created: Any) -> int | None:
    seconds = created.timestamp() if hasattr(created, "timestamp") else created  # older fsspec: a datetime
    return None if seconds is None else int(seconds * 1000)


def _reason(error: Any) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
