"""Work on a table whose metadata others change between its plan, its commit, and the attempts of it; and the judge.

    case = Case.drawn(random.Random(7))
    case.run(MemoryCatalog())           # asserts that all is as it must be

A table of `id`, `p`, `v` and `note`; ids are never used twice for new rows, so that a row is known by its id. What work
and others mean for the rows is a function; the order of the commits tells which comes after which. Work ends with the
rows of the model, or is refused and has changed nothing. Here also: what must be true of any table (`check_table`).
"""

from __future__ import annotations

import io as bytes_io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.catalogs.pointer import PointerCatalog
from airflow_iceberg.catalogs.rest.changes import with_requirements
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
)
from airflow_iceberg.expressions.tree import ALWAYS_FALSE
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.history.targets import Selection
from airflow_iceberg.operations.history.undo import UndoRequest, undo
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.refs.cherry_pick import CherryPickRequest, cherry_pick
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.wap.audits import RowCount
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.changes import equality_deletes
from tests.support.memory import Fault, FaultyCatalog
from tests.support.serial_order import check_row_ids, check_totals

NAME = "db.t"
Rows = Mapping[int, tuple[int, int]]
"""The rows of a table: `p` and `v` by `id`."""
FAST = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}
COW, MOR = "copy-on-write", "merge-on-read"
LAYOUTS = {"p": ["p"], "none": [], "bucket": ["bucket(2, id)"], "both": ["p", "bucket(2, id)"]}
REFUSALS = (StalePlanError, IncompatibleChangeError, InvalidInputError, NotFoundError)


def arrow(rows: Rows) -> pa.Table:
    columns = [list(rows), [p for p, _ in rows.values()], [v for _, v in rows.values()]]
    return pa.table(
        dict(zip(("id", "p", "v"), map(pa.array, columns, (pa.int64(), pa.int32(), pa.int64())), strict=True))
    )


def fresh(first: int, count: int, *, p: int | None = None) -> Rows:
    """Return rows with ids from a number on; in all partitions, or in one."""
    return {first + i: (i % 3 if p is None else p, first + i) for i in range(count)}


def key(task: str, epoch: int = 0) -> OperationKey:
    return OperationKey(dag_id="d", run_id="r", task_id=task, epoch=epoch)


# -- what work there is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Work on a table.

    Attributes:
        do: does it; gets the work, and what `before` has returned.
        after: what the rows are then.
        before: what was done to the table before it was loaded: a branch to publish, files to add.
        rows_before: what that means for the rows.
        lowest: the lowest format version that can have it.
        layouts: how the table may be partitioned.
        is_replanned: whether it is planned again by itself when its plan is stale.
        needs_jobs: whether it is done by jobs only, and not in this process.
        check: what else must be true in the end.
    """

    do: Callable[[Work, Any], object]
    after: Callable[[Rows], Rows] = lambda rows: rows
    before: Callable[[Table], Any] = lambda table: None
    rows_before: Callable[[Rows], Rows] = lambda rows: rows
    lowest: int = 1
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    is_replanned: bool = True
    needs_jobs: bool = False
    check: Callable[[Table], None] = lambda table: None


NEW = fresh(500, 4)
MORE = fresh(600, 3)
IN_P1 = fresh(700, 3, p=1)
SOME = (1, 2, 12, 21, 501)
"""Ids that updates and deletes name; some of them are of nobody."""
IN_SOME = f"id in ({', '.join(map(str, SOME))})"


def plus(rows: Rows, more: Rows) -> Rows:
    return {**rows, **more}


def without(rows: Rows, gone: Callable[[int, int], bool]) -> Rows:
    return {number: row for number, row in rows.items() if not gone(number, row[0])}


def raised(rows: Rows) -> Rows:
    return {number: (p, v + 1000 if number in SOME else v) for number, (p, v) in rows.items()}


def upserted(rows: Rows) -> Rows:
    return {**rows, **UPSERT}


UPSERT = {**fresh(800, 2), 1: (0, -1), 12: (2, -12)}
NAMED = (
    "when matched then update set p = source.p, v = source.v "
    "when not matched then insert (id, p, v) values (source.id, source.p, source.v)"
)
MERGE = (
    "when matched and target.id < 10 then delete when matched then update set v = target.v + 5000 "
    "when not matched then insert (id, p, v) values (source.id, source.p, source.v)"
)


def merged(rows: Rows) -> Rows:
    kept = {number: row for number, row in rows.items() if not (number in UPSERT and number < 10)}
    kept = {number: (p, v + 5000 if number in UPSERT else v) for number, (p, v) in kept.items()}
    return {**{number: row for number, row in UPSERT.items() if number not in rows}, **kept}


def _by_run(table: Table) -> None:
    append(Work(table, operation_key=key("load"), try_number=1), AppendRequest(rows=arrow(NEW)))


def _changed_by_run(table: Table) -> None:
    change_rows(_local(table, operation_key=key("change"), try_number=1), COW)


def change_rows(work: Work, mode: str, **more: Any) -> object:
    return update(work, UpdateRequest(set={"v": "v + 1000"}, where=IN_SOME, dialect="duckdb", mode=mode, **more))


def _undo(task: str) -> Callable[[Work, Any], object]:
    return lambda work, _: undo(work, UndoRequest(selection=Selection(operation_key=str(key(task)))))


def _lowered(rows: Rows) -> Rows:
    return {number: (p, v - 1000 if number in SOME else v) for number, (p, v) in rows.items()}


def _on_branch(write: Callable[[Work], object]) -> Callable[[Table], int]:
    def staged(table: Table) -> int:
        write(_local(table))
        return table.refresh().metadata.refs["staged"].snapshot_id

    return staged


def _append_staged(work: Work) -> object:
    return append(work, AppendRequest(rows=arrow(MORE), branch="staged", create_branch=True))


def _overwrite_staged(work: Work) -> object:
    request = OverwriteRequest(rows=arrow(IN_P1), replace="partitions", branch="staged", create_branch=True)
    return overwrite(work, request)


def _change_staged(work: Work) -> object:
    return change_rows(work, COW, branch="staged", create_branch=True)


def _change_staged_in_version_3(work: Work) -> object:
    work.table.alter([{"upgrade_format_version": 3}])
    _append_staged(work)  # gives row ids to all rows of the branch
    return _change_staged(work)


def _publish(work: Work, staged: int) -> object:
    return publish(work, PublishRequest(snapshot_id=staged, branch="staged"))


def _publish_audited(work: Work, staged: int) -> object:
    """Publish also what replaces files, audited again: rows that others add to the same partitions are kept."""
    request = PublishRequest(snapshot_id=staged, branch="staged", audits=(RowCount(min=0),))
    return publish(work, request)


def _pick(work: Work, staged: int) -> object:
    return cherry_pick(work, CherryPickRequest(snapshot_id=staged))


def _in_p1_replaced(rows: Rows) -> Rows:
    return plus(without(rows, lambda _, p: p == 1), IN_P1)


def _write_files(table: Table) -> list[str]:
    location = f"{table.location}/data/others/a.parquet"
    filesystem, path = table.io.filesystem(location)
    filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    with filesystem.open(path, "wb") as sink:
        pq.write_table(arrow(fresh(900, 3, p=2)), sink)
    return [location]


def _add_by_run(table: Table) -> list[str]:
    files = _write_files(table)
    add_files(Work(table, operation_key=key("add"), try_number=1), AddFilesRequest(files=files))
    return files


def _overwrite(work: Work, rows: Rows, **request: Any) -> object:
    return overwrite(work, OverwriteRequest(rows=arrow(rows), **request))


def _merge(work: Work, clauses: str, mode: str) -> object:
    return merge(work, MergeRequest(rows=arrow(UPSERT), on=["id"], clauses=clauses, dialect="duckdb", mode=mode))


def _upsert(work: Work, mode: str) -> object:
    # With all columns, so that it does not fit any more when another one drops or renames one.
    rows = arrow(UPSERT).append_column("note", pa.nulls(len(UPSERT), pa.string()))
    return merge(work, MergeRequest(rows=rows, on=["id"], upsert=True, dialect="duckdb", mode=mode))


def _compact(**request: Any) -> Callable[[Work, Any], object]:
    options = {"rewrite-all": True}
    return lambda work, _: compact(work, CompactRequest(**{"options": options, **request}))


def _with_column(rows: Rows) -> pa.Table:
    return arrow(rows).append_column("more", pa.array(range(len(rows)), pa.int32()))


def _has_more(table: Table, branch: str) -> None:
    if branch in table.refs:
        assert set(MORE) <= set(table.scan(ref=branch).to_arrow()["id"].to_pylist())


def _clears(work: Work, _: Any) -> object:
    cleared = replace(work, operation_key=key("load", 1), try_number=1)
    return append(cleared, AppendRequest(rows=arrow(MORE)))


OURS: Mapping[str, Ours] = {
    "append": Ours(do=lambda work, _: append(work, AppendRequest(rows=arrow(MORE))), after=lambda r: plus(r, MORE)),
    "append with a column": Ours(
        do=lambda work, _: append(work, AppendRequest(rows=_with_column(MORE), schema_evolution="add_columns")),
        after=lambda rows: plus(rows, MORE),
        is_replanned=False,
    ),
    "append to a new branch": Ours(
        do=lambda work, _: append(work, AppendRequest(rows=arrow(MORE), branch="fresh", create_branch=True)),
        check=lambda table: _has_more(table, "fresh"),
    ),
    "overwrite by filter": Ours(
        do=lambda work, _: _overwrite(work, IN_P1, overwrite_filter="p = 1"), after=_in_p1_replaced, is_replanned=False
    ),
    "overwrite of rows": Ours(
        do=lambda work, _: _overwrite(work, IN_P1, overwrite_filter=IN_SOME, check_filter=False),
        after=lambda rows: plus(without(rows, lambda number, _: number in SOME), IN_P1),
        is_replanned=False,
    ),
    "dynamic overwrite": Ours(
        do=lambda work, _: _overwrite(work, IN_P1, replace="partitions"),
        after=_in_p1_replaced,
        layouts=("p",),
        is_replanned=False,
    ),
    "overwrite of all": Ours(
        do=lambda work, _: _overwrite(work, MORE, replace="table"), after=lambda _: MORE, is_replanned=False
    ),
    "overwrite by SQL": Ours(
        do=lambda work, _: _overwrite(
            work, IN_P1, overwrite_filter=f"abs(id) = id and {IN_SOME}", check_filter=False, dialect="duckdb"
        ),
        after=lambda rows: plus(without(rows, lambda number, _: number in SOME), IN_P1),
        is_replanned=False,
    ),
    "delete": Ours(
        do=lambda work, _: delete(work, DeleteRequest(predicate=IN_SOME, mode=COW)),
        after=lambda rows: without(rows, lambda number, _: number in SOME),
    ),
    "delete, merge-on-read": Ours(
        do=lambda work, _: delete(work, DeleteRequest(predicate=IN_SOME, mode=MOR)),
        after=lambda rows: without(rows, lambda number, _: number in SOME),
        lowest=2,
    ),
    "delete by SQL": Ours(
        do=lambda work, _: delete(work, DeleteRequest(predicate=f"abs(id) = id and {IN_SOME}", dialect="duckdb")),
        after=lambda rows: without(rows, lambda number, _: number in SOME),
    ),
    "delete of files": Ours(
        do=lambda work, _: delete(work, DeleteRequest(predicate="p = 1", mode=COW)),
        after=lambda rows: without(rows, lambda _, p: p == 1),
    ),
    "update": Ours(do=lambda work, _: change_rows(work, COW), after=raised),
    "update, merge-on-read": Ours(do=lambda work, _: change_rows(work, MOR), after=raised, lowest=2),
    "upsert": Ours(do=lambda work, _: _upsert(work, COW), after=upserted, is_replanned=False),
    "upsert, merge-on-read": Ours(do=lambda work, _: _upsert(work, MOR), after=upserted, lowest=2, is_replanned=False),
    "upsert by clauses": Ours(do=lambda work, _: _merge(work, NAMED, COW), after=upserted),
    "upsert by clauses, merge-on-read": Ours(do=lambda work, _: _merge(work, NAMED, MOR), after=upserted, lowest=2),
    "merge": Ours(do=lambda work, _: _merge(work, MERGE, COW), after=merged),
    "merge, merge-on-read": Ours(do=lambda work, _: _merge(work, MERGE, MOR), after=merged, lowest=2),
    "compact": Ours(do=_compact(), needs_jobs=True),
    "compact where": Ours(do=_compact(where="p = 1"), needs_jobs=True),
    "compact, several commits": Ours(
        do=_compact(options={"rewrite-all": True, "partial-progress.enabled": True}),
        is_replanned=False,
        needs_jobs=True,
    ),
    "sort": Ours(do=_compact(strategy="sort", sort_by=("v desc",)), needs_jobs=True),
    "zorder": Ours(do=_compact(strategy="zorder", sort_by=("id", "v")), needs_jobs=True),
    "rewrite manifests": Ours(do=lambda work, _: rewrite_manifests(work, RewriteManifestsRequest())),
    "expire": Ours(
        do=lambda work, _: expire_snapshots(
            work, ExpireSnapshotsRequest(older_than_ms=2**60, retain_last=1, clean_expired_metadata=True)
        )
    ),
    "alter": Ours(do=lambda work, _: work.table.alter([{"add_column": {"name": "mine", "type": "date"}}])),
    "add files": Ours(
        do=lambda work, files: add_files(work, AddFilesRequest(files=files)),
        after=lambda rows: plus(rows, fresh(900, 3, p=2)),
        before=_write_files,
        layouts=("p", "none"),
    ),
    "add files after a clear": Ours(
        do=lambda work, files: add_files(
            replace(work, operation_key=key("add", 1), try_number=1), AddFilesRequest(files=files)
        ),
        after=lambda rows: plus(rows, fresh(900, 3, p=2)),
        before=_add_by_run,
        rows_before=lambda rows: plus(rows, fresh(900, 3, p=2)),
        layouts=("p", "none"),
        is_replanned=False,
    ),
    "cherry-pick": Ours(do=_pick, after=lambda r: plus(r, MORE), before=_on_branch(_append_staged), is_replanned=False),
    "cherry-pick of an overwrite": Ours(
        do=_pick, after=_in_p1_replaced, before=_on_branch(_overwrite_staged), layouts=("p",), is_replanned=False
    ),
    "publish": Ours(do=_publish, after=lambda r: plus(r, MORE), before=_on_branch(_append_staged), is_replanned=False),
    "publish an overwrite": Ours(
        do=_publish, after=_in_p1_replaced, before=_on_branch(_overwrite_staged), layouts=("p",), is_replanned=False
    ),
    "publish changed rows": Ours(
        do=_publish_audited, after=raised, before=_on_branch(_change_staged), is_replanned=False
    ),
    "publish changed rows of version 3": Ours(
        do=_publish_audited,
        after=lambda rows: plus(raised(rows), MORE),
        before=_on_branch(_change_staged_in_version_3),
        is_replanned=False,
    ),
    "undo": Ours(
        do=_undo("load"),
        before=_by_run,
        rows_before=lambda rows: plus(rows, NEW),
        after=lambda rows: without(rows, lambda number, _: number in NEW),
        is_replanned=False,
    ),
    "undo of changed rows": Ours(
        do=_undo("change"), before=_changed_by_run, rows_before=raised, after=_lowered, is_replanned=False
    ),
    "overwrite after a clear": Ours(
        do=lambda work, _: _overwrite(
            replace(work, operation_key=key("load", 1), try_number=1),
            MORE,
            overwrite_filter="p = 1",
            check_filter=False,
        ),
        before=_by_run,
        rows_before=lambda rows: plus(rows, NEW),
        after=lambda rows: plus(without(rows, lambda number, p: number in NEW or p == 1), MORE),
        is_replanned=False,
    ),
    "append after a clear": Ours(
        do=_clears,
        before=_by_run,
        rows_before=lambda rows: plus(rows, NEW),
        after=lambda rows: plus(without(rows, lambda number, _: number in NEW), MORE),
        is_replanned=False,
    ),
}


# -- what others do meanwhile ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """What another writer commits.

    Attributes:
        do, after: also get new rows, of which each commit has others; `do` returns LEFT_OUT if it is not possible.
        is_harmless: whether work that is planned again by itself must succeed all the same.
    """

    do: Callable[[Table, Rows], object]
    after: Callable[[Rows, Rows], Rows] = lambda rows, _: rows
    is_harmless: bool = False


def _upgrade(version: int | None) -> Callable[[Table, Rows], object]:
    def upgrade(table: Table, _: Rows) -> object:
        now = table.metadata.format_version
        return table.alter([{"upgrade_format_version": max(now, version or min(3, now + 1))}])

    return upgrade


def _alter(*changes: Mapping[str, Any], is_harmless: bool = True) -> Theirs:
    def alter(table: Table, _: Rows) -> None:
        try:
            table.alter(changes)
        except IcebergError:
            return  # somebody has done it before

    return Theirs(do=alter, is_harmless=is_harmless)


def _expire(table: Table, _: Rows) -> object:
    request = ExpireSnapshotsRequest(older_than_ms=2**60, retain_last=1, clean_expired_metadata=True)
    return expire_snapshots(Work(table), request)


def _tag(table: Table, _: Rows) -> None:
    head = table.metadata.current_snapshot_id
    if head is not None and f"t{head}" not in table.refs:
        table.create_tag(f"t{head}", snapshot_id=head)


THEIRS: Mapping[str, Theirs] = {
    "upgrade by one": Theirs(do=_upgrade(None), is_harmless=True),
    "upgrade to 2": Theirs(do=_upgrade(2), is_harmless=True),
    "upgrade to 3": Theirs(do=_upgrade(3), is_harmless=True),
    "add a column": _alter({"add_column": {"name": "extra", "type": "string"}}),
    "drop a column": _alter({"drop_column": "note"}),
    "rename a column": _alter({"rename_column": {"from": "note", "to": "memo"}}),
    "widen p": _alter({"change_type": {"name": "p", "type": "long"}}),
    "add a field": _alter({"add_partition_field": "truncate(10, v)"}),
    "drop a field": _alter({"drop_partition_field": "p"}),
    "sort": _alter({"set_sort_order": ["v"]}),
    "merge manifests": _alter({"set_properties": {"commit.manifest.min-count-to-merge": "2"}}),
    "other codec": _alter({"set_properties": {"write.parquet.compression-codec": "gzip"}}),
    "other folder": _alter({"set_properties": {"write.metadata.path": "memory://warehouse/db/t/elsewhere"}}),
    "other place": _alter({"set_location": "memory://warehouse/db/moved"}),
    "v is required": _alter({"make_required": {"name": "v", "allow_incompatible": True}}, is_harmless=False),
    "tag": Theirs(do=_tag, is_harmless=True),
    "rewrite manifests": Theirs(
        do=lambda table, _: rewrite_manifests(Work(table), RewriteManifestsRequest()), is_harmless=True
    ),
    "expire": Theirs(do=_expire),
    "append": Theirs(do=lambda table, new: table.append(arrow(new)), after=plus),
    "append to p = 2": Theirs(
        do=lambda table, new: table.append(arrow(_in_p2(new))), after=lambda r, n: plus(r, _in_p2(n))
    ),
    "delete": Theirs(
        do=lambda table, _: table.delete("id in (2, 11)"),
        after=lambda rows, _: without(rows, lambda number, _: number in (2, 11)),
    ),
    "delete p = 2": Theirs(
        do=lambda table, _: table.delete("p = 2"), after=lambda rows, _: without(rows, lambda _, p: p == 2)
    ),
    "delete by key": Theirs(
        do=lambda table, new: _delete_by_key(table, new),
        after=lambda rows, _: without(rows, lambda number, _: number in BY_KEY),
    ),
    "compact": Theirs(do=lambda table, _: compact(_local(table), CompactRequest(options={"rewrite-all": True}))),
}


LEFT_OUT = "left out"


def _delete_by_key(table: Table, _: Rows) -> object:
    """Delete rows as streaming writers do, in all partitions."""
    if table.metadata.format_version < 2 or not table.spec().is_unpartitioned:
        return LEFT_OUT
    deletes = equality_deletes(table, BY_KEY, table.spec().spec_id, ())
    start = table.current_snapshot()
    return table.commit(
        RowDelta(
            table.io,
            table.commit_settings(),
            added_deletes=[deletes],
            conflict_filter=ALWAYS_FALSE,
            written_schema=table.schema(),
            starting_snapshot_id=None if start is None else start.snapshot_id,
        )
    )


BY_KEY = (0, 12, 22)


def _in_p2(rows: Rows) -> Rows:
    return {number: (2, v) for number, (_, v) in rows.items()}


UPGRADES = tuple(name for name in THEIRS if name.startswith("upgrade"))
FAULTS = (
    *(Fault.CONFLICT for _ in range(6)),
    *(Fault.LAND_THEN_RIVAL_THEN_UNKNOWN, Fault.LAND_THEN_RIVAL_THEN_CONFLICT, Fault.RIVAL_THEN_UNKNOWN),
)


def _local(table: Table, **more: Any) -> Work:
    return Work(table, run=lambda plan: run_local(plan, table.io, threads=1), **more)


class NewestState(FaultyCatalog):
    """Applies a change to its newest state if all requirements hold, as a REST server does: others come just before.

    A catalog with a pointer notices any other commit; here one of metadata alone passes, unless a requirement tells.
    """

    def commit(self, base: TableState, change: Change) -> TableState:
        apply_change(base.metadata, change, now_ms=base.metadata.last_updated_ms, base_location=base.metadata_location)
        if not change.updates:
            return base
        return self._send(base.table, "", lambda: self._applied(base, with_requirements(base.metadata, change)))

    def _applied(self, base: TableState, change: Change) -> TableState:
        now = self.inner.load(base.table)
        try:
            return self.inner.commit(now, change)
        except InvalidInputError as error:
            if now.metadata_location == base.metadata_location:
                raise
            raise CommitConflictError(str(error)) from error  # as `RestCatalog` takes it


# -- a case, and its judge ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Case:
    """One work, and what others do meanwhile.

    Attributes:
        start: what the table went through before, of "delete", "change" and "delete by key".
        before, during: what others do between the load of the table and the work, and during its first job.
        attempts: what happens at each swap, and what the rival does then.
        is_server: whether the catalog is a server that applies changes to its newest state.
    """

    version: int
    layout: str
    ours: str
    is_job: bool = True
    merge_at: int = 100
    start: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    during: tuple[str, ...] = ()
    attempts: tuple[tuple[Fault, str], ...] = ()
    is_server: bool = False
    done: list[str] = field(default_factory=list, repr=False)

    @classmethod
    def drawn(cls, dice: random.Random, name: str | None = None) -> Case:
        """Draw a case, of one work if that is named."""
        name = name or dice.choice(list(OURS))
        version = dice.choice([one for one in (1, 1, 2, 2, 3) if one >= OURS[name].lowest])
        pick = list(THEIRS) + 3 * list(UPGRADES)
        counts = dice.choice([(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2), (1, 0, 1), (0, 1, 1), (2, 1, 0), (1, 1, 2)])
        before, during, swaps = (tuple(dice.choice(pick) for _ in range(count)) for count in counts)
        return cls(
            version=version,
            layout=dice.choice(OURS[name].layouts),
            ours=name,
            is_job=dice.random() < 0.7,
            merge_at=dice.choice([2, 3, 100]),
            start=tuple(one for one in ("delete", "change", "delete by key") if dice.random() < 0.3),
            before=before,
            during=during,
            attempts=tuple((dice.choice(FAULTS), one) for one in swaps),
            is_server=dice.random() < 0.3,
        )

    # -- the run

    def run(self, catalog: PointerCatalog) -> str:
        """Do it all, and judge; return how the work ended."""
        self._catalog, self._rows = catalog, self._started(catalog)
        work = OURS[self.ours]
        seen = work.before(Table.load(catalog, NAME))
        self._rows = work.rows_before(self._rows)
        self._known, self._loaded = self._history(), self._rows
        rivals = iter([name for _, name in self.attempts])
        faulty = (NewestState if self.is_server else FaultyCatalog)(
            catalog, [fault for fault, _ in self.attempts], rival=lambda *_: self._others(next(rivals))
        )
        table = Table.load(faulty, NAME)
        for name in self.before:
            self._others(name)
        ended = self._work(work, table, seen)
        self._follow(work)
        self.done.append(ended)
        self._judge(work, ended)
        return ended

    def _started(self, catalog: PointerCatalog) -> Rows:
        properties = {
            **FAST,
            "format-version": str(self.version),
            "commit.manifest.min-count-to-merge": str(self.merge_at),
        }
        schema = {"id": "long", "p": "int", "v": "long", "note": "string"}
        table = Table.create(catalog, NAME, schema=schema, partition_by=LAYOUTS[self.layout], properties=properties)
        rows: Rows = {}
        for first in (0, 10, 20):
            table.append(arrow(fresh(first, 4)))
            rows = plus(rows, fresh(first, 4))
        if "delete" in self.start:
            table.delete("id in (3, 13)", mode=MOR if self.version > 1 else COW)
            rows = without(rows, lambda number, _: number in (3, 13))
        if "change" in self.start:
            request = UpdateRequest(set={"v": "-v"}, where="id = 10", dialect="duckdb", mode=COW)
            update(_local(table), request)
            rows = {**rows, 10: (rows[10][0], -rows[10][1])}
        if "delete by key" in self.start and _delete_by_key(table.refresh(), {}) != LEFT_OUT:
            rows = without(rows, lambda number, _: number in BY_KEY)
        return rows

    def _work(self, work: Ours, table: Table, seen: Any) -> str:
        rest = list(self.during)

        def run(plan: JobPlan) -> JobResult:
            result = run_local(plan, table.io, threads=1)
            while rest:
                self._others(rest.pop(0))
            return result

        try:
            work.do(Work(table, run=run if self.is_job or work.needs_jobs else None), seen)
        except REFUSALS as error:
            return f"{type(error).__name__}: {error}"
        except CommitUnknownError as error:
            return f"unknown: {error}"
        return "done"

    def _others(self, name: str) -> None:
        self._follow(OURS[self.ours])
        self.done.append(name)
        theirs, new = THEIRS[name], fresh(10_000 + 10 * len(self.done), 3)
        if theirs.do(Table.load(self._catalog, NAME), new) != LEFT_OUT:
            self._rows = theirs.after(self._rows, new)
        self._known |= self._history()

    def _history(self) -> set[int]:
        metadata = self._catalog.load(NAME).metadata
        return {snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)}

    def _follow(self, work: Ours) -> None:
        """Look whether the work has been committed since the others' last commit."""
        if self._history() - self._known:
            if "ours" not in self.done:
                self._rows = work.after(self._rows)
            self.done.append("ours")
            self._known |= self._history()

    # -- the judge

    def _judge(self, work: Ours, ended: str) -> None:
        table = Table.load(self._catalog, NAME)
        found = {row["id"]: (row["p"], row["v"]) for row in table.scan().to_arrow().to_pylist()}
        assert table.scan().count() == len(found)
        if ended == "done" and "ours" not in self.done:
            # It had nothing to do when its turn came, or when it was planned: then it is as if it came right then.
            assert any(work.after(rows) == rows for rows in (self._rows, self._loaded))
        if ended not in ("done",) and not ended.startswith("unknown") and "several commits" not in self.ours:
            assert "ours" not in self.done, ended
        assert found == self._rows, (sorted(found.items() ^ self._rows.items()), self.done)
        check_table(table)
        work.check(table)
        if work.is_replanned and all(THEIRS[name].is_harmless for name in self.done if name in THEIRS):
            is_lost = any("UNKNOWN" in fault.name for fault, _ in self.attempts)
            assert ended == "done" or (is_lost and ended.startswith("unknown")), ended


# -- what must be true of any table ------------------------------------------------------------------------------------


def check_table(table: Table) -> None:
    """The table is read by all ways, each manifest is valid for its version, and rows keep their row ids."""
    check_totals(table)
    check_row_ids(table)
    for snapshot in table.metadata.snapshots:
        for manifest in read_manifests(table.io, snapshot):
            check_manifest(table, manifest, snapshot)
    inspect = table.inspect
    for name in ("entries", "files", "manifests", "snapshots", "partitions", "history", "all_files"):
        assert getattr(inspect, name)().num_rows >= 0
    check_lineage(table)


def check_manifest(table: Table, manifest: ManifestFile, snapshot: Snapshot) -> None:
    """A manifest of a snapshot says what its format version requires, and its row counts what it lists."""
    data = table.io.read(manifest.manifest_path)
    assert manifest.manifest_length == len(data)
    reader = fastavro.reader(bytes_io.BytesIO(data))
    header, entries = int(reader.metadata["format-version"]), list(reader)
    if manifest.added_snapshot_id == snapshot.snapshot_id:
        version = 3 if snapshot.first_row_id is not None else 2 if snapshot.sequence_number > 0 else 1
        assert header == version, f"a manifest of version {header} was written for version {version}"
    for status in EntryStatus:
        mine = [entry for entry in entries if entry["status"] == status]
        name = status.name.lower()
        counts = [getattr(manifest, f"{name}_{what}_count") for what in ("files", "rows")]
        assert counts in ([None, None], [len(mine), sum(entry["data_file"]["record_count"] for entry in mine)])
        for entry in mine:
            if status is not EntryStatus.ADDED:
                number = entry.get("sequence_number")
                assert number is not None or manifest.sequence_number == 0
    if snapshot.first_row_id is not None and manifest.content is ManifestContent.DATA:
        assert manifest.first_row_id is not None
    assert manifest.sequence_number <= snapshot.sequence_number
    assert manifest.min_sequence_number <= manifest.sequence_number


def check_lineage(table: Table) -> None:
    """Row ids are unique, and a row has the same one in each snapshot of main, and the same number until it changes."""
    before: dict[int, dict[str, Any]] = {}
    history = list(table.metadata.ancestors(table.metadata.current_snapshot_id))
    for snapshot in reversed(history):
        if snapshot.first_row_id is None:
            continue
        scan = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=(*COLUMNS, "_row_id", UPDATED))
        rows = {row["id"]: row for row in scan.to_arrow().to_pylist()}
        ids = [row["_row_id"] for row in rows.values()]
        assert None not in ids
        assert len(set(ids)) == len(ids)
        for number in rows.keys() & before.keys():
            was, now = before[number], rows[number]
            assert was["_row_id"] == now["_row_id"], f"row {number} has another row id"
            if [was[name] for name in COLUMNS] == [now[name] for name in COLUMNS]:
                assert was[UPDATED] == now[UPDATED], f"row {number} was not changed"
        before = rows


COLUMNS = ("id", "p", "v")
UPDATED = "_last_updated_sequence_number"
