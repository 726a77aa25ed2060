"""Opening source files for Arrow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.jobs.sources.unit import Unit, open_filesystem
from airflow_iceberg.storage.local_names import native_name

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def open_binary(location: str, io: FileIO) -> Any:
    """Return a file for pyarrow, which reads a local one without Python."""
    filesystem, path = open_filesystem(location, io)
    if is_local(filesystem):
        with native_name(filesystem, path) as name:
            return pa.memory_map(name) if os.path.getsize(name) else pa.OSFile(name)
    return pa.PythonFile(filesystem.open(path, "rb"), mode="r")


def open_text(unit: Unit, io: FileIO) -> Any:
    """Return the text of a file, which may be compressed."""
    handle = open_binary(unit.location, io)
    return pa.CompressedInputStream(handle, unit.compression) if unit.compression else handle


def is_local(filesystem: Any) -> bool:
    """Return whether an fsspec file system is the local one."""
    protocol = filesystem.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)
