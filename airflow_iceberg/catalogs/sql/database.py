"""The database of a SQL catalog: its address, transactions, and the meaning of each failure.

Here: SQLAlchemy, drivers and dialects. Not here: its two tables (`sql.tables`), and the meaning of their rows
(`sql.catalog`).

If a failure comes before a statement was sent, nothing was changed (`StorageError`). If the connection is lost later,
the outcome is unknown (`CommitUnknownError`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    StorageError,
    advised,
    missing_package,
)
from airflow_iceberg.redaction import replaced, secrets_of

log = logging.getLogger(__name__)

_BUSY_TIMEOUT_S = 60
_CONNECT_TIMEOUT_S = 30
_WRITES = "airflow_iceberg_writes"

# (driver, module to import) by preference, and the requirement to install without any of them.
_MYSQL_DRIVERS = ((("pymysql", "pymysql"), ("mysqldb", "MySQLdb")), "pymysql")
_DRIVERS: Mapping[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "postgresql": ((("psycopg2", "psycopg2"), ("psycopg", "psycopg")), "airflow-iceberg[postgres]"),
    "mysql": _MYSQL_DRIVERS,
    "mariadb": _MYSQL_DRIVERS,
}
# Settings of PostgreSQL's JDBC driver, with libpq's names for them.
_JDBC_SETTINGS = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    **{name: name for name in ("options", "sslmode", "sslcert", "sslkey", "sslrootcert")},
}
# The database rolled the transaction back because of another one: PostgreSQL's states, MySQL's numbers.
_LOST_TO_ANOTHER = {"40001", "40P01", 1213}
# No retry gives a login, a permission or a database: PostgreSQL's states, MySQL's numbers.
_REFUSED = {"28000", "28P01", "3D000", "42501", "1044", "1045", "1049", "1142"}
_SQLITE_CANNOT_OPEN = 14
_SQLITE_ADVICE = {
    3: "let the user of this process read and write the file, and its folder",
    8: "let the user of this process write to the file, and to its folder",
    11: "the file is damaged: restore it from a backup",
    26: "the file is something else: correct the uri",
}


def _give_back(connection: Connection) -> None:
    """Close a connection; if it is lost only now, its answers are complete, and it is not used again."""
    try:
        connection.close()
    except SQLAlchemyError:
        with suppress(SQLAlchemyError):
            connection.invalidate()
            connection.close()


class Database:
    """Transactions on the catalog's database. Connects on first use; a forked child makes connections of its own.

    Args:
        properties: `uri` in SQLAlchemy's or JDBC's form, `user` and `password` (also as `jdbc.user` …).
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self.url = parse_url(catalog, properties)
        self._engine: Engine | None = None
        self._pid = 0

    @property
    def ignores_case(self) -> bool:
        """Whether comparisons may ignore case and trailing blanks."""
        return self.url.get_backend_name() in ("mysql", "mariadb")

    def __str__(self) -> str:
        """Return the database's name and host, without user and password."""
        url = self.url
        if url.get_backend_name() == "sqlite":
            return f"sqlite database {url.database or ':memory:'}"
        host = url.host or "the local host"
        return f"{url.get_backend_name()} database {url.database or ''} on {host}{f':{url.port}' if url.port else ''}"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection for queries."""
        with self._connect(writes=False) as connection:
            try:
                yield connection
            except DBAPIError as error:
                raise self._failed("query", error) from _chain(error, self.url)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction; it is committed at the end of the block, and rolled back if the block raises.

        Raises:
            CommitConflictError: the database rolled it back because of another transaction.
            StorageError: it failed and surely nothing was changed.
            CommitUnknownError: the connection was lost after something was sent.
        """
        with self._connect(writes=True) as connection:
            transaction = self._begin(connection)
            try:
                yield connection
            except DBAPIError as error:
                with suppress(SQLAlchemyError):
                    transaction.rollback()
                raise self._failed_write(error, is_sure=not error.connection_invalidated) from _chain(error, self.url)
            except BaseException:
                with suppress(SQLAlchemyError):
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                # SQLite answers "busy" before it has written anything; after every other failure of a commit the
                # outcome is unknown.
                raise self._failed_write(error, is_sure=_is_busy(error)) from _chain(error, self.url)

    def is_missing_file(self) -> bool:
        """Tell whether the database is a file that does not exist, in a folder that does."""
        path = self._file
        return bool(path) and not os.path.exists(path) and os.path.isdir(os.path.dirname(os.path.abspath(path)))

    def make_file(self) -> None:
        """Create the file of a database that does not exist; connecting to it does not."""
        if self.is_missing_file():
            with suppress(OSError):  # connecting says what is wrong
                os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o644))

    @property
    def _file(self) -> str:
        """The path of the database, "" for one of a server, in memory, or that SQLite itself finds by a URI."""
        path = self.url.database or ""
        is_path = self.url.get_backend_name() == "sqlite" and not path.startswith((":memory:", "file:"))
        return path if is_path else ""

    def column_names(self, table: str) -> frozenset[str] | None:
        """Return the names of a table's columns in lower case, or None if there is no such table."""
        with self.read() as connection:
            inspector = sqlalchemy.inspect(connection)
            if not inspector.has_table(table):
                return None
            return frozenset(column["name"].lower() for column in inspector.get_columns(table))

    @contextmanager
    def _connect(self, *, writes: bool) -> Iterator[Connection]:
        try:
            connection = self._usable_engine().connect()
        except SQLAlchemyError as error:
            raise self._failed("connect to", error) from _chain(error, self.url)
        try:
            yield connection.execution_options(**{_WRITES: writes})
        finally:
            _give_back(connection)

    def _begin(self, connection: Connection) -> Any:
        try:
            return connection.begin()
        except DBAPIError as error:
            raise self._failed("begin a transaction in", error) from _chain(error, self.url)

    def _usable_engine(self) -> Engine:
        if self._engine is None or self._pid != os.getpid():
            # A connection must not be used by two processes: a forked child does not close its parent's.
            if self._engine is not None:
                self._engine.dispose(close=False)
            self._engine, self._pid = _new_engine(self.url), os.getpid()
        return self._engine

    def _failed_write(self, error: DBAPIError, *, is_sure: bool) -> Exception:
        if _code(error) in _LOST_TO_ANOTHER:
            return CommitConflictError(
                f"the {self} undid the change of catalog {self._catalog} for another transaction"
            )
        if is_sure:
            return self._failed("write to", error)
        return CommitUnknownError(
            f"lost the {self} while a change of catalog {self._catalog} was sent: it may have been applied or not "
            f"({self._reason(error)})"
        )

    def _failed(self, verb: str, error: SQLAlchemyError) -> StorageError:
        failed = StorageError(f"catalog {self._catalog} cannot {verb} the {self}: {self._reason(error)}")
        to_do = self._advice(error)
        failed.is_denied = to_do is not None
        busy = "another process holds its lock for too long, wait for it"
        return advised(failed, to_do or (busy if _is_busy(error) else "check that it is up and the access to it"))

    def _advice(self, error: SQLAlchemyError) -> str | None:
        """Return what to do about an error that no retry can mend."""
        if isinstance(error, DBAPIError) and str(_code(error)) in _REFUSED:
            return "check the database in the uri, its user, and what that user may do"
        number = _sqlite_number(error)
        if number == _SQLITE_CANNOT_OPEN and self._file:
            folder = os.path.dirname(os.path.abspath(self._file))
            is_there = os.path.isdir(folder)
            return None if is_there else f"its folder {folder} does not exist: correct the uri, or create the folder"
        return _SQLITE_ADVICE.get(number)

    def _reason(self, error: SQLAlchemyError) -> str:
        original = getattr(error, "orig", None) or error
        first_line = str(original).strip().partition("\n")[0] or type(original).__name__
        return _without_password(first_line, self.url)


def parse_url(catalog: str, properties: Mapping[str, str]) -> URL:
    """Return SQLAlchemy's URL of a catalog's `uri`, which may be in JDBC's form, with a driver that is installed."""
    text = properties.get("uri", "").strip()
    if not text:
        raise InvalidInputError(
            f"catalog {catalog}: property 'uri' is missing, expected for example sqlite:////tmp/catalog.db"
        )
    try:
        url = _from_jdbc(text) if text.lower().startswith("jdbc:") else make_url(text)
        kind, plus, driver = url.drivername.partition("+")
        url = url.set(drivername=f"postgresql{plus}{driver}" if kind == "postgres" else url.drivername)
        url = _with_login(url, properties)
        url = _with_driver(catalog, url)
        url.get_dialect()
    except InvalidInputError:
        raise
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Not chained: the text in the cause may hold the password.
        raise InvalidInputError(
            f"catalog {catalog}: its uri is not understood, expected sqlite:////path, postgresql://host/database or "
            "one that starts with jdbc:"
        ) from None
    return url


def _from_jdbc(text: str) -> URL:
    kind, _, rest = text[len("jdbc:") :].partition(":")
    if kind.lower() == "sqlite":
        path = rest.partition("?")[0].removeprefix("file:")
        return URL.create("sqlite", database=path or ":memory:")
    url = make_url(f"{kind.lower()}:{rest if rest.startswith('//') else f'///{rest}'}")
    given = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
    user, password, schema = (given.pop(key, None) for key in ("user", "password", "currentSchema"))
    # A setting must not be ignored silently: it may turn encryption on.
    if unknown := sorted(set(given) - set(_JDBC_SETTINGS)):
        raise InvalidInputError(f"setting '{unknown[0]}' of a JDBC uri is unknown, write it as for SQLAlchemy")
    query = {_JDBC_SETTINGS[key]: value for key, value in given.items()}
    if schema is not None:
        query["options"] = f"-csearch_path={schema}"
    return url.set(query=query, username=url.username or user, password=url.password or password)


def _with_login(url: URL, properties: Mapping[str, str]) -> URL:
    if url.get_backend_name() == "sqlite":
        return url
    user = properties.get("user") or properties.get("jdbc.user")
    password = properties.get("password") or properties.get("jdbc.password")
    url = url.set(username=user) if user and not url.username else url
    return url.set(password=password) if password and not url.password else url


def _with_driver(catalog: str, url: URL) -> URL:
    if url.drivername not in _DRIVERS:
        return url  # SQLite, or the driver is named
    drivers, requirement = _DRIVERS[url.drivername]
    for driver, module in drivers:
        if find_spec(module):
            return url.set(drivername=f"{url.drivername}+{driver}")
    raise missing_package(f"catalog {catalog}: no driver for {url.drivername} is installed", requirement)


def _new_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _new_sqlite_engine(url)
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql" and "connect_timeout" not in url.query:
        arguments["connect_timeout"] = _CONNECT_TIMEOUT_S
    try:
        return sqlalchemy.create_engine(
            url, pool_pre_ping=True, pool_size=1, hide_parameters=True, connect_args=arguments
        )
    except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
        what = f"there is no driver for database {url.drivername!r} in this environment: {error}"
        raise missing_package(what, "airflow-iceberg[postgres,mysql]") from error


def _new_sqlite_engine(url: URL) -> Engine:
    """Return an engine whose writing transactions take SQLite's write lock at once.

    A transaction that reads first and writes later fails with "locked" at once if another writer wrote in between; one
    that starts with BEGIN IMMEDIATE waits for its turn.
    """
    arguments: dict[str, Any] = {"check_same_thread": False}
    if "timeout" not in url.query:
        arguments["timeout"] = _BUSY_TIMEOUT_S
    pool: dict[str, Any] = {"poolclass": sqlalchemy.pool.NullPool}
    if not url.database or url.database == ":memory:":
        # The database exists as long as its only connection, which one thread at a time may use.
        pool = {"poolclass": sqlalchemy.pool.QueuePool, "pool_size": 1, "max_overflow": 0}
    engine = sqlalchemy.create_engine(url, hide_parameters=True, connect_args=arguments, **pool)

    def leave_transactions_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    def open_what_exists(_: Any, __: Any, places: list[Any], options: dict[str, Any]) -> None:
        # Who only looks must not leave an empty file where the name of the database is mistyped.
        places[0], options["uri"] = f"file:{quote(places[0])}?mode=rw", True

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")

    if url.database and not url.database.startswith((":memory:", "file:")):
        sqlalchemy.event.listen(engine, "do_connect", open_what_exists)
    sqlalchemy.event.listen(engine, "connect", leave_transactions_to_us)
    sqlalchemy.event.listen(engine, "begin", begin)
    return engine


def _code(error: DBAPIError) -> object:
    original = error.orig
    for attribute in ("sqlstate", "pgcode"):
        if (code := getattr(original, attribute, None)) is not None:
            return code
    return original.args[0] if original is not None and original.args else None


def _sqlite_number(error: SQLAlchemyError) -> int:
    """Return SQLite's number of an error, for its extended codes, too; -1 for other databases."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


def _is_busy(error: SQLAlchemyError) -> bool:
    return _sqlite_number(error) in (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED


def _without_password(text: str, url: URL) -> str:
    return replaced(text, secrets_of({"uri": url.render_as_string(hide_password=False)}))


def _chain(error: SQLAlchemyError, url: URL) -> BaseException | None:
    """Return the error as a cause, unless its text would show the password."""
    text = f"{error}{getattr(error, 'orig', '')!r}"
    return error if _without_password(text, url) == text else None
