"""The border between this package and every store: whole files by location, four verbs and two questions.

Lives here: the `FileIO` protocol and `FileStatus`. Not here: how a store is reached (`fsspec_io`, `local`), and what
the bytes mean (`spec`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import fsspec


@dataclass(frozen=True, kw_only=True, slots=True)
class FileStatus:
    """What a listing says of one file.

    Attributes:
        location: full location, in the spelling of the prefix that was listed.
        size_bytes: length of the file.
        modified_ms: last modification, milliseconds since the epoch; None where the store doesn't tell.
    """

    location: str
    size_bytes: int
    modified_ms: int | None = None


@runtime_checkable
class FileIO(Protocol):
    """Files by their location. Every implementation is safe to use from several threads.

    All methods raise `UnsupportedError` for a scheme they don't know, `InvalidInputError` for something that is no
    absolute location, and `StorageError`, naming the location, when the store fails.
    """

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file.

        Args:
            location: where the file is.
            offset: first byte; at or behind the end of the file gives fewer bytes or none.
            length: at most so many bytes; None reads to the end.
        Raises:
            NotFoundError: there is no such file.
        """
        ...

    def create(self, location: str, data: bytes) -> None:
        """Make a file that isn't there yet, all or nothing: no reader ever sees a part of it.

        Of several callers that create one location at the same time exactly one succeeds. Missing directories are made.

        Raises:
            AlreadyExistsError: the name is taken; what is there was not touched.
            StorageError: it did not work, or the answer was lost: only then can the file be there or not.
        """
        ...

    def list(self, prefix: str) -> Iterator[FileStatus]:
        """Yield every file below a directory, at any depth and in no particular order.

        `a/b` never matches `a/bc`, and a directory that isn't there has no files.
        """
        ...

    def delete(self, locations: Iterable[str]) -> None:
        """Remove files; one that isn't there is no error.

        Raises:
            StorageError: at least one could not be removed; the others are gone.
        """
        ...

    def exists(self, location: str) -> bool:
        """Tell whether there is a file (not a directory) at the location."""
        ...

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the fsspec file system of a location and the path in it: for the readers and writers of data files."""
        ...
