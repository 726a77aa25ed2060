"""A change of a ref costs one load and one commit of metadata, whatever the size of the table."""

from dataclasses import replace
from itertools import count

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.table import Table
from tests.support.changes import NAME, make_table
from tests.support.memory import FaultyCatalog, FaultyFileIO, MemoryCatalog

SNAPSHOTS = 10_000


@pytest.fixture(scope="module")
def big():
    """A table of 100,000 files, of which only the metadata is there: whoever opens a manifest fails."""
    catalog = MemoryCatalog()
    base = make_table(catalog, 2).metadata
    counts = {"added-data-files": "10", "added-records": "10", "total-data-files": "100000", "total-records": "100000"}
    snapshots = tuple(
        Snapshot(
            snapshot_id=number,
            parent_snapshot_id=number - 1 or None,
            sequence_number=number,
            timestamp_ms=base.last_updated_ms + number,
            manifest_list=f"memory://warehouse/db/t/metadata/snap-{number}.avro",
            summary={"operation": "append", **counts},
            schema_id=0,
        )
        for number in range(1, SNAPSHOTS + 1)
    )
    # The last ten are those of a branch.
    main = SNAPSHOTS - 10
    metadata = replace(
        base,
        snapshots=snapshots,
        last_sequence_number=SNAPSHOTS,
        last_updated_ms=base.last_updated_ms + SNAPSHOTS,
        refs={"main": SnapshotRef(snapshot_id=main), "audit": SnapshotRef(snapshot_id=SNAPSHOTS)},
        current_snapshot_id=main,
        snapshot_log=tuple((snapshot.timestamp_ms, snapshot.snapshot_id) for snapshot in snapshots[:main]),
    )
    location = "memory://warehouse/db/t/metadata/big.metadata.json"
    catalog.io.create(location, metadata_json.write(metadata))
    return catalog, location


STEPS = {
    "create_branch": lambda table, **o: table.create_branch("b", **o),
    "create_tag": lambda table, **o: table.create_tag("v1", 17, **o),
    "rollback": lambda table, **o: table.rollback_to_snapshot(5, expected_snapshot_id=SNAPSHOTS - 10, **o),
    "to_time": lambda table, **o: table.rollback_to_timestamp(table.metadata.snapshots[50].timestamp_ms, **o),
    "set_current": lambda table, **o: table.set_current_snapshot(SNAPSHOTS, **o),
    "fast_forward": lambda table, **o: table.fast_forward("main", "audit", **o),
    "remove_branch": lambda table, **o: table.remove_branch("audit", **o),
    "cherry_pick": lambda table, **o: table.cherry_pick(SNAPSHOTS - 9, **o),  # made on the head of main
}


def count_looks(monkeypatch):
    """Count how often a snapshot is looked up by its id."""
    looks, look_up = count(), TableMetadata.snapshot
    monkeypatch.setattr(TableMetadata, "snapshot", lambda metadata, of: (next(looks), look_up(metadata, of))[1])
    return looks


# Each reads and writes some megabytes of JSON: those that differ most are tried by `make test`.
FEW = ("create_branch", "rollback", "fast_forward", "cherry_pick")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.services) for name in STEPS]
)
def test_one_load_and_one_commit(big, name, monkeypatch):
    inner, location = big
    catalog = FaultyCatalog(inner)
    inner._pointers[next(iter(inner._pointers))] = location
    files = FaultyFileIO(inner.io)
    inner.io = catalog.io = files
    try:
        looks = count_looks(monkeypatch)
        key = OperationKey(dag_id="d", run_id="r", task_id=name)
        result = STEPS[name](Table.load(catalog, NAME), operation_key=key)
    finally:
        inner.io = files.inner
    assert result.outcome == "committed"
    assert (catalog.load_count, len(catalog.swaps)) == (1, 1)
    assert [(call, path.endswith(".metadata.json")) for call, path in files.calls] == [("read", True), ("create", True)]
    # Some walks of a history, not one for each snapshot.
    assert next(looks) < 20 * SNAPSHOTS
    expected = {"rollback": SNAPSHOTS - 15, "remove_branch": 10, "set_current": 0, "fast_forward": 0}
    if name in expected:
        assert result.disappearing.snapshot_count == expected[name]
