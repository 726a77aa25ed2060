"""Reading Parquet files: columns by field id, whatever happened to the schema since the file was written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values, values_from_array
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support import strategies as given_values
from tests.support.data_files import read_file
from tests.support.sampling import examples

INT, LONG, STRING = t.IntegerType(), t.LongType(), t.StringType()
DAY = datetime(2020, 1, 1, tzinfo=UTC)
LOCAL_DAY = DAY.replace(tzinfo=None)


def field(field_id: int, name: str, kind: t.IcebergType, **more: Any) -> t.NestedField:
    return t.NestedField(id=field_id, name=name, type=kind, **more)


def struct(*fields: t.NestedField) -> t.StructType:
    return t.StructType(fields=fields)


def schema(*fields: t.NestedField) -> Schema:
    return Schema(fields)


class Files:
    """Parquet files in a folder, and reading them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.io = FsspecFileIO()
        self.count = 0

    def write(self, table: pa.Table, *ids: int, **options: Any) -> DataFile:
        """Write a table, whose columns have field ids where some are given."""
        if ids:
            pairs = zip(table.schema, ids, strict=True)
            fields = [column.with_metadata({"PARQUET:field_id": str(number)}) for column, number in pairs]
            table = pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
        self.count += 1
        path = self.folder / f"file {self.count}.parquet"
        pq.write_table(table, path, **options)
        return DataFile(
            file_path=str(path),
            file_format="parquet",
            record_count=table.num_rows,
            file_size_in_bytes=path.stat().st_size,
        )

    def of(self, written: Schema, rows: Sequence[Mapping[str, Any]], **options: Any) -> DataFile:
        """Write rows as Iceberg does: with field ids at every depth."""
        return self.write(pa.Table.from_pylist(list(rows), schema=schema_to_arrow(written)), **options)

    def read(self, file: DataFile, wanted: Schema, where: str | None = None, **options: Any) -> list[dict[str, Any]]:
        row_filter = parse_filter(where, options.get("table_schema", wanted))
        batches = list(read_file(self.io, file, schema=wanted, row_filter=row_filter, **options))
        for batch in batches:
            batch.validate(full=True)
            assert batch.schema.equals(schema_to_arrow(wanted, with_field_ids=False), check_metadata=True)
        return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


class TestColumnsById:
    """A column is its field id; names and order are of no account."""

    def test_a_name_that_was_dropped_and_added_again_is_another_column(self, files):
        file = files.of(schema(field(1, "a", INT)), [{"a": 1}])
        assert files.read(file, schema(field(2, "a", INT))) == [{"a": None}]

    def test_names_with_dots_do_not_mix_with_paths(self, files):
        written = schema_from_shorthand({"x.y": "int", "x": "struct<z: int>", "a": "struct<b: int>"})
        file = files.of(written, [{"x.y": 1, "x": {"z": 2}, "a": {"b": 3}}])
        wanted = Schema((written.fields[2], written.fields[0]))
        assert files.read(file, wanted) == [{"a": {"b": 3}, "x.y": 1}]

    def test_two_columns_with_one_id_are_an_error(self, files):
        file = files.write(pa.table({"a": [1], "b": [2]}), 1, 1)
        with pytest.raises(FormatError, match="columns 'a' and 'b' have the same field id 1"):
            files.read(file, schema(field(1, "a", INT)))


class TestNestedColumns:
    """The same holds at every depth, and null is never confused with empty."""

    @pytest.mark.parametrize(("old", "new", "value", "expected"), [
        (
            (field(2, "x", INT), field(3, "y", INT), field(4, "gone", INT)),
            (field(5, "added", STRING), field(3, "why", LONG), field(2, "x", INT)),
            {"x": 1, "y": 2, "gone": 3},
            {"added": None, "why": 2, "x": 1},
        ),
        ((field(2, "x", INT),), (field(3, "y", INT),), {"x": 1}, {"y": None}),
        (
            (field(2, "x", INT),),
            (field(2, "x", INT), field(3, "y", INT, initial_default=7)),
            {"x": 1},
            {"x": 1, "y": 7},
        ),
    ], ids=["added, dropped, renamed and moved", "no field in common, and null all the same", "a default"])  # fmt: skip
    def test_fields_of_structs(self, files, old, new, value, expected):
        file = files.of(schema(field(1, "st", struct(*old))), [{"st": value}, {"st": None}])
        assert files.read(file, schema(field(1, "st", struct(*new)))) == [{"st": expected}, {"st": None}]

    def test_null_lists_and_maps_are_not_empty_ones(self, files):
        def of(element: t.IcebergType) -> Schema:
            name = str(element)
            return schema_from_shorthand({"xs": f"list<struct<p: {name}>>", "m": f"map<string, struct<q: {name}>>"})

        rows = [
            {"xs": None, "m": None},
            {"xs": [], "m": []},
            {"xs": [None, {"p": 1}], "m": [("a", None), ("b", {"q": 1})]},
            {"xs": None, "m": []},
        ]
        file = files.of(of(INT), rows)
        assert (
            files.read(file, of(INT)) == files.read(file, of(LONG)) == files.read(file, of(LONG), batch_size=1) == rows
        )

    def test_evolution_inside_lists_and_maps(self, files):
        def of(*inner: t.NestedField) -> Schema:
            return schema(
                field(1, "xs", t.ListType(element_id=2, element=t.ListType(element_id=3, element=struct(*inner)))),
                field(10, "m", t.MapType(key_id=11, key=INT, value_id=12, value=struct(field(13, "v", INT)))),
            )

        file = files.of(of(field(4, "a", INT)), [{"xs": [[{"a": 1}], None, []], "m": [(1, {"v": 2})]}])
        expected = [{"xs": [[{"b": None, "z": 1}], None, []], "m": [(1, {"v": 2})]}]
        assert files.read(file, of(field(5, "b", STRING), field(4, "z", LONG))) == expected

    def test_map_keys_that_are_structs_are_read_whole(self, files):
        wanted, rows = schema_from_shorthand({"m": "map<struct<k: int>, string>"}), [{"m": [({"k": 1}, "a")]}]
        assert files.read(files.of(wanted, rows), wanted) == rows

    @pytest.mark.costly
    @examples(60)
    @given(st.data())
    def test_any_schema_reads_what_was_written(self, tmp_path_factory, data):
        written = data.draw(given_values.schemas())
        # Arrow cannot write fixed[0] to Parquet.
        assume(t.FixedType(0) not in [found.type for found in written.fields_by_id.values()])
        rows = [row for row in data.draw(given_values.columns(written.as_struct(), max_size=5)) if row is not None]
        columns = array_from_values(written.as_struct(), rows).flatten()
        files = Files(tmp_path_factory.mktemp("any"))
        file = files.write(pa.Table.from_arrays(columns, schema=schema_to_arrow(written)), row_group_size=2)
        arrow_schema = schema_to_arrow(written, with_field_ids=False)
        found = pa.Table.from_batches(read_file(files.io, file, schema=written, batch_size=1), schema=arrow_schema)
        struct = found.to_struct_array().combine_chunks() if rows else []
        values = [] if not rows else values_from_array(written.as_struct(), pa.concat_arrays([struct]))
        assert repr(values) == repr(rows)


class TestPromotion:
    """A file keeps the type that it was written with; the column may have grown since."""

    @pytest.mark.parametrize(("old", "new", "value", "expected"), [
        (INT, LONG, -5, -5),
        (t.FloatType(), t.DoubleType(), 0.5, 0.5),
        (t.DecimalType(9, 2), t.DecimalType(20, 2), Decimal("1.50"), Decimal("1.50")),
        (t.DateType(), t.TimestampType(), date(1969, 12, 31), datetime(1969, 12, 31)),  # noqa: DTZ001
        (t.DateType(), t.TimestampNsType(), date(1970, 1, 2), datetime(1970, 1, 2)),  # noqa: DTZ001
        (t.UnknownType(), INT, None, None),
    ])  # fmt: skip
    def test_by_type(self, files, old, new, value, expected):
        file = files.of(schema(field(1, "c", old)), [{"c": value}, {"c": None}])
        assert files.read(file, schema(field(1, "c", new))) == [{"c": expected}, {"c": None}]

    @pytest.mark.parametrize(("arrow", "kind", "value", "expected"), [
        (pa.int8(), INT, 5, 5),
        (pa.uint16(), INT, 65535, 65535),
        (pa.large_string(), STRING, "ü", "ü"),
        (pa.dictionary(pa.int32(), pa.string()), STRING, "ü", "ü"),
        (pa.binary(), STRING, "ü".encode(), "ü"),
        (pa.large_binary(), t.BinaryType(), b"\xff", b"\xff"),
        (pa.timestamp("ms"), t.TimestampType(), LOCAL_DAY, LOCAL_DAY),
        (pa.timestamp("us"), t.TimestamptzType(), LOCAL_DAY, DAY),
        (pa.timestamp("us", "Asia/Tokyo"), t.TimestamptzType(), DAY, DAY),
        (pa.time32("ms"), t.TimeType(), 1, time(0, 0, 0, 1000)),
        (pa.decimal128(5, 2), t.DecimalType(9, 2), Decimal("1.00"), Decimal("1.00")),
        (pa.binary(16), t.UUIDType(), bytes(16), bytes(16)),
        (pa.binary(2), t.FixedType(2), b"ab", b"ab"),
    ])  # fmt: skip
    def test_other_spellings_of_a_type(self, files, arrow, kind, value, expected):
        file = files.write(pa.table({"c": pa.array([value, None], arrow)}), 1)
        assert files.read(file, schema(field(1, "c", kind))) == [{"c": expected}, {"c": None}]

    def test_int96_timestamps_of_old_writers(self, files):
        moment = datetime(2020, 1, 1, 1, 2, 3, 4)  # noqa: DTZ001
        table = pa.table({"c": pa.array([moment, None], pa.timestamp("ns"))})
        file = files.write(table, 1, use_deprecated_int96_timestamps=True)
        assert files.read(file, schema(field(1, "c", t.TimestampType()))) == [{"c": moment}, {"c": None}]
        expected = [{"c": moment.replace(tzinfo=UTC)}, {"c": None}]
        assert files.read(file, schema(field(1, "c", t.TimestamptzType()))) == expected
        assert files.read(file, schema(field(1, "c", t.TimestampType())), "c >= '2020-01-01'") == [{"c": moment}]

    @pytest.mark.parametrize(("old", "new"), [
        (LONG, INT),
        (STRING, INT),
        (t.DecimalType(9, 3), t.DecimalType(9, 2)),
        (t.DoubleType(), t.FloatType()),
        (INT, STRING),
    ])  # fmt: skip
    def test_what_is_no_promotion_is_an_error_that_names_column_and_file(self, files, old, new):
        file = files.of(schema(field(1, "c", old)), [{"c": None}])
        with pytest.raises(FormatError, match=rf"\(expected .*\) of column 'c' of {file.file_path}"):
            files.read(file, schema(field(1, "c", new)))

    def test_a_value_that_does_not_fit_is_an_error(self, files):
        file = files.write(pa.table({"c": pa.array([2**32 - 1], pa.uint32())}), 1)
        with pytest.raises(FormatError, match="column 'c' of type uint32 has a value that does not fit int"):
            files.read(file, schema(field(1, "c", INT)))


class TestMissingColumns:
    """A column that the file does not have: identity partition value, name mapping, initial default, null."""

    OLD = schema(field(1, "a", INT))

    def test_null_without_a_default(self, files):
        file = files.of(self.OLD, [{"a": 1}])
        wanted = schema(field(2, "b", t.ListType(element_id=3, element=INT)), field(1, "a", INT))
        assert files.read(file, wanted) == [{"b": None, "a": 1}]

    def test_the_initial_default(self, files):
        file = files.of(self.OLD, [{"a": 1}, {"a": 2}])
        wanted = schema(
            field(2, "b", STRING, initial_default="x", write_default="y"),
            field(3, "d", t.DateType(), initial_default="2020-01-01"),
        )
        assert files.read(file, wanted) == [{"b": "x", "d": date(2020, 1, 1)}] * 2

    def test_a_value_of_the_file_beats_the_default_even_if_it_is_null(self, files):
        file = files.of(self.OLD, [{"a": None}])
        assert files.read(file, schema(field(1, "a", INT, initial_default=7))) == [{"a": None}]

    def test_an_empty_struct_as_default_has_the_defaults_of_its_fields(self, files):
        file = files.of(self.OLD, [{"a": 1}])
        added = field(5, "new", struct(field(6, "p", INT, initial_default=3), field(7, "q", INT)), initial_default={})
        assert files.read(file, schema(added)) == [{"new": {"p": 3, "q": None}}]

    def test_the_identity_partition_value(self, files):
        file = files.of(self.OLD, [{"a": 1}])
        partitioned = replace(file, partition=("here", 2))
        wanted = schema(field(2, "p", STRING, initial_default="elsewhere"), field(3, "q", INT))
        spec = spec_from_shorthand(["p", "bucket(4, q)"], wanted)
        assert files.read(partitioned, wanted, spec=spec) == [{"p": "here", "q": None}]
        assert files.read(partitioned, wanted, "p = 'here'", spec=spec) == [{"p": "here", "q": None}]
        assert files.read(partitioned, wanted, "p = 'elsewhere'", spec=spec) == []
        assert files.read(replace(file, partition=(None, 2)), wanted, spec=spec) == [{"p": None, "q": None}]

    def test_a_partition_column_that_is_in_the_file_is_read_from_there(self, files):
        file = replace(files.of(self.OLD, [{"a": 1}]), partition=(2,))
        assert files.read(file, self.OLD, spec=spec_from_shorthand(["a"], self.OLD)) == [{"a": 1}]

    def test_filters_see_defaults_and_nulls(self, files):
        file = files.of(self.OLD, [{"a": 1}, {"a": 2}])
        table = schema(field(1, "a", INT), field(2, "b", INT, initial_default=7), field(3, "c", INT))
        assert files.read(file, self.OLD, "b = 7 and a > 1", table_schema=table) == [{"a": 2}]
        assert files.read(file, self.OLD, "b > 7", table_schema=table) == []
        assert files.read(file, self.OLD, "c is null", table_schema=table) == [{"a": 1}, {"a": 2}]
        assert files.read(file, self.OLD, "c != 1", table_schema=table) == []


class TestFilesWithoutIds:
    """Files that others wrote carry no ids: the table's name mapping says which column is which, or nobody does."""

    MAPPING = """[
        {"field-id": 1, "names": ["id", "ID"]},
        {"field-id": 2, "names": ["st"], "fields": [{"field-id": 3, "names": ["x"]}]},
        {"field-id": 4, "names": ["xs"], "fields": [
            {"field-id": 5, "names": ["element"], "fields": [{"field-id": 6, "names": ["p"]}]}]},
        {"field-id": 7, "names": ["m"], "fields": [
            {"field-id": 8, "names": ["key"]}, {"field-id": 9, "names": ["value"]}]}
    ]"""
    WANTED = schema(
        field(1, "number", LONG),
        field(2, "st", struct(field(3, "ex", INT))),
        field(4, "xs", t.ListType(element_id=5, element=struct(field(6, "p", INT)))),
        field(7, "m", t.MapType(key_id=8, key=STRING, value_id=9, value=INT)),
        field(10, "new", STRING),
    )

    def plain(self, files: Files) -> DataFile:
        arrow = pa.schema(
            [
                ("unmapped", pa.int32()),
                ("ID", pa.int32()),
                ("st", pa.struct([("y", pa.int32()), ("x", pa.int32())])),
                ("xs", pa.list_(pa.struct([("p", pa.int32())]))),
                ("m", pa.map_(pa.string(), pa.int32())),
            ]
        )
        row = {"unmapped": 0, "ID": 1, "st": {"y": 2, "x": 3}, "xs": [{"p": 4}], "m": [("k", 5)]}
        return files.write(pa.Table.from_pylist([row], schema=arrow))

    def test_a_name_mapping_gives_ids_at_every_depth(self, files):
        expected = [{"number": 1, "st": {"ex": 3}, "xs": [{"p": 4}], "m": [("k", 5)], "new": None}]
        for where, rows in ((None, expected), ("st.ex = 3 and number = 1", expected), ("number > 1", [])):
            assert files.read(self.plain(files), self.WANTED, where, name_mapping=self.MAPPING) == rows

    @pytest.mark.parametrize("mapping", [None, "[]", '[{"field-id": 1, "names": ["other"]}]'])
    def test_without_one_the_file_is_refused(self, files, mapping):
        with pytest.raises(UnsupportedError, match=r"schema\.name-mapping\.default"):
            files.read(self.plain(files), self.WANTED, name_mapping=mapping)

    @pytest.mark.parametrize("mapping", ["{", "[1]", '[{"names": 1}]', '{"a": 1}'])
    def test_a_malformed_mapping_is_an_error(self, files, mapping):
        with pytest.raises(FormatError, match="malformed name mapping"):
            files.read(self.plain(files), self.WANTED, name_mapping=mapping)

    def test_ids_in_the_file_beat_the_mapping(self, files):
        file = files.of(schema(field(1, "b", INT), field(2, "a", INT)), [{"b": 1, "a": 2}])
        mapping = '[{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["b"]}]'
        assert files.read(file, schema(field(1, "a", INT)), name_mapping=mapping) == [{"a": 1}]

    def test_lists_and_maps_whose_elements_have_no_ids_are_read_all_the_same(self, files):
        """Spark without Iceberg writes ids for the fields of structs alone; an element can only be the element."""
        file = files.write(pa.table({"xs": [[1]]}), 1)
        assert files.read(file, schema_from_shorthand({"xs": "list<long>"})) == [{"xs": [1]}]

    def test_structs_inside_them_are_refused(self, files):
        file = files.write(pa.table({"xs": [[{"p": 1}]]}), 1)
        with pytest.raises(UnsupportedError, match="the fields of struct 'element' have no field ids"):
            files.read(file, schema_from_shorthand({"xs": "list<struct<p: long>>"}))


class TestRowFilter:
    """Exactly the selected rows come back, and row groups without any are not read."""

    TABLE = schema_from_shorthand({"id": "long", "s": "string", "d": "double", "p": "decimal(9,2)"})

    def many(self, files: Files) -> DataFile:
        nan = float("nan")
        rows = [{"id": n, "s": f"s{n:03}", "d": nan if n == 5 else n / 2, "p": Decimal(n)} for n in range(100)]
        return files.of(self.TABLE, rows, row_group_size=10)

    @pytest.mark.parametrize(("where", "expected"), [
        ("id = 42", {42}),
        ("id in (1, 99, 500)", {1, 99}),
        ("s like 's09%'", set(range(90, 100))),
        ("d > 49", {5, 99}),
        ("isnan(d)", {5}),
        ("d < 1", {0, 1}),
        ("p >= 98.5", {99}),
        ("id < 0", set()),
        ("id >= 0", set(range(100))),
        ("s is null or id = 7", {7}),
        ("not (id > 2 or s = 's001')", {0, 2}),
    ])  # fmt: skip
    def test_rows(self, files, where, expected):
        wanted = self.TABLE.select(["id"])
        assert {row["id"] for row in files.read(self.many(files), wanted, where, table_schema=self.TABLE)} == expected

    def test_only_row_groups_that_may_match_are_read(self, files, monkeypatch):
        read: list[int] = []
        original = pq.ParquetFile.iter_batches

        def spy(self: pq.ParquetFile, *args: Any, **kwargs: Any) -> Any:
            read.extend(kwargs["row_groups"])
            return original(self, *args, **kwargs)

        file = self.many(files)
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
        files.read(file, self.TABLE, "id between 25 and 31")
        assert read == [2, 3]

    def test_batches_keep_to_their_size_and_the_order_of_the_file(self, files):
        batches = list(read_file(files.io, self.many(files), schema=self.TABLE.select(["id"]), batch_size=4))
        assert max(batch.num_rows for batch in batches) == 4
        assert [row["id"] for batch in batches for row in batch.to_pylist()] == list(range(100))

    def test_the_filter_may_ask_for_fields_of_structs_that_are_not_returned(self, files):
        table = schema_from_shorthand({"st": "struct<x: int, y: int>"})
        file = files.of(table, [{"st": {"x": 1, "y": 2}}, {"st": None}, {"st": {"x": None, "y": 3}}])
        wanted = table.select(["st.y"])
        assert files.read(file, wanted, "st.x = 1", table_schema=table) == [{"st": {"y": 2}}]
        assert files.read(file, wanted, "st.x is null", table_schema=table) == [{"st": None}, {"st": {"y": 3}}]


class TestRefusals:
    """What is not read yet, or cannot be, is an error before the first row."""

    FILE = DataFile(file_path="/nowhere.parquet", file_format="parquet", record_count=1, file_size_in_bytes=1)
    WANTED = schema(field(1, "a", INT))

    @pytest.mark.parametrize(("change", "of_deletes", "message"), [
        ({"file_format": "lance"}, None, "data file /nowhere.parquet is lance, expected parquet, orc, avro"),
        ({"content": FileContent.POSITION_DELETES}, None, "holds deletes, not rows"),
        ({"key_metadata": b"key"}, None, "is encrypted"),
        ({}, {"file_format": "lance"}, r"delete file /nowhere\.parquet is lance, expected parquet"),
        ({}, {"file_format": "orc", "key_metadata": b"key"}, r"delete file /nowhere\.parquet is encrypted"),
    ])  # fmt: skip
    def test_files(self, files, change, of_deletes, message):
        deletes = [replace(self.FILE, content=FileContent.POSITION_DELETES, **of_deletes)] if of_deletes else []
        with pytest.raises(UnsupportedError, match=message):
            read_file(files.io, replace(self.FILE, **change), schema=self.WANTED, delete_files=deletes)

    def test_values_that_are_not_understood(self, files):
        wanted = schema(field(1, "v", t.GeometryType()))
        file = files.write(pa.table({"v": [b"point"]}), 1)
        with pytest.raises(UnsupportedError, match="column 'v' is geometry, which is not read; select other columns"):
            list(read_file(files.io, file, schema=wanted))
        counted = replace(file, value_counts={1: 1}, null_value_counts={1: 0})
        with pytest.raises(UnsupportedError, match="holds values of column 'v', which is geometry and not read"):
            read_file(files.io, counted, schema=wanted)

    def test_a_geometry_that_no_file_holds_is_null(self, files):
        file = files.write(pa.table({"a": [1]}), 1)
        assert files.read(file, schema(field(1, "a", LONG), field(2, "v", t.GeometryType()))) == [{"a": 1, "v": None}]

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"not a parquet file at all"])
    def test_a_file_that_is_no_parquet(self, files, content):
        (files.folder / "torn.parquet").write_bytes(content)
        file = replace(self.FILE, file_path=str(files.folder / "torn.parquet"))
        with pytest.raises(FormatError, match=r"cannot read a Parquet file: .* of .*torn\.parquet"):
            list(read_file(files.io, file, schema=self.WANTED))

    def test_a_file_with_damaged_pages(self, files):
        file = files.of(self.WANTED, [{"a": n} for n in range(10_000)], compression="zstd", use_dictionary=False)
        path = Path(file.file_path)
        data = bytearray(path.read_bytes())
        data[100:200] = bytes(100)
        path.write_bytes(data)
        with pytest.raises(FormatError, match="cannot read a Parquet file"):
            list(read_file(files.io, file, schema=self.WANTED))
