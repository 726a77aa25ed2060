"""Puffin files as bytes: a container of blobs with a footer that describes them.

Here: writing blobs and footers. Not here: the blob of a deletion vector (`deletion_vectors`), and opening files. A
reader of deletion vectors, several of which share a file, needs no footer: manifests have the offset of each.

Spec: Puffin Spec (File structure, Footer structure, FileMetadata).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

MAGIC = b"PFA1"
DELETION_VECTOR = "deletion-vector-v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class BlobMetadata:
    """One blob in the footer.

    Attributes:
        type: the name of the type, such as "deletion-vector-v1" or "apache-datasketches-theta-v1".
        fields: ids of the columns of the blob.
        snapshot_id: the snapshot; -1 in deletion vectors, which inherit it, like the sequence number.
        offset: first byte of the blob in the file.
        length: stored bytes.
    """

    type: str
    fields: tuple[int, ...] = ()
    snapshot_id: int = -1
    sequence_number: int = -1
    offset: int
    length: int
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the footer."""
        result: dict[str, Any] = {
            "type": self.type,
            "fields": list(self.fields),
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "offset": self.offset,
            "length": self.length,
            "properties": dict(self.properties) or None,
        }
        return {key: value for key, value in result.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """A blob to be written, uncompressed."""

    type: str
    data: bytes
    fields: tuple[int, ...] = ()
    snapshot_id: int = -1
    sequence_number: int = -1
    properties: Mapping[str, str] = field(default_factory=dict)


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
