"""What one kind of store does, by path: the border between `FsspecFileIO` and the modules of the stores.

Lives here: `Store`, `Location`, `Settings` with the renewal of credentials, and the three ways in which a store fails
that the standard library has no class for. Not here: the stores themselves (`local`, `s3`, `gcs`, `adls`, `hdfs`,
`webhdfs`), and what their failures become (`fsspec_io`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import check_no_password
from airflow_iceberg.storage.directories import Directories

if TYPE_CHECKING:
    import fsspec

Refresh = Callable[[], Mapping[str, str]]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
# What a service says of the end of a credential, in milliseconds since the epoch: "s3.session-token-expires-at-ms",
# "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms.<account>".
_EXPIRES = re.compile(r"expires-at(-ms)?(\.|$)")
_RENEW_BEFORE_MS = 300_000


class RefusedError(OSError):
    """The store said no, and why; surely nothing was changed."""


class ExpiredError(RefusedError):
    """The store said that the credentials are no longer valid."""


class UnclearError(OSError):
    """The answer was lost: what was asked may have been done or not."""


class UnreachableError(UnclearError):
    """No connection could be made, at least in the end; asking again at once helps little."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A location, taken apart; nothing in it is decoded.

    Attributes:
        text: as it was given.
        scheme: in lower case.
        authority: what is between "//" and the next slash: bucket, host.
        path: the rest, from that slash on.
    """

    text: str
    scheme: str
    authority: str
    path: str


class Store(Directories, Protocol):
    """One store, by its own paths; raises `OSError` and its subclasses as the standard library does.

    Attributes:
        is_local: on this machine.
        is_conditional: files are created by a condition that a server may ignore, so it is to be probed.
        answers_are_final: when a call has failed, nothing of it is still on its way.
    """

    @classmethod
    def instance_of(cls, location: Location) -> str:
        """Return what tells stores of one scheme apart: locations with one answer share a store."""
        ...

    @classmethod
    def path_of(cls, location: Location) -> str:
        """Return the path that the store and its fsspec file system know the location by."""
        ...

    def filesystem(self) -> fsspec.AbstractFileSystem: ...
    def read(self, path: str, offset: int, length: int | None) -> bytes: ...
    def create(self, path: str, data: bytes) -> None: ...
    def replace(self, path: str, data: bytes) -> None:
        """Let the file have these bytes, whether it is there or not; readers see the old ones or the new ones."""
        ...

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]: ...
    def delete(self, paths: Sequence[str]) -> Mapping[str, Exception]:
        """Remove files and return why some of them could not be removed; one that isn't there is no failure."""
        ...

    def is_file(self, path: str) -> bool: ...
    def names(self, path: str, prefix: str) -> list[str]:
        """Return the names directly in a directory that begin like this; none if there is no such directory."""
        ...

    def children(self, path: str) -> list[tuple[str, bool]]:
        """Return (name, is it a directory) of what is directly in a directory; none if it isn't there."""
        ...

    def is_directory(self, path: str) -> bool: ...
    def make_directory(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def remove_empty(self, path: str, above: str) -> None:
        """Remove a directory, those in it and the one above it, each if it is empty; never raises `OSError`."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; one that isn't there is no error."""
        ...


class Settings:
    """The properties of a FileIO, renewed before the credentials among them expire. Safe to use from many threads.

    Args:
        properties: as the catalog gave them.
        refresh: asks for newer ones; None if these are all there will ever be.
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
        """Whether there is somebody to ask for newer credentials."""
        return self._refresh is not None

    def current(self) -> Mapping[str, str]:
        """Return the properties, asked for anew when a credential among them is about to expire."""
        found = self._current
        if self._refresh is not None and self._is_stale(found):
            return self.renew(found)
        return found

    def current_or_old(self) -> Mapping[str, str]:
        """Return the properties as they are, without asking anybody."""
        return self._current

    def renew(self, stale: Mapping[str, str]) -> Mapping[str, str]:
        """Return newer properties than these; of several threads that hold stale ones, one asks for all."""
        with self._lock:
            if self._current is stale and self._refresh is not None:
                self._current = {**self._current, **{str(key): str(value) for key, value in self._refresh().items()}}
                self._taken_ms = self._now_ms()
            return self._current

    def expires_ms(self, prefix: str = "") -> int | None:
        """Return when the first of the credentials below a prefix expires, or None if none says so."""
        times = [
            int(value)
            for key, value in self._current.items()
            if key.startswith(prefix) and _EXPIRES.search(key) and value.isdigit()
        ]
        return min(times, default=None)

    def _is_stale(self, properties: Mapping[str, str]) -> bool:
        expires_ms = self.expires_ms()
        if expires_ms is None or properties is not self._current:
            return False
        # Credentials that live for less than a few minutes are not renewed at each call.
        margin = min(_RENEW_BEFORE_MS, max(0, expires_ms - self._taken_ms) // 4)
        return self._now_ms() >= expires_ms - margin


def parse_location(location: str) -> Location:
    """Take a location apart: "file:///a", "file:/a" and "/a" are the same; nothing is decoded.

    Raises:
        InvalidInputError: not absolute, a local path on another host, or one with a password in it.
    """
    match = _SCHEME.fullmatch(location)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", location)
    check_no_password(location)
    if scheme == "file":
        return Location(text=location, scheme=scheme, authority="", path=_local_path(location, rest))
    if not rest.startswith("//") or rest == "//":
        raise InvalidInputError(f"'{location}' is not a location: expected '{scheme}://' and a path")
    if "\0" in rest:
        raise InvalidInputError(f"{location!r} is not a location: it holds a NUL character")
    authority, slash, path = rest[2:].partition("/")
    return Location(text=location, scheme=scheme, authority=authority, path=slash + path)


def split_location(location: str) -> tuple[str, str]:
    """Return (scheme, path) of a location, the authority being the first part of the path.

    Raises:
        InvalidInputError: not absolute, or a local path on another host.
    """
    found = parse_location(location)
    return found.scheme, found.path if found.scheme == "file" else f"/{(found.authority + found.path).lstrip('/')}"


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
