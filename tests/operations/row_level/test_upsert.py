"""Upserts in this process, without a query engine: the rows are those of the same merge by DuckDB."""

import datetime as dt
import random
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.jobs import context, exchange
from airflow_iceberg.jobs.merge.key_match import KeyIndex
from airflow_iceberg.operations.new_rows import RowsFunction
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations
from tests.support.memory import MemoryCatalog

COW, MOR = "copy-on-write", "merge-on-read"
NAN, OTHER_NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64).tolist()
UTC = dt.UTC
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
EARLY, LATE = dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(9999, 1, 1, tzinfo=UTC)
SAME = {"nan": [NAN, OTHER_NAN], "0.0": [0.0, -0.0]}
# The table's type, and values of which no two are equal.
TYPES = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, -1, 2**31 - 1]),
    "long": (pa.int64(), [0, -1, 2**60]),
    "float": (pa.float32(), [NAN, 0.0, 1.5, float("inf")]),
    "double": (pa.float64(), [NAN, 0.0, 1.5, float("-inf"), 1e-320]),
    "decimal(20,2)": (pa.decimal128(20, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("123456789012345678.99")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 2)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(1, 2, 3, 4)]),
    "timestamp": (pa.timestamp("us"), [one.replace(tzinfo=None) for one in (MOMENT, EARLY, LATE)]),
    "timestamptz": (pa.timestamp("us", "UTC"), [MOMENT, EARLY, LATE]),
    "string": (pa.string(), ["", "a", "A", "ä", "a ", "😀"]),
    "uuid": (pa.binary(16), [bytes(16), b"\x80" * 16, b"0123456789abcdef"]),
    "fixed[3]": (pa.binary(3), [b"\0\0\0", b"abc"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff"]),
}
UPSERT = "when matched then update set * when not matched then insert *"


def made(columns: dict[str, str], catalog: MemoryCatalog, *given: pa.Table, mode: str = "copy-on-write") -> Table:
    table = Table.create(
        catalog,
        f"db.t{len(catalog.list_tables(('db',)))}",
        schema={**columns, "n": "int"},
        properties={"write.merge.mode": mode},
    )
    for rows in given:
        table.append(rows)
    return table


def rows_of(kinds: dict[str, str], keys: list[tuple], first: int) -> pa.Table:
    columns = {
        name: pa.array([key[at] for key in keys], TYPES[kind][0]) for at, (name, kind) in enumerate(kinds.items())
    }
    return pa.table({**columns, "n": pa.array(range(first, first + len(keys)), pa.int32())})


def sorted_rows(table: Table) -> list[str]:
    return sorted(map(repr, table.refresh().scan().to_arrow().to_pylist()))


def cases() -> list[tuple[list[str], str, int]]:
    dice = random.Random(5)
    alone = [([kind], "copy-on-write", number) for number, kind in enumerate(TYPES)]
    return alone + [
        (dice.sample(sorted(TYPES), dice.choice([2, 3])), dice.choice(["copy-on-write", "merge-on-read"]), number)
        for number in range(20)
    ]


@pytest.mark.costly
@pytest.mark.sample(2)
@pytest.mark.parametrize(("kinds", "mode", "seed"), cases(), ids=str)
def test_the_rows_are_those_of_duckdb(kinds, mode, seed):
    dice = random.Random(seed)
    names = {f"k{number}": kind for number, kind in enumerate(kinds)}

    def key(*, of_table: bool) -> tuple:
        found = [dice.choice(TYPES[kind][1] + ([None] if of_table else [])) for kind in kinds]
        return tuple(
            {0.0: -0.0}.get(one, one) if isinstance(one, float) and dice.random() < 0.5 else one for one in found
        )

    stored = [rows_of(names, [key(of_table=True) for _ in range(12)], 100 * number) for number in range(3)]
    new = list({repr(one).replace("-0.0", "0.0"): one for one in (key(of_table=False) for _ in range(8))}.values())
    source = rows_of(names, new, 1000)
    catalog = MemoryCatalog()
    ours, theirs = (made(names, catalog, *stored, mode=mode) for _ in range(2))
    found = ours.upsert(source, list(names))
    expected = theirs.merge(source, list(names), UPSERT)
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert (found.updated_records, found.added_records) == (expected.updated_records, expected.added_records)
    assert found.updated_records + found.added_records


class TestNothingChanges:
    """Rows that would get the values that they have are no reason for a commit, or for a file."""

    @pytest.fixture(params=[(1, COW), (2, COW), (2, MOR), (3, COW), (3, MOR)], ids=str)
    def table(self, request):
        version, mode = request.param
        modes = {"write.merge.mode": mode, "write.update.mode": mode}
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"id": "long", "d": "double", "s": "string", "l": "list<struct<a: int>>"},
            partition_by=["s"],
            properties={"format-version": str(version), **modes},
        )
        for start in (0, 3):
            table.append(self.rows(start))
        return table

    def rows(self, start: int, text: str = "a", number: float = NAN) -> pa.Table:
        kind = pa.list_(pa.struct([("a", pa.int32())]))
        return pa.table(
            {
                "id": pa.array(range(start, start + 3), pa.int64()),
                "d": [number, None, -0.0],
                "s": [text, None, "c"],
                "l": pa.array([[{"a": 1}, None], None, []], kind),
            }
        )

    def changes(self, table):
        every = table.scan().to_arrow()
        yield table.upsert(every, ["id"])
        yield table.upsert(every.slice(1, 1), ["id"], when_not_matched_insert_all=False)
        yield table.merge(every, "target.id = source.id", "when matched then update set *")
        yield table.merge(every, ["id"], "when matched and source.id > 2 then update set s = source.s, d = target.d")
        yield table.merge(every, ["id"], "when not matched by source then delete when not matched then insert *")
        yield table.update({"s": "s", "d": "d * 1", "l": "l"})
        yield table.update({"s": "'c'"}, where="id % 3 = 2")

    @pytest.mark.costly
    def test_it(self, table):
        head, disk = table.current_snapshot(), data_locations(table)
        for result in self.changes(table):
            counts = (result.updated_records, result.added_records, result.carried_records, result.snapshot_id)
            assert (result.outcome, counts) == ("nothing", (0, 0, 0, None))
        assert table.refresh().current_snapshot() == head
        assert data_locations(table) == disk

    def test_one_row_that_changes(self, table):
        every = self.rows(3, number=2.5)
        assert table.upsert(every, ["id"]).updated_records == 3
        assert table.upsert(every, ["id"]).outcome == "nothing"
        assert table.upsert(self.rows(3, text="b", number=2.5).slice(0, 1), ["id"]).updated_records == 1
        assert table.upsert(self.rows(4, number=2.5), ["id"]).added_records == 1
        assert table.update({"d": "0.0::double"}, where="id = 5").updated_records == 1  # it was -0.0

    def test_that_a_row_matches_twice_is_an_error_all_the_same(self, table):
        every = table.scan("id = 1").to_arrow()
        with pytest.raises(InvalidInputError, match="2 rows of the source match one row"):
            table.merge(pa.concat_tables([every, every]), ["id"], "when matched then update set *")


class TestErrorsNameTheRows:
    """Rows of this process are called so, and not by the file that a job reads them from."""

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ({"nope": [1], "n": [1]}, "column 'id', by which rows are matched, is not in the Arrow rows; the columns"),
            ({"id": [1], "n": [2**40]}, "row 1 of the Arrow rows: value "),
            ({"id": ["a"], "n": [1]}, "row 1 of the Arrow rows: value "),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("of", ["rows", "function"])
    def test_it(self, rows, message, of):
        table = made({"id": "long"}, MemoryCatalog())
        given = pa.table(rows)
        if of == "function":
            message = message.replace("the Arrow rows", "the rows of function 'load'")
            given = RowsFunction(name="load", call=lambda: pa.table(rows))
        request = MergeRequest(rows=given, on=["id"], upsert=True, dialect="duckdb")
        with pytest.raises(InvalidInputError) as error:
            merge(Work.of(table, None), request)
        assert message in str(error.value)
        assert ".parquet" not in str(error.value)


class TestWithoutDuckdb:
    """An upsert whose keys have the types of the table needs pyarrow alone."""

    @pytest.fixture(autouse=True)
    def no_duckdb(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "duckdb", None)

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_thousands_of_rows_of_a_reader(self, mode, monkeypatch):
        monkeypatch.setattr(exchange, "FLUSH_BYTES", 50_000)  # the source is in many pieces
        monkeypatch.setattr(context, "COALESCE_ROWS", 1_000)
        dice = np.random.default_rng(3)
        numbers = dice.permutation(20_000)
        stored = [
            pa.table({"id": numbers[part], "name": [f"old {one}" for one in numbers[part]]})
            for part in (slice(0, 9_000), slice(9_000, 15_000))
        ]
        table = Table.create(
            MemoryCatalog(), "db.t", schema={"id": "long", "name": "string"}, properties={"write.merge.mode": mode}
        )
        for rows in stored:
            table.append(rows)
        given = numbers[12_000:18_000]
        source = pa.table({"name": [f"new {one}" for one in given], "id": given})
        result = table.upsert(pa.RecordBatchReader.from_batches(source.schema, source.to_batches(1_000)), ["id"])
        assert (result.updated_records, result.added_records) == (3_000, 3_000)
        expected = {int(one): f"old {one}" for one in numbers[:15_000]} | {int(one): f"new {one}" for one in given}
        found = table.scan().to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
        assert found.num_rows == len(expected)

    def test_into_an_empty_table_and_of_no_rows(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "n": "int"})
        rows = rows_of({"id": "long"}, [(1,), (2,)], 0)
        assert table.upsert(rows, ["id"]).added_records == 2
        assert table.upsert(rows.slice(0, 0), ["id"]).outcome == "nothing"

    @pytest.mark.parametrize("value", [NAN, -0.0])
    def test_keys_that_are_equal_and_not_the_same(self, value):
        table = Table.create(MemoryCatalog(), "db.t", schema={"k": "double", "n": "int"})
        with pytest.raises(InvalidInputError, match=r"the source has 2 rows with the same key \(k = "):
            table.upsert(rows_of({"k": "double"}, [(value,), (-value,)], 0), ["k"])

    def test_a_part_of_a_key_is_null(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"a": "long", "b": "string", "n": "int"})
        rows = rows_of({"a": "long", "b": "string"}, [(1, "x"), (2, None)], 0)
        with pytest.raises(InvalidInputError, match=r"the source has a null key \(a = 2, b = None\), so that"):
            table.upsert(rows, ["a", "b"])

    def test_a_key_of_another_type_is_compared_by_an_engine(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"s": "struct<k: long>", "n": "int"})
        rows = pa.table({"S": pa.array([{"K": 1}], pa.struct([("K", pa.int32())])), "n": pa.array([1], pa.int32())})
        with pytest.raises(UnsupportedError, match="DuckDB, which is not installed"):
            table.upsert(rows, ["s.k"])

    def test_a_key_that_is_spelled_otherwise_needs_none(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"k": "long", "n": "int"})
        for number in (1, 2):
            rows = pa.table({"K": pa.array([1], pa.int32()), "n": pa.array([number], pa.int32())})
            table.upsert(rows, ["k"])
        assert table.refresh().scan().to_arrow().to_pylist() == [{"k": 1, "n": 2}]


@pytest.mark.parametrize("seed", range(20))
def test_an_index_finds_what_is_equal(seed):
    dice = random.Random(seed)
    kinds = dice.sample(sorted(TYPES), dice.choice([1, 2, 3]))

    def column(kind: str, count: int) -> pa.ChunkedArray:
        arrow, known = TYPES[kind]
        values = [dice.choice([*known, None]) for _ in range(count)]
        if pa.types.is_floating(arrow):
            values = [dice.choice(SAME.get(repr(one), [one])) for one in values]
        return pa.chunked_array([pa.array(values[:3], arrow), pa.array(values[3:], arrow)])

    known, asked = ([column(kind, count) for kind in kinds] for count in (12, 30))

    def keys(columns: list[pa.ChunkedArray]) -> list[tuple]:
        return [
            tuple("nan" if one != one else 0.0 if one == 0.0 and isinstance(one, float) else one for one in row)
            for row in zip(*(column.to_pylist() for column in columns), strict=True)
        ]

    rows = {key: number for number, key in enumerate(keys(known)) if None not in key}
    index = KeyIndex(known)
    assert index.distinct == len(rows)
    found = index.rows_of(asked).tolist()
    # Of equal rows any one.
    assert [keys(known)[one] if one >= 0 else None for one in found] == [
        key if key in rows else None for key in keys(asked)
    ]
