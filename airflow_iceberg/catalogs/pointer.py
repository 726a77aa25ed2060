"""`PointerCatalog`: catalogs that hold, for each table, the location of its newest metadata file.

Lives here: naming and writing metadata files, and what to do with the file after each outcome of the swap. Not here:
the swap itself, which is each catalog's own (`sql`, …), and retrying (`airflow_iceberg.commit`).
"""

from __future__ import annotations

import gzip
import logging
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_iceberg.catalogs.base import Catalog, Namespace, TableId, TableState, parse_namespace
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.purge import TableFiles, delete_files, find_files
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

METADATA_SUFFIX = ".metadata.json"
# How often the files of a table are looked up again that is to be purged while others commit to it.
_LOOKS_BEFORE_PURGE = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    """What a catalog remembers of a table.

    Attributes:
        metadata_location: the newest metadata file.
        token: what the catalog wants back when it swaps (a version, a hash), beside the location.
    """

    metadata_location: str
    token: object = None


class PointerCatalog(Catalog):
    """A catalog of two methods, `read_pointer` and `swap_pointer`; load, create and commit follow from them.

    Args:
        now_ms: the clock, milliseconds since the epoch.
        new_uuid: source of the unique part of file names.

    Attributes:
        rules_out_echoes: whether the catalog's own swap makes sure that a race is not lost to a repetition of the very
            request.
    """

    rules_out_echoes = False

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        *,
        io: FileIO,
        now_ms: Callable[[], int] | None = None,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        super().__init__(name, properties, io=io)
        self._now_ms = now_ms or _now_ms
        self._new_uuid = new_uuid

    @abstractmethod
    def read_pointer(self, table: TableId) -> Pointer | None:
        """Return the table's pointer, or None if there is no such table."""

    @abstractmethod
    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        """Let the table point to `new`, if it still points to `expected` (None: if there is no such table).

        Returns:
            The new pointer.
        Raises:
            CommitConflictError: it points somewhere else (`AlreadyExistsError`: it exists, None was expected;
                `NotFoundError`: it is gone). Surely nothing was changed.
            StorageError: it did not work, and surely nothing was changed.
            CommitUnknownError: anything else that went wrong after the request was sent.
        """

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        """Do as `swap_pointer`; overridden by catalogs that show some of the metadata beside the pointer.

        Args:
            base: the state that the table must still be in; None: if there is no such table.
            new: location of the new metadata.
            metadata: what lies there.
        """
        expected = Pointer(metadata_location=base.metadata_location, token=base.token) if base else None
        return self.swap_pointer(table, expected=expected, new=new)

    def load(self, table: str | TableId) -> TableState:
        """Return the table as it is now."""
        table = TableId.of(table)
        pointer = self.read_pointer(table)
        while pointer is not None:
            try:
                return self._state(table, read_metadata(self.io, pointer.metadata_location), pointer)
            except NotFoundError:
                # Others may have committed since, and have removed the file as the table asks for.
                newer = self.read_pointer(table)
                if newer == pointer:
                    raise
                pointer = newer
        raise self._unknown_table(table)

    def table_exists(self, table: str | TableId) -> bool:
        """Tell whether there is such a table."""
        return self.read_pointer(TableId.of(table)) is not None

    def create(self, table: str | TableId, metadata: TableMetadata) -> TableState:
        """Make a table of its first metadata."""
        table = TableId.of(table)
        self._require_namespace(self.namespace_of(table))
        if self.table_exists(table):  # asked before a file is written into what may be the other table's directory
            raise AlreadyExistsError(f"table {table} exists already in catalog {self.name}")
        return self._publish(table, None, metadata)

    def commit(self, base: TableState, change: Change) -> TableState:
        """Apply a change to exactly the base state, in one try."""
        updated = apply_change(base.metadata, change, now_ms=self._now_ms(), base_location=base.metadata_location)
        if not change.updates:
            return base  # only requirements, and they hold: an equal metadata file would help nobody
        state = self._publish(base.table, base, updated)
        self._delete_forgotten_metadata(base.metadata, updated)
        return state

    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        """Bring an existing table into the catalog by its metadata file."""
        table = TableId.of(table)
        self._require_namespace(self.namespace_of(table))
        metadata = read_metadata(self.io, metadata_location)
        pointer = self.swap_metadata(table, base=None, new=metadata_location, metadata=metadata)
        return self._state(table, metadata, pointer)

    def drop_table(self, table: str | TableId, *, purge: bool = False) -> None:
        """Remove a table from the catalog; with `purge` its files are deleted once it is gone (`inventory.purge`).

        What is dropped is the very table whose files were found: it may have got another name meanwhile, and its old
        name another table.

        Raises:
            FormatError: some of the files to purge cannot be found; nothing was dropped.
            CommitConflictError: others did not stop to commit to the table that is to be purged; nothing was dropped.
            CommitUnknownError: cannot tell whether it was dropped; no file was deleted.
        """
        table = TableId.of(table)
        if not purge:
            self.drop_pointer(table)
            return
        state, files = self._drop_with_files(table)
        delete_files(state.io or self.io, table, files)

    def _drop_with_files(self, table: TableId) -> tuple[TableState, TableFiles]:
        """Drop a table just after its files were found, and return them; again from the start when it has changed."""
        for _ in range(_LOOKS_BEFORE_PURGE):
            state, files = self.find_purgeable(table)
            try:
                self.drop_if_current(state)
            except CommitConflictError as error:
                log.info("looking for the files of %s again: %s", table, error)
            else:
                return state, files
        raise CommitConflictError(
            f"cannot purge {table}, nothing was dropped: others commit to it all the time, try again when they are done"
        )

    @abstractmethod
    def drop_pointer(self, table: TableId) -> None:
        """Remove a table from the catalog; its files stay.

        Raises:
            NotFoundError: there is no such table.
        """

    def drop_if_current(self, state: TableState) -> None:
        """Remove a table from the catalog if it still is in this state; its files stay.

        This one looks and drops, in two steps; catalogs whose service can do it in one override it.

        Raises:
            NotFoundError: there is no such table any more.
            CommitConflictError: it has changed, or another table has its name; nothing was dropped.
        """
        pointer = self.read_pointer(state.table)
        if pointer is None:
            raise self._unknown_table(state.table)
        if pointer.metadata_location != state.metadata_location:
            raise self._not_current(state, pointer.metadata_location)
        self.drop_pointer(state.table)

    def find_purgeable(self, table: TableId) -> tuple[TableState, TableFiles]:
        """Return a table with all files that its metadata leads to."""
        state = self.load(table)
        return state, find_files(state.io or self.io, state)

    def _publish(self, table: TableId, base: TableState | None, metadata: TableMetadata) -> TableState:
        """Write the metadata to a new file and let the table point to it.

        The file is deleted only when it is proven that the table doesn't point to it.
        """
        location = self._new_metadata_location(base, metadata)
        self.io.create(location, encode_metadata(metadata, location))
        try:
            pointer = self.swap_metadata(table, base=base, new=location, metadata=metadata)
        except CommitUnknownError as error:
            error.metadata_location = location
            raise
        except CommitConflictError as error:
            # Whose turn it still is has not asked for the swap yet.
            is_first = self.rules_out_echoes or error.is_our_turn
            landed = None if is_first else self._find_echo(table, location, error)
            if landed is None:
                self._delete_quietly([location])
                raise
            pointer = landed
        except (AlreadyExistsError, NotFoundError, InvalidInputError, UnsupportedError):
            self._delete_quietly([location])
            raise
        return self._state(table, metadata, pointer)

    def _find_echo(self, table: TableId, location: str, conflict: CommitConflictError) -> Pointer | None:
        """Return where the table stands if what it lost the race to is its own first request, repeated on the way.

        Drivers and proxies repeat requests whose answer was lost. Without this look the metadata file would be deleted
        that the table points to. Where another writer has committed on top, the file is needed by nobody.

        Raises:
            CommitUnknownError: the catalog does not say where the table stands.
        """
        try:
            pointer = self.read_pointer(table)
        except IcebergError as error:
            raise CommitUnknownError(
                f"a commit to {table} lost a race, perhaps to its own repeated request, and the table cannot be read "
                f"back: {error}",
                metadata_location=location,
            ) from conflict
        return pointer if pointer is not None and pointer.metadata_location == location else None

    def _new_metadata_location(self, base: TableState | None, metadata: TableMetadata) -> str:
        """Return <metadata path>/<number, five digits>-<uuid>[.gz].metadata.json, one number above the base's file."""
        number = metadata_version(base.metadata_location) + 1 if base else 0
        extension = ".gz" if is_gzip_asked(metadata.properties) else ""
        directory = TableProperties.of(metadata.properties).metadata_path or f"{metadata.location.rstrip('/')}/metadata"
        return f"{directory.rstrip('/')}/{number:05d}-{self._new_uuid()}{extension}{METADATA_SUFFIX}"

    def _state(self, table: TableId, metadata: TableMetadata, pointer: Pointer) -> TableState:
        return TableState(
            table=table, metadata=metadata, metadata_location=pointer.metadata_location, token=pointer.token
        )

    def _delete_forgotten_metadata(self, before: TableMetadata, after: TableMetadata) -> None:
        """Remove the metadata files that fell off the log, for tables that ask for it."""
        if not TableProperties.of(after.properties).metadata_delete_after_commit:
            return
        kept = {location for _, location in after.metadata_log}
        self._delete_quietly([location for _, location in before.metadata_log if location not in kept])

    def _delete_quietly(self, locations: Iterable[str]) -> None:
        try:
            self.io.delete(locations)
        except IcebergError as error:
            log.warning("left a metadata file behind that nobody needs: %s", error)

    def _require_namespace(self, namespace: str | Namespace) -> Namespace:
        namespace = parse_namespace(namespace)
        if not self.namespace_exists(namespace):
            raise NotFoundError(
                f"there is no namespace {'.'.join(namespace)} in catalog {self.name}; create it first or check the name"
            )
        return namespace

    def _not_current(self, expected: TableState, found: str) -> CommitConflictError:
        return CommitConflictError(
            f"table {expected.table} in catalog {self.name} was changed by another writer: it points to {found}, "
            f"expected {expected.metadata_location}"
        )

    def _unknown_table(self, table: TableId) -> NotFoundError:
        return NotFoundError(
            f"there is no table {table} in catalog {self.name}; check the names of table, namespace and catalog"
        )


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read and parse a metadata file, compressed or not.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is no metadata file, or half of one.
    """
    return TableMetadata.from_json(io.read(location), path=location)


def encode_metadata(metadata: TableMetadata, location: str) -> bytes:
    """Return the bytes of a metadata file; they are compressed if its name says so, since Java goes by the name."""
    data = metadata.to_json()
    name = location.rpartition("/")[2]
    if name.endswith((f".gz{METADATA_SUFFIX}", f"{METADATA_SUFFIX}.gz")):
        return gzip.compress(data, compresslevel=6, mtime=0)
    return data


def metadata_version(location: str) -> int:
    """Return the number at the start of a metadata file's name ("00012-<uuid>.metadata.json": 12), or -1."""
    number, dash, _ = location.rpartition("/")[2].partition("-")
    return int(number) if dash and number.isascii() and number.isdigit() else -1


def is_gzip_asked(properties: Mapping[str, str]) -> bool:
    """Tell whether the table's metadata files are to be compressed.

    Raises:
        InvalidInputError: the property names a codec that the specification doesn't know.
    """
    return TableProperties.of(properties).metadata_compression_codec == "gzip"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
