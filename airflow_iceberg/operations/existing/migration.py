"""Migrate: a folder, or a table of a Hive Metastore, becomes an Iceberg table that owns its files.

A table of a metastore keeps its name. It is renamed to `<name>_BACKUP_`, which moves no file, and the Iceberg table is
created under its name, with all its files in the same step. If that fails, it gets its name back. If the process dies
in between, the next call finds the backup by a mark, and does the rest. So at each moment the rows are in one of the
two.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.catalogs.existing_tables import HasExistingTables
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, IcebergError, InvalidInputError
from airflow_iceberg.operations.existing.listing import hive_catalog, is_table_name
from airflow_iceberg.operations.existing.new_table import (
    NewTableRequest,
    create_with_files,
    found_table,
    has_changed,
    migrate_folder,
    migrated,
    of_earlier_try,
    plan_of_table,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrateTableRequest(NewTableRequest):
    """What is migrated.

    Attributes:
        drop_backup: whether the entry of the metastore's table is removed in the end; its files are the new table's.
        backup_table_name: the name that it gets; None for `<name>_BACKUP_`, as Iceberg Java has it.
    """

    drop_backup: bool = False
    backup_table_name: str | None = None


def migrate_table(
    catalog: Catalog, table: TableId, request: MigrateTableRequest, *, operation_key: OperationKey | None = None
) -> tuple[OpenTable, WriteResult]:
    """Make a table that has the location of its source, and owns the files from then on.

    Raises:
        AlreadyExistsError: the name, or that of the backup, is taken.
        UnsupportedError: the source is no table that can be taken over, or the catalog has Iceberg tables only.
        InvalidInputError: a location is given; or as `add_files`; nothing was changed.
        CommitUnknownError: cannot tell whether the table was created; call it again.
    """
    if request.source is not None and not is_table_name(request.source):
        return migrate_folder(catalog, table, request, operation_key=operation_key)
    if request.source is not None and TableId.of(request.source) != table:
        raise InvalidInputError(
            f"cannot migrate {request.source} to {table}: a table keeps its name; leave source out, or make a snapshot"
        )
    return _migrate_existing(hive_catalog(catalog, str(table)), table, request, operation_key)


def _migrate_existing(
    catalog: HasExistingTables, table: TableId, request: MigrateTableRequest, key: OperationKey | None
) -> tuple[OpenTable, WriteResult]:
    backup = TableId(namespace=table.namespace, name=request.backup_table_name or f"{table.name}_BACKUP_")
    if backup.name.lower() == table.name.lower():
        raise InvalidInputError(f"the backup of {table} has the name of the table itself; choose another one")
    there = of_earlier_try(catalog, table, key)
    if there is not None:
        made = found_table(catalog, there, key)
    else:
        made = _replace(catalog, table, backup, request, key)
    if request.drop_backup:
        catalog.drop_aside(backup, table)
    else:
        catalog.keep_aside(backup, table)
    return made


def _replace(
    catalog: HasExistingTables, table: TableId, backup: TableId, request: MigrateTableRequest, key: OperationKey | None
) -> tuple[OpenTable, WriteResult]:
    # An earlier try may have died after it had set the table aside.
    begun = catalog.is_set_aside(backup, table) and not catalog.has_entry(table)
    try:
        found = catalog.existing_table(backup if begun else table)
        planned = plan_of_table(catalog, table, migrated(request, found.location, key), found)
        catalog.set_aside(table, backup)
        if has_changed(catalog, planned, table, catalog.existing_table(backup)):
            raise CommitConflictError(
                f"cannot migrate {table}: another program has changed its files meanwhile; stop it, and try again"
            )
        return create_with_files(catalog, table, planned, key)
    except CommitUnknownError:
        raise  # the next call finds what was done
    except Exception:
        _put_back(catalog, table, backup)
        raise


def _put_back(catalog: HasExistingTables, table: TableId, backup: TableId) -> None:
    try:
        catalog.put_back(backup, table)
        if catalog.is_set_aside(backup, table):
            log.warning("another table has taken the name %s; the old table is kept as %s", table, backup)
    except IcebergError as error:
        log.error(
            "table %s could not get its name back, it is %s now; rename it, or migrate again: %s", table, backup, error
        )
