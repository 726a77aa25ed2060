"""Partition transforms, of one value and of a column."""

import json
import uuid
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values, values_from_array
from airflow_iceberg.format.transforms import columns, murmur3
from airflow_iceberg.format.transforms import transform as tr
from airflow_iceberg.format.values.bytes import from_bytes, to_bytes
from tests.support import strategies
from tests.support.sampling import examples
from tests.support.strategies import is_canonical_equal

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "transform_vectors.json").read_text("utf-8"))
DAY = 86_400_000_000


def vector_id(vector: dict[str, Any]) -> str:
    return f"{vector['type']}:{str(vector['value'])[:12]}"


class TestJavaAgrees:
    """Every result, its bytes and its human string are those that Iceberg Java 1.10.2 computed."""

    @pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
    def test_the_value_itself_has_the_bytes_and_the_human_string_of_java(self, vector):
        type_ = t.parse_leaf(vector["type"])
        value = from_bytes(type_, bytes.fromhex(vector["bytes"]))
        assert to_bytes(type_, value).hex() == vector["bytes"]
        assert tr.human_value(value, type_) == vector["human_identity"]

    @pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
    def test_each_transform_of_the_value_is_the_one_of_java(self, vector):
        type_ = t.parse_leaf(vector["type"])
        value = from_bytes(type_, bytes.fromhex(vector["bytes"]))
        for expected in vector["results"]:
            transform = tr.parse_transform(expected["transform"])
            if expected.get("unsupported"):
                assert not transform.can_transform(type_)
                continue
            result_type = transform.result_type(type_)
            result = transform.apply(value, type_)
            assert str(result_type) == expected["result_type"]
            assert (None if result is None else to_bytes(result_type, result).hex()) == expected["bytes"]
            assert transform.to_human_string(result, type_) == expected["human"]

    def test_each_transform_of_a_column_of_the_values_is_the_one_of_java(self):
        for type_text in sorted({vector["type"] for vector in VECTORS}):
            type_ = t.parse_leaf(type_text)
            chosen = [vector for vector in VECTORS if vector["type"] == type_text]
            values = [from_bytes(type_, bytes.fromhex(vector["bytes"])) for vector in chosen]
            column = array_from_values(type_, values)
            for index, first in enumerate(chosen[0]["results"]):
                if first.get("unsupported"):
                    continue
                transform = tr.parse_transform(first["transform"])
                result_type = transform.result_type(type_)
                results = values_from_array(result_type, columns.apply(transform, column, type_))
                data = [None if result is None else to_bytes(result_type, result).hex() for result in results]
                assert data == [vector["results"][index]["bytes"] for vector in chosen]


class TestBucketHashesTheValuesOfTheSpecification:
    """Appendix B gives test values for the 32-bit hash of each type."""

    @pytest.mark.parametrize(("type_", "value", "expected"), [
        (t.IntegerType(), 34, 2017239379), (t.LongType(), 34, 2017239379),
        (t.DecimalType(9, 2), Decimal("14.20"), -500754589), (t.DateType(), 17486, -653330422),
        (t.TimeType(), 81_068_000_000, -662762989), (t.TimestampType(), 1_510_871_468_000_000, -2047944441),
        (t.TimestampType(), 1_510_871_468_000_001, -1207196810),
        (t.TimestamptzType(), 1_510_871_468_000_000, -2047944441),
        (t.TimestampNsType(), 1_510_871_468_000_000_000, -2047944441),
        (t.TimestampNsType(), 1_510_871_468_000_001_001, -1207196810), (t.StringType(), "iceberg", 1210000089),
        (t.UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
        (t.FixedType(4), b"\x00\x01\x02\x03", -188683207), (t.BinaryType(), b"\x00\x01\x02\x03", -188683207),
    ])  # fmt: skip
    def test_the_hash_without_its_sign_is_taken_modulo_the_buckets(self, type_, value, expected):
        for count in (1, 7, 16, 1_000_003, (1 << 31) - 1):
            bucket = tr.BucketTransform(count)
            wanted = (expected & 0x7FFFFFFF) % count
            assert bucket.apply(value, type_) == wanted
            assert columns.apply(bucket, array_from_values(type_, [value]), type_).to_pylist() == [wanted]

    def test_nanoseconds_before_the_epoch_hash_like_the_microsecond_they_fall_into(self):
        bucket = tr.BucketTransform(1 << 30)
        assert bucket.apply(-1, t.TimestampNsType()) == bucket.apply(-1, t.TimestampType())
        assert bucket.apply(-1001, t.TimestampNsType()) == bucket.apply(-2, t.TimestampType())

    @given(st.binary(max_size=70))
    def test_the_hash_is_murmur3(self, data):
        assert murmur3.hash_bytes(data) == mmh3.hash(data)

    @pytest.mark.costly
    @given(st.lists(st.binary(max_size=70), min_size=1, max_size=30))
    def test_the_hash_of_a_column_is_murmur3(self, values):
        hashes = columns.apply(tr.BucketTransform((1 << 31) - 1), pa.array(values, pa.binary()), t.BinaryType())
        assert hashes.to_pylist() == [(mmh3.hash(value) & 0x7FFFFFFF) % ((1 << 31) - 1) for value in values]


class TestTruncateGoesTowardMinusInfinity:
    """Numbers become the multiple of the width at or below them; strings keep code points, binaries bytes."""

    @pytest.mark.parametrize(("value", "expected"), [(1, 0), (-1, -10), (-10, -10), (0, 0), (19, 10)])
    def test_integers(self, value, expected):
        assert tr.TruncateTransform(10).apply(value, t.IntegerType()) == expected
        assert tr.TruncateTransform(10).apply(value, t.LongType()) == expected

    def test_the_lowest_integers_wrap_round_as_in_java(self):
        assert tr.TruncateTransform(10).apply(-(1 << 31), t.IntegerType()) == (1 << 31) - 2
        assert tr.TruncateTransform(10).apply(-(1 << 63), t.LongType()) == (1 << 63) - 2

    def test_decimals_count_the_width_in_units_of_their_last_digit_and_stay_exact(self):
        truncate = tr.TruncateTransform(50)
        assert truncate.apply(Decimal("10.65"), t.DecimalType(9, 2)) == Decimal("10.50")
        assert truncate.apply(Decimal("-0.05"), t.DecimalType(9, 2)) == Decimal("-0.50")
        type_, lowest = t.DecimalType(9, 2), Decimal("-9999999.99")
        assert tr.TruncateTransform(50).apply(lowest, type_) == Decimal("-10000000.00")
        column = columns.apply(tr.TruncateTransform(50), pa.array([lowest], pa.decimal128(9, 2)), type_)
        assert column.to_pylist() == [Decimal("-10000000.00")]
        value = Decimal("-1234567890123456789012345678.0123456789")
        expected = Decimal("-1234567890123456789012345678.0123456800")
        assert tr.TruncateTransform(100).apply(value, t.DecimalType(38, 10)).as_tuple() == expected.as_tuple()

    def test_strings_are_cut_by_code_points_and_binaries_by_bytes(self):
        assert tr.TruncateTransform(2).apply("a\U0001f600é", t.StringType()) == "a\U0001f600"
        assert columns.apply(tr.TruncateTransform(2), pa.array(["a\U0001f600é"]), t.StringType()).to_pylist() == [
            "a\U0001f600"
        ]
        assert tr.TruncateTransform(1).apply(b"\xff\x00", t.BinaryType()) == b"\xff"


class TestTimeTransformsGoTowardMinusInfinity:
    """year, month, day and hour count from the epoch; what is before it is negative."""

    @pytest.mark.parametrize("micros", [-1, -DAY])
    def test_the_last_day_before_the_epoch_is_minus_one_everywhere(self, micros):
        for transform in (tr.YearTransform(), tr.MonthTransform(), tr.DayTransform()):
            assert transform.apply(micros, t.TimestampType()) == -1
        assert tr.HourTransform().apply(-1, t.TimestampType()) == -1
        assert tr.YearTransform().apply(-1, t.DateType()) == tr.MonthTransform().apply(-1, t.DateType()) == -1

    def test_a_day_has_the_type_date_and_the_others_int(self):
        assert tr.DayTransform().result_type(t.TimestampType()) == t.DateType()
        for transform in (tr.YearTransform(), tr.MonthTransform(), tr.HourTransform()):
            assert transform.result_type(t.TimestampType()) == t.IntegerType()

    def test_nanoseconds_and_years_outside_of_pythons_calendar_are_no_obstacle(self):
        assert tr.HourTransform().apply(-1, t.TimestampNsType()) == -1
        assert tr.DayTransform().apply(DAY * 1000, t.TimestampNsType()) == 1
        assert tr.YearTransform().apply(-(1 << 31), t.DateType()) == -5_877_641 - 1970
        assert tr.MonthTransform().to_human_string(12 * 10_000, t.DateType()) == "11970-01"

    @given(st.integers(-719_162, 2_932_896))
    def test_months_and_years_are_those_of_the_calendar(self, days):
        as_month = int(np.datetime64(days, "D").astype("datetime64[M]").astype(np.int64))
        assert tr.MonthTransform().apply(days, t.DateType()) == as_month
        assert tr.YearTransform().apply(days, t.DateType()) == as_month // 12


class TestAColumnIsTransformedLikeItsValues:
    """`columns.apply` gives what apply gives, for every type, with nulls, slices, chunks and dictionaries."""

    @pytest.mark.costly
    @examples(400)
    @given(st.data())
    def test_for_every_type_and_transform(self, data):
        transform = data.draw(strategies.transforms())
        type_ = data.draw(strategies.primitive_types().filter(transform.can_transform))
        values = data.draw(strategies.columns(type_))
        expected = [transform.apply(value, type_) for value in values]
        column = array_from_values(type_, values)
        assert_column(transform, type_, column, expected)
        assert_column(transform, type_, column[1:], expected[1:])
        cut = len(values) // 2
        assert_column(transform, type_, pa.chunked_array([column[:cut], column[cut:]]), expected)
        assert_column(transform, type_, column.dictionary_encode(), expected)

    def test_an_empty_chunked_column_gives_an_empty_array_of_the_result_type(self):
        empty = pa.chunked_array([], pa.timestamp("us"))
        assert columns.apply(tr.DayTransform(), empty, t.TimestampType()).type == pa.date32()

    @pytest.mark.costly
    def test_many_rows_take_the_paths_of_many_rows(self):
        rng = np.random.default_rng(7)
        micros = pa.array(rng.integers(-(10**17), 10**17, 100_000), pa.timestamp("us"))
        for transform in (
            tr.YearTransform(),
            tr.MonthTransform(),
            tr.DayTransform(),
            tr.HourTransform(),
            tr.BucketTransform(16),
        ):
            expected = [
                transform.apply(value, t.TimestampType()) for value in values_from_array(t.TimestampType(), micros)
            ]
            assert_column(transform, t.TimestampType(), micros, expected)

    @pytest.mark.costly
    def test_repeated_strings_are_hashed_once_and_distinct_ones_directly(self):
        for count in (10, 50_000):
            strings = [f"key {number % count}" for number in range(50_000)] + [None]
            expected = [tr.BucketTransform(100).apply(value, t.StringType()) for value in strings]
            assert_column(tr.BucketTransform(100), t.StringType(), pa.array(strings), expected)

    def test_the_uuid_extension_type_is_accepted(self):
        column = pa.array([uuid.UUID(int=1).bytes, None], pa.uuid())
        expected = [tr.BucketTransform(16).apply(uuid.UUID(int=1), t.UUIDType()), None]
        assert columns.apply(tr.BucketTransform(16), column, t.UUIDType()).to_pylist() == expected


def assert_column(transform, type_, column, expected):
    result_type = transform.result_type(type_)
    result = columns.apply(transform, column, type_)
    assert isinstance(result, pa.Array)
    result.validate(full=False)
    found = values_from_array(result_type, result)
    assert len(found) == len(expected)
    assert all(map(is_canonical_equal, found, expected)), (transform, type_, found, expected)


class TestATransformIsForSomeTypes:
    """The table of transforms says which source types each one takes."""

    EVERY = (
        *strategies.PLAIN_TYPES, t.DecimalType(9, 2), t.FixedType(4), t.UnknownType(), t.VariantType(),
        t.GeometryType(), t.GeographyType(), t.StructType(),
    )  # fmt: skip

    def allowed(self, transform):
        return {str(type_) for type_ in self.EVERY if transform.can_transform(type_)}

    def test_which_types_each_takes(self):
        assert self.allowed(tr.IdentityTransform()) == {
            str(type_) for type_ in (*strategies.PLAIN_TYPES, t.DecimalType(9, 2), t.FixedType(4), t.UnknownType())
        }
        excluded = {str(t.BooleanType()), str(t.FloatType()), str(t.DoubleType()), str(t.UnknownType())}
        assert self.allowed(tr.BucketTransform(4)) == self.allowed(tr.IdentityTransform()) - excluded
        assert self.allowed(tr.TruncateTransform(4)) == {"int", "long", "decimal(9, 2)", "string", "binary"}
        stamps = {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
        assert self.allowed(tr.HourTransform()) == stamps
        for transform in (tr.YearTransform(), tr.MonthTransform(), tr.DayTransform()):
            assert self.allowed(transform) == stamps | {"date"}

    def test_another_type_is_refused_by_name(self):
        for call in (tr.BucketTransform(4).apply, partial(columns.apply, tr.BucketTransform(4))):
            with pytest.raises(InvalidInputError, match=r"transform bucket\[4\] is not defined for type double"):
                call(pa.array([1.0]), t.DoubleType())


class TestTransformStrings:
    """A transform is written in metadata as its spec string; unknown ones survive reading and writing."""

    @given(strategies.transforms())
    def test_parse_is_the_inverse_of_str(self, transform):
        assert tr.parse_transform(str(transform)) == transform

    def test_case_does_not_matter(self):
        assert tr.parse_transform("Bucket[4]") == tr.BucketTransform(4)
        assert tr.parse_transform("DAY") == tr.DayTransform()

    @pytest.mark.parametrize("text", ["zorder", "bucket", "bucket[x]", "truncate[-1]", "bucketv2[4]"])
    def test_an_unknown_transform_is_kept_as_it_stands_and_cannot_be_applied(self, text):
        transform = tr.parse_transform(text)
        assert transform == tr.UnknownTransform(text)
        assert str(transform) == text
        assert transform.result_type(t.LongType()) == t.StringType()
        with pytest.raises(UnsupportedError, match="cannot apply the unknown transform"):
            transform.apply(1, t.LongType())
        with pytest.raises(UnsupportedError, match="cannot apply the unknown transform"):
            columns.apply(transform, pa.array([1]), t.LongType())

    @pytest.mark.parametrize("text", ["bucket[0]", "truncate[0]", "bucket[2147483648]"])
    def test_a_number_out_of_range_is_refused(self, text):
        with pytest.raises(InvalidInputError, match="the number must be from 1 to 2147483647"):
            tr.parse_transform(text)


class TestOrder:
    """Only transforms that keep the order may prune by ranges."""

    def test_all_but_bucket_void_and_unknown_keep_the_order(self):
        assert not any(tr.parse_transform(text).preserves_order for text in ("bucket[4]", "void", "zorder"))
        others = ("identity", "truncate[4]", "year", "month", "day", "hour")
        assert all(tr.parse_transform(text).preserves_order for text in others)


class TestHumanStrings:
    """Partition paths write values as Java does."""

    @pytest.mark.parametrize(("kind", "value", "expected"), [
        (t.TimeType(), 0, "00:00"), (t.TimeType(), 81_068_000_000, "22:31:08"),
        (t.TimeType(), 1_500_000, "00:00:01.500"), (t.TimeType(), 1, "00:00:00.000001"),
        (t.TimeType(), 60_000_000, "00:01"), (t.DoubleType(), 0.001, "0.001"), (t.DoubleType(), 1.0e-4, "1.0E-4"),
        (t.DoubleType(), 9_999_999.0, "9999999.0"), (t.DoubleType(), 1.0e7, "1.0E7"),
        (t.DoubleType(), 123.456, "123.456"), (t.DoubleType(), 100.0, "100.0"), (t.DoubleType(), 5e-324, "5.0E-324"),
        (t.DoubleType(), -1.5e-10, "-1.5E-10"), (t.FloatType(), float(np.float32(0.1)), "0.1"),
    ])  # fmt: skip
    def test_times_and_floating_point_numbers_are_written_as_in_java(self, kind, value, expected):
        assert tr.human_value(value, kind) == expected

    def test_null_is_null_for_every_transform(self):
        for text in ("identity", "bucket[4]", "day", "void", "zorder"):
            assert tr.parse_transform(text).to_human_string(None, t.TimestampType()) == "null"
