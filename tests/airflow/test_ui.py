"""The pages about tables in Airflow's UI, served by Airflow's own application: who may see what, and what they show."""

import os

import pytest

from tests.airflow.conftest import Lake
from tests.airflow.ui_pages import Pages, pages_of, serve


@pytest.fixture(scope="module")
def server(airflow_db):
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    yield serve()
    del os.environ["_AIRFLOW_PROCESS_CONTEXT"]


@pytest.fixture
def pages(server, lake: Lake) -> Pages:
    return pages_of(server, "op")


def test_look(pages, lake):
    lake.create()
    lake.append([1, 2])
    lake.append([3])
    for path in ("/", "/connections/iceberg_catalog_default", "/connections/iceberg_catalog_default/table?name=s.t"):
        answer = pages.client.get(f"/iceberg{path}")
        print(path, answer.status_code, answer.headers, answer.text[-3000:])
    raise AssertionError
