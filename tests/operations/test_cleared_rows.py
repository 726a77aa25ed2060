"""A task is cleared after others have changed the rows that it had written: wherever they are now, they are replaced.

Or the task is refused, with the snapshot that has changed them; then the table is as it was.
"""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, job_work, new_table, reachable

KEY = OperationKey(dag_id="load", run_id="r", task_id="t", run_after_ms=1, started_ms=1)
CLEARED = replace(KEY, epoch=1)
OTHER = replace(KEY, task_id="other")
COW, MOR = "copy-on-write", "merge-on-read"


def rows(values):
    """Return rows from their ids and values."""
    return pa.table({"id": pa.array(values, pa.int64()), "v": pa.array(values.values(), pa.int64())})


def content(table, **scan):
    found = table.refresh().scan(**scan).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def made(tmp_path, version):
    table = new_table(tmp_path, schema={"id": "long", "v": "long"}, properties={"format-version": str(version)})
    table.append(rows({8: 8, 9: 9}))
    return table


def everything(table):
    compact(job_work(table), CompactRequest(options={"rewrite-all": True}))


# -- what somebody else does, and the rows that it leaves besides those of the task ------------------------------------

OTHERS = {8: 8, 9: 9}


def updates(table, mode):
    table.update({"v": "v + 1"}, where="id = 3", mode=mode)
    return OTHERS


def updates_all(table, mode):
    table.update({"v": "v + 1"}, mode=mode)
    return {8: 9, 9: 10}


def merges(table, mode):
    clauses = (
        "when matched then update set v = source.v when not matched then insert (id, v) values (source.id, source.v)"
    )
    table.merge(rows({3: 30, 4: 40}), ["id"], clauses, mode=mode)
    return {**OTHERS, 4: 40}


def upserts(table, mode):
    table.upsert(rows({3: 30, 4: 40, 9: 90}), ["id"], mode=mode)
    return {8: 8, 4: 40, 9: 90}


def deletes_a_row(table, mode):
    table.delete("id in (3, 9)", mode=mode)
    return {8: 8}


def deletes_and_inserts(table, mode):
    clauses = "when matched then delete when not matched then insert (id, v) values (source.id, source.v)"
    table.merge(rows({3: 30, 4: 40}), ["id"], clauses, mode=mode)
    return {**OTHERS, 4: 40}


def deletes_all(table, mode):
    table.delete("id < 4", mode=mode)
    return OTHERS


def overwrites(table, _):
    table.overwrite(rows({3: 33}), "id = 3", operation_key=OTHER)
    return {**OTHERS, 3: 33}


def overwrites_the_table(table, _):
    table.overwrite(rows({7: 7}), operation_key=OTHER)
    return {7: 7}


def reads_and_overwrites(table, _):
    table.overwrite(rows({3: 3, 7: 7}))  # a program that may have read the rows
    return {3: 3, 7: 7}


CHANGES = [updates, updates_all, merges, upserts, deletes_a_row, deletes_and_inserts, deletes_all]
CASES = [(change, mode) for change in CHANGES for mode in (COW, MOR)]
CASES += [(one, COW) for one in (overwrites, overwrites_the_table, reads_and_overwrites)]
of_each = pytest.mark.parametrize(("change", "mode"), CASES, ids=lambda one: getattr(one, "__name__", one))


# -- what the task does, before it is cleared and after ----------------------------------------------------------------


def appends(table, key, values):
    table.append(rows(values), operation_key=key, on_rerun="replace")


def overwrites_by_filter(table, key, values):
    table.overwrite(rows(values), "id < 4", operation_key=key)


def overwrites_nothing(table, key, values):
    table.overwrite(rows(values), "id = 1 and id = 2", check_filter=False, operation_key=key)


def adds_files(table, key, values):
    folder = Path(table.location.removeprefix("file://")) / "landing"
    folder.mkdir(exist_ok=True)
    name = "-".join(f"{number}_{v}" for number, v in values.items()) or "none"
    if not (folder / f"{name}.parquet").exists():
        pq.write_table(rows(values), folder / f"{name}.parquet")
    add_files(Work(table, operation_key=key), AddFilesRequest(files=[(folder / f"{name}.parquet").as_uri()]))


TASKS = [appends, overwrites_by_filter, overwrites_nothing, adds_files]


def judge(table, clear, expected, *, may_be_refused):
    """Clear the task: the table has the expected rows, or as it was the task is refused, with a reason."""
    before, head = content(table), table.current_snapshot().snapshot_id
    refusal = None
    try:
        clear()
    except IncompatibleChangeError as error:
        refusal = str(error)
    if refusal is None:
        assert content(table) == sorted(expected)
        return
    assert may_be_refused, refusal
    assert re.search(r"snapshot \d+ \(.*on_rerun='append'", refusal), refusal
    assert (content(table), table.current_snapshot().snapshot_id) == (before, head)


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_got_a_new_value_by_merge_on_read_is_not_doubled(tmp_path, version):
    table = made(tmp_path, version)
    appends(table, KEY, {1: 1, 2: 2, 3: 3})
    updates(table, MOR)
    expected = [(1, 1), (2, 2), (3, 3), *OTHERS.items()]
    judge(table, lambda: appends(table, CLEARED, {1: 1, 2: 2, 3: 3}), expected, may_be_refused=version < 3)


@pytest.mark.sample(12)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
@of_each
class TestRowsThatOthersHaveChanged:
    """After the clear the table has what one run of the task gives on what the others have left."""

    def start(self, tmp_path, version, task, change, mode):
        if version == 1 and mode == MOR:
            pytest.skip("version 1 has no delete files")
        table = made(tmp_path, version)
        task(table, KEY, {1: 1, 2: 2, 3: 3})
        left = list(change(table, mode).items())
        # An overwrite replaces what others have written, too.
        return table, [row for row in left if task is not overwrites_by_filter or row[0] > 3]

    def refuses(self, version, change):
        return change is reads_and_overwrites or (version < 3 and change not in (overwrites_the_table, deletes_all))

    def test_the_same_rows_again(self, tmp_path, version, task, change, mode):
        table, left = self.start(tmp_path, version, task, change, mode)
        expected = [(1, 1), (2, 2), (3, 3), *left]
        judge(
            table,
            lambda: task(table, CLEARED, {1: 1, 2: 2, 3: 3}),
            expected,
            may_be_refused=self.refuses(version, change),
        )

    def test_other_rows(self, tmp_path, version, task, change, mode):
        table, left = self.start(tmp_path, version, task, change, mode)
        judge(
            table,
            lambda: task(table, CLEARED, {2: 20}),
            [(2, 20), *left],
            may_be_refused=self.refuses(version, change),
        )

    def test_no_rows(self, tmp_path, version, task, change, mode):
        if task is adds_files:
            pytest.skip("a file without rows is not added")
        table, left = self.start(tmp_path, version, task, change, mode)
        judge(
            table,
            lambda: task(table, CLEARED, {}),
            left,
            may_be_refused=self.refuses(version, change),
        )

    def test_after_maintenance(self, tmp_path, version, task, change, mode):
        table, left = self.start(tmp_path, version, task, change, mode)
        everything(table)
        table.append(rows({50: 50}))
        judge(
            table,
            lambda: task(table, CLEARED, {2: 20}),
            [(2, 20), (50, 50), *left],
            may_be_refused=version < 3 or change is reads_and_overwrites,
        )


class TestFilesThatAnAttemptWrote:
    """Vectors of a plan, or of an attempt that has lost, which the commit does not use, are deleted after it."""

    @pytest.mark.parametrize("how", ["append", "overwrite"])
    def test_none_is_left_after_a_lost_race(self, tmp_path, monkeypatch, how):
        table = made(tmp_path, 3)
        append(Work(table, operation_key=KEY, try_number=1), AppendRequest(rows=rows({1: 1, 2: 2, 3: 3})))
        everything(table)
        swap, others = (
            type(table.catalog).commit,
            [lambda: Table.load(table.catalog, "db.t").delete("id = 8", mode=MOR)],
        )

        def after_others(catalog, *args, **more):
            if others:
                others.pop()()
            return swap(catalog, *args, **more)

        monkeypatch.setattr(type(table.catalog), "commit", after_others)
        work = Work(table, operation_key=CLEARED, try_number=2)
        if how == "append":
            append(work, AppendRequest(rows=rows({1: 10})))
        else:
            overwrite(work, OverwriteRequest(rows=rows({1: 10}), overwrite_filter="id = 1"))
        assert content(table) == [(1, 10), (9, 9)]
        assert not others
        named = {path for path in data_locations(table) if path.endswith(".puffin")}
        assert named <= reachable(table.refresh())
