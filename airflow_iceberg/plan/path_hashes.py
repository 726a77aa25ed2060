"""Paths of very many files, compared without keeping them: eight bytes a path.

Here: what of a location is compared, its hash, and sets of hashes. Pure. Not here: which stores are the same
(`plan.orphan_files`), and where the paths come from (`inventory`).

A hash can stand for two paths, once in billions of files. Every set here holds files that have to stay, so what comes
of it is a file that is left alone, never one that goes. Hashes are equal on every machine: those of a cluster are
compared with those of this process.
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
# Sets are sorted anew when so many more hashes have come, or as many as there are already.
UNSORTED = 1 << 18


def split_location(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path; the scheme of a plain path is empty."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return "", "", location
    if not rest.startswith("//"):
        return scheme, "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme, authority, slash + path


def normal_path(path: str) -> str:
    """Return the one spelling that all spellings of a path have: percent-encoding, doubled and outer slashes."""
    return "/".join(part for part in unquote(path).split("/") if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class HashedPaths:
    """Some locations as they are compared.

    Attributes:
        hashes: of the path of each.
        stores: for each the place of its store in `names`.
        names: (scheme, authority) of the stores, in lower case.
    """

    hashes: Hashes
    stores: NDArray[np.int64]
    names: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.hashes)


def hash_paths(locations: Sequence[str]) -> HashedPaths:
    """Hash the paths of locations; scheme and authority stand beside."""
    return _hash_alike(locations) or _hash_each(locations)


def _hash_alike(locations: Sequence[str]) -> HashedPaths | None:
    """Hash locations that begin alike and are spelled plainly, as nearly always; None for others."""
    if not locations:
        return None
    scheme, authority, path = split_location(locations[0])
    prefix = f"{locations[0][: len(locations[0]) - len(path)]}/"
    text = "\n".join(locations)
    # A path that begins with a slash, or has a line end in it, shows by one of the counts.
    is_plain = (
        "://" in prefix
        and "%" not in text
        and "/\n" not in text
        and not text.endswith("/")
        and text.count("//") == text.count(f"\n{prefix}") + 1 == text.count("\n") + 1 == len(locations)
        and f"{prefix}/" not in text
    )
    if not is_plain:
        return None
    paths = text.encode("utf-8", "surrogatepass")[len(prefix.encode()) :].split(f"\n{prefix}".encode())
    return HashedPaths(
        hashes=_hashes(paths),
        stores=np.zeros(len(paths), np.int64),
        names=((scheme.lower(), authority.lower()),),
    )


def _hash_each(locations: Sequence[str]) -> HashedPaths:
    paths: list[bytes] = []
    stores: list[int] = []
    names: dict[tuple[str, str], int] = {}
    for location in locations:
        scheme, authority, path = split_location(location)
        stores.append(names.setdefault((scheme.lower(), authority.lower()), len(names)))
        paths.append(normal_path(path).encode("utf-8", "surrogatepass"))
    return HashedPaths(hashes=_hashes(paths), stores=np.array(stores, np.int64), names=tuple(names))


def _hashes(paths: Iterable[bytes]) -> Hashes:
    digests = b"".join([blake2b(path, digest_size=HASH_BYTES).digest() for path in paths])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


class HashSet:
    """Hashes in order. Memory: eight bytes each, and half as much again while more come."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.empty(0, np.uint64)
        self._waiting: list[Hashes] = []
        self._waiting_count = 0

    def __len__(self) -> int:
        return len(self.sorted())

    def add(self, hashes: Hashes) -> None:
        """Take hashes in."""
        if not len(hashes):
            return
        self._waiting.append(hashes)
        self._waiting_count += len(hashes)
        if self._waiting_count > max(UNSORTED, len(self._sorted)):
            self.sorted()

    def sorted(self) -> Hashes:
        """Return the hashes in order, each once."""
        if self._waiting:
            parts, self._waiting, self._waiting_count = [self._sorted, *self._waiting], [], 0
            found = np.concatenate(parts)
            found.sort()
            self._sorted = found[np.concatenate(([True], found[1:] != found[:-1]))]
        return self._sorted

    def places(self, hashes: Hashes) -> tuple[NDArray[np.intp], Mask]:
        """Return for each hash its place in `sorted`, and whether it is there at all."""
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
        """Take paths in."""
        for number, name in enumerate(paths.names):
            chosen = paths.hashes if len(paths.names) == 1 else paths.hashes[paths.stores == number]
            self._stores.setdefault(name, HashSet()).add(chosen)

    def find(self, hashes: Hashes) -> Iterator[tuple[tuple[str, str], Mask]]:
        """Yield each store, and which of the hashes are of a path in it."""
        for name, known in self._stores.items():
            yield name, known.places(hashes)[1]


class FirstOfEach:
    """Tells of places in a set which come for the first time.

    Args:
        seen: by place, which have come already or are not wanted at all.
    """

    def __init__(self, seen: Mask) -> None:
        self._seen = seen.copy()
        self._numbers = np.empty(len(seen), np.int64)

    def __call__(self, places: NDArray[np.intp]) -> Mask:
        """Return which of some places have not come before."""
        numbers = np.arange(len(places))
        # Of several that write to one place the last one stays, so the first one is written last.
        self._numbers[places[::-1]] = numbers[::-1]
        found: Mask = (self._numbers[places] == numbers) & ~self._seen[places]
        self._seen[places] = True
        return found
