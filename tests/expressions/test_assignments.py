"""What `set st.a = 5` and `set n = default` are, as assignments of whole columns."""

import pytest

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.assignments import whole_columns
from airflow_iceberg.expressions.merge_sql import parse_clauses, update_clause
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import BooleanType, DateType, LongType, NestedField, StringType, UUIDType

SCHEMA = schema_from_shorthand(
    {"id": "long", "st": "struct<a: int, `it's` : string, deep: struct<x: double>>", "a.b": "int", "tags": "list<int>"}
    | {"Id2": "int"}
)
DEFAULTS = Schema(
    tuple(
        NestedField(id=at, name=name, type=kind, required=False, write_default=value)
        for at, (name, kind, value) in enumerate(
            [
                ("n", LongType(), 7),
                ("yes", BooleanType(), True),
                ("who", StringType(), "it's"),
                ("day", DateType(), "2026-01-02"),
                ("key", UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
                ("none", LongType(), None),
            ],
            1,
        )
    )
)


def made(values, schema=SCHEMA, dialect="spark"):
    (clause,) = whole_columns([update_clause(values)], schema, dialect=dialect)
    texts = (" ".join(text.split()) for text in clause.expressions)
    return dict(zip(clause.columns, texts, strict=True))


class TestFields:
    def test_the_other_fields_stay(self):
        whole = "named_struct('a', ( 1 ), 'it\\'s', ( target.`st`.`it's` ), 'deep', ( target.`st`.`deep` ))"
        assert made({"st.a": "1"}) == {"st": whole}
        whole = """struct_pack("a" := ( 1 ), "it's" := ( target."st"."it's" ), "deep" := ( target."st"."deep" ))"""
        assert made({"st.a": "1"}, dialect="duckdb") == {"st": whole}

    def test_fields_of_fields_and_several(self):
        inner = 'struct_pack("x" := ( id / 2 ))'
        whole = f"""struct_pack("a" := ( 1 ), "it's" := ( target."st"."it's" ), "deep" := ( {inner} ))"""
        assert made({"ST.Deep.X": "id / 2", "ID": "id", "st.A": "1"}, dialect="duckdb") == {"st": whole, "id": "id"}

    def test_a_name_with_a_dot_is_one_of_a_column_first(self):
        assert made({"a.b": "1", "iD2": "2"}) == {"a.b": "1", "Id2": "2"}

    def test_of_a_merge(self):
        text = (
            "when matched then update set target.st.deep.x = 1, st.a = 2 when not matched then insert (ID) values (1)"
        )
        update, insert = whole_columns(parse_clauses(text, dialect="spark"), SCHEMA, dialect="spark")
        assert (update.columns, insert.columns) == (("st",), ("id",))

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"st.nope": "1"}, "column 'st.nope' of 'update' is not in the table, which has id, st, a.b, tags, Id2"),
            ({"nope.a": "1"}, "column 'nope.a' of 'update' is not in the table"),
            ({"tags.element": "1"}, "column 'tags.element' of 'update' is not in the table"),
            ({"st.a.b": "1"}, "column 'st.a.b' of 'update' is not in the table"),
            ({"st": "null", "st.a": "1"}, "column 'st.a' is set twice by 'update': as a whole, or in part"),
            ({"st.deep.x": "1", "st.deep": "null"}, "column 'st.deep' is set twice"),
            ({"st.deep": "null", "st.deep.x": "1"}, "column 'st.deep.x' is set twice"),
            ({"id": "1", "ID": "2"}, "column 'ID' is set twice"),
            ({"st.a": "1", "ST.A": "2"}, "column 'ST.A' is set twice"),
        ],
    )
    def test_what_is_wrong(self, values, message):
        with pytest.raises(InvalidInputError, match=message):
            made(values)

    def test_no_field_of_a_new_row(self):
        clauses = parse_clauses("when not matched then insert (id, st.a) values (1, 2)", dialect="spark")
        with pytest.raises(InvalidInputError, match=r"column 'st\.a' of 'insert' is not in the table"):
            whole_columns(clauses, SCHEMA, dialect="spark")


class TestDefaults:
    @pytest.mark.parametrize(
        ("name", "spark", "duckdb"),
        [
            ("n", "cast('7' as bigint)", "cast('7' as bigint)"),
            ("yes", "cast('true' as boolean)", "cast('true' as boolean)"),
            ("who", "cast('it\\'s' as string)", "cast('it''s' as varchar)"),
            ("day", "cast('2026-01-02' as date)", "cast('2026-01-02' as date)"),
            ("none", "null", "null"),
        ],
    )
    def test_the_word_is_the_value(self, name, spark, duckdb):
        assert made({name: " DEFAULT "}, DEFAULTS) == {name: spark}
        assert made({name: "default"}, DEFAULTS, "duckdb") == {name: duckdb}

    def test_of_a_type_without_a_literal(self):
        with pytest.raises(
            UnsupportedError, match=r"column 'key' \(uuid\) is set to its default by the word 'default'"
        ):
            made({"key": "default"}, DEFAULTS)
