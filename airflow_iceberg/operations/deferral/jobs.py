"""Jobs that outlive the process of their task: it ends while a job runs, and a later one goes on with the result.

An operation is one flow: plan, job, commit. A process that may be deferred starts the job and ends with
`staging.JobRuns`, which leaves the job's documents in place. The next process runs the same operation on the table as
it was when the job was planned, whose metadata is kept beside the plan. So it plans the same job, and takes the result
of the one that has run. Its commit meets other writers like any other: it is made on the table as it is now
(`OpenTable.rewind`), and an earlier commit of the same work is searched there.

Here: which jobs are taken for the work's own. Not here: how a job is started and ended (`backends`), and who waits for
it (`triggers.job`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StalePlanError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.seal import SealedFile
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.deferral.handle import Handle, StartedJob

log = logging.getLogger(__name__)

# How long after its last sign of life the files of a job are used. A removal of orphan files takes those of a day ago,
# from a list that it may have made before the task went on.
LATEST_S = 20 * 60 * 60

# Starts a job, and raises `staging.JobRuns` or an error; returns if the job has to be waited for. Its second argument
# makes the handle of a public key.
StartJob = Callable[[JobPlan, Callable[[str], Handle]], None]


class DeferredJobs:
    """The jobs of one piece of work: those that an earlier process has started, and the next one.

    Args:
        table: the table of the work, as it is now; it is rewound to the state that the jobs were planned on.
        start: starts a job, see `StartJob`.
        wait: runs a job to its end, in this process.
        handle: what the process before this one has left; None for the first one.
        ended: how the last job ended as far as its back end tells; a hint, for messages alone.

    Raises:
        FormatError: a plan, or the metadata that was kept, was changed.
        InvalidInputError: the table was replaced by another one.
    """

    def __init__(
        self,
        table: OpenTable,
        *,
        start: StartJob,
        wait: Callable[[JobPlan], JobResult],
        handle: Handle | None = None,
        ended: str = "",
    ) -> None:
        self.wait = wait
        self._table = table
        self._start = start
        self._handle = handle
        self._ended = ended
        self._rounds = 1 if handle is None else handle.rounds
        self._left: list[tuple[StartedJob, JobPlan]] = []
        self._taken: list[StartedJob] = []
        if handle is not None:
            self._open(handle)

    def inputs(self) -> tuple[PinnedTable, ...] | None:
        """Return the inputs of the next job as they were pinned when it was started; None for a job that was not."""
        return self._left[0][1].inputs if self._left and self._is_rewound else None

    def planned(self, plan: JobPlan, *, most_rounds: int) -> JobPlan | None:
        """Return the plan of a job that was started for the same work; None for a job that has to be started.

        Args:
            plan: what would be written now.
            most_rounds: how often the work may be planned anew in one try of a task.

        Raises:
            StalePlanError: other writers made the work be planned too often, or the same request gives another plan
                now; nothing was committed.
        """
        if self._handle is None:
            return None
        if not self._is_rewound:
            self._plan_anew(most_rounds)
            return None
        if not self._left:
            return None  # a further job of the same work
        job, known = self._left[0]
        if _text(replace(plan, try_number=known.try_number)) != _text(known):
            # The new plan may have inputs that were cut for the old one: only the next try begins with nothing.
            self.give_up()
            staging.clear(self._table.io, plan.staging_location)
            raise StalePlanError(
                f"the work for table {self._table.name} is planned in another way than when the task was deferred, as "
                f"after an upgrade of this package; nothing was committed, run it again"
            )
        # Beside the plan that is not written there may be further documents.
        staging.clear(self._table.io, plan.staging_location)
        self._taken.append(job)
        del self._left[0]
        return known

    def __call__(self, plan: JobPlan) -> JobResult:
        """Return the result of a job that has run, or start the job; wait for it where nobody else could ask for it.

        Raises:
            staging.JobRuns: the job was started.
            StalePlanError: the job ended without a result.
            FormatError: the job has not written the result, or it is damaged.
        """
        job = next((one for one in self._taken if one.plan.location == plan.location), None)
        if job is not None:
            try:
                return staging.read_result(self._table.io, plan, key=job.result_key)
            except StalePlanError as error:
                raise StalePlanError(f"{error}; {self._ended}" if self._ended else str(error)) from error
        self._start(plan, lambda key: self._handle_of(plan, key))
        return self.wait(plan)

    def give_up(self) -> None:
        """Delete the documents of the started jobs, if any; their files are of no use, and no snapshot gets them."""
        if self._handle is not None:
            discard(self._table, self._handle)
        self._taken, self._left = [], []

    def _handle_of(self, plan: JobPlan, result_key: str) -> Handle:
        """Keep the state of the table, and return what a later process has to know once the job is started.

        Raises:
            StorageError: the staging prefix cannot be written.
        """
        job = StartedJob(plan=SealedFile(location=plan.location, seal=plan.seal), result_key=result_key)
        if self._handle is not None and self._is_rewound:
            return replace(self._handle, jobs=(*self._taken, job), rounds=self._rounds)
        table = self._table
        kept = SealedFile.create(table.io, f"{plan.staging_location}/table.json", metadata_json.write(table.metadata))
        return Handle(
            metadata=kept, metadata_location=table.metadata_location, jobs=(*self._taken, job), rounds=self._rounds
        )

    @property
    def _is_rewound(self) -> bool:
        return self._handle is not None and self._table.is_rewound

    def _open(self, handle: Handle) -> None:
        """Read the plans, and open the table as it was when they were made."""
        io = self._table.io
        try:
            data = handle.metadata.content(io, what="metadata of a deferred task")
            plans = [job.plan.content(io, what=JobPlan.title) for job in handle.jobs]
        except NotFoundError as error:
            log.warning("%s: a document of the job that has run is gone: %s", self._table.name, error)
            return
        before_ms = int((time.time() - LATEST_S) * 1000)
        if any(staging.is_dead(list(io.list(f"{folder}/")), before_ms) for folder in _folders(handle)):
            log.warning("%s: the job has ended long ago, and its files may be taken for orphans", self._table.name)
            return
        metadata = metadata_json.read(data, path=handle.metadata.location)
        if metadata.table_uuid != self._table.metadata.table_uuid:
            raise InvalidInputError(
                f"table {self._table.name} was replaced by another one while the job ran: its uuid was "
                f"{metadata.table_uuid} and is {self._table.metadata.table_uuid}; nothing was committed; clear the "
                f"task to write into the new one"
            )
        known = [JobPlan.from_json(data, path=job.plan.location) for job, data in zip(handle.jobs, plans, strict=True)]
        self._left = list(zip(handle.jobs, known, strict=True))
        self._table.rewind(metadata, handle.metadata_location)

    def _plan_anew(self, most_rounds: int) -> None:
        """Give up what was started on a state of the table that does not count any more."""
        self.give_up()
        self._rounds += 1
        if self._rounds > most_rounds:
            raise StalePlanError(
                f"other writers changed what the job for table {self._table.name} was planned on, in each of "
                f"{most_rounds} rounds; nothing was committed, run it when less is written"
            )
        log.info("%s: the table has changed, and the job is planned again", self._table.name)


def discard(table: OpenTable, handle: Handle) -> None:
    """Delete the documents of jobs that have ended; never raises."""
    for folder in _folders(handle):
        staging.clear(table.io, folder)


def _folders(handle: Handle) -> list[str]:
    return [job.plan.location.rpartition("/")[0] for job in handle.jobs]


def _text(plan: JobPlan) -> str:
    """Return a plan without the names that are different in each try."""
    return plan.to_json().decode().replace(plan.file_prefix, "*")
