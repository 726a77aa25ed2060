"""Random tables with deletes that only other writers make, and changes of them, judged by a model that reads nothing.

make stress ARGS=tests/operations/test_odd_deletes_model.py
"""

from collections import Counter

import pytest

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from tests.support.changes import live_entries
from tests.support.odd_deletes import SCHEMA, OddTable, rows_of
from tests.support.sampling import SEED, sampled


def check(odd, rows):
    """Check that the table has these rows, whoever counts them, and one vector for a file."""
    table = odd.table.refresh()
    assert rows_of(table) == rows
    assert table.scan().count() == rows.total()
    assert table.scan("part = 'a'").count() == sum(n for row, n in rows.items() if row[1] == "a")
    vectors = [e.data_file.referenced_data_file for e in live_entries(table) if e.data_file.is_deletion_vector]
    assert len(vectors) == len(set(vectors))


def changelog(table, before):
    found = table.changes(before, mode="changelog").read_all()
    total = Counter()
    for kind, *row in zip(*(found[name].to_pylist() for name in ("_change_type", *SCHEMA)), strict=True):
        total[tuple(row)] += 1 if kind == "insert" else -1
    return {row: count for row, count in total.items() if count}


def refused(make):
    """Make a change; return whether places of a file can have no common vector."""
    try:
        make()
    except UnsupportedError as error:
        if "in the table more than once" not in str(error):
            raise
        return True
    return False


def changed(odd, judge=lambda odd, rows: None):
    """Make changes one after another, each checked."""
    rows = odd.rows
    check(odd, rows)
    judge(odd, rows)
    for _ in range(3):
        name, make, after = odd.change()
        head = odd.table.current_snapshot().snapshot_id
        if refused(make):
            assert odd.is_split, name
            # A job that assigns values says by the path alone what it has changed.
            is_by_job = odd.is_spread and name.startswith(("update", "upsert", "merge"))
            assert is_by_job or name.endswith("merge-on-read")
            check(odd, rows)
            return
        check(odd, after)
        judge(odd, after)
        assert changelog(odd.table, head) == {row: n for row in rows | after if (n := after[row] - rows[row])}, name
        # What is left is not where the model has it any more; a change asks it for the rows alone.
        odd.follow(after)
        rows = after


@pytest.mark.generated
@pytest.mark.parametrize("number", range(sampled(60)))
def test_changes(tmp_path, number):
    changed(OddTable.make(tmp_path, SEED * 1_000_003 + number))


@pytest.mark.generated
@pytest.mark.parametrize("number", range(sampled(30)))
def test_limits(tmp_path, number):
    odd = OddTable.make(tmp_path, SEED * 1_000_003 + 500_000 + number)
    for mode in ("copy-on-write", "merge-on-read"):
        count = odd.rows.total()
        if count:
            with pytest.raises(InvalidInputError, match=f"selects at least {count} rows"):
                odd.table.delete("id >= 0", mode=mode, max_rows=count - 1)
    check(odd, odd.rows)
