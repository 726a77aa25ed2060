"""Which locations a connection trusts, and the gate of a table that follows from them.

Metadata names the table's own location, too, so it proves nothing: the warehouse and `allowed-locations` of the
connection are where trust begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.gate import LOCAL, SETTING, STORE_OF_SCHEME, Gate, OpenGate, Place, local_path, place_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """The locations that a connection trusts.

    Attributes:
        roots: the warehouse, if it is a location; without any, that of the table. All of a remote root's bucket is
            trusted, and of a local one only what is below it.
        allowed: further prefixes, as the connection lists them.
    """

    roots: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Trust:
        """Read `warehouse` (which may be a name) and `allowed-locations`.

        Raises:
            InvalidInputError: one of the allowed locations is not absolute.
        """
        warehouse = str(properties.get("warehouse") or "").strip()
        return cls(
            roots=(warehouse,) if is_location(warehouse) else (),
            allowed=_allowed_locations(properties.get(SETTING)),
        )

    @property
    def is_empty(self) -> bool:
        return not (self.roots or self.allowed)

    @property
    def has_remote_root(self) -> bool:
        return any(not place_of(root).is_local for root in self.roots)

    def and_root(self, location: str) -> Trust:
        """Return the trust with another root."""
        return Trust(roots=(*self.roots, location), allowed=self.allowed)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All that is trusted."""
        return tuple(dict.fromkeys((*map(bucket_of, self.roots), *self.allowed)))

    def covers(self, location: str) -> bool:
        """Whether a location is trusted; a local one never is beside a warehouse that is not."""
        return self.settled(location) is not None

    def settled(self, location: str) -> str | None:
        """Return a trusted location, by which it is the same place for ever; None for one that is not trusted.

        A local path may lead into a trusted folder through a link outside. Who has made the link can change it after
        any look, so that the place is found once, and named without the link from then on. Below a trusted folder no
        link is followed.
        """
        if local_path(location) is not None and self.has_remote_root:
            return None
        return OpenGate(Gate(allowed=self.prefixes)).settled(location)

    def gate(self, location: str, *, own: Sequence[str] = (), is_root: bool = False) -> Gate:
        """Return the gate of a table whose location is trusted.

        Args:
            own: the table's own locations; those that are not trusted, or hold more than a table, are left out.
            is_root: whether its user has named the location, so that it is trusted for that.

        Raises:
            InvalidInputError: a local location is not trusted.
        """
        if local_path(location) is None:
            prefixes = [*(each for each in self.prefixes if local_path(each) is None), bucket_of(location)]
        else:
            # A local table is no place of trust itself: links on the way from one to the table are not followed.
            is_covered = self.covers(location)
            if not is_covered and not is_root:
                raise untrusted("a table", location, self)
            prefixes = [*self.prefixes, *([] if is_covered else [location])]
        gate = Gate(allowed=tuple(dict.fromkeys(prefixes)))
        opened = OpenGate(gate)

        def settled(text: str) -> str | None:
            try:
                found = opened.settled(text)
                place = None if found is None else opened.place(found)
            except InvalidInputError:
                return None
            return None if place is None or self._is_too_wide(place, opened) else found

        return replace(gate, own=tuple(filter(None, dict.fromkeys(map(settled, own)))))

    def gate_of_metadata_file(self, location: str) -> Gate:
        """Return the gate of a table without a catalog, which is only read: its user has named the metadata file.

        A local table is the folder above that of the file.
        """
        root = location if not place_of(location).is_local else "/".join(location.split("/")[:-2]) or "/"
        return self.gate(root, is_root=True)

    def _is_too_wide(self, place: Place, opened: OpenGate) -> bool:
        """Whether a place holds all tables of a root, or more than an allowed prefix."""

        def places(locations: Sequence[str]) -> Iterator[Place]:
            alike = (each for each in locations if (local_path(each) is not None) == place.is_local)
            return (found for each in alike if (found := opened.place(each)) is not None)

        if any(root.is_below(place) for root in places(self.roots)):
            return True
        return any(each.is_below(place) and each != place for each in places(self.allowed))


def is_location(text: str) -> bool:
    """Whether a warehouse is a location; for some REST servers it is a name."""
    scheme, colon, rest = text.partition(":")
    if text.startswith("/"):
        return True
    return bool(colon) and rest.startswith("/") and scheme.lower() in STORE_OF_SCHEME


def bucket_of(location: str) -> str:
    """Return scheme and authority of a remote location, and a local one as it is."""
    place = place_of(location)
    if place.store == LOCAL:
        return location
    if place.store == "memory":
        return f"memory://{place.authority}"
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if rest.partition("/")[0] else f"{scheme}:///"


def untrusted(what: str, location: str, trust: Trust) -> InvalidInputError:
    """Return the error of a location that the connection does not trust."""
    known = ", ".join(trust.prefixes) or "no warehouse and no other location"
    if place_of(location).is_local and trust.has_remote_root:
        return InvalidInputError(
            f"{what} is at {location}, and the connection trusts {known}; local files need a local warehouse"
        )
    return InvalidInputError(
        f"{what} is at {location}, and the connection trusts {known}; if the table belongs there, add its location or "
        f"a prefix of it to '{SETTING}' of the connection"
    )


def _allowed_locations(given: Any) -> tuple[str, ...]:
    """Read a list of prefixes: a JSON array, or texts that are separated by commas."""
    listed = given
    if isinstance(given, str):
        try:
            listed = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        except ValueError:
            raise InvalidInputError(f"'{SETTING}' is not a JSON array of locations: {given!r}") from None
    found = tuple(each.strip() for each in listed or () if isinstance(each, str) and each.strip())
    for each in found:
        if not is_location(each):
            raise InvalidInputError(
                f"'{SETTING}' has {each!r}, expected prefixes of locations such as s3://bucket/folder or /data/lake"
            )
        place_of(each)
    return found
