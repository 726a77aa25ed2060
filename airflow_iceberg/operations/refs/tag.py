"""Create, replace or drop a tag, or set its retention."""

from __future__ import annotations

from airflow_iceberg.operations.refs.branch import TagRequest
from airflow_iceberg.operations.refs.change_ref import RefResult, change_ref
from airflow_iceberg.operations.work import Work


def tag(work: Work, request: TagRequest) -> RefResult:
    """Change a tag in one commit; raises what `change_ref` raises."""
    return change_ref(work, request.change(), dry_run=request.dry_run)
