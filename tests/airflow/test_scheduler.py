"""A real scheduler and two triggerers: what they cut short, start again, delete and clean away.

The runs of the DAGs, which are in `dags_of_waiting`, begin together; each test looks at one of them. What takes long by
itself comes last, when its time is up. Jobs run on a cluster that is none, so that they end when a test says so.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.airflow.conftest import Lake, airflow_of
from tests.airflow.live import LiveAirflow
from tests.support.stand_in_yarn import StandInYarn, Submitted

pytestmark = [pytest.mark.slow, pytest.mark.services]
AT_ONCE = ("late", "limited", "job_limited", "run_limited", "spread", "poking")
SECOND = "second-triggerer"


class Cluster(StandInYarn):
    """The first job of each table runs on until it is ended, the others are done at once."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        self.then = self.hold_the_first

    def hold_the_first(self, one: Submitted) -> None:
        if len(self.of(table_of(one))) > 1:
            self.finish(one)

    def of(self, table: str) -> list[Submitted]:
        return [one for one in self.submitted if table_of(one) == table]


def table_of(one: Submitted) -> str:
    return one.argv[one.argv.index("--name") + 1].split()[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"))
    made.write_file("a.parquet", [1, 2])
    landing = [f"landing{number}" for number in range(5)]
    for name in ("empty", "job_limited", "run_limited", "spread", "after", "followed", "orders", *landing):
        made.create(f"s.{name}")
    return made


@pytest.fixture(scope="module")
def airflow(lake: Lake, cluster: Cluster) -> Iterator[LiveAirflow]:
    environment = {
        "SPARK_HOME": str(cluster.home),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(cluster.connection),
        "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        # Fewer than the tasks of `spread`, so that these are in both.
        "AIRFLOW__TRIGGERER__CAPACITY": "4",
    }
    with airflow_of(lake, "dags_of_waiting", environment) as running:
        running.start_triggerer(SECOND)
        wanted = {*AT_ONCE, "follow"}
        known = lambda: {one["dag_id"] for one in running.call("GET", "/api/v2/dags")["dags"]}  # noqa: E731
        running.wait_for(lambda: known() >= wanted, "the DAGs to be parsed")
        for dag_id in AT_ONCE:
            begin(running, dag_id)
        yield running


def begin(airflow: LiveAirflow, dag_id: str, run_id: str = "one", day: str | None = None) -> None:
    airflow.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": day})


def failed(airflow: LiveAirflow, dag_id: str) -> dict[str, dict[str, Any]]:
    """Wait for the run of a DAG to fail, and return its tasks by their names."""
    runs = airflow.wait_for(lambda: [one for one in airflow.runs(dag_id) if one["end_date"]], f"the end of {dag_id}")
    assert [one["state"] for one in runs] == ["failed"], airflow.logs()
    return {task["task_id"]: task for task in airflow.tasks(dag_id, "one")}


class TestWhatAirflowForgets:
    """Runs are deleted and triggered again, `airflow db clean` removes rows: the table knows what was done."""

    def test_runs_that_read_changes(self, lake, airflow):
        lake.append([1, 2], "s.orders")
        assert self.outcome_of(airflow, "one", "2026-01-01T00:00:00Z") == "committed"
        lake.append([3], "s.orders")
        assert self.outcome_of(airflow, "two", "2026-01-02T00:00:00Z") == "committed"
        lake.append([4], "s.orders")
        airflow.call("DELETE", "/api/v2/dags/follow/dagRuns/one")
        assert self.outcome_of(airflow, "one", "2026-01-01T00:00:00Z") == "committed"
        assert lake.ids("s.followed") == [1, 2, 3]

        # A try has committed and failed, and its run is cleaned of all but what Airflow needs to go on.
        (lake.folder / "fail").touch()
        begin(airflow, "follow", "three")
        airflow.wait_for((lake.folder / "failed").exists, "a try to fail after its commit")
        self.clean(airflow, "task_instance_history,xcom,log")
        (lake.folder / "fail").unlink()
        airflow.ended("follow", "three")
        assert airflow.xcom("follow", "three", "append")["outcome"] == "found"
        assert lake.ids("s.followed") == [1, 2, 3, 4]

        # Now a clear of one run; another one has lost its tasks, and is queued again.
        self.clean(airflow, "task_instance,task_instance_history,xcom,log", before=self.start_of(airflow, "three"))
        assert [airflow.tasks("follow", run_id) for run_id in ("one", "two")] == [[], []]
        airflow.call("PATCH", "/api/v2/dags/follow/dagRuns/two", {"state": "queued"})
        body = {"dag_run_id": "three", "dry_run": False, "only_failed": False, "reset_dag_runs": True}
        airflow.call("POST", "/api/v2/dags/follow/clearTaskInstances", body)
        for run_id in ("two", "three"):
            airflow.wait_for(lambda run_id=run_id: self.is_done(airflow, run_id), "the rerun")
        assert lake.ids("s.followed") == [1, 2, 3, 4]

        # At last all runs are gone, and one of them is triggered again.
        self.clean(airflow, "dag_run")
        assert airflow.runs("follow") == []
        assert self.outcome_of(airflow, "two", "2026-01-02T00:00:00Z") == "committed"
        lake.append([5], "s.orders")
        assert self.outcome_of(airflow, "four", "2026-01-04T00:00:00Z") == "committed"
        assert lake.ids("s.followed") == [1, 2, 3, 4, 5]

    def outcome_of(self, airflow: LiveAirflow, run_id: str, day: str) -> str:
        begin(airflow, "follow", run_id, day)
        airflow.ended("follow", run_id)
        return str(airflow.xcom("follow", run_id, "append")["outcome"])

    def clean(self, airflow: LiveAirflow, tables: str, before: str = "2999-01-01") -> None:
        """Let Airflow remove rows of the DAG, as often as it takes beside a busy scheduler."""
        options = ["--clean-before-timestamp", before, "--tables", tables, "--dag-ids", "follow", "--yes"]

        def done() -> bool:
            """Whether these were cleaned; of others, which depend on them, Airflow may know no DAG."""
            ended = airflow.run("db", "clean", *options, "--skip-archive")
            assert ended.returncode == 0, ended.stdout + ended.stderr
            kept = re.findall(r"attempting to clean table '(\w+)'", ended.stdout + ended.stderr)
            return not set(kept) & set(tables.split(","))

        airflow.wait_for(done, "the database to be cleaned")

    def start_of(self, airflow: LiveAirflow, run_id: str) -> str:
        (run,) = (one for one in airflow.runs("follow") if one["dag_run_id"] == run_id)
        return str(run["start_date"])

    def is_done(self, airflow: LiveAirflow, run_id: str) -> bool:
        tasks = airflow.tasks("follow", run_id)
        return [task["state"] for task in tasks] == ["success"]


class TestASensorThatIsScheduledAgain:
    """With `mode="reschedule"` each look is a process of its own."""

    def test_it_waits_for_what_is_new_and_remembers_what_it_has_seen(self, lake, airflow):
        lake.create("s.poked")
        for run_id in ("one", "two"):
            if run_id == "two":
                begin(airflow, "poking", run_id)
            self.has_looked(airflow, run_id)
            seen = str(lake.append([1], "s.poked").snapshot_id)
            airflow.ended("poking", run_id)
            assert airflow.xcom("poking", run_id, "landed")["snapshot_id"] == seen
            (rows,) = (task for task in airflow.tasks("poking", run_id) if task["task_id"] == "rows")
            assert rows["state"] == "skipped"

    def has_looked(self, airflow: LiveAirflow, run_id: str) -> None:
        def task() -> dict[str, Any] | None:
            found = (one for one in airflow.tasks("poking", run_id) if one["task_id"] == "landed")
            return next((one for one in found if one["state"] == "up_for_reschedule"), None)

        airflow.wait_for(task, "the sensor to look")


class TestTwoTriggerers:
    """One of them dies, and is started again: what it has watched goes on, and is committed once."""

    def test_while_tasks_are_deferred(self, lake, cluster, airflow):
        def triggerers() -> set[int]:
            """Return those of the sensors, if all of them wait, and the append has come to its job."""
            tasks = airflow.tasks("spread", "one")
            waiting = [task for task in tasks if task["task_id"] == "landed" and task["state"] == "deferred"]
            found = {(task["triggerer_job"] or {}).get("id") for task in waiting} - {None}
            (append,) = (task for task in tasks if task["task_id"] == "append")
            is_ready = append["state"] in ("deferred", "success")
            return found if len(waiting) == 5 and len(found) == 2 and is_ready else set()

        airflow.wait_for(triggerers, "the tasks to be in both triggerers")
        airflow.kill_triggerer(SECOND)
        for number in range(5):
            lake.append([number, 5], f"s.landing{number}")
        airflow.start_triggerer(SECOND)
        for job in cluster.of("s.spread"):
            if job.state == "RUNNING":
                cluster.finish(job)
        airflow.ended("spread")
        for number in range(5):
            landed = lake.load(f"s.landing{number}").current_snapshot()
            assert airflow.xcom("spread", "one", "landed", number)["snapshot_id"] == str(landed.snapshot_id)
        # A busy Airflow may have taken a try for a failed one, whose job the next one ends.
        assert {job.state for job in cluster.of("s.spread")[:-1]} <= {"KILLED"}
        assert (lake.ids("s.spread"), lake.ids("s.after")) == ([1, 2], [5])
        assert [len(lake.load(name).snapshots()) for name in ("s.spread", "s.after")] == [1, 1]


class TestTimeIsUpWhileATaskIsDeferred:
    """Whoever limits the time, the task ends, its job ends, and nothing is committed but by the last try."""

    def test_that_of_a_sensor_ends_it_for_good(self, airflow):
        task = failed(airflow, "late")["landed"]
        assert task["state"] == "failed"
        assert task["try_number"] < task["max_tries"], "no retry"
        assert "what happened: timed out while waiting for a snapshot" in airflow.log(task)

    def test_that_of_a_task_ends_a_try(self, airflow):
        task = failed(airflow, "limited")["rows"]
        assert (task["state"], task["try_number"]) == ("failed", 3), "it is retried"
        # Of any try: a busy Airflow may have ended another one by itself.
        logs = "".join(path.read_text() for path in (airflow.home / "logs" / "dag_id=limited").rglob("*.log"))
        assert "AirflowTaskTimeout" in logs
        assert "give the task a longer execution_timeout" in logs

    def test_that_of_a_task_ends_its_job(self, lake, cluster, airflow):
        airflow.ended("job_limited")
        # A busy Airflow may have taken a try whose job was done for a failed one, and begun another.
        states = [one.state for one in cluster.of("s.job_limited")]
        assert (states[0], states[-1]) == ("KILLED", "FINISHED"), states
        assert lake.ids("s.job_limited") == [1, 2]

    # On a busy machine the run may be out of time before its task was ever deferred.
    @pytest.mark.long
    def test_that_of_a_run_ends_its_tasks_and_a_clear_begins_anew(self, lake, cluster, airflow):
        def is_ended() -> bool:
            """Whether the run was ended while its task was deferred; on a busy machine it may never come to that."""
            (run,) = airflow.runs("run_limited")
            if run["state"] == "failed" and not cluster.of("s.run_limited"):
                airflow.clear("run_limited", "one")
            return bool(run["state"] == "failed" and cluster.of("s.run_limited"))

        airflow.wait_for(is_ended, "the run to be out of time")
        (task,) = airflow.tasks("run_limited", "one")
        assert task["state"] == "skipped"
        (job,) = cluster.of("s.run_limited")
        airflow.wait_for(lambda: job.state == "KILLED", "the job to be ended")
        assert lake.load("s.run_limited").current_snapshot() is None
        airflow.clear("run_limited", "one")

        def has_succeeded() -> bool:
            (run,) = airflow.runs("run_limited")
            if run["state"] == "failed":
                airflow.clear("run_limited", "one")
            return bool(run["state"] == "success")

        airflow.wait_for(has_succeeded, "the cleared run to succeed")
        assert lake.ids("s.run_limited") == [1, 2]
