"""HDFS by HTTP: `webhdfs://host:port/path` and `swebhdfs://` (TLS), on a NameNode or on HttpFS.

The requests are our own: fsspec's driver ignores the answer `{"boolean": false}` to a rename, and its exclusive modes
are not exclusive. A file is created as in `hdfs`: a temporary file, and a rename that must not overwrite.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

import requests

from airflow_iceberg.errors import InvalidInputError, UnsupportedError, switch
from airflow_iceberg.storage.addresses import is_same_origin, warn_of_plain_text
from airflow_iceberg.storage.answer_limits import DIRECTORY, FILE, Limit, file_of, parsed
from airflow_iceberg.storage.answers import LimitError, Session, within
from airflow_iceberg.storage.stores.name_nodes import require_own
from airflow_iceberg.storage.stores.renaming import RenamingStore
from airflow_iceberg.storage.stores.store import ExcessError, RefusedError, Settings, UnclearError

_TIMEOUTS_S = (30, 300)
_REDIRECTED = (301, 302, 303, 307, 308)
_REDIRECTS = 5
# HDFS itself takes no path of more than a thousand parts.
_DEEPEST = 1_000
_EXCEPTIONS: Mapping[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AlreadyBeingCreatedException": FileExistsError,
    "ParentNotDirectoryException": NotADirectoryError,
    "PathIsNotEmptyDirectoryException": RefusedError,
    "AccessControlException": RefusedError,
    "SecurityException": RefusedError,
    "SafeModeException": RefusedError,
    "InvalidToken": RefusedError,
}


class WebHdfsStore(RenamingStore):
    """Files of one HDFS; its instance is "scheme://host:port"."""

    def __init__(self, instance: str, settings: Settings) -> None:
        super().__init__(instance, settings)
        scheme, _, authority = instance.partition("://")
        properties = settings.current()
        authority = authority or ":".join(
            part for part in (properties.get("hdfs.host", ""), properties.get("hdfs.port", "")) if part
        )
        if not authority:
            raise InvalidInputError(f"a location with {scheme}:// must name a host, as in {scheme}://host:9870/path")
        require_own(scheme, authority, properties, ("hdfs.token", "hdfs.user", "hdfs.kerberos"))
        self._tls = scheme == "swebhdfs"
        self._authority = authority
        self._url = f"{'https' if self._tls else 'http'}://{authority}/webhdfs/v1"
        if properties.get("hdfs.token") or self._kerberos:
            warn_of_plain_text(self._url, "webhdfs")
        self._local = threading.local()
        self._opened: tuple[int, Any] | None = None

    def filesystem(self) -> Any:
        from fsspec.implementations.webhdfs import WebHDFS

        host, _, port = self._authority.partition(":")
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                properties = self._settings.current()
                who = {"user": properties.get("hdfs.user"), "token": properties.get("hdfs.token")}
                filesystem = WebHDFS(
                    host, int(port or 9870), use_https=self._tls, kerberos=self._kerberos, skip_instance_cache=True,
                    **{name: value for name, value in who.items() if value},
                )  # fmt: skip
                filesystem.session = _DiscreetSession(self._url, filesystem.session.auth)
                self._opened = (os.getpid(), filesystem)
            return self._opened[1]

    @property
    def _kerberos(self) -> bool:
        return switch(self._settings.current(), "hdfs.kerberos")

    @property
    def _session(self) -> Session:
        """The thread's own session, not shared with other threads or with a forked child."""
        if getattr(self._local, "pid", None) != os.getpid():
            session = Session(_kerberos_auth() if self._kerberos else None)
            self._local.session, self._local.pid = session, os.getpid()
        return cast(Session, self._local.session)

    # -- requests --------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, operation: str, path: str, *, limit: Limit = DIRECTORY, **parameters: str
    ) -> requests.Response:
        """Send a request to the NameNode; an answer or error response of it or of a DataNode is final."""
        properties = self._settings.current()
        token, user = properties.get("hdfs.token"), properties.get("hdfs.user")
        who = {"delegation": token} if token else {"user.name": user} if user else {}
        asked = {"op": operation, **parameters, **who}
        return self._send(method, self._url + quote(path, safe="/"), params=asked, limit=limit)

    def _send(self, method: str, url: str, *, limit: Limit = DIRECTORY, **more: Any) -> requests.Response:
        try:
            with within(limit):
                if is_same_origin(url, self._url):
                    answer = self._session.request(method, url, timeout=_TIMEOUTS_S, **more)
                else:
                    answer = _without_login(self._url, method, url, timeout=_TIMEOUTS_S, **more)
        except LimitError as error:
            raise UnclearError(
                f"the answer of {self._authority} is not read to the end: {error}; {error.to_do}"
            ) from None
        except requests.RequestException as error:
            # The message repeats the address, and with it the delegation token: only its kind is reported.
            raise UnclearError(f"{self._authority} did not answer ({_kind(error)})") from None
        if answer.status_code < 400:
            return answer
        raise _refusal(answer)

    def _follow(self, answer: requests.Response, method: str, **more: Any) -> requests.Response:
        """Send or fetch the data at the address in the NameNode's answer."""
        if answer.status_code in _REDIRECTED:
            return self._send(method, answer.headers.get("Location", ""), **more)
        return answer

    # -- files -----------------------------------------------------------------------------------------------------

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        if offset == 0 and length != 0 and (found := self._read_at_once(path, length)) is not None:
            return found
        status = self._status(path)
        if status is None:
            raise FileNotFoundError(path)
        if status["type"] == "DIRECTORY":
            raise IsADirectoryError(f"{path} is a directory")
        size = int(status["length"])
        end = size if length is None else min(size, offset + length)
        if end <= offset:
            return b""
        part = file_of(end - offset)
        answer = self._ask("GET", "OPEN", path, limit=part, offset=str(offset), length=str(end - offset))
        found = self._follow(answer, "GET", limit=part).content
        _require_length(found, end - offset)
        return found

    def _read_at_once(self, path: str, length: int | None) -> bytes | None:
        """Return the first bytes of a file, or all, with one request; None if the answer does not say how many."""
        wanted, part = ({}, FILE) if length is None else ({"length": str(length)}, file_of(length))
        try:
            answer = self._follow(self._ask("GET", "OPEN", path, limit=part, **wanted), "GET", limit=part)
        except (FileNotFoundError, NotADirectoryError, RefusedError):
            return None  # `read` finds the reason by the status
        told = answer.headers.get("Content-Length", "")
        if not told.isdigit() or "Content-Encoding" in answer.headers or (length is not None and int(told) > length):
            return None
        _require_length(answer.content, int(told))
        return answer.content

    def _write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        # HttpFS takes the data in the first request if a parameter says so, a NameNode never does.
        answer = self._ask("PUT", "CREATE", path, overwrite=str(overwrite).lower())
        self._follow(answer, "PUT", data=data, headers={"Content-Type": "application/octet-stream"})

    def _give_name(self, temporary: str, path: str) -> None:
        # With the option the NameNode raises if the name is taken, and never moves *into* a directory of that name;
        # HttpFS ignores the option and answers with a boolean, as all servers do without it.
        answer = self._ask("PUT", "RENAME", path=temporary, destination=path, renameoptions="NONE")
        if answer.content and not _document(answer).get("boolean", True):
            raise FileExistsError(path)

    def replace(self, path: str, data: bytes) -> None:
        """Overwrite a file; for a moment a reader can find it empty."""
        self._write(path, data, overwrite=True)

    def _remove(self, path: str) -> None:
        self._ask("DELETE", "DELETE", path)

    def walk(self, path: str) -> Iterator[tuple[str, int, int | None]]:
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            for each in self._listed(f"{path}/{inner}" if inner else path):
                name = f"{inner}/{each['pathSuffix']}" if inner else each["pathSuffix"]
                if each["type"] == "DIRECTORY":
                    if name.count("/") > _DEEPEST:
                        raise ExcessError(f"folders are nested more than {_DEEPEST} deep; check the server of HDFS")
                    waiting.append(name)
                elif name:  # the listing of a file is its own status, without a name
                    yield name, int(each["length"]), int(each["modificationTime"])

    def is_file(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and status["type"] == "FILE"

    def is_directory(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and status["type"] == "DIRECTORY"

    def _status(self, path: str) -> dict[str, Any] | None:
        try:
            return cast(dict[str, Any], _document(self._ask("GET", "GETFILESTATUS", path))["FileStatus"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listed(self, path: str) -> list[dict[str, Any]]:
        try:
            found = _document(self._ask("GET", "LISTSTATUS", path))["FileStatuses"]["FileStatus"]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return cast(list[dict[str, Any]], found)

    def children(self, path: str) -> list[tuple[str, bool]]:
        found = self._listed(path)
        return sorted((each["pathSuffix"], each["type"] == "DIRECTORY") for each in found if each["pathSuffix"])

    def make_directory(self, path: str) -> None:
        if not _document(self._ask("PUT", "MKDIRS", path)).get("boolean"):
            raise RefusedError("HDFS did not make the directory")

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._ask("DELETE", "DELETE", path, recursive="true")


class _DiscreetSession(Session):
    """The session of fsspec's requests: errors repeat no address, since a delegation token is a part of it.

    Args:
        name_node: the address that gets the proof of identity; DataNodes get what is in the NameNode's answer.
    """

    def __init__(self, name_node: str, auth: Any) -> None:
        super().__init__(auth)
        self._name_node = name_node

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        follows = kwargs.pop("allow_redirects", True)
        kwargs.setdefault("timeout", _TIMEOUTS_S)
        try:
            with within(FILE):
                answer = self._once(method, url, kwargs)
                for _ in range(_REDIRECTS):
                    if not follows or answer.status_code not in _REDIRECTED:
                        break
                    answer = self._once(method, answer.headers.get("Location", ""), {**kwargs, "params": None})
        except LimitError as error:
            raise UnclearError(f"the answer of HDFS is not read to the end: {error}; {error.to_do}") from None
        except requests.RequestException as error:
            raise UnclearError(f"HDFS did not answer ({_kind(error)})") from None
        answer.url = answer.url.partition("?")[0]
        return answer

    def _once(self, method: str, url: str, kwargs: dict[str, Any]) -> requests.Response:
        if is_same_origin(url, self._name_node):
            return super().request(method, url, **kwargs)
        return _without_login(self._name_node, method, url, **kwargs)


def _without_login(name_node: str, method: str, url: str, **more: Any) -> requests.Response:
    """Send a request to a DataNode: with the token that the NameNode's answer has for it, and nothing else of ours."""
    if name_node.startswith("https:") and not url.lower().startswith("https:"):
        raise RefusedError("the NameNode's answer leads to an address without TLS; set up HTTPS for the DataNodes")
    with Session() as session:
        return session.request(method, url, **more)


def _require_length(found: bytes, expected: int) -> None:
    if len(found) != expected:
        raise UnclearError(f"got {len(found)} bytes, expected {expected}")


def _refusal(answer: requests.Response) -> OSError:
    """Return the error by the class of the remote exception: servers use different statuses."""
    try:
        found = json.loads(answer.content)["RemoteException"]
        name, text = str(found["exception"]), str(found.get("message", "")).partition("\n")[0]
    except (ValueError, KeyError, TypeError, RecursionError):
        name, text = "", f"HTTP status {answer.status_code}"
    is_refused = answer.status_code in (400, 401, 403, 405)
    kind = _EXCEPTIONS.get(name, RefusedError if is_refused else UnclearError)
    return kind(f"{name}: {text}".removeprefix(": "))


def _document(answer: requests.Response) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], parsed(answer.content, DIRECTORY.most_values))
    except (ValueError, RecursionError):
        raise UnclearError(f"expected JSON, got {len(answer.content)} other bytes: is this WebHDFS?") from None


def _kind(error: requests.RequestException) -> str:
    inner: BaseException | None = error
    while inner is not None:
        reason = getattr(inner, "reason", None)
        following = inner.__cause__ or inner.__context__ or (reason if isinstance(reason, BaseException) else None)
        if following is None:
            break
        inner = following
    return getattr(inner, "strerror", None) or type(inner).__name__


def _kerberos_auth() -> Any:
    try:
        from requests_kerberos import OPTIONAL, HTTPKerberosAuth
    except ImportError as error:
        raise UnsupportedError("hdfs.kerberos is true, which needs: pip install requests-kerberos") from error
    return HTTPKerberosAuth(mutual_authentication=OPTIONAL)
