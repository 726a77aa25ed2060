"""Tables that are no Iceberg tables, of catalogs that have others, too: what is known of them, and how one is replaced.

Here: the words between such a catalog and the operations that take its tables over. Not here: how a Hive Metastore
describes a table (`hive.existing`), and what becomes of the files (`operations.existing`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_iceberg.catalogs.base import Catalog, TableId


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingPartition:
    """A partition as the catalog lists it.

    Attributes:
        values: the texts of the partition's values by the names of the partition columns, in their order.
        location: its folder, which may lie anywhere.
    """

    values: Mapping[str, str]
    location: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingTable:
    """A table that is no Iceberg table.

    Attributes:
        columns: the types of all columns by name, as `schema_from_shorthand` reads them, partition columns last.
        partition_columns: their names.
        location: the folder of the table.
        partitions: the folders that have its files: one for each partition, or the table's own.
        bucket_columns: the columns by whose hash its rows are in files; none if it is not bucketed.
    """

    table: TableId
    columns: Mapping[str, str]
    partition_columns: tuple[str, ...]
    location: str
    partitions: tuple[ExistingPartition, ...]
    bucket_columns: tuple[str, ...] = ()


class HasExistingTables(Catalog, ABC):
    """A catalog that also has tables that are no Iceberg tables."""

    @abstractmethod
    def existing_table(self, table: TableId) -> ExistingTable:
        """Return a table.

        Raises:
            NotFoundError: there is none of this name.
            UnsupportedError: it is an Iceberg table or a view, or its files cannot be those of an Iceberg table.
        """

    @abstractmethod
    def has_entry(self, table: TableId) -> bool:
        """Whether the catalog has a table of this name, of whatever kind."""

    @abstractmethod
    def is_set_aside(self, aside: TableId, table: TableId) -> bool:
        """Whether `aside` is a table that the migration of `table` has set aside, and has not ended."""

    @abstractmethod
    def set_aside(self, table: TableId, to: TableId) -> None:
        """Give a table another name, so that its own is free; no file is moved, and none will be when it is dropped.

        It may be called again after a lost answer.

        Raises:
            AlreadyExistsError: the other name is taken.
            CommitUnknownError: cannot tell whether it was done; `is_set_aside` tells later.
        """

    @abstractmethod
    def put_back(self, aside: TableId, to: TableId) -> None:
        """Undo `set_aside`; nothing happens if `aside` is not the table that had the name `to`."""

    @abstractmethod
    def keep_aside(self, aside: TableId, table: TableId) -> None:
        """Note that the migration of `table` has ended: what was set aside is never put back, nor migrated again."""

    @abstractmethod
    def drop_aside(self, aside: TableId, table: TableId) -> None:
        """Remove the entry of what the migration of `table` has set aside, if it is there; no file is deleted."""
