"""5,000 deferred sensors on 50 tables in one triggerer: requests, the event loop, and memory.

The triggers run on one event loop, as in a triggerer, against a SQL catalog; every interval one table is committed to.
What is measured is what Airflow's own watchdog does: how late the loop comes back from a sleep.
"""

import asyncio
import gc
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.table import Table
from tests.benchmarks.line import Bench, Line, Run, Side
from tests.benchmarks.measure import note
from tests.support.airflow_home import settings

TABLES, WAITERS, INTERVAL_S, INTERVALS, CONN_ID = 50, 5_000, 2.0, 5, "bench_sensors"
MOST_REQUESTS, MOST_BLOCKED_S, MOST_MEMORY_MB = 1, 0.2, 100.0
# The conditions, none of which the tables meet.
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("row_count", {"branch": "main", "min_rows": 10**9}),
    ("freshness", {"branch": "main", "after": "2999-01-01"}),
    ("partition", {"branch": "main", "tag": "complete"}),
    ("snapshot", {"branch": "main", "after": "2999-01-01"}),
    ("schema_change", {"columns": "later"}),
)


def _prepare(bench: Bench) -> Any:
    """Make the tables, and the connection to their catalog."""
    os.environ.update(settings(bench.work))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the log is written, as in a triggerer, and nobody reads it
    extra = {"type": "sql", "warehouse": (bench.work / "warehouse").as_uri(), "catalog_name": "bench"}
    host = f"sqlite:///{bench.work / 'catalog.db'}"
    os.environ[f"AIRFLOW_CONN_{CONN_ID.upper()}"] = json.dumps(
        {"conn_type": "iceberg_catalog", "host": host, "extra": extra}
    )
    name = extra.pop("catalog_name")
    catalog = load_catalog(name, uri=host, **extra)
    catalog.create_namespace("b", if_not_exists=True)
    for number in range(TABLES):
        table = Table.create(catalog, f"b.t{number}", schema={"id": "long"}, if_not_exists=True)
        table.append(pa.table({"id": [1]}))
    return catalog


async def _wait(catalog: Any) -> dict[str, float]:
    """Let the sensors wait for some intervals, and return what that took."""
    from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
    from airflow_iceberg.triggers import IcebergConditionTrigger

    requests: Counter[str] = Counter()
    real = SqlCatalog.read_pointer

    def counted(self: Any, table: Any) -> Any:
        if self is not catalog:
            requests[str(table)] += 1
        return real(self, table)

    async def consume(trigger: Any) -> None:
        async for event in trigger.run():
            raise RuntimeError(f"a sensor has ended: {event}")

    SqlCatalog.read_pointer = counted  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()  # what this process has besides, such as the writer of the tables, is not in a triggerer
    blocked: list[float] = []
    worked: list[float] = []
    before_mb = psutil.Process().memory_info().rss / 1e6
    watchdog = asyncio.create_task(_watch(blocked, worked))
    started = time.monotonic()
    tasks = []
    for number in range(WAITERS):
        kind, arguments = KINDS[number % len(KINDS)]
        table = f"b.t{number % TABLES}"
        options = {"iceberg_conn_id": CONN_ID, "poll_interval": INTERVAL_S, **arguments}
        tasks.append(asyncio.create_task(consume(IcebergConditionTrigger(kind=kind, table=table, **options))))
        await asyncio.sleep(0)
    for number in range(INTERVALS):
        await asyncio.to_thread(Table.load(catalog, f"b.t{number}").append, pa.table({"id": [1]}))
        await asyncio.sleep(max(started + (number + 1) * INTERVAL_S - time.monotonic(), 0))
    intervals = (time.monotonic() - started) / INTERVAL_S
    memory_mb = psutil.Process().memory_info().rss / 1e6 - before_mb
    ended = [task for task in tasks if task.done()]
    watchdog.cancel()  # a triggerer does not end all its triggers in one turn
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, watchdog, return_exceptions=True)
    SqlCatalog.read_pointer = real  # type: ignore[method-assign]
    if ended or len(requests) != TABLES:
        raise RuntimeError(f"{len(ended)} of {WAITERS} sensors have ended, {len(requests)} tables were looked at")
    # The first look is at the beginning of the first interval.
    most = max(requests.values()) / (int(intervals) + 1)
    found = f"{sum(requests.values())} requests in {intervals:.1f} intervals"
    note(f"    {found}, blocked {max(blocked):.3f} s ({max(worked):.3f} s of work), {memory_mb:.0f} MB")
    return {"requests": most, "blocked": max(blocked), "memory": memory_mb}


async def _watch(blocked: list[float], worked: list[float]) -> None:
    """Note how late the loop comes back, and how long its own thread has worked meanwhile."""
    while True:
        before, worked_before = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.01)
        blocked.append(time.monotonic() - before - 0.01)
        worked.append(time.thread_time() - worked_before)


def _side(what: str) -> Side:
    @contextmanager
    def ours(bench: Bench) -> Iterator[Run]:
        catalog = _prepare(bench)
        yield lambda: asyncio.run(_wait(catalog))[what]

    return ours


def _line(name: str, what: str, unit: str, limit: float) -> Line:
    return Line(
        name=f"sensors-{name}",
        what=f"{WAITERS:,} deferred sensors on {TABLES} tables: {what}",
        against=f"the limit of {limit:g}",
        unit=unit,
        ours=_side(name),
        peer=limit,
        goal=1,
    )


LINES = (
    _line("requests", "most requests to the catalog for a table and interval", "requests", MOST_REQUESTS),
    _line("blocked", "longest time that the event loop was blocked", "seconds", MOST_BLOCKED_S),
    _line("memory", "memory that they take", "MB", MOST_MEMORY_MB),
)
