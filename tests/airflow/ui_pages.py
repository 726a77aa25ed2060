"""Airflow's own API server in this process, with the plugin found by its entry point, and users with roles."""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

URL = "http://testserver"


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


def serve() -> Any:
    """Return Airflow's application, made as its API server makes it."""
    assert [one.name for one in entry_points(group="airflow.plugins") if "airflow_iceberg" in one.value]
    purge_cached_app()
    return create_app(apps="core")


def pages_of(server: Any, role: str | None) -> Pages:
    """Return the pages for a user of a role; None is nobody."""
    client = TestClient(server, base_url=URL, raise_server_exceptions=False)
    if role is not None:
        user = SimpleAuthManagerUser(username=role, role=role)
        client.cookies.set("_token", get_auth_manager().generate_jwt(user))
    return Pages(client)
