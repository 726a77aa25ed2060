"""The only loop around a catalog's swap: apply the change, swap, and after a lost race apply it to the newer table.

A commit has three outcomes. Committed: done. Conflict: the action is called again with the newer metadata. Unknown: the
table is read back until the outcome is known. Before each attempt the action is asked whether its work is in the table
already, so that neither a lost answer nor a second process with the same work can commit it twice.

Each attempt is a compare-and-swap against the base that it was made for. If a lost request arrives late, the next
attempt loses its race, reads the table, and finds the work done.

What a change contains is decided in `commit.snapshot_action`; where the pointer is stored, in `catalogs`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    NotFoundError,
    StalePlanError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.format.properties.table_properties import TableProperties

log = logging.getLogger(__name__)

# Differs from Java: it gives up after 4 retries, which eight writers that append at once easily reach (docs/adr/0010).
# Unless the table sets a number, the time limit alone ends the loop.
UNLIMITED_RETRIES = 2**31 - 1
# Differs from Java: without a limit on the number of retries the wait is short; 60 s are meant for a few attempts.
LIMITED_MAX_WAIT_MS, UNLIMITED_MAX_WAIT_MS = 60_000, 2_000


class Action(Protocol):
    """A change that can be applied to any newer state of the table.

    Calling it may write new metadata files under unique names and changes nothing else.
    """

    def __call__(self, metadata: TableMetadata) -> Change:
        """Return the change against this metadata; no updates means that there is nothing to do."""

    def has_landed(self, metadata: TableMetadata) -> bool:
        """Whether the work is in the table, committed by this object or by another process with the same work."""

    def succeeded(self, metadata: TableMetadata) -> None:
        """The work is in the table: delete own files of attempts that lost, unless the table needs them."""
        return

    def failed(self) -> None:
        """The work is definitely not in the table and is not tried again: delete own files."""
        return


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and how long to retry: the table's properties `commit.retry.*` and `commit.status-check.*`, in
    milliseconds.
    """

    num_retries: int = UNLIMITED_RETRIES
    min_wait_ms: int = TableProperties.retry_min_wait_ms.default
    max_wait_ms: int = UNLIMITED_MAX_WAIT_MS
    total_timeout_ms: int = TableProperties.retry_total_timeout_ms.default
    check_num_retries: int = TableProperties.status_check_num_retries.default
    check_min_wait_ms: int = TableProperties.status_check_min_wait_ms.default
    check_max_wait_ms: int = TableProperties.status_check_max_wait_ms.default
    check_total_timeout_ms: int = TableProperties.status_check_total_timeout_ms.default

    @classmethod
    def of(cls, metadata: TableMetadata) -> RetryPolicy:
        """Read the policy of a table.

        Raises:
            InvalidInputError: a property is not a number of 0 or more.
        """
        properties = TableProperties.of(metadata.properties)
        num_retries, max_wait_ms = properties.retry_num_retries, properties.retry_max_wait_ms
        longest_ms = UNLIMITED_MAX_WAIT_MS if num_retries is None else LIMITED_MAX_WAIT_MS
        return cls(
            num_retries=UNLIMITED_RETRIES if num_retries is None else num_retries,
            min_wait_ms=properties.retry_min_wait_ms,
            max_wait_ms=longest_ms if max_wait_ms is None else max_wait_ms,
            total_timeout_ms=properties.retry_total_timeout_ms,
            check_num_retries=properties.status_check_num_retries,
            check_min_wait_ms=properties.status_check_min_wait_ms,
            check_max_wait_ms=properties.status_check_max_wait_ms,
            check_total_timeout_ms=properties.status_check_total_timeout_ms,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Time and random numbers, replaceable in tests: monotonic seconds, a sleep in seconds, a number in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random


def commit(catalog: Catalog, base: TableState, action: Action, *, clock: Clock | None = None) -> TableState:
    """Commit a change and return the table's state that contains it.

    Args:
        base: the table when the caller planned; with an old one the first attempt is retried.

    Raises:
        CommitConflictError: other writers won all attempts that the table's properties allow; nothing was committed,
            and the action's metadata files are deleted.
        StalePlanError, IncompatibleChangeError: raised by the action; nothing was committed.
        CommitUnknownError: the table could not be read back; nothing was deleted.
    """
    with catalog.attempts(base.table):
        return _Commit(catalog, base, action, clock or Clock()).run()


class _Commit:
    """One run of the loop, with the state that its attempts share."""

    def __init__(self, catalog: Catalog, base: TableState, action: Action, clock: Clock) -> None:
        self.catalog = catalog
        self.state = base
        self.action = action
        self.clock = clock
        self.policy = RetryPolicy.of(base.metadata)
        # Metadata files of attempts without an answer; the table names them if they have landed.
        self.doubtful: set[str] = set()
        self.in_doubt = False
        self._lost: IcebergError | None = None

    def run(self) -> TableState:
        started = self.clock.monotonic()
        attempt = 0
        while True:
            if self._has_landed():
                return self._done()
            if self._attempt():
                return self._done()
            attempt += 1
            self._wait(attempt, started)
            self._reload()

    def _attempt(self) -> bool:
        """Try once; False: the race is lost or the outcome is unknown, and the table has to be read again."""
        try:
            change = self._change()
            if change is None:
                return False
            if change.updates:
                self.state = self.catalog.commit(self.state, change)
            return True
        except (StalePlanError, IncompatibleChangeError) as error:
            self._give_up(error)
            raise
        except CommitConflictError as error:
            log.info("lost the race for %s: %s", self.state.table, error)
            self._lost = error
            return False
        except CommitUnknownError as error:
            log.warning("the outcome of a commit to %s is unknown, reading back: %s", self.state.table, error)
            self.in_doubt = True
            if error.metadata_location:
                self.doubtful.add(error.metadata_location)
            return self._resolve(error)
        except IcebergError as error:
            # Raised before the swap was sent: an unreadable manifest, a full disk.
            self._give_up(error)
            raise

    def _change(self) -> Change | None:
        """Ask the action; None when the files of an old base were deleted, as after a job of hours."""
        try:
            return self.action(self.state.metadata)
        except NotFoundError as error:
            # Another writer has expired the base's snapshot. If the table has not changed, one of its files is missing.
            if self.catalog.load(self.state.table).metadata_location == self.state.metadata_location:
                raise
            log.info("files of %s were deleted since it was loaded: %s", self.state.table, error)
            self._lost = error
            return None

    def _resolve(self, error: CommitUnknownError) -> bool:
        """Read the table back; False: it was read and does not hold the work (yet)."""
        policy, started = self.policy, self.clock.monotonic()
        for check in range(policy.check_num_retries + 1):
            try:
                self.state = self.catalog.load(self.state.table)
            except StorageError as unreadable:
                log.warning("cannot read %s back yet: %s", self.state.table, unreadable)
            except IcebergError as unreadable:
                # The table was dropped, renamed or damaged: the change may have landed before that.
                raise CommitUnknownError(
                    f"the outcome of a commit to {self.state.table} is unknown ({error}), and the table cannot be "
                    f"read back: {unreadable}; nothing was deleted",
                    metadata_location=error.metadata_location,
                ) from unreadable
            else:
                self._lost = error
                return self._has_landed()
            wait_ms = min(policy.check_max_wait_ms, policy.check_min_wait_ms * 2**check)
            if (self.clock.monotonic() - started) * 1000 + wait_ms > policy.check_total_timeout_ms:
                break
            if check < policy.check_num_retries:
                self.clock.sleep(wait_ms / 1000)
        raise error

    def _has_landed(self) -> bool:
        # Differs from Java: it validates a commit whose answer was lost against itself, fails, and deletes its files.
        metadata = self.state.metadata
        if self.action.has_landed(metadata):
            return True
        return bool(self.doubtful) and (
            self.state.metadata_location in self.doubtful
            or any(location in self.doubtful for _, location in metadata.metadata_log)
        )

    def _done(self) -> TableState:
        if not self.in_doubt:
            self.action.succeeded(self.state.metadata)
        return self.state

    def _give_up(self, error: IcebergError) -> None:
        """End the loop: delete own files, but only if no attempt can land any more.

        Raises:
            CommitUnknownError: a request without an answer may still arrive: a caller that took the error for a failure
                would delete its data files.
        """
        if self.in_doubt:
            raise CommitUnknownError(
                f"an earlier attempt to commit to {self.state.table} got no answer, and the next one failed: {error}; "
                f"nothing was deleted, run it again to find the outcome"
            ) from error
        self.action.failed()

    def _wait(self, attempt: int, started: float) -> None:
        policy = self.policy
        spent_ms = (self.clock.monotonic() - started) * 1000
        longest = min(policy.max_wait_ms, policy.min_wait_ms * 2 ** min(attempt - 1, 20))
        wait_ms = longest * (0.25 + 0.75 * self.clock.random())
        if attempt > policy.num_retries or spent_ms + wait_ms > policy.total_timeout_ms:
            exhausted = CommitConflictError(
                f"other writers won {attempt} attempts to commit to {self.state.table} in {spent_ms / 1000:.1f} s; "
                f"nothing was committed, run it again, or raise {TableProperties.retry_num_retries} or "
                f"{TableProperties.retry_total_timeout_ms} of the table"
            )
            self._give_up(exhausted)
            raise exhausted from self._lost
        if not (isinstance(self._lost, CommitConflictError) and self._lost.is_our_turn):
            self.clock.sleep(wait_ms / 1000)

    def _reload(self) -> None:
        try:
            self.state = self.catalog.load(self.state.table)
        except IcebergError as error:
            self._give_up(error)
            raise
