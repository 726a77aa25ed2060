"""The branch of a table on which the rows of a run wait for their audit: `start_branch` and `clean_up`.

A branch here is one of the table, in its metadata. A branch of a Nessie catalog is another thing: it holds every table
of the catalog, and is a part of a table's name (`sales.orders@etl`).

The branch begins at the head of main each time that the task which makes it runs, before the tasks that write: so a
group that was cleared as a whole writes on main as it is then. What an earlier try or run has staged and not published
is not on the branch any more. Not here: auditing (`operations.wap.audit`), publishing (`operations.wap.publish`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import uuid4

from airflow_iceberg.commit.actions.publish import FirstSnapshot, begin_branch, end_branch
from airflow_iceberg.commit.actions.reapply import find_published, missing_change
from airflow_iceberg.commit.conflicts import ChangedFiles
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID, OperationKey, keys_of
from airflow_iceberg.commit.settings import settings_for
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.operations.work import Work

log = logging.getLogger(__name__)

_MOST_CHARACTERS = 200
AGAIN = "_again"
"""The end of the name of the branch on which a change is audited again, after main has moved on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchResult(OperationResult):
    """What became of a branch.

    Attributes:
        branch: the branch of the table.
        snapshot_id: the snapshot that it began at, or that it was at when it was removed.
        schema_id: the table's schema when the branch began.
        table_uuid: the uuid of the table.
        is_kept: whether a branch that was to be removed is still there, with snapshots that were not audited.
    """

    branch: str
    snapshot_id: int | None = None
    schema_id: int | None = None
    table_uuid: str = ""
    is_kept: bool = False


def start_branch(work: Work, branch: str, *, max_ref_age_ms: int | None = None) -> BranchResult:
    """Let a branch begin at the head of main.

    Args:
        max_ref_age_ms: the age at which `expire_snapshots` removes the branch, if it was not removed before.

    Raises:
        IncompatibleChangeError: another DAG run has staged rows on it.
        InvalidInputError: main, a tag, or no usable name.
        StalePlanError: another try of the task is at work on it.
    """
    table = work.table
    check_name(branch)
    seen = table.metadata.refs.get(branch)
    if seen is not None:
        if not seen.is_branch:
            raise InvalidInputError(f"{branch!r} is a tag of table {table.name}; choose another name for the branch")
        _check_own(table, branch, seen, work.operation_key)
    at = None
    if table.metadata.current_snapshot_id is None:
        at = _first_snapshot(work, branch, seen)
        seen = table.metadata.refs.get(branch)
    action = begin_branch(
        branch, seen, at=at, max_ref_age_ms=max_ref_age_ms, table_uuid=_uuid(table), new_uuid=str(uuid4())
    )
    table.change(action)
    found = table.metadata.refs[branch].snapshot_id
    if seen is not None and seen.snapshot_id != found:
        log.info(
            "branch %r of table %s was at snapshot %s, and begins anew at snapshot %s, the head of main",
            *(branch, table.name, seen.snapshot_id, found),
        )
    return BranchResult(
        table=table.name,
        outcome=Outcome.COMMITTED,
        operation_key=work.key_text,
        branch=branch,
        snapshot_id=found,
        schema_id=table.metadata.current_schema_id,
        table_uuid=_uuid(table),
    )


def clean_up(work: Work, branch: str, snapshot_id: int) -> BranchResult:
    """Remove a branch whose snapshot was published; done twice, it does nothing.

    A branch that has got further snapshots is kept: they were neither audited nor published.

    Args:
        snapshot_id: the snapshot that was audited.

    Raises:
        IncompatibleChangeError: the snapshot is in the table, and not published.
    """
    table = work.table
    check_name(branch)
    seen = table.metadata.refs.get(branch)
    if seen is not None and table.metadata.snapshot(snapshot_id) is not None:
        published = find_published(table.metadata, snapshot_id)
        if published is not None:
            check_published(table, published, snapshot_id)
        elif not _has_no_rows(table, snapshot_id):
            raise IncompatibleChangeError(
                f"snapshot {snapshot_id} of table {table.name} is not published, so that branch {branch!r} (of the "
                f"table) is kept; clear the task that publishes it"
            )
    remove_again(table, branch)
    outcome, is_kept = Outcome.NOTHING if seen is None else Outcome.COMMITTED, False
    try:
        table.change(end_branch(branch, snapshot_id, table_uuid=_uuid(table), new_uuid=str(uuid4())))
    except IncompatibleChangeError as error:
        log.warning("%s: it has snapshots that were not audited; publish them, or drop the branch", error)
        outcome, is_kept = Outcome.NOTHING, True
    return BranchResult(
        table=table.name,
        outcome=outcome,
        operation_key=work.key_text,
        branch=branch,
        snapshot_id=None if seen is None else snapshot_id,
        table_uuid=_uuid(table),
        is_kept=is_kept,
    )


def check_published(table: OpenTable, published: Snapshot, audited_id: int) -> None:
    """Check that a snapshot which says that it has the changes of an audited one has them: summaries may be forged.

    Raises:
        IncompatibleChangeError: it does not have them.
    """
    if published.snapshot_id == audited_id:
        return
    missing = missing_change(table.metadata, audited_id, ChangedFiles(table.io))
    if missing is not None:
        raise IncompatibleChangeError(
            f"snapshot {published.snapshot_id} of table {table.name} says ({AUDITED_SNAPSHOT_ID}) that it publishes "
            f"audited snapshot {audited_id}, and does not have its change of file {missing}: the summary is forged; "
            f"nothing was changed, and the branch is kept; find out who has made it, and write the rows again"
        )


def remove_again(table: OpenTable, branch: str) -> None:
    """Remove the branch on which the changes of a branch were audited again, if they are published."""
    name = f"{branch}{AGAIN}"
    found = table.metadata.refs.get(name)
    history = table.metadata.ancestors(table.metadata.current_snapshot_id)
    if found is not None and any(snapshot.snapshot_id == found.snapshot_id for snapshot in history):
        table.change(end_branch(name, found.snapshot_id, table_uuid=_uuid(table), new_uuid=str(uuid4())))


def check_name(branch: object) -> None:
    """Check the name of a branch.

    Raises:
        InvalidInputError: main, an empty, a long or a reserved name, or one of a branch of a Nessie catalog.
    """
    if isinstance(branch, str) and ("@" in branch or "#" in branch):
        raise InvalidInputError(
            f"branch is {branch!r}, expected the name of a branch of the table; a branch of a Nessie catalog holds all "
            f"of its tables, and is a part of a table's name: 'sales.orders@etl'"
        )
    if not isinstance(branch, str) or not branch.strip() or branch == MAIN_BRANCH or len(branch) > _MOST_CHARACTERS:
        raise InvalidInputError(
            f"branch is {branch!r}, expected the name of a branch of the table for rows that wait for their audit: not "
            f"'main', and at most {_MOST_CHARACTERS} characters"
        )
    if branch.endswith(AGAIN):
        raise InvalidInputError(
            f"branch is {branch!r}, expected a name that does not end with {AGAIN!r}: so are the branches named on "
            f"which changes are audited again"
        )


def _has_no_rows(table: OpenTable, snapshot_id: int) -> bool:
    """Whether a snapshot has nothing to publish: that of an empty table, to whose branch nothing was written."""
    snapshot = table.metadata.snapshot(snapshot_id)
    return snapshot is not None and _is_empty(snapshot)


def _uuid(table: OpenTable) -> str:
    return table.metadata.table_uuid or ""


def _check_own(table: OpenTable, branch: str, seen: SnapshotRef, key: OperationKey | None) -> None:
    """Check that no other DAG run has staged rows on a branch, which would be lost."""
    metadata = table.metadata
    known = {snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)}
    for snapshot in metadata.ancestors(seen.snapshot_id):
        if snapshot.snapshot_id in known:
            return
        for text in keys_of(snapshot):
            if key is not None and not _is_of_run(key, text):
                raise IncompatibleChangeError(
                    f"branch {branch!r} of table {table.name} has snapshot {snapshot.snapshot_id} of other work "
                    f"({text}), which is not published and would be lost; publish it, or drop the branch, or choose "
                    f"another name, such as the default one, which each DAG run has for itself"
                )


def _is_of_run(key: OperationKey, text: str) -> bool:
    other = OperationKey.find(text)
    if other is None:
        return False
    same_airflow = other.installation in (None, key.installation) or key.installation is None
    return same_airflow and (other.dag_id, other.run_id) == (key.dag_id, key.run_id)


def _first_snapshot(work: Work, branch: str, seen: SnapshotRef | None) -> int | None:
    """Return the snapshot without rows at which the branch of an empty table begins, and make it if need be."""
    table = work.table
    if seen is None:
        settings = settings_for(
            table.metadata, branch=branch, operation_key=work.operation_key, try_number=work.try_number or 1
        )
        table.change(FirstSnapshot(table.io, settings))
        seen = table.metadata.refs.get(branch)
    history = list(table.metadata.ancestors(None if seen is None else seen.snapshot_id))
    return history[-1].snapshot_id if history and _is_empty(history[-1]) else None


def _is_empty(snapshot: Snapshot) -> bool:
    return snapshot.parent_snapshot_id is None and snapshot.summary.get("total-data-files") == "0"
