"""Mutations behind checksums and compression: of Avro containers and deletion vectors.

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
from backports import zstd

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.avro.container import read_blocks, read_header
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
        pack = {**CODECS, "gzip": lambda data: gzip.compress(data, 1)}[codec]
        # Snappy is no good at it: what is large before is large behind.
        _BOMBS[codec, size] = pack(bytes(min(size, 40 << 20) if codec == "snappy" else size))
    return _BOMBS[codec, size]


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


# --- deletion vectors -------------------------------------------------------------------------------------------------


def mutate_vector(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return a deletion vector with damaged bitmaps; mostly with the length and checksum of what it has become."""
    covered = mutate_bytes(data[8:-4], chance, other)
    if chance.random() < 0.1:
        return mutate_bytes(data, chance, other)
    covered = data[4:8] + covered
    return len(covered).to_bytes(4, "big") + covered + zlib.crc32(covered).to_bytes(4, "big")
