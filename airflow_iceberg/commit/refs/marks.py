"""Marks of changes of refs that tasks have made, as properties of the table.

A change of a branch or tag makes no snapshot, so that no summary can hold the operation key; and the ref itself tells
nothing once another writer has moved it. So the commit that changes refs for a task also writes a mark:

    airflow.ref-changes.<digest of the table, the task and the step>.<digest of the installation> = {"epoch": "…", …}

A retry that finds the mark of its epoch has nothing to do, whatever became of the ref since. A cleared task has another
epoch: it changes the table as it is now, and writes the mark again. The oldest of too many marks are removed; the
newest one then says of when they were, so that a retry knows when its own may have been among them.

Not here: the changes (`commit.actions.snapshot_refs`), lists of changes of the schema (`plan.alter_table.applied`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.operation_key import CLOCKS_DIFFER_MS, OperationKey, has_same_start, is_later
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import RemoveProperties, SetProperties, Update
from airflow_iceberg.format.values.digits import whole_number

PREFIX = "airflow.ref-changes."
MOST_MARKS = 100
# Catalogs keep properties in databases: the refs of a change of very many are left out.
_MOST_CHARACTERS = 3000

Moves = Mapping[str, tuple[int | None, int | None]]
"""The snapshots of refs before and after a change, by the name of the ref; None where it did not exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A change that was made.

    Attributes:
        name: the property.
        number: counts the marks of a table.
        epoch, try_number: of the task that made it; None if another writer has damaged the mark.
        call: identifies the call that made it.
        timestamp_ms: when it was made.
        forgotten_ms: when the newest mark was made that had been removed before.
        moves: what it did to refs.
    """

    name: str
    number: int
    epoch: int | None
    try_number: int
    call: str
    timestamp_ms: int
    forgotten_ms: int
    moves: Moves = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, text: str) -> Mark:
        """Read a property."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        entries: dict[str, Any] = found if isinstance(found, dict) else {}

        def number(key: str) -> int:
            return whole_number(str(entries.get(key))) or 0

        epoch = str(entries.get("epoch"))
        return cls(
            name=name,
            number=number("number"),
            # Of microseconds, clears and tries: more digits than a long has.
            epoch=int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 40 else None,
            try_number=number("try"),
            call=str(entries.get("call")),
            timestamp_ms=number("timestamp-ms"),
            forgotten_ms=number("forgotten-ms"),
            moves=_moves(entries.get("refs")),
        )


def _moves(value: object) -> Moves:
    if not isinstance(value, dict):
        return {}
    pairs = {name: pair for name, pair in value.items() if isinstance(pair, list) and len(pair) == 2}
    return {name: (whole_number(str(old)), whole_number(str(new))) for name, (old, new) in pairs.items()}


class OnceOnly:
    """One call that changes refs for a task, as one step of it.

    Args:
        step: what is done to which refs: a task does each step once.
        try_number: the number of the task's try; None if any call may be the second one.
        call: a unique text.
    """

    def __init__(self, key: OperationKey, step: str, *, try_number: int | None, call: str) -> None:
        self._key = key
        self._step = step
        self._try_number = try_number or key.try_number
        self._call = call

    def find(self, metadata: TableMetadata) -> Mark | None:
        """Return the mark of this step, of this or another try of the same epoch; None: it was not done.

        Raises:
            IncompatibleChangeError: a run after a later clear has done it, or nothing tells any more whether it was
                done.
        """
        marks = all_marks(metadata)
        own, prefix = self._name(metadata), self._prefix(metadata)
        for mark in (mark for mark in marks if mark.name.startswith(prefix)):
            is_same = mark.epoch == self._key.epoch
            if mark.name != own:
                # Workers of one installation may be configured differently. No two runs start in the same microsecond.
                if is_same and has_same_start(self._key, mark.epoch):
                    return mark
                continue
            if mark.epoch is None:
                raise IncompatibleChangeError(
                    f"property {own} of table {metadata.location} is damaged, which says whether this task has changed "
                    f"the table already; nothing was changed, remove the property to let it do so"
                )
            if is_same:
                return mark
            if is_later(self._key, mark.epoch, mark.try_number):
                raise IncompatibleChangeError(
                    f"operation {self._key} was superseded: the task was cleared, and its next run has done this step "
                    f"({self._step}) already; nothing was changed"
                )
        self._check_not_forgotten(metadata, marks)
        return None

    def _check_not_forgotten(self, metadata: TableMetadata, marks: Sequence[Mark]) -> None:
        """Refuse a retry whose mark may be among those that were removed."""
        started_ms = self._key.started_ms
        forgotten_ms = max((mark.forgotten_ms for mark in marks), default=0)
        if self._try_number == 1 or not forgotten_ms:
            return
        if started_ms is None and self._try_number is None:
            return  # whatever may repeat a call has to say so
        if started_ms is None or forgotten_ms >= started_ms - CLOCKS_DIFFER_MS:
            raise IncompatibleChangeError(
                f"it is not known any more whether an earlier try of operation {self._key} has done this step "
                f"({self._step}): table {metadata.location} keeps the marks of {MOST_MARKS} such changes, and more "
                f"were made since; nothing was changed, look at the refs of the table, and clear the task to do it"
            )

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        """Whether this call, or another one of the same work, has made the change."""
        text = metadata.properties.get(self._name(metadata))
        if text is not None and Mark.parse("", text).call == self._call:
            return Outcome.COMMITTED
        try:
            return None if self.find(metadata) is None else Outcome.FOUND
        except IncompatibleChangeError:
            return None  # the attempt says so

    def check(self, metadata: TableMetadata) -> None:
        """Check before an attempt that the step may be done; raises what `find` raises."""
        self.find(metadata)

    def proves_absence(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether a mark that was written on a base would still be there: no mark was removed since."""
        before, after = ({mark.name: mark for mark in all_marks(one)} for one in (base, metadata))
        forgotten = (max((mark.forgotten_ms for mark in marks.values()), default=0) for marks in (before, after))
        is_other = after.get(self._name(metadata)) != before.get(self._name(metadata))
        return not is_other and before.keys() <= after.keys() and len(set(forgotten)) == 1

    def updates(self, metadata: TableMetadata, moves: Moves) -> Iterator[Update]:
        """Yield the updates that set the mark, and remove those that are too many."""
        name = self._name(metadata)
        marks = [mark for mark in all_marks(metadata) if mark.name != name]
        oldest = sorted(marks, key=lambda mark: (mark.number, mark.name))[: max(0, len(marks) + 1 - MOST_MARKS)]
        document = {
            "epoch": str(self._key.epoch),
            "try": self._try_number or 0,
            "call": self._call,
            "number": max((mark.number for mark in marks), default=0) + 1,
            # A slow clock must not make marks look older than the commits before them.
            "timestamp-ms": max(now_ms(), metadata.last_updated_ms),
        }
        forgotten = max([*(mark.forgotten_ms for mark in marks), *(mark.timestamp_ms for mark in oldest), 0])
        if forgotten:
            document["forgotten-ms"] = forgotten
        refs = {ref: [None if one is None else str(one) for one in pair] for ref, pair in moves.items()}
        if len(json.dumps(refs)) <= _MOST_CHARACTERS:
            document["refs"] = refs
        yield SetProperties(updates={name: json.dumps(document, separators=(",", ":"))})
        if oldest:
            yield RemoveProperties(removals=tuple(mark.name for mark in oldest))

    def _name(self, metadata: TableMetadata) -> str:
        return f"{self._prefix(metadata)}{_digest(self._key.installation)[:8]}"

    def _prefix(self, metadata: TableMetadata) -> str:
        # With the table's uuid: properties are copied to other tables.
        return f"{PREFIX}{_digest([metadata.table_uuid or self._call, self._key.task, self._step])[:16]}."


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def all_marks(metadata: TableMetadata) -> list[Mark]:
    """Return the marks of a table."""
    return [Mark.parse(name, text) for name, text in metadata.properties.items() if name.startswith(PREFIX)]
