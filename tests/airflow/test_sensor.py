"""IcebergSnapshotSensor under `dag.test()`, poking and deferring."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.plan.new_snapshot import MAINTENANCE
from airflow_iceberg.sensors.iceberg import IcebergSnapshotSensor
from tests.airflow.conftest import DAY, Lake


def maintain(lake: Lake, name: str) -> None:
    """Commit a snapshot that changes no rows, as our own maintenance will: no writer may use its mark."""
    lake.append([1], name)
    table = lake.load(name)
    made = dataclasses.replace(
        table.current_snapshot(), summary={"operation": "overwrite", MAINTENANCE: "true"}, parent_snapshot_id=None
    )
    head = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=7, type="branch"))
    change = Change(
        updates=(AddSnapshot(snapshot=dataclasses.replace(made, snapshot_id=7, sequence_number=2)), head),
        requirements=(),
    )
    table.catalog.commit(table.catalog.load(name), change)


BOTH = pytest.mark.parametrize("deferrable", [False, True], ids=["poking", "deferring"])


def wait(**options: Any) -> IcebergSnapshotSensor:
    return IcebergSnapshotSensor(**{"task_id": "wait", "table": "s.t", "poke_interval": 0.2, "timeout": 300, **options})


@BOTH
class TestWhatIsNew:
    """A snapshot newer than one given, than a time, or than the last one that this DAG saw."""

    def test_the_first_run_takes_any_snapshot(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        result = lake.append([1, 2])
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run = run_dag(dag)
        snapshot = lake.load().current_snapshot()
        assert run.result("wait") == {
            "table": "s.t",
            "branch": "main",
            "snapshot_id": str(result.snapshot_id),
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

    def test_the_second_run_waits_for_one_that_the_first_has_not_seen(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, before_look: Callable, failures: list
    ) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run_dag(dag)
        second = before_look(lambda: lake.append([2]))
        found = run_dag(dag, day=DAY + timedelta(days=1)).result("wait")
        assert found["snapshot_id"] == str(second().snapshot_id)

    def test_what_was_seen_counts_by_table(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        tables = {"20260101": "s.a", "20260102": "s.b"}
        for name in tables.values():
            lake.create(name)
            lake.append([1], name)
        with new_dag(params={"tables": tables}) as dag:
            wait(table="{{ params.tables[ds_nodash] }}", deferrable=deferrable)
        run_dag(dag)
        assert run_dag(dag, day=DAY + timedelta(days=1)).result("wait")["table"] == "s.b"

    def test_a_cleared_run_sees_the_same_snapshot_again(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, clear: Callable
    ) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run = run_dag(dag)
        first = run.result("wait")
        assert clear(dag, run).result("wait") == first

    def test_newer_than_a_snapshot_given_by_an_upstream_task(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, before_look: Callable
    ) -> None:
        from airflow_iceberg.operators.append import IcebergAppendOperator

        lake.create()
        with new_dag() as dag:
            load = IcebergAppendOperator(
                task_id="load", table="s.t", files=str(lake.write_file("a.parquet", [1])), spark_conn_id=None
            )
            load >> wait(after_snapshot_id="{{ ti.xcom_pull(task_ids='load')['snapshot_id'] }}", deferrable=deferrable)
        second = before_look(lambda: lake.append([2]), when=lambda: lake.load().current_snapshot())
        run = run_dag(dag)
        assert run.result("wait")["parent_snapshot_id"] == run.result("load")["snapshot_id"]
        assert run.result("wait")["snapshot_id"] == str(second().snapshot_id)

    def test_after_an_upstream_task_that_committed_nothing_any_snapshot_counts(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(after_snapshot_id="{{ none }}", deferrable=deferrable)
        assert run_dag(dag).state == "success"

    def test_newer_than_the_logical_date(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(after="logical_date", deferrable=deferrable)
        assert run_dag(dag).state == "success"

    def test_newer_than_a_time(self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(after="{{ data_interval_start }}", deferrable=deferrable)
        assert run_dag(dag).state == "success"


class TestWhatDoesNotCount:
    """Older snapshots, other operations and our own maintenance are waited through, until the time is up."""

    @pytest.mark.parametrize(
        "options",
        [
            {"after": "2999-01-01T00:00:00Z"},
            {"after": "{{ params.far }}"},
            {"operations": ["overwrite", "delete"]},
            {"table": "s.compacted"},
        ],
    )
    def test_the_sensor_times_out(
        self, options: dict, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        lake.append([1])
        lake.create("s.compacted")
        maintain(lake, "s.compacted")
        with new_dag(params={"far": "2999-01-01"}) as dag:
            wait(timeout=0.5, **options)
        assert run_dag(dag).state == "failed"
        assert isinstance(failures[0], AirflowSensorTimeout)

    def test_a_logical_date_in_the_future(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        lake.append([1])
        with new_dag() as dag:
            wait(after="logical_date", timeout=0.5)
        assert run_dag(dag, day=datetime.now(UTC) + timedelta(days=1)).state == "failed"
        assert isinstance(failures[0], AirflowSensorTimeout)

    def test_maintenance_counts_when_it_is_asked_for(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        maintain(lake, "s.t")
        with new_dag() as dag:
            wait(include_maintenance=True)
        assert run_dag(dag).state == "success"

    def test_soft_fail_skips_when_the_time_is_up(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        with new_dag() as dag:
            wait(timeout=0.5, soft_fail=True)
        assert run_dag(dag).task("wait").state == "skipped"


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
    def test_fails_at_once(
        self,
        options: dict,
        message: str,
        deferrable: bool,
        lake: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list,
    ) -> None:
        lake.create()
        with new_dag() as dag:
            wait(deferrable=deferrable, **options)
        assert run_dag(dag).state == "failed"
        assert message in str(failures[0])

    def test_no_retry_mends_a_wrong_name(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        with new_dag(retries=2) as dag:
            wait(deferrable=deferrable)
        run_dag(dag)
        assert [type(error) for error in failures] == [AirflowFailException]

    def test_a_table_that_is_created_later_can_be_waited_for(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, before_look: Callable
    ) -> None:
        def create() -> Any:
            lake.create()
            return lake.append([1])

        with new_dag() as dag:
            wait(deferrable=deferrable, wait_for_table=True)
        made = before_look(create)
        assert run_dag(dag).result("wait")["snapshot_id"] == str(made().snapshot_id)

    def test_a_store_that_is_away_is_waited_through(
        self, deferrable: bool, lake: Lake, new_dag: Callable, run_dag: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow_iceberg.catalogs.sql.catalog import SqlCatalog

        lake.create()
        lake.append([1])
        real, refused = SqlCatalog.load, []

        def load(catalog: SqlCatalog, table: Any) -> Any:
            if len(refused) < 3:
                refused.append(table)
                raise StorageError("the disk is away")
            return real(catalog, table)

        monkeypatch.setattr(SqlCatalog, "load", load)
        with new_dag() as dag:
            wait(deferrable=deferrable)
        assert run_dag(dag).state == "success"
        assert len(refused) == 3
