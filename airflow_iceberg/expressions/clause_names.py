"""What the SQL of a merge or an update sees: which side of a merge, which columns, and nothing of our own.

    check_names(clauses, on=on, target=columns, source=None, dialect="spark")

A row that matches has a row of both sides; one that does not has a row of one side only, and a name of the other one is
an error, as in Spark. Here: what the text proves. What it does not prove the engine decides, which sees no more of the
sides (`jobs.merge.sql`). Imports sqlglot. Not here: the words of clauses (`merge_sql`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import (
    SOURCE,
    TARGET,
    MergeClause,
    quoted,
    sides_of,
)
from airflow_iceberg.format.names import fold

# Nodes that name each column whose value they use. Others may use columns that the text does not name.
_PLAIN = (
    *(sql.Column, sql.Identifier, sql.Literal, sql.Boolean, sql.Null, sql.Placeholder, sql.Var, sql.Interval),
    *(sql.Paren, sql.Connector, sql.Not, sql.Neg, sql.Predicate, sql.Tuple, sql.Escape, sql.Distinct),
    *(sql.Add, sql.Sub, sql.Mul, sql.Div, sql.Mod, sql.IntDiv, sql.DPipe),
    *(sql.Case, sql.Func, sql.DataType, sql.DataTypeParam, sql.PropertyEQ, sql.Bracket, sql.Lambda),
    *(sql.Subquery, sql.Select, sql.SetOperation, sql.From, sql.Join, sql.Where, sql.Group, sql.Having, sql.Order),
    *(sql.Ordered, sql.Limit, sql.Table, sql.TableAlias, sql.Alias, sql.With, sql.CTE, sql.Star),
)
# Functions that make names of values, or expand what they are given.
_NAMING = ("identifier", "columns", "unpack")
_EXCEPT = ("except", "exclude")
# Functions that make rows of a value, and what they are called; sqlglot has one name for two of them.
_GENERATORS = {name: name for name in ("explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer")}
_GENERATORS |= {name: name for name in ("stack", "json_tuple", "generate_subscripts", "variant_explode")}
_GENERATORS |= {"explode": "explode or unnest", "unnest": "explode or unnest"}


def parsed(text: str, dialect: str) -> Any:
    """Return an expression or a condition as a tree; None if it is not understood."""
    try:
        query: Any = sqlglot.parse_one(f"select * from t where (\n{text}\n)", read=dialect)
        return query.args["where"].this.unnest().pop()
    except (SqlglotError, RecursionError, AttributeError, LookupError, ValueError):
        return None


# -- which names a clause may have -------------------------------------------------------------------------------------


def check_names(
    clauses: Sequence[MergeClause],
    *,
    on: str | None,
    target: Sequence[str],
    source: Sequence[str] | None,
    others: Collection[str] = (),
    dialect: str,
) -> None:
    """Check that no name of a clause is of a side that its rows do not have, and none has two meanings.

    Args:
        on: the condition by which rows match; None for an update or a delete, where only `target` exists.
        target: the columns of the table.
        source: the columns of the source; None if they are not known yet.
        others: columns of the tables that subqueries read.

    Raises:
        InvalidInputError: such a name; a column that a side does not have; what is not one value of one row.
    """
    names = _Names({TARGET: target, SOURCE: source}, {name.lower() for name in others}, dialect)
    if on is not None:
        check_one_row(on, dialect=dialect)
        # A column of `on` that a side does not have is told of where the keys are looked up.
        replace(names, is_known=False).check(on, (TARGET, SOURCE), "the condition of the match")
    for number, clause in enumerate(clauses, 1):
        sides = (TARGET,) if on is None else sides_of(clause.rows)
        where = f"the {clause.action}" if on is None else f"clause {number}, 'when {clause.rows} …'"
        for text in (clause.condition, *clause.expressions):
            if text is not None:
                check_one_row(text, dialect=dialect)
                names.check(text, sides, where)


@dataclass(frozen=True, slots=True)
class _Names:
    columns: Mapping[str, Sequence[str] | None]
    others: set[str]
    dialect: str
    is_known: bool = True

    def check(self, text: str, sides: Sequence[str], where: str) -> None:
        found = parsed(text, self.dialect)
        if found is None:
            return  # the engine says so
        parameters = {name.name.lower() for each in found.find_all(sql.Lambda) for name in each.expressions}
        # `[x + 1 for x, i in list]`
        loops = [each.args for each in found.find_all(sql.Comprehension)]
        parameters |= {each[of].name.lower() for each in loops for of in ("expression", "position") if each.get(of)}
        for column in found.find_all(sql.Column):
            parts = [part.name for part in column.parts]
            if parts[0].lower() not in parameters and not self._is_of_subquery(column, parts):
                self._check(parts, sides, where)

    def _is_of_subquery(self, column: Any, parts: Sequence[str]) -> bool:
        """Whether a name is, or may be, one of a table that a subquery reads."""
        first, aliases = parts[0].lower(), list(_aliases(column))
        return any(first in each for each in aliases) or (bool(aliases) and (len(parts) == 1 or first in self.others))

    def _check(self, parts: Sequence[str], sides: Sequence[str], where: str) -> None:
        first, name = parts[0].lower(), ".".join(parts)
        having = [side for side in sides if self._has(side, first)]
        if len(parts) > 1 and first in sides:
            # Unless it is a field: a struct may have the name of a side.
            known = self.columns[first]
            if (
                self.is_known
                and known is not None
                and not having
                and parts[1] != "*"
                and not self._has(first, parts[1])
            ):
                raise InvalidInputError(f"column '{name}' in {where} is not in the {first}: it has {', '.join(known)}")
        elif len(having) > 1:
            raise InvalidInputError(
                f"column '{name}' in {where} is one of both sides: write {TARGET}.{name} or {SOURCE}.{name}"
            )
        elif having or first in sides:
            return
        elif first in (TARGET, SOURCE):
            raise InvalidInputError(f"column '{name}' is not known in {where}: {_reason(first, sides, where)}")
        elif all(self.columns[side] is not None for side in sides):
            other = next((side for side in (TARGET, SOURCE) if side not in sides and self._has(side, first)), None)
            if other is not None:
                raise InvalidInputError(
                    f"column '{name}' is not known in {where}, it is one of the {other}: {_reason(other, sides, where)}"
                )

    def _has(self, side: str, name: str) -> bool:
        return any(each.lower() == name.lower() for each in self.columns[side] or ())


def _reason(side: str, sides: Sequence[str], where: str) -> str:
    if where.startswith("the "):
        return f"there is no {side}, only {TARGET}, the table itself"
    return f"no row of the {side} matches, so that only columns of the {sides[0]} can be used"


def _aliases(column: Any) -> Iterator[set[str]]:
    """Yield the names of the tables of each subquery around a column."""
    node = column.parent
    while node is not None:
        if isinstance(node, sql.Select):
            given = [node.args.get("from_") or node.args.get("from")]
            given += [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]
            tables = [each.this if isinstance(each, sql.From | sql.Join) else each for each in given if each]
            if tables:
                yield {str(each.alias_or_name).lower() for each in tables}
        node = node.parent


# -- what a text uses --------------------------------------------------------------------------------------------------


def names_its_columns(text: str, columns: Collection[str], *, dialect: str) -> bool:
    """Whether it is proved that a text uses only columns that it names: no star, pattern, number, or row as a value.

    Args:
        columns: the columns of the sides that it sees; such a name is no row.
    """
    found = parsed(text, dialect)
    known = {name.lower() for name in columns}
    return found is not None and all(_is_plain(node, known) for node in found.walk())


def _is_plain(node: Any, columns: set[str]) -> bool:
    if isinstance(node, sql.Dot | sql.Columns) or not isinstance(node, _PLAIN):
        return False
    if isinstance(node, sql.Star):
        return node.find_ancestor(sql.Select) is not None
    if isinstance(node, sql.Anonymous):
        return str(node.this).lower() not in _NAMING
    if isinstance(node, sql.Column) and len(node.parts) == 1:
        return node.name.lower() not in (TARGET, SOURCE) or node.name.lower() in columns
    return True


def has_subquery(text: str, *, dialect: str) -> bool:
    """Whether there may be a subquery in a text."""
    found = parsed(text, dialect)
    return found is None or found.find(sql.Query) is not None


def check_one_row(text: str, *, dialect: str) -> None:
    """Raise InvalidInputError for a text that makes one value of several rows, or rows of one value.

    A clause sees one row at a time. An engine would take it in our query, over the rows that the query reads.
    """
    found = parsed(text, dialect)
    for node in () if found is None else found.find_all(sql.Func, sql.Window):
        if node.find_ancestor(sql.Select) is not None:
            continue
        name = "over" if isinstance(node, sql.Window) else _function_name(node)
        if isinstance(node, sql.AggFunc | sql.Window):
            raise InvalidInputError(
                f"{name}(…) makes one value of several rows, and a clause sees one row at a time: write it "
                f"as a subquery, (select … from …), over an input"
            )
        if name in _GENERATORS:
            raise InvalidInputError(
                f"{_GENERATORS[name]}(…) makes several rows of one, and a clause has one value for each column: write "
                f"it in the query of the source"
            )


def _function_name(function: Any) -> str:
    return str(function.name if isinstance(function, sql.Anonymous) else function.sql_name()).lower()


def tables_read(texts: Iterable[str], *, dialect: str) -> set[str] | None:
    """Return the names of the tables that subqueries in texts read, in small letters; None if that is not known."""
    found = [_tables(text, dialect) for text in texts]
    return None if None in found else set[str]().union(*(each or () for each in found))


def reads_table(texts: Iterable[str], name: str, *, dialect: str) -> bool:
    """Whether a subquery in one of the texts may read a table of a name."""
    return any(_reads_table(text, name, dialect) for text in texts)


def _reads_table(text: str, name: str, dialect: str) -> bool:
    found = _tables(text, dialect)
    return name in (text.lower() if found is None else found)


def _tables(text: str, dialect: str) -> set[str] | None:
    found = parsed(text, dialect)
    if found is None:
        return None
    return {table.name.lower() for table in found.find_all(sql.Table)} | set(_whole_tables(text, dialect))


def _whole_tables(text: str, dialect: str) -> Iterator[str]:
    """Yield the names in `(table feed)`, a query of Spark's that sqlglot takes for a name and its alias."""
    tokens = sqlglot.tokenize(text, read=dialect)
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.TABLE:
            # The last part of a name with dots.
            names = [each.text.lower() for each in tokens[at + 1 : at + 6]]
            yield from names[:1]
            yield from (name for dot, name in zip(names[1::2], names[2::2], strict=False) if dot == ".")


# -- stars -------------------------------------------------------------------------------------------------------------


def without_stars(text: str, columns: Mapping[str, Sequence[str]], *, dialect: str) -> str:
    """Return a text with the names of columns instead of each star; those of subqueries stay if they are of its tables.

    Args:
        columns: the columns of each side that the text sees, in the order of a star.

    Raises:
        InvalidInputError: a star that leaves out something else than columns.
    """
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
    except SqlglotError:
        return text  # the engine says so
    made, end = "", 0
    for at, queries in _stars(tokens):
        star = _Star(tokens, at)
        side = star.qualifier
        if side is not None and side.lower() not in columns:
            continue  # the fields of a struct
        if queries and (side is None or any(_names_table(tokens, query, side.lower()) for query in queries)):
            continue
        sides = [side.lower()] if side is not None else list(columns)
        names = [
            f"{each}.{quoted(name, dialect)}" for each in sides for name in _without(columns[each], star.left_out())
        ]
        made += text[end : star.start] + ", ".join(names)
        end = star.end
    return made + text[end:]


def _without(names: Sequence[str], left_out: Collection[str]) -> Iterator[str]:
    """Yield the names that are not left out: of two that differ by case alone, the one that is spelled so is."""
    folded = {fold(name) for name in left_out if name not in names}
    yield from (name for name in names if name not in left_out and fold(name) not in folded)


def _stars(tokens: Sequence[Token]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the positions of stars that are no products, and where the subqueries around them begin."""
    brackets: list[int] = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.token_type is TokenType.L_PAREN:
            brackets.append(at)
        elif token.token_type is TokenType.R_PAREN and brackets:
            brackets.pop()
        elif token.token_type is TokenType.STAR:
            is_last = following is None or following.token_type in (TokenType.R_PAREN, TokenType.COMMA)
            is_qualified = at > 0 and tokens[at - 1].token_type is TokenType.DOT
            if is_last or is_qualified or (following is not None and following.text.lower() in _EXCEPT):
                yield at, [bracket for bracket in brackets if _is_query(tokens, bracket)]


def _is_query(tokens: Sequence[Token], bracket: int) -> bool:
    """Whether a subquery is in the bracket that is opened here."""
    return bracket + 1 < len(tokens) and tokens[bracket + 1].token_type in (
        *(TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.TABLE),
    )


def _names_table(tokens: Sequence[Token], query: int, name: str) -> bool:
    """Whether a subquery itself, and none within it, may read something by a name: it stands there without a column."""
    inner: list[bool] = []
    for at in range(query + 1, len(tokens)):
        token = tokens[at]
        if token.token_type is TokenType.L_PAREN:
            inner.append(_is_query(tokens, at))
        elif token.token_type is TokenType.R_PAREN:
            if not inner:
                break
            inner.pop()
        elif not any(inner) and token.text.lower() == name and token.token_type is not TokenType.STRING:
            if at + 1 == len(tokens) or tokens[at + 1].token_type is not TokenType.DOT:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Star:
    """A star among tokens: `*`, `side.*`, `* except (a, b)`."""

    tokens: Sequence[Token]
    at: int

    @property
    def qualifier(self) -> str | None:
        """What stands before its dot, as it is written; None without a dot."""
        if self.at < 2 or self.tokens[self.at - 1].token_type is not TokenType.DOT:
            return None
        is_longer = self.at >= 4 and self.tokens[self.at - 3].token_type is TokenType.DOT
        return "." if is_longer else str(self.tokens[self.at - 2].text)

    @property
    def start(self) -> int:
        return int(self.tokens[self.at if self.qualifier is None else self.at - 2].start)

    @property
    def end(self) -> int:
        return int(self.tokens[self._last].end) + 1

    @property
    def _last(self) -> int:
        return self.at + len(self._exception)

    @property
    def _exception(self) -> Sequence[Token]:
        rest = self.tokens[self.at + 1 :]
        if not rest or rest[0].text.lower() not in _EXCEPT:
            return ()
        ends = [number for number, token in enumerate(rest) if token.token_type is TokenType.R_PAREN]
        return rest[: ends[0] + 1] if ends else rest

    def left_out(self) -> set[str]:
        """Return the names that it leaves out."""
        found = [token.text for token in self._exception]
        names, between = found[2:-1:2], found[3:-1:2]
        if found and (not names or set(between) - {","} or len(names) != len(between) + 1):
            raise InvalidInputError(
                f"'* {' '.join(found)}' leaves out something else than columns: name the columns instead"
            )
        return set(names)
