"""The operator that undoes a run: by its own run, another run, or an operation key."""

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.operators import IcebergAppendOperator, IcebergUndoOperator

KEY = OperationKey(dag_id="other", run_id="r", task_id="t")


@pytest.fixture
def loaded(lake):
    lake.create(properties={"format-version": "3"})
    lake.append([1, 2], operation_key=KEY)
    return lake


class TestItsOwnRun:
    """Without names it is the run of the task."""

    @pytest.mark.costly
    def test_and_no_other_one(self, loaded, new_dag, run_dag):
        path = loaded.write_file("new.parquet", [3, 4, 5])
        with new_dag() as dag:
            load = IcebergAppendOperator(task_id="load", table="s.t", files=str(path), spark_conn_id=None)
            load >> IcebergUndoOperator(task_id="undo", table="s.t", undo_task_id="load")
        run = run_dag(dag)
        assert loaded.ids() == [1, 2]
        result = run.result("undo")
        assert (result["outcome"], result["removed_records"], result["done_by_this_try"]) == ("committed", 3, True)
        assert isinstance(result["snapshot_id"], str)


class TestAnotherRun:
    """By DAG and run, or by an operation key; both may be templates."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "chosen",
        [
            {"operation_key": "{{ params.key }}", "params": {"key": str(KEY)}},
            {"undo_dag_id": "other", "undo_run_id": "{{ params.run }}", "undo_task_id": "t", "params": {"run": "r"}},
            {"undo_dag_id": "other", "undo_run_id": "r", "undo_task_id": "t", "undo_map_index": "-1"},
        ],
        ids=["key", "run", "task"],
    )
    def test_is_undone(self, loaded, run_task, chosen):
        run_task(IcebergUndoOperator, task_id="undo", table="s.t", **chosen)
        assert loaded.ids() == []

    @pytest.mark.costly
    def test_a_dry_run(self, loaded, run_task):
        chosen = {"operation_key": str(KEY), "dry_run": "{{ 1 == 1 }}"}
        found = run_task(IcebergUndoOperator, task_id="undo", table="s.t", **chosen).result("undo")
        assert (found["outcome"], found["removed_records"], len(found["files"])) == ("dry_run", 2, 1)
        assert loaded.ids() == [1, 2]

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"undo_dag_id": "other"}, "no undo_run_id says which of its runs is undone; give it, too"),
            ({"undo_dag_id": "other", "undo_run_id": "r", "operation_key": str(KEY)}, "not both"),
            (
                {"undo_dag_id": "other", "undo_run_id": "unknown"},
                "is of DAG 'other', run 'unknown'; `airflow iceberg runs` lists",
            ),
        ],
    )
    def test_a_wrong_choice_fails_at_once(self, loaded, run_task, chosen, message):
        run = run_task(IcebergUndoOperator, task_id="undo", table="s.t", **chosen)
        (failure,) = run.failures
        assert message in str(failure)
        assert type(failure).__name__ == "AirflowFailException"
        assert loaded.ids() == [1, 2]


@pytest.mark.costly
def test_a_refusal_is_not_retried(lake, run_task):
    lake.create(properties={"format-version": "2"})
    lake.append([1], operation_key=KEY)
    lake.load().overwrite(pa.table({"id": pa.array([7], pa.int64())}))
    run = run_task(IcebergUndoOperator, task_id="undo", table="s.t", operation_key=str(KEY), retries=2)
    # The overwrite was no task's: whether 7 is a row that it kept, with a new value, cannot be told in version 2.
    assert [type(one).__name__ for one in run.failures] == ["AirflowFailException"]
    assert lake.ids() == [7]
