"""What a server may say: which of its properties are used, and which only together with credentials of its own.

The one list of them. A property that is not in it is ignored, wherever the server says it: in the defaults and the
overrides of its configuration, in the configuration of a table, in the credentials that it vends. So nobody who runs a
server can send our secrets to another host, choose a proxy, trust a certificate, or read a profile or a file of this
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_iceberg.errors import FormatError
from airflow_iceberg.storage.addresses import azure_account, is_same_origin, warn_once
from airflow_iceberg.storage.stores.lent_keys import merged
from airflow_iceberg.storage.stores.store import lent

# -- the requests to the server itself ---------------------------------------------------------------------------------

# A server decides about its own paths and pages, and about the kind of access to files.
_DELEGATION = "header.x-iceberg-access-delegation"
_FREE = ("prefix", "namespace-separator", "rest-page-size", "token-refresh-enabled", _DELEGATION)
_URI, _OAUTH, _TOKEN = "uri", "oauth2-server-uri", "token"
_REFRESH = "token-refresh-enabled"
CONNECTION = (_URI, _OAUTH, _TOKEN, _REFRESH)
"""What a server may say about the connection to it, within limits."""
_LOGIN = (
    *("token", "credential", "header.*", "ssl.client.cert", "rest.auth.*", "rest.sigv4*"),
    *("rest.access-key-id", "rest.secret-access-key", "rest.session-token"),
)
_REGION = re.compile(r"[A-Za-z0-9-]{1,63}")
# A prefix may be percent-encoded, and have several parts; it stays below the address of the server.
_PREFIX = re.compile(r"[^?#\\\s\x00-\x1f]*")


def has_login(given: Mapping[str, str]) -> bool:
    """Tell whether a connection has a proof of identity, of whatever kind, for its server."""
    return any(value and name.lower() != _DELEGATION for name, value in _matching(_LOGIN, given).items())


def request_properties(
    given: Mapping[str, str], defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of requests to the server: the connection's, with what the server may add or override.

    Args:
        given: the connection's.
        defaults: the server's for what the connection does not say.
        overrides: the server's that come before those of the connection.
    """
    low, high = (_matching(_FREE, each) for each in (defaults, overrides))
    found = {**low, **given, **high}
    named = {**defaults, **overrides}
    if named.get(_TOKEN) and not has_login(given):
        found[_TOKEN] = named[_TOKEN]
    if (uri := overrides.get(_URI)) and _is_accepted_uri(given, uri):
        found[_URI] = uri
    if (uri := named.get(_OAUTH, "").strip()) and not given.get(_OAUTH, "").strip():
        if "://" not in uri or is_same_origin(uri, given.get(_URI, "")):
            found[_OAUTH] = uri
        else:
            _ignored(_OAUTH, uri, "no login is sent to another host than the catalog's")
    _check_prefix(found.get("prefix", ""))
    return found


def _is_accepted_uri(given: Mapping[str, str], uri: str) -> bool:
    if is_same_origin(uri, given.get(_URI, "")) or not has_login(given):
        return True
    _ignored(_URI, uri, "the login of the connection belongs to its own uri")
    return False


def _check_prefix(prefix: str) -> None:
    parts = re.split(r"/|%2f", prefix, flags=re.IGNORECASE)
    dots = {part for part in parts if re.sub(r"(?i)%2e", ".", part) in (".", "..")}
    if dots or not _PREFIX.fullmatch(prefix):
        raise FormatError(f"unexpected prefix {prefix!r} (expected a path without '..') in the server's configuration")


# -- the files of its tables -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """One kind of store.

    Attributes:
        name: what the names of its properties begin with.
        free: names that a server may always set: no credentials go elsewhere by them.
        credentials: names of credentials that a server may vend.
        with_credentials: names that a server may set only together with credentials of its own: they say where
            credentials are sent.
        own: names of the connection's credentials, none of which is used together with the server's.
    """

    name: str
    free: tuple[str, ...]
    credentials: tuple[str, ...]
    with_credentials: tuple[str, ...]
    own: tuple[str, ...]


_ANONYMOUS = "s3.anonymous"
_S3_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", _ANONYMOUS)
_AZURE_TOKENS = ("adls.sas-token*", "adls.token*")
_S3 = _Kind(
    name="s3",
    free=(
        *("client.region", "s3.region", "s3.path-style-access", "s3.force-virtual-addressing"),
        *("s3.connect-timeout", "s3.request-timeout"),
        *("s3.server-side-encryption", "s3.sse.type", "s3.sse.key", "s3.sse-kms-key-id"),
        *("s3.remote-signing-enabled", "s3.signer", "s3.signer.uri", "s3.signer.endpoint"),
    ),
    credentials=(*_S3_KEYS, "s3.session-token-expires-at-ms"),
    with_credentials=("s3.endpoint",),
    own=(
        *(*_S3_KEYS, "s3.session-token*", "s3.profile-name"),
        *("client.access-key-id", "client.secret-access-key", "client.session-token", "client.profile-name"),
    ),
)
_GCS = _Kind(
    name="gcs",
    free=("gcs.project-id",),
    credentials=("gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
    with_credentials=("gcs.service.host", "gcs.requester-pays"),
    own=("gcs.oauth2.token*", "gcs.token", "gcs.session-kwargs"),
)
_ADLS = _Kind(
    name="adls",
    free=(),
    credentials=_AZURE_TOKENS,
    with_credentials=("adls.account-host", "adls.account-name"),
    own=(
        *(*_AZURE_TOKENS, "adls.connection-string*", "adls.account-key", "adls.auth.*", "adls.anon", "adls.anonymous"),
        *("adls.client-id", "adls.client-secret", "adls.tenant-id"),
    ),
)
_KINDS = (_S3, _GCS, _ADLS)
# The words by which Google's driver looks for credentials of this machine.
_GOOGLE_WORDS = frozenset({"browser", "cache", "cloud", "google_default"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreAccess:
    """The properties of the stores of a location, and whose credentials they have.

    Attributes:
        properties: all of them; may hold secrets.
        is_theirs: for S3, Google's and Azure's store, whether no credentials of ours are used.
    """

    properties: Mapping[str, str] = field(repr=False)
    is_theirs: tuple[bool, ...] = (False,) * len(_KINDS)


def store_access(given: Mapping[str, str], defaults: Mapping[str, str], said: Mapping[str, str]) -> StoreAccess:
    """Return the properties of the stores: the connection's, with what the server may add or override.

    Args:
        given: the connection's.
        defaults: the server's for what the connection does not say.
        said: the server's that come before those of the connection: its overrides, and those of a table.
    """
    found, whose = dict(given), []
    for kind in _KINDS:
        said_here, defaults_here = _usable(kind, said), _usable(kind, defaults)
        has_own = any(value for value in _matching(kind.own, given).values())
        theirs = merged(defaults_here, said_here)
        is_theirs = _has_credentials(kind, said_here) or (_has_credentials(kind, theirs) and not has_own)
        free = {**_matching(kind.free, defaults_here), **_matching(kind.free, given), **_matching(kind.free, said_here)}
        is_theirs = is_theirs or (kind is _S3 and is_signed(free))
        whose.append(is_theirs)
        if is_theirs:
            own = _matching(kind.own, found)
            found = {name: value for name, value in found.items() if name not in own}
            found = {**merged(defaults_here, found, said_here), lent(kind.name): "true"}
            if kind is _S3:
                found = _signed_or_anonymous(found, own)
        else:
            found |= free
            _warn_of(kind, given, {**defaults_here, **said_here})
    return StoreAccess(properties=found, is_theirs=tuple(whose))


def _signed_or_anonymous(found: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of S3 without the wish that nobody signs, if the catalog does; warn if that is ours."""
    if is_signed(found):
        found = {name: value for name, value in found.items() if name != _ANONYMOUS}
    if _is_on(own, _ANONYMOUS) and not _is_on(found, _ANONYMOUS):
        warn_once(
            "ignored", _ANONYMOUS,
            "%s of the connection is not used: the catalog server lends credentials, or signs; to do without them, set "
            "header.X-Iceberg-Access-Delegation of the connection to none", _ANONYMOUS,
        )  # fmt: skip
    return found


def is_signed(properties: Mapping[str, str]) -> bool:
    """Tell whether the catalog signs the requests to the store."""
    return _is_on(properties, "s3.remote-signing-enabled") or bool(properties.get("s3.signer"))


def _is_on(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _usable(kind: _Kind, said: Mapping[str, str]) -> dict[str, str]:
    """Return those of a server's properties that are of a kind of store, and whose values are of the expected form.

    Only as a store reads them, which takes a blank value for none: a server could pretend to send credentials.
    """
    found = _matching((*kind.free, *kind.credentials, *kind.with_credentials), said)
    as_read = {name: value for name, value in found.items() if value.strip() and name == name.lower()}
    return {name: value for name, value in as_read.items() if _is_expected(name, value)}


def _is_expected(name: str, value: str) -> bool:
    if name.endswith(".region"):
        return _REGION.fullmatch(value) is not None  # it becomes a part of a host's name
    if name == "adls.account-host":
        return azure_account(value) is not None  # the process's own identity of Azure is sent to it, if all others fail
    if name == "gcs.oauth2.token":
        # Neither a word nor the file of an account: also not where a job runs.
        is_file = value.startswith(("/", ".", "~", "\\")) or value.endswith(".json") or os.path.exists(value)
        return value not in _GOOGLE_WORDS and not is_file
    return True


def _has_credentials(kind: _Kind, said: Mapping[str, str]) -> bool:
    """Tell whether a server's properties are enough, so that no credential of ours fills a gap."""
    if kind is _S3:
        has_keys = bool(said.get("s3.access-key-id") and said.get("s3.secret-access-key"))
        return has_keys or _is_on(said, _ANONYMOUS)
    return any(value and "expires-at" not in name for name, value in _matching(kind.credentials, said).items())


def _matching(names: tuple[str, ...], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of these names, in any case; a name with an asterisk stands for all that begin with it."""
    starts = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    return {
        name: value for name, value in properties.items() if name.lower() in names or name.lower().startswith(starts)
    }


def _warn_of(kind: _Kind, given: Mapping[str, str], said: Mapping[str, str]) -> None:
    for name, value in _matching(kind.with_credentials, said).items():
        if value.rstrip("/") != given.get(name, "").rstrip("/"):
            _ignored(name, value, "the server sends no credentials with it, and the connection's are not for it")


def _ignored(name: str, value: str, reason: str) -> None:
    shown = re.sub(r"//[^/]*@", "//", value).partition("?")[0]
    warn_once(
        "ignored", f"{name}={value}",
        "the catalog server's %s (%s) is not used: %s; if you trust it, set %s in the connection",
        name, shown[:200], reason, name,
    )  # fmt: skip
