"""Which other row of a database leads to the folder where a table has its metadata: however either is spelled."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, or_, select
from sqlalchemy.engine import Connection

from airflow_iceberg.catalogs.names import Namespace, TableId
from airflow_iceberg.catalogs.owners import folder_of, metadata_places
from airflow_iceberg.catalogs.state import TableState
from airflow_iceberg.storage.gate import Place


def other_pointer(
    connection: Connection,
    tables: Table,
    is_of_catalog: ColumnElement[bool],
    state: TableState,
    *,
    may_be_same: bool,
) -> TableId | None:
    """Return a table of another name whose metadata file is in a folder of this table's metadata files.

    Args:
        may_be_same: whether a name for the very metadata file of this table is none of another one.
    Raises:
        InvalidInputError: there is one, and its name is one that no table can have here.
    """
    places = metadata_places(state)
    columns = tables.c
    # The database knows no spellings: each has the name of the folder in it.
    is_near = or_(*(columns.metadata_location.contains(_own_name(place), autoescape=True) for place in places))
    named = select(columns.table_namespace, columns.table_name, columns.metadata_location)
    for namespace, name, pointer in connection.execute(named.where(is_of_catalog, is_near)):
        if may_be_same and pointer == state.metadata_location:
            continue
        levels = levels_of_column(namespace)
        if (levels, name) != (state.table.namespace, state.table.name) and folder_of(pointer) in places:
            return TableId(namespace=levels, name=str(name))
    return None


def levels_of_column(namespace: object) -> Namespace:
    """Return the levels of a namespace as a database has it: joined by dots, all of which stand between two levels."""
    return tuple(str(namespace).split("."))


def _own_name(place: Place) -> str:
    """Return the last name in the path of a folder that not every such folder has."""
    names = place.path.split("/")
    return next((name for name in reversed(names) if name not in ("", "metadata")), "/")
