"""What the managers of clusters have in common: they are asked again, and what they end is waited for.

A manager that does not answer may start, or hand over to another one. Not here: the questions (`backends.yarn`,
`backends.kubernetes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from airflow_iceberg.errors import IcebergError

# How long a manager may take to start again, or to hand over to another one.
PATIENCE_S = 60.0
# Seconds for a connection, and for an answer.
TIMEOUT_S = (5, 20)

_LOOK_S = 0.5

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class Application(Protocol):
    """What a manager says of an application."""

    @property
    def is_running(self) -> bool:
        """Whether it runs, or may still do so."""

    @property
    def ending(self) -> str:
        """How it ended, for messages."""

    @property
    def waiting(self) -> str:
        """Why it does not start, if the manager says so."""

    def has_tag(self, tag: str) -> bool:
        """Whether it is of a work or a submission."""


class Manager(Protocol):
    """Who knows the applications of a cluster; all methods raise IcebergError for no answer, or for a refusal."""

    def find(self, tag: str, *, patience_s: float = PATIENCE_S) -> list[str]:
        """Return the ids of the applications with a tag that run, or wait for their turn."""

    def state(self, application_id: str, /, *, patience_s: float = PATIENCE_S) -> Application | None:
        """Return what it says of an application; None if it does not know it, or not any more."""

    def end(self, application_ids: Iterable[str], /, *, patience_s: float = PATIENCE_S) -> None:
        """End applications, and wait until they have ended; safe to be repeated."""

    def reference(self, tag: str, application_id: str | None) -> Mapping[str, Any] | None:
        """Return what makes an application known to other processes, JSON without secrets; None for an unknown one.

        Args:
            tag: of its submission.
            application_id: if it is known already.
        """


class NoAnswerError(IcebergError):
    """The manager has not answered, or not with what it should: it is asked again."""


def ask_again(
    patience_s: float, ask: Callable[_Arguments, _Answer], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Answer:
    """Return the answer to a question that may be repeated; ask again for some seconds.

    Raises:
        NoAnswerError: there was none.
    """
    again = Retrying(
        retry=retry_if_exception_type(NoAnswerError),
        stop=stop_after_delay(patience_s),
        wait=wait_random_exponential(multiplier=0.5, max=5),
        reraise=True,
    )
    return again(ask, *args, **kwargs)


def end_each(
    application_ids: Iterable[str],
    end: Callable[[str], Any],
    state: Callable[[str], Application | None],
    patience_s: float,
) -> None:
    """End applications, and wait until they have ended.

    Raises:
        IcebergError: no answer, a refusal, or one has not ended in time; the others are ended if only one is refused.
    """
    deadline = time.monotonic() + patience_s
    left, refusals = [], []
    for application_id in application_ids:
        try:
            end(application_id)
            left.append(application_id)
        except NoAnswerError:
            raise
        except IcebergError as error:  # somebody else's, with our tag
            refusals.append(error)
    while left := [one for one in left if (found := state(one)) is not None and found.is_running]:
        if time.monotonic() > deadline:
            raise IcebergError(
                f"{left[0]} was killed and has not ended after {patience_s:.0f} s; look at it on the cluster; what it "
                f"writes is not committed"
            )
        time.sleep(_LOOK_S)
    if refusals:
        raise refusals[0]
