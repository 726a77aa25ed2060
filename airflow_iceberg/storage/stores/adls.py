"""Azure's Blob storage and Data Lake Storage: `abfs(s)://`, `wasb(s)://`, `az://` and `adl://`, through adlfs.

A file is created by one Put Blob (or one Put Block List) with `If-None-Match: *`. The names of the properties are those
of PyIceberg and Iceberg Java. The account is in the location (`abfss://container@account.dfs.core.windows.net/path`) or
in the properties (`az://container/path`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import requests
from adlfs import AzureBlobFileSystem
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from airflow_iceberg.errors import InvalidInputError, switch
from airflow_iceberg.storage.addresses import azure_account, host_of, warn_of_plain_text
from airflow_iceberg.storage.answer_limits import AZURE_S
from airflow_iceberg.storage.stores.object_store import ERROR_OF_STATUS, Entry, ObjectStore, gather_failures
from airflow_iceberg.storage.stores.store import (
    DeniedError,
    ExpiredError,
    Location,
    RefusedError,
    UnclearError,
    UnreachableError,
    check_own_credentials,
)

_PAGE = 5000
# Names of metadata must be identifiers here.
_CREATION = "airflow_iceberg_creation"
_FOLDER = "hdi_isfolder"
_PUBLIC = (".dfs.core.windows.net", ".blob.core.windows.net")
_OF_ONE_ACCOUNT = ("adls.sas-token", "adls.account-key", "adls.auth.shared-key.account.key")
_WAREHOUSE = re.compile(r"(?:abfss?|wasbs?)://[^/@]*@([^/]+)", re.IGNORECASE)
# Answers to an expired signature; the last is Azurite's, and in Azure it may have other reasons too.
_ENDED = {"AuthenticationFailed", "InvalidAuthenticationInfo", "AuthorizationFailure"}
_NO_CREDENTIALS = (
    "there are no credentials: set adls.account-key, adls.sas-token, adls.connection-string or adls.client-id with "
    "adls.client-secret and adls.tenant-id, or give the process some (environment, managed identity)"
)


class _FileSystem(AzureBlobFileSystem):  # type: ignore[misc]
    """The file system of data files, with paths taken literally: "container/key".

    adlfs reads them as URLs, and cuts them at "?versionid=": whoever chooses a table's places would choose which blob
    is written, also one that is there.
    """

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return [cls._strip_protocol(each) for each in path] if isinstance(path, list) else str(path).lstrip("/")

    def split_path(
        self, path: str, delimiter: str = "/", return_container: bool = False, **options: Any
    ) -> tuple[str, str, str | None]:
        container, _, key = path.lstrip("/").partition("/")
        return container, key, None


class AdlsStore(ObjectStore):
    """Blobs of one account; its instance is the host in the location, if any. Paths are "container/key"."""

    # Its SDK reads an answer as a whole, and sees no difference between a slow one and one that never ends.
    _whole_s = AZURE_S

    @classmethod
    def instance_of(cls, location: Location) -> str:
        return location.authority.partition("@")[2]

    @classmethod
    def path_of(cls, location: Location) -> str:
        container = location.authority.partition("@")[0]
        if not container:
            raise InvalidInputError(
                f"'{location.text}' names no container: expected {location.scheme}://container/path"
            )
        return f"{container}/{location.path.removeprefix('/')}".removesuffix("/")

    def _open(self, properties: Mapping[str, str]) -> AzureBlobFileSystem:
        options = {"use_listings_cache": False, "skip_instance_cache": True, "assume_container_exists": True}
        filesystem = _FileSystem(**_options(self._instance, properties), **options)
        _retry_sooner(filesystem.service_client)
        _read_no_netrc(filesystem.service_client)
        warn_of_plain_text(str(filesystem.service_client.url), "adls")
        return filesystem

    def _blob(self, bucket: str, key: str) -> Any:
        return self.filesystem().service_client.get_blob_client(bucket, key)

    async def _get(self, bucket: str, key: str, offset: int, length: int | None) -> bytes:
        async with self._blob(bucket, key) as blob:
            ranged = {"offset": offset, "length": length} if offset or length is not None else {}
            stream = await blob.download_blob(**ranged)
            return cast(bytes, await stream.readall())

    async def _put(self, bucket: str, key: str, data: bytes, creation: str | None) -> None:
        async with self._blob(bucket, key) as blob:
            metadata = {_CREATION: creation} if creation else None
            await blob.upload_blob(data, overwrite=creation is None, metadata=metadata)

    async def _head(self, bucket: str, key: str) -> Mapping[str, str] | None:
        async with self._blob(bucket, key) as blob:
            try:
                found = await blob.get_blob_properties()
            except ResourceNotFoundError:
                return None
            texts = {str(name).lower().replace("_", "-"): str(value) for name, value in found.metadata.items()}
            return None if _is_folder(found.metadata) else texts

    async def _page(
        self, bucket: str, prefix: str, *, delimiter: str, limit: int | None, token: str | None
    ) -> tuple[list[Entry], str | None]:
        container = self.filesystem().service_client.get_container_client(bucket)
        async with container:
            asked = {"name_starts_with": prefix, "include": ["metadata"], "results_per_page": limit or _PAGE}
            listing = container.walk_blobs(delimiter=delimiter, **asked) if delimiter else container.list_blobs(**asked)
            pages = listing.by_page(continuation_token=token)
            try:
                found = [each async for each in await anext(pages)]
            except StopAsyncIteration:
                return [], None
            following = pages.continuation_token or None
        entries = []
        for each in found:
            if hasattr(each, "prefix") and not hasattr(each, "last_modified"):
                entries.append(Entry(key=each.name, is_prefix=True))
            elif _is_folder(each.metadata or {}):
                entries.append(Entry(key=f"{each.name.rstrip('/')}/", is_prefix=True))
            else:
                modified_ms = int(each.last_modified.timestamp() * 1000)
                entries.append(Entry(key=each.name, size_bytes=int(each.size), modified_ms=modified_ms))
        return entries, None if limit else following

    async def _delete(self, bucket: str, keys: Sequence[str]) -> Mapping[str, Exception]:
        async def remove(key: str) -> None:
            async with self._blob(bucket, key.rstrip("/")) as blob:
                try:
                    await blob.delete_blob()
                except ResourceNotFoundError as error:
                    if _code(error) == "ContainerNotFound":
                        raise OSError(f"there is no container '{bucket}'") from error
                except AzureError as error:
                    translated = _translate_answer(error, bucket)
                    raise translated if isinstance(translated, ExpiredError) else OSError(_text(error)) from error

        return await gather_failures(keys, remove)

    async def _mark_directory(self, bucket: str, key: str) -> None:
        async with self._blob(bucket, key) as blob:
            await blob.upload_blob(b"", overwrite=True, metadata={_FOLDER: "true"})

    def _marker_of(self, key: str) -> str:
        return key

    def _is_marked(self, bucket: str, key: str) -> bool:
        """Tell whether there is the directory's own blob, whose key is the prefix without a slash."""

        async def ask() -> bool:
            async with self._blob(bucket, key) as blob:
                try:
                    return _is_folder((await blob.get_blob_properties()).metadata)
                except ResourceNotFoundError as error:
                    if _code(error) == "ContainerNotFound":
                        raise
                    return False

        return bool(self._call(bucket, ask))

    def _translate(self, error: Exception, bucket: str) -> Exception:
        if isinstance(error, ValueError | InvalidInputError) and not isinstance(error, AzureError):
            return RefusedError(str(error).partition("\n")[0] or _NO_CREDENTIALS)
        if isinstance(error, AzureError):
            return _translate_answer(error, bucket)
        if type(error).__module__.partition(".")[0] == "aiohttp" or isinstance(error, asyncio.TimeoutError):
            return UnclearError(str(error) or "no answer in time")
        return error


def _retry_sooner(client: Any) -> None:
    """Shorten the SDK's pauses before its retries: its 18, 24 and 42 s are too long for a commit.

    adlfs has no parameter for it; if the SDK has no such policy any more, its pauses stay as they are.
    """
    for policy in getattr(getattr(client, "_pipeline", None), "_impl_policies", ()):
        if hasattr(policy, "initial_backoff") and hasattr(policy, "increment_base"):
            policy.initial_backoff, policy.increment_base = 0, 2


def _read_no_netrc(client: Any) -> None:
    """Let the SDK take its proxy from the environment, but no login: with its own setting, aiohttp reads .netrc too."""
    transport: Any = getattr(getattr(client, "_pipeline", None), "_transport", None)
    if not getattr(transport, "_use_env_settings", False):
        return
    send = transport.send

    async def send_by_proxy(request: Any, **config: Any) -> Any:
        proxies = config.pop("proxies", None) or requests.utils.get_environ_proxies(request.url)
        return await send(request, proxies=proxies or None, **config)

    transport._use_env_settings = False
    transport.send = send_by_proxy


def _translate_answer(error: AzureError, bucket: str) -> Exception:
    text = _text(error)
    code = _code(error)
    status = getattr(error, "status_code", None)
    if isinstance(error, ResourceExistsError) and code in ("BlobAlreadyExists", "UnauthorizedBlobOverwrite"):
        return FileExistsError(text)
    if code == "ContainerNotFound":
        return RefusedError(f"there is no container '{bucket}', create it or check its name and the account")
    if other := ERROR_OF_STATUS.get(status or 0):
        return other(text)
    if isinstance(error, ServiceRequestError):  # the request was not sent
        return UnreachableError(text)
    if isinstance(error, ClientAuthenticationError) and status is None:
        return RefusedError(_NO_CREDENTIALS)
    if status in (401, 403):
        kind = ExpiredError if code in _ENDED else DeniedError
        return kind(f"permission denied ({text}), check the credentials and what they may do in container '{bucket}'")
    if isinstance(error, HttpResponseError) and status in (400, 405, 413):
        return RefusedError(text)
    return UnclearError(text)


def _code(error: Exception) -> str:
    found = getattr(error, "error_code", None)
    return str(getattr(found, "value", found) or "")  # a code that the SDK knows is a member of an enum


def _text(error: AzureError) -> str:
    # The rest of the message repeats the request, signature included.
    code = _code(error)
    first = str(getattr(error, "message", "") or error).strip().partition("\n")[0]
    return f"{code}: {first}" if code and code not in first else first


def _is_folder(metadata: Mapping[str, str]) -> bool:
    return any(name.lower() in (_FOLDER, "is_directory") and value == "true" for name, value in metadata.items())


def _options(host: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of adlfs; keys that end in an account's host are for that account alone."""
    account, elsewhere = _place(host, properties)
    refused: list[str] = []

    def of_account(name: str) -> str | None:
        found = next((key for key in _spellings(name, host) if properties.get(key)), None)
        if found in _OF_ONE_ACCOUNT and not _is_own(account, properties):
            refused.append(found)
            return None
        return properties[found] if found else None

    connection_string = of_account("adls.connection-string")
    if connection_string and (not host or f"AccountName={account};" in f"{connection_string};"):
        return {"connection_string": connection_string}
    options: dict[str, Any] = {"account_name": account}
    if elsewhere:
        options["account_host"] = elsewhere.replace(".dfs.", ".blob.")
    if not account:
        raise InvalidInputError("property adls.account-name is missing: neither it nor the location names the account")
    if sas := of_account("adls.sas-token"):
        return {**options, "sas_token": sas if sas.startswith("?") else f"?{sas}"}
    if key := of_account("adls.account-key") or of_account("adls.auth.shared-key.account.key"):
        return {**options, "account_key": key}
    if token := of_account("adls.token"):
        return {**options, "credential": _StaticToken(token)}
    named = {name: properties.get(f"adls.{name.replace('_', '-')}") for name in ("tenant_id", "client_id")}
    if secret := properties.get("adls.client-secret"):
        return {**options, **named, "client_secret": secret}
    if refused:
        raise InvalidInputError(
            f"the connection's {refused[0]} belongs to another account than {account} and is not used for it; set "
            f"{refused[0]}.{account}.dfs.core.windows.net if it has one"
        )
    check_own_credentials("adls", properties, f"account {account}")
    anonymous = switch(properties, "adls.anon", "adls.anonymous")
    return {**options, **{name: value for name, value in named.items() if value}, "anon": anonymous}


def _place(host: str, properties: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the account of a host in a location, and the host to ask if it is not the public cloud's.

    Credentials are sent there, so the host is one of Azure's, or it is the one of the connection.
    """
    own_account, own_host = properties.get("adls.account-name"), host_of(properties, "adls.account-host")
    if not host:
        return own_account, own_host
    if own_host and host.lower() in {each.lower() for each in _hosts(own_host)}:
        return own_account or host.partition(".")[0], own_host
    if own_account and host.lower() == own_account.lower():
        return own_account, own_host
    account = azure_account(host)
    if account is None:
        raise InvalidInputError(
            f"'{host}' is neither a host of Azure's nor the connection's, and gets no credentials of it; if it is the "
            "host of your account, set adls.account-host to it"
        )
    if own_account and own_host and account == own_account.lower():
        return own_account, own_host
    return account, None if host.lower().endswith(_PUBLIC) else host


def _is_own(account: str | None, properties: Mapping[str, str]) -> bool:
    """Tell whether keys without an account in their names may belong to this one: the connection names no other."""
    owners = {name.lower() for name in (properties.get("adls.account-name"),) if name}
    if found := _WAREHOUSE.match(properties.get("warehouse", "")):
        owners |= {name for name in (azure_account(found[1]),) if name}
    return not account or not owners or account.lower() in owners


def _hosts(host: str) -> set[str]:
    return {host, host.replace(".dfs.", ".blob."), host.replace(".blob.", ".dfs.")}


def _spellings(name: str, host: str) -> tuple[str, ...]:
    account = host.partition(".")[0]
    hosts = {*_hosts(host), account} - {""}
    return (*(f"{name}.{each}" for each in sorted(hosts, key=len, reverse=True)), name)


class _StaticToken:
    """An access token that was issued elsewhere, as a credential of azure-core."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_token(self, *_scopes: str, **_: Any) -> Any:
        import time

        from azure.core.credentials import AccessToken

        return AccessToken(self._token, int(time.time()) + 3600)

    async def close(self) -> None: ...
    async def __aenter__(self) -> _StaticToken:
        return self

    async def __aexit__(self, *_: object) -> None: ...
