"""What Airflow tells a task of the tasks of its run: `hooks.run_tasks` asks, `commit.runs.removed` concludes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class RunTasks(Protocol):
    """The tasks of a DAG run."""

    def tasks(self) -> Mapping[str, bool]:
        """Return the ids of the DAG's tasks, and whether each is mapped."""

    def indexes(self) -> Mapping[int, bool] | None:
        """Return the indexes of this task, and whether each has ended well; None if that is not known."""

    def has_ended_well(self, run_id: str) -> bool:
        """Whether this task, or index, is known to have ended well in another run of its DAG."""
