"""Tables of a Hive Metastore that are no Iceberg tables: their files are added, become a snapshot, or they migrate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.hive import existing, thrift_interface
from airflow_iceberg.catalogs.hive.client import Connection, ConnectionLostError, HiveClient
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from airflow_iceberg.operations.existing.migration import MigrateTableRequest, migrate_table
from airflow_iceberg.table import Table
from tests.catalogs.hive_contract import empty_metastore
from tests.services.launch import HOST
from tests.support.iceberg_java import SMALL, IcebergJava, plain

pytestmark = pytest.mark.services

KEY = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=1, started_ms=1)
HIVE = "org.apache.hadoop.hive.ql.io"
CLASSES = {
    "parquet": (f"{HIVE}.parquet.MapredParquetInputFormat", f"{HIVE}.parquet.serde.ParquetHiveSerDe"),
    "text": ("org.apache.hadoop.mapred.TextInputFormat", "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    "hudi": ("org.apache.hudi.hadoop.HoodieParquetInputFormat", f"{HIVE}.parquet.serde.ParquetHiveSerDe"),
}
COLUMNS = {"id": "bigint", "name": "varchar(20)", "price": "decimal(9,2)", "tags": "array<struct<timestamp:timestamp>>"}


class Hive:
    """A metastore as Hive itself uses it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.folder = folder
        self._transport = TBufferedTransport(TSocket(HOST, port))
        self._transport.open()
        self.client = ThriftHiveMetastore.Client(TBinaryProtocol(self._transport))

    def close(self) -> None:
        self._transport.close()

    def _storage(self, location: Path, kind: str, columns: dict[str, str]) -> ttypes.StorageDescriptor:
        reads, serde = CLASSES[kind]
        return ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name=name, type=type_) for name, type_ in columns.items()],
            location=f"file:{location}",
            inputFormat=reads,
            outputFormat="org.apache.hadoop.mapred.TextOutputFormat",
            serdeInfo=ttypes.SerDeInfo(serializationLib=serde, parameters={}),
            bucketCols=[],
            sortCols=[],
            parameters={},
            numBuckets=-1,
        )

    def create(
        self,
        name: str = "old",
        *,
        kind: str = "parquet",
        columns: dict[str, str] | None = None,
        keys: dict[str, str] | None = None,
        table_type: str = "MANAGED_TABLE",
        **parameters: str,
    ) -> Path:
        folder = self.folder / "db.db" / name
        folder.mkdir(parents=True, exist_ok=True)
        table = ttypes.Table(
            tableName=name,
            dbName="db",
            sd=self._storage(folder, kind, columns or COLUMNS),
            partitionKeys=[ttypes.FieldSchema(name=key, type=type_) for key, type_ in (keys or {}).items()],
            parameters=parameters,
            tableType=table_type,
        )
        self.client.create_table(table)
        return folder

    def add_partition(self, values: list[str], location: Path, name: str = "old", kind: str = "parquet") -> None:
        storage = self._storage(location, kind, COLUMNS)
        self.client.add_partition(ttypes.Partition(values=values, dbName="db", tableName=name, sd=storage))

    def names(self) -> list[str]:
        return sorted(self.client.get_all_tables("db"))

    def partitioned(self) -> Path:
        """Two days: one in a folder of its own name, one that lies elsewhere; and one without a value."""
        folder = self.create(keys={"day": "date", "n": "tinyint"})
        elsewhere = self.folder / "elsewhere"
        for values, place, ids in (
            (["2026-01-01", "1"], folder / "day=2026-01-01" / "n=1", [1, 2]),
            (["2026-01-02", "2"], elsewhere, [3]),
            (["__HIVE_DEFAULT_PARTITION__", "3"], folder / "none", [4]),
        ):
            place.mkdir(parents=True)
            write(place / "000000_0", ids)
            (place / "_SUCCESS").touch()
            self.add_partition(values, place)
        # Hive does not know it, so nobody reads it.
        (folder / "day=2026-01-09" / "n=9").mkdir(parents=True)
        write(folder / "day=2026-01-09" / "n=9" / "000000_0", [99])
        return folder


def write(path: Path, ids: list[int]) -> None:
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{n}" for n in ids],
            "tags": pa.array(
                [[{"timestamp": 0}] for _ in ids], pa.list_(pa.struct([("timestamp", pa.timestamp("ns"))]))
            ),
        }
    )
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)


@pytest.fixture
def hive(hive_2_3_10, tmp_path) -> Iterator[Hive]:
    empty_metastore(hive_2_3_10.uri)
    load_catalog("prod", uri=hive_2_3_10.uri, warehouse=f"file:{tmp_path}").create_namespace("db")
    made = Hive(hive_2_3_10.port, tmp_path)
    yield made
    made.close()


@pytest.fixture
def catalog(hive, hive_2_3_10):
    return load_catalog("prod", uri=hive_2_3_10.uri, warehouse=f"file:{hive.folder}")


def rows(table: Table) -> list[tuple]:
    found = table.scan(selected_fields=("id", "day", "n")).to_arrow().to_pylist()
    return sorted((row["id"], row["day"], row["n"]) for row in found)


FIRST, SECOND = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
ALL = [(1, FIRST, 1), (2, FIRST, 1), (3, SECOND, 2), (4, None, 3)]


class TestAddedFiles:
    """`source` names a table of the metastore; its partitions are those that the metastore lists."""

    @pytest.fixture
    def target(self, catalog):
        schema = {"id": "long", "name": "string", "day": "date", "n": "int"}
        return Table.create(catalog, "db.new", schema=schema, partition_by=["day", "n"])

    def test_all_partitions(self, hive, target):
        hive.partitioned()
        assert target.add_files(source="db.old").added_data_files == 3
        assert rows(target) == ALL

    def test_some_partitions(self, hive, target):
        hive.partitioned()
        target.add_files(source="db.old", partition_filter={"day": None})
        target.add_files(source="db.old", partition_filter={"n": 2, "day": "2026-01-02"})
        assert rows(target) == ALL[2:]
        with pytest.raises(NotFoundError, match="none of the 3 partitions of the source"):
            target.add_files(source="db.old", partition_filter={"n": 7})

    def test_a_partition_outside_of_what_is_trusted(self, hive, target, tmp_path_factory):
        hive.partitioned()
        outside = tmp_path_factory.mktemp("outside")
        write(outside / "000000_0", [7])
        hive.add_partition(["2026-01-07", "7"], outside)
        with pytest.raises(InvalidInputError, match="allowed-locations"):
            target.add_files(source="db.old")
        assert target.refresh().current_snapshot() is None

    def test_folders_of_its_own(self, hive, target):
        folder = hive.partitioned()
        (folder / "none" / "1").mkdir()
        write(folder / "none" / "1" / "000000_0", [8])
        with pytest.raises(InvalidInputError, match="lies in a folder below that of its partition"):
            target.add_files(source="db.old")

    def test_no_such_table_and_no_such_catalog(self, hive, target, tmp_path):
        with pytest.raises(NotFoundError, match=r"there is no table db\.old in the metastore"):
            target.add_files(source="db.old")
        other = load_catalog("lake", type="hadoop", warehouse=f"{tmp_path}/lake")
        other.create_namespace("db")
        table = Table.create(other, "db.t", schema={"id": "long"})
        with pytest.raises(UnsupportedError, match="has Iceberg tables only"):
            table.add_files(source="db.old")


class TestSnapshots:
    """Columns and partitions are those of the metastore."""

    def test_of_a_partitioned_table(self, hive, catalog):
        hive.partitioned()
        table = Table.snapshot_table(catalog, "db.new", "db.old")
        columns = {field.name: str(field.type) for field in table.schema().fields}
        assert columns == {
            **{"id": "long", "name": "string", "price": "decimal(9, 2)", "tags": columns["tags"]},
            **{"day": "date", "n": "int"},
        }
        tags = table.scan(selected_fields=("tags",)).to_arrow()["tags"]
        assert tags.type.value_type.field("timestamp").type == pa.timestamp("us", tz="UTC")
        assert [field.name for field in table.spec().fields] == ["day", "n"]
        assert rows(table) == ALL
        assert table.properties["gc.enabled"] == "false"
        assert hive.names() == ["new", "old"]

    def test_of_one_without_partitions(self, hive, catalog):
        write(hive.create() / "000000_0", [1])
        table = Table.snapshot_table(catalog, "db.new", "db.old")
        assert table.scan(selected_fields=("id", "name")).to_arrow().to_pylist() == [{"id": 1, "name": "n1"}]

    def test_not_within_the_source(self, hive, catalog):
        folder = hive.partitioned()
        with pytest.raises(InvalidInputError, match="is in the folder of its source"):
            Table.snapshot_table(catalog, "db.new", "db.old", location=f"file://{folder}/new")

    def test_nor_above_one_of_its_partitions(self, hive, catalog):
        hive.partitioned()
        (hive.folder / "up").mkdir()
        (hive.folder / "elsewhere").rename(hive.folder / "up" / "elsewhere")
        hive.add_partition(["2026-01-03", "5"], hive.folder / "up" / "elsewhere")
        with pytest.raises(InvalidInputError, match=r"has the folder of its source in it, file://.*/up/elsewhere"):
            Table.snapshot_table(catalog, "db.new", "db.old", location=f"file://{hive.folder}/up/")

    @pytest.mark.parametrize("by", ["hive", "spark"])
    def test_buckets_are_not_kept_and_that_is_said(self, hive, catalog, caplog, by):
        noted = {"spark.sql.sources.schema.numBuckets": "4", "spark.sql.sources.schema.bucketCol.0": "name"}
        write(hive.create(**(noted if by == "spark" else {})) / "000000_0", [1])
        if by == "hive":
            table = hive.client.get_table("db", "old")
            table.sd.numBuckets, table.sd.bucketCols = 4, ["name"]
            hive.client.alter_table("db", "old", table)
        made = Table.snapshot_table(catalog, "db.new", "db.old")
        assert made.scan().to_arrow()["id"].to_pylist() == [1]
        assert "db.old has buckets of Hive, by name, which db.new does not keep" in caplog.text


class TestOtherTables:
    """One clear error, and nothing is created or renamed."""

    @pytest.mark.parametrize(
        ("table", "why"),
        [
            ({"kind": "text"}, "input format org.apache.hadoop.mapred.TextInputFormat"),
            ({"kind": "hudi"}, "input format org.apache.hudi"),
            ({"table_type": "VIRTUAL_VIEW"}, "view"),
            ({"storage_handler": "org.apache.hadoop.hive.hbase.HBaseStorageHandler"}, "storage handler"),
            ({"spark.sql.sources.provider": "delta"}, "source 'delta'"),
            ({"columns": {"u": "uniontype<int,string>"}}, "column 'u' is uniontype"),
        ],
        ids=["text", "hudi", "view", "hbase", "delta", "union"],
    )
    def test_kinds(self, hive, catalog, table, why):
        hive.create(**table)
        for make in (
            lambda: Table.snapshot_table(catalog, "db.new", "db.old"),
            lambda: Table.migrate_table(catalog, "db.old"),
        ):
            with pytest.raises(UnsupportedError, match=why):
                make()
            assert hive.names() == ["old"]

    def test_a_transactional_table(self):
        # A metastore without Hive's transactions refuses to hold one.
        name, found = TableId.parse("db.old"), thrift_interface.Table(parameters={"transactional": "TRUE"})
        with pytest.raises(UnsupportedError, match=r"it is a transactional \(ACID\) table"):
            existing._check_kind(name, found)

    def test_what_a_metastore_may_not_tell(self):
        column = thrift_interface.FieldSchema(name="c", type="list<" * 300_000)
        with pytest.raises(UnsupportedError, match="the type of a column has 1500000 characters"):
            existing._type(TableId.parse("db.old"), column)
        assert existing._spark_names({f"spark.sql.sources.schema.part.{'9' * 5_000}": "{}"}) == {}

    def test_a_partition_of_another_format(self, hive, catalog):
        folder = hive.partitioned()
        (folder / "text").mkdir()
        hive.add_partition(["2026-01-05", "5"], folder / "text", kind="text")
        with pytest.raises(UnsupportedError, match="its partition 2026-01-05/5 has the input format"):
            Table.migrate_table(catalog, "db.old")

    def test_a_file_that_does_not_fit(self, hive, catalog):
        folder = hive.partitioned()
        pq.write_table(pa.table({"id": ["x"]}), folder / "none" / "000001_0")
        with pytest.raises(InvalidInputError, match="column 'id'"):
            Table.migrate_table(catalog, "db.old")
        assert hive.names() == ["old"]
        assert hive.client.get_table("db", "old").parameters.get("EXTERNAL") is None


class TestMigration:
    """The Iceberg table has the name, the location and the files; the old entry is a backup."""

    def test_a_managed_table(self, hive, catalog):
        folder = hive.partitioned()
        table = Table.migrate_table(catalog, "db.old")
        assert rows(table) == ALL
        assert (table.location, table.properties["migrated"]) == (f"file://{folder}", "true")
        assert hive.names() == ["old", "old_backup_"]
        assert len(hive.client.get_partition_names("db", "old_BACKUP_", -1)) == 3
        assert (folder / "day=2026-01-01" / "n=1" / "000000_0").exists(), "a rename does not move files"
        new = pa.table({"id": pa.array([9], pa.int64()), "n": pa.array([9], pa.int32())})
        table.append(new)
        assert [row[0] for row in rows(table)] == [1, 2, 3, 4, 9]

    def test_the_backup_is_dropped_and_its_files_are_not(self, hive, catalog):
        hive.partitioned()
        table = Table.migrate_table(catalog, "db.old", drop_backup=True)
        assert (rows(table), hive.names()) == (ALL, ["old"])

    def test_a_name_for_the_backup_that_is_taken(self, hive, catalog):
        hive.partitioned()
        hive.create("kept")
        with pytest.raises(AlreadyExistsError, match=r"the name of its backup, db\.kept, is taken"):
            Table.migrate_table(catalog, "db.old", backup_table_name="kept")
        assert hive.names() == ["kept", "old"]

    def test_it_gets_its_name_back(self, hive, catalog, monkeypatch):
        hive.partitioned()
        before = hive.client.get_table("db", "old")

        def fails(*_: object, **__: object) -> None:
            raise InvalidInputError("no")

        monkeypatch.setattr(type(catalog), "swap_metadata", fails)
        with pytest.raises(InvalidInputError, match=r"^no$"):
            Table.migrate_table(catalog, "db.old")
        after = hive.client.get_table("db", "old")
        assert (hive.names(), after.tableType, after.sd) == (["old"], before.tableType, before.sd)
        changing = {"transient_lastDdlTime", "last_modified_time", "last_modified_by"}
        assert {k: v for k, v in after.parameters.items() if k not in changing} == {
            k: v for k, v in before.parameters.items() if k not in changing
        }
        assert not list(hive.folder.rglob("*.avro"))
        assert not list(hive.folder.rglob("*.metadata.json"))

    def test_another_catalog_has_no_such_tables(self, hive, tmp_path):
        lake = load_catalog("lake", type="hadoop", warehouse=f"{tmp_path}/lake")
        with pytest.raises(UnsupportedError, match="has Iceberg tables only"):
            Table.migrate_table(lake, "db.old")


class Killed(BaseException):
    """The process ends."""


@contextmanager
def trouble(monkeypatch: pytest.MonkeyPatch, what: str, number: int) -> Iterator[list[int]]:
    """Be killed before or after the n-th call to the metastore, or lose its answer."""
    inner, count = Connection.call, [0]

    def call(connection: Connection, name: str, /, **arguments: object) -> object:
        count[0] += 1
        if count[0] == number and what == "killed before":
            raise Killed
        answer = inner(connection, name, **arguments)
        if count[0] == number and what == "killed after":
            raise Killed
        if count[0] == number:
            connection.close()
            raise ConnectionLostError("the answer is lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "call", call)
        yield count


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", ["killed before", "killed after", "lost"])
@pytest.mark.parametrize("drop_backup", [False, True], ids=["", "drop"])
def test_a_migration_that_is_interrupted_at_every_call(hive, catalog, monkeypatch, what, drop_backup):
    """The rows are always there, in the old table, its backup or the new one; the next try does the rest, once."""
    request, name = MigrateTableRequest(drop_backup=drop_backup), TableId.parse("db.old")
    monkeypatch.setattr("airflow_iceberg.catalogs.hive.swap._PAUSES_SECONDS", (0.0, 0.01))
    number, hits = 1, 0
    while True:
        empty_metastore(catalog.properties["uri"])
        for path in sorted(hive.folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        catalog.create_namespace("db")
        hive.partitioned()
        with trouble(monkeypatch, what, number) as count:
            try:
                migrate_table(catalog, name, request, operation_key=KEY)
            except (Killed, IcebergError):
                pass
        if count[0] < number:
            break
        assert {"old"} & set(hive.names()) or "old_backup_" in hive.names()
        if catalog.table_exists(name):
            assert rows(Table.load(catalog, name)) == ALL
        _, result = migrate_table(catalog, name, request, operation_key=KEY)
        assert result.outcome in ("committed", "found")
        table = Table.load(catalog, name)
        assert (rows(table), len(table.snapshots())) == (ALL, 1), (what, number)
        assert hive.names() == (["old"] if drop_backup else ["old", "old_backup_"]), (what, number)
        number, hits = number + 1, hits + 1
    assert hits > 8


class TestATableWithoutPartitions:
    """The new table's metadata lies beside its files, from the first try on."""

    @pytest.fixture
    def name(self, hive) -> TableId:
        write(hive.create() / "000000_0", [1, 2])
        return TableId.parse("db.old")

    @pytest.fixture
    def begun(self, name, hive, catalog, monkeypatch) -> TableId:
        """The first try has died before the table was created."""

        def dies(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(type(catalog), "swap_metadata", dies)
            with pytest.raises(Killed):
                migrate_table(catalog, name, MigrateTableRequest(), operation_key=KEY)
        assert hive.names() == ["old_backup_"]
        return name

    def test_it_is_migrated_after_a_death_before_its_creation(self, begun, hive, catalog):
        assert list(hive.folder.rglob("*.avro"))
        _, result = migrate_table(catalog, begun, MigrateTableRequest(), operation_key=KEY)
        table = Table.load(catalog, begun)
        assert (result.outcome, table.scan().to_arrow()["id"].to_pylist()) == ("committed", [1, 2])

    def test_it_gets_its_name_back_when_a_later_try_cannot_plan(self, begun, hive, catalog):
        (hive.folder / "db.db" / "old" / "no-parquet").write_bytes(b"text")
        with pytest.raises(IcebergError, match="no-parquet"):
            migrate_table(catalog, begun, MigrateTableRequest(), operation_key=KEY)
        assert hive.names() == ["old"]

    def test_what_another_migration_has_set_aside_is_left_alone(self, begun, hive, catalog):
        request = MigrateTableRequest(backup_table_name="old_BACKUP_", drop_backup=True)
        with pytest.raises(NotFoundError, match=r"there is no table db\.misspelled"):
            migrate_table(catalog, TableId.parse("db.misspelled"), request, operation_key=KEY)
        assert hive.names() == ["old_backup_"]
        assert migrate_table(catalog, begun, MigrateTableRequest(), operation_key=KEY)[1].outcome == "committed"

    def test_a_backup_is_never_migrated_again(self, name, hive, catalog):
        migrate_table(catalog, name, MigrateTableRequest(), operation_key=KEY)
        catalog.rename_table(name, TableId.parse("db.orders"))
        with pytest.raises(NotFoundError, match=r"there is no table db\.old"):
            migrate_table(catalog, name, MigrateTableRequest(), operation_key=KEY)
        assert hive.names() == ["old_backup_", "orders"]
        assert hive.client.get_table("db", "old_backup_").tableType == "EXTERNAL_TABLE"


def test_a_creation_whose_outcome_is_unknown_keeps_everything(hive, catalog, monkeypatch):
    hive.partitioned()
    name = TableId.parse("db.old")

    def unknown(*_: object, **__: object) -> None:
        raise CommitUnknownError("who knows")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "swap_metadata", unknown)
        with pytest.raises(CommitUnknownError):
            migrate_table(catalog, name, MigrateTableRequest(), operation_key=KEY)
    assert hive.names() == ["old_backup_"]
    assert list(hive.folder.rglob("*.avro")), "the table may need them"
    _, result = migrate_table(catalog, name, MigrateTableRequest(), operation_key=KEY)
    assert (result.outcome, result.added_data_files, result.added_records) == ("committed", 3, 4)
    assert HiveClient("test", dict(catalog.properties)).table("db", "old").parameters["table_type"] == "ICEBERG"


@pytest.mark.parametrize("server", ["hive_4", pytest.param("hive_2_3_9", marks=pytest.mark.long)])
def test_on_other_metastores(request, tmp_path, server):
    metastore = request.getfixturevalue(server)
    empty_metastore(metastore.uri)
    catalog = load_catalog("prod", uri=metastore.uri, warehouse=f"file:{tmp_path}")
    catalog.create_namespace("db")
    hive = Hive(metastore.port, tmp_path)
    hive.partitioned()
    assert rows(Table.snapshot_table(catalog, "db.new", "db.old")) == ALL
    assert rows(Table.migrate_table(catalog, "db.old", drop_backup=True)) == ALL
    assert hive.names() == ["new", "old"]
    hive.close()


@pytest.fixture(scope="module")
def spark_hive(hive_2_3_10, tmp_path_factory) -> Iterator[IcebergJava]:
    """Spark 3.5 with its own support of Hive, on the metastore."""
    settings = {
        **SMALL,
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": hive_2_3_10.uri,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.sql.hive.convertMetastoreParquet": "false",
        "spark.sql.hive.convertMetastoreOrc": "false",
    }
    with IcebergJava.start(tmp_path_factory.mktemp("java").as_uri(), **settings) as java:
        yield java


@pytest.mark.java
@pytest.mark.sample(3)
class TestTablesThatSparkHasWritten:
    """The rows are those that Spark reads, in the files that Hive's own classes have written."""

    @pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
    @pytest.mark.parametrize("way", ["add", "snapshot", "migrate"])
    def test_rows(self, hive, catalog, spark_hive, tmp_path, kind, way):
        # Files of ORC and Avro have times without a zone, and are an error where the metastore has a timestamp.
        seen = "timestamp" if kind == "parquet" else "date"
        spark_hive.sql(
            f"create external table db.old (Id bigint, name varchar(20), price decimal(9,2), code char(3), "
            f"seen {seen}, tags array<string>, counts map<string, int>, at struct<x: double, y: double>) "
            f"partitioned by (Day date, n smallint) stored as {kind} location 'file:{tmp_path}/db.db/old'"
        )
        spark_hive.sql(
            "insert into db.old partition (day, n) select * from values "
            "(1, 'a', 1.50, 'abc', timestamp '2026-01-01 10:00:00', array('x'), map('k', 1), "
            "named_struct('x', 0.5d, 'y', 1d), date '2026-01-01', 1s), "
            "(2, null, null, 'xyz', null, null, map('k', 2), "
            "named_struct('x', 2.5d, 'y', null), date '2026-01-02', 2s), "
            "(3, 'c', 3.00, 'def', timestamp '1969-12-31 23:59:59.5', array(), map(), null, null, 3s)"
        )
        spark_hive.sql(f"alter table db.old add partition (day = '2026-02-01', n = 7) location 'file:{tmp_path}/far'")
        spark_hive.sql(
            "insert into db.old partition (day = '2026-02-01', n = 7) values "
            "(4, 'd', 4.00, 'ghi', null, array('y', null), map('z', null), named_struct('x', 1d, 'y', 2d))"
        )
        expected = sorted(spark_hive.rows("select * from db.old"), key=lambda row: row["Id" if "Id" in row else "id"])
        if way == "add":
            model = Table.snapshot_table(catalog, "db.model", "db.old")
            table = Table.create(catalog, "db.new", schema=model.schema(), partition_by=["Day", "n"])
            table.add_files(source="db.old")
        elif way == "snapshot":
            table = Table.snapshot_table(catalog, "db.new", "db.old")
        else:
            table = Table.migrate_table(catalog, "db.old")
        found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["Id"])
        assert [plain_row(row) for row in found] == [lower(row) for row in expected]
        assert [row["Id"] for row in spark_hive.load(table.metadata_location)] != []


def plain_row(row: dict) -> dict:
    """A row as Spark's rows are shown."""
    shown = {**row, "counts": None if row["counts"] is None else dict(row["counts"])}
    shown["at"] = None if row["at"] is None else {"struct": {name: plain(one) for name, one in row["at"].items()}}
    return {name.lower(): value if name == "at" else plain(value) for name, value in shown.items()}


def lower(row: dict) -> dict:
    return {name.lower(): value for name, value in row.items()}
