"""Names in a connection's extra that are probably mistyped: nothing reads them, and nothing would say so."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from airflow_iceberg.get_provider_info import get_provider_info

# Settings that are read and have no field in the form (docs/connections.md).
WITHOUT_A_FIELD = (
    "prefix",
    "token-refresh-enabled",
    "rest-page-size",
    "rest.client.connection-timeout-ms",
    "rest.client.socket-timeout-ms",
    "rest.client.max-retries",
    "rest.client.max-table-mb",
    "transport.connect-timeout",
    "transport.read-timeout",
    "app-id",
    "unique-table-location",
    "glue.max-retries",
    "glue.retry-mode",
    "glue.skip-archive",
    "hive.hive2-compatible",
    "hive.metastore.client.socket.timeout",
    "hive.metastore.kerberos.principal",
    "hive.metastore.sasl.enabled",
    "hive.metastore.thrift.compact.protocol.enabled",
    "hive.metastore.thrift.framed.transport.enabled",
    "iceberg.engine.hive.enabled",
    "iceberg.hive.lock-check-max-wait-ms",
    "iceberg.hive.lock-check-min-wait-ms",
    "iceberg.hive.lock-heartbeat-interval-ms",
    "iceberg.hive.lock-timeout-ms",
    "iceberg.hive.table-property-max-size",
    "lock-check-max-wait-time",
    "lock-check-min-wait-time",
    "gcs.oauth2.token-expires-at",
    "gcs.requester-pays",
    "s3.connect-timeout",
    "s3.force-virtual-addressing",
    "s3.proxy-uri",
    "s3.remote-signing-enabled",
    "s3.request-timeout",
    "s3.server-side-encryption",
    "s3.signer",
    "s3.signer.endpoint",
    "s3.signer.uri",
    "s3.sse-kms-key-id",
)
# What the fields of every connection become, and what other programs read from the same properties.
_OF_ALL = ("uri", "user", "password", "jdbc.user", "jdbc.password", "name", "client.region", "io-impl", "py-io-impl")
_ANY_NAME = ("header.", "hdfs.config.", "adls.account-key.", "table-default.", "table-override.", "client.")
_CLOSE, _LONGEST = 0.85, 100


def mistyped(names: Iterable[str], conn_type: str) -> Iterator[tuple[str, str]]:
    """Yield the names that nobody reads but that are close to one that is read, and that one.

    Args:
        names: the names in the extra of a connection, and in its `properties`.
        conn_type: the type of the connection.
    """
    known = {*WITHOUT_A_FIELD, *_OF_ALL}
    for described in get_provider_info()["connection-types"]:
        if described["connection-type"] == conn_type or not conn_type.startswith("paimon"):
            known |= described["conn-fields"].keys()
    meant = {_plain(one): one for one in sorted(known)}
    for name in names:
        if name not in known and len(name) <= _LONGEST and not name.startswith(_ANY_NAME):
            close = difflib.get_close_matches(_plain(name), meant, n=1, cutoff=_CLOSE)
            if close:
                yield name, meant[close[0]]


def cautions_of(names: Iterable[str], conn_type: str, expected: Iterable[str]) -> Iterator[str]:
    """Yield what a user must look at in a connection, though it may work.

    Args:
        names, conn_type: as of `mistyped`.
        expected: the types that the hook reads, its own one first.
    """
    if conn_type not in expected:
        yield f"the connection is of type {conn_type!r}, expected {next(iter(expected))!r}"
    yield from unread(names, conn_type)


def unread(names: Iterable[str], conn_type: str) -> Iterator[str]:
    """Yield a text for each name that is `mistyped`."""
    for name, other in mistyped(names, conn_type):
        yield f"nothing reads the field {name!r} of the connection; write {other!r} if that is meant"


def _plain(name: str) -> str:
    return re.sub(r"[._ -]+", "-", name.lower())
