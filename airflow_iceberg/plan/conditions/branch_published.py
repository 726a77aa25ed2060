"""`BranchPublishedCondition`: the snapshot of an audit branch has become part of another branch."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.conditions.decision import Decision, Facts, described, head_of

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot

# How a cherry-picked snapshot names the one that it repeats.
_SOURCE, _PUBLISHED_WAP_ID, _WAP_ID = "source-snapshot-id", "published-wap-id", "wap.id"
# How a snapshot with the changes of an audited one, and of those before it on its branch, names it.
_AUDITED = "airflow.audited-snapshot-id"


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchPublishedCondition:
    """A snapshot of one branch is in the history of another, itself or cherry-picked.

    Attributes:
        branch: the branch that is published.
        into: the branch that it is published to.
        snapshot_id: the snapshot; None for the newest one of the branch.
    """

    branch: str
    into: str = "main"
    snapshot_id: int | None = None

    def __post_init__(self) -> None:
        if not self.branch or self.branch == self.into:
            raise InvalidInputError(f"branch {self.branch!r} cannot be published into {self.into!r}, name two branches")

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        which = "the newest snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        return f"{which} of branch {self.branch!r} on branch {self.into!r}"

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the history of the branch that it is published to."""
        target = metadata.ref_snapshot(self.into)
        wanted, wap_id = self._wanted(metadata)
        has = head_of(self.into, target)
        if wanted is None:
            return Decision(has=f"branch {self.branch!r} has no snapshot; {has}")
        line = {one.snapshot_id: one for one in metadata.ancestors(None if target is None else target.snapshot_id)}
        walked: set[int] = set()
        for snapshot in line.values():
            # Its child tells of one that has expired since.
            is_there = wanted == (snapshot.snapshot_id if wanted in line else snapshot.parent_snapshot_id)
            if is_there or _repeats(snapshot, wanted, wap_id) or _has_changes(metadata, line, snapshot, wanted, walked):
                found = described(self.into, snapshot)
                result = {**found, "published_branch": self.branch, "published_snapshot_id": str(wanted)}
                return Decision(result=result, has=has)
        return Decision(has=f"{has}, which does not have snapshot {wanted}")

    def _wanted(self, metadata: TableMetadata) -> tuple[int | None, str | None]:
        if self.snapshot_id is None:
            if self.branch not in metadata.refs:
                raise NotFoundError(
                    f"no branch {self.branch!r} in table {metadata.location}; if it is dropped when it is published, "
                    f"give snapshot_id, too"
                )
            known = metadata.ref_snapshot(self.branch)
        else:
            known = metadata.snapshot(self.snapshot_id)
        number = self.snapshot_id if known is None else known.snapshot_id
        return number, None if known is None else known.summary.get(_WAP_ID)


def _has_changes(
    metadata: TableMetadata, line: Container[int], snapshot: Snapshot, wanted: int, walked: set[int]
) -> bool:
    """Tell whether a snapshot of a line was made from an audited one, which is the wanted one or came after it.

    Args:
        walked: those before which the wanted one is not, for the next call: many may name the same ones.
    """
    audited = whole_number(snapshot.summary.get(_AUDITED, ""))
    if audited == wanted:
        return True
    for one in metadata.ancestors(audited):
        if one.snapshot_id in line or one.snapshot_id in walked:
            return False
        if one.snapshot_id == wanted:
            return True
        walked.add(one.snapshot_id)
    return False


def _repeats(snapshot: Snapshot, wanted: int, wap_id: str | None) -> bool:
    if snapshot.summary.get(_SOURCE) == str(wanted):
        return True
    return wap_id is not None and snapshot.summary.get(_PUBLISHED_WAP_ID) == wap_id
