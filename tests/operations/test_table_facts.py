"""What a table is, as the command line and the pages tell it."""

import json

import pyarrow as pa

from airflow_iceberg.operations.reports.table_facts import ref_facts, table_facts, utc_text
from airflow_iceberg.table import Table
from airflow_iceberg.ui.views import facts_of, refs_of
from tests.support.builders import id_rows, new_catalog, new_table


class TestFacts:
    """One description for all who show a table."""

    def test_of_a_table(self, tmp_path):
        table = Table.create(
            new_catalog(tmp_path),
            "db.t",
            schema={"id": "long not null", "ts": "timestamp", "p": "struct<x: int>"},
            partition_by=["day(ts)", "id"],
            sort_by=["ts desc", "p.x"],
        )
        table.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
        found = table_facts(table)
        assert found == facts_of(table)
        assert json.loads(json.dumps(found)) == found
        snapshot = table.current_snapshot()
        wanted = {
            "uuid": table.metadata.table_uuid,
            "location": table.location,
            "format_version": 2,
            "schema": "id long required, ts timestamp, p struct<4: x: optional int>",
            "partitions": "ts_day: day, id: identity",
            "sort_order": "identity(ts) desc nulls-last, identity(p.x) asc nulls-first",
            "snapshot_id": str(snapshot.snapshot_id),
            "committed_at_ms": snapshot.timestamp_ms,
            "snapshots": 1,
            "rows": 2,
            "data_files": 2,
            "delete_files": 0,
            "size_bytes": int(snapshot.summary["total-files-size"]),
        }
        assert {name: found[name] for name in wanted} == wanted

    def test_of_an_empty_table(self, tmp_path):
        found = table_facts(new_table(tmp_path))
        assert [found[name] for name in ("partitions", "sort_order", "snapshot_id", "committed_at_ms")] == [None] * 4
        assert [found[name] for name in ("snapshots", "rows", "data_files", "size_bytes")] == [0] * 4

    def test_no_more_of_it_than_is_asked_for(self, tmp_path):
        columns = {f"column_{number}": f"struct<{'x' * 50}: int>" for number in range(100)}
        table = Table.create(new_catalog(tmp_path), "db.t", schema=columns, sort_by=list(columns)[:0])
        assert len(table_facts(table, longest=80)["schema"]) == 80
        assert len(table_facts(table)["schema"]) > 5000


class TestRefs:
    """Main first, then branches, then tags."""

    def test_of_a_table(self, tmp_path):
        table = new_table(tmp_path)
        table.append(id_rows([1, 2]))
        table.create_tag("a", max_ref_age_ms=86_400_000)
        table.create_branch("b", min_snapshots_to_keep=5, max_snapshot_age_ms=43_200_000)
        found = ref_facts(table.metadata)
        assert found == refs_of(table.metadata)
        assert [(one.name, one.type, one.rows) for one in found] == [
            ("main", "branch", 2),
            ("b", "branch", 2),
            ("a", "tag", 2),
        ]
        assert [one.retention for one in found] == [
            "",
            "snapshots kept 5, snapshots kept for 0.5 days",
            "ref kept for 1.0 days",
        ]
        assert found[0].to_dict()["snapshot_id"] == str(table.current_snapshot().snapshot_id)
        assert [one.name for one in ref_facts(table.metadata, most=1)] == ["main"]


def test_a_time_beyond_any_calendar_is_its_digits():
    assert utc_text(1_767_225_600_000) == "2026-01-01 00:00:00"
    assert utc_text(10**18) == str(10**18)
