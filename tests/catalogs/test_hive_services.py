"""The Hive catalog on other metastores (4.0.1, and the 2.3.9 that ignores expected parameters), and in races."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive_client import HiveClient
from airflow_iceberg.catalogs.hive_thrift import EnvironmentContext, ShowLocksRequest
from airflow_iceberg.errors import CommitConflictError, StorageError, UnsupportedError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, run_processes, setting
from tests.catalogs.hive_contract import NO_LOCKS, HiveContract, empty_metastore
from tests.services.hive_metastore import metastore_2_3, metastore_2_3_9
from tests.services.hive_metastore_4 import metastore_4, metastore_4_jars
from tests.services.launch import HOST
from tests.support.iceberg_java import IcebergJava
from tests.support.postgresql import PASSWORD, PostgreSQL

pytestmark = pytest.mark.services

# In a crowd a lock is asked for more often than the default's 5 s, or it lies idle most of the time.
EAGER = {"iceberg.hive.lock-check-max-wait-ms": "50", "iceberg.hive.lock-timeout-ms": "600000"}

# Appends of each of eight writers; the thousand of the other tests would take most of an hour.
UNDER_LOCKS = int(os.environ.get("HIVE_APPENDS_UNDER_LOCKS", "8"))


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    """A 4.0.1 on PostgreSQL."""
    database = PostgreSQL()
    url = f"jdbc:postgresql://{HOST}:{database.port}/postgres"
    metastore = metastore_4(tmp_path_factory.mktemp("hive4"), database=(url, "lab", PASSWORD))
    yield metastore
    metastore.stop()
    database.remove()


@pytest.fixture(scope="module")
def metastore_2(tmp_path_factory):
    """A 2.3.10 on Derby."""
    metastore = metastore_2_3(tmp_path_factory.mktemp("hive2"))
    yield metastore
    metastore.stop()


@pytest.fixture(scope="module")
def ignorant(tmp_path_factory):
    """The 2.3.9, which ignores expected parameters."""
    metastore = metastore_2_3_9(tmp_path_factory.mktemp("hive239"))
    yield metastore
    metastore.stop()


def properties_of(metastore, tmp_path, **more):
    empty_metastore(metastore.uri)
    return {"uri": metastore.uri, "warehouse": f"file:{tmp_path}/warehouse", **more}


class TestHive4UnderLocks(HiveContract):
    """A catalog on a Hive Metastore 4 is a catalog."""

    @pytest.fixture
    def properties(self, metastore, tmp_path):
        return properties_of(metastore, tmp_path)


class TestHive4KnowsZones:
    """Times with a zone are shown with it by a Hive that knows zones."""

    def test_of_itself_and_as_asked(self, metastore, tmp_path):
        client = HiveClient("test", {"uri": metastore.uri})
        properties = properties_of(metastore, tmp_path)
        asked = {"db.a": {}, "db.b": {"hive.hive2-compatible": "true"}}
        new_catalog(properties)
        for name, more in asked.items():
            table = Table.create(load_catalog("prod", **properties, **more), name, schema={"ts": "timestamptz"})
            table.alter([{"set_properties": {"a": "1"}}])
        shown = [client.table("db", name).sd.cols[0].type for name in ("a", "b")]
        assert shown == ["timestamp with local time zone", "timestamp"]


class TestHive4WithoutLocks(HiveContract):
    """Without locks as well."""

    @pytest.fixture
    def properties(self, metastore, tmp_path):
        return properties_of(metastore, tmp_path, **NO_LOCKS)


class TestHive23WithoutLocks(HiveContract):
    """On a 2.3.10 as well; under its locks it is in `test_hive`."""

    @pytest.fixture
    def properties(self, metastore_2, tmp_path):
        return properties_of(metastore_2, tmp_path, **NO_LOCKS)


class TestAServerThatIgnoresTheExpectedParameter:
    """Before 2.3.10 and 4.0 a metastore takes a swap for whatever base: commits without locks would be lost."""

    @pytest.fixture
    def catalog(self, ignorant, tmp_path):
        catalog = load_catalog("prod", **properties_of(ignorant, tmp_path, **NO_LOCKS))
        catalog.create_namespace("db")
        return catalog

    def test_it_does(self, catalog, ignorant):
        make_table(catalog)
        client = HiveClient("test", {"uri": ignorant.uri})
        table = client.table("db", "t")
        table.parameters["metadata_location"] = "file:/somewhere"
        wishes = {"expected_parameter_key": "metadata_location", "expected_parameter_value": "file:/never/was"}
        context = EnvironmentContext(properties=wishes)
        call = "alter_table_with_environment_context"
        client.call(call, dbname="db", tbl_name="t", new_tbl=table, environment_context=context)
        assert client.table("db", "t").parameters["metadata_location"] == "file:/somewhere"

    def test_it_is_found_out_and_refused(self, catalog, ignorant):
        state = make_table(catalog)
        before = HiveClient("test", {"uri": ignorant.uri}).table("db", "t")
        message = (
            f"cannot commit to db.t without locks: the metastore at {HOST}:{ignorant.port} ignores the expected "
            "parameter, so that commits could be lost; use Hive 2.3.10, 4.0 or later, or commit under locks by "
            "engine.hive.lock-enabled=true for all writers of the table"
        )
        for _ in range(2):
            with pytest.raises(UnsupportedError) as raised:
                catalog.commit(state, setting(a="1"))
            assert str(raised.value) == message
        assert catalog.load("db.t") == state
        assert HiveClient("test", {"uri": ignorant.uri}).table("db", "t") == before
        files = [status.location for status in catalog.io.list(catalog.properties["warehouse"])]
        assert files == [state.metadata_location]

    def test_a_rename_is_refused_as_well(self, catalog):
        make_table(catalog)
        with pytest.raises(UnsupportedError, match=r"cannot commit to db\.t without locks"):
            catalog.rename_table("db.t", "db.u")

    def test_under_locks_it_serves(self, ignorant, tmp_path):
        properties = properties_of(ignorant, tmp_path, **EAGER)
        catalog = new_catalog(properties)
        race(catalog, properties, processes=3, appends=8)


def new_catalog(properties):
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    return catalog


def rows_of(writer, number):
    return pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())})


def append_in_process(properties, writer, appends):
    table = Table.load(load_catalog("prod", **properties), "db.t")
    for number in range(appends):
        table.append(rows_of(writer, number))


def check(catalog, expected):
    table = Table.load(catalog, "db.t")
    rows = table.scan().to_arrow().to_pylist()
    assert Counter((row["writer"], row["number"]) for row in rows) == Counter(expected)
    assert len(table.snapshots()) == len(expected)


def race(catalog, properties, *, processes, appends, **table_properties):
    """Let processes append to one table, and check that each row is there once."""
    Table.create(catalog, "db.t", schema={"writer": "int", "number": "int"}, properties=table_properties)
    run_processes(append_in_process, [(properties, writer, appends) for writer in range(processes)], seconds=1500)
    check(catalog, [(writer, number) for writer in range(processes) for number in range(appends)])


@pytest.mark.slow
class TestManyWriters:
    """Eight processes with 125 commits each make a thousand snapshots: nothing lost, nothing doubled.

    Under locks the metastore lets through a few commits a second at best, so there it is fewer each.
    """

    @pytest.mark.parametrize(("mode", "each"), [(EAGER, UNDER_LOCKS), (NO_LOCKS, 125)], ids=["locks", "no-locks"])
    def test_on_hive_4(self, metastore, tmp_path, mode, each):
        properties = properties_of(metastore, tmp_path, **mode)
        race(new_catalog(properties), properties, processes=8, appends=each)

    @pytest.mark.parametrize("mode", [EAGER, NO_LOCKS], ids=["locks", "no-locks"])
    def test_on_hive_2_3(self, metastore_2, tmp_path, mode):
        properties = properties_of(metastore_2, tmp_path, **mode)
        race(new_catalog(properties), properties, processes=8, appends=UNDER_LOCKS)


@pytest.mark.java
@pytest.mark.slow
class TestBesideIcebergJava:
    """Iceberg Java and we append to one table at the same time: each row is there once, whoever reads."""

    @pytest.mark.parametrize("locks", ["true", "false"], ids=["locks", "no-locks"])
    @pytest.mark.parametrize("version", ["4.0.1", "2.3.10"])
    def test_both_append(self, request, tmp_path, locks, version):
        metastore = request.getfixturevalue("metastore" if version == "4.0.1" else "metastore_2")
        catalog = new_catalog(properties_of(metastore, tmp_path, **EAGER))
        patience = {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "200"}
        table = Table.create(
            catalog,
            "db.t",
            schema={"writer": "int", "number": "int"},
            properties={"engine.hive.lock-enabled": locks, **patience},
        )
        with IcebergJava.start(tmp_path.as_uri(), **spark_settings(metastore, version, locks)) as java:
            java.sql("insert into prod.db.t values (7, 0)")  # it is warm from here on
            with ThreadPoolExecutor(1) as pool:
                theirs = pool.submit(lambda: [java.sql(f"insert into prod.db.t values (7, {n})") for n in range(1, 30)])
                mine, number, chance = Table.load(catalog, "db.t"), 0, random.Random(7)
                while not theirs.done() or number < 30:
                    mine.append(rows_of(1, number))
                    number += 1
                    # We are several times as fast: without a pause Java would lose every race.
                    time.sleep(chance.uniform(0, 1.5))
                theirs.result()
            java.sql("alter table prod.db.t set tblproperties ('of-java' = '1')")
            read = Counter((row["writer"], row["number"]) for row in java.sql("select * from prod.db.t"))
            shown = {row["key"]: row["value"] for row in java.sql("show tblproperties prod.db.t")}
        expected = [*((7, n) for n in range(30)), *((1, n) for n in range(number))]
        assert read == Counter(expected)
        check(catalog, expected)
        assert shown["engine.hive.lock-enabled"] == locks
        table = Table.load(catalog, "db.t")
        assert table.metadata.properties["of-java"] == "1"
        engines = [each.summary.get("engine-name") for each in table.snapshots()]
        turns = sum(one != other for one, other in itertools.pairwise(engines))
        assert turns >= 10, f"the two did not race: {turns} turns"

    def test_each_opens_what_the_other_made(self, metastore_2, tmp_path):
        catalog = new_catalog(properties_of(metastore_2, tmp_path))
        with IcebergJava.start(tmp_path.as_uri(), **spark_settings(metastore_2, "2.3.10", "true")) as java:
            java.sql("create table prod.db.theirs (id bigint, ts timestamp) using iceberg partitioned by (days(ts))")
            java.sql("insert into prod.db.theirs values (1, timestamp '2026-01-01')")
            state = catalog.load("db.theirs")
            catalog.commit(state, setting(color="green"))
            assert {row["key"]: row["value"] for row in java.sql("show tblproperties prod.db.theirs")}[
                "color"
            ] == "green"
            shown = HiveClient("test", {"uri": metastore_2.uri}).table("db", "theirs").parameters
            assert (shown["numRows"], shown["color"], shown["table_type"]) == ("1", "green", "ICEBERG")
            java.sql("drop table prod.db.theirs")
            assert not catalog.table_exists("db.theirs")


def spark_settings(metastore, version, locks):
    settings = {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.type": "hive",
        "spark.sql.catalog.prod.uri": metastore.uri,
        "spark.sql.catalog.prod.cache-enabled": "false",
        "spark.hadoop.iceberg.engine.hive.lock-enabled": locks,
        **{f"spark.hadoop.{name}": value for name, value in EAGER.items()},
    }
    if version == "4.0.1":
        # Spark's own client is a 2.3.9, which asks with a call that Hive 4 has no more
        lib = metastore_4_jars()
        jars = [f"{lib}/hive-standalone-metastore-common-4.0.1.jar", f"{lib}/libthrift-0.16.0.jar"]
        settings["spark.driver.extraClassPath"] = ":".join(jars)
    return settings


class TestADeadClient:
    """A client that is killed while it holds the lock leaves it behind until the metastore gives it up."""

    PROGRAM = """
import sys, time
from airflow_iceberg.catalogs import hive_swap, load_catalog
from tests.catalogs.contract import setting
def stop(*arguments, **more):
    print("holding", flush=True)
    time.sleep(600)
hive_swap._call_alter = stop
catalog = load_catalog("prod", uri=sys.argv[1])
catalog.commit(catalog.load("db.t"), setting(dead="1"))
"""

    @pytest.fixture
    def impatient(self, tmp_path):
        conf = {"hive.txn.timeout": "8s", "hive.timedout.txn.reaper.interval": "1s"}
        metastore = metastore_2_3(tmp_path / "hive", conf=conf)
        yield metastore
        metastore.stop()

    def test_others_wait_for_it_and_say_for_whom(self, impatient, tmp_path):
        properties = properties_of(impatient, tmp_path)
        state = make_table(new_catalog(properties))
        client = HiveClient("test", {"uri": impatient.uri})
        victim = subprocess.Popen([sys.executable, "-c", self.PROGRAM, impatient.uri], stdout=subprocess.PIPE)
        assert victim.stdout.readline() == b"holding\n"
        (lock,) = client.call("show_locks", rqst=ShowLocksRequest(dbname="db", tablename="t")).locks
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        hasty = load_catalog("prod", **properties, **{"iceberg.hive.lock-timeout-ms": "500"})
        with pytest.raises(CommitConflictError) as raised:
            hasty.commit(state, setting(a="1"))
        assert f"lock {lock.lockid} is held by {lock.user}@{lock.hostname}, {lock.agentInfo}" in str(raised.value)
        patient = load_catalog("prod", **properties)
        committed = patient.commit(state, setting(a="1"))
        assert committed == patient.load("db.t")
        assert "dead" not in committed.metadata.properties


class TestTransports:
    """A metastore is reached as it wants: by TLS, in frames, in the compact protocol."""

    @pytest.mark.parametrize(
        "conf",
        [
            {"hive.metastore.thrift.framed.transport.enabled": "true"},
            {"hive.metastore.thrift.compact.protocol.enabled": "true"},
        ],
        ids=["framed", "compact"],
    )
    def test_by_hive_s_own_properties(self, tmp_path, conf):
        metastore = metastore_2_3(tmp_path / "hive", conf=conf)
        try:
            catalog = new_catalog({"uri": metastore.uri, "warehouse": f"file:{tmp_path}/warehouse", **conf})
            assert catalog.commit(make_table(catalog), setting(a="1")) == catalog.load("db.t")
        finally:
            metastore.stop()

    def test_by_tls_with_a_certificate_that_is_trusted(self, tmp_path):
        trusted, keys = certificate(tmp_path)
        conf = {
            "hive.metastore.use.SSL": "true",
            "hive.metastore.keystore.path": str(keys),
            "hive.metastore.keystore.password": PASSWORD,
        }
        metastore = metastore_2_3(tmp_path / "hive", conf=conf)
        tls = {"uri": metastore.uri, "hive.metastore.use.SSL": "true"}
        try:
            with pytest.raises(StorageError, match=r"cannot connect to 127\.0\.0\.1:\d+: TLS failed: self-signed cert"):
                load_catalog("prod", **tls).list_namespaces()
            properties = {**tls, "hive.metastore.truststore.path": str(trusted), "warehouse": f"file:{tmp_path}/w"}
            catalog = new_catalog(properties)
            assert catalog.commit(make_table(catalog), setting(a="1")) == catalog.load("db.t")
        finally:
            metastore.stop()


def certificate(folder):
    """Make a key for 127.0.0.1 that signs itself; return its certificate as PEM and both as a Java keystore."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "metastore")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, keys = folder / "metastore.pem", folder / "metastore.p12"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = serialization.BestAvailableEncryption(PASSWORD.encode())
    keys.write_bytes(pkcs12.serialize_key_and_certificates(b"metastore", key, made, None, secret))
    return pem, keys
