"""`SqlCatalog`: pointers in two tables of a database, shared with Iceberg's JdbcCatalog and PyIceberg's SqlCatalog.

Here: the meaning of rows. Not here: the tables (`sql.tables`), connections and their failures (`sql.database`),
metadata files (`pointer`).

All three implementations have the same two tables and primary keys, join the levels of a namespace by dots, keep an
empty namespace by a row `exists = true`, and commit by one UPDATE that compares the old location.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Unpack

from sqlalchemy import (
    BINARY,
    ColumnElement,
    LargeBinary,
    and_,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState, child_namespaces, join_levels, listed_tables
from airflow_iceberg.catalogs.missing import MOST_NAMES
from airflow_iceberg.catalogs.owners import owner_among
from airflow_iceberg.catalogs.pointer import Outside, Pointer, PointerCatalog
from airflow_iceberg.catalogs.sql.database import Database
from airflow_iceberg.catalogs.sql.own_tables import OwnTables
from airflow_iceberg.catalogs.sql.same_place import levels_of_column, other_pointer
from airflow_iceberg.catalogs.sql.tables import TYPE_COLUMN, catalog_tables, creates_tables
from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    StorageError,
)
from airflow_iceberg.inventory.limited import limits_of

log = logging.getLogger(__name__)

_EXISTS = "exists"
_MOST_CATALOGS = 10
_LOCATION = "location"
_TABLE = "TABLE"


class SqlCatalog(PointerCatalog):
    """Tables in a SQL database.

    Args:
        name: part of every row's key: all programs that share the catalog must use the same name.
        properties: `uri`, `warehouse`, `user` and `password` unless they are in the uri, `init_catalog_tables`
            ("true": the first change creates missing tables), `jdbc.schema-version` ("V0" or "V1") for new tables; "V1"
            also upgrades those of a V0 catalog.
    """

    owners_are_cheap = True

    def __init__(self, name: str, properties: Mapping[str, str], **outside: Unpack[Outside]) -> None:
        super().__init__(name, properties, **outside)
        self._opened = Database(name, properties)
        self._own = OwnTables(name, self._opened, properties)
        self._tables, self._namespaces = catalog_tables(with_type=True)

    def __repr__(self) -> str:
        return f"SqlCatalog(name={self.name!r}, database={str(self._opened)!r})"

    def missing(self) -> str | None:
        """Return that the database or its tables do not exist; None if they are not created automatically."""
        if not creates_tables(self.name, self.properties):
            return None
        if self._opened.is_missing_file():
            return f"the {self._opened} does not exist yet"
        if any(self._opened.column_names(each.name) is None for each in (self._tables, self._namespaces)):
            return f"the {self._opened} has no Iceberg tables yet"
        return None

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self, table: TableId) -> Pointer | None:
        database = self._database()
        with database.read() as connection:
            row = connection.execute(select(self._tables.c.metadata_location).where(self._is_table(table))).first()
        if row is None:
            return None
        if not row[0]:
            raise FormatError(f"table {table} has no metadata_location in the {database}; register it again")
        return Pointer(metadata_location=row[0])

    def swap_pointer(self, table: TableId, *, expected: Pointer | None, new: str) -> Pointer:
        """Insert the row, or update it if it still has the expected location."""
        if expected is None:
            self._insert(table, new)
        else:
            self._update(table, expected.metadata_location, new)
        return Pointer(metadata_location=new)

    def _insert(self, table: TableId, new: str) -> None:
        values = {
            "catalog_name": self.name,
            "table_namespace": _joined(table.namespace),
            "table_name": table.name,
            "metadata_location": new,
        }
        try:
            with self._keys() as connection:
                if self._own.has_type:
                    values[TYPE_COLUMN] = _TABLE
                connection.execute(insert(self._tables).values(values))
        except AlreadyExistsError as error:
            raise self._existing_table(table) from error

    @contextmanager
    def _keys(self) -> Iterator[Connection]:
        """Open a transaction that fails with `AlreadyExistsError` for a key that is there."""
        with self._own.to_change().write() as connection:
            try:
                yield connection
            except IntegrityError as error:
                raise AlreadyExistsError("there is a row of this key") from error

    def _update(self, table: TableId, old: str, new: str) -> None:
        tables = self._tables
        statement = (
            update(tables)
            .where(self._is_table(table), tables.c.metadata_location == old)
            .values(metadata_location=new, previous_metadata_location=old)
        )
        with self._own.to_change().write() as connection:
            if connection.execute(statement).rowcount == 1:
                return
        self._explain_lost_race(table, old, new)

    def _explain_lost_race(self, table: TableId, old: str, new: str) -> None:
        try:
            found = self.read_pointer(table)
        except StorageError:
            found = None  # it is certain that the update changed no row
            detail = "its metadata is no longer the expected one"
        else:
            if found is None:
                raise self._unknown_table(table)
            detail = f"it points to {found.metadata_location}, expected {old}"
        raise self._changed_by_another(table, detail)

    # -- tables --------------------------------------------------------------------------------------------------

    def list_tables(self, namespace: str | Namespace) -> tuple[TableId, ...]:
        return self._listed_tables(self._require_namespace(namespace))

    def _listed_tables(self, namespace: Namespace, most: int | None = None) -> tuple[TableId, ...]:
        columns = self._tables.c
        is_in = self._same(columns.table_namespace, _joined(namespace))
        wanted = select(columns.table_name).where(self._same(columns.catalog_name, self.name), is_in, *self._no_view())
        with self._database().read() as connection:
            return listed_tables(namespace, connection.execute(wanted.limit(most)).scalars())

    def some_names(self, above: Namespace) -> Iterable[str]:
        tables = self._listed_tables(above, MOST_NAMES) if above else ()
        return [each.name for each in tables] or [each[-1] for each in self.list_namespaces(above or None)]

    def kind_of_name(self, table: TableId) -> str | None:
        """Return what the row of a name is, by the type that Iceberg Java has written."""
        self._database()
        kind = self._tables.c[TYPE_COLUMN]
        if not self._own.has_type:
            return None
        with self._opened.read() as connection:
            found = connection.execute(select(kind).where(self._has_name(table), kind != _TABLE)).scalar()
        return None if found is None else f"a {found.lower()}"

    def why_missing(self, table: TableId) -> str | None:
        """Return the catalogs whose tables are in the database, if there are only others."""
        named = self._tables.c.catalog_name
        with self._database().read() as connection:
            if connection.execute(select(named).where(self._same(named, self.name)).limit(1)).first() is not None:
                return None
            names = connection.execute(select(named).distinct().limit(_MOST_CATALOGS)).scalars().all()
        if not names:
            return "the database has no tables at all"
        others = ", ".join(sorted(repr(name) for name in names))
        return f"the database has tables of catalog {others} only; set that as catalog_name"

    def drop_pointer(self, table: TableId) -> None:
        with self._own.to_change().write() as connection:
            is_gone = connection.execute(delete(self._tables).where(self._is_table(table))).rowcount == 0
        if is_gone:
            raise self._no_table(table)

    def drop_if_current(self, state: TableState) -> None:
        """Remove the table's row if it still has the state's location."""
        is_current = and_(self._is_table(state.table), self._tables.c.metadata_location == state.metadata_location)
        with self._own.to_change().write() as connection:
            if connection.execute(delete(self._tables).where(is_current)).rowcount == 1:
                return
        found = self.read_pointer(state.table)
        raise self._not_current(state, found.metadata_location) if found else self._unknown_table(state.table)

    def rename_table(self, table: str | TableId, to: str | TableId) -> None:
        table, to = self.id_of(table), self.id_of(to)
        self._require_namespace(to.namespace)
        self.check_new_name(to)
        statement = (
            update(self._tables)
            .where(self._is_table(table))
            .values(table_namespace=_joined(to.namespace), table_name=to.name)
        )
        try:
            with self._keys() as connection:
                changed = connection.execute(statement).rowcount
        except AlreadyExistsError as error:
            raise self._existing_target(table, to) from error
        if changed == 0:
            raise self._no_table(table)

    def default_location(self, table: str | TableId) -> str:
        """Return <location of the namespace>/<table>, or <warehouse>/<levels of the namespace>/<table>."""
        table = self.id_of(table)
        own = self._namespace_rows(table.namespace).get(_LOCATION)
        return f"{self._base_location(table, own, '/'.join(table.namespace))}/{table.name}"

    def _owner_of(self, state: TableState, *, is_home: bool, drops: bool = False) -> TableId | None:
        """Return the table whose pointer leads to where this one's metadata is, or whose name leads to its location.

        Also where a table is at home: one that was renamed stays at the place of its old name. There a second name of
        the very same state has the same files, and loses none as long as the table is not dropped.
        """
        is_ours = self._same(self._tables.c.catalog_name, self.name)
        with self._database().read() as connection:
            owner = other_pointer(connection, self._tables, is_ours, state, may_be_same=is_home and not drops)
        if owner is not None or is_home:
            return owner
        return owner_among(self, self._names_of(state.metadata.location), state.table, state.metadata.location)

    # -- namespaces ----------------------------------------------------------------------------------------------

    def _create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> bool:
        """Write the rows of the namespace: its properties, and one that says that it exists."""
        _check_reserved(properties)
        if self.namespace_exists(namespace):
            return False
        try:
            with self._own.to_change().write() as connection:
                self._insert_properties(connection, namespace, {**properties, _EXISTS: "true"})
        except AlreadyExistsError:
            return False
        return True

    def drop_namespace(self, namespace: str | Namespace) -> None:
        namespace = self._require_namespace(namespace)
        tables, namespaces = self._tables, self._namespaces
        with self._own.to_change().write() as connection:
            kind = tables.c[TYPE_COLUMN] if self._own.has_type else literal(_TABLE)
            inside = connection.execute(
                select(tables.c.table_name, kind).where(
                    self._same(tables.c.catalog_name, self.name), self._at_or_below(tables.c.table_namespace, namespace)
                )
            ).first()
            below = connection.execute(
                select(namespaces.c.namespace).where(
                    self._same(namespaces.c.catalog_name, self.name),
                    self._at_or_below(namespaces.c.namespace, namespace),
                    namespaces.c.namespace != _joined(namespace),
                )
            ).first()
            if inside or below:
                names = ((inside[1] or _TABLE).lower(), inside[0]) if inside else ("namespace", below and below[0])
                raise self._not_empty(namespace, *names)
            connection.execute(delete(namespaces).where(self._is_namespace(namespace)))

    def check_held(self, namespace: Namespace, *name: str) -> None:
        if dotted := [level for level in namespace if "." in level]:
            raise InvalidInputError(
                f"{join_levels(dotted[:1])} cannot be a level of a namespace in catalog {self.name}: a SQL catalog "
                f"stores levels joined by dots, so none may contain one; rename it"
            )

    def list_namespaces(self, parent: str | Namespace | None = None) -> tuple[Namespace, ...]:
        above = self._require_namespace(parent) if parent else ()
        with self._database().read() as connection:
            found = [
                connection.execute(select(column).where(self._same(of_catalog, self.name)).distinct()).scalars().all()
                for of_catalog, column in self._naming_namespaces()
            ]
        return child_namespaces(above, (levels_of_column(name) for names in found for name in names))

    def namespace_exists(self, namespace: str | Namespace) -> bool:
        """Tell whether the namespace has rows of its own, or a table or a namespace in it."""
        namespace = self.levels_of(namespace)
        with self._database().read() as connection:
            for of_catalog, column in self._naming_namespaces():
                is_there = and_(self._same(of_catalog, self.name), self._at_or_below(column, namespace))
                if connection.execute(select(column).where(is_there).limit(1)).first():
                    return True
        return False

    def _naming_namespaces(self) -> tuple[tuple[ColumnElement[str], ColumnElement[str]], ...]:
        """Return (column of the catalog's name, column of a namespace) of both tables."""
        namespaces, tables = self._namespaces.c, self._tables.c
        return (namespaces.catalog_name, namespaces.namespace), (tables.catalog_name, tables.table_namespace)

    def load_namespace_properties(self, namespace: str | Namespace) -> Mapping[str, str]:
        """Return the namespace's properties; its location is the one in the warehouse unless it has another."""
        namespace = self._require_namespace(namespace)
        warehouse = self.properties.get("warehouse", "").rstrip("/")
        location = {_LOCATION: "/".join((warehouse, *namespace))} if warehouse else {}
        return {**location, **{key: value for key, value in self._namespace_rows(namespace).items() if key != _EXISTS}}

    def _update_namespace(self, namespace: Namespace, new: dict[str, str], old: frozenset[str]) -> None:
        """Replace the rows of the properties in one transaction."""
        self._require_namespace(namespace)
        _check_reserved({*new, *old})
        key = self._namespaces.c.property_key
        with self._own.to_change().write() as connection:
            # PyIceberg leaves out the row that keeps the namespace if there are properties.
            rows = {**new, _EXISTS: "true"}
            connection.execute(
                delete(self._namespaces).where(self._is_namespace(namespace), key.in_(sorted(old | set(rows))))
            )
            self._insert_properties(connection, namespace, rows)

    def _insert_properties(self, connection: Connection, namespace: Namespace, rows: Mapping[str, str]) -> None:
        key = {"catalog_name": self.name, "namespace": _joined(namespace)}
        values = [{**key, "property_key": name, "property_value": value} for name, value in rows.items()]
        try:
            connection.execute(insert(self._namespaces), values)
        except IntegrityError as error:
            message = f"namespace {join_levels(namespace)} was written by another writer in catalog {self.name}"
            raise AlreadyExistsError(message) from error

    def _namespace_rows(self, namespace: Namespace) -> dict[str, str]:
        columns = self._namespaces.c
        with self._database().read() as connection:
            rows = connection.execute(
                select(columns.property_key, columns.property_value).where(self._is_namespace(namespace))
            ).all()
        return {str(key): str(value) for key, value in rows if value is not None}

    # -- conditions ----------------------------------------------------------------------------------------------

    def _is_table(self, table: TableId) -> ColumnElement[bool]:
        return and_(self._has_name(table), *self._no_view())

    def _has_name(self, table: TableId) -> ColumnElement[bool]:
        columns = self._tables.c
        return and_(
            self._same(columns.catalog_name, self.name),
            self._same(columns.table_namespace, _joined(table.namespace)),
            self._same(columns.table_name, table.name),
        )

    def _same(self, column: ColumnElement[str], value: str) -> ColumnElement[bool]:
        """Return the condition that a column has exactly this value.

        Collations of MySQL may ignore case and blanks at the end; the plain comparison lets it use the index.
        """
        if not self._opened.ignores_case:
            return column == value
        return and_(column == value, cast(column, BINARY) == literal(value.encode(), LargeBinary))

    def _at_or_below(self, column: ColumnElement[str], namespace: Namespace) -> ColumnElement[bool]:
        # Not LIKE: in SQLite it ignores case, and a name may hold its wildcards.
        prefix = f"{_joined(namespace)}."
        return or_(self._same(column, _joined(namespace)), self._same(func.substr(column, 1, len(prefix)), prefix))

    def _no_view(self) -> tuple[ColumnElement[bool], ...]:
        self._database()
        if not self._own.has_type:
            return ()
        column = self._tables.c[TYPE_COLUMN]
        return (or_(column == _TABLE, column.is_(None)),)

    def _is_namespace(self, namespace: Namespace) -> ColumnElement[bool]:
        columns = self._namespaces.c
        return and_(self._same(columns.catalog_name, self.name), self._same(columns.namespace, _joined(namespace)))

    def _database(self) -> Database:
        return self._own.to_read(changes_nothing=limits_of(self.io) is not None)


def _check_reserved(names: Collection[str]) -> None:
    if _EXISTS in names:
        raise InvalidInputError(
            f"'{_EXISTS}' is not a property that can be set or removed: it marks that a namespace exists"
        )


def _joined(namespace: Namespace) -> str:
    return ".".join(namespace)
