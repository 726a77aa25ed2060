"""Commits that may be of a task or not: what is decided carefully where the operation key alone does not say."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_iceberg.commit.operation_key import (
    CLOCKS_DIFFER_MS,
    PARTS,
    SOURCE_SNAPSHOT_ID,
    Kin,
    OperationKey,
    keys_of,
    kin_of,
)
from airflow_iceberg.commit.settings import ENGINE
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot


def has_picked_gone(metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> bool:
    """Whether one of the snapshots has the files of a snapshot that the table does not have any more.

    It may be that of the work. Other writers do not copy its operation key to the cherry-pick.
    """
    sources = (snapshot.summary.get(SOURCE_SNAPSHOT_ID) for snapshot in snapshots)
    known = {str(snapshot.snapshot_id) for snapshot in metadata.snapshots}
    return any(source is not None and source not in known for source in sources)


def is_of_other_installation(key: OperationKey, text: str, snapshot: Snapshot) -> bool:
    """Whether a key is of the same task in a run of the same name, of another installation."""
    if key.installation is None or not text.startswith(f"{key.run}/") or kin_of(key, text, snapshot) is not None:
        return False
    other = OperationKey.find(text)
    return other is not None and other.task == key.task and other.installation is not None


def may_be_a_retry(key: OperationKey, earlier: Snapshot) -> bool:
    """Whether the commit of an earlier epoch may be of this epoch: tasks of the run were cleared, maybe not this one.

    Airflow counts the clears of a run, not those of a task. A clear of the task changes `max_tries` as well, unless its
    retries were reduced before by just the number of its tries, or it was cleared while it ran and then failed.
    """
    for text in keys_of(earlier):
        if kin_of(key, text, earlier) is Kin.EARLIER:
            other = OperationKey.parse(text)
            start, own_start = other.epoch // PARTS**2, key.epoch // PARTS**2
            tries = other.epoch % PARTS
            same = key.installation is not None and other.installation is not None and start == own_start > 0
            return same and tries == key.epoch % PARTS
    return False


def history_tells_all(metadata: TableMetadata, head: Snapshot, after_ms: int | None) -> bool:
    """Whether no commit of a work can have left a branch's history by expiry.

    Args:
        after_ms: a time before all commits of the work; None if none is known.
    """
    history = list(metadata.ancestors(head.snapshot_id))
    since = history if after_ms is None else [s for s in history if s.timestamp_ms >= after_ms - CLOCKS_DIFFER_MS]
    if has_picked_gone(metadata, since):
        return False
    oldest = history[-1]
    if oldest.parent_snapshot_id is None:
        return True
    # The clock of a worker may be behind: here no commit is given a time before the start of its run, or before the
    # last commit.
    slack_ms = 0 if oldest.summary.get("engine-name") == ENGINE["engine-name"] else CLOCKS_DIFFER_MS
    return after_ms is not None and oldest.timestamp_ms < after_ms - slack_ms
