"""Sort orders: JSON, legality, shorthand."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import UNSORTED, SortField, SortOrder, sort_order_from_shorthand
from airflow_iceberg.format.transforms.transform import BucketTransform, IdentityTransform, UnknownTransform

SCHEMA = schema_from_shorthand({"id": "long", "ts": "timestamp", "tags": "list<string>", "x desc": "int"})


class TestJson:
    """An order is an object with an id and its fields, in Java's order."""

    JSON: ClassVar[Mapping[str, Any]] = {
        "order-id": 3,
        "fields": [
            {"transform": "identity", "source-id": 2, "direction": "asc", "null-order": "nulls-first"},
            {"transform": "bucket[4]", "source-id": 1, "direction": "desc", "null-order": "nulls-last"},
        ],
    }

    def test_it_is_written_as_it_was_read(self):
        order = SortOrder.from_dict(self.JSON)
        assert order.to_dict() == self.JSON
        assert [list(item) for item in order.to_dict()["fields"]] == [list(item) for item in self.JSON["fields"]]
        assert order.fields[1] == SortField(
            source_id=1, transform=BucketTransform(4), direction="desc", null_order="nulls-last"
        )

    def test_several_sources_and_unknown_transforms_are_kept(self):
        field = {"transform": "zorder", "source-ids": [1, 2], "direction": "asc", "null-order": "nulls-first"}
        order = SortOrder.from_dict({"order-id": 1, "fields": [field]})
        assert order.fields[0].source_ids == (1, 2)
        assert order.fields[0].transform == UnknownTransform("zorder")
        assert order.to_dict()["fields"] == [field]

    @pytest.mark.parametrize(("key", "value"), [("direction", "up"), ("null-order", "first")])
    def test_an_unknown_word_is_a_format_error(self, key, value):
        field = {**self.JSON["fields"][0], key: value}
        with pytest.raises(FormatError, match=f"unknown .* '{value}' .* in 'sort-orders\\[0\\]' of f.json"):
            SortOrder.from_dict({"order-id": 1, "fields": [field]}, path="f.json", where="sort-orders[0]")


class TestLegality:
    """Order 0 is the unsorted one, and only that."""

    def test_order_0_has_no_fields_others_have_some_and_ids_make_no_difference(self):
        assert UNSORTED.to_dict() == {"order-id": 0, "fields": []}
        with pytest.raises(InvalidInputError, match="sort order 0 is the unsorted one"):
            SortOrder(0, (SortField(source_id=1, transform=IdentityTransform()),))
        with pytest.raises(InvalidInputError, match="sort order 1 has no fields; the unsorted order has the id 0"):
            SortOrder(1)
        one = sort_order_from_shorthand(["id"], SCHEMA)
        assert one.same_fields(sort_order_from_shorthand(["id"], SCHEMA, order_id=7))
        assert not one.same_fields(sort_order_from_shorthand(["id desc"], SCHEMA))


class TestShorthand:
    """Orders as people write them."""

    @pytest.mark.parametrize(("term", "expected"), [
        ("ts", (2, "identity", "asc", "nulls-first")), ("ts asc", (2, "identity", "asc", "nulls-first")),
        ("ts DESC", (2, "identity", "desc", "nulls-last")),
        ("ts desc nulls first", (2, "identity", "desc", "nulls-first")),
        ("ts nulls last", (2, "identity", "asc", "nulls-last")),
        ("bucket(4, id) asc nulls last", (1, "bucket[4]", "asc", "nulls-last")),
        ("day(ts) desc nulls-last", (2, "day", "desc", "nulls-last")),
        ("x desc", (4, "identity", "asc", "nulls-first")), ("`x desc` desc", (4, "identity", "desc", "nulls-last")),
    ])  # fmt: skip
    def test_nulls_are_at_the_low_end_unless_it_is_said(self, term, expected):
        (field,) = sort_order_from_shorthand([term], SCHEMA).fields
        assert (field.source_id, str(field.transform), field.direction, field.null_order) == expected

    def test_the_first_order_has_the_id_1_and_no_terms_are_the_unsorted_order(self):
        assert sort_order_from_shorthand(["id"], SCHEMA).order_id == 1
        assert sort_order_from_shorthand([], SCHEMA) is UNSORTED

    def test_an_unknown_column_lists_the_columns(self):
        with pytest.raises(NotFoundError, match=r"no column 'nope' \(columns: id, ts"):
            sort_order_from_shorthand(["nope desc"], SCHEMA)

    @pytest.mark.parametrize(("terms", "message"), [
        (["tags"], r"cannot sort by identity of column 'tags' \(list<string>\)"),
        (["hour(id)"], r"cannot sort by hour of column 'id' \(long\)"), ([" "], "expected a sort term like 'ts desc'"),
        ("id", "expected a list of sort terms, got the text 'id'"),
    ])  # fmt: skip
    def test_what_cannot_be_sorted_by_is_refused(self, terms, message):
        with pytest.raises(InvalidInputError, match=message):
            sort_order_from_shorthand(terms, SCHEMA)
