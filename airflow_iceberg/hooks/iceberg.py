"""From an Airflow connection to a catalog and its tables.

Here: how the fields of a connection become the properties of a catalog, the hook, and the test behind the button
"Test". Not here: what a catalog does (`catalogs`), what a table does (`table`), and what an error means to Airflow
(`failures`). Importing this module is cheap; a catalog's client is loaded when the catalog is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_iceberg.hooks.connection import CatalogConfig, existing, mask_async

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.catalogs.base import Catalog
    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.table import Table


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
        from airflow.sdk.log import mask_secret

        with existing(self.iceberg_conn_id, "catalog", self.conn_type):
            connection = self.get_connection(self.iceberg_conn_id)
        config = CatalogConfig.from_connection(connection)
        for secret in config.secrets():
            mask_secret(secret)
        return config

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, opened once."""
        from airflow_iceberg.catalogs.load import load_catalog

        return load_catalog(self.config.name, **self.config.properties)

    def get_conn(self) -> Catalog:
        """Return the catalog."""
        return self.catalog

    def load_table(self, name: str) -> Table:
        """Load a table by namespace and name, `sales.orders`.

        Raises:
            NotFoundError: there is no such table.
        """
        from airflow_iceberg.table import Table

        return Table.load(self.catalog, name)

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
        """Create a table; see `Table.create`."""
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
        """Walk from the connection to the warehouse and name the first step that fails.

        Returns:
            Whether all steps worked, and a text for the person who pressed "Test".
        """
        from airflow_iceberg.hooks.diagnosis import Diagnosis, Step, catalog_steps, network_steps

        def read_the_connection() -> None:
            diagnosis.secrets = self.config.secrets()

        def open_the_catalog() -> None:
            _ = self.catalog

        diagnosis = Diagnosis()
        failed = (
            diagnosis.follow(iter([Step(what="read the connection", run=read_the_connection)]))
            or diagnosis.follow(network_steps(self.config.properties))
            or diagnosis.follow(iter([Step(what="open the catalog", run=open_the_catalog)]))
            or diagnosis.follow(catalog_steps(self.catalog, diagnosis.cautions))
        )
        if failed:
            return False, failed
        kind = self.config.properties.get("type", "guessed from its uri")
        return True, diagnosis.report(f"catalog {self.config.name!r} (type {kind})")


async def load_catalog_async(iceberg_conn_id: str) -> Catalog:
    """Open a connection's catalog from a trigger without blocking the triggerer's event loop.

    Secrets are masked asynchronously too: a synchronous call to the supervisor from the event loop can deadlock.
    """
    import asyncio

    from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson

    with existing(iceberg_conn_id, "catalog", IcebergHook.conn_type):
        connection = await get_async_connection(iceberg_conn_id)
    config = CatalogConfig.from_connection(connection, await get_async_extra_dejson(connection))
    await mask_async(config.secrets())

    def load() -> Catalog:
        from airflow_iceberg.catalogs.load import load_catalog

        return load_catalog(config.name, **config.properties)

    return await asyncio.to_thread(load)
