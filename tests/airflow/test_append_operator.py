"""IcebergAppendOperator under `dag.test()`, with jobs in this process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, InvalidInputError, StorageError
from airflow_iceberg.operators._rows import FileOptions
from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.conftest import Lake


def append(**options: Any) -> IcebergAppendOperator:
    return IcebergAppendOperator(**{"task_id": "append", "table": "s.t", "spark_conn_id": None, **options})


class TestTheSource:
    """Exactly one of files, sql and python_callable; everything about it can be a template."""

    def test_files_by_a_glob_with_the_runs_date(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        lake.write_file("2026-01-01-a.parquet", [1, 2])
        lake.write_file("2026-01-01-b.parquet", [3])
        lake.write_file("2026-01-02-a.parquet", [4])
        with new_dag() as dag:
            append(files=f"{lake.folder}/source/{{{{ ds }}}}-*.parquet")
        assert run_dag(dag).state == "success"
        assert lake.ids() == [1, 2, 3]

    def test_file_options_may_be_a_dictionary(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        (lake.folder / "a.txt").write_text("id\n1\n2\n")
        with new_dag() as dag:
            append(files=f"{lake.folder}/a.txt", file_options={"file_format": "csv"})
        assert run_dag(dag).state == "success"
        assert lake.ids() == [1, 2]

    def test_an_unknown_file_option_is_refused(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list[BaseException]
    ) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=f"{lake.folder}/a.csv", file_options={"delimiter": ";"})
        assert run_dag(dag).state == "failed"
        assert "unknown file_options key 'delimiter'; one of file_format, format_options" in str(failures[0])

    def test_several_files(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        names = [str(lake.write_file("a.parquet", [1])), str(lake.write_file("b.parquet", [2]))]
        with new_dag() as dag:
            append(files=names)
        run_dag(dag)
        assert lake.ids() == [1, 2]

    def test_options_of_a_csv_file_are_templates_too(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        path = lake.folder / "rows.txt"
        path.write_text("id\n7\n8\n")
        with new_dag() as dag:
            append(
                files=str(path),
                file_options=FileOptions(file_format="{{ params.kind }}", format_options={"delimiter": ";"}),
                params={"kind": "csv"},
            )
        assert run_dag(dag).state == "success"
        assert lake.ids() == [7, 8]

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({}, "none"),
            ({"files": "/x", "sql": "select 1"}, "files and sql"),
            ({"sql": "select 1", "python_callable": "a:b"}, "sql and python_callable"),
        ],
    )
    def test_none_or_two_of_them_is_an_error_that_no_retry_mends(
        self, given: dict, named: str, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        with new_dag(retries=2) as dag:
            append(**given)
        run = run_dag(dag)
        assert run.state == "failed"
        assert run.task("append").try_number == 1
        assert [str(error) for error in failures] == [
            f"task append: exactly one of files, sql and python_callable is needed, got {named}"
        ]

    @pytest.mark.parametrize("given", [{"sql": "select 1 as id"}, {"python_callable": "package.module:function"}])
    def test_a_query_without_spark_says_that_it_needs_spark(
        self, given: dict, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        with new_dag() as dag:
            append(**given)
        run_dag(dag)
        assert "needs Spark, got spark_conn_id=None" in str(failures[0])
        assert lake.staged() == []

    def test_a_function_object_is_refused(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        with new_dag() as dag:
            append(python_callable=lake.create)
        run_dag(dag)
        assert isinstance(failures[0], AirflowFailException)

    def test_a_sql_file_is_read_and_rendered_like_every_template(self, tmp_path: Path) -> None:
        from airflow.sdk import DAG

        (tmp_path / "load.sql").write_text("select '{{ ds }}' as day")
        with DAG("sql_file", schedule=None, template_searchpath=[str(tmp_path)]) as dag:
            task = append(sql="load.sql")
        dag.resolve_template_files()
        task.render_template_fields({"ds": "2026-01-01"})  # type: ignore[typeddict-unknown-key]
        assert task.sql == "select '2026-01-01' as day"


class TestTemplates:
    """Everything that a DAG author would template is a template."""

    def test_every_parameter_is_one(self) -> None:
        parameters = {
            name
            for name in vars(append(files="/x"))
            if not name.startswith("_") and name in IcebergAppendOperator.template_fields
        }
        assert parameters == set(IcebergAppendOperator.template_fields)

    def test_the_spark_config_is_rendered_into_a_copy(self) -> None:
        config = SparkConfig(conf={"spark.x": "{{ ds }}"}, driver_memory="{{ params.m }}", py_files=("{{ ds }}.py",))
        task = append(files="/x", spark_config=config)
        task.render_template_fields({"ds": "D", "params": {"m": "2g"}})  # type: ignore[typeddict-unknown-key]
        assert task.spark_config == SparkConfig(conf={"spark.x": "D"}, driver_memory="2g", py_files=("D.py",))
        assert config.driver_memory == "{{ params.m }}"

    def test_what_airflow_keeps_of_a_spark_config_has_no_secrets(self) -> None:
        from airflow.serialization.helpers import serialize_template_field

        config = SparkConfig(
            conf={"spark.hadoop.fs.s3a.secret.key": "s3cr3t", "spark.a": "b"}, env_vars={"API_TOKEN": "s3cr3t"}
        )
        kept = serialize_template_field(config, "spark_config")
        assert kept == {
            "conf": {"spark.hadoop.fs.s3a.secret.key": "***", "spark.a": "b"},
            "env_vars": {"API_TOKEN": "***"},
        }
        assert "s3cr3t" not in repr(config) + str(config)


class TestTheResult:
    """XCom and asset events say what was done, in values that JavaScript can read."""

    def test_xcom_has_the_snapshot_as_text_and_the_counts(
        self, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1, 2, 3])))
        run = run_dag(dag)
        result, snapshot = run.result("append"), lake.load().current_snapshot()
        size = result.pop("added_files_size_bytes")
        assert size == lake.data_files()[0].stat().st_size
        assert result == {
            "table": "s.t",
            "branch": "main",
            "snapshot_id": str(snapshot.snapshot_id),
            "operation": "append",
            "outcome": "committed",
            "done_by_this_try": True,
            "added_data_files": 1,
            "added_records": 3,
            "deleted_data_files": 0,
            "deleted_records": 0,
            "added_delete_files": 0,
            "removed_delete_files": 0,
            "carried_records": 0,
            "removed_files_size_bytes": 0,
            "operation_key": f"{dag.dag_id}/{run.dag_run.run_id}/append/-1/0",
        }

    def test_the_snapshot_says_which_task_made_it(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])), snapshot_properties={"team": "{{ ds }}"})
        run = run_dag(dag)
        summary = lake.load().current_snapshot().summary
        assert (
            summary.items()
            >= {
                "airflow.operation-key": f"{dag.dag_id}/{run.dag_run.run_id}/append/-1/0",
                "airflow.dag-id": dag.dag_id,
                "airflow.run-id": run.dag_run.run_id,
                "airflow.task-id": "append",
                "airflow.map-index": "-1",
                "airflow.try-number": "1",
                "team": "2026-01-01",
            }.items()
        )

    def test_every_outlet_asset_gets_an_event_with_the_result(
        self, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        assets = [Asset(name=f"{os.getpid()}-one"), Asset(name=f"{os.getpid()}-two")]
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])), outlets=assets)
        run = run_dag(dag)
        assert [events_of(asset) for asset in assets] == [[run.result("append")]] * 2

    def test_nothing_is_left_under_the_staging_prefix(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])))
        run_dag(dag)
        assert lake.staged() == []
        assert len(lake.data_files()) == 1

    def test_a_branch_is_written_and_main_is_not(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        from airflow_iceberg.format.metadata.updates import Change, SetSnapshotRef
        from airflow_iceberg.format.snapshots import SnapshotRef

        lake.create()
        lake.append([1])
        table = lake.load()
        ref = SetSnapshotRef(
            ref_name="audit", ref=SnapshotRef(snapshot_id=table.current_snapshot().snapshot_id, type="branch")
        )
        table.catalog.commit(table.catalog.load("s.t"), Change(updates=(ref,), requirements=()))
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [2])), branch="audit")
        assert run_dag(dag).result("append")["branch"] == "audit"
        assert lake.ids() == [1]
        assert lake.ids(ref="audit") == [1, 2]


class TestAnEmptySource:
    """What no rows mean is the author's choice; nothing is committed in any case."""

    @pytest.mark.parametrize(
        ("on_empty", "run_state", "task_state"),
        [("nothing", "success", "success"), ("skip", "success", "skipped"), ("fail", "failed", "failed")],
    )
    def test_the_task_ends_as_it_was_told(
        self, on_empty: str, run_state: str, task_state: str, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        with new_dag(retries=1) as dag:
            append(files=str(lake.write_file("a.parquet", [])), on_empty=on_empty)
        run = run_dag(dag)
        assert (run.state, run.task("append").state, run.task("append").try_number) == (run_state, task_state, 1)
        assert lake.load().current_snapshot() is None
        assert lake.staged() == []

    def test_the_result_of_nothing_has_no_snapshot(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [])))
        result = run_dag(dag).result("append")
        assert (result["snapshot_id"], result["outcome"], result["done_by_this_try"]) == (None, "nothing", False)


class TestErrors:
    """Each error is raised so that Airflow does the right thing, and leaves the table as it was."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"table": "s.nothing"}, "s.nothing"),
            ({"table": "unqualified"}, "unqualified"),
            ({"branch": "nothing"}, "nothing"),
            ({"files": "/no/such/file.parquet"}, "/no/such/file.parquet"),
            ({"files": "nosuch://host/file.parquet"}, "nosuch"),
            ({"on_rerun": "maybe"}, "maybe"),
            ({"on_empty": "maybe"}, "maybe"),
            ({"snapshot_properties": {"airflow.operation-key": "mine"}}, "airflow.operation-key"),
            # Before the job, which would fail for the missing file.
            ({"snapshot_properties": {"airflow.x": "1"}, "files": "/no/such.parquet"}, "airflow.x"),
        ],
    )
    def test_what_no_retry_mends_fails_at_once(
        self, options: dict, message: str, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create()
        with new_dag(retries=3) as dag:
            append(**{"files": str(lake.write_file("a.parquet", [1])), **options})
        run = run_dag(dag)
        assert run.task("append").try_number == 1
        assert isinstance(failures[0], AirflowFailException)
        assert message in str(failures[0])
        assert lake.load().current_snapshot() is None
        assert (lake.staged(), lake.data_files()) == ([], [])

    def test_a_value_that_does_not_fit_fails_and_names_the_column(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        lake.create(schema={"id": "int"})
        with new_dag(retries=1) as dag:
            append(files=str(lake.write_file("a.parquet", [1, 2**40])))
        run_dag(dag)
        assert len(failures) == 1
        assert "id" in str(failures[0])
        assert str(2**40) in str(failures[0])
        assert lake.load().current_snapshot() is None
        assert (lake.staged(), lake.data_files()) == ([], [])

    def test_a_missing_connection_is_named(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, failures: list
    ) -> None:
        with new_dag() as dag:
            append(files="/x", iceberg_conn_id="nobody")
        run_dag(dag)
        assert "nobody" in str(failures[0])

    @pytest.mark.parametrize(
        ("error", "tries"),
        [
            (StorageError("the disk is away"), 3),
            (CommitConflictError("others won"), 3),
            (CommitUnknownError("no answer"), 3),
            (InvalidInputError("bad word"), 1),
        ],
    )
    def test_only_what_a_retry_can_mend_is_tried_again(
        self,
        error: Exception,
        tries: int,
        lake: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        from airflow_iceberg.catalogs.sql.catalog import SqlCatalog

        lake.create()
        with new_dag(retries=2) as dag:
            append(files=str(lake.write_file("a.parquet", [1])))

        def refuse(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(SqlCatalog, "load", refuse)
        run = run_dag(dag)
        assert run.task("append").try_number == tries
        assert {type(failure) for failure in failures} == {AirflowFailException if tries == 1 else AirflowException}


class TestOnceOnly:
    """Retries find what is done; a person who clears the task has its rows replaced."""

    def test_a_task_that_fails_after_its_commit_finds_it_when_it_is_tried_again(
        self, lake: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        lake.create()
        asset = Asset(name=f"{os.getpid()}-found")
        tries = []

        class Fails(IcebergAppendOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                tries.append(result)
                if len(tries) == 1:
                    raise AirflowException("after the commit")
                return result

        with new_dag(retries=1) as dag:
            Fails(
                task_id="append",
                table="s.t",
                files=str(lake.write_file("a.parquet", [1, 2])),
                spark_conn_id=None,
                outlets=[asset],
            )
        run = run_dag(dag)
        assert run.state == "success"
        assert lake.ids() == [1, 2]
        committed, found = tries
        assert (found["outcome"], found["done_by_this_try"], run.result("append")) == ("found", False, found)
        assert {**found, "outcome": "committed", "done_by_this_try": True} == committed
        assert events_of(asset) == [found]

    def test_a_cleared_task_replaces_its_rows_in_one_commit(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, clear: Callable, caplog: pytest.LogCaptureFixture
    ) -> None:
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
        assert [line for line in caplog.messages if "replaced" in line] == [
            (
                f"{lake.load().location}, branch main: the task was cleared, so its new rows replaced those of its "
                f"earlier run: 2 rows in 1 data file, committed in snapshot {first['snapshot_id']}"
            )
        ]
        assert second["operation"] == "overwrite"
        assert (second["added_records"], second["deleted_records"]) == (1, 2)
        assert first["operation_key"].removesuffix("/0") + "/1" == second["operation_key"]
        assert len(lake.load().snapshots()) == 4

    @pytest.mark.parametrize(
        ("on_rerun", "rows", "outcome"), [("append", [1, 1], "committed"), ("skip", [1], "skipped")]
    )
    def test_or_it_appends_again_or_does_nothing(
        self,
        on_rerun: str,
        rows: list[int],
        outcome: str,
        lake: Lake,
        new_dag: Callable,
        run_dag: Callable,
        clear: Callable,
    ) -> None:
        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])), on_rerun=on_rerun)
        result = clear(dag, run_dag(dag)).result("append")
        assert (lake.ids(), result["outcome"]) == (rows, outcome)

    def test_each_mapped_task_has_a_key_of_its_own(
        self, lake: Lake, new_dag: Callable, run_dag: Callable, clear: Callable
    ) -> None:
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

    def test_two_runs_of_one_dag_are_two_pieces_of_work(self, lake: Lake, new_dag: Callable, run_dag: Callable) -> None:
        from datetime import UTC, datetime

        lake.create()
        with new_dag() as dag:
            append(files=str(lake.write_file("a.parquet", [1])))
        run_dag(dag)
        run_dag(dag, day=datetime(2026, 1, 2, tzinfo=UTC))
        assert lake.ids() == [1, 1]


def events_of(asset: Asset) -> list[dict[str, Any]]:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        found = session.scalars(query.where(AssetModel.name == asset.name).order_by(AssetEvent.id))
        return [event.extra for event in found]
