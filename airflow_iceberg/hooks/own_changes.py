"""What a task's own table does once besides writing rows: existing files, its schema, its branches and tags.

Not here: the writes of rows, and how each is found again (`hooks.task_table`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_iceberg.commit.write_result import OperationResult
from airflow_iceberg.table import Table

if TYPE_CHECKING:
    from airflow_iceberg.commit.write_result import WriteResult

ResultT = TypeVar("ResultT", bound=OperationResult)

CHANGES_NO_ROWS = ("alter_table", "branch", "tag")
"""The kinds of writes that are told to the asset of the table's maintenance."""


class OwnChanges(Table):
    """A table whose changes belong to the task that runs.

    The methods take the arguments of those of `Table`, and the name of the write: `name`, or `write_name` where another
    name is meant by that, that of a branch.
    """

    @abstractmethod
    def _write(self, verb: str, name: str | None, write: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
        """Make a write with the operation key of the task."""

    def add_files(
        self, file_paths: Sequence[str] | None = None, *, name: str | None = None, **options: Any
    ) -> WriteResult:
        """Add existing files; see `Table.add_files`."""
        return self._write("add_files", name, super().add_files, file_paths, **options)

    def alter(self, changes: Sequence[Mapping[str, Any]], *, name: str | None = None, **options: Any) -> Any:
        """Change schema, partitioning, sort order or properties; see `Table.alter`."""
        return self._write("alter_table", name, super().alter, changes, **options)

    def create_branch(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Create a branch; see `Table.create_branch`."""
        return self._write("branch", write_name, super().create_branch, *args, **options)

    def remove_branch(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Remove a branch; see `Table.remove_branch`."""
        return self._write("branch", write_name, super().remove_branch, *args, **options)

    def create_tag(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Create a tag; see `Table.create_tag`."""
        return self._write("tag", write_name, super().create_tag, *args, **options)

    def remove_tag(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Remove a tag; see `Table.remove_tag`."""
        return self._write("tag", write_name, super().remove_tag, *args, **options)

    def fast_forward(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Move a branch forward; see `Table.fast_forward`."""
        return self._write("fast_forward", write_name, super().fast_forward, *args, **options)

    def set_current_snapshot(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Move a branch to any snapshot; see `Table.set_current_snapshot`."""
        return self._write("set_current_snapshot", write_name, super().set_current_snapshot, *args, **options)

    def rollback_to_snapshot(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Move a branch back to a snapshot; see `Table.rollback_to_snapshot`."""
        return self._write("rollback", write_name, super().rollback_to_snapshot, *args, **options)

    def rollback_to_timestamp(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Move a branch back to a time; see `Table.rollback_to_timestamp`."""
        return self._write("rollback", write_name, super().rollback_to_timestamp, *args, **options)

    def cherry_pick(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Commit the changes of a snapshot of another branch; see `Table.cherry_pick`."""
        return self._write("cherry_pick", write_name, super().cherry_pick, *args, **options)

    def publish_changes(self, *args: Any, write_name: str | None = None, **options: Any) -> Any:
        """Publish a commit that was staged; see `Table.publish_changes`."""
        return self._write("publish_changes", write_name, super().publish_changes, *args, **options)
