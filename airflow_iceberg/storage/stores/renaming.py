"""The stores with a real rename, HDFS by its own protocol (`hdfs`) and by HTTP (`webhdfs`).

A file is complete before it has its name, and the name is given once.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from contextlib import suppress

from airflow_iceberg.storage.stores.store import Location, RefusedError, Store, UnclearError

_TRIES = 5


class RenamingStore(Store):
    """Files of one HDFS; paths are absolute."""

    @abstractmethod
    def _write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Write a file."""

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
        """Remove a file or an empty directory."""

    @classmethod
    def instance_of(cls, location: Location) -> str:
        return f"{location.scheme}://{location.authority}"

    @classmethod
    def path_of(cls, location: Location) -> str:
        return "/" + location.path.strip("/")

    def create(self, path: str, data: bytes) -> None:
        """Write a temporary file and give it the name, if that is free."""
        temporary = self._temporary_name(path)
        try:
            self._write(temporary, data)
        except OSError as error:
            self._remove_quietly(temporary)
            if isinstance(error, FileExistsError | NotADirectoryError | RefusedError):
                raise RefusedError(str(error)) from error
            # Whatever happened to the temporary file: the name itself was not touched.
            raise RefusedError(f"could not write a temporary file in the same directory: {error}") from error
        try:
            self._rename(temporary, path, data)
        except (FileExistsError, RefusedError, NotADirectoryError):
            self._remove_quietly(temporary)
            raise

    def _temporary_name(self, path: str) -> str:
        return f"{path.rpartition('/')[0]}/{uuid.uuid4().hex}.tmp"

    def _rename(self, temporary: str, path: str, data: bytes) -> None:
        """Rename; if the answer is lost, the temporary file shows the outcome: only our own rename moves it."""
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
        # The bytes are compared as well: a cleanup may have removed the temporary file.
        return not self.is_file(temporary) and self.is_file(path) and self.read(path, 0, None) == data

    def _remove_quietly(self, path: str) -> None:
        with suppress(OSError):
            self._remove(path)

    def _delete_file(self, path: str) -> None:
        if self.is_directory(path):
            raise IsADirectoryError(f"{path} is a directory")
        self._remove(path)

    def remove_directory(self, path: str) -> None:
        self._remove(path)

    def remove_empty(self, path: str, above: str) -> None:
        with suppress(OSError):
            for name, is_directory in self.children(path):
                if is_directory:
                    self.remove_empty(f"{path}/{name}", "")
            self._remove(path)
            if above:
                self._remove(above)
