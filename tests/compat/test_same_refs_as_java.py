"""Changes of branches and tags as Iceberg Java makes them: its procedures and its DDL, on generated histories.

Java makes a table. Of each case Java and we get a copy of its metadata, and make the same change. Compared are refs,
snapshots, their summaries, the snapshot log and the rows of each ref, and whether both refuse. Java reads what we have
made, and goes on with some of it.
"""

import itertools
import json
from pathlib import Path

import pytest

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.table import Table
from tests.support.ref_cases import cases, history, shape
from tests.support.sampling import SEED

pytestmark = pytest.mark.java
SEEDS = int(SEED or 1)


class Side:
    """Copies of a table for one of the two: their metadata, which refers to the files of the first."""

    def __init__(self, warehouse, catalog, base):
        self.folder = Path(warehouse.removeprefix("file://")) / "db"
        self.catalog = catalog
        self.base = json.loads(Path(base.metadata_location.removeprefix("file:")).read_text())

    def copy(self, name):
        folder = self.folder / name / "metadata"
        folder.mkdir(parents=True)
        text = json.dumps({**self.base, "location": f"file://{folder.parent}"})
        (folder / "v1.metadata.json").write_text(text)
        (folder / "version-hint.text").write_text("1")
        return f"ref.db.{name}"

    def load(self, name):
        return Table.load(self.catalog, f"db.{name}")


def make_base(java, catalog, name, seed, version):
    statements = [[text.replace("{table}", f"ref.db.{name}"), conf] for text, conf in history(seed, version)]
    found = java.call("tests.support.java_cases:each", statements=statements)
    errors = [(statement[0], error) for statement, error in zip(statements, found, strict=True) if error]
    # A pick may be refused by the history that the seed has made.
    assert all("cherrypick" in statement for statement, _ in errors), errors
    return Table.load(catalog, f"db.{name}")


class Rows:
    """The rows of snapshots; those of the history are read once."""

    def __init__(self, base):
        self.known = {s.snapshot_id for s in base.snapshots()}
        self.found = {}

    def of(self, table):
        return {name: self.at(table, ref.snapshot_id) for name, ref in table.refs.items()}

    def at(self, table, snapshot_id):
        if snapshot_id in self.found:
            return self.found[snapshot_id]
        read = table.scan(snapshot_id=snapshot_id).to_arrow_batch_reader().read_all()
        rows = sorted(map(repr, read.to_pylist()))
        if snapshot_id in self.known:
            self.found[snapshot_id] = rows
        return rows


def compare(java, warehouse, catalog, base, chosen, prefix):
    """Make changes on both sides and return what differs, and Java's reading of ours."""
    side, rows = Side(warehouse, catalog, base), Rows(base)
    statements = [[case.java.replace("{table}", side.copy(f"{prefix}_j{n}")), {}] for n, case in enumerate(chosen)]
    errors = java.call("tests.support.java_cases:each", statements=statements)
    wrong, made = [], []
    for number, (case, error) in enumerate(zip(chosen, errors, strict=True)):
        side.copy(f"{prefix}_o{number}")
        theirs, ours = side.load(f"{prefix}_j{number}"), side.load(f"{prefix}_o{number}")
        refusal = None
        try:
            case.ours(ours)
        except IcebergError as found:
            refusal = f"{type(found).__name__}: {found}"
        mine = side.load(f"{prefix}_o{number}")
        same = (shape(mine, rows.known), rows.of(mine)) == (shape(theirs, rows.known), rows.of(theirs))
        departs = (case.is_idempotent and refusal is None) or (case.is_stricter and error is None)
        if not same or (bool(error) != bool(refusal) and not departs):
            differs = [key for key, value in shape(mine, rows.known).items() if value != shape(theirs, rows.known)[key]]
            wrong.append(f"{case.name}: {case.java}\n  java: {error}\n  ours: {refusal}\n  differs: {differs}")
        elif refusal is None and mine.metadata_location != f"{mine.location}/metadata/v1.metadata.json":
            made.append((f"{prefix}_o{number}", mine))
    return wrong, made, rows


def goes_on(java, side_names, rows):
    """Let Java read what we have made, append to it, and undo that; return what is wrong."""
    wrong = []
    locations = [table.metadata_location for _, table in side_names]
    read = java.call("tests.support.java_cases:rows", locations=locations, columns=["id", "part"])
    for (name, table), found in zip(side_names, read, strict=True):
        expected = rows.at(table, table.metadata.current_snapshot_id)
        if sorted(repr({"id": number, "part": part}) for number, part in found) != expected:
            wrong.append(f"{name}: Java reads {found}, expected {expected}")
    statements = [
        statement
        for name, table in side_names[::5]
        for statement in (
            [f"insert into ref.db.{name} values (999, 'z')", {}],
            [f"call ref.system.rollback_to_snapshot('ref.db.{name}', {table.metadata.current_snapshot_id})", {}],
        )
    ]
    return wrong + [error for error in java.call("tests.support.java_cases:each", statements=statements) if error]


def check(java, warehouse, catalog, seed, version, every, start=0):
    base = make_base(java, catalog, f"refs_{seed}_{version}_{every}", seed, version)
    chosen = list(itertools.islice(cases(base.metadata), start, None, every))
    wrong, made, rows = compare(java, warehouse, catalog, base, chosen, f"refs_{seed}_{version}_{every}")
    wrong += goes_on(java, made, rows)
    assert not wrong, f"{len(wrong)} of {len(chosen)}\n" + "\n".join(wrong)
    return len(chosen)


def test_a_sample(java, warehouse, catalog):
    assert check(java, warehouse, catalog, 1, 2, 13, 3) >= 10


@pytest.mark.services
@pytest.mark.parametrize("version", [1, 2, 3])
def test_all_cases(java, warehouse, catalog, version):
    """Half of the cases of a history each: more than 60, so that there are more than 180 of them."""
    assert check(java, warehouse, catalog, SEEDS + version, version, 2, version % 2) >= 60
