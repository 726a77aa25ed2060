"""Overwrites and deletes under `dag.test()`."""

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.operators.delete import IcebergDeleteOperator
from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator
from tests.airflow.conftest import Lake


@pytest.fixture
def table(lake: Lake) -> Lake:
    """Three files of ten rows."""
    lake.create(schema={"id": "long"})
    for start in range(0, 30, 10):
        lake.append(list(range(start, start + 10)))
    return lake


def delete(predicate: str, **options: Any) -> IcebergDeleteOperator:
    return IcebergDeleteOperator(
        **{"task_id": "delete", "table": "s.t", "spark_conn_id": None, "predicate": predicate, **options}
    )


def overwrite(**options: Any) -> IcebergOverwriteOperator:
    return IcebergOverwriteOperator(**{"task_id": "overwrite", "table": "s.t", "spark_conn_id": None, **options})


class TestDeletes:
    """Rows that the predicate selects go, and the task says how many."""

    def test_of_some_rows(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"least": 15, "most": "5"}) as dag:
            delete("id >= {{ params.least }} and id < 20", max_rows="{{ params.most }}")
        result = run_dag(dag).result("delete")
        assert (result["outcome"], result["deleted_records"], result["added_data_files"]) == ("committed", 5, 1)
        assert result["snapshot_id"] == str(table.load().current_snapshot().snapshot_id)
        assert table.ids() == [*range(15), *range(20, 30)]
        assert not table.staged()

    def test_whole_files_go_without_a_job(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            # A connection that does not exist would fail the task, if it were asked for.
            delete("id >= 20", spark_conn_id="nowhere")
        result = run_dag(dag).result("delete")
        assert (result["deleted_records"], result["deleted_data_files"]) == (10, 1)
        assert table.ids() == list(range(20))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"predicate": "id > 3", "max_rows": 5}, "max_rows is 5; nothing was deleted"),
            ({"predicate": "id > 3", "max_rows": "{{ '' }}"}, "max_rows is '', expected a number of rows"),
            ({"predicate": "{{ '' }}"}, "to delete every row write 'true'"),
            ({"predicate": "nope = 1"}, "nope"),
        ],
    )
    def test_what_cannot_be_done_fails_for_good(
        self,
        table: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list[BaseException],
        options: dict[str, Any],
        message: str,
    ) -> None:
        with new_dag() as dag:
            delete(**options)
        assert run_dag(dag).state == "failed"
        assert isinstance(failures[0], AirflowFailException)
        assert message in str(failures[0])
        assert table.ids() == list(range(30))

    def test_a_task_that_died_after_its_commit_finds_it(
        self, table: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        class Dies(IcebergDeleteOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                if context["ti"].try_number == 1:
                    table.append([3])
                    raise AirflowException("after the commit")
                return result

        with new_dag(retries=1) as dag:
            Dies(task_id="delete", table="s.t", predicate="id in (3, 4)", spark_conn_id=None)
        result = run_dag(dag).result("delete")
        assert (result["outcome"], result["deleted_records"]) == ("found", 2)
        assert table.ids() == [0, 1, 2, 3, *range(5, 30)]


class TestOverwrites:
    """New rows take the place of old ones in one commit."""

    def test_of_matching_rows(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        table.write_file("day.parquet", [15, 16, 100])
        with new_dag(params={"from": 15}) as dag:
            overwrite(files=str(table.folder / "source" / "*.parquet"), overwrite_filter="id >= {{ params['from'] }}")
        result = run_dag(dag).result("overwrite")
        assert (result["outcome"], result["added_records"], result["deleted_records"]) == ("committed", 3, 15)
        assert (result["carried_records"], result["operation"]) == (5, "overwrite")
        assert table.ids() == [*range(15), 15, 16, 100]
        assert len(table.load().snapshots()) == 4
        assert not table.staged()

    def test_of_the_whole_table(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        table.write_file("day.parquet", [1])
        with new_dag() as dag:
            overwrite(files=str(table.folder / "source" / "day.parquet"), replace="table")
        assert run_dag(dag).result("overwrite")["deleted_records"] == 30
        assert table.ids() == [1]

    def test_rows_that_do_not_match_fail_the_task(
        self, table: Lake, new_dag: Callable, run_dag: Callable, failures: list[BaseException]
    ) -> None:
        path = table.write_file("day.parquet", [20, 3])
        with new_dag() as dag:
            overwrite(files=str(path), overwrite_filter="id >= 15")
        assert run_dag(dag).state == "failed"
        assert isinstance(failures[0], AirflowFailException)
        assert "does not match the overwrite's filter 'id >= 15': id is 3" in str(failures[0])
        assert table.ids() == list(range(30))
        assert len(table.data_files()) == 3
        assert not table.staged()

    @pytest.mark.parametrize(
        ("on_empty", "state", "left"), [("nothing", "success", 30), ("delete", "success", 15), ("fail", "failed", 30)]
    )
    def test_a_source_without_rows(
        self, table: Lake, new_dag: Callable, run_dag: Callable, on_empty: str, state: str, left: int
    ) -> None:
        path = table.write_file("day.parquet", [])
        with new_dag() as dag:
            overwrite(files=str(path), overwrite_filter="id >= 15", on_empty=on_empty)
        assert run_dag(dag).state == state
        assert len(table.ids()) == left

    def test_a_filter_that_renders_to_nothing_replaces_nothing(
        self, table: Lake, new_dag: Callable, run_dag: Callable, failures: list[BaseException]
    ) -> None:
        path = table.write_file("day.parquet", [1])
        with new_dag() as dag:
            overwrite(files=str(path), overwrite_filter="{{ '' }}")
        assert run_dag(dag).state == "failed"
        assert "overwrite_filter is empty" in str(failures[0])
        assert table.ids() == list(range(30))
