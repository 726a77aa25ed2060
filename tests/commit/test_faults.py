"""Every file that a commit reads, writes or deletes, and its swap, goes wrong once, in every way, for every change.

The table always reads; the change is in it once or not at all; a second try of the task ends with it in exactly once;
no file of the table is gone.
"""

import pytest

from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId, AssertTableUUID
from airflow_iceberg.table import Table
from tests.support.changes import (
    NAME,
    Append,
    AppendWithColumn,
    Compact,
    CopyOnWriteDelete,
    DeletePartition,
    DynamicOverwrite,
    EqualityDelete,
    Expire,
    MergeOnReadDelete,
    Overwrite,
    Pick,
    RewriteAllManifests,
    ids,
    plan,
)
from tests.support.faults import (
    BRANCHES,
    KINDS,
    LATE_AFTER,
    OTHER,
    OUTCOMES_OF_RENAMED,
    SWAP_FAULTS,
    behind,
    check_whole,
    faults_of,
    numbered,
    rename,
    replace,
    rows_now,
    world,
)
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule, SimulatedCrash
from tests.support.sampling import some
from tests.support.serial_order import check_totals

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")
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
    "cherry-pick": Pick("more", BRANCHES["more"]),
    "cherry-pick of an overwrite": Pick("other", BRANCHES["other"]),
    "new columns": AppendWithColumn("a", ids(9)),
}
FEW = {"append", "overwrite", "merge-on-read", "compaction", "expiry", "cherry-pick"}


def steps_of(name, swap=Fault.PROCEED, kind="pointer"):
    """Return (call, location) of a commit that meets no fault but that of its swap."""
    catalog = world(kind)
    planned = plan(catalog, CHANGES[name], key=KEY)
    catalog.io.calls.clear()
    planned.commit(catalog=behind(catalog, [swap]))
    return list(catalog.io.calls)


def check_once(name, rules=(), swaps=(), kind="pointer", late_after=1):
    change, catalog = CHANGES[name], world(kind, late_after=late_after)
    before = rows_now(catalog)
    after = +change.after(before)
    planned = plan(catalog, change, key=KEY)
    catalog.io.rules = list(rules)
    faulty = behind(catalog, swaps, late_after)
    try:
        planned.commit(catalog=faulty)
        outcome = "done"
    except (IcebergError, SimulatedCrash) as error:
        outcome = "unknown" if isinstance(error, CommitUnknownError | SimulatedCrash) else "failed"
    catalog.io.rules = []
    arrivals = (catalog.io.late, getattr(faulty, "late", catalog.io.late))
    if late_after < max(LATE_AFTER):
        for late in arrivals:
            late.arrive()
    check_whole(catalog)
    found = +rows_now(catalog)
    assert found in {"done": [after], "failed": [+before], "unknown": [+before, after]}[outcome]
    metadata = catalog.load(NAME).metadata
    if not find_landed(metadata, KEY, "main"):
        assert outcome != "done" or planned.snapshot_id is None
        plan(catalog, change, key=KEY, try_number=2).commit()
    check_whole(catalog)
    assert +rows_now(catalog) == after
    for late in arrivals:
        late.arrive()
    check_whole(catalog)
    assert +rows_now(catalog) == after
    landed = [s for s in catalog.load(NAME).metadata.snapshots if s.summary.get("airflow.operation-key") == str(KEY)]
    assert len(landed) == (0 if planned.snapshot_id is None else 1)


def check_files(name, kind, swap, faults, choose=list):
    """One step after the other goes wrong in some of the ways, `faults` of all of them and of the step's number."""
    for call, number, ways in choose(numbered(steps_of(name, swap, kind))):
        for fault in faults(ways, number):
            for late_after in LATE_AFTER if fault is FileFault.LATE else (1,):
                rule = FileRule(call=call, fault=fault, skip=number)
                check_once(name, [rule], [swap], kind, late_after)


@pytest.mark.sample(3)
class TestAFaultAtEveryStep:
    """One step goes wrong; with a lost race first, so that steps of retries and of cleaning up are among them."""

    @pytest.mark.costly
    @pytest.mark.generated
    @pytest.mark.parametrize(
        ("name", "kind"), [*((name, "pointer") for name in sorted(FEW)), ("append", "hadoop"), ("compaction", "hadoop")]
    )
    def test_files(self, name, kind):
        # One way for a step, in turn; all of them below.
        check_files(name, kind, Fault.CONFLICT, lambda faults, number: [faults[number % len(faults)]], choose=some)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", CHANGES)
    def test_swaps(self, name):
        for first in SWAP_FAULTS:
            for late_after in LATE_AFTER if first is Fault.LAND_LATE else (1,):
                check_once(name, swaps=[first], late_after=late_after)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", CHANGES)
    def test_a_failure_while_the_swap_before_it_is_open(self, name):
        """The second swap fails for sure, and then the first one lands: nothing of it may be gone."""
        for second in (Fault.FAIL, Fault.CRASH_BEFORE, Fault.LOSE_THEN_UNKNOWN):
            for late_after in LATE_AFTER:
                check_once(name, swaps=[Fault.LAND_LATE, second], late_after=late_after)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", CHANGES)
    def test_versions(self, name):
        """The swap of a Hadoop catalog is the creation of the next version."""
        for fault in faults_of("create", "v2.metadata.json"):
            for late_after in (1, 4, 8, 99) if fault is FileFault.LATE else (1,):
                rule = FileRule(call="create", fault=fault, matching=".metadata.json")
                check_once(name, [rule], kind="hadoop", late_after=late_after)


@pytest.mark.sample(2)
class TestANameThatGoes:
    """The table gets another name while the change is under way, and its old name perhaps another table.

    The change is made of the table that it was planned for, or not at all; when a try is made under the new name, it is
    in it exactly once.
    """

    @pytest.mark.costly
    @pytest.mark.parametrize("rival", [rename, replace])
    @pytest.mark.parametrize("name", CHANGES)
    def test_the_right_table_is_changed_once(self, name, rival):
        for fault, (expected, is_made) in OUTCOMES_OF_RENAMED.items():
            change, catalog = CHANGES[name], world()
            before, start = +rows_now(catalog), len(catalog.load(NAME).metadata.metadata_log)
            after = +change.after(before)
            planned = plan(catalog, change, key=KEY)
            with pytest.raises(IcebergError) as raised:
                planned.commit(catalog=FaultyCatalog(catalog, [fault], rival=rival))
            assert raised.value.may_have_landed == (expected == "unknown")
            if rival is replace:
                assert catalog.load(NAME).metadata.metadata_log == ()
                catalog.drop_table(NAME)
            catalog.rename_table(OTHER, NAME)
            check_whole(catalog)
            assert +rows_now(catalog) == (after if is_made else before)
            assert len(catalog.load(NAME).metadata.metadata_log) == start + is_made
            if not find_landed(catalog.load(NAME).metadata, KEY, "main"):
                plan(catalog, change, key=KEY, try_number=2).commit()
            check_whole(catalog)
            assert +rows_now(catalog) == after


@pytest.mark.services
class TestEveryFaultAtEveryStep:
    """The same for every change, in every way, and twice in a row."""

    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("second", [Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN])
    def test_swaps(self, name, second):
        for first in SWAP_FAULTS:
            for late_after in LATE_AFTER if first is Fault.LAND_LATE else (1,):
                check_once(name, swaps=[first, second], late_after=late_after)

    @pytest.mark.long
    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("swap", [Fault.PROCEED, Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN])
    def test_files(self, name, swap):
        check_files(name, "pointer", swap, lambda faults, number: faults)

    @pytest.mark.long
    @pytest.mark.parametrize("name", CHANGES)
    def test_files_of_a_hadoop_catalog(self, name):
        check_files(name, "hadoop", Fault.PROCEED, lambda faults, number: faults)

    @pytest.mark.parametrize("name", CHANGES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_files_in_one_way_for_each_step(self, name, kind):
        check_files(name, kind, Fault.LAND_THEN_UNKNOWN, lambda faults, number: [faults[(number + 1) % len(faults)]])


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
        assert rows_now(catalog) == CHANGES["overwrite"].after(rows_now(world()))


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


class TestARetryFollowsTheWinner:
    """Its parent, number, time and totals are those of the base that it lands on, not of the one that it lost on."""

    @pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"expiry"}))
    def test_whatever_the_change(self, name):
        catalog = world()
        planned, won = plan(catalog, CHANGES[name]), []

        def rival(inner, table):
            won.append(plan(inner, Append("c", ids(40, 50))).commit().metadata.current_snapshot())

        planned.commit(catalog=FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival))
        table = Table.load(catalog, NAME)
        head, (winner,) = table.current_snapshot(), won
        assert (head.parent_snapshot_id, head.sequence_number) == (winner.snapshot_id, winner.sequence_number + 1)
        assert head.timestamp_ms >= winner.timestamp_ms
        check_totals(table)


class TestWhatACommitRequires:
    """A server that applies changes itself knows by this alone of what they were made."""

    @pytest.mark.parametrize("name", CHANGES)
    def test_this_very_table_with_the_branch_where_it_was(self, name):
        catalog = world()
        planned, metadata = plan(catalog, CHANGES[name]), catalog.load(NAME).metadata
        required = planned.action(metadata).requirements
        assert AssertTableUUID(uuid=metadata.table_uuid) in required
        assert AssertRefSnapshotId(ref="main", snapshot_id=metadata.current_snapshot_id) in required
