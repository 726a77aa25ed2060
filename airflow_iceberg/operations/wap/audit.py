"""Audit: checks of one snapshot, which change nothing.

    report = audit(work, AuditRequest(audits=(NoRows("select * from audited where id is null"),), branch="wap_1"))
    report.passed, report.snapshot_id

The head of the branch is read once, and every audit reads that snapshot: what is committed to the branch meanwhile is
not audited. Only the snapshot that the report names may be published. Not here: how an audit is decided
(`operations.wap.measures`), publishing (`operations.wap.publish`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from airflow_iceberg.commit.actions.publish import end_branch
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey, keys_of
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.data.read.selection import choose_snapshot, schema_of
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot
from airflow_iceberg.operations.inputs.tables import Input, check_names
from airflow_iceberg.operations.wap.audits import AUDITED, MAIN, Audit, checked_audits
from airflow_iceberg.operations.wap.measures import Audited, decide
from airflow_iceberg.operations.wap.report import ROWS, AuditReport
from airflow_iceberg.operations.work import Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRequest:
    """What is audited, and how.

    Attributes:
        branch: the branch whose head is audited; main by default.
        snapshot_id: the snapshot that is audited instead.
        inputs: further tables that the SQL of audits reads, by the names that it has for them.
        schema_id: the schema that the table had before; by default that of main's last snapshot.
        sample_rows: the number of offending rows that are shown; 0 shows none.
    """

    audits: Sequence[Audit]
    branch: str | None = None
    snapshot_id: int | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    schema_id: int | None = None
    sample_rows: int = ROWS

    def __post_init__(self) -> None:
        checked_audits(self.audits)
        check_names(self.inputs, taken=(AUDITED, MAIN))
        if self.sample_rows < 0:
            raise InvalidInputError(f"sample_rows is {self.sample_rows}, expected 0 or more")
        if self.snapshot_id is not None and self.branch is not None:
            raise InvalidInputError("an audit reads a branch or a snapshot, got both")


def audit(work: Work, request: AuditRequest) -> AuditReport:
    """Make all audits of a snapshot, also after one has failed.

    Raises:
        InvalidInputError, NotFoundError: an audit is wrong; no branch or snapshot.
    """
    table = work.table
    snapshot = _snapshot(table, request, work.operation_key)
    audited = Audited(
        table=table,
        snapshot=snapshot,
        main=table.metadata.current_snapshot(),
        schema=_schema_before(table, request),
        inputs=request.inputs,
        now=datetime.fromtimestamp(time.time(), UTC),
        sample_rows=request.sample_rows,
    )
    results = tuple(decide(one, audited) for one in checked_audits(request.audits))
    main = audited.main
    return AuditReport(
        table=table.name,
        outcome=Outcome.CHECKED,
        operation_key=work.key_text,
        branch=request.branch,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        main_snapshot_id=None if main is None else main.snapshot_id,
        table_uuid=table.metadata.table_uuid or "",
        passed=all(result.passed for result in results),
        audits=results,
    )


def advice(report: AuditReport, *, is_kept: bool) -> str:
    """Say which audits have failed, and how to look at the rows."""
    what = f"{len(report.failed)} of {len(report.audits)} audits of table {report.table} have failed"
    found = "; ".join(f"{one.audit}: {one.found}" for one in report.failed)
    if report.branch in (None, MAIN_BRANCH):
        return f"{what}, at snapshot {report.snapshot_id}: {found}"
    if not is_kept:
        return (
            f"{what}, at snapshot {report.snapshot_id} of its branch {report.branch!r}: {found}; nothing was "
            f"published, and the branch was removed"
        )
    return (
        f"{what}, at snapshot {report.snapshot_id} of its branch {report.branch!r}: {found}; nothing was published, "
        f"and the branch of the table is kept: look at it with table.scan(ref='{report.branch}'), or in Spark with "
        f"select * from {report.table} version as of '{report.branch}'; then correct the source, and clear the tasks "
        f"that write, and those after them"
    )


def drop_failed(work: Work, report: AuditReport) -> bool:
    """Remove a branch that has not passed; return False if it has got further snapshots, and is kept."""
    table = work.table
    if report.branch in (None, MAIN_BRANCH) or report.snapshot_id is None:
        return False
    uuid = table.metadata.table_uuid or ""
    try:
        table.change(end_branch(str(report.branch), report.snapshot_id, table_uuid=uuid, new_uuid=str(uuid4())))
    except IncompatibleChangeError as error:
        log.warning("%s", error)
        return False
    return True


def _snapshot(table: OpenTable, request: AuditRequest, key: OperationKey | None) -> Snapshot | None:
    """Return the snapshot that is audited.

    Raises:
        NotFoundError: there is no such branch or snapshot.
    """
    branch = request.branch
    if branch in (None, MAIN_BRANCH) or branch in table.metadata.refs:
        return choose_snapshot(table.metadata, snapshot_id=request.snapshot_id, ref=branch, as_of_ms=None)[0]
    published = None if key is None else _published(table, key)
    if published is not None:
        return published
    raise NotFoundError(
        f"table {table.name} has no branch {branch!r} (of the table, not of its catalog): it was not created, or it "
        f"was removed after it had been published; clear the task that creates it, and those after it"
    )


def _published(table: OpenTable, key: OperationKey) -> Snapshot | None:
    """Return the newest snapshot in main with rows of this DAG run, after whose publication the branch was removed.

    A later snapshot of main may have other rows: that of the run is audited, as before.
    """
    head = table.metadata.current_snapshot()
    for snapshot in table.metadata.ancestors(None if head is None else head.snapshot_id):
        if any(text.startswith(f"{key.run}/") for text in keys_of(snapshot)):
            return snapshot
    return None


def _schema_before(table: OpenTable, request: AuditRequest) -> Schema:
    metadata = table.metadata
    if request.schema_id is not None:
        return metadata.schema(request.schema_id)
    head = metadata.current_snapshot()
    return metadata.schema() if head is None else schema_of(metadata, head)
