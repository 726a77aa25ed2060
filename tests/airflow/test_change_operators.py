"""Overwrites and deletes under `dag.test()`."""

import pytest
from airflow.sdk import task

from airflow_iceberg.operators import IcebergCompactOperator, IcebergDeleteOperator, IcebergOverwriteOperator
from tests.airflow.conftest import Lake, dying, operators

compact = operators(IcebergCompactOperator, task_id="compact", spark_conn_id=None)
delete = operators(IcebergDeleteOperator, task_id="delete", spark_conn_id=None)
overwrite = operators(IcebergOverwriteOperator, task_id="overwrite", spark_conn_id=None)


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(schema={"id": "long"})
    for start in range(0, 30, 10):
        lake.append(list(range(start, start + 10)))
    return lake


class TestDeletes:
    """Rows that the predicate selects go, and the task says how many."""

    @pytest.mark.services
    def test_of_some_rows_and_of_whole_files_without_a_job(self, table, run_task):
        bind = {"predicate": "id >= :least and id < 20", "predicate_params": {"least": "{{ params.least }}"}}
        run = run_task(delete, **bind, max_rows="{{ params.most }}", params={"least": 15, "most": "5"})
        result = run.result("delete")
        assert (result["outcome"], result["deleted_records"], result["added_data_files"]) == ("committed", 5, 1)
        assert result["snapshot_id"] == str(table.load().current_snapshot().snapshot_id)
        assert table.ids() == [*range(15), *range(20, 30)]
        assert not table.staged()
        # A connection that does not exist would fail the task, if it were asked for.
        result = run_task(delete, predicate="id >= 20", spark_conn_id="nowhere").result("delete")
        assert (result["deleted_records"], result["deleted_data_files"]) == (10, 1)
        assert table.ids() == list(range(15))

    @pytest.mark.services
    def test_of_the_rows_of_a_parameter_whatever_is_in_it(self, table, run_task):
        bind = {"predicate": "id >= :least and id < 20", "predicate_params": {"least": "{{ params.least }}"}}
        for attack in ("0 or 1=1", "15 --", "None", "[0, 1]"):
            assert run_task(delete, **bind, params={"least": attack}).state == "failed", attack
        assert len(table.ids()) == 30
        assert run_task(delete, **bind, params={"least": "15"}).result("delete")["deleted_records"] == 5

    @pytest.mark.services
    def test_a_list_of_values_is_of_templates_of_another_task_or_of_a_native_template(self, table, new_dag, run_dag):
        with new_dag(params={"id": 4, "ids": [1, 2]}) as dag:
            listed = task(task_id="listed")(lambda: [3, 5])()
            values = {"ids": listed, "more": ["{{ params.id }}", 6]}
            delete(predicate="id in (:ids, :more)", predicate_params=values)
        assert run_dag(dag).result("delete")["deleted_records"] == 4
        with new_dag(params={"ids": [1, 2]}) as dag:
            dag.render_template_as_native_obj = True
            delete(predicate="id in (:ids)", predicate_params={"ids": "{{ params.ids }}"})
        assert run_dag(dag).result("delete")["deleted_records"] == 2
        assert table.ids() == [0, *range(7, 30)]

    @pytest.mark.services
    def test_a_task_that_died_after_its_commit_finds_it(self, table, run_task):
        dies = dying(IcebergDeleteOperator, lambda: table.append([3]))
        options = {"task_id": "delete", "table": "s.t", "spark_conn_id": None, "retries": 1}
        result = run_task(dies, predicate="id in (3, 4)", **options).result("delete")
        assert (result["outcome"], result["deleted_records"]) == ("found", 2)
        assert table.ids() == [0, 1, 2, 3, *range(5, 30)]


class TestOverwrites:
    """New rows take the place of old ones in one commit."""

    @pytest.mark.services
    def test_of_matching_rows_and_of_the_whole_table(self, table, run_task):
        files = table.write_file("day.parquet", [15, 16, 100]).with_name("*.parquet")
        bind = {"overwrite_filter": "id >= :first", "predicate_params": {"first": "{{ params['from'] }}"}}
        run = run_task(overwrite, files=str(files), **bind, params={"from": 15})
        result = run.result("overwrite")
        assert (result["outcome"], result["added_records"], result["deleted_records"]) == ("committed", 3, 15)
        assert (result["carried_records"], result["operation"]) == (5, "overwrite")
        assert table.ids() == [*range(15), 15, 16, 100]
        assert len(table.load().snapshots()) == 4
        assert not table.staged()
        run = run_task(overwrite, files=str(table.write_file("day.parquet", [1])), replace="table")
        assert run.result("overwrite")["deleted_records"] == 18
        assert table.ids() == [1]

    @pytest.mark.services
    def test_in_another_format(self, table, run_task):
        """`write_format` of each operator that writes rows, as a template, too."""
        files = str(table.write_file("day.parquet", [15, 100]))
        chosen = {"write_format": "{{ params.kind }}", "params": {"kind": "avro"}}
        assert run_task(overwrite, files=files, overwrite_filter="id >= 15", **chosen).state == "success"
        assert run_task(delete, predicate="id = 100", mode="copy-on-write", write_format="avro").state == "success"
        assert table.ids() == list(range(16))
        # Both files of the table had other rows, too, and were rewritten.
        found = table.load().inspect.files()["file_format"].to_pylist()
        assert {kind.lower() for kind in found} == {"avro", "parquet"}
        run_task(compact, options={"rewrite-all": True}, write_format="parquet")
        found = table.load().inspect.files()["file_format"].to_pylist()
        assert {kind.lower() for kind in found} == {"parquet"}
        assert run_task(delete, predicate="id = 3", write_format="orc").state == "failed"

    @pytest.mark.services
    def test_of_rows_that_the_filter_does_not_select(self, table, run_task):
        files = str(table.write_file("day.parquet", [3, 100]))
        run = run_task(overwrite, files=files, overwrite_filter="id >= 15", check_filter=False)
        assert (run.result("overwrite")["added_records"], run.result("overwrite")["deleted_records"]) == (2, 15)
        assert table.ids() == [0, 1, 2, 3, 3, *range(4, 15), 100]
        assert run_task(overwrite, files=files, overwrite_filter="id >= 15").state == "failed"
        assert table.ids()[-1] == 100

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("on_empty", "state", "left"), [("nothing", "success", 30), ("delete", "success", 15), ("fail", "failed", 30)]
    )
    def test_a_source_without_rows(self, table, run_task, on_empty, state, left):
        path = table.write_file("day.parquet", [])
        run = run_task(overwrite, files=str(path), overwrite_filter="id >= 15", on_empty=on_empty)
        assert run.state == state
        assert len(table.ids()) == left
