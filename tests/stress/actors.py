"""Who works on the table: each is a process that does one operation after another, as a task of Airflow does.

An operation has a key that is the same for all of its tries. An actor that was killed looks into its journal first: an
operation that was begun and is not done is tried again, with the same key and the same arguments.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IncompatibleChangeError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import append as operations_append
from airflow_iceberg.operations.append import AppendRequest
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.stress.journal import Journal, Operation, oldest_begin_ms
from tests.stress.rows import KEYS, PARTS, Range, some_range, some_rows
from tests.support import mortal
from tests.support.append_steps import read_result

NAME = "db.stress"
ROLES = ("append", "delete", "overwrite", "compact", "manifests", "expire", "clean", "read")
# What may end a try, to be tried again: somebody else was quicker, or nobody knows.
AGAIN = (CommitConflictError, CommitUnknownError, StorageError)
DAY_MS = 24 * 60 * 60 * 1000
# Others may be quicker again and again, but not for ever.
MOST_TRIES = 500
LINEAGE = ("_row_id", "_last_updated_sequence_number")

Landed = list[tuple[int, int]]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Where it all happens.

    Attributes:
        folder: catalog, warehouse, sources and journals.
        catalog: "sqlite" or "hadoop".
        mortality: the share of tries that kill themselves at some step of their I/O, and of those that do not hear
            whether their commit has landed.
        pause_s: between two operations of an actor, at most.
    """

    folder: Path
    catalog: str
    version: int
    seed: int
    mortality: float
    pause_s: float = 0.5

    def open_catalog(self) -> Catalog:
        warehouse = (self.folder / "warehouse").as_uri()
        if self.catalog == "hadoop":
            return load_catalog("stress", type="hadoop", warehouse=warehouse)
        return load_catalog("stress", type="sql", uri=f"sqlite:///{self.folder / 'catalog.db'}", warehouse=warehouse)

    def load(self) -> Table:
        return Table.load(self.open_catalog(), NAME)

    @property
    def is_over(self) -> bool:
        return (self.folder / "over").exists()


class Actor:
    """One process's work; `act` ends when the stage is over, or after so many operations."""

    def __init__(self, stage: Stage, role: str, name: str, *, rounds: int | None) -> None:
        self.stage = stage
        self.role = role
        self.name = name
        self._rounds = rounds
        self.journal = Journal(stage.folder, name)

    def act(self) -> None:
        """Finish what a killed process has begun, then go on."""
        done = self.journal.operations()
        if done and done[-1].outcome is None:
            self.bring_to_an_end(done[-1])
        else:
            self.journal.idle()
        number = len(done)
        parent = os.getppid()
        while not self.stage.is_over and (self._rounds is None or number < self._rounds) and os.getppid() == parent:
            random = Random(f"{self.stage.seed}-{self.name}-{number}")
            kind, arguments = choose(self.role, random, self.stage)
            self.bring_to_an_end(self.journal.begin(number, kind, arguments))
            number += 1
            # The others shall have their turn: maintenance without anything to do is only load.
            writes = self.role in ("append", "delete", "overwrite", "read")
            time.sleep(self.stage.pause_s * (random.random() if writes else 1))

    def bring_to_an_end(self, operation: Operation) -> None:
        while operation.outcome is None:
            operation.tries += 1
            if operation.tries > MOST_TRIES:
                raise RuntimeError(f"{operation.tag} does not come to an end: {operation.errors[-1:]}")
            self.journal.note(operation, "try")
            self._arm(operation)
            try:
                snapshots = DO[operation.kind](self, operation)
            except IncompatibleChangeError as error:
                self.journal.note(operation, "error", error=type(error).__name__, message=str(error))
                operation.outcome, snapshots = "refused", []
            except AGAIN as error:
                self.journal.note(operation, "error", error=type(error).__name__, message=str(error))
                time.sleep(Random().uniform(0, 0.2 * min(operation.tries, 10)))
                continue
            mortal.arm(None)
            mortal.lose_a_reply(None)
            operation.outcome = operation.outcome or ("landed" if snapshots else "nothing")
            self.journal.done(operation, operation.outcome, snapshots)

    def _arm(self, operation: Operation) -> None:
        random = Random(f"{self.stage.seed}-{operation.tag}-{operation.tries}")
        mortal.arm(random.randint(1, 120) if random.random() < self.stage.mortality else None)
        mortal.lose_a_reply(random.choice(("before", "after")) if random.random() < self.stage.mortality else None)

    def key(self, operation: Operation) -> OperationKey:
        return OperationKey(
            dag_id="stress",
            run_id=self.name,
            task_id=f"op-{operation.number}",
            run_after_ms=operation.begun_ms,
            started_ms=operation.begun_ms,
        )

    def source(self, operation: Operation) -> Source:
        """Write the rows of an operation into a file, as the task before it would have."""
        path = self.stage.folder / "source" / f"{self.name}-{operation.number}.parquet"
        rows = [
            {"part": part, "k": k, "tag": operation.tag, "n": n}
            for n, (part, k) in enumerate(operation.arguments["rows"])
        ]
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
        return Source.from_files(str(path))


def choose(role: str, random: Random, stage: Stage) -> tuple[str, dict[str, Any]]:
    """Return what an actor of a role does next, and with what."""
    if role == "append":
        return "append", {"rows": some_rows(random)}
    if role == "delete":
        return "delete", {
            "range": some_range(random),
            "mode": random.choice(("copy-on-write", "merge-on-read", "merge-on-read")),
        }
    if role == "overwrite":
        if random.random() < 0.3:
            return "overwrite_partitions", {"rows": some_rows(random, part=random.choice(PARTS))}
        replaced = some_range(random)
        part = replaced.part or random.choice(PARTS)
        rows = some_rows(random, part=part, low=replaced.low or 0, high=replaced.high or KEYS)
        return "overwrite", {"range": replaced, "rows": rows}
    if role == "compact":
        return "compact", {
            "where": random.choice((None, None, f"part = '{random.choice(PARTS)}'", "k < 150")),
            "strategy": random.choice(("binpack", "sort")),
            "options": random.choice(
                (
                    {"min-input-files": 2},
                    {"rewrite-all": True},
                    {"min-input-files": 2, "partial-progress.enabled": True},
                    {"min-input-files": 2, "delete-file-threshold": 1, "remove-dangling-deletes": True},
                )
            ),
        }
    if role == "expire":
        return "expire", {"retain_last": random.randint(1, 4), "clean": random.random() < 0.3}
    if role == "clean":
        return "clean", {"action": random.choice(("quarantine", "quarantine", "delete"))}
    return role, {}


# -- what they do; each returns the snapshots that landed --------------------------------------------------------------


def _work(actor: Actor, operation: Operation) -> Work:
    table = actor.stage.load()

    def run(plan: JobPlan) -> JobResult:
        run_local(plan, table.io, threads=2)
        return read_result(table, plan)

    return Work(table, run=run, operation_key=actor.key(operation), try_number=operation.tries, parallelism=2)


def _landed(work: Work, *snapshot_ids: int | None) -> Landed:
    found = (work.table.metadata.snapshot(snapshot_id) for snapshot_id in snapshot_ids if snapshot_id is not None)
    return [(snapshot.snapshot_id, snapshot.sequence_number) for snapshot in found if snapshot is not None]


def append(actor: Actor, operation: Operation) -> Landed:
    work = _work(actor, operation)
    return _landed(work, operations_append.append(work, AppendRequest(rows=actor.source(operation))).snapshot_id)


def remove(actor: Actor, operation: Operation) -> Landed:
    work, chosen = _work(actor, operation), operation.arguments
    request = DeleteRequest(predicate=Range(*chosen["range"]).sql, mode=chosen["mode"])
    return _landed(work, delete(work, request).snapshot_id)


def overwrite_rows(actor: Actor, operation: Operation) -> Landed:
    """Overwrite what a predicate selects, or partitions."""
    work, chosen, rows = _work(actor, operation), operation.arguments, actor.source(operation)
    request = (
        OverwriteRequest(rows=rows, replace="partitions")
        if operation.kind == "overwrite_partitions"
        else OverwriteRequest(rows=rows, overwrite_filter=Range(*chosen["range"]).sql)
    )
    return _landed(work, overwrite(work, request).snapshot_id)


def rewrite(actor: Actor, operation: Operation) -> Landed:
    work = _work(actor, operation)
    sort_by = ("k",) if operation.arguments["strategy"] == "sort" else ()
    return _landed(work, *compact(work, CompactRequest(sort_by=sort_by, **operation.arguments)).snapshot_ids)


def put_manifests_together(actor: Actor, operation: Operation) -> Landed:
    work = _work(actor, operation)
    return _landed(work, rewrite_manifests(work, RewriteManifestsRequest()).snapshot_id)


def expire(actor: Actor, operation: Operation) -> Landed:
    """Expire what was committed before anybody began what he is still at: he would not find his own commit."""
    request = ExpireSnapshotsRequest(
        older_than_ms=oldest_begin_ms(actor.stage.folder),
        retain_last=operation.arguments["retain_last"],
        clean_expired_metadata=operation.arguments["clean"],
    )
    found = expire_snapshots(Work(actor.stage.load(), operation_key=actor.key(operation)), request)
    actor.journal.note(operation, "note", expired=found.expired_snapshots, files=found.deleted_data_files)
    return []


def clean(actor: Actor, operation: Operation) -> Landed:
    """Put out of the way what nobody can be at any more."""
    request = RemoveOrphanFilesRequest(
        action=operation.arguments["action"], older_than_ms=oldest_begin_ms(actor.stage.folder), allow_recent=True
    )
    found = remove_orphan_files(Work(actor.stage.load(), operation_key=actor.key(operation)), request)
    actor.journal.note(operation, "note", orphans=found.orphan_files, staging=found.staging_files)
    return []


def read(actor: Actor, operation: Operation) -> Landed:
    table = actor.stage.load()
    snapshots = table.snapshots()
    if not snapshots:
        return []
    snapshot = Random(operation.tag).choice((snapshots[-1], *snapshots))
    try:
        rows = rows_of(table, snapshot)
    except NotFoundError:
        # Expired while it was read: then it is not in the table any more. If it is, it is damaged.
        if table.refresh().metadata.snapshot(snapshot.snapshot_id) is not None:
            raise
        return []
    actor.journal.note(operation, "note", sequence=snapshot.sequence_number, rows=rows)
    return []


def rows_of(table: Table, snapshot: Snapshot) -> list[list[Any]]:
    """Return the rows of a snapshot, in v3 with their lineage."""
    columns = ["part", "k", "tag", "n", *(LINEAGE if table.metadata.format_version >= 3 else ())]
    found = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=columns).to_arrow()
    return [list(row) for row in zip(*(found[name].to_pylist() for name in columns), strict=True)]


DO: dict[str, Callable[[Actor, Operation], Landed]] = {
    "append": append,
    "delete": remove,
    "overwrite": overwrite_rows,
    "overwrite_partitions": overwrite_rows,
    "compact": rewrite,
    "manifests": put_manifests_together,
    "expire": expire,
    "clean": clean,
    "read": read,
}
