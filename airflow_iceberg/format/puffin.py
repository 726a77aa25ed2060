"""Puffin files as bytes: a container of blobs with a footer that describes them.

Here: reading and writing footers and blobs. Not here: the blob of a deletion vector (`deletion_vectors`), and opening
files. Several deletion vectors share one file: a reader needs only the bytes of its own blob.

Spec: Puffin Spec (File structure, Footer structure, FileMetadata, Compression codecs).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.decompression import TooLargeError, by_arrow
from airflow_iceberg.format.json_fields import Fields

MAGIC = b"PFA1"
DELETION_VECTOR = "deletion-vector-v1"
TAIL_SIZE = 12
"""Bytes after the footer's payload: its size, the flags and the magic."""

_COMPRESSED_FOOTER = 1
_CODECS = {"lz4": "lz4", "zstd": "zstd"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BlobMetadata:
    """One blob in the footer.

    Attributes:
        type: the name of the type, such as "deletion-vector-v1" or "apache-datasketches-theta-v1".
        fields: ids of the columns of the blob.
        snapshot_id: the snapshot; -1 in deletion vectors, which inherit it, like the sequence number.
        offset: first byte of the blob in the file.
        length: stored bytes, compressed if there is a codec.
        compression_codec: the codec: None, "lz4" or "zstd".
    """

    type: str
    fields: tuple[int, ...] = ()
    snapshot_id: int = -1
    sequence_number: int = -1
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Fields) -> BlobMetadata:
        """Read one entry of the footer; raises FormatError for a key that is missing or of another type."""
        return cls(
            type=fields.str("type"),
            fields=fields.int_list("fields"),
            snapshot_id=fields.int("snapshot-id"),
            sequence_number=fields.int("sequence-number"),
            offset=fields.int("offset"),
            length=fields.int("length"),
            compression_codec=fields.opt_str("compression-codec"),
            properties=_properties(fields),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the footer."""
        result: dict[str, Any] = {
            "type": self.type,
            "fields": list(self.fields),
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "offset": self.offset,
            "length": self.length,
            "compression-codec": self.compression_codec,
            "properties": dict(self.properties) or None,
        }
        return {key: value for key, value in result.items() if value is not None}


def _properties(fields: Fields) -> Mapping[str, str]:
    return fields.str_map("properties") if "properties" in fields else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PuffinFooter:
    """The contents of a Puffin file; `properties` are those of the file, such as "created-by"."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """A blob to be written, uncompressed."""

    type: str
    data: bytes
    fields: tuple[int, ...] = ()
    snapshot_id: int = -1
    sequence_number: int = -1
    properties: Mapping[str, str] = field(default_factory=dict)


# --- reading ----------------------------------------------------------------------------------------------------------


def footer_size(tail: bytes, *, path: str | None = None) -> int:
    """Return the size of the footer at the end of a file, in bytes, from the last `TAIL_SIZE` bytes of the file.

    Raises:
        FormatError: this is not the end of a Puffin file.
    """
    if len(tail) < TAIL_SIZE or tail[-4:] != MAGIC:
        raise FormatError(f"unexpected last bytes {tail[-4:]!r} (expected a Puffin file, {MAGIC!r})", path=path)
    size = int.from_bytes(tail[-12:-8], "little", signed=True)
    if size < 0:
        raise FormatError(f"unexpected size {size} of the footer's payload", path=path)
    return len(MAGIC) + size + TAIL_SIZE


def read_footer(data: bytes, *, file_size: int | None = None, path: str | None = None) -> PuffinFooter:
    """Return the footer of a Puffin file.

    Args:
        data: the whole file, or at least the last `footer_size` bytes.
        file_size: bytes of the file, if `data` is not the whole file.
    Raises:
        FormatError: torn, foreign or malformed bytes.
        UnsupportedError: a flag that this version does not know.
    """
    size = footer_size(data[-TAIL_SIZE:], path=path)
    footer = data[-size:]
    if len(footer) < size or footer[:4] != MAGIC:
        raise FormatError("unexpected bytes where the footer starts; the file is torn, or not what it seems", path=path)
    payload = _footer_payload(footer[4:-TAIL_SIZE], int.from_bytes(data[-8:-4], "little"), path)
    try:
        document = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the footer is no JSON text ({error})", path=path) from error
    if not isinstance(document, dict):
        raise FormatError(f"unexpected type {type(document).__name__} (expected object) in the footer", path=path)
    fields = Fields(document, "", path)
    blobs = tuple(BlobMetadata.from_fields(item) for item in fields.items("blobs"))
    _check_spans(blobs, (len(data) if file_size is None else file_size) - size, path)
    return PuffinFooter(blobs=blobs, properties=_properties(fields))


def _footer_payload(payload: bytes, flags: int, path: str | None) -> bytes:
    if flags & ~_COMPRESSED_FOOTER:
        raise UnsupportedError(f"unknown flags {flags:#x} in the footer of Puffin file {path}")
    return _decompress(payload, "lz4", path) if flags & _COMPRESSED_FOOTER else payload


def _check_spans(blobs: Sequence[BlobMetadata], end: int, path: str | None) -> None:
    for index, blob in enumerate(blobs):
        if blob.offset < len(MAGIC) or blob.length < 0 or blob.offset + blob.length > end:
            raise FormatError(
                f"unexpected span of {blob.length} bytes at byte {blob.offset} (expected within 4 to {end}) in "
                f"'blobs[{index}]'",
                path=path,
            )


def read_blob(data: bytes, blob: BlobMetadata, *, path: str | None = None) -> bytes:
    """Return the uncompressed bytes of a blob.

    Args:
        data: the whole file.
        blob: an entry of the file's footer.
    Raises:
        FormatError: torn bytes.
        UnsupportedError: an unknown codec.
    """
    stored = data[blob.offset : blob.offset + blob.length]
    if data[: len(MAGIC)] != MAGIC or len(stored) != blob.length:
        raise FormatError(f"torn blob of {blob.length} bytes at byte {blob.offset}, or not a Puffin file", path=path)
    if blob.compression_codec is None:
        return stored
    return _decompress(stored, blob.compression_codec, path)


def _decompress(data: bytes, codec: str, path: str | None) -> bytes:
    """Decompress one frame, up to a reasonable size."""
    import pyarrow as pa

    if codec not in _CODECS:
        raise UnsupportedError(f"unknown Puffin codec {codec!r} (known: {', '.join(_CODECS)}) in {path}")
    try:
        return by_arrow(data, _CODECS[codec])
    except TooLargeError as error:
        raise UnsupportedError(f"a {codec} frame in Puffin file {path}: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"damaged {codec} frame ({error})", path=path) from error


# --- writing ----------------------------------------------------------------------------------------------------------


def write_puffin(
    blobs: Sequence[Blob], *, properties: Mapping[str, str] | None = None
) -> tuple[bytes, tuple[BlobMetadata, ...]]:
    """Return a Puffin file, and the footer's entry of each blob.

    Nothing is compressed: deletion vectors must not be, and a footer is small.
    """
    starts = accumulate((len(blob.data) for blob in blobs), initial=len(MAGIC))
    described = tuple(
        BlobMetadata(
            type=blob.type,
            fields=blob.fields,
            snapshot_id=blob.snapshot_id,
            sequence_number=blob.sequence_number,
            offset=offset,
            length=len(blob.data),
            properties=blob.properties,
        )
        for blob, offset in zip(blobs, starts, strict=False)
    )
    document = {"blobs": [item.to_dict() for item in described], "properties": dict(properties or {})}
    payload = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    footer = [MAGIC, payload, len(payload).to_bytes(4, "little"), bytes(4), MAGIC]
    return b"".join([MAGIC, *(blob.data for blob in blobs), *footer]), described
