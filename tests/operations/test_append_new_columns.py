"""`schema_evolution="add_columns"`: columns of the rows join the table's schema in the commit that brings the rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import InvalidInputError, StalePlanError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, discard, plan_append
from tests.support.builders import job_work, new_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = {"id": "int not null", "day": "string", "p": "struct<x: int>"}
    table = new_table(tmp_path, schema=schema, partition_by=["day"])
    table.append(pa.table({"id": pa.array([1], pa.int32()), "day": ["a"], "p": pa.array([{"x": 1}], POINT)}))
    return table


POINT = pa.struct([("x", pa.int32())])
DEEP = pa.map_(pa.string(), pa.list_(pa.int64()))


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Source]:
    def write(*tables: pa.Table) -> Source:
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        for number, rows in enumerate(tables):
            pq.write_table(rows, folder / f"{number}.parquet")
        return Source.from_files(f"{folder}/*.parquet")

    return write


def append(table: Table, source: Source, meanwhile: Callable[[], Any] = lambda: None, **options: Any) -> None:
    plan = plan_append(table, source, **{"schema_evolution": "add_columns", **options})
    result = run_local(plan, table.io, threads=1)
    try:
        result.raise_for_error()
    except Exception:
        discard(table, plan)
        raise
    meanwhile()
    commit_append(table, plan, result)


class TestAppends:
    """New columns and legal promotions, in one commit with the rows."""

    def test_a_new_column(self, table, source):
        versions = len(table.metadata.metadata_log)
        append(
            table, source(pa.table({"id": pa.array([2], pa.int32()), "day": ["a"], "price": [1.5], "tags": [["x"]]}))
        )
        assert [str(field.type) for field in table.schema().fields[3:]] == ["double", "list<string>"]
        assert len(table.metadata.metadata_log) == versions + 1
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["price"], row["tags"]) for row in rows] == [(1, None, None), (2, 1.5, ["x"])]
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.schema_id == table.metadata.current_schema_id == 1

    def test_files_that_differ(self, table, source):
        one = pa.table({"id": pa.array([2], pa.int32()), "a": [1]})
        two = pa.table({"id": pa.array([3], pa.int32()), "b": ["x"], "a": [2]})
        append(table, source(one, two))
        assert [field.name for field in table.schema().fields] == ["id", "day", "p", "a", "b"]
        rows = table.scan("id > 1").to_arrow().sort_by("id").to_pylist()
        assert [(row["a"], row["b"]) for row in rows] == [(1, None), (2, "x")]

    def test_a_wider_type(self, table, source):
        append(table, source(pa.table({"id": pa.array([1 << 40], pa.int64()), "day": ["b"]})))
        assert str(table.schema().fields[0].type) == "long"
        assert table.schema().fields[0].required
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1 << 40]
        assert table.scan("id > 5").count() == 1

    def test_a_new_field_of_a_struct(self, table, source):
        point = pa.struct([("x", pa.int64()), ("y", pa.string())])
        append(table, source(pa.table({"id": pa.array([2], pa.int32()), "p": pa.array([{"x": 5, "y": "z"}], point)})))
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert [row["p"] for row in rows] == [{"x": 1, "y": None}, {"x": 5, "y": "z"}]

    @pytest.mark.parametrize(
        ("column", "before", "rows", "after"),
        [
            ("list<int>", [[1]], pa.array([[1 << 40]]), "list<long>"),
            (
                "map<int, float>",
                [[(1, 0.5)]],
                pa.array([[(2, 0.1)]], pa.map_(pa.int64(), pa.float64())),
                "map<int, double>",
            ),
            ("list<struct<x: int>>", [[{"x": 1}]], pa.array([[{"x": 1 << 40, "y": "z"}]]), None),
            ("map<string, list<int>>", [[("a", [1])]], pa.array([[("b", [1 << 40])]], DEEP), None),
        ],
    )
    def test_within_lists_and_maps(self, table, source, column, before, rows, after):
        table.alter([{"add_column": {"name": "c", "type": column}}])
        kind = table.scan(selected_fields=("c",)).to_arrow().schema.field("c").type
        table.append(pa.table({"id": pa.array([2], pa.int32()), "c": pa.array(before, kind)}))
        append(table, source(pa.table({"id": pa.array([3], pa.int32()), "c": rows})))
        assert after in (None, str(table.schema().fields[-1].type))
        found = table.scan("id >= 2").to_arrow().sort_by("id")["c"].to_pylist()
        first = [[{"x": 1, "y": None}]] if "struct" in column else before
        assert found == [*first, *rows.to_pylist()]

    def test_the_keys_of_a_map_never_change(self, table, source):
        table.alter([{"add_column": {"name": "c", "type": "map<int, int>"}}])
        rows = pa.array([[(1 << 40, 1)]], pa.map_(pa.int64(), pa.int32()))
        with pytest.raises(InvalidInputError, match=r"column 'c.key', row 1 .* does not fit int"):
            append(table, source(pa.table({"id": pa.array([3], pa.int32()), "c": rows})))

    def test_csv(self, table, tmp_path):
        (tmp_path / "rows.csv").write_text("id,day,note\n7,a,hello\n")
        append(table, Source.from_files(str(tmp_path / "rows.csv")))
        assert table.scan("id = 7").to_arrow()["note"].to_pylist() == ["hello"]

    @pytest.mark.parametrize("more", [{}, {"price": pa.array([], pa.float64())}], ids=["no new column", "no rows"])
    def test_nothing_new_changes_no_schema(self, table, source, more):
        numbers = [] if more else [2]
        append(table, source(pa.table({"id": pa.array(numbers, pa.int32()), **more})))
        assert len(table.metadata.schemas) == 1

    def test_unasked_a_new_column_is_refused(self, table, source):
        with pytest.raises(InvalidInputError, match=r"column 'price' of .* is not in the table"):
            append(table, source(pa.table({"id": pa.array([2], pa.int32()), "price": [1.5]})), schema_evolution=None)

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ({"ID": [1]}, "column 'ID' is not added: the table has 'id'"),
            ({"p": pa.array([{"X": 1}])}, "column 'p.X' is not added: the table has 'p.x'"),
            ({"d": pa.array([1], pa.duration("s"))}, "d"),
        ],
    )
    def test_what_cannot_be_added(self, table, source, column, message):
        with pytest.raises(InvalidInputError, match=message):
            append(table, source(pa.table({"id": pa.array([2], pa.int32()), **column})))

    def test_of_two_that_add_columns_one_plans_again(self, table, source):
        rows = source(pa.table({"id": pa.array([2], pa.int32()), "price": [1.5]}))

        def other() -> None:
            Table.load(table.catalog, "db.t").alter([{"add_column": {"name": "other", "type": "string"}}])

        with pytest.raises(StalePlanError, match="the schema of the table was changed"):
            append(table, rows, other)
        append(table.refresh(), rows)
        assert [field.name for field in table.schema().fields] == ["id", "day", "p", "other", "price"]

    def test_another_word_is_refused(self, table, source):
        with pytest.raises(InvalidInputError, match="schema_evolution is 'all', expected 'add_columns' or None"):
            append(table, source(pa.table({"id": [1]})), schema_evolution="all")


class TestOverwrites:
    """The same, with rows that go in the same commit."""

    @pytest.mark.parametrize(
        "request_", [{"overwrite_filter": "day = 'a'"}, {"replace": "table"}, {"replace": "partitions"}]
    )
    def test_a_new_column(self, table, source, request_):
        rows = source(pa.table({"id": pa.array([1 << 40], pa.int64()), "day": ["a"], "price": [1.5]}))
        before = len(table.snapshots())
        overwrite(job_work(table), OverwriteRequest(rows=rows, schema_evolution="add_columns", **request_))
        assert table.scan().to_arrow().select(["id", "price"]).to_pylist() == [{"id": 1 << 40, "price": 1.5}]
        assert len(table.snapshots()) == before + 1

    def test_beside_rows_that_are_carried(self, table, source):
        table.append(pa.table({"id": pa.array([5, 6], pa.int32()), "day": ["a", "a"]}))
        rows = source(pa.table({"id": pa.array([5], pa.int64()), "day": ["c"], "price": [1.5]}))
        request = OverwriteRequest(rows=rows, schema_evolution="add_columns", overwrite_filter="id = 5")
        overwrite(job_work(table), request)
        found = table.scan().to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["price"]) for row in found] == [(1, None), (5, 1.5), (6, None)]


WRITERS: dict[str, Callable[..., Any]] = {
    "append": lambda table, rows, **more: table.append(rows, **more),
    "overwrite": lambda table, rows, **more: table.overwrite(rows, **more),
    "matching": lambda table, rows, **more: table.overwrite(rows, "day = 'a'", **more),
    "partitions": lambda table, rows, **more: table.dynamic_partition_overwrite(rows, **more),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
class TestArrowRowsOfThisProcess:
    """The same for rows that no job brings: `Table.append`, `Table.overwrite`, `Table.dynamic_partition_overwrite`."""

    def test_a_new_column_and_a_wider_type(self, table, write):
        versions = len(table.metadata.metadata_log)
        rows = pa.table({"id": pa.array([1 << 40], pa.int64()), "day": ["a"], "price": [1.5], "tags": [["x"]]})
        assert write(table, rows, schema_evolution="add_columns").outcome == "committed"
        types = {field.name: str(field.type) for field in table.schema().fields if field.name != "p"}
        assert types == {"id": "long", "day": "string", "price": "double", "tags": "list<string>"}
        assert len(table.metadata.metadata_log) == versions + 1
        found = table.scan("id > 5").to_arrow().select(["id", "day", "price", "tags"]).to_pylist()
        assert found == [{"id": 1 << 40, "day": "a", "price": 1.5, "tags": ["x"]}]
        snapshot = table.current_snapshot()
        assert snapshot.schema_id == table.metadata.current_schema_id == 1

    @pytest.mark.parametrize("shape", ["batch", "reader"])
    def test_batches_and_readers(self, table, write, shape):
        rows = pa.table({"id": pa.array([2], pa.int32()), "day": ["a"], "price": [1.5]})
        (batch,) = rows.to_batches()
        given = batch if shape == "batch" else pa.RecordBatchReader.from_batches(rows.schema, [batch])
        write(table, given, schema_evolution="add_columns")
        assert table.scan("price = 1.5").count() == 1

    def test_unasked_a_new_column_is_refused(self, table, write):
        with pytest.raises(InvalidInputError, match="column 'price' of the Arrow rows is not in the table"):
            write(table, pa.table({"id": pa.array([2], pa.int32()), "day": ["a"], "price": [1.5]}))
        assert len(table.refresh().snapshots()) == 1

    def test_what_cannot_be_added_leaves_the_table_alone(self, table, write):
        with pytest.raises(InvalidInputError, match="column 'ID' is not added: the table has 'id'"):
            write(table, pa.table({"ID": [2], "day": ["a"]}), schema_evolution="add_columns")
        with pytest.raises(InvalidInputError, match="schema_evolution is 'all', expected 'add_columns' or None"):
            write(table, pa.table({"id": [2], "day": ["a"]}), schema_evolution="all")
        with pytest.raises(InvalidInputError, match="expected an Arrow table, record batch or record batch reader"):
            write(table, [{"id": 2}], schema_evolution="add_columns")
        assert (len(table.refresh().snapshots()), len(table.metadata.schemas)) == (1, 1)

    def test_another_writers_new_column_ends_it_and_nothing_is_left(self, table, write):
        Table.load(table.catalog, "db.t").alter([{"add_column": {"name": "other", "type": "string"}}])
        before = sorted(status.location for status in table.io.list(f"{table.location}/data"))
        with pytest.raises(StalePlanError, match="the schema of the table was changed"):
            write(table, pa.table({"id": [2], "day": ["a"], "price": [1.5]}), schema_evolution="add_columns")
        assert sorted(status.location for status in table.io.list(f"{table.location}/data")) == before


class TestAFilterOnAColumnThatWidens:
    """New rows are held against an overwrite's filter in the type that they get, not in the one that the table had."""

    def test_in_this_process(self, table):
        rows = pa.table({"id": pa.array([1 << 40], pa.int64()), "day": ["z"]})
        with pytest.raises(InvalidInputError, match="row 1 of the Arrow rows does not match the overwrite's filter"):
            table.overwrite(rows, "id < 3000000000", schema_evolution="add_columns")
        table.overwrite(rows, "id > 3000000000 or id = 1", schema_evolution="add_columns")
        assert table.scan().to_arrow()["id"].to_pylist() == [1 << 40]

    def test_in_a_job(self, table, source):
        rows = source(pa.table({"id": pa.array([1 << 40], pa.int64()), "day": ["z"]}))
        small = OverwriteRequest(rows=rows, schema_evolution="add_columns", overwrite_filter="id < 3000000000")
        with pytest.raises(InvalidInputError, match=r"row 1 of .* does not match the overwrite's filter"):
            overwrite(job_work(table), small)
        overwrite(job_work(table), replace(small, overwrite_filter="id > 3000000000 or id = 1"))
        assert table.scan().to_arrow()["id"].to_pylist() == [1 << 40]
