"""Quarantines of a table: orphan files that were moved instead of being deleted, and can be restored.

Here: moving, listing, restoring, deleting permanently. Not here: which files (`operations.remove_orphan_files`).

A quarantine is a folder `<table>/.quarantine/<run>/`: lists, each written before the first of its files is moved, and
the files under their paths below the table. Hidden folders are never listed, so only these functions read a quarantine.
All tries of a task share one, with a list each; a restored quarantine leaves a note for the next try.
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
from airflow_iceberg.errors import AlreadyExistsError, FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.inventory.listed_files import QUARANTINE_FOLDER
from airflow_iceberg.inventory.run import Progress
from airflow_iceberg.jobs.protocol.document import read_bytes, read_object
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.base import FileIO, FileStatus
from airflow_iceberg.storage.gate import check_own
from airflow_iceberg.storage.moving import move_file
from airflow_iceberg.storage.paths_within import relative_path

if TYPE_CHECKING:
    from airflow_iceberg.commit.operation_key import OperationKey

log = logging.getLogger(__name__)

LIST = "list.jsonl"
RESTORED = "restored.json"
THREADS = 8
BATCH = 1000
TITLE = "list of a quarantine"
MOST_LIST_BYTES = 1 << 30
# The bytes of two files that are compared at a time.
CHUNK = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantinedFile:
    """A file that was moved.

    Attributes:
        location: the original location.
        quarantined: the location in the quarantine.
    """

    location: str
    quarantined: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantine:
    """Files that one task has moved."""

    name: str
    files: tuple[QuarantinedFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreResult(OperationResult):
    """What was restored from a quarantine, over all tries."""

    quarantine: str
    restored_files: int
    restored_files_size_bytes: int


def quarantines(table: OpenTable) -> tuple[str, ...]:
    """Return the names of a table's quarantines, oldest first."""
    root = f"{table.location.rstrip('/')}/{QUARANTINE_FOLDER}/"
    found = (status.location[len(root) :].split("/") for status in table.io.list(root))
    return tuple(sorted(path[0] for path in found if path[1:] == [LIST] and not path[0].startswith(".")))


# -- moving files ------------------------------------------------------------------------------------------------------


def move_to_quarantine(
    table: OpenTable, orphans: Sequence[FileStatus], *, now_ms: int, operation_key: OperationKey | None
) -> Quarantine | None:
    """Write a list of files, then move them; return the quarantine with the files that earlier tries have moved, too.

    Args:
        operation_key: key of the Airflow task, in the name and the list.

    Returns:
        None when neither this try nor an earlier one has moved a file.
    """
    name = _of_earlier_try(table, operation_key)
    if not orphans:
        return None if name is None else Quarantine(name=name, files=tuple(_read_lists(table, name)))
    name, files = _write_list(table, orphans, now_ms, operation_key, name)
    progress = Progress(f"{table.name}: moving orphan files to {_home(table, name)}", whole=len(files))
    with ThreadPoolExecutor(THREADS) as pool:
        moved = pool.map(lambda file: _move(table.io, file, is_back=False), files)
        for file, _ in zip(files, moved, strict=True):
            progress.count(1, file.size_bytes)
            progress.finish(1)
    return Quarantine(name=name, files=tuple(_read_lists(table, name)))


def _of_earlier_try(table: OpenTable, operation_key: OperationKey | None) -> str | None:
    """Return the quarantine that an earlier try of the same work has begun."""
    if operation_key is None:
        return None
    for name in reversed(quarantines(table)):
        head = _head(table, name) if name.endswith(operation_key.file_token) else None
        if head is not None and head.data.get("operation-key") == str(operation_key):
            return name
    return None


def _write_list(
    table: OpenTable,
    orphans: Sequence[FileStatus],
    now_ms: int,
    operation_key: OperationKey | None,
    earlier: str | None,
) -> tuple[str, list[QuarantinedFile]]:
    """Write a list under a new name; return the quarantine's name and the files.

    Args:
        earlier: the quarantine of an earlier try; None for a new one.
    """
    root = table.location.rstrip("/")
    head = {"version": 1, "moved-at-ms": now_ms, "table-uuid": table.metadata.table_uuid}
    if operation_key is not None:
        head["operation-key"] = str(operation_key)
    for name, location in _new_lists(table, now_ms, operation_key, earlier):
        files = [
            QuarantinedFile(
                location=status.location,
                quarantined=f"{_home(table, name)}/files/{relative_path(status.location, root)}",
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
    """Yield quarantines, each with the location of a list that may be new."""
    if earlier is not None:
        for number in itertools.count(2):
            yield earlier, f"{_home(table, earlier)}/list-{number}.jsonl"
    token = uuid4().hex[:12] if operation_key is None else operation_key.file_token
    # Of two tasks in one millisecond the second one takes the next.
    for timestamp_ms in itertools.count(now_ms):
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        yield f"{moment}-{token}", _list_location(table, f"{moment}-{token}")


# -- restoring ---------------------------------------------------------------------------------------------------------


def restore_quarantine(work: Work, name: str) -> RestoreResult:
    """Move the files of a quarantine back to their original locations, and remove the quarantine.

    A file whose original location is taken is kept in the quarantine, and so is the list. A second call restores the
    rest: what a killed try had copied, in whole or in part, does not count as taken. A partial copy in the quarantine,
    of a move that was killed, is deleted.

    Raises:
        NotFoundError: no such quarantine.
        AlreadyExistsError: locations are taken; the other files were restored.
        FormatError: the list is damaged.
        InvalidInputError: another table is in the table's place.
    """
    table = work.table
    check_own(table.deleting_io(), table.location, "restore a quarantine of")
    try:
        files = _read_lists(table, name)
    except NotFoundError as error:
        return _restored_before(work, name, error)
    sizes = {status.location: status.size_bytes for status in table.io.list(f"{_home(table, name)}/files/")}
    # A partial copy is of a move that was killed: its original was not deleted before the copy was whole.
    whole = [file for file in files if sizes.get(file.quarantined) == file.size_bytes]
    gone = [file for file in files if file.quarantined not in sizes]
    with ThreadPoolExecutor(THREADS) as pool:
        is_back = list(pool.map(lambda file: _restore(table.io, file), whole))
        was_back = list(pool.map(lambda file: table.io.exists(file.location), gone))
    taken = [file for file, came in zip(whole, is_back, strict=True) if not came]
    if taken:
        raise AlreadyExistsError(
            f"{len(taken)} files of quarantine {name} were not restored, since their locations are taken: "
            f"{taken[0].location} exists; {len(whole) - len(taken)} files were restored"
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
    """Return what an earlier try has restored."""
    table = work.table
    location = f"{_home(table, name)}/{RESTORED}"
    try:
        fields = _lines(location, _read(table, location))[0]
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
    """Write a note of what was restored, then delete the lists: the first one last, since it makes the quarantine."""
    home = _home(table, result.quarantine)
    note = {"restored-files": result.restored_files, "restored-bytes": result.restored_files_size_bytes}
    try:
        table.io.create(f"{home}/{RESTORED}", json.dumps(note).encode())
    except AlreadyExistsError:
        log.info("%s: an earlier try has restored quarantine %s", table.name, result.quarantine)
    table.io.delete([*torn, *_more_lists(table, result.quarantine)])
    table.io.delete([_list_location(table, result.quarantine)])


def _restore(io: FileIO, file: QuarantinedFile) -> bool:
    """Move one file back; False if another file is in its location."""
    if not io.exists(file.location):
        _move(io, file, is_back=True)
        return True
    copied = _common_bytes(io, file)
    if copied is None:
        return False
    if copied < file.size_bytes:
        _move(io, file, is_back=True)
    else:
        # The copy is whole: the try that made it was killed before it deleted the original.
        io.delete([file.quarantined])
    return True


def _move(io: FileIO, file: QuarantinedFile, *, is_back: bool) -> None:
    source, target = (file.quarantined, file.location) if is_back else (file.location, file.quarantined)
    move_file(io, source, target, size_bytes=file.size_bytes)


def _common_bytes(io: FileIO, file: QuarantinedFile) -> int | None:
    """Return how many bytes of a file are restored already; None if its location holds another file."""
    for offset in range(0, file.size_bytes + 1, CHUNK):
        there = io.read(file.location, offset=offset, length=CHUNK)
        own = io.read(file.quarantined, offset=offset, length=CHUNK)
        if not own.startswith(there):
            return None
        if len(there) < CHUNK:
            return offset + len(there)
    return file.size_bytes


# -- deletion ----------------------------------------------------------------------------------------------------------


def purge(table: OpenTable, before_ms: int, *, keep: Quarantine | None) -> tuple[str, ...]:
    """Delete quarantines from before a time permanently, with the notes of restored ones and unfinished lists."""
    gone: list[str] = []
    for name in quarantines(table):
        head = None if keep is not None and name == keep.name else _head(table, name)
        if head is None or head.int("moved-at-ms") >= before_ms:
            continue
        files = [status.location for status in table.io.list(f"{_home(table, name)}/files/")]
        progress = Progress(f"{table.name}: deleting files of quarantine {name}", whole=len(files))
        for start in range(0, len(files), BATCH):
            table.io.delete(files[start : start + BATCH])
            progress.finish(len(files[start : start + BATCH]))
        table.io.delete(_more_lists(table, name))
        table.io.delete([_list_location(table, name)])
        gone.append(name)
    table.io.delete(list(_leftovers(table, before_ms)))
    return tuple(gone)


def _leftovers(table: OpenTable, before_ms: int) -> Iterator[str]:
    """Yield old notes of restored quarantines, and unfinished lists."""
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
    first = _list_location(table, name)
    lists = {first: _read(table, first)}  # before the others are looked for
    lists |= {location: _read(table, location) for location in _more_lists(table, name)}
    files = (
        _listed_file(table, name, fields) for location, data in lists.items() for fields in _lines(location, data)[1:]
    )
    return list({file.quarantined: file for file in files}.values())


def _listed_file(table: OpenTable, name: str, fields: Fields) -> QuarantinedFile:
    """Return a file of a list. Its place follows from its path in the quarantine, whatever the list says.

    Raises:
        FormatError: the list says something else: others can write it, too, and may name any file.
    """
    quarantined, size_bytes = fields.str("quarantined"), fields.int("size-bytes")
    path = relative_path(quarantined, f"{_home(table, name)}/files")
    location = f"{table.location.rstrip('/')}/{path}"
    if path is None or fields.str("location") != location or size_bytes < 0:
        raise FormatError(
            f"{fields.where} of the list of quarantine {name} names {fields.str('location')} and {quarantined}, "
            f"expected a path below {table.location} and the same path in the quarantine: the list was changed, or "
            f"the table was moved; nothing was restored",
            path=fields.path,
        )
    return QuarantinedFile(location=location, quarantined=quarantined, size_bytes=size_bytes)


def _head(table: OpenTable, name: str) -> Fields | None:
    """Return the first line of a quarantine's list, None for a damaged one: others can write it, too."""
    location = _list_location(table, name)
    try:
        head = _lines(location, _read(table, location))[0]
        head.int("moved-at-ms")
    except FormatError as error:
        log.warning("%s: quarantine %s is not touched: %s", table.name, name, error)
        return None
    return head


def _read(table: OpenTable, location: str) -> bytes:
    return read_bytes(table.io, location, title=TITLE, most_bytes=MOST_LIST_BYTES)


def _lines(location: str, data: bytes) -> list[Fields]:
    lines = enumerate(data.split(b"\n"), 1)
    found = [read_object(line, title=TITLE, path=location, where=f"line {number}") for number, line in lines if line]
    if not found:
        raise FormatError("the list of a quarantine is empty", path=location)
    return found
