"""What an audit checks: values, as the author of a DAG writes them. Nothing heavy is imported here.

    audits = [NoRows("select * from audited where amount < 0"), RowCount(min=1), NullShare("customer")]

Numbers may be text, since a template gives text. Not here: how an audit is decided (`operations.wap.measures`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import timedelta
from typing import Any

from airflow_iceberg.errors import InvalidInputError

AUDITED, MAIN = "audited", "main"
"""The names under which SQL reads the audited snapshot, and the branch main."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A check of one snapshot. Each audit has a `name` for the report; by default it says what is checked."""

    @property
    def label(self) -> str:
        """The name of the audit in the report."""
        return getattr(self, "name", None) or self.text

    @property
    def text(self) -> str:
        """What is checked, as the author has written it."""
        given = [f"{item.name}={value!r}" for item in fields(self) if (value := getattr(self, item.name)) is not None]
        return f"{type(self).__name__}({', '.join(given)})"

    def serialize(self) -> str:
        """Return the form that Airflow stores and shows."""
        return self.text


@dataclass(frozen=True, slots=True)
class NoRows(Audit):
    """A query that must return no row; the rows that it returns are the offending ones.

    Attributes:
        sql: a query in the SQL of DuckDB over `audited`, the rows of the audited snapshot, `main`, those of main, and
            the inputs of the audit.
        params: the values of the query's placeholders by name: `{"day": "2026-01-01"}` for `day = $day`.
        name: the name of the audit in the report; by default it says what is checked.
    """

    sql: str
    _: KW_ONLY
    params: Mapping[str, Any] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not str(self.sql or "").strip():
            raise InvalidInputError(
                f"NoRows has the query {self.sql!r}, expected SQL such as 'select * from audited …'"
            )

    @property
    def text(self) -> str:
        return f"NoRows({' '.join(self.sql.split())!r})"


@dataclass(frozen=True, slots=True)
class RowCount(Audit):
    """The number of rows is in a range; both ends are included.

    Attributes:
        row_filter: a predicate in SQL; only rows that satisfy it are counted.
        predicate_params: the values of the predicate's placeholders, `:name`, by name.
        min, max: the smallest and the largest number; None for no limit.
        name: the name of the audit in the report; by default it says what is checked.
    """

    _: KW_ONLY
    min: int | str | None = None
    max: int | str | None = None
    row_filter: str | None = None
    predicate_params: Mapping[str, Any] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _need_an_end(self, self.min, self.max)


@dataclass(frozen=True, slots=True)
class RowCountChange(Audit):
    """The number of rows has changed, compared with main, by a share in a range: -0.1 is a tenth less.

    If main has no rows, any number of new rows is above every `max`.

    Attributes:
        min, max: the smallest and the largest share; None for no limit.
        name: the name of the audit in the report; by default it says what is checked.
    """

    _: KW_ONLY
    min: float | str | None = None
    max: float | str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _need_an_end(self, self.min, self.max)


@dataclass(frozen=True, slots=True)
class NullShare(Audit):
    """At most this share of the rows has null in a column; 0 by default.

    Attributes:
        column: the name of the column.
        max: the largest share, from 0 to 1.
        name: the name of the audit in the report; by default it says what is checked.
    """

    column: str
    _: KW_ONLY
    max: float | str = 0.0
    name: str | None = None


@dataclass(frozen=True, slots=True)
class UniqueShare(Audit):
    """At least this share of keys is unique: the number of different keys by that of rows with a key; 1 by default.

    A row with null in one of the columns has no key.

    Attributes:
        columns: the columns that make a key, or the only one.
        min: the smallest share, from 0 to 1.
        name: the name of the audit in the report; by default it says what is checked.
    """

    columns: Sequence[str] | str
    _: KW_ONLY
    min: float | str = 1.0
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.keys:
            raise InvalidInputError("UniqueShare has no column, expected one or more")

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns."""
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)


@dataclass(frozen=True, slots=True)
class Freshness(Audit):
    """The newest value of a column of times or dates is at most this old; times without a time zone are in UTC.

    Attributes:
        column: the name of the column.
        max_age: how old its newest value may be.
        name: the name of the audit in the report; by default it says what is checked.
    """

    column: str
    _: KW_ONLY
    max_age: timedelta
    name: str | None = None

    def __post_init__(self) -> None:
        max_age: object = self.max_age
        if not isinstance(max_age, timedelta) or max_age < timedelta(0):
            raise InvalidInputError(
                f"Freshness has the max_age {self.max_age!r}, expected a timedelta that is not negative"
            )


@dataclass(frozen=True, slots=True)
class SchemaUnchanged(Audit):
    """The columns are those that the table had when the branch was made, or those of main's last snapshot.

    Attributes:
        name: the name of the audit in the report; by default it says what is checked.
    """

    _: KW_ONLY
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PythonAudit(Audit):
    """A function of the scan of the audited snapshot (`TableScan`), which runs in the process of the task.

    It returns True or None if the audit has passed; False, a text that says what is wrong, or the offending rows as a
    list of dictionaries or as an Arrow table or reader, if it has not.

    Attributes:
        function: the function, or its name, "package.module:function".
        op_kwargs: further arguments of the function.
        name: the name of the audit in the report; by default it says what is checked.
    """

    function: str | Callable[..., Any]
    _: KW_ONLY
    op_kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            module, colon, function = self.function.partition(":")
            if not (colon and module.strip() and function.strip()):
                raise InvalidInputError(
                    f"PythonAudit has the function {self.function!r}, expected 'package.module:function'"
                )
        elif not callable(self.function):
            raise InvalidInputError(f"PythonAudit has the function {self.function!r}, expected a function or its name")

    @property
    def text(self) -> str:
        function = self.function
        return f"PythonAudit({function if isinstance(function, str) else getattr(function, '__qualname__', function)})"


def checked_audits(audits: Sequence[Any] | Any) -> tuple[Audit, ...]:
    """Return audits, checked to be some.

    Raises:
        InvalidInputError: none, or something that is no audit.
    """
    found = (audits,) if isinstance(audits, Audit) else tuple(audits or ())
    wrong = [one for one in found if not isinstance(one, Audit)]
    if wrong or not found:
        what = repr(wrong[0]) if wrong else "none"
        raise InvalidInputError(f"audits has {what}, expected audits such as NoRows('select …') or RowCount(min=1)")
    return found


def _need_an_end(audit: Audit, *ends: object) -> None:
    if all(end is None for end in ends):
        raise InvalidInputError(f"{type(audit).__name__} has neither min nor max, so that it can never fail")
