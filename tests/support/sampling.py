"""How many generated cases a run tries, and what they are made from.

With `make test` some of each kind, the same ones each time. With `make stress` all of them, from a new seed that it
prints: `make stress SEED=7` makes the same cases again.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

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


def examples(count: int, **more: Any) -> Callable[[Any], Any]:
    """As Hypothesis' `settings`, for a property that is worth so many examples in the long run."""
    return settings(max_examples=sampled(count), **more)


def use_profile() -> None:
    """Let Hypothesis make the same examples each time, or new ones."""
    settings.load_profile("new seed" if ALL else "sample")
