"""Metadata of other writers with numbers at their ends: no commit makes the table unreadable, or gives an id twice.

Each number × its ends × each operation, then a read. A table that no operation can change is told so.
"""

import itertools
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import FormatError, IcebergError, IncompatibleChangeError, InvalidInputError
from airflow_iceberg.format.manifests.avro import assign_first_row_ids
from airflow_iceberg.format.manifests.entries import ManifestContent, ManifestFile
from airflow_iceberg.table import Table
from tests.support.builders import add_file, new_table
from tests.support.sampling import some

INT, LONG = 2**31 - 1, 2**63 - 1
ROWS = {"id": [9], "p": ["x"]}
OPERATIONS = {
    "append": lambda table: table.append(pa.table(ROWS)),
    "delete": lambda table: table.delete("id = 9"),
    "copy-on-write": lambda table: table.delete("id = 1"),
    "new column": lambda table: table.alter([{"add_column": {"name": "z", "type": "long"}}]),
    "new partition field": lambda table: table.alter([{"add_partition_field": "bucket(4, id)"}]),
    "new sort order": lambda table: table.alter([{"set_sort_order": ["p"]}]),
    "upgrade": lambda table: table.alter([{"upgrade_format_version": 3}]),
    "properties": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "branch": lambda table: table.create_branch("audit"),
}


def schema_id(document, number):
    document["schemas"][0]["schema-id"] = document["current-schema-id"] = number
    for snapshot in document["snapshots"]:
        snapshot["schema-id"] = number


def order_id(document, number):
    field = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    document["sort-orders"].append({"order-id": number, "fields": [field]})
    document["default-sort-order-id"] = number


def at(key):
    return lambda document, number: document.update({key: number})


NUMBERS = {
    "next-row-id": (at("next-row-id"), (LONG, LONG - 1, -1, -5, 0, 1)),
    "last-column-id": (at("last-column-id"), (INT, INT - 1, 0, 1, -1, INT + 1)),
    "last-partition-id": (at("last-partition-id"), (INT, INT - 1, 999, 0, -1, INT + 1)),
    "last-sequence-number": (at("last-sequence-number"), (LONG, LONG - 1)),
    "last-updated-ms": (at("last-updated-ms"), (LONG, 0, -1)),
    "schema-id": (schema_id, (INT, INT - 1, -1)),
    "order-id": (order_id, (INT, INT - 1, -1)),
}
CASES = [
    (version, name, number)
    for version, (name, (_, ends)) in itertools.product((2, 3), NUMBERS.items())
    for number in ends
    if version == 3 or name != "next-row-id"
]


def forge(table, change):
    """Change the newest metadata file in place, as another writer may have written it."""
    path = table.metadata_location.removeprefix("file://")
    with open(path) as file:
        document = json.load(file)
    change(document)
    with open(path, "w") as file:
        json.dump(document, file)
    return Table.load(table.catalog, "db.t")


def make(folder, version):
    schema = {"id": "long", "p": "string"}
    table = new_table(folder, schema=schema, partition_by=["p"], properties={"format-version": str(version)})
    table.append(pa.table({"id": [1, 2], "p": ["x", "y"]}))
    return table


def attempt(change):
    """Make a change; return why it is refused, None if it is not."""
    try:
        change()
    except (IncompatibleChangeError, InvalidInputError) as error:
        return str(error)
    return None


def row_ids(table):
    """Return the ids of all rows; none before the first commit after an upgrade."""
    if table.metadata.format_version < 3:
        return []
    found = table.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
    return [one for one in found if one is not None]


class TestNumbersOfMetadata:
    """A commit is right, or it is refused and says which number has come to its end."""

    @pytest.mark.generated
    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize(("version", "name", "number"), some(CASES, 8))
    def test_no_commit_makes_the_table_unreadable(self, tmp_path, version, name, number, operation):
        change, _ = NUMBERS[name]
        table = forge(make(tmp_path, version), lambda document: change(document, number))
        before = table.scan().to_arrow().num_rows
        why = attempt(lambda: OPERATIONS[operation](table))
        table = Table.load(table.catalog, "db.t")
        if why is not None:
            assert str(number) in why or str(number + 1) in why or "row ids" in why
            assert table.scan().to_arrow().num_rows == before
        table.scan().to_arrow()
        table.inspect.files()
        found = row_ids(table)
        assert len(set(found)) == len(found)
        assert all(one >= 0 for one in found)

    @pytest.mark.parametrize(("number", "is_refused"), [(LONG, True), (LONG - 1, False), (-5, False), (0, False)])
    def test_row_ids(self, tmp_path, number, is_refused):
        table = forge(make(tmp_path, 3), lambda document: document.update({"next-row-id": number}))
        if is_refused:
            with pytest.raises(IncompatibleChangeError, match="the ids are used up"):
                table.append(pa.table(ROWS))
        else:
            table.append(pa.table(ROWS))
        table = Table.load(table.catalog, "db.t")
        assert sorted(row_ids(table)) == [0, 1, *([] if is_refused else [max(number, 2)])]

    @pytest.mark.parametrize(("key", "change"), [("last-column-id", "new column"), ("schema-id", "new column"),
                                                 ("last-partition-id", "new partition field"),
                                                 ("last-sequence-number", "append"),
                                                 ("order-id", "new sort order")])  # fmt: skip
    def test_the_last_number_of_each(self, tmp_path, key, change):
        put, (end, *_) = NUMBERS[key]
        table = forge(make(tmp_path, 2), lambda document: put(document, end))
        with pytest.raises(IcebergError, match=str(end)):
            OPERATIONS[change](table)
        OPERATIONS["properties"](Table.load(table.catalog, "db.t"))
        assert Table.load(table.catalog, "db.t").scan().to_arrow().num_rows == 2

    def test_ids_that_are_in_use_are_not_given_again(self, tmp_path):
        table = forge(
            make(tmp_path, 3), lambda document: document.update({"last-column-id": 0, "last-partition-id": 0})
        )
        OPERATIONS["new column"](table)
        OPERATIONS["new partition field"](table)
        assert table.schema().find_field("z").id == 3
        assert [field.field_id for field in table.spec().fields] == [1000, 1001]


class TestRowCountsOfManifests:
    """Row ids follow from the numbers of rows in a manifest list, which another writer may have got wrong."""

    def manifest(self, **facts):
        known = {"manifest_path": "m.avro", "manifest_length": 1, "partition_spec_id": 0, "added_snapshot_id": 1,
                 "sequence_number": 1, "min_sequence_number": 1}  # fmt: skip
        return ManifestFile(**{**known, "added_rows_count": 1, "existing_rows_count": 0, **facts})

    @pytest.mark.parametrize("facts", [{"added_rows_count": LONG}, {"existing_rows_count": -1},
                                       {"added_rows_count": -3, "existing_rows_count": 4}])  # fmt: skip
    def test_wrong_ones_are_refused(self, facts):
        with pytest.raises(IncompatibleChangeError, match=r"cannot give row ids to manifest m\.avro"):
            assign_first_row_ids([self.manifest(), self.manifest(**facts)], 5)

    def test_delete_files_have_no_row_ids(self):
        found, _ = assign_first_row_ids([self.manifest(content=ManifestContent.DELETES, first_row_id=7)], 5)
        assert found[0].first_row_id is None


class TestLocationsThatEndWithASlash:
    """ClickHouse writes one, and cannot read paths with two in a row, which it would get from a commit."""

    def test_new_files_have_one_slash(self, tmp_path):
        table = forge(make(tmp_path, 2), lambda document: document.update({"location": document["location"] + "/"}))
        table.append(pa.table(ROWS))
        snapshot = Table.load(table.catalog, "db.t").current_snapshot()
        assert "//metadata" not in snapshot.manifest_list
        manifests = table.inspect.manifests()["path"].to_pylist()
        files = table.inspect.files()["file_path"].to_pylist()
        assert not [path for path in (*manifests, *files) if "//" in path.removeprefix("file://")]
        assert table.location == table.location.rstrip("/")


class TestASnapshotLogOutOfOrder:
    """Time travel takes the entry before the time, and not the last one in the list."""

    def test_time_counts(self, tmp_path):
        table = make(tmp_path, 2)
        table.append(pa.table(ROWS))
        (first_ms, first), (second_ms, second) = table.metadata.snapshot_log
        table = forge(table, lambda document: document["snapshot-log"].reverse())
        assert table.metadata.snapshot_as_of(second_ms).snapshot_id == second
        assert table.metadata.snapshot_as_of(max(first_ms, second_ms - 1)).snapshot_id in {first, second}
        assert table.metadata.snapshot_as_of(first_ms - 1) is None


def test_numbers_beyond_64_bits_are_no_numbers_of_the_format(tmp_path):
    with pytest.raises(FormatError, match="expected an int of 64"):
        forge(make(tmp_path, 3), lambda document: document.update({"next-row-id": LONG + 1}))


class TestBoundsOfOtherWriters:
    """A bound may be no value of its column: of a longer decimal, or, in ORC files of Iceberg Java, in another unit."""

    def test_a_decimal_beyond_its_precision_is_not_shown(self, tmp_path):
        table = new_table(tmp_path, schema={"d": "decimal(4, 2)"})
        file = tmp_path / "f.parquet"
        pq.write_table(pa.table({"d": pa.array([Decimal("1.00")], pa.decimal128(4, 2))}), file)
        bound = (10**9).to_bytes(5, "big", signed=True)
        add_file(table, file, record_count=1, lower_bounds={1: b"\x00"}, upper_bounds={1: bound})
        (metrics,) = table.inspect.files()["readable_metrics"].to_pylist()
        assert (metrics["d"]["lower_bound"], metrics["d"]["upper_bound"]) == (Decimal("0.00"), None)

    @pytest.mark.parametrize("count", [1, 60], ids=["entries", "columns"])
    @pytest.mark.parametrize(("file_format", "is_kept"), [("orc", True), ("parquet", False)])
    def test_nanoseconds_in_orc_files(self, tmp_path, file_format, is_kept, count):
        """Microseconds are a thousand times less: a filter would pass over the file, or a delete drop it as a whole."""
        table = new_table(tmp_path, schema={"t": "timestamp_ns"}, properties={"format-version": "3"})
        bound = (1_700_000_000_000_000).to_bytes(8, "little")
        facts = {
            "value_counts": {1: 1},
            "null_value_counts": {1: 0},
            "lower_bounds": {1: bound},
            "upper_bounds": {1: bound},
        }
        for number in range(count):
            path = tmp_path / f"{number}.{file_format}"
            add_file(table, path, record_count=1, file_format=file_format, **facts)
        found = list(table.scan("t > '2023-01-01'").plan_files())
        assert len(found) == (count if is_kept else 0)
