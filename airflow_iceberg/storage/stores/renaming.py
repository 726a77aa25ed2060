"""What stores with a real rename have in common: a file is complete before it has its name, and the name is given once.

Lives here: `RenamingStore`. Each of them adds its own requests (`hdfs`, `webhdfs`).
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from airflow_iceberg.storage.stores.store import Location, UnclearError

_TRIES = 5


class RenamingStore(ABC):
    """Files of one HDFS, however it is reached; paths are absolute."""

    is_local: ClassVar[bool] = False
    is_conditional: ClassVar[bool] = False
    answers_are_final: ClassVar[bool] = False

    # -- what each store says -------------------------------------------------------------------------------------

    @abstractmethod
    def _give_name(self, temporary: str, path: str) -> None:
        """Rename a file once, without overwriting.

        Raises:
            FileExistsError: the name is taken.
            FileNotFoundError: there is no such file (any more).
            UnclearError: it may have been renamed or not.
        """

    @abstractmethod
    def _remove(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Return the bytes of a file."""

    @abstractmethod
    def is_file(self, path: str) -> bool:
        """Tell whether there is a file."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Tell whether there is a directory."""

    @abstractmethod
    def children(self, path: str) -> list[tuple[str, bool]]:
        """Return what is directly in a directory."""

    # -- the same for all -----------------------------------------------------------------------------------------

    @classmethod
    def instance_of(cls, location: Location) -> str:
        """Return which HDFS."""
        return f"{location.scheme}://{location.authority}"

    @classmethod
    def path_of(cls, location: Location) -> str:
        """Return the absolute path."""
        return "/" + location.path.strip("/")

    def _beside(self, path: str) -> str:
        """Return a name in the same directory that nobody has."""
        return f"{path.rpartition('/')[0]}/{uuid.uuid4().hex}.tmp"

    def _rename(self, temporary: str, path: str, data: bytes) -> None:
        """Rename; when the answer is lost, the temporary file tells: only our own rename can have taken it away."""
        for attempt in range(_TRIES):
            try:
                return self._give_name(temporary, path)
            except (FileExistsError, FileNotFoundError) as error:
                # Also the echo of a request that a driver or a gateway has repeated.
                if self._was_renamed(temporary, path, data):
                    return None
                raise FileExistsError(path) from error
            except UnclearError as error:
                with suppress(OSError):
                    if self._was_renamed(temporary, path, data):
                        return None
                if attempt == _TRIES - 1:
                    raise UnclearError(*error.args) from error
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def _was_renamed(self, temporary: str, path: str, data: bytes) -> bool:
        # The bytes are looked at as well: somebody who clears up may have removed the temporary file.
        return not self.is_file(temporary) and self.is_file(path) and self.read(path, 0, None) == data

    def _remove_quietly(self, path: str) -> None:
        with suppress(OSError):
            self._remove(path)

    def delete(self, paths: Sequence[str]) -> Mapping[str, Exception]:
        """Remove files, one by one."""
        failures: dict[str, Exception] = {}
        for path in paths:
            try:
                if self.is_directory(path):
                    raise IsADirectoryError(f"{path} is a directory")
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._remove(path)
            except OSError as error:
                failures[path] = error
        return failures

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Remove a directory, which the NameNode refuses if it is not empty."""

    def remove_empty(self, path: str, above: str) -> None:
        """Remove a directory, those in it and the one above it, each if it is empty."""
        with suppress(OSError):
            for name, is_directory in self.children(path):
                if is_directory:
                    self.remove_empty(f"{path}/{name}", "")
            self.remove_directory(path)
            if above:
                self.remove_directory(above)

    def names(self, path: str, prefix: str) -> list[str]:
        """Return the files of a directory whose names begin like this."""
        return [name for name, is_directory in self.children(path) if name.startswith(prefix) and not is_directory]
