"""Snapshots, references and summaries."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.partitions.spec import PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef, summarize
from tests.support import golden

SCHEMA = schema_from_shorthand({"id": "long", "cat": "string", "x": "double"})
SPEC = spec_from_shorthand(["cat"], SCHEMA)
TOTALS = ("records", "files-size", "data-files", "delete-files", "position-deletes", "equality-deletes")
ZEROS = {f"total-{name}": "0" for name in TOTALS}


def data_file(name: str = "a", *, rows: int = 10, size: int = 100, **more: object) -> DataFile:
    return DataFile(
        file_path=f"{name}.parquet", file_format="parquet", record_count=rows, file_size_in_bytes=size, **more
    )


def position_deletes(name: str = "d", *, rows: int = 3) -> DataFile:
    return data_file(name, rows=rows, size=30, content=FileContent.POSITION_DELETES)


def equality_deletes(name: str = "e", *, rows: int = 2) -> DataFile:
    return data_file(name, rows=rows, size=20, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))


def deletion_vector(*, rows: int = 4) -> DataFile:
    return DataFile(
        content=FileContent.POSITION_DELETES, file_path="v.puffin", file_format="puffin", record_count=rows,
        file_size_in_bytes=5000, content_offset=4, content_size_in_bytes=42, referenced_data_file="a.parquet",
    )  # fmt: skip


class TestTheSummaryOfAChange:
    """Deltas say what came and went; those that are 0 are left out; all values are strings."""

    def test_an_append_counts_files_rows_and_bytes(self) -> None:
        summary = summarize(added=[data_file("a"), data_file("b", rows=5, size=50)], removed=[], previous=None)
        assert summary == {
            "operation": "append",
            "added-data-files": "2",
            "added-records": "15",
            "added-files-size": "150",
            "changed-partition-count": "1",
            **ZEROS,
            "total-records": "15",
            "total-files-size": "150",
            "total-data-files": "2",
        }

    def test_data_files_are_deleted_but_delete_files_are_removed(self) -> None:
        summary = summarize(added=[], removed=[data_file(), position_deletes(), equality_deletes()], previous=None)
        assert {name: value for name, value in summary.items() if name.startswith(("deleted-", "removed-"))} == {
            **{"deleted-data-files": "1", "deleted-records": "10", "removed-files-size": "150"},
            **{"removed-delete-files": "2", "removed-position-deletes": "3", "removed-equality-deletes": "2"},
            **{"removed-position-delete-files": "1", "removed-equality-delete-files": "1"},
        }

    def test_a_deletion_vector_is_a_delete_file_of_the_size_of_its_blob(self) -> None:
        summary = summarize(added=[deletion_vector()], removed=[], previous=None)
        assert {name: value for name, value in summary.items() if name.startswith("added-")} == {
            **{"added-dvs": "1", "added-delete-files": "1", "added-position-deletes": "4", "added-files-size": "42"},
        }

    def test_an_empty_change_has_totals_and_no_deltas(self) -> None:
        assert summarize(added=[], removed=[], previous=None) == {
            "operation": "append",
            "changed-partition-count": "0",
            **ZEROS,
        }

    @pytest.mark.parametrize(("added", "removed", "operation"), [
        ([data_file()], [], "append"), ([], [data_file()], "delete"), ([data_file("b")], [data_file()], "overwrite"),
        ([position_deletes()], [], "delete"), ([data_file(), position_deletes()], [], "overwrite"),
        ([], [position_deletes()], "delete"),
    ])  # fmt: skip
    def test_the_operation_is_derived(self, added: list[DataFile], removed: list[DataFile], operation: str) -> None:
        assert summarize(added=added, removed=removed, previous=None)["operation"] == operation

    def test_a_given_operation_wins(self) -> None:
        summary = summarize(added=[data_file("b")], removed=[data_file()], previous=None, operation="replace")
        assert summary["operation"] == "replace"

    def test_what_is_computed_cannot_be_set_as_a_property(self) -> None:
        given = {"airflow.dag-id": "d", "total-records": "7", "operation": "x", "added-dvs": "3"}
        summary = summarize(added=[data_file()], removed=[], previous=None, properties=given)
        found = [summary.get(name) for name in given]
        assert found == ["d", "10", "append", None]


class TestTotals:
    """A total is the one of the branch's head, plus what came, minus what went."""

    def test_they_go_on_from_the_previous_snapshot(self) -> None:
        before = summarize(added=[data_file("a"), data_file("b")], removed=[], previous=None)
        after = summarize(added=[data_file("c", rows=1, size=9)], removed=[data_file("a")], previous=before)
        assert (after["total-records"], after["total-data-files"], after["total-files-size"]) == ("11", "2", "109")

    def test_one_that_is_not_known_or_would_be_negative_is_left_out(self) -> None:
        summary = summarize(added=[data_file()], removed=[], previous={"operation": "append", "total-records": "5"})
        assert summary["total-records"] == "15"
        assert not [key for key in summary if key.startswith("total-") and key != "total-records"]
        summary = summarize(added=[], removed=[data_file(rows=10)], previous={**ZEROS, "total-records": "9"})
        assert "total-records" not in summary
        assert summary["total-delete-files"] == "0"

    @pytest.mark.parametrize("text", ["", "many", "-3", "1.5", "٣"])
    def test_one_that_is_no_number_is_left_out(self, text: str) -> None:
        assert "total-records" not in summarize(added=[], removed=[], previous={"total-records": text})

    @pytest.mark.parametrize("name", sorted(golden.tables().keys() - {golden.REFUSED}))
    def test_they_agree_with_those_of_iceberg_java(self, name: str) -> None:
        """Java's own totals follow from the totals before and Java's own deltas."""
        from airflow_iceberg.format.snapshots import _totals

        metadata = metadata_json.read(golden.table(name).metadata_path.read_bytes())
        for snapshot in metadata.snapshots:
            parent = metadata.snapshot(snapshot.parent_snapshot_id or 0)
            if parent is None and snapshot.parent_snapshot_id is not None:
                continue  # expired
            totals = _totals(snapshot.summary, None if parent is None else parent.summary)
            assert totals == {key: value for key, value in snapshot.summary.items() if key.startswith("total-")}


class TestPartitionsInTheSummary:
    """How many partitions changed is always told, what changed in each only up to a limit."""

    FILES = (data_file("a", partition=("x",)), data_file("b", partition=("x",)), data_file("c", partition=("y z",)))

    def summary(self, limit: int) -> dict[str, str]:
        return summarize(
            added=self.FILES, removed=[], previous=None, specs={0: SPEC}, schema=SCHEMA, partition_limit=limit
        )

    def test_partitions_are_counted_once_each_by_spec_and_value(self) -> None:
        assert self.summary(0)["changed-partition-count"] == "2"
        files = [data_file("a", partition=("x",)), data_file("b", partition=("x",), spec_id=1)]
        assert summarize(added=files, removed=[], previous=None)["changed-partition-count"] == "2"
        files = [data_file("a", partition=(float("nan"),)), data_file("b", partition=(float("nan"),))]
        assert summarize(added=files, removed=[], previous=None)["changed-partition-count"] == "1"

    def test_up_to_the_limit_each_partition_is_summarized_by_its_path_and_above_none_is(self) -> None:
        summary = self.summary(2)
        assert summary["partition-summaries-included"] == "true"
        assert summary["partitions.cat=x"] == "added-data-files=2,added-records=20,added-files-size=200"
        assert summary["partitions.cat=y+z"] == "added-data-files=1,added-records=10,added-files-size=100"
        assert not [key for key in self.summary(1) if key.startswith("partition")]

    def test_an_unpartitioned_table_has_no_path_to_summarize(self) -> None:
        specs = {0: PartitionSpec(spec_id=0, fields=())}
        summary = summarize(
            added=[data_file()], removed=[], previous=None, specs=specs, schema=SCHEMA, partition_limit=5
        )
        assert not [key for key in summary if key.startswith("partitions.")]


class TestASnapshotInJson:
    """Snapshots are read as they stand and written as Iceberg Java writes them."""

    BARE: ClassVar[Mapping[str, Any]] = {"snapshot-id": 1, "timestamp-ms": 2}
    MINIMAL: ClassVar[Mapping[str, Any]] = {**BARE, "manifest-list": "l"}

    def test_without_an_operation_it_counts_as_an_overwrite(self) -> None:
        snapshot = Snapshot.from_dict({**self.MINIMAL, "summary": {"a": "b"}})
        assert snapshot.operation == "overwrite"

    def test_v1_may_embed_the_manifests(self) -> None:
        snapshot = Snapshot.from_dict({**self.BARE, "manifests": ["m1", "m2"]})
        assert (snapshot.manifest_list, snapshot.manifests, snapshot.sequence_number) == (None, ("m1", "m2"), 0)

    @pytest.mark.parametrize("more", [
        {"manifest-list": "l", "summary": {"a": "b"}}, {"manifests": ["m1", "m2"]},
        {"manifest-list": "l", "from-the-future": {"x": [1]}},
    ])  # fmt: skip
    def test_it_is_written_back_with_unknown_keys(self, more: dict[str, Any]) -> None:
        assert Snapshot.from_dict({**self.BARE, **more}).to_dict() == {**self.BARE, **more}

    @pytest.mark.parametrize(("document", "message"), [
        (
            {**MINIMAL, "timestamp-ms": True},
            r"unexpected type bool \(expected int\) in 's\[3\]\.timestamp-ms' of m$",
        ),
        ({**MINIMAL, "summary": {"n": 1}}, r"expected str.* in 's\[3\]\.summary\.n'"), (BARE, "manifest-list"),
    ])  # fmt: skip
    def test_what_is_wrong_is_named(self, document: dict[str, Any], message: str) -> None:
        with pytest.raises(FormatError, match=message):
            Snapshot.from_dict(document, path="m", where="s[3]")


class TestReferences:
    """A branch moves and keeps snapshots; a tag keeps one."""

    def test_it_is_written_without_what_is_not_set(self) -> None:
        assert SnapshotRef(snapshot_id=5).to_dict() == {"snapshot-id": 5, "type": "branch"}
        document = {"snapshot-id": 5, "type": "tag", "max-ref-age-ms": 7}
        assert SnapshotRef.from_dict(document).to_dict() == document

    def test_a_tag_keeps_no_older_snapshots(self) -> None:
        with pytest.raises(InvalidInputError, match="for branches"):
            SnapshotRef(snapshot_id=5, type="tag", min_snapshots_to_keep=2)

    @pytest.mark.parametrize("name", ["min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms"])
    def test_retention_is_positive(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match="expected at least 1"):
            SnapshotRef(snapshot_id=5, **{name: 0})

    @pytest.mark.parametrize("name", ["min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms"])
    def test_retention_can_be_read_by_others(self, name: str) -> None:
        most = 2**31 - 1 if name == "min_snapshots_to_keep" else 2**63 - 1
        ref = SnapshotRef(snapshot_id=5, **{name: most})
        assert SnapshotRef.from_dict(ref.to_dict()) == ref
        with pytest.raises(InvalidInputError, match=f"expected at most {most}"):
            SnapshotRef(snapshot_id=5, **{name: most + 1})

    def test_another_type_in_a_file_is_a_format_error(self) -> None:
        with pytest.raises(FormatError, match=r"in 'refs\.x\.type' of m"):
            SnapshotRef.from_dict({"snapshot-id": 5, "type": "leaf"}, path="m", where="refs.x")
