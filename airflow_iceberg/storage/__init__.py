"""Bytes at a location: the interface `FileIO` (`base`) and its implementations (`stores`). Knows nothing of Iceberg."""

from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO, load_file_io

__all__ = ["FileIO", "FileStatus", "FsspecFileIO", "load_file_io"]
