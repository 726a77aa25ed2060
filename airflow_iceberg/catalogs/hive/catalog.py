"""`HiveCatalog`: pointers in a Hive Metastore, shared with Iceberg Java's HiveCatalog and PyIceberg's.

Here: namespaces, tables, and the call of each method. Not here: the swap of a pointer and its outcome (`hive.swap`),
locks (`hive.locks`), the metastore's entry of a table (`hive.tables`), calls and connections (`hive.client`).

The metastore has one level of namespaces, and ignores the case of names: `Sales.Orders` is `sales.orders`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, child_namespaces, join_levels, listed_tables
from airflow_iceberg.catalogs.existing_tables import ExistingTable, HasExistingTables
from airflow_iceberg.catalogs.hive import existing
from airflow_iceberg.catalogs.hive.client import ConnectionLostError, HiveClient
from airflow_iceberg.catalogs.hive.locks import LockSettings, user_name
from airflow_iceberg.catalogs.hive.names import check_names, hive_names
from airflow_iceberg.catalogs.hive.swap import Swapper
from airflow_iceberg.catalogs.hive.tables import METADATA_LOCATION, TABLE_TYPE, Options, is_iceberg, told_location
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
from airflow_iceberg.catalogs.owners import Named
from airflow_iceberg.catalogs.pointer import DescribingCatalog, Outside, Pointer
from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

log = logging.getLogger(__name__)

_LOCATION, _COMMENT = "location", "comment"
Meanings = Mapping[type[HiveError], Callable[[HiveError], IcebergError]]
_OWNER, _OWNER_TYPE = "hive.metastore.database.owner", "hive.metastore.database.owner-type"


class HiveCatalog(DescribingCatalog, HasExistingTables):
    """Tables in a Hive Metastore, 2.3 to 4.

    Args:
        properties: `uri` (several metastores separated by commas), `warehouse` (by default the metastore's own), those
            of `TransportOptions`, `LockSettings` and `Options`, `ugi`, and `engine.hive.lock-enabled`: whether tables
            without that property are committed under a lock ("true") or by compare-and-swap ("false").
    """

    lists_pointers = True

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
        found = self._find(table)
        if found is None:
            return None
        if not is_iceberg(found) and _is_view(found):
            raise self.not_a_table(table, "a view")
        if not is_iceberg(found):
            raise NotFoundError(f"table {table} in catalog {self.name} is no Iceberg table (it is {_type_of(found)})")
        location = found.parameters.get(METADATA_LOCATION)
        if not location:
            raise FormatError(f"table {table} has no metadata_location in catalog {self.name}; register it again")
        return Pointer(metadata_location=location)

    def kind_of_name(self, table: TableId) -> str | None:
        found = self._find(table)
        if found is None or is_iceberg(found):
            return None
        return "a view" if _is_view(found) else "a table of Hive's, and none of Iceberg"

    def table_exists(self, table: str | TableId) -> bool:
        found = self._find(self.id_of(table))
        return found is not None and is_iceberg(found)

    def swap_metadata(self, table: TableId, *, base: TableState | None, new: str, metadata: TableMetadata) -> Pointer:
        if base is None:
            try:
                self._swapper.create(
                    table, metadata, new, now_ms=self._now_ms(), owner=self._user, read_log=self._log_of(table)
                )
            except AlreadyExistsError as error:
                raise self._existing_table(table) from error
        else:
            self._swapper.swap(table, base, metadata, new, read_log=self._log_of(table))
        return Pointer(metadata_location=new)

    def attempts(self, table: TableId) -> AbstractContextManager[None]:
        return self._swapper.attempts()

    def _log_of(self, table: TableId) -> Callable[[str], frozenset[str]]:
        return lambda location: frozenset(earlier for _, earlier in self.read_metadata(table, location).metadata_log)

    # -- tables --------------------------------------------------------------------------------------------------

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        namespace = self._require_namespace(namespace)
        (database,) = hive_names(namespace)
        return listed_tables(namespace, [table.tableName for table in self._tables(database)])

    def _tables(self, database: str) -> list[Table]:
        with self._errors(f"list the tables of {database}", {}):
            names = self._client.call("get_all_tables", db_name=database)
            return [table for table in self._client.tables(database, sorted(names)) if is_iceberg(table)]

    def other_pointers(self, table: TableId) -> Iterator[Named]:
        own = hive_names((*table.namespace, table.name))
        for (database,) in self.list_namespaces():
            for found in self._tables(database):
                if hive_names((database, found.tableName)) != own and (
                    pointer := found.parameters.get(METADATA_LOCATION)
                ):
                    yield (database,), found.tableName, pointer, told_location(found)

    def told_location(self, table: TableId) -> str | None:
        return told_location(self._find(table))

    def some_names(self, above: Namespace) -> Iterable[str]:
        if not above:
            return [space[-1] for space in self.list_namespaces()]
        (database,) = hive_names(above)
        names: list[str] = self._client.call("get_all_tables", db_name=database)
        return names

    def drop_pointer(self, table: TableId) -> None:
        self._require_pointer(table)
        database, name = hive_names((*table.namespace, table.name))
        try:
            with self._errors(f"drop {table}", {NoSuchObjectException: lambda _: self._unknown_table(table)}):
                self._client.call("drop_table", dbname=database, name=name, deleteData=False)
        except ConnectionLostError:
            if self._find(table) is not None:
                raise

    def drop_if_current(self, state: TableState) -> None:
        """Rename the table to a name of our own if it is in this state, then remove it.

        The rename is guarded as a commit is. A process that is killed in between leaves the whole table under the name
        `airflow_iceberg_dropped_…`.
        """
        # Differs from Java: it removes any table of the name. A metastore removes without comparing, hence two steps.
        table = state.table
        found = self._find(table)
        if found is not None and (found.parameters or {}).get("EXTERNAL", "").upper() != "TRUE":
            super().drop_if_current(state)  # a rename would move the files of a table that the metastore manages
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
        table = self.id_of(table)
        # Checked first, since afterwards a table that points to this file looks as if we had created it.
        if self._find(table) is not None:
            raise self._existing_table(table)
        return super().register_table(table, metadata_location)

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        table, to = self.id_of(table), self.id_of(to)
        self._require_namespace(to.namespace)
        self._require_pointer(table)
        if self._find(to) is not None:
            raise self._existing_target(table, to)
        self._swapper.rename(table, to)

    def default_location(self, table: str | TableId) -> str:
        """Return <location of the namespace>/<table>, as Hive does."""
        table = self.id_of(table)
        base = self.load_namespace_properties(table.namespace).get(_LOCATION)
        if not base:
            raise InvalidInputError(
                f"catalog {self.name}: namespace {join_levels(table.namespace)} has no location, give table {table} one"
            )
        return f"{base.rstrip('/')}/{table.name}"

    def _folder(self, namespace: Namespace) -> str:
        return f"{'.'.join(hive_names(namespace))}.db"

    def _namespace_of(self, folders: Sequence[str]) -> Namespace:
        return (folders[0].removesuffix(".db"),) if len(folders) == 1 and folders[0].endswith(".db") else ()

    def check_held(self, namespace: Namespace, *name: str) -> None:
        check_names(self.name, namespace, name)

    def _find(self, table: TableId) -> Table | None:
        """Return the metastore's entry of a name, Iceberg table or not."""
        if len(table.namespace) != 1:
            return None
        database, name = hive_names((*table.namespace, table.name))
        try:
            return self._client.table(database, name)
        except NoSuchObjectException:
            return None
        except HiveError as error:
            raise self._failed(f"read table {table}", error) from error

    # -- tables that are no Iceberg tables -----------------------------------------------------------------------

    def existing_table(self, table: TableId) -> ExistingTable:
        return existing.describe(self._client, self.name, table)

    def has_entry(self, table: TableId) -> bool:
        return self._find(table) is not None

    def is_set_aside(self, aside: TableId, table: TableId) -> bool:
        return existing.is_aside(self._find(aside), table)

    def set_aside(self, table: TableId, to: TableId) -> None:
        existing.set_aside(self._client, table, to)

    def put_back(self, aside: TableId, to: TableId) -> None:
        existing.put_back(self._client, aside, to)

    def keep_aside(self, aside: TableId, table: TableId) -> None:
        existing.keep_aside(self._client, aside, table)

    def drop_aside(self, aside: TableId, table: TableId) -> None:
        existing.drop_aside(self._client, aside, table)

    # -- namespaces ----------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Create a database at <warehouse>/<name>.db, unless the properties have a location."""
        if len(namespace) != 1:
            raise InvalidInputError(
                f"namespace {join_levels(namespace)} has {len(namespace)} levels, a Hive Metastore has one"
            )
        (name,) = hive_names(namespace)
        database = Database(name=name, parameters={}, description="")
        if warehouse := self.properties.get("warehouse", "").rstrip("/"):
            database.locationUri = f"{warehouse}/{name}.db"
        _set_properties(database, properties)
        try:
            self._client.call("create_database", database=database)
        except AlreadyExistsException:
            return False
        except InvalidObjectException as error:
            raise InvalidInputError(f"the metastore refuses namespace {name}: {error}") from error
        except HiveError as error:
            raise self._failed(f"create namespace {name}", error) from error
        return True

    def drop_namespace(self, namespace: str | Namespace) -> None:
        """Remove a database that holds no table of any kind; its directory is kept."""
        (name,) = hive_names(self._require_namespace(namespace))
        meanings: Meanings = {
            NoSuchObjectException: lambda _: self._unknown_namespace((name,)),
            InvalidOperationException: lambda error: self._held(name, error),
        }
        with self._errors(f"drop namespace {name}", meanings):
            self._client.call("drop_database", name=name, deleteData=False, cascade=False)

    def _held(self, database: str, error: HiveError) -> InvalidInputError:
        """Return the error for a database to drop that the metastore does not find empty."""
        with suppress(HiveError, IcebergError):
            names = sorted(self._client.call("get_all_tables", db_name=database))
            for found in self._client.tables(database, names[:1]):
                kind = "view" if _is_view(found) else "table"
                return self._not_empty((database,), kind, found.tableName)
        return InvalidInputError(f"namespace {database} is not empty: {error}; drop what it holds first")

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        """Return all databases, sorted; there are none below another."""
        if parent:
            self._require_namespace(parent)
            return ()
        with self._errors("list the namespaces", {}):
            return child_namespaces((), ((name,) for name in self._client.call("get_all_databases")))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        return self._find_database(self.levels_of(namespace)) is not None

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the database's parameters, and its location, comment and owner under Iceberg's names."""
        return _properties_of(self._database(namespace))

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        """Replace the database's entry; the metastore does not compare, so the last of several writers wins."""
        database = self._database(namespace)
        if _LOCATION in old:
            raise InvalidInputError(f"the location of namespace {database.name} cannot be removed, set another one")
        database.parameters = {key: value for key, value in (database.parameters or {}).items() if key not in old}
        if _COMMENT in old:
            database.description = ""
        if _OWNER in old:
            database.ownerName = database.ownerType = None
        _set_properties(database, new)
        meanings: Meanings = {NoSuchObjectException: lambda _: self._unknown_namespace((database.name,))}
        with self._errors(f"change namespace {database.name}", meanings):
            self._client.call("alter_database", dbname=database.name, db=database)

    def _database(self, namespace: str | Namespace) -> Database:
        namespace = self.levels_of(namespace)
        found = self._find_database(namespace)
        if found is None:
            raise self._unknown_namespace(namespace)
        return found

    def _find_database(self, namespace: Namespace) -> Database | None:
        if len(namespace) != 1:
            return None
        (name,) = hive_names(namespace)
        try:
            found: Database = self._client.call("get_database", name=name)
        except NoSuchObjectException:
            return None
        except HiveError as error:
            raise self._failed(f"read namespace {name}", error) from error
        return found

    @contextmanager
    def _errors(self, what: str, meanings: Meanings) -> Iterator[None]:
        """Raise what an error of the metastore inside the block means, by its type."""
        try:
            yield
        except HiveError as error:
            meaning = meanings.get(type(error))
            raise (meaning(error) if meaning else self._failed(what, error)) from error

    def _failed(self, what: str, error: HiveError) -> StorageError:
        return StorageError(f"catalog {self.name}: the metastore cannot {what}: {error}")


def _is_view(found: Table) -> bool:
    return "VIEW" in _type_of(found).upper()


def _type_of(found: Table) -> str:
    return str((found.parameters or {}).get(TABLE_TYPE) or found.tableType)


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
    others = dict(properties)
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
