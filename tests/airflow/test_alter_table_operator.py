"""IcebergAlterTableOperator under `dag.test()`."""

import pytest

from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.operators import IcebergAlterTableOperator
from airflow_iceberg.operators._key import installation_id
from tests.airflow.conftest import DAY, Lake, dying, operators

# A list that cannot be made twice in a row, unless it is noticed that it was made.
CHANGES = [
    {"rename_column": {"from": "name", "to": "label"}},
    {"add_column": {"name": "name", "type": "string", "first": True}},
    {"add_partition_field": "bucket(4, id)"},
    {"set_properties": {"owner": "{{ params.owner }}"}},
]
OPTIONS = {"task_id": "alter", "changes": CHANGES, "params": {"owner": "finance"}}
alter = operators(IcebergAlterTableOperator, **OPTIONS)


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(schema={"id": "long", "name": "string"})
    return lake


class TestAlteringATable:
    """A list of changes, written as people write it, is one commit."""

    @pytest.mark.costly
    def test_all_changes_are_made(self, table, run_task):
        run = run_task(alter)
        altered = table.load()
        assert [field.name for field in altered.schema().fields] == ["name", "id", "label"]
        assert [field.name for field in altered.spec().fields] == ["id_bucket_4"]
        assert altered.properties == {"owner": "finance"}
        assert len(altered.metadata.metadata_log) == 1
        assert run.result("alter") == {
            "table": "s.t",
            "outcome": "committed",
            "done_by_this_try": True,
            "operation_key": f"{run.dag_run.dag_id}/{run.dag_run.run_id}/{installation_id()}/alter/-1/0",
            "schema_id": 1,
            "spec_id": 1,
            "sort_order_id": 0,
            "format_version": 2,
            "metadata_location": altered.metadata_location,
        }

    @pytest.mark.costly
    def test_the_list_can_be_a_template(self, table, run_task):
        run_task(alter, changes="{{ params.changes }}", params={"changes": '[{"drop_column": "name"}]'})
        assert [field.name for field in table.load().schema().fields] == ["id"]


class TestATaskThatIsRunAgain:
    """It finds its work done."""

    @pytest.mark.services
    def test_a_retry_after_the_commit_and_another_run_of_the_same_dag(self, table, new_dag, run_dag):
        with new_dag(retries=1) as dag:
            dying(IcebergAlterTableOperator)(table="s.t", **OPTIONS)
        for day in (DAY, None):
            run = run_dag(dag, day=day)
            assert (run.state, run.result("alter")["done_by_this_try"]) == ("success", False)
            assert len(table.load().metadata.metadata_log) == 1

    @pytest.mark.services
    @pytest.mark.parametrize(
        "changes",
        [
            [{"drop_column": "name"}, {"add_column": {"name": "name", "type": "string"}}],
            [{"rename_column": {"from": a, "to": b}} for a, b in (("name", "x"), ("city", "name"), ("x", "city"))],
            [{"drop_column": "name"}],
            [{"rename_column": {"from": "name", "to": "label"}}],
        ],
        ids=["recreate", "exchange", "drop", "rename"],
    )
    def test_a_retry_and_a_clear_hours_later(self, lake, new_dag, run_dag, clear, changes):
        """Others have changed the schema meanwhile, written values, and removed what tells of the old schema."""
        lake.create(schema={"id": "long", "name": "string", "city": "string"})
        after = []

        def others():
            after.append(self.columns(lake))
            lake.load().alter([{"add_column": {"name": "theirs", "type": "int"}}])
            lake.append([1])
            request = ExpireSnapshotsRequest(older_than_ms=10**15, retain_last=1, clean_expired_metadata=True)
            expire_snapshots(Work(lake.load()), request)
            assert len(lake.load().metadata.schemas) == 1

        with new_dag(retries=1) as dag:
            dying(IcebergAlterTableOperator, others)(table="s.t", task_id="alter", changes=changes)
        run = run_dag(dag)
        for _ in range(2):
            assert (run.state, run.result("alter")["outcome"]) == ("success", "found")
            assert self.columns(lake).items() - after[0].items() == {("theirs", max(self.columns(lake).values()))}
            run = clear(dag, run)

    def columns(self, lake):
        return dict(lake.load().schema().names)
