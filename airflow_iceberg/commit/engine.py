"""The only loop around a catalog's swap: apply the change, swap, and after a lost race apply it to the newer table.

An attempt has three outcomes. Committed: done. Conflict: the action is called again with the newer metadata. Unknown:
the table is read back until the outcome is known. Before each attempt the action is asked whether its work is in the
table already, so that neither a lost answer nor a second process with the same work can commit it twice.

That the work is not found proves nothing by itself: another writer may have committed on top of it and expired its
snapshot. After an unknown outcome the next attempt is made only if the newer table proves that the last one has not
landed: nothing has changed, the log of metadata files reaches back to the base, or the action itself can tell. Else the
commit ends as unknown, and nothing is deleted.

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
from airflow_iceberg.commit.write_result import Outcome
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


class AlreadyCommittedError(Exception):
    """Raised by an action that finds its own files in the table: an earlier attempt has landed."""


class Action(Protocol):
    """A change that can be applied to any newer state of the table.

    Calling it may write new metadata files under unique names and changes nothing else.
    """

    def __call__(self, metadata: TableMetadata) -> Change:
        """Return the change against this metadata; no updates means that there is nothing to do."""

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether the work is in the table: COMMITTED by this object, or FOUND, the same work of another process."""

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether newer metadata, in which the work is not found, proves that an attempt on this base has not landed.

        A work that may be done twice without harm is proof enough.
        """

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Landed:
    """How a commit ended that did not fail.

    Attributes:
        state: the table, which contains the change.
        outcome: COMMITTED by this call, FOUND when another process had committed the same work, or NOTHING when there
            was nothing to change.
        has_doubts: whether an attempt of this call had no answer: then none of its files may be deleted.
    """

    state: TableState
    outcome: Outcome
    has_doubts: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """A request without an answer.

    Attributes:
        location: the new metadata file, None if the server chose its name.
        digest: the SHA-256 of its content, if its name alone does not prove that it is ours.
    """

    base: TableState
    location: str | None
    digest: str | None


def commit(catalog: Catalog, base: TableState, action: Action, *, clock: Clock | None = None) -> Landed:
    """Commit a change; return how it ended, and the table's state that contains it.

    Args:
        base: the table when the caller planned; with an old one the first attempt is retried.

    Raises:
        CommitConflictError: other writers won all attempts that the table's properties allow; nothing was committed,
            and the action's metadata files are deleted.
        StalePlanError, IncompatibleChangeError: raised by the action; nothing was committed.
        CommitUnknownError: the table could not be read back, or does not tell any more; nothing was deleted.
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
        self.doubtful: list[_Attempt] = []
        # Metadata files of attempts that lost a race, perhaps to their own repeated request.
        self.refused: set[str] = set()
        self._lost: IcebergError | None = None

    def run(self) -> Landed:
        started = self.clock.monotonic()
        attempt = 0
        while True:
            outcome = self._find() or self._attempt()
            if outcome is not None:
                return self._done(outcome)
            attempt += 1
            self._wait(attempt, started)
            self._reload()

    def _attempt(self) -> Outcome | None:
        """Try once; None: the race is lost, or the last attempt has not landed, and the table has to be read again."""
        try:
            change = self._change()
            if change is None:
                return None
            if not change.updates:
                return Outcome.NOTHING
            self.state = self.catalog.commit(self.state, change)
            return Outcome.COMMITTED
        except AlreadyCommittedError:
            return Outcome.COMMITTED
        except (StalePlanError, IncompatibleChangeError) as error:
            self._give_up(error)
            raise
        except CommitConflictError as error:
            log.info("lost the race for %s: %s", self.state.table, error)
            self._lost = error
            if error.metadata_location:
                self.refused.add(error.metadata_location)
            return None
        except CommitUnknownError as error:
            log.warning("the outcome of a commit to %s is unknown, reading back: %s", self.state.table, error)
            self.doubtful.append(
                _Attempt(base=self.state, location=error.metadata_location, digest=error.metadata_digest)
            )
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

    def _resolve(self, error: CommitUnknownError) -> Outcome | None:
        """Read the table back; None: it was read and does not hold the work (yet)."""
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
                return self._find()
            wait_ms = min(policy.check_max_wait_ms, policy.check_min_wait_ms * 2**check)
            if (self.clock.monotonic() - started) * 1000 + wait_ms > policy.check_total_timeout_ms:
                break
            if check < policy.check_num_retries:
                self.clock.sleep(wait_ms / 1000)
        raise error

    def _find(self) -> Outcome | None:
        """Whether the work is in the table.

        Raises:
            CommitUnknownError: an attempt had no answer, and the table does not tell any more whether it has landed.
        """
        # Differs from Java: it validates a commit whose answer was lost against itself, fails, and deletes its files.
        outcome = self.action.landed(self.state.metadata)
        if outcome is not None:
            return outcome
        known = [self._log_tells(attempt) for attempt in self.doubtful]
        if True in known or not self.refused.isdisjoint(location for _, location in self.state.metadata.metadata_log):
            return Outcome.COMMITTED
        for attempt, has_landed in zip(self.doubtful, known, strict=True):
            proved = has_landed is False
            if not (proved or self.action.has_surely_not_landed(self.state.metadata, attempt.base.metadata)):
                raise CommitUnknownError(
                    f"an attempt to commit to {self.state.table} got no answer, and the table does not tell any more "
                    f"whether it has landed: other writers have committed and expired since; nothing was deleted, "
                    f"compare the rows before you run it again",
                    metadata_location=attempt.location,
                )
        return None

    def _log_tells(self, attempt: _Attempt) -> bool | None:
        """Whether the log of metadata files proves that an attempt has landed, or has not; None if it proves nothing.

        A request that is late finds another base than its own, and fails.
        """
        if self.state.metadata_location == attempt.base.metadata_location:
            return False
        if attempt.location is None:
            return None
        logged = {self.state.metadata_location, *(location for _, location in self.state.metadata.metadata_log)}
        if attempt.location in logged:
            return True if attempt.digest is None else self.catalog.has_content(attempt.location, attempt.digest)
        return False if attempt.base.metadata_location in logged else None

    def _done(self, outcome: Outcome) -> Landed:
        if not self.doubtful:
            self.action.succeeded(self.state.metadata)
        return Landed(state=self.state, outcome=outcome, has_doubts=bool(self.doubtful))

    def _give_up(self, error: IcebergError) -> None:
        """End the loop: delete own files, but only if no attempt can land any more.

        Raises:
            CommitUnknownError: a request without an answer may still arrive: a caller that took the error for a failure
                would delete its data files.
        """
        if self.doubtful:
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
