"""What a merge, an update, or a delete by any SQL has to do; the SQL stays as its author wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import MergeClause
from airflow_iceberg.format.partitions.spec import PartitionSpec, with_sources
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import StructType
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.document import Document
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.table_input import TableInput
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings, check_mode
from airflow_iceberg.redaction import hide


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause(MergeClause, Document):
    """A clause of a merge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchKey(Document):
    """A field of the table that is compared with one of the source.

    Attributes:
        field_id: the id of the table's; a column, or a field of structs.
        source: the name of the source's column, and those of fields below it; its own spelling may be another one.
    """

    field_id: int
    source: tuple[str, ...]


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
        keys: what it compares by `=`.
        is_unique: whether a null or repeated key of the source is an error.
        has_only_keys: whether `on` says that all `keys` are equal, and nothing else; and the clauses are those of an
            upsert, which say nothing else, either.
        dialect: the dialect of all SQL, as of a source.
        sql_params: the values of placeholders in the SQL, in their JSON form.
        unchanged: the paths of files of the target that are not read: an overwrite removes them with all their rows.
        new_rows: files that no snapshot has yet, whose rows must all satisfy the condition of the one clause; the first
            schema is theirs. None without such files.
        withheld: SQL that a plan document does not hold, because it has secrets and others can read the document: the
            names of texts, as of `withheld_values`.
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
    keys: tuple[MatchKey, ...] = ()
    is_unique: bool = False
    has_only_keys: bool = False
    dialect: str = "spark"
    sql_params: Mapping[str, Any] | None = None
    unchanged: tuple[str, ...] = ()
    new_rows: TableInput | None = None
    withheld: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_mode(self.mode)

    @property
    def partition_types(self) -> dict[int, StructType]:
        """The types of partition tuples, by spec."""
        return {spec.spec_id: spec.partition_type(with_sources(spec, self.schemas)) for spec in self.specs}

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The fields of the table that are compared."""
        return tuple(key.field_id for key in self.keys)

    @property
    def sql_args(self) -> dict[str, Any]:
        """The values of the placeholders."""
        return {name: sql_params.from_json(name, value) for name, value in (self.sql_params or {}).items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without secrets: those in the SQL, and what the source withholds."""
        return Document.to_dict(self._public())

    def withheld_values(self) -> dict[str, str]:
        """Return the SQL that the JSON form does not hold."""
        texts = self.texts
        return {name: texts[name] for name in self._public().withheld}

    def completed(self, values: Mapping[str, Any]) -> Self:
        """Return a task that was read from its JSON form with the SQL that this does not hold.

        Raises:
            InvalidInputError: texts are missing, or are not of this task.
        """
        if sorted(values) != sorted(self.withheld) or not set(values) <= set(self.texts):
            expected, got = (", ".join(sorted(names)) or "none" for names in (self.withheld, values))
            raise InvalidInputError(f"the plan withholds {expected} of the job's SQL, and the job was given {got}")
        return replace(self._with_texts(values), withheld=())

    def _public(self) -> Self:
        """Return the task as everybody may read it, with asterisks instead of secrets."""
        if self.withheld:
            return self
        hidden = {name: hide("sql", text) for name, text in self.texts.items()}
        public = {name: text for name, text in hidden.items() if text != self.texts[name]}
        return replace(self._with_texts(public), withheld=tuple(public))

    @property
    def texts(self) -> dict[str, str]:
        """All SQL, each text by the name of its place."""
        texts = {} if self.on is None else {"on": self.on}
        for number, clause in enumerate(self.clauses):
            if clause.condition is not None:
                texts[f"clauses.{number}.condition"] = clause.condition
            texts |= {f"clauses.{number}.expressions.{at}": text for at, text in enumerate(clause.expressions)}
        return texts

    def _with_texts(self, texts: Mapping[str, Any]) -> Self:
        clauses = tuple(
            replace(
                clause,
                condition=texts.get(f"clauses.{number}.condition", clause.condition),
                expressions=tuple(
                    texts.get(f"clauses.{number}.expressions.{at}", text) for at, text in enumerate(clause.expressions)
                ),
            )
            for number, clause in enumerate(self.clauses)
        )
        return replace(self, on=texts.get("on", self.on), clauses=clauses)
