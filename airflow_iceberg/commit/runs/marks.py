"""Whose rows a data file holds, in its name: what is known of an operation key after the snapshot has expired.

A token tells one work, and does not tell what it is. The mark tells the run and the task, each by a digest, and the map
index, with a digest of what it stood for: so that rows of a task that was renamed, or of another index, are known.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

MARK = r"w(?P<run>[0-9a-f]{12})(?P<task>[0-9a-f]{8})(?:(?P<key>k)|i(?P<index>[0-9]{1,9})(?:x(?P<item>[0-9a-f]{12}))?)?"
"""What a mark looks like; older versions wrote none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Whose rows a file holds.

    Attributes:
        run: a digest of the DAG, its run and the installation.
        task: a digest of the DAG and the task.
        index: the map index; -1 if the task was not mapped, or its part has a `write_key`.
        item: a digest of what the index stood for, if that was known.
        is_by_key: whether the part of the task has a `write_key`.
    """

    run: str
    task: str
    index: int = -1
    item: str | None = None
    is_by_key: bool = False

    def __str__(self) -> str:
        index = "" if self.index < 0 else f"i{self.index}" + ("" if self.item is None else f"x{self.item}")
        return f"w{self.run}{self.task}{'k' if self.is_by_key else index}"

    @classmethod
    def of(cls, found: re.Match[str]) -> Mark | None:
        """Return the mark of a name that matches; None if it has none."""
        if found["run"] is None:
            return None
        return cls(
            run=found["run"],
            task=found["task"],
            index=-1 if found["index"] is None else int(found["index"]),
            item=found["item"],
            is_by_key=found["key"] is not None,
        )


def run_digest(run: str, installation: str | None) -> str:
    """Return twelve hexadecimal digits that stand for a DAG run of an installation."""
    return _digest(f"{run}/{installation or ''}", 12)


def task_digest(dag_id: str, task_id: str) -> str:
    """Return eight hexadecimal digits that stand for a task, in all runs."""
    return _digest(f"{dag_id}/{task_id}", 8)


def item_digest(item: str) -> str:
    """Return twelve hexadecimal digits that stand for what a map index is expanded with."""
    return _digest(item, 12)


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
