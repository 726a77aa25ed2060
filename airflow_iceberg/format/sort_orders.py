"""Sort orders: how the rows inside a file, or the files of a write, are meant to be sorted.

Not here: the sorting itself (`jobs`, `data`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.partitions.spec import sources_from_dict, sources_to_dict, transform_from_dict
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms.terms import parse_term
from airflow_iceberg.format.transforms.transform import Transform, UnknownTransform
from airflow_iceberg.format.types import PrimitiveType

ASC = "asc"
DESC = "desc"
NULLS_FIRST = "nulls-first"
NULLS_LAST = "nulls-last"
FIRST_SORT_ORDER_ID = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SortField:
    """One key of a sort order.

    Attributes:
        source_id: field id of the source column; of a multi-argument transform the first one.
        transform: the function that is applied to the source before it is compared.
        direction: ``asc`` or ``desc``.
        null_order: ``nulls-first`` or ``nulls-last``.
        source_ids: field ids of all sources of a multi-argument transform (version 3), else None.
    """

    source_id: int
    transform: Transform
    direction: str = ASC
    null_order: str = NULLS_FIRST
    source_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.direction not in (ASC, DESC):
            raise InvalidInputError(f"unknown sort direction '{self.direction}' (expected {ASC} or {DESC})")
        if self.null_order not in (NULLS_FIRST, NULLS_LAST):
            raise InvalidInputError(f"unknown null order '{self.null_order}' (expected {NULLS_FIRST} or {NULLS_LAST})")

    def to_dict(self) -> dict[str, Any]:
        """Return the field as JSON of the metadata, keys in Java's order."""
        sources = sources_to_dict(self.source_id, self.source_ids)
        order = {"direction": self.direction, "null-order": self.null_order}
        return {"transform": str(self.transform), **sources, **order}


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A tuple of sort keys with an id in its table. Id 0 is the unsorted order.

    Raises:
        InvalidInputError: order 0 has fields, or another order has none.
    Spec: Sorting.
    """

    order_id: int = 0
    fields: tuple[SortField, ...] = ()

    def __post_init__(self) -> None:
        if self.order_id == 0 and self.fields:
            raise InvalidInputError("sort order 0 is the unsorted one and has no fields")
        if self.order_id != 0 and not self.fields:
            raise InvalidInputError(f"sort order {self.order_id} has no fields; the unsorted order has the id 0")

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, path: str | None = None, where: str = "sort-order") -> "SortOrder":
        """Read a sort order of metadata JSON.

        Raises:
            FormatError: malformed, or not a legal order.
        """
        fields = Fields(value, where, path)
        try:
            return cls(fields.int("order-id"), tuple(_field_from_dict(item) for item in fields.items("fields")))
        except InvalidInputError as error:
            raise FormatError(f"{error} in '{where}'", path=path) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the order as JSON of the metadata."""
        return {"order-id": self.order_id, "fields": [child.to_dict() for child in self.fields]}

    def same_fields(self, other: "SortOrder") -> bool:
        """Whether two orders have the same fields, whatever their ids."""
        return self.fields == other.fields

    def validate(self, schema: Schema) -> None:
        """Check that rows of a schema can be sorted by the order.

        Raises:
            InvalidInputError: a source column is missing, or a transform is unknown or not for the type of its column.
        """
        for child in self.fields:
            source = schema.fields_by_id.get(child.source_id)
            if isinstance(child.transform, UnknownTransform):
                raise InvalidInputError(f"cannot sort by the unknown transform '{child.transform}'")
            if source is None:
                raise InvalidInputError(f"cannot sort: no column with field id {child.source_id}")
            if not isinstance(source.type, PrimitiveType) or not child.transform.can_transform(source.type):
                name = schema.find_name(source.id)
                raise InvalidInputError(f"cannot sort by {child.transform} of column '{name}' ({source.type})")


UNSORTED = SortOrder()


def _field_from_dict(fields: Fields) -> SortField:
    source_id, source_ids = sources_from_dict(fields)
    return SortField(
        source_id=source_id,
        source_ids=source_ids,
        transform=transform_from_dict(fields, source_ids),
        direction=fields.str("direction").lower(),
        null_order=fields.str("null-order").lower(),
    )


_DIRECTION = re.compile(r"(?<!\s)\s+(asc|desc)(?:ending)?$", re.IGNORECASE)
_NULLS = re.compile(r"(?<!\s)\s+nulls[\s-]+(first|last)$", re.IGNORECASE)


def sort_order_from_shorthand(
    items: Sequence[str | SortField] | SortOrder, schema: Schema, *, order_id: int = FIRST_SORT_ORDER_ID
) -> SortOrder:
    """Return a sort order from terms, such as ``["ts desc", "bucket(4, id) asc nulls last"]``.

    As in Spark and Java, the default direction is ascending; nulls are first when ascending and last when descending.

    Args:
        items: the terms; no term gives the unsorted order.
        schema: schema of the columns that the terms name.
        order_id: id of the new order.
    Raises:
        InvalidInputError: not a term, or a transform that is not for the column.
        NotFoundError: no such column; the message lists the columns.
    """
    if isinstance(items, SortOrder):
        items = items.fields
    if isinstance(items, str):
        raise InvalidInputError(f"expected a list of sort terms, got the text '{items}'")
    if not items:
        return UNSORTED
    fields = tuple(item if isinstance(item, SortField) else _parse_field(item, schema) for item in items)
    order = SortOrder(order_id, fields)
    order.validate(schema)
    return order


def _parse_field(text: str, schema: Schema) -> SortField:
    if not text.strip():
        raise InvalidInputError(f"expected a sort term like 'ts desc', got {text!r}")
    term, nulls = _take(_NULLS, text.strip(), schema)
    term, direction = _take(_DIRECTION, term, schema)
    direction = direction or ASC
    nulls = nulls or ("first" if direction == ASC else "last")
    transform, source = parse_term(term, schema)
    return SortField(source_id=source.id, transform=transform, direction=direction, null_order=f"nulls-{nulls}")


def _take(pattern: re.Pattern[str], text: str, schema: Schema) -> tuple[str, str | None]:
    """Remove a word from the end of a term, unless the whole term is the name of a column, such as 'x desc'."""
    found = None if text in schema.names else pattern.search(text)
    return (text[: found.start()].rstrip(), found[1].lower()) if found else (text, None)
