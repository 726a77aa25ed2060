"""What a catalog has found out about places, and remembers: gates, looks, and where links have led.

Not here: how it is found out (`locations`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from airflow_iceberg.catalogs.names import TableId
from airflow_iceberg.catalogs.owners import Named, folder_of, metadata_places
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.storage.gate import SETTING, Gate
from airflow_iceberg.storage.trust import Trust

MOST_GATES = 64
REMEMBERED_S = 60.0
"""How long it is remembered which tables there are, and that a place is a table's alone: an expiry asks often."""
# By so much the clocks of writers may differ.
_CLOCKS_DIFFER_S = 600.0


class Remembers(ABC):
    """The part of a catalog that remembers; all of it is for the properties that it had then."""

    properties: Mapping[str, str]
    _listed: tuple[list[Named], float, float] | None = None

    @abstractmethod
    def other_pointers(self, table: TableId) -> Iterable[Named]: ...

    def _recent_pointers(self, state: TableState) -> list[Named]:
        """Return the other tables with their metadata files, as they were listed a minute ago or less.

        They are listed again for a table that was there at that time, or was changed since: it may have another name.
        """
        if self._listed is not None:
            found, began_s, until = self._listed
            places = metadata_places(state)
            is_known = any(folder_of(pointer) in places for _, _, pointer, _ in found)
            is_old = state.metadata.last_updated_ms / 1000 < began_s - _CLOCKS_DIFFER_S
            if time.monotonic() < until and is_old and not is_known:
                return found
        began_s, until = time.time(), time.monotonic() + REMEMBERED_S
        found = [*self.other_pointers(state.table)]
        self._listed = found, began_s, until
        return found

    def _note_pointer(self, table: TableId, pointer: str) -> None:
        """Take note of a table that this catalog has got."""
        if self._listed is not None:
            self._listed[0].append((table.namespace, table.name, pointer, None))

    @property
    def _proven(self) -> dict[tuple[object, ...], tuple[Gate, str | None, float]]:
        """Gates whose places were looked at, why they let nothing be deleted, and until when that counts."""
        known: dict[tuple[object, ...], tuple[Gate, str | None, float]] = self.__dict__.setdefault("_proven_gates", {})
        return known

    @property
    def _gates(self) -> dict[tuple[object, ...], Gate]:
        """Gates that were made before."""
        known: dict[tuple[object, ...], Gate] = self.__dict__.setdefault("_known_gates", {})
        return known

    def _gate_key(self, *parts: object) -> tuple[object, ...]:
        return (*parts, self.properties.get("warehouse"), str(self.properties.get(SETTING)))

    def _remembered(self, parts: tuple[object, ...], make: Callable[[], Gate]) -> Gate:
        """Return a gate that was made before with the same properties."""
        key = self._gate_key(*parts)
        found = self._gates.get(key)
        if found is None:
            if len(self._gates) >= MOST_GATES:
                self._gates.clear()
            found = self._gates[key] = make()
        return found

    def _settled(self, trust: Trust, location: str) -> str | None:
        """Return a location as `Trust.settled` does, the same one each time that this catalog is asked."""
        known: dict[tuple[object, ...], str] = self.__dict__.setdefault("_settled_locations", {})
        key = self._gate_key(location)
        if key in known:
            return known[key]
        found = trust.settled(location)
        return found if found is None or found == location else known.setdefault(key, found)
