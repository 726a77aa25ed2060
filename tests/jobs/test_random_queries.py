"""Random queries give the same rows over what is read of their inputs, and over the whole tables.

The oracle is the engine itself: it has the whole tables, and the same text. A query that it refuses, or that gives
other rows when the tables' rows are in another order, is none. `make stress` tries 2,000 others with each engine.
"""

import json
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.query import needs
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.duckdb_query import open_rows
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.changes import Consumer
from airflow_iceberg.operations.inputs.tables import Input, pin, pin_all
from airflow_iceberg.table import Table
from tests.support.random_queries import COLUMNS, RandomQueries, tables
from tests.support.sampling import ALL, SEED
from tests.support.spark_programs import SPARK_4

PROGRAM = Path(__file__).parent / "random_queries_program.py"
pytestmark = pytest.mark.timeout(0 if ALL else 600)
# Valid queries, and how many are tried for them.
COUNT = 2000 if ALL else 60
TRIES = range(COUNT * 3)
# So many are made and asked of Spark at once: no more of them than it takes, and a wrong one is told at once.
BATCH = 100
TABLES = tables()


def turned(table):
    return table.take(list(range(len(table)))[::-1])


def shown(rows):
    return sorted(repr(list(row.values())) for row in rows)


class Whole:
    """DuckDB with the whole tables."""

    def __init__(self, rows):
        self.connection = duckdb.connect(config={"threads": "1", "python_enable_replacements": "false"})
        self.connection.execute("set TimeZone = 'UTC'")
        for name, table in rows.items():
            self.connection.register("given", table)
            self.connection.execute(f"create temp table whole_{name} as select * from given")
            for view in (name, f"_rows_of_{name}"):
                self.connection.execute(f"create temp view {view} as select * from whole_{name}")
        self.connection.unregister("given")

    def answer(self, query):
        """Return the rows in any order; None if the query is none, or fails."""
        try:
            return shown(self.connection.execute(query).to_arrow_table().to_pylist())
        except (duckdb.Error, ValueError):
            return None


class Inputs:
    """Our tables, read as far as a query needs them."""

    def __init__(self, folder):
        catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
        catalog.create_namespace("s")
        self.tables = {}
        for name, rows in TABLES.items():
            table = self.tables[name] = Table.create(catalog, f"s.{name}", schema=COLUMNS[name])
            for start in range(0, len(rows), 4):
                table.append(rows.slice(start, 4))
        self.inputs = {name: Input(open=lambda table=table: table) for name, table in self.tables.items()}
        self.consumer = Consumer(table=self.tables["a"], branch="main", key=None, try_number=None)
        self.narrowed = Counter()

    def answer(self, query):
        """Return the rows in any order, over what is read; None if it fails."""
        source = Source.from_sql(query, dialect="duckdb")
        pinned = pin(self.inputs, source, self.consumer)
        count(self.narrowed, *((str(one.row_filter), one.selected_fields, one.schema) for one in pinned))
        return self.rows(source, pinned)

    def answer_over_all(self, query):
        """Return the rows over the whole tables, as we read them."""
        return self.rows(Source.from_sql(query, dialect="duckdb"), pin_all(self.inputs, self.consumer))

    def rows(self, source, pinned):
        access = {name: table.io for name, table in self.tables.items()}
        try:
            with open_rows(source, pinned, access, threads=1) as batches:
                return shown(row for batch in batches for row in batch.to_pylist())
        except IcebergError:
            return None


def count(narrowed, *tables):
    """Count the tables of which less is read."""
    for row_filter, columns, schema in tables:
        narrowed["rows"] += row_filter != "true"
        narrowed["columns"] += 0 < len(columns or ()) < len(schema.fields) and columns != ("*",)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return Inputs(tmp_path_factory.mktemp("inputs"))


# Most of them gave other rows once.
@pytest.mark.parametrize("query", [
    "select count(*) from (a left join b on a.id = b.id) where b.k is null",
    "select count(*) from c left join (a join b on a.id = b.k) on c.id = a.id where b.k is distinct from 3",
    "select count(*) from (c full join (a join b on a.id = b.k) on c.id = a.id) where a.k is null",
    "select a.k from a left join (b cross join c) on a.id = b.id where b.k is null",
    "select a.k from a left join b join c on b.id = c.id on a.id = b.id where c.k is null",
    "select to_json(o)::varchar from a o where o.id > 1",
    "select md5(o::varchar) from a o where id > 1",
    "select o.id from a o join a p on o.id = p.id where o <> p",
    "select o.id from a o join a p on o.id = p.id where o is not distinct from p",
    "select list_sort(list(o::varchar)) from a o",
    "select arg_max(o, k) from b o where id > 1",
    "select #3 from a where id > 1",
    "select id from a where n > 0 order by #1 + 0 desc limit 2",
    "select list_value(*columns('^i.*|k')) from a where n > 1",
    "select * like 'i%' from a where n > 1",
    "select o.k from a o anti join b x on o.id = x.x join c x on o.n = x.n and x.y > 0",
    "select o.k from a o semi join c x on o.id = x.o join b x on o.id = x.id where x.x > 1",
    "select k from a where id > 1 union all select k from temp.a",
    "select k from a where id > 1 union all select k from _rows_of_a",
])  # fmt: skip
def test_what_was_wrong(inputs, query):
    whole = Whole(TABLES)
    with closing(whole.connection):
        expected = whole.answer(query)
    assert expected is not None
    assert inputs.answer(query) == expected


@pytest.mark.generated
def test_with_duckdb(inputs):
    """The inputs are read as a task reads them."""
    whole, other = Whole(TABLES), Whole({name: turned(table) for name, table in TABLES.items()})
    valid = 0
    with closing(whole.connection), closing(other.connection):
        for number in TRIES:
            query = RandomQueries(random.Random(f"{SEED} {number}"), "duckdb").query()
            expected = whole.answer(query)
            if expected is None or other.answer(query) != expected:
                continue
            found = inputs.answer(query)
            if found == expected:
                valid += 1
            else:
                # Values whose order, or whose cast that fails, is up to the plan that the engine makes of a stream.
                assert found == inputs.answer_over_all(query), f"query {number} of seed {SEED}: {query}"
            if valid == COUNT:
                break
    assert valid == COUNT, f"{valid} of {len(TRIES)} queries are valid"
    # Where the text proves it, less is read.
    assert inputs.narrowed["rows"] > COUNT / 10
    assert inputs.narrowed["columns"] > COUNT / 4


# What changes how Spark reads a text, or compares values.
SETTINGS = (
    {},
    {},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.parser.quotedRegexColumnNames": "true"},
    {"spark.sql.caseSensitive": "true"},
)
SCHEMAS = {name: schema_from_shorthand(columns) for name, columns in COLUMNS.items()}
_TYPES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "list<long>": "array<bigint>"}
_TYPES["struct<name: string, id: long>"] = "struct<name: string, id: bigint>"


class TestWithSpark:
    """Spark is given the rows that our filter keeps, and the columns."""

    def literal(self, value, kind):
        if isinstance(value, dict):
            name, number = self.literal(value["name"], "string"), self.literal(value["id"], "long")
            text = f"named_struct('name', {name}, 'id', {number})"
        elif isinstance(value, list):
            text = f"array({', '.join(self.literal(one, 'long') for one in value)})"
        else:
            text = "null" if value is None else json.dumps(str(value).removesuffix("+00:00"))
        return f"cast({text} as {_TYPES.get(kind, kind)})"

    def text(self, name, *, step=1):
        """Return a query that makes the rows of a table, with their numbers; in this order or the other one."""
        kinds = COLUMNS[name]
        rows = [
            f"({number}, {', '.join(self.literal(row[column], kind) for column, kind in kinds.items())})"
            for number, row in enumerate(TABLES[name].to_pylist())
        ]
        return f"select * from values {', '.join(rows[::step])} as t(number, {', '.join(kinds)})"

    def read(self, name, need):
        """Return a query of what is read of a table."""
        table = TABLES[name]

        def values(column):
            array = table[column.path[0]].combine_chunks()
            for part in column.path[1:]:
                array = pc.struct_field(array, part)
            return array

        numbers = pa.array(range(len(table)))
        if need.row_filter is ALWAYS_FALSE:
            numbers = numbers[:0]
        elif need.row_filter is not ALWAYS_TRUE:
            numbers = numbers.filter(row_mask(need.row_filter, values))
        rows = ", ".join(map(str, [-1, *numbers.to_pylist()]))
        return f"select {', '.join(need.columns or COLUMNS[name])} from whole_{name} where number in ({rows})"

    def case(self, number, narrowed):
        dice = random.Random(f"{SEED} {number}")
        settings = dice.choice(SETTINGS)
        has_quotes = "spark.sql.ansi.doubleQuotedIdentifiers" in settings
        query = RandomQueries(dice, "spark", '"' if has_quotes else "`").query()
        found = needs(query, SCHEMAS, dialect="spark")
        count(narrowed, *((str(one.row_filter), one.columns, SCHEMAS[name]) for name, one in found.items()))
        return {
            "query": query,
            "settings": settings,
            "read": {name: self.read(name, one) for name, one in found.items()},
        }

    @pytest.mark.spark
    @pytest.mark.services
    @pytest.mark.generated
    def test_it(self, spark_of, tmp_path):
        narrowed, valid, tried = Counter(), 0, 0
        for start in range(0, len(TRIES), BATCH):
            cases = [self.case(number, narrowed) for number in TRIES[start : start + BATCH]]
            tried += len(cases)
            for number, (case, found) in enumerate(self.asked(cases, COUNT - valid, spark_of, tmp_path), start):
                if found is not None:
                    valid += 1
                    assert found[1] == found[0], f"query {number} of seed {SEED}, {case['settings']}: {case['query']}"
            if valid == COUNT:
                break
        assert valid == COUNT, f"{valid} of {tried} queries are valid"
        assert narrowed["rows"] > tried / 10
        assert narrowed["columns"] > tried / 4

    def asked(self, cases, count, spark_of, folder):
        """Return the cases with their answers, up to so many valid ones."""
        columns = {name: ", ".join(kinds) for name, kinds in COLUMNS.items()}
        asked = {
            "tables": {f"whole_{name}": self.text(name) for name in COLUMNS}
            | {f"turned_{name}": self.text(name, step=-1) for name in COLUMNS},
            "whole": {name: f"select {names} from whole_{name}" for name, names in columns.items()},
            "turned": {name: f"select {names} from turned_{name}" for name, names in columns.items()},
            "cases": cases,
            "count": count,
        }
        questions, answers = folder / "questions.json", folder / "answers.json"
        questions.write_text(json.dumps(asked))
        spark_of(SPARK_4).run(PROGRAM, str(questions), str(answers))
        return zip(cases, json.loads(answers.read_text()), strict=False)
