"""Operators: each is a hook, a plan, a job and a commit, in this order; what any of them means is decided below them.

Here: the names for DAG authors, `from airflow_iceberg.operators import IcebergAppendOperator`; a module is imported
when a name of it is asked for. `write` brings rows in, `evolve` creates and changes tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_iceberg.operators.change import IcebergDeleteOperator, IcebergOverwriteOperator
    from airflow_iceberg.operators.evolve import IcebergAlterTableOperator, IcebergCreateTableOperator
    from airflow_iceberg.operators.maintain import (
        IcebergCompactOperator,
        IcebergExpireSnapshotsOperator,
        IcebergRemoveOrphanFilesOperator,
        IcebergRestoreOrphanFilesOperator,
        IcebergRewriteManifestsOperator,
    )
    from airflow_iceberg.operators.write import FileOptions, IcebergAppendOperator
    from airflow_iceberg.submit import SparkConfig

__all__ = [
    "FileOptions",
    "IcebergAlterTableOperator",
    "IcebergAppendOperator",
    "IcebergCompactOperator",
    "IcebergCreateTableOperator",
    "IcebergDeleteOperator",
    "IcebergExpireSnapshotsOperator",
    "IcebergOverwriteOperator",
    "IcebergRemoveOrphanFilesOperator",
    "IcebergRestoreOrphanFilesOperator",
    "IcebergRewriteManifestsOperator",
    "SparkConfig",
]

_MODULES = {
    "FileOptions": "airflow_iceberg.operators.write",
    "IcebergAlterTableOperator": "airflow_iceberg.operators.evolve",
    "IcebergAppendOperator": "airflow_iceberg.operators.write",
    "IcebergCompactOperator": "airflow_iceberg.operators.maintain",
    "IcebergCreateTableOperator": "airflow_iceberg.operators.evolve",
    "IcebergDeleteOperator": "airflow_iceberg.operators.change",
    "IcebergExpireSnapshotsOperator": "airflow_iceberg.operators.maintain",
    "IcebergOverwriteOperator": "airflow_iceberg.operators.change",
    "IcebergRemoveOrphanFilesOperator": "airflow_iceberg.operators.maintain",
    "IcebergRestoreOrphanFilesOperator": "airflow_iceberg.operators.maintain",
    "IcebergRewriteManifestsOperator": "airflow_iceberg.operators.maintain",
    "SparkConfig": "airflow_iceberg.submit",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
