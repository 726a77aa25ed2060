"""Files that are gone because another writer has expired the snapshot that was read: work on the newer table instead.

Here: how that is told (`was_expired`), and what is done for work that only reads (`on_newest`) and for work that ends
in a commit (`stale_if_expired`). Not here: a commit that meets it (`commit.engine` makes its attempt again).

A file that is missing although its snapshot is still in the table is a broken table, and stays an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from airflow_iceberg.errors import NotFoundError, StalePlanError

if TYPE_CHECKING:
    from airflow_iceberg.table import Table

log = logging.getLogger(__name__)

# How often work that only reads begins again, before what is missing counts as lost.
MOST_ROUNDS = 5
T = TypeVar("T")


def on_newest(table: Table, work: Callable[[], T]) -> T:
    """Do work that reads a table and changes nothing; where the table has moved on under it, do it again.

    Raises:
        NotFoundError: a file is missing, and the table is as it was when the work began.
    """
    for _ in range(MOST_ROUNDS - 1):
        before = table.metadata_location
        try:
            return work()
        except NotFoundError as error:
            if table.refresh().metadata_location == before:
                raise
            log.info("%s has changed meanwhile, beginning again: %s", table.name, error)
    return work()


def was_expired(table: Table, snapshot_id: int | None) -> bool:
    """Look at the table anew and tell whether a snapshot that it had is not in it any more."""
    return snapshot_id is not None and table.refresh().metadata.snapshot(snapshot_id) is None


@contextmanager
def stale_if_expired(table: Table, snapshot_id: int | None) -> Iterator[None]:
    """Plan again when files are missing that a snapshot had which is not in the table any more.

    Args:
        snapshot_id: the snapshot that is read; None when there is none.

    Raises:
        StalePlanError: the snapshot was expired meanwhile; the table was refreshed.
    """
    try:
        yield
    except NotFoundError as error:
        if not was_expired(table, snapshot_id):
            raise
        raise StalePlanError(
            f"snapshot {snapshot_id}, which was read, was expired meanwhile by another writer, and its files were "
            f"removed ({error}); nothing was committed, plan again on the newer table"
        ) from error
