"""PaimonSnapshotSensor under `dag.test()`, poking and deferring."""

import datetime as dt
import functools
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout

from airflow_iceberg.errors import NotFoundError, SnapshotsLostError, StorageError
from airflow_iceberg.paimon import new_snapshot
from airflow_iceberg.sensors import PaimonSnapshotSensor
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.airflow.conftest import DAY, Instance, operators
from tests.airflow.paimon_lake import PaimonLake

BOTH = pytest.mark.parametrize("deferrable", [False, True], ids=["poking", "deferring"])
NEXT = DAY + timedelta(days=1)
NEW_YEAR = 20454  # 2026-01-01 in days since 1970

wait = operators(PaimonSnapshotSensor, task_id="wait", table="db.t", poke_interval=0.2, timeout=300)


@pytest.fixture
def lake(paimon_lake: PaimonLake) -> PaimonLake:
    assert paimon_lake.table
    return paimon_lake


@BOTH
class TestWhatIsNew:
    """A snapshot after one given, after a time, or after what this DAG has seen."""

    @pytest.mark.services
    def test_the_first_run_takes_any_snapshot_and_sees_it_again_when_it_is_cleared(
        self, deferrable, lake, new_dag, run_dag, clear
    ):
        made = lake.write("a", rows=3, watermark=7)
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run = run_dag(dag)
        first = run.result("wait")
        assert first == {
            "table": lake.location,
            "branch": "main",
            "event": "snapshot",
            "snapshot_id": "1",
            "identity": f"tests/{2**63 - 1}/{made['timeMillis']}/{made['deltaManifestList']}",
            "timestamp_ms": made["timeMillis"],
            "commit_kind": "APPEND",
            "schema_id": 0,
            "watermark": 7,
            "total_records": 3,
            "delta_records": 3,
            "new_records": None,
            "seen_snapshot_id": None,
            "missed": None,
        }
        assert clear(dag, run).result("wait") == first

    @pytest.mark.services
    def test_the_second_run_waits_for_one_that_the_first_has_not_seen(
        self, deferrable, lake, new_dag, run_dag, before_look
    ):
        lake.write("a")
        with new_dag() as dag:
            wait(deferrable=deferrable)
        run_dag(dag)
        before_look(lambda: lake.write("b"))
        found = run_dag(dag, day=NEXT).result("wait")
        assert (found["snapshot_id"], found["seen_snapshot_id"]) == ("2", "1")

    @pytest.mark.services
    def test_words_may_be_templates(self, deferrable, lake, run_task, before_look):
        def write() -> None:
            lake.write("b", day=NEW_YEAR, rows=4, level=5, commitKind="OVERWRITE", watermark=5)
            lake.table.tag("day-2026-01-01", 2)

        lake.write("a")
        before_look(write)
        run = run_task(
            wait,
            table="{{ params.location }}",
            deferrable=deferrable,
            after_snapshot_id="{{ '1' }}",
            commit_kinds=["{{ 'OVERWRITE' }}"],
            min_watermark="{{ '1970-01-01T00:00:00.005Z' }}",
            min_new_records="{{ 4 }}",
            partition={"dt": "{{ ds }}"},
            tag="day-{{ ds }}",
            fully_compacted=True,
            params={"location": lake.location},
        )
        assert run.result("wait")["snapshot_id"] == "2"


def poked(**options: Any) -> str | None:
    """Return the snapshot that one poke finds, which is the first thing that a deferring sensor does, too."""
    found = wait(**options).poke({"ti": Instance(), "logical_date": DAY})
    return found.xcom_value["snapshot_id"] if found else None


class TestWhatCounts:
    """Everything that is asked for has to hold; what does not count is waited through."""

    FILTERS: ClassVar = [
        ({"after_snapshot_id": 1}, {"after_snapshot_id": "2"}),
        ({"after_snapshot_id": " 1 "}, {"after_snapshot_id": 2}),
        ({"after_snapshot_id": "None"}, {"after": "2999-01-01T00:00:00Z"}),
        ({"after": "logical_date"}, {"after": "2999-01-01"}),
        ({"after": "2026-01-01T00:00:00Z"}, {"after_snapshot_id": 2}),
        ({"commit_kinds": ["OVERWRITE", "COMPACT"]}, {"commit_kinds": ["COMPACT"]}),
        ({"commit_kinds": "OVERWRITE"}, {"commit_kinds": "ANALYZE"}),
        ({"min_watermark": 5}, {"min_watermark": "6"}),
        ({"min_watermark": "1970-01-01T00:00:00.005Z"}, {"min_watermark": "1970-01-01T00:00:00.006"}),
        ({"partition": {"dt": "2026-01-01"}}, {"partition": {"dt": "2026-01-02"}}),
        ({"partition": {"dt": dt.date(2026, 1, 1)}}, {"partition": {"dt": None}}),
        ({"min_new_records": 5}, {"min_new_records": "6"}),
        (
            {"min_new_records": 4, "partition": {"dt": "2026-01-01"}},
            {"min_new_records": 5, "partition": {"dt": "2026-01-01"}},
        ),
        ({"tag": "done"}, {"tag": "undone"}),
        ({"fully_compacted": True, "partition": {"dt": "2026-01-01"}}, {"fully_compacted": True}),
    ]

    @pytest.fixture(autouse=True)
    def written(self, lake: PaimonLake) -> None:
        lake.write("a", timeMillis=1_600_000_000_000)
        lake.write("b", day=NEW_YEAR, rows=4, level=5, commitKind="OVERWRITE", watermark=5)
        lake.table.tag("done", 2)

    @pytest.mark.costly
    @pytest.mark.parametrize(("counts", "does_not"), FILTERS, ids=lambda options: "-".join(options))
    def test_by_each_filter(self, counts, does_not):
        assert poked(**counts) == "2"
        assert poked(**does_not) is None

    @pytest.mark.costly
    def test_until_the_time_is_up(self, run_task):
        # Poking: of a sensor that defers the scheduler ends the wait, which `dag.test()` does not have.
        run = run_task(wait, timeout=0.5, deferrable=False, after_snapshot_id=2)
        assert run.state == "failed"
        assert isinstance(run.failures[0], AirflowSensorTimeout)


class TestSnapshotsThatAreLost:
    """A rollback or an expired gap is never waited through: it fails at once, is said once, or is returned."""

    @pytest.fixture(autouse=True)
    def written(self, lake: PaimonLake) -> None:
        for name in "abc":
            lake.write(name)

    def lose(self, lake: PaimonLake, how: str) -> None:
        if how == "rolled_back":
            lake.table.roll_back(1)
            lake.write("d", timeMillis=1_795_231_999_999)
        else:
            for name in "def":
                lake.write(name)
            lake.table.expire(before=6)

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("deferrable", "how", "message", "after"),
        [
            (
                False,
                "rolled_back",
                "was rolled back or created again after snapshot 3, the last one seen; it is now at",
                "3",
            ),
            (True, "expired_gap", "snapshots 4 to 5 of /", "7"),
        ],
    )
    def test_fails_once_without_a_retry_and_the_next_run_goes_on_with_what_there_is(
        self, deferrable, how, message, after, lake, new_dag, run_dag, before_look
    ):
        with new_dag(retries=2) as dag:
            wait(deferrable=deferrable)
        assert run_dag(dag).result("wait")["snapshot_id"] == "3"
        self.lose(lake, how)
        run = run_dag(dag, day=NEXT)
        assert message in run.refusal
        assert isinstance(run.failures[0].__cause__, SnapshotsLostError)
        before_look(lambda: lake.write("new"))
        found = run_dag(dag, day=NEXT + timedelta(days=1)).result("wait")
        assert (found["event"], found["snapshot_id"]) == ("snapshot", after)

    @pytest.mark.parametrize(
        ("how", "latest", "missed"), [("rolled_back", "2", None), ("expired_gap", "6", ["4", "5"])]
    )
    def test_or_is_returned(self, how, latest, missed, lake):
        sensor, context = wait(on_lost_snapshots="return", commit_kinds=["COMPACT"]), {"ti": Instance()}
        assert not sensor.poke(context)
        self.lose(lake, how)
        found = sensor.poke(context).xcom_value
        assert (found["event"], found["snapshot_id"], found["missed"]) == (how, latest, missed)

    @pytest.mark.costly
    def test_while_the_triggerer_waits_too(self, lake, run_task, before_look):
        before_look(lambda: self.lose(lake, "rolled_back"), skip=2)
        run = run_task(wait, deferrable=True, commit_kinds=["COMPACT"])
        assert "was rolled back or created again after snapshot 3" in run.refusal


class TestALongWaitOverAShortHistory:
    """What was judged is written down before it expires, so that a new triggerer sees no gap that is none."""

    @pytest.mark.services
    def test_every_snapshot_is_judged_once(self, lake, run_task, before_look):
        def write(number: int) -> None:
            lake.write(f"{number}")
            lake.table.expire(before=number)

        lake.write("0")
        before_look(*(functools.partial(write, number) for number in range(1, 7)))
        found = run_task(wait, deferrable=True, min_new_records=7).result("wait")
        assert (found["new_records"], found["snapshot_id"]) == (7, "7")


class TestWaitingIsNotFailing:
    """A store that is away is waited for; what waiting cannot mend fails at once."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"table": "db.nothing"}, "no Paimon table at /"),
            ({"table": "nothing"}, "unexpected table 'nothing'"),
            ({"table": None}, "has no path"),
            ({"branch": "nothing"}, "branch/branch-nothing"),
            ({"commit_kinds": ["append"]}, "'append'"),
            ({"after": "yesterday"}, "after='yesterday'"),
            ({"after_snapshot_id": "x1"}, "'x1'"),
            ({"after": "last_seen", "after_snapshot_id": "1"}, "both given"),
            ({"min_watermark": "soon"}, "min_watermark='soon'"),
            ({"min_new_records": "many"}, "min_new_records='many'"),
            ({"min_new_records": 0}, "expected 1 or more"),
            ({"partition": {"day": 1}}, "'day' is no partition key; the table has dt"),
            ({"partition": {"dt": "today"}}, "'today' is no value of partition key 'dt' of type DATE"),
            ({"on_lost_snapshots": "ignore"}, "expected 'fail' or 'return'"),
            ({"paimon_conn_id": "nobody"}, "Paimon connection 'nobody' does not exist"),
        ],
    )
    def test_fails_at_once(self, options, message, lake):
        lake.write("a")
        with pytest.raises(AirflowFailException) as caught:
            poked(**options)
        assert message in str(caught.value)

    def test_a_broken_table_is_an_error_though_it_may_be_missing(self, lake):
        made = lake.write("a")
        Path(f"{lake.location}/manifest/{made['deltaManifestList']}").unlink()
        with pytest.raises(AirflowFailException, match="cannot read"):
            poked(wait_for_table=True, partition={"dt": "2026-01-01"})
        Path(f"{lake.location}/snapshot/snapshot-1").unlink()
        message = r"the hint says snapshot '1', expected files snapshot-\* in the same folder"
        for wait_for_table in (False, True):
            with pytest.raises(AirflowFailException, match=message):
                poked(wait_for_table=wait_for_table)

    def test_a_store_that_is_away_is_looked_at_again(self, lake, monkeypatch):
        lake.write("a")
        real = FsspecFileIO.read

        def away(*_: Any, **__: Any) -> bytes:
            raise StorageError("the store is away")

        sensor, context = wait(), {"ti": Instance()}
        monkeypatch.setattr(FsspecFileIO, "read", away)
        assert not sensor.poke(context)
        monkeypatch.setattr(FsspecFileIO, "read", real)
        assert sensor.poke(context).xcom_value["snapshot_id"] == "1"

    def test_where_to_start_is_asked_again_when_nobody_could_tell(self, lake):
        """A poke that fails may be followed by another one (`silent_fail`), which must not begin with everything."""
        lake.write("a")
        sensor, before = wait(), Instance()
        sensor.poke({"ti": before})

        class Away(Instance):
            def xcom_pull(self, **_: Any) -> list[Any]:
                raise ConnectionError("the API server is away")

        sensor = wait()
        with pytest.raises(ConnectionError):
            sensor.poke({"ti": Away()})
        assert not sensor.poke({"ti": before})

    @pytest.mark.services
    def test_a_table_that_is_created_later_can_be_waited_for(self, paimon_lake, run_task, before_look):
        before_look(lambda: paimon_lake.write("a"))
        assert run_task(wait, deferrable=True, wait_for_table=True).result("wait")["snapshot_id"] == "1"

    def test_a_table_that_is_created_after_a_look_is_looked_at_again(self, paimon_lake, monkeypatch):
        """The look finds no table, and by the time that its error is judged there is one."""
        real, looks = new_snapshot.look, []

        def look(*arguments: Any) -> Any:
            looks.append(arguments)
            try:
                return real(*arguments)
            except NotFoundError:
                paimon_lake.write("a")
                raise

        monkeypatch.setattr(new_snapshot, "look", look)
        assert poked(wait_for_table=True) == "1"
        assert len(looks) == 2
