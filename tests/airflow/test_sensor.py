"""IcebergSnapshotSensor under `dag.test()`, poking and deferring."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.operators import IcebergAppendOperator
from airflow_iceberg.plan.new_snapshot import MAINTENANCE
from airflow_iceberg.sensors import IcebergSnapshotSensor
from tests.airflow.conftest import DAY, Instance, Lake, operators


def maintain(lake: Lake, name: str) -> None:
    """Commit a snapshot that changes no rows, as our own maintenance will: no writer may use its mark."""
    lake.append([1], name)
    table = lake.load(name)
    made = dataclasses.replace(
        table.current_snapshot(), summary={"operation": "overwrite", MAINTENANCE: "true"}, parent_snapshot_id=None
    )
    head = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=7, type="branch"))
    added = AddSnapshot(snapshot=dataclasses.replace(made, snapshot_id=7, sequence_number=2))
    table.catalog.commit(table.catalog.load(name), Change(updates=(added, head), requirements=()))


@pytest.fixture
def loaded(lake: Lake) -> Lake:
    lake.create()
    lake.append([1, 2])
    return lake


BOTH = pytest.mark.parametrize("deferrable", [False, True], ids=["poking", "deferring"])
wait = operators(IcebergSnapshotSensor, task_id="wait", poke_interval=0.2, timeout=300)


@BOTH
class TestWhatIsNew:
    """A snapshot newer than one given, than a time, or than the last one that this DAG saw."""

    @pytest.mark.services
    def test_the_first_run_takes_any_snapshot_and_sees_it_again_when_it_is_cleared(
        self, deferrable, loaded, new_dag, run_dag, clear
    ):
        snapshot = loaded.load().current_snapshot()
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run = run_dag(dag)
        first = run.result("wait")
        assert first == {
            "table": "s.t",
            "branch": "main",
            "snapshot_id": str(snapshot.snapshot_id),
            "parent_snapshot_id": None,
            "timestamp_ms": snapshot.timestamp_ms,
            "operation": "append",
            "added_data_files": 1,
            "added_records": 2,
            "deleted_data_files": None,
            "deleted_records": None,
            "total_data_files": 1,
            "total_records": 2,
        }
        assert clear(dag, run).result("wait") == first

    @pytest.mark.services
    def test_the_second_run_waits_for_one_that_the_first_has_not_seen(
        self, deferrable, loaded, new_dag, run_dag, before_look
    ):
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run_dag(dag)
        second = before_look(lambda: loaded.append([2]))
        found = run_dag(dag, day=DAY + timedelta(days=1)).result("wait")
        assert found["snapshot_id"] == str(second().snapshot_id)

    @pytest.mark.services
    def test_what_was_seen_counts_by_table(self, deferrable, lake, new_dag, run_dag):
        tables = {"20260101": "s.a", "20260102": "s.b"}
        for name in tables.values():
            lake.create(name)
            lake.append([1], name)
        with new_dag(params={"tables": tables}) as dag:
            wait(table="{{ params.tables[ds_nodash] }}", deferrable=deferrable)
        run_dag(dag)
        assert run_dag(dag, day=DAY + timedelta(days=1)).result("wait")["table"] == "s.b"

    @pytest.mark.services
    def test_newer_than_a_snapshot_given_by_an_upstream_task(self, deferrable, lake, new_dag, run_dag, before_look):
        lake.create()
        files = str(lake.write_file("a.parquet", [1]))
        with new_dag() as dag:
            load = IcebergAppendOperator(task_id="load", table="s.t", files=files, spark_conn_id=None)
            load >> wait(after_snapshot_id="{{ ti.xcom_pull(task_ids='load')['snapshot_id'] }}", deferrable=deferrable)
        second = before_look(lambda: lake.append([2]), when=lambda: lake.load().current_snapshot())
        run = run_dag(dag)
        assert run.result("wait")["parent_snapshot_id"] == run.result("load")["snapshot_id"]
        assert run.result("wait")["snapshot_id"] == str(second().snapshot_id)

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "options",
        [{"after_snapshot_id": "{{ none }}"}, {"after": "logical_date"}, {"after": "{{ data_interval_start }}"}],
        ids=["an upstream task that committed nothing", "the logical date", "a time"],
    )
    def test_newer_than(self, options, deferrable, loaded, run_task):
        assert run_task(wait, deferrable=deferrable, **options).state == "success"


class TestWhatDoesNotCount:
    """Older snapshots, other operations and our own maintenance are waited through, until the time is up."""

    @pytest.mark.costly
    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        ("options", "day"),
        [
            ({"after": "2999-01-01T00:00:00Z"}, DAY),
            ({"after": "{{ params.far }}", "params": {"far": "2999-01-01"}}, DAY),
            ({"operations": ["overwrite", "delete"]}, DAY),
            ({"table": "s.compacted"}, DAY),
            ({"after": "logical_date"}, datetime.now(UTC) + timedelta(days=1)),
        ],
        ids=["a time", "a template", "operations", "maintenance", "a logical date in the future"],
    )
    def test_the_sensor_times_out(self, options, day, loaded, run_task):
        loaded.create("s.compacted")
        maintain(loaded, "s.compacted")
        run = run_task(wait, day=day, timeout=0.5, **options)
        assert run.state == "failed"
        assert isinstance(run.failures[0], AirflowSensorTimeout)

    @pytest.mark.services
    def test_unless_maintenance_is_asked_for_and_soft_fail_skips(self, lake, run_task):
        lake.create()
        assert run_task(wait, timeout=0.5, soft_fail=True).task("wait").state == "skipped"
        maintain(lake, "s.t")
        assert run_task(wait, include_maintenance=True).state == "success"


def test_the_trigger_has_a_second_though_the_first_look_took_all_the_time(loaded):
    with pytest.raises(TaskDeferred) as raised:
        wait(deferrable=True, after="2999-01-01", timeout=0).execute({})
    assert raised.value.timeout == timedelta(seconds=1)


@BOTH
class TestWaitingIsNotFailing:
    """A store that is away is waited for; what waiting cannot mend fails at once."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"table": "s.nothing"}, "s.nothing"),
            ({"branch": "nothing"}, "nothing"),
            ({"operations": ["apend"]}, "apend"),
            ({"after": "yesterday"}, "after='yesterday'"),
            ({"after_snapshot_id": "x1"}, "'x1'"),
            ({"after": "last_seen", "after_snapshot_id": "1"}, "both given"),
            ({"iceberg_conn_id": "nobody"}, "nobody"),
        ],
    )
    def test_fails_at_once(self, options, message, deferrable, lake):
        lake.create()
        # Also the first thing that a deferring sensor does.
        with pytest.raises(AirflowFailException) as caught:
            wait(deferrable=deferrable, **options).execute({"ti": Instance(), "logical_date": DAY})
        assert message in str(caught.value)

    @pytest.mark.costly
    def test_no_retry_mends_a_wrong_name(self, deferrable, lake, run_task):
        assert "s.t" in run_task(wait, deferrable=deferrable, retries=2).refusal

    @pytest.mark.costly
    def test_a_table_that_is_created_later_can_be_waited_for(self, deferrable, lake, run_task, before_look):
        def create() -> Any:
            lake.create()
            return lake.append([1])

        made = before_look(create)
        found = run_task(wait, deferrable=deferrable, wait_for_table=True).result("wait")
        assert found["snapshot_id"] == str(made().snapshot_id)

    @pytest.mark.costly
    def test_a_store_that_is_away_is_waited_through(self, deferrable, loaded, run_task, monkeypatch):
        real, refused = SqlCatalog.load, []

        def load(catalog: SqlCatalog, table: Any) -> Any:
            if len(refused) < 3:
                refused.append(table)
                raise StorageError("the disk is away")
            return real(catalog, table)

        monkeypatch.setattr(SqlCatalog, "load", load)
        assert run_task(wait, deferrable=deferrable).state == "success"
        assert len(refused) == 3
