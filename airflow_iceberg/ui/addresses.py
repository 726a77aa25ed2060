"""The addresses of the pages, below the path of Airflow: for the pages themselves, and for the links of tasks.

Each has ids and names alone, encoded part by part. A worker imports this module, and so it imports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow.providers.common.compat.sdk import conf

PREFIX = "/iceberg"


def base_path() -> str:
    """Return the path below which Airflow's pages are, without a slash at its end: empty, or "/airflow"."""
    path = urlsplit(conf.get("api", "base_url", fallback="") or "").path.strip("/")
    return f"/{path}" if path else ""


def page_address(*path: str, **query: Any) -> str:
    """Return the address of one of our pages."""
    return below_airflow((PREFIX.strip("/"), *path), query)


def table_address(conn_id: str, table: str) -> str:
    """Return the address of the page of a table."""
    return page_address("connections", conn_id, "table", name=table)


def snapshot_address(conn_id: str, table: str, snapshot_id: int | str) -> str:
    """Return the address of the page of a snapshot."""
    return page_address("connections", conn_id, "snapshot", name=table, snapshot_id=snapshot_id)


def committed_address(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the address of what a task instance has committed."""
    return page_address("dags", dag_id, "committed", run_id=run_id, task_id=task_id, map_index=map_index)


def below_airflow(path: Iterable[str], query: Mapping[str, Any]) -> str:
    """Return an address below Airflow's path; None and empty values are left out of the query."""
    encoded = "/".join(_encoded(part) for part in path)
    given = {name: str(value) for name, value in query.items() if value is not None and value != ""}
    asked = f"?{urlencode(given, errors='replace', quote_via=quote, safe='')}" if given else ""
    return f"{base_path()}/{encoded}{asked}"


def _encoded(part: str) -> str:
    text = quote(part, safe="", errors="replace")
    # A segment of dots would be resolved by the browser.
    return text.replace(".", "%2E") if text in (".", "..") else text
