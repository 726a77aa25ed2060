"""Compaction and rewriting of manifests under `dag.test()`."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.operators.compact import IcebergCompactOperator
from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
from airflow_iceberg.operators.remove_orphan_files import (
    IcebergRemoveOrphanFilesOperator,
    IcebergRestoreOrphanFilesOperator,
)
from airflow_iceberg.operators.rewrite_manifests import IcebergRewriteManifestsOperator
from tests.airflow.conftest import Lake


@pytest.fixture
def table(lake: Lake) -> Lake:
    """Six files of ten rows, a manifest each."""
    lake.create(schema={"id": "long"}, properties={"commit.manifest-merge.enabled": "false"})
    for start in range(0, 60, 10):
        lake.append(list(range(start, start + 10)))
    return lake


def compact(**options: Any) -> IcebergCompactOperator:
    return IcebergCompactOperator(**{"task_id": "compact", "table": "s.t", "spark_conn_id": None, **options})


def live(lake: Lake) -> int:
    return len(lake.load().scan().plan_files())


class TestCompaction:
    """Small files become one, and the task says what it saved."""

    def test_the_result_says_what_was_done(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            compact()
        result = run_dag(dag).result("compact")
        assert (result["outcome"], result["deleted_data_files"], result["added_data_files"]) == ("committed", 6, 1)
        assert result["removed_files_size_bytes"] > result["added_files_size_bytes"] > 0
        assert result["snapshot_id"] == str(table.load().current_snapshot().snapshot_id)
        assert (live(table), table.ids()) == (1, list(range(60)))
        assert not table.staged()

    def test_options_and_the_filter_are_templates(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"least": "7", "from": 30}) as dag:
            compact(options={"min-input-files": "{{ params.least }}"})
            compact(task_id="some", where="id >= {{ params['from'] }}", options={"min-input-files": 2})
        run = run_dag(dag)
        assert run.result("compact")["outcome"] == "nothing"
        assert run.result("some")["deleted_data_files"] == 3
        assert table.ids() == list(range(60))

    def test_a_table_in_shape_starts_no_job(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            # A connection that does not exist would fail the task, if it were asked for.
            compact(options={"min-input-files": 100}, spark_conn_id="nowhere")
        run = run_dag(dag)
        assert (run.state, run.result("compact")["outcome"]) == ("success", "nothing")

    def test_a_task_that_died_after_its_commit_finds_it(
        self, table: Lake, new_dag: Callable, run_dag: Callable
    ) -> None:
        class Dies(IcebergCompactOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                if context["ti"].try_number == 1:
                    raise AirflowException("after the commit")
                return result

        with new_dag(retries=1) as dag:
            Dies(task_id="compact", table="s.t", spark_conn_id=None)
        result = run_dag(dag).result("compact")
        assert (result["outcome"], result["deleted_data_files"], result["done_by_this_try"]) == ("found", 6, False)
        assert len(table.load().snapshots()) == 7

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"options": {"target-file-size-bytes": 0}}, "target-file-size-bytes is 0, expected 1 or more"),
            ({"where": "id = 'x'"}, "id"),
            ({"strategy": "sort"}, "has no sort order"),
            ({"table": "s.missing"}, "s.missing"),
        ],
    )
    def test_bad_input_fails_at_once(
        self,
        table: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list[BaseException],
        options: dict[str, Any],
        message: str,
    ) -> None:
        with new_dag(retries=3) as dag:
            compact(**options)
        assert run_dag(dag).state == "failed"
        (failure,) = failures
        assert isinstance(failure, AirflowFailException)
        assert message in str(failure)
        assert live(table) == 6


class TestManifests:
    """Many manifests become one, and no file changes."""

    def test_the_result_says_what_was_done(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            first = IcebergRewriteManifestsOperator(task_id="first", table="s.t")
            first >> IcebergRewriteManifestsOperator(task_id="second", table="s.t")
        run = run_dag(dag)
        result = run.result("first")
        assert (result["outcome"], result["manifests_created"], result["manifests_replaced"]) == ("committed", 1, 6)
        assert run.result("second")["outcome"] == "nothing"
        assert (live(table), table.ids()) == (6, list(range(60)))
        assert table.load().inspect.manifests().num_rows == 1

    def test_an_unknown_spec_is_refused(
        self, table: Lake, new_dag: Callable, run_dag: Callable, failures: list[BaseException]
    ) -> None:
        with new_dag() as dag:
            IcebergRewriteManifestsOperator(task_id="first", table="s.t", spec_id=3)
        assert run_dag(dag).state == "failed"
        assert "spec_id is 3, expected one of 0" in str(failures[0])


class TestExpiry:
    """Old snapshots go, with the files that only they reached."""

    def test_a_table_is_compacted_and_expired(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag(params={"now": "2100-01-01"}) as dag:
            expire = IcebergExpireSnapshotsOperator(task_id="expire", table="s.t", older_than="{{ params.now }}")
            dry = IcebergExpireSnapshotsOperator(
                task_id="dry", table="s.t", older_than="{{ params.now }}", dry_run=True
            )
            compact() >> dry >> expire
        run = run_dag(dag)
        result = run.result("expire")
        assert (result["outcome"], result["expired_snapshots"], result["deleted_data_files"]) == (
            "committed",
            6,
            6,
        )
        assert run.result("dry")["removed_files_size_bytes"] == result["removed_files_size_bytes"] > 0
        assert run.result("dry")["refs"][0]["name"] == "main"
        assert len(table.data_files()) == 1
        assert table.ids() == list(range(60))

    def test_the_defaults_keep_what_is_young(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        with new_dag() as dag:
            IcebergExpireSnapshotsOperator(task_id="expire", table="s.t")
        assert run_dag(dag).result("expire")["outcome"] == "nothing"
        assert len(table.load().snapshots()) == 6

    def test_a_spark_that_is_not_there_is_missed_before_anything_is_changed(
        self, table: Lake, new_dag: Callable, run_dag: Callable, failures: list[BaseException]
    ) -> None:
        with new_dag(params={"files": "6"}) as dag:
            IcebergExpireSnapshotsOperator(
                task_id="small", table="s.t", older_than="2100-01-01", dry_run=True, spark_conn_id="nowhere"
            )
            IcebergExpireSnapshotsOperator(
                task_id="large",
                table="s.t",
                older_than="2100-01-01",
                spark_conn_id="nowhere",
                spark_from_files="{{ params.files }}",
            )
        run = run_dag(dag)
        assert run.result("small")["expired_snapshots"] == 5
        (failure,) = failures
        assert "spark connection 'nowhere' does not exist" in str(failure)
        assert len(table.load().snapshots()) == 6

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"spark_from_files": "many"}, "spark_from_files is 'many', expected a whole number"),
            ({"older_than": "yesterday"}, "older_than is 'yesterday', expected a moment"),
            ({"retain_last": "many"}, "retain_last is 'many', expected a whole number"),
            ({"retain_last": 0}, "retain_last 0 (expected at least 1)"),
            ({"dry_run": "perhaps"}, "dry_run is 'perhaps', expected true or false"),
            ({"snapshot_ids": "[17]"}, "cannot expire snapshot 17"),
        ],
    )
    def test_bad_input_fails_at_once(
        self,
        table: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list[BaseException],
        options: dict[str, Any],
        message: str,
    ) -> None:
        with new_dag(retries=3) as dag:
            IcebergExpireSnapshotsOperator(task_id="expire", table="s.t", **options)
        assert run_dag(dag).state == "failed"
        (failure,) = failures
        assert message in str(failure)
        assert len(table.load().snapshots()) == 6


class TestOrphans:
    """Files that are not the table's are moved, and come back by the name of their quarantine."""

    def test_there_and_back(self, table: Lake, new_dag: Callable, run_dag: Callable) -> None:
        stray = Path(table.load().location.removeprefix("file://")) / "data" / "stray.parquet"
        stray.write_bytes(b"stray")
        os.utime(stray, (0, 0))
        with new_dag() as dag:
            clean = IcebergRemoveOrphanFilesOperator(task_id="clean", table="s.t", older_than=timedelta(days=5))
            back = IcebergRestoreOrphanFilesOperator(
                task_id="back", table="s.t", quarantine="{{ ti.xcom_pull('clean')['quarantine'] }}"
            )
            clean >> back
        run = run_dag(dag)
        result = run.result("clean")
        assert (result["outcome"], result["orphan_files"], result["orphans"]) == ("committed", 1, [stray.as_uri()])
        assert run.result("back")["restored_files"] == 1
        assert stray.read_bytes() == b"stray"
        assert table.ids() == list(range(60))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"older_than": timedelta(hours=1)}, "less than 24 hours ago"),
            ({"options": {"nope": 1}}, "unknown option 'nope'; one of allow_recent"),
            ({"action": "burn"}, "unknown action 'burn'"),
        ],
    )
    def test_bad_input_fails_at_once(
        self,
        table: Lake,
        new_dag: Callable,
        run_dag: Callable,
        failures: list[BaseException],
        options: dict[str, Any],
        message: str,
    ) -> None:
        with new_dag(retries=3) as dag:
            IcebergRemoveOrphanFilesOperator(task_id="clean", table="s.t", **options)
        assert run_dag(dag).state == "failed"
        (failure,) = failures
        assert message in str(failure)
