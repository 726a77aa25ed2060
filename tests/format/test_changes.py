"""Updates, requirements, and what a change makes of a table."""

from dataclasses import replace
from typing import Any

import pytest

from airflow_iceberg.errors import CommitConflictError, IncompatibleChangeError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata import requirements as r
from airflow_iceberg.format.metadata import updates as u
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
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


def main(number: int) -> u.SetSnapshotRef:
    return u.SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=number))


def change(
    base: TableMetadata, *updates: u.Update, now_ms: int = 9000, location: str | None = "0.json"
) -> TableMetadata:
    return u.apply_change(base, u.Change(updates=updates), now_ms=now_ms, base_location=location)


def commit(base: TableMetadata, number: int, parent: int | None = None) -> TableMetadata:
    """Append as the engine does: a new snapshot, and main on it."""
    return change(base, u.AddSnapshot(snapshot=snapshot(number, parent)), main(number), now_ms=1000 * number)


THREE = commit(commit(commit(EMPTY, 1), 2, 1), 3, 2)


class TestACommit:
    """A snapshot is added and a branch moved to it."""

    def test_the_table_is_at_the_new_snapshot_and_the_base_stays_as_it_was(self) -> None:
        after = commit(EMPTY, 1)
        assert after.current_snapshot() == snapshot(1)
        assert (after.current_snapshot_id, after.refs["main"].snapshot_id) == (1, 1)
        assert (after.last_sequence_number, after.last_updated_ms) == (1, 1000)
        before = metadata_json.to_dict(EMPTY)
        commit(EMPTY, 1)
        assert metadata_json.to_dict(EMPTY) == before

    def test_each_metadata_file_names_the_one_before_if_it_is_kept(self) -> None:
        assert THREE.metadata_log == ((1000, "0.json"), (1000, "0.json"), (2000, "0.json"))
        assert change(EMPTY, u.SetProperties(updates={"a": "b"}), location=None).metadata_log == ()

    def test_nothing_changed_is_the_base_itself(self) -> None:
        assert change(THREE) is THREE
        assert change(THREE, main(3), u.SetProperties(updates={}), u.RemoveProperties(removals=("none",))) is THREE

    def test_unknown_keys_and_keys_of_encryption_survive(self) -> None:
        base = replace(EMPTY, unknown={"x": 1}, encryption_keys=({"key-id": "k"},))
        after = commit(base, 1)
        assert (after.unknown, after.encryption_keys) == ({"x": 1}, ({"key-id": "k"},))


class TestTime:
    """A table's time never goes backwards, whatever the clocks of its writers say."""

    def test_a_clock_behind_the_table_does_not_turn_it_back(self) -> None:
        assert change(THREE, u.SetProperties(updates={"a": "b"}), now_ms=5).last_updated_ms == THREE.last_updated_ms

    def test_a_snapshot_of_another_time(self) -> None:
        late = snapshot(4, 3, timestamp_ms=99_000)
        after = change(THREE, u.AddSnapshot(snapshot=late), main(4), now_ms=4000)
        assert (after.snapshot_log[-1], after.last_updated_ms) == ((99_000, 4), 99_000)
        early = snapshot(4, 3, timestamp_ms=10)
        after = change(THREE, u.AddSnapshot(snapshot=early), main(4), now_ms=10)
        assert [ms for ms, _ in after.snapshot_log] == [1000, 2000, 3000, 3000]


class TestTheMetadataLog:
    """It is trimmed to `write.metadata.previous-versions-max`."""

    def test_the_oldest_fall_off(self) -> None:
        base = replace(
            THREE, metadata_log=((1, "a"), (2, "b")), properties={"write.metadata.previous-versions-max": "2"}
        )
        after = change(base, u.SetProperties(updates={"x": "y"}), location="c")
        assert [file for _, file in after.metadata_log] == ["b", "c"]

    @pytest.mark.parametrize("keep", ["0", "-5"])
    def test_one_is_always_kept(self, keep: str) -> None:
        after = change(THREE, u.SetProperties(updates={"write.metadata.previous-versions-max": keep}), location="c")
        assert [file for _, file in after.metadata_log] == ["c"]

    def test_a_hundred_are_kept_by_default(self) -> None:
        base = replace(EMPTY, metadata_log=tuple((i, str(i)) for i in range(150)))
        assert len(change(base, u.SetProperties(updates={"x": "y"})).metadata_log) == 100


class TestTheSnapshotLog:
    """It tells when main was where, without holes."""

    def test_each_move_of_main_is_logged_with_its_time(self) -> None:
        assert THREE.snapshot_log == ((1000, 1), (2000, 2), (3000, 3))
        assert change(THREE, main(1), now_ms=9000).snapshot_log[-1] == (9000, 1)

    def test_only_moves_of_main_are_logged(self) -> None:
        other = u.SetSnapshotRef(ref_name="audit", ref=SnapshotRef(snapshot_id=4))
        after = change(THREE, u.AddSnapshot(snapshot=snapshot(4, 3)), other)
        assert after.snapshot_log == THREE.snapshot_log
        assert (after.current_snapshot_id, after.refs["audit"].snapshot_id) == (3, 4)
        kept = u.SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=3, min_snapshots_to_keep=5))
        after = change(THREE, kept)
        assert (after.snapshot_log, after.refs["main"].min_snapshots_to_keep) == (THREE.snapshot_log, 5)

    def test_steps_inside_one_change_are_not_logged(self) -> None:
        steps = (u.AddSnapshot(snapshot=snapshot(4, 3)), main(4), u.AddSnapshot(snapshot=snapshot(5, 4)), main(5))
        assert change(THREE, *steps).snapshot_log == (*THREE.snapshot_log, (5000, 5))

    def test_nothing_before_a_removed_snapshot_stays(self) -> None:
        back = change(THREE, main(1), now_ms=8000)
        assert change(back, u.RemoveSnapshots(snapshot_ids=(2,))).snapshot_log == ((3000, 3), (8000, 1))
        assert change(THREE, u.RemoveSnapshots(snapshot_ids=(1,))).snapshot_log == ((2000, 2), (3000, 3))


class TestAddingSnapshots:
    """Ids are new; numbers go up."""

    @pytest.mark.parametrize("number", [0, 3])
    def test_a_number_that_is_taken_means_that_somebody_was_faster(self, number: int) -> None:
        with pytest.raises(CommitConflictError, match=f"sequence number {number} of snapshot 4 is not above 3"):
            change(THREE, u.AddSnapshot(snapshot=snapshot(4, 3, sequence_number=number)))

    def test_the_last_number_never_goes_down(self) -> None:
        after = change(THREE, u.AddSnapshot(snapshot=snapshot(4, None, sequence_number=1)))
        assert after.last_sequence_number == 3
        after = change(THREE, u.AddSnapshot(snapshot=snapshot(4, 3)))
        assert (after.last_sequence_number, after.current_snapshot_id) == (4, 3)

    def test_v1_has_no_numbers(self) -> None:
        v1 = replace(EMPTY, format_version=1)
        after = change(v1, u.AddSnapshot(snapshot=snapshot(1, sequence_number=0)), main(1))
        after = change(after, u.AddSnapshot(snapshot=snapshot(2, 1, sequence_number=0)), main(2))
        assert (after.last_sequence_number, after.current_snapshot_id) == (0, 2)


class TestRowLineage:
    """v3: each snapshot takes the row ids that it says, from the next free one on."""

    V3 = change(EMPTY, u.UpgradeFormatVersion(format_version=3))

    def test_ids_count_from_0_and_the_next_one_is_after_those_taken(self) -> None:
        assert (EMPTY.next_row_id, self.V3.next_row_id) == (None, 0)
        after = change(self.V3, u.AddSnapshot(snapshot=snapshot(1, first_row_id=0, added_rows=30)))
        after = change(after, u.AddSnapshot(snapshot=snapshot(2, 1, first_row_id=30, added_rows=5)))
        assert after.next_row_id == 35

    def test_ids_that_are_taken_mean_that_somebody_was_faster(self) -> None:
        base = change(self.V3, u.AddSnapshot(snapshot=snapshot(1, first_row_id=0, added_rows=30)))
        with pytest.raises(CommitConflictError, match="first-row-id 10 of snapshot 2 is below 30"):
            change(base, u.AddSnapshot(snapshot=snapshot(2, 1, first_row_id=10, added_rows=5)))


class TestRefusedUpdates:
    """An update that the table cannot have is refused, and says why."""

    NARROW = u.AddSchema(schema=Schema(fields=EMPTY.schema().fields[:1], schema_id=0))
    NANOSECONDS = u.AddSchema(schema=schema_from_shorthand({"id": "long", "n": "int", "t": "timestamp_ns"}))
    ZORDER = PartitionField(source_id=1, field_id=1001, name="z", transform=UnknownTransform("zorder[2]"))
    TAG = SnapshotRef(snapshot_id=3, type="tag")

    @pytest.mark.parametrize(("updates", "message"), [
        ([u.AddSnapshot(snapshot=snapshot(3, 2, sequence_number=9))], "snapshot 3 is in table s3://b/t already"),
        ([u.UpgradeFormatVersion(format_version=3), u.AddSnapshot(snapshot=snapshot(4, 3))], "no first-row-id"),
        ([main(9)], "unknown snapshot 9 for branch 'main'"),
        ([u.SetSnapshotRef(ref_name="main", ref=TAG)], "must be a branch"),
        ([u.SetCurrentSchema()], "no schema was added"), ([u.SetCurrentSchema(schema_id=5)], "unknown schema id 5"),
        ([NARROW, u.SetCurrentSchema()], "no column with field id 2"), ([NANOSECONDS], "needs format version 3"),
        ([u.AddPartitionSpec(spec=PartitionSpec(0, (ZORDER,))), u.SetDefaultSpec()], "unknown transform"),
        ([u.UpgradeFormatVersion(format_version=1)], "cannot be downgraded to 1"),
        ([u.SetProperties(updates={"write.metadata.previous-versions-max": "few"})], "previous-versions-max"),
    ])  # fmt: skip
    def test_it_is_named(self, updates: list[u.Update], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            change(THREE, *updates)


class TestBranchesAndTags:
    """Without its branches a table keeps its snapshots."""

    def test_a_removed_branch_leaves_its_snapshots(self) -> None:
        base = change(THREE, u.SetSnapshotRef(ref_name="b", ref=SnapshotRef(snapshot_id=2)))
        after = change(base, u.RemoveSnapshotRef(ref_name="b"), u.RemoveSnapshotRef(ref_name="never was"))
        assert (set(after.refs), len(after.snapshots)) == ({"main"}, 3)
        assert change(THREE, u.RemoveSnapshotRef(ref_name="main")).current_snapshot() is None


class TestRemovingSnapshots:
    """With a snapshot go its statistics and the branches and tags that point to it."""

    def test_what_points_to_it_goes(self) -> None:
        tag = u.SetSnapshotRef(ref_name="t", ref=SnapshotRef(snapshot_id=1, type="tag"))
        statistics = [{"snapshot-id": i, "statistics-path": f"{i}.puffin"} for i in (1, 3)]
        base = change(THREE, tag, *(u.SetStatistics(snapshot_id=s["snapshot-id"], statistics=s) for s in statistics))
        base = replace(base, partition_statistics=tuple(statistics))
        after = change(base, u.RemoveSnapshots(snapshot_ids=(1, 77)))
        assert [s.snapshot_id for s in after.snapshots] == [2, 3]
        assert set(after.refs) == {"main"}
        assert (after.statistics, after.partition_statistics) == ((statistics[1],), (statistics[1],))


class TestStatistics:
    """One statistics file a snapshot."""

    def test_a_newer_one_replaces_the_older_one(self) -> None:
        base = change(THREE, u.SetStatistics(snapshot_id=3, statistics={"snapshot-id": 3, "statistics-path": "a"}))
        after = change(base, u.SetStatistics(snapshot_id=3, statistics={"snapshot-id": 3, "statistics-path": "b"}))
        assert [s["statistics-path"] for s in after.statistics] == ["b"]


class TestSchemas:
    """Ids are chosen by the table; an equal schema is reused; column ids are never used again."""

    WIDER = Schema(fields=(*EMPTY.schema().fields, NestedField(id=3, name="s", type=StringType())), schema_id=0)

    def test_a_new_schema_gets_the_next_id_and_an_equal_one_is_reused(self) -> None:
        after = change(EMPTY, u.AddSchema(schema=self.WIDER), u.SetCurrentSchema())
        assert (after.current_schema_id, after.last_column_id, len(after.schemas)) == (1, 3, 2)
        wider = change(EMPTY, u.AddSchema(schema=self.WIDER), u.SetCurrentSchema())
        after = change(wider, u.AddSchema(schema=replace(EMPTY.schema(), schema_id=7)), u.SetCurrentSchema())
        assert (after.current_schema_id, after.last_column_id, len(after.schemas)) == (0, 3, 2)

    def test_the_column_of_a_void_field_can_be_dropped(self) -> None:
        void = PartitionSpec(1, (PartitionField(source_id=2, field_id=1000, name="n", transform=VoidTransform()),))
        narrow = Schema(fields=EMPTY.schema().fields[:1], schema_id=0)
        after = change(
            EMPTY, u.AddPartitionSpec(spec=void), u.SetDefaultSpec(), u.AddSchema(schema=narrow), u.SetCurrentSchema()
        )
        assert (after.default_spec_id, after.current_schema_id) == (1, 1)

    def test_types_of_v3_are_added_with_the_upgrade(self) -> None:
        upgrade = u.UpgradeFormatVersion(format_version=3)
        assert change(EMPTY, upgrade, TestRefusedUpdates.NANOSECONDS).last_column_id == 3


class TestSpecsAndOrders:
    """Ids are chosen by the table; an equal one is reused."""

    BUCKETS = PartitionSpec(
        0, tuple(replace(f, field_id=1001) for f in spec_from_shorthand(["bucket(4, id)"], SCHEMA).fields)
    )

    def test_a_new_spec_gets_the_next_id_and_an_equal_one_is_reused(self) -> None:
        after = change(EMPTY, u.AddPartitionSpec(spec=self.BUCKETS), u.SetDefaultSpec())
        assert (after.default_spec_id, after.last_partition_id) == (1, 1001)
        assert change(EMPTY, u.AddPartitionSpec(spec=replace(EMPTY.spec(), spec_id=9)), u.SetDefaultSpec()) is EMPTY
        wide = change(EMPTY, u.AddPartitionSpec(spec=self.BUCKETS), u.SetDefaultSpec())
        after = change(wide, u.AddPartitionSpec(spec=PartitionSpec(0, ())), u.SetDefaultSpec())
        assert (after.default_spec_id, after.last_partition_id) == (2, 1001)

    def test_a_new_order_gets_the_next_id_and_unsorted_is_0(self) -> None:
        order = sort_order_from_shorthand(["id desc"], SCHEMA)
        after = change(EMPTY, u.AddSortOrder(sort_order=order), u.SetDefaultSortOrder())
        assert (after.default_sort_order_id, after.sort_order().fields) == (1, order.fields)
        after = change(after, u.AddSortOrder(sort_order=SortOrder(0, ())), u.SetDefaultSortOrder())
        assert (after.default_sort_order_id, len(after.sort_orders)) == (0, 2)


class TestTheRest:
    """Identity, location, format version and properties."""

    def test_the_format_version_only_goes_up(self) -> None:
        assert change(EMPTY, u.UpgradeFormatVersion(format_version=2)) is EMPTY
        with pytest.raises(UnsupportedError, match="format version 4"):
            change(EMPTY, u.UpgradeFormatVersion(format_version=4))
        after = change(EMPTY, u.SetProperties(updates={"format-version": "3", "a": "b"}))
        assert (after.format_version, after.properties) == (3, {"a": "b"})

    @pytest.mark.parametrize("key", ["uuid", "snapshot-count", "current-snapshot-id", "current-schema"])
    def test_words_for_fields_are_never_kept_as_properties(self, key: str) -> None:
        assert change(EMPTY, u.SetProperties(updates={key: "1"})) is EMPTY

    def test_properties_location_and_uuid_are_set(self) -> None:
        base = change(EMPTY, u.SetProperties(updates={"a": "1", "b": "2"}))
        after = change(base, u.SetProperties(updates={"a": "3"}), u.RemoveProperties(removals=("b",)))
        assert (base.properties, after.properties) == ({"a": "1", "b": "2"}, {"a": "3"})
        after = change(EMPTY, u.SetLocation(location="s3://c/u"), u.AssignUUID(uuid="other"))
        assert (after.location, after.table_uuid) == ("s3://c/u", "other")

    def test_v2_needs_the_uuid_that_old_v1_tables_lack(self) -> None:
        old = replace(EMPTY, format_version=1, table_uuid=None)
        with pytest.raises(InvalidInputError, match="no uuid"):
            change(old, u.UpgradeFormatVersion(format_version=2))
        assert change(old, u.AssignUUID(uuid=UUID), u.UpgradeFormatVersion(format_version=2)).table_uuid == UUID


class TestRequirements:
    """A change is applied only to a table that is as the change expects it."""

    # Requirement of an id, its field, the id that the table has, and the name of the id in messages.
    IDS = (
        (r.AssertLastAssignedFieldId, "last_assigned_field_id", 2, "last assigned field id"),
        (r.AssertCurrentSchemaId, "current_schema_id", 0, "current schema id"),
        (r.AssertLastAssignedPartitionId, "last_assigned_partition_id", 1000, "last assigned partition id"),
        (r.AssertDefaultSpecId, "default_spec_id", 0, "default partition spec id"),
        (r.AssertDefaultSortOrderId, "default_sort_order_id", 0, "default sort order id"),
    )

    @pytest.mark.parametrize("requirement", [
        r.AssertTableUUID(uuid=UUID.upper()), r.AssertRefSnapshotId(ref="main", snapshot_id=3),
        r.AssertRefSnapshotId(ref="new", snapshot_id=None), *(kind(**{field: found}) for kind, field, found, _ in IDS),
    ])  # fmt: skip
    def test_what_holds_is_let_through(self, requirement: r.Requirement) -> None:
        requirement.check(THREE)
        with pytest.raises(CommitConflictError, match="exist"):
            requirement.check(None)

    @pytest.mark.parametrize(("requirement", "problem"), [
        (r.AssertRefSnapshotId(ref="main", snapshot_id=2), "branch 'main' is at snapshot 3, expected 2"),
        (r.AssertRefSnapshotId(ref="main", snapshot_id=None), "branch 'main' is at snapshot 3, expected none"),
        (r.AssertRefSnapshotId(ref="b", snapshot_id=2), "branch 'b' does not exist, expected at snapshot 2"),
        *((kind(**{field: 7}), f"the {what} is {found}, expected 7") for kind, field, found, what in IDS),
    ])  # fmt: skip
    def test_what_does_not_says_found_and_expected(self, requirement: r.Requirement, problem: str) -> None:
        with pytest.raises(CommitConflictError) as error:
            requirement.check(THREE)
        assert str(error.value) == f"requirement failed: {problem}; table s3://b/t was changed by another writer"
        assert not isinstance(error.value, IncompatibleChangeError)

    def test_the_table_must_be_the_same_or_not_exist(self) -> None:
        with pytest.raises(IncompatibleChangeError, match="was replaced by another one"):
            r.AssertTableUUID(uuid="other").check(THREE)
        r.AssertCreate().check(None)
        with pytest.raises(IncompatibleChangeError, match="exists already"):
            r.AssertCreate().check(THREE)

    def test_all_are_checked_before_anything_is_done(self) -> None:
        bad = u.Change(
            updates=(main(99),),
            requirements=(r.AssertTableUUID(uuid=UUID), r.AssertCurrentSchemaId(current_schema_id=8)),
        )
        with pytest.raises(CommitConflictError, match="current schema id"):
            u.apply_change(THREE, bad, now_ms=0, base_location=None)


class TestTheRestForm:
    """A catalog server gets a change in the words of its protocol."""

    UPDATES = (
        (u.AssignUUID(uuid=UUID), {"action": "assign-uuid", "uuid": UUID}),
        (u.UpgradeFormatVersion(format_version=3), {"action": "upgrade-format-version", "format-version": 3}),
        (u.AddSchema(schema=SCHEMA), {"action": "add-schema", "schema": SCHEMA.to_dict(), "last-column-id": 2}),
        (u.SetCurrentSchema(), {"action": "set-current-schema", "schema-id": -1}),
        (u.AddPartitionSpec(spec=PartitionSpec(3, ())), {"action": "add-spec", "spec": {"spec-id": 3, "fields": []}}),
        (u.SetDefaultSpec(spec_id=3), {"action": "set-default-spec", "spec-id": 3}),
        (
            u.AddSortOrder(sort_order=SortOrder(0, ())),
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        ),
        (u.SetDefaultSortOrder(sort_order_id=0), {"action": "set-default-sort-order", "sort-order-id": 0}),
        (u.AddSnapshot(snapshot=snapshot(1)), {"action": "add-snapshot", "snapshot": snapshot(1).to_dict()}),
        (main(1), {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}),
        (u.RemoveSnapshots(snapshot_ids=(1, 2)), {"action": "remove-snapshots", "snapshot-ids": [1, 2]}),
        (u.RemoveSnapshotRef(ref_name="b"), {"action": "remove-snapshot-ref", "ref-name": "b"}),
        (u.SetLocation(location="l"), {"action": "set-location", "location": "l"}),
        (u.SetProperties(updates={"a": "b"}), {"action": "set-properties", "updates": {"a": "b"}}),
        (u.RemoveProperties(removals=("a",)), {"action": "remove-properties", "removals": ["a"]}),
        (
            u.SetStatistics(snapshot_id=1, statistics={"snapshot-id": 1}),
            {"action": "set-statistics", "snapshot-id": 1, "statistics": {"snapshot-id": 1}},
        ),
    )
    REQUIREMENTS = (
        (r.AssertCreate(), {"type": "assert-create"}),
        (r.AssertTableUUID(uuid=UUID), {"type": "assert-table-uuid", "uuid": UUID}),
        (
            r.AssertRefSnapshotId(ref="b", snapshot_id=None),
            {"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None},
        ),
        *(
            (kind(**{name.replace("-", "_"): 1}), {"type": f"assert-{name}", name: 1})
            for kind, name in (
                (r.AssertLastAssignedFieldId, "last-assigned-field-id"),
                (r.AssertCurrentSchemaId, "current-schema-id"),
                (r.AssertLastAssignedPartitionId, "last-assigned-partition-id"),
                (r.AssertDefaultSpecId, "default-spec-id"),
                (r.AssertDefaultSortOrderId, "default-sort-order-id"),
            )
        ),
    )

    @pytest.mark.parametrize(("update", "expected"), UPDATES, ids=lambda x: type(x).__name__)
    def test_an_update(self, update: u.Update, expected: dict[str, Any]) -> None:
        assert update.to_dict() == expected

    @pytest.mark.parametrize(("requirement", "expected"), REQUIREMENTS, ids=lambda x: type(x).__name__)
    def test_a_requirement(self, requirement: r.Requirement, expected: dict[str, Any]) -> None:
        assert requirement.to_dict() == expected

    def test_a_change_is_both(self) -> None:
        document = u.Change(updates=(u.SetDefaultSpec(spec_id=3),), requirements=(r.AssertCreate(),)).to_dict()
        assert document == {
            "requirements": [{"type": "assert-create"}],
            "updates": [{"action": "set-default-spec", "spec-id": 3}],
        }

    def test_pyiceberg_understands_every_one(self) -> None:
        from pydantic import TypeAdapter
        from pyiceberg.table.update import TableRequirement, TableUpdate

        for update, document in self.UPDATES:
            if not isinstance(update, u.SetStatistics):  # the document above is not a whole one
                TypeAdapter(TableUpdate).validate_python(document)
        for _, document in self.REQUIREMENTS:
            TypeAdapter(TableRequirement).validate_python(document)
