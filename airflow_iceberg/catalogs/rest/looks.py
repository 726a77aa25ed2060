"""Looks after a change of a REST server whose answer says too little: whether it was made, or surely not.

Not here: the answers that show what was made of a change (`rest.differences`), and sending (`http.client`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_iceberg.errors import (
    CommitUnknownError,
    IcebergError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    advised,
)

log = logging.getLogger(__name__)

LOOK = "look at the table before you try again: the server may have made something else of it"


@contextmanager
def ruled_out(is_as_before: Callable[[], bool]) -> Iterator[None]:
    """Let one look tell that a change was not made which the server says that it never makes.

    Its answer is that of a failure, which may come after the change as well.

    Args:
        is_as_before: tells whether nothing has changed.
    Raises:
        UnsupportedError: nothing has.
        CommitUnknownError: something has, or it cannot be seen; any other change without an answer.
    """
    try:
        yield
    except CommitUnknownError as error:
        if error.refused is None:
            raise
        try:
            is_clear = is_as_before()
        except IcebergError:
            is_clear = False
        if not is_clear:
            raise
        raise error.refused from error


@contextmanager
def looked_up(is_done: Callable[[], bool]) -> Iterator[None]:
    """Let one more look tell whether a change was made whose answer is lost.

    Raises:
        CommitUnknownError: it was not, so that it may still arrive, or nothing can be seen.
        UnsupportedError: it was not, and the server says that it never makes it.
    """
    try:
        yield
    except CommitUnknownError as error:
        is_made: bool | None
        try:
            is_made = is_done()
        except NotFoundError:  # what was to be made or changed
            is_made = False
        except IcebergError:
            is_made = None
        if is_made is False and error.refused is not None:
            raise error.refused from error
        if not is_made:
            raise
        log.info("%s; it was made, as a look has shown", error)


def check_made(what: str, is_made: Callable[[], bool], lacks: str) -> None:
    """Let a look tell whether a change was made whose answer shows nothing.

    Who may change a thing may not be allowed to look at it: then the answer is believed.

    Args:
        what: whose change it is, and which: "catalog prod answered that it did drop table db.t".
        lacks: what is there instead, in words.
    Raises:
        CommitUnknownError: it was not, or that cannot be seen.
    """
    try:
        is_seen = is_made()
    except IcebergError as error:
        if isinstance(error, UnsupportedError) or (isinstance(error, StorageError) and error.is_denied):
            log.info("%s, which cannot be seen: %s", what, error)
            return
        raise CommitUnknownError(f"{what}, and that cannot be seen: {error}") from error
    if not is_seen:
        raise advised(CommitUnknownError(f"{what}, but {lacks}", is_final=True), LOOK)


@contextmanager
def confirmed(what: str, is_done: Callable[[], bool], lacks: str) -> Iterator[None]:
    """Let a look tell whether a change was made whose answer is lost (`looked_up`), or shows nothing (`check_made`)."""
    is_answered = False
    with looked_up(is_done):
        yield
        is_answered = True
    if is_answered:
        check_made(what, is_done, lacks)
