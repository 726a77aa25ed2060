"""Manifests read as columns: the same entries as one after the other, or none of the work is done by the columns."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, IcebergError
from airflow_iceberg.format.avro.container import read_blocks, read_header, write_container
from airflow_iceberg.format.manifests import columns as manifest_columns
from airflow_iceberg.format.manifests import entries as m
from airflow_iceberg.format.manifests.arrow import EntryTables
from airflow_iceberg.format.manifests.avro import read_manifest, read_manifest_list, write_manifest
from airflow_iceberg.format.manifests.columns import EntryColumns, read_columns, unpack
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.types import NestedField
from tests.support import golden
from tests.support import strategies as given_values
from tests.support.sampling import examples

SCHEMA = schema_from_shorthand({"id": "long"})
UNPARTITIONED = PartitionSpec(0, ())
FORMATS = ("orc", "parquet", "avro")


def manifest_row(data: bytes, **more: Any) -> m.ManifestFile:
    """The row of a manifest whose counts are not known, as in v1."""
    values = {"manifest_path": "m.avro", "manifest_length": len(data), "partition_spec_id": 0, "added_snapshot_id": 77}
    return m.ManifestFile(**{**values, "sequence_number": 5, "min_sequence_number": 1, **more})


def as_columns(manifests: Sequence[tuple[bytes, m.ManifestFile]], **wanted: Any) -> list[m.ManifestEntry]:
    """Read manifests as columns and make objects of all entries."""
    found: list[m.ManifestEntry] = []
    for part in read_columns((unpack(data, manifest) for data, manifest in manifests), **wanted):
        found += part.entries(np.arange(len(part))) if isinstance(part, EntryColumns) else part[1]
    return found


def one_by_one(manifests: Sequence[tuple[bytes, m.ManifestFile]]) -> list[m.ManifestEntry]:
    return [entry for data, manifest in manifests for entry in read_manifest(data, manifest=manifest)]


def outcome(read: Any, *arguments: Any) -> Any:
    """What reading gives: entries, or the words of an error."""
    try:
        return list(read(*arguments))
    except IcebergError as error:
        return type(error), str(error)


def is_columnar(data: bytes, manifest: m.ManifestFile) -> bool:
    (part,) = read_columns([unpack(data, manifest)])
    return isinstance(part, EntryColumns)


def data_file(number: int, **more: Any) -> m.DataFile:
    values = {
        "file_path": f"s3://b/ä-{number}",
        "file_format": "parquet",
        "record_count": 7,
        "file_size_in_bytes": 1000,
    }
    return m.DataFile(**{**values, **more})


def added(file: m.DataFile) -> m.ManifestEntry:
    return m.ManifestEntry(status=m.EntryStatus.ADDED, data_file=file)


def write(entries: Sequence[m.ManifestEntry], **more: Any) -> bytes:
    return write_manifest(entries, **{"schema": SCHEMA, "spec": UNPARTITIONED, "format_version": 3, **more})


# --- random entries ---------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**63 - 1)
MAYBE_NUMBER = st.none() | NUMBERS
COUNTS = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), NUMBERS, max_size=4)
# What records are found by may stand anywhere.
BYTES = st.binary(max_size=9) | st.just(b"\x0ePARQUET") | st.just(b"\x06ORC")
BOUNDS = st.none() | st.dictionaries(st.integers(1, 9), BYTES, max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.just("\x0ePARQUET")


@st.composite
def files(draw: st.DrawFn, types: Sequence[Any]) -> m.DataFile:
    content = draw(st.sampled_from(m.FileContent))
    return m.DataFile(
        content=content, file_path=draw(TEXTS),
        file_format=draw(st.sampled_from(["parquet", "parquet", "orc", "avro", "puffin"])),
        partition=tuple(draw(st.none() | given_values.values(kind)) for kind in types), record_count=draw(NUMBERS),
        file_size_in_bytes=draw(NUMBERS),
        **{name: draw(COUNTS) for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")},
        **{name: draw(BOUNDS) for name in ("lower_bounds", "upper_bounds")}, key_metadata=draw(st.none() | BYTES),
        split_offsets=draw(st.none() | st.lists(NUMBERS, max_size=3).map(tuple)),
        equality_ids=draw(st.none() | st.lists(st.integers(1, 2**31 - 1), max_size=3).map(tuple)),
        sort_order_id=draw(st.none() | st.integers(0, 2**31 - 1)), first_row_id=draw(st.none() | st.integers(0, 2**40)),
        referenced_data_file=draw(st.none() | TEXTS), content_offset=draw(MAYBE_NUMBER),
        content_size_in_bytes=draw(MAYBE_NUMBER),
    )  # fmt: skip


@st.composite
def manifests(draw: st.DrawFn) -> tuple[bytes, m.ManifestFile]:
    types = draw(st.lists(given_values.primitive_types(), max_size=3))
    columns = tuple(NestedField(id=i + 1, name=f"c{i}", type=kind) for i, kind in enumerate(types))
    fields = (
        PartitionField(source_id=i + 1, field_id=1000 + i, name=f"c{i}", transform=IdentityTransform())
        for i in range(len(types))
    )
    content = draw(st.sampled_from(m.ManifestContent))
    entries = []
    for file in draw(st.lists(files(types), max_size=8)):
        if (file.content is m.FileContent.DATA) is not (content is m.ManifestContent.DATA):
            file = replace(file, content=m.FileContent.DATA if content is m.ManifestContent.DATA else m.FileContent(1))
        status = draw(st.sampled_from(m.EntryStatus))
        is_explicit = status is not m.EntryStatus.ADDED
        numbers = [draw(NUMBERS) if is_explicit or draw(st.booleans()) else None for _ in range(3)]
        names = ("snapshot_id", "sequence_number", "file_sequence_number")
        entries.append(m.ManifestEntry(status=status, data_file=file, **dict(zip(names, numbers, strict=True))))
    version = draw(st.sampled_from([2, 3]))
    codec = draw(st.sampled_from(["null", "deflate"]))
    spec = PartitionSpec(0, tuple(fields))
    data = write_manifest(
        entries, schema=Schema(columns), spec=spec, format_version=version, content=content, codec=codec
    )
    row_id = draw(st.none() | st.integers(0, 2**40))
    return data, manifest_row(data, content=content, first_row_id=row_id)


class TestAnyManifest:
    """Whatever stands in a manifest, its entries are those that reading one after the other gives."""

    @pytest.mark.costly
    @examples(60)
    @given(st.lists(manifests(), min_size=1, max_size=3), st.booleans())
    def test_entries_are_the_same(self, given_manifests: list[tuple[bytes, m.ManifestFile]], lists: bool) -> None:
        wanted = {"lists": lists, "keys": (1, 2)}
        assert repr(as_columns(given_manifests, **wanted)).replace("ColumnDataFile", "DataFile") == repr(
            one_by_one(given_manifests)
        )

    def test_counts_that_lead_row_ids_beyond_a_long(self) -> None:
        data = write([added(data_file(number, record_count=count)) for number, count in enumerate((2**63 - 1, 5, 7))])
        row = manifest_row(data, first_row_id=3)
        assert not is_columnar(data, row)
        for read in (as_columns, one_by_one):
            assert [entry.data_file.first_row_id for entry in read([(data, row)])] == [3, 2**63 + 2, 2**63 + 7]

    @pytest.mark.costly
    @examples(60)
    @given(manifests(), st.data())
    def test_a_damaged_one_gives_the_same_or_the_same_error(self, manifest, data):
        original, row = manifest
        broken = bytearray(original)
        for _ in range(data.draw(st.integers(1, 3))):
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        given_manifest = [(bytes(broken), row)]
        assert repr(outcome(as_columns, given_manifest)).replace("ColumnDataFile", "DataFile") == repr(
            outcome(one_by_one, given_manifest)
        )


class TestTheReferenceTables:
    """All manifests of Iceberg Java's are read as columns, and hold what reading one after the other finds."""

    @pytest.mark.parametrize("name", [name for name, table in golden.tables().items() if not table.is_refused])
    def test_they_are_the_same(self, name: str) -> None:
        table = golden.table(name)
        metadata = metadata_json.read(table.io.read(table.metadata_location))
        tables = EntryTables(metadata)
        for listed in self.manifests(table, metadata):
            assert as_columns(listed) == one_by_one(listed)
            for part in read_columns(
                (unpack(data, manifest) for data, manifest in listed), lists=True, keys=tables.metric_ids
            ):
                assert isinstance(part, EntryColumns)
                found = tables.of_columns(part)
                found.validate(full=True)
                assert found.equals(tables.of_entries(part.entries(np.arange(len(part)))))

    def manifests(self, table: Any, metadata: TableMetadata) -> Iterator[list[tuple[bytes, m.ManifestFile]]]:
        for snapshot in metadata.snapshots:
            rows = read_manifest_list(table.io.read(snapshot.manifest_list)) if snapshot.manifest_list else ()
            yield [(table.io.read(row.manifest_path), row) for row in rows]


class TestFindingTheRecords:
    """Records are found by their file format, and the guess is proved; nothing depends on what else stands in them."""

    ENTRIES = tuple(added(data_file(number, lower_bounds={1: b"\x0ePARQUET" * 3})) for number in range(50))

    @pytest.mark.parametrize("entries", [
        pytest.param(ENTRIES, id="the same bytes elsewhere"),
        pytest.param([added(data_file(i, file_format=FORMATS[i % 3])) for i in range(9)], id="mixed formats"),
        pytest.param(
            [added(data_file(i, value_counts=dict.fromkeys(range(i % 7), i))) for i in range(40)],
            id="maps of all sizes",
        ),
    ])  # fmt: skip
    def test_unusual_entries_are_read_as_columns(self, entries: Sequence[m.ManifestEntry]) -> None:
        data = write(entries)
        assert is_columnar(data, manifest_row(data))
        found = as_columns([(data, manifest_row(data))])
        assert found == one_by_one([(data, manifest_row(data))])
        assert [entry.data_file for entry in found] == [entry.data_file for entry in entries]

    def test_a_block_may_hold_one_entry(self) -> None:
        """As PyIceberg writes them."""
        blocks = [list(self.blocks([entry])) for entry in self.ENTRIES]
        header = read_header(write(()))
        metadata = {key: value.decode() for key, value in header.metadata.items() if key != "avro.codec"}
        data = write_container(metadata, [block for (block,) in blocks], codec="null")
        assert is_columnar(data, manifest_row(data))
        assert len(as_columns([(data, manifest_row(data))])) == len(self.ENTRIES)

    def blocks(self, entries: Sequence[m.ManifestEntry]) -> Iterator[tuple[int, bytes]]:
        data = write(entries)
        return read_blocks(data, read_header(data))

    def test_an_empty_manifest_has_no_entries(self) -> None:
        data = write(())
        assert as_columns([(data, manifest_row(data))]) == []

    def test_many_manifests_come_in_their_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifest_columns, "PORTION_BYTES", 2000)
        listed = []
        for number in range(20):
            data = write([added(data_file(number * 100 + i)) for i in range(number)])
            listed.append((data, manifest_row(data, added_snapshot_id=number)))
        assert as_columns(listed) == one_by_one(listed)


class TestATornFile:
    """It is never a shorter one."""

    def manifest(self, codec: str) -> tuple[bytes, m.ManifestFile]:
        entries = [added(data_file(i, lower_bounds={1: b"x" * 900})) for i in range(200)]
        data = write(entries, codec=codec)
        counts = {"added_files_count": 200, "existing_files_count": 0, "deleted_files_count": 0}
        return data, manifest_row(data, **counts)

    @pytest.mark.parametrize("codec", ["null", "deflate"])
    def test_one_that_is_cut_is_found_out(self, codec: str) -> None:
        data, manifest = self.manifest(codec)
        chance = random.Random(5)
        for length in [0, 3, *(chance.randrange(len(data)) for _ in range(40)), len(data) - 1]:
            with pytest.raises(FormatError) as error:
                as_columns([(data[:length], replace(manifest, manifest_length=0))])
            assert error.value.path == "m.avro"

    def test_one_that_lacks_a_block_is_found_out_by_the_number_of_entries(self) -> None:
        data, manifest = self.manifest("null")
        header = read_header(data)
        metadata = {key: value.decode() for key, value in header.metadata.items() if key != "avro.codec"}
        first, *rest = read_blocks(data, header)
        assert rest
        cut = write_container(metadata, [first], codec="null")
        with pytest.raises(FormatError, match=rf"unexpected number of entries {first[0]} .expected 200."):
            as_columns([(cut, replace(manifest, manifest_length=0))])

    def test_a_sound_one_beside_it_is_read_all_the_same(self) -> None:
        data, manifest = self.manifest("null")
        bad = unpack(data.replace(b"PARQUET", b"P\xffRQUET"), replace(manifest, manifest_path="other.avro"))
        sound, damaged = read_columns([unpack(data, manifest), bad])
        assert isinstance(sound, EntryColumns)
        assert len(sound) == 200
        assert isinstance(damaged, tuple)
        with pytest.raises(FormatError, match=r"other\.avro"):
            list(damaged[1])


class TestAFileFromColumns:
    """It is a data file like any other."""

    def file(self) -> m.DataFile:
        data = write([added(data_file(1, value_counts={1: 7}, split_offsets=(4,)))])
        (entry,) = as_columns([(data, manifest_row(data))])
        return entry.data_file

    def test_it_is_compared_replaced_and_pickled_as_a_whole(self) -> None:
        written = data_file(1, value_counts={1: 7}, split_offsets=(4,))
        assert self.file() == written
        assert written == self.file()
        assert self.file() != replace(written, record_count=8)
        import pickle

        assert replace(self.file(), record_count=8).value_counts == {1: 7}
        assert pickle.loads(pickle.dumps(self.file())) == self.file()

    def test_without_statistics_it_holds_none_and_no_other_attributes(self) -> None:
        file = self.file()
        assert file.without_statistics() == data_file(1, split_offsets=(4,))
        with pytest.raises(AttributeError):
            m.DataFile.value_counts.__get__(file)  # type: ignore[attr-defined]
        assert file.value_counts == {1: 7}
        with pytest.raises(AttributeError, match="no attribute 'rows'"):
            self.file().rows  # type: ignore[attr-defined]  # noqa: B018


class TestReadableMetrics:
    """Statistics of the table's columns by their names, bounds as values."""

    def test_bounds_of_before_a_promotion_are_read(self) -> None:
        schema = schema_from_shorthand({"id": "long", "x": "double", "t": "string"})
        bounds = {1: b"\x05\x00\x00\x00", 2: b"\x00\x00\x80\x3f", 3: b"\xff\xfe"}
        data = write([added(data_file(1, lower_bounds=bounds, value_counts={1: 3}))], schema=schema)
        metrics = self.metrics(schema, data)
        assert (metrics["id"]["lower_bound"], metrics["id"]["value_count"], metrics["x"]["lower_bound"]) == (5, 3, 1.0)
        assert metrics["t"]["lower_bound"] is metrics["t"]["upper_bound"] is None  # not UTF-8

    def metrics(self, schema: Schema, data: bytes) -> Any:
        metadata = new_table_metadata(location="file:///t", schema=schema, table_uuid=str(UUID(int=0)), now_ms=0)
        tables = EntryTables(metadata)
        (part,) = read_columns([unpack(data, manifest_row(data))], lists=True, keys=tables.metric_ids)
        assert isinstance(part, EntryColumns)
        found: pa.Table = tables.of_columns(part)
        return found["readable_metrics"][0].as_py()
