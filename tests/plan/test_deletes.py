"""Which delete files apply to a data file: the rules, and an index that is as good as trying every pair."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms.transform import BucketTransform, IdentityTransform, VoidTransform
from airflow_iceberg.format.types import LongType
from airflow_iceberg.format.values.bytes import to_bytes
from airflow_iceberg.plan.deletes import FILE_PATH_ID, DeleteIndex

SCHEMA = schema_from_shorthand({"id": "long", "cat": "double", "s": "string"})
POSITION, EQUALITY = FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES
NAN = float("nan")
ONE = {FILE_PATH_ID: b"d"}


def spec(spec_id: int, *transforms: Any) -> PartitionSpec:
    fields = tuple(
        PartitionField(source_id=2, field_id=1000 + index, name=f"p{index}", transform=transform)
        for index, transform in enumerate(transforms)
    )
    return PartitionSpec(spec_id=spec_id, fields=fields)


def table() -> TableMetadata:
    """Return a table with a partitioned spec 0, an unpartitioned 1, one of a void field 2 and another partitioned 3."""
    specs = (spec(0, IdentityTransform()), spec(1), spec(2, VoidTransform()), spec(3, BucketTransform(num_buckets=4)))
    made = new_table_metadata(location="memory://t", schema=SCHEMA, table_uuid=str(UUID(int=1)), now_ms=1)
    return replace(made, partition_specs=specs)


METADATA = table()


def entry(path: str, sequence_number: int, spec_id: int = 1, partition: tuple[Any, ...] = (), **more: Any) -> Any:
    more.setdefault("file_format", "parquet")
    if more.get("content") is EQUALITY:
        more.setdefault("equality_ids", (1,))
    file = DataFile(file_path=path, spec_id=spec_id, partition=partition, record_count=3, file_size_in_bytes=9, **more)
    return ManifestEntry(status=EntryStatus.ADDED, sequence_number=sequence_number, data_file=file)


def vector(path: str, sequence_number: int, of: str | None, **more: Any) -> Any:
    return entry(path, sequence_number, content=POSITION, file_format="puffin", referenced_data_file=of, **more)


def applied(data: ManifestEntry, *deletes: ManifestEntry, row_filter: str | None = None) -> list[str]:
    expression = parse_filter(row_filter, METADATA.schema())
    return [file.file_path for file in DeleteIndex(deletes, metadata=METADATA, row_filter=expression).of(data)]


def bounds(low: int | None, high: int | None, nulls: int = 0) -> dict[str, Any]:
    values = {"value_counts": {1: 3}, "null_value_counts": {1: nulls}}
    if low is None or high is None:
        return values
    return {**values, "lower_bounds": {1: to_bytes(LongType(), low)}, "upper_bounds": {1: to_bytes(LongType(), high)}}


class TestSequenceNumbers:
    """Position deletes reach rows of their own commit and older; equality deletes older ones only."""

    @pytest.mark.parametrize(("delete", "reached"), [
        (entry("x", 5, content=POSITION), [4, 5]), (vector("x", 5, "d"), [4, 5]),
        (entry("x", 5, content=EQUALITY), [4]),
    ], ids=["position deletes", "a deletion vector", "equality deletes"])  # fmt: skip
    def test_a_delete_reaches(self, delete: ManifestEntry, reached: list[int]) -> None:
        assert [number for number in (4, 5, 6) if applied(entry("d", number), delete)] == reached


class TestPartitions:
    """Deletes apply within their partition; equality deletes of an unpartitioned spec everywhere."""

    @pytest.mark.parametrize("content", [POSITION, EQUALITY])
    def test_equal_values_in_another_spec_are_another_partition(self, content: FileContent) -> None:
        delete = entry("x", 5, 0, (1,), content=content)
        assert applied(entry("d", 1, 0, (1,)), delete) == ["x"]
        assert applied(entry("d", 1, 0, (2,)), delete) == []
        assert applied(entry("d", 1, 3, (1,)), delete) == []

    def test_null_and_nan_are_partitions(self) -> None:
        deletes = [entry("null", 5, 0, (None,), content=POSITION), entry("nan", 5, 0, (NAN,), content=POSITION)]
        assert applied(entry("d", 1, 0, (None,)), *deletes) == ["null"]
        assert applied(entry("d", 1, 0, (float("nan"),)), *deletes) == ["nan"]

    @pytest.mark.parametrize(("spec_id", "partition"), [(1, ()), (2, (None,))])
    def test_equality_deletes_of_an_unpartitioned_spec_are_global(self, spec_id: int, partition: Any) -> None:
        delete = entry("x", 5, spec_id, partition, content=EQUALITY)
        assert applied(entry("d", 1, 0, (1,)), delete) == ["x"]

    def test_position_deletes_of_an_unpartitioned_spec_are_not(self) -> None:
        assert applied(entry("d", 1, 0, (1,)), entry("x", 5, content=POSITION)) == []

    @pytest.mark.parametrize(("spec_id", "partition"), [(0, (2,)), (3, (1,)), (1, ())])
    @pytest.mark.parametrize("kind", ["vector", "reference", "bounds"])
    def test_deletes_of_one_file_are_of_its_partition(self, kind: str, spec_id: int, partition: Any) -> None:
        """Iceberg Java 1.10 and DuckDB apply others, and later versions of Java do not read them."""
        place: dict[str, Any] = {"spec_id": spec_id, "partition": partition}
        delete = {
            "vector": vector("x", 5, "d", **place),
            "reference": entry("x", 5, content=POSITION, referenced_data_file="d", **place),
            "bounds": entry("x", 5, content=POSITION, lower_bounds=ONE, upper_bounds=ONE, **place),
        }[kind]
        with pytest.raises(FormatError, match=f"file x is of data file d, .* of spec {spec_id} is not|vector x is of"):
            applied(entry("d", 1, 0, (1,)), delete)
        assert applied(entry("d", 6, 0, (1,)), delete) == []
        assert applied(entry("e", 1, 0, (1,)), delete) == []


class TestTheFileThatADeleteIsAbout:
    """Position deletes of one file apply to that file only, and nothing beside a deletion vector."""

    def test_by_reference_or_by_equal_bounds_of_the_path(self) -> None:
        delete = entry("x", 5, content=POSITION, referenced_data_file="d")
        assert applied(entry("d", 1), delete) == ["x"]
        assert applied(entry("e", 1), delete) == []
        one, more = {FILE_PATH_ID: b"d"}, {FILE_PATH_ID: b"f"}
        assert applied(entry("e", 1), entry("x", 5, content=POSITION, lower_bounds=one, upper_bounds=one)) == []
        assert applied(entry("d", 1), entry("x", 5, content=POSITION, lower_bounds=one, upper_bounds=one)) == ["x"]
        assert applied(entry("e", 1), entry("x", 5, content=POSITION, lower_bounds=one, upper_bounds=more)) == ["x"]

    def test_a_vector_wins_over_position_deletes_but_not_over_equality_deletes(self) -> None:
        deletes = [entry("p", 9, content=POSITION), vector("v", 5, "d"), entry("e", 2, content=EQUALITY)]
        assert applied(entry("d", 1), *deletes) == ["v", "e"]
        assert applied(entry("d", 7), *deletes) == ["p"]

    def test_a_vector_that_is_older_than_its_file_is_replaced_by_a_new_one(self) -> None:
        index = DeleteIndex([vector("v", 5, "d"), entry("p", 5, content=POSITION)], metadata=METADATA)
        assert [file.file_path for file in index.outdated_of(entry("d", 6))] == ["v"]
        assert index.outdated_of(entry("d", 5)) == index.outdated_of(entry("e", 6)) == ()

    def test_what_contradicts_itself_is_refused(self) -> None:
        with pytest.raises(FormatError, match="data file d has two deletion vectors, expected one at most: a and b"):
            applied(entry("d", 1), vector("a", 5, "d"), vector("b", 6, "d"))
        with pytest.raises(FormatError, match="has no 'referenced_data_file' of x"):
            applied(entry("d", 1), vector("x", 5, None))
        with pytest.raises(FormatError, match="has no equality ids of x"):
            applied(entry("d", 1), entry("x", 5, content=EQUALITY, equality_ids=None))


class TestStatisticsLeaveEqualityDeletesOut:
    """An equality delete is not read where its keys are in no row, or in none that is selected."""

    def test_by_the_rows_of_the_data_file_where_null_equals_null(self) -> None:
        delete = entry("x", 5, content=EQUALITY, **bounds(10, 20))
        assert applied(entry("d", 1, **bounds(1, 9)), delete) == []
        assert applied(entry("d", 1, **bounds(1, 10)), delete) == ["x"]
        assert applied(entry("d", 1), delete) == ["x"]
        delete = entry("x", 5, content=EQUALITY, **bounds(10, 20, nulls=1))
        assert applied(entry("d", 1, **bounds(1, 9, nulls=1)), delete) == ["x"]
        assert applied(entry("d", 1, **bounds(None, None, nulls=3)), delete) == ["x"]
        assert applied(entry("d", 1, **bounds(1, 9)), delete) == []

    def test_not_by_a_column_whose_values_are_those_of_the_partition(self) -> None:
        # A file of Hive may have other values in the column, which nobody reads.
        value = {2: to_bytes(LongType(), 7)}
        file = {"value_counts": {2: 3}, "null_value_counts": {2: 0}, "lower_bounds": value, "upper_bounds": value}
        value = {2: to_bytes(LongType(), 5)}
        delete = entry(
            "x",
            5,
            0,
            (5,),
            content=EQUALITY,
            equality_ids=(2,),
            **{**file, "lower_bounds": value, "upper_bounds": value},
        )
        assert applied(entry("d", 1, 0, (5,), **file), delete) == ["x"]

    def test_by_the_filter_over_its_own_columns(self) -> None:
        delete = entry("x", 5, content=EQUALITY, **bounds(10, 20))
        assert applied(entry("d", 1), delete, row_filter="id = 4") == []
        assert applied(entry("d", 1), delete, row_filter="id = 14") == ["x"]
        assert applied(entry("d", 1), delete, row_filter="cat = 4") == ["x"]
        # What else stands in a delete file says nothing about the rows that it deletes.
        beside = replace(delete, data_file=replace(delete.data_file, equality_ids=(3,)))
        assert applied(entry("d", 1), beside, row_filter="id = 4") == ["x"]


def applies(delete: ManifestEntry, data: ManifestEntry, all_deletes: Sequence[ManifestEntry]) -> bool:
    """Say the rules again, for one pair."""
    x, d = delete.data_file, data.data_file
    assert delete.sequence_number is not None
    assert data.sequence_number is not None
    same = x.spec_id == d.spec_id and repr(x.partition) == repr(d.partition)
    if x.content is EQUALITY:
        return data.sequence_number < delete.sequence_number and (same or x.spec_id in (1, 2))
    if data.sequence_number > delete.sequence_number or not same:
        return False
    path_bounds = ((x.lower_bounds or {}).get(FILE_PATH_ID), (x.upper_bounds or {}).get(FILE_PATH_ID))
    about = x.referenced_data_file or (path_bounds[0].decode() if path_bounds[0] and len({*path_bounds}) == 1 else None)
    if about not in (None, d.file_path):
        return False
    others = [other for other in all_deletes if other.data_file.is_deletion_vector]
    return x.is_deletion_vector or not any(applies(other, data, []) for other in others)


def is_astray(delete: ManifestEntry, data: ManifestEntry, all_deletes: Sequence[ManifestEntry]) -> bool:
    """Whether a delete names the file, of another partition, and no vector takes its place."""
    x, place = delete.data_file, (delete.data_file.spec_id, repr(delete.data_file.partition))
    bounds = {(x.lower_bounds or {}).get(FILE_PATH_ID), (x.upper_bounds or {}).get(FILE_PATH_ID)}
    names = x.referenced_data_file == data.data_file.file_path or bounds == {data.data_file.file_path.encode()}
    is_new = x.content is POSITION and delete.sequence_number >= data.sequence_number
    others = [other for other in all_deletes if other.data_file.is_deletion_vector and other is not delete]
    return (names and is_new and place != (data.data_file.spec_id, repr(data.data_file.partition))) and (
        x.is_deletion_vector
        or not any(
            other.data_file.referenced_data_file == data.data_file.file_path
            and other.sequence_number >= data.sequence_number
            for other in others
        )
    )


PLACES = st.sampled_from(
    [(1, ()), (2, (None,)), (0, (None,)), (0, (NAN,)), (0, (1.0,)), (0, (2.0,)), (3, (None,)), (3, (1,))]
)
PATHS = ["a", "b", "c"]


@st.composite
def deletes(draw: st.DrawFn) -> list[ManifestEntry]:
    found = []
    for index in range(draw(st.integers(0, 8))):
        number, (spec_id, partition) = draw(st.integers(0, 5)), draw(PLACES)
        more: dict[str, Any] = {"content": draw(st.sampled_from([POSITION, EQUALITY]))}
        if more["content"] is POSITION:
            path = draw(st.sampled_from([None, *PATHS]))
            if path and draw(st.booleans()):
                more["lower_bounds"] = {FILE_PATH_ID: path.encode()}
                more["upper_bounds"] = {FILE_PATH_ID: draw(st.sampled_from([path, "z"])).encode()}
            else:
                more["referenced_data_file"] = path
        found.append(entry(f"x{index}", number, spec_id, partition, **more))
    for path in draw(st.sets(st.sampled_from(PATHS))):
        spec_id, partition = draw(PLACES)
        found.append(vector(f"v{path}", draw(st.integers(0, 5)), path, spec_id=spec_id, partition=partition))
    return found


class TestTheIndex:
    """It finds what trying every pair of files finds."""

    @pytest.mark.costly
    @given(deletes(), st.sampled_from(PATHS), st.integers(0, 5), PLACES)
    def test_as_brute_force(self, found: list[ManifestEntry], path: str, number: int, place: Any) -> None:
        data = entry(path, number, *place)
        if any(is_astray(item, data, found) for item in found):
            with pytest.raises(FormatError, match=f"is of data file {path}, and its partition"):
                applied(data, *found)
            return
        expected = {item.data_file.file_path for item in found if applies(item, data, found)}
        assert set(applied(data, *found)) == expected
