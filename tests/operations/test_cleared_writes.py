"""A task with several writes is cleared: what one of its writes has done to the rows of another is not somebody else's.

The first write of new rows after the clear takes out what the earlier run has written, by all of its writes.
"""

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.compact import CompactRequest, compact
from tests.support.builders import job_work, new_table

TASK = OperationKey(dag_id="returns", run_id="r", task_id="settle", run_after_ms=1, started_ms=1)
COW, MOR = "copy-on-write", "merge-on-read"
OTHERS = [(8, 8), (9, 9)]


def key(write, epoch=0, **more):
    return replace(TASK, write=write, epoch=epoch, **more)


def rows(values):
    return pa.table({"id": pa.array(values, pa.int64()), "v": pa.array(values.values(), pa.int64())})


def content(table):
    found = table.refresh().scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


class Task:
    """A function that writes to a table of a task: each write has a name, and knows the run by its epoch."""

    def __init__(self, table, mode, **key):
        self.table, self.mode, self.key, self.epoch = table, mode, key, 0

    def of(self, write):
        self.table.refresh()
        return {"operation_key": key(write, self.epoch, **self.key)}

    def append(self, values, name="late", on_rerun="replace"):
        return self.table.append(rows(values), on_rerun=on_rerun, **self.of(name))

    def overwrite(self, values, predicate, name="fix"):
        return self.table.overwrite(rows(values), predicate, **self.of(name))

    def upsert(self, values, name="corrections"):
        return self.table.upsert(rows(values), ["id"], mode=self.mode, **self.of(name))

    def update(self, where, name="update"):
        return self.table.update({"v": "v + 1"}, where=where, mode=self.mode, **self.of(name))

    def delete(self, predicate, name="settled"):
        return self.table.delete(predicate, mode=self.mode, **self.of(name))

    def clear(self):
        self.epoch += 1


@pytest.fixture(params=[(1, COW), (2, COW), (2, MOR), (3, COW), (3, MOR)], ids=lambda one: f"v{one[0]}-{one[1]}")
def task(request, tmp_path):
    version, mode = request.param
    table = new_table(tmp_path, schema={"id": "long", "v": "long"}, properties={"format-version": str(version)})
    table.append(rows(dict(OTHERS)))
    return Task(table, mode)


def everything(table):
    compact(job_work(table.refresh()), CompactRequest(options={"rewrite-all": True}))


class TestAnAppendAndAnUpsertOfItsRows:
    """The example of the guide: rows are appended, and corrected by an upsert of the same task."""

    def run(self, task, *, v=0, writes=3):
        task.append({100: v, 101: v})
        if writes > 1:
            task.delete("id = 9")
        if writes > 2:
            task.upsert({101: v + 5})

    def test_are_replaced_by_any_number_of_clears(self, task):
        for v in range(3):
            self.run(task, v=v)
            assert content(task.table) == [(8, 8), (100, v), (101, v + 5)]
            task.clear()

    def test_the_state_in_between_is_that_of_one_run(self, task):
        self.run(task)
        task.clear()
        self.run(task, v=1, writes=1)
        assert content(task.table) == [(8, 8), (100, 1), (101, 1)]
        # The next try makes its writes again: those that are there are found.
        self.run(task, v=1)
        assert content(task.table) == [(8, 8), (100, 1), (101, 6)]
        assert task.append({100: 1, 101: 1}).outcome == "found"

    def test_a_clear_between_the_writes_of_the_next_run(self, task):
        self.run(task)
        task.clear()
        self.run(task, v=1, writes=1)
        task.clear()
        self.run(task, v=2)
        assert content(task.table) == [(8, 8), (100, 2), (101, 7)]

    def test_fewer_writes_after_the_clear(self, task):
        self.run(task)
        task.clear()
        self.run(task, v=1, writes=2)
        assert content(task.table) == [(8, 8), (100, 1), (101, 1)]

    def test_an_upsert_that_changes_rows_of_others_too(self, task):
        task.append({100: 0, 101: 0})
        task.upsert({101: 5, 8: 80, 102: 5})
        before = content(task.table)
        assert before == [(8, 80), (9, 9), (100, 0), (101, 5), (102, 5)]
        task.clear()
        if task.table.metadata.format_version < 3:
            with pytest.raises(IncompatibleChangeError, match=r"snapshot \d+ \(overwrite, .*settle.*format version 3"):
                task.append({100: 1, 101: 1})
            assert content(task.table) == before
            return
        task.append({100: 1, 101: 1})
        task.upsert({101: 6, 8: 80, 102: 6})
        assert content(task.table) == [(8, 80), (9, 9), (100, 1), (101, 6), (102, 6)]


@pytest.mark.costly
class TestWhatGoesTogether:
    """All writes of the earlier run are one, whatever their names, as far as their author has not said otherwise."""

    def test_other_names_after_the_clear(self, task):
        task.append({1: 1, 2: 2}, name="page-1")
        task.append({3: 3}, name="page-2")
        task.update("id > 1 and id < 4")
        task.clear()
        task.append({1: 10, 2: 20, 3: 30}, name="all-pages")
        assert content(task.table) == [(1, 10), (2, 20), (3, 30), *OTHERS]

    def test_an_overwrite_after_an_append(self, task):
        task.append({1: 1, 2: 2})
        task.overwrite({2: 22}, "id = 2")
        task.clear()
        task.append({1: 10, 2: 20})
        task.overwrite({2: 23}, "id = 2")
        assert content(task.table) == [(1, 10), (2, 23), *OTHERS]
        task.clear()
        task.overwrite({2: 24}, "id = 2")
        task.append({1: 11})
        assert content(task.table) == [(1, 11), (2, 24), *OTHERS]

    def test_an_upsert_that_only_inserts(self, task):
        for _ in range(2):
            task.upsert({5: task.epoch})
            task.append({1: task.epoch})
            assert content(task.table) == [(1, task.epoch), (5, task.epoch), *OTHERS]
            task.clear()

    @pytest.mark.parametrize("on_rerun", ["append", "skip"])
    def test_a_write_whose_rows_are_to_stay(self, task, on_rerun):
        task.append({1: 1}, name="log", on_rerun=on_rerun)
        task.append({2: 2})
        task.clear()
        task.append({2: 20})
        assert content(task.table) == [(1, 1), (2, 20), *OTHERS]
        task.append({1: 10}, name="log", on_rerun=on_rerun)
        assert content(task.table) == sorted([(1, 1), (2, 20), *OTHERS, *([(1, 10)] if on_rerun == "append" else [])])

    def test_a_write_that_is_now_skipped_and_whose_rows_went_with_another_one(self, task):
        task.append({1: 1}, name="first")
        task.append({2: 2}, name="second")
        task.clear()
        task.append({1: 10}, name="first")
        assert task.append({2: 20}, name="second", on_rerun="skip").outcome == "committed"
        assert content(task.table) == [(1, 10), (2, 20), *OTHERS]

    def test_an_upsert_before_the_append_that_replaces_what_it_has_changed(self, task):
        """The upsert counts on rows which the append would take away: its changes would be lost."""
        task.append({1: 1, 2: 2})
        task.clear()
        task.upsert({2: 20, 3: 30})
        before = content(task.table)
        with pytest.raises(IncompatibleChangeError, match="write in the order of the earlier run"):
            task.append({1: 1, 2: 2})
        assert content(task.table) == before

    def test_a_process_of_the_earlier_run_that_is_still_alive(self, task):
        old = Task(task.table, task.mode)
        task.append({1: 1})
        task.clear()
        task.append({1: 10})
        for write in (lambda: old.append({2: 2}, name="other"), lambda: old.update("id = 1")):
            with pytest.raises(IncompatibleChangeError, match="was superseded"):
                write()
        assert content(task.table) == [(1, 10), *OTHERS]


@pytest.mark.costly
class TestSomebodyElse:
    """Another task of the run, another index of a mapped task, and another run."""

    @pytest.mark.parametrize("who", [{"task_id": "other"}, {"map_index": 1}, {"run_id": "r2"}])
    def test_its_rows_stay_and_its_changes_count(self, task, who):
        other = Task(task.table, task.mode, **who)
        task.append({1: 1, 2: 2})
        other.append({3: 3})
        other.update("id in (2, 3)")
        before = content(task.table)
        assert before == [(1, 1), (2, 3), (3, 4), *OTHERS]
        task.clear()
        if task.table.metadata.format_version < 3:
            with pytest.raises(IncompatibleChangeError, match=r"snapshot \d+ \(overwrite, by DAG 'returns'"):
                task.append({1: 10, 2: 20})
            assert content(task.table) == before
            return
        task.append({1: 10, 2: 20})
        assert content(task.table) == [(1, 10), (2, 20), (3, 4), *OTHERS]
        other.clear()
        other.append({3: 30})
        assert content(task.table) == [(1, 10), (2, 20), (3, 30), *OTHERS]

    def test_between_the_task_s_own_writes(self, task):
        task.append({100: 0, 101: 0, 102: 0})
        task.table.delete("id = 102", mode=task.mode)
        task.upsert({101: 5})
        task.table.append(rows({103: 0}))
        task.clear()
        try:
            task.append({100: 1, 101: 1, 102: 1})
        except IncompatibleChangeError:
            assert (task.table.metadata.format_version, task.mode) in ((1, COW), (2, COW))
            return
        task.upsert({101: 6})
        assert content(task.table) == [*OTHERS, (100, 1), (101, 6), (102, 1), (103, 0)]

    def test_a_compaction_of_these_rows_alone(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "v": "long"})
        task = Task(table, COW)
        for number in range(3):
            task.append({number: 0}, name=f"page-{number}")
        everything(table)
        table.append(rows(dict(OTHERS)))
        task.clear()
        task.append({7: 7}, name="page-0")
        assert content(table) == [(7, 7), *OTHERS]
