"""Connections to a Hive Metastore: addresses, TLS, SASL, framing, and their failures."""

from __future__ import annotations

import importlib.util
import re
import select
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolBase
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TFramedTransport,
    TSaslClientTransport,
    TTransportBase,
    TTransportException,
)

from airflow_iceberg.errors import InvalidInputError, StorageError, switch
from airflow_iceberg.storage.addresses import warn_once
from airflow_iceberg.storage.answer_limits import GRACE_S, METASTORE, seconds_allowed

DEFAULT_PORT = 9083
CONNECT_SECONDS = 20.0
# Hive's own default: a busy metastore may take minutes, and a shorter limit makes a commit's outcome unknown.
SOCKET_TIMEOUT = "600s"

_UNIT_SECONDS = {"": 1.0, "ms": 0.001, "msec": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_READ_AT_ONCE = 1 << 20
_BUFFER = 1 << 16
_PREFIXES = ("hive.metastore.", "metastore.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """The address of a metastore."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(name: str, uri: str) -> tuple[Address, ...]:
    """Return the metastores of a uri, several of them separated by commas."""
    addresses = []
    for text in filter(None, (part.strip() for part in uri.split(","))):
        try:
            parts = urlsplit(text if "://" in text else f"thrift://{text}")
            port = DEFAULT_PORT if parts.port is None else parts.port
            found = parts.scheme.lower() == "thrift" and parts.hostname and port and not parts.path.strip("/")
            addresses.append(Address(host=parts.hostname or "", port=port))
        except ValueError:
            found = None
        if not found:
            raise InvalidInputError(
                f"catalog {name}: a metastore in property 'uri' is not written as 'thrift://host:port'"
            )
    if not addresses:
        raise InvalidInputError(f"catalog {name}: property 'uri' is missing, write it as 'thrift://host:port'")
    return tuple(addresses)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportOptions:
    """The options of a connection.

    Attributes:
        timeout_seconds: time limit of each answer.
        tls: the certificates to trust and to show; None without TLS.
        service: name of the Kerberos service; None without Kerberos.
        service_host: the service's host, if its principal has one; None for the host of the address.
        is_framed, is_compact: Hive's framed transport and compact protocol.
        user, password: login for SASL PLAIN.
    """

    timeout_seconds: float = 600.0
    tls: ssl.SSLContext | None = None
    service: str | None = None
    service_host: str | None = None
    is_framed: bool = False
    is_compact: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> TransportOptions:
        """Read the options of a catalog."""
        has_kerberos = _flag(name, properties, "sasl.enabled", "hive.kerberos-authentication")
        is_plain = (_of_hive(properties, "client.auth.mode") or "").upper() == "PLAIN"
        if (has_kerberos or is_plain) and importlib.util.find_spec("puresasl") is None:
            raise InvalidInputError(
                f"catalog {name}: authentication needs the package pure-sasl, and for Kerberos kerberos or gssapi; "
                "install airflow-iceberg[hive-kerberos]"
            )
        service, host = _service(properties)
        user, _, password = properties.get("ugi", "").partition(":")
        user = properties.get("user") or user
        if is_plain and not has_kerberos and not user:
            raise InvalidInputError(
                f"catalog {name}: hive.metastore.client.auth.mode is PLAIN and there is no user, set login "
                "and password of the connection (properties user and password)"
            )
        return cls(
            timeout_seconds=duration_seconds(name, _of_hive(properties, "client.socket.timeout") or SOCKET_TIMEOUT),
            tls=_tls(name, properties),
            service=service if has_kerberos else None,
            service_host=host if has_kerberos else None,
            is_framed=_flag(name, properties, "thrift.framed.transport.enabled"),
            is_compact=_flag(name, properties, "thrift.compact.protocol.enabled"),
            user=user if is_plain else None,
            password=(properties.get("password") or password) if is_plain else None,
        )


def _service(properties: Mapping[str, str]) -> tuple[str, str | None]:
    """Return name and host of the service: PyIceberg's property, or the parts of Hive's ("hive/_HOST@EXAMPLE.COM")."""
    principal = (_of_hive(properties, "kerberos.principal") or "hive").partition("@")[0]
    name, _, host = principal.partition("/")
    return properties.get("hive.kerberos-service-name") or name, host if host not in ("", "_HOST") else None


def duration_seconds(name: str, text: str) -> float:
    """Return the seconds of a duration in Hive's form: "600s", "10min", "500ms", or a number of seconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in _UNIT_SECONDS or not int(found[1]):
        raise InvalidInputError(f"catalog {name}: '{text}' is not a duration, write it as '600s' or '10min'")
    return int(found[1]) * _UNIT_SECONDS[found[2]]


def open_protocol(address: Address, options: TransportOptions) -> TProtocolBase:
    """Connect to a metastore; `StorageError` names the reason of a failure."""
    try:
        handle = socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS)
    except OSError as error:
        raise StorageError(f"cannot connect to {address}: {error.strerror or error}") from error
    try:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if options.tls is not None:
            handle = options.tls.wrap_socket(handle, server_hostname=address.host)
        handle.settimeout(options.timeout_seconds)
        wire = _Socket(address.host, address.port)
        wire.setHandle(handle)
        transport = _transport(wire, address, options)
    except (OSError, TException, EOFError) as error:
        handle.close()
        raise StorageError(f"cannot connect to {address}: {_reason(error)}") from error
    except BaseException:
        handle.close()
        raise
    protocol = (TCompactProtocolAccelerated if options.is_compact else TBinaryProtocolAccelerated)(
        transport, string_length_limit=METASTORE.most_bytes, container_length_limit=METASTORE.most_values
    )
    protocol.begin_answer = wire.begin_answer
    return protocol


def _transport(transport: TTransportBase, address: Address, options: TransportOptions) -> TTransportBase:
    if options.service is not None:
        host = options.service_host or address.host
        transport = _authenticated(transport, address, host, options.service, mechanism="GSSAPI")
    elif options.user is not None:
        if options.tls is None:
            message = "the Hive Metastore at %s gets user and password without encryption: set hive.metastore.use.SSL"
            warn_once("sasl", str(address), message, address)
        words = {"username": options.user, "password": options.password or ""}
        transport = _authenticated(transport, address, address.host, "hive", mechanism="PLAIN", **words)
    return TFramedTransport(transport) if options.is_framed else TBufferedTransport(transport, _BUFFER)


class AnswerLimitError(TTransportException):  # type: ignore[misc] # thrift has no types
    """The answer is larger, or comes more slowly, than one may: another try gets the same one."""


class _Socket(TSocket):  # type: ignore[misc]
    """A socket that knows, also under TLS, whether the other side has closed it, and whose answers have a limit."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._received, self._begun = 0, 0.0
        self._timeout_s: float | None = None

    def begin_answer(self) -> None:
        """Begin to count the next answer; without it, all that comes belongs to one."""
        self._received, self._begun = 0, 0.0

    def write(self, buff: bytes) -> None:
        """Send a call, as thrift's own; the time limit is not what the last answer has left."""
        self.handle.settimeout(self._timeout_s)
        super().write(buff)

    def setHandle(self, h: socket.socket) -> None:  # noqa: N802 - thrift's name
        """Take a connected socket, whose timeout is that of the wait for the first byte of an answer."""
        super().setHandle(h)
        self._timeout_s = h.gettimeout()

    def read(self, sz: int) -> bytes:
        """Return some bytes of an answer, as thrift's own."""
        given = GRACE_S if self._timeout_s is None else self._timeout_s
        self.handle.settimeout(min(given, self._left(given)) if self._begun else given)
        try:
            # The size is one that the server has said: so much is allocated before anything has come.
            data: bytes = super().read(min(sz, _READ_AT_ONCE))
        except TTransportException as error:
            if self._begun and error.type == TTransportException.TIMED_OUT:
                self._left(given)
            raise
        self._begun = self._begun or time.monotonic()
        self._received += len(data)
        if self._received > METASTORE.most_bytes:
            raise AnswerLimitError(message=f"it has more than {METASTORE.most_bytes} bytes, the most for an answer")
        return data

    def _left(self, given: float) -> float:
        took_s = time.monotonic() - self._begun
        left = seconds_allowed(self._received, min(GRACE_S, given)) - took_s
        if left <= 0:
            raise AnswerLimitError(message=f"{self._received} bytes came in {took_s:.1f} s, which is too slow")
        return left

    def isOpen(self) -> bool:  # noqa: N802 - thrift's name
        """Tell whether it is open; called between two calls, when only the end can be read."""
        if self.handle is None:
            return False
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        return not poll.poll(0)


def _authenticated(
    transport: TTransportBase, address: Address, host: str, service: str, **words: str
) -> TTransportBase:
    try:
        authenticated = TSaslClientTransport(transport, host, service, **words)
        authenticated.open()
        return authenticated
    except (OSError, TException, EOFError):
        raise
    except Exception as error:
        raise StorageError(f"cannot connect to {address}: authentication failed: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'verify_message', None) or error.reason or error}"
    return str(getattr(error, "message", None) or getattr(error, "strerror", None) or error)


def _tls(name: str, properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS of the properties: Hive's names, but certificates in PEM files, since Python reads no JKS."""
    if not _flag(name, properties, "use.SSL"):
        return None
    trusted, shown = _of_hive(properties, "truststore.path"), _of_hive(properties, "keystore.path")
    try:
        context = ssl.create_default_context(cafile=trusted or None)
        if shown:
            context.load_cert_chain(shown, password=_of_hive(properties, "keystore.password"))
    except OSError as error:  # SSLError is one
        raise InvalidInputError(
            f"catalog {name}: the certificates in {' and '.join(filter(None, (trusted, shown)))} cannot be read, "
            "expected PEM files (a Java keystore can be exported as PEM)"
        ) from error
    return context


def _of_hive(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under its name in Hive 2 or in later versions."""
    return next((properties[prefix + name] for prefix in _PREFIXES if properties.get(prefix + name)), None)


def _flag(catalog: str, properties: Mapping[str, str], name: str, *others: str) -> bool:
    """Return a truth value under other names, or under its name in Hive."""
    return switch(properties, *others, *(prefix + name for prefix in _PREFIXES), whose=f"catalog {catalog}: ")
