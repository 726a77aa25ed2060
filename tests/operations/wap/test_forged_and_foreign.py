"""Publish beside branches of others and forged summaries: rows of nobody are lost, or published without their audit."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs.base import TableId, TableState
from airflow_iceberg.commit.actions.publish import ForwardTo
from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError
from airflow_iceberg.format.metadata.updates import AddSchema, Change, SetCurrentSchema
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.wap.audits import UniqueShare
from airflow_iceberg.operations.wap.branch import AGAIN, clean_up, start_branch
from airflow_iceberg.operations.wap.publish import AuditFailedError, PublishRequest, find_before, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.wap.test_publish import audited, main_of, new_table, partitioned, published, staged, work, write
from tests.support.builders import ids
from tests.support.builders import new_table as file_table


class TestTheBranchOfTheSecondAudit:
    """It is the publisher's own: rows of others on it are not thrown away."""

    def test_a_branch_of_others_is_kept(self):
        table = new_table()
        Table.load(table.catalog, "db.t").create_branch(f"wap{AGAIN}")
        append(Work(Table.load(table.catalog, "db.t")), AppendRequest(rows=partitioned([77]), branch=f"wap{AGAIN}"))
        request = replace(staged(table, 2), is_always_audited=True)
        table.refresh().append(partitioned([7]))
        with pytest.raises(IncompatibleChangeError, match="of other work, which would be lost"):
            published(table, request)
        assert main_of(table) == [0, 1, 7]
        assert ids(table, ref=f"wap{AGAIN}") == [0, 1, 77]

    @pytest.mark.costly
    def test_one_of_an_earlier_try_is_used_again_also_after_a_rollback_of_main(self):
        table = new_table()
        old = table.metadata.current_snapshot_id
        request = replace(staged(table, 7, audits=(UniqueShare("id"),)), is_always_audited=True)
        table.refresh().append(partitioned([7]))
        with pytest.raises(AuditFailedError):
            published(table, request)
        assert ids(table.refresh(), ref=f"wap{AGAIN}") == [0, 1, 7, 7]
        table.rollback_to_snapshot(old)
        table.append(partitioned([8]))
        assert published(table, request).how == "audited_again"
        assert main_of(table) == [0, 1, 7, 8]

    def test_its_name_is_reserved(self):
        with pytest.raises(InvalidInputError, match="does not end with '_again'"):
            start_branch(work(new_table(), "start"), f"wap{AGAIN}")


class TestForgedPublications:
    """A summary that says that it publishes an audited snapshot, and does not have its files."""

    def forge(self, table, audited_id, monkeypatch):
        """Commit rows to main as another program does, with a summary that lies."""
        table.refresh()
        settings = table.commit_settings(snapshot_properties={})
        forged = replace(settings, properties={**settings.properties, AUDITED_SNAPSHOT_ID: str(audited_id)})
        monkeypatch.setattr(table, "commit_settings", lambda **_: forged)
        append(Work(table), AppendRequest(rows=partitioned([66])))
        monkeypatch.undo()
        assert table.refresh().current_snapshot().summary[AUDITED_SNAPSHOT_ID] == str(audited_id)

    @pytest.mark.parametrize("later", [False, True], ids=["itself", "a-later-one"])
    def test_is_no_publication(self, monkeypatch, later):
        table = new_table()
        request = staged(table, 2)
        claimed = request.snapshot_id
        if later:
            write(table, [3], task="more")
            claimed = audited(table).snapshot_id
        self.forge(table, claimed, monkeypatch)
        with pytest.raises(IncompatibleChangeError, match="the summary is forged"):
            published(table, request)
        with pytest.raises(IncompatibleChangeError, match="the summary is forged"):
            clean_up(work(table, "clean"), "wap", request.snapshot_id)
        assert ids(table.refresh(), ref="wap") == [0, 1, 2, *([3] if later else [])]

    def test_of_a_part_does_not_leave_it_out(self, monkeypatch):
        table = new_table()
        part = staged(table, 2)
        write(table, [3], task="more")
        request = audited(table)
        self.forge(table, part.snapshot_id, monkeypatch)
        with pytest.raises(IncompatibleChangeError, match="its summary is forged"):
            published(table, request)
        assert main_of(table) == [0, 1, 66]

    def test_one_of_what_is_published_changes_nothing(self, monkeypatch):
        table = new_table()
        request = staged(table, 2)
        table.refresh().append(partitioned([7]))
        published(table, request)
        self.forge(table, request.snapshot_id, monkeypatch)
        assert published(table, request).how == "found"
        clean_up(work(table, "clean"), "wap", request.snapshot_id)
        assert main_of(table) == [0, 1, 2, 7, 66]

    def test_the_log_of_metadata_may_not_name_another_table(self, monkeypatch):
        """Otherwise rows that were never published would count as published, once their snapshot has expired."""
        table, gone = new_table(), 4711
        other = Table.create(table.catalog, "db.other", schema=table.metadata.schema())
        self.forge(other, gone, monkeypatch)
        logged = ((table.metadata.last_updated_ms, other.metadata_location),)
        forged = replace(table.metadata, metadata_log=logged)
        state = TableState(table=TableId.of("db.t"), metadata=forged, metadata_location=table.metadata_location)
        with pytest.raises(IncompatibleChangeError, match="do not tell whether it was published"):
            find_before(Table(state, io=table.io, catalog=table.catalog), gone)
        own = replace(forged, table_uuid=other.metadata.table_uuid)
        assert find_before(Table(replace(state, metadata=own), io=table.io, catalog=table.catalog), gone) == (None,)

    def test_where_the_beginning_of_the_branch_has_expired_summaries_are_believed(self):
        table = new_table()
        first = staged(table, 2)
        table.refresh().append(partitioned([7]))
        published(table, first)
        write(table, [3], task="a")
        second = audited(table)
        assert published(table, second).how == "reapplied"
        expire_snapshots(Work(table.refresh()), ExpireSnapshotsRequest(older_than_ms=1 << 50))
        table.refresh()
        assert published(table, second).how == "found"
        assert main_of(table) == [0, 1, 2, 3, 7]


class TestARollbackMeanwhile:
    """The answer is lost, and a person rolls main back: this try does not publish what was taken back."""

    def test_what_was_published_and_taken_back_is_not_published_again(self):
        table = new_table()
        request = staged(table, 2)
        base = table.refresh().metadata
        action = ForwardTo(request.snapshot_id, table_uuid=base.table_uuid, new_uuid="-")
        assert action.landed(base) is None
        action(base)
        assert action.landed(base) is None
        published(table, request)
        table.refresh().rollback_to_snapshot(base.current_snapshot_id)
        assert action.landed(table.metadata) == "committed"
        # Nor does the next try, which does not know that: a person may.
        for others in ([], [8]):
            if others:
                table.refresh().append(partitioned(others))
            with pytest.raises(IncompatibleChangeError, match="was rolled back since"):
                published(table, request)
            assert main_of(table) == [0, 1, *others]

    @pytest.mark.parametrize("others", [[], [8]], ids=["", "and-others-commit"])
    def test_rows_that_the_branch_began_with_do_not_come_back(self, others):
        table = new_table()
        first = table.metadata.current_snapshot_id
        table.append(partitioned([66]))
        request = staged(table, 2)
        table.refresh().rollback_to_snapshot(first)
        if others:
            table.append(partitioned(others))
        with pytest.raises(IncompatibleChangeError, match="changes which were taken back would come back"):
            published(table, request)
        assert main_of(table) == [0, 1, *others]


class TestExistingFiles:
    """Files that one task has added to the branch, and another one to main."""

    def test_are_not_there_twice(self, tmp_path):
        location = f"file://{tmp_path}/old.parquet"
        pq.write_table(partitioned([5]), location.removeprefix("file://"))
        table = file_table(tmp_path, schema={"id": "long", "p": "long"})
        table.append(partitioned([0]))
        start_branch(Work(table), "wap")
        add_files(Work(Table.load(table.catalog, "db.t")), AddFilesRequest(files=[location], branch="wap"))
        add_files(Work(Table.load(table.catalog, "db.t")), AddFilesRequest(files=[location]))
        table.refresh()
        request = PublishRequest(snapshot_id=table.refs["wap"].snapshot_id, branch="wap")
        with pytest.raises(IncompatibleChangeError, match="files of it are in the branch already"):
            publish(Work(table), request)
        assert ids(table.refresh()) == [0, 5]


class TestAnotherSchema:
    """Another program has changed main's schema while the rows waited."""

    @pytest.mark.parametrize("always", [False, True])
    def test_rows_without_a_value_are_not_published_where_one_is_required(self, always):
        table = new_table()
        start_branch(work(table, "start"), "wap")
        rows = pa.table({"id": pa.array([None], pa.int64()), "p": pa.array([1], pa.int64())})
        append(work(table, "load"), AppendRequest(rows=rows, branch="wap"))
        request = replace(audited(table), is_always_audited=always)
        table.refresh().append(partitioned([7]))
        old = table.refresh().schema()
        fields = tuple(replace(field, required=True) for field in old.fields)
        updates = (AddSchema(schema=replace(old, fields=fields, schema_id=1)), SetCurrentSchema(schema_id=-1))
        table.catalog.commit(table.state, Change(updates=updates, requirements=()))
        with pytest.raises(IncompatibleChangeError, match=r"became required .* clear the task that creates the branch"):
            published(table, request)
        assert main_of(table) == [0, 1, 7]
        assert set(table.refs) == {"main", "wap"}
