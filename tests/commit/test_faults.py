"""Every file that a commit reads, writes or deletes, and its swap, goes wrong once, in every way, for every change.

The table always reads; the change is in it once or not at all; a second try of the task ends with it in exactly once;
no file of the table is gone.
"""

from collections import Counter
from functools import cache

import pytest

from airflow_iceberg.commit.operation import OperationKey, find_landed
from airflow_iceberg.commit.snapshot_writer import read_manifests
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    DynamicOverwrite,
    EqualityDelete,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    RewriteAllManifests,
    live_entries,
    make_table,
    plan,
    rows_of,
)
from tests.support.memory import (
    Fault,
    FaultyCatalog,
    FaultyFileIO,
    FileFault,
    FileRule,
    MemoryCatalog,
    SimulatedCrash,
)

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


def ids(*numbers):
    return frozenset(numbers)


CHANGES = {
    "append": Append("a", ids(9)),
    "overwrite": Overwrite("a", ids(7)),
    "dynamic overwrite": DynamicOverwrite("a", ids(8)),
    "delete of whole files": DeletePartition("a"),
    "copy-on-write": CopyOnWriteDelete(ids(2)),
    "merge-on-read": MergeOnReadDelete(ids(2)),
    "equality delete": EqualityDelete("a", ids(2)),
    "compaction": Compact("a"),
    "rewrite of manifests": RewriteAllManifests(),
    "expiry": Expire(),
}
# Appends so small that the next commit merges their manifests: three in one partition, one in the other.
BASE = [Append("a", ids(1, 2)), Append("a", ids(3)), MergeOnReadDelete(ids(1)), Append("b", ids(4))]
FEW = {"append", "overwrite", "merge-on-read", "compaction", "expiry"}
FILE_FAULTS = {
    "read": [FileFault.FAIL, FileFault.CRASH_BEFORE],
    "create": [
        *(FileFault.TORN_THEN_FAIL, FileFault.DO_THEN_FAIL),
        *(FileFault.FAIL, FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER),
    ],
    "delete": [FileFault.FAIL, FileFault.CRASH_BEFORE],
}
# Among them the echo: a request that was repeated on its way, and loses to itself.
SWAP_FAULTS = [fault for fault in Fault if fault is not Fault.PROCEED]


@cache
def base_table(version):
    catalog = MemoryCatalog()
    make_table(catalog, version, **{"commit.manifest.min-count-to-merge": "4"})
    for step in BASE:
        plan(catalog, step).commit()
    return catalog.io, catalog.load(NAME).metadata_location


def world(version=3):
    """Return a catalog in which files and swaps can go wrong, with the table of the start."""
    io, location = base_table(version)
    inner = MemoryCatalog(io=FaultyFileIO(io))
    inner.register_table(NAME, location)
    return inner


def steps_of(name, swap):
    """Return the calls of a commit that meets no fault but that of its swap."""
    catalog = world()
    planned = plan(catalog, CHANGES[name], key=KEY)
    catalog.io.calls.clear()
    planned.commit(catalog=FaultyCatalog(catalog, [swap]))
    return [call for call, _ in catalog.io.calls]


def numbered(calls):
    """Return each call with how many of its kind came before."""
    seen = Counter()
    for call in calls:
        yield call, seen[call]
        seen[call] += 1


def check_whole(catalog):
    """All that the table names is there."""
    io = catalog.io.inner
    table = Table.load(catalog, NAME)
    assert all(io.exists(entry.data_file.file_path) for entry in live_entries(table))
    for snapshot in table.snapshots():
        assert all(io.exists(manifest.manifest_path) for manifest in read_manifests(io, snapshot))


def check_once(name, rules=(), swaps=()):
    """Commit with faults, then run the task again."""
    change, catalog = CHANGES[name], world()
    before = rows_of(catalog)
    after = +change.after(before)
    planned = plan(catalog, change, key=KEY)
    catalog.io.rules = list(rules)
    try:
        planned.commit(catalog=FaultyCatalog(catalog, swaps))
        outcome = "done"
    except (IcebergError, SimulatedCrash) as error:
        outcome = "unknown" if isinstance(error, CommitUnknownError | SimulatedCrash) else "failed"
    catalog.io.rules = []
    check_whole(catalog)
    found = +rows_of(catalog)
    assert found in {"done": [after], "failed": [+before], "unknown": [+before, after]}[outcome]
    metadata = catalog.load(NAME).metadata
    if not find_landed(metadata, KEY, "main"):
        assert outcome != "done" or planned.snapshot_id is None
        plan(catalog, change, key=KEY, try_number=2).commit()
    check_whole(catalog)
    assert +rows_of(catalog) == after
    landed = [s for s in catalog.load(NAME).metadata.snapshots if s.summary.get("airflow.operation-key") == str(KEY)]
    assert len(landed) == (0 if planned.snapshot_id is None else 1)


class TestAFaultAtEveryStep:
    """One step goes wrong; with a lost race first, so that steps of retries and of cleaning up are among them."""

    @pytest.mark.parametrize("name", sorted(FEW))
    def test_files(self, name):
        for call, number in numbered(steps_of(name, Fault.CONFLICT)):
            # One way for each step, in turn; all of them below.
            fault = FILE_FAULTS[call][number % 2]
            check_once(name, [FileRule(call=call, fault=fault, skip=number)], [Fault.CONFLICT])

    @pytest.mark.parametrize("name", CHANGES)
    def test_swaps(self, name):
        for first in SWAP_FAULTS:
            check_once(name, swaps=[first])


@pytest.mark.services
class TestEveryFaultAtEveryStep:
    """The same for every change, in every way, and twice in a row."""

    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("swap", [Fault.PROCEED, Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN])
    def test_files(self, name, swap):
        for call, number in numbered(steps_of(name, swap)):
            for fault in FILE_FAULTS[call]:
                check_once(name, [FileRule(call=call, fault=fault, skip=number)], [swap])

    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("second", [Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN])
    def test_swaps(self, name, second):
        for first in SWAP_FAULTS:
            check_once(name, swaps=[first, second])


class TestALostRenameReply:
    """Iceberg Java 1.10.2 validates a commit whose answer was lost against itself, and then deletes its files."""

    @pytest.mark.parametrize("name", ["overwrite", "dynamic overwrite", "copy-on-write", "merge-on-read", "compaction"])
    def test_a_validated_change_is_found_and_not_held_against_itself(self, name):
        catalog = world()
        planned = plan(catalog, CHANGES[name])
        landed = planned.commit(catalog=FaultyCatalog(catalog, [Fault.LAND_THEN_UNKNOWN]))
        assert landed.metadata.current_snapshot().snapshot_id == planned.snapshot_id
        check_whole(catalog)

    def test_files_stay_when_the_table_cannot_be_read_back(self):
        catalog = world()
        planned = plan(catalog, CHANGES["overwrite"])
        faulty = FaultyCatalog(catalog, [Fault.LAND_THEN_UNKNOWN], loads=[Fault.FAIL] * 9)
        with pytest.raises(CommitUnknownError):
            planned.commit(catalog=faulty)
        check_whole(catalog)
        assert rows_of(catalog) == CHANGES["overwrite"].after(rows_of_start())


def rows_of_start():
    return rows_of(world())


class TestARetryDoesNotRepeatItself:
    """What was written for an earlier attempt is used again: new manifests, filtered ones, merged ones."""

    @pytest.mark.parametrize("name", ["overwrite", "dynamic overwrite", "copy-on-write", "compaction"])
    def test_a_lost_race_costs_one_manifest_list(self, name):
        catalog = world()
        planned = plan(catalog, CHANGES[name])
        catalog.io.calls.clear()
        faulty = FaultyCatalog(catalog, [Fault.CONFLICT] * 3)
        planned.commit(catalog=faulty)
        created = [path for call, path in catalog.io.calls if call == "create" and path.endswith(".avro")]
        lists = [path for path in created if "/snap-" in path]
        manifests = [path for path in created if "/snap-" not in path]
        assert len(lists) == 4
        first = next(i for i, path in enumerate(created) if "/snap-" in path)
        # Merged ones count as well: all were written before the first list.
        assert len(manifests) == first
        read = [path for call, path in catalog.io.calls if call == "read" and "-m" in path.rsplit("/", 1)[-1]]
        assert len(read) == len(set(read))
