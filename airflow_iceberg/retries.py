"""Which errors Airflow retries, and which fail the task: operators, sensors and triggers all use this module.

Each failure is told in two lines of the task's log: what happened, and what to do.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout

from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    StorageError,
    TableReplacedError,
    UnsupportedError,
    described,
    error_class,
)
from airflow_iceberg.redaction import hide, printable, without_secrets

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:
    try:
        from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
    except ImportError:
        # Before Airflow 3.3 there are no policies; what is final fails at once all the same.
        RetryDecision, RetryPolicy = None, object

log = logging.getLogger(__name__)

# No retry can succeed until a person corrects the DAG, the connection, the data or the table. All other errors are
# retried: a retry reads the table first, so that it is safe even if the outcome of this try is unknown; unless the
# table will never tell (`CommitUnknownError.is_final`).
FINAL = (NotFoundError, AlreadyExistsError, InvalidInputError, FormatError, UnsupportedError, IncompatibleChangeError)

# What to do, by the class of the error, the narrower one first.
_ADVICE: tuple[tuple[type[IcebergError], str], ...] = (
    (InvalidInputError, "correct the task's arguments, its data or the connection, then clear the task"),
    (NotFoundError, "check the name, and that the connection leads to the right catalog or store, then clear the task"),
    (AlreadyExistsError, "choose another name, or use what exists, then clear the task"),
    (FormatError, "look at the file: another program has written it, or it is damaged; then clear the task"),
    (UnsupportedError, "nothing was changed; use another way, or install what is missing, then clear the task"),
    (IncompatibleChangeError, "a person has to decide, as the error says; then clear the task"),
    (TableReplacedError, "nothing was committed; the next try loads the table by its name, and works on the new one"),
    (StalePlanError, "nothing was committed; the next try plans the work again on the latest snapshot"),
    (CommitConflictError, "nothing was committed; the next try commits on the latest snapshot; a pool makes it rare"),
    (CommitUnknownError, "nothing was deleted; the next try looks for the commit in the table first: let it do so"),
    (StorageError, "the next try starts from the beginning; if it fails again, check the store and the network"),
)  # fmt: skip
_UNKNOWN_FOREVER = "look in the table whether the rows are there, since nothing else can tell"
_BY_HAND = "then mark the task as successful, or clear it"
_TRACEBACK = (
    "look at the traceback below: the task's own code has raised it, or it is a bug; the next try first looks whether "
    "the work was committed"
)
_INTERRUPTED = "clear the task if nobody else runs it: it first looks whether the work was committed"
_AGAIN = "Airflow tries the task again if it has retries left"
_BROKEN_ANSWER = "look at who has sent or written what is named above: it breaks the specification; then clear the task"
_NO_PERMISSION = "give the identity of the connection the permission, or the connection another identity, then clear it"


def is_final(error: IcebergError) -> bool:
    """Tell whether a retry is useless; an error of an unknown type is retried."""
    is_lost = isinstance(error, CommitUnknownError) and error.is_final
    return isinstance(error, FINAL) or is_lost or _lacks_permission(error)


def _lacks_permission(error: IcebergError) -> bool:
    """Whether a store has refused a request because of who has sent it."""
    if not isinstance(error, StorageError):
        return False
    return any(isinstance(cause, PermissionError) or getattr(cause, "is_denied", False) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def advice(error: IcebergError) -> str:
    """Return what to do about an error, or what Airflow does next."""
    if isinstance(error, CommitUnknownError) and error.is_final:
        return f"{error.advice}; {_BY_HAND}" if error.advice is not None else f"{_UNKNOWN_FOREVER}; {_BY_HAND}"
    if error.advice is not None:
        return f"{error.advice}; then clear the task" if is_final(error) else f"{error.advice}; {_AGAIN}"
    if _lacks_permission(error):
        return _NO_PERMISSION
    if isinstance(error, FormatError) and error.path is None:
        return _BROKEN_ANSWER
    found = next((text for kind, text in _ADVICE if isinstance(error, kind)), None)
    return found or "the next try starts from the beginning; if it fails again, look at the lines above"


def to_airflow(error: IcebergError) -> AirflowException:
    """Return the exception that makes Airflow retry or fail the task, with the same message."""
    kind = AirflowFailException if is_final(error) else AirflowException
    return kind(str(error))


def to_function(error: IcebergError) -> IcebergError:
    """Return what a function of a DAG author gets of an error: the error, or one of its class that fails the task.

    An author's `except NotFoundError` must work, whatever Airflow is to do. So the second one is both: of the error's
    class, and an `AirflowFailException`, which fails the task at once if nobody catches it. A retry policy could do
    that, too, but is missing before Airflow 3.3, and has to be asked for.
    """
    if not is_final(error) or isinstance(error, AirflowFailException):
        return error
    return _final(type(error), error.args, error.__dict__)


def _final(kind: Any, args: tuple[Any, ...], attributes: Mapping[str, Any]) -> IcebergError:
    made: IcebergError = _final_kind(kind).__new__(_final_kind(kind))
    made.args = args
    made.__dict__.update(attributes)
    return made


@cache
def _final_kind(kind: type[IcebergError]) -> type[IcebergError]:
    # Tracebacks call it what the author catches.
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    pickled = {"__reduce__": lambda error: (_final, (kind, error.args, dict(error.__dict__)))}
    made: type[IcebergError] = type(kind.__name__, (kind, AirflowFailException), {**names, **pickled})
    return made


def airflow_failures() -> AbstractContextManager[None]:
    """Turn this package's errors into Airflow's; the original error is the cause."""
    return _told(to_airflow)


def shown_error(error: BaseException) -> BaseException:
    """Return an error whose text, and those of its causes, have no secrets; the same one if they have none.

    Errors of this package have none. What a driver or a library raises may, and Airflow logs and stores it.
    """
    _clean_causes(error)
    if isinstance(error, IcebergError | AirflowException) or not _tells_secret(error):
        return error
    return _stand_in(error)


def _stand_in(error: BaseException) -> BaseException:
    """Return an error of the same class, which a caller may catch, with the same traceback and causes."""
    if isinstance(error, BaseExceptionGroup):
        found: BaseException = _told_group(error)
    else:
        found = _retold(type(error), without_secrets(str(error)), _harmless_attributes(error))
    for note in getattr(error, "__notes__", ()):
        found.add_note(without_secrets(str(note)))
    found.__cause__, found.__context__ = error.__cause__, error.__context__
    found.__suppress_context__ = error.__suppress_context__
    return found.with_traceback(error.__traceback__)


def _told_group(error: BaseExceptionGroup[BaseException]) -> BaseException:
    parts = [shown_error(one) for one in error.exceptions]
    text = without_secrets(error.message)
    try:
        return BaseExceptionGroup(text, parts)  # of a class that fits its parts
    except TypeError:
        return IcebergError(text)


def _retold(kind: Any, text: str, attributes: Mapping[str, Any]) -> BaseException:
    found: BaseException
    try:
        found = _told_kind(kind).__new__(_told_kind(kind))
    except TypeError:  # not a class of exceptions that can be made of nothing
        found = IcebergError.__new__(IcebergError)
    found.args = (text,)
    for name, value in attributes.items():
        with suppress(AttributeError, TypeError):
            setattr(found, name, value)
    return found


def _harmless_attributes(error: BaseException) -> dict[str, Any]:
    """Return the attributes by which callers decide (`errno`, `response`), without those that tell secrets."""
    slots = ("errno", "filename", "strerror", "name", "path") if isinstance(error, OSError | ImportError) else ()
    found = {name: getattr(error, name) for name in slots if hasattr(error, name)} | vars(error)
    told = {name: hide("", value) if isinstance(value, dict) else value for name, value in found.items()}
    return {name: value for name, value in told.items() if not name.startswith("__") and not _tells_secret(value)}


@cache
def _told_kind(kind: Any) -> Any:
    shown: dict[str, Any] = {
        "__str__": lambda error: str(error.args[0]),
        "__repr__": lambda error: f"{kind.__name__}({error.args[0]!r})",
        "__reduce__": lambda error: (_retold, (kind, error.args[0], {})),
    }
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**shown, **names})


def _clean_causes(error: BaseException) -> None:
    """Put a stand-in with the same traceback in the place of each cause that tells a secret."""
    waiting, seen = [error], set()
    while waiting:
        current = waiting.pop()
        seen.add(id(current))
        for name in ("__cause__", "__context__"):
            cause = getattr(current, name)
            if cause is None or id(cause) in seen:
                continue
            if not isinstance(cause, IcebergError) and _tells_secret(cause):
                told = _stand_in(cause)
                is_suppressed = current.__suppress_context__
                setattr(current, name, told)
                # Setting a cause suppresses the context.
                current.__suppress_context__ = is_suppressed
                cause = told
            waiting.append(cause)


def _tells_secret(error: object) -> bool:
    try:
        text = "\n".join((str(error), repr(error), *map(str, getattr(error, "__notes__", ()))))
    except Exception:  # noqa: BLE001 - of a class of others, which may fail to show itself
        return False
    return without_secrets(text) != text


def function_failures() -> AbstractContextManager[None]:
    """Tell of this package's errors as `airflow_failures` does; they keep their classes, see `to_function`."""
    return _told(to_function)


@contextmanager
def _told(translate: Callable[[IcebergError], Exception]) -> Iterator[None]:
    try:
        yield
    except IcebergError as error:
        # Before the traceback, which Airflow logs.
        tell(error.what_happened, advice(error))
        _clean_causes(error)
        translated = translate(error)
        if translated is error:
            raise
        raise translated from error
    except AirflowException:
        raise  # a task's own decision, such as to skip itself
    except Exception as error:
        found = described(error)
        is_known = found.advice is not None or is_final(found)
        tell(found.what_happened, advice(found) if is_known else _TRACEBACK)
        shown = shown_error(error)
        if is_final(found):
            raise translate(found) from shown
        if shown is error:
            raise
        raise shown from shown.__cause__
    except KeyboardInterrupt:
        tell("the process of the task was interrupted (SIGINT)", _INTERRUPTED)
        raise
    except AirflowTaskTimeout:
        tell(
            "the task has run longer than its execution_timeout",
            "raise execution_timeout, or give the job more memory and cores; the next try first looks whether the work "
            "was committed",
        )
        raise


def tell(happened: str, to_do: str, *, level: int = logging.ERROR) -> None:
    """Log what happened, and what to do, in a line each: a person on call reads no more than these."""
    for words, text in (("what happened", happened), ("what to do", to_do)):
        log.log(level, "%s: %s", words, printable(text))


def tell_of_kill() -> None:
    """Log that a task is being ended from outside; called by `on_kill`, in a handler of a signal."""
    if isinstance(sys.exception(), AirflowTaskTimeout):
        return  # that was told
    tell(
        "the task is being ended from outside: somebody has marked or cleared it, or its worker stops",
        "nothing if somebody has done it; else clear the task: it first looks whether the work was committed",
    )


class IcebergRetryPolicy(RetryPolicy):
    """When a failed task is tried again: `retry_policy=IcebergRetryPolicy()`, with Airflow 3.3 or later.

    A lost race is retried soon, after a random delay that grows with each try, so that writers who have met do not meet
    again. An unknown outcome is retried after a while: the next try looks for the commit in the table first. What no
    retry can mend (wrong arguments, a missing permission or package) fails at once. All else, and other packages'
    errors, are retried as the task says. No policy gives a task more than its `retries`.

    Args:
        conflict_delay: the first delay after a lost race.
        most_delay: the longest delay after a lost race.
        unknown_delay: the delay after an unknown outcome, in which a request that is late may still arrive.
    """

    def __init__(
        self,
        *,
        conflict_delay: timedelta = timedelta(seconds=5),
        most_delay: timedelta = timedelta(minutes=2),
        unknown_delay: timedelta = timedelta(seconds=30),
    ) -> None:
        if RetryDecision is None:
            raise ImportError(
                "IcebergRetryPolicy needs Airflow 3.3; leave retry_policy out: what is final fails at once without it"
            )
        self.conflict_delay = conflict_delay
        self.most_delay = most_delay
        self.unknown_delay = unknown_delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide whether and when a task is tried again; Airflow calls it in the task's process."""
        causes = list(_causes(exception))
        error = next((one for one in causes if isinstance(one, IcebergError)), None)
        if error is None:
            final = next((one for one in causes if is_final(described(one))), None)
            return RetryDecision.default() if final is None else RetryDecision.fail(_reason("no retry helps", final))
        if is_final(error):
            return RetryDecision.fail(_reason("no retry helps", error))
        if isinstance(error, CommitConflictError):
            return RetryDecision.retry(self._soon(try_number), _reason("another writer was faster", error))
        if isinstance(error, CommitUnknownError):
            return RetryDecision.retry(self.unknown_delay, _reason("the next try looks for the commit first", error))
        return RetryDecision.default()

    def _soon(self, try_number: int) -> timedelta:
        most = self.most_delay.total_seconds()
        longest = min(self.conflict_delay.total_seconds() * 2 ** min(try_number - 1, 20), most)
        return timedelta(seconds=longest * random.uniform(0.5, 1.0))

    def serialize(self) -> dict[str, Any]:
        """Return the arguments."""
        names = ("conflict_delay", "most_delay", "unknown_delay")
        return {name: getattr(self, name).total_seconds() for name in names}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> IcebergRetryPolicy:
        """Return the policy of these arguments."""
        return cls(**{name: timedelta(seconds=seconds) for name, seconds in data.items()})


def _reason(why: str, error: BaseException) -> str:
    # Airflow keeps it in its database.
    return f"{why}: {without_secrets(str(error))}"[:500]


def to_event(error: IcebergError) -> dict[str, Any]:
    """Return an error as a trigger's event, from which `from_event` restores it in the task."""
    event: dict[str, Any] = {"status": "error", "kind": type(error).__name__, "message": str(error)}
    if error.advice is not None:
        event["advice"] = error.advice
    if _lacks_permission(error):
        event["is_denied"] = True
    return event


def from_event(event: Mapping[str, Any]) -> IcebergError:
    """Return the error in a trigger's event."""
    # A FormatError's path is part of the text already.
    error = error_class(event.get("kind", ""))(event.get("message", "the trigger failed without saying why"))
    error.advice = event.get("advice")
    if isinstance(error, StorageError):
        error.is_denied = event.get("is_denied") is True
    return error
