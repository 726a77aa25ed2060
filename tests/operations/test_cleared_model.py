"""A cleared task gives the model's rows, or is refused: random histories against a model that keeps rows in Python.

Tasks make several writes, die in the middle, are retried and cleared; others update, merge, delete and overwrite the
same rows; tables are compacted, expired, upgraded, branched and published. Each row has in its column `by` who has
inserted it, which no update changes: so the table itself tells whose row it is.

make stress ARGS=tests/operations/test_cleared_model.py    # more of them, from a new seed
"""

from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.table import Table
from tests.support.builders import job_work
from tests.support.memory import MemoryCatalog, SimulatedCrash
from tests.support.sampling import examples

NAME = "db.t"
TASKS = ("load", "fix")
MODES = st.sampled_from(["copy-on-write", "merge-on-read"])
# Of the ids that are there, those with this remainder by three.
thirds = st.integers(0, 2)
crashes = st.sampled_from([None, None, None, "before", "after"])
# The writes of new rows of a task, and what is to happen to their rows after a clear.
WRITES = {"a": "replace", "b": "replace", "log": "append", "once": "skip"}
MERGE = (
    "when matched then update set v = source.v "
    "when not matched then insert (id, v, by) values (source.id, source.v, source.by)"
)


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
class Run:
    """A run of a task: how often it was cleared, and which writes it has made since."""

    epoch: int = 0
    made: set = field(default_factory=set)


class Clears(RuleBasedStateMachine):
    """The rows are a value for each inserter and id."""

    @initialize(version=st.sampled_from([1, 2, 3, 3]), partitioned=st.booleans())
    def create(self, version, partitioned):
        self.catalog = MortalCatalog()
        Table.create(
            self.catalog,
            NAME,
            schema={"id": "long", "v": "long", "by": "string"},
            partition_by=["bucket(2, id)"] if partitioned else [],
            properties={"format-version": str(version), "commit.manifest.min-count-to-merge": "3"},
        )
        self.version, self.value, self.others = version, 0, 0
        self.rows, self.picked = {}, set()
        self.runs = {task: Run() for task in TASKS}
        # Whether a refusal of the next clear would be a mistake.
        self.is_plain, self.is_whole = version == 3, True
        self.load().append(self.new_rows([100, 101, 102], "nobody"))

    def load(self):
        return Table.load(self.catalog, NAME)

    def new_rows(self, ids, by, *, add=True):
        self.value += 1
        if add:
            self.rows.update({(by, number): self.value for number in ids})
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "v": pa.array([self.value] * len(ids), pa.int64()),
                "by": pa.array([by] * len(ids), pa.string()),
            }
        )

    def found(self):
        table = self.load().scan().to_arrow().to_pylist()
        assert len({(row["by"], row["id"]) for row in table}) == len(table), "a row is there twice"
        return {(row["by"], row["id"]): row["v"] for row in table}

    def committed(self, dies, act):
        """Make a write; if its process dies, the next try makes it again."""
        self.catalog.dies = dies
        try:
            return act(self.load())
        except SimulatedCrash:
            return act(self.load())
        finally:
            self.catalog.dies = None

    def mode_of(self, mode):
        return mode if self.version > 1 else "copy-on-write"

    # -- the tasks -----------------------------------------------------------------------------------------------------

    def key(self, task, write):
        return OperationKey(dag_id="d", run_id="r", task_id=task, write=write, epoch=self.runs[task].epoch)

    def begin(self, task, write):
        """Return who inserts the rows of a write; None if it was made already."""
        run = self.runs[task]
        if write in run.made:
            return None
        run.made.add(write)
        return f"{task}/{write}/{run.epoch}"

    @rule(
        task=st.sampled_from(TASKS),
        write=st.sampled_from([*WRITES, "a", "a"]),
        ids=st.sets(st.integers(0, 8), max_size=4),
        dies=crashes,
    )
    def append(self, task, write, ids, dies):
        if (by := self.begin(task, write)) is not None:
            rows = self.new_rows(sorted(ids), by, add=False)
            key, on_rerun = self.key(task, write), WRITES[write]
            self.replace(
                task,
                write,
                lambda: self.committed(dies, lambda t: t.append(rows, operation_key=key, on_rerun=on_rerun)),
                {(by, number): self.value for number in ids},
            )

    @rule(task=st.sampled_from(TASKS), third=thirds, ids=st.sets(st.integers(0, 2), max_size=2), dies=crashes)
    def overwrite(self, task, third, ids, dies):
        if (by := self.begin(task, "over")) is not None:
            numbers = [3 * number + third for number in sorted(ids)]
            rows, key = self.new_rows(numbers, by, add=False), self.key(task, "over")
            there = sorted({number for _, number in self.rows if number % 3 == third})
            predicate = f"id in ({', '.join(map(str, [*there, *numbers, -1]))})"
            self.replace(
                task,
                "over",
                lambda: self.committed(dies, lambda t: t.overwrite(rows, predicate, operation_key=key)),
                {(by, number): self.value for number in numbers},
                gone={one for one in self.rows if one[1] % 3 == third},
            )

    def replace(self, task, write, act, new, gone=frozenset()):
        """Make a write that replaces the rows of earlier runs, and compare the rows."""
        before, result = self.found(), None
        try:
            result = act()
        except IncompatibleChangeError as error:
            event("refused")
            if self.is_plain:
                raise AssertionError("a clear was refused that can be proved") from error
        if result is None:
            assert self.found() == before
            self.runs[task].made.discard(write)
            return
        run = self.runs[task]
        is_older = {one: self.is_older(one[0], task, run.epoch) for one in self.rows}
        if result.outcome == "skipped":
            assert any(one[0].startswith(f"{task}/{write}/") for one in self.commits)
            assert self.found() == before
            return
        replaced = set()
        if WRITES.get(write) != "append":
            replaced = {one for one in self.rows if is_older[one] and self.goes(one[0], write)}
        event("replaced" if replaced else "written")
        # Rows that a merge of the same task has inserted go if they are in the same files.
        may_go = {one for one in self.rows if is_older[one] and one[0].split("/")[1] == "merge"}
        expected = {one: v for one, v in self.rows.items() if one not in replaced and one not in gone} | new
        now = self.found()
        missing = {one for one in expected if one not in now}
        assert missing <= may_go, f"lost: {missing - may_go}"
        assert now == {one: v for one, v in expected.items() if one not in missing}
        self.rows = now

    def goes(self, by, write):
        """Whether the rows of an earlier run go with those that a write replaces."""
        name = by.split("/")[1]
        return name == write or (name in ("a", "b", "over") and by not in self.picked)

    def is_older(self, by, task, epoch):
        name, *rest = by.split("/")
        return name == task and int(rest[1]) < epoch

    @property
    def commits(self):
        return [(f"{task}/{write}/", None) for task in TASKS for write in self.ever.get(task, ())]

    @property
    def ever(self):
        found = {}
        for snapshot in self.load().snapshots():
            text = snapshot.summary.get("airflow.operation-key")
            if text is not None:
                one = OperationKey.parse(text)
                found.setdefault(one.task_id, set()).add(one.write)
        return found

    @rule(task=st.sampled_from(TASKS), ids=st.sets(st.integers(0, 9), min_size=1, max_size=3), mode=MODES, dies=crashes)
    def merge(self, task, ids, mode, dies):
        # After an expiry nobody knows whether an update of an earlier try has landed.
        if self.is_whole and (by := self.begin(task, "merge")) is not None:
            self.own_change(task)
            self.merge_by(by, ids, mode, dies, operation_key=self.key(task, "merge"))

    @rule(task=st.sampled_from(TASKS), third=thirds, mode=MODES, dies=crashes)
    def update(self, task, third, mode, dies):
        if self.is_whole and self.begin(task, "update") is not None:
            self.own_change(task)
            self.update_by(third, mode, dies, operation_key=self.key(task, "update"))

    @rule(task=st.sampled_from(TASKS), third=thirds, mode=MODES, dies=crashes)
    def delete(self, task, third, mode, dies):
        if self.begin(task, "delete") is not None:
            self.delete_by(third, mode, dies, operation_key=self.key(task, "delete"))

    def own_change(self, task):
        """A run that changes rows of its earlier run, before it replaces them, cannot replace them any more."""
        self.is_plain = self.is_plain and not self.runs[task].epoch

    @rule(task=st.sampled_from(TASKS))
    def clear(self, task):
        self.runs[task] = Run(epoch=self.runs[task].epoch + 1)

    # -- others --------------------------------------------------------------------------------------------------------

    @rule(ids=st.sets(st.integers(0, 9), min_size=1, max_size=3), mode=MODES)
    def others_merge(self, ids, mode):
        self.others += 1
        self.merge_by(f"other/{self.others}", ids, mode, None)

    @rule(third=thirds, mode=MODES)
    def others_update(self, third, mode):
        self.update_by(third, mode, None)

    @rule(third=thirds, mode=MODES)
    def others_delete(self, third, mode):
        self.delete_by(third, mode, None)

    @rule(third=thirds, is_task=st.booleans())
    def others_overwrite(self, third, is_task):
        self.others += 1
        self.rows = {one: v for one, v in self.rows.items() if one[1] % 3 != third}
        there = [third, third + 3, third + 6, third + 9, 100 + (third + 2) % 3, 100 + (third + 5) % 3]
        there += sorted({number for _, number in self.found() if number % 3 == third})
        rows = self.new_rows([third], f"other/{self.others}")
        run = f"other-{self.others}"
        key = OperationKey(dag_id="d", run_id=run, task_id="t", try_number=1) if is_task else None
        self.load().overwrite(rows, f"id in ({', '.join(map(str, there))})", operation_key=key)
        # Another program may have read the rows that it writes.
        self.is_plain = self.is_plain and is_task

    def merge_by(self, by, ids, mode, dies, **key):
        rows = self.new_rows(sorted(ids), by, add=False)
        known = {number for _, number in self.rows}
        self.rows = {one: self.value if one[1] in ids else v for one, v in self.rows.items()}
        self.rows |= {(by, number): self.value for number in ids if number not in known}
        self.committed(dies, lambda table: table.merge(rows, ["id"], MERGE, mode=self.mode_of(mode), **key))

    def update_by(self, third, mode, dies, **key):
        self.rows = {one: v + 1000 if one[1] % 3 == third else v for one, v in self.rows.items()}
        self.committed(
            dies,
            lambda table: table.update({"v": "v + 1000"}, f"id % 3 = {third}", mode=self.mode_of(mode), **key),
        )

    def delete_by(self, third, mode, dies, **key):
        gone = {number for _, number in self.rows if number % 3 == third}
        self.rows = {one: v for one, v in self.rows.items() if one[1] not in gone}
        if gone:
            predicate = f"id in ({', '.join(map(str, sorted(gone)))})"
            self.committed(dies, lambda table: table.delete(predicate, mode=self.mode_of(mode), **key))

    # -- maintenance, branches and versions ----------------------------------------------------------------------------

    @rule()
    def compact(self):
        compact(job_work(self.load()), CompactRequest(options={"rewrite-all": True}))

    @rule()
    def rewrite_manifests(self):
        rewrite_manifests(job_work(self.load()), RewriteManifestsRequest())

    @rule(kept=st.integers(1, 4))
    def expire(self, kept):
        before = len(self.load().snapshots())
        expire_snapshots(job_work(self.load()), ExpireSnapshotsRequest(older_than_ms=2**60, retain_last=kept))
        if len(self.load().snapshots()) < before:
            self.is_plain = self.is_whole = False

    @precondition(lambda self: self.version < 3)
    @rule()
    def upgrade(self):
        self.version += 1
        self.load().alter([{"upgrade_format_version": self.version}])

    @rule(third=thirds, mode=MODES)
    def publish_an_update(self, third, mode):
        """Another writer changes rows on a branch, and main moves forward to it."""
        table = self.load()
        table.create_branch("wap", replace_existing=True)
        self.rows = {one: v + 1000 if one[1] % 3 == third else v for one, v in self.rows.items()}
        table.update({"v": "v + 1000"}, f"id % 3 = {third}", mode=self.mode_of(mode), branch="wap")
        table.fast_forward("main", "wap")

    @rule(task=st.sampled_from(TASKS))
    def pick(self, task):
        """A task writes to a branch, and somebody picks its snapshot for main."""
        if self.runs[task].epoch or not self.is_whole or (by := self.begin(task, "b")) is None:
            return
        table = self.load()
        table.create_branch("wap", replace_existing=True)
        self.picked.add(by)
        rows = self.new_rows([50, 51], by)
        staged = table.append(rows, branch="wap", operation_key=self.key(task, "b"))
        table.refresh().append(self.new_rows([60 + self.value], f"other/p{self.value}"))
        table.refresh().cherry_pick(staged.snapshot_id)

    @invariant()
    def the_table_has_the_rows_of_the_model(self):
        assert self.found() == self.rows


TestAClearGivesTheModelsRowsOrRefuses = Clears.TestCase
TestAClearGivesTheModelsRowsOrRefuses.settings = settings(
    examples(60), stateful_step_count=12, suppress_health_check=list(HealthCheck), deadline=None
)
