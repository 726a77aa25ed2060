"""The snapshots whose rows appear or disappear when a branch is moved."""

import pytest

from airflow_iceberg.operations.reports import moves
from airflow_iceberg.operations.reports.moves import moved_snapshots, place_before
from tests.plan.test_new_snapshot import History


@pytest.fixture
def history() -> History:
    """Snapshots 1, 2 and 3 of main, the second one a compaction; 4 and 5 of a branch that begins at 2."""
    made = History()
    made.commit()
    made.commit("replace")
    made.commit()
    made.commit(branch="audit", parent=2)
    made.commit("overwrite", branch="audit")
    return made


class TestTheSnapshotsBetweenTwoPlaces:
    """Those on one side and not on the other; what changes no rows is left out."""

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [(1, 3, [3]), (3, 1, [3]), (3, 5, [5, 4, 3]), (4, 5, [5]), (3, 3, []), (None, 3, [3, 1]), (3, None, [3, 1])],
    )
    def test_are_all_that_differ(self, history, old, new, expected):
        found = moved_snapshots(history.metadata, old, new)
        assert ([one.snapshot_id for one in found.snapshots], found.is_cut) == (expected, False)

    def test_are_cut_where_they_are_too_many(self, history, monkeypatch):
        monkeypatch.setattr(moves, "MOST_SNAPSHOTS", 2)
        found = moved_snapshots(history.metadata, 3, 5)
        assert ([one.snapshot_id for one in found.snapshots], found.is_cut) == ([5, 4], True)

    def test_are_cut_where_the_place_before_has_expired(self, history):
        history.move("main", 5)
        history.expire(1, 2, 3)
        found = moved_snapshots(history.metadata, 3, 5)
        assert ([one.snapshot_id for one in found.snapshots], found.is_cut) == ([5, 4], True)


class TestWhereMainWasBefore:
    """The table's log of main tells it, also to a later try."""

    def test_others_have_committed_since(self, history):
        history.move("main", 5)
        history.commit()
        assert place_before(history.metadata, 5) == 3

    def test_nothing_tells_of_the_first_one_and_of_one_that_main_never_had(self, history):
        assert (place_before(history.metadata, 1), place_before(history.metadata, 4)) == (None, None)
