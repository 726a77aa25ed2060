"""Source files: from globs to units of work, from a unit to Arrow tables in bounded memory.

A directory stands for the files below it. Names that start with "_" or "." are skipped unless they are named literally
or by a glob that starts with the same character: `_SUCCESS` and half-written files are not data. A file that is named
twice, in whatever spelling (`sources.identity`), is read once. The names of directories like `dt=2026-01-01/` do not
become columns.

Not here: how a format is read (`readers`), whether the rows fit the table (`data.cast.rows`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError, store_error
from airflow_iceberg.jobs.protocol.source import FILE_FORMATS, Source
from airflow_iceberg.jobs.sources import readers
from airflow_iceberg.jobs.sources.errors import read_errors
from airflow_iceberg.jobs.sources.identity import identity
from airflow_iceberg.jobs.sources.unit import Unit, broken, open_filesystem

if TYPE_CHECKING:
    import fsspec
    import pyarrow as pa

    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.storage.base import FileIO

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".orc": "orc",
    ".avro": "avro",
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
COMPRESSIBLE = ("csv", "jsonl")

MIB = 1 << 20
MIN_TASK_BYTES = 16 * MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file that was found: its URL or path, in the form of the pattern, and its stored size."""

    location: str
    size_bytes: int


def plan_tasks(
    source: Source, io: "FileIO", *, parallelism: int, target_file_size_bytes: int
) -> tuple[tuple[Unit, ...], ...]:
    """Return the units of each task: tasks of about the same size, with neighbouring units in the same task.

    There are `parallelism` tasks if there is enough work for them, and more when a task would write more than one file
    of the target size: a multiple of `parallelism` while they are few.

    Args:
        source: a source of kind "files".
        io: the table's FileIO, tried first for the files, too.
        parallelism: the number of tasks that run at the same time.
    Raises:
        NotFoundError: a file that was named literally is not there.
        InvalidInputError: the format of a file is unknown.
        FormatError: a Parquet file is broken.
    """
    files = expand(source, io)
    weights = [whole_file(file, source) for file in files]
    total = sum(unit.weight for unit in weights)
    count = task_count(total, parallelism=parallelism, target_file_size_bytes=target_file_size_bytes)
    units = tuple(piece for unit in weights for piece in _split(unit, io, max_bytes=max(total // max(count, 1), 1)))
    return distribute(units, count)


def expand(source: Source, io: "FileIO") -> tuple[SourceFile, ...]:
    """Return the files that a source names, in order, each one once; sorted by name within a glob or directory."""
    found: dict[Hashable, SourceFile] = {}
    for pattern in source.files:
        for file in _expand_one(pattern, io):
            found.setdefault(identity(file.location), file)
    return tuple(found.values())


def guess_format(location: str, file_format: str | None = None) -> tuple[str, str | None]:
    """Return format and compression of a file by its suffix; `file_format` wins over the suffix.

    Raises:
        InvalidInputError: no format is given, and the suffix is unknown.
    """
    name = location.rsplit("/", 1)[-1].lower()
    compression = next((codec for suffix, codec in COMPRESSIONS.items() if name.endswith(suffix)), None)
    stem = name.rsplit(".", 1)[0] if compression else name
    guessed = file_format or next((known for suffix, known in SUFFIXES.items() if stem.endswith(suffix)), None)
    if guessed is None or (compression and guessed not in COMPRESSIBLE):
        known = ", ".join(FILE_FORMATS)
        raise InvalidInputError(f"cannot tell the format of {location} by its name; set file_format to one of {known}")
    return guessed, compression


def task_count(total_bytes: int, *, parallelism: int, target_file_size_bytes: int) -> int:
    """Return the number of tasks for an output of this size; 0 for no output."""
    if total_bytes <= 0:
        return 0
    by_target = -(-total_bytes // max(target_file_size_bytes, 1))
    useful = max(total_bytes // MIN_TASK_BYTES, 1)
    if by_target <= parallelism:
        return int(min(parallelism, useful))
    if by_target < 4 * parallelism:
        return int(-(-by_target // parallelism) * parallelism)
    return int(by_target)


def distribute(units: Sequence[Unit], count: int) -> tuple[tuple[Unit, ...], ...]:
    """Return the units in at most `count` groups of neighbours, none empty, about the same weight each."""
    total = sum(unit.weight for unit in units)
    groups: list[list[Unit]] = [[] for _ in range(max(count, 1))]
    before = 0
    for unit in units:
        middle = before + unit.weight / 2
        groups[min(int(middle * len(groups) / total), len(groups) - 1)].append(unit)
        before += unit.weight
    return tuple(tuple(group) for group in groups if group)


def read_unit(unit: Unit, io: "FileIO", *, schema: "Schema", options: Mapping[str, str]) -> "Iterator[pa.Table]":
    """Yield the rows of a unit as tables of bounded size, with the file's own columns and types.

    Columns of text formats are strings where the format does not have the table's type: `data.cast.rows.conform`
    converts them. A file without rows yields one empty table if it has columns.

    Raises:
        FormatError: a damaged file; `.path` is its location.
        StorageError: the file cannot be read.
    """
    with read_errors(unit):
        yield from readers.read(unit, io, schema=schema, options=options)


def _expand_one(pattern: str, io: "FileIO") -> list[SourceFile]:
    filesystem, path = open_filesystem(pattern, io, lists=True)
    try:
        if filesystem.isfile(path):
            return [SourceFile(location=pattern, size_bytes=_size(filesystem.info(path)))]
        if filesystem.isdir(path):
            return _below(filesystem, path, pattern)
        if not any(char in path for char in "*?["):
            folder = path.rstrip("/").rpartition("/")[0]
            raise _missing(pattern, is_folder_there=not folder or filesystem.isdir(folder))
        return _matches(filesystem, path, pattern)
    except OSError as error:
        raise store_error(f"cannot list source files {pattern}", error, str(error)) from error


def _missing(pattern: str, *, is_folder_there: bool) -> NotFoundError:
    more = "" if is_folder_there else ", nor does its folder"
    error = NotFoundError(f"source file {pattern} does not exist{more}")
    error.advice = "correct the path, or find out why nothing has written the file yet"
    return error


def _matches(filesystem: "fsspec.AbstractFileSystem", path: str, pattern: str) -> list[SourceFile]:
    wants_hidden = path.rsplit("/", 1)[-1].startswith(("_", "."))
    files: list[SourceFile] = []
    for name, info in sorted(filesystem.glob(path, detail=True).items()):
        if _is_hidden(name) and not wants_hidden:
            continue
        location = _location(name, path, pattern)
        if info["type"] == "directory":
            # `**` gives directories and what is below them; the second time is dropped in `expand`.
            files.extend(_below(filesystem, name, location))
        else:
            files.append(SourceFile(location=location, size_bytes=_size(info)))
    return files


def _below(filesystem: "fsspec.AbstractFileSystem", path: str, location: str) -> list[SourceFile]:
    root = path.rstrip("/")
    files = []
    for name, info in sorted(filesystem.find(root, detail=True).items()):
        below = name[len(root) :].strip("/")
        if not any(_is_hidden(part) for part in below.split("/")):
            files.append(SourceFile(location=f"{location.rstrip('/')}/{below}", size_bytes=_size(info)))
    return files


def _location(name: str, path: str, pattern: str) -> str:
    """Return the location of a match: the match, after the same prefix as the path in the pattern."""
    return pattern[: -len(path)] + name if path and pattern.endswith(path) else name


def _is_hidden(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith(("_", "."))


def _size(info: Mapping[str, Any]) -> int:
    return int(info.get("size") or 0)


def whole_file(file: SourceFile, source: Source) -> Unit:
    """Return a file as one piece of work."""
    file_format, compression = guess_format(file.location, source.file_format)
    return Unit(
        location=file.location,
        file_format=file_format,
        compression=compression,
        size_bytes=file.size_bytes,
        rows_name=source.rows_name,
    )


def _split(unit: Unit, io: "FileIO", *, max_bytes: int) -> list[Unit]:
    """Cut a Parquet file by row groups if it is larger than the work of one task."""
    if unit.file_format != "parquet" or unit.size_bytes <= max(max_bytes, MIN_TASK_BYTES):
        return [unit]
    try:
        groups = readers.row_groups(unit.location, io)
    except (ValueError, OSError) as error:
        raise broken(unit, error) from error
    pieces, first_row = [], 1
    for index, (rows, size_bytes) in enumerate(groups):
        pieces.append(replace(unit, size_bytes=size_bytes, row_groups=(index, index + 1), first_row=first_row))
        first_row += rows
    return pieces or [unit]
