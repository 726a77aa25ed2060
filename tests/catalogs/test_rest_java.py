"""The REST catalog on the server of Iceberg Java's own tests: the reference for what the protocol means."""

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.gate import place_of
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, setting
from tests.catalogs.rest_contract import RestContract, empty
from tests.support.builders import id_rows
from tests.support.http_server import Fault, SpoilingProxy
from tests.support.meanwhile import THEIRS, check_table
from tests.support.recording import commit_foreign_file

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
def server(iceberg_rest):
    return iceberg_rest


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
    return behind(proxy, catalog, **{"rest.client.socket-timeout-ms": "1000"})


def behind(proxy, catalog, **properties):
    """Return the same catalog through a proxy; its tables are on this disk."""
    trusted = {"allowed-locations": catalog.properties["warehouse"]}
    return load_catalog("prod", uri=proxy.uri, **trusted, **properties)


def new_table(catalog, name="db.t"):
    properties = {"commit.retry.min-wait-ms": "10", "commit.status-check.min-wait-ms": "50"}
    return Table.create(catalog, name, schema={"writer": "int", "number": "int"}, properties=properties)


class TestContract(RestContract):
    """Iceberg Java's server is a catalog."""

    @pytest.fixture
    def properties(self, server):
        empty(load_catalog("clean", **server.catalog_properties))
        return server.catalog_properties


class TestWhereATableMayLie:
    """The server places a table where its namespace says; whoever creates a namespace says that."""

    def filled(self, catalog, name, location=None):
        catalog.create_namespace(TableId.of(name).namespace, if_not_exists=True)
        if location is None:
            Table.create(catalog, name, schema={"id": "long"})
        else:  # as other programs do
            schema = schema_from_shorthand({"id": "long"})
            made = new_table_metadata(location=location, schema=schema, table_uuid=str(uuid.uuid4()), now_ms=1)
            catalog.create(name, made)
        table = Table.load(catalog, name)
        table.append(id_rows([1, 2]))
        table.overwrite(id_rows([3]))
        return table

    @pytest.mark.parametrize("place", ["{}/data", "{}/data/x", "{}", "{}/.."])
    def test_a_table_in_or_above_the_folder_of_another_one(self, catalog, place):
        """Where the server places it, by the location of its namespace or since it was told so."""
        victim = self.filled(catalog, f"hr{uuid.uuid4().hex}.salaries")
        files = {status.location for status in victim.io.list(victim.location)}
        location = f"file://{os.path.normpath(place.format(place_of(victim.location).path))}"
        with pytest.raises(InvalidInputError, match="cannot lie at"):
            Table.create(catalog, "db.evil", schema={"id": "long"}, location=location)
        evil = self.filled(catalog, "evil.t", location)
        for path in sorted(path for path in files if path.endswith(".parquet")):
            commit_foreign_file(catalog, "evil.t", path)
        Table.load(catalog, "evil.t").delete("id > 0")
        expire_snapshots(Work(Table.load(catalog, "evil.t")), ExpireSnapshotsRequest(older_than_ms=2**62))
        request = RemoveOrphanFilesRequest(action="delete", older_than_ms=2**62, allow_recent=True)
        with pytest.raises(IcebergError, match=r"outside of the table's own|shares its location|is where table"):
            remove_orphan_files(Work(evil.refresh()), request)
        with pytest.raises(InvalidInputError, match=r"another table is in its place|is where table"):
            catalog.drop_table("evil.t", purge=True)
        assert {status.location for status in victim.io.list(victim.location)} >= files
        assert victim.refresh().scan().to_arrow()["id"].to_pylist() == [3]

    def test_names_of_tables_and_namespaces(self, catalog):
        self.filled(catalog, "hr.salaries")
        with pytest.raises(AlreadyExistsError, match=r"table hr\.salaries exists already"):
            catalog.create_namespace("hr.salaries")
        catalog.create_namespace("hr.other")
        for create in (
            lambda: Table.create(catalog, "hr.other", schema={"id": "long"}),
            lambda: catalog.rename_table("hr.salaries", "hr.other"),
        ):
            with pytest.raises(AlreadyExistsError, match="it is a namespace"):
                create()

    def test_a_purge_of_an_honest_table_is_the_servers(self, catalog):
        """Also where it has the place of one that was dropped without its files."""
        name = f"hr{uuid.uuid4().hex}.salaries"
        first = self.filled(catalog, name)
        catalog.drop_table(name)
        table = self.filled(catalog, name)
        assert table.location == first.location
        expired = expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert (expired.deleted_data_files, expired.kept_files) == (1, 0)
        live = {task.file.file_path for task in table.scan().plan_files()}
        catalog.drop_table(name, purge=True)
        assert not live & {status.location for status in table.io.list(table.location)}


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
        shaky._server.http._exchange._session.close()
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
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.table import Table
rows = pa.table({"writer": pa.array([1], pa.int32()), "number": pa.array([1], pa.int32())})
key = OperationKey(dag_id="load", run_id="r1", task_id="append")
catalog = load_catalog("prod", uri=sys.argv[1], **{"allowed-locations": sys.argv[2]})
print(Table.load(catalog, "db.t").append(rows, operation_key=key).outcome, flush=True)
"""

    @pytest.mark.parametrize(("kind", "outcome"), [("slow", "found"), ("not sent", "committed")])
    def test_its_append_lands_once(self, catalog, proxy, kind, outcome):
        new_table(catalog)
        reached = proxy.on_fault
        proxy.faults = [Fault(matches=COMMIT, kind=kind, delay_s=30)]
        command = [sys.executable, "-c", self.PROGRAM, proxy.uri, catalog.properties["warehouse"]]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert reached.wait(60)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        result = Table.load(catalog, "db.t").append(ONE_ROW, operation_key=self.KEY)
        assert result.outcome == outcome
        assert Table.load(catalog, "db.t").scan().to_arrow().num_rows == 1
        again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert again.stdout.strip() == "found"
        assert len(Table.load(catalog, "db.t").snapshots()) == 1


class TestRoundTrips:
    """A commit costs one request, and one load before it; docs/rest-catalog.md has the table."""

    def test_a_load_and_a_commit_cost_one_request_each(self, catalog, proxy):
        new_table(catalog)
        mine = behind(proxy, catalog)
        table = Table.load(mine, "db.t")
        assert proxy.calls() == ["GET /v1/config", "GET /v1/namespaces/db/tables/t"]
        table.append(ONE_ROW)
        assert proxy.calls() == ["POST /v1/namespaces/db/tables/t"]
        table.append(ONE_ROW)
        assert proxy.calls() == ["POST /v1/namespaces/db/tables/t"]
        table.refresh()
        assert proxy.calls() == ["GET /v1/namespaces/db/tables/t"]

    def test_a_lost_race_costs_a_load_and_a_commit_more(self, catalog, proxy):
        mine = Table.load(behind(proxy, catalog), new_table(catalog).identifier)
        Table.load(catalog, "db.t").append(ONE_ROW)
        proxy.calls()
        mine.append(ONE_ROW)
        table = "/v1/namespaces/db/tables/t"
        assert proxy.calls() == [f"POST {table}", f"GET {table}", f"POST {table}"]

    def test_a_table_that_has_not_changed_is_not_sent_again(self, catalog, proxy):
        new_table(catalog)
        mine = behind(proxy, catalog)
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


def overtaken(catalog, monkeypatch, rival):
    """Let another writer commit once, right before a commit of this catalog reaches the server."""
    send, rivals = catalog.commit, [rival]

    def commit(base, change):
        if rivals:
            rivals.pop()(Table.load(load_catalog("prod", **catalog.properties), base.table))
        return send(base, change)

    monkeypatch.setattr(catalog, "commit", commit)


class TestOthersChangeMetadataJustBefore:
    """The server applies a change to its newest state: no requirement names the version, or an older snapshot."""

    def begun(self, catalog, version):
        properties = {"format-version": str(version), "commit.retry.min-wait-ms": "10"}
        schema = {"id": "long", "p": "long", "v": "long"}
        table = Table.create(catalog, "db.t", schema=schema, partition_by=["p"], properties=properties)
        for first in (0, 10):
            ids = [first + 1, first + 2]
            table.append(pa.table({"id": ids, "p": [1, 2], "v": ids}))
        return table

    @pytest.mark.parametrize(("version", "newer"), [(1, 2), (1, 3), (2, 3)])
    def test_an_upgrade_is_met_by_the_next_attempt(self, catalog, monkeypatch, version, newer):
        table = self.begun(catalog, version)
        overtaken(catalog, monkeypatch, lambda other: other.alter([{"upgrade_format_version": newer}]))
        table.delete("id = 1")
        assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 11, 12]
        assert table.metadata.format_version == newer
        check_table(table)

    def test_an_undo_does_not_restore_files_that_an_expiry_has_deleted(self, catalog, monkeypatch):
        table = self.begun(catalog, 2)
        table.delete("p = 1", operation_key=OperationKey(dag_id="d", run_id="r", task_id="t"))
        overtaken(catalog, monkeypatch, lambda other: THEIRS["expire"].do(other, {}))
        with pytest.raises(IncompatibleChangeError, match="cannot undo"):
            table.undo(dag_id="d", run_id="r")
        assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 12]

    def test_an_undo_is_made_and_leaves_no_tag(self, catalog):
        table = self.begun(catalog, 2)
        table.delete("p = 1", operation_key=OperationKey(dag_id="d", run_id="r", task_id="t"))
        table.undo(dag_id="d", run_id="r")
        assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 11, 12]
        assert set(table.refs) == {"main"}
