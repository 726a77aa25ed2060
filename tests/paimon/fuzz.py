"""Damaged Paimon metadata: a value or one of our own errors has to come out, in bounded time and memory.

    python -m tests.paimon.fuzz --runs 100000 [--seed 1] [--target manifest …]

Inputs are made from the files of the reference tables and from rows of every type, damaged as those of `tests.fuzz`.
"""

import argparse
import contextlib
import io
import json
import random
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyarrow import orc, parquet

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.avro.container import read_header
from airflow_iceberg.paimon.binary_row import decode_row
from airflow_iceberg.paimon.data_manifests import read_manifest
from airflow_iceberg.paimon.index_files import check_vector_file, read_hashes, read_vector
from airflow_iceberg.paimon.index_manifests import read_index_manifest
from airflow_iceberg.paimon.manifest_lists import FileFilter, read_manifest_list
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot, Statistics, Tag
from airflow_iceberg.paimon.stats import StatsDecoder
from airflow_iceberg.paimon.types import parse_type
from tests.fuzz.containers import mutate_avro
from tests.fuzz.documents import dumped, mutate_bytes, mutate_document
from tests.fuzz.runner import run_and_report
from tests.support.paimon_tables import tables
from tests.support.paimon_writer import as_arrow, encode_row

SECONDS = 3.0
"""What an input may take of the processor, besides its size."""
TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(38, 10)"),
    *("DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)", "STRING", "BYTES"),
    {"type": "ARRAY", "element": "STRING"},
    {"type": "MAP", "key": "STRING", "value": "INT"},
    {"type": "MULTISET", "element": "INT"},
    {"type": "ROW", "fields": [{"id": 0, "name": "a", "type": {"type": "ARRAY", "element": "BIGINT"}}]},
    {"type": "VECTOR", "element": "FLOAT", "length": 3},
)
VALUES = (
    *(True, -5, 300, 2**31 - 1, -(2**63), 1.5, -0.0, "1234.56", "-0.0000000001", 20777, 1000, -1000, 456789, 5, 7),
    *("hello world", b"\x00\xff" * 5, ("a", None, "longer than seven"), {"k": 1, "a long key": None}, {1: 2}),
    *(((1, None),), (1.0, 2.0, 3.0)),
)

Target = Callable[[bytes, Any], object]


# --- what is fed ------------------------------------------------------------------------------------------------------


@cache
def files(pattern: str) -> tuple[tuple[bytes, PaimonSchema], ...]:
    """Return files of the reference tables, with the schemas of their tables."""
    found = []
    for table in tables():
        schemas = sorted(table.folder.glob("schema/schema-*"))
        schema = PaimonSchema.from_json(schemas[0].read_bytes())
        for path in sorted(table.folder.glob(pattern))[:3]:
            found.append((path.read_bytes(), schema))
    return tuple(found)


def avro(pattern: str, without: str = "") -> tuple[tuple[bytes, PaimonSchema], ...]:
    found = tuple((data, schema) for data, schema in files(pattern) if data[:3] == b"Obj")
    return tuple(each for each in found if not without or without not in schema_text(each[0]))


def schema_text(data: bytes) -> str:
    return read_header(data).metadata["avro.schema"].decode()


@cache
def other_containers(write: Callable[[Any, Any], None]) -> tuple[tuple[bytes, PaimonSchema], ...]:
    found = []
    for data, schema in avro("manifest/manifest-[!l]*")[:15]:
        target = io.BytesIO()
        write(as_arrow(data), target)
        found.append((target.getvalue(), schema))
    return tuple(found)


@cache
def rows() -> tuple[tuple[bytes, Any], ...]:
    types = [parse_type(value) for value in TYPES]
    known = list(zip(VALUES, types, strict=True))
    each = [(encode_row((value,), (type_,)), (type_,)) for value, type_ in known]
    values, kinds = zip(*known, strict=True)
    return (*each, (encode_row(values, kinds), kinds))


@cache
def vectors() -> tuple[tuple[bytes, Any], ...]:
    found = []
    for reference in tables():
        table = reference.open()
        for snapshot in table.snapshots():
            for index in table.index_files(snapshot):
                if index.index_type in ("HASH", "DELETION_VECTORS") and len(found) < 40:
                    found.append((table.io.read(table.index_file_location(index)), index))
    return tuple(found)


@cache
def statistics() -> tuple[tuple[bytes, Any], ...]:
    text = {"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 5, "mergedRecordSize": 9}
    columns = {"a": {"colId": 0, "distinctCount": 2, "min": "1", "max": "9", "nullCount": 0, "avgLen": 8, "maxLen": 8}}
    return ((json.dumps({**text, "colStats": columns}).encode(), None), *files("statistics/*"))


def tags() -> tuple[tuple[bytes, Any], ...]:
    more = {"tagCreateTime": [2026, 11, 21, 3, 24, 4, 5_000_000], "tagTimeRetained": "PT1H30M"}
    return tuple(
        (json.dumps({**json.loads(data), **more}).encode(), schema) for data, schema in files("snapshot/snapshot-*")
    )


# --- what reads it ----------------------------------------------------------------------------------------------------


def read_entries(data: bytes, schema: PaimonSchema) -> None:
    entries = read_manifest(data, schema.partition_fields, path="m")
    live = entries.live()
    decoder = StatsDecoder({schema.id: schema})
    for entry in live:
        with contextlib.suppress(IcebergError):
            if entry.value_stats is not None:
                decoder.decode(
                    entry.value_stats,
                    schema_id=entry.schema_id,
                    value_stats_cols=entry.value_stats_cols,
                    write_cols=entry.write_cols,
                )


def read_list(data: bytes, schema: PaimonSchema) -> None:
    fields = schema.partition_fields
    wanted = FileFilter(buckets=frozenset({0}), partition=dict.fromkeys(schema.partition_keys))
    for manifest in read_manifest_list(data, path="m"):
        with contextlib.suppress(IcebergError):
            wanted.may_hold(manifest, fields, path="m")


def read_index(data: bytes, index: Any) -> None:
    if index.index_type == "HASH":
        read_hashes(data, index, path="m")
        return
    with contextlib.suppress(IcebergError):
        check_vector_file(data, index, path="m")
    for vector in index.vectors:
        with contextlib.suppress(IcebergError):
            read_vector(data[vector.offset :], vector, path="m").to_array()


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of document: its samples with what belongs to them, what reads it, what damages it."""

    samples: Callable[[], Sequence[tuple[bytes, Any]]]
    read: Target
    damage: Callable[[bytes, random.Random, bytes], bytes]


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_json(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return a JSON document with other values, fewer keys, more keys, or no JSON at all."""
    if chance.random() < 0.15:
        return mutate_bytes(data, chance, other)
    return dumped(mutate_document(json.loads(data), chance), chance)


def damage_vectors(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return vectors damaged under a checksum that is right again, now and then."""
    result = mutate_bytes(data, chance, other)
    if chance.random() < 0.7 and len(result) > 20:
        start, size = 1, int.from_bytes(result[1:5], "big")
        if 0 < size < len(result) - start - 8:
            covered = result[start + 4 : start + 4 + size]
            end = start + 4 + size
            result = result[:end] + zlib.crc32(covered).to_bytes(4, "big") + result[end + 4 :]
    return result


KINDS: Mapping[str, Kind] = {
    "manifest": Kind(samples=lambda: avro("manifest/manifest-[!l]*"), read=read_entries, damage=mutate_avro),
    "manifest-list": Kind(samples=lambda: avro("manifest/manifest-list-*"), read=read_list, damage=mutate_avro),
    "index-manifest": Kind(
        samples=lambda: avro("manifest/index-manifest-*"),
        read=lambda data, schema: read_index_manifest(data, schema, path="m"),
        damage=mutate_avro,
    ),
    "orc": Kind(samples=lambda: other_containers(orc.write_table), read=read_entries, damage=mutate_bytes),
    "parquet": Kind(samples=lambda: other_containers(parquet.write_table), read=read_entries, damage=mutate_bytes),
    "row": Kind(samples=rows, read=lambda data, types: decode_row(data, types), damage=mutate_bytes),
    "vector": Kind(samples=vectors, read=read_index, damage=damage_vectors),
    "snapshot": Kind(
        samples=lambda: files("snapshot/snapshot-*"), read=lambda data, _: Snapshot.from_json(data), damage=damage_json
    ),
    "schema": Kind(
        samples=lambda: files("schema/schema-*"), read=lambda data, _: PaimonSchema.from_json(data), damage=damage_json
    ),
    "tag": Kind(samples=tags, read=lambda data, _: Tag.from_json("t", data), damage=damage_json),
    "statistics": Kind(samples=statistics, read=lambda data, _: Statistics.from_json(data), damage=damage_json),
}


# --- running ----------------------------------------------------------------------------------------------------------


def trial_of(name: str, seed: int, number: int | None) -> tuple[Callable[[bytes], object], bytes]:
    """Return what reads an input, and the input by its number, the same each time; a sample without a number."""
    kind = KINDS[name]
    samples = kind.samples()
    data, more = samples[(number or 0) % len(samples)]
    if number is not None:
        chance = random.Random(f"{name}-{seed}-{number}")
        data = kind.damage(data, chance, chance.choice(samples)[0])
    return lambda content: kind.read(content, more), data


def main(arguments: Sequence[str]) -> int:
    """Run the fuzzer and say what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.paimon.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000, help="inputs in all, shared among the kinds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", nargs="*", choices=tuple(KINDS), default=tuple(KINDS))
    options = parser.parse_args(arguments)
    shares = dict.fromkeys(options.target, -(-options.runs // len(options.target)))
    return run_and_report(shares, seed=options.seed, trial=trial_of, limit_s=SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
