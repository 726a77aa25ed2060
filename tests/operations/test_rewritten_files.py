"""The files that a delete or an overwrite writes: in which order their rows are, and how they are encoded."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_catalog

CODEC = "write.delete.parquet.compression-codec"


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
        delete(job_work(table), DeleteRequest(predicate="id = 1"))
        self.check(table)

    def test_of_rows_that_an_overwrite_carries(self, table):
        table.overwrite(pa.table({"id": [1], "day": ["c"]}), "id = 1")
        self.check(table)
        assert [file.sort_order_id for file in data_files(table) if file.partition[0] == "c"] == [1]


class TestPositionDeleteFiles:
    """`write.delete.parquet.*` says how they are encoded, and where it is silent what holds for data files does."""

    def written(self, catalog: Catalog, properties: dict[str, str]) -> pq.ParquetFile:
        properties = {"write.delete.mode": "merge-on-read", **properties}
        table = Table.create(catalog, "db.d", schema={"id": "long"}, properties=properties)
        table.append(pa.table({"id": range(10_000)}))
        table.delete("id >= 10 and id < 9000")
        (task,) = table.scan().plan_files()
        (file,) = task.delete_files
        assert table.scan().count() == 1010
        return pq.ParquetFile(local_path(file))

    @pytest.mark.costly
    @pytest.mark.parametrize(("own", "codec"), [({}, "GZIP"), ({CODEC: "uncompressed"}, "UNCOMPRESSED")])
    def test_a_codec_of_their_own_or_by_default_that_of_data_files(self, catalog, own, codec):
        found = self.written(catalog, {"write.parquet.compression-codec": "gzip", **own})
        assert found.metadata.row_group(0).column(1).compression == codec

    def test_row_groups_of_their_own(self, catalog):
        found = self.written(catalog, {"write.delete.parquet.row-group-size-bytes": "24000"})
        assert found.metadata.num_row_groups == 3
        assert found.metadata.row_group(0).num_rows == 3000

    def test_a_dictionary_of_their_own(self, catalog):
        found = self.written(catalog, {"write.delete.parquet.dict-size-bytes": "16"})
        assert "PLAIN" in found.metadata.row_group(0).column(1).encodings

    def test_a_value_that_cannot_be_is_named_by_its_own_name(self, catalog):
        table = Table.create(catalog, "db.e", schema={"id": "long"}, properties={"write.delete.mode": "merge-on-read"})
        table.append(pa.table({"id": [1, 2]}))
        odd = Change(updates=(SetProperties(updates={CODEC: "zip"}),))
        catalog.commit(catalog.load("db.e"), odd)
        with pytest.raises(InvalidInputError, match=r"unknown codec 'zip' in property write\.delete\.parquet\.compr"):
            table.refresh().delete("id = 1")
        assert len(table.refresh().snapshots()) == 1
