"""Who may see what. Airflow decides, by the rules of its own pages about connections, DAGs and assets.

A table is read with the credentials of its connection: who may read the connection may look at its tables. The name of
a DAG that a user may not read is hidden, wherever a table's history tells it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_asset,
    requires_access_connection,
    requires_access_dag,
)
from airflow.models import Connection
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

CONNECTION_TYPES = ("iceberg_catalog", "iceberg")
"""The types of connections whose tables are shown: ours, and that of the official provider."""
_MOST_CONNECTIONS = 500

__all__ = [
    "GetUserDep",
    "may_read_assets",
    "may_read_connection",
    "readable_connections",
    "reads_connection",
    "reads_task",
]

reads_connection = requires_access_connection("GET")
"""A dependency: the connection that the address names may be read."""
_reads_assets = requires_access_asset("GET")
_reads_task = requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)


def reads_task(request: Request, user: GetUserDep) -> None:
    """Check, as a dependency, that the tasks of the DAG that the address names may be read."""
    dag_id = str(request.path_params.get("dag_id") or "~")
    if dag_id == "~" or not dag_id.isprintable():
        raise HTTPException(404, "no such DAG")  # "~" would be all of them
    _reads_task(request, user)


async def may_read_connection(user: Any, conn_id: str) -> bool:
    """Whether a user may read a connection, by the rule of the pages that name one in their address."""
    return await _may(reads_connection, user, connection_id=conn_id)


async def may_read_assets(user: Any) -> bool:
    """Whether a user may see the events of assets."""
    return await _may(_reads_assets, user)


async def _may(rule: Any, user: Any, **path_params: str) -> bool:
    request = cast(Request, SimpleNamespace(path_params=path_params, query_params={}))
    try:
        # It may ask a server elsewhere.
        answer = await run_in_threadpool(rule, request, user)
        if inspect.isawaitable(answer):
            await answer
    except HTTPException:
        return False
    return True


def readable_connections(user: Any) -> list[tuple[str, str, str]]:
    """Return id, type and description of the connections to Iceberg catalogs that a user may read.

    These are connections of Airflow's database; as Airflow's own list, asked for all at once.
    """
    columns = (Connection.conn_id, Connection.conn_type, Connection.description)
    wanted = select(*columns).where(Connection.conn_type.in_(CONNECTION_TYPES)).order_by(Connection.conn_id)
    with create_session() as session:
        found = session.execute(wanted.limit(_MOST_CONNECTIONS)).all()
    allowed = _allowed_connections(user, [str(row[0]) for row in found])
    return [(str(row[0]), str(row[1]), str(row[2] or "")) for row in found if row[0] in allowed]


def _allowed_connections(user: Any, conn_ids: Iterable[str]) -> set[str]:
    manager: Any = get_auth_manager()
    if hasattr(manager, "get_authorized_connections"):
        return set(manager.get_authorized_connections(user=user, method="GET"))
    # Airflow 3.1 decides about one at a time.
    return {
        each
        for each in conn_ids
        if manager.is_authorized_connection(method="GET", details=ConnectionDetails(conn_id=each), user=user)
    }


class VisibleDags:
    """Which of the DAGs that a table's history names a user may see, and which of them this Airflow has."""

    def __init__(self, user: Any, dag_ids: Iterable[str | None]) -> None:
        asked = {one for one in dag_ids if one}
        self.known: set[str] = set()
        self._allowed: set[str] = set()
        if asked:
            with create_session() as session:
                self.known = set(session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(asked))))
        if self.known:
            self._allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET") & self.known

    def shows(self, dag_id: str) -> bool:
        """Whether the name may be shown: the DAG of another Airflow is none of this one's secrets."""
        return dag_id not in self.known or dag_id in self._allowed

    def links(self, dag_id: str) -> bool:
        """Whether there is a page about the DAG that the user may open."""
        return dag_id in self._allowed
