"""Types and their JSON form."""

import pickle

import pytest
from hypothesis import given

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.type_json import type_from_json, type_to_json
from airflow_iceberg.format.type_text import begun_type
from tests.support import strategies


class TestTypeStrings:
    """A primitive type is written as its name, as the specification and Java write it."""

    @pytest.mark.parametrize("text", list(t.NAMED_TYPES))
    def test_a_named_type_is_read_and_written_back(self, text):
        assert type_to_json(type_from_json(text)) == text

    def test_every_type_of_the_three_versions_is_known(self):
        first = "boolean int long float double date time timestamp timestamptz string uuid binary"
        third = "timestamp_ns timestamptz_ns unknown variant"
        assert set(t.NAMED_TYPES) == set(f"{first} {third}".split())

    @pytest.mark.parametrize("text", ["decimal(9,2)", "decimal(9, 2)", "decimal( 9 , 2 )", "DECIMAL(9,2)"])
    def test_blanks_in_a_decimal_do_not_matter_and_javas_form_is_written(self, text):
        assert type_from_json(text) == t.DecimalType(9, 2)
        assert type_to_json(t.DecimalType(9, 2)) == "decimal(9, 2)"

    def test_fixed_has_its_length_in_square_brackets(self):
        assert type_from_json("fixed[16]") == type_from_json("fixed[ 16 ]") == t.FixedType(16)
        assert type_to_json(t.FixedType(length=16)) == "fixed[16]"

    @pytest.mark.parametrize(("text", "expected"), [
        ("geometry", t.GeometryType()), ("geometry(srid:3857)", t.GeometryType("srid:3857")),
        ("geography", t.GeographyType()), ("geography(OGC:CRS83)", t.GeographyType("OGC:CRS83")),
        ("geography(OGC:CRS83, karney)", t.GeographyType("OGC:CRS83", "karney")),
    ])  # fmt: skip
    def test_geospatial_types_are_written_back_as_they_were(self, text, expected):
        assert type_from_json(text) == expected
        assert type_to_json(expected) == text

    def test_geospatial_types_without_parameters_equal_their_defaults(self):
        assert t.GeometryType() == t.GeometryType("ogc:crs84")
        assert hash(t.GeometryType()) == hash(t.GeometryType("OGC:CRS84"))
        assert t.GeographyType() == t.GeographyType("OGC:CRS84", "spherical")
        assert t.GeographyType() != t.GeographyType(None, "karney")

    @pytest.mark.parametrize("text", ["int32", "decimal", "decimal(9)", "fixed", "fixed[-1]", "", "struct"])
    def test_what_is_no_type_says_so_with_the_place_and_the_file(self, text):
        with pytest.raises(FormatError) as caught:
            type_from_json(text, path="s3://b/v1.metadata.json", where="schemas[0].fields[2].type")
        message = f"unknown type '{text}' in 'schemas[0].fields[2].type' of s3://b/v1.metadata.json"
        assert str(caught.value) == message
        assert caught.value.path == "s3://b/v1.metadata.json"

    @pytest.mark.parametrize("text", ["decimal(39, 2)", "decimal(0, 0)", "decimal(9, 10)", "geography(x, flat)"])
    def test_parameters_out_of_range_are_a_format_error_in_a_file_and_an_input_error_elsewhere(self, text):
        with pytest.raises(FormatError):
            type_from_json(text)
        with pytest.raises(InvalidInputError):
            t.parse_leaf(text)


class TestNestedTypes:
    """Struct, list and map are objects with ids."""

    def test_lists_and_maps_have_javas_keys_in_javas_order(self):
        type_ = t.ListType(element_id=3, element=t.StringType(), element_required=True)
        json = {"type": "list", "element-id": 3, "element": "string", "element-required": True}
        assert list(type_to_json(type_).items()) == list(json.items())
        assert type_from_json(json) == type_
        type_ = t.MapType(key_id=4, key=t.StringType(), value_id=5, value=t.LongType())
        json = {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": "long", "value-required": False}
        assert list(type_to_json(type_).items()) == list(json.items())
        assert type_from_json(json) == type_

    def test_a_struct_keeps_docs_and_undecoded_defaults(self):
        json = {
            "type": "struct",
            "fields": [
                {
                    "id": 1,
                    "name": "a",
                    "required": True,
                    "type": "date",
                    "doc": "words",
                    "initial-default": "2020-01-01",
                    "write-default": "2021-01-01",
                }
            ],
        }
        type_ = type_from_json(json)
        assert type_.fields[0].initial_default == "2020-01-01"
        assert type_to_json(type_) == json

    @pytest.mark.costly
    @given(strategies.types(depth=3))
    def test_reading_is_the_inverse_of_writing(self, type_):
        assert type_from_json(type_to_json(type_)) == type_

    @pytest.mark.costly
    @given(strategies.types(depth=3))
    def test_the_beginning_of_a_text_is_that_of_the_whole(self, type_):
        text = str(type_)
        assert begun_type(type_, len(text) + 1) == text
        assert [begun_type(type_, most) for most in range(0, len(text), 7)] == [
            text[:most] for most in range(0, len(text), 7)
        ]

    def test_the_beginning_of_a_text_is_made_alone(self, monkeypatch):
        monkeypatch.setattr(t.IntegerType, "__str__", lambda _: made.append(1) or "int")
        fields = tuple(t.NestedField(id=number, name="a", type=t.IntegerType(), doc="b") for number in range(1_000))
        made: list[int] = []
        assert begun_type(t.ListType(element_id=1, element=t.StructType(fields=fields)), 30)[:12] == "list<struct<"
        assert len(made) < 5

    @pytest.mark.costly
    @given(strategies.types(depth=2))
    def test_types_are_values(self, type_):
        copy = pickle.loads(pickle.dumps(type_))
        assert copy == type_
        assert hash(copy) == hash(type_)

    def test_what_is_no_type_is_named_with_its_place(self):
        with pytest.raises(
            FormatError, match=r"unknown nested type 'set' \(expected struct, list or map\) in 'type.type'"
        ):
            type_from_json({"type": "set"})
        with pytest.raises(FormatError, match=r"unexpected type int \(expected str or object\) in 'type'"):
            type_from_json(5)
        json = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": {"type": "list"}}]}
        with pytest.raises(FormatError, match=r"missing field 'schema.fields\[0\].type.element-id' of f.json"):
            type_from_json(json, path="f.json", where="schema")

    def test_a_field_reads_like_in_java(self):
        field = t.NestedField(id=1, name="a", type=t.IntegerType(), required=True, doc="words")
        assert str(field) == "1: a: required int (words)"
        assert str(t.StructType(fields=(field,))) == "struct<1: a: required int (words)>"


class TestTypedGetters:
    """Errors carry the path of the value and the file it stands in."""

    DOCUMENT = Fields({"a": True, "n": None, "l": [{"b": 1.0}], "m": {"k": 1}, "i": 7}, "", "f.json")

    @pytest.mark.parametrize(("getter", "key", "message"), [
        ("int", "a", "unexpected type bool (expected int) in 'a' of f.json"),
        ("str", "i", "unexpected type int (expected str) in 'i' of f.json"),
        ("bool", "i", "unexpected type int (expected bool) in 'i' of f.json"),
        ("list", "m", "unexpected type object (expected list) in 'm' of f.json"),
        ("child", "l", "unexpected type list (expected object) in 'l' of f.json"),
        ("int", "n", "unexpected type null (expected int) in 'n' of f.json"),
        ("int", "x", "missing field 'x' of f.json"),
        ("str_map", "m", "unexpected type int (expected str) in 'm.k' of f.json"),
        ("int_list", "l", "unexpected type object (expected int) in 'l[0]' of f.json"),
    ])  # fmt: skip
    def test_a_wrong_shape_is_named_with_what_was_expected(self, getter, key, message):
        with pytest.raises(FormatError) as caught:
            getattr(self.DOCUMENT, getter)(key)
        assert str(caught.value) == message

    def test_items_know_their_place(self):
        with pytest.raises(FormatError) as caught:
            next(self.DOCUMENT.items("l")).int("b")
        assert str(caught.value) == "unexpected type float (expected int) in 'l[0].b' of f.json"

    def test_null_and_missing_are_the_same_and_a_wrong_type_is_refused_where_a_value_is_optional(self):
        assert self.DOCUMENT.opt_int("n") is self.DOCUMENT.opt_str("x") is None
        assert self.DOCUMENT.opt_child("n") is None
        with pytest.raises(FormatError, match="unexpected type bool"):
            self.DOCUMENT.opt_int("a")

    def test_what_is_not_known_is_handed_out_untouched(self):
        assert self.DOCUMENT.rest({"a", "n", "l"}) == {"m": {"k": 1}, "i": 7}
