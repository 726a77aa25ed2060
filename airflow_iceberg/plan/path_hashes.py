"""Paths of very many files, compared by hashes of eight bytes.

Here: the path of a location, its hash, and sets of hashes. Pure. Not here: which stores are equal
(`plan.orphan_files`), where the paths come from (`inventory`), and what links on a disk lead to: a local folder is
handed in with its real path (`SpelledFolder`), and a local location in none of these folders is marked as `unplaced`,
for `inventory.spellings`, which asks the disk.

Two paths can have one hash, once in billions of files. Every set here holds files to keep, so a collision keeps an
orphan and never deletes a file. Hashes are equal on every machine: those of a cluster are compared with those of this
process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]

HASH_BYTES = 8
LOCAL_SCHEMES = ("", "file")
# A set is sorted again after so many new hashes, or as many as it has already.
UNSORTED = 1 << 18


def split_location(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path; the scheme of a plain path is empty."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return "", "", location
    if not rest.startswith("//"):
        return scheme, "", rest
    if scheme.lower() == "memory":  # it has no hosts: the first name is one of the path
        return scheme, "", rest[1:]
    authority, slash, path = rest[2:].partition("/")
    return scheme, authority, slash + path


@dataclass(frozen=True, slots=True)
class SpelledFolder:
    """A local folder, by its real path and another one that leads to it; both in the form of `normal_path`.

    Attributes:
        real: empty for a link below a table: what is behind it is `unplaced`.
    """

    spelled: str
    real: str


def normal_path(path: str) -> str:
    """Return a path without percent-encoding, doubled and outer slashes, and `.`; each `..` takes a name away."""
    text = unquote(path, errors="surrogateescape")
    if "/." not in f"/{text}":
        return "/".join(part for part in text.split("/") if part)
    parts: list[str] = []
    for part in text.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def placed_path(location: str, folders: Sequence[SpelledFolder]) -> tuple[str, bool]:
    """Return the path of a location as it is compared, and whether that is sure.

    It is not for a local location in none of the folders, behind a link, or with `..`: that may lead to anywhere.
    """
    scheme, _, path = split_location(location)
    normal = normal_path(path)
    if scheme.lower() not in LOCAL_SCHEMES:
        return normal, True
    if ".." not in path and "%2e" not in path.lower():
        for folder in folders:
            if normal.startswith(f"{folder.spelled}/") or normal == folder.spelled:
                return (f"{folder.real}{normal[len(folder.spelled) :]}", True) if folder.real else (normal, False)
    return normal, False


@dataclass(frozen=True, kw_only=True, slots=True)
class HashedPaths:
    """Locations in the form in which they are compared.

    Attributes:
        hashes: hash of the path of each location.
        stores: index in `names` of the store of each location.
        names: (scheme, authority) of the stores, in lower case.
        unplaced: indexes of the local locations whose links were not followed: only the text is hashed.
    """

    hashes: Hashes
    stores: NDArray[np.int64]
    names: tuple[tuple[str, str], ...]
    unplaced: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.hashes)


def hash_paths(locations: Sequence[str], folders: Sequence[SpelledFolder] = ()) -> HashedPaths:
    """Hash the paths of locations, without scheme and authority.

    Args:
        folders: local folders whose real paths are known, the longest first.
    """
    return _hash_alike(locations, folders) or _hash_each(locations, folders)


def _hash_alike(locations: Sequence[str], folders: Sequence[SpelledFolder] = ()) -> HashedPaths | None:
    """Hash locations of one store, or one local folder, that are in their plain form, as usual; None for others."""
    if not locations:
        return None
    scheme, authority, path = split_location(locations[0])
    prefix, real = f"{locations[0][: len(locations[0]) - len(path)]}/", b""
    if scheme.lower() in LOCAL_SCHEMES:
        folder = next((each for each in folders if path.startswith(f"/{each.spelled}/")), None)
        if folder is None or not all(each.real for each in folders):
            return None
        prefix, real = f"{prefix}{folder.spelled}/", _bytes(f"{folder.real}/")
    elif "://" not in prefix:
        return None
    text = "\n".join(locations)
    # The counts reveal a path that begins with a slash or contains a line end.
    is_plain = (
        "%" not in text
        and "/\n" not in text
        and "/." not in text
        and not text.endswith("/")
        and text.count("//") == prefix.count("//") * len(locations)
        and text.count(f"\n{prefix}") + 1 == text.count("\n") + 1 == len(locations)
        and f"{prefix}/" not in text
    )
    if not is_plain:
        return None
    paths = _bytes(text)[len(_bytes(prefix)) :].split(_bytes(f"\n{prefix}"))
    if real:
        paths = [real + path for path in paths]
    return HashedPaths(
        hashes=_hashes(paths), stores=np.zeros(len(paths), np.int64), names=((scheme.lower(), authority.lower()),)
    )


def _hash_each(locations: Sequence[str], folders: Sequence[SpelledFolder] = ()) -> HashedPaths:
    paths: list[bytes] = []
    stores: list[int] = []
    names: dict[tuple[str, str], int] = {}
    unplaced: list[int] = []
    for number, location in enumerate(locations):
        scheme, authority, _ = split_location(location)
        stores.append(names.setdefault((scheme.lower(), authority.lower()), len(names)))
        path, is_placed = placed_path(location, folders)
        paths.append(_bytes(path))
        if not is_placed:
            unplaced.append(number)
    return HashedPaths(
        hashes=_hashes(paths), stores=np.array(stores, np.int64), names=tuple(names), unplaced=tuple(unplaced)
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hashes(paths: Iterable[bytes]) -> Hashes:
    digests = b"".join([blake2b(path, digest_size=HASH_BYTES).digest() for path in paths])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


class HashSet:
    """A sorted set of hashes. Memory: eight bytes each, and half as much again while hashes are added."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.empty(0, np.uint64)
        self._waiting: list[Hashes] = []
        self._waiting_count = 0

    def __len__(self) -> int:
        return len(self.sorted())

    def add(self, hashes: Hashes) -> None:
        """Add hashes."""
        if not len(hashes):
            return
        self._waiting.append(hashes)
        self._waiting_count += len(hashes)
        if self._waiting_count > max(UNSORTED, len(self._sorted)):
            self.sorted()

    def sorted(self) -> Hashes:
        """Return the hashes, sorted and distinct."""
        if self._waiting:
            parts, self._waiting, self._waiting_count = [self._sorted, *self._waiting], [], 0
            found = np.concatenate(parts)
            found.sort()
            self._sorted = found[np.concatenate(([True], found[1:] != found[:-1]))]
        return self._sorted

    def places(self, hashes: Hashes) -> tuple[NDArray[np.intp], Mask]:
        """Return for each hash its index in `sorted`, and whether the set has it."""
        known = self.sorted()
        if not len(known):
            return np.zeros(len(hashes), np.intp), np.zeros(len(hashes), np.bool_)
        places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        return places, known[places] == hashes


class PathSet:
    """Paths by store."""

    def __init__(self) -> None:
        self._stores: dict[tuple[str, str], HashSet] = {}

    def __len__(self) -> int:
        return sum(len(hashes) for hashes in self._stores.values())

    def add(self, paths: HashedPaths) -> None:
        """Add paths."""
        for number, name in enumerate(paths.names):
            chosen = paths.hashes if len(paths.names) == 1 else paths.hashes[paths.stores == number]
            self._stores.setdefault(name, HashSet()).add(chosen)

    def find(self, hashes: Hashes) -> Iterator[tuple[tuple[str, str], Mask]]:
        """Yield each store, and which of the hashes it has."""
        for name, known in self._stores.items():
            yield name, known.places(hashes)[1]


class FirstOfEach:
    """Tells which indexes of a set occur for the first time.

    Args:
        seen: the indexes that have occurred already, or are not wanted.
    """

    def __init__(self, seen: Mask) -> None:
        self._seen = seen.copy()
        self._numbers = np.empty(len(seen), np.int64)

    def __call__(self, places: NDArray[np.intp]) -> Mask:
        """Return which of some indexes have not occurred before."""
        numbers = np.arange(len(places))
        # The last write to an index wins, so the first occurrence is written last.
        self._numbers[places[::-1]] = numbers[::-1]
        found: Mask = (self._numbers[places] == numbers) & ~self._seen[places]
        self._seen[places] = True
        return found
