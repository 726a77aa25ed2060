"""Undo, cherry-pick and publish beside other writers: the last table of docs/conflicts.md, cell by cell."""

import re
from collections import Counter

import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.wap.audits import RowCount
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.commit import test_conflicts as page
from tests.support.builders import job_work
from tests.support.changes import NAME, Append, CopyOnWriteDelete, DynamicOverwrite, Overwrite, ids, plan
from tests.support.memory import MemoryCatalog

KEY = OperationKey(dag_id="d", run_id="r1", task_id="load")
OLD = Counter({("a", 1): 1, ("a", 2): 1, ("a", 3): 1})
DONE = {"fast_forward": "done", "reapplied": "done", "audited_again": "audited again"}


def load(catalog):
    return Table.load(catalog, NAME)


# With the row ids that old rows keep, which the changes of that page do not write.
THEIRS = {
    **page.THEIRS,
    "compaction": lambda catalog: compact(job_work(load(catalog)), CompactRequest(options={"rewrite-all": True})),
    "same file rewritten": lambda catalog: load(catalog).delete("id = 3", mode="copy-on-write"),
}


class Undone:
    """An undo of a change of main, which added and removed rows."""

    def __init__(self, change, *, added=(), removed=()):
        self.change, self.taken, self.given = change, Counter(added), Counter(removed)

    def begin(self, catalog):
        plan(catalog, self.change, key=KEY).commit()

    def act(self, catalog):
        load(catalog).undo(KEY)
        return "done"

    def after(self, rows, _said):
        return rows - self.taken + self.given


class Picked:
    """A cherry-pick of a change that was staged on a branch."""

    def __init__(self, change):
        self.change = change

    def begin(self, catalog):
        load(catalog).create_branch("wap")
        plan(catalog, self.change, branch="wap", key=KEY).commit()
        self.staged = load(catalog).refs["wap"].snapshot_id

    def act(self, catalog):
        load(catalog).cherry_pick(self.staged)
        return "done"

    def after(self, rows, said):
        if said == "audited again":  # the files that it replaces, and not what others have added beside them
            return rows - OLD + Counter((self.change.part, number) for number in self.change.ids)
        return self.change.after(rows)


class Published(Picked):
    """A publication of it, with audits that pass."""

    def act(self, catalog):
        request = PublishRequest(snapshot_id=self.staged, branch="wap", audits=[RowCount(min=0)])
        return DONE[publish(Work(load(catalog)), request).how]


OURS = {
    "undo of an append": lambda: Undone(Append("a", ids(21, 22)), added=[("a", 21), ("a", 22)]),
    "undo of a delete": lambda: Undone(CopyOnWriteDelete(ids(2)), removed=[("a", 2)]),
    "cherry-pick of an append": lambda: Picked(Append("a", ids(4))),
    "cherry-pick of a dynamic overwrite": lambda: Picked(DynamicOverwrite("a", ids(8))),
    "publication of an append": lambda: Published(Append("a", ids(4))),
    "publication of a dynamic overwrite": lambda: Published(DynamicOverwrite("a", ids(8))),
    "publication of another overwrite": lambda: Published(Overwrite("a", ids(7))),
}


def outcome(name, theirs):
    ours, catalog = OURS[name](), MemoryCatalog()
    page.make_table(catalog, 3)
    for change in page.BASE:
        plan(catalog, change).commit()
    ours.begin(catalog)
    THEIRS[theirs](catalog)
    before, location = rows_now(catalog), catalog.load(NAME).metadata_location
    try:
        said = ours.act(catalog)
    except (IncompatibleChangeError, KeyError):
        assert rows_now(catalog) == before
        return "refused"
    if catalog.load(NAME).metadata_location == location:
        return "nothing to do"
    assert +rows_now(catalog) == +ours.after(before, said), (name, theirs)
    return said


def rows_now(catalog):
    table = load(catalog)
    named = "number" if "number" in table.schema().names else "id"
    found = table.scan().to_arrow()
    return Counter(zip(found["part"].to_pylist(), found[named].to_pylist(), strict=True))


def documented():
    section = page.DOC.read_text().partition("## Undo, cherry-pick and publish")[2].partition("\n## ")[0]
    (lines,) = re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)
    first, _, *rest = lines.splitlines()
    return {
        name: {page.cells_of(line)[0]: page.cells_of(line)[number] for line in rest}
        for number, name in enumerate(page.cells_of(first))
        if number
    }


@pytest.mark.costly
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OURS)
def test_a_column_of_the_page(name):
    cells = documented()[name]
    assert {theirs: outcome(name, theirs) for theirs in THEIRS} == cells
