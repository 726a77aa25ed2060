"""Hadoop tables that are on no local disk: the two faults of Iceberg Java, and writers that are killed.

Many writers at once are in `test_races`, Iceberg Java beside us in `test_races_beside`.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import CommitConflictError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, new_catalog, setting
from tests.catalogs.races import row
from tests.services.http_proxy import HttpProxy, fail_after, lose_reply, lose_request
from tests.services.seaweedfs import BUCKET

pytestmark = pytest.mark.services


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


class TestLostRenameRepliesThatDestroyTablesOfIcebergJava:
    """Iceberg Java takes a rename whose reply was lost for a failure and cleans up after its own landed commit.

    Then the table cannot be read. Here what lies there decides.
    """

    @pytest.mark.parametrize("fault", [lose_reply, lose_request, fail_after(500)])
    @pytest.mark.parametrize("properties", ["webhdfs"], indirect=True)
    def test_the_commit_lands_once_and_its_files_stay(self, hdfs, properties, fault):
        catalog = new_catalog(**properties)
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
        catalog = new_catalog(**properties)
        base = make_table(catalog)
        catalog.commit(base, setting(a="1"))
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(**{"write.metadata.compression-codec": "gzip"}))
        assert "write.metadata.compression-codec" not in catalog.load("db.t").metadata.properties

    @pytest.mark.parametrize("properties", ["hdfs", "webhdfs", "s3"], indirect=True)
    def test_the_next_version_in_the_other_spelling_is_seen(self, properties):
        catalog = new_catalog(**properties)
        base = make_table(catalog)
        location = base.metadata_location.replace("/v1.metadata.json", "/v2.gz.metadata.json")
        catalog.io.create(location, b"\x1f\x8b of somebody else")
        with pytest.raises(CommitConflictError):
            catalog.commit(base, setting(a="1"))


class TestKilledWriters:
    """A writer that is killed in the middle of its commits leaves a table that reads; no commit is half there."""

    @pytest.mark.parametrize("properties", ["hdfs", "s3"], indirect=True)
    def test_the_table_reads_and_goes_on(self, properties):
        catalog = new_catalog(**properties)
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
