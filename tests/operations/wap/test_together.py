"""Several tables: in one commit where the catalog has such, else one after the other."""

import logging
from dataclasses import replace

import pytest

from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, IncompatibleChangeError
from airflow_iceberg.format.metadata.updates import apply_change
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import RowCount
from airflow_iceberg.operations.wap.branch import start_branch
from airflow_iceberg.operations.wap.publish import PublishRequest
from airflow_iceberg.operations.wap.together import publish_all
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.operations.wap.test_publish import FAST, key
from tests.support.builders import id_rows, ids
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog, SimulatedCrash

NAMES = ("db.a", "db.b")


class TogetherCatalog(MemoryCatalog):
    """A catalog in memory that changes several tables at once, as Nessie does."""

    commits_together = True
    lost = False
    before = staticmethod(lambda: None)

    def commit_together(self, changes):
        self.before()
        with self._lock:
            for base, _ in changes:
                if self._pointers[base.table] != base.metadata_location:
                    raise CommitConflictError(f"{base.table} was changed")
            states = []
            for base, change in changes:
                metadata = apply_change(
                    base.metadata, change, now_ms=self._now_ms(), base_location=base.metadata_location
                )
                states.append(self._publish(base.table, base, metadata))
        if self.lost:
            raise CommitUnknownError("the answer was lost")
        return tuple(states)


def staged(catalog):
    """Make the tables, write to a branch of each and audit it; return what is asked to be published."""
    asked = []
    for number, name in enumerate(NAMES):
        table = Table.create(catalog, name, schema={"id": "long"}, properties=FAST)
        table.append(id_rows([number]))
        start_branch(Work(table, operation_key=key("start")), "wap")
        append(Work(table, operation_key=key("load")), AppendRequest(rows=id_rows([10 + number]), branch="wap"))
        report = audit(Work(table), AuditRequest(audits=[RowCount(min=1)], branch="wap"))
        asked.append((name, PublishRequest(snapshot_id=report.snapshot_id, branch="wap")))
    return asked


def published(catalog, asked):
    works = [(Work(Table.load(catalog, name), operation_key=key("publish")), request) for name, request in asked]
    return [result.how for result in publish_all(works)]


def rows(catalog):
    return [ids(Table.load(catalog, name)) for name in NAMES]


class TestInOneCommit:
    """All tables or none, whatever happens."""

    def test_both_move_in_one_commit(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        assert published(catalog, asked) == ["fast_forward", "fast_forward"]
        assert rows(catalog) == [[0, 10], [1, 11]]
        assert published(catalog, asked) == ["found", "found"]

    def test_one_that_has_moved_on(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        asked = [(name, replace(request, snapshot_properties={"team": "sales"})) for name, request in asked]
        Table.load(catalog, "db.b").append(id_rows([7]))
        assert published(catalog, asked) == ["fast_forward", "reapplied"]
        assert rows(catalog) == [[0, 10], [1, 7, 11]]
        summary = Table.load(catalog, "db.b").current_snapshot().summary
        assert (summary[AUDITED_SNAPSHOT_ID], summary["team"]) == (str(asked[1][1].snapshot_id), "sales")

    def test_another_writer_commits_just_before(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)

        def rival():
            catalog.before = lambda: None
            Table.load(catalog, "db.a").append(id_rows([7]))

        catalog.before = rival
        assert published(catalog, asked) == ["reapplied", "fast_forward"]
        assert rows(catalog) == [[0, 7, 10], [1, 11]]

    def test_one_that_cannot_be_published_keeps_the_others_back(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        Table.load(catalog, "db.b").overwrite(id_rows([5]), branch="wap")
        other = Table.load(catalog, "db.b")
        report = audit(Work(other), AuditRequest(audits=[RowCount(min=1)], branch="wap"))
        asked[1] = ("db.b", PublishRequest(snapshot_id=report.snapshot_id, branch="wap"))
        other.append(id_rows([7]))
        with pytest.raises(IncompatibleChangeError, match=r"table db\.b is not published"):
            published(catalog, asked)
        assert rows(catalog) == [[0], [1, 7]]

    def test_the_answer_is_lost_and_another_writer_commits(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        catalog.lost = True
        with pytest.raises(CommitUnknownError):
            published(catalog, asked)
        catalog.lost = False
        Table.load(catalog, "db.a").append(id_rows([7]))
        assert published(catalog, asked) == ["found", "found"]
        assert rows(catalog) == [[0, 7, 10], [1, 11]]


class TestOneAfterTheOther:
    """It is said, and a retry goes on where the one before has stopped."""

    def test_it_is_said(self, caplog):
        catalog = MemoryCatalog()
        with caplog.at_level(logging.WARNING):
            assert published(catalog, staged(catalog)) == ["fast_forward", "fast_forward"]
        assert "readers may see some of them before the others" in caplog.text
        assert rows(catalog) == [[0, 10], [1, 11]]

    @pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
    @pytest.mark.parametrize("step", [0, 1])
    def test_a_retry_goes_on(self, fault, step):
        catalog = MemoryCatalog()
        asked = staged(catalog)
        with pytest.raises(SimulatedCrash):
            published(FaultyCatalog(catalog, [Fault.PROCEED] * step + [fault]), asked)
        has_landed = step + (fault is Fault.CRASH_AFTER)
        assert [10 in rows(catalog)[0], 11 in rows(catalog)[1]] == [has_landed > 0, has_landed > 1]
        published(catalog, asked)
        assert rows(catalog) == [[0, 10], [1, 11]]

    def test_an_error_says_which_are_published(self):
        catalog = MemoryCatalog()
        asked = staged(catalog)
        table = Table.load(catalog, "db.b")
        table.overwrite(id_rows([5]), branch="wap")
        report = audit(Work(table), AuditRequest(audits=[RowCount(min=1)], branch="wap"))
        asked[1] = ("db.b", PublishRequest(snapshot_id=report.snapshot_id, branch="wap"))
        table.append(id_rows([7]))
        with pytest.raises(
            IncompatibleChangeError, match=r"db\.b is not published: .* tables that are published: db\.a;"
        ):
            published(catalog, asked)

    def test_what_is_known_before_is_checked_for_all_tables(self):
        catalog = MemoryCatalog()
        asked = staged(catalog)
        asked[1] = ("db.b", PublishRequest(snapshot_id=404, branch="wap"))
        with pytest.raises(IncompatibleChangeError, match="audited snapshot 404 is not in table"):
            published(catalog, asked)
        assert rows(catalog) == [[0], [1]]
