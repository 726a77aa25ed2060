"""What identifies a task's work, in Airflow: another order of a mapped task, renames, and moves, after a clear."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import clear_task_instances
from airflow.sdk import DAG, TaskGroup, task
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session

from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.operators import Changes, IcebergAppendOperator
from tests.airflow.conftest import DAY, Run, operators
from tests.support.airflow_home import register
from tests.support.airflow_versions import as_the_scheduler_has_it

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)
pytestmark = pytest.mark.services


@pytest.fixture
def again(failures: list[BaseException]) -> Callable[..., Run]:
    """Clears tasks of a run, of a DAG that may have been edited, and lets all run that are ready, as a scheduler does.

    The function's arguments: the DAG as it is now, the run, and the tasks and map indexes that are cleared; all by
    default.
    """

    def rerun(dag: Any, run: Run, *which: tuple[str, int]) -> Run:
        register(dag)
        before = len(failures)
        with create_session() as session:
            found = session.get(DagRun, run.dag_run.id)
            cleared = [t for t in found.get_task_instances(session=session) if not which or _name(t) in which]
            found.dag = as_the_scheduler_has_it(dag)
            clear_task_instances(cleared, session)
            found.state = "running"
            version = DagVersion.get_latest_version(dag.dag_id, session=session)
            found.verify_integrity(session=session, dag_version_id=version.id)
        _run_all(dag, run.dag_run.id)
        with create_session() as session:
            return Run(session.get(DagRun, run.dag_run.id), failures[before:])

    return rerun


def _name(instance: Any) -> tuple[str, int]:
    return instance.task_id, instance.map_index


def _run_all(dag: Any, number: int) -> None:
    for _ in range(10):
        with create_session() as session:
            run = session.get(DagRun, number)
            run.dag = as_the_scheduler_has_it(dag)
            ready, _ = run.update_state(session=session)
            for instance in ready:
                instance.try_number += 1
                instance.state = "scheduled"
        if not ready:
            return
        for instance in sorted(ready, key=lambda one: one.map_index):
            _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)


@pytest.fixture
def dag_of(new_dag: Any) -> Callable[..., DAG]:
    """Makes a DAG, by default of another name than all others."""

    def make(build: Callable[[], Any], like: DAG | None = None) -> DAG:
        if like is None:
            with new_dag() as dag:
                build()
            return dag
        with DAG(like.dag_id, schedule=None, start_date=DAY, default_args=like.default_args) as dag:
            build()
        return dag

    return make


@task
def load(name: str) -> None:
    IcebergHook().task_table(name).append(pa.table({"id": [1]}), name="rows")


def mapped(table: str | None = "s.t", **more: Any) -> Any:
    known = {} if table is None else {"table": table}
    return IcebergAppendOperator.partial(task_id="append", spark_conn_id=None, **known, **more)


def over(lake: Any, names: Iterable[str], **more: Any) -> Callable[[], Any]:
    """Return what makes a task that is mapped over files."""
    files = [str(lake.write_file(f"{name}.parquet", [int(name[1:])])) for name in names]
    if not more.pop("by_name", False):
        return lambda: mapped(**more).expand(files=files)
    items = [{"files": file, "write_key": f"file {name}"} for file, name in zip(files, names, strict=True)]
    return lambda: mapped(**more).expand_kwargs(items)


class TestAnotherOrderAfterAClear:
    """A map index may stand for something else: what it wrote is not what it writes now."""

    @pytest.mark.parametrize("way", ["operator", "task_table"])
    def test_over_tables(self, way, lake, dag_of, run_dag, again):
        for name in ("s.a", "s.b"):
            lake.create(name)
        files = str(lake.write_file("a.parquet", [1]))

        def build(names):
            if way == "task_table":
                return lambda: load.expand(name=names)
            return lambda: mapped(table=None, files=files).expand(table=names)

        dag = dag_of(build(["s.a", "s.b"]))
        run = run_dag(dag)
        assert again(dag, run).state == "success"
        run = again(dag_of(build(["s.b", "s.a"]), dag), run)
        assert (lake.ids("s.a"), lake.ids("s.b")) == ([1], [1])
        assert run.state == "failed"
        assert "what map index 1 stood for is map index 0 now" in str(run.failures)

    @pytest.mark.parametrize("more", [{"on_removed": "remove"}, {"on_rerun": "replace", "poll_interval": 7}])
    def test_an_item_is_known_again_beside_other_arguments(self, more, lake, dag_of, run_dag, again):
        for name in ("s.a", "s.b"):
            lake.create(name)
        files = str(lake.write_file("a.parquet", [1]))
        dag = dag_of(lambda: mapped(table=None, files=files).expand(table=["s.a", "s.b"]))
        run = run_dag(dag)
        run = again(dag_of(lambda: mapped(table=None, files=files, **more).expand(table=["s.b", "s.a"]), dag), run)
        assert (lake.ids("s.a"), lake.ids("s.b")) == ([1], [1])
        assert run.state == ("success" if "on_removed" in more else "failed")

    def test_over_fewer_files(self, lake, dag_of, run_dag, again):
        lake.create()
        dag = dag_of(over(lake, ["f1", "f2", "f3"]))
        run = run_dag(dag)
        run = again(dag_of(over(lake, ["f2", "f3"]), dag), run)
        assert (run.state, lake.ids()) == ("failed", [1, 2, 3])
        run = again(dag_of(over(lake, ["f1", "f2"]), dag), run)
        assert "the task has no map index 2 in this run any more" in str(run.failures)
        run = again(dag_of(over(lake, ["f2", "f3"], on_removed="remove"), dag), run)
        assert (run.state, lake.ids()) == ("success", [2, 3])

    @pytest.mark.parametrize(
        ("files", "on_removed", "left"),
        [
            (["f3", "f1", "f2"], None, [1, 2, 3]),
            (["f0", "f3", "f2", "f1"], None, [0, 1, 2, 3]),
            (["f3", "f2"], "remove", [2, 3]),
            (["f2", "f3"], "remove", [2, 3]),
            (["f4"], "remove", [4]),
            (["f3", "f2"], "keep", [1, 2, 3]),
            (["f3", "f2"], None, None),
        ],
    )
    def test_with_a_write_key(self, files, on_removed, left, lake, dag_of, run_dag, again):
        lake.create()
        dag = dag_of(over(lake, ["f1", "f2", "f3"], by_name=True, on_removed=on_removed))
        run = run_dag(dag)
        assert lake.ids() == [1, 2, 3]
        run = again(dag_of(over(lake, files, by_name=True, on_removed=on_removed), dag), run)
        assert run.state == ("failed" if left is None else "success"), run.failures
        assert lake.ids() == (left or [1, 2, 3])

    def test_two_items_with_one_write_key(self, lake, dag_of, run_dag):
        lake.create()
        files = [str(lake.write_file("a.parquet", [1])), str(lake.write_file("b.parquet", [2]))]
        run = run_dag(dag_of(lambda: mapped(write_key="x").expand(files=files)))
        assert (run.state, len(lake.ids())) == ("failed", 1)
        assert "have one write_key, 'x'" in str(run.failures)


class TestOrdinaryReruns:
    """Nothing is refused of a task whose DAG is as it was."""

    def test_one_index_is_cleared(self, lake, dag_of, run_dag, again):
        lake.create()
        dag = dag_of(over(lake, ["f1", "f2", "f3"]))
        run = again(dag, run_dag(dag), ("append", 1))
        assert (run.state, run.failures, lake.ids()) == ("success", [], [1, 2, 3])

    def test_an_index_that_has_failed_is_cleared(self, lake, dag_of, run_dag, again):
        lake.create()
        dag = dag_of(over(lake, ["f1", "f2"]))
        (lake.folder / "source" / "f2.parquet").rename(lake.folder / "away")
        run = run_dag(dag)
        (lake.folder / "away").rename(lake.folder / "source" / "f2.parquet")
        run = again(dag, run, ("append", 1))
        assert (run.state, lake.ids()) == ("success", [1, 2])

    def test_two_tasks_of_one_table(self, lake, dag_of, run_dag, again):
        lake.create()
        one, two = (str(lake.write_file(f"{n}.parquet", [n])) for n in (1, 2))

        def build():
            append(task_id="one", files=one) >> append(task_id="two", files=two)

        dag = dag_of(build)
        run = again(dag, run_dag(dag))
        run = again(dag, run, ("one", -1))
        assert (run.state, lake.ids()) == ("success", [1, 2])


class TestATaskThatTheDagNoLongerHas:
    """Its rows would be there beside those of the task that it has become."""

    @pytest.mark.parametrize("change", ["renamed", "moved into a group", "with a write_key"])
    def test_its_old_run_is_cleared(self, change, lake, dag_of, run_dag, again):
        lake.create()
        file = str(lake.write_file("a.parquet", [1]))

        def after(**more):
            if change == "renamed":
                return append(files=file, task_id="other", **more)
            if change == "with a write_key":
                return append(files=file, write_key="a", **more)
            with TaskGroup("group"):
                return append(files=file, **more)

        dag = dag_of(lambda: append(files=file))
        run = run_dag(dag)
        refused = again(dag_of(after, dag), run)
        assert (refused.state, lake.ids()) == ("failed", [1])
        assert "holds rows of this DAG run that no task will write again" in str(refused.failures)
        assert lake.load().current_snapshot().summary["operation"] == "append"
        run = again(dag_of(lambda: after(on_removed="remove"), dag), run)
        assert (run.state, lake.ids()) == ("success", [1])
        run = again(dag_of(after, dag), run)
        assert (run.state, lake.ids()) == ("success", [1])

    def test_or_they_are_kept(self, lake, dag_of, run_dag, again):
        lake.create()
        file = str(lake.write_file("a.parquet", [1]))
        dag = dag_of(lambda: append(files=file))
        run = run_dag(dag)
        run = again(dag_of(lambda: append(files=file, task_id="other", on_removed="keep"), dag), run)
        assert (run.state, lake.ids()) == ("success", [1, 1])


class TestATaskThatReadsChanges:
    """Its watermark is found by its name; another name, or another filter, is refused."""

    def follow(self, lake: Any, dag_of: Any, like: Any = None, *, task_id: str = "append", **more: Any) -> Any:
        inputs = {"o": Changes("s.orders", **more)}
        return dag_of(lambda: append(task_id=task_id, sql="select id from o", inputs=inputs), like)

    def test_is_renamed(self, lake, dag_of, run_dag):
        lake.create()
        lake.create("s.orders").append(pa.table({"id": [1]}))
        dag = self.follow(lake, dag_of)
        assert run_dag(dag).state == "success"
        lake.append([2], "s.orders")
        refused = run_dag(self.follow(lake, dag_of, dag, task_id="renamed"), day=DAY + timedelta(1))
        assert f"'{dag.dag_id}.append' has read some" in refused.refusal
        named = self.follow(lake, dag_of, dag, task_id="renamed", consumer=f"{dag.dag_id}.append")
        assert run_dag(named, day=DAY + timedelta(2)).state == "success"
        assert lake.ids() == [1, 2]

    def test_had_no_rows_in_the_first_run(self, lake, dag_of, run_dag):
        lake.create()
        lake.create("s.orders").append(pa.table({"id": [1]}))

        def build():
            for task_id, row_filter in (("low", "id < 5"), ("high", "id >= 5")):
                inputs = {"o": Changes("s.orders", row_filter=row_filter)}
                append(task_id=task_id, sql="select id from o", inputs=inputs)

        dag = dag_of(build)
        for day, more in enumerate(([7], [8, 2], [])):
            run = run_dag(dag, day=DAY + timedelta(day))
            assert run.state == "success", run.failures
            lake.append(more, "s.orders")
        assert lake.ids() == [1, 2, 7, 8]

    def test_has_another_filter(self, lake, dag_of, run_dag):
        lake.create()
        lake.create("s.orders").append(pa.table({"id": [1, 7]}))
        filters = {"row_filter": "id < :most", "predicate_params": {"most": "{{ params.most }}"}}

        def dag_with(most: int, like: Any = None) -> Any:
            dag = self.follow(lake, dag_of, like, **filters)
            dag.params = {"most": most}
            return dag

        dag = dag_with(5)
        assert run_dag(dag).state == "success"
        lake.append([2, 8], "s.orders")
        refused = run_dag(dag_with(9, dag), day=DAY + timedelta(1))
        assert "what is read of the changes is not what was read" in refused.refusal
        assert lake.ids() == [1]
        assert run_dag(dag_with(5, dag), day=DAY + timedelta(2)).state == "success"
        assert lake.ids() == [1, 2]
