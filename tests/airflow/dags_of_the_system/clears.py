"""DAGs whose runs are cleared while they run, or deleted and created again; see `test_system`."""

import time
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.deaths import BEGIN, FOLDER, is_first


def stay(context: Any, result: Any) -> None:
    """Keep the first try running after its commit."""
    if is_first("stays", context["ti"].try_number):
        time.sleep(300)


RETRIES = {"retries": 2, "retry_delay": timedelta(0)}

with DAG("stays", schedule=None, start_date=BEGIN, default_args=RETRIES):
    IcebergAppendOperator(
        task_id="append",
        table="s.stays",
        files=str(FOLDER / "source" / "stays.parquet"),
        spark_conn_id=None,
        post_execute=stay,
    )

with DAG("again", schedule=None, start_date=BEGIN, default_args=RETRIES):
    IcebergAppendOperator(
        task_id="append",
        table="s.again",
        files=str(FOLDER / "source" / "again.parquet"),
        spark_conn_id=None,
    )
