"""Operators that change branches and tags, under `dag.test()`: they render, guard, report and are done once."""

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OPERATION_KEY
from airflow_iceberg.operators import (
    IcebergAppendOperator,
    IcebergBranchOperator,
    IcebergCherryPickOperator,
    IcebergFastForwardOperator,
    IcebergPublishChangesOperator,
    IcebergRollbackOperator,
    IcebergSetCurrentSnapshotOperator,
    IcebergTagOperator,
)
from tests.airflow.conftest import Lake, dying, operators

branch = operators(IcebergBranchOperator, task_id="branch", table="s.t")
rollback = operators(IcebergRollbackOperator, task_id="rollback", table="s.t")


@pytest.fixture
def snapshots(lake: Lake) -> list[int]:
    """A table with three snapshots of a row each: their ids, oldest first."""
    lake.create()
    for number in range(3):
        lake.append([number])
    return [snapshot.snapshot_id for snapshot in lake.load().snapshots()]


class TestTheWholeWay:
    """Branch, write, tag, look, publish, roll back: in one DAG run."""

    @pytest.mark.services
    def test_of_a_branch(self, lake: Lake, snapshots, new_dag, run_dag):
        source = lake.write_file("new.parquet", [7])
        with new_dag(params={"name": "audit", "first": str(snapshots[0]), "last": str(snapshots[2])}) as dag:
            (
                branch(branch="{{ params.name }}", snapshot_id="{{ params.last }}", max_ref_age_ms=60_000)
                >> IcebergAppendOperator(
                    task_id="write", table="s.t", files=str(source), branch="audit", spark_conn_id=None
                )
                >> IcebergAppendOperator(
                    task_id="second",
                    table="s.t",
                    files=str(source),
                    branch="made",
                    create_branch=True,
                    spark_conn_id=None,
                )
                >> IcebergTagOperator(task_id="tag", table="s.t", tag="before", snapshot_id="{{ params.last }}")
                >> IcebergFastForwardOperator(task_id="look", table="s.t", to="audit", dry_run="{{ 1 == 1 }}")
                >> IcebergFastForwardOperator(
                    task_id="publish",
                    table="s.t",
                    to="audit",
                    expected_snapshot_id="{{ params.last }}",
                    to_snapshot_id="{{ ti.xcom_pull('write')['snapshot_id'] }}",
                )
                >> branch(task_id="drop", branch="audit", action="drop")
                >> rollback(
                    snapshot_id="{{ params.first }}",
                    expected_snapshot_id="{{ ti.xcom_pull('publish')['snapshot_id'] }}",
                )
                >> IcebergSetCurrentSnapshotOperator(task_id="forward", table="s.t", ref="before")
                >> IcebergCherryPickOperator(
                    task_id="pick", table="s.t", snapshot_id="{{ ti.xcom_pull('write')['snapshot_id'] }}"
                )
            )
        run = run_dag(dag)
        assert run.state == "success"
        assert lake.ids() == [0, 1, 2, 7]
        assert lake.ids(ref="made") == [0, 1, 2, 7]
        look, publish = run.result("look"), run.result("publish")
        assert (look["outcome"], look["appearing"]["rows"], look["appearing"]["data_files"]) == ("dry_run", 1, 1)
        assert (publish["previous_snapshot_id"], publish["done_by_this_try"]) == (str(snapshots[2]), True)
        assert run.result("rollback")["disappearing"]["snapshot_count"] == 3
        assert run.result("pick")["snapshot_id"] == run.result("write")["snapshot_id"]
        assert lake.load().refs.keys() == {"main", "made", "before"}


class TestARetry:
    """A worker that died after the commit: the next try does not do it again."""

    @pytest.mark.services
    def test_does_not_roll_back_what_another_writer_has_committed_since(self, lake: Lake, snapshots, run_task):
        def another_writer():
            lake.load().set_current_snapshot(snapshots[2])
            lake.append([50])

        kind = dying(IcebergRollbackOperator, another_writer)
        run = run_task(kind, task_id="rollback", table="s.t", snapshot_id=snapshots[0], retries=1)
        assert (run.result("rollback")["outcome"], lake.ids()) == ("found", [0, 1, 2, 50])


class TestRefusals:
    """The task fails for good, says why, and changes nothing."""

    @pytest.mark.services
    def test_of_a_guard_and_of_what_is_missing(self, lake: Lake, snapshots, run_task):
        before = lake.load().metadata_location
        refusal = run_task(rollback, snapshot_id=snapshots[0], expected_snapshot_id=snapshots[1]).refusal
        assert "another writer has changed it since; nothing was changed" in refusal
        # A guard that rendered to nothing would be none.
        refusal = run_task(rollback, snapshot_id=snapshots[0], expected_snapshot_id="{{ none }}").refusal
        assert "expected_snapshot_id is 'None' at run time" in refusal
        publish = operators(IcebergPublishChangesOperator, task_id="publish", table="s.t")
        assert "no snapshot with wap.id 'w1'" in run_task(publish, wap_id="w1").refusal
        assert "expected one of create, replace, drop, retention" in run_task(branch, branch="b", action="x").refusal
        assert lake.load().metadata_location == before


@pytest.mark.costly
def test_forged_summaries_write_no_lines_of_their_own_into_the_log(lake, run_task, capsys, monkeypatch):
    lake.create()
    lake.append([1])
    table = lake.load()
    first, settings = table.current_snapshot().snapshot_id, table.commit_settings()
    lies = replace(settings, properties={**settings.properties, OPERATION_KEY: "d\x1b[31m\nERROR - forged"})
    monkeypatch.setattr(table, "commit_settings", lambda **_: lies)
    table.append(pa.table({"id": [2]}))
    run_task(IcebergRollbackOperator, task_id="back", table="s.t", snapshot_id=first, dry_run=True)
    [told] = [line for line in capsys.readouterr().out.splitlines() if "forged" in line]
    assert "disappear: snapshot" in told
    assert "by d\N{REPLACEMENT CHARACTER}[31m ERROR - forged)" in told
