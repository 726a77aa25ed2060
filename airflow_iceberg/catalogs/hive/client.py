"""`HiveClient`: calls to a Hive Metastore over connections that are kept, shared by threads, and never by processes.

Here: the connection of a call, retries, and calls that older servers lack. Not here: the interface itself
(`hive.thrift_interface`), opening connections (`hive.transport`), and the callers (`hive.catalog`, `hive.locks`).

A call that only reads is retried once on a new connection, since a kept one may have been closed by the server or by a
firewall. A call that changes something is not: the caller finds out whether it was done.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from thrift.protocol.TProtocol import TProtocolBase, TProtocolException
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TTransportException

from airflow_iceberg.catalogs.hive.struct_limit import StructLimitError, limited_structs
from airflow_iceberg.catalogs.hive.thrift_interface import CALLS, GetTableRequest, GetTablesRequest, HiveError, Table
from airflow_iceberg.catalogs.hive.transport import (
    Address,
    AnswerLimitError,
    TransportOptions,
    open_protocol,
    parse_addresses,
)
from airflow_iceberg.errors import CommitUnknownError, InvalidInputError, StorageError

# Firewalls and load balancers silently drop idle connections; an older one is not used any more.
IDLE_SECONDS = 60.0
# The server's own limit for one answer (hive.metastore.batch.retrieve.max).
BATCH = 300
# TTransportException's NEGATIVE_SIZE and SIZE_LIMIT; older versions have no names for them.
_TRANSPORT_SIZES = (5, 6)


class MetastoreFailedError(StorageError):
    """The server answered with an error that the interface doesn't declare: a bug in it, or an unknown call.

    Attributes:
        is_unknown_call: whether the server doesn't know the call, and surely did nothing.
    """

    def __init__(self, message: str, *, is_unknown_call: bool) -> None:
        super().__init__(message)
        self.is_unknown_call = is_unknown_call


class ExcessError(StorageError):
    """An answer to a read exceeded a limit, as it would again."""


class ConnectionLostError(CommitUnknownError):
    """The connection broke after a call was sent: it may have been done or not.

    Attributes:
        is_excess: whether the answer exceeded a limit, as it would again.
    """

    is_excess = False


def _is_excess(error: BaseException) -> bool:
    """Tell whether an error is about the size of an answer: of a string, a list, a frame, or the whole."""
    if isinstance(error, TProtocolException):
        return error.type in (TProtocolException.SIZE_LIMIT, TProtocolException.NEGATIVE_SIZE)
    return isinstance(error, AnswerLimitError | StructLimitError) or getattr(error, "type", None) in _TRANSPORT_SIZES


class Connection:
    """One connection, used by one thread at a time.

    Attributes:
        enforces_expected: whether its server compares the expected parameter of a swap; None if not yet probed.
    """

    def __init__(self, address: Address, protocol: TProtocolBase) -> None:
        self.address = address
        self.pid = os.getpid()
        self.enforces_expected: bool | None = None
        self.unknown_calls: set[str] = set()
        self.is_broken = False
        self._protocol = protocol
        self._sequence = 0
        self._used = time.monotonic()

    def is_usable(self) -> bool:
        """Tell whether it should work: it belongs to this process, is not old, and was not closed."""
        is_ours = not self.is_broken and self.pid == os.getpid()
        return is_ours and time.monotonic() - self._used < IDLE_SECONDS and self._protocol.trans.isOpen()

    def close(self) -> None:
        """Close it; in another process that has it, it stays open."""
        self.is_broken = True
        self._protocol.trans.close()

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Do a call and return its result.

        Raises:
            HiveError: the server's error response.
            MetastoreFailedError: the server failed.
            ConnectionLostError: the connection broke, and cannot be used any more.
        """
        call = CALLS[name]
        if name in self.unknown_calls:
            raise MetastoreFailedError(f"the metastore at {self.address} has no call {name}", is_unknown_call=True)
        result = call.result()
        try:
            self._exchange(name, call.arguments(**arguments), result)
        except MetastoreFailedError as error:
            if error.is_unknown_call:
                self.unknown_calls.add(name)
            raise
        except (TTransportException, TProtocolException, OSError, EOFError) as error:
            self.close()
            reason = getattr(error, "inner", None) or getattr(error, "message", None) or error
            is_excess = _is_excess(error)
            what = "its answer is not read to the end: " if is_excess else ""
            lost = ConnectionLostError(f"lost the metastore at {self.address} in {name}: {what}{reason}")
            lost.is_excess = is_excess
            raise lost from error
        except InvalidInputError:
            self.close()
            raise
        except (ValueError, TypeError, LookupError, AttributeError, MemoryError, RecursionError) as error:
            # What comes is no answer of a metastore, of which thrift makes what it can.
            self.close()
            told = f"its answer is none of a metastore, {type(error).__name__}"
            raise ConnectionLostError(f"lost the metastore at {self.address} in {name}: {told}") from error
        except BaseException:
            self.close()  # a signal in the middle of an answer, whose rest would be read as the next answer
            raise
        for value in vars(result).values():
            if isinstance(value, HiveError):
                raise value
        return getattr(result, "success", None)

    def _exchange(self, name: str, arguments: Any, result: Any) -> None:
        protocol = self._protocol
        self._sequence += 1
        try:
            protocol.writeMessageBegin(name, TMessageType.CALL, self._sequence)
            arguments.write(protocol)
            protocol.writeMessageEnd()
        except UnicodeError as error:  # nothing was sent
            what = f"cannot ask the metastore at {self.address} for {name}: a text in it is no Unicode"
            raise InvalidInputError(what) from error
        protocol.trans.flush()
        protocol.begin_answer()
        _, kind, sequence = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(protocol)
            protocol.readMessageEnd()
            self._used = time.monotonic()
            raise MetastoreFailedError(
                f"the metastore at {self.address} failed in {name}: {failure.message}",
                is_unknown_call=failure.type == TApplicationException.UNKNOWN_METHOD,
            )
        with limited_structs():
            result.read(protocol)
        protocol.readMessageEnd()
        self._used = time.monotonic()
        if sequence != self._sequence:
            raise TProtocolException(message=f"answer {sequence} to question {self._sequence}")


class HiveClient:
    """Calls by any thread; connections are opened when they are needed.

    Args:
        properties: `uri` (one or several metastores, tried in this order), those of `TransportOptions`, and `ugi`
            ("user" or "user:group,group"): our name in a metastore without authentication.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._addresses = parse_addresses(name, properties.get("uri", ""))
        self._options = TransportOptions.of(name, properties)
        self._ugi = properties.get("ugi", "")
        self._idle: list[Connection] = []
        self._is_hive_2: bool | None = None
        self._lock = threading.Lock()
        _clients.add(self)

    def __str__(self) -> str:
        return ",".join(f"thrift://{address}" for address in self._addresses)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection; after a failure or a signal it is not used again."""
        connection = self._take()
        try:
            yield connection
        finally:
            if not connection.is_broken:
                with self._lock:
                    self._idle.append(connection)

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Do a call on any connection; a read is retried on a new connection if that breaks.

        Raises:
            HiveError: the server's error response.
            StorageError: no connection, the server failed, or a read failed twice; nothing was changed.
            ConnectionLostError: a call that changes something was sent, and its answer is lost.
        """
        try:
            with self.connection() as connection:
                return connection.call(name, **arguments)
        except ConnectionLostError as error:
            if not CALLS[name].is_read:
                raise
            if error.is_excess:
                raise ExcessError(
                    f"catalog {self._name}: {error}; check that the metastore is the right one"
                ) from error
            self._forget_idle()
            try:
                with self.connection() as connection:
                    return connection.call(name, **arguments)
            except ConnectionLostError as again:
                raise StorageError(f"catalog {self._name}: {again}") from error

    def table(self, database: str, name: str) -> Table:
        """Return a table."""
        try:
            # Hive 4 has only this call, and servers before 2.2 only the other.
            request = GetTableRequest(dbName=database, tblName=name)
            found: Table = self.call("get_table_req", req=request).table
        except MetastoreFailedError as error:
            if not error.is_unknown_call:
                raise
            found = self.call("get_table", dbname=database, tbl_name=name)
        return found

    def tables(self, database: str, names: Sequence[str]) -> Iterator[Table]:
        """Yield the tables of these names that (still) exist."""
        waiting = [list(names[start : start + BATCH]) for start in range(0, len(names), BATCH)][::-1]
        while waiting:
            batch = waiting.pop()
            try:
                yield from self._batch(database, batch)
            except ExcessError:
                if len(batch) == 1:
                    raise
                # Tables of thousands of columns: as many as fit into an answer.
                waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]

    def _batch(self, database: str, names: list[str]) -> Sequence[Table]:
        try:
            found: Sequence[Table] = self.call(
                "get_table_objects_by_name_req", req=GetTablesRequest(dbName=database, tblNames=names)
            ).tables
        except MetastoreFailedError as error:
            if not error.is_unknown_call:
                raise
            found = self.call("get_table_objects_by_name", dbname=database, tbl_names=names)
        return found

    def is_hive_2(self) -> bool:
        """Tell whether the metastore is older than Hive 3, by one call."""
        if self._is_hive_2 is None:
            try:
                self.call("get_catalogs")
                self._is_hive_2 = False
            except MetastoreFailedError as error:
                if not error.is_unknown_call:
                    raise
                self._is_hive_2 = True
            except HiveError:
                self._is_hive_2 = False  # it knows the call
        return self._is_hive_2

    def close(self) -> None:
        """Close what is open; the next call opens it again."""
        self._forget_idle()

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_usable():
                    return connection
                connection.close()
        return self._open()

    def _open(self) -> Connection:
        reasons = []
        for address in self._addresses:
            try:
                connection = Connection(address, open_protocol(address, self._options))
                if self._ugi and not (self._options.service or self._options.user):
                    user, _, groups = self._ugi.partition(":")
                    connection.call("set_ugi", user_name=user, group_names=[g for g in groups.split(",") if g])
            except (StorageError, ConnectionLostError, HiveError) as error:
                reasons.append(str(error))
                continue
            with self._lock:  # the next one begins with the server that answered
                first = self._addresses.index(address)
                self._addresses = self._addresses[first:] + self._addresses[:first]
            return connection
        failed = StorageError(f"catalog {self._name} has no metastore: {'; '.join(reasons)}")
        failed.advice = "check host and port in the uri, the login, and that the metastore is up"
        raise failed

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


_clients: weakref.WeakSet[HiveClient] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Forget the parent's connections, and a lock that one of its threads may hold."""
    for client in _clients:
        client._idle = []
        client._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
