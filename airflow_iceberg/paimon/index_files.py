"""Index files as bytes: deletion vectors of 32 and of 64 bits, and hashes.

Not here: the bitmaps, which are Iceberg's (`format.deletion_vectors`), and the files of the vectors
(`index_manifests`).

    file        version, 1 byte | vectors
    32 bits     size, 4 bytes | magic 5E43F2D0 | one roaring bitmap | CRC-32 of magic and bitmap
    64 bits     size, 4 bytes | magic D1D33964 | bitmaps by their upper 32 bits | CRC-32: Iceberg's own form

Sizes and checksums are big-endian. One file may have both kinds, and a manifest counts different bytes of them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.deletion_vectors import MAGIC as MAGIC_64
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.paimon.index_manifests import IndexFile, VectorRange

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VERSION = 1
MAGIC_32 = (1581511376).to_bytes(4, "big")

_HEAD = 8  # size and magic
_FRAME = 8  # size and checksum


def check_vector_file(data: bytes, index: IndexFile, *, path: str | None = None) -> None:
    """Check the size and the version of a file of deletion vectors."""
    check_size(data, index, path=path)
    if data[:1] != bytes([VERSION]):
        raise UnsupportedError(f"version {data[:1].hex() or 'nothing'} of deletion vectors (known: 01) of {path}")


def check_size(data: bytes, index: IndexFile, *, path: str | None = None) -> None:
    """Check the size of an index file against its manifest."""
    if len(data) != index.file_size_bytes:
        raise FormatError(f"unexpected {len(data)} bytes (expected {index.file_size_bytes} by its manifest)", path=path)


def read_vector(data: bytes, vector: VectorRange, *, path: str | None = None) -> RowPositions:
    """Return the deleted rows of one data file.

    Args:
        data: the bytes of the index file from the vector's offset on.

    Raises:
        FormatError: the bytes are no vector, or its checksum or its number of rows is wrong.
    """
    magic = bytes(data[4:_HEAD])
    size = int.from_bytes(data[:4], "big", signed=True)
    where = f"deletion vector of {vector.data_file} at byte {vector.offset}"
    if magic not in (MAGIC_32, MAGIC_64):
        found = magic.hex() or "nothing"
        raise FormatError(f"unexpected magic {found} (expected 5e43f2d0 or d1d33964) in the {where}", path=path)
    # The length in the manifest is the content's with 32 bits, and the whole vector's with 64.
    expected = vector.length if magic == MAGIC_32 else vector.length - _FRAME
    if size != expected or len(data) < size + _FRAME or size < 4:
        raise FormatError(f"unexpected size {size} (expected {expected}) in the {where}", path=path)
    blob = bytes(data[: size + _FRAME])
    rows = RowPositions.from_blob(blob if magic == MAGIC_64 else _as_64(blob, where, path), path=path)
    if vector.cardinality is not None and rows.cardinality != vector.cardinality:
        raise FormatError(f"{rows.cardinality} rows (expected {vector.cardinality}) in the {where}", path=path)
    return rows


def _as_64(blob: bytes, where: str, path: str | None) -> bytes:
    """Return a vector of 32 bits in the form of 64, as the bitmap of the upper bits 0."""
    covered = blob[4:-4]
    if zlib.crc32(covered) != int.from_bytes(blob[-4:], "big"):
        raise FormatError(f"the checksum differs in the {where}; the file is damaged", path=path)
    content = MAGIC_64 + (1).to_bytes(8, "little") + bytes(4) + covered[4:]
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def read_hashes(data: bytes, index: IndexFile, *, path: str | None = None) -> npt.NDArray[np.int32]:
    """Return the hashes of the keys in a bucket, in the order of the file."""
    import numpy as np

    check_size(data, index, path=path)
    if len(data) != 4 * index.row_count:
        raise FormatError(f"unexpected {len(data)} bytes (expected 4 for each of {index.row_count} hashes)", path=path)
    hashes: npt.NDArray[Any] = np.frombuffer(data, ">i4")
    return hashes.astype(np.int32)
