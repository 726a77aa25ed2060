"""Work that is deferred while its jobs run, in processes that share nothing but a handle; only the cluster is missing.

run = DeferredRun(lambda: Table.load(catalog, "db.t"), key=KEY)
run.begin(append, request)      # plans, starts a job, and ends
run.finish()                    # the job, as its driver runs it
run.resume(append, request)     # commits, or starts the next job: then it returns None
"""

import json
from collections.abc import Callable
from typing import Any

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.jobs.protocol.one_time_signature import new_seed, public_key
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult, write_result
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.deferral.handle import Handle
from airflow_iceberg.operations.deferral.jobs import DeferredJobs
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table


class DeferredRun:
    """One try of a task.

    Attributes:
        text: what Airflow keeps of it while it is deferred.
        started: the plans of the jobs that were started.
        waited: the plans of the jobs that a process has waited for.
    """

    def __init__(self, load: Callable[[], Table], *, key: OperationKey) -> None:
        self._load = load
        self._key = key
        self._seed = ""
        self.text = ""
        self.started: list[JobPlan] = []
        self.waited: list[JobPlan] = []

    def begin(self, operation: Callable[..., Any], request: Any) -> Any:
        """Run the operation in a process without a past; None if it has ended with a job that runs."""
        return self._process(operation, request, None)

    def finish(self, change: Callable[[JobResult], JobResult] = lambda result: result) -> JobResult:
        """Run the last job that was started, from its document, and sign its result."""
        started, table = self.started[-1], self._load()
        plan = JobPlan.open(table.io, started.location, str(started.seal)).completed(started.withheld_values())
        result = change(run_local(plan, table.io, threads=2))
        table.io.delete([plan.result_location])
        return write_result(plan, table.io, result, secret=self._seed)

    def resume(self, operation: Callable[..., Any], request: Any, *, ended: str = "") -> Any:
        """Run the operation in a process that knows the handle alone."""
        return self._process(operation, request, Handle.of(json.loads(self.text)), ended)

    def __call__(self, operation: Callable[..., Any], request: Any, between: Callable[[], Any] = lambda: None) -> Any:
        """Run the operation to its end; `between` is called once, while the first job runs."""
        result = self.begin(operation, request)
        between()
        while result is None:
            self.finish()
            result = self.resume(operation, request)
        return result

    def _process(self, operation: Callable[..., Any], request: Any, handle: Handle | None, ended: str = "") -> Any:
        table = self._load()
        jobs = DeferredJobs(
            table, start=self._start, wait=lambda plan: self._wait(table, plan), handle=handle, ended=ended
        )
        try:
            return operation(Work(table, run=jobs, deferred=jobs, operation_key=self._key, try_number=1), request)
        except staging.JobRuns:
            return None

    def _start(self, plan: JobPlan, handle: Callable[[str], Handle]) -> None:
        self._seed = new_seed()
        self.text = json.dumps(handle(public_key(self._seed)).to_dict())
        self.started.append(plan)
        raise staging.JobRuns

    def _wait(self, table: Table, plan: JobPlan) -> JobResult:
        self.waited.append(plan)
        return run_local(plan, table.io, threads=2)
