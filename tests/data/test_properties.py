"""Every `write.*` property of Iceberg: followed, refused, or warned about, as the documentation says."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.known import PROPERTIES, find_property, property_warnings
from airflow_iceberg.format.properties.property import State
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.parquet_pages import DATA, DATA_V2, DICTIONARY, pages_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-properties.md"
ROW = re.compile(r"^\| `([a-z-]+[.-][^`]+)` \| ([a-z ]+) \|", re.MULTILINE)
# The constants of TableProperties in Iceberg Java 1.10.2, and what came after it up to 21 August 2026; "x" stands for a
# column.
NAMES = """
avro.compression-codec avro.compression-level data.path delete.avro.compression-codec delete.avro.compression-level
delete.distribution-mode delete.format.default delete.granularity delete.isolation-level delete.mode
delete.orc.block-size-bytes delete.orc.compression-codec delete.orc.compression-strategy delete.orc.stripe-size-bytes
delete.orc.vectorized.batch-size delete.parquet.compression-codec delete.parquet.compression-level
delete.parquet.dict-size-bytes delete.parquet.page-row-limit delete.parquet.page-size-bytes
delete.parquet.row-group-check-max-record-count delete.parquet.row-group-check-min-record-count
delete.parquet.row-group-size-bytes delete.target-file-size-bytes distribution-mode folder-storage.path format.default
location-provider.impl manifest-lists.enabled merge.distribution-mode merge.isolation-level merge.mode
metadata.compression-codec metadata.delete-after-commit.enabled metadata.metrics.column.x metadata.metrics.default
metadata.metrics.max-inferred-column-defaults metadata.path metadata.previous-versions-max object-storage.enabled
object-storage.partitioned-paths object-storage.path orc.block-size-bytes orc.bloom.filter.columns orc.bloom.filter.fpp
orc.compression-codec orc.compression-strategy orc.stripe-size-bytes orc.vectorized.batch-size
parquet.bloom-filter-enabled.column.x parquet.bloom-filter-fpp.column.x parquet.bloom-filter-max-bytes
parquet.compression-codec parquet.compression-level parquet.dict-size-bytes parquet.page-row-limit
parquet.page-size-bytes parquet.row-group-check-max-record-count parquet.row-group-check-min-record-count
parquet.row-group-size-bytes parquet.stats-enabled.column.x spark.accept-any-schema spark.advisory-partition-size-bytes
spark.fanout.enabled summary.partition-limit target-file-size-bytes update.distribution-mode update.isolation-level
update.mode upsert.enabled wap.enabled parquet.page-version delete.parquet.page-version parquet.shred-variants
parquet.variant-inference-buffer-size manifest.compression-codec manifest.compression-level
parquet.row-group-size-track-uncompressed parquet.bloom-filter-adaptive-enabled parquet.bloom-filter-ndv.column.x
parquet.dict-encoding-enabled.column.x spark.auto-schema-evolution.enabled merge.cardinality-check.enabled
"""


class TestTheList:
    """Every property of Iceberg is known, and the page says what becomes of it."""

    def test_the_page_says_what_the_code_does(self):
        assert dict(ROW.findall(PAGE.read_text())) == {name: known.state.value for name, known in PROPERTIES.items()}

    @pytest.mark.parametrize("name", NAMES.split())
    def test_every_property_of_iceberg_is_known(self, name):
        assert find_property(f"write.{name}") is not None

    def test_the_longer_name_counts(self):
        assert find_property("write.delete.parquet.compression-codec").state is State.FOLLOWED
        assert find_property("write.delete.avro.compression-codec").state is State.FOLLOWED
        assert find_property("write.delete.orc.compression-codec").state is State.UNUSED


class TestWarnings:
    """What is set and not followed is said, once."""

    @pytest.mark.parametrize("name", [name for name, known in PROPERTIES.items() if known.state is State.WARNED])
    def test_a_property_that_is_not_followed(self, name):
        name = name.replace("*", "dict-size-bytes")
        (warning,) = property_warnings({name: "7"})
        assert warning.startswith(f"property {name} is set, and this writer does not follow it")

    @pytest.mark.parametrize(
        "name", [name for name, known in PROPERTIES.items() if known.state in (State.FOLLOWED, State.UNUSED)]
    )
    def test_a_property_that_is_followed_or_of_others(self, name):
        assert property_warnings({name.replace("*", "x"): "7"}) == ()

    def test_an_unknown_property(self):
        assert property_warnings({"write.parquet.colour": "red", "owner": "me"}) == (
            "property write.parquet.colour is set, and this writer does not support it",
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("write.wap.enabled", "false"),
            ("write.delete.granularity", "FILE"),
            ("write.delete.distribution-mode", "none"),
            ("write.parquet.shred-variants", "false"),
            ("write.manifest-lists.enabled", "true"),
            ("write.spark.accept-any-schema", "false"),
            ("write.manifest.compression-codec", "gzip"),
            ("write.parquet.bloom-filter-adaptive-enabled", "false"),
        ],
    )
    def test_a_value_that_asks_for_what_is_done_anyway(self, name, value):
        assert property_warnings({name: value}) == ()


def written(folder: Path, **properties: str) -> tuple[Table, pq.ParquetFile]:
    columns = {"id": "long", "p": "struct<x: double>", "tags": "list<string>"}
    names = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    table = new_table(folder, schema=columns, properties=names)
    table.append(pa.table({"id": [1, 2], "p": [{"x": 0.5}, None], "tags": [["a"], []]}))
    (task,) = table.scan().plan_files()
    return table, pq.ParquetFile(table.io.filesystem(task.file.file_path)[1])


class TestStatistics:
    """Columns of which the table wants no statistics have none, in the file and in the manifest."""

    def test_others_keep_theirs(self, tmp_path):
        table, file = written(tmp_path, **{"write__parquet__stats_enabled__column__p.x": "false"})
        columns = [file.metadata.row_group(0).column(number) for number in range(3)]
        assert [column.path_in_schema for column in columns if column.statistics] == ["id", "tags.list.element"]
        (task,) = table.scan().plan_files()
        by_name = {column: table.schema().find_field(column).id for column in ("id", "p.x")}
        assert by_name["id"] in task.file.null_value_counts
        assert by_name["p.x"] not in task.file.null_value_counts
        assert by_name["p.x"] not in (task.file.lower_bounds or {})
        assert table.scan("p.x > 0").to_arrow().num_rows == 1

    def test_without_the_property_all_have_them(self, tmp_path):
        group = written(tmp_path)[1].metadata.row_group(0)
        assert all(group.column(number).statistics for number in range(3))


class TestPages:
    """Pages are of the version, the sizes and the numbers of rows that the table asks for, of deletes as well."""

    PLAIN = {"write.parquet.dict-encoding-enabled.column.id": "false"}
    OF_DELETES = "write.delete.parquet."

    def pages(self, folder, **properties):
        """The pages of 30,000 numbers, 8 bytes each when they are plain."""
        table = new_table(folder, properties=properties)
        table.append(pa.table({"id": range(30_000)}))
        (task,) = table.scan().plan_files()
        assert table.scan("id >= 29990").to_arrow().num_rows == 10
        return pages_of(task.file.file_path.removeprefix("file://"))

    def pages_of_deletes(self, folder, **properties):
        """The pages of 20,000 positions."""
        properties = {"format-version": "2", "write.delete.mode": "merge-on-read", **properties}
        table = new_table(folder, properties=properties)
        table.append(pa.table({"id": range(30_000)}))
        table.delete("id >= 5000 and id < 25000")
        (task,) = table.scan().plan_files()
        assert table.scan().to_arrow().num_rows == 10_000
        return pages_of(task.delete_files[0].file_path.removeprefix("file://"), column=1)

    @pytest.mark.costly
    @pytest.mark.parametrize(("text", "kind"), [("v1", DATA), ("V2", DATA_V2)])
    def test_both_versions_are_written(self, text, kind, tmp_path):
        (tmp_path / "deletes").mkdir()
        found = self.pages(tmp_path, **{"write.parquet.page-version": text})
        assert {page.kind for page in found} == {DICTIONARY, kind}
        found = self.pages_of_deletes(tmp_path / "deletes", **{f"{self.OF_DELETES}page-version": text})
        assert {page.kind for page in found} <= {DICTIONARY, kind}

    def test_a_page_has_a_mebibyte_and_20000_rows_at_most(self, tmp_path):
        assert [page.values for page in self.pages(tmp_path, **self.PLAIN)] == [20_000, 10_000]

    def test_rows_can_be_limited_further(self, tmp_path):
        limit = {"write.parquet.page-row-limit": "7000"}
        assert [page.values for page in self.pages(tmp_path, **self.PLAIN, **limit)] == [7000] * 4 + [2000]

    def test_so_can_bytes(self, tmp_path):
        found = self.pages(tmp_path, **self.PLAIN, **{"write.parquet.page-size-bytes": "40000"})
        assert max(page.size_bytes for page in found) < 2 * 40_000
        assert sum(page.values for page in found) == 30_000

    def test_a_dictionary_that_grows_too_large_ends(self, tmp_path):
        found = self.pages(tmp_path, **{"write.parquet.dict-size-bytes": "4096"})
        assert found[0].kind == DICTIONARY
        assert found[0].size_bytes < 30_000 * 8 / 2
        assert sum(page.values for page in found[1:]) == 30_000

    @pytest.mark.parametrize("prefix", [OF_DELETES, "write.parquet."])
    def test_those_of_deletes_are_limited_by_their_own_or_by_those_of_data(self, prefix, tmp_path):
        found = self.pages_of_deletes(tmp_path, **{f"{prefix}page-row-limit": "6000"})
        assert [page.values for page in found if page.kind != DICTIONARY] == [6000] * 3 + [2000]

    def test_so_are_their_bytes(self, tmp_path):
        sizes = {f"{self.OF_DELETES}page-size-bytes": "20000", f"{self.OF_DELETES}dict-size-bytes": "16"}
        plain = [page for page in self.pages_of_deletes(tmp_path, **sizes) if page.kind != DICTIONARY]
        assert len(plain) > 4
        assert sum(page.values for page in plain) == 20_000

    def test_another_version_is_refused(self):
        with pytest.raises(InvalidInputError, match=r"write\.parquet\.page-version is 'v3' \(expected one of v1, v2\)"):
            WriteOptions.from_properties({"write.parquet.page-version": "v3"}, schema_from_shorthand({"id": "long"}))


class TestDictionaries:
    """Columns of which the table wants no dictionary are written plain."""

    def test_others_keep_theirs(self, tmp_path):
        _, file = written(tmp_path, **{"write__parquet__dict_encoding_enabled__column__p.x": "false"})
        columns = [file.metadata.row_group(0).column(number) for number in range(3)]
        has_dictionary = {column.path_in_schema: column.has_dictionary_page for column in columns}
        assert has_dictionary == {"id": True, "p.x": False, "tags.list.element": True}


class TestSummaries:
    """A snapshot's summary tells of so many partitions one by one as the table says, by default of none."""

    @pytest.mark.parametrize(
        ("properties", "told"),
        [({}, []), ({"write.summary.partition-limit": "1"}, []), ({"write.summary.partition-limit": "2"}, ["a", "b"])],
    )
    def test_up_to_the_limit(self, properties, told, tmp_path):
        columns = {"id": "long", "p": "string"}
        table = new_table(tmp_path, schema=columns, partition_by=["p"], properties=properties)
        table.append(pa.table({"id": [1, 2, 3], "p": ["a", "b", "b"]}))
        summary = table.current_snapshot().summary
        assert summary["changed-partition-count"] == "2"
        assert sorted(name for name in summary if name.startswith("partitions.")) == [f"partitions.p={p}" for p in told]


class TestWriteAuditPublish:
    """What is staged for `publish_changes` is not written here, so nothing may look as if it were."""

    @pytest.mark.parametrize("name", ["wap.id", "published-wap-id", "source-snapshot-id"])
    def test_its_entries_of_a_summary_are_refused(self, tmp_path, name):
        table, _ = written(tmp_path, write__wap__enabled="true")
        with pytest.raises(InvalidInputError, match=rf"snapshot property '{name}' .* write to a branch of the table"):
            table.append(pa.table({"id": [3]}), snapshot_properties={name: "audit-1"})
        assert len(table.refresh().snapshots()) == 1

    def test_a_write_to_such_a_table_says_where_its_rows_go(self, tmp_path, caplog):
        written(tmp_path, write__wap__enabled="true")
        assert "rows are written to the given branch, by default to main at once" in caplog.text
