"""The REST catalog on the server of Iceberg Java's own tests: the reference for what the protocol means."""

import itertools
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation import OperationKey
from airflow_iceberg.errors import AlreadyExistsError, CommitUnknownError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, run_processes, setting
from tests.catalogs.rest_contract import RestContract, empty
from tests.services.iceberg_rest import IcebergRest
from tests.support.http_server import Fault, SpoilingProxy
from tests.support.iceberg_java import IcebergJava

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
COMMIT = r"POST /v1/namespaces/db/tables/\w+$"
ONE_ROW = pa.table({"writer": pa.array([1], pa.int32()), "number": pa.array([1], pa.int32())})
FAULTS = [
    Fault(matches=COMMIT, kind="not sent"),
    Fault(matches=COMMIT, kind="lost"),
    Fault(matches=COMMIT, kind="torn"),
    Fault(matches=COMMIT, kind="slow", delay_s=2),
    *(Fault(matches=COMMIT, kind="status", status=status) for status in (500, 502, 503, 504)),
    Fault(matches=COMMIT, kind="status", status=503, headers={"Retry-After": "0"}),
]


@pytest.fixture(scope="module")
def server():
    server = IcebergRest().start()
    yield server
    server.stop()


@pytest.fixture
def catalog(server):
    catalog = load_catalog("prod", **server.catalog_properties)
    empty(catalog)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def proxy(server):
    with SpoilingProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def shaky(proxy, catalog):
    """The catalog through a proxy; its patience ends before a slow answer comes."""
    return load_catalog("prod", uri=proxy.uri, **{"rest.client.socket-timeout-ms": "1000"})


def new_table(catalog, name="db.t"):
    properties = {"commit.retry.min-wait-ms": "10", "commit.status-check.min-wait-ms": "50"}
    return Table.create(catalog, name, schema={"writer": "int", "number": "int"}, properties=properties)


class TestContract(RestContract):
    """Iceberg Java's server is a catalog."""

    @pytest.fixture
    def properties(self, server):
        empty(load_catalog("clean", **server.catalog_properties))
        return server.catalog_properties


class TestLostAnswers:
    """Whatever becomes of the answer to a commit, an append is in the table once, and the table reads."""

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.status}")
    def test_one_commit_is_open(self, catalog, shaky, proxy, fault):
        state = make_table(catalog)
        shaky.load("db.t")
        proxy.faults = [fault]
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did commit to table db\.t"):
            shaky.commit(state, setting(a="1"))
        has_landed = catalog.load("db.t").metadata.properties.get("a") == "1"
        if fault.kind != "slow":  # which the server may still be at
            assert has_landed is (fault.kind != "not sent")
        assert shaky.commit(shaky.load("db.t"), setting(b="1")).metadata.properties["b"] == "1"

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.status}")
    def test_an_append_lands_once(self, catalog, shaky, proxy, fault):
        new_table(catalog)
        table = Table.load(shaky, "db.t")
        proxy.faults = [fault]
        result = table.append(ONE_ROW)
        assert proxy.faults == []
        assert result.outcome == "committed"
        found = Table.load(catalog, "db.t")
        assert [snapshot.snapshot_id for snapshot in found.snapshots()] == [result.snapshot_id]
        assert found.scan().to_arrow().to_pylist() == [{"writer": 1, "number": 1}]

    def test_so_does_one_that_loses_every_answer_for_a_while(self, catalog, shaky, proxy):
        new_table(catalog)
        table = Table.load(shaky, "db.t")
        proxy.faults = [
            Fault(matches=COMMIT, kind="not sent"),
            Fault(matches="GET .*/tables/t$", kind="lost"),
            Fault(matches=COMMIT, kind="status", status=502),
            Fault(matches="GET .*/tables/t$", kind="status", status=503),
        ]
        table.append(ONE_ROW)
        assert proxy.faults == []
        assert Table.load(catalog, "db.t").scan().to_arrow().num_rows == 1

    def test_a_change_of_the_schema_lands_once(self, catalog, shaky, proxy):
        new_table(catalog)
        table = Table.load(shaky, "db.t")
        proxy.faults = [Fault(matches=COMMIT, kind="lost")]
        table.alter([{"add_column": {"name": "color", "type": "string"}}])
        assert len(Table.load(catalog, "db.t").metadata.schemas) == 2

    def test_a_creation_is_open(self, catalog, shaky, proxy):
        proxy.faults = [Fault(matches="POST .*/tables$", kind="lost")]
        with pytest.raises(CommitUnknownError, match=r"cannot tell whether it did create table db\.t"):
            new_table(shaky)
        assert catalog.table_exists("db.t")

    def test_a_server_that_is_away_before_anything_is_sent_is_a_definite_failure(self, catalog, shaky, proxy):
        state = make_table(catalog)
        shaky.load("db.t")
        proxy.close()
        shaky._server.http._session.close()
        with pytest.raises(StorageError, match="no answer"):
            shaky.commit(state, setting(a="1"))
        assert catalog.load("db.t") == state

    def test_a_server_that_was_restarted_between_two_calls_is_no_failure(self, server, catalog):
        state = make_table(catalog)
        server.kill()
        server.start()
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")


class TestAKilledWriter:
    """A writer that is killed while it waits for the answer has committed; the next one with its key finds that."""

    KEY = OperationKey(dag_id="load", run_id="r1", task_id="append")
    PROGRAM = """
import json, sys
import pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation import OperationKey
from airflow_iceberg.table import Table
rows = pa.table({"writer": pa.array([1], pa.int32()), "number": pa.array([1], pa.int32())})
key = OperationKey(dag_id="load", run_id="r1", task_id="append")
print(Table.load(load_catalog("prod", uri=sys.argv[1]), "db.t").append(rows, operation=key).outcome, flush=True)
"""

    @pytest.mark.parametrize(("kind", "outcome"), [("slow", "found"), ("not sent", "committed")])
    def test_its_append_lands_once(self, catalog, proxy, kind, outcome):
        new_table(catalog)
        reached = proxy.on_fault
        proxy.faults = [Fault(matches=COMMIT, kind=kind, delay_s=30)]
        command = [sys.executable, "-c", self.PROGRAM, proxy.uri]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert reached.wait(60)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        result = Table.load(catalog, "db.t").append(ONE_ROW, operation=self.KEY)
        assert result.outcome == outcome
        assert Table.load(catalog, "db.t").scan().to_arrow().num_rows == 1
        again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert again.stdout.strip() == "found"
        assert len(Table.load(catalog, "db.t").snapshots()) == 1


class TestRoundTrips:
    """A commit costs one request, and one load before it; docs/connections.md has the table."""

    def test_a_load_and_a_commit_cost_one_request_each(self, catalog, proxy):
        new_table(catalog)
        mine = load_catalog("prod", uri=proxy.uri)
        table = Table.load(mine, "db.t")
        assert proxy.calls() == ["GET /v1/config", "GET /v1/namespaces/db/tables/t"]
        table.append(ONE_ROW)
        assert proxy.calls() == ["POST /v1/namespaces/db/tables/t"]
        table.append(ONE_ROW)
        assert proxy.calls() == ["POST /v1/namespaces/db/tables/t"]
        table.refresh()
        assert proxy.calls() == ["GET /v1/namespaces/db/tables/t"]

    def test_a_lost_race_costs_a_load_and_a_commit_more(self, catalog, proxy):
        mine = Table.load(load_catalog("prod", uri=proxy.uri), new_table(catalog).identifier)
        Table.load(catalog, "db.t").append(ONE_ROW)
        proxy.calls()
        mine.append(ONE_ROW)
        table = "/v1/namespaces/db/tables/t"
        assert proxy.calls() == [f"POST {table}", f"GET {table}", f"POST {table}"]

    def test_a_table_that_has_not_changed_is_not_sent_again(self, catalog, proxy):
        new_table(catalog)
        mine = load_catalog("prod", uri=proxy.uri)
        assert mine.load("db.t") is mine.load("db.t")
        Table.load(catalog, "db.t").append(ONE_ROW)
        assert mine.load("db.t") == catalog.load("db.t")


class TestTablesWithAHistory:
    """A table with snapshots is created in two steps, and nobody sees half of it."""

    def test_it_is_there_with_all_that_it_had(self, catalog):
        first = new_table(catalog)
        first.append(ONE_ROW)
        copied = replace(first.metadata, metadata_log=(), table_uuid=str(uuid.uuid4()))
        state = catalog.create("db.copy", copied)
        assert state == catalog.load("db.copy")
        found = Table.load(catalog, "db.copy")
        assert found.refs == first.refs
        assert found.scan().to_arrow() == first.scan().to_arrow()
        found.append(ONE_ROW)
        assert found.scan().to_arrow().num_rows == 2
        assert Table.load(catalog, "db.t").scan().to_arrow().num_rows == 1

    def test_a_name_that_is_taken_stays_taken(self, catalog):
        first = new_table(catalog)
        first.append(ONE_ROW)
        with pytest.raises(AlreadyExistsError):
            catalog.create("db.t", first.metadata)
        with pytest.raises(NotFoundError, match="there is no namespace nope"):
            catalog.create("nope.t", first.metadata)


class TestRegistration:
    """A registration over a table that is there is asked for by name, and refused by a server that can't do it."""

    def test_nothing_is_changed_by_a_refusal(self, catalog):
        table = new_table(catalog)
        before = table.metadata_location
        table.append(ONE_ROW)
        with pytest.raises(
            UnsupportedError, match="406 UnsupportedOperationException: Registering tables with overwrite"
        ):
            catalog.register_table("db.t", before, overwrite=True)
        assert Table.load(catalog, "db.t").scan().to_arrow().num_rows == 1


def append_in_process(properties, writer, appends, tag):
    table = Table.load(load_catalog("prod", **properties), "db.t")
    for number in range(appends):
        table.append(pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())}))


class TestManyWriters:
    """Of writers that append at once nobody loses a row, and none comes twice."""

    def check(self, catalog, expected):
        table = Table.load(catalog, "db.t")
        rows = table.scan().to_arrow().to_pylist()
        assert Counter((row["writer"], row["number"]) for row in rows) == Counter(expected)
        assert len(table.snapshots()) == len(expected)

    @pytest.mark.slow
    def test_eight_processes_with_125_appends_each_make_1000_snapshots(self, server, catalog):
        Table.create(catalog, "db.t", schema={"writer": "int", "number": "int"})  # with the waits of every table
        jobs = [(server.catalog_properties, writer, 125, "") for writer in range(8)]
        run_processes(append_in_process, jobs, seconds=900)
        self.check(catalog, [(writer, number) for writer in range(8) for number in range(125)])

    def test_pyiceberg_beside_us(self, server, catalog):
        program = """
import sys, pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
table = load_catalog("prod", type="rest", uri=sys.argv[1]).load_table("db.t")
for number in range(20):
    rows = pa.table({"writer": pa.array([9], pa.int32()), "number": pa.array([number], pa.int32())})
    while True:
        try:
            table.refresh().append(rows)
            break
        except CommitFailedException:
            pass
"""
        new_table(catalog)
        other = subprocess.Popen([sys.executable, "-c", program, server.uri], stderr=subprocess.PIPE, text=True)
        while not Table.load(catalog, "db.t").snapshots():
            assert other.poll() is None, other.stderr.read()
            time.sleep(0.05)
        run_processes(append_in_process, [(server.catalog_properties, writer, 20, "") for writer in range(2)])
        _, errors = other.communicate(timeout=120)
        assert other.returncode == 0, errors
        self.check(catalog, [(writer, number) for writer in (0, 1, 9) for number in range(20)])

    @pytest.mark.java
    def test_iceberg_java_beside_us(self, server, catalog, tmp_path):
        table = new_table(catalog)
        table.alter([{"set_properties": {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"}}])
        settings = {
            "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.prod.type": "rest",
            "spark.sql.catalog.prod.uri": server.uri,
            "spark.sql.catalog.prod.cache-enabled": "false",
        }
        with IcebergJava.start(tmp_path.as_uri(), **settings) as java:
            java.sql("insert into prod.db.t values (7, 0)")  # it is warm from here on
            with ThreadPoolExecutor(1) as pool:
                theirs = pool.submit(lambda: [java.sql(f"insert into prod.db.t values (7, {n})") for n in range(1, 16)])
                mine, number = Table.load(catalog, "db.t"), 0
                while not theirs.done() or number < 15:
                    rows = {"writer": pa.array([1], pa.int32()), "number": pa.array([number], pa.int32())}
                    mine.append(pa.table(rows))
                    number += 1
                    time.sleep(0.25)  # a Spark job takes longer than an append: it must get its turn
                theirs.result()
            read = Counter((row["writer"], row["number"]) for row in java.sql("select * from prod.db.t"))
        expected = [*((7, n) for n in range(16)), *((1, n) for n in range(number))]
        assert read == Counter(expected)
        self.check(catalog, expected)
        engines = [each.summary.get("engine-name") for each in Table.load(catalog, "db.t").snapshots()]
        turns = sum(one != other for one, other in itertools.pairwise(engines))
        assert turns >= 6, f"the two did not race: {turns} turns"
