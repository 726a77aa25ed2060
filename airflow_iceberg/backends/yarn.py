"""The applications of a YARN cluster: found by their tag, asked for their state, and ended.

By the REST API of the resource manager, so that a worker needs no Hadoop. Not here: submitting an application
(`backends.spark_submit`), and which applications belong to a task (`backends.applications`).
"""

from __future__ import annotations

import getpass
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from airflow_iceberg.backends.asking import PATIENCE_S, TIMEOUT_S, NoAnswerError, ask_again, end_each
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.redaction import said
from airflow_iceberg.storage.addresses import is_same_origin, origin_of
from airflow_iceberg.storage.answer_limits import APPLICATIONS, parsed

YARN = "yarn"

# The extra field of the Spark provider's connection.
ADDRESS_FIELD = "yarn_resourcemanager_webapp_address"
RUNNING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_APPLICATION_ID = re.compile(r"application_[0-9]{1,20}_[0-9]{1,20}")
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_MOST_VARIABLES = 20
_LONGEST_DIAGNOSTICS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """What the resource manager says of an application.

    Attributes:
        state: NEW, NEW_SAVING, SUBMITTED, ACCEPTED or RUNNING; FINISHED, FAILED or KILLED.
        final_status: what the application itself has reported: UNDEFINED while it runs, SUCCEEDED, FAILED or KILLED.
        diagnostics: why it ended, if YARN says so.
        tags: its tags, in lower case.
    """

    application_id: str
    state: str
    final_status: str
    diagnostics: str
    tags: tuple[str, ...]

    @property
    def is_running(self) -> bool:
        """Whether it runs, or may still do so."""
        return self.state in RUNNING

    @property
    def ending(self) -> str:
        """How it ended, for messages."""
        why = f": {self.diagnostics}" if self.diagnostics else ""
        return f"with state {self.state} and final status {self.final_status}{why}"

    @property
    def waiting(self) -> str:
        """Nothing: what YARN says of an application that waits has the time in it, and changes with each look."""
        return ""

    def has_tag(self, tag: str) -> bool:
        """Whether it is of a work or a submission."""
        return tag.lower() in self.tags


class ResourceManager:
    """The resource manager of a cluster, or several of which one is active.

    Args:
        addresses: their web addresses, `http://host:8088`.
        user: the name to be known by where the cluster knows no Kerberos.
        is_kerberos: whether requests prove their identity by the ticket of this process's Kerberos cache.
    """

    def __init__(self, addresses: Sequence[str], *, user: str, is_kerberos: bool = False) -> None:
        self.addresses = tuple(addresses)
        self.user, self.is_kerberos = user, is_kerberos
        self._query = {} if is_kerberos else {"user.name": user}
        self._auth = _kerberos_auth() if is_kerberos else None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ResourceManager:
        """Return the manager of a JSON form."""
        addresses = [_checked(str(text)) for text in document["addresses"]]
        return cls(addresses, user=str(document["user"]), is_kerberos=bool(document["is_kerberos"]))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, by which another process reaches the same manager; without secrets."""
        return {"addresses": list(self.addresses), "user": self.user, "is_kerberos": self.is_kerberos}

    @classmethod
    def of(
        cls,
        extra: Mapping[str, Any],
        environment: Mapping[str, str],
        conf: Mapping[str, Any],
        *,
        user: str | None = None,
    ) -> ResourceManager:
        """Return the manager of a Spark connection.

        Its address is in the connection's extra field `yarn_resourcemanager_webapp_address` (several are separated by
        commas), or in yarn-site.xml of HADOOP_CONF_DIR or YARN_CONF_DIR.

        Args:
            extra: the extra fields of the connection.
            environment: the variables of spark-submit.
            conf: Spark's settings.
            user: the user to act for; that of the submission by default.
        Raises:
            NotFoundError: the address is nowhere.
            InvalidInputError: it is no address, or a file of settings cannot be read.
            UnsupportedError: the cluster wants Kerberos, and requests-kerberos is missing.
        """
        settings = _hadoop_settings(environment, conf)
        given = str(extra.get(ADDRESS_FIELD) or "").split(",")
        addresses = [text.strip() for text in given if text.strip()] or _addresses(settings)
        if not addresses:
            raise NotFoundError(
                f"the address of YARN's resource manager is unknown; set the extra field {ADDRESS_FIELD} of the Spark "
                f"connection (http://host:8088), or HADOOP_CONF_DIR to a folder with yarn-site.xml"
            )
        is_kerberos = settings.get("hadoop.security.authentication", "").lower() == "kerberos"
        return cls(
            [_checked(text) for text in addresses],
            user=user or environment.get("HADOOP_USER_NAME") or _user(),
            is_kerberos=is_kerberos or bool(extra.get("principal")),
        )

    def find(self, tag: str, *, patience_s: float = PATIENCE_S) -> list[str]:
        """Return the ids of the applications with a tag that run, or wait for their turn.

        Args:
            patience_s: seconds for which a manager that does not answer is asked again.
        Raises:
            IcebergError: no answer, or a refusal.
        """
        query = {"applicationTags": tag.lower(), "states": ",".join(RUNNING)}
        answer = self._ask("GET", "apps", query, patience_s=patience_s) or {}
        found = [_application(one) for one in _part(answer, "apps").get("app") or []]
        # Whatever the manager makes of the question: what has another tag is not ours.
        return [one.application_id for one in found if one.has_tag(tag) and one.is_running]

    def state(self, application_id: str, *, patience_s: float = PATIENCE_S) -> Application | None:
        """Return what the manager says of an application; None if it does not know it, or not any more.

        Raises:
            IcebergError: no answer, or a refusal.
        """
        answer = self._ask("GET", f"apps/{_checked_id(application_id)}", patience_s=patience_s)
        found = None if answer is None else _application(answer.get("app"))
        return found if found is not None and found.application_id == application_id else None

    def reference(self, tag: str, application_id: str | None) -> dict[str, Any] | None:
        """Return the reference of what was submitted under a tag; None if YARN knows no application of it that runs.

        Args:
            application_id: as spark-submit has logged it; None if its settings let it log nothing.
        """
        found = [application_id] if application_id else self.find(tag)
        return {"kind": YARN, "application_id": found[0], "tag": tag, **self.to_dict()} if found else None

    def end(self, application_ids: Iterable[str], *, patience_s: float = PATIENCE_S) -> None:
        """Kill applications, and wait until the manager says that they have ended; safe to be repeated.

        Raises:
            IcebergError: no answer, a refusal, or one has not ended within `patience_s` seconds.
        """

        def kill(application_id: str) -> None:
            path = f"apps/{_checked_id(application_id)}/state"
            self._ask("PUT", path, body={"state": "KILLED"}, patience_s=patience_s)

        end_each(application_ids, kill, lambda one: self.state(one, patience_s=patience_s), patience_s)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, str] | None = None,
        patience_s: float,
    ) -> dict[str, Any] | None:
        """Send a request to the active manager, and return its document; None if there is no such application."""
        return ask_again(patience_s, self._ask_each, method, path, {**(query or {}), **self._query}, body)

    def _ask_each(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, str] | None
    ) -> dict[str, Any] | None:
        problems = []
        for address in self.addresses:
            try:
                info = self._send(address, "GET", "info", self._query, None) or {}
                # A manager that starts answers before it knows the applications that run.
                if _part(info, "clusterInfo").get("haState") != "INITIALIZING":
                    return self._send(address, method, path, query, body)
                problems.append(f"{address}: is starting")
            except NoAnswerError as error:
                problems.append(f"{address}: {error}")
        raise NoAnswerError(f"no active YARN resource manager answers ({'; '.join(problems)})")

    def _send(
        self, address: str, method: str, path: str, query: Mapping[str, str], body: Mapping[str, str] | None
    ) -> dict[str, Any] | None:
        url = f"{address}/ws/v1/cluster/{path}"
        status, content = self._answer(method, url, query, body)
        if status == 404 and b"NotFoundException" in content:
            return None
        if status in (401, 403):
            raise IcebergError(
                f"YARN's resource manager at {address} refuses {method} {path} with status {status}; it must know the "
                f"user, by Kerberos where the cluster demands that, and let it end its own applications"
            )
        try:
            # A manager in standby answers with a redirection to the active one, or with a text.
            document = parsed(content, APPLICATIONS.most_values) if 200 <= status < 300 else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise NoAnswerError(f"status {status}, {len(content)} bytes, expected JSON")
        return document

    def _answer(
        self, method: str, url: str, query: Mapping[str, str] | None, body: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        """Return status and body of an answer; a redirection is followed to the addresses of this manager alone."""
        import requests  # takes long, and few jobs run on YARN

        from airflow_iceberg.storage.answers import LimitError, Session, within

        try:
            with Session(self._auth) as session, within(APPLICATIONS):
                for _ in range(_MOST_REDIRECTS + 1):
                    answer = session.request(method, url, params=query, json=body, timeout=TIMEOUT_S, headers=_HEADERS)
                    if answer.status_code not in _REDIRECTED:
                        return answer.status_code, answer.content
                    # It has the query in it.
                    url, query = urljoin(url, answer.headers.get("Location", "")), None
                    if not any(is_same_origin(url, own) for own in self.addresses):
                        raise NoAnswerError(
                            f"it leads to {_shown(url)}, which is none of the addresses of the Spark connection; name "
                            f"all resource managers in {ADDRESS_FIELD}, separated by commas"
                        )
        except LimitError as error:
            # A manager that is asked again says the same again.
            raise IcebergError(
                f"the answer of YARN's resource manager to {method} {_shown(url)} is not read to the end: {error}; "
                f"{error.to_do}"
            ) from None
        except requests.RequestException as error:
            raise NoAnswerError(type(error).__name__) from None
        raise NoAnswerError(f"it redirects more than {_MOST_REDIRECTS} times")


_REDIRECTED = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
_HEADERS = {"Accept": "application/json", "X-XSRF-Header": "airflow"}


def _shown(url: str) -> str:
    """Return scheme and host of an address."""
    origin = origin_of(url)
    return "another address" if origin is None else f"{origin[0]}://{origin[1]}:{origin[2]}"


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, Mapping):
        raise NoAnswerError(f"YARN's resource manager answers with {name} that is no object")
    return found


def _application(document: Any) -> Application:
    try:
        return Application(
            application_id=_checked_id(document["id"]),
            state=str(document["state"]),
            final_status=str(document.get("finalStatus") or "UNDEFINED"),
            diagnostics=said(str(document.get("diagnostics") or "").strip(), _LONGEST_DIAGNOSTICS),
            tags=tuple(tag.strip().lower() for tag in str(document.get("applicationTags") or "").split(",")),
        )
    except (TypeError, KeyError, AttributeError, InvalidInputError) as error:
        # None of the errors after which nobody asks again.
        raise IcebergError(f"YARN's resource manager describes an application as none is: {error}") from None


def _checked_id(text: Any) -> str:
    if not isinstance(text, str) or not _APPLICATION_ID.fullmatch(text):
        raise InvalidInputError(f"not the id of an application: {text!r}, expected application_1700000000000_0001")
    return text


def _checked(address: str) -> str:
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    if not re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s/@:?#]+)(:[0-9]{1,5})?(/[^\s@?#]*)?", url):
        raise InvalidInputError(
            f"the address of YARN's resource manager is not of the form http://host:8088; correct {ADDRESS_FIELD} of "
            f"the Spark connection, or yarn-site.xml"
        )
    return url


def _addresses(settings: Mapping[str, str]) -> list[str]:
    """Return the web addresses of all managers that yarn-site.xml names."""
    is_https = settings.get("yarn.http.policy", "").upper() == "HTTPS_ONLY"
    scheme, name, port = ("https", "webapp.https.address", 8090) if is_https else ("http", "webapp.address", 8088)
    is_ha = settings.get("yarn.resourcemanager.ha.enabled", "").lower() == "true"
    ids = settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if is_ha else []
    found = []
    for suffix in [f".{one.strip()}" for one in ids if one.strip()] or [""]:
        host = settings.get(f"yarn.resourcemanager.hostname{suffix}")
        address = settings.get(f"yarn.resourcemanager.{name}{suffix}") or (f"{host}:{port}" if host else None)
        if address:
            found.append(f"{scheme}://{address}")
    return found


def _hadoop_settings(environment: Mapping[str, str], conf: Mapping[str, Any]) -> dict[str, str]:
    """Return Hadoop's settings as spark-submit would see them, without the defaults."""
    settings: dict[str, str] = {}
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        for name in ("core-site.xml", "yarn-site.xml"):
            path = Path(environment.get(variable) or os.devnull) / name
            if path.is_file():
                settings.update(_settings_of(path))
    prefix = "spark.hadoop."
    settings |= {name.removeprefix(prefix): str(value) for name, value in conf.items() if name.startswith(prefix)}
    return {name: _expanded(value, settings) for name, value in settings.items()}


def _settings_of(path: Path) -> dict[str, str]:
    try:
        rows = ET.parse(path).getroot().iter("property")
        return {(row.findtext("name") or "").strip(): (row.findtext("value") or "").strip() for row in rows}
    except (OSError, ET.ParseError) as error:
        raise InvalidInputError(f"cannot read Hadoop's settings in {path}: {error}") from None


def _expanded(text: str, settings: Mapping[str, str]) -> str:
    for _ in range(_MOST_VARIABLES):
        found = _VARIABLE.search(text)
        if not found or found[1] not in settings:
            break
        text = text.replace(found[0], settings[found[1]])
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        return "airflow"


def _kerberos_auth() -> Any:
    try:
        from requests_kerberos import OPTIONAL, HTTPKerberosAuth
    except ImportError as error:
        raise UnsupportedError(
            "the Spark connection uses Kerberos, by which YARN's resource manager must be asked, too; this needs: pip "
            "install 'airflow-iceberg[kerberos]'"
        ) from error
    return HTTPKerberosAuth(mutual_authentication=OPTIONAL)
