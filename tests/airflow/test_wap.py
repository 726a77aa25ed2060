"""The task group of write, audit, publish under `dag.test()`, and the order of its tasks."""

import itertools
from datetime import timedelta

import pytest
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import clear_task_instances
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import TaskGroup
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operators import (
    Freshness,
    IcebergAppendOperator,
    IcebergAuditOperator,
    IcebergPublishOperator,
    NoRows,
    NullShare,
    RowCount,
    iceberg_wap,
)
from airflow_iceberg.operators.wap.audit import AuditsOperator
from airflow_iceberg.operators.wap.branch import CleanUpBranchOperator, StartBranchOperator
from tests.airflow.conftest import operators
from tests.support.airflow_versions import as_the_scheduler_has_it

append = operators(IcebergAppendOperator, task_id="load", spark_conn_id=None)
NO_NEGATIVE = NoRows("select id from audited where id < 0", name="no negative id")


def group_dag(new_dag, files, *, more=(), **options):
    with new_dag(retries=options.pop("retries", 0)) as dag:
        with iceberg_wap(table="s.t", audits=[NO_NEGATIVE, RowCount(min=1)], **options) as wap:
            for number, path in enumerate([files, *more]):
                append(task_id=f"load_{number}", files=str(path), branch=wap.branch)
    return dag


class TestARun:
    """Main gets the rows when they have passed, and not before."""

    @pytest.mark.services
    def test_rows_that_pass_are_published_and_the_branch_is_removed(self, lake, new_dag, run_dag):
        lake.create()
        lake.append([1])
        run = run_dag(group_dag(new_dag, lake.write_file("a.parquet", [2]), more=[lake.write_file("b.parquet", [3])]))
        assert run.state == "success"
        assert lake.ids() == [1, 2, 3]
        assert set(lake.load().refs) == {"main"}
        audited, published = run.result("wap.audit"), run.result("wap.publish")
        assert [one["passed"] for one in audited["audits"]] == [True, True]
        assert published["snapshot_id"] == audited["snapshot_id"] == str(lake.load().current_snapshot().snapshot_id)
        assert published["how"] == "fast_forward"

    @pytest.mark.costly
    def test_rows_that_fail_stay_on_the_branch_until_they_are_corrected_and_cleared(self, lake, new_dag, run_dag):
        lake.create()
        lake.append([1])
        path = lake.write_file("a.parquet", [-2, 3])
        dag = group_dag(new_dag, path)
        run = run_dag(dag)
        branch = run.result("wap.create_branch")["branch"]
        assert run.state == "failed"
        assert "look at it with table.scan(ref=" in run.refusal
        assert "no negative id: 1 offending row" in run.refusal
        assert lake.ids() == [1]
        assert lake.ids(ref=branch) == [-2, 1, 3]
        results = run.result("wap.audit", key="audits")
        assert [(one["passed"], one["rows"]) for one in results] == [(False, [{"id": -2}]), (True, [])]
        assert run.result("wap.audit") is None
        lake.write_file("a.parquet", [2, 3])
        lake.append([7])
        for _ in range(2):
            clear_all(dag, run)
            assert lake.ids() == [1, 2, 3, 7]
            assert set(lake.load().refs) == {"main"}

    @pytest.mark.services
    def test_every_task_of_the_group_dies_after_its_work(self, lake, new_dag, run_dag, monkeypatch):
        lake.create()
        lake.append([1])
        numbers = itertools.count(100)
        for kind in (
            *(StartBranchOperator, IcebergAppendOperator, IcebergAuditOperator),
            *(IcebergPublishOperator, CleanUpBranchOperator),
        ):
            monkeypatch.setattr(kind, "execute", dies_first(kind.execute, lake, numbers))
        run = run_dag(group_dag(new_dag, lake.write_file("a.parquet", [2]), retries=1))
        assert run.state == "success"
        # Another writer has committed to main after each of them.
        assert lake.ids() == [1, 2, 100, 101, 102, 103, 104]
        assert set(lake.load().refs) == {"main"}

    @pytest.mark.services
    def test_several_tables(self, lake, new_dag, run_dag, caplog):
        for name in ("s.t", "s.u"):
            lake.create(name)
            lake.append([1], name)
        path = lake.write_file("a.parquet", [2])
        with (
            new_dag() as dag,
            iceberg_wap(tables=["s.t", "s.u"], audits={"s.t": [NO_NEGATIVE], "s.u": [RowCount(min=2)]}) as wap,
        ):
            append(task_id="t", files=str(path), branch=wap.branch)
            append(task_id="u", table="s.u", files=str(path), branch=wap.branch)
        run = run_dag(dag)
        assert run.state == "success"
        assert [one["how"] for one in run.result("wap.publish")["tables"]] == ["fast_forward"] * 2
        assert (lake.ids(), lake.ids("s.u")) == ([1, 2], [1, 2])
        assert "one after the other" in caplog.text


def dies_first(execute, lake, numbers):
    """Return a method whose first call fails after its work, and after another writer has committed to main."""
    calls = []

    def first_try_dies(self, context):
        result = execute(self, context)
        calls.append(self)
        if len(calls) == 1:
            lake.append([next(numbers)])
            raise AirflowException("after the work")
        return result

    return first_try_dies


def clear_all(dag, run):
    """Clear all tasks of a run, and run them again, in their order, as the scheduler does."""
    with create_session() as session:
        again = session.get(DagRun, run.dag_run.id)
        clear_task_instances(again.get_task_instances(session=session), session)
    serialized = as_the_scheduler_has_it(dag)
    ready = True
    while ready:
        with create_session() as session:
            again = session.get(DagRun, run.dag_run.id)
            again.dag, again.state = serialized, "running"
            session.flush()
            ready, _ = again.update_state(session=session)
            for instance in ready:
                instance.try_number += 1
                instance.state = "scheduled"
        for instance in ready:
            _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)


class TestTheOrder:
    """The branch, the author's tasks, the audits, the approval, the publication, the removal."""

    def test_of_the_tasks(self, new_dag):
        with new_dag() as dag, iceberg_wap(table="s.t", audits=[RowCount(min=1)], approval={"subject": "Go?"}) as wap:
            first = append(task_id="a", files="/a", branch=wap.branch)
            with TaskGroup("more"):
                second = append(task_id="b", files="/b", branch=wap.branch)
            first >> second
            append(task_id="c", files="/c", branch=wap.branch)
        order = {task.task_id: task.downstream_task_ids for task in dag.tasks}
        assert order == {
            "wap.create_branch": {"wap.a", "wap.c", "wap.audit"},
            "wap.a": {"wap.more.b"},
            "wap.more.b": {"wap.audit"},
            "wap.c": {"wap.audit"},
            "wap.audit": {"wap.approve"},
            "wap.approve": {"wap.publish"},
            "wap.publish": {"wap.clean_up"},
            "wap.clean_up": set(),
        }
        approve = dag.task_dict["wap.approve"]
        assert (approve.task_type, approve.subject) == ("ApprovalOperator", "Go?")
        assert "wap.audit" in approve.body
        again = as_the_scheduler_has_it(dag)
        assert {task.task_id for task in again.tasks} == set(order)

    def test_nobody_is_told_of_rows_before_they_are_published(self, new_dag):
        with new_dag() as dag:
            with iceberg_wap("one", table="s.t", audits=[RowCount(min=1)]) as wap:
                append(task_id="t", files="/a", branch=wap.branch)
                append(task_id="other", table="s.other", files="/a")
            with iceberg_wap("two", tables=["s.t", "s.u"], audits=[RowCount(min=1)]) as both:
                append(files="/a", branch=both.branch)
        told = {
            task.task_id: [asset.uri.rpartition("/")[2] for asset in task.outlets] for task in dag.tasks if task.outlets
        }
        assert told == {"one.other": ["other"], "one.publish": ["t"], "two.publish": ["t", "u"]}

    def test_the_branch_is_the_same_in_all_tries_of_a_run_and_another_one_in_each_run_and_group(self, new_dag):
        with new_dag() as dag:
            for group_id in ("one", "two"):
                with iceberg_wap(group_id, table="s.t", audits=[RowCount(min=1)]) as wap:
                    append(files="/a", branch=wap.branch)

        def branch(task_id, run_id):
            context = {"ti": type("Ti", (), {"dag_id": "d", "run_id": run_id})(), "macros": macros()}
            return dag.get_task(task_id).render_template(dag.get_task(task_id).branch, context)

        names = [branch(f"{group}.load", run) for group in ("one", "two") for run in ("r", "manual__2026+00:00 ä/'")]
        assert len(set(names)) == 4
        assert all(name.startswith("wap_") and name[4:].isalnum() and len(name) == 20 for name in names)
        assert branch("one.create_branch", "r") == branch("one.publish", "r") == names[0]


def macros():
    from airflow.sdk.execution_time import macros as found

    return found


class TestBadGroups:
    """One clear error when the DAG is parsed."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "needs table="),
            ({"table": "s.t", "tables": ["s.u"]}, "needs table="),
            ({"table": "s.t", "audits": []}, "expected some for each of s.t"),
            ({"tables": ["s.t", "s.u"], "audits": {"s.t": [NO_NEGATIVE]}}, "audits are for s.t, expected some"),
        ],
    )
    def test_tables_and_audits(self, new_dag, options, message):
        with new_dag(), pytest.raises(InvalidInputError, match=message):
            iceberg_wap(**{"audits": [NO_NEGATIVE], **options})

    def test_no_task_that_writes(self, new_dag):
        with new_dag(), pytest.raises(InvalidInputError, match="has no task that writes"):
            with iceberg_wap(table="s.t", audits=[NO_NEGATIVE]):
                pass


class TestTheOperators:
    """They work without the group, and everything is a template."""

    def test_every_parameter_is_one(self):
        task = IcebergPublishOperator(task_id="p", table="s.t")
        assert set(IcebergPublishOperator.template_fields) <= vars(task).keys()
        assert set(AuditsOperator.template_fields) <= set(IcebergPublishOperator.template_fields)

    def test_audits_are_rendered_into_copies(self):
        audits = [NoRows("select '{{ ds }}'", params={"a": "{{ ds }}"}), RowCount(min="{{ 1 + 1 }}"), NullShare("id")]
        task = IcebergAuditOperator(task_id="a", table="s.t", audits=[*audits, Freshness("t", max_age=timedelta(1))])
        task.render_template_fields({"ds": "D"})
        assert task.audits[:3] == [NoRows("select 'D'", params={"a": "D"}), RowCount(min="2"), NullShare("id")]
        assert audits[0].sql == "select '{{ ds }}'"

    @pytest.mark.costly
    def test_a_publication_without_an_audit(self, lake, run_task):
        lake.create()
        publish = operators(IcebergPublishOperator, task_id="publish", branch="wap")
        run = run_task(publish, snapshot_id="{{ (ti.xcom_pull(task_ids='none') or {}).get('snapshot_id') or '' }}")
        assert "no audit of this run has passed" in run.refusal

    @pytest.mark.costly
    @pytest.mark.parametrize("keeps", [True, False])
    def test_a_branch_that_has_not_passed(self, lake, run_task, keeps, caplog):
        lake.create()
        lake.append([1])
        lake.load().create_branch("wap")
        audit = operators(IcebergAuditOperator, task_id="audit", branch="wap", audits=[RowCount(min=2)])
        run = run_task(audit, keep_branch_on_failure=keeps)
        assert ("the branch was removed" in run.refusal) is not keeps
        assert f"what happened: {run.refusal}" in caplog.messages
        assert ("wap" in lake.load().refs) is keeps
