"""Table properties about writing: read once, checked, and never passed over in silence."""

import subprocess
import sys

import pytest

from airflow_iceberg.data.write.options import WriteOptions, data_location
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.properties.table_properties import MIB
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand

SCHEMA = schema_from_shorthand({"id": "long", "p": "struct<x: double>"})


def options(properties: dict[str, str] | None = None) -> WriteOptions:
    return WriteOptions.from_properties(properties or {}, SCHEMA)


class TestSizesAndCodecs:
    """The defaults are Iceberg's; a property of the table changes one of them."""

    def test_without_properties_files_have_512_mib_row_groups_128_and_zstd(self):
        found = options()
        assert (found.target_file_size_bytes, found.row_group_size_bytes) == (512 * MIB, 128 * MIB)
        assert (found.page_size_bytes, found.page_row_limit, found.dict_size_bytes) == (MIB, 20_000, 2 * MIB)
        assert (found.compression, found.compression_level) == ("zstd", None)

    def test_each_size_has_its_property(self):
        names = ["row-group-size-bytes", "page-size-bytes", "page-row-limit", "dict-size-bytes"]
        sizes = {f"write.parquet.{name}": str(number) for number, name in enumerate(names, start=2)}
        found = options({"write.target-file-size-bytes": "1", **sizes})
        sizes = (found.target_file_size_bytes, found.row_group_size_bytes, found.page_size_bytes)
        assert (*sizes, found.page_row_limit, found.dict_size_bytes) == (1, 2, 3, 4, 5)

    @pytest.mark.parametrize("text", ["many", "1.5", "", "1e3"])
    def test_a_size_that_is_no_number_is_refused(self, text):
        with pytest.raises(InvalidInputError, match=rf"property write\.target-file-size-bytes is '{text}' \(expected"):
            options({"write.target-file-size-bytes": text})

    @pytest.mark.parametrize("text", ["0", "-1"])
    def test_a_size_of_0_or_less_is_none(self, text):
        assert options({"write.target-file-size-bytes": text}).target_file_size_bytes == 512 << 20

    @pytest.mark.parametrize("name", ["row-group-size-bytes", "page-size-bytes", "page-row-limit", "dict-size-bytes"])
    def test_of_parts_of_a_file_it_is_refused_as_in_java(self, name):
        with pytest.raises(InvalidInputError, match="expected a number above 0"):
            options({f"write.parquet.{name}": "0"})

    def test_what_is_not_true_is_false_as_in_java(self):
        columns = {f"write.parquet.{name}.column.id": "yes" for name in ("stats-enabled", "dict-encoding-enabled")}
        found = options(
            {**columns, "write.object-storage.enabled": "1", "write.parquet.bloom-filter-enabled.column.id": "on"}
        )
        assert (found.without_statistics, found.without_dictionary) == (frozenset({"id"}), frozenset({"id"}))
        assert (found.object_storage, found.bloom_filters) == (False, {})

    @pytest.mark.parametrize(
        ("text", "codec"), [("ZSTD", "zstd"), ("gzip", "gzip"), ("uncompressed", "none"), ("lz4_raw", "lz4")]
    )
    def test_codecs_go_by_icebergs_names(self, text, codec):
        assert options({"write.parquet.compression-codec": text}).compression == codec

    def test_an_unknown_codec_is_refused(self):
        message = r"unknown codec 'lzo' in property write\.parquet\.compression-codec"
        with pytest.raises(InvalidInputError, match=message):
            options({"write.parquet.compression-codec": "lzo"})

    def test_a_level_is_kept_where_the_codec_has_levels(self):
        level = {"write.parquet.compression-level": "7"}
        assert options(level).compression_level == 7
        assert options({**level, "write.parquet.compression-codec": "snappy"}).compression_level is None
        assert options({"write.parquet.compression-level": "null"}).compression_level is None

    @pytest.mark.parametrize(("codec", "level"), [("gzip", "10"), ("brotli", "12"), ("zstd", "23"), ("zstd", "9" * 12)])
    def test_a_level_that_the_codec_does_not_have_is_refused(self, codec, level):
        with pytest.raises(InvalidInputError, match=f"compression-level is '{level}', and {codec} has levels from"):
            options({"write.parquet.compression-codec": codec, "write.parquet.compression-level": level})
        of_deletes = {"write.delete.parquet.compression-codec": codec, "write.parquet.compression-level": level}
        with pytest.raises(InvalidInputError, match=f"{codec} has levels"):
            WriteOptions.of_deletes(of_deletes)


class TestWhatIsNotFollowed:
    """What this writer does not do is said: as a warning, or as an error where files would be wrong."""

    @pytest.mark.parametrize("name", ["write.parquet.row-group-check-min-record-count", "write.location-provider.impl"])
    def test_a_property_that_is_not_followed_is_logged(self, name, caplog):
        options({name: "100", "write.parquet.page-size-bytes": "1"})
        (record,) = caplog.records
        assert record.getMessage() == f"property {name} is set, and this writer does not follow it"

    @pytest.mark.parametrize(("name", "said"), [("write.format.default", "is 'orc'"), ("encryption.key-id", "is set")])
    def test_another_file_format_and_encryption_are_refused(self, name, said):
        with pytest.raises(UnsupportedError, match=f"property {name} {said}"):
            options({name: "orc"})
        assert options({"write.format.default": "PARQUET"}) == options()


class TestBloomFilters:
    """A filter is laid out for as many values as fit into the greatest size."""

    enabled = "write.parquet.bloom-filter-enabled.column."

    def test_a_mebibyte_at_one_percent_takes_866455_values(self):
        found = options({f"{self.enabled}p.x": "true", f"{self.enabled}id": "false"}).bloom_filters
        assert list(found) == ["p.x"]
        assert (found["p.x"].false_positives, found["p.x"].distinct_values) == (0.01, 866_455)

    def test_share_and_number_are_properties(self):
        fpp, ndv = ("write.parquet.bloom-filter-fpp.column.id", "write.parquet.bloom-filter-ndv.column.id")
        found = options({f"{self.enabled}id": "true", fpp: "0.1", ndv: "100"}).bloom_filters["id"]
        assert (found.false_positives, found.distinct_values) == (0.1, 100)

    def test_the_greatest_size_is_a_property(self):
        found = options({f"{self.enabled}id": "true", "write.parquet.bloom-filter-max-bytes": str(MIB // 1024)})
        assert found.bloom_filters["id"].distinct_values == 866_455 // 1024

    @pytest.mark.parametrize("text", ["0", "1", "2", "x"])
    def test_a_share_outside_0_and_1_is_refused(self, text):
        with pytest.raises(InvalidInputError, match=rf"bloom-filter-fpp\.column\.id is '{text}'"):
            options({f"{self.enabled}id": "true", "write.parquet.bloom-filter-fpp.column.id": text})

    def test_a_column_that_is_not_there_is_logged(self, caplog):
        assert not options({f"{self.enabled}gone": "true"}).bloom_filters
        assert f"property {self.enabled}gone names a column that the table does not have" in caplog.text


class TestLocations:
    """Data files lie below `<table>/data`, or where the table's properties say."""

    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            ({}, "s3://b/t/data"),
            ({"write.data.path": "s3://c/d/"}, "s3://c/d"),
            ({"write.folder-storage.path": "s3://c/e"}, "s3://c/e"),
            ({"write.object-storage.path": "s3://c/f"}, "s3://b/t/data"),
            ({"write.object-storage.path": "s3://c/f", "write.object-storage.enabled": "true"}, "s3://c/f"),
        ],
    )
    def test_the_data_location(self, properties, expected):
        assert data_location("s3://b/t/", properties) == expected

    def test_a_partition_is_a_directory(self):
        assert options().file_location("d", "a=1/b=2", "f.parquet") == "d/a=1/b=2/f.parquet"
        assert options().file_location("d", "", "f.parquet") == "d/f.parquet"

    def test_object_storage_puts_a_hash_of_20_bits_before_the_path_as_java_does(self):
        found = options({"write.object-storage.enabled": "true"})
        # The hashes of the test values in Iceberg's own documentation of the layout.
        assert found.file_location("d", "", "a") == "d/0101/0110/1001/10110010/a"
        assert found.file_location("d", "", "b") == "d/1110/0111/1110/00000011/b"
        assert found.file_location("d", "k=1", "a").endswith("/k=1/a")

    def test_object_storage_without_partitions_in_the_path(self):
        off = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
        assert options(off).file_location("d", "k=1", "a") == "d/0101/0110/1001/10110010-a"


class TestImport:
    """The options are read by processes that write nothing."""

    def test_importing_the_options_costs_no_pyarrow(self):
        code = "import sys, airflow_iceberg.data.write.options; sys.exit('pyarrow' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
