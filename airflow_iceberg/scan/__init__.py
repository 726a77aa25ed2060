"""Reading a table: `TableScan`, incremental scan, changelog and metadata tables, each imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.scan.changelog import ChangesOptions, read_changes
    from airflow_iceberg.scan.incremental_scan import IncrementalAppendScan, incremental_append_scan
    from airflow_iceberg.scan.metadata_tables import Inspection
    from airflow_iceberg.scan.table_scan import TableScan

__all__ = [
    "ChangesOptions",
    "IncrementalAppendScan",
    "Inspection",
    "TableScan",
    "incremental_append_scan",
    "read_changes",
]

__getattr__ = lazy_names(
    __name__,
    ChangesOptions="changelog",
    IncrementalAppendScan="incremental_scan",
    Inspection="metadata_tables",
    TableScan="table_scan",
    incremental_append_scan="incremental_scan",
    read_changes="changelog",
)
