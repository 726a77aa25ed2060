"""Threads that wait for catalogs beside the work of others: each place has a few, and late ones are replaced."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airflow_iceberg.hooks.late_threads import (
    GivenUpError,
    LateThreads,
    NotAskedError,
    Place,
    TooSlowError,
    stop_if_late,
    stopper,
    when_late,
)

DEAD, WELL = Place("connection 'dead'"), Place("connection 'well'")


@asynccontextmanager
async def stuck(threads: LateThreads, count: int, place: Place = DEAD, **options: Any) -> AsyncIterator[list[Any]]:
    """Calls that wait for a server that does not answer before the end of the block."""
    is_over = threading.Event()
    given = {"timeout_s": 0.05, **options}
    calls = [asyncio.create_task(threads.call(is_over.wait, 60, place=place, **given)) for _ in range(count)]
    await asyncio.sleep(0)
    try:
        yield calls
    finally:
        is_over.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: threads._places == {} and threads._all.busy == threads._all.late == 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def late(threads: LateThreads, place: Place = DEAD) -> int:
    return threads._counts(place).late


def few(**options: int) -> LateThreads:
    return LateThreads("test", **{"most": 8, "of_a_place": 2, **options})


async def answer(threads: LateThreads, place: Place | None = WELL, **options: Any) -> str:
    return await threads.call(lambda: "answer", place=place, **{"timeout_s": 30, **options})


class TestAPlaceHasAFew:
    def test_however_many_ask_others_find_a_thread(self):
        async def ask() -> None:
            threads = few()
            async with stuck(threads, 30, timeout_s=30) as calls:
                assert threads._places[DEAD].busy == 2
                assert [await answer(threads, place) for place in (WELL, None)] == ["answer"] * 2
                with pytest.raises(TooSlowError, match="no answer to those who asked before in 0 seconds"):
                    await answer(threads, DEAD, wait_s=0.05)
                for call in calls:  # nobody waits for them any more; their threads do
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
                assert threads._places[DEAD].busy == 2
                assert not threads._turns

        asyncio.run(ask())

    def test_those_who_wait_go_on_in_the_order_in_which_they_came(self):
        async def ask() -> list[int]:
            threads, order = few(of_a_place=1), list[int]()
            await asyncio.gather(*(threads.call(order.append, n, place=WELL, timeout_s=30) for n in range(50)))
            return order

        assert asyncio.run(ask()) == list(range(50))

    def test_errors_and_answers_are_those_of_the_function(self):
        def fail(error: Exception) -> None:
            raise error

        async def ask() -> None:
            threads = few()
            for error in (ValueError("x"), TimeoutError("its own"), GivenUpError("x")):
                with pytest.raises(type(error), match=str(error)):
                    await threads.call(fail, error, place=WELL, timeout_s=30)
            with pytest.raises(RuntimeError, match="a generator has ended"):
                await threads.call(fail, StopIteration(), place=WELL, timeout_s=30)
            assert threads._places == {}

        asyncio.run(ask())


class TestALateThreadIsReplaced:
    def test_its_place_is_free_for_another_and_its_work_is_told_to_stop(self):
        stopped, told = list[str](), list[str]()

        def work(is_over: threading.Event, name: str) -> None:
            when_late(lambda: told.append(name))
            check = stopper()
            stop_if_late()
            is_over.wait(60)
            for one in (stop_if_late, check):
                try:
                    one()
                except GivenUpError:
                    stopped.append(name)

        async def ask() -> None:
            threads, is_over = few(of_a_place=1), threading.Event()
            with pytest.raises(TooSlowError, match="no answer in 0 seconds"):
                await threads.call(work, is_over, "late", place=DEAD, timeout_s=0.05)
            assert (told, late(threads)) == (["late"], 1)
            assert await answer(threads, DEAD) == "answer"
            is_over.set()
            await until(lambda: late(threads) == 0)

        asyncio.run(ask())
        assert stopped == ["late"] * 2

    def test_nobody_is_told_to_stop_outside_of_a_thread(self):
        stop_if_late()
        when_late(lambda: 1 / 0)
        stopper()()

    def test_a_call_that_nobody_waits_for_is_told_to_stop_and_becomes_late(self):
        async def ask() -> None:
            threads, is_over, ends = few(of_a_place=1), threading.Event(), list[str]()

            def work() -> None:
                is_over.wait(60)
                try:
                    stop_if_late()
                except GivenUpError:
                    ends.append("stopped")

            call = asyncio.create_task(threads.call(work, place=DEAD, timeout_s=0.2))
            await until(lambda: DEAD in threads._places and threads._places[DEAD].busy == 1)
            call.cancel()
            await until(lambda: late(threads) == 1)
            is_over.set()
            await until(lambda: ends == ["stopped"])

        asyncio.run(ask())


class TestADeadPlaceIsNotAskedAnyMore:
    def test_from_so_many_late_threads_on_until_one_of_them_ends(self):
        async def ask() -> None:
            threads = few(late_of_a_place=4)
            async with stuck(threads, 12) as calls:
                found = await asyncio.gather(*calls, return_exceptions=True)
                # Those who waited for their turn are told at once, too.
                assert [type(one) for one in found] == [TooSlowError] * 4 + [NotAskedError] * 8
                for _ in range(3):
                    with pytest.raises(NotAskedError, match="connection 'dead' is not asked any more: 4 requests"):
                        await answer(threads, DEAD)
                assert await answer(threads) == "answer"
                assert await answer(threads, Place("connection 'dead'", "corrected")) == "answer"
            assert await answer(threads, DEAD) == "answer"

        asyncio.run(ask())

    def test_of_many_dead_places_each_has_one_late_thread(self):
        async def ask() -> None:
            threads = few(most_late=3, late_of_a_place=4, of_a_place=1, most=2)
            is_over, counts = threading.Event(), list[int]()
            for number in range(6):
                place = Place(str(number))
                for _ in range(4):
                    with pytest.raises(TooSlowError):
                        await threads.call(is_over.wait, 60, place=place, timeout_s=0.02)
                counts.append(late(threads, place))
                assert await answer(threads) == "answer"
            is_over.set()
            await until(lambda: threads._all.late == 0)
            assert counts == [3, 1, 1, 1, 1, 1]

        asyncio.run(ask())

    def test_event_loops_that_are_closed_take_no_thread_with_them(self):
        threads, is_over = few(of_a_place=1), threading.Event()

        async def leave() -> None:
            for _ in range(2):
                asyncio.get_running_loop().create_task(threads.call(is_over.wait, 60, place=DEAD, timeout_s=30))
            await asyncio.sleep(0.02)

        asyncio.run(leave())
        is_over.set()
        for _ in range(1_000):
            if threads._places == {}:
                break
            time.sleep(0.01)
        assert threads._places == {}
        assert asyncio.run(answer(threads, DEAD)) == "answer"


def test_what_is_called_when_a_thread_is_late_may_fail() -> None:
    """Its caller gets the error in time all the same."""

    async def run() -> None:
        threads, is_over = few(), threading.Event()
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        def work() -> None:
            when_late(lambda: [][0])
            is_over.wait(60)

        try:
            async with asyncio.timeout(30):
                with pytest.raises(TooSlowError, match="no answer in"):
                    await threads.call(work, place=DEAD, timeout_s=0.05)
        finally:
            is_over.set()
        await until(lambda: threads._places == {})
        assert len(told) == 1

    asyncio.run(run())
