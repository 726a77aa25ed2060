"""Several tables: in one commit where the catalog has such, else one after the other."""

import logging
from dataclasses import replace

import pytest

from airflow_iceberg.commit.operation_key import AUDITED_SNAPSHOT_ID
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, IncompatibleChangeError
from airflow_iceberg.format.metadata.updates import apply_change
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import PythonAudit, RowCount
from airflow_iceberg.operations.wap.branch import start_branch
from airflow_iceberg.operations.wap.publish import AuditFailedError, PublishRequest
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


def published(catalog, asked, epoch=0):
    own = key("publish", epoch)
    works = [(Work(Table.load(catalog, name), operation_key=own), request) for name, request in asked]
    done = publish_all(works)
    is_found = all(result.how == "found" for result in done.tables)
    assert done.to_xcom()["outcome"] == ("found" if is_found else "committed")
    return [result.how for result in done.tables]


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

    @pytest.mark.parametrize("rival", [False, True], ids=["", "main-moves-on-during-the-audit"])
    def test_one_whose_audits_are_made_again(self, rival):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        seen = []

        def check(scan):
            seen.append(sorted(scan.to_arrow()["id"].to_pylist()))
            if rival and len(seen) == 1:
                Table.load(catalog, "db.b").append(id_rows([8]))

        name, request = asked[1]
        asked[1] = (name, replace(request, audits=[PythonAudit(check)], is_always_audited=True))
        Table.load(catalog, "db.b").append(id_rows([7]))
        assert published(catalog, asked) == ["fast_forward", "audited_again"]
        assert rows(catalog) == [[0, 10], seen[-1]] == [[0, 10], [1, 7, *([8] if rival else []), 11]]
        assert set(Table.load(catalog, "db.b").refs) == {"main", "wap"}

    def test_one_of_which_nothing_is_left(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        table = Table.load(catalog, "db.b")
        table.delete("id = 11", branch="wap")
        report = audit(Work(table), AuditRequest(audits=[RowCount(min=1)], branch="wap"))
        asked[1] = (
            "db.b",
            PublishRequest(
                snapshot_id=report.snapshot_id, branch="wap", audits=[RowCount(min=1)], is_always_audited=True
            ),
        )
        table.refresh().append(id_rows([7]))
        assert published(catalog, asked) == ["fast_forward", "audited_again"]
        assert rows(catalog) == [[0, 10], [1, 7]]
        assert set(Table.load(catalog, "db.b").refs) == {"main", "wap"}

    def test_one_that_does_not_pass_then_keeps_the_others_back(self):
        catalog = TogetherCatalog()
        asked = staged(catalog)
        name, request = asked[1]
        asked[1] = (name, replace(request, audits=[RowCount(max=2)], is_always_audited=True))
        Table.load(catalog, "db.b").append(id_rows([7]))
        with pytest.raises(AuditFailedError, match="have not passed: RowCount"):
            published(catalog, asked)
        assert rows(catalog) == [[0], [1, 7]]

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

    @pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
    @pytest.mark.parametrize("change", ["appends", "overwrites", "rolls back", "publishes it"])
    @pytest.mark.parametrize("is_cleared", [False, True], ids=["retried", "cleared"])
    def test_killed_between_the_tables_while_main_of_the_second_moves(self, fault, change, is_cleared):
        """The first table is published once; the second with what others did to it, once, or not at all."""
        catalog = MemoryCatalog()
        asked = staged(catalog)
        with pytest.raises(SimulatedCrash):
            published(FaultyCatalog(catalog, [fault]), asked)
        second = Table.load(catalog, "db.b")
        if change == "appends":
            second.append(id_rows([7]))
        elif change == "overwrites":
            second.overwrite(id_rows([7]))
        elif change == "rolls back":
            start = second.metadata.current_snapshot_id
            second.append(id_rows([7]))
            second.refresh().rollback_to_snapshot(start)
        else:
            second.fast_forward("main", "wap")
            second.refresh().append(id_rows([7]))
        hows = published(catalog, asked, epoch=int(is_cleared))
        assert rows(catalog) == [
            [0, 10],
            {"appends": [1, 7, 11], "overwrites": [7, 11], "rolls back": [1, 11], "publishes it": [1, 7, 11]}[change],
        ]
        assert hows[0] == ("found" if fault is Fault.CRASH_AFTER else "fast_forward")
        assert published(catalog, asked, epoch=1) == ["found", "found"]

    def test_a_forged_publication_of_the_second_publishes_nothing(self, monkeypatch):
        """It is found before the first table is touched, also by a retry."""
        catalog = MemoryCatalog()
        asked = staged(catalog)
        table = Table.load(catalog, "db.b")
        settings = table.commit_settings()
        lie = {**settings.properties, AUDITED_SNAPSHOT_ID: str(asked[1][1].snapshot_id)}
        monkeypatch.setattr(table, "commit_settings", lambda **_: replace(settings, properties=lie))
        append(Work(table), AppendRequest(rows=id_rows([66])))
        for epoch in (0, 1):
            with pytest.raises(IncompatibleChangeError, match="the summary is forged"):
                published(catalog, asked, epoch=epoch)
        assert rows(catalog) == [[0], [1, 66]]

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
