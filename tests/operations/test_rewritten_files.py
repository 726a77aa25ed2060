"""The files that a delete or an overwrite writes: in which order their rows are, and how they are encoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return new_catalog(tmp_path)


def local_path(file: DataFile) -> str:
    return file.file_path.removeprefix("file://")


def data_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.refresh().scan().plan_files()]


class TestTheSortOrder:
    """A file claims an order only if its rows are in it: what is left of sorted rows is, what was not sorted is not.

    Iceberg's Spark writer sorts the rows of rewritten files; here they stay as they were, which costs nothing.
    """

    @pytest.fixture
    def table(self, catalog):
        table = Table.create(catalog, "db.t", schema={"id": "long", "day": "string"}, partition_by=["day"])
        table.append(pa.table({"id": [5, 1, 9, 3], "day": ["a"] * 4}))
        table.alter([{"set_sort_order": ["id desc"]}])
        table.append(pa.table({"id": [5, 1, 9, 3], "day": ["b"] * 4}))
        assert {file.partition[0]: file.sort_order_id or 0 for file in data_files(table)} == {"a": 0, "b": 1}
        return table

    @staticmethod
    def check(table: Table) -> None:
        found = {
            file.partition[0]: (file.sort_order_id or 0, pq.read_table(local_path(file), columns=["id"])["id"])
            for file in data_files(table)
            if file.partition[0] in "ab"
        }
        assert {day: (order, ids.to_pylist()) for day, (order, ids) in found.items()} == {
            "a": (0, [5, 9, 3]),
            "b": (1, [9, 5, 3]),
        }

    def test_of_a_delete_in_this_process(self, table):
        table.delete("id = 1")
        self.check(table)

    def test_of_a_delete_in_a_job(self, table):
        delete(Work(table, run=lambda plan: run_local(plan, table.io, threads=1)), DeleteRequest(predicate="id = 1"))
        self.check(table)

    def test_of_rows_that_an_overwrite_carries(self, table):
        table.overwrite(pa.table({"id": [1], "day": ["c"]}), "id = 1")
        self.check(table)
        assert [file.sort_order_id for file in data_files(table) if file.partition[0] == "c"] == [1]


class TestPositionDeleteFiles:
    """`write.delete.parquet.*` says how they are encoded, and where it is silent what holds for data files does."""

    def written(self, catalog: Catalog, **properties: str) -> pq.ParquetFile:
        names = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
        table = Table.create(
            catalog, "db.d", schema={"id": "long"}, properties={"write.delete.mode": "merge-on-read", **names}
        )
        table.append(pa.table({"id": range(10_000)}))
        table.delete("id >= 10 and id < 9000")
        (task,) = table.scan().plan_files()
        (file,) = task.delete_files
        assert table.scan().count() == 1010
        return pq.ParquetFile(local_path(file))

    def test_by_default_as_data_files(self, catalog):
        found = self.written(catalog, write__parquet__compression_codec="gzip")
        assert found.metadata.row_group(0).column(1).compression == "GZIP"

    def test_a_codec_of_their_own(self, catalog):
        codecs = {
            "write__parquet__compression_codec": "gzip",
            "write__delete__parquet__compression_codec": "uncompressed",
        }
        assert self.written(catalog, **codecs).metadata.row_group(0).column(1).compression == "UNCOMPRESSED"

    def test_row_groups_of_their_own(self, catalog):
        found = self.written(catalog, write__delete__parquet__row_group_size_bytes="24000")
        assert found.metadata.num_row_groups == 3
        assert found.metadata.row_group(0).num_rows == 3000

    def test_a_dictionary_of_their_own(self, catalog):
        found = self.written(catalog, write__delete__parquet__dict_size_bytes="16")
        assert "PLAIN" in found.metadata.row_group(0).column(1).encodings

    def test_a_value_that_cannot_be_is_named_by_its_own_name(self, catalog):
        table = Table.create(catalog, "db.e", schema={"id": "long"}, properties={"write.delete.mode": "merge-on-read"})
        table.append(pa.table({"id": [1, 2]}))
        odd = Change(updates=(SetProperties(updates={"write.delete.parquet.compression-codec": "zip"}),))
        catalog.commit(catalog.load("db.e"), odd)
        with pytest.raises(InvalidInputError, match=r"unknown codec 'zip' in property write\.delete\.parquet\.compr"):
            table.refresh().delete("id = 1")
        assert len(table.refresh().snapshots()) == 1
