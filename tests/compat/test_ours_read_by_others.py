"""What we write is read identically by Iceberg Java, PyIceberg and DuckDB."""

import datetime as dt
import json
import uuid

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.table import Table
from tests.support import samples
from tests.support.iceberg_java import plain

pytestmark = pytest.mark.java

# Partitioned by every transform that a table can have, and not at all. Left out is the identity of a fixed column:
# Iceberg Java up to 1.11 reads and writes such partition values with a length in front, against Avro
# (apache/iceberg#17501).
SPECS = {
    "plain": (),
    "identity": ("small", "flag"),
    "names": ("name", "price"),
    "temporal": ("year(moment)", "month(local)", "day(day)"),
    "hour": ("hour(moment)",),
    "buckets": ("bucket(4, id)", "bucket(7, name)", "bucket(3, price)", "bucket(5, moment)"),
    "binary": ("bucket(3, blob)", "truncate(2, blob)", "blob"),
    "truncated": ("truncate(3, name)", "truncate(10, id)", "truncate(50, total)"),
    "void": ("void(name)", "id"),
}
# Tables with Avro files.
AVRO = {"write.format.default": "avro"}
AVRO_SPECS = {f"avro_{name}": SPECS[name] for name in ("plain", "names", "buckets", "temporal")}


def key(row):
    return json.dumps(row, sort_keys=True)


def shaped(value, type_):
    """Return an Arrow value in the form in which Java's come: structs and maps told apart by the type."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return {"map": sorted(([plain(k), shaped(v, type_.item_type)] for k, v in value), key=json.dumps)}
    if pa.types.is_struct(type_):
        return {"struct": {field.name: shaped(value[field.name], field.type) for field in type_}}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [shaped(item, type_.value_type) for item in value]
    return plain(value)


def shaped_rows(arrow, like=None):
    """Return all rows of an Arrow table, sorted; `like` is the schema to shape them by, their own by default."""
    types = like or arrow.schema
    rows = ({name: shaped(value, types.field(name).type) for name, value in row.items()} for row in arrow.to_pylist())
    return sorted(rows, key=key)


@pytest.fixture(scope="module")
def tables(catalog):
    made = {}
    for name, partition_by in {**SPECS, **AVRO_SPECS}.items():
        properties = AVRO if name in AVRO_SPECS else {}
        table = Table.create(
            catalog, f"db.ours_{name}", schema=samples.SCHEMA, partition_by=partition_by, properties=properties
        )
        table.append(samples.rows())
        table.append(samples.rows(100))
        made[name] = table
    return made


def expected():
    return shaped_rows(pa.concat_tables([samples.rows(), samples.rows(100)]))


def our_rows(table, **scan):
    return shaped_rows(table.scan(**scan).to_arrow())


def their_rows(java, table, more="", columns="*"):
    return sorted(java.sql(f"select {columns} from ref.{table.name} {more}"), key=key)


def same_rows(java, table):
    """Compare all rows, through both engines, and return how many there are."""
    theirs = their_rows(java, table)
    assert our_rows(table.refresh()) == theirs
    return len(theirs)


def java_does(java, table, statement):
    java.sql(statement.format(t=f"ref.{table.name}"))
    return table.refresh()


@pytest.mark.parametrize("name", SPECS)
class TestEveryType:
    """All types of version 2, nulls and extremes, under every partitioning."""

    def test_we_read_our_own_rows(self, tables, name):
        assert our_rows(tables[name]) == expected()

    def test_iceberg_java_reads_the_same(self, tables, java, name):
        assert sorted(java.load(tables[name].metadata_location), key=key) == expected()

    def test_pyiceberg_reads_the_same(self, tables, name):
        """But for one thing: PyIceberg 0.12 reads a null list of structs with maps in them as an empty one."""
        arrow = StaticTable.from_metadata(tables[name].metadata_location).scan().to_arrow()
        wanted = [row | {"deep": row["deep"] or []} for row in expected()]
        assert [row | {"deep": row["deep"] or []} for row in shaped_rows(arrow)] == wanted

    def test_duckdb_reads_the_same(self, tables, duck, name):
        location = tables[name].metadata_location.removeprefix("file://")
        arrow = duck.execute(f"select * from iceberg_scan('{location}')").to_arrow_table()
        assert shaped_rows(arrow, like=samples.rows().schema) == expected()

    @pytest.mark.sample(3)
    def test_iceberg_java_prunes_to_the_same_rows(self, tables, java, name):
        """A filter on each column finds in Java what it finds here: partitions and bounds tell the truth.

        Not asked for is `amount = 0`: Java's dictionary filter misses a -0.0 that is alone in its row group.
        """
        for predicate in (
            "id = 103",
            "small < 0",
            "name = 'a'",
            "name > 'z'",
            "price >= 1.23",
            "day < date '1970-01-01'",
            "moment >= timestamp '2026-01-01 00:00:00'",
            "local < timestamp '1970-01-01 00:00:00'",
            "flag is null",
            "blob = X'00ff'",
            "amount <= 0",
        ):
            from_us = our_rows(tables[name], row_filter=predicate, selected_fields=("id",))
            assert their_rows(java, tables[name], f"where {predicate}", "id") == from_us, predicate


@pytest.mark.parametrize("name", AVRO_SPECS)
class TestEveryTypeInAvro:
    """The same rows in Avro files. PyIceberg 0.12 and DuckDB 1.5 scan tables with Parquet files only."""

    def test_we_read_our_own_rows(self, tables, name):
        assert our_rows(tables[name]) == expected()

    def test_iceberg_java_reads_the_same(self, tables, java, name):
        assert sorted(java.load(tables[name].metadata_location), key=key) == expected()

    @pytest.mark.services
    def test_iceberg_java_prunes_to_the_same_rows(self, tables, java, name):
        for predicate in ("id = 103", "name > 'z'", "price >= 1.23", "flag is null", "blob = X'00ff'", "amount <= 0"):
            from_us = our_rows(tables[name], row_filter=predicate, selected_fields=("id",))
            assert their_rows(java, tables[name], f"where {predicate}", "id") == from_us, predicate


class TestAvroFiles:
    """Their values, read by PyIceberg's reader of Avro, which fails on maps, and their deletes and row ids in Java."""

    def test_pyiceberg_reads_the_same_values(self, catalog):
        """But for floating point numbers: its compiled decoder turns 1.7e308 into infinity."""
        columns = {
            name: kind for name, kind in samples.SCHEMA.items() if "map" not in kind and kind not in ("float", "double")
        }
        rows, others = samples.rows().select(list(columns)), samples.other_types()
        for name in ("key", "at"):
            columns[name] = samples.OTHER_SCHEMA[name]
            rows = rows.append_column(name, pa.concat_arrays([*others[name].chunks, *others[name].chunks]))
        ours = Table.create(catalog, "db.avro_values", schema=columns, properties=AVRO)
        ours.append(rows)
        table = StaticTable.from_metadata(ours.metadata_location)
        (task,) = table.scan().plan_files()
        with AvroFile(table.io.new_input(task.file.file_path), read_schema=table.schema()) as records:
            found = [tuple(map(as_value, record)) for record in records]
        struct = ours.scan().to_arrow().to_struct_array()
        wanted = values_from_array(ours.schema().as_struct(), pa.concat_arrays(struct.chunks))
        assert repr(found) == repr(wanted)

    @pytest.mark.services
    @pytest.mark.parametrize("version", [2, 3])
    def test_java_reads_what_is_left_after_our_deletes(self, catalog, java, version):
        properties = AVRO | {"format-version": str(version), "write.delete.mode": "merge-on-read"}
        name = f"db.avro_deletes_{version}"
        table = Table.create(catalog, name, schema={"id": "long", "name": "string"}, properties=properties)
        table.append(pa.table({"id": range(10), "name": [str(number) for number in range(10)]}))
        table.delete("id in (2, 3)")
        assert same_rows(java, table) == 8
        table.delete("id = 4", mode="copy-on-write")
        assert same_rows(java, table) == 7
        if version == 3:
            lineage = "_row_id, _last_updated_sequence_number"
            assert their_rows(java, table, columns=f"id, {lineage}") == our_rows(
                table, selected_fields=("id", *lineage.split(", "))
            )
        java_does(java, table, "delete from {t} where id = 5")
        assert same_rows(java, table) == 6


def as_value(value):
    if isinstance(value, Record | list):
        return tuple(map(as_value, value))
    return value


class TestTypesThatSparkDoesNotHave:
    """A uuid and a time of day: Spark reads the first as text and refuses the second; PyIceberg reads both."""

    def test_pyiceberg_reads_both(self, catalog):
        table = Table.create(catalog, "db.odd_types", schema=samples.OTHER_SCHEMA, partition_by=["bucket(4, key)"])
        table.append(samples.other_types())
        arrow = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
        read = {row["id"]: (row["key"], row["at"]) for row in arrow.to_pylist()}
        assert read == {row["id"]: (as_uuid(row["key"]), row["at"]) for row in samples.other_types().to_pylist()}

    def test_iceberg_java_reads_the_uuid(self, catalog, java):
        table = Table.create(catalog, "db.uuids", schema={"id": "long", "key": "uuid"}, partition_by=["key"])
        table.append(samples.other_types().select(["id", "key"]))
        read = {row["id"]: row["key"] for row in java.load(table.metadata_location)}
        assert read == {
            row["id"]: None if row["key"] is None else str(as_uuid(row["key"]))
            for row in samples.other_types().to_pylist()
        }


def as_uuid(raw):
    return None if raw is None else uuid.UUID(bytes=raw)


class TestOddNames:
    """Spaces, dots, umlauts, keywords and leading digits in column names survive every format on the way."""

    @pytest.mark.parametrize("file_format", ["parquet", "avro"])
    def test_java_reads_them_and_their_partitions(self, catalog, java, file_format):
        table = Table.create(
            catalog,
            f"db.odd_names_{file_format}",
            schema=samples.ODD_COLUMNS,
            partition_by=list(samples.ODD_COLUMNS),
            properties={"write.format.default": file_format},
        )
        text, number = pa.array(["ä/=?& %", "b"]), pa.array([1, None], pa.int32())
        rows = pa.table({name: text if type_ == "string" else number for name, type_ in samples.ODD_COLUMNS.items()})
        table.append(rows)
        read = sorted(java.load(table.metadata_location), key=key)
        assert read == sorted(rows.to_pylist(), key=key)


class TestTimeTravel:
    """Each of our snapshots is one in Java too, with the same rows, and says who made it."""

    def test_java_reads_every_snapshot(self, catalog, java):
        table = Table.create(catalog, "db.travel", schema={"id": "long"})
        for number in range(3):
            table.append(pa.table({"id": [number]}))
        for count, snapshot in enumerate(table.snapshots(), start=1):
            read = java.load(table.metadata_location, snapshot_id=snapshot.snapshot_id)
            assert sorted(row["id"] for row in read) == list(range(count))

    def test_java_sees_our_history_and_summaries(self, catalog, java):
        table = Table.load(catalog, "db.travel")
        rows = java.sql(
            "select snapshot_id, parent_id, operation, summary from ref.db.travel.snapshots order by committed_at"
        )
        assert [row["snapshot_id"] for row in rows] == [snapshot.snapshot_id for snapshot in table.snapshots()]
        summary = dict(map(tuple, rows[-1]["summary"]["map"]))
        assert summary["engine-name"] == "airflow-iceberg"
        assert summary["total-records"] == "3"

    def test_the_bounds_that_java_sees_are_the_rows(self, tables, java):
        rows = java.sql("select readable_metrics from ref.db.ours_plain.files")
        metrics = rows[0]["readable_metrics"]["struct"]
        assert metrics["small"]["struct"]["lower_bound"] == -(2**31)
        assert metrics["small"]["struct"]["null_value_count"] == 1
        assert metrics["day"]["struct"]["upper_bound"] == {"date": dt.date(2100, 1, 1).isoformat()}
        assert metrics["name"]["struct"]["value_count"] == 8
