"""Values that Arrow takes without looking are refused wherever rows enter, with column, source, row and value."""

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_iceberg.data.cast.rows import check_rows, conform, python_rows
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.schemas.arrow import schema_from_arrow, schema_to_arrow
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from tests.support.sampling import SEED, sampled

BAD = b"\xff\xfe"
HOUR = 3_600_000_000


def texts(*values: bytes | None, kind: pa.DataType | None = None) -> pa.Array:
    """Return texts of any bytes, which Arrow does not look at."""
    kind = kind or pa.string()
    plain = {pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}.get(kind, pa.binary())
    return pa.array(values, plain).view(kind)


def times(*hours: float, kind: pa.DataType | None = None) -> pa.Array:
    kind = kind or pa.time64("us")
    each = {"s": 3600, "ms": 3_600_000, "us": HOUR, "ns": HOUR * 1000}[kind.unit]
    plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array([int(hour * each) for hour in hours], plain).view(kind)


def decimals(*unscaled: int, precision: int = 5) -> pa.Array:
    wide = pa.array([Decimal(number).scaleb(-2) for number in unscaled], pa.decimal128(38, 2))
    return wide.view(pa.decimal128(precision, 2))


def maps(*pairs: list[tuple[Any, Any]], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(pairs, kind or pa.map_(pa.string(), pa.int64()))


def of_another_program(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the buffers of an array as another type, as a program may give them by Arrow's C interface."""
    from pyarrow.cffi import ffi

    exported = ffi.new("struct ArrowArray*")
    address = int(ffi.cast("uintptr_t", exported))
    array._export_to_c(address)
    return pa.Array._import_from_c(address, kind)


def refusal(array: pa.Array | pa.ChunkedArray, type_text: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        conform(pa.table({"c": array}), schema_from_shorthand({"c": type_text}), source="a.parquet", first_row=11)
    return str(caught.value)


def accepted(array: pa.Array, type_text: Any) -> list[Any]:
    rows = conform(pa.table({"c": array}), schema_from_shorthand({"c": type_text}), source="a.parquet")
    return rows.column("c").to_pylist()


NO_TEXT = "the text b'\\xff\\xfe' is not UTF-8; give it in UTF-8, or, if it is no text, make the column binary"
NO_TIME = "is not in a day; expected 00:00:00 to 23:59:59.999999, change the value in the source"


class TestEachValueIsOneOfItsType:
    """The message names column, source, row and value."""

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
    def test_a_text_is_utf_8(self, kind):
        assert refusal(texts(b"ok", None, BAD, kind=kind), "string") == (f"column 'c', row 13 of a.parquet: {NO_TEXT}")

    def test_also_one_with_letters_beyond_ascii_around_it(self):
        assert "row 12 of" in refusal(texts("größe".encode(), "größe".encode()[:3]), "string")
        assert accepted(texts("größe".encode(), "日本".encode()), "string") == ["größe", "日本"]

    def test_two_halves_of_a_letter_in_two_texts_are_no_text(self):
        assert "row 11 of" in refusal(texts(b"\xc3", b"\xb6"), "string")

    def test_half_a_surrogate_pair_and_a_long_form_are_no_utf_8(self):
        for value in (b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"):
            assert "is not UTF-8" in refusal(texts(value), "string")

    def test_also_where_the_text_would_be_cast(self):
        for type_text in ("long", "date", "decimal(5,2)", "uuid", "time", "timestamptz", "boolean", "double"):
            assert "row 12 of a.parquet: the text b'\\xff\\xfe' is not UTF-8" in refusal(texts(None, BAD), type_text)

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("hours", [25, 24, -1 / 3600])
    def test_a_time_is_in_a_day(self, unit, hours):
        kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        text = refusal(times(0, 23.5, hours, kind=kind), "time")
        assert text.startswith("column 'c', row 13 of a.parquet: the time ")
        assert text.endswith(NO_TIME)

    def test_a_decimal_has_no_more_digits_than_its_type(self):
        text = "column 'c', row 12 of a.parquet: the decimal 1000.00 has more digits than decimal128(5, 2)"
        for type_text in ("decimal(5,2)", "decimal(9,2)", "string", "double"):
            assert refusal(decimals(99999, 100000), type_text).startswith(text)
        assert accepted(decimals(-99999, 99999), "decimal(5,2)") == [Decimal("-999.99"), Decimal("999.99")]

    def test_a_map_has_each_key_once(self):
        kind = "map<string, long>"
        array = maps([("a", 1), ("b", 1)], [], [("b", 1), ("a", 2), ("b", 3)])
        assert refusal(array, kind) == (
            "column 'c', row 13 of a.parquet: the map has the key 'b' twice; give each key of a map one value"
        )
        assert "row 11 of" in refusal(maps([("01", 1), ("1", 1)]), "map<long, long>")  # two texts, one number

    @pytest.mark.parametrize(
        ("key", "pair"),
        [
            (pa.float64(), (float("nan"), float("nan"))),
            (pa.binary(), (b"\xff", b"\xff")),
            (pa.decimal128(5, 2), (Decimal(1), Decimal("1.00"))),
            (pa.struct({"x": pa.int64()}), ({"x": 1}, {"x": 1})),
            (pa.date32(), (1, 1)),
        ],
        ids=str,
    )
    def test_of_any_type(self, key, pair):
        array = maps([(pair[0], 1), (pair[1], 2)], kind=pa.map_(key, pa.int64()))
        schema = pa.schema([pa.field("c", array.type)])
        with pytest.raises(InvalidInputError, match="twice; give each key"):
            conform(pa.table({"c": array}), schema_from_arrow(schema), source="a")

    def test_zeros_of_two_signs_are_two_keys(self):
        array = maps([(0.0, 1), (-0.0, 2)], kind=pa.map_(pa.float64(), pa.int64()))
        assert len(accepted(array, "map<double, long>")[0]) == 2


class TestAtAnyDepth:
    """The column is named by its path."""

    def test_in_structs_lists_and_maps(self):
        inner = pa.ListArray.from_arrays([0, 1, 1, 3], texts(b"a", b"b", BAD))
        struct = pa.StructArray.from_arrays([inner], names=["l"])
        assert refusal(struct, "struct<l: list<string>>").startswith("column 'c.l.element', row 13 of a.parquet: the")
        keys = pa.MapArray.from_arrays([0, 1, 2], texts(b"a", BAD), times(1, 2))
        assert refusal(keys, "map<string, time>").startswith("column 'c.key', row 12 of a.parquet: the text")
        values = pa.MapArray.from_arrays([0, 1, 2], texts(b"a", b"b"), times(1, 25))
        assert refusal(values, "map<string, time>").startswith("column 'c.value', row 12 of a.parquet: the time")
        twice = pa.array([[], [[("a", 1)], [("a", 1), ("a", 2)]]], pa.list_(pa.map_(pa.string(), pa.int64())))
        assert refusal(twice, "list<map<string, long>>").startswith("column 'c.element', row 12 of a.parquet: the map")

    @pytest.mark.parametrize("large", [pa.large_list, pa.list_view, pa.large_list_view, lambda of: pa.list_(of, 1)])
    def test_in_every_kind_of_list(self, large):
        array = pa.array([["a"], ["b"], ["c"]], large(pa.string()))
        assert accepted(array, "list<string>") == [["a"], ["b"], ["c"]]
        bad = {
            "fixed": lambda: pa.FixedSizeListArray.from_arrays(texts(b"a", BAD), 1),
            "large": lambda: pa.LargeListArray.from_arrays([0, 1, 2], texts(b"a", BAD)),
            "list_view": lambda: pa.ListViewArray.from_arrays([0, 1], [1, 1], texts(b"a", BAD)),
            "large_list_view": lambda: pa.LargeListViewArray.from_arrays([0, 1], [1, 1], texts(b"a", BAD)),
        }
        for make in bad.values():
            assert refusal(make(), "list<string>").startswith("column 'c.element', row 12 of a.parquet: the text")

    def test_in_a_later_chunk(self):
        assert "row 14 of" in refusal(pa.chunked_array([texts(b"a", b"b"), texts(b"c", BAD)]), "string")

    def test_in_dictionaries_and_runs(self):
        encoded = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, None], pa.int8()), texts(b"a", BAD))
        assert "row 13 of" in refusal(encoded, "string")
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([b"a", BAD]))
        runs = of_another_program(runs, pa.run_end_encoded(pa.int32(), pa.string()))
        assert "row 13 of" in refusal(runs, "string")


class TestWhatNoRowHasIsNoValue:
    """Bytes below a null, outside of a slice, and behind no index are never refused."""

    def test_below_nulls(self):
        garbage = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), *texts(b"a", BAD).buffers()[1:]])
        assert accepted(garbage, "string") == ["a", None]
        struct = pa.StructArray.from_arrays(
            [texts(b"a", BAD), times(1, 25), decimals(1, 100000)], names=["s", "t", "d"], mask=pa.array([False, True])
        )
        assert accepted(struct, "struct<s: string, t: time, d: decimal(5,2)>")[1] is None
        lists = pa.ListArray.from_arrays([0, 1, 2], texts(b"a", BAD), mask=pa.array([False, True]))
        assert accepted(lists, "list<string>") == [["a"], None]
        doubled = pa.MapArray.from_arrays([0, 1, 3], ["a", "b", "b"], [1, 2, 3])
        hidden = pa.StructArray.from_arrays([doubled], names=["m"], mask=pa.array([False, True]))
        assert accepted(hidden, "struct<m: map<string, long>>")[1] is None

    def test_outside_of_a_slice(self):
        assert accepted(texts(BAD, b"a", BAD).slice(1, 1), "string") == ["a"]
        lists = pa.ListArray.from_arrays([0, 1, 2, 3], texts(BAD, b"a", BAD))
        assert accepted(lists.slice(1, 1), "list<string>") == [["a"]]
        assert "row 11 of" in refusal(lists.slice(2, 1), "list<string>")

    def test_behind_no_index(self):
        encoded = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), texts(b"a", BAD))
        assert accepted(encoded, "string") == ["a", None]


class TestDamagedArrays:
    """Buffers that contradict each other are an error, and not the end of the process."""

    def test_an_offset_behind_the_values(self):
        offsets = pa.py_buffer(np.array([0, 100, 2], np.int32))
        lists = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[pa.array([1, 2])])
        text = refusal(lists, "list<long>")
        assert text.startswith(
            "column 'c' of a.parquet, rows 11 to 12: the Arrow data (list<item: int64>) is damaged: "
        )
        broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
        assert "is damaged" in refusal(broken, "string")

    def test_an_index_behind_the_dictionary(self):
        encoded = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), ["a", "b"], safe=False)
        assert "an index from 0 to 7 into a dictionary of 2 values" in refusal(encoded, "string")


class TestColumnsThatTheTableDoesNotHave:
    """A merge sees them: they are checked like the others."""

    def test_they_are_named(self):
        with pytest.raises(InvalidInputError, match="column 'more', row 2 of the feed: the text"):
            check_rows(pa.table({"more": texts(b"a", BAD)}), source="the feed", first_row=1)


class TestRowsForPeople:
    """Where rows become Python's texts, a text that is none is named."""

    def test_it_is_named(self):
        rows = pa.table({"c": texts(b"a", BAD)})
        for one in (rows, rows.to_batches()[0]):
            with pytest.raises(InvalidInputError, match="column 'c', row 2 of the query: the text"):
                python_rows(one, source="the query")
        assert python_rows(rows.slice(0, 1), source="the query") == [{"c": "a"}]


# -- generated ---------------------------------------------------------------------------------------------------------


class Rows:
    """Random values of a random type, with some that are none; what is right is known from how they were made."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.share = self.dice.choice([0.0, 0.0, 0.02, 0.1])

    def kind(self, depth: int = 0) -> str:
        kinds = ["string", "time", "decimal(5,2)", "long", *(["struct", "list", "map"] if depth < 3 else [])]
        match self.dice.choice(kinds):
            case "struct":
                return f"struct<a: {self.kind(depth + 1)}, b: {self.kind(depth + 1)}>"
            case "list":
                return f"list<{self.kind(depth + 1)}>"
            case "map":
                return f"map<{self.dice.choice(['string', 'long', 'time'])}, {self.kind(depth + 1)}>"
            case plain:
                return plain

    def value(self, kind: pa.DataType, *, null: bool = True) -> tuple[Any, bool]:
        """Return a value for a type of `plain`, and whether a part of it that is no null is bad."""
        if null and self.dice.random() < 0.15:
            return None, False
        bad = self.dice.random() < self.share
        if pa.types.is_string(kind):
            return (BAD if bad else self.dice.choice([b"", b"x", "ö".encode(), b"long" * 9])), bad
        if pa.types.is_time(kind):
            return (self.dice.choice([-1, 24 * HOUR, 1 << 62]) if bad else self.dice.randrange(24 * HOUR)), bad
        if pa.types.is_decimal(kind):
            return Decimal(self.dice.choice([10**5, -(10**20)]) if bad else self.dice.randrange(10**5)).scaleb(-2), bad
        if pa.types.is_struct(kind):
            found = {field.name: self.value(field.type) for field in kind}
            return {name: value for name, (value, _) in found.items()}, any(wrong for _, wrong in found.values())
        if pa.types.is_list(kind):
            items = [self.value(kind.value_type) for _ in range(self.dice.randrange(4))]
            return [value for value, _ in items], any(wrong for _, wrong in items)
        if pa.types.is_map(kind):
            return self._map(kind, bad)
        return self.dice.randrange(100), False

    def _map(self, kind: pa.DataType, twice: bool) -> tuple[Any, bool]:
        pairs: dict[Any, Any] = {}
        wrong = False
        for _ in range(self.dice.randrange(4)):
            key, is_wrong = self.value(kind.key_type, null=False)
            value, other = self.value(kind.item_type)
            pairs.setdefault(key, (value, is_wrong or other))
        found = [(key, value) for key, (value, _) in pairs.items()]
        wrong = any(bad for _, bad in pairs.values())
        if twice and found:
            found.append(self.dice.choice(found))
            wrong = True
        return found, wrong


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same layout that takes the bad values, too."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind


def disguised(array: pa.Array, dice: random.Random) -> pa.Array:
    """Return the same rows in another form: cut from more of them, or encoded, or as another type of Arrow."""
    form = dice.choice(["", "slice", "dictionary", "view", "large"])
    if form == "slice":
        return pa.concat_arrays([array, array]).slice(len(array) // 2, len(array))
    if form == "dictionary" and not pa.types.is_nested(array.type):
        return array.dictionary_encode()
    if pa.types.is_string(array.type) and form in ("view", "large"):
        wide, kind = (pa.large_binary(), pa.large_string()) if form == "large" else (pa.binary_view(), pa.string_view())
        return array.view(pa.binary()).cast(wide).view(kind)
    return array


@pytest.mark.generated
@pytest.mark.parametrize("case", range(sampled(2000)))
def test_rows_are_refused_exactly_if_one_of_their_values_is_none(case):
    rows = Rows(SEED * 1_000_003 + case)
    schema = schema_from_shorthand({"c": rows.kind()})
    kind = schema_to_arrow(schema).field(0).type
    found = [rows.value(kind) for _ in range(rows.dice.randrange(1, 12))]
    array = pa.array([value for value, _ in found], plain(kind)).view(kind)
    shift = 0
    shown = disguised(array, rows.dice)
    if len(shown) == len(array) and shown.offset and not pa.types.is_dictionary(shown.type):
        shift = len(array) // 2
    bad = {(position - shift) % len(found) + 1 for position, (_, wrong) in enumerate(found) if wrong}
    table = pa.table({"c": shown})
    if not bad:
        done = conform(table, schema, source="s")
        done.validate(full=True)
        expected = [value for value, _ in found[shift:] + found[:shift]]
        assert len(done) == len(expected)
        return
    with pytest.raises(InvalidInputError) as caught:
        conform(table, schema, source="s")
    assert any(f", row {row} of s: " in str(caught.value) for row in bad), str(caught.value)


def test_many_rows_are_checked_by_several_threads_with_the_same_result() -> None:
    rows = 2_000_000
    numbers = pa.array(np.arange(rows))
    wrong = pa.chunked_array([pa.repeat("z", rows - 1), texts(BAD)])
    schema = schema_from_shorthand({"d": "long", "c": "string", "b": "string", "a": "long"})
    for threads in (1, 4):
        table = pa.table({"a": numbers, "b": wrong, "c": wrong, "d": numbers})
        with pytest.raises(InvalidInputError) as caught:
            conform(table, schema, source="s", first_row=11, threads=threads)
        assert str(caught.value) == f"column 'c', row {rows + 10} of s: {NO_TEXT}"
        right = pa.chunked_array([pa.repeat("z", rows - 1), texts(b"y")])
        table = pa.table({"d": numbers, "c": right, "b": right, "a": numbers})
        assert conform(table, schema, source="s", threads=threads).equals(table)
