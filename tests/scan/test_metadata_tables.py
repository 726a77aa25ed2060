"""The tables of files and entries tell of each file what version 3 added, in Iceberg's words and order."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.types import LongType, VariantType
from airflow_iceberg.format.values.bytes import from_bytes, to_bytes
from airflow_iceberg.format.values.variant import encode_object, encode_primitive
from airflow_iceberg.scan.metadata_tables import Inspection
from airflow_iceberg.table import Table
from tests.support import golden
from tests.support.builders import add_file, id_rows, new_table
from tests.support.data_files import puffin_footer
from tests.support.variants import encode_names

VECTORS = "v3_deletion_vectors"
NEW_IN_V3 = {
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}

OF_ENTRY = ["status", "snapshot_id", "sequence_number", "file_sequence_number"]


def look_into(name: str) -> Inspection:
    table = golden.table(name)
    return Table.from_metadata(table.metadata_location, table.properties, io=table.io).inspect


def files_of(name: str, *contents: int) -> list[dict[str, Any]]:
    return [file for file in look_into(name).files().to_pylist() if file["content"] in contents]


class TestTheColumns:
    """They follow all others, as in Iceberg Java, whatever the version of the table."""

    @pytest.mark.parametrize("name", ["v1_unpartitioned", "v2_empty", VECTORS])
    def test_of_files_and_entries(self, name: str) -> None:
        look = look_into(name)
        entries, files = look.entries().schema, look.files().schema
        assert {field.name: field.type for field in list(files)[-5:-1]} == NEW_IN_V3
        assert files.names[-6:] == ["sort_order_id", *NEW_IN_V3, "readable_metrics"]
        assert entries.names == [*OF_ENTRY, "data_file", "readable_metrics"]
        assert entries.field("data_file").type == pa.struct(list(files)[:-1])
        assert entries.field("readable_metrics").type == files.field("readable_metrics").type


OVER_TIME = ["v1_unpartitioned", "v2_empty", "v2_maintained", "v2_mor_position_deletes", "v2_equality_deletes", VECTORS]


@pytest.mark.parametrize("name", OVER_TIME)
class TestOverAllSnapshots:
    """The tables that begin with `all_` hold what each of the snapshots holds."""

    @pytest.mark.parametrize(
        ("kind", "contents"), [("all_files", {0, 1, 2}), ("all_data_files", {0}), ("all_delete_files", {1, 2})]
    )
    def test_files(self, name: str, kind: str, contents: set[int]) -> None:
        look = look_into(name)
        each = [look.files(snapshot.snapshot_id).to_pylist() for snapshot in look.metadata.snapshots]
        expected = {file["file_path"] for files in each for file in files if file["content"] in contents}
        found = getattr(look, kind)()
        assert set(found["file_path"].to_pylist()) == expected
        assert found.schema == look.files().schema

    def test_entries(self, name: str) -> None:
        look = look_into(name)
        each = [look.entries(snapshot.snapshot_id).to_pylist() for snapshot in look.metadata.snapshots]
        expected = {(entry["status"], entry["data_file"]["file_path"]) for entries in each for entry in entries}
        found = look.all_entries().to_pylist()
        assert {(entry["status"], entry["data_file"]["file_path"]) for entry in found} == expected

    def test_manifests_with_the_snapshot_that_lists_them(self, name: str) -> None:
        look = look_into(name)
        expected = [
            {**manifest, "reference_snapshot_id": snapshot.snapshot_id}
            for snapshot in look.metadata.snapshots
            for manifest in look.manifests(snapshot.snapshot_id).to_pylist()
        ]
        assert look.all_manifests().to_pylist() == expected

    def test_the_log_of_metadata_ends_with_the_current_file(self, name: str) -> None:
        look = look_into(name)
        found = look.metadata_log_entries().to_pylist()
        assert found[:-1] == look.metadata_log().to_pylist()
        assert found[-1]["file"] == golden.table(name).metadata_location
        assert found[-1]["latest_snapshot_id"] == look.metadata.current_snapshot_id


class TestBeforeVersion3:
    """There is nothing to tell."""

    def test_all_of_them_are_null(self) -> None:
        files = files_of("v2_mor_position_deletes", 0, 1)
        assert {file["content"] for file in files} == {0, 1}
        assert {file[name] for file in files for name in NEW_IN_V3} == {None}


class TestFirstRowIds:
    """A data file has the id of its first row, inherited from its manifest where the file's entry has none."""

    @pytest.mark.parametrize("name", ["v3_row_lineage", "v3_equality_deletes_upgraded", VECTORS])
    def test_they_are_those_of_java(self, name: str) -> None:
        expected = [file for file in golden.table(name).expected["files"] if file["content"] == "DATA"]
        found, java = (sorted(file["first_row_id"] for file in files) for files in (files_of(name, 0), expected))
        assert found == java

    def test_delete_files_have_none_and_entries_tell_the_same(self) -> None:
        assert {file["first_row_id"] for file in files_of(VECTORS, 1)} == {None}
        live = [entry["data_file"] for entry in look_into(VECTORS).entries().to_pylist() if entry["status"] != 2]
        assert live == look_into(VECTORS).files().drop_columns("readable_metrics").to_pylist()

    def test_those_of_our_own_appends_follow_each_other(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, properties={"format-version": "3"})
        for count in (3, 2, 1):
            table.append(id_rows(range(count)))
        files = sorted(table.inspect.files().to_pylist(), key=lambda file: file["first_row_id"])
        assert [(file["first_row_id"], file["record_count"]) for file in files] == [(0, 3), (3, 2), (5, 1)]


class TestFieldsThatBecameVoid:
    """In version 1 a partition field stays as void: values of before are shown, in their own type."""

    @pytest.mark.parametrize("term", ["bucket(4, name)", "truncate(2, name)", "name", "bucket(4, at)", "hour(at)"])
    def test_files_and_rows_show_the_partitions_of_before(self, tmp_path: Path, term: str) -> None:
        schema, properties = {"name": "string", "at": "timestamp"}, {"format-version": "1"}
        table = new_table(tmp_path, schema=schema, partition_by=[f"{term} as part"], properties=properties)
        row = pa.table({"name": ["abc"], "at": ["2026-01-01T10:00:00"]})
        table.append(row)
        before = table.inspect.files().to_pylist()[0]["partition"]["part"]
        table.alter([{"set_partitioning": []}])
        table.append(row)
        files = table.inspect.files().to_pylist()
        assert [file["partition"]["part"] for file in files] == [None, before]
        assert before is not None
        rows = table.scan(selected_fields=("_partition",)).to_arrow().to_pylist()
        assert rows == [{"_partition": {"part": None}}, {"_partition": {"part": before}}]
        assert table.inspect.partitions().num_rows == 2
        assert table.inspect.entries().num_rows == 2


class TestANameThatTwoFieldsHaveHad:
    """The newer one keeps it, so that the tables have each name once."""

    def test_the_older_one_gets_its_id_behind_it(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, schema={"name": "string"}, partition_by=["truncate(1, name) as part"])
        table.append(pa.table({"name": ["abc"]}))
        table.alter([{"set_partitioning": ["truncate(2, name) as part"]}])
        table.append(pa.table({"name": ["abc"]}))
        expected = [{"part_1000": None, "part": "ab"}, {"part_1000": "a", "part": None}]
        assert [file["partition"] for file in table.inspect.files().to_pylist()] == expected
        assert table.inspect.partitions().num_rows == 2
        rows = table.scan(selected_fields=("_partition",)).to_arrow()
        assert rows["_partition"].to_pylist() == expected


class TestDeletionVectors:
    """A vector is told by the data file it is about, and where its blob lies in the Puffin file."""

    def test_it_names_a_live_data_file(self) -> None:
        vectors, data = files_of(VECTORS, 1), {file["file_path"] for file in files_of(VECTORS, 0)}
        assert vectors
        assert {file["referenced_data_file"] for file in vectors} <= data

    def test_what_lies_at_its_offset_is_a_vector_of_that_many_rows_as_the_puffin_file_says(self) -> None:
        io = golden.table(VECTORS).io
        for file in files_of(VECTORS, 1):
            start = file["content_offset"]
            blob = io.read(file["file_path"])[start : start + file["content_size_in_bytes"]]
            assert len(RowPositions.from_blob(blob).to_array()) == file["record_count"]
        for file in files_of(VECTORS, 1):
            blobs = puffin_footer(io.read(file["file_path"]))["blobs"]
            spans = {blob["properties"]["referenced-data-file"]: (blob["offset"], blob["length"]) for blob in blobs}
            assert spans[file["referenced_data_file"]] == (file["content_offset"], file["content_size_in_bytes"])


class TestBoundsOfVariants:
    """Iceberg 1.11 writes them: one variant with the bounds of all paths, metadata and value in one sequence of bytes.

    Spec: Bounds for Variant.
    """

    PATHS = ("$['a']", "$['b']")
    METADATA = encode_names(PATHS)
    VALUE = encode_object(dict(zip(PATHS, (0, 1))), {PATHS[0]: encode_primitive(LongType(), 5)})

    def table(self, folder: Path, *bounds: bytes) -> Table:
        schema = {"id": "long", "v": "variant", "s": "struct<v: variant>", "g": "geometry", "u": "unknown"}
        table = new_table(folder, schema=schema, properties={"format-version": "3"})
        for number, bound in enumerate(bounds):
            found = {table.schema().names[name]: bound for name in ("v", "s.v", "g", "u")}
            place = folder / f"{number}.parquet"
            add_file(table, place, record_count=number + 1, lower_bounds=found, upper_bounds=found)
        return table

    def test_all_tables_of_files_have_them(self, tmp_path):
        table = self.table(tmp_path, self.METADATA + self.VALUE)
        (file,) = table.inspect.files().to_pylist()
        expected = {"metadata": self.METADATA, "value": self.VALUE}
        for name in ("v", "s.v"):
            assert file["readable_metrics"][name]["lower_bound"] == expected
            assert file["readable_metrics"][name]["upper_bound"] == expected
        assert dict(file["lower_bounds"])[table.schema().names["v"]] == self.METADATA + self.VALUE
        for found in (table.inspect.entries(), table.inspect.all_entries()):
            assert found["readable_metrics"].to_pylist() == [file["readable_metrics"]]
        assert table.inspect.all_data_files().num_rows == table.inspect.partitions().num_rows == 1

    @pytest.mark.parametrize("damaged", [b"", b"\x01", b"junk", METADATA, METADATA[:-1], b"\xc1" + b"\xff" * 9])
    def test_one_that_cannot_be_read_is_null(self, tmp_path, damaged):
        table = self.table(tmp_path, damaged, self.METADATA + self.VALUE)
        found = {row["record_count"]: row["readable_metrics"]["v"] for row in table.inspect.files().to_pylist()}
        assert found[1]["lower_bound"] is None
        assert found[2]["lower_bound"] == {"metadata": self.METADATA, "value": self.VALUE}

    def test_filters_do_not_use_them(self, tmp_path):
        table = self.table(tmp_path, self.METADATA + self.VALUE, b"junk")
        for row_filter in ("v is null", "v is not null", "s.v is null", "g is null", "id = 1"):
            assert len(list(table.scan(row_filter).plan_files())) == 2

    def test_bytes_of_a_value(self):
        both = (self.METADATA, self.VALUE)
        assert from_bytes(VariantType(), to_bytes(VariantType(), both)) == both


class TestWhatItCosts:
    """Columns become a table as they are: pyarrow is not asked to guess, for which it would import pandas."""

    PROGRAM = """
import sys
from airflow_iceberg.table import Table
table = Table.from_metadata(sys.argv[1])
print(table.inspect.files().num_rows, table.inspect.entries().num_rows, "pandas" in sys.modules)
"""

    @pytest.mark.costly
    def test_pandas_is_not_imported(self, tmp_path: Path) -> None:
        rows = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"], "price": [1.5, None, 2.5]})
        table = new_table(tmp_path, schema=rows.schema, partition_by=["day"])
        table.append(rows)
        command = [sys.executable, "-c", self.PROGRAM, table.metadata_location]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["2", "2", "False"]
