"""Existing files join a table where they are: by their footers, in one commit, and never deleted by it."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.data.existing.describe import describe
from airflow_iceberg.data.existing.target import ExistingFile
from airflow_iceberg.data.write.variant_footer import annotated
from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.values.bytes import from_bytes
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files, target_of
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import ids, job_work, lineage, new_table


def write(path: Path, rows: pa.Table | dict[str, Any], **options: Any) -> str:
    """Write a Parquet file without field ids, as other programs do, and return its location."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), path, **options)
    return f"file://{path}"


def entries(table: Table) -> list[DataFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = (entry for manifest in read_manifests(table.io, snapshot) for entry in read_entries(table.io, manifest))
    return sorted((entry.data_file for entry in found if entry.is_live), key=lambda file: file.file_path)


def bounds(table: Table, file: DataFile, name: str) -> tuple[Any, Any]:
    """Return the bounds of a column, None where it has none."""
    field = table.schema().fields_by_id[table.schema().names[name]]
    pair = [(found or {}).get(field.id) for found in (file.lower_bounds, file.upper_bounds)]
    low, high = (None if data is None else from_bytes(field.type, data) for data in pair)
    return low, high


def local(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type] # noqa: DTZ001 - of the type timestamp without a zone


def moment(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder that the table may use, and that is not the table's own."""
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


class TestRows:
    """The rows of the files are rows of the table, and the files stay where they are."""

    @pytest.mark.parametrize("version", ["1", "2", "3"])
    def test_in_every_version(self, tmp_path, lake, version):
        table = new_table(tmp_path, properties={"format-version": version})
        files = [write(lake / f"{n}.parquet", {"id": [n, n + 10]}) for n in range(3)]
        result = table.add_files(files)
        assert (result.outcome, result.operation, result.added_data_files) == ("committed", "append", 3)
        assert (result.added_records, ids(table)) == (6, [0, 1, 2, 10, 11, 12])
        assert [file.file_path for file in entries(table)] == files

    def test_row_ids_are_assigned_as_for_an_append(self, tmp_path, lake):
        table = new_table(tmp_path, properties={"format-version": "3"})
        table.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
        table.add_files([write(lake / "a.parquet", {"id": [3, 4]})])
        rows = lineage(table)
        assert rows["_row_id"].to_pylist() == [0, 1, 2, 3]
        assert rows["_last_updated_sequence_number"].to_pylist() == [1, 1, 2, 2]
        assert table.metadata.next_row_id == 4

    def test_the_name_mapping_comes_in_the_same_commit(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long"})
        before = table.metadata_location
        table.add_files([write(lake / "a.parquet", {"id": [1]})])
        assert table.properties["schema.name-mapping.default"] == '[{"field-id":1,"names":["id"]}]'
        assert table.metadata.metadata_log[-1][1] == before, "one commit"

    def test_a_name_mapping_that_is_there_is_followed(self, tmp_path, lake):
        mapping = '[{"field-id":1,"names":["id","ID"]}]'
        table = new_table(tmp_path, properties={"schema.name-mapping.default": mapping})
        table.add_files([write(lake / "a.parquet", {"ID": [1]})])
        assert ids(table) == [1]
        assert table.properties["schema.name-mapping.default"] == mapping

    def test_a_column_that_the_file_lacks_is_null_and_one_that_the_table_lacks_is_ignored(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})
        table.add_files([write(lake / "a.parquet", {"id": [1], "more": ["x"]})])
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": None}]

    def test_promoted_types_and_nested_columns(self, tmp_path, lake):
        schema = {"id": "long", "d": "decimal(12, 2)", "f": "double", "tags": "list<string>", "at": "struct<x: long>"}
        table = new_table(tmp_path, schema=schema)
        rows = pa.table(
            {
                "id": pa.array([1], pa.int32()),
                "d": pa.array([decimal.Decimal("1.25")], pa.decimal128(9, 2)),
                "f": pa.array([0.5], pa.float32()),
                "tags": [["a", "b"]],
                "at": pa.array([{"x": 7}], pa.struct([("x", pa.int32())])),
            }
        )
        table.add_files([write(lake / "a.parquet", rows)])
        row = {"id": 1, "d": decimal.Decimal("1.25"), "f": 0.5, "tags": ["a", "b"], "at": {"x": 7}}
        assert table.scan().to_arrow().to_pylist() == [row]
        assert table.scan("id = 1 and d > 1 and f < 1").to_arrow().num_rows == 1
        assert bounds(table, entries(table)[0], "id") == (1, 1)

    @pytest.mark.parametrize("parts", [("value",), ("value", "typed_value"), ("typed_value",)], ids="+".join)
    def test_variants_with_and_without_a_column_of_values(self, tmp_path, lake, parts):
        """As loads read them."""
        import duckdb

        kinds = {"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.int64()}
        number = {"metadata": b"\x01\x00\x00", "value": b"\x18" + (7).to_bytes(8, "little"), "typed_value": 7}
        if len(parts) == 2:
            number["value"] = None
        kind = pa.struct([(name, kinds[name]) for name in ("metadata", *parts)])
        rows = pa.table(
            {"id": [1, 2], "v": pa.array([{name: number[name] for name in ("metadata", *parts)}, None], kind)}
        )
        written = write(lake / "plain.parquet", rows, store_schema=False)
        path = Path(written.removeprefix("file://"))
        path.write_bytes(annotated(path.read_bytes(), [("v",)]))
        table = new_table(tmp_path, schema={"id": "long", "v": "variant"}, properties={"format-version": "3"})
        table.add_files([written])
        found = table.scan().to_arrow()["v"].to_pylist()
        assert found == [{"metadata": number["metadata"], "value": b"\x18" + (7).to_bytes(8, "little")}, None]
        if parts != ("typed_value",):
            assert duckdb.sql(f"select v::text from '{path}' order by id").fetchall() == [("7",), (None,)]

    def test_variants_with_columns_that_no_variant_has(self, tmp_path, lake):
        kind = pa.struct([("metadata", pa.binary()), ("typed_value", pa.list_(pa.int64()))])
        table = new_table(tmp_path, schema={"v": "variant"}, properties={"format-version": "3"})
        with pytest.raises(InvalidInputError, match="column 'v' is struct<metadata"):
            table.add_files([write(lake / "a.parquet", {"v": pa.nulls(1, kind)})])

    def test_orc_and_avro_have_counts(self, tmp_path, lake):
        fastavro = pytest.importorskip("fastavro")
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})
        orc.write_table(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]}), lake / "a.orc")
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
        with (lake / "b.avro").open("wb") as sink:
            records = [{"id": n, "name": None} for n in range(3, 1003)]
            fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, records, sync_interval=100)
        table.add_files([f"file://{lake}/a.orc", f"file://{lake}/b.avro"])
        assert [(file.file_format, file.record_count) for file in entries(table)] == [("orc", 2), ("avro", 1000)]
        assert ids(table) == list(range(1, 1003))
        assert ids(table, row_filter="name = 'b'") == [2]

    def test_a_file_of_hive_has_no_suffix(self, tmp_path, lake):
        table = new_table(tmp_path)
        table.add_files([write(lake / "000000_0", {"id": [1]})])
        assert ids(table) == [1]
        assert entries(table)[0].file_format == "parquet"

    def test_files_without_rows_are_left_out(self, tmp_path, lake):
        table = new_table(tmp_path)
        empty = write(lake / "a.parquet", pa.table({"id": pa.array([], pa.int64())}))
        assert table.add_files([empty]).outcome == "nothing"
        assert table.add_files([empty, write(lake / "b.parquet", {"id": [1]})]).added_data_files == 1

    @pytest.mark.parametrize("name", ["a b", "50%25 x", "ünï=ç", "a+b", "q'u\"o", "#1?x&y"])
    def test_paths_are_taken_as_they_are(self, tmp_path, lake, name):
        table = new_table(tmp_path)
        location = write(lake / name / f"{name}.parquet", {"id": [1]})
        table.add_files([location])
        assert (ids(table), entries(table)[0].file_path) == ([1], location)


class TestOldWriters:
    """What Hive, Impala and old versions of Spark wrote is read correctly."""

    def test_int96_is_read_and_has_no_bounds(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"ts": "timestamptz", "local": "timestamp"})
        moments = [local(2026, 1, 1, 12), local(1900, 1, 1), None]
        rows = pa.table({name: pa.array(moments, pa.timestamp("us")) for name in ("ts", "local")})
        table.add_files([write(lake / "a.parquet", rows, use_deprecated_int96_timestamps=True)])
        assert [each["local"] for each in table.scan().to_arrow().to_pylist()] == moments
        assert table.scan("ts = '2026-01-01T12:00:00+00:00'").to_arrow().num_rows == 1
        assert not entries(table)[0].lower_bounds

    def test_what_spark_writes_in_its_legacy_format(self, tmp_path, lake):
        """Lists of two levels (`repeated int32 array`), of three (`bag`), decimals as fixed, timestamps as INT96."""
        table = new_table(
            tmp_path,
            schema={
                **{
                    "id": "long",
                    "two": "list<int>",
                    "three": "list<string>",
                    "pairs": "list<struct<a: int, b: string>>",
                },
                **{"names": "map<string, int>", "price": "decimal(9, 2)", "ts": "timestamptz"},
            },
        )
        (lake / "a.parquet").write_bytes((Path(__file__).parents[1] / "golden" / "spark_legacy.parquet").read_bytes())
        with pytest.raises(InvalidInputError, match="column 'two' is a list of two levels, as Hive and old versions"):
            table.add_files([f"file://{lake}/a.parquet"])
        table.add_files([f"file://{lake}/a.parquet"], rewrite_unfit=True)
        first, second, third = table.scan().to_arrow().sort_by("id").to_pylist()
        assert (first["two"], first["three"]) == ([1, 2], ["a", None])
        assert (first["pairs"], dict(first["names"])) == (
            [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
            {"k": 1, "l": None},
        )
        assert (first["price"], first["ts"]) == (decimal.Decimal("-1.25"), moment(2026, 1, 1, 12, 30))
        assert (second["two"], second["three"], second["pairs"], second["names"]) == ([], [], [], [])
        assert (third["two"], third["pairs"], third["ts"]) == (None, None, moment(1900, 1, 1))
        assert bounds(table, entries(table)[0], "price") == (decimal.Decimal("-1.25"), decimal.Decimal("7.00"))
        assert bounds(table, entries(table)[0], "ts")[0] is not None
        selected = table.scan("price > 0", selected_fields=("pairs.a", "id")).to_arrow()
        assert selected["id"].to_pylist() == [3]


class TestStatistics:
    """Statistics are those of the footer, by the table's metrics modes; no row is read."""

    SCHEMA = {
        **{"id": "long", "name": "string", "price": "decimal(9, 2)", "day": "date", "at": "timestamp"},
        **{"x": "double", "raw": "binary", "ok": "boolean", "u": "uuid"},
    }

    def rows(self) -> pa.Table:
        return pa.table(
            {
                "id": pa.array([3, None, 1], pa.int64()),
                "name": ["a" * 20, "z" * 20, None],
                "price": pa.array([decimal.Decimal("-1.25"), None, decimal.Decimal("7.00")], pa.decimal128(9, 2)),
                "day": pa.array([datetime.date(2026, 1, 2), datetime.date(1500, 1, 1), None]),
                "at": pa.array([local(2026, 1, 1), None, None], pa.timestamp("us")),
                "x": [math.nan, 0.0, -3.5],
                "raw": [b"\x00\xff", b"\xff" * 20, None],
                "ok": [True, False, None],
                "u": pa.array([uuid.UUID(int=n).bytes for n in (1, 2, 3)], pa.uuid()),
            }
        )

    def test_all_types(self, tmp_path, lake):
        table = new_table(tmp_path, schema=self.SCHEMA)
        table.add_files([write(lake / "a.parquet", self.rows(), row_group_size=2)])
        file = entries(table)[0]
        name = table.schema().names
        assert (file.record_count, len(file.split_offsets or ())) == (3, 2)
        assert file.value_counts is not None
        assert file.null_value_counts is not None
        assert set(file.value_counts.values()) == {3}
        assert file.null_value_counts[name["at"]] == 2
        assert not file.nan_value_counts
        assert set(file.column_sizes or ()) == set(name.values())
        assert bounds(table, file, "id") == (1, 3)
        assert bounds(table, file, "name") == ("a" * 16, "z" * 15 + "{")
        assert bounds(table, file, "price") == (decimal.Decimal("-1.25"), decimal.Decimal("7.00"))
        days = (datetime.date(1500, 1, 1) - datetime.date(1970, 1, 1)).days
        assert bounds(table, file, "day") == (days, 20455)
        assert bounds(table, file, "at") == (1767225600000000,) * 2
        low, high = bounds(table, file, "x")
        assert (low, high, math.copysign(1, high)) == (-3.5, 0.0, 1.0)
        assert bounds(table, file, "raw") == (b"\x00\xff", None), "an upper bound of 0xff only cannot be shortened"
        assert bounds(table, file, "ok") == (False, True)
        assert bounds(table, file, "u") == (uuid.UUID(int=1), uuid.UUID(int=3))
        assert table.scan("x > 100").to_arrow().num_rows == 1, "NaN is above everything"

    def test_the_modes_of_the_table(self, tmp_path, lake):
        modes = {"default": "counts", "column.name": "full", "column.id": "none", "column.day": "truncate(4)"}
        properties = {f"write.metadata.metrics.{name}": mode for name, mode in modes.items()}
        table = new_table(tmp_path, schema=self.SCHEMA, properties=properties)
        table.add_files([write(lake / "a.parquet", self.rows())])
        file, name = entries(table)[0], table.schema().names
        assert bounds(table, file, "name") == ("a" * 20, "z" * 20)
        assert name["id"] not in (file.value_counts or {})
        assert set(file.lower_bounds or ()) == {name["name"], name["day"]}

    def test_a_row_group_without_statistics_leaves_no_bounds(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})
        path = lake / "a.parquet"
        with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), ("name", pa.string())])) as writer:
            writer.write_table(pa.table({"id": [1], "name": ["a"]}))
            # A value that is too long for the statistics of the footer.
            writer.write_table(pa.table({"id": [2], "name": ["b" * 10_000]}))
        table.add_files([f"file://{path}"])
        assert bounds(table, entries(table)[0], "id") == (1, 2)
        assert bounds(table, entries(table)[0], "name") == (None, None)
        assert ids(table, row_filter="name > 'aa'") == [2]

    def test_a_file_without_statistics(self, tmp_path, lake):
        table = new_table(tmp_path)
        table.add_files([write(lake / "a.parquet", {"id": [1, 2]}, write_statistics=False)])
        file = entries(table)[0]
        assert (file.value_counts, file.null_value_counts, file.lower_bounds) == ({1: 2}, None, None)
        assert ids(table, row_filter="id = 2") == [2]

    def test_files_are_skipped_by_their_bounds(self, tmp_path, lake):
        table = new_table(tmp_path)
        table.add_files([write(lake / f"{n}.parquet", {"id": [n]}) for n in range(5)])
        assert len(table.scan("id = 3").plan_files()) == 1


class TestPartitions:
    """Partition values come from folders, or from statistics where those prove them."""

    def test_of_folders(self, tmp_path, lake):
        schema = {"id": "long", "ds": "date", "land": "string", "n": "int"}
        table = new_table(tmp_path, schema=schema, partition_by=["ds", "land", "n"])
        write(lake / "ds=2026-01-01" / "land=a%2Fb c" / "n=07" / "0.parquet", {"id": [1]})
        write(lake / "ds=2026-01-02" / "land=__HIVE_DEFAULT_PARTITION__" / "n=-1" / "0.parquet", {"id": [2]})
        (lake / "_SUCCESS").write_text("")
        (lake / ".hidden").mkdir()
        write(lake / ".hidden" / "x.parquet", {"id": [9]})
        table.add_files(source=str(lake))
        rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        assert rows[1] == {"id": 1, "ds": datetime.date(2026, 1, 1), "land": "a/b c", "n": 7}
        assert rows[2] == {"id": 2, "ds": datetime.date(2026, 1, 2), "land": None, "n": -1}
        assert len(table.scan("ds = '2026-01-01'").plan_files()) == 1
        assert ids(table, row_filter="land is null") == [2]

    def test_a_partition_filter_selects_files(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "ds": "date"}, partition_by=["ds"])
        for n in range(1, 4):
            write(lake / f"ds=2026-01-0{n}" / "0.parquet", {"id": [n]})
        table.add_files(source=f"file://{lake}/", partition_filter={"ds": "2026-01-02"})
        table.add_files(source=f"file://{lake}/", partition_filter={"ds": datetime.date(2026, 1, 3)})
        assert ids(table) == [2, 3]
        with pytest.raises(NotFoundError, match=r"none of the 3 files of the source is in partition"):
            table.add_files(source=str(lake), partition_filter={"ds": "2027-01-01"})
        with pytest.raises(InvalidInputError, match=r"partition_filter names 'id', which is no partition field .*: ds"):
            table.add_files(source=str(lake), partition_filter={"id": 1})

    @pytest.mark.parametrize(
        ("term", "column", "good", "bad", "why"),
        [
            ("id", "long", [7, 7], [7, 8], "from 7 to 8"),
            ("bucket(4, id)", "long", [7, 7], [7, 8], "from 7 to 8"),
            ("truncate(10, id)", "long", [10, 19], [19, 20], "more than one partition (10 and 20)"),
            (
                "day(id)",
                "timestamp",
                [local(2026, 1, 1), local(2026, 1, 1, 23, 59)],
                [local(2026, 1, 1), local(2026, 1, 2)],
                "(2026-01-01 and 2026-01-02)",
            ),
            ("truncate(2, id)", "string", ["abc", "abd"], ["abc", "acd"], "from abc to acd"),
            ("id", "long", [None, None], [None, 1], "has 1 nulls beside 1 values"),
        ],
    )
    def test_of_statistics(self, tmp_path, lake, term, column, good, bad, why):
        table = new_table(tmp_path, schema={"id": column}, partition_by=[term])
        table.add_files([write(lake / "good.parquet", {"id": pa.array(good, None if good[0] else pa.int64())})])
        assert table.scan().to_arrow()["id"].to_pylist() == good
        with pytest.raises(InvalidInputError) as caught:
            table.add_files([write(lake / "bad.parquet", {"id": bad})])
        for text in ("bad.parquet", "'id", why, "nothing was committed"):
            assert text in str(caught.value)

    def test_a_bucket_is_not_proved_by_its_ends(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long"}, partition_by=["bucket(1, id)"])
        with pytest.raises(InvalidInputError, match="from 1 to 2"):
            table.add_files([write(lake / "a.parquet", {"id": [1, 2]})])

    def test_floats_prove_nothing(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "double"}, partition_by=["id"])
        with pytest.raises(InvalidInputError, match="of which a footer does not count NaN"):
            table.add_files([write(lake / "a.parquet", {"id": [1.0, math.nan]})])

    def test_without_folder_and_column(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "ds": "date"}, partition_by=["ds"])
        with pytest.raises(InvalidInputError, match=r"no folder of the file is named 'ds=…', and the file does not"):
            table.add_files([write(lake / "a.parquet", {"id": [1]})])
        orc.write_table(pa.table({"id": [1], "ds": [datetime.date(2026, 1, 1)]}), lake / "a.orc")
        with pytest.raises(InvalidInputError, match="its format has no statistics of column 'ds'"):
            table.add_files([f"file://{lake}/a.orc"])

    def test_a_column_that_differs_from_its_folder(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "n": "int"}, partition_by=["n"])
        table.add_files([write(lake / "n=1" / "a.parquet", {"id": [1], "n": pa.array([1], pa.int32())})])
        with pytest.raises(InvalidInputError, match=r"its folder says 1, and the file itself has column 'n' .* 2 to 2"):
            table.add_files([write(lake / "n=1" / "b.parquet", {"id": [1], "n": pa.array([2], pa.int32())})])
        assert ids(table) == [1]

    @pytest.mark.parametrize(
        ("folder", "why"),
        [
            ("n=x", "folder 'n=x' is not a value of column 'n' \\(int\\)"),
            ("n=99999999999", "out of range"),
            ("n=", "is not a value of column"),
            ("n=1/n=2", "two of its folders give 'n' a value"),
        ],
    )
    def test_folders_that_are_no_values(self, tmp_path, lake, folder, why):
        table = new_table(tmp_path, schema={"id": "long", "n": "int"}, partition_by=["n"])
        write(lake / folder / "a.parquet", {"id": [1]})
        for call in ({"source": str(lake)}, {"file_paths": [f"{lake}/{folder}/a.parquet"]}):
            with pytest.raises(InvalidInputError, match=why):
                table.add_files(**call)
        assert table.current_snapshot() is None

    def test_null_for_a_required_column(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "n": "int not null"}, partition_by=["n"])
        write(lake / "n=1" / "a.parquet", {"id": [1]})
        table.add_files(source=str(lake))
        write(lake / "n=__HIVE_DEFAULT_PARTITION__" / "a.parquet", {"id": [1]})
        with pytest.raises(InvalidInputError, match="stands for null, and column 'n' is required"):
            table.add_files([f"{lake}/n=__HIVE_DEFAULT_PARTITION__/a.parquet"])

    def test_files_get_the_current_one_of_two_specs(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "n": "int"}, partition_by=["n"])
        table.add_files([write(lake / "n=1" / "a.parquet", {"id": [1]})])
        table.alter([{"drop_partition_field": "n"}, {"add_partition_field": "bucket(8, id)"}])
        table.add_files([write(lake / "n=1" / "b.parquet", {"id": [2], "n": pa.array([5], pa.int32())})])
        assert [file.spec_id for file in entries(table)] == [0, 1]
        assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 1}, {"id": 2, "n": 5}]


class TestWhatDoesNotFit:
    """One clear error that names the file and the column, and nothing is committed."""

    def refused(self, table: Table, location: str, kind: type[Exception] = InvalidInputError) -> str:
        with pytest.raises(kind) as caught:
            table.add_files([location])
        assert table.current_snapshot() is None
        assert "schema.name-mapping.default" not in table.refresh().properties
        text = str(caught.value)
        assert location in text
        return text

    @pytest.mark.parametrize(
        ("column", "values", "found"),
        [
            ("int", pa.array([1], pa.int64()), "int64"),
            ("long", pa.array(["1"]), "string"),
            ("long", pa.array([1], pa.uint32()), "uint32"),
            ("float", pa.array([1.0], pa.float64()), "double"),
            ("string", pa.array([1], pa.int64()), "int64"),
            ("binary", pa.array(["a"]), "string"),
            ("decimal(9, 2)", pa.array([decimal.Decimal("1.2")], pa.decimal128(9, 1)), "decimal128(9, 1)"),
            ("decimal(9, 2)", pa.array([decimal.Decimal("1.25")], pa.decimal128(12, 2)), "decimal128(12, 2)"),
            ("timestamp", pa.array([0], pa.timestamp("us", tz="UTC")), "timestamp[us, tz=UTC]"),
            ("timestamptz", pa.array([0], pa.timestamp("us")), "timestamp[us]"),
            ("timestamp", pa.array([0], pa.timestamp("ns")), "timestamp[ns]"),
            ("timestamp", pa.array([0], pa.date32()), "date32[day]"),
            ("date", pa.array([0], pa.timestamp("us")), "timestamp[us]"),
            ("fixed[3]", pa.array([b"ab"], pa.binary(2)), "fixed_size_binary[2]"),
            ("list<int>", pa.array([1], pa.int32()), "int32"),
            ("list<int>", pa.array([["a"]]), "string"),
            ("struct<a: int>", pa.array([[1]]), "list"),
            ("map<string, int>", pa.array([{"a": 1}]), "struct"),
        ],
    )
    def test_types(self, tmp_path, lake, column, values, found):
        table = new_table(tmp_path, schema={"c": column})
        text = self.refused(table, write(lake / "a.parquet", {"c": values}))
        for part in ("column 'c", found, column.partition("<")[0].partition("[")[0]):
            assert part in text

    def test_a_name_in_other_letters(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})
        text = self.refused(table, write(lake / "a.parquet", {"ID": [1], "name": ["a"]}))
        assert "the file has column 'ID' and the table 'id'" in text
        text = self.refused(table, write(lake / "b.parquet", {"ID": [1]}), UnsupportedError)
        assert "nothing in it is named by the table's property 'schema.name-mapping.default'" in text

    def test_a_required_column(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "n": "int not null"})
        assert "column 'n' is required" in self.refused(table, write(lake / "a.parquet", {"id": [1]}))
        nulls = write(lake / "b.parquet", {"id": [1, 2], "n": pa.array([1, None], pa.int32())})
        assert "'n' is required in the table, and 1 of its values are null" in self.refused(table, nulls)

    def test_field_ids_of_another_table(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})

        def with_ids(**numbers: int) -> str:
            fields = [
                pa.field(name, pa.int64() if name == "id" else pa.string(), metadata={"PARQUET:field_id": str(number)})
                for name, number in numbers.items()
            ]
            rows = pa.table([[1] if name == "id" else ["a"] for name in numbers], schema=pa.schema(fields))
            return write(lake / "a.parquet", rows)

        assert "field id 1 is column 'name', and in the table 'id'" in self.refused(table, with_ids(name=1, id=2))
        assert "has field id 11 in the file and 2 in the table" in self.refused(table, with_ids(id=1, name=11))
        table.add_files([with_ids(id=1, name=2)])
        assert ids(table) == [1]

    def test_row_ids_of_another_table(self, tmp_path, lake):
        table = new_table(tmp_path)
        fields = [("id", 1), ("_row_id", 2147483540)]
        schema = pa.schema([pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(n)}) for name, n in fields])
        location = write(lake / "a.parquet", pa.table([[1], [7]], schema=schema))
        assert "'_row_id' is a metadata column" in self.refused(table, location)

    def test_files_that_are_none(self, tmp_path, lake):
        table = new_table(tmp_path)
        good = Path(write(lake / "good.parquet", {"id": list(range(1000))}).removeprefix("file://")).read_bytes()
        footer = int.from_bytes(good[-8:-4], "little")
        broken = {
            "garbage": b"garbage" * 100,
            "empty": b"",
            "short": b"PAR1",
            "torn": good[:-20],
            "headless": good[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1",
            "forged": good[: -footer - 8] + bytes([0xFF]) * footer + good[-8:],
            "cut": good[: len(good) // 2] + good[-8:],
        }
        for name, data in broken.items():
            (lake / f"{name}.parquet").write_bytes(data)
            self.refused(table, f"file://{lake}/{name}.parquet", FormatError)
        (lake / "a.csv").write_text("id\n1\n")
        assert "no Parquet, ORC or Avro file" in self.refused(table, f"file://{lake}/a.csv")
        (lake / "a.orc").write_bytes(good)
        self.refused(table, f"file://{lake}/a.orc", FormatError)
        (lake / "a.avro").write_bytes(good)
        self.refused(table, f"file://{lake}/a.avro", FormatError)

    def test_counts_that_cannot_be_right(self, tmp_path, lake):
        table = new_table(tmp_path)
        location = write(lake / "a.parquet", {"id": list(range(777))}, compression="none", use_dictionary=False)
        path = Path(location.removeprefix("file://"))
        good = path.read_bytes()
        start = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
        # 777 is 0x92 0x0c as Thrift writes it: the rows of the file, of the row group, and the values of the column.
        places = [at for at in range(start, len(good) - 8) if good[at : at + 2] == b"\x92\x0c"]
        assert len(places) == 4
        del places[2]  # in a histogram, which nobody uses
        for at in places:
            path.write_bytes(good[:at] + b"\xff\x7e" + good[at + 2 :])
            assert "cannot be right" in self.refused(table, location, FormatError)
        huge = good
        for at in reversed(places):
            huge = huge[:at] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + huge[at + 2 :]
        huge = huge[:-8] + (len(huge) - start - 8).to_bytes(4, "little") + b"PAR1"
        path.write_bytes(huge)
        assert f"{2**62 - 1} rows in" in self.refused(table, location, FormatError)

    @pytest.mark.costly
    def test_a_forged_footer_is_one_error(self, tmp_path, lake):
        """Whatever bytes are changed: an error of ours, or a footer that may be right. Arrow would abort."""
        table = new_table(tmp_path, schema={"id": "long", "name": "string"})
        good = Path(write(lake / "a.parquet", {"id": [1, 2], "name": ["a", None]}).removeprefix("file://")).read_bytes()
        start = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
        target, random = target_of(table.metadata), Random(7)
        for number in range(400):
            changed = bytearray(good)
            changed[random.randrange(start, len(good) - 8)] = random.choice([0, 1, 0x7F, 0x80, 0xFF, number % 256])
            path = lake / "b.parquet"
            path.write_bytes(changed)
            with suppress(IcebergError):
                describe(table.io, ExistingFile(location=f"file://{path}", folders={}), target)

    def test_files_that_are_not_there(self, tmp_path, lake):
        table = new_table(tmp_path)
        assert "does not exist" in self.refused(table, f"file://{lake}/no.parquet", NotFoundError)
        with pytest.raises(NotFoundError, match="there are no files below"):
            table.add_files(source=str(lake))
        with pytest.raises(NotFoundError, match="there are no files below"):
            table.add_files(source=str(lake / "no"))
        (lake / "folder.parquet").mkdir()
        with pytest.raises(FormatError, match=r"folder\.parquet is a directory"):
            table.add_files([f"file://{lake}/folder.parquet"])

    @pytest.mark.parametrize("plaintext_footer", [False, True])
    def test_encrypted_files(self, tmp_path, lake, plaintext_footer):
        import pyarrow.parquet.encryption as pe

        class Kms(pe.KmsClient):
            def __init__(self) -> None:
                pe.KmsClient.__init__(self)

            def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
                return key_bytes.hex()

        factory = pe.CryptoFactory(lambda config: Kms())
        config = pe.EncryptionConfiguration(
            footer_key="f", column_keys={"k": ["id"]}, plaintext_footer=plaintext_footer
        )
        rows = pa.table({"id": [1], "name": ["a"]})
        keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        with pq.ParquetWriter(lake / "a.parquet", rows.schema, encryption_properties=keys) as writer:
            writer.write_table(rows)
        text = self.refused(new_table(tmp_path), f"file://{lake}/a.parquet", UnsupportedError)
        assert "is encrypted" in text

    def test_outside_of_the_gate(self, tmp_path):
        table = new_table(tmp_path / "lake")
        location = write(tmp_path / "elsewhere" / "a.parquet", {"id": [1]})
        text = self.refused(table, location)
        assert "cannot add" in text
        assert "allowed-locations" in text
        with pytest.raises(InvalidInputError, match="allowed-locations"):
            table.add_files(source=str(tmp_path / "elsewhere"))
        with pytest.raises(InvalidInputError, match="outside of the locations"):
            table.add_files(["s3://other/a.parquet"])

    def test_requests(self, tmp_path, lake):
        table = new_table(tmp_path)
        for arguments, why in [
            ({}, "exactly one of files and source is needed, got none"),
            ({"files": ["a"], "source": "b"}, "got both"),
            ({"files": "file:///a"}, "files is the text"),
            ({"files": ["a"], "partition_filter": {"a": 1}}, "partition_filter selects files of source"),
            ({"source": "a", "on_rerun": "x"}, "unknown on_rerun 'x'"),
        ]:
            with pytest.raises(InvalidInputError, match=why):
                AddFilesRequest(**arguments)
        for files, why in [([], "is empty"), ([f"{lake}/a", f"file://{lake}/a"], "has some twice")]:
            with pytest.raises(InvalidInputError, match=why):
                table.add_files(files)


class TestDuplicates:
    """A file is in a table once."""

    def test_a_file_of_the_table(self, tmp_path, lake):
        table = new_table(tmp_path)
        files = [write(lake / f"{n}.parquet", {"id": [n]}) for n in range(9)]
        table.add_files(files[:7])
        with pytest.raises(AlreadyExistsError) as caught:
            table.add_files(files)
        assert "0.parquet" in str(caught.value)
        assert "and 2 more" in str(caught.value)
        with pytest.raises(AlreadyExistsError):
            table.add_files([files[0].replace("file://", "file:")])
        assert ids(table) == list(range(7))

    def test_unless_it_is_wanted(self, tmp_path, lake):
        table = new_table(tmp_path)
        files = [write(lake / "a.parquet", {"id": [1]})]
        table.add_files(files)
        table.add_files(files, check_duplicate_files=False)
        assert ids(table) == [1, 1]

    def test_a_file_that_the_table_had(self, tmp_path, lake):
        table = new_table(tmp_path)
        files = [write(lake / "a.parquet", {"id": [1]})]
        table.add_files(files)
        table.delete("true")
        table.add_files(files)
        assert ids(table) == [1]

    def test_on_another_branch(self, tmp_path, lake):
        table = new_table(tmp_path)
        table.append(pa.table({"id": pa.array([0], pa.int64())}))
        table.create_branch("audit")
        files = [write(lake / "a.parquet", {"id": [1]})]
        table.add_files(files, branch="audit", snapshot_properties={"why": "audit"})
        table.add_files(files)
        assert (ids(table), ids(table, ref="audit")) == ([0, 1], [0, 1])


class TestAfterwards:
    """What is done to the table later works on files without field ids, too."""

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("version", ["2", "3"])
    def test_deletes_renames_and_a_compaction(self, tmp_path, lake, version, mode):
        schema = {"id": "long", "name": "string", "n": "int"}
        table = new_table(tmp_path, schema=schema, partition_by=["n"], properties={"format-version": version})
        for number in range(6):
            write(lake / "n=1" / f"{number}.parquet", {"id": [number, number + 10], "name": ["a", "b"]})
        table.add_files(source=str(lake))
        table.alter([{"rename_column": {"from": "name", "to": "label"}}, {"add_column": {"name": "m", "type": "int"}}])
        table.delete("id in (0, 15)", mode=mode)
        before = lineage(table) if version == "3" else None
        result = compact(job_work(table), CompactRequest(options={"min-input-files": 2}))
        assert result.outcome == "committed"
        rows = table.refresh().scan(selected_fields=("id", "label", "n", "m")).to_arrow().sort_by("id").to_pylist()
        kept = [*range(1, 6), *range(10, 15)]
        assert rows == [{"id": n, "label": "b" if n >= 10 else "a", "n": 1, "m": None} for n in kept]
        if before is not None:
            assert lineage(table)["_row_id"] == before["_row_id"]
        assert len(list(lake.rglob("*.parquet"))) == 6

    def test_a_footer_with_more_bytes_than_it_has(self, tmp_path, lake):
        location = write(lake / "a.parquet", {"id": [1]})
        path = Path(location.removeprefix("file://"))
        good = path.read_bytes()
        length = int.from_bytes(good[-8:-4], "little")
        path.write_bytes(good[:-8] + bytes(5) + (length + 5).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(FormatError, match=f"it tells of {length + 5} bytes, of which it has {length}"):
            new_table(tmp_path).add_files([location])


def test_a_work_without_a_job(tmp_path, lake):
    """The operation runs in the process, with a request."""
    table = new_table(tmp_path)
    location = write(lake / "a.parquet", {"id": [1]})
    assert add_files(Work(table), AddFilesRequest(files=[location])).added_records == 1
