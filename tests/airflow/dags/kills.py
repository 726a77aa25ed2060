"""DAGs whose first try is killed at one point; `test_killed_tasks` runs them in a real Airflow.

One DAG and one table a point. The task installs its own death in its own process, once, and then does the
ordinary thing.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from airflow.sdk import Asset

from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.deaths import FOLDER, after, before, dag, die, is_first, replace


def install(point: str) -> None:
    """Arrange for this process to be killed at a point."""
    import airflow_iceberg.backends.backend as backend
    from airflow_iceberg.catalogs.pointer import PointerCatalog
    from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.jobs import run_plan

    if point == "before_submit":
        before(backend, "run_job")
    elif point == "files_written_no_result":
        before(run_plan, "write_result")
    elif point == "before_commit":
        before(OpenTable, "land")
    elif point == "metadata_written_no_swap":
        before(SqlCatalog, "swap_pointer")
    elif point == "after_swap":
        after(SqlCatalog, "swap_pointer")
    elif point == "after_swap_with_worker":
        after(SqlCatalog, "swap_pointer", with_worker=True)
    elif point == "after_commit":
        after(PointerCatalog, "commit")
    elif point == "spark_running":
        watch_spark(lambda spark: die())
    elif point == "spark_killed":
        watch_spark(lambda spark: os.kill(spark, signal.SIGKILL))
    elif point == "worker_killed":
        kill_worker_of_a_waiting_spark()


def watch_spark(then: Callable[[int], None]) -> None:
    """Do something to the running Spark as soon as it works on a task."""
    from airflow_iceberg.backends._submit_hook import IcebergSubmitHook

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def process(hook: Any, lines: Any) -> None:
            done = threading.Event()

            def watched() -> Any:
                for line in lines:
                    if "Running task" in line and not done.is_set():
                        done.set()
                        then(hook._submit_sp.pid)
                    yield line

            real(hook, watched())

        return process

    replace(IcebergSubmitHook, "_process_spark_submit_log", make)


def kill_worker_of_a_waiting_spark() -> None:
    """Kill the process that watches this task as soon as Spark works, and say when this task's Spark has ended.

    The first try's query waits for ten minutes, so that only the end of its Spark can end it.
    """
    from airflow_iceberg.backends.spark_submit import SparkSubmit

    real = SparkSubmit.run

    def run(backend: Any, plan: Any) -> None:
        try:
            real(backend, plan)
        finally:
            (FOLDER / "ended-with-its-worker").write_text("the job was cancelled" if backend.is_killed else "")

    SparkSubmit.run = run  # type: ignore[method-assign]
    watch_spark(lambda spark: os.kill(os.getppid(), signal.SIGKILL))


class KilledOnce(IcebergAppendOperator):
    """Appends, but for the first try that gets here, which is killed."""

    def __init__(self, *, point: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.point = point

    def execute(self, context: Any) -> Any:
        ti = context["ti"]
        is_killed = is_first(f"{self.point}-{ti.map_index}", ti.try_number)
        if is_killed:
            install(self.point)
            if self.point == "worker_killed":
                self.sql = f"{self.sql} where reflect('java.lang.Thread', 'sleep', 600000L) is null"
        result = super().execute(context)
        if is_killed and self.point == "before_xcom":
            die()
        return result


POINTS = (
    "before_submit",
    "files_written_no_result",
    "before_commit",
    "metadata_written_no_swap",
    "after_swap",
    "after_swap_with_worker",
    "after_commit",
    "before_xcom",
)
SPARK_POINTS = ("spark_running", "spark_killed", "worker_killed")
SOURCE = f"{FOLDER}/source/*.parquet"

# Those of the tests that run; each is a run of its own as soon as Airflow is there.
WANTED = set(os.environ["AIRFLOW_ICEBERG_TEST_POINTS"].split(","))

for point in filter(WANTED.__contains__, POINTS):
    with dag(f"kill_{point}") as made:
        KilledOnce(
            task_id="append",
            point=point,
            table=f"s.{point}",
            files=SOURCE,
            spark_conn_id=None,
            outlets=[Asset(name=f"asset_{point}")],
        )
    globals()[made.dag_id] = made

for point in filter(WANTED.__contains__, SPARK_POINTS):
    with dag(f"kill_{point}") as made:
        KilledOnce(task_id="append", point=point, table=f"s.{point}", sql="select id from range(1, 4)")
    globals()[made.dag_id] = made

with dag("kill_mapped") as mapped:
    KilledOnce.partial(task_id="append", point="after_swap", table="s.mapped", spark_conn_id=None).expand(
        files=[f"{FOLDER}/source/a.parquet", f"{FOLDER}/source/b.parquet"]
    )
