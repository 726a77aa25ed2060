"""The two documents between Airflow and a job: JobPlan goes in, JobResult comes out.

Here: the documents, their JSON form, their validation. Light on purpose (neither pyarrow nor pyspark): the task
that waits for a job reads these too. Who writes the plan and believes the result is `table`; who reads the plan
and writes the result is `jobs.run_local` and `jobs.spark.run`. No document is given a secret by us: storage properties
travel in the environment (see `jobs.main`).

Both documents are versioned. A newer version is refused (UnsupportedError), a broken document is a FormatError
that carries the document's location.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_iceberg import errors
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.json import expression_from_json, expression_to_json
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import UNSORTED, SortOrder
from airflow_iceberg.jobs.protocol.table_input import TableInput

VERSION = 1
# "append" stages the rows of a source, "rewrite" those of the table's own files, "delete" takes rows out of these;
# "walk" looks at all files of the table and stages nothing.
OPERATIONS = ("append", "rewrite", "delete", "walk")
TABLE_OPERATIONS = ("rewrite", "delete")
SOURCE_KINDS = ("files", "sql", "callable", "table", "units")
FILE_FORMATS = ("parquet", "csv", "jsonl", "orc", "avro")
ARRANGEMENTS = ("none", "sort", "zorder")
DELETE_MODES = ("copy-on-write", "merge-on-read")
DISTRIBUTION_MODES = ("none", "hash", "range")
SUCCEEDED, FAILED = "succeeded", "failed"
UNEXPECTED = "IcebergError"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the rows come from: files, a Spark SQL query, a Python callable, or the table; exactly one of them.

    Attributes:
        kind: one of SOURCE_KINDS.
        files: URLs or paths, with globs; read in the order given, matches of one glob sorted by name.
        file_format: one of FILE_FORMATS; None goes by each file's suffix.
        format_options: how to read the files, e.g. {"delimiter": ";", "header": "false"}; see `jobs.sources.files`.
        sql: one query in Spark's SQL.
        callable: "package.module:function"; called with the SparkSession and `kwargs`, returns a DataFrame.
        kwargs: JSON values for the callable.
        table: the files of the table itself that the operations beside append read.
        units: locations of the documents of a walk's units (`inventory.units`), in their order.
    """

    kind: str
    files: tuple[str, ...] = ()
    file_format: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict)
    sql: str | None = None
    callable: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    table: TableInput | None = None
    units: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in SOURCE_KINDS:
            raise InvalidInputError(f"unknown source kind {self.kind!r}; one of {', '.join(SOURCE_KINDS)}")
        named = {name: getattr(self, name) for name in SOURCE_KINDS}
        given = [name for name, value in named.items() if value]
        if given != [self.kind]:
            found = ", ".join(given) or "nothing"
            raise InvalidInputError(f"a source of kind {self.kind!r} needs {self.kind} and nothing else, got {found}")
        for name in self.files:
            _check_location(name)
        if self.file_format is not None and self.file_format not in FILE_FORMATS:
            known = ", ".join(FILE_FORMATS)
            raise InvalidInputError(f"unknown file format {self.file_format!r}; one of {known}")
        for name, value in self.format_options.items():
            if not isinstance(value, str):
                raise InvalidInputError(
                    f"format option {name!r} is {value!r}, expected text such as '{str(value).lower()}'"
                )
        try:
            json.dumps(dict(self.kwargs), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"op_kwargs are not JSON values: {error}") from error
        if self.callable is not None and not _is_callable_path(self.callable):
            raise InvalidInputError(f"python callable {self.callable!r} is not of the form 'package.module:function'")

    @classmethod
    def from_files(
        cls,
        files: "str | tuple[str, ...] | list[str]",
        *,
        file_format: str | None = None,
        format_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a source of one or more files or globs."""
        names = (files,) if isinstance(files, str) else tuple(files)
        return cls(kind="files", files=names, file_format=file_format, format_options=dict(format_options or {}))

    @classmethod
    def from_sql(cls, sql: str) -> Self:
        """Return a source that is one query in Spark's SQL."""
        return cls(kind="sql", sql=sql.strip().rstrip(";").rstrip())

    @classmethod
    def from_callable(cls, path: str, kwargs: Mapping[str, Any] | None = None) -> Self:
        """Return a source that is a function "package.module:function" of the SparkSession."""
        return cls(kind="callable", callable=path, kwargs=dict(kwargs or {}))

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read a source from its JSON form."""
        return cls(
            kind=fields.str("kind"),
            files=tuple(str(name) for name in fields.list("files")),
            file_format=fields.opt_str("file-format"),
            format_options=fields.str_map("format-options"),
            sql=fields.opt_str("sql"),
            callable=fields.opt_str("callable"),
            kwargs=dict(fields.mapping("kwargs")),
            table=TableInput.from_dict(fields.child("table")) if "table" in fields else None,
            units=tuple(str(place) for place in fields.list("units")) if "units" in fields else (),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "files": list(self.files),
            "file-format": self.file_format,
            "format-options": dict(self.format_options),
            "sql": self.sql,
            "callable": self.callable,
            "kwargs": dict(self.kwargs),
            "table": None if self.table is None else self.table.to_dict(),
            "units": list(self.units),
        }


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
            raise InvalidInputError(f"unknown write.distribution-mode {self.distribution_mode!r}; one of {known}")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobError:
    """Why a job failed, in a form that survives the way back to Airflow.

    Attributes:
        kind: name of one of our exception classes.
        message: one readable text; no stack trace, no secrets.
        path: location of the broken file, for FormatError.
    """

    kind: str
    message: str
    path: str | None = None

    @classmethod
    def from_exception(cls, error: BaseException) -> Self:
        """Return the description of an exception; one that is not ours gets the kind "IcebergError"."""
        if isinstance(error, FormatError):
            return cls(kind=type(error).__name__, message=str(error.args[0]), path=error.path)
        if isinstance(error, IcebergError):
            return cls(kind=type(error).__name__, message=str(error))
        return cls(kind=UNEXPECTED, message=f"the job failed unexpectedly: {type(error).__name__}: {error}")

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the error from its JSON form."""
        return cls(kind=fields.str("kind"), message=fields.str("message"), path=fields.opt_str("path"))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"kind": self.kind, "message": self.message, "path": self.path}

    def to_exception(self) -> IcebergError:
        """Return an exception of the class that the job raised."""
        found = getattr(errors, self.kind, None)
        if not (isinstance(found, type) and issubclass(found, IcebergError)):
            return IcebergError(self.message)
        if issubclass(found, FormatError):
            return found(self.message, path=self.path)
        return found(self.message)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOutput:
    """What came of a group of the table's files, which go in and out together.

    Attributes:
        group: its number, as in the work document.
        data_files: new data files as `DataFile.to_dict` documents.
        record_count: rows in them.
        error: why the group was given up, its new files removed; only for operations that can leave a group out.
    """

    group: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    record_count: int = 0
    error: JobError | None = None

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the output from its JSON form."""
        return cls(
            group=fields.int("group"),
            data_files=tuple(_mappings(fields.list("data-files"), fields.place("data-files"), fields.path)),
            record_count=fields.int("record-count"),
            error=JobError.from_dict(fields.child("error")) if "error" in fields else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "group": self.group,
            "data-files": [dict(document) for document in self.data_files],
            "record-count": self.record_count,
            "error": None if self.error is None else self.error.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """What a delete did to a data file of the table.

    Attributes:
        file_path: of the data file.
        deleted_count: rows that went; 0 leaves the file as it is.
        is_gone: no row is left, and nothing comes in its place.
    """

    file_path: str
    deleted_count: int
    is_gone: bool = False

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the change from its JSON form."""
        return cls(
            file_path=fields.str("file-path"),
            deleted_count=fields.int("deleted-count"),
            is_gone=fields.bool("is-gone"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"file-path": self.file_path, "deleted-count": self.deleted_count, "is-gone": self.is_gone}


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkedUnit:
    """What came of a unit of a walk.

    Attributes:
        number: its place in the plan's source.
        location: of the file with what came of it, as `inventory.units.read_outcome` reads it.
        rows: in that file.
    """

    number: int
    location: str
    rows: int

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read it from its JSON form."""
        return cls(number=fields.int("number"), location=fields.str("location"), rows=fields.int("rows"))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"number": self.number, "location": self.location, "rows": self.rows}


def walked_location(plan: JobPlan) -> str:
    """Return the prefix of what comes of a walk; names begin with the number of their unit."""
    return f"{plan.staging_location.rstrip('/')}/walked"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult:
    """What a job did: the files it staged, or why it could not.

    Attributes:
        status: "succeeded" or "failed".
        data_files: new data files as `DataFile.to_dict` documents; only these count, whatever else lies around.
        groups: the same by group, for rewrites; `data_files` is empty then.
        changes: what became of the files of the table, for deletes; `data_files` has their new files, delete files too.
        walked: what came of the units of a walk.
        schema: that the files were written by, where columns of the source could join the table's; else None.
        record_count: rows in them.
        source_files: number of source files read, None for a query or a callable.
        error: set if and only if the job failed.
        warnings: what the person who runs the DAG should know.
        timings: seconds by phase.
        engine: what ran it, e.g. "local" or "spark 3.5.9".
    """

    status: str
    data_files: tuple[Mapping[str, Any], ...] = ()
    groups: tuple[GroupOutput, ...] = ()
    changes: tuple[FileChange, ...] = ()
    walked: tuple[WalkedUnit, ...] = ()
    schema: Schema | None = None
    record_count: int = 0
    source_files: int | None = None
    error: JobError | None = None
    warnings: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""

    def __post_init__(self) -> None:
        if self.status not in (SUCCEEDED, FAILED):
            raise InvalidInputError(f"unknown job status {self.status!r}; {SUCCEEDED} or {FAILED}")
        if (self.error is not None) != (self.status == FAILED):
            raise InvalidInputError(f"a job result of status {self.status!r} with error {self.error!r}")

    @classmethod
    def failed(cls, error: BaseException, *, engine: str = "", timings: Mapping[str, float] | None = None) -> Self:
        """Return the result of a job that an exception ended."""
        return cls(status=FAILED, error=JobError.from_exception(error), engine=engine, timings=dict(timings or {}))

    def raise_for_error(self) -> None:
        """Raise the job's own error, as the class that the job raised; nothing if the job succeeded."""
        if self.error is not None:
            raise self.error.to_exception()

    @classmethod
    def from_json(cls, data: bytes | str, *, path: str | None = None) -> Self:
        """Read a result document.

        Raises:
            FormatError: not a result document.
            UnsupportedError: a document of a newer version.
        """
        fields = _document(data, "job result", path)
        try:
            return cls._from_fields(fields, path)
        except InvalidInputError as error:
            raise FormatError(f"broken job result: {error}", path=path) from error

    @classmethod
    def _from_fields(cls, fields: Fields, path: str | None) -> Self:
        return cls(
            status=fields.str("status"),
            data_files=tuple(_mappings(fields.list("data-files"), "data-files", path)),
            groups=tuple(GroupOutput.from_dict(group) for group in fields.items("groups"))
            if "groups" in fields
            else (),
            changes=tuple(FileChange.from_dict(item) for item in fields.items("changes"))
            if "changes" in fields
            else (),
            walked=tuple(WalkedUnit.from_dict(item) for item in fields.items("walked")) if "walked" in fields else (),
            schema=Schema.from_dict(dict(fields.mapping("schema")), path=path) if "schema" in fields else None,
            record_count=fields.int("record-count"),
            source_files=fields.opt_int("source-files"),
            error=JobError.from_dict(Fields(fields.mapping("error"), "error", path)) if "error" in fields else None,
            warnings=tuple(str(text) for text in fields.list("warnings")),
            timings={str(name): float(seconds) for name, seconds in fields.mapping("timings").items()},
            engine=fields.str("engine"),
        )

    def to_json(self) -> bytes:
        """Return the document: JSON, UTF-8."""
        return _to_bytes(
            {
                "version": VERSION,
                "status": self.status,
                "data-files": [dict(document) for document in self.data_files],
                "groups": [group.to_dict() for group in self.groups],
                "changes": [change.to_dict() for change in self.changes],
                "walked": [one.to_dict() for one in self.walked],
                "schema": None if self.schema is None else self.schema.to_dict(),
                "record-count": self.record_count,
                "source-files": self.source_files,
                "error": None if self.error is None else self.error.to_dict(),
                "warnings": list(self.warnings),
                "timings": dict(self.timings),
                "engine": self.engine,
            }
        )


def _check_location(name: str) -> None:
    """Refuse what names no file, and what would lie in the plan document with its password."""
    if not name.strip():
        raise InvalidInputError("one of the source files has an empty name; a template may have rendered to nothing")
    authority = name.partition("://")[2].partition("/")[0]
    user, at, _ = authority.rpartition("@")
    if at and ":" in user:
        raise InvalidInputError(
            f"source file {name.replace(user, '***')} has a password in its name, which would lie in the job's plan; "
            f"give credentials by the catalog's connection or the environment"
        )


def _is_callable_path(text: str) -> bool:
    module, _, function = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *function.split(".")])


def _to_bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _document(data: bytes | str, what: str, path: str | None) -> Fields:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise FormatError(f"{what} is not JSON: {error}", path=path) from error
    if not isinstance(document, dict):
        raise FormatError(f"{what} is not a JSON object", path=path)
    fields = Fields(document, "", path)
    version = fields.int("version")
    if version > VERSION:
        raise UnsupportedError(
            f"{what} has version {version}, this airflow_iceberg knows up to {VERSION}; "
            f"use the same version of airflow_iceberg in Airflow and on the cluster"
        )
    if version < 1:
        raise FormatError(f"{what} has version {version}, expected {VERSION}", path=path)
    return fields


def _mappings(items: "Sequence[Any]", where: str, path: str | None) -> "Sequence[Mapping[str, Any]]":
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"unexpected type {type(item).__name__} (expected object) in '{where}[{index}]'"
            raise FormatError(message, path=path)
    return items
