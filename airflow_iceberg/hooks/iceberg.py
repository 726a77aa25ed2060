"""The hook of Iceberg catalogs: from an Airflow connection to a catalog and its tables.

Importing this module is cheap; a catalog's client is imported when the catalog is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseHook

from airflow_iceberg.hooks.connection import CatalogConfig, read_config, read_config_async

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context

    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.hooks.diagnosis import Diagnosis, Finding, Step
    from airflow_iceberg.hooks.task_table import TaskTable
    from airflow_iceberg.table import Table

CAUTION = "look at"
"""What a finding is called that is no step, but a thing that a user must look at."""


class IcebergHook(BaseHook):
    """Opens the catalog of an Airflow connection, and its tables.

    Args:
        iceberg_conn_id: the id of a connection of type `iceberg_catalog`; connections of the official provider's type
            `iceberg` also work.
    """

    conn_name_attr = "iceberg_conn_id"
    default_conn_name = "iceberg_catalog_default"
    conn_type = "iceberg_catalog"
    hook_name = "Iceberg Catalog"

    def __init__(self, iceberg_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.iceberg_conn_id = iceberg_conn_id

    @cached_property
    def config(self) -> CatalogConfig:
        """The connection, read once; its secrets are masked in all logs from here on."""
        return read_config(self, self.iceberg_conn_id, "catalog", self.conn_type, CatalogConfig)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, opened once."""
        from airflow_iceberg.catalogs.load import load_catalog
        from airflow_iceberg.hooks.field_names import unread

        self.config.check_type()
        for text in unread([*self.config.properties, *self.config.pages], self.config.conn_type):
            self.log.warning("connection %s: %s", self.iceberg_conn_id, text)
        return load_catalog(self.config.name, **self.config.properties)

    def get_conn(self) -> Catalog:
        """Return the catalog."""
        return self.catalog

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

    def load_table(self, name: str) -> Table:
        """Load a table.

        Args:
            name: namespace and name, `sales.orders`.

        Raises:
            NotFoundError: there is no such table.
        """
        from airflow_iceberg.table import Table

        return Table.load(self.catalog, name)

    def task_table(
        self,
        name: str,
        *,
        context: Context | None = None,
        asset_events: bool = True,
        partition_keys: Literal["path", "value"] = "path",
        write_key: str | int | None = None,
        on_removed: Literal["keep", "remove"] | None = None,
    ) -> TaskTable:
        """Load a table for the function of a task, each of whose writes is committed exactly once.

        A retry finds the writes that an earlier try has committed; after a clear they are replaced, or made once more,
        as by the operators. Each write is told to the table's asset.

        Args:
            name: namespace and name, `sales.orders`.
            context: that of the task; by default that of the task that runs.
            asset_events, partition_keys: as of the operators.
            write_key, on_removed: as of `IcebergAppendOperator`, for all writes of the table that is returned.

        Raises:
            InvalidInputError: no task runs here.
            NotFoundError: there is no such table.
        """
        from airflow_iceberg.hooks.task_table import TaskTable, running_context
        from airflow_iceberg.retries import function_failures

        told = context or running_context()
        with function_failures():
            return TaskTable.bound(
                self.catalog,
                name,
                told,
                iceberg_conn_id=self.iceberg_conn_id,
                asset_events=asset_events,
                partition_keys=partition_keys,
                write_key=write_key,
                on_removed=on_removed,
            )

    def create_table(
        self,
        name: str,
        *,
        schema: Mapping[str, Any] | Schema | pa.Schema,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table.

        Args:
            name: namespace and name, `sales.orders`. The namespace has to exist.
            schema: the columns, as of `IcebergCreateTableOperator`, or an Arrow schema.
            partition_by, sort_by: partition fields such as `day(ts)`, and columns by which new files are sorted.
            properties: the properties of the table.
            location: the location of the table; the catalog's own choice if left out.
            if_not_exists: whether a table of this name is returned as it is, instead of an error.

        Raises:
            AlreadyExistsError: the name is taken.
        """
        from airflow_iceberg.table import Table

        return Table.create(
            self.catalog,
            name,
            schema=schema,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=properties,
            location=location,
            if_not_exists=if_not_exists,
        )

    def test_connection(self) -> tuple[bool, str]:
        """Test each step from the connection to the warehouse, up to the first that fails.

        Returns:
            Whether all steps worked, and the text that the button "Test" shows.
        """
        from airflow_iceberg.hooks.diagnosis import diagnose

        def result() -> str:
            kind = self.config.properties.get("type", "guessed from its uri")
            return f"catalog {self.config.name!r} (type {kind})"

        return diagnose(self._steps, result)

    def findings(self) -> Iterator[Finding]:
        """Test each step as `test_connection` does; yield what each has found, and at last what a user must look at."""
        from airflow_iceberg.hooks.diagnosis import Diagnosis, Finding

        diagnosis = Diagnosis()
        yield from diagnosis.findings(self._steps(diagnosis))
        yield from (Finding(what=CAUTION, text=caution) for caution in diagnosis.cautions)

    def _steps(self, diagnosis: Diagnosis) -> Iterator[Step]:
        from airflow_iceberg.hooks.diagnosis import Step, catalog_steps, network_steps
        from airflow_iceberg.hooks.field_names import cautions_of

        def read_the_connection() -> None:
            config, diagnosis.secrets = self.config, self.config.secrets()
            names = [*config.properties, *config.pages]
            diagnosis.cautions += cautions_of(names, config.conn_type, (self.conn_type, "iceberg"))

        def open_the_catalog() -> None:
            _ = self.catalog

        yield Step(what="read the connection", run=read_the_connection, waits=False)
        yield from network_steps(self.config.properties)
        yield Step(what="open the catalog", run=open_the_catalog)
        yield from catalog_steps(self.catalog, diagnosis.cautions)


async def load_catalog_async(
    iceberg_conn_id: str, run: Callable[[Callable[[], Catalog]], Awaitable[Catalog]] | None = None
) -> Catalog:
    """Open a connection's catalog from a trigger without blocking the triggerer's event loop.

    Args:
        run: calls a function in a thread.
    """
    import asyncio

    config = await read_config_async(iceberg_conn_id, "catalog", IcebergHook.conn_type, CatalogConfig)

    def load() -> Catalog:
        from airflow_iceberg.catalogs.load import load_catalog

        config.check_type()
        return load_catalog(config.name, **config.properties)

    return await (asyncio.to_thread(load) if run is None else run(load))
