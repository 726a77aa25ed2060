"""The Glue service through boto3: credentials, requests, and which failures leave the outcome unknown.

boto3 retries requests on its own, and the answer to the second one may be the echo of the first. So a change is sent
once, and only retried if Glue throttled it. Reads may be retried.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from airflow_iceberg.catalogs.glue.tables import is_name
from airflow_iceberg.catalogs.names import join_levels
from airflow_iceberg.catalogs.pages import PageTokens
from airflow_iceberg.errors import (
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    StorageError,
    advised,
    missing_package,
)
from airflow_iceberg.redaction import hidden_texts, replaced, without_secrets
from airflow_iceberg.storage.addresses import warn_of_plain_text
from airflow_iceberg.storage.answer_limits import GLUE, WHO_ANSWERS, excess_of
from airflow_iceberg.storage.answers import LimitError, counted, limited_pools

MISSING = "EntityNotFoundException"
_THROTTLED = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException")
# Error responses with an HTTP status 4xx that leave open whether the change was done.
_OPEN = ("OperationTimeoutException", "RequestTimeout", "RequestTimeoutException")
_ACCESS = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "ExpiredTokenException",
    "MissingAuthenticationTokenException",
    "InvalidClientTokenId",
)

Json = dict[str, Any]


class Refusal(IcebergError):
    """Glue's definite error response: nothing was changed. Only the modules of this catalog see it.

    Attributes:
        code: Glue's name of the error, such as EntityNotFoundException.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


def _is_throttled(error: BaseException) -> bool:
    return isinstance(error, Refusal) and error.code in _THROTTLED


class GlueClient:
    """Requests to Glue. Thread-safe; a forked child creates clients of its own.

    Args:
        catalog: name of the catalog, for messages.
        properties: `glue.region`, `glue.access-key-id`, `glue.secret-access-key`, `glue.session-token`,
            `glue.profile-name`, each also as `client.…`; `glue.endpoint`, `glue.id` (id of the Data Catalog: the number
            of the account), `glue.max-retries`, `glue.retry-mode`, as in PyIceberg. boto3 finds the others.
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._properties = properties
        self._catalog_id = properties.get("glue.id", "").strip()
        self._retries = self._setting("max-retries", "10", re.compile("[0-9]+"), "a number from 0")
        modes = re.compile("standard|adaptive|legacy")
        self._mode = self._setting("retry-mode", "standard", modes, "one of standard, adaptive, legacy")
        self._lock = threading.Lock()
        self._clients: tuple[Any, Any] | None = None
        self._pid = 0

    def __str__(self) -> str:
        endpoint = self._properties.get("glue.endpoint", "").strip()
        region = self._property("region")
        return f"Glue at {endpoint}" if endpoint else f"Glue{f' in {region}' if region else ''}"

    __repr__ = __str__

    def ask(self, operation: str, **arguments: Any) -> Json:
        """Send a request that reads; boto3 retries it.

        Args:
            operation: name of the boto3 method, such as "get_table".
        Raises:
            Refusal: an error response.
            StorageError: no usable answer, or no access.
        """
        try:
            return self._call(self._usable()[0], operation, arguments)
        except CommitUnknownError as error:
            raise StorageError(str(error)) from None

    def pages(self, operation: str, field: str, **arguments: Any) -> Iterator[Json]:
        """Yield all entries of a list, for any size of its pages; raises as `ask`."""
        tokens = PageTokens(f"catalog {self._catalog} cannot read {field} from {self}")
        while True:
            answer = self.ask(operation, **arguments)
            items = answer.get(field) or ()
            yield from items
            token = answer.get("NextToken")
            if token is None or token == "":
                return
            arguments["NextToken"] = tokens.checked(token, items=len(items))

    def change(self, operation: str, **arguments: Any) -> Json:
        """Send a request that changes something, once; retry it only if Glue throttled it.

        Raises:
            Refusal: an error response; nothing was changed.
            StorageError: the request was never sent, or throttled; nothing was changed.
            CommitUnknownError: it was sent, and the outcome is not known.
        """
        retrying = Retrying(
            retry=retry_if_exception(_is_throttled),
            stop=stop_after_attempt(int(self._retries) + 1),
            wait=wait_random_exponential(multiplier=0.1, max=20),
            reraise=True,
        )
        try:
            answer: Json = retrying(lambda: self._call(self._usable()[1], operation, arguments))
        except Refusal as error:
            if _is_throttled(error):
                raise StorageError(f"catalog {self._catalog}: {self} is too busy: {error}; try again later") from None
            raise
        return answer

    def find_table(self, database: str, name: str) -> Json | None:
        """Return the document of a table, or None if there is none."""
        if not (is_name(database) and is_name(name)):
            return None
        answer = self._find("get_table", f"read {join_levels((database, name))}", DatabaseName=database, Name=name)
        return answer and self._part(answer, "Table")

    def find_database(self, name: str) -> Json | None:
        """Return the document of a database, or None if there is none."""
        answer = self._find("get_database", f"read namespace {name}", Name=name) if is_name(name) else None
        return answer and self._part(answer, "Database")

    def _part(self, answer: Json, name: str) -> Json:
        found = answer.get(name)
        if not isinstance(found, dict):
            text = f"catalog {self._catalog}: {self} answered without '{name}', which is not Glue"
            raise advised(StorageError(text), WHO_ANSWERS)
        return dict(found)

    def list_tables(self, database: str) -> list[Json] | None:
        """Return the documents of all tables in a database, or None if there is no such database."""
        if not is_name(database):
            return None
        try:
            return list(self.pages("get_tables", "TableList", DatabaseName=database))
        except Refusal as error:
            if error.code == MISSING:
                return None
            raise self.denied(f"list {database}", error) from None

    def _find(self, operation: str, purpose: str, **arguments: str) -> Json | None:
        try:
            return self.ask(operation, **arguments)
        except Refusal as error:
            if error.code == MISSING:
                return None
            raise self.denied(purpose, error) from None

    def denied(self, what: str, refusal: Refusal) -> StorageError:
        """Return the error for an error response about the access or the request, and not about the data."""
        advice = "check the credentials and what they allow" if refusal.code in _ACCESS else "check the request"
        error = advised(StorageError(f"catalog {self._catalog} cannot {what}: {self} answered {refusal}"), advice)
        # An expired token may be renewed before the next try; a permission or another key is not given meanwhile.
        error.is_denied = refusal.code in _ACCESS and refusal.code != "ExpiredTokenException"
        return error

    def _call(self, client: Any, operation: str, arguments: Mapping[str, Any]) -> Json:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        own = {"CatalogId": self._catalog_id} if self._catalog_id else {}
        try:
            with counted(GLUE):
                answer: Json = getattr(client, operation)(**own, **arguments)
        except ClientError as error:
            raise self._answered(error.response) from None
        except LimitError as error:
            raise self._unknown(f"it is not read to the end: {error}; {error.to_do}") from None
        except (ResponseParserError, UnicodeDecodeError):  # of an answer: arguments are encoded
            raise self._unknown("half an answer") from None
        except (BotoCoreError, ValueError) as error:
            raise self._failed(error) from None
        except RuntimeError as error:
            if isinstance(error, RecursionError):
                raise self._unknown("it is nested too deeply") from None
            raise self._ended(error) from None  # botocore's for credentials that were renewed and are old again
        except (TypeError, AttributeError, LookupError) as error:
            raise self._unknown(f"it is none of Glue's, {type(error).__name__}") from None
        return answer

    def _ended(self, error: Exception) -> StorageError:
        reason = self._without_secrets(str(error).partition("\n")[0])
        text = f"catalog {self._catalog} cannot ask {self}: there are no valid credentials ({reason})"
        return advised(StorageError(text), "check the clock of this machine, and the profile or role that gives them")

    def _answered(self, response: Mapping[str, Any]) -> IcebergError:
        error = response.get("Error") or {}
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
        code = str(error.get("Code") or status)
        # The first line only: the other lines may show the signed headers, the session's token among them.
        message = self._without_secrets(str(error.get("Message") or "").partition("\n")[0])
        if not 400 <= status < 500 or code in _OPEN:
            return self._unknown(f"{code}: {message}")
        return Refusal(code, message)

    def _failed(self, error: Exception) -> IcebergError:
        from botocore import exceptions

        never_sent = (
            exceptions.EndpointConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.ProxyConnectionError,
        )
        reason = self._without_secrets(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        if isinstance(error, never_sent):
            return StorageError(
                f"catalog {self._catalog} cannot reach {self}: {reason}; check that the way to it is open"
            )
        if isinstance(error, exceptions.HTTPClientError | exceptions.IncompleteReadError):
            return self._unknown(reason)
        return StorageError(
            f"catalog {self._catalog} cannot ask {self}: {reason}; check glue.region, the credentials and the request"
        )

    def _unknown(self, reason: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"no answer from {self} to a request of catalog {self._catalog} ({reason}): it may have been done or not"
        )

    def _usable(self) -> tuple[Any, Any]:
        """Return the client for reads and the one for changes."""
        with self._lock:
            if self._clients is None or self._pid != os.getpid():
                # A connection must not be used by two processes: a forked child opens its own.
                self._clients, self._pid = self._new_clients(), os.getpid()
            return self._clients

    def _new_clients(self) -> tuple[Any, Any]:
        try:
            import boto3
        except ImportError as error:
            what = f"catalog {self._catalog}: the Glue catalog needs boto3"
            raise missing_package(what, "airflow-iceberg[glue]") from error
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        endpoint = self._properties.get("glue.endpoint", "").strip() or None
        warn_of_plain_text(endpoint or "", f"catalog {self._catalog}")
        try:
            session = boto3.Session(
                botocore_session=_session(),
                profile_name=self._property("profile-name"),
                region_name=self._property("region"),
                aws_access_key_id=self._property("access-key-id"),
                aws_secret_access_key=self._property("secret-access-key"),
                aws_session_token=self._property("session-token"),
            )
            reads = Config(retries={"max_attempts": int(self._retries), "mode": self._mode})
            changes = Config(retries={"total_max_attempts": 1, "mode": "standard"})
            return (
                _limited(session.client("glue", endpoint_url=endpoint, config=reads)),
                _limited(session.client("glue", endpoint_url=endpoint, config=changes)),
            )
        except (BotoCoreError, ValueError) as error:
            reason = self._without_secrets(f"{type(error).__name__}: {error}")
            raise InvalidInputError(
                f"catalog {self._catalog}: cannot make a client of Glue: {reason}; set glue.region and the credentials"
            ) from None

    def _property(self, name: str) -> str | None:
        for prefix in ("glue", "client"):
            if value := self._properties.get(f"{prefix}.{name}", "").strip():
                return value
        return None

    def _setting(self, name: str, default: str, valid: re.Pattern[str], expected: str) -> str:
        text = self._properties.get(f"glue.{name}", "").strip() or default
        if not valid.fullmatch(text):
            raise InvalidInputError(f"catalog {self._catalog}: property glue.{name} is '{text}', expected {expected}")
        return text

    def _without_secrets(self, text: str) -> str:
        return without_secrets(replaced(text, hidden_texts(self._properties)))


def _limited(client: Any) -> Any:
    """Return a client whose answers are read within the limits of `counted`, as far as botocore lets.

    It reads an answer as a whole and does not decompress it. It has no argument for its connections.
    """
    pools = getattr(getattr(getattr(client, "_endpoint", None), "http_session", None), "_pool_classes_by_scheme", None)
    if pools is not None:
        pools.update(limited_pools(pools))

    def check(response_dict: Mapping[str, Any], **_: Any) -> None:
        body = response_dict.get("body")
        if isinstance(body, bytes) and (excess := excess_of(body, GLUE.most_values)):
            reason = f"it has about {excess[0]} values, expected at most {excess[1]}"
            raise LimitError(reason, WHO_ANSWERS, is_slow=False)

    client.meta.events.register("before-parse.glue", check)
    return client


def _session() -> Any:
    """Return a session of botocore that reads the description of Glue (some 0.4 s) once in each process."""
    from botocore.session import Session

    session = Session()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    from botocore.loaders import create_loader

    return create_loader()
