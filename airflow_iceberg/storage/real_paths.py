"""Where local locations really are, after all links: for comparing them, not for opening them.

Not here: which locations may be opened, and how, so that nobody's link leads elsewhere (`gate`, `local_roots`).
"""

from __future__ import annotations

import os

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.stores.store import parse_location


class RealPaths:
    """Resolves local locations; each folder once."""

    def __init__(self) -> None:
        self._folders: dict[str, str | None] = {}

    def path(self, location: str) -> str | None:
        """Return the real path of a local location, whose file need not exist; None if that cannot be told.

        It cannot where the folder does not exist on this machine, or may not be looked at: it may be a folder of
        another machine, or behind a link that is gone. Nor can it for a link to a file that is gone.
        """
        try:
            found = parse_location(location)
        except InvalidInputError:
            return None
        folder, _, name = found.path.rpartition("/")
        if found.scheme != "file" or name in ("", ".", ".."):
            return None
        if folder not in self._folders:
            self._folders[folder] = _real(folder or "/")
        real = self._folders[folder]
        if real is None:
            return None
        path = f"{real.rstrip('/')}/{name}"
        return _real(path) if os.path.islink(path) else path


def _real(folder: str) -> str | None:
    try:
        return os.path.realpath(folder, strict=True)
    except (OSError, ValueError):
        return None
