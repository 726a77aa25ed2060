"""Hooks: a connection opened as a catalog; `from airflow_iceberg.hooks import IcebergHook`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.hooks.iceberg import IcebergHook
    from airflow_iceberg.hooks.paimon import PaimonHook

__all__ = ["IcebergHook", "PaimonHook"]

_MODULES = {
    "IcebergHook": "airflow_iceberg.hooks.iceberg",
    "PaimonHook": "airflow_iceberg.hooks.paimon",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
