"""What a job answers: `JobResult`, the files that it staged, and how it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_iceberg import errors
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.document import VERSION, _document, _mappings, _to_bytes
from airflow_iceberg.jobs.protocol.plan import JobPlan

SUCCEEDED, FAILED = "succeeded", "failed"


UNEXPECTED = "IcebergError"


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
