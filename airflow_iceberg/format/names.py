"""Names of columns and fields: paths of them, the spelling that is meant, and which names an engine takes for one.

Not here: paths in Arrow columns (`format.arrow.paths`), and the fields of a table by name and id
(`format.schemas.schema`).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from airflow_iceberg.errors import InvalidInputError

Path = tuple[str, ...]
"""The name of a column, and those of fields below it; no list or map is between them."""

_ASCII = str.maketrans({chr(upper): chr(upper + 32) for upper in range(ord("A"), ord("Z") + 1)})


def fold(name: str) -> str:
    """Return a name so that all those are equal which some engine may take for one."""
    return name.upper().casefold().replace("\u0307", "")


def fold_ascii(name: str) -> str:
    """Return a name so that all those are equal which DuckDB takes for one: it knows no other letters than A to Z."""
    return name.translate(_ASCII)


def spelled(name: str, names: Iterable[str], *, where: str) -> str | None:
    """Return the name among some that is meant by one: the same, else the only one that differs by case alone.

    Args:
        where: whose names they are, for errors.

    Returns:
        None if there is none.

    Raises:
        InvalidInputError: several differ from it by case alone.
    """
    known = list(names)
    if name in known:
        return name
    near = [each for each in known if fold(each) == fold(name)]
    if len(near) > 1:
        raise InvalidInputError(
            f"column {name!r} may be {' or '.join(map(repr, near))} of {where}, which differ by case alone: spell it "
            f"as one of them"
        )
    return near[0] if near else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: which of some names may be meant, empty if none is near it."""
    by_fold: dict[str, str] = {}
    for known in names:
        by_fold.setdefault(fold(known), known)
    near = get_close_matches(fold(name), by_fold, n=1, cutoff=0.7)
    return f"; did you mean '{by_fold[near[0]]}'?" if near else ""
