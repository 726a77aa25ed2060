"""How and where a job writes data files: a part of the tasks that write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import UNSORTED, SortOrder
from airflow_iceberg.jobs.protocol.document import Document

DELETE_MODES = ("copy-on-write", "merge-on-read")
FORMAT_VERSIONS = (1, 2, 3)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteSettings(Document):
    """How and where a job writes data files.

    Attributes:
        format_version: the table's format version, 1 to 3.
        schema: the schema whose field ids the files have.
        sort_order: the order by which a task sorts rows, if it sorts; its columns get full metrics in any case.
        properties: the table's properties that writers read (`write.*`).
        data_location: the prefix of the data files, e.g. "<table>/data".
    """

    format_version: int
    schema: Schema
    sort_order: SortOrder = UNSORTED
    properties: Mapping[str, str] = field(default_factory=dict)
    data_location: str
    target_file_size_bytes: int

    def __post_init__(self) -> None:
        if self.format_version not in FORMAT_VERSIONS:
            raise InvalidInputError(f"format version is {self.format_version}, expected 1, 2 or 3")
        if not self.data_location:
            raise InvalidInputError("the data location is empty")
        check_positive("target file size", self.target_file_size_bytes)

    @property
    def rows_schema(self) -> Schema:
        """The schema that rows are cast to: write defaults exist from version 3 on."""
        return self.schema if self.format_version >= 3 else self.schema.without_write_defaults()


def check_mode(mode: str) -> None:
    """Raise InvalidInputError unless it is one of DELETE_MODES."""
    if mode not in DELETE_MODES:
        raise InvalidInputError(f"unknown delete mode {mode!r}; one of {', '.join(DELETE_MODES)}")


def check_positive(what: str, value: int) -> None:
    """Raise InvalidInputError for a number below 1, which a message calls `what`."""
    if value < 1:
        raise InvalidInputError(f"{what} is {value}, expected at least 1")
