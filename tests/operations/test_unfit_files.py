"""Files that readers of Iceberg would misread: refused, or their rows are written into new files in the same commit."""

import datetime as dt
import io
import logging
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.existing.migration import MigrateTableRequest, migrate_table
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, ids, new_table
from tests.support.memory import Fault, FaultyCatalog
from tests.support.sampling import SEED, sampled

KEY = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=1, started_ms=1)
CLEARED = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=1, started_ms=1, epoch=1)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def write(path: Path, rows: pa.Table | dict[str, Any], **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), path, **options)
    return f"file://{path}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


EXAMPLES: dict[str, tuple[str, pa.Array, str, Any]] = {
    "milliseconds": (
        "timestamptz",
        pa.array([NOON], pa.timestamp("ms", tz="UTC")),
        "is stored as INT64 TIMESTAMP(MILLIS, UTC)",
        NOON,
    ),
    "null type": ("string", pa.nulls(1), "is stored as INT32 UNKNOWN", None),
    "binary": ("string", pa.array([b"text"]), "is stored as BYTE_ARRAY", "text"),
    "time in ms": ("time", pa.array([1000], pa.time32("ms")), "is stored as INT32 TIME(MILLIS)", dt.time(0, 0, 1)),
    "unsigned": ("long", pa.array([7], pa.uint32()), "is stored as INT32 UINT(32)", 7),
    # Iceberg Java reads neither: "Unsupported logical type: UINT_8".
    "unsigned byte": ("int", pa.array([200], pa.uint8()), "is stored as INT32 UINT(8)", 200),
    "unsigned short": ("int", pa.array([60_000], pa.uint16()), "is stored as INT32 UINT(16)", 60_000),
    "unsigned in a struct": (
        "struct<n: int>",
        pa.array([{"n": 200}], pa.struct({"n": pa.uint8()})),
        "column 'c.n' is",
        {"n": 200},
    ),
    "long for int": ("int", pa.array([7], pa.int64()), "is stored as INT64", 7),
    "another scale": (
        "decimal(9, 2)",
        pa.array([Decimal("1.5")], pa.decimal128(9, 1)),
        "is stored as FIXED_LEN_BYTE_ARRAY(4) DECIMAL(9, 1)",
        Decimal("1.50"),
    ),
    "half": ("float", pa.array([1.5], pa.float32()).cast(pa.float16()), "FLOAT16", 1.5),
    "uuid without a mark": ("uuid", pa.array([b"0" * 16], pa.binary(16)), "is stored as FIXED", b"0" * 16),
    "fixed as binary": ("binary", pa.array([b"abc"], pa.binary(3)), "is stored as FIXED_LEN_BYTE_ARRAY(3)", b"abc"),
    "in a struct": (
        "struct<at: timestamptz>",
        pa.array([{"at": NOON}], pa.struct({"at": pa.timestamp("ms", tz="UTC")})),
        "column 'c.at' is",
        {"at": NOON},
    ),
    "in a list": ("list<string>", pa.array([[b"a"], [b"b"]][:1]), "column 'c.element' is", ["a"]),
    "in a map": (
        "map<string, timestamp>",
        pa.array([[("a", 1000)]], pa.map_(pa.string(), pa.timestamp("ms"))),
        "column 'c.value' is",
        [("a", dt.datetime(1970, 1, 1, 0, 0, 1))],  # noqa: DTZ001 - without a zone
    ),
}


class TestExamples:
    @pytest.mark.parametrize("example", EXAMPLES)
    def test_they_are_refused_or_written_anew(self, tmp_path, lake, example):
        kind, values, why, expected = EXAMPLES[example]
        table = new_table(tmp_path, schema={"id": "long", "c": kind})
        location = write(lake / "a.parquet", {"id": pa.array([1], pa.int64()), "c": values})
        with pytest.raises(InvalidInputError) as caught:
            table.add_files([location])
        for part in (location, why, "rewrite_unfit=True"):
            assert part in str(caught.value)
        assert not table.refresh().metadata.snapshots
        good = write(lake / "b.parquet", table.scan().to_arrow().schema.empty_table())
        result = table.add_files([location, good], rewrite_unfit=True)
        assert (result.outcome, result.added_data_files, result.added_records) == ("committed", 1, 1)
        (file,) = data_locations(table)
        assert table.scan().to_arrow()["c"].to_pylist() == [expected]
        assert pq.read_metadata(file.removeprefix("file://")).num_rows == 1
        assert Path(location.removeprefix("file://")).exists()

    def test_values_that_do_not_fit_are_refused_by_row(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "c": "string"})
        good = write(lake / "a.parquet", {"id": pa.array([1], pa.int64()), "c": pa.array([b"fine"])})
        bad = write(lake / "b.parquet", {"id": pa.array([2, 3], pa.int64()), "c": pa.array([b"x", b"\xff"])})
        with pytest.raises(
            InvalidInputError, match=r"column 'c', row 2 of .*b\.parquet: the text b'.xff' is not UTF-8"
        ):
            table.add_files([good, bad], rewrite_unfit=True)
        assert not data_locations(table)
        assert not table.refresh().metadata.snapshots

    def test_a_time_of_unknown_zone_is_no_instant(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"c": "timestamptz"})
        location = write(lake / "a.parquet", {"c": pa.array([0], pa.timestamp("us"))})
        with pytest.raises(InvalidInputError, match="expected timestamptz as in the table"):
            table.add_files([location])
        with pytest.raises(InvalidInputError, match="cannot become timestamptz"):
            table.add_files([location], rewrite_unfit=True)

    def test_other_faults_are_refused_as_before(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"c": "string", "n": "int not null"})
        location = write(lake / "a.parquet", {"c": pa.array([b"a"])})
        with pytest.raises(InvalidInputError, match="column 'n' is required in the table, and the file does not have"):
            table.add_files([location], rewrite_unfit=True)

    def test_of_avro(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"c": "string", "at": "timestamp"})
        fields = [
            {"name": "c", "type": "bytes"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ]
        sink = io.BytesIO()
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, [{"c": b"x", "at": 1000}])
        (lake / "a.avro").write_bytes(sink.getvalue())
        with pytest.raises(InvalidInputError, match="column 'c' is binary in the file, expected string"):
            table.add_files([f"file://{lake}/a.avro"])
        table.add_files([f"file://{lake}/a.avro"], rewrite_unfit=True)
        row = {"c": "x", "at": dt.datetime(1970, 1, 1, 0, 0, 1)}  # noqa: DTZ001 - without a zone
        assert table.scan().to_arrow().to_pylist() == [row]


class TestWhatIsKept:
    """Names, columns that a file lacks, and folders are those of the file, as if it had been added."""

    def test_folders_and_columns(self, tmp_path, lake):
        table = new_table(
            tmp_path,
            schema={"id": "long", "name": "string", "day": "date", "more": "int"},
            partition_by=["day"],
            properties={"format-version": "3"},
        )
        for day in (1, 2):
            rows = {"id": pa.array([day], pa.int64()), "name": pa.array([b"x"]), "unknown": [1.5]}
            write(lake / f"day=2026-01-0{day}" / "a.parquet", rows)
        write(lake / "day=2026-01-01" / "fit.parquet", {"id": pa.array([9], pa.int64()), "name": ["y"]})
        result = table.add_files(source=str(lake), rewrite_unfit=True)
        assert (result.added_data_files, result.added_records) == (3, 3)
        found = table.scan("day = '2026-01-01'").to_arrow().sort_by("id").to_pylist()
        day = dt.date(2026, 1, 1)
        assert found == [
            {"id": 1, "name": "x", "day": day, "more": None},
            {"id": 9, "name": "y", "day": day, "more": None},
        ]
        assert len(table.scan("day = '2026-01-01'").plan_files()) == 2

    def test_a_file_that_contradicts_its_folder(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"name": "string", "n": "int"}, partition_by=["n"])
        write(lake / "n=1" / "a.parquet", {"name": pa.array([b"x", b"y"]), "n": pa.array([1, 2], pa.int32())})
        with pytest.raises(InvalidInputError, match="its folder says that column 'n' is 1, and row 2 has 2"):
            table.add_files(source=str(lake), rewrite_unfit=True)
        assert not data_locations(table)

    def test_a_mapping_of_names(self, tmp_path, lake):
        mapping = '[{"field-id":1,"names":["id","ID"]},{"field-id":2,"names":["name"]}]'
        table = new_table(
            tmp_path, schema={"id": "long", "name": "string"}, properties={"schema.name-mapping.default": mapping}
        )
        location = write(lake / "a.parquet", {"ID": pa.array([1], pa.int64()), "name": pa.array([b"x"])})
        table.add_files([location], rewrite_unfit=True)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "x"}]


class TestExactlyOnce:
    """Files that fit and rows that are written anew come in one commit, once for each run."""

    def given(self, tmp_path: Path, lake: Path) -> tuple[Table, AddFilesRequest]:
        return new_table(tmp_path, schema={"id": "long", "c": "string"}), self.request(lake)

    def request(self, lake: Path) -> AddFilesRequest:
        fit = write(lake / "fit.parquet", {"id": pa.array([1], pa.int64()), "c": ["a"]})
        unfit = write(lake / "unfit.parquet", {"id": pa.array([2], pa.int64()), "c": pa.array([b"b"])})
        return AddFilesRequest(files=[fit, unfit], rewrite_unfit=True)

    def test_a_retry_finds_the_commit(self, tmp_path, lake):
        table, request = self.given(tmp_path, lake)
        first = add_files(Work(table, operation_key=KEY), request)
        again = add_files(Work(Table.load(table.catalog, "db.t"), operation_key=KEY, try_number=2), request)
        assert (first.outcome, again.outcome) == ("committed", "found")
        assert len(table.refresh().metadata.snapshots) == 1
        assert ids(table) == [1, 2]
        assert len(data_locations(table)) == 1

    def test_a_cleared_task_replaces_the_rows(self, tmp_path, lake):
        table, request = self.given(tmp_path, lake)
        add_files(Work(table, operation_key=KEY), request)
        write(lake / "unfit.parquet", {"id": pa.array([3, 4], pa.int64()), "c": pa.array([b"c", None])})
        result = add_files(Work(Table.load(table.catalog, "db.t"), operation_key=CLEARED), request)
        assert result.outcome == "committed"
        assert ids(Table.load(table.catalog, "db.t")) == [1, 3, 4]

    @pytest.mark.parametrize(
        "fault",
        [
            Fault.LAND_THEN_UNKNOWN,
            Fault.LAND_THEN_RIVAL_THEN_UNKNOWN,
            Fault.LAND_THEN_RIVAL_THEN_CONFLICT,
            Fault.CONFLICT,
            Fault.FAIL,
        ],
        ids=lambda fault: fault.name,
    )
    def test_lost_answers_and_other_writers(self, catalog, tmp_path, fault):
        made = Table.create(catalog, "db.t", schema={"id": "long", "c": "string"})
        request = self.request(tmp_path / "lake" / "old")
        opened = Table.load(FaultyCatalog(catalog, [fault]), "db.t")
        with suppress(IcebergError):
            add_files(Work(opened, operation_key=KEY), request)
        add_files(Work(Table.load(catalog, "db.t"), operation_key=KEY, try_number=2), request)
        table = Table.load(catalog, "db.t")
        assert ids(table) == [1, 2]
        own = {file.file.file_path for file in table.scan().plan_files()} - set(request.files or ())
        assert data_locations(made) == own

    def test_a_file_that_the_table_has(self, tmp_path, lake):
        table, request = self.given(tmp_path, lake)
        table.add_files(request.files[:1])
        before = data_locations(table)
        with pytest.raises(AlreadyExistsError):
            table.add_files(request.files, rewrite_unfit=True)
        assert data_locations(table) == before


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/lake")
    made.create_namespace("db")
    return made


class TestNewTables:
    """A snapshot and a migration refuse such files, too, and create nothing; or write their rows anew."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        folder = tmp_path / "lake" / "old"
        moment = pa.array([NOON, None], pa.timestamp("ms", tz="UTC"))
        write(folder / "ds=2026-01-01" / "a.parquet", {"id": pa.array([1, 2], pa.int64()), "at": moment})
        fit = moment.cast(pa.timestamp("us", tz="UTC"))
        write(folder / "ds=2026-01-02" / "b.parquet", {"id": pa.array([3, 4], pa.int64()), "at": fit})
        return folder

    @pytest.mark.parametrize("make", ["snapshot_table", "migrate_table"])
    def test_both(self, catalog, source, make):
        with pytest.raises(InvalidInputError, match=r"column 'at' is .* rewrite_unfit=True"):
            getattr(Table, make)(catalog, "db.t", str(source))
        assert not catalog.table_exists("db.t")
        table = getattr(Table, make)(catalog, "db.t", str(source), rewrite_unfit=True)
        assert ids(table) == [1, 2, 3, 4]
        assert ids(table, row_filter="ds = '2026-01-01' and at is not null") == [1]
        assert len(table.metadata.snapshots) == 1

    def test_a_value_that_does_not_fit_creates_nothing(self, catalog, source):
        write(source / "ds=2026-01-01" / "c.parquet", {"id": pa.array([5], pa.int64()), "at": pa.array(["no"])})
        schema = {"id": "long", "at": "timestamptz", "ds": "date"}
        for make in (Table.snapshot_table, Table.migrate_table):
            with pytest.raises(InvalidInputError, match=r"row 1 of .*value 'no'"):
                make(catalog, "db.t", str(source), schema=schema, rewrite_unfit=True)
            assert not catalog.table_exists("db.t")
        assert len(list(source.rglob("*.parquet"))) == 3

    def test_a_catalog_that_refuses_the_location_leaves_nothing_in_the_folder(self, source, tmp_path):
        hadoop = new_table(tmp_path).catalog
        with pytest.raises(UnsupportedError, match="leave the location out"):
            Table.migrate_table(hadoop, "db.moved", str(source), rewrite_unfit=True)
        assert len(list(source.rglob("*.parquet"))) == 2

    def test_a_migration_that_died_is_begun_anew(self, catalog, source, monkeypatch):
        """New files lie where the files of a folder are not looked for, so that their rows are not taken twice."""

        def dies(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        request = MigrateTableRequest(source=str(source), rewrite_unfit=True)
        with monkeypatch.context() as patched:
            patched.setattr(type(catalog), "create", dies)
            with pytest.raises(KeyboardInterrupt):
                migrate_table(catalog, TableId.parse("db.t"), request, operation_key=KEY)
        assert len(list(source.rglob("*.parquet"))) == 3
        migrate_table(catalog, TableId.parse("db.t"), request, operation_key=KEY)
        assert ids(Table.load(catalog, "db.t")) == [1, 2, 3, 4]
        migrate_table(catalog, TableId.parse("db.t"), request, operation_key=KEY)
        assert ids(Table.load(catalog, "db.t")) == [1, 2, 3, 4]


class TestTheFolderItself:
    """`source` may be the folder of one partition."""

    def test_of_files_to_add(self, tmp_path, lake):
        table = new_table(
            tmp_path, schema={"id": "long", "day": "date", "land": "string"}, partition_by=["day", "land"]
        )
        write(lake / "day=2026-01-01" / "land=a%2Fb" / "a.parquet", {"id": pa.array([1], pa.int64())})
        write(lake / "day=2026-01-01" / "land=c" / "a.parquet", {"id": pa.array([2], pa.int64())})
        table.add_files(source=f"{lake}/day=2026-01-01")
        row = {"id": 1, "day": dt.date(2026, 1, 1), "land": "a/b"}
        assert table.scan("land = 'a/b'").to_arrow().to_pylist() == [row]
        other = new_table(tmp_path / "2", schema={"id": "long", "land": "string"}, partition_by=["land"])
        write(tmp_path / "2" / "day=2026-01-01" / "land=a%2Fb" / "a.parquet", {"id": pa.array([1], pa.int64())})
        other.add_files(source=f"{tmp_path}/2/day=2026-01-01/land=a%2Fb/")
        assert other.scan().to_arrow().to_pylist() == [{"id": 1, "land": "a/b"}]

    def test_a_partition_filter(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "day": "date"}, partition_by=["day"])
        write(lake / "day=2026-01-01" / "a.parquet", {"id": pa.array([1], pa.int64())})
        table.add_files(source=f"{lake}/day=2026-01-01", partition_filter={"day": "2026-01-01"})
        assert ids(table) == [1]

    def test_a_folder_further_up_counts_only_for_a_partition_field(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "day": "date"}, partition_by=["day"])
        write(lake / "env=prod" / "orders" / "day=2026-01-01" / "a.parquet", {"id": pa.array([1], pa.int64())})
        table.add_files(source=f"{lake}/env=prod/orders/day=2026-01-01")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "day": dt.date(2026, 1, 1)}]
        by_env = new_table(tmp_path / "2", schema={"id": "long", "env": "string"}, partition_by=["env"])
        write(tmp_path / "2" / "env=prod" / "orders" / "a.parquet", {"id": pa.array([1], pa.int64())})
        by_env.add_files(source=f"{tmp_path}/2/env=prod/orders/")
        assert by_env.scan().to_arrow().to_pylist() == [{"id": 1, "env": "prod"}]

    def test_two_values_are_refused(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "day": "date"}, partition_by=["day"])
        write(lake / "day=2026-01-01" / "day=2026-01-02" / "a.parquet", {"id": pa.array([1], pa.int64())})
        with pytest.raises(InvalidInputError, match="two of its folders give 'day' a value"):
            table.add_files(source=f"{lake}/day=2026-01-01")

    def test_of_a_new_table(self, catalog, tmp_path):
        source = tmp_path / "lake" / "env=prod" / "old" / "day=2026-01-01"
        write(source / "land=x" / "a.parquet", {"id": pa.array([1], pa.int64())})
        table = Table.snapshot_table(catalog, "db.t", str(source))
        row = {"id": 1, "day": dt.date(2026, 1, 1), "land": "x"}
        assert table.scan().to_arrow().to_pylist() == [row]
        assert [field.name for field in table.spec().fields] == ["day", "land"]
        moved = Table.migrate_table(catalog, "db.m", str(source))
        assert moved.scan().to_arrow().to_pylist() == [row]

    def test_a_value_that_is_not_utf_8(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"id": "long", "land": "string"}, partition_by=["land"])
        write(lake / "land=%FF" / "a.parquet", {"id": pa.array([1], pa.int64())})
        with pytest.raises(InvalidInputError, match="is not UTF-8 when it is decoded"):
            table.add_files(source=str(lake))


class TestValuesThatAreNone:
    """The footer tells of some: no row is read for it."""

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("time", pa.array([1, 90_000_000_000]).view(pa.time64("us"))),
            ("time", pa.array([-1, 1]).view(pa.time64("us"))),
            ("decimal(5, 2)", pa.array([Decimal("1000.00")], pa.decimal128(38, 2)).view(pa.decimal128(5, 2))),
        ],
    )
    def test_in_the_bounds(self, tmp_path, lake, kind, values):
        table = new_table(tmp_path, schema={"c": kind})
        location = write(lake / "a.parquet", {"c": values})
        for rewrites in (False, True):
            with pytest.raises(InvalidInputError, match=r"column 'c' has the value .*, which no (time|decimal)"):
                table.add_files([location], rewrite_unfit=rewrites)

    def test_the_largest_of_all_decimals_is_one(self, tmp_path, lake):
        table = new_table(tmp_path, schema={"c": "decimal(38, 2)"})
        values = [Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")]
        table.add_files([write(lake / "a.parquet", {"c": pa.array(values, pa.decimal128(38, 2))})])
        table.append(pa.table({"c": pa.array(values, pa.decimal128(38, 2))}))
        for value in values:
            assert table.scan(f"c = {value}").to_arrow().num_rows == 2
        for task in table.scan().plan_files():
            assert task.file.lower_bounds
            assert task.file.upper_bounds


class TestFilesWithoutStatistics:
    def test_they_are_named(self, tmp_path, lake, caplog):
        table = new_table(tmp_path)
        rows = {"id": pa.array([1], pa.int64())}
        without = write(lake / "without.parquet", rows, write_statistics=False)
        having = write(lake / "with.parquet", rows)
        with caplog.at_level(logging.WARNING):
            table.add_files([without, having])
        (message,) = (record.getMessage() for record in caplog.records if "no statistics" in record.getMessage())
        assert "1 of 2 added files have no statistics" in message
        assert without in message
        assert having not in message


# -- generated ---------------------------------------------------------------------------------------------------------

LEAVES: dict[str, list[pa.DataType]] = {
    "string": [pa.string(), pa.binary(), pa.null(), pa.large_binary()],
    "binary": [pa.binary(), pa.null(), pa.binary(2)],
    "int": [pa.int32(), pa.int8(), pa.uint16(), pa.int64(), pa.null()],
    "long": [pa.int64(), pa.int32(), pa.uint32(), pa.uint64()],
    "double": [pa.float64(), pa.float32(), pa.float16(), pa.int32()],
    "timestamp": [pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s"), pa.timestamp("ns"), pa.null()],
    "timestamptz": [pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="Europe/Berlin"), pa.null()],
    "time": [pa.time64("us"), pa.time32("ms"), pa.time32("s"), pa.time64("ns")],
    "decimal(9, 2)": [pa.decimal128(9, 2), pa.decimal128(5, 2), pa.decimal128(9, 1), pa.decimal128(18, 2)],
    "date": [pa.date32(), pa.date64(), pa.null()],
}


class Made:
    """A column of random type and form, whose values are known as those of the table."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice

    def kind(self, depth: int = 0) -> tuple[str, pa.DataType]:
        choice = self.dice.choice(["leaf", "leaf", "struct", "list", "map"] if depth < 2 else ["leaf"])
        if choice == "struct":
            (one, first), (two, second) = self.kind(depth + 1), self.kind(depth + 1)
            return f"struct<a: {one}, b: {two}>", pa.struct({"a": first, "b": second})
        if choice == "list":
            inner, kind = self.kind(depth + 1)
            return f"list<{inner}>", pa.list_(kind)
        if choice == "map":
            inner, kind = self.kind(depth + 1)
            return f"map<string, {inner}>", pa.map_(self.dice.choice([pa.string(), pa.binary()]), kind)
        text = self.dice.choice(list(LEAVES))
        return text, self.dice.choice(LEAVES[text])

    def value(self, kind: pa.DataType) -> Any:
        if pa.types.is_null(kind) or self.dice.random() < 0.2:
            return None
        if pa.types.is_struct(kind):
            return {field.name: self.value(field.type) for field in kind}
        if pa.types.is_list(kind):
            return [self.value(kind.value_type) for _ in range(self.dice.randrange(3))]
        if pa.types.is_map(kind):
            as_bytes = pa.types.is_binary(kind.key_type)
            keys = self.dice.sample(["a", "b", "ü"], self.dice.randrange(3))
            return [(key.encode() if as_bytes else key, self.value(kind.item_type)) for key in keys]
        number = self.dice.randrange(100)
        if pa.types.is_string(kind):
            return f"t{number}"
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return f"{number:02}".encode()
        if pa.types.is_decimal(kind):
            return Decimal(number).scaleb(-1)
        if pa.types.is_floating(kind):
            return float(number)
        if pa.types.is_date(kind):
            return dt.date(2026, 1, 1) + dt.timedelta(days=number)
        if pa.types.is_time(kind):
            return dt.time(1, 2, number % 60)
        if pa.types.is_timestamp(kind):
            return dt.datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=dt.UTC if kind.tz else None)
        return number


def as_text(value: Any) -> Any:
    """Return a value in a form in which text equals its bytes, and in which all zones are one."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {name: as_text(item) for name, item in value.items()}
        case list():
            return [as_text(item) for item in value]
        case tuple():
            return tuple(as_text(item) for item in value)
        case dt.datetime():
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        case int() | float() | Decimal():
            return float(value)
    return value


@pytest.mark.generated
@pytest.mark.parametrize("case", range(sampled(300)))
def test_rows_of_files_of_any_form_are_kept(case, tmp_path):
    """Either a file fits, or it is refused by name; with rewrite_unfit its rows are those that it had."""
    dice = Random(SEED * 999_983 + case)
    made = Made(dice)
    text, kind = made.kind()
    values = [made.value(kind) for _ in range(dice.randrange(1, 6))]
    table = new_table(tmp_path, schema={"id": "long", "c": text})
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "c": pa.array(values, kind)})
    location = write(tmp_path / "old" / "a.parquet", rows, store_schema=dice.random() < 0.5)
    try:
        table.add_files([location])
        why = None
    except IcebergError as error:
        why = str(error)
    if why is not None:
        assert "rewrite_unfit=True" in why
        table.add_files([location], rewrite_unfit=True)
        assert len(data_locations(table)) == 1
    found = table.scan().to_arrow().sort_by("id")["c"].to_pylist()
    assert as_text(found) == as_text(rows["c"].to_pylist())
