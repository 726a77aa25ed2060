"""Statements of MERGE, UPDATE and DELETE as people write them, on Spark and in DuckDB, against Iceberg Java's rows.

Not here: generated statements (`test_same_merges_as_java`, `test_same_deletes_as_java`).
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.histories import counted
from tests.support.jobs_on_spark import runs
from tests.support.merge_cases import DUCKDB, SPARK
from tests.support.spark_programs import SPARK_4

COLUMNS = {
    "id": "long",
    "k": "string",
    "n": "int",
    "amount": "decimal(9, 2)",
    "at": "timestamptz",
    "day": "date",
    "st": "struct<a: int, B: string, deep: struct<x: double, y: int>>",
    "tags": "list<string>",
    "order": "int",
    "Größe m²": "string",
}
LAYOUTS = [
    ("1", "copy-on-write", []),
    ("2", "merge-on-read", ["k"]),
    ("3", "copy-on-write", ["bucket(3, id)", "day(day)"]),
    ("3", "merge-on-read", ["month(day)"]),
]
ZONE = dt.UTC
NO = {"a": None, "B": None, "deep": None}


def row(number, **more):
    known = {
        "id": number,
        "k": None if number % 7 == 3 else f"k{number % 5}",
        "n": None if number % 4 == 2 else number * 3 % 10,
        "amount": None if number % 6 == 5 else Decimal(number * 101 % 500) / 100,
        "at": dt.datetime(2026, 3, 28 + number % 3, number % 24, 30, tzinfo=ZONE),
        "day": dt.date(2026, 1, 25) + dt.timedelta(days=number),
        "st": None if number % 5 == 4 else {"a": number, "B": f"b{number}", "deep": {"x": number / 4, "y": number}},
        "tags": [None, [], ["x"], ["x", None, "y"]][number % 4],
        "order": number % 3,
        "Größe m²": f"it's {number}",
    }
    return {**known, **more}


ROWS = [[row(n) for n in range(8)], [row(n) for n in range(8, 16)], [row(n) for n in range(4)], [row(20, id=None)]]
SOURCE = [
    {"id": 2, "k": "k2", "n": 7, "amount": Decimal("1.50"), "op": "u"},
    {"id": 3, "k": None, "n": None, "amount": Decimal("2.505"), "op": "d"},
    {"id": 9, "k": "K9", "n": 1, "amount": None, "op": None},
    {"id": 11, "k": "k1", "n": 5, "amount": Decimal("-3.00"), "op": "u"},
    {"id": 40, "k": "k0", "n": 2, "amount": Decimal("9.99"), "op": "i"},
    {"id": None, "k": "k3", "n": 4, "amount": Decimal("0.01"), "op": "i"},
]
SOURCE_SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("n", pa.int32()), ("amount", pa.decimal128(9, 3)), ("op", pa.string())]
)
SRC = "select * from src"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement in Spark's SQL, and in DuckDB's where that is another.

    Attributes:
        duckdb: texts of the Spark form, with what DuckDB calls them; None if DuckDB cannot.
    """

    source: str = SRC
    on: str = "target.id = source.id"
    clauses: str = ""
    set: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    duckdb: Mapping[str, str] | None = field(default_factory=dict)

    def text(self, text, dialect):
        for ours, theirs in (self.duckdb or {}).items() if dialect == DUCKDB else ():
            text = text.replace(ours, theirs)
        return text


ALL = "when not matched then insert (id, k, n) values (source.id, source.k, source.n)"
TICKS = {"`": '"'}
STATEMENTS = {
    "several matched clauses": Statement(
        clauses="when matched and source.op = 'd' then delete "
        "when matched and target.n is null then update set n = source.n, k = coalesce(source.k, target.k) "
        f"when matched then update set n = target.n + source.n, amount = source.amount * 2 {ALL}"
    ),
    "all five clauses": Statement(
        clauses="when matched and source.op = 'd' then delete when matched then update set k = source.k "
        "when not matched and source.id > 20 then insert (id, n) values (source.id, -1) "
        "when not matched then insert (id, k) values (source.id, 'second') "
        "when not matched by source and target.n > 5 then delete "
        "when not matched by source then update set n = coalesce(target.n, 0) + 100"
    ),
    "only by source": Statement(clauses="when not matched by source then delete"),
    "a condition without keys": Statement(
        source="select * from src where id = 2",
        on="target.n > source.n",
        clauses="when matched then update set amount = target.amount + source.amount",
    ),
    "never": Statement(on="false", clauses=ALL),
    "a range": Statement(
        source="select 5 as lo, 7 as hi",
        on="target.id between source.lo and source.hi",
        clauses="when matched then update set n = source.hi - source.lo "
        "when not matched by source and target.id = 1 then delete",
    ),
    "null-safe": Statement(
        on="target.id <=> source.id",
        clauses=f"when matched then update set n = 99, k = source.k {ALL}",
        duckdb={"<=>": "is not distinct from"},
    ),
    "null-safe by a text": Statement(
        source="select k, max(id) as id, max(n) as n from src group by k",
        on="target.k <=> source.k and target.id < 4",
        clauses=f"when matched then update set n = source.n {ALL}",
        duckdb={"<=>": "is not distinct from"},
    ),
    "non-equal parts": Statement(
        on="target.id = source.id and target.n <= source.n and source.op is not null",
        clauses=f"when matched then update set n = 0 {ALL}",
    ),
    "a disjunction": Statement(
        source="select * from src where id in (2, 40)",
        on="target.id = source.id or target.id = source.id - 33",
        clauses="when matched then update set k = concat(target.k, '-', source.k)",
    ),
    "functions of both": Statement(
        on="lower(target.k) = lower(source.k) and abs(target.id - 9) < 2",
        clauses="when matched then update set k = upper(source.k) when not matched then insert (id) values (source.id)",
    ),
    "casts": Statement(
        source="select cast(id as string) as id, cast(n as double) + 0.6 as n from src",
        on="target.id = cast(source.id as bigint)",
        clauses="when matched then update set n = cast(source.n as int), k = source.id, amount = source.n",
        duckdb={"cast(source.n as int)": "cast(trunc(source.n) as int)"},
    ),
    "names in other cases": Statement(
        on="TARGET.Id = Source.ID",
        clauses="When Matched AND SOURCE.OP = 'd' Then Delete WHEN MATCHED THEN UPDATE SET N = Source.N, TARGET.K = 'x'"
        " When Not Matched Then Insert (ID, K) Values (SOURCE.ID, sOuRcE.k)",
    ),
    "quoted names": Statement(
        clauses="when matched then update set `Größe m²` = concat(target.`Größe m²`, '; when matched then delete'), "
        "`order` = target.`order` + 1 when not matched then insert (`id`, `order`, `Größe m²`) values "
        "(source.`id`, 5, 'then -- not a comment')",
        duckdb=TICKS,
    ),
    "comments and case": Statement(
        clauses="when matched /* when not matched then */ and case when source.op = 'd' then true else false end "
        "then delete -- the rest\nwhen matched then update set n = case when target.n > 3 then 1 "
        "when target.n is null then -1 end, k = source.k;"
    ),
    "partition columns": Statement(
        clauses="when matched and source.op = 'u' then update set k = 'moved', day = date '1969-12-31' "
        "when matched then update set k = null, day = null when not matched then insert (id, k, day) values "
        "(source.id, 'new', date '2026-01-31')"
    ),
    "a key that is changed": Statement(clauses="when matched then update set id = target.id + 1000"),
    "a struct": Statement(
        clauses="when matched and target.st.a > 2 then update set "
        "st = named_struct('a', source.n, 'B', target.st.B, 'deep', target.st.deep) "
        "when matched then update set st = null",
        duckdb={
            "named_struct('a', source.n, 'B', target.st.B, 'deep', target.st.deep)": "{'a': source.n, 'B': target.st.B,"
            " 'deep': target.st.deep}"
        },
    ),
    "a field of a struct": Statement(
        source="select * from src where id in (2, 3)",
        clauses="when matched then update set target.st.a = source.n, st.deep.y = target.st.a + 1",
    ),
    "fields by other cases": Statement(
        source="select * from src where id in (2, 3)",
        clauses="when matched and source.op = 'u' then update set ST.b = concat(target.st.b, '!'), n = 1 "
        "when matched then update set st.DEEP.X = 0.5",
    ),
    "a key in a struct": Statement(
        on="target.st.a = source.id",
        clauses="when matched then update set n = source.n when not matched then insert (id, n) values (source.id, 0)",
    ),
    "lists": Statement(
        clauses="when matched and array_contains(target.tags, 'y') then update set tags = array('z') "
        "when matched then update set tags = null when not matched then insert (id, tags) values (source.id, array())",
        duckdb={"array_contains": "list_contains", "array('z')": "['z']", "array()": "[]"},
    ),
    "times": Statement(
        on="target.id = source.id and target.at < timestamp '2026-03-30 00:00:00'",
        clauses="when matched then update set at = target.at + interval 1 hour, day = cast(target.at as date) "
        "when not matched then insert (id, at) values (source.id, timestamp '2026-03-29 02:30:00')",
    ),
    "decimals": Statement(
        clauses="when matched then update set amount = target.amount * source.amount / 3 "
        "when not matched then insert (id, amount) values (source.id, source.amount + 0.005)",
        duckdb={"target.amount * source.amount / 3": "cast(target.amount * source.amount as decimal(30, 10)) / 3"},
    ),
    "a query with parts": Statement(
        source="with a as (select id, n from src where n > 1 and id > 0), b as (select id, sum(n) as n from a group by "
        "id) select b.*, row_number() over (order by id) as place from b",
        clauses="when matched then update set n = source.place when not matched then insert (id, n) values "
        "(source.id, source.n * 10)",
    ),
    "rows that the source gives twice, deleted": Statement(
        source="select * from src union all select * from src", clauses="when matched then delete"
    ),
    "rows that the source gives twice, added": Statement(
        source="select * from src union all select * from src", clauses=ALL
    ),
    "one of two rows by a condition": Statement(
        source="select * from src union all select id, k, n, amount, 'x' from src",
        on="target.id = source.id and source.op = 'x'",
        clauses="when matched then update set n = 50",
    ),
    "star": Statement(
        source="select id, n, k, amount, cast(null as timestamp) as at, cast(null as date) as DAY, null as st, "
        "array('q') as tags, 1 as `order`, 'x' as `Größe m²`, 'left over' as more from src",
        clauses="when matched and target.n > 2 then update set * when not matched then insert *",
        duckdb=None,
    ),
    "defaults": Statement(
        clauses="when matched then update set n = default, k = DEFAULT "
        "when not matched then insert (id, n) values (source.id, default)"
    ),
    "an update": Statement(set={"n": "n + 1", "k": "k || n", "amount": "-amount"}, where="n % 2 = 1 or k is null"),
    "an update of all": Statement(set={"day": "null", "n": "id"}),
    "an update of fields": Statement(set={"st.a": "n", "st.deep.x": "st.a / 8.0"}, where="st is not null"),
    "an update of fields of nothing": Statement(set={"st.deep.y": "n + 0.75"}, where="st is null or st.a > 10"),
    "an update that swaps": Statement(set={"n": "`order`", "`order`": "n"}, where="id < 12", duckdb=TICKS),
    "an update by a subquery": Statement(
        set={"n": "0"}, where="exists (select 1 from src where src.id = target.id and src.n > 1)"
    ),
    "an update by a tuple": Statement(set={"n": "0"}, where="(id, k) in (select id, k from src)"),
    "a delete by a subquery": Statement(where="n > (select avg(n) from src) or id in (select id from src)"),
    "a delete by not in": Statement(where="id not in (select id from src where id is not null)"),
    "a delete by a function": Statement(where="substring(k, 2, 1) = '1' and year(day) = 2026 and amount <> n"),
    "a delete by fields": Statement(where="st.deep.y >= 3 and size(tags) > 0", duckdb={"size(": "len("}),
    "a delete of nothing": Statement(where="n / 2 = 1000 and cast(id as string) like '%x'"),
}


def arrow(rows):
    schema = {"id": pa.int64(), "k": pa.string(), "n": pa.int32(), "amount": pa.decimal128(9, 2)}
    schema |= {"at": pa.timestamp("us", "UTC"), "day": pa.date32()}
    schema["st"] = pa.struct(
        [("a", pa.int32()), ("B", pa.string()), ("deep", pa.struct([("x", pa.float64()), ("y", pa.int32())]))]
    )
    schema |= {"tags": pa.list_(pa.string()), "order": pa.int32(), "Größe m²": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema(list(schema.items())))


@pytest.fixture(scope="module")
def hostile(warehouse):
    catalog = load_catalog("ref", type="hadoop", warehouse=warehouse)
    catalog.create_namespace("hostile")
    src = Table.create(
        catalog,
        "hostile.src",
        schema={"id": "long", "k": "string", "n": "int"} | {"amount": "decimal(9, 3)", "op": "string"},
    )
    src.append(pa.Table.from_pylist(SOURCE, SOURCE_SCHEMA))
    return catalog


def made(catalog, name, layout):
    version, mode, partition_by = layout
    modes = {f"write.{command}.mode": mode for command in ("merge", "update", "delete")}
    given = {"format-version": version, "write.parquet.row-group-limit": "3", **modes}
    table = Table.create(catalog, f"hostile.{name}", schema=COLUMNS, partition_by=partition_by, properties=given)
    for rows in ROWS:
        table.append(arrow(rows))
    table.delete("id = 7")
    return table


def java_does(java, name, one):
    def theirs(text):
        return text.replace("from src", "from ref.hostile.src as src").replace("ref.hostile.src as src as", "src as")

    target = f"ref.hostile.{name}"
    if one.clauses:
        clauses = one.clauses.rstrip(";")
        java.sql(f"merge into {target} as target using ({theirs(one.source)}) as source on {one.on} {clauses}")
    elif one.set:
        values = ", ".join(f"{column} = {value}" for column, value in one.set.items())
        java.sql(f"update {target} as target set {values} where {theirs(one.where or 'true')}")
    else:
        java.sql(f"delete from {target} as target where {theirs(one.where)}")


def we_do(catalog, table, one, dialect, run=None):
    inputs = {"src": Input(open=lambda: Table.load(catalog, "hostile.src"))}
    work = Work(table, run=None if run is None else run(table))
    where = None if one.where is None else one.text(one.where, dialect)
    given = {
        "dialect": dialect,
        "inputs": inputs if "src" in f"{one.where} {one.source if one.clauses else ''}" else {},
    }
    if one.clauses:
        rows = Source.from_sql(one.text(one.source, dialect), dialect=dialect)
        clauses = one.text(one.clauses, dialect)
        return merge(work, MergeRequest(rows=rows, on=one.text(one.on, dialect), clauses=clauses, **given))
    if one.set:
        values = {one.text(name, dialect).strip('`"'): one.text(value, dialect) for name, value in one.set.items()}
        return update(work, UpdateRequest(set=values, where=where, **given))
    return delete(work, DeleteRequest(predicate=where, **given))


def rows_of(table):
    return counted(table.refresh().scan().to_arrow())


@pytest.fixture(scope="module")
def java_rows(java, hostile):
    """The rows that Java leaves, by statement and layout."""
    known = {}

    def rows(name, layout):
        if (name, layout) not in known:
            called = f"java_{list(STATEMENTS).index(name)}_{layout}"
            table = made(hostile, called, LAYOUTS[layout])
            java_does(java, called, STATEMENTS[name])
            known[name, layout] = rows_of(table)
        return known[name, layout]

    return rows


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement(java_rows, hostile, spark_of, name):
    number = list(STATEMENTS).index(name)
    layout = number % len(LAYOUTS)
    expected = java_rows(name, layout)
    ours = made(hostile, f"spark_{number}", LAYOUTS[layout])
    we_do(hostile, ours, STATEMENTS[name], SPARK, runs(spark_of(SPARK_4)))
    check(rows_of(ours), expected)
    if STATEMENTS[name].duckdb is not None:
        ours = made(hostile, f"duck_{number}", LAYOUTS[layout])
        we_do(hostile, ours, STATEMENTS[name], DUCKDB)
        check(rows_of(ours), expected)


def check(found, expected):
    assert Counter(found - expected) == Counter(expected - found) == Counter()
