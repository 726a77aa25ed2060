"""What the names of data files tell: whose new rows a file holds, also after its snapshot has expired."""

from __future__ import annotations

import re

from airflow_iceberg.commit.operation_key import APPENDED_FILE
from airflow_iceberg.commit.runs.marks import Mark
from airflow_iceberg.commit.runs.rows import has_only_new_rows
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata

_HASH = re.compile(r"^[01]{8}-")


def is_appended(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether a file is known to hold new rows, and not rows of older files."""
    if APPENDED_FILE.match(name_of(entry.data_file.file_path)):
        return True
    snapshot = None if entry.snapshot_id is None else metadata.snapshot(entry.snapshot_id)
    return snapshot is not None and has_only_new_rows(snapshot)


def token_of(path: str) -> str | None:
    """Return the token of the task in the path of a file with new rows; None for any other file."""
    return parts_of(path)[0]


def parts_of(path: str) -> tuple[str | None, int, int]:
    """Return token, epoch and try in the path of a file with new rows; None for the token of any other file."""
    found = APPENDED_FILE.match(name_of(path))
    return (None, 0, 0) if found is None else (found["token"], int(found["epoch"]), int(found["try"]))


def mark_of(path: str) -> Mark | None:
    """Return the mark in the path of a file with new rows; None for any other file, and for files of older versions."""
    found = APPENDED_FILE.match(name_of(path))
    return None if found is None else Mark.of(found)


def name_of(path: str) -> str:
    """Return the name of a file, without the hash that an object store may want at its beginning."""
    return _HASH.sub("", path.rsplit("/", 1)[-1])
