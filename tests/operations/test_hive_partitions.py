"""Files without field ids whose column differs from their partition: the partition comes first, for everybody.

Spec: Column Projection: the value of an identity partition, then the name mapping.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import NullShare
from airflow_iceberg.table import Table
from tests.support.builders import add_file, data_locations, job_work, new_table
from tests.support.data_files import name_mapping

FORMATS = ("parquet", "orc")
COLUMNS = {"id": "long", "p": "string", "v": "long"}


def make(folder: Path, *parts: Any, file_format: str = "parquet", **properties: str) -> Table:
    """Make a table with one file a partition; the column `p` is "X" in all rows."""
    table = new_table(folder, schema=COLUMNS, partition_by=["p"], properties=properties)
    table.alter([{"set_properties": {"schema.name-mapping.default": name_mapping(table.schema())}}])
    for at, part in enumerate(parts):
        write(folder / f"{at}.{file_format}", pa.table({"id": [10 * at, 10 * at + 1], "p": ["X", "X"], "v": [at, at]}))
        # As importers of Hive tables do, with the statistics of the file's own column.
        facts = {
            "value_counts": {2: 2},
            "null_value_counts": {2: 0},
            "lower_bounds": {2: b"X"},
            "upper_bounds": {2: b"X"},
        }
        add_file(
            table, folder / f"{at}.{file_format}", record_count=2, file_format=file_format, partition=(part,), **facts
        )
    return table.refresh()


def write(path: Path, rows: pa.Table) -> None:
    (orc if path.suffix == ".orc" else pq).write_table(rows, path)


def rows(table: Table, row_filter: str | None = None) -> list[tuple[Any, ...]]:
    found = table.refresh().scan(row_filter).to_arrow().to_pylist()
    return sorted((row["id"], row["p"], row["v"]) for row in found)


@pytest.mark.parametrize("file_format", FORMATS)
class TestThePartitionComesFirst:
    def test_reads_and_prunes_agree(self, tmp_path, file_format):
        table = make(tmp_path, "a", "b", None, file_format=file_format)
        expected = [(0, "a", 0), (1, "a", 0), (10, "b", 1), (11, "b", 1), (20, None, 2), (21, None, 2)]
        assert rows(table) == expected
        assert rows(table, "p = 'a'") == expected[:2]
        assert rows(table, "p = 'a' or v = 1") == expected[:4]
        assert rows(table, "p is null") == expected[4:]
        assert rows(table, "p = 'X'") == []
        assert rows(table, "p = 'X' or id = 1") == expected[1:2]
        assert table.scan("p = 'b'").count() == 2
        assert table.scan(selected_fields=("p",)).to_arrow()["p"].to_pylist().count("X") == 0

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_changes_leave_the_others_where_they_are(self, tmp_path, file_format, mode):
        modes = {f"write.{what}.mode": mode for what in ("delete", "update", "merge")}
        table = make(tmp_path, "a", "b", file_format=file_format, **{"format-version": "2", **modes})
        table.update({"v": "v + 5"}, "id = 0")
        assert rows(table) == [(0, "a", 5), (1, "a", 0), (10, "b", 1), (11, "b", 1)]
        assert all("/p=a/" in path or path.endswith(file_format) for path in data_locations(table))
        table.upsert(pa.table({"id": [11], "p": ["b"], "v": [9]}), join_cols=["id", "p"])
        table.delete("p = 'X'")
        table.delete("p = 'a' and id = 1")
        assert rows(table) == [(0, "a", 5), (10, "b", 1), (11, "b", 9)]

    def test_a_compaction_keeps_the_partitions(self, tmp_path, file_format):
        table = make(tmp_path, "a", None, file_format=file_format)
        assert compact(job_work(table), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
        assert rows(table) == [(0, "a", 0), (1, "a", 0), (10, None, 1), (11, None, 1)]

    def test_a_delete_of_the_whole_partition(self, tmp_path, file_format):
        table = make(tmp_path, "a", "X", file_format=file_format)
        table.delete("p = 'X'")
        assert rows(table) == [(0, "a", 0), (1, "a", 0)]


def test_an_audit_counts_the_nulls_of_the_partition(tmp_path):
    table = make(tmp_path, "a", None)
    report = audit(job_work(table), AuditRequest(audits=[NullShare(column="p", max=0.6)]))
    assert "2 of 4 rows have null in 'p'" in str(report)


@pytest.mark.parametrize("mode", ["append", "changelog"])
def test_changes_between_snapshots_are_those_of_the_partition(tmp_path, mode):
    table = make(tmp_path, "a")
    changes = table.changes(None, row_filter="p = 'a'", mode=mode).read_all()
    assert sorted(changes["id"].to_pylist()) == [0, 1]
    assert table.changes(None, row_filter="p = 'X'", mode=mode).read_all().num_rows == 0


def test_the_only_columns_may_be_those_of_the_partition(tmp_path):
    table = new_table(tmp_path, schema={"p": "string"}, partition_by=["p"])
    table.alter([{"set_properties": {"schema.name-mapping.default": name_mapping(table.schema())}}])
    pq.write_table(pa.table({"p": ["X"]}), tmp_path / "a.parquet")
    add_file(table, tmp_path / "a.parquet", record_count=1, partition=("a",))
    assert table.refresh().scan().to_arrow()["p"].to_pylist() == ["a"]


def test_a_field_of_a_struct(tmp_path):
    table = new_table(tmp_path, schema={"id": "long", "s": "struct<p: string>"}, partition_by=["s.p"])
    table.alter([{"set_properties": {"schema.name-mapping.default": name_mapping(table.schema())}}])
    pq.write_table(pa.table({"id": [1, 2], "s": [{"p": "X"}, None]}), tmp_path / "a.parquet")
    add_file(table, tmp_path / "a.parquet", record_count=2, partition=("a",))
    assert table.refresh().scan().to_arrow()["s"].to_pylist() == [{"p": "a"}, None]
