"""Sessions on a Spark Connect server: each under an id that is known before it is opened, so that others can end it.

Needs the client of Spark Connect alone, no Java. Not here: what runs in a session (`jobs.spark.run`), which ids it gets
and when it ends (`airflow_iceberg.backends.connect`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs.spark.errors import grpc_error, text_of
from airflow_iceberg.redaction import replaced, without_secrets

FIRST_VERSION = 4
# pyspark's own patience is for a server that disappears while a job runs: more than ten minutes.
_OPENING: Mapping[str, Any] = {"max_retries": 3, "initial_backoff": 200, "backoff_multiplier": 3.0}
# How long the end of a session may take; a server that lives needs milliseconds.
END_SECONDS = 30.0
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_mode_lock = threading.Lock()
_mode_users: list[str | None] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectServer:
    """A Spark Connect server.

    Attributes:
        name: what messages call the connection to it.
        url: the address, `sc://host:port/;user_id=…;token=…`.
        secrets: the texts in the address that no message may show.
    Raises:
        NotFoundError: the client of Spark Connect is not installed.
        InvalidInputError: the address is none.
    """

    name: str
    url: str = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        try:
            from pyspark.errors import PySparkValueError
            from pyspark.sql.connect.client import DefaultChannelBuilder
        except ImportError as error:
            raise NotFoundError(
                f"{self.name} needs the client of Spark Connect, which cannot be imported: {error}; install "
                f"pyspark-client in the Python of the Airflow workers"
            ) from error
        try:
            DefaultChannelBuilder(self.url)
        except (PySparkValueError, ValueError):
            # Its message has the address, and so the token.
            raise InvalidInputError(
                f"the host of {self.name} is no address of Spark Connect; expected a host, or sc://host, and the port "
                f"in its own field"
            ) from None

    @property
    def address(self) -> str:
        """Host and port."""
        return str(self._channel_builder().endpoint)

    def open(self, session_id: str) -> Any:
        """Return a new session, never one of another task.

        Args:
            session_id: a UUID that the server has not seen.
        Raises:
            IcebergError: the server does not answer; a later try may find it.
            InvalidInputError: it does not accept the token.
            UnsupportedError: it runs a version of Spark that is too old.
        """
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.channelBuilder(self._channel_builder(session_id)).create()
        patience = session.client.get_retry_policies()
        session.client.set_retry_policies([DefaultPolicy(**_OPENING)])
        try:
            check_version(str(session.version), self.name)
        except IcebergError:
            close(session)
            raise
        except Exception as error:  # noqa: BLE001 - what Connect raises here depends on its version
            close(session)
            raise self._not_opened(error) from None
        session.client.set_retry_policies(patience)
        return session

    def end(self, session_id: str) -> None:
        """End a session with all that runs in it, opened by this process or another; nothing if there is none.

        It has a channel of its own: the session's may be in use by the code that a signal has interrupted. A request
        whose answer is lost is repeated.

        Raises:
            IcebergError: the server does not answer, or not in time.
        """
        errors: list[IcebergError] = []

        def release() -> None:
            try:
                self._release(session_id)
            except IcebergError as error:
                errors.append(error)

        # The client knows no time limit for this request: one that gets no answer at all would wait for ever.
        thread = threading.Thread(target=release, name="iceberg-release-session", daemon=True)
        thread.start()
        thread.join(END_SECONDS)
        if thread.is_alive():
            raise IcebergError(
                f"Spark Connect at {self.address} does not answer ({self.name}): a session was not ended after "
                f"{END_SECONDS:.0f} s; check that the server runs"
            )
        if errors:
            raise errors[0]

    def _release(self, session_id: str) -> None:
        from pyspark.sql.connect.client import SparkConnectClient
        from pyspark.sql.connect.client.retries import DefaultPolicy

        client = SparkConnectClient(self._channel_builder(session_id))
        client.set_retry_policies([DefaultPolicy(**_OPENING)])
        try:
            client.release_session()
        except Exception as error:  # noqa: BLE001 - what Connect raises here depends on its version
            raise self._not_opened(error) from None
        finally:
            client.close()

    def readable(self, error: Exception) -> Exception:
        """Return an error without the secrets of the address."""
        text = str(error)
        shown = replaced(text, self.secrets)
        if shown == text:
            return error
        return type(error)(shown) if isinstance(error, IcebergError) else IcebergError(shown)

    def _channel_builder(self, session_id: str | None = None) -> Any:
        from pyspark.sql.connect.client import DefaultChannelBuilder

        builder = DefaultChannelBuilder(self.url)
        builder.set("user_agent", "airflow_iceberg")
        if session_id is not None:
            builder.set("session_id", session_id)
        return builder

    def _not_opened(self, error: Exception) -> IcebergError:
        code, details = grpc_error(error)
        why = without_secrets(replaced(details or text_of(error), self.secrets))
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            return InvalidInputError(
                f"Spark Connect at {self.address} does not accept the token of {self.name}: {why}; set the "
                f"connection's password to a token of this server"
            )
        if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            return IcebergError(
                f"Spark Connect at {self.address} does not answer ({self.name}): {why}; check host and port of the "
                f"connection and that the server runs; a connection with a token, unless it is to localhost, or with "
                f"use_ssl needs a server with TLS"
            )
        return IcebergError(f"Spark Connect at {self.address} has opened no session for {self.name}: {why}")


def check_version(version: str, name: str) -> None:
    """Raise UnsupportedError for a server whose Spark is too old."""
    if int(version.split(".", 1)[0]) < FIRST_VERSION:
        raise UnsupportedError(
            f"the server of {name} runs Spark {version}; expected {FIRST_VERSION}.0 or later with Spark Connect; use a "
            f"connection of type spark for this cluster"
        )


def configure(session: Any, conf: Mapping[str, str]) -> None:
    """Set the runtime settings of a session.

    Raises:
        InvalidInputError: a setting that only the start of the server can make.
    """
    for name, value in conf.items():
        try:
            session.conf.set(name, str(value))
        except Exception as error:  # noqa: BLE001 - what Connect raises here depends on its version
            why = replaced(text_of(error), [str(value)])
            raise InvalidInputError(
                f"spark_config sets {name!r} in conf, which is no setting of a session of Spark Connect: {why}; make "
                f"it where the server is started, or leave it out"
            ) from None


def send(session: Any, py_files: Sequence[str]) -> None:
    """Send Python files and zips to the workers.

    Raises:
        InvalidInputError: a file does not exist, or is not one of Python.
    """
    for path in py_files:
        try:
            session.addArtifacts(path, pyfile=True)
        except Exception as error:
            raise InvalidInputError(
                f"cannot send {path!r} of py_files by Spark Connect: {text_of(error)}; expected a .py, .zip, .egg or "
                f".jar file on this machine"
            ) from error


def close(session: Any) -> None:
    """End a session, without patience for a server that does not answer; never raises."""
    session.client.set_retry_policies([])
    session.stop()


@contextlib.contextmanager
def connect_mode() -> Iterator[None]:
    """Let `pyspark.sql.functions` make columns for Spark Connect, also beside a whole pyspark.

    pyspark asks a variable of the process for that, which `builder.remote` sets and never takes back. Here it ends with
    the last job: a spark-submit that is started later would inherit it.
    """
    with _mode_lock:
        _mode_users.append(os.environ.get(_MODE))
        os.environ[_MODE] = "1"
    try:
        yield
    finally:
        with _mode_lock:
            if len(_mode_users) > 1:
                _mode_users.pop()
            elif (before := _mode_users.pop()) is None:
                os.environ.pop(_MODE, None)
            else:
                os.environ[_MODE] = before
