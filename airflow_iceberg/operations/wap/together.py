"""Publish several tables: in one commit where the catalog has such (Nessie), else one after the other.

In one commit, readers of the catalog's branch see the changes of all tables or of none. One after the other, a try that
was ended leaves some tables published; the next one finds them, and goes on with the others. Everything that can be
known before is checked for all tables before the first one is published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.actions.publish import ForwardTo, MovedError
from airflow_iceberg.commit.actions.reapply import Reapply, find_published
from airflow_iceberg.commit.engine import Action
from airflow_iceberg.errors import CommitConflictError, IcebergError, IncompatibleChangeError, StalePlanError
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.operations.wap.publish import (
    WRITE_AGAIN,
    PublishRequest,
    PublishResult,
    check_table,
    find_before,
    publish,
    result_of,
)
from airflow_iceberg.operations.work import Work

log = logging.getLogger(__name__)

Asked = Sequence[tuple[Work, PublishRequest]]
_ATTEMPTS = 20


def publish_all(asked: Asked) -> list[PublishResult]:
    """Publish the audited snapshots of several tables of one catalog; those that are published already are found.

    Raises:
        IncompatibleChangeError: one of them cannot be published; the message says which are.
    """
    catalog = asked[0][0].table.catalog
    if len(asked) > 1 and catalog.commits_together:
        return _together(catalog, asked)
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
    for attempt in range(_ATTEMPTS):
        planned = [_planned(work, request) for work, request in asked]
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
            for _, action, _ in planned:
                if action is not None:
                    action.failed()
            time.sleep(0.01 * attempt)
            continue
        return [
            _done(work, request, how, action) for (work, request), (how, action, _) in zip(asked, planned, strict=True)
        ]
    raise CommitConflictError(
        f"other writers won {_ATTEMPTS} attempts to publish {', '.join(work.table.name for work, _ in asked)} in one "
        f"commit; nothing was published, run it again"
    )


def _planned(work: Work, request: PublishRequest) -> tuple[str, Action | None, Change | None]:
    """Return how a table is published on what it is now, and the change; none of a table that is published."""
    table = work.table.refresh()
    check_table(table, request)
    if find_before(table, request.snapshot_id) is not None:
        return "found", None, None
    forward = ForwardTo(request.snapshot_id, table_uuid=table.metadata.table_uuid or "", new_uuid=str(uuid4()))
    try:
        return "fast_forward", forward, forward(table.metadata)
    except MovedError as error:
        if request.is_always_audited:
            raise IncompatibleChangeError(
                f"{error}, and several tables cannot be audited again together; {WRITE_AGAIN}"
            ) from error
    settings = table.commit_settings(
        operation_key=work.operation_key,
        try_number=work.try_number or 1,
        snapshot_properties=request.snapshot_properties,
    )
    action = Reapply(table.io, settings, audited_id=request.snapshot_id)
    try:
        return "reapplied", action, action(table.metadata)
    except (IncompatibleChangeError, StalePlanError) as error:
        action.failed()
        raise IncompatibleChangeError(f"table {table.name} is not published: {error}; {WRITE_AGAIN}") from error


def _done(work: Work, request: PublishRequest, how: str, action: Action | None) -> PublishResult:
    table = work.table.refresh()
    if action is not None:
        action.succeeded(table.metadata)
    found = find_published(table.metadata, request.snapshot_id)
    return result_of(work, request, how, None if found is None else found.snapshot_id)
