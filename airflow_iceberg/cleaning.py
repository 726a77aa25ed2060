"""Orphan files: what lies below a table and is not the table's; moved into a quarantine, from which it can come back.

Here: `remove_orphans`, `restore_quarantine` and the quarantine's folders. Not here: comparing locations
(`plan.orphans`), files of expired snapshots (`expiring`).

The location is listed first and the table is loaded afterwards, so that a file that is committed in between is known;
files younger than a safe age stay in any case, since those of a running job are in no table yet.

A quarantine is a folder `<table>/.quarantine/<run>/`: a list, written before the first file is moved, and the files
under their paths below the table. Nothing hidden is ever listed, so a quarantine is not looked at again but by its own
functions.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from uuid import uuid4

from airflow_iceberg.changing import now_ms
from airflow_iceberg.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.expired_meanwhile import on_newest
from airflow_iceberg.plan.orphans import MISMATCH_MODES, KnownFiles, Spelling, older_than_ms
from airflow_iceberg.plan.retention import check_may_delete
from airflow_iceberg.reachability import statistics_paths
from airflow_iceberg.shared_location import check_not_shared
from airflow_iceberg.spec._fields import Fields
from airflow_iceberg.staging import STAGING_FOLDER, of_dead_jobs
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.walk.listing import (
    METADATA,
    OLD,
    QUARANTINE_FOLDER,
    STAGED,
    find_folders,
    is_metadata_file,
    listing_units,
    statuses,
)
from airflow_iceberg.walk.manifests import find_manifests, hashed_paths
from airflow_iceberg.walk.running import Progress, in_bytes
from airflow_iceberg.walk.units import ListingUnit, Outcome, manifest_units
from airflow_iceberg.walking import Walker, expected_files

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.commit.operation import OperationKey
    from airflow_iceberg.table import Table
    from airflow_iceberg.walking import Walk

log = logging.getLogger(__name__)

QUARANTINE = QUARANTINE_FOLDER
LIST = "list.jsonl"
ACTIONS = ("quarantine", "delete", "dry-run")
THREADS = 8
BATCH = 1000
# Smaller tables are listed in one go: looking for folders to list side by side would take longer.
LISTED_AT_ONCE = 10_000
MOST_SHOWN = 20
# So much of two files is compared at a time.
CHUNK = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class OrphanRequest:
    """What is asked for; the words of Iceberg's `remove_orphan_files`.

    Attributes:
        action: one of ACTIONS: move orphans into the quarantine, delete them for good, or only say which they are.
        older_than_ms: files written before that moment; 3 days ago by default.
        allow_recent: take a moment of less than 24 hours ago.
        location: a folder below the table's location; all of it by default.
        equal_schemes, equal_authorities: spellings of one store, `{"s3a,s3n": "s3"}`.
        prefix_mismatch_mode: what to do about the same path under another scheme or authority: "error", "ignore" keeps
            it, "delete" takes it for an orphan.
        purge_older_than_ms: quarantines of before that moment are deleted for good; None keeps them.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class OrphanResult:
    """What was found and done.

    Attributes:
        outcome: "quarantined", "deleted", "dry-run" or "nothing".
        orphan_files, orphan_bytes: that were found by this call.
        orphans: locations of the first of them.
        quarantine: name of the quarantine, for `restore_quarantine`; None if there is none.
        staging_files, staging_bytes: documents of jobs that died long ago, removed.
        purged_quarantines: names of quarantines that were deleted for good.
    """

    table: str
    outcome: str
    listed_files: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0
    orphans: tuple[str, ...] = ()
    quarantine: str | None = None
    staging_files: int = 0
    staging_bytes: int = 0
    purged_quarantines: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield what people read of it."""
        what = {
            "quarantined": f"moved to quarantine {self.quarantine}",
            "deleted": "deleted",
            "dry-run": "found, nothing was touched",
        }.get(self.outcome, "found")
        yield f"{self.orphan_files} orphans of {self.listed_files} files, {in_bytes(self.orphan_bytes)}, {what}"
        for location in self.orphans:
            yield f"orphan: {location}"
        if self.staging_files:
            yield f"{self.staging_files} documents of jobs that died long ago, {in_bytes(self.staging_bytes)}"
        for name in self.purged_quarantines:
            yield f"quarantine {name} is deleted for good"

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {**found, "orphans": list(self.orphans), "purged_quarantines": list(self.purged_quarantines)}


def remove_orphans(
    table: Table, request: OrphanRequest, *, operation: OperationKey | None = None, walk: Walk | None = None
) -> OrphanResult:
    """Find the files below a table that are not the table's, and put them out of the way.

    Args:
        operation: key of the Airflow task, for the quarantine's name.
        walk: lists the files and reads the manifests, here or on Spark; in this process by default.

    Raises:
        InvalidInputError: `gc.enabled` is false, a moment that is too recent, a location outside of the table, or files
            of the table under another scheme or authority.
        IncompatibleChangeError: another table lies in the same location or below it; nothing was touched.
        FormatError, NotFoundError, StorageError: the table cannot be read whole; nothing was touched.
    """
    check_may_delete(table.metadata)
    walk = walk or Walker(table)
    now = now_ms()
    before_ms = older_than_ms(request.older_than_ms, now_ms=now, allow_recent=request.allow_recent)
    listed = _Listing.of(table, request, before_ms, walk)
    table.refresh()
    check_may_delete(table.metadata)
    check_not_shared(table, listed.metadata_files)
    orphans = on_newest(table, lambda: _orphans(table, listed, request, walk))
    found = OrphanResult(
        table=table.name,
        outcome="dry-run" if request.action == "dry-run" else "nothing",
        listed_files=listed.count,
        orphan_files=len(orphans),
        orphan_bytes=sum(status.size_bytes for status in orphans),
        orphans=tuple(status.location for status in orphans[:MOST_SHOWN]),
        staging_files=len(listed.staging),
        staging_bytes=sum(status.size_bytes for status in listed.staging),
    )
    if request.action == "dry-run":
        return found
    return _carry_out(table, request, found, orphans, listed, now, operation)


def _carry_out(
    table: Table,
    request: OrphanRequest,
    found: OrphanResult,
    orphans: Sequence[FileStatus],
    listed: _Listing,
    now: int,
    operation: OperationKey | None,
) -> OrphanResult:
    from dataclasses import replace

    name = None
    if orphans and request.action == "quarantine":
        name = _quarantine(table, orphans, now, operation)
        found = replace(found, outcome="quarantined", quarantine=name)
    elif orphans:
        _delete(table, orphans, "orphan files")
        found = replace(found, outcome="deleted")
    _delete(table, listed.staging, "files of dead jobs")
    purged = () if request.purge_older_than_ms is None else _purge(table, request.purge_older_than_ms, keep=name)
    return replace(found, purged_quarantines=purged)


# -- what lies there ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listing:
    """Files below a table.

    Attributes:
        count: all that were looked at.
        parts: what came of listing them, packed; files that are old enough to be orphans among them.
        staging: old documents of jobs.
        metadata_files: everything that is named like a table's metadata, however young.
    """

    count: int
    parts: tuple[Outcome, ...]
    staging: tuple[FileStatus, ...]
    metadata_files: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, request: OrphanRequest, before_ms: int, walk: Walk) -> _Listing:
        root = f"{table.location.rstrip('/')}/"
        below = f"{(request.location or table.location).rstrip('/')}/"
        if not below.startswith(root):
            raise InvalidInputError(f"location {request.location} is not below the table's, {table.location}")
        _warn_of_other_places(table, root)
        metadata_files: list[str] = []
        if below != root:
            # Whoever shares the location has his files in the same folders, and his metadata beside the table's.
            beside = (status.location for status in table.io.list(f"{root}metadata/"))
            metadata_files += [location for location in beside if is_metadata_file(location)]
        units = _listing_units(table, root, below[len(root) :].rstrip("/"), before_ms)
        parts: list[Outcome] = []
        staging: list[FileStatus] = []
        for part in walk(units, what="files below the table", files=expected_files(table.metadata)):
            parts.append(part)
            found = [(status, kind) for batch in part.batches() for status, kind in statuses(_but_old(batch))]
            staging += [status for status, kind in found if kind & STAGED]
            metadata_files += [status.location for status, kind in found if kind & METADATA]
        return cls(
            count=sum(part.files for part in parts),
            parts=tuple(parts),
            staging=of_dead_jobs(staging, f"{root}{STAGING_FOLDER}/", before_ms),
            metadata_files=tuple(metadata_files),
        )

    def old(self) -> Iterator[list[FileStatus]]:
        """Yield the files that are old enough to be orphans, some at a time."""
        for part in self.parts:
            for batch in part.batches():
                yield [status for status, kind in statuses(batch) if kind & OLD]


def _but_old(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the files of a batch that are something else than old."""
    import pyarrow as pa

    return batch.filter(pa.array(batch.column("kind").to_numpy() != OLD))


def _listing_units(table: Table, root: str, below: str, before_ms: int) -> list[ListingUnit]:
    names = {name for spec in table.metadata.partition_specs for name in (field.name for field in spec.fields)}
    names |= {quote_plus(name) for name in names}
    unit = ListingUnit(root=root, folders=(below,), partition_names=tuple(sorted(names)), before_ms=before_ms)
    if expected_files(table.metadata) < LISTED_AT_ONCE:
        return [unit]
    return listing_units(unit, find_folders(table.io, root, below))


def _warn_of_other_places(table: Table, root: str) -> None:
    for name in ("write.data.path", "write.metadata.path"):
        place = table.properties.get(name)
        if place is not None and not f"{place.rstrip('/')}/".startswith(root):
            log.warning("%s: orphans in %s (%s) are not looked for, only below %s", table.name, place, name, root)


# -- what is the table's -----------------------------------------------------------------------------------------------


def _orphans(table: Table, listed: _Listing, request: OrphanRequest, walk: Walk) -> list[FileStatus]:
    known = known_files(table, Spelling.of(request.equal_schemes, request.equal_authorities), walk=walk)
    log.info("%s: %d files are listed, the table knows %d", table.name, listed.count, len(known))
    orphans: list[FileStatus] = []
    doubtful: list[FileStatus] = []
    for files in listed.old():
        verdicts = known.judge_all([status.location for status in files])
        orphans += [status for status, verdict in zip(files, verdicts, strict=True) if verdict == "orphan"]
        doubtful += [status for status, verdict in zip(files, verdicts, strict=True) if verdict == "doubtful"]
    if doubtful and request.prefix_mismatch_mode == "error":
        first = doubtful[0].location
        raise InvalidInputError(
            f"{len(doubtful)} files of table {table.name} lie under another scheme or authority than the table names "
            f"them by: {first}, which it knows under {' and '.join(known.spellings(first))}; say which are the same in "
            f"equal_schemes or equal_authorities, or set prefix_mismatch_mode to ignore (keep) or delete; nothing was "
            f"touched"
        )
    return [*orphans, *doubtful] if request.prefix_mismatch_mode == "delete" else orphans


def known_files(table: Table, spelling: Spelling | None = None, *, walk: Walk | None = None) -> KnownFiles:
    """Return every file that the table's metadata leads to, over all of its snapshots.

    Args:
        walk: reads the manifests, here or on Spark; in this process by default.
    Raises:
        FormatError, NotFoundError, StorageError: something cannot be read.
    """
    metadata = table.metadata
    known = KnownFiles(spelling)
    known.add([table.metadata_location, *(location for _, location in metadata.metadata_log)])
    known.add([f"{table.metadata_location.rpartition('/')[0]}/version-hint.text"])
    known.add(statistics_paths(metadata))
    known.add(snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list)
    manifests = find_manifests(table.io, metadata.snapshots)
    known.add(manifests)
    units = manifest_units(manifests.values(), is_live=True)
    for part in (walk or Walker(table))(units, what="files of the table"):
        for batch in part.batches():
            known.add_hashed(hashed_paths(batch))
    return known


def _delete(table: Table, files: Sequence[FileStatus], what: str) -> None:
    progress = Progress(f"{table.name}: deleting {what}", whole=len(files))
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        table.io.delete([status.location for status in batch])
        progress.come_past(len(batch), sum(status.size_bytes for status in batch))
        progress.finish(len(batch))


# -- the quarantine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantinedFile:
    """A file that was moved.

    Attributes:
        location: where it was.
        quarantined: where it is.
    """

    location: str
    quarantined: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreResult:
    """What came back from a quarantine."""

    table: str
    quarantine: str
    restored_files: int
    restored_bytes: int

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def quarantines(table: Table) -> tuple[str, ...]:
    """Return the names of a table's quarantines, oldest first."""
    root = f"{table.location.rstrip('/')}/{QUARANTINE}/"
    return tuple(
        sorted(
            status.location[len(root) :].partition("/")[0]
            for status in table.io.list(root)
            if status.location.endswith(f"/{LIST}") and status.location[len(root) :].count("/") == 1
        )
    )


def restore_quarantine(table: Table, name: str) -> RestoreResult:
    """Move the files of a quarantine back to where they were, and forget the quarantine.

    A file whose place is taken stays in the quarantine, and so does the list. Restoring twice does the rest: what a try
    that died had copied, in whole or in part, does not take the place. Half of a copy, of a move into the quarantine
    that died, is removed.

    Raises:
        NotFoundError: no such quarantine.
        AlreadyExistsError: places are taken; what could be restored was.
        FormatError: the list is damaged.
    """
    location = _list_location(table, name)
    try:
        files = list(_read_list(location, table.io.read(location)))
    except NotFoundError as error:
        known = ", ".join(quarantines(table)) or "none"
        raise NotFoundError(f"table {table.name} has no quarantine {name!r}; it has: {known}") from error
    sizes = {status.location: status.size_bytes for status in table.io.list(f"{_home(table, name)}/files/")}
    # Half of a copy is of a move that died: its original was not removed before the copy was whole.
    whole = [file for file in files if sizes.get(file.quarantined) == file.size_bytes]
    with ThreadPoolExecutor(THREADS) as pool:
        is_back = list(pool.map(lambda file: _restore(table.io, file), whole))
    back = [file for file, came in zip(whole, is_back, strict=True) if came]
    taken = [file for file, came in zip(whole, is_back, strict=True) if not came]
    if taken:
        raise AlreadyExistsError(
            f"{len(taken)} files of quarantine {name} stay there, since their places are taken: {taken[0].location} is "
            f"there; {len(back)} files were restored"
        )
    torn = [file.quarantined for file in files if sizes.get(file.quarantined, file.size_bytes) != file.size_bytes]
    table.io.delete([*torn, location])
    size = sum(file.size_bytes for file in back)
    return RestoreResult(table=table.name, quarantine=name, restored_files=len(back), restored_bytes=size)


def _restore(io: FileIO, file: QuarantinedFile) -> bool:
    """Move one file back; False if something else is in its place."""
    if not io.exists(file.location):
        _move(io, file.quarantined, file.location, file.size_bytes)
        return True
    copied = _common_bytes(io, file)
    if copied is None:
        return False
    if copied < file.size_bytes:
        _move(io, file.quarantined, file.location, file.size_bytes)
    else:
        # The copy was whole, and the one that made it died before it could remove the original.
        io.delete([file.quarantined])
    return True


def _common_bytes(io: FileIO, file: QuarantinedFile) -> int | None:
    """Return how much of a quarantined file is in its place already; None if the place holds something else."""
    for offset in range(0, file.size_bytes + 1, CHUNK):
        there = io.read(file.location, offset=offset, length=CHUNK)
        own = io.read(file.quarantined, offset=offset, length=CHUNK)
        if not own.startswith(there):
            return None
        if len(there) < CHUNK:
            return offset + len(there)
    return file.size_bytes


def _quarantine(table: Table, orphans: Sequence[FileStatus], now: int, operation: OperationKey | None) -> str:
    """Write the list, then move the files."""
    name, files = _write_list(table, orphans, now, operation)
    progress = Progress(f"{table.name}: moving orphan files to {_home(table, name)}", whole=len(files))
    with ThreadPoolExecutor(THREADS) as pool:
        moved = pool.map(lambda file: _move(table.io, file.location, file.quarantined, file.size_bytes), files)
        for file, _ in zip(files, moved, strict=True):
            progress.come_past(1, file.size_bytes)
            progress.finish(1)
    return name


def _write_list(
    table: Table, orphans: Sequence[FileStatus], now: int, operation: OperationKey | None
) -> tuple[str, list[QuarantinedFile]]:
    """Write the list of a quarantine under a name that no other one has; return name and files."""
    token = uuid4().hex[:12] if operation is None else operation.file_token
    root = table.location.rstrip("/")
    head = json.dumps({"version": 1, "moved-at-ms": now, "table-uuid": table.metadata.table_uuid})
    # Two tries of a task may come in one millisecond: the second one takes the next.
    for moment_ms in itertools.count(now):
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        name = f"{moment}-{token}"
        files = [
            QuarantinedFile(
                location=status.location,
                quarantined=f"{_home(table, name)}/files/{status.location[len(root) + 1 :]}",
                size_bytes=status.size_bytes,
            )
            for status in orphans
        ]
        lines = [{"location": f.location, "quarantined": f.quarantined, "size-bytes": f.size_bytes} for f in files]
        try:
            table.io.create(_list_location(table, name), "\n".join([head, *map(json.dumps, lines)]).encode())
        except AlreadyExistsError:
            continue
        return name, files
    raise AssertionError("there is always a next millisecond")


def _purge(table: Table, before_ms: int, *, keep: str | None) -> tuple[str, ...]:
    """Delete quarantines of before a moment for good."""
    gone: list[str] = []
    for name in quarantines(table):
        location = _list_location(table, name)
        if name == keep or _moved_at_ms(location, table.io.read(location)) >= before_ms:
            continue
        files = list(table.io.list(f"{_home(table, name)}/files/"))
        _delete(table, files, f"files of quarantine {name}")
        table.io.delete([location])
        gone.append(name)
    return tuple(gone)


def _home(table: Table, name: str) -> str:
    if not name or "/" in name or name.startswith("."):
        raise InvalidInputError(f"{name!r} is not the name of a quarantine")
    return f"{table.location.rstrip('/')}/{QUARANTINE}/{name}"


def _list_location(table: Table, name: str) -> str:
    return f"{_home(table, name)}/{LIST}"


def _read_list(location: str, data: bytes) -> Iterator[QuarantinedFile]:
    for fields in _lines(location, data)[1:]:
        yield QuarantinedFile(
            location=fields.str("location"),
            quarantined=fields.str("quarantined"),
            size_bytes=fields.int("size-bytes"),
        )


def _moved_at_ms(location: str, data: bytes) -> int:
    return _lines(location, data)[0].int("moved-at-ms")


def _lines(location: str, data: bytes) -> list[Fields]:
    try:
        found = [Fields(json.loads(line), f"line {n}", location) for n, line in enumerate(data.split(b"\n"), 1) if line]
    except ValueError as error:
        raise FormatError(f"the list of a quarantine is damaged: {error}", path=location) from error
    if not found:
        raise FormatError("the list of a quarantine is empty", path=location)
    return found


def _move(io: FileIO, source: str, target: str, size_bytes: int) -> None:
    """Copy a file, look whether all of it is there, and remove the original: at every moment one of them is whole."""
    filesystem, source_path = io.filesystem(source)
    _, target_path = io.filesystem(target)
    try:
        filesystem.makedirs(target_path.rpartition("/")[0], exist_ok=True)
        filesystem.cp_file(source_path, target_path)
        copied = filesystem.size(target_path)
    except FileNotFoundError:
        return  # gone meanwhile: nobody needs to move it
    except OSError as error:
        io.delete([target])
        raise StorageError(f"cannot move {source} to {target}: {error}") from error
    if copied != size_bytes:
        io.delete([target])
        raise StorageError(f"moved {copied} bytes of {source} to {target}, expected {size_bytes}; the original stays")
    io.delete([source])
