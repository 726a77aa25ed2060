"""Several tables in one commit of a real Nessie: all are published at once, or none, and once."""

import uuid

import pytest
import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import CommitConflictError, CommitUnknownError, InvalidInputError
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.wap.audit import AuditRequest, audit
from airflow_iceberg.operations.wap.audits import RowCount
from airflow_iceberg.operations.wap.branch import start_branch
from airflow_iceberg.operations.wap.publish import PublishRequest
from airflow_iceberg.operations.wap.together import publish_all
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.catalogs.contract import setting
from tests.services.http_proxy import HttpProxy, double, lose_reply, lose_request
from tests.support.builders import id_rows, ids

pytestmark = pytest.mark.services

NAMES = ("db.a", "db.b", "db.c")


@pytest.fixture
def catalog(nessie, tmp_path):
    """A catalog on a new branch of the server, with three tables that have audited rows on a branch of their own."""
    references = load_catalog("prod", type="nessie", uri=nessie, warehouse=tmp_path.as_uri()).references
    name = references.create_branch(f"together-{uuid.uuid4().hex[:8]}").name
    found = load_catalog("prod", type="nessie", uri=nessie, ref=name, warehouse=f"{tmp_path.as_uri()}/w")
    found.create_namespace("db", if_not_exists=True)
    return found


@pytest.fixture
def asked(catalog):
    found = []
    for number, name in enumerate(NAMES):
        table = Table.create(catalog, name, schema={"id": "long"})
        table.append(id_rows([number]))
        start_branch(Work(table, operation_key=key("start")), "wap")
        append(Work(table, operation_key=key("load")), AppendRequest(rows=id_rows([10 + number]), branch="wap"))
        report = audit(Work(table), AuditRequest(audits=[RowCount(min=1)], branch="wap"))
        found.append((name, PublishRequest(snapshot_id=report.snapshot_id, branch="wap")))
    return found


@pytest.fixture
def shaky(catalog, nessie):
    with HttpProxy(nessie) as proxy:
        yield load_catalog("prod", **{**catalog.properties, "type": "nessie", "uri": f"{proxy.uri}/api/v2"}), proxy


def key(task):
    return OperationKey(dag_id="d", run_id="r", task_id=task)


def published(catalog, asked):
    works = [(Work(Table.load(catalog, name), operation_key=key("publish")), request) for name, request in asked]
    return [result.how for result in publish_all(works).tables]


def rows(catalog):
    return [ids(Table.load(catalog, name)) for name in NAMES]


def commits(catalog, nessie):
    url = f"{nessie}/trees/{catalog.properties['ref']}/history"
    return requests.get(url, params={"fetch": "ALL"}, timeout=10).json()["logEntries"]


BEFORE, AFTER = [[0], [1], [2]], [[0, 10], [1, 11], [2, 12]]


class TestOneCommit:
    """The catalog's history has one more commit, with all tables in it."""

    def test_all_tables_move_in_it(self, catalog, asked, nessie):
        count = len(commits(catalog, nessie))
        assert published(catalog, asked) == ["fast_forward"] * 3
        log = commits(catalog, nessie)
        assert len(log) == count + 1
        assert [entry["key"]["elements"] for entry in log[0]["operations"]] == [["db", name[3:]] for name in NAMES]
        assert rows(catalog) == AFTER
        assert published(catalog, asked) == ["found"] * 3
        # And every table can be committed to afterwards.
        Table.load(catalog, "db.a").append(id_rows([7]))
        assert rows(catalog)[0] == [0, 7, 10]

    def test_a_state_that_is_old_changes_nothing(self, catalog, asked):
        states = [catalog.load(name) for name in NAMES]
        catalog.commit(states[2], setting(a="1"))
        with pytest.raises(CommitConflictError, match=r"table db\.c in catalog prod was changed by another writer"):
            catalog.commit_together([(state, setting(b="1")) for state in states])
        assert [dict(catalog.load(name).metadata.properties).get("b") for name in NAMES] == [None] * 3

    def test_its_states_can_be_committed_to(self, catalog, asked):
        states = catalog.commit_together([(catalog.load(name), setting(b="1")) for name in NAMES])
        assert catalog.commit(states[1], setting(c="1")).metadata.properties["c"] == "1"

    def test_tables_on_different_branches_of_the_catalog(self, catalog, asked):
        other = catalog.references.create_branch(f"other-{uuid.uuid4().hex[:8]}").name
        states = [catalog.load("db.a"), catalog.load(f"db.b@{other}")]
        with pytest.raises(InvalidInputError, match=r"different branches of catalog prod, .*; name the same branch"):
            catalog.commit_together([(state, setting(b="1")) for state in states])


class TestFaults:
    """All or none, also when an answer is lost while others commit."""

    @pytest.mark.parametrize("fault", [lose_reply, double], ids=["lost", "sent twice"])
    def test_an_answer_that_is_lost_is_found_in_the_history(self, catalog, shaky, asked, nessie, fault):
        through, proxy = shaky
        count = len(commits(catalog, nessie))
        proxy.on("POST", "/history/commit", fault)
        assert published(through, asked) == ["fast_forward"] * 3
        assert (rows(catalog), len(commits(catalog, nessie))) == (AFTER, count + 1)

    def test_a_request_that_is_lost(self, catalog, shaky, asked):
        through, proxy = shaky
        proxy.on("POST", "/history/commit", lose_request)
        with pytest.raises(CommitUnknownError):
            published(through, asked)
        assert rows(catalog) == BEFORE
        assert published(through, asked) == ["fast_forward"] * 3
        assert rows(catalog) == AFTER

    def test_another_writer_commits_to_one_of_them_just_before(self, catalog, shaky, asked):
        through, proxy = shaky

        def rival(request, forward):
            Table.load(catalog, "db.b").append(id_rows([7]))
            return forward(request)

        proxy.on("POST", "/history/commit", rival)
        assert published(through, asked) == ["fast_forward", "reapplied", "fast_forward"]
        assert rows(catalog) == [[0, 10], [1, 7, 11], [2, 12]]
