"""A file that the table lists in two partitions, as files without the partition's column can be: other rows in each."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from tests.support.builders import job_work, new_table
from tests.support.odd_deletes import COW, MOR, SCHEMA, add_deletes, arrow_rows, list_again, only_file, positions_file
from tests.support.odd_deletes import rows_of as live_rows

IN_A, IN_Z = Counter({(0, "a", 0): 1, (1, "a", 1): 1}), Counter({(0, "z", 0): 1, (1, "z", 1): 1})
NEW = (0, "a", 7)


def make(folder, version, *, manifests=1):
    table = new_table(folder, schema=SCHEMA, partition_by=("part",), properties={"format-version": str(version)})
    path = folder / "db" / "old" / "part=a" / "f.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [0, 1], "v": [0, 1]}), path)
    add_files(Work(table), AddFilesRequest(source=path.parent.parent.as_uri()))
    list_again(table, replace(only_file(table), partition=("z",)))
    if manifests == 1:
        rewrite_manifests(Work(table), RewriteManifestsRequest())
    assert rows(table) == IN_A + IN_Z
    return table


def rows(table):
    return live_rows(table.refresh())


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("manifests", [1, 2])
@pytest.mark.sample(4)
class TestOnePartitionChanges:
    def test_a_delete_of_rows(self, tmp_path, version, manifests):
        table = make(tmp_path, version, manifests=manifests)
        table.delete("part = 'a' and v = 0", mode=COW)
        assert rows(table) == Counter([(1, "a", 1)]) + IN_Z

    def test_an_update(self, tmp_path, version, manifests):
        table = make(tmp_path, version, manifests=manifests)
        table.update({"v": "7"}, "part = 'a' and v = 0", mode=COW)
        assert rows(table) == Counter([NEW, (1, "a", 1)]) + IN_Z

    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_a_delete_of_all_of_it(self, tmp_path, version, manifests, mode):
        table = make(tmp_path, version, manifests=manifests)
        table.delete("part = 'a'", mode=mode if version > 1 else COW)
        assert rows(table) == IN_Z

    def test_a_compaction(self, tmp_path, version, manifests):
        table = make(tmp_path, version, manifests=manifests)
        compact(job_work(table), CompactRequest(where="part = 'a'", options={"rewrite-all": True}))
        assert rows(table) == IN_A + IN_Z
        table.upsert(arrow_rows([NEW]), ["id", "part"])
        assert rows(table) == Counter([NEW, (1, "a", 1)]) + IN_Z


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("mode", [COW, MOR])
@pytest.mark.sample(2)
def test_a_merge_whose_keys_leave_a_partition_out_is_refused(tmp_path, version, mode):
    """Its job says by the path what it has changed: the rows of the other partition were lost, or became unreadable."""
    table = make(tmp_path, version, manifests=2)
    for change in (
        lambda: table.upsert(arrow_rows([NEW]), ["id", "part"], mode=mode if version > 1 else COW),
        lambda: table.merge(
            arrow_rows([NEW]), ["id", "part"], "when matched then delete", mode=mode if version > 1 else COW
        ),
    ):
        with pytest.raises(UnsupportedError, match=r"more than once, in several partitions.*compact the table before"):
            change()
        assert rows(table) == IN_A + IN_Z


def test_deletes_of_the_other_partition_stay(tmp_path):
    """Position deletes of several files, which name none in the manifest, apply within their partition."""
    table = make(tmp_path, 2)
    file = only_file(table)
    for partition in ("a", "z"):
        deletes = positions_file(table, file, [1], spec_id=file.spec_id, partition=(partition,))
        add_deletes(table, replace(deletes, referenced_data_file=None, lower_bounds=None, upper_bounds=None))
    assert rows(table) == Counter([(0, "a", 0), (0, "z", 0)])
    table.delete("part = 'a'")
    assert rows(table) == Counter([(0, "z", 0)])
