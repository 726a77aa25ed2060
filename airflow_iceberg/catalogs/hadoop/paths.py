"""The directories of a Hadoop catalog: which names can be one, and where it is."""

from __future__ import annotations

from airflow_iceberg.catalogs.names import Namespace, is_name
from airflow_iceberg.errors import InvalidInputError

# A folder with a dot is of others: `.Trash`, `sales.db`. Slashes and colons have a meaning in a path, and fsspec would
# expand the others.
_NOT_PLAIN = "./\\:*?[]"


def below(root: str, names: Namespace, catalog: str) -> str:
    """Return the location of names below a root; raises InvalidInputError."""
    for name in names:
        if not is_plain(name):
            raise InvalidInputError(
                f"'{name}' cannot be a name in catalog {catalog}: a Hadoop catalog makes a directory of it, so none of "
                f"{' '.join(_NOT_PLAIN)} is allowed"
            )
    return "/".join((root.rstrip("/"), *names)) or "/"


def is_plain(name: str) -> bool:
    """Tell whether a name can be that of a directory."""
    return is_name(name) and not set(name) & {*_NOT_PLAIN}
