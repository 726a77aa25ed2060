"""What a real Airflow tells a task whose run was cleared or deleted meanwhile."""

import pytest

from tests.airflow.conftest import Lake, airflow_of

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    made = Lake(tmp_path_factory.mktemp("lake"))
    for name in ("stays", "again"):
        made.create(f"s.{name}")
        made.write_file(f"{name}.parquet", [1, 2])
    return made


@pytest.fixture(scope="module")
def airflow(lake):
    with airflow_of(lake, "dags_of_clears", {}) as running:
        running.wait_for(lambda: _is_known(running), "the DAGs to be parsed")
        yield running


def _is_known(airflow):
    return {"stays", "again"} <= {dag["dag_id"] for dag in airflow.call("GET", "/api/v2/dags")["dags"]}


def begin(airflow, dag_id):
    body = {"dag_run_id": "one", "logical_date": None}
    airflow.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)


def test_a_task_that_is_cleared_after_its_commit_while_it_runs_is_done_again(lake, airflow):
    begin(airflow, "stays")
    airflow.wait_for(lambda: (lake.folder / "killed-stays").exists(), "the first try to commit")
    lake.write_file("stays.parquet", [3])
    airflow.clear("stays", "one")
    _, (task,) = airflow.ended("stays", "one")
    assert task["try_number"] > 1
    assert lake.ids("s.stays") == [3]
    assert [s.operation for s in lake.load("s.stays").snapshots()] == ["append", "overwrite"]


def test_a_run_that_is_deleted_and_created_again_writes_its_rows(lake, airflow):
    begin(airflow, "again")
    airflow.ended("again", "one")
    lake.load("s.again").delete("true")
    old = {str(snapshot.snapshot_id) for snapshot in lake.load("s.again").snapshots()}
    lake.write_file("again.parquet", [3])
    airflow.call("DELETE", "/api/v2/dags/again/dagRuns/one")
    begin(airflow, "again")
    airflow.ended("again", "one")
    # A commit of its own, and not that of the run before; a retry of the new run may have found it.
    assert str(airflow.xcom("again", "one", "append")["snapshot_id"]) not in old
    assert lake.ids("s.again") == [3]
    assert [s.operation for s in lake.load("s.again").snapshots()] == ["append", "delete", "append"]
