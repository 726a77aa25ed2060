"""The part of the Hive Metastore's interface that an Iceberg catalog needs: structs, errors and calls.

Fields and calls are written as in Hive's hive_metastore.thrift (an enum is an i32). A field that is missing here is
skipped by the reader, and a server skips fields that it doesn't know, so that one definition fits 2.3 to 4. A test
compares every number with another client. ADR 0019 has the reasons for a definition of our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from thrift.protocol.TProtocol import TProtocolBase
from thrift.Thrift import TException, TType

from airflow_iceberg.catalogs.hive.struct_limit import count_struct

FieldType = tuple[int, Any]

_STRING: FieldType = (TType.STRING, "UTF8")
_TYPES: Mapping[str, FieldType] = {
    "string": _STRING,
    "bool": (TType.BOOL, None),
    "byte": (TType.BYTE, None),
    "i16": (TType.I16, None),
    "i32": (TType.I32, None),
    "i64": (TType.I64, None),
    "map<string,string>": (TType.MAP, (*_STRING, *_STRING, False)),
}
_structs: dict[str, type[Struct]] = {}


def _type(text: str) -> FieldType:
    """Return thrift's description of a type."""
    if text.startswith("list<"):
        return TType.LIST, (*_type(text[5:-1]), False)
    if text in _TYPES:
        return _TYPES[text]
    return TType.STRUCT, [_structs[text], _structs[text].thrift_spec]


def _spec(idl: str) -> tuple[Any, ...]:
    """Return thrift's description of "1: string name, 3: i32 count": indexed by field number, None for the others."""
    fields = {int(number): (text, name) for number, text, name in re.findall(r"(\d+): (\S+) (\w+)", idl)}
    spec: list[Any] = [None] * (max(fields, default=-1) + 1)
    for number, (text, name) in fields.items():
        kind, detail = _type(text)
        spec[number] = (number, kind, name, detail, None)
    return tuple(spec)


class Struct:
    """A thrift struct; a field that has no value is None and not sent.

    Args:
        idl: its fields, in thrift's own notation.
    """

    thrift_spec: ClassVar[tuple[Any, ...]] = ()

    def __init_subclass__(cls, *, idl: str | None = None) -> None:
        if idl is not None:
            cls.thrift_spec = _spec(idl)
        _structs[cls.__name__] = cls

    def __init__(self, **values: Any) -> None:
        count_struct()
        for field in self.thrift_spec:
            if field:
                setattr(self, field[2], values.pop(field[2], None))
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def __repr__(self) -> str:
        values = {field[2]: getattr(self, field[2]) for field in self.thrift_spec if field}
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def read(self, protocol: TProtocolBase) -> None:
        """Fill the fields with what the other side sends."""
        protocol.readStruct(self, self.thrift_spec)

    def write(self, protocol: TProtocolBase) -> None:
        """Send the fields that have a value."""
        protocol.writeStruct(self, self.thrift_spec)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


# -- tables and databases ----------------------------------------------------------------------------------------------


class FieldSchema(Struct, idl="1: string name, 2: string type, 3: string comment"):
    """A column; its type in Hive's words."""


class SerDeInfo(
    Struct,
    idl="1: string name, 2: string serializationLib, 3: map<string,string> parameters, 4: string description, "
    "5: string serializerClass, 6: string deserializerClass, 7: i32 serdeType",
):
    """The Java class that Hive reads rows with."""


class Order(Struct, idl="1: string col, 2: i32 order"):
    """A column that files are sorted by."""


class SkewedInfo(Struct, idl="1: list<string> skewedColNames, 2: list<list<string>> skewedColValues"):
    """Frequent values. Left out: the third field, whose keys are lists, which a Python dictionary can't have."""


class StorageDescriptor(
    Struct,
    idl="1: list<FieldSchema> cols, 2: string location, 3: string inputFormat, 4: string outputFormat, "
    "5: bool compressed, 6: i32 numBuckets, 7: SerDeInfo serdeInfo, 8: list<string> bucketCols, "
    "9: list<Order> sortCols, 10: map<string,string> parameters, 11: SkewedInfo skewedInfo, "
    "12: bool storedAsSubDirectories",
):
    """Columns and location of a table."""


class Table(
    Struct,
    idl="1: string tableName, 2: string dbName, 3: string owner, 4: i32 createTime, 5: i32 lastAccessTime, "
    "6: i32 retention, 7: StorageDescriptor sd, 8: list<FieldSchema> partitionKeys, "
    "9: map<string,string> parameters, 10: string viewOriginalText, 11: string viewExpandedText, "
    "12: string tableType, 14: bool temporary, 15: bool rewriteEnabled, 17: string catName, 18: i32 ownerType, "
    "19: i64 writeId, 22: byte accessType, 23: list<string> requiredReadCapabilities, "
    "24: list<string> requiredWriteCapabilities, 25: i64 id",
):
    """A table. Left out: privileges, statistics of columns and the fields of materialized views."""


class Partition(
    Struct,
    idl="1: list<string> values, 2: string dbName, 3: string tableName, 6: StorageDescriptor sd, "
    "7: map<string,string> parameters",
):
    """A partition. Left out: times, privileges and statistics."""


class Database(
    Struct,
    idl="1: string name, 2: string description, 3: string locationUri, 4: map<string,string> parameters, "
    "6: string ownerName, 7: i32 ownerType, 8: string catalogName, 9: i32 createTime, 10: string managedLocationUri, "
    "11: i32 type, 12: string connector_name, 13: string remote_dbname",
):
    """A namespace."""


class EnvironmentContext(Struct, idl="1: map<string,string> properties"):
    """Options of a call besides its arguments."""


class GetTableRequest(Struct, idl="1: string dbName, 2: string tblName"):
    """The name of the requested table."""


class GetTableResult(Struct, idl="1: Table table"):
    """The requested table."""


class GetTablesRequest(Struct, idl="1: string dbName, 2: list<string> tblNames"):
    """The names of the requested tables."""


class GetTablesResult(Struct, idl="1: list<Table> tables"):
    """The requested tables that exist."""


class GetCatalogsResponse(Struct, idl="1: list<string> names"):
    """The names of the server's catalogs, which it has since Hive 3."""


# -- locks -------------------------------------------------------------------------------------------------------------


class PrincipalType(IntEnum):
    """The kinds of owners."""

    USER = 1
    ROLE = 2
    GROUP = 3


class LockState(IntEnum):
    """The states of a lock."""

    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


EXCLUSIVE = 3
TABLE_LEVEL = 2


class LockComponent(
    Struct, idl="1: i32 type, 2: i32 level, 3: string dbname, 4: string tablename, 5: string partitionname"
):
    """The locked object, and the kind of lock."""


class LockRequest(
    Struct,
    idl="1: list<LockComponent> component, 2: i64 txnid, 3: string user, 4: string hostname, 5: string agentInfo",
):
    """The objects to lock, and the holder."""


class LockResponse(Struct, idl="1: i64 lockid, 2: i32 state, 3: string errorMessage"):
    """The lock's id and state."""


class CheckLockRequest(Struct, idl="1: i64 lockid"):
    """The lock to check."""


class UnlockRequest(Struct, idl="1: i64 lockid"):
    """The lock to release."""


class HeartbeatRequest(Struct, idl="1: i64 lockid"):
    """The lock whose holder is alive."""


class ShowLocksRequest(Struct, idl="1: string dbname, 2: string tablename"):
    """The object whose locks are requested."""


class ShowLocksElement(
    Struct,
    idl="1: i64 lockid, 2: string dbname, 3: string tablename, 5: i32 state, 6: i32 type, 8: i64 lastheartbeat, "
    "9: i64 acquiredat, 10: string user, 11: string hostname, 13: string agentInfo",
):
    """A lock that is held or waited for; times are milliseconds since the epoch."""


class ShowLocksResponse(Struct, idl="1: list<ShowLocksElement> locks"):
    """All matching locks."""


# -- errors that the server declares -----------------------------------------------------------------------------------


class HiveError(Struct, TException, idl="1: string message"):  # type: ignore[misc] # thrift has no types
    """The server's error response; the reason is in `message`."""

    __hash__ = TException.__hash__

    def __str__(self) -> str:
        return str(self.message or type(self).__name__)


class MetaException(HiveError):
    """Any failure in the metastore or its database."""


class AlreadyExistsException(HiveError):
    """The name is taken."""


class InvalidObjectException(HiveError):
    """The object to create is not valid, or its parent is missing."""


class InvalidOperationException(HiveError):
    """The operation is not possible."""


class NoSuchObjectException(HiveError):
    """The named object does not exist."""


class UnknownDBException(HiveError):
    """The database does not exist."""


class NoSuchLockException(HiveError):
    """The lock does not exist, or no longer."""


class NoSuchTxnException(HiveError):
    """The transaction does not exist."""


class TxnAbortedException(HiveError):
    """The transaction was rolled back."""


class TxnOpenException(HiveError):
    """The lock belongs to an open transaction."""


# -- calls -------------------------------------------------------------------------------------------------------------

# A read changes nothing when it runs twice. The two errors of get_table_objects_by_name are those of 2.3 and before.
_IDL = """
read Table get_table(1: string dbname, 2: string tbl_name) throws (1: MetaException, 2: NoSuchObjectException)
read GetTableResult get_table_req(1: GetTableRequest req) throws (1: MetaException, 2: NoSuchObjectException)
read list<string> get_all_tables(1: string db_name) throws (1: MetaException)
read list<Table> get_table_objects_by_name(1: string dbname, 2: list<string> tbl_names) \
throws (1: MetaException, 2: InvalidOperationException, 3: UnknownDBException)
read GetTablesResult get_table_objects_by_name_req(1: GetTablesRequest req) \
throws (1: MetaException, 2: InvalidOperationException, 3: UnknownDBException)
read list<string> get_partition_names(1: string db_name, 2: string tbl_name, 3: i16 max_parts) \
throws (1: NoSuchObjectException, 2: MetaException)
read list<Partition> get_partitions_by_names(1: string db_name, 2: string tbl_name, 3: list<string> names) \
throws (1: MetaException, 2: NoSuchObjectException)
read list<string> get_all_databases() throws (1: MetaException)
read GetCatalogsResponse get_catalogs() throws (1: MetaException)
read Database get_database(1: string name) throws (1: NoSuchObjectException, 2: MetaException)
change void create_database(1: Database database) \
throws (1: AlreadyExistsException, 2: InvalidObjectException, 3: MetaException)
change void alter_database(1: string dbname, 2: Database db) throws (1: MetaException, 2: NoSuchObjectException)
change void drop_database(1: string name, 2: bool deleteData, 3: bool cascade) \
throws (1: NoSuchObjectException, 2: InvalidOperationException, 3: MetaException)
change void create_table(1: Table tbl) \
throws (1: AlreadyExistsException, 2: InvalidObjectException, 3: MetaException, 4: NoSuchObjectException)
change void drop_table(1: string dbname, 2: string name, 3: bool deleteData) \
throws (1: NoSuchObjectException, 2: MetaException)
change void alter_table_with_environment_context(1: string dbname, 2: string tbl_name, 3: Table new_tbl, \
4: EnvironmentContext environment_context) throws (1: InvalidOperationException, 2: MetaException)
change LockResponse lock(1: LockRequest rqst) throws (1: NoSuchTxnException, 2: TxnAbortedException)
read LockResponse check_lock(1: CheckLockRequest rqst) \
throws (1: NoSuchTxnException, 2: TxnAbortedException, 3: NoSuchLockException)
read void unlock(1: UnlockRequest rqst) throws (1: NoSuchLockException, 2: TxnOpenException)
read void heartbeat(1: HeartbeatRequest ids) \
throws (1: NoSuchLockException, 2: NoSuchTxnException, 3: TxnAbortedException)
read ShowLocksResponse show_locks(1: ShowLocksRequest rqst)
change list<string> set_ugi(1: string user_name, 2: list<string> group_names) throws (1: MetaException)
"""
_CALL = re.compile(r"(read|change) (\S+) (\w+)\((.*?)\)(?: throws \((.*)\))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call: its arguments and its possible results.

    Attributes:
        arguments: struct of the arguments.
        result: struct of the outcome: `success`, if the call returns something, and a field for each error.
        is_read: whether the call can be repeated without changing anything.
    """

    arguments: type[Struct]
    result: type[Struct]
    is_read: bool


def _call(kind: str, returned: str, name: str, arguments: str, errors: str) -> Call:
    success = "" if returned == "void" else f"0: {returned} success, "
    outcome = success + re.sub(r"(\d+): (\w+)", r"\1: \2 error_\1", errors)
    return Call(
        arguments=type(f"{name}_args", (Struct,), {}, idl=arguments),
        result=type(f"{name}_result", (Struct,), {}, idl=outcome),
        is_read=kind == "read",
    )


CALLS: Mapping[str, Call] = {found[3]: _call(*found.groups(default="")) for found in _CALL.finditer(_IDL)}
