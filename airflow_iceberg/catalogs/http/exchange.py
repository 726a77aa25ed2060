"""One request to a catalog server over HTTP, and the meaning of its answer, or of a missing one.

Here: sessions, sending once, and whether a failed request may have been done. Not here: retries and the outcome of a
change (`http.client`), the connection's properties (`http.settings`), proofs of identity (`http.auth`).
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
import requests.utils
import urllib3.exceptions

from airflow_iceberg.catalogs.http.auth import Auth, Signable
from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.http.settings import Secrets, Settings, asked_for, without_login
from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.redaction import is_secret
from airflow_iceberg.storage.addresses import warn_of_plain_text
from airflow_iceberg.storage.answer_limits import DOCUMENT, Limit, excess_of, parsed
from airflow_iceberg.storage.answers import LimitError, Session, within

FORM = "application/x-www-form-urlencoded"
_TOO_MANY_REQUESTS = 429
_NOT_IMPLEMENTED = 501
# The server, or a gateway, stopped waiting: it is unknown how much of the request it had read.
_REQUEST_TIMEOUT = 408
# OpenSSL's names of what a server answers that does not speak TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL")
# A path in which nothing has to be encoded.
_AS_IT_IS = re.compile(r"(/([A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*)+")
# urllib3's errors while there is no connection yet, to the server or to the proxy.
_BEFORE_SENDING = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A server's answer to a request: a success, or a definite error response.

    Attributes:
        refusal: the error response; None for a success.
        most_values: about how many values its document may have.
        asked: what it is an answer to: method and path.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    refusal: Refusal | None = None
    most_values: int = DOCUMENT.most_values
    asked: str = ""

    @property
    def content_type(self) -> str:
        """What kind of body it says that it has."""
        return self.headers.get("Content-Type", "").lower()

    def json(self) -> dict[str, Any]:
        """Return the document; `FormatError` if the body is no JSON object, or one of too many values."""
        try:
            document = parsed(self.body, self.most_values)
        except (ValueError, RecursionError) as error:
            kind = self.headers.get("Content-Type", "no content type")
            excess = excess_of(self.body, self.most_values)
            values = f" of at most {excess[1]} values, got about {excess[0]}" if excess else ""
            told = f"{len(self.body)} bytes, {kind} (expected JSON{values})"
            raise FormatError(f"unexpected answer of {told}") from error
        if not isinstance(document, dict):
            raise FormatError(f"unexpected type {type(document).__name__} (expected object) in the answer")
        return document


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A request without a usable answer.

    Attributes:
        is_sent: whether the request may have reached the server and may have been executed.
        wait_s: seconds that the server asked to wait.
        is_final: whether a retry at once cannot help.
        is_never: whether the server has answered that it never does this, with the status of a failure.
        is_denied: whether a retry of the task cannot help, either.
        advice: what to do about it.
    """

    reason: str
    is_sent: bool
    wait_s: float | None = None
    is_final: bool = False
    is_never: bool = False
    is_denied: bool = False
    cause: Exception | None = None
    advice: str = "check that the server is up, the uri, and the access to it"


class Exchange:
    """Sends requests, each exactly once. Thread-safe; a forked child opens connections of its own."""

    def __init__(self, catalog: str, settings: Settings, secrets: Secrets) -> None:
        self._catalog = catalog
        self._settings = settings
        self._secrets = secrets
        self._session: Session | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def send(self, request: Signable, auth: Auth, limit: Limit = DOCUMENT) -> tuple[Signable, Answer | Failure]:
        """Send a request once; return the request as it was sent, and its outcome.

        Args:
            limit: how large the answer may be.
        """
        sent = Signable(method=request.method, url=request.url, headers=dict(request.headers), body=request.body)
        auth.apply(sent)
        if _has_credentials(sent):
            warn_of_plain_text(sent.url, f"catalog {self._catalog}")
        handled = sys.exception()
        try:
            with within(limit):
                # Redirects are not followed: a POST would become a GET, and our headers would be sent to another host.
                response = self._usable_session().request(
                    sent.method,
                    sent.url,
                    headers=sent.headers,
                    data=sent.body,
                    timeout=self._settings.timeouts_s,
                    # The session's own would be replaced by the environment's REQUESTS_CA_BUNDLE.
                    verify=self._settings.verify,
                )
        except LimitError as error:
            # Whatever it was an answer to: the same request would get the same one.
            reason, is_denied = self._secrets.hide(str(error)), not error.is_slow
            what = f"its answer is not read to the end: {reason}"
            return sent, Failure(reason=what, is_sent=True, is_final=True, is_denied=is_denied, advice=error.to_do)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError) as error:
            reason = self._secrets.hide(type(error).__name__)
            raise InvalidInputError(f"catalog {self._catalog}: its uri or a header is not valid ({reason})") from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            return sent, self._no_answer(error, handled)
        return sent, self._judge(response, limit, sent)

    def has_secret(self, error: BaseException) -> bool:
        """Tell whether an error, or one that caused it, shows a secret."""
        return any(self._secrets.are_in(repr(each)) for each in _chain(error))

    def _judge(self, response: requests.Response, limit: Limit, sent: Signable) -> Answer | Failure:
        status, body, asked = response.status_code, response.content, asked_for(sent.url)
        if 300 <= status < 400 and status != 304:
            target = without_login(response.headers.get("Location", "nowhere")).partition("?")[0]
            reason = f"it redirects to {self._secrets.hide(target, asked)}, set uri to the final address"
            return Failure(reason=reason, is_sent=False, is_final=True, is_denied=True)
        refusal = None
        if status >= 400:
            refusal = Refusal.from_body(status, body, lambda text: self._secrets.hide(text, asked))
        if status == _TOO_MANY_REQUESTS:
            return Failure(reason=str(refusal), is_sent=False, wait_s=_retry_after(response.headers))
        # Differs from Java: it retries changes after a 503, which does not prove that nothing was done.
        if status == _REQUEST_TIMEOUT or (status >= 500 and status != _NOT_IMPLEMENTED):
            is_never = refusal is not None and refusal.is_final
            wait_s = _retry_after(response.headers)
            return Failure(reason=str(refusal), is_sent=True, wait_s=wait_s, is_final=is_never, is_never=is_never)
        return Answer(
            status=status,
            headers=response.headers,
            body=body,
            refusal=refusal,
            most_values=limit.most_values,
            asked=f"{sent.method} {urlsplit(sent.url).path}",
        )

    def _no_answer(self, error: Exception, handled: BaseException | None) -> Failure:
        # An error that the caller is handling becomes the context of ours, and says nothing about this request.
        causes = list(_chain(error, without=handled))
        refused = next((each for each in causes if isinstance(each, ssl.SSLCertVerificationError)), None)
        if refused is not None:
            reason = f"its certificate is not trusted ({refused.verify_message}), see ssl.cabundle"
            advice = "name the certificate's authority in ssl.cabundle, or have the server's certificate renewed"
            return Failure(reason=reason, is_sent=False, is_final=True, is_denied=True, cause=error, advice=advice)
        if any(isinstance(each, ssl.SSLError) and each.reason in _NO_TLS for each in causes):
            reason, advice = (
                "no TLS is spoken at this port",
                "correct the scheme (http or https) or the port of the uri",
            )
            return Failure(reason=reason, is_sent=False, is_final=True, is_denied=True, cause=error, advice=advice)
        is_sent = not any(map(_is_before_sending, causes))
        what = "it did not answer in time" if isinstance(error, requests.exceptions.ReadTimeout) else "no answer"
        reason = f"{what} ({self._secrets.hide(_first_line(causes[-1]))})"
        return Failure(reason=reason, is_sent=is_sent, cause=error)

    def _usable_session(self) -> Session:
        with self._lock:
            if self._session is None or self._pid != os.getpid():
                # A connection must not be used by two processes: a forked child opens its own.
                self._session, self._pid = self._new_session(), os.getpid()
            return self._session

    def _new_session(self) -> Session:
        session = _Session()
        session.cert = self._settings.certificate
        if self._settings.proxy:
            session.proxies = {"http": self._settings.proxy, "https": self._settings.proxy}
            session.trust_env = False  # the environment's proxies would take precedence
        return session


class _Session(Session):
    """A session that asks for a path as it is written."""

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Prepare a request.

        requests decodes what may stand in a path undecoded, also "%2E": servers that separate levels of a namespace by
        it look for it before they decode the path. And a signature is one of the path as it was written.
        """
        prepared = super().prepare_request(request)
        asked, made = urlsplit(str(request.url)).path, urlsplit(str(prepared.url))
        if asked != made.path and _AS_IT_IS.fullmatch(asked) and requests.utils.requote_uri(asked) == made.path:
            prepared.url = urlunsplit(made._replace(path=asked))
        return prepared


def _has_credentials(request: Signable) -> bool:
    """Tell whether a request shows a proof of identity, or asks for one by a form."""
    return request.headers.get("Content-Type") == FORM or any(is_secret(name) for name in request.headers)


def _is_before_sending(error: BaseException) -> bool:
    # urllib3 raises a ProxyError for every broken connection to a proxy, also after it has sent the whole request.
    if isinstance(error, urllib3.exceptions.ProxyError):
        return str(error.original_error).startswith("Tunnel connection failed")
    return isinstance(error, _BEFORE_SENDING)


def _chain(error: BaseException, without: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an error and its causes: the libraries have them in arguments, in `reason` or as context."""
    seen = {id(without)}
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
    """Return the seconds to wait, as the server asks; for a date, the other form, our own backoff is used."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None
