"""What a REST server holds: lists of its namespaces and tables, and what else than a table can have a name.

Not here: requests for one table or one namespace (`rest.catalog`), sending and pages (`rest.server`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Unpack

from airflow_iceberg.catalogs.base import Namespace, TableId, child_namespaces, join_levels
from airflow_iceberg.catalogs.rest import protocol
from airflow_iceberg.catalogs.rest.server import Amount, OnRefusal, RestServer
from airflow_iceberg.errors import IcebergError, NotFoundError


class Listings:
    """The lists of a server.

    Args:
        unknown_namespace: returns the error for a namespace that does not exist.
    """

    def __init__(self, server: RestServer, unknown_namespace: Callable[[Namespace], NotFoundError]) -> None:
        self._server = server
        self._unknown_namespace = unknown_namespace

    def tables(self, namespace: Namespace, **limit: Unpack[Amount]) -> Iterator[TableId]:
        """Yield the tables directly in a namespace."""
        purpose = f"list the tables of {join_levels(namespace)}"
        missing: OnRefusal = {404: lambda _: self._unknown_namespace(namespace)}
        asked, parse = protocol.LIST_TABLES, protocol.parse_identifier
        return self._server.pages(asked, purpose, "identifiers", parse, missing, namespace=namespace, **limit)

    def namespaces(self, above: Namespace, **limit: Unpack[Amount]) -> tuple[Namespace, ...]:
        """Return the namespaces one level below another one; servers may leave out those between."""
        query = {"parent": self._server.config.namespace_query(above)} if above else {}
        purpose = f"list the namespaces{' in ' if above else ''}{join_levels(above)}"
        missing: OnRefusal = {404: lambda _: self._unknown_namespace(above)} if above else {}
        asked, parse = protocol.LIST_NAMESPACES, protocol.parse_levels
        found = self._server.pages(asked, purpose, "namespaces", parse, missing, namespace=above, query=query, **limit)
        return tuple(filter(self._server.config.can_name, child_namespaces(above, found)))

    def kind_of_name(self, table: TableId) -> str | None:
        """Return what else than a table has a name, "a view", if the server offers requests for it."""
        for kind in protocol.OTHER_KINDS:
            offered = [endpoint for endpoint in kind.one if self._server.config.offers(endpoint)]
            if offered and self._server.exists(*kind.one, f"look for {kind.name} {table}", table=table):
                return f"a {kind.name}"
        return None

    def some_content(self, namespace: Namespace) -> tuple[str, str] | None:
        """Return the kind and the name of a table, view or function in a namespace, None if none is found."""
        with suppress(IcebergError):
            if (table := next(self.tables(namespace), None)) is not None:
                return "table", table.name
        for kind in protocol.OTHER_KINDS:
            if self._server.config.offers(kind.all):
                purpose = f"list the {kind.name}s of {join_levels(namespace)}"
                with suppress(IcebergError):
                    found = self._server.pages(
                        kind.all, purpose, "identifiers", protocol.parse_identifier, {}, namespace=namespace
                    )
                    if (first := next(found, None)) is not None:
                        return kind.name, first.name
        return None
