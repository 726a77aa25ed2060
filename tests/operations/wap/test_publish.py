"""Publish: what becomes of main is what was audited, whatever others do meanwhile."""

import threading
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.reapply import find_published
from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID, OperationKey
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
)
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import NoRows, PythonAudit, RowCount, UniqueShare
from airflow_iceberg.operations.wap.branch import AGAIN, clean_up, start_branch
from airflow_iceberg.operations.wap.publish import AuditFailedError, PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import ids
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

RUN = OperationKey(dag_id="d", run_id="r", task_id="x", is_cleared=False)
FAST = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "5",
    "commit.retry.num-retries": "200",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}
PASSES = (RowCount(min=0),)


def key(task, epoch=0, run="r"):
    return OperationKey(dag_id="d", run_id=run, task_id=task, epoch=epoch)


def new_table(rows=range(2), **options):
    table = Table.create(MemoryCatalog(), "db.t", **{"schema": {"id": "long", "p": "long"}, **options}, properties=FAST)
    if rows is not None:
        table.append(partitioned(rows))
    return table


def partitioned(numbers, p=0):
    numbers = list(numbers)
    return pa.table({"id": pa.array(numbers, pa.int64()), "p": pa.array([p] * len(numbers), pa.int64())})


def work(table, task, epoch=0, catalog=None):
    return Work(Table.load(catalog or table.catalog, "db.t"), operation_key=key(task, epoch), try_number=1)


def write(table, numbers, task="load", epoch=0, p=0):
    request = AppendRequest(rows=partitioned(numbers, p), branch="wap")
    return append(work(table, task, epoch), request)


def staged(table, *numbers, audits=PASSES):
    """Make the branch, write rows and audit them; return what is to be published."""
    start_branch(work(table, "start"), "wap")
    write(table, numbers)
    return audited(table, audits)


def audited(table, audits=PASSES):
    report = audit(work(table, "audit"), AuditRequest(audits=audits, branch="wap"))
    assert report.passed
    return PublishRequest(snapshot_id=report.snapshot_id, branch="wap", table_uuid=report.table_uuid, audits=audits)


def published(table, request, epoch=0, catalog=None):
    return publish(work(table, "publish", epoch, catalog), request)


def main_of(table):
    return ids(table.refresh())


class TestMainIsWhereTheBranchBegan:
    """Main moves forward to the very snapshot, in one commit."""

    def test_the_audited_snapshot_becomes_main(self):
        table = new_table()
        request = staged(table, 2, 3)
        assert main_of(table) == [0, 1]
        result = published(table, request)
        assert (result.how, result.snapshot_id, main_of(table)) == ("fast_forward", request.snapshot_id, [0, 1, 2, 3])
        assert result.to_xcom()["audited_snapshot_id"] == str(request.snapshot_id)
        assert clean_up(work(table, "clean"), "wap", request.snapshot_id).outcome == "committed"
        assert clean_up(work(table, "clean"), "wap", request.snapshot_id).outcome == "nothing"
        assert set(table.refresh().refs) == {"main"}

    def test_what_is_committed_to_the_branch_after_the_audit_is_not_published(self):
        table = new_table()
        request = staged(table, 2)
        write(table, [9], task="late")
        published(table, request)
        assert main_of(table) == [0, 1, 2]
        assert clean_up(work(table, "clean"), "wap", request.snapshot_id).is_kept
        assert ids(table.refresh(), ref="wap") == [0, 1, 2, 9]

    def test_an_empty_table(self):
        table = new_table(rows=None)
        request = staged(table, 1)
        assert table.refresh().current_snapshot() is None
        assert published(table, request).how == "fast_forward"
        assert main_of(table) == [1]

    def test_an_empty_table_that_gets_its_first_rows_from_another_writer(self):
        table = new_table(rows=None)
        request = staged(table, 1)
        table.refresh().append(partitioned([7]))
        assert published(table, request).how == "reapplied"
        assert main_of(table) == [1, 7]

    def test_nothing_was_written(self):
        for table in (new_table(), new_table(rows=None)):
            start_branch(work(table, "start"), "wap")
            request = audited(table)
            table.refresh().append(partitioned([7]))
            published(table, request)
            clean_up(work(table, "clean"), "wap", request.snapshot_id)
            assert main_of(table)[-1] == 7
            assert set(table.refs) == {"main"}


class TestMainHasMovedOn:
    """The change is applied if the conflict rules allow it, and audited again otherwise."""

    def test_appends_are_applied_in_one_snapshot_with_the_same_files(self):
        table = new_table()
        start_branch(work(table, "start"), "wap")
        write(table, [2], task="a")
        write(table, [3], task="b")
        request = audited(table)
        table.refresh().append(partitioned([7]))
        before = len(table.snapshots())
        result = published(table, request)
        assert (result.how, main_of(table), len(table.snapshots())) == ("reapplied", [0, 1, 2, 3, 7], before + 1)
        summary = table.current_snapshot().summary
        assert summary[AUDITED_SNAPSHOT_ID] == str(request.snapshot_id)
        assert summary["airflow.published-operation-key"].split("\n") == [str(key("a")), str(key("b"))]
        files = [{task.file.file_path for task in table.scan(**at).plan_files()} for at in ({"ref": "wap"}, {})]
        assert files[0] < files[1]
        clean_up(work(table, "clean"), "wap", request.snapshot_id)
        assert expire(table) == [0, 1, 2, 3, 7]

    def test_a_dynamic_overwrite_of_partitions_that_nobody_touched(self):
        table = new_table(partition_by=["p"])
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").dynamic_partition_overwrite(partitioned([5], p=0), branch="wap")
        request = audited(table)
        table.refresh().append(partitioned([7], p=1))
        assert published(table, replace(request, audits=())).how == "reapplied"
        assert main_of(table) == [5, 7]

    def test_one_whose_partition_was_touched_is_audited_again(self):
        table = new_table(partition_by=["p"])
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").dynamic_partition_overwrite(partitioned([5], p=0), branch="wap")
        request = audited(table)
        table.refresh().append(partitioned([7], p=0))
        with pytest.raises(
            IncompatibleChangeError, match=r"has changed a partition since .* clear the task that creates"
        ):
            published(table, replace(request, audits=()))
        assert main_of(table) == [0, 1, 7]
        result = published(table, request)
        assert (result.how, main_of(table)) == ("audited_again", [5, 7])
        assert set(table.refs) == {"main", "wap"}

    @pytest.mark.parametrize("is_always_audited", [False, True])
    def test_a_change_of_which_nothing_is_left(self, is_always_audited):
        table = new_table()
        start_branch(work(table, "start"), "wap")
        write(table, [5])
        Table.load(table.catalog, "db.t").delete("id = 5", branch="wap")
        request = replace(audited(table), is_always_audited=is_always_audited)
        table.refresh().append(partitioned([7]))
        assert published(table, request).snapshot_id is None
        assert main_of(table) == [0, 1, 7]
        assert set(table.refs) == {"main", "wap"}

    def test_not_if_the_head_of_main_is_expired_before(self):
        """Others commit and expire between the look at main and the branch that begins there: the error says so."""
        table = new_table()
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").overwrite(partitioned([5]), branch="wap")
        request = audited(table)
        table.refresh().append(partitioned([7]))

        def rival(catalog, name):
            Table.load(catalog, name).append(partitioned([8]))
            heads = ExpireSnapshotsRequest(older_than_ms=2**60, retain_last=1)
            expire_snapshots(Work(Table.load(catalog, name)), heads)

        racing = work(table, "p", catalog=FaultyCatalog(table.catalog, [Fault.CONFLICT], rival=rival))
        with pytest.raises(IncompatibleChangeError, match=r"snapshots were expired.* clear the task that creates"):
            publish(racing, request)
        assert main_of(table) == [0, 1, 7, 8]
        assert set(table.refs) == {"main", "wap"}

    def test_what_is_audited_again_is_published_as_it_was_audited(self):
        seen = []
        table = new_table()
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").overwrite(partitioned([5]), branch="wap")

        def check(scan):
            seen.append(scan.snapshot.snapshot_id)
            if 1 < len(seen) < 4:
                Table.load(table.catalog, "db.t").append(partitioned([90 + len(seen)]))

        request = audited(table, (PythonAudit(check),))
        table.refresh().append(partitioned([7]))
        result = published(table, request)
        assert result.how == "audited_again"
        assert result.snapshot_id == seen[-1] == table.refresh().metadata.current_snapshot_id
        assert main_of(table) == [5, 7, 92, 93]

    @pytest.mark.costly
    def test_an_audit_that_fails_then_publishes_nothing(self):
        table = new_table()
        audits = (UniqueShare("id"),)
        request = replace(staged(table, 7, audits=audits), is_always_audited=True)
        table.refresh().append(partitioned([7]))
        with pytest.raises(AuditFailedError, match=f"nothing was published, and they are in branch 'wap{AGAIN}'"):
            published(table, request)
        assert main_of(table) == [0, 1, 7]
        assert ids(table, ref=f"wap{AGAIN}") == [0, 1, 7, 7]

    def test_main_moves_on_during_each_audit(self):
        table = new_table()
        audits = (PythonAudit(lambda scan: Table.load(table.catalog, "db.t").append(partitioned([7])) and None),)
        start_branch(work(table, "start"), "wap")
        write(table, [2])
        request = replace(audited(table, audits), is_always_audited=True)
        with pytest.raises(StalePlanError, match="nothing was published"):
            published(table, request)
        assert 2 not in main_of(table)

    def test_files_that_are_gone(self):
        table = new_table()
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").overwrite(partitioned([5]), branch="wap")
        request = audited(table)
        table.refresh().overwrite(partitioned([8]))
        with pytest.raises(IncompatibleChangeError, match="clear the task that creates the branch"):
            published(table, request)
        assert main_of(table) == [8]
        assert set(table.refs) == {"main", "wap"}

    def test_deletes_of_rows_belong_to_where_the_branch_began(self):
        table = new_table()
        table.alter([{"set_properties": {"write.delete.mode": "merge-on-read"}}])
        start_branch(work(table, "start"), "wap")
        Table.load(table.catalog, "db.t").delete("id = 1", branch="wap")
        request = audited(table)
        table.refresh().append(partitioned([7]))
        with pytest.raises(IncompatibleChangeError, match="has delete files"):
            published(table, request)

    def test_a_branch_that_is_published_again_and_one_of_before(self):
        table = new_table()
        first = staged(table, 2)
        table.refresh().append(partitioned([7]))
        published(table, first)
        write(table, [3], task="a")
        second = audited(table)
        write(table, [4], task="b")
        third = audited(table)
        assert published(table, third).how == "reapplied"
        assert published(table, second).how == "found"
        assert published(table, first).how == "found"
        assert main_of(table) == [0, 1, 2, 3, 4, 7]

    def test_rows_that_the_branch_replaced_are_not_published(self):
        table = new_table()
        staged(table, 2)
        write(table, [3], epoch=1)
        request = audited(table)
        table.refresh().append(partitioned([7]))
        assert published(table, request).how == "reapplied"
        assert main_of(table) == [0, 1, 3, 7]


def expire(table):
    expire_snapshots(Work(table.refresh()), ExpireSnapshotsRequest(older_than_ms=1 << 50))
    return main_of(table)


class TestOnce:
    """Whatever is lost, killed, cleared, expired or removed: the changes are in main once."""

    @pytest.mark.parametrize("moved", [False, True], ids=["forward", "reapplied"])
    @pytest.mark.parametrize("fault", [Fault.LAND_THEN_UNKNOWN, Fault.CRASH_AFTER, Fault.CRASH_BEFORE, Fault.CONFLICT])
    @pytest.mark.parametrize("meanwhile", ["nothing", "commits", "drops", "commits and drops", "expires"])
    def test_the_answer_is_lost_and_others_go_on(self, moved, fault, meanwhile):
        table = new_table()
        request = staged(table, 2)
        if moved:
            table.refresh().append(partitioned([7]))
        catalog = FaultyCatalog(table.catalog, [fault])
        try:
            published(table, request, catalog=catalog)
        except (SimulatedCrash, IcebergError):
            pass
        has_landed = 2 in main_of(table)
        if "commits" in meanwhile or meanwhile == "expires":
            table.refresh().append(partitioned([8]))
        if "drops" in meanwhile or meanwhile == "expires":
            table.refresh().remove_branch("wap")
        if meanwhile == "expires":
            expire(table)
        expected = sorted(
            [0, 1, *([7] if moved else []), *([8] if meanwhile in ("commits", "commits and drops", "expires") else [])]
        )
        # Without its branch the staged snapshot has expired: that is said, and nothing is published.
        is_lost = meanwhile == "expires" and table.refresh().metadata.snapshot(request.snapshot_id) is None
        if is_lost and not has_landed:
            with pytest.raises(IncompatibleChangeError, match="is not in table"):
                published(table, request)
            assert main_of(table) == expected
            return
        result = published(table, request)
        assert main_of(table) == sorted([*expected, 2])
        assert (result.how == "found") == has_landed

    def test_a_group_that_was_cleared_as_a_whole_after_its_publication(self):
        for moved in (False, True):
            table = new_table()
            start_branch(work(table, "start"), "wap")
            write(table, [2], task="a")
            write(table, [3], task="b")
            request = audited(table)
            if moved:
                table.refresh().append(partitioned([7]))
            published(table, request)
            clean_up(work(table, "clean"), "wap", request.snapshot_id)
            start_branch(work(table, "start", 1), "wap")
            write(table, [20], task="a", epoch=1)
            write(table, [30], task="b", epoch=1)
            published(table, audited(table), epoch=1)
            assert main_of(table) == [0, 1, *([7] if moved else []), 20, 30]

    def test_one_task_that_was_cleared_after_several_were_published_as_one(self):
        """A snapshot with the rows of several tasks: only those of the cleared one are replaced."""
        table = new_table()
        start_branch(work(table, "start"), "wap")
        write(table, [2], task="a")
        write(table, [3], task="b")
        request = audited(table)
        table.refresh().append(partitioned([7]))
        published(table, request)
        append(work(table, "a", 1), AppendRequest(rows=partitioned([20])))
        assert main_of(table) == [0, 1, 3, 7, 20]

    def test_a_write_that_is_retried_after_the_branch_was_removed_does_not_write_to_main(self):
        table = new_table()
        request = staged(table, 2)
        published(table, request)
        clean_up(work(table, "clean"), "wap", request.snapshot_id)
        with pytest.raises(NotFoundError, match="wap"):
            write(table, [2])
        assert main_of(table) == [0, 1, 2]

    def test_a_publication_that_was_cleared(self):
        table = new_table()
        request = staged(table, 2)
        published(table, request)
        table.refresh().append(partitioned([8]))
        assert published(table, request, epoch=1).how == "found"
        assert main_of(table) == [0, 1, 2, 8]

    def test_another_table_of_the_same_name(self):
        table = new_table()
        request = staged(table, 2)
        with pytest.raises(IncompatibleChangeError, match="was dropped and created again"):
            published(table, replace(request, table_uuid=str(uuid4())))


class TestTheBranch:
    """It begins at main each time that its task runs, and rows of others are not lost."""

    def test_a_cleared_group_begins_at_main_as_it_is_then(self):
        table = new_table()
        staged(table, 2)
        table.refresh().append(partitioned([7]))
        result = start_branch(work(table, "start", 1), "wap")
        assert result.snapshot_id == table.refresh().metadata.current_snapshot_id
        assert ids(table, ref="wap") == [0, 1, 7]

    def test_a_try_that_was_overtaken_changes_nothing(self):
        table = new_table()
        overtaken = work(table, "start")
        start_branch(work(table, "start"), "wap")
        write(table, [2])
        with pytest.raises(StalePlanError, match="since this try has begun"):
            start_branch(overtaken, "wap")
        assert ids(table.refresh(), ref="wap") == [0, 1, 2]

    def test_rows_of_another_run_are_not_lost(self):
        table = new_table()
        staged(table, 2)
        other = Work(Table.load(table.catalog, "db.t"), operation_key=key("start", run="other"))
        with pytest.raises(IncompatibleChangeError, match=r"of other work .* is not published"):
            start_branch(other, "wap")

    def test_a_branch_that_is_not_published_is_not_removed(self):
        table = new_table()
        request = staged(table, 2)
        with pytest.raises(IncompatibleChangeError, match="is not published"):
            clean_up(work(table, "clean"), "wap", request.snapshot_id)
        assert "wap" in table.refresh().refs

    @pytest.mark.parametrize("name", ["main", "", " ", "a" * 201, None])
    def test_names(self, name):
        with pytest.raises(InvalidInputError, match="expected the name of a branch"):
            start_branch(work(new_table(), "start"), name)

    def test_a_tag(self):
        table = new_table()
        table.create_tag("wap")
        with pytest.raises(InvalidInputError, match="is a tag"):
            start_branch(work(table, "start"), "wap")


class TestAuditedMeansPublished:
    """Eight writers race a publisher: every snapshot that it publishes was audited."""

    @pytest.mark.costly
    @pytest.mark.parametrize("to", ["wap", "main", "both"])
    def test_eight_writers(self, to):
        table = new_table(rows=[0])
        catalog, rounds = table.catalog, 3
        stop, errors, done = threading.Event(), [], []
        audited_ids, known = set(), threading.Lock()

        def writes(number):
            count = 0
            while not stop.is_set() and count < 6:
                count += 1
                branch = "main" if to == "main" or (to == "both" and number % 2) else "wap"
                try:
                    Table.load(catalog, "db.t").append(partitioned([1000 * number + count]), branch=branch)
                except (NotFoundError, CommitConflictError):
                    continue
                except BaseException as error:
                    errors.append(error)
                    return

        def check(scan):
            with known:
                audited_ids.add(scan.snapshot.snapshot_id)

        threads = [threading.Thread(target=writes, args=(number,)) for number in range(1, 9)]
        start_branch(work(table, "start"), "wap")
        for thread in threads:
            thread.start()
        try:
            for _ in range(rounds):
                report = audit(work(table, "audit"), AuditRequest(audits=[PythonAudit(check)], branch="wap"))
                request = PublishRequest(snapshot_id=report.snapshot_id, branch="wap", audits=[PythonAudit(check)])
                try:
                    done.append(published(table, request))
                except (CommitUnknownError, IncompatibleChangeError):
                    break
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert errors == []
        assert done
        table.refresh()
        for result in done:
            assert result.audited_snapshot_id in audited_ids
            assert find_published(table.metadata, result.audited_snapshot_id) is not None
            if result.how in ("fast_forward", "audited_again"):
                assert result.snapshot_id in audited_ids
        if to == "wap":
            # Nobody else moves main: it is at an audited snapshot, however far the branch is.
            assert table.metadata.current_snapshot_id in audited_ids
        rows = [ids(table, snapshot_id=result.audited_snapshot_id) for result in done]
        assert all(set(each) <= set(main_of(table)) for each in rows)
        assert len(main_of(table)) == len(set(main_of(table)))


@pytest.mark.parametrize("audits", [[], [NoRows("select 1 where false")]])
def test_audits_are_needed_to_audit_again(audits):
    if not audits:
        with pytest.raises(InvalidInputError, match="always_audit is true and audits has none"):
            PublishRequest(snapshot_id=1, is_always_audited=True)
    else:
        assert PublishRequest(snapshot_id=1, is_always_audited=True, audits=audits).audits == audits
