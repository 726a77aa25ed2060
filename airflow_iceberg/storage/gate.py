"""The gate of a table's files: which locations may be read and written, and which may be deleted.

Paths in metadata may be forged by anyone who can commit to the table. `GatedFileIO` asks the table's `Gate` before
each call. Not here: which locations a connection trusts (`storage.trust`), and how a store is reached (`stores`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.directories import Directories, open_directory
from airflow_iceberg.storage.local_roots import LocalRoots, path_of, real_path
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
_HDFS = ("hdfs", "viewfs", "webhdfs", "swebhdfs")
_HDFS_PORT = ":8020"
_MOST_SHOWN = 5


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
    """Return the place of a location, to compare it with others; whether it may be opened, `OpenGate` decides.

    Raises:
        InvalidInputError: not a location, or one with `.` or `..` in its path, which some stores would resolve.
    """
    found = parse_location(location)
    if found.scheme == LOCAL:
        return Place(LOCAL, "", real_path(found.path).rstrip("/"))
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
        if store in _HDFS:
            path = _hdfs_path(location, path)
    return Place(store, authority, path.rstrip("/"))


def _hdfs_path(location: str, path: str) -> str:
    """Return a path in HDFS, whose slashes are separators; in the key of an object each one counts.

    Raises:
        InvalidInputError: it has `.reserved` in it, below which each file has another name, by its number.
    """
    plain = re.sub("/+", "/", path) if "//" in path else path
    if "/.reserved/" in f"{plain}/":
        raise InvalidInputError(f"{location!r} is not a location of a table: its path contains '.reserved'")
    return plain


def _is_relative(part: str) -> bool:
    """Whether a part of a path is `.` or `..`, also encoded or behind a backslash: some servers decode paths.

    Not so the folder of a partition, `name=value`: its value may be "../x", with encoded slashes. Writers encode a
    backslash, too.
    """
    if ("." not in part and "%" not in part) or ("=" in part and "\\" not in part):
        return False
    return any(each in (".", "..") for text in decodings(part) for each in text.replace("\\", "/").split("/"))


class _Prefixes:
    """Remote locations, each with all that is below it."""

    def __init__(self, locations: Iterable[str]) -> None:
        self.places = tuple(place_of(location) for location in locations)
        # Most paths are spelled as the table's location is, and need no parsing.
        texts = ((place, location.rstrip("/")) for place, location in zip(self.places, locations, strict=True))
        self.texts = tuple(f"{text}/" for place, text in texts if place.authority and "://" in text)

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
    """Return the remote ones of some locations."""
    return _Prefixes(tuple(each for each in locations if local_path(each) is None))


def local_path(location: str) -> str | None:
    """Return the path of a local location; None for a remote one."""
    found = parse_location(location)
    return found.path if found.scheme == LOCAL else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The locations of a table: a value that is sent with a job's plan.

    Attributes:
        allowed: prefixes of all that may be read and written.
        own: prefixes of all that may be deleted, too: the table's own locations, all of them below `allowed`.
    """

    allowed: tuple[str, ...]
    own: tuple[str, ...] = ()

    def around(self, io: FileIO) -> FileIO:
        """Return access to files through this gate only."""
        return io if isinstance(io, GatedFileIO) and io.gate == self else GatedFileIO(io, self)


class OpenGate:
    """A gate with its local folders as they are now: what is asked for each call, and the one decision on a place.

    Args:
        is_guarded: whether who uses the answers follows no link below these folders. Otherwise no location is in the
            gate that has one there at this moment.

    Attributes:
        roots: the local folders.
    """

    def __init__(self, gate: Gate, *, is_guarded: bool = True) -> None:
        self._gate = gate
        self._is_guarded = is_guarded
        self.roots = LocalRoots(filter(None, map(local_path, gate.allowed)))
        self._own = tuple(self._local(path) for path in filter(None, map(local_path, gate.own)))

    def place(self, location: str) -> Place | None:
        """Return where a location is; None for one outside of the gate.

        Raises:
            InvalidInputError: it is no location.
        """
        path = local_path(location)
        if path is not None:
            return self._local(path)
        return place_of(location) if _prefixes(self._gate.allowed).cover(location) else None

    def allowed(self, location: str, verb: str) -> str:
        """Return the location by which a store is to be asked.

        Raises:
            InvalidInputError: it is outside, or is no location.
        """
        known = _prefixes(self._gate.allowed)
        if location.startswith(known.texts) and is_plain(location):
            return location
        path = local_path(location)
        if path is None and known.cover(location):
            return location
        place = None if path is None else self._local(path)
        if place is None:
            raise InvalidInputError(
                f"cannot {verb} {_shown(location)}: it is outside of the locations that its table may use "
                f"({_listed(self._gate.allowed)}); if it is trusted, add its prefix to '{SETTING}' of the connection"
            )
        return self._spelled(location, path, place)

    def settled(self, location: str) -> str | None:
        """Return a location by which it is the same place for ever, see `Trust.settled`; None for one outside.

        Raises:
            InvalidInputError: it is no location.
        """
        path = local_path(location)
        if path is None:
            return location if _prefixes(self._gate.allowed).cover(location) else None
        found = self.roots.settled(path)
        return location if found == path else found

    def own(self, location: str) -> str | None:
        """Return the location by which a store is to be asked; None for one that is not the table's own."""
        try:
            path = local_path(location)
            if path is None:
                return location if _prefixes(self._gate.own).cover(location) else None
            place = self._local(path)
        except InvalidInputError:
            return None
        if place is None or not any(each is not None and place.is_below(each) for each in self._own):
            return None
        return self._spelled(location, path, place)

    def _local(self, path: str) -> Place | None:
        located = self.roots.resolve(path)
        if located is None:
            return None
        real = path_of(located)
        is_followed = not self._is_guarded and real_path(real) != real
        return None if is_followed else Place(LOCAL, "", real.rstrip("/"))

    def _spelled(self, location: str, path: str | None, place: Place) -> str:
        # A path that a link leads into a folder, say "/latest/a", is one in the folder from here on: the link may be
        # changed before the store comes to it.
        is_same = path is None or self.roots.locate(path) is not None
        return location if is_same else place.path or "/"


class GatedFileIO(FileIO):
    """A FileIO that refuses every location outside of a gate, before its store sees a request; see `FileIO`.

    Attributes:
        inner: the FileIO without the gate, for locations that do not come from metadata.
    """

    def __init__(self, inner: FileIO, gate: Gate) -> None:
        self.inner = inner
        self.gate = gate
        self._open = OpenGate(gate)
        self._files = inner
        if self._open.roots:
            within = getattr(inner, "within", None)
            guarded = None if within is None else within(self._open.roots)
            if guarded is None:
                self._open = OpenGate(gate, is_guarded=False)
            else:
                self._files = guarded

    def __repr__(self) -> str:
        return f"GatedFileIO({self.inner!r})"

    def current_properties(self) -> Mapping[str, str]:
        """Return the properties of the inner FileIO, secrets included; none if it has none of its own."""
        lent = getattr(self.inner, "current_properties", None)
        return {} if lent is None else lent()

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._files.read(self._open.allowed(location, "read"), offset=offset, length=length)

    def create(self, location: str, data: bytes) -> None:
        self._files.create(self._open.allowed(location, "create"), data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        place = self._open.allowed(prefix, "list")
        found = self._files.list(place)
        if place == prefix:
            return found
        return (replace(each, location=f"{prefix.rstrip('/')}{each.location[len(place) :]}") for each in found)

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files; nothing is deleted if one of them is outside of the table's own locations."""
        self._files.delete([self._checked_own(location, "delete") for location in locations])

    def exists(self, location: str) -> bool:
        return self._files.exists(self._open.allowed(location, "look for"))

    def check(self, location: str, verb: str) -> None:
        """Refuse a location outside of the gate; `InvalidInputError`."""
        self._open.allowed(location, verb)

    def owns(self, location: str) -> bool:
        """Whether a location is below the table's own locations, so that it may be deleted."""
        return self._own(location) is not None

    def look_ahead(self, locations: Iterable[str]) -> None:
        """Find out what `owns` will ask for each of many locations, if it has to ask."""

    def check_own(self, location: str, verb: str) -> None:
        """Refuse a location that is not the table's own, and may be another table's; `InvalidInputError`."""
        self._checked_own(location, verb)

    def _own(self, location: str) -> str | None:
        return self._open.own(location)

    def _checked_own(self, location: str, verb: str) -> str:
        found = self._own(location)
        if found is None:
            raise InvalidInputError(
                f"cannot {verb} {_shown(location)}: it is outside of the table's own locations "
                f"({_listed(self.gate.own)}), and may belong to another table; delete it yourself if it does not"
            )
        return found

    def within(self, roots: LocalRoots) -> FileIO | None:
        """Return None: another gate around this one looks for links itself, and this one follows none."""
        return None

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        return self._files.filesystem(self._open.allowed(location, "open"))

    @contextmanager
    def directory(self, location: str, verb: str) -> Iterator[tuple[Directories, str]]:
        """Yield the store of one of the table's own directories, and the path in it; see `open_directory`."""
        with open_directory(self._files, self._checked_own(location, verb), verb) as found:
            yield found

    @contextmanager
    def any_directory(self, location: str, verb: str) -> Iterator[tuple[Directories, str]]:
        """Yield the store of a directory that may be another table's, only to be looked at, and the path in it."""
        with open_directory(self._files, self._open.allowed(location, verb), verb) as found:
            yield found


def own_only(io: FileIO, locations: Iterable[str]) -> tuple[list[str], int]:
    """Return the locations that may be deleted through a FileIO, and the number of the others."""
    given = [*locations]
    if not isinstance(io, GatedFileIO):
        return given, 0
    io.look_ahead(given)
    own = [each for each in given if io.owns(each)]
    return own, len(given) - len(own)


def check_own(io: FileIO, location: str, verb: str) -> None:
    """Refuse a location whose files may not be deleted through a FileIO; see `GatedFileIO.check_own`."""
    if isinstance(io, GatedFileIO):
        io.check_own(location, verb)


def ungated(io: FileIO) -> FileIO:
    """Return the FileIO for locations that do not come from metadata, such as the source files that a DAG names."""
    return io.inner if isinstance(io, GatedFileIO) else io


def _shown(location: str) -> str:
    return location if location.isprintable() else repr(location)


def _listed(prefixes: Sequence[str]) -> str:
    shown = ", ".join(prefixes[:_MOST_SHOWN]) or "none"
    return f"{shown} and {len(prefixes) - _MOST_SHOWN} more" if len(prefixes) > _MOST_SHOWN else shown
