"""Little text of which much could be made: metadata, partitions and answers, measured in processes of their own.

What is small as it is stored, and within the limits of its size, must not become large by what is made of it: names
within names, a long name that is told again, partitions of many or of long values, elements and structs of a byte.
"""

import functools
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.format.avro.container import read_blocks, read_header, write_container, write_long
from airflow_iceberg.format.manifests.avro import write_manifest, write_manifest_list
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.table import Table
from tests.catalogs.test_hostile_servers import HostileMetastore, _call_of
from tests.catalogs.test_rest_http import table as rest_table
from tests.support.builders import new_table
from tests.support.hostile_server import HostileServer, measured, whole
from tests.support.http_server import document

pytestmark = [pytest.mark.services, pytest.mark.slow]
_MB = 1 << 20
MOST_BYTES, MOST_S = 256 * _MB, 60
Document = dict[str, Any]


def field(field_id: int, name: str, kind: Any = "int") -> Document:
    return {"id": field_id, "name": name, "required": False, "type": kind}


def struct_of(*fields: Document) -> Document:
    return {"type": "struct", "fields": list(fields)}


def schema(*fields: Document, schema_id: int = 0) -> Document:
    return {**struct_of(*fields), "schema-id": schema_id}


def chain(depth: int, name: str, leaf: Any) -> Any:
    return functools.reduce(lambda inner, number: struct_of(field(100_000 + number, name, inner)), range(depth), leaf)


def some(first: int, count: int) -> list[Document]:
    return [field(number, f"field_number_{number}") for number in range(first, first + count)]


def snapshots(first: int, count: int, **summary: str) -> Iterator[Document]:
    for number in range(first, first + count):
        made = {"snapshot-id": number, "timestamp-ms": number, "manifest-list": "x"}
        made["summary"] = {"operation": "append", **summary}
        yield {**made, **({"parent-snapshot-id": number - 1} if number > first else {})}


def branch(snapshot_id: int) -> Document:
    return {"snapshot-id": snapshot_id, "type": "branch"}


def shapes() -> dict[str, Document]:
    key = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    wide = chain(150, "x", struct_of(*some(2, 20_000)))
    return {
        "a long name around many": {"schemas": [schema(field(1, "x" * 10 * _MB, struct_of(*some(2, 3_000))))]},
        "names within names": {"schemas": [schema(field(1, "a", chain(200, "x" * 100_000, "int")))]},
        "many schemas": {
            "schemas": [schema(field(1, "x" * 50_000, struct_of(*some(2, 300))), schema_id=n) for n in range(300)]
        },
        "a sort order": {
            "schemas": [schema(field(1, "x" * _MB))],
            "sort-orders": [{"order-id": 1, "fields": [key] * 50_000}],
            "default-sort-order-id": 1,
        },
        "structs around many": {"schemas": [schema(field(1, "a", wide), schema_id=n) for n in range(2)]},
        "specs and schemas": {
            "schemas": [schema(field(1, "a"), field(n + 2, "b"), schema_id=n) for n in range(15_000)],
            "partition-specs": [
                {"spec-id": n, "fields": [{"name": "p", "transform": "identity", "source-id": n + 2, "field-id": 1000}]}
                for n in range(15_000)
            ],
        },
        "a branch that many name": {
            "snapshots": [
                *snapshots(1, 18_000, **{"airflow.audited-snapshot-id": "68000"}),
                *snapshots(50_001, 18_000),
            ],
            "refs": {"main": branch(18_000), "side": branch(68_000)},
            "current-snapshot-id": 18_000,
        },
    }


def test_metadata_and_its_pages(tmp_path):
    made = new_table(tmp_path, schema={"a": "int"}, properties={"format-version": "1"})
    base = {**metadata_json.to_dict(made.metadata), "last-sequence-number": 0}
    found = {}
    for kind, changes in shapes().items():
        path = tmp_path / "m.metadata.json"
        path.write_text(json.dumps({**base, **changes}, separators=(",", ":")))
        found[kind] = measured(
            """
            from types import SimpleNamespace
            from airflow_iceberg.catalogs.metadata_file import read_metadata
            from airflow_iceberg.errors import IcebergError
            from airflow_iceberg.inventory.limited import LimitedFileIO
            from airflow_iceberg.plan.conditions.branch_published import BranchPublishedCondition
            from airflow_iceberg.plan.conditions.partition import by_field
            from airflow_iceberg.storage import load_file_io
            from airflow_iceberg.ui import snapshots, views
            io = LimitedFileIO(load_file_io({}))
            """,
            f"""
            m = read_metadata(io, {path.as_uri()!r})
            table = SimpleNamespace(metadata=m, schema=m.schema, spec=m.spec, sort_order=m.sort_order)
            table.current_snapshot, table.location, table.metadata_location = m.current_snapshot, m.location, "x"
            views.facts_of(table), views.refs_of(m), views.columns_of(m.schema()), views.schema_history(m)
            views.timeline(m, branch=None, page=1), views.charts_of(m, str, str), views.maintenance_of(m)
            BranchPublishedCondition(branch="side", snapshot_id=7_777_777).decide(m, None, now_ms=1)
            try:
                by_field(m, {{"p": "1"}})
            except IcebergError:
                pass
            """,
            timeout_s=240,
        )
    assert {kind: one.more_bytes // _MB for kind, one in found.items() if one.more_bytes > MOST_BYTES} == {}
    assert {kind: one.seconds for kind, one in found.items() if one.seconds > MOST_S} == {}
    # Those that are read are not refused for another reason.
    assert {kind for kind, one in found.items() if one.said == "no error"} == {
        *("a sort order", "structs around many", "a branch that many name")
    }


@pytest.mark.parametrize("kind", ["many values", "long values"])
def test_partitions(kind, tmp_path):
    made = _wide(tmp_path) if kind == "many values" else _long(tmp_path)
    found = measured(
        f"""
        from types import SimpleNamespace
        from airflow_iceberg.inventory.limited import LimitedFileIO
        from airflow_iceberg.table import Table
        from airflow_iceberg.triggers._facts import TableFacts
        from airflow_iceberg.ui import snapshots, views
        import pyarrow.compute
        table = Table.from_metadata({made.metadata_location!r})
        snapshot = table.current_snapshot()
        facts = TableFacts(SimpleNamespace(io=table.io), SimpleNamespace(metadata=table.metadata, io=table.io))
        facts._inspection = lambda: Table(table.state, io=LimitedFileIO(table.io), catalog=None).inspect
        """,
        """
        views.health_of(table)
        snapshots.snapshot_view(table, snapshots.run_of(table, snapshot.snapshot_id))
        facts.touched(snapshot)
        facts.partitions(snapshot.snapshot_id)
        """,
        timeout_s=240,
    )
    assert "which are not" in found.said
    assert found.more_bytes < MOST_BYTES
    assert found.seconds < MOST_S


def _listed(table: Table, manifests: list[bytes]) -> Table:
    """Make a table's snapshot have other manifests, of which its list says that they are small."""
    snapshot = table.current_snapshot()
    (row,) = read_manifests(table.io, snapshot)
    path = Path(row.manifest_path.removeprefix("file://"))
    rows = []
    for number, data in enumerate(manifests):
        other = path.with_name(f"forged-{number}.avro")
        other.write_bytes(data)
        rows.append(replace(row, manifest_path=other.as_uri(), manifest_length=1))
    data = write_manifest_list(
        rows, snapshot_id=snapshot.snapshot_id, parent_snapshot_id=None, sequence_number=1, format_version=2
    )
    Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(data)
    return table


def _manifest(table: Table, partitions: list[tuple[Any, ...]]) -> bytes:
    (row,) = read_manifests(table.io, table.current_snapshot())
    (entry,) = read_entries(table.io, row)
    entries = [replace(entry, data_file=replace(entry.data_file, partition=one)) for one in partitions]
    return bytes(write_manifest(entries, schema=table.schema(), spec=table.spec(), format_version=2))


def _long(folder: Path) -> Table:
    made = new_table(folder, schema={"id": "long", "p": "string"}, partition_by=["p"])
    made.append(pa.table({"id": [1], "p": ["x"]}))
    text = "x" * 400_000
    return _listed(made, [_manifest(made, [(f"{text}{m}-{n}",) for n in range(90)]) for m in range(30)])


def _wide(folder: Path) -> Table:
    names, first = [f"c{number}" for number in range(800)], 1 << 40
    made = new_table(folder, schema={"id": "long", **dict.fromkeys(names, "long")}, partition_by=names)
    columns = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)])
    made.append(pa.table({"id": [1], **{name: [None] for name in names}}, schema=columns))
    data, other = (_manifest(made, [(first + number, *[None] * 799)]) for number in range(2))
    header = read_header(data)
    ((_, entry),), ((_, next_one),) = list(read_blocks(data, header)), list(read_blocks(other, read_header(other)))
    at = next(place for place in range(len(entry)) if entry[place] != next_one[place])
    head, tail = entry[:at], entry[at + len(write_long(first)) :]
    kept = {key: value.decode() for key, value in header.metadata.items() if key != "avro.codec"}
    manifests = []
    for manifest in range(8):
        numbers = range(first + manifest * 4_000, first + (manifest + 1) * 4_000)
        blocks = [
            (400, b"".join(head + bytes(write_long(number)) + tail for number in numbers[start : start + 400]))
            for start in range(0, 4_000, 400)
        ]
        manifests.append(bytes(write_container(kept, blocks, codec="deflate")))
    return _listed(made, manifests)


def test_the_answer_of_a_catalog():
    """The API server and the triggerer have the same limits for metadata that a server sends itself."""
    shape: dict[str, Document] = {
        "many properties": {str(number): "y" * 30 for number in range(2_000_000)},
        "a long text": {"a": "x" * 150 * _MB},
        "a wide character": {"a": "x" * 30 * _MB + "\N{GRINNING FACE}"},
        "as much as is read": {"a": "x" * 30 * _MB},
    }
    found = {}
    for kind, properties in shape.items():
        answer = json.loads(json.dumps(rest_table()))
        answer["metadata"]["properties"] = properties
        body = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
        with HostileServer(
            lambda _, body=body: [whole(body, ETag="x")],
            honest=lambda _: document({"defaults": {}, "overrides": {}}),
            when="GET /v1/namespaces/db/tables/t",
        ) as server:
            found[kind] = measured(
                "from airflow_iceberg.catalogs import load_catalog",
                f"""
                catalog = load_catalog("prod", uri={server.uri!r})
                catalog.remember_states()
                catalog.limit_reads()
                catalog.load("db.t")
                """,
            )
    assert {kind: one.more_bytes // _MB for kind, one in found.items() if one.more_bytes > MOST_BYTES} == {}
    assert {kind for kind, one in found.items() if one.said == "no error"} == {"as much as is read"}
    assert all("with deferrable=False" in one.said for one in found.values() if one.said != "no error")


def test_answers_of_a_store():
    """A parser of XML makes an object of each element, and of an entity as much as it says."""
    entity = b'<!DOCTYPE a [<!ENTITY x "' + b"y" * 100_000 + b'">]>'
    bombs = {
        "elements": b"<ListBucketResult>" + b"<a/>" * (7 * _MB // 4) + b"</ListBucketResult>",
        "entities": entity + b"<ListBucketResult><Prefix>" + b"&x;" * 24_000 + b"</Prefix></ListBucketResult>",
        "30 MB": b"<ListBucketResult>" + b"<Prefix>aaaaaaaaaaaa</Prefix>" * _MB + b"</ListBucketResult>",
        "attributes": b"<ListBucketResult " + b" ".join(b'a%d=""' % n for n in range(600_000)) + b"/>",
    }
    for status in (200, 400):
        for kind, body in bombs.items():
            with HostileServer(
                lambda _, body=body, status=status: [whole(body, status, Content_Type="application/xml")]
            ) as server:
                found = measured(
                    f"""
                    from airflow_iceberg.storage import load_file_io
                    io = load_file_io({{
                        "s3.endpoint": {server.uri!r}, "s3.region": "us-east-1", "s3.access-key-id": "k",
                        "s3.secret-access-key": "s3cret-key", "s3.request-timeout": "5",
                    }})
                    io.filesystem("s3://b/w")
                    """,
                    "list(io.list('s3://b/w'))",
                )
            assert found.more_bytes < MOST_BYTES, (kind, status)
            assert found.seconds < MOST_S, (kind, status)


def test_structs_of_a_metastore():
    """Hive's structs without fields are a byte each."""
    million = struct.pack(">bi", 12, 1_000_000) + b"\0" * 1_000_000
    columns = struct.pack(">bh", 15, 1) + million + struct.pack(">bh", 15, 9) + million + b"\0"
    one = struct.pack(">bh", 12, 7) + columns + struct.pack(">bh", 15, 8) + million + b"\0"
    answers = {
        "client.table('db', 't')": (b"get_table_req", struct.pack(">bh", 12, 1) + one),
        "list(client.tables('db', ['t']))": (b"get_table_objects_by_name_req", struct.pack(">bh", 15, 1) + million),
    }
    for ask, (call, body) in answers.items():
        head = _call_of(call).replace(_call_of(b"")[:4], struct.pack(">i", -2147418110))
        answer = head + struct.pack(">bh", 12, 0) + body + b"\0\0"
        with HostileMetastore(lambda answer=answer: [answer]) as server:
            found = measured(
                "from airflow_iceberg.catalogs.hive.client import HiveClient",
                f"""
                client = HiveClient("prod", {{"uri": {server.uri!r}, "hive.metastore.client.socket.timeout": "5s"}})
                {ask}
                """,
            )
            assert "it has more than 400000 structs, the most for an answer" in found.said
            assert found.more_bytes < MOST_BYTES, ask
            assert server.calls == 1, "the same answer is not asked for again"


PAIMON = """
from airflow_iceberg.inventory.limited import LimitedFileIO
from airflow_iceberg.paimon.new_snapshot import PaimonCondition
from airflow_iceberg.paimon.table import PaimonTable
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.triggers.paimon import _MOST_BYTES, look
import fastavro, pyarrow
io = LimitedFileIO(load_file_io({{}}))
table = PaimonTable({location!r}, io, most_bytes=_MOST_BYTES)
"""


def test_the_files_of_a_paimon_table(tmp_path):
    arrays = '"x": [' + "[]," * (14 * _MB // 3) + "[]]"
    columns = [{"id": 0, "name": "p", "type": "INT NOT NULL"}]
    table_schema = {"version": 3, "id": 0, "fields": columns, "highestFieldId": 0, "partitionKeys": ["p"]}
    snapshot = {"version": 3, "id": 1, "schemaId": 0, "baseManifestList": "list", "deltaManifestList": "list"}
    snapshot |= {"commitUser": "u", "commitIdentifier": 1, "commitKind": "APPEND", "timeMillis": 1}
    names = ("_VERSION", "_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES", "_SCHEMA_ID")
    fields: list[Document] = [{"name": name, "type": "long"} for name in names]
    fields += [{"name": "_FILE_NAME", "type": "string"}, {"name": "x", "type": {"type": "array", "items": "int"}}]
    record = b"".join(bytes(write_long(value)) for value in (2, 1, 0, 0, 0, 1)) + b"m" + bytes(write_long(0))
    long_one = record[:-1] + bytes(write_long(1_000_000)) + bytes(write_long(100)) * 1_000_000 + bytes(write_long(0))
    avro = {"avro.schema": json.dumps({"type": "record", "name": "r", "fields": fields})}
    lists = {
        "records": bytes(write_container(avro, [(50_000, record * 50_000)] * 60, codec="deflate")),
        "numbers": bytes(write_container(avro, [(1, long_one)] * 20, codec="deflate")),
        "parquet": b"PAR1" + bytes(100) + b"PAR1",
    }
    found = {}
    for kind in ("a snapshot", "a schema", *lists):
        folder = tmp_path / kind.replace(" ", "-")
        texts = {"schema/schema-0": json.dumps(table_schema), "snapshot/snapshot-1": json.dumps(snapshot)}
        name = {"a snapshot": "snapshot/snapshot-1", "a schema": "schema/schema-0"}.get(kind, "")
        for path, text in {**texts, "snapshot/LATEST": "1"}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(f"{text[:-1]}, {arrays}}}" if path == name else text)
        (folder / "manifest").mkdir()
        (folder / "manifest/list").write_bytes(lists.get(kind, lists["records"]))
        found[kind] = measured(
            PAIMON.format(location=folder.as_uri()), "print(look(table, PaimonCondition(partition={'p': 1}), None))"
        )
    assert {kind: one.more_bytes // _MB for kind, one in found.items() if one.more_bytes > MOST_BYTES} == {}
    assert {kind: one.seconds for kind, one in found.items() if one.seconds > MOST_S} == {}
    reasons = ["expected at most 16777216 with 500000 values"] * 2
    reasons += ["not read here", "damaged deflate block", "not read here"]
    assert [reason in one.said for reason, one in zip(reasons, found.values(), strict=True)] == [True] * 5, found


def test_a_line_of_a_source(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 16 * _MB, 1) * 64)
    found = measured(
        """
        from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
        from airflow_iceberg.jobs.sources.readers import read
        from airflow_iceberg.jobs.sources.unit import Unit
        from airflow_iceberg.storage import load_file_io
        io = load_file_io({})
        """,
        f"""
        unit = Unit(location={str(path)!r}, file_format="jsonl", compression="gzip", size_bytes=1)
        list(read(unit, io, schema=schema_from_shorthand({{"a": "int"}}), options={{}}))
        """,
    )
    assert "line 1 has more than 67108864 bytes" in found.said
    assert found.more_bytes < MOST_BYTES
