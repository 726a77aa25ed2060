"""What a person on call waits for: who made the snapshots of a table with 10,000 of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef, apply_change
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.operations.history.runs import find_runs
from tests.benchmarks.line import Bench, Line, Run
from tests.benchmarks.measure import Stopwatch
from tests.benchmarks.sessions import check_rows

SNAPSHOTS, FIRST_MS = 10_000, 1_767_225_600_000
LIMIT_SECONDS, GOAL = 1.0, 1.0
INPUTS = '{"orders": {"catalog": "c", "table": "sales.orders", "table-uuid": "u", "snapshot-id": "17"}}'


def many_snapshots() -> TableMetadata:
    """Return the metadata of a table with as many snapshots of Airflow's tasks; none of its files exists."""
    snapshots = []
    for number in range(1, SNAPSHOTS + 1):
        key = OperationKey(dag_id="load", run_id=f"scheduled__{number}", task_id="load_rows", epoch=1)
        counts = {"added-records": "300", "added-data-files": "2", "total-records": str(300 * number)}
        summary = {"operation": "append", **counts, **key.summary(1), "airflow.inputs": INPUTS}
        snapshots.append(
            Snapshot(
                snapshot_id=number,
                parent_snapshot_id=number - 1 or None,
                sequence_number=number,
                timestamp_ms=FIRST_MS + number,
                manifest_list="file:///nowhere",
                summary=summary,
                schema_id=0,
            )
        )
    ref = SetSnapshotRef(ref_name=MAIN_BRANCH, ref=SnapshotRef(snapshot_id=SNAPSHOTS))
    updates = (*(AddSnapshot(snapshot=snapshot) for snapshot in snapshots), ref)
    empty = new_table_metadata(
        location="file:///nowhere",
        schema=schema_from_shorthand({"id": "long"}),
        spec=None,
        table_uuid=str(UUID(int=0)),
        now_ms=FIRST_MS,
    )
    return apply_change(empty, Change(updates=updates, requirements=()), now_ms=FIRST_MS, base_location=None)


@contextmanager
def _runs(bench: Bench) -> Iterator[Run]:
    metadata = many_snapshots()

    def run() -> float:
        with Stopwatch() as watch:
            found = find_runs(metadata)
        check_rows("the runs", len(found), SNAPSHOTS)
        return watch.seconds

    yield run


LINES = (
    Line(
        name="runs",
        what=f"table.runs() over {SNAPSHOTS:,} snapshots",
        against=f"the limit of {LIMIT_SECONDS} s",
        ours=_runs,
        peer=LIMIT_SECONDS,
        goal=GOAL,
    ),
)
