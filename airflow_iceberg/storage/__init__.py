"""Bytes at a location: the `FileIO` border and its implementations. Knows nothing of Iceberg.

`load_file_io` is all that the rest of the package needs; `base` has the types, `fsspec_io` the implementation, `store`
the border behind which each kind of store has a module (`local`, `memory`, `s3`, `gcs`, `adls`, `hdfs`, `webhdfs`).
"""

from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO, load_file_io

__all__ = ["FileIO", "FileStatus", "FsspecFileIO", "load_file_io"]
