"""What a table is, and what it has: one description in plain values, for the command line and for the pages.

Not here: its snapshots and who made them (`operations.history.runs`), how it is laid out (`cli`, `ui`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.format.type_text import begun_type
from airflow_iceberg.format.values.digits import whole_number

# A type is told up to so many characters where no limit is given: that of a struct has all of its fields.
_WHOLE = 1 << 62


def table_facts(table: OpenTable, *, longest: int | None = None) -> dict[str, Any]:
    """Return where a table is, what it is made of, and the totals of its current snapshot, by the names of the facts.

    A snapshot id is text, since JavaScript rounds integers above 2**53. A total that the summary lacks is None.

    Args:
        longest: how many characters of the schema, the partitioning and the sort order are told; None: all.
    """
    metadata = table.metadata
    head, schema = metadata.current_snapshot(), metadata.schema()
    names = {field_id: name for name, field_id in schema.names.items()}
    columns = (
        f"{field.name} {begun_type(field.type, longest or _WHOLE)}{' required' if field.required else ''}"
        for field in schema.fields
    )
    order = (
        f"{field.transform}({names.get(field.source_id, field.source_id)}) {field.direction} {field.null_order}"
        for field in metadata.sort_order().fields
    )
    return {
        "uuid": metadata.table_uuid,
        "location": table.location,
        "metadata_location": table.metadata_location,
        "format_version": metadata.format_version,
        "schema": _listed(columns, longest),
        "partitions": _listed((f"{field.name}: {field.transform}" for field in metadata.spec().fields), longest),
        "sort_order": _listed(order, longest),
        "snapshot_id": None if head is None else str(head.snapshot_id),
        "committed_at_ms": None if head is None else head.timestamp_ms,
        "updated_ms": metadata.last_updated_ms,
        "snapshots": len(metadata.snapshots),
        "rows": _total(head, "total-records"),
        "data_files": _total(head, "total-data-files"),
        "delete_files": _total(head, "total-delete-files"),
        "size_bytes": _total(head, "total-files-size"),
    }


def _listed(texts: Iterable[str], longest: int | None) -> str | None:
    """Return texts with commas between them, None for none; a table may repeat a long one for ever."""
    found = ""
    for text in texts:
        found += f"{', ' if found else ''}{text[:longest]}"
        if longest is not None and len(found) >= longest:
            break
    return found[:longest] or None


def _total(snapshot: Snapshot | None, name: str) -> int | None:
    return 0 if snapshot is None else whole_number(snapshot.summary.get(name, ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class RefFacts:
    """A branch or a tag.

    Attributes:
        snapshot_id: the snapshot it is at.
        committed_at_ms, rows: of that snapshot; None if they are not known.
        max_ref_age_ms, min_snapshots_to_keep, max_snapshot_age_ms: what is kept; None: as the table has it.
    """

    name: str
    type: str
    snapshot_id: int
    committed_at_ms: int | None = None
    rows: int | None = None
    max_ref_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None

    @property
    def retention(self) -> str:
        """What is kept, in words; empty if the table says it."""
        kept = {
            "ref kept for": _days(self.max_ref_age_ms),
            "snapshots kept": self.min_snapshots_to_keep,
            "snapshots kept for": _days(self.max_snapshot_age_ms),
        }
        return ", ".join(f"{what} {value}" for what, value in kept.items() if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; the snapshot id is text."""
        return {**asdict(self), "snapshot_id": str(self.snapshot_id)}


def ref_facts(metadata: TableMetadata, *, most: int | None = None) -> tuple[RefFacts, ...]:
    """Return branches, main first, then tags, each by name.

    Args:
        most: how many of them; None: all.
    """
    refs = metadata.refs
    names = nsmallest(len(refs) if most is None else most, refs, key=lambda n: (n != MAIN_BRANCH, refs[n].type, n))
    return tuple(_ref(metadata, name) for name in names)


def _ref(metadata: TableMetadata, name: str) -> RefFacts:
    ref = metadata.refs[name]
    snapshot = metadata.snapshot(ref.snapshot_id)
    return RefFacts(
        name=name,
        type=ref.type,
        snapshot_id=ref.snapshot_id,
        committed_at_ms=None if snapshot is None else snapshot.timestamp_ms,
        rows=None if snapshot is None else _total(snapshot, "total-records"),
        max_ref_age_ms=ref.max_ref_age_ms,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
    )


def _days(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 86_400_000:,.1f} days"


def utc_text(timestamp_ms: int) -> str:
    """Return a time in milliseconds since the epoch as people read it, in UTC; its digits far beyond any calendar."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
