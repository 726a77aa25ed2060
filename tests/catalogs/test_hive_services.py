"""The Hive catalog on other metastores: 4.0.1, and the 2.3.9 that ignores expected parameters. Races: `test_races`."""

import datetime as dt
import ipaddress
import os
import signal
import subprocess
import sys

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive.client import HiveClient
from airflow_iceberg.catalogs.hive.thrift_interface import EnvironmentContext, ShowLocksRequest
from airflow_iceberg.errors import CommitConflictError, StorageError, UnsupportedError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_catalog, setting
from tests.catalogs.hive_contract import NO_LOCKS, HiveContract, empty_metastore
from tests.catalogs.java import add_catalog
from tests.services.hive_metastore import metastore_2_3
from tests.services.launch import HOST
from tests.support.postgresql import PASSWORD

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def metastore(hive_4):
    """A 4.0.1 on PostgreSQL."""
    return hive_4


@pytest.fixture(scope="module")
def metastore_2(hive_2_3_10):
    """A 2.3.10 on Derby."""
    return hive_2_3_10


@pytest.fixture(scope="module")
def ignorant(hive_2_3_9):
    return hive_2_3_9


FRAMED = {"hive.metastore.thrift.framed.transport.enabled": "true"}
COMPACT = {"hive.metastore.thrift.compact.protocol.enabled": "true"}
TLS = {"hive.metastore.use.SSL": "true"}


@pytest.fixture(scope="module")
def trusted(tmp_path_factory):
    """A certificate as PEM, and with its key as a Java keystore."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory, trusted):
    """A metastore that gives up locks after seconds; at other ports it speaks in frames, compactly and by TLS."""
    _, keys = trusted
    store = {"hive.metastore.keystore.path": str(keys), "hive.metastore.keystore.password": PASSWORD}
    conf = {"hive.txn.timeout": "8s", "hive.timedout.txn.reaper.interval": "1s"}
    ways = [FRAMED, COMPACT, {**TLS, **store}]
    metastore = metastore_2_3(tmp_path_factory.mktemp("hive"), conf=conf, transports=ways)
    yield metastore
    metastore.stop()


@pytest.fixture
def addresses(impatient):
    return dict(zip(("framed", "compact", "tls"), impatient.others, strict=True))


def properties_of(metastore, tmp_path, **more):
    empty_metastore(metastore.uri)
    return {"uri": metastore.uri, "warehouse": f"file:{tmp_path}/warehouse", **more}


@pytest.mark.sample(2)
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
        new_catalog(**properties)
        for name, more in asked.items():
            table = Table.create(load_catalog("prod", **properties, **more), name, schema={"ts": "timestamptz"})
            table.alter([{"set_properties": {"a": "1"}}])
        shown = [client.table("db", name).sd.cols[0].type for name in ("a", "b")]
        assert shown == ["timestamp with local time zone", "timestamp"]


@pytest.mark.sample(2)
class TestHive4WithoutLocks(HiveContract):
    """Without locks as well."""

    @pytest.fixture
    def properties(self, metastore, tmp_path):
        return properties_of(metastore, tmp_path, **NO_LOCKS)


@pytest.mark.sample(3)
class TestHive23WithoutLocks(HiveContract):
    """On a 2.3.10 as well; under its locks it is in `test_hive`."""

    @pytest.fixture
    def properties(self, metastore_2, tmp_path):
        return properties_of(metastore_2, tmp_path, **NO_LOCKS)


class TestAServerThatIgnoresTheExpectedParameter:
    """Before 2.3.10 and 4.0 a metastore takes a swap for whatever base: commits without locks would be lost."""

    @pytest.fixture
    def catalog(self, ignorant, tmp_path):
        return new_catalog(**properties_of(ignorant, tmp_path, **NO_LOCKS))

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


@pytest.mark.java
class TestBesideIcebergJava:
    """Iceberg Java and we see one catalog; both commit at the same time in `test_races_beside`."""

    def test_each_opens_what_the_other_made(self, metastore_2, tmp_path, iceberg_java):
        catalog, java = new_catalog(**properties_of(metastore_2, tmp_path)), iceberg_java
        theirs = f"{add_catalog(java, type='hive', uri=metastore_2.uri)}.db.theirs"
        java.sql(f"create table {theirs} (id bigint, ts timestamp) using iceberg partitioned by (days(ts))")
        java.sql(f"insert into {theirs} values (1, timestamp '2026-01-01')")
        state = catalog.load("db.theirs")
        catalog.commit(state, setting(color="green"))
        shown = {row["key"]: row["value"] for row in java.sql(f"show tblproperties {theirs}")}
        assert shown["color"] == "green"
        parameters = HiveClient("test", {"uri": metastore_2.uri}).table("db", "theirs").parameters
        assert (parameters["numRows"], parameters["color"], parameters["table_type"]) == ("1", "green", "ICEBERG")
        java.sql(f"drop table {theirs}")
        assert not catalog.table_exists("db.theirs")


class TestADeadClient:
    """A client that is killed while it holds the lock leaves it behind until the metastore gives it up."""

    PROGRAM = """
import sys, time
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive import swap as hive_swap
from tests.catalogs.contract import setting
def stop(*arguments, **more):
    print("holding", flush=True)
    time.sleep(600)
hive_swap.call_alter = stop
catalog = load_catalog("prod", uri=sys.argv[1], warehouse=sys.argv[2])
catalog.commit(catalog.load("db.t"), setting(dead="1"))
"""

    def test_others_wait_for_it_and_say_for_whom(self, impatient, tmp_path):
        properties = properties_of(impatient, tmp_path)
        state = make_table(new_catalog(**properties))
        client = HiveClient("test", {"uri": impatient.uri})
        command = [sys.executable, "-c", self.PROGRAM, impatient.uri, properties["warehouse"]]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE)
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

    @pytest.mark.parametrize(("way", "conf"), [("framed", FRAMED), ("compact", COMPACT)], ids=["framed", "compact"])
    def test_by_hive_s_own_properties(self, addresses, tmp_path, way, conf):
        self.check({"uri": addresses[way], "warehouse": f"file:{tmp_path}/warehouse", **conf}, way)

    def test_by_tls_with_a_certificate_that_is_trusted(self, addresses, trusted, tmp_path):
        pem, _ = trusted
        properties = {"uri": addresses["tls"], "warehouse": f"file:{tmp_path}/warehouse", **TLS}
        with pytest.raises(StorageError, match=r"cannot connect to 127\.0\.0\.1:\d+: TLS failed: self-signed cert"):
            load_catalog("prod", **properties).list_namespaces()
        self.check({**properties, "hive.metastore.truststore.path": str(pem)}, "tls")

    def check(self, properties, namespace):
        catalog = load_catalog("prod", **properties, **NO_LOCKS)  # which this metastore forgets too soon
        catalog.create_namespace(namespace)
        state = catalog.commit(make_table(catalog, f"{namespace}.t"), setting(a="1"))
        assert state == catalog.load(f"{namespace}.t")


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
