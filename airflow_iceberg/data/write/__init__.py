"""Rows written as data files: partitioned, sorted, measured. Importing this package imports no pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.data.write.sorted import unsortable

__all__ = ["unsortable"]

__getattr__ = lazy_names(__name__, unsortable="sorted")
