"""Opening source files for Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.jobs.sources.unit import Unit, open_filesystem

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


def open_binary(location: str, io: FileIO) -> Any:
    """Return a file for pyarrow, which reads a local one without Python."""
    filesystem, path = open_filesystem(location, io)
    if is_local(filesystem):
        return pa.memory_map(path) if filesystem.size(path) else pa.OSFile(path)
    return pa.PythonFile(filesystem.open(path, "rb"), mode="r")


def open_text(unit: Unit, io: FileIO) -> Any:
    """Return the text of a file, which may be compressed."""
    handle = open_binary(unit.location, io)
    return pa.CompressedInputStream(handle, unit.compression) if unit.compression else handle


def is_local(filesystem: Any) -> bool:
    """Return whether an fsspec file system is the local one."""
    protocol = filesystem.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)
