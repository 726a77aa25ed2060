"""What a sensor waits for: snapshots that are news on a branch."""

import subprocess
import sys
from uuid import UUID

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, RemoveSnapshots, SetSnapshotRef, apply_change
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.plan.new_snapshot import MAINTENANCE, SnapshotCondition, find_snapshot


class History:
    """A table whose snapshots are numbered in the order of their commits; commit n is at n * 1000 ms."""

    def __init__(self, format_version: int = 2) -> None:
        schema = schema_from_shorthand({"id": "long"})
        self.metadata: TableMetadata = new_table_metadata(
            location="memory://t", schema=schema, table_uuid=str(UUID(int=1)), now_ms=0, format_version=format_version
        )
        self.count = 0

    def commit(
        self, operation: str = "append", *, branch: str = "main", parent: int | None = None, **summary: str
    ) -> int:
        self.count += 1
        head = self.metadata.refs.get(branch)
        base = parent or (head.snapshot_id if head else None)
        snapshot = Snapshot(
            snapshot_id=self.count,
            parent_snapshot_id=base,
            sequence_number=self.metadata.last_sequence_number + 1 if self.metadata.format_version > 1 else 0,
            timestamp_ms=self.count * 1000,
            manifest_list="memory://t/list",
            summary={"operation": operation, **summary},
        )
        self._apply(AddSnapshot(snapshot=snapshot), set_ref(branch, self.count))
        return self.count

    def move(self, branch: str, snapshot_id: int) -> None:
        self._apply(set_ref(branch, snapshot_id))

    def expire(self, *snapshot_ids: int) -> None:
        self._apply(RemoveSnapshots(snapshot_ids=snapshot_ids))

    def _apply(self, *updates: object) -> None:
        change = Change(updates=updates, requirements=())
        self.metadata = apply_change(self.metadata, change, now_ms=self.count * 1000, base_location=None)

    def find(self, **condition: object) -> int | None:
        found = find_snapshot(self.metadata, SnapshotCondition(**condition))  # type: ignore[arg-type]
        return None if found is None else found.snapshot_id


def set_ref(branch: str, snapshot_id: int) -> SetSnapshotRef:
    return SetSnapshotRef(ref_name=branch, ref=SnapshotRef(snapshot_id=snapshot_id, type="branch"))


@pytest.fixture
def history() -> History:
    return History()


class TestNews:
    """The newest snapshot of the branch that meets the condition is the answer."""

    def test_without_conditions_it_is_the_head_and_an_empty_table_has_none(self, history: History) -> None:
        assert history.find() is None
        history.commit()
        second = history.commit()
        assert history.find() == second

    def test_an_unknown_branch_is_an_error_that_lists_the_refs(self, history: History) -> None:
        history.commit()
        with pytest.raises(NotFoundError, match="main"):
            history.find(branch="audit")

    def test_another_branch_has_its_own_news(self, history: History) -> None:
        first = history.commit()
        audit = history.commit(branch="audit", parent=first)
        assert history.find(branch="audit") == audit
        assert history.find() == first


class TestAfterASnapshot:
    """Newer than a snapshot is what was committed on the branch after it."""

    def test_the_snapshot_itself_is_no_news(self, history: History) -> None:
        first = history.commit()
        assert history.find(after_snapshot_id=first) is None
        second = history.commit()
        assert history.find(after_snapshot_id=first) == second

    def test_older_snapshots_are_no_news(self, history: History) -> None:
        history.commit()
        second = history.commit("overwrite")
        assert history.find(after_snapshot_id=second, operations=("append",)) is None

    def test_after_one_that_has_expired_all_that_is_left_is_news(self, history: History) -> None:
        first = history.commit()
        second = history.commit()
        history.expire(first)
        assert history.find(after_snapshot_id=first) == second

    def test_after_one_that_was_rolled_back_and_has_expired_its_time_tells(self, history: History) -> None:
        """What is left then is older, and was seen long ago."""
        kept, seen = history.commit(), history.commit()
        history.move("main", kept)
        history.expire(seen)
        assert history.find(after_snapshot_id=seen, after_snapshot_ms=2000) is None
        later = history.commit()
        assert history.find(after_snapshot_id=seen, after_snapshot_ms=2000) == later

    @pytest.mark.parametrize("format_version", [1, 2])
    def test_after_a_rollback_only_later_commits_are_news(self, format_version: int) -> None:
        history = History(format_version)
        first, second = history.commit(), history.commit()
        history.move("main", first)
        assert history.find(after_snapshot_id=second) is None
        third = history.commit()
        assert history.find(after_snapshot_id=second) == third


class TestAfterATime:
    """Newer than a time is what was committed strictly later."""

    def test_the_millisecond_itself_is_not_later(self, history: History) -> None:
        first = history.commit()
        assert history.find(after_ms=first * 1000) is None
        assert history.find(after_ms=first * 1000 - 1) == first

    def test_time_and_snapshot_must_both_be_passed(self, history: History) -> None:
        first, second = history.commit(), history.commit()
        assert history.find(after_snapshot_id=first, after_ms=second * 1000) is None


class TestKinds:
    """Snapshots that change no rows are no news, unless they are asked for."""

    def test_compaction_is_passed_over(self, history: History) -> None:
        first = history.commit()
        replaced = history.commit("replace")
        assert history.find() == first
        assert history.find(after_snapshot_id=first) is None
        assert history.find(include_maintenance=True) == replaced
        assert history.find(operations=("replace",)) == replaced

    def test_what_our_maintenance_marked_is_passed_over_whatever_its_operation(self, history: History) -> None:
        first = history.commit()
        marked = history.commit("delete", **{MAINTENANCE: "true"})
        assert history.find() == first
        assert history.find(operations=("delete",)) is None
        assert history.find(operations=("delete",), include_maintenance=True) == marked

    def test_only_the_operations_asked_for_count(self, history: History) -> None:
        first = history.commit("overwrite")
        history.commit("append")
        assert history.find(operations=("overwrite", "delete")) == first

    @pytest.mark.parametrize("operations", [("upsert",), ()])
    def test_operations_that_do_not_exist_are_refused(self, operations: tuple[str, ...]) -> None:
        with pytest.raises(InvalidInputError, match="expected some of append, replace, overwrite, delete"):
            SnapshotCondition(operations=operations)


class TestTheTrigger:
    """The decision needs no Arrow."""

    def test_importing_the_decision_is_cheap(self) -> None:
        heavy = "{'pyarrow', 'sqlglot', 'numpy'}"
        code = f"import sys, airflow_iceberg.plan.new_snapshot; print(*({heavy} & set(sys.modules)))"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == ""
