"""Moving a file within one store, so that at every moment one of the two is whole."""

from __future__ import annotations

from airflow_iceberg.errors import NotFoundError, StorageError
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory


def move_file(io: FileIO, source: str, target: str, *, size_bytes: int) -> None:
    """Copy a file, check the copy, and delete the original; a file that was deleted meanwhile is no error.

    Raises:
        StorageError: it could not be moved, or has another size; the original is kept.
    """
    try:
        with open_directory(io, source, "move") as (store, path), open_directory(io, target, "move to") as (_, copy):
            copied = store.copy_file(path, copy)
    except NotFoundError:
        return
    except StorageError as error:
        io.delete([target])
        raise StorageError(f"cannot move {source} to {target}: {error}") from error
    if copied != size_bytes:
        io.delete([target])
        raise StorageError(f"moved {copied} bytes of {source} to {target}, expected {size_bytes}; the original is kept")
    io.delete([source])
