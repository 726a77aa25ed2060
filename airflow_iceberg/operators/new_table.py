"""The operators that make a table of existing files: a snapshot of a folder or of a Hive table, or it migrated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import from_json
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators._job import TableOperator
from airflow_iceberg.operators._key import operation_key_of
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.catalogs.base import Catalog, TableId
    from airflow_iceberg.commit.operation_key import OperationKey
    from airflow_iceberg.commit.write_result import WriteResult


class _NewTableOperator(TableOperator):
    """An operator whose table is made of files that exist."""

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        *("source", "schema", "partition_by", "properties", "create_namespace", "rewrite_unfit"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("schema", "partition_by", "properties"), "json"
    )
    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        source: str | None,
        schema: Mapping[str, Any] | str | None = None,
        partition_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | str | None = None,
        create_namespace: bool | str = True,
        rewrite_unfit: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.schema = schema
        self.partition_by = partition_by
        self.properties = properties
        self.create_namespace = create_namespace
        self.rewrite_unfit = rewrite_unfit

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the table."""
        from airflow_iceberg.catalogs.base import TableId

        with airflow_failures():
            catalog, table = IcebergHook(self.iceberg_conn_id).catalog, TableId.parse(self.table)
            namespace = catalog.namespace_of(table)
            if true_or_false("create_namespace", self.create_namespace):
                catalog.ensure_namespace(namespace)
            result = self.make(catalog, table, operation_key_of(context))
        line = _NEW_TABLE_SENTENCES[result.outcome].format(files=result.added_data_files, rows=result.added_records)
        return self.report(context, result, [line])

    @abstractmethod
    def make(self, catalog: Catalog, table: TableId, key: OperationKey) -> WriteResult:
        """Make the table."""

    def request(self) -> dict[str, Any]:
        """Return the arguments of a request."""
        return {
            "source": self.source,
            "schema": from_json("schema", "a JSON object", self.schema),
            "partition_by": from_json("partition_by", "a list such as ['day']", self.partition_by),
            "properties": from_json("properties", "a JSON object", self.properties) or {},
            "rewrite_unfit": true_or_false("rewrite_unfit", self.rewrite_unfit),
        }


_NEW_TABLE_SENTENCES = {
    "committed": "the table was created with {files} files, {rows} rows",
    "found": "an earlier try of this task created the table with {files} files",
    "skipped": "an earlier run of this task created the table with {files} files, and nothing was changed",
    "nothing": "the table exists since an earlier try or run of this task, and there was nothing to add",
}


class IcebergSnapshotTableOperator(_NewTableOperator):
    """Makes a table of the files of a folder or of a Hive table, at a location of its own, exactly once per run.

    It does the work of Iceberg's procedure `snapshot`: it reads the footers of the files, and writes metadata only. The
    files stay the source's: the table's property `gc.enabled` is false, so that no expiry deletes them.

    Args:
        table: the namespace and name that the table gets, `sales.orders`.
        source: a folder, all files below it; folders `name=value` are partitions. Or the name of a table of the Hive
            Metastore that is the catalog, `old.orders`.
        schema: names and types of the columns, or such an object as JSON text; by default those of the metastore, or
            those in the footers of Parquet files.
        partition_by: partition fields; by default those of the metastore, or the names of the folders.
        properties: table properties.
        location: the location of the table; by default the catalog chooses it.
        create_namespace: whether the namespace is created if it does not exist.
        rewrite_unfit: whether the rows of files that readers of Iceberg would misread are written into new files of the
            table; by default such a file fails the task.
        iceberg_conn_id: the id of the catalog's connection.

    A cleared task leaves the table with the files that its source has then.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*_NewTableOperator.template_fields, "location")

    def __init__(self, *, source: str, location: str | None = None, **kwargs: Any) -> None:
        super().__init__(source=source, **kwargs)
        self.location = location

    def make(self, catalog: Catalog, table: TableId, key: OperationKey) -> WriteResult:
        """Make the snapshot."""
        from airflow_iceberg.operations.existing.new_table import NewTableRequest, snapshot_table

        request = NewTableRequest(**self.request(), location=self.location)
        return snapshot_table(catalog, table, request, operation_key=key)[1]


class IcebergMigrateTableOperator(_NewTableOperator):
    """Makes a folder, or a Hive table, a table that has its location and owns its files, exactly once per run.

    It does the work of Iceberg's procedure `migrate`: it reads the footers of the files, and writes metadata only. A
    Hive table keeps its name: it is renamed to `<name>_BACKUP_`, and gets its name back if the migration fails.

    Args:
        table: the namespace and name of the table, `sales.orders`; without `source` also that of the table of the Hive
            Metastore, which has to be the catalog.
        source: a folder, all files below it; folders `name=value` are partitions.
        schema: names and types of the columns, or such an object as JSON text; by default those of the metastore, or
            those in the footers of Parquet files.
        partition_by: partition fields; by default those of the metastore, or the names of the folders.
        properties: table properties.
        drop_backup: whether the metastore's entry of the old table is removed in the end; no file is.
        backup_table_name: the name that the old table gets.
        create_namespace: whether the namespace is created if it does not exist.
        rewrite_unfit: whether the rows of files that readers of Iceberg would misread are written into new files of the
            table; by default such a file fails the task.
        iceberg_conn_id: the id of the catalog's connection.

    A cleared task finds the table that its earlier run has made, and changes nothing.

    Returns:
        the fields of `WriteResult`, as plain values; see docs/reference.md.
    """

    template_fields: Sequence[str] = (*_NewTableOperator.template_fields, "drop_backup", "backup_table_name")

    def __init__(
        self,
        *,
        source: str | None = None,
        drop_backup: bool | str = False,
        backup_table_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, **kwargs)
        self.drop_backup = drop_backup
        self.backup_table_name = backup_table_name

    def make(self, catalog: Catalog, table: TableId, key: OperationKey) -> WriteResult:
        """Migrate the folder or the table."""
        from airflow_iceberg.operations.existing.migration import MigrateTableRequest, migrate_table

        request = MigrateTableRequest(
            **self.request(),
            drop_backup=true_or_false("drop_backup", self.drop_backup),
            backup_table_name=self.backup_table_name,
        )
        return migrate_table(catalog, table, request, operation_key=key)[1]
