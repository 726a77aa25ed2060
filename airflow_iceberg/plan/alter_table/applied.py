"""Marks of lists of changes that were made, as properties of the table.

A schema does not tell how it came about: a dropped column that was added again, and two names that were exchanged, look
as if nothing had been done; a list and its mirror image lead from one state to the other; and old schemas are removed
one day. So each commit that makes a list writes a mark, and only a mark proves that a list was made. It is a property
of its own, so that no writer overwrites the mark of another one:

    airflow.applied-changes.<digest of table and list>.<the work that made it> = <number> <kind> <call> <removed>

Not here: what a list does when it is made again (`changes.on_repetition`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import RemoveProperties, SetProperties, Update
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.alter_table.words import Changes

PREFIX = "airflow.applied-changes."
MOST_MARKS = 50
"""The oldest of more marks are removed: those of lists that harm nothing when they are made again first."""
# In place of a work, for calls without an operation key.
_NO_WORK = "any"


class Kind(StrEnum):
    """What is done when a list with a mark is to be made again, as other work: the least important kind first."""

    MADE = "made"
    """It is made again: what it makes is there, or is made once more."""
    AGAIN = "again"
    """It is made again: each change finds its result, or the column that is meant now."""
    ONCE = "once"
    """Nothing: it would change what it has made, or fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A list that was made.

    Attributes:
        name: the property.
        number: counts the marks of a table.
        call: identifies the call that made it.
        removed: how many marks of the kind MADE had been removed by then, since there were too many.
    """

    name: str
    number: int
    kind: Kind
    call: str
    removed: int = 0

    @classmethod
    def parse(cls, name: str, text: str) -> Mark:
        """Read a property; one that another writer has damaged is the oldest of the safe kind."""
        number, kind, call, removed = (*text.split(" ", 3), "", "", "", "")[:4]
        return cls(
            name=name,
            number=whole_number(number) or 0,
            kind=Kind(kind) if kind in list(Kind) else Kind.ONCE,
            call=call,
            removed=whole_number(removed) or 0,
        )

    @property
    def rank(self) -> tuple[int, int, str]:
        """Marks are removed in this order."""
        return list(Kind).index(self.kind), self.number, self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """One call that makes a list of changes.

    Attributes:
        work: twelve digits that stand for the work of a task, the same for all its tries; None outside of Airflow.
        call: a unique text.
        new_uuid: the uuid that a table without one gets.
    """

    changes: Changes
    work: str | None
    call: str
    new_uuid: str

    def own_mark(self, metadata: TableMetadata) -> Mark | None:
        """Return the mark of the same list and the same work, or without a work of this very call."""
        name = self._name(metadata)
        text = metadata.properties.get(name)
        mark = None if text is None else Mark.parse(name, text)
        return mark if mark is not None and (self.work is not None or mark.call == self.call) else None

    def marks(self, metadata: TableMetadata) -> list[Mark]:
        """Return the marks of the same list, whatever work made it."""
        prefix = self._prefix(metadata)
        return [mark for mark in _all_marks(metadata) if mark.name.startswith(prefix)]

    def has_marks(self, metadata: TableMetadata) -> bool:
        """Whether the table has the mark of any list."""
        return bool(_all_marks(metadata))

    def updates(self, metadata: TableMetadata, kind: Kind) -> Iterator[Update]:
        """Yield the updates that set the mark, and remove those that are too many."""
        name = self._name(metadata)
        marks = {mark.name: mark for mark in _all_marks(metadata)}
        others = [mark for mark in marks.values() if mark.name != name]
        gone = sorted(others, key=lambda mark: mark.rank)[: max(0, len(others) + 1 - MOST_MARKS)]
        removed = _removed(marks.values()) + sum(mark.kind is Kind.MADE for mark in gone)
        yield SetProperties(updates={name: f"{self._number(metadata)} {kind} {self.call} {removed}"})
        if gone:
            yield RemoveProperties(removals=tuple(mark.name for mark in gone))

    def _number(self, metadata: TableMetadata) -> int:
        marks = {mark.name: mark.number for mark in _all_marks(metadata)}
        # One that is written again keeps its number, so that a gap in the numbers is a mark that was lost.
        return marks.get(self._name(metadata)) or max(marks.values(), default=0) + 1

    def is_told(self, metadata: TableMetadata) -> bool:
        """Whether the list would have a mark if it had been made: there are marks, and none that counts was removed."""
        marks = _all_marks(metadata)
        numbers = [mark.number for mark in marks]
        return bool(marks) and max(numbers) <= len(numbers) + _removed(marks)

    def proves_absence(self, metadata: TableMetadata, base: TableMetadata, kind: Kind) -> bool:
        """Whether the mark of this call, written on a base, would still be there: no property and no mark was lost."""
        if metadata.properties == base.properties:
            return True
        name = self._name(base)
        own = Mark(name=name, number=self._number(base), kind=kind, call=self.call)
        others = [mark for mark in _all_marks(metadata) if mark.name != name]
        would_be_there = len(others) < MOST_MARKS or any(mark.rank < own.rank for mark in others)
        has_other = metadata.properties.get(name) != base.properties.get(name)
        return would_be_there and not has_other and not _has_lost_properties(metadata, base)

    def _name(self, metadata: TableMetadata) -> str:
        return f"{self._prefix(metadata)}{self.work or _NO_WORK}"

    def _prefix(self, metadata: TableMetadata) -> str:
        # With the table's uuid: properties are copied to other tables.
        text = json.dumps([metadata.table_uuid or self.new_uuid, _plain(self.changes)])
        return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}."


def without_marks(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a table that are not marks."""
    return {name: value for name, value in properties.items() if not name.startswith(PREFIX)}


def _all_marks(metadata: TableMetadata) -> list[Mark]:
    found = metadata.properties.items()
    return [Mark.parse(name, text) for name, text in found if name.startswith(PREFIX)]


def _removed(marks: Iterable[Mark]) -> int:
    return max((mark.removed for mark in marks), default=0)


def _has_lost_properties(metadata: TableMetadata, base: TableMetadata) -> bool:
    """Whether properties of an older state are missing, other than marks that were removed since there are too many."""
    lost = base.properties.keys() - metadata.properties.keys()
    left = min((mark.rank for mark in _all_marks(metadata)), default=None)
    gone = {mark.name for mark in _all_marks(base) if left is not None and mark.rank < left}
    return not lost <= gone


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; equal changes give equal documents."""
    if isinstance(value, Mapping):
        return sorted(([str(key), _plain(item)] for key, item in value.items()), key=itemgetter(0))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
