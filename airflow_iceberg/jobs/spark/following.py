"""How far a Spark job is, by what its session knows; a classic session, or one of Spark Connect.

A classic session has accumulators, to which the tasks add what they did. Spark Connect has none, but hands out the
reports of tasks while others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_iceberg.jobs.progress import Progress, watched
from airflow_iceberg.jobs.spark.package import is_connect
from airflow_iceberg.jobs.task import TaskReport

Counters = tuple[Any, ...]
"""Spark's accumulators of files, rows and bytes; none on Spark Connect."""


def new_counters(spark: Any) -> Counters:
    """Return what the tasks of one job add to."""
    return () if is_connect(spark) else tuple(spark.sparkContext.accumulator(0) for _ in range(3))


def reports_of(frame: Any, spark: Any, progress: Progress, counters: Counters) -> list[TaskReport]:
    """Run a job, and return the reports of its tasks, which are the rows of a frame; say how far it is meanwhile."""
    with _followed(spark, progress, counters):
        if not is_connect(spark):
            return [TaskReport.from_json(row[0]) for row in frame.collect()]
        reports: list[TaskReport] = []
        for row in frame.toLocalIterator():
            reports.append(TaskReport.from_json(row[0]))
            progress.count(reports[-1])
        return reports


@contextmanager
def _followed(spark: Any, progress: Progress, counters: Counters) -> Iterator[None]:
    if not is_connect(spark):
        with watched(progress, _tracker(spark, progress, counters)):
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


def _tracker(spark: Any, progress: Progress, counters: Counters) -> Callable[[], None]:
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
        progress.counted(*(counter.value for counter in counters))

    return ask
