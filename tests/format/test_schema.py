"""Schemas: lookup, legality, projection, fresh ids, and schemas written by hand."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema, assign_fresh_ids
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.type_json import field_to_json
from tests.support import strategies

NESTED = schema_from_shorthand(
    {
        "id": "long not null",
        "points": "list<struct<x: double, y: double>>",
        "tags": "map<string, struct<n: int>>",
        "where": "struct<country: string not null, city: struct<name: string>> not null",
    }
)


def field(field_id: int, name: str, type_=None, required: bool = False) -> t.NestedField:
    return t.NestedField(id=field_id, name=name, type=type_ or t.LongType(), required=required)


class TestLookup:
    """Fields are found by id and by full dotted name, at every depth."""

    def test_every_field_has_a_name_and_is_found_by_it_and_its_id(self):
        assert list(NESTED.names) == [
            *("id", "points", "points.element", "points.element.x", "points.element.y", "tags", "tags.key"),
            *("tags.value", "tags.value.n", "where", "where.country", "where.city", "where.city.name"),
        ]
        for name, field_id in NESTED.names.items():
            assert NESTED.find_field(name) is NESTED.find_field(field_id) is NESTED.fields_by_id[field_id]
            assert NESTED.find_name(field_id) == name
        assert NESTED.find_field("points.x") is NESTED.find_field("points.element.x")
        assert NESTED.find_field("tags.n") is NESTED.find_field("tags.value.n")

    def test_case_matters_unless_it_is_said_not_to(self):
        assert NESTED.find_field("WHERE.City.Name", case_sensitive=False).name == "name"
        with pytest.raises(NotFoundError):
            NESTED.find_field("ID")
        schema = Schema((field(1, "a"), field(2, "A")))
        assert schema.find_field("A", case_sensitive=False).id == 2
        with pytest.raises(InvalidInputError, match="column 'ab' is ambiguous without case: aB, Ab"):
            Schema((field(1, "aB"), field(2, "Ab"))).find_field("ab", case_sensitive=False)

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("amout", "amount"), ("AMOUNT", "amount"), ("point.y", "point.x"), ("customer", None), ("point.amount", None)],
    )
    def test_an_unknown_name_names_the_one_that_may_be_meant(self, name, meant):
        point = t.StructType(fields=(field(3, "x"),))
        schema = Schema((field(1, "amount"), field(2, "point", point)))
        with pytest.raises(NotFoundError) as caught:
            schema.find_field(name)
        assert str(caught.value) == (
            f"no column '{name}' (columns: amount, point, point.x)" + (f"; did you mean '{meant}'?" if meant else "")
        )

    def test_an_unknown_name_lists_the_columns(self):
        schema = Schema((field(1, "a"), field(2, "b")))
        with pytest.raises(NotFoundError) as caught:
            schema.find_field("c")
        assert str(caught.value) == "no column 'c' (columns: a, b)"
        with pytest.raises(NotFoundError, match=r"no column with field id 9 \(columns: a, b\)"):
            schema.find_field(9)
        assert schema.find_name(9) is None

    def test_a_column_may_have_a_dot_in_its_name(self):
        assert Schema((field(1, "a.b"),)).find_field("a.b").id == 1

    def test_the_highest_id_and_the_fields_around_a_field_are_known(self):
        assert NESTED.highest_field_id == max(child.id for child in t.walk_fields(NESTED.fields))
        assert Schema().highest_field_id == 0
        name = NESTED.find_field("where.city.name")
        assert [parent.name for parent in NESTED.ancestors(name.id)] == ["city", "where"]

    def test_a_schema_can_be_pickled(self):
        assert pickle.loads(pickle.dumps(NESTED)).names == NESTED.names


class TestLegality:
    """A schema that exists is legal."""

    @pytest.mark.parametrize(("fields", "message"), [
        ((field(1, "a"), field(1, "b")), "field id 1 is used twice: 'a' and 'b'"),
        ((field(1, "a"), field(2, "a")), "column name 'a' is used twice: field ids 1 and 2"),
        ((field(1, "a.b"), field(2, "a", t.StructType(fields=(field(3, "b"),)))), r"name 'a\.b' is used twice"),
    ])  # fmt: skip
    def test_no_id_or_name_twice(self, fields, message):
        with pytest.raises(InvalidInputError, match=message):
            Schema(fields)

    def test_in_a_file_it_is_a_format_error(self):
        json = {"type": "struct", "fields": [field_to_json(field(1, "a")), field_to_json(field(1, "b"))]}
        with pytest.raises(FormatError) as caught:
            Schema.from_dict(json, path="f.json", where="schemas[0]")
        assert str(caught.value) == "field id 1 is used twice: 'a' and 'b' in 'schemas[0]' of f.json"


class TestIdentifierFields:
    """Identifier fields are required, no floats, and not where a parent could be null or many."""

    def test_a_required_column_and_one_in_a_required_struct_may_identify(self):
        country = NESTED.names["where.country"]
        assert Schema(NESTED.fields, 0, (1, country)).identifier_field_ids == (1, country)

    @pytest.mark.parametrize(("columns", "name", "problem"), [
        ({"a": "long"}, "a", "it is optional"), ({"a": "double not null"}, "a", "its type is double"),
        ({"a": "float not null"}, "a", "its type is float"),
        ({"a": "struct<b: int not null> not null"}, "a", "is not a primitive type"),
        ({"a": "struct<b: int not null>"}, "a.b", "struct 'a' is optional"),
        ({"a": "list<struct<b: int not null> not null> not null"}, "a.element.b", "it is inside the list<"),
        ({"a": "map<string, int not null> not null"}, "a.key", "it is inside the map<"),
    ])  # fmt: skip
    def test_others_may_not(self, columns, name, problem):
        schema = schema_from_shorthand(columns)
        with pytest.raises(InvalidInputError, match="cannot identify rows") as caught:
            Schema(schema.fields, 0, (schema.names[name],))
        assert f"column '{name}' cannot identify rows: " in str(caught.value)
        assert problem in str(caught.value)

    def test_an_unknown_id_may_not(self):
        with pytest.raises(InvalidInputError, match="identifier field id 99 is not a column"):
            Schema(NESTED.fields, 0, (99,))


class TestJson:
    """Schemas are read from and written to metadata as Java does."""

    @pytest.mark.costly
    @given(strategies.schemas())
    def test_reading_is_the_inverse_of_writing(self, schema):
        assert Schema.from_dict(schema.to_dict()) == schema

    def test_the_keys_are_in_the_order_of_java(self):
        schema = Schema((field(1, "a", required=True),), 3, (1,))
        assert list(schema.to_dict()) == ["type", "schema-id", "identifier-field-ids", "fields"]
        assert list(Schema((field(1, "a"),)).to_dict()) == ["type", "schema-id", "fields"]

    def test_a_schema_is_a_struct_and_has_the_id_0_without_one(self):
        assert Schema.from_dict({"type": "struct", "fields": []}).schema_id == 0
        with pytest.raises(FormatError):
            Schema.from_dict({"type": "list", "element-id": 1, "element": "int", "element-required": True})

    def test_schemas_are_the_same_whatever_their_id(self):
        assert Schema(NESTED.fields, 1).same_fields(Schema(NESTED.fields, 2))
        assert not Schema(NESTED.fields).same_fields(Schema(NESTED.fields, 0, (1,)))


class TestSelect:
    """A projection keeps ids and the table's order."""

    def test_the_order_is_that_of_the_schema_and_a_star_is_everything(self):
        assert [child.name for child in NESTED.select(["where", "id"]).fields] == ["id", "where"]
        assert NESTED.select(["*"]) is NESTED
        assert list(NESTED.select(["ID"], case_sensitive=False).names) == ["id"]

    def test_nested_names_prune_structs_lists_and_maps(self):
        chosen = NESTED.select(["where.city.name"])
        assert list(chosen.names) == ["where", "where.city", "where.city.name"]
        assert chosen.find_field("where.city.name").id == NESTED.names["where.city.name"]
        assert list(NESTED.select(["points.element.y"]).names) == ["points", "points.element", "points.element.y"]
        assert "tags.key" in NESTED.select(["tags.value.n"]).names

    def test_a_struct_that_is_named_and_a_map_whose_key_is_are_whole(self):
        assert NESTED.select(["where", "where.country"]).find_field("where") == NESTED.find_field("where")
        assert NESTED.select(["tags.key"]).find_field("tags") == NESTED.find_field("tags")

    def test_identifier_fields_go_with_their_columns(self):
        schema = Schema((field(1, "a", required=True), field(2, "b")), 0, (1,))
        assert schema.select(["b"]).identifier_field_ids == ()
        assert schema.select(["a"]).identifier_field_ids == (1,)

    def test_an_unknown_name_is_not_found(self):
        with pytest.raises(NotFoundError, match="no column 'nope'"):
            NESTED.select(["id", "nope"])

    @pytest.mark.costly
    @given(st.data())
    def test_what_is_selected_is_a_part_of_the_schema(self, data):
        schema = data.draw(strategies.schemas())
        names = data.draw(st.lists(st.sampled_from(list(schema.names)), unique=True))
        chosen = schema.select(names)
        assert set(names) <= set(chosen.names) <= set(schema.names)
        for name in chosen.names:
            assert chosen.names[name] == schema.names[name]


class TestFreshIds:
    """Ids are given as Java gives them: all fields of a struct first, then what is nested in them."""

    def test_the_top_level_has_the_first_ids(self):
        assert sorted(NESTED.names, key=NESTED.names.__getitem__) == [
            *("id", "points", "tags", "where", "points.element", "points.element.x", "points.element.y", "tags.key"),
            *("tags.value", "tags.value.n", "where.country", "where.city", "where.city.name"),
        ]
        assert sorted(NESTED.names.values()) == list(range(1, 14))

    def test_identifier_fields_follow_their_names(self):
        schema = Schema((field(7, "a"), field(9, "b", required=True)), 2, (9,))
        assert assign_fresh_ids(schema).identifier_field_ids == (2,)
        assert assign_fresh_ids(schema).schema_id == 2

    @pytest.mark.costly
    @given(strategies.schemas(depth=3))
    def test_ids_are_dense_and_names_stay(self, schema):
        fresh = assign_fresh_ids(schema)
        assert list(fresh.names) == list(schema.names)
        assert sorted(fresh.fields_by_id) == list(range(1, len(fresh.names) + 1))


class TestShorthand:
    """Columns as people write them."""

    @pytest.mark.parametrize(("text", "expected"), [
        ("long", t.LongType()), ("bigint", t.LongType()), ("BIGINT", t.LongType()), ("integer", t.IntegerType()),
        ("str", t.StringType()), ("varchar", t.StringType()), ("varchar(20)", t.StringType()),
        ("bool", t.BooleanType()), ("bytes", t.BinaryType()), ("float", t.FloatType()),
        ("double precision", t.DoubleType()), ("timestamp", t.TimestampType()),
        ("timestamp with time zone", t.TimestamptzType()), ("timestamp  without time zone", t.TimestampType()),
        ("decimal(9,2)", t.DecimalType(9, 2)), ("numeric(9, 2)", t.DecimalType(9, 2)),
        ("decimal(7)", t.DecimalType(7, 0)), ("fixed[16]", t.FixedType(16)), ("fixed(16)", t.FixedType(16)),
    ])  # fmt: skip
    def test_types_and_their_aliases(self, text, expected):
        found = schema_from_shorthand({"c": text}).find_field("c")
        assert found.type == expected
        assert not found.required
        assert schema_from_shorthand({"c": f"{text} NOT NULL"}).find_field("c").required

    def test_nested_types_nest(self):
        schema = schema_from_shorthand({"m": "map<string, list<struct<a: decimal(9, 2) not null, b map<int, int>>>>"})
        inner = t.StructType(
            fields=(
                field(6, "a", t.DecimalType(9, 2), required=True),
                field(7, "b", t.MapType(key_id=8, key=t.IntegerType(), value_id=9, value=t.IntegerType())),
            )
        )
        expected = t.MapType(key_id=2, key=t.StringType(), value_id=3, value=t.ListType(element_id=4, element=inner))
        assert schema.find_field("m").type == _renumbered(expected)

    def test_elements_and_values_may_be_required(self):
        schema = schema_from_shorthand({"l": "array<string not null>", "m": "map<string, int not null>"})
        assert schema.find_field("l").type.element_required
        assert schema.find_field("m").type.value_required

    def test_a_type_with_a_million_spaces_is_read_or_refused(self):
        """The text of a type may come from a metastore."""
        spaces = " " * 1_000_000
        for text in (f"int{spaces}", f"int{spaces}not null", f"struct<a: int{spaces}, b{spaces}: int>"):
            assert schema_from_shorthand({"c": text}).find_field("c") is not None
        for text in (f"int{spaces}x", f"struct<a{spaces}>", f"int{spaces}comment x"):
            with pytest.raises(InvalidInputError, match="column 'c"):
                schema_from_shorthand({"c": text})

    def test_comments_quoted_members_and_objects_with_words(self):
        schema = schema_from_shorthand({"c": "struct<`a b`: int comment 'x, y'> not null comment 'it''s'"})
        assert schema.find_field("c").doc == "it's"
        assert schema.find_field("c").required
        assert schema.find_field("c.a b").doc == "x, y"
        schema = schema_from_shorthand({"c": {"type": "long", "required": True, "doc": "words"}})
        assert schema.find_field("c") == t.NestedField(id=1, name="c", type=t.LongType(), required=True, doc="words")

    @pytest.mark.parametrize(("columns", "message"), [
        ({"a": "nope"}, "column 'a': unknown type 'nope' (allowed: boolean, int, long"),
        ({"a": "list<nope>"}, "column 'a.element': unknown type 'nope' (allowed: "),
        ({"a": "struct<x: int, y: nope>"}, "column 'a.y': unknown type 'nope' (allowed: "),
        ({"a": "map<int>"}, "column 'a': a map has a key and a value type, got 'map<int>'"),
        ({"a": "list<int, int>"}, "column 'a': a list has one element type"),
        ({"a": "struct<x>"}, "column 'a': a struct has members like 'x: double', got 'x'"),
        ({"a": "decimal(40, 2)"}, "column 'a': invalid type 'decimal(40, 2)': the precision must be from 1 to 38"),
        ({"a": "decimal"}, "column 'a': decimal needs its number of digits, and how many of them are after the po"),
        ({"a": "list<numeric not null>"}, "column 'a.element': numeric needs its number of digits"),
        ({"a": ""}, "column 'a': unknown type ''"), ({"a": "list<int"}, "column 'a': unknown type 'list<int'"),
        ({"a": 5}, "column 'a': expected a type like 'long not null' or an object with 'type'"),
        (
            {"a": {"type": "int", "requird": True}},
            "column 'a': unknown key 'requird' (allowed: type, required, doc)",
        ),
        ({"": "int"}, "a column name must be a text that is not empty"),
    ])  # fmt: skip
    def test_what_cannot_be_understood_names_the_column(self, columns, message):
        with pytest.raises(InvalidInputError) as caught:
            schema_from_shorthand(columns)
        assert message in str(caught.value)

    def test_schemas_of_ours_and_of_arrow_get_fresh_ids(self):
        given_schema = Schema((field(7, "a"),), 5)
        assert schema_from_shorthand(given_schema, schema_id=1) == Schema((field(1, "a"),), 1)
        arrow = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("l", pa.list_(pa.date32()))])
        schema = schema_from_shorthand(arrow)
        assert schema.find_field("a") == field(1, "a", t.LongType(), required=True)
        assert schema.find_field("l.element").type == t.DateType()
        assert schema.names == {"a": 1, "l": 2, "l.element": 3}


def _renumbered(type_):
    return assign_fresh_ids(Schema((field(100, "m", type_),))).find_field("m").type
