"""Sets of row positions, and their form in a file: the blob `deletion-vector-v1`.

Here: 64-bit roaring bitmaps in the portable format, in memory as they are stored: an array, a bitmap or runs for each
65,536 positions. Not here: the Puffin file around the blob (`puffin`), and which vector applies to a file
(`plan.deletes`).

No library of roaring bitmaps is used: readers need the mask of some consecutive rows, which numpy makes of the stored
form, and damaged bytes must raise our error, which a decoder in C does not promise. Memory is at most a few times the
size of the blob, however many positions it claims to hold.

Spec: Deletion Vectors; deletion-vector-v1 blob type; RoaringFormatSpec, extension for 64-bit implementations.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import FormatError, InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

MAGIC = b"\xd1\xd3\x39\x64"
OVERHEAD = 8
"""Bytes of a blob that the checksum does not cover: a length before them, and the checksum after them."""

_SPAN = 1 << 16
_BITMAP_SIZE = _SPAN // 8
_MAX_ARRAY = 4096
_COOKIE_RUNS, _COOKIE_PLAIN = 12347, 12346
_NO_OFFSETS_BELOW = 4
# The upper 32 bits of a position: Iceberg's positions are not negative.
_MAX_KEY = 1 << 31


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Container:
    """The positions of the set among 65,536 consecutive ones.

    Attributes:
        kind: "array" (sorted 16-bit values), "bitmap" (8,192 bytes) or "runs" (pairs of start and length - 1).
    """

    kind: str
    data: Array
    cardinality: int

    def mask(self) -> npt.NDArray[np.bool_]:
        """Return which of the positions are in the set."""
        import numpy as np

        if self.kind == "bitmap":
            return np.unpackbits(self.data, bitorder="little").view(np.bool_)
        if self.kind == "array":
            mask = np.zeros(_SPAN, np.bool_)
            mask[self.data] = True
            return mask
        steps = np.zeros(_SPAN + 1, np.int8)
        starts = self.data[:, 0].astype(np.int64)
        # Runs do not touch each other, so no position is the end of one and the start of the next.
        steps[starts] += 1
        steps[starts + self.data[:, 1] + 1] -= 1
        return np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)

    def positions(self) -> Array:
        """Return the positions in the set, ascending; the mask of all positions is only made if there are many."""
        import numpy as np

        if self.kind == "array":
            return self.data
        if self.kind == "runs" and self.cardinality <= _MAX_ARRAY:
            return np.concatenate([np.arange(first, first + more + 1) for first, more in self.data.tolist()])
        return np.flatnonzero(self.mask())


class RowPositions:
    """An unchangeable set of positions of rows in a file, counted from 0."""

    __slots__ = ("_containers", "cardinality")

    def __init__(self, containers: Mapping[int, _Container]) -> None:
        self._containers = dict(sorted(containers.items()))
        self.cardinality = sum(container.cardinality for container in containers.values())

    @classmethod
    def of(cls, positions: Iterable[int] | Array) -> RowPositions:
        """Return the set of some positions, in any order; raises InvalidInputError for a negative position."""
        import numpy as np

        given = positions if isinstance(positions, np.ndarray) else np.fromiter(positions, np.int64)
        values = np.unique(given.astype(np.int64, copy=False))
        if len(values) and values[0] < 0:
            raise InvalidInputError(f"position of a row is {values[0]}, expected 0 or more")
        keys, starts = np.unique(values >> 16, return_index=True)
        parts = np.split((values & (_SPAN - 1)).astype(np.uint16), starts[1:]) if len(keys) else []
        return cls({int(key): _container(part) for key, part in zip(keys, parts, strict=True)})

    def __contains__(self, position: int) -> bool:
        return bool(self.mask(position, 1)[0])

    def __eq__(self, other: object) -> bool:
        import numpy as np

        return isinstance(other, RowPositions) and np.array_equal(self.to_array(), other.to_array())

    def __hash__(self) -> int:
        return hash((self.cardinality, tuple(self._containers)))

    def __repr__(self) -> str:
        return f"RowPositions(<{self.cardinality} positions>)"

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the set, in bytes."""
        return sum(container.data.nbytes + 200 for container in self._containers.values())

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_]:
        """Return which of `count` rows, from the position `start`, are in the set."""
        import numpy as np

        result = np.zeros(count, np.bool_)
        for key in range(start >> 16, (start + count + _SPAN - 1) >> 16):
            container = self._containers.get(key)
            if container is None:
                continue
            base = key << 16
            first, stop = max(base, start), min(base + _SPAN, start + count)
            result[first - start : stop - start] = container.mask()[first - base : stop - base]
        return result

    def count_below(self, end: int) -> int:
        """Return the number of positions below `end`: those of rows of a file that has so many."""
        import numpy as np

        last = end >> 16
        count = sum(item.cardinality for key, item in self._containers.items() if key < last)
        cut = self._containers.get(last)
        return count if cut is None else count + int(np.count_nonzero(cut.mask()[: end & (_SPAN - 1)]))

    def covers(self, other: RowPositions) -> bool:
        """Whether all positions of another set are in this one; memory and time grow with the stored sizes alone."""
        if other.cardinality > self.cardinality:
            return False
        pairs = ((self._containers.get(key), theirs) for key, theirs in other._containers.items())
        return all(mine is not None and _covers(mine, theirs) for mine, theirs in pairs)

    def without(self, other: RowPositions) -> RowPositions:
        """Return the positions that are not in the other set."""
        import numpy as np

        return RowPositions.of(np.setdiff1d(self.to_array(), other.to_array(), assume_unique=True))

    def to_array(self) -> npt.NDArray[np.int64]:
        """Return all positions, ascending; each needs eight bytes."""
        import numpy as np

        parts = [item.positions().astype(np.int64) + (key << 16) for key, item in self._containers.items()]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def union(self, *others: RowPositions) -> RowPositions:
        """Return the positions that are in any of the sets."""
        by_key: dict[int, list[_Container]] = {}
        for each in (self, *others):
            for key, container in each._containers.items():
                by_key.setdefault(key, []).append(container)
        return RowPositions({key: _unite(found) for key, found in by_key.items()})

    # --- the blob -----------------------------------------------------------------------------------------------------

    def to_blob(self) -> bytes:
        """Return the set as a blob `deletion-vector-v1`."""
        by_key: dict[int, dict[int, _Container]] = {}
        for high, container in self._containers.items():
            by_key.setdefault(high >> 16, {})[high & 0xFFFF] = container
        parts = [MAGIC, len(by_key).to_bytes(8, "little")]
        for key, containers in by_key.items():
            parts += [key.to_bytes(4, "little"), _write_bitmap(containers)]
        covered = b"".join(parts)
        return len(covered).to_bytes(4, "big") + covered + zlib.crc32(covered).to_bytes(4, "big")

    @classmethod
    def from_blob(cls, data: bytes, *, path: str | None = None) -> RowPositions:
        """Read a blob `deletion-vector-v1`; raises FormatError for a wrong length, magic, checksum or bitmap."""
        covered = data[4:-4]
        size = int.from_bytes(data[:4], "big")
        if len(data) < OVERHEAD + len(MAGIC) + 8 or size != len(covered):
            raise FormatError(f"unexpected length {size} in a deletion vector of {len(data)} bytes", path=path)
        if covered[:4] != MAGIC:
            raise FormatError(f"unexpected magic {covered[:4]!r} (expected {MAGIC!r}) of a deletion vector", path=path)
        if zlib.crc32(covered) != int.from_bytes(data[-4:], "big"):
            raise FormatError("the checksum of a deletion vector differs; the file is damaged", path=path)
        return cls(_Reader(covered[4:], path).bitmaps())


def _container(values: Array) -> _Container:
    """Return the smaller form, array or bitmap, of sorted 16-bit values."""
    import numpy as np

    if len(values) <= _MAX_ARRAY:
        return _Container(kind="array", data=values, cardinality=len(values))
    mask = np.zeros(_SPAN, np.bool_)
    mask[values] = True
    return _Container(kind="bitmap", data=np.packbits(mask, bitorder="little"), cardinality=len(values))


def _covers(container: _Container, other: _Container) -> bool:
    import numpy as np

    if container is other or container.cardinality == _SPAN:
        return True
    if other.cardinality > container.cardinality:
        return False
    if container.kind == "array":  # then both are small
        return bool(np.all(np.isin(other.positions(), container.data)))
    if "bitmap" in (container.kind, other.kind):
        return not np.any(other.mask() & ~container.mask())
    starts, more = container.data.astype(np.int64).T
    first, length = other.data.astype(np.int64).T if other.kind == "runs" else (other.positions(), 0)
    run = np.searchsorted(starts, first, "right") - 1
    return bool(np.all((run >= 0) & (starts[run] + more[run] >= first + length)))


def _unite(containers: Sequence[_Container]) -> _Container:
    """Return the positions that are in any of the containers, in time linear in their size."""
    import numpy as np

    if len(containers) == 1:
        return containers[0]
    if sum(container.cardinality for container in containers) <= _MAX_ARRAY:
        return _container(np.unique(np.concatenate([item.positions() for item in containers])).astype(np.uint16))
    mask = np.zeros(_SPAN, np.bool_)
    for container in containers:
        if container.kind == "array":
            mask[container.data] = True
        else:
            mask |= container.mask()
    found = _container(np.flatnonzero(mask).astype(np.uint16))
    # Runs and one more position are no bitmap.
    return _smallest(found) if any(container.kind == "runs" for container in containers) else found


# --- bitmaps of 32-bit positions --------------------------------------------------------------------------------------


def _write_bitmap(containers: Mapping[int, _Container]) -> bytes:
    """Return a 32-bit roaring bitmap in the portable format."""
    import numpy as np

    stored = [_smallest(container) for container in containers.values()]
    has_runs = any(container.kind == "runs" for container in stored)
    count = len(stored)
    if has_runs:
        flags = np.packbits([container.kind == "runs" for container in stored], bitorder="little").tobytes()
        header = (_COOKIE_RUNS | (count - 1) << 16).to_bytes(4, "little") + flags
    else:
        header = _COOKIE_PLAIN.to_bytes(4, "little") + count.to_bytes(4, "little")
    bodies = [_body(container) for container in stored]
    index = np.array([(key, item.cardinality - 1) for key, item in zip(containers, stored, strict=True)], "<u2")
    parts = [header, index.tobytes()]
    if not has_runs or count >= _NO_OFFSETS_BELOW:
        first = len(header) + index.nbytes + 4 * count
        sizes = [first, *(len(body) for body in bodies[:-1])]
        parts.append(np.cumsum(sizes, dtype=np.int64).astype("<u4").tobytes())
    return b"".join([*parts, *bodies])


def _smallest(container: _Container) -> _Container:
    """Return the container as runs if they need fewer bytes, like Java's `runOptimize`."""
    import numpy as np

    positions = container.positions().astype(np.int64)
    if container.kind == "runs":
        container = _container(positions.astype(np.uint16))
    gaps = np.flatnonzero(np.diff(positions) != 1)
    starts = positions[np.concatenate([[0], gaps + 1])]
    stops = positions[np.concatenate([gaps, [len(positions) - 1]])]
    if 2 + 4 * len(starts) >= container.data.nbytes:
        return container
    runs = np.stack([starts, stops - starts], axis=1).astype(np.uint16)
    return _Container(kind="runs", data=runs, cardinality=container.cardinality)


def _body(container: _Container) -> bytes:
    if container.kind == "bitmap":
        return container.data.tobytes()
    data = container.data.astype("<u2").tobytes()
    return len(container.data).to_bytes(2, "little") + data if container.kind == "runs" else data


class _Reader:
    """Reads bitmaps from bytes; checks every count against the remaining bytes before it allocates memory."""

    def __init__(self, data: bytes, path: str | None) -> None:
        self._data = data
        self._path = path
        self._offset = 0

    def bitmaps(self) -> dict[int, _Container]:
        """Return all containers by the upper 48 bits of their positions."""
        found: dict[int, _Container] = {}
        last = -1
        for _ in range(self._count(self._number(8), 8, "bitmaps")):
            key = self._number(4)
            if not last < key < _MAX_KEY:
                raise self._error(f"unexpected key {key} of a bitmap after {last}")
            last = key
            found.update((key << 16 | low, container) for low, container in self._bitmap())
        if self._offset != len(self._data):
            raise self._error(f"unexpected {len(self._data) - self._offset} bytes after the last bitmap")
        return found

    def _bitmap(self) -> list[tuple[int, _Container]]:
        import numpy as np

        start = self._offset
        cookie = self._number(4)
        has_runs = cookie & 0xFFFF == _COOKIE_RUNS
        if not has_runs and cookie != _COOKIE_PLAIN:
            raise self._error(f"unexpected cookie {cookie} of a bitmap")
        count = self._count((cookie >> 16) + 1 if has_runs else self._number(4), 4, "containers")
        flags = self._take((count + 7) // 8) if has_runs else bytes((count + 7) // 8)
        is_run = np.unpackbits(np.frombuffer(flags, np.uint8), bitorder="little", count=count)
        header = np.frombuffer(self._take(4 * count), "<u2").reshape(count, 2).tolist()
        if any(left[0] >= right[0] for left, right in pairwise(header)):
            raise self._error("the containers of a bitmap are not in order")
        with_offsets = not has_runs or count >= _NO_OFFSETS_BELOW
        offsets = np.frombuffer(self._take(4 * count), "<u4").tolist() if with_offsets else [None] * count
        found = []
        for (key, last), runs, offset in zip(header, is_run, offsets, strict=True):
            if offset is not None and offset != self._offset - start:
                raise self._error(f"unexpected offset {offset} of a container")
            found.append((key, self._container(last + 1, bool(runs))))
        return found

    def _container(self, cardinality: int, is_runs: bool) -> _Container:
        if is_runs:
            return self._runs(cardinality)
        return self._array(cardinality) if cardinality <= _MAX_ARRAY else self._bits(cardinality)

    def _array(self, cardinality: int) -> _Container:
        import numpy as np

        values = np.frombuffer(self._take(2 * cardinality), "<u2")
        if np.any(values[1:] <= values[:-1]):
            raise self._error("the values of a container are not in order")
        return _Container(kind="array", data=values, cardinality=cardinality)

    def _bits(self, cardinality: int) -> _Container:
        import numpy as np

        data = np.frombuffer(self._take(_BITMAP_SIZE), np.uint8)
        found = int(np.bitwise_count(data).sum()) if hasattr(np, "bitwise_count") else int(np.unpackbits(data).sum())
        return self._checked(_Container(kind="bitmap", data=data, cardinality=found), cardinality)

    def _runs(self, cardinality: int) -> _Container:
        import numpy as np

        count = self._number(2)
        runs = np.frombuffer(self._take(4 * count), "<u2").reshape(count, 2)
        starts = runs[:, 0].astype(np.int64)
        stops = starts + runs[:, 1] + 1
        # Runs that touch are legal, although no writer writes them; runs that overlap are not.
        if np.any(starts[1:] < stops[:-1]) or np.any(stops > _SPAN):
            raise self._error("the runs of a container are not in order")
        found = int((stops - starts).sum())
        if not np.all(is_apart := starts[1:] != stops[:-1]):  # one run each: positions take a hundred times as much
            starts, stops = starts[np.append(True, is_apart)], stops[np.append(is_apart, True)]
            runs = np.stack([starts, stops - starts - 1], axis=1).astype(np.uint16)
        return self._checked(_Container(kind="runs", data=runs, cardinality=found), cardinality)

    def _checked(self, container: _Container, cardinality: int) -> _Container:
        if container.cardinality != cardinality:
            raise self._error(f"a container holds {container.cardinality} positions, expected {cardinality}")
        return container

    def _count(self, count: int, size: int, what: str) -> int:
        """Return a count; the remaining bytes must have room for so many things of at least a size."""
        if count * size > len(self._data) - self._offset:
            raise self._error(f"unexpected number {count} of {what}")
        return count

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _take(self, size: int) -> bytes:
        start = self._offset
        self._offset += size
        if self._offset > len(self._data):
            raise self._error("unexpected end")
        return self._data[start : self._offset]

    def _error(self, message: str) -> FormatError:
        return FormatError(f"{message} at byte {self._offset} of a deletion vector", path=self._path)
