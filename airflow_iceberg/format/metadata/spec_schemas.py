"""The schemas of a table's partition specs: each is worked out once, of all schemas of the table.

Not here: which schema that is (`partitions.spec`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_iceberg.format.partitions.spec import PartitionSpec, with_sources
from airflow_iceberg.format.schemas.schema import Schema

# What belongs to a spec is looked for in all schemas.
_MOST_SOURCES_TIMES_SCHEMAS = 4_000_000
# Of schemas that are made for specs whose columns were dropped.
_MOST_FIELDS = 300_000


class SchemasOfSpecs:
    """The schemas of specs, by their ids; those that were made for a spec are kept up to a number of fields."""

    def __init__(self) -> None:
        self._known: dict[int, Schema] = {}
        self._left = _MOST_FIELDS

    def get(self, spec: PartitionSpec, schemas: Callable[[], Sequence[Schema]]) -> Schema:
        """Return the schema of a spec.

        Args:
            schemas: returns those of the table as of `with_sources`.
        """
        known = self._known.get(spec.spec_id)
        if known is None:
            every = schemas()
            known = with_sources(spec, every)
            self._left -= 0 if any(known is one for one in every) else len(known.fields_by_id)
            if self._left >= 0:
                self._known[spec.spec_id] = known
        return known


def excess_work(current: Schema, schemas: Sequence[Schema], specs: Sequence[PartitionSpec]) -> str:
    """Return what makes the schemas of specs take long, or much memory; an empty text if nothing does."""
    sources = [[source for one in spec.fields for source in one.source_ids or (one.source_id,)] for spec in specs]
    if sum(len(some) + 1 for some in sources) * len(schemas) > _MOST_SOURCES_TIMES_SCHEMAS:
        return f"{len(specs)} partition specs and {len(schemas)} schemas"
    lacking = sum(any(source not in current.fields_by_id for source in some) for some in sources)
    if lacking * (len(current.fields_by_id) + len(schemas) + max(map(len, sources), default=0)) > _MOST_FIELDS:
        return f"{lacking} partition specs of columns that were dropped, and {len(current.fields_by_id)} columns"
    return ""
