"""Writes of a function of a DAG file: `IcebergHook().task_table(…)`, exactly once in whatever way its task dies."""

import json
import os
import pickle
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout

from airflow_iceberg.assets import iceberg_asset
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.retries import advice
from airflow_iceberg.table import Table
from tests.airflow.test_assets import events_of
from tests.support import mortal
from tests.support.http_server import HttpServer, document

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def context(try_number: int = 1, epoch: int = 0, task_id: str = "task") -> Any:
    """Return what Airflow hands to a try of a task, whose run was cleared so many times."""
    ti = SimpleNamespace(id=uuid.uuid4(), dag_id="own", run_id="run", task_id=task_id, map_index=-1)
    ti.try_number, ti.max_tries = try_number, 3 + epoch
    run = SimpleNamespace(run_after=BEGUN, start_date=BEGUN, clear_number=epoch)
    return {"ti": ti, "task": SimpleNamespace(retries=3), "dag_run": run}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def bound(told: Any, name: str = "s.t") -> Any:
    return IcebergHook().task_table(name, context=told)


def keys(lake: Any, name: str = "s.t") -> list[tuple[str, str | None]]:
    """Return task id and name of each write, oldest first."""
    texts = [snapshot.summary.get("airflow.operation-key") for snapshot in lake.load(name).snapshots()]
    found = [OperationKey.parse(text) for text in texts if text is not None]
    return [(key.task_id, key.write) for key in found]


class TestAWriteIsFound:
    """A retry finds each write of an earlier try, also if there are several to one table."""

    @pytest.mark.services
    def test_by_its_kind_and_order_for_each_table(self, lake):
        for name in ("s.t", "s.u"):
            lake.create(name)
        outcomes = []
        for try_number in (1, 2):
            told = context(try_number)
            one, other = bound(told), bound(told, "s.u")
            done = [one.append(rows(1)), other.append(rows(2)), bound(told).append(rows(3)), one.delete("id = 1")]
            outcomes.append([result.outcome for result in done])
        assert outcomes == [["committed"] * 4, ["found"] * 4]
        assert (lake.ids(), lake.ids("s.u")) == ([3], [2])
        assert keys(lake) == [("task", "append-1"), ("task", "append-2"), ("task", "delete-1")]
        (added, *_) = lake.load().snapshots()
        assert (added.summary["airflow.task-id"], added.summary["airflow.write"]) == ("task", "append-1")

    @pytest.mark.costly
    def test_by_its_name_whatever_the_retry_does_first(self, lake):
        lake.create()
        first = bound(context(1))
        assert first.append(rows(1), name="rows").done_by_this_try
        again = bound(context(2))
        assert again.append(rows(2), name="corrections").done_by_this_try
        assert not again.append(rows(1), name="rows").done_by_this_try
        assert lake.ids() == [1, 2]

    @pytest.mark.services
    def test_all_kinds(self, lake):
        lake.create(schema={"id": "long", "x": "long"})
        row = pa.table({"id": [1, 2], "x": [0, 0]})
        for try_number in (1, 2):
            table = bound(context(try_number))
            done = [
                table.append(row),
                table.upsert(pa.table({"id": [2, 3], "x": [5, 5]}), ["id"]),
                table.update({"x": "x + 1"}, "id = 3"),
                table.merge(pa.table({"id": [1]}), ["id"], "when matched then update set x = 9"),
                table.overwrite(pa.table({"id": [4], "x": [4]}), "id = 2", check_filter=False),
                table.dynamic_partition_overwrite(pa.table({"id": [7], "x": [7]})),
                table.delete("id = 8"),
            ]
            assert {result.done_by_this_try for result in done[:-1]} == {try_number == 1}
        assert lake.ids() == [7]

    @pytest.mark.costly
    def test_next_to_an_operators_write_of_the_same_task(self, lake):
        """Its key has no name."""
        lake.create()
        told = context()
        lake.load().append(rows(1), operation_key=OperationKey(dag_id="own", run_id="run", task_id="task"))
        assert bound(told).append(rows(2)).done_by_this_try
        assert lake.ids() == [1, 2]


class TestOtherChangesAreFound:
    """What a retry must not do again although it changes no rows of its own: a rollback would undo others' commits."""

    @pytest.mark.costly
    def test_a_rollback_between_which_and_its_retry_others_have_committed(self, lake):
        lake.create()
        first = lake.append([1]).snapshot_id
        lake.append([2])
        done = bound(context(1)).rollback_to_snapshot(first)
        lake.append([3])
        again = bound(context(2)).rollback_to_snapshot(first)
        assert (done.outcome, again.outcome, lake.ids()) == ("committed", "found", [1, 3])

    @pytest.mark.costly
    def test_a_branch_a_tag_a_column_and_files(self, lake):
        lake.create()
        lake.append([1])
        (lake.folder / "warehouse" / "landing").mkdir()
        files = [str(lake.write_file("a.parquet", [5]).rename(lake.folder / "warehouse" / "landing" / "a.parquet"))]
        outcomes = []
        for try_number in (1, 2):
            table = bound(context(try_number))
            done = [
                table.create_branch("b"),
                table.create_tag("v1", write_name="tag"),
                table.alter(
                    [{"add_column": {"name": "x", "type": "long"}}, {"rename_column": {"from": "x", "to": "y"}}]
                ),
                table.add_files(files, branch="b"),
                table.fast_forward("main", "b"),
                table.remove_tag("v1", write_name="untag"),
            ]
            outcomes.append([str(one.outcome) for one in done])
        assert outcomes == [["committed"] * 6, ["found"] * 6]
        assert (lake.ids(), sorted(lake.load().metadata.refs)) == ([1, 5], ["b", "main"])

    @pytest.mark.costly
    def test_two_of_a_kind_are_told_apart(self, lake):
        lake.create()
        lake.append([1])
        table = bound(context())
        table.create_tag("a")
        table.create_tag("b")
        assert sorted(lake.load().metadata.refs) == ["a", "b", "main"]


class TestAfterAClear:
    """An append is replaced, on its own; a delete and a merge are made once more, as by the operators."""

    @pytest.mark.costly
    def test_each_append_replaces_its_own_rows(self, lake):
        lake.create()
        for epoch, ids in ((0, (1, 2)), (1, (3, 4))):
            table = bound(context(epoch + 1, epoch))
            table.append(rows(ids[0]), name="a")
            table.append(rows(ids[1]), name="b")
            lake.append([100 + epoch])
        assert lake.ids() == [3, 4, 100, 101]

    @pytest.mark.costly
    @pytest.mark.parametrize(("on_rerun", "expected"), [("append", [1, 2]), ("skip", [1])])
    def test_unless_the_write_says_otherwise(self, on_rerun, expected, lake):
        lake.create()
        bound(context()).append(rows(1))
        bound(context(2, 1)).append(rows(2), on_rerun=on_rerun)
        assert lake.ids() == expected

    @pytest.mark.costly
    @pytest.mark.parametrize("version", ["2", "3"])
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_the_example_of_the_guide(self, version, mode, lake):
        """Rows are appended, others deleted, and one of the new ones corrected."""
        schema = {"order_id": "long", "reason": "string"}
        lake.create(schema=schema, properties={"format-version": version, "write.merge.mode": mode})
        lake.load().append(pa.table({"order_id": [1, 2], "reason": ["settled", "broken"]}))
        late = pa.table({"order_id": [100, 101], "reason": ["late", "late"]})

        def settle(table, *, writes=3):
            table.append(late, name="late")
            if writes > 1:
                table.delete("reason = 'settled'", name="settled")
                table.upsert(late.slice(1).set_column(1, "reason", [["lost"]]), ["order_id"], name="corrections")

        def found():
            rows = lake.load().scan().to_arrow().to_pylist()
            return sorted((row["order_id"], row["reason"]) for row in rows)

        for epoch in range(3):
            settle(bound(context(2 * epoch + 1, epoch)), writes=1)  # and the task is killed
            assert {(100, "late"), (101, "late")} <= set(found())
            settle(bound(context(2 * epoch + 2, epoch)))
            assert found() == [(2, "broken"), (100, "late"), (101, "lost")]

    @pytest.mark.costly
    def test_of_several_tables(self, lake):
        for name in ("s.t", "s.u"):
            lake.create(name)
        for epoch in range(2):
            told = context(epoch + 1, epoch)
            for name in ("s.t", "s.u"):
                bound(told, name).append(rows(10 * epoch), name="first")
                bound(told, name).append(rows(10 * epoch + 1), name="second")
            assert lake.ids() == lake.ids("s.u") == [10 * epoch, 10 * epoch + 1]


class TestNamesAreUsedOnce:
    """A second write with the name of the first would be taken for it, and its rows would be lost."""

    @pytest.mark.costly
    def test_in_one_try(self, lake):
        lake.create()
        told = context()
        bound(told).append(rows(1), name="rows")
        with pytest.raises(InvalidInputError, match=r"a write named 'rows' to table s\.t already"):
            bound(told).append(rows(2), name="rows")
        assert bound(told).append(rows(2), name="others").done_by_this_try

    @pytest.mark.costly
    def test_after_a_failure_the_name_is_free(self, lake, monkeypatch):
        lake.create()
        table = bound(context())
        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", failing(CommitConflictError("others won")))
            for name in ("rows", None):
                with pytest.raises(CommitConflictError):
                    table.append(rows(1), name=name)
        table.append(rows(1), name="rows")
        table.append(rows(2))
        assert keys(lake) == [("task", "rows"), ("task", "append-1")]

    def test_after_an_unknown_outcome_only_a_name_tells_writes_apart(self, lake, monkeypatch):
        lake.create()
        table = bound(context())
        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", failing(CommitUnknownError("no answer")))
            with pytest.raises(CommitUnknownError):
                table.append(rows(1))
        with pytest.raises(InvalidInputError, match="nobody knows whether write 'append-1'"):
            table.append(rows(2))
        assert table.append(rows(2), name="two").done_by_this_try

    @pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb"])
    def test_what_is_no_name(self, name, lake):
        lake.create()
        with pytest.raises(InvalidInputError, match="expected a name of at most 100 characters"):
            bound(context()).append(rows(1), name=name)

    def test_a_key_is_not_an_argument(self, lake):
        lake.create()
        with pytest.raises(InvalidInputError, match="set name instead"):
            bound(context()).append(rows(1), operation_key=OperationKey(dag_id="d", run_id="r", task_id="t"))

    def test_without_a_task_there_is_none(self, lake):
        lake.create()
        with pytest.raises(InvalidInputError, match="none runs here"):
            IcebergHook().task_table("s.t")


class TestTheOrderOfWritesWithoutNames:
    """It has to be that of the try before; where nobody can know that, a write without a name is refused."""

    @pytest.mark.costly
    def test_threads_that_write_to_one_table_need_names(self, lake):
        """Whichever is the first in this try may be the second in the next one, and would lose its rows."""
        lake.create()
        told = context()
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            one.submit(lambda: bound(told).append(rows(1))).result()
            with pytest.raises(InvalidInputError, match="several threads of the task write"):
                other.submit(lambda: bound(told).append(rows(2))).result()
            # A thread that has ended leaves its number to the next one.
            other.submit(lambda: bound(told).append(rows(2), name="other")).result()
        assert keys(lake) == [("task", "append-1"), ("task", "other")]

    @pytest.mark.costly
    def test_of_a_table_that_two_connections_lead_to(self, lake, monkeypatch):
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(lake.connection))
        lake.create()
        for try_number in (1, 2):
            told = context(try_number)
            bound(told).append(rows(1))
            IcebergHook("other").task_table("s.t", context=told).append(rows(2))
        assert lake.ids() == [1, 2]

    @pytest.mark.costly
    def test_of_tasks_whose_functions_take_turns_in_one_process(self, lake):
        lake.create()
        one, other = bound(context()), bound(context(task_id="other"))
        for table, number in ((one, 1), (other, 2), (one, 3)):
            assert table.append(rows(number)).done_by_this_try
        assert keys(lake) == [("task", "append-1"), ("other", "append-1"), ("task", "append-2")]

    def test_after_a_timeout_nobody_knows_whether_the_write_before_was_committed(self, lake, monkeypatch):
        lake.create()
        table, append = bound(context()), Table.append

        def late(*args: Any, **options: Any) -> Any:
            append(*args, **options)
            raise AirflowTaskTimeout

        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", late)
            with pytest.raises(AirflowTaskTimeout):
                table.append(rows(1))
        with pytest.raises(InvalidInputError, match="nobody knows whether write 'append-1'"):
            table.append(rows(2))
        assert table.append(rows(2), name="two").done_by_this_try

    @pytest.mark.costly
    def test_a_process_that_goes_on_after_a_deferral_needs_names(self, lake):
        """It does not know the writes of the process before it, whose numbers it would give again."""
        lake.create()
        told = context()
        bound(told).append(rows(1))
        told["ti"].id, told["ti"]._ti_context_from_server = uuid.uuid4(), SimpleNamespace(next_method="go_on")
        with pytest.raises(InvalidInputError, match="the task goes on after a deferral"):
            bound(told).append(rows(2))
        assert bound(told).append(rows(2), name="two").done_by_this_try

    def test_a_sensor_that_is_rescheduled_writes_at_each_look_by_a_name(self, lake):
        """Each look is a process of its own, which would take the write of the look before for its own one."""
        lake.create()
        first = context()
        bound(first).append(rows(1))
        again = {**context(), "task_reschedule_count": 1}
        with pytest.raises(InvalidInputError, match="the task was rescheduled, and had made write 'append-1'"):
            bound(again).append(rows(2))
        assert bound(again).append(rows(2), name="look-2").done_by_this_try
        assert bound({**context(2), "task_reschedule_count": 1}).append(rows(1)).outcome == "found"
        assert lake.ids() == [1, 2]

    @pytest.mark.parametrize("more", [{"exception": None}, {"state": "success"}, {"state": "up_for_retry"}])
    def test_a_callback_needs_names(self, more, lake):
        """The next try of the task would take its write for one of its own."""
        lake.create()
        told = context()
        told["ti"].state = more.pop("state", None)
        with pytest.raises(InvalidInputError, match="the task has ended"):
            bound({**told, **more}).append(rows(2))
        assert bound({**told, **more}).append(rows(2), name="two").done_by_this_try

    @pytest.mark.costly
    def test_other_rows_under_the_name_of_a_write_that_is_found_are_told(self, lake, caplog):
        lake.create()
        caplog.clear()  # a new warehouse is told of
        bound(context(1)).append(rows(1))
        assert not bound(context(2)).append(rows(1)).done_by_this_try
        assert not caplog.messages
        assert not bound(context(3)).append(rows(2, 3)).done_by_this_try
        assert "write 'append-1' (new rows: 1), and now it has 2 rows, which are not written" in caplog.text
        assert lake.ids() == [1]


def failing(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


class TestAWriteThatFails:
    """Its two lines come first in the log, as an operator's do; the function may catch the error, by its own class."""

    WRITES: tuple[tuple[str, Any], ...] = (
        ("append", lambda table: table.append(pa.table({"other": [1]}))),
        ("overwrite", lambda table: table.overwrite(rows(1), "amount = 3")),
        ("dynamic_partition_overwrite", lambda table: table.dynamic_partition_overwrite(pa.table({"other": [1]}))),
        ("delete", lambda table: table.delete("amount = 3")),
        ("merge", lambda table: table.merge(rows(1), ["id"], "when matched then update set amount = 1")),
        ("upsert", lambda table: table.upsert(rows(1), ["amount"])),
        ("update", lambda table: table.update({"amount": "1"})),
        ("name", lambda table: table.append(rows(1), name="x" * 101)),
    )

    @pytest.mark.costly
    @pytest.mark.parametrize("write", [one for _, one in WRITES], ids=[name for name, _ in WRITES])
    def test_what_no_retry_can_mend_fails_at_once(self, write, lake, caplog):
        lake.create()
        lake.append([1])
        table = bound(context())
        with pytest.raises((InvalidInputError, NotFoundError)) as caught:
            write(table)
        assert isinstance(caught.value, AirflowFailException)
        assert isinstance(caught.value.__cause__, IcebergError)
        check_two_lines(caplog, caught.value)
        assert lake.ids() == [1]

    def test_a_race_that_was_lost_is_raised_as_it_is(self, lake, caplog, monkeypatch):
        lake.create()
        table = bound(context())
        lost = CommitConflictError("others won")
        monkeypatch.setattr(Table, "append", failing(lost))
        with pytest.raises(CommitConflictError) as caught:
            table.append(rows(1))
        assert caught.value is lost
        check_two_lines(caplog, lost)

    @pytest.mark.parametrize(("status", "is_final"), [(403, True), (401, False), (404, True)])
    def test_what_the_catalog_refuses(self, status, is_final, lake, caplog, monkeypatch):
        """As of operators: a token may have been replaced when the next try comes."""
        lake.create()

        def answer(request: Any) -> Any:
            if request.path.startswith("/v1/config"):
                return document({"defaults": {}, "overrides": {}})
            return document({"error": {"code": status, "type": "Refused", "message": "not you"}}, status=status)

        server = HttpServer(answer)
        try:
            rest = {"conn_type": "iceberg_catalog", "host": server.uri, "extra": {"type": "rest", "token": "t" * 20}}
            monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(rest))
            with pytest.raises((StorageError, NotFoundError)) as caught:
                bound(context())
        finally:
            server.close()
        assert isinstance(caught.value, AirflowFailException) is is_final
        check_two_lines(caplog, caught.value)

    def test_an_error_of_both_kinds_travels_between_processes(self, lake):
        lake.create()
        with pytest.raises(NotFoundError) as caught:
            bound(context(), "s.nope")
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert (str(again), type(again).__name__) == (str(caught.value), "NotFoundError")
        assert "s.nope" in str(again)


def check_two_lines(caplog: Any, error: IcebergError) -> None:
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert errors == [f"what happened: {error.what_happened}", f"what to do: {advice(error)}"]


class TestKilledAtAnyStep:
    """The process is killed at a step of its I/O; the retry leaves the table as one undisturbed run does."""

    # Two thirds of the steps are reads; `make test` tries some.
    STEPS = range(1, 60, 2)

    @pytest.mark.costly
    @pytest.mark.parametrize("die_at", [pytest.param(n, marks=pytest.mark.sample(9)) for n in STEPS])
    def test_the_retry_finishes_the_work(self, die_at, lake):
        lake.create(schema={"id": "long", "x": "long"})
        lake.load().append(pa.table({"id": [0], "x": [0]}))
        killed = self.run(1, die_at, lake)
        assert not self.run(2, None, lake) if killed else True
        found = lake.load().scan().to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["x"]) for row in found] == [(0, 0), (2, 7), (3, 1), (4, 1)]
        assert sorted(keys(lake)) == [
            ("task", "append-1"),
            ("task", "delete-1"),
            ("task", "more"),
            ("task", "upsert-1"),
        ]

    def run(self, try_number: int, die_at: int | None, lake: Any) -> bool:
        """Run the function of the task in a process, and return whether it was killed."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                mortal.arm(die_at)
                self.function(context(try_number))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
        return os.WIFSIGNALED(status)

    @staticmethod
    def function(told: Any) -> None:
        table = bound(told)
        table.append(pa.table({"id": [1, 2], "x": [1, 1]}))
        table.append(pa.table({"id": [4], "x": [1]}), name="more")
        table.upsert(pa.table({"id": [2, 3], "x": [7, 1]}), ["id"])
        table.delete("id = 1")


class TestInAirflow:
    """A `@task` function binds the table to itself; its writes are told to the table's asset."""

    @pytest.mark.services
    def test_a_retry_and_its_events(self, lake, new_dag, run_dag):
        from airflow.sdk import task

        name = f"s.own{os.getpid()}"
        lake.create(name, partition_by=["id"])
        tries: list[Any] = []

        @task(retries=1, outlets=[iceberg_asset(name)])
        def load() -> list[str]:
            table = IcebergHook().task_table(name)
            done = [table.append(rows(1, 2)), table.append(rows(3), name="more")]
            tries.append(done)
            if len(tries) == 1:
                raise RuntimeError("after the commits")
            return [str(result.outcome) for result in done]

        with new_dag(retry_delay=0) as dag:
            load()
        run = run_dag(dag)
        assert (run.state, run.result("load")) == ("success", ["found", "found"])
        assert lake.ids(name) == [1, 2, 3]
        found = events_of(iceberg_asset(name))
        assert [key for key, _ in found] == [None, None, "id=1", "id=2", "id=3"]
        assert {json.dumps(event["partitions"]) for key, event in found if key is None} == {
            '["id=1", "id=2"]',
            '["id=3"]',
        }

    @pytest.mark.services
    def test_the_event_of_several_changes_says_what_is_true_of_the_last_one(self, lake, new_dag, run_dag):
        from airflow.sdk import task

        name = f"s.changed{os.getpid()}"
        lake.create(name)
        lake.append([1], name)
        asset = iceberg_asset(name, maintenance=True)

        @task(outlets=[asset])
        def change(*, outlet_events: Any = None) -> None:
            outlet_events[asset].extra["mine"] = "kept"
            table = IcebergHook().task_table(name)
            table.create_branch("audit")
            table.alter([{"set_properties": {"owner": "me"}}])

        with new_dag() as dag:
            change()
        assert run_dag(dag).state == "success"
        ((_, event),) = events_of(asset)
        assert (event["mine"], event["operation"], event.get("branch")) == ("kept", "alter_table", None)

    @pytest.mark.services
    def test_a_write_that_no_retry_can_mend_is_tried_once_unless_the_function_goes_on(self, lake, new_dag, run_dag):
        from airflow.sdk import task

        lake.create()
        tries: list[str] = []

        @task(retries=2)
        def fails() -> None:
            tries.append("fails")
            IcebergHook().task_table("s.t").delete("amount = 3")

        @task(retries=2)
        def goes_on() -> str:
            try:
                IcebergHook().task_table("s.nope")
            except NotFoundError:
                return "made up"
            return "found"

        with new_dag(retry_delay=0) as dag:
            fails()
            goes_on()
        run = run_dag(dag)
        assert (run.state, run.result("goes_on")) == ("failed", "made up")
        assert tries == ["fails"]
