"""`FsspecFileIO`: locations of every supported scheme.

Here: the store of each scheme, and the translation of a store's errors into this package's, without secrets. Not here:
the stores (`local`, `memory`, `s3`, `gcs`, `adls`, `hdfs`, `webhdfs`). A new scheme is a new line in `_STORES` and a
module that creates a file *only if it does not exist*: each store has its own condition for that, and fsspec's
exclusive modes are not exclusive everywhere.
"""

from __future__ import annotations

import importlib
import logging
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import (
    AlreadyExistsError,
    IcebergError,
    StorageError,
    UnsupportedError,
    advised,
    missing_file,
    store_error,
)
from airflow_iceberg.redaction import hidden_texts, replaced
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.library_logs import redact_library_logs
from airflow_iceberg.storage.local_roots import LocalRoots
from airflow_iceberg.storage.stores.local import LocalStore
from airflow_iceberg.storage.stores.store import DeniedError, Refresh, RefusedError, Settings, Store, parse_location

if TYPE_CHECKING:
    import fsspec

log = logging.getLogger(__name__)

_S3 = ("s3", "S3Store", "airflow-iceberg[s3]")
_GCS = ("gcs", "GcsStore", "airflow-iceberg[gcs]")
_ADLS = ("adls", "AdlsStore", "airflow-iceberg[azure]")
_HDFS = ("hdfs", "HdfsStore", "airflow-iceberg[hdfs]")
_WEBHDFS = ("webhdfs", "WebHdfsStore", "airflow-iceberg[hdfs]")
# scheme -> module in this folder, class, what to install for it
_STORES: Mapping[str, tuple[str, str, str]] = {
    "file": ("local", "LocalStore", ""),
    "memory": ("memory", "MemoryStore", ""),
    **dict.fromkeys(("s3", "s3a", "s3n"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "az", "adl"), _ADLS),
    **dict.fromkeys(("hdfs", "viewfs"), _HDFS),
    **dict.fromkeys(("webhdfs", "swebhdfs"), _WEBHDFS),
}
_DELETED_AT_ONCE = 1000
# What drivers, and ours, raise for a document that lacks a part, has another type, or is nested too deeply.
_OF_OTHER_ANSWERS = (LookupError, TypeError, AttributeError, RuntimeError)


class FsspecFileIO(FileIO):
    """Files of every scheme in `_STORES`; see `FileIO` for the methods.

    Args:
        properties: a catalog's properties with the settings of the stores (endpoints, keys).
        refresh: returns newer properties; called before the credentials among them expire (`…expires-at-ms`) and when a
            store reports that they have expired.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, refresh: Refresh | None = None) -> None:
        redact_library_logs()
        self._settings = Settings(properties or {}, refresh)
        self._stores: dict[tuple[str, str], Store] = {}
        self._opening = threading.Lock()
        self._local: LocalStore | None = None

    def __repr__(self) -> str:
        return "FsspecFileIO()"  # the properties may hold keys

    def current_properties(self) -> Mapping[str, str]:
        """Return the current properties, secrets included: for a job that makes its own FileIO."""
        return self._settings.current()

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        with self.directory(location, "read") as (store, path):
            return store.read(path, offset, length)

    def create(self, location: str, data: bytes) -> None:
        with self.directory(location, "create") as (store, path):
            store.create(path, data)

    def replace(self, location: str, data: bytes) -> None:
        """Write a file, whether it exists or not: for hints, never for anything that a reader relies on."""
        with self.directory(location, "write") as (store, path):
            store.replace(path, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        base = prefix if prefix.endswith("/") else f"{prefix}/"
        with self.directory(prefix, "list") as (store, path):
            for name, size_bytes, modified_ms in store.walk(path):
                # An object can have such a name, and some clients would take it for one outside of the prefix.
                if "./" in f"{name}/" and not {".", ".."}.isdisjoint(name.split("/")):
                    log.warning("%s%r is left alone: its name has '.' or '..' in it", base, name)
                    continue
                yield FileStatus(location=base + name, size_bytes=size_bytes, modified_ms=modified_ms)

    def delete(self, locations: Iterable[str]) -> None:
        failures: list[tuple[str, Exception]] = []
        for store, paths in self._batches(locations):
            try:
                failed: Mapping[str, Exception] = store.delete(list(paths))
            except Exception as error:  # noqa: BLE001 - the others are deleted all the same
                failed = dict.fromkeys(paths, error)
            failures += [(paths[path], error) for path, error in failed.items()]
        if failures:
            location, first = failures[0]
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            try:
                with self._translated("delete", location):
                    raise first
            except IcebergError as error:
                raise StorageError(f"{error}{more}") from error

    def _batches(self, locations: Iterable[str]) -> Iterator[tuple[Store, dict[str, str]]]:
        """Yield stores and the files to delete there, path -> location, some at a time."""
        waiting: dict[int, tuple[Store, dict[str, str]]] = {}
        for location in locations:
            with self.directory(location, "delete") as (store, path):
                pass
            _, paths = waiting.setdefault(id(store), (store, {}))
            paths[path] = location
            if len(paths) >= _DELETED_AT_ONCE:
                yield waiting.pop(id(store))
        yield from waiting.values()

    def exists(self, location: str) -> bool:
        with self.directory(location, "look for") as (store, path):
            return store.is_file(path)

    def within(self, roots: LocalRoots) -> FileIO:
        # With the stores of this object, but for the local one.
        found = copy(self)
        found._local = LocalStore("", self._settings, roots)
        return found

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        with self.directory(location, "open") as (store, path):
            return store.filesystem(), path

    @contextmanager
    def directory(self, location: str, verb: str) -> Iterator[tuple[Store, str]]:
        """Yield the store of a location and the path in it; errors inside the block become this package's."""
        with self._translated(verb, location):
            yield self._resolve(location)

    def _resolve(self, location: str) -> tuple[Store, str]:
        found = parse_location(location)
        if found.scheme == "file" and self._local is not None:
            return self._local, found.path
        entry = _STORES.get(found.scheme)
        if entry is None:
            known = ", ".join(f"{name}://" for name in sorted(_STORES))
            raise UnsupportedError(
                f"cannot use {location}: scheme '{found.scheme}' is not supported, use one of {known}"
            )
        kind = _load(entry, location)
        # Spellings of one scheme ("s3", "s3a") share a store.
        key = (f"{entry[0]}.{entry[1]}", kind.instance_of(found))
        store = self._stores.get(key)
        if store is None:
            with self._opening:
                store = self._stores.get(key) or kind(key[1], self._settings)
                self._stores[key] = store
        return store, kind.path_of(found)

    @contextmanager
    def _translated(self, verb: str, location: str) -> Iterator[None]:
        """Turn a store's errors into this package's, with the location and advice, and without secrets."""
        try:
            yield
        except (IcebergError, GeneratorExit):
            raise
        except Exception as error:
            translated = _translation(verb, location, error, self._without_secrets)
            if translated is None:
                raise
            # A cause with a secret in it would be shown in every log of the task.
            raise translated from (error if self._is_clean(error) else None)

    def _is_clean(self, error: BaseException) -> bool:
        inner: BaseException | None = error
        while inner is not None:
            text = f"{inner!r}{inner}"
            if self._without_secrets(text) != text:
                return False
            inner = inner.__cause__ or inner.__context__
        return True

    def _without_secrets(self, text: str) -> str:
        return replaced(text, hidden_texts(self._settings.current_or_old()))


def load_file_io(properties: Mapping[str, str] | None = None, refresh: Refresh | None = None) -> FileIO:
    """Return the FileIO for a catalog's properties."""
    return FsspecFileIO(properties, refresh)


def _load(entry: tuple[str, str, str], location: str) -> Any:
    module, name, requirement = entry
    try:
        return getattr(importlib.import_module(f"airflow_iceberg.storage.stores.{module}"), name)
    except ImportError as error:
        to_do = f"run: pip install '{requirement}'"
        missing = UnsupportedError(
            f"cannot use {location}: the driver of its store is not installed ({error}), {to_do}"
        )
        missing.advice = f"{to_do}, wherever it failed"
        raise missing from error


def _translation(verb: str, location: str, error: Exception, clean: Any) -> IcebergError | None:
    """Return the error as one of this package's, or None if it isn't a store's."""
    what = f"cannot {verb} {location}"
    if isinstance(error, FileNotFoundError):
        return missing_file(f"{what}: there is no such file")
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(f"{what}: it exists already")
    if isinstance(error, PermissionError):
        return _denied(StorageError(f"{what}: permission denied, check who owns it and the process's user"))
    if (host := _unknown_host(error)) is not None:
        return StorageError(f"{what}: the name of the store's host is not known{host}, check the endpoint and the DNS")
    if isinstance(error, RefusedError):
        found = StorageError(f"{what}: {clean(str(error))}", is_refused=True)
        return _denied(found) if isinstance(error, DeniedError) else found
    if isinstance(error, OSError):
        return store_error(what, error, clean(_reason(error)))
    if isinstance(error, ValueError):
        return StorageError(f"{what}: {clean(_reason(error))}")
    if isinstance(error, _OF_OTHER_ANSWERS):
        text = f"{what}: its store's answer is not understood ({type(error).__name__})"
        return advised(StorageError(text), "check that the server of the store is the one that you mean")
    return None


def _denied(error: StorageError) -> StorageError:
    error.is_denied = True
    return error


def _unknown_host(error: BaseException) -> str | None:
    """Return " ('host')", or "" without its name, if the error or a cause of it is a name that was not resolved."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, socket.gaierror) or type(inner).__name__ == "ClientConnectorDNSError":
            host = getattr(inner, "host", "") or ""
            return f" ('{host}')" if host else ""
        inner = inner.__cause__ or inner.__context__
    return None


def _reason(error: Any) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
