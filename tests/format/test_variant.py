"""The binary form of variants: read, written, and refused where it is damaged."""

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.values import variant as v
from tests.support import golden
from tests.support.sampling import examples
from tests.support.variants import Node, Primitive, decode, encode_names

LONGS = st.integers(-(2**63), 2**63 - 1)
PRIMITIVES = st.one_of(
    st.just(Primitive(t.UnknownType(), None)),
    st.booleans().map(lambda value: Primitive(t.BooleanType(), value)),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: Primitive(t.IntegerType(), value)),
    st.sampled_from(
        [t.LongType(), t.TimeType(), t.TimestampType(), t.TimestamptzType(), t.TimestampNsType(), t.TimestamptzNsType()]
    ).flatmap(lambda kind: LONGS.map(lambda value: Primitive(kind, value))),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: Primitive(t.DateType(), value)),
    st.floats(allow_nan=False).map(lambda value: Primitive(t.DoubleType(), value)),
    st.floats(allow_nan=False, width=32).map(lambda value: Primitive(t.FloatType(), value)),
    st.tuples(st.integers(-(10**9) + 1, 10**9 - 1), st.integers(0, 9)).map(
        lambda pair: Primitive(t.DecimalType(9, pair[1]), Decimal(pair[0]).scaleb(-pair[1]))
    ),
    st.integers(-(10**37), 10**37).map(lambda value: Primitive(t.DecimalType(38, 10), Decimal(value).scaleb(-10))),
    st.text(max_size=100).map(lambda value: Primitive(t.StringType(), value)),
    st.binary(max_size=300).map(lambda value: Primitive(t.BinaryType(), value)),
    st.uuids().map(lambda value: Primitive(t.UUIDType(), value)),
)
NODES = st.recursive(
    PRIMITIVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def names_of(node: Node) -> set[str]:
    if isinstance(node, dict):
        return set(node).union(*(names_of(item) for item in node.values()))
    return set().union(*(names_of(item) for item in node)) if isinstance(node, list) else set()


def encode(node: Node, ids: dict[str, int]) -> bytes:
    if isinstance(node, dict):
        return v.encode_object(ids, {name: encode(item, ids) for name, item in node.items()})
    if isinstance(node, list):
        return v.encode_array([encode(item, ids) for item in node])
    return v.encode_primitive(node.type, node.value)


def pair(node: Node) -> tuple[bytes, bytes]:
    names = sorted(names_of(node))
    return encode_names(names), encode(node, {name: index for index, name in enumerate(names)})


class TestWhatIsPutTogetherIsTakenApart:
    """Every kind of value survives, with its type."""

    @given(NODES)
    @examples(100)
    def test_every_value(self, node: Node) -> None:
        assert decode(*pair(node)) == node

    @pytest.mark.costly
    @pytest.mark.parametrize("count", [255, 256, 70_000])
    def test_large_objects_and_arrays(self, count: int) -> None:
        items = [Primitive(t.IntegerType(), number) for number in range(count)]
        assert decode(*pair(items)) == items
        fields = {f"n{number}": item for number, item in enumerate(items)}
        assert decode(*pair(fields)) == fields

    def test_integers_keep_their_size(self) -> None:
        assert [v.encode_primitive(t.LongType(), 5, int_size=size)[0] >> 2 for size in (1, 2, 4, 8)] == [3, 4, 5, 6]

    def test_a_name_that_the_dictionary_lacks_is_an_error(self) -> None:
        with pytest.raises(FormatError, match="field 'b' of a variant is not in its metadata"):
            v.encode_object({"a": 0}, {"b": b"\x00"})


class TestBytesWrittenByOthers:
    """Those of Spark and Iceberg Java, bit for bit."""

    @pytest.mark.parametrize(("value", "expected"), [
        ("00", Primitive(t.UnknownType(), None)), ("0c80", Primitive(t.IntegerType(), -128)),
        ("108000", Primitive(t.IntegerType(), 128)),
        ("200296000000", Primitive(t.DecimalType(9, 2), Decimal("1.50"))),
        ("50" + "11" * 16, Primitive(t.UUIDType(), UUID("11" * 16))),
    ])  # fmt: skip
    def test_primitive_values(self, value: str, expected: Primitive) -> None:
        assert decode(b"\x01\x00\x00", bytes.fromhex(value)) == expected

    def test_values_are_encoded_again_as_they_were(self) -> None:
        for name in golden.tables():
            path = golden.table(name).folder.parents[2] / "expected" / name / "variants.jsonl"
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                row = json.loads(line)
                if row.get("value") is None:
                    continue
                metadata, value = bytes.fromhex(row["metadata"]), bytes.fromhex(row["value"])
                node, names = decode(metadata, value), v.read_names(metadata)
                ids = {name: index for index, name in enumerate(names)}
                assert decode(metadata, encode(node, ids)) == node


class TestDamagedBytes:
    """They give an error of the format and never more than they can hold."""

    @pytest.mark.parametrize(("metadata", "value", "message"), [
        ("020000", "00", "unexpected version"), ("01ff00", "00", "has 255 names"), ("010000", "", "has no bytes"),
        ("010000", "00", "expected an object"), ("010000", "4202", "unexpected end"),
        ("010000", "02010000", "an object of 4 bytes in a variant has 1 fields"),
        ("0101000161", "020200000000010000", "overlap, or have no names"),
    ])  # fmt: skip
    def test_what_is_wrong_is_said(self, metadata: str, value: str, message: str) -> None:
        with pytest.raises(FormatError, match=message):
            v.object_fields(v.read_names(bytes.fromhex(metadata)), bytes.fromhex(value))

    @pytest.mark.costly
    @given(NODES, st.data())
    @examples(300)
    def test_mutations_give_our_errors_only(self, node: Node, data: Any) -> None:
        metadata, value = (bytearray(part) for part in pair(node))
        for part in (metadata, value):
            for _ in range(data.draw(st.integers(0, 2))):
                part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        try:
            v.object_fields(v.read_names(bytes(metadata)), bytes(value))
        except FormatError:
            return
