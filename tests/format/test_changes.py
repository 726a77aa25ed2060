"""Updates, requirements, and what a change makes of a table."""

from dataclasses import replace
from typing import Any

import pytest

from airflow_iceberg.errors import CommitConflictError, IncompatibleChangeError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.requirements import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    Requirement,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import (
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssignUUID,
    Change,
    RemoveProperties,
    RemoveSnapshotRef,
    RemoveSnapshots,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
    apply_change,
)
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder, sort_order_from_shorthand
from airflow_iceberg.format.transforms.transform import UnknownTransform, VoidTransform
from airflow_iceberg.format.types import NestedField, StringType

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
SCHEMA = schema_from_shorthand({"id": "long", "n": "int"})
EMPTY = new_table_metadata(
    location="s3://b/t", schema=SCHEMA, spec=spec_from_shorthand(["n"], SCHEMA), table_uuid=UUID, now_ms=1000
)


def snapshot(number: int, parent: int | None = None, **more: Any) -> Snapshot:
    values = {
        "snapshot_id": number,
        "parent_snapshot_id": parent,
        "sequence_number": number,
        "timestamp_ms": 1000 * number,
    }
    return Snapshot(**{**values, "manifest_list": f"{number}.avro", "summary": {"operation": "append"}, **more})


def main(number: int) -> SetSnapshotRef:
    return SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=number))


def change(base: TableMetadata, *updates: Update, now_ms: int = 9000, location: str | None = "0.json") -> TableMetadata:
    return apply_change(base, Change(updates=updates), now_ms=now_ms, base_location=location)


def commit(base: TableMetadata, number: int, parent: int | None = None) -> TableMetadata:
    """Append as the engine does: a new snapshot, and main on it."""
    return change(base, AddSnapshot(snapshot=snapshot(number, parent)), main(number), now_ms=1000 * number)


THREE = commit(commit(commit(EMPTY, 1), 2, 1), 3, 2)


class TestACommit:
    """A snapshot is added and a branch moved to it."""

    def test_the_table_is_at_the_new_snapshot(self) -> None:
        after = commit(EMPTY, 1)
        assert after.current_snapshot() == snapshot(1)
        assert (after.current_snapshot_id, after.refs["main"].snapshot_id) == (1, 1)
        assert (after.last_sequence_number, after.last_updated_ms) == (1, 1000)

    def test_the_base_stays_as_it_was(self) -> None:
        before = metadata_json.to_dict(EMPTY)
        commit(EMPTY, 1)
        assert metadata_json.to_dict(EMPTY) == before

    def test_each_metadata_file_names_the_one_before(self) -> None:
        assert THREE.metadata_log == ((1000, "0.json"), (1000, "0.json"), (2000, "0.json"))

    def test_a_base_that_is_not_kept_is_not_named(self) -> None:
        assert change(EMPTY, SetProperties(updates={"a": "b"}), location=None).metadata_log == ()

    def test_nothing_changed_is_the_base_itself(self) -> None:
        assert change(THREE) is THREE
        assert change(THREE, main(3), SetProperties(updates={}), RemoveProperties(removals=("none",))) is THREE

    def test_unknown_keys_and_keys_of_encryption_survive(self) -> None:
        base = replace(EMPTY, unknown={"x": 1}, encryption_keys=({"key-id": "k"},))
        after = commit(base, 1)
        assert (after.unknown, after.encryption_keys) == ({"x": 1}, ({"key-id": "k"},))


class TestTime:
    """A table's time never goes backwards, whatever the clocks of its writers say."""

    def test_a_clock_behind_the_table_does_not_turn_it_back(self) -> None:
        assert change(THREE, SetProperties(updates={"a": "b"}), now_ms=5).last_updated_ms == THREE.last_updated_ms

    def test_it_is_not_before_the_last_move_of_main(self) -> None:
        late = snapshot(4, 3, timestamp_ms=99_000)
        after = change(THREE, AddSnapshot(snapshot=late), main(4), now_ms=4000)
        assert (after.snapshot_log[-1], after.last_updated_ms) == ((99_000, 4), 99_000)

    def test_an_early_snapshot_does_not_turn_the_log_back(self) -> None:
        early = snapshot(4, 3, timestamp_ms=10)
        after = change(THREE, AddSnapshot(snapshot=early), main(4), now_ms=10)
        assert [ms for ms, _ in after.snapshot_log] == [1000, 2000, 3000, 3000]


class TestTheMetadataLog:
    """It is trimmed to `write.metadata.previous-versions-max`."""

    def test_the_oldest_fall_off(self) -> None:
        base = replace(
            THREE, metadata_log=((1, "a"), (2, "b")), properties={"write.metadata.previous-versions-max": "2"}
        )
        after = change(base, SetProperties(updates={"x": "y"}), location="c")
        assert [file for _, file in after.metadata_log] == ["b", "c"]

    @pytest.mark.parametrize("keep", ["0", "-5"])
    def test_one_is_always_kept(self, keep: str) -> None:
        after = change(THREE, SetProperties(updates={"write.metadata.previous-versions-max": keep}), location="c")
        assert [file for _, file in after.metadata_log] == ["c"]

    def test_a_hundred_are_kept_by_default(self) -> None:
        base = replace(EMPTY, metadata_log=tuple((i, str(i)) for i in range(150)))
        assert len(change(base, SetProperties(updates={"x": "y"})).metadata_log) == 100

    def test_a_value_that_is_no_number_is_named(self) -> None:
        with pytest.raises(InvalidInputError, match="previous-versions-max"):
            change(EMPTY, SetProperties(updates={"write.metadata.previous-versions-max": "few"}))


class TestTheSnapshotLog:
    """It tells when main was where, without holes."""

    def test_a_new_snapshot_is_logged_with_its_own_time(self) -> None:
        assert THREE.snapshot_log == ((1000, 1), (2000, 2), (3000, 3))

    def test_a_rollback_is_logged_with_the_time_of_the_change(self) -> None:
        assert change(THREE, main(1), now_ms=9000).snapshot_log[-1] == (9000, 1)

    def test_only_main_is_logged(self) -> None:
        other = SetSnapshotRef(ref_name="audit", ref=SnapshotRef(snapshot_id=4))
        after = change(THREE, AddSnapshot(snapshot=snapshot(4, 3)), other)
        assert after.snapshot_log == THREE.snapshot_log
        assert (after.current_snapshot_id, after.refs["audit"].snapshot_id) == (3, 4)

    def test_retention_of_main_alone_is_no_move(self) -> None:
        kept = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=3, min_snapshots_to_keep=5))
        after = change(THREE, kept)
        assert (after.snapshot_log, after.refs["main"].min_snapshots_to_keep) == (THREE.snapshot_log, 5)

    def test_steps_inside_one_change_are_not_logged(self) -> None:
        steps = (AddSnapshot(snapshot=snapshot(4, 3)), main(4), AddSnapshot(snapshot=snapshot(5, 4)), main(5))
        assert change(THREE, *steps).snapshot_log == (*THREE.snapshot_log, (5000, 5))

    def test_nothing_before_a_removed_snapshot_stays(self) -> None:
        back = change(THREE, main(1), now_ms=8000)
        assert change(back, RemoveSnapshots(snapshot_ids=(2,))).snapshot_log == ((3000, 3), (8000, 1))

    def test_removing_the_oldest_leaves_the_rest(self) -> None:
        assert change(THREE, RemoveSnapshots(snapshot_ids=(1,))).snapshot_log == ((2000, 2), (3000, 3))


class TestAddingSnapshots:
    """Ids are new; numbers go up."""

    def test_an_id_can_be_used_once(self) -> None:
        with pytest.raises(InvalidInputError, match="snapshot 3 is in table s3://b/t already"):
            change(THREE, AddSnapshot(snapshot=snapshot(3, 2, sequence_number=9)))

    @pytest.mark.parametrize("number", [0, 3])
    def test_a_number_that_is_taken_means_that_somebody_was_faster(self, number: int) -> None:
        with pytest.raises(CommitConflictError, match=f"sequence number {number} of snapshot 4 is not above 3"):
            change(THREE, AddSnapshot(snapshot=snapshot(4, 3, sequence_number=number)))

    def test_without_a_parent_the_number_is_free_and_the_last_one_stays(self) -> None:
        after = change(THREE, AddSnapshot(snapshot=snapshot(4, None, sequence_number=1)))
        assert after.last_sequence_number == 3

    def test_a_staged_snapshot_uses_up_its_number(self) -> None:
        after = change(THREE, AddSnapshot(snapshot=snapshot(4, 3)))
        assert (after.last_sequence_number, after.current_snapshot_id) == (4, 3)

    def test_v1_has_no_numbers(self) -> None:
        v1 = replace(EMPTY, format_version=1)
        after = change(v1, AddSnapshot(snapshot=snapshot(1, sequence_number=0)), main(1))
        after = change(after, AddSnapshot(snapshot=snapshot(2, 1, sequence_number=0)), main(2))
        assert (after.last_sequence_number, after.current_snapshot_id) == (0, 2)


class TestRowLineage:
    """v3: each snapshot takes the row ids that it says, from the next free one on."""

    V3 = change(EMPTY, UpgradeFormatVersion(format_version=3))

    def test_an_upgraded_table_starts_at_0(self) -> None:
        assert (EMPTY.next_row_id, self.V3.next_row_id) == (None, 0)

    def test_the_next_one_is_after_those_taken(self) -> None:
        after = change(self.V3, AddSnapshot(snapshot=snapshot(1, first_row_id=0, added_rows=30)))
        after = change(after, AddSnapshot(snapshot=snapshot(2, 1, first_row_id=30, added_rows=5)))
        assert after.next_row_id == 35

    def test_ids_that_are_taken_mean_that_somebody_was_faster(self) -> None:
        base = change(self.V3, AddSnapshot(snapshot=snapshot(1, first_row_id=0, added_rows=30)))
        with pytest.raises(CommitConflictError, match="first-row-id 10 of snapshot 2 is below 30"):
            change(base, AddSnapshot(snapshot=snapshot(2, 1, first_row_id=10, added_rows=5)))

    def test_a_snapshot_without_row_ids_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="no first-row-id"):
            change(self.V3, AddSnapshot(snapshot=snapshot(1)))


class TestBranchesAndTags:
    """They point to snapshots that are there; main is a branch."""

    def test_an_unknown_snapshot_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="unknown snapshot 9 for branch 'main'"):
            change(THREE, main(9))

    def test_main_cannot_be_a_tag(self) -> None:
        with pytest.raises(InvalidInputError, match="must be a branch"):
            change(THREE, SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=3, type="tag")))

    def test_a_removed_branch_leaves_its_snapshots(self) -> None:
        base = change(THREE, SetSnapshotRef(ref_name="b", ref=SnapshotRef(snapshot_id=2)))
        after = change(base, RemoveSnapshotRef(ref_name="b"), RemoveSnapshotRef(ref_name="never was"))
        assert (set(after.refs), len(after.snapshots)) == ({"main"}, 3)

    def test_without_main_there_is_no_current_snapshot(self) -> None:
        assert change(THREE, RemoveSnapshotRef(ref_name="main")).current_snapshot() is None


class TestRemovingSnapshots:
    """With a snapshot go its statistics and the branches and tags that point to it."""

    def test_what_points_to_it_goes(self) -> None:
        tag = SetSnapshotRef(ref_name="t", ref=SnapshotRef(snapshot_id=1, type="tag"))
        statistics = [{"snapshot-id": i, "statistics-path": f"{i}.puffin"} for i in (1, 3)]
        base = change(THREE, tag, *(SetStatistics(snapshot_id=s["snapshot-id"], statistics=s) for s in statistics))
        base = replace(base, partition_statistics=tuple(statistics))
        after = change(base, RemoveSnapshots(snapshot_ids=(1, 77)))
        assert [s.snapshot_id for s in after.snapshots] == [2, 3]
        assert set(after.refs) == {"main"}
        assert (after.statistics, after.partition_statistics) == ((statistics[1],), (statistics[1],))


class TestStatistics:
    """One statistics file a snapshot."""

    def test_a_newer_one_replaces_the_older_one(self) -> None:
        base = change(THREE, SetStatistics(snapshot_id=3, statistics={"snapshot-id": 3, "statistics-path": "a"}))
        after = change(base, SetStatistics(snapshot_id=3, statistics={"snapshot-id": 3, "statistics-path": "b"}))
        assert [s["statistics-path"] for s in after.statistics] == ["b"]


class TestSchemas:
    """Ids are chosen by the table; an equal schema is reused; column ids are never used again."""

    WIDER = Schema(fields=(*EMPTY.schema().fields, NestedField(id=3, name="s", type=StringType())), schema_id=0)

    def test_a_new_schema_gets_the_next_id(self) -> None:
        after = change(EMPTY, AddSchema(schema=self.WIDER), SetCurrentSchema())
        assert (after.current_schema_id, after.last_column_id, len(after.schemas)) == (1, 3, 2)

    def test_an_equal_schema_is_reused(self) -> None:
        wider = change(EMPTY, AddSchema(schema=self.WIDER), SetCurrentSchema())
        after = change(wider, AddSchema(schema=replace(EMPTY.schema(), schema_id=7)), SetCurrentSchema())
        assert (after.current_schema_id, after.last_column_id, len(after.schemas)) == (0, 3, 2)

    @pytest.mark.parametrize(("schema_id", "message"), [(-1, "no schema was added"), (5, "unknown schema id 5")])
    def test_an_unknown_schema_cannot_be_current(self, schema_id: int, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            change(EMPTY, SetCurrentSchema(schema_id=schema_id))

    def test_a_column_of_the_current_spec_cannot_be_dropped(self) -> None:
        narrow = Schema(fields=EMPTY.schema().fields[:1], schema_id=0)
        with pytest.raises(InvalidInputError, match="no column with field id 2"):
            change(EMPTY, AddSchema(schema=narrow), SetCurrentSchema())

    def test_it_can_once_the_field_is_void(self) -> None:
        void = PartitionSpec(1, (PartitionField(source_id=2, field_id=1000, name="n", transform=VoidTransform()),))
        narrow = Schema(fields=EMPTY.schema().fields[:1], schema_id=0)
        after = change(
            EMPTY, AddPartitionSpec(spec=void), SetDefaultSpec(), AddSchema(schema=narrow), SetCurrentSchema()
        )
        assert (after.default_spec_id, after.current_schema_id) == (1, 1)

    def test_types_of_v3_need_v3(self) -> None:
        schema = schema_from_shorthand({"id": "long", "n": "int", "t": "timestamp_ns"})
        with pytest.raises(InvalidInputError, match="needs format version 3"):
            change(EMPTY, AddSchema(schema=schema))
        assert change(EMPTY, UpgradeFormatVersion(format_version=3), AddSchema(schema=schema)).last_column_id == 3


class TestSpecsAndOrders:
    """Ids are chosen by the table; an equal one is reused."""

    BUCKETS = PartitionSpec(
        0, tuple(replace(f, field_id=1001) for f in spec_from_shorthand(["bucket(4, id)"], SCHEMA).fields)
    )

    def test_a_new_spec_gets_the_next_id(self) -> None:
        after = change(EMPTY, AddPartitionSpec(spec=self.BUCKETS), SetDefaultSpec())
        assert (after.default_spec_id, after.last_partition_id) == (1, 1001)

    def test_an_equal_spec_is_reused(self) -> None:
        assert change(EMPTY, AddPartitionSpec(spec=replace(EMPTY.spec(), spec_id=9)), SetDefaultSpec()) is EMPTY

    def test_the_last_partition_id_never_goes_down(self) -> None:
        wide = change(EMPTY, AddPartitionSpec(spec=self.BUCKETS), SetDefaultSpec())
        after = change(wide, AddPartitionSpec(spec=PartitionSpec(0, ())), SetDefaultSpec())
        assert (after.default_spec_id, after.last_partition_id) == (2, 1001)

    def test_an_unknown_transform_cannot_be_written(self) -> None:
        (field,) = self.BUCKETS.fields
        unknown = PartitionSpec(0, (replace(field, transform=UnknownTransform("zorder[2]")),))
        with pytest.raises(InvalidInputError, match="unknown transform"):
            change(EMPTY, AddPartitionSpec(spec=unknown), SetDefaultSpec())

    def test_a_new_order_gets_the_next_id_and_unsorted_is_0(self) -> None:
        order = sort_order_from_shorthand(["id desc"], SCHEMA)
        after = change(EMPTY, AddSortOrder(sort_order=order), SetDefaultSortOrder())
        assert (after.default_sort_order_id, after.sort_order().fields) == (1, order.fields)
        after = change(after, AddSortOrder(sort_order=SortOrder(0, ())), SetDefaultSortOrder())
        assert (after.default_sort_order_id, len(after.sort_orders)) == (0, 2)


class TestTheRest:
    """Identity, location, format version and properties."""

    def test_the_format_version_only_goes_up(self) -> None:
        assert change(EMPTY, UpgradeFormatVersion(format_version=2)) is EMPTY
        with pytest.raises(InvalidInputError, match="cannot go down to 1"):
            change(EMPTY, UpgradeFormatVersion(format_version=1))
        with pytest.raises(UnsupportedError, match="format version 4"):
            change(EMPTY, UpgradeFormatVersion(format_version=4))

    def test_as_a_property_it_upgrades_and_is_not_kept(self) -> None:
        after = change(EMPTY, SetProperties(updates={"format-version": "3", "a": "b"}))
        assert (after.format_version, after.properties) == (3, {"a": "b"})

    @pytest.mark.parametrize("key", ["uuid", "snapshot-count", "current-snapshot-id", "current-schema"])
    def test_words_for_fields_are_never_kept_as_properties(self, key: str) -> None:
        assert change(EMPTY, SetProperties(updates={key: "1"})) is EMPTY

    def test_properties_come_and_go(self) -> None:
        base = change(EMPTY, SetProperties(updates={"a": "1", "b": "2"}))
        after = change(base, SetProperties(updates={"a": "3"}), RemoveProperties(removals=("b",)))
        assert (base.properties, after.properties) == ({"a": "1", "b": "2"}, {"a": "3"})

    def test_location_and_uuid_can_be_set(self) -> None:
        after = change(EMPTY, SetLocation(location="s3://c/u"), AssignUUID(uuid="other"))
        assert (after.location, after.table_uuid) == ("s3://c/u", "other")

    def test_v2_needs_the_uuid_that_old_v1_tables_lack(self) -> None:
        old = replace(EMPTY, format_version=1, table_uuid=None)
        with pytest.raises(InvalidInputError, match="no uuid"):
            change(old, UpgradeFormatVersion(format_version=2))
        assert change(old, AssignUUID(uuid=UUID), UpgradeFormatVersion(format_version=2)).table_uuid == UUID


class TestRequirements:
    """A change is applied only to a table that is as the change expects it."""

    @pytest.mark.parametrize(
        "requirement",
        [
            AssertTableUUID(uuid=UUID.upper()),
            AssertRefSnapshotId(ref="main", snapshot_id=3),
            AssertRefSnapshotId(ref="new", snapshot_id=None),
            AssertLastAssignedFieldId(last_assigned_field_id=2),
            AssertCurrentSchemaId(current_schema_id=0),
            AssertLastAssignedPartitionId(last_assigned_partition_id=1000),
            AssertDefaultSpecId(default_spec_id=0),
            AssertDefaultSortOrderId(default_sort_order_id=0),
        ],
    )
    def test_what_holds_is_let_through(self, requirement: Requirement) -> None:
        requirement.check(THREE)
        with pytest.raises(CommitConflictError, match="exist"):
            requirement.check(None)

    @pytest.mark.parametrize(
        ("requirement", "problem"),
        [
            (AssertRefSnapshotId(ref="main", snapshot_id=2), "branch 'main' is at snapshot 3, expected 2"),
            (AssertRefSnapshotId(ref="main", snapshot_id=None), "branch 'main' is at snapshot 3, expected none"),
            (AssertRefSnapshotId(ref="b", snapshot_id=2), "branch 'b' does not exist, expected at snapshot 2"),
            (AssertLastAssignedFieldId(last_assigned_field_id=1), "the last assigned field id is 2, expected 1"),
            (AssertCurrentSchemaId(current_schema_id=1), "the current schema id is 0, expected 1"),
            (
                AssertLastAssignedPartitionId(last_assigned_partition_id=999),
                "the last assigned partition id is 1000, expected 999",
            ),
            (AssertDefaultSpecId(default_spec_id=1), "the default partition spec id is 0, expected 1"),
            (AssertDefaultSortOrderId(default_sort_order_id=1), "the default sort order id is 0, expected 1"),
        ],
    )
    def test_what_does_not_says_found_and_expected(self, requirement: Requirement, problem: str) -> None:
        with pytest.raises(CommitConflictError) as error:
            requirement.check(THREE)
        assert str(error.value) == f"requirement failed: {problem}; table s3://b/t was changed by another writer"
        assert not isinstance(error.value, IncompatibleChangeError)

    def test_a_replaced_table_never_comes_back(self) -> None:
        with pytest.raises(IncompatibleChangeError, match="was replaced by another one"):
            AssertTableUUID(uuid="other").check(THREE)

    def test_a_table_that_exists_cannot_be_created(self) -> None:
        AssertCreate().check(None)
        with pytest.raises(IncompatibleChangeError, match="exists already"):
            AssertCreate().check(THREE)

    def test_all_are_checked_before_anything_is_done(self) -> None:
        bad = Change(
            updates=(main(99),), requirements=(AssertTableUUID(uuid=UUID), AssertCurrentSchemaId(current_schema_id=8))
        )
        with pytest.raises(CommitConflictError, match="current schema id"):
            apply_change(THREE, bad, now_ms=0, base_location=None)


class TestTheRestForm:
    """A catalog server gets a change in the words of its protocol."""

    UPDATES = (
        (AssignUUID(uuid=UUID), {"action": "assign-uuid", "uuid": UUID}),
        (UpgradeFormatVersion(format_version=3), {"action": "upgrade-format-version", "format-version": 3}),
        (AddSchema(schema=SCHEMA), {"action": "add-schema", "schema": SCHEMA.to_dict(), "last-column-id": 2}),
        (SetCurrentSchema(), {"action": "set-current-schema", "schema-id": -1}),
        (AddPartitionSpec(spec=PartitionSpec(3, ())), {"action": "add-spec", "spec": {"spec-id": 3, "fields": []}}),
        (SetDefaultSpec(spec_id=3), {"action": "set-default-spec", "spec-id": 3}),
        (
            AddSortOrder(sort_order=SortOrder(0, ())),
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        ),
        (SetDefaultSortOrder(sort_order_id=0), {"action": "set-default-sort-order", "sort-order-id": 0}),
        (AddSnapshot(snapshot=snapshot(1)), {"action": "add-snapshot", "snapshot": snapshot(1).to_dict()}),
        (main(1), {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}),
        (RemoveSnapshots(snapshot_ids=(1, 2)), {"action": "remove-snapshots", "snapshot-ids": [1, 2]}),
        (RemoveSnapshotRef(ref_name="b"), {"action": "remove-snapshot-ref", "ref-name": "b"}),
        (SetLocation(location="l"), {"action": "set-location", "location": "l"}),
        (SetProperties(updates={"a": "b"}), {"action": "set-properties", "updates": {"a": "b"}}),
        (RemoveProperties(removals=("a",)), {"action": "remove-properties", "removals": ["a"]}),
        (
            SetStatistics(snapshot_id=1, statistics={"snapshot-id": 1}),
            {"action": "set-statistics", "snapshot-id": 1, "statistics": {"snapshot-id": 1}},
        ),
    )
    REQUIREMENTS = (
        (AssertCreate(), {"type": "assert-create"}),
        (AssertTableUUID(uuid=UUID), {"type": "assert-table-uuid", "uuid": UUID}),
        (
            AssertRefSnapshotId(ref="b", snapshot_id=None),
            {"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None},
        ),
        (
            AssertLastAssignedFieldId(last_assigned_field_id=1),
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
        ),
        (AssertCurrentSchemaId(current_schema_id=1), {"type": "assert-current-schema-id", "current-schema-id": 1}),
        (
            AssertLastAssignedPartitionId(last_assigned_partition_id=1),
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1},
        ),
        (AssertDefaultSpecId(default_spec_id=1), {"type": "assert-default-spec-id", "default-spec-id": 1}),
        (
            AssertDefaultSortOrderId(default_sort_order_id=1),
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
        ),
    )

    @pytest.mark.parametrize(("update", "expected"), UPDATES, ids=lambda x: type(x).__name__)
    def test_an_update(self, update: Update, expected: dict[str, Any]) -> None:
        assert update.to_dict() == expected

    @pytest.mark.parametrize(("requirement", "expected"), REQUIREMENTS, ids=lambda x: type(x).__name__)
    def test_a_requirement(self, requirement: Requirement, expected: dict[str, Any]) -> None:
        assert requirement.to_dict() == expected

    def test_a_change_is_both(self) -> None:
        document = Change(updates=(SetDefaultSpec(spec_id=3),), requirements=(AssertCreate(),)).to_dict()
        assert document == {
            "requirements": [{"type": "assert-create"}],
            "updates": [{"action": "set-default-spec", "spec-id": 3}],
        }

    def test_pyiceberg_understands_every_one(self) -> None:
        from pydantic import TypeAdapter
        from pyiceberg.table.update import TableRequirement, TableUpdate

        for update, document in self.UPDATES:
            if not isinstance(update, SetStatistics):  # the document above is not a whole one
                TypeAdapter(TableUpdate).validate_python(document)
        for _, document in self.REQUIREMENTS:
            TypeAdapter(TableRequirement).validate_python(document)
