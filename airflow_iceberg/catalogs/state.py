"""`TableState`: a table at one moment, as a catalog has loaded it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_iceberg.catalogs.names import TableId
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class TableState:
    """A table at one moment.

    Attributes:
        table: its name in the catalog.
        metadata: the parsed metadata.
        metadata_location: the file that the metadata came from.
        token: the catalog's own version of this state, which it compares when it swaps; opaque to other modules.
        io: access to the table's files, if it differs from the catalog's `io`: with credentials of its own.
        loaded_s: when that moment was, in seconds of `time.monotonic`.
    """

    table: TableId
    metadata: TableMetadata
    metadata_location: str
    token: object = None
    io: FileIO | None = field(default=None, compare=False, repr=False)
    loaded_s: float = field(default_factory=time.monotonic, compare=False, repr=False)
