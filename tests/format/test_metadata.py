"""Table metadata: reading, writing, asking, and making new."""

import bz2
import gzip
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.format.types import LongType, NestedField
from tests.support import golden

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
GOLDEN = sorted(golden.tables().keys() - {golden.REFUSED})


def snapshot(number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    document = {
        "sequence-number": number,
        "snapshot-id": number,
        "timestamp-ms": 1000 * number,
        "summary": {"operation": "append"},
        "manifest-list": f"s3://b/{number}.avro",
        "schema-id": 0,
    }
    return {**document, **({} if parent is None else {"parent-snapshot-id": parent}), **more}


def document(**more: Any) -> dict[str, Any]:
    """A v2 table with three snapshots: main went 1, 2, and back to 1; 3 is on a branch."""
    return {
        "format-version": 2,
        "table-uuid": UUID,
        "location": "s3://b/t",
        "last-sequence-number": 3,
        "last-updated-ms": 5000,
        "last-column-id": 4,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"a": "7", "b": "TRUE", "c": "x"},
        "current-snapshot-id": 1,
        "refs": {
            "main": {"snapshot-id": 1, "type": "branch"},
            "audit": {"snapshot-id": 3, "type": "branch", "min-snapshots-to-keep": 2},
            "v2": {"snapshot-id": 2, "type": "tag"},
        },
        "snapshots": [snapshot(1), snapshot(2, 1), snapshot(3, 2)],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [
            {"timestamp-ms": 1000, "snapshot-id": 1},
            {"timestamp-ms": 2000, "snapshot-id": 2},
            {"timestamp-ms": 4000, "snapshot-id": 1},
        ],
        "metadata-log": [{"timestamp-ms": 1000, "metadata-file": "s3://b/0.json"}],
    } | more


def read(**more: Any) -> TableMetadata:
    return metadata_json.from_dict(document(**more), path="m.json")


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in document(**more).items() if key not in keys}


class TestTheReferenceTables:
    """All metadata files that Iceberg Java wrote are read, and written back they say the same in the same order."""

    @pytest.mark.parametrize("name", GOLDEN)
    def test_nothing_is_lost_or_moved(self, name: str) -> None:
        for path in golden.metadata_files(golden.table(name).folder):
            data = path.read_bytes()
            metadata = metadata_json.read(data, path=str(path))
            theirs = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
            ours = json.loads(metadata_json.write(metadata))
            assert ours == theirs
            assert list(ours) == list(theirs)

    @pytest.mark.parametrize("name", GOLDEN)
    def test_it_has_the_snapshots_that_java_reports(self, name: str) -> None:
        metadata = metadata_json.read(golden.table(name).metadata_path.read_bytes())
        expected = golden.table(name).expected
        assert [s.snapshot_id for s in metadata.snapshots] == [s["snapshot_id"] for s in expected["snapshots"]]

    def test_format_version_4_is_refused(self) -> None:
        table = golden.table(golden.REFUSED)
        with pytest.raises(UnsupportedError) as error:
            metadata_json.read(table.metadata_path.read_bytes(), path="v4.json")
        assert str(error.value) == "format version 4 of v4.json is not supported (supported: 1, 2, 3)"


class TestVersion1:
    """Old v1 files leave out what later versions require; the specification says what it is then."""

    OLD: Mapping[str, Any] = {
        "format-version": 1,
        "location": "s3://b/t",
        "last-updated-ms": 5000,
        "last-column-id": 2,
        "schema": {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "ts", "required": False, "type": "timestamp"},
            ],
        },
        "partition-spec": [
            {"source-id": 2, "name": "ts_day", "transform": "day"},
            {"source-id": 1, "name": "id_bucket", "transform": "bucket[4]"},
        ],
        "properties": {},
        "current-snapshot-id": 5,
        "snapshots": [{"snapshot-id": 5, "timestamp-ms": 4000, "manifests": ["s3://b/m.avro"]}],
    }

    def test_ids_are_0_and_partition_fields_are_numbered_from_1000(self) -> None:
        metadata = metadata_json.from_dict(self.OLD)
        assert (metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id) == (0, 0, 0)
        assert metadata.schema().names == {"id": 1, "ts": 2}
        assert metadata.sort_order().fields == ()
        assert [f.field_id for f in metadata.spec().fields] == [1000, 1001]
        assert metadata.last_partition_id == 1001
        assert metadata_json.from_dict({**self.OLD, "partition-spec": []}).last_partition_id == 999

    def test_main_is_the_current_snapshot_and_has_the_number_0(self) -> None:
        metadata = metadata_json.from_dict(self.OLD)
        assert metadata.refs["main"].snapshot_id == 5
        current = metadata.current_snapshot()
        assert current is not None
        assert (current.sequence_number, current.manifests) == (0, ("s3://b/m.avro",))
        assert (metadata.last_sequence_number, metadata.table_uuid) == (0, None)

    def test_it_is_written_for_old_and_new_readers(self) -> None:
        written = metadata_json.to_dict(metadata_json.from_dict(self.OLD))
        assert written["schema"] == written["schemas"][0]
        assert written["partition-spec"] == written["partition-specs"][0]["fields"]
        assert "last-sequence-number" not in written
        assert metadata_json.from_dict(written) == metadata_json.from_dict(self.OLD)

    @pytest.mark.parametrize("key", ["schemas", "partition-specs", "sort-orders", "last-partition-id", "table-uuid"])
    def test_v2_may_not_leave_it_out(self, key: str) -> None:
        with pytest.raises(FormatError, match=f"missing field '{key}' of m.json"):
            metadata_json.from_dict(without(key), path="m.json")


class TestReading:
    """What is optional may be missing or null; what contradicts itself is refused."""

    @pytest.mark.parametrize("none", [-1, None])
    def test_no_snapshot_is_minus_1_or_null(self, none: int | None) -> None:
        metadata = read(**{"current-snapshot-id": none, "refs": {}, "snapshots": []})
        assert metadata.current_snapshot() is None
        assert metadata_json.to_dict(metadata)["current-snapshot-id"] == -1

    def test_v3_writes_null(self) -> None:
        more = {"format-version": 3, "next-row-id": 0, "current-snapshot-id": -1, "refs": {}, "snapshots": []}
        assert metadata_json.to_dict(read(**more))["current-snapshot-id"] is None

    @pytest.mark.parametrize(
        "key", ["properties", "snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics", "refs"]
    )
    def test_empty_parts_may_be_missing_or_null(self, key: str) -> None:
        empty = without("current-snapshot-id", "snapshots", "refs", "snapshot-log")
        empty.pop(key, None)
        assert metadata_json.from_dict(empty) == metadata_json.from_dict({**empty, key: None})

    def test_without_refs_main_is_the_current_snapshot(self) -> None:
        assert {n: r.snapshot_id for n, r in metadata_json.from_dict(without("refs")).refs.items()} == {"main": 1}

    def test_unknown_keys_and_text_that_utf_8_cannot_hold_survive(self) -> None:
        assert metadata_json.to_dict(read(**{"from-the-future": [{"x": 1}]}))["from-the-future"] == [{"x": 1}]
        metadata = read(properties={"half": "\ud83d", "whole": "ä"})
        assert metadata_json.read(metadata_json.write(metadata)) == metadata

    def test_gzip_is_told_by_its_bytes(self) -> None:
        assert metadata_json.read(gzip.compress(json.dumps(document()).encode())) == read()

    @pytest.mark.parametrize(("more", "message"), [
        ({"current-schema-id": 3}, "unexpected id 3 .expected one of 0. in 'current-schema-id'"),
        ({"default-spec-id": 3}, "in 'default-spec-id'"), ({"default-sort-order-id": 3}, "in 'default-sort-order-id'"),
        ({"current-snapshot-id": 2}, "branch 'main' is at snapshot 1, but 'current-snapshot-id' is 2"),
        ({"current-snapshot-id": -1}, "but 'current-snapshot-id' is None"),
        ({"current-snapshot-id": 99, "refs": {}}, "unknown snapshot 99 in 'refs.main'"),
        ({"refs": {"main": {"snapshot-id": 1, "type": "tag"}}}, "expected a branch"),
        ({"snapshots": [snapshot(1), snapshot(2), snapshot(3), snapshot(1)]}, "two snapshots with the same id"),
        ({"last-sequence-number": 2}, "unexpected sequence number 3"),
        ({"format-version": True}, "unexpected type bool .expected int. in 'format-version'"),
        ({"last-updated-ms": 1.5}, "unexpected type float .expected int."),
        ({"location": None}, "unexpected type null .expected str. in 'location'"),
        ({"properties": {"a": 1}}, "in 'properties.a'"),
        ({"snapshots": [7]}, r"unexpected type int .expected object. in 'snapshots\[0\]'"),
        ({"refs": {"main": None}}, "in 'refs.main'"),
        ({"metadata-log": [{"timestamp-ms": 1}]}, r"missing field 'metadata-log\[0\].metadata-file'"),
    ])  # fmt: skip
    def test_a_contradiction_is_named_with_its_place_and_file(self, more: dict[str, Any], message: str) -> None:
        with pytest.raises(FormatError, match=f"{message}.* of m.json$"):
            read(**more)

    @pytest.mark.parametrize("version", [0, 4, 5, -1])
    def test_other_format_versions_are_refused(self, version: int) -> None:
        with pytest.raises(UnsupportedError, match=f"format version {version} of m.json"):
            read(**{"format-version": version})


class TestDamagedFiles:
    """A torn or foreign file is a FormatError with its path, whatever is wrong with it."""

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_a_file_cut_anywhere_is_found_out(self, pack: Any) -> None:
        data = pack(json.dumps(document()).encode())
        for length in range(0, len(data), 7):
            with pytest.raises(FormatError) as error:
                metadata_json.read(data[:length], path="m.json")
            assert error.value.path == "m.json"
            assert "torn" in str(error.value)

    @pytest.mark.parametrize(
        "data",
        [b"null", b"[]", b"7", b'"x"', b"{}", b"\xff\xfe\x00", b"[" * 100_000, b'{"format-version": NaN}', b"\x1f\x8b"],
    )
    def test_what_is_no_metadata_is_said_to_be_none(self, data: bytes) -> None:
        with pytest.raises(FormatError, match=r" of m\.json$"):
            metadata_json.read(data, path="m.json")

    @pytest.mark.parametrize(
        ("first", "kind"),
        [(b"Obj\x01", "an Avro file"), (b"PAR1", "a Parquet file"), (b"<html>", "a page of HTML or XML")],
    )
    def test_a_file_of_another_format_is_named(self, first: bytes, kind: str) -> None:
        with pytest.raises(FormatError, match=rf"content: {kind} \(expected table metadata\) of m\.json$"):
            metadata_json.read(first + bytes(100), path="m.json")

    def test_deeply_nested_types_are_refused(self) -> None:
        type_: Any = "int"
        for i in range(300):
            type_ = {"type": "list", "element-id": 10 + i, "element": type_, "element-required": False}
        fields = [{"id": 1, "name": "deep", "required": False, "type": type_}]
        with suppress(FormatError):  # or read: what matters is that Python's stack is not the limit that shows
            read(schemas=[{**SCHEMA, "fields": fields}])

    @pytest.mark.costly
    def test_a_changed_value_is_understood_or_refused(self) -> None:
        """Replace, drop and move values at random: only our own errors come out, and what is read can be written."""
        chance = random.Random(5)
        originals = [document(), *(self.original(name) for name in GOLDEN[::5])]
        for _ in range(400):
            changed = _mutate(chance.choice(originals), chance)
            try:
                metadata = metadata_json.from_dict(changed, path="m.json")
            except (FormatError, UnsupportedError):
                continue
            assert metadata_json.read(metadata_json.write(metadata)) == metadata

    def original(self, name: str) -> dict[str, Any]:
        return metadata_json.to_dict(metadata_json.read(golden.table(name).metadata_path.read_bytes()))


JUNK = (
    *(None, True, 0, -1, 3, 2**63, -(2**70), 1.5, "", "x", "-1"),
    *([], {}, [1], [None], {"a": 1}, "decimal(99,1)", "\ud800"),
)


def _mutate(original: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    result = json.loads(json.dumps(original))
    for _ in range(chance.choice([1, 1, 2])):
        place: Any = result
        key = chance.choice(list(place))
        while isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
            place = place[key]
            key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        if chance.random() < 0.3:
            del place[key]
        else:
            place[key] = chance.choice(JUNK)
        if not result:
            return result
    return result


class TestLittleTextOfWhichMuchIsMade:
    """A name around many fields is in the name of each; what belongs to a spec is looked for in all schemas."""

    def schema(self, name: str, count: int, schema_id: int = 0) -> dict[str, Any]:
        inner = [{"id": number, "name": f"f{number}", "required": False, "type": "int"} for number in range(2, count)]
        kind = {"type": "struct", "fields": inner}
        return {**SCHEMA, "schema-id": schema_id, "fields": [{"id": 1, "name": name, "required": False, "type": kind}]}

    def test_a_long_name_around_many_fields(self):
        with pytest.raises(FormatError, match="names of its columns, each with those around it, take more than"):
            read(schemas=[self.schema("x" * (1 << 20), 40)])
        assert read(schemas=[self.schema("x" * 1_000, 1_000)]).schema().names_bytes > 1_000_000

    def test_in_lists_the_short_names_count_as_well(self):
        kind: Any = {"type": "struct", "fields": [{"id": 9, "name": "a", "required": False, "type": "int"}]}
        kind = {"type": "list", "element-id": 2, "element": kind, "element-required": False}
        column = {"id": 1, "name": "x" * 1_000, "required": False, "type": kind}
        assert 4_000 < read(schemas=[{**SCHEMA, "fields": [column]}]).schema().names_bytes < 5_000

    def test_many_schemas_beside_the_work_of_others(self):
        many = [self.schema("x" * 100_000, 80, number) for number in range(6)]
        assert len(read(schemas=many).schemas) == 6
        with pytest.raises(metadata_json.TooLargeError, match=r"m\.json has names of columns that take more than"):
            metadata_json.from_dict(document(schemas=many), path="m.json", is_limited=True)

    def test_specs_and_schemas(self):
        schemas = [{**SCHEMA, "schema-id": number} for number in range(2_001)]
        specs = [{"spec-id": number, "fields": []} for number in range(2_000)]
        given = document(**{"schemas": schemas, "partition-specs": specs})
        assert len(metadata_json.from_dict(given).partition_specs) == 2_000
        with pytest.raises(metadata_json.TooLargeError, match="2000 partition specs and 2001 schemas"):
            metadata_json.from_dict(given, is_limited=True)

    @pytest.mark.costly
    def test_specs_of_columns_that_were_dropped(self):
        """Each needs a schema of its own, with all columns of the current one."""
        now = {**SCHEMA, "schema-id": 0, "fields": self.columns(1, 1_000)}
        before = [
            {**SCHEMA, "schema-id": number, "fields": self.columns(1_000 + number, 1)} for number in range(1, 401)
        ]
        pairs = [(number, number + 1) for number in range(1, 400)]
        specs = [
            {"spec-id": number, "fields": [self.partition(1_000 + one) for one in pair]}
            for number, pair in enumerate(pairs)
        ]
        changes: dict[str, Any] = {"schemas": [now, *before], "partition-specs": specs, "last-column-id": 2_000}
        found = metadata_json.from_dict(document(**changes))
        made = [found.schema_of_spec(number) for number in range(399)]
        assert all(len(one.fields_by_id) == 1_002 for one in made)
        kept = [one is found.schema_of_spec(number) for number, one in enumerate(made)]
        assert 200 < sum(kept) < 300, "memory for some"
        with pytest.raises(metadata_json.TooLargeError, match="399 partition specs of columns that were dropped"):
            metadata_json.from_dict(document(**changes), is_limited=True)
        few = {**changes, "partition-specs": specs[:10]}
        found = metadata_json.from_dict(document(**few), is_limited=True)
        assert found.schema_of_spec(3) is found.schema_of_spec(3)

    def columns(self, first: int, count: int) -> list[dict[str, Any]]:
        return [{"id": n, "name": f"c{n}", "required": False, "type": "int"} for n in range(first, first + count)]

    def partition(self, source: int) -> dict[str, Any]:
        return {"source-id": source, "field-id": source + 9_000, "name": f"p{source}", "transform": "identity"}

    def test_marks_of_values_that_are_escaped_in_a_text(self):
        """Texts of summaries are lists and documents themselves."""
        for mark in (r"\u002c", r"\u002C", r"\u005b", r"\u007B", ","):
            data = json.dumps(document(properties={"a": "@"})).replace("@", mark * 2_000).encode()
            with pytest.raises(metadata_json.TooLargeError, match="more than 1000 values"):
                metadata_json.read(data, most_bytes=1 << 20, most_values=1_000, most_memory=1 << 30)
        data = json.dumps(document(properties={"a": "é" * 2_000})).encode()
        assert metadata_json.read(data, most_values=1_000, most_memory=1 << 30).properties["a"][0] == "é"

    def test_the_name_of_a_partition_field(self):
        field = {"source-id": 1, "field-id": 1000, "name": "p" * 1_001, "transform": "identity"}
        given = document(**{"partition-specs": [{"spec-id": 0, "fields": [field]}]})
        assert len(metadata_json.from_dict(given).spec().fields) == 1
        with pytest.raises(metadata_json.TooLargeError, match="a partition field whose name has 1001 characters"):
            metadata_json.from_dict(given, is_limited=True)


class TestOtherDocuments:
    """What is valid and no metadata of a table that can be read is said to be what it is."""

    @pytest.mark.parametrize(("key", "kind"), [("view-uuid", "view"), ("function-uuid", "function")])
    def test_a_view_and_a_function(self, key: str, kind: str) -> None:
        found = {key: UUID, "format-version": 1, "location": "s3://b/v", "versions": [], "properties": {}}
        with pytest.raises(
            UnsupportedError, match=rf"metadata of a {kind} .* of m\.json: name a table, {kind}s are not"
        ):
            metadata_json.read(json.dumps(found).encode(), path="m.json")

    def test_a_table_may_have_such_a_field_of_its_own(self) -> None:
        assert read(**{"view-uuid": UUID}).unknown == {"view-uuid": UUID}

    @pytest.mark.parametrize("codec", ["zstd", "lz4", "bz2"])
    def test_another_compression(self, codec: str) -> None:
        data = (
            pa.compress(json.dumps(document()).encode(), codec, asbytes=True) if codec != "bz2" else bz2.compress(b"x")
        )
        with pytest.raises(UnsupportedError) as error:
            metadata_json.read(data, path="m.json")
        name = "bzip2" if codec == "bz2" else codec
        assert str(error.value).startswith(f"unexpected compression {name} of the whole file (expected table metadata)")
        assert "in m.json; supported are gzip and none: set the table's property" in str(error.value)

    def test_encryption(self) -> None:
        with pytest.raises(
            UnsupportedError, match=r"encrypted file \(expected table metadata\) in m\.json: .* engine that"
        ):
            metadata_json.read(b"AGS1" + bytes(100), path="m.json")


class TestAsking:
    """Looking up what a table has."""

    def test_snapshots_are_found_by_id(self) -> None:
        found = read().snapshot(2)
        assert found is not None
        assert found.manifest_list == "s3://b/2.avro"
        assert read().snapshot(99) is None

    def test_a_ref_gives_its_snapshot(self) -> None:
        found = [read().ref_snapshot(name) for name in ("main", "audit", "v2")]
        assert [s and s.snapshot_id for s in found] == [1, 3, 2]
        empty = without("current-snapshot-id", "refs", "snapshots", "snapshot-log")
        assert metadata_json.from_dict(empty).ref_snapshot() is None
        with pytest.raises(NotFoundError) as error:
            read().ref_snapshot("adit")
        assert str(error.value) == "no branch or tag 'adit' in table s3://b/t; it has: audit, main, v2"

    @pytest.mark.parametrize(("time", "expected"), [(999, None), (1000, 1), (2999, 2), (3999, 2), (4000, 1), (9999, 1)])
    def test_time_travel_goes_by_what_was_current_then(self, time: int, expected: int | None) -> None:
        """By the log, not by the ancestors of what is current now."""
        found = read().snapshot_as_of(time)
        assert (None if found is None else found.snapshot_id) == expected

    def test_ancestors_come_newest_first_as_far_as_they_are_known(self) -> None:
        assert [s.snapshot_id for s in read().ancestors(3)] == [3, 2, 1]
        expired = read(snapshots=[snapshot(1), snapshot(3, 2)], refs={"main": {"snapshot-id": 1, "type": "branch"}})
        assert [s.snapshot_id for s in expired.ancestors(3)] == [3]
        assert list(read().ancestors(None)) == []
        circle = read(snapshots=[snapshot(1, 3), snapshot(2, 1), snapshot(3, 2)])
        assert [s.snapshot_id for s in circle.ancestors(2)] == [2, 1, 3]

    @pytest.mark.parametrize("ask", ["schema", "spec", "sort_order"])
    def test_an_unknown_id_is_not_found(self, ask: str) -> None:
        with pytest.raises(NotFoundError, match="with id 7; the table has: 0"):
            getattr(read(), ask)(7)

    def test_a_spec_is_read_with_the_newest_schema_that_has_its_columns(self) -> None:
        fields = [{"id": 2, "name": "x", "required": False, "type": "int"}]
        dropped = {"type": "struct", "schema-id": 1, "fields": fields}
        spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "id", "transform": "identity"}]}
        metadata = read(**{"schemas": [SCHEMA, dropped], "current-schema-id": 1, "partition-specs": [spec]})
        assert metadata.schema_of_spec(0).schema_id == 0


class TestANewTable:
    """Fresh ids for all columns and partition fields; nothing is kept as a property that is a field."""

    # Any ids, like those of another writer's schema.
    FIELDS = (
        NestedField(id=7, name="id", type=LongType(), required=True),
        NestedField(id=3, name="n", type=LongType()),
    )
    GIVEN = Schema(fields=FIELDS, schema_id=9, identifier_field_ids=(7,))

    def new(self, **more: Any) -> TableMetadata:
        return new_table_metadata(
            **{"location": "s3://b/t", "schema": self.GIVEN, "table_uuid": UUID, "now_ms": 5, **more}
        )

    def test_columns_are_numbered_from_1(self) -> None:
        metadata = self.new()
        assert metadata.schema().names == {"id": 1, "n": 2}
        assert metadata.schema().identifier_field_ids == (1,)
        assert (metadata.schema().schema_id, metadata.last_column_id) == (0, 2)

    def test_spec_and_order_follow_their_columns(self) -> None:
        metadata = self.new(
            spec=spec_from_shorthand(["bucket(4, n)", "id"], self.GIVEN),
            sort_order=sort_order_from_shorthand(["n desc"], self.GIVEN),
        )
        assert [(f.source_id, f.field_id) for f in metadata.spec().fields] == [(2, 1000), (1, 1001)]
        assert metadata.last_partition_id == 1001
        assert (metadata.sort_order().order_id, metadata.sort_order().fields[0].source_id) == (1, 2)

    def test_without_them_it_is_unpartitioned_and_unsorted(self) -> None:
        metadata = self.new()
        assert (metadata.default_spec_id, metadata.spec().fields, metadata.last_partition_id) == (0, (), 999)
        assert (metadata.default_sort_order_id, metadata.sort_order().fields) == (0, ())

    def test_the_format_version_is_2_unless_asked_for(self) -> None:
        assert self.new().format_version == 2
        asked = self.new(properties={"format-version": "3", "uuid": "x", "a": "b"})
        assert (asked.format_version, asked.properties, asked.next_row_id) == (3, {"a": "b"}, 0)
        with pytest.raises(UnsupportedError):
            self.new(properties={"format-version": "4"})
        with pytest.raises(InvalidInputError):
            self.new(properties={"format-version": "two"})

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_it_can_be_written_and_read(self, version: int) -> None:
        metadata = self.new(format_version=version, spec=spec_from_shorthand(["id"], self.GIVEN))
        assert metadata_json.read(metadata_json.write(metadata)) == metadata

    @pytest.mark.parametrize("type_", ["timestamp_ns", "variant", "unknown"])
    def test_types_of_v3_need_v3(self, type_: str) -> None:
        schema = schema_from_shorthand({"c": type_})
        with pytest.raises(InvalidInputError, match=f"type {type_} of column 'c' needs format version 3"):
            self.new(schema=schema)
        assert self.new(schema=schema, format_version=3).format_version == 3

    def test_a_spec_that_does_not_fit_the_schema_is_refused(self) -> None:
        other = schema_from_shorthand({"a": "int", "b": "int"})
        with pytest.raises(InvalidInputError, match="unknown column id 1 in the partition field 'a'"):
            self.new(spec=spec_from_shorthand(["a"], other))

    def test_partition_names_that_are_one_in_avro_are_refused(self) -> None:
        """Iceberg Java refuses to read the manifests of such a table."""
        schema = schema_from_shorthand({"a-b": "int", "a_x2Db": "int"})
        with pytest.raises(InvalidInputError, match="'a-b' and 'a_x2Db' are both 'a_x2Db' in Avro"):
            self.new(schema=schema, spec=spec_from_shorthand(["`a-b`", "a_x2Db"], schema))
