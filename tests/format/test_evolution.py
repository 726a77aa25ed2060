"""Changes of schema, partitioning, sort order and properties: what is legal, what it makes, what is so already."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.metadata.table_metadata import new_table_metadata
from airflow_iceberg.format.metadata.updates import apply_change
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.properties.property import ColumnProperty
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.format.types import DateType, NestedField
from airflow_iceberg.plan.alter_table.changes import evolve
from airflow_iceberg.plan.alter_table.words import CHANGES

COLUMNS = {
    "id": "long not null", "n": "int", "price": "decimal(9,2)", "day": "date", "ts": "timestamptz",
    "point": "struct<x: int, y: double>", "points": "list<struct<x: float, y: double>>",
    "attrs": "map<struct<k: int>, struct<v: int>>",
}  # fmt: skip


def table(version=2, columns=None, partition_by=(), sort_by=(), **properties):
    schema = schema_from_shorthand(columns or COLUMNS)
    return new_table_metadata(
        location="memory://t",
        schema=schema,
        spec=spec_from_shorthand(partition_by, schema),
        sort_order=sort_order_from_shorthand(sort_by, schema),
        properties={name.replace("__", "."): value for name, value in properties.items()},
        table_uuid="u",
        now_ms=1,
        format_version=version,
    )


def alter(metadata, *changes):
    change = evolve(metadata, changes)
    for requirement in change.requirements:
        requirement.check(metadata)
    return apply_change(metadata, change, now_ms=2, base_location=None)


def add(name, type_, **more):
    return {"add_column": {"name": name, "type": type_, **more}}


def top(metadata):
    return [field.name for field in metadata.schema().fields]


def column(metadata, name):
    return metadata.schema().find_field(name)


def partitions(metadata):
    return [(field.field_id, field.name, str(field.transform)) for field in metadata.spec().fields]


class TestAddingAColumn:
    """A new column gets an id that was never used, at the end or where it is asked for."""

    def test_it_gets_the_next_id_and_comes_last(self):
        before = table()
        after = alter(before, {"add_column": {"name": "new", "type": "string", "doc": "words"}})
        assert top(after) == [*COLUMNS, "new"]
        assert (column(after, "new").id, column(after, "new").doc) == (before.last_column_id + 1, "words")
        assert after.last_column_id == before.last_column_id + 1
        assert after.current_schema_id == 1

    def test_nested_types_get_their_ids_behind_it(self):
        before = table(columns={"id": "long"})
        after = alter(before, {"add_column": {"name": "m", "type": "map<string, struct<a: int>>"}})
        ids = {name: after.schema().names[name] for name in ("m", "m.key", "m.value", "m.value.a")}
        assert ids == {"m": 2, "m.key": 3, "m.value": 4, "m.value.a": 5}

    @pytest.mark.parametrize(("position", "expected"), [
        ({"first": True}, ["new", "id", "n"]), ({"before": "n"}, ["id", "new", "n"]),
        ({"after": "id"}, ["id", "new", "n"]), ({"after": "n"}, ["id", "n", "new"]),
    ])  # fmt: skip
    def test_it_stands_where_it_is_asked_for(self, position, expected):
        assert top(alter(table(columns={"id": "long", "n": "int"}), add("new", "int", **position))) == expected

    @pytest.mark.parametrize("name", ["point.z", "points.z", "points.element.z", "attrs.z", "attrs.value.z"])
    def test_it_can_be_a_field_of_a_struct(self, name):
        after = alter(table(), {"add_column": {"name": name, "type": "int"}})
        assert column(after, name).name == "z"
        assert not column(after, name).required

    def test_a_name_with_a_dot_in_it_is_written_in_backticks(self):
        assert top(alter(table(columns={"id": "long"}), add("`a.b`", "int"))) == ["id", "a.b"]
        with pytest.raises(NotFoundError, match="backticks"):
            alter(table(columns={"id": "long"}), add("a.b", "int"))

    def test_a_promotion_keeps_the_value_of_a_default(self):
        # 0.1 is another double than the float that written rows have.
        before = alter(table(3), add("a", "float", default=0.1))
        after = column(alter(before, {"change_type": {"name": "a", "type": "double"}}), "a")
        assert after.initial_default == after.write_default == 0.10000000149011612

    def test_a_required_one_needs_a_default_or_ones_word(self):
        assert column(alter(table(), add("a", "int", required=True, allow_incompatible=True)), "a").required
        after = alter(table(3), add("a", "int not null", default=0))
        assert (column(after, "a").required, column(after, "a").initial_default) == (True, 0)

    @pytest.mark.parametrize(("version", "change", "message"), [
        (2, add("a", "int not null"), "cannot be required: existing rows have no value"),
        (2, add("a", "int", default=1), "needs format version 3"),
        (3, add("a", "int", default=2**31), "default of column 'a'"),
        (3, add("a", "list<int>", default=[1]), "its fields can"), (2, add("attrs.key.z", "int"), "keys of a map"),
        (2, add("a", "lnog"), "lnog"), (2, add("a", "variant"), "needs format version 3"),
    ])  # fmt: skip
    def test_what_cannot_be_added(self, version, change, message):
        with pytest.raises(InvalidInputError, match=message):
            alter(table(version), change)

    @pytest.mark.parametrize(("type_", "default", "stored"), [
        ("int", 7, 7), ("decimal(9,2)", "1.5", "1.50"), ("date", "2026-01-01", "2026-01-01"),
        ("timestamptz", "2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00"), ("string", "x", "x"),
        ("boolean", False, False),
    ])  # fmt: skip
    def test_a_default_is_both_initial_and_write_default(self, type_, default, stored):
        added = column(alter(table(3), add("a", type_, default=default)), "a")
        assert (added.initial_default, added.write_default) == (stored, stored)

    def test_an_equal_one_is_no_change_and_a_different_one_is_refused(self):
        change = add("a", "int", after="id")
        once = alter(table(), change)
        assert evolve(once, [change]).updates == ()
        with pytest.raises(AlreadyExistsError, match="cannot be added: it already exists with type int, not long"):
            evolve(once, [add("a", "long")])
        with pytest.raises(AlreadyExistsError, match="as a required column, not an optional column"):
            evolve(once, [add("id", "long")])

    def test_types_of_version_3_may_follow_an_upgrade(self):
        assert alter(table(), {"upgrade_format_version": 3}, add("a", "variant"))


class TestDroppingAColumn:
    """It goes, its id is never used again."""

    def test_what_is_added_again_is_another_column(self):
        before = table()
        after = alter(before, {"drop_column": "n"}, {"add_column": {"name": "n", "type": "int"}})
        assert column(after, "n").id == before.last_column_id + 1

    def test_one_that_was_dropped_before_stays_so_and_another_name_is_refused(self):
        once = alter(table(), {"drop_column": "n"})
        assert evolve(once, [{"drop_column": "n"}]).updates == ()
        with pytest.raises(NotFoundError, match="no column 'm'"):
            evolve(once, [{"drop_column": "m"}])
        once = alter(table(), {"rename_column": {"from": "n", "to": "m"}})
        with pytest.raises(NotFoundError, match="it is called 'm' now"):
            evolve(once, [{"drop_column": "n"}])

    @pytest.mark.parametrize(("name", "message", "given"), [
        ("points.element", "the element of a list or map", {}), ("attrs.value", "the value of a list or map", {}),
        ("attrs.key.k", "keys of a map", {}), ("attrs.v", "last one of struct 'attrs.value'", {}),
        ("id", "last one of the table", {"columns": {"id": "int"}}),
        ("ts", "partition field 'ts_day' is made of it; drop the partition", {"partition_by": ["day(ts)"]}),
        ("ts", "the table is sorted by it", {"sort_by": ["ts"]}),
    ])  # fmt: skip
    def test_parts_of_a_type_the_last_column_and_sources_stay(self, name, message, given):
        with pytest.raises(InvalidInputError, match=message):
            alter(table(**given), {"drop_column": name})

    def test_a_source_may_go_after_its_partition_field(self):
        after = alter(table(partition_by=["day(ts)"]), {"drop_partition_field": "day(ts)"}, {"drop_column": "ts"})
        assert "ts" not in top(after)
        after = alter(table(1, partition_by=["day(ts)"]), {"drop_partition_field": "ts_day"}, {"drop_column": "ts"})
        assert partitions(after) == [(1000, "ts_day", "void")]

    def test_identifier_fields_stay(self):
        named = alter(table(), {"set_identifier_fields": ["id"]})
        with pytest.raises(InvalidInputError, match="identifies rows"):
            alter(named, {"drop_column": "id"})
        assert "id" not in top(alter(named, {"set_identifier_fields": []}, {"drop_column": "id"}))


class TestRenamingAndMoving:
    """The id stays, so rows and history do not notice."""

    def test_a_rename_keeps_the_id(self):
        before = table()
        after = alter(before, {"rename_column": {"from": "point.x", "to": "lat"}})
        assert column(after, "point.lat").id == column(before, "point.x").id

    @pytest.mark.parametrize("to", ["lat", "point.lat", "`lat`"])
    def test_the_struct_may_stand_before_the_new_name(self, to):
        assert column(alter(table(), {"rename_column": {"from": "point.x", "to": to}}), "point.lat")

    @pytest.mark.parametrize(("name", "to", "error", "message"), [
        ("point.x", "other.x", InvalidInputError, "a column cannot leave its struct"),
        ("n", "id", AlreadyExistsError, "there is a column of this name"),
        ("nothing", "id", NotFoundError, "no column 'nothing'"),
    ])  # fmt: skip
    def test_names_that_cannot_be(self, name, to, error, message):
        with pytest.raises(error, match=message):
            alter(table(), {"rename_column": {"from": name, "to": to}})

    def test_one_that_was_renamed_so_before_stays_so(self):
        rename = {"rename_column": {"from": "n", "to": "m"}}
        assert evolve(alter(table(), rename), [rename]).updates == ()

    @pytest.mark.parametrize(("move", "expected"), [
        ({"name": "c", "first": True}, "cab"), ({"name": "a", "after": "b"}, "bac"),
        ({"name": "a", "after": "c"}, "bca"), ({"name": "c", "before": "b"}, "acb"),
    ])  # fmt: skip
    def test_moves(self, move, expected):
        before = table(columns=dict.fromkeys("abc", "int"))
        assert "".join(top(alter(before, {"move_column": move}))) == expected

    def test_a_field_of_a_struct_moves_among_its_siblings(self):
        after = alter(table(), {"move_column": {"name": "points.y", "before": "points.x"}})
        assert [f.name for f in column(after, "points").type.element.fields] == ["y", "x"]
        with pytest.raises(NotFoundError, match=r"no column 'id' in the struct of 'point\.x'"):
            alter(table(), {"move_column": {"name": "point.x", "after": "id"}})


class TestPromotion:
    """Types become wider only, and only where partitions keep their values."""

    @pytest.mark.parametrize(("version", "old", "new", "legal"), [
        (1, "int", "long", True), (2, "float", "double", True), (2, "decimal(9,2)", "decimal(18,2)", True),
        (2, "decimal(9,2)", "decimal(18,3)", False), (2, "decimal(9,2)", "decimal(8,2)", False),
        (2, "long", "int", False), (2, "int", "double", False), (2, "int", "string", False),
        (2, "date", "timestamp", False), (3, "date", "timestamp", True), (3, "date", "timestamp_ns", True),
        (3, "date", "timestamptz", False), (3, "unknown", "int", True), (3, "unknown", "struct<a: int>", True),
        (3, "timestamp", "timestamp_ns", False), (2, "fixed[4]", "binary", False),
    ])  # fmt: skip
    def test_the_table_of_promotions(self, version, old, new, legal):
        metadata = table(version, columns={"id": "int", "a": old})
        change = {"change_type": {"name": "a", "type": new}}
        if legal:
            after = alter(metadata, change)
            assert evolve(after, [change]).updates == ()
            assert column(after, "a").id == 2
        else:
            with pytest.raises(InvalidInputError, match="column 'a' cannot change from"):
                alter(metadata, change)

    @pytest.mark.parametrize("name", ["n", "point.x", "points.x"])
    def test_nested_fields_too(self, name):
        wide = "double" if name == "points.x" else "long"
        assert str(column(alter(table(), {"change_type": {"name": name, "type": wide}}), name).type) == wide

    def test_elements_and_values_too_but_keys_not(self):
        metadata = table(columns={"l": "list<int>", "m": "map<int, int>"})
        after = alter(metadata, *({"change_type": {"name": n, "type": "long"}} for n in ("l.element", "m.value")))
        assert str(after.schema().as_struct().fields[0].type) == "list<long>"
        with pytest.raises(InvalidInputError, match="keys of a map"):
            alter(metadata, {"change_type": {"name": "m.key", "type": "long"}})

    @pytest.mark.parametrize(
        ("term", "legal"),
        [("identity(d)", False), ("bucket(4, d)", False), ("day(d)", True), ("year(d)", True), ("void(d)", True)],
    )
    def test_a_date_whose_partitions_would_change_stays_one(self, term, legal):
        metadata = table(3, columns={"id": "int", "d": "date"}, partition_by=[term])
        change = {"change_type": {"name": "d", "type": "timestamp"}}
        if legal:
            alter(metadata, change)
        else:
            with pytest.raises(InvalidInputError, match="would get other values for files that the table has"):
                alter(metadata, change)
            # Also after the field is gone: files of the old spec stay.
            with pytest.raises(InvalidInputError, match="would get other values"):
                alter(metadata, {"set_partitioning": []}, change)

    def test_defaults_are_promoted_with_their_column(self):
        metadata = alter(table(3, columns={"id": "int"}), add("d", "date", default="2026-01-01"))
        after = alter(metadata, {"change_type": {"name": "d", "type": "timestamp"}})
        assert column(after, "d").initial_default == "2026-01-01T00:00:00"


class TestNullability:
    """Optional is always possible; required only on somebody's word."""

    def test_optional_always_and_required_on_ones_word(self):
        assert not column(alter(table(), {"make_optional": "id"}), "id").required
        with pytest.raises(InvalidInputError, match="existing rows may have nulls"):
            alter(table(), {"make_required": "n"})
        assert column(alter(table(), {"make_required": {"name": "n", "allow_incompatible": True}}), "n").required
        assert evolve(table(), [{"make_required": "id"}]).updates == ()

    def test_identifier_fields_are_required_and_no_floats(self):
        named = alter(table(), {"set_identifier_fields": ["id"]})
        assert named.schema().identifier_field_ids == (1,)
        with pytest.raises(InvalidInputError, match="it is optional"):
            alter(named, {"make_optional": "id"})
        with pytest.raises(InvalidInputError, match="it is optional"):
            alter(table(), {"set_identifier_fields": ["n"]})


class TestDocsAndDefaults:
    """What is said about a column changes without a trace in the rows."""

    def test_docs_and_write_defaults_change_and_initial_defaults_never(self):
        after = alter(table(), {"set_doc": {"name": "point.x", "doc": "degrees"}})
        assert column(after, "point.x").doc == "degrees"
        assert column(alter(after, {"set_doc": {"name": "point.x", "doc": None}}), "point.x").doc is None
        metadata = alter(table(3), {"add_column": {"name": "a", "type": "int", "default": 1}})
        after = column(alter(metadata, {"set_default": {"name": "a", "value": 2}}), "a")
        assert (after.initial_default, after.write_default) == (1, 2)


class TestUnionByName:
    """What another schema has more is added; nothing is dropped or narrowed."""

    def test_a_union(self):
        wanted = {
            "new": "string not null",
            "id": "long",
            "n": "long",
            "price": "decimal(5,2)",
            "point": "struct<z: int, x: int>",
            "points": "list<struct<x: double, w: int>>",
        }
        before = table()
        after = alter(before, {"union_by_name": wanted})
        assert top(after) == [*COLUMNS, "new"]
        assert not column(after, "new").required
        assert not column(after, "id").required
        assert str(column(after, "n").type) == "long"
        assert str(column(after, "price").type) == "decimal(9, 2)"
        assert [f.name for f in column(after, "point").type.fields] == ["x", "y", "z"]
        assert str(column(after, "points.x").type) == "double"
        assert column(after, "points.w").id > before.last_column_id
        assert evolve(after, [{"union_by_name": wanted}]).updates == ()

    def test_types_that_do_not_meet_are_refused(self):
        with pytest.raises(InvalidInputError, match="column 'n' is int and cannot be united with string"):
            alter(table(), {"union_by_name": {"n": "string"}})


@pytest.mark.parametrize("version", [1, 2, 3])
class TestColumnsWithTheNameOfAPartitionField:
    """No column gets the name of a partition field of another one, also of earlier specs: Java loads no such table.

    `tests/compat/test_names_of_partition_fields.py` tries that with Java.
    """

    @pytest.mark.parametrize("change", [
        {"add_column": {"name": "kind", "type": "string"}},
        {"add_column": {"name": "kind", "type": "int"}},
        {"rename_column": {"from": "n", "to": "kind"}},
        {"union_by_name": {"kind": "string"}},
    ])  # fmt: skip
    def test_a_column_that_was_dropped_does_not_come_back(self, version, change):
        metadata = alter(table(version), {"add_column": {"name": "kind", "type": "string"}})
        for step in ({"add_partition_field": "kind"}, {"drop_partition_field": "kind"}, {"drop_column": "kind"}):
            metadata = alter(metadata, step)
        with pytest.raises(InvalidInputError, match=r"partition name 'kind' .*spec \d.* the name of another column"):
            alter(metadata, change)

    def test_nor_gets_one_the_name_of_an_earlier_transform(self, version):
        metadata = alter(table(version, partition_by=["day(ts)"]), {"drop_partition_field": "ts_day"})
        with pytest.raises(InvalidInputError, match=r"partition name 'ts_day' \(day, spec 0\)"):
            alter(metadata, {"add_column": {"name": "ts_day", "type": "date"}})

    def test_names_that_are_so_already_are_left_alone(self, version):
        metadata = alter(table(version, partition_by=["day(ts)"]), {"drop_partition_field": "ts_day"})
        taken = Schema((*metadata.schema().fields, NestedField(id=90, name="ts_day", type=DateType(), required=False)))
        taken = replace(metadata, schemas=(taken,), current_schema_id=taken.schema_id, last_column_id=90)
        assert column(alter(taken, {"add_column": {"name": "more", "type": "int"}}), "more").id == 91

    def test_a_column_may_have_the_name_of_its_own_field(self, version):
        metadata = alter(table(version, partition_by=["id"]), {"rename_column": {"from": "id", "to": "key"}})
        assert column(alter(metadata, {"rename_column": {"from": "key", "to": "id"}}), "id").id == 1


class TestPartitionEvolutionFromVersion2:
    """Fields come and go; one that comes back has its old id."""

    def test_a_new_field_gets_the_next_id_and_javas_name_or_ones_own(self):
        after = alter(table(partition_by=["day(ts)"]), {"add_partition_field": "bucket(16, id)"})
        assert partitions(after) == [(1000, "ts_day", "day"), (1001, "id_bucket_16", "bucket[16]")]
        assert (after.default_spec_id, after.last_partition_id) == (1, 1001)
        after = alter(table(), {"add_partition_field": {"field": "bucket(4, id)", "name": "shard"}})
        assert partitions(after) == [(1000, "shard", "bucket[4]")]
        assert partitions(alter(table(), {"add_partition_field": "bucket(4, id) as shard"})) == partitions(after)

    def test_an_old_field_gets_its_old_id_and_name_again(self):
        metadata = table(partition_by=["day(ts)", "id"])
        without = alter(metadata, {"drop_partition_field": "day(ts)"})
        assert partitions(without) == [(1001, "id", "identity")]
        again = alter(without, {"add_partition_field": "bucket(4, n)"}, {"add_partition_field": "day(ts)"})
        assert [field_id for field_id, _, _ in partitions(again)] == [1001, 1002, 1000]
        assert partitions(again)[2] == (1000, "ts_day", "day")

    def test_replacing_renaming_and_all_at_once(self):
        metadata = table(partition_by=["day(ts)"])
        replaced = alter(metadata, {"replace_partition_field": {"from": "day(ts)", "to": "hour(ts)"}})
        assert partitions(replaced) == [(1001, "ts_hour", "hour")]
        renamed = alter(replaced, {"rename_partition_field": {"from": "ts_hour", "to": "h"}})
        assert partitions(renamed) == [(1001, "h", "hour")]
        metadata = table(partition_by=["day(ts)", "id"])
        after = alter(metadata, {"set_partitioning": ["bucket(4, n)", "day(ts)"]})
        assert partitions(after) == [(1002, "n_bucket_4", "bucket[4]"), (1000, "ts_day", "day")]
        assert partitions(alter(after, {"set_partitioning": []})) == []

    def test_names_that_end_with_a_blank(self):
        metadata = alter(table(), {"add_column": {"name": "`trail `", "type": "string"}})
        metadata = alter(metadata, {"add_partition_field": "`trail `"})
        assert [field.name for field in metadata.spec().fields] == ["trail "]
        assert partitions(alter(metadata, {"set_partitioning": []})) == []
        assert partitions(alter(metadata, {"drop_partition_field": "trail "})) == []

    def test_an_equal_spec_is_used_again(self):
        metadata = table(partition_by=["day(ts)"])
        without = alter(metadata, {"drop_partition_field": "ts_day"})
        again = alter(without, {"add_partition_field": "day(ts)"})
        assert [without.default_spec_id, again.default_spec_id] == [1, 0]

    @pytest.mark.parametrize("change", [
        {"add_partition_field": "day(ts)"}, {"drop_partition_field": "id"}, {"drop_partition_field": "identity(id)"},
        {"rename_partition_field": {"from": "ts_day", "to": "d"}},
        {"replace_partition_field": {"from": "day(ts)", "to": "month(ts)"}}, {"set_partitioning": ["month(ts)"]},
    ])  # fmt: skip
    def test_what_is_so_already_is_no_change(self, change):
        once = alter(table(partition_by=["day(ts)", "id"]), change)
        assert evolve(once, [change]).updates == ()

    @pytest.mark.parametrize(("change", "error", "message"), [
        ({"drop_partition_field": "hour(ts)"}, NotFoundError, "no partition field 'hour\\(ts\\)'"),
        ({"drop_partition_field": "nothing"}, NotFoundError, "partition fields: ts_day"),
        ({"add_partition_field": "day(price)"}, InvalidInputError, "day is not defined"),
        ({"add_partition_field": "day(nothing)"}, NotFoundError, "nothing"),
        ({"add_partition_field": "day(ts) as other"}, AlreadyExistsError, "already exists as 'ts_day'"),
        ({"add_partition_field": "id as ts_day"}, AlreadyExistsError, "'ts_day' already"),
        ({"add_partition_field": "bucket(4, id) as n"}, InvalidInputError, "name of another column"),
        ({"add_partition_field": "bucket(4, points.x)"}, IcebergError, "x"),
        ({"rename_partition_field": {"from": "no", "to": "x"}}, NotFoundError, "no partition field 'no'"),
        ({"add_column": {"name": "ts_day", "type": "int"}}, InvalidInputError, "name of another column"),
    ])  # fmt: skip
    def test_what_cannot_be(self, change, error, message):
        with pytest.raises(error, match=message):
            alter(table(partition_by=["day(ts)"]), change)


class TestPartitionEvolutionInVersion1:
    """Fields keep their place: a removed one becomes void, a new one goes to the end."""

    def test_a_removed_field_becomes_void_and_one_that_comes_back_is_new(self):
        after = alter(table(1, partition_by=["day(ts)", "id"]), {"drop_partition_field": "day(ts)"})
        assert partitions(after) == [(1000, "ts_day", "void"), (1001, "id", "identity")]
        assert evolve(after, [{"drop_partition_field": "ts_day"}]).updates == ()
        void = alter(table(1, partition_by=["day(ts)", "id"]), {"drop_partition_field": "day(ts)"})
        again = alter(void, {"add_partition_field": "day(ts)"})
        assert partitions(again) == [(1000, "ts_day_1000", "void"), (1001, "id", "identity"), (1002, "ts_day", "day")]

    def test_after_an_upgrade_void_fields_may_go(self):
        void = alter(table(1, partition_by=["day(ts)"]), {"drop_partition_field": "day(ts)"})
        after = alter(void, {"upgrade_format_version": 2}, {"drop_partition_field": "ts_day"})
        assert partitions(after) == []


class TestSortOrderPropertiesAndVersion:
    """The rest of what is not rows."""

    def test_sort_order_properties_and_location(self):
        after = alter(table(), {"set_sort_order": ["ts desc", "id"]})
        assert [(f.source_id, f.direction) for f in after.sort_order().fields] == [(5, "desc"), (1, "asc")]
        assert alter(after, {"set_sort_order": []}).default_sort_order_id == 0
        assert evolve(after, [{"set_sort_order": ["ts desc", "id"]}]).updates == ()
        changes = {"set_properties": {"a": "3", "n": 5, "f": True}}, {"remove_properties": ["b", "x"]}
        after = alter(table(a="1", b="2"), *changes)
        assert after.properties == {"a": "3", "n": "5", "f": "true"}
        after = alter(table(), {"set_location": "memory://elsewhere/"})
        assert after.location == "memory://elsewhere"
        assert evolve(after, [{"set_location": "memory://elsewhere"}]).updates == ()

    @pytest.mark.parametrize(("start", "to"), [(1, 2), (1, 3), (2, 3)])
    def test_upgrades(self, start, to):
        after = alter(table(start), {"upgrade_format_version": to})
        assert after.format_version == to
        assert after.next_row_id == (0 if to == 3 else None)
        assert evolve(after, [{"upgrade_format_version": to}]).updates == ()

    def test_never_down_and_not_to_4(self):
        with pytest.raises(InvalidInputError, match="cannot be decreased"):
            alter(table(3), {"upgrade_format_version": 2})
        with pytest.raises(UnsupportedError, match="format version 4"):
            alter(table(3), {"upgrade_format_version": 4})

    @pytest.mark.parametrize(
        "metrics", [each.prefix for each in vars(TableProperties).values() if isinstance(each, ColumnProperty)]
    )
    def test_properties_of_a_column_follow_it(self, metrics):
        metadata = table(**{f"{metrics}point.x": "full", f"{metrics}n": "counts", f"{metrics}id": "none"})
        after = alter(metadata, {"rename_column": {"from": "point", "to": "place"}}, {"drop_column": "n"})
        assert after.properties == {f"{metrics}place.x": "full", f"{metrics}id": "none"}

    def test_a_name_mapping_learns_new_names_and_keeps_the_old_ones(self):
        mapping = [
            {"field-id": 1, "names": ["id"]},
            {"field-id": 2, "names": ["n"]},
            {"field-id": 6, "names": ["point"], "fields": [{"field-id": 9, "names": ["x"]}]},
        ]
        metadata = table(**{"schema.name-mapping.default": json.dumps(mapping)})
        after = alter(metadata, {"rename_column": {"from": "n", "to": "m"}}, add("n", "int"), add("point.z", "int"))
        read = {e["field-id"]: e for e in json.loads(after.properties["schema.name-mapping.default"])}
        assert read[2]["names"] == ["n", "m"]
        assert read[column(after, "n").id]["names"] == [], "files with this name were written for the other column"
        assert [e["names"] for e in read[6]["fields"]] == [["x"], ["z"]]


class TestTheCommit:
    """Everything lands together; what it was made for is required."""

    def test_updates_and_requirements_in_the_words_of_the_rest_protocol(self):
        metadata = table(partition_by=["day(ts)"])
        change = evolve(
            metadata,
            [
                {"set_properties": {"a": "b"}},
                {"add_partition_field": "bucket(4, id)"},
                {"add_column": {"name": "x", "type": "int"}},
                {"set_sort_order": ["id"]},
                {"upgrade_format_version": 3},
            ],
        ).to_dict()
        assert [update["action"] for update in change["updates"]] == [
            *("upgrade-format-version", "add-schema", "set-current-schema", "add-spec", "set-default-spec"),
            *("add-sort-order", "set-default-sort-order", "set-properties"),
        ]
        assert change["requirements"] == [
            {"type": "assert-table-uuid", "uuid": "u"},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata.last_column_id},
            {"type": "assert-current-schema-id", "current-schema-id": 0},
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
            {"type": "assert-default-spec-id", "default-spec-id": 0},
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
        ]

    def test_no_changes_are_no_change(self):
        assert evolve(table(), []).to_dict() == {"requirements": [], "updates": []}


class TestAListThatWasMadeAlready:
    """Making it again changes nothing; what would undo its own work is known by marks: `commit/test_alter.py`."""

    @pytest.mark.parametrize("changes", [
        [{"rename_column": {"from": "n", "to": "m"}}, {"add_column": {"name": "n", "type": "string"}}],
        [{"add_column": {"name": "a", "type": "int"}}, {"change_type": {"name": "a", "type": "long"}}],
        [{"add_column": {"name": "a", "type": "int"}}, {"rename_column": {"from": "a", "to": "b"}}],
        [{"add_partition_field": "id as a"}, {"rename_partition_field": {"from": "a", "to": "b"}}],
        [{"add_column": {"name": "a", "type": "int"}}, {"add_partition_field": "bucket(4, a)"}],
        [{"drop_partition_field": "ts_day"}, {"drop_column": "ts"}],
        [{"rename_column": {"from": "ts", "to": "t"}}, {"set_sort_order": ["t desc"]}],
        [{"move_column": {"name": "n", "first": True}}, {"move_column": {"name": "price", "first": True}}],
        [{"upgrade_format_version": 3}, {"add_column": {"name": "a", "type": "int", "default": 1}}],
    ])  # fmt: skip
    @pytest.mark.parametrize("version", [1, 2])
    def test_is_recognised(self, changes, version):
        once = alter(table(version, partition_by=["day(ts)"]), *changes)
        assert evolve(once, changes).to_dict()["updates"] == []

    def test_but_not_when_it_was_undone_since(self):
        undone = alter(alter(table(), add("a", "int")), {"drop_column": "a"})
        assert "a" in top(alter(undone, add("a", "int")))


class TestWords:
    """A slip in the words is told with its place and what is known."""

    @pytest.mark.parametrize(("changes", "message"), [
        ([{"add_colum": {}}], r"changes\[0\]: unknown change 'add_colum' \(known: add_column, drop_column"),
        ([{"drop_column": "n"}, {"add_column": {"type": "int"}}], r"changes\[1\] \(add_column\): missing 'name'"),
        ([{"add_column": {"name": "a"}}], "missing 'type'"),
        ([{"add_column": {"name": "a", "type": "int", "afer": "b"}}], "unknown word 'afer'"),
        ([{"add_column": {"name": "a", "type": "int", "after": "b", "first": True}}], "one of first, before and"),
        ([{"move_column": {"name": "a"}}], "one of first, before and after, got none"),
        ([{"add_column": "a"}], "expected an object, got str 'a'"), ([{"a": 1, "b": 2}], "one key"),
        (["add_column"], "one key"), ({"add_column": {}}, "expected a list of changes"),
        ([{"set_partitioning": "day(ts)"}], "expected a list of texts"),
        ([{"upgrade_format_version": "three"}], "expected a number"),
        ([{"set_properties": {"format-version": "3"}}], "use upgrade_format_version"),
        ([{"set_properties": {"a": None}}], "expected a text for property 'a'"),
        ([{"drop_column": 5}], "expected a text for 'name'"),
        ([{"make_required": {"name": "n", "allow_incompatible": "yes"}}], "expected true or false"),
        ([{"union_by_name": ["a"]}], "union_by_name"),
    ])  # fmt: skip
    def test_slips(self, changes, message):
        with pytest.raises(InvalidInputError, match=message):
            evolve(table(), changes)

    def test_every_word_is_tested_here(self):
        source = Path(__file__).read_text()
        assert [word for word in CHANGES if f'{{"{word}"' not in source] == []
