"""Rows become Parquet files of the sizes asked for, in their partitions, that read back as what was written."""

import logging
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import InvalidInputError, StorageError, UnsupportedError
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.data.test_metrics import arrow, schemas_and_rows
from tests.support import samples
from tests.support.sampling import examples

MIB = 1024 * 1024
SCHEMA = schema_from_shorthand({"id": "long not null", "name": "string", "ratio": "double"})


def writer(place: Path | str, schema: Schema = SCHEMA, **settings: Any) -> PartitionedWriter:
    changed = {key: settings.pop(key) for key in ("max_buffered_bytes", "max_open_files") if key in settings}
    options = WriteOptions.from_properties(settings.pop("properties", {}), schema)
    return PartitionedWriter(
        load_file_io(),
        schema=schema,
        spec=spec_from_shorthand(settings.pop("partition_by", ()), schema),
        options=replace(options, **changed),
        data_location=place if isinstance(place, str) else f"file://{place}/data",
        file_prefix="00000-task",
        **settings,
    )


def rows(count: int, schema: Schema = SCHEMA, first: int = 0) -> pa.Table:
    random = np.random.default_rng(first)
    names = pa.array([f"name-{number}" for number in range(1000)]).take(pa.array(random.integers(0, 1000, count)))
    table = pa.table({"id": np.arange(first, first + count), "name": names, "ratio": random.random(count)})
    return conform(table, schema, source="rows")


def path(file: DataFile) -> str:
    return file.file_path.removeprefix("file://")


def read(file: DataFile) -> pa.Table:
    return pq.ParquetFile(path(file)).read()


def files_below(place: Path) -> list[str]:
    return [os.path.join(top, name) for top, _, names in os.walk(place) for name in names]


def write(place: Path | str, schema: Schema, *tables: pa.Table, **properties: str) -> DataFile:
    out = writer(place, schema, properties=properties)
    for table in tables:
        out.write(table)
    (file,) = out.close()
    return file


class TestTheFile:
    """A data file is Parquet as the format wants it."""

    def test_every_level_has_its_field_id(self, tmp_path):
        schema = schema_from_shorthand({"l": "list<struct<x: int>>", "m": "map<string, list<int>>"})
        table = conform(pa.table({"l": [[{"x": 1}]], "m": pa.nulls(1)}), schema, source="a")
        found = str(pq.ParquetFile(path(write(tmp_path, schema, table))).schema)
        ids = [(int(number), name) for number, name in re.findall(r"field_id=(\d+) (\w+)", found)]
        assert sorted(ids) == sorted((number, name.rsplit(".")[-1]) for name, number in schema.names.items())

    def test_types_are_those_of_the_specification(self, tmp_path):
        columns = {"d9": "decimal(9,2)", "d18": "decimal(18,2)", "d20": "decimal(20,2)", "u": "uuid"}
        columns |= {"ts": "timestamp", "tz": "timestamptz", "t": "time"}
        schema = schema_from_shorthand(columns)
        file = write(tmp_path, schema, conform(pa.table({"u": pa.nulls(1)}), schema, source="a"))
        text = str(pq.ParquetFile(path(file)).schema)
        for expected in (
            r"int32 field_id=\d+ d9 ",
            r"int64 field_id=\d+ d18 ",
            r"fixed_len_byte_array\(9\) field_id=\d+ d20 ",
            r" u \(UUID\)",
            r" ts \(Timestamp\(isAdjustedToUTC=false, timeUnit=microseconds",
            r" tz \(Timestamp\(isAdjustedToUTC=true, timeUnit=microseconds",
            r" t \(Time\(isAdjustedToUTC=false, timeUnit=microseconds",
        ):
            assert re.search(expected, text)

    def test_it_is_compressed_with_zstd_unless_the_table_says_otherwise(self, tmp_path):
        table = rows(100)
        for properties, codec in (({}, "ZSTD"), ({"write.parquet.compression-codec": "gzip"}, "GZIP")):
            file = write(tmp_path, SCHEMA, table, **properties)
            assert pq.ParquetFile(path(file)).metadata.row_group(0).column(0).compression == codec

    def test_the_footer_holds_the_schema_as_java_writes_it(self, tmp_path):
        footer = pq.ParquetFile(path(write(tmp_path, SCHEMA, rows(1)))).metadata.metadata
        assert footer is not None
        assert footer[b"iceberg.schema"].startswith(b'{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id",')

    def test_its_description_fits_the_file(self, tmp_path):
        file = write(tmp_path, SCHEMA, rows(1000))
        footer = pq.ParquetFile(path(file)).metadata
        assert file.file_size_in_bytes == os.path.getsize(path(file))
        assert file.record_count == footer.num_rows == 1000
        assert sum((file.column_sizes or {}).values()) == sum(
            footer.row_group(0).column(index).total_compressed_size for index in range(3)
        )
        assert (file.split_offsets, file.sort_order_id, file.spec_id) == ((4,), 0, 0)
        assert file.file_format == "parquet"
        assert os.path.basename(path(file)).startswith("00000-task-")

    def test_unknown_columns_are_left_out_at_every_level(self, tmp_path):
        schema = schema_from_shorthand({"a": "int", "n": "unknown", "p": "struct<x: int, u: unknown>"})
        table = conform(pa.table({"a": [1, 2], "p": [{"x": 5}, None]}), schema, source="a")
        assert read(write(tmp_path, schema, table)).to_pylist() == [{"a": 1, "p": {"x": 5}}, {"a": 2, "p": None}]

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ("unknown", "a table without columns cannot be written to parquet"),
            ("list<unknown>", "column 'c.element' is of type unknown inside a list or map"),
            ("struct<x: unknown>", "column 'c' is a struct without fields"),
            ("geometry", "column 'c' is of type geometry, which is not written yet"),
            ("fixed[0]", r"column 'c' is of type fixed\[0\], which parquet cannot hold"),
        ],
    )
    def test_what_cannot_be_written_is_said_before_any_row(self, tmp_path, column, message):
        with pytest.raises(UnsupportedError, match=message):
            writer(tmp_path, schema_from_shorthand({"c": column}))

    def test_bloom_filters_are_written_where_asked_for_at_any_depth(self, tmp_path):
        schema = schema_from_shorthand({"id": "long", "l": "list<string>", "m": "map<string, int>", "s": "string"})
        on = dict.fromkeys(["id", "l.element", "m.key"], "true")
        properties = {f"write.parquet.bloom-filter-enabled.column.{name}": text for name, text in on.items()}
        table = conform(pa.table({"id": range(1000), "l": [["a"]] * 1000}), schema, source="a")
        group = pq.ParquetFile(path(write(tmp_path, schema, table, **properties))).metadata.row_group(0)
        columns = [group.column(index) for index in range(group.num_columns)]
        found = {column.path_in_schema for column in columns if column.bloom_filter_length}
        assert found == {"id", "l.list.element", "m.key_value.key"}

    @pytest.mark.costly
    @examples(60)
    @given(schemas_and_rows())
    def test_what_is_read_is_what_was_written(self, case):
        schema, parts = case
        tables = [conform(arrow(schema, part), schema, source="a") for part in parts]
        file = write("memory://write/data", schema, *tables)
        found = pq.ParquetFile(pa.BufferReader(load_file_io().read(file.file_path))).read()
        load_file_io().delete([file.file_path])
        expected = pa.concat_tables(tables)
        for name in expected.column_names:
            type_ = schema.find_field(schema.names[name]).type
            before = values_from_array(type_, expected.column(name))
            assert repr(values_from_array(type_, found.column(name).cast(expected.column(name).type))) == repr(before)


class TestSizes:
    """Row groups and files end at about the sizes that the table's properties ask for, measured on disk."""

    def sizes(self, place, count, row_group, target, step) -> tuple[list[list[int]], list[DataFile]]:
        properties = {"write.parquet.row-group-size-bytes": str(row_group), "write.target-file-size-bytes": str(target)}
        out = writer(place, properties=properties)
        for first in range(0, count, step):
            out.write(rows(min(step, count - first), first=first))
        files = list(out.close())
        groups = []
        for file in files:
            footer = pq.ParquetFile(path(file)).metadata
            found = [footer.row_group(index) for index in range(footer.num_row_groups)]
            columns = range(footer.num_columns)
            groups.append([sum(group.column(index).total_compressed_size for index in columns) for group in found])
        return groups, files

    @pytest.mark.costly
    @pytest.mark.parametrize("step", [2_000, 30_000, 200_000])
    def test_row_groups_have_their_size_however_the_rows_come(self, tmp_path, step):
        ((*full, _),), files = self.sizes(tmp_path, 400_000, MIB, 100 * MIB, step)
        assert len(full) >= 2
        assert all(0.8 * MIB < size < 1.2 * MIB for size in full)
        assert len(files[0].split_offsets or ()) == len(full) + 1
        assert read(files[0]).column("id").to_pylist() == list(range(400_000))

    @pytest.mark.costly
    def test_files_have_their_size(self, tmp_path):
        _, files = self.sizes(tmp_path, 200_000, MIB // 8, MIB // 2, 10_000)
        assert len(files) >= 4
        assert all(0.42 * MIB < file.file_size_in_bytes < 0.58 * MIB for file in files[:-1])
        assert sum(file.record_count for file in files) == 200_000

    def test_a_file_smaller_than_a_row_group_has_one(self, tmp_path):
        groups, files = self.sizes(tmp_path, 200_000, 100 * MIB, MIB, 50_000)
        assert all(len(found) == 1 for found in groups)
        assert all(0.85 * MIB < file.file_size_in_bytes < 1.15 * MIB for file in files[:-1])

    def test_nothing_written_makes_no_file(self, tmp_path):
        out = writer(tmp_path)
        out.write(rows(0))
        assert out.close() == ()
        assert not files_below(tmp_path)

    def test_sliced_and_chunked_tables_are_written_as_they_are(self, tmp_path):
        sliced = pa.concat_tables([rows(10).slice(3, 4), rows(0), rows(5, first=100).slice(4)])
        file = write(tmp_path, SCHEMA, sliced)
        assert read(file).column("id").to_pylist() == [3, 4, 5, 6, 104]
        assert (file.lower_bounds or {})[1] == (3).to_bytes(8, "little")


class TestPartitions:
    """The rows of a partition go to files of that partition, below its path."""

    schema = schema_from_shorthand({"id": "long not null", "day": "date", "k": "string"})

    def table(self, count: int, partitions: int) -> pa.Table:
        number = np.arange(count)
        keys = [None if value == 0 else f"k{value}" for value in number % partitions]
        return conform(pa.table({"id": number, "k": keys}), self.schema, source="a")

    def test_each_partition_has_its_tuple_path_and_rows(self, tmp_path):
        schema = schema_from_shorthand({"id": "long", "ts": "timestamp", "k": "string"})
        out = writer(tmp_path, schema, partition_by=["day(ts)", "k"])
        days = ["2026-01-01 10:00", "2026-01-01 11:00", "1969-12-31 23:59", None]
        out.write(conform(pa.table({"id": range(4), "ts": days, "k": ["a/b", "a/b", None, "ü"]}), schema, source="a"))
        files = out.close()
        found = {path(file).split("/data/")[1].rsplit("/", 1)[0]: (file.partition, file.record_count) for file in files}
        assert found == {
            "ts_day=2026-01-01/k=a%2Fb": ((20454, "a/b"), 2),
            "ts_day=1969-12-31/k=null": ((-1, None), 1),
            "ts_day=null/k=%C3%BC": ((None, "ü"), 1),
        }

    def test_nan_is_one_partition_and_zeros_are_two(self, tmp_path):
        schema = schema_from_shorthand({"x": "double"})
        out = writer(tmp_path, schema, partition_by=["x"])
        out.write(conform(pa.table({"x": [math.nan, 0.0, -0.0, math.nan]}), schema, source="a"))
        out.write(conform(pa.table({"x": [-0.0, math.nan]}), schema, source="a"))
        assert sorted(file.record_count for file in out.close()) == [1, 2, 3]

    def test_partition_columns_may_be_uuids(self, tmp_path):
        schema = schema_from_shorthand({"u": "uuid", "b": "long"})
        out = writer(tmp_path, schema, partition_by=["u"])
        out.write(conform(pa.table({"u": ["0" * 32, "1" * 32, "0" * 32]}), schema, source="a"))
        assert sorted(file.record_count for file in out.close()) == [1, 2]

    @pytest.mark.services
    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_thousand_partitions_stay_in_bounded_memory(self, tmp_path, threads):
        limit = 200_000
        out = writer(
            tmp_path, self.schema, partition_by=["k"], max_buffered_bytes=limit, max_open_files=8, threads=threads
        )
        most_waiting = most_open = 0
        table = self.table(20_000, 1000)
        for first in range(0, table.num_rows, 4_000):
            out.write(table.slice(first, 4_000))
            most_waiting = max(most_waiting, sum(item.waiting_bytes for item in out._writers.values()))
            most_open = max(most_open, sum(item.is_open for item in out._writers.values()))
        files = out.close()
        assert most_waiting <= 1.3 * limit
        assert most_open <= 8
        assert len(files) >= 1000
        by_key: dict[Any, list[int]] = {}
        for file in files:
            by_key.setdefault(file.partition, []).extend(read(file).column("id").to_pylist())
        assert len(by_key) == 1000
        assert all(found == sorted(found) and len(found) == 20 for found in by_key.values())

    @pytest.mark.costly
    def test_waiting_rows_do_not_hold_what_they_were_cut_from(self, tmp_path):
        limit = MIB
        out = writer(tmp_path, self.schema, partition_by=["k"], max_buffered_bytes=limit)
        before = pa.total_allocated_bytes()
        most = 0
        for first in range(0, 500_000, 25_000):
            number = np.arange(first, first + 25_000)
            # One partition takes nearly all rows and is written again and again; the others have a row now and then.
            keys = np.where(number % 1000 == 0, np.char.add("k", (number // 1000 % 50).astype(str)), "big")
            out.write(conform(pa.table({"id": number, "k": keys}), self.schema, source="a"))
            del number, keys
            most = max(most, pa.total_allocated_bytes() - before)
        out.abort()
        assert most < 3 * limit

    def test_threads_write_the_same_rows(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.data.write.partitioned._LANE_BYTES", 100_000)
        table = rows(30_000)
        out = writer(tmp_path, threads=2)
        out.write(table)
        files = out.close()
        assert len(files) == 2
        assert [read(file).column("id")[0].as_py() for file in files] == [0, 15_000]
        assert sum(file.record_count for file in files) == 30_000


class TestFailures:
    """Nothing stays behind of a write that failed, and the error says where."""

    def test_abort_removes_finished_and_open_files(self, tmp_path):
        writer(tmp_path).abort()  # before the first row
        assert not files_below(tmp_path)
        out = writer(tmp_path, properties={"write.target-file-size-bytes": "200000"})
        out.write(rows(100_000))
        assert len(files_below(tmp_path)) > 1
        out.abort()
        assert not files_below(tmp_path)

    @pytest.mark.costly
    def test_as_a_context_it_aborts_on_an_error_without_a_complaint_of_the_encoder(self, tmp_path, recwarn):
        out = writer(tmp_path, properties={"write.parquet.row-group-size-bytes": "10000"})
        with pytest.raises(RuntimeError, match="stop"), out:  # noqa: PT012
            out.write(rows(100_000))
            assert len(files_below(tmp_path)) == 1
            raise RuntimeError("stop")
        assert not files_below(tmp_path)
        del out
        assert not [str(warning.message) for warning in recwarn if "Exception ignored" in str(warning.message)]

    def test_as_a_context_it_closes_at_the_end(self, tmp_path):
        with writer(tmp_path) as out:
            out.write(rows(10))
        assert len(files_below(tmp_path)) == 1

    def test_a_place_that_cannot_be_written_is_a_storage_error(self, tmp_path):
        (tmp_path / "data").write_text("a file where a directory should be")
        out = writer(tmp_path)
        out.write(rows(10))
        with pytest.raises(StorageError, match=rf"cannot write file://{tmp_path}/data/00000-task-"):
            out.close()
        out.abort()

    def test_rows_that_were_not_conformed_are_refused(self, tmp_path):
        message = r"unexpected schema \(id: int64\) of rows \(expected id: int64, name"
        with pytest.raises(InvalidInputError, match=message):
            writer(tmp_path).write(pa.table({"id": [1]}))

    def test_a_closed_writer_takes_no_rows(self, tmp_path):
        out = writer(tmp_path)
        out.close()
        for call in (lambda: out.write(rows(1)), out.close):
            with pytest.raises(InvalidInputError, match="the writer is closed already"):
                call()

    def test_faults_while_aborting_are_logged(self, tmp_path, caplog):
        out = writer(tmp_path)
        out.write(rows(1))
        out._io.delete = Mock(side_effect=StorageError("the store is away"))
        with caplog.at_level(logging.WARNING):
            out.abort()
        assert "could not remove 0 files of an unfinished write: the store is away" in caplog.text


class TestOtherReaders:
    """DuckDB reads what is written here; tables as a whole are compared with other engines in `tests/compat`."""

    def test_values_and_types_come_back(self, tmp_path):
        schema = schema_from_shorthand({**samples.SCHEMA, "u": "uuid", "t": "time"})
        table = conform(samples.rows(), schema, source="samples")
        file = write(tmp_path, schema, table)
        names = ["id", "price", "huge", "day", "name", "blob", "u", "t", "tags"]
        found = duckdb.sql(f"select {', '.join(names)} from '{path(file)}' order by id").fetchall()
        assert found == [tuple(row.values()) for row in table.select(names).to_pylist()]
