"""What a page reads of a table is limited, whatever its manifest lists claim and however little a bomb weighs."""

import gzip
import json
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import pointer
from airflow_iceberg.catalogs.metadata_file import read_metadata
from airflow_iceberg.errors import FormatError, IcebergError, UnsupportedError
from airflow_iceberg.format.avro.container import MAGIC, Limits, read_blocks, read_header, write_container, write_long
from airflow_iceberg.format.manifests.avro import read_manifest_list, write_manifest_list
from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.inventory.limited import LimitedFileIO, ReadLimits, limits_of
from airflow_iceberg.inventory.manifests import read_columns, read_entries, read_manifests
from airflow_iceberg.scan import counted_files
from airflow_iceberg.scan.counted_files import changed_files, count_files
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.gate import Gate
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.memory import MemoryCatalog, MemoryFileIO

MANY = 20
OPTIONS = {"small_below": 1 << 20, "min_small_files": 3, "most_partitions": 10}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = new_table(tmp_path, schema={"id": "long", "p": "long"}, partition_by=["p"])
    made.append(pa.table({"id": list(range(MANY)), "p": list(range(MANY))}))
    return made


def small(**limits: int) -> Limits:
    return Limits(**{"most_bytes": 1 << 30, "most_block_bytes": 1 << 30, "most_records": 1 << 30, **limits})


def listed(table: Table, **told: Any) -> ManifestFile:
    """Make the only manifest of a table say something else of itself, and return its row."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.manifest_list is not None
    (row,) = read_manifests(table.io, snapshot)
    forged = replace(row, **told)
    data = write_manifest_list(
        [forged],
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=None,
        sequence_number=snapshot.sequence_number,
        format_version=2,
    )
    Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(data)
    return forged


def bomb(data: bytes, size: int, blocks: int = 1) -> bytes:
    """Return a container like another one, with blocks that decompress to so many bytes each."""
    header = read_header(data)
    packed = zlib.compress(bytes(size), 9, wbits=-15)
    metadata = {**header.metadata, "avro.codec": b"deflate"}
    made = bytearray(MAGIC + write_long(len(metadata)))
    for key, value in metadata.items():
        made += write_long(len(key)) + key.encode() + write_long(len(value)) + value
    made += write_long(0) + header.sync
    return bytes(made) + (write_long(1) + write_long(len(packed)) + packed + header.sync) * blocks


class TestAManifestThatLiesAboutItsSize:
    """Its row says a few bytes and files; the file has more."""

    def test_bytes_that_are_stored(self, table):
        row = listed(table, manifest_length=1)
        io = LimitedFileIO(table.io, ReadLimits(file_bytes=1_000))
        with pytest.raises(UnsupportedError, match="has more than 1000 bytes, which are not read here"):
            list(read_entries(io, row))

    def test_no_more_of_a_file_is_asked_for(self):
        asked: list[int | None] = []

        class Endless(MemoryFileIO):
            def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
                asked.append(length)
                return bytes(length or 0)

        io = LimitedFileIO(Endless(), ReadLimits(file_bytes=10, metadata_bytes=20))
        for name in ("memory://b/m.avro", "memory://b/v1.metadata.json", "memory://b/v1.gz.metadata.json"):
            with pytest.raises(UnsupportedError):
                io.read(name)
        assert asked == [11, 21, 21]
        assert len(io.read("memory://b/m.avro", length=7)) == 7

    @pytest.mark.parametrize("most", [{"most_records": MANY - 1}, {"most_bytes": 1_000}], ids=str)
    def test_entries_and_bytes_that_are_decompressed(self, table, most):
        row = listed(table, manifest_length=1, added_files_count=1, existing_files_count=0, deleted_files_count=0)
        io = LimitedFileIO(table.io, ReadLimits(manifest=small(**most)))
        with pytest.raises(FormatError):
            list(read_entries(io, row))
        with pytest.raises(FormatError):
            list(read_columns(io, [row]))

    def test_blocks_whose_records_would_become_objects(self, table):
        row = listed(table)
        with pytest.raises(FormatError, match="unexpected block of"):
            list(read_entries(LimitedFileIO(table.io, ReadLimits(manifest=small(most_block_bytes=100))), row))

    def test_files_are_counted_as_far_as_the_list_says(self, table):
        listed(table, manifest_length=1, added_files_count=3, existing_files_count=0, deleted_files_count=0)
        io = LimitedFileIO(table.io)
        found = count_files(table.metadata, io, table.current_snapshot(), **OPTIONS, most_entries=3)
        assert (found.total.data_files, found.partition_count, found.is_cut, found.has_more) == (3, 3, True, True)
        honest = count_files(table.metadata, io, table.current_snapshot(), **OPTIONS)
        assert (honest.total.data_files, honest.is_cut) == (MANY, False)

    def test_those_that_say_that_they_are_large_are_left_out(self, table):
        listed(table, manifest_length=1 << 40)
        for io in (table.io, LimitedFileIO(table.io)):
            found = count_files(table.metadata, io, table.current_snapshot(), **OPTIONS)
            assert (found.manifests, found.manifests_read, found.is_cut) == (1, 0, True)
            assert changed_files(table.metadata, io, table.current_snapshot(), most=10) == ((), True)


def test_more_manifests_than_a_page_asks_a_store_for(table, monkeypatch):
    monkeypatch.setattr(counted_files, "MOST_MANIFESTS", 2)
    for number in range(3):
        table.append(pa.table({"id": [number], "p": [number]}))
    found = count_files(table.metadata, table.io, table.current_snapshot(), **OPTIONS)
    assert (found.manifests, found.manifests_read, found.total.data_files) == (4, 2, 2)


class TestBombs:
    """A few bytes decompress to gigabytes: memory is that of the limits."""

    SIZE, BLOCKS = 16 << 20, 24

    @pytest.mark.parametrize("part", ["manifest", "manifest_list"])
    def test_many_blocks_each_of_which_is_small_enough(self, table, part):
        row, snapshot = listed(table), table.current_snapshot()
        path = Path((row.manifest_path if part == "manifest" else snapshot.manifest_list).removeprefix("file://"))
        path.write_bytes(bomb(path.read_bytes(), self.SIZE, self.BLOCKS))
        limits = small(most_bytes=self.SIZE * 2, most_block_bytes=self.SIZE)
        io = LimitedFileIO(table.io, ReadLimits(**{part: limits}))
        tracemalloc.start()
        try:
            with pytest.raises(IcebergError):
                count_files(table.metadata, io, table.current_snapshot(), **OPTIONS)
            with pytest.raises(IcebergError):
                changed_files(table.metadata, io, table.current_snapshot(), most=1)
            assert tracemalloc.get_traced_memory()[1] < self.SIZE * 8
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
    def test_every_codec_stops_at_the_limit(self, codec):
        data = write_container({"avro.schema": '"bytes"'}, [(1, bytes(100_000)), (1, bytes(100_000))], codec=codec)
        header = read_header(data)
        whole = list(read_blocks(data, header, limits=small(most_bytes=200_000)))
        assert [len(block) for _, block in whole] == [100_000] * 2
        for most in (199_999, 100_000, 99_999, 0):
            with pytest.raises(FormatError):
                list(read_blocks(data, header, limits=small(most_bytes=most)))

    def test_more_rows_of_a_list(self):
        row = ManifestFile(
            manifest_path="a", manifest_length=1, partition_spec_id=0, sequence_number=1, min_sequence_number=1,
            added_snapshot_id=1,
        )  # fmt: skip
        data = write_manifest_list(
            [row] * 20, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, format_version=1
        )
        assert len(read_manifest_list(data, limits=small(most_records=20))) == 20
        with pytest.raises(FormatError, match="more than 19 are not read here"):
            read_manifest_list(data, limits=small(most_records=19))

    def test_metadata_that_is_compressed_or_has_a_million_values(self, table):
        document = metadata_json.to_dict(table.metadata)
        plain = json.dumps({**document, "more": [[]] * 100_000}).encode()
        io = MemoryFileIO()
        for number, data in enumerate((gzip.compress(plain), plain)):
            name = f"memory://b/v{number}.metadata.json"
            io.create(name, data)
            assert read_metadata(io, name).table_uuid == table.metadata.table_uuid
            for most in ({"metadata_bytes": len(plain) - 1}, {"metadata_values": 100_000}):
                with pytest.raises(UnsupportedError, match=f"^{name} has more than .* not read here; expire snapshots"):
                    read_metadata(LimitedFileIO(io, ReadLimits(**most)), name)
            assert read_metadata(LimitedFileIO(io), name).snapshots == table.metadata.snapshots

    def test_a_schema_of_megabytes_is_not_remembered(self, table):
        row = listed(table)
        path = Path(row.manifest_path.removeprefix("file://"))
        header = read_header(path.read_bytes())
        long = json.dumps({**json.loads(header.metadata["avro.schema"]), "doc": "x" * (1 << 20)})
        path.write_bytes(write_container({"avro.schema": long}, [], codec="null"))
        with pytest.raises(FormatError, match="schema or partition spec of more than"):
            list(read_entries(table.io, replace(row, manifest_length=1)))


def test_the_limits_are_found_through_a_gate(tmp_path):
    inner = MemoryFileIO()
    limited = LimitedFileIO(inner)
    gated = Gate(allowed=("memory://b",)).around(limited)
    assert limits_of(gated) == limits_of(limited) == ReadLimits()
    assert limits_of(LimitedFileIO(gated)) is not None
    assert limits_of(Gate(allowed=("memory://b",)).around(inner)) is None


def test_work_that_is_given_up_ends_at_the_next_file_also_behind_the_gate_of_a_local_table(tmp_path):
    def end() -> None:
        raise TimeoutError("given up")

    (tmp_path / "a").write_bytes(b"a")
    gated = Gate(allowed=(str(tmp_path),)).around(LimitedFileIO(load_file_io({}), check=end))
    with pytest.raises(TimeoutError, match="given up"):
        gated.read(str(tmp_path / "a"))


def test_states_of_tables_with_many_snapshots_are_not_all_kept(monkeypatch):
    catalog = MemoryCatalog()
    catalog.remember_states()
    for name in ("db.a", "db.b"):
        Table.create(catalog, name, schema={"id": "long"}).append(pa.table({"id": [1]}))
    for most, is_kept in ((1, False), (2, True)):
        monkeypatch.setattr(pointer, "MOST_SNAPSHOTS", most)
        first, second = (catalog.load(name) for name in ("db.a", "db.b"))
        assert catalog.load("db.b") is second
        assert (catalog.load("db.a") is first) == is_kept


def test_the_work_of_a_late_thread_ends_at_the_next_file_of_a_local_table(tmp_path: Path) -> None:
    """The gate asks for a FileIO of its local folders: that one stops as well."""
    calls: list[int] = []
    limited = LimitedFileIO(load_file_io({}), check=lambda: calls.append(1))
    (tmp_path / "a").write_bytes(b"x")
    gated = Gate(allowed=(f"file://{tmp_path}",)).around(limited)
    assert gated.read(f"file://{tmp_path}/a") == b"x"
    assert gated.exists(f"file://{tmp_path}/a")
    assert len(calls) == 2
    assert limits_of(gated) is limited.limits
