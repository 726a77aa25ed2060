"""The query of a merge: which rows match, which clause takes each of them, and the new values.

The engine evaluates the author's own conditions and expressions. They see `target` and `source` as far as a row has
them: a row without a match has one side, whose names need no side before them. They never see a column of ours: a name
of ours cannot be known, stars are written out (Spark), and a text that may ask for columns without their names (DuckDB)
is evaluated over the authors' columns alone (`scoped_sql`).

A row of the result is a change: the place of a row of the table (a file's number and a position; null for a new row),
the number of the clause (null for a row that matches, and that no clause takes), and the values of each clause's
columns.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    field_of,
    quoted,
    sides_of,
)
from airflow_iceberg.format.names import Path, spelled
from airflow_iceberg.jobs.merge.texts import without_stars

# The columns of the result, which no SQL of an author sees.
FILE, POSITION, CLAUSE = "_merge_file", "_merge_pos", "_merge_clause"
# A name that authors' SQL could have is one that they see. Made once in a process: the driver tells the workers.
_UNKNOWN = f"_{secrets.token_hex(8)}"
TARGET_ROWS, SOURCE_ROWS = f"{_UNKNOWN}_target", f"{_UNKNOWN}_source"
"""The views of the rows of both sides, with the columns of ours below."""
ROW_FILE, ROW_POSITION = f"{_UNKNOWN}_file", f"{_UNKNOWN}_pos"
# A row of the source: its number in DuckDB, true in Spark. Null tells rows of the target without a source.
SOURCE_ROW = f"{_UNKNOWN}_row"
CHOSEN, PAIRS = f"{_UNKNOWN}_clause", f"{_UNKNOWN}_pairs"

C = TypeVar("C", bound=MergeClause)


def shown(message: str) -> str:
    """Return an engine's message without the names of ours that it advises to use."""
    found = re.sub(rf'(?:[`"]\w+[`"]\.|\w+\.)?[`"]?{_UNKNOWN}\w*[`"]?(?:, )?', "", message)
    found = re.sub(r", (?=\]|$)", "", found)
    return re.sub(r"[.,!]*\s*(?:Candidate bindings:|Did you mean one of the following\?)[\s\[\]\",.]*$", "", found)


def is_own(name: str) -> bool:
    """Whether a column is one of ours."""
    return name.startswith(_UNKNOWN)


def table_view(side: str, columns: Sequence[str], *, dialect: str) -> str:
    """Return the statement by which subqueries see a side as a table."""
    rows, names = TARGET_ROWS if side == TARGET else SOURCE_ROWS, ", ".join(quoted(name, dialect) for name in columns)
    return f"create or replace temporary view {side} as select {names} from {rows}"


def value_name(clause: int, column: int) -> str:
    """Return the name that the query gives the value of a clause's column."""
    return f"_merge_value_{clause}_{column}"


def resolved(clauses: Sequence[C], columns: Sequence[str], source: Sequence[str], *, dialect: str) -> tuple[C, ...]:
    """Return the clauses with the table's own spelling of columns, and with all columns instead of a star.

    Args:
        columns: the columns of the table.
        source: the columns of the source.

    Raises:
        InvalidInputError: a column that the table, or for a star the source, does not have.
    """
    return tuple(_resolved(clause, columns, source, dialect) for clause in clauses)


def _resolved(clause: C, columns: Sequence[str], source: Sequence[str], dialect: str) -> C:
    if clause.is_star:
        found = {name: spelled(name, source, where="the source") for name in columns}
        missing = [name for name in columns if found[name] is None]
        if missing:
            raise InvalidInputError(
                f"'{clause.action} {'set ' if clause.action == 'update' else ''}*' needs all columns of the table in "
                f"the source, which lacks {', '.join(map(repr, missing))}; the source has "
                f"{', '.join(source)}: add it to the source, or name the columns that get a value"
            )
        values = tuple(f"{SOURCE}.{quoted(found[name] or '', dialect)}" for name in columns)
        return replace(clause, columns=tuple(columns), expressions=values, is_star=False)
    known = {name: spelled(name, columns, where="the table") for name in clause.columns}
    for name, own in known.items():
        if own is None:
            raise InvalidInputError(
                f"column {name!r} of '{clause.action}' is not in the table, which has {', '.join(columns)}"
            )
    return replace(clause, columns=tuple(own for own in known.values() if own is not None))


def needs_unique_matches(clauses: Sequence[MergeClause]) -> bool:
    """Whether two rows of the source that match one row of the table are an error: what happens to it would be chance.

    A delete of all rows that match is the same however often it happens.
    """
    matched = [clause for clause in clauses if clause.rows == MATCHED]
    return bool(matched) and not (len(matched) == 1 and matched[0].action == DELETE and matched[0].condition is None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """What the SQL of a statement sees.

    Attributes:
        target: the columns of the table that were read; `source` are those of the source.
        dialect: "spark" or "duckdb".
    """

    target: Sequence[str]
    source: Sequence[str] = ()
    dialect: str

    def of(self, side: str) -> Sequence[str]:
        return self.target if side == TARGET else self.source

    def column(self, side: str, name: str) -> str:
        return f"{side}.{quoted(name, self.dialect)}"

    def text(self, text: str, sides: Sequence[str]) -> str:
        """Return an author's text, in brackets and in lines of its own, with columns instead of stars."""
        if self.dialect == "spark":
            text = without_stars(text, {side: self.of(side) for side in sides}, dialect=self.dialect)
        return f"(\n{text}\n)"

    def is_plain(self, text: str, sides: Sequence[str], *, is_condition: bool = False) -> bool:
        """Whether a text can stand where columns of ours are, too.

        Args:
            is_condition: whether it decides which rows match, or which clause takes a row.
        """
        if self.dialect == "spark":
            return True  # there are stars, which `text` replaces, and no other way
        # DuckDB runs where Airflow does, which has sqlglot.
        from airflow_iceberg.expressions.clause_names import has_subquery, names_its_columns

        if is_condition and has_subquery(text, dialect=self.dialect):
            return False  # an outer join takes none, and no value can depend on a choice with one beside it
        columns = [name for side in sides for name in self.of(side)]
        return names_its_columns(text, columns, dialect=self.dialect)


def own_value(clause: int, column: int) -> str:
    """Return the name of a clause's value inside the query."""
    return f"{_UNKNOWN}_value_{clause}_{column}"


def choice(clauses: Sequence[MergeClause], rows: str, texts: Sequence[str | None]) -> str | None:
    """Return the number of the first clause that takes a row, of those for some kind of rows; None without such.

    Args:
        texts: the conditions of all clauses, as the engine evaluates them.
    """
    parts = [
        f"when {text or 'true'} then {number}"
        for number, (clause, text) in enumerate(zip(clauses, texts, strict=True))
        if clause.rows == rows
    ]
    return f"case when {presence(rows)} then case {' '.join(parts)} end end" if parts else None


def presence(rows: str) -> str:
    """Return the condition that tells rows of a kind."""
    if rows == NOT_MATCHED:
        return f"{ROW_POSITION} is null"
    if rows == NOT_MATCHED_BY_SOURCE:
        return f"{SOURCE_ROW} is null"
    return f"({ROW_POSITION} is not null and {SOURCE_ROW} is not null)"


def changes(clauses: Sequence[MergeClause], inner: str, chosen: str, *, is_merge: bool) -> str:
    """Return the query of the changes over one that chooses clauses and evaluates values."""
    names = [f"{ROW_FILE} as {FILE}", f"{ROW_POSITION} as {POSITION}", f"{chosen} as {CLAUSE}"]
    names += [
        f"{own_value(k, i)} as {value_name(k, i)}"
        for k, clause in enumerate(clauses)
        for i in range(len(clause.expressions))
    ]
    kept = f"{chosen} is not null"
    if is_merge and needs_unique_matches(clauses):
        kept += f" or {presence(MATCHED)}"
    return f"select {', '.join(names)} from ({inner}) as changes where {kept}"


def changes_query(clauses: Sequence[MergeClause], *, on: str | None, sides: Sides) -> str:
    """Return the query of the changes, where each text names its columns.

    Args:
        on: the condition by which rows match; None without a source: an update or a delete, of one clause.
    """
    if on is None:
        return _update_query(clauses[0], sides)
    kinds = [rows for rows in (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE) if rows in {one.rows for one in clauses}]
    query = f"{join(clauses)} on {sides.text(on, (TARGET, SOURCE))}"
    passed = [ROW_FILE, ROW_POSITION, SOURCE_ROW]
    # Each level sees what the rows of its clauses have: both sides where they are joined, then one under its own name.
    for rows in (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE):
        if rows != MATCHED and rows not in kinds:
            continue
        later = kinds[kinds.index(rows) + 1 :] if rows in kinds else [kind for kind in kinds if kind != MATCHED]
        made = list(_evaluated(clauses, rows, sides))
        columns = [*passed, *(f"{text} as {name}" for name, text in made), *_kept(rows, later, sides)]
        query = f"select {', '.join(columns)} from {query}"
        passed += [name for name, _ in made]
        if later:
            query = f"({query}) as {sides_of(later[0])[0]}"
    chosen = f"coalesce({', '.join([*(_chosen(rows) for rows in kinds), 'null'])})"
    return changes(clauses, query, chosen, is_merge=True)


def _update_query(clause: MergeClause, sides: Sides) -> str:
    # Subqueries such as `exists` may be in WHERE, and nowhere else.
    where = f" where {sides.text(clause.condition, (TARGET,))}" if clause.condition else ""
    values = [f"{sides.text(text, (TARGET,))} as {own_value(0, at)}" for at, text in enumerate(clause.expressions)]
    columns = [ROW_FILE, ROW_POSITION, *values]
    return changes([clause], f"select {', '.join(columns)} from {TARGET_ROWS} as {TARGET}{where}", "0", is_merge=False)


def _evaluated(clauses: Sequence[MergeClause], rows: str, sides: Sides) -> Iterator[tuple[str, str]]:
    """Yield names and SQL of what the clauses for rows of a kind evaluate: which one takes a row, and its values."""
    seen = sides_of(rows)
    texts = [None if one.condition is None else sides.text(one.condition, seen) for one in clauses]
    chosen = choice(clauses, rows, texts)
    if chosen is None:
        return
    yield _chosen(rows), chosen
    for k, clause in enumerate(clauses):
        for i, text in enumerate(clause.expressions if clause.rows == rows else ()):
            yield own_value(k, i), f"case when {_chosen(rows)} = {k} then {sides.text(text, seen)} end"


def _chosen(rows: str) -> str:
    return f"{CHOSEN}_{rows.replace(' ', '_')}"


def _kept(rows: str, later: Sequence[str], sides: Sides) -> Iterator[str]:
    """Yield the columns of the sides that later levels see: those of the next one under their own names."""
    for number, kind in enumerate(later):
        (side,) = sides_of(kind)
        for at, name in enumerate(sides.of(side)):
            hidden = hidden_column(side, at)
            own = quoted(name, sides.dialect)
            # Both sides are still there below the first level; above it, the one that waits has hidden names.
            here = sides.column(side, name) if rows == MATCHED else hidden
            yield f"{here} as {own if number == 0 else hidden}"


def hidden_column(side: str, at: int) -> str:
    """Return the name of a column of a side while it waits for a level that sees it."""
    return f"{_UNKNOWN}_{side}_{at}"


def join(clauses: Sequence[MergeClause]) -> str:
    """Return the two sides of the rows that clauses are for."""
    kinds = {clause.rows for clause in clauses}
    source, target = f"{SOURCE_ROWS} as {SOURCE}", f"{TARGET_ROWS} as {TARGET}"
    if {NOT_MATCHED, NOT_MATCHED_BY_SOURCE} <= kinds:
        return f"{source} full outer join {target}"
    if NOT_MATCHED_BY_SOURCE in kinds:
        return f"{target} left outer join {source}"
    if NOT_MATCHED in kinds:
        return f"{source} left outer join {target}"
    return f"{source} inner join {target}"


def bad_key_query(source_keys: Sequence[Path], *, dialect: str) -> str:
    """Return the query of a key that is null, or in several rows of the source: the columns, and the number of rows."""
    names = [field_of(SOURCE, path, dialect=dialect) for path in source_keys]
    nulls = " or ".join(f"{name} is null" for name in names)
    return (
        f"select {', '.join(names)}, count(*) as {_UNKNOWN}_count from {SOURCE_ROWS} as {SOURCE} "
        f"group by {', '.join(names)} having count(*) > 1 or {nulls} limit 1"
    )
