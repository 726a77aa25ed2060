"""From a list of changes to the one commit that makes them.

Not here: the words of a change (`words`), the table between two states (`evolution`), and the commit (`commit`).

A list whose result exists already is no change. This is checked for each change: the column to add exists, or the
column to drop or rename was dropped or renamed before. It is also checked for the whole list, since a list may undo its
own steps (rename `a` to `b`, add a new `a`): if the list turns an earlier schema of the table into the current one, it
was applied. So a task that runs again finds its work done, without a mark in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change
from airflow_iceberg.plan.alter_table.evolution import Evolution
from airflow_iceberg.plan.alter_table.words import Changes, Step, read_changes

# Most earlier states that are tried.
_MOST_STATES = 200


def evolve(metadata: TableMetadata, changes: Changes, *, new_uuid: str | None = None) -> Change:
    """Return the commit that makes a list of changes; without updates if its result exists already.

    Args:
        new_uuid: a random UUID, for a table of version 1 without one.
    Raises:
        InvalidInputError: not a change, or one that the specification does not allow.
        NotFoundError: it names a column or partition field that the table does not have.
        AlreadyExistsError: it adds something that exists and is different.
    Spec: Schema Evolution, Partition Evolution; REST protocol, table requirements.
    """
    steps = read_changes(changes)
    if _is_applied(metadata, steps):
        return Change()
    result = Evolution(metadata)
    for step in steps:
        step(result)
    return result.change(new_uuid)


def _is_applied(metadata: TableMetadata, steps: Sequence[Step]) -> bool:
    """Tell whether the list turns some earlier state of the table into the current one."""
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
            if earlier.equals(metadata):
                return True
        except IcebergError:  # the list does not fit this state, so it did not start from it
            continue
    return False
