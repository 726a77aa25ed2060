"""A table as a Spark DataFrame: planned by the driver, read by the workers, in Spark's types."""

import json
import pickle
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs import table_reader
from airflow_iceberg.jobs.protocol.table_input import cut_group
from airflow_iceberg.jobs.spark.frame_schema import SparkRows, spark_ddl
from airflow_iceberg.jobs.spark.read_table import read_table
from airflow_iceberg.jobs.table_reader import plan_read
from airflow_iceberg.table import Table
from tests.jobs.submissions import HERE, VERSIONS
from tests.support import golden
from tests.support.builders import new_table

COLUMNS = {"id": "long not null", "b": "boolean", "i": "int", "f": "float", "d": "double", "day": "date"}
COLUMNS |= {"ts_tz": "timestamptz", "ts": "timestamp", "s": "string", "bin": "binary", "fx": "fixed[2]", "u": "uuid"}
COLUMNS |= {"dec": "decimal(9,2)", "tags": "list<uuid>", "m": "map<string, struct<u: uuid, n: int>>"}
COLUMNS |= {"p": "struct<x: double, y: list<long>>"}
KEY = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def row(number: int) -> dict[str, Any]:
    if number % 4 == 3:
        return {**dict.fromkeys(COLUMNS), "id": number}
    return {
        "id": number,
        "b": True,
        "i": number,
        "f": 1.5,
        "d": 0.25,
        "day": date(2026, 1, 1 + number % 3),
        "ts_tz": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "ts": datetime(2026, 1, 1, 12, 0, 0, 7),  # noqa: DTZ001 - a timestamp without a zone
        "s": f"ä{number}",
        "bin": b"\x00\xff",
        "fx": b"ab",
        "u": KEY.bytes,
        "dec": Decimal("12.34"),
        "tags": [KEY.bytes, None],
        "m": [("k", {"u": KEY.bytes, "n": number})],
        "p": {"x": 1.5, "y": [number, None]},
    }


def in_spark(number: int) -> dict[str, Any]:
    """Return the same row as a worker of Spark in the time zone UTC collects it."""
    found = row(number)
    if found["b"] is None:
        return found
    return {
        **found,
        "ts_tz": datetime(2026, 1, 1, 12),  # noqa: DTZ001 - as Spark gives it
        "bin": bytearray(found["bin"]),
        "fx": bytearray(found["fx"]),
        "u": str(KEY),
        "tags": [str(KEY), None],
        "m": {"k": {"u": str(KEY), "n": number}},
    }


def append(table: Table, numbers: range) -> Table:
    rows = pa.Table.from_pylist([row(number) for number in numbers], schema_to_arrow(table.schema()))
    table.append(rows)
    return table


def rows_of(table: Table, **settings: Any) -> list[dict[str, Any]]:
    reader, items = plan_read(table.io, table.metadata_location, **settings)
    rows = SparkRows(reader.projection)
    return [
        found for item in items for batch in reader.rows(table.io, item) for found in rows.convert(batch).to_pylist()
    ]


READABLE = [name for name, table in golden.tables().items() if not table.is_refused and "geo" not in name]


class TestRows:
    """The rows of all tasks together are those of a scan."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("name", sorted(READABLE))
    def test_reference_tables_give_the_rows_of_their_scan(self, name, monkeypatch):
        found = golden.table(name)
        table = Table.from_metadata(found.metadata_location, found.properties, io=found.io)
        monkeypatch.setattr(table_reader, "cut_group", lambda units, **_: cut_group(units, split_size_bytes=1))
        reader, items = plan_read(table.io, table.metadata_location)
        batches = [batch for item in items for batch in reader.rows(table.io, item)]
        found = pa.Table.from_batches(batches, schema_to_arrow(reader.projection, with_field_ids=False))
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, table.scan().to_arrow().to_pylist()))

    def test_columns_come_in_sparks_types(self, tmp_path):
        found = rows_of(append(new_table(tmp_path, schema=COLUMNS), range(8)))
        assert found[1]["u"] == str(KEY)
        assert found[1]["tags"] == [str(KEY), None]
        assert found[1]["m"] == [("k", {"u": str(KEY), "n": 1})]
        assert found[3] == row(3)

    def test_slices_of_nested_columns_keep_their_rows(self, tmp_path):
        table = append(new_table(tmp_path, schema=COLUMNS), range(8))
        batch = table.scan().to_arrow().combine_chunks().to_batches()[0]
        rows = SparkRows(table.schema())
        whole = rows.convert(batch).to_pylist()
        for start in range(8):
            assert rows.convert(batch.slice(start, 3)).to_pylist() == whole[start : start + 3]

    @pytest.mark.costly
    def test_filter_columns_and_snapshot_are_those_asked_for(self, tmp_path):
        table = append(new_table(tmp_path, schema=COLUMNS, partition_by=["day"]), range(8))
        first = table.current_snapshot().snapshot_id
        append(table, range(8, 12))
        found = rows_of(table, row_filter="id > 3 and day = '2026-01-02'", selected_fields=["id", "_pos"])
        assert [set(one) for one in found] == [{"id", "_pos"}] * len(found)
        assert sorted(one["id"] for one in found) == [4, 10]
        assert len(rows_of(table, snapshot_id=first)) == 8

    def test_deleted_rows_are_gone(self, tmp_path):
        table = append(new_table(tmp_path, schema=COLUMNS, properties={"write.delete.mode": "merge-on-read"}), range(8))
        table.delete("id = 5")
        assert sorted(one["id"] for one in rows_of(table)) == [0, 1, 2, 3, 4, 6, 7]

    def test_a_table_without_rows_has_no_tasks(self, tmp_path):
        assert plan_read((table := new_table(tmp_path, schema=COLUMNS)).io, table.metadata_location)[1] == []


class TestTasks:
    """A task reads about `read.split.target-size` bytes, 128 MiB by default; a file counts as 4 MiB at least."""

    def tasks(self, folder, **properties):
        table = new_table(folder, schema={"id": "long not null", "s": "string"}, properties=properties)
        for start in range(0, 4000, 1000):
            numbers = range(start, start + 1000)
            rows = {"id": numbers, "s": [f"{n:x}" * 9 for n in numbers]}
            table.append(pa.table(rows, schema_to_arrow(table.schema())))
        reader, items = plan_read(table.io, table.metadata_location)
        ids = [[n for batch in reader.rows(table.io, item) for n in batch["id"].to_pylist()] for item in items]
        assert sorted(number for found in ids for number in found) == list(range(4000))
        return [len(found) for found in ids]

    @pytest.mark.parametrize(
        ("properties", "rows"),
        [
            ({}, [4000]),
            ({"read.split.target-size": str(8 << 20)}, [2000, 2000]),
            ({"read.split.target-size": str(5 << 20)}, [1000] * 4),
        ],
    )
    def test_small_files_share_one(self, properties, rows, tmp_path):
        assert self.tasks(tmp_path, **properties) == rows

    def test_large_files_are_cut_between_row_groups(self, tmp_path):
        properties = {"read.split.target-size": "1", "write.parquet.row-group-size-bytes": "4096"}
        assert len(self.tasks(tmp_path, **properties)) > 4

    @pytest.mark.parametrize("text", ["0", "-1", "128MB", ""])
    def test_what_is_no_size_is_refused(self, text, tmp_path):
        message = rf"property read\.split\.target-size is '{text}' \(expected a number"
        with pytest.raises(InvalidInputError, match=message):
            self.tasks(tmp_path, **{"read.split.target-size": text})


class TestTypes:
    """Every column has a type of Spark, or is refused by name."""

    def test_the_schema_is_that_of_icebergs_reader(self):
        assert spark_ddl(schema_from_shorthand(COLUMNS), spark_version="3.5.9") == (
            "`id` bigint, `b` boolean, `i` int, `f` float, `d` double, `day` date, `ts_tz` timestamp, "
            "`ts` timestamp_ntz, `s` string, `bin` binary, `fx` binary, `u` string, `dec` decimal(9,2), "
            "`tags` array<string>, `m` map<string, struct<`u`: string, `n`: int>>, `p` struct<`x`: double, "
            "`y`: array<bigint>>"
        )

    def test_names_are_quoted(self):
        assert spark_ddl(schema_from_shorthand({"a`b c": "int"}), spark_version="4.2.0") == "`a``b c` int"

    @pytest.mark.parametrize(
        ("type_", "why"),
        [
            ("time", "Spark has no time of day"),
            ("timestamp_ns", "Spark's timestamps have microseconds"),
            ("geometry", "it is not read yet"),
            ("variant", "Spark 3 has no variants; use Spark 4"),
        ],
    )
    def test_what_spark_does_not_have_is_refused(self, type_, why):
        schema = schema_from_shorthand({"s": f"struct<x: {type_}>"})
        with pytest.raises(UnsupportedError, match=f"column 's.x' is of type {type_}.*{why}; select other columns"):
            spark_ddl(schema, spark_version="3.5.9")

    def test_spark_4_has_variants(self):
        assert spark_ddl(schema_from_shorthand({"v": "variant"}), spark_version="4.0.0") == "`v` variant"


class TestBadInput:
    """What cannot be read is said before a task starts."""

    def test_a_name_is_no_location(self):
        with pytest.raises(InvalidInputError, match="expected the location of a metadata file"):
            read_table(None, "sales.orders")

    def test_an_unknown_snapshot(self, tmp_path):
        table = append(new_table(tmp_path, schema=COLUMNS), range(2))
        with pytest.raises(NotFoundError, match="snapshot 7 is not in"):
            plan_read(table.io, table.metadata_location, snapshot_id=7)

    def test_an_unknown_column(self, tmp_path):
        table = append(new_table(tmp_path, schema=COLUMNS), range(2))
        with pytest.raises((NotFoundError, InvalidInputError), match="nowhere"):
            plan_read(table.io, table.metadata_location, selected_fields=["nowhere"])


@pytest.fixture(scope="module", params=VERSIONS)
def answers(request, spark_of, tmp_path_factory):
    """What a version of Spark gives for several reads, in one session."""
    root = tmp_path_factory.mktemp("read")
    table = append(append(new_table(root / "a", schema=COLUMNS, partition_by=["day"]), range(8)), range(8, 12))
    deleted = append(new_table(root / "b", schema=COLUMNS, properties={"write.delete.mode": "merge-on-read"}), range(8))
    deleted.delete("id = 5")
    empty = new_table(root / "c", schema=COLUMNS)
    time = new_table(root / "d", schema={"id": "long", "t": "time"})
    variants = new_table(root / "e", schema={"id": "long", "v": "variant"}, properties={"format-version": "3"})
    values = [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}, None]
    variants.append(pa.table({"id": [1, 2], "v": values}, schema_to_arrow(variants.schema())))
    questions = {
        "all": (table.metadata_location, {}),
        "filtered": (table.metadata_location, {"row_filter": "id > 3", "selected_fields": ["id"]}),
        "aggregated": (table.metadata_location, {"show": ["count(*) as n", "sum(id) as total"]}),
        "counted": (table.metadata_location, {"selected_fields": ["id"], "show": ["count(*) as n"]}),
        "deleted": (deleted.metadata_location, {"selected_fields": ["id"]}),
        "empty": (empty.metadata_location, {}),
        "time": (time.metadata_location, {}),
        "variant": (variants.metadata_location, {"show": ["id", "to_json(v) as v"]}),
    }
    (root / "questions").write_text(json.dumps(questions))
    spark_of(request.param).run(HERE / "read_program.py", str(root / "questions"), str(root / "answers"))
    return pickle.loads((root / "answers").read_bytes())


class TestSpark:
    """In a session of Spark the rows are the same."""

    @pytest.mark.services
    def test_every_type(self, answers):
        found = sorted(answers["all"]["rows"], key=lambda one: one["id"])
        assert found == [in_spark(number) for number in range(12)]

    def test_filters_and_columns(self, answers):
        assert sorted(one["id"] for one in answers["filtered"]["rows"]) == list(range(4, 12))
        assert answers["filtered"]["schema"] == "struct<id:bigint>"

    def test_spark_goes_on_from_there(self, answers):
        assert answers["aggregated"]["rows"] == [{"n": 12, "total": 66}]
        assert answers["counted"]["rows"] == [{"n": 12}]

    def test_deletes_are_applied(self, answers):
        assert sorted(one["id"] for one in answers["deleted"]["rows"]) == [0, 1, 2, 3, 4, 6, 7]

    def test_a_table_without_rows(self, answers):
        assert answers["empty"]["rows"] == []

    def test_a_type_that_spark_does_not_have(self, answers):
        assert answers["time"]["error"].startswith("UnsupportedError: column 't' is of type time")

    def test_variants_where_spark_has_them(self, answers):
        if answers["version"].startswith("3."):
            assert "Spark 3 has no variants" in answers["variant"]["error"]
        else:
            assert sorted(map(str, answers["variant"]["rows"])) == ["{'id': 1, 'v': '7'}", "{'id': 2, 'v': None}"]
