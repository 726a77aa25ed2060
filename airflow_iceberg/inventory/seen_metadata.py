"""Of which table a metadata file is, by its first bytes: thousands of them are cheap to look at.

Not here: which files are looked at, and what follows (`inventory.ownership`).
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from airflow_iceberg.errors import IcebergError, StorageError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.storage.base import FileIO

# Enough for the first fields of the JSON; quotes within texts are escaped, so that no text looks like a field.
BEGINNING = 4096
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"\\]+)"')
_LOCATION = re.compile(rb'"location"\s*:\s*"([^"\\]+)"')
_UPDATED = re.compile(rb'"last-updated-ms"\s*:\s*(\d{1,19})\b')


def _plain(beginning: bytes) -> bytes:
    """Return the beginning of a file, decompressed if it is compressed."""
    if not beginning.startswith(b"\x1f\x8b"):
        return beginning
    try:
        return zlib.decompressobj(31).decompress(beginning, BEGINNING)
    except zlib.error:
        return beginning


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenMetadata:
    """A metadata file, as far as it was read."""

    path: str
    uuid: str | None
    location: str
    updated_ms: int


def look_at(io: FileIO, path: str) -> SeenMetadata | None:
    """Read the beginning of a metadata file; None for a damaged or missing one, which is of no table.

    Raises:
        StorageError, UnsupportedError: it cannot be told of which table it is.
    """
    try:
        beginning = _plain(io.read(path, offset=0, length=BEGINNING))
        found = [pattern.findall(beginning) for pattern in (_UUID, _LOCATION, _UPDATED)]
        # Properties may have the same names.
        if all(len(values) == 1 for values in found):
            uuid, location, updated = (values[0].decode() for values in found)
            return SeenMetadata(path=path, uuid=uuid, location=location, updated_ms=int(updated))
        metadata = metadata_json.read(io.read(path), path=path)
    except (StorageError, UnsupportedError):
        raise  # a live table may have it: one that only a newer version can read, for example
    except (IcebergError, UnicodeDecodeError):
        return None
    return SeenMetadata(
        path=path, uuid=metadata.table_uuid, location=metadata.location, updated_ms=metadata.last_updated_ms
    )
