"""An undo gives the model's rows, or refuses: random histories against a model that keeps rows in Python.

Runs write on branches, are published, undone, cleared, killed and rolled back; tables are compacted and expired. After
every step each branch has the rows of the model.

make stress ARGS=tests/operations/history/test_undo_model.py    # more of them, from a new seed
"""

from dataclasses import dataclass, field, replace

import pyarrow as pa
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError, NotFoundError
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.history.targets import Selection
from airflow_iceberg.operations.history.undo import UndoRequest, undo
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.table import Table
from tests.support.builders import ids, job_work
from tests.support.memory import MemoryCatalog, SimulatedCrash
from tests.support.sampling import examples

NAME = "db.t"
BRANCHES = ("main", "dev")
branches = st.sampled_from(BRANCHES)
crashes = st.sampled_from([None, None, None, "before", "after"])
# Of the ids that are there, those with this remainder by three.
thirds = st.integers(0, 2)


class MortalCatalog(MemoryCatalog):
    """A catalog at which a process dies, once: before its swap, or after it."""

    dies: str | None = None

    def swap_pointer(self, table, *, expected, new):
        dies, self.dies = self.dies, None
        if dies == "before":
            raise SimulatedCrash
        pointer = super().swap_pointer(table, expected=expected, new=new)
        if dies == "after":
            raise SimulatedCrash
        return pointer


@dataclass
class Commit:
    """What a commit did to a branch.

    Attributes:
        kind: "append", "change", "compact" or "undo".
        replaced: rows of the run before the task was cleared.
        undone: commits that it has undone.
        snapshot_id: the head of the branch after it.
    """

    key: OperationKey
    kind: str
    added: frozenset = frozenset()
    removed: frozenset = frozenset()
    replaced: frozenset = frozenset()
    undone: list = field(default_factory=list)
    snapshot_id: int = 0


class History(RuleBasedStateMachine):
    """Each branch is a list of commits; its rows are what they have left."""

    @initialize(version=st.sampled_from([1, 2, 3, 3]), partitioned=st.booleans())
    def create(self, version, partitioned):
        self.catalog = MortalCatalog()
        schema = {"id": "long", "part": "int"}
        properties = {"format-version": str(version), "commit.manifest.min-count-to-merge": "3"}
        Table.create(
            self.catalog, NAME, schema=schema, partition_by=["part"] if partitioned else [], properties=properties
        )
        self.version, self.next_id, self.runs = version, 0, 0
        self.history = {"main": []}
        self.rows = {"main": frozenset()}
        self.keys = []
        self.commit(self.new_key(), "main", lambda work: append(work, AppendRequest(rows=self.new_rows(2)[0])))
        self.record("main", Commit(self.keys[-1], "append", frozenset({0, 1})))
        self.load().create_branch("dev")
        self.history["dev"], self.rows["dev"] = list(self.history["main"]), self.rows["main"]
        self.is_whole = True

    def load(self):
        return Table.load(self.catalog, NAME)

    def new_key(self):
        self.runs += 1
        self.keys.append(OperationKey(dag_id="d", run_id=f"r{self.runs}", task_id="t"))
        return self.keys[-1]

    def new_rows(self, count):
        numbers = range(self.next_id, self.next_id + count)
        self.next_id += count
        parts = pa.array([number % 2 for number in numbers], pa.int32())
        return pa.table({"id": pa.array(numbers, pa.int64()), "part": parts}), frozenset(numbers)

    def commit(self, key, branch, act, dies=None):
        """Do the work of a task; if the process dies, the next try does it again."""
        self.catalog.dies = dies
        try:
            return act(job_work(self.load(), operation_key=key, try_number=1))
        except SimulatedCrash:
            return act(job_work(self.load(), operation_key=key, try_number=2))
        finally:
            self.catalog.dies = None

    def record(self, branch, commit):
        commit.snapshot_id = self.load().metadata.refs[branch].snapshot_id
        self.history[branch].append(commit)
        self.rows[branch] = (self.rows[branch] - commit.removed - commit.replaced) | commit.added

    # -- writes --------------------------------------------------------------------------------------------------------

    @rule(branch=branches, count=st.integers(1, 4), dies=crashes)
    def append(self, branch, count, dies):
        key, (rows, numbers) = self.new_key(), self.new_rows(count)
        self.commit(key, branch, lambda work: append(work, AppendRequest(rows=rows, branch=branch)), dies)
        self.record(branch, Commit(key, "append", numbers))

    @rule(branch=branches, third=thirds, mode=st.sampled_from(["copy-on-write", "merge-on-read"]), dies=crashes)
    def delete(self, branch, third, mode, dies):
        gone = frozenset(number for number in self.rows[branch] if number % 3 == third)
        if not gone:
            return
        if self.version == 1:
            mode = "copy-on-write"
        key = self.new_key()
        predicate = f"id in ({', '.join(map(str, sorted(gone)))})"
        self.commit(
            key, branch, lambda work: delete(work, DeleteRequest(predicate=predicate, mode=mode, branch=branch)), dies
        )
        self.record(branch, Commit(key, "change", removed=gone))

    @rule(branch=branches, part=st.integers(0, 1), dies=crashes)
    def overwrite(self, branch, part, dies):
        key, (rows, numbers) = self.new_key(), self.new_rows(4)
        rows, numbers = (
            rows.filter(pa.compute.equal(rows["part"], part)),
            frozenset(n for n in numbers if n % 2 == part),
        )
        gone = frozenset(number for number in self.rows[branch] if number % 2 == part)
        request = OverwriteRequest(rows=rows, replace="matching", overwrite_filter=f"part = {part}", branch=branch)
        self.commit(key, branch, lambda work: overwrite(work, request), dies)
        self.record(branch, Commit(key, "change", numbers, gone))

    @rule(branch=branches, dies=crashes)
    def compact(self, branch, dies):
        key = self.new_key()
        request = CompactRequest(branch=branch, options={"rewrite-all": True})
        self.commit(key, branch, lambda work: compact(work, request), dies)
        self.record(branch, Commit(key, "compact"))

    # -- undo ----------------------------------------------------------------------------------------------------------

    @rule(branch=branches, which=st.integers(0, 30), dies=crashes, by_run=st.booleans())
    def undo(self, branch, which, dies, by_run):
        self.undo_one(branch, self.history[branch][which % len(self.history[branch])].key, dies, by_run)

    @rule(branch=branches, back=st.integers(1, 3), dies=crashes)
    def undo_a_late_one(self, branch, back, dies):
        self.undo_one(branch, self.history[branch][-min(back, len(self.history[branch]))].key, dies, by_run=False)

    @rule(branch=branches, which=st.integers(0, 30))
    def undo_any(self, branch, which):
        """Undo a run that may be of the other branch, or may be rolled back."""
        self.undo_one(branch, self.keys[which % len(self.keys)], None, by_run=True)

    def undo_one(self, branch, target, dies, by_run):
        chosen = {"dag_id": "d", "run_id": target.run_id} if by_run else {"operation_key": str(target)}
        request = UndoRequest(selection=Selection(**chosen), branch=branch)
        undone = [one for commit in self.live(branch) for one in commit.undone]
        commits = [
            commit
            for commit in self.live(branch)
            if (commit.key.run_id == target.run_id if by_run else commit.key == target)
            and commit.kind != "compact"
            and not any(commit is one for one in undone)
            and not (by_run and commit.kind == "undo")
        ]
        key = self.new_key()
        try:
            result = self.commit(key, branch, lambda work: undo(work, request), dies)
        except (IncompatibleChangeError, NotFoundError):
            event("refused")
            if self.must_succeed(branch, commits):
                raise
            return
        event(f"{result.outcome}, {'of deleted rows' if any(one.removed for one in commits) else 'of new rows'}")
        added, removed = frozenset(), frozenset()
        for commit in commits:
            added, removed = (added - commit.removed) | commit.added, removed | (commit.removed - added)
        was = self.rows[branch]
        now = (was - added) | removed
        if result.outcome == "nothing":
            assert was == now
            return
        assert result.outcome in ("committed", "found")
        assert len(result.undone_snapshot_ids) == len(commits)
        self.record(branch, Commit(key, "undo", now - was, was - now, undone=commits))

    def live(self, branch):
        """Return the commits of a branch that were not undone, newest first: an undo may be undone, too."""
        found, undone = [], []
        for commit in reversed(self.history[branch]):
            if not any(commit is one for one in undone):
                undone += commit.undone
                found.append(commit)
        return list(reversed(found))

    def must_succeed(self, branch, commits):
        """Whether a refusal would be a mistake: rows that were only appended, and nothing that hides them."""
        if not (self.is_whole and commits and all(commit.kind == "append" for commit in commits)):
            return False
        history = self.history[branch]
        later = history[next(at for at, one in enumerate(history) if one is commits[0]) + 1 :]
        return self.version == 3 or all(one.kind == "append" for one in later)

    @rule(branch=branches, which=st.integers(0, 30))
    def clear(self, branch, which):
        """Clear a task that has appended: its rows are replaced, or, after an undo, written again."""
        commits = [c for c in self.history[branch] if c.kind == "append"]
        if not commits or not self.is_whole:
            return
        old = commits[which % len(commits)]
        if any(one.key == old.key for name in BRANCHES for one in self.history[name] if one is not old):
            return
        undone = not any(one is old for one in self.live(branch))
        key = replace(old.key, epoch=old.key.epoch + 1)
        rows, numbers = self.new_rows(len(old.added) + 1)
        if any(commit.key.run_id == key.run_id and commit.key.epoch >= key.epoch for commit in self.history[branch]):
            return
        request = AppendRequest(rows=rows, branch=branch, on_rerun="replace")
        try:
            self.commit(key, branch, lambda work: append(work, request))
        except IncompatibleChangeError:
            if undone:  # then there is nothing to replace
                raise
            return
        self.keys.append(key)
        # Rows that are replaced are not restored by an undo of the later epoch.
        self.record(branch, Commit(key, "append", numbers, replaced=old.added & self.rows[branch]))

    # -- refs and maintenance ------------------------------------------------------------------------------------------

    @rule()
    def publish(self):
        """Move main forward to dev, if it is behind it."""
        shared = self.history["dev"][: len(self.history["main"])]
        if len(shared) == len(self.history["main"]) and all(
            one is other for one, other in zip(shared, self.history["main"], strict=True)
        ):
            self.load().fast_forward("main", "dev")
            self.history["main"], self.rows["main"] = list(self.history["dev"]), self.rows["dev"]

    @rule(back=st.integers(1, 4))
    def roll_back(self, back):
        history, table = self.history["main"], self.load()
        kept = history[: max(1, len(history) - back)]
        if table.metadata.snapshot(kept[-1].snapshot_id) is None or not self.is_whole:
            return
        table.rollback_to_snapshot(kept[-1].snapshot_id)
        self.history["main"], self.rows["main"] = kept, frozenset()
        for commit in kept:
            self.rows["main"] = (self.rows["main"] - commit.removed - commit.replaced) | commit.added

    @rule()
    def branch_again(self):
        """Give dev the state of main."""
        table = self.load()
        table.create_branch("dev", table.metadata.refs["main"].snapshot_id, replace_existing=True)
        self.history["dev"], self.rows["dev"] = list(self.history["main"]), self.rows["main"]

    @rule()
    def expire(self):
        table = self.load()
        before = len(table.snapshots())
        expire_snapshots(job_work(table), ExpireSnapshotsRequest(older_than_ms=2**60, retain_last=4))
        self.is_whole = self.is_whole and len(self.load().snapshots()) == before

    @invariant()
    def every_branch_has_the_rows_of_the_model(self):
        table = self.load()
        for branch in BRANCHES:
            assert ids(table, ref=branch) == sorted(self.rows[branch]), branch
        if self.version == 3:
            found = table.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
            assert len(set(found)) == len(found)


TestAnUndoGivesTheModelsRowsOrRefuses = History.TestCase
TestAnUndoGivesTheModelsRowsOrRefuses.settings = settings(
    examples(100), stateful_step_count=12, suppress_health_check=list(HealthCheck), deadline=None
)
