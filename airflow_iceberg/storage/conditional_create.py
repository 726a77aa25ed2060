"""Checks of a store before it is used: does a directory exist, and is a file created only if it does not exist?

Servers with S3's protocol (and emulators of the others) may accept the condition and ignore it. Then two commits both
succeed, and one is lost.
"""

from __future__ import annotations

import uuid
from enum import Enum

from airflow_iceberg.errors import AlreadyExistsError, UnsupportedError
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.directories import open_directory


class Presence(Enum):
    """Whether a directory exists: `CREATABLE` does not, but the directory above it does."""

    PRESENT = "present"
    CREATABLE = "creatable"
    NOWHERE = "nowhere"


def find_directory(io: FileIO, location: str) -> Presence:
    """Tell whether there is a directory at a location; nothing is created. `UnsupportedError` if it is a file."""
    if io.exists(location):
        raise UnsupportedError(f"cannot use {location} as a directory: it is a file")
    with open_directory(io, location, "look for") as (store, path):
        if store.is_directory(path):
            return Presence.PRESENT
        # Object stores have no directories: a prefix without objects can be written to if its bucket exists.
        above = path.rstrip("/").rpartition("/")[0] or "/"
        return Presence.CREATABLE if store.is_conditional or store.is_directory(above) else Presence.NOWHERE


def require_conditional_create(io: FileIO, directory: str) -> None:
    """Create a file twice and raise `UnsupportedError` unless the store refuses the second one; three requests.

    Args:
        directory: the place of the file for a moment; a file that a crash leaves there is found as an orphan.
    """
    probe = f"{directory.rstrip('/')}/{uuid.uuid4().hex}.probe"
    try:
        io.create(probe, b"first")
        try:
            io.create(probe, b"second")
        except AlreadyExistsError:
            return
    finally:
        io.delete([probe])
    raise UnsupportedError(
        f"the store of {directory} overwrites a file that is to be created only if it isn't there, so commits could be "
        "lost: keep tables there in a catalog that has the pointer itself (REST, SQL, Hive, Nessie, Glue), or use a "
        "store with conditional writes"
    )
