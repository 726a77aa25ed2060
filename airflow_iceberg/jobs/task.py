"""A task of a job as a value: what it is asked (`TaskSpec`) and what it answers (`TaskReport`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from airflow_iceberg.jobs.exchange import Slice
from airflow_iceberg.jobs.protocol.result import FileChange, JobError, WalkedUnit
from airflow_iceberg.jobs.protocol.table_input import WorkItem
from airflow_iceberg.jobs.sources.unit import Unit

if TYPE_CHECKING:
    pass


WRITE, SPILL, GATHER, REWRITE, SAMPLE = "write", "spill", "gather", "rewrite", "sample"


COLLECT, CUT, MERGE = "collect", "cut", "merge"


WALK = "walk"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """What one task has to do.

    Attributes:
        number: from 0, unique in its phase; part of the file names.
        kind: WRITE, SPILL, GATHER, REWRITE or SAMPLE.
        units: source files, for WRITE and SPILL.
        buckets: number of buckets that SPILL cuts into.
        groups: slices for GATHER; one group holds whole buckets.
        item: files of the table, for SAMPLE, SPILL, REWRITE, and of a GATHER those whose rows it writes.
        ranges: of a sort, the location of their boundaries.
    """

    number: int
    kind: str
    units: tuple[Unit, ...] = ()
    buckets: int = 0
    groups: tuple[tuple[Slice, ...], ...] = ()
    item: WorkItem | None = None
    ranges: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport:
    """What one task did.

    Attributes:
        number: of the task.
        data_files: `DataFile.to_dict` documents.
        changes: what became of files of the table, of a delete.
        record_count: rows written or spilled.
        slices: what was spilled.
        seconds: wall time.
        sample: location of the keys that were read, for SAMPLE.
        walked: what came of the unit of a walk, for WALK.
        error: why it failed, None if it did not.
        is_stopped: it did nothing, because another task had failed.
    """

    number: int
    data_files: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[FileChange, ...] = ()
    record_count: int = 0
    slices: tuple[Slice, ...] = ()
    seconds: float = 0.0
    sample: str | None = None
    walked: WalkedUnit | None = None
    error: JobError | None = None
    is_stopped: bool = False

    def to_json(self) -> str:
        """Return the report as text for the way back to the driver."""
        document = {
            "number": self.number,
            "data-files": list(self.data_files),
            "changes": [asdict(change) for change in self.changes],
            "record-count": self.record_count,
            "slices": [asdict(piece) for piece in self.slices],
            "seconds": self.seconds,
            "sample": self.sample,
            "walked": None if self.walked is None else self.walked.to_dict(),
            "error": self.error.to_dict() if self.error else None,
            "is-stopped": self.is_stopped,
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a report that `to_json` of the same version wrote."""
        document = json.loads(text)
        error = document["error"]
        return cls(
            number=document["number"],
            data_files=tuple(document["data-files"]),
            changes=tuple(FileChange(**change) for change in document["changes"]),
            record_count=document["record-count"],
            slices=tuple(
                Slice(**{**piece, "parts": tuple(map(tuple, piece["parts"]))}) for piece in document["slices"]
            ),
            seconds=document["seconds"],
            sample=document["sample"],
            walked=WalkedUnit(**document["walked"]) if document["walked"] else None,
            error=JobError(**error) if error else None,
            is_stopped=document["is-stopped"],
        )
