"""Publish: exactly the snapshot that was audited becomes the head of main, or its change does, once.

    publish(work, PublishRequest(snapshot_id=report.snapshot_id, branch="wap_1", audits=audits))

1. The snapshot is in main, or one with its changes is: it was published before.
2. Main is where the branch began: main moves forward to the snapshot. Where the branch is by now does not matter.
3. Main has moved on, and the conflict rules allow it (appends; dynamic overwrites whose partitions nobody has changed
   since): the same files are committed in one new snapshot, which names the audited one.
4. Otherwise the change is applied on a branch of its own if the files that it replaces are there and unchanged; that
   snapshot is audited, and main moves forward to it if it has not moved on meanwhile, else once more.
5. Where that cannot be done, nothing is published: the rows have to be written again, on main as it is then.

Not here: the changes (`commit.actions.publish`, `commit.actions.reapply`), several tables in one commit
(`operations.wap.together`). See docs/adr/0025-publish-what-was-audited.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from airflow_iceberg.commit.actions.publish import ForwardTo, MovedError, begin_again
from airflow_iceberg.commit.actions.reapply import Reapply, find_published
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import IcebergError, IncompatibleChangeError, InvalidInputError, StalePlanError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.reports.moves import place_before
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import Audit
from airflow_iceberg.operations.wap.branch import AGAIN, check_published, remove_again
from airflow_iceberg.operations.work import MOST_ROUNDS, Work

log = logging.getLogger(__name__)

WRITE_AGAIN = (
    "nothing was published, and the branch is kept; clear the task that creates the branch, and those after it: the "
    "rows are then written on main as it is, and audited"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishRequest:
    """What is published.

    Attributes:
        snapshot_id: the snapshot that was audited.
        branch: the branch of the table that led to it; for a branch beside it, on which the change is audited again.
        table_uuid: the uuid of the table that was audited; None if it is not known.
        audits: what is checked again when main has moved on; without any such a change is not published.
        inputs, schema_id: as of the audits.
        is_always_audited: whether also a change that the conflict rules allow is audited again, when main has moved on.
    """

    snapshot_id: int
    branch: str | None = None
    table_uuid: str | None = None
    audits: Sequence[Audit] = ()
    inputs: Mapping[str, Input] = field(default_factory=dict)
    schema_id: int | None = None
    is_always_audited: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_properties(self.snapshot_properties)
        if self.is_always_audited and not self.audits:
            raise InvalidInputError("always_audit is true and audits has none, expected those that are made again")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult(OperationResult):
    """What was published.

    Attributes:
        audited_snapshot_id: the snapshot that was audited.
        snapshot_id: the snapshot by which main has its changes; None if it has expired.
        how: "fast_forward", "reapplied" in a new snapshot, "audited_again", or "found".
    """

    audited_snapshot_id: int
    snapshot_id: int | None
    how: str

    def place_of_branch(self, metadata: TableMetadata) -> tuple[int | None, int | None] | None:
        """Return where main was and is, if it was moved; changes that were committed again are one snapshot."""
        if self.snapshot_id is None or self.snapshot_id != self.audited_snapshot_id:
            return None
        before = place_before(metadata, self.snapshot_id)
        first = metadata.snapshot_log[:1]
        is_first = bool(first) and first[0][1] == self.snapshot_id
        return (before, self.snapshot_id) if before is not None or is_first else None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values for XCom; ids are texts."""
        return {**OperationResult.to_xcom(self), "audited_snapshot_id": str(self.audited_snapshot_id)}

    @property
    def sentence(self) -> str:
        """What happened, for the log."""
        sentences = {
            "fast_forward": "main is now at snapshot {0}, which was audited",
            "reapplied": "main had moved on: the changes of audited snapshot {0} are in its new snapshot {1}",
            "audited_again": "main had moved on: the changes of snapshot {0} were audited again as snapshot {1}, where "
            "main is now",
            "found": "audited snapshot {0} was published before, as snapshot {1}",
        }
        return sentences[self.how].format(self.audited_snapshot_id, self.snapshot_id or "that has expired")


def publish(work: Work, request: PublishRequest) -> PublishResult:
    """Publish the changes of an audited snapshot; a try that finds them published reports it.

    Raises:
        IncompatibleChangeError: they cannot be published on main as it is, or another table has the name.
        AuditFailedError: they were audited again, and have not passed.
        StalePlanError: main has moved on during each of the audits; nothing was published.
    """
    table = work.table
    check_table(table, request)
    found = find_before(table, request.snapshot_id)
    if found is not None:
        return result_of(work, request, "found", found[0])
    uuid = table.metadata.table_uuid or ""
    try:
        landed = table.land(ForwardTo(request.snapshot_id, table_uuid=uuid, new_uuid=str(uuid4())))
    except MovedError as error:
        log.info("%s", error)
        return _reapply(work, request)
    how = "found" if landed.outcome is not Outcome.COMMITTED else "fast_forward"
    return result_of(work, request, how, request.snapshot_id)


class AuditFailedError(IncompatibleChangeError):
    """The audits have not passed."""


def audited_id(snapshot_id: int | None, table: str) -> int:
    """Return the id of the audited snapshot.

    Raises:
        InvalidInputError: there is none.
    """
    if snapshot_id is None:
        raise InvalidInputError(
            f"no snapshot of table {table} to publish: no audit of this run has passed, or its result is lost; clear "
            f"the task that audits"
        )
    return snapshot_id


def check_table(table: OpenTable, request: PublishRequest) -> None:
    """Check that the table is the one that was audited.

    Raises:
        IncompatibleChangeError: it is another one of the same name.
    """
    uuid = table.metadata.table_uuid or ""
    if request.table_uuid is not None and request.table_uuid != uuid:
        raise IncompatibleChangeError(
            f"table {table.name} has uuid {uuid}, and the one that was audited had {request.table_uuid}: it was "
            f"dropped and created again; {WRITE_AGAIN}"
        )


def find_before(table: OpenTable, audited_id: int) -> tuple[int | None] | None:
    """Return the snapshot by which an audited one was published, in a tuple; None if it is still to be published.

    Raises:
        IncompatibleChangeError: the snapshot has expired, and nothing tells that it was published; or a forged summary
            says that it was.
    """
    metadata = table.metadata
    published = find_published(metadata, audited_id)
    if published is not None:
        check_published(table, published, audited_id)
        return (published.snapshot_id,)
    if metadata.snapshot(audited_id) is not None:
        return None
    if any(find_published(older, audited_id) is not None for older in _older(table)):
        return (None,)
    raise IncompatibleChangeError(
        f"audited snapshot {audited_id} is not in table {table.name} any more (it was expired, or the table was "
        f"replaced), and the metadata files that are left do not tell whether it was published; look at the rows of "
        f"main; {WRITE_AGAIN}"
    )


def _older(table: OpenTable) -> Iterator[TableMetadata]:
    """Yield what is left of the table's earlier metadata, newest first; a log may name files of other tables."""
    for _, location in reversed(table.metadata.metadata_log):
        try:
            older = metadata_json.read(table.io.read(location), path=location)
        except IcebergError as error:
            log.info("cannot look into %s: %s", location, error)
            continue
        if older.table_uuid == table.metadata.table_uuid:
            yield older


def _reapply(work: Work, request: PublishRequest) -> PublishResult:
    if not request.is_always_audited:
        try:
            return _commit(work, request, MAIN_BRANCH, "reapplied")
        except (IncompatibleChangeError, StalePlanError) as error:
            if not request.audits or isinstance(error, AuditFailedError):
                raise IncompatibleChangeError(f"{error}; {WRITE_AGAIN}") from error
            log.info("%s; it is audited again", error)
    for _ in range(MOST_ROUNDS):
        done = _audit_again(work, request)
        if done is not None:
            return done
    raise StalePlanError(
        f"main of table {work.table.name} has moved on during each of {MOST_ROUNDS} audits; nothing was published, run "
        f"it again when fewer writers commit"
    )


def _audit_again(work: Work, request: PublishRequest) -> PublishResult | None:
    """Apply the change on a branch of its own, audit it, and publish just that; None if main has moved on meanwhile."""
    table = work.table
    try:
        applied = apply_and_audit(work, request)
        if applied.snapshot_id is not None:
            uuid = table.metadata.table_uuid or ""
            table.land(ForwardTo(applied.snapshot_id, table_uuid=uuid, new_uuid=str(uuid4())))
    except MovedError as error:
        log.info("%s", error)
        return None
    end_again(work, request)
    return applied


def end_again(work: Work, request: PublishRequest) -> None:
    """Remove the branch on which a change was audited again, after it was published."""
    remove_again(work.table, _again_of(request).removesuffix(AGAIN))


def _again_of(request: PublishRequest) -> str:
    return f"{request.branch or f'audited_{request.snapshot_id}'}{AGAIN}"


def apply_and_audit(work: Work, request: PublishRequest) -> PublishResult:
    """Apply the change to main's head on a branch of its own, and audit it there; it is to be published as it is.

    A change of which nothing is left, such as rows that were written and deleted again, has no snapshot then.

    Raises:
        IncompatibleChangeError: it cannot be applied to main as it is.
        MovedError: main has moved on already, and its head was expired.
        AuditFailedError: it has not passed.
    """
    table, name = work.table, _again_of(request)
    uuid = table.metadata.table_uuid or ""
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    table.change(begin_again(name, head, table_uuid=uuid, new_uuid=str(uuid4())))
    try:
        applied = _commit(work, request, name, "audited_again", is_audited_again=True)
    except (IncompatibleChangeError, StalePlanError) as error:
        remove_again(table.refresh(), name.removesuffix(AGAIN))
        raise IncompatibleChangeError(f"{error}; {WRITE_AGAIN}") from error
    snapshot_id = applied.snapshot_id
    if snapshot_id is None:
        return applied
    report = audit(
        Work(table),
        AuditRequest(
            audits=request.audits, snapshot_id=snapshot_id, inputs=request.inputs, schema_id=request.schema_id
        ),
    )
    for line in report.lines():
        log.info("%s: snapshot %s: %s", table.name, snapshot_id, line)
    if not report.passed:
        raise AuditFailedError(
            f"main has moved on, and the changes of snapshot {request.snapshot_id} applied to it have not passed: "
            f"{'; '.join(f'{one.audit}: {one.found}' for one in report.failed)}; nothing was published, and they are "
            f"in branch {name!r} of table {table.name}"
        )
    return applied


def _commit(
    work: Work, request: PublishRequest, branch: str, how: str, *, is_audited_again: bool = False
) -> PublishResult:
    table = work.table
    settings = table.commit_settings(
        branch=branch,
        operation_key=work.operation_key,
        try_number=work.try_number or 1,
        snapshot_properties=request.snapshot_properties,
    )
    action = Reapply(table.io, settings, audited_id=request.snapshot_id, is_audited_again=is_audited_again)
    landed = table.land(action)
    published = find_published(table.metadata, request.snapshot_id, branch)
    how = "found" if landed.outcome is Outcome.FOUND else how
    return result_of(work, request, how, None if published is None else published.snapshot_id)


def result_of(work: Work, request: PublishRequest, how: str, snapshot_id: int | None) -> PublishResult:
    """Return the result of a publication."""
    return PublishResult(
        table=work.table.name,
        outcome=Outcome.FOUND if how == "found" else Outcome.COMMITTED,
        operation_key=work.key_text,
        audited_snapshot_id=request.snapshot_id,
        snapshot_id=snapshot_id,
        how=how,
    )
