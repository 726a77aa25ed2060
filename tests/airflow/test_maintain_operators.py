"""Compaction, rewriting of manifests, expiry and the removal of orphan files under `dag.test()`."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_iceberg.operators import (
    IcebergCompactOperator,
    IcebergExpireSnapshotsOperator,
    IcebergRemoveOrphanFilesOperator,
    IcebergRestoreOrphanFilesOperator,
    IcebergRewriteManifestsOperator,
)
from tests.airflow.conftest import Lake, dying, operators

compact = operators(IcebergCompactOperator, task_id="compact", spark_conn_id=None)
rewrite = operators(IcebergRewriteManifestsOperator)
expire = operators(IcebergExpireSnapshotsOperator, task_id="expire")


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(schema={"id": "long"}, properties={"commit.manifest-merge.enabled": "false"})
    for start in range(0, 60, 10):
        lake.append(list(range(start, start + 10)))
    return lake


def live(lake: Lake) -> int:
    return len(lake.load().scan().plan_files())


class TestCompaction:
    """Small files become one, and the task says what it saved."""

    @pytest.mark.services
    def test_the_result_says_what_was_done(self, table, run_task):
        result = run_task(compact).result("compact")
        assert (result["outcome"], result["deleted_data_files"], result["added_data_files"]) == ("committed", 6, 1)
        assert result["removed_files_size_bytes"] > result["added_files_size_bytes"] > 0
        assert result["snapshot_id"] == str(table.load().current_snapshot().snapshot_id)
        assert (live(table), table.ids()) == (1, list(range(60)))
        assert not table.staged()

    @pytest.mark.services
    def test_options_and_the_filter_are_templates_and_a_table_in_shape_starts_no_job(self, table, new_dag, run_dag):
        with new_dag(params={"least": "7", "from": 30}) as dag:
            # A connection that does not exist would fail the task, if it were asked for.
            compact(options={"min-input-files": "{{ params.least }}"}, spark_conn_id="nowhere")
            compact(task_id="some", where="id >= {{ params['from'] }}", options={"min-input-files": 2})
        run = run_dag(dag)
        assert (run.state, run.result("compact")["outcome"]) == ("success", "nothing")
        assert run.result("some")["deleted_data_files"] == 3
        assert table.ids() == list(range(60))

    @pytest.mark.services
    def test_a_task_that_died_after_its_commit_finds_it(self, table, run_task):
        dies = dying(IcebergCompactOperator)
        result = run_task(dies, task_id="compact", table="s.t", spark_conn_id=None, retries=1).result("compact")
        assert (result["outcome"], result["deleted_data_files"], result["done_by_this_try"]) == ("found", 6, False)
        assert len(table.load().snapshots()) == 7


class TestManifests:
    """Many manifests become one, and no file changes."""

    @pytest.mark.services
    def test_the_result_says_what_was_done(self, table, new_dag, run_dag):
        with new_dag() as dag:
            rewrite(task_id="first") >> rewrite(task_id="second")
        run = run_dag(dag)
        result = run.result("first")
        assert (result["outcome"], result["manifests_created"], result["manifests_replaced"]) == ("committed", 1, 6)
        assert run.result("second")["outcome"] == "nothing"
        assert (live(table), table.ids()) == (6, list(range(60)))
        assert table.load().inspect.manifests().num_rows == 1


class TestExpiry:
    """Old snapshots go, with the files that only they reached."""

    @pytest.mark.services
    def test_a_table_is_compacted_and_expired(self, table, new_dag, run_dag):
        with new_dag(params={"now": "2100-01-01"}) as dag:
            dry = expire(task_id="dry", older_than="{{ params.now }}", dry_run=True)
            compact() >> dry >> expire(older_than="{{ params.now }}")
        run = run_dag(dag)
        result = run.result("expire")
        assert (result["outcome"], result["expired_snapshots"], result["deleted_data_files"]) == ("committed", 6, 6)
        assert run.result("dry")["removed_files_size_bytes"] == result["removed_files_size_bytes"] > 0
        assert run.result("dry")["refs"][0]["name"] == "main"
        assert len(table.data_files()) == 1
        assert table.ids() == list(range(60))

    @pytest.mark.services
    def test_a_spark_that_is_not_there_is_missed_before_anything_is_changed(self, table, new_dag, run_dag):
        with new_dag(params={"files": "6"}) as dag:
            options = {"older_than": "2100-01-01", "spark_conn_id": "nowhere"}
            expire()
            expire(task_id="small", dry_run=True, **options)
            expire(task_id="large", spark_from_files="{{ params.files }}", **options)
        run = run_dag(dag)
        assert run.result("expire")["outcome"] == "nothing", "the default keeps what is young"
        assert run.result("small")["expired_snapshots"] == 5
        assert "spark connection 'nowhere' does not exist" in run.refusal
        assert len(table.load().snapshots()) == 6


class TestOrphans:
    """Files that are not the table's are moved, and come back by the name of their quarantine."""

    @pytest.mark.services
    def test_there_and_back(self, table, new_dag, run_dag):
        stray = Path(table.load().location.removeprefix("file://")) / "data" / "stray.parquet"
        stray.write_bytes(b"stray")
        os.utime(stray, (0, 0))
        with new_dag() as dag:
            clean = IcebergRemoveOrphanFilesOperator(task_id="clean", table="s.t", older_than=timedelta(days=5))
            quarantine = "{{ ti.xcom_pull('clean')['quarantine'] }}"
            clean >> IcebergRestoreOrphanFilesOperator(task_id="back", table="s.t", quarantine=quarantine)
        run = run_dag(dag)
        result = run.result("clean")
        assert (result["outcome"], result["orphan_files"], result["orphans"]) == ("committed", 1, [stray.as_uri()])
        assert run.result("back")["restored_files"] == 1
        assert stray.read_bytes() == b"stray"
        assert table.ids() == list(range(60))
