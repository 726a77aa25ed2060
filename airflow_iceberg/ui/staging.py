"""The folders that jobs of a task have staged in and that are still there: the try runs, or its worker was killed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.hooks.late_threads import stopper
from airflow_iceberg.hooks.task_key import installation_id
from airflow_iceberg.inventory.limited import LimitedFileIO
from airflow_iceberg.inventory.listed_files import STAGING_FOLDER
from airflow_iceberg.table import Table

MOST_FOLDERS = 20
_MOST_LISTED = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StagingFolder:
    """A folder of one job.

    Attributes:
        files, size_bytes: what is in it, as far as it was listed.
    """

    location: str
    try_number: int | None
    files: int
    size_bytes: int


def staging_folders(table: Table, *, dag_id: str, run_id: str, task_id: str, map_index: int) -> list[StagingFolder]:
    """Return the staging folders of a task instance, by the names of its folders; of the first files of a table alone.

    Raises:
        IcebergError: the store cannot be listed.
    """
    key = OperationKey(
        dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index, installation=installation_id()
    )
    root = f"{table.location}/{STAGING_FOLDER}/"
    sizes: dict[str, list[int]] = {}
    for one in islice(LimitedFileIO(table.io, check=stopper()).list(root), _MOST_LISTED):
        name, slash, _ = one.location.partition(root)[2].partition("/")
        if slash and name.removeprefix("carried-").startswith(f"{key.file_token}-"):
            sizes.setdefault(name, []).append(one.size_bytes)
    return [
        StagingFolder(location=f"{root}{name}", try_number=_try_of(name), files=len(found), size_bytes=sum(found))
        for name, found in sorted(sizes.items())[:MOST_FOLDERS]
    ]


def _try_of(name: str) -> int | None:
    parts = name.removeprefix("carried-").split("-")
    return whole_number(parts[2]) if len(parts) in (4, 5) else None
