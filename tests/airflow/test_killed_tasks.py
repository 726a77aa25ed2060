"""Exactly once, with processes that are really killed, under a real scheduler with LocalExecutor.

All DAGs start by themselves when Airflow does; each test looks at one of them.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.airflow.conftest import Lake, airflow_of
from tests.airflow.live import LiveAirflow
from tests.support.on_call import rows

# What the second try has to find: nothing was committed when the first was killed, or everything was.
NOTHING_COMMITTED = ("before_submit", "files_written_no_result", "before_commit", "metadata_written_no_swap")
COMMITTED = ("after_swap", "after_swap_with_worker", "after_commit", "before_xcom")
SPARK = ("spark_running", "spark_killed", "worker_killed")

pytestmark = [pytest.mark.slow, pytest.mark.services]


def some_of(points: tuple[str, ...], left_out: str) -> list[Any]:
    """Return the points, one of which `make stress` alone tries."""
    return [pytest.param(point, marks=pytest.mark.long) if point == left_out else point for point in points]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"))
    made.write_file("a.parquet", [1, 2])
    made.write_file("b.parquet", [3])
    for name in (*NOTHING_COMMITTED, *COMMITTED, *SPARK, "mapped"):
        made.create(f"s.{name}")
    return made


@pytest.fixture(scope="module")
def airflow(lake: Lake, request: pytest.FixtureRequest) -> Iterator[LiveAirflow]:
    chosen = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    points = {str(found.params["point"]) for found in chosen if found is not None} | {"after_swap"}
    environment = {
        "AIRFLOW_ICEBERG_TEST_POINTS": ",".join(sorted(points)),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
    with airflow_of(lake, "dags", environment) as running:
        yield running


def killed_try(lake: Lake, point: str, map_index: int = -1) -> int:
    """The try that was killed; the first one, unless the machine was too busy to start it."""
    return int((lake.folder / f"killed-{point}-{map_index}").read_text())


class TestATaskThatIsKilled:
    """Wherever the first try dies, the second leaves the rows in the table once."""

    @pytest.mark.parametrize("point", some_of(NOTHING_COMMITTED, "metadata_written_no_swap"))
    def test_before_its_commit_does_the_work_again(self, point, lake, airflow):
        run_id, (task,) = airflow.ended(f"kill_{point}")
        assert task["try_number"] > killed_try(lake, point)
        happened, to_do, _ = rows()["the system has killed the task"]
        log = airflow.log(task, killed_try(lake, point))
        assert happened.strip("`") in log, "what docs/errors.md says that Airflow says"
        assert to_do in log
        assert lake.ids(f"s.{point}") == [1, 2, 3]
        assert [s.operation for s in lake.load(f"s.{point}").snapshots()] == ["append"]
        result = airflow.xcom(f"kill_{point}", run_id, "append")
        assert (result["outcome"], result["done_by_this_try"]) == ("committed", True)

    @pytest.mark.parametrize("point", some_of(COMMITTED, "before_xcom"))
    def test_after_its_commit_finds_it_and_gives_the_same_asset_event(self, point, lake, airflow):
        run_id, (task,) = airflow.ended(f"kill_{point}")
        assert task["try_number"] > killed_try(lake, point)
        assert lake.ids(f"s.{point}") == [1, 2, 3]
        (snapshot,) = lake.load(f"s.{point}").snapshots()
        result = airflow.xcom(f"kill_{point}", run_id, "append")
        assert (result["outcome"], result["done_by_this_try"]) == ("found", False)
        assert (result["snapshot_id"], result["added_records"]) == (str(snapshot.snapshot_id), 3)
        assert snapshot.summary["airflow.try-number"] == str(killed_try(lake, point))
        assets = airflow.call("GET", f"/api/v2/assets?name_pattern=asset_{point}")["assets"]
        (asset,) = (asset for asset in assets if asset["name"] == f"asset_{point}")
        events = airflow.call("GET", f"/api/v2/assets/events?asset_id={asset['id']}")["asset_events"]
        assert [event["extra"] for event in events] == [result]

    @pytest.mark.spark
    @pytest.mark.parametrize("point", some_of(SPARK, "spark_killed"))
    def test_while_spark_runs_or_with_spark_itself(self, point, lake, airflow):
        _, (task,) = airflow.ended(f"kill_{point}")
        assert task["try_number"] > killed_try(lake, point)
        assert lake.ids(f"s.{point}") == [1, 2, 3]
        assert len(lake.load(f"s.{point}").snapshots()) == 1
        if point == "worker_killed":
            # The task outlives its worker, as long as it takes to end its Spark.
            assert (lake.folder / "ended-with-its-worker").read_text() == "the job was cancelled"

    def test_each_index_of_a_mapped_task_for_itself(self, lake, airflow):
        run_id, tasks = airflow.ended("kill_mapped")
        assert all(task["try_number"] > killed_try(lake, "after_swap", task["map_index"]) for task in tasks)
        assert lake.ids("s.mapped") == [1, 2, 3]
        assert len(lake.load("s.mapped").snapshots()) == 2
        outcomes = [airflow.xcom("kill_mapped", run_id, "append", index)["outcome"] for index in (0, 1)]
        assert outcomes == ["found", "found"]


class TestAClearedTask:
    """A person clears a run that succeeded: its rows are replaced in one commit, or doubled, or kept, as was chosen."""

    def test_that_was_killed_at_its_first_run_replaces_its_rows(self, lake, airflow):
        run_id, (before,) = airflow.ended("kill_after_swap")
        airflow.clear("kill_after_swap", run_id)
        _, (task,) = airflow.ended("kill_after_swap")
        assert task["try_number"] > before["try_number"]
        assert lake.ids("s.after_swap") == [1, 2, 3]
        assert [s.operation for s in lake.load("s.after_swap").snapshots()] == ["append", "overwrite"]
        result = airflow.xcom("kill_after_swap", run_id, "append")
        assert (result["operation"], result["added_records"], result["deleted_records"]) == ("overwrite", 3, 3)
