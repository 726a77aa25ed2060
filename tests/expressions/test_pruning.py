"""Pruning by partitions, manifests and statistics: nothing that holds a selected row is ever dropped."""

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.json import expression_from_json
from airflow_iceberg.expressions.matching import matches
from airflow_iceberg.expressions.metrics import (
    ColumnRange,
    file_may_match,
    file_must_match,
    may_match,
    must_match,
    summary_range,
)
from airflow_iceberg.expressions.metrics_columns import columns_of, rows_may_match
from airflow_iceberg.expressions.projection import Residuals, project
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values
from airflow_iceberg.format.manifests import entries as m
from airflow_iceberg.format.manifests.avro import read_manifest, write_manifest
from airflow_iceberg.format.manifests.columns import EntryColumns, read_columns, unpack
from airflow_iceberg.format.manifests.summaries import describe_manifest
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms import transform as tr
from airflow_iceberg.format.values.bytes import lower_bound, to_bytes, upper_bound
from airflow_iceberg.plan.scan import plan_files
from tests.support import strategies as given_values
from tests.support.sampling import examples

INT, DOUBLE = t.IntegerType(), t.DoubleType()
ANY_TYPE, ANY_TRANSFORM = given_values.primitive_types(), given_values.transforms()
TIME_TRANSFORMS = (tr.YearTransform, tr.MonthTransform, tr.DayTransform, tr.HourTransform)


def column_of(kind: t.IcebergType, name: str = "c") -> tree.Column:
    return tree.Column(name=name, field_id=1, type=kind, path=(name,))


def schema_of(kind: t.IcebergType) -> Schema:
    return Schema((t.NestedField(id=1, name="c", type=kind),))


def spec_of(transform: tr.Transform) -> PartitionSpec:
    return PartitionSpec(0, (PartitionField(source_id=1, field_id=1000, name="p", transform=transform),))


def selects(expression: tree.Expression, value: Any) -> bool:
    """Evaluate a predicate on the only column, value by value."""
    if isinstance(expression, tree.Predicate):
        return matches(expression, value)
    children = [selects(child, value) for child in getattr(expression, "operands", ())]
    return {"And": all(children), "Or": any(children)}.get(type(expression).__name__, expression == tree.ALWAYS_TRUE)


def is_number(value: Any) -> bool:
    return value is not None and value == value


# --- random predicates and files --------------------------------------------------------------------------------------


@st.composite
def expressions(draw: st.DrawFn, kind: t.IcebergType, values: list[Any]) -> tree.Expression:
    """Predicates whose literals are often values of the rows."""
    known = [value for value in values if is_number(value)]
    fresh = given_values.values(kind).filter(is_number)
    literals = st.one_of(st.sampled_from(known), fresh) if known else fresh
    column = column_of(kind)
    kinds = ["compare", "compare", "in", "null"] + (
        ["prefix"] if isinstance(kind, (t.StringType, t.BinaryType)) else []
    )
    kinds += ["nan"] if isinstance(kind, (t.FloatType, t.DoubleType)) else []
    found: list[tree.Expression] = []
    for _ in range(draw(st.integers(1, 2))):
        match draw(st.sampled_from(kinds)):
            case "compare":
                leaf: tree.Expression = tree.Comparison(draw(st.sampled_from(["=", "<", "<="])), column, draw(literals))
            case "in":
                given_literals = draw(st.lists(literals, min_size=1, max_size=3))
                values = {each + 0.0 if isinstance(each, float) else each for each in given_literals}  # one zero
                leaf = tree.In(column, tuple(sorted(values)))
            case "null":
                leaf = tree.IsNull(column)
            case "nan":
                leaf = tree.IsNan(column)
            case _:
                leaf = tree.StartsWith(column, draw(literals)[: draw(st.integers(1, 4))])
                assume(leaf.prefix)
        found.append(tree.negate(leaf) if draw(st.booleans()) else leaf)
    return draw(st.sampled_from([tree.all_of, tree.any_of]))(*found)


@dataclass(frozen=True)
class Group:
    """The rows of a data file, and the file."""

    rows: list[Any]
    file: m.DataFile


Case = tuple[t.IcebergType, tr.Transform, list[Group], tree.Expression]


@st.composite
def statistics(draw: st.DrawFn, kind: t.IcebergType, rows: list[Any]) -> dict[str, Any]:
    """True statistics, some of them missing, bounds maybe truncated."""
    numbers = [value for value in rows if is_number(value)]
    length = draw(st.sampled_from([None, 1, 3]))
    low, high = (
        (lower_bound(kind, min(numbers), length), upper_bound(kind, max(numbers), length)) if numbers else (None, None)
    )
    nans = sum(value is not None and value != value for value in rows)
    found: dict[str, Any] = {
        "value_counts": len(rows),
        "null_value_counts": sum(value is None for value in rows),
        "nan_value_counts": nans if isinstance(kind, (t.FloatType, t.DoubleType)) else None,
        "lower_bounds": None if low is None else to_bytes(kind, low),
        "upper_bounds": None if high is None else to_bytes(kind, high),
    }
    shown = {name: value for name, value in found.items() if value is not None and draw(st.integers(0, 5))}
    return {name: {1: value} for name, value in shown.items()}


@st.composite
def cases(
    draw: st.DrawFn,
    kinds: st.SearchStrategy[Any] = ANY_TYPE,
    transforms: st.SearchStrategy[tr.Transform] = ANY_TRANSFORM,
) -> Case:
    kind = draw(kinds)
    transform = draw(transforms.filter(lambda found: found.can_transform(kind)))
    values = draw(given_values.columns(kind, max_size=6))
    written_as = (
        t.IntegerType()
        if isinstance(kind, t.LongType)
        and all(value is None or -(2**31) <= value < 2**31 for value in values)
        and draw(st.booleans())
        else kind
    )
    is_old_java = draw(st.booleans())
    by_partition: dict[str, tuple[Any, list[Any]]] = {}
    for value in values:
        partition = transform.apply(value, written_as)
        if is_old_java and isinstance(transform, TIME_TRANSFORMS) and partition is not None and partition < 0:
            partition += 1
        by_partition.setdefault(repr(partition), (partition, []))[1].append(value)
    groups = [
        Group(
            rows,
            m.DataFile(
                file_path=f"file-{position}",
                file_format="parquet",
                partition=(partition,),
                record_count=len(rows),
                file_size_in_bytes=1,
                **draw(statistics(kind, rows)),
            ),
        )
        for position, (partition, rows) in enumerate(by_partition.values())
    ]
    return kind, transform, groups, draw(expressions(kind, values))


def manifest_of(
    entries: list[m.ManifestEntry],
    spec: PartitionSpec,
    schema: Schema,
    content: m.ManifestContent = m.ManifestContent.DATA,
    path: str = "m",
) -> m.ManifestFile:
    return describe_manifest(
        entries, path=path, length=1, spec=spec, schema=schema, content=content, snapshot_id=1, sequence_number=1
    )


class TestNothingIsLost:
    """Compared with brute force: a file with a selected row survives every stage, and its residual selects that row."""

    @pytest.mark.costly
    @examples(500)
    @given(cases())
    def test_partitions_manifests_and_statistics(self, case):
        kind, transform, groups, expression = case
        spec, schema = spec_of(transform), schema_of(kind)
        residuals = Residuals(expression, spec)
        try:
            entries = [m.ManifestEntry(status=m.EntryStatus.ADDED, data_file=group.file) for group in groups]
            summary = manifest_of(entries, spec, schema).partitions[0]  # type: ignore[index]
        except InvalidInputError:
            assume(False)  # a truncated decimal that leaves its precision cannot be stored
        in_manifest = may_match(project(expression, spec), lambda column: summary_range(summary, column.type))
        for group in groups:
            expected = [value for value in group.rows if selects(expression, value)]
            residual = residuals.of(group.file.partition)
            assert residual != tree.ALWAYS_FALSE or residual is tree.ALWAYS_FALSE
            assert all(selects(residual, value) == selects(expression, value) for value in group.rows)
            if expected:
                assert in_manifest
                assert file_may_match(expression, group.file)
            if file_must_match(expression, group.file):
                assert len(expected) == len(group.rows)

    @pytest.mark.costly
    @examples(300)
    @given(cases())
    def test_columns_say_the_same_as_one_file_after_the_other(self, case):
        """Planning from columns drops the same files, leaves the same residuals, and sees the same statistics."""
        kind, transform, groups, expression = case
        assume(kind != t.FixedType(0))  # records of no bytes are read one after the other
        spec, schema = spec_of(transform), schema_of(kind)
        try:
            entries = [
                m.ManifestEntry(status=m.EntryStatus.ADDED, sequence_number=1, data_file=group.file) for group in groups
            ]
            data = write_manifest(entries, schema=schema, spec=spec, format_version=3)
            manifest = replace(manifest_of(entries, spec, schema), manifest_length=len(data))
        except InvalidInputError:
            assume(False)
        metadata = new_table_metadata(
            location="file:///t", schema=schema, spec=spec, table_uuid=str(UUID(int=1)), now_ms=0, format_version=3
        )
        manifest = replace(manifest, partition_spec_id=metadata.default_spec_id)
        keys = tuple(columns_of(expression))
        (part,) = read_columns([unpack(data, manifest)], keys=keys)
        if groups:
            assert isinstance(part, EntryColumns)
            rows = np.arange(len(part))
            assert rows_may_match(expression, part, rows).tolist() == [
                file_may_match(expression, file) for file in part.files(rows)
            ]
        given_filter = {"metadata": metadata, "schema": schema, "row_filter": expression}
        from_objects = plan_files([manifest], lambda one: read_manifest(data, manifest=one), **given_filter)
        from_columns = plan_files(
            [manifest],
            read_columns=lambda found, keys: read_columns((unpack(data, one) for one in found), keys=keys),
            **given_filter,
        )
        planned = [(task.file, task.sequence_number, task.residual) for task in from_columns]
        assert repr(planned).replace("ColumnDataFile", "DataFile") == repr(
            [(task.file, task.sequence_number, task.residual) for task in from_objects]
        )

    @pytest.mark.costly
    @examples(200)
    @given(st.data())
    def test_an_arrow_column_is_filtered_as_its_values_are(self, data: st.DataObject) -> None:
        kind = data.draw(given_values.primitive_types())
        values = data.draw(given_values.columns(kind))
        expression = data.draw(expressions(kind, values))
        assume(expression not in (tree.ALWAYS_TRUE, tree.ALWAYS_FALSE))
        mask = row_mask(expression, lambda _: array_from_values(kind, values))
        assert [bool(selected) for selected in mask.to_pylist()] == [selects(expression, value) for value in values]


class TestProjection:
    """What a predicate says about partition values; what cannot be said prunes nothing."""

    @staticmethod
    def of(text: str, columns: dict[str, Any], *partition_by: str) -> str:
        schema = schema_from_shorthand(columns)
        return str(project(parse_filter(text, schema), spec_from_shorthand(partition_by, schema)))

    @pytest.mark.parametrize(("text", "term", "expected"), [
        ("i < 10", "truncate(10, i)", "i_trunc <= 0"), ("i <= 10", "truncate(10, i)", "i_trunc <= 10"),
        ("i > 9", "truncate(10, i)", "i_trunc >= 10"), ("i = 15", "truncate(10, i)", "i_trunc = 10"),
        ("i != 15", "truncate(10, i)", "true"), ("i is null", "truncate(10, i)", "i_trunc is null"),
        ("i is not null", "bucket(4, i)", "i_bucket is not null"), ("i = 34", "bucket(16, i)", "i_bucket = 3"),
        ("i < 34", "bucket(16, i)", "true"), ("i = 5", "void(i)", "true"), ("i is null", "void(i)", "true"),
        ("i > 5", "i", "i > 5"), ("i not in (1, 2)", "i", "i not in (1, 2)"),
        ("s like 'abcd%'", "truncate(3, s)", "s_trunc = 'abc'"),
        ("s like 'ab%'", "truncate(3, s)", "startswith(s_trunc, 'ab')"),
        ("s not like 'abc%'", "truncate(3, s)", "not startswith(s_trunc, 'abc')"),
        ("s not like 'abcd%'", "truncate(3, s)", "true"), ("s > 'abcd'", "truncate(3, s)", "s_trunc >= 'abc'"),
        ("p < 1.50", "truncate(50, p)", "p_trunc <= Decimal('1.00')"),
        ("ts < '2026-01-02'", "day(ts)", "ts_day <= 20454"), ("ts >= '2026-01-02'", "day(ts)", "ts_day >= 20455"),
        ("ts > '2026-01-01T23:59:59.999999Z'", "day(ts)", "ts_day >= 20455"),
        ("ts = '2026-02-01'", "month(ts)", "ts_month = 673"), ("ts = '2026-02-01'", "year(ts)", "ts_year = 56"),
        ("j = 5", "truncate(10, i)", "true"), ("i = 5 and j = 5", "i", "i = 5"), ("i = 5 or j = 5", "i", "true"),
    ])  # fmt: skip
    def test_by_transform(self, text: str, term: str, expected: str) -> None:
        columns = {"i": "int", "j": "int", "s": "string", "p": "decimal(9,2)", "ts": "timestamptz"}
        # The ranges that the lowest ints wrap round to are tested below.
        assert self.of(text, columns, term).split(" or ")[0] == expected

    def test_all_fields_of_one_column_speak(self) -> None:
        assert self.of("i = 15", {"i": "int"}, "truncate(10, i)", "bucket(4, i)") == "i_trunc = 10 and i_bucket = 0"

    def test_before_1970_a_file_may_lie_one_partition_higher(self) -> None:
        """Java before 0.11 rounded towards zero."""
        columns = {"ts": "timestamptz"}
        assert self.of("ts = '1969-12-31 12:00:00'", columns, "day(ts)") == "ts_day in (-1, 0)"
        assert self.of("ts <= '1969-12-30 12:00:00'", columns, "day(ts)") == "ts_day <= -1"
        assert self.of("ts >= '1969-12-30 12:00:00'", columns, "day(ts)") == "ts_day >= -2"

    def test_the_last_values_wrap_round(self) -> None:
        wrapped = tr.TruncateTransform(10).apply(-(2**31), t.IntegerType())
        assert wrapped > 0
        for text in ("c < 0", "c = -2147483648", "c <= -2147483648"):
            expression = parse_filter(text, schema_of(t.IntegerType()))
            assert Residuals(expression, spec_of(tr.TruncateTransform(10))).of((wrapped,)) != tree.ALWAYS_FALSE
        last = 2**63 - 1
        partition = tr.HourTransform().apply(last, t.TimestampType())
        expression = tree.Comparison(">", column_of(t.TimestampType()), 0)
        assert Residuals(expression, spec_of(tr.HourTransform())).of((partition,)) == expression

    @pytest.mark.parametrize("transform", [tr.UnknownTransform("zorder[3]"), tr.VoidTransform()])
    def test_an_unknown_transform_says_nothing(self, transform: tr.Transform) -> None:
        for text in ("c = 1", "c is null", "c < 1"):
            assert project(parse_filter(text, schema_of(t.IntegerType())), spec_of(transform)) == tree.ALWAYS_TRUE

    def test_a_field_that_cannot_be_projected_says_nothing(self) -> None:
        field = PartitionField(source_id=1, field_id=1000, name="p", transform=tr.BucketTransform(4), source_ids=(1, 2))
        expression = parse_filter("c = 1", schema_of(t.IntegerType()))
        assert project(expression, PartitionSpec(0, (field,))) == tree.ALWAYS_TRUE
        expression = parse_filter("c = 1.0", schema_of(t.DoubleType()))
        assert project(expression, spec_of(tr.BucketTransform(4))) == tree.ALWAYS_TRUE


class TestResiduals:
    """What is left to ask of the rows of a partition."""

    @staticmethod
    def of(text: str, term: str, value: Any) -> str:
        schema = schema_from_shorthand({"i": "int", "s": "string", "ts": "timestamptz"})
        return str(Residuals(parse_filter(text, schema), spec_from_shorthand([term], schema)).of((value,)))

    def test_an_identity_partition_answers_for_all_its_rows(self) -> None:
        assert self.of("i = 1", "i", 1) == "true"
        assert self.of("i = 1", "i", 2) == "false"
        assert self.of("i = 1 and s = 'a'", "i", 1) == "s = 'a'"
        assert self.of("i = 1 or s = 'a'", "i", 2) == "s = 'a'"

    @pytest.mark.parametrize("text", ["i < 5", "i != 5", "i not in (5, 6)", "i >= 5", "not (i = 5)"])
    def test_a_null_partition_is_selected_by_no_comparison(self, text: str) -> None:
        assert self.of(text, "i", None) == "false"
        assert self.of(text, "bucket(4, i)", None) in ("false", text.replace("not (i = 5)", "i != 5"))

    def test_what_a_partition_value_answers_needs_no_reading(self) -> None:
        bucket = tr.BucketTransform(16).apply(5, t.IntegerType())
        assert self.of("i != 5", "bucket(16, i)", (bucket + 1) % 16) == "true"
        assert self.of("i != 5", "bucket(16, i)", bucket) == "i != 5"
        assert self.of("i != 5", "bucket(16, i)", None) == "i != 5"
        assert self.of("ts >= '2026-01-01'", "day(ts)", 20454) == "true"
        assert self.of("ts >= '2026-01-01T12:00:00Z'", "day(ts)", 20454).startswith("ts >= ")
        assert self.of("ts >= '2026-01-01'", "day(ts)", 20453) == "false"
        assert self.of("s like 'ab%'", "truncate(3, s)", "abc") == "true"
        assert self.of("s like 'abcd%'", "truncate(3, s)", "abc") == "startswith(s, 'abcd')"


def file_with(**statistics: Any) -> m.DataFile:
    given = {name: {1: value} for name, value in statistics.items() if name != "record_count"}
    records = statistics.get("record_count", 10)
    return m.DataFile(file_path="f", file_format="parquet", record_count=records, file_size_in_bytes=1, **given)


def may(text: str | tree.Expression, kind: t.IcebergType, **statistics: Any) -> bool:
    return file_may_match(parse_filter(text, schema_of(kind)), file_with(**statistics))


def i32(value: int) -> bytes:
    return to_bytes(INT, value)


def bounds(kind: t.IcebergType, low: Any, high: Any, **more: int) -> dict[str, Any]:
    return {"lower_bounds": to_bytes(kind, low), "upper_bounds": to_bytes(kind, high), **more}


class TestStatistics:
    """Statistics are true statements about the values of a file; those that are missing say nothing."""

    @pytest.mark.parametrize(("kind", "statistics", "possible", "impossible"), [
        pytest.param(
            INT, {}, ["c = 1", "c != 1", "c is null", "c is not null", "c in (1, 2)", "c > 1"], [], id="none"
        ),
        pytest.param(INT, {"record_count": 0}, [], ["c = 1"], id="no rows"),
        pytest.param(
            INT,
            bounds(INT, 10, 20),
            ["c <= 10", "c < 11", "c >= 20", "c > 19", "c = 10", "c = 20", "c in (1, 15)", "c != 10"],
            ["c < 10", "c <= 9", "c > 20", "c >= 21", "c = 9", "c = 21", "c in (1, 9, 21)"],
            id="bounds",
        ),
        pytest.param(
            INT, bounds(INT, 10, 10), ["c not in (9, 11)"], ["c != 10", "c not in (9, 10)"], id="one value alone"
        ),
        pytest.param(t.LongType(), bounds(INT, 10, 20), ["c > 19"], ["c > 20"], id="a promoted column"),
        pytest.param(
            t.StringType(),
            {"lower_bounds": b"abc", "upper_bounds": b"abd"},
            ["c = 'abcde'", "c > 'abcz'", "c like 'abcx%'", "c not like 'abc%'"],
            ["c > 'abd'", "c like 'abe%'", "c like 'abb%'", "c not like 'ab%'", "c like 'x%y'"],
            id="truncated bounds",
        ),
        pytest.param(
            INT,
            {"value_counts": 10, "null_value_counts": 10},
            ["c is null"],
            ["c is not null", "c = 1", "c != 1", "c not in (1, 2)"],
            id="all null",
        ),
        pytest.param(INT, {"value_counts": 10, "null_value_counts": 0}, [], ["c is null"], id="no null"),
        pytest.param(
            INT, {"value_counts": 0, "null_value_counts": 0}, ["c = 1"], [], id="zero values prove nothing"
        ),
        pytest.param(DOUBLE, bounds(DOUBLE, 1.0, 2.0), ["c > 5"], ["c = 5"], id="NaN is above the upper bound"),
        pytest.param(DOUBLE, bounds(DOUBLE, 1.0, 2.0, nan_value_counts=1), ["c > 5"], [], id="a NaN"),
        pytest.param(DOUBLE, bounds(DOUBLE, 1.0, 2.0, nan_value_counts=0), [], ["c > 5", "isnan(c)"], id="no NaN"),
        pytest.param(
            DOUBLE,
            {"value_counts": 10, "null_value_counts": 2, "nan_value_counts": 8},
            ["c > 5"],
            ["c < 5 or c = 5"],
            id="only NaN",
        ),
        pytest.param(DOUBLE, bounds(DOUBLE, 1.0, math.nan, nan_value_counts=0), ["c < 0"], [], id="a bound is NaN"),
        pytest.param(
            DOUBLE, bounds(DOUBLE, -0.0, -0.0, nan_value_counts=0), ["c = 0", "c >= 0"], ["c < 0"], id="both zeros"
        ),
    ])  # fmt: skip
    def test_what_may_match(self, kind, statistics, possible, impossible):
        assert [text for text in possible if not may(text, kind, **statistics)] == []
        assert [text for text in impossible if may(text, kind, **statistics)] == []

    def test_bounds_of_uuids_and_those_that_cannot_be_read_say_nothing(self) -> None:
        low, high = UUID(int=1 << 127), UUID(int=1)
        assert may(f"c = '{UUID(int=5)}'", t.UUIDType(), lower_bounds=low.bytes, upper_bounds=high.bytes)
        assert may("c > 5", t.IntegerType(), lower_bounds=b"\x01", upper_bounds=b"\x01\x02")
        assert may("c > 'z'", t.StringType(), upper_bounds=b"\xff\xff")

    def test_a_field_of_a_struct_is_null_where_the_struct_is(self) -> None:
        """ORC counts only the values below structs that are not null."""
        schema = schema_from_shorthand({"st": "struct<a: int>"})
        expression = parse_filter("st.a is null", schema)
        field_id = schema.find_field("st.a").id
        counted = m.DataFile(
            file_path="f",
            file_format="orc",
            record_count=10,
            file_size_in_bytes=1,
            value_counts={field_id: 7},
            null_value_counts={field_id: 0},
        )
        assert file_may_match(expression, counted)
        assert not file_may_match(expression, replace(counted, value_counts={field_id: 10}))

    def test_all_rows_match_only_if_none_can_be_null_or_fail(self) -> None:
        known = bounds(INT, 10, 20)

        def must(text: str, **statistics: Any) -> bool:
            return file_must_match(parse_filter(text, schema_of(t.IntegerType())), file_with(**statistics))

        assert must("c >= 10", null_value_counts=0, **known)
        assert not must("c >= 10", **known)
        assert not must("c > 10", null_value_counts=0, **known)
        assert must("c is not null", null_value_counts=0)
        assert must("c is null", value_counts=10, null_value_counts=10)
        assert must("c >= 10 and c <= 20", null_value_counts=0, **known)
        assert must("c < 5 or c != 30", null_value_counts=0, **known)

    def test_a_constant_needs_no_statistics(self) -> None:
        assert must_match(tree.ALWAYS_TRUE, lambda _: ColumnRange())
        assert not may_match(tree.ALWAYS_FALSE, lambda _: ColumnRange())


ONE_AND_TWO = (to_bytes(DOUBLE, 1.0), to_bytes(DOUBLE, 2.0))


def summary(null: bool, nan: bool | None = None, low: bytes | None = None, high: bytes | None = None) -> m.FieldSummary:
    return m.FieldSummary(contains_null=null, contains_nan=nan, lower_bound=low, upper_bound=high)


class TestManifestSummaries:
    """A summary covers the partition values of all files of a manifest."""

    @staticmethod
    def may(text: str, kind: t.IcebergType, summary: m.FieldSummary) -> bool:
        expression = project(parse_filter(text, schema_of(kind)), spec_of(tr.IdentityTransform()))
        return may_match(expression, lambda column: summary_range(summary, column.type))

    @pytest.mark.parametrize(("kind", "described", "possible", "impossible"), [
        (INT, summary(False, None, i32(1), i32(5)), ["c = 3"], ["c is null", "c = 9"]),
        (INT, summary(True), ["c is null"], ["c = 1"]), (INT, summary(False), ["c = 1"], []),
        (DOUBLE, summary(False, None, *ONE_AND_TWO), ["c > 5"], []),
        (DOUBLE, summary(False, False, *ONE_AND_TWO), [], ["c > 5"]),
        (t.BinaryType(), summary(False, None, b"\0\xff", b"abd\xff"), ["c = X'FFFF00'"], ["c is null"]),
    ], ids=["bounds", "all null", "no bounds and no null: unknown", "NaN unknown", "no NaN", "Java"])  # fmt: skip
    def test_what_may_match(self, kind, described, possible, impossible):
        assert [text for text in possible if not self.may(text, kind, described)] == []
        assert [text for text in impossible if self.may(text, kind, described)] == []


# --- planning ---------------------------------------------------------------------------------------------------------

SCHEMA = schema_from_shorthand({"id": "long", "cat": "string"})


def metadata_with(*partition_by: str) -> TableMetadata:
    spec = spec_from_shorthand(partition_by, SCHEMA)
    return new_table_metadata(location="memory://t", schema=SCHEMA, spec=spec, table_uuid=str(UUID(int=1)), now_ms=1)


class Table:
    """Manifests in memory that remember which were opened."""

    def __init__(self, *partition_by: str) -> None:
        self.metadata = metadata_with(*partition_by)
        self.manifests: list[m.ManifestFile] = []
        self.entries: dict[str, list[m.ManifestEntry]] = {}
        self.opened: list[str] = []

    def add(self, *partitions: tuple[Any, ...], content: m.FileContent = m.FileContent.DATA, **changes: Any) -> None:
        name = f"m{len(self.manifests)}"
        entries = [
            m.ManifestEntry(
                status=changes.get("status", m.EntryStatus.ADDED),
                data_file=m.DataFile(
                    file_path=f"{name}-{position}", file_format="parquet", partition=partition, content=content,
                    record_count=changes.get("records", 1), file_size_in_bytes=1,
                    equality_ids=(1,) if content is m.FileContent.EQUALITY_DELETES else None,
                ),
            )
            for position, partition in enumerate(partitions)
        ]  # fmt: skip
        kind = m.ManifestContent.DATA if content is m.FileContent.DATA else m.ManifestContent.DELETES
        described = manifest_of(entries, self.metadata.spec(), self.metadata.schema(), kind, path=name)
        self.entries[name] = entries
        self.manifests.append(replace(described, **changes.get("manifest", {})))

    def number(self) -> None:
        """Give all entries the sequence number of their manifest."""
        for manifest in self.manifests:
            entries = self.entries[manifest.manifest_path]
            numbered = [replace(entry, sequence_number=manifest.sequence_number) for entry in entries]
            self.entries[manifest.manifest_path] = numbered

    def plan(self, text: str | tree.Expression | None = None) -> list[str]:
        return [task.file.file_path for task in self.tasks(text)]

    def tasks(self, text: str | tree.Expression | None = None) -> list[Any]:
        self.opened.clear()

        def read(manifest: m.ManifestFile) -> list[m.ManifestEntry]:
            self.opened.append(manifest.manifest_path)
            return self.entries[manifest.manifest_path]

        schema = self.metadata.schema()
        return list(plan_files(self.manifests, read, metadata=self.metadata, schema=schema, row_filter=text))


NEVER = {
    "itself": tree.ALWAYS_FALSE,
    "another": tree.AlwaysFalse(),
    "pickled": pickle.loads(pickle.dumps(tree.ALWAYS_FALSE)),
    "copied": copy.deepcopy(tree.ALWAYS_FALSE),
    "from JSON": expression_from_json({"is": "false"}, SCHEMA),
    "null": tree.AlwaysNull(),
    "not true": tree.Not(copy.deepcopy(tree.ALWAYS_TRUE)),
    "comparison with null": tree.Comparison("=", "id", None),
    "empty": tree.In("cat", ()),
    "out of range": tree.Comparison(">", "id", 2**63),
}
AROUND_IT: tuple[Callable[[tree.Expression], tree.Expression], ...] = (
    lambda never: never,
    lambda never: tree.And(tree.IsNull("id"), never),
    lambda never: tree.Or(never, tree.And(never), tree.Or()),
    lambda never: tree.Not(tree.Not(never)),
    lambda never: tree.Not(tree.Or(tree.Not(never), tree.IsNull("id"))),
    lambda never: tree.any_of(tree.all_of(never), never),
)


@pytest.mark.parametrize("never", NEVER.values(), ids=NEVER)
class TestNothingIsSelected:
    """Whatever selects no row is the one `ALWAYS_FALSE` once it is bound: planning asks for that very object."""

    def test_binding_and_residuals_give_that_object(self, never: tree.Expression) -> None:
        bound = [parse_filter(around(never), SCHEMA) for around in AROUND_IT]
        spec = metadata_with("cat").spec()
        residuals = [Residuals(copy.deepcopy(each), spec).of(("a",)) for each in bound]
        again = [tree.negate(tree.negate(copy.deepcopy(each))) for each in bound]
        assert {id(each) for each in (*bound, *residuals, *again)} == {id(tree.ALWAYS_FALSE)}

    def test_so_does_a_partition_of_a_filter_that_was_pickled(self, never: tree.Expression) -> None:
        table = Table("cat")
        table.add(("a",), ("b",))
        for around in AROUND_IT:
            expression = tree.Or(around(never), tree.Comparison("=", "cat", "a"))
            bound = pickle.loads(pickle.dumps(parse_filter(expression, SCHEMA)))
            assert Residuals(bound, table.metadata.spec()).of(("b",)) is tree.ALWAYS_FALSE
            assert table.plan(bound) == table.plan(expression) == ["m0-0"]


class TestPlanning:
    """From manifests to files in one pass."""

    def test_without_a_filter_all_live_files_are_planned_in_order(self) -> None:
        table = Table("cat")
        table.add(("b",), ("a",))
        table.add(("a",), status=m.EntryStatus.DELETED)
        table.add((None,), status=m.EntryStatus.EXISTING)
        assert table.plan() == ["m0-0", "m0-1", "m2-0"]
        assert [str(task.residual) for task in table.tasks()] == ["true"] * 3

    def test_manifests_that_cannot_match_are_not_opened(self) -> None:
        table = Table("cat")
        table.add(("a",), ("b",))
        table.add(("c",), ("d",))
        assert table.plan("cat = 'a'") == ["m0-0"]
        assert table.opened == ["m0"]
        assert table.plan("cat = 'x'") == []
        assert table.opened == []

    def test_a_filter_that_nothing_can_satisfy_opens_nothing(self) -> None:
        table = Table()
        table.add(())
        assert table.plan("id = 1 and id = 1.5") == []
        assert table.opened == []

    def test_what_the_partition_says_is_not_asked_again(self) -> None:
        table = Table("cat")
        table.add(("a",), ("b",))
        assert [str(task.residual) for task in table.tasks("cat = 'a' and id > 1")] == ["id > 1"]

    def test_manifests_of_v1_without_counts_and_summaries_are_opened(self) -> None:
        table = Table("cat")
        unknown = {"added_files_count": None, "existing_files_count": None, "partitions": None}
        table.add(("a",), ("b",), manifest=unknown)
        assert table.plan("cat = 'b'") == ["m0-1"]

    def test_a_manifest_without_live_files_is_not_opened(self) -> None:
        table = Table()
        table.add((), manifest={"added_files_count": 0, "existing_files_count": 0})
        assert table.plan() == []
        assert table.opened == []

    def test_a_partition_that_does_not_fit_its_spec_is_an_error_of_the_file(self) -> None:
        table = Table("cat")
        table.add(("a",))
        bad = [replace(entry, data_file=replace(entry.data_file, partition=())) for entry in table.entries["m0"]]
        table.entries["m0"] = bad
        with pytest.raises(
            FormatError, match="expected a partition of 1 values in spec 0, got 0, for data file 'm0-0'"
        ):
            table.plan("cat = 'a'")


class TestDeleteFiles:
    """Each task carries the delete files that apply; those of partitions that are not read stay closed."""

    def test_tasks_carry_their_deletes(self) -> None:
        table = Table("cat")
        table.add(("a",), ("b",), manifest={"sequence_number": 1})
        table.add(("a",), content=m.FileContent.EQUALITY_DELETES, manifest={"sequence_number": 2})
        table.number()
        assert [[delete.file_path for delete in task.delete_files] for task in table.tasks()] == [["m1-0"], []]
        assert [task.sequence_number for task in table.tasks()] == [1, 1]

    def test_deletes_of_another_partition_cannot_reach_a_selected_row(self) -> None:
        table = Table("cat")
        table.add(("a",), ("b",))
        table.add(("b",), content=m.FileContent.POSITION_DELETES)
        assert table.plan("cat = 'a'") == ["m0-0"]
        assert table.opened == ["m0"]
        assert [len(task.delete_files) for task in table.tasks("cat = 'b'")] == [1]

    def test_deletes_that_are_gone_are_no_hindrance(self) -> None:
        table = Table()
        table.add(())
        unknown = {"added_files_count": None}
        table.add((), content=m.FileContent.POSITION_DELETES, status=m.EntryStatus.DELETED, manifest=unknown)
        assert table.plan() == ["m0-0"]
