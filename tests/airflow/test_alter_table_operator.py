"""IcebergAlterTableOperator under `dag.test()`."""

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.operators.alter_table import IcebergAlterTableOperator
from tests.airflow.conftest import Lake

# A list that cannot be made twice in a row, unless it is noticed that it was made.
CHANGES = [
    {"rename_column": {"from": "name", "to": "label"}},
    {"add_column": {"name": "name", "type": "string", "first": True}},
    {"add_partition_field": "bucket(4, id)"},
    {"set_properties": {"owner": "{{ params.owner }}"}},
]


def alter(**options: Any) -> IcebergAlterTableOperator:
    return IcebergAlterTableOperator(**{"task_id": "alter", "table": "s.t", "changes": CHANGES, **options})


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(schema={"id": "long", "name": "string"})
    return lake


class TestAlteringATable:
    """A list of changes, written as people write it, is one commit."""

    def test_all_changes_are_made(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"owner": "finance"}) as dag:
            alter()
        run = run_dag(dag)
        result = run.result("alter")
        altered = table.load()
        assert [field.name for field in altered.schema().fields] == ["name", "id", "label"]
        assert [field.name for field in altered.spec().fields] == ["id_bucket_4"]
        assert altered.properties == {"owner": "finance"}
        assert len(altered.metadata.metadata_log) == 1
        assert result == {
            "table": "s.t",
            "outcome": "committed",
            "done_by_this_try": True,
            "operation_key": f"{dag.dag_id}/{run.dag_run.run_id}/alter/-1/0",
            "schema_id": 1,
            "spec_id": 1,
            "sort_order_id": 0,
            "format_version": 2,
            "metadata_location": altered.metadata_location,
        }

    def test_the_list_can_be_a_template(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"changes": '[{"drop_column": "name"}]'}) as dag:
            alter(changes="{{ params.changes }}")
        run_dag(dag)
        assert [field.name for field in table.load().schema().fields] == ["id"]


class TestATaskThatIsRunAgain:
    """It finds its work done."""

    def test_a_retry_after_the_commit(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        class Dies(IcebergAlterTableOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                if context["ti"].try_number == 1:
                    raise AirflowException("after the table was changed")
                return result

        with new_dag(retries=1, params={"owner": "finance"}) as dag:
            Dies(task_id="alter", table="s.t", changes=CHANGES)
        run = run_dag(dag)
        assert (run.state, run.result("alter")["done_by_this_try"]) == ("success", False)
        assert len(table.load().metadata.metadata_log) == 1

    def test_another_run_of_the_same_dag(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"owner": "finance"}) as dag:
            alter()
        run_dag(dag)
        location = table.load().metadata_location
        assert run_dag(dag, day=None).result("alter")["done_by_this_try"] is False
        assert table.load().metadata_location == location


class TestErrors:
    """What is wrong is said in one message, and nothing is changed."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"changes": "["}, "changes is not a JSON list"),
            ({"changes": '{"drop_column": "id"}'}, "expected a list of changes"),
            ({"changes": [{"drop_colum": "id"}]}, "unknown change 'drop_colum'"),
            ({"changes": [{"drop_column": "nothing"}]}, "no column 'nothing'"),
            ({"changes": [{"change_type": {"name": "id", "type": "int"}}]}, "cannot change from long to int"),
            ({"table": "s.nothing", "changes": []}, "s.nothing"),
        ],
    )
    def test_no_retry_mends_it(
        self, options: dict, message: str, table: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        before = table.load().metadata_location
        with new_dag(retries=2) as dag:
            alter(**options)
        run_dag(dag)
        assert [type(error) for error in failures] == [AirflowFailException]
        assert message in str(failures[0])
        assert table.load().metadata_location == before
