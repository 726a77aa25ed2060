"""What a few bytes of a data file may become in memory: a file of which no portion is small is refused.

With a limit of some MB, so that bombs may be small. In processes of their own, and with the default limit:
`test_bombs.py`.
"""

import json
import random
import string
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.data.limits.memory import DEFAULT_BYTES, SETTING, memory_limit
from airflow_iceberg.data.limits.parquet import file as parquet_file
from airflow_iceberg.data.limits.parquet.file import LimitedParquet
from airflow_iceberg.data.read.deletes import DeleteReader
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.format.avro.container import write_container, write_long
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.sources import files
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.storage.gate import Gate
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support import hostile_parquet as hostile
from tests.support.data_files import read_file

MB = 1 << 20
LIMIT = 4 * MB
BECOMES = 64 * MB
IO = FsspecFileIO({SETTING: str(LIMIT // MB)})
LONG, TEXT, LONGS, TEXTS = (
    schema_from_shorthand({"a": kind}) for kind in ("long", "string", "list<long>", "list<string>")
)


def described(path: Path, file_format: str = "parquet", rows: int = 1, **more: Any) -> DataFile:
    size = path.stat().st_size
    return DataFile(file_path=str(path), file_format=file_format, record_count=rows, file_size_in_bytes=size, **more)


def sizes(path: Path, schema: Schema, io: FsspecFileIO = IO, file_format: str = "parquet") -> Iterator[int]:
    """Yield the memory of each batch of a file of a table."""
    return (batch.nbytes for batch in read_file(io, described(path, file_format), schema=schema))


def source_sizes(path: Path, schema: Schema, io: FsspecFileIO = IO, file_format: str = "parquet") -> Iterator[int]:
    """Yield the memory of each batch of a file of rows."""
    unit = Unit(location=str(path), file_format=file_format, size_bytes=path.stat().st_size)
    return (table.nbytes for table in files.read_unit(unit, io, schema=schema, options={}))


READERS = {"of a table": sizes, "a source": source_sizes}


def outcomes(path: Path, schema: Schema, file_format: str = "parquet") -> dict[str, str]:
    """Return what each reader does with a file: "read" in small batches, or refused with an error that says enough."""
    found = {}
    for name, reader in READERS.items():
        try:
            largest = max(reader(path, schema, file_format=file_format))
            found[name] = "read" if largest <= LIMIT else f"batch of {largest} bytes"
        except FormatError as error:
            is_clear = SETTING in str(error) and error.path == str(path) and f"more than {LIMIT // MB}" in str(error)
            found[name] = "refused" if is_clear else f"{error.path}: {error}"
        except (pa.ArrowException, OSError, MemoryError, IcebergError) as error:
            found[name] = repr(error)
    return found


class TestParquet:
    SCHEMAS = {"list of": LONGS, "text for all items": TEXTS, "text": TEXT}
    # These are read row by row.
    READ = ("a text for all rows",)

    def test_bombs(self, tmp_path):
        found, expected = {}, {}
        for name, (columns, rows, options) in hostile.bombs(BECOMES).items():
            path = hostile.write(tmp_path / f"{name}.parquet", columns, rows, **options)
            assert path.stat().st_size < MB, name
            schema = next((kind for part, kind in self.SCHEMAS.items() if part in name), LONG)
            if len(columns) > 1:
                schema = schema_from_shorthand({column.name: "long" for column in columns})
            if name == "nulls of wide values":
                schema = schema_from_shorthand({"a": f"fixed[{columns[0].length}]"})
            found[name] = outcomes(path, schema)
            expected[name] = dict.fromkeys(READERS, "read" if name in self.READ else "refused")
        assert found == expected

    @pytest.mark.costly
    def test_a_footer_of_very_many_column_chunks(self, tmp_path):
        chunk = {2: 4}
        for name, footer in {
            "chunks": {1: hostile.Small(1), 2: [{4: b"r"}], 3: 1, 4: [{1: [chunk] * 1000, 2: 1, 3: 1}] * 10},
            "columns": {1: hostile.Small(1), 2: [{4: b"r"}] * 20_000, 3: 1, 4: [{1: [], 2: 1, 3: 1}]},
            "row groups": {1: hostile.Small(1), 2: [{4: b"r"}], 3: 1, 4: [{1: [], 2: 1, 3: 1}] * 200_000},
            "properties": {1: hostile.Small(1), 2: [{4: b"r"}], 3: 1, 4: [], 5: [{1: b""}] * 400_000},
        }.items():
            data = hostile.struct(footer)
            path = tmp_path / f"{name}.parquet"
            path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
            assert outcomes(path, LONG) == dict.fromkeys(READERS, "refused"), name

    def test_a_page_that_says_that_it_is_smaller_than_it_is(self, tmp_path):
        """Arrow holds a page to its header."""
        unit = bytes(BECOMES)
        packed = hostile.packed("zstd", unit)
        inner = {1: hostile.Small(1024), 2: hostile.Small(0), 3: hostile.Small(3), 4: hostile.Small(3)}
        head = {1: hostile.Small(0), 2: hostile.Small(8 * 1024), 3: hostile.Small(len(packed)), 5: inner}
        column = hostile.Bomb(kind=hostile.INT64, pages=hostile.struct(head) + packed, values=1024)
        path = hostile.write(tmp_path / "a.parquet", [column], 1024)
        for reader in READERS.values():
            before = pa.total_allocated_bytes()
            with pytest.raises(FormatError):
                list(reader(path, LONG))
            assert pa.total_allocated_bytes() - before < MB

    def test_headers_that_two_readers_read_differently(self, tmp_path):
        """A field of an unknown type, the end of a struct with other bits, ids that are written out, a second size."""
        unit = bytes(BECOMES)
        packed = hostile.packed("zstd", unit)
        counts = hostile.struct({n: hostile.Small(v) for n, v in {1: BECOMES // 8, 2: 0, 3: 3, 4: 3}.items()})
        size, stored = hostile.zigzag(BECOMES), hostile.zigzag(len(packed))
        heads = {
            "ids that are written out": b"\x05\x02\x00"
            b"\x05\x04" + size + b"\x05\x06" + stored + b"\x0c\x0a" + counts + b"\0",
            "a second size": b"\x15\0\x15"
            + hostile.zigzag(8)
            + b"\x05\x04"
            + size
            + b"\x15"
            + stored
            + b"\x2c"
            + counts
            + b"\0",
            "a size of 64 bits before": b"\x15\0\x16"
            + hostile.zigzag(8)
            + b"\x05\x04"
            + size
            + b"\x15"
            + stored
            + b"\x2c"
            + counts
            + b"\0",
            "another end": b"\x15\0\x15" + size + b"\x15" + stored + b"\x2c" + counts[:-1] + b"\x30" + b"\xf0",
            "33 bits": b"\x15\0\x15"
            + hostile.varint((BECOMES << 1) + (1 << 32))
            + b"\x15"
            + stored
            + b"\x2c"
            + counts
            + b"\0",
        }
        found = {}
        for name, head in heads.items():
            column = hostile.Bomb(kind=hostile.INT64, pages=head + packed, values=BECOMES // 8)
            path = hostile.write(tmp_path / f"{name}.parquet", [column], BECOMES // 8)
            # Arrow reads all of them.
            assert pq.ParquetFile(path).metadata.num_rows == BECOMES // 8
            found[name] = outcomes(path, LONG)
        assert found == dict.fromkeys(heads, dict.fromkeys(READERS, "refused"))


class TestOrdinaryFiles:
    """All rows are read, and the same ones, however few at a time."""

    OPTIONS: tuple[dict[str, Any], ...] = (
        {},
        {"compression": "snappy", "data_page_version": "2.0"},
        {"compression": "none", "use_dictionary": False},
        {"compression": "gzip", "row_group_size": 7000},
        {"compression": "brotli", "use_dictionary": ["s", "l.list.element"]},
        {"compression": "lz4", "use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}},
        {"compression": "zstd", "use_dictionary": False, "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY"}},
    )

    def table(self, seed: int) -> pa.Table:
        dice, count = random.Random(seed), 20_000
        words = ["".join(dice.choices(string.ascii_letters, k=dice.choice((3, 30, 300)))) for _ in range(200)]
        texts = [dice.choice([None, *words]) for _ in range(count)]
        lists = [None if not n % 7 else dice.choices(words, k=dice.choice((0, 1, 9))) for n in range(count)]
        deep = [[{"k": [n, None]}] * (n % 4) for n in range(count)]
        return pa.table(
            {"i": range(count), "s": texts, "l": lists, "d": deep, "b": [t and t.encode() * 9 for t in texts]}
        )

    @pytest.mark.costly
    @pytest.mark.parametrize("number", range(len(OPTIONS)))
    def test_portions(self, tmp_path, number):
        table, path = self.table(number), tmp_path / "a.parquet"
        pq.write_table(table, path, data_page_size=4096, dictionary_pagesize_limit=1 << 15, **self.OPTIONS[number])
        with pa.OSFile(str(path)) as handle:
            file = LimitedParquet(handle, replace(memory_limit(IO, str(path)), most_bytes=3 * MB))
            batches = [b for group in range(file.parquet.num_row_groups) for b in file.batches(group, 100_000)]
        assert len(batches) > 5
        assert pa.Table.from_batches(batches).equals(table)
        assert max(batch.nbytes for batch in batches) < 4 * MB

    @pytest.mark.costly
    def test_small_portions_are_joined(self, tmp_path, monkeypatch):
        """One long text in a dictionary costs portions of few rows, and no batches of few rows."""
        texts = ["x" * 400_000, *(["short"] * 40_000)]
        pq.write_table(pa.table({"a": texts}, schema=schema_to_arrow(TEXT)), tmp_path / "a.parquet")
        monkeypatch.setattr(parquet_file, "_JOINED_ROWS", 10_000)
        found = [batch.num_rows for batch in read_file(IO, described(tmp_path / "a.parquet"), schema=TEXT)]
        assert sum(found) == 40_001
        assert len(found) < 8

    @pytest.mark.costly
    def test_bytes_that_are_really_there_are_no_bomb(self, tmp_path):
        """A page that is larger than the limit, and a list that is, of bytes that hardly shrink."""
        dice = random.Random(1)
        texts = [dice.randbytes(6 * MB).hex()]
        table = pa.table({"a": texts}, schema=schema_to_arrow(TEXT))
        pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
        batches = read_file(IO, described(tmp_path / "a.parquet"), schema=TEXT)
        assert [batch.column(0).to_pylist() for batch in batches] == [texts]
        rows = pa.table({"a": [list(range(n, n + 1000)) for n in range(2_000)]}, schema=schema_to_arrow(LONGS))
        pq.write_table(rows, tmp_path / "b.parquet", use_dictionary=False)
        found = [batch.num_rows for batch in read_file(IO, described(tmp_path / "b.parquet"), schema=LONGS)]
        assert sum(found) == 2_000
        assert len(found) > 2

    def test_remote_files_are_fetched_once(self, tmp_path):
        table = self.table(1)
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, row_group_size=5000)
        handle = _Recorded(path)
        file = LimitedParquet(handle, memory_limit(IO, str(path)))
        batches = [b for group in range(4) for b in file.batches(group, 100_000, [0, 1])]
        assert pa.Table.from_batches(batches).equals(table.select(["i", "s"]))
        # The end, and once for each row group.
        assert len(handle.reads) == 5

    def test_the_rest_of_a_file_is_not_asked_for(self, tmp_path):
        """A footer may say any number of rows of nothing; and positions are looked up without making a mask of it."""
        column = hostile.Bomb(
            kind=hostile.INT64,
            pages=hostile.page("zstd", hostile.levels(hostile.run(0, 1 << 40)), 4),
            values=4,
            is_required=False,
        )
        path = hostile.write(tmp_path / "a.parquet", [column], 1 << 40)
        batches = read_file(IO, described(path), schema=Schema(), table_schema=LONG, positions=RowPositions.of([5]))
        assert next(batches).num_rows == 1


class _Recorded:
    """A file of fsspec that records its reads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.reads: list[int] = []
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        self.reads.append(size)
        return self._file.read(size)

    def seek(self, *where: int) -> int:
        return self._file.seek(*where)

    def tell(self) -> int:
        return self._file.tell()


class TestTheSetting:
    def test_it_reaches_the_readers_of_a_table(self):
        assert memory_limit(FsspecFileIO(), "a").most_bytes == DEFAULT_BYTES
        assert memory_limit(Gate(allowed=("file:///a",)).around(IO), "a").most_bytes == LIMIT

    @pytest.mark.parametrize("value", ["x", "-1", "0", "1e9", "12 GB", "9" * 30, "\u0661\u0662"])
    def test_it_is_a_number_of_megabytes(self, value):
        with pytest.raises(InvalidInputError, match=rf"{SETTING} is .*expected a number of megabytes"):
            memory_limit(FsspecFileIO({SETTING: value}), "a")


class TestAvro:
    RECORD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long", "field-id": 1}]}

    def write(self, path: Path, field: Any, count: int, block: bytes, codec: str = "deflate", **more: Any) -> Path:
        record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": field, "field-id": 1}]}
        record["fields"] += more.get("fields", [])
        path.write_bytes(write_container({"avro.schema": json.dumps(record)}, [(count, block)], codec=codec))
        return path

    @pytest.mark.costly
    def test_bombs(self, tmp_path):
        count = 200_000
        item = {"type": "record", "name": "i", "fields": [{"name": "k", "type": "int", "field-id": 3}]}
        items = {"type": "array", "items": item, "element-id": 2}
        enum = {"type": "enum", "name": "e", "symbols": ["x" * 20_000]}
        listed = bytes(write_long(count)) + bytes(count) + b"\0"
        idle = [{"name": f"n{n}", "type": "null", "field-id": 10 + n} for n in range(900)]
        cases = {
            "a list of records": ("refused", items, 1, listed, {}),
            "records": ("read", "long", count, bytes(count), {}),
            "records of nothing else": ("read", "long", 3_000, bytes(3_000), {"fields": idle}),
            "a long symbol": ("read", enum, 500, bytes(500), {}),
            "symbols": (
                "refused",
                {"type": "array", "items": enum, "element-id": 2},
                1,
                bytes(write_long(500)) + bytes(501),
                {},
            ),
        }
        found = {}
        for name, (_, kind, rows, block, more) in cases.items():
            path = self.write(tmp_path / f"{name}.avro", kind, rows, block, **more)
            wanted = schema_from_shorthand({"a": "list<struct<k: int>>"}) if kind is items else LONG
            if "symbol" in name:
                wanted = TEXTS if name == "symbols" else TEXT
            found[name] = outcomes(path, wanted, "avro")
        assert found == {name: dict.fromkeys(READERS, case[0]) for name, case in cases.items()}

    def test_portions(self, tmp_path):
        """Rows are the same, however few of a block are read at once."""
        rows = [
            {"a": n, "l": [{"k": k} for k in range(n % 5)], "m": {"x": n}, "s": None if n % 3 else "text" * n}
            for n in range(500)
        ]
        fields = [
            {"name": "a", "type": "long", "field-id": 1},
            {
                "name": "l",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "i", "fields": [{"name": "k", "type": "int"}]},
                },
            },
            {"name": "m", "type": {"type": "map", "values": "long"}},
            {"name": "s", "type": ["null", "string"]},
        ]
        import fastavro

        path = tmp_path / "a.avro"
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows * 8, sync_interval=10 * MB)
        batches = list(read_file(IO, described(path, "avro"), schema=LONG))
        assert [row["a"] for batch in batches for row in batch.to_pylist()] == [row["a"] for row in rows * 8]
        assert len(batches) > 1

    def test_a_long_schema(self, tmp_path):
        path = self.write(tmp_path / "a.avro", "long", 1, b"\2", fields=[{"name": "b" * MB, "type": "null"}])
        assert outcomes(path, LONG, "avro") == dict.fromkeys(READERS, "refused")


class TestOrc:
    def write(self, path: Path, table: pa.Table, **options: Any) -> Path:
        orc.write_table(table, path, compression="zstd", **options)
        return path

    @pytest.mark.costly
    def test_bombs(self, tmp_path):
        count = BECOMES // 8
        tables = {
            "equal numbers": ("read", pa.table({"a": pa.array([7], pa.int64()).take(pa.array([0] * count))})),
            "a text for all rows": ("read", pa.table({"a": ["x" * 100_000] * 200})),
            "lists": ("refused", pa.table({"a": [[7] * count]})),
        }
        found = {}
        for name, (_, table) in tables.items():
            path = self.write(tmp_path / f"{name}.orc", table, dictionary_key_size_threshold=1.0, stripe_size=BECOMES)
            assert path.stat().st_size < MB
            found[name] = outcomes(path, TEXT, "orc")["a source"]
        assert found == {name: case[0] for name, case in tables.items()}


class TestDeletes:
    """What is kept of delete files is limited, too: their rows are read in portions, and kept together."""

    def reader(self) -> DeleteReader:
        return DeleteReader(IO, schemas=(TEXT,))

    def test_keys(self, tmp_path):
        column = hostile.with_dictionary(MB // 2, 64)
        path = hostile.write(tmp_path / "a.parquet", [column], 64)
        delete = described(path, rows=64, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        # What the table says about its size counts for nothing.
        for one in (delete, replace(delete, file_size_in_bytes=1 << 60)):
            with pytest.raises(FormatError, match=f"the keys of a delete file may take .*{SETTING}"):
                self.reader().of(described(path), [one])

    def test_positions(self, tmp_path):
        names = {
            "paths": {"file_path": [f"{n:04}" + "x" * 996 for n in range(3_000)], "pos": [0] * 3_000},
            "positions": {"file_path": ["a"] * 50_000, "pos": [n << 16 for n in range(50_000)]},
        }
        for name, columns in names.items():
            ids = (2147483546, 2147483545)
            fields = [
                pa.field(key, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
                for (key, kind), number in zip((("file_path", pa.string()), ("pos", pa.int64())), ids, strict=True)
            ]
            path = tmp_path / f"{name}.parquet"
            pq.write_table(pa.table(columns, schema=pa.schema(fields)), path, compression="zstd", use_dictionary=False)
            rows = len(columns["pos"])
            delete = described(path, rows=rows, content=FileContent.POSITION_DELETES)
            with pytest.raises(FormatError, match=f"the paths and positions of a delete file may take .*{SETTING}"):
                self.reader().of(described(path), [delete])
