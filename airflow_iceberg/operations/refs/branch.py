"""Create, replace or drop a branch, or set its retention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from airflow_iceberg.commit.actions import snapshot_refs
from airflow_iceberg.commit.actions.snapshot_refs import Kind, RefChange, Retention
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operations.refs.change_ref import RefResult, change_ref
from airflow_iceberg.operations.work import Work

__all__ = ["BranchRequest", "Retention", "TagRequest", "branch"]

RefAction = Literal["create", "replace", "drop", "retention"]
ACTIONS: tuple[RefAction, ...] = ("create", "replace", "drop", "retention")


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchRequest:
    """What is done to a branch.

    Attributes:
        action: "create"; "replace", which creates it, or moves it and sets the retention that is given; "drop";
            "retention", which sets the retention and leaves the branch where it is.
        snapshot_id: where it is created or moved to; the head of main if left out.
        retention: what expiry keeps of it.
        if_not_exists: of "create", whether one that exists is left as it is.
        if_exists: of "drop", whether one that does not exist is no error.
        expected_snapshot_id: the guard: where the branch must be before the change.
        dry_run: whether only to look what the change would do.
    """

    kind: ClassVar[Kind] = "branch"

    name: str
    action: RefAction = "create"
    snapshot_id: int | None = None
    retention: Retention = field(default_factory=Retention)
    if_not_exists: bool = False
    if_exists: bool = False
    expected_snapshot_id: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise InvalidInputError(f"action is {self.action!r}, expected one of {', '.join(ACTIONS)}")
        if self.snapshot_id is not None and self.action in ("drop", "retention"):
            raise InvalidInputError(f"snapshot_id is for actions that create or move a {self.kind}, not {self.action}")
        if self.action == "retention" and self.retention == Retention():
            raise InvalidInputError(f"action 'retention' of {self.kind} {self.name!r} needs an age or a number to keep")

    def change(self) -> RefChange:
        """Return the change of the ref."""
        kind, expected = self.kind, self.expected_snapshot_id
        match self.action:
            case "drop":
                return snapshot_refs.drop_ref(
                    self.name, kind=kind, if_exists=self.if_exists, expected_snapshot_id=expected
                )
            case "retention":
                return snapshot_refs.set_retention(
                    self.name, kind=kind, retention=self.retention, expected_snapshot_id=expected
                )
        return snapshot_refs.create_ref(
            self.name,
            kind=kind,
            snapshot_id=self.snapshot_id,
            retention=self.retention,
            replace_existing=self.action == "replace",
            if_not_exists=self.if_not_exists,
            expected_snapshot_id=expected,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRequest(BranchRequest):
    """What is done to a tag; a tag has only one retention, the age of the tag itself."""

    kind: ClassVar[Kind] = "tag"


def branch(work: Work, request: BranchRequest) -> RefResult:
    """Change a branch in one commit; raises what `change_ref` raises."""
    return change_ref(work, request.change(), dry_run=request.dry_run)
