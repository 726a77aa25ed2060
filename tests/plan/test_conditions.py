"""The conditions that sensors wait for: metadata in, decision and sentence out."""

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import AddSchema, Change, SetCurrentSchema, apply_change
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import SnapshotRef
from airflow_iceberg.plan.conditions.branch_published import BranchPublishedCondition
from airflow_iceberg.plan.conditions.decision import Decision, PartitionCount
from airflow_iceberg.plan.conditions.freshness import FreshnessCondition
from airflow_iceberg.plan.conditions.partition import PartitionCondition
from airflow_iceberg.plan.conditions.row_count import RowCountCondition
from airflow_iceberg.plan.conditions.schema_change import SchemaChangeCondition
from airflow_iceberg.plan.new_snapshot import MAINTENANCE
from tests.plan.test_new_snapshot import History


class Manifests:
    """What manifests say, and whether anybody asked."""

    def __init__(self, *counts: PartitionCount) -> None:
        self.counts = counts
        self.asked = 0

    def partitions(self, snapshot_id: int) -> tuple[PartitionCount, ...]:
        self.asked += 1
        return self.counts


def decide(condition: Any, history: History, *counts: PartitionCount, now_ms: int = 10_000) -> Decision:
    return condition.decide(history.metadata, Manifests(*counts), now_ms=now_ms)


def count(records: int = 5, deletes: int = 0, files: int = 1, **texts: str) -> PartitionCount:
    return PartitionCount(texts=texts, data_files=files, records=records, position_deletes=deletes)


@pytest.fixture
def by_day() -> History:
    history = History()
    schema = schema_from_shorthand({"id": "long", "ts": "timestamp"})
    spec = PartitionSpec.from_dict(
        {
            "spec-id": 0,
            "fields": [
                {"source-id": 2, "field-id": 1000, "name": "ts_day", "transform": "day"},
                {"source-id": 1, "field-id": 1001, "name": "id", "transform": "identity"},
            ],
        }
    )
    history.metadata = new_table_metadata(location="memory://t", schema=schema, spec=spec, table_uuid="u", now_ms=0)
    history.commit()
    return history


class TestAPartition:
    """It exists, has rows, or is marked; all that is given holds."""

    DAY = count(ts_day="2026-01-01", id="1"), count(ts_day="2026-01-01", id="2"), count(ts_day="2026-01-02", id="1")

    def test_it_exists_by_the_name_of_its_field_or_of_its_column(self, by_day):
        for partition in ({"ts_day": "2026-01-01"}, {"ts": "2026-01-01"}, {"ts_day": "2026-01-01", "id": 2}):
            found = decide(PartitionCondition(partition=partition), by_day, *self.DAY).result
            assert found is not None
            assert (found["rows"], found["snapshot_id"]) == (5 if "id" in partition else 10, "1")

    def test_it_does_not_exist_and_the_table_has_others(self, by_day):
        found = decide(PartitionCondition(partition={"ts_day": "2026-01-03"}), by_day, *self.DAY)
        assert found.result is None
        assert "none of its 3 partitions is this one; the last ones: ts_day=2026-01-02/id=1" in found.has

    def test_rows_that_may_be_deleted_do_not_count(self, by_day):
        wanted = PartitionCondition(partition={"ts_day": "2026-01-01"}, min_rows=4)
        assert decide(wanted, by_day, count(ts_day="2026-01-01", deletes=1)).result
        found = decide(wanted, by_day, count(ts_day="2026-01-01", deletes=2))
        assert found.result is None
        assert "1 data files with 3 rows" in found.has

    def test_a_partition_with_deletes_alone_is_not_there(self, by_day):
        only = count(ts_day="2026-01-01", files=0, records=0, deletes=5)
        assert decide(PartitionCondition(partition={"ts_day": "2026-01-01"}), by_day, only).result is None

    def test_a_field_that_no_spec_has_is_an_error(self, by_day):
        with pytest.raises(
            InvalidInputError,
            match=r"'day' is no partition field of table memory://t; its partition fields: id, ts_day",
        ):
            decide(PartitionCondition(partition={"day": "1"}), by_day)

    def test_marks_are_read_before_any_manifest(self, by_day):
        marked = {"done.2026-01-01": "true"}
        wanted = PartitionCondition(partition={"ts_day": "2026-01-01"}, properties=marked, tag="done")
        manifests = Manifests(*self.DAY)
        found = wanted.decide(by_day.metadata, manifests, now_ms=0)
        assert (found.result, manifests.asked) == (None, 0)
        assert found.has == "no property 'done.2026-01-01' and no tag 'done'"
        for refs, tag in ((SnapshotRef(snapshot_id=1), False), (SnapshotRef(snapshot_id=1, type="tag"), True)):
            by_day.metadata = dataclasses.replace(
                by_day.metadata, properties=marked, refs={**by_day.metadata.refs, "done": refs}
            )
            assert bool(decide(wanted, by_day, *self.DAY).result) is tag

    def test_a_mark_has_another_value(self, by_day):
        by_day.metadata = dataclasses.replace(by_day.metadata, properties={"done": "no"})
        assert decide(PartitionCondition(properties={"done": "yes"}), by_day).has == "property 'done' = 'no'"
        assert decide(PartitionCondition(properties={"done": None}), by_day).result

    def test_nothing_to_wait_for(self):
        with pytest.raises(InvalidInputError, match="nothing to wait for"):
            PartitionCondition()
        with pytest.raises(InvalidInputError, match="min_rows=5 is about the rows of a partition, and none is given"):
            PartitionCondition(tag="done", min_rows=5)

    @pytest.mark.parametrize(
        ("column", "transform", "in_path", "given"),
        [
            ("double", "identity", "1.0", [1, 1.0, "1", "1e0"]),
            ("double", "identity", "1.0E20", [1e20]),
            ("decimal(9, 2)", "identity", "1.50", [Decimal("1.5"), 1.5, "1.50"]),
            ("boolean", "identity", "true", [True, "True", "true"]),
            (
                "timestamp",
                "identity",
                "2026-01-01T10:30:00",
                [datetime.fromisoformat("2026-01-01 10:30"), "2026-01-01 10:30"],
            ),
            ("timestamptz", "identity", "2026-01-01T10:30:00+00:00", [datetime(2026, 1, 1, 10, 30, tzinfo=UTC)]),
            ("timestamptz", "identity", "2026-01-01T10:30:00+00:00", ["2026-01-01T11:30:00+01:00"]),
            ("timestamp", "day", "2026-01-01", [date(2026, 1, 1), "2026-01-01"]),
            ("timestamp", "hour", "2026-01-01-10", ["2026-01-01-10"]),
            ("timestamp", "year", "2026", [2026, "2026"]),
            ("string", "identity", "null", [None]),
            ("string", "identity", "a/b=c", ["a/b=c"]),
        ],
    )
    def test_a_value_in_any_of_its_spellings(self, column, transform, in_path, given):
        history = History()
        schema = schema_from_shorthand({"v": column})
        field = {"source-id": 1, "field-id": 1000, "name": "v_part", "transform": transform}
        spec = PartitionSpec.from_dict({"spec-id": 0, "fields": [field]})
        made = new_table_metadata(location="memory://t", schema=schema, spec=spec, table_uuid="u", now_ms=0)
        history.metadata = made
        history.commit()
        for value in given:
            wanted = PartitionCondition(partition={"v": value})
            assert decide(wanted, history, count(v_part=in_path)).result, value
            assert not decide(wanted, history, count(v_part="9")).result

    def test_a_mark_is_a_text_as_all_properties_are(self, by_day):
        by_day.metadata = dataclasses.replace(by_day.metadata, properties={"done": "true", "rows": "5"})
        assert decide(PartitionCondition(properties={"done": True, "rows": 5}), by_day).result


class TestFreshness:
    """The newest change of rows; maintenance and times from the future are none."""

    def test_after_a_time_and_by_age(self):
        history = History()
        history.commit()
        assert decide(FreshnessCondition(after_ms=999), history).result
        assert decide(FreshnessCondition(after_ms=1000), history).result is None
        assert decide(FreshnessCondition(max_age_s=9), history).result["age_seconds"] == 9  # type: ignore[index]
        stale = decide(FreshnessCondition(max_age_s=8.9), history)
        assert stale.result is None
        assert stale.has == "the newest change is snapshot 1 of 1970-01-01T00:00:01+00:00"

    @pytest.mark.parametrize(("operation", "summary"), [("replace", {}), ("overwrite", {MAINTENANCE: "true"})])
    def test_maintenance_does_not_make_a_table_fresh(self, operation, summary):
        history = History()
        history.commit()
        history.commit(operation, **summary)
        assert decide(FreshnessCondition(after_ms=1000), history).result is None
        assert decide(FreshnessCondition(after_ms=1000, include_maintenance=True), history).result

    @pytest.mark.parametrize("timestamp_ms", [400_000, 2**63 - 1])
    def test_a_time_from_the_future_is_not_believed(self, timestamp_ms):
        history = History()
        history.commit()
        late = dataclasses.replace(history.metadata.snapshots[0], timestamp_ms=timestamp_ms)
        history.metadata = dataclasses.replace(history.metadata, snapshots=(late,))
        found = decide(FreshnessCondition(max_age_s=5), history)
        assert found.result is None
        assert "not believed" in found.has
        assert found.until_ms == timestamp_ms - 300_000

    def test_a_change_before_one_from_the_future_counts(self):
        history = History()
        history.commit()
        history.commit()
        first, second = history.metadata.snapshots
        late = dataclasses.replace(second, timestamp_ms=10**9)
        history.metadata = dataclasses.replace(history.metadata, snapshots=(first, late))
        found = decide(FreshnessCondition(max_age_s=9), history)
        assert found.result["snapshot_id"] == "1"  # type: ignore[index]
        stale = decide(FreshnessCondition(max_age_s=8), history)
        assert (stale.result, stale.until_ms) == (None, 10**9 - 300_000)
        assert stale.has.startswith("the newest change is snapshot 1 of 1970-01-01T00:00:01+00:00; snapshot 2 of 1970-")

    def test_an_empty_table_is_not_fresh(self):
        assert (
            decide(FreshnessCondition(max_age_s=5), History()).has == "no change of rows; branch 'main' has no snapshot"
        )

    @pytest.mark.parametrize("options", [{}, {"max_age_s": 1, "after_ms": 1}])
    def test_one_of_two(self, options):
        with pytest.raises(InvalidInputError, match="expected one of max_age and after"):
            FreshnessCondition(**options)


class TestRowCount:
    """By the totals of the summary; by manifests where a summary has none that can be believed."""

    @pytest.mark.parametrize(
        ("summary", "limits", "expected"),
        [
            ({"total-records": "10"}, {"min_rows": 10}, True),
            ({"total-records": "10"}, {"min_rows": 11}, False),
            ({"total-records": "10", "total-position-deletes": "1"}, {"min_rows": 10}, False),
            ({"total-records": "10", "total-position-deletes": "1"}, {"max_rows": 9}, False),
            ({"total-records": "10", "total-position-deletes": "99"}, {"min_rows": 0}, True),
            ({"total-records": "10"}, {"min_rows": 5, "max_rows": 10}, True),
            ({}, {"min_rows": 8}, True),
            ({"total-records": "9" * 5000}, {"min_rows": 9}, False),
            ({"total-records": "10", "total-position-deletes": "many"}, {"min_rows": 9}, False),
        ],
    )
    def test_it(self, summary, limits, expected):
        history = History()
        history.commit(**summary)
        assert bool(decide(RowCountCondition(**limits), history, count(records=10, deletes=2)).result) is expected

    def test_an_empty_table_has_no_rows(self):
        assert decide(RowCountCondition(max_rows=0), History()).result is not None
        assert decide(RowCountCondition(min_rows=1), History()).has.startswith("0 rows")

    @pytest.mark.parametrize("limits", [{}, {"min_rows": -1}, {"min_rows": 5, "max_rows": 4}])
    def test_limits_that_are_none(self, limits):
        with pytest.raises(InvalidInputError, match="expected min_rows, max_rows or both"):
            RowCountCondition(**limits)


class TestASchemaChange:
    """Another schema than the known one, or one with certain columns; and what has changed."""

    def evolved(self) -> History:
        history = History()
        schema = schema_from_shorthand({"number": "long", "name": "string"})
        change = Change(updates=(AddSchema(schema=schema), SetCurrentSchema(schema_id=-1)), requirements=())
        history.metadata = apply_change(history.metadata, change, now_ms=1, base_location=None)
        return history

    def test_what_has_changed(self):
        found = decide(SchemaChangeCondition(after_schema_id=0), self.evolved()).result
        changes = {"added_columns": ["name"], "removed_columns": [], "changed_columns": ["number"]}
        uuid = self.evolved().metadata.table_uuid
        assert found == {"table_uuid": uuid, "schema_id": 1, "previous_schema_id": 0, **changes}

    def test_no_more_columns_are_named_than_a_person_reads(self):
        """The result is stored in Airflow's database."""
        history = History()
        schema = schema_from_shorthand({f"{number}-{'x' * 2_000}": "int" for number in range(1_100)})
        change = Change(updates=(AddSchema(schema=schema), SetCurrentSchema(schema_id=-1)), requirements=())
        history.metadata = apply_change(history.metadata, change, now_ms=1, base_location=None)
        found = decide(SchemaChangeCondition(after_schema_id=0), history).result
        assert found is not None
        named = [*found["added_columns"], *found["changed_columns"]]
        assert (len(named), max(map(len, named))) == (1_001, 1_000)
        assert found["cut"] == {"added_columns": 1_099}

    def test_a_table_that_was_made_again_has_another_schema_of_the_same_number(self):
        again = SchemaChangeCondition(after_schema_id=0, after_table_uuid="that of another")
        found = decide(again, History()).result
        assert found is not None
        assert (found["previous_schema_id"], found["added_columns"]) == (0, None)
        same = SchemaChangeCondition(after_schema_id=0, after_table_uuid=History().metadata.table_uuid)
        assert decide(same, History()).result is None

    def test_the_same_schema_is_no_change_and_any_is_one_if_none_is_known(self):
        assert decide(SchemaChangeCondition(after_schema_id=0), History()).result is None
        assert decide(SchemaChangeCondition(), History()).result is not None

    def test_columns(self):
        found = decide(SchemaChangeCondition(columns=("name",)), History())
        assert (found.result, found.has) == (None, "schema 0 is the current one, without name")
        assert decide(SchemaChangeCondition(columns=("name",)), self.evolved()).result


class TestABranchIsPublished:
    """Its snapshot is in the history of the other branch, itself or cherry-picked."""

    def audited(self) -> History:
        history = History()
        history.commit()
        history.move("audit", 1)
        history.commit(branch="audit", **{"wap.id": "w1"})
        return history

    def test_fast_forwarded(self):
        history = self.audited()
        wanted = BranchPublishedCondition(branch="audit")
        assert "which does not have snapshot 2" in decide(wanted, history).has
        history.move("main", 2)
        history.commit()
        found = decide(wanted, history).result
        assert found is not None
        assert (found["snapshot_id"], found["published_snapshot_id"], found["branch"]) == ("2", "2", "main")

    @pytest.mark.parametrize("summary", [{"source-snapshot-id": "2"}, {"published-wap-id": "w1"}])
    def test_cherry_picked(self, summary):
        history = self.audited()
        history.commit()
        history.commit(**summary)
        found = decide(BranchPublishedCondition(branch="audit"), history).result
        assert found is not None
        assert found["snapshot_id"] == "4"

    @pytest.mark.parametrize("summary", [{"airflow.audited-snapshot-id": "2"}, {"airflow.audited-snapshot-id": "3"}])
    def test_applied_again_by_our_publication_which_names_the_last_snapshot_that_was_audited(self, summary):
        history = self.audited()
        history.commit(branch="audit")
        history.commit()
        wanted = BranchPublishedCondition(branch="audit", snapshot_id=2)
        assert decide(wanted, history).result is None
        history.commit(**summary)
        found = decide(wanted, history).result
        assert found is not None
        assert found["snapshot_id"] == "5"
        # The first snapshot alone was published in the one case, both in the other.
        assert (decide(BranchPublishedCondition(branch="audit"), history).result is None) is ("2" in summary.values())

    @pytest.mark.parametrize("forged", ["1", "99", "-1", "x", "9" * 5000])
    def test_not_by_what_names_another_snapshot(self, forged):
        history = self.audited()
        history.commit(**{"airflow.audited-snapshot-id": forged})
        assert decide(BranchPublishedCondition(branch="audit"), history).result is None

    def test_what_many_snapshots_name_is_walked_once(self, monkeypatch):
        """A line of snapshots that all name the head of a long branch would be walked by its square."""
        history = History()
        history.commit()
        history.move("side", 1)
        for _ in range(20):
            history.commit(branch="side")
        for _ in range(20):
            history.commit(**{"airflow.audited-snapshot-id": "21"})
        walked = []
        real = TableMetadata.ancestors
        monkeypatch.setattr(
            TableMetadata, "ancestors", lambda *given: (walked.append(one) or one for one in real(*given))
        )
        condition = BranchPublishedCondition(branch="side", snapshot_id=99)
        assert decide(condition, history).result is None
        assert len(walked) < 70
        assert decide(BranchPublishedCondition(branch="side", snapshot_id=15), history).result is not None

    def test_a_snapshot_that_has_expired_since_is_known_by_its_child(self):
        history = self.audited()
        history.move("main", 2)
        child = history.commit()
        history.move("audit", child)
        history.expire(1, 2)
        found = decide(BranchPublishedCondition(branch="audit", snapshot_id=2), history).result
        assert found is not None
        assert found["snapshot_id"] == str(child)

    def test_a_branch_that_is_gone_is_an_error_unless_the_snapshot_is_given(self):
        history = History()
        history.commit()
        with pytest.raises(NotFoundError, match="give snapshot_id, too"):
            decide(BranchPublishedCondition(branch="audit"), history)
        assert decide(BranchPublishedCondition(branch="audit", snapshot_id=1), history).result
        assert decide(BranchPublishedCondition(branch="audit", snapshot_id=9), history).result is None

    def test_two_branches(self):
        with pytest.raises(InvalidInputError, match="name two branches"):
            BranchPublishedCondition(branch="main")
