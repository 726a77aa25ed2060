"""Publish several tables: in one commit where the catalog has such (Nessie), else one after the other.

In one commit, readers of the catalog's branch see the changes of all tables or of none. One after the other, a try that
was ended leaves some tables published; the next one finds them, and goes on with the others. Everything that can be
known before is checked for all tables before the first one is published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.actions.publish import ForwardTo, MovedError
from airflow_iceberg.commit.actions.reapply import Reapply, find_published
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import CommitConflictError, IcebergError, IncompatibleChangeError, StalePlanError
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.operations.wap.publish import (
    WRITE_AGAIN,
    PublishRequest,
    PublishResult,
    apply_and_audit,
    check_table,
    end_again,
    find_before,
    publish,
    result_of,
)
from airflow_iceberg.operations.work import Work

log = logging.getLogger(__name__)

Asked = Sequence[tuple[Work, PublishRequest]]
_Planned = tuple[str, Action | None, Change | None]
_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishTablesResult(OperationResult):
    """What was published of several tables.

    Attributes:
        table: the names of all tables.
        tables: what was published of each; the outcome is "found" if an earlier try has published all of them.
    """

    makes_snapshots: ClassVar[bool] = False

    tables: tuple[PublishResult, ...]

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values for XCom; ids are texts."""
        return {**OperationResult.to_xcom(self), "tables": [result.to_xcom() for result in self.tables]}


def publish_all(asked: Asked) -> PublishTablesResult:
    """Publish the audited snapshots of several tables of one catalog; those that are published already are found.

    Raises:
        IncompatibleChangeError: one of them cannot be published; the message says which are.
    """
    catalog = asked[0][0].table.catalog
    is_one_commit = len(asked) > 1 and catalog.commits_together
    results = _together(catalog, asked) if is_one_commit else _one_after_the_other(catalog, asked)
    is_found = all(result.outcome is Outcome.FOUND for result in results)
    return PublishTablesResult(
        table=", ".join(result.table for result in results),
        outcome=Outcome.FOUND if is_found else Outcome.COMMITTED,
        operation_key=asked[0][0].key_text,
        tables=tuple(results),
    )


def _one_after_the_other(catalog: Catalog, asked: Asked) -> list[PublishResult]:
    for work, request in asked:
        check_table(work.table, request)
        find_before(work.table, request.snapshot_id)
    if len(asked) > 1:
        log.warning(
            "catalog %s commits one table at a time: the tables are published one after the other, and readers may see "
            "some of them before the others",
            catalog.name,
        )
    done: list[PublishResult] = []
    for work, request in asked:
        try:
            done.append(publish(work, request))
        except IcebergError as error:
            published = ", ".join(result.table for result in done) or "none"
            raise type(error)(
                f"table {work.table.name} is not published: {error}; tables that are published: {published}; the next "
                f"try goes on with the others"
            ) from error
    return done


def _together(catalog: Catalog, asked: Asked) -> list[PublishResult]:
    again: dict[str, int] = {}
    for attempt in range(_ATTEMPTS):
        planned: list[_Planned] = []
        try:
            for work, request in asked:
                planned.append(_planned(work, request, again))
        except IcebergError as error:
            _give_up(planned)
            if not isinstance(error, MovedError):
                raise
            log.info("%s", error)  # main has moved on during an audit
            continue
        changes = [
            (work.table.state, change) for (work, _), (_, _, change) in zip(asked, planned, strict=True) if change
        ]
        try:
            if changes:
                catalog.commit_together(changes)
        except (StalePlanError, IncompatibleChangeError):
            raise
        except CommitConflictError as error:
            log.info("%s", error)
            _give_up(planned)
            time.sleep(0.01 * attempt)
            continue
        done = [
            _done(work, request, how, action) for (work, request), (how, action, _) in zip(asked, planned, strict=True)
        ]
        for work, request in asked:
            if work.table.name in again:
                end_again(work, request)
        return done
    raise CommitConflictError(
        f"other writers won {_ATTEMPTS} attempts to publish {', '.join(work.table.name for work, _ in asked)} in one "
        f"commit; nothing was published, run it again"
    )


def _give_up(planned: Sequence[_Planned]) -> None:
    for _, action, _ in planned:
        if action is not None:
            action.failed()


def _planned(work: Work, request: PublishRequest, again: dict[str, int]) -> _Planned:
    """Return how a table is published on what it is now, and the change; none of a table that is published.

    Args:
        again: the snapshots that were audited again, by the names of their tables.

    Raises:
        MovedError: main has moved on while the change was audited again.
    """
    table = work.table.refresh()
    check_table(table, request)
    if find_before(table, request.snapshot_id) is not None:
        return "found", None, None
    for snapshot_id, how in ((request.snapshot_id, "fast_forward"), (again.get(table.name), "audited_again")):
        if snapshot_id is not None:
            with suppress(MovedError):
                return _forward(work, snapshot_id, how)
    if not request.is_always_audited:
        try:
            return _reapplied(work, request)
        except (IncompatibleChangeError, StalePlanError) as error:
            if not request.audits:
                raise IncompatibleChangeError(f"table {table.name} is not published: {error}; {WRITE_AGAIN}") from error
            log.info("%s; it is audited again", error)
    applied = apply_and_audit(work, request).snapshot_id
    if applied is None:
        end_again(work, request)
        return "audited_again", None, None
    again[table.name] = applied
    return _forward(work, applied, "audited_again")


def _forward(work: Work, snapshot_id: int, how: str) -> _Planned:
    metadata = work.table.refresh().metadata
    forward = ForwardTo(snapshot_id, table_uuid=metadata.table_uuid or "", new_uuid=str(uuid4()))
    return how, forward, forward(metadata)


def _reapplied(work: Work, request: PublishRequest) -> _Planned:
    table = work.table
    settings = table.commit_settings(
        operation_key=work.operation_key,
        try_number=work.try_number or 1,
        snapshot_properties=request.snapshot_properties,
    )
    action = Reapply(table.io, settings, audited_id=request.snapshot_id)
    try:
        return "reapplied", action, action(table.metadata)
    except (IncompatibleChangeError, StalePlanError):
        action.failed()
        raise


def _done(work: Work, request: PublishRequest, how: str, action: Action | None) -> PublishResult:
    table = work.table.refresh()
    if action is not None:
        action.succeeded(table.metadata)
    found = find_published(table.metadata, request.snapshot_id)
    return result_of(work, request, how, None if found is None else found.snapshot_id)
