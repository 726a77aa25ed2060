"""`Swapper`: how a table's pointer is swapped in the Hive Metastore, under a lock or by compare-and-swap.

A table is committed in one of two ways, and **all its writers must use the same one** (`engine.hive.lock-enabled`):

- under an exclusive lock of the metastore: read the table again, compare, check the lock, alter, check it again;
- without locks: the metastore itself compares `metadata_location` with the expected value (HIVE-26882). Servers before
  2.3.10 and 4.0 silently ignore the expected value, so that commits would be lost: each connection's server is probed.

Not here: waiting for locks (`hive.locks`), the metastore's entry of a table (`hive.tables`).
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from airflow_iceberg.catalogs.base import TableId, TableState
from airflow_iceberg.catalogs.hive.alter import call_alter, enforces_expected, hive_name, is_modified
from airflow_iceberg.catalogs.hive.client import Connection, ConnectionLostError, HiveClient, MetastoreFailedError
from airflow_iceberg.catalogs.hive.locks import LockSettings, TableLock, Turns
from airflow_iceberg.catalogs.hive.tables import (
    LOCK_ENABLED,
    METADATA_LOCATION,
    ZONED,
    ZONED_HIVE2,
    Options,
    hive_columns,
    is_iceberg,
    new_table,
    update_table,
)
from airflow_iceberg.catalogs.hive.thrift_interface import (
    AlreadyExistsException,
    HiveError,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    Table,
)
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    switch,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.redaction import said

log = logging.getLogger(__name__)

ReadLog = Callable[[str], frozenset[str]]

# Pauses before each read of the table after a lost or unclear answer. A request whose connection broke may still run in
# the server for a moment, and under a lock it must not be done after the lock is released.
_PAUSES_SECONDS = (0.0, 0.2, 0.6, 1.2)


class Swapper:
    """Creates, swaps and renames tables of one metastore; `sleep`, in seconds, is replaceable in tests."""

    def __init__(
        self,
        name: str,
        client: HiveClient,
        properties: Mapping[str, str],
        *,
        settings: LockSettings,
        options: Options,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._catalog = name
        self._client = client
        names = (f"iceberg.{LOCK_ENABLED}", LOCK_ENABLED)
        self._properties = properties
        self._is_locking_by_default = switch(properties, *names, default=True, whose=f"catalog {name}: ")
        self._settings = settings
        self._options = options
        self._sleep = sleep
        self._turns = Turns()

    # -- the three operations ------------------------------------------------------------------------------------

    def create(
        self, table: TableId, metadata: TableMetadata, location: str, *, now_ms: int, owner: str, read_log: ReadLog
    ) -> None:
        """Create a table; the metastore makes sure that its name is unique."""
        zoned = self._zoned(metadata)
        made = new_table(
            *hive_name(table), metadata, location, now_ms=now_ms, owner=owner, options=self._options, zoned=zoned
        )
        try:
            self._client.call("create_table", tbl=made)
        except AlreadyExistsException as error:
            # A metastore that retries itself may find the table of its own first attempt.
            if not self._has_landed(table, location, read_log):
                raise AlreadyExistsError(f"table {table} exists already in catalog {self._catalog}") from error
        except (InvalidObjectException, NoSuchObjectException) as error:
            raise InvalidInputError(f"the metastore refuses table {table}: {error}") from error
        except (MetaException, MetastoreFailedError, ConnectionLostError) as error:
            for _ in self._looks():
                if self._has_landed(table, location, read_log):
                    return
            if isinstance(error, ConnectionLostError):
                raise CommitUnknownError(f"cannot tell whether table {table} was created: {error}") from error
            raise StorageError(f"the metastore cannot create table {table}: {error}") from error

    def swap(
        self, table: TableId, base: TableState, metadata: TableMetadata, location: str, *, read_log: ReadLog
    ) -> None:
        """Let a table point to newer metadata if it still points to the base's."""
        zoned = self._zoned(metadata)

        def still_current() -> None:
            self._require(table, self._read(table), base.metadata_location)

        with self._guarded(table, self._is_locking(base.metadata.properties), still_current) as lock:
            found = self._read(table)
            try:
                self._require(table, found, base.metadata_location)
            except CommitConflictError as error:
                error.is_our_turn = self._turns.keep(table, lock)
                raise
            changed = copy.deepcopy(found)
            update_table(changed, metadata, location, before=base.metadata, options=self._options, zoned=zoned)
            with self._client.connection() as connection:
                self._before(table, found, lock, connection)
                try:
                    self._alter_columns_too(connection, table, found, changed, lock)
                except InvalidOperationException as error:
                    self._read(table)  # it may no longer exist, which is the better message
                    raise StorageError(f"the metastore refuses the commit to {table}: {error}") from error
                except (MetaException, MetastoreFailedError, ConnectionLostError) as error:
                    self._settle(table, base.metadata_location, location, error, lock, read_log)
            self._after(table, lock)

    def rename(self, table: TableId, to: TableId, *, expected: str | None = None) -> None:
        """Rename a table that points to the expected location (None: any), guarded like a commit."""
        locking = self._is_locking(self._read(table).parameters or {})
        with self._guarded(table, locking) as lock:
            found = self._read(table)
            if expected is not None:
                self._require(table, found, expected)
            changed = copy.deepcopy(found)
            changed.dbName, changed.tableName = hive_name(to)
            with self._client.connection() as connection:
                self._before(table, found, lock, connection)
                try:
                    self._alter(connection, found, changed, lock)
                except HiveError as error:
                    raise self._explain_rename(table, to, error) from error
                except (MetastoreFailedError, ConnectionLostError) as error:
                    if not self._is_renamed(table, to, found):
                        raise CommitUnknownError(f"cannot tell whether {table} was renamed to {to}: {error}") from error

    def _is_renamed(self, table: TableId, to: TableId, found: Table) -> bool:
        moved = self._find(to)
        location = (moved.parameters or {}).get(METADATA_LOCATION) if moved is not None else None
        return self._find(table) is None and location == found.parameters[METADATA_LOCATION]

    def _explain_rename(self, table: TableId, to: TableId, error: HiveError) -> IcebergError:
        if is_modified(error):
            return CommitConflictError(f"cannot rename {table}: it was changed by another writer meanwhile; try again")
        if self._find(to) is not None:
            return AlreadyExistsError(f"cannot rename {table}: {to} exists already in catalog {self._catalog}")
        self._read(table)
        return StorageError(f"the metastore cannot rename {table} to {to}: {error}")

    def _zoned(self, metadata: TableMetadata) -> str:
        """Return the server's word for times with a zone; its version is read only if there are such columns."""
        if not any(ZONED in column.type for column in hive_columns(metadata.schema())):
            return ZONED
        is_hive2 = self._client.is_hive_2() if self._options.is_hive2 is None else self._options.is_hive2
        return ZONED_HIVE2 if is_hive2 else ZONED

    # -- guards --------------------------------------------------------------------------------------------------

    def _is_locking(self, properties: Mapping[str, str]) -> bool:
        """Whether a table is committed under a lock: by its own property, the catalog's, or by default."""
        own = properties.get(LOCK_ENABLED)
        return self._is_locking_by_default if own is None else own.strip().lower() != "false"

    def attempts(self) -> AbstractContextManager[None]:
        """Return a context for the attempts at one commit: a writer with a lock and an old base keeps the lock."""
        return self._turns.attempts()

    @contextmanager
    def _guarded(
        self, table: TableId, locking: bool, while_waiting: Callable[[], None] | None = None
    ) -> Iterator[TableLock | None]:
        if not locking:
            yield None
            return
        lock = self._turns.take(table)
        if lock is None:
            lock = self._new_lock(table, while_waiting)
            lock.acquire()
        try:
            yield lock
        finally:
            if not self._turns.is_kept(lock):
                lock.give_back()

    def _new_lock(self, table: TableId, while_waiting: Callable[[], None] | None) -> TableLock:
        database, name = hive_name(table)
        user = self._properties.get("ugi", "").partition(":")[0] or None
        return TableLock(
            self._client,
            self._settings,
            table=str(table),
            database=database,
            name=name,
            user=user,
            # A writer that will commit on a newer base keeps its place in the queue.
            while_waiting=None if self._turns.is_open else while_waiting,
        )

    def _before(self, table: TableId, found: Table, lock: TableLock | None, connection: Connection) -> None:
        if lock is not None:
            lock.check()
        elif not enforces_expected(connection, found):
            raise UnsupportedError(
                f"cannot commit to {table} without locks: the metastore at {connection.address} ignores the expected "
                "parameter, so that commits could be lost; use Hive 2.3.10, 4.0 or later, or commit under locks by "
                f"{LOCK_ENABLED}=true for all writers of the table"
            )

    def _after(self, table: TableId, lock: TableLock | None) -> None:
        if lock is None:
            return
        try:
            lock.check()
        except (CommitConflictError, StorageError) as error:
            raise CommitUnknownError(
                f"the commit to {table} was written, but another writer may have committed in between: {error}"
            ) from error

    # -- calls and their outcome ---------------------------------------------------------------------------------

    def _alter_columns_too(
        self, connection: Connection, table: TableId, found: Table, changed: Table, lock: TableLock | None
    ) -> None:
        try:
            self._alter(connection, found, changed, lock)
        except InvalidOperationException as error:
            if changed.sd.cols == found.sd.cols:
                raise
            # Differs from Java: its commit fails. Only Hive reads these columns, and by default its metastore refuses
            # most changes of them (hive.metastore.disallow.incompatible.col.type.changes).
            log.warning(
                "table %s keeps its old columns in the metastore, which refused the new ones: %s", table, said(error)
            )
            changed.sd.cols = found.sd.cols
            self._alter(connection, found, changed, lock)

    def _alter(self, connection: Connection, found: Table, changed: Table, lock: TableLock | None) -> None:
        expected = None if lock is not None else found.parameters[METADATA_LOCATION]
        call_alter(connection, found, changed, expected=expected)

    def _settle(
        self, table: TableId, old: str, new: str, error: Exception, lock: TableLock | None, read_log: ReadLog
    ) -> None:
        """Find out the outcome of a swap whose answer was lost or was an error; return if it landed.

        Raises:
            CommitConflictError: it surely did not land, others were first.
            StorageError: it surely did not land, and no other writer's did.
        """
        is_in_flight = isinstance(error, ConnectionLostError)
        unknown = CommitUnknownError(f"cannot tell whether the commit to {table} landed: {error}")
        last: str | None = None
        for _ in self._looks():
            try:
                last = self._location(table)
                if last == new:
                    return
                if last is not None and last != old:
                    earlier = read_log(last)
                    break
            except IcebergError as unreadable:
                log.warning("cannot read %s back: %s", table, unreadable)
                last = None
        else:
            if last != old or is_in_flight:
                raise unknown from error
            raise StorageError(f"the metastore cannot commit to {table}: {error}") from error
        if new in earlier:
            return
        # The log loses its oldest entries first: if the base is in it, all later ones are in it, too.
        if old not in earlier or (is_in_flight and lock is not None):
            raise unknown from error
        raise CommitConflictError(
            f"table {table} in catalog {self._catalog} was changed by another writer: it points to {last}, "
            f"expected {old}"
        ) from error

    def _looks(self) -> Iterator[None]:
        for pause in _PAUSES_SECONDS:
            if pause:
                self._sleep(pause)
            yield

    def _has_landed(self, table: TableId, location: str, read_log: ReadLog) -> bool:
        """Whether a table points to a location, or did before; False also if it can't be read."""
        try:
            found = self._location(table)
            return found is not None and (found == location or location in read_log(found))
        except IcebergError as error:
            log.warning("cannot read %s back: %s", table, error)
            return False

    def _location(self, table: TableId) -> str | None:
        found = self._find(table)
        if found is None or not is_iceberg(found):
            return None
        location: str | None = found.parameters.get(METADATA_LOCATION)
        return location

    def _find(self, table: TableId) -> Table | None:
        database, name = hive_name(table)
        try:
            return self._client.table(database, name)
        except NoSuchObjectException:
            return None
        except HiveError as error:
            raise StorageError(f"catalog {self._catalog}: the metastore cannot read {table}: {error}") from error

    def _read(self, table: TableId) -> Table:
        found = self._find(table)
        if found is None or not is_iceberg(found):
            raise NotFoundError(
                f"there is no table {table} in catalog {self._catalog}; check the names of table, namespace and catalog"
            )
        return found

    def _require(self, table: TableId, found: Table, expected: str) -> None:
        location = found.parameters.get(METADATA_LOCATION)
        if location != expected:
            raise CommitConflictError(
                f"table {table} in catalog {self._catalog} was changed by another writer: it points to {location}, "
                f"expected {expected}"
            )
