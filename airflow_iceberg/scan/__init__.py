"""Reading a table: `TableScan`, the incremental scan, and the metadata tables, each imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.scan.incremental_scan import IncrementalAppendScan, incremental_append_scan
    from airflow_iceberg.scan.metadata_tables import Inspection
    from airflow_iceberg.scan.table_scan import TableScan

__all__ = ["IncrementalAppendScan", "Inspection", "TableScan", "incremental_append_scan"]

_MODULES = {
    "IncrementalAppendScan": "airflow_iceberg.scan.incremental_scan",
    "Inspection": "airflow_iceberg.scan.metadata_tables",
    "TableScan": "airflow_iceberg.scan.table_scan",
    "incremental_append_scan": "airflow_iceberg.scan.incremental_scan",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
