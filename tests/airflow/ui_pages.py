"""Airflow's own API server in this process, with the plugin found by its entry point, and users with roles."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import uvicorn
from airflow.api_fastapi.app import create_app, get_auth_manager, init_auth_manager, init_plugins
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.app import init_middlewares
from fastapi import FastAPI
from fastapi.testclient import TestClient


@dataclass
class Pages:
    """The pages as one user sees them."""

    client: TestClient

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/iceberg{path}", params=query)

    def table(self, name: str = "s.t", conn_id: str = "iceberg_catalog_default", **query: Any) -> Any:
        return self.get(f"/connections/{conn_id}/table", name=name, **query)

    def html(self, name: str = "s.t", **query: Any) -> str:
        answer = self.table(name, **query)
        assert answer.status_code == 200, answer.text
        return str(answer.text)


def plugins_only() -> FastAPI:
    """Return what Airflow makes of its plugins and its logins, without its own pages, whose import takes seconds."""
    found = {one.value for one in entry_points(group="airflow.plugins")}
    assert "airflow_iceberg.ui.plugin:IcebergPlugin" in found, "install the package anew"
    app = FastAPI()
    init_plugins(app)
    init_auth_manager(app)
    init_middlewares(app)
    return app


@contextmanager
def as_server() -> Iterator[None]:
    """Let this process be an API server for Airflow: it then reads connections from its own database."""
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    try:
        yield
    finally:
        del os.environ["_AIRFLOW_PROCESS_CONTEXT"]


def token(role: str) -> str:
    """Return the content of the cookie of a user of a role."""
    return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=role, role=role)))


def pages_of(server: Any, role: str | None) -> Pages:
    """Return the pages for a user of a role; None is nobody."""
    client = TestClient(server, raise_server_exceptions=False, follow_redirects=False)
    if role is not None:
        client.cookies.set("_token", token(role))
    return Pages(client)


@contextmanager
def whole_airflow() -> Iterator[str]:
    """Serve all of Airflow's pages on a port of this machine, and give their address."""
    server = uvicorn.Server(uvicorn.Config(create_app(apps="core"), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
