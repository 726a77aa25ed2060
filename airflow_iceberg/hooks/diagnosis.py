"""The steps that the button "Test" of a connection tries, one after the other, until one fails."""

from __future__ import annotations

import contextvars
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_iceberg.catalogs.pointer import PointerCatalog
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.redaction import replaced, without_secrets
from airflow_iceberg.storage.conditional_create import Presence, find_directory, require_conditional_create

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableState
    from airflow_iceberg.storage.base import FileIO

# Properties with an address; the uri of a Hive Metastore may be several.
_ADDRESSES = ("uri", "s3.endpoint", "glue.endpoint", "gcs.service.host", "oauth2-server-uri")
_PORTS = {
    "http": 80,
    "https": 443,
    "thrift": 9083,
    "postgresql": 5432,
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
}
_TIMEOUT_S = 10
STEP_TIMEOUT_S = 30.0
"""How long a step may take: a task waits for minutes, and tries again; somebody who has pressed a button does not."""
_NAMESPACES_LOOKED_INTO = 20
_NOT_YET = "it does not exist yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step.

    Attributes:
        what: the step, as in "could not <what>".
        run: a function that tries the step, and returns its finding for the user, or None.
        waits: whether somebody else answers, who may not.
    """

    what: str
    run: Callable[[], str | None]
    waits: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a step has found, without secrets.

    Attributes:
        what: the step, as in "could not <what>".
        text: the finding, or why the step failed; may be empty.
    """

    what: str
    text: str
    works: bool = True


@dataclass(kw_only=True, slots=True)
class Diagnosis:
    """What the steps have found so far.

    Attributes:
        secrets: texts that the answer must not show.
        cautions: findings that are no errors, but that a user who mistyped something must see first.
    """

    secrets: Sequence[str] = field(default=(), repr=False)
    cautions: list[str] = field(default_factory=list)

    def follow(self, steps: Iterable[Step], result: Callable[[], str]) -> tuple[bool, str]:
        """Try the steps; return whether all worked, and a text for the user.

        Args:
            result: names the thing that works if all steps do.
        """
        worked: list[str] = []
        for finding in self.findings(steps):
            if not finding.works:
                before = f" (worked: {'; '.join(worked)})" if worked else ""
                also = "".join(f". {caution}" for caution in self.cautions)
                return False, self._clean(f"could not {finding.what}: {finding.text}{before}{also}")
            worked.append(finding.what + (f": {finding.text}" if finding.text else ""))
        cautions = "".join(f"{caution}. " for caution in self.cautions)
        return True, self._clean(f"{cautions}{result()} works: {'; '.join(worked)}")

    def findings(self, steps: Iterable[Step]) -> Iterator[Finding]:
        """Try the steps, and yield what each has found; the first that fails is the last."""
        for step in steps:
            try:
                found = _within(STEP_TIMEOUT_S, step.run) if step.waits else step.run()
            except Exception as error:  # noqa: BLE001 - the user needs to see whatever a driver raises
                yield Finding(what=self._clean(step.what), text=self._clean(_explained(error)), works=False)
                return
            yield Finding(what=self._clean(step.what), text=self._clean(found or ""))

    def _clean(self, text: str) -> str:
        return without_secrets(replaced(text, (secret for secret in self.secrets if len(secret) > 3)))


def _within(seconds: float, run: Callable[[], str | None]) -> str | None:
    """Run a step; a client that waits for longer is left to its own end, in a thread that no process waits for.

    Raises:
        StorageError: there is no answer.
    """
    answers: SimpleQueue[tuple[str | None, BaseException | None]] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put((run(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            answers.put((None, error))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(answer,), name="airflow-iceberg-test", daemon=True).start()
    try:
        found, error = answers.get(timeout=seconds)
    except Empty:
        raise StorageError(
            f"no answer within {seconds:g} s; check the address and the port, and that the service is up and answers"
        ) from None
    if error is not None:
        raise error
    return found


def diagnose(steps_of: Callable[[Diagnosis], Iterable[Step]], result: Callable[[], str]) -> tuple[bool, str]:
    """Try the steps of a connection; see `Diagnosis.follow`."""
    diagnosis = Diagnosis()
    return diagnosis.follow(steps_of(diagnosis), result)


def network_steps(properties: Mapping[str, str]) -> Iterator[Step]:
    """Yield the steps that test the addresses in a catalog's properties: name, port, TLS."""
    for name in _ADDRESSES:
        yield from _checks_of_port(name, properties.get(name, ""))
    for scheme, host, port in _addresses(properties):
        yield Step(what=f"resolve the name {host}", run=partial(_resolve, host))
        yield Step(what=f"connect to {host}:{port}", run=partial(_connect, host, port))
        if scheme == "https":
            yield Step(what=f"speak TLS with {host}:{port}", run=partial(_speak_tls, host, port))


def catalog_steps(catalog: Catalog, cautions: list[str]) -> Iterator[Step]:
    """Yield the steps that test a catalog, from its namespaces to a file of its warehouse.

    No step creates what the first table would create, since the name may be mistyped. A caution names it instead.

    Args:
        cautions: the list to which the steps add theirs.
    """
    spaces: list[tuple[str, ...]] = []
    loaded: list[TableState] = []
    looked: list[str] = []

    def look() -> str:
        looked.append(list_warehouse(catalog.io, warehouse, cautions))
        return looked[0]

    def log_in() -> str:
        if missing := catalog.missing():
            cautions.append(f"{missing}: the first table creates it; if it should exist, correct the connection")
            return missing
        spaces.extend(catalog.list_namespaces())
        return "1 namespace" if len(spaces) == 1 else f"{len(spaces)} namespaces"

    yield Step(what="log in and list the namespaces", run=log_in)
    warehouse = catalog.properties.get("warehouse", "").rstrip("/")
    is_location = bool(re.match(r"[A-Za-z0-9+.-]+:/|/", warehouse))
    if is_location:
        yield Step(what=f"list the warehouse {warehouse}", run=look)
    yield Step(what="read a table", run=lambda: _read_a_table(catalog, spaces, loaded))
    where = f"{loaded[0].metadata.location}/metadata" if loaded else ""
    if is_location:
        where = "" if looked == [_NOT_YET] else warehouse
    if where:
        yield Step(what=f"create a file in {where} only if it isn't there", run=lambda: _probe(catalog, loaded, where))


def list_warehouse(io: FileIO, warehouse: str, cautions: list[str]) -> str:
    """Return whether there is any file below a location, for the user.

    Args:
        cautions: the list to which a sentence is added if the location does not exist yet.

    Raises:
        NotFoundError: neither the location nor the folder above it exists.
    """
    if next(iter(io.list(warehouse)), None) is not None:
        return "it has files"
    presence = find_directory(io, warehouse)
    if presence is Presence.PRESENT:
        return "it is empty"
    if presence is Presence.NOWHERE:
        raise NotFoundError(
            "neither this folder nor the folder above it exists; correct the warehouse of the connection, or create "
            "the folder"
        )
    cautions.append(
        f"the warehouse {warehouse} does not exist yet: the first table creates it; if it should exist, correct the "
        "warehouse of the connection"
    )
    return _NOT_YET


def _checks_of_port(name: str, address: str) -> Iterator[Step]:
    """Yield a step that fails, for an address of a server whose port is none; its text may hold a password."""

    def refuse() -> None:
        raise InvalidInputError(f"the port in {name} is not a number from 0 to 65535; correct the address or the port")

    try:
        _ = urlsplit(address).port
    except ValueError:
        if address.startswith(("http://", "https://")):
            yield Step(what=f"read the address in {name}", run=refuse)


def _addresses(properties: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    seen = set()
    for name in _ADDRESSES:
        for text in properties.get(name, "").split(","):
            with suppress(ValueError):
                parts = urlsplit(text.strip().removeprefix("jdbc:"))
                scheme = parts.scheme.partition("+")[0].lower()
                if parts.hostname and scheme in _PORTS and (scheme, parts.netloc) not in seen:
                    seen.add((scheme, parts.netloc))
                    yield scheme, parts.hostname, _PORTS[scheme] if parts.port is None else parts.port


def _resolve(host: str) -> str | None:
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    return ", ".join(sorted(found - {host})) or None


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=_TIMEOUT_S).close()


def _speak_tls(host: str, port: int) -> str | None:
    # Whether the certificate is trusted is decided by the catalog's own client, which may have a CA of its own.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            return secured.version()


def _read_a_table(catalog: Catalog, spaces: Sequence[tuple[str, ...]], loaded: list[TableState]) -> str:
    for space in spaces[:_NAMESPACES_LOOKED_INTO]:
        for table in catalog.list_tables(space):
            state = catalog.load(table)
            loaded.append(state)
            snapshot = state.metadata.current_snapshot()
            if snapshot is not None and snapshot.manifest_list:
                (state.io or catalog.io).read(snapshot.manifest_list, length=64)
            return str(table)
    return "there is none yet"


def _probe(catalog: Catalog, loaded: Sequence[TableState], where: str) -> str | None:
    own = loaded[0].io if loaded and where.startswith(loaded[0].metadata.location) else None
    try:
        require_conditional_create(own or catalog.io, where)
    except UnsupportedError:
        # Others name each of their files anew, and rely on no condition of the store.
        if isinstance(catalog, PointerCatalog) and not catalog.has_new_names:
            raise
        return "the store ignores that condition, which this catalog does not need"
    return None


def _explained(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if not isinstance(error, IcebergError | OSError):
        text = f"{type(error).__name__}: {text}"
    advice = next((words for kind, words in _ADVICE if _is_below(error, kind)), "")
    return f"{text}; {advice}" if advice and advice not in text else text


def _is_below(error: BaseException, kind: type[BaseException]) -> bool:
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, kind):
            return True
        reason = getattr(inner, "reason", None)
        inner = inner.__cause__ or inner.__context__ or (reason if isinstance(reason, BaseException) else None)
    return False


# What to do, by the cause of an error; the first that fits.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "check the spelling of the host and the DNS of this machine"),
    (
        ssl.SSLCertVerificationError,
        "TLS: its certificate is not trusted here, let the process trust its CA (REQUESTS_CA_BUNDLE, SSL_CERT_FILE)",
    ),
    (ssl.SSLError, "TLS: check that the address is one of TLS (https) and no proxy is between"),
    (ConnectionRefusedError, "check the port, and that the service is up"),
    (TimeoutError, "check the port, and that a firewall lets this machine through"),
)
