"""What a look at a table means to one who waits for it: sensors call this in the worker, their triggers in a thread.

Here: `Waiting`, the errors that waiting can mend, and what is logged on the way. Not here: the conditions
(`plan.conditions`), and who looks how often (`_table_poll`, `sensors`). Imports nothing heavy.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.retries import is_final
from airflow_iceberg.triggers._facts import TableFacts
from airflow_iceberg.triggers._table_poll import Look

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog, TableState
    from airflow_iceberg.plan.conditions.decision import Condition

# Between two lines of a log that say the same.
LOOKS_BETWEEN_NOTES = 10
_turns = count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The wait has ended: the task's result, in JSON types."""

    result: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What the log should say while the wait goes on."""

    level: int
    text: str


class Waiting:
    """One who waits for a table to meet a condition.

    Args:
        wait_for_table: whether a table or branch that does not exist is waited for, instead of being an error.

    Attributes:
        text: what is waited for, and what the table had in the last look.
    """

    def __init__(self, table: str, condition: Condition, *, wait_for_table: bool = False) -> None:
        self.table = table
        self.condition = condition
        self.wait_for_table = wait_for_table
        self.text = f"waiting for {condition.waits_for()} of table {table}"
        self._looks = 0
        # Those who wait for the same take turns in the log.
        self._turn = next(_turns) % LOOKS_BETWEEN_NOTES
        self._decided: TableState | None = None
        self._until_ms: float = math.inf
        self._found: Found | None = None

    def __call__(self, look: Look) -> Found | Note | None:
        """Take one look into account.

        Returns:
            The end of the wait, or what the log should say now; None for neither.

        Raises:
            IcebergError: no later look can succeed, for example because the table does not exist.
        """
        level = logging.INFO
        try:
            if look.state is None:
                raise look.error or NotFoundError(f"table {self.table} could not be loaded")
            now_ms = time.time_ns() // 1_000_000
            if self._found is None and (look.state is not self._decided or now_ms >= self._until_ms):
                self._decide(look.state, look.facts, now_ms)
        except IcebergError as error:
            level = self._level_of(error)
            self._set_text(str(error))
        if self._found is not None:
            return self._found
        is_due = self._looks == 0 or (self._looks + self._turn) % LOOKS_BETWEEN_NOTES == 0
        self._looks += 1
        return Note(level=level, text=self.text) if is_due or level > logging.INFO else None

    def _decide(self, state: TableState, facts: TableFacts | None, now_ms: int) -> None:
        assert facts is not None
        decision = self.condition.decide(state.metadata, facts, now_ms=now_ms)
        self._decided = state
        self._until_ms = math.inf if decision.until_ms is None else decision.until_ms
        self._set_text(decision.has)
        if decision.result is not None:
            self._found = Found(result={"table": self.table, **decision.result})

    def _set_text(self, has: str) -> None:
        self.text = f"waiting for {self.condition.waits_for()} of table {self.table}: {has}"

    def _level_of(self, error: IcebergError) -> int:
        """Return how an error is logged that a later look may not meet; raise all others."""
        if self.wait_for_table and isinstance(error, NotFoundError):
            return logging.INFO
        if is_final(error):
            raise error
        return logging.WARNING


def look_at(catalog: Catalog, table: str) -> Look:
    """Look at a table once, in a process of one's own."""
    try:
        state = catalog.load(table)
    except IcebergError as error:
        return Look(error=error)
    return Look(state=state, facts=TableFacts(catalog, state, is_limited=False))
