"""What the class `Table` has for existing files and tables; nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from airflow_iceberg import operations
from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.partitions.spec import PartitionField
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.work import Work


class ExistingTables(OpenTable):
    """Methods of a table by which existing files and tables come in."""

    @classmethod
    def register(cls, catalog: Catalog, identifier: str | TableId, metadata_location: str) -> Self:
        """Bring an existing table into a catalog by its metadata file; nothing is copied.

        Raises:
            AlreadyExistsError, NotFoundError, InvalidInputError, UnsupportedError: see `operations.register_table`.
        """
        request = operations.register_table.RegisterTableRequest(metadata_location=metadata_location)
        state, _ = operations.register_table.register_table(catalog, TableId.of(identifier), request)
        return cls(state, io=state.io or catalog.io, catalog=catalog)

    @classmethod
    def snapshot_table(
        cls,
        catalog: Catalog,
        identifier: str | TableId,
        source: str,
        *,
        schema: Mapping[str, Any] | Schema | None = None,
        partition_by: Sequence[str | PartitionField] | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        rewrite_unfit: bool = False,
    ) -> Self:
        """Make a table of the files of a folder, at a location of its own; the files stay the source's.

        Its property `gc.enabled` is false, so that no expiry deletes them.

        Args:
            source: the folder, `s3://old-lake/orders`, with folders `name=value` for partitions; or the name of a table
                of the Hive Metastore that is the catalog, `old.orders`, which is no Iceberg table.
            schema: the columns; those of the metastore, or those in the footers of Parquet files if left out.
            partition_by: the partition fields; those of the metastore, or the names of the folders if left out.
            rewrite_unfit: whether the rows of files that readers of Iceberg would misread are written into new files.

        Raises:
            AlreadyExistsError, InvalidInputError, NotFoundError: see `operations.existing.new_table`; nothing was
                created.
        """
        request = operations.new_table.NewTableRequest(
            source=source,
            schema=schema,
            partition_by=partition_by,
            location=location,
            properties=properties or {},
            rewrite_unfit=rewrite_unfit,
        )
        made, _ = operations.new_table.snapshot_table(catalog, TableId.of(identifier), request)
        return cls(catalog.load(made.identifier), io=made.io, catalog=catalog)

    @classmethod
    def migrate_table(
        cls,
        catalog: Catalog,
        identifier: str | TableId,
        source: str | None = None,
        *,
        schema: Mapping[str, Any] | Schema | None = None,
        partition_by: Sequence[str | PartitionField] | None = None,
        properties: Mapping[str, str] | None = None,
        drop_backup: bool = False,
        backup_table_name: str | None = None,
        rewrite_unfit: bool = False,
    ) -> Self:
        """Make a folder, or a table of a Hive Metastore, a table that has its location and owns its files.

        Args:
            identifier: the name of the table; without a source also that of the metastore's table, which is replaced.
            source: a folder of files.
            drop_backup: whether the metastore's entry of the old table is removed in the end.
            backup_table_name: the name that the old table gets; `<name>_BACKUP_` if left out.

        Further arguments, and errors, as of `snapshot_table`.
        """
        request = operations.migration.MigrateTableRequest(
            source=source,
            schema=schema,
            partition_by=partition_by,
            properties=properties or {},
            drop_backup=drop_backup,
            backup_table_name=backup_table_name,
            rewrite_unfit=rewrite_unfit,
        )
        made, _ = operations.migration.migrate_table(catalog, TableId.of(identifier), request)
        return cls(catalog.load(made.identifier), io=made.io, catalog=catalog)

    def add_files(
        self,
        file_paths: Sequence[str] | None = None,
        *,
        source: str | None = None,
        partition_filter: Mapping[str, Any] | None = None,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
        check_duplicate_files: bool = True,
        rewrite_unfit: bool = False,
        operation_key: OperationKey | None = None,
    ) -> WriteResult:
        """Add existing Parquet, ORC and Avro files to the table, where they are, by their footers.

        From then on they are files of the table: an expiry deletes them if they lie in a location of its own.

        Args:
            file_paths: the locations of the files; or
            source: a folder, all files below it. Folders `name=value` give the values of partition fields. Or the name
                of a table of the Hive Metastore that is the catalog, `old.orders`, which is no Iceberg table.
            partition_filter: `{"ds": "2026-01-01"}`: only those files of `source`.
            check_duplicate_files: whether a file that the branch has already is an error.
            rewrite_unfit: whether the rows of files that readers of Iceberg would misread are written into new files of
                the table, in the same commit; by default such a file is an error.

        Raises:
            NotFoundError, AlreadyExistsError, InvalidInputError, FormatError, UnsupportedError: see
                `operations.add_files`; nothing was committed.
        """
        if (file_paths is None) == (source is None):
            got = "none" if file_paths is None else "both"
            raise InvalidInputError(f"exactly one of file_paths and source is needed, got {got}")
        if isinstance(file_paths, str):
            raise InvalidInputError(f"file_paths is the text {file_paths!r}, expected a list of locations")
        request = operations.add_files.AddFilesRequest(
            files=file_paths,
            source=source,
            partition_filter=partition_filter,
            branch=branch,
            create_branch=create_branch,
            on_rerun="append",
            check_duplicate_files=check_duplicate_files,
            rewrite_unfit=rewrite_unfit,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
        )
        return operations.add_files.add_files(Work.of(self, operation_key), request)
