"""Rows of files that declare less than the table requires are rewritten all the same."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from tests.support.builders import add_file, ids, job_work, new_table
from tests.support.data_files import write_data_file

REQUIRED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field(
            "s",
            pa.struct(
                [
                    pa.field("a", pa.int32(), nullable=False),
                    pa.field("l", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
                    pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)), nullable=False),
                    pa.field("t", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False),
                ]
            ),
        ),
    ]
)
STRUCT: dict[str, Any] = {"a": 1, "l": [1], "m": [("k", 1)], "t": {"x": 1}}
ROWS = [{"id": 1, "s": None}, {"id": 2, "s": STRUCT}, {"id": 3, "s": None}]


def optional(schema: Schema) -> Schema:
    """The same columns, none of them required."""

    def of(kind: t.IcebergType) -> t.IcebergType:
        match kind:
            case t.StructType():
                return t.StructType(fields=tuple(map(of_field, kind.fields)))
            case t.ListType():
                return replace(kind, element=of(kind.element), element_required=False)
            case t.MapType():
                return replace(kind, value=of(kind.value), value_required=False)
        return kind

    def of_field(field: t.NestedField) -> t.NestedField:
        return replace(field, required=False, type=of(field.type))

    return Schema(tuple(map(of_field, schema.fields)))


@pytest.fixture(params=["parquet", "orc"])
def table(request, tmp_path):
    """A file of another writer, in which every field is optional."""
    table = new_table(tmp_path, schema=REQUIRED)
    path = tmp_path / f"theirs.{request.param}"
    write_data_file(path, request.param, optional(table.schema()), ROWS)
    add_file(table, path, record_count=3, file_format=request.param)
    return table


class TestNullStructsWithRequiredFields:
    """Below the null of a struct a required field has no value, and that is no null."""

    def test_a_copy_on_write_delete(self, table):
        assert delete(job_work(table), DeleteRequest(predicate="id = 3")).deleted_records == 1
        assert table.refresh().scan().to_arrow().to_pylist() == ROWS[:2]

    def test_a_compaction(self, table):
        assert compact(job_work(table), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
        assert table.refresh().scan().to_arrow().to_pylist() == ROWS


class TestNullsInRequiredColumns:
    """A file that has one is broken: the error names the column and the file."""

    @pytest.mark.parametrize(
        ("row", "column"),
        [({"id": None, "s": None}, "id"), ({"id": 4, "s": {**STRUCT, "t": {"x": None}}}, r"s\.t\.x")],
    )
    def test_it_is_refused(self, tmp_path, row, column):
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), REQUIRED.field("s")])
        table = new_table(tmp_path, schema=schema)
        path = tmp_path / "theirs.parquet"
        write_data_file(path, "parquet", optional(table.schema()), [*ROWS, row])
        add_file(table, path, record_count=4)
        message = rf"column '{column}' is required and has a null in a data file.*theirs.parquet"
        with pytest.raises(FormatError, match=message):
            compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        with pytest.raises(FormatError, match=message):
            table.delete("id = 2")


@pytest.mark.costly
def test_a_column_that_the_file_does_not_have_is_null(tmp_path):
    table = new_table(tmp_path, properties={"format-version": "3"})
    table.append(pa.table({"id": [1, 2]}))
    columns = {"v": "variant", "s": "struct<x: variant, r: int not null>", "l": "list<variant>"}
    table.alter([{"add_column": {"name": name, "type": kind}} for name, kind in columns.items()])
    table.delete("id = 1")
    assert compact(job_work(table), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
    assert ids(table.refresh()) == [2]
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": None, "s": None, "l": None}]
