"""The interface between this package and every store: `FileIO` and `FileStatus`.

Not here: how a store is reached (`stores`), and what the bytes mean (`format`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import fsspec

    from airflow_iceberg.storage.local_roots import LocalRoots


@dataclass(frozen=True, kw_only=True, slots=True)
class FileStatus:
    """One file in a listing.

    Attributes:
        location: full location, in the spelling of the prefix that was listed.
        size_bytes: length of the file.
        modified_ms: last modification, milliseconds since the epoch; None if the store doesn't report it.
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
            offset: first byte; one at or after the end of the file gives fewer bytes or none.
            length: number of bytes at most; None reads to the end.
        Raises:
            NotFoundError: there is no such file.
        """
        ...

    def create(self, location: str, data: bytes) -> None:
        """Create a new file, all or nothing: no reader ever sees a part of it. Missing directories are created.

        Of several callers that create one location at the same time exactly one succeeds.

        Raises:
            AlreadyExistsError: the name is taken; the existing file was not changed.
            StorageError: it failed, or the answer was lost: only then may the file exist or not.
        """
        ...

    def list(self, prefix: str) -> Iterator[FileStatus]:
        """Yield every file below a directory, at any depth and in no particular order.

        `a/b` never matches `a/bc`, and a directory that does not exist has no files.
        """
        ...

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files; one that does not exist is no error.

        Raises:
            StorageError: at least one could not be deleted; the others are deleted.
        """
        ...

    def exists(self, location: str) -> bool:
        """Tell whether there is a file (not a directory) at the location."""
        ...

    def within(self, roots: LocalRoots) -> FileIO | None:
        """Return access to the same files, of those on this machine only to the ones in some folders.

        Below these folders no symbolic link is followed: others can write there. `read` and `exists` find no file
        behind a link, nothing is listed, created or deleted there, and a link that is met is an error. None if this
        FileIO cannot do that: then its caller has to look for links, and one that is put there later is followed.
        """
        return None

    def filesystem(self, location: str) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the fsspec file system of a location and the path in it: for the readers and writers of data files."""
        ...
