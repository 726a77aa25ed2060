"""IcebergCreateTableOperator under `dag.test()`."""

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_iceberg.errors import InvalidInputError
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


class TestATableThatIsDifferent:
    """What it differs by is said, and `on_difference` decides whether the task fails."""

    def test_a_wrong_word_is_refused_when_the_dag_is_parsed(self):
        expected = "on_difference is 'stop', expected 'warn' or 'fail' or 'ignore'"
        given = {"task_id": "create", "table": "s.t", "schema": SCHEMA}
        for wrong in ("stop", "FAIL", "", None, True):
            with pytest.raises(InvalidInputError, match=r"on_difference is .*, expected 'warn' or 'fail' or 'ig"):
                IcebergCreateTableOperator(**given, on_difference=wrong)
        with pytest.raises(InvalidInputError, match=expected):
            IcebergCreateTableOperator.partial(**given, on_difference="stop")
        with DAG("words", schedule=None):
            later = ("{{ params.how }}", EmptyOperator(task_id="how").output)
            for number, right in enumerate(("warn", "fail", "ignore", *later)):
                IcebergCreateTableOperator(**given | {"task_id": f"create_{number}"}, on_difference=right)

    @pytest.mark.costly
    def test_fails_the_task_for_good_and_names_each_difference(self, lake, run_task):
        lake.create(schema={"id": "long", "ts": "timestamp"}, partition_by=["day(ts)"])
        before = lake.load().metadata_location
        refusal = run_task(create, on_difference="{{ 'fail' }}", sort_by='["id"]', retries=3).refusal
        assert "table s.t exists, and is not what was asked for: column 'id': expected required, found op" in refusal
        for words in ("the type of column 'ts'", "column 'tags'", "the partitioning", "the sort order"):
            assert words in refusal
        assert lake.load().metadata_location == before
        for how in ("warn", "ignore"):
            assert run_task(create, on_difference=how).result("create")["outcome"] == "nothing"

    @pytest.mark.costly
    def test_a_wrong_word_of_a_template_is_refused(self, lake, run_task):
        assert "unknown on_difference 'stop'; one of warn" in run_task(create, on_difference="{{ 'stop' }}").refusal
        assert not lake.catalog.table_exists("s.t")

    @pytest.mark.costly
    def test_other_runs_find_the_table_of_the_first(self, lake, run_task):
        outcomes = [run_task(create, on_difference="fail").result("create")["outcome"] for _ in range(2)]
        assert outcomes == ["committed", "nothing"]

    @pytest.mark.costly
    def test_what_the_catalog_has_made_of_its_own_table_is_none_for_a_retry(self, lake, run_task):
        def alter():
            lake.load().alter([{"drop_column": "tags"}])

        dies = dying(IcebergCreateTableOperator, alter)
        run = run_task(
            dies, task_id="create", table="s.t", schema=SCHEMA, if_not_exists=True, on_difference="fail", retries=1
        )
        assert (run.state, run.result("create")["outcome"]) == ("success", "found")

    @pytest.mark.costly
    def test_it_is_one_after_a_clear_of_a_dag_that_describes_another_table(
        self, lake, new_dag, run_dag, clear, failures
    ):
        with new_dag() as dag:
            task = create(on_difference="fail", if_not_exists=False)
        run = run_dag(dag)
        clear(dag, run)
        assert (run.task("create").state, failures) == ("success", [])
        task.schema = {"id": "long not null"}
        clear(dag, run)
        assert run.task("create").state == "failed"
        assert "column 'tags': expected none, found list<string>" in str(failures[-1])
