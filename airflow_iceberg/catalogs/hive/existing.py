"""Tables of a Hive Metastore that are no Iceberg tables: what they are, and how one gives its name to an Iceberg table.

Taken over are tables of Parquet, ORC and Avro files whose rows are those of their files: not transactional tables,
views, text files, nor tables that another program describes elsewhere (Delta, Hudi, HBase).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping

from airflow_iceberg.catalogs.base import TableId, join_levels
from airflow_iceberg.catalogs.existing_tables import ExistingPartition, ExistingTable
from airflow_iceberg.catalogs.hive.alter import call_alter, hive_name
from airflow_iceberg.catalogs.hive.client import BATCH, ConnectionLostError, HiveClient, MetastoreFailedError
from airflow_iceberg.catalogs.hive.tables import is_iceberg
from airflow_iceberg.catalogs.hive.thrift_interface import (
    FieldSchema,
    HiveError,
    NoSuchObjectException,
    Partition,
    StorageDescriptor,
    Table,
)
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)

# Other input formats read files in a way of their own, also with these SerDes: Hudi's, and lists of symbolic links.
_INPUT_FORMATS = {
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": "parquet",
    "parquet.hive.DeprecatedParquetInputFormat": "parquet",
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": "orc",
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat": "avro",
}
# Spark's own tables name their format here; Hive's entry of a Delta table may look like one of Parquet.
_PROVIDER = "spark.sql.sources.provider"
_PROVIDERS = frozenset(("parquet", "orc", "avro", "hive"))

# Hive's words that Iceberg does not have: integers of fewer bits, and times. Hive and Spark write times as instants.
_TYPES = (
    (re.compile(r"\b(?:tinyint|smallint)(?=[,>]|$)"), "int"),
    (re.compile(r"\btimestamp(?: with local time zone)?(?=[,>]|$)"), "timestamptz"),
)
_LONGEST_TYPE = 1_000_000
_NOT_TYPES = re.compile(r"\b(uniontype<|interval_\w+(?=[,>]|$)|void(?=[,>]|$))")

# What a migration writes into the entry of a table that it sets aside: whether Hive managed the files before, and the
# name that it had.
ASIDE, _OF = "airflow.migration", "airflow.migration-of"
_WAS_MANAGED, _WAS_EXTERNAL, _ENDED = "was-managed", "was-external", "ended"
_EXTERNAL, _PURGE = "EXTERNAL", "external.table.purge"
# Parameters by which a metastore deletes the files of an external table when it is dropped, and Hive 4 moves those of a
# table that it made external by itself. They are kept under other names meanwhile.
_KEPT = {_PURGE: "airflow.migration-purge", "TRANSLATED_TO_EXTERNAL": "airflow.migration-translated"}


def describe(client: HiveClient, catalog: str, table: TableId) -> ExistingTable:
    """Return what the metastore tells of a table; see `HasExistingTables.existing_table`."""
    found = find(client, table)
    if found is None:
        raise NotFoundError(f"there is no table {table} in the metastore of catalog {catalog}; check its name")
    _check_kind(table, found)
    _check_format(table, found.sd, "table")
    names = _spark_names(found.parameters or {})
    keys = tuple(names.get(key.name, key.name) for key in found.partitionKeys or ())
    columns = [*found.sd.cols, *(found.partitionKeys or ())]
    location = _location(table, found.sd)
    if keys:
        partitions = tuple(_partition(table, keys, each) for each in _partitions(client, *hive_name(table)))
    else:
        partitions = (ExistingPartition(values={}, location=location),)
    return ExistingTable(
        table=table,
        columns={names.get(column.name, column.name): _type(table, column) for column in columns},
        partition_columns=keys,
        location=location,
        partitions=partitions,
        bucket_columns=tuple(names.get(name, name) for name in _bucket_columns(found)),
    )


def _bucket_columns(found: Table) -> list[str]:
    """Return the columns of the buckets of Hive, or of those of Spark, which notes them as parameters."""
    if (found.sd.numBuckets or 0) > 0 and found.sd.bucketCols:
        return list(found.sd.bucketCols)
    parameters = found.parameters or {}
    noted = sorted(key for key in parameters if re.fullmatch(r"spark\.sql\.sources\.schema\.bucketCol\.\d+", key))
    return [parameters[key] for key in noted]


def find(client: HiveClient, table: TableId) -> Table | None:
    """Return the metastore's entry of a name; None if it has none."""
    try:
        return client.table(*hive_name(table))
    except NoSuchObjectException:
        return None
    except HiveError as error:
        raise StorageError(f"the metastore cannot read {table}: {error}") from error


def _partitions(client: HiveClient, database: str, name: str) -> Iterator[Partition]:
    try:
        names = client.call("get_partition_names", db_name=database, tbl_name=name, max_parts=-1)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            yield from client.call("get_partitions_by_names", db_name=database, tbl_name=name, names=batch)
    except HiveError as error:
        raise StorageError(f"the metastore cannot list the partitions of {database}.{name}: {error}") from error


def _partition(table: TableId, keys: tuple[str, ...], found: Partition) -> ExistingPartition:
    what = f"partition {'/'.join(found.values)}"
    _check_format(table, found.sd, what)
    if len(found.values) != len(keys):
        raise UnsupportedError(f"table {table}: {what} has {len(found.values)} values, expected {len(keys)}")
    return ExistingPartition(values=dict(zip(keys, found.values, strict=True)), location=_location(table, found.sd))


def _check_kind(table: TableId, found: Table) -> None:
    parameters = found.parameters or {}
    provider = parameters.get(_PROVIDER, "hive").lower()
    why = None
    if is_iceberg(found):
        why = "an Iceberg table already"
    elif "VIEW" in str(found.tableType).upper():
        why = f"a view ({found.tableType})"
    elif parameters.get("transactional", "").lower() == "true":
        why = "a transactional (ACID) table, whose files hold more than its rows; compact it into a plain table first"
    elif "storage_handler" in parameters:
        why = f"a table of the storage handler {parameters['storage_handler']}"
    elif provider not in _PROVIDERS:
        why = f"a table of Spark's source {provider!r}"
    elif found.sd is None:
        why = "a table without files"
    if why is not None:
        raise UnsupportedError(f"cannot take over {table}: it is {why}; expected a table of Parquet, ORC or Avro files")


def _check_format(table: TableId, storage: StorageDescriptor, what: str) -> None:
    known = _INPUT_FORMATS.get(storage.inputFormat or "")
    serde = (storage.serdeInfo.serializationLib if storage.serdeInfo else None) or "none"
    if known is None or known not in serde.lower():
        raise UnsupportedError(
            f"cannot take over {table}: its {what} has the input format {storage.inputFormat} and the SerDe {serde}, "
            f"expected those of Parquet, ORC or Avro; load its rows with an append instead"
        )


def _type(table: TableId, column: FieldSchema) -> str:
    """Return a type in the words of `schema_from_shorthand`, which knows most of Hive's."""
    text: str = column.type
    if len(text) > _LONGEST_TYPE:
        raise UnsupportedError(f"cannot take over {table}: the type of a column has {len(text)} characters")
    if _NOT_TYPES.search(text):
        raise UnsupportedError(
            f"cannot take over {table}: column '{column.name}' is {text}, which Iceberg does not have"
        )
    for pattern, word in _TYPES:
        text = pattern.sub(word, text)
    return text


def _location(table: TableId, storage: StorageDescriptor) -> str:
    if not storage.location:
        raise UnsupportedError(f"cannot take over {table}: a partition of it, or itself, has no location")
    # Hadoop writes local paths with one slash.
    return re.sub(r"^file:/(?!/)", "file:///", storage.location).rstrip("/")


# -- the names of Spark ------------------------------------------------------------------------------------------------


def _spark_names(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """Return the columns' names as Spark writes them, by those of Hive, which knows lower case only."""
    keys = [key for key in parameters if re.search(r"schema\.part\.[0-9]{1,9}$", key)]
    parts = sorted((int(key.rpartition(".")[2]), key) for key in keys)
    document = parameters.get("spark.sql.sources.schema") or "".join(parameters[key] for _, key in parts)
    try:
        names = [str(field["name"]) for field in json.loads(document)["fields"]] if document else []
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return {name.lower(): name for name in names}


# -- aside and back ----------------------------------------------------------------------------------------------------


def is_aside(found: Table | None, table: TableId) -> bool:
    """Whether an entry is what the migration of a table has set aside, and has not ended."""
    return _mark(found, table) in (_WAS_MANAGED, _WAS_EXTERNAL)


def _mark(found: Table | None, table: TableId) -> str | None:
    """Return what the migration of a table has written into an entry; None if that is of another one."""
    parameters = {} if found is None else found.parameters or {}
    return parameters.get(ASIDE) if parameters.get(_OF) == _name(table) else None


def _name(table: TableId) -> str:
    return join_levels(hive_name(table))


def set_aside(client: HiveClient, table: TableId, to: TableId) -> None:
    """See `HasExistingTables.set_aside`: first the table is made external, whose files a rename does not move."""
    found = find(client, table)
    if found is None:
        if is_aside(find(client, to), table):
            return
        raise NotFoundError(f"there is no table {table} to set aside as {to}; nothing was changed")
    if is_iceberg(found):
        raise AlreadyExistsError(f"table {table} is an Iceberg table already; nothing was changed")
    if find(client, to) is not None:
        raise AlreadyExistsError(
            f"cannot migrate {table}: the name of its backup, {to}, is taken; drop that table, or choose another name "
            f"for the backup"
        )
    if not is_aside(found, table):
        was = dict(found.parameters or {})
        is_external = was.get(_EXTERNAL, "").upper() == "TRUE"
        marks = {ASIDE: _WAS_EXTERNAL if is_external else _WAS_MANAGED, _OF: _name(table)}
        marks |= {kept: was.pop(name) for name, kept in _KEPT.items() if name in was}
        marked = copy.deepcopy(found)
        marked.parameters = {**was, _EXTERNAL: "TRUE", _PURGE: "false", **marks}
        marked.tableType = "EXTERNAL_TABLE"
        _alter(client, table, found, marked, lambda: is_aside(find(client, table), table))
        found = marked
    _rename(client, table, to, found, of=table)


def put_back(client: HiveClient, aside: TableId, to: TableId) -> None:
    """See `HasExistingTables.put_back`."""
    found = find(client, aside)
    if found is not None and is_aside(found, to) and find(client, to) is None:
        _rename(client, aside, to, found, of=to)
    found = find(client, to)
    if found is None or not is_aside(found, to):
        return
    parameters = dict(found.parameters)
    was = parameters.pop(ASIDE)
    parameters.pop(_OF)
    parameters.pop(_PURGE, None)
    parameters |= {name: parameters.pop(kept) for name, kept in _KEPT.items() if kept in parameters}
    changed = copy.deepcopy(found)
    if was == _WAS_MANAGED:
        parameters.pop(_EXTERNAL, None)
        changed.tableType = "MANAGED_TABLE"
    changed.parameters = parameters
    _alter(client, to, found, changed, lambda: not is_aside(find(client, to), to))


def keep_aside(client: HiveClient, aside: TableId, table: TableId) -> None:
    """See `HasExistingTables.keep_aside`; it remains external, so that dropping it deletes no file of the new table."""
    found = find(client, aside)
    if found is None or not is_aside(found, table):
        return
    changed = copy.deepcopy(found)
    changed.parameters = {**found.parameters, ASIDE: _ENDED}
    _alter(client, aside, found, changed, lambda: _mark(find(client, aside), table) == _ENDED)


def drop_aside(client: HiveClient, aside: TableId, table: TableId) -> None:
    """See `HasExistingTables.drop_aside`."""
    if _mark(find(client, aside), table) is None:
        return
    database, name = hive_name(aside)
    try:
        client.call("drop_table", dbname=database, name=name, deleteData=False)
    except NoSuchObjectException:
        return
    except ConnectionLostError:
        if find(client, aside) is not None:
            raise
    except HiveError as error:
        raise StorageError(f"the metastore cannot drop {aside}: {error}") from error


def _rename(client: HiveClient, table: TableId, to: TableId, found: Table, *, of: TableId) -> None:
    renamed = copy.deepcopy(found)
    renamed.dbName, renamed.tableName = hive_name(to)
    _alter(client, table, found, renamed, lambda: find(client, table) is None and is_aside(find(client, to), of))


def _alter(client: HiveClient, table: TableId, found: Table, changed: Table, is_done: Callable[[], bool]) -> None:
    """Change an entry, and find out whether it was done if the answer is lost."""
    try:
        with client.connection() as connection:
            call_alter(connection, found, changed, expected=None)
    except (ConnectionLostError, MetastoreFailedError, HiveError) as error:
        if is_done():
            return
        if isinstance(error, ConnectionLostError):
            raise CommitUnknownError(f"cannot tell whether the entry of {table} was changed: {error}") from error
        raise StorageError(f"the metastore cannot change the entry of {table}: {error}") from error
