"""Bloom filters of Parquet files: of each value that is there they say so, of most others that they are not."""

import datetime as dt
import struct
import uuid
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.data.read import bloom_filters
from airflow_iceberg.data.read.bloom_filters import bloom_filter
from airflow_iceberg.data.read.file import FileToRead, read_file
from airflow_iceberg.data.read.file_fields import file_fields
from airflow_iceberg.data.read.xxhash64 import hash_values
from airflow_iceberg.errors import FormatError, IcebergError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, new_catalog
from tests.support.sampling import examples

# The last row group has a value and a null.
ROWS = 402
EPOCH = dt.datetime(1960, 1, 1, tzinfo=dt.UTC)
COLUMNS = {
    "int": (pa.int32(), t.IntegerType(), lambda n: n * 7 - 900),
    "wide": (pa.int32(), t.LongType(), lambda n: n * 7 - 900),  # was int when the file was written
    "long": (pa.int64(), t.LongType(), lambda n: n * 10**15 - 10**17),
    "date": (pa.date32(), t.DateType(), lambda n: dt.date(1969, 1, 1) + dt.timedelta(days=n)),
    "ts": (pa.timestamp("us"), t.TimestampType(), lambda n: EPOCH.replace(tzinfo=None) + dt.timedelta(hours=n)),
    "tz": (
        pa.timestamp("us", "UTC"),
        t.TimestamptzType(),
        lambda n: EPOCH + dt.timedelta(hours=n),
    ),
    # Of each length up to more than two stripes of the hash.
    "text": (pa.string(), t.StringType(), lambda n: ("é" if n % 3 else "") + "x" * (n % 80) + str(n)),
    "uuid": (pa.uuid(), t.UUIDType(), lambda n: uuid.UUID(int=n << 64 | n).bytes),
}


def with_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(schema, 1)])


def written(path: Path, even: bool = True, **settings) -> pa.Table:
    """Write each second number, and nulls; return the other numbers."""
    numbers = {is_even: range(0 if is_even else 1, ROWS, 2) for is_even in (True, False)}
    tables = {
        is_even: pa.table(
            {name: pa.array([*map(make, chosen), None], kind) for name, (kind, _, make) in COLUMNS.items()}
        )
        for is_even, chosen in numbers.items()
    }
    table = tables[even]
    filters = {name: {"ndv": ROWS, "fpp": 0.001} for name in COLUMNS}
    pq.write_table(
        table.cast(with_ids(table.schema)), path, row_group_size=100, bloom_filter_options=filters, **settings
    )
    return tables[not even]


def filters_of(path: Path, name: str):
    """Return the filter of each row group, and the values that are in it."""
    handle = pa.OSFile(str(path))
    parquet = pq.ParquetFile(handle)
    source = next(field for field in file_fields(parquet.schema_arrow) if field.name == name)
    type_ = COLUMNS[name][1]
    for index in range(parquet.num_row_groups):
        found = bloom_filter(handle, parquet.metadata.row_group(index), source, type_)
        values = values_from_array(type_, parquet.read_row_group(index).column(name))
        yield found, [value for value in values if value is not None]


class TestWhoIsThere:
    """No value that is there is missing from a filter; of those that are not, nearly none is in it."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", COLUMNS)
    @pytest.mark.parametrize("use_dictionary", [True, False])
    def test_of_arrow(self, tmp_path, name, use_dictionary):
        others = written(tmp_path / "f.parquet", use_dictionary=use_dictionary)
        absent = [value for value in values_from_array(COLUMNS[name][1], others.column(name)) if value is not None]
        for may_have, values in filters_of(tmp_path / "f.parquet", name):
            assert all(may_have([value]) for value in values)
            assert sum(may_have([value]) for value in absent) < len(absent) / 50
            assert may_have([*absent, values[-1]])

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["int", "long", "date", "ts", "text"])
    def test_of_duckdb(self, tmp_path, name):
        path = tmp_path / "f.parquet"
        others = written(tmp_path / "arrow.parquet")
        # It writes filters of columns with dictionaries, whose values repeat.
        duckdb.sql(
            f"copy (select int, int as wide, long, date, ts, text from '{tmp_path}/arrow.parquet', range(20)) to "
            f"'{path}' (row_group_size 2048, string_dictionary_page_size_limit 100000, "
            f"field_ids {{'int': 1, 'wide': 2, 'long': 3, 'date': 4, 'ts': 5, 'text': 7}})"
        )
        absent = [value for value in values_from_array(COLUMNS[name][1], others.column(name)) if value is not None]
        found = list(filters_of(path, name))
        assert any(may_have is not None for may_have, _ in found)
        for may_have, values in found:
            if may_have is not None:
                assert all(may_have([value]) for value in values)
                assert sum(may_have([value]) for value in absent) < len(absent) / 10

    def test_a_number_that_the_file_cannot_hold(self, tmp_path):
        written(tmp_path / "f.parquet")
        (may_have, _), *_ = filters_of(tmp_path / "f.parquet", "wide")
        assert not may_have([1 << 31])
        assert not may_have([])


class TestXxHash:
    """XXH64 with the seed 0."""

    def test_known_values(self):
        expected = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}
        assert hash_values(list(expected)).tolist() == list(expected.values())

    @pytest.mark.costly
    @examples(50)
    @given(values=st.lists(st.binary(max_size=100), max_size=10))
    def test_each_value_by_itself(self, values):
        assert hash_values(values).tolist() == [int(hash_values([value])[0]) for value in values]


SCHEMA = Schema(
    (t.NestedField(id=1, name="id", type=t.LongType(), required=False),
     t.NestedField(id=2, name="note", type=t.StringType(), required=False))
)  # fmt: skip


@pytest.fixture
def damaged(tmp_path):
    """A file of two row groups with even numbers, whose pages are zeros: it can only be read if no page is."""

    def write(**settings):
        path = tmp_path / "damaged.parquet"
        ids = pa.array(range(0, 4000, 2), pa.int64())
        table = pa.table({"id": ids, "note": [f"n{n}" for n in range(2000)]})
        table = table.cast(with_ids(table.schema))
        pq.write_table(table, path, row_group_size=1000, use_dictionary=False, compression="none", **settings)
        data = bytearray(path.read_bytes())
        metadata = pq.read_metadata(path)
        for group in range(2):
            for leaf in range(2):
                chunk = metadata.row_group(group).column(leaf)
                start, size = chunk.data_page_offset, chunk.total_compressed_size
                data[start : start + size] = bytes(size)
        path.write_bytes(data)
        return path

    return write


def rows(path: Path, row_filter: str) -> int:
    io = load_file_io({})
    file = DataFile(
        file_path=str(path), file_format="parquet", record_count=2000, file_size_in_bytes=path.stat().st_size
    )
    bound = parse_filter(row_filter, SCHEMA)
    return sum(map(len, read_file(io, FileToRead(file=file), schema=SCHEMA, row_filter=bound)))


FILTERS = {"bloom_filter_options": {"id": {"ndv": 1000, "fpp": 0.001}}}


class TestRowGroupsAreLeftOut:
    """No page of a row group is read whose filter has none of the keys."""

    @pytest.mark.parametrize("row_filter", ["id = 7", "id in (7, 9, 2001)", "id = 7 and note <> 'n7'"])
    def test_where_no_key_is(self, damaged, row_filter):
        assert rows(damaged(**FILTERS), row_filter) == 0
        with pytest.raises(IcebergError):
            rows(damaged(), row_filter)

    @pytest.mark.parametrize("row_filter", ["id = 8", "id in (7, 8)", "id <> 7", "id > 7", "id = 7 or note = 'n1'"])
    def test_not_where_one_may_be(self, damaged, row_filter):
        with pytest.raises(IcebergError):
            rows(damaged(**FILTERS), row_filter)

    def test_a_filter_is_no_proof_that_all_rows_match(self, tmp_path):
        path = tmp_path / "f.parquet"
        table = pa.table({"id": pa.array([1, 2, 4], pa.int64()), "note": ["a", "b", "c"]})
        pq.write_table(table.cast(with_ids(table.schema)), path, **FILTERS)
        data = bytearray(path.read_bytes())
        chunk = pq.read_metadata(path).row_group(0).column(0)
        data[chunk.bloom_filter_offset + 20 : chunk.bloom_filter_offset + chunk.bloom_filter_length] = bytes(
            chunk.bloom_filter_length - 20
        )
        path.write_bytes(data)
        assert rows(path, "id <> 2") == 2


class TestChangesByKey:
    """A file whose bounds a key is within is opened, and none of its rows is read without the key in its filter."""

    @pytest.mark.parametrize("enabled", [True, False])
    @pytest.mark.parametrize("change", ["upsert", "update", "delete"])
    def test_of_a_key_that_is_not_there(self, tmp_path, enabled, change):
        properties = {
            "write.parquet.bloom-filter-enabled.column.id": str(enabled).lower(),
            "write.parquet.compression-codec": "uncompressed",
            "format-version": "2",
        }
        table = Table.create(
            new_catalog(tmp_path), "db.t", schema={"id": "long", "note": "string"}, properties=properties
        )
        table.append(pa.table({"id": pa.array(range(0, 4000, 2), pa.int64()), "note": ["n"] * 2000}))
        (place,) = data_locations(table)
        path = Path(place.removeprefix("file://"))
        data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
        for leaf in range(2):
            chunk = metadata.row_group(0).column(leaf)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            data[first : first + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
        path.write_bytes(data)

        def run():
            if change == "upsert":
                new = pa.table({"id": pa.array([7], pa.int64()), "note": ["new"]})
                return table.upsert(new, ["id"]).added_records
            done = table.update({"note": "'x'"}, "id = 7") if change == "update" else table.delete("id = 7")
            return done.updated_records + done.deleted_records

        if enabled:
            assert run() == (1 if change == "upsert" else 0)
        else:
            with pytest.raises(IcebergError):
                run()


class TestForgedFilters:
    """What is no filter of the specification tells nothing: rows are read as without it."""

    HEADER = bytes.fromhex("15c0011c1c0000 1c1c0000 1c1c0000 00".replace(" ", ""))

    def read(self, data: bytes, offset: int = 4):
        return bloom_filters._read(pa.BufferReader(b"PAR1" + data), offset, most_bytes=1 << 20)

    def test_the_one_that_is_right(self):
        assert self.read(self.HEADER + bytes(96)).shape == (3, 8)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x00",
            HEADER,
            HEADER + bytes(95),  # cut off
            HEADER[:-1],
            bytes.fromhex("1500") + HEADER[3:] + bytes(96),  # without a block
            bytes.fromhex("1501") + HEADER[3:] + bytes(96),  # a negative size
            bytes.fromhex("1542") + HEADER[3:] + bytes(96),  # half a block
            bytes.fromhex("1580808080808080808001") + HEADER[3:] + bytes(96),  # beyond all limits
            HEADER.replace(b"\x1c\x1c", b"\x1c\x2c", 1) + bytes(96),  # another algorithm
            HEADER[:-1] + b"\x19\xf3\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(96),  # a list without an end
            b"\x19\xf3\xff\xff\xff\xff\xff\xff\xff\x7f" + HEADER + bytes(96),
            b"\x1c" * 64,
            b"\xff" * 200,
        ],
    )
    def test_others(self, data):
        assert self.read(data) is None

    @pytest.mark.parametrize("offset", [-1, -(1 << 63), 10**6, (1 << 63) - 1])
    def test_a_place_that_is_not_in_the_file(self, offset):
        assert self.read(self.HEADER + bytes(96), offset) is None

    @examples(100)
    @given(data=st.binary(max_size=80))
    def test_any_bytes(self, data):
        found = self.read(data)
        assert found is None or found.dtype == np.dtype("<u4")

    def test_one_that_is_larger_than_the_rows(self):
        assert bloom_filters._read(pa.BufferReader(b"PAR1" + self.HEADER + bytes(96)), 4, most_bytes=95) is None

    def test_header_is_the_one_of_the_specification(self):
        assert struct.unpack("<BB", self.HEADER[:2]) == (0x15, 0xC0)
        with pytest.raises(FormatError):
            bloom_filters._header(b"\x00")
