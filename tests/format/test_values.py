"""One value: bytes, JSON, literals, bounds, equality."""

import datetime
import math
import struct
import uuid
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values.bytes import (
    canonical_key,
    from_bytes,
    from_json,
    lower_bound,
    parse_literal,
    to_bytes,
    to_json,
    upper_bound,
)
from tests.support import strategies
from tests.support.strategies import is_canonical_equal

DAY = 86_400_000_000


class TestBytes:
    """A single value has the bytes of Appendix D: little endian numbers, big endian decimals and UUIDs."""

    @pytest.mark.parametrize(("type_", "value", "expected"), [
        (t.BooleanType(), True, "01"), (t.IntegerType(), 34, "22000000"), (t.LongType(), -1, "ffffffffffffffff"),
        (t.FloatType(), 1.0, "0000803f"), (t.DoubleType(), -0.0, "0000000000000080"),
        (t.DecimalType(9, 2), Decimal("14.20"), "058c"), (t.DecimalType(9, 2), Decimal("0.00"), "00"),
        (t.DecimalType(9, 2), Decimal("1.28"), "0080"), (t.DecimalType(9, 2), Decimal("-1.28"), "80"),
        (t.StringType(), "é", "c3a9"),
        (t.UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09677c4bbda4793f349cb785e7"),
        (t.FixedType(2), b"\x01\x02", "0102"),
    ])  # fmt: skip
    def test_examples(self, type_, value, expected):
        assert to_bytes(type_, value).hex() == expected
        assert is_canonical_equal(from_bytes(type_, bytes.fromhex(expected)), value)

    @pytest.mark.costly
    @given(st.data())
    def test_reading_is_the_inverse_of_writing(self, data):
        type_ = data.draw(strategies.primitive_types())
        value = data.draw(strategies.values(type_))
        assert is_canonical_equal(from_bytes(type_, to_bytes(type_, value)), value)

    def test_bounds_from_before_a_promotion_keep_their_width(self):
        assert from_bytes(t.LongType(), struct.pack("<i", -5)) == -5
        assert from_bytes(t.DoubleType(), struct.pack("<f", 1.5)) == 1.5
        assert from_bytes(t.TimestampType(), struct.pack("<i", -1)) == -DAY
        assert from_bytes(t.TimestampNsType(), struct.pack("<i", 1)) == DAY * 1000
        assert from_bytes(t.DecimalType(18, 2), to_bytes(t.DecimalType(9, 2), Decimal("-0.05"))) == Decimal("-0.05")

    @pytest.mark.parametrize(
        ("type_", "data"),
        [(t.IntegerType(), b"\0" * 8), (t.LongType(), b"\0" * 5), (t.UUIDType(), b"\0" * 4), (t.StringType(), b"\xff")],
    )
    def test_another_length_is_a_format_error(self, type_, data):
        with pytest.raises(FormatError, match=f"cannot read {len(data)} bytes as a value of type {type_}"):
            from_bytes(type_, data)

    def test_what_has_no_bytes_is_refused(self):
        with pytest.raises(InvalidInputError, match="cannot write 2147483648 as int"):
            to_bytes(t.IntegerType(), 1 << 31)
        with pytest.raises(InvalidInputError):
            to_bytes(t.DecimalType(9, 2), Decimal("0.005"))
        assert from_bytes(t.UnknownType(), b"") is None
        with pytest.raises(UnsupportedError):
            to_bytes(t.ListType(element_id=1, element=t.IntegerType()), (1,))


class TestJson:
    """A single value has the JSON of Appendix D."""

    @pytest.mark.parametrize(("type_", "value", "expected"), [
        (t.BooleanType(), True, True), (t.IntegerType(), 34, 34), (t.DoubleType(), 1.5, 1.5),
        (t.DecimalType(9, 2), Decimal("14.20"), "14.20"), (t.DecimalType(38, 10), Decimal("1E-10"), "0.0000000001"),
        (t.DateType(), 17486, "2017-11-16"), (t.TimeType(), 81_068_123_456, "22:31:08.123456"),
        (t.TimestampType(), 1_510_871_468_123_456, "2017-11-16T22:31:08.123456"),
        (t.TimestamptzType(), 1_510_871_468_123_456, "2017-11-16T22:31:08.123456+00:00"),
        (t.TimestampNsType(), 1_510_871_468_123_456_789, "2017-11-16T22:31:08.123456789"),
        (t.TimestamptzNsType(), 1_510_871_468_123_456_789, "2017-11-16T22:31:08.123456789+00:00"),
        (t.StringType(), "iceberg", "iceberg"),
        (t.UUIDType(), uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (t.FixedType(4), b"\x00\x01\x02\xff", "000102ff"), (t.BinaryType(), b"\x00\x01\x02\xff", "000102ff"),
        (t.ListType(element_id=1, element=t.IntegerType()), (1, None), [1, None]),
        (
            t.MapType(key_id=1, key=t.StringType(), value_id=2, value=t.IntegerType()),
            {"a": 1, "b": None},
            {"keys": ["a", "b"], "values": [1, None]},
        ),
        (
            t.StructType(
                fields=(
                    t.NestedField(id=7, name="a", type=t.DateType()),
                    t.NestedField(id=8, name="b", type=t.IntegerType()),
                )
            ),
            (0, None),
            {"7": "1970-01-01"},
        ),
    ])  # fmt: skip
    def test_examples(self, type_, value, expected):
        assert to_json(type_, value) == expected
        assert from_json(type_, expected) == value

    @pytest.mark.costly
    @given(st.data())
    def test_reading_is_the_inverse_of_writing(self, data):
        type_ = data.draw(strategies.types(depth=2))
        value = data.draw(st.one_of(st.none(), strategies.values(type_)))
        assert is_canonical_equal(from_json(type_, to_json(type_, value)), value)

    def test_javas_upper_case_digits_are_read(self):
        assert from_json(t.BinaryType(), "00FF") == b"\x00\xff"

    @pytest.mark.parametrize(("type_", "json"), [
        (t.IntegerType(), True), (t.IntegerType(), 1.0), (t.IntegerType(), 1 << 31), (t.BooleanType(), 1),
        (t.DoubleType(), "1.5"), (t.DecimalType(9, 2), "14.2"), (t.DecimalType(9, 2), 14.2),
        (t.DateType(), "2017-02-30"), (t.DateType(), 5), (t.TimestampType(), "2017-11-16T22:31:08+00:00"),
        (t.TimestamptzType(), "2017-11-16T22:31:08"), (t.TimestamptzType(), "2017-11-16T22:31:08+01:00"),
        (t.UUIDType(), "f79c3e09677c4bbda4793f349cb785e7"), (t.FixedType(4), "0001"), (t.BinaryType(), "0"),
        (t.ListType(element_id=1, element=t.IntegerType()), {}),
        (t.MapType(key_id=1, key=t.StringType(), value_id=2, value=t.IntegerType()), {"keys": ["a"], "values": []}),
    ])  # fmt: skip
    def test_what_is_no_value_of_the_type_says_so_with_the_place(self, type_, json):
        with pytest.raises(FormatError) as caught:
            from_json(type_, json, path="f.json", where="fields[0].initial-default")
        assert f"as a value of type {type_} in 'fields[0].initial-default': " in str(caught.value)
        assert str(caught.value).endswith(" of f.json")


class TestLiterals:
    """What people write for a value becomes canonical, exactly or not at all."""

    @pytest.mark.parametrize(
        ("type_", "written", "expected"),
        [
            (t.BooleanType(), "TRUE", True),
            (t.IntegerType(), "34", 34),
            (t.IntegerType(), 10.0, 10),
            (t.LongType(), Decimal("1e3"), 1000),
            (t.LongType(), np.int64(5), 5),
            (t.FloatType(), 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
            (t.DoubleType(), "1e300", 1e300),
            (t.DoubleType(), 3, 3.0),
            (t.DecimalType(9, 2), "1.5", Decimal("1.50")),
            (t.DecimalType(9, 2), 1, Decimal("1.00")),
            (t.DecimalType(9, 2), 0.1, Decimal("0.10")),
            (t.DecimalType(9, 2), Decimal("1.5000"), Decimal("1.50")),
            (t.DateType(), "2017-11-16", 17486),
            (t.DateType(), datetime.date(2017, 11, 16), 17486),
            (t.DateType(), datetime.datetime(2017, 11, 16), 17486),  # noqa: DTZ001
            (t.TimeType(), "22:31:08.5", 81_068_500_000),
            (t.TimeType(), datetime.time(22, 31, 8, 5), 81_068_000_005),
            (t.TimestampType(), "2017-11-16", 17486 * DAY),
            (t.TimestampType(), "2017-11-16 22:31:08", 1_510_871_468_000_000),
            (t.TimestampType(), "1969-12-31T23:59:59.999999", -1),
            (t.TimestampType(), datetime.datetime(2017, 11, 16, 22, 31, 8), 1_510_871_468_000_000),  # noqa: DTZ001
            (t.TimestamptzType(), "2017-11-16T22:31:08+00:00", 1_510_871_468_000_000),
            (t.TimestamptzType(), "2017-11-16T23:31:08+01:00", 1_510_871_468_000_000),
            (t.TimestamptzType(), "2017-11-16T22:31:08Z", 1_510_871_468_000_000),
            (t.TimestamptzType(), "2017-11-16", 17486 * DAY),
            (t.TimestamptzType(), datetime.datetime(2017, 11, 16, tzinfo=datetime.UTC), 17486 * DAY),
            (t.TimestampNsType(), "2017-11-16T22:31:08.000000001", 1_510_871_468_000_000_001),
            (t.TimestampNsType(), np.datetime64("2017-11-16T22:31:08.000000001"), 1_510_871_468_000_000_001),
            (t.TimestampType(), np.datetime64("2017-11-16T22:31:08", "ns"), 1_510_871_468_000_000),
            (t.StringType(), " a ", " a "),
            (t.UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7", uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
            (t.BinaryType(), bytearray(b"ab"), b"ab"),
            (t.LongType(), None, None),
        ],
    )
    def test_texts_and_objects(self, type_, written, expected):
        found = parse_literal(type_, written)
        assert found == expected
        assert type(found) is type(expected)

    def test_a_decimal_has_exactly_the_scale_of_its_type(self):
        assert parse_literal(t.DecimalType(9, 2), "1").as_tuple() == Decimal("1.00").as_tuple()

    @pytest.mark.parametrize(
        ("type_", "written", "problem"),
        [
            (t.IntegerType(), 1 << 31, "2147483648 is out of range for type int"),
            (t.LongType(), "1e999999999", "1E+999999999 is out of range for type long"),
            (t.IntegerType(), "1.5", "it is not a whole number"),
            (t.IntegerType(), True, "cannot take True as a value of type int"),
            (t.IntegerType(), "abc", "cannot take 'abc' as a value of type int"),
            (t.IntegerType(), math.nan, "cannot take nan as a value of type int"),
            (t.BooleanType(), 1, "cannot take 1 as a value of type boolean"),
            (t.BooleanType(), "yes", "expected true or false"),
            (t.FloatType(), 1e300, "1e+300 is out of range for type float"),
            (t.DecimalType(9, 2), "0.005", "has more digits after the point than type decimal(9, 2) holds"),
            (t.DecimalType(9, 2), "12345678.90", "is out of range for type decimal(9, 2)"),
            (t.DecimalType(9, 2), "1e-999999999", "has more digits after the point"),
            (t.DateType(), "2017-02-29", "no such day in the calendar"),
            (t.DateType(), "16.11.2017", "expected a date like 2017-11-16"),
            (t.DateType(), datetime.datetime(2017, 11, 16, 1), "cannot take"),  # noqa: DTZ001
            (t.DateType(), 1 << 31, "is out of range for type date"),
            (t.TimeType(), "24:00", "no such time of day"),
            (t.TimeType(), DAY, "is out of range for type time"),
            (t.TimestampType(), "2017-11-16T00:00:00+00:00", "the type has no zone; leave the offset out"),
            (
                t.TimestampType(),
                datetime.datetime(2017, 11, 16, tzinfo=datetime.UTC),
                "it has a zone, the type has none",
            ),
            (t.TimestampType(), "2017-11-16T00:00:00.0000001", "more digits of the second than the type holds"),
            (t.TimestampNsType(), "9999-12-31", "is out of range for type timestamp_ns"),
            (t.StringType(), 5, "cannot take 5 as a value of type string"),
            (t.BinaryType(), "ab", "cannot take a text as a value of type binary"),
            (t.FixedType(4), b"ab", "2 bytes do not fit type fixed[4]"),
            (t.UUIDType(), "abc", "cannot take 'abc' as a value of type uuid"),
        ],
    )
    def test_what_is_not_a_value_is_refused(self, type_, written, problem):
        with pytest.raises(InvalidInputError) as caught:
            parse_literal(type_, written)
        assert problem in str(caught.value)

    @pytest.mark.costly
    @given(st.data())
    def test_canonical_values_are_fine_but_where_a_number_could_be_something_else(self, data):
        type_ = data.draw(strategies.primitive_types())
        value = data.draw(strategies.values(type_))
        assert is_canonical_equal(parse_literal(type_, value), value)


class TestBounds:
    """A bound is no closer than the value, and short where the value is long."""

    @pytest.mark.parametrize(
        ("type_", "value", "length", "lower", "upper"),
        [
            (t.DecimalType(9, 2), Decimal("1234567.89"), 1, Decimal("1234567.89"), Decimal("1234567.89")),
            (t.FixedType(4), b"abcd", 1, b"abcd", b"abcd"),
            (t.StringType(), "abc", 3, "abc", "abc"),
            (t.StringType(), "abcd", None, "abcd", "abcd"),
            (t.StringType(), "abcd", 2, "ab", "ac"),
            (t.BinaryType(), b"\x01\xff\x01", 2, b"\x01\xff", b"\x02"),
            (t.StringType(), "a\ud7ffx", 2, "a\ud7ff", "a\ue000"),  # surrogates are jumped over
            (t.StringType(), "a\U0010ffffx", 2, "a\U0010ffff", "b"),  # the last code point is dropped
            (t.StringType(), "\U0010ffff\U0010ffffx", 2, "\U0010ffff\U0010ffff", None),
            (t.BinaryType(), b"\xff\xff\xff", 2, b"\xff\xff", None),
            (t.StringType(), "\U0001f600" * 3, 2, "\U0001f600" * 2, "\U0001f600\U0001f601"),  # by code points
        ],
    )
    def test_strings_and_binaries_are_cut_and_upper_bounds_raised(self, type_, value, length, lower, upper):
        assert lower_bound(type_, value, length) == lower
        assert upper_bound(type_, value, length) == upper

    def test_null_and_nan_are_no_bounds_and_zero_takes_the_sign_of_its_side(self):
        assert lower_bound(t.DoubleType(), math.nan) is upper_bound(t.FloatType(), math.nan) is None
        assert math.copysign(1, lower_bound(t.DoubleType(), 0.0)) == -1
        assert math.copysign(1, upper_bound(t.DoubleType(), -0.0)) == 1
        assert lower_bound(t.StringType(), None, 4) is upper_bound(t.LongType(), None) is None

    @given(st.text(max_size=12), st.integers(1, 8))
    def test_strings_lie_between_their_bounds_in_the_order_of_their_bytes(self, text, length):
        lower, upper = lower_bound(t.StringType(), text, length), upper_bound(t.StringType(), text, length)
        assert lower.encode() <= text.encode()
        assert upper is None or (text.encode() <= upper.encode() and len(upper) <= length)

    @given(st.binary(max_size=12), st.integers(1, 8))
    def test_binaries_lie_between_their_bounds(self, data, length):
        lower, upper = lower_bound(t.BinaryType(), data, length), upper_bound(t.BinaryType(), data, length)
        assert lower <= data
        assert upper is None or (data <= upper and len(upper) <= length)


class TestEquality:
    """Partition values are the same by their bits, and every NaN is the same."""

    def test_floats(self):
        assert not is_canonical_equal(0.0, -0.0)
        assert is_canonical_equal(math.nan, struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0])
        assert is_canonical_equal((1.5, None, "a"), (1.5, None, "a"))

    def test_keys_can_be_used_in_a_dictionary(self):
        values = [(math.nan, b"x"), (Decimal("1.00"),), ({"a": 1.0},), [1, 2], bytearray(b"x")]
        assert len({canonical_key(value) for value in values}) == len(values)
