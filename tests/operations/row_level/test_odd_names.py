"""Names with marks, blanks and the names of sides in them, and keys whose values or spelling are not the table's."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.table import Table
from tests.support.builders import job_work, new_table
from tests.support.memory import MemoryCatalog

UPSERT = "when matched then update set v = source.v when not matched then insert *"


def twins(one, other):
    """Return a table of two rows, whose columns are 1 and 2, and 2 and 1."""
    schema = pa.schema([(name, pa.int64()) for name in (one, other, "v")])
    table = Table.create(MemoryCatalog(), "db.t", schema=schema)
    table.append(pa.Table.from_pylist([{one: 1, other: 2, "v": 0}, {one: 2, other: 1, "v": 0}], schema))
    return table


def rows_of(table):
    return sorted((tuple(row.values()) for row in table.refresh().scan().to_arrow().to_pylist()), key=repr)


@pytest.mark.parametrize(("odd", "plain"), [(" a", "a"), ("a ", "a"), ('"a"', "a"), ("`a`", "a"), ("\ta", "a")])
class TestNamesThatLookLikeOthers:
    def test_a_clause_and_an_update_set_the_column_of_the_name(self, odd, plain):
        table, marked = twins(odd, plain), '"' + odd.replace('"', '""') + '"'
        rows = pa.table({odd: [1], plain: [9], "v": [5]})
        table.merge(rows, f"target.{marked} = source.{marked}", f"when matched then update set {marked} = 7")
        assert rows_of(table) == [(2, 1, 0), (7, 2, 0)]
        table.update({odd: "8"}, where="v = 0 and a = 2")
        assert rows_of(table) == [(2, 1, 0), (8, 2, 0)]

    def test_an_upsert_matches_by_the_column_and_the_field_of_the_name(self, odd, plain):
        table = twins(odd, plain)
        table.upsert(pa.table({odd: [1], plain: [9], "v": [5]}), [odd])
        assert rows_of(table) == [(1, 9, 5), (2, 1, 0)]
        inner = pa.schema([("s", pa.struct([(odd, pa.int64()), (plain, pa.int64())])), ("v", pa.int64())])
        nested = Table.create(MemoryCatalog(), "db.t", schema=inner)
        nested.append(
            pa.Table.from_pylist([{"s": {odd: 1, plain: 2}, "v": 0}, {"s": {odd: 2, plain: 1}, "v": 0}], inner)
        )
        nested.upsert(pa.Table.from_pylist([{"s": {odd: 1, plain: 9}, "v": 5}], inner), [f"s.{odd}"])
        assert rows_of(nested) == [({odd: 1, plain: 9}, 5), ({odd: 2, plain: 1}, 0)]


@pytest.mark.parametrize("name", ["\t", ",", "=", "*", ".", "(", "when", "then", "case", "'", "--"])
def test_a_name_in_marks_is_no_word_of_a_clause(name):
    schema = pa.schema([(name, pa.int64()), ("v", pa.string())])
    table = Table.create(MemoryCatalog(), "db.t", schema=schema)
    table.append(pa.Table.from_pylist([{name: 1, "v": "a"}, {name: 2, "v": "b"}], schema))
    rows = pa.Table.from_pylist([{name: 1, "v": ""}, {name: 5, "v": "c"}], schema)
    table.merge(
        rows,
        f'target."{name}" = source."{name}"',
        f"""when matched and source.v = '' then update set "{name}" = 7, v = source.v || ''
        when not matched then insert ("{name}", v) values (source."{name}", '')""",
    )
    assert rows_of(table) == [(2, "b"), (5, ""), (7, "")]


class TestAStructThatIsCalledAsASide:
    @staticmethod
    def table():
        schema = pa.schema([("target", pa.struct([("x", pa.int64()), ("y", pa.int64())])), ("x", pa.int64())])
        table = Table.create(MemoryCatalog(), "db.t", schema=schema)
        table.append(pa.Table.from_pylist([{"target": {"x": 1, "y": 1}, "x": 2}], schema))
        return table

    def test_a_name_with_two_meanings_is_refused(self):
        table, match = self.table(), "'target.x' of 'update' may be 'x' of the table or a field of its column 'target'"
        with pytest.raises(InvalidInputError, match=match):
            table.update({"target.x": "7"})
        with pytest.raises(InvalidInputError, match=match):
            table.merge(pa.table({"x": [2]}), ["x"], "when matched then update set target.x = 7")

    def test_a_name_with_one_meaning_is_taken(self):
        table = self.table()
        table.merge(
            pa.table({"x": [2]}), ["x"], "when matched then update set target.y = 7, target.target.x = 8, x = 9"
        )
        assert rows_of(table) == [({"x": 8, "y": 7}, 9)]


def test_structs_are_checked_in_an_update_that_names_no_column():
    table = Table.create(MemoryCatalog(), "db.t", schema={"s": "struct<x: long, y: long>"})
    table.append(pa.Table.from_pylist([{"s": {"x": 1, "y": 2}}], table.scan().to_arrow().schema))
    with pytest.raises(InvalidInputError, match="DuckDB makes a struct of 'y' one of 'y', 'x'"):
        table.update({"s": "coalesce({'y': 20}, (with q as (select 1 as z) select {'x': z, 'y': z} from q))"})


class TestKeysOfFiles:
    @staticmethod
    def source(tmp_path, rows, schema=None):
        pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "rows.parquet")
        return Source.from_files(str(tmp_path / "rows.parquet"))

    @staticmethod
    def merged(table, source, on, clauses=UPSERT):
        merge(job_work(table), MergeRequest(rows=source, on=on, clauses=clauses, dialect="duckdb"))
        return rows_of(table)

    @pytest.mark.parametrize("on", [["ID"], ["id"], "target.id = source.ID"])
    def test_a_key_is_rounded_to_no_other_whatever_its_spelling(self, tmp_path, on):
        table = new_table(tmp_path, schema={"id": "int", "v": "int"})
        table.append(pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([0], pa.int32())}))
        with pytest.raises(InvalidInputError, match=r"column 'ID', row 2 of .*: value 1.5 \(double\) does not fit int"):
            self.merged(table, self.source(tmp_path, [{"ID": 1.0, "v": 9}, {"ID": 1.5, "v": 9}]), on)
        assert self.merged(table, self.source(tmp_path, [{"ID": 1.0, "v": 9}, {"ID": 3.0, "v": 8}]), on) == [
            (1, 9),
            (3, 8),
        ]

    @pytest.mark.parametrize("schema", [{"k": "float", "v": "int"}, {"a": "struct<k: float>", "v": "int"}])
    def test_a_float_of_a_query_is_rounded_to_no_other_key(self, schema):
        catalog, is_top = MemoryCatalog(), "k" in schema
        table = Table.create(catalog, "db.t", schema=schema)
        row = {"k": 0.1} if is_top else {"a": {"k": 0.1}}
        table.append(pa.Table.from_pylist([{**row, "v": 0}], table.scan().to_arrow().schema))
        query = f"select {'k' if is_top else 'struct_pack(k := k) as a'}, 9 as v from (select 0.1::double as k)"
        source = Source.from_sql(query, dialect="duckdb")
        request = MergeRequest(rows=source, on=["k" if is_top else "a.k"], upsert=True, dialect="duckdb")
        with pytest.raises(
            InvalidInputError, match=r"column '(a\.)?k', row 1 of .*: value 0.1 \(double\) does not fit"
        ):
            merge(job_work(table), request)

    def test_a_field_beside_a_key_has_the_values_of_the_file(self, tmp_path):
        table = new_table(tmp_path, schema={"a": "struct<id: int, w: int>", "v": "int"})
        table.append(pa.Table.from_pylist([{"a": {"id": 1, "w": 0}, "v": 0}], table.scan().to_arrow().schema))
        source = self.source(tmp_path, [{"a": {"id": 1, "w": 1.7}, "v": 9}])
        clauses = "when matched and source.a.w > 1.5 then update set v = source.v"
        assert self.merged(table, source, ["a.id"], clauses) == [({"id": 1, "w": 0}, 9)]

    def test_a_column_that_is_compared_with_another_one_has_the_values_of_the_file(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "double", "k": "int", "v": "int"})
        table.append(pa.Table.from_pylist([{"id": 1.5, "k": 1, "v": 0}], table.scan().to_arrow().schema))
        source = self.source(tmp_path, [{"k": 1.5, "v": 9}])
        found = self.merged(table, source, "target.id = source.k", "when matched then update set v = source.v")
        assert found == [(1.5, 1, 9)]
