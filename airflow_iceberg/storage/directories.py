"""Directories, for the one catalog whose tables are directories; all others use `FileIO`.

Here: `open_directory`, and the directories of any fsspec file system. Not here: object stores (`object_store`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from airflow_iceberg.errors import IcebergError, StorageError

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


class Directories(Protocol):
    """The directories of one store, by its own paths; raises `OSError` and its subclasses as the standard library does.

    Attributes:
        is_local: whether the directories are on this machine.
        is_conditional: whether files are created by a condition that a server may ignore, so that it has to be probed.
        answers_are_final: whether a failed call cannot have an effect later.
    """

    is_local: bool = False
    is_conditional: bool = False
    answers_are_final: bool = False

    def names(self, path: str, prefix: str) -> list[str]:
        """Return the names of the files directly in a directory that begin with a prefix."""
        return [name for name, is_directory in self.children(path) if name.startswith(prefix) and not is_directory]

    def children(self, path: str) -> list[tuple[str, bool]]:
        """Return (name, is it a directory) of all that is directly in a directory; nothing if it does not exist.

        A symbolic link is no directory.
        """
        ...

    def links(self, path: str) -> Iterator[str]:
        """Yield the symbolic links below a directory, by their paths from there; none is followed."""
        return iter(())

    def is_directory(self, path: str) -> bool: ...
    def make_directory(self, path: str) -> None:
        """Create a directory and those above it."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def remove_empty(self, path: str, above: str) -> None:
        """Remove a directory, those in it and the one above it, each if it is empty; never raises `OSError`."""
        return  # by default a directory without files does not exist

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; one that does not exist is no error."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, whether it exists or not; readers see the old bytes or the new ones."""
        ...

    def copy_file(self, source: str, target: str) -> int:
        """Copy a file, into a directory that need not exist, and return the size of the copy."""
        ...


@contextmanager
def open_directory(io: FileIO, location: str, verb: str) -> Iterator[tuple[Directories, str]]:
    """Yield the store of a directory and the path in it; the store's errors inside the block become this package's.

    Args:
        io: `FsspecFileIO`, or any other whose file systems have real directories.
        verb: the verb of the error "cannot <verb> <location>".
    """
    own = getattr(io, "directory", None)
    if own is not None:
        with own(location, verb) as found:
            yield found
        return
    filesystem, path = io.filesystem(location)
    try:
        # The file system of a guarded store opens files, and leaves all else to the store.
        yield getattr(filesystem, "guarded_store", None) or FsspecDirectories(filesystem), path
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


def copy_by_fsspec(filesystem: Any, source: str, target: str) -> int:
    """Copy a file; see `Directories.copy_file`."""
    filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
    filesystem.cp_file(source, target)
    return int(filesystem.size(target))


class FsspecDirectories(Directories):
    """The directories of an fsspec file system that has some."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        protocol = filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self.is_local = "file" in protocols
        self.answers_are_final = bool(protocols & {"file", "memory"})

    def children(self, path: str) -> list[tuple[str, bool]]:
        try:
            found = self._filesystem.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((each["name"].rstrip("/").rpartition("/")[2], each["type"] == "directory") for each in found)

    def is_directory(self, path: str) -> bool:
        return bool(self._filesystem.isdir(path))

    def make_directory(self, path: str) -> None:
        self._filesystem.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        self._filesystem.rmdir(path)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):  # a store without directories: with its last file it is gone
            self._filesystem.rm(path, recursive=True)

    def copy_file(self, source: str, target: str) -> int:
        return copy_by_fsspec(self._filesystem, source, target)

    def replace(self, path: str, data: bytes) -> None:
        # In one step only where the file system has a rename that replaces.
        if not self.is_local:
            self._filesystem.pipe_file(path, data)
            return
        temporary = f"{path}.temp"
        self._filesystem.pipe_file(temporary, data)
        self._filesystem.mv(temporary, path)
