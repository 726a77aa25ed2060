"""The Glue catalog on moto's Glue, which checks versions as AWS does."""

import json
import logging
import os
import re
from contextlib import suppress

import boto3
import pytest
import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.glue.client import GlueClient
from airflow_iceberg.catalogs.hive.column_types import column_type
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table
from tests.catalogs.contract import CatalogContract, make_table, new_metadata, setting
from tests.catalogs.lost_answers import LostAnswersContract, ids, rows
from tests.services.glue import KEYS
from tests.services.http_proxy import HttpProxy, Reply, double, lose_reply, lose_request

SECRET = KEYS["glue.secret-access-key"]
SESSION = "s3ssion-t0ken"

UPDATE = ("POST", "AWSGlue.UpdateTable")
CREATE = ("POST", "AWSGlue.CreateTable")


@pytest.fixture(scope="module", autouse=True)
def shared_clients():
    """Catalogs of equal properties share boto3's clients, which take a tenth of a second to make."""
    made, make = {}, GlueClient._new_clients

    def clients(glue):
        given = {name: value for name, value in glue._properties.items() if name != "warehouse"}
        key = (os.getpid(), *sorted(given.items()))
        return made.get(key) or made.setdefault(key, make(glue))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlueClient, "_new_clients", clients)
        yield


@pytest.fixture
def properties(glue_address, tmp_path):
    requests.post(f"{glue_address}/moto-api/reset", timeout=10).raise_for_status()
    return {"type": "glue", "glue.endpoint": glue_address, "warehouse": f"file://{tmp_path}/warehouse", **KEYS}


@pytest.fixture(scope="module")
def glue(glue_address):
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": KEYS["glue.region"]}
    return boto3.client("glue", endpoint_url=glue_address, **keys)


@pytest.fixture(scope="module")
def gateway(glue_address):
    with HttpProxy(glue_address) as proxy:
        yield proxy


@pytest.fixture
def proxy(gateway):
    gateway.forget()
    return gateway


@pytest.fixture
def shaky(properties, proxy):
    return load_catalog("prod", **{**properties, "glue.endpoint": proxy.uri, "glue.session-token": SESSION})


def document(glue, name="t"):
    return glue.get_table(DatabaseName="db", Name=name)["Table"]


class TestContract(CatalogContract):
    """Glue's catalog is a catalog."""

    has_nested_namespaces = False
    default_place = "db.db/t"


class TestTheDocument:
    """The table's document in Glue names the metadata file, and shows the columns to people."""

    @pytest.mark.costly
    def test_it_is_the_one_of_an_iceberg_table(self, catalog, glue):
        made = make_table(catalog)
        committed = catalog.commit(made, setting(a="1"))
        found = document(glue)
        assert found["TableType"] == "EXTERNAL_TABLE"
        assert found["Parameters"] == {
            "table_type": "ICEBERG",
            "metadata_location": committed.metadata_location,
            "previous_metadata_location": made.metadata_location,
        }
        assert found["StorageDescriptor"]["Location"] == committed.metadata.location

    def test_the_columns_follow_the_schema(self, catalog, glue):
        table = Table.create(catalog, "db.t", schema={"id": "long not null", "name": "string"})
        price = {"name": "price", "type": "decimal(9, 2)", "doc": "in euro"}
        table.alter([{"add_column": price}, {"drop_column": "name"}])
        described = document(glue)["StorageDescriptor"]["Columns"]
        columns = {each["Name"]: each["Type"] for each in described}
        assert list(columns.items()) == [("id", "bigint"), ("price", "decimal(9,2)"), ("name", "string")]
        shown = {"id": "1", "optional": "false", "current": "true"}
        assert described[0]["Parameters"] == {f"iceberg.field.{name}": value for name, value in shown.items()}
        assert described[1]["Comment"] == "in euro"
        assert described[2]["Parameters"]["iceberg.field.current"] == "false"

    @pytest.mark.parametrize(("type_", "word"), [
        *((same, same) for same in ("boolean", "int", "float", "double", "date", "timestamp", "binary")),
        *((zoned, "timestamp") for zoned in ("timestamptz", "timestamptz_ns")),
        *((other, "string") for other in ("time", "uuid", "variant")),
        ("fixed[4]", "binary"),
        ("list<int>", "array<int>"),
        ("map<string, double>", "map<string,double>"),
    ])  # fmt: skip
    def test_every_type_has_a_word(self, type_, word):
        type_ = schema_from_shorthand({"c": type_}).fields[0].type
        assert column_type(type_, zoned="timestamp", other="string") == word

    def test_what_others_wrote_into_it_stays(self, catalog, glue):
        state = make_table(catalog)
        found = document(glue)
        found["StorageDescriptor"]["Columns"][1]["Comment"] = "by hand"
        foreign = {"Name": "t", "TableType": "EXTERNAL_TABLE", "Owner": "jane", "Description": "orders"}
        foreign["Parameters"] = {**found["Parameters"], "classification": "gold"}
        foreign["StorageDescriptor"] = {**found["StorageDescriptor"], "AdditionalLocations": ["file:///elsewhere"]}
        glue.update_table(DatabaseName="db", TableInput=foreign)
        state = catalog.commit(catalog.load("db.t"), setting(a="1"))
        catalog.commit(state, setting(b="1"))
        now = document(glue)
        assert (now["Owner"], now["Description"]) == ("jane", "orders")
        assert now["Parameters"]["classification"] == "gold"
        assert now["StorageDescriptor"]["AdditionalLocations"] == ["file:///elsewhere"]
        assert now["StorageDescriptor"]["Columns"][1]["Comment"] == "by hand"

    def test_texts_have_no_sign_that_aws_refuses(self, catalog, glue):
        """moto takes everything: the patterns are those of the API's documentation."""
        line = re.compile(r"[\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff\t]*")
        docs = {
            "a\nb": "a b", "a \r\n\t b": "a b", "\n a\n": "a", "a\x00b\x1b[0m": "ab[0m", "a\u2028b": "a b",
            "ta\tb": "ta\tb", "é😀\ufffe": "é😀", "\x00": None,
        }  # fmt: skip
        changes = [{"add_column": {"name": f"c{i}", "type": "int", "doc": doc}} for i, doc in enumerate(docs)]
        nested = {"name": "s", "type": "struct<x: int>"}
        table = Table.create(
            catalog, "db.t", schema={"id": "long"}, properties={"comment": "two\nlines\x00 and \ufffe more"}
        )
        table.alter([*changes, {"add_column": nested}, {"add_column": {"name": "odd\nname", "type": "int"}}])
        found = document(glue)
        assert found["Description"] == "two\nlines and  more"
        described = {each["Name"]: each for each in found["StorageDescriptor"]["Columns"]}
        assert [described[f"c{i}"].get("Comment") for i in range(len(docs))] == list(docs.values())
        assert "odd\nname" not in described
        for each in described.values():
            assert all(line.fullmatch(each.get(key, "")) for key in ("Name", "Type", "Comment"))

    def test_a_column_does_not_get_the_comment_of_one_that_had_its_name(self, catalog, glue):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        table.alter([{"add_column": {"name": "a", "type": "int", "doc": "old"}}])
        table.alter([{"drop_column": "a"}])
        table.alter([{"add_column": {"name": "a", "type": "int"}}])
        (now,) = [each for each in document(glue)["StorageDescriptor"]["Columns"] if each["Name"] == "a"]
        assert (now["Parameters"]["iceberg.field.current"], now.get("Comment")) == ("true", None)

    def test_of_two_columns_of_one_name_the_current_one_keeps_its_comment(self, catalog, glue):
        """As another program may have described them, with the ids of the fields and without."""
        make_table(catalog)
        found = document(glue)
        storage = found["StorageDescriptor"]
        first = storage["Columns"][0]
        old = {**first, "Comment": "historical", "Parameters": {"iceberg.field.current": "false"}}
        for parameters in (first["Parameters"], {}, {"iceberg.field.current": "true"}):
            now = {**first, "Comment": "current", "Parameters": parameters}
            columns = [now, *storage["Columns"][1:], old]
            table_input = {
                "Name": "t",
                "Parameters": found["Parameters"],
                "StorageDescriptor": {**storage, "Columns": columns},
            }
            glue.update_table(DatabaseName="db", TableInput=table_input)
            catalog.commit(catalog.load("db.t"), setting(a=str(len(parameters))))
            found = document(glue)
            assert found["StorageDescriptor"]["Columns"][0]["Comment"] == "current"

    def test_comments_that_are_too_long_for_glue_are_cut(self, catalog, glue):
        Table.create(catalog, "db.t", schema={"id": "long"}).alter(
            [{"add_column": {"name": "more", "type": "string", "doc": "x" * 300}}]
        )
        assert document(glue)["StorageDescriptor"]["Columns"][1]["Comment"] == "x" * 255


class TestVersions:
    """A commit is for one version of the Glue table, whoever made the next one."""

    @pytest.mark.costly
    def test_a_stale_version_is_refused_although_the_pointer_is_the_same(self, catalog, glue):
        state = make_table(catalog)
        loaded = catalog.load("db.t")
        found = document(glue)
        same = {key: found[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
        glue.update_table(DatabaseName="db", TableInput={**same, "Owner": "a crawler"})
        with pytest.raises(CommitConflictError, match="has another version, though it points to the same metadata"):
            catalog.commit(loaded, setting(a="1"))
        assert catalog.load("db.t") == state
        assert catalog.commit(catalog.load("db.t"), setting(a="1")) == catalog.load("db.t")

    def test_the_version_of_the_load_is_sent_and_no_copy_is_asked_for(self, catalog, shaky, proxy, glue):
        make_table(catalog)
        version = document(glue)["VersionId"]
        shaky.commit(shaky.load("db.t"), setting(a="1"))
        sent = json.loads(proxy.requests[-1].body)
        assert sent["VersionId"] == version
        assert sent["SkipArchive"] is True

    def test_copies_are_kept_if_asked_for(self, properties, catalog, proxy):
        keeping = {**properties, "glue.endpoint": proxy.uri, "glue.skip-archive": "false", "glue.id": "123456789012"}
        shaky = load_catalog("prod", **keeping)
        shaky.commit(make_table(catalog), setting(a="1"))
        sent = json.loads(proxy.requests[-1].body)
        assert sent["SkipArchive"] is False
        assert sent["CatalogId"] == "123456789012"


class TestTablesOfOthers:
    """What is no Iceberg table is not listed, not read, not overwritten and not dropped."""

    @pytest.fixture
    def hive_table(self, catalog, glue):
        glue.create_table(DatabaseName="db", TableInput={"Name": "h", "Parameters": {"EXTERNAL": "TRUE"}})

    def test_it_is_hidden(self, catalog, hive_table):
        make_table(catalog)
        assert catalog.list_tables("db") == (TableId.parse("db.t"),)
        assert not catalog.table_exists("db.h")

    def test_it_is_refused_by_name(self, catalog, glue, hive_table):
        for change in (catalog.load, catalog.drop_table, lambda name: catalog.rename_table(name, "db.i")):
            with pytest.raises(NotFoundError, match=r"db\.h in catalog prod is a table of Glue, but none of Iceberg"):
                change("db.h")
        with pytest.raises(AlreadyExistsError):
            make_table(catalog, "db.h")
        assert document(glue, "h")["Parameters"] == {"EXTERNAL": "TRUE"}

    def test_its_namespace_is_not_empty(self, catalog, hive_table):
        with pytest.raises(InvalidInputError, match="holds table h"):
            catalog.drop_namespace("db")

    def test_the_type_is_read_in_any_case(self, catalog, glue):
        state = make_table(catalog)
        parameters = {"table_type": "iceberg", "metadata_location": state.metadata_location}
        glue.create_table(DatabaseName="db", TableInput={"Name": "u", "Parameters": parameters})
        assert catalog.load("db.u").metadata == state.metadata


class TestNames:
    """A name that Glue would store otherwise is refused, before anything is written."""

    @pytest.mark.parametrize("name", ["db.Orders", f"db.{'x' * 256}"])
    def test_of_a_table(self, catalog, properties, name):
        with pytest.raises(InvalidInputError, match="in lower case and has at most 255 characters"):
            catalog.create(name, new_metadata(f"{properties['warehouse']}/t"))
        assert not catalog.table_exists(name)

    @pytest.mark.parametrize("name", ["Sales", "a.b", "x" * 256])
    def test_of_a_namespace(self, catalog, name):
        with pytest.raises(InvalidInputError, match="one level and a name in lower case"):
            catalog.create_namespace(name)

    def test_a_namespace_s_location_is_where_its_tables_lie(self, catalog, glue):
        catalog.create_namespace("other", {"location": "file:///data/other/", "comment": "ours", "owner": "me"})
        assert catalog.default_location("other.t") == "file:///data/other/t"
        found = glue.get_database(Name="other")["Database"]
        assert (found["LocationUri"], found["Description"]) == ("file:///data/other/", "ours")
        catalog.update_namespace_properties("other", {"Description": "theirs"}, ["owner"])
        now = {"location": "file:///data/other/", "Description": "theirs"}
        assert catalog.load_namespace_properties("other") == now

    def test_without_a_warehouse_a_table_needs_a_location(self, properties, catalog):
        homeless = load_catalog("prod", **{**properties, "warehouse": None})
        with pytest.raises(InvalidInputError, match="property 'warehouse' is missing"):
            homeless.default_location("db.t")


class TestLostAnswers(LostAnswersContract):
    """The same of Glue."""

    COMMIT = UPDATE
    CREATE = CREATE
    UNKNOWN = "it may have been done or not"

    @pytest.mark.costly
    @pytest.mark.parametrize("fault", [lose_reply, double])
    def test_one_that_others_built_upon_is_found(self, catalog, shaky, proxy, fault):
        state = make_table(catalog)

        def others_commit(request, forward):
            forward(request)
            for number in range(3):
                catalog.commit(catalog.load("db.t"), setting(other=str(number)))
            return forward(request) if fault is double else None

        proxy.on(*UPDATE, others_commit)
        committed = shaky.commit(state, setting(a="1"))
        assert catalog.io.exists(committed.metadata_location)
        assert catalog.load("db.t").metadata.properties == {"a": "1", "other": "2"}
        with pytest.raises(CommitConflictError):
            shaky.commit(committed, setting(b="1"))

    def test_a_request_that_was_put_off_is_sent_again(self, catalog, shaky, proxy):
        state = make_table(catalog)
        for _ in range(2):
            proxy.on(*UPDATE, lambda request, forward: refusal("ThrottlingException", "Rate exceeded"))
        assert shaky.commit(state, setting(a="1")) == catalog.load("db.t")

    @pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidSignatureException", "ValidationException"])
    def test_a_refusal_is_definite_and_shows_no_secret(self, catalog, shaky, proxy, code, caplog):
        caplog.set_level(logging.DEBUG, logger="airflow_iceberg")
        state = make_table(catalog)
        said = f"no {SECRET} for you\n\nThe Canonical String was 'x-amz-security-token:{SESSION}'"
        proxy.on(*UPDATE, lambda request, forward: refusal(code, said))
        message = rf"cannot commit to db\.t: Glue at .* answered {code}: no \*\*\* for"
        with pytest.raises(StorageError, match=message) as raised:
            shaky.commit(state, setting(a="1"))
        shown = f"{raised.value!r}{raised.value.__cause__!r}{caplog.text}{shaky!r}"
        assert SECRET not in shown
        assert SESSION not in shown
        assert any(SESSION in str(request.headers) for request in proxy.requests)

    @pytest.mark.costly
    def test_so_are_namespaces_and_drops(self, catalog, shaky, proxy):
        make_table(catalog)
        proxy.on("POST", "AWSGlue.DeleteTable", lose_reply)
        shaky.drop_table("db.t")
        proxy.on("POST", "AWSGlue.CreateDatabase", lose_reply)
        shaky.create_namespace("other")
        proxy.on("POST", "AWSGlue.DeleteDatabase", lose_reply)
        shaky.drop_namespace("other")
        assert proxy.is_done
        assert catalog.list_namespaces() == (("db",),)
        assert catalog.list_tables("db") == ()

    @pytest.mark.parametrize("what", ["list_tables", "drop_namespace"])
    def test_a_listing_that_calls_a_database_missing_is_not_of_an_empty_one(self, catalog, shaky, proxy, what):
        """Glue removes a database together with its tables."""
        state = make_table(catalog)
        proxy.on("POST", "AWSGlue.GetTables", lambda request, forward: refusal("EntityNotFoundException", "no db"))
        with pytest.raises(NotFoundError, match="there is no namespace db in catalog prod"):
            getattr(shaky, what)("db")
        assert proxy.is_done
        assert "AWSGlue.DeleteDatabase" not in [request.headers["X-Amz-Target"] for request in proxy.requests]
        assert catalog.load("db.t") == state

    @pytest.mark.services
    def test_a_service_that_is_away_is_named(self, properties):
        away = load_catalog("prod", **{**properties, "glue.endpoint": "http://127.0.0.1:9", "glue.max-retries": "1"})
        for ask in (lambda: away.load("db.t"), lambda: away.create_namespace("a")):
            with pytest.raises(StorageError, match=r"prod cannot reach Glue at http://127\.0\.0\.1:9") as raised:
                ask()
            assert SECRET not in str(raised.value)


class TestARename:
    """Glue cannot rename: the new document comes first, the old one is closed to writers, then removed."""

    @pytest.mark.costly
    def test_a_commit_in_between_is_not_lost(self, catalog, shaky, proxy):
        make_table(catalog)

        def other_commits(request, forward):
            catalog.commit(catalog.load("db.t"), setting(a="1"))
            return forward(request)

        proxy.on(*CREATE, other_commits)
        with pytest.raises(CommitConflictError, match="it has its old name"):
            shaky.rename_table("db.t", "db.u")
        assert catalog.list_tables("db") == (TableId.parse("db.t"),)
        assert catalog.load("db.t").metadata.properties["a"] == "1"

    @pytest.mark.costly
    def test_a_commit_to_the_old_name_afterwards_fails(self, catalog, shaky, proxy):
        state = make_table(catalog)
        fates = []

        def other_commits(request, forward):
            with pytest.raises((CommitConflictError, NotFoundError)) as raised:
                catalog.commit(state, setting(a="1"))
            fates.append(raised.type)
            return forward(request)

        proxy.on("POST", "AWSGlue.DeleteTable", other_commits)
        shaky.rename_table("db.t", "db.u")
        assert len(fates) == 1
        assert catalog.list_tables("db") == (TableId.parse("db.u"),)
        assert catalog.load("db.u").metadata == state.metadata

    @pytest.mark.parametrize("word", ["CreateTable", "UpdateTable", "DeleteTable"])
    @pytest.mark.parametrize("fault", [lose_request, lose_reply])
    def test_the_table_is_never_lost(self, catalog, shaky, proxy, word, fault):
        state = make_table(catalog)
        proxy.on("POST", f"AWSGlue.{word}", fault)
        with suppress(CommitUnknownError):
            shaky.rename_table("db.t", "db.u")
        names = catalog.list_tables("db")
        assert names
        for name in names:
            assert catalog.load(name).metadata == state.metadata


class TestRoundTrips:
    """No call asks more often than it must; docs/glue.md shows the numbers."""

    def asked(self, proxy):
        seen = [request.headers["X-Amz-Target"].partition(".")[2] for request in proxy.requests]
        proxy.requests.clear()
        return seen

    def test_of_a_load_and_a_commit(self, catalog, shaky, proxy):
        make_table(catalog)
        state = shaky.load("db.t")
        assert self.asked(proxy) == ["GetTable"]
        state = shaky.commit(state, setting(a="1"))
        assert self.asked(proxy) == ["UpdateTable"]
        shaky.commit(state, setting(b="1"))
        assert self.asked(proxy) == ["GetTable", "UpdateTable"]  # Glue doesn't tell the version that a commit made

    def test_of_a_conflict(self, catalog, shaky, proxy):
        state = make_table(catalog)
        loaded = shaky.load("db.t")
        catalog.commit(state, setting(a="1"))
        self.asked(proxy)
        with pytest.raises(CommitConflictError):
            shaky.commit(loaded, setting(b="1"))
        assert self.asked(proxy) == ["UpdateTable", "GetTable"]

    def test_of_a_creation_a_rename_and_a_drop(self, catalog, shaky, proxy):
        shaky.create("db.t", new_metadata(catalog.default_location("db.t")))
        assert self.asked(proxy) == ["GetDatabase", "GetTable", "CreateTable"]
        shaky.rename_table("db.t", "db.u")
        assert self.asked(proxy) == ["GetTable", "GetDatabase", "CreateTable", "UpdateTable", "DeleteTable"]
        shaky.drop_table("db.u")
        assert self.asked(proxy) == ["GetTable", "DeleteTable"]


class TestBesidePyIceberg:
    """PyIceberg's catalog on the same Glue."""

    @pytest.fixture
    def theirs(self, properties):
        from pyiceberg.catalog.glue import GlueCatalog

        return GlueCatalog("prod", **{key: value for key, value in properties.items() if key != "type"})

    @pytest.mark.services
    def test_both_commit_to_one_table(self, catalog, theirs):
        Table.create(catalog, "db.t", schema={"id": "long"})
        for number in range(0, 6, 2):
            theirs.load_table("db.t").append(rows(number))
            Table.load(catalog, "db.t").append(rows(number + 1))
        assert ids(catalog) == list(range(6))
        assert sorted(theirs.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == list(range(6))

    @pytest.mark.costly
    def test_each_reads_what_the_other_made(self, catalog, theirs):
        theirs.create_table("db.theirs", schema=rows(1).schema)
        Table.load(catalog, "db.theirs").append(rows(1))
        assert catalog.load("db.theirs").metadata.location == catalog.default_location("db.theirs")
        theirs.rename_table("db.theirs", "db.renamed")
        assert ids(catalog, "db.renamed") == [1]
        catalog.rename_table("db.renamed", "db.again")
        assert theirs.load_table("db.again").scan().to_arrow()["id"].to_pylist() == [1]


class TestProperties:
    """Properties are PyIceberg's, and a wrong one is named before anything is sent."""

    @pytest.mark.parametrize(("given", "message"), [
        ({"glue.max-retries": "many"}, "glue.max-retries is 'many', expected a number"),
        ({"glue.retry-mode": "never"}, "glue.retry-mode is 'never', expected one of standard, adaptive, legacy"),
    ])  # fmt: skip
    def test_a_wrong_one(self, given, message):
        with pytest.raises(InvalidInputError, match=f"catalog prod: property {message}"):
            load_catalog("prod", type="glue", **given)

    def test_the_client_s_own_names_stand_in(self, properties):
        texts = {key.replace("glue.", "client.") if key in KEYS else key: value for key, value in properties.items()}
        assert load_catalog("prod", **texts).list_namespaces() == ()

    def test_a_profile_that_is_not_there_is_named(self, properties):
        with pytest.raises(InvalidInputError, match=r"cannot make a client of Glue: ProfileNotFound: .*nope"):
            load_catalog("prod", **{**properties, "glue.profile-name": "nope"}).list_namespaces()


def refusal(code, message):
    body = json.dumps({"__type": code, "message": message}).encode()
    return Reply(status=400, headers=(("Content-Type", "application/x-amz-json-1.1"),), body=body)
