"""`PointerCatalog`: catalogs that store, for each table, the location of its newest metadata file.

Here: the name of a metadata file, and what happens to it after each outcome of the swap. Not here: the swap itself,
which each catalog implements (`sql`, …), and commit retries (`airflow_iceberg.commit`).
"""

from __future__ import annotations

import logging
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Required, TypedDict, Unpack

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId, TableState
from airflow_iceberg.catalogs.metadata_file import (
    METADATA_SUFFIX,
    encode_metadata,
    is_gzip_asked,
    metadata_version,
    read_metadata,
    read_uuid,
)
from airflow_iceberg.catalogs.missing import warn_of_new_warehouse
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    switch,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.limited import LimitedFileIO, may_keep
from airflow_iceberg.inventory.ownership import files_of, has_metadata
from airflow_iceberg.inventory.purge import TableFiles, delete_files, find_files
from airflow_iceberg.inventory.spellings import forgotten_metadata
from airflow_iceberg.redaction import said
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import own_only

log = logging.getLogger(__name__)

# Metadata that a catalog remembers at most; those who watch tables open a catalog for each.
_MOST_STATES = 4
# Of all of them together, unless one has more: 100,000 take some 220 MB.
MOST_SNAPSHOTS = 100_000
_UNIQUE = "unique-table-location"
# How often the files of a table to purge are listed, while other writers commit to it.
_LOOKS_BEFORE_PURGE = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    """The state of a table as a catalog stores it.

    Attributes:
        metadata_location: the newest metadata file.
        token: a version or hash that the catalog compares besides the location when it swaps.
    """

    metadata_location: str
    token: object = None


class Outside(TypedDict, total=False):
    """The outside world of a pointer catalog: files, the clock (milliseconds since the epoch), and unique ids."""

    io: Required[FileIO]
    now_ms: Callable[[], int] | None
    new_uuid: Callable[[], uuid.UUID]


class PointerCatalog(Catalog):
    """A catalog of two methods, `read_pointer` and `swap_pointer`; load, create and commit follow from them.

    Attributes:
        rules_out_echoes: whether the catalog's own swap makes sure that it did not lose a race to its own repeated
            request.
        has_new_names: whether a metadata file of this catalog never gets the name of an earlier one.
    """

    rules_out_echoes = False
    has_new_names = True
    _known: dict[TableId, TableState] | None = None

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, io=outside["io"])
        self._now_ms = outside.get("now_ms") or _now_ms
        self._new_uuid = outside.get("new_uuid", uuid.uuid4)

    @abstractmethod
    def read_pointer(self, table: TableId) -> Pointer | None:
        """Return the table's pointer, or None if there is no such table."""

    @abstractmethod
    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        """Let the table point to `new`, if it still points to `expected` (None: if there is no such table).

        Raises:
            CommitConflictError: it points to another file (`AlreadyExistsError`: it exists, None was expected;
                `NotFoundError`: it no longer exists). Surely nothing was changed.
            StorageError: the swap failed, and surely nothing was changed.
            CommitUnknownError: any other failure after the request was sent.
        """

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        """Do as `swap_pointer`; `DescribingCatalog` overrides it.

        Args:
            base: the state that the table must still be in; None: if there is no such table.
            new: location of the new metadata.
            metadata: the new metadata.
        """
        expected = Pointer(metadata_location=base.metadata_location, token=base.token) if base else None
        return self.swap_pointer(table, expected=expected, new=new)

    def load(self, table: str | TableId) -> TableState:
        table = self.id_of(table)
        pointer = self.read_pointer(table)
        while pointer is not None:
            if known := self._known_state(table, pointer):
                return known
            try:
                state = self._state(table, self.read_metadata(table, pointer.metadata_location), pointer)
                self._keep(state)
                return state
            except NotFoundError:
                # Another writer may have committed since, and have deleted the file as the table's properties say.
                newer = self.read_pointer(table)
                if newer == pointer:
                    raise
                pointer = newer
        raise self._no_table(table)

    def remember_states(self) -> None:
        if self.has_new_names:
            self._known = self._known or {}

    def limit_reads(self, check: Callable[[], None] | None = None) -> None:
        self.io = LimitedFileIO(self.io, check=check)

    def _known_state(self, table: TableId, pointer: Pointer) -> TableState | None:
        """Return the remembered state of a table, if the pointer has not moved since."""
        known = (self._known or {}).get(table)
        is_same = known and (known.metadata_location, known.token) == (pointer.metadata_location, pointer.token)
        return known if is_same else None

    def _keep(self, state: TableState) -> None:
        if self._known is not None and may_keep(self.io, state.metadata):
            kept = sum(len(one.metadata.snapshots) for one in (*self._known.values(), state))
            if len(self._known) >= _MOST_STATES or kept > MOST_SNAPSHOTS:
                self._known.clear()
            self._known[state.table] = state

    def table_exists(self, table: str | TableId) -> bool:
        return self.read_pointer(self.id_of(table)) is not None

    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        table = self.id_of(table)
        self._require_namespace(self.namespace_of(table))
        if self.table_exists(table):  # checked before a file is written into what may be the other table's directory
            raise self._existing_table(table)
        self.check_new_name(table)
        self.check_place(table, metadata.location, is_chosen=False)
        warn_of_new_warehouse(self, metadata.location)
        return self._publish(table, None, metadata)

    def commit(self, base: TableState, change: Change) -> TableState:
        updated = apply_change(base.metadata, change, now_ms=self._now_ms(), base_location=base.metadata_location)
        if not change.updates:
            return base  # only requirements, and they hold: an equal metadata file would be of no use
        state = self._publish(base.table, base, updated)
        try:
            self._delete_forgotten_metadata(base.metadata, state)
        except Exception as error:  # noqa: BLE001 - the commit has landed: after an error its files would be deleted
            log.warning("%s: cannot delete metadata files that are not needed any more: %s", base.table, said(error))
        return state

    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        table = self.id_of(table)
        self._require_namespace(self.namespace_of(table))
        self.check_new_name(table)
        metadata = self.read_metadata(table, metadata_location)
        self.check_registered(table, metadata, metadata_location)
        pointer = self.swap_metadata(table, base=None, new=metadata_location, metadata=metadata)
        self._note_pointer(table, metadata_location)
        return self._state(table, metadata, pointer)

    def drop_table(self, table: str | TableId, *, purge: bool = False) -> None:
        """Remove a table from the catalog; with `purge` its files are deleted after that (`inventory.purge`).

        Only the very table whose files were listed is dropped: it may have been renamed meanwhile, and its old name
        given to another table.

        Raises:
            FormatError: some of the files to purge cannot be found; nothing was dropped.
            CommitConflictError: other writers kept committing to the table to purge; nothing was dropped.
            CommitUnknownError: it is unknown whether it was dropped; no file was deleted.
        """
        table = self.id_of(table)
        if not purge:
            self.drop_pointer(table)
            return
        _, files, files_io = self._drop_with_files(table)
        delete_files(files_io, str(table), files)

    def _drop_with_files(self, table: TableId) -> tuple[TableState, TableFiles, FileIO]:
        """Drop a table just after its files were listed, and return them; start again if it has changed.

        Returns:
            The table, its files, and access to them that deletes no files of others.
        """
        for _ in range(_LOOKS_BEFORE_PURGE):
            state, files = self.find_purgeable(table)
            io = self.deleting_io(state, drops=True)
            try:
                self.drop_if_current(state)
            except CommitConflictError as error:
                log.info("looking for the files of %s again: %s", table, error)
            else:
                return state, files, io
        raise CommitConflictError(
            f"cannot purge {table}, nothing was dropped: other writers keep committing to it; stop them and try again"
        )

    @abstractmethod
    def drop_pointer(self, table: TableId) -> None:
        """Remove a table from the catalog and keep its files."""

    def drop_if_current(self, state: TableState) -> None:
        """Remove a table from the catalog if it is still in this state, and keep its files.

        This method compares and drops in two steps; catalogs whose service can do both in one override it.

        Raises:
            CommitConflictError: it has changed, or another table has its name; nothing was dropped.
        """
        pointer = self._require_pointer(state.table)
        if pointer.metadata_location != state.metadata_location:
            raise self._not_current(state, pointer.metadata_location)
        self.drop_pointer(state.table)

    def find_purgeable(self, table: TableId) -> tuple[TableState, TableFiles]:
        """Return a table with all files that are reachable from its metadata."""
        state = self.load(table)
        return state, find_files(self._files(state), str(state.table), state.metadata, state.metadata_location)

    def read_metadata(self, table: TableId, location: str) -> TableMetadata:
        """Read a metadata file of a table, at a location that its pointer or its metadata names."""
        return read_metadata(self.gate_of_pointer(table, location).around(self.io), location)

    def new_location(self, table: str | TableId) -> str:
        """Return the default location, with a unique end if another table is there, or if that is asked for.

        A table that was renamed keeps its location, and so does one that was dropped without a purge.
        """
        # Differs from Java: without `unique-table-location` two tables share one folder, and the cleanup of one may
        # delete files of the other.
        location = self.default_location(table := self.id_of(table))
        if switch(self.properties, _UNIQUE, whose=f"catalog {self.name}: ") or self._is_taken(table, location):
            return f"{location}-{self._new_uuid().hex}"
        return location

    def _is_taken(self, table: TableId, location: str) -> bool:
        with suppress(IcebergError):  # who may not look there creates the table there
            self.gate_of_pointer(table, f"{location}/metadata/")
            return has_metadata(self.io, location)
        return False

    def _files(self, state: TableState) -> FileIO:
        return self.gate(state.table, state.metadata, state.metadata_location).around(state.io or self.io)

    def _publish(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> TableState:
        """Let the table point to a new metadata file, which is deleted only if the table surely doesn't point to it."""
        location = self._new_metadata_location(base, metadata)
        files = self.gate(table, metadata, location).around(self.io)
        files.create(location, encode_metadata(metadata, location))
        try:
            pointer = self.swap_metadata(table, base=base, new=location, metadata=metadata)
        except CommitUnknownError as error:
            error.metadata_location = location
            raise
        except CommitConflictError as error:
            # A writer that keeps its place in the queue has not sent the swap yet.
            is_first = self.rules_out_echoes or error.is_our_turn
            found = None if is_first else self._read_back(table, location, error)
            if found is None or found.metadata_location != location:
                if is_first or self._is_of(table, found, metadata):
                    _delete_quietly(files, [location])
                error.metadata_location = location
                raise
            pointer = found
        except NotFoundError:
            # Perhaps renamed after the request had landed, which was repeated on its way: the file may be needed.
            if base is None:
                _delete_quietly(files, [location])
            raise
        except (AlreadyExistsError, InvalidInputError, UnsupportedError):
            _delete_quietly(files, [location])
            raise
        return self._state(table, metadata, pointer)

    def _read_back(self, table: TableId, location: str, conflict: CommitConflictError) -> Pointer | None:
        """Return the table's pointer after a conflict, which may be with our own first request.

        Drivers and proxies repeat requests whose answer was lost. Without this look the metadata file that the table
        points to would be deleted.
        """
        try:
            return self.read_pointer(table)
        except IcebergError as error:
            raise CommitUnknownError(
                f"a commit to {table} lost a race, perhaps to its own repeated request, and the table cannot be read "
                f"back: {error}",
                metadata_location=location,
            ) from conflict

    def _is_of(self, table: TableId, pointer: Pointer | None, metadata: TableMetadata) -> bool:
        """Whether another writer has committed to the same table, which then does not need the file that has lost.

        The name may be gone, or another table's: then it may be needed by the table that had the name.
        """
        if pointer is None:
            return False
        try:
            files = self.gate_of_pointer(table, pointer.metadata_location).around(self.io)
            return read_uuid(files, pointer.metadata_location) == metadata.table_uuid
        except IcebergError:
            return False

    def _new_metadata_location(self, base: TableState | None, metadata: TableMetadata) -> str:
        """Return <metadata path>/<number, five digits>-<uuid>[.gz].metadata.json, one number above the base's file."""
        number = metadata_version(base.metadata_location) + 1 if base else 0
        extension = ".gz" if is_gzip_asked(metadata.properties) else ""
        directory = TableProperties.of(metadata.properties).metadata_path or f"{metadata.location}/metadata"
        return f"{directory.rstrip('/')}/{number:05d}-{self._new_uuid()}{extension}{METADATA_SUFFIX}"

    def _state(self, table: TableId, metadata: TableMetadata, pointer: Pointer) -> TableState:
        location = pointer.metadata_location
        return TableState(table=table, metadata=metadata, metadata_location=location, token=pointer.token)

    def _delete_forgotten_metadata(self, before: TableMetadata, after: TableState) -> None:
        """Delete metadata files that are no longer in the log, if the properties say so and no other table is there."""
        if not TableProperties.of(after.metadata.properties).metadata_delete_after_commit:
            return
        files = self._files(after)
        own, foreign = own_only(files, forgotten_metadata(before, after.metadata, after.metadata_location))
        sure = files_of(files, own, after.metadata, after.metadata_location)
        sure = [] if sure and self._owner_for_commit(after) else sure
        if others := foreign + len(own) - len(sure):
            log.warning("%s: kept %d old metadata files that are gone, or may be another table's", after.table, others)
        _delete_quietly(files, sure)

    def _require_pointer(self, table: TableId) -> Pointer:
        pointer = self.read_pointer(table)
        if pointer is None:
            raise self._no_table(table)
        return pointer

    def _require_namespace(self, namespace: str | Namespace) -> Namespace:
        namespace = self.levels_of(namespace)
        if not self.namespace_exists(namespace):
            raise self._unknown_namespace(namespace)
        return namespace

    def _not_current(self, expected: TableState, found: str) -> CommitConflictError:
        return self._changed_by_another(expected.table, f"it points to {found}, expected {expected.metadata_location}")


class DescribingCatalog(PointerCatalog):
    """A pointer catalog that stores some of the metadata besides the pointer: it implements `swap_metadata`."""

    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        before = self.read_metadata(table, expected.metadata_location) if expected else None
        base = self._state(table, before, expected) if expected and before else None
        return self.swap_metadata(table, base=base, new=new, metadata=self.read_metadata(table, new))

    @abstractmethod
    def swap_metadata(
        self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata
    ) -> Pointer: ...


def _delete_quietly(io: FileIO, locations: Iterable[str]) -> None:
    try:
        io.delete(locations)
    except IcebergError as error:
        log.warning("could not delete a metadata file that is not needed any more: %s", error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
