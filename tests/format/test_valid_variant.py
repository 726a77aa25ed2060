"""Damaged variants are told from whole ones, by our own error, in memory that grows with their bytes."""

import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.values import variant as v
from airflow_iceberg.format.values.valid_variant import MOST_LEVELS, check_variant
from airflow_iceberg.table import Table
from tests.format.test_variant import NODES, pair
from tests.support import golden
from tests.support.sampling import SEED, examples, sampled
from tests.support.variants import Primitive, decode, encode_names

EMPTY = encode_names([])
NAMES = encode_names(["a", "b"])
INT = v.encode_primitive(t.IntegerType(), 7)
OBJECT = v.encode_object({"a": 0, "b": 1}, {"a": INT, "b": INT})
ARRAY = v.encode_array([INT, INT])


def is_valid(metadata: bytes, value: bytes) -> bool:
    """Return whether a variant is accepted; every error is ours."""
    try:
        check_variant(metadata, value)
    except FormatError:
        return False
    return True


class TestWholeVariants:
    """What other writers and we have made is accepted."""

    @given(NODES.filter(lambda node: "TimeType" not in repr(node)))
    @examples(100)
    def test_every_value(self, node):
        check_variant(*pair(node))

    @pytest.mark.costly
    def test_those_of_iceberg_java(self):
        known = golden.table("v3_variant")
        table = Table.from_metadata(known.metadata_location, known.properties, io=known.io).scan().to_arrow()
        found = [value for value in values_from_array(t.VariantType(), table.column("v")) if value is not None]
        assert len(found) > 10
        for metadata, value in found:
            check_variant(metadata, value)

    @pytest.mark.parametrize("count", [0, 255, 256, 20_000])
    def test_large_objects_and_arrays(self, count):
        items = [Primitive(t.IntegerType(), number) for number in range(count)]
        check_variant(*pair(items))
        check_variant(*pair({f"n{number}": item for number, item in enumerate(items)}))

    def test_values_in_another_order_than_the_names(self):
        boolean = v.encode_primitive(t.BooleanType(), True)
        value = bytes([2, 2, 0, 1, len(boolean), 0, len(boolean + INT)]) + boolean + INT
        assert decode(NAMES, value) == {"a": Primitive(t.IntegerType(), 7), "b": Primitive(t.BooleanType(), True)}
        check_variant(NAMES, value)

    def test_names_in_the_order_of_java(self):
        """Above U+FFFF, Java's order of texts is not that of their UTF-8."""
        names = ["\uff41", "\U0001f600"]
        for order in (names, names[::-1]):
            data = b"".join(name.encode() for name in order)
            ends = [0, len(order[0].encode()), len(data)]
            metadata = bytes([0b10001, 2, *ends]) + data
            check_variant(metadata, OBJECT)


DAMAGED: dict[str, tuple[bytes, bytes]] = {
    "no value": (NAMES, b""),
    "a cut value": (NAMES, INT[:-1]),
    "a cut object": (NAMES, OBJECT[:-1]),
    "a cut array": (NAMES, ARRAY[:-1]),
    "only the head of an object": (NAMES, OBJECT[:1]),
    "only the count of an array": (NAMES, ARRAY[:2]),
    "bytes after a value": (NAMES, INT + b"\x00"),
    "bytes after an object": (NAMES, OBJECT + b"\x00"),
    "bytes after an array": (NAMES, ARRAY + b"\x00"),
    "bytes after a value in an array": (NAMES, v.encode_array([INT + b"\x00"])),
    "an unknown field id": (EMPTY, OBJECT),
    "fields in a wrong order": (NAMES, OBJECT[:2] + b"\x01\x00" + OBJECT[4:]),
    "a field twice": (NAMES, OBJECT[:2] + b"\x00\x00" + OBJECT[4:]),
    "offsets of an array in a wrong order": (NAMES, ARRAY[:2] + b"\x05\x00\x0a" + ARRAY[5:]),
    "an offset behind the value": (NAMES, ARRAY[:4] + b"\xff" + ARRAY[5:]),
    "two values with the same bytes": (NAMES, OBJECT[:4] + b"\x00\x00\x0a" + OBJECT[7:]),
    "bytes before the first value": (NAMES, ARRAY[:2] + b"\x01\x05\x0a" + ARRAY[5:]),
    "a count of four thousand millions": (NAMES, bytes([0b10011, *b"\xff\xff\xff\xff"]) + b"\x00" * 20),
    "a scale of 200": (NAMES, bytes([8 << 2, 200, 1, 0, 0, 0])),
    "a decimal of ten digits in four bytes": (NAMES, bytes([8 << 2, 0]) + (10**9).to_bytes(4, "little")),
    "a type that is not known": (NAMES, bytes([21 << 2]) + b"\x00" * 16),
    "a short text that is no UTF-8": (NAMES, bytes([1 << 2 | 1, 0xFF])),
    "a long text that is no UTF-8": (NAMES, bytes([16 << 2, 1, 0, 0, 0, 0xFF])),
    "a binary that is longer than it is": (NAMES, bytes([15 << 2, 9, 0, 0, 0, 1])),
    "a time of the next day": (NAMES, bytes([17 << 2]) + (86_400_000_000).to_bytes(8, "little")),
    "no metadata": (b"", INT),
    "metadata of another version": (b"\x02\x00\x00", INT),
    "cut metadata": (NAMES[:-1], INT),
    "bytes after metadata": (NAMES + b"x", INT),
    "a count of names that are not there": (bytes([0xC1]) + b"\xff" * 4, INT),
    "a name that is no UTF-8": (bytes([1, 1, 0, 1, 0xFF]), INT),
    "names that are not sorted as they say": (bytes([0b10001, 2, 0, 1, 2]) + b"ba", INT),
    "a name twice among sorted ones": (bytes([0b10001, 2, 0, 1, 2]) + b"aa", INT),
}


class TestDamagedVariants:
    """Each kind of damage is found, also deep inside."""

    @pytest.mark.parametrize("kind", DAMAGED)
    def test_each_kind(self, kind):
        metadata, value = DAMAGED[kind]
        assert not is_valid(metadata, value)
        if metadata == NAMES and value:
            assert not is_valid(metadata, v.encode_array([INT, v.encode_object({"b": 1}, {"b": value})]))

    @pytest.mark.parametrize("wrap", [lambda x: v.encode_array([x]), lambda x: v.encode_object({"a": 0}, {"a": x})])
    def test_depth(self, wrap: Callable[[bytes], bytes]):
        value = INT
        for level in range(1, MOST_LEVELS + 2):
            value = wrap(value)
            if level in (1, MOST_LEVELS, MOST_LEVELS + 1):
                assert is_valid(NAMES, value) == (level <= MOST_LEVELS)

    def test_what_is_accepted_can_be_read_and_nothing_is_left_over(self):
        """Of mutants of whole variants, at random, each is refused or all of its bytes are values."""
        chance, accepted = random.Random(f"variants {SEED}"), 0
        nodes = {"a": [Primitive(t.StringType(), "Ä" * 40), {"b": Primitive(t.DecimalType(9, 2), v.Decimal("1.50"))}]}
        metadata, value = pair({**nodes, "c": Primitive(t.DateType(), 3), "d": {}})
        for _ in range(sampled(20_000)):
            data = [bytearray(metadata), bytearray(value)]
            for _ in range(chance.randint(1, 3)):
                part = chance.choice(data)
                at = chance.randrange(len(part))
                part[at : at + chance.randint(0, 1)] = bytes([chance.choice((0, 1, 255, chance.randrange(256)))])
            if is_valid(bytes(data[0]), bytes(data[1])):
                accepted += 1
                decode(bytes(data[0]), bytes(data[1]))
                for cut in (data[1][:-1], data[1] + b"\0"):
                    assert not is_valid(bytes(data[0]), bytes(cut))
        assert accepted > 50

    @pytest.mark.costly
    @pytest.mark.parametrize("width", [2, 3, 4])
    def test_memory_grows_with_the_bytes(self, width):
        """Very many nulls in an array, and as many offsets that point to one byte."""
        count = 50_000
        head = bytes([(1 << 2 | (width - 1)) << 2 | 3]) + struct.pack("<I", count)
        good = head + b"".join(at.to_bytes(width, "little") for at in range(count + 1)) + b"\0" * count
        bad = head + b"\0" * (width * (count + 1)) + b"\0"
        tracemalloc.start()
        assert is_valid(EMPTY, good)
        assert not is_valid(EMPTY, bad)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * len(good) + (1 << 20)
