"""Which columns a query names, wherever in its text: no other column can change its rows.

A name counts for each table that it can mean. What is needed by a name of the table alone, a row as a value, is all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

import sqlglot
from sqlglot import expressions as sql
from sqlglot.tokens import TokenType

from airflow_iceberg.expressions.queries.grammar import argument, joins_of
from airflow_iceberg.format.names import fold

# The schemas and catalogs in which DuckDB may look for the tables; one of them may have such a name, too.
_SCHEMAS = ("main", "temp", "memory", "system")


def lost_words(text: str, found: sql.Expression, *, dialect: str) -> set[str]:
    """Return the words of a text, folded, that its tree does not have as names; each may be one.

    For sqlglot `current_date` is a function, and no column; `date_trunc(unit, at)` has a unit for its own text; of
    `decode(a, b)` and others it keeps fewer arguments than there are.

    Raises:
        SqlglotError: the text is no SQL.
    """
    tokens = sqlglot.tokenize(text, read=dialect)
    words = Counter(fold(token.text) for token in tokens if token.token_type is not TokenType.STRING)
    return set(words - Counter(fold(name.name) for name in found.find_all(sql.Identifier)))


class Names:
    """The names in a query that is understood.

    Args:
        lost: the words of its text that may be names, besides those of the statement; folded.
        columns: the columns of the known tables, by the tables' names; all folded.
        others: the names of tables that the query may read besides, folded.
        is_open: whether the engine has further tables.
    """

    def __init__(
        self,
        statement: sql.Query,
        lost: Iterable[str],
        columns: Mapping[str, Collection[str]],
        others: Collection[str],
        *,
        is_open: bool,
    ) -> None:
        self._columns = columns
        # By aliases, or names without one: the known tables that are called so somewhere in the text.
        self.tables: dict[str, set[str]] = defaultdict(set)
        # What the text itself calls so: its columns, fields, and the parameters of its functions.
        self.defined: set[str] = set()
        self._named: dict[str, set[str]] = {name: set() for name in columns}
        self._as_rows: set[str] = set()
        self._is_clear = True
        self._has_others = False
        self._see_tables(statement, others, is_open=is_open)
        self._see_definitions(statement)
        for node in statement.find_all(sql.Column, sql.Identifier, sql.Star):
            self._see(node)
        for name in lost:
            self._see_name(name)

    def of(self, name: str) -> set[str] | None:
        """Return the columns of a table that the query names; None for all, also of a row as a value."""
        return self._named[name] if self._is_clear and name not in self._as_rows else None

    @property
    def is_clear(self) -> bool:
        """Whether each name is that of something, and none is that of two tables."""
        return self._is_clear

    def columns_of(self, source: sql.Expression) -> Collection[str]:
        """Return the columns of a source that is a known table."""
        return self._columns.get(fold(source.name), ()) if isinstance(source, sql.Table) else ()

    def is_column(self, name: str) -> bool:
        """Whether a known table has a column of a name."""
        return any(name in columns for columns in self._columns.values())

    def _see_tables(self, statement: sql.Query, others: Collection[str], *, is_open: bool) -> None:
        ctes = {fold(cte.alias) for cte in statement.find_all(sql.CTE)}
        self._is_clear &= not ctes & self._columns.keys()
        for table in statement.find_all(sql.Table):
            name, is_known = fold(table.name), fold(table.name) in self._columns
            self._has_others |= name in others
            if table.db:  # an engine has other names for the known tables, too
                self._is_clear &= is_open and not is_known and name not in ctes
            else:
                self._is_clear &= is_open or is_known or name in ctes or name in others
            self.tables[fold(table.alias_or_name)] |= {name} if is_known else set()
        for alias in (found.alias for found in statement.find_all(sql.CTE, sql.Subquery) if found.alias):
            self.tables[fold(alias)] |= set()

    def _see_definitions(self, statement: sql.Query) -> None:
        found: list[sql.Identifier] = [
            *(alias.args["alias"] for alias in statement.find_all(sql.Alias)),
            *(name for alias in statement.find_all(sql.TableAlias) for name in alias.args.get("columns") or ()),
            *(name for function in statement.find_all(sql.Lambda) for name in function.expressions),
            *(dot.expression for dot in statement.find_all(sql.Dot)),
            # The last part of `who.name` is the name of a column of the result.
            *(column.this for column in statement.find_all(sql.Column) if len(column.parts) > 1),
        ]
        self.defined = {fold(name.name) for name in found if not isinstance(name, sql.Star)}

    def _see(self, node: sql.Expression) -> None:
        match node:
            case sql.Column():
                self._see_column(node)
            case sql.Star() if isinstance(node.parent, sql.Select):
                self._name_all(table for table, _ in sources(node.parent))
            case sql.Identifier() if not _is_given(node):
                # The columns of USING, fields, and parameters, which may have the name of a column.
                self._see_name(fold(node.name))

    def _see_column(self, column: sql.Column) -> None:
        first, *more = (fold(part.name) for part in column.parts)
        is_star = isinstance(column.this, sql.Star)
        if not more:
            if not is_star:
                self._is_clear &= self._see_name(first)
            return
        is_known = self._see_field(first)
        # A schema may be before the name of a table, also of one whose row is the value.
        if first in _SCHEMAS:
            self._as_rows |= self.tables.get(more[-1], set())
        for table, name in pairwise([first, *more]):
            if table in self.tables:
                is_known |= self._see_qualified(table, None if is_star and name == more[-1] else name)
        self._is_clear &= is_known

    def _see_qualified(self, table: str, name: str | None) -> bool:
        """Take a name after that of a table for its column; return whether there may be one.

        Args:
            name: None for all columns.
        """
        called = self.tables[table]
        found = {each for each in called if name is None or name in self._columns[each]}
        for each in found:
            self._named[each] |= set(self._columns[each]) if name is None else {name}
        # A column that none of the tables has is one that the engine knows, or an error.
        return bool(found) or not called

    def _see_name(self, name: str) -> bool:
        """Take a name for all that it can mean; return whether there is anything."""
        self._as_rows |= self.tables.get(name, set())
        return self._see_field(name) or name in self.tables

    def _see_field(self, name: str) -> bool:
        """Take a name for a column; return whether there may be one."""
        found = [named for table, named in self._named.items() if name in self._columns[table]]
        for named in found:
            named.add(name)
        return bool(found) or name in self.defined or self._has_others

    def _name_all(self, tables: Iterator[sql.Expression]) -> None:
        for name in (fold(table.name) for table in tables if isinstance(table, sql.Table)):
            self._named.get(name, set()).update(self._columns.get(name, ()))


def _is_given(name: sql.Identifier) -> bool:
    """Whether a name is one that the query gives, or a part of a column's."""
    is_alias = isinstance(name.parent, sql.Alias) and name.arg_key == "alias"
    return is_alias or isinstance(name.parent, sql.Column | sql.Table | sql.TableAlias)


def sources(select: sql.Expression) -> Iterator[tuple[sql.Expression, sql.Join | None]]:
    """Yield what a SELECT reads itself, tables and queries, and the join that it is in."""
    first = argument(select, "from")
    if first is not None:
        yield first.this, None
    for join in joins_of(select):
        yield join.this, join
