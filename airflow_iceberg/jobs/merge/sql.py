"""The query of a merge: which rows match, which clause takes each of them, and the new values.

The engine sees two views, `target` and `source`, and evaluates the author's own conditions and expressions. A row of
the result is a change: the place of a row of the table (a file's number and a position; null for a new row), the
number of the clause (null for a row that matches, and that no clause takes), and the values of each clause's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import (
    DELETE,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    SOURCE,
    TARGET,
    MergeClause,
    quoted,
)

# All names that the query makes up begin with it.
_OWN = "_merge_"
FILE, POSITION, CLAUSE = "_merge_file", "_merge_pos", "_merge_clause"
# A column of the source that is true: null tells rows of the target without a source.
IS_SOURCE = "_merge_source"
_IS_MATCHED = "_merge_matched"

C = TypeVar("C", bound=MergeClause)


def value_name(clause: int, column: int) -> str:
    """Return the name that the query gives the value of a clause's column."""
    return f"_merge_value_{clause}_{column}"


def resolved(clauses: Sequence[C], columns: Sequence[str], source: Sequence[str], *, dialect: str) -> tuple[C, ...]:
    """Return the clauses with the table's own spelling of columns, and with all columns instead of a star.

    Args:
        columns: the columns of the table.
        source: the columns of the source.

    Raises:
        InvalidInputError: a column that the table, or for a star the source, does not have; one with a name of the
            query itself, which engines would take for it.
    """
    for name in (*columns, *source):
        if name.lower().startswith(_OWN):
            raise InvalidInputError(
                f"column {name!r} has a name of the merge itself: names that begin with {_OWN!r} are reserved; rename "
                f"the column"
            )
    return tuple(_resolved(clause, columns, source, dialect) for clause in clauses)


def _resolved(clause: C, columns: Sequence[str], source: Sequence[str], dialect: str) -> C:
    if clause.is_star:
        found = {name.lower(): name for name in source}
        missing = [name for name in columns if name.lower() not in found]
        if missing:
            raise InvalidInputError(
                f"'{clause.action} {'set ' if clause.action == 'update' else ''}*' needs all columns of the table in "
                f"the source, and {', '.join(map(repr, missing))} is missing there; the source has "
                f"{', '.join(source)}: add it to the source, or name the columns that get a value"
            )
        values = tuple(f"{SOURCE}.{quoted(found[name.lower()], dialect)}" for name in columns)
        return replace(clause, columns=tuple(columns), expressions=values, is_star=False)
    known = {name.lower(): name for name in columns}
    for name in clause.columns:
        if name not in columns and name.lower() not in known:
            raise InvalidInputError(
                f"column {name!r} of '{clause.action}' is not in the table, which has {', '.join(columns)}"
            )
    return replace(clause, columns=tuple(name if name in columns else known[name.lower()] for name in clause.columns))


def needs_unique_matches(clauses: Sequence[MergeClause]) -> bool:
    """Whether two rows of the source that match one row of the table are an error: what happens to it would be chance.

    A delete of all rows that match is the same however often it happens.
    """
    matched = [clause for clause in clauses if clause.rows == MATCHED]
    return bool(matched) and not (len(matched) == 1 and matched[0].action == DELETE and matched[0].condition is None)


def changes_query(clauses: Sequence[MergeClause], *, on: str | None, dialect: str) -> str:
    """Return the query of the changes.

    Args:
        on: the condition by which rows match; None without a source: an update or a delete, of one clause.
    """
    values = [
        f"case when {CLAUSE} = {k} then (\n{text}\n) end as {value_name(k, i)}"
        for k, clause in enumerate(clauses)
        for i, text in enumerate(clause.expressions)
    ]
    place = [f"{TARGET}.{FILE} as {FILE}", f"{TARGET}.{POSITION} as {POSITION}"]
    if on is None:
        # Subqueries such as `exists` may be in WHERE, and nowhere else.
        where = f" where (\n{clauses[0].condition}\n)" if clauses[0].condition else ""
        return f"select {', '.join([*place, f'0 as {CLAUSE}', *values])} from {TARGET}{where}"
    chosen = " ".join(f"when {_rows(clause)} then {number}" for number, clause in enumerate(clauses))
    columns = [*place, f"{_presence(MATCHED)} as {_IS_MATCHED}", f"case {chosen} end as {CLAUSE}", *values]
    kept = f"{CLAUSE} is not null"
    if needs_unique_matches(clauses):
        kept += f" or {_IS_MATCHED}"
    names = [FILE, POSITION, CLAUSE]
    names += [value_name(k, i) for k, clause in enumerate(clauses) for i in range(len(clause.expressions))]
    inner = f"select {', '.join(columns)} from {_join(clauses)} on (\n{on}\n)"
    return f"select {', '.join(names)} from ({inner}) as changes where {kept}"


def _rows(clause: MergeClause) -> str:
    text = _presence(clause.rows)
    return f"({text})" if clause.condition is None else f"({text}) and (\n{clause.condition}\n)"


def _presence(rows: str) -> str:
    if rows == NOT_MATCHED:
        return f"{TARGET}.{POSITION} is null"
    if rows == NOT_MATCHED_BY_SOURCE:
        return f"{SOURCE}.{IS_SOURCE} is null"
    return f"({TARGET}.{POSITION} is not null and {SOURCE}.{IS_SOURCE} is not null)"


def _join(clauses: Sequence[MergeClause]) -> str:
    kinds = {clause.rows for clause in clauses}
    if {NOT_MATCHED, NOT_MATCHED_BY_SOURCE} <= kinds:
        return f"{SOURCE} full outer join {TARGET}"
    if NOT_MATCHED_BY_SOURCE in kinds:
        return f"{TARGET} left outer join {SOURCE}"
    if NOT_MATCHED in kinds:
        return f"{SOURCE} left outer join {TARGET}"
    return f"{SOURCE} inner join {TARGET}"


def bad_key_query(source_keys: Sequence[str], *, dialect: str) -> str:
    """Return the query of a key that is null, or in several rows of the source: the columns, and the number of rows."""
    names = [f"{SOURCE}.{quoted(name, dialect)}" for name in source_keys]
    nulls = " or ".join(f"{name} is null" for name in names)
    return (
        f"select {', '.join(names)}, count(*) as _merge_count from {SOURCE} group by {', '.join(names)} "
        f"having count(*) > 1 or {nulls} limit 1"
    )
