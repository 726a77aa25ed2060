"""Triggers, the asynchronous half of sensors and of deferred operators.

For example `from airflow_iceberg.triggers import IcebergSnapshotTrigger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger
    from airflow_iceberg.triggers.job import IcebergJobTrigger
    from airflow_iceberg.triggers.paimon import PaimonSnapshotTrigger

__all__ = ["IcebergJobTrigger", "IcebergSnapshotTrigger", "PaimonSnapshotTrigger"]

__getattr__ = lazy_names(
    __name__, IcebergJobTrigger="job", IcebergSnapshotTrigger="iceberg", PaimonSnapshotTrigger="paimon"
)
