"""The interface between `FsspecFileIO` and the stores: `Store`, `Location`, `Settings`, and a store's own errors.

Not here: the stores themselves (`local`, `s3`, `gcs`, `adls`, `hdfs`, `webhdfs`), and what their errors become
(`fsspec_io`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_iceberg.errors import InvalidInputError, check_no_password, check_text
from airflow_iceberg.storage.directories import Directories, copy_by_fsspec
from airflow_iceberg.storage.stores.lent_keys import expires_ms, replaced_keys

Refresh = Callable[[], Mapping[str, str]]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_RENEW_BEFORE_MS = 300_000


class RefusedError(OSError):
    """The store's definite error response; surely nothing was changed."""


class DeniedError(RefusedError):
    """The store has refused the request because of who has sent it."""


class ExpiredError(RefusedError):
    """The credentials are no longer valid."""


class UnclearError(OSError):
    """The answer was lost: the request may have been done or not."""


class ExcessError(UnclearError):
    """The answer exceeds a limit: another try gets the same one."""


class UnreachableError(UnclearError):
    """No connection could be made, at least in the end; an immediate retry helps little."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """The parts of a location; nothing in them is decoded.

    Attributes:
        text: the location as it was given.
        scheme: the scheme in lower case.
        authority: the part between "//" and the next slash: bucket, host.
        path: the rest, from that slash on.
    """

    text: str
    scheme: str
    authority: str
    path: str


class Store(Directories, Protocol):
    """One store, by its own paths.

    Args:
        instance: the result of `instance_of`.
        settings: address and credentials.
    """

    _instance: str
    _settings: Settings
    _lock: threading.Lock

    def __init__(self, instance: str, settings: Settings) -> None:
        self._instance = instance
        self._settings = settings
        self._lock = threading.Lock()

    @classmethod
    def instance_of(cls, location: Location) -> str:
        """Return the part of a location that distinguishes stores of one scheme: equal results share a store."""
        return ""

    @classmethod
    def path_of(cls, location: Location) -> str:
        """Return the path of a location in the store and in its fsspec file system."""
        ...

    def filesystem(self) -> Any:
        """Return the fsspec file system, for data files."""
        ...

    def read(self, path: str, offset: int, length: int | None) -> bytes: ...
    def create(self, path: str, data: bytes) -> None: ...
    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        """Yield (path below the directory, size, time in ms) of each file at any depth."""
        ...

    def delete(self, paths: Sequence[str]) -> Mapping[str, Exception]:
        """Delete files and return the errors of those that could not be deleted; a missing one is no error."""
        failures: dict[str, Exception] = {}
        for path in paths:
            try:
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._delete_file(path)
            except OSError as error:
                failures[path] = error
        return failures

    def copy_file(self, source: str, target: str) -> int:
        return copy_by_fsspec(self.filesystem(), source, target)

    def _delete_file(self, path: str) -> None: ...
    def is_file(self, path: str) -> bool: ...


class Settings:
    """The properties of a FileIO, renewed before the credentials among them expire. Thread-safe.

    Args:
        properties: the catalog's properties.
        refresh: returns newer ones; None if there are none.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        refresh: Refresh | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._now_ms = now_ms
        self._refresh = refresh
        self._lock = threading.Lock()
        self._taken_ms = now_ms()
        self._current: dict[str, str] = dict(properties)

    @property
    def can_renew(self) -> bool:
        """Whether newer credentials can be requested."""
        return self._refresh is not None

    def current(self) -> Mapping[str, str]:
        """Return the properties, renewed when a credential among them is about to expire."""
        found = self._current
        if self._refresh is not None and self._is_stale(found):
            return self.renew(found)
        return found

    def current_or_old(self) -> Mapping[str, str]:
        """Return the properties without renewing them."""
        return self._current

    def renew(self, stale: Mapping[str, str]) -> Mapping[str, str]:
        """Return newer properties than these; if several threads have stale ones, one thread renews them for all."""
        with self._lock:
            if self._current is stale and self._refresh is not None:
                newer = {str(key): str(value) for key, value in self._refresh().items()}
                self._current = replaced_keys(self._current, newer)
                self._taken_ms = self._now_ms()
            return self._current

    def expires_ms(self, prefix: str = "") -> int | None:
        """Return when the first of the credentials below a prefix expires, or None if that is not known."""
        return expires_ms(self._current, prefix)

    def _is_stale(self, properties: Mapping[str, str]) -> bool:
        expires_ms = self.expires_ms()
        if expires_ms is None or properties is not self._current:
            return False
        # Credentials that live for less than a few minutes are not renewed at each call.
        margin = min(_RENEW_BEFORE_MS, max(0, expires_ms - self._taken_ms) // 4)
        return self._now_ms() >= expires_ms - margin


def lent(kind: str) -> str:
    """Return the property that says that the server of a catalog lends the credentials of a kind of store."""
    return f"{kind}.credentials-lent-by-server"


def check_own_credentials(kind: str, properties: Mapping[str, str], what: str) -> None:
    """Refuse the process's own credentials where the server of a catalog has said where they would be sent.

    Raises:
        InvalidInputError: the server lends credentials, and the store found none.
    """
    if properties.get(lent(kind)) == "true":
        raise InvalidInputError(
            f"the catalog's server lends credentials, and none of them is for {what}; those of this process are not "
            f"used with the server's settings: set credentials in the connection, or ask who runs the server"
        )


_ESCAPED = re.compile("[\udc80-\udcff]")


def parse_location(location: str) -> Location:
    """Return the parts of a location: "file:///a", "file:/a" and "/a" are the same.

    Raises:
        InvalidInputError: not absolute, a local path on another host, or one with a password in it.
    """
    match = _SCHEME.fullmatch(location)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", location)
    # Names of local files may be any bytes: those that are no UTF-8 are spelled as other halves of pairs.
    check_text("a location", _ESCAPED.sub("", location) if scheme == "file" else location, is_name="\0" not in location)
    check_no_password(location)
    if scheme == "file":
        return Location(text=location, scheme=scheme, authority="", path=_local_path(location, rest))
    if not rest.startswith("//") or rest == "//":
        raise InvalidInputError(f"'{location}' is not a location: expected '{scheme}://' and a path")
    if "\0" in rest:
        raise InvalidInputError(f"{location!r} is not a location: it holds a NUL character")
    authority, slash, path = rest[2:].partition("/")
    return Location(text=location, scheme=scheme, authority=authority, path=slash + path)


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
