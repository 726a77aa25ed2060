"""What operators on branches and tags share: the guard, the dry run, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import whole_number
from airflow_iceberg.operators._job import TableOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.operations.refs.change_ref import RefResult
    from airflow_iceberg.operations.refs.difference import Part


class RefOperator(TableOperator):
    """An operator that changes one branch or tag in one commit of metadata.

    Args:
        expected_snapshot_id: the guard: where the branch or tag must be before; elsewhere the task fails, and nothing
            is changed.
        dry_run: whether only to report what would appear and disappear: snapshots, rows and files.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "expected_snapshot_id", "is_dry_run")
    ui_color = "#e9e2f5"

    def __init__(
        self, *, expected_snapshot_id: int | str | None = None, dry_run: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.expected_snapshot_id = expected_snapshot_id
        # Not `dry_run`, which is a method of Airflow's.
        self.is_dry_run = dry_run

    def guard(self) -> dict[str, Any]:
        """Return the fields of a request that all of these operators have."""
        return {
            "expected_snapshot_id": whole_number("expected_snapshot_id", self.expected_snapshot_id),
            "dry_run": true_or_false("dry_run", self.is_dry_run),
        }

    def report_ref(self, context: Context, result: RefResult) -> dict[str, Any]:
        """Report what was done to a ref."""
        old, new = result.previous_snapshot_id, result.snapshot_id
        places = f"{result.ref!r} is at snapshot {new}" if old == new else f"{result.ref!r}: snapshot {old} to {new}"
        lines = [f"{_SENTENCES[result.outcome]}; {places}", *told(result.appearing, result.disappearing)]
        return self.report(context, result, lines)


def told(appearing: Part, disappearing: Part) -> list[str]:
    """Return lines for the log about what appears and disappears."""
    return [*_lines("appear", appearing), *_lines("disappear", disappearing)]


def _lines(verb: str, part: Part) -> list[str]:
    if not part.snapshot_count and not part.data_files:
        return []
    files = "" if part.data_files is None else f", {part.data_files} data files with {part.rows} rows"
    return [f"{part.snapshot_count} snapshots{files} {verb}", *(_line(verb, snapshot) for snapshot in part.snapshots)]


def _line(verb: str, snapshot: Mapping[str, Any]) -> str:
    counts = f"{snapshot['added_records']} rows added, {snapshot['deleted_records']} deleted"
    by = f", by {snapshot['operation_key']}" if snapshot["operation_key"] else ""
    return f"{verb}: snapshot {snapshot['snapshot_id']} ({snapshot['operation']}, {counts}{by})"


_SENTENCES = {
    "committed": "the change was committed",
    "found": "an earlier try of this task has made the change already",
    "nothing": "the table is already as it was asked to be, nothing was committed",
    "dry_run": "a dry run, nothing was committed",
}


def age_ms(name: str, value: timedelta | int | str | None) -> int | None:
    """Return an age in milliseconds."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return whole_number(name, value)


def needed_snapshot(name: str, value: int | str | None) -> int:
    """Return a snapshot id that may not be left out."""
    found = whole_number(name, value)
    if found is None:
        raise InvalidInputError(f"{name} is {value!r}, expected the id of a snapshot")
    return found
