"""Many writers on Hadoop tables that are on no local disk, Iceberg Java among them, and the two faults that it has."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import CommitConflictError
from airflow_iceberg.table import Table
from tests.catalogs.contract import commit_in_process, make_table, run_processes, setting
from tests.services.hdfs import Hdfs
from tests.services.http_proxy import HttpProxy, fail_after, lose_reply, lose_request
from tests.services.seaweedfs import BUCKET, SeaweedFS
from tests.support.iceberg_java import IcebergJava

pytestmark = pytest.mark.services

WRITERS, COMMITS = 8, 125


@pytest.fixture(scope="module")
def hdfs():
    server = Hdfs()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def seaweedfs():
    server = SeaweedFS().start()
    yield server
    server.stop()


@pytest.fixture
def properties(request):
    """A new warehouse on the store that the test asks for."""
    name = uuid.uuid4().hex
    if request.param == "s3":
        server = request.getfixturevalue("seaweedfs")
        return {"type": "hadoop", "warehouse": f"s3://{BUCKET}/{name}", **server.s3_properties}
    server = request.getfixturevalue("hdfs")
    authority = server.authority if request.param == "hdfs" else server.web_authority
    return {"type": "hadoop", "warehouse": f"{request.param}://{authority}/{name}", "hdfs.user": "root"}


def new_catalog(properties):
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    return catalog


class TestManyWriters:
    """Eight processes with 125 commits each: a thousand versions, nothing lost, nothing doubled.

    Over HTTP to the same HDFS a dozen each: a request takes ten times as long there.
    """

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("properties", "commits"), [("hdfs", COMMITS), ("webhdfs", 12), ("s3", COMMITS)], indirect=["properties"]
    )
    def test_a_thousand_commits(self, properties, commits):
        catalog = new_catalog(properties)
        make_table(catalog, **{"write.metadata.previous-versions-max": "2000"})
        tags = [f"p{number}" for number in range(WRITERS)]
        run_processes(commit_in_process, [(properties, "db.t", commits, tag) for tag in tags], seconds=1500)
        state = catalog.load("db.t")
        assert {f"{tag}-{n}" for tag in tags for n in range(commits)} <= set(state.metadata.properties)
        assert len(state.metadata.metadata_log) == WRITERS * commits
        assert state.token == WRITERS * commits + 1


class TestLostRenameRepliesThatDestroyTablesOfIcebergJava:
    """Iceberg Java takes a rename whose reply was lost for a failure and cleans up after its own landed commit.

    Then the table cannot be read. Here what lies there decides.
    """

    @pytest.mark.parametrize("fault", [lose_reply, lose_request, fail_after(500)])
    @pytest.mark.parametrize("properties", ["webhdfs"], indirect=True)
    def test_the_commit_lands_once_and_its_files_stay(self, hdfs, properties, fault):
        catalog = new_catalog(properties)
        with HttpProxy(f"http://{hdfs.web_authority}") as proxy:
            warehouse = properties["warehouse"].replace(hdfs.web_authority, f"127.0.0.1:{proxy.port}")
            behind = load_catalog("prod", **{**properties, "warehouse": warehouse})
            table = Table.create(behind, "db.t", schema={"writer": "int", "number": "int"})
            proxy.on("PUT", "op=RENAME", fault)
            table.append(row(1, 1))
            assert Table.load(behind, "db.t").scan().to_arrow().num_rows == 1
        names = [status.location.rpartition("/")[2] for status in catalog.io.list(f"{properties['warehouse']}/db/t")]
        assert not [name for name in names if name.endswith(".tmp")]


class TestTwoSpellingsOfOneVersionThatIcebergJavaMakes:
    """Of two writers of Iceberg Java of whom one changes the codec both succeed, and one is lost. Here one loses."""

    @pytest.mark.parametrize("properties", ["hdfs", "webhdfs", "s3"], indirect=True)
    def test_one_of_the_two_is_told_that_it_lost(self, properties):
        catalog = new_catalog(properties)
        base = make_table(catalog)
        catalog.commit(base, setting(a="1"))
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(**{"write.metadata.compression-codec": "gzip"}))
        assert "write.metadata.compression-codec" not in catalog.load("db.t").metadata.properties

    @pytest.mark.parametrize("properties", ["hdfs", "webhdfs", "s3"], indirect=True)
    def test_the_next_version_in_the_other_spelling_is_seen(self, properties):
        catalog = new_catalog(properties)
        base = make_table(catalog)
        location = base.metadata_location.replace("/v1.metadata.json", "/v2.gz.metadata.json")
        catalog.io.create(location, b"\x1f\x8b of somebody else")
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(a="1"))


class TestKilledWriters:
    """A writer that is killed in the middle of its commits leaves a table that reads; no commit is half there."""

    @pytest.mark.parametrize("properties", ["hdfs", "s3"], indirect=True)
    def test_the_table_reads_and_goes_on(self, properties):
        catalog = new_catalog(properties)
        make_table(catalog)
        program = (
            "import json, sys\n"
            "from tests.catalogs.contract import commit_in_process\n"
            "commit_in_process(json.loads(sys.argv[1]), 'db.t', 10_000, sys.argv[2])\n"
        )
        for turn in range(3):
            before = catalog.load("db.t").token
            command = [sys.executable, "-c", program, json.dumps(properties), f"killed{turn}"]
            writer = subprocess.Popen(command, cwd=os.getcwd())
            while catalog.load("db.t").token < before + 3:
                assert writer.poll() is None
                time.sleep(0.01)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            landed = catalog.load("db.t").metadata.properties
            numbers = sorted(int(key.partition("-")[2]) for key in landed if key.startswith(f"killed{turn}-"))
            assert numbers == list(range(len(numbers)))
            state = catalog.commit(catalog.load("db.t"), setting(**{f"after-{turn}": "1"}))
            assert catalog.load("db.t") == state


@pytest.mark.java
class TestIcebergJavaBesideUs:
    """Iceberg Java commits to the same table on HDFS at the same time: nobody's rows are lost or doubled."""

    @pytest.mark.parametrize("properties", ["hdfs"], indirect=True)
    def test_both_append(self, properties):
        catalog = new_catalog(properties)
        table = Table.create(catalog, "db.t", schema={"writer": "int", "number": "int"})
        table.alter([{"set_properties": {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"}}])
        took = [1.0]
        with IcebergJava.start(properties["warehouse"]) as java:
            java.sql("insert into ref.db.t values (7, 0)")  # it is warm from here on

            def theirs() -> None:
                for number in range(1, 21):
                    start = time.monotonic()
                    java.sql(f"insert into ref.db.t values (7, {number})")
                    took[0] = time.monotonic() - start

            with ThreadPoolExecutor(1) as pool:
                running, number = pool.submit(theirs), 0
                while not running.done() or number < 20:
                    Table.load(catalog, "db.t").append(row(1, number))
                    number += 1
                    time.sleep(min(took[0], 2) * 0.5)
                running.result()
            expected = Counter([(7, n) for n in range(21)] + [(1, n) for n in range(number)])
            seen = java.sql("select writer, number from ref.db.t")
        assert Counter((each["writer"], each["number"]) for each in seen) == expected
        table = Table.load(catalog, "db.t")
        rows = table.scan().to_arrow().to_pylist()
        assert Counter((each["writer"], each["number"]) for each in rows) == expected
        engines = ["spark" in str(snapshot.summary) for snapshot in table.snapshots()]
        assert len(list(itertools.groupby(engines))) >= 6, "the two did not race"


def row(writer, number):
    return pa.table({"writer": pa.array([writer], pa.int32()), "number": pa.array([number], pa.int32())})
