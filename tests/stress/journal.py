"""What an actor writes down: of each operation what it is to do, before it begins, and how it ended.

One file of JSON lines an actor. A line is one write to a file that is only appended to, so that a process that is
killed leaves whole lines. What an actor is at is noted in a file beside, with the moment at which it began: whoever
removes what is old must not be quicker than the slowest of them.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Operation:
    """One operation of an actor, over all its tries.

    Attributes:
        kind: what it does, see `actors`.
        arguments: of it, JSON values.
        begun_ms: when its first try began.
        tries: so many were begun.
        errors: names of the errors that ended a try, to be tried again.
        outcome: "landed", "nothing" or "refused"; None while it is not done.
        snapshots: (snapshot id, sequence number) of what landed.
    """

    actor: str
    number: int
    kind: str
    arguments: dict[str, Any]
    begun_ms: int
    tries: int = 0
    errors: list[str] = field(default_factory=list)
    outcome: str | None = None
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tag(self) -> str:
        return f"{self.actor}:{self.number}"


class Journal:
    """The file of one actor."""

    def __init__(self, folder: Path, actor: str) -> None:
        self.actor = actor
        self._path = folder / "journal" / f"{actor}.jsonl"
        self._current = folder / "current" / actor
        for path in (self._path, self._current):
            path.parent.mkdir(parents=True, exist_ok=True)

    def operations(self) -> list[Operation]:
        """Return all operations that were begun, in their order."""
        found: dict[int, Operation] = {}
        for line in self._lines():
            if line["event"] == "begin":
                found[line["op"]] = Operation(
                    self.actor, line["op"], line["kind"], line["arguments"], begun_ms=line["at_ms"]
                )
                continue
            operation = found[line["op"]]
            if line["event"] == "try":
                operation.tries += 1
            elif line["event"] == "error":
                operation.errors.append(line["error"])
            elif line["event"] == "note":
                operation.notes.append(line)
            elif line["event"] == "done":
                operation.outcome = line["outcome"]
                operation.snapshots += [(found_id, number) for found_id, number in line["snapshots"]]
        return list(found.values())

    def begin(self, number: int, kind: str, arguments: dict[str, Any]) -> Operation:
        """Write down what is to be done, before anything of it is."""
        at_ms = now_ms()
        temporary = self._current.with_suffix(".new")
        temporary.write_text(str(at_ms))
        temporary.replace(self._current)
        self._write({"event": "begin", "op": number, "kind": kind, "arguments": arguments, "at_ms": at_ms})
        return Operation(self.actor, number, kind, arguments, begun_ms=at_ms)

    def note(self, operation: Operation, event: str, **more: Any) -> None:
        self._write({"event": event, "op": operation.number, **more})

    def done(self, operation: Operation, outcome: str, snapshots: list[tuple[int, int]]) -> None:
        self._write({"event": "done", "op": operation.number, "outcome": outcome, "snapshots": snapshots})
        self.idle()

    def idle(self) -> None:
        self._current.unlink(missing_ok=True)

    def _write(self, line: dict[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            data = json.dumps(line).encode() + b"\n"
            assert os.write(descriptor, data) == len(data)
        finally:
            os.close(descriptor)

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                yield json.loads(line)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def oldest_begin_ms(folder: Path) -> int:
    """Return the moment since when everything counts that anybody is still at."""
    found = [now_ms()]
    for path in (folder / "current").iterdir():
        try:
            text = "" if path.suffix == ".new" else path.read_text()
        except FileNotFoundError:
            continue  # done just now
        found += [int(text)] if text else []
    # The clock of the file system is coarser than ours.
    return min(found) - 1000


def journals(folder: Path) -> list[Operation]:
    names = sorted(path.stem for path in (folder / "journal").iterdir())
    return [operation for name in names for operation in Journal(folder, name).operations()]
