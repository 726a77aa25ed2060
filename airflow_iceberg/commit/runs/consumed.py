"""What a commit says of the changes of tables that its rows were made from: ranges of snapshots, in JSON.

In the summary of a snapshot (`write_result.INPUTS`), and in properties of the table:

    airflow.consumed.<digest of who has read> = {"task": …, "inputs": {<name>: {"snapshot-id": …, "reads": …, …}}}

Not here: whose they are, and where the next run begins (`commit.watermarks`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.commit.operation_key import SOURCE_SNAPSHOT_ID
from airflow_iceberg.commit.write_result import INPUTS
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.values.digits import whole_number

PREFIX = "airflow.consumed."

WAYS_OUT = (
    "say in `since`, for this one run, which snapshot, tag or time of the input to read after, or None to read all of "
    "its rows"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The changes of an input that were read.

    Attributes:
        table_uuid: the uuid of the input; empty for a table without one.
        from_snapshot_id: the snapshot after which they begin; None: all rows of the last one.
        to_snapshot_id: the last snapshot; None: the input had none.
        reads: a digest of which of them were read: the filter and so on; None: the watermark is damaged.
    """

    table_uuid: str
    from_snapshot_id: int | None
    to_snapshot_id: int | None
    reads: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Consumed:
    """The changes of an input that a commit's rows were made from.

    Attributes:
        name: the name of the input.
        read: the range.
        consumer: the name that the author gives to who reads; None: the task is it.
        is_again: whether a cleared task has read its own range again.
        is_since_last: whether the range begins at the watermark.
        is_first: whether there was none when the work was planned.
    """

    name: str
    read: Range
    consumer: str | None = None
    is_again: bool = False
    is_since_last: bool = False
    is_first: bool = False


def property_of(task: Sequence[Any]) -> str:
    """Return the name of the property that says how far somebody has read."""
    return f"{PREFIX}{hashlib.sha256(json.dumps(task).encode()).hexdigest()[:16]}"


def all_kept(metadata: TableMetadata) -> Iterator[tuple[list[Any], Mapping[str, Mapping[str, Any]]]]:
    """Yield the tasks and branches of all watermarks that properties have, and what they say of each input."""
    for name, text in metadata.properties.items():
        found = document_of(text) if name.startswith(PREFIX) else {}
        task, inputs = found.get("task"), found.get("inputs")
        if isinstance(task, list) and len(task) == 5 and isinstance(inputs, dict) and are_objects(inputs):
            yield task, inputs


def has_read_in_expired(metadata: TableMetadata, work: str) -> bool:
    """Whether a work has read changes, by what properties say, in a commit whose snapshot has expired."""
    entries = (entry for _, inputs in all_kept(metadata) for entry in inputs.values() if entry.get("work") == work)
    return any(metadata.snapshot(number_of(entry, "target-snapshot-id")) is None for entry in entries)


def consumed_by(snapshot: Snapshot) -> tuple[Consumed, ...] | None:
    """Return which changes a snapshot's rows were made from, as its summary says; None if they were read again."""
    entries = document_of(snapshot.summary.get(INPUTS, "{}"))
    read = {name: one for name, one in entries.items() if isinstance(one, dict) and "from-snapshot-id" in one}
    if any(one.get("again") for one in read.values()):
        return None
    return tuple(
        Consumed(
            name=name,
            read=range_of(one),
            consumer=one.get("consumer"),
            is_since_last=True,
            is_first=one["from-snapshot-id"] is None,
        )
        for name, one in read.items()
    )


def texts_of(read: Range) -> dict[str, str | None]:
    """Return a range as `range_of` reads it; ids are texts, since JavaScript rounds integers above 2**53."""
    first, last = read.from_snapshot_id, read.to_snapshot_id
    return {
        "table-uuid": read.table_uuid,
        "from-snapshot-id": None if first is None else str(first),
        "snapshot-id": None if last is None else str(last),
        **({} if read.reads is None else {"reads": read.reads}),
    }


def entry_of(metadata: TableMetadata, snapshot: Snapshot, name: str) -> Mapping[str, Any] | None:
    """Return what a snapshot's summary says of the changes of an input; None: its rows were not made from any."""
    return dict(entries_of(metadata, snapshot)).get(name)


def entries_of(metadata: TableMetadata, snapshot: Snapshot) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the inputs whose changes a snapshot's rows were made from, and what its summary says of them.

    A cherry-pick says nothing itself: the snapshot does whose files it has.
    """
    source = whole_number(snapshot.summary.get(SOURCE_SNAPSHOT_ID, ""))
    picked = None if source is None else metadata.snapshot(source)
    found: dict[str, Mapping[str, Any]] = {}
    for each in (snapshot, picked):
        entries = {} if each is None else document_of(each.summary.get(INPUTS, "{}"))
        for name, entry in entries.items():
            if isinstance(entry, dict) and "mode" in entry:
                found.setdefault(name, entry)
    return list(found.items())


def range_of(entry: Mapping[str, Any]) -> Range:
    """Read a range; raises IncompatibleChangeError if it is damaged, since without ids it would be the whole table."""
    first, last = (entry.get(name, "") for name in ("from-snapshot-id", "snapshot-id"))
    if any(one is not None and whole_number(str(one)) is None for one in (first, last)):
        raise IncompatibleChangeError(f"what this task has read last is damaged: {json.dumps(entry)}; {WAYS_OUT}")
    reads = entry.get("reads")
    return Range(
        table_uuid=str(entry.get("table-uuid") or ""),
        from_snapshot_id=None if first is None else int(first),
        to_snapshot_id=None if last is None else int(last),
        reads=None if reads is None else str(reads),
    )


def number_of(entry: Mapping[str, Any], name: str) -> int:
    """Return a whole number of an entry; 0 if it has none."""
    return whole_number(str(entry.get(name))) or 0


def document_of(text: str) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def are_objects(value: object) -> bool:
    """Whether all values of a JSON object are objects."""
    return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
