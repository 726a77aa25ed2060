"""Whether a file below a table's location belongs to the table: listed locations compared with those of the metadata.

Here: comparing locations, and which names are ignored. Pure. Not here: listing, reading manifests and moving files
(`operations.remove_orphan_files`).

A file belongs to the table if the table has its path, without scheme and authority. The same path with another scheme
or authority is doubtful: `s3a` and `s3` are one store, two buckets are not, and only the owner knows which the table
means. So doubtful files are reported, and nothing is removed, unless the caller names equal schemes and authorities or
says what to do. Different spellings of a path (percent-encoding, doubled slashes, `.`) are the same path. What links on
a disk lead to is handed in: `inventory.spellings` asks the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.plan.path_hashes import (
    HashedPaths,
    Hashes,
    PathSet,
    SpelledFolder,
    hash_paths,
    normal_path,
    split_location,
)

DAY_MS = 24 * 60 * 60 * 1000
DEFAULT_AGE_MS = 3 * DAY_MS
# The schemes that reach the same files, as `storage.gate` has them, and the parts of their hosts that are the same.
EQUAL_SCHEMES: Mapping[str, str] = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    "gcs": "gs",
    **dict.fromkeys(("abfss", "wasb", "wasbs", "az", "adl"), "abfs"),
}
HDFS_PORT = ":8020"
MISMATCH_MODES = ("error", "ignore", "delete")

Kind = Literal["known", "orphan", "doubtful"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualStores:
    """The schemes and authorities that are the same store.

    Attributes:
        equal_schemes: scheme to an equal scheme; by default EQUAL_SCHEMES.
        equal_authorities: the same for buckets and hosts.
    """

    equal_schemes: Mapping[str, str] = field(default_factory=lambda: dict(EQUAL_SCHEMES))
    equal_authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, equal_schemes: Mapping[str, str] | None, equal_authorities: Mapping[str, str] | None) -> EqualStores:
        """Read mappings as in Iceberg's procedure, whose keys are lists with commas."""
        return cls(
            equal_schemes={**EQUAL_SCHEMES, **_flattened(equal_schemes or {}, "equal_schemes")},
            equal_authorities=_flattened(equal_authorities or {}, "equal_authorities"),
        )

    def split(self, location: str) -> tuple[str, str, str]:
        """Return scheme, authority and path of a location, each as it is compared."""
        scheme, authority, path = split_location(location)
        return (*self.store((scheme.lower(), authority.lower())), normal_path(path))

    def store(self, name: tuple[str, str]) -> tuple[str, str]:
        """Return scheme and authority, in lower case, as they are compared."""
        scheme, authority = name
        plain = (
            authority.removesuffix(HDFS_PORT) if scheme == "hdfs" else authority.replace(".blob.core.", ".dfs.core.")
        )
        authority = authority if authority in self.equal_authorities else plain
        return _last_of(self.equal_schemes, scheme), _last_of(self.equal_authorities, authority)


def _last_of(equal: Mapping[str, str], name: str) -> str:
    """Follow a name to the last one that it equals; names that equal each other have one of them in common."""
    seen: list[str] = []
    while name in equal and name not in seen:
        seen.append(name)
        name = equal[name]
    return min(seen[seen.index(name) :]) if name in seen else name


def _flattened(given: Any, what: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidInputError(f"{what} is {given!r}, expected other names and the name that they are equivalent to")
    return {
        name.strip().lower(): target.strip().lower()
        for names, target in given.items()
        for name in names.split(",")
        if name.strip()
    }


class KnownFiles:
    """The files of a table, by path. Memory: eight bytes for each file.

    Args:
        folders: local folders whose real paths are known, see `hash_paths`.
    """

    def __init__(self, equal_stores: EqualStores | None = None, folders: Sequence[SpelledFolder] = ()) -> None:
        self._equal = equal_stores or EqualStores()
        self._folders = folders
        self._paths = PathSet()
        self._names: set[str] = set()

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, locations: Iterable[str]) -> None:
        """Add files of the table."""
        self.add_hashed(hash_paths(list(locations), self._folders))

    def add_hashed(self, paths: HashedPaths) -> None:
        """Add files of the table whose paths are hashed already."""
        self._paths.add(paths)

    def add_lost(self, locations: Iterable[str]) -> None:
        """Add files of which nobody knows where they are: every listed file of the same name may be one of them."""
        self._names.update(map(file_name, locations))

    def classify(self, location: str) -> Kind:
        """Return the kind of a listed file; an empty scheme or authority, on either side, equals any."""
        return self.classify_all([location])[0]

    def classify_all(self, locations: Sequence[str]) -> list[Kind]:
        """Return the kinds of many listed files."""
        listed = hash_paths(locations, self._folders)
        has_path = np.zeros(len(listed), np.bool_)
        is_known = np.zeros(len(listed), np.bool_)
        names = [self._equal.store(name) for name in listed.names]
        for store, found in self._paths.find(listed.hashes):
            has_path |= found
            fits = np.array([_is_same(name, self._equal.store(store)) for name in names], np.bool_)
            is_known |= found & fits[listed.stores]
        if self._names:
            is_known |= np.array([file_name(each) in self._names for each in locations], np.bool_)
        pairs = zip(has_path.tolist(), is_known.tolist(), strict=True)
        return ["known" if known else "doubtful" if has_path else "orphan" for has_path, known in pairs]

    def stores_of(self, location: str) -> list[str]:
        """Return the schemes and authorities with which the table has the path of a doubtful file."""
        names = {self._equal.store(name) for name, found in self._paths.find(self._hashes(location)) if found[0]}
        return sorted(f"{scheme}://{authority}" for scheme, authority in names)

    def _hashes(self, location: str) -> Hashes:
        return hash_paths([location], self._folders).hashes


def file_name(location: str) -> str:
    """Return the last name of a location's path, as it is compared."""
    return normal_path(split_location(location)[2]).rpartition("/")[2]


def _is_same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return _fits(one[0], other[0]) and _fits(one[1], other[1])


def _fits(one: str, other: str) -> bool:
    # A plain path is on the local file system, whose scheme is `file`.
    return not one or not other or one == other


def is_hidden(relative: str, partition_names: Iterable[str] = ()) -> bool:
    """Tell whether a file below a table is ignored: some part of its path begins with `_` or `.`.

    Args:
        relative: path below the table's location.
        partition_names: names of partition fields; a directory `_day=2026-01-01` of a field `_day` is not hidden.
    """
    fields = tuple(f"{name}=" for name in partition_names)
    return any(part.startswith(("_", ".")) and not part.startswith(fields) for part in relative.split("/"))


def older_than_ms(given_ms: int | None, *, now_ms: int, allow_recent: bool) -> int:
    """Return the timestamp before which a file must have been written to be an orphan; 3 days ago by default.

    Raises:
        InvalidInputError: the timestamp is less than a day ago: files of running jobs look like orphans.
    """
    if given_ms is None:
        return now_ms - DEFAULT_AGE_MS
    if given_ms > now_ms - DAY_MS and not allow_recent:
        raise InvalidInputError(
            "older_than is less than 24 hours ago: files of running jobs look like orphans and would be deleted; "
            "choose an earlier time, or set allow_recent (an option of the operator) if nothing writes to the table"
        )
    return given_ms
