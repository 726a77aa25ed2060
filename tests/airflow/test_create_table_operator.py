"""IcebergCreateTableOperator under `dag.test()`."""

import pytest

from airflow_iceberg.operators import IcebergCreateTableOperator
from airflow_iceberg.operators._key import installation_id
from tests.airflow.conftest import dying, operators

SCHEMA = {"id": "long not null", "ts": "timestamptz", "tags": "list<string>"}
create = operators(IcebergCreateTableOperator, task_id="create", schema=SCHEMA)


class TestCreatingATable:
    """Everything is written as people write it."""

    @pytest.mark.costly
    def test_schema_partitioning_order_and_properties(self, lake, run_task):
        run = run_task(
            create,
            partition_by=["day(ts)", "bucket(16, id)"],
            sort_by=["ts desc nulls last"],
            properties={"write.target-file-size-bytes": "{{ 64 * 1024 * 1024 }}"},
        )
        table = lake.load()
        assert [(field.name, str(field.type), field.required) for field in table.schema().fields][:2] == [
            ("id", "long", True),
            ("ts", "timestamptz", False),
        ]
        assert [field.name for field in table.spec().fields] == ["ts_day", "id_bucket"]
        assert len(table.sort_order().fields) == 1
        assert table.properties == {"write.target-file-size-bytes": "67108864"}
        assert run.result("create") == {
            "table": "s.t",
            "table_uuid": table.metadata.table_uuid,
            "location": table.location,
            "metadata_location": table.metadata_location,
            "outcome": "committed",
            "done_by_this_try": True,
            "operation_key": f"{run.dag_run.dag_id}/{run.dag_run.run_id}/{installation_id()}/create/-1/0",
        }

    @pytest.mark.costly
    def test_the_table_and_its_schema_can_be_templates_and_its_location_is_ones_own(self, lake, run_task):
        params, location = {"columns": '{"id": "long"}'}, (lake.folder / "warehouse" / "elsewhere").as_uri()
        run_task(create, table="s.t_{{ ds_nodash }}", schema="{{ params.columns }}", params=params, location=location)
        assert [field.name for field in lake.load("s.t_20260101").schema().fields] == ["id"]
        assert lake.load("s.t_20260101").location == location


class TestATableThatIsThere:
    """It is left as it is, or it is an error; never an error of the task's own making."""

    @pytest.mark.costly
    def test_is_left_as_it_is(self, lake, run_task):
        lake.create()
        before = lake.load().metadata_location
        assert run_task(create).result("create")["outcome"] == "nothing"
        assert lake.load().metadata_location == before

    @pytest.mark.services
    def test_a_retry_of_the_task_that_made_it_succeeds(self, lake, run_task):
        dies = dying(IcebergCreateTableOperator)
        run = run_task(dies, task_id="create", table="s.t", schema=SCHEMA, if_not_exists=False, retries=1)
        assert (run.state, run.result("create")["outcome"]) == ("success", "found")
