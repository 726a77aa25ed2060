"""Names that no catalog accepts, since they would leave their place in a path, in a location or in an address."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.storage.paths_within import decodings

# What would have a meaning of its own in a path, an address or a log: the separators of levels among them (0x1D of
# Nessie, 0x1F of REST).
_NO_NAME = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Nessie alone takes what follows as a reference, in whose name slashes are usual: "orders@feature/x".
_MARK = re.compile(r"[@#]")

Namespace = tuple[str, ...]


def child_namespaces(parent: Namespace, namespaces: Iterable[Namespace]) -> tuple[Namespace, ...]:
    """Return the namespaces one level below a parent, sorted, of which others may name only deeper levels."""
    depth = len(parent) + 1
    return tuple(sorted({path[:depth] for path in namespaces if len(path) >= depth and path[: depth - 1] == parent}))


def check_names(names: Iterable[str], *, may_have_ref: bool = True) -> None:
    """Reject names that leave their place in a path, in a location or an address, also percent-encoded.

    Args:
        names: the levels of a namespace, and the name of a table if there is one.
        may_have_ref: whether a reference of Nessie, which may contain slashes, can follow a mark.
    Raises:
        InvalidInputError: a name is "." or "..", or contains a slash, a backslash or a control character.
    """
    is_ref = False
    for name in names:
        for text in decodings(name):
            mark = _MARK.search(text) if may_have_ref else None
            plain = "" if is_ref else text[: mark.start()] if mark else text
            if "/" in plain or (plain and not plain.strip().strip(".")) or _NO_NAME.search(text):
                raise InvalidInputError(
                    f"{name!r} cannot be the name of a table or a level of a namespace: '.', '..', slashes, "
                    "backslashes and control characters are not allowed, also not encoded; rename it"
                )
        is_ref = is_ref or (may_have_ref and _MARK.search(name) is not None)


def is_name(name: str) -> bool:
    """Tell whether a table, or a level of a namespace, can have this name."""
    try:
        check_names((name,))
    except InvalidInputError:
        return False
    return bool(name.strip())


def parse_namespace(namespace: str | Iterable[str]) -> Namespace:
    """Return the levels of a namespace, given as "a.b" or as ("a", "b").

    Raises:
        InvalidInputError: there is no level, an empty one, or one with a dot in it (a dot separates levels).
    """
    levels = tuple(namespace.split(".")) if isinstance(namespace, str) else tuple(namespace)
    if not levels or not all(level.strip() and "." not in level for level in levels):
        raise InvalidInputError(f"{namespace!r} is not a namespace, write it as 'a' or 'a.b' without empty levels")
    check_names(levels)
    return levels
