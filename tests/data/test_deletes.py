"""Deletes applied to rows: positions, vectors and keys, in every format, as if each row were tried by itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.data.read import deletes as deletes_module
from airflow_iceberg.data.read.deletes import DeleteReader
from airflow_iceberg.data.read.equality import KeySet
from airflow_iceberg.errors import FormatError, NotFoundError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import IntegerType, LongType, NestedField, StringType, StructType, UnknownType
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support.data_files import read_file, write_data_file
from tests.support.sampling import examples

IO = FsspecFileIO()
TABLE = schema_from_shorthand({"id": "long", "name": "string", "st": "struct<x: double>"})
POSITIONS = Schema(
    (
        NestedField(id=2147483546, name="file_path", type=StringType(), required=True),
        NestedField(id=2147483545, name="pos", type=LongType(), required=True),
    )
)
FORMATS = ["parquet", "orc", "avro"]
ROWS = [{"id": n, "name": f"n{n % 3}", "st": {"x": n / 2}} for n in range(10)]


def data_file(folder: Path, file_format: str = "parquet", rows: Sequence[Any] = ROWS, **more: Any) -> DataFile:
    return write_data_file(folder / f"data.{file_format}", file_format, TABLE, rows, **more)


def position_deletes(folder: Path, file_format: str, *positions: tuple[str, int]) -> DataFile:
    rows = [{"file_path": path, "pos": position} for path, position in positions]
    written = write_data_file(folder / f"positions.{file_format}", file_format, POSITIONS, rows)
    return replace(written, content=FileContent.POSITION_DELETES)


def equality_deletes(folder: Path, file_format: str, schema: Schema, rows: Sequence[Any], *ids: int) -> DataFile:
    written = write_data_file(folder / f"keys-{len(rows)}-{ids[0]}.{file_format}", file_format, schema, rows)
    return replace(written, content=FileContent.EQUALITY_DELETES, equality_ids=ids)


def vector(folder: Path, of: str, positions: Sequence[int], **changes: Any) -> DataFile:
    other = Blob(type=DELETION_VECTOR, data=RowPositions.of([0]).to_blob())
    blob = Blob(type=DELETION_VECTOR, data=RowPositions.of(positions).to_blob())
    data, (_, place) = write_puffin([other, blob])
    path = folder / "vectors.puffin"
    path.write_bytes(data)
    file = DataFile(
        content=FileContent.POSITION_DELETES,
        file_path=str(path),
        file_format="puffin",
        record_count=len(positions),
        file_size_in_bytes=len(data),
        referenced_data_file=of,
        content_offset=place.offset,
        content_size_in_bytes=place.length,
    )
    return replace(file, **changes)


def ids(file: DataFile, *deletes: DataFile, schema: Schema = TABLE, **options: Any) -> list[int]:
    options.setdefault("table_schema", schema)
    batches = read_file(IO, file, schema=schema.select(["id"]), delete_files=deletes, **options)
    return [row["id"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("data_format", FORMATS)
class TestEveryFormat:
    """Data files and delete files may be of different formats."""

    def test_positions(self, tmp_path, data_format, file_format):
        file = data_file(tmp_path, data_format)
        gone = position_deletes(tmp_path, file_format, (file.file_path, 9), ("other", 1), (file.file_path, 0))
        assert ids(file, gone, batch_size=4) == list(range(1, 9))

    def test_keys(self, tmp_path, data_format, file_format):
        file = data_file(tmp_path, data_format)
        gone = equality_deletes(tmp_path, file_format, TABLE.select(["name"]), [{"name": "n1"}, {"name": "?"}], 2)
        assert ids(file, gone, batch_size=4) == [0, 2, 3, 5, 6, 8, 9]


class TestPositions:
    """Rows go by their place in the file, counted from 0, over all row groups."""

    def test_rows_are_counted_over_row_groups_that_are_left_out(self, tmp_path):
        file = data_file(tmp_path, row_group_size=2)
        gone = vector(tmp_path, file.file_path, [5, 8])
        row_filter = parse_filter("id >= 4", TABLE)
        assert ids(file, gone, row_filter=row_filter) == [4, 6, 7, 9]

    def test_several_files_are_united(self, tmp_path):
        file = data_file(tmp_path)
        first = position_deletes(tmp_path, "parquet", (file.file_path, 1), (file.file_path, 2))
        second = position_deletes(tmp_path, "avro", (file.file_path, 2), (file.file_path, 3))
        assert ids(file, first, second) == [0, 4, 5, 6, 7, 8, 9]

    def test_nothing_is_left_of_a_file_whose_rows_are_all_deleted(self, tmp_path):
        file = data_file(tmp_path)
        assert ids(file, vector(tmp_path, file.file_path, range(10))) == []

    def test_a_large_file_is_read_for_one_data_file_alone(self, tmp_path, monkeypatch):
        monkeypatch.setattr(deletes_module, "_WHOLE_FILE_ROWS", 1)
        file = data_file(tmp_path)
        gone = position_deletes(tmp_path, "parquet", ("a", 1), (file.file_path, 2), ("z", 3))
        assert ids(file, gone) == [0, 1, 3, 4, 5, 6, 7, 8, 9]

    def test_no_column_is_needed_to_count(self, tmp_path):
        file = data_file(tmp_path)
        gone = vector(tmp_path, file.file_path, [0, 1])
        batches = list(read_file(IO, file, schema=Schema(), table_schema=TABLE, delete_files=[gone]))
        assert sum(batch.num_rows for batch in batches) == 8


class TestVectors:
    """A vector is the blob that the table points to, and must be what the table says."""

    def test_one_of_several_in_a_file(self, tmp_path):
        file = data_file(tmp_path)
        assert ids(file, vector(tmp_path, file.file_path, [3, 4])) == [0, 1, 2, 5, 6, 7, 8, 9]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"record_count": 3}, "holds 2 positions, but the table says 3"),
            ({"content_offset": 5}, "unexpected length"),
            ({"content_offset": None}, "unexpected span"),
            ({"referenced_data_file": "other"}, "expected a deletion vector of .*, got one of other"),
        ],
    )
    def test_what_does_not_fit_is_an_error(self, tmp_path, changes, message):
        file = data_file(tmp_path)
        with pytest.raises(FormatError, match=message):
            ids(file, vector(tmp_path, file.file_path, [3, 4], **changes))

    def test_one_of_more_rows_than_the_data_file_may_have(self, tmp_path, monkeypatch):
        """Some writers name a few rows that a file lacks; a vector of millions of them is meant to fill the memory."""
        file = data_file(tmp_path)
        assert ids(file, vector(tmp_path, file.file_path, [3, *range(100, 4000, 2)])) == [0, 1, 2, *range(4, 10)]
        hostile = vector(tmp_path, file.file_path, [3], record_count=1 << 30)
        reads = []
        monkeypatch.setattr(FsspecFileIO, "read", lambda *args, **kwargs: reads.append(args))
        for changes in ({"record_count": 1 << 30}, {"content_size_in_bytes": 1 << 30}):
            with pytest.raises(FormatError, match=r"unexpected size of a deletion vector, .*, which has 10 rows"):
                ids(file, replace(hostile, **{"record_count": 1, **changes}))
        assert reads == []

    def test_a_file_that_is_gone(self, tmp_path):
        file = data_file(tmp_path)
        gone = vector(tmp_path, file.file_path, [3], file_path=str(tmp_path / "gone.puffin"))
        with pytest.raises(NotFoundError, match=r"delete file .*gone\.puffin does not exist, although"):
            ids(file, gone)


class TestRowsThatTheTableDoesNotCount:
    """A delete file of a few bytes may hold any number of equal rows: no more are read than the table says."""

    @pytest.mark.parametrize("file_format", FORMATS)
    def test_positions(self, tmp_path, file_format):
        file = data_file(tmp_path)
        bomb = replace(position_deletes(tmp_path, file_format, *[(file.file_path, 1)] * 1000), record_count=900)
        with pytest.raises(FormatError, match="has more rows than the table says, 900"):
            ids(file, bomb)

    def test_keys(self, tmp_path):
        file, keys = data_file(tmp_path), TABLE.select(["id"])
        bomb = replace(equality_deletes(tmp_path, "parquet", keys, [{"id": 1}] * 1000, 1), record_count=900)
        with pytest.raises(FormatError, match="has more rows than the table says, 900"):
            ids(file, bomb)

    def test_equal_positions_are_held_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(deletes_module, "_WHOLE_FILE_ROWS", 10)
        file, held = data_file(tmp_path), []
        of = RowPositions.of

        def counted(positions):
            held.append(len(positions))
            return of(positions)

        monkeypatch.setattr(RowPositions, "of", staticmethod(counted))
        monkeypatch.setattr(deletes_module, "BATCH_SIZE", 7)
        deletes = position_deletes(tmp_path, "parquet", *[(file.file_path, n % 3) for n in range(100)])
        assert ids(file, deletes) == [3, 4, 5, 6, 7, 8, 9]
        assert max(held) <= 20


class TestKeys:
    """Rows go whose values of some columns are in a delete file: null equals null."""

    def test_columns_that_are_not_returned_or_were_dropped_are_read(self, tmp_path):
        file = data_file(tmp_path)
        gone = equality_deletes(tmp_path, "parquet", TABLE.select(["name"]), [{"name": "n0"}], 2)
        reader = DeleteReader(IO, schemas=(TABLE.select(["id"]), TABLE))
        assert ids(file, gone, schema=TABLE.select(["id"]), deletes=reader) == [1, 2, 4, 5, 7, 8]

    def test_a_field_of_a_struct(self, tmp_path):
        rows = [*ROWS[:3], {"id": 3, "name": None, "st": None}, {"id": 4, "name": None, "st": {"x": None}}]
        file = data_file(tmp_path, rows=rows)
        x_id = TABLE.names["st.x"]
        keys = [{"st": {"x": 0.5}}, {"st": None}]
        gone = equality_deletes(tmp_path, "parquet", TABLE.select(["st.x"]), keys, x_id)
        assert ids(file, gone) == [0, 2]

    def test_a_column_that_the_data_file_lacks_has_its_default(self, tmp_path):
        file = data_file(tmp_path)
        added = NestedField(id=50, name="added", type=IntegerType(), initial_default=7)
        table = Schema((*TABLE.fields, added, NestedField(id=51, name="other", type=IntegerType())))
        for keys, left in (({"added": 7, "other": None}, 0), ({"added": 8, "other": None}, 10)):
            gone = equality_deletes(tmp_path, "parquet", table.select(["added", "other"]), [keys], 50, 51)
            assert len(ids(file, gone, schema=table)) == left

    def test_a_promoted_column(self, tmp_path):
        old = Schema((NestedField(id=TABLE.names["id"], name="id", type=IntegerType()),))
        file = data_file(tmp_path)
        assert ids(file, equality_deletes(tmp_path, "avro", old, [{"id": 4}], 1)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]

    def test_files_of_different_columns(self, tmp_path):
        file = data_file(tmp_path)
        by_id = equality_deletes(tmp_path, "orc", TABLE.select(["id"]), [{"id": 0}], 1)
        by_name = equality_deletes(tmp_path, "parquet", TABLE.select(["name"]), [{"name": "n2"}], 2)
        assert ids(file, by_id, by_name) == [1, 3, 4, 6, 7, 9]

    def test_no_keys_delete_nothing(self, tmp_path):
        file = data_file(tmp_path)
        assert len(ids(file, equality_deletes(tmp_path, "parquet", TABLE.select(["id"]), [], 1))) == 10

    @pytest.mark.parametrize(("field_id", "what"), [(99, "is in no schema of the table"), (3, "is a variant")])
    def test_a_column_that_cannot_be_a_key_is_an_error(self, tmp_path, field_id, what):
        table = schema_from_shorthand({"id": "long", "name": "string", "v": "variant"})
        gone = equality_deletes(tmp_path, "parquet", TABLE.select(["id"]), [{"id": 1}], field_id)
        with pytest.raises(FormatError, match=f"equality deletes are by field id {field_id}, which {what}"):
            ids(data_file(tmp_path), gone, table_schema=table)

    def test_a_file_without_its_column_is_an_error(self, tmp_path):
        gone = equality_deletes(tmp_path, "parquet", TABLE.select(["id"]), [{"id": 1}], 2)
        with pytest.raises(FormatError, match=r"a delete file has no column 'name' \(field id 2\)"):
            ids(data_file(tmp_path), gone)

    def test_a_column_left_out_has_the_value_of_the_partition(self, tmp_path):
        spec = spec_from_shorthand(["name"], TABLE)
        keys = TABLE.select(["id"])
        gone = equality_deletes(tmp_path, "parquet", keys, [{"id": 1}, {"id": 2}], 1, TABLE.names["name"])
        partitioned = replace(gone, spec_id=spec.spec_id, partition=("n2",))
        found = ids(data_file(tmp_path), partitioned, deletes=DeleteReader(IO, schemas=(TABLE,), specs=(spec,)))
        assert found == [0, 1, 3, 4, 5, 6, 7, 8, 9]

    def test_lists_are_refused(self):
        with pytest.raises(UnsupportedError, match="by a column of type list"):
            KeySet([pa.array([[1]])])


class TestADeleteFileIsReadOnce:
    """All data files of a scan share what was read, as far as there is room."""

    @pytest.mark.parametrize(("cache_bytes", "reads"), [(1 << 20, 1), (0, 2)])
    def test_per_reader(self, tmp_path, cache_bytes, reads, monkeypatch):
        file = data_file(tmp_path)
        gone = position_deletes(tmp_path, "parquet", (file.file_path, 2))
        opened: list[str] = []
        original = deletes_module.open_source

        def counted(io: Any, file_format: str, facts: Any, name_mapping: Any = None) -> Any:
            opened.append(facts.location)
            return original(io, file_format, facts, name_mapping)

        monkeypatch.setattr(deletes_module, "open_source", counted)
        reader = DeleteReader(IO, schemas=(TABLE,), cache_bytes=cache_bytes)
        assert [len(ids(file, gone, deletes=reader)) for _ in range(2)] == [9, 9]
        assert opened == [gone.file_path] * reads


VALUES: Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    "string": (pa.string(), st.text("ab", max_size=2)),
    "fixed": (pa.binary(1), st.sampled_from([b"a", b"b"])),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.integers(-2, 2)),
    "timestamptz": (pa.timestamp("us", "UTC"), st.integers(-2, 2)),
    "decimal": (pa.decimal128(4, 1), st.sampled_from(["0.0", "1.5", "-1.5"]).map(lambda text: text)),
    "unknown": (pa.null(), st.none()),
}


@st.composite
def keys_and_rows(draw: st.DrawFn) -> tuple[list[pa.DataType], list[Any], list[Any]]:
    from decimal import Decimal

    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    strategies = [
        st.none() | (values.map(Decimal) if name == "decimal" else values)
        for name, (_, values) in ((name, VALUES[name]) for name in names)
    ]
    row = st.tuples(*strategies)
    return [VALUES[name][0] for name in names], draw(st.lists(row, max_size=6)), draw(st.lists(row, max_size=20))


class TestTheSetOfKeys:
    """Every row is found that equals a key, value by value, and no other."""

    @pytest.mark.costly
    @given(keys_and_rows())
    @examples(300)
    def test_as_brute_force(self, drawn):
        kinds, keys, rows = drawn
        known = {tuple(map(repr, key)) for key in keys}
        found = KeySet(columns_of(kinds, keys)).matches(columns_of(kinds, rows))
        assert found.tolist() == [tuple(map(repr, row)) in known for row in rows]


def columns_of(kinds: list[pa.DataType], rows: list[Any]) -> list[pa.Array]:
    return [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]


def test_an_unknown_column_takes_no_bytes_and_is_null(tmp_path):
    unknown = NestedField(id=60, name="u", type=UnknownType())
    table = Schema((*TABLE.fields, unknown))
    gone = equality_deletes(tmp_path, "parquet", TABLE.select(["id"]), [{"id": 3}], 1, 60)
    assert ids(data_file(tmp_path), gone, schema=table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_structs_in_schemas_of_keys_hold_the_key_alone():
    nested = StructType(fields=(NestedField(id=2, name="x", type=LongType()),))
    schema = Schema((NestedField(id=1, name="s", type=nested),))
    assert deletes_module._key_field(schema).id == 2
