"""`TableLock`: an exclusive lock of the Hive Metastore on one table, kept alive while it is held.

Here: waiting for the lock, its heartbeat, and its holder. Not here: the commit under it (`hive.swap`).

Threads of one process queue in the process first, without requests to the metastore. The metastore releases a lock
without a heartbeat after its time-out (`metastore.txn.timeout`, 300 s unless changed). So all others wait that long for
the lock of a client that was killed.
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
from airflow_iceberg.redaction import said

log = logging.getLogger(__name__)

# Differs from Java, where it is 1.5: after a long wait a free lock is then noticed late, and all others wait longer.
_GROWTH = 1.15
# After a lost answer to `lock`: the number of searches for the lock in the metastore, and the pause before each.
_SEARCHES, _SEARCH_PAUSE_SECONDS = 3, 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class LockSettings:
    """Waiting times for a lock, in seconds.

    Attributes:
        timeout: longest wait.
        min_wait, max_wait: pauses between two checks of the lock; each is 15 % longer than the one before.
        heartbeat: pause between two heartbeats; less than the metastore's time-out.
    """

    timeout: float = 180.0
    min_wait: float = 0.05
    max_wait: float = 5.0
    heartbeat: float = 240.0

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> LockSettings:
        """Read a catalog's settings: Iceberg Java's names (ms), and PyIceberg's for the waits (seconds)."""

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
    """A lock on one table: a context, or `acquire` and `give_back`.

    Args:
        table: the table in messages.
        database, name: the table in the metastore.
        user: the holder's name in the metastore.
        while_waiting: a function, called before each check of the lock; its error ends the wait: a writer whose base
            was replaced does not need the lock.
        monotonic, sleep: the clock, seconds.
    Raises:
        CommitConflictError: on entry: others held the table until the time-out; nothing was changed.
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
        # By this text a lock is found whose id was in a lost answer.
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
        """Wait for the lock, and start its heartbeat."""
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
        """Make sure that the lock is still ours: the metastore, or an administrator, may have released it.

        Raises:
            CommitConflictError: it is no longer held.
            StorageError: the metastore did not answer.
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
            # A signal during the request, by which Airflow ends tasks: the lock would be held for minutes.
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
            f"the lock on table {self._table} {what} ({error}): the metastore releases locks without a heartbeat "
            f"within its metastore.txn.timeout; heartbeats are sent every {self._settings.heartbeat:g} s "
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
                # The metastore may be back before the lock expires; `check` asks it before the lock is relied on.
                log.warning("no heartbeat for the lock on %s: %s", self._table, error)

    def give_back(self) -> None:
        """Release the lock; once."""
        self._stop.set()
        try:
            if self._id is not None:
                self._client.call("unlock", rqst=UnlockRequest(lockid=self._id))
        except NoSuchLockException:
            pass
        except (HiveError, IcebergError) as error:
            log.warning(
                "cannot unlock table %s: %s; others wait until the metastore gives the lock up",
                self._table,
                said(error),
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
                log.warning("cannot list the locks of table %s: %s", self._table, said(error))
            else:
                if found is not None:
                    return found
        return None

    def _holder(self) -> str:
        """Return a description of the lock's holder, as far as the metastore has one."""
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
            f"heartbeat {_moment(lock.lastheartbeat)}; if its owner is dead, the metastore releases it after its "
            "metastore.txn.timeout (300 s unless changed)"
        )


class Turns(threading.local):
    """The lock session of a thread: the lock that it keeps between two attempts of one commit.

    A writer that waited in the queue for a lock usually finds that earlier writers have changed the table. At the end
    of the queue the same would happen again, so it keeps the lock while it prepares the commit on the newer base.
    """

    # Differs from Java: it releases the lock and queues again.

    def __init__(self) -> None:
        self.is_open = False
        self._table: TableId | None = None
        self._lock: TableLock | None = None

    @contextmanager
    def attempts(self) -> Iterator[None]:
        """Allow this thread to keep a lock; at the end it is released."""
        if self.is_open:  # a commit within a commit: the outer one releases the lock
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
        """Keep a lock for the next attempt, if there may be one; return whether it is kept."""
        if lock is None or not self.is_open or self._lock is not None:
            return False
        self._table, self._lock = table, lock
        return True

    def is_kept(self, lock: TableLock) -> bool:
        """Tell whether this lock is kept."""
        return self._lock is lock

    def take(self, table: TableId) -> TableLock | None:
        """Return the kept lock on a table, for use; None if there is none."""
        if self._lock is None or self._table != table:
            return None
        lock, self._lock = self._lock, None
        return lock


def user_name() -> str:
    """Return our name for the metastore: HADOOP_USER_NAME, or the user of the process."""
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


# The threads of this process that wait for a table queue at its lock.
_queues: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
_queues_lock = threading.Lock()


def _queue_of(key: str) -> threading.Lock:
    with _queues_lock:
        return _queues.setdefault(key, threading.Lock())


def _after_fork_in_child() -> None:
    """Forget the queues of the parent's threads, which don't exist here."""
    global _queues, _queues_lock
    _queues = weakref.WeakValueDictionary()
    _queues_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
