"""The hook of Apache Paimon tables: from an Airflow connection to tables, whose metadata is read without Paimon.

Importing this module is cheap; a store's client is imported when the store is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_iceberg.catalogs.names import check_names, join_levels, split_levels
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.connection import PAGE_FIELDS, extra_of, properties_of, read_config, read_config_async
from airflow_iceberg.redaction import secrets_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_iceberg.hooks.diagnosis import Diagnosis, Step
    from airflow_iceberg.paimon.table import PaimonTable
    from airflow_iceberg.storage import FileIO

MAIN_BRANCH = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonConfig:
    """The location of tables, and the properties of their store.

    Attributes:
        conn_id: the id of the connection, for the errors.
        warehouse: the location of databases, `<warehouse>/<database>.db/<table>`; None for a connection to one table.
        path: the location of the one table; None for a connection to a warehouse.
        properties: the properties of the store, with PyIceberg's names. They may contain secrets, and so may the
            locations: neither are shown.
        conn_type: the type of the connection.
        pages: the addresses of the pages of tables and snapshots, with placeholders, by the fields of the extra.
        iceberg_conn_id: the connection of the catalog in which Paimon's tables are Iceberg tables, too, if it is known.
    """

    conn_id: str
    warehouse: str | None = field(repr=False)
    path: str | None = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    conn_type: str = ""
    pages: Mapping[str, str] = field(repr=False, default_factory=dict)
    iceberg_conn_id: str | None = None

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any] | None = None) -> PaimonConfig:
        """See `Config`."""
        conn_id = connection.conn_id or ""
        properties = properties_of(extra_of(connection, extra), conn_id)
        warehouse = _location(properties.pop("warehouse", None) or (connection.host or "").strip())
        path = _location(properties.pop("path", None))
        pages = {name: properties.pop(name) for name in PAGE_FIELDS if name in properties}
        mirror = properties.pop("iceberg-conn-id", None)
        if any(name.startswith("hdfs.") for name in properties):  # its credentials are for the hosts that these name
            properties |= {name: text for name, text in (("warehouse", warehouse), ("path", path)) if text}
        return cls(
            conn_id=conn_id,
            warehouse=warehouse,
            path=path,
            properties=properties,
            conn_type=connection.conn_type or "",
            pages=pages,
            iceberg_conn_id=mirror,
        )

    def location(self, table: str | None = None) -> str:
        """Return the location of a table.

        Args:
            table: `database.table`, or a location; None for the table of the connection.
        Raises:
            InvalidInputError: the name is wrong, or the connection has no warehouse or path for it.
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
        database, name = (*_names(table), "")[:2]
        if not (database and name) or "$" in name:
            raise InvalidInputError(
                f"unexpected table {table!r} (expected 'database.table' or a location); a branch is named by branch="
            )
        check_names((database, name), may_have_ref=False)
        if self.warehouse is None:
            raise InvalidInputError(
                f"table {table!r} is named without its location, and connection {self.conn_id!r} has no warehouse"
            )
        return f"{self.warehouse}/{database}.db/{name}"

    def name_of(self, table: str | None = None) -> str | None:
        """Return database and name of a table, `db.orders`; None if its location does not tell them."""
        if table and "/" not in table:
            return join_levels(_names(table))
        *_, database, name = ["", "", *self.location(table).split("/")]
        return join_levels((database.removesuffix(".db"), name)) if database.endswith(".db") and name else None

    def gated(self, location: str, io: FileIO) -> FileIO:
        """Return access to the files of a table, and to those that `allowed-locations` adds."""
        from airflow_iceberg.storage.trust import Trust

        return Trust.of({**self.properties, "warehouse": self.warehouse}).gate(location, is_root=True).around(io)

    def secrets(self) -> list[str]:
        """See `Config`."""
        return secrets_of({**self.properties, **self.pages, "warehouse": self.warehouse or "", "path": self.path or ""})


def _names(table: str) -> tuple[str, ...]:
    """Return database and name of a table; further dots are part of the name, also without backticks."""
    database, *rest = split_levels(table)
    return (database, ".".join(rest)) if rest else (database,)


class PaimonHook(BaseHook):
    """Opens Paimon tables to inspect their metadata.

    Args:
        paimon_conn_id: the id of a connection of type `paimon`.
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
        return read_config(self, self.paimon_conn_id, "Paimon", self.conn_type, PaimonConfig)

    @cached_property
    def io(self) -> FileIO:
        """The store, opened once."""
        from airflow_iceberg.storage import load_file_io

        return load_file_io(self.config.properties)

    def get_conn(self) -> FileIO:
        """Return the store."""
        return self.io

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the fields of the connection's form to Airflow 3.1; later versions read `get_provider_info`."""
        from airflow_iceberg.hooks.form import form_widgets

        return form_widgets(cls.conn_type)

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the labels of the fields that all connections have, to Airflow 3.1."""
        from airflow_iceberg.hooks.form import field_behaviour

        return field_behaviour(cls.conn_type)

    def get_table(self, table: str | None = None, *, branch: str = MAIN_BRANCH) -> PaimonTable:
        """Open a table: its snapshots, schemas, tags, branches and files; `table.inspect` gives them as Arrow tables.

        Args:
            table: `database.table`, or a location; None for the table of the connection.
            branch: the branch that is read.
        Raises:
            NotFoundError: there is no such table, or no such branch of it.
        """
        from airflow_iceberg.paimon.table import PaimonTable

        location = self.config.location(table)
        return PaimonTable.load(location, self.config.gated(location, self.io), branch=branch)

    def test_connection(self) -> tuple[bool, str]:
        """Test each step from the connection to the table or the warehouse, up to the first that fails.

        Returns:
            Whether all steps worked, and the text that the button "Test" shows.
        """
        from airflow_iceberg.hooks.diagnosis import diagnose

        return diagnose(self._steps, lambda: "the connection")

    def _steps(self, diagnosis: Diagnosis) -> Iterator[Step]:
        from airflow_iceberg.hooks.diagnosis import Step, list_warehouse, network_steps
        from airflow_iceberg.hooks.field_names import cautions_of

        def read_the_connection() -> None:
            config, diagnosis.secrets = self.config, self.config.secrets()
            diagnosis.cautions += cautions_of(config.properties, config.conn_type, (self.conn_type,))
            if self.config.path is None and self.config.warehouse is None:
                raise InvalidInputError("it has neither a warehouse nor a path; set one of them")

        def open_the_table() -> str:
            latest = self.get_table().latest_snapshot_id()
            return "it has no snapshot yet" if latest is None else f"its latest snapshot is {latest}"

        yield Step(what="read the connection", run=read_the_connection, waits=False)
        yield from network_steps(self.config.properties)
        if self.config.path is not None:
            yield Step(what=f"open the table at {self.config.path}", run=open_the_table)
        else:
            warehouse = self.config.warehouse or ""
            yield Step(
                what=f"list the warehouse {warehouse}",
                run=lambda: list_warehouse(self.io, warehouse, diagnosis.cautions),
            )


async def load_config_async(paimon_conn_id: str) -> PaimonConfig:
    """Read a connection from a trigger without blocking the triggerer's event loop."""
    return await read_config_async(paimon_conn_id, "Paimon", PaimonHook.conn_type, PaimonConfig)


def _location(text: str | None) -> str | None:
    return text.rstrip("/") if text else None
