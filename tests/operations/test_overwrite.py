"""Overwrites: of matching rows, of partitions, of the whole table; against what they mean for the rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StalePlanError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.test_delete import KEY, PREDICATES, ROWS, as_bag, data_paths, make, rows, table_rows
from tests.support.builders import data_locations, ids, lineage, new_catalog, new_table, reachable, staged
from tests.support.memory import MemoryCatalog
from tests.support.sampling import examples

SERIALIZABLE, SNAPSHOT = "serializable", "snapshot"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return new_catalog(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Source]:
    def write(*values: tuple[Any, ...]) -> Source:
        path = tmp_path / "source.parquet"
        pq.write_table(rows(values), path)
        return Source.from_files(str(path))

    return write


def run(table: Table, source: Source, meanwhile: Callable[[], object] | None = None, **request: Any) -> WriteResult:
    keys = {name: request.pop(name) for name in ("operation_key", "try_number") if name in request}

    def job(plan: JobPlan) -> JobResult:
        if meanwhile is not None and plan.operation == "append":
            meanwhile()
        return run_local(plan, table.io, threads=1)

    return overwrite(Work(table, run=job, **keys), OverwriteRequest(rows=source, **request))


class TestMatchingRows:
    """What the filter selects goes, the new rows come, in one commit; rows that it does not select stay."""

    def test_a_partition(self, catalog, source):
        table = make(catalog)
        kept = {path for path in data_paths(table) if "part=b" in path}
        result = run(table, source((100, "a", 1.0)), overwrite_filter="part = 'a'")
        assert ids(table) == [*range(1, 40, 2), 100]
        assert kept < data_paths(table)
        assert (result.outcome, result.operation) == ("committed", "overwrite")
        assert (result.added_records, result.deleted_records) == (1, 20)
        assert len(table.snapshots()) == 3

    @pytest.mark.costly
    def test_files_that_match_in_part_are_rewritten_in_the_same_commit(self, catalog, source):
        for version in (1, 2, 3):
            table = make(catalog, version, "merge-on-read")
            result = run(table, source((3, "z", 1.0), (4, "a", 1.0)), overwrite_filter="id between 3 and 5")
            assert ids(table) == [n for n in range(40) if n != 5]
            assert sorted(table.scan("d = 1.0").to_arrow()["id"].to_pylist()) == [1, 3, 4]
            assert (result.added_records, result.deleted_records, result.carried_records) == (2, 3, 17)
            assert len(table.snapshots()) == 3
            catalog.drop_table("db.t")

    @pytest.mark.costly
    def test_rows_that_are_carried_keep_their_lineage(self, catalog, source):
        table = make(catalog, 3)
        before = lineage(table, "id <> 3")
        run(table, source((3, "b", 1.0)), overwrite_filter="id = 3")
        assert lineage(table, "id <> 3").equals(before)
        assert lineage(table, "id = 3")["_row_id"][0] not in [*before["_row_id"], pa.scalar(None, pa.int64())]

    def test_new_rows_that_do_not_match_are_refused(self, catalog, source, tmp_path):
        table = make(catalog)
        disk, head = data_locations(table), table.current_snapshot()
        for row, shown in (((3, "b", 1.0), "part is 'b'"), ((3, None, 1.0), "part is null")):
            with pytest.raises(InvalidInputError) as caught:
                run(table, source((2, "a", 1.0), row), overwrite_filter="part = 'a'")
            assert f"row 2 of {tmp_path}" in str(caught.value).replace("file://", "")
            assert f"does not match the overwrite's filter \"part = 'a'\": {shown}" in str(caught.value)
        assert table.refresh().current_snapshot() == head
        assert data_locations(table) == disk
        assert not staged(table)

    def test_a_source_without_rows(self, catalog, source):
        table = make(catalog)
        assert run(table, source(), overwrite_filter="part = 'a'").outcome == "nothing"
        assert len(ids(table)) == 40
        result = run(table, source(), overwrite_filter="part = 'a'", deletes_when_empty=True)
        assert (result.outcome, result.deleted_records) == ("committed", 20)


class TestRowsThatAreNotChecked:
    """`check_filter=False`: a delete of what the filter selects and an append of whatever comes, in one commit."""

    @pytest.mark.parametrize("version", [1, 2, 3])
    # By metadata alone; of files that are rewritten; of no file.
    @pytest.mark.parametrize(
        ("predicate", "gone"), [("part = 'a'", range(0, 40, 2)), ("id in (3, 4)", (3, 4)), ("id > 99", ())]
    )
    def test_any_row_comes(self, catalog, source, version, predicate, gone):
        table = make(catalog, version)
        new = source((3, "b", 1.0), (300, None, None), (301, "z", 1.0))
        result = run(table, new, overwrite_filter=predicate, check_filter=False)
        assert ids(table) == sorted([*(n for n in range(40) if n not in gone), 3, 300, 301])
        assert (result.outcome, result.added_records, result.deleted_records) == ("committed", 3, len(gone))
        assert len(table.snapshots()) == 3

    def test_of_arrow_rows(self, catalog):
        table = make(catalog)
        table.overwrite(rows([(300, "b", None)]), overwrite_filter="part = 'a'", check_filter=False)
        assert ids(table) == [*range(1, 40, 2), 300]

    @pytest.mark.parametrize("level", [SERIALIZABLE, SNAPSHOT])
    def test_rows_of_others_next_to_the_new_ones_are_no_conflict_as_for_an_append(self, catalog, source, level):
        table = make(catalog)
        other = Table.load(catalog, "db.t")

        def rival() -> None:
            other.append(rows([(300, "b", 1.0)]))
            other.delete("id = 3")

        request = {"overwrite_filter": "part = 'a'", "check_filter": False, "isolation_level": level}
        run(table, source((300, "b", 2.0)), rival, **request)
        assert ids(table) == [*(n for n in range(1, 40, 2) if n != 3), 300, 300]

    @pytest.mark.costly
    @pytest.mark.parametrize("predicate", ["part = 'a'", "id in (4, 6)"])
    def test_the_deleted_part_is_validated_as_that_of_any_overwrite(self, catalog, source, predicate):
        table = make(catalog)
        request = {"overwrite_filter": predicate, "check_filter": False}
        with pytest.raises(StalePlanError):
            run(table, source((1, "b", 1.0)), lambda: append_to(catalog, (4, "a", 1.0)), **request)
        with pytest.raises(StalePlanError):
            run(table, source((1, "b", 1.0)), lambda: Table.load(catalog, "db.t").delete("id = 4"), **request)
        assert ids(table.refresh()) == [n for n in range(40) if n != 4]
        assert not data_locations(table) - reachable(table)

    @pytest.mark.costly
    @pytest.mark.parametrize("on_rerun", ["replace", "append", "skip"])
    @pytest.mark.parametrize("predicate", ["part = 'a'", "id in (4, 6)"])
    def test_after_a_clear_the_earlier_rows_go_although_the_filter_does_not_select_them(
        self, catalog, source, on_rerun, predicate
    ):
        table = make(catalog)
        request = {"overwrite_filter": predicate, "check_filter": False}
        run(table, source((301, "b", 1.0), (4, "a", 1.0)), operation_key=KEY, **request)
        left = [n for n in ids(table) if n not in (4, 301)]
        again = run(table, source((302, "c", 1.0)), operation_key=replace(KEY, epoch=1), on_rerun=on_rerun, **request)
        expected = {"replace": [*left, 302], "append": [*left, 301, 302], "skip": [*left, 4, 301]}[on_rerun]
        assert ids(table) == sorted(expected)
        if on_rerun == "replace":
            assert (again.deleted_records, again.added_records) == (2, 1)

    def test_a_retry_finds_the_commit(self, catalog, source):
        table = make(catalog)
        request = {"overwrite_filter": "part = 'a'", "check_filter": False, "operation_key": KEY}
        first = run(table, source((301, "b", 1.0)), **request)
        second = run(Table.load(catalog, "db.t"), source((302, "b", 1.0)), try_number=2, **request)
        assert (second.outcome, second.snapshot_id) == ("found", first.snapshot_id)
        assert ids(table.refresh()) == [*range(1, 40, 2), 301]


def append_to(catalog: Catalog, *values: tuple[Any, ...]) -> None:
    Table.load(catalog, "db.t").append(rows(values))


class TestPartitions:
    """The partitions of the current spec that hold new rows are replaced, and no others."""

    def test_only_those(self, catalog, source):
        table = make(catalog)
        result = run(table, source((100, "a", None), (101, "c", None)), replace="partitions")
        assert ids(table) == [*range(1, 40, 2), 100, 101]
        assert table.current_snapshot().summary["replace-partitions"] == "true"
        assert result.deleted_records == 20

    def test_the_null_partition_is_one(self, catalog):
        table = make(catalog)
        table.append(rows([(50, None, 1.0)]))
        table.dynamic_partition_overwrite(rows([(51, None, 1.0)]))
        assert ids(table) == [*range(40), 51]

    def test_without_rows_nothing_is_replaced(self, catalog, source):
        table = make(catalog)
        assert run(table, source(), replace="partitions", deletes_when_empty=True).outcome == "nothing"
        assert len(ids(table)) == 40


class TestTheWholeTable:
    """Every row goes, those of older specs and with delete files, too."""

    def test_all_of_it(self, catalog, source):
        table = make(catalog, 2, "merge-on-read")
        table.delete("id = 3")
        table.alter([{"drop_partition_field": "part"}])
        table.append(rows([(77, "c", 1.0)]))
        run(table, source((100, "a", 1.0)), replace="table")
        assert ids(table) == [100]
        assert len(data_paths(table)) == 1

    def test_of_arrow_rows(self, catalog):
        table = make(catalog)
        assert table.overwrite(rows([(1, "a", 1.0)])).added_records == 1
        assert ids(table) == [1]
        table.overwrite(rows([(5, "b", None)]), overwrite_filter="id > 3")
        assert ids(table) == [1, 5]
        with pytest.raises(InvalidInputError, match=r"row 1 of the Arrow rows does not match .*: id is 2"):
            table.overwrite(rows([(2, "b", None)]), overwrite_filter="id > 3")
        table.overwrite(rows([]), overwrite_filter="id > 3")
        assert ids(table) == [1]


@pytest.mark.parametrize("version", ["2", "3"])
class TestRowsThatWereDeletedBefore:
    """Merge-on-read leaves deleted rows in the files; they are not replaced again, and not counted."""

    @pytest.mark.parametrize(
        ("request_", "replaced", "carried"),
        [
            ({"replace": "table"}, 8, 0),
            ({"replace": "partitions"}, 3, 0),
            ({"overwrite_filter": "part = 0"}, 3, 0),
            ({"overwrite_filter": "id in (0, 1, 2, 100)"}, 2, 6),
        ],
        ids=str,
    )
    def test_counts_are_of_rows_that_were_there(self, tmp_path, version, request_, replaced, carried):
        table = new_table(
            tmp_path,
            schema={"id": "long", "part": "long"},
            partition_by=["part"],
            properties={"format-version": version},
        )
        table.append(pa.table({"id": range(10), "part": [number % 2 for number in range(10)]}))
        table.delete("id in (2, 4)", mode="merge-on-read")
        before = table.scan().to_arrow().num_rows
        request = OverwriteRequest(rows=pa.table({"id": [100], "part": [0]}), **request_)
        result = overwrite(Work(table), request)
        assert (result.deleted_records, result.added_records, result.carried_records) == (replaced, 1, carried)
        assert table.scan().to_arrow().num_rows == before + 1 - replaced


class TestOthers:
    """Another writer's change of what is replaced ends the overwrite, with nothing committed and nothing left."""

    @pytest.mark.parametrize("request_", [{"overwrite_filter": "part = 'a'"}, {"replace": "partitions"}])
    @pytest.mark.parametrize("level", [SERIALIZABLE, SNAPSHOT])
    def test_two_overwrites_of_one_partition(self, catalog, source, request_, level):
        table = make(catalog)
        other = Table.load(catalog, "db.t")
        rival = lambda: other.overwrite(rows([(200, "a", 1.0)]), overwrite_filter="part = 'a'")  # noqa: E731
        with pytest.raises(StalePlanError, match="re-plan"):
            run(table, source((100, "a", 1.0)), rival, isolation_level=level, **request_)
        assert ids(table.refresh()) == [*range(1, 40, 2), 200]
        assert not data_locations(table) - reachable(table)

    # Whole files are chosen on whatever the table is when the commit lands; where files were looked into, not.
    @pytest.mark.costly
    @pytest.mark.parametrize(("predicate", "left"), [("part = 'a'", 0), ("id in (4, 6)", 1)])
    def test_an_append_of_such_rows_is_refused_by_the_stricter_level_alone(self, catalog, source, predicate, left):
        def other() -> None:
            Table.load(catalog, "db.t").append(rows([(4, "a", 1.0)]))

        table = make(catalog)
        with pytest.raises(StalePlanError):
            run(table, source((6, "a", 1.0)), other, overwrite_filter=predicate)
        assert not data_locations(table) - reachable(table.refresh())
        run(table, source((6, "a", 1.0)), other, isolation_level=SNAPSHOT, overwrite_filter=predicate)
        assert ids(table).count(4) == left

    @pytest.mark.costly
    def test_other_partitions_do_not_matter(self, catalog, source):
        table = make(catalog)
        other = Table.load(catalog, "db.t")
        run(table, source((100, "a", 1.0)), lambda: other.delete("id = 3"), overwrite_filter="part = 'a'")
        assert ids(table) == [*(n for n in range(1, 40, 2) if n != 3), 100]


class TestRetriesAndClears:
    """A task overwrites once; after a clear the new rows replace the earlier ones, whatever the filter is by then."""

    def test_a_retry_finds_the_commit(self, catalog, source):
        table = make(catalog)
        first = run(table, source((6, "a", 1.0)), overwrite_filter="id in (4, 6)", operation_key=KEY)
        again = Table.load(catalog, "db.t")
        second = run(again, source((7, "a", 1.0)), overwrite_filter="id in (4, 6)", operation_key=KEY, try_number=2)
        assert second.outcome == "found"
        assert (second.snapshot_id, second.added_records) == (first.snapshot_id, 1)
        assert (second.deleted_records, second.carried_records) == (2, 8)

    @pytest.mark.costly
    @pytest.mark.parametrize("on_rerun", ["replace", "append", "skip"])
    def test_a_clear(self, catalog, source, on_rerun):
        table = make(catalog)
        run(table, source((6, "a", 1.0)), overwrite_filter="id in (4, 6)", operation_key=KEY)
        cleared = replace(KEY, epoch=1)
        run(table, source((8, "a", 1.0)), overwrite_filter="id = 8", operation_key=cleared, on_rerun=on_rerun)
        rest = [n for n in range(40) if n not in (4, 6, 8)]
        expected = {"replace": [*rest, 8], "append": [*rest, 6, 8], "skip": [*rest, 6, 8]}[on_rerun]
        assert ids(table) == sorted(expected)

    @pytest.mark.parametrize("how", [{"overwrite_filter": "id in (4, 6)"}, {"replace": "partitions"}])
    @pytest.mark.parametrize("on_rerun", ["replace", "append", "skip"])
    def test_a_clear_whose_source_is_empty_takes_the_earlier_rows_away(self, catalog, source, how, on_rerun):
        table = make(catalog)
        first = run(table, source((6, "a", 1.0)), **how, operation_key=KEY)
        kept = [n for n in ids(table) if n != 6]
        result = run(table, source(), **how, operation_key=replace(KEY, epoch=1), try_number=2, on_rerun=on_rerun)
        if on_rerun == "replace":
            assert (result.outcome, result.added_records, result.deleted_records) == ("committed", 0, 1)
            assert result.snapshot_id != first.snapshot_id
        assert ids(table) == (kept if on_rerun == "replace" else sorted([*kept, 6]))

    def test_an_empty_source_of_a_task_that_was_not_cleared_changes_nothing(self, catalog, source):
        table = make(catalog)
        before = table.metadata_location
        result = run(table, source(), overwrite_filter="id in (4, 6)", operation_key=KEY)
        assert (result.outcome, result.snapshot_id) == ("nothing", None)
        assert table.refresh().metadata_location == before


class TestBadInput:
    """One clear error each; nothing is committed."""

    @pytest.mark.parametrize(
        ("request_", "error", "message"),
        [
            ({}, InvalidInputError, "needs overwrite_filter; to replace all rows set replace='table'"),
            ({"overwrite_filter": " "}, InvalidInputError, "overwrite_filter is empty"),
            ({"overwrite_filter": "id = 1", "replace": "table"}, InvalidInputError, "takes no overwrite_filter"),
            ({"check_filter": False, "replace": "table"}, InvalidInputError, "check_filter is False, and replace is"),
            ({"replace": "some"}, InvalidInputError, "replace is 'some', expected one of matching, partitions, table"),
            ({"overwrite_filter": "nope = 1"}, NotFoundError, "nope"),
            ({"overwrite_filter": "id = 1", "isolation_level": "none"}, InvalidInputError, "isolation_level is 'none'"),
        ],
    )
    def test_is_refused(self, catalog, source, request_, error, message):
        table = make(catalog)
        head = table.current_snapshot()
        with pytest.raises(error, match=message):
            run(table, source((1, "a", 1.0)), **request_)
        assert table.refresh().current_snapshot() == head


class TestAgainstBruteForce:
    """Rows of which the filter is true go, new ones of which it is true come, others are refused."""

    @pytest.mark.costly
    @given(
        version=st.sampled_from([1, 2, 3]),
        partition_by=st.sampled_from([(), ("part",), ("d",), ("truncate(1, part)", "bucket(2, id)")]),
        files=st.lists(ROWS, min_size=1, max_size=3),
        new=ROWS,
        predicate=PREDICATES,
    )
    @examples(40, suppress_health_check=list(HealthCheck))
    def test_any_overwrite(self, version, partition_by, files, new, predicate):
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"id": "long", "part": "string", "d": "double"},
            partition_by=partition_by,
            properties={"format-version": str(version)},
        )
        for values in files:
            table.append(rows(values))
        before = [row for values in files for row in values]
        fitting = [row for row in new if predicate.says(row) is True]
        if fitting != new:
            with pytest.raises(InvalidInputError, match="does not match the overwrite's filter"):
                table.overwrite(rows(new), overwrite_filter=predicate.sql)
        table.overwrite(rows(fitting), overwrite_filter=predicate.sql)
        expected = [*(row for row in before if predicate.says(row) is not True), *fitting]
        assert as_bag(table_rows(table)) == as_bag(expected), predicate.sql
        table.overwrite(rows(new), overwrite_filter=predicate.sql, check_filter=False)
        expected = [*(row for row in expected if predicate.says(row) is not True), *new]
        assert as_bag(table_rows(table)) == as_bag(expected), predicate.sql
