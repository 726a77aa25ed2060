"""No live file is ever deleted, and no row changes under maintenance: random histories against brute force.

make stress ARGS=tests/operations/test_live_files.py    # more of them, from a new seed
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, IncompatibleChangeError, NotFoundError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, SetSnapshotRef, SetStatistics
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work, reachable
from tests.support.changes import (
    NAME,
    Append,
    Compact,
    EqualityDelete,
    MergeOnReadDelete,
    arrow,
    in_list,
    make_table,
    plan,
)
from tests.support.faults import AgedFileIO
from tests.support.memory import Fault, FaultyCatalog, FileFault, FileRule, MemoryCatalog, SimulatedCrash
from tests.support.sampling import examples

DAY_MS = 24 * 60 * 60 * 1000
LINEAGE = ("_row_id", "_last_updated_sequence_number")

parts = st.sampled_from(["a", "b"])
some_ids = st.frozensets(st.integers(0, 12), min_size=1, max_size=4)
branches = st.sampled_from(["main", "dev"])
crashes = st.one_of(
    st.none(),
    st.builds(
        FileRule,
        call=st.sampled_from(["create", "delete", "read"]),
        fault=st.sampled_from([FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER]),
        skip=st.integers(0, 30),
    ),
    st.sampled_from([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]),
)


class Maintenance(RuleBasedStateMachine):
    """Writers, refs and maintenance in any order, with crashes; `check` compares with what is reachable and was read.

    Attributes:
        rows: of each snapshot, as they were when it was made.
        staged: a change whose files are written and which is to be committed later.
    """

    @initialize(version=st.sampled_from([2, 3]))
    def start(self, version: int) -> None:
        self.io = AgedFileIO()
        self.catalog = MemoryCatalog(io=self.io)
        self.version = version
        self.rows: dict[int, Counter[Any]] = {}
        self.staged: Any = None
        self.runs = 0
        make_table(self.catalog, version)
        plan(self.catalog, Append(part="a", ids=frozenset({1, 2, 3}))).commit()
        plan(self.catalog, Append(part="a", ids=frozenset({4, 5}))).commit()
        self.note()

    # -- what is true --------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        return Table.load(self.catalog, NAME)

    def branch(self, wanted: str) -> str:
        return wanted if wanted in self.table.refs and self.table.refs[wanted].is_branch else "main"

    def read(self, table: Table, snapshot_id: int) -> Counter[Any]:
        columns = ("part", "id", *(LINEAGE if self.version == 3 else ()))
        found = table.scan(snapshot_id=snapshot_id, selected_fields=columns).to_arrow()
        return Counter(zip(*(found[name].to_pylist() for name in columns), strict=True))

    def heads(self) -> dict[str, Counter[Any]]:
        table = self.table
        return {name: self.read(table, ref.snapshot_id) for name, ref in table.refs.items()}

    def note(self) -> None:
        table = self.table
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id not in self.rows:
                self.rows[snapshot.snapshot_id] = self.read(table, snapshot.snapshot_id)

    def reachable(self) -> set[str]:
        """Every file that the table's metadata leads to, one entry at a time."""
        table = self.table
        table.io = self.io.inner
        found = {table.metadata_location, *(location for _, location in table.metadata.metadata_log)}
        return found | reachable(table) | {entry["statistics-path"] for entry in table.metadata.statistics}

    def on_disk(self) -> set[str]:
        """All files but documents of jobs and quarantines."""
        found = (status.location for status in self.io.inner.list(self.table.location))
        return {path for path in found if "/.staging/" not in path and "/.quarantine/" not in path}

    def check(self) -> None:
        """Every snapshot that the table still has reads as it did, and the writer's files are there."""
        missing = (self.reachable() | self.io.young) - self.on_disk()
        assert not missing
        table = self.table
        for snapshot in table.metadata.snapshots:
            assert self.read(table, snapshot.snapshot_id) == self.rows[snapshot.snapshot_id]

    def maintain(self, crash: Any, operation: Callable[[Work, Any], object], request: object) -> None:
        """Run maintenance, with a crash; rows of every ref stay."""
        before = self.heads()
        self.runs += 1
        key = OperationKey(dag_id="d", run_id=str(self.runs), task_id="maintain")
        try:
            operation(job_work(Table.load(self.dying(crash), NAME), operation_key=key), request)
        except SimulatedCrash:
            self.io.rules = []
            self.note()
            self.check()
            # The next try of the task finishes what this one has left.
            operation(job_work(self.table, operation_key=key), request)
        finally:
            self.io.rules = []
        after = self.heads()
        assert after == {name: _as_known(before[name], after[name]) for name in after}
        self.note()
        self.check()

    def dying(self, crash: Any) -> Catalog:
        """Return the catalog of a process that is going to die."""
        self.io.rules = [replace(crash)] if isinstance(crash, FileRule) else []
        return FaultyCatalog(self.catalog, [crash]) if isinstance(crash, Fault) else self.catalog

    # -- writers -------------------------------------------------------------------------------------------------------

    @rule(part=parts, ids=some_ids, branch=branches)
    def append(self, part: str, ids: frozenset[int], branch: str) -> None:
        plan(self.catalog, Append(part=part, ids=ids), branch=self.branch(branch)).commit()
        self.note()

    @rule(ids=some_ids, branch=branches, mode=st.sampled_from(["copy-on-write", "merge-on-read", "merge-on-read"]))
    def delete(self, ids: frozenset[int], branch: str, mode: str) -> None:
        """In v3 the vectors of all files share one Puffin file."""
        self.table.delete(in_list(ids), mode=mode, branch=self.branch(branch))
        self.note()

    @rule(part=parts, ids=some_ids, branch=branches)
    def delete_by_key(self, part: str, ids: frozenset[int], branch: str) -> None:
        plan(self.catalog, EqualityDelete(part=part, ids=ids), branch=self.branch(branch)).commit()
        self.note()

    @rule(part=parts, ids=some_ids, branch=branches, all_of_it=st.booleans())
    def overwrite(self, part: str, ids: frozenset[int], branch: str, all_of_it: bool) -> None:
        branch = self.branch(branch)
        new = arrow((part, number) for number in sorted(ids))
        if all_of_it:
            self.table.dynamic_partition_overwrite(new, branch=branch)
        else:
            self.table.overwrite(new, f"part = '{part}' and {in_list(ids)}", branch=branch)
        self.note()

    @rule(
        crash=crashes,
        part=parts,
        ids=some_ids,
        branch=branches,
        mode=st.sampled_from(["append", "copy-on-write", "merge-on-read"]),
    )
    def a_writer_dies(self, crash: Any, part: str, ids: frozenset[int], branch: str, mode: str) -> None:
        """What it wrote is litter, or the table's, if it died after its commit; nobody tries again."""
        branch = self.branch(branch)
        with suppress(SimulatedCrash):
            table = Table.load(self.dying(crash), NAME)
            if mode == "append":
                table.append(arrow((part, number) for number in sorted(ids)), branch=branch)
            else:
                table.delete(in_list(ids), mode=mode, branch=branch)
        self.io.rules = []
        self.note()
        self.check()

    @rule(at=st.integers(0, 10))
    def compute_statistics(self, at: int) -> None:
        table = self.table
        snapshot_id = table.snapshots()[at % len(table.snapshots())].snapshot_id
        location = f"{table.location}/metadata/{uuid4()}.stats"
        self.io.create(location, b"statistics")
        entry = {"snapshot-id": snapshot_id, "statistics-path": location, "file-size-in-bytes": 10}
        entry |= {"file-footer-size-in-bytes": 10, "blob-metadata": []}
        update = SetStatistics(snapshot_id=snapshot_id, statistics=entry)
        self.catalog.commit(self.catalog.load(NAME), Change(updates=(update,)))

    @rule(change=st.sampled_from([{"add_partition_field": "bucket(2, id)"}, {"drop_partition_field": "id_bucket_2"}]))
    def partition_otherwise(self, change: dict[str, str]) -> None:
        """What follows is written with another spec; compaction moves older rows over to it."""
        with suppress(IcebergError):  # it is there, or it is not
            self.table.alter([change])

    @precondition(lambda self: self.version == 2 and self.staged is None)
    @rule()
    def upgrade(self) -> None:
        """Rows of before have ids from the first commit of version 3 on."""
        before = self.rows
        self.table.alter([{"upgrade_format_version": 3}])
        self.version, self.rows = 3, {}
        self.note()
        for snapshot_id, rows in self.rows.items():
            assert Counter(row[:2] for row in rows.elements()) == before[snapshot_id]

    @precondition(lambda self: self.staged is None)
    @rule(
        change=st.one_of(
            st.builds(Append, part=parts, ids=some_ids),
            st.builds(MergeOnReadDelete, ids=some_ids),
            st.builds(Compact),
        )
    )
    def begin_to_write(self, change: Any) -> None:
        before = self.on_disk()
        self.staged = plan(self.catalog, change)
        self.io.young = self.on_disk() - before

    @precondition(lambda self: self.staged is not None)
    @rule()
    def commit_what_was_written(self) -> None:
        with suppress(IcebergError):  # others have changed what it was made for; its files are litter now
            self.staged.commit()
        self.staged, self.io.young = None, set()
        self.note()
        self.check()

    # -- refs ----------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["dev", "tag"]), at=st.integers(0, 10))
    def make_a_ref(self, name: str, at: int) -> None:
        snapshots = self.table.snapshots()
        create = self.table.create_branch if name == "dev" else self.table.create_tag
        create(name, snapshots[at % len(snapshots)].snapshot_id, replace_existing=True)

    @rule(name=st.sampled_from(["dev", "tag"]))
    def drop_a_ref(self, name: str) -> None:
        (self.table.remove_branch if name == "dev" else self.table.remove_tag)(name, if_exists=True)

    @rule(at=st.integers(0, 10), branch=branches)
    def roll_back(self, at: int, branch: str) -> None:
        branch, table = self.branch(branch), self.table
        history = list(table.metadata.ancestors(table.refs[branch].snapshot_id))
        table.rollback_to_snapshot(history[at % len(history)].snapshot_id, branch=branch)

    @rule(at=st.integers(0, 10), branch=branches)
    def set_back_or_forth(self, at: int, branch: str) -> None:
        """A branch is let point anywhere, as `set_current_snapshot` does: what it had is on no ref then."""
        snapshots = self.table.snapshots()
        self.table.set_current_snapshot(snapshots[at % len(snapshots)].snapshot_id, branch=self.branch(branch))

    @rule()
    def fast_forward(self) -> None:
        with suppress(IcebergError):  # there is no such branch, or it is no descendant
            self.table.fast_forward("main", "dev")

    @rule(part=parts, ids=some_ids)
    def stage_a_snapshot(self, part: str, ids: frozenset[int]) -> None:
        """As write-audit-publish does: a snapshot that no ref points to."""
        planned = plan(self.catalog, Append(part=part, ids=ids))
        planned.action = _Unreferenced(planned.action)
        planned.commit()
        self.note()

    @rule(at=st.integers(0, 10), branch=branches)
    def cherry_pick(self, at: int, branch: str) -> None:
        table = self.table
        source = table.metadata.snapshots[at % len(table.metadata.snapshots)]
        with suppress(IncompatibleChangeError, NotFoundError):  # picked already, or its parent has expired
            table.cherry_pick(source.snapshot_id, branch=self.branch(branch))
            self.note()

    # -- maintenance ---------------------------------------------------------------------------------------------------

    @rule(
        crash=crashes,
        branch=branches,
        where=st.sampled_from([None, "id > 4", "part = 'a'"]),
        options=st.sampled_from([{"rewrite-all": True}, {"min-input-files": 2}, {"partial-progress.enabled": True}]),
        strategy=st.sampled_from(["binpack", "sort"]),
    )
    def compact(self, crash: Any, branch: str, where: str | None, options: dict[str, Any], strategy: str) -> None:
        request = CompactRequest(
            where=where,
            branch=self.branch(branch),
            options={"min-input-files": 2, **options},
            strategy=strategy,
            sort_by=("id desc",) if strategy == "sort" else (),
        )
        self.maintain(crash, compact, request)

    @rule(crash=crashes, branch=branches)
    def rewrite_manifests(self, crash: Any, branch: str) -> None:
        self.maintain(crash, rewrite_manifests, RewriteManifestsRequest(branch=self.branch(branch)))

    @rule(
        crash=crashes, retain_last=st.integers(1, 3), at=st.one_of(st.none(), st.integers(0, 10)), clean=st.booleans()
    )
    def expire(self, crash: Any, retain_last: int, at: int | None, clean: bool) -> None:
        snapshots = self.table.snapshots()
        older = now_ms() + DAY_MS if at is None else snapshots[at % len(snapshots)].timestamp_ms
        request = ExpireSnapshotsRequest(older_than_ms=older, retain_last=retain_last, clean_expired_metadata=clean)
        before = self.reachable()
        self.maintain(crash, expire_snapshots, request)
        left = (before - self.reachable()) & self.on_disk()
        assert not [path for path in left if not path.endswith(".metadata.json")]

    @rule(crash=crashes, action=st.sampled_from(["quarantine", "delete"]), purge=st.booleans())
    def remove_orphan_files(self, crash: Any, action: str, purge: bool) -> None:
        request = RemoveOrphanFilesRequest(action=action, purge_older_than_ms=now_ms() + DAY_MS if purge else None)
        self.maintain(crash, remove_orphan_files, request)
        assert self.on_disk() == self.reachable() | self.io.young

    @rule(crash=crashes)
    def restore(self, crash: Any) -> None:
        names = quarantines(self.table)
        catalog = self.dying(crash)
        for name in names:
            try:
                restore_quarantine(Work(Table.load(catalog, NAME)), name)
            except AlreadyExistsError:
                continue  # the place is taken, by what came out of another quarantine
            except SimulatedCrash:
                self.io.rules = []
                self.check()
                restore_quarantine(Work(self.table), name)
        self.io.rules = []
        self.check()

    @invariant()
    def files_are_there(self) -> None:
        if hasattr(self, "io"):
            assert not (self.reachable() | self.io.young) - self.on_disk()

    def teardown(self) -> None:
        if hasattr(self, "io"):
            self.check()


def _as_known(before: Counter[Any], after: Counter[Any]) -> Counter[Any]:
    """Return rows of before with the ids that they have after, where they had none: those of a table of version 2."""
    if all(None not in row[2:] for row in before):
        return before
    plain = Counter(row[:2] for row in before.elements())
    return after if Counter(row[:2] for row in after.elements()) == plain else before


class _Unreferenced:
    """An action that adds its snapshot and moves no branch."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, metadata: TableMetadata) -> Any:
        change = self._inner(metadata)
        return replace(change, updates=tuple(u for u in change.updates if not isinstance(u, SetSnapshotRef)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class LongerMaintenance(Maintenance):
    """The same, for minutes."""


TestNoLiveFileIsDeleted = Maintenance.TestCase
TestNoLiveFileIsDeleted.settings = examples(10, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestNoLiveFileIsDeletedInManyHistories = pytest.mark.long(LongerMaintenance.TestCase)
TestNoLiveFileIsDeletedInManyHistories.settings = settings(
    max_examples=400, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
