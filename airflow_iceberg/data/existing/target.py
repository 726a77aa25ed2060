"""The table that existing files join, and the ranges of their columns: the values that the modules here share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from airflow_iceberg.data.write.metrics import LeafColumn, MetricsConfig, leaf_columns
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.name_mapping import MappedField, names_by_id, read_name_mapping
from airflow_iceberg.format.schemas.schema import Schema


class UnfitFileError(InvalidInputError):
    """Readers of the table may misread the file as it is; its rows may be right rows of the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingFile:
    """A file that is to join a table.

    Attributes:
        location: as it will be in the table's metadata.
        folders: the names and values of the folders `name=value` that it lies in, decoded.
        size_bytes: its length; None if it was not listed.
    """

    location: str
    folders: Mapping[str, str]
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnRange:
    """What a footer tells of a column in a whole file.

    Attributes:
        values: the number of values, with nulls and NaN.
        nulls: None if it is not known.
        lower, upper: canonical values of the table's type that no other value of the file exceeds; None for none.
    """

    values: int
    nulls: int | None
    lower: t.Value = None
    upper: t.Value = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """The state of a table that files are checked against.

    Attributes:
        spec: the partition spec that the files get.
        name_mapping: the JSON document that gives ids to files without them.
        schemas: all schemas of the table, which have the names that columns once had.
    """

    schema: Schema
    spec: PartitionSpec
    metrics: MetricsConfig
    name_mapping: str
    format_version: int
    schemas: tuple[Schema, ...] = ()

    @cached_property
    def columns(self) -> tuple[LeafColumn, ...]:
        """The columns without fields of their own."""
        return leaf_columns(self.schema)

    @cached_property
    def partition_sources(self) -> frozenset[int]:
        """The ids of the columns that partition values are made from."""
        return frozenset(field.source_id for field in self.spec.fields)

    @cached_property
    def required(self) -> frozenset[int]:
        """The ids of the columns that are never null."""
        return frozenset(field.id for field in self.schema.fields if field.required)

    @cached_property
    def _mapping(self) -> tuple[MappedField, ...]:
        return read_name_mapping(TableProperties.name_mapping.name, self.name_mapping)

    @cached_property
    def names(self) -> Mapping[int, frozenset[str]]:
        """All names of each column by its id: those that it has or had, and those of the name mapping."""
        found: dict[int, set[str]] = {}
        for schema in (self.schema, *self.schemas):
            for field in schema.fields_by_id.values():
                found.setdefault(field.id, set()).add(field.name)
        for field_id, names in names_by_id(self._mapping):
            found.setdefault(field_id, set()).update(names)
        return {field_id: frozenset(names) for field_id, names in found.items()}
