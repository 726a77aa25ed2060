"""Files without field ids that joined a table: Iceberg Java reads the rows that we read, and prunes as we do."""

import datetime as dt
import decimal
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.table import Table
from tests.compat.test_ours_read_by_others import our_rows, their_rows

pytestmark = pytest.mark.java
SCHEMA = {
    **{"id": "long", "name": "string", "price": "decimal(9, 2)", "tags": "list<string>", "at": "timestamptz"},
    **{"spot": "struct<x: int, y: double>", "ds": "date", "land": "string"},
}
SPOT = pa.struct([("x", pa.int32()), ("y", pa.float64())])


def rows(first: int) -> pa.Table:
    numbers = range(first, first + 5)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [None if n % 3 == 0 else f"name {n}" for n in numbers],
            "price": pa.array([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(9, 2)),
            "tags": [["a", None], [], None, ["b"], ["c"]],
            "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 5, pa.timestamp("us", tz="UTC")),
            "spot": pa.array(
                [{"x": n, "y": n / 2} for n in numbers], pa.struct([("x", pa.int32()), ("y", pa.float64())])
            ),
        }
    )


@pytest.fixture(params=["2", "3"])
def table(catalog, tmp_path, request):
    """A table partitioned by the folders of its files, a day and a country."""
    name = f"db.added_{uuid.uuid4().hex[:8]}"
    properties = {"format-version": request.param}
    table = Table.create(catalog, name, schema=SCHEMA, partition_by=["ds", "land"], properties=properties)
    for number, folder in enumerate(
        ("ds=2026-01-01/land=a%2Fb", "ds=2026-01-01/land=ü", "ds=2026-01-02/land=__HIVE_DEFAULT_PARTITION__")
    ):
        path = tmp_path / folder / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows(number * 5), path)
    table.add_files(source=str(tmp_path))
    return table


@pytest.mark.services
def test_all_rows(java, table):
    theirs = their_rows(java, table)
    assert our_rows(table) == theirs
    assert sorted(row["id"] for row in theirs) == list(range(15))


@pytest.mark.parametrize(
    ("predicate", "files", "expected"),
    [
        ("ds = date '2026-01-01'", 2, range(10)),
        ("ds = date '2026-01-01' and land = 'ü'", 1, range(5, 10)),
        ("land is null", 1, range(10, 15)),
        ("id = 7", 1, [7]),
        ("name = 'name 11'", 2, [11]),
        ("price > 3", 1, [13, 14]),
        ("spot.x = 3", 1, [3]),
    ],
)
def test_with_a_filter_that_prunes(java, table, predicate, files, expected):
    assert len(table.scan(predicate).plan_files()) == files
    found = java.sql(f"select id, input_file_name() as file from ref.{table.name} where {predicate}")
    assert sorted(row["id"] for row in found) == list(expected)
    assert sorted(table.scan(predicate).to_arrow()["id"].to_pylist()) == list(expected)


def test_the_files_of_a_legacy_spark(java, catalog, tmp_path):
    """Differs from Java: it cannot read lists of two levels, so the table here does not have them."""
    schema = {
        **{"id": "long", "three": "list<string>", "names": "map<string, int>", "price": "decimal(9, 2)"},
        **{"ts": "timestamptz"},
    }
    table = Table.create(catalog, f"db.legacy_{uuid.uuid4().hex[:8]}", schema=schema)
    golden = Path(__file__).parents[1] / "golden" / "spark_legacy.parquet"
    (tmp_path / "a.parquet").write_bytes(golden.read_bytes())
    table.add_files([f"{tmp_path}/a.parquet"])
    assert our_rows(table) == their_rows(java, table)


@pytest.mark.services
def test_our_entries_are_those_of_java(java, catalog, tmp_path):
    """The same files, added by both: the same partitions, counts and bounds."""
    names = [f"entries_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    schema = {"id": "long", "name": "string", "price": "decimal(9, 2)", "ds": "string"}
    for day in (1, 2):
        path = tmp_path / f"ds=day{day}" / "part-0.parquet"
        path.parent.mkdir()
        pq.write_table(rows(day * 5).select(["id", "name", "price"]), path)
    ours, theirs = (Table.create(catalog, f"db.{name}", schema=schema, partition_by=["ds"]) for name in names)
    ours.add_files(source=str(tmp_path))
    java.sql(f"call ref.system.add_files(table => 'db.{names[1]}', source_table => '`parquet`.`{tmp_path}`')")
    columns = ["partition", "record_count", "file_size_in_bytes", "column_sizes", "value_counts", "null_value_counts"]
    columns += ["lower_bounds", "upper_bounds"]  # Java leaves out where the row groups begin

    def entries(table):
        found = table.refresh().inspect.files().select(["file_path", *columns]).to_pylist()
        return {row.pop("file_path").removeprefix("file:").replace("//", ""): row for row in found}

    left, right = entries(ours), entries(theirs)
    assert left.keys() == right.keys()
    for path, row in left.items():
        assert {name: (row[name], right[path][name]) for name in columns if row[name] != right[path][name]} == {}
    mapping = "schema.name-mapping.default"
    assert ours.properties[mapping].replace(" ", "") == theirs.properties[mapping].replace(" ", "").replace("\n", "")


@pytest.mark.parametrize("as_integer", [True, False])
def test_every_form_that_is_taken(java, catalog, tmp_path, as_integer):
    """Small and promoted integers, decimals in each physical type, INT96, and marked bytes: Java reads what we read."""
    moments = [dt.datetime(2026, 1, 1, 12, 30, 1, 5), None]  # noqa: DTZ001 - INT96 says no zone
    price = [decimal.Decimal("-1.25"), None]
    file = {
        **{"i8": pa.array([-8, None], pa.int8()), "i16": pa.array([-16, None], pa.int16())},
        **{"i32l": pa.array([-8, None], pa.int32()), "f": pa.array([0.5, None], pa.float32())},
        **{"d4": pa.array(price, pa.decimal128(4, 2)), "d12": pa.array(price, pa.decimal128(12, 2))},
        **{"d30": pa.array(price, pa.decimal128(30, 2)), "day": pa.array([dt.date(2026, 1, 1), None])},
        **{"at": pa.array(moments, pa.timestamp("us", tz="UTC")), "local": pa.array(moments, pa.timestamp("us"))},
        **{"u": pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()), "raw": pa.array([b"\xff", None])},
        "fix": pa.array([b"abc", None], pa.binary(3)),
    }
    pq.write_table(pa.table(file), tmp_path / "a.parquet", store_schema=False, store_decimal_as_integer=as_integer)
    old = {"i96": pa.array(moments, pa.timestamp("us")), "i96l": pa.array(moments, pa.timestamp("us"))}
    pq.write_table(pa.table(old), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    schema = {
        **{"i8": "int", "i16": "int", "i32l": "long", "f": "double", "d4": "decimal(9, 2)", "d12": "decimal(18, 2)"},
        **{"d30": "decimal(38, 2)", "day": "date", "at": "timestamptz", "local": "timestamp", "u": "uuid"},
        **{"raw": "binary", "fix": "fixed[3]", "i96": "timestamptz", "i96l": "timestamp"},
    }
    table = Table.create(catalog, f"db.forms_{uuid.uuid4().hex[:8]}", schema=schema)
    table.add_files([f"{tmp_path}/a.parquet", f"{tmp_path}/b.parquet"])
    theirs = their_rows(java, table)
    # Spark has no uuid: it shows texts.
    assert {row.pop("u") for row in theirs} == {None, str(uuid.UUID(int=7))}
    ours = our_rows(table)
    for row in ours:
        row.pop("u")
    assert ours == theirs


def test_rows_that_were_written_anew(java, catalog, duck, tmp_path):
    """Iceberg Java, PyIceberg and DuckDB read the same rows; of the file itself Java reads 1970."""
    moment = dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "at": pa.array([moment, None], pa.timestamp("ms", tz="UTC")),
            "name": pa.array(["größe".encode(), None]),
            "none": pa.nulls(2),
            "n": pa.array([7, None], pa.uint16()),
            "tags": pa.array([[b"a"], None]),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet", store_schema=False)
    schema = {"id": "long", "at": "timestamptz", "name": "string", "none": "string", "n": "int", "tags": "list<string>"}
    table = Table.create(catalog, f"db.anew_{uuid.uuid4().hex[:8]}", schema=schema)
    table.add_files([f"{tmp_path}/a.parquet"], rewrite_unfit=True)
    expected = [
        {"id": 1, "at": moment, "name": "größe", "none": None, "n": 7, "tags": ["a"]},
        {"id": 2, "at": None, "name": None, "none": None, "n": None, "tags": None},
    ]
    assert our_rows(table) == their_rows(java, table)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    assert StaticTable.from_metadata(table.metadata_location).scan().to_arrow().sort_by("id").to_pylist() == expected
    path = table.metadata_location.removeprefix("file://")
    found = duck.execute(f"select id, name, n from iceberg_scan('{path}') order by id").fetchall()
    assert found == [(1, "größe", 7), (2, None, None)]
