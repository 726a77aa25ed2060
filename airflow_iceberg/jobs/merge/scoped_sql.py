"""The query of a merge whose texts may ask for columns without their names: `to_json(target)`, `columns('a.*')`, `#2`.

DuckDB alone has such texts. Each is evaluated in a subquery over the columns of its sides and nothing else. That takes
longer than a query in which texts and columns of ours stand together (`sql`), so only statements with such a text come
here.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.expressions.merge_clauses import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    SOURCE,
    TARGET,
    MergeClause,
    quoted,
    sides_of,
)
from airflow_iceberg.jobs.merge.sql import (
    CHOSEN,
    PAIRS,
    ROW_FILE,
    ROW_POSITION,
    SOURCE_ROW,
    SOURCE_ROWS,
    TARGET_ROWS,
    Sides,
    changes,
    choice,
    hidden_column,
    own_value,
)

# DuckDB evaluates a subquery once for equal rows, and takes 0.0 and -0.0 for equal: so it is given the row's place.
_PLACE = f"coalesce({ROW_FILE}, {ROW_POSITION}, {SOURCE_ROW}) is not null"


def scoped_query(clauses: Sequence[MergeClause], *, on: str | None, sides: Sides) -> str:
    """Return the query of the changes; arguments as of `sql.changes_query`."""
    if on is None:
        table, where = scoped_condition(clauses[0].condition or "true", sides)
        rows = f"select *, 0 as {CHOSEN} from {table} where {where}"
    else:
        rows = f"select *, {_chosen(clauses, sides)} as {CHOSEN} from ({_joined(clauses, on, sides)})"
    names = [ROW_FILE, ROW_POSITION, SOURCE_ROW, CHOSEN]
    for k, clause in enumerate(clauses):
        seen = (TARGET,) if on is None else sides_of(clause.rows)
        names += [
            f"{scoped(text, seen, sides, where=f'{CHOSEN} = {k}')} as {own_value(k, i)}"
            for i, text in enumerate(clause.expressions)
        ]
    return changes(clauses, f"select {', '.join(names)} from ({rows})", CHOSEN, is_merge=on is not None)


def scoped_condition(text: str, sides: Sides) -> tuple[str, str]:
    """Return the rows of the table, with hidden names for their columns, and a condition on them."""
    return f"({_side(TARGET, sides)}, null::bigint as {SOURCE_ROW} from {_of(TARGET)})", scoped(text, (TARGET,), sides)


def scoped(text: str, seen: Sequence[str], sides: Sides, *, where: str = "true") -> str:
    """Return a text as a subquery, over the columns of the sides that it sees; null where `where` is not true.

    The rows around it have the columns under their hidden names.
    """
    tables = [f"(select {_columns(side, sides)}) as {side}" for side in seen if sides.of(side)]
    given = f" from {', '.join(tables)}" if tables else ""
    return f"(select (\n{text}\n){given} where {where} and {_PLACE})"


def _columns(side: str, sides: Sides) -> str:
    return ", ".join(f"{hidden_column(side, at)} as {_quoted(name)}" for at, name in enumerate(sides.of(side)))


def _quoted(name: str) -> str:
    return quoted(name, "duckdb")


def _chosen(clauses: Sequence[MergeClause], sides: Sides) -> str:
    texts = [None if one.condition is None else scoped(one.condition, sides_of(one.rows), sides) for one in clauses]
    found = (choice(clauses, rows, texts) for rows in (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE))
    return f"coalesce({', '.join([*(text for text in found if text), 'null'])})"


def _of(side: str) -> str:
    return f"{TARGET_ROWS if side == TARGET else SOURCE_ROWS} as {side}"


def _side(side: str, sides: Sides) -> str:
    """Return the beginning of the query of a side, with hidden names for its columns."""
    own = [ROW_FILE, ROW_POSITION] if side == TARGET else [SOURCE_ROW]
    columns = [f"{side}.{_quoted(name)} as {hidden_column(side, at)}" for at, name in enumerate(sides.of(side))]
    return f"select {', '.join([*own, *columns])}"


def _joined(clauses: Sequence[MergeClause], on: str, sides: Sides) -> str:
    """Return the query of the rows of both sides: pairs first, since outer joins take no subquery as a condition."""
    target, source = (f"({_side(side, sides)} from {_of(side)})" for side in (TARGET, SOURCE))
    pairs = (
        f"(select {ROW_FILE} as {PAIRS}_file, {ROW_POSITION} as {PAIRS}_pos, {SOURCE_ROW} as {PAIRS}_row "
        f"from {target}, {source} where {scoped(on, (TARGET, SOURCE), sides)})"
    )
    kinds = {clause.rows for clause in clauses}
    to_source = "left join" if NOT_MATCHED in kinds else "join"
    to_target = {True: "full join", False: "right join"}[NOT_MATCHED in kinds]
    if NOT_MATCHED_BY_SOURCE not in kinds:
        to_target = to_source
    return (
        f"select * exclude ({PAIRS}_file, {PAIRS}_pos, {PAIRS}_row) from {source} {to_source} {pairs} "
        f"on {SOURCE_ROW} = {PAIRS}_row {to_target} {target} on {ROW_FILE} = {PAIRS}_file and "
        f"{ROW_POSITION} = {PAIRS}_pos"
    )
