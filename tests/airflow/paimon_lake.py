"""A Paimon warehouse in a folder, an Airflow connection to it, and commits to its table."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support.paimon_writer import PaimonBuilder

CONN_ID = "paimon_default"


@dataclass
class PaimonLake:
    """The warehouse, with the table `db.t`: partitioned by dt, with a primary key."""

    folder: Path

    @property
    def connection(self) -> dict[str, Any]:
        return {"conn_type": "paimon", "extra": {"warehouse": str(self.folder)}}

    @property
    def location(self) -> str:
        return f"{self.folder}/db.db/t"

    @cached_property
    def table(self) -> PaimonBuilder:
        return PaimonBuilder(
            load_file_io(),
            self.location,
            fields={"id": "BIGINT", "dt": "DATE"},
            partition_keys=["dt"],
            primary_keys=["dt", "id"],
        )

    def write(self, name: str, *, day: int = 0, rows: int = 1, level: int = 0, **more: Any) -> dict[str, Any]:
        """Commit a snapshot with a file in the partition of a day since 1970."""
        return self.table.commit([self.table.add(name, partition=(day,), rows=rows, level=level)], **more)
