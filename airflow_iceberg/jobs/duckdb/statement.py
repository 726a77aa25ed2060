"""Which SQL is run: one query, over what is registered. Not here: what DuckDB itself forbids (`jobs.duckdb_query`).

DuckDB says as JSON how it reads the query. What is not found there by a name that is allowed is refused: also a kind of
table that this module does not know, and a document that ends too early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.errors import InvalidInputError

# The functions that may stand where a table does. Some others read memory by its address: a wrong one ends the process.
_TABLE_FUNCTIONS = frozenset(("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"))
# Functions of values that do more than that: the first one plans the SQL that it is given, with all functions in it.
_NOT_OF_VALUES = re.compile(
    r"(?i)json_serialize_plan|.*execute.*|getenv|__internal_.*|(?:pragma|duckdb|read|query|write)_.*|query|.*_scan"
)
# Where tables and queries are in the document, and which there are.
_PLACES = frozenset(("from_table", "left", "node", "right", "source"))
_TABLES = frozenset(
    ("BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION")
)
_TABLES |= {"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"}
_INCOMPLETE = "sql cannot be checked: DuckDB does not say all that it reads"
_THERE = (
    "select lower(view_name), lower(schema_name), internal from duckdb_views() "
    "union all select lower(table_name), lower(schema_name), internal from duckdb_tables()"
)
# A text, with the sign behind one that is a name, or a bracket. Other values matter to nobody here.
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"(:?)|([{}\[\]])', re.DOTALL)


def one_query(connection: Any, text: str) -> Any:
    """Return the statement of a text; one that is no query could change what the next one sees.

    Raises:
        InvalidInputError: several statements, one that returns no rows of its own, or one that reads more than inputs.
        duckdb.Error: it is no SQL.
    """
    if "\0" in text:
        raise InvalidInputError("sql has a NUL character, where DuckDB may take it for ended; leave the character out")
    statements = connection.extract_statements(text)
    kinds = [*map(_kind, statements)]
    document = _document(connection, text) if kinds == ["select"] else None
    if document is None:
        found = ", ".join(kinds) or "no statement"
        raise InvalidInputError(f"sql is {found}, expected one query that returns rows, such as 'select … from …'")
    _check(connection, _objects(document))
    return statements[0]


def _kind(statement: Any) -> str:
    try:
        return str(statement.type.name).lower()
    except ValueError:  # a kind that DuckDB's own Python does not know, such as `connect` in 2.0
        return "another statement"


def _document(connection: Any, text: str) -> str | None:
    """Return how DuckDB reads a query, in JSON; None if it is none (a pragma)."""
    # All rows are fetched: until then the connection of DuckDB 2 is in use.
    [(document,)] = connection.execute("select json_serialize_sql(?::varchar)", [text]).fetchall()
    return document if document.startswith('{"error":false,') else None


@dataclass(slots=True)
class _Object:
    """An object of the document: the name that it has in its parent, its texts, and the objects with names in it."""

    name: str
    texts: dict[str, str] = field(default_factory=dict)
    inner: dict[str, _Object] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.texts.get("type", "")

    def folded(self, name: str) -> str:
        return str(json.loads(f'"{self.texts.get(name, "")}"', strict=False)).lower()


def _objects(document: str) -> list[_Object]:
    """Return the objects of a document, each before those in it.

    Not with a parser that calls itself: a query may be nested more deeply than Python allows that.

    Raises:
        InvalidInputError: the document ends too early.
    """
    found: list[_Object] = []
    above: list[_Object | None] = []
    name = ""
    for token in _TOKEN.finditer(document):
        text, colon, bracket = token.groups()
        parent = above[-1] if above else None
        if bracket == "{":
            opened = _Object(name)
            if parent is not None:
                parent.inner[name] = opened
            found.append(opened)
            above.append(opened)
        elif bracket == "[":
            above.append(None)
        elif bracket:
            if not above or (bracket == "]") != (above.pop() is None):
                raise InvalidInputError(_INCOMPLETE)
        elif not colon and parent is not None:
            parent.texts[name] = text
        name = text if colon else ""
    if above or not any(one.name == "node" for one in found):
        raise InvalidInputError(_INCOMPLETE)
    return found


def _check(connection: Any, objects: Iterable[_Object]) -> None:
    """Check what a query reads: inputs, its own tables, and functions that only make rows or values.

    Raises:
        InvalidInputError: it reads more, or in a way that is not known here.
    """
    there = connection.execute(_THERE).fetchall()
    inputs = {name for name, _, is_internal in there if not is_internal}
    of_duckdb = {name: schema for name, schema, is_internal in there if is_internal}
    for one in objects:
        if one.kind == "TABLE_FUNCTION":
            function = one.inner.get("function")
            name = "" if function is None else function.folded("function_name")
            if name not in _TABLE_FUNCTIONS:
                raise InvalidInputError(
                    f"sql reads rows of the function {name}(), expected inputs, or one of "
                    f"{', '.join(sorted(_TABLE_FUNCTIONS))}"
                )
        elif "function_name" in one.texts and _NOT_OF_VALUES.fullmatch(name := one.folded("function_name")):
            raise InvalidInputError(f"sql calls the function {name}(), which does more than to compute a value")
        elif one.kind in ("BASE_TABLE", "SHOW_REF"):
            _check_table(one, inputs, of_duckdb)
        elif one.name in _PLACES and "class" not in one.texts and one.kind not in _TABLES:
            raise InvalidInputError(f"sql reads rows of the kind {one.kind!r}, expected inputs")


def _check_table(table: _Object, inputs: Collection[str], of_duckdb: Mapping[str, str]) -> None:
    """Check a table by its name; an unknown one is left to DuckDB, which has a message for it.

    A name of DuckDB's own is refused also where the query has given it to a table of its own: which one it means at
    this place is DuckDB's decision.
    """
    name = table.folded("table_name")
    is_qualified = bool(table.texts.get("schema_name") or table.texts.get("catalog_name"))
    if name in inputs and not is_qualified:
        return
    # Without its name, a schema of information about tables is not looked into.
    is_found = name in of_duckdb and (is_qualified or of_duckdb[name] != "information_schema")
    if is_found or (table.kind == "SHOW_REF" and name):
        raise InvalidInputError(f"sql reads {name!r}, which DuckDB has of its own, expected inputs")
