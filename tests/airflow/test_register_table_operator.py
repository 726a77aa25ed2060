"""A metadata file becomes a table of a catalog under `dag.test()`."""

import pytest

from airflow_iceberg.operators import IcebergRegisterTableOperator
from tests.airflow.conftest import Lake, dying, operators

register = operators(IcebergRegisterTableOperator, task_id="register", table="other.t")


class TestRegistration:
    """Nothing is copied, and what is registered already is found."""

    @pytest.mark.services
    def test_a_table_of_another_name(self, lake: Lake, new_dag, run_dag):
        lake.create()
        lake.append([1, 2])
        location = lake.load().metadata_location
        with new_dag(params={"metadata": location}) as dag:
            register(metadata_location="{{ params.metadata }}") >> register(task_id="again", metadata_location=location)
        run = run_dag(dag)
        result = run.result("register")
        assert (result["outcome"], result["metadata_location"]) == ("committed", location)
        assert (run.result("again")["outcome"], run.result("again")["done_by_this_try"]) == ("found", False)
        assert lake.ids("other.t") == [1, 2]

    @pytest.mark.services
    def test_a_retry_finds_a_table_that_was_changed_since(self, lake: Lake, run_task):
        lake.create()
        lake.append([1])
        location = lake.load().metadata_location
        kind = dying(IcebergRegisterTableOperator, lambda: lake.append([2], "other.t"))
        run = run_task(kind, task_id="register", table="other.t", metadata_location=location, retries=1)
        assert (run.result("register")["outcome"], lake.ids("other.t")) == ("found", [1, 2])

    @pytest.mark.costly
    def test_the_name_of_another_table(self, lake: Lake, run_task):
        lake.create("other.t")
        lake.create()
        refusal = run_task(register, metadata_location=lake.load().metadata_location).refusal
        assert "table other.t exists already" in refusal

    @pytest.mark.services
    def test_what_is_no_metadata_file(self, lake: Lake, run_task):
        lake.create()
        location = f"{lake.load().location}/metadata/none.metadata.json"
        assert "none.metadata.json" in run_task(register, metadata_location=location).refusal
        assert "expected the location of a metadata file" in run_task(register, metadata_location="/x.parquet").refusal
        assert "allowed-locations" in run_task(register, metadata_location="/tmp/v1.metadata.json").refusal
