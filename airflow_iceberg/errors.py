"""Every error that this package raises on purpose, grouped by what the caller does next.

    IcebergError
    ├── NotFoundError (KeyError)        the table, file, column or snapshot does not exist: check the name
    │   └── SnapshotsLostError          rolled back or expired before they were seen: read the table as a whole
    ├── AlreadyExistsError              the name is taken: choose another one, or use the existing object
    ├── InvalidInputError (ValueError)  an argument is wrong: correct the DAG, the connection or the data
    ├── FormatError                     a file breaks the specification: look at the file in `.path`
    ├── UnsupportedError                valid, and not implemented: nothing was changed
    ├── CommitConflictError             another writer was faster: rebase on the newer table and retry
    │   ├── StalePlanError              the plan no longer fits: re-plan (the task is retried)
    │   │   └── TableReplacedError      another table has its name: load it by name and start again
    │   └── IncompatibleChangeError     no retry can help: stop and let a person decide
    ├── CommitUnknownError              the commit's outcome is unknown: read back, delete nothing
    └── StorageError                    a request to a store failed; often transient

A message says what, where, expected, got and what to do; it starts in lower case, has no full stop and no secrets: it
may repeat what a server, a driver or a user has said, so every error takes out what is recognised as one.
Nothing in this package decides by the text of a message.
"""

import errno
import sys
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from airflow_iceberg.redaction import login_scheme, said, without_secrets

_E = TypeVar("_E", bound="IcebergError")

# Longer names, and longer messages, are no use to anybody; what follows the cut is the cause, and what to do.
_MOST_OF_NAME = 1 << 16
_MOST_OF_MESSAGE, _END_OF_MESSAGE = 20_000, 12_000
_GONE = (
    "correct the location if a person has given it; else somebody has deleted the file: restore it from the store's "
    "versions or a backup, or go back to a state of the table that does not need it"
)
_NO_ROOM = "make room there, or raise the quota"
# What to do about errors of the operating system.
_SYSTEM_ADVICE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EMFILE: "raise the limit of open files (ulimit -n) where it failed, or give the job fewer threads",
    errno.ENFILE: "the whole machine has too many open files: end what opens them, or raise its limit",
    errno.EROFS: "mount the file system so that it can be written, or correct the location",
    errno.ENAMETOOLONG: "choose shorter names for the location, the table or its partitions",
}


class IcebergError(Exception):
    """The root of all errors of this package.

    Attributes:
        advice: what to do, if whoever has raised it knows more than the class says. The message has it, too.
        may_have_landed: whether a commit may be in a table all the same: then none of its files may be deleted.
    """

    advice: str | None = None
    may_have_landed = False

    def __init__(self, *args: Any) -> None:
        # Here and not where it is shown: a message is also pickled, sent as an event and kept by Airflow.
        super().__init__(*(_shown_text(each) if isinstance(each, str) else each for each in args))

    @property
    def what_happened(self) -> str:
        """The message in one line, up to the advice in it."""
        text = str(self)
        if self.advice is not None:
            text = text.partition(f"; {self.advice}")[0]
        return " ".join(next(iter(text.strip().splitlines()), type(self).__name__).split())

    def __str__(self) -> str:
        # KeyError would show the message in quotes, with its line breaks escaped.
        return str(self.args[0]) if self.args else ""


class NotFoundError(IcebergError, KeyError):
    """The named object does not exist.

    Attributes:
        is_unknown_name: whether it is a table or namespace that a catalog does not have.
    """

    is_unknown_name = False


class SnapshotsLostError(NotFoundError):
    """Snapshots were rolled back or expired before they were seen: an incremental read cannot find the changes."""


class AlreadyExistsError(IcebergError):
    """The name is taken."""


class InvalidInputError(IcebergError, ValueError):
    """The user's arguments or data are wrong."""


class FormatError(IcebergError):
    """A file breaks the specification.

    Attributes:
        path: location of the file, or None if it is not known.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = None if path is None else without_secrets(path)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} of {self.path}" if self.path else message


class UnsupportedError(IcebergError):
    """Valid Iceberg that this version does not implement; nothing was changed."""


class CommitConflictError(IcebergError):
    """Another writer has changed the table: rebase and retry.

    Attributes:
        is_our_turn: whether other writers wait for our next attempt, so that it should follow at once.
        metadata_location: the new metadata file, if the client gave it a name of its own. If it is in the table's log
            all the same, the conflict was with our own request, which was repeated on its way.
    """

    is_our_turn = False
    metadata_location: str | None = None


class StalePlanError(CommitConflictError):
    """The plan no longer fits the table: re-plan."""


class TableReplacedError(StalePlanError):
    """The table was dropped or renamed, and another one has its name: nothing was done to that one."""


class IncompatibleChangeError(CommitConflictError):
    """The change contradicts the table's new state: no retry can help."""


class CommitUnknownError(IcebergError):
    """The catalog's answer was lost: the commit may have landed or not; nothing may be deleted.

    Attributes:
        metadata_location: the new metadata file, if the client gave it a name of its own.
        is_final: whether the table will never tell: a retry could commit the work twice.
        refused: the error instead, if a look shows that nothing has landed: the server answers that it never does this.
    """

    may_have_landed = True
    refused: "UnsupportedError | None" = None

    def __init__(self, message: str, *, metadata_location: str | None = None, is_final: bool = False) -> None:
        super().__init__(message)
        self.metadata_location = metadata_location
        self.is_final = is_final


class StorageError(IcebergError):
    """A request to a store failed; often transient.

    Attributes:
        is_refused: whether the store rejected every request that was sent, so that nothing was changed.
        is_denied: whether a server has refused a request because of who has sent it, or this process a server because
            of what it shows; a read-only disk refuses everybody. No retry helps.
    """

    is_denied = False

    def __init__(self, message: str = "", *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


def advised(error: _E, advice: str) -> _E:
    """Return an error with what to do about it at the end of its message."""
    advice = _shown_text(advice)
    error.args = (f"{error.args[0]}; {advice}", *error.args[1:])
    error.advice = advice
    return error


def missing_file(text: str) -> NotFoundError:
    """Return the error for a file that a table needs, or a person has named, and that does not exist."""
    error = NotFoundError(text)
    error.advice = _GONE
    return error


def missing_package(what: str, requirement: str) -> InvalidInputError:
    """Return the error for a package that this environment lacks: what needs it, and the requirement to install."""
    to_do = f"install it wherever tasks run, and for triggers and pages: pip install '{requirement}'"
    return advised(InvalidInputError(what), to_do)


def store_error(what: str, error: OSError, reason: str = "") -> StorageError:
    """Return an error of a store or of the operating system, with what to do about it.

    Args:
        what: what failed, "cannot write file:///a/b".
        reason: why, if it is not what the error says.
    """
    text = error.strerror or str(error) or type(error).__name__
    found = StorageError(f"{what}: {reason or text[:1].lower() + text[1:]}")
    found.is_denied = isinstance(error, PermissionError) or error.errno in (errno.EROFS, errno.ENAMETOOLONG)
    to_do = _SYSTEM_ADVICE.get(error.errno or 0)
    return found if to_do is None else advised(found, to_do)


def described(error: BaseException) -> IcebergError:
    """Return an error of this package for one that is not, and that says what to do about it if that is known."""
    text = " ".join(str(error).split())
    match error:
        case IcebergError():
            return error
        case MemoryError():
            found: IcebergError = IcebergError(f"memory ran out{text and f' ({text})'}")
            return advised(found, "give the process more memory, or the job fewer threads, or let it run on Spark")
        case ImportError():
            missing = isinstance(error, ModuleNotFoundError) and error.name
            what = f"has no package {error.name!r}" if missing else f"cannot import what the task needs: {text}"
            return advised(
                UnsupportedError(f"the Python of this process, {sys.executable}, {what}"), "install it there"
            )
        case OSError() if error.errno is not None or isinstance(error, PermissionError):
            return store_error(str(error.filename or "a request to the system failed"), error)
        case _:
            return IcebergError(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _shown_text(text: str) -> str:
    """Return a message that every log and database can hold, without secrets.

    Half of a surrogate pair, which JSON can spell, cannot be written as UTF-8, and PostgreSQL has no NUL.
    """
    if len(text) > _MOST_OF_MESSAGE + _END_OF_MESSAGE:
        # What is before the end may tell that it begins with a secret.
        end = without_secrets(text[-2 * _END_OF_MESSAGE :])[-_END_OF_MESSAGE:]
        text = f"{said(text, _MOST_OF_MESSAGE)}…{end}"
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return without_secrets(text.replace("\0", "\\x00"))


def check_text(what: str, text: str, *, is_name: bool = False) -> None:
    """Raise `InvalidInputError` for a text that databases, documents and file systems cannot hold.

    Args:
        what: what the text is, "the name of a table"; part of the message, which does not repeat a value.
        is_name: whether it is a name, which has no NUL character, and a limit.
    """
    if is_name and len(text) > _MOST_OF_NAME:
        raise InvalidInputError(f"{what} has {len(text)} characters, expected at most {_MOST_OF_NAME}; shorten it")
    if is_name and "\0" in text:
        raise InvalidInputError(f"{what} contains a NUL character, which databases cannot store; remove it")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} contains half of a surrogate pair (U+{ord(text[error.start]):04X}, at character {error.start}), "
            f"which is no character and cannot be stored; remove it"
        ) from None


def check_storable(whose: str, properties: Mapping[str, str], *, has_nul: bool = True) -> None:
    """Raise `InvalidInputError` for a name or a value of properties that cannot be stored.

    Args:
        whose: "of namespace sales".
        has_nul: whether a value may have NUL characters: in documents, not in databases.
    """
    for name, value in properties.items():
        check_text(f"the name of a property {whose}", name, is_name=True)
        what = f"property {name!r} {whose}"
        check_text(what, value)
        if not has_nul and "\0" in value:
            check_text(what, "\0", is_name=True)


def check_no_password(location: str) -> None:
    """Raise `InvalidInputError` for a location with a password, which would be written into tables, logs and plans."""
    scheme = login_scheme(location)
    if scheme is not None:
        raise InvalidInputError(
            f"a location that begins with {scheme}:// contains a user and a password, which would be "
            f"written into tables and logs: remove them, and set them as properties of the catalog's "
            f"connection"
        )


def true_or_false(what: str, value: object) -> bool:
    """Return a truth value that was given as one or as text, in upper or lower case.

    For what somebody has set for us: if every other word were false, there would be no TLS for `yes`. Not for what
    other programs have written, which is read as they read it.

    Args:
        what: what the value is of, such as "property 'x'".
    Raises:
        InvalidInputError: it is neither true nor false.
    """
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        shown = repr(value[:100] if isinstance(value, str) else value)
        raise InvalidInputError(f"{what} is {shown}, expected true or false")
    return word == "true"


def switch(properties: Mapping[str, str], *names: str, default: bool = False, whose: str = "") -> bool:
    """Return a truth value among the properties of a connection, under the first of its names that has a text.

    Args:
        default: the value if none of them has one: an empty field of a form is none.
        whose: the begin of an error, such as "catalog lake: ".
    Raises:
        InvalidInputError: it is neither true nor false.
    """
    name = next((each for each in names if properties.get(each, "").strip()), None)
    return default if name is None else true_or_false(f"{whose}property '{name}'", properties[name])


def error_class(name: str) -> type[IcebergError]:
    """Return the class of this name, `IcebergError` for any other name: jobs and triggers report errors by name."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, IcebergError) else IcebergError


_MOST_SHOWN = 100
_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("the truth value", (bool,)),
    ("the text", (str,)),
    ("the number", (int, float, Decimal)),
    ("the time", (datetime,)),
    ("the date", (date,)),
)


def came(value: object) -> str:
    """Return in words which value came where another one was expected: `the number 20260101 (int)`, `the text 'a'`.

    A template of a DAG with `render_template_as_native_obj=True` makes a number of a text of digits, which looks the
    same in a message. Of other values than these only the type is shown. Not for texts that may be secrets.
    """
    if value is None:
        return "None"
    kind = next((words for words, types in _KINDS if isinstance(value, types)), None)
    if kind is None:
        return f"a value of type {type(value).__name__}"
    try:
        shown = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python does not write an int of thousands of digits
        shown = "of thousands of digits"
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
    return f"{kind} {shown}" if isinstance(value, str) else f"{kind} {shown} ({type(value).__name__})"
