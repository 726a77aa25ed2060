"""From an Airflow connection to Apache Paimon tables, whose metadata is read without Paimon.

Here: what the fields of a connection of type `paimon` mean, the hook, and the test behind the button "Test". Not here:
what a table holds (`paimon.table`, `paimon.inspection`) and waiting for it (`paimon_sensors`, `paimon_triggers`).
Importing this module is cheap; a store's client is loaded when the store is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.hooks import (
    PROPERTIES_KEY,
    CatalogConfig,
    mask_async,
    nested_properties,
    plain_text,
    text_properties,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.paimon.table import PaimonTable
    from airflow_iceberg.storage import FileIO

MAIN_BRANCH = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonConfig:
    """Where tables are, and what it takes to get there.

    Attributes:
        conn_id: of the connection, for the errors.
        warehouse: location of databases, `<warehouse>/<database>.db/<table>`; None for a connection to one table.
        path: location of the one table; None for a connection to a warehouse.
        properties: of the store, under PyIceberg's names; secrets included, hence not shown. A location may have a
            password, too.
    """

    conn_id: str
    warehouse: str | None = field(repr=False)
    path: str | None = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any] | None = None) -> PaimonConfig:
        """Read a connection of type `paimon`.

        Args:
            extra: the connection's extra where the caller has it already (in a trigger it is read asynchronously).
        Raises:
            InvalidInputError: the extra's `properties` are not a JSON object.
        """
        found = dict(connection.extra_dejson if extra is None else extra)
        conn_id = connection.conn_id or ""
        properties = {**nested_properties(found.pop(PROPERTIES_KEY, None), conn_id), **text_properties(found)}
        host = (connection.host or "").strip()
        return cls(
            conn_id=conn_id,
            warehouse=_location(properties.pop("warehouse", None) or host),
            path=_location(properties.pop("path", None)),
            properties=properties,
        )

    def location(self, table: str | None = None) -> str:
        """Return the location of a table.

        Args:
            table: `database.table`, or a location of its own; None for the table of the connection.
        Raises:
            InvalidInputError: the connection does not lead there.
        """
        if not table:
            if self.path is None:
                raise InvalidInputError(
                    f"no table is named, and connection {self.conn_id!r} has no path: name it as 'database.table' "
                    f"or by its location, or set the connection's path"
                )
            return self.path
        if "/" in table:
            return table.rstrip("/")
        database, dot, name = table.partition(".")
        if not (dot and database and name) or "$" in name:
            raise InvalidInputError(
                f"unexpected table {table!r} (expected 'database.table' or a location); a branch is named by branch="
            )
        if self.warehouse is None:
            raise InvalidInputError(
                f"table {table!r} is named without its location, and connection {self.conn_id!r} has no warehouse"
            )
        return f"{self.warehouse}/{database}.db/{name}"

    def secrets(self) -> list[str]:
        """Return every text that no log may show."""
        locations = {"warehouse": self.warehouse or "", "path": self.path or ""}
        return CatalogConfig(name=self.conn_id, properties={**self.properties, **locations}).secrets()


class PaimonHook(BaseHook):
    """Opens Paimon tables, to look into their metadata.

    Args:
        paimon_conn_id: a connection of type `paimon`.
    """

    conn_name_attr = "paimon_conn_id"
    default_conn_name = "paimon_default"
    conn_type = "paimon"
    hook_name = "Apache Paimon"

    def __init__(self, paimon_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.paimon_conn_id = paimon_conn_id

    @cached_property
    def config(self) -> PaimonConfig:
        """The connection, read once; its secrets are masked in all logs from here on."""
        from airflow.sdk.log import mask_secret

        with _named(self.paimon_conn_id):
            connection = self.get_connection(self.paimon_conn_id)
        config = PaimonConfig.from_connection(connection)
        for secret in config.secrets():
            mask_secret(secret)
        return config

    @cached_property
    def io(self) -> FileIO:
        """Reads the store, opened once."""
        from airflow_iceberg.storage import load_file_io

        return load_file_io(self.config.properties)

    def get_conn(self) -> FileIO:
        """Return what reads the store."""
        return self.io

    def get_table(self, table: str | None = None, *, branch: str = MAIN_BRANCH) -> PaimonTable:
        """Open a table: its snapshots, schemas, tags, branches and files; `table.inspect` gives them as Arrow tables.

        Args:
            table: `database.table`, or a location; None for the table of the connection.
        Raises:
            NotFoundError: there is no such table, or no such branch of it.
        """
        from airflow_iceberg.paimon.table import PaimonTable

        return PaimonTable.load(self.config.location(table), self.io, branch=branch)

    def test_connection(self) -> tuple[bool, str]:
        """Walk from the connection to the table or the warehouse and name the first step that fails.

        Returns:
            Whether all steps worked, and a text for the person who pressed "Test".
        """
        step = "read the connection"
        try:
            config = self.config
            if config.path is not None:
                step = f"open the table at {config.path}"
                table = self.get_table()
                latest = table.latest_snapshot_id()
                return True, f"the table at {table.location} has {_snapshots(latest)}"
            if config.warehouse is None:
                return False, "the connection has neither a warehouse nor a path; one of them says where tables are"
            step = f"look into the warehouse {config.warehouse}"
            is_empty = next(iter(self.io.list(config.warehouse)), None) is None
        except Exception as error:  # noqa: BLE001 - whatever a driver raises is the answer that the person waits for
            return False, f"could not {step}: {plain_text(error)}"
        found = "answers and has no files yet" if is_empty else "answers and has files"
        return True, f"the warehouse {config.warehouse} {found}"


async def load_config_async(paimon_conn_id: str) -> PaimonConfig:
    """Read a connection from a trigger without blocking the triggerer's event loop, and mask its secrets."""
    from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson

    with _named(paimon_conn_id):
        connection = await get_async_connection(paimon_conn_id)
    config = PaimonConfig.from_connection(connection, await get_async_extra_dejson(connection))
    await mask_async(config.secrets())
    return config


@contextmanager
def _named(conn_id: str) -> Iterator[None]:
    """Tell a connection that is not there from a service that does not answer: trying again helps only the second."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        yield
    except AirflowNotFoundException as error:
        raise NotFoundError(
            f"Paimon connection {conn_id!r} does not exist; create it with connection type paimon, or set "
            f"AIRFLOW_CONN_{conn_id.upper()}"
        ) from error


def _location(text: str | None) -> str | None:
    return text.rstrip("/") if text else None


def _snapshots(latest: int | None) -> str:
    return "no snapshot yet" if latest is None else f"snapshot {latest} as its latest"
