"""Whose watermark it is, and what it says was read: a filter that changes, tasks and DAGs that are renamed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.runs.consumed import PREFIX
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, StalePlanError
from airflow_iceberg.hooks.run_tasks import TasksOfRun
from airflow_iceberg.operations.inputs.changes import Changes, ChangesOptions
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from tests.operations.test_changes_input import Lake, key

CHANGED = "what is read of the changes is not what was read up to snapshot"
WHOSE = "has read no changes of this input yet, and 'd.t' has read some"


@pytest.fixture
def lake() -> Lake:
    return Lake()


def read(lake: Lake, **more) -> dict[str, Changes]:
    options = {name: more.pop(name) for name in ("mode",) if name in more}
    return {"o": replace(lake.changes(), options=ChangesOptions(**options), **more)}


def damaged(lake: Lake, *names: str) -> None:
    """Take these entries out of the watermarks that are properties of the table."""
    table = lake.table("db.t")
    kept = {name: json.loads(text) for name, text in table.metadata.properties.items() if name.startswith(PREFIX)}
    for document in kept.values():
        for entry in document["inputs"].values():
            for name in names:
                entry.pop(name, None)
    table.alter([{"set_properties": {name: json.dumps(document) for name, document in kept.items()}}])


class Dag:
    """What Airflow tells of a DAG: its tasks, and which of them are mapped to how many indexes."""

    def __init__(self, **tasks: int | None) -> None:
        self.tasks = tasks
        self.waiting: Sequence[int] = ()
        self.ended: Mapping[str, Mapping[str, str]] = {}  # what Airflow says of other runs

    def key(self, run: str, task_id: str = "t", map_index: int = -1, **more) -> OperationKey:
        def states(*, run_ids, **_):
            if run_ids != [run]:
                return self.ended
            count = self.tasks.get(task_id) or 0
            known = {number: "scheduled" if number in self.waiting else "success" for number in range(count)}
            return {run: {f"{task_id}_{number}": state for number, state in known.items()}}

        ti = SimpleNamespace(dag_id="d", run_id=run, task_id=task_id, map_index=map_index, get_task_states=states)
        dag = SimpleNamespace(
            task_dict={name: SimpleNamespace(is_mapped=count is not None) for name, count in self.tasks.items()}
        )
        made = key(run, **{"task_id": task_id, "map_index": map_index, **more})
        return replace(made, run_tasks=TasksOfRun.of({"ti": ti, "dag": dag}))


class TestWhatIsRead:
    """A watermark knows what was read up to it: who reads something else after it loses rows, or reads twice."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"row_filter": "id < 5"}, {}),
            ({}, {"row_filter": "id < 5"}),
            ({"row_filter": "id < 5"}, {"row_filter": "id >= 5"}),
            (
                {"row_filter": "id < :n", "predicate_params": {"n": 5}},
                {"row_filter": "id < :n", "predicate_params": {"n": 6}},
            ),
            ({"mode": "append"}, {"mode": "changelog"}),
            ({"mode": "changelog", "row_filter": "id < 5"}, {"mode": "changelog"}),
            ({"mode": "changelog", "selected_fields": ("id",)}, {"mode": "changelog"}),
        ],
    )
    def test_something_else_is_refused(self, before, after, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, **before))
        lake.add(2, 7)
        with pytest.raises(IncompatibleChangeError, match=CHANGED):
            lake.run(key("r2"), inputs=read(lake, **after))
        assert lake.ids() == [1]
        lake.run(key("r3"), inputs=read(lake, **before))
        assert lake.ids() == ([1, 2] if "row_filter" in before else [1, 2, 7])

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"row_filter": "id in (1, 2, 3)"}, {"row_filter": "id  IN (3, 1, 2)"}),
            ({"row_filter": "id < 5 and id > 0"}, {"row_filter": "id > 0 and id < 5"}),
            ({"row_filter": "id < 5"}, {"row_filter": "id < :n", "predicate_params": {"n": 5}}),
            ({"selected_fields": ("id",)}, {"selected_fields": ("*",)}),
        ],
    )
    def test_the_same_in_other_words_goes_on(self, before, after, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, **before))
        lake.add(2)
        lake.run(key("r2"), inputs=read(lake, **after))
        assert lake.ids() == [1, 2]

    def test_a_renamed_column_is_the_same(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, row_filter="id < 5"))
        lake.table("db.o").alter([{"rename_column": {"from": "id", "to": "number"}}])
        lake.table("db.o").append(pa.table({"number": [2, 7]}))
        lake.run(key("r2"), "select number as id from o", inputs=read(lake, row_filter="number < 5"))
        assert lake.ids() == [1, 2]

    def test_since_goes_on_with_the_new_filter(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, row_filter="id < 5"))
        head = lake.head()
        lake.add(2, 7)
        lake.run(key("r2"), inputs={"o": lake.changes(snapshot_id=head)})
        lake.add(8)
        lake.run(key("r3"))
        assert lake.ids() == [1, 2, 7, 8]

    def test_a_cleared_run_reads_its_range_with_the_filter_of_today(self, lake) -> None:
        lake.add(1, 7)
        lake.run(key("r1"), inputs=read(lake, row_filter="id < 5"))
        lake.run(key("r1", epoch=1), inputs=read(lake))
        assert lake.ids() == [1, 7]
        lake.add(2)
        with pytest.raises(IncompatibleChangeError, match=CHANGED):
            lake.run(key("r2"))

    def test_after_the_target_has_expired(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, row_filter="id < 5"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        with pytest.raises(IncompatibleChangeError, match=CHANGED):
            lake.run(key("r2"))

    def test_a_watermark_that_does_not_say_is_that_of_something_else(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        damaged(lake, "reads")
        lake.add(2)
        with pytest.raises(IncompatibleChangeError, match=CHANGED):
            lake.run(key("r2"))
        assert lake.ids() == [1, 9]


class TestAnotherName:
    """Who has no watermark would read everything; where others have read the same input, that may be twice."""

    @pytest.mark.parametrize(
        "now",
        [
            {"task_id": "renamed"},
            {"task_id": "group.t"},
            {"map_index": 0},
            {"dag_id": "e"},
            {"write_key": "eu"},
        ],
    )
    @pytest.mark.parametrize("expired", [False, True])
    def test_is_refused_until_it_says_whose_it_is(self, now, expired, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        if expired:
            lake.add(9, to="db.t")
            lake.expire("db.t")
        lake.add(2)
        with pytest.raises(IncompatibleChangeError, match=WHOSE) as refused:
            lake.run(key("r2", **now))
        assert "set consumer='d.t', which goes on there" in str(refused.value)
        with pytest.raises(IncompatibleChangeError, match=r"and 'd\.t' has read some"):
            lake.run(key("r2", **now), inputs=read(lake, consumer="mine"))
        lake.run(key("r2", **now), inputs=read(lake, consumer="d.t"))
        lake.add(3)
        lake.run(key("r3", **now), inputs=read(lake, consumer="d.t"))
        assert [one for one in lake.ids() if one != 9] == [1, 2, 3]
        with pytest.raises(IncompatibleChangeError, match=r"as consumer 'd\.t' before|and 'd.t' has read some"):
            lake.run(key("r4", **now))

    def test_older_snapshots_beside_the_last_one_are_no_rollback(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        for number in (2, 3):
            lake.add(number)
            lake.run(key(f"r{number}"))
        assert lake.ids() == [1, 2, 3, 9]

    def test_a_mapped_one_has_its_index_in_the_name(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1", map_index=3))
        lake.add(2)
        lake.run(key("r2", task_id="u"), inputs=read(lake, consumer="d.t[3]"))
        assert lake.ids() == [1, 2]

    def test_other_work_says_where_it_begins(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.run(key("r1", task_id="u"), inputs={"o": Changes(open=lambda: lake.table("db.o"))})
        lake.add(2)
        lake.run(key("r2", task_id="u"))
        lake.run(key("r2"))
        assert lake.ids() == [1, 1, 2, 2]

    def test_of_whom_nobody_knows_when_it_has_begun(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        damaged(lake, "begun")
        with pytest.raises(IncompatibleChangeError, match=WHOSE):
            lake.run(key("r1", task_id="u"))

    def test_who_begins_in_the_same_run_is_new(self, lake) -> None:
        lake.add(1, 7)
        dag = Dag(t=2)
        lake.run(dag.key("r1", map_index=0), inputs=read(lake, row_filter="id < 5"))
        lake.run(dag.key("r1", map_index=1), inputs=read(lake, row_filter="id >= 5"))
        lake.add(2, 8)
        lake.run(dag.key("r2", map_index=1), inputs=read(lake, row_filter="id >= 5"))
        lake.run(dag.key("r2", map_index=0), inputs=read(lake, row_filter="id < 5"))
        assert lake.ids() == [1, 2, 7, 8]

    @pytest.mark.parametrize(
        ("ended", "is_new"),
        [
            ({"r1": {"u": "success"}}, True),
            ({"r1": {"u": "failed"}}, False),
            ({"r1": {"u_0": "success"}}, False),
            ({"r1": {}}, False),
            ({}, False),
        ],
    )
    def test_who_had_no_rows_in_that_run_is_new(self, ended, is_new, lake) -> None:
        """Nothing was committed then, and nothing is in the table that it could have read under another name."""
        lake.add(1)
        dag = Dag(t=None, u=None)
        dag.ended = ended
        lake.run(dag.key("r1"), inputs=read(lake, row_filter="id < 5"))
        lake.run(dag.key("r1", task_id="u"), inputs=read(lake, row_filter="id >= 5"))
        lake.add(7)
        now = dag.key("r2", task_id="u"), read(lake, row_filter="id >= 5")
        if not is_new:
            with pytest.raises(IncompatibleChangeError, match=f"{WHOSE}.*clear its task in DAG run 'r1'"):
                lake.run(now[0], inputs=now[1])
            return
        lake.run(now[0], inputs=now[1])
        assert lake.ids() == [1, 7]
        gone = Dag(u=None, v=None)
        gone.ended = {"r1": {"v": "success"}}
        with pytest.raises(IncompatibleChangeError, match=WHOSE):
            lake.run(gone.key("r3", task_id="v"))

    @pytest.mark.parametrize("now", [{"task_id": "u"}, {"task_id": "t", "map_index": 0}])
    def test_but_not_one_that_the_run_no_longer_has(self, now, lake) -> None:
        lake.add(1)
        lake.run(Dag(t=None).key("r1"))
        dag = Dag(**{now["task_id"]: 1 if "map_index" in now else None})
        with pytest.raises(IncompatibleChangeError, match=WHOSE):
            lake.run(replace(dag.key("r1", epoch=1, **now), on_removed="keep"))

    def test_the_filters_of_a_mapped_task_in_another_order(self, lake) -> None:
        """The example: `["eu"]`, and then `["us", "eu"]`."""
        lake.add(1, 7)
        lake.run(Dag(t=1).key("r1", map_index=0), inputs=read(lake, row_filter="id < 5"))
        lake.add(2, 8)
        for index, row_filter in enumerate(("id >= 5", "id < 5")):
            with pytest.raises(IncompatibleChangeError, match=f"{CHANGED}|has read some"):
                lake.run(Dag(t=2).key("r2", map_index=index), inputs=read(lake, row_filter=row_filter))
        assert lake.ids() == [1]

    def test_an_item_that_another_index_has_read_further(self, lake) -> None:
        """Also in the run in which both begin: index 1 would read again what index 0 has read as its item."""
        lake.add(1)
        lake.run(replace(Dag(t=1).key("r1", map_index=0), item="eu"), inputs=read(lake, row_filter="id < 5"))
        lake.add(2)
        lake.run(replace(Dag(t=1).key("r2", map_index=0), item="eu 2"), inputs=read(lake, row_filter="id < 5"))
        now = Dag(t=2)
        first = replace(now.key("r1", map_index=0, epoch=1), item="us")
        lake.run(first, inputs=read(lake, row_filter="id >= 5"))
        second = replace(now.key("r1", map_index=1, epoch=1), item="eu")
        with pytest.raises(IncompatibleChangeError, match=r"'d.t\[0\]' has read some"):
            lake.run(second, inputs=read(lake, row_filter="id < 5"))
        other = replace(now.key("r1", map_index=1, epoch=1), item="asia")
        lake.run(other, inputs=read(lake, row_filter="id >= 5"))

    def test_with_a_consumer_each(self, lake) -> None:
        regions = {"eu": "id < 5", "us": "id >= 5"}

        def run(name: str, *order: str) -> None:
            for index, one in enumerate(order):
                inputs = read(lake, row_filter=regions[one], consumer=f"orders-{one}")
                lake.run(Dag(t=len(order)).key(name, map_index=index), inputs=inputs)

        lake.add(1, 7)
        run("r1", "eu")
        lake.add(2, 8)
        run("r2", "us", "eu")
        lake.add(3, 9)
        run("r3", "eu", "us")
        assert lake.ids() == [1, 2, 3, 7, 8, 9]


class TestAName:
    """The author's own name holds whatever becomes of task and DAG."""

    @pytest.mark.parametrize("now", [{"task_id": "u"}, {"dag_id": "e"}, {"map_index": 4}, {"installation": "other"}])
    def test_after_a_rename(self, now, lake) -> None:
        inputs = read(lake, consumer="silver")
        lake.add(1)
        lake.run(key("r1"), inputs=inputs)
        lake.add(2)
        lake.run(key("r2", **now), inputs=inputs)
        assert lake.run(key("r3"), inputs=inputs).outcome == "nothing"
        assert lake.ids() == [1, 2]

    @pytest.mark.parametrize("expired", [False, True])
    def test_given_to_a_task_that_has_read_before_goes_on(self, expired, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        if expired:
            lake.add(9, to="db.t")
            lake.expire("db.t")
        lake.add(2)
        lake.run(key("r2"), inputs=read(lake, consumer="silver"))
        lake.add(3)
        lake.run(key("r3", task_id="u"), inputs=read(lake, consumer="silver"))
        assert [one for one in lake.ids() if one != 9] == [1, 2, 3]
        kept = [name for name in lake.table("db.t").metadata.properties if name.startswith(PREFIX)]
        assert len(kept) == 1
        with pytest.raises(IncompatibleChangeError, match=r"'silver' (before, and has no|has read)"):
            lake.run(key("r4"))

    def test_that_is_changed_is_refused(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs=read(lake, consumer="silver"))
        with pytest.raises(IncompatibleChangeError, match="'silver' before, and is 'gold' now; if it is the same"):
            lake.run(key("r2"), inputs=read(lake, consumer="gold"))

    def test_two_runs_of_one_consumer_beside_each_other(self, lake) -> None:
        inputs = read(lake, consumer="silver")
        lake.add(1)
        lake.run(key("r1"), inputs=inputs)
        lake.add(2)

        def other_run() -> None:
            lake.meanwhile = lambda: None
            lake.run(key("r2", task_id="u"), inputs=inputs)

        lake.meanwhile = other_run
        with pytest.raises(StalePlanError, match="would be in the table twice"):
            lake.run(key("r2"), inputs=inputs)
        assert lake.ids() == [1, 2]

    def test_a_lost_try_and_a_clear(self, lake) -> None:
        inputs = read(lake, consumer="silver")
        lake.add(1)
        lake.run(key("r1"), inputs=inputs)
        assert lake.run(key("r1", tries=2), inputs=inputs).outcome == "found"
        lake.add(2)
        lake.run(key("r1", epoch=1), inputs=inputs)
        assert lake.ids() == [1]
        lake.run(key("r2"), inputs=inputs)
        assert lake.ids() == [1, 2]

    @pytest.mark.parametrize("on_rerun", ["replace", "skip"])
    def test_a_run_that_is_created_again_after_an_expiry(self, on_rerun, lake) -> None:
        """Its watermark says that it has written, though its first try has nothing else to know it by."""
        lake.add(1)
        lake.run(key("r1"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        lake.run(key("r1", epoch=10_000_000, is_cleared=False, started_ms=now_ms()), on_rerun=on_rerun)
        assert lake.ids() == [1, 9]

    def test_through_a_branch_that_is_published(self, lake) -> None:
        inputs = read(lake, consumer="silver")
        lake.add(1)
        lake.add(9, to="db.t")
        for number in (1, 2):
            branch = f"audit{number}"
            lake.table("db.t").create_branch(branch)
            lake.run(key(f"r{number}", task_id=f"t{number}"), inputs=inputs, branch=branch)
            table = lake.table("db.t")
            head = table.metadata.ref_snapshot(branch).snapshot_id
            publish(Work(table), PublishRequest(branch=branch, snapshot_id=head))
            lake.add(number + 1)
        lake.expire("db.t")
        lake.run(key("r3"), inputs=inputs)
        assert lake.ids() == [1, 2, 3, 9]

    @pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
    def test_no_name(self, name, lake) -> None:
        with pytest.raises(InvalidInputError, match="expected a name of at most 200 characters"):
            read(lake, consumer=name)
