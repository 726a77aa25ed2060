"""Files that joined a table: in it exactly once, and never deleted, whatever becomes of the commit."""

from __future__ import annotations

import dataclasses
import io as bytes_io
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    StorageError,
)
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

NAME = "db.t"
FIRST = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=1, started_ms=1)
CLEARED = dataclasses.replace(FIRST, epoch=1)
HURRY = {
    "commit.retry.num-retries": "2",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "1",
    "commit.status-check.num-retries": "1",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}


@pytest.fixture(params=["2", "3"])
def catalog(request):
    catalog = MemoryCatalog()
    Table.create(catalog, NAME, schema={"id": "long"}, properties={**HURRY, "format-version": request.param})
    return catalog


def put(catalog: MemoryCatalog, *numbers: int, rows: int = 1) -> list[str]:
    """Write a file for each number, outside of the table, and return their locations."""
    locations = []
    for number in numbers:
        sink = bytes_io.BytesIO()
        pq.write_table(pa.table({"id": [number] * rows}), sink)
        locations.append(f"memory://warehouse/old/{number}.parquet")
        catalog.io.delete(locations[-1:])
        catalog.io.create(locations[-1], sink.getvalue())
    return locations


def add(catalog, files, *, key=FIRST, try_number=1, **more):
    work = Work(Table.load(catalog, NAME), operation_key=key, try_number=try_number)
    return add_files(work, AddFilesRequest(files=files, **more))


def ids(catalog) -> list[int]:
    return sorted(Table.load(catalog, NAME).scan().to_arrow()["id"].to_pylist())


def all_there(catalog, files: Iterable[str]) -> bool:
    return all(catalog.io.exists(file) for file in files)


def expire(catalog) -> None:
    expire_snapshots(Work(Table.load(catalog, NAME)), ExpireSnapshotsRequest(older_than_ms=2**62, retain_last=1))


class TestLostAnswers:
    """Whatever happens at the swap, the files stay, and the next try leaves each in the table once."""

    @pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.PROCEED], ids=lambda f: f.name)
    @pytest.mark.parametrize("times", [1, 5])
    def test_at_every_fault(self, catalog, fault, times):
        files = put(catalog, 1, 2)
        faulty = FaultyCatalog(catalog, [fault] * times)
        with suppress(CommitConflictError, CommitUnknownError, StorageError, SimulatedCrash):
            add(faulty, files)
        assert all_there(catalog, files)
        result = add(catalog, files, try_number=2)
        assert (result.outcome in ("committed", "found"), ids(catalog)) == (True, [1, 2])
        faulty.late.arrive()
        assert ids(catalog) == [1, 2]
        assert all_there(catalog, files)

    def test_a_conflict_without_end(self, catalog):
        files = put(catalog, 1)
        with pytest.raises(CommitConflictError):
            add(FaultyCatalog(catalog, [Fault.CONFLICT] * 9), files)
        assert all_there(catalog, files)
        assert ids(catalog) == []

    def test_a_rival_that_adds_the_same_files(self, catalog):
        files = put(catalog, 1, 2)

        def rival(inner, table):
            Table.load(inner, NAME).add_files(files[:1])

        with pytest.raises(AlreadyExistsError, match="has already"):
            add(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), files)
        assert all_there(catalog, files)
        assert ids(catalog) == [1]

    def test_a_lost_answer_and_a_rival_that_adds_the_same_files(self, catalog):
        """That the files are in the table does not prove that the commit has landed, so the outcome is unknown."""
        files = put(catalog, 1)

        def rival(inner, table):
            other = Table.load(inner, NAME)
            other.add_files(files)
            other.alter([{"set_properties": {"write.metadata.previous-versions-max": "1"}}])
            for number in range(3):
                other.append(pa.table({"id": pa.array([number + 7], pa.int64())}))
            expire(inner)

        with pytest.raises((CommitUnknownError, AlreadyExistsError)):
            add(FaultyCatalog(catalog, [Fault.RIVAL_THEN_UNKNOWN], rival=rival), files)
        assert all_there(catalog, files)
        assert ids(catalog) == [1, 7, 8, 9]

    def test_a_rival_that_renames_a_column(self, catalog):
        files = put(catalog, 1)

        def rival(inner, table):
            Table.load(inner, NAME).alter([{"add_column": {"name": "more", "type": "int"}}])

        result = add(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), files)
        assert result.outcome == "committed"
        mapping = Table.load(catalog, NAME).properties["schema.name-mapping.default"]
        assert mapping == '[{"field-id":1,"names":["id"]},{"field-id":2,"names":["more"]}]', "planned again"
        assert ids(catalog) == [1]

    def test_a_name_mapping_that_a_rival_sets(self, catalog):
        files = put(catalog, 1)
        mapping = '[{"field-id":1,"names":["other"]}]'

        def rival(inner, table):
            Table.load(inner, NAME).alter([{"set_properties": {"schema.name-mapping.default": mapping}}])

        with pytest.raises(IcebergError, match=r"cannot add memory://warehouse/old/1\.parquet"):
            add(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), files)
        assert ids(catalog) == []


class TestClearedTasks:
    """A cleared task leaves the table with the files that it names now."""

    def test_the_same_files(self, catalog):
        files = put(catalog, 1, 2)
        add(catalog, files)
        result = add(catalog, files, key=CLEARED)
        assert (result.outcome, ids(catalog)) == ("nothing", [1, 2])
        assert len(Table.load(catalog, NAME).snapshots()) == 1

    def test_other_files(self, catalog):
        files = put(catalog, 1, 2, 3, 4)
        add(catalog, files[:2])
        result = add(catalog, files[1:3], key=CLEARED)
        assert (result.outcome, result.added_data_files, result.deleted_data_files) == ("committed", 1, 1)
        assert ids(catalog) == [2, 3]
        again = add(catalog, files[2:], key=dataclasses.replace(FIRST, epoch=2))
        assert (again.added_data_files, again.deleted_data_files) == (1, 1)
        assert ids(catalog) == [3, 4]
        assert add(catalog, files[2:], key=dataclasses.replace(FIRST, epoch=2), try_number=2).outcome == "found"
        assert all_there(catalog, files)

    def test_a_kept_file_survives_every_expiry(self, catalog):
        """No snapshot has removed it: a file that one has removed may be deleted when that one expires."""
        files = put(catalog, 1, 2, 3)
        add(catalog, files[:2])
        add(catalog, files[1:], key=CLEARED)
        expire(catalog)
        assert ids(catalog) == [2, 3]
        assert all_there(catalog, files), "not the table's own location"

    def test_a_file_that_was_changed_in_its_place(self, catalog):
        files = put(catalog, 1)
        add(catalog, files)
        put(catalog, 1, rows=5)
        with pytest.raises(IncompatibleChangeError, match=r"was changed since .* had 1 rows .* has 5 rows"):
            add(catalog, files, key=CLEARED)

    def test_files_that_were_rewritten_with_others(self, catalog):
        files = put(catalog, 1, 2)
        add(catalog, files)
        Table.load(catalog, NAME).append(pa.table({"id": pa.array([7], pa.int64())}))
        Table.load(catalog, NAME).overwrite(pa.table({"id": pa.array([1, 2, 7], pa.int64())}))
        with pytest.raises(IncompatibleChangeError, match="rewrote its files together with other rows"):
            add(catalog, files, key=CLEARED)
        assert (ids(catalog), all_there(catalog, files)) == ([1, 2, 7], True)

    def test_skip_and_append(self, catalog):
        files = put(catalog, 1, 2)
        add(catalog, files[:1])
        assert add(catalog, files, key=CLEARED, on_rerun="skip").outcome == "skipped"
        assert add(catalog, files[1:], key=CLEARED, on_rerun="append").outcome == "committed"
        with pytest.raises(AlreadyExistsError):
            add(catalog, files, key=dataclasses.replace(FIRST, epoch=2), on_rerun="append")
        assert ids(catalog) == [1, 2]

    def test_a_run_that_outlived_its_clear(self, catalog):
        files = put(catalog, 1, 2)
        add(catalog, files[:1], key=CLEARED)
        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            add(catalog, files[1:])
        assert (ids(catalog), all_there(catalog, files)) == ([1], True)

    def test_after_the_snapshot_has_expired(self, catalog):
        """Names of existing files tell nothing of their task: what cannot be told is not added again."""
        files = put(catalog, 1)
        add(catalog, files)
        Table.load(catalog, NAME).append(pa.table({"id": pa.array([7], pa.int64())}))
        expire(catalog)
        for key, try_number in ((FIRST, 2), (CLEARED, 1)):
            with pytest.raises((IncompatibleChangeError, AlreadyExistsError)):
                add(catalog, files, key=key, try_number=try_number)
        assert ids(catalog) == [1, 7]


class TestAfterwards:
    """From then on they are files of the table."""

    def test_an_expiry_deletes_those_in_the_tables_own_location_only(self, catalog):
        files = put(catalog, 1)
        own = f"{Table.load(catalog, NAME).location}/landing/2.parquet"
        catalog.io.create(own, catalog.io.read(files[0]))
        add(catalog, [*files, own])
        Table.load(catalog, NAME).delete("true")
        expire(catalog)
        assert (catalog.io.exists(files[0]), catalog.io.exists(own)) == (True, False)
