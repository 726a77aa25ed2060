"""Bytes at a location: the interface `FileIO` (`base`) and its implementations (`stores`). Knows nothing of Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO, FileStatus
    from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO, load_file_io

__all__ = ["FileIO", "FileStatus", "FsspecFileIO", "load_file_io"]

# An operator needs modules of this package, but no store.
__getattr__ = lazy_names(
    __name__,
    FileIO="base",
    FileStatus="base",
    FsspecFileIO="storage.stores.fsspec_io",
    load_file_io="storage.stores.fsspec_io",
)
