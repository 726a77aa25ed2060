"""What the table in an answer lacks of what was asked, update by update."""

from dataclasses import replace

import pytest

from airflow_iceberg.catalogs.rest.differences import is_another, of_change, of_creation
from airflow_iceberg.format.metadata import updates as changed
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import Change, Update, apply_change
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand

SCHEMA = schema_from_shorthand({"id": "long not null", "day": "date"})
WIDER = schema_from_shorthand({"id": "long not null", "day": "date", "n": "int"})
SPEC = spec_from_shorthand(["day(day)"], SCHEMA)
ORDER = sort_order_from_shorthand(["id"], SCHEMA)


def snapshot(number: int, parent: int | None = None) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=number,
        manifest_list=f"s3://lake/{number}.avro",
        summary={"operation": "append"},
        schema_id=0,
    )


def to(name: str, number: int, kind: str = "branch") -> Update:
    return changed.SetSnapshotRef(ref_name=name, ref=SnapshotRef(snapshot_id=number, type=kind))


def after(metadata: TableMetadata, *updates: Update) -> TableMetadata:
    return apply_change(metadata, Change(updates=updates), now_ms=5, base_location=None)


def table(version: int = 2, **properties: str) -> TableMetadata:
    return new_table_metadata(
        location="s3://lake/db/t",
        schema=SCHEMA,
        properties=properties,
        table_uuid="6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0001",
        now_ms=1,
        format_version=version,
    )


BASE = after(
    table(p="1"),
    changed.AddSnapshot(snapshot=snapshot(1)),
    changed.AddSnapshot(snapshot=snapshot(2, 1)),
    to(MAIN_BRANCH, 2),
    to("v1", 1, "tag"),
    changed.AddSchema(schema=WIDER),
    changed.AddPartitionSpec(spec=SPEC),
)
CHANGES: dict[str, tuple[Update, ...]] = {
    "uuid": (changed.AssignUUID(uuid="6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0002"),),
    "format version 2, asked was 3": (changed.UpgradeFormatVersion(format_version=3),),
    "the old schema": (changed.AddSchema(schema=WIDER), changed.SetCurrentSchema()),
    "the old partition spec": (changed.AddPartitionSpec(spec=SPEC), changed.SetDefaultSpec()),
    "the old sort order": (changed.AddSortOrder(sort_order=ORDER), changed.SetDefaultSortOrder()),
    "snapshot 3 is missing": (changed.AddSnapshot(snapshot=snapshot(3, 2)),),
    "branch 'main' is at snapshot 2, asked was 4": (changed.AddSnapshot(snapshot=snapshot(4, 2)), to(MAIN_BRANCH, 4)),
    "branch 'audit' is missing, and main is at snapshot 2": (to("audit", 2),),
    "tag 'v2' is missing": (to("v2", 2, "tag"),),
    "'v1' is still there": (changed.RemoveSnapshotRef(ref_name="v1"),),
    "snapshots are still there: 1": (changed.RemoveSnapshots(snapshot_ids=(1,)),),
    "schemas are still there: 1": (changed.RemoveSchemas(schema_ids=(1,)),),
    "partition specs are still there: 1": (changed.RemovePartitionSpecs(spec_ids=(1,)),),
    "location": (changed.SetLocation(location="s3://lake/other"),),
    "other values: q": (changed.SetProperties(updates={"q": "7"}),),
    "properties are still there: p": (changed.RemoveProperties(removals=("p", "never")),),
    "statistics of snapshot 1": (changed.SetStatistics(snapshot_id=1, statistics={"snapshot-id": 1}),),
}


def test_each_update_is_looked_up() -> None:
    tried = {update.action for updates in CHANGES.values() for update in updates}
    assert tried == {kind.action for kind in Update.__subclasses__()}
    for words, updates in CHANGES.items():
        change, asked = Change(updates=updates), after(BASE, *updates)
        assert of_change(asked, BASE, change, asked) == []
        (missing,) = of_change(BASE, BASE, change, asked)
        assert words in missing


def test_what_a_change_takes_back_itself_is_not_asked_for() -> None:
    updates = (
        to("for-a-moment", 2, "tag"),
        changed.RemoveSnapshotRef(ref_name="for-a-moment"),
        changed.SetProperties(updates={"q": "1", "r": "1"}),
        changed.RemoveProperties(removals=("q",)),
        changed.RemoveSnapshotRef(ref_name="v1"),
        to("v1", 2, "tag"),
    )
    asked = after(BASE, *updates)
    assert of_change(asked, BASE, Change(updates=updates), asked) == []


def test_a_table_on_which_others_go_on_has_what_was_asked() -> None:
    rows = (changed.AddSnapshot(snapshot=snapshot(3, 2)), to(MAIN_BRANCH, 3))
    asked = after(BASE, *rows)
    later = after(asked, changed.AddSnapshot(snapshot=snapshot(4, 3)), to(MAIN_BRANCH, 4))
    assert of_change(later, BASE, Change(updates=rows), asked) == []
    short = replace(
        later, snapshots=later.snapshots[-1:], refs={MAIN_BRANCH: later.refs[MAIN_BRANCH]}
    )  # Nessie shows one snapshot
    assert of_change(short, BASE, Change(updates=rows), asked) == []
    shape = CHANGES["the old schema"]
    asked = after(BASE, *shape)
    newer = schema_from_shorthand({"id": "long not null", "day": "date", "n": "int", "o": "int"})
    later = after(asked, changed.AddSchema(schema=newer), changed.SetCurrentSchema())
    assert of_change(later, BASE, Change(updates=shape), asked) == []


ASKED = table(a="TRUE", b="s3://x/y/")


@pytest.mark.parametrize(
    ("found", "missing", "is_other"),
    [
        (table(a="TRUE", b="s3://x/y/"), None, False),
        (table(a="true", b="s3://x/y", owner="server"), None, False),
        (table(a="TRUE"), "other values: b", False),
        (table(a="no", b="s3://x/y/"), "other values: a", True),
        (table(3, a="TRUE", b="s3://x/y/"), "format version 3, asked was 2", False),
        (after(ASKED, *CHANGES["the old partition spec"]), "spec", False),
        (after(ASKED, *CHANGES["the old sort order"]), "order", False),
        (after(ASKED, *CHANGES["the old schema"]), "schema", True),
        (BASE, "other values: a, b", True),
    ],
)
def test_creations(found: TableMetadata, missing: str | None, is_other: bool) -> None:
    told = "; ".join(of_creation(found, ASKED))
    assert missing in told if missing else not told
    assert is_another(found, ASKED) == is_other


def test_what_a_table_knew_before_is_no_work_of_others() -> None:
    """A branch that was not set back, or a shape that was not set: no other writer has gone on from it."""
    newer = after(BASE, changed.AddSortOrder(sort_order=ORDER), changed.SetDefaultSortOrder())
    old_order = changed.SetDefaultSortOrder(sort_order_id=0)
    other = sort_order_from_shorthand(["id desc"], SCHEMA)
    for base, updates, made, words in (
        (BASE, (to(MAIN_BRANCH, 1),), BASE, "branch 'main' is at snapshot 2, asked was 1"),
        (BASE, (to(MAIN_BRANCH, 1),), after(BASE, to("v2", 1, "tag")), "branch 'main' is at snapshot 2, asked was 1"),
        (
            newer,
            (changed.AddSortOrder(sort_order=other), changed.SetDefaultSortOrder()),
            after(newer, changed.AddSortOrder(sort_order=other), old_order),
            "it has another sort order",
        ),
    ):
        asked = after(base, *updates)
        assert of_change(made, base, Change(updates=updates), asked) == [words]
        assert of_change(asked, base, Change(updates=updates), asked) == []


def test_how_long_a_branch_or_tag_is_kept_is_looked_up() -> None:
    aging = changed.SetSnapshotRef(ref_name="v1", ref=SnapshotRef(snapshot_id=1, type="tag", max_ref_age_ms=7))
    change, asked = Change(updates=(aging,)), after(BASE, aging)
    assert of_change(asked, BASE, change, asked) == []
    assert of_change(BASE, BASE, change, asked) == ["tag 'v1' is kept for another time than was asked"]
    others = changed.SetSnapshotRef(ref_name="v1", ref=SnapshotRef(snapshot_id=1, type="tag", max_ref_age_ms=9))
    assert of_change(after(BASE, others), BASE, change, asked) == []


def test_files_of_a_snapshot_are_looked_up() -> None:
    old, new = ({"snapshot-id": 1, "statistics-path": f"s3://lake/{name}.puffin"} for name in ("old", "new"))
    base = after(BASE, changed.SetStatistics(snapshot_id=1, statistics=old))
    change = Change(updates=(changed.SetStatistics(snapshot_id=1, statistics=new),))
    (found,) = of_change(base, base, change, after(base, *change.updates))
    assert found == "the statistics of snapshot 1 are in s3://lake/old.puffin, asked was s3://lake/new.puffin"
    added = Change(updates=(changed.AddSnapshot(snapshot=snapshot(3, 2)), to(MAIN_BRANCH, 3)))
    asked, another = after(BASE, *added.updates), replace(snapshot(3, 2), manifest_list="s3://lake/x.avro")
    found = of_change(after(BASE, changed.AddSnapshot(snapshot=another), to(MAIN_BRANCH, 3)), BASE, added, asked)
    assert found == ["snapshot 3 has the manifest list s3://lake/x.avro, not s3://lake/3.avro"]
