"""The FileIO of a table in a REST catalog, with the credentials that the server vends.

Not here: requests to the server (`rest.states`), and how a store uses and renews the properties
(`airflow_iceberg.storage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.catalogs.rest.protocol import config_texts
from airflow_iceberg.errors import FormatError
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.base import FileIO, FileStatus

DELEGATION_HEADER = "X-Iceberg-Access-Delegation"
DELEGATION = "vended-credentials"

# The catalog's own secrets and settings: a store needs none of them, and must not show them.
_NOT_FOR_STORES = ("header.", "rest.", "oauth2-", "ssl.", "token-")
_NOT_FOR_STORES_EXACT = frozenset({"credential", "token", "scope", "audience", "resource", "prefix", "uri", "type"})
_ACCESS_KEY = "s3.access-key-id"
_GO_WITH_KEYS = frozenset(
    {
        *("s3.session-token", "s3.session-token-expires-at-ms", "s3.anonymous", "s3.profile-name"),
        *("client.access-key-id", "client.secret-access-key", "client.session-token", "client.profile-name"),
    }
)
_SIGNING_ENABLED, _SIGNER = "s3.remote-signing-enabled", "s3.signer"
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
        listed = document.get("storage-credentials") or ()
        try:
            credentials = tuple((str(each["prefix"]), config_texts(each, "config")) for each in listed)
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError("unexpected form of 'storage-credentials' in the server's answer") from error
        config = config_texts(document, "config")
        signer = document.get("remote-signing-config")
        if isinstance(signer, dict) and signer.get("endpoint"):
            config = {**config, _SIGNER_ENDPOINT: str(signer["endpoint"])}
        return cls(config=config, credentials=credentials)

    def properties_for(self, location: str) -> dict[str, str]:
        """Return the properties for one location: those of the longest prefix, then those of the whole table."""
        matching = [each for each in self.credentials if location.startswith(each[0])]
        best = max(matching, key=lambda each: len(each[0]), default=("", {}))
        return {**self.config, **best[1]}


def store_properties(catalog: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's properties without those that only its server may see."""
    return {
        name: value
        for name, value in catalog.items()
        if name not in _NOT_FOR_STORES_EXACT and not name.startswith(_NOT_FOR_STORES)
    }


def table_properties(
    catalog: Mapping[str, str],
    delegation: Delegation,
    location: str,
    *,
    bearer: Callable[[], str | None],
    signer: str | None = None,
) -> dict[str, str]:
    """Return all properties of the store of a location.

    Args:
        catalog: the catalog's properties, with `uri`.
        bearer: returns the catalog's token; called only if a remote signer needs it.
        signer: path of the catalog's own signer for the table, if it has one.
    """
    given = delegation.properties_for(location)
    own = store_properties(catalog)
    if _ACCESS_KEY in given:
        # A session, a role or a profile of our own does not belong to another key.
        own = {name: value for name, value in own.items() if name not in _GO_WITH_KEYS}
    found = {**own, **store_properties(given)}
    if is_signed(found):
        config = delegation.config
        found[_SIGNER_URI] = found.get(_SIGNER_URI) or config.get("signer.uri") or catalog.get("uri", "")
        endpoint = found.get(_SIGNER_ENDPOINT) or config.get("signer.endpoint") or signer
        if endpoint:
            found[_SIGNER_ENDPOINT] = endpoint
        token = config.get("token") or bearer()
        if token:
            found["token"] = token
    return found


def is_signed(properties: Mapping[str, str]) -> bool:
    """Tell whether the catalog signs the requests to the store."""
    return properties.get(_SIGNING_ENABLED, "").strip().lower() == "true" or bool(properties.get(_SIGNER))


def refresh_path(given: Mapping[str, str], uri: str) -> str | None:
    """Return the path of newer credentials below the catalog's address, if the server names one.

    No request is sent to another host: it would have the catalog's token.
    """
    named = next((value for name, value in given.items() if _refresh_word(name) == "endpoint" and value), None)
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
    properties: Callable[[str, Delegation], dict[str, str]],
    renew: Callable[[Mapping[str, str]], Delegation],
) -> FileIO:
    """Return the FileIO of a table.

    Args:
        location: the table's location.
        properties: returns all properties for the store of a location.
        renew: requests new credentials instead of the given ones; called when they expire, and when the catalog's
            signer rejects its token.
    """

    def open_(where: str) -> FileIO:
        given, found = delegation.properties_for(where), properties(where, delegation)
        is_refused = any(_refresh_word(name) == "enabled" and value.lower() == "false" for name, value in given.items())
        expires = any(word in name.lower() for name in given for word in _MAY_EXPIRE) and not is_refused
        refresh = (lambda: properties(where, renew(given))) if expires or is_signed(found) else None
        return load_file_io(found, refresh=refresh)

    own = delegation.properties_for(location)
    others = {
        prefix: open_(prefix) for prefix, config in delegation.credentials if {**delegation.config, **config} != own
    }
    return RoutedFileIO(others, otherwise=open_(location)) if others else open_(location)


class RoutedFileIO(FileIO):
    """Different credentials for different prefixes of locations.

    Args:
        by_prefix: the FileIO of each prefix; the longest prefix of a location counts.
        otherwise: the FileIO of all other locations.
    """

    def __init__(self, by_prefix: Mapping[str, FileIO], *, otherwise: FileIO) -> None:
        self._by_prefix = sorted(by_prefix.items(), key=lambda each: len(each[0]), reverse=True)
        self._otherwise = otherwise

    def __repr__(self) -> str:
        return "RoutedFileIO()"

    def _io(self, location: str) -> FileIO:
        return next((io for prefix, io in self._by_prefix if location.startswith(prefix)), self._otherwise)

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

    def follow_no_links(self, folder: str) -> None:
        for io in (*(io for _, io in self._by_prefix), self._otherwise):
            io.follow_no_links(folder)

    def filesystem(self, location: str) -> tuple[Any, str]:
        return self._io(location).filesystem(location)
