"""The folder of a source passes the gate before it is listed, or any file in it is read."""

import io

import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs.rest.catalog import RestCatalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.table import Table
from tests.support.builders import id_rows
from tests.support.http_server import HttpServer, document
from tests.support.memory import MemoryFileIO
from tests.support.recording import RecordingFileIO

SCHEMA = {"id": "long"}


def take_over(catalog, source, **more):
    """Yield each way by which files of a folder become those of a table."""
    yield lambda: Table.snapshot_table(catalog, "db.s", source, **more)
    yield lambda: Table.snapshot_table(catalog, "db.s", source, schema=SCHEMA, rewrite_unfit=True, **more)
    yield lambda: Table.migrate_table(catalog, "db.m", source)
    yield lambda: Table.migrate_table(catalog, "db.m", source, schema=SCHEMA)
    yield lambda: Table.load(catalog, "db.t").add_files(source=source)
    yield lambda: Table.load(catalog, "db.t").add_files([f"{source}/bonus.parquet"])
    yield lambda: Table.load(catalog, "db.t").add_files(source=source, rewrite_unfit=True)


def refused(ways, recorded, *, own):
    for way in ways:
        recorded.calls.clear()
        with pytest.raises(IcebergError) as found:
            way()
        text = str(found.value)
        assert isinstance(found.value, InvalidInputError), text
        assert "'allowed-locations'" in text or "local files need a local warehouse" in text or "'..'" in text
        for word in ("salaries", "31337", "PAR", "root:"):
            assert word not in text, text
        assert [call for call in recorded.calls if not call[1].startswith(own)] == []


@pytest.fixture
def secrets(tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "salaries-31337.txt").write_bytes(b"root:x:0:31337")
    (folder / "bonus.parquet").write_bytes(b"PAR1 root:x PAR1")
    return folder


class TestTheGateIsAskedFirst:
    """No name, size or byte of what may not be read is in an error, and no call reaches the store."""

    @pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "{}/", "{}/../secret", "{}/./", "/{}"])
    def test_of_a_local_folder(self, secrets, tmp_path, form):
        properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
        catalog = SqlCatalog("prod", properties, io=RecordingFileIO(load_file_io()))
        catalog.create_namespace("db")
        Table.create(catalog, "db.t", schema=SCHEMA)
        refused(take_over(catalog, form.format(secrets)), catalog.io, own=f"file://{tmp_path}/wh")

    @pytest.mark.parametrize(
        "source", ["memory://other/a", "file://{}", "{}", "s3://other/a", "memory://warehouse/../other/a"]
    )
    def test_beside_a_remote_warehouse(self, secrets, tmp_path, source):
        inner = MemoryFileIO()
        inner.create("memory://other/a/salaries-31337.txt", b"root:")
        inner.create("memory://other/a/bonus.parquet", b"PAR1 root:x PAR1")
        properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "memory://warehouse"}
        catalog = SqlCatalog("prod", properties, io=RecordingFileIO(inner))
        catalog.create_namespace("db")
        Table.create(catalog, "db.t", schema=SCHEMA)
        refused(take_over(catalog, source.format(secrets)), catalog.io, own="memory://warehouse/db")
        # A namespace that somebody has placed there changes nothing.
        catalog.create_namespace("evil", {"location": source.format(secrets).rpartition("/")[0]})
        for way in (Table.snapshot_table, Table.migrate_table):
            catalog.io.calls.clear()
            with pytest.raises(InvalidInputError):
                way(catalog, "evil.s", source.format(secrets))
            assert catalog.io.calls == []

    @pytest.mark.parametrize(
        ("warehouse", "location"),
        [
            ("memory://warehouse", None),
            ("memory://warehouse", "file:///"),
            ("prod", "memory://warehouse/db"),
            ("prod", "file:///"),
            ("prod", None),
        ],
    )
    def test_where_a_server_chooses_the_location(self, secrets, warehouse, location):
        """The bucket of a server's table is known by the connection, or by the namespace if the connection has none."""
        namespace = {"namespace": ["db"], "properties": {"location": location} if location else {}}

        def answer(request):
            if "/config" in request.path:
                return document({"defaults": {}, "overrides": {}})
            if "/tables" in request.path:
                refusal = {"error": {"message": "not here", "type": "NoSuchTableException", "code": 404}}
                return document(refusal, 404)
            return document(namespace)

        recorded = RecordingFileIO(MemoryFileIO())
        with HttpServer(answer) as server:
            catalog = RestCatalog("prod", {"uri": server.uri, "warehouse": warehouse}, io=recorded)
            sources = [f"file://{secrets}", str(secrets)]
            sources += (
                ["memory://other/a"] if location != "file:///" and (warehouse, location) != ("prod", None) else []
            )
            for source in sources:
                # Without any location in the connection, a remote folder may become a table in its own bucket.
                most = 2 if (warehouse, source) == ("prod", "memory://other/a") else 4
                refused(list(take_over(catalog, source))[:most], recorded, own="nothing")

    def test_what_is_allowed_is_taken(self, tmp_path):
        inner = MemoryFileIO()
        with io.BytesIO() as file:
            pq.write_table(id_rows([5, 6]), file)
            inner.create("memory://other/a/x.parquet", file.getvalue())
        properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "memory://warehouse"}
        catalog = SqlCatalog("prod", {**properties, "allowed-locations": "memory://other/a"}, io=inner)
        catalog.create_namespace("db")
        assert Table.snapshot_table(catalog, "db.s", "memory://other/a").scan().to_arrow()["id"].to_pylist() == [5, 6]


class TestTheFolderOfATable:
    """A folder in which a table has its metadata becomes no other table."""

    @pytest.mark.parametrize("below", ["", "/data"])
    def test_is_not_migrated(self, below, tmp_path):
        properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "memory://warehouse"}
        catalog = SqlCatalog("prod", properties, io=MemoryFileIO())
        catalog.create_namespace("db")
        table = Table.create(catalog, "db.t", schema=SCHEMA)
        table.append(id_rows([1]))
        with pytest.raises(InvalidInputError, match=r"table db\.m cannot lie at .*: another table has its metadata at"):
            Table.migrate_table(catalog, "db.m", f"{table.location}{below}")
        assert not catalog.table_exists("db.m")
