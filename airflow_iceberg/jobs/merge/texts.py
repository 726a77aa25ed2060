"""What the job of a merge asks of its SQL texts.

The driver of a job on a cluster may have a Python without sqlglot, which reads SQL (`expressions.clause_names`). Names
were checked before, where Airflow runs, as far as the columns of the source were known, and Spark resolves them itself.
There a text that is not read is taken for one that needs everything. Not here: the query (`sql`, `scoped_sql`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.expressions.merge_clauses import MergeClause

_QUERY = re.compile(r"\b(?:from|join|table)\b", re.IGNORECASE)


def _is_readable() -> bool:
    """Whether there is sqlglot, which is heavy, and not everywhere."""
    return find_spec("sqlglot") is not None


def check_names(
    clauses: Sequence[MergeClause],
    *,
    on: str | None,
    target: Sequence[str],
    source: Sequence[str] | None,
    others: Collection[str],
    dialect: str,
) -> None:
    """Check the names in the SQL, as `clause_names.check_names`; without sqlglot the engine does it."""
    if _is_readable():
        from airflow_iceberg.expressions import clause_names

        clause_names.check_names(clauses, on=on, target=target, source=source, others=others, dialect=dialect)


def reads_table(texts: Sequence[str], name: str, *, dialect: str) -> bool:
    """Whether a subquery in a text may read a side as a table."""
    if not _is_readable():
        return any(_QUERY.search(text) for text in texts)
    from airflow_iceberg.expressions import clause_names

    return clause_names.reads_table(texts, name, dialect=dialect)


def without_stars(text: str, columns: Mapping[str, Sequence[str]], *, dialect: str) -> str:
    """Return a text with columns in the place of its stars.

    Raises:
        UnsupportedError: it may have a star, and sqlglot is not installed here.
    """
    if "*" not in text:
        return text
    if not _is_readable():
        raise UnsupportedError(
            f"the SQL {text.strip()!r} of a merge or an update may have a star, which sqlglot replaces by columns, and "
            f"the Python of the job's driver does not have it; install it there: pip install sqlglot"
        )
    from airflow_iceberg.expressions import clause_names

    return clause_names.without_stars(text, columns, dialect=dialect)
