"""A clause of a merge as a value: which rows it is for, and what happens to them. Not here: its text (`merge_sql`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"
UPDATE, DELETE, INSERT = "update", "delete", "insert"
TARGET, SOURCE = "target", "source"


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeClause:
    """One clause of a merge.

    Attributes:
        rows: the rows it is for: MATCHED, NOT_MATCHED (rows of the source) or NOT_MATCHED_BY_SOURCE (of the target).
        action: UPDATE, DELETE or INSERT.
        condition: a further condition, as SQL; None for none.
        columns: the columns that get a value; none for a delete, and for `is_star`.
        expressions: their values, as SQL.
        is_star: whether all columns of the table get the values of the source's columns of the same names.
    """

    rows: str
    action: str
    condition: str | None = None
    columns: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    is_star: bool = False


UPSERT = (
    MergeClause(rows=MATCHED, action=UPDATE, is_star=True),
    MergeClause(rows=NOT_MATCHED, action=INSERT, is_star=True),
)


def sides_of(rows: str) -> tuple[str, ...]:
    """Return the sides that rows of a clause have: TARGET, SOURCE or both."""
    if rows == MATCHED:
        return (TARGET, SOURCE)
    return (SOURCE,) if rows == NOT_MATCHED else (TARGET,)


# A name, or names with dots between them; each as it is, or in one of the marks that engines have for names.
_PART = r"`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^`\".]+"
_NAMES = re.compile(rf"\s*(?:{_PART})\s*(?:\.\s*(?:{_PART})\s*)*")


def name_parts(text: str) -> tuple[str, ...]:
    """Return the names of a column, and of fields in it, without the marks around them: `` `a.b`.c `` is two.

    A text with marks in other places is one name.
    """
    if _NAMES.fullmatch(text) is None:
        return (text,)
    parts = (part.strip() for part in re.findall(_PART, text))
    return tuple(part[1:-1].replace(part[0] * 2, part[0]) if part[0] in '`"' else part for part in parts if part)


def column_name(text: str) -> str:
    """Return the name of a column: what is in marks, if it is; else the text itself, also with dots."""
    parts = name_parts(text)
    return parts[0] if len(parts) == 1 else text


def field_of(side: str, path: Sequence[str], *, dialect: str) -> str:
    """Return a column of a side, or a field in it, as SQL of a dialect."""
    return ".".join([side, *(quoted(name, dialect) for name in path)])


def quoted(name: str, dialect: str) -> str:
    """Return a name as SQL of a dialect, "spark" or "duckdb"."""
    mark = "`" if dialect == "spark" else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"
