"""Directories, for the one catalog that keeps tables as such; files are `FileIO`'s business.

Lives here: `open_directory`, and what any fsspec file system can say of directories. Not here: what the object stores
make of them, which have only keys (`object_store`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.errors import IcebergError, StorageError

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


class Directories(Protocol):
    """The directories of one store, by its own paths; see `store.Store` for each method."""

    @property
    def is_local(self) -> bool: ...
    @property
    def is_conditional(self) -> bool: ...
    @property
    def answers_are_final(self) -> bool: ...
    def names(self, path: str, prefix: str) -> list[str]: ...
    def children(self, path: str) -> list[tuple[str, bool]]: ...
    def is_directory(self, path: str) -> bool: ...
    def make_directory(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def remove_empty(self, path: str, above: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def replace(self, path: str, data: bytes) -> None: ...


@contextmanager
def open_directory(io: FileIO, location: str, verb: str) -> Iterator[tuple[Directories, str]]:
    """Give the store of a directory and the path in it; errors of the store inside of the block become ours.

    Args:
        io: `FsspecFileIO`, or any other whose file systems have real directories.
        verb: for the error, "cannot <verb> <location>".
    """
    own = getattr(io, "directory", None)
    if own is not None:
        with own(location, verb) as found:
            yield found
        return
    filesystem, path = io.filesystem(location)
    try:
        yield FsspecDirectories(filesystem), path
    except IcebergError:
        raise
    except OSError as error:
        raise StorageError(f"cannot {verb} {location}: {(error.strerror or str(error)).lower()}") from error


def remove_empty(io: FileIO, location: str) -> None:
    """Remove a directory whose files were removed, with the directories in it, and the directory above it.

    Each of them is removed only if it is empty at that moment, so a task that creates a file there at the same time
    keeps its directory. What cannot be removed is left; object stores have no directories.
    """
    own = getattr(io, "directory", None)
    if own is None:
        return
    with suppress(IcebergError), own(location.rstrip("/"), "remove the directory") as (store, path):
        store.remove_empty(path, path.rpartition("/")[0])


class FsspecDirectories:
    """The directories of an fsspec file system that has some."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        protocol = filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self.is_local = "file" in protocols
        self.is_conditional = False
        self.answers_are_final = bool(protocols & {"file", "memory"})

    def names(self, path: str, prefix: str) -> list[str]:
        """Return the files of a directory whose names begin like this."""
        return [name for name, is_directory in self.children(path) if name.startswith(prefix) and not is_directory]

    def children(self, path: str) -> list[tuple[str, bool]]:
        """Return what is directly in a directory."""
        try:
            found = self._filesystem.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((each["name"].rstrip("/").rpartition("/")[2], each["type"] == "directory") for each in found)

    def is_directory(self, path: str) -> bool:
        """Tell whether there is a directory."""
        return bool(self._filesystem.isdir(path))

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        self._filesystem.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._filesystem.rmdir(path)

    def remove_empty(self, path: str, above: str) -> None:
        """Do nothing: in memory an empty directory takes no room."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        with suppress(FileNotFoundError):  # a store without directories: with its last file it is gone
            self._filesystem.rm(path, recursive=True)

    def replace(self, path: str, data: bytes) -> None:
        """Let a file have these bytes, in one step where the file system has a rename that replaces."""
        if not self.is_local:
            self._filesystem.pipe_file(path, data)
            return
        temporary = f"{path}.temp"
        self._filesystem.pipe_file(temporary, data)
        self._filesystem.mv(temporary, path)
