"""Sensors: wait for snapshots; `from airflow_iceberg.sensors import IcebergSnapshotSensor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.sensors.iceberg import IcebergSnapshotSensor
    from airflow_iceberg.sensors.paimon import PaimonSnapshotSensor

__all__ = ["IcebergSnapshotSensor", "PaimonSnapshotSensor"]

__getattr__ = lazy_names(__name__, IcebergSnapshotSensor="iceberg", PaimonSnapshotSensor="paimon")
