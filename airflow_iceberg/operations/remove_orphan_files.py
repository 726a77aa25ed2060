"""Orphan files: files below a table's location that are not the table's; quarantined, or deleted.

Here: `remove_orphan_files`. Not here: quarantines (`operations.quarantine`), comparing locations (`plan.orphan_files`),
files of expired snapshots (`operations.expire_snapshots`).

The location is listed first and the table is loaded afterwards, so that a file that is committed in between is known.
Files younger than a safe age are always kept, since no table has those of a running job yet. A job that runs for longer
is known by its staging folder, whose youngest document is young.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.inventory.listed_files import METADATA, OLD, STAGED, find_folders, is_metadata_file, statuses
from airflow_iceberg.inventory.named_files import find_manifests
from airflow_iceberg.inventory.reachable_files import statistics_paths
from airflow_iceberg.inventory.run import Progress, in_bytes
from airflow_iceberg.inventory.spellings import Spellings, links_below
from airflow_iceberg.inventory.units import ListingUnit, UnitResult, listing_units, manifest_units
from airflow_iceberg.operations.file_inventory import FileInventory, expected_files
from airflow_iceberg.operations.quarantine import Quarantine, move_to_quarantine, purge
from airflow_iceberg.operations.removal.shared_location import check_not_shared, without_files_of_others
from airflow_iceberg.operations.staging import STAGING_FOLDER, living_jobs, of_dead_jobs, remove_folders
from airflow_iceberg.operations.work import Work, reread
from airflow_iceberg.plan.expire_snapshots import check_may_delete
from airflow_iceberg.plan.orphan_files import MISMATCH_MODES, EqualStores, KnownFiles, older_than_ms
from airflow_iceberg.storage.base import FileStatus
from airflow_iceberg.storage.gate import check_own
from airflow_iceberg.storage.paths_within import relative_path

if TYPE_CHECKING:
    from airflow_iceberg.inventory.run import RunUnits

log = logging.getLogger(__name__)

ACTIONS = ("quarantine", "delete", "dry_run")
THREADS = 8
BATCH = 1000
# Tables with fewer files are listed in one call: finding folders to list in parallel would take longer.
LISTED_AT_ONCE = 10_000
MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveOrphanFilesRequest:
    """What is removed; the words of Iceberg's `remove_orphan_files`.

    Attributes:
        action: one of ACTIONS: move orphan files to the quarantine, delete them permanently, or report them.
        older_than_ms: the time before which orphan files were written; 3 days ago by default.
        allow_recent: whether that time may be less than 24 hours ago.
        location: a folder below the table's location; all of it by default.
        equal_schemes, equal_authorities: other names of one store, `{"s3a,s3n": "s3"}`.
        prefix_mismatch_mode: the treatment of known paths under another scheme or authority: "error", "ignore" keeps
            them, "delete" takes them for orphan files.
        purge_older_than_ms: the time before which quarantines are deleted permanently; None keeps them.
    """

    action: str = "quarantine"
    older_than_ms: int | None = None
    allow_recent: bool = False
    location: str | None = None
    equal_schemes: dict[str, str] = field(default_factory=dict)
    equal_authorities: dict[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: str = "error"
    purge_older_than_ms: int | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise InvalidInputError(f"unknown action {self.action!r}; one of {', '.join(ACTIONS)}")
        if self.prefix_mismatch_mode not in MISMATCH_MODES:
            raise InvalidInputError(
                f"unknown prefix_mismatch_mode {self.prefix_mismatch_mode!r}; one of {', '.join(MISMATCH_MODES)}"
            )
        EqualStores.of(self.equal_schemes, self.equal_authorities)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveOrphanFilesResult(OperationResult):
    """What was found and done.

    Attributes:
        action: the action of the request.
        orphan_files, orphan_files_size_bytes: orphan files of this call, with a quarantine of all tries of the task.
        orphans: locations of the first orphan files.
        quarantine: name of the quarantine, for `restore_quarantine`; None if there is none.
        staging_files, staging_files_size_bytes: deleted documents of jobs that died long ago.
        purged_quarantines: names of quarantines that were deleted permanently.
    """

    action: str = "quarantine"
    listed_files: int = 0
    orphan_files: int = 0
    orphan_files_size_bytes: int = 0
    orphans: tuple[str, ...] = ()
    quarantine: str | None = None
    staging_files: int = 0
    staging_files_size_bytes: int = 0
    purged_quarantines: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield lines for the log."""
        done = f"moved to quarantine {self.quarantine}" if self.quarantine else "deleted"
        what = {Outcome.COMMITTED: done, Outcome.DRY_RUN: "found, nothing was touched"}.get(self.outcome, "found")
        size = in_bytes(self.orphan_files_size_bytes)
        yield f"{self.orphan_files} orphan files of {self.listed_files} files, {size}, {what}"
        for location in self.orphans:
            yield f"orphan file: {location}"
        if self.staging_files:
            size = in_bytes(self.staging_files_size_bytes)
            yield f"{self.staging_files} documents of jobs that died long ago, {size}"
        for name in self.purged_quarantines:
            yield f"quarantine {name} is deleted permanently"


def remove_orphan_files(
    work: Work, request: RemoveOrphanFilesRequest, *, inventory: RunUnits | None = None
) -> RemoveOrphanFilesResult:
    """Find the files below a table that do not belong to it, and quarantine or delete them.

    Args:
        inventory: lists the files and reads the manifests, here or on Spark; in this process by default.

    Raises:
        InvalidInputError: `gc.enabled` is false, a time that is too recent, a location outside of the table, or files
            of the table under another scheme or authority.
        IncompatibleChangeError: another table is stored in the same location or below it; nothing was changed.
        FormatError, NotFoundError, StorageError: the table cannot be read completely; nothing was changed.
    """
    table = work.table
    check_may_delete(table.metadata)
    check_own(table.io, table.location, "remove orphan files of")
    inventory = inventory or FileInventory(work)
    now = now_ms()
    before_ms = older_than_ms(request.older_than_ms, now_ms=now, allow_recent=request.allow_recent)
    listed = _Listing.of(table, request, before_ms, inventory)
    table.refresh()
    check_may_delete(table.metadata)
    check_not_shared(table, listed.metadata_files)
    check_own(table.deleting_io(), table.location, "remove orphan files of")
    orphans = without_files_of_others(table, reread(table, lambda: _orphans(table, listed, request, inventory)))
    found = RemoveOrphanFilesResult(
        table=table.name,
        outcome=Outcome.DRY_RUN if request.action == "dry_run" else Outcome.NOTHING,
        action=request.action,
        operation_key=work.key_text,
        listed_files=listed.count,
        orphan_files=len(orphans),
        orphan_files_size_bytes=sum(status.size_bytes for status in orphans),
        orphans=tuple(status.location for status in orphans[:MOST_SHOWN]),
        staging_files=len(listed.staging),
        staging_files_size_bytes=sum(status.size_bytes for status in listed.staging),
    )
    if request.action == "dry_run":
        return found
    quarantine = None
    if request.action == "quarantine":
        quarantine = move_to_quarantine(table, orphans, now_ms=now, operation_key=work.operation_key)
        found = _with_quarantine(found, quarantine)
    elif orphans:
        _delete(table, orphans, "orphan files")
        found = replace(found, outcome=Outcome.COMMITTED)
    _delete(table, listed.staging, "files of dead jobs")
    remove_folders(table.io, table.location, (status.location for status in listed.staging))
    purged = () if request.purge_older_than_ms is None else purge(table, request.purge_older_than_ms, keep=quarantine)
    return replace(found, purged_quarantines=purged)


def _with_quarantine(found: RemoveOrphanFilesResult, quarantine: Quarantine | None) -> RemoveOrphanFilesResult:
    """Return the result with the files that all tries of the task have quarantined."""
    if quarantine is None:
        return found
    return replace(
        found,
        outcome=Outcome.COMMITTED,
        quarantine=quarantine.name,
        orphan_files=len(quarantine.files),
        orphan_files_size_bytes=sum(file.size_bytes for file in quarantine.files),
        orphans=tuple(file.location for file in quarantine.files[:MOST_SHOWN]),
    )


# -- the files in the store --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listing:
    """Files below a table.

    Attributes:
        count: the number of listed files.
        parts: packed results of the listing, with all files that are old enough to be orphans.
        staging: old documents of jobs.
        of_living_jobs: matches the names of files of jobs that may be running; None without such jobs.
        metadata_files: files that are named like a table's metadata, of any age.
    """

    count: int
    parts: tuple[UnitResult, ...]
    staging: tuple[FileStatus, ...]
    of_living_jobs: re.Pattern[str] | None
    metadata_files: tuple[str, ...]

    @classmethod
    def of(cls, table: OpenTable, request: RemoveOrphanFilesRequest, before_ms: int, inventory: RunUnits) -> _Listing:
        root = f"{table.location.rstrip('/')}/"
        documents = f"{root}{STAGING_FOLDER}/"
        below = f"{(request.location or table.location).rstrip('/')}/"
        if below != root and relative_path(below.rstrip("/"), root) is None:
            raise InvalidInputError(f"location {request.location} is not below the table's, {table.location}")
        _warn_of_other_places(table, root)
        metadata_files: list[str] = []
        # A table in the same location has its files in the same folders, and its metadata next to this table's; one
        # that the folder is in has it on the way there. What is in the folder is listed with its files.
        for above in _folders_above(below, root):
            beside = (status.location for status in table.io.list(f"{above}metadata/"))
            metadata_files += [location for location in beside if is_metadata_file(location)]
        units = _listing_units(table, root, below[len(root) :].rstrip("/"), before_ms)
        parts: list[UnitResult] = []
        staging: list[FileStatus] = []
        for part in inventory(units, what="files below the table", files=expected_files(table.metadata)):
            parts.append(part)
            # Without the files that are only old, the great majority.
            others = (batch.filter(number_array(numbers_of(batch.column("kind")) != OLD)) for batch in part.batches())
            found = [(status, kind) for batch in others for status, kind in statuses(batch)]
            staging += [status for status, kind in found if kind & STAGED]
            metadata_files += [status.location for status, kind in found if kind & METADATA]
        return cls(
            count=sum(part.files for part in parts),
            parts=tuple(parts),
            staging=of_dead_jobs(staging, documents, before_ms),
            of_living_jobs=living_jobs(staging if below == root else table.io.list(documents), documents, before_ms),
            metadata_files=tuple(metadata_files),
        )

    def old(self) -> Iterator[list[FileStatus]]:
        """Yield the files that are old enough to be orphans, in batches."""
        for part in self.parts:
            for batch in part.batches():
                yield [status for status, kind in statuses(batch) if kind & OLD and not self._is_written(status)]

    def _is_written(self, status: FileStatus) -> bool:
        """Whether a job that may be running has written a file: one that runs for days has old files, too."""
        jobs = self.of_living_jobs
        return jobs is not None and jobs.match(status.location.rpartition("/")[2]) is not None


def _folders_above(folder: str, root: str) -> Iterator[str]:
    """Yield the folders above a folder up to the table's location, each with a slash at its end."""
    names = [name for name in folder[len(root) :].split("/") if name]
    yield from (root + "".join(f"{name}/" for name in names[:count]) for count in range(len(names)))


def _listing_units(table: OpenTable, root: str, below: str, before_ms: int) -> list[ListingUnit]:
    names = {name for spec in table.metadata.partition_specs for name in (field.name for field in spec.fields)}
    names |= {quote_plus(name) for name in names}
    unit = ListingUnit(root=root, folders=(below,), partition_names=tuple(sorted(names)), before_ms=before_ms)
    if expected_files(table.metadata) < LISTED_AT_ONCE:
        return [unit]
    return listing_units(unit, find_folders(table.io, root, below))


def _warn_of_other_places(table: OpenTable, root: str) -> None:
    for name in (TableProperties.data_path.name, TableProperties.metadata_path.name):
        place = table.properties.get(name)
        if place is not None and not f"{place.rstrip('/')}/".startswith(root):
            log.warning("%s: orphans in %s (%s) are not looked for, only below %s", table.name, place, name, root)


# -- the table's files -------------------------------------------------------------------------------------------------


def _orphans(
    table: OpenTable, listed: _Listing, request: RemoveOrphanFilesRequest, inventory: RunUnits
) -> list[FileStatus]:
    known = known_files(table, EqualStores.of(request.equal_schemes, request.equal_authorities), inventory=inventory)
    log.info("%s: %d files are listed, the table's metadata names %d", table.name, listed.count, len(known))
    orphans: list[FileStatus] = []
    doubtful: list[FileStatus] = []
    for files in map(partial(_with_plain_names, table), listed.old()):
        verdicts = known.classify_all([status.location for status in files])
        orphans += [status for status, verdict in zip(files, verdicts, strict=True) if verdict == "orphan"]
        doubtful += [status for status, verdict in zip(files, verdicts, strict=True) if verdict == "doubtful"]
    if doubtful and request.prefix_mismatch_mode == "error":
        first = doubtful[0].location
        raise InvalidInputError(
            f"{len(doubtful)} files of table {table.name} are listed under another scheme or authority than in the "
            f"table: {first}, there under {' and '.join(known.stores_of(first))}; declare equivalent names in "
            f"equal_schemes or equal_authorities, or set prefix_mismatch_mode to ignore (keep) or delete; nothing was "
            f"changed"
        )
    return [*orphans, *doubtful] if request.prefix_mismatch_mode == "delete" else orphans


def _with_plain_names(table: OpenTable, files: Sequence[FileStatus]) -> list[FileStatus]:
    """Return the files whose names no store can take for another path."""
    plain = [status for status in files if relative_path(status.location, table.location) is not None]
    if len(plain) < len(files):
        count = len(files) - len(plain)
        log.warning("%s: %d files have names with hidden slashes, dots or controls; not touched", table.name, count)
    return plain


def known_files(
    table: OpenTable, equal_stores: EqualStores | None = None, *, inventory: RunUnits | None = None
) -> KnownFiles:
    """Return all files that the table's metadata leads to, over all of its snapshots.

    Args:
        inventory: a function that reads the manifests, here or on Spark; in this process by default.

    Raises:
        FormatError, NotFoundError, StorageError: a file cannot be read.
    """
    metadata = table.metadata
    spellings = Spellings(table.location, links_below(table.io, table.location))
    known = spellings.known_files(equal_stores)
    lists = (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list)
    hint = f"{table.metadata_location.rpartition('/')[0]}/version-hint.text"
    log_files = (location for _, location in metadata.metadata_log)
    manifests = find_manifests(table.io, metadata.snapshots)
    for some in ((table.metadata_location, hint), log_files, statistics_paths(metadata), lists, manifests):
        spellings.add(known, some)
    units = manifest_units(manifests.values(), is_live=True, folders=spellings.folders)
    for part in (inventory or FileInventory(Work(table)))(units, what="files of the table"):
        for batch in part.batches():
            spellings.add_batch(known, batch)
    return known


def _delete(table: OpenTable, files: Sequence[FileStatus], what: str) -> None:
    progress = Progress(f"{table.name}: deleting {what}", whole=len(files))
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        table.io.delete([status.location for status in batch])
        progress.count(len(batch), sum(status.size_bytes for status in batch))
        progress.finish(len(batch))
