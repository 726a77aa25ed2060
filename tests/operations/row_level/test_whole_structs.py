"""Values of structs in merges, upserts and updates: all fields of the table, at every depth, by their names.

What Spark with Iceberg Java does with random ones is in `tests/compat/test_structs_in_updates.py`.
"""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from tests.support.builders import job_work, new_table

BOTH = pa.struct([("x", pa.int32()), ("y", pa.int32())])
ROW = {"x": 1, "y": 2}
UPDATE, INSERT = "when matched then update set", "when not matched then insert"
STATEMENTS = {
    "upsert": lambda table, rows, mode: table.upsert(rows, ["id"], mode=mode),
    "star": lambda table, rows, mode: table.merge(rows, ["id"], f"{UPDATE} *", mode=mode),
    "set": lambda table, rows, mode: table.merge(rows, ["id"], f"{UPDATE} s = source.s", mode=mode),
    "insert": lambda table, rows, mode: table.merge(rows, ["id"], f"{INSERT} *", mode=mode),
    "insert of columns": lambda table, rows, mode: table.merge(
        rows, ["id"], f"{INSERT} (id, s) values (source.id, source.s)", mode=mode
    ),
}
# The type of the table, its value, a value that lacks a field, and the path of that field.
DEPTHS = {
    "struct": ("struct<x: int, y: int>", BOTH, ROW, {"y": 20}, "s.x"),
    "list": ("list<struct<x: int, y: int>>", pa.list_(BOTH), [ROW], [{"y": 20}], "s.element.x"),
    "map": (
        "map<string, struct<x: int, y: int>>",
        pa.map_(pa.string(), BOTH),
        [("k", ROW)],
        pa.array([[("k", {"y": 20})]], pa.map_(pa.string(), pa.struct([("y", pa.int32())]))),
        "s.value.x",
    ),
    "struct in a struct": (
        "struct<in: struct<x: int, y: int>>",
        pa.struct([("in", BOTH)]),
        {"in": ROW},
        {"in": {"y": 20}},
        "s.in.x",
    ),
    "list in a struct": (
        "struct<a: int, in: list<struct<x: int, y: int>>>",
        pa.struct([("a", pa.int32()), ("in", pa.list_(BOTH))]),
        {"a": 1, "in": [ROW]},
        {"a": 1, "in": [{"y": 20}]},
        "s.in.element.x",
    ),
}


def rows_of(value, number=1):
    values = value if isinstance(value, pa.Array) else pa.array([value])
    return pa.table({"id": pa.array([number], pa.int64()), "s": values})


@pytest.fixture
def make(tmp_path):
    def make(schema="struct<x: int, y: int>", kind=BOTH, value=ROW, **options):
        table = new_table(tmp_path, schema={"id": "long", "s": schema}, **options)
        table.append(rows_of(pa.array([value], kind)))
        return table

    return make


def values(table):
    return table.refresh().scan().to_arrow().sort_by("id")["s"].to_pylist()


def refuses(table, path, call):
    before = values(table)
    with pytest.raises(InvalidInputError, match=f"without '{path}'"):
        call()
    assert values(table) == before
    assert len(table.snapshots()) == 1


class TestAValueHasAllFields:
    """Spark with Iceberg Java refuses a struct that lacks a field: what is stored there would become null."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("statement", ["upsert", "star", "set"])
    def test_updates(self, make, statement, mode):
        table = make()
        refuses(table, "s.x", lambda: STATEMENTS[statement](table, rows_of({"y": 20}), mode))

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("statement", ["upsert", "insert", "insert of columns"])
    def test_inserts(self, make, statement):
        table = make()
        refuses(table, "s.x", lambda: STATEMENTS[statement](table, rows_of({"y": 20}, 2), None))

    @pytest.mark.sample(4)
    @pytest.mark.parametrize("depth", DEPTHS)
    @pytest.mark.parametrize("statement", ["upsert", "set"])
    def test_every_depth(self, make, depth, statement):
        schema, kind, value, without, path = DEPTHS[depth]
        table = make(schema, kind, value)
        refuses(table, path, lambda: STATEMENTS[statement](table, rows_of(without), None))

    @pytest.mark.sample(4)
    @pytest.mark.parametrize(
        ("depth", "expression"),
        [
            ("struct", "{'y': 20}"),
            ("struct", "struct_pack(y := 20)"),
            ("struct", "case when id = 1 then {'y': 20} end"),
            ("list", "[{'y': 20}]"),
            ("list", "list_transform(s, lambda e: {'y': e.y})"),
            ("map", "map {'k': {'y': 20}}"),
            ("struct in a struct", "{'in': {'y': 20}}"),
            ("list in a struct", "{'a': 1, 'in': [{'y': 20}]}"),
        ],
    )
    def test_expressions(self, make, depth, expression):
        schema, kind, value, _, path = DEPTHS[depth]
        table = make(schema, kind, value)
        refuses(table, path, lambda: table.update({"s": expression}))
        clauses = f"{UPDATE} s = {expression.replace('(s,', '(target.s,').replace('id =', 'target.id =')}"
        refuses(table, path, lambda: table.merge(rows_of(pa.array([value], kind)), ["id"], clauses))

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("number", [1, 5])
    def test_also_if_no_row_gets_it(self, make, number):
        table = make()
        clauses = f"{UPDATE} s = source.s {INSERT} (id) values (source.id)"
        refuses(table, "s.x", lambda: table.merge(rows_of({"y": 20}, number), ["id"], clauses))

    @pytest.mark.costly
    def test_a_default_is_not_taken_for_it(self, make):
        table = make(properties={"format-version": "3"})
        table.alter([{"add_column": {"name": "s.z", "type": "int", "default": 7}}])
        refuses(table, "s.z", lambda: table.upsert(rows_of({"x": 1, "y": 20}), ["id"]))

    def test_fields_without_names(self, make):
        with pytest.raises(InvalidInputError, match=r"'s' a struct (of fields without names|without 's\.x')"):
            make().update({"s": "row(1, 2)"})

    @pytest.mark.costly
    def test_other_columns_are_changed_beside_it(self, make):
        """A field that the SQL does not assign may be missing; those that are there have names."""
        table = make()
        table.merge(rows_of({"y": 20}), ["id"], f"{UPDATE} s.y = source.s.y")
        assert values(table) == [{"x": 1, "y": 20}]
        with pytest.raises(InvalidInputError, match="x"):
            table.merge(rows_of({"y": 20}), ["id"], f"{UPDATE} s.x = source.s.x")


class TestCombinedStructs:
    """Spark combines no structs of different fields; DuckDB gives the one a null where the other has a value."""

    @pytest.mark.sample(4)
    @pytest.mark.parametrize(
        ("depth", "expression"),
        [
            ("struct", "coalesce({'y': 20}, s)"),
            ("struct", "case when id = 1 then {'y': 20} else s end"),
            ("struct", "if(id > $least, {'y': $y}, s)"),
            ("struct", "(select coalesce({'y': k}, s) from feed)"),
            ("struct", "cast({'y': 20} as struct(x int, y int))"),
            ("list", "[{'y': 20}, s[1]]"),
            ("list", "list_append(s, {'y': 20})"),
            ("list", "list_transform(s, lambda e: coalesce({'y': 1}, e))"),
            ("map", "map {'a': {'y': 20}, 'b': s['k']}"),
            ("struct in a struct", "{'in': coalesce({'y': 20}, s.in)}"),
        ],
    )
    def test_in_updates(self, make, tmp_path, depth, expression):
        schema, kind, value, *_ = DEPTHS[depth]
        table, inputs, params = make(schema, kind, value), {}, None
        if "feed" in expression:
            feed = new_table(tmp_path / "feed", schema={"k": "int"})
            feed.append(pa.table({"k": pa.array([5], pa.int32())}))
            inputs = {"feed": Input(open=lambda: feed)}
        if "$" in expression:
            params = {"least": 0, "y": 20}
        request = UpdateRequest(set={"s": expression}, dialect="duckdb", inputs=inputs, params=params)
        with pytest.raises(InvalidInputError, match=r"'s' a value in which DuckDB makes a struct of 'y' one of .*'x'"):
            update(job_work(table), request)
        assert values(table) == [value]

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        ("clauses", "expected"),
        [
            (f"{UPDATE} s = coalesce(source.s, target.s)", None),
            (f"{UPDATE} s = coalesce(source.whole, target.s)", {"x": 7, "y": 8}),
            (
                "when matched and coalesce(source.s, target.s) is not null then update set s.y = source.s.y",
                {"x": 1, "y": 20},
            ),
            ("when not matched by source then update set s = coalesce(s, {'x': 0, 'y': 0})", ROW),
        ],
    )
    def test_in_merges(self, make, clauses, expected):
        table = make()
        rows = rows_of({"y": 20}).append_column("whole", pa.array([{"y": 8, "x": 7}]))
        if expected is None:
            with pytest.raises(InvalidInputError, match="'s' a value in which DuckDB makes"):
                table.merge(rows, ["id"], clauses)
        else:
            table.merge(rows, ["id"], clauses)
        assert values(table) == [expected or ROW]


class TestValuesThatAreWhole:
    """Fields are matched by their names, in any order; a null is a value."""

    @pytest.mark.sample(5)
    @pytest.mark.parametrize("statement", ["upsert", "star", "set", "insert", "insert of columns"])
    @pytest.mark.parametrize("value", [{"y": 20, "x": 10}, {"x": None, "y": 20}, None])
    def test_order_and_nulls(self, make, statement, value):
        table = make()
        number = 2 if statement.startswith("insert") else 1
        STATEMENTS[statement](table, rows_of(value, number), None)
        assert values(table)[-1] == value

    @pytest.mark.sample(4)
    @pytest.mark.parametrize(
        ("depth", "expression", "expected"),
        [
            ("struct", "{'y': 20, 'x': 10}", {"x": 10, "y": 20}),
            ("struct", "{'x': null, 'y': 20}", {"x": None, "y": 20}),
            ("struct", "null", None),
            ("list", "[{'y': 20, 'x': 10}]", [{"x": 10, "y": 20}]),
            ("list", "[]", []),
            ("list", "[null]", [None]),
            ("map", "map {'k': {'y': 20, 'x': null}}", [("k", {"x": None, "y": 20})]),
            ("map", "map {}", []),
            ("list in a struct", "{'in': [], 'a': null}", {"a": None, "in": []}),
        ],
    )
    def test_expressions(self, make, depth, expression, expected):
        schema, kind, value, *_ = DEPTHS[depth]
        table = make(schema, kind, value)
        table.update({"s": expression})
        assert values(table) == [expected]

    def test_a_field_more_is_refused(self, make):
        table = make()
        with pytest.raises(InvalidInputError, match=r"'s' a struct with 's\.z', which is not in the table"):
            table.update({"s": "{'x': 1, 'y': 2, 'z': 3}"}, where="id = 9")
        assert values(table) == [ROW]


class TestSourceFiles:
    """What one file of a source has is a field of the source, as a column is; it is null where others lack it."""

    def upsert(self, table, *files):
        request = MergeRequest(rows=Source.from_files(files), on=["id"], upsert=True, dialect="duckdb")
        merge(job_work(table), request)

    def json(self, folder, *rows):
        path = folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return str(path)

    @pytest.mark.sample(3)
    @pytest.mark.parametrize(
        ("depth", "value"),
        [
            ("struct", {"y": 20}),
            ("list", [{"y": 20}, {"y": 21}, None]),
            ("map", {"k": {"y": 20}}),
            ("struct in a struct", {"in": {"y": 20}}),
            ("list in a struct", {"a": 1, "in": [{"y": 20}]}),
        ],
    )
    def test_json_lines(self, make, tmp_path, depth, value):
        schema, kind, stored, _, path = DEPTHS[depth]
        table = make(schema, kind, stored)
        file = self.json(tmp_path, {"id": 1, "s": value}, {"id": 2, "s": None}, {"id": 3})
        refuses(table, path, lambda: self.upsert(table, file))

    def test_a_key_of_another_object(self, make, tmp_path):
        table = make()
        self.upsert(table, self.json(tmp_path, {"id": 1, "s": {"y": 20}}), self.json(tmp_path, {"id": 2, "s": ROW}))
        assert values(table) == [{"x": None, "y": 20}, ROW]

    @pytest.mark.costly
    def test_an_object_without_keys_is_a_column_that_is_missing(self, make, tmp_path):
        table = make()
        with pytest.raises(InvalidInputError, match="which lacks 's'"):
            self.upsert(table, self.json(tmp_path, {"id": 1, "s": {}}))

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
    def test_other_formats(self, make, tmp_path, file_format):
        table, path = make(), tmp_path / f"in.{file_format}"
        if file_format == "parquet":
            pq.write_table(rows_of({"y": 20}), path)
        elif file_format == "orc":
            from pyarrow import orc

            orc.write_table(rows_of({"y": 20}), str(path))
        else:
            import fastavro

            inner = {"type": "record", "name": "s", "fields": [{"name": "y", "type": "int"}]}
            fields = [{"name": "id", "type": "long"}, {"name": "s", "type": inner}]
            with path.open("wb") as stream:
                fastavro.writer(stream, {"type": "record", "name": "r", "fields": fields}, [{"id": 1, "s": {"y": 20}}])
        refuses(table, "s.x", lambda: self.upsert(table, str(path)))

    @pytest.mark.costly
    def test_files_of_several_formats(self, make, tmp_path):
        table, path = make(), tmp_path / "in.parquet"
        pq.write_table(rows_of({"x": 5}, 2), path)
        self.upsert(table, self.json(tmp_path, {"id": 1, "s": {"y": 20}}), str(path))
        assert values(table) == [{"x": None, "y": 20}, {"x": 5, "y": None}]

    @pytest.mark.costly
    def test_a_query(self, make):
        table = make()
        source = Source.from_sql("select 1 as id, {'y': 20} as s", dialect="duckdb")
        request = MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")
        refuses(table, "s.x", lambda: merge(job_work(table), request))


class TestStoreAssignment:
    """An assignment cuts or rounds a number, as in Spark, whatever its column is called and wherever it comes from."""

    @pytest.fixture
    def table(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "i": "int", "m": "decimal(9, 2)", "l": "list<int>"})
        table.append(pa.table({"id": [1], "i": pa.array([0], pa.int32())}))
        return table

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("names", [("i", "m", "l"), ("a", "b", "c")])
    @pytest.mark.parametrize("kind", ["rows", "parquet", "query"])
    def test_by_any_name(self, table, tmp_path, names, kind):
        i, m, list_ = names
        rows = pa.table({"id": [1], i: [1.6], m: [Decimal("1.005")], list_: [[2.9, None]]})
        if kind == "rows":
            source = rows
        elif kind == "parquet":
            pq.write_table(rows, tmp_path / "in.parquet")
            source = Source.from_files([str(tmp_path / "in.parquet")])
        else:
            text = f"select 1 as id, 1.6::double as {i}, 1.005 as {m}, [2.9, null] as {list_}"
            source = Source.from_sql(text, dialect="duckdb")
        clauses = f"{UPDATE} i = source.{i}, m = source.{m}, l = source.{list_}"
        merge(job_work(table), MergeRequest(rows=source, on=["id"], clauses=clauses, dialect="duckdb"))
        (row,) = table.refresh().scan().to_arrow().to_pylist()
        assert row == {"id": 1, "i": 1, "m": Decimal("1.01"), "l": [2, None]}

    def test_sql_sees_what_is_sent(self, table):
        rows = pa.table({"id": [1, 2], "i": [1.6, 1.4]})
        clauses = f"when matched and source.i > 1.5 then update set i = source.i * 10 {INSERT} (id, i) values (id, i)"
        table.merge(rows, ["id"], clauses)
        assert table.scan().to_arrow().sort_by("id")["i"].to_pylist() == [16, 1]

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("kind", ["rows", "query"])
    def test_the_key_of_an_upsert_is_not_rounded(self, table, kind):
        """The row would get a key by which it did not match."""
        rows = pa.table({"id": [1.6], "i": [5], "m": [None], "l": [None]})
        text = "select 1.6 as id, 5 as i, null as m, null as l"
        source = rows if kind == "rows" else Source.from_sql(text, dialect="duckdb")
        with pytest.raises(InvalidInputError, match=r"'id'.*1\.6"):
            merge(job_work(table), MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb"))

    @pytest.mark.costly
    def test_whole_numbers_are_keys(self, table):
        text = "select 1.0::double as id, 5 as i, null as m, null as l"
        source = Source.from_sql(text, dialect="duckdb")
        merge(job_work(table), MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb"))
        table.refresh().upsert(pa.table({"id": [2.0], "i": [6], "m": [None], "l": [None]}), ["id"])
        assert table.scan().to_arrow().sort_by("id")["i"].to_pylist() == [5, 6]
