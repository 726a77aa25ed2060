"""Requests to S3 that the server of a catalog signs (`s3.signer`): the question, and what is used of its answer.

Not here: whether the signer gets the catalog's token (`catalogs.rest.credentials`), and the requests (`s3`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiobotocore.session
import requests

from airflow_iceberg.errors import InvalidInputError, switch
from airflow_iceberg.storage.addresses import is_same_origin, signer_url, warn_of_plain_text
from airflow_iceberg.storage.answer_limits import SIGNATURE, parsed
from airflow_iceberg.storage.answers import LimitError, Session, within
from airflow_iceberg.storage.stores.store import RefusedError, Settings

_LOGIN_ENDED = {401, 403, 419}


def signer_of(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the URL of the catalog's signer and the token for it, or None if the catalog does not sign requests."""
    asked = properties.get("s3.signer")
    if asked not in (None, "", "S3V4RestSigner"):
        raise InvalidInputError(f"property s3.signer is '{asked}', expected 'S3V4RestSigner'")
    if not asked and not switch(properties, "s3.remote-signing-enabled"):
        return None
    url = signer_url(properties)
    if not url:
        raise InvalidInputError("property s3.signer.uri is missing: the catalog requires requests that it signs itself")
    return {"url": url, "token": properties.get("token", "")}


def signing_session(properties: Mapping[str, str], settings: Settings) -> aiobotocore.session.AioSession:
    """Return a session whose requests the catalog signs, with its newest token."""
    session = aiobotocore.session.AioSession()

    async def sign(request: Any, **_: Any) -> None:
        await asyncio.to_thread(_sign_remotely, properties, settings, request)

    session.register("before-sign.s3", sign)
    return session


def _sign_remotely(properties: Mapping[str, str], settings: Settings, request: Any) -> None:
    """Let the catalog sign a request: its answer has the address and the headers to send."""
    headers = {name: [str(value)] for name, value in request.headers.items()}
    question: dict[str, Any] = {
        "method": request.method,
        "region": request.context.get("client_region") or "us-east-1",
        "uri": request.url,
        "headers": headers,
    }
    if request.method == "POST" and request.data:  # DeleteObjects: the signer needs the keys
        question["body"] = request.data.decode() if isinstance(request.data, bytes) else request.data

    def ask(found: Mapping[str, str]) -> requests.Response:
        signer = signer_of(found) or signer_of(properties) or {}
        bearer = {"Authorization": f"Bearer {signer['token']}"} if signer["token"] else {}
        if bearer:
            warn_of_plain_text(signer["url"], "the signer of requests to S3")
        # No redirect is followed, since another host must not get the token.
        with Session() as session, within(SIGNATURE):
            return session.request("POST", signer["url"], json=question, headers=bearer, timeout=60)

    try:
        known = settings.current_or_old()
        answer = ask(known)
        if answer.status_code in _LOGIN_ENDED and settings.can_renew:
            answer = ask(settings.renew(known))
        answer.raise_for_status()
        if answer.status_code >= 300:
            raise RefusedError("the catalog's signer redirects to another address, set s3.signer.uri to the final one")
        _apply_signature(request, parsed(answer.content, SIGNATURE.most_values))
    except LimitError as error:
        raise RefusedError(f"the answer of the catalog's signer is not read to the end: {error}") from None
    except (requests.RequestException, ValueError, RecursionError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        told = type(error).__name__ if status is None else f"HTTP status {status}"
        # The error repeats the request, with the token in its headers.
        raise RefusedError(
            f"the catalog's signer did not sign the request ({told}); a signer at another host than the catalog's gets "
            "no token, unless s3.signer.uri of the connection names it"
        ) from None


def _apply_signature(request: Any, signed: Any) -> None:
    """Add a signer's headers to a request; the request stays what it is, and goes to the store that was asked for."""
    if not isinstance(signed, dict) or not isinstance(signed.get("headers"), dict):
        raise ValueError("no document with headers")
    headers, url = signed["headers"], str(signed.get("uri") or request.url)
    if not is_same_origin(url, request.url):
        raise RefusedError("the catalog's signer answers with the address of another host than the store's")
    for name, values in headers.items():
        if name.lower() == "authorization" or name.lower().startswith("x-amz-"):
            del request.headers[name]
            request.headers[name] = ", ".join(values) if isinstance(values, list) else str(values)
    request.url = url
