"""What a person should know of work that is found in a table, or not found: warnings in the task's log.

The rule (docs/exactly-once.md): work that is in the branch's history is done, whatever became of its files, and work
that was rolled back is done again. Here: telling so, and which snapshot did it. Nothing is decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from airflow_iceberg.commit.conflicts import ChangedFiles, describe
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import (
    APPENDED_FILE,
    Kin,
    OperationKey,
    keys_of,
    kin_of,
)
from airflow_iceberg.commit.runs.doubts import is_of_other_installation
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent
from airflow_iceberg.format.snapshots import Snapshot

log = logging.getLogger(__name__)


def log_history(table: OpenTable, key: OperationKey, branch: str, landed: Snapshot | None) -> None:
    """Log what is unusual about the commit of an earlier try, or about its absence.

    Args:
        landed: the snapshot that was found in the branch's history.
    """
    if landed is None:
        _log_lost(table, key, branch)
        return
    try:
        _log_removed(table, landed, branch)
    except IcebergError as error:
        log.warning("%s: cannot tell whether files of snapshot %s are live: %s", table.name, landed.snapshot_id, error)


def _log_removed(table: OpenTable, landed: Snapshot, branch: str) -> None:
    """Log which later snapshots removed files of the work; a compaction is none of them, since it keeps the rows."""
    later: list[Snapshot] = []
    for snapshot in _history(table, branch):
        if snapshot.snapshot_id == landed.snapshot_id:
            break
        if snapshot.operation in ("overwrite", "delete"):
            later.append(snapshot)
    if not later:
        return
    files = ChangedFiles(table.io)

    def changed(snapshot: Snapshot, status: EntryStatus) -> set[str]:
        return {entry.data_file.file_path for entry in files.of(snapshot, status, ManifestContent.DATA)}

    added = changed(landed, EntryStatus.ADDED)
    own = {path for path in added if landed.operation == "append" or APPENDED_FILE.match(path.rsplit("/", 1)[-1])}
    for snapshot in reversed(later):
        count = len(own & changed(snapshot, EntryStatus.DELETED))
        if count:
            log.warning(
                "%s: an earlier try of this task has committed snapshot %s to branch %s, and since then %s has removed "
                "%s of its %s data files; the task is done and does not write these rows again; clear it to do so",
                *(table.name, landed.snapshot_id, branch, describe(snapshot), count, len(own)),
            )


def _log_lost(table: OpenTable, key: OperationKey, branch: str) -> None:
    history = {snapshot.snapshot_id for snapshot in _history(table, branch)}
    for snapshot in table.metadata.snapshots:
        is_live = snapshot.snapshot_id in history
        for text in keys_of(snapshot):
            if not is_live and kin_of(key, text, snapshot) is Kin.SAME:
                log.warning(
                    "%s: an earlier try of this task has committed snapshot %s, which is not in the history of branch "
                    "%s: it was rolled back, or is of another branch; the work is done again",
                    *(table.name, snapshot.snapshot_id, branch),
                )
            elif is_live and is_of_other_installation(key, text, snapshot):
                log.warning(
                    "%s: snapshot %s holds rows of a run of the same name of another Airflow installation, which are "
                    "kept: its operation key is %s, that of this task is %s; if both are the same installation, set "
                    "its option [airflow_iceberg] installation_id to the third part of the older key",
                    *(table.name, snapshot.snapshot_id, text, key),
                )


def _history(table: OpenTable, branch: str) -> Iterator[Snapshot]:
    head = table.metadata.ref_snapshot(branch)
    return iter(()) if head is None else table.metadata.ancestors(head.snapshot_id)
