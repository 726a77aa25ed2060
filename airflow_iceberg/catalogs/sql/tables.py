"""The two tables of a SQL catalog: their columns, by which version of JdbcCatalog's schema, and how they are made.

Not here: connections and transactions (`sql.database`), the meaning of the rows (`sql.catalog`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Column, MetaData, String, Table
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from airflow_iceberg.catalogs.sql.database import Database
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, switch

log = logging.getLogger(__name__)

TYPE_COLUMN = "iceberg_type"
# Names are case-sensitive; a key of four such columns has the largest size of a key in InnoDB.
_NAME = String(255).with_variant(String(255, collation="utf8mb4_bin"), "mysql", "mariadb")


def catalog_tables(*, with_type: bool) -> tuple[Table, Table]:
    """Return (iceberg_tables, iceberg_namespace_properties) of Iceberg's JdbcCatalog.

    Args:
        with_type: schema V1, with `iceberg_type` for tables and views; V0 has no such column.
    """

    def table(name: str, keys: Iterable[str], *others: Column[Any]) -> Table:
        return Table(name, metadata, *(Column(key, _NAME, primary_key=True) for key in keys), *others)

    metadata = MetaData()
    tables = table(
        "iceberg_tables",
        ("catalog_name", "table_namespace", "table_name"),
        Column("metadata_location", String(1000)),
        Column("previous_metadata_location", String(1000)),
        *([Column(TYPE_COLUMN, String(5))] if with_type else []),
    )
    keys = ("catalog_name", "namespace", "property_key")
    return tables, table("iceberg_namespace_properties", keys, Column("property_value", String(1000)))


def creates_tables(name: str, properties: Mapping[str, str]) -> bool:
    """Return whether the first change creates missing tables."""
    return switch(properties, "init_catalog_tables", default=True, whose=f"catalog {name}: ")


def look(name: str, database: Database, properties: Mapping[str, str]) -> bool | None:
    """Return whether the catalog's tables have the type column (V1); None if there are none. Nothing is changed.

    Raises:
        NotFoundError: there is only one of them, or they do not exist and are not created by the first change.
    """
    tables, namespaces = _columns(database)
    if tables is not None and namespaces is not None:
        return TYPE_COLUMN in tables
    if not creates_tables(name, properties):
        raise NotFoundError(f"catalog {name}: the {database} has no Iceberg tables and init_catalog_tables is false")
    if tables is None:
        return None
    raise NotFoundError(
        f"catalog {name}: the {database} has no table iceberg_namespace_properties; the first change creates it"
    )


def _columns(database: Database) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    if database.is_missing_file():
        return None, None
    return database.column_names("iceberg_tables"), database.column_names("iceberg_namespace_properties")


def no_tables() -> Database:
    """Return a database with empty tables, in memory: what a catalog looks into while its own has none."""
    made = Database("empty", {"uri": "sqlite://"})
    _create_tables(made, with_type=True)
    return made


def prepare(name: str, database: Database, properties: Mapping[str, str], version: str) -> bool:
    """Create the catalog's tables if they are missing; return whether they have the type column (V1)."""
    columns = _columns(database)
    if None in columns:
        if not creates_tables(name, properties):
            look(name, database, properties)
        if database.is_missing_file():
            log.warning(
                "catalog %s: the %s did not exist and is made now; correct the uri if it should have", name, database
            )
            database.make_file()
        _create_tables(database, with_type=version != "V0")
        columns = _columns(database)
    has_type = TYPE_COLUMN in (columns[0] or ())
    if not has_type and version == "V1":
        with database.write() as connection:
            connection.exec_driver_sql(f"ALTER TABLE iceberg_tables ADD COLUMN {TYPE_COLUMN} VARCHAR(5)")
        return True
    return has_type


def _create_tables(database: Database, *, with_type: bool) -> None:
    for table in catalog_tables(with_type=with_type):
        try:
            with database.write() as connection:
                connection.execute(CreateTable(table, if_not_exists=True))
        except (IcebergError, IntegrityError):
            # "if not exists" is no lock in PostgreSQL: of two simultaneous creations one fails, and the table exists.
            if database.column_names(table.name) is None:
                raise


def schema_version(name: str, properties: Mapping[str, str]) -> str:
    """Return the version that new tables are to have, "" for the newest; `InvalidInputError` for one there is not."""
    version = (properties.get("jdbc.schema-version") or properties.get("schema_version") or "").upper()
    if version not in ("", "V0", "V1"):
        raise InvalidInputError(f"catalog {name}: jdbc.schema-version is '{version}', expected 'V0' or 'V1'")
    return version
