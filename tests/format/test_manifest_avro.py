"""Manifests and manifest lists in Avro: what we write, what others wrote, and what is broken."""

import io
import json
import random
import zlib
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.container import read_blocks, read_header, write_container
from airflow_iceberg.format.avro.schemas import avro_name, decimal_size
from airflow_iceberg.format.manifests import blocks
from airflow_iceberg.format.manifests import entries as m
from airflow_iceberg.format.manifests.avro import (
    assign_first_row_ids,
    read_manifest,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
    written_schema,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms.transform import IdentityTransform
from tests.support import golden

UNPARTITIONED = PartitionSpec(spec_id=0, fields=())
SCHEMA = schema_from_shorthand({"id": "long", "cat": "string"})
BY_CAT = spec_from_shorthand(["cat"], SCHEMA)
FULL = m.DataFile(
    file_path="s3a://b//ä b/../x.parquet", file_format="parquet", record_count=2**40, file_size_in_bytes=3,
    column_sizes={1: 2}, value_counts={}, null_value_counts={2147483546: 0}, nan_value_counts={3: 1},
    lower_bounds={1: b""}, upper_bounds={1: b"\xff\x00"}, key_metadata=b"k", split_offsets=(4, 2**33), equality_ids=(),
    sort_order_id=0,
)  # fmt: skip


def data_file(number: int = 0, **more: object) -> m.DataFile:
    values = {"file_path": f"{number}.parquet", "file_format": "parquet", "record_count": 10, "file_size_in_bytes": 100}
    return m.DataFile(**{**values, **more})


def record_of(name: str, *types: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


def twice(depth: int) -> dict[str, object]:
    """Return a record that has two records, each of which has two, and so on."""
    last = record_of("R0")
    for number in range(1, depth):
        last = record_of(f"R{number}", last, f"R{number - 1}")
    return last


def deep(depth: int) -> object:
    last: object = "boolean"
    for number in range(depth):
        last = record_of(f"D{number}", last)
    return last


def list_of(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


_EMPTY = {"type": "fixed", "name": "F", "size": 0}
AMPLIFYING = {
    "items of nothing": [list_of("null")],
    "items of nothing, by an object": [list_of({"type": "null"})],
    "items of no bytes": [list_of(_EMPTY)],
    "items of no bytes, by their name": [_EMPTY, list_of("F")],
    "items without fields": [list_of(record_of("E"))],
    "items without fields, by a name with a namespace": [record_of("ns.R", record_of("E"), list_of("ns.E"))],
    "items without fields, by a name of two types": [
        record_of("E", "long"),
        record_of("ns.R", record_of("E"), list_of("E")),
    ],
    "items of records of nothing": [list_of(record_of("O", record_of("I", "null"), "null"))],
    "values of many nulls": [{"type": "map", "values": record_of("N", *["null"] * 50)}],
    "items of one byte and many nulls": [list_of(record_of("N", "boolean", *["null"] * 50))],
    "items of deep records": [list_of(deep(20))],
    "many nulls": ["null"] * 300,
    "doubling": [twice(60)],
    "doubling items": [list_of(twice(60))],
    "doubling in a union": [["null", twice(60)]],
    "itself": [record_of("S", ["null", "S"])],
    "itself in a list": [record_of("S", list_of("S"))],
    "itself with a namespace": [record_of("ns.S", ["null", "S"])],
}
"""Types of fields by which a few bytes become very many values."""


def added(file: m.DataFile) -> m.ManifestEntry:
    return m.ManifestEntry(status=m.EntryStatus.ADDED, snapshot_id=77, data_file=file)


def write(entries: list[m.ManifestEntry], **more: object) -> bytes:
    return write_manifest(entries, **{"schema": SCHEMA, "spec": UNPARTITIONED, "format_version": 2, **more})


def row(number: int = 0, **more: object) -> m.ManifestFile:
    values = {
        "manifest_path": f"s3://b/{number}.avro", "manifest_length": 5000, "partition_spec_id": 0, "sequence_number": 3,
        "min_sequence_number": 2, "added_snapshot_id": 77, "added_files_count": 1, "existing_files_count": 2,
        "deleted_files_count": 3, "added_rows_count": 4, "existing_rows_count": 5, "deleted_rows_count": 6,
        "partitions": (m.FieldSummary(contains_null=True, contains_nan=None, lower_bound=b"a", upper_bound=None),),
        "key_metadata": b"k",
    }  # fmt: skip
    return m.ManifestFile(**{**values, **more})


def write_list(rows: list[m.ManifestFile], **more: object) -> bytes:
    values = {"snapshot_id": 77, "parent_snapshot_id": 76, "sequence_number": 9, "format_version": 2}
    return write_manifest_list(rows, **{**values, **more})


def by_fastavro(data: bytes) -> tuple[dict[str, str], list[dict]]:
    """Read with the reader of a library, which resolves nothing by id."""
    reader = fastavro.reader(io.BytesIO(data))
    return reader.metadata, list(reader)


class TestAManifestThatWeWrite:
    """Everything in it comes back, and others can read it."""

    def test_a_full_entry_comes_back_equal(self) -> None:
        assert list(read_manifest(write([added(FULL)]))) == [added(FULL)]

    def test_the_header_holds_schema_and_spec(self) -> None:
        metadata, _ = by_fastavro(write([], spec=BY_CAT))
        assert Schema.from_dict(json.loads(metadata["schema"])) == SCHEMA
        # the fields alone, not the spec
        assert json.loads(metadata["partition-spec"]) == [
            {"name": "cat", "transform": "identity", "source-id": 2, "field-id": 1000}
        ]
        assert (metadata["schema-id"], metadata["partition-spec-id"]) == ("0", "0")
        assert (metadata["format-version"], metadata["content"]) == ("2", "data")

    def test_what_stands_in_the_file(self) -> None:
        data = write([added(data_file())])
        assert by_fastavro(data)[1][0]["data_file"]["file_format"] == "PARQUET"
        assert next(read_manifest(data)).data_file.file_format == "parquet"
        (record,) = by_fastavro(write([added(data_file())]))[1]
        assert (record["snapshot_id"], record["sequence_number"], record["file_sequence_number"]) == (77, None, None)

    def test_the_names_of_the_records_are_those_that_java_expects(self) -> None:
        schema = json.loads(by_fastavro(write([], spec=BY_CAT))[0]["avro.schema"])
        file = next(f for f in schema["fields"] if f["name"] == "data_file")
        partition = next(f for f in file["type"]["fields"] if f["name"] == "partition")
        assert (schema["name"], file["type"]["name"], partition["type"]["name"]) == ("manifest_entry", "r2", "r102")

    def test_the_same_entries_give_the_same_bytes(self) -> None:
        """The sync marker is not drawn at random: the format core has no dice."""
        assert write([added(FULL)]) == write([added(FULL)])

    @pytest.mark.costly
    def test_blocks_hold_about_64_kb_and_not_one_entry(self) -> None:
        data = write([added(data_file(i)) for i in range(10_000)])
        blocks = list(read_blocks(data, read_header(data)))
        assert sum(count for count, _ in blocks) == 10_000
        assert all(60_000 < len(block) < 70_000 for _, block in blocks[:-1])
        assert len(list(read_manifest(data))) == 10_000

    @pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
    def test_every_codec_comes_back(self, codec: str) -> None:
        data = write([added(FULL)], codec=codec)
        assert read_header(data).codec == codec
        assert list(read_manifest(data)) == [added(FULL)]

    def test_pyiceberg_reads_it(self, tmp_path: Path) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.manifest import ManifestFile as Theirs

        path = tmp_path / "m.avro"
        path.write_bytes(write([added(replace(FULL, partition=("x",)))], spec=BY_CAT))
        theirs = Theirs.from_args(
            manifest_path=str(path), manifest_length=path.stat().st_size, partition_spec_id=0, added_snapshot_id=77,
            sequence_number=9, min_sequence_number=9, content=0,
        )  # fmt: skip
        (found,) = theirs.fetch_manifest_entry(PyArrowFileIO())
        assert found.data_file.file_path == FULL.file_path
        assert found.data_file.partition[0] == "x"
        assert found.data_file.upper_bounds == {1: b"\xff\x00"}
        assert (found.sequence_number, found.snapshot_id) == (9, 77)


class TestPartitionValues:
    """A partition tuple holds canonical values, whatever Avro makes of them."""

    # The last two types need version 3.
    VALUES = (
        (t.BooleanType(), False),
        (t.IntegerType(), -(2**31)),
        (t.LongType(), 2**63 - 1),
        (t.FloatType(), float("-inf")),
        (t.DoubleType(), -0.0),
        (t.DateType(), -719_163),  # the day before year 1, which Python's date cannot hold
        (t.TimeType(), 86_399_999_999),
        (t.TimestampType(), -(2**60)),
        (t.TimestamptzType(), 2**60),
        (t.StringType(), "ä\U0001f600"),
        (t.UUIDType(), UUID(int=2**127 + 1)),
        (t.FixedType(3), b"\x00\x01\xff"),
        (t.FixedType(3), b"abc"),
        (t.BinaryType(), b""),
        (t.DecimalType(9, 2), Decimal("-9999999.99")),
        (t.DecimalType(9, 2), Decimal("0.10")),
        (t.DecimalType(38, 38), Decimal("0." + "9" * 38)),
        (t.DecimalType(38, 0), Decimal(1 - 10**38)),
        (t.DoubleType(), float("nan")),
        (t.TimestampNsType(), -1),
        (t.TimestamptzNsType(), 2**62),
    )

    def table(self, types: list[t.IcebergType], names: list[str] | None = None) -> tuple[Schema, PartitionSpec]:
        names = names or [f"c{i}" for i in range(len(types))]
        columns = tuple(t.NestedField(id=i + 1, name=names[i], type=type_) for i, type_ in enumerate(types))
        fields = (
            PartitionField(source_id=i + 1, field_id=1000 + i, name=names[i], transform=IdentityTransform())
            for i in range(len(types))
        )
        return Schema(fields=columns), PartitionSpec(spec_id=0, fields=tuple(fields))

    @pytest.mark.parametrize(("version", "count"), [(2, len(VALUES) - 2), (3, len(VALUES))])
    def test_every_type_and_null_come_back_equal(self, version: int, count: int) -> None:
        types, values = zip(*self.VALUES[:count], strict=True)
        schema, spec = self.table(list(types))
        entries = [added(data_file(partition=partition)) for partition in (values, (None,) * count)]
        data = write_manifest(entries, schema=schema, spec=spec, format_version=version)
        # a library must at least find the schema legal
        fastavro.parse_schema(json.loads(read_header(data).metadata["avro.schema"]))
        found = [entry.data_file.partition for entry in read_manifest(data)]
        assert [repr(partition) for partition in found] == [repr(values), repr((None,) * count)]

    def test_names_are_made_legal_kept_beside_and_kept_apart(self) -> None:
        schema, spec = self.table([t.StringType()], ["1st né.e"])
        data = write_manifest([added(data_file(partition=("v",)))], schema=schema, spec=spec, format_version=2)
        (field,) = self.partition_fields(data)
        assert (field["name"], field["iceberg-field-name"]) == ("_1st_x20n_xE9_x2Ee", "1st né.e")
        assert next(read_manifest(data)).data_file.partition == ("v",)
        schema, spec = self.table([t.StringType(), t.StringType()], ["a.b", "a_x2Eb"])
        data = write_manifest([added(data_file(partition=("1", "2")))], schema=schema, spec=spec, format_version=2)
        assert len({field["name"] for field in self.partition_fields(data)}) == 2
        assert next(read_manifest(data)).data_file.partition == ("1", "2")

    def partition_fields(self, data: bytes) -> list[dict]:
        schema = json.loads(read_header(data).metadata["avro.schema"])
        file = next(f for f in schema["fields"] if f["name"] == "data_file")
        return next(f for f in file["type"]["fields"] if f["name"] == "partition")["type"]["fields"]

    @pytest.mark.parametrize(
        ("name", "legal"), [("a", "a"), ("a-b", "a_x2Db"), ("9", "_9"), ("", "_"), ("😀", "_x1F600")]
    )
    def test_illegal_characters_become_their_code_point(self, name: str, legal: str) -> None:
        assert avro_name(name) == legal

    @pytest.mark.parametrize(
        ("precision", "size"), [(1, 1), (2, 1), (3, 2), (4, 2), (9, 4), (10, 5), (18, 8), (38, 16)]
    )
    def test_decimals_take_the_fewest_bytes_that_hold_the_precision(self, precision: int, size: int) -> None:
        assert decimal_size(precision) == size


class TestWhatDoesNotBelongIntoAManifest:
    """One spec, one kind of content, and numbers that cannot be inherited."""

    @pytest.mark.parametrize(("entry", "message"), [
        (added(data_file(partition=(1,))), "expected 0"), (added(data_file(spec_id=4)), "partition spec 4"),
        (added(data_file(content=m.FileContent.POSITION_DELETES)), "position_deletes in a manifest of data"),
        (m.ManifestEntry(status=m.EntryStatus.EXISTING, data_file=data_file()), "status existing"),
        (added(data_file(value_counts={1: "x"})), "cannot be written"),
        (added(data_file(value_counts={1: 2**63})), "cannot be written"),
    ])  # fmt: skip
    def test_it_is_refused_by_name(self, entry: m.ManifestEntry, message: str) -> None:
        with pytest.raises(InvalidInputError, match=f"{message}.*0.parquet"):
            write([entry])

    def test_no_delete_files_in_v1_and_no_format_version_4(self) -> None:
        deletes = added(data_file(content=m.FileContent.EQUALITY_DELETES))
        with pytest.raises(InvalidInputError, match="v1 manifest"):
            write([deletes], content=m.ManifestContent.DELETES, format_version=1)
        with pytest.raises(UnsupportedError, match="format version 4"):
            write([], format_version=4)


class TestOtherFormatVersions:
    """v1 lacks numbers and requires a block size; v3 adds row ids and deletion vectors."""

    def test_v1_has_its_own_fields(self) -> None:
        metadata, (record,) = by_fastavro(write([added(data_file())], format_version=1))
        assert "content" not in metadata
        assert "sequence_number" not in record
        assert record["data_file"]["block_size_in_bytes"] == 67108864
        assert next(read_manifest(write([added(data_file())], format_version=1))).data_file == data_file()

    def test_a_deletion_vector_comes_back_in_v3(self) -> None:
        vector = data_file(
            content=m.FileContent.POSITION_DELETES, file_format="puffin", content_offset=4, content_size_in_bytes=42,
            referenced_data_file="a.parquet",
        )  # fmt: skip
        data = write([added(vector)], content=m.ManifestContent.DELETES, format_version=3)
        assert next(read_manifest(data)).data_file == vector


class TestAManifestListThatWeWrite:
    """Everything in it comes back; manifests of the new snapshot get its sequence number."""

    def test_rows_come_back_equal(self) -> None:
        rows = [
            row(0),
            row(1, content=m.ManifestContent.DELETES, partitions=None, key_metadata=None),
            row(2, partitions=()),
        ]
        assert read_manifest_list(write_list(rows)) == tuple(rows)

    def test_the_header_names_the_snapshot(self) -> None:
        metadata, _ = by_fastavro(write_list([]))
        assert (metadata["snapshot-id"], metadata["parent-snapshot-id"]) == ("77", "76")
        assert (metadata["sequence-number"], metadata["format-version"]) == ("9", "2")
        assert by_fastavro(write_list([], parent_snapshot_id=None))[0]["parent-snapshot-id"] == "null"

    @pytest.mark.parametrize(("lowest", "expected"), [(m.UNASSIGNED_SEQ, 9), (2, 2)])
    def test_a_new_manifest_gets_the_number_of_the_snapshot(self, lowest: int, expected: int) -> None:
        (found,) = read_manifest_list(write_list([row(sequence_number=m.UNASSIGNED_SEQ, min_sequence_number=lowest)]))
        assert (found.sequence_number, found.min_sequence_number) == (9, expected)

    def test_a_manifest_of_another_snapshot_cannot_get_it(self) -> None:
        with pytest.raises(InvalidInputError, match="added by snapshot 5"):
            write_list([row(sequence_number=m.UNASSIGNED_SEQ, added_snapshot_id=5)])

    def test_unknown_counts_are_of_v1_only(self) -> None:
        with pytest.raises(UnsupportedError, match="no file and row counts"):
            write_list([row(added_files_count=None)])
        old = row(added_files_count=None, deleted_rows_count=None, sequence_number=0, min_sequence_number=0)
        assert read_manifest_list(write_list([old], format_version=1)) == (old,)

    def test_pyiceberg_reads_it(self, tmp_path: Path) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.manifest import read_manifest_list as theirs

        path = tmp_path / "list.avro"
        path.write_bytes(write_list([row(0), row(1)]))
        found = list(theirs(PyArrowFileIO().new_input(str(path))))
        assert [(each.manifest_path, each.sequence_number, each.added_rows_count) for each in found] == [
            ("s3://b/0.avro", 3, 4),
            ("s3://b/1.avro", 3, 4),
        ]


class TestRowIdsInAManifestList:
    """v3: while the list is written, each data manifest without a first row id gets the next free one."""

    def test_ids_are_given_by_added_and_existing_rows(self) -> None:
        rows = [row(0), row(1, first_row_id=3), row(2, content=m.ManifestContent.DELETES), row(3)]
        found, free = assign_first_row_ids(rows, 100)
        assert [manifest.first_row_id for manifest in found] == [100, 3, None, 109]
        assert free == 118

    def test_the_writer_gives_them_from_a_first_one(self) -> None:
        data = write_list([row(0), row(1)], format_version=3, first_row_id=100)
        assert [manifest.first_row_id for manifest in read_manifest_list(data)] == [100, 109]
        assert by_fastavro(data)[0]["first-row-id"] == "100"
        with pytest.raises(InvalidInputError, match="first_row_id"):
            write_list([row()], format_version=3)


def foreign(records: list[dict], schema: dict) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(schema), records)
    return stream.getvalue()


def field(field_id: int | None, name: str, type_: object) -> dict:
    return {"name": name, "type": type_} | ({} if field_id is None else {"field-id": field_id})


class TestFilesOfOtherWriters:
    """Columns are found by their field id; names, order and additions are free."""

    LIST = (
        field(502, "spec", "int"),
        field(999, "later", ["null", {"type": "map", "values": "string"}]),
        field(500, "where", "string"),
        field(503, "who", "long"),
        field(504, "added_data_files_count", "int"),
        field(501, "size", "long"),
    )

    def test_old_names_are_resolved_by_id(self) -> None:
        record = {"spec": 2, "later": {"a": "b"}, "where": "m", "who": 5, "added_data_files_count": 3, "size": 9}
        (found,) = read_manifest_list(foreign([record], {"type": "record", "name": "x", "fields": list(self.LIST)}))
        assert found == m.ManifestFile(
            manifest_path="m", manifest_length=9, partition_spec_id=2, sequence_number=0, min_sequence_number=0,
            added_snapshot_id=5, added_files_count=3,
        )  # fmt: skip

    def test_without_ids_the_names_of_the_specification_count(self) -> None:
        names = {
            "manifest_path": "string",
            "manifest_length": "long",
            "partition_spec_id": "int",
            "added_snapshot_id": "long",
        }
        schema = {"type": "record", "name": "x", "fields": [field(None, name, type_) for name, type_ in names.items()]}
        record = {"manifest_path": "m", "manifest_length": 9, "partition_spec_id": 0, "added_snapshot_id": 5}
        assert read_manifest_list(foreign([record], schema))[0].manifest_path == "m"

    @pytest.mark.parametrize("missing", [500, 501, 502, 503])
    def test_a_missing_required_field_is_named(self, missing: int) -> None:
        fields = [f for f in self.LIST if f["field-id"] != missing]
        with pytest.raises(FormatError, match=r"missing field .* of l\.avro"):
            read_manifest_list(foreign([], {"type": "record", "name": "x", "fields": fields}), path="l.avro")

    def test_a_field_of_another_type_is_refused(self) -> None:
        fields = [f if f["field-id"] != 501 else field(501, "size", "string") for f in self.LIST]
        with pytest.raises(FormatError, match=r"unexpected Avro type string .expected long. in 'manifest_length'"):
            read_manifest_list(foreign([], {"type": "record", "name": "x", "fields": fields}))

    @pytest.mark.parametrize("kind", sorted(AMPLIFYING))
    def test_a_schema_by_which_a_few_bytes_become_very_many_values_is_refused(self, kind: str) -> None:
        """Five bytes could claim billions of items; a decoder in C would end the process, or never end."""
        fields = [*self.LIST, *(field(900 + n, f"bomb{n}", type_) for n, type_ in enumerate(AMPLIFYING[kind]))]
        with pytest.raises(FormatError, match=r"without bytes|contains itself") as caught:
            read_manifest_list(foreign([], {"type": "record", "name": "x", "fields": fields}), path="l.avro")
        assert "l.avro" in str(caught.value)

    def test_a_manifest_is_checked_as_well(self) -> None:
        header, _ = by_fastavro(write([added(FULL)]))
        schema = json.loads(header["avro.schema"])
        schema["fields"] += [field(900 + n, f"bomb{n}", type_) for n, type_ in enumerate(AMPLIFYING["itself"])]
        data = write_container({**header, "avro.schema": json.dumps(schema)}, [], codec="null")
        with pytest.raises(FormatError, match="contains itself"):
            list(read_manifest(data))

    def test_names_of_earlier_types_are_known(self) -> None:
        """In lists, too; and partitions may have fields without values, those of void transforms."""
        point = record_of("point", "long", ["null", "long"])
        types = [point, {"type": "array", "items": "point"}, record_of("nulls", *["null"] * 50)]
        fields = [*self.LIST, *(field(900 + n, f"more{n}", type_) for n, type_ in enumerate(types))]
        row = {"spec": 2, "later": None, "where": "m", "who": 5, "added_data_files_count": 3, "size": 9}
        values = {"f0": 1, "f1": None}
        row |= {"more0": values, "more1": [values] * 3, "more2": {f"f{n}": None for n in range(50)}}
        (found,) = read_manifest_list(foreign([row], {"type": "record", "name": "x", "fields": fields}))
        assert found.manifest_path == "m"

    def test_partition_values_are_found_by_id(self) -> None:
        spec = spec_from_shorthand(["cat", "bucket(4, id)", "truncate(2, cat)"], SCHEMA)
        entries = [added(data_file(1, partition=("a", 3, "ab"))), added(data_file(2, partition=(None, 0, None)))]
        data = write(entries, spec=spec)
        header, records = by_fastavro(data)
        schema = json.loads(header["avro.schema"])
        file = next(item for item in schema["fields"] if item["name"] == "data_file")
        partition = next(item for item in file["type"]["fields"] if item["name"] == "partition")
        partition["type"]["fields"].reverse()
        stream = io.BytesIO()
        metadata = {name: value for name, value in header.items() if not name.startswith("avro.")}
        fastavro.writer(stream, fastavro.parse_schema(schema), records, metadata=metadata)
        assert list(read_manifest(stream.getvalue())) == list(read_manifest(data))

    def test_a_manifest_is_no_manifest_list(self) -> None:
        with pytest.raises(FormatError, match="missing field 'manifest_path'"):
            read_manifest_list(write([added(FULL)]), path="m")
        with pytest.raises(FormatError, match="missing field 'status'"):
            list(read_manifest(write_list([row()]), path="m"))

    def test_an_unknown_codec_is_named(self) -> None:
        data = write_container({"avro.schema": "{}"}, [], codec="null").replace(b"\x08null", b"\x06lzo")
        with pytest.raises(UnsupportedError, match="unknown Avro codec 'lzo'"):
            list(read_blocks(data, read_header(data)))


GOLDEN = sorted(golden.tables().keys() - {golden.REFUSED})


def golden_lists(name: str) -> list[tuple[str, bytes]]:
    paths = sorted((golden.table(name).folder / "metadata").glob("snap-*.avro"))
    return [(str(path), path.read_bytes()) for path in paths]


@pytest.mark.parametrize("name", GOLDEN)
class TestTheReferenceTables:
    """Every manifest list and manifest that Iceberg Java wrote is understood."""

    def test_what_is_written_again_reads_the_same(self, name: str) -> None:
        for path, data in golden_lists(name):
            header = read_header(data).metadata
            rows = read_manifest_list(data, path=path)
            again = write_manifest_list(
                rows,
                snapshot_id=int(header["snapshot-id"]),
                parent_snapshot_id=None,
                sequence_number=int(header.get("sequence-number", b"0")),
                format_version=int(header["format-version"]),
                first_row_id=int(header.get("first-row-id", b"0")),
            )
            assert read_manifest_list(again) == rows

    def test_live_files_are_those_that_java_reports(self, name: str) -> None:
        table = golden.table(name)
        metadata = metadata_json.read(table.metadata_path.read_bytes())
        snapshot = metadata.current_snapshot()
        live: set[str] = set()
        rows = 0
        if snapshot is not None:
            assert snapshot.manifest_list is not None
            for manifest in read_manifest_list(table.io.read(snapshot.manifest_list)):
                for entry in self.entries(table, manifest):
                    assert entry.snapshot_id is not None
                    assert entry.sequence_number is not None
                    if entry.is_live:
                        live.add(entry.data_file.file_path)
                        rows += entry.data_file.record_count if manifest.content is m.ManifestContent.DATA else 0
            assert int(snapshot.summary["total-records"]) == rows
        assert len(live) == len({file["path"] for file in table.expected["files"]})

    def entries(self, table: golden.GoldenTable, manifest: m.ManifestFile) -> list[m.ManifestEntry]:
        return list(read_manifest(table.io.read(manifest.manifest_path), manifest=manifest))


class TestDamagedFiles:
    """A torn or foreign file gives an error that names it, never fewer rows and never anything else."""

    def manifest(self) -> bytes:
        return write([added(replace(FULL, file_path=f"{i}.parquet")) for i in range(30)])

    def test_a_manifest_cut_anywhere_is_found_out(self) -> None:
        data = self.manifest()
        whole = row(manifest_length=len(data), added_files_count=30, existing_files_count=0, deleted_files_count=0)
        for length in range(len(data)):
            with pytest.raises(FormatError) as error:
                list(read_manifest(data[:length], manifest=whole))
            assert error.value.path == whole.manifest_path

    def test_all_but_the_ends_of_blocks_are_found_out_and_these_by_the_number_of_entries(self) -> None:
        data = self.manifest()
        for length in set(range(len(data))) - {read_header(data).offset}:
            with pytest.raises(FormatError):
                list(read_manifest(data[:length], path="m"))
        cut = data[: read_header(data).offset]
        lying = row(manifest_length=0, added_files_count=30, existing_files_count=0, deleted_files_count=0)
        with pytest.raises(FormatError, match=r"unexpected number of entries 0 .expected 30."):
            list(read_manifest(cut, manifest=lying))

    def test_a_manifest_list_cut_anywhere_in_its_block_is_found_out(self) -> None:
        data = write_list([row(i) for i in range(20)])
        for length in set(range(len(data))) - {read_header(data).offset}:
            with pytest.raises(FormatError) as error:
                read_manifest_list(data[:length], path="l.avro")
            assert error.value.path == "l.avro"

    @pytest.mark.parametrize("data", [b"", b"Obj", b"PAR1" * 9, b"{}", b"Obj\x01", b"Obj\x01" + b"\xff" * 40])
    def test_what_is_no_avro_is_said_to_be_none(self, data: bytes) -> None:
        with pytest.raises(FormatError, match=r" of m\.avro$"):
            list(read_manifest(data, path="m.avro"))

    def test_a_header_of_very_many_entries(self) -> None:
        many = {f"{number:x}": "" for number in range(10_001)}
        schema = json.dumps(record_of("r", "int"))
        data = write_container({"avro.schema": schema, **many}, [], codec="null")
        with pytest.raises(FormatError, match="unexpected header of more than 10000 entries"):
            read_header(data)

    def test_a_schema_of_the_table_with_very_many_values(self) -> None:
        for text in ("[" + "[]," * 500_001 + "[]]", '{"a": "' + "x" * (16 << 20) + '"}'):
            data = write_container({"avro.schema": "{}", "schema": text}, [], codec="null")
            with pytest.raises(FormatError, match=r"unexpected 'schema' of [0-9]+ bytes .expected at most"):
                written_schema(data)

    def test_large_schemas_of_files_are_not_kept(self) -> None:
        """What is made of one lives as long as the process, and is much larger than its text."""
        made = list[bytes]()

        def decode(schema: bytes) -> Any:
            made.append(schema)
            return schema

        kept = blocks._kept(decode, 256)
        small, large = [f"{number:08d}".encode() for number in range(200)], [bytes([n]) * 20_000 for n in range(3)]
        for _ in range(2):
            for one in (*small, *large):
                assert kept(one) == one
        assert made == [*small, *large, *large]

    def test_a_flipped_bit_in_a_block_is_an_error_or_a_value(self) -> None:
        """Avro has no checksums: what matters is that nothing but our own errors comes out."""
        chance = random.Random(3)
        originals = [write([added(FULL)] * 3, codec=codec) for codec in ("null", "deflate")]
        originals += [data for name in GOLDEN[::7] for _, data in golden_lists(name)[:1]]
        for _ in range(400):
            data = bytearray(chance.choice(originals))
            for _ in range(chance.choice([1, 1, 4])):
                data[chance.randrange(len(data))] = chance.randrange(256)
            for read in (read_manifest, read_manifest_list):
                with suppress(FormatError, UnsupportedError):
                    list(read(bytes(data), path="m"))

    def test_a_block_that_does_not_unpack_is_an_error(self) -> None:
        data = write([added(FULL)])
        header = read_header(data)
        packed = zlib.compress(b"no raw deflate")
        broken = data[: header.offset] + bytes([2, 2 * len(packed)]) + packed + header.sync
        with pytest.raises(IcebergError, match=r"damaged deflate block at byte \d+"):
            list(read_manifest(broken))
