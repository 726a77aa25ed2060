"""Tables within the folder of a table, which no look from above comes to: their files are not the table's.

A look at a place (`inventory.ownership`) leaves out what may be many folders: those of partitions and of hashes, and
those in `data`. A table may lie there all the same, say in a namespace called `day=1`. So before a file is deleted that
metadata names, the folders on the way to it are looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.inventory.ownership import is_never_a_table, is_spread, metadata_below
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import Gate, GatedFileIO

log = logging.getLogger(__name__)

# An operation looks at so many folders on the way to files; what is behind more of them is kept.
_MOST_LOOKS = 1000
_MOST_REMEMBERED = 100_000
_WITH_FILES = ("data", "metadata")


class ProvenFileIO(GatedFileIO):
    """The files of a table, of which none that lies within another table is its own; see `GatedFileIO`.

    Args:
        gate: with the own locations that are looked at already, see `ownership.proven_gate`.
        why_foreign: says which metadata file of another table a folder has; None if it has none.
    """

    def __init__(self, inner: FileIO, gate: Gate, why_foreign: Callable[[str], str | None]) -> None:
        super().__init__(inner, gate)
        self._why_foreign = why_foreign
        placed = ((text.rstrip("/"), self._open.place(text)) for text in gate.own)
        self._roots = tuple((text, place) for text, place in placed if place is not None)
        self._is_within: dict[str, bool] = {}
        self._is_table: dict[str, bool] = {}

    def _own(self, location: str) -> str | None:
        found = super()._own(location)
        return None if found is None or self._is_within_another(found.rpartition("/")[0]) else found

    def _is_within_another(self, folder: str) -> bool:
        known = self._is_within.get(folder)
        if known is None:
            if len(self._is_within) >= _MOST_REMEMBERED:
                self._is_within.clear()
            known = self._is_within[folder] = any(map(self._is_another, self._on_the_way(folder)))
        return known

    def _on_the_way(self, folder: str) -> Iterator[str]:
        """Yield the folders from the table to a folder of it that may be other tables."""
        place = self._open.place(folder)
        if place is None:
            return
        around = [(text, root) for text, root in self._roots if place != root and place.is_below(root)]
        if not around:
            return
        text, root = min(around, key=lambda each: len(each[1].path))
        names = place.path[len(root.path) + 1 :].split("/")
        yield from ("/".join((text, *names[:count])) for count in inner_folders(names))

    def _is_another(self, folder: str) -> bool:
        known = self._is_table.get(folder)
        if known is None:
            known = self._is_table[folder] = self._looks_like_another(folder)
        return known

    def _looks_like_another(self, folder: str) -> bool:
        if len(self._is_table) >= _MOST_LOOKS:
            why: str | None = f"more than {_MOST_LOOKS} folders of this table may be other tables"
        else:
            try:
                why = self._why_foreign(folder)
            except IcebergError as error:
                why = f"it cannot be checked whether it is another table's: {error}"
        if why is not None and len(self._is_table) <= _MOST_LOOKS:
            log.warning("nothing is deleted below %s, since %s", folder, why)
        return why is not None


def inner_folders(names: Sequence[str]) -> Iterator[int]:
    """Yield how many of the folders below a table lead to one that may be another table, by their names alone.

    A table has its files in `data` and `metadata`, and there in folders of partitions and hashes. So another one is
    where such a folder is further down, or where a folder of a partition has others in it.
    """
    if is_never_a_table(names[0]):
        return
    for count in range(1, len(names) + 1):
        has_files = count < len(names) and names[count] in _WITH_FILES
        is_in_partition = any("=" in name for name in names[: count - 1])
        if has_files or (is_in_partition and not is_spread(names[count - 1])):
            yield count


def check_folder(io: ProvenFileIO, location: str, verb: str, *, own: str) -> None:
    """Refuse a folder of a table that may be another table's, or hold one at any depth.

    Args:
        own: the folder of the table's own metadata files.
    Raises:
        InvalidInputError: it may be.
    """
    io.check_own(location, verb)
    if (found := metadata_below(io, location, own=own)) is not None:
        raise InvalidInputError(f"cannot {verb} {location}: another table has its metadata at {found}")
