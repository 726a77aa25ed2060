"""Names of tables and namespaces: `TableId`, their one form as text, and which names no catalog accepts.

    sales.orders        the table orders in the namespace sales
    sales.`x.t`         the table x.t; `"x.t"` is read as well, and a mark in a level is doubled

A name must not leave its place in a path, in a location or in an address. What one catalog alone cannot hold is refused
by that catalog (`Catalog.id_of`, `Catalog.levels_of`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_iceberg.errors import InvalidInputError, check_storable, check_text
from airflow_iceberg.storage.paths_within import decodings

# What would have a meaning of its own in a path, an address or a log: the separators of levels among them (0x1D of
# Nessie, 0x1F of REST).
_NO_NAME = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Nessie alone takes what follows as a reference, in whose name slashes are usual: "orders@feature/x".
_MARK = re.compile(r"[@#]")
_MOST_SHOWN = 100
# A level in backticks or quotes, and one as it is. A mark within a level that begins otherwise is a part of it.
_LEVEL = re.compile(r"""(?:`(?:[^`]|``)*+`|"(?:[^"]|"")*+")(?=[.@#]|\Z)""")
_PLAIN = re.compile(r"[^.]*")
# Written as it is, it would be read as another one; blanks at the ends get lost where names are copied.
_AMBIGUOUS = re.compile(r"""[.`]|\A["\s]|\s\Z""")

Namespace = tuple[str, ...]


def join_levels(levels: Iterable[str]) -> str:
    """Return the levels of a name as one text, which `split_levels` splits into the same: "sales.orders", "a.`b.c`"."""
    return ".".join(
        f"`{level.replace('`', '``')}`" if _AMBIGUOUS.search(level) is not None else level for level in levels
    )


def split_levels(text: str) -> tuple[str, ...]:
    """Return the levels of a name, in which a dot stands between two of them unless it is in backticks or quotes.

    After a level in backticks may follow a reference of Nessie: "sales.`x.t`@etl". No level is checked.

    Raises:
        InvalidInputError: backticks or quotes that do not end, or that something follows.
    """
    levels, at = [], 0
    while True:
        level, end = "", at
        if text[at : at + 1] in ("`", '"'):
            found = _LEVEL.match(text, at)
            if found is None:
                shown = text[:_MOST_SHOWN]
                raise InvalidInputError(
                    f"{shown!r} is no name: a level begins with {text[at]} at character {at}, and does not "
                    f"end with it; write it in backticks, and each backtick in it twice, such as a.`b.c`"
                )
            mark, end = found[0][0], found.end()
            level = found[0][1:-1].replace(mark * 2, mark)
        rest = _PLAIN.match(text, end)
        assert rest is not None
        levels.append(level + rest[0])
        at = rest.end() + 1
        if at > len(text):
            return tuple(levels)


def child_namespaces(parent: Namespace, namespaces: Iterable[Namespace]) -> tuple[Namespace, ...]:
    """Return the namespaces one level below a parent, sorted, of which others may name only deeper levels.

    Those that cannot be named here are left out.
    """
    depth = len(parent) + 1
    found = {path[:depth] for path in namespaces if len(path) >= depth and path[: depth - 1] == parent}
    return tuple(sorted(path for path in found if is_name(path[-1])))


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
        check_text(_of(name), name, is_name="\0" not in name)
        for text in decodings(name):
            mark = _MARK.search(text) if may_have_ref else None
            plain = "" if is_ref else text[: mark.start()] if mark else text
            if "/" in plain or (plain and not plain.strip().strip(".")) or _NO_NAME.search(text):
                raise InvalidInputError(
                    f"{name!r} cannot be the name of a table or a level of a namespace: '.', '..', slashes, "
                    "backslashes and control characters are not allowed, also not encoded; rename it"
                )
        is_ref = is_ref or (may_have_ref and _MARK.search(name) is not None)


def _of(name: str) -> str:
    shown = repr(name[:_MOST_SHOWN]) + ("…" if len(name) > _MOST_SHOWN else "")
    return f"{shown}, the name of a table or a level of a namespace,"


def stored_properties(namespace: Namespace, properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return properties of a namespace as texts that every catalog can store.

    Raises:
        InvalidInputError: a name or a value cannot be stored.
    """
    found = {str(key): str(value) for key, value in (properties or {}).items()}
    check_storable(f"of namespace {join_levels(namespace)}", found, has_nul=False)
    return found


def is_name(name: str) -> bool:
    """Tell whether a table, or a level of a namespace, can have this name, which has no reference of Nessie."""
    try:
        check_names((name,), may_have_ref=False)
    except InvalidInputError:
        return False
    return bool(name.strip())


def parse_namespace(namespace: str | Iterable[str]) -> Namespace:
    """Return the levels of a namespace, given as "a.b" or as ("a", "b").

    Raises:
        InvalidInputError: there is no level, or an empty one.
    """
    levels = split_levels(namespace) if isinstance(namespace, str) else tuple(namespace)
    if not levels or not all(level.strip() for level in levels):
        raise InvalidInputError(f"{namespace!r} is not a namespace, write it as 'a' or 'a.b' without empty levels")
    check_names(levels)
    return levels


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TableId:
    """The name of a table in a catalog: its namespace, outermost level first, and its own name."""

    namespace: Namespace
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespace", parse_namespace(self.namespace))
        if not self.name.strip():
            raise InvalidInputError(f"table name in namespace '{join_levels(self.namespace)}' is empty, give it a name")
        check_names((*self.namespace, self.name))

    def __str__(self) -> str:
        return join_levels((*self.namespace, self.name))

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Return the id written as "namespace.table", with as many levels of namespace as there are.

        Raises:
            InvalidInputError: no namespace, an empty part, or one of `split_levels`.
        """
        parts = split_levels(text)
        if len(parts) < 2 or not all(part.strip() for part in parts):
            raise InvalidInputError(f"'{text}' is not the name of a table, write it as 'namespace.table'")
        return cls(namespace=parts[:-1], name=parts[-1])

    @classmethod
    def of(cls, table: str | TableId) -> TableId:
        """Return the id itself, or the parsed text."""
        if not isinstance(table, str | TableId):
            raise InvalidInputError(f"expected the name of a table as 'namespace.table', got {type(table).__name__}")
        return table if isinstance(table, TableId) else cls.parse(table)


def listed_tables(namespace: Namespace, names: Iterable[str]) -> tuple[TableId, ...]:
    """Return the tables of a listing, sorted, without those that cannot be named here."""
    return tuple(sorted(TableId(namespace=namespace, name=name) for name in names if is_name(name)))
