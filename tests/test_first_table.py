"""The page of the first five minutes works as it is written: its connection, its DAG, what it says about the result."""

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_iceberg.hooks import IcebergHook
from tests.support.airflow_home import register
from tests.test_docs import DOCS, FENCE

PAGE = (DOCS / "first-table.md").read_text()


class TestAFirstTable:
    """Two rows in one snapshot, which names the run."""

    def test_the_dag_of_the_page(self, airflow_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        connection = re.search(r"export AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT='(.*?)'", PAGE)
        assert connection is not None
        here = connection[1].replace("file:///tmp/lake", (tmp_path / "lake").as_uri())
        monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", here)
        (code,) = [code for language, code in FENCE.findall(PAGE) if language == "python"]
        names: dict[str, Any] = {}
        with DAG("first_table_page", schedule=None):
            exec(
                compile(code.replace("\nfirst_table()\n", "\nmade = first_table()\n"), "first-table.md", "exec"), names
            )
        register(names["made"])
        assert names["made"].test().state == "success"
        table = IcebergHook().load_table("demo.birds")
        assert sorted(table.scan().to_arrow()["name"].to_pylist()) == ["robin", "wren"]
        (snapshot,) = table.snapshots()
        assert snapshot.summary["airflow.dag-id"] == "first_table"
        assert snapshot.summary["airflow.task-id"] == "count_birds"
