"""Threads for work that waits for catalogs and stores, beside the work of others: in the API server and the triggerer.

A thread cannot be stopped, and a server can keep one waiting for ever. So a call that takes too long is given up: its
caller gets an error, its place is free for another, and the thread is late. What runs in it is told to stop at its next
step (`stop_if_late`). A place with many late threads, such as a connection, is not asked any more until one has ended.

Imports nothing heavy.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from airflow_iceberg.errors import StorageError

T = TypeVar("T")


class Place(NamedTuple):
    """What a thread may wait for.

    Attributes:
        name: for people, such as "connection 'lake'".
        version: another one makes it another place: that of a connection that was corrected is asked again.
    """

    name: str
    version: str = ""

    def __str__(self) -> str:
        return self.name


class TooSlowError(StorageError):
    """A catalog or a store did not answer in time, or many others are waiting for theirs."""


class NotAskedError(TooSlowError):
    """So many threads are late at a place that nothing more is asked there."""


class GivenUpError(Exception):
    """Raised in a late thread, to end it: nobody waits for its result. No error of ours, which might be told."""


@dataclass(eq=False, slots=True)
class _Work:
    """One call: whether its thread has ended, and whether anybody still waits for it."""

    place: Place | None
    has_ended: bool = False
    is_late: bool = False
    is_unwanted: bool = False
    when_late: list[Callable[[], None]] = field(default_factory=list)

    def stop_if_late(self) -> None:
        if self.is_late or self.is_unwanted:
            raise GivenUpError("nobody waits for this any more")


@dataclass(eq=False, slots=True)
class _Turn:
    """One who waits for a thread."""

    place: Place | None
    loop: asyncio.AbstractEventLoop
    given: asyncio.Future[None]
    is_given: bool = False


@dataclass(slots=True)
class _Counts:
    busy: int = 0
    late: int = 0


_current: ContextVar[_Work | None] = ContextVar("airflow_iceberg_work", default=None)


def stop_if_late() -> None:
    """End this thread if its result is not waited for any more; otherwise, and in other threads, nothing.

    Raises:
        GivenUpError: it was given up.
    """
    work = _current.get()
    if work is not None:
        work.stop_if_late()


def stopper() -> Callable[[], None]:
    """Return `stop_if_late` of this thread, for the threads that it starts itself."""
    work = _current.get()
    return stop_if_late if work is None else work.stop_if_late


def when_late(function: Callable[[], None]) -> None:
    """Let a function be called if this thread is given up: it may hold what others need."""
    work = _current.get()
    if work is not None:
        work.when_late.append(function)


class LateThreads:
    """Threads of which a place has a few.

    Args:
        name: that of the threads.
        most: how many work at the same time; late ones do not count.
        of_a_place: how many of them work for one place.
        late_of_a_place: so many late threads of a place, and nothing more is asked there.
        most_late: from so many late threads on, in all places, a place has one at most.
    """

    def __init__(self, name: str, *, most: int, of_a_place: int, late_of_a_place: int = 4, most_late: int = 64) -> None:
        self._name = name
        self._most, self._of_a_place = most, of_a_place
        self._late_of_a_place, self._most_late = late_of_a_place, most_late
        self._lock = threading.Lock()
        self._all = _Counts()
        self._places: dict[Place, _Counts] = {}
        self._turns: deque[_Turn] = deque()

    async def call(
        self,
        function: Callable[..., T],
        *arguments: Any,
        place: Place | None,
        timeout_s: float,
        wait_s: float | None = None,
        **options: Any,
    ) -> T:
        """Call a function in a thread, and wait for it.

        Args:
            place: what it may wait for; None for nothing but Airflow's database.
            timeout_s: how long it may run.
            wait_s: how long to wait for those who asked before; None: until it is one's turn. What is waited is a part
                of `timeout_s` then.

        Raises:
            TooSlowError: it has not returned in time; it is told to stop, and its result is lost.
            NotAskedError: it was not called, since its place has too many late threads.
        """
        began = time.monotonic()
        await self._turn(place, wait_s)
        left_s = timeout_s if wait_s is None else max(timeout_s - (time.monotonic() - began), 0.0)
        work, loop = _Work(place), asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = copy_context()
        context.run(_current.set, work)
        call = partial(context.run, function, *arguments, **options)
        try:
            thread = threading.Thread(target=self._run, args=(work, call, loop, answer), name=self._name, daemon=True)
            thread.start()
        except BaseException:
            self._ended(work)
            raise
        timer = loop.call_later(left_s, self._give_up, work, answer, timeout_s)
        answer.add_done_callback(lambda _: timer.cancel() if work.has_ended else None)
        try:
            return await answer
        except asyncio.CancelledError:
            work.is_unwanted = True  # it is given up when its time is over
            raise

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _turn(self, place: Place | None, wait_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        turn = _Turn(place, loop, loop.create_future())
        with self._lock:
            self._check(place)
            self._turns.append(turn)
            self._give_turns()
        try:
            async with asyncio.timeout(wait_s):
                await turn.given
        except TimeoutError as error:
            self._withdraw(turn)
            raise TooSlowError(f"no answer to those who asked before in {wait_s:.0f} seconds") from error
        except asyncio.CancelledError:
            self._withdraw(turn)
            raise

    def _withdraw(self, turn: _Turn) -> None:
        with self._lock:
            if turn.is_given:
                self._count(turn.place, busy=-1)
            else:
                with suppress(ValueError):
                    self._turns.remove(turn)
            self._give_turns()

    def _give_turns(self) -> None:
        """Let those go on who may, in the order in which they came. The lock is held."""
        if not self._turns:
            return
        waiting: deque[_Turn] = deque()
        while self._turns:
            turn = self._turns.popleft()
            if self._refusal(turn.place) is not None:
                self._tell(turn, self._refusal(turn.place))
            elif self._has_room(turn.place):
                turn.is_given = True
                self._count(turn.place, busy=1)
                self._tell(turn, None)
            else:
                waiting.append(turn)
        self._turns = waiting

    def _has_room(self, place: Place | None) -> bool:
        counts = self._counts(place)
        # All that are busy may become late.
        most = min(self._of_a_place, self._late_of_a_place - counts.late)
        return self._all.busy < self._most and counts.busy < most

    def _tell(self, turn: _Turn, error: Exception | None) -> None:
        def tell() -> None:
            if turn.given.done():
                return
            if error is None:
                turn.given.set_result(None)
            else:
                turn.given.set_exception(error)

        try:
            turn.loop.call_soon_threadsafe(tell)
        except RuntimeError:  # its event loop is closed
            if turn.is_given:
                self._count(turn.place, busy=-1)

    def _check(self, place: Place | None) -> None:
        if (error := self._refusal(place)) is not None:
            raise error

    def _refusal(self, place: Place | None) -> NotAskedError | None:
        late = self._counts(place).late
        if late < self._late_of_a_place and not (late and self._all.late >= self._most_late):
            return None
        return NotAskedError(
            f"{place} is not asked any more: {late} requests to it have got no answer in time, and still wait for one; "
            "it is asked again when one of them has ended, or when the connection was changed"
        )

    # -- threads -------------------------------------------------------------------------------------------------------

    def _run(
        self, work: _Work, call: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]
    ) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
            error = raised
        self._ended(work)

        def deliver() -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]  # it was returned
            elif isinstance(error, StopIteration):
                answer.set_exception(RuntimeError("a generator has ended"))  # no future takes it
            else:
                answer.set_exception(error)

        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(deliver)

    def _ended(self, work: _Work) -> None:
        with self._lock:
            work.has_ended = True
            self._count(work.place, **({"late": -1} if work.is_late else {"busy": -1}))
            self._give_turns()

    def _give_up(self, work: _Work, answer: asyncio.Future[Any], timeout_s: float) -> None:
        with self._lock:
            if work.has_ended:
                return  # its answer is on its way
            work.is_late = True
            self._count(work.place, busy=-1, late=1)
            self._give_turns()
        if not answer.done():
            answer.set_exception(TooSlowError(f"no answer in {timeout_s:.0f} seconds"))
        # After that: one that fails must keep nobody waiting.
        for function in work.when_late:
            function()

    def _counts(self, place: Place | None) -> _Counts:
        return _NONE if place is None else self._places.get(place, _NONE)

    def _count(self, place: Place | None, *, busy: int = 0, late: int = 0) -> None:
        for counts in (self._all, *(() if place is None else (self._places.setdefault(place, _Counts()),))):
            counts.busy += busy
            counts.late += late
        if place is not None and self._places[place] == _NONE:
            del self._places[place]


_NONE = _Counts()
