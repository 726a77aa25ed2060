"""What other programs do to a catalog: what this package would refuse."""

from collections.abc import Mapping
from uuid import uuid4

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.pointer import PointerCatalog
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table


def table_at(
    catalog: PointerCatalog, name: str, location: str, *, properties: Mapping[str, str] | None = None
) -> Table:
    """Create a table at a location, whatever is there, and whatever is called like it."""
    metadata = new_table_metadata(
        location=location,
        schema=schema_from_shorthand({"id": "long"}),
        properties=properties or {},
        table_uuid=str(uuid4()),
        now_ms=1_700_000_000_000,
    )
    catalog._publish(TableId.of(name), None, metadata)
    return Table.load(catalog, name)
