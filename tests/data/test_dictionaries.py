"""Texts kept as dictionaries from file to file: the same rows and statistics as when every value is looked up."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.data import dictionaries
from airflow_iceberg.data.dictionaries import dictionary_columns, join, with_field_ids, without_unused
from airflow_iceberg.data.write.metrics import MAX_FOOTER_VALUE_BYTES
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support.data_files import read_file
from tests.support.sampling import examples

SCHEMA = schema_from_shorthand({"id": "long", "color": "string", "note": "string", "inner": "struct<kind: string>"})
COLORS = ("red", "green", "blue", "", "rot \N{SNOWMAN}")
NUMBERS = itertools.count()
OFF = {"write.parquet.dict-encoding-enabled.column.color": "false"}


def write(place: Path, tables: Iterable[pa.Table], *, schema: Schema = SCHEMA, **properties: str) -> list[DataFile]:
    writer = PartitionedWriter(
        load_file_io(),
        schema=schema,
        spec=PartitionSpec(),
        options=WriteOptions.from_properties(properties, schema),
        data_location=f"file://{place}/{next(NUMBERS)}",
        file_prefix="00000",
    )
    with writer:
        into = writer.into(())
        for table in tables:
            into.write(table)
        return list(into.close())


def rows(colors: Sequence[str | None], *, note: str = "n") -> pa.Table:
    columns: dict[str, list[Any]] = {
        "id": list(range(len(colors))),
        "color": list(colors),
        "note": [f"{note}-{number}" for number in range(len(colors))],
        "inner": [None if color is None else {"kind": color} for color in colors],
    }
    return pa.table(columns, schema=schema_to_arrow(SCHEMA))


def read(files: Iterable[DataFile], *, keep: bool, where: str = "", schema: Schema = SCHEMA) -> Iterator[pa.Table]:
    """Yield the rows of files as a rewrite takes them."""
    row_filter = parse_filter(where, schema) if where else ALWAYS_TRUE
    for file in files:
        batches = read_file(load_file_io(), file, schema=schema, row_filter=row_filter, keep_dictionaries=keep)
        for batch in batches:
            yield with_field_ids(batch, schema_to_arrow(schema))


def content(files: Iterable[DataFile]) -> list[dict[str, Any]]:
    return [row for table in read(files, keep=False) for row in table.to_pylist()]


def facts(file: DataFile) -> dict[str, Any]:
    """Return all that a manifest says of a file but for its name."""
    return {name: getattr(file, name) for name in DataFile.__slots__ if name != "file_path"}


def parquet(file: DataFile) -> pq.ParquetFile:
    return pq.ParquetFile(file.file_path.removeprefix("file://"))


def both_ways(place: Path, files: Sequence[DataFile], *, where: str = "", **properties: str) -> list[DataFile]:
    """Rewrite files with and without dictionaries kept, compare, and return the former."""
    kept = write(place, read(files, keep=True, where=where), **properties)
    looked_up = write(place, read(files, keep=False, where=where), **properties)
    assert content(kept) == content(looked_up)
    assert [facts(file) for file in kept] == [facts(file) for file in looked_up]
    for ours, theirs in zip(kept, looked_up, strict=True):
        assert parquet(ours).schema.equals(parquet(theirs).schema)
    return kept


class TestReading:
    """Which columns come as dictionaries."""

    def types(self, files: Sequence[DataFile]) -> list[bool]:
        return [pa.types.is_dictionary(field.type) for field in next(read(files, keep=True)).schema]

    def test_short_lists_of_texts_do_unless_nobody_asks_or_the_file_has_none(self, tmp_path):
        files = write(tmp_path, [rows(COLORS * 500)])
        assert self.types(files) == [False, True, False, False]
        assert not dictionaries.has_dictionaries(next(read(files, keep=False)).schema)
        assert not any(self.types(write(tmp_path, [rows(COLORS * 500)], **OFF)))

    def test_not_when_one_row_group_gave_it_up(self, tmp_path):
        many = [f"color number {number}" for number in range(2000)]
        small = {"write.parquet.row-group-size-bytes": "2000", "write.parquet.dict-size-bytes": "1000"}
        (file,) = write(tmp_path, [rows(COLORS * 500), rows(many)], **small)
        footer = parquet(file).metadata
        assert footer.num_row_groups > 1
        assert dictionary_columns(footer, parquet(file).schema_arrow) == []

    def test_not_in_indices_of_a_byte(self, tmp_path):
        """Categories of pandas, as Arrow's schema in the file has them: those of two files do not fit into a byte."""
        files = [
            self.categories(tmp_path, [f"{name} {number}" for number in range(100)]) for name in ("first", "other")
        ]
        assert pa.types.is_dictionary(parquet(files[0]).schema_arrow.field("color").type)
        assert not any(self.types(files))
        both_ways(tmp_path, files)

    def categories(self, place: Path, names: list[str]) -> DataFile:
        plain = rows(names * 40)
        indices = pa.array(np.arange(plain.num_rows) % len(names), pa.int8())
        field = plain.schema.field("color").with_type(pa.dictionary(pa.int8(), pa.string(), ordered=True))
        colors = pa.DictionaryArray.from_arrays(indices, pa.array(names), ordered=True)
        path = place / f"{names[0].split()[0]}.parquet"
        pq.write_table(plain.set_column(1, field, colors), path)
        facts = {"file_path": path.as_uri(), "file_format": "parquet", "file_size_in_bytes": path.stat().st_size}
        return DataFile(**facts, record_count=plain.num_rows)

    def test_a_filter_sees_values(self, tmp_path):
        files = write(tmp_path, [rows(COLORS * 500)])
        (table,) = read(files, keep=True, where="color = 'blue'")
        assert table.num_rows == 500
        assert set(table.column("color").to_pylist()) == {"blue"}


class TestRewriting:
    """Rows, statistics and layout are those of a rewrite that looks every value up."""

    SECRETS = ("first secret", "second secret", "third secret")

    def test_files_with_the_same_values(self, tmp_path):
        files = [*write(tmp_path, [rows(COLORS * 500)]), *write(tmp_path, [rows(COLORS[::-1] * 700)])]
        (kept,) = both_ways(tmp_path, files)
        footer = parquet(kept).metadata
        assert footer.row_group(0).column(1).total_uncompressed_size < footer.num_rows

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("texts", "where", "upper"),
        [
            ([("aaa", "mmm", "zzz") * 500], "color = 'mmm'", b"mmm"),
            ([("aaa", "mmm", "z" * (MAX_FOOTER_VALUE_BYTES + 1)) * 9000], "color < 'n'", b"mmm"),
            ([("aaa", None) * 500], "color is null", None),
            ([[None] * 800, [None, "red", None, "blue"] * 200], "", b"red"),
        ],
        ids=["values of no row", "a long value of no row", "no value", "nulls"],
    )
    def test_values_that_stand_for_no_row_any_more_and_nulls(self, texts, where, upper, tmp_path):
        files = [file for part in texts for file in write(tmp_path, [rows(part)])]
        (kept,) = both_ways(tmp_path, files, where=where)
        assert kept.upper_bounds.get(2) == upper
        both_ways(tmp_path, files)

    @pytest.mark.costly
    def test_files_and_row_groups_of_which_some_have_no_dictionary(self, tmp_path):
        plain, small = write(tmp_path, [rows(COLORS * 500)], **OFF), write(tmp_path, [rows(COLORS * 500)])
        groups = {"write.parquet.row-group-size-bytes": "2000"}
        for files in ([*plain, *small], [*small, *plain]):
            both_ways(tmp_path, files)
            kept = write(tmp_path, read(files, keep=True), **groups)
            assert content(kept) == content(files)
            assert parquet(kept[0]).metadata.num_row_groups > 1

    @pytest.mark.costly
    def test_dictionaries_that_together_are_large(self, tmp_path):
        parts = [[f"{part:03} of many parts" for part in range(at, at + 20)] for at in range(0, 400, 20)]
        files = [write(tmp_path, [rows(part * 100)])[0] for part in parts]
        assert all(dictionary_columns(parquet(file).metadata, parquet(file).schema_arrow) for file in files)
        (kept,) = write(tmp_path, read(files, keep=True), **{"write.parquet.dict-size-bytes": "1000"})
        assert content([kept]) == content(files)
        # Written plain: each row has its whole text.
        assert parquet(kept).metadata.row_group(0).column(1).total_uncompressed_size > 17 * kept.record_count

    @pytest.mark.costly
    def test_no_value_stays_behind_in_a_file_without_its_rows(self, tmp_path):
        bare = {"write.parquet.compression-codec": "uncompressed"}
        files = [write(tmp_path, [rows((*COLORS, secret) * 500)], **bare)[0] for secret in self.SECRETS]
        (kept,) = write(tmp_path, read(files, keep=True, where="color <> 'second secret'"), **bare)
        assert self.secrets(kept) == {"first secret", "third secret"}
        small = {"write.target-file-size-bytes": "2000", "write.parquet.row-group-size-bytes": "1000"}
        spread = write(tmp_path, read(files, keep=True), **bare, **small)
        assert len(spread) > 3
        for file in spread:
            assert self.secrets(file) == {row["color"] for row in content([file])} - {*COLORS}

    @pytest.mark.costly
    def test_a_row_group_holds_no_more_texts_than_memory_may(self, tmp_path):
        """However little room their indices take: the next file may make them all plain."""
        texts = [[f"{name} {at} ".ljust(500, "-") for at in range(10)] for name in ("one", "two", "three")]
        files = [write(tmp_path, [rows(part * 500)])[0] for part in texts]
        small = {"write.parquet.row-group-size-bytes": "25000"}
        (kept,), (looked_up,) = (write(tmp_path, read(files, keep=keep), **small) for keep in (True, False))
        ours, theirs = parquet(kept).metadata.num_row_groups, parquet(looked_up).metadata.num_row_groups
        assert ours == pytest.approx(theirs, rel=0.1)

    def test_texts_that_memory_would_not_hold_without_their_dictionary(self, tmp_path):
        """Those of a batch are more than Arrow takes into an array."""
        schema = schema_from_shorthand({"text": "string"})
        texts = [f"{number}".ljust(20_000, "-") for number in range(10)]
        indices = pa.array(np.arange(150_000, dtype=np.int32) % 10)
        field = schema_to_arrow(schema).field(0).with_type(pa.dictionary(pa.int32(), pa.string()))
        columns = [pa.DictionaryArray.from_arrays(indices, pa.array(texts))]
        one_group = {"write.parquet.row-group-size-bytes": str(1 << 30), "write.target-file-size-bytes": str(1 << 30)}
        files = write(tmp_path, [pa.table(columns, schema=pa.schema([field]))], schema=schema, **one_group)
        (kept,) = write(tmp_path, read(files, keep=True, schema=schema), schema=schema)
        assert kept.record_count == 150_000
        assert (kept.lower_bounds, kept.upper_bounds) == ({1: texts[0][:16].encode()}, {1: b"9--------------."})
        found = pq.ParquetFile(kept.file_path.removeprefix("file://"), read_dictionary=["text"]).read()
        assert found["text"].unify_dictionaries().unique().to_pylist() == texts

    def secrets(self, file: DataFile) -> set[str]:
        document = Path(file.file_path.removeprefix("file://")).read_bytes()
        return {secret for secret in self.SECRETS if secret.encode() in document}

    @pytest.mark.parametrize(
        "properties",
        [
            {"write.parquet.dict-encoding-enabled.column.color": "false"},
            {"write.parquet.bloom-filter-enabled.column.color": "true"},
            {"write.parquet.stats-enabled.column.color": "false"},
            {"write.parquet.page-version": "v2"},
            {"write.parquet.page-row-limit": "100"},
            {"write.metadata.metrics.column.color": "truncate(1)"},
        ],
        ids=lambda found: next(iter(found)),
    )
    def test_what_the_table_asks_for(self, tmp_path, properties):
        files = write(tmp_path, [rows(COLORS * 500)])
        both_ways(tmp_path, files, **properties)

    @pytest.mark.costly
    @examples(40)
    @given(
        texts=st.lists(st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=6), min_size=1, max_size=6),
        row_group_bytes=st.sampled_from(("1000", "134217728")),
    )
    def test_any_texts(self, tmp_path_factory, texts, row_group_bytes):
        place = tmp_path_factory.mktemp("texts")
        files = [file for part in texts for file in write(place, [rows(part * 60)])]
        kept = write(place, read(files, keep=True), **{"write.parquet.row-group-size-bytes": row_group_bytes})
        looked_up = write(place, read(files, keep=False))
        assert content(kept) == content(looked_up)
        if row_group_bytes != "1000":
            assert [file.lower_bounds for file in kept] == [file.lower_bounds for file in looked_up]
            assert [file.null_value_counts for file in kept] == [file.null_value_counts for file in looked_up]


class TestJoining:
    """Tables are put together, whatever their columns come as."""

    def test_one_dictionary_for_all(self):
        tables = [pa.table({"color": pa.array(part).dictionary_encode()}) for part in (["a", "b"], ["b", "c"], ["a"])]
        joined = join(tables, most_bytes=1000)
        assert joined.column("color").to_pylist() == ["a", "b", "b", "c", "a"]
        assert {tuple(chunk.dictionary.to_pylist()) for chunk in joined.column("color").chunks} == {("a", "b", "c")}

    def test_values_win(self):
        tables = [pa.table({"color": pa.array(["a"]).dictionary_encode()}), pa.table({"color": ["b"]})]
        joined = join(tables, most_bytes=1000)
        assert joined.schema.field("color").type == pa.string()
        assert joined.column("color").to_pylist() == ["a", "b"]

    def test_in_pieces_where_they_are_too_large_for_one(self, monkeypatch):
        texts = [color.ljust(100) for color in COLORS] * 4
        table = pa.table({"color": pa.array([*texts, None]).dictionary_encode()})
        monkeypatch.setattr(dictionaries, "_MOST_TEXT_BYTES", 1000)
        plain = dictionaries.with_types(table, pa.schema({"color": pa.string()}))
        assert plain.column("color").to_pylist() == [*texts, None]
        assert plain.column("color").num_chunks == 3


class TestWithoutUnused:
    """What no row has goes out of a dictionary."""

    def test_values_in_the_order_of_the_rows(self):
        kept = pa.array(["c", None, "a", "b", "c"]).dictionary_encode().slice(1, 2)
        table = without_unused(pa.table({"color": kept, "id": [1, 2]}))
        assert table.to_pydict() == {"color": [None, "a"], "id": [1, 2]}
        assert table.column("color").chunk(0).dictionary.to_pylist() == ["a"]

    def test_dictionaries_that_differ(self):
        chunks = [pa.array(part).dictionary_encode() for part in (["x", "a", "b"], ["b", "y", "c"])]
        column = pa.chunked_array([chunks[0].slice(1), chunks[1].slice(2)])
        table = without_unused(pa.table({"color": column}))
        assert table.column("color").to_pylist() == ["a", "b", "c"]
        assert {tuple(chunk.dictionary.to_pylist()) for chunk in table.column("color").chunks} == {("a", "b", "c")}

    def test_only_where_it_is_larger_than_the_rows(self):
        table = pa.table({"color": pa.array([f"color {number}" for number in range(100)] * 2).dictionary_encode()})
        for count, left in ((101, 100), (10, 10)):
            found = without_unused(table.slice(50, count), if_larger=True)
            assert found.to_pydict() == table.slice(50, count).to_pydict()
            assert len(found.column("color").chunk(0).dictionary) == left


class TestPlainColumns:
    """Columns that no dictionary suits are told before a row group is encoded."""

    COUNT = 1_000_000
    LIMIT = 2 << 20

    def plain(self, **columns: Any) -> frozenset[str]:
        return dictionaries.plain_columns(pa.table(columns), most_bytes=self.LIMIT)

    def test_few_values_keep_their_dictionary(self):
        random = np.random.default_rng(1)
        assert not self.plain(
            few=random.integers(0, 50, self.COUNT),
            days=pa.array(random.integers(0, 2500, self.COUNT), pa.int32()).cast(pa.date32()),
            texts=pa.array(list(COLORS)).take(pa.array(random.integers(0, len(COLORS), self.COUNT))),
            nothing=pa.nulls(self.COUNT, pa.string()),
        )

    def test_as_many_values_as_rows_lose_it(self):
        random = np.random.default_rng(1)
        found = self.plain(keys=random.integers(0, 1 << 60, self.COUNT), ratios=random.random(self.COUNT))
        assert found == {"keys", "ratios"}

    def test_keys_that_keep_coming_lose_it_when_they_are_too_many(self):
        assert self.plain(order=np.arange(self.COUNT) // 3) == {"order"}
        assert not self.plain(order=np.arange(self.COUNT) // 30)

    @pytest.mark.costly
    def test_values_that_come_round_keep_it(self):
        for period in (5_000, 10_007, 40_000):
            assert not self.plain(device=np.arange(self.COUNT) % period)
            assert not self.plain(device=np.random.default_rng(1).permutation(np.arange(self.COUNT) % period))

    def test_what_has_no_dictionary_is_passed_over(self):
        flags = np.arange(self.COUNT) % 2 == 0
        assert not self.plain(flags=flags, inner=pa.array([{"a": 1}] * 10 + [None] * (self.COUNT - 10)))

    @pytest.mark.parametrize("count", [40_000, 300_000])
    def test_files_are_written_so(self, tmp_path, count):
        schema = schema_from_shorthand({"key": "long", "day": "int"})
        table = pa.table(
            {"key": np.random.default_rng(1).permutation(count), "day": np.arange(count, dtype="int32") % 7},
            schema=schema_to_arrow(schema),
        )
        (file,) = write(tmp_path, [table], schema=schema)
        group = parquet(file).metadata.row_group(0)
        assert [group.column(at).has_dictionary_page for at in range(2)] == [False, True]
        (read_back,) = [pa.concat_tables(read([file], keep=True, schema=schema))]
        assert read_back.equals(table.select(["key", "day"]))
