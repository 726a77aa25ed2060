"""Sensors: wait for what a table has; for example `from airflow_iceberg.sensors import IcebergPartitionSensor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.sensors.conditions import (
        IcebergBranchPublishedSensor,
        IcebergFreshnessSensor,
        IcebergPartitionSensor,
        IcebergRowCountSensor,
        IcebergSchemaChangeSensor,
    )
    from airflow_iceberg.sensors.iceberg import IcebergSnapshotSensor
    from airflow_iceberg.sensors.paimon import PaimonSnapshotSensor

__all__ = [
    "IcebergBranchPublishedSensor",
    "IcebergFreshnessSensor",
    "IcebergPartitionSensor",
    "IcebergRowCountSensor",
    "IcebergSchemaChangeSensor",
    "IcebergSnapshotSensor",
    "PaimonSnapshotSensor",
]

__getattr__ = lazy_names(
    __name__,
    IcebergBranchPublishedSensor="conditions",
    IcebergFreshnessSensor="conditions",
    IcebergPartitionSensor="conditions",
    IcebergRowCountSensor="conditions",
    IcebergSchemaChangeSensor="conditions",
    IcebergSnapshotSensor="iceberg",
    PaimonSnapshotSensor="paimon",
)
