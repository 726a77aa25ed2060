"""The n-th answer of a real service is lost, or the writer is killed at it, for every n: on every catalog and store.

The short form takes some numbers, others for each change and fault, in four places; `make stress` takes them all.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager, nullcontext
from urllib.parse import urlsplit

import pytest

from airflow_iceberg.errors import InvalidInputError
from tests.catalogs.drill import CHANGES, WHOLE_TABLES, Drill, TableDrill, Writers
from tests.services.launch import HOST
from tests.services.tcp_proxy import TcpProxy

pytestmark = pytest.mark.services


def port_of(uri):
    return urlsplit(uri).port


# -- the places --------------------------------------------------------------------------------------------------------


@contextmanager
def hadoop_on_s3(_folder):
    from tests.services.seaweedfs import BUCKET, SeaweedFS

    server = SeaweedFS().start()
    try:
        with TcpProxy(HOST, port_of(server.s3_endpoint)) as proxy:
            # As a proxy: the name of the host is part of each signature.
            through = {**server.s3_properties, "s3.proxy-uri": f"http://{HOST}:{proxy.port}"}
            yield proxy, {"type": "hadoop", "warehouse": f"s3://{BUCKET}/{uuid.uuid4().hex}", **through}
    finally:
        server.stop()


@contextmanager
def hadoop_on_gcs(_folder):
    from tests.services.gcs import BUCKET, FakeGcs

    server = FakeGcs()
    try:
        with TcpProxy(HOST, port_of(server.endpoint)) as proxy:
            through = {**server.properties(), "gcs.service.host": f"http://{HOST}:{proxy.port}"}
            yield proxy, {"type": "hadoop", "warehouse": f"gs://{BUCKET}/{uuid.uuid4().hex}", **through}
    finally:
        server.stop()


@contextmanager
def hadoop_on_azure(_folder):
    from tests.services.azurite import Azurite

    server = Azurite()
    try:
        with TcpProxy(HOST, port_of(server.endpoint)) as proxy:
            address = server.connection_string().replace(f":{port_of(server.endpoint)}/", f":{proxy.port}/")
            warehouse = f"abfs://lake/{uuid.uuid4().hex}"
            yield proxy, {"type": "hadoop", "warehouse": warehouse, "adls.connection-string": address}
    finally:
        server.stop()


@contextmanager
def hadoop_on_hdfs(_folder, scheme="hdfs"):
    from tests.services.hdfs import Hdfs

    server = Hdfs()
    try:
        authority = server.authority if scheme == "hdfs" else server.web_authority
        with TcpProxy(HOST, port_of(f"//{authority}")) as proxy:
            warehouse = f"{scheme}://{HOST}:{proxy.port}/{uuid.uuid4().hex}"
            yield proxy, {"type": "hadoop", "warehouse": warehouse, "hdfs.user": "root"}
    finally:
        server.remove()


@contextmanager
def hadoop_on_webhdfs(folder):
    with hadoop_on_hdfs(folder, "webhdfs") as found:
        yield found


@contextmanager
def sql(folder):
    from tests.support.postgresql import PostgreSQL

    server = PostgreSQL()
    try:
        with TcpProxy(HOST, server.port) as proxy:
            yield proxy, {"uri": server.uri(port=proxy.port), "warehouse": f"file://{folder}/warehouse"}
    finally:
        server.remove()


@contextmanager
def rest(_folder):
    from tests.services.iceberg_rest import IcebergRest

    server = IcebergRest().start()
    try:
        with TcpProxy(HOST, server.port) as proxy:
            yield proxy, {**server.catalog_properties, "uri": f"http://{HOST}:{proxy.port}"}
    finally:
        server.stop()


# A lock that nobody asks after is given up by the metastore after the first; Hive's own five minutes are too long here.
IMPATIENT = {"hive.txn.timeout": "4s", "hive.timedout.txn.reaper.interval": "1s"}
EAGER = {"iceberg.hive.lock-heartbeat-interval-ms": "500", "iceberg.hive.lock-check-max-wait-ms": "100"}


@contextmanager
def hive(folder, **more):
    from tests.services.hive_metastore import metastore_2_3

    server = metastore_2_3(folder / "hive", conf=IMPATIENT)
    try:
        with TcpProxy(HOST, server.port) as proxy:
            warehouse = f"file:{folder}/warehouse"
            yield proxy, {"uri": f"thrift://{HOST}:{proxy.port}", "warehouse": warehouse, **EAGER, **more}
    finally:
        server.stop()


@contextmanager
def hive_without_locks(folder):
    from tests.catalogs.hive_contract import NO_LOCKS

    with hive(folder, **NO_LOCKS) as found:
        yield found


@contextmanager
def nessie(folder):
    from tests.services.nessie import start_nessie

    server, uri = start_nessie()
    try:
        with TcpProxy(HOST, port_of(uri)) as proxy:
            through = uri.replace(f":{port_of(uri)}/", f":{proxy.port}/")
            yield proxy, {"type": "nessie", "uri": through, "warehouse": f"file://{folder}/warehouse"}
    finally:
        server.stop()


@contextmanager
def glue(folder):
    from tests.services.glue import KEYS, start_glue

    server, address = start_glue()
    try:
        with TcpProxy(HOST, port_of(address)) as proxy:
            endpoint = f"http://{HOST}:{proxy.port}"
            yield proxy, {"type": "glue", "glue.endpoint": endpoint, "warehouse": f"file://{folder}/warehouse", **KEYS}
    finally:
        server.stop()


PLACES = {
    place.__name__.replace("_", " "): place
    for place in (
        *(hadoop_on_s3, hadoop_on_gcs, hadoop_on_azure, hadoop_on_hdfs, hadoop_on_webhdfs),
        *(sql, rest, hive, hive_without_locks, nessie, glue),
    )
}
# How many answers apart the short form takes them, so that each place has about three of each change and fault.
STRIDES = dict.fromkeys(PLACES, 11)


@pytest.fixture(scope="module")
def writers():
    writers = Writers()
    yield writers
    writers.close()


# Whose servers are quickly there; the others take a JVM or npm, and their time with `make stress`.
QUICK = {"hadoop on s3", "hadoop on gcs", "sql", "glue"}


@pytest.fixture(
    scope="module", params=[each if each in QUICK else pytest.param(each, marks=pytest.mark.long) for each in PLACES]
)
def drill(request, tmp_path_factory, writers):
    with PLACES[request.param](tmp_path_factory.mktemp("drill")) as (proxy, properties):
        yield request.param, Drill(properties, proxy, writers)


FAULTS = [(what, fault) for fault in ("lose", "kill") for what in CHANGES]
# A killed writer is a process of its own, so the short form kills at three of the changes.
FEWER = [(what, fault) for what, fault in FAULTS if fault == "lose" or what in ("append", "overwrite", "expire")]


def refusal(place, what):
    """Nessie's tables share files with other branches: neither expired nor purged while `gc.enabled` is false."""
    if place == "nessie" and what in ("expire", "purge"):
        return pytest.raises(InvalidInputError, match=r"gc\.enabled")
    return nullcontext()


class TestEachChange:
    """The table reads; the change is there once or not at all, and once when the task is tried again."""

    @pytest.mark.long
    @pytest.mark.parametrize(("what", "fault"), FAULTS)
    def test_at_every_answer(self, drill, what, fault):
        place, each = drill
        with refusal(place, what) as refused:
            assert each.run(what, "lose" if refused else fault) > 0

    @pytest.mark.parametrize(("what", "fault"), FEWER)
    def test_at_some_answers(self, drill, what, fault):
        place, each = drill
        with refusal(place, what) as refused:
            each.run(what, "lose" if refused else fault, stride=STRIDES[place])


class TestWholeTables:
    """A table that is made, renamed or dropped while an answer is lost is whole, under one name, or not there."""

    @pytest.mark.parametrize("what", WHOLE_TABLES)
    def test_at_every_answer(self, drill, what):
        place, each = drill
        # A Hadoop catalog refuses to rename before it asks anybody.
        is_asked = what != "rename" or not place.startswith("hadoop")
        with refusal(place, what):
            assert (TableDrill(each.properties, each.proxy, each.writers).run(what) > 0) == is_asked
