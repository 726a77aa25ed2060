"""Rows that are made from the changes of other tables: each change once, whatever happens to the tasks."""

import json
import pickle

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.cherry_pick import CherryPick
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.runs.consumed import PREFIX
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError, StalePlanError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.table_reader import plan_pinned
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.changes import Changes, ChangesOptions, Consumer
from airflow_iceberg.operations.inputs.tables import Input, pin
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog

LATER_MS = 4_000_000_000_000
ALL = "select id from o"


def key(run: str, epoch: int = 0, tries: int = 1, **more) -> OperationKey:
    known = {"dag_id": "d", "task_id": "t", "installation": "i", "is_cleared": epoch > 0, "try_number": tries}
    return OperationKey(**{**known, **more}, run_id=run, epoch=epoch)


class Lake:
    """The table `db.o`, whose changes a task writes to `db.t`."""

    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        Table.create(self.catalog, "db.o", schema={"id": "long"})
        Table.create(self.catalog, "db.t", schema={"id": "long"})
        self.meanwhile = lambda: None
        self.plan: JobPlan | None = None

    def table(self, name: str) -> Table:
        return Table.load(self.catalog, name)

    def add(self, *ids: int, to: str = "db.o", **more) -> int:
        table = self.table(to)
        table.append(pa.table({"id": ids}), **more)
        return self.head(to)

    def head(self, name: str = "db.o") -> int:
        return self.table(name).current_snapshot().snapshot_id

    def ids(self, name: str = "db.t", **scan) -> list[int]:
        return sorted(self.table(name).scan(**scan).to_arrow()["id"].to_pylist())

    def changes(self, name: str = "db.o", *, mode: str = "append", **chosen) -> Changes:
        chosen = chosen or {"is_since_last": True}
        return Changes(open=lambda: self.table(name), options=ChangesOptions(mode=mode), **chosen)

    def run(self, work_key: OperationKey | None, sql: str = ALL, inputs=None, do=append, **request):
        table = self.table("db.t")

        def job(plan):
            self.plan = read = JobPlan.open(table.io, plan.location, str(plan.seal))
            self.meanwhile()
            return run_local(read, table.io, threads=1)

        kind = AppendRequest if do is append else OverwriteRequest
        given = {"o": self.changes()} if inputs is None else inputs
        source = Source.from_sql(sql, dialect="duckdb")
        tries = None if work_key is None else work_key.try_number
        work = Work(table, run=job, operation_key=work_key, try_number=tries)
        return do(work, kind(rows=source, inputs=given, **request))

    def expire(self, name: str, *, retain_last: int = 1, **more) -> None:
        request = ExpireSnapshotsRequest(older_than_ms=LATER_MS, retain_last=retain_last, **more)
        expire_snapshots(Work(self.table(name)), request)


@pytest.fixture
def lake() -> Lake:
    return Lake()


class TestIntoAMerge:
    """A merge moves the watermark as an append does: what was read is committed with what was changed."""

    def merge(self, lake, work_key: OperationKey, meanwhile=lambda: None):
        table = lake.table("db.t")

        def job(plan):
            meanwhile()
            return run_local(JobPlan.open(table.io, plan.location, str(plan.seal)), table.io, threads=1)

        source = Source.from_sql(ALL, dialect="duckdb")
        request = MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb", inputs={"o": lake.changes()})
        return merge(Work(table, run=job, operation_key=work_key, try_number=work_key.try_number), request)

    @pytest.mark.costly
    def test_runs_one_after_the_other(self, lake) -> None:
        lake.add(1)
        assert self.merge(lake, key("r1")).added_records == 1
        lake.add(2)
        result = self.merge(lake, key("r2"))
        assert (lake.ids(), result.added_records, result.updated_records) == ([1, 2], 1, 0)
        assert self.merge(lake, key("r3")).outcome == "nothing"

    def test_after_the_target_has_expired(self, lake) -> None:
        lake.add(1)
        self.merge(lake, key("r1"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        lake.add(2)
        assert self.merge(lake, key("r2")).added_records == 1
        assert lake.ids() == [1, 2, 9]

    def test_beside_another_run_the_rows_are_read_once(self, lake) -> None:
        lake.add(1)

        def other_run() -> None:
            if not lake.ids():
                self.merge(lake, key("r1"))

        assert self.merge(lake, key("r2"), meanwhile=other_run).outcome == "nothing"
        assert lake.ids() == [1]

    def test_a_lost_answer_is_found_and_the_range_is_not_read_twice(self, lake) -> None:
        lake.add(1)
        self.merge(lake, key("r1"))
        lake.add(2)
        assert self.merge(lake, key("r1", tries=2)).outcome == "found"
        assert lake.ids() == [1]


class TestSinceLast:
    """A run reads what has changed since the run before it; the first one reads all rows."""

    def test_runs_one_after_the_other(self, lake) -> None:
        lake.add(1)
        lake.add(2)
        lake.run(key("r1"))
        assert lake.ids() == [1, 2]
        first = lake.head()
        lake.add(3)
        result = lake.run(key("r2"))
        assert (lake.ids(), result.added_records) == ([1, 2, 3], 1)
        entry = result.inputs["o"]
        assert (entry["mode"], entry["from-snapshot-id"], entry["snapshot-id"]) == (
            "append",
            str(first),
            str(lake.head()),
        )

    def test_nothing_new_commits_nothing_and_loses_nothing(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        head = lake.head("db.t")
        assert lake.run(key("r2")).outcome == "nothing"
        assert lake.head("db.t") == head
        lake.add(2)
        lake.run(key("r3"))
        assert lake.ids() == [1, 2]

    def test_a_table_that_has_no_rows_yet(self, lake) -> None:
        assert lake.run(key("r1")).outcome == "nothing"
        lake.add(1)
        lake.run(key("r2"))
        assert lake.ids() == [1]

    def test_a_range_whose_rows_the_query_leaves_out_is_read_again(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(2)
        assert lake.run(key("r2"), "select id from o where id > 2").outcome == "nothing"
        lake.add(3)
        lake.run(key("r3"))
        assert lake.ids() == [1, 2, 3]

    def test_a_changelog(self, lake) -> None:
        lake.add(1, 2)
        sql = "select case _change_type when 'delete' then -id else id end as id from o"
        inputs = {"o": lake.changes(mode="changelog")}
        lake.run(key("r1"), sql, inputs)
        lake.table("db.o").delete("id = 1")
        lake.add(3)
        lake.run(key("r2"), sql, inputs)
        assert lake.ids() == [-1, 1, 2, 3]

    @pytest.mark.costly
    def test_two_inputs_and_one_that_is_read_as_a_whole(self, lake) -> None:
        Table.create(lake.catalog, "db.p", schema={"id": "long"})
        lake.add(1)
        lake.add(10, to="db.p")
        whole = Input(open=lambda: lake.table("db.o"))
        inputs = {"o": lake.changes(), "p": lake.changes("db.p"), "w": whole}
        sql = "select id from o union all select id from p union all select id + 100 from w where id = 1"
        lake.run(key("r1"), sql, inputs)
        lake.add(11, to="db.p")
        lake.run(key("r2"), sql, inputs)
        assert lake.ids() == [1, 10, 11, 101, 101]

    @pytest.mark.costly
    def test_an_overwrite(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), do=overwrite, overwrite_filter="true")
        lake.add(2)
        lake.run(key("r2"), do=overwrite, overwrite_filter="id = 2")
        lake.run(key("r3"), do=overwrite, overwrite_filter="true")
        assert lake.ids() == [1, 2]

    def test_tasks_have_a_watermark_each(self, lake) -> None:
        lake.add(1)
        for task in ("a", "b"):
            lake.run(key("r1", task_id=task))
        lake.run(key("r1", task_id="a", map_index=3))
        assert lake.ids() == [1, 1, 1]

    def test_a_branch_of_the_target_has_one_of_its_own(self, lake) -> None:
        lake.add(1)
        lake.add(9, to="db.t")
        lake.table("db.t").create_branch("audit")
        lake.run(key("r1"), branch="audit")
        assert lake.run(key("r2"), branch="audit").outcome == "nothing"
        lake.run(key("r3"))
        assert (lake.ids(), lake.ids(ref="audit")) == ([1, 9], [1, 9])


class TestSince:
    """The author says where changes begin; the next run may begin at the last ones again."""

    @pytest.mark.costly
    def test_a_snapshot_a_tag_and_a_time(self, lake) -> None:
        lake.add(1)
        table = lake.table("db.o")
        first = table.current_snapshot()
        table.create_tag("start")
        lake.add(2)
        moment = first.timestamp_ms
        for number, chosen in enumerate(({"snapshot_id": first.snapshot_id}, {"since_ref": "start"})):
            lake.run(key(f"r{number}"), inputs={"o": lake.changes(**chosen)})
        assert lake.ids() == [2, 2]
        lake.run(key("all"), inputs={"o": lake.changes(as_of_ms=moment)})
        assert lake.ids()[:2] == [2, 2]
        lake.add(3)
        lake.run(key("last"))
        assert lake.ids()[-1] == 3
        assert lake.ids().count(3) == 1

    @pytest.mark.costly
    def test_from_the_beginning(self, lake) -> None:
        lake.add(1)
        everything = Changes(open=lambda: lake.table("db.o"))
        lake.run(key("r1"), inputs={"o": everything})
        lake.run(key("r2"), inputs={"o": everything})
        assert lake.ids() == [1, 1]
        assert lake.run(key("r3")).outcome == "nothing"

    def test_outside_of_airflow_there_is_no_last_time(self, lake) -> None:
        lake.add(1)
        with pytest.raises(InvalidInputError, match="input 'o': only a task has a last time"):
            lake.run(None)
        lake.run(None, inputs={"o": Changes(open=lambda: lake.table("db.o"))})
        assert lake.ids() == [1]
        assert not [name for name in lake.table("db.t").properties if name.startswith(PREFIX)]

    @pytest.mark.parametrize(
        ("chosen", "error", "message"),
        [
            ({"since_ref": "nope"}, NotFoundError, "input 'o': no branch or tag 'nope'"),
            ({"snapshot_id": 5}, NotFoundError, "input 'o': snapshot 5 is not in"),
            ({"as_of_ms": 5}, NotFoundError, "input 'o': table .* has no snapshot as old as 5 ms"),
            ({"as_of_ms": 5, "snapshot_id": 5}, InvalidInputError, "input 'o': a scan reads one point"),
            ({"is_since_last": True, "ref": "nope"}, NotFoundError, "input 'o': no branch or tag 'nope'"),
            ({"is_since_last": True, "selected_fields": ("x",)}, NotFoundError, "input 'o': .*x"),
        ],
    )
    def test_what_is_not_there(self, lake, chosen, error, message) -> None:
        lake.add(1)
        with pytest.raises(error, match=message):
            lake.run(key("r1"), inputs={"o": lake.changes(**chosen)})
        assert lake.plan is None


class TestTriesAndClears:
    """A retry reads on from the same place, a cleared task reads its own range again."""

    def test_a_retry_that_finds_its_commit_reads_nothing(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(2)
        assert lake.run(key("r1", tries=2)).outcome == "found"
        assert lake.ids() == [1]
        lake.run(key("r2"))
        assert lake.ids() == [1, 2]

    @pytest.mark.costly
    def test_a_cleared_run_in_the_middle_moves_no_watermark(self, lake) -> None:
        for number in (1, 2):
            lake.add(number)
            lake.run(key(f"r{number}"))
        lake.add(3)
        result = lake.run(key("r1", epoch=1, tries=2))
        assert (lake.ids(), result.inputs["o"]["again"]) == ([1, 2], True)
        lake.run(key("r2", epoch=1, tries=2))
        lake.run(key("r1", epoch=2, tries=3))
        assert lake.ids() == [1, 2]
        lake.run(key("r3"))
        assert lake.ids() == [1, 2, 3]

    @pytest.mark.costly
    def test_its_rows_are_replaced(self, lake) -> None:
        lake.add(1, 2)
        lake.run(key("r1"))
        lake.add(3)
        lake.run(key("r1", epoch=1, tries=2), "select id + 100 as id from o")
        assert lake.ids() == [101, 102]
        lake.run(key("r1", epoch=2, tries=3), "select id from o where id > 50")
        assert lake.ids() == []
        lake.run(key("r2"))
        assert lake.ids() == [3]

    @pytest.mark.costly
    def test_a_run_that_had_nothing_to_read_reads_what_there_is_now(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.run(key("r2"))
        lake.add(2)
        lake.run(key("r2", epoch=1, tries=2))
        assert lake.ids() == [1, 2]

    def test_two_runs_at_a_time(self, lake) -> None:
        lake.add(1)

        def other():
            lake.meanwhile = lambda: None
            lake.run(key("r2"))

        lake.meanwhile = other
        with pytest.raises(StalePlanError, match="input 'o': another run of this task has read its changes meanwhile"):
            lake.run(key("r1"))
        assert lake.ids() == [1]
        assert lake.run(key("r1", tries=2)).outcome == "nothing"

    @pytest.mark.costly
    def test_after_a_rollback_the_changes_are_read_again(self, lake) -> None:
        for number in (1, 2):
            lake.add(number)
            lake.run(key(f"r{number}"))
        table = lake.table("db.t")
        table.set_current_snapshot(table.snapshots()[0].snapshot_id)
        lake.run(key("r3"))
        assert lake.ids() == [1, 2]
        lake.run(key("r2", epoch=1, tries=2))
        assert lake.ids() == [1, 2]

    def test_after_a_rollback_to_nothing(self, lake) -> None:
        lake.add(9, to="db.t")
        start = lake.head("db.t")
        lake.add(1)
        lake.run(key("r1"))
        lake.table("db.t").set_current_snapshot(start)
        lake.run(key("r2"))
        assert lake.ids() == [1, 9]


class TestExpiry:
    """The watermark outlives the snapshots of the target."""

    @pytest.mark.costly
    def test_of_the_target(self, lake) -> None:
        for number in (1, 2):
            lake.add(number)
            lake.run(key(f"r{number}"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        assert len(lake.table("db.t").snapshots()) == 1
        lake.add(3)
        lake.run(key("r3"))
        assert lake.ids() == [1, 2, 3, 9]

    @pytest.mark.costly
    def test_the_last_run_reads_its_range_again(self, lake) -> None:
        for number in (1, 2):
            lake.add(number)
            lake.run(key(f"r{number}"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        lake.add(3)
        lake.run(key("r2", epoch=1, tries=2))
        assert lake.ids() == [1, 2, 9]
        lake.run(key("r3"))
        assert lake.ids() == [1, 2, 3, 9]

    def test_of_a_run_before_it_is_not_known(self, lake) -> None:
        for number in (1, 2):
            lake.add(number)
            lake.run(key(f"r{number}"))
        lake.add(9, to="db.t")
        lake.expire("db.t")
        with pytest.raises(
            IncompatibleChangeError, match=r"rows of an earlier run or try of .* its snapshot has expired"
        ):
            lake.run(key("r1", epoch=1, tries=2))
        assert lake.ids() == [1, 2, 9]

    def test_a_snapshot_that_was_rolled_back_before(self, lake) -> None:
        lake.add(8, to="db.t")
        start = lake.add(9, to="db.t")
        lake.add(1)
        lake.run(key("r1"))
        lake.table("db.t").set_current_snapshot(start)
        lake.expire("db.t", snapshot_ids=(lake.table("db.t").snapshots()[0].snapshot_id,), retain_last=5)
        with pytest.raises(IncompatibleChangeError, match="was rolled back, and the ones before have expired"):
            lake.run(key("r2"))
        assert lake.ids() == [8, 9]

    @pytest.mark.costly
    def test_a_snapshot_that_was_picked_for_another_branch_and_expired(self, lake) -> None:
        lake.add(9, to="db.t")
        lake.table("db.t").create_branch("audit")
        lake.add(1)
        lake.run(key("r1"), branch="audit")
        table = lake.table("db.t")
        audited = table.metadata.ref_snapshot("audit").snapshot_id
        lake.add(10, to="db.t")
        table.refresh().commit(CherryPick(table.io, table.commit_settings(), source_id=audited))
        table.refresh().remove_branch("audit")
        lake.expire("db.t", retain_last=3)
        table.refresh().create_branch("audit")
        lake.add(2)
        lake.run(key("r2"), branch="audit")
        assert lake.ids(ref="audit") == [1, 2, 9, 10]

    @pytest.mark.parametrize("mode", ["append", "changelog"])
    def test_of_the_source(self, lake, mode) -> None:
        lake.add(1)
        inputs = {"o": lake.changes(mode=mode)}
        lake.run(key("r1"), inputs=inputs)
        first = lake.head()
        for number in (2, 3, 4):
            lake.add(number)
        lake.expire("db.o")
        message = f"input 'o': snapshot {first}.* expired.*; say in `since`, for this one run, which snapshot"
        with pytest.raises(InvalidInputError, match=message):
            lake.run(key("r2"), inputs=inputs)
        assert lake.ids() == [1]

    def test_of_the_source_where_a_cleared_run_has_ended(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.add(2)
        lake.expire("db.o")
        with pytest.raises(InvalidInputError, match="input 'o': the changes that are to be read again end at snapshot"):
            lake.run(key("r1", epoch=1, tries=2))
        assert lake.ids() == [1]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (ChangesOptions(), 2),
        (ChangesOptions(mode="changelog", identifier_columns=("id",)), 3),
        (ChangesOptions(mode="changelog", net=True), 1),
    ],
)
def test_the_parts_of_a_range_travel_to_workers(lake, options, parts) -> None:
    """A snapshot that only adds rows is cut between files; net changes are one part."""
    first = lake.add(1, 2)
    lake.table("db.o").alter([{"set_properties": {"read.split.target-size": "1"}}])
    lake.table("db.o").delete("id = 1")
    lake.add(3)
    lake.add(4)
    changes = Changes(open=lambda: lake.table("db.o"), snapshot_id=first, options=options)
    consumer = Consumer(table=lake.table("db.t"), branch="main", key=None, try_number=None)
    (pinned,) = pin({"o": changes}, Source.from_callable("m:f"), consumer)
    io = lake.table("db.o").io
    reader, items = plan_pinned(PinnedTable.from_dict(Fields(json.loads(json.dumps(pinned.to_dict())), "", None)), io)
    assert len(items) == parts
    reader, items = pickle.loads(pickle.dumps((reader, items)))
    rows = pa.Table.from_batches([batch for item in items for batch in reader.rows(io, item)])
    assert sorted(rows["id"].to_pylist()) == ([3, 4] if options.mode == "append" else [1, 3, 4])


class TestWhatIsNotKnown:
    """Rather an error than rows that are loaded twice."""

    def test_a_task_that_did_not_read_such_changes_before(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"), inputs={"o": Input(open=lambda: lake.table("db.o"))})
        with pytest.raises(IncompatibleChangeError, match=r"input 'o': this task has committed snapshot .* without"):
            lake.run(key("r2"))
        lake.run(key("r2"), inputs={"o": lake.changes(snapshot_id=lake.head())})
        with pytest.raises(IncompatibleChangeError, match=r"input 'o': an earlier run of .* without changes"):
            lake.run(key("r1", epoch=1, tries=2))
        assert lake.ids() == [1]

    def test_an_input_with_another_name(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        with pytest.raises(IncompatibleChangeError, match="input 'p': this task has committed snapshot"):
            lake.run(key("r2"), "select id from p", {"p": lake.changes()})

    def test_another_table(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        lake.catalog.drop_table("db.o")
        Table.create(lake.catalog, "db.o", schema={"id": "long"})
        lake.add(2)
        with pytest.raises(InvalidInputError, match="it was dropped and created again, or is another one; say in"):
            lake.run(key("r2"))

    def test_another_installation(self, lake) -> None:
        lake.add(1)
        lake.run(key("r1"))
        for _ in range(2):
            with pytest.raises(IncompatibleChangeError, match="a task of this name of another Airflow installation"):
                lake.run(key("r2", installation="j"))
            lake.add(9, to="db.t")
            lake.expire("db.t")

    def test_a_rolled_back_source(self, lake) -> None:
        first = lake.add(1)
        lake.add(2)
        lake.run(key("r1"))
        lake.table("db.o").set_current_snapshot(first)
        lake.add(3)
        with pytest.raises(InvalidInputError, match=r"input 'o': .* rolled back.*; say in `since`, for this"):
            lake.run(key("r2"))

    @pytest.mark.parametrize("text", ["{", '{"task": 1}', '{"task": ["i", "d", "t", -1, "main"], "inputs": {"o": 1}}'])
    def test_a_damaged_property(self, lake, text) -> None:
        lake.add(1)
        lake.run(key("r1"))
        table = lake.table("db.t")
        (name,) = [name for name in table.metadata.properties if name.startswith(PREFIX)]
        table.alter([{"set_properties": {name: text}}])
        lake.add(2)
        lake.run(key("r2"))  # the history tells, and the property is written anew
        assert json.loads(lake.table("db.t").metadata.properties[name])["inputs"]["o"]["snapshot-id"] == str(
            lake.head()
        )
        lake.table("db.t").alter([{"set_properties": {name: text}}])
        lake.add(9, to="db.t")
        lake.expire("db.t")
        with pytest.raises(IncompatibleChangeError, match=f"property {name} of table .* is damaged"):
            lake.run(key("r3"))
