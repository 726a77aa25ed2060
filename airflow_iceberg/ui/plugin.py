"""The plugin that Airflow finds by its entry point. It is imported by every process of Airflow, and so imports nothing.

The application behind it is imported by the first request, which only the API server gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin

from airflow_iceberg.ui.addresses import PREFIX, base_path

_Message = MutableMapping[str, Any]


class LazyApp:
    """The application, imported in a thread when the first request comes."""

    def __init__(self, module: str) -> None:
        self._module = module

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Answer one request (ASGI)."""
        module = await asyncio.to_thread(import_module, self._module)
        await module.app(scope, receive, send)


def _views() -> list[dict[str, Any]]:
    """Return the places in the UI from which the pages are opened; Airflow fills in the ids of a run and a task."""
    root = f"{base_path()}{PREFIX}"
    run = f"{root}/dags/{{DAG_ID}}/committed?run_id={{RUN_ID}}"
    task = f"{run}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}"
    return [
        {"name": "Iceberg", "href": f"{root}/", "destination": "nav", "category": "browse", "url_route": "iceberg"},
        {"name": "Iceberg", "href": run, "destination": "dag_run", "url_route": "iceberg-run"},
        {"name": "Iceberg", "href": task, "destination": "task_instance", "url_route": "iceberg-task"},
    ]


class IcebergPlugin(AirflowPlugin):
    """Pages about Iceberg tables: the menu "Browse", and a tab of each DAG run and task instance."""

    name = "airflow_iceberg"
    fastapi_apps = [  # noqa: RUF012 - Airflow declares it
        {"app": LazyApp("airflow_iceberg.ui.app"), "url_prefix": PREFIX, "name": "Iceberg"}
    ]
    external_views = _views()
