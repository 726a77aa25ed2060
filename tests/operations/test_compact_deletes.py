"""Compaction of files with deletes: rows that are gone stay gone, delete files go when nothing needs them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

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
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.changes import write_equality_deletes, write_position_deletes, write_vector

DANGLING = {"remove-dangling-deletes": True}
LINEAGE = ("id", "part", "_row_id", "_last_updated_sequence_number")


def make(folder: Path, version: int, partition_by: tuple[str, ...] = ("part",)) -> Table:
    """Return two partitions of three small files each, or one of three."""
    properties, schema = {"format-version": str(version)}, {"id": "long", "part": "string"}
    table = new_table(folder, schema=schema, partition_by=partition_by, properties=properties)
    for start in range(0, 30, 10):
        ids = range(start, start + 10)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "part": ["ab"[number % 2] for number in ids]}))
    return table


def add_deletes(table: Table, *deletes: DataFile) -> None:
    table.commit(
        RowDelta(
            table.io,
            table.commit_settings(),
            added_deletes=deletes,
            referenced=[],
            written_schema=table.schema(),
            starting_snapshot_id=table.metadata.current_snapshot_id,
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


def run(table: Table, options: dict[str, object] | None = None, **request: Any) -> CompactResult:
    return compact(job_work(table), CompactRequest(options={"rewrite-all": True, **(options or {})}, **request))


def rows(table: Table, columns: tuple[str, ...] = ("id", "part")) -> list[dict[str, object]]:
    return table.scan(selected_fields=columns).to_arrow().sort_by("id").to_pylist()


def delete_files(table: Table) -> int:
    return int(table.inspect.delete_files().num_rows)


KINDS = [(2, "position"), (2, "equality"), (3, "vector"), (3, "equality")]


class TestApplied:
    """Deletes of every kind are applied; rows that are left keep what they are, their lineage as well."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "kind"), KINDS)
    @pytest.mark.parametrize("strategy", ["binpack", "sort"])
    def test_rows_stay_as_they_were(self, version, kind, strategy, tmp_path):
        table = make(tmp_path, version)
        delete_rows(table, kind)
        columns = LINEAGE if version == 3 else ("id", "part")
        before = rows(table, columns)
        assert len(before) == (28 if kind == "equality" else 18)
        run(table, strategy=strategy, sort_by=("id desc",) if strategy == "sort" else ())
        assert rows(table, columns) == before
        assert all(not task.delete_files for task in table.scan().plan_files())

    @pytest.mark.costly
    def test_vectors_of_rewritten_files_go_in_the_same_commit(self, tmp_path):
        table = make(tmp_path, 3)
        delete_rows(table, "vector")
        result = run(table)
        assert len(result.snapshot_ids) == 1
        assert result.removed_delete_files == 6
        assert delete_files(table) == 0

    @pytest.mark.costly
    def test_an_equality_delete_that_comes_meanwhile_still_applies(self, tmp_path):
        table = make(tmp_path, 2)

        def delete_meanwhile(plan: JobPlan) -> JobResult:
            other = Table.load(table.catalog, "db.t")
            add_deletes(other, write_equality_deletes(other, "a", [2]))
            return run_local(plan, table.io)

        request = CompactRequest(options={"rewrite-all": True, "remove-dangling-deletes": True})
        compact(Work(table, run=delete_meanwhile), request)
        assert [row["id"] for row in rows(table)] == [number for number in range(30) if number != 2]
        assert delete_files(table) == 1

    @pytest.mark.costly
    def test_a_group_whose_files_get_positions_meanwhile_is_planned_again(self, tmp_path):
        table, plans = make(tmp_path, 2), []

        def delete_meanwhile(plan: JobPlan) -> JobResult:
            plans.append(plan)
            result = run_local(plan, table.io)
            if len(plans) == 1:
                other = Table.load(table.catalog, "db.t")
                (path,) = other.scan("id = 0", selected_fields=("_file",)).to_arrow()["_file"].to_pylist()
                (task,) = [task for task in other.scan().plan_files() if task.file.file_path == path]
                add_deletes(other, write_position_deletes(other.io, task.file, [0]))
            return result

        compact(Work(table, run=delete_meanwhile), CompactRequest(options={"rewrite-all": True}))
        assert [row["id"] for row in rows(table)] == list(range(1, 30))
        assert len(plans) == 2


class TestDangling:
    """With `remove-dangling-deletes` a second commit takes out what applies to nothing any more."""

    @pytest.mark.costly
    @pytest.mark.parametrize("partition_by", [("part",), ()])
    def test_an_equality_delete_of_the_last_commit_goes(self, partition_by, tmp_path):
        table = make(tmp_path, 2, partition_by)
        if partition_by:
            delete_rows(table, "equality")
        else:
            add_deletes(table, replace(write_equality_deletes(table, "a", [0, 12]), partition=()))
        before = rows(table)
        run(table)
        # It has the number that the new files have, too: of no effect, and not older than all data.
        assert delete_files(table) == 1
        result = run(table, {"remove-dangling-deletes": "true"})
        assert delete_files(table) == 0
        assert rows(table) == before
        assert result.removed_delete_files == 1

    @pytest.mark.costly
    def test_the_removal_is_a_commit_that_replaces_nothing_else(self, tmp_path):
        table = make(tmp_path, 2)
        delete_rows(table, "equality")
        result = run(table, DANGLING)
        first, second = (table.metadata.snapshot(number) for number in result.snapshot_ids)
        assert second.operation == "replace"
        assert second.summary["removed-equality-delete-files"] == "1"
        assert "deleted-data-files" not in second.summary
        assert second.summary["total-records"] == first.summary["total-records"]

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "kind", "part"), [(2, "position", "a"), (3, "vector", "b")])
    def test_what_still_applies_stays(self, version, kind, part, tmp_path):
        table = make(tmp_path, version)
        delete_rows(table, kind)
        columns = LINEAGE if version == 3 else ("id", "part")
        before = rows(table, columns)
        run(table, DANGLING, where=f"part = '{part}'")
        assert rows(table, columns) == before
        assert delete_files(table) == 3

    def test_nothing_dangling_is_no_commit(self, tmp_path):
        table = make(tmp_path, 2)
        assert len(run(table, DANGLING).snapshot_ids) == 1
