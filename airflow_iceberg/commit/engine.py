"""The only loop around a catalog's swap: apply the change, swap, and after a lost race apply it to the newer table.

An attempt has three outcomes. Committed: done. Conflict: the action is called again with the newer metadata. Unknown:
the table is read back until the outcome is known. Before each attempt the action is asked whether its work is in the
table already, so that neither a lost answer nor a second process with the same work can commit it twice.

That the work is not found proves nothing by itself: another writer may have committed on top of it and expired its
snapshot. That holds for a conflict, too: a request that a proxy has repeated loses to itself. The next attempt is made
only if the newer table proves that the last one has not landed (`_Commit._verdict`). Else the commit ends as unknown,
and nothing is deleted.

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
from typing import Literal, Protocol

from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.commit.retry_policy import RetryPolicy
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    NotFoundError,
    StalePlanError,
    StorageError,
    TableReplacedError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.requirements import is_same_table
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.format.properties.table_properties import TableProperties

log = logging.getLogger(__name__)

# A table that was loaded longer ago is loaded again before the first attempt: what others did before the attempt then
# raises no doubt about it.
FRESH_S = 10


class AlreadyCommittedError(Exception):
    """Raised by an action that finds its own metadata files in the table: an earlier attempt has landed."""


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

    def has_left_files(self, metadata: TableMetadata) -> bool:
        """Whether files of an attempt are part of the table, although its snapshot is not: it has expired."""
        return False

    def succeeded(self, metadata: TableMetadata) -> None:
        """An attempt has landed: delete own files of those that lost, unless the table needs them."""
        return

    def failed(self) -> None:
        """No attempt has landed, and none will: delete own files."""
        return


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
    """A request that was not confirmed.

    Attributes:
        location: the new metadata file, if its name is its own; None if a server or the version number named it.
        is_refused: whether the answer was a conflict, which may be the echo of a request that landed.
    """

    base: TableState
    location: str | None
    is_refused: bool


# How an attempt ended: the work has landed (FOUND: another process's), False if not, None if nothing proves either.
_Verdict = Outcome | Literal[False] | None


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
        self.attempts: list[_Attempt] = []
        self._lost: IcebergError | None = None

    def run(self) -> Landed:
        started, attempt = self.clock.monotonic(), 0
        if started - self.state.loaded_s > FRESH_S:
            self._freshen()
        while True:
            outcome = self._find() or self._attempt()
            if outcome is not None:
                return self._done(outcome)
            attempt += 1
            exhausted = self._wait(attempt, started)
            self._reload()
            if exhausted is not None:
                return self._last_look(exhausted)

    def _freshen(self) -> None:
        """Load a table that may be old; without an answer its old state will do."""
        try:
            self.state = self.catalog.reload(self.state)
        except StorageError as error:
            log.warning("cannot load %s again before the commit: %s", self.state.table, error)
        except IcebergError as error:
            self._give_up(error)
            raise

    def _last_look(self, exhausted: CommitConflictError) -> Landed:
        """Return if the last conflict was with our own request, else end the loop."""
        outcome = self._find()
        if outcome is not None:
            return self._done(outcome)
        self._give_up(exhausted)
        raise exhausted from self._lost

    def _attempt(self) -> Outcome | None:
        """Try once; None: the race is lost, or the last attempt has not landed, and the table has to be read again."""
        try:
            change = self._change()
            if change is None:
                return None
            if not change.updates:
                return Outcome.NOTHING
            self.state = self._send(change)
            return Outcome.COMMITTED
        except AlreadyCommittedError:
            return Outcome.COMMITTED
        except (StalePlanError, IncompatibleChangeError) as error:
            self._give_up(error)
            raise
        except CommitConflictError as error:
            log.info("lost the race for %s: %s", self.state.table, error)
            self._lost = error
            if not error.is_our_turn:  # nothing was sent
                self.attempts.append(_Attempt(base=self.state, location=error.metadata_location, is_refused=True))
            return None
        except CommitUnknownError as error:
            if error.is_final:
                raise
            log.warning("the outcome of a commit to %s is unknown, reading back: %s", self.state.table, error)
            self.attempts.append(_Attempt(base=self.state, location=error.metadata_location, is_refused=False))
            return self._resolve(error)
        except IcebergError as error:
            # Raised before the swap was sent: an unreadable manifest, a full disk.
            self._give_up(error)
            raise

    def _send(self, change: Change) -> TableState:
        try:
            return self.catalog.commit(self.state, change)
        except NotFoundError as error:
            # Perhaps renamed after a request had landed that was repeated on its way.
            raise CommitConflictError(f"{self.state.table} is gone: {error}") from error

    def _change(self) -> Change | None:
        """Ask the action; None when the files of an old base were deleted, as after a job of hours."""
        try:
            return self.action(self.state.metadata)
        except NotFoundError as error:
            # Another writer has expired the base's snapshot. If the table has not changed, one of its files is missing.
            if self.catalog.reload(self.state).metadata_location == self.state.metadata_location:
                raise
            log.info("files of %s were deleted since it was loaded: %s", self.state.table, error)
            self._lost = error
            return None

    def _resolve(self, error: CommitUnknownError) -> Outcome | None:
        """Read the table back; None: it was read and does not hold the work (yet)."""
        policy, started = self.policy, self.clock.monotonic()
        failure: IcebergError = error
        for check in range(policy.check_num_retries + 1):
            try:
                self.state = self.catalog.reload(self.state)
            except StorageError as unreadable:
                log.warning("cannot read %s back yet: %s", self.state.table, unreadable)
                failure = unreadable
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
        error.args = (f"{error}; the table cannot be read back, either: {failure.what_happened}", *error.args[1:])
        raise error

    def _find(self) -> Outcome | None:
        """Whether the work is in the table.

        Raises:
            CommitUnknownError: the table does not tell any more whether an attempt has landed.
        """
        # Differs from Java: it validates a commit whose answer was lost against itself, fails, and deletes its files.
        outcome = self.action.landed(self.state.metadata)
        for attempt in () if outcome is Outcome.COMMITTED else tuple(self.attempts):
            verdict = self._verdict(attempt)
            if verdict:
                return verdict
            if verdict is None and outcome is None:
                raise CommitUnknownError(
                    f"an attempt to commit to {self.state.table} was not confirmed, and the table does not tell any "
                    f"more whether it has landed: other writers have committed and expired since; nothing was deleted, "
                    f"compare the rows before you run it again",
                    metadata_location=attempt.location,
                    is_final=True,
                )
            if verdict is False and attempt.is_refused:  # no request of it is on its way
                self.attempts.remove(attempt)
        return outcome

    def _verdict(self, attempt: _Attempt) -> _Verdict:
        """Say how an attempt ended whose work is not in the table."""
        versions = self._versions_since(attempt.base)
        if versions is not None and (not versions or attempt.location is not None):
            return Outcome.COMMITTED if _name(attempt.location or "") in map(_name, versions) else False
        # A refusal is most often what it says, and its proof needs no file.
        checks = (self._history_tells, self._versions_tell)[:: 1 if attempt.is_refused else -1]
        for check in (*checks, self._files_tell):
            try:
                verdict = check(attempt)
            except IcebergError as error:
                log.warning("%s: cannot look whether an attempt has landed: %s", self.state.table, error)
            else:
                if verdict is not None:
                    return verdict
        return False if self._is_plain_refusal(attempt) else None

    def _is_plain_refusal(self, attempt: _Attempt) -> bool:
        """Whether a conflict is taken by its word: no answer was lost, and the server shows no history to judge by."""
        has_log = bool(self.state.metadata.metadata_log or attempt.base.metadata.metadata_log or attempt.location)
        return not has_log and all(one.is_refused for one in self.attempts)

    def _versions_since(self, base: TableState) -> list[str] | None:
        """Return the metadata files that followed a state; None if the log does not reach back to it.

        A request that is late finds another base than its own, and fails.
        """
        logged = [*(location for _, location in self.state.metadata.metadata_log), self.state.metadata_location]
        names = [_name(location) for location in logged]
        name = _name(base.metadata_location)
        if not name or names.count(name) != 1 or not is_same_table(self.state.metadata, base.metadata.table_uuid):
            return None
        return logged[names.index(name) + 1 :]

    def _history_tells(self, attempt: _Attempt) -> _Verdict:
        now, base = self.state.metadata, attempt.base.metadata
        return False if is_same_table(now, base.table_uuid) and self.action.has_surely_not_landed(now, base) else None

    def _versions_tell(self, attempt: _Attempt) -> _Verdict:
        """Look into the metadata files since: a name that every writer would have chosen proves nothing."""
        versions = self._versions_since(attempt.base)
        if versions is None:
            return None
        io = self.state.io or self.catalog.io
        older = (metadata_json.read(io.read(location), path=location) for location in versions[:-1])
        return next((found for metadata in older if (found := self.action.landed(metadata))), False)

    def _files_tell(self, attempt: _Attempt) -> _Verdict:
        return Outcome.COMMITTED if self.action.has_left_files(self.state.metadata) else None

    def _done(self, outcome: Outcome) -> Landed:
        if not self.attempts and outcome is Outcome.FOUND:
            self.action.failed()
        elif not self.attempts:
            self.action.succeeded(self.state.metadata)
        return Landed(state=self.state, outcome=outcome, has_doubts=bool(self.attempts))

    def _give_up(self, error: IcebergError) -> None:
        """End the loop: delete own files, but only if no attempt can land any more.

        Raises:
            CommitUnknownError: a request without an answer may still arrive: a caller that took the error for a failure
                would delete its data files.
        """
        is_clear = isinstance(error, TableReplacedError | UnsupportedError)
        if is_clear and all(attempt.is_refused for attempt in self.attempts):
            # Nothing can land any more in another table, or in one that was upgraded to a version that is not
            # supported. A refused attempt may have landed before that, if it was repeated on its way.
            error.may_have_landed = bool(self.attempts)
        elif self.attempts:
            raise CommitUnknownError(
                f"an attempt to commit to {self.state.table} was not confirmed, and then this failed: {error}; "
                f"nothing was deleted, run it again to find the outcome"
            ) from error
        if not error.may_have_landed:
            self.action.failed()

    def _wait(self, attempt: int, started: float) -> CommitConflictError | None:
        """Wait for the next attempt; return the error instead if the policy allows none."""
        policy = self.policy
        spent_ms = (self.clock.monotonic() - started) * 1000
        longest = min(policy.max_wait_ms, policy.min_wait_ms * 2 ** min(attempt - 1, 20))
        wait_ms = longest * (0.25 + 0.75 * self.clock.random())
        if attempt > policy.num_retries or spent_ms + wait_ms > policy.total_timeout_ms:
            what = f"attempts to commit to {self.state.table} in {spent_ms / 1000:.1f} s"
            if isinstance(self._lost, CommitUnknownError):  # nobody has won, and an attempt may still arrive
                return CommitConflictError(f"none of {attempt} {what} was confirmed or is in the table: {self._lost}")
            return CommitConflictError(
                f"other writers won {attempt} {what}; nothing was committed, run it again, or raise "
                f"{TableProperties.retry_num_retries} or {TableProperties.retry_total_timeout_ms} of the table"
            )
        if not (isinstance(self._lost, CommitConflictError) and self._lost.is_our_turn):
            self.clock.sleep(wait_ms / 1000)
        return None

    def _reload(self) -> None:
        try:
            self.state = self.catalog.reload(self.state)
        except IcebergError as error:
            self._give_up(error)
            raise


def _name(location: str) -> str:
    """Return the name of a metadata file; Java spells the same location file:/…"""
    return location.rpartition("/")[2]
