"""The part of the Hive Metastore's interface that an Iceberg catalog needs, as data: structs, errors and calls.

Field numbers and types are facts of Hive's hive_metastore.thrift; what isn't named here is skipped when it is read. A
test holds every number against another client. Fields of later versions are optional, and a server skips those that it
doesn't know, so that one definition serves 2.3 to 4.

Not here: connections (`hive_transport`), and which call is used when (`hive_client`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from thrift.protocol.TProtocol import TProtocolBase
from thrift.Thrift import TException, TType

FieldType = tuple[int, Any]
Spec = tuple[Any, ...]

STRING: FieldType = (TType.STRING, "UTF8")
BOOL: FieldType = (TType.BOOL, None)
BYTE: FieldType = (TType.BYTE, None)
I32: FieldType = (TType.I32, None)
I64: FieldType = (TType.I64, None)


class Struct:
    """A thrift struct; a field that has no value is None and not sent."""

    thrift_spec: ClassVar[Spec] = ()

    def __init__(self, **values: Any) -> None:
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
        """Fill the fields from what the other side sends."""
        protocol.readStruct(self, self.thrift_spec)

    def write(self, protocol: TProtocolBase) -> None:
        """Send the fields that have a value."""
        protocol.writeStruct(self, self.thrift_spec)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


def _list(item: FieldType) -> FieldType:
    return TType.LIST, (*item, False)


def _map(key: FieldType, value: FieldType) -> FieldType:
    return TType.MAP, (*key, *value, False)


def _struct(of: type[Struct]) -> FieldType:
    return TType.STRUCT, [of, of.thrift_spec]


def _spec(*fields: tuple[int, str, FieldType]) -> Spec:
    """Return thrift's description of a struct: a tuple indexed by field number, with None for numbers not in use."""
    spec: list[Any] = [None] * (max((number for number, _, _ in fields), default=-1) + 1)
    for number, name, (kind, detail) in fields:
        spec[number] = (number, kind, name, detail, None)
    return tuple(spec)


STRING_LIST = _list(STRING)
STRING_MAP = _map(STRING, STRING)


# -- tables and databases ----------------------------------------------------------------------------------------------


class FieldSchema(Struct):
    """A column; its type in Hive's words."""

    thrift_spec = _spec((1, "name", STRING), (2, "type", STRING), (3, "comment", STRING))


class SerDeInfo(Struct):
    """The Java class by which Hive reads rows."""

    thrift_spec = _spec(
        (1, "name", STRING),
        (2, "serializationLib", STRING),
        (3, "parameters", STRING_MAP),
        (4, "description", STRING),
        (5, "serializerClass", STRING),
        (6, "deserializerClass", STRING),
        (7, "serdeType", I32),
    )


class Order(Struct):
    """A column that files are sorted by."""

    thrift_spec = _spec((1, "col", STRING), (2, "order", I32))


class SkewedInfo(Struct):
    """Values that are frequent; its third field has lists as keys, which Python can't hold, and is left out."""

    thrift_spec = _spec((1, "skewedColNames", STRING_LIST), (2, "skewedColValues", _list(STRING_LIST)))


class StorageDescriptor(Struct):
    """Columns and place of a table."""

    thrift_spec = _spec(
        (1, "cols", _list(_struct(FieldSchema))),
        (2, "location", STRING),
        (3, "inputFormat", STRING),
        (4, "outputFormat", STRING),
        (5, "compressed", BOOL),
        (6, "numBuckets", I32),
        (7, "serdeInfo", _struct(SerDeInfo)),
        (8, "bucketCols", STRING_LIST),
        (9, "sortCols", _list(_struct(Order))),
        (10, "parameters", STRING_MAP),
        (11, "skewedInfo", _struct(SkewedInfo)),
        (12, "storedAsSubDirectories", BOOL),
    )


class Table(Struct):
    """A table. Left out: privileges, statistics of columns and what belongs to materialized views."""

    thrift_spec = _spec(
        (1, "tableName", STRING),
        (2, "dbName", STRING),
        (3, "owner", STRING),
        (4, "createTime", I32),
        (5, "lastAccessTime", I32),
        (6, "retention", I32),
        (7, "sd", _struct(StorageDescriptor)),
        (8, "partitionKeys", _list(_struct(FieldSchema))),
        (9, "parameters", STRING_MAP),
        (10, "viewOriginalText", STRING),
        (11, "viewExpandedText", STRING),
        (12, "tableType", STRING),
        (14, "temporary", BOOL),
        (15, "rewriteEnabled", BOOL),
        (17, "catName", STRING),
        (18, "ownerType", I32),
        (19, "writeId", I64),
        (22, "accessType", BYTE),
        (23, "requiredReadCapabilities", STRING_LIST),
        (24, "requiredWriteCapabilities", STRING_LIST),
        (25, "id", I64),
    )


class Database(Struct):
    """A namespace."""

    thrift_spec = _spec(
        (1, "name", STRING),
        (2, "description", STRING),
        (3, "locationUri", STRING),
        (4, "parameters", STRING_MAP),
        (6, "ownerName", STRING),
        (7, "ownerType", I32),
        (8, "catalogName", STRING),
        (9, "createTime", I32),
        (10, "managedLocationUri", STRING),
        (11, "type", I32),
        (12, "connector_name", STRING),
        (13, "remote_dbname", STRING),
    )


class EnvironmentContext(Struct):
    """Wishes beside the arguments of a call."""

    thrift_spec = _spec((1, "properties", STRING_MAP))


class GetTableRequest(Struct):
    """Which table is asked for."""

    thrift_spec = _spec((1, "dbName", STRING), (2, "tblName", STRING))


class GetTableResult(Struct):
    """The table asked for."""

    thrift_spec = _spec((1, "table", _struct(Table)))


class GetTablesRequest(Struct):
    """Which tables are asked for."""

    thrift_spec = _spec((1, "dbName", STRING), (2, "tblNames", STRING_LIST))


class GetTablesResult(Struct):
    """The tables asked for, as far as they are there."""

    thrift_spec = _spec((1, "tables", _list(_struct(Table))))


class GetCatalogsResponse(Struct):
    """The names of the server's catalogs, which it has since Hive 3."""

    thrift_spec = _spec((1, "names", STRING_LIST))


# -- locks -------------------------------------------------------------------------------------------------------------


class PrincipalType(IntEnum):
    """What kind of name an owner is."""

    USER = 1
    ROLE = 2
    GROUP = 3


class LockState(IntEnum):
    """How far a lock is."""

    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


EXCLUSIVE = 3
TABLE_LEVEL = 2


class LockComponent(Struct):
    """What is locked, and how."""

    thrift_spec = _spec(
        (1, "type", I32),
        (2, "level", I32),
        (3, "dbname", STRING),
        (4, "tablename", STRING),
        (5, "partitionname", STRING),
    )


class LockRequest(Struct):
    """Who locks what."""

    thrift_spec = _spec(
        (1, "component", _list(_struct(LockComponent))),
        (2, "txnid", I64),
        (3, "user", STRING),
        (4, "hostname", STRING),
        (5, "agentInfo", STRING),
    )


class LockResponse(Struct):
    """The lock's id and state."""

    thrift_spec = _spec((1, "lockid", I64), (2, "state", I32), (3, "errorMessage", STRING))


class CheckLockRequest(Struct):
    """The lock that is asked about."""

    thrift_spec = _spec((1, "lockid", I64))


class UnlockRequest(Struct):
    """The lock that is given back."""

    thrift_spec = _spec((1, "lockid", I64))


class HeartbeatRequest(Struct):
    """The lock whose holder is alive."""

    thrift_spec = _spec((1, "lockid", I64))


class ShowLocksRequest(Struct):
    """Whose locks are asked for."""

    thrift_spec = _spec((1, "dbname", STRING), (2, "tablename", STRING))


class ShowLocksElement(Struct):
    """A lock that somebody holds or waits for; times are milliseconds since the epoch."""

    thrift_spec = _spec(
        (1, "lockid", I64),
        (2, "dbname", STRING),
        (3, "tablename", STRING),
        (5, "state", I32),
        (6, "type", I32),
        (8, "lastheartbeat", I64),
        (9, "acquiredat", I64),
        (10, "user", STRING),
        (11, "hostname", STRING),
        (13, "agentInfo", STRING),
    )


class ShowLocksResponse(Struct):
    """All locks that fit the question."""

    thrift_spec = _spec((1, "locks", _list(_struct(ShowLocksElement))))


# -- errors that the server declares -----------------------------------------------------------------------------------


class HiveError(Struct, TException):  # type: ignore[misc] # thrift has no types
    """The server refused, and says why in `message`."""

    thrift_spec = _spec((1, "message", STRING))

    __hash__ = TException.__hash__

    def __str__(self) -> str:
        return str(self.message or type(self).__name__)


class MetaException(HiveError):
    """Anything that failed in the metastore or its database."""


class AlreadyExistsException(HiveError):
    """The name is taken."""


class InvalidObjectException(HiveError):
    """What was to be made is not valid, or the place where is missing."""


class InvalidOperationException(HiveError):
    """What was asked for can't be done."""


class NoSuchObjectException(HiveError):
    """What was named is not there."""


class UnknownDBException(HiveError):
    """The database is not there."""


class NoSuchLockException(HiveError):
    """The lock is not there, any more perhaps."""


class NoSuchTxnException(HiveError):
    """There is no such transaction."""


class TxnAbortedException(HiveError):
    """The transaction was undone."""


class TxnOpenException(HiveError):
    """The lock belongs to an open transaction."""


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call: what is sent, and what may come back.

    Attributes:
        arguments: struct of the arguments.
        result: struct of the outcome: `success`, if the call returns something, and a field for each error.
        is_read: nothing changes when it runs twice.
    """

    arguments: type[Struct]
    result: type[Struct]
    is_read: bool


def _call(
    name: str,
    *arguments: tuple[str, FieldType],
    returns: FieldType | None = None,
    errors: Mapping[int, type[HiveError]] | None = None,
    is_read: bool = False,
) -> Call:
    """Describe a call; arguments are numbered from 1, errors as given."""
    sent = [(number, argument, kind) for number, (argument, kind) in enumerate(arguments, 1)]
    back = [(number, f"error_{number}", _struct(error)) for number, error in (errors or {}).items()]
    if returns:
        back.append((0, "success", returns))
    return Call(
        arguments=type(f"{name}_args", (Struct,), {"thrift_spec": _spec(*sent)}),
        result=type(f"{name}_result", (Struct,), {"thrift_spec": _spec(*back)}),
        is_read=is_read,
    )


_META, _GONE, _INVALID = MetaException, NoSuchObjectException, InvalidObjectException
_TXN: dict[int, type[HiveError]] = {1: NoSuchTxnException, 2: TxnAbortedException}

CALLS: Mapping[str, Call] = {
    "get_table": _call(
        "get_table",
        ("dbname", STRING),
        ("tbl_name", STRING),
        returns=_struct(Table),
        errors={1: _META, 2: _GONE},
        is_read=True,
    ),
    "get_table_req": _call(
        "get_table_req",
        ("req", _struct(GetTableRequest)),
        returns=_struct(GetTableResult),
        errors={1: _META, 2: _GONE},
        is_read=True,
    ),
    "get_all_tables": _call(
        "get_all_tables", ("db_name", STRING), returns=STRING_LIST, errors={1: _META}, is_read=True
    ),
    "get_table_objects_by_name": _call(
        "get_table_objects_by_name",
        ("dbname", STRING),
        ("tbl_names", STRING_LIST),
        returns=_list(_struct(Table)),
        # declared by 2.3 and before, no longer by later ones
        errors={1: _META, 2: InvalidOperationException, 3: UnknownDBException},
        is_read=True,
    ),
    "get_table_objects_by_name_req": _call(
        "get_table_objects_by_name_req",
        ("req", _struct(GetTablesRequest)),
        returns=_struct(GetTablesResult),
        errors={1: _META, 2: InvalidOperationException, 3: UnknownDBException},
        is_read=True,
    ),
    "get_all_databases": _call("get_all_databases", returns=STRING_LIST, errors={1: _META}, is_read=True),
    "get_catalogs": _call("get_catalogs", returns=_struct(GetCatalogsResponse), errors={1: _META}, is_read=True),
    "get_database": _call(
        "get_database", ("name", STRING), returns=_struct(Database), errors={1: _GONE, 2: _META}, is_read=True
    ),
    "create_database": _call(
        "create_database", ("database", _struct(Database)), errors={1: AlreadyExistsException, 2: _INVALID, 3: _META}
    ),
    "alter_database": _call(
        "alter_database", ("dbname", STRING), ("db", _struct(Database)), errors={1: _META, 2: _GONE}
    ),
    "drop_database": _call(
        "drop_database",
        ("name", STRING),
        ("deleteData", BOOL),
        ("cascade", BOOL),
        errors={1: _GONE, 2: InvalidOperationException, 3: _META},
    ),
    "create_table": _call(
        "create_table",
        ("tbl", _struct(Table)),
        errors={1: AlreadyExistsException, 2: _INVALID, 3: _META, 4: _GONE},
    ),
    "drop_table": _call(
        "drop_table", ("dbname", STRING), ("name", STRING), ("deleteData", BOOL), errors={1: _GONE, 2: _META}
    ),
    "alter_table_with_environment_context": _call(
        "alter_table_with_environment_context",
        ("dbname", STRING),
        ("tbl_name", STRING),
        ("new_tbl", _struct(Table)),
        ("environment_context", _struct(EnvironmentContext)),
        errors={1: InvalidOperationException, 2: _META},
    ),
    "lock": _call("lock", ("rqst", _struct(LockRequest)), returns=_struct(LockResponse), errors=_TXN),
    "check_lock": _call(
        "check_lock",
        ("rqst", _struct(CheckLockRequest)),
        returns=_struct(LockResponse),
        errors={**_TXN, 3: NoSuchLockException},
        is_read=True,
    ),
    "unlock": _call(
        "unlock", ("rqst", _struct(UnlockRequest)), errors={1: NoSuchLockException, 2: TxnOpenException}, is_read=True
    ),
    "heartbeat": _call(
        "heartbeat",
        ("ids", _struct(HeartbeatRequest)),
        errors={1: NoSuchLockException, 2: NoSuchTxnException, 3: TxnAbortedException},
        is_read=True,
    ),
    "show_locks": _call(
        "show_locks", ("rqst", _struct(ShowLocksRequest)), returns=_struct(ShowLocksResponse), is_read=True
    ),
    "set_ugi": _call(
        "set_ugi", ("user_name", STRING), ("group_names", STRING_LIST), returns=STRING_LIST, errors={1: _META}
    ),
}
