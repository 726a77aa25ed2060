"""What servers that mean harm, or are other programs, can do to the clients of this package: nothing for long.

A client is a line in `CLIENTS`; a module that imports something to send with and is in none of them fails a test.
"""

import gzip
import itertools
import json
import re
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive import struct_limit
from airflow_iceberg.catalogs.hive.client import ConnectionLostError, HiveClient
from airflow_iceberg.catalogs.hive.thrift_interface import Table
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.http.settings import table_limit
from airflow_iceberg.catalogs.pages import PageTokens
from airflow_iceberg.catalogs.rest import states
from airflow_iceberg.errors import CommitUnknownError, FormatError, IcebergError, InvalidInputError, StorageError
from airflow_iceberg.inventory.limited import ReadLimits
from airflow_iceberg.storage import answer_limits, load_file_io
from airflow_iceberg.storage.answers import LimitError, Session, within
from airflow_iceberg.storage.directories import open_directory
from airflow_iceberg.storage.stores import object_store, webhdfs
from tests.catalogs.contract import setting
from tests.catalogs.test_rest_http import LOAD, Script, table
from tests.support.hostile_server import (
    BOMBS,
    DRIPS,
    SILENCE,
    HostileServer,
    chunk,
    endless_pages,
    head,
    measured,
    whole,
)
from tests.support.http_server import Listening, document

PACKAGE = Path(__file__).resolve().parents[2] / "airflow_iceberg"
MOST_BYTES, MOST_S = 256 << 20, 60
TABLE = "/v1/namespaces/db/tables/t"
FAST = {"rest.client.socket-timeout-ms": "1000", "rest.client.connection-timeout-ms": "1000"}
_REST = "load_catalog('prod', uri=uri, **{'rest.client.socket-timeout-ms': '1000'})"
_NESSIE = "load_catalog('prod', type='nessie', uri=uri + '/api/v2', warehouse='file:///w', **{'transport.read-timeout': '1000'})"  # noqa: E501
_S3 = "{'s3.endpoint': uri, 's3.region': 'us-east-1', 's3.access-key-id': 'k', 's3.secret-access-key': 's3cret-key', 's3.request-timeout': '1'}"  # noqa: E501
_SIGNED = "{'s3.endpoint': uri, 's3.region': 'us-east-1', 's3.signer': 'S3V4RestSigner', 's3.signer.uri': uri}"
_GCS = "{'gcs.service.host': uri, 'gcs.oauth2.token': 'anon'}"
_GLUE = "load_catalog('prod', type='glue', **{'glue.endpoint': uri, 'glue.region': 'us-east-1', 'glue.access-key-id': 'k', 'glue.secret-access-key': 's3cret-key', 'glue.max-retries': '0'})"  # noqa: E501
_POD = "ApiServer(uri, 'jobs', Access(uri, {'kubernetes_token': 't0ken-of-etl'}, {}, {}), {})"
_HDFS = "load_file_io({'hdfs.host': uri[7:]})"

# Name -> (the modules that send, what asks the server at `uri`).
CLIENTS: dict[str, tuple[str, str]] = {
    "REST, configuration": ("catalogs.http.exchange storage.answers", f"{_REST}.load('db.t')"),
    "REST, a token": (
        "catalogs.http.auth",
        f"{_REST[:-1]}, credential='me:s3cret-word')._server.http.auth.token()",
    ),
    "Nessie": (
        "catalogs.http.exchange",
        f"{_NESSIE}.load('db.t')",
    ),
    "Glue": ("catalogs.glue.client", f"{_GLUE}.load('db.t')"),
    "YARN": ("backends.yarn", "ResourceManager([uri], user='etl').find('tag', patience_s=0)"),
    "Kubernetes": ("backends.kubernetes", f"{_POD}.find('airflow-iceberg-work-1', patience_s=0)"),
    "WebHDFS": ("storage.stores.webhdfs", f"list({_HDFS}.list(f'webhdfs://{{uri[7:]}}/w'))"),
    "WebHDFS, a part of a file": (
        "storage.stores.webhdfs",
        f"{_HDFS}.read(f'webhdfs://{{uri[7:]}}/w/a', length=100)",
    ),
    "S3": ("storage.stores.s3", f"list(load_file_io({_S3}).list('s3://b/w'))"),
    "S3, a part of a file": ("storage.stores.s3", f"load_file_io({_S3}).read('s3://b/w', length=100)"),
    "S3's signer": ("storage.stores.s3_signing", f"load_file_io({_SIGNED}).read('s3://b/w', length=100)"),
    "Google": ("storage.stores.gcs", f"list(load_file_io({_GCS}).list('gs://b/w'))"),
    "Google, a part of a file": ("storage.stores.gcs", f"load_file_io({_GCS}).read('gs://b/w', length=100)"),
}
# What else knows such a library, and why it needs no line.
OTHERS = {
    "catalogs.http.client": "sends by the exchange",
    "catalogs.hive.client": "thrift, below",
    "catalogs.hive.transport": "thrift, below",
    "catalogs.hive.thrift_interface": "thrift, below",
    "catalogs.hive.struct_limit": "thrift, below",
    "catalogs.hive.locks": "the name of this host",
    "storage.stores.adls": "its SDK has a limit of time only (docs/security.md)",
    "storage.stores.hdfs": "its driver has limits of its own (docs/security.md)",
    "storage.stores.fsspec_io": "the errors of names that are not known",
    "hooks.diagnosis": "connects, and reads nothing",
    "cli.doctor": "the name of this host",
    "backends.driver_link": "a socket of this machine",
    "jobs.spark.driver_guard": "a socket of this machine",
}
_SENDERS = re.compile(
    r"^\s*(?:import|from)\s+(requests|httpx|urllib3|urllib\.request|http\.client|boto3|botocore|aiobotocore|aiohttp"
    r"|thrift|socket|kubernetes|hdfs_native|azure|websockets|grpc)\b",
    re.MULTILINE,
)
BEFORE = """
import logging
from airflow_iceberg.backends import asking, kubernetes, yarn
from airflow_iceberg.backends.kubernetes import ApiServer
from airflow_iceberg.backends.kubernetes_access import Access
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.storage import answers, load_file_io
from airflow_iceberg.storage.stores import async_answers, gcs, s3, webhdfs
logging.disable()
Http.__init__.__kwdefaults__["sleep"] = lambda seconds: None
answers.GRACE_S = async_answers.GRACE_S = gcs.STORE_HEAD_S = 1.0
yarn.TIMEOUT_S = kubernetes.TIMEOUT_S = webhdfs._TIMEOUTS_S = (1, 1)
"""
PIECE = """
for name, uri in {servers!r}.items():
    begun = time.monotonic()
    try:
        {ask}
    except IcebergError as error:
        assert str(error), name
    except Exception as error:
        print(f"{{name}}: {{type(error).__name__}}: {{error}}"[:300])
    else:
        print(f"{{name}}: no error")
    if (took := time.monotonic() - begun) > {most_s}:
        print(f"{{name}}: {{took:.0f}} s")
"""
# Any bytes are a file: without an error it is one that was read, within the limits.
_FILES = ("WebHDFS, a part of a file", "S3, a part of a file", "Google, a part of a file")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for long."""
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda _: None)  # type: ignore[arg-type]


class TestEveryClient:
    """It ends with an error of this package, within its limits of memory and time."""

    def test_no_module_sends_and_is_not_in_the_table(self) -> None:
        found = {
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            for path in PACKAGE.rglob("*.py")
            if _SENDERS.search(path.read_text())
        }
        known = {module for modules, _ in CLIENTS.values() for module in modules.split()} | OTHERS.keys()
        assert found - known == set(), "give a line in CLIENTS to what sends, and a reason in OTHERS to what does not"
        assert known - found <= {"catalogs.http.client"}

    @pytest.mark.costly
    @pytest.mark.parametrize("client", CLIENTS)
    def test_bombs_and_drips(self, client: str) -> None:
        servers = {name: HostileServer(bomb) for name, bomb in {**BOMBS, **DRIPS}.items()}
        try:
            uris = {name: server.uri for name, server in servers.items()}
            piece = PIECE.format(servers=uris, ask=CLIENTS[client][1], most_s=MOST_S)
            found = measured(BEFORE, piece, timeout_s=900)
        finally:
            for server in servers.values():
                server.close()
        told = [line for line in found.said.splitlines() if client not in _FILES or not line.endswith("no error")]
        assert told == ([] if client in _FILES else ["no error"])
        assert found.more_bytes < MOST_BYTES

    @pytest.mark.costly
    def test_a_table(self) -> None:
        servers = {
            name: HostileServer(bomb, honest=lambda _: document({"defaults": {}, "overrides": {}}), when=f"GET {TABLE}")
            for name, bomb in {**BOMBS, **DRIPS}.items()
        }
        # An answer may have 160 MB, and Python gives the memory of one back late: the largest have a process each.
        large = [name for name in servers if name.startswith(("endless body", "30 million", "a text of"))]
        groups = [[name for name in servers if name not in large], *([name] for name in large)]
        try:
            for group in groups:
                uris = {name: servers[name].uri for name in group}
                found = measured(BEFORE, PIECE.format(servers=uris, ask=f"{_REST}.load('db.t')", most_s=MOST_S))
                assert found.said == "no error"
                assert found.more_bytes < MOST_BYTES, group
        finally:
            for server in servers.values():
                server.close()


class TestAnAnswer:
    """It has one encoding, an end, and a size for what it is."""

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("gzip of 4 GB", "it has more than 1048576 bytes, the most for the configuration of a server"),
            ("gzip in gzip of 4 GB", "its content encoding is 'gzip, gzip', expected gzip or none"),
            ("gzip twice, in two headers", "its content encoding is 'gzip, gzip'"),
            ("brotli", "its content encoding is 'br'"),
            ("a body of 1 TB", "it has more than 1048576 bytes, the most for the configuration of a server"),
            ("endless body in chunks", "it has more than 1048576 bytes"),
            ("endless gzip in chunks", "bytes"),
            ("endless empty members of gzip", "gzip members|bytes"),
            ("endless trailers", "the lines around its body have more than 262144 bytes"),
            ("endless 100 Continue", "the lines around its body have more than 262144 bytes"),
        ],
    )
    def test_that_exceeds_a_limit(self, name: str, reason: str) -> None:
        with (
            HostileServer(BOMBS[name]) as server,
            Session() as session,
            within(answer_limits.CONFIG),
            pytest.raises(LimitError, match=reason) as error,
        ):
            session.request("GET", server.uri, timeout=(5, 5))
        assert (error.value.is_slow, len(server.seen)) == (False, 1)

    @pytest.mark.parametrize("name", DRIPS)
    def test_that_drips(self, name: str) -> None:
        begun = time.monotonic()
        with (
            HostileServer(DRIPS[name]) as server,
            Session() as session,
            pytest.raises(LimitError, match="slow") as error,
        ):
            session.request("GET", server.uri, timeout=(5, 0.2))
        assert error.value.is_slow
        assert time.monotonic() - begun < 10
        assert len(server.seen) == 1

    def test_that_is_honest(self) -> None:
        bodies = [b"", b'{"a": 1}', b" " * 1_000_000]
        bombs = {
            "as it is": lambda body: whole(body),
            "compressed": lambda body: whole(gzip.compress(body), Content_Encoding="gzip"),
            "compressed by an older name": lambda body: whole(gzip.compress(body), Content_Encoding="X-GZIP"),
            "in chunks": lambda body: head(Transfer_Encoding="chunked") + (chunk(body) if body else b"") + chunk(b""),
            "with a trailer": lambda body: (
                head(Transfer_Encoding="chunked") + (chunk(body) if body else b"") + b"0\r\nA: b\r\n\r\n"
            ),
            "identity": lambda body: whole(body, Content_Encoding="identity"),
        }
        for name, made in bombs.items():
            for body in bodies:
                with HostileServer(lambda _, made=made, body=body: [made(body)]) as server, Session() as session:
                    for _ in range(2):  # the connection is kept
                        assert session.request("GET", server.uri, timeout=(5, 5)).content == body, name

    def test_to_a_head_may_say_any_length(self) -> None:
        with HostileServer(lambda _: [head(Content_Length=str(1 << 40))]) as server, Session() as session:
            assert session.request("HEAD", server.uri, timeout=(5, 5)).status_code == 200

    def test_that_is_an_error_is_cut(self) -> None:
        with HostileServer(BOMBS["endless error in chunks"]) as server, Session() as session:
            answer = session.request("GET", server.uri, timeout=(5, 5))
        assert (answer.status_code, len(answer.content)) == (500, answer_limits.ERROR.most_bytes)

    def test_cookies_do_not_pile_up(self) -> None:
        def answer(_: object) -> list[bytes]:
            return [head(200, *(f"Set-Cookie: c{number}={'x' * 1000}" for number in range(90)), Content_Length="0")]

        with HostileServer(answer) as server, Session() as session:
            session.request("GET", server.uri, timeout=(5, 5))
            assert len(session.cookies) == 0

    def test_no_handshake(self) -> None:
        with HostileServer(SILENCE, no_handshake=True) as server, Session() as session, pytest.raises(OSError):
            session.request("GET", server.uri, timeout=(0.2, 0.2))

    def test_with_more_values_than_a_document_has(self) -> None:
        small = b"[" + b"[]," * 600_000 + b"[]]"
        with pytest.raises(ValueError, match="about 1200002 values, expected at most 1000000"):
            answer_limits.parsed(small, 5_000_000)
        snapshot = b'{"snapshot-id": 1234567890123456789, "timestamp-ms": 1700000000000},'
        assert answer_limits.excess_of(snapshot * 400_000, 5_000_000) is None


class TestACommit:
    """An answer that was not read to its end is a lost one: the change may have been made."""

    @pytest.mark.parametrize("name", [*BOMBS, *DRIPS])
    def test_is_never_taken_for_refused(self, name: str, quick: None) -> None:
        bomb = {**BOMBS, **DRIPS}[name]
        with Script() as honest:
            honest.on(LOAD, document(table()))
            with HostileServer(bomb, honest=honest.handle, when=f"POST {TABLE}") as server:
                properties = {**FAST, "rest.client.socket-timeout-ms": "300", "rest.client.max-table-mb": "1"}
                catalog = load_catalog("prod", uri=server.uri, **properties)
                state = catalog.load("db.t")
                definite = {"redirect to itself", "redirect with an endless body", "too many requests for 30 years"}
                # A conflict is one, however long the text is: the text is cut.
                refused = {"gzip of 4 GB as an error"}
                kind = StorageError if name in definite else IcebergError if name in refused else CommitUnknownError
                with pytest.raises(kind):
                    catalog.commit(state, setting(a="1"))
        sent = [request for request in server.seen if request.method == "POST"]
        assert len(sent) == (6 if name == "too many requests for 30 years" else 1)

    @pytest.mark.parametrize("name", ["a chunk of less than no bytes", "two lengths", "no text"])
    def test_to_glue_is_never_taken_for_refused(self, name: str) -> None:
        bomb = BOMBS.get(name) or (lambda _: [whole(b'{"a": "\xff"}')])
        with HostileServer(bomb) as server:
            catalog = eval(_GLUE, {"load_catalog": load_catalog, "uri": server.uri})
            with pytest.raises(CommitUnknownError, match="it may have been done or not"):
                catalog._glue.change("update_table", DatabaseName="db", TableInput={"Name": "t"})
            assert len(server.seen) == 1

    def test_says_what_it_was_and_what_to_do(self, quick: None) -> None:
        with Script() as honest:
            honest.on(LOAD, document(table()))
            with HostileServer(BOMBS["a body of 1 TB"], honest=honest.handle, when=f"POST {TABLE}") as server:
                catalog = load_catalog("prod", uri=server.uri)
                with pytest.raises(CommitUnknownError) as error:
                    catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert str(error.value) == (
            "catalog prod cannot tell whether it did commit to table db.t: the server did not confirm it (its answer "
            "is not read to the end: it has more than 167772160 bytes, the most for a table)"
        )

    def test_a_load_of_a_larger_table_says_what_to_do(self, quick: None) -> None:
        with HostileServer(
            BOMBS["a body of 1 TB"], honest=lambda _: document({"defaults": {}, "overrides": {}}), when=f"GET {TABLE}"
        ) as server:
            catalog = load_catalog("prod", uri=server.uri)
            with pytest.raises(
                StorageError, match=r"the most for a table; expire snapshots of the table, or set rest\."
            ):
                catalog.load("db.t")
            assert [str(request) for request in server.seen][1:] == [LOAD], "the same bomb is not asked for again"

    def test_the_size_of_a_table_is_a_setting(self) -> None:
        assert table_limit("prod", {"rest.client.max-table-mb": "320"}).most_values == 10_000_000
        with pytest.raises(InvalidInputError, match=r"'rest.client.max-table-mb' is '0', expected a whole number"):
            load_catalog("prod", uri="http://127.0.0.1", **{"rest.client.max-table-mb": "0"})


class TestAList:
    """It ends, however the server pages it."""

    def read(self, tokens: PageTokens, size_bytes: int = 10) -> None:
        for number in range(1_000_000):
            tokens.checked(str(number), items=1, size_bytes=size_bytes)

    def test_a_million_pages(self) -> None:
        tokens = PageTokens("catalog prod cannot list", monotonic=lambda: 0.0)
        with pytest.raises(FormatError, match=r"cannot list: the list has not ended after 10000 pages, at most 10000"):
            self.read(tokens)

    def test_pages_of_many_bytes(self) -> None:
        tokens = PageTokens("catalog prod cannot list", monotonic=lambda: 0.0)
        with pytest.raises(FormatError, match=r"not ended after \d+ bytes, at most 33554432 are read; use namespaces"):
            self.read(tokens, size_bytes=1 << 20)

    def test_pages_that_come_slowly(self) -> None:
        times = iter(range(0, 100_000, 30))
        tokens = PageTokens("catalog prod cannot list", monotonic=lambda: next(times))
        with pytest.raises(FormatError, match="not ended after 900 seconds"):
            self.read(tokens)

    @pytest.mark.costly
    def test_in_memory_and_time(self) -> None:
        def page(number: int) -> object:
            found = [{"namespace": ["db"], "name": f"table-of-a-longer-name-{number}-{each}"} for each in range(1000)]
            return {"identifiers": found, "next-page-token": f"after {number}"}

        with HostileServer(
            endless_pages(page), honest=lambda _: document({"defaults": {}, "overrides": {}}), when=f"GET {TABLE[:-2]}"
        ) as server:
            found = measured(BEFORE, f"load_catalog('prod', uri={server.uri!r}).list_tables('db')", timeout_s=300)
        assert found.said.startswith("airflow_iceberg.errors.FormatError: catalog prod cannot list the tables of db: ")
        assert found.more_bytes < MOST_BYTES
        assert found.processor_seconds < MOST_S


class TestAManagerOfACluster:
    """YARN: the same bomb is not asked for again and again."""

    def test_is_asked_once(self) -> None:
        with HostileServer(BOMBS["gzip in gzip of 4 GB"]) as server:
            with pytest.raises(IcebergError, match=r"YARN's resource manager to GET http://.* is not read to the end"):
                ResourceManager([server.uri], user="etl").find("tag", patience_s=60)
            assert len(server.seen) == 1


class TestATableBesideTheWorkOfOthers:
    """A server sends metadata itself: the API server and the triggerer take no more of it than of a file."""

    def load(self, properties: dict[str, str], *, limited: bool = True, **headers: str) -> tuple[Any, HostileServer]:
        answer = json.loads(json.dumps(table()))
        answer["metadata"]["properties"] = properties
        body = json.dumps(answer).encode()
        server = HostileServer(
            lambda _: [whole(body, **headers)],
            honest=lambda _: document({"defaults": {}, "overrides": {}}),
            when=f"GET {TABLE}",
        )
        catalog = load_catalog("prod", uri=server.uri)
        if limited:
            catalog.limit_reads()
        return catalog, server

    def test_has_so_many_bytes_and_values(self, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
        small = ReadLimits(answer_bytes=1 << 20, metadata_values=2_000, metadata_memory=4 << 20)
        monkeypatch.setattr(states, "ReadLimits", lambda: small)
        many = {str(number): "" for number in range(3_000)}
        for properties, reason in (
            ({"a": "x" * (2 << 20)}, "more than 1048576 bytes"),
            (many, "more than 2000 values"),
        ):
            catalog, server = self.load(properties)
            with server, pytest.raises(IcebergError, match=f"{reason}.*with deferrable=False"):
                catalog.load("db.t")
            catalog, server = self.load(properties, limited=False)
            with server:
                assert catalog.load("db.t").metadata.properties == properties

    def test_is_kept_only_if_it_is_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(states, "MOST_KEPT_BYTES", 100_000)
        for size, asked in ((10, True), (200_000, False)):
            catalog, server = self.load({"a": "x" * size}, ETag="one")
            with server:
                catalog.load("db.t")
                catalog.load("db.t")
                assert ("If-None-Match" in server.seen[-1].headers) is asked


class TestAnswersInXml:
    """A parser makes an object of each element, and of an entity as much as it says."""

    @pytest.mark.parametrize("status", [200, 400])
    def test_has_no_entities_and_not_too_many_elements(self, status: int) -> None:
        bombs = {
            "entities": b'<!DOCTYPE a [<!ENTITY x "yyyy">]><ListBucketResult><Prefix>&x;</Prefix></ListBucketResult>',
            "elements": b"<ListBucketResult>" + b"<a/>" * answer_limits.MOST_MARKS + b"</ListBucketResult>",
        }
        bombs["entities in UTF-16"] = bombs["entities"].decode().encode("utf-16")
        for body in bombs.values():
            with HostileServer(lambda _, body=body: [whole(body, status, Content_Type="application/xml")]) as server:
                io = load_file_io(eval(_S3, {"uri": server.uri}))
                with pytest.raises(StorageError, match="more elements or entities than a listing of a store"):
                    list(io.list("s3://b/w"))


class TestAPartOfAFile:
    """Arrow asks for parts of files, and the library of a store reads an answer as a whole."""

    @pytest.mark.parametrize("store", ["gs", "s3"])
    @pytest.mark.parametrize("is_told", [True, False])
    def test_is_no_larger_than_what_was_asked_for(self, store: str, is_told: bool) -> None:
        size = 100

        def answer(request: Any) -> list[bytes]:
            times = {"updated": "2026-01-01T00:00:00Z", "timeCreated": "2026-01-01T00:00:00Z"}
            if store == "gs" and "alt=media" not in request.path:
                return [whole(json.dumps({"name": "w", "bucket": "b", "size": "100", **times}).encode())]
            about = {"Content_Type": "application/octet-stream", "Last_Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
            if request.method == "HEAD":
                return [head(200, Content_Length="100", **about)]
            body = b"x" * size
            if is_told:
                return [whole(body, 206, **about)]
            return [head(206, Transfer_Encoding="chunked", **about), chunk(body), chunk(b"")]

        given = {"gs": _GCS, "s3": _S3}[store]
        with HostileServer(answer) as server:
            files, path = load_file_io(eval(given, {"uri": server.uri})).filesystem(f"{store}://b/w")
            assert files.cat_file(path, start=0, end=100) == b"x" * 100
            with files.open(path) as file:
                assert file.read(100) == b"x" * 100
            size = 101
            with pytest.raises(OSError, match="more than 100 bytes, the most for a file"):
                files.cat_file(path, start=0, end=100)


class TestAListingOfAStore:
    """It ends, whatever a server says of its next page."""

    def listing(self, count: int, token: str) -> bytes:
        inner = b"<Contents><Key>w/v%d</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        head, more = b"<ListBucketResult><IsTruncated>true</IsTruncated>", token.encode()
        next_page = b"<NextContinuationToken>%s</NextContinuationToken>" % more
        return head + next_page + b"".join(inner % number for number in range(count)) + b"</ListBucketResult>"

    @pytest.mark.parametrize("is_cycle", [True, False])
    def test_without_an_end(self, is_cycle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_store, "_MOST_HELD_BYTES", 100_000)
        numbers = itertools.count()

        def answer(_: object) -> list[bytes]:
            token = "again" if is_cycle else f"after {next(numbers)}"
            return [whole(self.listing(50, token), Content_Type="application/xml")]

        with HostileServer(answer) as server:
            io = load_file_io(eval(_S3, {"uri": server.uri}))
            reason = "its next page is the same again" if is_cycle else "names of more than 100000 bytes"
            with pytest.raises(StorageError, match=reason), open_directory(io, "s3://b/w", "list") as (store, path):
                store.names(path, "v")
            assert len(server.seen) < 20

    def test_of_folders_in_folders(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhdfs, "_DEEPEST", 20)
        inner = {"pathSuffix": "a", "type": "DIRECTORY", "length": 0, "modificationTime": 0}
        with HostileServer(lambda _: [whole(json.dumps({"FileStatuses": {"FileStatus": [inner]}}).encode())]) as server:
            io = load_file_io({"hdfs.host": server.uri[7:]})
            with pytest.raises(StorageError, match="folders are nested more than 20 deep"):
                list(io.list(f"webhdfs://{server.uri[7:]}/w"))


class TestCredentialsThatExpired:
    """A server that lends those is named, with the table."""

    def test_in_an_error_of_this_package(self, quick: None) -> None:
        ended = {"s3.access-key-id": "AKIDOLD", "s3.secret-access-key": "s3cret-key", "s3.session-token": "s3ssion"}
        ended |= {"s3.session-token-expires-at-ms": "1700000000000", "s3.region": "us-east-1"}
        with Script() as server:
            lent = table(config={**ended, "s3.endpoint": server.uri})
            server.on(LOAD, document(lent))
            state = load_catalog("prod", uri=server.uri).load("db.t")
            assert state.io is not None
            for ask in (lambda io: io.read("s3://b/x"), lambda io: io.filesystem("s3://b/x")[0].cat_file("b/x")):
                with pytest.raises(StorageError) as error:
                    ask(state.io)
                assert str(error.value) == (
                    "catalog prod cannot get credentials of table db.t: those that its server lends expired at "
                    "2023-11-14T22:13:20+00:00 already; compare the clocks of this machine and of the server"
                )

    def test_keys_that_sign_requests_to_a_catalog(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old = '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": "2020-01-01T00:00:00Z"}'
        config = tmp_path / "config"
        config.write_text(f"[profile old]\ncredential_process = echo '{old}'\n")
        for name, value in {"AWS_CONFIG_FILE": str(config), "AWS_EC2_METADATA_DISABLED": "true"}.items():
            monkeypatch.setenv(name, value)
        given = {"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1", "client.profile-name": "old"}
        with pytest.raises(StorageError, match="catalog prod: there are no valid AWS keys to sign requests with"):
            load_catalog("prod", uri="http://127.0.0.1:9", **given).load("db.t")
        glue = {"glue.region": "us-east-1", "glue.profile-name": "old", "glue.endpoint": "http://127.0.0.1:9"}
        with pytest.raises(StorageError, match=r"catalog prod cannot ask Glue at .* there are no valid credentials"):
            load_catalog("prod", type="glue", **glue).load("db.t")


def _call_of(name: bytes) -> bytes:
    return struct.pack(">iI", -2147418110, len(name)) + name + struct.pack(">i", 1)


_LIST = _call_of(b"get_all_databases") + struct.pack(">bhb", 15, 0, 11)
_ALTER = _call_of(b"alter_database")


def _forever(first: bytes, then: bytes, pause_s: float = 0) -> Iterator[bytes]:
    yield first
    while True:
        time.sleep(pause_s)
        yield then


class HostileMetastore(Listening):
    def __init__(self, answer: Callable[[], Iterable[bytes]]) -> None:
        self.calls = 0
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    self.request.recv(65536)
                    owner.calls += 1
                    for part in answer():
                        self.request.sendall(part)
                    threading.Event().wait(20)
                except OSError:
                    pass

        self.listen(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        self.uri = f"thrift://127.0.0.1:{self.port}"


class TestAMetastore:
    """Thrift says lengths before what they are of."""

    BOMBS: dict[str, Any] = {
        "a list of 2 billion": lambda: [_LIST + struct.pack(">i", 2**31 - 1)],
        "a text of 2 GB": lambda: [_LIST + struct.pack(">ii", 1, 2**31 - 1)],
        "an endless list": lambda: _forever(_LIST + struct.pack(">i", 900_000), (b"\0\0\0\x40" + b"a" * 64) * 1000),
        "structs in structs": lambda: _forever(_call_of(b"get_all_databases"), b"\x0c\x7f\x00" * 10_000),
        "a page": lambda: [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100],
        "a drip": lambda: _forever(_LIST + struct.pack(">ii", 1, 1000), b"a", 0.05),
    }

    @pytest.mark.parametrize("name", BOMBS)
    def test_has_a_limit(self, name: str) -> None:
        with HostileMetastore(self.BOMBS[name]) as server:
            client = HiveClient("prod", {"uri": server.uri, "hive.metastore.client.socket.timeout": "500ms"})
            with pytest.raises(StorageError, match="catalog prod: lost the metastore at"):
                client.call("get_all_databases")
            assert server.calls == (2 if name == "structs in structs" else 1)

    def test_structs_without_fields_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are a byte each there, and hundreds of bytes in memory; the same answer is not asked for again."""
        monkeypatch.setattr(struct_limit, "METASTORE_STRUCTS", 1_000)
        call = _call_of(b"get_table_objects_by_name_req")
        answer = call + struct.pack(">bhbhbi", 12, 0, 15, 1, 12, 2_000) + b"\0" * 2_002
        with HostileMetastore(lambda: [answer]) as server:
            client = HiveClient("prod", {"uri": server.uri, "hive.metastore.client.socket.timeout": "500ms"})
            with pytest.raises(StorageError, match="it has more than 1000 structs, the most for an answer"):
                list(client.tables("db", ["t"]))
            assert server.calls == 1
            assert len([Table() for _ in range(1_100)]) == 1_100, "our own are not counted"

    @pytest.mark.parametrize("answer", [[_ALTER + struct.pack(">bhi", 12, 1, 2**31 - 1)], [_ALTER + b"\x0c\0\1"]])
    def test_the_outcome_of_a_change_stays_open(self, answer: list[bytes]) -> None:
        with HostileMetastore(lambda: answer) as server:
            client = HiveClient("prod", {"uri": server.uri, "hive.metastore.client.socket.timeout": "500ms"})
            with pytest.raises(ConnectionLostError):
                client.call("alter_database", dbname="db", db=None)
            assert server.calls == 1
