"""The gate of a table's files: which locations may be read and written, and which may be deleted.

Paths in metadata may be forged by anyone who can commit to the table. `GatedFileIO` asks the table's `Gate` before
each call. Not here: which locations a connection trusts (`storage.trust`), and how a store is reached (`stores`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.directories import Directories, open_directory
from airflow_iceberg.storage.paths_within import decodings
from airflow_iceberg.storage.stores.store import parse_location

if TYPE_CHECKING:
    import fsspec

SETTING = "allowed-locations"
LOCAL = "file"
# Each scheme, and the name of what it reaches: two schemes with one name reach the same files. Those of HDFS are kept
# apart, since each sends its credentials by another protocol.
STORE_OF_SCHEME: Mapping[str, str] = {
    **{scheme: scheme for scheme in (LOCAL, "memory", "hdfs", "viewfs", "webhdfs", "swebhdfs")},
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "az", "adl"), "adls"),
}
_HDFS_PORT = ":8020"
# How long the target of a local directory is remembered: each look at it costs more than a file of it.
_REMEMBERED_S = 1.0
_MOST_REMEMBERED = 4096
_MOST_SHOWN = 5
_real_directories: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """A location in the one spelling by which it is compared.

    Attributes:
        store: a value of `STORE_OF_SCHEME`, or an unknown scheme.
        authority: bucket, container and host, or name node; empty for local files.
        path: the path without a slash at its end, of local files the one without symbolic links.
    """

    store: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        return self.store == LOCAL

    def is_below(self, other: Place) -> bool:
        """Whether this is the other place, or is below it."""
        if self.store != other.store or self.authority != other.authority:
            return False
        return self.path == other.path or self.path.startswith(f"{other.path}/")


def place_of(location: str) -> Place:
    """Return the place of a location.

    Raises:
        InvalidInputError: not a location, or one with `.` or `..` in its path, which some stores would resolve.
    """
    found = parse_location(location)
    if found.scheme == LOCAL:
        return Place(LOCAL, "", _real_path(found.path).rstrip("/"))
    if any(_is_relative(part) for part in (found.authority, *found.path.split("/"))):
        raise InvalidInputError(f"{location!r} is not a location of a table: its path contains '.' or '..'")
    store = STORE_OF_SCHEME.get(found.scheme, found.scheme)
    authority, path = found.authority, found.path
    if store == "memory":
        authority, _, path = f"{authority}{path}".lstrip("/").partition("/")
        path = f"/{path}"
    elif store == "adls":
        container, at, host = authority.partition("@")
        authority = f"{container}{at}{host.lower().replace('.blob.core.', '.dfs.core.')}"
    elif store not in ("s3", "gs"):
        authority = authority.lower().removesuffix(_HDFS_PORT if store == "hdfs" else "")
    return Place(store, authority, path.rstrip("/"))


def _is_relative(part: str) -> bool:
    """Whether a part of a path is `.` or `..`, also encoded or behind a backslash: some servers decode paths.

    Not so the folder of a partition, `name=value`: its value may be "../x", with encoded slashes.
    """
    if ("." not in part and "%" not in part) or "=" in part:
        return False
    return any(each in (".", "..") for text in decodings(part) for each in text.replace("\\", "/").split("/"))


def _real_path(path: str) -> str:
    """Return a local path without symbolic links; those of its directory are looked up once in a while."""
    directory, name = os.path.split(path)
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    known, now = _real_directories.get(directory), time.monotonic()
    if known is None or now - known[0] > _REMEMBERED_S:
        if len(_real_directories) >= _MOST_REMEMBERED:
            _real_directories.clear()
        known = _real_directories[directory] = (now, os.path.realpath(directory))
    real = os.path.join(known[1], name)
    return os.path.realpath(real) if os.path.islink(real) else real


class _Prefixes:
    """Locations, each with all that is below it."""

    def __init__(self, locations: Iterable[str]) -> None:
        self.places = tuple(place_of(location) for location in locations)
        # Most paths are spelled as the table's location is, and need no parsing.
        texts = ((place, location.rstrip("/")) for place, location in zip(self.places, locations, strict=True))
        self.texts = tuple(
            f"{text}/" for place, text in texts if not place.is_local and place.authority and "://" in text
        )

    def cover(self, location: str) -> bool:
        """Whether a location is one of these or below one; raises `InvalidInputError` for one that is none."""
        if location.startswith(self.texts) and is_plain(location):
            return True
        place = place_of(location)
        return any(place.is_below(each) for each in self.places)


def is_plain(location: str) -> bool:
    """Whether a location has nothing that some store may resolve or decode."""
    return not ("/." in location or "\\" in location or "%" in location or "\0" in location)


@lru_cache(maxsize=512)
def _prefixes(locations: tuple[str, ...]) -> _Prefixes:
    return _Prefixes(locations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The locations of a table: a value that is sent with a job's plan.

    Attributes:
        allowed: prefixes of all that may be read and written.
        own: prefixes of all that may be deleted, too: the table's own locations, all of them below `allowed`.
    """

    allowed: tuple[str, ...]
    own: tuple[str, ...] = ()

    def check(self, location: str, verb: str) -> None:
        """Refuse a location outside of the gate.

        Raises:
            InvalidInputError: it is outside, or is no location.
        """
        if not _prefixes(self.allowed).cover(location):
            raise InvalidInputError(
                f"cannot {verb} {_shown(location)}: it is outside of the locations that its table may use "
                f"({_listed(self.allowed)}); if it is trusted, add its prefix to '{SETTING}' of the connection"
            )

    def owns(self, location: str) -> bool:
        """Whether a location is below the table's own locations, so that it may be deleted."""
        try:
            return _prefixes(self.own).cover(location)
        except InvalidInputError:
            return False

    def check_own(self, location: str, verb: str = "delete") -> None:
        """Refuse a location that is not the table's own.

        Raises:
            InvalidInputError: it may be another table's.
        """
        if not self.owns(location):
            raise InvalidInputError(
                f"cannot {verb} {_shown(location)}: it is outside of the table's own locations ({_listed(self.own)}), "
                f"and may belong to another table; delete it yourself if it does not"
            )

    def around(self, io: FileIO) -> FileIO:
        """Return access to files through this gate only."""
        return io if isinstance(io, GatedFileIO) and io.gate == self else GatedFileIO(io, self)


class GatedFileIO(FileIO):
    """A FileIO that refuses every location outside of a gate, before its store sees a request; see `FileIO`.

    Attributes:
        inner: the FileIO without the gate, for locations that do not come from metadata.
    """

    def __init__(self, inner: FileIO, gate: Gate) -> None:
        self.inner = inner
        self.gate = gate

    def __repr__(self) -> str:
        return f"GatedFileIO({self.inner!r})"

    def current_properties(self) -> Mapping[str, str]:
        """Return the properties of the inner FileIO, secrets included; none if it has none of its own."""
        lent = getattr(self.inner, "current_properties", None)
        return {} if lent is None else lent()

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.gate.check(location, "read")
        return self.inner.read(location, offset=offset, length=length)

    def create(self, location: str, data: bytes) -> None:
        self.gate.check(location, "create")
        self.inner.create(location, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        self.gate.check(prefix, "list")
        return self.inner.list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files; nothing is deleted if one of them is outside of the table's own locations."""
        checked = [*locations]
        for location in checked:
            self.gate.check_own(location)
        self.inner.delete(checked)

    def exists(self, location: str) -> bool:
        self.gate.check(location, "look for")
        return self.inner.exists(location)

    def follow_no_links(self, folder: str) -> None:
        self.inner.follow_no_links(folder)

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        self.gate.check(location, "open")
        return self.inner.filesystem(location)

    @contextmanager
    def directory(self, location: str, verb: str) -> Iterator[tuple[Directories, str]]:
        """Yield the store of one of the table's own directories, and the path in it; see `open_directory`."""
        self.gate.check_own(location, verb)
        with open_directory(self.inner, location, verb) as found:
            yield found


def own_only(io: FileIO, locations: Iterable[str]) -> tuple[list[str], int]:
    """Return the locations that may be deleted through a FileIO, and the number of the others."""
    given = [*locations]
    own = [each for each in given if io.gate.owns(each)] if isinstance(io, GatedFileIO) else given
    return own, len(given) - len(own)


def check_own(io: FileIO, location: str, verb: str) -> None:
    """Refuse a location whose files may not be deleted through a FileIO; see `Gate.check_own`."""
    if isinstance(io, GatedFileIO):
        io.gate.check_own(location, verb)


def ungated(io: FileIO) -> FileIO:
    """Return the FileIO for locations that do not come from metadata, such as the source files that a DAG names."""
    return io.inner if isinstance(io, GatedFileIO) else io


def _shown(location: str) -> str:
    return location if location.isprintable() else repr(location)


def _listed(prefixes: Sequence[str]) -> str:
    shown = ", ".join(prefixes[:_MOST_SHOWN]) or "none"
    return f"{shown} and {len(prefixes) - _MOST_SHOWN} more" if len(prefixes) > _MOST_SHOWN else shown
