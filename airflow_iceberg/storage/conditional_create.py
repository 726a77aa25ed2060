"""Whether a store really creates a file only if it isn't there: asked before a table relies on it.

Servers that speak S3's protocol (and emulators of the others) may accept the condition and ignore it, and then two
commits both succeed and one is lost.
"""

from __future__ import annotations

import uuid

from airflow_iceberg.errors import AlreadyExistsError, UnsupportedError
from airflow_iceberg.storage.base import FileIO


def require_conditional_create(io: FileIO, directory: str) -> None:
    """Create a file twice, and insist that the second one is refused; three requests.

    Args:
        directory: where the file is put for a moment; what a crash leaves there is found as an orphan.
    Raises:
        UnsupportedError: the store overwrote the first file.
        StorageError: it could not be found out.
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
