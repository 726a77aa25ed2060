"""DAGs whose tasks wait, are cut short, deleted and cleaned away; `test_scheduler` runs them in a real Airflow."""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_iceberg.operators import Changes, IcebergAppendOperator
from airflow_iceberg.sensors import IcebergRowCountSensor, IcebergSnapshotSensor
from tests.airflow.deaths import BEGIN, FOLDER

# Retries for what a busy Airflow does: it takes the end of a process for that of the next one, and calls it failed.
AT_ONCE = {"retry_delay": timedelta(0), "retries": 50}
WAITS = {"deferrable": True, "poke_interval": 0.5}
ON_YARN = {"deferrable": True, "poll_interval": 0.5, "files": str(FOLDER / "source" / "a.parquet")}


def dag(name: str, **options: Any) -> DAG:
    return DAG(name, schedule=None, start_date=BEGIN, default_args=AT_ONCE, **options)


with dag("late"):
    IcebergSnapshotSensor(task_id="landed", table="s.empty", timeout=4, **WAITS)

with dag("limited"):
    IcebergRowCountSensor(
        task_id="rows", table="s.empty", min_rows=1, execution_timeout=timedelta(seconds=12), retries=2, **WAITS
    )

with dag("job_limited"):
    IcebergAppendOperator(task_id="append", table="s.job_limited", execution_timeout=timedelta(seconds=20), **ON_YARN)

with dag("run_limited", dagrun_timeout=timedelta(seconds=40)):
    IcebergAppendOperator(task_id="append", table="s.run_limited", **ON_YARN)

with dag("spread"):
    landed = IcebergSnapshotSensor.partial(task_id="landed", **WAITS).expand(
        table=[f"s.landing{number}" for number in range(5)]
    )
    append = IcebergAppendOperator(task_id="append", table="s.spread", **ON_YARN)
    after = IcebergAppendOperator(
        task_id="after",
        table="s.after",
        sql="select id from landed where id = {{ ti.xcom_pull('landed') | length }}",
        inputs={"landed": {"table": "s.landing0"}},
        spark_conn_id=None,
    )
    [landed, append] >> after

with dag("poking"):
    AGAIN = {"mode": "reschedule", "poke_interval": 5}
    IcebergSnapshotSensor(task_id="landed", table="s.poked", wait_for_table=True, **AGAIN)
    IcebergRowCountSensor(task_id="rows", table="s.empty", min_rows=1, timeout=3, soft_fail=True, **AGAIN)


def fail_once_more(context: Any, result: Any) -> None:
    """Let tries fail after their commit, for as long as a file says so."""
    if (FOLDER / "fail").exists():
        (FOLDER / "failed").touch()
        raise RuntimeError("after the commit")


with dag("follow") as follow:
    IcebergAppendOperator(
        task_id="append",
        table="s.followed",
        sql="select id from o",
        inputs={"o": Changes("s.orders")},
        spark_conn_id=None,
        retries=200,
        retry_delay=timedelta(seconds=2),
        post_execute=fail_once_more,
    )
