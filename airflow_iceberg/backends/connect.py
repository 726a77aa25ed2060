"""Running a job on a Spark Connect server: this process schedules, the server's workers read and write the files.

Each job has a session of its own. Its id follows from a secret and the staging folder of the job, so that the next try
of the task finds what a try has left running whose worker died, and ends it; and nobody else can find it, and join it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.redaction import secrets_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.protocol.result import JobResult
    from airflow_iceberg.jobs.spark.connect import ConnectServer
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# The settings of a job that means something to a server that runs already.
_SETTINGS = ("conf", "py_files")
_SECRET_BYTES = 32
# A shorter one could be guessed.
_SHORTEST_SECRET = 8
_FERNET_KEY_BYTES = 32
# How long the end of a session may take; a server that lives needs milliseconds.
END_SECONDS = 10


class SparkConnect:
    """Runs a job in a session of a Spark Connect server.

    Args:
        io: access to the table's files, for this process.
        storage: the properties by which the workers reach them; they are encrypted on their way.
        inputs: the same for inputs that have their own, by the inputs' names.
        secret: what the ids of sessions are made with, as of `session_secret`.
        name: the job's name in the log.
    """

    def __init__(
        self,
        connection: Connection,
        config: SparkConfig,
        *,
        io: FileIO,
        storage: Mapping[str, str],
        inputs: Mapping[str, Mapping[str, str]],
        secret: bytes | None,
        name: str,
    ) -> None:
        check_settings(config, str(connection.conn_id))
        self._config = config
        self._io = io
        self._storage = storage
        self._inputs = inputs
        self._name = name
        self._server = server_of(connection)
        self._can_find = secret is not None
        self._secret = secret or secrets.token_bytes(_SECRET_BYTES)
        self._session_id: str | None = None
        self._result: JobResult | None = None
        self._is_logged = False
        self.is_killed = False

    def run(self, plan: JobPlan) -> None:
        """Run the job in a new session, which ends with it; first end what earlier tries have left running."""
        from airflow_iceberg.jobs.spark.connect import connect_mode

        if self._has_ended():
            return
        try:
            with connect_mode(), importable(self._config.py_files):
                self._end_earlier(plan)
                self._run(plan)
        except Exception as error:
            if self._has_ended():
                return  # `run_job` says so; whatever fails in a session that has ended is no news
            if isinstance(error, IcebergError):
                raise
            from airflow_iceberg.jobs.spark.errors import as_iceberg_error

            raise self._server.readable(as_iceberg_error(error)) from None
        except BaseException:  # Airflow's timeout is no Exception, and the job must not outlive it
            self.cancel()
            raise

    def read_result(self, io: FileIO, plan: JobPlan) -> JobResult:
        """Return the result as this process has it: others could have changed the document."""
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """End the session, and with it all that runs in it; may be called again, and before there is one."""
        self.is_killed = True
        session_id = self._session_id
        if session_id is not None:
            # The interrupted code may hold locks of the client: another thread, over a channel of its own.
            thread = threading.Thread(target=self._end, args=(session_id,), name="iceberg-end-session", daemon=True)
            thread.start()
            # Airflow may start the next try as soon as this returns.
            thread.join(END_SECONDS)
        if not self._is_logged:
            self._is_logged = True
            log.warning("job %r: killed; nothing was committed", self._name)

    def explain(self, error: IcebergError) -> IcebergError:
        return error

    def _has_ended(self) -> bool:
        """Whether a signal has ended the job meanwhile."""
        return self.is_killed

    def _run(self, plan: JobPlan) -> None:
        from airflow_iceberg.jobs.spark.connect import close, configure, send
        from airflow_iceberg.jobs.spark.errors import as_iceberg_error
        from airflow_iceberg.jobs.spark.run import run_spark

        # Known before the session is open, so that no signal finds one that it cannot end.
        self._session_id = session_id = session_id_of(plan, plan.staging_location, self._secret)
        session = self._server.open(session_id)
        try:
            if self._has_ended():
                return
            # Enough to find it in the server's UI, and not enough to join it.
            log.info("job %r: session %s… at %s", self._name, session_id.partition("-")[0], self._server.address)
            configure(session, self._config.conf)
            send(session, self._config.py_files)
            self._result = run_spark(
                plan,
                self._io,
                session,
                storage=self._storage,
                inputs=self._inputs,
                as_error=lambda error: self._server.readable(as_iceberg_error(error)),
            )
        finally:
            close(session)

    def _end_earlier(self, plan: JobPlan) -> None:
        """End the sessions that earlier tries of this task may have left for this table.

        Raises:
            StorageError: the staging folders cannot be listed.
            IcebergError: the server does not answer.
        """
        from airflow_iceberg.operations.staging import earlier_tries

        for folder in earlier_tries(self._io, plan):
            if not self._can_find:
                log.info(
                    "job %r: an earlier try may have left a session running (%s), which only the server ends: its id "
                    "is not known without a secret in the catalog's connection, or [core] fernet_key on all workers",
                    self._name,
                    folder,
                )
                continue
            log.info("job %r: ends what an earlier try may have left running (%s)", self._name, folder)
            self._server.end(session_id_of(plan, folder, self._secret))

    def _end(self, session_id: str) -> None:
        try:
            self._server.end(session_id)
        except IcebergError as error:
            log.warning(
                "job %r: its session cannot be ended: %s; the server ends it some minutes after this process has ended",
                self._name,
                error,
            )


def session_id_of(plan: JobPlan, staging_location: str, secret: bytes) -> str:
    """Return the id of the session of a job of this plan's table, by the job's staging folder."""
    digest = hmac.digest(secret, f"{plan.table_uuid}\n{staging_location}".encode(), "sha256")
    return str(uuid.UUID(bytes=digest[:16], version=4))


def session_secret(properties: Mapping[str, str]) -> bytes | None:
    """Return what makes the ids of this installation's sessions secret; None if nothing here is one.

    It is made of what all workers know and no other user of the server: the secrets of the catalog's connection, who
    knows which reads the same files, and the key by which Airflow encrypts connections.

    Args:
        properties: those of the catalog's connection.
    """
    found = sorted(secret for secret in secrets_of(properties) if len(secret) >= _SHORTEST_SECRET)
    found += _fernet_keys()[-1:]
    digests = b"".join(hashlib.sha256(secret.encode()).digest() for secret in found)
    return hashlib.sha256(b"airflow_iceberg session\n" + digests).digest() if found else None


def _fernet_keys() -> list[str]:
    """Return the keys of `[core] fernet_key`, the newest first; without those that are none.

    Where no worker has one, Airflow's SDK gives the name of a placeholder.
    """
    from airflow.providers.common.compat.sdk import conf

    return [key for key in str(conf.get("core", "fernet_key", fallback="") or "").split(",") if _is_key(key)]


def _is_key(text: str) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text)) == _FERNET_KEY_BYTES
    except ValueError:
        return False


def server_of(connection: Connection) -> ConnectServer:
    """Return the server of a connection.

    Raises:
        InvalidInputError: a field of the connection is wrong.
        NotFoundError: the client of Spark Connect is not installed.
    """
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    from airflow_iceberg.jobs.spark.connect import ConnectServer

    name = f"spark_connect connection {connection.conn_id!r}"
    if not connection.host:
        raise InvalidInputError(f"{name} has no host; set it to that of the Spark Connect server, and the port to its")
    try:
        url = SparkConnectHook(str(connection.conn_id)).get_connection_url()
    except ValueError:
        # Its message may have all that the host field holds.
        raise InvalidInputError(
            f"the host of {name} has a path; expected a host, or sc://host; the token is the connection's password, "
            f"and the user its login"
        ) from None
    token = connection.password or ""
    for parameter, value in (("user_id", connection.login or ""), ("token", token)):
        # The hook leaves slashes as they are, and Spark would take what is before one for a path.
        url = url.replace(f"{parameter}={quote(value)}", f"{parameter}={quote(value, safe='')}")
    hidden = {token, quote(token), quote(token, safe=""), *secrets_of({"url": url})} - {""}
    return ConnectServer(name=name, url=url, secrets=tuple(hidden))


def check_settings(config: SparkConfig, conn_id: str) -> None:
    """Raise InvalidInputError for settings of a driver that is to be started: a server has its own."""
    unset = SparkConfig()
    given = [item.name for item in fields(SparkConfig) if getattr(config, item.name) != getattr(unset, item.name)]
    wrong = [name for name in given if name not in _SETTINGS and getattr(config, name) not in ((), [], {})]
    if wrong:
        raise InvalidInputError(
            f"spark_config sets {', '.join(wrong)}, and connection {conn_id!r} is of type spark_connect, whose server "
            f"runs already with its own memory, executors and environment; leave it out, set it where the server is "
            f"started, or use a connection of type spark"
        )


@contextlib.contextmanager
def importable(py_files: Sequence[str]) -> Iterator[None]:
    """Let this process import Python files and zips, as spark-submit does for a driver."""
    places = [os.path.dirname(path) if path.endswith(".py") else path for path in map(os.path.abspath, py_files)]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            with contextlib.suppress(ValueError):
                sys.path.remove(place)
