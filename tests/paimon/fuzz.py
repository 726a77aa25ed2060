"""Damaged Paimon metadata: a value or one of our own errors has to come out, in bounded time and memory.

    python -m tests.paimon.fuzz --runs 100000 [--seed 1] [--target manifest …]

Inputs are made from the files of the reference tables and from rows of every type: bytes changed, files cut, counts and
lengths made enormous, schemas rewritten, blocks replaced by a few bytes that decompress to very many. They run in
processes of their own, so that one that dies is a finding like any other. `test_damaged_files` runs a short sample.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import multiprocessing
import random
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyarrow import orc, parquet

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.avro.container import read_blocks, read_header, write_container, write_long
from airflow_iceberg.paimon.binary_row import decode_row
from airflow_iceberg.paimon.data_manifests import read_manifest
from airflow_iceberg.paimon.index_files import check_vector_file, read_hashes, read_vector
from airflow_iceberg.paimon.index_manifests import read_index_manifest
from airflow_iceberg.paimon.manifest_lists import FileFilter, read_manifest_list
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.snapshots import Snapshot, Statistics, Tag
from airflow_iceberg.paimon.stats import StatsDecoder
from airflow_iceberg.paimon.types import parse_type
from tests.fuzz.runner import check
from tests.support.paimon_tables import tables
from tests.support.paimon_writer import as_arrow, encode_row

SECONDS = 3.0
"""What an input may take of the processor, besides its size."""
STUCK_SECONDS = 60.0
BOMB_BYTES = 40 << 20
"""More than a small block may become; packing much more takes longer than refusing it."""
CHUNK = 2_000
BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 2**63, 10**30)
ODD_VALUES: Sequence[Any] = (None, True, -1, 2**63, 1e308, "", "x" * 1000, [], {}, [[]], {"a": None}, "INT", "\ud800")
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
    def is_wanted(data: bytes) -> bool:
        return data[:3] == b"Obj" and (not without or without not in schema_text(data))

    return tuple((data, schema) for data, schema in files(pattern) if is_wanted(data))


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
    damage: Callable[[bytes, random.Random], bytes]


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few of them changed, cut out, doubled or put in; enormous numbers are favourites."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(len(result) + 1), chance.random()
        if kind < 0.6 and at < len(result):
            result[at] = chance.choice((*BYTES, chance.randrange(256)))
        elif kind < 0.7:
            result[at : at + chance.randrange(9)] = b""
        elif kind < 0.8:
            result[at:at] = result[at : at + chance.randrange(64)]
        elif kind < 0.9:
            result[at:at] = write_long(chance.choice(NUMBERS[:8]))
        else:
            number = chance.choice(NUMBERS[:7]) & (2**32 - 1)
            result[at : at + 4] = number.to_bytes(4, chance.choice(("big", "little")))
    return bytes(result[: chance.randrange(len(result) + 1)] if chance.random() < 0.1 else result)


def damage_avro(data: bytes, chance: random.Random) -> bytes:
    """Return a container damaged behind the compression, in its counts, its schema, or anywhere."""
    kind = chance.random()
    if kind < 0.2:
        return damage_bytes(data, chance)
    header = read_header(data)
    schema = header.metadata["avro.schema"].decode()
    blocks = list(read_blocks(data, header))
    if kind < 0.355:
        schema = damage_json(schema.encode(), chance).decode("utf-8", "replace")
    elif kind < 0.36:
        return bomb(schema, chance)
    else:
        blocks = [(count, damage_bytes(block, chance)) for count, block in blocks]
    if chance.random() < 0.2:
        blocks = [(chance.choice((0, count + 1, 2**40, count)), block) for count, block in blocks]
    codec = chance.choice(("null", "null", "deflate", "zstandard", "snappy"))
    return write_container({"avro.schema": schema}, blocks, codec=codec)


@cache
def zeros(codec: str, size: int) -> bytes:
    """Return a container's block of so many zeros, with its header."""
    return write_container({"avro.schema": '"null"'}, [(1, bytes(size))], codec=codec)


def bomb(schema: str, chance: random.Random) -> bytes:
    """Return a small file whose block decompresses to very many zeros, each of which may be a record or an item."""
    codec, size = chance.choice(("deflate", "zstandard", "bzip2", "xz")), chance.choice((1 << 20, BOMB_BYTES))
    packed = zeros(codec, size)
    header = read_header(packed)
    block = packed[header.offset + len(write_long(1)) :]
    fresh = write_container({"avro.schema": schema}, [], codec=codec)
    count = write_long(chance.choice((1, size // 50, size, 2**62)))
    return fresh + count + block[:-16] + fresh[-16:]


def damage_json(data: bytes, chance: random.Random) -> bytes:
    """Return a JSON document with other values, fewer keys, more keys, or no JSON at all."""
    kind = chance.random()
    if kind < 0.15:
        return damage_bytes(data, chance)
    if kind < 0.18:
        return chance.choice((b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000, b'"' + b"x" * 1_000_000 + b'"'))
    document = copy.deepcopy(json.loads(data))
    for _ in range(chance.randint(1, 3)):
        damage_value(document, chance)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def damage_value(document: Any, chance: random.Random) -> None:
    places = [(document, key) for key in keys_of(document)]
    for holder, key in list(places):
        places += [(holder[key], inner) for inner in keys_of(holder[key])]
    if not places:
        return
    holder, key = chance.choice(places)
    for _ in range(chance.randrange(4)):
        inner = keys_of(holder[key])
        if inner:
            holder, key = holder[key], chance.choice(inner)
    kind = chance.random()
    if kind < 0.2:
        del holder[key]
    elif kind < 0.3 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    else:
        number = chance.choice(NUMBERS)
        nested = {"type": "ARRAY", "element": holder[key]}
        holder[key] = copy.deepcopy(chance.choice((*ODD_VALUES, number, str(number), nested)))


def keys_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


def damage_vectors(data: bytes, chance: random.Random) -> bytes:
    """Return vectors damaged under a checksum that is right again, now and then."""
    result = damage_bytes(data, chance)
    if chance.random() < 0.7 and len(result) > 20:
        start, size = 1, int.from_bytes(result[1:5], "big")
        if 0 < size < len(result) - start - 8:
            covered = result[start + 4 : start + 4 + size]
            end = start + 4 + size
            result = result[:end] + zlib.crc32(covered).to_bytes(4, "big") + result[end + 4 :]
    return result


KINDS: Mapping[str, Kind] = {
    "manifest": Kind(samples=lambda: avro("manifest/manifest-[!l]*"), read=read_entries, damage=damage_avro),
    "manifest-list": Kind(samples=lambda: avro("manifest/manifest-list-*"), read=read_list, damage=damage_avro),
    "index-manifest": Kind(
        samples=lambda: avro("manifest/index-manifest-*"),
        read=lambda data, schema: read_index_manifest(data, schema, path="m"),
        damage=damage_avro,
    ),
    "orc": Kind(samples=lambda: other_containers(orc.write_table), read=read_entries, damage=damage_bytes),
    "parquet": Kind(samples=lambda: other_containers(parquet.write_table), read=read_entries, damage=damage_bytes),
    "row": Kind(samples=rows, read=lambda data, types: decode_row(data, types), damage=damage_bytes),
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of the inputs of a kind; `slowest` in seconds of the processor."""

    inputs: int
    refused: int
    slowest: float
    findings: tuple[str, ...]


def make_input(name: str, seed: int, number: int) -> tuple[bytes, Any]:
    """Return an input by its number, the same each time."""
    chance, samples = random.Random(f"{name}-{seed}-{number}"), KINDS[name].samples()
    data, more = samples[number % len(samples)]
    return KINDS[name].damage(data, chance), more


def run_here(name: str, *, seed: int, numbers: Sequence[int], at: Any = None) -> Outcome:
    """Run inputs in this process."""
    refused, slowest, findings = 0, 0.0, []
    for number in numbers:
        if at is not None:
            at.value = number
        data, more = make_input(name, seed, number)
        start = time.process_time()
        problem = check(lambda data, more=more: KINDS[name].read(data, more), data, limit_s=SECONDS)
        slowest = max(slowest, time.process_time() - start)
        refused += problem == "refused"
        if problem not in ("", "refused"):
            findings.append(f"{name} {number}: {problem}")
    return Outcome(inputs=len(numbers), refused=refused, slowest=slowest, findings=tuple(findings))


def run(name: str, *, seed: int, runs: int) -> Outcome:
    """Run inputs in processes of their own, a few thousand each; one that dies or hangs is gone behind and reported."""
    context, total = multiprocessing.get_context("fork"), Outcome(inputs=0, refused=0, slowest=0.0, findings=())
    make_input(name, seed, 0)  # samples are read once, before the processes part
    left = list(range(runs))
    while left:
        chunk, at = left[:CHUNK], context.Value("l", left[0])
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(name, seed, chunk, at, sender))
        process.start()
        sender.close()
        found = _answer(receiver, process, at)
        process.join()
        if found is None:
            problem = f"{name} {at.value}: the process died or hung ({process.exitcode})"
            found = Outcome(inputs=1, refused=0, slowest=0.0, findings=(problem,))
            chunk = chunk[: chunk.index(at.value) + 1]
        left = left[len(chunk) :]
        total = Outcome(
            inputs=total.inputs + len(chunk),
            refused=total.refused + found.refused,
            slowest=max(total.slowest, found.slowest),
            findings=total.findings + found.findings,
        )
    return total


def _work(name: str, seed: int, numbers: Sequence[int], at: Any, sender: Any) -> None:
    sender.send(run_here(name, seed=seed, numbers=numbers, at=at))


def _answer(receiver: Any, process: Any, at: Any) -> Outcome | None:
    last, since = at.value, time.monotonic()
    while True:
        if receiver.poll(0.2):
            with contextlib.suppress(EOFError):
                return receiver.recv()
            return None
        if at.value != last:
            last, since = at.value, time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS:
            process.kill()
            return None


def main(arguments: Sequence[str]) -> int:
    """Run the fuzzer and say what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.paimon.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000, help="inputs in all, shared among the kinds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", nargs="*", choices=tuple(KINDS), default=tuple(KINDS))
    options = parser.parse_args(arguments)
    each, problems, inputs = -(-options.runs // len(options.target)), 0, 0
    for name in options.target:
        outcome = run(name, seed=options.seed, runs=each)
        inputs, problems = inputs + outcome.inputs, problems + len(outcome.findings)
        print(
            f"{name}: {outcome.inputs} inputs, {outcome.refused} refused, {len(outcome.findings)} findings, "
            f"slowest {outcome.slowest:.2f} s",
            flush=True,
        )
        for finding in outcome.findings[:5]:
            print(finding, flush=True)
    print(f"{inputs} inputs, {problems} findings, seed {options.seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
