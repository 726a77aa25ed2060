"""Variants that come in Arrow rows stand in the file as they came, and the file says that they are variants."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.cast.rows import check_columns, conform
from airflow_iceberg.data.write.variant_footer import annotated
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import LongType, StringType
from airflow_iceberg.format.values.variant import encode_object, encode_primitive
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.table import Table
from tests.format.test_valid_variant import DAMAGED
from tests.jobs.builders import IO, data_files, make_plan
from tests.support import golden
from tests.support.builders import add_file, job_work, new_table
from tests.support.data_files import read_file
from tests.support.variants import encode_names

EMPTY = encode_names([])
NAMES = encode_names(["a", "b"])
LONG = encode_primitive(LongType(), 7)
OBJECT = encode_object({"a": 0, "b": 1}, {"a": LONG, "b": encode_primitive(StringType(), "text")})
PLAIN = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
ROWS = [{"metadata": EMPTY, "value": LONG}, None, {"metadata": NAMES, "value": OBJECT}]


def one_column(array: pa.Array, kind: str = "variant") -> Any:
    return conform(pa.table({"v": array}), schema_from_shorthand({"v": kind}), source="rows")["v"].to_pylist()


@pytest.fixture
def table(tmp_path):
    columns = {"id": "long", "v": "variant", "s": "struct<v: variant, n: int>", "l": "list<variant>"}
    columns |= {"m": "map<string, variant>", "last": "double"}
    return new_table(tmp_path, schema=columns, properties={"format-version": "3"})


def rows() -> pa.Table:
    inner = [{"v": ROWS[0], "n": 1}, None, {"v": None, "n": 2}]
    return pa.table(
        {
            "id": [1, 2, 3],
            "v": pa.array(ROWS, PLAIN),
            "s": pa.array(inner, pa.struct([("v", PLAIN), ("n", pa.int32())])),
            "l": pa.array([ROWS, [], None], pa.list_(PLAIN)),
            "m": pa.array([[("k", ROWS[2]), ("n", None)], [], None], pa.map_(pa.string(), PLAIN)),
            "last": [0.5, float("nan"), None],
        }
    )


class TestWhatIsTaken:
    """Structs of two binaries, of whatever kinds of binaries, shredded or not."""

    @pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
    def test_any_type_of_bytes(self, binary):
        kind = pa.struct([("value", binary), ("metadata", binary)])
        assert one_column(pa.array(ROWS, kind)) == ROWS

    def test_shredded_variants_are_put_together(self):
        kind = pa.struct([*PLAIN, ("typed_value", pa.int64())])
        given = [{"metadata": EMPTY, "value": None, "typed_value": 7}, None, {**ROWS[2], "typed_value": None}]
        assert one_column(pa.array(given, kind)) == ROWS

    def test_nothing_but_nulls(self):
        assert one_column(pa.nulls(2)) == [None, None]

    @pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.struct([("value", pa.binary())])], ids=str)
    def test_other_types_are_refused_before_any_row(self, kind):
        with pytest.raises(InvalidInputError, match="cannot become variant: expected a struct of the binaries"):
            check_columns(pa.schema({"v": kind}), schema_from_shorthand({"v": "variant"}), source="rows")

    @pytest.mark.parametrize(
        ("bad", "problem"),
        [
            ({"metadata": EMPTY, "value": None}, "no value of a variant"),
            ({"metadata": None, "value": LONG}, "no metadata of a variant"),
            ({"metadata": EMPTY, "value": b""}, "no value of a variant"),
            ({"metadata": b"\x02\x00\x00", "value": LONG}, "metadata of a variant that is not of version 1"),
        ],
    )
    def test_a_row_that_holds_no_variant_is_named(self, bad, problem):
        with pytest.raises(InvalidInputError, match=f"column 'v', row 3 of rows: {problem}"):
            one_column(pa.array([None, ROWS[0], bad], PLAIN))
        with pytest.raises(InvalidInputError, match=f"column 'v.element', row 2 of rows: {problem}"):
            one_column(pa.array([None, [ROWS[0], bad]], pa.list_(PLAIN)), "list<variant>")


class TestDamagedRows:
    """Bytes that are no variant are refused by each door, like other values that no type has; nothing is committed."""

    DOORS = ("append", "avro", "overwrite", "upsert", "merge", "load", "list", "shredded")

    @pytest.mark.sample(4)
    @pytest.mark.parametrize("door", DOORS)
    @pytest.mark.parametrize("kind", ["a cut value", "an unknown field id", "bytes after a value", "a scale of 200"])
    def test_each_door(self, tmp_path, door, kind):
        metadata, value = DAMAGED[kind]
        bad = {"metadata": metadata, "value": value}
        schema = {"id": "long", "v": "list<variant>" if door == "list" else "variant"}
        table = new_table(tmp_path, schema=schema, properties={"format-version": "3"})
        table.append(pa.table({"id": [1], "v": pa.nulls(1)}))
        before = table.metadata_location
        column = pa.array([ROWS[0], bad], PLAIN)
        if door == "list":
            column = pa.array([[], [ROWS[0], bad]], pa.list_(PLAIN))
        if door == "shredded":
            column = pa.array([ROWS[0], {**bad, "typed_value": None}], pa.struct([*PLAIN, ("typed_value", pa.int64())]))
        rows = pa.table({"id": [3, 1], "v": column})
        pq.write_table(rows, tmp_path / "rows.parquet")
        source = Source.from_files(str(tmp_path / "rows.parquet"))
        plan = make_plan(tmp_path, source, format_version=3, schema=table.schema())
        steps = {
            "avro": lambda: table.append(rows, write_format="avro"),
            "overwrite": lambda: table.overwrite(rows),
            "upsert": lambda: table.upsert(rows, join_cols=["id"]),
            "merge": lambda: table.merge(rows, on="target.id = source.id", clauses="when matched then update set *"),
            "load": lambda: run_local(plan, IO).raise_for_error(),
        }
        with pytest.raises(InvalidInputError, match="column 'v"):
            steps.get(door, lambda: table.append(rows))()
        assert table.refresh().metadata_location == before
        table.append(rows.slice(0, 1))  # the others are taken

    def test_the_row_and_what_is_wrong_are_named(self, table):
        bad = pa.array([ROWS[0], None, {"metadata": EMPTY, "value": LONG + b"\0"}], PLAIN)
        with pytest.raises(
            InvalidInputError,
            match=r"column 'v', row 3 of rows: a value of type 6 in a variant has 9 bytes, expected 8",
        ):
            one_column(bad)
        kind = pa.struct([*PLAIN, ("typed_value", pa.int64())])
        twice = {"metadata": EMPTY, "value": LONG, "typed_value": 1}
        with pytest.raises(InvalidInputError, match="column 'v', row 3 of rows: a value of a variant is stored twice"):
            one_column(pa.array([None, None, twice, None, twice], kind))

    def test_rows_that_the_table_has_already_are_carried(self, tmp_path):
        """As other writers have left them: so the table can be changed and mended."""
        table = new_table(tmp_path, schema={"id": "long", "v": "variant"}, properties={"format-version": "3"})
        kinds = {"id": pa.int64(), "v": pa.struct(PLAIN)}
        fields = [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for number, (name, kind) in enumerate(kinds.items(), 1)
        ]
        bad = [{"metadata": EMPTY, "value": b"\xff"}, {"metadata": b"\x09", "value": LONG}, ROWS[0]]
        rows = pa.table([pa.array([1, 2, 3]), pa.array(bad, fields[1].type)], schema=pa.schema(fields))
        pq.write_table(rows, tmp_path / "db" / "t" / "theirs.parquet")
        add_file(table, tmp_path / "db" / "t" / "theirs.parquet", record_count=3)
        assert table.update({"id": "id + 10"}, "id = 1").updated_records == 1
        assert table.delete("id = 3").deleted_records == 1
        request = CompactRequest(options={"rewrite-all": True})
        assert compact(job_work(table), request).outcome.value == "committed"
        found = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
        assert found == [{"id": 2, "v": bad[1]}, {"id": 11, "v": bad[0]}]
        assert table.delete("id > 0").deleted_records == 2


class TestAppending:
    """`Table.append` writes them at every depth."""

    @pytest.mark.parametrize("write_format", ["parquet", "avro"])
    def test_they_read_back_as_they_came(self, table, write_format):
        table.append(rows(), write_format=write_format)
        assert table.scan().to_arrow().drop_columns("last").to_pylist() == rows().drop_columns("last").to_pylist()

    def test_the_file_says_that_they_are_variants(self, table):
        table.append(rows())
        (path,) = table.inspect.files()["file_path"].to_pylist()
        schema = str(pq.ParquetFile(path.removeprefix("file://")).schema)
        assert schema.count("(Variant(1))") == 4
        assert "optional group field_id=2 v (Variant(1)) {" in schema

    @pytest.mark.parametrize("write_format", ["parquet", "avro"])
    def test_statistics_count_rows_and_nulls_and_nothing_more(self, table, write_format):
        """As Iceberg Java's; and the columns behind a variant, which takes two of the file, have their own."""
        table.append(rows(), write_format=write_format)
        (file,) = table.inspect.files().to_pylist()
        ids = table.schema().names
        assert dict(file["value_counts"])[ids["v"]] == 3
        assert dict(file["null_value_counts"])[ids["v"]] == 1
        assert ids["v"] not in dict(file["column_sizes"]) | dict(file["lower_bounds"])
        assert dict(file["nan_value_counts"]) == {ids["last"]: 1}
        assert dict(file["null_value_counts"])[ids["last"]] == 1

    def test_other_engines_understand_them(self, table):
        import duckdb

        table.append(rows())
        (path,) = table.inspect.files()["file_path"].to_pylist()
        found = duckdb.sql(f"select v from '{path.removeprefix('file://')}' order by id").fetchall()
        assert found == [(7,), (None,), ({"a": 7, "b": "text"},)]

    @pytest.mark.costly
    def test_those_of_iceberg_java_go_through_unchanged(self, tmp_path):
        known = golden.table("v3_variant")
        theirs = Table.from_metadata(known.metadata_location, known.properties, io=known.io)
        ours = new_table(tmp_path, schema=theirs.schema(), properties={"format-version": "3"})
        ours.append(theirs.scan().to_arrow())
        assert ours.scan().to_arrow().equals(theirs.scan().to_arrow())


class TestLoading:
    """A job takes them from Parquet files, whoever wrote these."""

    @pytest.mark.parametrize("partition_by", [(), ("bucket(2, id)",)], ids=["plain", "by partition"])
    def test_from_files_of_ours_that_say_variant(self, table, tmp_path, partition_by):
        table.append(rows())
        (path,) = table.inspect.files()["file_path"].to_pylist()
        assert loaded(tmp_path, path, table.schema(), partition_by) == by_id(pq.read_table(path))

    def test_from_files_that_say_struct(self, table, tmp_path):
        pq.write_table(rows(), tmp_path / "plain.parquet")
        assert loaded(tmp_path, str(tmp_path / "plain.parquet"), table.schema()) == by_id(rows())

    def test_from_shredded_files(self, tmp_path):
        kind = pa.struct([*PLAIN, ("typed_value", pa.int64())])
        shredded = [{"metadata": EMPTY, "value": None, "typed_value": 7}, None, {**ROWS[2], "typed_value": None}]
        pq.write_table(pa.table({"id": [1, 2, 3], "v": pa.array(shredded, kind)}), tmp_path / "shredded.parquet")
        schema = schema_from_shorthand({"id": "long", "v": "variant"})
        found = loaded(tmp_path, str(tmp_path / "shredded.parquet"), schema)
        assert [row["v"] for row in found] == ROWS

    @pytest.mark.costly
    def test_from_files_of_iceberg_java(self, tmp_path):
        known = golden.table("v3_variant")
        theirs = Table.from_metadata(known.metadata_location, known.properties, io=known.io)
        for number, location in enumerate(theirs.inspect.files()["file_path"].to_pylist()):
            (tmp_path / f"theirs-{number}.parquet").write_bytes(known.io.read(location))
        assert loaded(tmp_path, f"{tmp_path}/theirs-*.parquet", theirs.schema()) == by_id(theirs.scan().to_arrow())


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    """Return rows by their ids; what no test of equality holds for is left out."""
    return sorted((dict(row, last=None) for row in found.to_pylist()), key=lambda row: row["id"])


def loaded(folder: Path, files: str, schema: Schema, partition_by: Any = ()) -> list[dict[str, Any]]:
    """Return the rows that a job in this process makes of files."""
    spec = spec_from_shorthand(list(partition_by), schema)
    plan = make_plan(folder, Source.from_files(files), format_version=3, schema=schema, spec=spec)
    result = run_local(plan, IO)
    result.raise_for_error()
    batches = [batch for file in data_files(plan, result) for batch in read_file(IO, file, schema=schema)]
    return by_id(pa.Table.from_batches(batches))


class TestTheFooter:
    """Only the end of a file changes, and only when every variant is found in it."""

    def test_what_is_no_end_of_a_file_is_refused(self):
        with pytest.raises(FormatError, match="expected a footer"):
            annotated(b"nothing", [("v",)])

    def test_a_group_that_is_not_there_is_missed(self, tmp_path):
        pq.write_table(pa.table({"v": pa.array(ROWS, PLAIN)}), tmp_path / "f", store_schema=False)
        with pytest.raises(FormatError, match="found 0 groups of variants"):
            annotated((tmp_path / "f").read_bytes(), [("w",)])

    def test_many_columns_before_it(self, tmp_path):
        """Lists of more than 14 elements have another header."""
        columns = {f"c{number}": pa.array([number]) for number in range(40)}
        pq.write_table(pa.table({**columns, "v": pa.array(ROWS[:1], PLAIN)}), tmp_path / "f", store_schema=False)
        (tmp_path / "g").write_bytes(annotated((tmp_path / "f").read_bytes(), [("v",)]))
        assert "v (Variant(1))" in str(pq.ParquetFile(tmp_path / "g").schema)
        assert pq.read_table(tmp_path / "g").equals(pq.read_table(tmp_path / "f"))
