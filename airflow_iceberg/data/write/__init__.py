"""Rows written as data files: partitioned, sorted, measured. Importing this package imports no pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.data.write.sorted import unsortable

__all__ = ["unsortable"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, {"unsortable": "airflow_iceberg.data.write.sorted"}, name)
