"""The addresses of the pages. Each asks Airflow first whether the user may see it, and then works in a thread.

There is nothing but GET: no page changes a table, or anything else. A connection is read in one thread and asked in
another, whose place has its version: one that does not answer is asked again when it was corrected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException as StarletteHTTPException

from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError
from airflow_iceberg.hooks.late_threads import NotAskedError, Place, TooSlowError
from airflow_iceberg.table import Table
from airflow_iceberg.ui import committed, render, views
from airflow_iceberg.ui.access import (
    VisibleDags,
    may_read_assets,
    may_read_connection,
    readable_connections,
    reads_connection,
    reads_task,
)
from airflow_iceberg.ui.opened import Connected, Opened, connect, open_catalog
from airflow_iceberg.ui.snapshots import MOST_DAGS, properties_of, run_of, snapshot_view
from airflow_iceberg.ui.threads import in_thread

log = logging.getLogger(__name__)

# Without redirects to the same address with or without a slash: they would lead to the host of the request's header.
app = FastAPI(title="Iceberg tables", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

_Name = Annotated[str, Query(max_length=1_000)]
_Page = Annotated[int, Query(ge=1, le=1_000_000)]


@app.get("/")
async def _connections(user: GetUserDep) -> Response:
    """List the connections to Iceberg catalogs."""
    return render.page("connections", {"connections": await in_thread(readable_connections, user)})


@app.get("/open")
async def _open_by_id(user: GetUserDep, connection: _Name) -> Response:
    """Go to a connection that is in no list: one of the environment, or of a secrets backend."""
    return RedirectResponse(render.link("connections", connection).unescape(), 303, render.headers())


@app.get("/connections/{connection_id}", dependencies=[Depends(reads_connection)])
async def _tables(connection_id: str, namespace: _Name = "") -> Response:
    """List the tables of a catalog, or of a namespace."""

    def work() -> Response:
        opened = open_catalog(connected)
        try:
            listing = opened.listing(namespace)
        except IcebergError as error:
            return _failed(error, opened.secrets, (namespace,))
        return render.page("tables", {"conn_id": connection_id, "namespace": namespace, "listing": listing})

    connected = await _connected(connection_id)
    return await in_thread(work, place=connected.place)


@app.get("/connections/{connection_id}/table", dependencies=[Depends(reads_connection)])
async def _table(user: GetUserDep, connection_id: str, name: _Name, branch: _Name = "", page: _Page = 1) -> Response:
    """Show a table."""
    sees_events = await may_read_assets(user)

    def work() -> Response:
        opened = open_catalog(connected)
        try:
            found = opened.table(name)
            values = _values_of(opened, found, branch, page)
        except IcebergError as error:
            return _failed(error, opened.secrets, (name, branch))
        events = committed.maintenance_events(connection_id, found.name) if sees_events else ()
        runs = (*values["line"].runs, *(one[0] for one in values["maintenance"].runs), *events)
        shown = {"conn_id": connection_id, "name": found.name, "branch": branch, "events": events}
        return render.page("table", {**values, **shown, "dags": _dags(user, runs)})

    connected = await _connected(connection_id)
    return await in_thread(work, place=connected.place)


def _values_of(opened: Opened, found: Table, branch: str, page: int) -> dict[str, Any]:
    """Return what the page of a table shows of its state, each part kept until the next commit."""
    metadata = found.metadata
    parts: dict[str, tuple[Hashable, Callable[[], Any]]] = {
        "facts": ("facts", lambda: views.facts_of(found)),
        "refs": ("refs", lambda: views.refs_of(metadata)),
        "columns": ("columns", lambda: views.columns_of(found.schema())),
        "properties": ("properties", lambda: properties_of(found.properties)),
        "line": (("line", branch, page), lambda: views.timeline(metadata, branch=branch or None, page=page)),
        "charts": ("charts", lambda: views.charts_of(metadata, render.size, render.number)),
        "health": ("health", lambda: views.health_of(found)),
        "maintenance": ("maintenance", lambda: views.maintenance_of(metadata)),
        "schemas": ("schemas", lambda: views.schema_history(metadata)),
    }
    return {name: opened.result(found, what, make) for name, (what, make) in parts.items()}


@app.get("/connections/{connection_id}/snapshot", dependencies=[Depends(reads_connection)])
async def _snapshot(user: GetUserDep, connection_id: str, name: _Name, snapshot_id: _Name) -> Response:
    """Show a snapshot: who made it, from what, and its files."""

    def work() -> Response:
        opened = open_catalog(connected)
        try:
            if not (snapshot_id.isascii() and snapshot_id.isdigit() and len(snapshot_id) < 20):
                raise InvalidInputError(f"{snapshot_id!r} is no snapshot id")
            found = opened.table(name)
            run = run_of(found, int(snapshot_id))
            view = opened.result(found, ("snapshot", run.snapshot_id), lambda: snapshot_view(found, run))
        except IcebergError as error:
            return _failed(error, opened.secrets, (name, snapshot_id))
        dags = VisibleDags(user, (run.dag_id, *view.dag_ids))
        shows_airflow = len(view.dag_ids) <= MOST_DAGS and all(map(dags.shows, view.dag_ids))
        shown = {"shows_airflow": shows_airflow, "dags": dags}
        values = {"conn_id": connection_id, "name": found.name, "location": found.location, "view": view, **shown}
        return render.page("snapshot", values)

    connected = await _connected(connection_id)
    return await in_thread(work, place=connected.place)


@app.get("/dags/{dag_id}/committed", dependencies=[Depends(reads_task)])
async def _run_committed(
    request: Request, user: GetUserDep, dag_id: str, run_id: _Name, task_id: _Name = "", map_index: _Name = ""
) -> Response:
    """Show what a DAG run, or one of its tasks, has committed."""
    # Airflow 3.1 puts the ids into the address as they are: a plus, of the time zone of a run, is no space.
    literal = QueryParams(request.url.query.replace("+", "%2B"))
    run_id, task_id = literal["run_id"], literal.get("task_id", "")
    if not (run_id + task_id).isprintable():
        raise InvalidInputError("a run and a task have no control characters in their ids")
    index = int(map_index) if map_index.removeprefix("-").isdecimal() and len(map_index) < 10 else None
    # Airflow's address of a task that is not mapped has the index -1.
    asked = committed.Work(dag_id=dag_id, run_id=run_id, task_id=task_id or None, map_index=index if task_id else None)
    named = await in_thread(committed.tables_of, asked)
    allowed = {conn_id: await may_read_connection(user, conn_id) for conn_id, _ in named}
    # Each in a thread of its connection: one that does not answer takes its own tables from the page, and no other.
    found = await asyncio.gather(*(_commits(asked, conn_id, name, allowed[conn_id]) for conn_id, name in named))

    def work() -> Response:
        runs = [view.run for one in found for view in one.snapshots]
        return render.page("committed", {"work": asked, "tables": found, "dags": _dags(user, runs)})

    return await in_thread(work)


async def _commits(asked: committed.Work, conn_id: str, name: str, is_allowed: bool) -> committed.Commits:
    if not is_allowed:
        return committed.Commits(conn_id=conn_id, table=name, may_read=False)
    try:
        connected = await _connected(conn_id)
        return await in_thread(committed.commits_of, asked, connected, name, place=connected.place)
    except IcebergError as error:
        return committed.Commits(conn_id=conn_id, table=name, error=render.error_text(error))


async def _connected(conn_id: str) -> Connected:
    return await in_thread(connect, conn_id, place=Place(f"Airflow's store of connection {conn_id!r}"))


def _dags(user: Any, runs: Any) -> VisibleDags:
    return VisibleDags(user, (run.dag_id for run in runs))


def _failed(error: IcebergError, secrets: tuple[str, ...] = (), asked: tuple[str, ...] = ()) -> Response:
    if isinstance(error, NotFoundError):
        status, title = 404, "Not found"
    elif isinstance(error, InvalidInputError):
        status, title = 400, "This cannot be shown"
    else:
        status, title = 502, "The catalog or a store did not give an answer"
    values = {"title": title, "text": render.error_text(error, secrets, asked), "status": status}
    return render.page("error", values, status=status)


@app.exception_handler(IcebergError)
async def _iceberg_error(request: Request, error: IcebergError) -> Response:
    """Say what failed, without secrets."""
    return _failed(error)


@app.exception_handler(TooSlowError)
async def _too_slow(request: Request, error: TooSlowError) -> Response:
    """Say that a catalog hangs."""
    status, title = 504, "The catalog does not answer"
    if isinstance(error, NotAskedError):
        status, title = 503, "This connection is not asked any more"
    return render.page("error", {"title": title, "text": str(error), "status": status}, status=status)


@app.exception_handler(StarletteHTTPException)
async def _refused(request: Request, error: StarletteHTTPException) -> Response:
    """Say who may see the page; Airflow's own answer, as a page."""
    titles = {401: "Log in first", 403: "You may not see this", 404: "There is no such page"}
    title = titles.get(error.status_code, "This does not work")
    values = {"title": title, "text": str(error.detail), "status": error.status_code}
    return render.page("error", values, status=error.status_code)


@app.exception_handler(RequestValidationError)
async def _wrong_address(request: Request, error: RequestValidationError) -> Response:
    """Say what the address lacks."""
    names = sorted({str(one["loc"][-1]) for one in error.errors()})
    values = {"title": "This address is not complete", "text": f"wrong: {', '.join(names)}", "status": 400}
    return render.page("error", values, status=400)


@app.exception_handler(Exception)
async def _unexpected(request: Request, error: Exception) -> Response:
    """Tell the log what happened, and the user that it did."""
    log.error("cannot show %r", request.url.path, exc_info=error)
    text = "The log of the API server says what happened."
    return render.page("error", {"title": "This page failed", "text": text, "status": 500}, status=500)
