"""The two documents between Airflow and a job: JobPlan goes in, JobResult comes out.

Here: the documents, their JSON form, their validation. Light on purpose (neither pyarrow nor pyspark): the task
that waits for a job reads these too. Who writes the plan and believes the result is `table`; who reads the plan
and writes the result is `jobs.run_local` and `jobs.spark.run`. No document is given a secret by us: storage properties
travel in the environment (see `jobs.main`).

Both documents are versioned. A newer version is refused (UnsupportedError), a broken document is a FormatError
that carries the document's location.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.json import expression_from_json, expression_to_json
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import UNSORTED, SortOrder
from airflow_iceberg.jobs.protocol.document import VERSION, _document, _to_bytes
from airflow_iceberg.jobs.protocol.source import Source

# "append" stages the rows of a source, "rewrite" those of the table's own files, "delete" takes rows out of these;
# "walk" looks at all files of the table and stages nothing.
OPERATIONS = ("append", "rewrite", "delete", "walk")
TABLE_OPERATIONS = ("rewrite", "delete")
ARRANGEMENTS = ("none", "sort", "zorder")
DELETE_MODES = ("copy-on-write", "merge-on-read")
DISTRIBUTION_MODES = ("none", "hash", "range")


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A predicate in the plan of a job, which is read without knowing SQL.

    Attributes:
        text: as its author wrote it, for messages.
        predicate: bound to a schema, or by names alone where columns may still be of other types in the job.
    """

    text: str
    predicate: Expression

    @classmethod
    def from_dict(cls, fields: Fields, schema: Schema) -> Self:
        """Read it from its JSON form.

        Args:
            schema: that bound columns are of.
        """
        predicate = expression_from_json(fields.mapping("predicate"), schema, path=fields.path)
        return cls(text=fields.str("text"), predicate=predicate)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"text": self.text, "predicate": expression_to_json(self.predicate)}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """All that a job needs to know; the job knows no catalog and asks nobody.

    Attributes:
        operation: one of OPERATIONS.
        operation_key: text of the Airflow task's key, None outside of Airflow; for logs, the job decides nothing by it.
        try_number: of the Airflow task, from 1.
        table: name for messages, e.g. "sales.orders".
        table_location: location of the table.
        table_uuid: uuid of the table the plan was made for.
        format_version: of the table, 1 to 3.
        schema: the rows are written with its field ids.
        spec: the partition spec to write with.
        sort_order: the table's default sort order, or the one that a rewrite sorts by.
        arrangement: one of ARRANGEMENTS: how rows are ordered before they are written.
        claimed_order_id: the sort order that the files are said to be in; 0 for none.
        zorder_columns: full names, for the arrangement "zorder".
        zorder_text_bytes: bytes of text and binary that count for it.
        zorder_most_bytes: bytes that rows are compared by, at most.
        ranges_per_output: ranges that are sorted one after the other for an output, at least.
        properties: the table's properties that the writers read (`write.*`).
        data_location: prefix of the data files, e.g. "<table>/data".
        staging_location: prefix that this try owns alone; the job may write what it likes below it.
        location: where this document lies.
        result_location: where the JobResult goes; created once, never replaced.
        file_prefix: start of every data file's name, unique to this try.
        source: where the rows come from.
        distribution_mode: "none" (each task writes what it reads), "hash" (rows of one partition are brought to
            one task), "range" (arranged rows are brought into one order over all tasks, others as for hash).
        parallelism: number of tasks at a time, None leaves it to the back end.
        delete_mode: of a delete, "copy-on-write" or "merge-on-read".
        row_check: what every new row has to satisfy; None for no check.
        last_column_id: highest field id that the table ever gave out, where columns of the source may join its schema;
            None where they may not.
    """

    operation: str = "append"
    operation_key: str | None = None
    try_number: int = 1
    table: str
    table_location: str
    table_uuid: str
    format_version: int
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder = UNSORTED
    properties: Mapping[str, str] = field(default_factory=dict)
    data_location: str
    staging_location: str
    location: str
    result_location: str
    file_prefix: str
    source: Source
    distribution_mode: str = "hash"
    arrangement: str = "none"
    claimed_order_id: int = 0
    zorder_columns: tuple[str, ...] = ()
    zorder_text_bytes: int = 8
    zorder_most_bytes: int = 2**31 - 1
    ranges_per_output: int = 1
    parallelism: int | None = None
    delete_mode: str | None = None
    row_check: Condition | None = None
    last_column_id: int | None = None

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise UnsupportedError(f"job operation {self.operation!r} is not supported; one of {', '.join(OPERATIONS)}")
        if (self.operation in TABLE_OPERATIONS) != (self.source.kind == "table"):
            raise InvalidInputError(f"a job of operation {self.operation!r} cannot read a source of {self.source.kind}")
        if (self.operation == "walk") != (self.source.kind == "units"):
            raise InvalidInputError(f"a job of operation {self.operation!r} cannot read a source of {self.source.kind}")
        if self.distribution_mode not in DISTRIBUTION_MODES:
            known = ", ".join(DISTRIBUTION_MODES)
            raise InvalidInputError(
                f"unknown {TableProperties.distribution_mode} {self.distribution_mode!r}; one of {known}"
            )
        if self.arrangement not in ARRANGEMENTS:
            raise InvalidInputError(f"unknown arrangement {self.arrangement!r}; one of {', '.join(ARRANGEMENTS)}")
        if (self.operation == "delete") != (self.delete_mode in DELETE_MODES):
            raise InvalidInputError(f"a job of operation {self.operation!r} with delete mode {self.delete_mode!r}")
        if self.parallelism is not None and self.parallelism < 1:
            raise InvalidInputError(f"parallelism is {self.parallelism}, expected at least 1")
        if not self.file_prefix or "/" in self.file_prefix:
            raise InvalidInputError(f"file prefix {self.file_prefix!r} is empty or has a '/' in it")

    @property
    def rows_schema(self) -> Schema:
        """The schema that rows from elsewhere are brought into: write defaults are of version 3."""
        return self.schema if self.format_version >= 3 else self.schema.without_write_defaults()

    @classmethod
    def from_json(cls, data: bytes | str, *, path: str | None = None) -> Self:
        """Read a plan document.

        Args:
            data: the document.
            path: where it was read from, for messages.
        Raises:
            FormatError: not a plan document.
            UnsupportedError: a document of a newer version, or an operation that this version does not know.
        """
        fields = _document(data, "job plan", path)
        try:
            return cls._from_fields(fields, path)
        except InvalidInputError as error:
            raise FormatError(f"broken job plan: {error}", path=path) from error

    @classmethod
    def _from_fields(cls, fields: Fields, path: str | None) -> Self:
        schema = Schema.from_dict(dict(fields.mapping("schema")), path=path)
        check = fields.child("row-check") if "row-check" in fields else None
        return cls(
            operation=fields.str("operation"),
            operation_key=fields.opt_str("operation-key"),
            try_number=fields.int("try-number"),
            table=fields.str("table"),
            table_location=fields.str("table-location"),
            table_uuid=fields.str("table-uuid"),
            format_version=fields.int("format-version"),
            schema=schema,
            spec=PartitionSpec.from_dict(dict(fields.mapping("spec")), path=path),
            sort_order=SortOrder.from_dict(dict(fields.mapping("sort-order")), path=path),
            properties=fields.str_map("properties"),
            data_location=fields.str("data-location"),
            staging_location=fields.str("staging-location"),
            location=fields.str("location"),
            result_location=fields.str("result-location"),
            file_prefix=fields.str("file-prefix"),
            source=Source.from_dict(fields.child("source")),
            distribution_mode=fields.str("distribution-mode"),
            arrangement=fields.str("arrangement"),
            claimed_order_id=fields.int("claimed-order-id"),
            zorder_columns=tuple(str(name) for name in fields.list("zorder-columns")),
            zorder_text_bytes=fields.opt_int("zorder-text-bytes") or 8,
            zorder_most_bytes=fields.opt_int("zorder-most-bytes") or 2**31 - 1,
            ranges_per_output=fields.opt_int("ranges-per-output") or 1,
            parallelism=fields.opt_int("parallelism"),
            delete_mode=fields.opt_str("delete-mode"),
            row_check=None if check is None else Condition.from_dict(check, schema),
            last_column_id=fields.opt_int("last-column-id"),
        )

    def to_json(self) -> bytes:
        """Return the document: JSON, UTF-8."""
        return _to_bytes(
            {
                "version": VERSION,
                "operation": self.operation,
                "operation-key": self.operation_key,
                "try-number": self.try_number,
                "table": self.table,
                "table-location": self.table_location,
                "table-uuid": self.table_uuid,
                "format-version": self.format_version,
                "schema": self.schema.to_dict(),
                "spec": self.spec.to_dict(),
                "sort-order": self.sort_order.to_dict(),
                "properties": dict(self.properties),
                "data-location": self.data_location,
                "staging-location": self.staging_location,
                "location": self.location,
                "result-location": self.result_location,
                "file-prefix": self.file_prefix,
                "source": self.source.to_dict(),
                "distribution-mode": self.distribution_mode,
                "arrangement": self.arrangement,
                "claimed-order-id": self.claimed_order_id,
                "zorder-columns": list(self.zorder_columns),
                "zorder-text-bytes": self.zorder_text_bytes,
                "zorder-most-bytes": self.zorder_most_bytes,
                "ranges-per-output": self.ranges_per_output,
                "parallelism": self.parallelism,
                "delete-mode": self.delete_mode,
                "row-check": None if self.row_check is None else self.row_check.to_dict(),
                "last-column-id": self.last_column_id,
            }
        )
