"""Every error that this package raises on purpose, grouped by what the caller does next.

    IcebergError
    ├── NotFoundError (KeyError)        the table, file, column or snapshot is not there: check the name
    │   └── SnapshotsLostError          rolled back or expired before they were seen: read the table as a whole
    ├── AlreadyExistsError              the name is taken: choose another one, or use what is there
    ├── InvalidInputError (ValueError)  the caller's words are wrong: mend the DAG, the connection or the data
    ├── FormatError                     a file breaks the specification: look at the file in `.path`
    ├── UnsupportedError                valid, and not implemented: nothing was changed
    ├── CommitConflictError             somebody else won: rebase on the newer table and try again
    │   ├── StalePlanError              what was planned no longer fits: plan again (the task is retried)
    │   └── IncompatibleChangeError     no retry can help: stop and let a person decide
    ├── CommitUnknownError              cannot tell whether it landed: read back, delete nothing
    └── StorageError                    a store did not do what was asked; often transient

A message says what, where, expected, got and what to do; it starts in lower case, has no full stop and no secrets.
Nothing in this package decides by the text of a message.
"""


class IcebergError(Exception):
    """The root of all errors of this package."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes, with its line breaks escaped.
        return str(self.args[0]) if self.args else ""


class NotFoundError(IcebergError, KeyError):
    """What was named is not there."""


class SnapshotsLostError(NotFoundError):
    """Snapshots went away unseen, by a rollback or because they expired: increments cannot tell what has changed."""


class AlreadyExistsError(IcebergError):
    """The name is taken."""


class InvalidInputError(IcebergError, ValueError):
    """The caller's words or data are wrong."""


class FormatError(IcebergError):
    """A file breaks the specification.

    Attributes:
        path: location of the file, or None while it is not known.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} of {self.path}" if self.path else message


class UnsupportedError(IcebergError):
    """Valid Iceberg that this version does not implement; nothing was changed."""


class CommitConflictError(IcebergError):
    """Another writer won the race for the table: rebase and try again.

    Attributes:
        is_our_turn: the catalog keeps the others waiting for our next attempt, so it should come at once.
    """

    is_our_turn = False


class StalePlanError(CommitConflictError):
    """What was planned no longer fits the table: plan again."""


class IncompatibleChangeError(CommitConflictError):
    """The change contradicts what the table has become: no retry can help."""


class CommitUnknownError(IcebergError):
    """The catalog's answer was lost: the commit may have landed or not; nothing may be deleted.

    Attributes:
        metadata_location: the metadata file that the table would point to, where the client chose it.
    """

    def __init__(self, message: str, *, metadata_location: str | None = None) -> None:
        super().__init__(message)
        self.metadata_location = metadata_location


class StorageError(IcebergError):
    """A store did not do what was asked; often transient.

    Attributes:
        is_refused: the store itself said no, to every request that was sent: surely nothing was changed.
    """

    def __init__(self, message: str = "", *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused
