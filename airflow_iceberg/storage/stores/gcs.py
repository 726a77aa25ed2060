"""Google Cloud Storage: `gs://`, through gcsfs.

A file is created by an upload in one request with `ifGenerationMatch=0`. The names of the properties are those of
PyIceberg and Iceberg Java.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import aiohttp
import google.auth.exceptions
import requests
from fsspec.asyn import sync_wrapper
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError

from airflow_iceberg.errors import switch
from airflow_iceberg.storage.addresses import endpoint_of, warn_of_plain_text
from airflow_iceberg.storage.answer_limits import FILE, LISTING, STORE_HEAD_S, Limit, file_of, parsed, seconds_allowed
from airflow_iceberg.storage.stores.async_answers import part_of, read_within
from airflow_iceberg.storage.stores.object_store import (
    CREATION_KEY,
    ERROR_OF_STATUS,
    Entry,
    ObjectStore,
    gather_failures,
)
from airflow_iceberg.storage.stores.store import (
    DeniedError,
    ExcessError,
    ExpiredError,
    RefusedError,
    UnclearError,
    UnreachableError,
    check_own_credentials,
)

_PAGE = 1000
_TRIES = 4
# The words by which gcsfs knows how to find credentials.
_WORDS = {"anon", "browser", "cache", "cloud", "google_default"}
_TOKENS = ("gcs.oauth2.token", "gcs.token")
_SENT = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})")


class _AnswerError(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, content: bytes) -> None:
        self.status = status
        try:
            text = json.loads(content)["error"]["message"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = content[:200].decode("utf-8", "replace").strip()
        super().__init__(f"{status} {text}".strip())


class _Answer(aiohttp.ClientResponse):
    """An answer to the file system of data files, which asks for a part of a file, or for a document."""

    async def read(self) -> bytes:
        """Return the body, within its limit; it may be compressed."""
        if self._body is None:
            self._body = await read_within(self.content.read, _checked(self, self._limit()), _told(self))
        return self._body

    def _limit(self) -> Limit:
        if self.status >= 300 or "alt=media" not in self.url.query_string:
            return LISTING
        return part_of(self.request_info.headers) or FILE


class _FileSystem(GCSFileSystem):  # type: ignore[misc]
    """The file system of data files: when the store reports that the token has expired, it is renewed."""

    renew_credentials: Callable[[], None] | None = None

    async def _call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._call(*args, **kwargs)
        except HttpError as error:
            if self.renew_credentials is None or error.code != 401:
                raise self._without_token(error) from None
        except OSError as error:
            raise self._without_token(error) from None
        await asyncio.to_thread(self.renew_credentials)
        return await super()._call(*args, **kwargs)

    def _without_token(self, error: Exception) -> Exception:
        """Return the error, without the token if the message repeats the request."""
        token = getattr(getattr(self.credentials, "credentials", None), "token", None)
        text = str(error)
        if not isinstance(token, str) or token not in text:
            return error
        kind = type(error) if isinstance(error, OSError) else OSError
        return kind(text.replace(token, "***"))

    call = sync_wrapper(_call)  # gcsfs binds this one to its own function


class GcsStore(ObjectStore):
    """Objects of Google Cloud Storage; paths are "bucket/key"."""

    def _open(self, properties: Mapping[str, str]) -> GCSFileSystem:
        options: dict[str, Any] = {
            "project": properties.get("gcs.project-id") or "",
            "token": self._token(properties),
            "access": properties.get("gcs.access") or "full_control",
            "consistency": properties.get("gcs.consistency") or "none",
            "requester_pays": switch(properties, "gcs.requester-pays"),
            "endpoint_url": endpoint_of(properties, "gcs.service.host"),
            "session_kwargs": {**_session_arguments(properties), "response_class": _Answer},
            "use_listings_cache": False,
            "skip_instance_cache": True,
        }
        filesystem = _FileSystem(**options)
        if options["token"] != "anon":
            warn_of_plain_text(options["endpoint_url"] or "", "gcs")
        credentials = options["token"]
        if hasattr(credentials, "refresh"):
            filesystem.renew_credentials = lambda: credentials.refresh(None)
        return filesystem

    def _token(self, properties: Mapping[str, str]) -> Any:
        """Return gcsfs's argument: a word ("anon", "cloud"), a file's name, or credentials that renew themselves."""
        token = next((properties[name] for name in _TOKENS if properties.get(name)), None)
        if token is None:
            check_own_credentials("gcs", properties, "Google Cloud Storage")
        if token is None or token in _WORDS or os.path.exists(token):
            return token
        from google.oauth2.credentials import Credentials

        if not self._settings.can_renew:
            return Credentials(token=token)  # a plain text gcsfs would send to Google in an address

        def newer(_request: Any, scopes: Any = None) -> tuple[str, dt.datetime]:
            found = self._settings.renew(self._settings.current_or_old())
            return next(found[name] for name in _TOKENS if found.get(name)), self._expiry()

        return Credentials(token=token, expiry=self._expiry(), refresh_handler=newer)

    def _expiry(self) -> dt.datetime:
        expires_ms = self._settings.expires_ms("gcs.")
        ends = dt.datetime.fromtimestamp(expires_ms / 1000, dt.UTC) if expires_ms else None
        # google.auth compares it with a UTC time without a zone.
        return (ends or dt.datetime.now(dt.UTC) + dt.timedelta(minutes=55)).replace(tzinfo=None)

    async def _request(
        self, method: str, path: str, *, tries: int = _TRIES, headers: Mapping[str, str] | None = None, **more: Any
    ) -> bytes:
        """Send a request to the JSON API; retry it after temporary errors, where `tries` allows it."""
        filesystem = self.filesystem()
        await filesystem._set_session()
        limit: Limit = more.get("limit") or LISTING
        for attempt in range(tries):
            sent = filesystem._get_headers(dict(headers or {}))
            url = f"{filesystem._location}{path}"
            params = filesystem._get_params(more.get("params") or {})
            head_s = STORE_HEAD_S + seconds_allowed(len(more.get("data") or b""), 0)
            head = asyncio.timeout(head_s)
            try:
                async with (
                    head,
                    filesystem.session.request(
                        method, url, headers=sent, params=params, data=more.get("data")
                    ) as answer,
                ):
                    head.reschedule(None)
                    status = int(answer.status)
                    part = _checked(answer, limit if status < 300 else LISTING)
                    content = await read_within(answer.content.read, part, _told(answer))
            except TimeoutError:
                if not head.expired():
                    raise
                raise ExcessError(f"the answer has not begun after {head_s:.0f} s, it is too slow") from None
            if status < 300:
                return content
            if attempt == tries - 1 or status not in (408, 429, 500, 502, 503, 504):
                raise _AnswerError(status, content)
            await asyncio.sleep(0.2 * 2**attempt)
        raise AssertionError("unreachable")

    async def _get(self, bucket: str, key: str, offset: int, length: int | None) -> bytes:
        last = "" if length is None else str(offset + length - 1)
        ranged = {"Range": f"bytes={offset}-{last}"} if offset or length is not None else {}
        part = FILE if length is None else file_of(length)
        return await self._request("GET", _object(bucket, key), headers=ranged, params={"alt": "media"}, limit=part)

    async def _put(self, bucket: str, key: str, data: bytes, creation: str | None) -> None:
        # The border between the parts must not occur in the data.
        border = uuid.uuid4().hex
        about = {"name": key, **({"metadata": {CREATION_KEY: creation}} if creation else {})}
        head = (
            f"--{border}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(about)}\r\n"
            f"--{border}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        params = {"uploadType": "multipart", **({"ifGenerationMatch": "0"} if creation else {})}
        await self._request(
            "POST",
            f"/upload/storage/v1/b/{quote(bucket, safe='')}/o",
            tries=1 if creation else _TRIES,
            headers={"Content-Type": f'multipart/related; boundary="{border}"'},
            params=params,
            data=head.encode() + data + f"\r\n--{border}--\r\n".encode(),
        )

    async def _head(self, bucket: str, key: str) -> Mapping[str, str] | None:
        try:
            found = parsed(await self._request("GET", _object(bucket, key)), LISTING.most_values)
        except _AnswerError as error:
            if error.status == 404:
                return None
            raise
        return {str(name).lower(): str(value) for name, value in (found.get("metadata") or {}).items()}

    async def _page(
        self, bucket: str, prefix: str, *, delimiter: str, limit: int | None, token: str | None
    ) -> tuple[list[Entry], str | None]:
        params = {"prefix": prefix, "maxResults": str(limit or _PAGE)}
        params |= {"delimiter": delimiter} if delimiter else {}
        params |= {"pageToken": token} if token else {}
        answer = await self._request("GET", f"/storage/v1/b/{quote(bucket, safe='')}/o", params=params)
        found = parsed(answer, LISTING.most_values)
        entries = [
            Entry(key=each["name"], size_bytes=int(each["size"]), modified_ms=_milliseconds(each.get("updated")))
            for each in found.get("items", ())
        ]
        entries += [Entry(key=each, is_prefix=True) for each in found.get("prefixes", ())]
        return entries, None if limit else found.get("nextPageToken") or None

    async def _delete(self, bucket: str, keys: Sequence[str]) -> Mapping[str, Exception]:
        async def remove(key: str) -> None:
            try:
                await self._request("DELETE", _object(bucket, key))
            except _AnswerError as error:
                if error.status == 401:
                    raise _translate_answer(error, bucket) from error
                if error.status != 404:
                    raise OSError(str(error)) from error

        return await gather_failures(keys, remove)

    async def _mark_directory(self, bucket: str, key: str) -> None:
        await self._put(bucket, f"{key}/", b"", None)

    def _translate(self, error: Exception, bucket: str) -> Exception:
        if isinstance(error, _AnswerError):
            return _translate_answer(error, bucket)
        if isinstance(error, google.auth.exceptions.DefaultCredentialsError):
            return RefusedError(
                "there are no credentials: set gcs.oauth2.token, or give the process some (gcloud, service account, "
                "metadata server)"
            )
        if isinstance(error, google.auth.exceptions.RefreshError):
            return ExpiredError("the credentials are no longer valid and could not be renewed")
        if isinstance(error, google.auth.exceptions.GoogleAuthError):
            return RefusedError(f"no access token was given ({type(error).__name__})")
        if isinstance(error, aiohttp.ClientConnectorError):
            return UnreachableError(str(error))
        if type(error).__module__.partition(".")[0] == "aiohttp" or isinstance(error, asyncio.TimeoutError):
            return UnclearError(str(error) or "no answer in time")
        return error


def _told(answer: Any) -> int | None:
    """Return the size of a body, if it is said, and not that of a compressed one."""
    return answer.content_length if "Content-Encoding" not in answer.headers else None


def _checked(answer: Any, limit: Limit) -> Limit:
    """Return the limit of an answer; refuse a part of an object that is stored compressed, unless it is all of it.

    The part would be of its compressed bytes, which cannot be decompressed.

    Raises:
        RefusedError: it is one.
    """
    headers, asked = answer.headers, answer.request_info.headers.get("Range")
    stored = headers.get("x-goog-stored-content-encoding") or headers.get("Content-Encoding") or "identity"
    if asked is None or answer.status >= 300 or stored.lower() == "identity":
        return limit
    why = (
        f"the object is stored with the content encoding {stored[:50]!r}, so that no part of it can be read; store it "
        f"without a content encoding, or compressed under a name that ends with .gz"
    )
    sent = _SENT.fullmatch(headers.get("Content-Range") or "")
    # A server that decompresses the object itself sends all of it, whatever was asked for.
    is_all = int(sent[1]) + 1 == int(sent[2]) if sent is not None else answer.status == 200
    if not is_all or not asked.startswith("bytes=0-"):
        raise RefusedError(why)
    return replace(limit, to_do=why)


def _session_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of the HTTP session; with `trust_env` aiohttp would read the user's .netrc as well."""
    found: dict[str, Any] = json.loads(properties.get("gcs.session-kwargs") or "{}")
    if found.get("trust_env"):
        url = endpoint_of(properties, "gcs.service.host") or "https://storage.googleapis.com"
        proxy = requests.utils.get_environ_proxies(url).get(url.partition(":")[0])
        found = {**({"proxy": proxy} if proxy else {}), **found, "trust_env": False}
    return found


def _translate_answer(error: _AnswerError, bucket: str) -> Exception:
    text = str(error)
    if error.status == 404 and "bucket" in text.lower():
        return RefusedError(f"there is no bucket '{bucket}', create it or check its name")
    if error.status != 409 and (kind := ERROR_OF_STATUS.get(error.status)):
        return kind(text)
    if error.status == 401:
        return ExpiredError(f"the access token is not valid ({text})")
    if error.status == 403:
        return DeniedError(
            f"permission denied ({text}), check the credentials and what they may do in bucket '{bucket}'"
        )
    if error.status in (400, 405, 411, 413, 501):
        return RefusedError(text)
    return UnclearError(text)


def _object(bucket: str, key: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"


def _milliseconds(text: str | None) -> int | None:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000) if text else None
