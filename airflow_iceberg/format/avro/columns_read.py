"""The results of the reader of Avro columns (`columns`), and the objects that collect them while it reads.

Here: columns, lists, and the sinks that collect them step by step. Not here: decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_iceberg.format.avro.layout import Step

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a field.

    Attributes:
        values: numbers and booleans; for texts and bytes their start in `Records.data`.
        lengths: lengths of texts and bytes, None for others.
        valid: the mask of the values that are not null; None if no value is null.
    """

    values: npt.NDArray[Any]
    lengths: Ints | None = None
    valid: Mask | None = None

    def is_valid(self) -> Mask:
        """Return True where the value is not null."""
        return np.ones(len(self.values), np.bool_) if self.valid is None else self.valid


@dataclass(frozen=True, slots=True)
class Lists:
    """The arrays of a field: the items of all records one after the other.

    Attributes:
        counts: number of items of each record, 0 for null.
        items: columns of the fields of an item.
    """

    counts: Ints
    items: dict[str, Column]
    valid: Mask | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Decoded records.

    Attributes:
        data: bytes of texts and bytes, to which their columns refer.
        starts: start of each record, and the end of the last one.
        columns: columns by the name of the field.
        lists: requested arrays by the name of the field.
        by_key: values of a map (an array of `key` and `value`) by its name and the requested key.
        places: starts of each field in the order of the layout's steps, if requested.
    """

    data: bytes
    starts: Ints
    columns: dict[str, Column] = field(default_factory=dict)
    lists: dict[str, Lists] = field(default_factory=dict)
    by_key: dict[tuple[str, int], Column] = field(default_factory=dict)
    places: tuple[Ints, ...] = ()

    def __len__(self) -> int:
        return len(self.starts) - 1


# --- keeping what was decoded -----------------------------------------------------------------------------------------


Found: TypeAlias = "Mapping[str, tuple[npt.NDArray[Any], Ints | None]]"


class Sink:
    """The columns of one run over `size` records."""

    def __init__(self, size: int, lists: bool, keys: frozenset[int], *, places: bool = False) -> None:
        self._size = size
        self._with_places = places
        self._with_lists, self._keys = lists, keys
        self.columns: dict[str, Column] = {}
        self.lists: dict[str, Lists] = {}
        self.by_key: dict[tuple[str, int], Column] = {}
        self.places: list[Ints] = []

    def come_to(self, at: Ints) -> None:
        """Record where the next field starts, if requested."""
        if self._with_places:
            self.places.append(at)

    def add(self, name: str, where: Ints | None, values: npt.NDArray[Any], lengths: Ints | None) -> None:
        self.columns[name] = self._spread(where, values, lengths)

    def _spread(self, where: Ints | None, values: npt.NDArray[Any], lengths: Ints | None) -> Column:
        if where is None:
            return Column(values, lengths)
        sizes = None if lengths is None else self._scatter(where, lengths)
        return Column(self._scatter(where, values), sizes, self._valid(where))

    def _scatter(self, where: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        result = np.zeros(self._size, values.dtype)
        result[where] = values
        return result

    def _valid(self, where: Ints) -> Mask:
        valid = np.zeros(self._size, np.bool_)
        valid[where] = True
        return valid

    def add_nulls(self, step: Step) -> None:
        nothing = np.zeros(self._size, np.bool_)
        zeros = np.zeros(self._size, np.int64)
        if step.kind == "array":
            if self._with_lists:
                empty = {
                    part.name: Column(zeros[:0], zeros[:0] if part.kind == "bytes" else None) for part in step.items
                }
                self.lists[step.name] = Lists(zeros, empty, nothing)
        else:
            self.columns[step.name] = Column(
                zeros, zeros if step.kind in ("bytes", "string", "fixed") else None, nothing
            )

    def collector(self, step: Step, where: Ints | None, size: int) -> Collector:
        is_map = len(step.items) == 2 and step.items[0].name == "key"
        return Collector(
            self, step, where, size, with_lists=self._with_lists, keys=self._keys if is_map else frozenset()
        )

    def add_lists(self, name: str, where: Ints | None, counts: Ints, items: dict[str, Column]) -> None:
        if where is None:
            self.lists[name] = Lists(counts, items, None)
        else:
            self.lists[name] = Lists(self._scatter(where, counts), items, self._valid(where))

    def add_by_key(self, name: str, key: int, where: Ints | None, column: Column) -> None:
        if where is not None:
            spread = self._spread(where, column.values, column.lengths)
            assert spread.valid is not None
            spread.valid[where] = column.is_valid()
            column = spread
        self.by_key[name, key] = column


class Collector:
    """Collects the items of one array, step by step, for the sink."""

    def __init__(
        self, sink: Sink, step: Step, where: Ints | None, size: int, *, with_lists: bool, keys: frozenset[int]
    ) -> None:
        self._sink, self._step, self._where, self._size = sink, step, where, size
        self._with_lists, self._keys = with_lists, keys
        self.is_needed = with_lists or bool(keys)
        self._parts: list[tuple[Ints | None, Ints, Found]] = []
        self._by_key: dict[int, Column] = {}

    def add(self, lanes: Ints | None, number: Ints, found: Found) -> None:
        if self._with_lists:
            self._parts.append((lanes, number, found))
        if self._keys:
            keys, (values, lengths) = found["key"][0], found["value"]
            first = int(keys[0]) if len(keys) else 0
            if lanes is None and bool((keys == first).all()):
                if first in self._keys:
                    self._by_key[first] = Column(values, lengths)
                return
            for key in self._keys.intersection(np.unique(keys).tolist()):
                self._put(key, keys == key, lanes, values, lengths)

    def _put(self, key: int, chosen: Mask, lanes: Ints | None, values: npt.NDArray[Any], lengths: Ints | None) -> None:
        where = np.flatnonzero(chosen) if lanes is None else lanes[chosen]
        old = self._by_key.get(key)
        valid = np.zeros(self._size, np.bool_) if old is None else old.is_valid().copy()
        numbers = np.zeros(self._size, np.int64) if old is None else old.values.copy()
        sizes = None if lengths is None else np.zeros(self._size, np.int64)
        if old is not None and old.lengths is not None:
            sizes = old.lengths.copy()
        valid[where], numbers[where] = True, values[chosen]
        if sizes is not None and lengths is not None:
            sizes[where] = lengths[chosen]
        self._by_key[key] = Column(numbers, sizes, valid)

    def finish(self, counts: Ints) -> None:
        for key, column in self._by_key.items():
            self._sink.add_by_key(self._step.name, key, self._where, column)
        if self._with_lists:
            offsets = np.cumsum(counts) - counts
            total = int(counts.sum())
            items = {part.name: self._join(part, offsets, total) for part in self._step.items}
            self._sink.add_lists(self._step.name, self._where, counts, items)

    def _join(self, part: Step, offsets: Ints, total: int) -> Column:
        values = np.zeros(total, np.int64)
        lengths = np.zeros(total, np.int64) if part.kind == "bytes" else None
        for lanes, number, found in self._parts:
            places = (offsets if lanes is None else offsets[lanes]) + number
            values[places], sizes = found[part.name]
            if lengths is not None and sizes is not None:
                lengths[places] = sizes
        return Column(values, lengths)
