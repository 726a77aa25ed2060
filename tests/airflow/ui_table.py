"""A table as people on call have it: loaded by runs, compacted, with deletes, branches and a longer schema."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.operations.compact import CompactRequest, compact
from tests.airflow.conftest import Lake
from tests.support.builders import job_work

RUN_ID = "scheduled__2026-01-{:02}T00:00:00+00:00"


def loaded_by_runs(lake: Lake, name: str = "sales.orders", runs: int = 12) -> Any:
    """Make a table that tasks of DAGs have loaded and maintained."""
    table = lake.create(
        name,
        {"id": "long", "region": "string", "amount": "double", "note": "string"},
        partition_by=["region"],
        properties={"write.delete.mode": "merge-on-read", "owner": "data platform", "upstream.password": "tellNobody"},
    )
    for day in range(1, runs + 1):
        key = OperationKey(
            dag_id="load_orders", run_id=RUN_ID.format(day), task_id="append", try_number=1 + day % 3 // 2
        )
        table.append(_rows(day), operation_key=key)
        if day == runs * 2 // 3:
            keyed = OperationKey(dag_id="maintain", run_id=RUN_ID.format(day), task_id="compact", try_number=1)
            compact(job_work(table, operation_key=keyed), CompactRequest(options={"rewrite-all": True}))
    table.delete("region = 'eu' and id > 11200")
    table.alter([{"add_column": {"name": "channel", "type": "string", "doc": "where it was ordered"}}])
    table.create_branch("audit")
    table.create_tag("end-of-quarter", max_ref_age_ms=86_400_000 * 90)
    return lake.load(name)


def _rows(day: int) -> pa.Table:
    ids = list(range(day * 1000, day * 1000 + 40 * day))
    regions = [("eu", "us", "apac", "latam")[one % 4] for one in ids]
    notes = [datetime(2026, 1, 1 + one % 28, tzinfo=UTC).isoformat() for one in ids]
    return pa.table({"id": ids, "region": regions, "amount": [one / 7 for one in ids], "note": notes})
