"""A file that the table lists in two partitions, as files without the partition's column can be: other rows in each."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.odd_deletes import (
    COW,
    MOR,
    SCHEMA,
    add_deletes,
    arrow_rows,
    delete_positions,
    list_again,
    only_file,
    positions_file,
)
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


def mor_changes(table):
    """Return changes of rows of partition a, which plans without a look at partition z."""
    where = "part = 'a' and v = 0"
    source = arrow_rows([NEW])
    sql = {"dialect": "duckdb"}
    return {
        "delete": lambda **more: table.delete(where, mode=MOR, **more),
        "delete in a job": lambda **more: delete(job_work(table), DeleteRequest(predicate=where, mode=MOR, **more)),
        "delete by SQL": lambda **more: delete(
            job_work(table), DeleteRequest(predicate=f"{where} and abs(v) = 0", mode=MOR, **sql, **more)
        ),
        "update": lambda **more: table.update({"v": "7"}, where, mode=MOR, **more),
        "upsert": lambda **more: table.upsert(source, ["id", "part"], mode=MOR, **more),
        "merge": lambda **more: table.merge(source, ["id", "part"], "when matched then delete", mode=MOR, **more),
    }


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("manifests", [1, 2])
@pytest.mark.sample(4)
class TestDeletesByPosition:
    """They name a file by its path, and readers apply them in all partitions, or stop at those of another one."""

    def test_are_refused(self, tmp_path, version, manifests):
        failed = []
        table = make(tmp_path, version, manifests=manifests)
        for branch in ("main", "b"):
            for name, change in mor_changes(table).items():
                try:
                    change(branch=branch)
                except UnsupportedError as error:
                    if "more than once" not in str(error):
                        failed.append((name, branch, str(error)))
                else:
                    failed.append((name, branch, "not refused"))
                if rows(table) != IN_A + IN_Z:
                    failed.append((name, branch, rows(table)))
            if branch == "main":
                table.create_branch("b")
        assert failed == []

    def test_are_refused_if_the_file_gets_into_another_partition_meanwhile(self, tmp_path, version, manifests):
        table = make(tmp_path, version, manifests=manifests)
        table.delete("part = 'z'")
        file, other, runs = only_file(table), Table.load(table.catalog, "db.t"), []

        def add_meanwhile(plan):
            result = run_local(plan, table.io, threads=1)
            if not runs:
                list_again(other, replace(file, partition=("y",)))
            runs.append(plan)
            return result

        in_y = Counter({(0, "y", 0): 1, (1, "y", 1): 1})
        work = Work(table, run=add_meanwhile)
        with pytest.raises(UnsupportedError, match=r"several partitions, one of them \('y',\) of spec 0"):
            delete(work, DeleteRequest(predicate="part = 'a' and v = 0", mode=MOR, isolation_level="snapshot"))
        assert rows(table) == IN_A + in_y
        assert len(runs) == 2
        table.delete("part = 'a' and v = 0", mode=COW)
        assert rows(table) == Counter([(1, "a", 1)]) + in_y

    def test_are_refused_if_only_the_other_place_is_left(self, tmp_path, version, manifests):
        """Rows that a delete selects may be gone: in version 2 its file with deletes is none of another place then."""
        table = make(tmp_path, version, manifests=manifests)
        other, runs = Table.load(table.catalog, "db.t"), []

        def delete_meanwhile(plan):
            result = run_local(plan, table.io, threads=1)
            if not runs:
                other.delete("part = 'a'")
                table.refresh()  # as after a job of hours
            runs.append(plan)
            return result

        request = DeleteRequest(predicate="part = 'a' and v = 0", mode=MOR)
        if version == 2:
            with pytest.raises(UnsupportedError, match=r"one of them \('z',\)"):
                delete(Work(table, run=delete_meanwhile), request)
        else:
            delete(Work(table, run=delete_meanwhile), request)
        assert rows(table) == IN_Z


def test_an_undo_restores_older_deletes_beside_a_new_place(tmp_path):
    """They do not apply to what was added since."""
    table = make(tmp_path, 3)
    table.delete("part = 'z'")
    file, key = only_file(table), OperationKey(dag_id="d", run_id="r", task_id="t")
    delete_positions(table, file, [100])
    table.delete("part = 'a' and v = 0", mode=MOR, operation_key=key)
    list_again(table, replace(file, partition=("z",)))
    assert rows(table) == Counter([(1, "a", 1)]) + IN_Z
    table.undo(key)
    assert rows(table) == IN_A + IN_Z


@pytest.mark.parametrize("files", [1, 13])
def test_many_files_of_one_partition_are_no_places_of_one_file(tmp_path, files):
    """Names that are a part of another, files that were removed before, and places in one partition are no others."""
    table = new_table(tmp_path, schema=SCHEMA, partition_by=("part",), properties={"format-version": "3"})
    for number in range(files):
        table.append(arrow_rows([(number, "a", 0), (number, "a", 1)]))
    table.append(arrow_rows([(0, "z", 0)]))
    first = table.scan(row_filter="part = 'a'").plan_files()[0].file
    longer = replace(first, file_path=f"{first.file_path}.2", partition=("z",), first_row_id=None)
    list_again(table, longer)
    rewrite_manifests(Work(table), RewriteManifestsRequest())
    list_again(table, replace(first, partition=("y",)))
    table.delete("part = 'y'")
    list_again(table, first)
    assert table.delete("part = 'a' and v = 0", mode=MOR).deleted_records == files + 1
    assert rows_left(table, "part = 'a'") == files + 1


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("files", [1, 13])
def test_a_second_place_is_found_under_another_spec(tmp_path, version, files):
    table = new_table(tmp_path, schema=SCHEMA, partition_by=("part",), properties={"format-version": str(version)})
    for number in range(files):
        table.append(arrow_rows([(number, "a", 0), (number, "a", 1)]))
    file = only_file(table)
    table.alter([{"drop_partition_field": "part"}, {"add_partition_field": "bucket(4, id)"}])
    spec = table.metadata.default_spec_id
    list_again(table, replace(file, spec_id=spec, partition=tuple(None for _ in table.metadata.spec().fields)))
    before = table.refresh().scan().count()
    with pytest.raises(UnsupportedError, match="is in the table more than once"):
        table.delete(f"v = 0 and id in ({', '.join(map(str, range(files)))})", mode=MOR)
    assert table.refresh().scan().count() == before


def rows_left(table, row_filter):
    return table.refresh().scan(row_filter=row_filter).count()


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
