"""Bringing rows that belong together to one task, without the JVM: Arrow files under the staging prefix.

First every task cuts its rows into buckets, by a hash of the partition tuple or by ranges of a sort order
(`jobs.compact_sorted`), and writes them into one file, an Arrow IPC stream (lz4) after another; its report says which
streams belong to which bucket. Then the driver assigns the buckets (`deal`), and each task of the second phase reads
its streams from all those files. One file for each task, not for each bucket: object stores charge by the file.
Streams, not the record batches of one IPC file: those would have to share their dictionaries.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.data.dictionaries import join, plain_bytes
from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.partitions.grouping import group_by_partition
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs.protocol.seal import changed, short_digest

if TYPE_CHECKING:
    from airflow_iceberg.format.partitions.spec import PartitionSpec
    from airflow_iceberg.format.schemas.schema import Schema
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.storage.base import FileIO

Cut = Callable[[pa.Table], Iterator[tuple[int, pa.Table]]]

FOLDER = "exchange"
MIN_BUCKETS, MAX_BUCKETS = 128, 4096
FLUSH_BYTES = 96 << 20
_CHUNK_ROWS = 16_384
# Rows in memory are about this many times larger than in a Parquet file.
MEMORY_TO_PARQUET = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """The rows of one bucket in one spill file.

    Attributes:
        path: the location of the spill file.
        parts: (offset, length) in bytes of each of its streams in the file, and its digest.
        size_bytes: the size in memory, without dictionaries.
    """

    path: str
    bucket: int
    parts: tuple[tuple[int, int, str], ...]
    record_count: int
    size_bytes: int


def location(plan: JobPlan) -> str:
    """Return the prefix of the spill files of a job."""
    return f"{plan.staging_location}/{FOLDER}"


def bucket_count(tasks: int) -> int:
    """Return the number of buckets: several for each task of the second phase, so that all get about the same size."""
    return min(max(MIN_BUCKETS, 4 * tasks), MAX_BUCKETS)


def bucket_of(partition: tuple[Any, ...], buckets: int) -> int:
    """Return the bucket of a partition tuple; it is the same in every process."""
    return zlib.crc32(repr(tuple(canonical_key(value) for value in partition)).encode()) % buckets


def cut_by_partition(spec: PartitionSpec, schema: Schema, buckets: int) -> Cut:
    """Return a function that cuts rows into buckets of whole partitions."""

    def cut(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        for partition, part in group_by_partition(table, spec, schema):
            yield bucket_of(partition, buckets), part

    return cut


class Spill:
    """Writes one spill file: `write` conformed rows, which `cut` assigns to buckets, then `close` for the slices."""

    def __init__(self, io: FileIO, path: str, *, cut: Cut) -> None:
        self._io, self._path, self._cut = io, path, cut
        self._held: dict[int, list[pa.Table]] = defaultdict(list)
        self._held_bytes = 0
        self._parts: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self._rows: dict[int, int] = defaultdict(int)
        self._bytes: dict[int, int] = defaultdict(int)
        self._written = 0
        self._sink: Any = None

    def write(self, table: pa.Table) -> None:
        """Hold rows until there are enough to be written."""
        for bucket, part in self._cut(table):
            # The reader may have to make it plain, to join it with rows that have no dictionary.
            size = plain_bytes(part)
            self._held[bucket].append(part)
            self._rows[bucket] += part.num_rows
            self._bytes[bucket] += size
            self._held_bytes += size
        if self._held_bytes >= FLUSH_BYTES:
            self._flush()

    def close(self) -> tuple[Slice, ...]:
        """Finish the file and return its slices by bucket; without rows there is no file."""
        self._flush()
        if self._sink is not None:
            self._sink.close()
        path, rows, sizes = self._path, self._rows, self._bytes
        return tuple(
            Slice(path=path, bucket=one, parts=tuple(parts), record_count=rows[one], size_bytes=sizes[one])
            for one, parts in sorted(self._parts.items())
        )

    def abort(self) -> None:
        """Delete the file, if there is one."""
        if self._sink is not None:
            if not self._sink.closed:
                self._sink.close()
            self._io.delete([self._path])

    def _flush(self) -> None:
        for bucket, parts in sorted(self._held.items()):
            # Each stream has its own dictionary, which has to be small compared with the rows.
            stream = _stream(join(parts, most_bytes=sum(part.num_rows for part in parts)))
            if self._sink is None:
                self._sink = create_file(self._io, self._path)
            self._sink.write(stream)
            self._parts[bucket].append((self._written, len(stream), short_digest(stream)))
            self._written += len(stream)
        self._held.clear()
        self._held_bytes = 0


def _stream(rows: pa.Table) -> pa.Buffer:
    # Every chunk becomes a record batch, which costs as much as a few thousand rows.
    if rows.num_rows < _CHUNK_ROWS * rows.column(0).num_chunks:
        rows = rows.combine_chunks()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def read_slices(io: FileIO, slices: Iterable[Slice]) -> Iterator[pa.Table]:
    """Yield the rows of slices, a stream at a time, file by file within a bucket.

    Raises:
        FormatError: a file was changed since it was written.
    """
    for piece in slices:
        with open_file(io, piece.path) as source:
            for offset, length, digest in piece.parts:
                source.seek(offset)
                # Bytes of this process: what is checked is what Arrow then reads, which trusts its input.
                stream = source.read(length)
                if short_digest(stream) != digest:
                    raise changed("file of an exchange", piece.path)
                with pa.ipc.open_stream(stream) as reader:
                    yield reader.read_all()


def deal(slices: Sequence[Slice], tasks: int, *, target_file_size_bytes: int) -> list[tuple[tuple[Slice, ...], ...]]:
    """Return for each task its groups of slices; the largest group is assigned first, to the task with the least bytes.

    A group is a bucket. A bucket that fills several files of the target size becomes as many groups: otherwise one
    large partition would keep one task busy while the others wait.
    """
    groups: list[tuple[Slice, ...]] = []
    for pieces in by_bucket(slices).values():
        groups.extend(_parts(pieces, max_bytes=2 * target_file_size_bytes * MEMORY_TO_PARQUET))
    loads = [0] * max(tasks, 1)
    dealt: list[list[tuple[Slice, ...]]] = [[] for _ in loads]
    for group in sorted(groups, key=_weight, reverse=True):
        least = loads.index(min(loads))
        loads[least] += _weight(group)
        dealt[least].append(group)
    return [tuple(groups) for groups in dealt if groups]


def by_bucket(slices: Sequence[Slice]) -> dict[int, list[Slice]]:
    """Return slices by their bucket, in the order of buckets."""
    found: dict[int, list[Slice]] = defaultdict(list)
    for piece in slices:
        found[piece.bucket].append(piece)
    return dict(sorted(found.items()))


def _parts(pieces: Sequence[Slice], *, max_bytes: int) -> Iterator[tuple[Slice, ...]]:
    part: list[Slice] = []
    for piece in pieces:
        if part and _weight(part) + piece.size_bytes > max_bytes:
            yield tuple(part)
            part = []
        part.append(piece)
    yield tuple(part)


def _weight(group: Sequence[Slice]) -> int:
    return sum(piece.size_bytes for piece in group)


def create_file(io: FileIO, path: str) -> Any:
    """Open a new file of the exchange for writing."""
    filesystem, inner = io.filesystem(path)
    try:
        filesystem.makedirs(inner.rsplit("/", 1)[0], exist_ok=True)
        return filesystem.open(inner, "wb")
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error}; the job needs to write below the staging location"
        ) from error


def open_file(io: FileIO, path: str) -> Any:
    """Open a file of the exchange for reading."""
    filesystem, inner = io.filesystem(path)
    return filesystem.open(inner, "rb")
