"""A FileIO that records every call, and the metadata of an attacker who can commit to a table."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.engine import commit
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.table import Table
from tests.support.changes import HURRY, live_entries


class RecordingFileIO(FileIO):
    """Passes each call on; `calls` has its name and location."""

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.calls.append(("read", location))
        return self.inner.read(location, offset=offset, length=length)

    def create(self, location: str, data: bytes) -> None:
        self.calls.append(("create", location))
        self.inner.create(location, data)

    def list(self, prefix: str) -> Iterator[FileStatus]:
        self.calls.append(("list", prefix))
        return self.inner.list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        given = [*locations]
        self.calls += (("delete", location) for location in given)
        self.inner.delete(given)

    def exists(self, location: str) -> bool:
        self.calls.append(("exists", location))
        return self.inner.exists(location)

    def within(self, roots: Any) -> FileIO | None:
        inner = self.inner.within(roots)
        if inner is None:
            return None
        found = RecordingFileIO(inner)
        found.calls = self.calls
        return found

    def filesystem(self, location: str) -> tuple[Any, str]:
        self.calls.append(("open", location))
        return self.inner.filesystem(location)


def forged(metadata: TableMetadata, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a metadata file after a change of its JSON."""
    document = metadata_json.to_dict(metadata)
    change(document)
    return json.dumps(document).encode()


def commit_foreign_file(catalog: Catalog, table: str, path: str) -> TableState:
    """Commit a data file with another path, as an attacker does who writes manifests without this package."""
    found = Table.load(catalog, table)
    file = replace(live_entries(found)[0].data_file, file_path=path)
    action = AppendFiles(found.io, [file], found.commit_settings(), written_schema=found.schema())
    return commit(catalog, catalog.load(table), action, clock=HURRY).state
