"""What a query of DuckDB does in each version of DuckDB: the same rows, streamed, and an end when its task ends.

`make test-versions` runs this with each of them.
"""

import contextlib
import re
import signal
import warnings
from contextlib import contextmanager
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import MATCHED, UPDATE, MergeClause
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.duckdb import statement
from airflow_iceberg.jobs.duckdb.reader import Reader
from airflow_iceberg.jobs.duckdb.statement import one_query
from airflow_iceberg.jobs.duckdb.struct_casts import check_struct_casts
from airflow_iceberg.table import Table
from tests.operations.test_inputs import Writer

IS_2 = duckdb.__version__ >= "2"


@pytest.fixture
def catalog(tmp_path):
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("s")
    for name in "first", "second":
        table = Table.create(catalog, f"s.{name}", schema={"id": "long", "text": "string"})
        table.append(pa.table({"id": range(10_000), "text": [f"x{n}" for n in range(10_000)]}))
    return catalog


def writer(catalog, inputs=(), **columns):
    table = Table.create(catalog, "s.t", schema=columns or {"id": "long"})
    writer = Writer(catalog, **{name: f"s.{name}" for name in inputs})
    writer.table = table
    return writer


def rows(writer):
    return writer.table.refresh().scan().to_arrow().to_pylist()


class Counted:
    """Rows that DuckDB asks for; says how many batches it took."""

    def __init__(self, batches, rows=10_000):
        self.batches, self.rows, self.taken = batches, rows, 0

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pa.schema({"id": pa.int64()})
        return pa.RecordBatchReader.from_batches(schema, self.made()).__arrow_c_stream__(requested_schema)

    def made(self):
        for number in range(self.batches):
            self.taken += 1
            first = number * self.rows
            yield pa.record_batch({"id": np.arange(first, first + self.rows)})


@pytest.fixture
def connection():
    with duckdb.connect(config={"threads": "2", "python_enable_replacements": "false"}) as connection:
        yield connection


class TestStreaming:
    """No version collects or copies the rows of a query, with values for its placeholders or without."""

    @pytest.mark.parametrize("args", [{}, {"least": 10}])
    def test_rows_come_before_all_are_read(self, connection, args):
        source = Counted(batches=400)
        connection.register("numbers", source)
        query = f"select id, id + 1 as id from numbers where id >= {'$least' if args else 10}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader = Reader.open(duckdb, connection, query, args)
            assert reader.schema.names == ["id", "id"]
            batches = iter(reader)
            assert next(batches)[0][0].as_py() == 10
            assert source.taken < 200
            count = 1 + sum(1 for _ in batches)
        assert source.taken == 400
        assert count > 1

    def test_the_order_of_rows_is_kept(self, connection):
        connection.register("numbers", Counted(batches=50, rows=1_000))
        query = "select id from numbers where id % 7 <> 0 union all select id + 50000 from numbers where id % 5 = 0"
        found = [value for batch in Reader.open(duckdb, connection, query, {}) for value in batch[0].to_pylist()]
        assert found == sorted(found)
        assert len(found) == sum(n % 7 != 0 for n in range(50_000)) + 10_000

    def test_a_reader_that_is_left(self, connection):
        connection.register("numbers", Counted(batches=400))
        assert next(iter(Reader.open(duckdb, connection, "select id from numbers", {}))).num_rows


class Ended(BaseException):
    """What ends the task: its timeout, or a person."""


@contextmanager
def ended_after(seconds):
    def end(*_):
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class TestTheEndOfATask:
    """A signal ends a query wherever it is, and is told by what it raised; DuckDB 2 itself looks at no signal."""

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("query", [
        "select count(*)::bigint as id from range(1000000000000) r(n) where hash(n) % 5 = 1",
        pytest.param("select n as id from range(1000000000000) r(n) where hash(n) = 1", marks=pytest.mark.costly),
        pytest.param(
            "select sum(a.id)::bigint as id from first a, first b, first c where (a.id + b.id + c.id) % 7 = 1",
            marks=pytest.mark.costly,
        ),
    ], ids=["before the first row", "between rows", "of inputs"])  # fmt: skip
    def test_in_a_query(self, catalog, query):
        task = writer(catalog, ["first"] if "first" in query else ())
        with ended_after(0.3), pytest.raises(Ended):
            task.append(query)
        assert task.table.refresh().current_snapshot() is None

    @pytest.mark.timeout(60)
    def test_between_batches(self, connection):
        connection.register("numbers", Counted(batches=10**9))
        reader = Reader.open(duckdb, connection, "select id from numbers", {})
        with ended_after(0.3), pytest.raises(Ended):
            for _ in reader:
                pass


class TestErrors:
    """They are those of the query, and of the rows that it reads; rows that it does not need are no error."""

    def test_an_input_that_is_not_read_to_its_end(self, catalog):
        task = writer(catalog, ["first", "second"])
        with pytest.raises(InvalidInputError, match=r"DuckDB cannot run the query: Conversion Error: .*'x"):
            task.append("select text::bigint as id from second where exists (select 1 from first limit 1)")

    @pytest.mark.parametrize("query", ["pragma version", "connect 'x'", "disconnect", "pivot first on id"])
    def test_what_is_no_query_in_some_version(self, connection, query):
        connection.execute("create temp view first as select 1 as id")
        known = ("pragma", "pivot")
        with pytest.raises(
            InvalidInputError if IS_2 or query.startswith(known) else duckdb.ParserException,
            match=r"expected one query that returns rows|syntax error",
        ):
            one_query(connection, query)

    @pytest.mark.costly
    def test_a_division_by_zero(self, catalog):
        """It is null in 1.5, and an error from 2.0 on: a change of DuckDB's SQL, which is passed on."""
        task = writer(catalog)
        if IS_2:
            with pytest.raises(InvalidInputError, match="Division by zero"):
                task.append("select 1 // 0 as id")
        else:
            task.append("select 1 // 0 as id")
            assert rows(task) == [{"id": None}]


class TestFunctionsThatReadMemory:
    """However deep they are in a query, and whatever its texts look like."""

    @pytest.mark.parametrize("depth", [1, 100, 450])
    def test_in_a_deep_query(self, connection, depth):
        query = "select * from (" * depth + "select * from Pandas_Scan(0)" + ")" * depth
        with pytest.raises(InvalidInputError, match=r"sql reads rows of the function pandas_scan\(\)"):
            one_query(connection, query)

    @pytest.mark.parametrize(
        "query",
        [
            f"select {'1 + ' * 900}1 as id",
            'select \'"type":"TABLE_FUNCTION","function_name":"pandas_scan"\' as "type" from range(3)',
            'select "function_name" from repeat(\'"function_name":"pandas_scan"\', 2) r("function_name")',
            'select * from range(3) as "TABLE_FUNCTION" tablesample 10 percent',
        ],
    )
    def test_none(self, connection, query):
        assert one_query(connection, query) is not None

    @pytest.mark.parametrize(
        "source",
        [
            "pandas_scan(0) tablesample 10 percent",
            "pandas_scan((select max(range) from range(3)))",
            "range(len([1])), lateral (from pandas_scan(0))",
            '"PANDAS_SCAN"(0) as "function_name"',
            "system.main.pandas_scan(0)",
        ],
    )
    def test_one(self, connection, source):
        with pytest.raises(InvalidInputError, match=r"pandas_scan\(\)"):
            one_query(connection, f'select \'"function_name":"range"\' from {source}')


class TestWhatIsNotChecked:
    """Is not run: a function that plans SQL in a text, what DuckDB shows of itself, a statement that is cut."""

    def test_nothing_that_is_hidden_in_a_query(self, connection):
        connection.execute("create temp view orders as select 1 as id; create temp view columns as select 2 as id")
        wrong = {
            # Its plan calls the function, with an address that ends the process.
            "select json_serialize_plan('select * from pandas_scan(null)')": r"json_serialize_plan\(\)",
            "select main.\"JSON_Serialize_Plan\"(t) from (select 'from pandas_scan(null)' as t)": "json_serialize_plan",
            "select [x.json_serialize_plan() for x in ['from pandas_scan(null)']]": r"json_serialize_plan\(\)",
            "from range(json_serialize_plan('from pandas_scan(null)')::int)": r"json_serialize_plan\(\)",
            "select id from orders limit (select len(json_serialize_plan('x')))": r"json_serialize_plan\(\)",
            "from json_execute_serialized_sql(json_serialize_sql('from x'))": "json_execute_serialized_sql",
            "from query('from pandas_scan(null)')": r"query\(\)",
            "from query_table('sqlite_master')": r"query_table\(\)",
            "from (from pragma_database_size())": r"pragma_database_size\(\)",
            "from histogram(orders, id)": r"histogram\(\)",
            "pivot (from pragma_version()) on library_version in ('x') using count(*)": r"pragma_version\(\)",
            "select 1 where exists (with x as materialized (from duckdb_settings()) from x)": r"duckdb_settings\(\)",
            "from sqlite_master": "reads 'sqlite_master', which DuckDB has of its own",
            "from Pragma_Database_List": "reads 'pragma_database_list', which",
            "from information_schema.columns": "reads 'columns', which",
            "from pg_class": "reads 'pg_class', which",
            "with sqlite_master as (select 1) from (from sqlite_master)": "reads 'sqlite_master', which",
            "describe sqlite_master": "reads 'sqlite_master', which",
            "from (show all tables)": "reads '__show_tables_expanded', which",
            "show tables": "which DuckDB has of its own",
            "select 1 \0 from pandas_scan(null)": "sql has a NUL character",
            "execute x": "sql is execute, expected",
            "call pragma_version()": "sql is call, expected|syntax error",
            "create macro f() as table from pandas_scan(null)": "sql is create, expected",
            "pragma database_list": "expected one query",
        }
        passed = {}
        for query, message in wrong.items():
            with contextlib.suppress(duckdb.ParserException):
                try:
                    one_query(connection, query)
                except InvalidInputError as error:
                    if not re.search(message, str(error)):
                        passed[query] = str(error)
                else:
                    passed[query] = "is run"
        assert passed == {}

    def test_what_a_query_may_do(self, connection):
        connection.execute("create temp view orders as select 1 as id; create temp view columns as select 2 as id")
        for query in [
            "from orders left join columns using (id)",
            "with t as materialized (from orders) select (select max(id) from t), row_number() over () from t",
            "pivot orders on id in (1, 2) using sum(id)",
            "with recursive t as (select 1 as a union all select a + 1 from t where a < 3) from t",
            "from (values (1, 'a')) t(a, b) union all by name select 2 as a",
            "select histogram(id), list_transform([id], lambda x: x + 1), {'type': id} from orders group by id",
            "summarize orders",
        ]:
            assert connection.execute(one_query(connection, query)).fetchall(), query

    @pytest.mark.parametrize("end", ["", "}", "}]", '"'])
    def test_a_document_that_is_cut(self, connection, end):
        whole = statement._document(connection, "select * from (select * from range(3))")
        assert len(statement._objects(whole)) > 5
        for cut in range(20, len(whole) - 20, 97):
            with pytest.raises(InvalidInputError, match="DuckDB does not say all"):
                statement._objects(whole[:cut] + end)

    @pytest.mark.parametrize("kind", ["NEW_TABLE", ""])
    def test_a_kind_of_table_that_is_not_known(self, connection, kind, monkeypatch):
        document = statement._document(connection, "select * from (values (1))")
        monkeypatch.setattr(statement, "_document", lambda *_: document.replace("EXPRESSION_LIST", kind))
        with pytest.raises(InvalidInputError, match=f"sql reads rows of the kind '{kind}'"):
            one_query(connection, "select * from (values (1))")

    def test_the_plan_of_a_value_of_a_merge(self):
        """It is made before the query is run."""
        text = "(select {'a': 1} from pandas_scan(null))"
        clause = MergeClause(rows=MATCHED, action=UPDATE, columns=("s",), expressions=(text,))
        inner = t.NestedField(id=2, name="a", type=t.IntegerType())
        schema = Schema((t.NestedField(id=1, name="s", type=t.StructType(fields=(inner,))),))
        side = pa.schema([("s", pa.struct([("a", pa.int32())]))])
        with pytest.raises(InvalidInputError, match=r"pandas_scan\(\)"):
            check_struct_casts([clause], schema=schema, sides={"target": side}, inputs={}, values={})


class TestValues:
    """A value of a placeholder is that value."""

    def test_decimals(self, catalog):
        given = [Decimal(text) for text in ["1E+5", "-2.5E+3", "0E+2", "1.50", "-0.001", "1E-8"]]
        task = writer(catalog, n="decimal(20, 8)", m="list<decimal(20, 8)>")
        task.append("select $n as n, $m as m", {"n": given[0], "m": given})
        assert rows(task) == [{"n": given[0], "m": given}]

    def test_text_is_no_sql(self, catalog):
        task = writer(catalog, t="string")
        task.append("select $t as t where $t <> $u", {"t": "' or 1 = 1; --", "u": "$t"})
        assert rows(task) == [{"t": "' or 1 = 1; --"}]

    def test_nulls_without_a_type(self, catalog):
        task = writer(catalog, a="list<string>", b="struct<a: string, b: int>", c="map<string, double>", d="string")
        task.append("select [null] as a, {'a': null, 'b': 1} as b, map(['x'], [null]) as c, null as d")
        assert rows(task) == [{"a": [None], "b": {"a": None, "b": 1}, "c": [("x", None)], "d": None}]
