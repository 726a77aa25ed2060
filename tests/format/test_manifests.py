"""Data files, entries and manifests as values, and what they inherit."""

import json
from decimal import Decimal
from uuid import UUID

import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.manifests import entries as m
from airflow_iceberg.format.manifests.summaries import describe_manifest
from airflow_iceberg.format.partitions.spec import PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand

UNPARTITIONED = PartitionSpec(spec_id=0, fields=())
SCHEMA = schema_from_shorthand({"id": "long", "cat": "string", "x": "double", "u": "uuid", "b": "boolean"})


def data_file(**more: object) -> m.DataFile:
    values = {"file_path": "a.parquet", "file_format": "parquet", "record_count": 10, "file_size_in_bytes": 100}
    return m.DataFile(**{**values, **more})


def entry(status: m.EntryStatus = m.EntryStatus.ADDED, seq: int | None = None, **more: object) -> m.ManifestEntry:
    return m.ManifestEntry(status=status, sequence_number=seq, file_sequence_number=seq, data_file=data_file(**more))


def manifest(seq: int = 7, **more: object) -> m.ManifestFile:
    values = {"manifest_path": "m.avro", "manifest_length": 1, "partition_spec_id": 3, "added_snapshot_id": 77}
    return m.ManifestFile(**{**values, "sequence_number": seq, "min_sequence_number": seq, **more})


class TestInheritance:
    """What an entry leaves null comes from the row of its manifest in the manifest list."""

    def test_an_added_file_gets_the_snapshot_and_the_numbers_that_it_lacks(self) -> None:
        (found,) = m.inherit([entry()], manifest())
        assert (found.snapshot_id, found.sequence_number, found.file_sequence_number) == (77, 7, 7)
        added = m.ManifestEntry(status=m.EntryStatus.ADDED, sequence_number=4, data_file=data_file())
        (found,) = m.inherit([added], manifest())
        assert (found.sequence_number, found.file_sequence_number) == (4, 7)

    def test_what_an_existing_file_has_stays(self) -> None:
        existing = m.ManifestEntry(
            status=m.EntryStatus.EXISTING,
            snapshot_id=5,
            sequence_number=2,
            file_sequence_number=3,
            data_file=data_file(),
        )
        (found,) = m.inherit([existing], manifest())
        assert found == existing

    @pytest.mark.parametrize("status", list(m.EntryStatus))
    def test_everything_of_v1_has_the_number_0(self, status: m.EntryStatus) -> None:
        (found,) = m.inherit([entry(status)], manifest(seq=0))
        assert (found.sequence_number, found.file_sequence_number) == (0, 0)

    def test_an_existing_file_must_not_inherit_from_a_numbered_manifest_and_a_deleted_one_may_lack_numbers(self):
        with pytest.raises(FormatError) as error:
            list(m.inherit([entry(m.EntryStatus.EXISTING)], manifest()))
        assert str(error.value) == (
            "missing sequence number (required for status existing) in the entry of file a.parquet of m.avro"
        )
        (found,) = m.inherit([entry(m.EntryStatus.DELETED)], manifest())
        assert found.sequence_number is None


class TestRowIdsInV3:
    """Files without a first row id take up the ids of their manifest, one after the other."""

    def test_ids_count_on_over_live_files_without_one(self) -> None:
        entries = [
            entry(record_count=10),
            entry(m.EntryStatus.DELETED, seq=1, record_count=5),
            entry(m.EntryStatus.EXISTING, seq=1, record_count=3, first_row_id=4),
            entry(record_count=2),
        ]
        found = [e.data_file.first_row_id for e in m.inherit(entries, manifest(first_row_id=100))]
        assert found == [100, None, 4, 110]

    def test_without_one_in_the_manifest_and_in_delete_files_there_are_none(self) -> None:
        (found,) = m.inherit([entry(first_row_id=4)], manifest())
        assert found.data_file.first_row_id is None
        deletes = entry(content=m.FileContent.POSITION_DELETES)
        (found,) = m.inherit([deletes], manifest(content=m.ManifestContent.DELETES, first_row_id=100))
        assert found.data_file.first_row_id is None


def describe(entries: list[m.ManifestEntry], spec: PartitionSpec = UNPARTITIONED, **more: object) -> m.ManifestFile:
    values = {"path": "m.avro", "length": 9, "spec": spec, "schema": SCHEMA, "snapshot_id": 77}
    return describe_manifest(entries, **{**values, **more})


class TestTheRowOfANewManifest:
    """The manifest list tells what can be known without opening a manifest."""

    def test_files_and_rows_are_counted_by_status(self) -> None:
        row = describe(
            [
                entry(record_count=1),
                entry(record_count=2),
                entry(m.EntryStatus.EXISTING, seq=3, record_count=4),
                entry(m.EntryStatus.DELETED, seq=1, record_count=8),
            ]
        )
        assert (row.added_files_count, row.existing_files_count, row.deleted_files_count) == (2, 1, 1)
        assert (row.added_rows_count, row.existing_rows_count, row.deleted_rows_count) == (3, 4, 8)
        assert (row.manifest_path, row.manifest_length, row.added_snapshot_id) == ("m.avro", 9, 77)

    def test_the_lowest_number_is_that_of_live_files(self) -> None:
        row = describe([entry(m.EntryStatus.EXISTING, seq=3), entry(m.EntryStatus.DELETED, seq=1)], sequence_number=9)
        assert (row.sequence_number, row.min_sequence_number) == (9, 3)
        assert describe([entry(), entry(m.EntryStatus.EXISTING, seq=3)]).min_sequence_number == 3

    @pytest.mark.parametrize("entries", [[], [entry()], [entry(m.EntryStatus.DELETED, seq=1)]])
    def test_without_an_explicit_number_of_a_live_file_it_is_left_to_the_commit(self, entries):
        row = describe(entries)
        assert (row.sequence_number, row.min_sequence_number) == (m.UNASSIGNED_SEQ, m.UNASSIGNED_SEQ)

    def test_an_unpartitioned_table_has_no_summaries(self) -> None:
        assert describe([entry()]).partitions == ()

    def summary(self, column: str, *found: object) -> m.FieldSummary:
        spec = spec_from_shorthand([column], SCHEMA)
        row = describe([entry(partition=(value,)) for value in found], spec)
        assert row.partitions is not None
        return row.partitions[0]

    def test_bounds_are_the_lowest_and_highest_value_and_never_null_or_nan(self) -> None:
        assert self.summary("cat", "m", "z", "b") == m.FieldSummary(
            contains_null=False, contains_nan=False, lower_bound=b"b", upper_bound=b"z"
        )
        assert self.summary("cat", None, None) == m.FieldSummary(contains_null=True, contains_nan=False)
        assert self.summary("id", None, 5).lower_bound == (5).to_bytes(8, "little")
        summary = self.summary("x", float("nan"), 1.0, float("nan"))
        assert (summary.contains_nan, summary.lower_bound == summary.upper_bound) == (True, True)
        assert self.summary("x", float("nan")).upper_bound is None

    @pytest.mark.parametrize(
        ("column", "values", "lower", "upper"),
        [
            # UTF-16 would put U+1F600 below U+FF61.
            ("cat", ("\U0001f600", "\uff61"), "\uff61".encode(), "\U0001f600".encode()),
            ("x", (0.0,), b"\0\0\0\0\0\0\0\x80", b"\0" * 8),
            ("u", (UUID(int=2**127), UUID(int=1)), UUID(int=1).bytes, UUID(int=2**127).bytes),
            ("b", (True, False), b"\0", b"\1"),
        ],
        ids=["strings by code points", "zero with both signs", "uuids by bytes", "false below true"],
    )
    def test_the_order_of_values(self, column: str, values: tuple[object, ...], lower: bytes, upper: bytes) -> None:
        summary = self.summary(column, *values)
        assert (summary.lower_bound, summary.upper_bound) == (lower, upper)

    def test_unknown_counts_may_be_anything(self) -> None:
        assert manifest().may_have_live_files
        assert not manifest(added_files_count=0, existing_files_count=0).may_have_live_files


PARTITION = t.StructType(
    fields=(
        t.NestedField(id=1000, name="d", type=t.DecimalType(9, 2)),
        t.NestedField(id=1001, name="u", type=t.UUIDType()),
        t.NestedField(id=1002, name="b", type=t.BinaryType()),
        t.NestedField(id=1003, name="x", type=t.DoubleType()),
        t.NestedField(id=1004, name="s", type=t.StringType()),
    )
)
FULL = m.DataFile(
    content=m.FileContent.EQUALITY_DELETES, file_path="s3://b/ä b.parquet", file_format="parquet",
    partition=(Decimal("-1.20"), UUID(int=5), b"\x00\xff", float("inf"), None), spec_id=4, record_count=2**40,
    file_size_in_bytes=3, column_sizes={1: 2}, value_counts={}, null_value_counts={2147483546: 0},
    nan_value_counts={3: 1}, lower_bounds={1: b""}, upper_bounds={1: b"\xff\x00"}, key_metadata=b"k",
    split_offsets=(4, 8), equality_ids=(1, 2), sort_order_id=0, first_row_id=0, referenced_data_file="r",
    content_offset=4, content_size_in_bytes=42,
)  # fmt: skip


class TestADataFileInAJobResult:
    """A job reports its files as JSON; nothing is lost on the way."""

    def test_it_comes_back_equal(self) -> None:
        text = json.dumps(FULL.to_dict(PARTITION))
        assert m.DataFile.from_dict(json.loads(text), PARTITION) == FULL

    def test_what_is_not_there_is_not_written(self) -> None:
        document = data_file().to_dict(t.StructType(fields=()))
        assert document == {
            "content": "data",
            "file-path": "a.parquet",
            "file-format": "parquet",
            "spec-id": 0,
            "partition": [],
            "record-count": 10,
            "file-size-in-bytes": 100,
        }
        assert m.DataFile.from_dict(document, t.StructType(fields=())) == data_file()

    @pytest.mark.parametrize(("key", "value"), [
        ("record-count", True), ("record-count", -1), ("file-path", ""), ("partition", [1]), ("content", "index"),
        ("lower-bounds", {"1": "no base64!"}), ("lower-bounds", {"one": ""}), ("value-counts", {"1": 1.5}),
        ("split-offsets", [1, "2"]),
    ])  # fmt: skip
    def test_a_broken_document_is_a_format_error(self, key: str, value: object) -> None:
        document = {**FULL.to_dict(PARTITION), key: value}
        with pytest.raises(FormatError):
            m.DataFile.from_dict(document, PARTITION, path="result.json")

    def test_a_partition_of_another_length_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="expected 5 values"):
            data_file().to_dict(PARTITION)


class TestWhatAFileIsKnownBy:
    """Several deletion vectors share one Puffin file: the path is not enough."""

    def test_vectors_of_one_puffin_file_differ_by_their_offset_and_have_the_size_of_their_blob(self) -> None:
        vectors = [
            data_file(content=m.FileContent.POSITION_DELETES, file_format="puffin", content_offset=at) for at in (4, 46)
        ]
        assert all(vector.is_deletion_vector for vector in vectors)
        assert vectors[0].identity != vectors[1].identity
        vector = data_file(content=m.FileContent.POSITION_DELETES, file_format="puffin", content_size_in_bytes=42)
        assert (vector.size_bytes, data_file().size_bytes) == (42, 100)
