"""What a merge, an update, or a delete by any SQL has to do; the SQL stays as its author wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_iceberg.expressions.merge_clauses import MergeClause
from airflow_iceberg.format.partitions.spec import PartitionSpec, with_sources
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import StructType
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.document import Document
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings, check_mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause(MergeClause, Document):
    """A clause of a merge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeTask(Document):
    """Change rows of the table, and add rows, as clauses say of the rows that a source matches.

    Attributes:
        spec: the partition spec of new files.
        specs: all partition specs of the table; `schemas` are all of its schemas, the current one first.
        name_mapping: the table's property `schema.name-mapping.default`.
        target: the table at the snapshot that is changed; its columns are those that the SQL needs.
        mode: one of DELETE_MODES.
        source: the source of rows; None for an update or a delete, whose rows are those of the table alone.
        on: the condition by which rows match; None without a source.
        keys: the columns of the table that it compares with one of the source; `source_keys` are those, in this order.
        is_unique: whether a null or repeated key of the source is an error.
        dialect: the dialect of all SQL, as of a source.
        sql_params: the values of placeholders in the SQL, in their JSON form.
    """

    kind: ClassVar[str] = "merge"

    write: WriteSettings
    spec: PartitionSpec
    specs: tuple[PartitionSpec, ...]
    schemas: tuple[Schema, ...]
    target: PinnedTable
    mode: str
    clauses: tuple[Clause, ...]
    name_mapping: str | None = None
    source: Source | None = None
    inputs: tuple[PinnedTable, ...] = ()
    on: str | None = None
    keys: tuple[str, ...] = ()
    source_keys: tuple[str, ...] = ()
    is_unique: bool = False
    dialect: str = "spark"
    sql_params: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_mode(self.mode)

    @property
    def partition_types(self) -> dict[int, StructType]:
        """The types of partition tuples, by spec."""
        return {spec.spec_id: spec.partition_type(with_sources(spec, self.schemas)) for spec in self.specs}

    @property
    def sql_args(self) -> dict[str, Any]:
        """The values of the placeholders."""
        return {name: sql_params.from_json(name, value) for name, value in (self.sql_params or {}).items()}
