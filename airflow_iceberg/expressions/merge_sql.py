"""The clauses of a merge, in SQL's own words: cut into conditions and expressions, which an engine evaluates later.

    parse_clauses("when matched and source.op = 'd' then delete when not matched then insert *", dialect="spark")

The text of each condition and expression stays as its author wrote it: only the words between them are read. Imports
sqlglot. Not here: which rows match (`jobs.merge`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.clause_names import names_its_columns, parsed
from airflow_iceberg.expressions.merge_clauses import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    SOURCE,
    TARGET,
    UPDATE,
    MergeClause,
    quoted,
)
from airflow_iceberg.expressions.queries.names import lost_words
from airflow_iceberg.format.names import Path, fold

_IN_MARKS = {TokenType.STRING, TokenType.IDENTIFIER}
_MARKED = re.compile(r"[.`\"]|^\s|\s$")
"""What a name has that is no bare one."""
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def parse_clauses(text: Any, *, dialect: str) -> tuple[MergeClause, ...]:
    """Return the clauses of a merge.

    Args:
        dialect: the SQL of the conditions and expressions, "spark" or "duckdb".

    Raises:
        InvalidInputError: not clauses of a merge; a clause that can never apply, because one before it takes all rows.
    """
    clauses = tuple(_Clauses(text, dialect).read()) if isinstance(text, str) else ()
    if not clauses:
        raise InvalidInputError("a merge has no clause, expected e.g. 'when matched then update set *'")
    _check_reachable(clauses)
    return clauses


def update_clause(values: Any, *, where: str | None = None) -> MergeClause:
    """Return the clause of an update.

    Args:
        values: the columns that are set, with their expressions.

    Raises:
        InvalidInputError: no column, an empty expression, or a column twice.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError("an update sets no column, expected e.g. {'status': \"'done'\"}")
    for name, value in values.items():
        if not str(name).strip() or not isinstance(value, str) or not value.strip():
            raise InvalidInputError(
                f"column {name!r} of an update has the value {value!r}, expected an SQL expression, as text: a text "
                f"has quotes of its own, \"'done'\""
            )
    _check_once(list(values), "'set'")
    return MergeClause(
        rows=MATCHED, action=UPDATE, condition=where, columns=tuple(values), expressions=tuple(values.values())
    )


def _check_reachable(clauses: Sequence[MergeClause]) -> None:
    taken: dict[str, int] = {}
    for number, clause in enumerate(clauses, 1):
        if clause.rows in taken:
            raise InvalidInputError(
                f"clause {number} of the merge ('when {clause.rows} …') can never apply: clause {taken[clause.rows]} "
                f"takes all rows that are {clause.rows}; give that one a condition, or put it last"
            )
        if clause.condition is None:
            taken[clause.rows] = number


def _check_once(names: Sequence[str], where: str) -> None:
    # Names that differ by case may be two columns: which ones, the table knows (`assignments`).
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"column {name!r} appears twice in {where} of a merge or an update")
        seen.add(name)


class _Clauses:
    """Reads clauses from left to right."""

    def __init__(self, text: str, dialect: str) -> None:
        self._text = text
        self._dialect = dialect
        try:
            # With its marks, since '' is a text, and a blank may be a name.
            found = sqlglot.tokenize(text, read=dialect)
            self._tokens = [one for one in found if text[one.start : one.end + 1].strip()]
        except SqlglotError as error:
            raise InvalidInputError(f"the clauses of the merge are no SQL: {error}") from error
        self._at = 0

    def read(self) -> Iterator[MergeClause]:
        while self._peek(";"):
            self._at += 1
        while self._at < len(self._tokens):
            yield self._clause()
            while self._peek(";"):
                self._at += 1

    def _clause(self) -> MergeClause:
        self._expect("when")
        is_not = self._take("not")
        self._expect("matched")
        rows = NOT_MATCHED if is_not else MATCHED
        if is_not and self._take("by"):
            if self._take("source"):
                rows = NOT_MATCHED_BY_SOURCE
            else:
                self._expect("target")
        condition = self._expression(("then",)) if self._take("and") else None
        self._expect("then")
        if rows == NOT_MATCHED:
            return self._insert(condition)
        if self._take("delete"):
            return MergeClause(rows=rows, action=DELETE, condition=condition)
        self._expect("update", "delete")
        self._expect("set")
        return self._update(rows, condition)

    def _update(self, rows: str, condition: str | None) -> MergeClause:
        if self._take("*"):
            if rows == NOT_MATCHED_BY_SOURCE:
                self._fail("rows that are not matched by the source have no values of it: name columns and expressions")
            return MergeClause(rows=rows, action=UPDATE, condition=condition, is_star=True)
        names, values = [], []
        while True:
            names.append(self._column())
            self._expect("=")
            values.append(self._expression(("when", ",", ";")))
            if not self._take(","):
                break
        _check_once(names, "'update set'")
        columns, expressions = tuple(names), tuple(values)
        return MergeClause(rows=rows, action=UPDATE, condition=condition, columns=columns, expressions=expressions)

    def _insert(self, condition: str | None) -> MergeClause:
        self._expect("insert")
        if self._take("*"):
            return MergeClause(rows=NOT_MATCHED, action=INSERT, condition=condition, is_star=True)
        self._expect("(")
        names = [self._column()]
        while self._take(","):
            names.append(self._column())
        self._expect(")")
        self._expect("values")
        self._expect("(")
        values = [self._expression((",", ")"))]
        while self._take(","):
            values.append(self._expression((",", ")")))
        self._expect(")")
        if len(names) != len(values):
            self._fail(f"'insert' names {len(names)} columns and has {len(values)} values")
        _check_once(names, "'insert'")
        columns, expressions = tuple(names), tuple(values)
        return MergeClause(
            rows=NOT_MATCHED, action=INSERT, condition=condition, columns=columns, expressions=expressions
        )

    def _column(self) -> str:
        """Return the name of a column of the table, or of a field in it, with or without `target.` before it.

        What is no bare word is in marks, so that it is read again as it is.
        """
        names = [self._name()]
        while self._take("."):
            names.append(self._name())
        return ".".join(quoted(name, "spark") if _MARKED.search(name) else name for name in names)

    def _name(self) -> str:
        token = self._token()
        if token is None or token.token_type in (TokenType.STRING, TokenType.NUMBER):
            self._fail("expected the name of a column")
        if token.token_type is not TokenType.IDENTIFIER and token.text in "(),=*.;":
            self._fail("expected the name of a column")
        self._at += 1
        return str(token.text)

    def _expression(self, ends: tuple[str, ...]) -> str:
        """Return the text up to one of these words, outside of brackets and of `case … end`."""
        first, depth, cases = self._at, 0, 0
        while (token := self._token()) is not None:
            word = token.text.lower()
            if token.token_type not in _IN_MARKS and depth == 0 and cases == 0 and word in ends:
                break
            if token.token_type in _OPENING:
                depth += 1
            elif token.token_type in _CLOSING:
                if depth == 0:
                    self._fail(f"unexpected '{token.text}'")
                depth -= 1
            elif token.token_type is TokenType.CASE:
                cases += 1
            elif token.token_type is TokenType.END:
                cases -= 1
            self._at += 1
        if self._at == first:
            self._fail("an expression is missing")
        if depth or cases:
            self._fail("a bracket or a 'case' is not closed")
        return str(self._text[self._tokens[first].start : self._tokens[self._at - 1].end + 1])

    def _token(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _peek(self, word: str) -> bool:
        token = self._token()
        return token is not None and token.token_type not in _IN_MARKS and token.text.lower() == word

    def _take(self, word: str) -> bool:
        found = self._peek(word)
        self._at += found
        return found

    def _expect(self, *words: str) -> None:
        if not self._take(words[0]):
            self._fail(f"expected {' or '.join(repr(word) for word in words)}")

    def _fail(self, why: str) -> NoReturn:
        token = self._token()
        where = "at the end" if token is None else f"before {self._text[token.start : token.start + 40]!r}"
        raise InvalidInputError(f"the clauses of the merge are not understood {where}: {why}")


# -- what the expressions need -----------------------------------------------------------------------------------------


def columns_needed(expressions: Iterable[str], names: Sequence[str], *, dialect: str) -> tuple[str, ...] | None:
    """Return the columns of the target that expressions may refer to, in the order of `names`; None for all.

    A name means the column that is spelled so, if there is one: then an engine that takes others for the same one does
    not get those.

    Args:
        names: the names of the target's top-level columns.
    """
    used: set[str] = set()
    lost: set[str] = set()
    for text in expressions:
        found = parsed(text, dialect)
        if found is None or found.find(sql.Star) or not names_its_columns(text, (), dialect=dialect):
            return None
        lost |= lost_words(text, found, dialect=dialect)
        for column in found.find_all(sql.Column):
            parts = [part.name for part in column.parts]
            if len(parts) > 1 and parts[0].lower() == SOURCE:
                used.add(SOURCE)  # where the rows have no source, it is a struct of the table
                continue
            # A name without a table may be one of the target, and the first of two a struct.
            used.update(parts[:2])
    lost |= {fold(name) for name in used if name not in names}
    return tuple(name for name in names if name in used or fold(name) in lost)


def key_columns(condition: str, *, dialect: str) -> tuple[tuple[Path, Path], ...]:
    """Return the columns, or fields, that a condition compares by `target.a.x = source.b`; each match satisfies it."""
    found = parsed(condition, dialect)
    if found is None:
        return ()
    parts = found.flatten() if isinstance(found, sql.And) else [found]
    return tuple(pair for part in parts if (pair := _pair(part)) is not None)


def _pair(part: Any) -> tuple[Path, Path] | None:
    while isinstance(part, sql.Paren):
        part = part.this
    if not isinstance(part, sql.EQ):
        return None
    paths = [_path(each) for each in (part.left, part.right)]
    sides = {path[0].lower(): path[1:] for path in paths if len(path) > 1}
    return (sides[TARGET], sides[SOURCE]) if set(sides) == {TARGET, SOURCE} else None


def _path(column: Any) -> Path:
    """Return the names of a column with dots between them; none for anything else."""
    more: list[str] = []
    while isinstance(column, sql.Dot) and isinstance(column.expression, sql.Identifier):
        more.append(column.expression.name)
        column = column.this
    if not isinstance(column, sql.Column) or isinstance(column.this, sql.Star):
        return ()
    return (*(part.name for part in column.parts), *reversed(more))
