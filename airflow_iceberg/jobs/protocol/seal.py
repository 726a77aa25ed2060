"""Sealed files: how a reader knows that a file is the one that was written.

Documents of jobs lie in the table's folder, where others can replace them. Each seal is passed by another way: that of
the plan by the arguments of the job, those of further documents in the plan, those of a task's files in its report.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.jobs.protocol.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_iceberg.storage.base import FileIO

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXT = re.compile(r"([0-9]{1,18})-([0-9a-f]{64})")
# Enough against a second content with the same digest; a spill file has thousands of streams.
_SHORT_DIGITS = 32


def short_digest(data: Any) -> str:
    """Return the first half of the SHA-256 of bytes, in hexadecimal digits: for the many parts of one file."""
    return hashlib.sha256(data).hexdigest()[:_SHORT_DIGITS]


def changed(what: str, path: str) -> FormatError:
    """Return the error for a file whose content is not the one that was written."""
    return FormatError(
        f"the {what} is not the one that was written: it was replaced or changed; run the task again, and check who "
        f"can write to the table's location",
        path=path,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal(Document):
    """The size and the SHA-256 of a file; the text form is `SIZE-SHA256`."""

    size_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise InvalidInputError(f"{self.sha256!r} is no SHA-256 in hexadecimal digits")

    def __str__(self) -> str:
        return f"{self.size_bytes}-{self.sha256}"

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the seal of a file's content."""
        return cls(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the seal of a text form; raises InvalidInputError if it is none."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidInputError(f"{text!r} is no seal of a document, expected its size, '-' and its SHA-256")
        return cls(size_bytes=int(found[1]), sha256=found[2])

    def content(self, io: FileIO, location: str, *, what: str) -> bytes:
        """Return the sealed file, which messages call `what`: read once, and checked before it is used.

        A file that was made larger is not read to its end.

        Raises:
            FormatError: it was replaced or changed.
            NotFoundError: there is none.
        """
        data = io.read(location, length=self.size_bytes + 1)
        if type(self).of(data) != self:
            raise changed(what, location)
        return data


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedFile(Document):
    """A file with its seal."""

    location: str
    seal: Seal

    @classmethod
    def create(cls, io: FileIO, location: str, data: bytes) -> Self:
        """Create a file and return it sealed; raises StorageError if it cannot be written."""
        io.create(location, data)
        return cls(location=location, seal=Seal.of(data))

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any] | None) -> Self | None:
        """Return the file whose fields `dataclasses.asdict` has returned; None for none."""
        return None if fields is None else cls(location=fields["location"], seal=Seal(**fields["seal"]))

    def content(self, io: FileIO, *, what: str) -> bytes:
        """Return the content of the file; see `Seal.content`."""
        return self.seal.content(io, self.location, what=what)
