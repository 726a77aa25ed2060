"""What a person has to know about a table, a namespace or a warehouse that is not there: most often a name is mistyped.

It costs requests. So it is asked by those who load a table for a task or a user, once, and never by those who poll.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from airflow_iceberg.catalogs.names import is_name, join_levels
from airflow_iceberg.errors import IcebergError, NotFoundError, advised
from airflow_iceberg.redaction import hide, said, without_secrets
from airflow_iceberg.storage.conditional_create import Presence, find_directory
from airflow_iceberg.storage.trust import is_location

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
    from airflow_iceberg.catalogs.names import Namespace

log = logging.getLogger(__name__)

MOST_NAMES = 1000
"""How many names are read to find near ones."""
_LONGEST_NAME = 255
_NAMED = 5


def load_table(catalog: Catalog, table: TableId) -> TableState:
    """Load a table; if there is none, the error says where it was looked for, and which names are near.

    Raises:
        NotFoundError: there is no such table.
    """
    try:
        return catalog.load(table)
    except NotFoundError as error:
        if not error.is_unknown_name:
            raise
        try:
            explained = _explained(catalog, catalog.id_of(table))
        except Exception as other:  # noqa: BLE001 - whatever fails here, the table is missing
            log.debug("cannot find out why there is no table %s: %s", table, said(other))
            raise error from None
        explained.is_unknown_name = True
        raise explained from error


def warn_of_new_warehouse(catalog: Catalog, location: str) -> None:
    """Log a warning if a new location makes the warehouse of its catalog, whose name may be mistyped."""
    warehouse = catalog.properties.get("warehouse", "").strip().rstrip("/")
    if not is_location(warehouse) or not location.startswith(f"{warehouse}/"):
        return
    with suppress(IcebergError):
        if find_directory(catalog.io, warehouse) is not Presence.PRESENT:
            log.warning(
                "catalog %s: the warehouse %s did not exist, or held nothing, and is made now; if it should have been "
                "there, correct the warehouse of the connection, and remove the new one",
                *(catalog.name, without_secrets(warehouse)),
            )


def _explained(catalog: Catalog, table: TableId) -> NotFoundError:
    if (kind := catalog.kind_of_name(table)) is not None:
        return catalog.not_a_table(table, kind)
    head = f"there is no table {table} in catalog {catalog.name}{_place(catalog, table)}"
    own = catalog.why_missing(table)
    if own is not None:
        return advised(NotFoundError(f"{head}: {own}"), "correct the connection, or create the table first")
    return NotFoundError(head + _why(catalog, table))


def _why(catalog: Catalog, table: TableId) -> str:
    missing = _missing_level(catalog, catalog.namespace_of(table))
    if missing is not None:
        return f": namespace {join_levels(missing)} does not exist{_instead_of_namespace(catalog, table, missing)}"
    names = _some(catalog, table.namespace)
    near = _near(table.name, names)
    if near:
        return f"; did you mean {' or '.join(join_levels((*table.namespace, name)) for name in near)}?"
    return f"; namespace {join_levels(table.namespace)} has {_listed(names)}" if names else "; check the names"


def _place(catalog: Catalog, table: TableId) -> str:
    """Return where the table was looked for: its directory, or the address of the catalog."""
    uri = catalog.properties.get("uri", "").strip()
    if not uri:
        location = catalog.default_location(table)
        return f", looked for at {without_secrets(location)}" if location else ""
    # Before it is cut: a password may have the signs of a path or a query in it.
    uri = without_secrets(str(hide("uri", uri)))
    # A query may hold a token, and what is before an @ is a login.
    scheme, slashes, rest = uri.partition("?")[0].partition("//")
    host, slash, path = rest.partition("/")
    if "sqlite" in scheme:
        file = uri.partition("?")[0].rpartition("sqlite")[2].partition(":")[2].removeprefix("//").removeprefix("/")
        return f", in the file {file}" if file else ", in memory"
    return f" at {scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


def _missing_level(catalog: Catalog, namespace: Namespace) -> Namespace | None:
    levels = (namespace[:depth] for depth in range(1, len(namespace) + 1))
    if catalog.namespace_exists(namespace):
        return None
    return next((level for level in levels if not catalog.namespace_exists(level)), namespace)


def _instead_of_namespace(catalog: Catalog, table: TableId, missing: Namespace) -> str:
    if (dotted := _with_dot(catalog, table)) is not None:
        return f"; did you mean {dotted}?"
    names = _some(catalog, ()) if len(missing) == 1 else []
    near = _near(missing[0], names)
    if not near:
        return f"; the catalog has {_listed(names)}" if names else ""
    other = type(table)(namespace=(near[0], *table.namespace[1:]), name=table.name)
    return f"; did you mean {other if catalog.table_exists(other) else f'namespace {join_levels(near[:1])}'}?"


def _with_dot(catalog: Catalog, table: TableId) -> TableId | None:
    """Return the table whose name has the last dot in it, if there is one: its author has left out the backticks."""
    *above, last = table.namespace
    with suppress(IcebergError):
        other = type(table)(namespace=tuple(above), name=f"{last}.{table.name}")
        return other if catalog.table_exists(other) else None
    return None


def _some(catalog: Catalog, above: Namespace) -> list[str]:
    with suppress(IcebergError):  # not everybody who may load a table may list them
        found = islice(catalog.some_names(above), MOST_NAMES)
        return [name for name in found if len(name) <= _LONGEST_NAME and is_name(name)]
    return []


def _near(name: str, names: list[str]) -> list[str]:
    by_lower = {other.lower(): other for other in names}
    return [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=2, cutoff=0.7)]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(join_levels((name,)) for name in sorted(names)[:_NAMED])}{more}"
