"""Which queries are understood: each node of the text, with each of its arguments, is named here.

    statement = understood("select id from orders where day > '2026-01-01'", dialect="spark")

A node that is not named may read what no name says: rows as values, columns by number or by pattern, another order of
joins. A query that has one proves nothing. So does a text that engines may cut into other words than sqlglot does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from airflow_iceberg.expressions.queries.functions import CLASSES, NAMES

# A word that means the same with quotes and without, also where quoted names are patterns for Spark.
_PLAIN = re.compile(r"\w+")
# What engines may take for another word, by their version or a setting: quotes after a backslash, a comment that goes
# on in the next line, or has another one inside, templates and variables in the text. And pipes, whose steps sqlglot
# puts into one SELECT, in which their order is lost.
_UNCLEAR = re.compile(r"\\['\"`\r\n]|\{[#{%]|\$\{|/\*(?:(?!\*/).)*/\*|\|>", re.DOTALL)
_SELECT = "with from expressions joins where group having qualify windows distinct order limit offset"
_COMPARISON = "this expression"
_SETS = "with this expression distinct order limit offset"
# The names of nodes, and their arguments.
_NODES: Mapping[str, frozenset[str]] = {
    name: frozenset(arguments.split())
    for names, arguments in {
        "Select": f"{_SELECT} sort cluster distribute",
        "Union Except Intersect": _SETS,
        "Subquery": "with this alias order limit offset",
        "With": "expressions recursive",
        "CTE": "this alias materialized",
        "From Where Having Qualify Paren Not Neg IgnoreNulls RespectNulls DataTypeParam": "this",
        "Table": "this db catalog alias",
        "TableAlias": "this columns",
        "Join": "this side kind on using",
        "Group": "expressions rollup cube grouping_sets all",
        "Rollup Cube GroupingSets Tuple Distinct Sort Cluster Distribute": "expressions",
        "Order": "this expressions",
        "Ordered": "this desc nulls_first",
        "Limit Offset": "expression",
        "Alias": "this alias",
        "Column": "this table db catalog",
        "Identifier": "this quoted",
        "Star Null": "",
        "Literal": "this is_string",
        "Boolean Var Placeholder": "this",
        "And Or Xor EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is": _COMPARISON,
        "Like ILike": f"{_COMPARISON} negate",
        "Escape Filter WithinGroup PropertyEQ": _COMPARISON,
        "Add Sub Mul IntDiv Mod DPipe": f"{_COMPARISON} safe",
        "Div": f"{_COMPARISON} typed safe",
        "In": "this expressions query negate",
        "Between": "this low high negate",
        "Exists": _COMPARISON,
        "Cast TryCast": "this to safe requires_string",
        "DataType": "this expressions nested",
        "Case": "this ifs default",
        "Interval": "this unit",
        "Bracket": "this expressions offset safe",
        "Slice": _COMPARISON,
        "Dot": _COMPARISON,
        "Lambda": "this expressions colon",
        "JSONPath": "expressions",
        "JSONPathRoot": "",
        "JSONPathKey JSONPathSubscript": "this",
        "Window": "this partition_by order spec alias over first",
        "WindowSpec": "kind start start_side end end_side exclude",
    }.items()
    for name in names.split()
}
_QUERIES = (sql.Select, sql.Union, sql.Except, sql.Intersect, sql.Subquery)
# The side and the kind of joins. NATURAL joins by columns that are not named; ASOF and POSITIONAL by other rows.
JOINS = frozenset(
    [("", ""), ("", "INNER"), ("", "CROSS"), ("", "SEMI"), ("", "ANTI"), ("", "OUTER")]
    + [(side, kind) for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")]
    + [("LEFT", "SEMI"), ("LEFT", "ANTI")]
)


def parsed(text: str, *, dialect: str) -> sql.Query | None:
    """Return the one query of a text; None if it is none that sqlglot reads."""
    try:
        statements = sqlglot.parse(text, read=dialect)
    except (SqlglotError, RecursionError, LookupError, ValueError):  # the last two for `map(x)` and `date_trunc()`
        return None
    return statements[0] if len(statements) == 1 and isinstance(statements[0], sql.Query) else None


def understood(text: str, *, dialect: str) -> sql.Query | None:
    """Return a query of which each part is named here; None for another one."""
    if _UNCLEAR.search(text) or (dialect == "spark" and _is_cut_otherwise(text)):
        return None
    found = parsed(text, dialect=dialect)
    if found is None:
        return None
    for select in found.find_all(sql.Select):
        select.set("hint", None)  # it changes how a query runs, and not its rows
    return found if all(map(_is_named, found.walk())) else None


def used(node: sql.Expression) -> dict[str, object]:
    """Return the arguments that a node has; versions of sqlglot differ in `from` and `from_`."""
    return {name.rstrip("_"): value for name, value in node.args.items() if value}


def argument(node: sql.Expression, name: str) -> sql.Expression | None:
    """Return what a node has for an argument."""
    found = used(node).get(name)
    return found if isinstance(found, sql.Expression) else None


def joins_of(select: sql.Expression) -> list[sql.Join]:
    """Return the joins of a SELECT, from left to right."""
    found: list[sql.Join] = select.args.get("joins") or []
    return found


def kind_of(join: sql.Join) -> tuple[str, str]:
    """Return the side and the kind of a join."""
    return str(join.side or "").upper(), str(join.kind or "").upper()


def _is_cut_otherwise(text: str) -> bool:
    """Whether Spark may read words in another way than sqlglot.

    A setting says whether double quotes make a text or a name. `(table orders)` is a query, and for sqlglot an alias.
    """
    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except SqlglotError:
        return True
    return any(text[one.start : one.start + 1] == '"' or one.token_type is TokenType.TABLE for one in tokens)


def _is_named(node: sql.Expression) -> bool:
    name = type(node).__name__
    if name in _NODES:
        return used(node).keys() <= _NODES[name] and _is_in_place(node)
    if isinstance(node, sql.Anonymous):
        return isinstance(node.this, str) and node.this.lower() in NAMES
    return name in CLASSES


def _is_in_place(node: sql.Expression) -> bool:
    """Whether a node is where, and of what, it is understood."""
    match node:
        case sql.Star():
            return _is_star_of_columns(node)
        case sql.Identifier():
            return isinstance(node.parent, sql.Table) or _PLAIN.fullmatch(node.this) is not None
        case sql.Table():
            # Columns after the alias would count the columns of the table.
            is_plain = isinstance(node.this, sql.Identifier) and isinstance(node.parent, sql.From | sql.Join)
            return is_plain and not (node.args.get("alias") and node.args["alias"].args.get("columns"))
        case sql.From() | sql.Join():
            is_join = isinstance(node, sql.Join)
            is_source = isinstance(node.this, sql.Table | sql.Subquery) and isinstance(node.parent, sql.Select)
            return is_source and (not is_join or kind_of(node) in JOINS)
        case sql.Subquery() | sql.CTE():
            return isinstance(node.this, _QUERIES)  # in brackets there may be joins, too
        case sql.Dot():
            return isinstance(node.expression, sql.Identifier)
    return True


def _is_star_of_columns(star: sql.Star) -> bool:
    """Whether a star stands for columns of the result, as `*` or `t.*`, or counts rows."""
    if isinstance(star.parent, sql.Count):
        return True
    whole = star.parent if isinstance(star.parent, sql.Column) else star
    if whole is not star and used(whole).keys() != {"this", "table"}:
        return False
    return isinstance(whole.parent, sql.Select) and whole.arg_key == "expressions"
