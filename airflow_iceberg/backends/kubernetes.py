"""The driver pods of Spark on Kubernetes: found by their label, asked for their phase, and deleted.

By the REST API of the server that is the master of the Spark connection, with no client library. Not here: the proof of
identity (`backends.kubernetes_access`), submitting (`backends.spark_submit`), and which pods belong to a task
(`backends.applications`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_iceberg.backends.asking import PATIENCE_S, TIMEOUT_S, NoAnswerError, ask_again, end_each
from airflow_iceberg.backends.kubernetes_access import SETTINGS, Access
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.redaction import said
from airflow_iceberg.storage.answer_limits import APPLICATIONS, MOST_PAGES_BYTES, WHO_ANSWERS, parsed

if TYPE_CHECKING:
    from airflow.sdk import Connection

KUBERNETES = "kubernetes"
NAMESPACE, NAMESPACE_FIELD = "spark.kubernetes.namespace", "namespace"
WAITS = "spark.kubernetes.submission.waitAppCompletion"
DRIVER_LABEL = "spark.kubernetes.driver.label."
WORK_LABEL, SUBMISSION_LABEL = "airflow-iceberg-work", "airflow-iceberg-submission"
# Spark's own label: the pods of executors end with that of their driver.
_IS_DRIVER = ("spark-role", "driver")
_RUNNING = ("Pending", "Running", "Unknown")
_PAGE, _MOST_PAGES, _MOST_PAGES_S = 100, 100, 60.0
# Less than the half minute that a pod has by default: a task that is killed waits for the end, and nothing is saved.
_GRACE_S = 10
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_REASON, _MOST_REASONS = 500, 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """What the server says of the pod of a driver.

    Attributes:
        pod_id: its name and its uid, since names can be used again: `spark-…-driver/0b0f…`.
        phase: Pending, Running or Unknown; Succeeded or Failed.
        reason: why it waits, or how it ended, if the server says so.
    """

    pod_id: str
    phase: str
    reason: str
    labels: Mapping[str, str]

    @property
    def is_running(self) -> bool:
        """Whether it runs, or may still do so: also one that is being deleted."""
        return self.phase in _RUNNING

    @property
    def ending(self) -> str:
        """How it ended, for messages."""
        return f"with phase {self.phase}{f': {self.reason}' if self.reason else ''}"

    @property
    def waiting(self) -> str:
        """Why it does not start, if the server says so."""
        return self.reason if self.phase == "Pending" else ""

    def has_tag(self, tag: str) -> bool:
        """Whether it is of a work or a submission."""
        return tag in (self.labels.get(WORK_LABEL), self.labels.get(SUBMISSION_LABEL))


class ApiServer:
    """The API server of a cluster, and the namespace of the pods.

    Args:
        server: its address, `https://host:6443`.
        reached: what another process needs to reach it as well; without secrets.
    """

    def __init__(self, server: str, namespace: str, access: Access, reached: Mapping[str, Any]) -> None:
        self.server, self.namespace = server, _checked(_NAME, namespace, "a namespace of Kubernetes")
        self._access = access
        self._reached = dict(reached)

    @classmethod
    def of(cls, connection: Connection, environment: Mapping[str, str], settings: Mapping[str, str]) -> ApiServer:
        """Return the server of a Spark connection.

        Args:
            environment: the variables of this process and of spark-submit.
            settings: Spark's settings, of which some say where and who (`kubernetes_access.SETTINGS`, the namespace).
        Raises:
            InvalidInputError: the master of the connection is no address, or would get a token in the clear.
            NotFoundError, UnsupportedError: as of `Access.proof`.
        """
        extra, server = connection.extra_dejson, server_of(connection)
        namespace = settings.get(NAMESPACE) or "default"
        known = {name: settings[name] for name in SETTINGS if settings.get(name)}
        access = Access(server, extra, environment, known)
        access.proof()
        return cls(server, namespace, access, {"conn_id": connection.conn_id, "settings": known})

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], connection: Connection | None, environment: Any) -> ApiServer:
        """Return the server of a JSON form.

        Args:
            connection: the connection as it is now; None if there is none any more. What it says is not shown to a
                server that it does not name.
            environment: the variables of this process.
        Raises:
            As of `of`.
        """
        server = _checked_server(str(document["server"]))
        is_the_same = connection is not None and _is_server(connection, server)
        extra = connection.extra_dejson if connection is not None and is_the_same else {}
        known = {str(name): str(value) for name, value in document["settings"].items()}
        reached = {"conn_id": str(document["conn_id"]), "settings": known}
        return cls(server, str(document["namespace"]), Access(server, extra, environment, known), reached)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, by which another process reaches the same server; without secrets."""
        return {"server": self.server, NAMESPACE_FIELD: self.namespace, **self._reached}

    def find(self, tag: str, *, patience_s: float = PATIENCE_S) -> list[str]:
        """Return the ids of the driver pods of a work or a submission that run, or wait for their turn.

        Args:
            patience_s: seconds for which a server that does not answer is asked again.
        Raises:
            IcebergError: no answer, or a refusal.
        """
        return [pod.pod_id for pod in self._labelled(tag, patience_s) if pod.is_running]

    def reference(self, tag: str, application_id: str | None) -> dict[str, Any] | None:
        """Return the reference of what was submitted under a tag; None if there is no such pod, or not any more."""
        found = self._labelled(tag, PATIENCE_S)
        return {"kind": KUBERNETES, "pod": found[0].pod_id, "tag": tag, **self.to_dict()} if found else None

    def state(self, pod_id: str, *, patience_s: float = PATIENCE_S) -> Pod | None:
        """Return what the server says of a pod; None if there is none of this name and uid, or not any more.

        Raises:
            IcebergError: no answer, or a refusal.
        """
        name, _ = _parts(pod_id)
        answer = ask_again(patience_s, self._send, "GET", f"/{name}")
        found = None if answer is None else _pod(answer)
        return found if found is not None and found.pod_id == pod_id else None

    def end(self, pod_ids: Iterable[str], *, patience_s: float = PATIENCE_S) -> None:
        """Delete pods, with what belongs to them, and wait until they have ended; safe to be repeated.

        Raises:
            IcebergError: no answer, a refusal, or one has not ended within `patience_s` seconds; the others are
                deleted all the same.
        """

        def delete(pod_id: str) -> None:
            name, uid = _parts(pod_id)
            # Executors belong to their driver, and are removed after it. A pod of this name that is another one stays.
            kind = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            body = {**kind, "gracePeriodSeconds": _GRACE_S, "preconditions": {"uid": uid}}
            ask_again(patience_s, self._send, "DELETE", f"/{name}", body=body)

        end_each(pod_ids, delete, lambda one: self.state(one, patience_s=patience_s), patience_s)

    def _labelled(self, tag: str, patience_s: float) -> list[Pod]:
        label = SUBMISSION_LABEL if tag.startswith(SUBMISSION_LABEL) else WORK_LABEL
        wanted = {label: _checked(_LABEL, tag, "a label of Kubernetes"), _IS_DRIVER[0]: _IS_DRIVER[1]}
        selector = ",".join(f"{name}={value}" for name, value in wanted.items())
        found: list[Pod] = ask_again(patience_s, self._pages, selector)
        # Whatever the server makes of the question: what has another label is not ours.
        return [pod for pod in found if wanted.items() <= pod.labels.items()]

    def _pages(self, selector: str) -> list[Pod]:
        """Return all pods of a selector; begun anew if the server has forgotten the first part of its list."""
        found: list[Pod] = []
        query, size_bytes = {"labelSelector": selector, "limit": str(_PAGE)}, 0
        begun = time.monotonic()
        for _ in range(_MOST_PAGES):
            status, content = self._answer("GET", "", query, None)
            answer, size_bytes = self._document("GET", status, content), size_bytes + len(content)
            if size_bytes > MOST_PAGES_BYTES:
                break
            about = (answer or {}).get("metadata") or {}
            if answer is None or not isinstance(answer.get("items"), list) or not isinstance(about, Mapping):
                raise NoAnswerError(f"{self.server} lists no pods")
            found += map(_pod, answer["items"])
            following = about.get("continue")
            if not following:
                return found
            if time.monotonic() - begun > _MOST_PAGES_S:
                break
            query = {**query, "continue": str(following)}
        raise IcebergError(f"{self.server} lists pods without an end, {WHO_ANSWERS}")

    def _send(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Send a request, and return its document; None if there is no such pod, or another one of its name."""
        status, content = self._answer(method, path, query, body)
        return self._document(method, status, content)

    def _answer(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        import requests  # takes long, and few jobs run on Kubernetes

        from airflow_iceberg.storage.answers import LimitError, Session, within

        proof = self._access.proof()
        url = f"{self.server}/api/v1/namespaces/{self.namespace}/pods{path}"
        try:
            # Redirects are not followed: no API server sends anybody elsewhere, where the token would follow.
            with Session(lambda request: _signed(request, proof.token)) as session, within(APPLICATIONS):
                answer = session.request(
                    method,
                    url,
                    params=query,
                    json=body,
                    cert=proof.certificate,
                    verify=proof.authority or True,
                    timeout=TIMEOUT_S,
                    headers={"Accept": "application/json"},
                )
        except LimitError as error:
            # A server that is asked again says the same again.
            raise IcebergError(
                f"the answer of {self.server} to {method} of pods in namespace {self.namespace} is not read to the "
                f"end: {error}; {error.to_do}"
            ) from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise NoAnswerError(f"{self.server} does not answer: {type(error).__name__}") from None
        return answer.status_code, answer.content

    def _document(self, method: str, status: int, content: bytes) -> dict[str, Any] | None:
        try:
            document = parsed(content, APPLICATIONS.most_values)
        except (ValueError, RecursionError):
            document = None
        reason = document.get("reason") if isinstance(document, dict) else None
        # A proxy can also answer with 404. Only the server knows whether there is a pod.
        if status == 404 and reason == "NotFound":
            return None
        if status == 409 and method == "DELETE" and reason == "Conflict":
            return None
        if status in (401, 403):
            self._access.forget()
            raise IcebergError(
                f"the Kubernetes API server {self.server} refuses {method} of pods in namespace {self.namespace} with "
                f"status {status}; the account of this process must be allowed to list, get and delete pods there"
            )
        if not 200 <= status < 300 or not isinstance(document, dict):
            raise NoAnswerError(f"{self.server} answers with status {status}, {len(content)} bytes, expected JSON")
        return document


def is_kubernetes(connection: Connection) -> bool:
    """Whether jobs of a connection run on Kubernetes."""
    return connection.conn_type == "k8s" or (connection.host or "").startswith("k8s")


def server_of(connection: Connection) -> str:
    """Return the address of the API server of a connection, whose master is `k8s://https://host:port`.

    Raises:
        InvalidInputError: it is none.
    """
    host = (connection.host or "").removeprefix("k8s://")
    return _checked_server(f"{host}:{connection.port}" if connection.port else host)


def namespace_of(extra: Mapping[str, Any], conf: Mapping[str, Any], default: str | None) -> str | None:
    """Return the namespace that spark-submit uses: of the job, of the connection, or of its settings."""
    return str(conf.get(NAMESPACE) or extra.get(NAMESPACE_FIELD) or default or "") or None


def _is_server(connection: Connection, server: str) -> bool:
    try:
        return is_kubernetes(connection) and server_of(connection) == server
    except InvalidInputError:
        return False


def _signed(request: Any, token: str | None) -> Any:
    # As `auth`, since requests would take a password of .netrc for the host instead of a header.
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _checked_server(text: str) -> str:
    url = (text if "://" in text else f"https://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        is_address = is_address and (parts.port or 1) > 0 and not parts.query and not parts.fragment
    except ValueError:
        is_address = False
    if not is_address or re.search(r"[\s@\\]", url):
        raise InvalidInputError(
            "the master of the Spark connection is no address of a Kubernetes API server; expected "
            "k8s://https://host:6443 as its host"
        )
    return url


def _checked(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise InvalidInputError(f"not {what}: {text!r}")
    return text


def _parts(pod_id: str) -> tuple[str, str]:
    """Return the name and the uid of a pod; a forged one is part of no address."""
    name, _, uid = pod_id.partition("/")
    return _checked(_NAME, name, "the name of a pod"), _checked(_UID, uid, "the uid of a pod")


def _pod(document: Any) -> Pod:
    try:
        metadata, status = document["metadata"], document.get("status") or {}
        pod_id = f"{metadata['name']}/{metadata['uid']}"
        _parts(pod_id)
        phase = str(status.get("phase") or "Pending")
        labels = {str(name): str(value) for name, value in (metadata.get("labels") or {}).items()}
        return Pod(pod_id=pod_id, phase=phase, reason=_reason(status), labels=labels)
    except (TypeError, KeyError, AttributeError, InvalidInputError) as error:
        # None of the errors after which nobody asks again.
        raise IcebergError(f"the Kubernetes API server describes a pod as none is: {error}") from None


def _reason(status: Mapping[str, Any]) -> str:
    """Return why a pod waits, or how its container ended."""
    told = [status.get("reason"), status.get("message")]
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        for kind in ("terminated", "waiting"):
            known = state.get(kind) or {}
            code = f"exit code {known['exitCode']}" if known.get("exitCode") else None
            told += [code, known.get("reason") if known.get("reason") != "Completed" else None, known.get("message")]
    told += [
        f"{one.get('reason')}: {one.get('message')}"
        for one in status.get("conditions") or []
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]
    # Each by itself, as it is written: a key and its value may be in two lines.
    shown = (" ".join(said(text, _LONGEST_REASON).split()) for text in islice(filter(None, told), _MOST_REASONS))
    return ", ".join(shown)[:_LONGEST_REASON]
