"""`TableLock`: an exclusive lock of the Hive Metastore on one table, kept alive while it is held.

Here: waiting for the lock, its heartbeat, and its holder. Not here: the commit under it (`hive.swap`).

Threads of one process queue in the process first: the metastore would let them wait in line by asking again and again.
A lock dies with the metastore's time-out (`metastore.txn.timeout`, 300 s unless changed) after its last heartbeat. So
does that of a client that was killed: until then all others wait.
"""

from __future__ import annotations

import datetime as dt
import getpass
import logging
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.hive.client import ConnectionLostError, HiveClient, MetastoreFailedError
from airflow_iceberg.catalogs.hive.thrift_interface import (
    EXCLUSIVE,
    TABLE_LEVEL,
    CheckLockRequest,
    HeartbeatRequest,
    HiveError,
    LockComponent,
    LockRequest,
    LockResponse,
    LockState,
    NoSuchLockException,
    ShowLocksElement,
    ShowLocksRequest,
    UnlockRequest,
)
from airflow_iceberg.errors import CommitConflictError, IcebergError, InvalidInputError, StorageError

log = logging.getLogger(__name__)

# Differs from Java, where it is 1.5: what has been waited for long is then noticed late, and all behind it wait longer.
_GROWTH = 1.15
# After a lost answer to `lock`: how often the metastore is asked whether it has made the lock, and the pause before it.
_SEARCHES, _SEARCH_PAUSE_SECONDS = 3, 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class LockSettings:
    """How to wait for a lock and how to keep it; seconds.

    Attributes:
        timeout: longest wait.
        min_wait, max_wait: between two questions whether the lock is ours yet; the wait grows by a seventh each time.
        heartbeat: time between signs of life; less than the metastore's time-out.
    """

    timeout: float = 180.0
    min_wait: float = 0.05
    max_wait: float = 5.0
    heartbeat: float = 240.0

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> LockSettings:
        """Read a catalog's settings: Iceberg Java's names (ms), and PyIceberg's for the waits (seconds).

        Raises:
            InvalidInputError: one is no number above 0.
        """

        def read(java: str, default_ms: float, pyiceberg: str = "") -> float:
            for key, unit in ((java, 0.001), (java.removeprefix("iceberg.hive."), 0.001), (pyiceberg, 1.0)):
                if properties.get(key):
                    return _positive(name, key, properties[key]) * unit
            return default_ms * 0.001

        return cls(
            timeout=read("iceberg.hive.lock-timeout-ms", 180_000),
            min_wait=read("iceberg.hive.lock-check-min-wait-ms", 50, "lock-check-min-wait-time"),
            max_wait=read("iceberg.hive.lock-check-max-wait-ms", 5_000, "lock-check-max-wait-time"),
            heartbeat=read("iceberg.hive.lock-heartbeat-interval-ms", 240_000),
        )


class TableLock:
    """A lock on one table; use it as a context, or `acquire` it and `give_back`.

    Args:
        table: the table in messages.
        database, name: the table in the metastore.
        user: who is shown as its holder.
        while_waiting: called at each look whether the lock is ours yet; what it raises ends the wait, and the place in
            line is given up: whose base has been replaced has nothing to do under the lock but to hold up the others.
        monotonic, sleep: the clock, seconds.
    Raises:
        CommitConflictError: on entry: others held the table until the time was up; nothing was changed.
        StorageError: on entry: the metastore could not lock.
    """

    def __init__(
        self,
        client: HiveClient,
        settings: LockSettings,
        *,
        table: str,
        database: str,
        name: str,
        user: str | None = None,
        while_waiting: Callable[[], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._settings = settings
        self._table = table
        self._database = database
        self._name = name
        self._user = user or user_name()
        self._while_waiting = while_waiting
        self._monotonic = monotonic
        self._sleep = sleep
        # By this a lock is found again whose id was in an answer that never came.
        self._agent = f"airflow-iceberg-{uuid.uuid4()}"
        self._id: int | None = None
        self._queue = _queue_of(f"{client}/{database}/{name}")
        self._stop = threading.Event()
        self._lost: IcebergError | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def acquire(self) -> None:
        """Wait for the lock and keep it alive from then on."""
        deadline = self._monotonic() + self._settings.timeout
        if not self._queue.acquire(timeout=self._settings.timeout):
            raise CommitConflictError(
                f"table {self._table} was being changed by another thread of this process for "
                f"{self._settings.timeout:g} s; try again"
            )
        try:
            self._acquire(deadline)
            threading.Thread(target=self._beat, name=f"lock of {self._table}", daemon=True).start()
        except BaseException:
            self.give_back()
            raise

    def check(self) -> None:
        """Make sure that the lock is still ours: the metastore may have given it up, or an administrator.

        Raises:
            CommitConflictError: it is gone.
            StorageError: the metastore could not tell.
        """
        if self._lost is not None:
            raise self._lost
        try:
            self._client.call("heartbeat", ids=HeartbeatRequest(lockid=self._id))
        except HiveError as error:
            raise self._gone(error) from error

    def _acquire(self, deadline: float) -> None:
        answer = self._request()
        self._id = answer.lockid
        wait = self._settings.min_wait
        while answer.state == LockState.WAITING:
            left = deadline - self._monotonic()
            if left <= 0:
                raise CommitConflictError(
                    f"cannot lock table {self._table} within {self._settings.timeout:g} s: {self._holder()}"
                )
            self._sleep(min(wait, left))
            wait = min(wait * _GROWTH, self._settings.max_wait)
            if self._while_waiting is not None:
                self._while_waiting()
            answer = self._ask_again()
        if answer.state != LockState.ACQUIRED:
            state = LockState(answer.state).name if answer.state in tuple(LockState) else answer.state
            raise CommitConflictError(f"the metastore did not give the lock on table {self._table}: it is {state}")

    def _request(self) -> LockResponse:
        component = LockComponent(type=EXCLUSIVE, level=TABLE_LEVEL, dbname=self._database, tablename=self._name)
        request = LockRequest(
            component=[component], user=self._user, hostname=socket.gethostname(), agentInfo=self._agent
        )
        try:
            answer: LockResponse = self._client.call("lock", rqst=request)
        except HiveError as error:
            raise StorageError(f"the metastore cannot lock table {self._table}: {error}") from error
        except ConnectionLostError as error:
            found = self._find_mine()
            if found is None:
                raise StorageError(
                    f"cannot lock table {self._table}: {error}; if the metastore has made a lock of it after all "
                    f"({self._agent}), it ends with the metastore's time-out"
                ) from error
            answer = LockResponse(lockid=found.lockid, state=found.state)
        except BaseException:
            # A signal while the answer was under way: Airflow ends tasks so. The lock would outlive us by minutes.
            mine = self._find_mine(searches=1)
            self._id = mine.lockid if mine else None
            raise
        return answer

    def _ask_again(self) -> LockResponse:
        try:
            answer: LockResponse = self._client.call("check_lock", rqst=CheckLockRequest(lockid=self._id))
        except HiveError as error:
            raise self._gone(error) from error
        return answer

    def _gone(self, error: HiveError) -> CommitConflictError:
        what = "is no longer held" if isinstance(error, NoSuchLockException) else "cannot be confirmed"
        return CommitConflictError(
            f"the lock on table {self._table} {what} ({error}): the metastore gives up locks without a sign of life "
            f"within its metastore.txn.timeout, ours comes each {self._settings.heartbeat:g} s "
            "(iceberg.hive.lock-heartbeat-interval-ms)"
        )

    def _beat(self) -> None:
        while not self._stop.wait(self._settings.heartbeat):
            try:
                self._client.call("heartbeat", ids=HeartbeatRequest(lockid=self._id))
            except HiveError as error:
                self._lost = self._gone(error)
                return
            except IcebergError as error:
                # The metastore may be back before the lock dies; `check` asks it before anything depends on the lock.
                log.warning("no sign of life for the lock on %s: %s", self._table, error)

    def give_back(self) -> None:
        """Let the next one in; once."""
        self._stop.set()
        try:
            if self._id is not None:
                self._client.call("unlock", rqst=UnlockRequest(lockid=self._id))
        except NoSuchLockException:
            pass
        except (HiveError, IcebergError) as error:
            log.warning(
                "cannot unlock table %s: %s; others wait until the metastore gives the lock up", self._table, error
            )
        finally:
            self._id = None
            self._queue.release()

    def _locks(self) -> list[ShowLocksElement]:
        request = ShowLocksRequest(dbname=self._database, tablename=self._name)
        return self._client.call("show_locks", rqst=request).locks or []

    def _find_mine(self, *, searches: int = _SEARCHES) -> ShowLocksElement | None:
        for _ in range(searches):
            self._sleep(_SEARCH_PAUSE_SECONDS)
            try:
                found = next((lock for lock in self._locks() if lock.agentInfo == self._agent), None)
            except (HiveError, IcebergError) as error:
                log.warning("cannot ask for the locks of table %s: %s", self._table, error)
            else:
                if found is not None:
                    return found
        return None

    def _holder(self) -> str:
        """Say who holds the table, as far as the metastore tells."""
        try:
            locks = [lock for lock in self._locks() if lock.state == LockState.ACQUIRED]
        except (HiveError, MetastoreFailedError, StorageError):
            locks = []
        if not locks:
            return "the metastore doesn't say who holds it; try again"
        lock = locks[0]
        agent = f", {lock.agentInfo}" if lock.agentInfo else ""
        return (
            f"lock {lock.lockid} is held by {lock.user}@{lock.hostname}{agent} since {_moment(lock.acquiredat)}, last "
            f"sign of life {_moment(lock.lastheartbeat)}; if its owner is dead, the metastore gives it up after its "
            "metastore.txn.timeout (300 s unless changed)"
        )


class Turns(threading.local):
    """The turn of each thread: a lock that it keeps between two attempts at one commit.

    A writer that waited in the queue for a lock usually finds that earlier writers have changed the table. At the end
    of the queue the same would happen again, so it keeps the lock while it prepares the commit on the newer base.
    """

    # Differs from Java: it gives the lock back and queues again.

    def __init__(self) -> None:
        self.is_open = False
        self._table: TableId | None = None
        self._lock: TableLock | None = None

    @contextmanager
    def attempts(self) -> Iterator[None]:
        """Allow this thread to keep a lock; what it keeps at the end is given back."""
        if self.is_open:  # a commit within a commit: the outer one gives the lock back
            yield
            return
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.give_back()

    def keep(self, table: TableId, lock: TableLock | None) -> bool:
        """Keep a lock for the next attempt, if there may be one; tell whether it is kept."""
        if lock is None or not self.is_open or self._lock is not None:
            return False
        self._table, self._lock = table, lock
        return True

    def is_kept(self, lock: TableLock) -> bool:
        """Tell whether it is this lock that is kept."""
        return self._lock is lock

    def take(self, table: TableId) -> TableLock | None:
        """Return the lock on a table that is kept, for use."""
        if self._lock is None or self._table != table:
            return None
        lock, self._lock = self._lock, None
        return lock


def user_name() -> str:
    """Return who we are, for the metastore: HADOOP_USER_NAME, or the user of the process."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):  # a container whose user id has no name
        return str(os.getuid())


def _positive(name: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidInputError(f"catalog {name}: property {key} is '{text}', expected a number above 0")
    return value


def _moment(milliseconds: int | None) -> str:
    if not milliseconds:
        return "an unknown time"
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="seconds")


class _Queue:
    """Threads of this process that want one table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, *, timeout: float) -> bool:
        """Wait for the table at most so many seconds; tell whether it is ours."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Let the next one in."""
        self._lock.release()


_queues: weakref.WeakValueDictionary[str, _Queue] = weakref.WeakValueDictionary()
_queues_lock = threading.Lock()


def _queue_of(key: str) -> _Queue:
    with _queues_lock:
        queue = _queues.get(key)
        if queue is None:
            queue = _queues[key] = _Queue()
        return queue


def _after_fork_in_child() -> None:
    """Forget queues in which threads of the parent stand: they don't exist here."""
    global _queues, _queues_lock
    _queues = weakref.WeakValueDictionary()
    _queues_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
