"""What a table needs, by numbers of its metadata: decided here, and nothing is read.

The limits are for people to look at; what a task does is decided by its operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_iceberg.scan.counted_files import CountedFiles

GOOD, LOOK, ACT = "good", "look", "act"
_MIB = 1 << 20
_MANY_FILES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence about a table.

    Attributes:
        level: good; look: it costs something; act: it costs much.
        operator: what helps.
    """

    level: str
    text: str
    operator: str = ""


def find(counted: CountedFiles, *, snapshots: int, metadata_files: int) -> tuple[Finding, ...]:
    """Return what a table needs, the worst first; one good finding if it is nothing.

    Args:
        metadata_files: the earlier metadata files that the table remembers.
    """
    found = [
        *_files(counted),
        *_deletes(counted),
        *_manifests(counted),
        *_metadata(snapshots, metadata_files),
    ]
    order = (ACT, LOOK, GOOD)
    good = Finding(level=GOOD, text="Nothing to do: few small files, few deletes, and short metadata.")
    return tuple(sorted(found, key=lambda one: order.index(one.level))) or (good,)


def share(part: int, whole: int) -> float:
    """Return a part of a whole, 0 of nothing."""
    return part / whole if whole else 0.0


def _files(counted: CountedFiles) -> Iterator[Finding]:
    total, few = counted.total, counted.partitions_to_compact
    small = share(total.small_files, total.data_files)
    if few and small > 0.2:
        where = "the table" if counted.partition_count == 1 else f"{few:,} of {counted.partition_count:,} partitions"
        text = f"{small:.0%} of the data files are small, and {where} would have fewer files after a compaction."
        yield Finding(
            level=ACT if small > 0.6 and total.small_files >= _MANY_FILES else LOOK,
            text=text,
            operator="IcebergCompactOperator",
        )


def _deletes(counted: CountedFiles) -> Iterator[Finding]:
    total = counted.total
    deleted = share(total.deleted_rows, total.rows)
    if deleted > 0.05:
        text = f"{deleted:.0%} of the rows in data files are deleted, and each reader reads and skips them."
        yield Finding(level=ACT if deleted > 0.3 else LOOK, text=text, operator="IcebergCompactOperator")
    if total.equality_deletes:
        text = f"{total.equality_deletes:,} equality deletes are compared with the rows of each scan."
        yield Finding(level=LOOK, text=text, operator="IcebergCompactOperator")


def _manifests(counted: CountedFiles) -> Iterator[Finding]:
    average = counted.manifest_bytes / counted.manifests if counted.manifests else 0
    if counted.manifests > 50 and average < _MIB:
        text = f"The files are listed in {counted.manifests:,} manifests of {average / 1024:,.0f} KiB on average."
        level = ACT if counted.manifests > 500 else LOOK
        yield Finding(level=level, text=text, operator="IcebergRewriteManifestsOperator")


def _metadata(snapshots: int, metadata_files: int) -> Iterator[Finding]:
    if snapshots > 500:
        text = f"The metadata has {snapshots:,} snapshots, which each commit writes again."
        yield Finding(level=ACT if snapshots > 5_000 else LOOK, text=text, operator="IcebergExpireSnapshotsOperator")
    if metadata_files > 200:
        text = f"The table remembers {metadata_files:,} earlier metadata files."
        yield Finding(level=LOOK, text=text, operator="IcebergAlterTableOperator")
