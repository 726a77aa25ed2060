"""What a catalog has found out about places, and remembers: gates, looks, and where links have led.

Not here: how it is found out (`locations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_iceberg.storage.gate import SETTING, Gate
from airflow_iceberg.storage.trust import Trust

MOST_GATES = 64


class Remembers:
    """The part of a catalog that remembers; all of it is for the properties that it had then."""

    properties: Mapping[str, str]

    @property
    def _proven(self) -> dict[tuple[object, ...], tuple[Gate, float]]:
        """Gates whose places were looked at, and until when that counts."""
        known: dict[tuple[object, ...], tuple[Gate, float]] = self.__dict__.setdefault("_proven_gates", {})
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
