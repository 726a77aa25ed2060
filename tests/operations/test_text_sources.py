"""Rows of CSV and JSON lines in appends, overwrites and merges: no type is guessed from a part of the source."""

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.sources.identity import identity
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_catalog, new_table

LOCAL = datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)
UPSERT = "when matched then update set * when not matched then insert *"


def make(tmp_path: Path, schema: dict[str, Any], rows: list[dict[str, Any]] | None = None, version: int = 2) -> Table:
    table = new_table(tmp_path, schema=schema, properties={"format-version": str(version)})
    if rows:
        table.append(pa.Table.from_pylist(rows, schema=table.scan().to_arrow().schema))
    return table


def lines(path: Path, *rows: Any) -> Source:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return Source.from_files(str(path))


def text(path: Path, content: str) -> Source:
    path.write_text(content)
    return Source.from_files(str(path))


def load(table: Table, source: Source, *, grow: bool = True) -> None:
    append(job_work(table), AppendRequest(rows=source, schema_evolution="add_columns" if grow else None))


def merged(table: Table, source: Source, on: Any, clauses: str, **more: Any) -> list[dict[str, Any]]:
    merge(job_work(table), MergeRequest(rows=source, on=on, clauses=clauses, dialect="duckdb", **more))
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=str)


def enter(table: Table, source: Source, how: str) -> None:
    """Let rows enter by an append, with new columns or without, or by a merge."""
    if how == "merge":
        merged(table, source, ["id"], "when matched then delete")
    else:
        load(table, source, grow=how == "add_columns")


def rows(table: Table) -> list[dict[str, Any]]:
    return table.refresh().scan().to_arrow().sort_by("id").to_pylist()


def types(table: Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.refresh().schema().fields}


class TestCsv:
    """A column that the table does not have is text; one that it has is parsed from text, as the table's type."""

    def test_a_merge_compares_text(self, tmp_path):
        table = make(tmp_path, {"id": "long", "code": "string"}, [{"id": 1, "code": "1"}, {"id": 2, "code": "01"}])
        source = text(tmp_path / "a.csv", "key\n01\n")
        found = merged(table, source, "target.code = source.key", "when matched then delete")
        assert found == [{"id": 1, "code": "1"}]

    def test_a_merge_writes_what_the_file_has(self, tmp_path):
        table = make(tmp_path, {"id": "long", "code": "string"})
        source = text(tmp_path / "a.csv", "id,other\n1,007\n2,1e5\n3,true\n4,2026-01-01\n")
        clause = "when not matched then insert (id, code) values (source.id, source.other)"
        found = merged(table, source, ["id"], clause)
        assert [row["code"] for row in found] == ["007", "1e5", "true", "2026-01-01"]

    def test_a_key_in_another_case_has_the_tables_type(self, tmp_path):
        table = make(tmp_path, {"id": "string", "n": "long"}, [{"id": "1", "n": 1}, {"id": "01", "n": 2}])
        source = text(tmp_path / "a.csv", "ID,n\n01,5\n")
        assert merged(table, source, ["id"], UPSERT) == [{"id": "01", "n": 5}, {"id": "1", "n": 1}]

    @pytest.mark.parametrize("replace", [None, "table"])
    def test_new_columns_are_strings(self, replace, tmp_path):
        table = make(tmp_path, {"id": "long"})
        first, second = "00123,+49123,12345678901234567890,2026-01-01,true,1.50", "x,,,,,"
        source = text(tmp_path / "a.csv", f"id,zip,phone,big,day,flag,price\n1,{first}\n2,{second}\n")
        if replace is None:
            load(table, source)
        else:
            overwrite(job_work(table), OverwriteRequest(rows=source, schema_evolution="add_columns", replace="table"))
        assert types(table) == {
            "id": "long",
            **dict.fromkeys(("zip", "phone", "big", "day", "flag", "price"), "string"),
        }
        assert list(rows(table)[0].values()) == [1, *first.split(",")]
        assert list(rows(table)[1].values()) == [2, "x", None, None, None, None, None]

    def test_a_long_header_with_line_breaks_and_a_byte_order_mark(self, tmp_path):
        names = [f'"column\n{number:03d} {"x" * 2000}"' for number in range(40)]
        text(tmp_path / "a.csv", "\ufeff" + ",".join(["id", *names]) + "\n1" + ",007" * 40 + "\n")
        table = make(tmp_path, {"id": "long"})
        load(table, Source.from_files(str(tmp_path / "a.csv")))
        assert set(types(table).values()) == {"long", "string"}
        assert set(list(rows(table)[0].values())[1:]) == {"007"}

    def test_another_encoding(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        (tmp_path / "b.csv").write_bytes("id,ä\n1,007\n".encode("utf-16"))
        load(table, Source.from_files(str(tmp_path / "b.csv"), format_options={"encoding": "utf-16"}))
        assert rows(table) == [{"id": 1, "ä": "007"}]
        with pytest.raises(InvalidInputError, match="option 'encoding' is 'nope', expected an encoding"):
            load(table, Source.from_files(str(tmp_path / "b.csv"), format_options={"encoding": "nope"}))
        with pytest.raises(InvalidInputError, match="option 'encoding' is 'hex', expected an encoding"):
            load(table, Source.from_files(str(tmp_path / "b.csv"), format_options={"encoding": "hex"}))

    @pytest.mark.parametrize(
        ("how", "name", "row"),
        [("append", "v", 3), ("append", "id", 2)]
        + [(how, *one) for how in ("add_columns", "merge") for one in (("v", 3), ("new", 3), ("id", 2))],
    )
    def test_text_that_is_not_utf8_is_told_with_its_column_and_row(self, how, name, row, tmp_path):
        table = make(tmp_path, {"id": "long", "v": "string"})
        values = {"id": b"1", "v": b"x", "new": b"x"}
        names = [one for one in values if how != "append" or one != "new"]
        good, bad = (b",".join(each[one] for one in names) for each in (values, values | {name: b"a\xff"}))
        head = ",".join(names).encode()
        content = [good] * 4
        content[row - 1] = bad
        (tmp_path / "a.csv").write_bytes(b"\n".join([head, *content, b""]))
        source = Source.from_files(str(tmp_path / "a.csv"))
        expected = rf"column '{name}', row {row} of .*a.csv: the text b'a\\xff' is not"
        with pytest.raises(InvalidInputError, match=expected):
            enter(table, source, how)

    @pytest.mark.parametrize("how", ["append", "add_columns", "merge"])
    def test_a_name_that_is_not_utf8_is_told(self, how, tmp_path):
        table = make(tmp_path, {"id": "long", "v": "string"})
        (tmp_path / "a.csv").write_bytes(b"id,v\xff\n1,x\n")
        source = Source.from_files(str(tmp_path / "a.csv"))
        expected = r"the name of column 'v\ufffd' of .*a.csv is not in the encoding utf-8"
        with pytest.raises(InvalidInputError, match=expected):
            enter(table, source, how)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", b""),
            ("a.csv", b"\xef\xbb\xbf"),
            ("a.csv.gz", gzip.compress(b"", mtime=0)),
            ("a.jsonl", b""),
            ("a.jsonl", b"\xef\xbb\xbf"),
            ("a.jsonl", b"\xef\xbb\xbf\n\n"),
            ("a.jsonl.gz", gzip.compress(b"", mtime=0)),
        ],
    )
    def test_a_file_without_text_has_no_rows(self, name, content, tmp_path):
        table = make(tmp_path, {"id": "long", "v": "string"})
        (tmp_path / name).write_bytes(content)
        source = Source.from_files(str(tmp_path / name))
        load(table, source, grow=False)
        load(table, source)
        assert merged(table, source, ["id"], UPSERT) == []

    def test_a_header_that_names_a_column_twice_is_refused(self, tmp_path):
        table = make(tmp_path, {"id": "long", "n": "long"})
        source = text(tmp_path / "a.csv", "id,x,x\n1,2,3\n")
        with pytest.raises(InvalidInputError, match="column 'x' appears twice"):
            merged(table, source, ["id"], "when matched then delete")


class TestJsonTypes:
    """Values have the types of JSON, found over the whole source, or those of the table's columns."""

    def test_a_merge_compares_numbers(self, tmp_path):
        table = make(tmp_path, {"id": "long", "n": "long"}, [{"id": 1, "n": 0}])
        source = lines(tmp_path / "a.jsonl", {"id": 1, "new": 10, "old": 9})
        found = merged(table, source, ["id"], "when matched and source.old > source.new then update set n = 1")
        assert found == [{"id": 1, "n": 0}]

    VALUES = {
        "long": [1, -5, None],
        "double": [1, 2.5, 1e300],
        "boolean": [True, None, False],
        "string": ["a", "", None],
        "decimal(20, 0)": [2**63, 1, -(2**63)],
        "decimal(19, 0)": [2**63, 2**63 + 1],
        "list<long>": [[1], [], None, [None]],
        "list<double>": [[1], [2.5]],
        "list<list<string>>": [[["a"], []], [None]],
    }

    @pytest.mark.parametrize("expected", VALUES)
    def test_new_columns(self, expected, tmp_path):
        table = make(tmp_path, {"id": "long"})
        values = self.VALUES[expected]
        sources = [lines(tmp_path / f"{at}.jsonl", {"id": at, "c": value}) for at, value in enumerate(values)]
        load(table, Source.from_files([name for source in sources for name in source.files]))
        assert types(table)["c"] == expected
        assert [row["c"] for row in rows(table)] == values

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (['"a"', "1", "1.50", "1e5", "true", "null"], ["a", "1", "1.50", "1e5", "true", None]),
            (["1", '{"x": [1.0,  2]}', '"\\u00e4"'], ["1", '{"x": [1.0,  2]}', "ä"]),
            (["[1]", '{"a": "\\u00e4"}', "-0"], ["[1]", '{"a": "\\u00e4"}', "-0"]),
            (["null", "null"], [None, None]),
            (["[1]", "5"], ["[1]", "5"]),
            (["true", "1"], ["true", "1"]),
            (["1" + 38 * "0", "7"], ["1" + 38 * "0", "7"]),
            (["9" * 5000, "7"], ["9" * 5000, "7"]),
            (["{}", "null"], ["{}", None]),
        ],
    )
    def test_mixed_types_are_text_as_it_is_written(self, values, expected, tmp_path):
        table = make(tmp_path, {"id": "long"})
        load(table, lines(tmp_path / "a.jsonl", *(f'{{"id": {at}, "c":{value} }}' for at, value in enumerate(values))))
        assert types(table)["c"] == "string"
        assert [row["c"] for row in rows(table)] == expected

    def test_objects_are_structs_of_all_their_keys(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        source = lines(
            tmp_path / "a.jsonl",
            {"id": 1, "c": {"x": 1, "y": {"z": ["a"]}}},
            {"id": 2},
            {"id": 3, "c": {"x": 2.5, "w": [{"k": True}, {"l": 1}]}},
        )
        load(table, source)
        (field,) = table.refresh().schema().fields[1:]
        assert str(pa.schema([("c", table.scan().to_arrow().schema.field("c").type)])).startswith("c: struct<x: double")
        assert field.type.fields[2].name == "w"
        assert [row["c"] for row in rows(table)] == [
            {"x": 1.0, "y": {"z": ["a"]}, "w": None},
            None,
            {"x": 2.5, "y": None, "w": [{"k": True, "l": None}, {"k": None, "l": 1}]},
        ]

    def test_columns_of_the_table_are_not_widened(self, tmp_path):
        table = make(tmp_path, {"id": "int", "f": "float", "d": "decimal(9, 2)"})
        load(table, lines(tmp_path / "a.jsonl", {"id": 1, "f": 0.5, "d": 1.5, "new": 1}))
        assert types(table) == {"id": "int", "f": "float", "d": "decimal(9, 2)", "new": "long"}
        for name, value in (("id", 1 << 40), ("f", 1e300), ("d", 1.234)):
            with pytest.raises(InvalidInputError, match=rf"column '{name}', row 2 of .*b.jsonl: value .* does not fit"):
                load(table, lines(tmp_path / "b.jsonl", {"id": 2}, {name: value}))
        assert len(rows(table)) == 1

    def test_new_fields_are_added_at_every_depth(self, tmp_path):
        schema = {"id": "long", "p": "struct<x: int>", "l": "list<struct<a: int>>", "m": "map<string, struct<b: int>>"}
        table = make(tmp_path, schema)
        source = lines(
            tmp_path / "a.jsonl",
            {"id": 1, "p": {"x": 1}},
            {"id": 2, "p": {"x": 2, "y": {"z": 1}}, "l": [{"a": 1, "c": 2.5}], "m": {"k": {"b": 1, "d": [True]}}},
        )
        load(table, source)
        assert rows(table)[1] == {
            "id": 2,
            "p": {"x": 2, "y": {"z": 1}},
            "l": [{"a": 1, "c": 2.5}],
            "m": [("k", {"b": 1, "d": [True]})],
        }
        assert rows(table)[0]["p"] == {"x": 1, "y": None}

    def test_a_key_that_is_missing_from_one_batch(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", 3)
        table = make(tmp_path, {"id": "long", "n": "long"}, [{"id": number, "n": 0} for number in range(9)])
        given = [{"id": n, **({"n": n} if n < 6 else {}), **({"op": "u"} if n >= 3 else {})} for n in range(9)]
        clause = "when matched and source.op = 'u' then update set n = coalesce(source.n, -1)"
        found = merged(table, lines(tmp_path / "a.jsonl", *given), ["id"], clause)
        assert [row["n"] for row in found] == [0, 0, 0, 3, 4, 5, -1, -1, -1]

    def test_a_field_that_first_appears_late(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", 2)
        table = make(tmp_path, {"id": "long"})
        load(
            table, lines(tmp_path / "a.jsonl", {"id": 1}, {"id": 2}, {"id": 3, "c": 1}, {"id": 4}, {"id": 5, "c": 0.5})
        )
        assert [row["c"] for row in rows(table)] == [None, None, 1.0, None, 0.5]

    def test_a_default_is_for_a_column_that_no_row_has(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", 1)
        table = make(tmp_path, {"id": "long"}, version=3)
        table.alter([{"add_column": {"name": "c", "type": "int", "default": 7}}])
        load(table, lines(tmp_path / "a.jsonl", {"id": 1}, {"id": 2}), grow=False)
        load(table, lines(tmp_path / "b.jsonl", {"id": 3}, {"id": 4, "c": 1}), grow=False)
        assert [row["c"] for row in rows(table)] == [7, 7, None, 1]

    def test_a_default_of_a_field_is_for_one_that_no_object_has(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", 1)
        table = make(tmp_path, {"id": "long", "s": "struct<x: int>", "l": "list<struct<x: int>>"}, version=3)
        added = [
            {"name": f"{parent}.{name}", "type": "int", "default": 7} for parent in ("s", "l.element") for name in "yz"
        ]
        table.alter([{"add_column": one} for one in added])
        given = [{"id": 1, "s": {"x": 1}}, {"id": 2, "s": {"y": 2}, "l": [{}, {"z": 3}]}, {"id": 3, "s": {"y": None}}]
        load(table, lines(tmp_path / "a.jsonl", *given), grow=False)
        assert [row["s"] for row in rows(table)] == [
            {"x": 1, "y": None, "z": 7},
            {"x": None, "y": 2, "z": 7},
            {"x": None, "y": None, "z": 7},
        ]
        assert rows(table)[1]["l"] == [{"x": None, "y": 7, "z": None}, {"x": None, "y": 7, "z": 3}]

    @pytest.mark.parametrize(("kind", "default", "value"), [
        ("int", 7, 7), ("string", "q", "q"), ("float", 0.5, 0.5), ("boolean", True, True),
        ("decimal(9,2)", "1.50", Decimal("1.50")),
        ("date", "2026-01-02", date(2026, 1, 2)), ("timestamp", "2026-01-02T00:00:00", LOCAL), ("binary", b"\0", b"\0"),
    ])  # fmt: skip
    def test_a_required_key_that_an_object_lacks_is_its_default(self, tmp_path, kind, default, value):
        table = make(tmp_path, {"id": "long", "s": "struct<x: int>"}, version=3)
        added = [{"name": name, "type": kind, "required": True, "default": default} for name in ("c", "s.y")]
        table.alter([{"add_column": one} for one in added])
        given = [{"id": 1, "s": {"x": 1}}, {"id": 2}]
        if kind != "binary":  # JSON has no bytes
            text = "2026-01-02" if kind == "timestamp" else default
            given.append({"id": 3, "c": text, "s": {"y": text}})
        load(table, lines(tmp_path / "a.jsonl", *given), grow=False)
        assert [row["c"] for row in rows(table)] == [value] * len(given)
        assert [row["s"] and row["s"]["y"] for row in rows(table)] == [value, None, value][: len(given)]

    def test_a_null_of_a_required_key_is_refused_all_the_same(self, tmp_path):
        table = make(tmp_path, {"id": "long", "s": "struct<x: int>"}, version=3)
        table.alter([{"add_column": {"name": "s.y", "type": "int", "required": True, "default": 7}}])
        with pytest.raises(
            InvalidInputError, match=r"column 's.y', row 2 of .*a.jsonl: null, and the column is required"
        ):
            load(table, lines(tmp_path / "a.jsonl", {"id": 1, "s": {}}, {"id": 2, "s": {"y": None}}), grow=False)

    @pytest.mark.parametrize("how", ["append", "merge"])
    def test_before_version_3_no_field_has_a_default(self, tmp_path, how):
        inner = t.NestedField(id=3, name="y", type=t.IntegerType(), write_default=7)
        x = t.NestedField(id=4, name="x", type=t.IntegerType())
        s = t.NestedField(id=2, name="s", type=t.StructType(fields=(x, inner)))
        schema = Schema((t.NestedField(id=1, name="id", type=t.LongType()), s))
        table = Table.create(new_catalog(tmp_path), "db.t", schema=schema)
        one, both = {"id": 1, "s": {"x": 1}}, {"id": 2, "s": {"x": 2, "y": None}}
        source = lines(tmp_path / "a.jsonl", one)
        if how == "append":
            load(table, source, grow=False)
        else:
            # A struct of a merge has all fields of the table: of JSON lines, if some object has them.
            with pytest.raises(InvalidInputError, match=r"gives 's' a struct without 's\.y'"):
                merged(table, source, ["id"], "when not matched then insert *")
            merged(table, lines(tmp_path / "b.jsonl", one, both), ["id"], "when not matched then insert *")
        assert [row["s"]["y"] for row in rows(table)] == [None] * (1 if how == "append" else 2)

    @pytest.mark.parametrize("written", ["100000", "1e5", "1E+5", "1.0", "-0", "0", "0.10", "12345678901234567890"])
    def test_numbers_in_text_columns_are_as_they_are_written(self, written, tmp_path):
        table = make(tmp_path, {"id": "long", "c": "string", "l": "list<string>", "p": "struct<s: string>"})
        row = f'{{"id": 1, "c": {written}, "l": [{written}], "p": {{"s": {written}}}}}'
        load(table, lines(tmp_path / "a.jsonl", row), grow=False)
        assert rows(table) == [{"id": 1, "c": written, "l": [written], "p": {"s": written}}]

    def test_decimals_get_their_digits(self, tmp_path):
        table = make(tmp_path, {"id": "long", "d": "decimal(38, 10)"})
        digits = ["1234567890123456789012345678.0123456789", "0.1", "1e3", "-0.0000000001", "12345678901234567890"]
        source = lines(tmp_path / "a.jsonl", *(f'{{"id": {at}, "d": {one}}}' for at, one in enumerate(digits)))
        load(table, source, grow=False)
        assert [row["d"] for row in rows(table)] == [Decimal(one) for one in digits]

    def test_columns_that_differ_by_case_alone(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        with pytest.raises(InvalidInputError, match="names that differ by case alone"):
            load(table, lines(tmp_path / "a.jsonl", {"id": 1, "c": 1}, {"id": 2, "C": 1}))
        with pytest.raises(InvalidInputError, match=r"columns 'c' and 'C' of .*a.jsonl differ by case alone"):
            merged(table, Source.from_files(str(tmp_path / "a.jsonl")), ["id"], "when matched then delete")

    def test_keys_without_end_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.sources.json.shape.MOST_KEYS", 3)
        monkeypatch.setattr("airflow_iceberg.jobs.sources.describe.MOST_KEYS", 3)
        table = make(tmp_path, {"id": "long", "m": "map<string, long>"})
        keys = {f"k{n}": n for n in range(4)}
        load(table, lines(tmp_path / "a.jsonl", {"id": 1, "m": keys}))
        with pytest.raises(InvalidInputError, match=r"column 'c', row 2 of .* more than 3 different keys"):
            load(table, lines(tmp_path / "b.jsonl", {"id": 2}, {"id": 3, "c": keys}))
        with pytest.raises(InvalidInputError, match=r"row 1 of .* more than 3 different keys, and each would"):
            load(table, lines(tmp_path / "c.jsonl", {"id": 2, **keys}))

    @pytest.mark.parametrize("how", ["append", "add_columns", "merge"])
    @pytest.mark.parametrize(
        "line", [r'{"id": 1, "\ud800": 2}', r'{"id": 1, "o": {"\ud800": 2}}', r'{"id": 1, "v": {"\ud800": 2}}']
    )
    def test_a_key_that_is_no_text_is_told(self, how, line, tmp_path):
        table = make(tmp_path, {"id": "long", "v": "struct<a: long>"})
        source = lines(tmp_path / "a.jsonl", line)
        with pytest.raises(InvalidInputError, match=r"(row|line) 1 of .*a.jsonl") as caught:
            enter(table, source, how)
        assert str(caught.value).encode()

    def test_values_that_are_nested_too_deeply_are_told(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        with pytest.raises((FormatError, InvalidInputError, UnsupportedError)):
            load(table, lines(tmp_path / "a.jsonl", '{"id": 1, "c": ' + "[" * 100_000 + "]" * 100_000 + "}"))

    def test_without_leave_a_new_column_is_refused_with_its_line(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        with pytest.raises(InvalidInputError, match=r"column 'c' of line 2 of .*a.jsonl is not in the table"):
            load(table, lines(tmp_path / "a.jsonl", {"id": 1}, {"id": 2, "c": 1}), grow=False)


class TestFilesOfAMerge:
    """Columns of several files are united by name, whatever their formats, as those of an append."""

    FEED = [{"id": 1, "n": 10, "note": "a", "x": 5}, {"n": 20, "id": 2, "x": 6}]

    @pytest.mark.parametrize("kinds", ["parquet parquet", "csv csv", "jsonl jsonl", "parquet jsonl", "avro parquet"])
    def test_another_order_and_a_column_less(self, kinds, tmp_path):
        table = make(tmp_path, {"id": "long", "n": "int", "note": "string"}, [{"id": 1, "n": 0, "note": "z"}])
        names = []
        for number, (kind, row) in enumerate(zip(kinds.split(), self.FEED, strict=True)):
            names.append(str(tmp_path / f"{number}.{kind}"))
            self.write(Path(names[-1]), kind, row)
        found = merged(table, Source.from_files(names), ["id"], UPSERT)
        assert found == [{"id": 1, "n": 10, "note": "a"}, {"id": 2, "n": 20, "note": None}]

    def write(self, path: Path, kind: str, row: dict[str, Any]) -> None:
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), path)
        elif kind == "csv":
            path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
        elif kind == "avro":
            fields = [{"name": n, "type": "string" if isinstance(v, str) else "long"} for n, v in row.items()]
            with path.open("wb") as handle:
                fastavro.writer(handle, {"type": "record", "name": "r", "fields": fields}, [row])
        else:
            lines(path, row)

    @pytest.mark.parametrize(
        ("one", "two", "expected"),
        [
            (pa.array([1], pa.int32()), pa.array([1 << 40]), True),
            (pa.array([1], pa.uint64()), pa.array([2**64 - 1], pa.uint64()), True),
            (pa.array([None], pa.null()), pa.array(["a"]), True),
            (pa.array([{"a": 1}]), pa.array([{"b": "x", "a": 2}]), True),
            (pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.timestamp("ms", "Europe/Berlin")), True),
            (pa.array(["a"]).dictionary_encode(), pa.array(["a"], pa.large_string()), True),
            (pa.array([1]), pa.array(["a"]), False),
        ],
    )
    def test_types_of_columns_that_the_table_does_not_have(self, one, two, expected, tmp_path):
        table = make(tmp_path, {"id": "long", "c": "string"})
        for number, values in enumerate((one, two)):
            pq.write_table(pa.table({"id": [number], "v": values}), tmp_path / f"{number}.parquet")
        source = Source.from_files(f"{tmp_path}/*.parquet")
        clause = "when not matched then insert (id, c) values (source.id, source.v::varchar)"
        if expected:
            assert len(merged(table, source, ["id"], clause)) == 2
        else:
            with pytest.raises(InvalidInputError, match=r"column 'v' is int64 in .*0.parquet and string"):
                merged(table, source, ["id"], clause)

    def test_a_file_without_the_key_is_refused(self, tmp_path):
        table = make(tmp_path, {"id": "long", "n": "int"})
        pq.write_table(pa.table({"id": [1], "n": pa.array([1], pa.int32())}), tmp_path / "0.parquet")
        pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
        with pytest.raises(InvalidInputError, match=r"column 'id', by which rows are matched, is not in .*1.parquet"):
            merged(table, Source.from_files(f"{tmp_path}/*.parquet"), ["id"], UPSERT)

    def test_nanoseconds_are_not_cut(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        pq.write_table(pa.table({"id": [1], "t": pa.array([1001], pa.timestamp("ns"))}), tmp_path / "0.parquet")
        with pytest.raises(InvalidInputError, match=r"column 't' of .*0.parquet: a value"):
            merged(table, Source.from_files(f"{tmp_path}/*.parquet"), ["id"], "when matched then delete")


def avro(path: Path, kinds: dict[str, Any], *rows: dict[str, Any]) -> Source:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    with path.open("wb") as handle:
        fastavro.writer(handle, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)
    return Source.from_files(str(path))


class TestDeclaredTypes:
    """A new column has the type that its file declares, not the one that a reader stores it as."""

    U = UUID(int=7)
    AVRO = {
        "uuid": ({"type": "string", "logicalType": "uuid"}, U, "uuid", U.bytes),
        "fixed uuid": ({"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"}, U.bytes, "uuid", U.bytes),
        "optional uuid": (["null", {"type": "string", "logicalType": "uuid"}], U, "uuid", U.bytes),
        "uuids": ({"type": "array", "items": {"type": "string", "logicalType": "uuid"}}, [U], "list<uuid>", [U.bytes]),
        "decimal": (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("1.50"),
            "decimal(9, 2)",
            Decimal("1.50"),
        ),
        "date": ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), "date", date(2026, 1, 2)),
        "instant": (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 1, 2, tzinfo=UTC),
            "timestamptz",
            datetime(2026, 1, 2, tzinfo=UTC),
        ),
        "local": (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            LOCAL,
            "timestamp",
            LOCAL,
        ),
        "local, as Iceberg says it": (
            {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
            datetime(2026, 1, 2, tzinfo=UTC),
            "timestamp",
            LOCAL,
        ),
        "nanoseconds": ({"type": "long", "logicalType": "timestamp-nanos"}, 5_000, "timestamptz_ns", None),
        "local nanoseconds": ({"type": "long", "logicalType": "local-timestamp-nanos"}, 5_000, "timestamp_ns", None),
        "enum": ({"type": "enum", "name": "e", "symbols": ["A"]}, "A", "string", "A"),
        "map of numbers": (
            {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "kv",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}],
                },
            },
            [{"key": 1, "value": "a"}],
            "map<int, string>",
            [(1, "a")],
        ),
    }

    @pytest.mark.parametrize("name", AVRO)
    def test_of_avro(self, name, tmp_path):
        kind, value, expected, read = self.AVRO[name]
        table = make(tmp_path, {"id": "long"}, version=3)
        load(table, avro(tmp_path / "a.avro", {"id": "long", "c": kind}, {"id": 1, "c": value}))
        assert types(table)["c"] == expected
        assert read is None or rows(table)[0]["c"] == read

    def test_uuids_below_a_column(self, tmp_path):
        uuid = {"type": "string", "logicalType": "uuid"}
        inner = {"type": "record", "name": "s", "fields": [{"name": "u", "type": ["null", uuid]}]}
        table = make(tmp_path, {"id": "long"})
        kinds = {"id": "long", "p": inner, "m": {"type": "map", "values": "s"}}
        load(table, avro(tmp_path / "a.avro", kinds, {"id": 1, "p": {"u": self.U}, "m": {"k": {"u": None}}}))
        assert rows(table) == [{"id": 1, "p": {"u": self.U.bytes}, "m": [("k", {"u": None})]}]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pa.array([U.bytes], pa.uuid()), "uuid"),
            (pa.array(["{}"], pa.json_()), "string"),
            (pa.array([U.bytes], pa.binary(16)), "fixed[16]"),
        ],
    )
    @pytest.mark.parametrize("way", ["file", "arrow"])
    def test_of_arrow_and_parquet(self, values, expected, way, tmp_path):
        table = make(tmp_path, {"id": "long"})
        given = pa.table({"id": [1], "c": values})
        if way == "arrow":
            table.append(given, schema_evolution="add_columns")
        else:
            pq.write_table(given, tmp_path / "a.parquet")
            load(table, Source.from_files(str(tmp_path / "a.parquet")))
        assert types(table)["c"] == expected

    def test_a_variant_of_parquet(self, tmp_path):
        first = make(tmp_path / "first", {"id": "long", "c": "variant"}, version=3)
        plain = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
        value = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
        first.append(pa.table({"id": [1], "c": pa.array([value], plain)}))
        (path,) = first.inspect.files()["file_path"].to_pylist()
        table = make(tmp_path / "second", {"id": "long"}, version=3)
        load(table, Source.from_files(path))
        assert types(table)["c"] == "variant"
        assert rows(table)[0]["c"] == value
        with pytest.raises(InvalidInputError, match="type variant of column 'c' needs format version 3"):
            load(make(tmp_path / "third", {"id": "long"}), Source.from_files(path))

    def test_int96_is_an_instant(self, tmp_path):
        table = make(tmp_path, {"id": "long"})
        given = pa.table({"id": [1], "c": pa.array([LOCAL], pa.timestamp("us"))})
        pq.write_table(given, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
        load(table, Source.from_files(str(tmp_path / "a.parquet")))
        assert types(table)["c"] == "timestamptz"
        assert rows(table)[0]["c"] == datetime(2026, 1, 2, tzinfo=UTC)


class TestOneFileUnderTwoNames:
    """However a file is named, its rows are read once."""

    NAMES = ["{0}/a.csv", "file://{0}/a.csv", "file:{0}/a.csv", "{0}//a.csv", "{0}/x/../a.csv", "{0}/./a.csv"]
    NAMES += ["{0}/*.csv", "file://{0}/", "{0}/x/link.csv", "local://{0}/a.csv", "FILE://{0}/a.csv"]

    @pytest.mark.parametrize("second", NAMES)
    @pytest.mark.parametrize("how", ["append", "merge"])
    def test_is_read_once(self, second, how, tmp_path):
        folder = tmp_path / "in"
        (folder / "x").mkdir(parents=True)
        (folder / "a.csv").write_text("id\n1\n")
        if "link" in second:
            (folder / "x" / "link.csv").symlink_to(folder / "a.csv")
        table = make(tmp_path, {"id": "long"})
        source = Source.from_files([str(folder / "a.csv"), second.format(folder)])
        if how == "append":
            load(table, source)
        else:
            merged(table, source, ["id"], "when not matched then insert *")
        assert rows(table) == [{"id": 1}]

    @pytest.mark.parametrize(
        ("one", "two", "expected"),
        [
            ("s3://b/a//c.csv", "s3://b/a/c.csv", False),
            ("s3://b/a/../c.csv", "s3://b/c.csv", False),
            ("s3://b/a/c.csv", "s3a://b/a/c.csv", True),
            ("s3://b/a/../c.csv", "s3a://b/a/../c.csv", True),
            ("gs://b/./c.csv", "gs://b/c.csv", False),
            ("hdfs://n:8020/a//x/../c.csv", "hdfs://n/a/c.csv", True),
            ("hdfs://n/a/c.csv", "hdfs://n/a/d.csv", False),
            ("abfss://c@s.dfs.core.windows.net/a.csv", "abfs://c@s.blob.core.windows.net/a.csv", True),
            ("memory://a/b.csv", "memory:///a/b.csv", True),
            ("https://h/a.csv?x=1", "https://h/a.csv?x=2", False),
            ("zip://A.csv::s3://b/z.zip", "zip://a.csv::s3://b/z.zip", False),
            ("a.csv", "b.csv", False),
        ],
    )
    def test_names_of_stores(self, one, two, expected):
        assert (identity(one) == identity(two)) is expected
