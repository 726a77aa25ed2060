"""Maintenance that dies at any of its steps: the table reads as before, and the next run finishes what is left."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import reachable
from tests.support.changes import NAME, Append, make_table, plan, rows_of
from tests.support.faults import AgedFileIO
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule, MemoryCatalog, MemoryFileIO, SimulatedCrash

KEY = OperationKey(dag_id="d", run_id="r", task_id="maintain")
CALLS = ("read", "create", "delete", "list", "exists")
# Every how many of the writes, and of the other calls. A crash at a read leaves what the write before it has left: some
# of them will do; `make stress` takes all.
STRIDES = [pytest.param((2, 11), id="some"), pytest.param((1, 1), id="all", marks=pytest.mark.long)]


def make_catalog() -> MemoryCatalog:
    files, location = make_table_once()
    catalog = MemoryCatalog(io=AgedFileIO(files.copy()))
    catalog.register_table(NAME, location)
    return catalog


@cache
def make_table_once() -> tuple[MemoryFileIO, str]:
    """The files and the version of a table with two partitions, deletes, replaced files of a compaction, and litter."""
    io = AgedFileIO()
    catalog = MemoryCatalog(io=io)
    table = make_table(catalog, 3)
    for start in range(0, 9, 3):
        plan(catalog, Append(part="ab"[start % 2], ids=frozenset(range(start, start + 3)))).commit()
    table.refresh().delete("id in (1, 4)", mode="merge-on-read")
    MAINTENANCE["compact"](Table.load(catalog, NAME), None)
    for start in (20, 30):
        plan(catalog, Append(part="a", ids=frozenset(range(start, start + 3)))).commit()
    table.refresh().delete("id = 21", mode="merge-on-read")
    for name in ("data/x.parquet", "data/y.parquet", "metadata/z.avro"):
        io.create(f"{table.location}/{name}", b"litter")
    return io.inner, table.refresh().metadata_location


Maintain = Callable[[Table, OperationKey | None], object]


def maintain(operation: Callable[[Work, Any], object], request: object) -> Maintain:
    """Of one thread, so that the n-th call is the same in each run."""
    return lambda table, key: operation(
        Work(table, run=lambda job: run_local(job, table.io, threads=1), operation_key=key), request
    )


MAINTENANCE = {
    "compact": maintain(compact, CompactRequest(options={"rewrite-all": True, "partial-progress.enabled": True})),
    "rewrite_manifests": maintain(rewrite_manifests, RewriteManifestsRequest()),
    "expire": maintain(expire_snapshots, ExpireSnapshotsRequest(older_than_ms=2**62)),
    "remove_orphan_files": maintain(remove_orphan_files, RemoveOrphanFilesRequest()),
}


def named(table: Table) -> set[str]:
    return reachable(table) | {table.metadata_location, *(location for _, location in table.metadata.metadata_log)}


def visible(table: Table) -> set[str]:
    return {s.location for s in table.io.list(table.location) if "/.quarantine/" not in s.location}


def lineage(catalog: MemoryCatalog) -> Counter[Any]:
    columns = ("id", "_row_id", "_last_updated_sequence_number")
    found = Table.load(catalog, NAME).scan(selected_fields=columns).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in columns), strict=True))


def steps(name: str, strides: tuple[int, int]) -> list[tuple[str, int]]:
    """Return each call of a storage that a maintenance makes, as its kind and how many of that kind come before."""
    catalog = make_catalog()
    io: Any = catalog.io
    io.calls.clear()
    MAINTENANCE[name](Table.load(catalog, NAME), KEY)
    counts = Counter(call for call, _ in io.calls)
    return [
        (call, n)
        for call in CALLS
        for n in range(0, counts[call], strides[0] if call in ("create", "delete") else strides[1])
    ]


@pytest.mark.sample(4)
class TestACrashAtAnyStep:
    """The process dies; nothing is lost, nothing is there twice, and the next try leaves no litter of it."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", MAINTENANCE)
    @pytest.mark.parametrize("fault", [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
    @pytest.mark.parametrize("strides", STRIDES)
    def test_at_any_call_of_the_storage(self, name, fault, strides):
        for call, skip in steps(name, strides):
            if fault is FileFault.CRASH_AFTER and call not in ("create", "delete"):
                continue
            self.fail_and_finish(name, FileRule(call=call, fault=fault, skip=skip), SimulatedCrash)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["compact", "rewrite_manifests", "expire"])
    @pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
    def test_at_the_swap(self, name, fault):
        catalog = make_catalog()
        before = lineage(catalog)
        with pytest.raises(SimulatedCrash):
            MAINTENANCE[name](Table.load(FaultyCatalog(catalog, [fault]), NAME), KEY)
        self.check_and_finish(catalog, name, before)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", MAINTENANCE)
    @pytest.mark.parametrize("strides", STRIDES)
    def test_a_failure_of_the_storage_is_no_other(self, name, strides):
        for call, skip in steps(name, strides):
            if call in ("create", "delete"):
                # Whatever the error is, the table is whole.
                self.fail_and_finish(name, FileRule(call=call, fault=FileFault.FAIL, skip=skip), Exception)

    def fail_and_finish(self, name: str, rule: FileRule, error: type[BaseException]) -> None:
        catalog = make_catalog()
        before = lineage(catalog)
        io: Any = catalog.io
        io.rules = [rule]
        with suppress(error):
            MAINTENANCE[name](Table.load(catalog, NAME), KEY)
        io.rules = []
        self.check_and_finish(catalog, name, before)

    @staticmethod
    def check_and_finish(catalog: MemoryCatalog, name: str, before: Counter[Any]) -> None:
        assert lineage(catalog) == before
        assert named(Table.load(catalog, NAME)) <= visible(Table.load(catalog, NAME))
        MAINTENANCE[name](Table.load(catalog, NAME), KEY)
        assert lineage(catalog) == before
        MAINTENANCE["remove_orphan_files"](Table.load(catalog, NAME), None)
        table = Table.load(catalog, NAME)
        assert visible(table) == named(table)
        assert sum(rows_of(catalog).values()) == sum(before.values())
