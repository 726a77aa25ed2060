"""BinaryRow: every type, nulls and extremes; the bytes of real tables; and bytes that are none."""

from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.binary_row import decode_row, row_arity
from airflow_iceberg.paimon.types import PaimonType, parse_type
from tests.support.paimon_writer import encode_row
from tests.support.sampling import examples

EPOCH_YEARS = (-62_135_596_800, 253_402_300_799)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return unscaled.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


def times(precision: int) -> st.SearchStrategy[int]:
    """Microseconds, or nanoseconds from precision 7 on, in steps of what the type can hold."""
    digits = 9 if precision > 6 else 6
    step = 10 ** (digits - precision)
    return st.integers(*EPOCH_YEARS).map(lambda second: second * 10**digits) | st.integers(-(10**12), 10**12).map(
        lambda number: number * step
    )


ATOMIC: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("BOOLEAN", st.booleans()), ("TINYINT", integers(8)), ("SMALLINT", integers(16)), ("INT", integers(32)),
    ("BIGINT", integers(64)), ("FLOAT", st.floats(width=32, allow_nan=False)), ("DOUBLE", st.floats(allow_nan=False)),
    ("DATE", integers(32)), ("TIME(3)", st.integers(0, 86_399_999).map(lambda millis: millis * 1000)),
    ("CHAR(3)", st.text(max_size=3)), ("VARCHAR(20)", st.text(max_size=20)), ("STRING", st.text()),
    ("BINARY(4)", st.binary(max_size=4)), ("BYTES", st.binary()),
    *[(f"DECIMAL({p}, {s})", decimals(p, s)) for p, s in ((1, 0), (9, 2), (18, 18), (19, 4), (28, 0), (38, 10))],
    *[(f"TIMESTAMP({p})", times(p)) for p in range(10)],
    *[(f"TIMESTAMP({p}) WITH LOCAL TIME ZONE", times(p)) for p in (0, 3, 6, 9)],
]  # fmt: skip


def nested(inner: tuple[Any, st.SearchStrategy[Any]], form: str) -> tuple[Any, st.SearchStrategy[Any]]:
    type_, values = inner
    some = st.none() | values
    if form == "ARRAY":
        return {"type": "ARRAY", "element": type_}, st.lists(some, max_size=5).map(tuple)
    if form == "MAP":
        json = {"type": "MAP NOT NULL", "key": "STRING NOT NULL", "value": type_}
        return json, st.dictionaries(st.text(), some, max_size=4)
    fields = [{"id": index, "name": f"f{index}", "type": item} for index, item in enumerate((type_, "INT"))]
    return {"type": "ROW", "fields": fields}, st.tuples(some, st.none() | integers(32))


def vector(element: tuple[str, st.SearchStrategy[Any]], length: int) -> tuple[Any, st.SearchStrategy[Any]]:
    text, values = element
    json = {"type": "VECTOR", "element": f"{text} NOT NULL", "length": length}
    return json, st.lists(values, min_size=length, max_size=length).map(tuple)


columns = st.sampled_from(ATOMIC) | st.builds(vector, st.sampled_from(ATOMIC[:7]), st.integers(1, 9))
for _ in range(2):
    columns = columns | st.builds(nested, columns, st.sampled_from(["ARRAY", "MAP", "ROW"]))


@st.composite
def rows(draw: st.DrawFn, most: int = 12) -> tuple[list[PaimonType], tuple[Any, ...]]:
    found = draw(st.lists(columns, max_size=most))
    values = tuple(draw(st.none() | strategy) for _, strategy in found)
    return [parse_type(type_) for type_, _ in found], values


class TestEveryTypeIsDecoded:
    """What a writer made of a value, the reader makes the value of."""

    @pytest.mark.costly
    @examples(300)
    @given(row=rows())
    def test_what_was_written_is_read(self, row):
        types, values = row
        assert repr(decode_row(encode_row(values, types), types)) == repr(values)

    @pytest.mark.parametrize(("text", "strategy"), ATOMIC, ids=[text for text, _ in ATOMIC])
    def test_every_type_alone_and_null(self, text, strategy):
        type_ = parse_type(text)

        @examples(25)
        @given(value=strategy)
        def check(value: Any) -> None:
            assert decode_row(encode_row((value, None, value), [type_] * 3), [type_] * 3) == (value, None, value)

        check()

    @pytest.mark.parametrize("count", [0, 1, 55, 56, 57, 58, 120, 121, 200])
    def test_null_bits_take_as_many_words_as_they_need(self, count):
        types = [parse_type("INT")] * count
        values = tuple(None if index % 3 == 0 else index for index in range(count))
        assert decode_row(encode_row(values, types), types) == values

    @pytest.mark.parametrize(("length", "size"), [(3, 8), (2**31 - 1, 8), (0, 8), (-1, 8)])
    def test_a_vector_that_its_bytes_do_not_hold_is_refused(self, length, size):
        written = parse_type({"type": "VECTOR", "element": "FLOAT NOT NULL", "length": 2})
        other = parse_type({"type": "VECTOR", "element": "FLOAT NOT NULL", "length": length})
        row = encode_row(((1.5, 2.5),), (written,))
        assert decode_row(row, [written]) == ((1.5, 2.5),)
        with pytest.raises(FormatError, match=rf"^{size} bytes are no vector of {length} elements of type FLOAT"):
            decode_row(row, [other])

    def test_multisets_are_counts_and_variants_two_parts(self):
        type_ = parse_type({"type": "MULTISET", "element": "STRING"})
        assert decode_row(encode_row(({"a": 2, "b": 1},), [type_]), [type_]) == ({"a": 2, "b": 1},)
        type_ = parse_type("VARIANT")
        assert decode_row(encode_row(((b"\x0c\x01", b"\x01\x00"),), [type_]), [type_]) == ((b"\x0c\x01", b"\x01\x00"),)

    def test_a_type_that_is_not_known_may_be_null(self):
        types = [parse_type("INT"), parse_type("GEOMETRY")]
        assert decode_row(encode_row((7, None), types), types) == (7, None)
        with pytest.raises(UnsupportedError, match=r"a value of type GEOMETRY is not supported in 'row' of m"):
            decode_row(encode_row((7, b""), types), types, path="m")


class TestTheBytesOfRealTables:
    """Bytes that Paimon and pypaimon wrote."""

    CASES = (
        (
            "0000000300020000000000006575000000000082" + "00" * 8 + "2951000000000000",
            ["STRING", "INT", "DATE"],
            ("eu", None, 20777),
        ),
        (
            "00000003" + "00" * 8 + "0a00000020000000ffffff7f000000002951000000000000612f623d63206425c3a9000000000000",
            ["STRING", "INT", "DATE"],
            ("a/b=c d%é", 2147483647, 20777),
        ),
        (
            "00000001" + "00" * 8 + "0900000010000000" + "00ab54a98ceb1f0ad300000000000000",
            ["DECIMAL(20, 3)"],
            (Decimal("12345678901234567.891"),),
        ),
        ("00000001" + "00" * 8 + "0100000010000000" + "ff" + "00" * 15, ["DECIMAL(20, 3)"], (Decimal("-0.001"),)),
        ("00000001" + "00" * 8 + "3e5865c4ffffffff", ["DECIMAL(18, 4)"], (Decimal("-99999.1234"),)),
        (
            "00000001" + "00" * 8 + "080a0c0010000000" + "c0e89ffba1010000",
            ["TIMESTAMP(6)"],
            (1_795_222_923_456_789,),
        ),
        ("00000001" + "00" * 8 + "583e0f0010000000" + "ff" * 8, ["TIMESTAMP(6)"], (-1,)),
        ("00000000" + "00" * 8, [], ()),
    )

    @pytest.mark.parametrize(("blob", "texts", "values"), CASES)
    def test_they_are_these_values(self, blob, texts, values):
        assert decode_row(bytes.fromhex(blob), [parse_type(text) for text in texts]) == values

    def test_a_null_of_a_wide_type_may_have_a_place_reserved(self):
        # Java does this, pypaimon does not: the same row in other bytes.
        blob = bytes.fromhex("00000001" + "0001000000000000" + "0000000010000000" + "00" * 16)
        assert decode_row(blob, [parse_type("DECIMAL(20, 3)")]) == (None,)

    def test_the_kind_of_the_row_is_no_null_bit(self):
        blob = bytearray(encode_row((1, 2), [parse_type("INT")] * 2))
        blob[4] = 3
        assert decode_row(bytes(blob), [parse_type("INT")] * 2) == (1, 2)


class TestBytesThatAreNoRow:
    """Whatever the bytes are, the answer is a value or our own error, soon."""

    STRING = (parse_type("STRING"),)

    def test_another_number_of_fields_and_fewer_bytes_than_they_take(self):
        with pytest.raises(FormatError, match=r"^a row has 1 fields, expected 2 in '_MIN_VALUES' of m$"):
            decode_row(encode_row((1,), [parse_type("INT")]), [parse_type("INT")] * 2, where="_MIN_VALUES", path="m")
        with pytest.raises(FormatError, match=r"unexpected 19 bytes for a row of 1 fields \(expected at least 20\)"):
            row_arity(encode_row((1,), [parse_type("INT")])[:-1])

    def test_parts_outside_of_the_row_or_overlapping(self):
        blob = encode_row(("twelve bytes",), self.STRING)
        with pytest.raises(FormatError, match="12 bytes at 16 are outside of a row of 24 bytes"):
            decode_row(blob[:-8], self.STRING)
        slot = encode_row(("twelve bytes",), self.STRING)[12:20]
        blob = (20).to_bytes(4, "big") + bytes(8) + slot * 20 + bytes(16)
        with pytest.raises(FormatError, match="the parts of a row of 184 bytes overlap"):
            decode_row(blob, self.STRING * 20)

    def test_text_that_is_none(self):
        with pytest.raises(FormatError, match="are no text in UTF-8"):
            decode_row(encode_row((b"\xff\xfe",), [parse_type("BYTES")]), self.STRING)

    def test_an_array_that_promises_too_much(self):
        array = parse_type({"type": "ARRAY", "element": "BIGINT"})
        blob = bytearray(encode_row(((1, 2, 3),), [array]))
        blob[20:24] = (2**31 - 1).to_bytes(4, "little")
        with pytest.raises(FormatError, match="unexpected 2147483647 elements"):
            decode_row(bytes(blob), [array])

    @pytest.mark.costly
    @examples(200)
    @given(row=rows(), blob=st.binary(max_size=200))
    def test_any_bytes_give_a_value_or_our_error(self, row, blob):
        types, _ = row
        with suppress(FormatError, UnsupportedError):
            decode_row(len(types).to_bytes(4, "big") + blob, types)
