"""Triggers, the asynchronous half of the sensors; `from airflow_iceberg.triggers import IcebergSnapshotTrigger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger
    from airflow_iceberg.triggers.paimon import PaimonSnapshotTrigger

__all__ = ["IcebergSnapshotTrigger", "PaimonSnapshotTrigger"]

_MODULES = {
    "IcebergSnapshotTrigger": "airflow_iceberg.triggers.iceberg",
    "PaimonSnapshotTrigger": "airflow_iceberg.triggers.paimon",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
