"""Operators; `from airflow_iceberg.operators import IcebergAppendOperator`.

Each builds a request, calls an operation and reports its result. Importing this package imports no operator: a name is
imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg import lazy_names

if TYPE_CHECKING:
    from airflow_iceberg.backends.config import SparkConfig
    from airflow_iceberg.operations.wap.audits import (
        Freshness,
        NoRows,
        NullShare,
        PythonAudit,
        RowCount,
        RowCountChange,
        SchemaUnchanged,
        UniqueShare,
    )
    from airflow_iceberg.operators._inputs import Changes, Input
    from airflow_iceberg.operators._rows import FileOptions
    from airflow_iceberg.operators.add_files import IcebergAddFilesOperator
    from airflow_iceberg.operators.alter_table import IcebergAlterTableOperator
    from airflow_iceberg.operators.append import IcebergAppendOperator
    from airflow_iceberg.operators.compact import IcebergCompactOperator
    from airflow_iceberg.operators.create_table import IcebergCreateTableOperator
    from airflow_iceberg.operators.delete import IcebergDeleteOperator
    from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
    from airflow_iceberg.operators.history.undo import IcebergUndoOperator
    from airflow_iceberg.operators.merge import IcebergMergeOperator
    from airflow_iceberg.operators.new_table import IcebergMigrateTableOperator, IcebergSnapshotTableOperator
    from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator
    from airflow_iceberg.operators.refs.branch import IcebergBranchOperator, IcebergTagOperator
    from airflow_iceberg.operators.refs.move import (
        IcebergFastForwardOperator,
        IcebergRollbackOperator,
        IcebergSetCurrentSnapshotOperator,
    )
    from airflow_iceberg.operators.refs.publish import IcebergCherryPickOperator, IcebergPublishChangesOperator
    from airflow_iceberg.operators.register_table import IcebergRegisterTableOperator
    from airflow_iceberg.operators.remove_orphan_files import (
        IcebergRemoveOrphanFilesOperator,
        IcebergRestoreOrphanFilesOperator,
    )
    from airflow_iceberg.operators.rewrite_manifests import IcebergRewriteManifestsOperator
    from airflow_iceberg.operators.update import IcebergUpdateOperator
    from airflow_iceberg.operators.wap.audit import IcebergAuditOperator
    from airflow_iceberg.operators.wap.group import iceberg_wap
    from airflow_iceberg.operators.wap.publish import IcebergPublishOperator

__all__ = [
    "Changes",
    "FileOptions",
    "Freshness",
    "IcebergAddFilesOperator",
    "IcebergAlterTableOperator",
    "IcebergAppendOperator",
    "IcebergBranchOperator",
    "IcebergCherryPickOperator",
    "IcebergAuditOperator",
    "IcebergCompactOperator",
    "IcebergCreateTableOperator",
    "IcebergDeleteOperator",
    "IcebergExpireSnapshotsOperator",
    "IcebergFastForwardOperator",
    "IcebergMergeOperator",
    "IcebergMigrateTableOperator",
    "IcebergOverwriteOperator",
    "IcebergPublishChangesOperator",
    "IcebergPublishOperator",
    "IcebergRegisterTableOperator",
    "IcebergRemoveOrphanFilesOperator",
    "IcebergRestoreOrphanFilesOperator",
    "IcebergRewriteManifestsOperator",
    "IcebergRollbackOperator",
    "IcebergSetCurrentSnapshotOperator",
    "IcebergSnapshotTableOperator",
    "IcebergTagOperator",
    "IcebergUndoOperator",
    "IcebergUpdateOperator",
    "Input",
    "NoRows",
    "NullShare",
    "PythonAudit",
    "RowCount",
    "RowCountChange",
    "SchemaUnchanged",
    "SparkConfig",
    "UniqueShare",
    "iceberg_wap",
]

__getattr__ = lazy_names(
    __name__,
    Changes="_inputs",
    FileOptions="_rows",
    Freshness="operations.wap.audits",
    IcebergAddFilesOperator="add_files",
    IcebergAlterTableOperator="alter_table",
    IcebergAppendOperator="append",
    IcebergBranchOperator="operators.refs.branch",
    IcebergCherryPickOperator="operators.refs.publish",
    IcebergAuditOperator="operators.wap.audit",
    IcebergCompactOperator="compact",
    IcebergCreateTableOperator="create_table",
    IcebergDeleteOperator="delete",
    IcebergExpireSnapshotsOperator="expire_snapshots",
    IcebergFastForwardOperator="operators.refs.move",
    IcebergMergeOperator="merge",
    IcebergMigrateTableOperator="new_table",
    IcebergOverwriteOperator="overwrite",
    IcebergPublishChangesOperator="operators.refs.publish",
    IcebergPublishOperator="operators.wap.publish",
    IcebergRegisterTableOperator="register_table",
    IcebergRemoveOrphanFilesOperator="remove_orphan_files",
    IcebergRestoreOrphanFilesOperator="remove_orphan_files",
    IcebergRewriteManifestsOperator="rewrite_manifests",
    IcebergRollbackOperator="operators.refs.move",
    IcebergSetCurrentSnapshotOperator="operators.refs.move",
    IcebergSnapshotTableOperator="new_table",
    IcebergTagOperator="operators.refs.branch",
    IcebergUndoOperator="operators.history.undo",
    IcebergUpdateOperator="update",
    Input="_inputs",
    NoRows="operations.wap.audits",
    NullShare="operations.wap.audits",
    PythonAudit="operations.wap.audits",
    RowCount="operations.wap.audits",
    RowCountChange="operations.wap.audits",
    SchemaUnchanged="operations.wap.audits",
    SparkConfig="backends.config",
    UniqueShare="operations.wap.audits",
    iceberg_wap="operators.wap.group",
)
