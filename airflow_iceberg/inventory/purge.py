"""The files of a table that is dropped with `purge`: found before the drop, deleted after it.

Here: the files that a table's metadata leads to, and the order of their deletion. Not here: reading manifests
(`inventory.units`), the drop itself (each catalog), and orphan files (`operations.remove_orphan_files`).

As in Iceberg Java a table with `gc.enabled=false` keeps its data and delete files, which may be another table's, and
loses everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields

from airflow_iceberg.errors import FormatError, IcebergError, NotFoundError
from airflow_iceberg.format.manifests.entries import ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.named_files import find_manifests
from airflow_iceberg.inventory.reachable_files import statistics_paths
from airflow_iceberg.inventory.run import Progress, run_units
from airflow_iceberg.inventory.units import manifest_units
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.gate import own_only

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFiles:
    """The files of a table, each once.

    Attributes:
        content: data and delete files that are live in any snapshot; none if `gc.enabled` is false.
        metadata: metadata files, the newest last.
    """

    content: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    manifest_lists: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    def outside(self, directory: str) -> TableFiles:
        """Return the files that are not stored below a directory."""
        below = f"{directory.rstrip('/')}/"
        groups = ((each.name, getattr(self, each.name)) for each in fields(self))
        return TableFiles(
            **{name: tuple(path for path in paths if not path.startswith(below)) for name, paths in groups}
        )


def find_files(io: FileIO, table: str, metadata: TableMetadata, metadata_location: str) -> TableFiles:
    """Return the files of a table.

    Args:
        table: name of the table, for messages.
        metadata_location: the metadata file that the catalog points to.

    Raises:
        FormatError: a file that its metadata leads to is damaged or missing.
        StorageError, UnsupportedError: a file cannot be read.
    """
    try:
        manifests = find_manifests(io, metadata.snapshots)
        is_owner = TableProperties.of(metadata.properties).gc_enabled
        content = _content(io, manifests.values(), f"{table}: files to purge") if is_owner else ()
    except (NotFoundError, FormatError) as error:
        raise FormatError(
            f"cannot purge {table}, nothing was dropped: {error}; drop it without purge and delete its files "
            f"below {metadata.location} yourself"
        ) from error
    lists = (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list)
    return TableFiles(
        content=content,
        manifests=tuple(manifests),
        manifest_lists=tuple(dict.fromkeys(lists)),
        statistics=tuple(dict.fromkeys(statistics_paths(metadata))),
        metadata=tuple(dict.fromkeys((*(path for _, path in metadata.metadata_log), metadata_location))),
    )


def delete_files(io: FileIO, table: str, files: TableFiles) -> None:
    """Delete the files of a table that was dropped: each file before the file that names it.

    So the remaining files can be found until the end. A failure is logged and ends the deletion; the drop itself has
    worked. Files outside of the table's own locations are kept.
    """
    groups = (
        ("data and delete files", files.content),
        ("manifests", files.manifests),
        ("manifest lists", files.manifest_lists),
        ("statistics", files.statistics),
        ("metadata files", files.metadata),
    )
    kept = 0
    for what, paths in groups:
        own, foreign = own_only(io, paths)
        kept += foreign
        try:
            io.delete(own)
        except IcebergError as error:
            log.warning(
                "table %s is dropped, but not all of its %s are deleted: %s; to continue, register its newest metadata "
                "file again and purge it: %s",
                table,
                what,
                error,
                files.metadata[-1] if files.metadata else "deleted with its directory",
            )
            return
    counts = ", ".join(f"{len(paths)} {what}" for what, paths in groups)
    log.info("table %s is dropped and purged: %s", table, counts)
    if kept:
        log.warning("%s: %d of these files are kept, since they are outside of the table's own locations", table, kept)


def _content(io: FileIO, manifests: Iterable[ManifestFile], what: str) -> tuple[str, ...]:
    """Return the paths of live entries; several deletion vectors share a file."""
    units = manifest_units(manifests, is_live=True, with_paths=True)
    found: dict[str, None] = {}
    for outcome in run_units(io, units, Progress(what, whole=sum(unit.weight for unit in units))):
        for batch in outcome.batches():
            found |= dict.fromkeys(batch.column("path").to_pylist())
    return tuple(found)
