"""A chain of tables, each made from the changes of the one before, under random kills, lost answers and clears.

The last table has the rows that one undisturbed run of the chain gives, whatever happened on the way.
"""

import random
import time
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.changes import Changes, ChangesOptions
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.retries import is_final
from airflow_iceberg.table import Table
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

# Each table, the one that it is made from, and how.
CHAIN = {
    "a": ("src", ChangesOptions(mode="changelog"), "select id, n, _change_type as kind from i"),
    "b": ("a", ChangesOptions(mode="append"), "select id, n + 1 as n, kind from i"),
    "c": ("b", ChangesOptions(mode="changelog", net=True), "select id, n, kind from i where _change_type = 'insert'"),
}
COLUMNS = {"id": "long", "n": "long", "kind": "string"}
FAULTS = [
    *(Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAIL, Fault.CONFLICT, Fault.LAND_THEN_UNKNOWN),
    *(Fault.LOSE_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_CONFLICT, Fault.PROCEED),
]
LATER_MS = 4_000_000_000_000


def new_world() -> MemoryCatalog:
    catalog = MemoryCatalog()
    Table.create(catalog, "db.src", schema={"id": "long", "n": "long"}, properties={"format-version": "2"})
    for name in CHAIN:
        Table.create(catalog, f"db.{name}", schema=COLUMNS)
    return catalog


def change_source(catalog: Catalog, dice: random.Random) -> None:
    """Change the first table as its writers do."""
    table = Table.load(catalog, "db.src")
    ids = [dice.randrange(6) for _ in range(3)]
    rows = pa.table({"id": ids, "n": [dice.randrange(3) for _ in ids]})
    match dice.choice(("append", "append", "delete", "overwrite")):
        case "delete":
            table.delete(f"id = {ids[0]}", mode=dice.choice(("copy-on-write", "merge-on-read")))
        case "overwrite":
            table.overwrite(rows.slice(0, 1), f"id = {ids[0]}")
        case _:
            table.append(rows)


class Chain:
    """Runs of the tasks, which may be tried again and cleared."""

    tasks = CHAIN

    def __init__(self, catalog: MemoryCatalog, dice: random.Random | None = None) -> None:
        self.catalog, self.dice = catalog, dice
        self.tries: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.started: dict[int, int] = {}

    def do(self, task: str, run: int) -> None:
        """Run a task until it succeeds, as Airflow does."""
        for _ in range(12):
            if self.attempt(task, run):
                return
        raise AssertionError(f"task {task} of run {run} does not succeed")

    def attempt(self, task: str, run: int) -> bool:
        self.tries[task, run] = number = self.tries.get((task, run), 0) + 1
        is_faulty = self.dice is not None and self.dice.random() < 0.5
        catalog = FaultyCatalog(self.catalog, [self.dice.choice(FAULTS)] * 2) if is_faulty else self.catalog
        try:
            self.work(catalog, task, run, number, dies=is_faulty and self.dice.random() < 0.2)
        except SimulatedCrash:
            return False
        except IcebergError as error:
            if is_final(error):
                raise
            return False
        return True

    def work(self, catalog: Catalog, task: str, run: int, number: int, *, dies: bool) -> None:
        source, options, sql = self.tasks[task]
        epoch = self.epochs.get((task, run), 0)
        key = OperationKey(
            dag_id="d",
            run_id=f"r{run}",
            task_id=task,
            installation="i",
            epoch=epoch,
            is_cleared=epoch > 0,
            try_number=number,
            run_after_ms=self.started.setdefault(run, now_ms()),
            started_ms=self.started[run],
        )
        table = Table.load(catalog, f"db.{task}")

        def job(plan):
            if dies:
                raise SimulatedCrash("the worker of the job")
            return run_local(plan, table.io, threads=1)

        changes = Changes(open=lambda: Table.load(catalog, f"db.{source}"), is_since_last=True, options=options)
        given = {"rows": Source.from_sql(sql, dialect="duckdb"), "inputs": {"i": changes}}
        self.write(Work(table, run=job, operation_key=key, try_number=number), given)

    def write(self, work: Work, given: dict[str, Any]) -> None:
        append(work, AppendRequest(**given))

    def clear(self, task: str, run: int) -> None:
        self.epochs[task, run] = self.epochs.get((task, run), 0) + 1
        self.do(task, run)


def rows(catalog: Catalog, name: str) -> list[str]:
    return sorted(map(str, Table.load(catalog, f"db.{name}").scan().to_arrow().to_pylist()))


@pytest.mark.costly
@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(24))
def test_the_last_table_has_the_rows_of_an_undisturbed_chain(seed: int) -> None:
    dice = random.Random(seed)
    calm, wild = Chain(new_world()), Chain(new_world(), dice)
    for run in range(4):
        for _ in range(dice.randrange(3)):
            number = dice.random()
            for chain in (calm, wild):
                change_source(chain.catalog, random.Random(number))
        for task in CHAIN:
            calm.do(task, run)
            wild.do(task, run)
            if dice.random() < 0.3:
                wild.clear(dice.choice(list(CHAIN)[: list(CHAIN).index(task) + 1]), dice.randrange(run + 1))
        if run and dice.random() < 0.3:  # all of an older run, as after a mistake
            cleared = dice.randrange(run)
            for task in CHAIN:
                wild.clear(task, cleared)
    for name in CHAIN:
        assert rows(wild.catalog, name) == rows(calm.catalog, name), name


@pytest.mark.costly
@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(12))
def test_the_snapshots_of_the_last_table_expire_meanwhile(seed: int) -> None:
    dice = random.Random(100 + seed)
    calm, wild = Chain(new_world()), Chain(new_world(), dice)
    for run in range(5):
        number = dice.random()
        for chain in (calm, wild):
            change_source(chain.catalog, random.Random(number))
        for task in CHAIN:
            calm.do(task, run)
            wild.do(task, run)
            if dice.random() < 0.3:
                wild.clear(task, run)
        time.sleep(0.002)  # the next run starts later than all commits of this one
        Table.load(wild.catalog, "db.c").append(pa.table({"id": [-run], "n": [0], "kind": ["other"]}))
        expire_snapshots(
            Work(Table.load(wild.catalog, "db.c")), ExpireSnapshotsRequest(older_than_ms=LATER_MS, retain_last=1)
        )
    found = [row for row in rows(wild.catalog, "c") if "other" not in row]
    assert found == rows(calm.catalog, "c")


class Mirrors(Chain):
    """Each table is a copy of the one before, made by merges of its changes."""

    _options = ChangesOptions(mode="changelog", net=True, identifier_columns=("id",))
    _sql = "select id, n, _change_type as kind from i where _change_type <> 'update_before'"
    tasks = {"a": ("src", _options, _sql), "b": ("a", _options, _sql)}

    def write(self, work: Work, given: dict[str, Any]) -> None:
        clauses = (
            "when matched and source.kind = 'delete' then delete when matched then update set n = source.n "
            "when not matched and source.kind <> 'delete' then insert (id, n) values (source.id, source.n)"
        )
        merge(work, MergeRequest(**given, on=["id"], clauses=clauses, dialect="duckdb"))


def change_keys(catalog: Catalog, dice: random.Random) -> None:
    """Change the first table, in which each id is once."""
    table, ids = Table.load(catalog, "db.src"), dice.sample(range(6), 3)
    mode = dice.choice(("copy-on-write", "merge-on-read"))
    if dice.random() < 0.3:
        table.delete(f"id = {ids[0]}", mode=mode)
    else:
        table.upsert(pa.table({"id": ids, "n": [dice.randrange(3) for _ in ids]}), ["id"], mode=mode)


@pytest.mark.costly
@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("seed", range(8))
def test_mirrors_made_by_merges_are_those_of_an_undisturbed_chain(seed: int, mode: str) -> None:
    """The last run of a task may be cleared: its changes are merged once more, which changes nothing."""
    dice = random.Random(200 + seed)
    catalog = MemoryCatalog()
    for name in ("src", *Mirrors.tasks):
        properties = {"format-version": str(2 + seed % 2), "write.merge.mode": mode}
        Table.create(catalog, f"db.{name}", schema={"id": "long", "n": "long"}, properties=properties)
    wild = Mirrors(catalog, dice)
    for run in range(4):
        for _ in range(dice.randrange(3)):
            change_keys(catalog, dice)
        for task in Mirrors.tasks:
            wild.do(task, run)
            if dice.random() < 0.4:
                wild.clear(task, run)
    assert rows(catalog, "a") == rows(catalog, "b") == rows(catalog, "src")
