"""How an operator is deferred in the middle of an operation.

A separate module, since the class behind it is one of the operations, which are imported when a task runs.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_iceberg.operations.staging import JobRuns


class Deferred(JobRuns, TaskDeferred):
    """Ends the operation, which leaves the documents of its job alone, and tells Airflow to defer the task."""
