"""The answer of a job: `JobResult`, the files that it staged, or its error. `operations` checks it against the plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    IcebergError,
    InvalidInputError,
    StorageError,
    described,
    error_class,
)
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.document import Document, StoredDocument, read_bytes
from airflow_iceberg.jobs.protocol.one_time_signature import (
    SIGNATURE_BYTES,
    SignatureCheck,
    is_signed,
    public_key,
    sign,
)
from airflow_iceberg.jobs.protocol.seal import SealedFile, changed
from airflow_iceberg.redaction import without_secrets

if TYPE_CHECKING:
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

SUCCEEDED, FAILED = "succeeded", "failed"
UNEXPECTED = "IcebergError"
# Some million data files.
_MOST_BYTES = 2 << 30
_KEPT_BYTES, _CHUNK_BYTES = 64 << 20, 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class JobError(Document):
    """The error of a job as a document.

    Attributes:
        kind: the name of one of our exception classes.
        message: one readable text; no stack trace, no secrets.
        path: the location of the broken file, for FormatError.
        advice: what to do, as it stands in the message.
        is_denied: of a StorageError, whether the store has refused the request because of who has sent it.
    """

    kind: str
    message: str
    path: str | None = None
    advice: str | None = None
    is_denied: bool | None = None

    @classmethod
    def from_exception(cls, error: BaseException) -> Self:
        """Return the description of an exception; one that is not ours gets the kind "IcebergError".

        Locations of source files may be signed, and drivers quote requests: signatures and tokens are left out.
        """
        if isinstance(error, FormatError):
            path = None if error.path is None else without_secrets(error.path)
            return cls(kind=type(error).__name__, message=without_secrets(str(error.args[0])), path=path)
        if isinstance(error, IcebergError):
            advice = None if error.advice is None else without_secrets(error.advice)
            is_denied = (isinstance(error, StorageError) and error.is_denied) or None
            message = without_secrets(str(error))
            return cls(kind=type(error).__name__, message=message, advice=advice, is_denied=is_denied)
        found = described(error)
        if found.advice is not None:
            return cls.from_exception(found)
        message = f"the job failed unexpectedly: {type(error).__name__}: {error}"
        return cls(kind=UNEXPECTED, message=without_secrets(message))

    def to_exception(self) -> IcebergError:
        """Return an exception of the class that the job raised."""
        found = error_class(self.kind)
        if issubclass(found, FormatError):
            return found(self.message, path=self.path)
        error = found(self.message)
        error.advice = self.advice
        if isinstance(error, StorageError):
            error.is_denied = bool(self.is_denied)
        return error


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOutput(Document):
    """The new files of a group of the table's files; a commit replaces the group by them.

    Attributes:
        group: the number of the group, as in the work document.
        data_files: the new data files as `DataFile.to_dict` documents.
    """

    group: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    record_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange(Document):
    """What a job did to a data file of the table; attributes as in `data.row_changes.RowChange`."""

    file_path: str
    deleted_count: int
    is_gone: bool = False
    updated_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryUnitResult(Document):
    """The result of a unit of an inventory.

    Attributes:
        number: the unit's index in the plan's task.
        file: the file with the result, for `inventory.units.read_outcome`.
        rows: the number of rows in that file.
    """

    number: int
    file: SealedFile
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult(StoredDocument):
    """What a job did: the files it staged, or why it could not.

    Attributes:
        data_files: the new data files and delete files as `DataFile.to_dict` documents; other files are ignored.
        groups: the new data files by group, for compactions; `data_files` is empty then.
        changes: the changed files of the table, for deletes.
        inserted_count: the number of new rows, for a merge: other rows in its files were in the table before.
        conflict_filter: the JSON form of a predicate that all rows satisfy which a merge could change; None for others.
        schema: the schema of the files, where columns of the source could be added to the table's; else None.
        record_count: the number of rows in the files.
        source_files: the number of source files that were read, None for a query or a callable.
        error: the job's error; set if and only if the job failed.
        warnings: texts for the user who runs the DAG.
        timings: seconds by phase.
        engine: the engine of the job, e.g. "local" or "spark 3.5.9".
    """

    title: ClassVar[str] = "job result"

    status: str
    data_files: tuple[Mapping[str, Any], ...] = ()
    groups: tuple[GroupOutput, ...] = ()
    changes: tuple[FileChange, ...] = ()
    units: tuple[InventoryUnitResult, ...] = ()
    inserted_count: int = 0
    conflict_filter: Mapping[str, Any] | None = None
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
    def failed(cls, error: BaseException, *, timings: Mapping[str, float] | None = None) -> Self:
        """Return the result of a job that an exception ended."""
        return cls(status=FAILED, error=JobError.from_exception(error), timings=dict(timings or {}))

    def raise_for_error(self) -> None:
        """Raise the job's error, in the class that the job raised, if it failed."""
        if self.error is not None:
            raise self.error.to_exception()


def write_result(plan: JobPlan, io: FileIO, result: JobResult, *, secret: str | None = None) -> JobResult:
    """Write the result document, once; if another run of the plan was faster, return its result.

    Args:
        secret: the seed of its signature, which only the job knows when it runs; None for a job of this process, whose
            result is not read from the document.

    Raises:
        StorageError: it cannot be written.
        FormatError: somebody else has written one.
    """
    document = result.to_json()
    try:
        io.create(plan.result_location, document if secret is None else _signed(document, plan, secret))
    except AlreadyExistsError:
        if secret is None:
            log.warning("%s exists already, and is not used", plan.result_location)
            return result
        log.warning("%s exists already: another run of this plan was faster, its result is kept", plan.result_location)
        return read_result(plan, io, key=public_key(secret))
    return result


def read_result(plan: JobPlan, io: FileIO, *, key: str | None) -> JobResult:
    """Read the result document.

    Args:
        key: the public key of the job's signature; None for a document that is not signed.

    Raises:
        FormatError: the job has not written it, or it is damaged.
        NotFoundError: there is none.
    """
    path = plan.result_location
    if key is None:
        data = read_bytes(io, path, title=JobResult.title, most_bytes=_MOST_BYTES)
    else:
        data = _signed_content(plan, io, key)
    return JobResult.from_json(data, path=path)


def _signed_content(plan: JobPlan, io: FileIO, key: str) -> bytes:
    """Return a signed document without its signature.

    Anybody may have made it larger. So no more than `_KEPT_BYTES` of it are held before the signature is checked; a
    larger one is read a second time.
    """
    path = plan.result_location
    kept: list[bytes] = []
    check, signature, end = None, b"", 0
    chunk = io.read(path, offset=0, length=_CHUNK_BYTES)
    while chunk:
        is_last, end = len(chunk) < _CHUNK_BYTES, end + len(chunk)
        if end > _MOST_BYTES:
            raise FormatError(f"{JobResult.title} has more than {_MOST_BYTES} bytes", path=path)
        if check is None:
            signature, _, chunk = chunk.partition(b"\n")
            if len(signature) != SIGNATURE_BYTES:
                break
            check = SignatureCheck(signature, key)
            check.update(_named(b"", plan))
        check.update(chunk)
        if end <= _KEPT_BYTES:
            kept.append(chunk)
        chunk = b"" if is_last else io.read(path, offset=end, length=_CHUNK_BYTES)
    if check is None or not check.holds():
        raise changed(JobResult.title, path)
    if end <= _KEPT_BYTES:
        return b"".join(kept)
    data = io.read(path, offset=SIGNATURE_BYTES + 1, length=end - SIGNATURE_BYTES - 1)
    if not is_signed(_named(data, plan), signature, key):
        raise changed(JobResult.title, path)
    return data


def _signed(document: bytes, plan: JobPlan, secret: str) -> bytes:
    return b"%s\n%s" % (sign(_named(document, plan), secret), document)


def _named(document: bytes, plan: JobPlan) -> bytes:
    """Return what is signed: the document with its place, so that it is the result of no other job."""
    return b"%s\n%s" % (plan.result_location.encode(), document)
