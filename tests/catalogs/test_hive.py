"""The Hive catalog on a real Hive Metastore 2.3.10, which enforces expected parameters."""

import re
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import hive_metastore.ThriftHiveMetastore
import hive_metastore.ttypes
import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.hive import swap as hive_swap
from airflow_iceberg.catalogs.hive import thrift_interface
from airflow_iceberg.catalogs.hive.client import Connection, HiveClient
from airflow_iceberg.catalogs.hive.locks import LockSettings, TableLock
from airflow_iceberg.catalogs.hive.thrift_interface import (
    EXCLUSIVE,
    TABLE_LEVEL,
    FieldSchema,
    LockComponent,
    LockRequest,
    SerDeInfo,
    ShowLocksRequest,
    StorageDescriptor,
    UnlockRequest,
)
from airflow_iceberg.catalogs.hive.transport import Address, TransportOptions, duration_seconds, parse_addresses
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.metadata.updates import AddSchema, Change, RemoveProperties, SetCurrentSchema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table
from tests.catalogs.contract import (
    commit_in_fork_and_parent,
    commit_in_process,
    make_table,
    new_metadata,
    run_processes,
    setting,
)
from tests.catalogs.hive_contract import NO_LOCKS, CountedCalls, HiveContract, empty_metastore
from tests.services.hive_metastore import metastore_2_3
from tests.services.launch import free_ports
from tests.support.postgresql import CuttingProxy

ALTER = b"alter_table_with_environment_context"


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    metastore = metastore_2_3(tmp_path_factory.mktemp("hive"))
    yield metastore
    metastore.stop()


@pytest.fixture
def hive_catalog(metastore, tmp_path):
    """A catalog on an empty metastore with a namespace; properties may be added."""

    def make(**more):
        return load_catalog("prod", uri=metastore.uri, warehouse=f"file:{tmp_path}/warehouse", **more)

    empty_metastore(metastore.uri)
    make().create_namespace("db")
    return make


@pytest.fixture(params=["true", "false"], ids=["locks", "no-locks"])
def catalog(request, hive_catalog):
    return hive_catalog(**{"engine.hive.lock-enabled": request.param})


@pytest.fixture
def locking(hive_catalog):
    """A catalog that commits under locks, as it does unless told otherwise."""
    return hive_catalog()


@pytest.fixture
def client(metastore):
    return HiveClient("test", {"uri": metastore.uri})


@pytest.mark.services
@pytest.mark.sample(2)
class TestUnderLocks(HiveContract):
    """A catalog that commits under the metastore's locks, which is the default, is a catalog."""

    commits_per_process = 4

    @pytest.fixture
    def properties(self, metastore, tmp_path):
        empty_metastore(metastore.uri)
        return {"uri": metastore.uri, "warehouse": f"file:{tmp_path}/warehouse"}


@pytest.mark.services
class TestWithoutLocks:
    """So is one that lets the metastore compare; the whole contract is in `test_hive_services`."""

    @pytest.fixture
    def catalog(self, hive_catalog):
        return hive_catalog(**NO_LOCKS)

    def test_writers_at_once_lose_nothing(self, catalog):
        make_table(catalog)
        run_processes(commit_in_process, [(dict(catalog.properties), "db.t", 8, tag) for tag in "abc"])
        assert len(catalog.load("db.t").metadata.properties) == 24

    @pytest.mark.parametrize(
        ("step", "change", "message"),
        [
            (
                "_require",
                lambda catalog, state: catalog.commit(state, setting(a="1")),
                r"table db\.t in catalog prod was",
            ),
            ("_before", lambda catalog, _: catalog.rename_table("db.t", "db.u"), r"cannot rename db\.t: it was"),
        ],
        ids=["commit", "rename"],
    )
    def test_the_metastore_compares_where_our_own_comparison_came_too_early(
        self, catalog, monkeypatch, step, change, message
    ):
        state = make_table(catalog)
        inner = getattr(hive_swap.Swapper, step)
        other = load_catalog("prod", **catalog.properties)

        def somebody_is_faster(swapper, *arguments):
            inner(swapper, *arguments)
            if swapper is catalog._swapper:
                other.commit(state, setting(b="1"))

        monkeypatch.setattr(hive_swap.Swapper, step, somebody_is_faster)
        with pytest.raises(CommitConflictError, match=f"{message} changed by another writer"):
            change(catalog, state)
        assert catalog.load("db.t").metadata.properties == {"b": "1"}


class TestTheInterface:
    """Numbers and types of fields are Hive's: the same as in another client's definition."""

    def test_none_of_its_calls_is_lost_in_the_notation(self):
        written = [line.split("(")[0].split()[-1] for line in thrift_interface._IDL.strip().splitlines()]
        assert list(thrift_interface.CALLS) == written
        assert len(written) == 22

    STRUCTS = tuple(
        value
        for value in vars(thrift_interface).values()
        if isinstance(value, type)
        and issubclass(value, thrift_interface.Struct)
        and value.__module__ == thrift_interface.__name__
    )

    @pytest.mark.parametrize("ours", STRUCTS, ids=lambda ours: ours.__name__)
    def test_of_structs(self, ours):
        if ours in (thrift_interface.Struct, thrift_interface.HiveError):
            return
        theirs = getattr(
            hive_metastore.ttypes, {"ShowLocksElement": "ShowLocksResponseElement"}.get(ours.__name__, ours.__name__)
        )
        for field in filter(None, ours.thrift_spec):
            assert shape(field) == shape(theirs.thrift_spec[field[0]]), (ours, field)

    @pytest.mark.parametrize("name", thrift_interface.CALLS)
    def test_of_calls(self, name):
        call = thrift_interface.CALLS[name]
        arguments = getattr(hive_metastore.ThriftHiveMetastore, f"{name}_args").thrift_spec
        assert [shape(field) for field in call.arguments.thrift_spec[1:]] == [shape(field) for field in arguments[1:]]
        result = getattr(hive_metastore.ThriftHiveMetastore, f"{name}_result").thrift_spec
        for theirs in filter(None, result):
            ours = call.result.thrift_spec[theirs[0]]
            assert kind(ours) == kind(theirs)


def shape(field):
    """Number, name and type of a field, with the names of structs."""
    return field[0], field[2], kind(field)


def kind(field):
    text = re.sub(r"<class '[\w.]*\.(\w+)'>", r"\1", repr((field[1], field[3])))
    return re.sub(r"ShowLocks(Response)?Element", "ShowLocksElement", re.sub(r"\[(\w+), .*\]", r"\1", text))


class TestAddresses:
    """Several metastores are written one after the other; the first that answers is taken."""

    def test_each_has_host_and_port(self):
        found = parse_addresses("prod", " thrift://a:1 ,thrift://b,c:2,thrift://[::1]:9")
        assert found[:2] == (Address(host="a", port=1), Address(host="b", port=9083))
        assert [str(address) for address in found] == ["a:1", "b:9083", "c:2", "[::1]:9"]

    @pytest.mark.parametrize(
        "uri", ["http://a:1", "thrift://", "thrift://a:x", "thrift://a:1/db", "thrift://a:99999", "thrift://a:0"]
    )
    def test_what_is_none_is_refused(self, uri):
        with pytest.raises(InvalidInputError, match="catalog prod: a metastore in property 'uri' is not written as"):
            parse_addresses("prod", uri)

    def test_without_any_the_property_is_named(self):
        with pytest.raises(InvalidInputError, match="catalog prod: property 'uri' is missing"):
            load_catalog("prod", type="hive")

    @pytest.mark.services
    def test_a_metastore_that_is_away_is_passed_over(self, metastore):
        (closed,) = free_ports(1)
        catalog = load_catalog("prod", uri=f"thrift://127.0.0.1:{closed},{metastore.uri}")
        assert ("default",) in catalog.list_namespaces()

    def test_when_all_are_away_each_is_named(self):
        first, second = free_ports(2)
        catalog = load_catalog("prod", uri=f"thrift://127.0.0.1:{first},thrift://127.0.0.1:{second}")
        message = (
            f"catalog prod has no metastore: cannot connect to 127.0.0.1:{first}: Connection refused; "
            f"cannot connect to 127.0.0.1:{second}: Connection refused"
        )
        with pytest.raises(StorageError) as raised:
            catalog.list_namespaces()
        assert str(raised.value) == message

    def test_a_uri_of_thrift_tells_the_type(self):
        assert repr(load_catalog("prod", uri="thrift://a:1")) == "HiveCatalog(name='prod', metastore='thrift://a:1')"


class TestOptions:
    """Options have the names that Hive, Iceberg and PyIceberg give them."""

    @pytest.mark.parametrize(
        ("text", "seconds"), [("600s", 600), ("10min", 600), ("500ms", 0.5), ("7", 7), ("1h", 3600)]
    )
    def test_durations_are_written_as_in_hive(self, text, seconds):
        assert duration_seconds("prod", text) == seconds

    @pytest.mark.parametrize("text", ["", "0", "-1s", "soon", "1 fortnight"])
    def test_others_are_refused(self, text):
        with pytest.raises(InvalidInputError, match="is not a duration"):
            duration_seconds("prod", text)

    def test_locks_wait_as_iceberg_java_or_pyiceberg_says(self):
        java = {
            "iceberg.hive.lock-timeout-ms": "1000",
            "iceberg.hive.lock-check-min-wait-ms": "10",
            "iceberg.hive.lock-check-max-wait-ms": "20",
            "iceberg.hive.lock-heartbeat-interval-ms": "30",
        }
        assert LockSettings.of("prod", java) == LockSettings(timeout=1, min_wait=0.01, max_wait=0.02, heartbeat=0.03)
        pyiceberg = {"lock-check-min-wait-time": "0.5", "lock-check-max-wait-time": "2"}
        assert LockSettings.of("prod", pyiceberg) == LockSettings(min_wait=0.5, max_wait=2)

    @pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf"])
    def test_waits_that_are_none_are_refused(self, text):
        with pytest.raises(
            InvalidInputError, match=r"iceberg\.hive\.lock-timeout-ms is '.*', expected a number above 0"
        ):
            LockSettings.of("prod", {"iceberg.hive.lock-timeout-ms": text})

    def test_authentication_without_its_package_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(InvalidInputError, match=re.escape("install airflow-iceberg[hive-kerberos]")):
            TransportOptions.of("prod", {"hive.kerberos-authentication": "true"})

    def test_a_password_is_not_shown(self):
        given = {"hive.metastore.client.auth.mode": "PLAIN", "user": "me", "password": "s3cret"}
        options = TransportOptions.of("prod", given)
        assert (options.user, options.password) == ("me", "s3cret")
        assert "s3cret" not in repr(options)

    def test_certificates_have_to_be_pem_files(self, tmp_path):
        (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed")
        given = {"hive.metastore.use.SSL": "true", "hive.metastore.truststore.path": str(tmp_path / "trust.jks")}
        with pytest.raises(InvalidInputError, match=r"trust\.jks cannot be read, expected PEM files"):
            TransportOptions.of("prod", given)


@pytest.mark.services
class TestWhatTheMetastoreShows:
    """Hive and other engines see of a table what Iceberg Java shows them."""

    def test_a_new_table_is_an_external_table(self, catalog, client):
        state = make_table(catalog, color="green")
        found = client.table("db", "t")
        assert found.tableType == "EXTERNAL_TABLE"
        assert found.sd.location == state.metadata.location
        assert found.partitionKeys == []
        shown = {
            "EXTERNAL": "TRUE",
            "table_type": "ICEBERG",
            "metadata_location": state.metadata_location,
            "uuid": state.metadata.table_uuid,
            "snapshot-count": "0",
            "color": "green",
        }
        assert {key: found.parameters[key] for key in shown} == shown
        assert "previous_metadata_location" not in found.parameters
        assert "storage_handler" not in found.parameters
        assert found.sd.inputFormat == "org.apache.hadoop.mapred.FileInputFormat"
        assert found.sd.serdeInfo.serializationLib == "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"

    def test_a_commit_shows_the_location_before(self, catalog, client):
        state = make_table(catalog)
        catalog.commit(state, setting(a="1"))
        assert client.table("db", "t").parameters["previous_metadata_location"] == state.metadata_location

    def test_a_table_for_hive_names_its_classes(self, catalog, client):
        state = make_table(catalog, **{"engine.hive.enabled": "true"})
        found = client.table("db", "t")
        assert found.parameters["storage_handler"] == "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
        assert found.sd.inputFormat == "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
        assert found.sd.outputFormat == "org.apache.iceberg.mr.hive.HiveIcebergOutputFormat"
        assert found.sd.serdeInfo.serializationLib == "org.apache.iceberg.mr.hive.HiveIcebergSerDe"
        catalog.commit(state, setting(**{"engine.hive.enabled": "false"}))
        assert "storage_handler" not in client.table("db", "t").parameters

    def test_properties_come_and_go_and_those_of_others_stay(self, catalog, client):
        state = make_table(catalog, old="1", both="1")
        found = client.table("db", "t")
        found.parameters["of-others"] = "x"
        found.owner = "somebody"
        client.call(ALTER.decode(), dbname="db", tbl_name="t", new_tbl=found, environment_context=None)
        change = Change(
            updates=(*setting(both="2", new="3").updates, RemoveProperties(removals=("old",))), requirements=()
        )
        catalog.commit(state, change)
        found = client.table("db", "t")
        wanted = {"both": "2", "new": "3", "of-others": "x"}
        assert {key: found.parameters.get(key) for key in (*wanted, "old")} == {**wanted, "old": None}
        assert found.owner == "somebody"

    def test_a_property_cannot_take_the_place_of_the_pointer(self, catalog, client):
        state = make_table(catalog, metadata_location="file:/elsewhere", table_type="HIVE", EXTERNAL="FALSE")
        assert catalog.load("db.t") == state
        state = catalog.commit(state, setting(previous_metadata_location="x", uuid="y"))
        assert catalog.load("db.t") == state
        assert client.table("db", "t").parameters["uuid"] == state.metadata.table_uuid

    def test_collection_of_files_is_called_purge_by_hive(self, catalog, client):
        make_table(catalog, **{"gc.enabled": "false"})
        assert client.table("db", "t").parameters["external.table.purge"] == "false"

    def test_values_that_are_too_long_are_left_out_and_come_back_when_they_fit(self, catalog, client):
        state = make_table(catalog, text="x" * 32_672)
        assert len(client.table("db", "t").parameters["text"]) == 32_672
        state = catalog.commit(state, setting(text="x" * 32_673))
        assert "text" not in client.table("db", "t").parameters
        assert len(catalog.load("db.t").metadata.properties["text"]) == 32_673
        catalog.commit(state, setting(text="short"))
        assert client.table("db", "t").parameters["text"] == "short"

    def test_columns_follow_the_schema(self, catalog, client):
        state = make_table(catalog)
        state = with_columns(catalog, state, {"id": "long not null", "name": "string", "more": "map<string, int>"})
        assert shown_columns(client) == [("id", "bigint"), ("name", "string"), ("more", "map<string,int>")]
        assert catalog.load("db.t") == state

    def test_columns_that_the_metastore_refuses_do_not_stop_a_commit(self, catalog, client, caplog):
        state = make_table(catalog)
        state = with_columns(catalog, state, {"id": "long not null", "more": "long", "name": "string"})
        # Hive goes by the place of a column: to it, a string became a number
        assert catalog.load("db.t") == state
        assert shown_columns(client) == [("id", "bigint"), ("name", "string")]
        assert "keeps its old columns in the metastore" in caplog.text

    def test_every_type_has_a_word_that_the_server_takes(self, catalog, client):
        columns = {
            **{name: name for name in ("boolean", "int", "long", "float", "double", "date", "time", "timestamp")},
            **{name: name for name in ("timestamptz", "string", "uuid", "binary")},
            **{"f": "fixed[3]", "d": "decimal(9, 2)", "l": "list<struct<x: long, y: list<double>>>"},
            **{"ns": "timestamp_ns", "nstz": "timestamptz_ns", "v": "variant", "u": "unknown"},
        }
        location = catalog.default_location("db.t")
        metadata = new_table_metadata(
            location=location,
            schema=schema_from_shorthand(columns),
            table_uuid=str(uuid.uuid4()),
            now_ms=1,
            format_version=3,
        )
        state = catalog.create("db.t", metadata)
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")
        shown = dict(shown_columns(client))
        assert shown["timestamptz"] == shown["nstz"] == "timestamp"  # Hive 2 knows no zones
        assert shown["l"] == "array<struct<x:bigint,y:array<double>>>"
        assert (shown["d"], shown["f"], shown["uuid"], shown["time"]) == ("decimal(9,2)", "binary", "string", "string")

    def test_comments_are_cut_to_what_fits(self, catalog, client):
        metadata = new_metadata(catalog.default_location("db.t"))
        fields = tuple(replace(field, doc="ä" * 300) for field in metadata.schema().fields)
        schema = replace(metadata.schema(), fields=fields)
        catalog.create("db.t", replace(metadata, schemas=(schema,)))
        assert {column.comment for column in client.table("db", "t").sd.cols} == {"ä" * 256}


def shown_columns(client):
    return [(column.name, column.type) for column in client.table("db", "t").sd.cols]


def with_columns(catalog, state, columns):
    schema = replace(schema_from_shorthand(columns), schema_id=1)
    change = Change(updates=(AddSchema(schema=schema), SetCurrentSchema(schema_id=-1)), requirements=())
    return catalog.commit(state, change)


@pytest.mark.services
class TestTablesOfOthers:
    """Tables that aren't Iceberg tables are neither shown nor touched."""

    @pytest.fixture
    def plain(self, catalog, client):
        storage = StorageDescriptor(
            cols=[FieldSchema(name="x", type="int")], location=f"{catalog.properties['warehouse']}/plain", numBuckets=0
        )
        storage.serdeInfo = SerDeInfo(parameters={})
        table = thrift_interface.Table(
            dbName="db", tableName="plain", sd=storage, parameters={"EXTERNAL": "TRUE"}, partitionKeys=[]
        )
        table.tableType = "EXTERNAL_TABLE"
        client.call("create_table", tbl=table)

    def test_they_are_not_listed(self, catalog, plain):
        make_table(catalog)
        assert catalog.list_tables("db") == (TableId(namespace=("db",), name="t"),)
        assert not catalog.table_exists("db.plain")

    @pytest.mark.parametrize("operation", ["load", "drop_table"])
    def test_they_are_refused(self, catalog, client, plain, operation):
        with pytest.raises(
            NotFoundError, match=r"db\.plain in catalog prod is no Iceberg table \(it is EXTERNAL_TABLE\)"
        ):
            getattr(catalog, operation)("db.plain")
        assert client.table("db", "plain").tableName == "plain"

    def test_their_names_are_taken(self, catalog, plain):
        make_table(catalog)
        with pytest.raises(AlreadyExistsError, match=r"table db\.plain exists already"):
            make_table(catalog, "db.plain")
        with pytest.raises(AlreadyExistsError, match=r"cannot rename db\.t: db\.plain exists already"):
            catalog.rename_table("db.t", "db.plain")


@pytest.mark.services
class TestRoundTrips:
    """A commit asks the metastore what its protocol needs, and no more."""

    @pytest.fixture
    def calls(self, monkeypatch):
        return CountedCalls(monkeypatch)

    def test_a_commit_under_a_lock_is_six(self, locking, calls):
        state = make_table(locking)
        swap = ALTER.decode()
        assert calls.of(lambda: locking.commit(state, setting(a="1"))) == [
            "lock", "get_table_req", "heartbeat", swap, "heartbeat", "unlock",
        ]  # fmt: skip

    def test_a_commit_without_locks_is_two_and_one_more_on_a_new_connection(self, hive_catalog, calls):
        catalog = hive_catalog(**NO_LOCKS)
        state = make_table(catalog)
        swap = ALTER.decode()
        assert calls.of(lambda: catalog.commit(state, setting(a="1"))) == ["get_table_req", swap, swap]
        state = catalog.load("db.t")
        assert calls.of(lambda: catalog.commit(state, setting(a="2"))) == ["get_table_req", swap]

    def test_a_lost_race_ends_at_the_comparison_and_a_look_for_an_echo(self, locking, calls):
        old = make_table(locking)
        locking.commit(old, setting(a="1"))

        def lose():
            with pytest.raises(CommitConflictError):
                locking.commit(old, setting(a="2"))

        assert calls.of(lose) == ["lock", "get_table_req", "unlock", "get_table_req"]

    def test_a_load_is_one(self, catalog, calls):
        make_table(catalog)
        assert calls.of(lambda: catalog.load("db.t")) == ["get_table_req"]
        assert calls.of(lambda: catalog.table_exists("db.t")) == ["get_table_req"]

    def test_a_list_is_three_however_many_tables_there_are(self, catalog, calls):
        for name in ("db.a", "db.b", "db.c"):
            make_table(catalog, name)
        assert calls.of(lambda: catalog.list_tables("db")) == [
            "get_database", "get_all_tables", "get_table_objects_by_name_req",
        ]  # fmt: skip

    def test_a_creation_is_three(self, catalog, calls):
        metadata = new_metadata(catalog.default_location("db.t"))
        assert calls.of(lambda: catalog.create("db.t", metadata)) == ["get_database", "get_table_req", "create_table"]


@pytest.mark.services
class TestTheTableSaysHowItIsCommitted:
    """All writers of a table use one way: the table's word counts, then the catalog's."""

    @pytest.mark.parametrize(
        ("of_table", "of_catalog", "locks"),
        [
            (None, None, True),
            (None, "false", False),
            ("true", "false", True),
            ("false", None, False),
            ("false", "true", False),
        ],
    )
    def test_by_a_property(self, hive_catalog, monkeypatch, of_table, of_catalog, locks):
        catalog = hive_catalog(**({"iceberg.engine.hive.lock-enabled": of_catalog} if of_catalog else {}))
        state = make_table(catalog, **({"engine.hive.lock-enabled": of_table} if of_table else {}))
        calls = CountedCalls(monkeypatch)
        catalog.commit(state, setting(a="1"))
        assert ("lock" in calls.names) is locks

    def test_a_commit_that_changes_the_way_goes_the_old_one(self, locking, monkeypatch):
        state = make_table(locking)
        calls = CountedCalls(monkeypatch)
        state = locking.commit(state, setting(**NO_LOCKS))
        assert "lock" in calls.names
        assert "lock" not in calls.of(lambda: locking.commit(state, setting(a="1")))


def locks_of(client, table="t"):
    return client.call("show_locks", rqst=ShowLocksRequest(dbname="db", tablename=table)).locks or []


def held(client, table="t"):
    return [lock.lockid for lock in locks_of(client, table)]


def unlock(client):
    """Let the metastore give up all locks of the table."""
    for lock in held(client):
        client.call("unlock", rqst=UnlockRequest(lockid=lock))


@pytest.mark.services
class TestLocks:
    """Only one client at a time holds the lock of a table; it is always given back."""

    FAST = LockSettings(timeout=0.4, min_wait=0.02, max_wait=0.1)

    def lock(self, client, **more):
        given = {"settings": self.FAST, "table": "db.t", "database": "db", "name": "t"} | more
        settings = given.pop("settings")
        return TableLock(client, settings, **given)

    @pytest.fixture
    def stranger(self, client):
        """A client that has locked the table and says nothing more."""
        component = LockComponent(type=EXCLUSIVE, level=TABLE_LEVEL, dbname="db", tablename="t")
        request = LockRequest(component=[component], user="jane", hostname="node7", agentInfo="spark")
        answer = client.call("lock", rqst=request)
        yield answer.lockid
        client.call("unlock", rqst=UnlockRequest(lockid=answer.lockid))

    def test_a_commit_leaves_none_behind(self, catalog, client):
        state = make_table(catalog)
        catalog.commit(state, setting(a="1"))
        with pytest.raises(CommitConflictError):
            catalog.commit(state, setting(a="2"))
        assert held(client) == []

    def test_a_table_that_is_held_is_waited_for_and_the_holder_is_named(self, hive_catalog, client, stranger):
        catalog = hive_catalog(**{"iceberg.hive.lock-timeout-ms": "300"})
        state = make_table(catalog)
        holder = (
            rf"cannot lock table db\.t within 0\.3 s: lock {stranger} is held by jane@node7, spark since 20.*; if its"
        )
        with pytest.raises(CommitConflictError, match=holder):
            catalog.commit(state, setting(a="1"))
        assert catalog.load("db.t") == state
        assert held(client) == [stranger]

    def test_a_commit_goes_on_when_the_holder_is_done(self, locking, client):
        state = make_table(locking)
        with self.lock(client):
            done = []
            thread = threading.Thread(target=lambda: done.append(other_process_commit(locking, state)))
            thread.start()
            wait_until(lambda: len(held(client)) == 2)
            assert done == []
        thread.join(30)
        assert done[0].metadata.properties["a"] == "1"

    def test_who_waits_for_a_table_that_was_changed_gives_up_the_place_in_line(self, locking, client):
        """The wait could only end in a lost race, and each such turn holds up those behind."""
        state = make_table(locking)
        with self.lock(client) as lock, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other_process_commit, locking, state)
            wait_until(lambda: len(held(client)) == 2)
            unguarded = load_catalog("prod", **{**locking.properties, **NO_LOCKS})
            newer = unguarded.commit(state, setting(b="1"))
            with pytest.raises(CommitConflictError, match=r"db\.t in catalog prod was changed by another writer"):
                waiting.result(30)
            assert held(client) == [lock._id]
        assert locking.load("db.t") == newer

    def test_a_lock_that_the_metastore_gave_up_stops_the_commit(self, locking, client, monkeypatch):
        state = make_table(locking)
        inner = hive_swap.Swapper._require

        def lose_the_lock(*arguments):
            inner(*arguments)
            unlock(client)

        monkeypatch.setattr(hive_swap.Swapper, "_require", lose_the_lock)
        with pytest.raises(CommitConflictError, match=r"the lock on table db\.t is no longer held"):
            locking.commit(state, setting(a="1"))
        assert locking.load("db.t") == state

    def test_a_lock_that_was_lost_behind_the_swap_makes_the_outcome_unknown(self, locking, client, monkeypatch):
        state = make_table(locking)
        inner = hive_swap.call_alter

        def lose_the_lock(*arguments, **more):
            inner(*arguments, **more)
            unlock(client)

        monkeypatch.setattr(hive_swap, "call_alter", lose_the_lock)
        with pytest.raises(CommitUnknownError, match="another writer may have committed in between") as raised:
            locking.commit(state, setting(a="1"))
        assert locking.load("db.t").metadata_location == raised.value.metadata_location

    def test_a_heartbeat_goes_on_while_the_lock_is_held(self, client):
        with self.lock(client, settings=LockSettings(heartbeat=0.05)):
            (first,) = locks_of(client)
            wait_until(lambda: locks_of(client)[0].lastheartbeat > first.lastheartbeat)

    def test_a_heartbeat_that_finds_no_lock_is_remembered(self, client):
        with self.lock(client, settings=LockSettings(heartbeat=0.05)) as lock:
            unlock(client)
            wait_until(lambda: lock._lost is not None)
            with pytest.raises(CommitConflictError, match="is no longer held"):
                lock.check()

    def test_threads_of_a_process_queue_before_the_metastore_is_asked(self, client):
        with self.lock(client), pytest.raises(CommitConflictError, match=r"another thread of this process for 0\.4 s"):
            self.lock(client).__enter__()

    @pytest.mark.parametrize("forward", [True, False])
    def test_a_lock_whose_answer_was_lost_is_found_again_or_was_never_made(self, metastore, client, forward):
        proxy = CuttingProxy(metastore.port)
        through = HiveClient("test", {"uri": f"thrift://127.0.0.1:{proxy.port}"})
        proxy.word, proxy.forward = b"\x00\x00\x00\x04lock", forward
        lock = self.lock(through)
        if forward:
            with lock:
                assert held(client) == [lock._id]
        else:
            with pytest.raises(StorageError, match=r"cannot lock table db\.t: lost the metastore"):
                lock.__enter__()
        assert held(client) == []
        proxy.close()


@pytest.mark.services
class TestTurns:
    """Who gets the lock with an old base keeps it for the next attempt; lined up again he would be late again."""

    TABLE = TableId.parse("db.t")

    @pytest.fixture
    def catalog(self, hive_catalog):
        return hive_catalog()

    @pytest.fixture
    def stale(self, catalog):
        """A state of the table that another writer has replaced."""
        state = make_table(catalog)
        catalog.commit(state, setting(b="1"))
        return state

    def test_an_append_on_an_old_base_locks_once(self, catalog, monkeypatch):
        mine = Table.create(catalog, "db.t", schema={"id": "long"})
        Table.load(catalog, "db.t").append(pa.table({"id": [1]}))
        calls = CountedCalls(monkeypatch)
        mine.append(pa.table({"id": [2]}))
        read = "get_table_req"
        swap = ["heartbeat", "alter_table_with_environment_context", "heartbeat", "unlock"]
        assert calls.names == ["lock", read, read, read, *swap]
        assert sorted(mine.scan().to_arrow()["id"].to_pylist()) == [1, 2]

    def test_an_append_that_waited_locks_once(self, catalog, client, monkeypatch):
        mine = Table.create(catalog, "db.t", schema={"id": "long"})
        unguarded = load_catalog("prod", **{**catalog.properties, **NO_LOCKS})
        uri = catalog.properties["uri"].replace("127.0.0.1", "localhost")  # not in the queue of this process's threads
        holder = TableLock(HiveClient("test", {"uri": uri}), LockSettings(), table="db.t", database="db", name="t")
        with ThreadPoolExecutor(1) as pool:
            with holder:
                calls = CountedCalls(monkeypatch)
                waiting = pool.submit(mine.append, pa.table({"id": [2]}))
                wait_until(lambda: calls.names.count("check_lock") >= 2)
                unguarded.commit(unguarded.load("db.t"), setting(b="1"))
                assert not waiting.done()
            waiting.result(30)
        assert calls.names.count("lock") == 1
        assert Table.load(catalog, "db.t").metadata.properties["b"] == "1"
        assert held(client) == []

    def test_the_lock_is_kept_between_attempts_and_given_back_at_their_end(self, catalog, client, stale):
        with catalog.attempts(self.TABLE):
            with pytest.raises(CommitConflictError) as raised:
                catalog.commit(stale, setting(a="1"))
            assert raised.value.is_our_turn
            assert len(held(client)) == 1
        assert held(client) == []

    def test_a_commit_outside_of_attempts_keeps_none(self, catalog, client, stale):
        with pytest.raises(CommitConflictError) as raised:
            catalog.commit(stale, setting(a="1"))
        assert not raised.value.is_our_turn
        assert held(client) == []

    def test_a_commit_to_another_table_does_not_use_it(self, catalog, client, stale):
        other = make_table(catalog, "db.u")
        with catalog.attempts(self.TABLE):
            with pytest.raises(CommitConflictError):
                catalog.commit(stale, setting(a="1"))
            (kept,) = held(client)
            assert catalog.commit(other, setting(a="1")) == catalog.load("db.u")
            assert held(client) == [kept]
            assert held(client, "u") == []
            catalog.commit(catalog.load("db.t"), setting(a="1"))
            assert held(client) == []

    def test_other_threads_do_not_use_it(self, catalog, client, stale):
        with catalog.attempts(self.TABLE), ThreadPoolExecutor(1) as pool:
            with pytest.raises(CommitConflictError):
                catalog.commit(stale, setting(a="1"))
            theirs = pool.submit(other_process_commit, catalog, catalog.load("db.t"))
            wait_until(lambda: len(held(client)) == 2)
            newest = catalog.commit(catalog.load("db.t"), setting(c="1"))
            with pytest.raises(CommitConflictError):
                theirs.result(30)
        assert catalog.load("db.t") == newest

    def test_one_that_the_metastore_gave_up_meanwhile_is_not_relied_on(self, catalog, client, stale):
        with catalog.attempts(self.TABLE):
            with pytest.raises(CommitConflictError):
                catalog.commit(stale, setting(a="1"))
            unlock(client)
            now = catalog.load("db.t")
            with pytest.raises(CommitConflictError, match=r"the lock on table db\.t is no longer held"):
                catalog.commit(now, setting(a="1"))
            assert catalog.load("db.t") == now
            assert catalog.commit(now, setting(a="1")) == catalog.load("db.t")
        assert held(client) == []


def other_process_commit(catalog, state):
    """Commit as another process would: not in the queue of this one's threads."""
    uri = catalog.properties["uri"].replace("127.0.0.1", "localhost")
    other = load_catalog("prod", **{**catalog.properties, "uri": uri})
    return other.commit(state, setting(a="1"))


def wait_until(is_so):
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.mark.services
class TestLostReplies:
    """A reply that is lost is no failure: the table says what came of it, and nothing is deleted while it can't."""

    @pytest.fixture
    def proxy(self, metastore):
        proxy = CuttingProxy(metastore.port)
        yield proxy
        proxy.close()

    @pytest.fixture
    def shaky(self, catalog, proxy):
        uri = f"thrift://127.0.0.1:{proxy.port}"
        return load_catalog("prod", **{**catalog.properties, "uri": uri})

    def test_a_commit_that_landed_is_found(self, catalog, shaky, proxy):
        state = shaky.commit(make_table(catalog), setting(a="1"))  # the server is known to compare
        proxy.word = ALTER
        state = shaky.commit(state, setting(a="2"))
        assert proxy.word is None
        assert catalog.load("db.t") == state

    def test_a_commit_that_did_not_arrive_is_unknown(self, catalog, shaky, proxy, client):
        state = shaky.commit(make_table(catalog), setting(a="1"))
        proxy.word, proxy.forward = ALTER, False
        with pytest.raises(
            CommitUnknownError, match=r"cannot tell whether the commit to db\.t landed: lost the"
        ) as raised:
            shaky.commit(state, setting(a="2"))
        assert catalog.io.exists(raised.value.metadata_location)
        assert catalog.load("db.t") == state
        assert shaky.commit(state, setting(a="3")) == catalog.load("db.t")
        assert held(client) == []

    def test_a_commit_that_others_built_on_is_found(self, catalog, shaky, proxy, monkeypatch):
        state = shaky.commit(make_table(catalog), setting(a="1"))
        inner = hive_swap.Swapper._looks
        load = catalog.load

        def build_on_it(swapper):
            if catalog._swapper is not swapper:
                with_lock_off = {**catalog.properties}
                other = load_catalog("prod", **{**with_lock_off, "engine.hive.lock-enabled": "false"})
                other.commit(load("db.t"), setting(b="1"))
            return inner(swapper)

        monkeypatch.setattr(hive_swap.Swapper, "_looks", build_on_it)
        proxy.word = ALTER
        committed = shaky.commit(state, setting(a="2"))
        now = catalog.load("db.t")
        assert now.metadata.properties == {"a": "2", "b": "1"}
        assert committed.metadata_location in [location for _, location in now.metadata.metadata_log]

    @pytest.mark.parametrize("forward", [True, False])
    def test_so_is_a_creation(self, catalog, shaky, proxy, forward):
        proxy.word, proxy.forward = b"create_table", forward
        if forward:
            assert make_table(shaky) == catalog.load("db.t")
        else:
            with pytest.raises(CommitUnknownError, match=r"cannot tell whether table db\.t was created"):
                make_table(shaky)
            assert not catalog.table_exists("db.t")

    @pytest.mark.parametrize("forward", [True, False])
    def test_so_is_a_rename(self, catalog, shaky, proxy, forward):
        state = shaky.commit(make_table(catalog), setting(a="1"))
        proxy.word, proxy.forward = ALTER, forward
        if forward:
            shaky.rename_table("db.t", "db.u")
            assert catalog.load("db.u").metadata == state.metadata
        else:
            with pytest.raises(CommitUnknownError, match=r"cannot tell whether db\.t was renamed to db\.u"):
                shaky.rename_table("db.t", "db.u")
            assert catalog.load("db.t") == state

    @pytest.mark.parametrize("forward", [True, False])
    def test_so_is_a_removal(self, catalog, shaky, proxy, forward):
        make_table(catalog)
        proxy.word, proxy.forward = b"drop_table", forward
        if forward:
            shaky.drop_table("db.t")
        else:
            with pytest.raises(CommitUnknownError, match="lost the metastore"):
                shaky.drop_table("db.t")
        assert catalog.table_exists("db.t") is not forward

    @pytest.mark.parametrize("forward", [True, False])
    def test_an_append_lands_once_whatever_was_lost(self, catalog, shaky, proxy, forward):
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        through = Table.load(shaky, "db.t")
        through.append(pa.table({"id": [1]}))
        proxy.word, proxy.forward = ALTER, forward
        through.append(pa.table({"id": [2]}))
        assert proxy.word is None
        table = Table.load(catalog, "db.t")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
        assert len(table.snapshots()) == 2

    def test_a_read_is_asked_again(self, catalog, shaky, proxy):
        state = make_table(catalog)
        shaky.load("db.t")
        proxy.word = b"get_table_req"
        assert shaky.load("db.t") == state

    def test_a_probe_that_was_cut_is_a_definite_failure(self, hive_catalog, proxy):
        catalog = hive_catalog(**NO_LOCKS)
        shaky = load_catalog("prod", **{**catalog.properties, "uri": f"thrift://127.0.0.1:{proxy.port}"})
        state = make_table(catalog)
        proxy.word = ALTER
        with pytest.raises(StorageError, match="lost the metastore"):
            shaky.commit(state, setting(a="1"))
        assert catalog.load("db.t") == state


@pytest.mark.services
class TestConnections:
    """Connections are kept, and shared by threads but not by processes."""

    def test_one_thread_uses_one(self, metastore, catalog):
        make_table(catalog)
        catalog.load("db.t")
        assert len(catalog._client._idle) == 1

    def test_one_that_the_server_closed_is_replaced(self, metastore, tmp_path, hive_catalog):
        proxy = CuttingProxy(metastore.port)
        catalog = hive_catalog()
        through = load_catalog("prod", **{**catalog.properties, "uri": f"thrift://127.0.0.1:{proxy.port}"})
        state = make_table(through)
        (connection,) = through._client._idle
        proxy.word = b"get_all_databases"
        with pytest.raises(hive_swap.ConnectionLostError):
            connection.call("get_all_databases")
        assert through.commit(state, setting(a="1")) == catalog.load("db.t")
        proxy.close()

    def test_one_that_is_old_is_not_trusted(self, catalog, monkeypatch):
        make_table(catalog)
        (old,) = catalog._client._idle
        monkeypatch.setattr("airflow_iceberg.catalogs.hive.client.IDLE_SECONDS", 0.0)
        catalog.load("db.t")
        assert old.is_broken

    def test_a_signal_in_the_middle_of_an_answer_spoils_it(self, client, monkeypatch):
        client.call("get_all_databases")
        (connection,) = client._idle

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(Connection, "_exchange", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.call("get_all_databases")
        assert connection.is_broken
        assert client._idle == []

    def test_a_forked_process_opens_its_own(self, catalog):
        make_table(catalog)
        commit_in_fork_and_parent(catalog)


@pytest.mark.services
class TestBesidePyIceberg:
    """PyIceberg's catalog on the same metastore, which commits under locks."""

    def test_both_commit_to_one_table(self, hive_catalog):
        from pyiceberg.catalog.hive import HiveCatalog

        catalog = hive_catalog()
        make_table(catalog)
        table = HiveCatalog("prod", uri=catalog.properties["uri"]).load_table("db.t")
        table.append(pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])))
        state = catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert state.metadata.current_snapshot().summary["total-records"] == "1"
        assert table.refresh().properties == {"a": "1"}
