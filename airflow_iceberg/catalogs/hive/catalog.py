"""`HiveCatalog`: pointers in a Hive Metastore, shared with Iceberg Java's HiveCatalog and PyIceberg's.

Here: namespaces, tables, and the call of each method. Not here: the swap of a pointer and its outcome
(`hive.swap`), locks (`hive.locks`), what the metastore shows of a table (`hive.tables`), calls and connections
(`hive.client`).

The metastore knows one level of namespaces, and names without case: `Sales.Orders` is `sales.orders`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, parse_namespace
from airflow_iceberg.catalogs.hive.client import ConnectionLostError, HiveClient, MetastoreFailedError
from airflow_iceberg.catalogs.hive.locks import LockSettings, user_name
from airflow_iceberg.catalogs.hive.swap import Swapper
from airflow_iceberg.catalogs.hive.tables import METADATA_LOCATION, TABLE_TYPE, Options, is_iceberg
from airflow_iceberg.catalogs.hive.thrift_interface import (
    AlreadyExistsException,
    Database,
    HiveError,
    InvalidObjectException,
    InvalidOperationException,
    NoSuchObjectException,
    PrincipalType,
    Table,
)
from airflow_iceberg.catalogs.pointer import DescribingCatalog, Outside, Pointer, read_metadata
from airflow_iceberg.errors import (
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

log = logging.getLogger(__name__)

_LOCATION, _COMMENT = "location", "comment"
_OWNER, _OWNER_TYPE = "hive.metastore.database.owner", "hive.metastore.database.owner-type"


class HiveCatalog(DescribingCatalog):
    """Tables in a Hive Metastore, 2.3 to 4.

    Args:
        name: for messages.
        properties: `uri` (several metastores separated by commas), `warehouse` (without it the metastore's own), what
            `TransportOptions`, `LockSettings` and `Options` read, `ugi`, and `engine.hive.lock-enabled`: whether tables
            that don't say themselves are committed under a lock ("true") or by compare-and-swap ("false").
    """

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, **outside)
        self._client = HiveClient(name, properties)
        self._user = properties.get("ugi", "").partition(":")[0] or user_name()
        self._swapper = Swapper(
            name, self._client, properties, settings=LockSettings.of(name, properties), options=Options(properties)
        )

    def __repr__(self) -> str:
        return f"HiveCatalog(name={self.name!r}, metastore={str(self._client)!r})"

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        """Return where the table points to.

        Raises:
            NotFoundError: there is a table of this name, which is no Iceberg table.
        """
        found = self._find(table)
        if found is None:
            return None
        if not is_iceberg(found):
            kind = (found.parameters or {}).get(TABLE_TYPE) or found.tableType
            raise NotFoundError(f"table {table} in catalog {self.name} is no Iceberg table (it is {kind})")
        location = found.parameters.get(METADATA_LOCATION)
        if not location:
            raise FormatError(f"table {table} has no metadata_location in catalog {self.name}; register it anew")
        return Pointer(metadata_location=location)

    def table_exists(self, table: str | TableId) -> bool:
        found = self._find(TableId.of(table))
        return found is not None and is_iceberg(found)

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        """Make the table, or let it show the new metadata if it still shows the base's."""
        if base is None:
            self._swapper.create(
                table, metadata, new, now_ms=self._now_ms(), owner=self._user, read_log=self._metadata_log
            )
        else:
            self._swapper.swap(table, base, metadata, new, read_log=self._metadata_log)
        return Pointer(metadata_location=new)

    def attempts(self, table: TableId) -> AbstractContextManager[None]:
        """Let a lock that was waited for be kept from one attempt to the next."""
        return self._swapper.attempts()

    def _metadata_log(self, location: str) -> frozenset[str]:
        return frozenset(earlier for _, earlier in read_metadata(self.io, location).metadata_log)

    # -- tables --------------------------------------------------------------------------------------------------

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        """Return the Iceberg tables in a namespace, sorted; views and Hive's own tables are left out."""
        namespace = self._require_namespace(namespace)
        (database,) = _hive_names(namespace)
        try:
            names = self._client.call("get_all_tables", db_name=database)
            tables = [table for table in self._client.tables(database, sorted(names)) if is_iceberg(table)]
        except HiveError as error:
            raise self._failed(f"list the tables of {database}", error) from error
        return tuple(sorted(TableId(namespace=namespace, name=table.tableName) for table in tables))

    def drop_pointer(self, table: TableId) -> None:
        if self.read_pointer(table) is None:
            raise self._unknown_table(table)
        database, name = _hive_names((*table.namespace, table.name))
        try:
            self._client.call("drop_table", dbname=database, name=name, deleteData=False)
        except NoSuchObjectException as error:
            raise self._unknown_table(table) from error
        except HiveError as error:
            raise self._failed(f"drop {table}", error) from error
        except ConnectionLostError:
            if self._find(table) is not None:
                raise

    def drop_if_current(self, state: TableState) -> None:
        """Rename the table to a name of our own if it is in this state, then remove it.

        The rename is guarded as a commit is. A process that is killed in between leaves the whole table under the name
        `airflow_iceberg_dropped_…`.
        """
        # Differs from Java: it removes whatever has the name. A metastore removes without comparing, hence two steps.
        table = state.table
        found = self._find(table)
        if found is not None and (found.parameters or {}).get("EXTERNAL", "").upper() != "TRUE":
            super().drop_if_current(state)  # the metastore would move the files of a renamed table that it manages
            return
        nameless = TableId(namespace=table.namespace, name=f"airflow_iceberg_dropped_{self._new_uuid().hex}")
        self._swapper.rename(table, nameless, expected=state.metadata_location)
        try:
            self.drop_pointer(nameless)
        except NotFoundError:
            log.info("table %s, dropped as %s, was removed by another writer", table, nameless)
        except StorageError as error:
            if self._find(nameless) is not None:
                self._swapper.rename(nameless, table)
                raise StorageError(f"cannot drop {table}, it has its name back: {error}") from error

    def register_table(self, table: str | TableId, metadata_location: str) -> TableState:
        """Bring an existing table into the metastore by its metadata file."""
        table = TableId.of(table)
        # Asked first, since afterwards a table that points to this file looks as if we had made it.
        if self._find(table) is not None:
            raise self._existing_table(table)
        return super().register_table(table, metadata_location)

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        """Give the table another name in the metastore; its files stay where they are."""
        table, to = TableId.of(table), TableId.of(to)
        self._require_namespace(to.namespace)
        if self.read_pointer(table) is None:
            raise self._unknown_table(table)
        if self._find(to) is not None:
            raise self._existing_target(table, to)
        self._swapper.rename(table, to)

    def default_location(self, table: str | TableId) -> str:
        """Return <location of the namespace>/<table>, as Hive has it."""
        table = TableId.of(table)
        base = self.load_namespace_properties(table.namespace).get(_LOCATION)
        if not base:
            raise InvalidInputError(
                f"catalog {self.name}: namespace {'.'.join(table.namespace)} has no location, give table {table} one"
            )
        return f"{base.rstrip('/')}/{table.name}"

    def _find(self, table: TableId) -> Table | None:
        """Return what the metastore has under a name, whatever it is."""
        if len(table.namespace) != 1:
            return None
        database, name = _hive_names((*table.namespace, table.name))
        try:
            return self._client.table(database, name)
        except NoSuchObjectException:
            return None
        except HiveError as error:
            raise self._failed(f"read table {table}", error) from error

    # -- namespaces ----------------------------------------------------------------------------------------------

    def create_namespace(
        self, namespace: str | Namespace, properties: Mapping[str, str] | None = None, *, if_not_exists: bool = False
    ) -> None:
        """Make a database at <warehouse>/<name>.db, unless the properties have a location."""
        namespace = parse_namespace(namespace)
        if len(namespace) != 1:
            raise InvalidInputError(
                f"namespace {'.'.join(namespace)} has {len(namespace)} levels, a Hive Metastore knows one"
            )
        (name,) = _hive_names(namespace)
        database = Database(name=name, parameters={}, description="")
        if warehouse := self.properties.get("warehouse", "").rstrip("/"):
            database.locationUri = f"{warehouse}/{name}.db"
        _set_properties(database, properties or {})
        try:
            self._client.call("create_database", database=database)
        except AlreadyExistsException as error:
            if not if_not_exists:
                raise self._existing_namespace((name,)) from error
        except InvalidObjectException as error:
            raise InvalidInputError(f"the metastore refuses namespace {name}: {error}") from error
        except HiveError as error:
            raise self._failed(f"create namespace {name}", error) from error

    def drop_namespace(self, namespace: str | Namespace) -> None:
        """Remove a database that holds nothing, no tables of others either."""
        (name,) = _hive_names(self._require_namespace(namespace))
        try:
            # The name is in no table's way: what is deleted is the entry, not the directory.
            self._client.call("drop_database", name=name, deleteData=False, cascade=False)
        except NoSuchObjectException as error:
            raise self._unknown_namespace((name,)) from error
        except InvalidOperationException as error:
            raise InvalidInputError(f"namespace {name} is not empty: {error}; drop what it holds first") from error
        except HiveError as error:
            raise self._failed(f"drop namespace {name}", error) from error

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return all databases, sorted; there is nothing below one."""
        if parent:
            self._require_namespace(parent)
            return ()
        try:
            return tuple(sorted((name,) for name in self._client.call("get_all_databases")))
        except HiveError as error:
            raise self._failed("list the namespaces", error) from error

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        return self._find_database(parse_namespace(namespace)) is not None

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the database's parameters, and its location, comment and owner under Iceberg's names."""
        return _properties_of(self._database(namespace))

    def update_namespace_properties(
        self, namespace: str | Namespace, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> None:
        """Replace the database's entry; the last of several that do so at once wins, as the metastore has it."""
        database = self._database(namespace)
        new, old = self._property_changes((database.name,), updates, removals)
        if _LOCATION in old:
            raise InvalidInputError(f"the location of namespace {database.name} cannot be removed, set another one")
        database.parameters = {key: value for key, value in (database.parameters or {}).items() if key not in old}
        if _COMMENT in old:
            database.description = ""
        if _OWNER in old:
            database.ownerName = database.ownerType = None
        _set_properties(database, new)
        try:
            self._client.call("alter_database", dbname=database.name, db=database)
        except NoSuchObjectException as error:
            raise self._unknown_namespace((database.name,)) from error
        except HiveError as error:
            raise self._failed(f"change namespace {database.name}", error) from error

    def _database(self, namespace: str | Namespace) -> Database:
        namespace = parse_namespace(namespace)
        found = self._find_database(namespace)
        if found is None:
            raise self._unknown_namespace(namespace)
        return found

    def _find_database(self, namespace: Namespace) -> Database | None:
        if len(namespace) != 1:
            return None
        (name,) = _hive_names(namespace)
        try:
            found: Database = self._client.call("get_database", name=name)
        except NoSuchObjectException:
            return None
        except HiveError as error:
            raise self._failed(f"read namespace {name}", error) from error
        return found

    def _failed(self, what: str, error: HiveError | MetastoreFailedError) -> IcebergError:
        return StorageError(f"catalog {self.name}: the metastore cannot {what}: {error}")


def _hive_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _properties_of(database: Database) -> dict[str, str]:
    found = dict(database.parameters or {})
    if database.locationUri:
        found[_LOCATION] = database.locationUri
    if database.description:
        found[_COMMENT] = database.description
    if database.ownerName:
        found[_OWNER] = database.ownerName
        if database.ownerType:
            found[_OWNER_TYPE] = PrincipalType(database.ownerType).name
    return found


def _set_properties(database: Database, properties: Mapping[str, str]) -> None:
    others = {str(key): str(value) for key, value in properties.items()}
    if _LOCATION in others:
        database.locationUri = others.pop(_LOCATION).rstrip("/")
    if _COMMENT in others:
        database.description = others.pop(_COMMENT)
    kind = others.pop(_OWNER_TYPE, None)
    if kind is not None and (kind.upper() not in PrincipalType.__members__ or _OWNER not in others):
        raise InvalidInputError(f"{_OWNER_TYPE} is '{kind}', expected USER, ROLE or GROUP, together with {_OWNER}")
    if _OWNER in others:
        database.ownerName = others.pop(_OWNER)
        database.ownerType = PrincipalType[(kind or "USER").upper()]
    database.parameters = {**(database.parameters or {}), **others}
