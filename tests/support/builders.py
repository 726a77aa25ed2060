"""A table in a line, rows in another one, and what is in it in a third.

    table = new_table(tmp_path, schema={"id": "long"}, partition_by=["bucket(4, id)"])
    table.append(id_rows(range(10)))
    assert ids(table) == list(range(10))

Tables here lie in a folder, in a Hadoop catalog, which needs no service. Not here: tables in memory, on which files and
swaps go wrong (`faults`), and changes of every kind (`changes`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.table import Table


def new_catalog(folder: Path) -> Catalog:
    """Make a catalog in a folder, with the namespace `db`."""
    catalog = load_catalog("test", type="hadoop", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return catalog


def new_table(folder: Path, **options: Any) -> Table:
    """Make the table `db.t` in a catalog of its own; the options are those of `Table.create`, by default one of ids."""
    return Table.create(new_catalog(folder), "db.t", **{"schema": {"id": "long"}, **options})


def id_rows(numbers: Iterable[int]) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def ids(table: Table) -> list[int]:
    """Return the column `id` of all rows, sorted."""
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def data_locations(table: Table) -> set[str]:
    """Return every data and delete file that lies below the table, whether a snapshot knows it or not."""
    return {status.location for status in table.io.list(table.location) if "/data/" in status.location}
