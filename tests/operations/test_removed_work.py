"""Rows of a DAG run that no task of it will write again: of tasks that were renamed, and of indexes that are gone."""

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError
from airflow_iceberg.hooks.run_tasks import item_of
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.test_changes_input import LATER_MS
from tests.operations.test_changes_input import Lake as Inputs
from tests.operations.test_consumers import Dag
from tests.support.builders import job_work
from tests.support.memory import MemoryCatalog

REFUSED = "holds rows of this DAG run that no task will write again"


class Lake:
    """The table `db.t`, that tasks of the run `r` append to."""

    def __init__(self, version: int = 2) -> None:
        self.catalog = MemoryCatalog()
        Table.create(self.catalog, "db.t", schema={"id": "long"}, properties={"format-version": str(version)})

    def table(self) -> Table:
        return Table.load(self.catalog, "db.t")

    def write(self, key: OperationKey, *ids: int, verb: str = "append", **more) -> str:
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        table = self.table()
        if verb == "overwrite":
            return str(table.overwrite(rows, "id < 0", operation_key=key, check_filter=False, **more).outcome)
        return str(table.append(rows, operation_key=key, **{"on_rerun": "replace", **more}).outcome)

    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.costly)])
def lake(request) -> Lake:
    return Lake(request.param)


def task(dag: Dag, task_id: str = "t", map_index: int = -1, *, epoch: int = 0, **more) -> OperationKey:
    """Return the key of a task; every clear of the run is a new epoch."""
    made = dag.key("r", task_id, map_index, epoch=epoch * 10_000, **{k: more.pop(k) for k in ("write",) if k in more})
    return replace(made, **more)


BEFORE, AFTER = Dag(t=None), Dag(u=None)


class TestATaskThatTheDagNoLongerHas:
    """A write of new rows fails where it meets its rows, unless it is said what becomes of them."""

    @pytest.mark.parametrize("epoch", [0, 1])
    @pytest.mark.parametrize("verb", ["append", "overwrite"])
    def test_a_renamed_one(self, epoch, verb, lake) -> None:
        """Also in the middle of a run, without a clear."""
        lake.write(task(BEFORE), 1)
        now = task(AFTER, "u", epoch=epoch)
        with pytest.raises(IncompatibleChangeError, match=f"{REFUSED}.*the DAG has no task 't' any more"):
            lake.write(now, 1, verb=verb)
        assert lake.ids() == [1]
        lake.write(replace(now, on_removed="remove"), 1, verb=verb)
        assert lake.ids() == [1]
        assert lake.write(now, 1, verb=verb) == "found"
        lake.write(task(AFTER, "u", epoch=2), 2, verb=verb)
        assert lake.ids() == [2]

    @pytest.mark.parametrize("overwrite_filter", ["id = 1", None])
    def test_rows_that_are_overwritten_in_any_case(self, overwrite_filter, lake) -> None:
        lake.write(task(BEFORE), 1)
        rows = pa.table({"id": [1]})
        lake.table().overwrite(rows, overwrite_filter, operation_key=task(AFTER, "u", epoch=1))
        assert lake.ids() == [1]

    def test_kept(self, lake) -> None:
        lake.write(task(BEFORE), 1)
        lake.write(task(AFTER, "u", on_removed="keep"), 2)
        lake.write(task(AFTER, "u", epoch=1, on_removed="keep"), 3)
        assert lake.ids() == [1, 3]

    def test_appended_to(self, lake) -> None:
        """An author who wants rows twice after a clear has them twice."""
        lake.write(task(BEFORE), 1)
        lake.write(task(AFTER, "u"), 1, on_rerun="append")
        assert lake.ids() == [1, 1]

    def test_skipped_is_not_what_another_task_wrote(self, lake) -> None:
        lake.write(task(BEFORE), 1)
        with pytest.raises(IncompatibleChangeError, match=REFUSED):
            lake.write(task(AFTER, "u", epoch=1), 1, on_rerun="skip")

    def test_rows_that_are_gone_are_no_hindrance(self, lake) -> None:
        lake.write(task(BEFORE), 1)
        lake.table().delete("id = 1")
        lake.write(task(AFTER, "u", epoch=1), 2)
        assert lake.ids() == [2]

    def test_nor_those_of_a_run_that_was_undone(self, lake) -> None:
        old = task(BEFORE)
        lake.write(old, 1)
        lake.table().undo(old)
        lake.write(task(AFTER, "u", epoch=1), 2)
        assert lake.ids() == [2]

    def test_nor_those_of_other_runs(self, lake) -> None:
        lake.write(replace(task(BEFORE), run_id="other"), 1)
        lake.write(task(AFTER, "u", epoch=1), 2)
        assert lake.ids() == [1, 2]

    def test_nor_those_of_another_installation(self, lake) -> None:
        lake.write(replace(task(BEFORE), installation="other"), 1)
        lake.write(task(AFTER, "u", epoch=1), 2)
        assert lake.ids() == [1, 2]

    def test_a_merge_changes_what_is_there(self, lake) -> None:
        """It adds no row that is there, whoever has written it."""
        lake.write(task(BEFORE), 1)
        rows = pa.table({"id": [1, 2]})
        lake.table().upsert(rows, ["id"], operation_key=task(AFTER, "u", epoch=1))
        assert lake.ids() == [1, 2]

    def test_compacted_with_rows_of_others(self, lake) -> None:
        lake.write(task(BEFORE), 1)
        lake.table().append(pa.table({"id": [7]}))
        lake.table().delete("id = 100")
        compact(job_work(lake.table()), CompactRequest(options={"min-input-files": "2"}))
        with pytest.raises(IncompatibleChangeError, match=REFUSED):
            lake.write(task(AFTER, "u", epoch=1), 1)
        if lake.table().metadata.format_version == 3:
            lake.write(task(AFTER, "u", epoch=1, on_removed="remove"), 1)
            assert lake.ids() == [1, 7]

    def test_after_its_snapshot_has_expired(self, lake) -> None:
        lake.write(task(BEFORE), 1)
        lake.table().append(pa.table({"id": [7]}))
        expire_snapshots(Work(lake.table()), ExpireSnapshotsRequest(older_than_ms=LATER_MS, retain_last=1))
        now = replace(task(AFTER, "u", epoch=1), try_number=2)
        with pytest.raises(
            IncompatibleChangeError, match=r"will write again .its snapshot has expired.*the DAG has no"
        ):
            lake.write(now, 1)
        with pytest.raises(IncompatibleChangeError, match="cannot tell which rows of an earlier run"):
            lake.write(replace(now, on_removed="keep"), 1)

    @pytest.mark.parametrize(("before", "after"), [((None, -1), (1, 0)), ((1, 0), (None, -1))])
    def test_mapped_or_no_more(self, before, after, lake) -> None:
        lake.write(task(Dag(t=before[0]), map_index=before[1]), 1)
        now = task(Dag(t=after[0]), map_index=after[1], epoch=1)
        with pytest.raises(IncompatibleChangeError, match=f"{REFUSED}.*mapped now"):
            lake.write(now, 1)
        other = task(Dag(t=after[0], u=None), "u", epoch=1)
        with pytest.raises(IncompatibleChangeError, match=f"{REFUSED}.*task 't' is (not )?mapped now"):
            lake.write(other, 5)
        lake.write(replace(now, on_removed="remove"), 1)
        assert lake.ids() == [1]

    def test_an_unknown_word(self) -> None:
        with pytest.raises(InvalidInputError, match="unknown on_removed 'drop'; one of keep, remove"):
            task(AFTER, "u", on_removed="drop")


class TestMapped:
    """An index is refused where another one has written before what it stands for now."""

    def run(
        self, lake: Lake, *items: int, epoch: int, only: tuple[int, ...] = (), count: int | None = None, **more
    ) -> None:
        dag = Dag(t=len(items) if count is None else count)
        for index, item in enumerate(items):
            if not only or index in only:
                lake.write(task(dag, map_index=index, epoch=epoch, item=str(item), **more), item)

    def test_ordinary_reruns(self, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        self.run(lake, 1, 2, 3, epoch=1)
        self.run(lake, 1, 2, 3, epoch=2, only=(1,))
        assert lake.ids() == [1, 2, 3]

    def test_an_index_that_had_failed(self, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0, only=(0, 2))
        self.run(lake, 1, 2, 3, epoch=1, only=(1,))
        assert lake.ids() == [1, 2, 3]

    def test_equal_items(self, lake) -> None:
        self.run(lake, 1, 1, epoch=0)
        self.run(lake, 1, 1, epoch=1)
        assert lake.ids() == [1, 1]

    def test_other_values_of_the_same_items(self, lake) -> None:
        self.run(lake, 1, 2, epoch=0)
        self.run(lake, 11, 12, epoch=1)
        assert lake.ids() == [11, 12]

    def test_without_what_an_older_version_did_not_write(self, lake) -> None:
        dag = Dag(t=2)
        for index in (0, 1):
            lake.write(task(dag, map_index=index), index)
        self.run(lake, 0, 1, epoch=1)
        assert lake.ids() == [0, 1]

    @pytest.mark.parametrize("order", [(2, 1), (2, 3), (0, 1, 2), (3, 1)])
    def test_another_order_doubles_nothing(self, order, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        for index in range(len(order)):
            with suppress(IncompatibleChangeError):
                self.run(lake, *order, epoch=1, only=(index,))
        assert len(set(lake.ids())) == len(lake.ids())

    def test_what_is_refused_until_another_index_has_written_says_what_to_clear(self, lake) -> None:
        self.run(lake, 1, 2, epoch=0)
        with pytest.raises(IncompatibleChangeError, match="clear map index 1 again when map index 0 has written"):
            self.run(lake, 3, 1, epoch=1, only=(1,))
        self.run(lake, 3, 1, epoch=1, only=(0,))
        assert lake.ids() == [2, 3]
        self.run(lake, 3, 1, epoch=2, only=(1,))
        assert lake.ids() == [1, 3]

    @pytest.mark.parametrize("order", [(2, 1), (2, 3), (0, 1, 2), (3, 1, 2, 4), (9,)])
    def test_removed_by_a_word(self, order, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        self.run(lake, *order, epoch=1, on_removed="remove")
        assert lake.ids() == sorted(order)

    def test_a_removed_index_of_a_task_that_is_as_before(self, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        with pytest.raises(IncompatibleChangeError, match="has no map index 2 in this run any more") as caught:
            self.run(lake, 1, 2, epoch=1)
        assert "clear map index" not in str(caught.value)
        self.run(lake, 1, 2, epoch=1, on_removed="keep")
        assert lake.ids() == [1, 2, 3]

    def test_skipped_is_not_another_item(self, lake) -> None:
        lake.write(task(Dag(t=1), map_index=0, item="a"), 1, on_rerun="skip")
        with pytest.raises(IncompatibleChangeError, match="was expanded with other values"):
            lake.write(task(Dag(t=1), map_index=0, epoch=1, item="b"), 2, on_rerun="skip")
        assert lake.write(task(Dag(t=1), map_index=0, epoch=1, item="a"), 1, on_rerun="skip") == "skipped"


class TestMappedAfterAnExpiry:
    """The names of files tell what an index stood for."""

    def run(self, lake: Lake, *items: str, epoch: int, only: tuple[int, ...] = (), **more) -> None:
        """Append a row for each index: the number that its item begins with."""
        count = more.pop("count", len(items))
        for index, item in enumerate(items):
            if not only or index in only:
                on_rerun = more.get("on_rerun", "replace")
                said = {name: value for name, value in more.items() if name != "on_rerun"}
                made = task(Dag(t=count), map_index=index, epoch=epoch, item=item, **said)
                lake.write(made, int(item[0]), on_rerun=on_rerun)

    def expired(self, lake: Lake, *items: str, **more) -> Lake:
        self.run(lake, *items, epoch=0, **more)
        lake.table().append(pa.table({"id": [9]}))
        expire_snapshots(Work(lake.table()), ExpireSnapshotsRequest(older_than_ms=LATER_MS, retain_last=1))
        return lake

    @pytest.mark.parametrize(("index", "order"), [(0, "21"), (1, "21"), (0, "23"), (1, "31")])
    def test_what_another_index_stood_for_is_refused(self, index, order, lake) -> None:
        self.expired(lake, "1", "2")
        refused = f"its snapshot has expired.: what map index {1 - index} stood for is map index {index} now"
        with pytest.raises(IncompatibleChangeError, match=refused):
            self.run(lake, *order, epoch=1, only=(index,))
        assert lake.ids() == [1, 2, 9]
        self.run(lake, *order, epoch=1, only=(index,), on_removed="remove")
        assert lake.ids() == [int(order[index]), 9]

    def test_kept_by_a_word(self, lake) -> None:
        self.expired(lake, "1", "2")
        self.run(lake, "2", "1", epoch=1, only=(0,), on_removed="keep")
        assert lake.ids() == [2, 2, 9]

    @pytest.mark.parametrize("order", [("1", "2", "3"), ("1b", "2b", "3b"), ("4", "5", "6"), ("1", "2", "3", "4")])
    def test_an_honest_clear_is_not_refused(self, order, lake) -> None:
        """Also where the values differ each time, as presigned URLs do, and where there is more to do."""
        self.expired(lake, "1", "2", "3")
        for index, _ in enumerate(order[:3]):
            self.run(lake, *order, epoch=1, only=(index,))
        assert lake.ids() == sorted([*(int(one[0]) for one in order[:3]), 9])

    def test_equal_items(self, lake) -> None:
        self.expired(lake, "1", "1")
        self.run(lake, "1", "1", epoch=1)
        assert lake.ids() == [1, 1, 9]

    def test_rows_of_another_index_that_were_compacted_before_it_wrote(self, lake) -> None:
        self.run(lake, "1", "2", epoch=0, only=(1,))
        lake.table().append(pa.table({"id": [8]}))
        compact(job_work(lake.table()), CompactRequest(options={"rewrite-all": "true"}))
        self.expired(lake, "1", "2", only=(0,))
        with pytest.raises(IncompatibleChangeError, match="may hold rows of another index that stood for those of now"):
            self.run(lake, "2", "1", epoch=1, only=(0,))
        assert lake.ids() == [1, 2, 8, 9]
        self.run(lake, "1", "2", epoch=1, only=(0,))
        self.run(lake, "3", "2", epoch=2, only=(0,), on_removed="keep")
        assert lake.ids() == [2, 3, 8, 9]

    def test_a_removed_index(self, lake) -> None:
        self.expired(lake, "1", "2", "3")
        with pytest.raises(IncompatibleChangeError, match="the task has no map index 2 in this run any more"):
            self.run(lake, "1", "2", epoch=1)
        self.run(lake, "1", "2", epoch=1, on_removed="remove")
        assert lake.ids() == [1, 2, 9]

    def test_skipped_is_not_another_item(self, lake) -> None:
        self.expired(lake, "1", "2", on_rerun="skip")
        with pytest.raises(IncompatibleChangeError, match="was expanded with other values when it added file"):
            self.run(lake, "2", "1", epoch=1, only=(0,), on_rerun="skip")
        self.run(lake, "1", "2", epoch=1, on_rerun="skip")
        assert lake.ids() == [1, 2, 9]

    @pytest.mark.parametrize(("before", "after"), [((None, -1), (1, 0)), ((1, 0), (None, -1))])
    def test_mapped_or_no_more(self, before, after, lake) -> None:
        lake.write(task(Dag(t=before[0]), map_index=before[1]), 1)
        self.expired(lake)
        for key in (task(Dag(t=after[0]), map_index=after[1], epoch=1), task(Dag(t=after[0], u=None), "u", epoch=1)):
            with pytest.raises(IncompatibleChangeError, match=r"its snapshot has expired.*mapped now"):
                lake.write(key, 1)

    def test_files_of_an_older_version_are_known_by_the_index_alone(self, lake, monkeypatch) -> None:
        with monkeypatch.context() as older:
            name = lambda key, tried, unique: f"{key.file_token}-{key.epoch}-{tried}-{unique}"  # noqa: E731
            older.setattr(OperationKey, "file_prefix", name)
            self.expired(lake, "1", "2")
        self.run(lake, "2", "1", epoch=1)
        assert lake.ids() == [1, 2, 9]

    def test_rows_of_changes_are_not_taken_out(self) -> None:
        """Nobody would read the changes again."""
        lake = Inputs()
        lake.add(1)
        lake.run(task(Dag(t=2), map_index=1, item="b"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        lake.add(2)
        now = task(Dag(t=2), map_index=0, item="b", epoch=1, on_removed="remove", try_number=2)
        rows = pa.table({"id": pa.array([5], pa.int64())})
        with pytest.raises(IncompatibleChangeError, match="unless they were made from changes of a table"):
            lake.table("db.t").append(rows, operation_key=now, on_rerun="replace")
        assert lake.ids() == [1, 9]


class TestAWriteKey:
    """The author says what a part of the work is: its order does not count."""

    def run(
        self, lake: Lake, *items: int, epoch: int, only: tuple[int, ...] = (), states: str = "success", **more
    ) -> None:
        for index, item in enumerate(items):
            if not only or index in only:
                dag = Dag(t=len(items))
                dag.waiting = () if only else range(index + 1, len(items))
                made = task(dag, map_index=index, epoch=epoch, item=str(item), write_key=f"file {item}", **more)
                lake.write(made, item)

    @pytest.mark.parametrize("order", [(3, 1, 2), (0, 3, 2, 1), (2, 1, 3)])
    def test_another_order_and_more(self, order, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        self.run(lake, *order, epoch=1)
        assert lake.ids() == sorted(order)

    @pytest.mark.parametrize("order", [(3, 2), (2, 3), (4,), (3,)])
    def test_fewer_by_a_word(self, order, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0, on_removed="remove")
        self.run(lake, *order, epoch=1, on_removed="remove")
        assert lake.ids() == sorted(order)

    def test_fewer_without_a_word(self, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        with pytest.raises(IncompatibleChangeError, match="no map index of the task has write_key 'file 1' any more"):
            self.run(lake, 3, 2, epoch=1)

    def test_one_index_alone(self, lake) -> None:
        self.run(lake, 1, 2, 3, epoch=0)
        self.run(lake, 1, 2, 3, epoch=1, only=(1,), on_removed="remove")
        assert lake.ids() == [1, 2, 3]

    def test_two_indexes_with_the_same_one(self, lake) -> None:
        self.run(lake, 1, epoch=0)
        with pytest.raises(IncompatibleChangeError, match=r"map indexes 0 and 1 of .* have one write_key, 'file 1'"):
            self.run(lake, 1, 1, epoch=0, only=(1,))

    def test_a_retry_finds_its_own(self, lake) -> None:
        made = task(Dag(t=1), map_index=0, write_key="a/b=c#d")
        lake.write(made, 1)
        assert lake.write(replace(made, try_number=2), 1) == "found"
        (snapshot,) = lake.table().snapshots()
        text = snapshot.summary["airflow.operation-key"]
        assert text == "d/r/i/t/=a%2Fb=c%23d/0"
        assert OperationKey.parse(text).write_key == "a/b=c#d"

    @pytest.mark.parametrize("mapped", [True, False])
    def test_a_task_that_had_none(self, mapped, lake) -> None:
        dag, index = (Dag(t=1), 0) if mapped else (BEFORE, -1)
        lake.write(task(dag, map_index=index), 1)
        with pytest.raises(IncompatibleChangeError, match="the task has a write_key now"):
            lake.write(task(dag, map_index=index, epoch=1, write_key="a"), 1)
        lake.write(task(dag, map_index=index, epoch=1, write_key="a", on_removed="remove"), 1)
        assert lake.ids() == [1]
        with pytest.raises(IncompatibleChangeError, match="the task has no write_key now"):
            lake.write(task(dag, map_index=index, epoch=2), 1)

    def test_one_that_has_changed_in_a_task_that_is_not_mapped(self, lake) -> None:
        lake.write(task(BEFORE, write_key="a"), 1)
        with pytest.raises(IncompatibleChangeError, match="the task's write_key is 'b' now"):
            lake.write(task(BEFORE, epoch=1, write_key="b"), 2)

    def test_several_in_one_function(self, lake) -> None:
        def run(epoch: int, *names: str, **more) -> None:
            for name in names:
                made = task(BEFORE, epoch=epoch, write_key=name, write="append-1", **more)
                lake.write(made, int(name))

        run(0, "1", "2", "3")
        run(1, "3", "1", "2")
        assert lake.ids() == [1, 2, 3]
        run(2, "3", "2", on_removed="remove")
        assert lake.ids() == [2, 3]

    @pytest.mark.parametrize("word", [None, "remove"])
    def test_several_in_one_function_of_a_mapped_task(self, word, lake) -> None:
        for epoch in (0, 1):
            dag = Dag(t=2)
            for index, name in ((0, 1), (0, 2), (1, 3), (1, 4)):
                dag.waiting = range(index + 1, 2)
                made = task(dag, map_index=index, epoch=epoch, write_key=f"{name}", write="append-1", on_removed=word)
                lake.write(made, name)
            assert lake.ids() == [1, 2, 3, 4]

    def test_a_function_that_writes_also_without_one(self, lake) -> None:
        for epoch in (0, 1):
            lake.write(task(BEFORE, epoch=epoch, write="append-1"), 1)
            lake.write(task(BEFORE, epoch=epoch, write_key="a", write="append-1"), 2)
        assert lake.ids() == [1, 2]

    def test_what_is_skipped_is_not_removed(self, lake) -> None:
        """An index that leaves it at the rows that another one has written makes no commit that would tell."""
        for epoch, names in ((0, "12"), (1, "31")):
            dag = Dag(t=2)
            for index in (1, 0):
                dag.waiting = range(index)
                made = task(dag, map_index=index, epoch=epoch, write_key=names[index], on_removed="remove")
                lake.write(made, int(names[index]), on_rerun="skip")
        assert lake.ids() == [1, 2, 3]

    @pytest.mark.parametrize("on_rerun", ["skip", "replace"])
    def test_what_is_skipped_in_one_function(self, on_rerun, lake) -> None:
        """What another write has taken out is written again."""
        for epoch, names in ((0, "12"), (1, "132")):
            for name in names:
                made = task(BEFORE, epoch=epoch, write_key=name, write="append-1", on_removed="remove")
                lake.write(made, int(name), on_rerun="skip" if name == "2" else on_rerun)
        assert lake.ids() == [1, 2, 3]

    @pytest.mark.parametrize("word", [None, "remove"])
    def test_one_index_alone_after_all_were_published(self, word, lake) -> None:
        """The snapshot that was published names the parts, and no map index."""
        _publish(lake, *(task(Dag(t=2), map_index=n, write_key=f"{n}", on_removed=word) for n in (0, 1)))
        assert lake.ids() == [0, 1, 8, 9]
        lake.write(task(Dag(t=2), map_index=0, epoch=1, write_key="0", on_removed=word), 7)
        assert lake.ids() == [1, 7, 8, 9]

    def test_a_removed_task_that_was_published_with_another_one(self, lake) -> None:
        _publish(lake, task(Dag(t=None, v=None)), task(Dag(t=None, v=None), "v"))
        lake.write(task(Dag(u=None, v=None, p=None), "u", epoch=1, on_removed="remove"), 7)
        assert lake.ids() == [1, 7, 8, 9]


def _publish(lake: Lake, *keys: OperationKey) -> None:
    """Publish what tasks append to a branch, row 0, 1 and so on, after main has moved on."""
    lake.write(task(BEFORE, run_id="other"), 8)
    lake.table().create_branch("b")
    for number, made in enumerate(keys):
        lake.table().append(pa.table({"id": [number]}), branch="b", operation_key=made)
    lake.write(task(BEFORE, run_id="another"), 9)
    snapshot = lake.table().metadata.ref_snapshot("b")
    assert snapshot is not None
    work = Work(lake.table(), operation_key=task(Dag(t=2, p=None), "p"))
    publish(work, PublishRequest(branch="b", snapshot_id=snapshot.snapshot_id))


class TestIndexesThatStandForTheSame:
    """Equal items are no sign that an index has moved."""

    def test_one_that_had_failed(self, lake) -> None:
        dag = Dag(t=3)
        for index in (1, 2):
            lake.write(task(dag, map_index=index, item="same"), index)
        lake.write(task(dag, map_index=0, item="same", epoch=1), 0)
        assert lake.ids() == [0, 1, 2]

    def test_without_values_none_is_known(self) -> None:
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=1)
        given = SimpleNamespace(template_fields=("op_args", "op_kwargs"), op_args=(), op_kwargs={})
        assert item_of({"ti": ti, "task": given}) is None
        given.op_kwargs = {"day": 0}
        assert item_of({"ti": ti, "task": given}) is not None
