"""The operation key of a task, from the values that Airflow gives to a worker, and from real runs."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from airflow_iceberg.commit.operation_key import Kin, OperationKey, kin_of
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.operators import IcebergAppendOperator
from airflow_iceberg.operators._key import installation_id, left_by, operation_key_of, taken_up
from tests.airflow.conftest import DAY, operators

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)
STARTED = datetime(2026, 11, 2, 3, 4, 5, 123457, tzinfo=UTC)


def context(*, try_number: int = 1, max_tries: int = 2, retries: int = 2, **run: Any) -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=try_number, max_tries=max_tries)
    times = {"logical_date": DAY, "run_after": DAY, "start_date": STARTED, "clear_number": 0, **run}
    return {"ti": ti, "task": SimpleNamespace(retries=retries), "dag_run": SimpleNamespace(**times)}


def kin(now: Any, before: Any) -> Kin | None:
    """How the commit of a task in one context is taken by a task in another."""
    key = operation_key_of(before)
    snapshot = Snapshot(
        snapshot_id=1,
        timestamp_ms=int((STARTED + timedelta(minutes=1)).timestamp() * 1000),
        summary=key.summary(before["ti"].try_number),
        manifest_list="memory://m",
    )
    return kin_of(operation_key_of(now), str(key), snapshot)


class TestTheRetriesOfToday:
    """A DAG author may change `retries` between two tries: that is no clear, and hides none."""

    @pytest.mark.parametrize("retries", [0, 1, 2, 3, 50])
    def test_a_retry_stays_a_retry(self, retries):
        assert kin(context(try_number=2, retries=retries), context()) is Kin.SAME

    @pytest.mark.parametrize("retries", [0, 1, 2, 3, 50])
    @pytest.mark.parametrize("then", [0, 1, 2, 3, 50])
    def test_a_clear_stays_a_clear(self, retries, then):
        """The scheduler, which clears a task, may know other retries than the worker that parses the file."""
        cleared = context(try_number=2, max_tries=1 + then, retries=retries, clear_number=1)
        assert kin(cleared, context()) is Kin.EARLIER
        assert kin(context(), cleared) is Kin.LATER

    @pytest.mark.parametrize("then", [0, 2, 3, 50])
    def test_also_where_the_run_does_not_count_it(self, then):
        cleared = context(try_number=2, max_tries=1 + then, clear_number=0)
        assert kin(cleared, context()) is Kin.EARLIER

    def test_a_context_without_a_run(self):
        first, second = context(), context(try_number=2, retries=7)
        for one in (first, second):
            del one["dag_run"]
        assert operation_key_of(first) == operation_key_of(second)


class TestWhichRunItIs:
    """A run is known by its start, in microseconds; a test run of a DAG has none of its own."""

    def test_a_run_that_was_deleted_and_created_again(self):
        again = context(start_date=STARTED + timedelta(microseconds=1))
        assert kin(again, context()) is Kin.EARLIER

    def test_times_of_the_run_and_of_its_last_start(self):
        key = operation_key_of(context())
        started_ms = int(STARTED.timestamp() * 1000)
        assert (key.run_after_ms, key.started_ms, key.may_be_cleared) == (started_ms, started_ms, False)
        key = operation_key_of(context(clear_number=1))
        assert (key.run_after_ms, key.started_ms) == (int(DAY.timestamp() * 1000), started_ms)
        assert key.may_be_cleared

    def test_a_test_run_starts_at_its_logical_date(self):
        key = operation_key_of(context(start_date=DAY))
        assert (key.epoch, key.run_after_ms, key.started_ms) == (0, None, None)

    @pytest.mark.parametrize(
        ("run_id", "run", "expected"),
        [
            (f"scheduled__{DAY.isoformat()}", {"run_type": "scheduled"}, DAY),
            ("scheduled__2026-W18", {"run_type": "scheduled"}, DAY),  # a timetable may make the id
            (f"backfill__{DAY.isoformat()}", {}, DAY),
            (f"asset_triggered__{DAY.isoformat()}_x7", {"logical_date": None}, DAY),
            (f"manual__{DAY.isoformat()}_x7", {"run_type": "manual", "logical_date": None}, DAY),
            (f"manual__{DAY.isoformat()}", {"run_type": SimpleNamespace(value="manual")}, DAY),
            (f"manual__{DAY.isoformat()}", {"run_after": STARTED}, DAY),  # triggered again under its id
            ("manual__2026-05-01T00:00:00Z", {"run_after": STARTED}, datetime(2026, 5, 1, tzinfo=UTC)),
            (f"manual__{STARTED.isoformat()}", {}, None),  # not before its time
            ("manual__2026-13-01T00:00:00+00:00", {}, None),
            ("scheduled__mine", {"run_type": "operator_triggered"}, None),
            ("mine", {}, None),
            ("my__2026", {"run_type": "manual"}, None),
        ],
    )
    def test_the_earliest_time_of_a_run_with_this_id(self, run_id, run, expected):
        """What a run that was deleted and created again has in common with the one before."""
        given = context(**run)
        given["ti"].run_id = run_id
        key = operation_key_of(given)
        assert key.earliest_ms == (0 if expected is None else int(expected.timestamp() * 1000))
        assert taken_up(left_by(key), None).earliest_ms == key.earliest_ms

    def test_a_test_run_may_have_no_times(self):
        assert operation_key_of(context(start_date=DAY)).earliest_ms is None
        assert operation_key_of(context(run_after=None)).earliest_ms is None

    def test_the_first_form_of_the_key_is_still_known(self):
        assert operation_key_of(context()).older_epoch == 0
        assert operation_key_of(context(try_number=3, max_tries=4)).older_epoch == 2


class TestADeferredTask:
    """Its next process goes on with its key, which Airflow hands on."""

    def test_what_it_leaves_passes_through_airflow(self):
        """`dag.test()` hands objects on; a worker writes them as msgpack, with integers of at most 64 bits."""
        key = operation_key_of(context())
        assert key.epoch > 2**64
        left = msgspec.msgpack.decode(msgspec.msgpack.encode(left_by(key)))
        assert taken_up(left, None) == key
        assert (taken_up(left, None).started_ms, taken_up(left, key).is_cleared) == (key.started_ms, False)


class TestTheInstallation:
    """An option names it; else it is a digest of the addresses of the API server, the same for all workers."""

    def test_the_option(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW__AIRFLOW_ICEBERG__INSTALLATION_ID", "prod/eu")
        assert str(operation_key_of(context())).startswith("d/r/prod%2Feu/t/-1/")

    @pytest.mark.parametrize("name", ["x" * 101, "a\nb"])
    def test_a_useless_option(self, monkeypatch, name):
        monkeypatch.setenv("AIRFLOW__AIRFLOW_ICEBERG__INSTALLATION_ID", name)
        with pytest.raises(InvalidInputError, match="expected a name of at most 100 characters"):
            installation_id()

    def test_addresses_tell_installations_apart(self, monkeypatch):
        def of(base_url: str, api: str = "", home: str = "/opt/airflow") -> str:
            monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
            monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", api)
            monkeypatch.setenv("AIRFLOW_HOME", home)
            return installation_id()

        assert (
            len({of("https://a.example.com"), of("https://b.example.com"), of("", "http://api.a:8080/execution/")}) == 3
        )
        assert of("https://a.example.com") == of("https://A.example.com/")
        # Workers may have their own folders, as long as the server is another machine.
        assert of("https://a.example.com", home="/x") == of("https://a.example.com", home="/y")
        assert of("", home="/x") != of("", home="/y")
        assert of("http://localhost:8080", home="/x") != of("http://localhost:8080", home="/y")

    def test_it_says_nothing_of_secrets(self, monkeypatch):
        before = installation_id()
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "s3cr3t")
        monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s3cr3t")
        assert installation_id() == before
        assert len(before) == 12

    @pytest.mark.services
    def test_two_installations_write_into_one_table(self, lake, new_dag, run_dag, monkeypatch):
        lake.create()
        after = datetime(2026, 5, 5, tzinfo=UTC)
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])))
        for name in ("prod", "staging"):
            monkeypatch.setenv("AIRFLOW__AIRFLOW_ICEBERG__INSTALLATION_ID", name)
            assert run_dag(dag, run_after=after).result("append")["outcome"] == "committed"
        assert lake.ids() == [1, 1]
        assert run_dag(dag, run_after=after).result("append")["outcome"] == "found"


class TestAClearInAirflow:
    """What a real clear changes."""

    @pytest.mark.services
    @pytest.mark.parametrize("later", [0, 1, 2, 5])
    def test_with_other_retries(self, lake, new_dag, run_dag, clear, later):
        lake.create()
        with new_dag(retries=2) as dag:
            task = append(files=str(lake.write_file("a.parquet", [1, 2])))
        run = run_dag(dag)
        task.retries = later
        lake.write_file("a.parquet", [3])
        result = clear(dag, run).result("append")
        assert (result["outcome"], result["deleted_records"]) == ("committed", 2)
        assert lake.ids() == [3]

    @pytest.mark.services
    def test_a_try_finds_a_commit_under_the_first_form_of_the_key(self, lake, new_dag, run_dag):
        lake.create()
        with new_dag(retries=1) as dag:
            append(files=str(lake.write_file("a.parquet", [1])))
        run_id = "manual__2026-05-05T00:00:00+00:00"
        lake.append([1], operation_key=OperationKey(dag_id=dag.dag_id, run_id=run_id, task_id="append"))
        run = run_dag(dag, run_after=datetime(2026, 5, 5, tzinfo=UTC))
        assert (run.dag_run.run_id, run.result("append")["outcome"]) == (run_id, "found")
        assert lake.ids() == [1]
