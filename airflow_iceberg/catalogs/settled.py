"""The places of a table by names that stay the same, whatever becomes of links on this machine.

Anyone with a login can make a link that leads into the warehouse, and who commits to a table can name it as the table's
own. All looks at such a place, and all deletions, have to be at the place that it was first. Not here: how a place is
found (`storage.trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.inventory.ownership import PLACES

Settle = Callable[[str], str | None]


def settled_places(locations: Iterable[str], settle: Settle) -> tuple[str, ...]:
    """Return locations as they are settled; those that are not trusted, or are none, as they are."""
    return tuple(_settled(location, settle) for location in locations)


def settled_state(state: TableState, settle: Settle) -> TableState:
    """Return a table with its own locations, and that of its metadata, as they are settled; as `settled_places`."""
    metadata = state.metadata
    moved = {name: _settled(text, settle) for name in PLACES if (text := metadata.properties.get(name))}
    location, pointer = (_settled(text, settle) for text in (metadata.location, state.metadata_location))
    if (location, pointer) == (metadata.location, state.metadata_location) and not any(
        metadata.properties[name] != text for name, text in moved.items()
    ):
        return state
    metadata = replace(metadata, location=location, properties={**metadata.properties, **moved})
    return replace(state, metadata=metadata, metadata_location=pointer)


def _settled(location: str, settle: Settle) -> str:
    found = None
    with suppress(InvalidInputError):
        found = settle(location)
    return location if found is None else found
