"""A table between two states, which a list of changes works on, and the resulting updates.

Not here: the changes of a schema (`format.schemas.evolution`) or a partition spec (`format.partitions.evolution`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.metadata.requirements import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    Requirement,
)
from airflow_iceberg.format.metadata.table_metadata import SUPPORTED_FORMAT_VERSIONS, TableMetadata, check_fits
from airflow_iceberg.format.metadata.updates import (
    AddPartitionSpec,
    AddSchema,
    AddSortOrder,
    AssignUUID,
    Change,
    RemoveProperties,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    Update,
    UpgradeFormatVersion,
)
from airflow_iceberg.format.partitions.evolution import PartitionEvolution, check_column_names, check_partitioning
from airflow_iceberg.format.partitions.spec import PartitionSpec, check_names
from airflow_iceberg.format.schemas.evolution import SchemaEvolution
from airflow_iceberg.format.schemas.evolving_fields import check_lineage_names
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.format.types import IcebergType, PrimitiveType, walk_fields
from airflow_iceberg.plan.alter_table.properties import follow_columns

LINEAGE_VERSION = 3


class Evolution:
    """A table between two states, which a list of changes works on."""

    def __init__(
        self, metadata: TableMetadata, *, schema: Schema | None = None, spec: PartitionSpec | None = None
    ) -> None:
        self._base = metadata
        self._start = schema or metadata.schema()
        self.format_version = metadata.format_version
        self.columns = SchemaEvolution(
            self._start,
            last_column_id=metadata.last_column_id if schema is None else _last_column_id(metadata, schema),
            history=metadata.schemas,
            specs=metadata.partition_specs,
            format_version=metadata.format_version,
        )
        self.partitioning = PartitionEvolution(
            spec or metadata.spec(),
            history=metadata.partition_specs,
            last_partition_id=metadata.last_partition_id,
            format_version=metadata.format_version,
        )
        self.sort_order: SortOrder = metadata.sort_order()
        self.properties = dict(metadata.properties)
        self.location = metadata.location

    @property
    def schema(self) -> Schema:
        """The schema as it is now."""
        return self.columns.schema

    def upgrade(self, version: int) -> None:
        """Raise the format version; later changes may use its features.

        Raises:
            InvalidInputError: the table has a higher one.
            UnsupportedError: the version is unknown.
        """
        if version not in SUPPORTED_FORMAT_VERSIONS:
            raise UnsupportedError(f"format version {version} is not supported (supported: 1, 2, 3)")
        if version < self.format_version:
            raise InvalidInputError(f"the table has format version {self.format_version}, which cannot be decreased")
        self.format_version = self.columns.format_version = self.partitioning.format_version = version

    def change(self, new_uuid: str | None) -> Change:
        """Return the updates of the base, and their requirements."""
        updates, needs = self._updates()
        if not updates:
            return Change()
        uuid = self._base.table_uuid
        if uuid is None:
            first = () if new_uuid is None else (AssignUUID(uuid=new_uuid),)
            return Change(updates=(*first, *updates), requirements=tuple(needs))
        return Change(updates=tuple(updates), requirements=(AssertTableUUID(uuid=uuid), *needs))

    def _updates(self) -> tuple[list[Update], list[Requirement]]:
        base = self._base
        spec, order = self.partitioning.spec, self.sort_order
        updates: list[Update] = []
        needs: list[Requirement] = []
        if self.format_version != base.format_version:
            updates.append(UpgradeFormatVersion(format_version=self.format_version))
        if not self.schema.same_fields(base.schema()):
            updates += [AddSchema(schema=self.schema), SetCurrentSchema()]
            needs.append(AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id))
            needs.append(AssertCurrentSchemaId(current_schema_id=base.current_schema_id))
        if not spec.same_fields(base.spec()):
            updates += [AddPartitionSpec(spec=spec), SetDefaultSpec()]
            needs.append(AssertLastAssignedPartitionId(last_assigned_partition_id=base.last_partition_id))
            needs.append(AssertDefaultSpecId(default_spec_id=base.default_spec_id))
        if not order.same_fields(base.sort_order()):
            updates += [AddSortOrder(sort_order=order), SetDefaultSortOrder()]
            needs.append(AssertDefaultSortOrderId(default_sort_order_id=base.default_sort_order_id))
        if updates:
            self._check_fits(spec, order)
        return [*updates, *self._property_updates()], needs

    def _check_fits(self, spec: PartitionSpec, order: SortOrder) -> None:
        check_partitioning(spec, self._base.schema(), self.schema)
        check_column_names([*self._base.partition_specs, spec], self._base.schema(), self.schema)
        if not spec.same_fields(self._base.spec()):
            check_names(spec.fields, self.schema)
        for key in order.fields:
            if key.source_id not in self.schema.fields_by_id:
                raise InvalidInputError(
                    f"column '{self._base.schema().find_name(key.source_id)}' cannot be dropped: the table is sorted "
                    f"by it; replace the sort order first"
                )
        check_fits(self.schema, spec, order, self.format_version)
        if self._base.format_version < LINEAGE_VERSION <= self.format_version:
            check_lineage_names(self.schema)

    def _property_updates(self) -> Iterator[Update]:
        after = follow_columns(self.properties, self._start, self.schema)
        before = self._base.properties
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        removed = tuple(name for name in before if name not in after)
        if self.location != self._base.location:
            yield SetLocation(location=self.location)
        if changed:
            yield SetProperties(updates=changed)
        if removed:
            yield RemoveProperties(removals=removed)

    def equals(self, metadata: TableMetadata) -> bool:
        """Whether this equals a table, except for the ids of columns that were added since the start."""
        known = _last_column_id(metadata, self._start)
        return (
            self.format_version == metadata.format_version
            and self.has_schema(metadata, metadata.schema())
            and self._same_partitioning(metadata, known)
            and self.sort_order.same_fields(metadata.sort_order())
            and self.location == metadata.location
            and all(metadata.properties.get(name) == value for name, value in self.properties.items())
            and self.properties.keys() >= metadata.properties.keys()
        )

    def has_schema(self, metadata: TableMetadata, schema: Schema) -> bool:
        """Whether the schema equals one of the table, except for the ids of columns that were added since the start."""
        known = _last_column_id(metadata, self._start)
        same_columns = _masked(self.schema, known) == _masked(schema, known)
        return same_columns and set(self.schema.identifier_field_ids) == set(schema.identifier_field_ids)

    def _same_partitioning(self, metadata: TableMetadata, known: int) -> bool:
        """Compare new columns by name: their ids are different each time."""

        def described(spec: PartitionSpec, schema: Schema) -> list[Any]:
            sources = [
                [i if i <= known else schema.find_name(i) for i in field.source_ids or (field.source_id,)]
                for field in spec.fields
            ]
            return [(field.name, field.transform, of) for field, of in zip(spec.fields, sources, strict=True)]

        return described(self.partitioning.spec, self.schema) == described(metadata.spec(), metadata.schema())


def _last_column_id(metadata: TableMetadata, schema: Schema) -> int:
    """Return the highest id that the table had assigned when a schema was new."""
    upto = (s for s in metadata.schemas if s.schema_id <= schema.schema_id)
    return max((s.highest_field_id for s in upto), default=0)


def _masked(schema: Schema, known: int) -> list[tuple[Any, ...]]:
    """Return the contents of a schema, with 0 for the ids of newer columns."""
    return [
        (
            *(schema.find_name(f.id), f.id if f.id <= known else 0, _kind(f.type)),
            *(f.required, f.doc, f.initial_default, f.write_default),
        )
        for f in walk_fields(schema.fields)
    ]


def _kind(type_: IcebergType) -> Any:
    """Return a primitive type itself and the kind of a nested one, whose fields are compared one by one."""
    return type_ if isinstance(type_, PrimitiveType) else type(type_)
