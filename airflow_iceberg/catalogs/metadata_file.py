"""One metadata file of a table: its bytes, its uuid, and what its name says.

Not here: which file is a table's newest (`pointer`, `hadoop.versions`), and the document in it (`format.metadata`).
"""

from __future__ import annotations

import gzip
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.inventory.limited import ReadLimits, limits_of, too_large
from airflow_iceberg.storage.base import FileIO

# Where reads are limited, one file larger than this is read at a time; a compressed one may become any size.
_LARGE = 4 << 20
_ALONE_TIMEOUT_S = 20
_alone = threading.Lock()
_GZIP = b"\x1f\x8b"
METADATA_SUFFIX = ".metadata.json"
_HEAD_BYTES = 512
_UUID = re.compile(rb'\s*\{\s*"format-version"\s*:\s*\d+\s*,\s*"table-uuid"\s*:\s*"([0-9a-fA-F-]+)"')


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read and parse a metadata file, compressed or not."""
    limits = limits_of(io)
    if limits is None:
        return metadata_json.read(io.read(location), path=location)
    try:
        return _read_within(limits, io, location)
    except metadata_json.TooLargeError as error:
        raise too_large(str(error)) from error


def _read_within(limits: ReadLimits, io: FileIO, location: str) -> TableMetadata:
    most = {
        "most_bytes": limits.metadata_bytes,
        "most_values": limits.metadata_values,
        "most_memory": limits.metadata_memory,
    }
    first = min(_LARGE, limits.metadata_bytes)
    data = io.read(location, length=first + 1)
    is_whole = len(data) <= first
    if is_whole and not data.startswith(_GZIP):
        return metadata_json.read(data, path=location, **most)
    if not is_whole:
        data = b""
    with one_at_a_time(location):
        return metadata_json.read(data or io.read(location), path=location, **most)


@contextmanager
def one_at_a_time(location: str, size_bytes: int = sys.maxsize) -> Iterator[None]:
    """Read a large metadata document in the block, after those of others, where reads are limited.

    Raises:
        StorageError: the others take too long.
    """
    if size_bytes <= _LARGE:
        yield
        return
    if not _alone.acquire(timeout=_ALONE_TIMEOUT_S):
        raise StorageError(f"cannot read {location}: large metadata of other tables is read first, and takes long")
    try:
        yield
    finally:
        _alone.release()


def read_uuid(io: FileIO, location: str) -> str | None:
    """Return the uuid in a metadata file: writers put it first, and then the rest is not read."""
    head = io.read(location, length=_HEAD_BYTES)
    if head.startswith(_GZIP):
        with suppress(zlib.error):
            head = zlib.decompressobj(wbits=31).decompress(head)
    found = _UUID.match(head)
    return found[1].decode() if found else read_metadata(io, location).table_uuid


def encode_metadata(metadata: TableMetadata, location: str) -> bytes:
    """Return the bytes of a metadata file, compressed if its name says so: Iceberg Java decides by the name."""
    data = metadata_json.write(metadata)
    name = location.rpartition("/")[2]
    if name.endswith((f".gz{METADATA_SUFFIX}", f"{METADATA_SUFFIX}.gz")):
        return gzip.compress(data, compresslevel=6, mtime=0)
    return data


def metadata_version(location: str) -> int:
    """Return the number at the start of a metadata file's name ("00012-<uuid>.metadata.json": 12), or -1."""
    number, dash, _ = location.rpartition("/")[2].partition("-")
    version = whole_number(number) if dash else None
    return -1 if version is None else version


def is_gzip_asked(properties: Mapping[str, str]) -> bool:
    """Tell whether metadata files are compressed; `InvalidInputError` for a codec that is not in the specification."""
    return TableProperties.of(properties).metadata_compression_codec == "gzip"
