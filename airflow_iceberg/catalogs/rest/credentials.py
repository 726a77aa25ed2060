"""The FileIO of a table in a REST catalog, with the credentials that the server vends.

Not here: requests to the server (`rest.states`), and how a store uses and renews the properties
(`airflow_iceberg.storage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from airflow_iceberg.catalogs.http.settings import without_login
from airflow_iceberg.catalogs.rest.protocol import ServerConfig, config_texts
from airflow_iceberg.catalogs.rest.trust import StoreAccess, is_signed, store_access
from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.addresses import is_same_origin, signer_url, warn_once
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.gate import STORE_OF_SCHEME
from airflow_iceberg.storage.stores.lent_keys import expires_ms, merged

if TYPE_CHECKING:
    from airflow_iceberg.storage.local_roots import LocalRoots

DELEGATION_HEADER = "X-Iceberg-Access-Delegation"
# Both ways in which a server may give access to files; it chooses.
DELEGATION = "vended-credentials,remote-signing"

# The catalog's own secrets and settings: a store needs none of them, and must not show them.
_NOT_FOR_STORES = ("header.", "rest.", "oauth2-", "ssl.", "token-")
_NOT_FOR_STORES_EXACT = frozenset({"credential", "token", "scope", "audience", "resource", "prefix", "uri", "type"})
_SIGNER_URI, _SIGNER_ENDPOINT = "s3.signer.uri", "s3.signer.endpoint"
# The server's address for newer credentials of a table, and whether to use it, by the kind of store.
_REFRESH = re.compile(r"(client|s3|gcs\.oauth2|adls)\.refresh-credentials-(endpoint|enabled)")

# What names of credentials that may expire contain: with one of them the store may ask the server for newer ones.
_MAY_EXPIRE = ("token", "secret", "access-key", "sas", "credential")


@dataclass(frozen=True, kw_only=True, slots=True)
class Delegation:
    """A server's properties for the access to one table's files.

    Attributes:
        config: properties for the whole table.
        credentials: (prefix of locations, properties) for parts of it, which take precedence over `config`.
    """

    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: tuple[tuple[str, Mapping[str, str]], ...] = field(default=(), repr=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Delegation:
        """Read `config` and `storage-credentials` of the answer to a load, or to a request for credentials."""
        key = "storage-credentials"
        listed = Fields(document).items(key) if document.get(key) is not None else ()
        credentials = tuple((each.str("prefix"), config_texts(each.data, "config")) for each in listed)
        config = config_texts(document, "config")
        signer = document.get("remote-signing-config")
        if isinstance(signer, dict) and signer.get("endpoint"):
            config = {**config, _SIGNER_ENDPOINT: str(signer["endpoint"])}
        return cls(config=config, credentials=credentials)

    def ended_ms(self, now_ms: int) -> int | None:
        """Return when one of the credentials expired, in milliseconds since the epoch; None if none has."""
        all_of_them = (self.config, *(each for _, each in self.credentials))
        times = [found for each in all_of_them if (found := expires_ms(each)) is not None]
        ended = [each for each in times if each <= now_ms]
        return min(ended, default=None)

    def properties_for(self, location: str) -> dict[str, str]:
        """Return the properties for one location: those of the longest prefix, then those of the whole table."""
        matching = [each for each in self.credentials if _is_prefix(each[0], location)]
        best = max(matching, key=lambda each: len(_spelled(each[0])), default=("", {}))
        return merged(self.config, best[1])


def _is_prefix(prefix: str, location: str) -> bool:
    """Whether a location begins with a prefix, whichever of the schemes of their store both have."""
    return _spelled(location).startswith(_spelled(prefix))


def _spelled(location: str) -> str:
    scheme, separator, rest = location.partition("://")
    return f"{STORE_OF_SCHEME.get(scheme.lower(), scheme)}{separator}{rest}"


def store_properties(catalog: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's properties without those that only its server may see."""
    return {
        name: value
        for name, value in catalog.items()
        if name not in _NOT_FOR_STORES_EXACT and not name.startswith(_NOT_FOR_STORES)
    }


def table_access(
    given: Mapping[str, str],
    config: ServerConfig,
    delegation: Delegation,
    location: str,
    *,
    uri: str,
    bearer: Callable[[], str | None],
    signer: str | None = None,
) -> StoreAccess:
    """Return all properties of the store of a location.

    Args:
        given: the connection's properties.
        config: the server's configuration.
        uri: address of the server.
        bearer: returns the catalog's token; called only if a remote signer may have it.
        signer: path of the catalog's own signer for the table, if it has one.
    """
    said = merged(config.overrides, delegation.properties_for(location))
    access = store_access(store_properties(given), config.defaults, said)
    found = dict(access.properties)
    if is_signed(found):
        found |= {name: given[name] for name in (_SIGNER_URI, _SIGNER_ENDPOINT) if given.get(name)}
        found[_SIGNER_URI] = found.get(_SIGNER_URI) or delegation.config.get("signer.uri") or uri
        endpoint = found.get(_SIGNER_ENDPOINT) or delegation.config.get("signer.endpoint") or signer
        if endpoint:
            found[_SIGNER_ENDPOINT] = endpoint
        # Never left out: a renewed one replaces the earlier one.
        found["token"] = _token_for_signer(given, delegation.config, signer_url(found) or "", uri, bearer) or ""
    return replace(access, properties=found)


def _token_for_signer(
    given: Mapping[str, str], config: Mapping[str, str], url: str, uri: str, bearer: Callable[[], str | None]
) -> str | None:
    """Return the token that a signer gets: the server's own for the table, or ours if the signer's host is known."""
    if config.get("token"):
        return config["token"]
    known = (uri, given.get(_SIGNER_URI, ""), given.get(_SIGNER_ENDPOINT, ""))
    if any(is_same_origin(url, each) for each in known):
        return bearer()
    token = bearer()
    if token:
        shown = without_login(url)
        warn_once(
            "signer", shown, "the signer %s does not get the catalog's token, since it is not at the catalog's own "
            "host; if you trust it, set s3.signer.uri in the connection", shown,
        )  # fmt: skip
    return None


def refresh_path(given: Mapping[str, str], uri: str) -> str | None:
    """Return the path of newer credentials below the catalog's address, if the server names one.

    No request is sent to another host: it would have the catalog's token.
    """
    named = next(
        (text for name, value in given.items() if _refresh_word(name) == "endpoint" if (text := value.strip())), None
    )
    if named is None:
        return None
    if "://" not in named:
        return f"/{named.lstrip('/')}"
    base = uri.rstrip("/") + "/"
    return f"/{named.removeprefix(base)}" if named.startswith(base) else None


def _refresh_word(name: str) -> str | None:
    found = _REFRESH.fullmatch(name)
    return found[2] if found else None


def table_io(
    location: str,
    delegation: Delegation,
    access_of: Callable[[str, Delegation], StoreAccess],
    renew: Callable[[Mapping[str, str]], Delegation],
) -> FileIO:
    """Return the FileIO of a table.

    Args:
        location: the table's location.
        access_of: returns all properties of the store of a location.
        renew: requests new credentials instead of the given ones; called when they expire, and when the catalog's
            signer rejects its token.
    """

    def open_(where: str) -> FileIO:
        given, access = delegation.properties_for(where), access_of(where, delegation)
        found = access.properties
        is_refused = any(
            _refresh_word(name) == "enabled" and value.strip().lower() == "false" for name, value in given.items()
        )
        expires = any(word in name.lower() for name in given for word in _MAY_EXPIRE) and not is_refused

        def newer() -> Mapping[str, str]:
            renewed = access_of(where, renew(given))
            # They are merged with those before: ours, and an address that came with theirs, must not meet.
            if renewed.is_theirs != access.is_theirs:
                raise StorageError(
                    f"the catalog's server gives other kinds of credentials for {where} than before; nothing was sent "
                    "with them, run it again"
                )
            return renewed.properties

        return load_file_io(found, refresh=newer if expires or is_signed(found) else None)

    own = delegation.properties_for(location)
    otherwise = open_(location)
    # The prefix of the table itself, too: it is longer than that of its bucket.
    by_prefix = {
        prefix: otherwise if merged(delegation.config, config) == own else open_(prefix)
        for prefix, config in delegation.credentials
    }
    is_one = all(io is otherwise for io in by_prefix.values())
    return otherwise if is_one else RoutedFileIO(by_prefix, otherwise=otherwise)


class RoutedFileIO(FileIO):
    """Different credentials for different prefixes of locations.

    Args:
        by_prefix: the FileIO of each prefix; the longest prefix of a location counts.
        otherwise: the FileIO of all other locations.
    """

    def __init__(self, by_prefix: Mapping[str, FileIO], *, otherwise: FileIO) -> None:
        self._by_prefix = sorted(by_prefix.items(), key=lambda each: len(_spelled(each[0])), reverse=True)
        self._otherwise = otherwise

    def __repr__(self) -> str:
        return "RoutedFileIO()"

    def current_properties(self) -> Mapping[str, str]:
        """Return the properties of the table's own location, secrets included: a job has one set of them."""
        lent = getattr(self._otherwise, "current_properties", None)
        return {} if lent is None else lent()

    def _io(self, location: str) -> FileIO:
        return next((io for prefix, io in self._by_prefix if _is_prefix(prefix, location)), self._otherwise)

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._io(location).read(location, offset=offset, length=length)

    def create(self, location: str, data: bytes) -> None:
        self._io(location).create(location, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        return self._io(prefix).list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        by_io: dict[int, tuple[FileIO, list[str]]] = {}
        for location in locations:
            io = self._io(location)
            by_io.setdefault(id(io), (io, []))[1].append(location)
        for io, mine in by_io.values():
            io.delete(mine)

    def exists(self, location: str) -> bool:
        return self._io(location).exists(location)

    def within(self, roots: LocalRoots) -> FileIO | None:
        found = [(prefix, io.within(roots)) for prefix, io in (*self._by_prefix, ("", self._otherwise))]
        if any(io is None for _, io in found):
            return None
        *by_prefix, (_, otherwise) = cast("list[tuple[str, FileIO]]", found)
        return RoutedFileIO(dict(by_prefix), otherwise=otherwise)

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self._io(location).filesystem(location)
