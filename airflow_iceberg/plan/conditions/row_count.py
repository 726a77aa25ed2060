"""`RowCountCondition`: a branch has at least, or at most, so many rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.conditions.decision import Decision, Facts, described, head_of

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCountCondition:
    """The number of rows is within limits.

    Rows that position deletes may have removed do not count towards `min_rows`, and count towards `max_rows`; so the
    limits hold for sure. Equality deletes are not counted: metadata does not tell how many rows they remove.
    """

    branch: str = "main"
    min_rows: int | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.min_rows, self.max_rows) if limit is not None]
        if not limits or min(limits) < 0 or limits != sorted(limits):
            got = f"min_rows={self.min_rows}, max_rows={self.max_rows}"
            raise InvalidInputError(f"expected min_rows, max_rows or both, from 0 and in this order, got {got}")

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        least = [] if self.min_rows is None else [f"at least {self.min_rows}"]
        most = [] if self.max_rows is None else [f"at most {self.max_rows}"]
        return f"{' and '.join(least + most)} rows on branch {self.branch!r}"

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the totals of the summary, or by the manifests if the summary does not have them."""
        head = metadata.ref_snapshot(self.branch)
        if head is None:
            records, deletes = 0, 0
        else:
            records, deletes = _totals(head, facts)
        least = max(records - deletes, 0)
        has = f"{records} rows, of which {deletes} at most are deleted; {head_of(self.branch, head)}"
        if self.min_rows is not None and least < self.min_rows:
            return Decision(has=has)
        if self.max_rows is not None and records > self.max_rows:
            return Decision(has=has)
        snapshot = {"branch": self.branch, "snapshot_id": None} if head is None else described(self.branch, head)
        return Decision(result={**snapshot, "total_records": records, "total_position_deletes": deletes}, has=has)


def _totals(snapshot: Snapshot, facts: Facts) -> tuple[int, int]:
    records = whole_number(snapshot.summary.get("total-records", ""))
    deletes = whole_number(snapshot.summary.get("total-position-deletes", "0"))
    if records is not None and deletes is not None:
        return records, deletes
    counts = facts.partitions(snapshot.snapshot_id)
    return sum(count.records for count in counts), sum(count.position_deletes for count in counts)
