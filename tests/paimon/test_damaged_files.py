"""Damaged files give our own errors, in bounded time and memory, whatever stands in them.

`PAIMON_FUZZ` is how many inputs of each kind are tried; `make`'s ordinary run takes a sample, the full check is
`PAIMON_FUZZ=35000 pytest tests/paimon/test_damaged_files.py`, which makes 105,000.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyarrow import orc, parquet

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.entries import read_manifest
from airflow_iceberg.paimon.index_manifests import read_index_manifest
from airflow_iceberg.paimon.manifests import read_manifest_list
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot
from airflow_iceberg.spec.avro_container import read_blocks, read_header, write_container
from tests.support.paimon_tables import tables
from tests.support.paimon_writer import as_arrow

COUNT = int(os.environ.get("PAIMON_FUZZ", "400"))
BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def samples(name: str) -> list[tuple[bytes, PaimonSchema]]:
    """Return files of the reference tables whose names start so, in Avro, with the schemas of their tables."""
    found = []
    for table in tables():
        schema = PaimonSchema.from_json((table.folder / "schema" / "schema-0").read_bytes())
        for path in sorted((table.folder / "manifest").glob(f"{name}*"))[:2]:
            data = path.read_bytes()
            is_list = path.name.startswith("manifest-list-")
            if data[:3] == b"Obj" and is_list == (name == "manifest-list-"):
                found.append((data, schema))
    return found


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the file with a few bytes changed: anywhere, or behind the compression, where a checksum would hide it."""
    if chance.random() < 0.3:
        return changed(data, chance)
    header = read_header(data)
    blocks = [(count, changed(block, chance)) for count, block in read_blocks(data, header)]
    if chance.random() < 0.2:
        blocks = [(chance.choice((0, count + 1, 2**40, count)), block) for count, block in blocks]
    return write_container({"avro.schema": header.metadata["avro.schema"].decode()}, blocks, codec="null")


def changed(data: bytes, chance: random.Random) -> bytes:
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if result:
            result[chance.randrange(len(result))] = chance.choice((*BYTES, chance.randrange(256)))
    return bytes(result[: chance.randrange(len(result) + 1)] if chance.random() < 0.1 else result)


def tries(name: str) -> Iterator[tuple[bytes, PaimonSchema]]:
    chance = random.Random(7)
    files = samples(name)
    for number in range(COUNT):
        data, schema = files[number % len(files)]
        yield damaged(data, chance), schema


def read_entries(data: bytes, schema: PaimonSchema) -> object:
    entries = read_manifest(data, schema.partition_fields, path="m")
    return list(entries.live())


READERS: dict[str, Callable[[bytes, PaimonSchema], object]] = {
    "manifest-": read_entries,
    "manifest-list-": lambda data, schema: read_manifest_list(data, path="m"),
    "index-manifest-": lambda data, schema: read_index_manifest(data, schema, path="m"),
}


class TestDamagedFiles:
    """The answer is a value or one of our errors; anything else would fail the test."""

    @pytest.mark.parametrize("name", READERS)
    def test_manifests(self, name: str) -> None:
        refused = 0
        for data, schema in tries(name):
            try:
                READERS[name](data, schema)
            except (FormatError, UnsupportedError):
                refused += 1
        assert refused > COUNT // 10

    @pytest.mark.parametrize("write", [orc.write_table, parquet.write_table])
    def test_manifests_in_other_containers(self, write: Callable[[Any, Any], None]) -> None:
        chance, files = random.Random(9), []
        for data, schema in samples("manifest-")[:12]:
            target = io.BytesIO()
            write(as_arrow(data), target)
            files.append((target.getvalue(), schema))
        for number in range(COUNT // 4):
            data, schema = files[number % len(files)]
            with suppress(FormatError, UnsupportedError):
                read_entries(data[:4] + changed(data[4:], chance), schema)

    def test_snapshots_and_schemas(self) -> None:
        chance = random.Random(8)
        for table in tables():
            for path in (*table.folder.glob("snapshot/snapshot-*"), *table.folder.glob("schema/schema-*")):
                reader = Snapshot.from_json if path.name.startswith("snapshot") else PaimonSchema.from_json
                for _ in range(10):
                    with suppress(FormatError, UnsupportedError):
                        reader(changed(path.read_bytes(), chance), path=path.name)
