"""Every document that is written says the same when it is read again: metadata JSON, manifests, manifest lists."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.format.manifests import entries as m
from airflow_iceberg.format.manifests.avro import read_manifest, read_manifest_list, write_manifest, write_manifest_list
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.types import NestedField, PrimitiveType
from tests.format.test_manifest_columns import BYTES, NUMBERS, TEXTS, files
from tests.support import strategies as given_values
from tests.support.sampling import examples

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CODECS = st.sampled_from(["null", "deflate", "snappy", "zstandard"])


@st.composite
def metadata_documents(draw: st.DrawFn) -> dict[str, Any]:
    """A legal table of version 2 or 3 with any schemas, specs, orders, snapshots, references and logs."""
    version, count = draw(st.sampled_from([2, 3])), draw(st.integers(0, 4))
    schemas = draw(st.lists(given_values.schemas(), min_size=1, max_size=3))
    documents = [{**schema.to_dict(), "schema-id": number} for number, schema in enumerate(schemas)]
    plain = [field for field in schemas[0].fields if isinstance(field.type, PrimitiveType)]
    chosen = draw(st.lists(st.sampled_from(plain), max_size=3, unique_by=lambda field: field.id)) if plain else []
    fields = [
        {
            "source-id": f.id,
            "field-id": 1000 + n,
            "name": f"p{n}\u00e4",
            "transform": draw(st.sampled_from(["void", "odd[7]"])),
        }
        for n, f in enumerate(chosen)
    ]
    order = [
        {
            "transform": "identity",
            "source-id": f.id,
            "direction": "desc",
            "null-order": draw(st.sampled_from(["nulls-first", "nulls-last"])),
        }
        for f in chosen
    ]
    snapshots = [draw(snapshots_of(number, version, len(schemas))) for number in range(1, count + 1)]
    refs = {name: draw(refs_of(count)) for name in draw(st.sets(TEXTS, max_size=3))} if count else {}
    document: dict[str, Any] = {
        "format-version": version, "table-uuid": UUID, "location": "s3://b/" + draw(TEXTS),
        "last-sequence-number": count, "last-updated-ms": 10_000_000,
        "last-column-id": max(schema.highest_field_id for schema in schemas), "schemas": documents,
        "current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 3, "fields": fields}],
        "default-spec-id": draw(st.sampled_from([0, 3])), "last-partition-id": 1000 + len(fields),
        "sort-orders": [{"order-id": 0, "fields": []}, *([{"order-id": 1, "fields": order}] if order else [])],
        "default-sort-order-id": 0, "properties": draw(st.dictionaries(TEXTS, st.text(max_size=9), max_size=3)),
        "current-snapshot-id": count or (None if version == 3 else -1),
        "refs": {**refs, **({"main": {"snapshot-id": count, "type": "branch"}} if count else {})},
        "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": 1000 * n, "snapshot-id": n} for n in range(1, count + 1)],
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": draw(TEXTS)}], "x-unknown": draw(JSON),
    }  # fmt: skip
    if version == 3:
        document |= {"next-row-id": 10**9, "encryption-keys": []}
    return document


@st.composite
def snapshots_of(draw: st.DrawFn, number: int, version: int, schemas: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": 1000 * number,
        "summary": {"operation": "append", **draw(st.dictionaries(TEXTS, st.text(max_size=5), max_size=2))},
        "manifest-list": draw(TEXTS),
    }
    if number > 1 and draw(st.booleans()):
        document["parent-snapshot-id"] = number - 1
    if draw(st.booleans()):
        document["schema-id"] = draw(st.integers(0, schemas - 1))
    if version == 3:
        document |= {"first-row-id": draw(st.integers(0, 10**6)), "added-rows": draw(st.integers(0, 10**6))}
    return document


@st.composite
def refs_of(draw: st.DrawFn, count: int) -> dict[str, Any]:
    document = {"snapshot-id": draw(st.integers(1, count)), "type": draw(st.sampled_from(["branch", "tag"]))}
    ages = {"max-ref-age-ms": draw(st.none() | st.integers(1, 2**60))}
    if document["type"] == "branch":
        ages |= {"max-snapshot-age-ms": draw(st.none() | st.integers(1, 2**60))}
        ages |= {"min-snapshots-to-keep": draw(st.none() | st.integers(1, 2**31 - 1))}
    return {**document, **{name: value for name, value in ages.items() if value is not None}}


class TestMetadataJson:
    """Reading is the inverse of writing, whatever a table has been through."""

    @pytest.mark.costly
    @examples(60)
    @given(metadata_documents())
    def test_nothing_changes(self, document: dict[str, Any]) -> None:
        metadata = metadata_json.read(json.dumps(document).encode())
        written = metadata_json.write(metadata)
        again = metadata_json.read(written)
        assert again == metadata
        assert metadata_json.write(again) == written
        kept = json.loads(written)
        assert {name: kept[name] for name in document if name in kept} == {
            name: value for name, value in document.items() if name in kept
        }
        assert {"schemas", "partition-specs", "snapshots", "refs", "x-unknown"} <= set(kept)


@st.composite
def entries_of(draw: st.DrawFn, content: m.ManifestContent, types: Sequence[Any]) -> m.ManifestEntry:
    file = draw(
        files(types).filter(lambda file: (file.content is m.FileContent.DATA) is (content is m.ManifestContent.DATA))
    )
    return m.ManifestEntry(
        status=draw(st.sampled_from(m.EntryStatus)),
        data_file=file,
        **{name: draw(NUMBERS) for name in ("snapshot_id", "sequence_number", "file_sequence_number")},
    )


@st.composite
def lists_of(draw: st.DrawFn) -> tuple[m.ManifestFile, ...]:
    summaries = st.lists(
        st.builds(
            m.FieldSummary,
            contains_null=st.booleans(),
            contains_nan=st.none() | st.booleans(),
            lower_bound=st.none() | BYTES,
            upper_bound=st.none() | BYTES,
        ),
        max_size=3,
    ).map(tuple)
    counts = {
        f"{kind}_{what}_count": NUMBERS for kind in ("added", "existing", "deleted") for what in ("files", "rows")
    }
    counts |= {name: st.integers(0, 2**31 - 1) for name in counts if "files" in name}
    one = st.builds(
        m.ManifestFile, manifest_path=TEXTS, manifest_length=NUMBERS, partition_spec_id=st.integers(0, 2**31 - 1),
        content=st.sampled_from(m.ManifestContent), sequence_number=NUMBERS, min_sequence_number=NUMBERS,
        added_snapshot_id=NUMBERS, partitions=summaries, key_metadata=st.none() | BYTES, **counts,
    )  # fmt: skip
    return tuple(draw(st.lists(one, max_size=4)))


class TestAvro:
    """Of any partition type, in any codec, with every field and without."""

    @pytest.mark.costly
    @examples(60)
    @given(st.data())
    def test_manifests(self, data: st.DataObject) -> None:
        types = data.draw(st.lists(given_values.primitive_types(), max_size=3))
        columns = tuple(NestedField(id=n + 1, name=f"c{n}", type=kind) for n, kind in enumerate(types))
        fields = (
            PartitionField(source_id=n, field_id=999 + n, name=f"c{n - 1}", transform=IdentityTransform())
            for n in range(1, len(types) + 1)
        )
        content = data.draw(st.sampled_from(m.ManifestContent))
        given_entries = data.draw(st.lists(entries_of(content, types), max_size=5))
        written = write_manifest(
            given_entries,
            schema=Schema(columns),
            spec=PartitionSpec(0, tuple(fields)),
            format_version=3,
            content=content,
            codec=data.draw(CODECS),
        )
        assert repr(list(read_manifest(written))) == repr(given_entries)  # by text, since NaN is not NaN

    @pytest.mark.costly
    @examples(60)
    @given(lists_of(), st.none() | NUMBERS, CODECS)
    def test_manifest_lists(self, manifests: tuple[m.ManifestFile, ...], parent: int | None, codec: str) -> None:
        written = write_manifest_list(
            manifests, snapshot_id=7, parent_snapshot_id=parent, sequence_number=9, format_version=2, codec=codec
        )
        assert read_manifest_list(written) == manifests
