"""Mutations behind checksums and compression: of Avro containers, Puffin files and deletion vectors.

Changing the bytes of such files alone mostly finds out that checksums work.
"""

import bz2
import gzip
import json
import lzma
import random
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pyarrow as pa
from backports import zstd

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.avro.container import read_blocks, read_header
from airflow_iceberg.format.puffin import read_footer
from tests.fuzz.documents import NUMBERS, dumped, mutate_bytes, mutate_document, varint


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflate,
    "zstandard": zstd.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big"),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
BOMB_SIZES = (1 << 20, 40 << 20, 300 << 20)
_BOMBS: dict[tuple[str, int], bytes] = {}


def bomb(codec: str, size: int) -> bytes:
    if (codec, size) not in _BOMBS:
        pack = {**CODECS, "gzip": lambda data: gzip.compress(data, 1), "lz4": _lz4}[codec]
        # Snappy and LZ4 are no good at it: what is large before is large behind.
        _BOMBS[codec, size] = pack(bytes(min(size, 40 << 20) if codec in ("snappy", "lz4") else size))
    return _BOMBS[codec, size]


def _lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


# --- Avro -------------------------------------------------------------------------------------------------------------


def mutate_avro(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return a container whose schema, header, blocks or records are damaged."""
    try:
        header = read_header(data)
        blocks = list(read_blocks(data, header))
        others = list(read_blocks(other, read_header(other)))
    except IcebergError:
        return mutate_bytes(data, chance, other)
    fields = dict(header.metadata)
    codec = chance.choice(tuple(CODECS)) if chance.random() < 0.3 else "null"
    kind = chance.randrange(10)
    if kind < 3:
        fields["avro.schema"] = _mutated_json(fields["avro.schema"], chance)
    elif kind == 3:
        name = chance.choice(tuple(fields))
        fields[name] = mutate_bytes(fields[name], chance)
        if chance.random() < 0.3:
            del fields[name]
    elif kind < 8 and blocks:
        at = chance.randrange(len(blocks))
        count, block = blocks[at]
        blocks[at] = (count, mutate_bytes(block, chance, others[0][1] if others else b""))
    elif kind == 8 and blocks:
        at = chance.randrange(len(blocks))
        count, block = blocks[at]
        blocks[at] = (chance.choice((*NUMBERS, count + 1, count - 1)), block)
    elif others:
        blocks = [*others, *blocks] if chance.random() < 0.5 else others
    return container(fields, blocks, codec, header.sync, chance)


def _mutated_json(text: bytes, chance: random.Random) -> bytes:
    try:
        return dumped(mutate_document(json.loads(text), chance), chance)
    except (ValueError, RecursionError):
        return mutate_bytes(text, chance)


def container(fields: dict[str, bytes], blocks: Any, codec: str, sync: bytes, chance: random.Random) -> bytes:
    """Return a container; now and then with a block that grows when it is opened, or with other numbers."""
    pack = CODECS[codec]
    fields["avro.codec"] = codec.encode()
    parts = [b"Obj\x01", varint(len(fields))]
    for key, value in fields.items():
        parts += [varint(len(key.encode())), key.encode(), varint(len(value)), value]
    parts += [b"\0", sync]
    for count, block in blocks:
        packed = pack(block)
        if codec != "null" and chance.random() < 0.01:
            packed, count = bomb(codec, chance.choice(BOMB_SIZES)), chance.choice((1, count, 1 << 20))
        size = len(packed) if chance.random() < 0.98 else chance.choice(NUMBERS)
        parts += [varint(count), varint(size), packed, sync]
    return b"".join(parts)


# --- Puffin -----------------------------------------------------------------------------------------------------------


def mutate_puffin(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return a Puffin file whose footer or blobs are damaged, with sizes and checksums that are right."""
    try:
        footer = read_footer(data)
    except IcebergError:
        return mutate_bytes(data, chance, other)
    size = int.from_bytes(data[-12:-8], "little")
    document, body = json.loads(data[-12 - size : -12]), bytearray(data[: -16 - size])
    if chance.random() < 0.5:
        document = mutate_document(document, chance)
    elif footer.blobs:
        blob = chance.choice(footer.blobs)
        span = slice(blob.offset, blob.offset + blob.length)
        if chance.random() < 0.95:
            changed = mutate_vector(bytes(body[span]), chance, other)
            body[span] = changed
            _resize(document, blob.offset, blob.length, len(changed))
        else:
            codec = chance.choice(("lz4", "zstd"))
            packed = bomb({"zstd": "zstandard"}.get(codec, codec), chance.choice(BOMB_SIZES))
            body[span] = packed
            _resize(document, blob.offset, blob.length, len(packed), codec)
    payload, flags = dumped(document, chance), 0
    if chance.random() < 0.1:
        flags = 1
        payload = _lz4(payload) if chance.random() < 0.95 else bomb("lz4", chance.choice(BOMB_SIZES))
    return bytes(body) + b"PFA1" + payload + len(payload).to_bytes(4, "little") + flags.to_bytes(4, "little") + b"PFA1"


def _resize(document: Any, offset: int, old: int, new: int, codec: str | None = None) -> None:
    for blob in document["blobs"]:
        if blob["offset"] == offset:
            blob["length"] = new
            if codec:
                blob["compression-codec"] = codec
        elif blob["offset"] > offset:
            blob["offset"] += new - old


def mutate_vector(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return a deletion vector with damaged bitmaps; mostly with the length and checksum of what it has become."""
    covered = mutate_bytes(data[8:-4], chance, other)
    if chance.random() < 0.1:
        return mutate_bytes(data, chance, other)
    covered = data[4:8] + covered
    return len(covered).to_bytes(4, "big") + covered + zlib.crc32(covered).to_bytes(4, "big")
