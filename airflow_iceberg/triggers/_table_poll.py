"""One poll for all who wait for a table in this triggerer, however many they are.

A `TablePoll` loads the table in a thread, asks each waiter there whether it has something to say, and wakes only those
that have. The smallest interval of the waiters counts. It begins with the first waiter and ends with the last.

Not here: what a look means to a waiter (`conditions`, `watcher`). Imports nothing heavy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.hooks.late_threads import Place, TooSlowError, stop_if_late
from airflow_iceberg.triggers._facts import TableFacts
from airflow_iceberg.triggers._threads import in_thread, place_of

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableState

# A smaller interval would leave no time for anything else.
_LEAST_INTERVAL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at a table.

    Attributes:
        state: the table; the very same object as before if it has not changed. None after an error.
        facts: what the manifests say about the state.
        error: why the table could not be loaded.
        place: where its catalog is asked, for those who read on.
    """

    state: TableState | None = None
    facts: TableFacts | None = None
    error: Exception | None = None
    place: Place | None = None


@dataclass(eq=False, slots=True)
class _Waiter:
    """One who waits: what it is asked, in a thread, and its slot for the newest answer that it has not taken yet."""

    interval_s: float
    ask: Callable[[Look], Any]
    woken: asyncio.Event
    answer: Any = None
    error: Exception | None = None


class TablePoll:
    """The poll of one table.

    Args:
        conn_id, table: the key that waiters share the poll by.
    """

    def __init__(self, conn_id: str, table: str) -> None:
        self.conn_id = conn_id
        self.table = table
        self._waiters: set[_Waiter] = set()
        self._new: list[_Waiter] = []
        self._wake = asyncio.Event()
        self._catalog: Catalog | None = None
        self._place = place_of(conn_id)
        self._look: Look | None = None
        self._looked_s = float("-inf")
        self._welcomes: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def answers(self, interval_s: float, ask: Callable[[Look], Any]) -> AsyncGenerator[Any, None]:
        """Wait, and yield what a waiter has to say; an exception of the waiter is raised here.

        An answer that was not taken before the next one is replaced by it.

        Args:
            interval_s: the largest time between two looks.
            ask: called with each look, in a thread; returns the answer, None for none.
        """
        waiter = self._add(interval_s, ask)
        try:
            while True:
                await waiter.woken.wait()
                waiter.woken.clear()
                answer, error, waiter.answer, waiter.error = waiter.answer, waiter.error, None, None
                if error is not None:
                    raise error
                yield answer
        finally:
            self._remove(waiter)

    @contextmanager
    def interest(self, interval_s: float) -> Iterator[None]:
        """Let the table be looked at this often for one who gets the looks in another way."""
        waiter = self._add(interval_s, lambda _: None)
        try:
            yield
        finally:
            self._remove(waiter)

    def _add(self, interval_s: float, ask: Callable[[Look], Any]) -> _Waiter:
        waiter = _Waiter(max(interval_s, _LEAST_INTERVAL_S), ask, asyncio.Event())
        self._waiters.add(waiter)
        if self._task is None:
            # In a context of its own: what it logs is not of the task that happened to come first.
            self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())
            self._task.add_done_callback(self._tell_end)
        self._greet(waiter)
        return waiter

    def _remove(self, waiter: _Waiter) -> None:
        self._waiters.discard(waiter)
        if not self._waiters:
            self._end()

    def _greet(self, waiter: _Waiter) -> None:
        """Let a new waiter see the last look, if it is recent, or wake the poll."""
        is_recent = time.monotonic() - self._looked_s < waiter.interval_s
        if self._look is not None and self._look.state is not None and is_recent:
            self._new.append(waiter)
            if len(self._new) == 1:
                task = asyncio.get_running_loop().create_task(self._welcome(), context=Context())
                self._welcomes.add(task)
                task.add_done_callback(self._welcomes.discard)
        self._wake.set()  # its interval may be smaller than all others

    async def _welcome(self) -> None:
        """Ask those who came in this turn of the event loop, in one thread."""
        await asyncio.sleep(0)
        waiters, self._new = self._new, []
        if self._look is not None:
            await self._ask(self._look, waiters)

    def _tell_end(self, task: asyncio.Task[None]) -> None:
        """Let nobody wait for a poll that has ended by itself."""
        error = None if task.cancelled() else task.exception()
        for waiter in self._waiters if isinstance(error, Exception) else ():
            waiter.error = RuntimeError(f"the poll of table {self.table} has ended: {error}")
            waiter.woken.set()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        polls = _shared().polls
        if polls.get((self.conn_id, self.table)) is self:
            del polls[(self.conn_id, self.table)]

    async def _run(self) -> None:
        while True:
            waiters = tuple(self._waiters)
            self._looked_s = time.monotonic()
            look = await self._load()
            self._look = look
            await self._ask(look, waiters)
            # Those who came while the table was loaded have not seen it.
            await self._ask(look, tuple(self._waiters.difference(waiters)))
            await self._sleep()

    async def _sleep(self) -> None:
        while self._waiters:
            self._wake.clear()
            interval_s = min(waiter.interval_s for waiter in self._waiters)
            left_s = self._looked_s + interval_s - time.monotonic()
            if left_s <= 0:
                return
            try:
                await asyncio.wait_for(self._wake.wait(), left_s)
            except TimeoutError:
                return

    async def _load(self) -> Look:
        before = self._look
        try:
            catalog = await self._opened()
            state = await in_thread(catalog.load, self.table, place=self._place)
        except Exception as error:  # noqa: BLE001 - each waiter decides what the error means to it
            if not isinstance(error, NotFoundError):
                self._catalog = None  # opened again for the next look: its login may have expired, or was corrected
            return Look(error=error, place=self._place)
        if before is not None and before.state is not None and _is_same(before.state, state):
            return before
        return Look(state=state, facts=TableFacts(catalog, state), place=self._place)

    async def _opened(self) -> Catalog:
        if self._catalog is None:
            # One catalog for all looks: a client per look would log in and open connections each time.
            from airflow_iceberg.hooks.iceberg import load_catalog_async

            self._place = place_of(self.conn_id)
            catalog = await load_catalog_async(self.conn_id, partial(in_thread, place=self._place))
            catalog.remember_states()
            # The triggerer does the work of others, too.
            catalog.limit_reads(stop_if_late)
            self._place = place_of(self.conn_id, catalog.properties)
            self._catalog = catalog
        return self._catalog

    async def _answers(self, look: Look, asked: tuple[_Waiter, ...]) -> list[tuple[_Waiter, Any, Exception | None]]:
        if look.state is not None:
            try:
                return await in_thread(_answers, look, asked, place=self._place)
            except TooSlowError as error:
                # Its thread may keep what it has, and be in the middle of an answer.
                self._catalog, self._look = None, None
                look = Look(error=error, place=self._place)
        return _answers(look, asked)  # of an error, which costs nothing

    async def _ask(self, look: Look, waiters: Iterable[_Waiter]) -> None:
        asked = tuple(waiter for waiter in waiters if waiter in self._waiters)
        if not asked:
            return
        answers = await self._answers(look, asked)
        # One at a time, of all tables: each writes to a log or ends its task, and the event loop is everybody's.
        async with _shared().waking:
            for waiter, answer, error in answers:
                waiter.answer, waiter.error = answer, error
                waiter.woken.set()
                await asyncio.sleep(0)


def _answers(look: Look, waiters: Iterable[_Waiter]) -> list[tuple[_Waiter, Any, Exception | None]]:
    """Ask all waiters; return those who have something to say."""
    found: list[tuple[_Waiter, Any, Exception | None]] = []
    for waiter in waiters:
        try:
            answer = waiter.ask(look)
        except Exception as error:  # noqa: BLE001 - of one waiter; the others go on
            found.append((waiter, None, error))
        else:
            if answer is not None:
                found.append((waiter, answer, None))
    return found


def _is_same(before: TableState, now: TableState) -> bool:
    """Tell whether a table has not changed; Hadoop catalogs give a new file the name of one that was dropped."""
    if before is now:
        return True
    old, new = before.metadata, now.metadata
    return (before.metadata_location, old.table_uuid, old.last_updated_ms, old.current_snapshot_id) == (
        now.metadata_location,
        new.table_uuid,
        new.last_updated_ms,
        new.current_snapshot_id,
    )


@dataclass(slots=True)
class _Shared:
    """What all polls of an event loop share."""

    polls: dict[tuple[str, str], TablePoll] = field(default_factory=dict)
    waking: asyncio.Lock = field(default_factory=asyncio.Lock)


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def _shared() -> _Shared:
    loop = asyncio.get_running_loop()
    if loop not in _by_loop:
        _by_loop[loop] = _Shared()
    return _by_loop[loop]


def poll_of(conn_id: str, table: str) -> TablePoll:
    """Return the poll of a table, begun if there is none in this event loop."""
    polls = _shared().polls
    if (conn_id, table) not in polls:
        polls[(conn_id, table)] = TablePoll(conn_id, table)
    return polls[(conn_id, table)]
