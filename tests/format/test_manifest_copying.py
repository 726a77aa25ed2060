"""Entries copied into another manifest: the same as if each was made an object of and written anew."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.avro.container import read_header
from airflow_iceberg.format.manifests.avro import manifest_of_records, read_manifest, read_manifest_list, write_manifest
from airflow_iceberg.format.manifests.columns import EntryColumns, read_columns, unpack
from airflow_iceberg.format.manifests.copying import EncodedEntries, EntryEncoder
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, FileContent, ManifestContent, ManifestEntry
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms.transform import IdentityTransform
from tests.format.test_manifest_columns import added, data_file, manifest_row, manifests
from tests.support import golden
from tests.support.sampling import examples

BY_ID = PartitionSpec(0, (PartitionField(source_id=1, field_id=1000, name="id", transform=IdentityTransform()),))


def parts_of(data: bytes, row: Any) -> list[Any]:
    return list(read_columns([unpack(data, row)], places=True))


def copied(data: bytes, row: Any, kind: dict[str, Any]) -> EncodedEntries:
    encoder = EntryEncoder(**kind)
    parts = parts_of(data, row)
    return EncodedEntries.joined(
        encoder.of_columns(part) if isinstance(part, EntryColumns) else encoder.of_entries(part[1]) for part in parts
    )


def one_by_one(data: bytes, row: Any) -> list[ManifestEntry]:
    entries = read_manifest(data, manifest=row)
    return [replace(entry, status=EntryStatus.EXISTING) for entry in entries if entry.is_live]


def written(encoded: EncodedEntries, kind: dict[str, Any]) -> list[ManifestEntry]:
    return list(read_manifest(manifest_of_records(encoded.records, **kind)))


def said_of(entries: Sequence[ManifestEntry]) -> list[Any]:
    """What is known of encoded entries beside their bytes."""
    return [
        [entry.data_file.identity for entry in entries],
        [entry.data_file.partition for entry in entries],
        [entry.data_file.record_count for entry in entries],
        [entry.sequence_number for entry in entries],
    ]


def kind_of(data: bytes, content: ManifestContent) -> dict[str, Any]:
    """What a manifest says in its header that it was written with."""
    import json

    header = {key: value.decode() for key, value in read_header(data).metadata.items()}
    spec = {"spec-id": 0, "fields": json.loads(header["partition-spec"])}
    return {
        "schema": Schema.from_dict(json.loads(header["schema"])),
        "spec": PartitionSpec.from_dict(spec),
        "format_version": int(header["format-version"]),
        "content": content,
    }


def is_copied(data: bytes, row: Any, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    made = []
    monkeypatch.setattr(EntryColumns, "entries", lambda self, rows: made.append(rows) or [])
    copied(data, row, kind)
    return not made


class TestAnyManifest:
    """Whatever stands in a manifest, its live entries are copied with all that they say and inherit."""

    @pytest.mark.costly
    @examples(120)
    @given(manifests())
    def test_a_copy_is_what_writing_anew_gives(self, manifest: tuple[bytes, Any]) -> None:
        data, row = manifest
        kind = kind_of(data, row.content)
        expected = one_by_one(data, row)
        found = copied(data, row, kind)
        rewritten = list(read_manifest(write_manifest(expected, **kind)))
        assert repr(written(found, kind)) == repr(rewritten)
        lists = [found.identities, found.partitions, found.record_counts, found.sequence_numbers]
        assert repr(lists) == repr(said_of(expected))

    @pytest.mark.costly
    @examples(60)
    @given(manifests())
    def test_it_comes_through_an_upgrade(self, manifest: tuple[bytes, Any]) -> None:
        data, row = manifest
        kind = {**kind_of(data, row.content), "format_version": 3}
        expected = one_by_one(data, row)
        # Files of more rows together than a long holds cannot have ids for them.
        assume(all((entry.data_file.first_row_id or 0) < 2**63 for entry in expected))
        rewritten = list(read_manifest(write_manifest(expected, **kind)))
        assert repr(written(copied(data, row, kind), kind)) == repr(rewritten)


class TestTheReferenceTables:
    """Of what Iceberg Java writes no object is made, but for partitions that another type holds by now."""

    @pytest.mark.parametrize("name", [name for name, table in golden.tables().items() if not table.is_refused])
    def test_they_are_copied(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        table = golden.table(name)
        metadata = metadata_json.read(table.io.read(table.metadata_location))
        ways: Counter[bool] = Counter()
        for row in self.manifests(table, metadata):
            data, spec_id = table.io.read(row.manifest_path), row.partition_spec_id
            kind = {
                "schema": metadata.schema_of_spec(spec_id),
                "spec": metadata.spec(spec_id),
                "format_version": metadata.format_version,
                "content": row.content,
            }
            assert written(copied(data, row, kind), kind) == list(
                read_manifest(write_manifest(one_by_one(data, row), **kind))
            )
            with monkeypatch.context() as patch:
                ways[is_copied(data, row, kind, patch)] += 1
        assert ways[True] or not ways

    def manifests(self, table: Any, metadata: TableMetadata) -> list[Any]:
        rows = {}
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list:
                listed = read_manifest_list(table.io.read(snapshot.manifest_list))
                rows.update({(row.manifest_path, row.first_row_id): row for row in listed})
        return list(rows.values())


class TestOtherFields:
    """Where the bytes of a field are others, entries are written one by one; otherwise they are copied."""

    def partitioned(self, kind: str, value: Any, **more: Any) -> tuple[bytes, Any, dict[str, Any]]:
        schema = schema_from_shorthand({"id": kind})
        entry = added(data_file(1, partition=(value,), value_counts={1: 7}))
        data = write_manifest([entry], schema=schema, spec=BY_ID, format_version=2)
        return data, manifest_row(data), {"spec": BY_ID, "format_version": 2, "content": ManifestContent.DATA, **more}

    @pytest.mark.parametrize(("before", "after", "value", "as_it_is"), [
        ("int", "long", -5, True), ("float", "double", 1.5, False), ("decimal(9, 2)", "decimal(38, 2)", "12.50", False),
        ("decimal(9, 2)", "decimal(9, 2)", "12.50", True), ("string", "string", "ä", True),
        ("uuid", "uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", True),
    ])  # fmt: skip
    def test_a_wider_partition_value(self, before, after, value, as_it_is, monkeypatch):
        from decimal import Decimal
        from uuid import UUID

        value = Decimal(value) if before.startswith("dec") else UUID(value) if before == "uuid" else value
        data, row, kind = self.partitioned(before, value, schema=schema_from_shorthand({"id": after}))
        (entry,) = written(copied(data, row, kind), kind)
        assert entry.data_file == data_file(1, partition=(value,), value_counts={1: 7})
        assert is_copied(data, row, kind, monkeypatch) is as_it_is

    def test_bytes_that_mean_something_else_are_not_copied(self) -> None:
        """A scale cannot change by any rule: what a file says that it is counts."""
        from decimal import Decimal

        data, row, kind = self.partitioned(
            "decimal(9, 2)", Decimal("12.50"), schema=schema_from_shorthand({"id": "decimal(9, 3)"})
        )
        (entry,) = written(copied(data, row, kind), kind)
        assert entry.data_file.partition == (Decimal("12.500"),)

    @pytest.mark.parametrize("version", [2, 3])
    def test_of_v1_they_get_a_content_and_lose_the_block_size(self, version, monkeypatch):
        schema, spec = schema_from_shorthand({"id": "long"}), PartitionSpec(0, ())
        entry = replace(added(data_file(1, split_offsets=(4,))), snapshot_id=9)
        data = write_manifest([entry], schema=schema, spec=spec, format_version=1)
        row = manifest_row(data, sequence_number=0, min_sequence_number=0)
        kind = {"schema": schema, "spec": spec, "format_version": version, "content": ManifestContent.DATA}
        assert is_copied(data, row, kind, monkeypatch)
        monkeypatch.undo()
        (found,) = written(copied(data, row, kind), kind)
        assert found == ManifestEntry(
            status=EntryStatus.EXISTING,
            snapshot_id=9,
            sequence_number=0,
            file_sequence_number=0,
            data_file=data_file(1, split_offsets=(4,)),
        )

    def test_row_ids_are_written_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schema, spec = schema_from_shorthand({"id": "long"}), PartitionSpec(0, ())
        kind = {"schema": schema, "spec": spec, "format_version": 3, "content": ManifestContent.DATA}
        files = [data_file(1), data_file(2, first_row_id=5), data_file(3)]
        data = write_manifest([added(file) for file in files], **kind)
        row = manifest_row(data, first_row_id=1000)
        assert is_copied(data, row, kind, monkeypatch)
        monkeypatch.undo()
        assert [entry.data_file.first_row_id for entry in written(copied(data, row, kind), kind)] == [1000, 5, 1007]


class TestWhatDoesNotBelong:
    """It is refused, as when it is written."""

    def test_deletes_among_data(self) -> None:
        schema, spec = schema_from_shorthand({"id": "long"}), PartitionSpec(0, ())
        kind = {"schema": schema, "spec": spec, "format_version": 2}
        deletes = data_file(1, content=FileContent.POSITION_DELETES)
        data = write_manifest([added(deletes)], **kind, content=ManifestContent.DELETES)
        with pytest.raises(InvalidInputError, match="content position_deletes in a manifest of data"):
            copied(data, manifest_row(data), {**kind, "content": ManifestContent.DATA})


class TestChoosing:
    """Some of the entries, in any order."""

    def test_each_keeps_all_that_is_known_of_it(self) -> None:
        schema, spec = schema_from_shorthand({"id": "long"}), PartitionSpec(0, ())
        kind = {"schema": schema, "spec": spec, "format_version": 2, "content": ManifestContent.DATA}
        files: list[DataFile] = [data_file(number, record_count=number) for number in range(5)]
        data = write_manifest([added(file) for file in files], **kind)
        row = manifest_row(data)
        chosen = copied(data, row, kind).taken([3, 1])
        assert [entry.data_file.record_count for entry in written(chosen, kind)] == chosen.record_counts == [3, 1]
        assert chosen.identities == [files[3].identity, files[1].identity]
        assert len(EncodedEntries.joined([chosen, chosen])) == 4


def test_places_are_where_fields_start() -> None:
    data = write_manifest(
        [added(data_file(number)) for number in range(3)],
        schema=schema_from_shorthand({"id": "long"}),
        spec=PartitionSpec(0, ()),
        format_version=2,
    )
    (part,) = parts_of(data, manifest_row(data))
    places = np.stack(part.records.places)
    assert (places[0] == part.records.starts[:-1]).all()
    assert (np.diff(places, axis=0) > 0).all()
    assert (places[-1] < part.records.starts[1:]).all()
