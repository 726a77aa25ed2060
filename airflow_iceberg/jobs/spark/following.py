"""How many tasks of a Spark job have ended, by what its session knows; a classic session, or one of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_iceberg.jobs.progress import Progress, watched
from airflow_iceberg.jobs.spark.package import is_connect


@contextmanager
def followed(spark: Any, progress: Progress) -> Iterator[None]:
    """Say how far Spark is while the block runs."""
    if not is_connect(spark):
        with watched(progress, _tracker(spark, progress)):
            yield
        return

    def told(stages: Any, **_: Any) -> None:
        counts = [(int(stage.num_completed_tasks), int(stage.num_tasks)) for stage in stages or ()]
        if counts:
            progress.ended(sum(done for done, _ in counts), sum(tasks for _, tasks in counts))

    # Spark 4 tells its client while a query runs; before, only the time is said.
    can_tell = hasattr(spark, "registerProgressHandler")
    if can_tell:
        spark.registerProgressHandler(told)
    try:
        with watched(progress):
            yield
    finally:
        if can_tell:
            spark.removeProgressHandler(told)


def _tracker(spark: Any, progress: Progress) -> Callable[[], None]:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}

    def ask() -> None:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)
        if seen:
            done, tasks = seen[max(seen)]
            progress.ended(done, tasks)

    return ask
