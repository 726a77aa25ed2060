"""Whether a file that lies below a table is one of the table's: locations compared as stores spell them.

Here: comparing locations, and which names are never looked at. Pure. Not here: listing, reading manifests and moving
files (`cleaning`).

A file is the table's when its path is, without scheme and authority. The same path under another scheme or authority is
a doubt: `s3a` and `s3` are one store, two buckets are not, and which of the two a table means only its owner knows. So
doubts are reported, and nothing is removed, unless the caller says which spellings are equal or what to do.
Spellings of one path (percent-encoding, doubled slashes) are the same path: when in doubt a file stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from airflow_iceberg.errors import InvalidInputError

DAY_MS = 24 * 60 * 60 * 1000
DEFAULT_AGE_MS = 3 * DAY_MS
EQUAL_SCHEMES: Mapping[str, str] = {"s3a": "s3", "s3n": "s3"}
MISMATCH_MODES = ("error", "ignore", "delete")

Verdict = Literal["known", "orphan", "doubtful"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spelling:
    """Which schemes and authorities are the same store.

    Attributes:
        equal_schemes: other spellings of a scheme, to the one they stand for; `s3a` and `s3n` are `s3` by default.
        equal_authorities: the same for buckets and hosts.
    """

    equal_schemes: Mapping[str, str] = field(default_factory=lambda: dict(EQUAL_SCHEMES))
    equal_authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, equal_schemes: Mapping[str, str] | None, equal_authorities: Mapping[str, str] | None) -> Spelling:
        """Read mappings as Iceberg's procedure has them: several spellings on the left, with commas between."""
        return cls(
            equal_schemes={**EQUAL_SCHEMES, **_flattened(equal_schemes or {})},
            equal_authorities=_flattened(equal_authorities or {}),
        )

    def split(self, location: str) -> tuple[str, str, str]:
        """Return scheme, authority and path of a location, each as it is compared."""
        scheme, authority, path = split_location(location)
        scheme, authority = scheme.lower(), authority.lower()
        return (
            self.equal_schemes.get(scheme, scheme),
            self.equal_authorities.get(authority, authority),
            _normal_path(path),
        )


def split_location(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path; the scheme of a plain path is empty."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return "", "", location
    if not rest.startswith("//"):
        return scheme, "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme, authority, slash + path


def _normal_path(path: str) -> str:
    """Return the one spelling that all spellings of a path have."""
    return "/".join(part for part in unquote(path).split("/") if part)


def _flattened(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name.strip().lower(): target.strip().lower()
        for names, target in given.items()
        for name in names.split(",")
        if name.strip()
    }


class KnownFiles:
    """The files of a table, by path.

    Memory: a set of prefixes a path; nearly always one and the same object.
    """

    def __init__(self, spelling: Spelling | None = None) -> None:
        self._spelling = spelling or Spelling()
        self._prefixes: dict[str, frozenset[tuple[str, str]]] = {}
        self._shared: dict[frozenset[tuple[str, str]], frozenset[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def add(self, locations: Iterable[str]) -> None:
        """Take files of the table in."""
        for location in locations:
            scheme, authority, path = self._spelling.split(location)
            found = self._prefixes.get(path, frozenset()) | {(scheme, authority)}
            self._prefixes[path] = self._shared.setdefault(found, found)

    def judge(self, location: str) -> Verdict:
        """Say what a listed file is; an empty scheme or authority, on either side, is any."""
        scheme, authority, path = self._spelling.split(location)
        prefixes = self._prefixes.get(path)
        if prefixes is None:
            return "orphan"
        return "known" if any(_fits(scheme, s) and _fits(authority, a) for s, a in prefixes) else "doubtful"

    def spellings(self, location: str) -> list[str]:
        """Return how the table spells the prefix of a path that a doubtful file has."""
        _, _, path = self._spelling.split(location)
        return sorted(f"{scheme}://{authority}" for scheme, authority in self._prefixes.get(path, ()))


def _fits(one: str, other: str) -> bool:
    # A plain path is of the local file system, whose scheme is `file`.
    return not one or not other or one == other


def is_hidden(relative: str, partition_names: Iterable[str] = ()) -> bool:
    """Tell whether a file below a table is never looked at: some part of its path begins with `_` or `.`.

    Args:
        relative: path below the table's location.
        partition_names: of partition fields; a directory `_day=2026-01-01` of a field `_day` is none of these.
    """
    fields = tuple(f"{name}=" for name in partition_names)
    return any(part.startswith(("_", ".")) and not part.startswith(fields) for part in relative.split("/"))


def older_than_ms(given_ms: int | None, *, now_ms: int, allow_recent: bool) -> int:
    """Return the moment before which a file must have been written to be an orphan; 3 days ago by default.

    Raises:
        InvalidInputError: the moment is less than a day ago: files of running jobs look like orphans.
    """
    if given_ms is None:
        return now_ms - DEFAULT_AGE_MS
    if given_ms > now_ms - DAY_MS and not allow_recent:
        raise InvalidInputError(
            "older_than is less than 24 hours ago: files of jobs that are running look like orphans and would go; "
            "choose an earlier moment, or set allow_recent (an option of the operator) when nothing writes to the table"
        )
    return given_ms
