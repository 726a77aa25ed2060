"""Tables within the folder of a table, which no look from above comes to: their files are not the table's.

A look at a place (`inventory.ownership`) leaves out what may be many folders: those of partitions and of hashes, and
those in `data`. A table may lie there all the same, say in a namespace called `day=1`. So before a file is deleted that
metadata names, the folders on the way to it are looked at: each by itself, or all at once if there are very many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.inventory.ownership import is_never_a_table, is_spread, metadata_below
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import Gate, GatedFileIO, Place

log = logging.getLogger(__name__)

# An operation looks at so many folders on the way to files; with more of them, it lists all that is below the table.
_MOST_LOOKS = 5000
_MOST_REMEMBERED = 100_000
_MOST_WARNINGS = 20
_THREADS = 16
_WITH_FILES = ("data", "metadata")


class ProvenFileIO(GatedFileIO):
    """The files of a table, of which none that lies within another table is its own; see `GatedFileIO`.

    Args:
        gate: with the own locations that are looked at already, see `ownership.proven_gate`.
        why_foreign: says which metadata file of another table a folder has; None if it has none.
        doubt: why nothing at all may be deleted, for errors; None if the gate alone tells.
    """

    def __init__(
        self, inner: FileIO, gate: Gate, why_foreign: Callable[[str], str | None], doubt: str | None = None
    ) -> None:
        super().__init__(inner, gate)
        self._why_foreign = why_foreign
        self._doubt = doubt
        placed = ((text.rstrip("/"), self._open.place(text)) for text in gate.own)
        self._roots = tuple((text, place) for text, place in placed if place is not None)
        self._is_within: dict[str, bool] = {}
        self._is_table: dict[str, bool] = {}
        self._with_metadata: Set[Place] | None = None
        self._is_listed = True
        self._warnings = 0

    def _own(self, location: str) -> str | None:
        found = super()._own(location)
        return None if found is None or self._is_within_another(found.rpartition("/")[0]) else found

    def _checked_own(self, location: str, verb: str) -> str:
        if self._doubt is not None:
            raise InvalidInputError(f"cannot {verb} {location}, which may belong to another table: {self._doubt}")
        return super()._checked_own(location, verb)

    def look_ahead(self, locations: Iterable[str]) -> None:
        """Look at the folders on the way to files, several at a time: each is a request to the store."""
        folders = dict.fromkeys(each.rpartition("/")[0] for each in locations)
        own = filter(None, map(self._open.own, (each for each in folders if each not in self._is_within)))
        ways = dict.fromkeys(inner for folder in own for inner in self._on_the_way(folder))
        left = max(0, _MOST_LOOKS - len(self._is_table))
        new = [*islice((folder for folder in ways if folder not in self._is_table), left)]
        if len(new) > 1:
            with ThreadPoolExecutor(_THREADS) as pool:
                found = dict(zip(new, pool.map(self._why, new), strict=True))
            for folder, why in found.items():
                self._remember(folder, why)

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
        if known is not None:
            return known
        if len(self._is_table) < _MOST_LOOKS or self._has_metadata(folder):
            return self._remember(folder, self._why(folder))
        return False

    def _why(self, folder: str) -> str | None:
        try:
            return self._why_foreign(folder)
        except IcebergError as error:
            return f"it cannot be checked whether it is another table's: {error}"

    def _remember(self, folder: str, why: str | None) -> bool:
        if why is not None:
            self._warnings += 1
            if self._warnings <= _MOST_WARNINGS:
                log.warning("nothing is deleted below %s, since %s", folder, why)
            elif self._warnings == _MOST_WARNINGS + 1:
                log.warning("nor below further folders, which are not logged")
        self._is_table[folder] = why is not None
        return why is not None

    def _has_metadata(self, folder: str) -> bool:
        """Whether a folder may have metadata files of a table, by one list of all below the own locations."""
        if self._with_metadata is None and self._is_listed:
            roots = [text for text, _ in self._roots]
            log.info("more than %d folders may be other tables: all below %s is listed", _MOST_LOOKS, ", ".join(roots))
            files = (path for text in roots for path in metadata_below(self, text))
            try:
                places = (self._open.place(path.rpartition("/")[0].rpartition("/")[0]) for path in files)
                self._with_metadata = frozenset(filter(None, places))
            except IcebergError as error:
                log.info("each folder is looked at by itself: %s", error)
                self._is_listed = False
        return self._with_metadata is None or self._open.place(folder) in self._with_metadata


def inner_folders(names: Sequence[str]) -> Iterator[int]:
    """Yield how many of the folders below a table lead to one that may be another table, by their names alone.

    A table has its files in `data` and `metadata`, and there in folders of partitions and hashes. So another one is
    where such a folder is further down, or where a folder of a partition has others in it. Outside of these two, where
    a migrated table has its partitions, another table may be called like one.
    """
    if is_never_a_table(names[0]):
        return
    for count in range(1, len(names) + 1):
        has_files = count < len(names) and names[count] in _WITH_FILES
        is_in_partition = any("=" in name for name in names[: count - 1])
        is_partition = "=" in names[count - 1] and names[0] not in _WITH_FILES
        if has_files or is_partition or (is_in_partition and not is_spread(names[count - 1])):
            yield count


def check_folder(io: ProvenFileIO, location: str, verb: str, *, own: str) -> None:
    """Refuse a folder of a table that may be another table's, or hold one at any depth.

    Args:
        own: the folder of the table's own metadata files.
    Raises:
        InvalidInputError: it may be.
    """
    io.check_own(location, verb)
    if (found := next(metadata_below(io, location, own=own), None)) is not None:
        raise InvalidInputError(f"cannot {verb} {location}: another table has its metadata at {found}")
