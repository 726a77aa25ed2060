"""Merges and upserts, from the words of a request to the commit, with DuckDB in this process."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import CommitUnknownError, InvalidInputError, NotFoundError, StalePlanError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, lineage, reachable, staged
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

KEY = OperationKey(dag_id="d", run_id="r", task_id="merge")
COW, MOR = "copy-on-write", "merge-on-read"
COLUMNS = {"id": "long", "part": "string", "n": "int"}
UPSERT = "when matched then update set * when not matched then insert *"
FEED = (
    "when matched and source.op = 'd' then delete when matched then update set n = source.n "
    "when not matched and source.op <> 'd' then insert (id, n) values (source.id, source.n)"
)


def make(version: int = 2, mode: str = COW, partition_by: Any = ("part",), catalog: Any = None, **more: str) -> Table:
    """Ids 0 to 9 and 10 to 19 in two appends, even ones in 'a', odd ones in 'b'; n is the id."""
    properties = {"format-version": str(version), "write.merge.mode": mode, **more}
    table = Table.create(
        catalog or MemoryCatalog(), "db.t", schema=COLUMNS, partition_by=partition_by, properties=properties
    )
    for start in (0, 10):
        table.append(rows((n, "ab"[n % 2], n) for n in range(start, start + 10)))
    return table


def rows(values: Any, **more: Any) -> pa.Table:
    columns = list(zip(*values, strict=True)) or [[]] * 3
    kinds = (pa.int64(), pa.string(), pa.int32())
    given = {name: pa.array(column, kind) for name, column, kind in zip(COLUMNS, columns, kinds, strict=True)}
    return pa.table({**given, **more})


def feed(values: Any) -> pa.Table:
    ids, numbers, ops = zip(*values, strict=True)
    return pa.table({"ID": pa.array(ids, pa.int64()), "n": pa.array(numbers, pa.int32()), "op": ops})


def found(table: Table, **scan: Any) -> dict[Any, Any]:
    """Return (part, n) of each id."""
    read = table.refresh().scan(**scan).to_arrow().to_pylist()
    by_id = {row["id"]: (row["part"], row["n"]) for row in read}
    assert len(by_id) == len(read)
    return by_id


def start(**changes: Any) -> dict[Any, Any]:
    return {n: ("ab"[n % 2], n) for n in range(20)}


def request(given: Any, on: Any = ("id",), clauses: str | None = FEED, **more: Any) -> MergeRequest:
    return MergeRequest(rows=given, on=on, clauses=clauses, dialect="duckdb", **more)


CROSSING = [(1, COW), (2, COW), (2, MOR), (3, COW), (3, MOR)]


@pytest.mark.parametrize(("version", "mode"), CROSSING)
@pytest.mark.parametrize("partition_by", [(), ("part",), ("bucket(3, id)", "n")], ids=str)
class TestAFeedOfChanges:
    """Rows that match are updated or deleted, the others are added, and no other row is touched."""

    @pytest.mark.costly
    def test_of_all_kinds(self, version, mode, partition_by):
        table = make(version, mode, partition_by)
        result = table.merge(
            feed([(3, 30, "u"), (4, 0, "d"), (12, 120, "u"), (50, 500, "i"), (51, 1, "d")]), ["id"], FEED
        )
        expected = {**start(), 3: ("b", 30), 12: ("a", 120), 50: (None, 500)}
        del expected[4]
        assert found(table) == expected
        counts = (result.added_records, result.updated_records, result.deleted_records)
        assert (result.outcome, result.operation, counts) == ("committed", "overwrite", (1, 2, 1))
        assert result.carried_records == (0 if mode == MOR else result.carried_records)
        summary = table.current_snapshot().summary
        said = [summary[name] for name in ("inserted-rows", "updated-rows", "deleted-rows")]
        assert said == ["1", "2", "1"]
        assert int(summary["total-records"]) >= 20
        assert not staged(table)
        assert reachable(table) >= data_locations(table)

    @pytest.mark.costly
    def test_once_more_and_then_rows_move(self, version, mode, partition_by):
        table = make(version, mode, partition_by)
        for part, number in (("z", 7), ("a", 8)):
            result = table.upsert(rows([(1, part, number), (2, part, number), (30, part, number)]), ["id"])
            changed = dict.fromkeys((1, 2, 30), (part, number))
            assert found(table) == {**start(), **changed}
        assert (result.updated_records, result.added_records, result.deleted_records) == (3, 0, 0)


class TestClauses:
    """Each row gets the first clause that applies to it."""

    def test_the_first_that_applies(self):
        table = make()
        result = table.merge(
            rows([(n, "x", -n) for n in range(4)]),
            ["id"],
            "when matched and target.n = 0 then delete when matched and target.n < 2 then update set part = 'first' "
            "when matched and target.n < 3 then update set part = source.part, n = target.n + source.n",
        )
        expected = {**start(), 1: ("first", 1), 2: ("x", 0)}
        del expected[0]
        assert found(table) == expected, "3 matches, and no clause takes it"
        assert (result.updated_records, result.deleted_records) == (2, 1)

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_rows_that_no_row_of_the_source_matches(self, mode):
        table = make(mode=mode)
        result = table.merge(
            rows([(n, "s", 0) for n in (*range(5, 20), 40)]),
            ["id"],
            "when not matched by source and target.id < 2 then delete "
            "when not matched by source then update set n = target.n + 100 when not matched by target then insert *",
        )
        expected = {**start(), 2: ("a", 102), 3: ("b", 103), 4: ("a", 104), 40: ("s", 0)}
        del expected[0], expected[1]
        assert found(table) == expected
        assert (result.added_records, result.updated_records, result.deleted_records) == (1, 3, 2)

    @pytest.mark.costly
    def test_a_condition_of_any_sql_with_placeholders(self):
        table = make()
        table.merge(
            rows([(100, "a", 5)]),
            "target.n % $by = source.n and target.part = source.part",
            "when matched and target.n > $least then update set part = upper(source.part) || target.n",
            params={"by": 10, "least": 10},
        )
        assert found(table) == start()
        table.merge(
            rows([(100, "b", 5)]),
            "target.n % $by = source.n and target.part = source.part",
            "when matched and target.n > $least then update set part = upper(source.part) || target.n",
            params={"by": 10, "least": 10},
        )
        assert found(table) == {**start(), 15: ("B15", 15)}

    def test_a_delete_of_rows_that_several_rows_match(self):
        table = make()
        table.merge(pa.table({"id": [3, 3, 4]}), ["id"], "when matched then delete")
        assert sorted(start().keys() - found(table).keys()) == [3, 4]

    @pytest.mark.parametrize("chosen", ["update", "insert"])
    def test_an_upsert_of_only_one_kind(self, chosen):
        table = make()
        result = table.upsert(
            rows([(1, "z", 1), (40, "z", 1)]),
            ["id"],
            when_matched_update_all=chosen == "update",
            when_not_matched_insert_all=chosen == "insert",
        )
        changed = {1: ("z", 1)} if chosen == "update" else {40: ("z", 1)}
        assert found(table) == {**start(), **changed}
        assert (result.updated_records, result.added_records) == ((1, 0) if chosen == "update" else (0, 1))

    def test_the_identifier_fields_are_the_key(self):
        schema = {"id": "long not null", "n": "int"}
        table = Table.create(MemoryCatalog(), "db.t", schema=schema)
        with pytest.raises(InvalidInputError, match=r"has no identifier fields, .* set join_cols, such as \['id'\]"):
            table.upsert(pa.table({"id": [1]}))
        table.alter([{"set_identifier_fields": ["id"]}])
        one = pa.table({"id": [1], "n": pa.array([1], pa.int32())})
        assert table.upsert(one).added_records == 1
        assert table.upsert(one.set_column(1, "n", pa.array([2], pa.int32()))).updated_records == 1


class TestASortedTable:
    """New rows are in the order of the table within each file; files keep their order if no column of it changes."""

    @pytest.mark.parametrize("mode", [COW, MOR])
    @pytest.mark.parametrize("partition_by", [(), ("part",)], ids=str)
    def test_new_rows_are_sorted(self, mode, partition_by):
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema=COLUMNS,
            partition_by=partition_by,
            sort_by=["n desc"],
            properties={"write.merge.mode": mode},
        )
        table.append(rows((n, "a", n) for n in range(5)))
        table.upsert(rows([(2, "a", -1), (10, "a", 3), (11, "b", 9), (12, "b", 50), (13, "a", 7)]), ["id"])
        files = table.refresh().inspect.files().to_pylist()
        new = [one for one in files if one["content"] == 0 and one["sort_order_id"] == 1]
        assert sum(one["record_count"] for one in new) == (4 if mode == COW else 9)  # a rewritten file is not in order
        for one in new:
            numbers = (
                pq.ParquetFile(pa.BufferReader(table.io.read(one["file_path"]))).read(columns=["n"])["n"].to_pylist()
            )
            assert numbers == sorted(numbers, reverse=True)

    @pytest.mark.costly
    def test_files_without_new_values_of_the_order_stay_sorted(self):
        table = Table.create(MemoryCatalog(), "db.t", schema=COLUMNS, sort_by=["n"])
        table.append(rows((n, "a", n) for n in range(5)))
        for assigned, order in (("part = 'z'", 1), ("n = -n", 0)):
            table.merge(
                rows([(3, "b", 1)]), ["id"], f"when matched then update set {assigned.replace('-n', '-target.n')}"
            )
            (file,) = table.refresh().inspect.files().to_pylist()
            assert (file["record_count"], file["sort_order_id"]) == (5, order)


class TestTheSource:
    """Rows come from where those of an append come from; they need not have the columns of the table."""

    @pytest.mark.costly
    def test_without_rows(self):
        table = make()
        head = table.current_snapshot()
        for given, on in ((rows([]), ["id"]), (rows([]), "target.id = source.id or target.n = source.n")):
            assert table.merge(given, on, UPSERT).outcome == "nothing"
        assert table.refresh().current_snapshot() == head
        assert not staged(table)
        assert table.merge(rows([]), ["id"], "when not matched by source then delete").deleted_records == 20

    def test_whose_rows_change_nothing(self):
        table = make()
        disk = data_locations(table)
        assert table.merge(rows([(77, "a", 1)]), ["id"], "when matched then delete").outcome == "nothing"
        assert data_locations(table) == disk

    @pytest.mark.parametrize("file_format", ["parquet", "csv", "jsonl"])
    def test_of_files_with_a_column_more(self, file_format, tmp_path):
        table, path = make(), tmp_path / f"feed.{file_format}"
        given = feed([(3, 30, "u"), (4, 0, "d"), (50, 500, "i")]).rename_columns(["id", "n", "op"])
        if file_format == "parquet":
            pq.write_table(given, path)
        elif file_format == "csv":
            pa.csv.write_csv(given, path)
        else:
            path.write_text("\n".join(json.dumps(row) for row in given.to_pylist()))
        result = merge(Work(table), request(Source.from_files([str(path)])))
        assert (result.added_records, result.updated_records, result.deleted_records) == (1, 1, 1)
        assert found(table)[50] == (None, 500)

    @pytest.mark.parametrize("name", ["_merge_clause", "_MERGE_POS", "_merge_file", "_merge_value_0_0"])
    def test_with_a_name_of_the_result_of_the_query(self, name):
        schema = {"id": "long", "n": "int", name: "long"}
        table = Table.create(MemoryCatalog(), "db.t", schema=schema)
        table.append(pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32()), name: [10, 20]}))
        given = pa.table({"id": [2, 3], "n": pa.array([7, 8], pa.int32()), name: [5, 6]})
        table.merge(
            given,
            "target.id = source.id",
            f"when matched and source.{name} = 5 then update set n = source.n, {name} = target.{name} + source.{name} "
            f"when not matched then insert * when not matched by source then update set {name} = {name} + 1",
        )
        read = table.refresh().scan().to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in read) == [(1, 1, 11), (2, 7, 25), (3, 8, 6)]

    @pytest.mark.costly
    def test_a_query_over_inputs_and_what_the_commit_says_of_them(self):
        catalog = MemoryCatalog()
        table = make(catalog=catalog)
        other = Table.create(catalog, "db.orders", schema={"k": "long", "n": "int"})
        other.append(pa.table({"k": [1, 99], "n": pa.array([7, 8], pa.int32())}))
        source = Source.from_sql("select k, max(n) as n from orders group by k", dialect="duckdb")
        clauses = (
            "when matched then update set n = source.n when not matched then insert (id, n) values (source.k, source.n)"
        )
        given = request(source, "source.k = target.id", clauses, inputs={"orders": Input(open=lambda: other)})
        result = merge(Work(table), given)
        assert found(table) == {**start(), 1: ("b", 7), 99: (None, 8)}
        assert result.inputs["orders"]["snapshot-id"] == str(other.current_snapshot().snapshot_id)


class TestKeys:
    """Which rows match says SQL; that a key is not clear is an error with the key in it."""

    def test_a_null_matches_nothing(self):
        table = make()
        table.append(rows([(None, "a", -1)]))
        table.merge(rows([(None, "new", -2)]), ["id"], "when matched then delete when not matched then insert *")
        assert table.scan("id is null").count() == 2
        assert table.scan().count() == 22

    def test_several_keys(self):
        table = make()
        given = rows([(1, "b", 100), (2, "b", 200), (3, "b", 300)])
        table.upsert(given, ["id", "part"])
        assert table.scan("id = 2").count() == 2
        assert {row["n"] for row in table.scan("id in (1, 3)").to_arrow().to_pylist()} == {100, 300}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                [(1, "a", 1), (1, "b", 2)],
                r"the source has 2 rows with the same key \(id = 1\), so that it is not clear",
            ),
            ([(1, "a", 1), (None, "b", 2)], r"the source has a null key \(id = None\), so that it is not clear"),
            ([(77, "a", 1), (77, "b", 2)], r"the source has 2 rows with the same key \(id = 77\)"),
        ],
    )
    def test_of_an_upsert_is_in_one_row(self, given, message):
        table = make()
        disk = data_locations(table)
        with pytest.raises(InvalidInputError, match=message):
            table.upsert(rows(given), ["id"])
        assert (found(table), data_locations(table)) == (start(), disk)
        assert not staged(table)

    @pytest.mark.parametrize("mode", [COW, MOR])
    @pytest.mark.parametrize(
        "clauses", ["when matched then update set n = 1", "when matched and source.n = 2 then delete"]
    )
    def test_that_two_rows_of_the_source_have(self, mode, clauses):
        table = make(mode=mode)
        with pytest.raises(
            InvalidInputError, match=r"2 rows of the source match one row of table db.t \(id = 5\), so that"
        ):
            table.merge(rows([(4, "a", 1), (5, "a", 1), (5, "b", 2)]), ["id"], clauses)
        assert found(table) == start()
        assert not staged(table)

    @pytest.mark.costly
    def test_of_a_narrower_type_and_beyond_the_range(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "int", "n": "int"})
        table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "n": pa.array([1, 2], pa.int32())}))
        given = pa.table({"id": pa.array([2, 1 << 40]), "x": [9, 9]})
        with pytest.raises(InvalidInputError, match=r"value 1099511627776 .* does not fit int"):
            table.merge(given, ["id"], "when matched then update set n = source.x")
        assert table.merge(given[:1], ["id"], "when matched then update set n = source.x").updated_records == 1
        wide = given.rename_columns(["k", "x"])
        clauses = "when matched then update set n = source.x + 1"
        assert table.merge(wide, "target.id = source.k", clauses).updated_records == 1


class TestTables:
    """Without rows, on a branch, with delete files, and after they have changed."""

    @pytest.mark.costly
    def test_without_a_snapshot(self):
        table = Table.create(MemoryCatalog(), "db.t", schema=COLUMNS)
        assert table.merge(rows([(1, "a", 1)]), ["id"], "when matched then delete").outcome == "nothing"
        assert table.merge(rows([(1, "a", 1)]), ["id"], "when not matched by source then delete").outcome == "nothing"
        result = table.upsert(rows([(1, "a", 1)]), ["id"])
        assert (result.added_records, found(table)) == (1, {1: ("a", 1)})

    def test_without_rows(self):
        table = make()
        table.delete("true")
        assert table.upsert(rows([(1, "a", 1)]), ["id"]).added_records == 1
        assert found(table) == {1: ("a", 1)}

    def test_of_a_branch(self):
        table = make()
        table.create_branch("dev")
        table.delete("id < 5")
        result = table.upsert(rows([(1, "z", 1), (40, "z", 1)]), ["id"], branch="dev")
        assert (result.updated_records, result.added_records) == (1, 1)
        assert found(table, ref="dev") == {**start(), 1: ("z", 1), 40: ("z", 1)}
        assert len(found(table)) == 15
        with pytest.raises(NotFoundError, match="nope"):
            table.upsert(rows([(1, "z", 1)]), ["id"], branch="nope")

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_of_other_schemas_and_specs(self, mode):
        table = make(2, mode)
        table.alter([{"add_partition_field": "bucket(2, id)"}, {"drop_partition_field": "part"}])
        table.alter(
            [{"add_column": {"name": "extra", "type": "string"}}, {"rename_column": {"from": "n", "to": "amount"}}]
        )
        table.append(pa.table({"id": [20], "part": ["a"], "amount": pa.array([20], pa.int32()), "extra": ["x"]}))
        given = pa.table({"id": [1, 20, 21], "extra": ["e"] * 3})
        clauses = (
            "when matched then update set extra = source.extra, amount = amount + 1 "
            "when not matched then insert (id, extra) values (source.id, source.extra)"
        )
        assert table.merge(given, ["id"], clauses).updated_records == 2
        read = {row["id"]: row for row in table.scan("extra = 'e'").to_arrow().to_pylist()}
        assert {key: row["amount"] for key, row in read.items()} == {1: 2, 20: 21, 21: None}
        assert table.scan().count() == 22

    @pytest.mark.costly
    @pytest.mark.parametrize("version", [2, 3])
    def test_of_which_rows_are_deleted_already(self, version):
        table = make(version, MOR, **{"write.delete.mode": MOR})
        table.delete("id in (3, 4)")
        result = table.upsert(rows([(3, "z", 3), (5, "z", 5)]), ["id"])
        assert (result.updated_records, result.added_records) == (1, 1)
        expected = {**start(), 3: ("z", 3), 5: ("z", 5)}
        del expected[4]
        assert found(table) == expected

    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_rows_keep_their_ids(self, mode):
        table = make(3, mode)
        before = {row["id"]: row for row in lineage(table).to_pylist()}
        table.upsert(rows([(3, "b", 30), (40, "b", 1)]), ["id"])
        after = {row["id"]: row for row in lineage(table.refresh()).to_pylist()}
        number = table.current_snapshot().sequence_number
        assert {key: row["_row_id"] for key, row in after.items() if key != 40} == {
            key: row["_row_id"] for key, row in before.items()
        }
        changed = [key for key, row in after.items() if row["_last_updated_sequence_number"] == number]
        assert sorted(changed) == [3, 40]

    def test_files_without_a_key_are_not_opened(self):
        table = make(partition_by=())
        (path,) = (task.file.file_path for task in table.scan("id < 10").plan_files())
        table.io.delete([path])
        assert table.upsert(rows([(12, "z", 1)]), ["id"]).updated_records == 1


class TestRetries:
    """A task merges once, however often it is tried."""

    def no_job(self, plan):
        raise AssertionError("a job was started")

    @pytest.mark.costly
    @pytest.mark.parametrize("meanwhile", ["nothing", "append"])
    def test_a_retry_finds_the_commit(self, meanwhile):
        inner = MemoryCatalog()
        make(catalog=inner)
        table = Table.load(FaultyCatalog(inner, [Fault.CRASH_AFTER]), "db.t")
        with pytest.raises(SimulatedCrash):
            merge(Work(table, operation_key=KEY), request(feed([(3, 30, "u"), (4, 0, "d"), (50, 500, "i")])))
        again = Table.load(inner, "db.t")
        if meanwhile == "append":
            again.append(rows([(60, "a", 60)]))
        work = Work(again.refresh(), run=self.no_job, operation_key=KEY, try_number=2)
        result = merge(work, request(feed([(3, 31, "u")])))
        counts = (result.added_records, result.updated_records, result.deleted_records)
        assert (result.outcome, counts) == ("found", (1, 1, 1))
        expected = {**start(), 3: ("b", 30), 50: (None, 500), **({60: ("a", 60)} if meanwhile == "append" else {})}
        del expected[4]
        assert found(again) == expected

    @pytest.mark.costly
    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT])
    def test_an_answer_is_lost_and_the_snapshot_expires(self, fault):
        def rival(catalog, table):
            other = Table.load(catalog, table)
            other.append(rows([(60, "a", 60)]))
            expire_snapshots(Work(other), ExpireSnapshotsRequest(older_than_ms=now_ms() + 1000))

        inner = MemoryCatalog()
        make(catalog=inner)
        table = Table.load(FaultyCatalog(inner, [fault], rival=rival), "db.t")
        given = request(pa.table({"id": [3]}), clauses="when matched then update set n = target.n + 1")
        with suppress(CommitUnknownError, StalePlanError):
            merge(Work(table, operation_key=KEY), given)
        assert found(Table.load(inner, "db.t")) == {**start(), 3: ("b", 4), 60: ("a", 60)}

    @pytest.mark.costly
    @pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT])
    def test_a_swap_that_goes_wrong(self, fault):
        inner = MemoryCatalog()
        make(catalog=inner)
        table = Table.load(FaultyCatalog(inner, [fault]), "db.t")
        result = merge(Work(table), request(feed([(3, 30, "u")])))
        assert (result.outcome, result.updated_records) == ("committed", 1)
        assert found(table) == {**start(), 3: ("b", 30)}
        assert not data_locations(table) - reachable(table)

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_a_task_that_is_killed_leaves_unreferenced_files_only(self, mode):
        inner = MemoryCatalog()
        make(mode=mode, catalog=inner)
        table = Table.load(FaultyCatalog(inner, [Fault.CRASH_BEFORE]), "db.t")
        before = reachable(table)
        with pytest.raises(SimulatedCrash):
            merge(Work(table, operation_key=KEY), request(feed([(3, 30, "u")])))
        again = Table.load(inner, "db.t")
        assert reachable(again) == before
        assert found(again) == start()
        result = merge(Work(again, operation_key=KEY, try_number=2), request(feed([(3, 30, "u")])))
        assert (result.outcome, found(again)) == ("committed", {**start(), 3: ("b", 30)})

    @pytest.mark.costly
    def test_a_cleared_task_merges_once_more(self):
        table = make()
        given = request(pa.table({"id": [3]}), clauses="when matched then update set n = target.n + 1")
        merge(Work(table, operation_key=KEY), given)
        merge(Work(table, operation_key=KEY, try_number=2), given)
        assert found(table)[3] == ("b", 4)
        merge(Work(table, operation_key=replace(KEY, epoch=KEY.epoch + 1)), given)
        assert found(table)[3] == ("b", 5)


class TestOthers:
    """What other writers change meanwhile is planned again on the newer table."""

    def merged(self, table, meanwhile, given=None, **more):
        jobs = []

        def run(plan):
            jobs.append(1)
            result = run_local(plan, table.io, threads=2)
            meanwhile(len(jobs))
            return result

        given = given or request(feed([(3, 30, "u"), (50, 500, "i")]), **more)
        return merge(Work(table, run=run), given), len(jobs)

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "mode"), [(2, COW), (2, MOR), (3, MOR)])
    def test_the_same_rows(self, version, mode):
        table = make(version, mode)

        def meanwhile(number):
            if number == 1:
                Table.load(table.catalog, "db.t").update({"n": "n + 1000"}, where="id = 3")

        clauses = (
            "when matched then update set n = target.n + source.n when not matched then insert (id) values (source.id)"
        )
        result, jobs = self.merged(table, meanwhile, request(feed([(3, 30, "u"), (50, 500, "i")]), clauses=clauses))
        assert found(table) == {**start(), 3: ("b", 1033), 50: (None, None)}
        assert (jobs, result.updated_records, result.added_records) == (2, 1, 1)
        assert not data_locations(table) - reachable(table)

    @pytest.mark.costly
    @pytest.mark.parametrize(("isolation", "jobs"), [("serializable", 2), ("snapshot", 1)])
    @pytest.mark.parametrize("as_property", [False, True])
    def test_a_row_with_a_key_that_comes_meanwhile(self, isolation, jobs, as_property):
        table = make(**({"write.merge.isolation-level": isolation} if as_property else {}))

        def meanwhile(number):
            if number == 1:
                Table.load(table.catalog, "db.t").append(rows([(50, "a", 1)]))

        more = {} if as_property else {"isolation_level": isolation}
        result, run = self.merged(table, meanwhile, **more)
        assert (run, result.added_records) == (jobs, 2 - jobs)
        assert table.refresh().scan("id = 50").count() == (1 if jobs == 2 else 2)

    def test_other_keys_are_no_conflict(self):
        table = make(partition_by=())

        def meanwhile(number):
            other = Table.load(table.catalog, "db.t")
            other.append(rows([(60, "a", 1)]))
            other.delete("id = 15")

        _, jobs = self.merged(table, meanwhile)
        assert jobs == 1
        expected = {**start(), 3: ("b", 30), 50: (None, 500), 60: ("a", 1)}
        del expected[15]
        assert found(table) == expected

    @pytest.mark.costly
    def test_metadata_that_is_removed_before_the_job_begins(self):
        """As by `write.metadata.delete-after-commit.enabled` on a table with many writers."""
        table = make()
        jobs = []

        def run(plan):
            jobs.append(plan)
            if len(jobs) == 1:
                Table.load(table.catalog, "db.t").append(rows([(60, "a", 1)]))
                table.io.delete([plan.task.target.metadata_location])
            return run_local(plan, table.io, threads=2)

        assert merge(Work(table, run=run), request(feed([(3, 30, "u")]))).updated_records == 1
        assert (len(jobs), found(table)) == (2, {**start(), 3: ("b", 30), 60: ("a", 1)})

    @pytest.mark.costly
    def test_again_and_again(self):
        table = make()
        disk = data_locations(table)
        with pytest.raises(StalePlanError):
            self.merged(table, lambda number: Table.load(table.catalog, "db.t").append(rows([(3, "b", 3)])))
        assert len(data_locations(table) - disk) == 4  # of the appends
        assert not data_locations(table) - reachable(table.refresh())


class TestBadInput:
    """One clear error each; nothing is committed, and nothing is left."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"on": ()}, r"on is empty, expected columns such as \['id'\], or a condition in SQL"),
            ({"on": " "}, r"on is empty, expected columns such as \['id'\], or a condition in SQL"),
            (
                {"on": "id"},
                r"on is 'id', expected columns such as \['id'\], or a condition in SQL over target and source",
            ),
            ({"clauses": None}, "a merge needs either clauses or upsert=True, and not both"),
            ({"upsert": True}, "a merge needs either clauses or upsert=True, and not both"),
            ({"dialect": "mysql"}, "unknown dialect 'mysql'; one of spark, duckdb"),
            ({"clauses": "delete"}, "the clauses of the merge are not understood before 'delete': expected 'when'"),
            ({"params": {"x": 1}}, r"^params has 'x', and the query has no placeholder \$x"),
            (
                {"inputs": {"target": Input(open=make)}},
                "an input cannot be named 'target', which is the name of the table's own rows",
            ),
            ({"inputs": {"o": Input(open=make)}}, "inputs are tables that sql or python_callable reads, and the rows"),
            ({"snapshot_properties": {"inserted-rows": "7"}}, "inserted-rows"),
        ],
    )
    def test_of_a_request(self, change, message):
        given = {"rows": rows([(1, "a", 1)]), "on": ["id"], "clauses": FEED, "dialect": "duckdb", **change}
        with pytest.raises(InvalidInputError, match=message):
            MergeRequest(**given)

    @pytest.mark.parametrize(
        ("on", "clauses", "message"),
        [
            (["id"], "when matched then update set nope = 1", "column 'nope' of 'update' is not in the table,"),
            (["id"], "when not matched then insert (nope) values (1)", "column 'nope' of 'insert' is not in the table"),
            (["id"], "when matched then update set n = source.nope", "nope"),
            (["id"], "when matched and nope then delete", "nope"),
            (["id"], "when matched then update set *", r"'update set \*' needs all columns of the table in the source"),
            (["id"], "when not matched then insert *", r"the table in the source, which lacks 'part'"),
            (["op"], "when matched then delete", "op"),
            (["n"], "when matched then delete", "column 'n', by which rows are matched, is not in"),
            ("target.id =", "when matched then delete", "Parser Error: syntax error"),
            ("target.id = source.id", "when matched then update set n = 99999999999", "99999999999"),
            ("target.id = source.id", "when matched then update set n = 'x'", "x"),
            ("target.id = nowhere.id", "when matched then delete", "nowhere"),
            ("target.id = source.id", "when matched then update set n = (select max(k) from other)", "other"),
        ],
    )  # fmt: skip
    def test_of_sql_that_does_not_fit(self, on, clauses, message):
        table = make()
        disk, head = data_locations(table), table.current_snapshot()
        with pytest.raises((InvalidInputError, NotFoundError), match=message):
            table.merge(pa.table({"id": [1], "op": ["u"]}), on, clauses)
        assert (data_locations(table), table.refresh().current_snapshot()) == (disk, head)
        assert not staged(table)

    def test_of_a_null_in_a_required_column(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long not null", "n": "long not null"})
        table.append(pa.table({"id": [1], "n": [1]}, schema=pa.schema([
            pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)
        ])))  # fmt: skip
        for clauses in (
            "when matched then update set n = null",
            "when not matched then insert (id) values (source.id)",
        ):
            with pytest.raises(InvalidInputError, match="'n'"):
                table.merge(pa.table({"id": [1, 2]}), ["id"], clauses)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"mode": "fast"}, "mode is 'fast', expected 'copy-on-write'"),
            ({"isolation_level": "none"}, "isolation_level is 'none'"),
        ],
    )
    def test_of_an_option(self, change, message):
        table = make()
        with pytest.raises(InvalidInputError, match=message):
            table.merge(rows([(1, "a", 1)]), ["id"], UPSERT, **change)

    @pytest.mark.parametrize("given", [[{"id": 1}], {"id": [1]}, "select 1"], ids=str)
    def test_of_rows_that_are_none(self, given):
        with pytest.raises(InvalidInputError, match="expected an Arrow table, record batch or reader, got"):
            make().merge(given, ["id"], UPSERT)
