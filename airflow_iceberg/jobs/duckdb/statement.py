"""Which SQL is run: one query, over what is registered. Not here: what DuckDB itself forbids (`jobs.duckdb_query`)."""

from __future__ import annotations

import re
from typing import Any

from airflow_iceberg.errors import InvalidInputError

# The functions that may stand where a table does. Some others read memory by its address: a wrong one ends the process.
_TABLE_FUNCTIONS = frozenset(("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"))
# Such a function in DuckDB's JSON of a query, in which a mark within a text or a name has a backslash before it.
_TABLE_FUNCTION = re.compile(r'"type":"TABLE_FUNCTION",.*?"function_name":"((?:[^"\\]|\\.)*)"', re.DOTALL)


def one_query(connection: Any, text: str) -> Any:
    """Return the statement of a text; one that is no query could change what the next one sees.

    Raises:
        InvalidInputError: several statements, one that returns no rows of its own, or one that reads more than inputs.
        duckdb.Error: it is no SQL.
    """
    statements = connection.extract_statements(text)
    kinds = [*map(_kind, statements)]
    functions = _table_functions(connection, text) if kinds == ["select"] else None
    if functions is None:
        found = ", ".join(kinds) or "no statement"
        raise InvalidInputError(f"sql is {found}, expected one query that returns rows, such as 'select … from …'")
    unknown = functions - _TABLE_FUNCTIONS
    if unknown:
        raise InvalidInputError(
            f"sql reads rows of the function {min(unknown)}(), expected inputs, or one of "
            f"{', '.join(sorted(_TABLE_FUNCTIONS))}"
        )
    return statements[0]


def _kind(statement: Any) -> str:
    try:
        return str(statement.type.name).lower()
    except ValueError:  # a kind that DuckDB's own Python does not know, such as `connect` in 2.0
        return "another statement"


def _table_functions(connection: Any, text: str) -> set[str] | None:
    """Return the functions that stand where a table does, as DuckDB reads the query; None if it is none (a pragma)."""
    # All rows are fetched: until then the connection of DuckDB 2 is in use.
    [(document,)] = connection.execute("select json_serialize_sql(?::varchar)", [text]).fetchall()
    if not document.startswith('{"error":false,'):
        return None
    return {name.lower() for name in _TABLE_FUNCTION.findall(document)}
