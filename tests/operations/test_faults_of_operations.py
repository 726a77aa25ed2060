"""Faults in pairs, and a clear, for each operation that changes rows: their effect is in the table once a run.

The answer of the first try is lost, another writer commits and expires all snapshots but the last one, then tasks are
tried again; the task is cleared, and all of that happens to the cleared one. Where a table cannot tell any more what
was done, the task is refused, and nothing is done twice. Not here: the same for commits alone
(`tests.commit.test_combined_faults`), killed processes (`tests.airflow.test_killed_at_every_step`).
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import CommitUnknownError, IcebergError, IncompatibleChangeError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.new_rows import RowsFunction
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.retries import is_final
from airflow_iceberg.table import Table
from tests.commit.test_combined_faults import CASES, ServerCatalog, interrupted, start
from tests.support.changes import NAME, Append, Expire, arrow, ids, make_table, plan
from tests.support.faults import check_whole, rows_now
from tests.support.memory import Fault

Rows = Counter
SOURCE = "db.source"
FILE = "memory://warehouse/landing/new.parquet"
DUCK: dict[str, Any] = {"dialect": "duckdb"}
QUERY = Source.from_sql("select part, id from src", dialect="duckdb")
BOTH = "when matched then update set id = target.id + 100 when not matched then insert *"


def moved(rows, selected, by):
    return Rows({(part, i + by) if selected(part, i) else (part, i): n for (part, i), n in rows.items()})


def without(rows, selected):
    return Rows({row: n for row, n in rows.items() if not selected(*row)})


def merged(rows):
    """Return what BOTH makes of rows with the two of the source."""
    found = moved(rows, lambda part, i: i in (2, 50), 100)
    return found + Rows({("a", i): 1 for i in (2, 50) if not any(i == known for _, known in rows)})


def upserted(rows):
    return without(rows, lambda part, i: i in (2, 50)) + Rows({("a", 2): 1, ("a", 50): 1})


@dataclass(frozen=True)
class Operation:
    """An operation of a task.

    Attributes:
        request: what is asked for, with the inputs or the source that it reads.
        after: the rows that it makes of rows.
        is_replaced: whether its rows are replaced when the task is cleared; it is done once more otherwise.
    """

    run: Callable[..., Any]
    request: Callable[[Any], Any]
    after: Callable[[Rows], Rows]
    is_replaced: bool = False


def inputs(catalog):
    return {"src": Input(open=lambda: Table.load(catalog, SOURCE))}


def since_last(catalog):
    return {"src": Changes(open=lambda: Table.load(catalog, SOURCE), is_since_last=True)}


def with_source(rows):
    return rows + Rows({("a", 2): 1, ("a", 50): 1})


def made():
    return arrow([("a", 2), ("a", 50)])


def merge_of(catalog, **more):
    return MergeRequest(**{"rows": QUERY, "on": ["id"], "clauses": BOTH, "inputs": inputs(catalog), **DUCK, **more})


COPY, READ = {"mode": "copy-on-write"}, {"mode": "merge-on-read"}
MADE = RowsFunction(name="made", call=made)
TEN = {"id": "id + 10"}


def replaced(*made):
    return Operation(*made, is_replaced=True)


OPERATIONS = {
    "append": replaced(append, lambda c: AppendRequest(rows=QUERY, inputs=inputs(c)), with_source),
    "append of changes": replaced(append, lambda c: AppendRequest(rows=QUERY, inputs=since_last(c)), with_source),
    "append of a function": replaced(append, lambda c: AppendRequest(rows=MADE), with_source),
    "overwrite by SQL": replaced(
        overwrite,
        lambda c: OverwriteRequest(
            rows=QUERY, overwrite_filter="abs(id) = 3", check_filter=False, inputs=inputs(c), **DUCK
        ),
        lambda rows: with_source(without(rows, lambda part, i: i == 3)),
    ),
    "add files": replaced(
        add_files, lambda c: AddFilesRequest(files=[FILE]), lambda rows: rows + Rows({("a", 8): 1})
    ),
    "delete by SQL": Operation(
        delete, lambda c: DeleteRequest(predicate="abs(id) = 2", **DUCK, **READ),
        lambda rows: without(rows, lambda part, i: i == 2),
    ),
    "delete by an input": Operation(
        delete, lambda c: DeleteRequest(predicate="id in (select id from src)", inputs=inputs(c), **DUCK, **COPY),
        lambda rows: without(rows, lambda part, i: i in (2, 50)),
    ),
    **{
        name: Operation(run, lambda c, make=make, mode=mode: make(c, mode), after)
        for name, mode, run, make, after in (
            ("merge", COPY, merge, lambda c, mode: merge_of(c, **mode), merged),
            ("merge of changes", READ, merge, lambda c, mode: merge_of(c, **mode, inputs=since_last(c)), merged),
            ("upsert", READ, merge, lambda c, mode: merge_of(c, **mode, clauses=None, upsert=True), upserted),
            (
                "update", COPY, update, lambda c, mode: UpdateRequest(set=TEN, where="id < 100", **DUCK, **mode),
                lambda rows: moved(rows, lambda part, i: i < 100, 10),
            ),
        )
    },
}  # fmt: skip


class Rival:
    """Another writer, who appends a row of its own and expires all snapshots but the last one."""

    def __init__(self, number):
        self.number = number
        self.rows = Rows()

    def __call__(self, catalog, table):
        self.rows = Rows({("c", self.number): 1})
        plan(catalog, Append("c", ids(self.number))).commit()
        plan(catalog, Expire()).commit()


class Task:
    """A task of a run that has just begun."""

    def __init__(self, catalog, operation):
        self.catalog, self.operation = catalog, operation
        self.tries = self.epoch = 0
        self.began_ms = self.started_ms = int(time.time() * 1000)

    def clear(self):
        """Clear the task, and with it the run, which starts anew."""
        self.epoch += 1
        time.sleep(0.002)
        self.started_ms = int(time.time() * 1000)

    def attempt(self, catalog, meanwhile=lambda: None):
        """Return how a try ended: "done", "again" if Airflow tries it again, or "refused".

        Args:
            meanwhile: called after the job, or for work without one, when its files are described.
        """
        self.tries += 1
        number = self.tries
        key = OperationKey(
            dag_id="d", run_id="r", task_id="t", installation="i", epoch=self.epoch, is_cleared=self.epoch > 0,
            try_number=number, run_after_ms=self.began_ms, started_ms=self.started_ms,
        )  # fmt: skip
        table = Table.load(catalog, NAME)

        def job(job_plan):
            result = run_local(job_plan, table.io, threads=1)
            meanwhile()
            return result

        work = Work(table, run=job, operation_key=key, try_number=number)
        try:
            self.operation.run(work, self.operation.request(self.catalog))
        except IcebergError as error:
            self.error = error
            return "refused" if is_final(error) else "again"
        return "done"

    def run(self, faulty):
        """Try the task until it succeeds or is refused, as Airflow does; the first try meets faults."""
        ended = self.attempt(faulty)
        for _ in range(3):
            if ended == "again":
                ended = self.attempt(self.catalog)
        return ended


def may_be_refused(name, fault, run):
    """Whether the table does not tell what a task has done, although its log of metadata files is long."""
    if name == "add files":
        return run > 0  # the names of the files are not the task's
    # The other writer's expiry is all that a second try sees.
    return name.startswith(("merge", "upsert", "update")) and fault is Fault.RIVAL_THEN_UNKNOWN


# Every fault in every catalog for each operation, by turns with a long log of metadata files and with a short one.
FAULTS = [
    pytest.param(name, *case, bool((i + j) % 2), id=f"{name}-{case[0]}-{case[1].name}")
    for i, name in enumerate(OPERATIONS)
    for j, case in enumerate(CASES)
]


@pytest.mark.costly
@pytest.mark.sample(10)
@pytest.mark.parametrize(("name", "kind", "fault", "is_short"), FAULTS)
def test_its_effect_is_there_once_a_run(name, kind, fault, is_short):
    catalog, operation = start(kind, is_short=is_short), OPERATIONS[name]
    Table.create(catalog, SOURCE, schema={"part": "string", "id": "long"}).append(made())
    filesystem, path = catalog.io.filesystem(FILE)
    with filesystem.open(path, "wb") as sink:
        pq.write_table(arrow([("a", 8)]), sink)
    task, expected = Task(catalog, operation), rows_now(catalog)
    for run, number in enumerate((70, 71)):
        rival = Rival(number)
        ended = task.run(interrupted(catalog, kind, fault, rival))
        check_whole(catalog)
        if operation.is_replaced and run:
            done = expected + rival.rows
        elif fault is Fault.RIVAL_THEN_UNKNOWN:
            done = operation.after(expected + rival.rows)
        else:
            done = operation.after(expected) + rival.rows
        found = +rows_now(catalog)
        if ended == "done":
            assert found == +done, run
        else:
            assert isinstance(task.error, IncompatibleChangeError | CommitUnknownError), task.error
            assert is_short or may_be_refused(name, fault, run), task.error
            assert found in (+done, +(expected + rival.rows))
            return
        expected = found
        task.clear()


@pytest.mark.costly
@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["pointer", "server", "hadoop"])
@pytest.mark.parametrize("late", [1, 2], ids=["first try late", "second try late"])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("add files", "append of a function")])
def test_two_tries_at_the_same_time(name, late, kind):
    """One outlives its worker: the other one commits while it works, and its snapshot expires."""
    catalog, operation = start(kind, is_short=False), OPERATIONS[name]
    Table.create(catalog, SOURCE, schema={"part": "string", "id": "long"}).append(made())
    check_two_tries(catalog, operation, late, kind)


@pytest.mark.costly
@pytest.mark.parametrize("name", ["append", "merge of changes"])
def test_two_tries_of_a_first_load(name):
    catalog = start("pointer", is_short=False)
    catalog.drop_table(NAME)
    make_table(catalog, 2)
    Table.create(catalog, SOURCE, schema={"part": "string", "id": "long"}).append(made())
    check_two_tries(catalog, OPERATIONS[name], 1, "pointer")


def check_two_tries(catalog, operation, late, kind):
    before, task = rows_now(catalog), Task(catalog, operation)
    others = []

    def other_try():
        if others:
            return
        others.append(None)
        mine, task.tries = task.tries, 2 - late
        others[0] = task.attempt(catalog)
        task.tries = mine
        plan(catalog, Append("c", ids(70))).commit()
        plan(catalog, Expire()).commit()

    task.tries = late - 1
    task.attempt(ServerCatalog(catalog) if kind == "server" else catalog, other_try)
    check_whole(catalog)
    assert others == ["done"]
    assert +rows_now(catalog) == +(operation.after(before) + Rows({("c", 70): 1}))
