"""Marks of lists of changes that were made, as properties of the table.

A schema does not tell how it came about: a dropped column that was added again, and two names that were exchanged, look
as if nothing had been done, and old schemas are removed one day. So the commit that makes a list writes a mark, unless
the list would change nothing if it were made again. The mark is a property of its own, so that no writer overwrites the
mark of another one:

    airflow.applied-changes.<digest of the table and the list>.<the work that made it> = <number> <kind> <call>

Not here: what a list does when it is made again (`changes.on_repetition`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
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
"""The oldest of more marks are removed: those of lists that may be made again first."""
# In place of a work, for calls without an operation key.
_NO_WORK = "any"


class Kind(StrEnum):
    """What is done when a list with a mark is to be made again, as other work."""

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
    """

    name: str
    number: int
    kind: Kind
    call: str

    @classmethod
    def parse(cls, name: str, text: str) -> Mark:
        """Read a property; one that another writer has damaged is the oldest of the safe kind."""
        number, kind, call = (*text.split(" ", 2), "", "", "")[:3]
        return cls(
            name=name,
            number=whole_number(number) or 0,
            kind=Kind.AGAIN if kind == Kind.AGAIN else Kind.ONCE,
            call=call,
        )


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

    def updates(self, metadata: TableMetadata, kind: Kind) -> Iterator[Update]:
        """Yield the updates that set the mark, and remove those that are too many."""
        name = self._name(metadata)
        marks = {mark.name: mark for mark in _all_marks(metadata)}
        others = [mark for mark in marks.values() if mark.name != name]
        # One that is written again keeps its number, so that a gap in the numbers is a mark that was lost.
        number = marks[name].number if name in marks else max((mark.number for mark in others), default=0) + 1
        yield SetProperties(updates={name: f"{number} {kind} {self.call}"})
        oldest = sorted(others, key=lambda mark: (mark.kind is Kind.ONCE, mark.number, mark.name))
        gone = tuple(mark.name for mark in oldest[: max(0, len(others) + 1 - MOST_MARKS)])
        if gone:
            yield RemoveProperties(removals=gone)

    def has_lost_marks(self, metadata: TableMetadata) -> bool:
        """Whether marks were removed: then a list without a mark may have been made."""
        numbers = [mark.number for mark in _all_marks(metadata)]
        return max(numbers, default=0) > len(numbers)

    def proves_absence(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether a mark that was written on a base would still be there: no property and no mark was lost since."""
        has_other = self._name(metadata) in metadata.properties
        has_lost = not base.properties.keys() <= metadata.properties.keys() or len(_all_marks(metadata)) >= MOST_MARKS
        return not (has_other or has_lost)

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


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; equal changes give equal documents."""
    if isinstance(value, Mapping):
        return sorted(([str(key), _plain(item)] for key, item in value.items()), key=itemgetter(0))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
