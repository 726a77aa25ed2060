"""The events of a watched table: which snapshots are new since a watermark, which count, and what an event says."""

import dataclasses
import json
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.new_snapshot import MAINTENANCE
from airflow_iceberg.plan.snapshot_events import (
    EventFilter,
    Watermark,
    added_records,
    coalesced,
    new_snapshots,
    payload,
    start_of,
    touched_partitions,
)
from tests.plan.test_new_snapshot import History


@dataclasses.dataclass
class Said:
    """What manifests would say."""

    rows: int | None = 7
    partitions: tuple[Any, ...] | None = ({"day": "1"},)

    def added_records(self, snapshot: Snapshot) -> int | None:
        return self.rows

    def touched(self, snapshot: Snapshot) -> tuple[Any, ...] | None:
        return self.partitions


def mark(history: History, branch: str = "main") -> Watermark:
    return start_of(history.metadata, branch, None)


def news(history: History, known: Watermark, branch: str = "main") -> tuple[list[int], Watermark, str | None]:
    found = new_snapshots(history.metadata, branch, known)
    return [snapshot.snapshot_id for snapshot in found.snapshots], found.watermark, found.problem


class TestWhatIsNew:
    """All snapshots of the branch after the watermark, oldest first; none twice and none lost."""

    def test_twenty_commits_are_twenty_snapshots_and_then_none(self):
        history = History()
        history.commit()
        known = mark(history)
        ids = [history.commit() for _ in range(20)]
        found, known, problem = news(history, known)
        assert (found, problem) == (ids, None)
        assert news(history, known) == ([], known, None)

    def test_the_first_snapshot_of_an_empty_table_is_new(self):
        history = History()
        known = mark(history)
        assert news(history, known)[0] == []
        assert news(History(), known)[1:] == (known, None)
        first = history.commit()
        assert news(history, known)[0] == [first]

    def test_those_of_other_branches_are_not(self):
        history = History()
        history.commit()
        history.move("audit", 1)
        known = mark(history)
        history.commit(branch="audit")
        assert news(history, known)[0] == []
        assert news(history, known, "audit")[0] == [2]

    def test_a_published_branch_brings_its_snapshots(self):
        history = History()
        history.commit()
        history.move("audit", 1)
        ids = [history.commit(branch="audit") for _ in range(2)]
        known = mark(history)
        history.move("main", ids[-1])
        assert news(history, known)[0] == ids


class TestTheWatermarkIsGone:
    """The branch was rolled back, snapshots expired, or the table is another one: said loudly, and it goes on."""

    def test_a_rollback_has_nothing_new_nor_has_the_way_forward_again(self):
        history = History()
        for _ in range(3):
            history.commit()
        known = mark(history)
        history.move("main", 1)
        found, after, problem = news(history, known)
        assert (found, after) == ([], known)
        assert "rolled back: snapshot 3" in str(problem)
        history.move("main", 3)
        assert news(history, after) == ([], known, None)

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_commit_after_a_rollback_is_new_alone(self, version):
        history = History(version)
        for _ in range(3):
            history.commit()
        known = mark(history)
        history.move("main", 1)
        fourth = history.commit()
        found, known, problem = news(history, known)
        assert (found, known.snapshot_id) == ([fourth], fourth)
        assert "rolled back" in str(problem)

    def test_a_commit_after_a_rollback_is_new_alone_if_what_was_seen_has_expired(self):
        history = History()
        for _ in range(3):
            history.commit()
        known = mark(history)
        history.move("main", 1)
        history.expire(2, 3)
        assert news(history, known)[0] == []
        fourth = history.commit()
        found, known, problem = news(history, known)
        assert (found, known.snapshot_id) == ([fourth], fourth)
        assert "snapshot 3, the last one seen, has expired" in str(problem)

    def test_an_expired_watermark_whose_successor_is_there_has_lost_nothing(self):
        history = History()
        history.commit()
        known = mark(history)
        ids = [history.commit(), history.commit()]
        history.expire(1)
        assert news(history, known)[0::2] == (ids, None)

    @pytest.mark.parametrize("version", [1, 2])
    def test_if_its_successor_has_expired_too_that_is_said(self, version):
        history = History(version)
        history.commit()
        known = mark(history)
        ids = [history.commit() for _ in range(3)]
        history.expire(1, 2)
        found, _, problem = news(history, known)
        assert found == ids[1:]
        assert "the events go on with 3" in str(problem)

    def test_a_table_that_was_created_again_begins_again(self):
        history = History()
        history.commit()
        known = dataclasses.replace(mark(history), table_uuid="00000000-0000-0000-0000-000000000009", snapshot_id=99)
        found, known, problem = news(history, known)
        assert (found, known.snapshot_id) == ([1], 1)
        assert "created again" in str(problem)

    def test_a_table_that_was_restored_to_an_earlier_state_loses_no_commit(self):
        """Its sequence numbers begin again where they were, and so cannot tell what is later."""
        history = History()
        history.commit()
        backup = history.metadata
        for _ in range(3):
            history.commit()
        known = mark(history)
        history.metadata = backup
        found, after, problem = news(history, known)
        # A catalog may have answered late as well: then its next answer must not be new.
        assert (found, after) == ([], known)
        assert "at an earlier state: it has had 1 commits, and snapshot 4, the last one seen, was commit 4" in str(
            problem
        )
        fifth = history.commit()
        found, known, _ = news(history, after)
        assert (found, known.snapshot_id) == ([fifth], fifth)
        assert news(history, known)[0::2] == ([], None)

    def test_nor_if_it_has_had_more_commits_since_than_before(self):
        history = History()
        history.commit()
        backup = history.metadata
        history.commit()
        known = mark(history)
        history.metadata = backup
        ids = [history.commit() for _ in range(3)]
        assert news(history, known)[0] == ids

    def test_of_a_table_that_was_missing_only_later_snapshots_are_new(self):
        history = History()
        ids = [history.commit() for _ in range(3)]
        assert news(history, Watermark(table_uuid=None, timestamp_ms=2000))[0] == ids[1:]


NO_NUMBERS = (float("inf"), float("nan"), "9" * 5000, [], None)


class TestTheWatermarkAsStored:
    """It survives JSON and JavaScript; whatever else lies there is no watermark."""

    def test_round_trip(self):
        known = Watermark(table_uuid="u", snapshot_id=2**62 + 1, sequence_number=3, timestamp_ms=4)
        document = known.to_dict()
        assert Watermark.from_dict(json.loads(json.dumps(document))) == known
        assert document["snapshot_id"] == str(2**62 + 1)

    @pytest.mark.parametrize(
        "value",
        [None, "x", 5, [], {}, {"table_uuid": None}, {"table_uuid": 1, "snapshot_id": "x"}]
        + [
            {"table_uuid": "u", "snapshot_id": "1", "sequence_number": number, "timestamp_ms": 1}
            for number in NO_NUMBERS
        ],
    )
    def test_what_is_none(self, value):
        assert Watermark.from_dict(value) is None


class TestWhereAWatcherBegins:
    """Now, at the beginning, at a snapshot, or at a time."""

    def test_each(self):
        history = History()
        for _ in range(3):
            history.commit()
        begin = lambda *since: start_of(history.metadata, "main", *since).snapshot_id  # noqa: E731
        assert (begin(None), begin("beginning"), begin("2"), begin(None, 1500), begin(None, 10)) == (
            3,
            None,
            2,
            1,
            None,
        )

    def test_a_snapshot_that_is_not_there_is_an_error(self):
        with pytest.raises(InvalidInputError, match="since='77' is no snapshot"):
            start_of(History().metadata, "main", "77")


def passes(chosen: EventFilter, history: History, said: Said | None = None) -> bool:
    snapshot = history.metadata.snapshots[-1]
    return chosen.passes(history.metadata, snapshot, said or Said())  # type: ignore[arg-type]


class TestWhichCount:
    """Operation, maintenance, partition, rows and DAG; what cannot be told is not lost."""

    @pytest.mark.parametrize(
        ("operation", "summary"), [("replace", {}), ("overwrite", {MAINTENANCE: "true"})], ids=["compaction", "marked"]
    )
    def test_maintenance_counts_only_if_it_is_asked_for(self, operation, summary):
        history = History()
        history.commit(operation, **summary)
        assert not passes(EventFilter(), history)
        assert passes(EventFilter(include_maintenance=True), history)

    def test_operations(self):
        history = History()
        history.commit("delete")
        assert passes(EventFilter(operations=("delete", "overwrite")), history)
        assert not passes(EventFilter(operations=("append",)), history)
        with pytest.raises(InvalidInputError, match="apend"):
            EventFilter(operations=("apend",))

    def test_dags(self):
        history = History()
        history.commit(**{"airflow.dag-id": "mine"})
        for chosen, expected in [
            (EventFilter(dag_ids=("mine",)), True),
            (EventFilter(dag_ids=("other",)), False),
            (EventFilter(exclude_dag_ids=("mine",)), False),
        ]:
            assert passes(chosen, history) is expected
        history.commit()
        assert not passes(EventFilter(dag_ids=("mine",)), history)
        assert passes(EventFilter(exclude_dag_ids=("mine",)), history)

    @pytest.mark.parametrize(
        ("summary", "rows", "expected"),
        [
            ({"added-records": "10"}, None, True),
            ({"added-records": "9"}, 99, False),
            ({"added-records": "9" * 400}, 3, False),
            ({"added-records": "-5"}, 10, True),
            ({"added-records": "１０"}, None, True),  # digits that int() reads, and Java does not
            ({"total-records": "10"}, 99, False),
            ({}, 10, True),
            ({}, 9, False),
            ({}, None, True),
        ],
    )
    def test_rows_by_the_summary_or_by_manifests(self, summary, rows, expected):
        history = History()
        history.commit(**summary)
        assert passes(EventFilter(min_records=10), history, Said(rows=rows)) is expected

    def test_added_records_left_out_are_none(self):
        history = History()
        history.commit("delete", **{"deleted-records": "4"})
        assert added_records(history.metadata.snapshots[-1], Said()) == 0  # type: ignore[arg-type]


class TestThePartitionsOfASnapshot:
    """By its summary if that is complete, else by its manifests."""

    def touched(self, **summary: str) -> Any:
        history = History()
        history.commit(**summary)
        return touched_partitions(history.metadata.snapshots[-1], Said())  # type: ignore[arg-type]

    def test_the_summary(self):
        names = {"partitions.ts_day=2026-01-01/region=a%2Fb+c": "", "partitions.ts_day=null/region=x": ""}
        complete = {"partition-summaries-included": "true", "changed-partition-count": "2"}
        both = ({"ts_day": "2026-01-01", "region": "a/b c"}, {"ts_day": "null", "region": "x"})
        assert self.touched(**names, **complete) == both

    @pytest.mark.parametrize(
        "summary",
        [
            {},
            {"partitions.day=5": ""},
            {"partitions.day=5": "", "partition-summaries-included": "true", "changed-partition-count": "9" * 5000},
            {"partitions.day=5": "", "partition-summaries-included": "true", "changed-partition-count": "2"},
        ],
    )
    def test_an_incomplete_one_is_not_believed(self, summary):
        assert self.touched(**summary) == ({"day": "1"},)


class TestThePayload:
    """JSON types, ids as text, a stable id, and a size that no writer of summaries decides."""

    def test_what_it_says(self):
        history = History()
        history.commit(**{"added-records": "10", "airflow.dag-id": "d" * 9999, "airflow.run-id": "r"})
        snapshot = dataclasses.replace(
            history.metadata.snapshots[-1], snapshot_id=2**62 + 1, parent_snapshot_id=2**61 + 1
        )
        found = payload("s.t", history.metadata, "main", snapshot, [{"day": "x" * 9999}, {"day": "1"}] * 200)
        assert json.loads(json.dumps(found)) == found
        assert (found["snapshot_id"], found["parent_snapshot_id"]) == (str(2**62 + 1), str(2**61 + 1))
        assert found["event_id"] == f"{history.metadata.table_uuid}/{2**62 + 1}"
        assert (found["added_records"], found["run_id"], len(found["dag_id"])) == (10, "r", 250)
        assert (found["partition_count"], len(found["partitions"][1])) == (2, 250)

    def test_partitions_are_named_as_in_the_events_of_tasks(self):
        history = History()
        history.commit()
        long = "x" * 300
        texts = [{"region": "a/b=c d", "day": "1"}, {"region": f"{long}1"}, {"region": f"{long}2"}]
        found = payload("s.t", history.metadata, "main", history.metadata.snapshots[-1], texts)
        assert found["partitions"][0] == "region=a%2Fb%3Dc+d/day=1"
        # Long ones are kept apart by a digest, and not longer than a partition key may be.
        assert len(set(found["partitions"])) == found["partition_count"] == 3
        assert {len(name) for name in found["partitions"][1:]} == {250}

    def test_partitions_are_bounded_and_counted(self):
        history = History()
        history.commit()
        many = [{"day": str(number)} for number in range(5000)]
        found = payload("s.t", history.metadata, "main", history.metadata.snapshots[-1], many)
        assert (found["partition_count"], len(found["partitions"])) == (5000, 100)

    def test_several_in_one(self):
        history = History()
        payloads = []
        for number in range(3):
            history.commit(**{"added-records": "10"})
            payloads.append(
                payload("s.t", history.metadata, "main", history.metadata.snapshots[-1], [{"day": str(number)}])
            )
        one = coalesced(payloads)
        assert (one["snapshot_count"], one["first_snapshot_id"], one["snapshot_id"]) == (3, "1", "3")
        assert (one["added_records"], one["deleted_records"]) == (30, None)
        assert one["partitions"] == ["day=0", "day=1", "day=2"]
        assert one["event_id"] == payloads[-1]["event_id"]
        unknown = coalesced([*payloads, {**payloads[-1], "partitions": None, "partition_count": None}])
        assert unknown["partitions"] is None
