"""Transforms of columns as users write them: ``day(ts)``, ``bucket(16, id)``, a column alone.

Shared by partition specs and sort orders.
"""

import re
from collections.abc import Mapping

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import unquote
from airflow_iceberg.format.transforms.transform import (
    PLAIN_TRANSFORMS,
    BucketTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
)
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.format.values.digits import whole_number

# Spark's plurals, and its older names `date` and `date_hour`.
_ALIASES: Mapping[str, str] = {
    **{f"{unit}s": unit for unit in ("year", "month", "day", "hour")},
    "date": "day",
    "date_hour": "hour",
}
_WITH_NUMBER: Mapping[str, type[BucketTransform] | type[TruncateTransform]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_ALLOWED = "identity, bucket(N, column), truncate(W, column), year, month, day, hour, void"

_CALL = re.compile(r"(\w+)\s*(?:\[\s*(\d+)\s*\])?\s*\((.*)\)", re.DOTALL)


def parse_term(text: str, schema: Schema) -> tuple[Transform, NestedField]:
    """Return the transform and the column of a term.

    Raises:
        InvalidInputError: not a term, or an unknown transform; the message lists the allowed ones.
        NotFoundError: no such column; the message lists the columns.
    """
    text = text.strip()
    call = _CALL.fullmatch(text)
    if text in schema.names or not call:
        return IdentityTransform(), schema.find_field(unquote(text))
    name, bracketed, inner = call[1].lower(), call[2], call[3]
    if name in _WITH_NUMBER:
        number, column = _number_and_column(text, bracketed, inner)
        return _WITH_NUMBER[name](number), schema.find_field(column)
    transform = PLAIN_TRANSFORMS.get(_ALIASES.get(name, name))
    if transform is None:
        raise InvalidInputError(f"unknown transform '{call[1]}' in '{text}' (allowed: {_ALLOWED})")
    return transform, schema.find_field(unquote(inner))


def _number_and_column(text: str, bracketed: str | None, inner: str) -> tuple[int, str]:
    """Return N and column of ``bucket(N, column)``; ``bucket(column, N)`` and ``bucket[N](column)`` also work."""
    first, _, second = inner.partition(",")
    column, _, last = inner.rpartition(",")
    for digits, name in ((bracketed, inner),) if bracketed else ((first, second), (last, column)):
        number = whole_number(digits.strip())
        if number is not None and name.strip():
            return number, unquote(name)
    raise InvalidInputError(f"expected a number and a column in '{text}', like bucket(16, id) or truncate(4, name)")
