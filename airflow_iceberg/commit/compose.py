"""Two changes in one commit: a change of the metadata, and then what an action does to the result.

Here: `Composed`; `with_schema`, which adds the columns of new files to the table; and `with_name_mapping`, which lets
files without field ids be read. Not here: which columns are new (`data.cast.new_columns`), and what is legal
(`plan.alter_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.snapshot_action import MakesSnapshot
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.format.metadata.requirements import AssertTableUUID
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, SetProperties, apply_change
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.plan.alter_table.evolution import Evolution


class Composed(MakesSnapshot):
    """Commits a change of the metadata together with an action, which decides whether the work has landed.

    Args:
        first: returns the change for each base; if it has no updates, the action is committed alone.
        second: the action, which is called with the metadata that the change leads to.
    """

    def __init__(self, first: Callable[[TableMetadata], Change], second: MakesSnapshot) -> None:
        self._first = first
        self._second = second
        self.settings = second.settings

    def __call__(self, metadata: TableMetadata) -> Change:
        first = self._first(metadata)
        if not first.updates:
            return self._second(metadata)
        between = apply_change(metadata, first, now_ms=metadata.last_updated_ms, base_location=None)
        change = self._second(between)
        if not change.updates:
            return change
        # Requirements are about the table as it is, without the uuid that the same commit may assign.
        asked = [
            one
            for one in change.requirements
            if not (one in first.requirements or (metadata.table_uuid is None and isinstance(one, AssertTableUUID)))
        ]
        return Change(updates=(*first.updates, *change.updates), requirements=(*first.requirements, *asked))

    @property
    def made(self) -> Snapshot | None:
        return self._second.made

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        return self._second.landed(metadata)

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        return self._second.has_surely_not_landed(metadata, base)

    def has_left_files(self, metadata: TableMetadata) -> bool:
        return self._second.has_left_files(metadata)

    def succeeded(self, metadata: TableMetadata) -> None:
        self._second.succeeded(metadata)

    def failed(self) -> None:
        self._second.failed()


def with_schema(action: MakesSnapshot, written: Schema) -> Composed:
    """Return the action, with the new columns of its files in the same commit.

    Args:
        written: the schema of the files: the table's schema when it was planned on, with more or wider columns.
    """
    return Composed(partial(_evolve, written=written, new_uuid=str(action.settings.commit_uuid)), action)


def _evolve(metadata: TableMetadata, *, written: Schema, new_uuid: str) -> Change:
    """Return the change that makes the table's schema that of the files.

    Raises:
        StalePlanError: another writer changed the schema meanwhile, so that the ids in the files are of other columns.
    """
    result = Evolution(metadata)
    result.columns.union_by_name(written)
    if result.columns.schema.fields != written.fields:
        raise StalePlanError(
            "the schema of the table was changed while rows with new columns were written; nothing was committed, "
            "re-plan on the latest schema"
        )
    return result.change(new_uuid)


def with_name_mapping(action: MakesSnapshot, mapping: str, *, planned: Schema) -> Composed:
    """Return the action, with a name mapping for its files in the same commit, if the table has none.

    Args:
        mapping: the mapping that the files were checked with.
        planned: the schema that they were checked against.
    """
    change = partial(_map_names, mapping=mapping, planned=planned, new_uuid=str(action.settings.commit_uuid))
    return Composed(change, action)


def _map_names(metadata: TableMetadata, *, mapping: str, planned: Schema, new_uuid: str) -> Change:
    """Return the change that sets the name mapping.

    Raises:
        StalePlanError: another writer changed the schema or the mapping meanwhile, so that a file may not fit any more.
    """
    known = TableProperties.of(metadata.properties).name_mapping
    if not metadata.schema().same_fields(planned) or known not in (None, mapping):
        raise StalePlanError(
            "the schema of the table, or its name mapping, was changed while files were checked against it; nothing "
            "was committed, re-plan on the latest state"
        )
    if known is not None:
        return Change(updates=(), requirements=())
    update = SetProperties(updates={TableProperties.name_mapping.name: mapping})
    return of_this_table(metadata, (update,), (), new_uuid=new_uuid)
