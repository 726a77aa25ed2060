"""Data files and delete files read as rows.

Importing this package imports no pyarrow: a name is imported when it is used, and a scan only plans without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.data.read.deletes import DeleteReader
    from airflow_iceberg.data.read.file import FileToRead, check_supported, find_geo_fields, read_file
    from airflow_iceberg.format.schemas.arrow import schema_to_arrow

__all__ = ["DeleteReader", "FileToRead", "check_supported", "find_geo_fields", "read_file", "schema_to_arrow"]

__getattr__ = lazy_names(
    __name__,
    DeleteReader="deletes",
    FileToRead="file",
    check_supported="file",
    find_geo_fields="file",
    read_file="file",
    schema_to_arrow="format.schemas.arrow",
)
