"""Quarantines of a table: files that were put aside instead of being deleted, and how they come back.

Here: putting aside, listing, restoring, deleting for good. Not here: which files (`operations.remove_orphan_files`).

A quarantine is a folder `<table>/.quarantine/<run>/`: lists, each written before the first of its files is moved, and
the files under their paths below the table. Nothing hidden is ever listed, so a quarantine is not looked at again but
by these functions. All tries of a task share one, with a list each; what a restored one leaves behind is a note that
says so to the next try.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import AlreadyExistsError, FormatError, InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.inventory.listed_files import QUARANTINE_FOLDER
from airflow_iceberg.inventory.run import Progress
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.base import FileIO, FileStatus

if TYPE_CHECKING:
    from airflow_iceberg.commit.operation_key import OperationKey

log = logging.getLogger(__name__)

LIST = "list.jsonl"
RESTORED = "restored.json"
THREADS = 8
BATCH = 1000
# So much of two files is compared at a time.
CHUNK = 8 << 20


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
class Quarantine:
    """Files that were put aside together, by one task."""

    name: str
    files: tuple[QuarantinedFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreResult(OperationResult):
    """What came back from a quarantine, over all tries."""

    quarantine: str
    restored_files: int
    restored_files_size_bytes: int


def quarantines(table: OpenTable) -> tuple[str, ...]:
    """Return the names of a table's quarantines, oldest first."""
    root = f"{table.location.rstrip('/')}/{QUARANTINE_FOLDER}/"
    return tuple(
        sorted(
            status.location[len(root) :].partition("/")[0]
            for status in table.io.list(root)
            if status.location.endswith(f"/{LIST}") and status.location[len(root) :].count("/") == 1
        )
    )


# -- putting aside -----------------------------------------------------------------------------------------------------


def put_aside(
    table: OpenTable, orphans: Sequence[FileStatus], *, now_ms: int, operation_key: OperationKey | None
) -> Quarantine | None:
    """Write a list of files, then move them; return the quarantine with what earlier tries of the task have moved.

    Args:
        operation_key: key of the Airflow task, which the name and the list tell.

    Returns:
        None when neither this try nor an earlier one has put anything aside.
    """
    name = _of_earlier_try(table, operation_key)
    if not orphans:
        return None if name is None else Quarantine(name=name, files=tuple(_read_lists(table, name)))
    name, files = _write_list(table, orphans, now_ms, operation_key, name)
    progress = Progress(f"{table.name}: moving orphan files to {_home(table, name)}", whole=len(files))
    with ThreadPoolExecutor(THREADS) as pool:
        moved = pool.map(lambda file: _move(table.io, file.location, file.quarantined, file.size_bytes), files)
        for file, _ in zip(files, moved, strict=True):
            progress.count(1, file.size_bytes)
            progress.finish(1)
    return Quarantine(name=name, files=tuple(_read_lists(table, name)))


def _of_earlier_try(table: OpenTable, operation_key: OperationKey | None) -> str | None:
    """Return the quarantine that an earlier try of the very same work has begun."""
    if operation_key is None:
        return None
    for name in reversed(quarantines(table)):
        if name.endswith(operation_key.file_token):
            location = _list_location(table, name)
            if _lines(location, table.io.read(location))[0].opt_str("operation-key") == str(operation_key):
                return name
    return None


def _write_list(
    table: OpenTable,
    orphans: Sequence[FileStatus],
    now_ms: int,
    operation_key: OperationKey | None,
    earlier: str | None,
) -> tuple[str, list[QuarantinedFile]]:
    """Write a list under a name that no other one has; return the quarantine's name and the files.

    Args:
        earlier: the quarantine that it belongs to; a new one is made when None.
    """
    root = table.location.rstrip("/")
    head = {"version": 1, "moved-at-ms": now_ms, "table-uuid": table.metadata.table_uuid}
    if operation_key is not None:
        head["operation-key"] = str(operation_key)
    for name, location in _new_lists(table, now_ms, operation_key, earlier):
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
            table.io.create(location, "\n".join(map(json.dumps, [head, *lines])).encode())
        except AlreadyExistsError:
            continue
        return name, files
    raise AssertionError("there is always a next name")


def _new_lists(
    table: OpenTable, now_ms: int, operation_key: OperationKey | None, earlier: str | None
) -> Iterator[tuple[str, str]]:
    """Yield quarantines with the location of a list that may be new."""
    if earlier is not None:
        for number in itertools.count(2):
            yield earlier, f"{_home(table, earlier)}/list-{number}.jsonl"
    token = uuid4().hex[:12] if operation_key is None else operation_key.file_token
    # Two tasks may come in one millisecond: the second one takes the next.
    for moment_ms in itertools.count(now_ms):
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        yield f"{moment}-{token}", _list_location(table, f"{moment}-{token}")


# -- coming back -------------------------------------------------------------------------------------------------------


def restore_quarantine(work: Work, name: str) -> RestoreResult:
    """Move the files of a quarantine back to where they were, and forget the quarantine.

    A file whose place is taken stays in the quarantine, and so does the list. Restoring twice does the rest: what a try
    that died had copied, in whole or in part, does not take the place. Half of a copy, of a move into the quarantine
    that died, is removed.

    Raises:
        NotFoundError: no such quarantine.
        AlreadyExistsError: places are taken; what could be restored was.
        FormatError: the list is damaged.
    """
    table = work.table
    try:
        files = _read_lists(table, name)
    except NotFoundError as error:
        return _restored_before(work, name, error)
    sizes = {status.location: status.size_bytes for status in table.io.list(f"{_home(table, name)}/files/")}
    # Half of a copy is of a move that died: its original was not removed before the copy was whole.
    whole = [file for file in files if sizes.get(file.quarantined) == file.size_bytes]
    gone = [file for file in files if file.quarantined not in sizes]
    with ThreadPoolExecutor(THREADS) as pool:
        is_back = list(pool.map(lambda file: _restore(table.io, file), whole))
        was_back = list(pool.map(lambda file: table.io.exists(file.location), gone))
    taken = [file for file, came in zip(whole, is_back, strict=True) if not came]
    if taken:
        raise AlreadyExistsError(
            f"{len(taken)} files of quarantine {name} stay there, since their places are taken: {taken[0].location} is "
            f"there; {len(whole) - len(taken)} files were restored"
        )
    back = [*whole, *(file for file, there in zip(gone, was_back, strict=True) if there)]
    result = RestoreResult(
        table=table.name,
        outcome=Outcome.COMMITTED,
        operation_key=work.key_text,
        quarantine=name,
        restored_files=len(back),
        restored_files_size_bytes=sum(file.size_bytes for file in back),
    )
    torn = [file.quarantined for file in files if sizes.get(file.quarantined, file.size_bytes) != file.size_bytes]
    _forget(table, result, torn)
    return result


def _restored_before(work: Work, name: str, error: NotFoundError) -> RestoreResult:
    """Return what an earlier try has restored, if it has."""
    table = work.table
    location = f"{_home(table, name)}/{RESTORED}"
    try:
        (fields,) = _lines(location, table.io.read(location))
    except NotFoundError:
        known = ", ".join(quarantines(table)) or "none"
        raise NotFoundError(f"table {table.name} has no quarantine {name!r}; it has: {known}") from error
    return RestoreResult(
        table=table.name,
        outcome=Outcome.FOUND,
        operation_key=work.key_text,
        quarantine=name,
        restored_files=fields.int("restored-files"),
        restored_files_size_bytes=fields.int("restored-bytes"),
    )


def _forget(table: OpenTable, result: RestoreResult, torn: Sequence[str]) -> None:
    """Note what was restored, then remove the lists: the first one last, since it is what makes a quarantine."""
    home = _home(table, result.quarantine)
    note = {"restored-files": result.restored_files, "restored-bytes": result.restored_files_size_bytes}
    try:
        table.io.create(f"{home}/{RESTORED}", json.dumps(note).encode())
    except AlreadyExistsError:
        log.info("%s: an earlier try has restored quarantine %s", table.name, result.quarantine)
    table.io.delete([*torn, *_more_lists(table, result.quarantine)])
    table.io.delete([_list_location(table, result.quarantine)])


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


# -- for good ----------------------------------------------------------------------------------------------------------


def purge(table: OpenTable, before_ms: int, *, keep: Quarantine | None) -> tuple[str, ...]:
    """Delete quarantines of before a moment for good, and what those leave that were restored or never made."""
    gone: list[str] = []
    for name in quarantines(table):
        location = _list_location(table, name)
        is_kept = keep is not None and name == keep.name
        if is_kept or _lines(location, table.io.read(location))[0].int("moved-at-ms") >= before_ms:
            continue
        files = [status.location for status in table.io.list(f"{_home(table, name)}/files/")]
        progress = Progress(f"{table.name}: deleting files of quarantine {name}", whole=len(files))
        for start in range(0, len(files), BATCH):
            table.io.delete(files[start : start + BATCH])
            progress.finish(len(files[start : start + BATCH]))
        table.io.delete(_more_lists(table, name))
        table.io.delete([location])
        gone.append(name)
    table.io.delete(list(_leftovers(table, before_ms)))
    return tuple(gone)


def _leftovers(table: OpenTable, before_ms: int) -> Iterator[str]:
    """Yield old notes of what was restored, and halves of lists that nobody finished to write."""
    root = f"{table.location.rstrip('/')}/{QUARANTINE_FOLDER}/"
    for status in table.io.list(root):
        is_beside_lists = status.location[len(root) :].count("/") == 1
        is_left = status.location.endswith((f"/{RESTORED}", ".tmp"))
        if is_beside_lists and is_left and status.modified_ms is not None and status.modified_ms < before_ms:
            yield status.location


# -- lists -------------------------------------------------------------------------------------------------------------


def _home(table: OpenTable, name: str) -> str:
    if not name or "/" in name or name.startswith("."):
        raise InvalidInputError(f"{name!r} is not the name of a quarantine")
    return f"{table.location.rstrip('/')}/{QUARANTINE_FOLDER}/{name}"


def _list_location(table: OpenTable, name: str) -> str:
    return f"{_home(table, name)}/{LIST}"


def _more_lists(table: OpenTable, name: str) -> list[str]:
    """Return the lists of later tries."""
    home = f"{_home(table, name)}/"
    found = (status.location for status in table.io.list(home))
    return sorted(path for path in found if "/" not in path[len(home) :] and path[len(home) :].startswith("list-"))


def _read_lists(table: OpenTable, name: str) -> list[QuarantinedFile]:
    """Return the files of a quarantine, each once."""
    found: dict[str, QuarantinedFile] = {}
    first = _list_location(table, name)
    lists = {first: table.io.read(first)}
    lists |= {location: table.io.read(location) for location in _more_lists(table, name)}
    for location, data in lists.items():
        for fields in _lines(location, data)[1:]:
            file = QuarantinedFile(
                location=fields.str("location"),
                quarantined=fields.str("quarantined"),
                size_bytes=fields.int("size-bytes"),
            )
            found[file.quarantined] = file
    return list(found.values())


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
