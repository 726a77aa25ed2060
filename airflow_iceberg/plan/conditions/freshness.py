"""`FreshnessCondition`: rows were changed after a time, or not longer ago than some seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.plan.conditions.decision import Decision, Facts, described, head_of, when
from airflow_iceberg.plan.new_snapshot import is_maintenance

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata

# Clocks of writers differ; a commit that is further ahead says nothing about when it was made.
_MOST_AHEAD_MS = 5 * 60 * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class FreshnessCondition:
    """The newest change of rows on a branch is new enough.

    Attributes:
        max_age_s: the largest age in seconds, from the time of the look on.
        after_ms: the time, in milliseconds since the epoch, that the commit must be later than.
        include_maintenance: whether snapshots that change no rows count.
    """

    branch: str = "main"
    max_age_s: float | None = None
    after_ms: int | None = None
    include_maintenance: bool = False

    def __post_init__(self) -> None:
        if (self.max_age_s is None) == (self.after_ms is None):
            raise InvalidInputError("expected one of max_age and after, got " + ("none" if self._is_empty else "both"))

    @property
    def _is_empty(self) -> bool:
        return self.max_age_s is None and self.after_ms is None

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        start = f"after {when(self.after_ms)}" if self.after_ms is not None else f"in the last {self.max_age_s:g} s"
        return f"a commit on branch {self.branch!r} {start}"

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the time of the newest snapshot that counts, and whose time can be believed."""
        head = metadata.ref_snapshot(self.branch)
        ahead = ""
        until_ms: int | None = None
        for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
            if not self.include_maintenance and is_maintenance(snapshot):
                continue
            change = f"snapshot {snapshot.snapshot_id} of {when(snapshot.timestamp_ms)}"
            if snapshot.timestamp_ms > now_ms + _MOST_AHEAD_MS:
                # Once that time has come, the snapshot is as good as any other.
                believed_ms = snapshot.timestamp_ms - _MOST_AHEAD_MS
                until_ms = believed_ms if until_ms is None else min(until_ms, believed_ms)
                ahead = ahead or f"; {change}, a time in the future, is not believed"
                continue
            has = f"the newest change is {change}{ahead}"
            if self.after_ms is not None:
                is_fresh = snapshot.timestamp_ms > self.after_ms
            else:
                is_fresh = now_ms - snapshot.timestamp_ms <= 1000 * (self.max_age_s or 0)
            if not is_fresh:
                return Decision(has=has, until_ms=until_ms)
            age_ms = max(now_ms - snapshot.timestamp_ms, 0)
            return Decision(result={**described(self.branch, snapshot), "age_seconds": age_ms / 1000}, has=has)
        return Decision(has=f"no change of rows; {head_of(self.branch, head)}{ahead}", until_ms=until_ms)
