"""Which NameNodes get the credentials of a connection: those that the connection itself names.

A location may come from a table's metadata or from a catalog's server; its host gets no token, user or ticket unless
the connection names it, too: by `hdfs.host`, by `warehouse` (`path` for Paimon), by `allowed-locations`, or in Hadoop's
settings among its properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_iceberg.errors import InvalidInputError

_LOCATION = re.compile(r"\b(s?webhdfs|hdfs|viewfs)://([^/\s,;\"'\]]+)", re.IGNORECASE)
_NAMING = ("warehouse", "path", "allowed-locations")
_HADOOP = "hdfs.config."
_NAME_SERVICES = "hdfs.config.dfs.nameservices"
_DEFAULT_PORTS = {"webhdfs": "9870", "swebhdfs": "9871", "hdfs": "8020"}


def require_own(scheme: str, authority: str, properties: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Reject a host that the connection does not name, if the connection has credentials.

    Args:
        scheme: scheme of the location; a host named with TLS is not that host without.
        authority: host and port of the location; empty for the connection's own.
        names: the properties with credentials.
    """
    used = [name for name in names if properties.get(name, "").strip().lower() not in ("", "false")]
    if not used or not authority or _is_own(scheme.lower(), authority.lower(), properties):
        return
    raise InvalidInputError(
        f"{' and '.join(used)} of the connection are not sent to {authority}, which the connection does not name; if "
        f"it is a NameNode of yours, set hdfs.host and hdfs.port, the warehouse, or allowed-locations to "
        f"{scheme}://{authority}/"
    )


def _is_own(scheme: str, authority: str, properties: Mapping[str, str]) -> bool:
    naming = " ".join(
        value for name, value in properties.items() if name in _NAMING or (name.startswith(_HADOOP) and "://" in value)
    )
    if (scheme, authority) in {(one.lower(), other.lower()) for one, other in _LOCATION.findall(naming)}:
        return True
    if authority in re.split(r"[\s,]+", properties.get(_NAME_SERVICES, "").lower()):
        return True
    host, port = properties.get("hdfs.host", "").strip().lower(), properties.get("hdfs.port", "").strip()
    if not host:
        return False
    ports = {port} if port else {_DEFAULT_PORTS.get(scheme, "")}
    return authority in {f"{host}:{each}" for each in ports} or (authority == host and not port)
