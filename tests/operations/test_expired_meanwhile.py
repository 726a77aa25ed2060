"""Another writer expires what is being read: work begins again on the newer table, and nothing is lost by it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import NotFoundError, StalePlanError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.new_rows import new_rows
from airflow_iceberg.operations.overwrite import Overwrite, OverwriteRequest, overwrite
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import job_work
from tests.support.changes import NAME, Append, arrow, make_table, plan, rows_of
from tests.support.memory import FaultyFileIO, FileFault, FileRule, MemoryCatalog, MemoryFileIO

DAY_MS = 24 * 60 * 60 * 1000
ALL = CompactRequest(options={"rewrite-all": True})
ROWS = Counter(("a", n) for n in range(6))


def fill(catalog: MemoryCatalog, version: int) -> MemoryCatalog:
    make_table(catalog, version)
    for start in (0, 2, 4):
        plan(catalog, Append("a", frozenset({start, start + 1}))).commit()
    return catalog


@pytest.fixture(params=[2, 3])
def catalog(request: pytest.FixtureRequest) -> MemoryCatalog:
    return fill(MemoryCatalog(io=FaultyFileIO(MemoryFileIO())), request.param)


@pytest.fixture
def table(catalog: MemoryCatalog) -> Table:
    return Table.load(catalog, NAME)


def rewrite_and_expire(catalog: MemoryCatalog) -> None:
    """Replace every file of the table, and remove the old ones."""
    table = Table.load(catalog, NAME)
    compact(job_work(table), ALL)
    expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=now_ms() + DAY_MS))


def meanwhile(table: Table, *does: Callable[[], object]) -> Callable[[JobPlan], JobResult]:
    """Run jobs; before each of the first ones something happens."""
    waiting = list(does)

    def run(job: JobPlan) -> JobResult:
        if waiting:
            waiting.pop(0)()
        result = run_local(job, table.io, threads=1)
        result.raise_for_error()
        return result

    return run


class TestACommit:
    """It reads the files of its base; where these are gone the base is old, and the next attempt has the newer one."""

    def test_an_append(self, catalog, table):
        rewrite_and_expire(catalog)
        table.append(arrow([("b", 9)]))
        assert rows_of(catalog) == ROWS + Counter([("b", 9)])

    def test_a_rewrite_of_manifests(self, catalog, table):
        rewrite_and_expire(catalog)
        rewrite_manifests(Work(table), RewriteManifestsRequest())
        assert rows_of(catalog) == ROWS

    def test_a_file_that_is_missing_of_the_newest_table_is_an_error(self, catalog, table):
        catalog.io.delete([table.current_snapshot().manifest_list])
        with pytest.raises(NotFoundError):
            table.append(arrow([("b", 9)]))
        assert len(Table.load(catalog, NAME).snapshots()) == 3


class TestAChangeOfRows:
    """What it has read is gone: it is planned again."""

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_a_delete(self, catalog, table, mode):
        run = meanwhile(table, lambda: rewrite_and_expire(catalog))
        result = delete(Work(table, run=run), DeleteRequest(predicate="id in (1, 2)", mode=mode))
        assert (result.outcome, result.deleted_records) == ("committed", 2)
        assert rows_of(catalog) == Counter(("a", n) for n in (0, 3, 4, 5))

    @pytest.mark.costly
    def test_a_delete_that_is_never_quicker(self, catalog, table):
        run = meanwhile(table, *[lambda: rewrite_and_expire(catalog)] * 9)
        with pytest.raises(StalePlanError, match="was expired meanwhile by another writer"):
            delete(Work(table, run=run), DeleteRequest(predicate="id in (1, 2)"))
        assert rows_of(catalog) == ROWS

    def test_an_overwrite_is_for_the_next_try_of_the_task(self, catalog, table):
        request = OverwriteRequest(rows=arrow([("a", 9)]), overwrite_filter="id > 2 and part = 'a'")
        work = Work(table)
        begun = Overwrite(work, request)
        with new_rows(work, request) as new:
            rewrite_and_expire(catalog)
            with pytest.raises(StalePlanError, match="was expired meanwhile by another writer"):
                begun.commit(new)
        assert not catalog.io.exists(new.files[0].file_path)
        overwrite(Work(Table.load(catalog, NAME)), request)
        assert rows_of(catalog) == Counter([("a", 0), ("a", 1), ("a", 2), ("a", 9)])

    def test_a_compaction(self, catalog, table):
        run = meanwhile(table, lambda: rewrite_and_expire(catalog))
        assert compact(Work(table, run=run), ALL).outcome == "committed"
        assert rows_of(catalog) == ROWS

    @pytest.mark.costly
    def test_a_compaction_that_is_never_quicker(self, catalog, table):
        run = meanwhile(table, *[lambda: rewrite_and_expire(catalog)] * 9)
        with pytest.raises(StalePlanError, match="keep snapshots longer than an operation takes"):
            compact(Work(table, run=run), ALL)
        assert rows_of(catalog) == ROWS

    def test_a_data_file_that_is_missing_of_the_newest_table_is_an_error(self, catalog, table):
        path = table.scan("id = 0").plan_files()[0].file.file_path
        catalog.io.delete([path])
        with pytest.raises(NotFoundError):
            delete(Work(table, run=meanwhile(table)), DeleteRequest(predicate="id in (1, 2)"))
        with pytest.raises(NotFoundError):
            compact(Work(table, run=meanwhile(table)), ALL)


class Interrupted(FaultyFileIO):
    """Something happens before the first read of a file that is named like this."""

    def __init__(self) -> None:
        super().__init__(MemoryFileIO())
        self.before: tuple[str, Callable[[], Any]] | None = None

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if self.before is not None and self.before[0] in location:
            (_, happens), self.before = self.before, None
            happens()
        return super().read(location, offset=offset, length=length)


class TestMaintenanceThatOnlyReads:
    """Reachability is worked out again on the newer table; nothing that lives is taken."""

    @pytest.fixture
    def catalog(self) -> MemoryCatalog:
        return fill(MemoryCatalog(io=Interrupted()), 3)

    def test_the_search_for_orphans(self, catalog, table):
        catalog.io.create(f"{table.location}/data/litter.parquet", b"litter")
        catalog.io.before = ("/snap-", lambda: rewrite_and_expire(catalog))
        request = RemoveOrphanFilesRequest(older_than_ms=now_ms() + DAY_MS, allow_recent=True, action="delete")
        assert remove_orphan_files(Work(table), request).orphan_files >= 1
        assert not catalog.io.exists(f"{table.location}/data/litter.parquet")
        assert rows_of(catalog) == ROWS

    def test_two_expiries(self, catalog, table):
        plan(catalog, Append("b", frozenset({7}))).commit()
        oldest = table.snapshots()[0].snapshot_id
        catalog.io.before = ("/snap-", lambda: rewrite_and_expire(catalog))
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=(oldest,), older_than_ms=0))
        assert rows_of(catalog) == ROWS + Counter([("b", 7)])
        assert len(Table.load(catalog, NAME).snapshots()) == 1

    def test_what_a_dry_run_says(self, catalog, table):
        catalog.io.before = ("/snap-", lambda: rewrite_and_expire(catalog))
        result = expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=now_ms() + DAY_MS, dry_run=True))
        assert result.outcome == "dry_run"

    def test_a_manifest_that_is_missing_of_the_newest_table_is_an_error(self, catalog, table):
        catalog.io.rules = [FileRule(call="read", fault=FileFault.MISSING, matching="/snap-", times=None)]
        with pytest.raises(NotFoundError):
            remove_orphan_files(
                Work(table), RemoveOrphanFilesRequest(older_than_ms=now_ms() + DAY_MS, allow_recent=True)
            )
