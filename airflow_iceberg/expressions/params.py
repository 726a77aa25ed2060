"""Values for the placeholders of a predicate: ``customer = :customer`` with ``{"customer": "O'Neill"}``.

Here: which values a placeholder takes, and that each value is used. Not here: where a placeholder may stand (`sql`),
what a value means for a column (`literals`). A value takes the place of a literal after the text is parsed, so no value
can change what the predicate asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.literals import MAX_EXPONENT, BoundText

_KINDS = (bool, int, float, Decimal, date, datetime, time, bytes, bytearray, UUID)


class Params:
    """The values of the placeholders of one text, by name; remembers which of them were asked for."""

    def __init__(self, values: Mapping[str, Any] | None, text: str) -> None:
        """Take the values.

        Raises:
            InvalidInputError: they are no mapping.
        """
        self._values = check_params(values)
        self._text = text
        self._used: set[str] = set()

    def value(self, name: str, *, nullable: bool = False) -> Any:
        """Return the value of a placeholder as a literal; raises InvalidInputError if there is none that fits."""
        value = self._given(name)
        if isinstance(value, list | tuple):
            raise InvalidInputError(
                f"predicate_params[{name!r}] is a list, and :{name} is compared with a single value in the filter "
                f"'{self._text}'; write column in (:{name})"
            )
        return None if value is None and nullable else self._literal(name, value)

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of a placeholder in a list of IN: those of its list, or its only one."""
        value = self._given(name)
        if not isinstance(value, list | tuple):
            return (self._literal(name, value),)
        if not value:
            raise InvalidInputError(
                f"predicate_params[{name!r}] is an empty list, with which no IN of SQL can be written; leave the task "
                f"out when there is nothing to select"
            )
        return tuple(self._literal(name, item) for item in value)

    def check_used(self) -> None:
        """Raise InvalidInputError for values without a placeholder."""
        unused = sorted(self._values.keys() - self._used)
        if unused:
            raise InvalidInputError(
                f"predicate_params has {', '.join(map(repr, unused))}, and the filter '{self._text}' has no "
                f"placeholder :{unused[0]}; a placeholder stands without quotes, such as column = :{unused[0]}"
            )

    def _given(self, name: str) -> Any:
        if name not in self._values:
            known = f" (it has {', '.join(sorted(self._values))})" if self._values else ""
            raise InvalidInputError(
                f"the filter '{self._text}' has the placeholder :{name}, and predicate_params has no value for "
                f"it{known}"
            )
        self._used.add(name)
        return self._values[name]

    def _literal(self, name: str, value: Any) -> Any:
        if value is None:
            raise InvalidInputError(
                f"predicate_params[{name!r}] is None, and nothing is equal to null; write 'column is null', or "
                f"'column <=> :{name}', which takes null for a value"
            )
        if hasattr(value, "item") and hasattr(value, "dtype"):
            with suppress(ValueError):  # of an array with several values, which is none of the kinds below
                value = value.item()  # a scalar of numpy
        if isinstance(value, str):
            return _text(name, value)
        if isinstance(value, int) and abs(value) >= 10**MAX_EXPONENT:
            return Decimal(value)  # Python does not write such an int, in a message for example
        if isinstance(value, _KINDS):
            return value
        raise InvalidInputError(
            f"predicate_params[{name!r}] is a {type(value).__name__}, expected text, a number, a truth value, a date, "
            f"a time, bytes, a uuid, or a list of them"
        )


def check_params(values: Any) -> Mapping[str, Any]:
    """Return the values of placeholders by name.

    Raises:
        InvalidInputError: something else than a mapping of names.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise InvalidInputError(
            f"predicate_params are a {type(values).__name__}, expected names with values, such as "
            f"{{'customer': '{{{{ params.customer }}}}'}}"
        )
    return values


def _text(name: str, value: str) -> BoundText:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"predicate_params[{name!r}] is no Unicode text: it has half of a character") from None
    # The characters of a subclass, such as an enum of texts, whatever it prints itself as.
    return BoundText(str.__str__(value))
