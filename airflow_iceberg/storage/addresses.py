"""Addresses that get credentials: whether two are one place, which hosts are Azure's, and warnings about plain text.

Nothing is sent here. The catalogs and the stores decide with it to whom they send a proof of identity.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import without_secrets

log = logging.getLogger(__name__)

# Stricter than a URL may be: libraries disagree about the host of "https://a\@b" or "https://a@b".
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:[/?][^\s\\\x00-\x1f]*)?",
    re.IGNORECASE,
)
SIGNER_ENDPOINT = "v1/aws/s3/sign"
_LAST_PORT = 65535
_PORTS = {"http": "80", "https": "443"}
# The public cloud, the sovereign ones, the zones of "storage.azure.net", and Microsoft's OneLake.
_AZURE = re.compile(
    r"(?P<account>[a-z0-9-]+)\.(?:z[0-9]{1,2}\.)?(?:dfs|blob)\."
    r"(?:core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de)|storage\.azure\.net"
    r"|fabric\.microsoft\.com)",
    re.IGNORECASE,
)

_said: set[tuple[str, str]] = set()
_lock = threading.Lock()

Origin = tuple[str, str, str]


def origin_of(url: str) -> Origin | None:
    """Return scheme, host and port of an http address; None for one that is none, or that has a login in it."""
    found = _URL.fullmatch(url.strip())
    if not found:
        return None
    scheme = found["scheme"].lower()
    return scheme, found["host"].lower(), (found["port"] or "").lstrip("0") or _PORTS[scheme]


def endpoint_of(properties: Mapping[str, str], name: str) -> str | None:
    """Return the address of a store that a property gives; None if it gives none.

    Without a scheme it is one of https: keys are not sent in plain text because a word is missing.

    Raises:
        InvalidInputError: the value is no address of a server.
    """
    text = properties.get(name, "").strip()
    if not text:
        return None
    address = text if "://" in text else f"https://{text.removeprefix('//')}"
    found = _URL.fullmatch(address)
    bare = (found or {"host": ""})["host"].strip("[]")
    if found is None or int(found["port"] or 0) > _LAST_PORT or (":" in bare and not _is_ipv6(bare)):
        shown = without_secrets(re.sub(r"//[^/]*@", "//", text).partition("?")[0])[:200]
        raise InvalidInputError(
            f"property {name} is {shown!r}, expected https://host, with a port and a path where needed, and without a "
            "login; an IPv6 address stands in brackets"
        )
    return address


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def host_of(properties: Mapping[str, str], name: str) -> str | None:
    """Return the host that a property gives, without a scheme and a path at its end; None if it gives none.

    Raises:
        InvalidInputError: as of `endpoint_of`, or an address of http, for which the store has no setting.
    """
    address = endpoint_of(properties, name)
    if address is None:
        return None
    scheme, _, rest = address.partition("://")
    if scheme.lower() == "http":
        raise InvalidInputError(f"property {name} begins with http://, expected a host, which is asked over https")
    return rest.rstrip("/")


def is_same_origin(one: str, other: str) -> bool:
    """Tell whether two addresses surely have one scheme, host and port."""
    origin = origin_of(one)
    return origin is not None and origin == origin_of(other)


def signer_url(properties: Mapping[str, str]) -> str | None:
    """Return the address that signs requests to S3; None if no property names its host."""
    base = properties.get("s3.signer.uri", "").strip() or properties.get("uri", "").strip()
    endpoint = properties.get("s3.signer.endpoint", "").strip() or SIGNER_ENDPOINT
    if "://" in endpoint:
        return endpoint
    return f"{base.rstrip('/')}/{endpoint.lstrip('/')}" if base else None


def azure_account(host: str) -> str | None:
    """Return the account of one of Azure's own hosts, "account.dfs.core.windows.net"; None for any other host."""
    found = _AZURE.fullmatch(host)
    return found["account"].lower() if found else None


def warn_once(kind: str, about: str, message: str, *values: object) -> None:
    """Log a warning, once in this process for each kind and object."""
    with _lock:
        if (kind, about) in _said:
            return
        _said.add((kind, about))
    log.warning(message, *values)


def warn_of_plain_text(url: str, what: str) -> None:
    """Log one warning for each host that gets credentials over http, which everyone on the way can read.

    Args:
        url: the address of the request.
        what: whose credentials, for the message: "catalog prod".
    """
    scheme, _, rest = url.partition("://")
    if scheme.lower() != "http":
        return
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    message = "%s sends credentials to %s over http, without encryption: use https"
    warn_once("plain text", host.lower(), message, what, host)


def leave_alone(request: Any) -> Any:
    """Add no proof of identity to a request: without an `auth`, requests takes a login from the user's .netrc."""
    return request
