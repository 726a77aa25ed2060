"""Whose work it is: random DAGs that are edited, expanded otherwise, renamed and cleared, against a model in Python.

Tasks append, merge, and read the changes of other tables, mapped and not. Whatever is done to them, a table holds what
the last run of each task says, or the task was refused: nothing is there twice or lost without a word.

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
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.hooks.run_tasks import TasksOfRun
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog
from tests.support.sampling import ALL, SEED

SCHEMA = {"id": "long", "job": "string", "v": "long"}
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
    items: list[int] = field(default_factory=lambda: [0])
    is_mapped: bool = False
    over_tables: bool = False
    by_key: bool = False
    on_removed: Any = None
    row_filter: str | None = None
    consumer: str | None = None


@dataclass
class Run:
    """A run of the DAG: how often it was cleared, and how its task instances have ended."""

    number: int
    clears: int = 0
    states: dict[tuple[str, int], str] = field(default_factory=dict)
    expanded: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What the last good execution of a part of a task has written."""

    table: str
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
            Table.create(self.catalog, name, schema=SCHEMA, properties={"format-version": version})
        self.value = self.next_id = self.names = 0
        self.jobs = [self.new_job(number) for number in range(dice.randint(2, 4))]
        self.runs: list[Run] = []
        self.said: dict[tuple[int, str], dict[tuple[str, Any], Said]] = {}
        # Rows that may be there, or not: what a part had written elsewhere, or nobody has any more.
        self.stale: dict[tuple[int, str], set[Said]] = {}
        self.merged: dict[tuple[str, str, int], int] = {}
        # Of each reader: how far it has come, and the rows of each of its runs.
        self.read: dict[str, int | None] = {}
        self.ranges: dict[tuple[str, int], tuple[int | None, int, list[int]]] = {}
        self.refused = Counter[str]()

    def new_job(self, number: int) -> Job:
        dice, name = self.dice, f"job{number}"
        kind = dice.choice(["append", "append", "merge", "changes"])
        table = dice.choice(self.tables)
        if kind == "changes":
            before = self.tables.index(table)
            source = dice.choice(["db.src", *self.tables[:before]])
            return Job(name, kind, name, table, source, row_filter=dice.choice(FILTERS))
        job = Job(name, kind, name, table)
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
        self.add()
        self.new_run()
        for _ in range(steps):
            self.dice.choice(actions)()
            self.check()

    def add(self) -> None:
        ids = range(self.next_id, self.next_id + self.dice.randint(1, 3))
        self.next_id = ids.stop
        self.load("db.src").append(self.rows("", *ids))

    def new_run(self) -> None:
        run = Run(len(self.runs))
        self.runs.append(run)
        self.execute(run, self.jobs)

    def clear(self) -> None:
        run = self.dice.choice(self.runs)
        run.clears += 1
        self.execute(run, self.jobs if self.dice.random() < 0.6 else [self.dice.choice(self.jobs)])

    def clear_some(self) -> None:
        run, job = self.dice.choice(self.runs), self.dice.choice(self.jobs)
        if run.expanded.get(job.task_id) == job.items:
            run.clears += 1
            count = len(job.items)
            self.execute(run, [job], only=self.dice.sample(range(count), self.dice.randint(1, count)))

    def edit(self) -> None:
        dice, job = self.dice, self.dice.choice(self.jobs)
        what = dice.choice(["expand", "expand", "rename", "group", "word", "filter", "consumer", "map"])
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
        elif what == "map" and job.kind == "append" and not job.over_tables:
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
                except IncompatibleChangeError as error:
                    self.refused[str(error)[:40]] += 1
                    run.states[at] = "failed"
                    break

    # -- the tasks -----------------------------------------------------------------------------------------------------

    def load(self, name: str) -> Table:
        return Table.load(self.catalog, name)

    def rows(self, job: str, *ids: int) -> pa.Table:
        columns = [pa.array(ids, pa.int64()), pa.array([job] * len(ids)), pa.array([self.value] * len(ids), pa.int64())]
        return pa.table(columns, names=["id", "job", "v"])

    def key(self, run: Run, job: Job, index: int) -> OperationKey:
        def states(**_: Any) -> dict[str, dict[str, str]]:
            known = {i: state for (task_id, i), state in run.states.items() if task_id == job.task_id}
            return {f"r{run.number}": {f"{job.task_id}_{i}": state for i, state in known.items()}}

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
            epoch=epoch_of(started_us=0, clear_number=run.clears, max_tries=3),
            is_cleared=run.clears > 0,
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
        if self.load(table).append(rows, operation_key=key, on_rerun="replace").outcome == "found":
            return
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
        outcome = self.load(job.table).upsert(rows, ["id", "job"], operation_key=self.key(run, job, index)).outcome
        if outcome != "found":
            self.merged[job.table, job.name, number] = self.value

    def run_changes(self, run: Run, job: Job, index: int) -> None:
        table, source = self.load(job.table), self.load(job.source)
        head = source.current_snapshot()
        known = self.ranges.get((job.name, run.number))
        changes = Changes(
            open=lambda: self.load(job.source),
            is_since_last=True,
            row_filter=job.row_filter,
            consumer=job.consumer,
        )
        key = replace(self.key(run, job, index), try_number=None)

        def work_of(plan: JobPlan) -> Any:
            return run_local(JobPlan.open(table.io, plan.location, str(plan.seal)), table.io, threads=1)

        request = AppendRequest(
            rows=Source.from_sql(f"select id, '{job.name}' as job, 0 as v from o", dialect="duckdb"),
            inputs={"o": changes},
        )
        result = append(Work(table, run=work_of, operation_key=key, try_number=1 + run.clears), request)
        if result.outcome != "committed" or head is None:
            return
        first = self.read.get(job.name) if known is None else known[0]
        last = head.snapshot_id if known is None else known[1]
        self.ranges[job.name, run.number] = (first, last, self.expected(source, first, last, job.row_filter))
        if known is None:
            self.read[job.name] = last

    def expected(self, source: Table, first: int | None, last: int, row_filter: str | None) -> list[int]:
        """Return the rows that were appended in a range, by what the snapshots of the source hold."""
        found = source.changes(first, last).read_all()["id"].to_pylist()
        return [one for one in found if row_filter is None or eval(row_filter, {"id": one})]

    # -- the comparison ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        there = {name: self.load(name).scan().to_arrow().to_pylist() for name in self.tables}
        for job in self.jobs:
            if job.kind == "changes":
                mine = Counter(row["id"] for row in there[job.table] if row["job"] == job.name)
                ranges = [rows for (name, _), (_, _, rows) in self.ranges.items() if name == job.name]
                assert mine == Counter(one for rows in ranges for one in rows)
            elif job.kind == "merge":
                found = [
                    ((job.table, job.name, row["id"]), row["v"]) for row in there[job.table] if row["job"] == job.name
                ]
                assert sorted(found) == sorted(one for one in self.merged.items() if one[0][1] == job.name)
            else:
                self.check_appended(job, there)

    def check_appended(self, job: Job, there: dict[str, list[dict[str, Any]]]) -> None:
        found = [
            (row["id"] // 100, Said(name, row["id"] % 100, row["v"]))
            for name, rows in there.items()
            for row in rows
            if row["job"] == job.name
        ]
        places = Counter((number, one.table, one.item) for number, one in found)
        assert max(places.values(), default=1) == 1, "a row is there twice"
        for run in self.runs:
            said = set(self.said.get((run.number, job.name), {}).values())
            now = {one for number, one in found if number == run.number}
            assert said <= now, "a row is lost"
            assert now <= said.union(self.stale.get((run.number, job.name), ())), "an old row is there"


@pytest.mark.generated
@pytest.mark.parametrize("number", range(300 if ALL else 4))
def test_a_table_holds_what_the_last_run_of_each_task_says(number: int) -> None:
    History(random.Random(f"{SEED}/{number}")).play(steps=14 if ALL else 8)
