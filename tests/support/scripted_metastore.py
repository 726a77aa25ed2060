"""A Hive Metastore's interface on loopback whose answers a test writes: for what is said while a connection is made."""

import socket
import socketserver
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport, TTransportBase, TTransportException

from airflow_iceberg.catalogs.hive.thrift_interface import CALLS, HiveError
from tests.support.http_server import Listening

START, OK, BAD, COMPLETE = 1, 2, 3, 5

Answer = Callable[[Any], Any]
Cipher = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]


class Negotiation:
    """The messages of thrift's SASL: one byte that says what it is, a length, and the mechanism's own bytes."""

    def __init__(self, transport: TTransportBase) -> None:
        self._transport = transport

    def receive(self) -> tuple[int, bytes]:
        status, size = struct.unpack(">BI", self._transport.readAll(5))
        return status, self._transport.readAll(size) if size else b""

    def send(self, status: int, body: bytes = b"") -> None:
        self._transport.write(struct.pack(">BI", status, len(body)) + body)
        self._transport.flush()


Sasl = Callable[[Negotiation], Cipher | None]


class ScriptedMetastore(Listening):
    """Serves calls until it is closed.

    Args:
        answers: by a call's name, a function of its arguments that returns the result or raises a `HiveError`. All
            other calls are unknown.
        sasl: does the server's part of a handshake, and returns how frames are sealed and opened; None: refused.
        tls: the server's context.

    Attributes:
        calls: names and arguments so far.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer],
        *,
        sasl: Sasl | None = None,
        tls: ssl.SSLContext | None = None,
        is_framed: bool = False,
        is_compact: bool = False,
    ) -> None:
        self.answers = dict(answers)
        self.calls: list[tuple[str, Any]] = []
        self._sasl, self._tls = sasl, tls
        self._is_framed, self._is_compact = is_framed, is_compact
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    owner._serve(self.request)
                except (OSError, EOFError, TTransportException):
                    pass  # the client went away, or didn't come in

        self.listen(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        self.uri = f"thrift://127.0.0.1:{self.port}"

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        transport: TTransportBase = TSocket()
        transport.setHandle(connection)
        if self._sasl is not None:
            cipher = self._sasl(Negotiation(transport))
            if cipher is None:
                return
            transport = _Sealed(transport, *cipher)
        framed = (TFramedTransport if self._is_framed else TBufferedTransport)(transport)
        protocol = (TCompactProtocol if self._is_compact else TBinaryProtocol)(framed)
        while True:
            name, _, sequence = protocol.readMessageBegin()
            arguments = CALLS[name].arguments()
            arguments.read(protocol)
            protocol.readMessageEnd()
            self.calls.append((name, arguments))
            kind, reply = self._answer(name, arguments)
            protocol.writeMessageBegin(name, kind, sequence)
            reply.write(protocol)
            protocol.writeMessageEnd()
            framed.flush()

    def _answer(self, name: str, arguments: Any) -> tuple[int, Any]:
        if name not in self.answers:
            unknown = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"Invalid method name: '{name}'")
            return TMessageType.EXCEPTION, unknown
        result = CALLS[name].result()
        try:
            found = self.answers[name](arguments)
        except HiveError as error:
            for field in result.thrift_spec:
                if field and field[2] != "success" and field[3][0] is type(error):
                    setattr(result, field[2], error)
            return TMessageType.REPLY, result
        if found is not None:
            result.success = found
        return TMessageType.REPLY, result


class _Sealed(TTransportBase):  # type: ignore[misc] # thrift has no types
    """What follows a handshake: frames, each sealed by the mechanism."""

    def __init__(
        self, transport: TTransportBase, seal: Callable[[bytes], bytes], open_: Callable[[bytes], bytes]
    ) -> None:
        self._transport, self._seal, self._open = transport, seal, open_
        self._waiting, self._written = b"", b""

    def read(self, size: int) -> bytes:
        if not self._waiting:
            (length,) = struct.unpack("!i", self._transport.readAll(4))
            self._waiting = self._open(self._transport.readAll(length))
        found, self._waiting = self._waiting[:size], self._waiting[size:]
        return found

    def write(self, data: bytes) -> None:
        self._written += data

    def flush(self) -> None:
        sealed, self._written = self._seal(self._written), b""
        self._transport.write(struct.pack("!i", len(sealed)) + sealed)
        self._transport.flush()
