"""A unit of a source: a file or a part of one, and the file system that it is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_iceberg.data.arrow_version import explained
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.storage.gate import GatedFileIO, ungated

if TYPE_CHECKING:
    import fsspec

    from airflow_iceberg.storage.base import FileIO


# How many times larger the rows of a format are than in a table's Parquet files, roughly; for cutting into tasks only.
INFLATION = {"csv": 4, "jsonl": 8}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A unit of work: a whole file, or some of a Parquet file's row groups.

    Attributes:
        compression: the codec of a text file, None for none.
        size_bytes: the stored size of the unit.
        row_groups: (first, end) of the row groups to read, None for all.
        first_row: the number of the first row within the file, from 1.
        absent: paths of the fields with a default that no object of a file of JSON lines has (`sources.json.absent`).
        rows_name: what messages call the rows, as of a source; None for the location.
    """

    location: str
    file_format: str
    compression: str | None = None
    size_bytes: int
    row_groups: tuple[int, int] | None = None
    first_row: int = 1
    absent: tuple[tuple[str, ...], ...] = ()
    rows_name: str | None = None

    @property
    def name(self) -> str:
        """What messages about the rows call the unit."""
        return self.rows_name or self.location

    @property
    def weight(self) -> int:
        """The rough size of the unit's rows in the table, in bytes; at least 1."""
        shrink = 1 if self.compression else INFLATION.get(self.file_format, 1)
        return max(self.size_bytes // shrink, 1)


def open_filesystem(location: str, io: FileIO, *, lists: bool = False) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a source location, which may be any fsspec URL, and the path in it.

    Args:
        lists: whether files are searched for, and not read.
    """
    try:
        # The DAG names the files of a source: the gate is for paths that come from metadata. But others can write
        # where the table's own files are, such as rows that were staged.
        is_own = not lists and isinstance(io, GatedFileIO) and io.owns(location)
        return (io if is_own else ungated(io)).filesystem(location)
    except UnsupportedError as error:
        not_ours = error
    import fsspec.core

    try:
        filesystem, path = fsspec.core.url_to_fs(location)
    except ImportError as error:
        if not_ours.advice is not None:  # a scheme of ours whose driver is missing: what to install is known
            raise not_ours from error
        raise UnsupportedError(f"cannot read {location}: {error}") from error
    except ValueError as error:
        raise UnsupportedError(f"cannot read {location}: no fsspec driver for this scheme ({error})") from error
    return filesystem, path


def broken(unit: Unit, error: Exception) -> FormatError:
    """Return the error of a file that cannot be decoded."""
    text = explained(error)[:500]
    return FormatError(f"not a readable {unit.file_format} file: {text}; the bytes", path=unit.location)
