"""The Nessie catalog on a real Nessie server."""

import json
import logging
import uuid

import pytest
import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.catalogs.contract import CatalogContract, make_table, new_catalog, new_metadata, setting
from tests.catalogs.lost_answers import LostAnswersContract, ids, rows
from tests.services.http_proxy import HttpProxy, delay, double, fail_before, lose_reply, lose_request
from tests.support.builders import age

pytestmark = pytest.mark.services

TOKEN = "s3cret-t0ken"


@pytest.fixture(scope="module")
def uri(nessie):
    return nessie


@pytest.fixture
def branch(uri):
    name = f"test-{uuid.uuid4().hex[:8]}"
    start = requests.get(f"{uri}/config", timeout=10).json()["noAncestorHash"]
    source = {"type": "BRANCH", "name": "main", "hash": start}
    made = requests.post(f"{uri}/trees", params={"name": name, "type": "BRANCH"}, json=source, timeout=10)
    made.raise_for_status()
    return name


@pytest.fixture
def properties(uri, branch, tmp_path):
    return {"type": "nessie", "uri": uri, "ref": branch, "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def proxy(uri):
    with HttpProxy(uri) as proxy:
        yield proxy


@pytest.fixture
def shaky(properties, proxy):
    return load_catalog("prod", **{**properties, "uri": f"{proxy.uri}/api/v2", "token": TOKEN})


def new_table(catalog):
    table = Table.create(catalog, "db.t", schema={"id": "long"})
    table.append(rows(1))
    return table


def history(uri, branch):
    return requests.get(f"{uri}/trees/{branch}/history", params={"fetch": "ALL"}, timeout=10).json()["logEntries"]


def properties_of(meta):
    return {name: value for name, (value,) in meta["allProperties"].items()}


class TestContract(CatalogContract):
    """Nessie's catalog is a catalog."""

    # A table of Nessie is protected from collection unless it says otherwise.
    wishes_of_deletion = {"write.metadata.delete-after-commit.enabled": "true", "gc.enabled": "true"}
    wishes_of_purge = {"gc.enabled": "true"}
    purges_without_collection = False

    def test_a_new_table_lies_in_the_warehouse_by_namespace_and_name(self, catalog, properties):
        place = f"{properties['warehouse']}/db/t_"
        assert catalog.default_location("db.t").startswith(place)
        assert catalog.default_location("db.t") != catalog.default_location("db.t")  # branches must not share files
        assert make_table(catalog).metadata_location.startswith(place)


class TestWhatACommitIs:
    """A commit is one content object, put at the hash that its base was read at, with its content id."""

    def test_the_content_names_the_file_and_the_current_ids(self, catalog, uri, branch):
        table = new_table(catalog)
        content = history(uri, branch)[0]["operations"][0]["content"]
        assert content["type"] == "ICEBERG_TABLE"
        assert content["metadataLocation"] == table.metadata_location
        assert content["snapshotId"] == table.current_snapshot().snapshot_id
        assert (content["schemaId"], content["specId"], content["sortOrderId"]) == (0, 0, 0)

    def test_the_content_id_stays_over_commits_and_names(self, catalog):
        made = make_table(catalog)
        catalog.commit(made, setting(a="1"))
        catalog.rename_table("db.t", "db.u")
        assert catalog.load("db.u").token.id == made.token.id

    def test_a_new_table_of_the_name_has_another_content_id(self, catalog):
        made = make_table(catalog)
        catalog.drop_table("db.t")
        again = make_table(catalog)
        assert again.token.id != made.token.id
        with pytest.raises(CommitConflictError):
            catalog.commit(made, setting(a="1"))
        assert catalog.load("db.t") == again

    def test_commits_to_other_tables_are_no_conflict(self, catalog):
        state = make_table(catalog)
        make_table(catalog, "db.other")
        catalog.create_namespace("more")
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")

    def test_a_new_table_is_protected_from_collection(self, catalog):
        properties = make_table(catalog).metadata.properties
        assert properties["gc.enabled"] == "false"
        assert properties["write.metadata.delete-after-commit.enabled"] == "false"

    def test_metadata_files_stay_while_the_table_is_protected(self, catalog, caplog):
        state = make_table(
            catalog,
            **{"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"},
        )
        first = state.metadata_location
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        assert catalog.io.exists(first)
        assert "is ignored while gc.enabled is false" in caplog.text

    def test_the_metadata_names_the_commit_that_it_was_made_for(self, catalog):
        made = make_table(catalog)
        changed = catalog.commit(made, setting(a="1"))
        assert changed.metadata.properties["nessie.commit.id"] == made.token.hash

    def test_a_rename_is_one_commit(self, catalog, uri, branch):
        make_table(catalog)
        before = len(history(uri, branch))
        catalog.rename_table("db.t", "db.u")
        newest, *_ = entries = history(uri, branch)
        assert len(entries) == before + 1
        assert sorted(operation["type"] for operation in newest["operations"]) == ["DELETE", "PUT"]

    def test_the_commit_s_metadata_is_what_iceberg_java_writes(self, properties, uri, branch):
        catalog = new_catalog(**properties, user="jane", **{"app-id": "app-7"})
        new_table(catalog)
        meta = history(uri, branch)[0]["commitMeta"]
        assert meta["message"] == "Iceberg append against db.t"
        assert meta["authors"] == ["jane"]
        assert properties_of(meta) == {"application-type": "iceberg", "app-id": "app-7", "iceberg.operation": "append"}

    def test_a_commit_of_a_task_names_the_dag_run(self, catalog, uri, branch):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        key = OperationKey(dag_id="load", run_id="scheduled__2026-01-01", task_id="orders", map_index=3)
        table.append(rows(1), operation_key=key)
        meta = history(uri, branch)[0]["commitMeta"]
        assert meta["message"].splitlines()[0] == "Iceberg append against db.t"
        assert meta["message"].endswith("by task orders of DAG load, run scheduled__2026-01-01")
        assert properties_of(meta)["airflow.operation-key"] == str(key)
        assert properties_of(meta)["airflow.dag-id"] == "load"
        assert properties_of(meta)["airflow.map-index"] == "3"

    def test_a_commit_of_nobody_s_task_does_not_name_the_last_one(self, catalog, uri, branch):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        table.append(rows(1), operation_key=OperationKey(dag_id="load", run_id="r", task_id="orders"))
        catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert "airflow.dag-id" not in history(uri, branch)[0]["commitMeta"]["allProperties"]


class TestTheContentDecides:
    """What the content object names as current is current, whatever the metadata file says."""

    def put(self, uri, branch, state, **ids):
        content = {
            "type": "ICEBERG_TABLE",
            "id": state.token.id,
            "metadataLocation": state.metadata_location,
            "snapshotId": state.token.snapshot_id,
            "schemaId": state.token.schema_id,
            "specId": state.token.spec_id,
            "sortOrderId": state.token.sort_order_id,
            **ids,
        }
        operation = {"type": "PUT", "key": {"elements": ["db", "t"]}, "content": content}
        body = {"commitMeta": {"message": "by hand"}, "operations": [operation]}
        url = f"{uri}/trees/{branch}@{state.token.hash}/history/commit"
        requests.post(url, json=body, timeout=10).raise_for_status()

    @pytest.fixture
    def table(self, catalog):
        table = new_table(catalog)
        table.append(rows(2))
        table.alter([{"add_column": {"name": "more", "type": "string"}}])
        return table

    def test_an_older_snapshot(self, catalog, uri, branch, table):
        first, _ = table.snapshots()
        self.put(uri, branch, catalog.load("db.t"), snapshotId=first.snapshot_id)
        found = Table.load(catalog, "db.t")
        assert found.current_snapshot() == first
        assert found.refs["main"].snapshot_id == first.snapshot_id
        assert found.scan().to_arrow()["id"].to_pylist() == [1]
        found.append(rows(3))
        assert sorted(Table.load(catalog, "db.t").scan().to_arrow()["id"].to_pylist()) == [1, 3]
        assert found.current_snapshot().parent_snapshot_id == first.snapshot_id

    def test_an_older_schema(self, catalog, uri, branch, table):
        self.put(uri, branch, catalog.load("db.t"), schemaId=0)
        assert [field.name for field in Table.load(catalog, "db.t").schema().fields] == ["id"]

    def test_no_snapshot_leaves_the_file_s(self, catalog, uri, branch, table):
        self.put(uri, branch, catalog.load("db.t"), snapshotId=-1)
        assert Table.load(catalog, "db.t").current_snapshot() == table.snapshots()[-1]

    @pytest.mark.parametrize("ids", [{"snapshotId": 42}, {"schemaId": 42}, {"specId": 42}, {"sortOrderId": 42}])
    def test_one_that_the_file_does_not_have_is_an_error_that_names_it(self, catalog, uri, branch, table, ids):
        self.put(uri, branch, catalog.load("db.t"), **ids)
        with pytest.raises(FormatError, match=r"Nessie's content object names what .* 42 .*00003-"):
            catalog.load("db.t")


class TestTablesOnBranchesTagsAndCommits:
    """`db.t@etl` is the table as it is on the branch etl; tags and commits can only be read."""

    def test_a_commit_to_a_branch_is_seen_there_alone(self, catalog):
        new_table(catalog)
        etl = new_branch(catalog)
        Table.load(catalog, f"db.t@{etl}").append(rows(2))
        assert ids(catalog, f"db.t@{etl}") == [1, 2]
        assert ids(catalog, "db.t") == [1]

    def test_a_merge_publishes_it(self, catalog):
        new_table(catalog)
        etl = new_branch(catalog, "feature/v1.2")
        Table.load(catalog, f"db.t@{etl}").append(rows(2))
        report = catalog.references.merge(etl)
        assert report.applied
        assert report.keys == ("db.t",)
        assert ids(catalog, "db.t") == [1, 2]

    def test_a_tag_and_a_commit_keep_what_they_show(self, catalog, branch):
        table = new_table(catalog)
        tag = unique("v1")
        hash_ = catalog.references.create_tag(tag).hash
        table.append(rows(2))
        for at in (f"@{tag}", f"@{hash_}", f"@{branch}@{hash_}", f"@{branch}#{hash_}", f"#{hash_}"):
            name = f"db.t{at}"
            assert ids(catalog, name) == [1]
            with pytest.raises(UnsupportedError, match=r"cannot change db\.t.* is a tag or a commit, and only bran"):
                Table.load(catalog, name).append(rows(3))
            with pytest.raises(UnsupportedError, match="only branches"):
                catalog.drop_table(name)
        with pytest.raises(UnsupportedError, match="only branches"):
            make_table(catalog, f"db.u@{tag}")
        assert ids(catalog, "db.t") == [1, 2]

    @pytest.mark.parametrize("is_tag", [True, False])
    def test_what_is_shown_as_it_was_once_deletes_nothing(self, catalog, tmp_path, is_tag):
        """The newer files of the table would look like orphans."""
        table = Table.create(catalog, "db.t", schema={"id": "long"}, properties={"gc.enabled": "true"})
        table.append(rows(1))
        hash_ = table.state.token.hash
        if is_tag:
            catalog.references.create_tag(f"tag-{hash_[:8]}")
        table.append(rows(2))
        before = {status.location for status in table.io.list(table.location)}
        age(tmp_path)
        old = Table.load(catalog, f"db.t@tag-{hash_[:8]}" if is_tag else f"db.t@{hash_}")
        request = RemoveOrphanFilesRequest(action="delete", older_than_ms=2**62, allow_recent=True)
        with pytest.raises(InvalidInputError, match="it is shown as it was once"):
            remove_orphan_files(Work(old), request)
        assert {status.location for status in table.io.list(table.location)} == before

    def test_nothing_is_written_for_a_commit_that_is_refused(self, catalog, properties):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        tag = catalog.references.create_tag(unique("v1")).name
        before = sorted(file.location for file in catalog.io.list(properties["warehouse"]))
        with pytest.raises(UnsupportedError, match="only branches"):
            catalog.commit(catalog.load(f"db.t@{tag}"), setting(a="1"))
        assert sorted(file.location for file in catalog.io.list(properties["warehouse"])) == before
        assert table.refresh().properties == catalog.load("db.t").metadata.properties

    def test_a_catalog_of_a_tag_reads_and_changes_nothing(self, catalog, properties):
        make_table(catalog)
        tag = catalog.references.create_tag(unique("v1")).name
        frozen = load_catalog("prod", **{**properties, "ref": tag})
        assert frozen.list_tables("db") == (TableId.parse("db.t"),)
        for change in (
            lambda: frozen.create_namespace("other"),
            lambda: frozen.drop_namespace("other"),
            lambda: frozen.drop_table("db.t"),
            lambda: frozen.rename_table("db.t", "db.u"),
            lambda: frozen.update_namespace_properties("db", {"a": "1"}),
        ):
            with pytest.raises((UnsupportedError, NotFoundError), match=r"only branches|there is no namespace other"):
                change()

    def test_tables_and_namespaces_of_a_branch_are_listed_with_its_name(self, catalog):
        etl = new_branch(catalog, "etl-1.2")
        catalog.create_namespace(f"new@{etl}", {"owner": "me"})
        make_table(catalog, f"new.t@{etl}")
        (table,) = catalog.list_tables(f"new@{etl}")
        assert str(table) == f"new.t@{etl}"
        assert catalog.load(table).metadata == catalog.load(f"new.t@{etl}").metadata
        assert [".".join(each) for each in catalog.list_namespaces(f"@{etl}")] == [f"db@{etl}", f"new@{etl}"]
        assert catalog.load_namespace_properties(f"new@{etl}") == {"owner": "me"}
        assert catalog.list_namespaces() == (("db",),)
        catalog.rename_table(table, "new.u")
        catalog.drop_table(f"new.u@{etl}")
        catalog.drop_namespace(f"new@{etl}")

    def test_a_table_is_registered_on_a_branch(self, catalog):
        made = make_table(catalog)
        etl = new_branch(catalog, "etl-1.2")
        catalog.create_namespace(f"new@{etl}")
        state = catalog.register_table(f"new.t@{etl}", made.metadata_location)
        assert catalog.load(f"new.t@{etl}") == state
        assert not catalog.namespace_exists("new")

    def test_a_table_is_renamed_on_its_own_branch_only(self, catalog, branch):
        etl = new_branch(catalog)
        make_table(catalog, f"db.t@{etl}")
        with pytest.raises(InvalidInputError, match="renamed on its own branch"):
            catalog.rename_table(f"db.t@{etl}", f"db.t@{branch}")

    def test_a_branch_that_is_not_there_is_named(self, catalog):
        for ask in (lambda: catalog.load("db.t@nope"), lambda: catalog.create_namespace("db@nope")):
            with pytest.raises(NotFoundError, match="there is no branch, tag or commit nope in catalog prod"):
                ask()
        assert not catalog.table_exists("db.t@nope")
        assert not catalog.namespace_exists("db@nope")

    def test_a_catalog_whose_branch_is_not_there_says_so(self, properties):
        with pytest.raises(NotFoundError, match="there is no branch, tag or commit nope in catalog prod"):
            load_catalog("prod", **{**properties, "ref": "nope"}).table_exists("db.t")

    def test_a_branch_that_was_moved_back_is_a_conflict(self, catalog, branch):
        made = make_table(catalog)
        etl = new_branch(catalog)
        on_etl = catalog.commit(catalog.load(f"db.t@{etl}"), setting(a="1"))
        catalog.references.assign(etl, branch)
        with pytest.raises(CommitConflictError):
            catalog.commit(on_etl, setting(b="1"))
        assert catalog.load(f"db.t@{etl}").metadata == made.metadata


class TestBranchesAndTags:
    """Branches and tags of the whole catalog can be listed, made, merged, moved and deleted."""

    def test_they_are_listed_over_all_pages(self, catalog, branch):
        names = {unique(f"b{number}") for number in range(3)}
        for name in names:
            catalog.references.create_branch(name)
        listed = catalog.references.list()
        assert {reference.name for reference in listed} >= names | {"main", branch}
        assert {reference.kind for reference in listed if reference.name in names} == {"BRANCH"}

    def test_a_name_is_given_once(self, catalog):
        etl = unique("etl")
        made = catalog.references.create_branch(etl)
        for make in (catalog.references.create_branch, catalog.references.create_tag):
            with pytest.raises(AlreadyExistsError, match=f"there is a branch {etl} already in catalog prod"):
                make(etl)
        assert catalog.references.create_branch(etl, if_not_exists=True) == made
        with pytest.raises(AlreadyExistsError):
            catalog.references.create_tag(etl, if_not_exists=True)

    def test_one_can_start_at_any_other(self, catalog, branch):
        first = make_table(catalog).token.hash
        make_table(catalog, "db.u")
        etl, tag = unique("etl"), unique("v1")
        assert catalog.references.create_branch(etl, source=f"{branch}@{first}").hash == first
        assert catalog.references.create_tag(tag, source=etl).hash == first
        assert catalog.references.create_branch(unique("from-a-commit"), source=first).hash == first
        with pytest.raises(NotFoundError, match="there is no branch, tag or commit nope"):
            catalog.references.create_branch(unique("etl"), source="nope")

    def test_what_cannot_be_a_name_is_refused(self, catalog):
        for name in ("a b", "a..b", "1a", f"etl@{'0' * 64}", "-", ""):
            with pytest.raises(InvalidInputError):
                catalog.references.create_branch(name)

    def test_a_merge_of_both_sides_changed_is_refused_with_a_report(self, catalog, branch):
        make_table(catalog)
        make_table(catalog, "db.u")
        etl = new_branch(catalog)
        for name in (f"db.t@{etl}", "db.t", f"db.u@{etl}"):
            catalog.commit(catalog.load(name), setting(side=name))
        before = catalog.references.get(branch)
        report = catalog.references.merge(etl, dry_run=True)
        assert not report.applied
        assert [(conflict.key, conflict.kind) for conflict in report.conflicts] == [("db.t", "VALUE_DIFFERS")]
        assert report.keys == ("db.t", "db.u")
        with pytest.raises(IncompatibleChangeError, match=r"on both sides: db\.t \(VALUE_DIFFERS\); nothing was"):
            catalog.references.merge(etl)
        assert catalog.references.get(branch) == before

    def test_merging_twice_changes_nothing(self, catalog, branch):
        make_table(catalog)
        etl = new_branch(catalog)
        catalog.commit(catalog.load(f"db.t@{etl}"), setting(a="1"))
        assert catalog.references.merge(etl, into=branch, message="publish", properties={"k": "v"}).applied
        after = catalog.references.get()
        assert not catalog.references.merge(etl).applied
        assert catalog.references.get() == after

    def test_a_dry_run_changes_nothing(self, catalog, branch):
        etl = new_branch(catalog)
        make_table(catalog, f"db.t@{etl}")
        before = catalog.references.get(branch)
        assert catalog.references.merge(etl, dry_run=True).keys == ("db.t",)
        assert catalog.references.get(branch) == before

    def test_only_a_branch_is_merged_into(self, catalog):
        tag = catalog.references.create_tag(unique("v1")).name
        with pytest.raises(InvalidInputError, match="only a branch can be merged into"):
            catalog.references.merge(tag, into=tag)

    def test_one_can_be_deleted_if_it_is_where_it_should_be(self, catalog):
        etl = unique("etl")
        made = catalog.references.create_branch(etl)
        make_table(catalog, f"db.t@{etl}")
        with pytest.raises(CommitConflictError, match="it was moved meanwhile"):
            catalog.references.delete(etl, expected_hash=made.hash)
        catalog.references.delete(etl)
        assert not catalog.references.exists(etl)
        with pytest.raises(NotFoundError, match=f"there is no branch, tag or commit {etl}"):
            catalog.references.delete(etl)

    def test_one_can_be_moved(self, catalog, branch):
        etl = new_branch(catalog)
        make_table(catalog)
        assert catalog.references.assign(etl, branch).hash == catalog.references.get(branch).hash
        assert catalog.table_exists(f"db.t@{etl}")


class TestLostAnswers(LostAnswersContract):
    """An answer that is lost is looked up in the history of the branch; where that doesn't tell, it is unknown."""

    COMMIT = CREATE = ("POST", "/history/commit")
    UNKNOWN = "cannot tell whether it did write to Nessie at"

    def test_a_reply_that_comes_too_late_is_a_lost_one(self, properties, catalog, proxy):
        slow = {**properties, "uri": f"{proxy.uri}/api/v2", "transport.read-timeout": "700"}
        state = make_table(catalog)
        proxy.on(*self.COMMIT, delay(1.5))
        assert load_catalog("prod", **slow).commit(state, setting(a="1")) == catalog.load("db.t")

    def test_one_that_others_built_upon_is_found(self, catalog, shaky, proxy):
        state = make_table(catalog, **{"write.metadata.previous-versions-max": "1"})

        def others_commit(request, forward):
            forward(request)
            for number in range(3):
                catalog.commit(catalog.load("db.t"), setting(other=str(number)))

        proxy.on(*self.COMMIT, others_commit)
        committed = shaky.commit(state, setting(a="1"))
        now = catalog.load("db.t")
        # the log of metadata files has forgotten it, the branch has not
        assert committed.metadata_location not in [location for _, location in now.metadata.metadata_log]
        assert now.metadata.properties["a"] == "1"

    def test_one_whose_table_was_dropped_meanwhile_is_found(self, catalog, shaky, proxy):
        state = make_table(catalog)

        def other_drops(request, forward):
            forward(request)
            catalog.drop_table("db.t")

        proxy.on(*self.COMMIT, other_drops)
        assert catalog.io.exists(shaky.commit(state, setting(a="1")).metadata_location)

    @pytest.mark.parametrize("word", ["/contents/", "/history?"])
    def test_a_refusal_that_cannot_be_looked_at_is_unknown(self, catalog, shaky, proxy, word):
        state = make_table(catalog)
        newer = catalog.commit(state, setting(a="1"))
        proxy.on("GET", word, lambda request, forward: unauthorised(request))
        with pytest.raises(CommitUnknownError, match="unknown whether a repetition of the same request") as raised:
            shaky.commit(state, setting(b="1"))
        assert catalog.io.exists(raised.value.metadata_location)
        assert TOKEN not in f"{raised.value!r}{raised.value.__cause__!r}"
        assert catalog.load("db.t") == newer

    def test_a_501_of_a_gateway_that_may_have_sent_it_on_is_unknown(self, catalog, shaky, proxy):
        state = make_table(catalog)
        proxy.on(*self.COMMIT, fail_before(501))
        with pytest.raises(CommitUnknownError, match=r"its answer, HTTP 501"):
            shaky.commit(state, setting(a="1"))

    @pytest.mark.parametrize("fault", [lose_reply, double])
    def test_so_is_a_drop_a_rename_and_a_namespace(self, catalog, shaky, proxy, fault):
        proxy.on(*self.COMMIT, fault)
        shaky.create_namespace("other", {"a": "1"})
        make_table(catalog, "other.t")
        proxy.on(*self.COMMIT, fault)
        shaky.rename_table("other.t", "other.u")
        assert catalog.list_tables("other") == (TableId.parse("other.u"),)
        proxy.on(*self.COMMIT, fault)
        shaky.drop_table("other.u")
        proxy.on(*self.COMMIT, fault)
        shaky.update_namespace_properties("other", {"b": "2"})
        proxy.on(*self.COMMIT, fault)
        shaky.drop_namespace("other")
        assert proxy.is_done
        assert catalog.list_namespaces() == (("db",),)

    def test_so_are_branches_and_merges(self, catalog, shaky, proxy):
        etl = unique("etl")
        proxy.on("POST", "/trees?name=", lose_reply)
        assert shaky.references.create_branch(etl) == catalog.references.get(etl)
        make_table(catalog, f"db.t@{etl}")
        proxy.on("POST", "/history/merge", lose_reply)
        assert shaky.references.merge(etl).applied
        assert catalog.table_exists("db.t")
        proxy.on("PUT", f"/trees/{etl}", lose_reply)
        shaky.references.assign(etl, shaky.references.get().name)
        proxy.on("DELETE", f"/trees/{etl}", lose_reply)
        shaky.references.delete(etl)
        assert proxy.is_done
        assert not catalog.references.exists(etl)

    def test_a_question_is_asked_again(self, catalog, shaky, proxy):
        state = make_table(catalog)
        for fault in (lose_request, lose_reply):
            proxy.on("GET", "/contents/", fault)
        assert shaky.load("db.t") == state
        proxy.on("GET", "/contents/", fail_before(503))
        assert shaky.load("db.t") == state

    def test_a_server_that_is_away_is_named(self, properties):
        away = load_catalog("prod", **{**properties, "uri": "http://127.0.0.1:9/api/v2", "token": TOKEN})
        for ask in (lambda: away.load("db.t"), lambda: away.create_namespace("a"), away.references.list):
            with pytest.raises(StorageError, match=r"cannot read from Nessie at http://127\.0\.0\.1:9/") as raised:
                ask()
            assert TOKEN not in str(raised.value)

    def test_something_else_that_answers_is_named(self, properties, proxy):
        odd = load_catalog("prod", **{**properties, "uri": f"{proxy.uri}/nowhere/api/v2"})
        with pytest.raises(StorageError, match=r"Nessie at .*HTTP 404"):
            odd.load("db.t")

    def test_a_refusal_of_the_token_is_definite_and_does_not_show_it(self, catalog, shaky, proxy, caplog):
        caplog.set_level(logging.DEBUG)
        state = make_table(catalog)
        proxy.on("POST", "/history/commit", lambda request, forward: unauthorised(request))
        with pytest.raises(StorageError, match=r"cannot commit to db\.t: .*HTTP 401.*check the token") as raised:
            shaky.commit(state, setting(a="1"))
        assert TOKEN not in f"{raised.value!r}{raised.value.__cause__!r}{caplog.text}"
        assert any(request.headers.get("Authorization") == f"Bearer {TOKEN}" for request in proxy.requests)


class TestRoundTrips:
    """No call asks more often than it must; docs/nessie.md shows the numbers."""

    def words(self, proxy):
        return [path.partition("?")[0].rpartition("/")[2] for _, path in proxy.count()]

    def test_a_load_is_one_question(self, catalog, shaky, proxy):
        make_table(catalog)
        shaky.load("db.t")
        assert [method for method, _ in proxy.count()] == ["GET"]

    def test_a_commit_is_one_request(self, catalog, shaky, proxy):
        state = make_table(catalog)
        state = shaky.commit(state, setting(a="1"))
        shaky.commit(state, setting(b="1"))
        assert [(method, path.rpartition("/")[2]) for method, path in proxy.count()] == [("POST", "commit")] * 2

    def test_a_conflict_costs_two_questions_more(self, catalog, shaky, proxy):
        state = make_table(catalog)
        catalog.commit(state, setting(a="1"))
        with pytest.raises(CommitConflictError):
            shaky.commit(state, setting(b="1"))
        assert [method for method, _ in proxy.count()] == ["POST", "GET", "GET"]

    def test_a_creation_asks_twice(self, shaky, catalog, proxy):
        shaky.create("db.t", new_metadata(catalog.default_location("db.t")))
        assert self.words(proxy) == ["contents", "contents", "commit"]

    def test_drop_and_rename_are_a_question_and_a_commit(self, shaky, catalog, proxy):
        make_table(catalog)
        shaky.rename_table("db.t", "db.u")
        shaky.drop_table("db.u")
        assert self.words(proxy) == ["contents", "commit"] * 2

    def test_so_is_a_new_namespace_and_one_that_is_there_is_a_question(self, shaky, catalog, proxy):
        shaky.create_namespace("a.b")
        assert self.words(proxy) == ["contents", "commit"]
        shaky.create_namespace("a.b", if_not_exists=True)
        with pytest.raises(AlreadyExistsError, match=r"namespace a\.b exists already in catalog prod"):
            shaky.create_namespace("a.b")
        assert self.words(proxy) == ["contents"] * 2
        proxy.on("POST", "/history/commit", lose_reply)
        shaky.create_namespace("c")
        assert self.words(proxy) == ["contents", "commit", "history"]
        assert catalog.list_namespaces() == (("a",), ("c",), ("db",))


def new_branch(catalog, name="etl"):
    return catalog.references.create_branch(unique(name)).name


def unique(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


def unauthorised(request):
    from tests.services.http_proxy import Reply

    # a server that repeats what it was sent
    text = json.dumps({"status": 401, "message": f"bad {request.headers['Authorization']}", "errorCode": "UNKNOWN"})
    return Reply(status=401, headers=(("Content-Type", "application/json"),), body=text.encode())
