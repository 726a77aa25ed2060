"""Sensors: wait for snapshots; `from airflow_iceberg.sensors import IcebergSnapshotSensor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.sensors.iceberg import IcebergSnapshotSensor
    from airflow_iceberg.sensors.paimon import PaimonSnapshotSensor

__all__ = ["IcebergSnapshotSensor", "PaimonSnapshotSensor"]

_MODULES = {
    "IcebergSnapshotSensor": "airflow_iceberg.sensors.iceberg",
    "PaimonSnapshotSensor": "airflow_iceberg.sensors.paimon",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
