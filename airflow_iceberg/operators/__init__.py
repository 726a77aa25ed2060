"""Operators, one a module; `from airflow_iceberg.operators import IcebergAppendOperator`.

Each is a request, the work, a verb of `operations` and a report; what the verb does is decided there. Importing this
package imports no operator: a name is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_iceberg import import_name

if TYPE_CHECKING:
    from airflow_iceberg.backends.config import SparkConfig
    from airflow_iceberg.operators._rows import FileOptions
    from airflow_iceberg.operators.alter_table import IcebergAlterTableOperator
    from airflow_iceberg.operators.append import IcebergAppendOperator
    from airflow_iceberg.operators.compact import IcebergCompactOperator
    from airflow_iceberg.operators.create_table import IcebergCreateTableOperator
    from airflow_iceberg.operators.delete import IcebergDeleteOperator
    from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
    from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator
    from airflow_iceberg.operators.remove_orphan_files import (
        IcebergRemoveOrphanFilesOperator,
        IcebergRestoreOrphanFilesOperator,
    )
    from airflow_iceberg.operators.rewrite_manifests import IcebergRewriteManifestsOperator

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
    "FileOptions": "airflow_iceberg.operators._rows",
    "IcebergAlterTableOperator": "airflow_iceberg.operators.alter_table",
    "IcebergAppendOperator": "airflow_iceberg.operators.append",
    "IcebergCompactOperator": "airflow_iceberg.operators.compact",
    "IcebergCreateTableOperator": "airflow_iceberg.operators.create_table",
    "IcebergDeleteOperator": "airflow_iceberg.operators.delete",
    "IcebergExpireSnapshotsOperator": "airflow_iceberg.operators.expire_snapshots",
    "IcebergOverwriteOperator": "airflow_iceberg.operators.overwrite",
    "IcebergRemoveOrphanFilesOperator": "airflow_iceberg.operators.remove_orphan_files",
    "IcebergRestoreOrphanFilesOperator": "airflow_iceberg.operators.remove_orphan_files",
    "IcebergRewriteManifestsOperator": "airflow_iceberg.operators.rewrite_manifests",
    "SparkConfig": "airflow_iceberg.backends.config",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _MODULES, name)
