"""Rare files, and the statistics of files: Iceberg Java reads what we read, and counts what we count."""

import dataclasses
import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.data.read.deletes import POSITION_SCHEMA
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.compat.test_ours_read_by_others import our_rows, their_rows
from tests.support.data_files import name_mapping, write_data_file

pytestmark = pytest.mark.java
FORMATS = ("parquet", "orc", "avro")


def rows(first=0, count=6):
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": ["ab"[n % 2] for n in ids],
            "v": [None if n % 3 else "v" for n in ids],
        }
    )


@pytest.fixture
def table(catalog, request):
    """A partitioned table of ours, with two data files."""
    name = f"db.rare_{uuid.uuid4().hex[:8]}"
    table = Table.create(catalog, name, schema={"id": "long", "part": "string", "v": "string"}, partition_by=["part"])
    table.append(rows())
    return table


def same_rows(java, table):
    theirs = their_rows(java, table)
    assert our_rows(table.refresh()) == theirs
    return sorted(row["id"] for row in theirs)


def add_deletes(table, *files):
    action = RowDelta(
        table.io,
        table.commit_settings(),
        added_deletes=files,
        written_schema=table.schema(),
        starting_snapshot_id=table.metadata.current_snapshot_id,
    )
    table.commit(action)


def delete_file(folder, file_format, schema, deleted, **attributes):
    """Write a delete file and return it as a manifest lists it."""
    path = folder / f"deletes-{uuid.uuid4().hex[:8]}.{file_format}"
    file = write_data_file(path, file_format, schema, deleted)
    return dataclasses.replace(file, file_path=path.as_uri(), **attributes)


@pytest.mark.parametrize("file_format", FORMATS)
class TestDeleteFiles:
    """Of every format, of every kind."""

    def test_positions(self, java, table, tmp_path, file_format):
        (task,) = [task for task in table.scan().plan_files() if task.file.partition == ("a",)]
        gone = [{"file_path": task.file.file_path, "pos": position} for position in (0, 2)]
        kind = {"content": FileContent.POSITION_DELETES, "partition": ("a",)}
        add_deletes(table, delete_file(tmp_path, file_format, POSITION_SCHEMA, gone, **kind))
        assert same_rows(java, table) == [1, 2, 3, 5]

    def test_keys_of_a_partition(self, java, table, tmp_path, file_format):
        self._delete_keys(table, tmp_path, file_format, partition=("a",))
        assert same_rows(java, table) == [1, 3, 4, 5]

    def test_keys_of_the_whole_table(self, java, table, tmp_path, file_format):
        """Of a spec without partitions; rows that are added later are not meant."""
        table.alter([{"drop_partition_field": "part"}])
        assert not table.refresh().metadata.spec().fields
        self._delete_keys(table, tmp_path, file_format, spec_id=table.metadata.spec().spec_id)
        assert same_rows(java, table) == [4, 5]
        table.append(rows(0, 2))
        assert same_rows(java, table) == [0, 1, 4, 5]

    def test_null_is_a_key(self, java, table, tmp_path, file_format):
        column = table.schema().find_field("v")
        schema = Schema((column,))
        kind = {"content": FileContent.EQUALITY_DELETES, "equality_ids": (column.id,), "partition": ("b",)}
        add_deletes(table, delete_file(tmp_path, file_format, schema, [{"v": None}], **kind))
        assert same_rows(java, table) == [0, 2, 3, 4]

    def _delete_keys(self, table, folder, file_format, **attributes):
        column = table.schema().find_field("id")
        kind = {"content": FileContent.EQUALITY_DELETES, "equality_ids": (column.id,), **attributes}
        deleted = [{"id": number} for number in (0, 1, 2, 3)]
        add_deletes(table, delete_file(folder, file_format, Schema((column,)), deleted, **kind))


@pytest.mark.sample(2)
class TestImportedFiles:
    """Files without field ids, that Java's procedure takes into a table: by the names of the mapping."""

    @pytest.mark.parametrize("file_format", ["parquet", "orc"])
    def test_rows_and_columns_that_were_renamed_since(self, java, catalog, tmp_path, file_format):
        name = f"imported_{file_format}"
        table = Table.create(
            catalog, f"db.{name}", schema={"id": "long", "p": "struct<x: int, y: string>", "v": "string"}
        )
        table.alter([{"set_properties": {"schema.name-mapping.default": name_mapping(table.schema())}}])
        java.sql(
            f"insert overwrite directory '{tmp_path}/{name}' using {file_format} "
            "select id, named_struct('y', concat('y', id), 'x', int(id)) as p, if(id = 1, null, 'v') as v from range(3)"
        )
        java.sql(
            f"call ref.system.add_files(table => 'db.{name}', source_table => '`{file_format}`.`{tmp_path}/{name}`')"
        )
        assert same_rows(java, table) == [0, 1, 2]
        table.alter([{"rename_column": {"from": "v", "to": "w"}}, {"rename_column": {"from": "p.x", "to": "z"}}])
        table.append(pa.table({"id": [7], "w": ["ours"]}))
        assert same_rows(java, table) == [0, 1, 2, 7]
        (row,) = table.scan("id = 2").to_arrow().to_pylist()
        assert (row["p"], row["w"]) == ({"z": 2, "y": "y2"}, "v")

    def test_texts_whose_dictionary_was_given_up(self, java, catalog, tmp_path):
        """The rest of the column lies in an encoding of its own, small as it is: Arrow gives no dictionaries of it."""
        table = Table.create(catalog, "db.given_up", schema={"id": "long", "v": "string"})
        table.alter([{"set_properties": {"schema.name-mapping.default": name_mapping(table.schema())}}])
        java.sql(
            f"insert overwrite directory '{tmp_path}/given_up' using parquet "
            "options ('parquet.writer.version' 'v2', 'parquet.dictionary.page.size' '5000', "
            "'parquet.page.row.count.limit' '1000') "
            "select id, concat('a common prefix ', lpad(string(id div 10), 6, '0')) as v from range(0, 60000, 1, 1)"
        )
        java.sql(
            f"call ref.system.add_files(table => 'db.given_up', source_table => '`parquet`.`{tmp_path}/given_up`')"
        )
        (task,) = table.refresh().scan().plan_files()
        footer = pq.ParquetFile(task.file.file_path.removeprefix("file:")).metadata
        column = footer.row_group(0).column(1)
        assert {"RLE_DICTIONARY", "DELTA_BYTE_ARRAY"} <= {*column.encodings}
        assert column.total_uncompressed_size < 2 * column.num_values
        compact(Work(table, run=lambda job: run_local(job, table.io)), CompactRequest(options={"rewrite-all": True}))
        assert same_rows(java, table) == list(range(60_000))


MODES = {
    "write.metadata.metrics.column.full": "full",
    "write.metadata.metrics.column.short": "truncate(3)",
    "write.metadata.metrics.column.counted": "counts",
    "write.metadata.metrics.column.nothing": "none",
    "write.metadata.metrics.column.s.inner": "truncate(2)",
    "write.metadata.metrics.column.c110": "full",
}
METRICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
TEXTS = ("aaaaaaaaaaaaaaaaaaaaaaaa", "zzzz\U0010ffff\U0010ffff", "\ud7ff" * 17, "", None, "\U0010ffff" * 20)


def wide_rows():
    count = len(TEXTS)
    # Not zero: its sign in a bound is ours (-0.0 below, +0.0 above), where Java takes what it finds.
    numbers = [None if n == 3 else 1.5 + n for n in range(count)]
    columns = {name: pa.array(TEXTS) for name in ("full", "short", "counted", "nothing", "usual")}
    columns["f"] = pa.array(numbers, pa.float32())
    columns["nan"] = pa.array([float("nan"), *numbers[1:]], pa.float64())
    columns["d"] = pa.array([None if n is None else decimal.Decimal(int(n)) for n in numbers], pa.decimal128(12, 2))
    columns["day"] = pa.array([dt.date(1969, 12, 30 + n % 2) for n in range(count)])
    columns["moment"] = pa.array([n * 10**15 - 3 * 10**15 for n in range(count)], pa.timestamp("us"))
    columns["blob"] = pa.array([None, b"", b"\xff" * 20, b"\x00" * 20, b"\xfe\xff" * 10, b"x"])
    columns["s"] = pa.array([{"inner": text} for text in TEXTS])
    columns["l"] = pa.array([[1, None], [], None, [2], [3], []], pa.list_(pa.int32()))
    columns["empty"] = pa.nulls(count, pa.int32())
    columns |= {f"c{n}": pa.array(range(count), pa.int32()) for n in range(120)}
    return pa.table(columns)


def nested_rows():
    """Ninety columns at the top, and twenty more in structs, lists and maps that stand before them."""
    numbers = pa.array([{f"n{n}": n for n in range(8)}])
    deep = pa.array([{"first": {f"m{n}": n for n in range(4)}, **{f"o{n}": n for n in range(4)}}])
    lists = pa.array([[1]], pa.list_(pa.int64()))
    maps = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    columns = {"s": numbers, "l": lists, "m": maps, "deep": deep} | {f"c{n}": pa.array([n]) for n in range(86)}
    return pa.table(columns)


class TestStatistics:
    """The counts and bounds that go into the manifests, under every mode and beyond the hundredth column."""

    @pytest.mark.services
    @pytest.mark.parametrize("make", [wide_rows, nested_rows])
    def test_those_of_java_for_the_same_rows(self, java, catalog, make):
        rows, name = make(), f"metrics_{make.__name__}"
        properties = MODES if make is wide_rows else {}
        options = {"schema": rows.schema, "properties": properties}
        tables = [Table.create(catalog, f"db.{name}_{owner}", **options) for owner in ("ours", "theirs")]
        tables[0].append(rows)
        java.sql(f"insert into ref.db.{name}_theirs select * from ref.db.{name}_ours")
        names = {field_id: name for name, field_id in tables[0].schema().names.items()}
        (ours,), (theirs,) = (table.refresh().inspect.files().to_pylist() for table in tables)
        for metric in METRICS:
            mine, other = ({names[key]: value for key, value in file[metric]} for file in (ours, theirs))
            assert mine == other, metric
