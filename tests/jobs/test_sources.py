import gzip
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.avro.container import write_container, write_long
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.sources import csv_files, files
from airflow_iceberg.jobs.sources.files import distribute, expand, guess_format, plan_tasks, task_count
from airflow_iceberg.jobs.sources.json import text as json_text
from airflow_iceberg.jobs.sources.unit import Unit
from tests.jobs.builders import COLUMNS, IO

MIB = 1 << 20
SCHEMA = schema_from_shorthand(COLUMNS)


def names(*patterns: str) -> list[str]:
    return [file.location for file in expand(Source.from_files(patterns), IO)]


def read(path: Path, *, schema: Schema = SCHEMA, options: Mapping[str, str] | None = None) -> pa.Table:
    file_format, compression = guess_format(str(path))
    unit = Unit(location=str(path), file_format=file_format, compression=compression, size_bytes=path.stat().st_size)
    return pa.concat_tables(files.read_unit(unit, IO, schema=schema, options=options or {}))


def broken(path: Path, message: str | None = None, options: Mapping[str, str] | None = None) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read(path, options=options)
    assert caught.value.path == str(path)


class TestExpand:
    """A source names files, directories and globs; each file is read once, in a fixed order."""

    @pytest.mark.parametrize(
        ("there", "patterns", "expected"),
        [
            (["b.csv", "a.csv", "c.txt"], ["*.csv"], ["a.csv", "b.csv"]),
            (["a.csv", "b.csv"], ["b.csv", "*.csv"], ["b.csv", "a.csv"]),
            (["d/x/b.csv", "d/a.csv"], ["d/"], ["d/a.csv", "d/x/b.csv"]),
            (["d/_SUCCESS", "d/.a.csv.crc", "d/a.csv", "d/_temporary/0/b.csv"], ["d"], ["d/a.csv"]),
            (["d/_SUCCESS", "d/.a.csv.crc", "d/a.csv", "d/_temporary/0/b.csv"], ["d/*"], ["d/a.csv"]),
            (["_a.csv"], ["_a.csv"], ["_a.csv"]),
            (["_a.csv"], ["_*.csv"], ["_a.csv"]),
            (["a[1].csv", "a1.csv"], ["a[1].csv"], ["a[1].csv"]),
            ([], ["*.csv"], []),
        ],
        ids=[
            "a glob's matches are sorted",
            "patterns keep their order and a file named twice comes once",
            "a directory stands for the files below it",
            "what Spark leaves beside its files is no data",
            "nor is it for a glob",
            "a hidden file that is named is read",
            "by a glob, too",
            "brackets in the name of a file that exists are no glob",
            "a glob without matches is empty",
        ],
    )
    @pytest.mark.parametrize("scheme", ["", "file://"])
    def test_patterns(self, scheme, there, patterns, expected, tmp_path):
        for name in there:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        found = names(*(f"{scheme}{tmp_path}/{pattern}" for pattern in patterns))
        assert found == [f"{scheme}{tmp_path}/{name}" for name in expected]

    def test_a_named_file_that_is_not_there_is_an_error_with_its_name(self, tmp_path):
        with pytest.raises(NotFoundError) as caught:
            names(f"{tmp_path}/a.csv")
        assert str(caught.value) == f"source file {tmp_path}/a.csv does not exist"

    def test_a_scheme_without_a_driver_is_unsupported(self):
        with pytest.raises(UnsupportedError, match="nope"):
            names("nope://bucket/a.csv")


class TestFormat:
    """The suffix tells the format and the compression of a file; a format given wins."""

    @pytest.mark.parametrize(("name", "expected"), [
        ("a.parquet", ("parquet", None)),
        ("a.CSV", ("csv", None)),
        ("a.csv.gz", ("csv", "gzip")),
        ("a.jsonl", ("jsonl", None)),
        ("a.ndjson.zst", ("jsonl", "zstd")),
        ("a.json", ("jsonl", None)),
        ("a.orc", ("orc", None)),
        ("a.avro", ("avro", None)),
    ])  # fmt: skip
    def test_by_suffix(self, name, expected):
        assert guess_format(f"/in/{name}") == expected

    def test_a_given_format_still_sees_the_compression(self):
        assert guess_format("/in/part-0.gz", "csv") == ("csv", "gzip")

    @pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "a.parquet.gz"])
    def test_what_the_name_does_not_tell_has_to_be_said(self, name):
        with pytest.raises(InvalidInputError, match=rf"cannot tell the format of /in/{name} .* set file_format"):
            guess_format(f"/in/{name}")


class TestTasks:
    """As many tasks as run at a time, if there is enough to do; more when one would write several files."""

    @pytest.mark.parametrize(
        ("total", "parallelism", "expected"),
        [(0, 4, 0), (1, 4, 1), (40 * MIB, 4, 2), (400 * MIB, 4, 4), (2100 * MIB, 4, 8), (10_000 * MIB, 2, 20)],
    )
    def test_the_number_of_tasks(self, total, parallelism, expected):
        assert task_count(total, parallelism=parallelism, target_file_size_bytes=512 * MIB) == expected

    def test_neighbours_stay_together_and_loads_are_even(self):
        units = [Unit(location=f"/{i}", file_format="parquet", size_bytes=10) for i in range(12)]
        groups = distribute(units, 4)
        assert [len(group) for group in groups] == [3, 3, 3, 3]
        assert [unit for group in groups for unit in group] == units

    def test_a_large_parquet_file_is_cut_by_row_groups_and_knows_its_rows(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "MIN_TASK_BYTES", 100)
        table = pa.table({"id": pa.array(range(1000))})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
        source = Source.from_files(f"{tmp_path}/a.parquet")
        tasks = plan_tasks(source, IO, parallelism=2, target_file_size_bytes=512 * MIB)
        units = [unit for task in tasks for unit in task]
        assert [unit.row_groups for unit in units] == [(0, 1), (1, 2), (2, 3), (3, 4)]
        assert [unit.first_row for unit in units] == [1, 301, 601, 901]
        parts = [part for unit in units for part in files.read_unit(unit, IO, schema=SCHEMA, options={})]
        assert pa.concat_tables(parts).column("id").to_pylist() == list(range(1000))


class TestCsv:
    """CSV is read as text, column by name; an empty field is null and a quoted one is not."""

    OPTIONS = {"delimiter": ";", "quote": "'", "null_values": "NA,-", "encoding": "latin-1", "skip_rows": "1"}

    @pytest.mark.parametrize(
        ("text", "options", "expected"),
        [
            ('id,name,day\n1,,x\n2,"",y\n', {}, {"id": ["1", "2"], "name": [None, ""], "day": ["x", "y"]}),
            ('id,name\n1,"a\nb ""c"""\n', {}, {"id": ["1"], "name": ['a\nb "c"']}),
            ("# made today\nid;name;day\n1;'ä;b';NA\n", OPTIONS, {"id": ["1"], "name": ["ä;b"], "day": [None]}),
            ("1,a,2026-01-01\n", {"header": "false"}, {"id": ["1"], "name": ["a"], "day": ["2026-01-01"]}),
            ("1,a,x\n", {"header": "false", "columns": "id,x,day"}, {"id": ["1"], "x": ["a"], "day": ["x"]}),
            ("ID,NAME\n1,a\n", {"columns": "id,name"}, {"id": ["1"], "name": ["a"]}),
            ("id,name\n", {}, {"id": [], "name": []}),
        ],
        ids=["all columns are text", "quotes", "options", "no header", "given columns", "renamed columns", "no rows"],
    )
    def test_columns(self, text, options, expected, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode(options.get("encoding", "utf-8")))
        assert read(path, options=options).to_pydict() == expected

    def test_gzip(self, tmp_path):
        path = tmp_path / "a.csv.gz"
        path.write_bytes(gzip.compress(b"id\n1\n"))
        assert read(path).to_pylist() == [{"id": "1"}]

    def test_a_row_with_too_few_fields_is_a_broken_file(self, tmp_path):
        (tmp_path / "a.csv").write_text("id,name\n1\n")
        broken(tmp_path / "a.csv", "Expected 2 columns, got 1")

    @pytest.mark.parametrize(("name", "value", "message"), [
        ("sep", ";", "unknown option 'sep' for csv files; one of header, columns"),
        ("delimiter", "||", "option 'delimiter' is .*, expected one character"),
        ("delimiter", "", "option 'delimiter' is .*, expected one character"),
        ("quote", "''", "option 'quote' is .*, expected one character"),
        ("escape", "ab", "option 'escape' is .*, expected one character"),
        ("skip_rows", "x", "option 'skip_rows' is .*, expected a number"),
        ("skip_rows", "-1", "option 'skip_rows' is .*, expected a number"),
        ("header", "yes", "option 'header' is .*, expected true or false"),
    ])  # fmt: skip
    def test_a_wrong_option_is_not_blamed_on_the_file(self, tmp_path, name, value, message):
        path = tmp_path / "a.csv"
        path.write_text("id\n1\n")
        with pytest.raises(InvalidInputError, match=message):
            read(path, options={name: value})


TYPES = {"id": "long", "price": "decimal(9,2)", "ts": "timestamptz", "ok": "boolean", "text": "string"}
TYPES |= {"tags": "list<string>", "m": "map<string, int>", "p": "struct<x: double, y: list<long>>"}
NESTED = schema_from_shorthand(TYPES)


class TestJsonLines:
    """JSON lines get the table's types; numbers are as they are written, and what JSON does not have is parsed."""

    def lines(self, path: Path, *rows: Any) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def test_nested_values(self, tmp_path):
        row = {"id": 1, "tags": ["a", None], "m": {"k": 1}, "p": {"x": 1, "y": [2]}, "ok": True}
        table = read(self.lines(tmp_path / "a.jsonl", row, {}), schema=NESTED)
        missing = dict.fromkeys(TYPES.keys() - row.keys())
        assert table.to_pylist()[0] == {**row, "m": [("k", 1)], "p": {"x": 1.0, "y": [2]}, **missing}
        assert set(table.to_pylist()[1].values()) == {None}

    @pytest.mark.parametrize(("text", "name", "expected"), [
        ('{"price": 0.10}\n{"price": "1234567.89"}\n', "price", [Decimal("0.10"), Decimal("1234567.89")]),
        (f'{{"id": {2**63 - 1}}}\n{{"id": {-(2**63)}}}\n', "id", [2**63 - 1, -(2**63)]),
        ('{"id": 1}\n\n  \r\n{"id": 2}', "id", [1, 2]),
    ], ids=["digits of decimals", "digits of integers", "blank lines and a missing last line break"])  # fmt: skip
    def test_values(self, text, name, expected, tmp_path):
        (tmp_path / "a.jsonl").write_text(text)
        assert read(tmp_path / "a.jsonl", schema=NESTED).column(name).to_pylist() == expected

    @pytest.mark.parametrize(
        ("name", "value", "place", "shown"),
        [
            ("id", "x", "id", "'x' (string) does not fit long"),
            ("id", 1.5, "id", "'1.5' (string) does not fit long"),
            ("id", True, "id", "'true' (string) does not fit long"),
            ("id", 2**63, "id", "'9223372036854775808' (string) does not fit long"),
            ("id", [1], "id", "[1] (array) does not fit long"),
            ("price", {"x": 1}, "price", '{"x": 1} (object) does not fit decimal(9, 2)'),
            ("p", [1], "p", "[1] (array) does not fit struct<"),
            ("p", {"x": 1, "z": 2}, "p.z", "the table's column 'p' has no such field, only x, y"),
            ("p", {"y": [1, "a"]}, "p.y.element", "'a' (string) does not fit long"),
            ("m", {"k": 2**31}, "m.value", "2147483648 (int64) does not fit int"),
            ("tags", "a", "tags", '"a" (string) does not fit list<string>'),
            ("tags", ["\ud800"], "tags.element", "cannot be written as UTF-8"),
        ],
    )
    def test_a_value_that_does_not_fit_is_told_with_column_and_line(self, name, value, place, shown, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text('{"id": 1}\n\n{"id": 2}\n' + json.dumps({name: value}) + "\n")
        with pytest.raises(InvalidInputError) as caught:
            read(path, schema=NESTED)
        assert str(caught.value).startswith(f"column '{place}', row 4 of {path}: ")
        assert shown in str(caught.value)

    def test_an_object_without_keys_is_a_row(self, tmp_path):
        assert read(self.lines(tmp_path / "a.jsonl", {}, {}), schema=NESTED).num_rows == 2

    def test_blank_lines_alone_are_no_rows_and_no_columns(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text("\n\n")
        unit = Unit(location=str(path), file_format="jsonl", compression=None, size_bytes=2)
        assert list(files.read_unit(unit, IO, schema=NESTED, options={})) == []

    @pytest.mark.parametrize("kind", ["float", "double"])
    def test_a_number_with_a_point_is_the_nearest_of_its_type(self, tmp_path, kind):
        """JSON's numbers are decimal text: 0.1 fits a float as well as it does in a CSV."""
        path = tmp_path / "a.jsonl"
        path.write_text('{"x": 0.1}\n{"x": 2}\n{"x": NaN}\n{"x": -Infinity}\n')
        column = read(path, schema=schema_from_shorthand({"x": kind})).column("x")
        assert column.type == {"float": pa.float32(), "double": pa.float64()}[kind]
        assert column.cast(pa.float64()).to_pylist()[:2] == [pa.scalar(0.1, column.type).as_py(), 2.0]
        assert str(column.to_pylist()[2:]) == "[nan, -inf]"

    @pytest.mark.parametrize(("kind", "text"), [("float", "3.5e38"), ("double", "1e400"), ("double", "1" + 400 * "0")])
    def test_a_number_that_is_too_large_is_no_infinity(self, tmp_path, kind, text):
        path = tmp_path / "a.jsonl"
        path.write_text(f'{{"x": {text}}}\n')
        with pytest.raises(InvalidInputError, match=r"column 'x', row 1 .* does not fit"):
            read(path, schema=schema_from_shorthand({"x": kind}))

    @pytest.mark.parametrize(("text", "problem"), [("{", "is not JSON"), ("[1]", "is a list"), ('"x"', "is a str")])
    def test_a_broken_line_is_named(self, text, problem, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text('{"id": 1}\n' + text + "\n")
        broken(path, rf"line 2 {problem}")

    def test_a_line_has_an_end(self, tmp_path, monkeypatch):
        """Some KB of blanks, compressed, are gigabytes."""
        monkeypatch.setattr(json_text, "LONGEST_LINE_BYTES", 20 << 20)
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b'{"id": 1}\n') + gzip.compress(b" " * (16 << 20), 1) * 4)
        broken(path, "line 2 has more than 20971520 bytes; expected one object a line")

    def test_a_header_has_so_many_columns(self, tmp_path, monkeypatch):
        """Each takes kilobytes of memory, and one byte of the file."""
        monkeypatch.setattr(csv_files, "MOST_COLUMNS", 3)
        path = tmp_path / "a.csv"
        for head in ("a,b,c,d\n1,2,3,4\n", ",,,", ',"\n",,\n1,2,3,4\n'):
            path.write_text(head)
            broken(path, "the header has more than 3 columns")
            path.write_text("x,y,z,z\r\n" + head)
            broken(path, "the header has more than 3 columns", {"skip_rows": "1"})
        rows = "1,2,3\n" * 100
        for head, skipped in (("id,b,c\n", 0), ("x,x,x,x,x,x\nid,b,c\n", 1)):
            path.write_text(head + rows)
            assert read(path, options={"skip_rows": str(skipped)}).num_rows == 100, head

    def test_a_torn_gzip_is_a_broken_file(self, tmp_path):
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b'{"id": 1}\n' * 1000)[:-12])
        broken(path)


class TestColumnarFiles:
    """Parquet, ORC and Avro bring their own types."""

    DAYS = pa.array([date(2026, 1, 1), None], pa.date32())
    TABLE = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None], "day": DAYS})

    def write_avro(self, path: Path, rows: list[Any], **types: Any) -> Path:
        fields = [{"name": name, "type": kind} for name, kind in types.items()]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)
        return path

    @pytest.mark.parametrize("suffix", ["parquet", "orc", "avro"])
    def test_rows_come_as_they_are_and_torn_or_foreign_bytes_name_the_file(self, suffix, tmp_path):
        path = tmp_path / f"a.{suffix}"
        if suffix == "avro":
            day = {"type": "int", "logicalType": "date"}
            rows = self.TABLE.to_pylist()
            self.write_avro(path, rows, id="int", name=["null", "string"], day=["null", day])
        else:
            {"parquet": pq, "orc": orc}[suffix].write_table(self.TABLE, path)
        assert read(path).cast(self.TABLE.schema).equals(self.TABLE)
        whole = path.read_bytes()
        for data in (whole[: len(whole) // 2], b"", b"nonsense" * 9):
            path.write_bytes(data)
            broken(path)

    def test_int96_in_a_timestamptz_column_is_an_instant(self, tmp_path):
        moment = datetime(9999, 1, 1, tzinfo=UTC)
        table = pa.table({"ts": pa.array([moment], pa.timestamp("us", "UTC")), "id": [1]})
        pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
        assert read(tmp_path / "a.parquet", schema=NESTED).column("ts").to_pylist() == [moment]

    def test_an_avro_schema_by_which_a_few_bytes_become_very_many_values_is_refused(self, tmp_path):
        """Also of a field that the table does not have: all are decoded."""
        path = self.write_avro(tmp_path / "a.avro", [], id="int", bomb={"type": "array", "items": "null"})
        with pytest.raises(FormatError, match="items without bytes"):
            read(path)

    def test_an_avro_block_that_becomes_very_many_bytes_is_refused(self, tmp_path):
        """fastavro has no limit for what it decompresses."""
        text, path = 40 << 20, tmp_path / "a.avro"
        schema = {"type": "record", "name": "r", "fields": [{"name": "name", "type": "string"}]}
        block = bytes(write_long(text)) + b"x" * text
        path.write_bytes(write_container({"avro.schema": json.dumps(schema)}, [(1, block)], codec="deflate"))
        broken(path, "damaged deflate block at byte .*grows to more than")

    @pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
    def test_codecs_of_avro(self, codec, tmp_path):
        schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
        blocks = [(2, bytes(write_long(1) + write_long(2))), (1, bytes(write_long(3)))]
        path = tmp_path / "a.avro"
        path.write_bytes(write_container({"avro.schema": json.dumps(schema)}, blocks, codec=codec))
        assert read(path).to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]

    def test_logical_types_of_avro(self, tmp_path):
        row = {"ts": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.50"), "u": UUID(int=1)}
        row |= {"e": "A", "m": {"k": [1, 2]}, "p": {"x": 1.5}}
        types = {
            "ts": {"type": "long", "logicalType": "timestamp-micros"},
            "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "u": {"type": "string", "logicalType": "uuid"},
            "e": {"type": "enum", "name": "E", "symbols": ["A"]},
            "m": {"type": "map", "values": {"type": "array", "items": "long"}},
            "p": {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}]},
        }
        path = self.write_avro(tmp_path / "a.avro", [row], **types)
        assert read(path).to_pylist() == [{**row, "m": [("k", [1, 2])]}]
