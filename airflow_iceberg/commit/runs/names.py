"""What the names of data files tell: whose new rows a file holds, also after its snapshot has expired."""

from __future__ import annotations

from airflow_iceberg.commit.operation_key import APPENDED_FILE
from airflow_iceberg.commit.runs.rows import has_only_new_rows
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata


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
    name = name_of(path)
    if not APPENDED_FILE.match(name):
        return None, 0, 0
    token, epoch, try_number, _ = name.split("-", 3)
    return token, int(epoch), int(try_number)


def name_of(path: str) -> str:
    """Return the name of a file."""
    return path.rsplit("/", 1)[-1]
