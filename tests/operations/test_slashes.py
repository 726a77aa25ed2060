"""A slash at the end of a location or of a path in the properties is no part of the names below it."""

import re
from pathlib import Path

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids, job_work, litter, reachable

PATHS = (
    {},
    {"write.data.path": "{}/moved/"},
    {"write.folder-storage.path": "{}/moved//"},
    {"write.object-storage.enabled": "true", "write.object-storage.path": "{}/moved/"},
    {"write.object-storage.enabled": "true", "write.data.path": "{}/moved/"},
    {"write.metadata.path": "{}/meta/"},
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("location", ["{}/t/", "{}/t//"])
@pytest.mark.parametrize("paths", PATHS)
def test_no_name_has_an_empty_part(tmp_path: Path, paths: dict[str, str], location: str):
    root = tmp_path.as_uri()
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{root}/")
    catalog.create_namespace("db")
    properties = {"format-version": "3", **{key: value.format(root) for key, value in paths.items()}}
    table = Table.create(catalog, "db.t", schema={"id": "long"}, location=location.format(root), properties=properties)
    table.append(id_rows([1]))
    # Another writer names the location with a slash.
    theirs = metadata_json.write(table.metadata).replace(
        f'"{table.location}"'.encode(), f'"{location.format(root)}"'.encode()
    )
    assert theirs != metadata_json.write(table.metadata)
    foreign = tmp_path / "t" / "metadata" / "00009-foreign.metadata.json"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_bytes(theirs)
    table = Table.register(catalog, "db.other", foreign.as_uri())
    table.append(id_rows([2, 3]))
    table.delete("id = 2")
    table.alter([{"add_column": {"name": "v", "type": "int"}}])
    assert compact(job_work(table), CompactRequest(options={"rewrite-all": True})).outcome == "committed"
    table = Table.load(catalog, "db.other")
    assert ids(table) == [1, 3]
    names = [*reachable(table), table.metadata_location]
    assert not [name for name in names if re.search(r"[^:/]//", name)]


def test_orphan_files_are_found_all_the_same(tmp_path: Path):
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    table = Table.create(catalog, "db.t", schema={"id": "long"}, location=f"{tmp_path.as_uri()}/t/")
    table.append(id_rows([1]))
    [old] = litter(table, "data/old.parquet")
    assert remove_orphan_files(Work(table), RemoveOrphanFilesRequest()).orphan_files == 1
    assert not old.exists()
    assert ids(table.refresh()) == [1]
