"""S3 and what speaks its protocol: `s3://`, `s3a://` and `s3n://`, through s3fs.

A file is created by one PutObject with `If-None-Match: *`. The names of the properties are those of PyIceberg and
Iceberg Java. Also here: credentials that renew themselves (`_renewing_credentials`). Not here: requests that the
catalog signs (`s3_signing`).
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import aiobotocore.session
import botocore
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
)
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from airflow_iceberg.errors import StorageError, switch
from airflow_iceberg.storage.addresses import endpoint_of, warn_of_plain_text
from airflow_iceberg.storage.answer_limits import FILE, file_of
from airflow_iceberg.storage.stores import store
from airflow_iceberg.storage.stores.async_answers import limit_answers, read_within
from airflow_iceberg.storage.stores.lent_keys import expires_ms
from airflow_iceberg.storage.stores.object_store import CREATION_KEY, ERROR_OF_STATUS, Entry, ObjectStore
from airflow_iceberg.storage.stores.s3_signing import signer_of, signing_session
from airflow_iceberg.storage.stores.store import ExpiredError, RefusedError, Settings, UnclearError, UnreachableError

_KEYS_PER_DELETION = 1000
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
_STAY_OLD = (
    "the credentials have expired, and so have those that came instead: compare the clocks of this machine and of who "
    "gives them"
)
_NO_CREDENTIALS = (
    "there are no credentials: set s3.access-key-id and s3.secret-access-key, or give the process some (environment, "
    "profile, role)"
)


class S3Store(ObjectStore):
    """Objects of S3; paths are "bucket/key"."""

    def _open(self, properties: Mapping[str, str]) -> S3FileSystem:
        return _open(properties, self._settings)

    async def _client(self, bucket: str) -> Any:
        filesystem = self.filesystem()
        await filesystem.set_session()
        return await filesystem.get_s3(bucket)

    async def _get(self, bucket: str, key: str, offset: int, length: int | None) -> bytes:
        last = "" if length is None else str(offset + length - 1)
        ranged = {"Range": f"bytes={offset}-{last}"} if offset or length is not None else {}
        client = await self._client(bucket)
        answer = await client.get_object(Bucket=bucket, Key=key, **ranged)
        async with answer["Body"] as body:
            part = FILE if length is None else file_of(length)
            return await read_within(body.read, part, answer.get("ContentLength"))

    async def _put(self, bucket: str, key: str, data: bytes, creation: str | None) -> None:
        condition = {} if creation is None else {"IfNoneMatch": "*", "Metadata": {CREATION_KEY: creation}}
        encryption = _encryption(self._settings.current())
        client = await self._client(bucket)
        await client.put_object(Bucket=bucket, Key=key, Body=data, **condition, **encryption)

    async def _head(self, bucket: str, key: str) -> Mapping[str, str] | None:
        client = await self._client(bucket)
        try:
            answer = await client.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if _status(error) == 404:
                return None
            if self._settings.can_renew and _have_ended(error):
                raise ExpiredError("the store answers 400 to a HEAD, as for expired credentials") from error
            raise
        return {name.lower(): value for name, value in answer.get("Metadata", {}).items()}

    async def _page(
        self, bucket: str, prefix: str, *, delimiter: str, limit: int | None, token: str | None
    ) -> tuple[list[Entry], str | None]:
        asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
        asked |= {"Delimiter": delimiter} if delimiter else {}
        asked |= {"MaxKeys": limit} if limit else {}
        asked |= {"ContinuationToken": token} if token else {}
        answer = await (await self._client(bucket)).list_objects_v2(**asked)
        entries = [
            Entry(key=each["Key"], size_bytes=each["Size"], modified_ms=int(each["LastModified"].timestamp() * 1000))
            for each in answer.get("Contents", ())
        ]
        entries += [Entry(key=each["Prefix"], is_prefix=True) for each in answer.get("CommonPrefixes", ())]
        following = answer.get("NextContinuationToken") if answer.get("IsTruncated") and not limit else None
        return entries, following

    async def _delete(self, bucket: str, keys: Sequence[str]) -> Mapping[str, Exception]:
        failures: dict[str, Exception] = {}
        client = await self._client(bucket)
        for start in range(0, len(keys), _KEYS_PER_DELETION):
            part = keys[start : start + _KEYS_PER_DELETION]
            objects = {"Objects": [{"Key": key} for key in part], "Quiet": True}
            answer = await client.delete_objects(Bucket=bucket, Delete=objects)
            for each in answer.get("Errors", ()):
                if each.get("Code") not in ("NoSuchKey", "404"):
                    failures[each["Key"]] = OSError(f"{each.get('Code')}: {each.get('Message')}")
        return failures

    async def _mark_directory(self, bucket: str, key: str) -> None:
        await (await self._client(bucket)).put_object(Bucket=bucket, Key=f"{key}/", Body=b"")

    def _translate(self, error: Exception, bucket: str) -> Exception:
        if isinstance(error, ClientError):
            return _translate_answer(error, bucket)
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return RefusedError(_NO_CREDENTIALS)
        if isinstance(error, ProfileNotFound | ParamValidationError):
            return RefusedError(str(error))
        if isinstance(error, OSError):
            return error
        if isinstance(error, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError):
            return UnreachableError(str(error))
        if isinstance(error, BotoCoreError) or type(error).__module__.partition(".")[0] in ("aiohttp", "urllib3"):
            return UnclearError(str(error))
        if isinstance(error, asyncio.TimeoutError):
            return UnclearError("no answer in time")
        # botocore's for credentials that were renewed and are old again
        return ExpiredError(_STAY_OLD) if isinstance(error, RuntimeError) else error


def _translate_answer(error: ClientError, bucket: str) -> Exception:
    answer = error.response.get("Error", {})
    code, status = str(answer.get("Code", "")), _status(error)
    text = f"{code}: {answer.get('Message', '')}".removesuffix(": ")
    # An earlier request of the same call may have had an effect.
    was_repeated = bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))
    if code == "NoSuchBucket":
        return RefusedError(f"there is no bucket '{bucket}', create it or check its name and the endpoint")
    if kind := ERROR_OF_STATUS.get(status):
        return kind(text)
    if code in _EXPIRED or (status == 400 and code == "InvalidToken"):
        return ExpiredError(f"the credentials have expired ({text})")
    if status in (401, 403) or code in _DENIED:
        denied = f"permission denied ({text}), check the credentials and what they may do in bucket '{bucket}'"
        return UnclearError(denied) if was_repeated else store.DeniedError(denied)
    if status == 501:
        return RefusedError(f"the store does not implement the request ({text})")
    if status in (301, 307, 400) and not was_repeated:
        return RefusedError(f"{text}, check s3.region and s3.endpoint")
    return UnclearError(text)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class _FileSystem(S3FileSystem):  # type: ignore[misc]
    """The file system of data files: missing credentials and no connection raise this package's errors.

    A file may be open for longer than credentials last: when the store reports that they have expired, it renews them.
    """

    renew_credentials: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def set_session(self, *args: Any, **kwargs: Any) -> Any:
        client = await super().set_session(*args, **kwargs)
        limit_answers(client)
        return client

    connect = sync_wrapper(set_session)  # s3fs binds this one to its own function

    def split_path(self, path: str) -> tuple[str, str, str | None]:
        """Return bucket and key of "bucket/key", and no version.

        s3fs cuts a key at "?versionId=", which may be a part of it: whoever chooses a table's places would choose which
        object is written, also one that is there.
        """
        bucket, _, key = path.removeprefix("s3://").lstrip("/").partition("/")
        return bucket, key, None

    async def _call_s3(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return await super()._call_s3(method, *args, **kwargs)
            except OSError as error:
                if self.renew_credentials is None or not _have_ended(error.__cause__):
                    raise
            await self.renew_credentials()
            return await super()._call_s3(method, *args, **kwargs)
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StorageError(f"cannot use {_place(kwargs)}: {_NO_CREDENTIALS}", is_refused=True) from error
        except RuntimeError as error:
            raise StorageError(f"cannot use {_place(kwargs)}: {_STAY_OLD}") from error
        except (ConnectionError, HTTPClientError) as error:
            reason = f"{error}; check s3.endpoint and that it can be reached from here"
            raise StorageError(f"cannot use {_place(kwargs)}: {reason}") from error

    call_s3 = sync_wrapper(_call_s3)  # s3fs binds this one to its own function


def _have_ended(error: BaseException | None) -> bool:
    """Tell whether credentials may have expired; the answer to a HEAD request has no reason."""
    if not isinstance(error, ClientError):
        return False
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code in _EXPIRED or (code == "400" and error.operation_name.startswith("Head"))


def _place(arguments: Mapping[str, Any]) -> str:
    return "/".join(("s3:/", *(str(arguments[name]) for name in ("Bucket", "Key") if arguments.get(name))))


def _open(properties: Mapping[str, str], settings: Settings) -> S3FileSystem:
    def first(*names: str) -> str | None:
        return next((properties[name] for name in names if properties.get(name)), None)

    endpoint = endpoint_of(properties, "s3.endpoint")
    if not switch(properties, "s3.anonymous") and not signer_of(properties):
        warn_of_plain_text(endpoint or "", "s3")
    region = first("s3.region", "client.region")
    config: dict[str, Any] = {
        "s3": {"addressing_style": _addressing(properties)},
        "retries": {"mode": "standard", "total_max_attempts": 3},
    }
    config |= {"proxies": {"http": proxy, "https": proxy}} if (proxy := first("s3.proxy-uri")) else {}
    config |= {"connect_timeout": float(seconds)} if (seconds := first("s3.connect-timeout")) else {}
    config |= {"read_timeout": float(seconds)} if (seconds := first("s3.request-timeout")) else {}
    options: dict[str, Any] = {
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": region} if region else {},
        "config_kwargs": config,
        "use_listings_cache": False,
        "skip_instance_cache": True,  # two catalogs with different keys must not share
    }
    if switch(properties, "s3.anonymous"):
        return _FileSystem(anon=True, **options)
    if signer_of(properties):
        config["signature_version"] = botocore.UNSIGNED
        return _FileSystem(session=signing_session(properties, settings), **options)
    if settings.can_renew and first("s3.access-key-id"):
        session = aiobotocore.session.AioSession()
        session._credentials, renew_credentials = _renewing_credentials(properties, settings)
        filesystem = _FileSystem(session=session, **options)
        filesystem.renew_credentials = renew_credentials
        return filesystem
    if profile := first("s3.profile-name", "client.profile-name"):
        return _FileSystem(session=aiobotocore.session.AioSession(profile=profile), **options)
    secret = first("s3.secret-access-key", "client.secret-access-key")
    if not secret:
        store.check_own_credentials("s3", properties, "S3")
    return _FileSystem(
        key=first("s3.access-key-id", "client.access-key-id"),
        secret=secret,
        token=first("s3.session-token", "client.session-token"),
        **options,
    )


def _addressing(properties: Mapping[str, str]) -> str:
    """Return how the bucket is named: in the host, in the path, or as botocore decides."""
    if switch(properties, "s3.force-virtual-addressing"):
        return "virtual"
    if properties.get("s3.path-style-access", "").strip():
        return "path" if switch(properties, "s3.path-style-access") else "virtual"
    # Servers other than Amazon's seldom have a host name for each bucket; PyIceberg has the same default.
    return "path" if properties.get("s3.endpoint", "").strip() else "auto"


def _encryption(properties: Mapping[str, str]) -> dict[str, str]:
    kind = properties.get("s3.server-side-encryption") or properties.get("s3.sse.type", "")
    name = {"s3": "AES256", "kms": "aws:kms", "none": "", "custom": ""}.get(kind.lower(), kind)
    if not name:
        return {}
    key = properties.get("s3.sse-kms-key-id") or properties.get("s3.sse.key")
    return {"ServerSideEncryption": name, **({"SSEKMSKeyId": key} if key and name == "aws:kms" else {})}


def _renewing_credentials(
    properties: Mapping[str, str], settings: Settings
) -> tuple[Any, Callable[[], Coroutine[Any, Any, None]]]:
    """Return credentials that one client renews before they expire, and a function that makes it renew them at once.

    The reader or writer of data files keeps a file system for as long as its task runs.
    """
    from aiobotocore.credentials import AioRefreshableCredentials

    def ends(found: Mapping[str, str]) -> dt.datetime:
        ends_ms, now = expires_ms(found, "s3."), dt.datetime.now(dt.UTC)
        return dt.datetime.fromtimestamp(ends_ms / 1000, dt.UTC) if ends_ms else now + dt.timedelta(minutes=55)

    def document(found: Mapping[str, str]) -> dict[str, str]:
        return {
            "access_key": found.get("s3.access-key-id", ""),
            "secret_key": found.get("s3.secret-access-key", ""),
            "token": found.get("s3.session-token", ""),
            "expiry_time": ends(found).isoformat(),
        }

    held = properties

    def renew() -> Mapping[str, str]:
        nonlocal held
        there = settings.current_or_old()
        # Another file system of the task may have renewed them already.
        held = there if there is not held else settings.renew(held)
        return held

    async def newer() -> dict[str, str]:
        return document(await asyncio.to_thread(renew))

    # Credentials that last only a few minutes must not be renewed at each request.
    life_s = max(0, (ends(properties) - dt.datetime.now(dt.UTC)).total_seconds())
    credentials = AioRefreshableCredentials.create_from_metadata(
        document(properties),
        refresh_using=newer,
        method="iceberg-catalog",
        advisory_timeout=min(300, life_s / 4),
        mandatory_timeout=min(60, life_s / 8),
    )

    async def at_once() -> None:
        credentials._expiry_time = dt.datetime.fromtimestamp(0, dt.UTC)  # the next request renews them first

    return credentials, at_once
