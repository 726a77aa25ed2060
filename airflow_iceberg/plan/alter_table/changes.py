"""From a list of changes to the one commit that makes them.

Not here: the words of a change (`words`), the table between two states (`evolution`), and the commit (`commit`).

A change whose result exists already is no change: the column to add exists, or the column to drop or rename was dropped
or renamed before. For a whole list only its mark tells that it was made (`applied`): it may undo its own steps (rename
`a` to `b`, add a new `a`), and that it leads from an earlier state to this one does not prove that it did, since
another list may have led there, such as its mirror image. It only excuses a list that cannot be made any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import islice, product

from airflow_iceberg.errors import AlreadyExistsError, IcebergError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AddSchema, Change
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.plan.alter_table.evolution import Evolution
from airflow_iceberg.plan.alter_table.words import COLUMN_CHANGES, Changes, Step, read_changes

# Most earlier states that are tried.
_MOST_STATES = 200
# Most schemas that are compared with each other.
_MOST_SCHEMAS = 50


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
    steps, result = read_changes(changes), Evolution(metadata)
    try:
        for step in steps:
            step(result)
    except (NotFoundError, AlreadyExistsError):
        # It cannot be made, and its result is there: perhaps another program has made it.
        if may_be_made(metadata, changes):
            return Change()
        raise
    return result.change(new_uuid)


class Repetition(Enum):
    """What a list of changes does to its own result."""

    HARMLESS = auto()
    """Nothing, even if the table has forgotten its earlier schemas and partition specs."""
    RECOGNIZED = auto()
    """Nothing, as long as the table remembers them; afterwards it fails or changes something."""
    REFUSED = auto()
    """It fails, or changes other things than columns."""
    UNDOES = auto()
    """It changes columns: values are lost, or columns exchanged."""


def on_repetition(result: TableMetadata, changes: Changes) -> Repetition:
    """Tell what a list of changes would do to a table that it has just changed."""
    steps = read_changes(changes)
    forgotten = replace(result, schemas=(result.schema(),), partition_specs=(result.spec(),))
    found = [_repeated(metadata, steps) for metadata in (forgotten, result)]
    if any(change is not None and any(isinstance(one, AddSchema) for one in change.updates) for change in found):
        return Repetition.UNDOES
    is_nothing = [change is not None and not change.updates for change in found]
    if all(is_nothing):
        return Repetition.HARMLESS
    return Repetition.RECOGNIZED if is_nothing[1] else Repetition.REFUSED


def was_never_made(metadata: TableMetadata, changes: Changes) -> bool:
    """Tell whether the table has all its schemas, and no commit of the list can have led from one to another.

    Without a key or a mark this is the only proof; False means that nothing is known.
    """
    schemas = metadata.schemas
    is_complete = sorted(schema.schema_id for schema in schemas) == list(range(len(schemas)))
    knows_all = is_complete and max(schema.highest_field_id for schema in schemas) == metadata.last_column_id
    if not knows_all or len(schemas) == 1:
        return knows_all
    # Why other changes fail on an old schema may be the partitioning of today.
    if len(schemas) > _MOST_SCHEMAS or any(COLUMN_CHANGES.isdisjoint(change) for change in changes):
        return False
    steps = read_changes(changes)
    return not any(_leads_to_another(metadata, steps, start) for start in schemas)


def _leads_to_another(metadata: TableMetadata, steps: Sequence[Step], start: Schema) -> bool:
    result = Evolution(metadata, schema=start)
    try:
        for step in steps:
            step(result)
    except IcebergError:
        return False
    return any(result.has_schema(metadata, other) for other in metadata.schemas if other is not start)


def _repeated(metadata: TableMetadata, steps: Sequence[Step]) -> Change | None:
    """Return the change that the steps make, None if they fail."""
    again = Evolution(metadata)
    try:
        for step in steps:
            step(again)
        return again.change(None)
    except IcebergError:
        return None


def may_be_made(metadata: TableMetadata, changes: Changes) -> bool:
    """Tell whether the list turns some earlier state of the table into the current one: then it may have done that."""
    steps = read_changes(changes)
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
