"""Hooks: a connection opened as a catalog; `from airflow_iceberg.hooks import IcebergHook`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.hooks.iceberg import IcebergHook
    from airflow_iceberg.hooks.paimon import PaimonHook

__all__ = ["IcebergHook", "PaimonHook"]

__getattr__ = lazy_names(__name__, IcebergHook="iceberg", PaimonHook="paimon")
