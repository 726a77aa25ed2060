"""Which snapshots and refs a table keeps."""

from dataclasses import replace

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.plan.expire_snapshots import Expiry, find_expired

DAY = 24 * 60 * 60 * 1000
NOW = 100 * DAY


def table(parents, refs, **properties):
    """Return metadata: snapshot n is n days old when it is 100; `parents` maps it to its parent."""
    metadata = new_table_metadata(
        location="memory://t", schema=schema_from_shorthand({"id": "long"}), table_uuid="u", now_ms=0
    )
    snapshots = tuple(
        Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=index + 1,
            timestamp_ms=NOW - number * DAY,
            manifest_list=f"memory://t/{number}",
        )
        for index, (number, parent) in enumerate(parents.items())
    )
    named = {name: ref if isinstance(ref, SnapshotRef) else SnapshotRef(snapshot_id=ref) for name, ref in refs.items()}
    return replace(
        metadata,
        snapshots=snapshots,
        last_sequence_number=len(snapshots),
        refs=named,
        current_snapshot_id=named["main"].snapshot_id if "main" in named else None,
        properties={name.replace("__", ".").replace("_", "-"): str(value) for name, value in properties.items()},
    )


def line(*ages, **refs):
    """Return a branch main of snapshots of these ages in days, oldest first."""
    parents = dict(zip(ages, (None, *ages), strict=False))
    return parents, {"main": ages[-1], **refs}


def expired(metadata, **options):
    return find_expired(metadata, now_ms=NOW, **options)


class TestABranch:
    """Its head stays, and its ancestors while they are few or young enough."""

    @pytest.mark.parametrize(("ages", "options", "gone"), [
        ((9, 6, 5, 4, 1), {}, (9, 6)), ((90, 80), {}, (90,)), ((90, 80, 70, 60), {"retain_last": 3}, (90,)),
        ((9, 5, 1), {"older_than_ms": NOW - 5 * DAY}, (9,)),
    ], ids=["five days by default", "the head however old", "so many whatever their age", "the border"])  # fmt: skip
    def test_what_stays(self, ages, options, gone):
        assert expired(table(*line(*ages)), **options).snapshot_ids == gone

    def test_the_argument_wins_over_the_property_of_the_table(self):
        made = table(*line(9, 6, 3, 1), history__expire__max_snapshot_age_ms=2 * DAY)
        assert expired(made).snapshot_ids == (9, 6, 3)
        assert expired(made, older_than_ms=NOW - 7 * DAY).snapshot_ids == (9,)
        made = table(*line(90, 80, 70, 60), history__expire__min_snapshots_to_keep=3)
        assert expired(made).snapshot_ids == (90,)
        assert expired(made, retain_last=2).snapshot_ids == (90, 80)
        assert expired(table(*line(90, 80, 70, 60))).snapshot_ids == (90, 80, 70)

    def test_its_own_settings_win_over_both(self):
        parents, refs = line(9, 6, 3, 1)
        refs["main"] = SnapshotRef(snapshot_id=1, min_snapshots_to_keep=2, max_snapshot_age_ms=1)
        assert expired(table(parents, refs), retain_last=4, older_than_ms=0).snapshot_ids == (9, 6)

    def test_the_first_that_is_old_ends_it_even_if_one_behind_is_young(self):
        """A clock ran behind: the parent is younger than its child."""
        assert expired(table({9: None, 2: 9, 7: 2, 1: 7}, {"main": 1})).snapshot_ids == (9, 2, 7)

    def test_a_snapshot_of_two_branches_stays_for_either(self):
        parents = {9: None, 8: 9, 1: 8, 7: 8}
        refs = {"main": 1, "audit": SnapshotRef(snapshot_id=7, min_snapshots_to_keep=2)}
        assert expired(table(parents, refs)).snapshot_ids == (9,)


class TestOtherRefs:
    """They go when their snapshot is older than they may be; main never does."""

    def test_a_tag_keeps_its_snapshot_alone_while_it_is_young(self):
        parents, refs = line(9, 8, 7, 1, release=SnapshotRef(snapshot_id=8, type="tag"))
        assert expired(table(parents, refs)) == Expiry(snapshot_ids=(9, 7))
        tag = SnapshotRef(snapshot_id=8, type="tag", max_ref_age_ms=7 * DAY)
        parents, refs = line(9, 8, 7, 1, release=tag)
        assert expired(table(parents, refs)) == Expiry(snapshot_ids=(9, 8, 7), refs=("release",))
        parents, refs = line(9, 1, release=SnapshotRef(snapshot_id=9, type="tag"))
        assert expired(table(parents, refs, history__expire__max_ref_age_ms=2 * DAY)).refs == ("release",)

    def test_main_stays_whatever_its_age_and_a_branch_that_goes_keeps_nothing(self):
        main = SnapshotRef(snapshot_id=90, max_ref_age_ms=1)
        assert expired(table({90: None}, {"main": main})).is_empty
        branch = SnapshotRef(snapshot_id=30, max_ref_age_ms=DAY)
        assert expired(table({30: None, 1: None}, {"main": 1, "old": branch})) == Expiry(
            snapshot_ids=(30,), refs=("old",)
        )


class TestOnNoRef:
    """Staged and rolled-back snapshots stay while they are young."""

    def test_young_ones_stay_and_the_argument_counts_for_them(self):
        assert expired(table({9: None, 8: 9, 4: 9, 1: 9}, {"main": 1})).snapshot_ids == (9, 8)
        made = table({9: None, 4: 9, 1: 9}, {"main": 1})
        assert expired(made, older_than_ms=NOW - 3 * DAY).snapshot_ids == (9, 4)


class TestNamedSnapshots:
    """They go besides, unless a ref that stays points to them."""

    def test_from_the_middle_but_not_the_head_of_a_ref_nor_one_that_is_not_there(self):
        assert expired(table(*line(4, 3, 2, 1)), snapshot_ids=[3]).snapshot_ids == (3,)
        parents, refs = line(4, 3, 1, release=SnapshotRef(snapshot_id=3, type="tag"))
        with pytest.raises(InvalidInputError, match="cannot expire snapshot 3: it is still referenced by 'release'"):
            expired(table(parents, refs), snapshot_ids=[3])
        with pytest.raises(NotFoundError, match="does not have it"):
            expired(table(*line(2, 1)), snapshot_ids=[77])


class TestRefusals:
    """Nothing is expired on doubtful grounds."""

    def test_a_table_whose_files_belong_to_others(self):
        with pytest.raises(InvalidInputError, match=r"gc\.enabled=false"):
            expired(table(*line(9, 1), gc__enabled="false"))

    @pytest.mark.parametrize("text", [0, -1, 1])
    def test_the_head_is_kept_where_none_has_to_be(self, text):
        made = table(*line(90, 80, 70, 60), history__expire__min_snapshots_to_keep=text)
        assert expired(made).snapshot_ids == (90, 80, 70)
        odd_clock = table(*line(9, 1, 6), history__expire__min_snapshots_to_keep=text)
        assert expired(odd_clock).snapshot_ids == ((9,) if text == 1 else (9, 1)), "as in Java"

    @pytest.mark.parametrize("name", ["max_snapshot_age_ms", "max_ref_age_ms"])
    def test_numbers_that_are_too_small(self, name):
        message = rf"property history\.expire\.{name.replace('_', '-')} is '-1' \(expected a number, 0 or above\)"
        with pytest.raises(InvalidInputError, match=message):
            expired(table(*line(9, 1), **{f"history__expire__{name}": -1}))

    def test_to_retain_none(self):
        with pytest.raises(InvalidInputError, match="unexpected retain_last 0"):
            expired(table(*line(9, 1)), retain_last=0)
