"""Where the tables of a catalog may lie: what the connection trusts, the gate of a table, and places that are taken.

Trust begins at the connection. Neither metadata, nor a server, nor the location of a namespace adds to it: others can
write each of them. Not here: how locations are compared (`storage.gate`, `storage.trust`), and whose files lie at a
place (`inventory.ownership`).
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from airflow_iceberg.catalogs.names import Namespace, TableId
from airflow_iceberg.catalogs.owners import Named, is_in_use, names_of_folder, namesakes, owner_among, owner_by_pointer
from airflow_iceberg.catalogs.remembered import MOST_GATES, REMEMBERED_S, Remembers
from airflow_iceberg.catalogs.settled import settled_places, settled_state
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError
from airflow_iceberg.inventory.ownership import foreign_at, foreign_file, neighbour, places_of, proven_gate
from airflow_iceberg.inventory.within import ProvenFileIO
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import Gate, GatedFileIO, local_path, place_of, ungated
from airflow_iceberg.storage.trust import Trust, bucket_of, is_location, untrusted

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata

log = logging.getLogger(__name__)


class Locations(Remembers, ABC):
    """The part of a catalog that knows where its tables may lie; see `Catalog`.

    Attributes:
        names_are_compared: whether the catalog's own commits make sure that no table has the name of a namespace.
        namespaces_are_folders: whether a folder makes a namespace, so that the folder of a new table may exist.
        owners_are_cheap: whether one request tells which tables have their metadata in a folder.
        lists_pointers: whether a list of all tables tells it, see `other_pointers`.
        unique_end: what may follow the name of a table in its location, after `new_location`.
    """

    names_are_compared: ClassVar[bool] = False
    namespaces_are_folders: ClassVar[bool] = False
    owners_are_cheap: ClassVar[bool] = False
    lists_pointers: ClassVar[bool] = False
    unique_end: ClassVar[re.Pattern[str]] = re.compile(r"(?:-[0-9a-f]{32})?")
    name: str
    properties: Mapping[str, str]
    io: FileIO

    @abstractmethod
    def table_exists(self, table: str | TableId) -> bool: ...

    @abstractmethod
    def namespace_exists(self, namespace: str | Namespace) -> bool: ...

    @abstractmethod
    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]: ...

    @abstractmethod
    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]: ...

    @abstractmethod
    def load(self, table: str | TableId) -> TableState: ...

    @abstractmethod
    def id_of(self, table: str | TableId) -> TableId: ...

    # -- what is trusted -----------------------------------------------------------------------------------------------

    def trust_in(self, table: TableId, location: str) -> tuple[Trust, str]:
        """Return the locations that are trusted for a table, those of the connection, and that of the table, settled.

        Without any a remote table is trusted to be where it says, but never a local one.

        Raises:
            InvalidInputError: the table's location is outside of them.
        """
        trust = Trust.of(self.properties)
        if trust.is_empty and local_path(location) is None:
            return trust.and_root(bucket_of(location)), location
        found = self._settled(trust, location)
        if found is None:
            raise untrusted(f"table {table} of catalog {self.name}", location, trust)
        return trust, found

    def _settled_state(self, state: TableState) -> TableState:
        """Return a table whose own locations, and that of its metadata, stay the same places, see `Trust.settled`."""
        trust, _ = self.trust_in(state.table, state.metadata.location)
        return settled_state(state, partial(self._settled, trust))

    def gate(self, table: TableId, metadata: TableMetadata, metadata_location: str) -> Gate:
        """Return the gate of a table's files.

        Raises:
            InvalidInputError: the connection does not trust the table's location.
        """
        own, folder = self._own_locations(table, metadata), metadata_location.rpartition("/")[0]
        make = partial(self._gate, table, metadata.location, own, folder)
        return self._remembered(("gate", table, metadata.location, own, folder), make)

    def _gate(self, table: TableId, location: str, own: tuple[str, ...], folder: str) -> Gate:
        trust, location = self.trust_in(table, location)
        if folder and local_path(location) is not None and local_path(folder) is None:
            raise untrusted(f"the metadata of table {table} is remote, and the table", location, trust)
        return trust.gate(location, own=settled_places(own, partial(self._settled, trust)))

    def gate_of_place(self, table: TableId, location: str) -> Gate:
        """Return the gate of a table of which no more than a location is known: it lets nothing be deleted.

        Raises:
            InvalidInputError: the connection does not trust the location.
        """

        def make() -> Gate:
            trust, settled = self.trust_in(table, location)
            return trust.gate(settled)

        return self._remembered(("place", table, location), make)

    def gate_of_pointer(self, table: TableId, metadata_location: str) -> Gate:
        """Return the gate of a table's metadata file, before its metadata is known; see `gate_of_place`."""
        return self.gate_of_place(table, metadata_location.rpartition("/")[0])

    def _own_locations(self, table: TableId, metadata: TableMetadata) -> tuple[str, ...]:
        """Return the locations that hold this table's files only."""
        return places_of(metadata)

    def _base_location(self, table: TableId, own: str | None, folder: str) -> str:
        """Return the location of a table's namespace: its own, or the folder in the warehouse."""
        warehouse = self.properties.get("warehouse", "").rstrip("/")
        base = own or (warehouse and f"{warehouse}/{folder}")
        if not base:
            text = f"property 'warehouse' is missing, set it or give table {table} a location"
            raise InvalidInputError(f"catalog {self.name}: {text}")
        return base.rstrip("/")

    # -- what may be deleted -------------------------------------------------------------------------------------------

    def deleting_io(self, state: TableState, io: FileIO | None = None, *, drops: bool = False) -> ProvenFileIO:
        """Return access to a table's files that deletes only where no other table is; see `inventory.ownership`.

        Args:
            drops: whether the table is dropped: then none of its files is left for a second name of it.
        """
        given, state = state, self._settled_state(state)
        gate = self.gate(state.table, state.metadata, state.metadata_location)
        checked = GatedFileIO(ungated(io or state.io or self.io), gate)
        why_foreign = partial(self._why_foreign, checked, state)
        if (doubt := self.doubt(checked, given)) is not None:
            log.warning("nothing of %s is deleted: %s", state.table, doubt)
            return ProvenFileIO(checked.inner, Gate(allowed=gate.allowed), why_foreign, doubt)
        folder = state.metadata_location.rpartition("/")[0]
        key = self._gate_key(
            "proven", state.table, state.metadata.table_uuid, state.metadata.location, folder, gate, drops
        )
        known, doubt, until = self._proven.get(key, (None, None, 0.0))
        if known is None or time.monotonic() > until:
            doubt, is_final = self._doubt_by_names(state, drops=drops)
            known = Gate(allowed=gate.allowed)
            if doubt is None:
                known, is_final = self._proven_gate(checked, state)
            else:
                log.warning("nothing of %s is deleted, since %s", state.table, doubt)
            if is_final:
                if len(self._proven) >= MOST_GATES:
                    self._proven.clear()
                self._proven[key] = (known, doubt, time.monotonic() + REMEMBERED_S)
        return ProvenFileIO(checked.inner, known, why_foreign, doubt)

    def _why_foreign(self, io: GatedFileIO, state: TableState, folder: str) -> str | None:
        return foreign_at(io, folder, state.metadata, state.metadata_location, is_home=self._is_expected(state))

    def _doubt_by_names(self, state: TableState, *, drops: bool) -> tuple[str | None, bool]:
        """Return why nothing of a table may be deleted, as far as the catalog tells, and whether it stays so.

        Whoever is taken for another table may be that one in all of its places, and so nothing at all is deleted.
        """
        if self.is_past(state):
            return "it is shown as it was once, and later states have files", True
        location = state.metadata.location
        try:
            owner = self._owner_of(state, is_home=self._is_expected(state), drops=drops)
        except IcebergError as error:
            return f"it cannot be checked whose {location} is: {error}", False
        if owner is None:
            return None, True
        advice = "if both are names of one table, drop the name that is not needed, without purge"
        return f"{location} is where table {owner} is; {advice}", True

    def _proven_gate(self, io: GatedFileIO, state: TableState) -> tuple[Gate, bool]:
        return proven_gate(
            io,
            state.metadata,
            state.metadata_location,
            is_home=self._is_expected(state),
            is_lent=self._is_lent(state),
            is_in_use=partial(is_in_use, self, state.table, state.metadata.location),
        )

    def _owner_of(self, state: TableState, *, is_home: bool, drops: bool = False) -> TableId | None:
        """Return the table of another name that is at a table's location, as far as names lead to it.

        Args:
            is_home: whether that is the place of the table's own name, so that no other name leads to it.
            drops: whether all files are deleted: then another name of the very same state counts everywhere.
        """
        if is_home:
            return None
        return self._owner_by_name(state) or owner_by_pointer(self.other_pointers(state.table), state)

    def _owner_by_name(self, state: TableState) -> TableId | None:
        location = state.metadata.location
        names = (*self._names_of(location), *namesakes(self, location, self.unique_end))
        return owner_among(self, names, state.table, location)

    def _owner_for_registration(self, state: TableState) -> TableId | None:
        """Return the table of another name that is at a location; a large catalog is not listed for each of many."""
        if not self.lists_pointers:
            return self._owner_of(state, is_home=False)
        return owner_by_pointer(self._recent_pointers(state), state) or self._owner_by_name(state)

    def _owner_for_commit(self, state: TableState) -> TableId | None:
        """Return the table of another name that is at a table's location, by few requests: a commit lists nothing."""
        is_home = self._is_expected(state)
        if is_home or self.owners_are_cheap:
            return self._owner_of(state, is_home=is_home)
        location = state.metadata.location
        return owner_among(self, self._names_of(location), state.table, location)

    def doubt(self, io: FileIO, state: TableState) -> str | None:
        """Say why a state may not be the one in the table's metadata file; None if it surely is."""
        return None

    def is_past(self, state: TableState) -> bool:
        """Whether this is a table as it was once, whose later states have files that it does not know."""
        return False

    def other_pointers(self, table: TableId) -> Iterable[Named]:
        """Yield the other tables with their metadata files, where the catalog's lists have these; else none."""
        return ()

    def told_location(self, table: TableId) -> str | None:
        """Return where the catalog itself says that a table is, beside its metadata; not each commit keeps it right.

        Raises:
            IcebergError: it cannot be asked.
        """
        return None

    def _names_of(self, location: str) -> Iterator[TableId]:
        """Yield the names of tables whose home a location is, see `_is_home`."""
        warehouse = self.properties.get("warehouse", "").rstrip("/")
        if not is_location(warehouse):
            return
        home, place = place_of(warehouse), place_of(location)
        if place == home or not place.is_below(home):
            return
        *folders, _ = place.path[len(home.path) :].strip("/").split("/")
        for name in names_of_folder(place.path, self.unique_end):
            with suppress(InvalidInputError):  # no name
                if namespace := self._namespace_of(folders):
                    yield self.id_of(TableId(namespace=namespace, name=name))

    def _namespace_of(self, folders: Sequence[str]) -> Namespace:
        """Return the namespace of a folder in the warehouse; without levels if there is none."""
        return tuple(folders)

    def _is_expected(self, state: TableState) -> bool:
        try:
            return self._is_home(state.table, state.metadata.location)
        except IcebergError:
            return False

    def _is_home(self, table: TableId, location: str) -> bool:
        """Whether a location is that of the table's name in the warehouse: no location of a namespace counts."""
        warehouse = self.properties.get("warehouse", "").rstrip("/")
        if not is_location(warehouse):
            return False
        home, place = place_of(f"{warehouse}/{self._path_of(table)}"), place_of(location)
        if (place.store, place.authority) != (home.store, home.authority) or not place.path.startswith(home.path):
            return False
        return self.unique_end.fullmatch(place.path[len(home.path) :]) is not None

    def _path_of(self, table: TableId) -> str:
        """Return where in the warehouse a table of this name is placed, but for what makes its location unique."""
        return f"{self._folder(table.namespace)}/{table.name}"

    def _folder(self, namespace: Namespace) -> str:
        """Return the folder of a namespace in the warehouse."""
        return "/".join(namespace)

    def _is_lent(self, state: TableState) -> bool:
        """Whether a server lends credentials for the table's location alone, and so answers for it."""
        return False

    # -- what is taken -------------------------------------------------------------------------------------------------

    def check_place(self, table: TableId, location: str, *, is_chosen: bool = True) -> None:
        """Refuse a location for a new table that lies in the folder of another one, or has one in it.

        Metadata files tell, by their names. One without later versions at the very location may be what a try has left
        that died before it had created the table; if it is a table, nothing is deleted there. Where nobody may look,
        the table is created.

        Args:
            is_chosen: whether a person has chosen the location, so that it must not be that of another table either.
        Raises:
            InvalidInputError: another table is there; or the connection does not trust the location.
        """
        gate = self.gate_of_place(table, location)
        _, location = self.trust_in(table, location)
        try:
            found = neighbour(GatedFileIO(ungated(self.io), gate), location, is_at_home=is_chosen)
        except IcebergError as error:
            log.info("cannot look for other tables around %s: %s", location, error)
            return
        if found is not None:
            raise self._place_taken(table, location, found)

    def check_registered(self, table: TableId, metadata: TableMetadata, metadata_location: str) -> None:
        """Refuse metadata whose location is another table's, or lies in one or above one; as `check_place`.

        A table of the first versions may have no uuid, by which it is told from others.
        """
        given = TableState(table=table, metadata=metadata, metadata_location=metadata_location)
        state = self._settled_state(given)
        metadata, metadata_location = state.metadata, state.metadata_location
        gate = self.gate(table, metadata, metadata_location)
        owner = None
        with suppress(IcebergError):  # who may not list the names registers it all the same
            # A second name deletes nothing. But the place of its own name may be that of a table that was renamed.
            owner = self._owner_for_registration(state) if self._is_expected(state) else None
        if owner is not None:
            raise InvalidInputError(
                f"table {table} cannot lie at {metadata.location}: table {owner} is there, and a cleanup of one would "
                f"delete files of the other; rename or drop that one first"
            )
        if metadata.table_uuid is None:
            return
        try:
            found = foreign_file(GatedFileIO(ungated(self.io), gate), metadata, metadata_location)
        except IcebergError as error:
            log.info("cannot look for other tables around %s: %s", metadata.location, error)
            return
        if found is not None:
            raise self._place_taken(table, metadata.location, found)

    def _place_taken(self, table: TableId, location: str, found: str) -> InvalidInputError:
        return InvalidInputError(
            f"table {table} cannot lie at {location}: another table has its metadata at {found}, and a cleanup of one "
            f"would delete files of the other; choose a location beside it, or remove that folder if no catalog has "
            f"its table any more"
        )

    def check_new_namespace(self, namespace: Namespace) -> None:
        """Refuse a namespace whose name, or that of a level above it, is a table's: its tables would lie in that one.

        Raises:
            AlreadyExistsError: there is such a table.
        """
        if self.names_are_compared:
            return
        for depth in range(2, len(namespace) + 1):
            level = TableId(namespace=namespace[: depth - 1], name=namespace[depth - 1])
            if self._is_taken_name(partial(self.table_exists, level)):
                raise AlreadyExistsError(
                    f"table {level} exists already in catalog {self.name}: a namespace of its name would have its "
                    f"tables within the table's folder; give the namespace another name"
                )

    def check_new_name(self, table: TableId) -> None:
        """Refuse a table whose name is a namespace's, or that is in a namespace with the name of a table.

        Raises:
            AlreadyExistsError: there is such a namespace, or table.
        """
        self.check_new_namespace(table.namespace)
        if self.names_are_compared or self.namespaces_are_folders:
            return
        if self._is_taken_name(partial(self.namespace_exists, (*table.namespace, table.name))):
            raise AlreadyExistsError(
                f"{table} exists already in catalog {self.name}: it is a namespace, whose tables would lie within the "
                f"table's folder; give the new table another name"
            )

    def _is_taken_name(self, look: Callable[[], bool]) -> bool:
        """Whether a name is taken; if the catalog does not say, or knows no such names, it decides itself."""
        with suppress(IcebergError):
            return look()
        return False
