"""IcebergCreateTableOperator under `dag.test()`."""

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.operators.create_table import IcebergCreateTableOperator
from tests.airflow.conftest import Lake

SCHEMA = {"id": "long not null", "ts": "timestamptz", "tags": "list<string>"}


def create(**options: Any) -> IcebergCreateTableOperator:
    return IcebergCreateTableOperator(**{"task_id": "create", "table": "s.t", "schema": SCHEMA, **options})


class TestCreatingATable:
    """Everything is written as people write it."""

    def test_schema_partitioning_order_and_properties(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            create(
                partition_by=["day(ts)", "bucket(16, id)"],
                sort_by=["ts desc nulls last"],
                properties={"write.target-file-size-bytes": "{{ 64 * 1024 * 1024 }}"},
            )
        run = run_dag(dag)
        result = run.result("create")
        table = lake.load()
        assert [(field.name, str(field.type), field.required) for field in table.schema().fields][:2] == [
            ("id", "long", True),
            ("ts", "timestamptz", False),
        ]
        assert [field.name for field in table.spec().fields] == ["ts_day", "id_bucket"]
        assert len(table.sort_order().fields) == 1
        assert table.properties == {"write.target-file-size-bytes": "67108864"}
        assert result == {
            "table": "s.t",
            "table_uuid": table.metadata.table_uuid,
            "location": table.location,
            "metadata_location": table.metadata_location,
            "outcome": "committed",
            "done_by_this_try": True,
            "operation_key": f"{dag.dag_id}/{run.dag_run.run_id}/create/-1/0",
        }

    def test_the_table_and_its_schema_can_be_templates(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"columns": '{"id": "long"}'}) as dag:
            create(table="s.t_{{ ds_nodash }}", schema="{{ params.columns }}")
        run_dag(dag)
        assert [field.name for field in lake.load("s.t_20260101").schema().fields] == ["id"]

    def test_a_location_of_ones_own(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        location = (lake.folder / "elsewhere").as_uri()
        with new_dag() as dag:
            create(location=location)
        run_dag(dag)
        assert lake.load().location == location


class TestATableThatIsThere:
    """It is left as it is, or it is an error; never an error of the task's own making."""

    def test_is_left_as_it_is(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        before = lake.load().metadata_location
        with new_dag() as dag:
            create()
        assert run_dag(dag).result("create")["outcome"] == "nothing"
        assert lake.load().metadata_location == before

    def test_or_fails_at_once(self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list) -> None:
        lake.create()
        with new_dag(retries=2) as dag:
            create(if_not_exists=False)
        run_dag(dag)
        assert [type(error) for error in failures] == [AirflowFailException]
        assert "s.t" in str(failures[0])

    def test_a_retry_of_the_task_that_made_it_succeeds(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        class Dies(IcebergCreateTableOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                if context["ti"].try_number == 1:
                    raise AirflowException("after the table was made")
                return result

        with new_dag(retries=1) as dag:
            Dies(task_id="create", table="s.t", schema=SCHEMA, if_not_exists=False)
        run = run_dag(dag)
        assert (run.state, run.result("create")["outcome"]) == ("success", "found")


class TestErrors:
    """What is wrong is said in one message, and nothing is made."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"schema": {"id": "lnog"}}, "lnog"),
            ({"schema": "{"}, "schema is not a JSON object"),
            ({"partition_by": "id"}, "partition_by is not a list such as"),
            ({"sort_by": "id"}, "sort_by is not a list such as"),
            ({"properties": "[1]"}, "properties is not a JSON object but a list"),
            ({"partition_by": ["day(nothing)"]}, "nothing"),
            ({"partition_by": ["century(ts)"]}, "century"),
            ({"partition_by": ["day(id)"]}, "day"),
            ({"sort_by": ["nothing"]}, "nothing"),
            ({"table": "t"}, "'t'"),
            ({"create_namespace": False}, "no namespace s"),
            ({"properties": {"format-version": "4"}}, "4"),
        ],
    )
    def test_no_retry_mends_it(
        self, options: dict, message: str, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        with new_dag(retries=2) as dag:
            create(**options)
        run_dag(dag)
        assert [type(error) for error in failures] == [AirflowFailException]
        assert message in str(failures[0])
        assert not lake.catalog.table_exists("s.t")
