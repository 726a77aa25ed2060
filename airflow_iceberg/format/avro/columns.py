"""Avro records as columns, thousands of records at a time, with numpy.

Here: decoding blocks of Avro without an object for each record. Not here: the meaning of the columns
(`manifests.columns`), the container around the blocks (`container`), decoding record by record (`manifests.blocks`).

Avro does not store where a record starts: a reader has to decode all records before it. So this one guesses, and
proves the guess afterwards. Every entry of a manifest contains the text of its file format, mostly "PARQUET". All
places of these bytes are searched. From each of these *anchors* all records are decoded side by side, field by field,
with one numpy call for all: the rest of the record, then the start of the next one up to its anchor. The result counts
only if the first record starts at the first byte, each record ends exactly where the next one starts, the last one ends
at the last byte, and the records at the blocks' first bytes are those that the counts of the blocks name. Decoding
record by record then gives the same result, because a record starts where the one before it ends.

Anything else raises `NotColumnar`, which does not mean that the file is damaged: the caller then reads it record by
record and finds an error, or none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_iceberg.format.avro.columns_read import Collector, Ints, Records, Sink
from airflow_iceberg.format.avro.container import write_long
from airflow_iceberg.format.avro.layout import Layout, NotColumnar, Step

# Decoding may pass the end by some ten bytes for each field before that is detected.
_PADDING = bytes(1 << 16)
# The items of an array are decoded one by one; with more of them the file is damaged or too unusual.
_MOST_ITEMS = 20_000


def decode_records(
    blocks: Sequence[tuple[int, bytes]],
    layout: Layout,
    anchors: Sequence[str],
    *,
    lists: bool = False,
    keys: Collection[int] = (),
    places: bool = False,
) -> Records:
    """Decode the records of some blocks.

    Args:
        blocks: number of records and bytes of each block.
        anchors: possible texts of the anchor, the most likely one first.
        lists: whether arrays are returned.
        keys: keys of maps whose values are returned.
        places: whether the start of each field is returned.
    Raises:
        NotColumnar: the records cannot be read as columns, or are damaged.
    """
    data = b"".join((*(block for _, block in blocks), _PADDING))
    decoder = _Decoder(data, layout, lists=lists, keys=frozenset(keys), places=places)
    counts = np.array([count for count, _ in blocks], np.int64)
    borders = np.cumsum([0, *(len(block) for _, block in blocks)])
    total = int(counts.sum()) if len(counts) else 0
    if total > borders[-1]:
        raise NotColumnar("more records than bytes")
    records = decoder.decode(total, anchors)
    if not np.array_equal(records.starts[np.concatenate(([0], np.cumsum(counts)))], borders):
        raise NotColumnar("a record crosses the border of a block")
    return records


# --- decoding side by side --------------------------------------------------------------------------------------------


class _Decoder:
    def __init__(self, data: bytes, layout: Layout, *, lists: bool, keys: frozenset[int], places: bool) -> None:
        self._size = len(data) - len(_PADDING)
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._layout = layout
        self._lists, self._keys, self._places = lists, keys, places

    def decode(self, total: int, anchors: Sequence[str]) -> Records:
        if total == 0:
            if self._size:
                raise NotColumnar("bytes without records")
            return Records(data=self._data, starts=np.zeros(1, np.int64))
        for number in range(1, len(anchors) + 1):
            places = self._search(anchors[:number])
            for _ in range(2):  # once more, if some of them were in other fields of a record
                if len(places) < total:
                    break
                found = self._between(places)
                if isinstance(found, Records):
                    if len(found) != total:
                        raise NotColumnar(f"{len(found)} records (expected {total})")
                    return found
                places = found
        raise NotColumnar("the records could not be told apart")

    def _search(self, anchors: Sequence[str]) -> Ints:
        patterns = (re.escape(write_long(len(text)) + text.encode()) for text in anchors)
        return np.array([found.start() for found in re.finditer(b"|".join(patterns), self._data)], np.int64)

    def _between(self, places: Ints) -> Records | Ints:
        """Decode from each anchor on; if some of them are not anchors, return the real ones."""
        after, before = (Sink(len(places), self._lists, self._keys, places=self._places) for _ in range(2))
        ends = self._run(self._layout.after, places, after)
        starts = np.concatenate(([0], ends))
        landings = self._run(self._layout.before, starts[:-1], before)
        if starts[-1] == self._size and np.array_equal(landings, places):
            return Records(
                data=self._data,
                starts=starts,
                columns=before.columns | after.columns,
                lists=before.lists | after.lists,
                by_key=before.by_key | after.by_key,
                places=(*before.places, *after.places),
            )
        nowhere = Sink(len(starts), False, frozenset())
        return self._chain(places, ends, self._run(self._layout.before, starts, nowhere))

    def _chain(self, places: Ints, ends: Ints, landings: Ints) -> Ints:
        """Return the anchors that decoding record by record would find."""
        numbers = {place: number for number, place in enumerate(places.tolist())}
        ends_list, landings_list = ends.tolist(), landings.tolist()
        kept: list[int] = []
        place = landings_list[0]
        while place in numbers:
            number = numbers[place]
            kept.append(place)
            if ends_list[number] >= self._size:
                break
            place = landings_list[number + 1]
            if place <= kept[-1]:
                break
        return np.array(kept, np.int64)

    def _run(self, steps: Sequence[Step], at: Ints, sink: Sink) -> Ints:
        for step in steps:
            sink.come_to(at)
            at = self._step(step, at, sink)
        return at

    def _step(self, step: Step, at: Ints, sink: Sink) -> Ints:
        if step.null is None:
            return self._read(step, at, sink, None)
        branch, at = self._bytes.take(at), at + 1
        first = int(branch[0])
        null, value = (0, 2) if step.null == 0 else (2, 0)
        if first in (0, 2) and bool((branch == first).all()):
            if first == value:
                return self._read(step, at, sink, None)
            sink.add_nulls(step)
            return at
        where = np.flatnonzero(branch == value)
        at[(branch != null) & (branch != value)] = self._size + 1
        at[where] = self._read(step, at[where], sink, where)
        return at

    def _read(self, step: Step, at: Ints, sink: Sink, where: Ints | None) -> Ints:
        """Read a field of the records `where`, None for all; return where their next fields start."""
        if step.kind == "array":
            return self._array(step, at, sink, where)
        values, lengths, at = self._value(step, at)
        sink.add(step.name, where, values, lengths)
        return at

    def _value(self, step: Step, at: Ints) -> tuple[npt.NDArray[Any], Ints | None, Ints]:
        if step.kind == "int":
            values, at = self._long(at)
            return values, None, at
        if step.kind in ("bytes", "string"):
            lengths, at = self._long(at)
            return at, lengths, self._skip(at, lengths)
        if step.kind == "fixed":
            return at, np.full(len(at), step.size), self._within(at + step.size)
        if step.kind == "boolean":
            flags = self._bytes.take(at)
            return flags.astype(np.bool_), None, np.where(flags < 2, at + 1, self._size + 1)
        width = 4 if step.kind == "float" else 8
        raw = self._bytes.take(at[:, None] + np.arange(width))
        return raw.view(f"<f{width}").ravel(), None, self._within(at + width)

    def _long(self, at: Ints) -> tuple[Ints, Ints]:
        """Read zig-zag integers of variable length."""
        byte, at = self._bytes.take(at), at + 1
        result = byte.astype(np.int64)
        if result.max(initial=0) < 0x80:
            return (result >> 1) ^ -(result & 1), at
        more = byte >= 0x80
        raw = (result & 0x7F).view(np.uint64)
        for shift in range(7, 64, 7):
            byte, at = self._bytes.take(at), at + more
            raw |= np.where(more, byte & 0x7F, 0).astype(np.uint64) << np.uint64(shift)
            if shift == 63:
                at[more & (byte > 1)] = self._size + 1  # more than 64 bits
                break
            more = more & (byte >= 0x80)
            if not more.any():
                break
        return ((raw >> np.uint64(1)) ^ -(raw & np.uint64(1))).view(np.int64), at

    def _skip_long(self, at: Ints) -> Ints:
        byte, at = self._bytes.take(at), at + 1
        if byte.max(initial=0) < 0x80:
            return at
        more = byte >= 0x80
        for number in range(9):
            byte, at = self._bytes.take(at), at + more
            more = more & (byte >= 0x80)
            if not more.any():
                return at
            if number == 8:
                at[more] = self._size + 1
        return at

    def _skip_bytes(self, at: Ints) -> Ints:
        byte = self._bytes.take(at)
        if byte.max(initial=0) < 0x80 and not (byte & 1).any():  # lengths below 64, almost always
            return self._within(at + ((byte >> 1) + 1))
        lengths, at = self._long(at)
        return self._skip(at, lengths)

    def _skip(self, at: Ints, lengths: Ints) -> Ints:
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > self._size:
            return np.where((lengths < 0) | (lengths > self._size - at), self._size + 1, at + lengths)
        return self._within(at + lengths)

    def _within(self, at: Ints) -> Ints:
        """Move positions after the end to one byte after it, which is never a legal end."""
        if at.max(initial=0) > self._size:
            at = np.minimum(at, self._size + 1)
        return at

    def _array(self, step: Step, at: Ints, sink: Sink, where: Ints | None) -> Ints:
        counts, at = self._long(at)
        taken = np.zeros(len(at), np.int64)
        lanes: Ints | None = None  # indexes in `at` of the records with items left; None for all
        collect = sink.collector(step, where, len(at))
        while True:
            here = at if lanes is None else at[lanes]
            # After a negative count the size in bytes follows. No writer does that; record by record it is read.
            odd = (counts < 0) | (counts > self._size - here)
            if odd.any():
                here[odd] = self._size + 1
                counts = np.where(odd, 0, counts)
            here = self._items(step, here, counts, lanes, taken, collect)
            if lanes is None:
                at = here
                taken += counts
                lanes = np.flatnonzero(counts)
            else:
                at[lanes] = here
                taken[lanes] += counts
                lanes = lanes[counts != 0]
            if not len(lanes):
                break
            if len(lanes) == len(at):
                lanes = None
                counts, at = self._long(at)
            else:
                counts, at[lanes] = self._long(at[lanes])
        collect.finish(taken)
        return at

    def _items(self, step: Step, at: Ints, counts: Ints, lanes: Ints | None, taken: Ints, collect: Collector) -> Ints:
        most = int(counts.max(initial=0))
        if most > _MOST_ITEMS:
            raise NotColumnar(f"array of {most} items")
        is_even = most == 0 or bool((counts == most).all())
        active = None if is_even else np.flatnonzero(counts)
        for number in range(most):
            if active is not None:
                active = active[counts[active] > number]
            here = at if active is None else at[active]
            here = self._item(step, here, _pick(lanes, active), number, taken, collect)
            here = self._within(here)
            if active is None:
                at = here
            else:
                at[active] = here
        return at

    def _item(self, step: Step, at: Ints, lanes: Ints | None, number: int, taken: Ints, collect: Collector) -> Ints:
        if not collect.is_needed:
            for part in step.items:
                if part.kind == "int":
                    at = self._skip_long(at)
                else:
                    at = self._skip_bytes(at)
            return at
        found: dict[str, tuple[npt.NDArray[Any], Ints | None]] = {}
        for part in step.items:
            values, lengths, at = self._value(part, at)
            found[part.name] = (values, lengths)
        collect.add(lanes, (taken if lanes is None else taken[lanes]) + number, found)
        return at


def _pick(lanes: Ints | None, active: Ints | None) -> Ints | None:
    """Return `active` of `lanes`; None means all of them."""
    if active is None:
        return lanes
    return active if lanes is None else lanes[active]
