"""How many generated cases a run tries, and what they are made from.

With `make test` some of each kind, the same ones each time. With `make stress` all of them, from a new seed that it
prints: `make stress SEED=7` makes the same cases again.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
SEED = int(os.environ.get("AIRFLOW_ICEBERG_TEST_SEED", "0"))
ALL = "AIRFLOW_ICEBERG_TEST_SEED" in os.environ
settings.register_profile("sample", deadline=None, derandomize=True)
settings.register_profile("new seed", deadline=None, print_blob=True)


def sampled(count: int) -> int:
    return count if ALL else max(10, count // 5)


def some(cases: Iterable[T], each: int = 4) -> list[T]:
    """Return every fourth case, or all of them in the long run; the test has the mark `generated`."""
    return list(cases)[:: 1 if ALL else each]


class LeftOut:
    """Tells which cases of a test with the mark `sample` are not tried by `make test`, and which target tries them.

    One case in so many is tried by `make test`, another one with the services, the others by `make stress`; of tests
    that need services, one with the services. Cases are chosen along diagonals, so that each value of each parameter is
    tried if there are enough of the others.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], dict[str, int]] = {}

    def marks_of(self, item: pytest.Item) -> tuple[str, ...]:
        """Return the names of the marks that keep a case from being tried earlier."""
        mark = item.get_closest_marker("sample")
        if mark is None:
            return ()
        function = item.nodeid.partition("[")[0]
        start = zlib.crc32(function.encode())
        turn = (start + sum(self._positions(item, function))) % mark.args[0]
        if turn == 0:
            return ()
        return ("services",) if turn == 1 and not item.get_closest_marker("services") else ("services", "long")

    def _positions(self, item: pytest.Item, function: str) -> Iterator[int]:
        """Yield the position of each of the item's values in the list that it comes from."""
        for mark in item.iter_markers("parametrize"):
            names = mark.args[0]
            names = names.replace(",", " ").split() if isinstance(names, str) else names
            values = item.callspec.params  # type: ignore[attr-defined]
            seen = self._seen.setdefault((function, *names), {})
            yield seen.setdefault(repr([values[name] for name in names]), len(seen))


def examples(count: int, **more: Any) -> Callable[[Any], Any]:
    """As Hypothesis' `settings`, for a property that is worth so many examples in the long run."""
    return settings(max_examples=sampled(count), **more)


def use_profile() -> None:
    """Let Hypothesis make the same examples each time, or new ones."""
    settings.load_profile("new seed" if ALL else "sample")
