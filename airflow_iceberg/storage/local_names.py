"""Names by which libraries open local files themselves, so that they open the file that was meant.

Arrow opens a file by its name, and follows the links in it. An open file has a name, too, which no link can redirect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DESCRIPTORS = "/dev/fd"


@contextmanager
def native_name(filesystem: Any, path: str, *, new: bool = False) -> Iterator[str]:
    """Yield a name of a local file, to be opened within the block.

    Args:
        filesystem: the local file system of a FileIO.
        new: whether the file is created, in a directory that need not exist.
    """
    store = getattr(filesystem, "guarded_store", None)
    if store is None or not os.path.isdir(_DESCRIPTORS):
        if new:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        yield path
        return
    with store.open_new(path) if new else store.open_file(path) as file:
        yield f"{_DESCRIPTORS}/{file.fileno()}"
