"""The changelog of a hundred snapshots: appends, and deletes that rewrite a file each.

Both sides read all columns of all changes, and leave out rows that a delete has only carried into another file: ours
in this process, Java by `create_changelog_view` on two cores.
"""

from collections import Counter

import numpy as np
import pyarrow as pa

from airflow_iceberg.table import Table
from tests.benchmarks.line import Line
from tests.benchmarks.maintained import Frozen, Warehouse, against_java
from tests.benchmarks.sessions import check_rows

GOAL = 0.5
SNAPSHOTS, FILES, FILE_ROWS, ROWS, DELETED = 100, 10, 100_000, 20_000, 1_000
# Each third snapshot is a delete.
DELETES = SNAPSHOTS // 3
EXPECTED = {"insert": (SNAPSHOTS - DELETES) * ROWS, "delete": DELETES * DELETED}
COLUMNS = {"id": "long", "customer": "long", "amount": "double", "comment": "string"}


def _rows(first: int, count: int) -> pa.Table:
    dice = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    texts = [f"order {number:08} of {number % 977}" for number in ids.tolist()]
    customers, amounts = dice.integers(0, 1 << 20, count), dice.random(count)
    return pa.table({"id": ids, "customer": customers, "amount": amounts, "comment": texts})


def _make(warehouse: Warehouse) -> None:
    table = Table.create(warehouse.catalog, "db.followed", schema=COLUMNS)
    for number in range(FILES):
        table.append(_rows(number * FILE_ROWS, FILE_ROWS))
    following = FILES * FILE_ROWS
    for number in range(SNAPSHOTS):
        if number % 3 == 2:
            start = (number // 3 % FILES) * FILE_ROWS + number // 3 // FILES * DELETED
            table.delete(f"id >= {start} and id < {start + DELETED}", mode="copy-on-write")
        else:
            table.append(_rows(following, ROWS))
            following += ROWS


def _range(warehouse: Warehouse) -> tuple[int, int]:
    snapshots = warehouse.load("followed").snapshots()
    return snapshots[FILES - 1].snapshot_id, snapshots[-1].snapshot_id


def _table(warehouse: Warehouse) -> Frozen:
    return Frozen.of(warehouse.folder / "db" / "followed", lambda: _make(warehouse))


def _check(who: str, found: dict[str, int]) -> None:
    for kind, expected in EXPECTED.items():
        check_rows(f"{who} ({kind})", found.get(kind, 0), expected)


def _ours(warehouse: Warehouse) -> None:
    first, last = _range(warehouse)
    found: Counter[str] = Counter()
    for batch in warehouse.load("followed").changes(first, last, mode="changelog"):
        for each in batch.column("_change_type").value_counts().to_pylist():
            found[each["values"]] += each["counts"]
    _check("our changelog", found)


def _java(warehouse: Warehouse) -> None:
    first, last = _range(warehouse)
    warehouse.java.sql(
        "call ref.system.create_changelog_view(table => 'db.followed', changelog_view => 'followed_changes', "
        f"options => map('start-snapshot-id', '{first}', 'end-snapshot-id', '{last}'))"
    )
    rows = warehouse.java.rows(
        "select _change_type as kind, count(*) as n, max(comment) as c, sum(customer) as s, sum(amount) as a "
        "from followed_changes group by _change_type"
    )
    _check("Java's changelog", {row["kind"].lower(): row["n"] for row in rows})


LINES: tuple[Line, ...] = (
    against_java(
        "changelog",
        f"changelog of {SNAPSHOTS} snapshots: {SNAPSHOTS - DELETES} appends of {ROWS:,} rows and {DELETES} "
        f"copy-on-write deletes of {DELETED:,} rows of {FILE_ROWS:,}",
        _table,
        ours=_ours,
        java=_java,
        goal=GOAL,
    ),
)
