"""`SchemaChangeCondition`: a table has another schema than a known one, or has certain columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_iceberg.format.types import PrimitiveType
from airflow_iceberg.plan.conditions.decision import Decision, Facts

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.schemas.schema import Schema

MOST_COLUMNS = 1_000
"""How many columns of each kind a result names."""
_LONGEST = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaChangeCondition:
    """The current schema has changed.

    Attributes:
        after_schema_id: the id of the known schema; None if any schema is new.
        after_table_uuid: the table that has it; every schema of another table of the same name is new. None if unknown.
        columns: names that the schema must have, nested ones with dots.
    """

    after_schema_id: int | None = None
    after_table_uuid: str | None = None
    columns: tuple[str, ...] = ()

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        which = f"a schema with {', '.join(self.columns)}" if self.columns else "a schema"
        return which if self.after_schema_id is None else f"{which} that is not schema {self.after_schema_id}"

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the current schema."""
        schema = metadata.schema()
        names = {schema.find_name(field_id) for field_id in schema.fields_by_id}
        missing = [name for name in self.columns if name not in names]
        has = f"schema {schema.schema_id} is the current one" + (f", without {', '.join(missing)}" if missing else "")
        is_same = self.after_table_uuid in (None, metadata.table_uuid)
        if missing or (is_same and schema.schema_id == self.after_schema_id):
            return Decision(has=has)
        known = metadata.schemas if is_same else ()
        before = next((each for each in known if each.schema_id == self.after_schema_id), None)
        result: dict[str, Any] = {
            "table_uuid": metadata.table_uuid,
            "schema_id": schema.schema_id,
            "previous_schema_id": self.after_schema_id,
        }
        return Decision(result={**result, **_changes(before, schema)}, has=has)


def _changes(before: Schema | None, now: Schema) -> dict[str, Any]:
    """Return the columns that were added, removed, and changed in name, type or nullability.

    Where there are more than are named, `cut` says how many there are of each such kind.
    """
    if before is None:
        return {"added_columns": None, "removed_columns": None, "changed_columns": None}
    old, new = before.fields_by_id, now.fields_by_id
    kinds = {
        "added_columns": (now, [i for i in new if i not in old]),
        "removed_columns": (before, [i for i in old if i not in new]),
        "changed_columns": (now, [i for i in old if i in new and _shape(before, i) != _shape(now, i)]),
    }
    cut = {kind: len(ids) for kind, (_, ids) in kinds.items() if len(ids) > MOST_COLUMNS}
    return {**{kind: _named(*found) for kind, found in kinds.items()}, **({"cut": cut} if cut else {})}


def _named(schema: Schema, ids: Iterable[int]) -> list[str]:
    """Return the names of columns; the result is stored in Airflow's database, and so no more than a person reads."""
    return [str(schema.find_name(i))[:_LONGEST] for i in islice(ids, MOST_COLUMNS)]


def _shape(schema: Schema, field_id: int) -> tuple[object, ...]:
    found = schema.fields_by_id[field_id]
    # What is nested is compared by its own ids.
    kind = str(found.type) if isinstance(found.type, PrimitiveType) else type(found.type).__name__
    return schema.find_name(field_id), kind, found.required
