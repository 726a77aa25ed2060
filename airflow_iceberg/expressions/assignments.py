"""Assignments of a merge or an update as ones of whole columns: `set st.a = 5` gives column `st` a new struct.

Not here: how assignments are read (`merge_sql`), and the query that evaluates them (`jobs.merge.sql`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.merge_clauses import INSERT, TARGET, MergeClause, column_name, name_parts, quoted
from airflow_iceberg.format.names import spelled
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField, StructType

# What SQL calls the types whose defaults are written as `cast('…' as …)`.
_SPARK = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
_DUCKDB = {"long": "bigint", "timestamptz": "timestamp with time zone", "string": "varchar"}
_OTHERS = ("boolean", "int", "float", "double", "string", "date", "timestamp")


@dataclass(slots=True)
class _Node:
    """What is set in a column or a field: an expression, or fields of it by name."""

    expression: str | None = None
    fields: dict[str, _Node] = field(default_factory=dict)


def whole_columns(clauses: Iterable[MergeClause], schema: Schema, *, dialect: str) -> tuple[MergeClause, ...]:
    """Return clauses whose assignments are those of whole columns, in the table's own spelling.

    A struct that is null becomes one whose other fields are null, as in Iceberg Java.

    Args:
        schema: the table's; with the defaults of its columns where the table's version has them.

    Raises:
        InvalidInputError: a column or field that the table does not have; one that is set twice.
    """
    return tuple(clause if clause.is_star else _Assignments(clause, schema, dialect).clause() for clause in clauses)


class _Assignments:
    def __init__(self, clause: MergeClause, schema: Schema, dialect: str) -> None:
        self._clause, self._schema, self._dialect = clause, schema, dialect

    def clause(self) -> MergeClause:
        nodes: dict[str, _Node] = {}
        for name, text in zip(self._clause.columns, self._clause.expressions, strict=True):
            path = self._path(name)
            text = self._value(path[-1], text)
            siblings = nodes
            for item in path[:-1]:
                node = siblings.setdefault(item.name, _Node())
                siblings = self._open(node, name).fields
            if path[-1].name in siblings:
                self._fail_twice(name)
            siblings[path[-1].name] = _Node(expression=text)
        expressions = tuple(self._text(self._schema.find_field(name), node, TARGET) for name, node in nodes.items())
        return replace(self._clause, columns=tuple(nodes), expressions=expressions)

    def _open(self, node: _Node, name: str) -> _Node:
        if node.expression is not None:
            self._fail_twice(name)
        return node

    def _path(self, name: str) -> list[NestedField]:
        """Return the column, or the column and the fields within it."""
        column = _named(self._schema.fields, name if self._has(name) else column_name(name))
        if column is not None:
            return [column]
        # A full name of the table is that field, whatever marks and blanks are in it.
        parts = self._schema.path(self._schema.names[name]) if name in self._schema.names else name_parts(name)
        found = self._fields(parts)
        if len(parts) > 1 and parts[0].lower() == TARGET:
            of_side = self._fields(parts[1:])
            if found is not None and of_side is not None:
                raise InvalidInputError(
                    f"column {name!r} of '{self._clause.action}' may be {'.'.join(parts[1:])!r} of the table or a "
                    f"field of its column {found[0].name!r}: write {'.'.join((TARGET, *parts))!r}, or "
                    f"{'.'.join(parts[1:])!r}"
                )
            found = of_side if found is None else found
        if found is None:
            columns = ", ".join(one.name for one in self._schema.fields)
            raise InvalidInputError(
                f"column {name!r} of '{self._clause.action}' is not in the table, which has {columns}"
            )
        return found

    def _has(self, column: str) -> bool:
        return any(one.name == column for one in self._schema.fields)

    def _fields(self, parts: Sequence[str]) -> list[NestedField] | None:
        """Return the column and the fields within it that names say; None if the table has no such, or none to set."""
        found: list[NestedField] = []
        fields: tuple[NestedField, ...] = self._schema.fields
        for part in parts:
            item = _named(fields, part)
            if item is None or (found and self._clause.action == INSERT):
                return None
            found.append(item)
            fields = item.type.fields if isinstance(item.type, StructType) else ()
        return found

    def _value(self, item: NestedField, text: str) -> str:
        """Return an expression; the word `default` is no expression of a query."""
        if text.strip().lower() != "default":
            return text
        if item.write_default is None:
            return "null"
        kinds: Mapping[str, str] = _SPARK if self._dialect == "spark" else _DUCKDB
        kind, value = str(item.type), item.write_default
        if kind.startswith("decimal") or kind in kinds or kind in _OTHERS:
            return f"cast({_text_literal(_shown(value), self._dialect)} as {kinds.get(kind, kind)})"
        raise UnsupportedError(
            f"column {item.name!r} ({kind}) is set to its default by the word 'default': write the value instead"
        )

    def _text(self, item: NestedField, node: _Node, parent: str) -> str:
        if node.expression is not None:
            return node.expression
        assert isinstance(item.type, StructType)
        known = f"{parent}.{quoted(item.name, self._dialect)}"
        values = []
        for one in item.type.fields:
            inner = node.fields.get(one.name)
            value = f"{known}.{quoted(one.name, self._dialect)}" if inner is None else self._text(one, inner, known)
            values.append(self._named_value(one.name, f"(\n{value}\n)"))
        return f"{'named_struct' if self._dialect == 'spark' else 'struct_pack'}({', '.join(values)})"

    def _named_value(self, name: str, value: str) -> str:
        if self._dialect == "spark":
            return f"{_text_literal(name, self._dialect)}, {value}"
        return f"{quoted(name, self._dialect)} := {value}"

    def _fail_twice(self, name: str) -> None:
        raise InvalidInputError(f"column {name!r} is set twice by '{self._clause.action}': as a whole, or in part")


def _named(fields: Iterable[NestedField], name: str) -> NestedField | None:
    """Return the field of a name; one of another case if there is none of this, and one of that."""
    known = {one.name: one for one in fields}
    found = spelled(name, known, where="the table")
    return None if found is None else known[found]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text_literal(text: str, dialect: str) -> str:
    if dialect == "spark":
        text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + (text if dialect == "spark" else text.replace("'", "''")) + "'"
