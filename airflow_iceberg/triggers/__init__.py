"""Triggers, the asynchronous half of sensors and of deferred operators.

For example `from airflow_iceberg.triggers import IcebergSnapshotTrigger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.triggers.conditions import IcebergConditionTrigger
    from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger
    from airflow_iceberg.triggers.job import IcebergJobTrigger
    from airflow_iceberg.triggers.paimon import PaimonSnapshotTrigger
    from airflow_iceberg.triggers.watcher import IcebergTableSnapshotTrigger

__all__ = [
    "IcebergConditionTrigger",
    "IcebergJobTrigger",
    "IcebergSnapshotTrigger",
    "IcebergTableSnapshotTrigger",
    "PaimonSnapshotTrigger",
]

__getattr__ = lazy_names(
    __name__,
    IcebergConditionTrigger="conditions",
    IcebergJobTrigger="job",
    IcebergSnapshotTrigger="iceberg",
    IcebergTableSnapshotTrigger="watcher",
    PaimonSnapshotTrigger="paimon",
)
