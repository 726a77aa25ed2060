"""Compaction of files with deletes: rows that are gone stay gone, delete files go when nothing needs them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import (
    CompactRequest,
    CompactResult,
    compact,
)
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.table import Table
from tests.support.builders import new_catalog
from tests.support.changes import write_equality_deletes, write_position_deletes, write_vector

LINEAGE = ("id", "part", "_row_id", "_last_updated_sequence_number")


def new_table(folder: Path, version: int, partition_by: tuple[str, ...] = ("part",)) -> Table:
    """Return two partitions of three small files each, or one of three."""
    catalog = new_catalog(folder)
    properties = {"format-version": str(version)}
    schema = {"id": "long", "part": "string"}
    table = Table.create(catalog, "db.t", schema=schema, partition_by=partition_by, properties=properties)
    for start in range(0, 30, 10):
        ids = range(start, start + 10)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "part": ["ab"[number % 2] for number in ids]}))
    return table


def add_deletes(table: Table, *deletes: DataFile) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.commit(
        RowDelta(
            table.io,
            table.commit_settings(),
            added_deletes=deletes,
            referenced=[],
            written_schema=table.schema(),
            starting_snapshot_id=snapshot.snapshot_id,
        )
    )


def delete_rows(table: Table, kind: str) -> None:
    """Delete the first two rows of every file, or two keys of partition a."""
    tasks = table.scan().plan_files()
    if kind == "equality":
        add_deletes(table, write_equality_deletes(table, "a", [0, 12]))
    elif kind == "vector":
        add_deletes(table, *(write_vector(table.io, task.file, [0, 1]) for task in tasks))
    else:
        add_deletes(table, *(write_position_deletes(table.io, task.file, [0, 1]) for task in tasks))


def run(table: Table, **options: object) -> CompactResult:
    request = CompactRequest(options={"rewrite-all": True, **options})
    return compact(Work(table, run=lambda plan: run_local(plan, table.io)), request)


def rows(table: Table, columns: tuple[str, ...] = ("id", "part")) -> list[dict[str, object]]:
    return table.scan(selected_fields=columns).to_arrow().sort_by("id").to_pylist()


def delete_files(table: Table) -> int:
    return int(table.inspect.delete_files().num_rows)


KINDS = [(2, "position"), (2, "equality"), (3, "vector"), (3, "equality")]


class TestApplied:
    """Deletes of every kind are applied; rows that are left keep what they are, their lineage as well."""

    @pytest.mark.parametrize(("version", "kind"), KINDS)
    @pytest.mark.parametrize("strategy", ["binpack", "sort"])
    def test_rows_stay_as_they_were(self, version, kind, strategy, tmp_path):
        table = new_table(tmp_path, version)
        delete_rows(table, kind)
        columns = LINEAGE if version == 3 else ("id", "part")
        before = rows(table, columns)
        assert len(before) == (28 if kind == "equality" else 18)
        request = CompactRequest(
            strategy=strategy, sort_by=("id desc",) if strategy == "sort" else (), options={"rewrite-all": True}
        )
        compact(Work(table, run=lambda plan: run_local(plan, table.io)), request)
        assert rows(table, columns) == before
        assert all(not task.delete_files for task in table.scan().plan_files())

    def test_vectors_of_rewritten_files_go_in_the_same_commit(self, tmp_path):
        table = new_table(tmp_path, 3)
        delete_rows(table, "vector")
        result = run(table)
        assert len(result.snapshot_ids) == 1
        assert result.removed_delete_files == 6
        assert delete_files(table) == 0

    def test_an_equality_delete_that_comes_meanwhile_still_applies(self, tmp_path):
        table = new_table(tmp_path, 2)

        def delete_meanwhile(plan: JobPlan) -> JobResult:
            other = Table.load(table.catalog, "db.t")
            add_deletes(other, write_equality_deletes(other, "a", [2]))
            return run_local(plan, table.io)

        request = CompactRequest(options={"rewrite-all": True, "remove-dangling-deletes": True})
        compact(Work(table, run=delete_meanwhile), request)
        assert [row["id"] for row in rows(table)] == [number for number in range(30) if number != 2]
        assert delete_files(table) == 1

    def test_a_group_whose_files_get_positions_meanwhile_is_planned_again(self, tmp_path):
        table, plans = new_table(tmp_path, 2), []

        def delete_meanwhile(plan: JobPlan) -> JobResult:
            plans.append(plan)
            result = run_local(plan, table.io)
            if len(plans) == 1:
                other = Table.load(table.catalog, "db.t")
                (task,) = [task for task in other.scan().plan_files() if _holds(other, task, 0)]
                add_deletes(other, write_position_deletes(other.io, task.file, [0]))
            return result

        compact(Work(table, run=delete_meanwhile), CompactRequest(options={"rewrite-all": True}))
        assert [row["id"] for row in rows(table)] == list(range(1, 30))
        assert len(plans) == 2


def _holds(table: Table, task: FileScanTask, number: int) -> bool:
    return f"{number}" in {
        str(row["id"])
        for row in table.scan(f"id = {number}", selected_fields=("id", "_file")).to_arrow().to_pylist()
        if row["_file"] == task.file.file_path
    }


class TestDangling:
    """With `remove-dangling-deletes` a second commit takes out what applies to nothing any more."""

    @pytest.mark.parametrize("partition_by", [("part",), ()])
    def test_an_equality_delete_of_the_last_commit_goes(self, partition_by, tmp_path):
        table = new_table(tmp_path, 2, partition_by)
        if partition_by:
            delete_rows(table, "equality")
        else:
            add_deletes(table, _unpartitioned(write_equality_deletes(table, "a", [0, 12])))
        before = rows(table)
        run(table)
        # It has the number that the new files have, too: of no effect, and not older than all data.
        assert delete_files(table) == 1
        result = run(table, **{"remove-dangling-deletes": "true"})
        assert delete_files(table) == 0
        assert rows(table) == before
        assert result.removed_delete_files == 1

    def test_the_removal_is_a_commit_that_replaces_nothing_else(self, tmp_path):
        table = new_table(tmp_path, 2)
        delete_rows(table, "equality")
        result = run(table, **{"remove-dangling-deletes": True})
        first, second = (table.metadata.snapshot(number) for number in result.snapshot_ids)
        assert first is not None
        assert second is not None
        assert second.operation == "replace"
        assert second.summary["removed-equality-delete-files"] == "1"
        assert "deleted-data-files" not in second.summary
        assert second.summary["total-records"] == first.summary["total-records"]

    def test_what_still_applies_stays(self, tmp_path):
        table = new_table(tmp_path, 2)
        delete_rows(table, "position")
        before = rows(table)
        request = CompactRequest(where="part = 'a'", options={"rewrite-all": True, "remove-dangling-deletes": True})
        compact(Work(table, run=lambda plan: run_local(plan, table.io)), request)
        assert rows(table) == before
        assert delete_files(table) == 3

    def test_nothing_dangling_is_no_commit(self, tmp_path):
        table = new_table(tmp_path, 2)
        assert len(run(table, **{"remove-dangling-deletes": True}).snapshot_ids) == 1

    def test_vectors_of_other_partitions_stay(self, tmp_path):
        table = new_table(tmp_path, 3)
        delete_rows(table, "vector")
        before = rows(table, LINEAGE)
        request = CompactRequest(where="part = 'b'", options={"rewrite-all": True, "remove-dangling-deletes": True})
        compact(Work(table, run=lambda plan: run_local(plan, table.io)), request)
        assert rows(table, LINEAGE) == before
        assert delete_files(table) == 3


def _unpartitioned(file: DataFile) -> DataFile:
    from dataclasses import replace

    return replace(file, partition=())
