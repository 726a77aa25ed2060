"""Before columns are dropped by which rows are deleted, `alter` warns: Iceberg Java cannot read the table then."""

import logging

import pyarrow as pa
import pytest

from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.table import Table
from tests.support.builders import ids, job_work, new_table
from tests.support.case_runs import delete_by_equality

MESSAGE = "equality deletes use the columns that are dropped (id)"


@pytest.fixture
def table(tmp_path) -> Table:
    table = new_table(tmp_path, schema={"id": "long", "v": "long"}, properties={"format-version": "2"})
    table.append(pa.table({"id": [1, 2], "v": [1, 2]}))
    return table


def test_a_column_of_equality_deletes(table, caplog):
    delete_by_equality(table, [1])
    table.refresh()
    table.alter([{"drop_column": "id"}])
    assert MESSAGE in caplog.text
    assert table.refresh().scan().to_arrow()["v"].to_pylist() == [2]


def test_on_a_branch(table, caplog):
    delete_by_equality(table, [1])
    table.refresh().create_branch("b")
    assert compact(job_work(table.refresh()), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
    table.refresh().alter([{"drop_column": "id"}])
    assert MESSAGE in caplog.text


def test_not_of_others(table, caplog):
    caplog.set_level(logging.WARNING)
    delete_by_equality(table, [1])
    table.refresh().alter([{"drop_column": "v"}, {"add_column": {"name": "w", "type": "long"}}])
    table.refresh().alter([{"rename_column": {"from": "id", "to": "key"}}])
    assert "equality deletes" not in caplog.text


def test_not_when_a_compaction_has_removed_them(table, caplog):
    delete_by_equality(table, [1])
    options = {"rewrite-all": True, "remove-dangling-deletes": True}
    assert compact(job_work(table.refresh()), CompactRequest(options=options)).outcome == "committed"
    assert ids(table.refresh()) == [2]
    table.alter([{"drop_column": "id"}])
    assert "equality deletes" not in caplog.text
