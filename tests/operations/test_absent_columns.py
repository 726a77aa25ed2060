"""What a row or a file does not have gets one value everywhere: a default, null, or one error.

The cases cross the column that is absent, where it is absent, and what is done then.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.format.avro.container import read_header, write_long
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.table import Table
from tests.support.builders import add_file, job_work, new_table
from tests.support.data_files import write_data_file

SCHEMA = {"id": "long", "s": "struct<x: int>", "l": "list<struct<x: int>>", "m": "map<string, struct<x: int>>"}
ROW = {"s": {"x": 1}, "l": [{"x": 1}], "m": [("k", {"x": 1})]}
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int32())])),
        ("l", pa.list_(pa.struct([("x", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)
# The type of the absent column, its default, whether it is required, and the value that everybody gets.
COLUMNS: Mapping[str, tuple[str, Any, bool, Any]] = {
    "a struct with a required field": ("struct<a: int not null>", None, False, None),
    "two levels": ("struct<b: struct<a: int not null> not null>", None, False, None),
    "an optional struct with required parts inside": ("struct<b: struct<a: int not null>>", None, False, None),
    "a struct of everything": (
        "struct<v: variant not null, u: uuid not null, l: list<int> not null>",
        None,
        False,
        None,
    ),
    "a variant": ("variant", None, False, None),
    "a uuid": ("uuid", None, False, None),
    "a list": ("list<struct<a: int not null> not null>", None, False, None),
    "a map": ("map<string, struct<a: int not null> not null>", None, False, None),
    "binary": ("binary", None, False, None),
    "fixed": ("fixed[4]", None, False, None),
    "a default": ("int", 7, False, 7),
    "a required default": ("int", 7, True, 7),
    "a default of a float": ("float", 0.1, True, pa.scalar(0.1, pa.float32()).as_py()),
    "a required text": ("string", "none", True, "none"),
    "bytes": ("binary", b"\x00\xff", True, b"\x00\xff"),
}
PLACES = ("", "s.", "l.element.", "m.value.")


@dataclass(frozen=True)
class Case:
    """A table, to which a column is added that its first row and all new rows lack."""

    table: Table
    folder: Path
    place: str
    expected: Any

    def values(self, rows: pa.Table) -> list[Any]:
        """Return the value of the column in each row, wherever it is."""
        found = []
        for row in rows.to_pylist():
            match self.place:
                case "":
                    found.append(row["c"])
                case "s.":
                    found.append(row["s"]["c"])
                case "l.element.":
                    found.append(row["l"][0]["c"])
                case _:
                    found.append(row["m"][0][1]["c"])
        return found

    def check(self, count: int) -> pa.Table:
        rows = self.table.refresh().scan().to_arrow()
        assert self.values(rows) == [self.expected] * count
        # Who hands out Arrow that its writer refuses, hands on the fault.
        pq.write_table(rows, self.folder / "copy.parquet")
        assert self.values(pq.read_table(self.folder / "copy.parquet")) == [self.expected] * count
        return rows


def make(folder: Path, name: str, place: str, *, old: str = "parquet", **properties: str) -> Case:
    table = new_table(folder, schema=SCHEMA, properties={"format-version": "3", **properties})
    if old == "ours":
        table.append(given(1))
    else:
        path = folder / f"old.{old}"
        if old == "avro":  # the test's own writer of Avro knows no maps
            write_avro(path, 1, ids=True)
        elif old == "orc":
            orc.write_table(given(1).cast(with_orc_ids()), path)
        else:
            write_data_file(path, old, table.schema(), given(1).to_pylist())
        add_file(table, path, record_count=1, file_format=old)
    kind, default, required, expected = COLUMNS[name]
    table.alter(
        [{"add_column": {"name": f"{place}c", "type": kind, "default": default, "required": required}}]
        if default is not None
        else [{"add_column": {"name": f"{place}c", "type": kind}}]
    )
    return Case(table.refresh(), folder, place, expected)


def given(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, **ROW} for number in numbers], ARROW)


def with_orc_ids() -> pa.Schema:
    def field(name: str, number: int, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, metadata={"iceberg.id": str(number)})

    def x(number: int) -> pa.DataType:
        return pa.struct([field("x", number, pa.int32())])

    value = pa.map_(field("key", 8, pa.string()).with_nullable(False), field("value", 9, x(10)))
    return pa.schema(
        [
            field("id", 1, pa.int64()),
            field("s", 2, x(5)),
            field("l", 3, pa.list_(field("element", 6, x(7)))),
            field("m", 4, value),
        ]
    )


def write_avro(path: Path, number: int, *, ids: bool = False) -> None:
    def of(name: str, field_id: int, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, **({"field-id": field_id} if ids else {})}

    def record(name: str, field_id: int) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [of("x", field_id, "int")]}

    more = ({"element-id": 6}, {"key-id": 8, "value-id": 9}) if ids else ({}, {})
    fields = [
        of("id", 1, "long"),
        of("s", 2, record("r1", 5)),
        of("l", 3, {"type": "array", "items": record("r2", 7), **more[0]}),
        of("m", 4, {"type": "map", "values": record("r3", 10), **more[1]}),
    ]
    row = {"id": number, **ROW, "m": dict(ROW["m"])}
    with path.open("wb") as handle:
        fastavro.writer(handle, {"type": "record", "name": "table", "fields": fields}, [row])


# -- how rows enter ----------------------------------------------------------------------------------------------------


def source_of(case: Case, kind: str, number: int) -> Source:
    path = case.folder / f"source-{number}.{kind}"
    if kind == "avro":
        write_avro(path, number)
    elif kind == "jsonl":
        path.write_text(json.dumps({"id": number, **ROW, "m": dict(ROW["m"])}) + "\n")
    elif kind == "orc":
        orc.write_table(given(number), path)
    else:
        pq.write_table(given(number), path)
    return Source.from_files(str(path))


def sql_of(number: int) -> Source:
    """Return a row of a query."""
    return Source.from_sql(
        f"select {number}::bigint as id, {{'x': 1::integer}} as s, [{{'x': 1::integer}}] as l, "
        f"map(['k'], [{{'x': 1::integer}}]) as m",
        dialect="duckdb",
    )


def load(case: Case, source: Source) -> None:
    append(job_work(case.table.refresh()), AppendRequest(rows=source))


def insert(case: Case, source: Source) -> None:
    """Insert the columns that the source has."""
    clauses = "when not matched then insert (id, s, l, m) values (source.id, source.s, source.l, source.m)"
    request = MergeRequest(rows=source, on=["id"], clauses=clauses, dialect="duckdb")
    merge(job_work(case.table.refresh()), request)


WAYS: Mapping[str, Callable[[Case, int], Any]] = {
    "append": lambda case, number: case.table.refresh().append(given(number)),
    "overwrite": lambda case, number: case.table.refresh().overwrite(given(number), overwrite_filter="id = 2"),
    "load of parquet": lambda case, number: load(case, source_of(case, "parquet", number)),
    "load of orc": lambda case, number: load(case, source_of(case, "orc", number)),
    "load of avro": lambda case, number: load(case, source_of(case, "avro", number)),
    "load of json lines": lambda case, number: load(case, source_of(case, "jsonl", number)),
    "query": lambda case, number: load(case, sql_of(number)),
    "overwrite by a file": lambda case, number: overwrite(
        job_work(case.table.refresh()),
        OverwriteRequest(rows=source_of(case, "parquet", number), overwrite_filter="id = 2"),
    ),
}
# By a merge: nested fields that a source lacks are a matter of their own (`merge-rows`).
INSERTS: Mapping[str, Callable[[Case, int], Any]] = {
    "insert of parquet": lambda case, number: insert(case, source_of(case, "parquet", number)),
    "insert of json lines": lambda case, number: insert(case, source_of(case, "jsonl", number)),
    "insert of a query": lambda case, number: insert(case, sql_of(number)),
}


@pytest.mark.sample(90)
@pytest.mark.parametrize("written", ["parquet", "avro"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COLUMNS)
def test_new_rows_without_the_column(tmp_path, name, way, place, written):
    case = make(tmp_path, name, place, old="ours", **{"write.format.default": written})
    WAYS[way](case, 2)
    case.check(2)


@pytest.mark.sample(10)
@pytest.mark.parametrize("written", ["parquet", "avro"])
@pytest.mark.parametrize("way", INSERTS)
@pytest.mark.parametrize("name", COLUMNS)
def test_rows_that_a_merge_inserts_without_the_column(tmp_path, name, way, written):
    case = make(tmp_path, name, "", old="ours", **{"write.format.default": written})
    INSERTS[way](case, 2)
    case.check(2)


@pytest.mark.parametrize("name", ["a struct with a required field", "a variant", "a required default"])
def test_a_load_of_csv(tmp_path, name):
    table = new_table(tmp_path, properties={"format-version": "3"})
    kind, default, required, expected = COLUMNS[name]
    more = {} if default is None else {"default": default, "required": required}
    table.alter([{"add_column": {"name": "c", "type": kind, **more}}])
    (tmp_path / "a.csv").write_text("id\n1\n")
    append(job_work(table.refresh()), AppendRequest(rows=Source.from_files(str(tmp_path / "a.csv"))))
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "c": expected}]


# -- old files ---------------------------------------------------------------------------------------------------------


def changed(case: Case, change: str) -> None:
    table = case.table.refresh()
    match change:
        case "delete":
            assert table.delete("id = 2").deleted_records == 1
        case "update":
            table.update({"id": "id + 10"}, "id = 1")
        case "upsert":
            table.upsert(table.scan("id = 1").to_arrow(), join_cols=["id"])
        case "compact":
            assert compact(job_work(table), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
        case "filter":
            column = f"{case.place}c"
            if case.place in ("", "s.") and not isinstance(case.expected, bytes | str | float):
                is_null = table.scan(f"{column} is null").to_arrow()
                assert len(is_null) == (2 if case.expected is None else 0)


@pytest.mark.sample(90)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("old", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", ["delete", "update", "upsert", "compact", "filter"])
@pytest.mark.parametrize("name", COLUMNS)
def test_files_that_are_older_than_the_column(tmp_path, name, change, place, old, mode):
    modes = {f"write.{what}.mode": mode for what in ("delete", "update", "merge")}
    case = make(tmp_path, name, place, old=old, **modes)
    # Rows that are null where the column would be have none.
    case.table.append(given(2))
    case.check(2)
    changed(case, change)
    case.check(1 if change == "delete" else 2)


# -- no value ----------------------------------------------------------------------------------------------------------


class TestRequiredWithoutDefault:
    """A file without a required column that has no default has no rows of the table: one error, whoever reads it."""

    MESSAGE = r"column '{}' is required and has no initial default, and a data file does not have it; make the column"

    def make(self, folder: Path, place: str, old: str, mode: str) -> Table:
        case = make(folder, "a uuid", "", old=old, **{f"write.{w}.mode": mode for w in ("delete", "update", "merge")})
        change = {"name": f"{place}r", "type": "int", "required": True, "allow_incompatible": True}
        case.table.alter([{"add_column": change}])
        return case.table.refresh()

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("old", ["parquet", "orc", "avro"])
    @pytest.mark.parametrize("place", ["", "s."])
    @pytest.mark.sample(3)
    def test_all_say_the_same(self, tmp_path, place, old, mode):
        table = self.make(tmp_path, place, old, mode)
        name = f"{place}r"
        source = given(1).append_column("c", pa.nulls(1, pa.binary(16)))
        source = source.append_column("r", pa.array([1], pa.int32())) if not place else self.with_inner(source)
        asked: list[Callable[[], Any]] = [
            lambda: table.scan().to_arrow(),
            lambda: table.scan(f"{name} is null").to_arrow(),
            lambda: table.scan(f"{name} = 1").to_arrow(),
            lambda: table.scan(f"{name} = 1 or id = 5").to_arrow(),
            lambda: table.delete(f"{name} = 5"),
            lambda: table.update({"id": "id + 1"}, "id = 1"),
            lambda: compact(job_work(table), CompactRequest(options={"rewrite-all": True})),
        ]
        if mode == "copy-on-write":
            # Of two rows one stays; merge-on-read, no value of the column is needed.
            table.append(source.set_column(0, "id", pa.array([2], pa.int64())))
        for one in asked:
            with pytest.raises(FormatError, match=self.MESSAGE.format(name)) as found:
                one()
            assert f"old.{old}" in str(found.value)

    def with_inner(self, source: pa.Table) -> pa.Table:
        kind = pa.struct([("x", pa.int32()), ("r", pa.int32())])
        return source.set_column(1, "s", pa.array([{"x": 1, "r": 1}], kind))

    def test_other_columns_are_read_all_the_same(self, tmp_path):
        table = self.make(tmp_path, "", "parquet", "copy-on-write")
        assert table.scan(selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
        assert table.scan("id = 1").count() == 1

    def test_the_way_on(self, tmp_path):
        table = self.make(tmp_path, "", "parquet", "copy-on-write")
        table.alter([{"make_optional": {"name": "r"}}])
        assert table.refresh().scan().to_arrow()["r"].to_pylist() == [None]

    def test_new_rows_are_refused_as_before(self, tmp_path):
        table = self.make(tmp_path, "", "parquet", "copy-on-write")
        with pytest.raises(InvalidInputError, match=r"required column 'r' .* is missing in the Arrow rows"):
            table.append(given(2))

    def test_a_partition_of_null_is_no_value(self, tmp_path):
        table = new_table(
            tmp_path,
            schema=pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.string(), False)]),
            partition_by=["p"],
        )
        write_data_file(tmp_path / "a.parquet", "parquet", new_table(tmp_path / "o").schema(), [{"id": 1}])
        add_file(table, tmp_path / "a.parquet", record_count=1, partition=(None,))
        with pytest.raises(IcebergError, match="column 'p' is required"):
            table.scan().to_arrow()


class TestAvroFilesOfOthers:
    """Some writers put Iceberg's JSON of a default into an Avro schema, where a date is an int: nobody needs it."""

    @pytest.mark.parametrize("default", ["2026-01-01", None, 5])
    def test_a_default_that_is_no_value_of_the_field(self, tmp_path, default):
        table = new_table(tmp_path, schema={"id": "long", "d": "date"})
        of = [{"name": "id", "type": "long"}, {"name": "d", "type": {"type": "int", "logicalType": "date"}}]
        path = tmp_path / "a.avro"
        with path.open("wb") as handle:
            fastavro.writer(handle, {"type": "record", "name": "r", "fields": of}, [{"id": 1, "d": date(2026, 1, 2)}])
        written = read_header(path.read_bytes(), path=str(path)).metadata["avro.schema"]
        changed = json.loads(written)
        changed["fields"][1]["default"] = default
        path.write_bytes(path.read_bytes().replace(*(sized(text) for text in (written, json.dumps(changed)))))
        append(job_work(table), AppendRequest(rows=Source.from_files(str(path))))
        assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "d": date(2026, 1, 2)}]


def sized(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return write_long(len(data)) + data


@pytest.mark.parametrize("place", ["", "s."])
def test_a_default_is_the_same_number_before_and_after_a_promotion(tmp_path, place):
    case = make(tmp_path, "a default of a float", place, old="ours")
    case.table.append(given(2))
    case.table.alter([{"change_type": {"name": f"{place}c", "type": "double"}}])
    case.table.refresh().append(given(3))
    case.check(3)
    assert case.table.refresh().scan(f"{place}c = 0.1").to_arrow().num_rows == 0
