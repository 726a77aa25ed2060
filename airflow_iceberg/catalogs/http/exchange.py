"""Requests to a REST catalog: sent, repeated where that is safe, and their outcomes told apart.

Lives here: sending. Not here: the connection's properties (`rest_settings`), what documents say (`rest_protocol`),
proofs of identity (`rest_auth`), and what a refusal means for the purpose of a request (`rest`).

A request that changes something has three outcomes: answered, surely not done (`StorageError`), and unknown
(`CommitUnknownError`). What was sent and got no answer, or one from the 500s, may have been done: it is repeated only
under an idempotency key. Reading can be repeated freely.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
import requests.adapters
import urllib3.exceptions

from airflow_iceberg.catalogs.http.auth import Auth, NoAuth, Signable
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.http.settings import Secrets, Settings, checked_uri, without_login
from airflow_iceberg.errors import CommitUnknownError, FormatError, InvalidInputError, StorageError

_LONGEST_WAIT_S = 60.0
_SAFE = ("GET", "HEAD")
_AUTH_EXPIRED = (401, 419)
_BUSY = 429
_NOT_IMPLEMENTED = 501
# The server, or one on the way to it, gave up waiting: what it had read of the request by then, nobody says.
_GAVE_UP = 408
_KEY = "Idempotency-Key"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A server's answer to a request: a success, or a refusal that is certain.

    Attributes:
        refusal: None for a success.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    refusal: Refusal | None = None

    def json(self) -> dict[str, Any]:
        """Return the document.

        Raises:
            FormatError: the body is no JSON object.
        """
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            kind = self.headers.get("Content-Type", "no content type")
            raise FormatError(f"unexpected answer of {len(self.body)} bytes, {kind} (expected JSON)") from error
        if not isinstance(document, dict):
            raise FormatError(f"unexpected type {type(document).__name__} (expected object) in the answer")
        return document


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    """A request without a usable answer.

    Attributes:
        is_sent: it may have reached the server and may have been done.
        wait_s: how long the server asked to wait.
        is_final: repeating it cannot help.
    """

    reason: str
    is_sent: bool
    wait_s: float | None = None
    is_final: bool = False
    cause: Exception | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """A request and how it may be treated.

    Attributes:
        purpose: what it is for, as in "cannot <purpose>".
        auth: what proves who sends it.
        is_change: it changes something; its outcome can be unknown.
        repeatable_s: for how long it may be repeated after it was sent; 0: not at all.
    """

    request: Signable
    purpose: str
    auth: Auth
    is_change: bool
    repeatable_s: float


class Http:
    """Requests to one server. Safe to use from several threads; a forked child makes connections of its own.

    Args:
        catalog: name of the catalog, for messages.
        uri: the server's address; paths are appended.
        auth: what goes with every request; may be replaced.
        sleep, chance, monotonic: time and chance, replaceable in tests: seconds, and a number in [0, 1).

    Attributes:
        key_lifetime_s: for how long changes may be repeated under an idempotency key; None: the server knows none.
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
        self.auth: Auth = NoAuth()
        self.key_lifetime_s: float | None = None
        self._sleep = sleep
        self._chance = chance
        self._monotonic = monotonic
        self._session: requests.Session | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Http({without_login(self.uri)!r})"

    def read(
        self,
        method: str,
        path: str,
        *,
        purpose: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request that changes nothing, as often as it takes.

        Args:
            purpose: what it is for, "load table db.t"; part of messages.
            query: values are percent-encoded already.
        Raises:
            StorageError: no answer, or the server's failure, every time.
        """
        return self._send(method, path, None, purpose=purpose, query=query, headers=headers)

    def change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        purpose: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request that changes something, once, unless it surely was not served.

        Under an idempotency key, where the server knows them, it is repeated until the outcome is known.

        Raises:
            StorageError: surely not done: no connection, no access, or too many requests.
            CommitUnknownError: it was sent, and the outcome is not known.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        found = dict(headers or {})
        if self.key_lifetime_s:
            found[_KEY] = str(_time_ordered_uuid())
        return self._send(method, path, data, purpose=purpose, query=query, headers=found)

    def post_form(self, url: str, form: Mapping[str, str], *, purpose: str) -> Mapping[str, Any]:
        """Send a form to an authorization server, without any other proof of identity, and return its document.

        Raises:
            StorageError: it can't be reached or refuses.
        """
        body = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in form.items())
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        request = Signable(method="POST", url=url, headers=headers, body=body.encode())
        # A second token harms nobody, so it counts as reading.
        answer = self._repeat(
            _Call(request=request, purpose=purpose, auth=NoAuth(), is_change=False, repeatable_s=float("inf"))
        )
        if answer.refusal:
            raise StorageError(
                f"catalog {self._catalog} cannot {purpose}: {without_login(url)} answers {answer.refusal}; check "
                f"client id and secret (credential), scope and oauth2-server-uri"
            )
        try:
            document = answer.json()
        except FormatError as error:
            raise StorageError(f"catalog {self._catalog} cannot {purpose}: {error}") from error
        token = document.get("access_token")
        if isinstance(token, str) and token:
            self._secrets.add_token(token)
        return document

    # -- repeating -------------------------------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        *,
        purpose: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        text = "&".join(f"{name}={value}" for name, value in (query or {}).items())
        found = {"Accept": "application/json", **self._settings.headers, **(headers or {})}
        if data is not None:
            found["Content-Type"] = "application/json"
        url = f"{self.uri}{path}{'?' if text else ''}{text}"
        is_change = method not in _SAFE
        repeatable_s = float("inf") if not is_change else (self.key_lifetime_s or 0.0) if _KEY in found else 0.0
        request = Signable(method=method, url=url, headers=found, body=data)
        return self._repeat(
            _Call(request=request, purpose=purpose, auth=self.auth, is_change=is_change, repeatable_s=repeatable_s)
        )

    def _repeat(self, call: _Call) -> Answer:
        """Send until there is an answer to give back; see the module on what may be repeated."""
        started, attempt, is_renewed, is_doubtful = self._monotonic(), 0, False, False
        while True:
            try:
                sent, outcome = self._once(call)
                if isinstance(outcome, Answer) and outcome.status in _AUTH_EXPIRED and not is_renewed:
                    is_renewed = True
                    if call.auth.renew(sent):
                        continue  # refused before it was looked at, so sending it again is the first time
            except StorageError as error:
                # No token to send it with. If an earlier try may have been done, it still may.
                if is_doubtful:
                    raise self._unknown(call, str(error)) from error
                raise
            if isinstance(outcome, Answer):
                if is_doubtful and outcome.refusal:
                    raise self._unknown(call, f"it was repeated, and now the server answers {outcome.refusal}")
                return outcome
            is_doubtful = is_doubtful or (outcome.is_sent and call.is_change)
            attempt += 1
            is_late = is_doubtful and self._monotonic() - started >= call.repeatable_s
            if is_late or outcome.is_final or attempt > self._settings.max_retries:
                raise self._failed(call, outcome, is_doubtful)
            self._wait(attempt, outcome.wait_s)

    def _wait(self, attempt: int, asked_s: float | None) -> None:
        backoff_s = min(2.0, 0.1 * 2 ** (attempt - 1)) * (0.5 + 0.5 * self._chance())
        self._sleep(min(max(asked_s or 0.0, backoff_s), _LONGEST_WAIT_S))

    def _failed(self, call: _Call, failure: _Failure, is_doubtful: bool) -> Exception:
        error: Exception
        if is_doubtful:
            error = self._unknown(call, failure.reason)
        else:
            error = StorageError(
                f"catalog {self._catalog} cannot {call.purpose}: {without_login(call.request.url.partition('?')[0])}: "
                f"{failure.reason}; check that the server is up, the uri, and the access to it"
            )
        if failure.cause is not None and not any(self._secrets.are_in(repr(each)) for each in _chain(failure.cause)):
            error.__cause__ = failure.cause
        return error

    def _unknown(self, call: _Call, reason: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"catalog {self._catalog} cannot tell whether it did {call.purpose}: the server did not confirm it "
            f"({reason})"
        )

    # -- sending once ----------------------------------------------------------------------------------------------

    def _once(self, call: _Call) -> tuple[Signable, Answer | _Failure]:
        """Send a request once; return it as it was sent, and what came of it."""
        request = call.request
        sent = Signable(method=request.method, url=request.url, headers=dict(request.headers), body=request.body)
        call.auth.apply(sent)
        try:
            response = self._usable_session().request(
                sent.method,
                sent.url,
                headers=sent.headers,
                data=sent.body,
                timeout=self._settings.timeouts_s,
                # A redirected POST would become a GET, and our headers would go to whoever is named.
                allow_redirects=False,
                # Given with every request: the environment's bundle would go before that of the session.
                verify=self._settings.verify,
                # Else a .netrc of the user would take the place of our own header.
                auth=_leave_alone,
            )
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError) as error:
            reason = self._secrets.hide(type(error).__name__)
            raise InvalidInputError(f"catalog {self._catalog}: its uri or a header is not valid ({reason})") from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            return sent, self._no_answer(error)
        return sent, self._judge(call, response)

    def _judge(self, call: _Call, response: requests.Response) -> Answer | _Failure:
        status, body = response.status_code, response.content
        if 300 <= status < 400 and status != 304:
            target = without_login(response.headers.get("Location", "nowhere")).partition("?")[0]
            reason = f"it redirects to {self._secrets.hide(target)}, set uri to the address that is meant"
            return _Failure(reason=reason, is_sent=False, is_final=True)
        refusal = Refusal.from_body(status, body, self._secrets.hide) if status >= 400 else None
        if status == _BUSY:
            return _Failure(reason=str(refusal), is_sent=False, wait_s=_retry_after(response.headers))
        if status == _GAVE_UP or (status >= 500 and status != _NOT_IMPLEMENTED):
            return _Failure(reason=str(refusal), is_sent=True, wait_s=_retry_after(response.headers))
        return Answer(status=status, headers=response.headers, body=body, refusal=refusal)

    def _no_answer(self, error: Exception) -> _Failure:
        root = list(_chain(error))
        refused = next((each for each in root if isinstance(each, ssl.SSLCertVerificationError)), None)
        if refused is not None:
            reason = f"its certificate is not trusted ({refused.verify_message}), see ssl.cabundle"
            return _Failure(reason=reason, is_sent=False, is_final=True, cause=error)
        is_sent = not any(isinstance(each, _BEFORE_SENDING) for each in root)
        what = "it did not answer in time" if isinstance(error, requests.exceptions.ReadTimeout) else "no answer"
        reason = f"{what} ({self._secrets.hide(_first_line(root[-1]))})"
        return _Failure(reason=reason, is_sent=is_sent, cause=error)

    def _usable_session(self) -> requests.Session:
        with self._lock:
            if self._session is None or self._pid != os.getpid():
                # A connection must not be used by two processes; the parent's are left to the parent.
                self._session, self._pid = self._new_session(), os.getpid()
            return self._session

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=16, max_retries=0)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.cert = self._settings.certificate
        if self._settings.proxy:
            session.proxies = {"http": self._settings.proxy, "https": self._settings.proxy}
            session.trust_env = False  # else the environment's proxies go first
        return session


# What urllib3 raises while there is no connection yet, to the server or to the proxy.
_BEFORE_SENDING = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


def _leave_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it was made from: the libraries keep it in arguments, in `reason` or as context."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        related = [*found.args, getattr(found, "reason", None), found.__cause__, found.__context__]
        waiting += [each for each in related if isinstance(each, BaseException)]


def _first_line(error: BaseException) -> str:
    text = (getattr(error, "strerror", None) or str(error)).strip().partition("\n")[0]
    return text if text and len(text) < 300 else type(error).__name__


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait; a date, which it may say too, is left to our own backoff."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _time_ordered_uuid() -> uuid.UUID:
    """Return a UUID of version 7, as idempotency keys are to be."""
    value = int.from_bytes(os.urandom(16)) & ~(0xFFFF_FFFF_FFFF << 80)
    value |= (time.time_ns() // 1_000_000) << 80
    value = value & ~(0xF << 76) | 7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
