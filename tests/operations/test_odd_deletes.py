"""What applies to a file, what a new delete replaces, and how many rows remain, for deletes that only others write.

Positions that a file does not have, files that the table lists several times, vectors of paths that were added again,
and deletes of another partition than that of their file.
"""

from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.jobs.protocol.table_input import FileUnit, cut_group
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.changes import equality_deletes, live_entries
from tests.support.odd_deletes import BEYOND, add_deletes, delete_positions, list_again, only_file, positions_file

COW, MOR = "copy-on-write", "merge-on-read"
MODES = [COW, MOR]
VERSIONS = [2, 3]
KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


def make(folder, version, *, ids=range(4), **options):
    properties = {"format-version": str(version)}
    table = new_table(folder, schema={"id": "long", "v": "string"}, properties=properties, **options)
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{number}" for number in ids]}))
    return table


def rows(table, **scan):
    found = table.refresh().scan(**scan).to_arrow()
    return Counter(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def expected(**more):
    """Return rows `i3=2`: twice the row of id 3; values of others than their ids are in `values`."""
    values = more.pop("values", {})
    return Counter({(int(name[1:]), values.get(int(name[1:]), f"v{name[1:]}")): n for name, n in more.items() if n})


def changelog(table, *span, **more):
    found = table.changes(*span, mode="changelog", **more).read_all()
    return Counter(zip(found["_change_type"].to_pylist(), found["id"].to_pylist(), strict=True))


def vectors(table):
    return [one.data_file for one in live_entries(table.refresh()) if one.data_file.is_deletion_vector]


def source(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"new{number}" for number in ids]})


DELETE = "when matched then delete"
CHANGES = {
    "delete": lambda table, mode: table.delete("id = 1", mode=mode),
    "delete in a job": lambda table, mode: delete(job_work(table), DeleteRequest(predicate="id = 1", mode=mode)),
    "update": lambda table, mode: table.update({"v": "'new1'"}, "id = 1", mode=mode),
    "upsert": lambda table, mode: table.upsert(source(1), ["id"], mode=mode),
    "merge": lambda table, mode: table.merge(source(1), ["id"], DELETE, mode=mode),
}


def changed(name, times=1, **more):
    """Return the rows after a change of row 1, which was there so often."""
    values = more.pop("values", {})
    if name in ("update", "upsert"):
        return expected(**more, i1=times, values={**values, 1: "new1"})
    return expected(**more, values=values)


class TestPositionsBeyondTheFile:
    """They count for nothing: not as deleted rows, and not as rows that are left."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_of_one_row(self, tmp_path, version, mode, name):
        table = make(tmp_path, version)
        delete_positions(table, only_file(table), BEYOND)
        result = CHANGES[name](table, mode)
        assert rows(table) == changed(name, i0=1, i2=1, i3=1)
        if "delete" in name:
            assert result.deleted_records == 1

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("mode", MODES)
    def test_beside_rows_that_are_deleted_the_last_row_removes_the_file(self, tmp_path, version, mode):
        table = make(tmp_path, version)
        delete_positions(table, only_file(table), [0, 2, 3, *BEYOND])
        table.delete("id = 1 or v = 'v0'", mode=mode)
        assert (rows(table), live_entries(table)[:1]) == (Counter(), [])

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_limit_of_rows_counts_those_that_are_there(self, tmp_path, version):
        table = make(tmp_path, version)
        delete_positions(table, only_file(table), [0, *BEYOND])
        with pytest.raises(InvalidInputError, match="selects at least 3 rows"):
            table.delete("id >= 0", max_rows=1)
        assert rows(table) == expected(i1=1, i2=1, i3=1)
        result = table.delete("id >= 0", max_rows=3)
        assert (rows(table), result.deleted_records) == (Counter(), 3)

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("replaced", [None, "id >= 0", "id < 3"])
    def test_an_overwrite_says_how_many_rows_it_has_replaced(self, tmp_path, version, replaced):
        table = make(tmp_path, version)
        delete_positions(table, only_file(table), [0, *BEYOND])
        result = table.overwrite(source(2), replaced)
        kept = {} if replaced != "id < 3" else {"i3": 1}
        assert rows(table) == expected(i2=1, **kept, values={2: "new2"})
        assert result.deleted_records == 3 - len(kept)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_compaction_keeps_the_rows(self, tmp_path, version):
        table = make(tmp_path, version)
        delete_positions(table, only_file(table), [0, *BEYOND])
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert rows(table) == expected(i1=1, i2=1, i3=1)
        assert table.scan().count() == 3

    @pytest.mark.parametrize("mode", MODES)
    def test_with_equality_deletes_beside(self, tmp_path, mode):
        table = make(tmp_path, 3)
        add_deletes(table, equality_deletes(table, [2], 0, ()), positions_file(table, only_file(table), [0, *BEYOND]))
        table.delete("id = 1", mode=mode)
        assert rows(table) == expected(i3=1)
        with pytest.raises(InvalidInputError, match="at least 1 rows"):
            table.delete("id >= 0", max_rows=0)
        assert table.delete("id >= 0", max_rows=1).deleted_records == 1

    @pytest.mark.parametrize("version", VERSIONS)
    def test_they_change_nothing(self, tmp_path, version):
        table = make(tmp_path, version)
        before = table.current_snapshot().snapshot_id
        delete_positions(table, only_file(table), BEYOND)
        assert changelog(table, before) == Counter()

    @pytest.mark.parametrize("mode", MODES)
    def test_an_undo_restores_and_counts_the_rows(self, tmp_path, mode):
        table = make(tmp_path, 3)
        delete_positions(table, only_file(table), [0, *BEYOND])
        table.delete("id = 1", mode=mode, operation_key=KEY)
        result = table.undo(KEY)
        assert (rows(table), result.restored_records) == (expected(i1=1, i2=1, i3=1), 1)

    def test_an_undo_counts_the_rows_that_it_removes(self, tmp_path):
        table = make(tmp_path, 3, ids=())
        table.append(source(*range(4)), operation_key=KEY)
        delete_positions(table, only_file(table), [0, *BEYOND])
        assert (table.undo(KEY).removed_records, rows(table)) == (3, Counter())


class TestFilesInSeveralPlaces:
    """A table may list a file several times: then its rows are there as often, and change together."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("how", ["in two commits", "in one"])
    def test_a_change_of_one_row(self, tmp_path, version, mode, name, how):
        table = make(tmp_path, version)
        file = only_file(table)
        if how == "in one":
            table.delete("true")
        list_again(table, file, 1 if how == "in two commits" else 2)
        assert rows(table) == expected(i0=2, i1=2, i2=2, i3=2)
        result = CHANGES[name](table, mode)
        assert rows(table) == changed(name, 2, i0=2, i2=2, i3=2)
        if "delete" in name:
            assert result.deleted_records == 2
        assert len(vectors(table)) == (version == 3 and mode == MOR)
        # Once more, with the deletes of the first change.
        table.delete("id = 2", mode=mode)
        assert rows(table) == changed(name, 2, i0=2, i3=2)
        assert len(vectors(table)) == (version == 3 and mode == MOR)
        table.delete("v in ('v0', 'v3')", mode=mode)
        assert rows(table) == changed(name, 2)

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("strategy", ["binpack", "sort"])
    def test_a_compaction_keeps_all_rows(self, tmp_path, version, strategy):
        table = make(tmp_path, version)
        list_again(table, only_file(table))
        table.delete("id = 1", mode=MOR)
        request = {"strategy": strategy, "sort_by": ("id",) if strategy == "sort" else ()}
        options = {"rewrite-all": True, "max-file-group-input-files": 1}
        compact(job_work(table), CompactRequest(options=options, **request))
        assert rows(table) == expected(i0=2, i2=2, i3=2)
        assert len({entry.data_file.file_path for entry in live_entries(table)}) == len(live_entries(table))

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_several_row_groups(self, tmp_path, version):
        """Pieces of a file are read once for each place."""
        table = make(tmp_path, version, ids=())
        table.alter([{"set_properties": {"write.parquet.row-group-size-bytes": "8000"}}])
        table.append(pa.table({"id": range(3000), "v": [str(number) for number in range(3000)]}))
        file = only_file(table)
        assert len(file.split_offsets) > 1
        list_again(table, file, 2)
        units = [FileUnit.of(task) for task in table.scan().plan_files()]
        for size in (file.file_size_in_bytes // 3, file.file_size_in_bytes // 2, 10 * file.file_size_in_bytes):
            pieces = [unit for run in cut_group(units, split_size_bytes=size) for unit in run]
            read = [unit.parts or (0, 1, 1) for unit in pieces]
            assert sum(Fraction(end - first, count) for first, end, count in read) == 3
        options = {"rewrite-all": True, "target-file-size-bytes": file.file_size_in_bytes}
        compact(job_work(table), CompactRequest(options={**options, "min-file-size-bytes": 0}))
        assert table.scan().count() == 9000
        table.update({"v": "'x'"}, "id < 2000", mode=MOR)
        assert table.scan("v = 'x'").count() == 6000

    @pytest.mark.parametrize("mode", MODES)
    def test_rows_that_are_deleted_in_one_place(self, tmp_path, mode):
        """The vector is older than the second place, to which it does not apply."""
        table = make(tmp_path, 3)
        file = only_file(table)
        delete_positions(table, file, [1])
        list_again(table, file)
        assert rows(table) == expected(i0=2, i1=1, i2=2, i3=2)
        if mode == MOR:
            with pytest.raises(UnsupportedError, match="in the table more than once, with other deleted rows"):
                table.delete("id = 2", mode=mode)
            assert rows(table) == expected(i0=2, i1=1, i2=2, i3=2)
            # What makes them equal can be said.
            table.delete("id = 1", mode=mode)
            assert rows(table) == expected(i0=2, i2=2, i3=2)
        table.delete("id in (1, 2)", mode=mode)
        assert rows(table) == expected(i0=2, i3=2)

    @pytest.mark.parametrize("mode", MODES)
    def test_before_version_3_deletes_are_of_all_places(self, tmp_path, mode):
        table = make(tmp_path, 2)
        file = only_file(table)
        delete_positions(table, file, [1])
        list_again(table, file)
        table.delete("id = 2", mode=mode)
        assert rows(table) == expected(i0=2, i1=1, i3=2)
        table.delete("id = 1", mode=mode)
        assert rows(table) == expected(i0=2, i3=2)

    @pytest.mark.parametrize("mode", MODES)
    def test_rows_that_only_one_place_has_are_not_lost(self, tmp_path, mode):
        """Copy-on-write removes the path from both places: the rows of the other one are written anew as well."""
        table = make(tmp_path, 2)
        file = only_file(table)
        add_deletes(table, equality_deletes(table, [1], 0, ()))
        list_again(table, file)
        assert rows(table) == expected(i0=2, i1=1, i2=2, i3=2)
        table.update({"v": "'new1'"}, "id = 1", mode=mode)
        assert rows(table) == expected(i0=2, i1=1, i2=2, i3=2, values={1: "new1"})

    @pytest.mark.parametrize("version", VERSIONS)
    def test_changes_are_as_many_as_rows(self, tmp_path, version):
        table = make(tmp_path, version)
        first = table.current_snapshot().snapshot_id
        list_again(table, only_file(table), 2)
        second = table.current_snapshot().snapshot_id
        table.delete("id = 1", mode=MOR)
        assert changelog(table, first, second) == {("insert", number): 2 for number in range(4)}
        assert changelog(table, second) == {("delete", 1): 3}
        assert changelog(table, None) == {("insert", number): 3 for number in (0, 2, 3)}
        table.delete("id = 2", mode=COW)
        assert changelog(table, second) == {("delete", 1): 3, ("delete", 2): 3}
        assert changelog(table, first, net=True) == {
            **{("insert", number): 2 for number in (0, 3)},
            ("delete", 1): 1,
            ("delete", 2): 1,
        }

    @pytest.mark.parametrize("mode", MODES)
    def test_counts_and_limits(self, tmp_path, mode):
        table = make(tmp_path, 3)
        list_again(table, only_file(table))
        assert table.scan().count() == 8
        with pytest.raises(InvalidInputError, match="selects at least 2 rows"):
            table.delete("id = 1", max_rows=1, mode=mode)
        assert table.delete("id = 1", max_rows=2, mode=mode).deleted_records == 2
        assert table.scan().count() == 6

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("mode", MODES)
    def test_one_that_is_added_while_rows_change(self, tmp_path, version, mode):
        """Its rows were not read, and the deletes by position would be theirs, too: the change is planned again."""
        table = make(tmp_path, version)
        other, file, runs = Table.load(table.catalog, "db.t"), only_file(table), []

        def add_meanwhile(plan):
            result = run_local(plan, table.io, threads=1)
            if not runs:
                list_again(other, file)
            runs.append(plan)
            return result

        request = {"set": {"v": "'new1'"}, "where": "id = 1", "dialect": "duckdb"}
        update(Work(table, run=add_meanwhile), UpdateRequest(**request, mode=mode, isolation_level="snapshot"))
        assert rows(table) == changed("update", 2, i0=2, i2=2, i3=2)
        assert len(runs) == 2

    def test_manifests_are_rewritten(self, tmp_path):
        table = make(tmp_path, 3)
        list_again(table, only_file(table))
        rewrite_manifests(Work(table), RewriteManifestsRequest())
        assert rows(table) == expected(i0=2, i1=2, i2=2, i3=2)

    def test_an_expiry_keeps_a_file_that_is_there_again(self, tmp_path):
        table = make(tmp_path, 3)
        file = only_file(table)
        table.delete("id = 1", mode=MOR)
        table.delete("true")
        list_again(table, file, 2)
        table.delete("id = 2", mode=MOR)
        result = expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=now_ms() + 1, retain_last=1))
        assert (result.deleted_data_files, result.removed_position_delete_files) == (0, 1)
        assert rows(table) == expected(i0=2, i1=2, i3=2)


class TestVectorsOfPathsThatWereAddedAgain:
    """A vector that is older than its file applies to nothing; the next one replaces it."""

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_of_one_row(self, tmp_path, mode, name):
        table = make(tmp_path, 3)
        file = only_file(table)
        vector = positions_file(table, file, [2])
        table.delete("true")
        add_deletes(table, vector)
        list_again(table, file)
        assert rows(table) == expected(i0=1, i1=1, i2=1, i3=1)
        CHANGES[name](table, mode)
        assert rows(table) == changed(name, i0=1, i2=1, i3=1)
        assert len([one for one in vectors(table) if one.referenced_data_file == file.file_path]) == (mode == MOR)


class TestDeletesOfOtherPartitions:
    """A vector, or position deletes of one file, that are of another partition than the file are no deletes of it."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize(
        "work",
        [
            lambda table: table.scan().to_arrow(),
            lambda table: table.scan().count(),
            lambda table: table.scan("id = 1").to_arrow(),
            *(lambda table, name=name, mode=mode: CHANGES[name](table, mode) for name in CHANGES for mode in MODES),
            lambda table: table.delete("v = 'v1' and id = 1", mode=MOR),
            lambda table: table.overwrite(source(1), "v = 'v1'", check_filter=False),
            lambda table: compact(job_work(table), CompactRequest(options={"rewrite-all": True})),
            lambda table: compact(job_work(table), CompactRequest(where="v = 'v1'", options={"rewrite-all": True})),
        ],
    )
    def test_all_work_on_the_file_stops_and_names_both(self, tmp_path, version, work):
        table = make(tmp_path, version, partition_by=["v"])
        task = next(one for one in table.scan().plan_files() if one.file.partition == ("v1",))
        delete_positions(table, task.file, [0], partition=("v2",))
        head = table.current_snapshot()
        with pytest.raises(FormatError) as caught:
            work(table)
        (delete,) = [e.data_file for e in live_entries(table) if e.data_file.content is FileContent.POSITION_DELETES]
        assert delete.file_path in str(caught.value)
        assert task.file.file_path in str(caught.value)
        assert table.refresh().current_snapshot() == head

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_another_spec(self, tmp_path, version):
        table = make(tmp_path, version)
        file = only_file(table)
        table.alter([{"add_partition_field": "v"}])
        delete_positions(table, file, [0], spec_id=1, partition=("v0",))
        with pytest.raises(FormatError, match=r"\('v0',\) of spec 1 is not that of the data file, \(\) of spec 0"):
            table.delete("id = 1", mode=MOR)
