"""From a list of changes to the one commit that makes them.

Not here: the words of a change (`words`), the table between two states (`evolution`), and how the commit lands
(`commit`).

A list whose result is there already is no change. That is told change by change: a column that is there as it is to be
added, one that was dropped or renamed before. And it is told of the list as a whole, as a list may undo what it did
itself (rename `a` to `b`, add a new `a`): when the list makes of an earlier schema of the table just the current one,
it was made. So a task that is run again finds its work done, without a mark in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.plan.alter_table.evolution import Evolution
from airflow_iceberg.plan.alter_table.words import Changes, Step, read_changes

# How many earlier states are looked through for one that the list has made the current one of.
_MOST_STATES = 200


def evolve(metadata: TableMetadata, changes: Changes, *, new_uuid: str | None = None) -> Change:
    """Return what a list of changes makes of a table; without updates when its result stands already.

    Args:
        new_uuid: for a table of version 1 that has none yet; the caller's dice.
    Raises:
        InvalidInputError: not a change, or one that the specification does not allow.
        NotFoundError: it names a column or partition field that the table does not have.
        AlreadyExistsError: it adds something that is there and is different.
    Spec: Schema Evolution, Partition Evolution; REST protocol, table requirements.
    """
    steps = read_changes(changes)
    if _stands_already(metadata, steps):
        return Change()
    result = Evolution(metadata)
    for step in steps:
        step(result)
    return result.change(new_uuid)


def _stands_already(metadata: TableMetadata, steps: Sequence[Step]) -> bool:
    """Whether the list makes of some earlier state of the table just the current one."""
    schemas = [s for s in reversed(metadata.schemas) if s.schema_id != metadata.current_schema_id]
    specs = [metadata.spec(), *(s for s in reversed(metadata.partition_specs) if s is not metadata.spec())]
    states = product([*schemas, metadata.schema()], specs)
    for schema, spec in islice(states, _MOST_STATES):
        if schema.schema_id == metadata.current_schema_id and spec is metadata.spec():
            continue
        earlier = Evolution(metadata, schema=schema, spec=spec)
        try:
            for step in steps:
                step(earlier)
            if earlier.stands_in(metadata):
                return True
        except IcebergError:
            # The list does not fit that state, so it did not start from it.
            continue
    return False
