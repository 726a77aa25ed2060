"""The name mapping of a table: which names the columns of files without field ids have.

Here: reading and checking the document. Not here: which columns of a file it names (`data.read.file_fields`), and what
becomes of it when columns change (`plan.alter_table.properties`).

Spec: Name Mapping Serialization.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.json_fields import MAX_INT, Fields, unique

_WHAT_TO_DO = "correct the property, or remove it if all files have field ids"


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedField:
    """The names of one column.

    Attributes:
        field_id: None for names that stand for no column.
        names: all names that the column has in files; none of them stands for another column of the same struct.
        fields: the columns of a struct, the element of a list, or key and value of a map.
    """

    field_id: int | None
    names: tuple[str, ...]
    fields: tuple[MappedField, ...] = ()


def read_name_mapping(name: str, text: str) -> tuple[MappedField, ...]:
    """Read a name mapping.

    Args:
        name: the property that has it, for errors.

    Raises:
        FormatError: it is no JSON, has another form than that of the specification, is nested too deeply, or has a name
            that stands for several columns of a struct.
    """
    try:
        document = json.loads(text, parse_constant=_no_number, object_pairs_hook=unique)
        return _fields(Fields({"mapping": document}), "mapping")
    except (ValueError, RecursionError, FormatError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FormatError(f"malformed name mapping in property '{name}': {what}; {_WHAT_TO_DO}") from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _fields(parent: Fields, key: str) -> tuple[MappedField, ...]:
    found = tuple(_field(item) for item in parent.items(key))
    places: dict[str, str] = {}
    for index, field in enumerate(found):
        place = f"{parent.place(key)}[{index}]"
        for name in field.names:
            if places.setdefault(name, place) != place:
                ids = next(each.field_id for each in found if name in each.names), field.field_id
                parent.fail(key, f"name '{name}' stands for field ids {_shown(ids[0])} and {_shown(ids[1])}")
    return found


def _field(item: Fields) -> MappedField:
    field_id = item.opt_int("field-id")
    if field_id is not None and not 0 <= field_id <= MAX_INT:
        item.fail("field-id", f"unexpected number {field_id} (expected the id of a column, 0 to {MAX_INT})")
    return MappedField(
        field_id=field_id,
        names=item.str_list("names") if "names" in item else (),
        fields=_fields(item, "fields") if "fields" in item else (),
    )


def _shown(field_id: int | None) -> str:
    return "none" if field_id is None else str(field_id)


def names_by_id(fields: Iterable[MappedField]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the ids of a mapping with their names, at every depth."""
    for field in fields:
        if field.field_id is not None:
            yield field.field_id, field.names
        yield from names_by_id(field.fields)
