"""A commit costs as many round trips as its protocol needs: the figures of docs/stores.md, counted."""

import uuid

import pytest
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from tests.catalogs.contract import make_table, setting
from tests.services.gcs import BUCKET, FakeGcs
from tests.services.http_proxy import HttpProxy


@pytest.fixture(scope="module")
def gcs():
    server = FakeGcs()
    yield server
    server.stop()


class TestHadoopOnAnObjectStore:
    """Four requests to load, ten to commit."""

    def test_requests(self, gcs):
        with HttpProxy(gcs.endpoint) as proxy:
            properties = {**gcs.properties(), "gcs.service.host": proxy.uri}
            catalog = load_catalog("prod", type="hadoop", warehouse=f"gs://{BUCKET}/{uuid.uuid4().hex}", **properties)
            catalog.create_namespace("db")
            state = catalog.commit(make_table(catalog), setting(a="1"))
            counts = []
            for call in (lambda: catalog.load("db.t"), lambda: catalog.commit(state, setting(b="1"))):
                before = len(proxy.requests)
                call()
                counts.append(len(proxy.requests) - before)
        assert counts == [4, 10]


class TestSql:
    """One query to load, one update to commit; a file each."""

    def test_statements(self, tmp_path):
        catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        catalog.create_namespace("db")
        state = make_table(catalog)
        statements = []

        def remember(_connection, _cursor, statement, *_) -> None:
            if not statement.startswith("BEGIN"):
                statements.append(statement.split()[0])

        sqlalchemy.event.listen(catalog._opened._engine, "before_cursor_execute", remember)
        catalog.load("db.t")
        assert statements == ["SELECT"]
        catalog.commit(state, setting(a="1"))
        assert statements == ["SELECT", "UPDATE"]
