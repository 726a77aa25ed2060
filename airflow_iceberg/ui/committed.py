"""What a DAG run or one of its tasks has committed: Airflow's database says to which tables, and their history what."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_iceberg.assets import SCHEME, asset_uri, table_of_uri
from airflow_iceberg.catalogs.names import join_levels, split_levels
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.hooks.late_threads import GivenUpError
from airflow_iceberg.operations.history.runs import Run, find_runs
from airflow_iceberg.redaction import without_secrets
from airflow_iceberg.table import Table
from airflow_iceberg.ui.opened import Connected, Opened, open_catalog
from airflow_iceberg.ui.render import error_text
from airflow_iceberg.ui.snapshots import SnapshotView, shown_run, snapshot_view
from airflow_iceberg.ui.staging import StagingFolder, staging_folders

log = logging.getLogger(__name__)

MOST_TABLES = 20
"""How many tables of a run are looked at."""
MOST_SNAPSHOTS = 20
MOST_FILES = 50
_MOST_ROWS = 500
_MOST_EVENTS = 20
# Of an event's extra: what is no number of the maintenance itself.
_NO_COUNTS = {"sequence_number", "timestamp_ms", "schema_id", "partition_count"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A DAG run, one of its tasks, or one of the mapped instances of a task."""

    dag_id: str
    run_id: str
    task_id: str | None = None
    map_index: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Commits:
    """What a run has committed to a table.

    Attributes:
        may_read: whether the user may read the connection; without that nothing else is known.
        location: that of the table.
        staging: the staging folders of the task that are still there.
        error: why the table could not be read.
    """

    conn_id: str
    table: str
    may_read: bool = True
    location: str = ""
    snapshots: tuple[SnapshotView, ...] = ()
    is_cut: bool = False
    staging: tuple[StagingFolder, ...] = ()
    error: str = ""


def tables_of(work: Work) -> list[tuple[str, str]]:
    """Return connection and name of the tables that Airflow knows a run's tasks to have written to.

    These are the tables of asset events, and those that operators name in their fields.
    """
    found = dict.fromkeys((*_told(work), *_named(work)))
    return list(found)[:MOST_TABLES]


def _told(work: Work) -> Iterator[tuple[str, str]]:
    event = AssetEvent
    wanted = (
        select(AssetModel.uri)
        .join(event, event.asset_id == AssetModel.id)
        .where(event.source_dag_id == work.dag_id, event.source_run_id == work.run_id)
        .where(AssetModel.uri.startswith(f"{SCHEME}://"))
        .order_by(event.id.desc())
    )
    for uri in _rows(wanted, work, event.source_task_id, event.source_map_index):
        try:
            yield table_of_uri(uri)
        except ValueError:
            continue  # somebody else's asset of this scheme


def _named(work: Work) -> Iterator[tuple[str, str]]:
    rendered = RenderedTaskInstanceFields
    wanted = select(rendered.rendered_fields).where(rendered.dag_id == work.dag_id, rendered.run_id == work.run_id)
    for one in _rows(wanted, work, rendered.task_id, rendered.map_index):
        conn_id, table = (one.get(name) if isinstance(one, dict) else None for name in ("iceberg_conn_id", "table"))
        if isinstance(conn_id, str) and isinstance(table, str) and conn_id and table:
            with suppress(InvalidInputError):  # no name
                yield conn_id, join_levels(split_levels(table))


def _rows(wanted: Any, work: Work, task_id: Any, map_index: Any) -> list[Any]:
    """Return the first values of a query, of the task and the index of a work alone if it has them."""
    if work.task_id is not None:
        wanted = wanted.where(task_id == work.task_id)
    if work.map_index is not None:
        wanted = wanted.where(map_index == work.map_index)
    with create_session() as session:
        return list(session.scalars(wanted.limit(_MOST_ROWS)))


def commits_of(work: Work, connected: Connected, name: str) -> Commits:
    """Return the snapshots of a table that a run has made; an error is part of the answer."""
    conn_id = connected.conn_id
    secrets: tuple[str, ...] = ()
    try:
        opened = open_catalog(connected)
        secrets = opened.secrets
        table = opened.table(name)
        mine = [run for run in find_runs(table.metadata, **_asked(work), most=_MOST_ROWS) if _is_of(run, work)]
        shown = tuple(_view(opened, table, shown_run(run)) for run in mine[:MOST_SNAPSHOTS])
    except IcebergError as error:
        return Commits(conn_id=conn_id, table=name, error=error_text(error, secrets, (name,)))
    except GivenUpError:
        raise
    except Exception:
        log.exception("cannot read table %r of connection %r", name, conn_id)
        return Commits(conn_id=conn_id, table=name, error="it cannot be read; the log of the API server says why")
    return Commits(
        conn_id=conn_id,
        table=name,
        location=table.location,
        snapshots=shown,
        is_cut=len(mine) > MOST_SNAPSHOTS,
        staging=_staging_of(work, table),
    )


def _staging_of(work: Work, table: Table) -> tuple[StagingFolder, ...]:
    if work.task_id is None:
        return ()
    task = {"dag_id": work.dag_id, "run_id": work.run_id, "task_id": work.task_id}
    try:
        return tuple(staging_folders(table, **task, map_index=-1 if work.map_index is None else work.map_index))
    except IcebergError as error:
        # A store that may not be listed: what was committed is shown all the same.
        log.info("no staging folders of %s are shown: %s", table.name, without_secrets(str(error)))
        return ()


def _asked(work: Work) -> dict[str, Any]:
    return {"dag_id": work.dag_id, "run_id": work.run_id, "task_id": work.task_id}


def _is_of(run: Run, work: Work) -> bool:
    return work.map_index is None or work.map_index == (-1 if run.map_index is None else run.map_index)


def _view(opened: Opened, table: Table, run: Run) -> SnapshotView:
    made: SnapshotView = opened.result(
        table, ("snapshot", run.snapshot_id, MOST_FILES), lambda: snapshot_view(table, run, MOST_FILES)
    )
    return made


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceEvent:
    """What a maintenance task has told of itself: an expiry of snapshots makes no snapshot.

    Attributes:
        counts: what it has done, by the names of its result.
    """

    at_ms: int
    what: str
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    counts: tuple[tuple[str, int], ...]
    map_index: int | None = None
    try_number: int | None = None
    writer: str | None = None


def maintenance_events(conn_id: str, table: str) -> tuple[MaintenanceEvent, ...]:
    """Return the events of the newest maintenance of a table, as far as tasks tell assets of it."""
    try:
        uri = asset_uri(table, conn_id, maintenance=True)
    except ValueError:
        return ()
    wanted = (
        select(AssetEvent)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.uri == uri)
        .order_by(AssetEvent.timestamp.desc())
        .limit(_MOST_EVENTS)
    )
    with create_session() as session:
        return tuple(_event(one) for one in session.scalars(wanted))


def _event(event: Any) -> MaintenanceEvent:
    extra = event.extra if isinstance(event.extra, dict) else {}
    numbers = (
        (str(name), value)
        for name, value in extra.items()
        if isinstance(value, int) and not isinstance(value, bool) and value and name not in _NO_COUNTS
    )
    return MaintenanceEvent(
        at_ms=int(event.timestamp.timestamp() * 1000),
        what=str(extra.get("operation") or "maintenance"),
        dag_id=event.source_dag_id,
        run_id=event.source_run_id,
        task_id=event.source_task_id,
        counts=tuple(numbers)[:8],
    )
