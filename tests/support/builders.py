"""A table in a line, rows in another one, and what is in it in a third.

    table = new_table(tmp_path, schema={"id": "long"}, partition_by=["bucket(4, id)"])
    table.append(id_rows(range(10)))
    assert ids(table) == list(range(10))

Tables here lie in a folder, in a Hadoop catalog, which needs no service. Not here: tables in memory, on which files and
swaps go wrong (`faults`), and changes of every kind (`changes`).
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.work import Work
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


def ids(table: Table, **scan: Any) -> list[int]:
    """Return the column `id` of all rows, sorted; the options are those of `Table.scan`."""
    return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())


def lineage(table: Table, row_filter: str | None = None) -> pa.Table:
    """Return rows in the order of `id`, with the id of each row and the number of the commit that changed it last."""
    selected = ("id", "_row_id", "_last_updated_sequence_number")
    return table.scan(row_filter, selected_fields=selected).to_arrow().sort_by("id")


def job_work(table: Table, **more: Any) -> Work:
    """Return work on a table whose jobs run in this process."""
    return Work(table, run=lambda plan: run_local(plan, table.io, threads=2), **more)


def add_file(table: Table, path: Path, *, record_count: int, file_format: str = "parquet", **facts: Any) -> None:
    """Append a data file as another writer has written it; facts are attributes of `DataFile`."""
    size = path.stat().st_size if path.exists() else 1
    file = DataFile(
        file_path=path.as_uri(), file_format=file_format, record_count=record_count, file_size_in_bytes=size, **facts
    )
    table.commit(AppendFiles(table.io, [file], table.commit_settings(), written_schema=table.schema()))


def staged(table: Table) -> list[str]:
    return sorted(status.location for status in table.io.list(f"{table.location}/.staging"))


def reachable(table: Table) -> set[str]:
    """Return the manifest lists, manifests and live files of all snapshots, one entry at a time."""
    found = set()
    for snapshot in table.metadata.snapshots:
        manifests = read_manifests(table.io, snapshot)
        found |= {snapshot.manifest_list or "", *(manifest.manifest_path for manifest in manifests)}
        entries = (entry for manifest in manifests for entry in read_entries(table.io, manifest))
        found |= {entry.data_file.file_path for entry in entries if entry.is_live}
    return found


def data_locations(table: Table) -> set[str]:
    """Return every data and delete file that lies below the table, whether a snapshot knows it or not."""
    return {status.location for status in table.io.list(table.location) if "/data/" in status.location}


def folder_of(table: Table) -> Path:
    return Path(table.location.removeprefix("file://"))


def age(*paths: Path, days: float = 10) -> None:
    """Let files be as old as that, and all those in folders."""
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            os.utime(file, (time.time() - days * 24 * 60 * 60,) * 2)


def litter(table: Table, *names: str, data: bytes = b"litter", days: float = 10) -> list[Path]:
    """Write files that are not the table's, by names below its folder."""
    paths = [folder_of(table) / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    age(*paths, days=days)
    return paths
