"""The call that alters a table in the Hive Metastore, and whether the server compares before it does."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.hive.client import Connection, ConnectionLostError
from airflow_iceberg.catalogs.hive.tables import METADATA_LOCATION
from airflow_iceberg.catalogs.hive.thrift_interface import (
    EnvironmentContext,
    FieldSchema,
    HiveError,
    InvalidOperationException,
    MetaException,
    Table,
)
from airflow_iceberg.errors import NotFoundError, StorageError

# The metastore has one type of error for all failures; this text means that the expected parameter has another value.
_MODIFIED = "The table has been modified"


def is_modified(error: HiveError) -> bool:
    """Tell whether the server refused a swap because the expected parameter has another value."""
    return str(error).startswith(_MODIFIED)


def hive_name(table: TableId) -> tuple[str, str]:
    """Return the names of database and table in the metastore; `NotFoundError` for a namespace of several levels."""
    if len(table.namespace) != 1:
        raise NotFoundError(f"there is no table {table}: a Hive Metastore has one level of namespaces")
    return table.namespace[0].lower(), table.name.lower()


def call_alter(connection: Connection, found: Table, changed: Table, *, expected: str | None) -> None:
    """Replace a table's entry; `expected` is the metadata location that the server must find, None for any."""
    # Without the first option the server lists the table's files to count them.
    options: dict[str, Any] = {"DO_NOT_UPDATE_STATS": "true"}
    if expected is not None:
        options |= {"expected_parameter_key": METADATA_LOCATION, "expected_parameter_value": expected}
    connection.call(
        "alter_table_with_environment_context",
        dbname=found.dbName,
        tbl_name=found.tableName,
        new_tbl=changed,
        environment_context=EnvironmentContext(properties=options),
    )


def enforces_expected(connection: Connection, found: Table) -> bool:
    """Find out, once for each connection, whether its server refuses a swap whose expected value is wrong.

    The table is altered with an impossible expected value and with another partition column. A server that compares
    refuses because of the first, which it checks first; one that doesn't compare refuses because of the second, since
    no metastore lets partition columns change. So neither changes anything.
    """
    # Differs from Java: it relies on the user that the server compares.
    if connection.enforces_expected is None:
        probe = copy.deepcopy(found)
        added = FieldSchema(name="airflow_iceberg_probe", type="string", comment="")
        probe.partitionKeys = [*(found.partitionKeys or []), added]
        try:
            call_alter(connection, found, probe, expected=f"airflow-iceberg-probe-{uuid.uuid4()}")
            connection.enforces_expected = False
        except InvalidOperationException:
            connection.enforces_expected = False
        except MetaException as error:
            if not is_modified(error):
                raise StorageError(f"the metastore at {connection.address} failed: {error}") from error
            connection.enforces_expected = True
        except ConnectionLostError as error:
            raise StorageError(str(error)) from error
    return connection.enforces_expected
