"""Properties of `docs/hive-metastore.md` that decide how a metastore is reached and what it is shown.

The metastore here answers by script, so that both sides of a handshake can be seen; on a real one: `test_hive` and
`test_hive_services`.
"""

import base64
import re
import socket
import struct
from contextlib import suppress
from types import SimpleNamespace

import puresasl.mechanisms
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive.client import HiveClient
from airflow_iceberg.catalogs.hive.tables import Options, new_table, update_table
from airflow_iceberg.catalogs.hive.thrift_interface import Database, NoSuchObjectException
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.format.metadata.updates import apply_change
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_metadata, setting
from tests.support.certificates import make_certificates
from tests.support.scripted_metastore import BAD, COMPLETE, OK, START, ScriptedMetastore

MAX_SIZE = "iceberg.hive.table-property-max-size"
NAMESPACES = {"get_all_databases": lambda _: ["sales"]}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


def namespaces(uri, **properties):
    return load_catalog("prod", type="hive", uri=uri, **properties).list_namespaces()


def missing(_):
    raise NoSuchObjectException(message="no such table")


def created(folder, create, *, is_hive_2=False, **properties):
    """Return what the metastore is sent when a table is made."""
    answers = {
        "get_database": lambda _: Database(name="db", locationUri=folder.as_uri(), parameters={}),
        "get_table_req": missing,
        "create_table": lambda _: None,
        **({} if is_hive_2 else {"get_catalogs": lambda _: None}),
    }
    with ScriptedMetastore(answers) as metastore:
        create(load_catalog("prod", type="hive", uri=metastore.uri, warehouse=folder.as_uri(), **properties))
    (sent,) = [arguments.tbl for name, arguments in metastore.calls if name == "create_table"]
    return sent


class TestTimeOuts:
    """`hive.metastore.client.socket.timeout` is how long each answer is waited for, ten minutes by default."""

    TIMEOUT = "metastore.client.socket.timeout"

    @pytest.mark.parametrize(
        ("properties", "seconds"),
        [({}, 600), ({f"hive.{TIMEOUT}": "90s"}, 90), ({TIMEOUT: "2min"}, 120)],
    )
    def test_the_socket_has_it(self, properties, seconds, monkeypatch):
        waited = []
        receive = socket.socket.recv

        def spy(self, *arguments):
            waited.append(self.gettimeout())
            return receive(self, *arguments)

        with ScriptedMetastore(NAMESPACES) as metastore:
            client = HiveClient("prod", {"uri": metastore.uri, **properties})
            with client.connection() as connection:
                # the server's side of loopback is in this process, too
                handle = connection._protocol.trans._TBufferedTransport__trans.handle
                monkeypatch.setattr(
                    socket.socket, "recv", lambda self, *a: spy(self, *a) if self is handle else receive(self, *a)
                )
                connection.call("get_all_databases")
        assert set(waited) == {seconds}

    def test_a_metastore_that_never_answers_is_given_up(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            uri = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(StorageError, match=r"lost the metastore at 127\.0\.0\.1:\d+ in get_all_databases"):
                namespaces(uri, **{"hive.metastore.client.socket.timeout": "50ms"})

    def test_what_is_no_duration_is_refused(self):
        with pytest.raises(InvalidInputError, match="'soon' is not a duration, write it as '600s' or '10min'"):
            namespaces("thrift://127.0.0.1:1", **{"hive.metastore.client.socket.timeout": "soon"})


class TestWireFormats:
    """Frames and the compact protocol are spoken where the properties say so, under either name."""

    FRAMED, COMPACT = "thrift.framed.transport.enabled", "thrift.compact.protocol.enabled"

    @pytest.mark.parametrize("prefix", ["hive.metastore.", "metastore."])
    @pytest.mark.parametrize(("name", "served"), [(FRAMED, {"is_framed": True}), (COMPACT, {"is_compact": True})])
    def test_they_are(self, prefix, name, served):
        with ScriptedMetastore(NAMESPACES, **served) as metastore:
            assert namespaces(metastore.uri, **{f"{prefix}{name}": "true"}) == (("sales",),)

    def test_ugi_is_said_first(self):
        with ScriptedMetastore({**NAMESPACES, "set_ugi": lambda call: call.group_names}) as metastore:
            namespaces(metastore.uri, ugi="etl:lake,batch")
        (name, said), _ = metastore.calls
        assert (name, said.user_name, said.group_names) == ("set_ugi", "etl", ["lake", "batch"])


class TestCertificates:
    """A metastore that asks for a certificate is shown the one in `hive.metastore.keystore.path`."""

    TLS = {"hive.metastore.use.SSL": "true"}

    @pytest.fixture
    def metastore(self, certificates):
        with ScriptedMetastore(NAMESPACES, tls=certificates.server_context()) as metastore:
            yield metastore

    def trusting(self, certificates, **more):
        named = {f"hive.metastore.{name.replace('_', '.')}": str(value) for name, value in more.items()}
        return {**self.TLS, "hive.metastore.truststore.path": str(certificates.authority), **named}

    @pytest.mark.parametrize("shown", [
        {"keystore_path": "client_both"},
        {"keystore_path": "client_locked", "keystore_password": "password"},
    ], ids=["open", "locked"])  # fmt: skip
    def test_with_it_we_are_let_in(self, metastore, certificates, shown):
        given = {name: getattr(certificates, field) for name, field in shown.items()}
        assert namespaces(metastore.uri, **self.trusting(certificates, **given)) == (("sales",),)

    def test_a_wrong_password_is_not_shown(self, metastore, certificates):
        given = {"keystore_path": certificates.client_locked, "keystore_password": "wr0ng-one"}
        with pytest.raises(InvalidInputError, match=r"client_locked\.pem cannot be read, expected PEM") as raised:
            namespaces(metastore.uri, **self.trusting(certificates, **given))
        assert "wr0ng-one" not in f"{raised.value!r}{raised.value.__cause__!r}"

    def test_without_it_we_are_not(self, metastore, certificates):
        with pytest.raises(StorageError, match=r"cannot connect to 127\.0\.0\.1:\d+: TLS failed"):
            namespaces(metastore.uri, **self.trusting(certificates))
        assert metastore.calls == []

    def test_who_is_not_trusted_is_named(self, metastore):
        with pytest.raises(StorageError, match=r"TLS failed: .*certificate"):
            namespaces(metastore.uri, **self.TLS)


class TestPlain:
    """With `hive.metastore.client.auth.mode` PLAIN the connection's login and password are shown by SASL."""

    MODE = {"hive.metastore.client.auth.mode": "PLAIN"}

    def served(self, said):
        def sasl(negotiation):
            said.extend([negotiation.receive(), negotiation.receive()])
            if said[-1] != (OK, b"\0etl\0s3cret"):
                negotiation.send(BAD, b"Error validating the login")
                return None
            negotiation.send(COMPLETE)
            return (bytes, bytes)

        return sasl

    @pytest.mark.parametrize("login", [{"user": "etl", "password": "s3cret"}, {"ugi": "etl:s3cret"}])
    def test_who_shows_the_right_ones_is_let_in(self, login):
        said = []
        with ScriptedMetastore(NAMESPACES, sasl=self.served(said)) as metastore:
            assert namespaces(metastore.uri, **self.MODE, **login) == (("sales",),)
        assert said[0] == (START, b"PLAIN")
        assert [name for name, _ in metastore.calls] == ["get_all_databases"]  # and nobody is named a second time

    def test_who_shows_wrong_ones_hears_what_the_metastore_says(self):
        with ScriptedMetastore(NAMESPACES, sasl=self.served([])) as metastore:
            with pytest.raises(StorageError, match="Error validating the login") as raised:
                namespaces(metastore.uri, **self.MODE, user="etl", password="wr0ng-one")
        assert "wr0ng-one" not in f"{raised.value!r}{raised.value.__cause__!r}{raised.value.__context__!r}"

    def test_who_shows_none_is_told_at_once(self):
        with pytest.raises(InvalidInputError, match=r"PLAIN and there is no user, set login and password"):
            namespaces("thrift://127.0.0.1:1", **self.MODE)


class Tickets:
    """In the place of the package kerberos, which needs a domain: says what it is asked for, and seals visibly."""

    AUTH_GSS_COMPLETE = 1
    SEALS = {None: b"", 0: b"signed:", 1: b"sealed:"}

    def __init__(self):
        self.asked = []

    def authGSSClientInit(self, service, principal=None):
        self.asked.append((service, principal))
        return 1, SimpleNamespace(answer="", is_sealed=0)

    def authGSSClientStep(self, context, challenge):
        context.answer = base64.b64encode(b"ticket" if not challenge else b"").decode()
        return self.AUTH_GSS_COMPLETE if challenge else 0

    def authGSSClientResponse(self, context):
        return context.answer

    def authGSSClientResponseConf(self, context):
        return context.is_sealed

    def authGSSClientUserName(self, context):
        return "etl@EXAMPLE.COM"

    def authGSSClientWrap(self, context, data, user=None, protect=None):
        context.answer = base64.b64encode(self.SEALS[protect] + base64.b64decode(data)).decode()

    def authGSSClientUnwrap(self, context, data):
        found = base64.b64decode(data)
        context.is_sealed = int(found.startswith(self.SEALS[1]))
        context.answer = base64.b64encode(re.sub(rb"^(signed|sealed):", b"", found)).decode()

    def authGSSClientClean(self, context):
        return 1


class TestKerberos:
    """The ticket is one for the service that is meant, and the strongest protection that the server has is used.

    A Kerberos domain is not to be had here: the package that speaks to one is replaced, all else is real.
    """

    ON = {"hive.kerberos-authentication": "true"}
    PRINCIPAL = "hive.metastore.kerberos.principal"

    @pytest.fixture
    def tickets(self, monkeypatch):
        tickets = Tickets()
        monkeypatch.setattr(puresasl.mechanisms, "kerberos", tickets, raising=False)
        monkeypatch.setitem(puresasl.mechanisms.mechanisms, "GSSAPI", puresasl.mechanisms.GSSAPIMechanism)
        return tickets

    def served(self, said, *, offers=1, seal=b""):
        """The server's part: RFC 4752, with what its layers do written in plain text before each frame."""

        def sasl(negotiation):
            said.extend([negotiation.receive(), negotiation.receive()])
            negotiation.send(OK, b"whose it is")
            negotiation.receive()
            negotiation.send(OK, struct.pack("!I", offers << 24 | 65536))
            said.append(negotiation.receive())
            negotiation.send(COMPLETE)

            def opened(frame):
                assert frame.startswith(seal)
                return frame.removeprefix(seal)

            return (lambda frame: seal + frame, opened)

        return sasl

    @pytest.mark.parametrize(("properties", "service"), [
        (ON, "hive@127.0.0.1"),
        ({**ON, "hive.kerberos-service-name": "hms"}, "hms@127.0.0.1"),
        ({"hive.metastore.sasl.enabled": "true", PRINCIPAL: "hms/_HOST@EXAMPLE.COM"}, "hms@127.0.0.1"),
        ({**ON, PRINCIPAL: "hms/meta.example.com@EXAMPLE.COM"}, "hms@meta.example.com"),
    ])  # fmt: skip
    def test_the_service_is_the_one_that_is_named(self, properties, service, tickets):
        said = []
        with ScriptedMetastore(NAMESPACES, sasl=self.served(said)) as metastore:
            assert namespaces(metastore.uri, **properties) == (("sales",),)
        assert tickets.asked == [(service, None)]
        assert said[:2] == [(START, b"GSSAPI"), (OK, b"ticket")]

    @pytest.mark.parametrize(
        ("offers", "chosen", "seal"), [(1, 1, b""), (1 | 2, 2, b"signed:"), (1 | 2 | 4, 4, b"sealed:")]
    )
    def test_the_strongest_protection_is_chosen(self, offers, chosen, seal, tickets):
        said = []
        with ScriptedMetastore(NAMESPACES, sasl=self.served(said, offers=offers, seal=seal)) as metastore:
            assert namespaces(metastore.uri, **self.ON) == (("sales",),)
        assert said[-1] == (OK, struct.pack("!I", chosen << 24 | 65536) + b"etl@EXAMPLE.COM")

    def test_without_a_ticket_it_says_why(self, tickets, monkeypatch):
        def fail(*_):
            raise RuntimeError("No Kerberos credentials available")

        monkeypatch.setattr(tickets, "authGSSClientStep", fail)
        with ScriptedMetastore(NAMESPACES, sasl=self.served([])) as metastore:
            with pytest.raises(
                StorageError,
                match=r"cannot connect to 127\.0\.0\.1:\d+: authentication failed: No Kerberos credentials available",
            ):
                namespaces(metastore.uri, **self.ON)

    def test_without_its_package_it_says_so(self, monkeypatch):
        monkeypatch.delitem(puresasl.mechanisms.mechanisms, "GSSAPI", raising=False)
        monkeypatch.setattr(puresasl.mechanisms, "have_kerberos", False)
        with ScriptedMetastore(NAMESPACES, sasl=self.served([])) as metastore:
            with pytest.raises(StorageError, match="authentication failed: kerberos module not installed"):
                namespaces(metastore.uri, **self.ON)


class TestLongValues:
    """`iceberg.hive.table-property-max-size` is how long what the metastore shows may be."""

    def shown(self, metadata, size=None):
        options = Options({} if size is None else {MAX_SIZE: str(size)})
        return new_table("db", "t", metadata, "file:///m", now_ms=0, owner="me", options=options, zoned="x").parameters

    def test_longer_values_are_not_shown(self):
        metadata = new_metadata("file:///t", fits="x" * 100, long="x" * 101)
        parameters = self.shown(metadata, size=100)
        assert "fits" in parameters
        assert "long" not in parameters
        assert "current-schema" not in parameters  # of two columns, and longer
        assert {"fits", "long", "current-schema"} <= set(self.shown(metadata))

    def test_what_is_always_short_is_always_shown(self):
        metadata = new_metadata("file:///t")
        parameters = self.shown(metadata, size=1)
        assert parameters["uuid"] == metadata.table_uuid
        assert parameters["snapshot-count"] == "0"
        assert parameters["metadata_location"] == "file:///m"

    def test_with_0_only_the_properties_are_shown(self):
        parameters = self.shown(new_metadata("file:///t", text="x" * 500, long="x" * 32_673), size=0)
        assert parameters["text"] == "x" * 500
        assert not {"long", "current-schema"} & set(parameters)

    def test_what_no_longer_fits_goes(self):
        before = new_metadata("file:///t", text="short")
        options = Options({MAX_SIZE: "100"})
        table = new_table("db", "t", before, "file:///1", now_ms=0, owner="me", options=options, zoned="x")
        after = apply_change(before, setting(text="x" * 101), now_ms=1_700_000_000_001, base_location="1")
        update_table(table, after, "file:///2", before=before, options=options)
        assert "text" not in table.parameters

    def test_it_is_a_property_of_the_catalog(self, tmp_path):
        values = {"fits": "x" * 100, "long": "x" * 101}
        sent = created(tmp_path, lambda catalog: make_table(catalog, **values), **{MAX_SIZE: "100"})
        assert "fits" in sent.parameters
        assert "long" not in sent.parameters

    @pytest.mark.parametrize("text", ["-1", "many", "1e3", "٣"])
    def test_what_is_no_number_is_refused(self, text):
        with pytest.raises(InvalidInputError, match=rf"property {re.escape(MAX_SIZE)} is '.*', expected a number of"):
            load_catalog("prod", type="hive", uri="thrift://127.0.0.1:1", **{MAX_SIZE: text})


class TestWhatHiveKnows:
    """A Hive before 3 has no times with a zone; `hive.hive2-compatible` says which it is, or else the metastore."""

    @pytest.mark.parametrize(("is_hive_2", "properties", "word"), [
        (False, {}, "timestamp with local time zone"),
        (True, {}, "timestamp"),
        (False, {"hive.hive2-compatible": "true"}, "timestamp"),
        (True, {"hive.hive2-compatible": "false"}, "timestamp with local time zone"),
    ])  # fmt: skip
    def test_its_word_for_them_is_used(self, is_hive_2, properties, word, tmp_path):
        def create(catalog):
            # The script forgets the table at once, so that it cannot be loaded.
            with suppress(NotFoundError):
                Table.create(catalog, "db.t", schema={"ts": "timestamptz"})

        sent = created(tmp_path, create, is_hive_2=is_hive_2, **properties)
        assert [column.type for column in sent.sd.cols] == [word]

    @pytest.mark.parametrize(
        ("properties", "is_on"),
        [({}, False), ({"iceberg.engine.hive.enabled": "true"}, True), ({"engine.hive.enabled": "true"}, True)],
    )
    def test_it_reads_tables_where_it_is_asked_to(self, properties, is_on, tmp_path):
        sent = created(tmp_path, make_table, **properties)
        assert ("storage_handler" in sent.parameters) == is_on
        assert ("HiveIcebergSerDe" in sent.sd.serdeInfo.serializationLib) == is_on
