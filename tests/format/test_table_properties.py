"""Table properties are read by type, each when it is asked for, and every default stands in one table."""

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.properties.known import PROPERTIES, check_values
from airflow_iceberg.format.properties.property import ColumnProperty, Property
from airflow_iceberg.format.properties.table_properties import TableProperties

READ = {name: known for name, known in vars(TableProperties).items() if isinstance(known, Property)}
OF_COLUMNS = {name: known for name, known in vars(TableProperties).items() if isinstance(known, ColumnProperty)}


def of(**texts: str) -> TableProperties:
    return TableProperties.of({name.replace("__", ".").replace("_", "-"): text for name, text in texts.items()})


class TestReading:
    """An attribute is the value of a property, or its default."""

    @pytest.mark.parametrize("name", READ)
    def test_without_the_property_it_is_the_default(self, name: str) -> None:
        assert getattr(TableProperties.of({}), name) == READ[name].default

    @pytest.mark.parametrize("name", OF_COLUMNS)
    def test_so_it_is_of_a_column_without_one(self, name: str) -> None:
        values = getattr(TableProperties.of({OF_COLUMNS[name].prefix + "a.b": "1"}), name)
        assert values.columns() == ("a.b",)
        assert values.of("c") == OF_COLUMNS[name].default

    def test_values_are_typed_and_the_class_knows_the_names(self) -> None:
        found = of(write__target_file_size_bytes=" 7 ", gc__enabled="TRUE", write__parquet__page_version="V2")
        assert (found.target_file_size_bytes, found.gc_enabled, found.page_version) == (7, True, "v2")
        assert of(write__parquet__compression_level="null").compression_level is None
        shares = of(write__parquet__bloom_filter_fpp__column__x="0.5").bloom_filter_fpp
        assert (shares.of("x"), shares.property_name("x")) == (0.5, "write.parquet.bloom-filter-fpp.column.x")
        assert TableProperties.gc_enabled.name == str(TableProperties.gc_enabled) == "gc.enabled"
        assert TableProperties.stats_enabled.prefix == "write.parquet.stats-enabled.column."

    def test_a_bad_value_that_nobody_asks_for_is_in_nobodys_way(self) -> None:
        found = of(write__target_file_size_bytes="512MB", read__split__target_size="-1")
        assert found.page_row_limit == 20_000
        with pytest.raises(
            InvalidInputError, match=r"^property write\.target-file-size-bytes is '512MB' \(expected a nu"
        ):
            _ = found.target_file_size_bytes
        with pytest.raises(
            InvalidInputError, match=r"^property read\.split\.target-size is '-1' \(expected a number of bytes"
        ):
            _ = found.split_size_bytes


class TestValuesOfOtherEngines:
    """What another engine has set is read as Iceberg Java reads it, also where nobody could set it here."""

    @pytest.mark.parametrize(("attribute", "text", "expected"), [
        ("gc_enabled", "no", False), ("manifest_merge_enabled", "yes", False),
        ("metadata_delete_after_commit", " True ", True), ("summary_partition_limit", "-1", -1),
        ("metadata_previous_versions_max", "-1", -1), ("distribution_mode", " Sorted ", "sorted"),
        ("metrics_default", "some", "some"), ("metadata_path", "", None),
        ("object_storage_partitioned_paths", "1", False), ("object_storage_enabled", "TRUE", True),
        ("manifest_min_count_to_merge", "0", 0), ("manifest_target_size_bytes", "-1", 0),
        ("min_snapshots_to_keep", "-1", -1), ("target_file_size_bytes", "0", 512 << 20),
        ("retry_num_retries", "-1", 0), ("status_check_min_wait_ms", "-1", 0),
    ])  # fmt: skip
    def test_it_is_read(self, attribute: str, text: str, expected: object) -> None:
        name = READ[attribute].name
        assert getattr(TableProperties.of({name: text}), attribute) == expected

    @pytest.mark.parametrize(("name", "text"), [
        ("gc.enabled", "no"), ("commit.manifest-merge.enabled", "yes"), ("write.summary.partition-limit", "-1"),
        ("write.metadata.metrics.column.a", "some"), ("commit.status-check.max-wait-ms", "soon"),
        *[(name, text) for name in ("write.data.path", "write.folder-storage.path", "write.metadata.path")
          for text in ("some/dir", "../dir", "file:dir", "s3:bucket/dir", "data")],
    ])  # fmt: skip
    def test_it_is_not_set(self, name: str, text: str) -> None:
        with pytest.raises(InvalidInputError, match=f"^property {name}"):
            check_values({name: text})

    @pytest.mark.parametrize("text", ["/dir", "file:/dir", "file:///dir", "s3://bucket/dir", "memory://dir", ""])
    def test_a_location_is_absolute(self, text: str) -> None:
        check_values({"write.data.path": text, "write.object-storage.path": text})

    @pytest.mark.parametrize("text", ["0", "-1", "1_000", "+5", "128MB", "٣"])
    def test_a_split_size_is_written_in_digits(self, text: str) -> None:
        with pytest.raises(
            InvalidInputError, match=r"^property read\.split\.target-size is .* \(expected a number of by"
        ):
            _ = of(read__split__target_size=text).split_size_bytes


class TestTheTable:
    """Each property is in the table once."""

    def test_what_is_read_is_known_under_one_name(self) -> None:
        names = [known.name for known in (*READ.values(), *OF_COLUMNS.values())]
        assert len(set(names)) == len(names)
        assert set(names) <= set(PROPERTIES)

    @pytest.mark.parametrize("name", READ)
    def test_a_default_is_one_that_could_be_set(self, name: str) -> None:
        known = READ[name]
        if known.default is not None:
            text = str(known.default).lower() if isinstance(known.default, bool) else str(known.default)
            known.check(known.name, text)
