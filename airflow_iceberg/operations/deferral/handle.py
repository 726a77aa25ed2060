"""What a process leaves to the next one when its task is deferred while a job runs.

It lies in Airflow's database in the clear, so it has no secret: the digests of the job's plan and of the table's
metadata, and the public key of the result's signature. So whoever can write to the table's folder can change none of
them. Not here: who makes it and what is done with it (`operations.deferral.jobs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.jobs.protocol.document import Document
from airflow_iceberg.jobs.protocol.seal import SealedFile


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedJob(Document):
    """A job that was started.

    Attributes:
        plan: its plan.
        result_key: the public key of the signature of its result.
    """

    plan: SealedFile
    result_key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Handle(Document):
    """What a later process has to know to go on; its JSON form has no secret.

    Attributes:
        metadata: the table's metadata when the jobs were planned.
        metadata_location: the metadata file that it was then.
        jobs: the jobs in the order of their plans; the last one may still run.
        rounds: how often the work was planned in this try of the task.
    """

    metadata: SealedFile
    metadata_location: str
    jobs: tuple[StartedJob, ...]
    rounds: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the handle of a JSON form; raises FormatError if it is none."""
        return cls.from_dict(Fields(document, "", "the handle of a deferred task"))
