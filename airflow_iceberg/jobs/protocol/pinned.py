"""Tables that a job's query or callable reads, each at one snapshot that was chosen when the job was planned.

A job has no catalog: it reads the metadata file that the table had then, so that it reads the same rows whenever it
runs. Not here: choosing the snapshot and the columns (`operations.inputs`), reading them (`jobs.spark.inputs`,
`jobs.duckdb_query`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from airflow_iceberg.errors import IcebergError, NotFoundError, StalePlanError
from airflow_iceberg.expressions.json import expression_from_json
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.document import Document
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import Gate, GatedFileIO, ungated


@dataclass(frozen=True, kw_only=True, slots=True)
class Locations(Document):
    """The gate of a table's files: see `storage.gate.Gate`."""

    allowed: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def gate(self) -> Gate:
        return Gate(allowed=self.allowed, own=self.own)


def locations_of(io: FileIO) -> Locations | None:
    """Return the gate of a table's files, for a plan."""
    return Locations(allowed=io.gate.allowed, own=io.gate.own) if isinstance(io, GatedFileIO) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedChanges(Document):
    """Which changes of a table are read, up to its snapshot.

    Attributes:
        from_snapshot_id: the snapshot after which they begin; None: all rows of the last one are new.
        mode: "append" or "changelog"; this and the next three as of `Table.changes`.
        is_again: whether the task has read them before it was cleared.
        is_since_last: whether they begin where the task has read last.
        is_first: whether it has never read any.
        consumer: the name that the author gives to who reads; None: the task is it.
        reads: a digest of which of the changes are read.
    """

    from_snapshot_id: int | None = None
    mode: str
    net: bool = False
    compute_updates: bool = False
    identifier_columns: tuple[str, ...] = ()
    is_again: bool = False
    is_since_last: bool = False
    is_first: bool = False
    consumer: str | None = None
    reads: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedTable(Document):
    """A table at a snapshot, under the name that a query or a callable has for it.

    Attributes:
        name: the name of the view, or of the argument.
        table: namespace and name of the table, for messages.
        catalog: the name of its catalog.
        table_uuid: empty for a table without one.
        table_location: the table's location.
        metadata_location: the metadata file that has the snapshot.
        snapshot_id: the snapshot; None for a table or branch without one, which has no rows.
        schema: the columns of the table at the snapshot.
        selected_fields: the columns that are read; "*" is all.
        row_filter: a predicate that the rows satisfy which are read, bound to the schema.
        locations: what may be read of it; None for a table without a gate.
        changes: which of its changes are read; None: the rows of the snapshot are.
    """

    name: str
    table: str
    catalog: str
    table_uuid: str
    table_location: str
    metadata_location: str
    snapshot_id: int | None = None
    schema: Schema
    selected_fields: tuple[str, ...] = ("*",)
    row_filter: Expression = ALWAYS_TRUE
    locations: Locations | None = None
    changes: PinnedChanges | None = None

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the table from its JSON form."""
        schema = Schema.from_dict(dict(fields.mapping("schema")), path=fields.path)
        row_filter = expression_from_json(fields.mapping("row-filter"), schema, path=fields.path)
        return cls.read(fields, schema=schema, row_filter=row_filter)

    def gated(self, io: FileIO) -> FileIO:
        """Return access to the table's files, through its gate."""
        # The gate of the table that is written to does not let it through.
        return io if self.locations is None else self.locations.gate.around(ungated(io))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Name the input in errors of the block, which reads it.

        Raises:
            StalePlanError: a file is gone: the snapshot was expired, or the table dropped, since the job was planned.
        """
        try:
            yield
        except NotFoundError as error:
            raise StalePlanError(
                f"input {self.name!r}: snapshot {self.snapshot_id} of table {self.table}, which the job was planned to "
                f"read, is gone: {error}; nothing was committed, run it again to read the table as it is then"
            ) from error
        except IcebergError as error:
            raise named(self.name, error) from error


def named(name: str, error: IcebergError) -> IcebergError:
    """Return an error that names the input."""
    return type(error)(f"input {name!r}: {error}")
