"""Merges while others write: what comes is one change after the other, in the order of the snapshots."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.sampling import SEED, sampled
from tests.support.serial_order import check_row_ids, check_totals

# Which of two merges came first can be seen in n.
CLAUSES = (
    "when matched and source.n = 0 then delete when matched then update set n = target.n * 10 + source.n "
    "when not matched then insert *"
)
_LATER_MS = 4_000_000_000_000


def rows_of(pairs):
    ids, numbers = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(numbers, pa.int64())})


class Change:
    """A change of another writer, or the merge itself: what it does to the table, and to rows in Python."""

    def __init__(self, dice):
        self.kind = dice.choice(["merge", "merge", "append", "delete", "compact", "expire"])
        self.pairs = [(i, dice.randint(0, 3)) for i in dice.sample(range(8), dice.randint(1, 3))]

    def do(self, table):
        match self.kind:
            case "merge":
                table.merge(rows_of(self.pairs), ["id"], CLAUSES)
            case "append":
                table.append(rows_of(self.pairs))
            case "delete":
                table.delete(f"id = {self.pairs[0][0]}")
            case "compact":
                compact(job_work(table), CompactRequest(options={"rewrite-all": "true"}))
            case "expire":
                expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=_LATER_MS, retain_last=1))

    def after(self, rows):
        if self.kind == "append":
            return rows + Counter(self.pairs)
        if self.kind == "delete":
            return Counter({row: count for row, count in rows.items() if row[0] != self.pairs[0][0]})
        return merged(rows, self.pairs) if self.kind == "merge" else rows


def merged(rows, pairs):
    source, found = dict(pairs), Counter()
    for (i, n), count in rows.items():
        if i not in source:
            found[i, n] += count
        elif source[i]:
            found[i, n * 10 + source[i]] += count
    known = {i for i, _ in rows}
    return found + Counter(pair for pair in pairs if pair[0] not in known)


@pytest.mark.costly
@pytest.mark.sample(4)
@pytest.mark.generated
@pytest.mark.parametrize("seed", range(sampled(60)))
def test_a_merge_comes_after_what_came_meanwhile(tmp_path, seed):
    dice = random.Random(seed + SEED * 1_000_000)
    version = dice.choice([1, 2, 3])
    mode = dice.choice(["copy-on-write", "merge-on-read"]) if version > 1 else "copy-on-write"
    modes = {f"write.{command}.mode": mode for command in ("merge", "delete")}
    table = new_table(
        tmp_path,
        schema={"id": "long", "n": "long"},
        partition_by=dice.choice([(), ("bucket(2, id)",)]),
        properties={"format-version": str(version), "commit.retry.min-wait-ms": "1", **modes},
    )
    rows = Counter((i, i) for i in range(6))
    for start in (0, 3):
        table.append(rows_of([(i, i) for i in range(start, start + 3)]))
    for _ in range(2):
        pairs = [(i, dice.randint(0, 3)) for i in dice.sample(range(8), dice.randint(1, 4))]
        rows = merge_beside(table, pairs, [Change(dice) for _ in range(dice.randint(1, 2))], rows)
        table = Table.load(table.catalog, table.name)
        found = table.scan().to_arrow()
        assert Counter(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == +rows
        check_totals(table)
        check_row_ids(table)


def merge_beside(table, pairs, others, rows):
    """Merge, while others change the table after each plan; returns the rows that there should be."""

    def run(plan):
        nonlocal rows
        done = run_local(plan, table.io)
        if others:
            other = others.pop()
            other.do(Table.load(table.catalog, table.name))
            rows = +other.after(rows)
        return done

    request = MergeRequest(rows=rows_of(pairs), on=["id"], clauses=CLAUSES, dialect="duckdb")
    try:
        merge(Work(table, run=run), request)
    except StalePlanError:
        return rows
    return +merged(rows, pairs)
