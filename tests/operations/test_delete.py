"""Deletes by predicate, from the choice of files to the commit, against what SQL says of each row."""

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StalePlanError, UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, ids, job_work, lineage, new_catalog, reachable, staged
from tests.support.changes import live_entries, write_equality_deletes
from tests.support.memory import MemoryCatalog
from tests.support.sampling import examples

KEY = OperationKey(dag_id="d", run_id="r", task_id="delete")
COW, MOR = "copy-on-write", "merge-on-read"
NAN = math.nan
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("d", pa.float64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return new_catalog(tmp_path)


def make(catalog: Catalog, version: int = 2, mode: str = COW, **properties: str) -> Table:
    """Two partitions of two files each: ids 0 to 39, even ones in 'a', odd ones in 'b'."""
    table = Table.create(
        catalog,
        "db.t",
        schema={"id": "long", "part": "string", "d": "double"},
        partition_by=["part"],
        properties={"format-version": str(version), "write.delete.mode": mode, **properties},
    )
    for start in (0, 20):
        table.append(rows((n, "ab"[n % 2], float(n)) for n in range(start, start + 20)))
    return table


def rows(values: Any) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def run(table: Table, predicate: str, meanwhile: Callable[[], object] | None = None, **request: Any) -> WriteResult:
    """Delete; what happens meanwhile happens before each job."""

    def job(plan: JobPlan) -> JobResult:
        if meanwhile is not None:
            meanwhile()
        return run_local(plan, table.io, threads=2)

    return delete(Work(table, run=job), DeleteRequest(predicate=predicate, **request))


def run_without_a_job(table: Table, predicate: str) -> WriteResult:
    return delete(Work(table, run=no_job), DeleteRequest(predicate=predicate))


def no_job(plan: JobPlan) -> JobResult:
    raise AssertionError("a job was started")


def delete_files(table: Table) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table) if entry.data_file.content != 0]


def data_paths(table: Table) -> set[str]:
    return {entry.data_file.file_path for entry in live_entries(table) if entry.data_file.content == 0}


class TestWholeFiles:
    """Files that hold nothing but selected rows go by metadata alone; no job is started."""

    @pytest.mark.parametrize(
        ("predicate", "records", "files", "left"),
        [
            ("part = 'a'", 20, 2, range(1, 40, 2)),
            ("id >= 20", 20, 2, range(20)),  # as statistics prove
            ("true", 40, 4, []),
        ],
    )
    def test_they_go(self, catalog, predicate, records, files, left):
        table = make(catalog)
        result = run_without_a_job(table, predicate)
        assert (result.outcome, result.deleted_records, result.deleted_data_files) == ("committed", records, files)
        assert ids(table) == list(left)
        assert table.current_snapshot().operation == "delete"

    def test_a_predicate_that_selects_nothing_commits_nothing(self, catalog):
        table = make(catalog)
        head = table.current_snapshot()
        for predicate in ("part = 'z'", "id = 1000", "false", "d is null", "id = 7 and part = 'a'"):
            assert run(table, predicate).outcome == "nothing", predicate
        assert table.current_snapshot() == head

    def test_the_null_partition_goes_only_where_the_predicate_is_true(self, catalog):
        table = make(catalog)
        table.append(rows([(100, None, 1.0), (101, None, None)]))
        for predicate in ("part <> 'z'", "part not in ('z')", "part not like 'z%'", "part < 'z'"):
            assert run(table, f"({predicate}) and id >= 100").outcome == "nothing", predicate
        assert run(table, "part <> 'z'").deleted_records == 40
        assert ids(table) == [100, 101]
        assert run_without_a_job(table, "part is null").deleted_records == 2

    @pytest.mark.costly
    def test_rows_that_were_deleted_before_are_not_counted_again(self, catalog):
        for version in (2, 3):
            table = make(catalog, version, MOR)
            run(table, "id < 6")
            assert run(table, "part = 'a'").deleted_records == 17
            assert not [file for file in delete_files(table) if file.partition == ("a",)]
            catalog.drop_table("db.t")


@pytest.mark.parametrize(("version", "mode"), [(1, COW), (1, MOR), (2, COW), (2, MOR), (3, COW), (3, MOR)])
class TestSomeRows:
    """In files that hold others, too, the selected rows go, and no other file is touched."""

    @pytest.fixture
    def table(self, catalog, version, mode):
        return make(catalog, version, mode)

    def test_the_rows_are_gone(self, table):
        result = run(table, "id in (3, 4, 5, 1000)")
        assert ids(table) == [n for n in range(40) if n not in (3, 4, 5)]
        assert (result.outcome, result.deleted_records) == ("committed", 3)

    def test_files_without_such_rows_stay(self, table, version, mode):
        before = data_paths(table)
        run(table, "id in (21, 23)")
        assert len(before & data_paths(table)) == (4 if mode == MOR and version > 1 else 3)
        # The statistics of a file of even numbers do not say that there is no 21 in it; it was looked into.

    @pytest.mark.costly
    def test_once_more(self, table):
        for predicate, gone in (("id in (0, 2)", 2), ("id < 4", 2), ("d = 8", 1), ("id < 10", 5), ("id < 10", 0)):
            assert run(table, predicate).deleted_records == gone, predicate
        assert ids(table) == list(range(10, 40))

    @pytest.mark.costly
    def test_a_file_that_loses_all_its_rows_goes(self, table):
        run(table, "part = 'a' and id < 11 or id in (12, 14)")
        result = run(table, f"id in ({', '.join(map(str, range(0, 20, 2)))}, 1, 2000)")
        assert result.deleted_records == 3
        assert ids(table) == [n for n in range(40) if n not in {1, *range(0, 20, 2)}]
        assert len(data_paths(table)) == 3

    def test_nothing_is_left_of_the_job(self, table):
        run(table, "id = 3")
        assert not staged(table)

    def test_in_this_process(self, table):
        assert table.delete("id > 30 and id < 35").deleted_records == 4
        assert ids(table) == [n for n in range(40) if not 30 < n < 35]

    @pytest.mark.costly
    def test_rows_of_all_specs_are_found(self, table):
        table.alter([{"add_partition_field": "bucket(2, id)"}, {"drop_partition_field": "part"}])
        table.append(rows((n, "c", None) for n in range(40, 60)))
        assert run(table, "id in (1, 2, 45, 46)").deleted_records == 4
        assert run(table, "d is null and id < 43").deleted_records == 3
        assert ids(table) == [n for n in range(60) if n not in (1, 2, 45, 46, 40, 41, 42)]

    @pytest.mark.costly
    def test_columns_that_came_later(self, table):
        table.alter([{"add_column": {"name": "extra", "type": "int"}}, {"drop_column": "d"}])
        assert run(table, "extra = 1 or id = 3").deleted_records == 1
        assert run(table, "extra is null and id < 6").deleted_records == 5
        assert ids(table) == list(range(6, 40))


class TestDeleteFiles:
    """Merge-on-read: position deletes a file each in version 2, vectors that take up what was deleted in version 3."""

    def test_version_2_has_one_file_for_each_data_file(self, catalog):
        table = make(catalog, 2, MOR)
        before = data_paths(table)
        run(table, "id in (3, 4, 23)")
        found = delete_files(table)
        assert data_paths(table) == before
        assert sorted(file.record_count for file in found) == [1, 1, 1]
        assert {file.referenced_data_file for file in found} < before
        for file in found:
            path = file.referenced_data_file.encode()
            assert file.lower_bounds[2147483546] == file.upper_bounds[2147483546] == path

    def test_version_3_has_one_vector_for_each_data_file_in_one_puffin_file(self, catalog):
        table = make(catalog, 3, MOR)
        run(table, "id in (3, 4, 23)")
        found = delete_files(table)
        assert [file.is_deletion_vector for file in found] == [True] * 3
        assert len({file.file_path for file in found}) == 1
        result = run(table, "id in (5, 6)")
        assert (result.added_delete_files, result.removed_delete_files) == (2, 2)
        assert sorted(file.record_count for file in delete_files(table)) == [1, 2, 2]
        assert ids(table) == [n for n in range(40) if n not in (3, 4, 5, 6, 23)]

    @pytest.mark.costly
    def test_a_vector_takes_up_the_position_deletes_of_version_2(self, catalog):
        table = make(catalog, 2, MOR)
        run(table, "id in (3, 23)")
        table.alter([{"upgrade_format_version": 3}])
        result = run(table, "id = 5")
        assert (result.added_delete_files, result.removed_delete_files) == (1, 1)
        assert sorted(file.is_deletion_vector for file in delete_files(table)) == [False, True]
        assert ids(table) == [n for n in range(40) if n not in (3, 5, 23)]

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    @pytest.mark.parametrize("version", [2, 3])
    def test_equality_deletes_stay_applied(self, catalog, mode, version):
        table = make(catalog, version, mode)
        gone = write_equality_deletes(table, "a", range(0, 30, 2))
        table.commit(
            RowDelta(
                table.io,
                table.commit_settings(),
                added_deletes=[gone],
                written_schema=table.schema(),
                starting_snapshot_id=table.metadata.current_snapshot_id,
            )
        )
        # A row that comes back with its old key is not meant by the older delete.
        table.append(rows([(2, "a", 2.0), (30, "a", 2.0)]))
        assert run(table, "id in (2, 4, 30, 31)").deleted_records == 4
        assert ids(table) == [*range(1, 31, 2), 32, 33, 34, 35, 36, 37, 38, 39]
        assert run(table, "part = 'a'").deleted_records == 4

    def test_another_format_of_delete_files_is_refused(self, catalog):
        table = make(catalog, 2, MOR, **{"write.delete.format.default": "orc"})
        with pytest.raises(UnsupportedError, match=r"write.delete.format.default is 'orc'"):
            run(table, "id = 3")
        assert not data_locations(table) - reachable(table.refresh())


@pytest.mark.parametrize("asked", ["orc", "avro"])
class TestOtherFileFormats:
    """A table whose new files should be of another format takes deletes that need no new file of it."""

    def make(self, catalog: Catalog, asked: str, **properties: Any) -> Table:
        table = make(catalog, **properties)
        formats = {"write.format.default": asked, "write.delete.format.default": asked}
        wanted = formats if properties.get("version", 2) == 3 else {"write.format.default": asked}
        table.alter([{"set_properties": wanted}])
        return table.refresh()

    def test_whole_files_go(self, catalog, asked):
        table = self.make(catalog, asked, mode=MOR)
        table.alter([{"set_properties": {"write.delete.format.default": asked}}])
        assert run(table.refresh(), "part = 'a'").deleted_records == 20
        assert table.delete("id < 20").deleted_records == 10
        assert ids(table) == list(range(21, 40, 2))

    def test_files_of_which_every_row_is_selected_go(self, catalog, asked):
        table = self.make(catalog, asked)
        selected = range(0, 20, 2)
        assert run(table, f"id in ({', '.join(map(str, selected))})").deleted_records == 10
        assert table.delete(f"id in ({', '.join(str(n + 1) for n in selected)})").deleted_records == 10
        assert ids(table.refresh()) == list(range(20, 40))

    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_a_predicate_that_selects_nothing_commits_nothing(self, catalog, asked, mode):
        table = self.make(catalog, asked)
        table.alter([{"set_properties": {"write.delete.format.default": asked}}])
        for predicate in ("id = 1000", "id = 7 and part = 'a'"):
            assert run(table.refresh(), predicate, mode=mode).outcome == "nothing"
            assert table.delete(predicate, mode=mode).outcome == "nothing"

    @pytest.mark.parametrize("version", [2, 3])
    def test_merge_on_read_writes_delete_files(self, catalog, asked, version):
        table = self.make(catalog, asked, version=version, mode=MOR)
        assert run(table, "id = 3").added_delete_files == 1
        assert table.delete("id = 25").added_delete_files == 1
        assert len(ids(table)) == 38

    def test_rows_that_have_to_be_rewritten_are_refused_and_nothing_is_left(self, catalog, asked):
        if asked == "avro":  # which is written
            return
        table = self.make(catalog, asked)
        disk, head = data_locations(table), table.current_snapshot()
        expected = f"property write.format.default is '{asked}': data files are written as parquet or avro only"
        with pytest.raises(UnsupportedError, match=expected):
            run(table, "id = 3")
        with pytest.raises(UnsupportedError, match=expected):
            table.delete("id = 3")
        with pytest.raises(UnsupportedError, match=expected):
            table.append(rows([(50, "a", 0.0)]))
        assert (data_locations(table), table.refresh().current_snapshot(), staged(table)) == (disk, head, [])


class TestLineage:
    """Version 3: rows that stay keep their ids, and the number of the commit that changed them last."""

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_of_rows_that_stay(self, catalog, mode):
        table = make(catalog, 3, mode)
        before = lineage(table, "id not in (3, 4, 23)")
        run(table, "id in (3, 4)")
        run(table, "id in (23)")
        assert lineage(table).equals(before)


class TestTheSeatBelt:
    """When more rows than `max_rows` would go, nothing is committed, and nothing is left behind."""

    @pytest.mark.parametrize("predicate", ["part = 'a'", "id in (1, 2, 3)", "part = 'a' or id = 3"])
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_too_many(self, catalog, predicate, mode):
        table = make(catalog, 2, mode)
        disk = data_locations(table)
        with pytest.raises(InvalidInputError, match=r"selects at least \d+ rows of table db.t, and max_rows is 2"):
            run(table, predicate, max_rows=2)
        assert ids(table) == list(range(40))
        assert data_locations(table) == disk

    def test_as_many_as_allowed(self, catalog):
        table = make(catalog)
        assert run(table, "id in (1, 2, 3)", max_rows=3).deleted_records == 3
        assert run(table, "part = 'a'", max_rows=19).deleted_records == 19


class TestRetries:
    """A task deletes once, however often it is tried."""

    @pytest.mark.parametrize("predicate", ["part = 'a'", "id in (1, 2, 3)"])
    def test_a_retry_finds_the_commit(self, catalog, predicate):
        table = make(catalog)
        request = DeleteRequest(predicate=predicate)
        first = delete(job_work(table, operation_key=KEY), request)
        table.append(rows([(1, "a", 1.0)]))
        second = delete(Work(Table.load(catalog, "db.t"), run=no_job, operation_key=KEY, try_number=2), request)
        assert second.outcome == "found"
        assert (second.snapshot_id, second.deleted_records) == (first.snapshot_id, first.deleted_records)

    def test_a_job_that_fails_leaves_nothing(self, catalog):
        table = make(catalog)
        disk = data_locations(table)
        path = next(task.file.file_path for task in table.scan("id = 3").plan_files())
        table.io.delete([path])
        with pytest.raises(NotFoundError, match="does not exist"):
            run(table, "id in (3, 4)")
        assert data_locations(table) == disk - {path}
        assert not staged(table)


class TestOthers:
    """What other writers change meanwhile is planned again on the newer table."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "mode"), [(2, COW), (2, MOR), (3, MOR)])
    def test_rows_of_the_same_file(self, catalog, version, mode):
        table, jobs = make(catalog, version, mode), []

        def meanwhile() -> None:
            jobs.append(1)
            if len(jobs) == 1:
                Table.load(catalog, "db.t").delete("id = 5")

        result = run(table, "id in (3, 5, 7)", meanwhile)
        assert ids(table) == [n for n in range(40) if n not in (3, 5, 7)]
        assert len(jobs) == (1 if (version, mode) == (2, MOR) else 2)
        assert result.outcome == "committed"
        assert not data_locations(table) - reachable(table)

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("argument", "property_", "left"),
        [
            ("serializable", None, []),
            ("snapshot", None, [3]),
            (None, None, []),
            (None, "serializable", []),
            (None, "SNAPSHOT", [3]),
        ],
    )
    def test_the_task_or_the_table_says_whether_new_rows_count(self, catalog, argument, property_, left):
        table = make(catalog, **({"write.delete.isolation-level": property_} if property_ else {}))

        def meanwhile() -> None:
            if len(table.refresh().snapshots()) == 2:
                Table.load(catalog, "db.t").append(rows([(3, "b", 3.0)]))

        run(table, "id = 3", meanwhile, isolation_level=argument)
        assert [n for n in ids(table) if n == 3] == left

    def test_whole_files_that_come_meanwhile_go_and_are_counted(self, catalog):
        table = make(catalog)
        Table.load(catalog, "db.t").append(rows([(100, "a", 1.0), (101, "b", 1.0)]))
        result = run_without_a_job(table, "part = 'a'")
        assert (result.deleted_records, result.deleted_data_files) == (21, 3)
        assert ids(table) == [*range(1, 40, 2), 101]

    def test_files_that_come_meanwhile_and_whose_snapshots_expire_are_looked_into(self, catalog):
        table = make(catalog)
        other = Table.load(catalog, "db.t")
        other.append(rows([(10, "b", 1.0), (25, "b", 1.0)]))
        other.append(rows([(11, "b", 1.0)]))
        expire_snapshots(Work(other), ExpireSnapshotsRequest(older_than_ms=now_ms() + 1000))
        # As `table` knows it, all files go as a whole.
        result = run(table, "id >= 20")
        assert (result.outcome, result.deleted_records) == ("committed", 21)
        assert ids(table) == sorted([*range(20), 10, 11])

    def test_another_branch_is_left_alone(self, catalog):
        table = make(catalog)
        table.create_branch("dev")
        assert run(table, "id in (1, 2)", branch="dev").deleted_records == 2
        assert run(table, "part = 'a'", branch="dev").deleted_records == 19
        assert ids(table) == list(range(40))
        assert table.scan(ref="dev").count() == 19

    @pytest.mark.costly
    def test_again_and_again(self, catalog):
        table = make(catalog)
        before = data_locations(table)
        with pytest.raises(StalePlanError):
            run(table, "id = 3", lambda: Table.load(catalog, "db.t").append(rows([(3, "b", 3.0)])))
        assert len(data_locations(table) - before) == 4  # of the appends


class TestBadInput:
    """One clear error each; nothing is committed."""

    @pytest.mark.parametrize(
        ("request_", "error", "message"),
        [
            ({"predicate": ""}, InvalidInputError, "is empty; to delete every row write 'true'"),
            ({"predicate": "id ="}, InvalidInputError, "id ="),
            ({"predicate": "nope = 1"}, NotFoundError, "nope"),
            ({"predicate": "id = 'x'"}, InvalidInputError, "id"),
            ({"predicate": "id = 1", "mode": "fast"}, InvalidInputError, "mode is 'fast', expected 'copy-on-write'"),
            ({"predicate": "id = 1", "isolation_level": "none"}, InvalidInputError, "isolation_level is 'none'"),
            ({"predicate": "id = 1", "max_rows": -1}, InvalidInputError, "max_rows is -1"),
            ({"predicate": "id = 1", "branch": "nope"}, NotFoundError, "nope"),
        ],
    )
    def test_is_refused(self, catalog, request_, error, message):
        table = make(catalog)
        head = table.current_snapshot()
        with pytest.raises(error, match=message):
            run(table, **request_)
        assert table.refresh().current_snapshot() == head

    def test_delete_files_in_version_1(self, catalog):
        with pytest.raises(InvalidInputError, match="a table of format version 1 has no delete files"):
            run(make(catalog, 1), "id = 1", mode=MOR)


# -- against brute force -----------------------------------------------------------------------------------------------

Row = tuple[int | None, str | None, float | None]


@dataclass(frozen=True)
class Predicate:
    """A predicate in SQL, and what it says of a row: true, false or null (None)."""

    sql: str
    says: Callable[[Row], bool | None]


OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(name: str, index: int, op: str, literal: Any, sql: str) -> Predicate:
    """Compare as Spark does: NaN is above everything and equal to itself, -0.0 is 0.0."""

    def key(value: Any) -> Any:
        return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)

    test = OPERATORS[op]
    return Predicate(
        f"{name} {op} {sql}", lambda row: None if row[index] is None else test(key(row[index]), key(literal))
    )


def combined(sql: str, says: Callable[..., bool | None], *inner: Predicate) -> Predicate:
    """Combine predicates by what the combination says of what each of them says."""
    return Predicate(sql.format(*(each.sql for each in inner)), lambda row: says(*(each.says(row) for each in inner)))


def negated(inner: Predicate) -> Predicate:
    return combined("not ({})", lambda found: None if found is None else not found, inner)


def both(*inner: Predicate) -> Predicate:
    return combined(
        "({}) and ({})", lambda *found: False if False in found else None if None in found else True, *inner
    )


def either(*inner: Predicate) -> Predicate:
    return combined("({}) or ({})", lambda *found: True if True in found else None if None in found else False, *inner)


IDS = st.one_of(st.none(), st.integers(-3, 8))
PARTS = st.sampled_from([None, "a", "b", "bc", ""])
DOUBLES = st.sampled_from([None, 0.0, -0.0, 1.0, -1.5, NAN, math.inf])
ROWS = st.lists(st.tuples(IDS, PARTS, DOUBLES), min_size=1, max_size=8)
OPS = st.sampled_from(list(OPERATORS))
LEAVES = st.one_of(
    st.builds(lambda op, n: compare("id", 0, op, n, str(n)), OPS, st.integers(-3, 8)),
    st.builds(lambda op, s: compare("part", 1, op, s, f"'{s}'"), OPS, st.sampled_from(["a", "b", "bc", ""])),
    st.builds(lambda op, x: compare("d", 2, op, x, repr(x)), OPS, st.sampled_from([0.0, 1.0, -1.5])),
    st.sampled_from(
        [
            Predicate("d is null", lambda row: row[2] is None),
            Predicate("part is not null", lambda row: row[1] is not None),
            Predicate("id in (1, 2, 5)", lambda row: None if row[0] is None else row[0] in (1, 2, 5)),
            Predicate("part like 'b%'", lambda row: None if row[1] is None else row[1].startswith("b")),
            Predicate("part not in ('a', 'b')", lambda row: None if row[1] is None else row[1] not in ("a", "b")),
        ]
    ),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(inner.map(negated), st.builds(both, inner, inner), st.builds(either, inner, inner)),
    max_leaves=4,
)


def as_bag(found: Sequence[Row]) -> Counter[str]:
    """Rows that compare as what they are: NaN is NaN, -0.0 is not 0.0."""
    return Counter(map(repr, found))


def table_rows(table: Table) -> list[Row]:
    found = table.scan().to_arrow()
    return list(zip(*(found[name].to_pylist() for name in SCHEMA.names), strict=True))


class TestAgainstBruteForce:
    """After any deletes the table holds the rows of which no predicate was true."""

    @pytest.mark.costly
    @given(
        version=st.sampled_from([1, 2, 3]),
        mode=st.sampled_from([COW, MOR]),
        partition_by=st.sampled_from([(), ("part",), ("d",), ("truncate(1, part)",), ("bucket(2, id)", "part")]),
        files=st.lists(ROWS, min_size=1, max_size=3),
        more=ROWS,
        predicates=st.lists(PREDICATES, min_size=1, max_size=3),
        job=st.booleans(),
    )
    @examples(60, suppress_health_check=list(HealthCheck))
    def test_any_deletes(self, version, mode, partition_by, files, more, predicates, job):
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"id": "long", "part": "string", "d": "double"},
            partition_by=partition_by,
            properties={"format-version": str(version), "write.delete.mode": mode},
        )
        expected: list[Row] = []
        for values in files:
            table.append(rows(values))
            expected += values
        for number, predicate in enumerate(predicates):
            if number == 1:
                table.append(rows(more))
                expected += more
            expected = self.check(table, expected, predicate, job)

    @staticmethod
    def check(table: Table, expected: list[Row], predicate: Predicate, job: bool) -> list[Row]:
        result = run(table, predicate.sql) if job else table.delete(predicate.sql)
        kept = [row for row in expected if predicate.says(row) is not True]
        assert as_bag(table_rows(table)) == as_bag(kept), predicate.sql
        assert result.deleted_records == len(expected) - len(kept), predicate.sql
        return kept

    @pytest.mark.costly
    @given(values=ROWS, more=ROWS, predicate=PREDICATES, mode=st.sampled_from([COW, MOR]))
    @examples(30, suppress_health_check=list(HealthCheck))
    def test_columns_with_an_initial_default(self, values, more, predicate, mode):
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"id": "long", "part": "string"},
            properties={"format-version": "3", "write.delete.mode": mode},
        )
        table.append(rows(values).drop_columns(["d"]))
        table.alter([{"add_column": {"name": "d", "type": "double", "default": 1.0}}])
        table.append(rows(more))
        expected: list[Row] = [*((n, part, 1.0) for n, part, _ in values), *more]
        assert as_bag(table_rows(table)) == as_bag(expected)
        self.check(table, expected, predicate, job=True)
