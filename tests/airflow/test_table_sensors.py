"""The sensors for conditions of a table: poking, deferring and started in the triggerer, they decide the same."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.inventory import manifests
from airflow_iceberg.plan.conditions.freshness import FreshnessCondition
from airflow_iceberg.retries import from_event
from airflow_iceberg.scan import metadata_tables
from airflow_iceberg.sensors import (
    IcebergBranchPublishedSensor,
    IcebergFreshnessSensor,
    IcebergPartitionSensor,
    IcebergRowCountSensor,
    IcebergSchemaChangeSensor,
    IcebergSnapshotSensor,
)
from airflow_iceberg.triggers import IcebergConditionTrigger, _facts
from airflow_iceberg.triggers._facts import TableFacts
from airflow_iceberg.triggers._table_poll import Look
from airflow_iceberg.triggers.waiting import Found, Waiting
from tests.airflow.conftest import DAY, Instance, Lake, first_event, waits
from tests.support.airflow_versions import TaskDeferralTimeout as DeferralTimeout

# What Airflow hands to a task whose trigger has had no event in time.
TIME_IS_UP = "Trigger timeout"
LATER = "2999-01-01T00:00:00+00:00"
# What is met by the table of the fixture, and what is not.
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "partition": (IcebergPartitionSensor, {"partition": {"id": 1}, "min_rows": "1"}, {"partition": {"id": 9}}),
    "mark": (IcebergPartitionSensor, {"properties": {"done": "yes"}}, {"tag": "done"}),
    "freshness": (IcebergFreshnessSensor, {"max_age": timedelta(days=1)}, {"after": LATER}),
    "rows": (IcebergRowCountSensor, {"min_rows": 2}, {"max_rows": 1}),
    "schema": (IcebergSchemaChangeSensor, {"columns": ["id"]}, {"after_schema_id": 0}),
    "branch": (IcebergBranchPublishedSensor, {"branch": "audit"}, {"branch": "audit", "snapshot_id": 5}),
    "snapshot": (IcebergSnapshotSensor, {"after": "2020-01-01"}, {"after": LATER}),
}
ALL = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(partition_by=["id"], properties={"done": "yes"})
    lake.append([1, 2])
    lake.load().create_branch("audit")
    return lake


def sensor(kind: Any, **options: Any) -> Any:
    return kind(**{"task_id": "wait", "table": "s.t", "poke_interval": 0.05, "timeout": 0.2, **options})


def context() -> dict[str, Any]:
    return {"ti": Instance(), "logical_date": DAY}


def restored(trigger: Any) -> Any:
    """Make a trigger again, as a triggerer does."""
    _, kwargs = trigger.serialize()
    return type(trigger)(**json.loads(json.dumps(kwargs)))


def deferred(waiting: Any) -> Any:
    """Return the trigger with which a sensor defers."""
    with pytest.raises(TaskDeferred) as raised:
        waiting.execute(context())
    return restored(raised.value.trigger)


def said(capfd: Any) -> list[str]:
    """Return what a sensor's log says about the wait."""
    pattern = r"\] (?:what happened: )?((?:timed out while )?waiting for .*?) \[airflow"
    return re.findall(pattern, capfd.readouterr().out)


class TestWhereverASensorWaits:
    """One decision, in the worker and in the triggerer."""

    @pytest.mark.costly
    @ALL
    def test_it_finds_what_is_there(self, name, table):
        kind, met, _ = CASES[name]
        poked = sensor(kind, **met).execute(context())
        assert sensor(kind, **met, deferrable=True).execute(context()).items() >= {"table": "s.t"}.items()
        started = sensor(kind, **met, start_from_trigger=True)
        args = started.start_trigger_args
        event = first_event(IcebergConditionTrigger(**json.loads(json.dumps(args.trigger_kwargs))), timeout=60)
        done = getattr(started, args.next_method)(context(), event)
        unstable = {"age_seconds"}
        assert {k: v for k, v in done.items() if k not in unstable} == {
            k: v for k, v in poked.items() if k not in unstable
        }
        assert (args.trigger_cls, args.timeout) == (
            IcebergConditionTrigger(**args.trigger_kwargs).serialize()[0],
            timedelta(seconds=0.2),
        )
        assert json.loads(json.dumps(poked)) == poked

    @pytest.mark.costly
    @ALL
    def test_it_waits_for_what_is_not_there_and_says_what_the_table_has(self, name, table, capfd, caplog):
        kind, _, unmet = CASES[name]
        with pytest.raises(AirflowSensorTimeout):
            sensor(kind, **unmet).execute(context())
        lines = said(capfd)
        assert lines[0].startswith("waiting for ")
        assert " of table s.t: " in lines[0]
        # Not of what is printed, where it may come later.
        assert f"what happened: timed out while {lines[0]}" in caplog.messages
        assert len(lines) <= 3  # not each time it looks

    @pytest.mark.costly
    @ALL
    def test_it_defers_and_its_trigger_waits_on(self, name, table, caplog):
        kind, _, unmet = CASES[name]
        trigger = deferred(sensor(kind, **unmet, deferrable=True))
        caplog.clear()
        waits(trigger, until=lambda: any(each.getMessage().startswith("waiting for ") for each in caplog.records))

    @pytest.mark.costly
    @ALL
    def test_when_the_time_of_a_deferred_one_is_up_the_log_says_what_the_table_has(self, name, table, caplog):
        kind, _, unmet = CASES[name]
        for options, error in (({}, AirflowSensorTimeout), ({"soft_fail": True}, AirflowSkipException)):
            waiting = sensor(kind, **unmet, **options)
            waiting.execute_complete = lambda *_, **__: (_ for _ in ()).throw(DeferralTimeout("time is up"))
            with pytest.raises(error):
                waiting.resume_execution("execute_complete", {}, context())
            # Not what is printed, which may come later.
            assert [
                text for text in caplog.messages if "timed out while waiting for " in text and " of table s.t: " in text
            ]
            caplog.clear()

    @pytest.mark.parametrize("name", ["rows", "snapshot"])
    def test_the_execution_timeout_ends_a_deferred_one(self, name, table, caplog):
        """Counted from the start of its first process, as by Airflow in a worker; the task may be retried."""
        kind, _, unmet = CASES[name]
        waiting = sensor(kind, **unmet, deferrable=True, timeout=600, execution_timeout=timedelta(seconds=60))
        instance = Instance()
        instance.start_date = datetime.now(UTC) - timedelta(seconds=20)
        with pytest.raises(TaskDeferred) as raised:
            waiting.execute({"ti": instance, "logical_date": DAY})
        assert timedelta(seconds=20) < raised.value.timeout <= timedelta(seconds=40)
        with pytest.raises(AirflowTaskTimeout, match="longer than its execution_timeout, 0:01:00"):
            waiting.resume_execution("__fail__", {"error": TIME_IS_UP}, context())
        assert "give the task a longer execution_timeout" in caplog.text
        waiting.timeout = 30
        with pytest.raises(AirflowSensorTimeout):
            waiting.resume_execution("__fail__", {"error": TIME_IS_UP}, context())

    @ALL
    def test_one_that_could_not_start_in_the_triggerer_defers(self, name, table):
        """Airflow does not do it for mapped tasks: a worker must not be taken for the whole wait."""
        kind, _, unmet = CASES[name]
        assert deferred(sensor(kind, **unmet, start_from_trigger=True)).table == "s.t"


class TestArgumentsInOtherForms:
    """Lists as a template makes them, times as Python has them."""

    @pytest.mark.parametrize("operations", ["append", "overwrite, append", '["append"]', ["append"]])
    def test_operations(self, operations, table):
        options = {"operations": operations, "after": datetime(2020, 1, 1, tzinfo=UTC)}
        found = sensor(IcebergSnapshotSensor, **options).execute(context())
        assert sensor(IcebergSnapshotSensor, **options, deferrable=True).execute(context()) == found
        arguments = sensor(IcebergSnapshotSensor, **options, start_from_trigger=True).start_trigger_args.trigger_kwargs
        event = first_event(IcebergConditionTrigger(**json.loads(json.dumps(arguments, default=str))), timeout=60)
        assert event["result"] == found


class TestLinks:
    """A sensor leads to its table, and to the snapshot that it has found."""

    def links(self, task: Any) -> list[str]:
        return [link.get_link(task, ti_key=None) for link in task.operator_extra_links]

    @ALL
    def test_of_each(self, name, table):
        kind, met, unmet = CASES[name]
        page = "/iceberg/connections/iceberg_catalog_default/table?name=s.t"
        waiting = sensor(kind, **met)
        assert self.links(waiting) == ["", ""]
        result = waiting.execute(context())
        snapshot = result.get("snapshot_id")
        assert self.links(waiting) == [
            page,
            page.replace("table", "snapshot", 1) + f"&snapshot_id={snapshot}" if snapshot else "",
        ]
        # In the process after the trigger.
        resumed = sensor(kind, **met)
        resumed.execute_complete(context(), {"status": "found", "result": result})
        assert self.links(resumed) == self.links(waiting)
        timed_out = sensor(kind, **unmet)
        with pytest.raises(AirflowSensorTimeout):
            timed_out.execute(context())
        assert self.links(timed_out) == [page, ""]


class TestATableWithVeryManyPartitions:
    """The triggerer does the work of others, too, and counts some of them; a worker counts all."""

    @pytest.mark.parametrize("limit", ["partitions", "their memory", "a manifest's values"])
    def test_a_worker_can_do_what_the_trigger_advises(self, limit, table, monkeypatch):
        match limit:
            case "partitions":
                monkeypatch.setattr(_facts, "_MOST_PARTITIONS", 1)
            case "their memory":
                monkeypatch.setattr(metadata_tables, "MOST_PARTITION_BYTES", 200)
            case _:
                monkeypatch.setattr(manifests, "_MOST_PARTITION_VALUES", 1)
        options = {"partition": {"id": 2}}
        own = {"table": "s.t", "iceberg_conn_id": IcebergHook.default_conn_name, "poll_interval": 0.05}
        event = first_event(IcebergConditionTrigger(kind="partition", branch="main", **own, **options))
        assert event["status"] != "found"
        assert "in a worker, with deferrable=False" in str(from_event(event))
        result = sensor(IcebergPartitionSensor, deferrable=False, **options).execute(context())
        assert (result["partition"], result["data_files"]) == ({"id": "2"}, 1)


class TestTheTriggerSeesChanges:
    """What happens after the sensor has deferred."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("kind", "options", "change"),
        [
            (IcebergPartitionSensor, {"partition": {"id": "7"}}, lambda lake: lake.append([7])),
            (IcebergPartitionSensor, {"tag": "done"}, lambda lake: lake.load().create_tag("done")),
            (IcebergRowCountSensor, {"min_rows": 3}, lambda lake: lake.append([7])),
            (
                IcebergSchemaChangeSensor,
                {"columns": "name"},
                lambda lake: lake.load().alter([{"add_column": {"name": "name", "type": "string"}}]),
            ),
            (IcebergPartitionSensor, {"table": "s.new", "tag": "x", "wait_for_table": True}, None),
        ],
        ids=["partition", "tag", "rows", "schema", "table"],
    )
    def test_it_fires(self, kind, options, change, table, before_look):
        def create(lake: Lake) -> None:
            lake.create("s.new")
            lake.append([1], "s.new")
            lake.load("s.new").create_tag("x")

        trigger = deferred(sensor(kind, **options, deferrable=True))
        before_look(lambda: (change or create)(table))
        assert first_event(trigger, timeout=60)["status"] == "found"


class TestASchemaThatWasSeen:
    """The next run waits for another one, and says what has changed."""

    @pytest.mark.costly
    def test_two_runs(self, table):
        ti = Instance()
        place = {"ti": ti, "logical_date": DAY}
        first = sensor(IcebergSchemaChangeSensor).execute(place)
        with pytest.raises(AirflowSensorTimeout):
            sensor(IcebergSchemaChangeSensor).execute(place)
        table.load().alter([{"add_column": {"name": "name", "type": "string"}}])
        second = sensor(IcebergSchemaChangeSensor).execute(place)
        assert (second["previous_schema_id"], second["added_columns"]) == (first["schema_id"], ["name"])


class TestATimeInTheFuture:
    """A commit whose writer's clock is ahead makes the table fresh once that time is near, without another commit."""

    def test_of_a_table_that_does_not_change(self, lake):
        table = lake.create()
        lake.append([1])
        state = lake.catalog.load("s.t")
        soon_ms = time.time_ns() // 1_000_000 + 300_000 + 1_000
        ahead = replace(state.metadata.snapshots[0], timestamp_ms=soon_ms)
        state = replace(state, metadata=replace(state.metadata, snapshots=(ahead,)))
        look = Look(state=state, facts=TableFacts(table.catalog, state))
        waiting = Waiting("s.t", FreshnessCondition(max_age_s=60))
        note = waiting(look)
        assert "a time in the future, is not believed" in note.text
        assert not isinstance(waiting(look), Found)
        deadline = time.monotonic() + 60
        while not isinstance(found := waiting(look), Found):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (found.result["timestamp_ms"], found.result["age_seconds"]) == (soon_ms, 0)


class TestWhatFailsAtOnce:
    """No later look can succeed."""

    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            (IcebergPartitionSensor, {"partition": {"nothing": 1}}, "its partition fields: id"),
            (IcebergPartitionSensor, {"partition": {"id": "soon"}}, "cannot have the value the text 'soon'"),
            (IcebergPartitionSensor, {"partition": {"id": True}, "tag": "late"}, "the truth value True (bool)"),
            (IcebergPartitionSensor, {"partition": "{'id'"}, "partition is not a JSON object"),
            (IcebergPartitionSensor, {}, "nothing to wait for"),
            (IcebergRowCountSensor, {"min_rows": "few"}, "min_rows is 'few'"),
            (IcebergRowCountSensor, {"min_rows": 1, "table": "s.none"}, "s.none"),
            (IcebergRowCountSensor, {"min_rows": 1, "branch": "none"}, "'none'"),
            (IcebergFreshnessSensor, {"max_age": "long"}, "max_age is 'long'"),
            (IcebergFreshnessSensor, {"after": "yesterday"}, "after='yesterday'"),
            (IcebergBranchPublishedSensor, {"branch": "nobody"}, "no branch 'nobody'"),
        ],
    )
    def test_it(self, kind, options, message, table):
        with pytest.raises(AirflowFailException) as caught:
            sensor(kind, **options).execute(context())
        assert message in str(caught.value)
        arguments = sensor(kind, **options, start_from_trigger=True).start_trigger_args.trigger_kwargs
        assert message in str(from_event(first_event(IcebergConditionTrigger(**arguments), timeout=60)))

    @pytest.mark.parametrize("waits_elsewhere", [{}, {"deferrable": True}, {"start_from_trigger": True}])
    @pytest.mark.parametrize("option", ["soft_fail", "never_fail"])
    def test_unless_the_task_is_to_be_skipped_then(self, option, waits_elsewhere, lake):
        for kind, options in ((IcebergRowCountSensor, {"min_rows": 1}), (IcebergSnapshotSensor, {"after": LATER})):
            with pytest.raises(AirflowSkipException):
                sensor(kind, table="s.none", **{option: True}, **waits_elsewhere, **options).execute(context())

    def test_a_schema_that_was_last_seen_is_not_known_in_the_triggerer(self, table):
        arguments = sensor(IcebergSchemaChangeSensor, start_from_trigger=True).start_trigger_args.trigger_kwargs
        error = from_event(first_event(IcebergConditionTrigger(**arguments), timeout=60))
        assert "cannot read what the last run has seen: give after_schema_id or columns" in str(error)

    @pytest.mark.parametrize("options", [{}, {"after": "last_seen"}])
    def test_what_was_last_seen_is_not_known_in_the_triggerer(self, options, table):
        arguments = sensor(IcebergSnapshotSensor, **options, start_from_trigger=True).start_trigger_args.trigger_kwargs
        error = from_event(first_event(IcebergConditionTrigger(**arguments), timeout=60))
        assert isinstance(error, InvalidInputError)
        assert "cannot read what the last run has seen" in str(error)

    def test_templates_that_an_older_airflow_does_not_render(self, table):
        options = {"partition": {"id": "{{ params.id }}"}}
        arguments = sensor(IcebergPartitionSensor, **options, start_from_trigger=True).start_trigger_args.trigger_kwargs
        assert "did not render" in str(from_event(first_event(IcebergConditionTrigger(**arguments), timeout=60)))


def test_every_argument_of_a_condition_is_a_template():
    for kind, _, _ in CASES.values():
        if kind is not IcebergSnapshotSensor:
            assert {"table", "iceberg_conn_id", *kind.arguments} <= set(kind.template_fields)


def test_a_table_that_is_waited_for_is_no_warning(table, capfd):
    with pytest.raises(AirflowSensorTimeout):
        sensor(IcebergRowCountSensor, min_rows=1, table="s.none", wait_for_table=True).execute(context())
    out = capfd.readouterr().out
    assert re.search(r"\[info +\] waiting for at least 1 rows on branch 'main' of table s.none: there is no table", out)


@pytest.mark.services
@pytest.mark.parametrize("how", [{}, {"mode": "reschedule"}, {"deferrable": True}, {"start_from_trigger": True}])
def test_mapped_ones_wait_for_a_partition_each(how, table, new_dag, run_dag):
    with new_dag() as dag:
        partial = IcebergPartitionSensor.partial(task_id="wait", table="{{ 's' }}.t", poke_interval=1, **how)
        partial.expand(partition=[{"id": "{{ 1 }}"}, {"id": 2}])
    run = run_dag(dag)
    assert [run.result("wait", map_index=number)["partition"] for number in (0, 1)] == [{"id": "1"}, {"id": "2"}]
