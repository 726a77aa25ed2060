"""IcebergAppendOperator under `dag.test()`, with jobs in this process."""

import os
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG, Asset
from airflow.serialization.helpers import serialize_template_field
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, InvalidInputError, StorageError
from airflow_iceberg.operators import FileOptions, IcebergAppendOperator
from airflow_iceberg.operators._key import installation_id
from tests.airflow.conftest import operators

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)


class TestTheSource:
    """Exactly one of files, sql and python_callable; everything about it can be a template."""

    @pytest.mark.services
    def test_files_by_a_glob_with_the_runs_date_and_several_files(self, lake, run_task):
        lake.create()
        lake.write_file("2026-01-01-a.parquet", [1, 2])
        lake.write_file("2026-01-01-b.parquet", [3])
        other = lake.write_file("2026-01-02-a.parquet", [4])
        assert run_task(append, files=f"{lake.folder}/source/{{{{ ds }}}}-*.parquet").state == "success"
        assert lake.ids() == [1, 2, 3]
        run_task(append, files=[str(other), str(lake.write_file("b.parquet", [5]))])
        assert lake.ids() == [1, 2, 3, 4, 5]

    @pytest.mark.services
    @pytest.mark.parametrize(
        "options",
        [{"file_format": "csv"}, FileOptions(file_format="{{ params.kind }}", format_options={"delimiter": ";"})],
        ids=["a dictionary", "an object with templates"],
    )
    def test_options_of_the_format(self, lake, run_task, options):
        lake.create()
        path = lake.folder / "rows.txt"
        path.write_text("id\n7\n8\n")
        assert run_task(append, files=str(path), file_options=options, params={"kind": "csv"}).state == "success"
        assert lake.ids() == [7, 8]

    def test_a_sql_file_is_read_and_rendered_like_every_template(self, tmp_path):
        (tmp_path / "load.sql").write_text("select '{{ ds }}' as day")
        with DAG("sql_file", schedule=None, template_searchpath=[str(tmp_path)]) as dag:
            task = append(sql="load.sql")
        dag.resolve_template_files()
        task.render_template_fields({"ds": "2026-01-01"})
        assert task.sql == "select '2026-01-01' as day"


class TestTemplates:
    """Everything that a DAG author would template is a template."""

    def test_every_parameter_is_one(self):
        assert set(IcebergAppendOperator.template_fields) <= vars(append(files="/x")).keys()

    def test_the_spark_config_is_rendered_into_a_copy(self):
        config = SparkConfig(conf={"spark.x": "{{ ds }}"}, driver_memory="{{ params.m }}", py_files=("{{ ds }}.py",))
        task = append(files="/x", spark_config=config)
        task.render_template_fields({"ds": "D", "params": {"m": "2g"}})
        assert task.spark_config == SparkConfig(conf={"spark.x": "D"}, driver_memory="2g", py_files=("D.py",))
        assert config.driver_memory == "{{ params.m }}"

    def test_what_airflow_keeps_of_a_spark_config_has_no_secrets(self):
        conf = {"spark.hadoop.fs.s3a.secret.key": "s3cr3t", "spark.a": "b"}
        config = SparkConfig(conf=conf, env_vars={"API_TOKEN": "s3cr3t"})
        assert serialize_template_field(config, "spark_config") == {
            "conf": {"spark.hadoop.fs.s3a.secret.key": "***", "spark.a": "b"},
            "env_vars": {"API_TOKEN": "***"},
        }
        assert "s3cr3t" not in repr(config) + str(config)


class TestTheResult:
    """XCom, asset events and the snapshot say what was done, in values that JavaScript can read."""

    @pytest.mark.costly
    def test_of_one_append(self, lake, run_task):
        lake.create()
        assets = [Asset(name=f"{os.getpid()}-one"), Asset(name=f"{os.getpid()}-two")]
        files, properties = str(lake.write_file("a.parquet", [1, 2, 3])), {"team": "{{ ds }}"}
        run = run_task(append, files=files, snapshot_properties=properties, outlets=assets)
        snapshot, (file,) = lake.load().current_snapshot(), lake.data_files()
        key = f"{run.dag_run.dag_id}/{run.dag_run.run_id}/{installation_id()}/append/-1/0"
        result = run.result("append")
        assert result == {
            "table": "s.t",
            "branch": "main",
            "snapshot_id": str(snapshot.snapshot_id),
            "operation": "append",
            "outcome": "committed",
            "done_by_this_try": True,
            "added_data_files": 1,
            "added_records": 3,
            "added_files_size_bytes": file.stat().st_size,
            "deleted_data_files": 0,
            "deleted_records": 0,
            "added_delete_files": 0,
            "removed_delete_files": 0,
            "updated_records": 0,
            "carried_records": 0,
            "removed_files_size_bytes": 0,
            "inputs": {},
            "operation_key": key,
        }
        assert [events_of(asset) for asset in assets] == [[result]] * 2
        expected = {
            "airflow.operation-key": key,
            "airflow.dag-id": run.dag_run.dag_id,
            "airflow.run-id": run.dag_run.run_id,
            "airflow.task-id": "append",
            "airflow.map-index": "-1",
            "airflow.try-number": "1",
            "team": "2026-01-01",
        }
        assert snapshot.summary.items() >= expected.items()
        assert lake.staged() == []

    @pytest.mark.costly
    def test_a_branch_is_written_and_main_is_not(self, lake, run_task):
        table = lake.create()
        lake.append([1])
        table.refresh().create_branch("audit")
        run = run_task(append, files=str(lake.write_file("a.parquet", [2])), branch="audit")
        assert run.result("append")["branch"] == "audit"
        assert lake.ids() == [1]
        assert lake.ids(ref="audit") == [1, 2]


class TestAnEmptySource:
    """What no rows mean is the author's choice; nothing is committed in any case."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("on_empty", "run_state", "task_state"),
        [("nothing", "success", "success"), ("skip", "success", "skipped"), ("fail", "failed", "failed")],
    )
    def test_the_task_ends_as_it_was_told(self, on_empty, run_state, task_state, lake, run_task):
        lake.create()
        run = run_task(append, files=str(lake.write_file("a.parquet", [])), on_empty=on_empty, retries=1)
        assert (run.state, run.task("append").state, run.task("append").try_number) == (run_state, task_state, 1)
        if on_empty == "nothing":
            result = run.result("append")
            assert (result["snapshot_id"], result["outcome"], result["done_by_this_try"]) == (None, "nothing", False)
        assert lake.load().current_snapshot() is None
        assert lake.staged() == []


class TestErrors:
    """Each error is raised so that Airflow does the right thing; `test_bad_requests` has those of wrong arguments."""

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("error", "tries"),
        [
            (StorageError("the disk is away"), 3),
            (CommitConflictError("others won"), 3),
            (CommitUnknownError("no answer"), 3),
            (InvalidInputError("bad word"), 1),
        ],
    )
    def test_only_what_a_retry_can_mend_is_tried_again(self, error, tries, lake, run_task, monkeypatch):
        def refuse(*_: Any, **__: Any) -> None:
            raise error

        lake.create()
        monkeypatch.setattr(SqlCatalog, "load", refuse)
        run = run_task(append, files=str(lake.write_file("a.parquet", [1])), retries=2)
        assert run.task("append").try_number == tries
        assert {type(failure) for failure in run.failures} == {AirflowFailException if tries == 1 else AirflowException}


class TestOnceOnly:
    """Retries find what is done; a person who clears the task has its rows replaced."""

    @pytest.mark.costly
    def test_a_task_that_fails_after_its_commit_finds_it_when_it_is_tried_again(self, lake, run_task):
        lake.create()
        asset = Asset(name=f"{os.getpid()}-found")
        tries = []

        class Fails(IcebergAppendOperator):
            def execute(self, context: Any) -> Any:
                tries.append(super().execute(context))
                if len(tries) == 1:
                    raise AirflowException("after the commit")
                return tries[-1]

        options = {"task_id": "append", "table": "s.t", "spark_conn_id": None, "outlets": [asset], "retries": 1}
        run = run_task(Fails, files=str(lake.write_file("a.parquet", [1, 2])), **options)
        assert run.state == "success"
        assert lake.ids() == [1, 2]
        committed, found = tries
        assert (found["outcome"], found["done_by_this_try"], run.result("append")) == ("found", False, found)
        assert {**found, "outcome": "committed", "done_by_this_try": True} == committed
        assert events_of(asset) == [found]

    @pytest.mark.costly
    def test_a_cleared_task_replaces_its_rows_in_one_commit(self, lake, new_dag, run_dag, clear, caplog):
        lake.create()
        lake.append([100])
        with new_dag(retries=1) as dag:
            append(files=str(lake.write_file("a.parquet", [1, 2])))
        run = run_dag(dag)
        first = run.result("append")
        lake.append([200])
        lake.write_file("a.parquet", [3])
        with caplog.at_level("INFO", "airflow_iceberg"):
            run = clear(dag, run)
        second = run.result("append")
        assert lake.ids() == [3, 100, 200]
        (line,) = [line for line in caplog.messages if "replaced" in line]
        assert line == (
            f"{lake.load().location}, branch main: the task was cleared, so its new rows replaced those of its "
            f"earlier run: 2 rows in 1 data file, committed in snapshot {first['snapshot_id']}"
        )
        assert second["operation"] == "overwrite"
        assert (second["added_records"], second["deleted_records"]) == (1, 2)
        works, epochs = zip(*(one["operation_key"].rsplit("/", 1) for one in (first, second)), strict=True)
        assert works[0] == works[1]
        assert int(epochs[0]) < int(epochs[1])
        assert len(lake.load().snapshots()) == 4

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("on_rerun", "rows", "outcome"), [("append", [1, 1], "committed"), ("skip", [1], "skipped")]
    )
    def test_or_it_appends_again_or_does_nothing(self, on_rerun, rows, outcome, lake, new_dag, run_dag, clear):
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])), on_rerun=on_rerun)
        result = clear(dag, run_dag(dag)).result("append")
        assert (lake.ids(), result["outcome"]) == (rows, outcome)

    @pytest.mark.services
    def test_each_mapped_task_has_a_key_of_its_own(self, lake, new_dag, run_dag, clear):
        lake.create()
        files = [str(lake.write_file(f"{n}.parquet", [n, n + 10])) for n in range(3)]
        with new_dag() as dag:
            IcebergAppendOperator.partial(task_id="append", table="s.t", spark_conn_id=None).expand(files=files)
        run = run_dag(dag)
        assert lake.ids() == [0, 1, 2, 10, 11, 12]
        keys = [run.result("append", map_index=n)["operation_key"] for n in range(3)]
        assert [key.split("/")[-2] for key in keys] == ["0", "1", "2"]
        clear(dag, run)
        assert lake.ids() == [0, 1, 2, 10, 11, 12]
        assert len(lake.load().snapshots()) == 6

    @pytest.mark.services
    def test_two_runs_of_one_dag_are_two_pieces_of_work(self, lake, new_dag, run_dag):
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])))
        run_dag(dag)
        run_dag(dag, day=datetime(2026, 1, 2, tzinfo=UTC))
        assert lake.ids() == [1, 1]


def events_of(asset: Asset) -> list[dict[str, Any]]:
    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        found = session.scalars(query.where(AssetModel.name == asset.name).order_by(AssetEvent.id))
        return [event.extra for event in found]
