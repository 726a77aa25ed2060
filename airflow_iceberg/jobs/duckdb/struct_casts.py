"""Structs that DuckDB would fill with nulls: `coalesce(source.s, target.s)` of structs with and without a field.

Spark refuses to combine them. DuckDB casts the one without the field, which the value's type does not tell any more. So
its own plan of each value is looked at, over empty tables: no row is read. Not here: types of whole values
(`jobs.merge.assignable`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import MergeClause, quoted, sides_of
from airflow_iceberg.format import types as t
from airflow_iceberg.format.names import fold_ascii
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.duckdb.statement import one_query

_ROWS = "rows_of_"
# A column by its name: its own type says all.
_NAME = re.compile(r"\s*[\w.\"]+\s*")


def check_struct_casts(
    clauses: Sequence[MergeClause],
    *,
    schema: Schema,
    sides: Mapping[str, pa.Schema],
    inputs: Mapping[str, pa.Schema],
    values: Mapping[str, Any],
) -> None:
    """Check that no value of a column with structs has one that DuckDB fills with nulls.

    A text whose plan DuckDB cannot show is not checked.

    Args:
        schema: the columns of the table.
        sides: the columns of `target`, and of `source` if there is one.
        inputs: the columns of tables that subqueries read.
        values: those of placeholders.
    Raises:
        InvalidInputError: a struct gets a field that it does not have, in a combination of structs or by a cast; a text
            that reads more than inputs.
    """
    texts = [
        (clause, name, text)
        for clause in clauses
        for name, text in zip(clause.columns, clause.expressions, strict=True)
        if _NAME.fullmatch(text) is None and _has_struct(schema.find_field(name))
    ]
    if not texts:
        return
    try:
        import duckdb
    except ModuleNotFoundError:
        return  # who runs the query says so

    with closing(duckdb.connect(":memory:", config={"enable_external_access": "false"})) as connection:
        found = None
        with suppress(duckdb.Error):
            found = _first(connection, texts, {**inputs, **sides}, sides, values)
    if found is None:
        return
    clause, column, (before, after) = found
    raise InvalidInputError(
        f"'{clause.action}' gives '{column}' a value in which DuckDB makes a struct of {_shown(before)} one of "
        f"{_shown(after)}, with null where it has nothing: give all structs that it combines or casts the same fields"
    )


def _first(
    connection: Any,
    texts: Iterable[tuple[MergeClause, str, str]],
    tables: Mapping[str, pa.Schema],
    sides: Collection[str],
    values: Mapping[str, Any],
) -> tuple[MergeClause, str, tuple[list[str], list[str]]] | None:
    """Return the first value with a struct that is filled, and the fields before and after; None without one."""
    for name, columns in tables.items():
        _create(connection, name, columns)
    types = {name: connection.execute("select typeof($v)", {"v": one}).fetchone()[0] for name, one in values.items()}
    for clause, column, text in texts:
        seen = [side for side in sides_of(clause.rows) if side in sides]
        for filled in _filled(connection, _bound(text, types), seen):
            return clause, column, filled
    return None


def _has_struct(column: t.NestedField) -> bool:
    return any(isinstance(field.type, t.StructType) for field in t.walk_fields((column,)))


def _create(connection: Any, name: str, columns: pa.Schema) -> None:
    """Create a table without rows; DuckDB has none without columns, which is what a text gets that names none."""
    connection.register(_ROWS, (columns if columns.names else pa.schema([(_ROWS, pa.bool_())])).empty_table())
    connection.execute(f"create temp table {quoted(name, 'duckdb')} as select * from {_ROWS} limit 0")
    connection.unregister(_ROWS)


def _bound(text: str, types: Mapping[str, str]) -> str:
    """Return a text with nulls for placeholders, also where a literal has their names: types alone count."""
    if not types:
        return text
    names = "|".join(map(re.escape, types))
    return re.sub(rf"\$({names})\b", lambda found: f"cast(null as {types[found[1]]})", text)


def _filled(connection: Any, text: str, seen: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the fields of structs before and after casts that fill them."""
    query = f"select (\n{text}\n) from {', '.join(quoted(side, 'duckdb') for side in seen)}"
    one_query(connection, query)  # the functions that a plan would call
    ((document,),) = connection.execute("select json_serialize_plan(?::varchar)", [query]).fetchall()
    for node in _nodes(json.loads(document)):
        if node.get("type") == "OPERATOR_CAST":
            child = node["child"] if "child" in node else (node.get("children") or [{}])[0]
            kind = child.get("return_type") or (child.get("value") or {}).get("type")
            yield from _added(kind or {}, node.get("return_type") or {})


def _nodes(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        yield found
        found = list(found.values())
    for inner in found if isinstance(found, list) else ():
        yield from _nodes(inner)


def _added(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[list[str], list[str]]]:
    if before.get("id") != after.get("id"):
        return
    there, here = (one.get("type_info") or {} for one in (before, after))
    if before.get("id") == "STRUCT":
        olds, news = ({one["first"]: one["second"] for one in info["child_types"]} for info in (there, here))
        known = {fold_ascii(name): kind for name, kind in olds.items()}
        if any(fold_ascii(name) not in known for name in news):
            yield list(olds), list(news)
        for name, kind in news.items():
            yield from _added(known.get(fold_ascii(name), {}), kind)
    elif "child_type" in there and "child_type" in here:
        # Of a map, a struct of its key and value.
        yield from _added(there["child_type"], here["child_type"])


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
