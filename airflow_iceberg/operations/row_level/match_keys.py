"""By which fields the rows of a merge match: names are resolved here, once, and only ids and paths go on.

Not here: how the source spells its fields (`jobs.merge.source_columns`), which it is asked for when the job runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.errors import NotFoundError
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.merge_clauses import SOURCE, TARGET, field_of, name_parts
from airflow_iceberg.expressions.merge_sql import key_columns
from airflow_iceberg.format.names import Path
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.merge_task import MatchKey


def of_columns(names: Sequence[str], schema: Schema) -> tuple[MatchKey, ...]:
    """Return the keys that names say, `"id"` or `"a.id"`; also those in marks, and in another case if that is clear.

    Raises:
        NotFoundError: the table has no such field.
        InvalidInputError: it is inside a list or a map, or several fields differ by case alone from the name.
    """
    keys = []
    for text in names:
        # A full name of the table is that field, whatever marks, blanks and dots are in it.
        parts = schema.path(schema.names[text]) if text in schema.names else name_parts(text)
        found = schema.find_key(".".join(parts), case_sensitive=False)
        path = schema.path(found.id)
        # The source has the name as it was given: its own spelling, if that is another one than the table's.
        keys.append(MatchKey(field_id=found.id, source=parts if len(parts) == len(path) else path))
    return tuple(keys)


def condition_of(keys: Sequence[MatchKey], schema: Schema, *, dialect: str) -> str:
    """Return the condition that all keys are equal."""
    pairs = (
        (field_of(TARGET, schema.path(key.field_id), dialect=dialect), field_of(SOURCE, key.source, dialect=dialect))
        for key in keys
    )
    return " and ".join(f"{target} = {source}" for target, source in pairs)


def of_condition(condition: str, schema: Schema, *, dialect: str) -> tuple[MatchKey, ...]:
    """Return the keys that a condition compares by `=`; what else it says, the engine knows.

    Raises:
        NotFoundError: a column that the table does not have.
        InvalidInputError: several columns differ by case alone from a name; or values of one cannot be compared.
    """
    keys = []
    for path, source in key_columns(condition, dialect=dialect):
        field_id = _field_id(path, schema)
        if field_id is not None:
            keys.append(MatchKey(field_id=field_id, source=source))
    return tuple(keys)


def _field_id(path: Path, schema: Schema) -> int | None:
    """Return the id of a column or a field of structs; None if only the engine knows what is below the column."""
    try:
        found = schema.find_field(".".join(path), case_sensitive=False)
    except NotFoundError:
        if len(path) == 1:
            raise
        return None  # `m.key` may be a value of a map
    fields = column_path(schema, found.id)
    schema.check_comparable(found)
    return found.id if fields is not None and len(fields) == len(path) else None
