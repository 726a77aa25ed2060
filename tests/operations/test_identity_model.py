"""Whose work it is: random DAGs that are edited, expanded otherwise, renamed and cleared, against a model in Python.

Tasks append, merge, and read the changes of other tables, mapped and not, on two branches. Their runs are cleared,
deleted and created again, and the snapshots of tables expire. Whatever is done to them, a table holds what the last run
of each task says, or the task was refused: nothing is there twice or lost without a word. In half of the histories the
ids of the runs tell their times, in the others they do not.

make stress ARGS=tests/operations/test_identity_model.py    # all of them, from a new seed
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey, epoch_of
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError
from airflow_iceberg.hooks.run_tasks import TasksOfRun
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog
from tests.support.sampling import ALL, SEED

SCHEMA = {"id": "long", "job": "string", "v": "long"}
BRANCHES = ("main", "main", "b")
FILTERS = ("id != 1", "id >= 2", "id < 1001", None)


@dataclass
class Job:
    """What a task of the DAG does, whatever its name is.

    Attributes:
        name: its name in the model, which stays.
        task_id: its name in the DAG.
        items: what it is expanded with; one item if it is not mapped.
        over_tables: whether the items are tables.
    """

    name: str
    kind: str
    task_id: str
    table: str
    source: str = ""
    branch: str = "main"
    source_branch: str = "main"
    items: list[int] = field(default_factory=lambda: [0])
    is_mapped: bool = False
    over_tables: bool = False
    by_key: bool = False
    on_removed: Any = None
    row_filter: str | None = None
    consumer: str | None = None

    def label(self, index: int) -> str:
        """What rows say of who has read them."""
        return f"{self.name}/{self.items[index]}" if self.is_mapped else self.name

    def consumer_of(self, index: int) -> str | None:
        return f"{self.consumer}-{self.items[index]}" if self.consumer and self.is_mapped else self.consumer

    def filter_of(self, index: int) -> str | None:
        return f"id != {self.items[index]}" if self.is_mapped else self.row_filter


@dataclass
class Run:
    """A run of the DAG: how often it was cleared, and how its task instances have ended.

    Attributes:
        first_ms, created_ms, started_ms: when a run of this id was created first, and last, and when it was started.
        starts: how often it was started anew.
    """

    number: int
    clears: int = 0
    first_ms: int = 0
    created_ms: int = 0
    started_ms: int = 0
    starts: int = 0
    states: dict[tuple[str, int], str] = field(default_factory=dict)
    expanded: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What the last good execution of a part of a task has written."""

    table: str  # with the branch
    item: int
    value: int


class History:
    """One history of a DAG, its runs and its tables."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.catalog = MemoryCatalog()
        self.tables = [f"db.t{number}" for number in range(dice.randint(2, 5))]
        version = dice.choice(["2", "3"])
        for name in ("db.src", *self.tables):
            table = Table.create(self.catalog, name, schema=SCHEMA, properties={"format-version": version})
            table.append(self.rows("", 0, value=0))
            table.create_branch("b")
        self.value = self.next_id = self.names = 0
        self.ids_tell = dice.random() < 0.5
        self.runs: list[Run] = []
        self.said: dict[tuple[int, str], dict[tuple[str, Any], Said]] = {}
        # Rows that may be there, or not: what a part had written elsewhere, or nobody has any more.
        self.stale: dict[tuple[int, str], set[Said]] = {}
        self.merged: dict[tuple[str, str, int], int] = {}
        # Of each reader: how far it has come; of each part of a run: what it has read, as whom, and the rows.
        self.read: dict[str, int | None] = {}
        self.ranges: dict[tuple[str, int, str, str], list[tuple[int | None, int, str, list[int]]]] = {}
        self.refused = Counter[str]()
        self.jobs = [self.new_job(number) for number in range(dice.randint(2, 4))]

    def new_job(self, number: int) -> Job:
        dice, name = self.dice, f"job{number}"
        kind = dice.choice(["append", "append", "merge", "changes"])
        table = dice.choice(self.tables)
        if kind == "changes":
            before = self.tables.index(table)
            source = dice.choice(["db.src", *self.tables[:before]])
            job = Job(name, kind, name, table, source, row_filter=dice.choice(FILTERS))
            job.branch, job.source_branch = dice.choice(BRANCHES), dice.choice(BRANCHES)
            job.is_mapped = dice.random() < 0.4
            job.consumer = dice.choice([None, f"{name}-rows"])
            self.expand(job)
            return job
        job = Job(name, kind, name, table, branch=dice.choice(BRANCHES))
        job.over_tables = kind == "append" and dice.random() < 0.3
        job.is_mapped = job.over_tables or dice.random() < 0.6
        job.by_key = kind == "append" and job.is_mapped and not job.over_tables and dice.random() < 0.5
        job.on_removed = dice.choice([None, None, "remove"])
        self.expand(job)
        return job

    def expand(self, job: Job) -> None:
        known = range(len(self.tables) if job.over_tables else 5)
        job.items = self.dice.sample(known, self.dice.randint(1, min(4, len(known)))) if job.is_mapped else [0]

    # -- what is done --------------------------------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        """Do so many things at random, and compare the tables after each."""
        actions = [self.new_run, self.new_run, self.clear, self.clear, self.clear_some, self.edit, self.edit, self.add]
        actions += [self.expire, self.create_again]
        self.add()
        self.new_run()
        for _ in range(steps):
            self.dice.choice(actions)()
            self.check()

    def add(self) -> None:
        ids = range(self.next_id, self.next_id + self.dice.randint(1, 3))
        self.next_id = ids.stop
        self.load("db.src").append(self.rows("", *ids), branch=self.dice.choice(BRANCHES))

    def expire(self) -> None:
        """Leave the newest snapshot of each branch of a table alone."""
        name = self.dice.choice(["db.src", *self.tables])
        request = ExpireSnapshotsRequest(older_than_ms=now_ms() + 1_000_000, retain_last=1)
        expire_snapshots(Work(self.load(name)), request)

    def create_again(self) -> None:
        """Delete a run and create it again; or let `airflow db clean` remove its tasks, and put it back to queued."""
        run = self.dice.choice(self.runs)
        if self.dice.random() < 0.5:
            run.clears, run.created_ms = 0, now_ms()
        run.states.clear()
        run.expanded.clear()
        self.start(run)
        self.execute(run, self.jobs)

    def start(self, run: Run) -> None:
        run.started_ms = now_ms()
        run.starts += 1

    def new_run(self) -> None:
        run = Run(len(self.runs), first_ms=now_ms(), created_ms=now_ms())
        self.start(run)
        self.runs.append(run)
        self.execute(run, self.jobs)

    def clear(self) -> None:
        run = self.dice.choice(self.runs)
        run.clears += 1
        self.start(run)
        self.execute(run, self.jobs if self.dice.random() < 0.6 else [self.dice.choice(self.jobs)])

    def clear_some(self) -> None:
        run, job = self.dice.choice(self.runs), self.dice.choice(self.jobs)
        if run.expanded.get(job.task_id) == job.items:
            run.clears += 1
            self.start(run)
            count = len(job.items)
            self.execute(run, [job], only=self.dice.sample(range(count), self.dice.randint(1, count)))

    def edit(self) -> None:
        dice, job = self.dice, self.dice.choice(self.jobs)
        what = dice.choice(["expand", "expand", "rename", "group", "word", "filter", "consumer", "map", "branch"])
        if what == "expand":
            self.expand(job)
        elif what in ("rename", "group"):
            self.names += 1
            job.task_id = f"renamed{self.names}" if what == "rename" else f"group{self.names}.{job.task_id}"
        elif what == "word":
            job.on_removed = dice.choice([None, "remove"])
        elif what == "filter" and job.kind == "changes":
            job.row_filter = dice.choice(FILTERS)
        elif what == "consumer" and job.kind == "changes":
            job.consumer = f"{job.name}-rows"
        elif what == "branch" and job.kind == "append":
            job.branch = dice.choice(BRANCHES)
        elif what == "map" and job.kind != "merge" and not job.over_tables:
            job.is_mapped, job.by_key = not job.is_mapped, False
            self.expand(job)

    def execute(self, run: Run, jobs: list[Job], only: list[int] | None = None) -> None:
        started = [(job, index) for job in jobs for index in (range(len(job.items)) if only is None else only)]
        for job in jobs if only is None else ():
            run.states = {one: state for one, state in run.states.items() if one[0] != job.task_id}
            run.expanded[job.task_id] = list(job.items)
        run.states |= {(job.task_id, index if job.is_mapped else -1): "scheduled" for job, index in started}
        for job, index in started:
            at = (job.task_id, index if job.is_mapped else -1)
            run.states[at] = "running"
            for _ in range(self.dice.choice([1, 1, 2])):  # a second try after a lost answer
                try:
                    getattr(self, f"run_{job.kind}")(run, job, index)
                    run.states[at] = "success"
                except (IncompatibleChangeError, InvalidInputError) as error:
                    if isinstance(error, InvalidInputError) and "`since`" not in str(error):
                        raise
                    self.refused[str(error)[:40]] += 1
                    run.states[at] = "failed"
                    break

    # -- the tasks -----------------------------------------------------------------------------------------------------

    def load(self, name: str) -> Table:
        return Table.load(self.catalog, name)

    def rows(self, job: str, *ids: int, value: int | None = None) -> pa.Table:
        values = [self.value if value is None else value] * len(ids)
        columns = [pa.array(ids, pa.int64()), pa.array([job] * len(ids)), pa.array(values, pa.int64())]
        return pa.table(columns, names=["id", "job", "v"])

    def key(self, run: Run, job: Job, index: int) -> OperationKey:
        def states(*, run_ids: list[str], **_: Any) -> dict[str, dict[str, str]]:
            return {
                f"r{one.number}": {
                    job.task_id if i < 0 else f"{job.task_id}_{i}": state
                    for (task_id, i), state in one.states.items()
                    if task_id == job.task_id
                }
                for one in self.runs
                if f"r{one.number}" in run_ids
            }

        map_index = index if job.is_mapped else -1
        ti = SimpleNamespace(
            dag_id="d",
            run_id=f"r{run.number}",
            task_id=job.task_id,
            map_index=map_index,
            get_task_states=states,
        )
        tasks = {one.task_id: SimpleNamespace(is_mapped=one.is_mapped) for one in self.jobs}
        context: Any = {"ti": ti, "dag": SimpleNamespace(task_dict=tasks)}
        return OperationKey(
            dag_id="d",
            run_id=ti.run_id,
            task_id=job.task_id,
            map_index=map_index,
            installation="i",
            epoch=epoch_of(started_us=1000 * run.starts + run.number + 1, clear_number=run.clears, max_tries=3),
            is_cleared=run.clears > 0,
            run_after_ms=run.created_ms,
            started_ms=run.started_ms,
            earliest_ms=run.first_ms if self.ids_tell else 0,
            item=str(job.items[index]) if job.is_mapped else None,
            write_key=f"item {job.items[index]}" if job.by_key else None,
            on_removed=job.on_removed,
            run_tasks=TasksOfRun.of(context),
        )

    def run_append(self, run: Run, job: Job, index: int) -> None:
        item, key = job.items[index], self.key(run, job, index)
        table = self.tables[item] if job.over_tables else job.table
        self.value += 1
        rows = self.rows(job.name, 100 * run.number + item)
        result = self.load(table).append(rows, operation_key=key, on_rerun="replace", branch=job.branch)
        if result.outcome == "found":
            return
        table = f"{table}@{job.branch}"
        said = self.said.setdefault((run.number, job.name), {})
        stale = self.stale.setdefault((run.number, job.name), set())
        part = (job.task_id, key.part)
        before = said.pop(part, None)
        if before is not None and before.table != table:
            stale.add(before)
        if job.on_removed == "remove":
            self.remove(run, job, table)
        said[part] = Said(table, item, self.value)

    def remove(self, run: Run, job: Job, table: str) -> None:
        """Forget what a write takes out of a table with rows that no task of the run writes again."""
        tasks = {one.task_id: one for one in self.jobs}
        for (number, name), said in self.said.items():
            for part, one in list(said.items()) if number == run.number else ():
                task = tasks.get(part[0])
                is_own = task is job and one.table == table and self.may_go(job, part[1], one)
                if (task is None or is_own or self.is_otherwise(task, part[1])) and one.table == table:
                    del said[part]
                    self.stale.setdefault((number, name), set()).add(one)

    def is_otherwise(self, job: Job, part: str) -> bool:
        return not part.startswith("=") and (part == "-1") == job.is_mapped

    def may_go(self, job: Job, part: str, one: Said) -> bool:
        """Whether a part of a task is none of the run any more, or has an item that another one has now."""
        if part.startswith("=") != job.by_key or (part == "-1") == job.is_mapped:
            return True
        if job.by_key:
            return one.item not in job.items
        return job.is_mapped and (int(part) >= len(job.items) or one.item in job.items)

    def run_merge(self, run: Run, job: Job, index: int) -> None:
        number = 1000 + 100 * run.number + job.items[index]
        self.value += 1
        rows = self.rows(job.name, number)
        key = self.key(run, job, index)
        outcome = self.load(job.table).upsert(rows, ["id", "job"], operation_key=key, branch=job.branch).outcome
        if outcome != "found":
            self.merged[f"{job.table}@{job.branch}", job.name, number] = self.value

    def run_changes(self, run: Run, job: Job, index: int) -> None:
        table, label = self.load(job.table), job.label(index)
        place = f"{job.table}@{job.branch}"
        changes = Changes(
            open=lambda: self.load(job.source),
            is_since_last=True,
            ref=job.source_branch,
            row_filter=job.filter_of(index),
            consumer=job.consumer_of(index),
        )
        key = replace(self.key(run, job, index), try_number=None)

        def work_of(plan: JobPlan) -> Any:
            return run_local(JobPlan.open(table.io, plan.location, str(plan.seal)), table.io, threads=1)

        request = AppendRequest(
            rows=Source.from_sql(f"select id, '{label}' as job, 0 as v from o", dialect="duckdb"),
            branch=job.branch,
            inputs={"o": changes},
        )
        result = append(Work(table, run=work_of, operation_key=key, try_number=1 + run.clears), request)
        if result.outcome != "committed":
            return
        read = result.inputs["o"]
        first, last = (None if read[name] is None else int(read[name]) for name in ("from-snapshot-id", "snapshot-id"))
        assert last is not None
        rows = self.expected(self.load(job.source), first, last, job, index)
        known = self.ranges.setdefault((job.name, run.number, job.task_id, key.part), [])
        if not known or known[-1][:2] != (first, last):
            assert not known, "a cleared run reads other changes"
            # A new index may begin as what another one of the run stood for, whose rows are replaced.
            is_new = first is None and all(one[2] != label for ranges in self.ranges.values() for one in ranges)
            assert is_new or self.read.get(label) == first, "changes are read twice, or left out"
            self.read[label] = last
            known.append((first, last, label, rows))
        known[-1] = (first, last, label, rows)
        if job.on_removed == "remove":
            self.remove(run, job, place)

    def expected(self, source: Table, first: int | None, last: int, job: Job, index: int) -> list[int]:
        """Return the rows that were appended in a range, by what the snapshots of the source hold."""
        found = source.changes(first, last).read_all()["id"].to_pylist()
        row_filter = job.filter_of(index)
        return [one for one in found if row_filter is None or eval(row_filter, {"id": one})]

    # -- the comparison ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        tables = {name: self.load(name) for name in self.tables}
        there = {
            f"{name}@{branch}": table.scan(ref=branch).to_arrow().to_pylist()
            for name, table in tables.items()
            for branch in set(BRANCHES)
        }
        for job in self.jobs:
            place = f"{job.table}@{job.branch}"
            if job.kind == "changes":
                self.check_read(job, there[place])
            elif job.kind == "merge":
                found = [((place, job.name, row["id"]), row["v"]) for row in there[place] if row["job"] == job.name]
                assert sorted(found) == sorted(one for one in self.merged.items() if one[0][1] == job.name)
            else:
                self.check_appended(job, there)

    def check_read(self, job: Job, there: list[dict[str, Any]]) -> None:
        mine = Counter((row["job"], row["id"]) for row in there if row["job"].partition("/")[0] == job.name)
        read = [one for part, known in self.ranges.items() if part[0] == job.name for one in known]
        assert mine == Counter((label, one) for _, _, label, rows in read for one in rows), "changes are lost, or twice"

    def check_appended(self, job: Job, there: dict[str, list[dict[str, Any]]]) -> None:
        found = [
            (row["id"] // 100, Said(name, row["id"] % 100, row["v"]))
            for name, rows in there.items()
            for row in rows
            if row["job"] == job.name
        ]
        for run in self.runs:
            said = set(self.said.get((run.number, job.name), {}).values())
            now = [one for number, one in found if number == run.number]
            assert said <= set(now), "a row is lost"
            assert set(now) <= said.union(self.stale.get((run.number, job.name), ())), "an old row is there"
            twice = [one for one, count in Counter((one.table, one.item) for one in now).items() if count > 1]
            assert not twice, f"a row is there twice: {twice}"


@pytest.mark.generated
@pytest.mark.parametrize("number", range(300 if ALL else 4))
def test_a_table_holds_what_the_last_run_of_each_task_says(number: int) -> None:
    History(random.Random(f"{SEED}/{number}")).play(steps=14 if ALL else 8)
