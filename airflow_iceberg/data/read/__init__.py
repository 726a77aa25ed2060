"""Data files and delete files read as rows.

Importing this package imports no pyarrow: a name is imported when it is asked for, and a scan only plans without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.data.read.deletes import DeleteReader
    from airflow_iceberg.data.read.file import FileToRead, check_supported, find_geo_fields, read_file
    from airflow_iceberg.format.schemas.arrow import schema_to_arrow

__all__ = ["DeleteReader", "FileToRead", "check_supported", "find_geo_fields", "read_file", "schema_to_arrow"]

_FILE = "airflow_iceberg.data.read.file"
_MODULES = {
    "DeleteReader": "airflow_iceberg.data.read.deletes",
    **dict.fromkeys(
        ("FileToRead", "check_supported", "find_geo_fields", "read_file"), "airflow_iceberg.data.read.file"
    ),
    "schema_to_arrow": "airflow_iceberg.format.schemas.arrow",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
