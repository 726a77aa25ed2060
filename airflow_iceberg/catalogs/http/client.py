"""`Http`: requests to a catalog server, retried where that is safe, and their three outcomes. REST and Nessie use it.

Not here: sending one request (`http.exchange`), the connection's properties (`http.settings`), proofs of identity
(`http.auth`), and the documents of a protocol (`rest.protocol`, `nessie.client`).

A request that changes something has three outcomes: answered, surely not done (`StorageError`), and unknown
(`CommitUnknownError`). A change that was sent and got no answer, or one with a status from 500, may have been done: it
is retried only under an idempotency key. Reads are always retried. What a server says that it will never do is not
retried, whatever the status.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack
from urllib.parse import urlencode

from tenacity import RetryCallState, Retrying, retry_if_result

from airflow_iceberg.catalogs.http.auth import Auth, NoAuth, Signable
from airflow_iceberg.catalogs.http.exchange import FORM, Answer, Exchange, Failure
from airflow_iceberg.catalogs.http.settings import Secrets, Settings, checked_uri, without_login
from airflow_iceberg.errors import (
    CommitUnknownError,
    FormatError,
    IcebergError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.storage.answer_limits import DOCUMENT, TOKEN, Limit

# Of all waits that a server asks for between the attempts of one request.
_LONGEST_WAIT_S = 50.0
_AUTH_EXPIRED = (401, 419)
_LOGIN_REFUSED = (400, 401, 403)
# OAuth2's names of errors that pass; some servers send them with one of these statuses.
_FOR_NOW = ("temporarily_unavailable", "server_error", "slow_down")
_KEY = "Idempotency-Key"
_FOREVER = float("inf")

Body = Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """A request and the rules of its retries.

    Attributes:
        purpose: verb and object, as in "cannot <purpose>".
        auth: the proof of identity.
        is_change: whether the request changes something, so that its outcome can be unknown.
        repeatable_s: seconds during which a change may be retried after it was sent; 0 for never.
        limit: how large the answer may be.
    """

    request: Signable
    purpose: str
    auth: Auth
    is_change: bool = False
    repeatable_s: float = _FOREVER
    limit: Limit = DOCUMENT


@dataclass(kw_only=True, slots=True)
class _Progress:
    """The state of a request over its attempts.

    Attributes:
        is_doubtful: whether an earlier attempt may have made the change.
        waited_s: how long it has waited because the server asked for it.
    """

    started: float
    waited_s: float = 0.0
    is_renewed: bool = False
    is_doubtful: bool = False


class Parts(TypedDict, total=False):
    """Optional parts of a request; the values of the query are percent-encoded. The limit is that of the answer."""

    query: Mapping[str, str] | None
    headers: Mapping[str, str] | None
    limit: Limit


class Http:
    """Requests to one server. Thread-safe; a forked child opens connections of its own.

    Args:
        uri: the server's address; paths are appended.
        sleep, chance, monotonic: time and randomness, replaceable in tests: seconds, and a number in [0, 1).

    Attributes:
        auth: the proof of identity of every request; may be replaced.
        key_lifetime_s: seconds during which changes may be retried under an idempotency key; None if the server
            supports none.
    """

    def __init__(
        self,
        catalog: str,
        uri: str,
        settings: Settings,
        secrets: Secrets,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self.uri = checked_uri(catalog, uri)
        self._settings = settings
        self._secrets = secrets
        self._exchange = Exchange(catalog, settings, secrets)
        self.auth: Auth = NoAuth()
        self.key_lifetime_s: float | None = None
        self._sleep = sleep
        self._chance = chance
        self._monotonic = monotonic

    def __repr__(self) -> str:
        return f"Http({without_login(self.uri)!r})"

    def read(self, method: str, path: str, body: Body = None, *, purpose: str, **parts: Unpack[Parts]) -> Answer:
        """Send a request that changes nothing, and retry it when it fails.

        Args:
            purpose: verb and object, "load table db.t"; part of messages.
        Raises:
            StorageError: no answer, or the server's failure, every time.
            UnsupportedError: the server answers that it never does this.
        """
        request = self._request(method, path, body, parts)
        limit = parts.get("limit", DOCUMENT)
        return self._repeat(_Call(request=request, purpose=purpose, auth=self.auth, limit=limit))

    def change(self, method: str, path: str, body: Body = None, *, purpose: str, **parts: Unpack[Parts]) -> Answer:
        """Send a request that changes something, once, unless it surely was not done.

        Under an idempotency key, if the server supports them, it is retried until the outcome is known.

        Raises:
            StorageError: surely not done: no connection, no access, or too many requests.
            CommitUnknownError: it was sent, and the outcome is not known; with `refused` if the server answers that it
                never does this.
        """
        request = self._request(method, path, body, parts)
        if self.key_lifetime_s:
            request.headers[_KEY] = str(_time_ordered_uuid())
        return self._repeat(
            _Call(
                request=request,
                purpose=purpose,
                auth=self.auth,
                is_change=True,
                repeatable_s=self.key_lifetime_s or 0.0,
                limit=parts.get("limit", DOCUMENT),
            )
        )

    def fetch_document(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        *,
        purpose: str,
        advice: str,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Ask an authorization server, without any other proof of identity, and return its document.

        A request for a token counts as a read: a second token does no harm.

        Args:
            form: the form to send, if any; its values are hidden in messages only.
            advice: advice for messages about error responses.
        Raises:
            StorageError: no answer, or an error response.
        """
        found = {"Accept": "application/json", **(headers or {})}
        if form is not None:
            found["Content-Type"] = FORM
        body = None if form is None else urlencode(form).encode()
        request = Signable(method="GET" if form is None else "POST", url=url, headers=found, body=body)
        try:
            answer = self._repeat(_Call(request=request, purpose=purpose, auth=NoAuth(), limit=TOKEN))
        except UnsupportedError as error:
            raise advised(StorageError(error.what_happened), advice) from error
        if answer.refusal:
            text = f"catalog {self._catalog} cannot {purpose}: {without_login(url)} answers {answer.refusal}"
            refused = advised(StorageError(text), advice)
            refused.is_denied = answer.status in _LOGIN_REFUSED and answer.refusal.type not in _FOR_NOW
            raise refused
        try:
            document = answer.json()
        except FormatError as error:
            raise StorageError(f"catalog {self._catalog} cannot {purpose}: {error}") from error
        token = document.get("access_token")
        if isinstance(token, str) and token:
            self._secrets.add_token(token)
        return document

    def _request(self, method: str, path: str, body: Body, parts: Parts) -> Signable:
        text = "&".join(f"{name}={value}" for name, value in (parts.get("query") or {}).items())
        found = {"Accept": "application/json", **self._settings.headers, **(parts.get("headers") or {})}
        if body is not None:
            found["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return Signable(method=method, url=f"{self.uri}{path}{'?' if text else ''}{text}", headers=found, body=data)

    # -- retries ---------------------------------------------------------------------------------------------------

    def _repeat(self, call: _Call) -> Answer:
        """Send until there is a definite answer; the module's docstring says what may be retried."""
        progress = _Progress(started=self._monotonic())

        def is_over(state: RetryCallState) -> bool:
            is_late = progress.is_doubtful and self._monotonic() - progress.started >= call.repeatable_s
            return is_late or state.attempt_number > self._settings.max_retries

        retrying = Retrying(
            retry=retry_if_result(lambda outcome: isinstance(outcome, Failure) and not outcome.is_final),
            stop=is_over,
            wait=lambda state: self._wait_s(state.attempt_number, state.outcome.result().wait_s, progress),  # type: ignore[union-attr]
            sleep=self._sleep,
            retry_error_callback=lambda state: state.outcome.result(),  # type: ignore[union-attr]
        )
        outcome = retrying(self._attempt, call, progress)
        if isinstance(outcome, Failure):
            raise self._failed(call, outcome, progress.is_doubtful)
        return outcome

    def _attempt(self, call: _Call, progress: _Progress) -> Answer | Failure:
        try:
            sent, outcome = self._exchange.send(call.request, call.auth, call.limit)
            if isinstance(outcome, Answer) and outcome.status in _AUTH_EXPIRED and not progress.is_renewed:
                progress.is_renewed = True
                if call.auth.renew(sent):
                    # It was rejected without being processed, so that the second request is no retry of a change.
                    _, outcome = self._exchange.send(call.request, call.auth, call.limit)
        except StorageError as error:
            # There is no token to send it with. An earlier attempt may have been done all the same.
            if progress.is_doubtful:
                raise self._unknown(call, str(error)) from error
            raise
        if isinstance(outcome, Failure):
            if progress.is_doubtful and outcome.is_never:  # it says nothing of the attempts before
                outcome = replace(outcome, is_never=False)
            progress.is_doubtful = progress.is_doubtful or (outcome.is_sent and call.is_change)
        elif progress.is_doubtful and outcome.refusal:
            raise self._unknown(call, f"it was retried, and now the server answers {outcome.refusal}")
        return outcome

    def _wait_s(self, attempt: int, asked_s: float | None, progress: _Progress) -> float:
        backoff_s: float = min(2.0, 0.1 * 2 ** (attempt - 1)) * (0.5 + 0.5 * self._chance())
        granted_s = min(asked_s or 0.0, _LONGEST_WAIT_S - progress.waited_s)
        progress.waited_s += granted_s
        return max(granted_s, backoff_s)

    def _failed(self, call: _Call, failure: Failure, is_doubtful: bool) -> Exception:
        error: IcebergError
        never = self._never(call, failure) if failure.is_never else None
        if is_doubtful:
            error = unknown = self._unknown(call, failure.reason)
            unknown.refused = never
        elif never is not None:
            error = never
        else:
            failed = StorageError(
                f"catalog {self._catalog} cannot {call.purpose}: {without_login(call.request.url.partition('?')[0])}: "
                f"{failure.reason}"
            )
            failed.is_denied = failure.is_denied
            error = advised(failed, failure.advice)
        if failure.cause is not None and not self._exchange.has_secret(failure.cause):
            error.__cause__ = failure.cause
        return error

    def _never(self, call: _Call, failure: Failure) -> UnsupportedError:
        text = f"catalog {self._catalog} cannot {call.purpose}: the server answers {failure.reason}"
        return advised(UnsupportedError(text), "another try gets the same answer: look at the log of the server")

    def _unknown(self, call: _Call, reason: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"catalog {self._catalog} cannot tell whether it did {call.purpose}: the server did not confirm it "
            f"({reason})"
        )


def _time_ordered_uuid() -> uuid.UUID:
    """Return a UUID of version 7, as the specification asks for in idempotency keys."""
    value = int.from_bytes(os.urandom(16)) & ~(0xFFFF_FFFF_FFFF << 80)
    value |= (time.time_ns() // 1_000_000) << 80
    value = value & ~(0xF << 76) | 7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
