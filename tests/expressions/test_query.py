"""What a query needs of its tables: never less than it uses, and in the usual cases no more."""

from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.queries.functions import NAMES
from airflow_iceberg.expressions.query import Statement, needs, needs_of_all, tables_of
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from tests.support.sampling import examples

SCHEMAS = {
    "orders": schema_from_shorthand({
        "id": "long", "status": "string", "day": "date", "who": "struct<name: string>", "amount": "decimal(9,2)",
        "f": "double",
    }),
    "rates": schema_from_shorthand({"id": "long", "rate": "double", "day": "date"}),
}  # fmt: skip
NUMBERS = {"numbers": schema_from_shorthand({"n": "int", "orders": "struct<id: long>"})}
ALL_OF_ORDERS = tuple(field.name for field in SCHEMAS["orders"].fields)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def of_orders(query, **params):
    need = needs(query, SCHEMAS, params=params, dialect="spark")["orders"]
    return need.columns, str(need.row_filter)


class TestColumns:
    """Those that the text names, wherever; all if the text does not say."""

    @pytest.mark.parametrize(("query", "columns"), [
        ("select id from orders", ("id",)),
        ("select upper(status) as day from orders group by 1", ("status",)),
        ("select who.name from orders", ("who",)),
        ("select o.ID from Orders o", ("id",)),
        ("select `status` from orders order by amount", ("status", "amount")),
        ("select id, sum(f) over (partition by status order by day) from orders", ("id", "status", "day", "f")),
        ("select transform(array(1), x -> x + amount) from orders", ("amount",)),
        ("select count(*) from orders", ("id",)),
        ("select * from orders", ALL_OF_ORDERS),
        ("select o.* from orders o join rates r on o.id = r.id", ALL_OF_ORDERS),
        ("with x as (select id, day from orders) select id from x", ("id", "day")),
        ("select status from orders join rates using (id, day)", ("id", "status", "day")),
        ("select rate from rates where exists (select 1 from orders where orders.id = rates.id)", ("id",)),
        ("select id from orders union all select amount from orders", ("id", "amount")),
        ("select id from (select * from orders)", ALL_OF_ORDERS),
        ("select id from orders qualify row_number() over (partition by day) = 1", ("id", "day")),
        ("select status from orders group by status having max(amount) > 3", ("status", "amount")),
    ])  # fmt: skip
    def test_named(self, query, columns):
        assert of_orders(query)[0] == columns

    @pytest.mark.parametrize("query", [
        "select struct(*) from orders",
        "select count(distinct *) from orders",
        "select * except (id) from orders",
        "select orders.id from orders natural join rates",
        "select orders.id from orders positional join rates",
        "select orders.id from orders asof join rates on orders.id = rates.id and orders.day >= rates.day",
        "select columns('i.*') from orders where id > 3",
        "select id from orders lateral view explode(array(1)) t as z",
        "select id from orders pivot (sum(amount) for status in ('a'))",
        "select id from orders tablesample (10 percent)",
        "select o from orders o",
        "select id, name from orders, catalog.people where people.id = orders.id",
        "select nope from orders",
        "with orders as (select 1 as id) select id from orders",
        "table orders",
        "selec id from orders",
        "select id from orders; select 1",
        "(" * 3000 + "select id from orders" + ")" * 3000,
    ], ids=range(18))  # fmt: skip
    def test_not_clear(self, query):
        assert of_orders(query) == (None, "true")

    # Functions for sqlglot, where engines look for a column first; columns where it sees a unit of time; arguments that
    # it leaves out.
    @pytest.mark.parametrize("dialect", ["duckdb", "spark"])
    @pytest.mark.parametrize(("query", "columns"), [
        ("select current_date from odd", ("current_date",)),
        ("select localtimestamp, current_timestamp from odd", ("current_timestamp", "localtimestamp")),
        ("select at from odd where current_date is null", ("current_date", "at")),
        ("select date_trunc(unit, at) from odd", ("unit", "at")),
        ("select trunc(at, unit) from odd", ("unit", "at")),
        ("select date_diff(unit, at, at) from odd", ("unit", "at")),
        ("select date_trunc('unit', at) from odd", ("at",)),
        ("select date_bin(interval 1 day, at, localtimestamp) from odd", ("localtimestamp", "at")),
        ("select time_bucket(interval 1 day, at, localtimestamp) from odd", ("localtimestamp", "at")),
        ("select percentile(at, 0.5, unit) from odd", ("unit", "at")),
        ("select max(at) from odd o group by date_trunc(o, at)", None),
        ("select (select max(date_trunc(unit, p.at)) from odd p) from rates", ("unit", "at")),
    ])  # fmt: skip
    def test_words_that_are_no_names_for_sqlglot(self, query, columns, dialect):
        names = ["current_date", "current_timestamp", "localtimestamp", "unit", "at", "more"]
        odd = schema_from_shorthand(dict.fromkeys(names, "string"))
        assert needs(query, SCHEMAS | {"odd": odd}, dialect=dialect)["odd"].columns == columns

    @pytest.mark.parametrize("dialect", ["duckdb", "spark"])
    def test_no_function_hides_an_argument(self, dialect):
        names = [f"c{at}" for at in range(5)]
        parser = sqlglot.Dialect.get_or_raise(dialect).parser_class
        for function in sorted(NAMES | {name.lower() for name in (*parser.FUNCTIONS, *parser.FUNCTION_PARSERS)}):
            for count in range(1, 6):
                query = f"select {function}({', '.join(names[:count])}) from t"
                found = needs(query, {"t": schema_from_shorthand(dict.fromkeys(names, "long"))}, dialect=dialect)
                assert set(found["t"].columns or names) >= set(names[:count]), query


class TestOnlyWhatIsNamedIsUnderstood:
    """A part of a text that the analysis does not know may read anything."""

    @pytest.mark.parametrize("query", [
        # joins in brackets
        "select count(*) from (orders o left join rates r on o.id = r.id) where o.status is null",
        "select count(*) from rates r left join (orders o join rates q on o.id = q.id) on o.id = r.id where o.id > 3",
        "select count(*) from (orders o full join rates r on o.id = r.id) where o.id is distinct from 3",
        "select count(*) from (orders) where id > 3",
        "select count(*) from rates r left join rates q join orders o on q.id = o.id on r.id = q.id where o.id > 3",
        # by number, and by pattern
        "select #2 from orders where id > 3",
        "select id from orders order by #2",
        "select *columns('a.*') from orders",
        "select columns(c -> c like 'i%') from orders",
        "select columns(*) from orders",
        "select * like 'i%' from orders",
        "select * exclude (id) from orders",
        "select * replace (1 as id) from orders",
        "select * rename (id as x) from orders",
        "select o.* exclude (id) from orders o",
        "select unpack(columns(*)) from orders",
        "select a from orders o(a, b)",
        # stars that are values
        "select hash(*) from orders",
        "select hash(o.*) from orders o",
        "select count(o.*) from orders o",
        "select id from orders where (orders.*) is null",
        # another way to a table, or more than one statement reads
        "select id from orders where id > 3 union all select id from main.orders",
        "select id from orders where id > 3 union all select id from temp.orders",
        "select id from orders where id > 3 union all select id from _rows_of_orders",
        "select id from orders where id > 3 and id in (select id from query('select id from orders'))",
        "select id from query_table('orders')",
        "select getvariable('x'), id from orders",
        # other sets and joins
        "select id from orders union by name select id from rates",
        "select distinct on (day) id from orders",
        "select id from orders using sample 3",
        "select id from orders, unnest([1]) u",
        "select id from orders, lateral (select 1)",
        "select id from orders cross join (values (1)) v(x)",
        "select id from orders fetch first 3 rows only",
        "with recursive t as (select id from orders) using key (id) select id from t",
        "pivot orders on day using sum(amount)",
        "select rowid from orders",
        "select an_unknown_function(id) from orders",
        "select main.hash(id) from orders",
        "select id.an_unknown_function() from orders",
        "select E'\\'' as x, id from orders",
        "select id from orders /* one /*+ two */ where id > 3 */",
    ])  # fmt: skip
    def test_of_duckdb(self, query):
        found = needs(query, SCHEMAS, dialect="duckdb")["orders"]
        assert (found.columns, str(found.row_filter)) == (None, "true")

    @pytest.mark.parametrize("query", [
        "select count(*) from (orders o left join rates r on o.id = r.id) where o.status is null",
        "select count(*) from rates r left join (orders o join rates q on o.id = q.id) on o.id = r.id where o.id > 3",
        "select xxhash64(*) from orders",
        "select to_json(struct(o.*)) from orders o",
        "select count(o.*) from orders o",
        "select `i.*` from orders",
        "select id from orders where status = \"day\"",  # a name, by a setting
        "select id from orders where status = '${x}'",
        "select identifier('day') from orders where id > 3",
        "select id from identifier('orders') where id > 3",
        "select id from orders where id > 3 union all select id from session.orders",
        "select id, input_file_name() from orders",
        "select explode(array(id)) from orders",
        "select id from orders lateral view explode(array(1)) t as z where id > 3",
        "select id from orders, range(3)",
        "select transform(id) using 'cat' as x from orders",
        "select inline(array(struct(o))) from orders o",
        "select id from orders -- x \\\n where id > 3",
        "select {{ id }} from orders",
        "select id from orders {# where id > 3 #}",
        # steps, whose order counts
        "from orders |> limit 2 |> where id > 3 |> select id",
        "from orders |> where id > 3",
    ])  # fmt: skip
    def test_of_spark(self, query):
        assert of_orders(query) == (None, "true")

    @pytest.mark.parametrize(("query", "row_filter"), [
        ("select to_json(o) from orders o where id > 3", "id > 3"),
        ("select md5(o::varchar) from orders o", "true"),
        ("select list(o) from orders o", "true"),
        ("select arg_max(o, id) from orders o where o.id > 3", "id > 3"),
        ("select o.id from orders o, rates r where o <> r", "true"),
        ("select o.id from orders o, rates r where o is not distinct from r and o.id > 3", "id > 3"),
        ("select id from orders where orders is null", "true"),
        ("select (o).id from orders o", "true"),
        ("select o['id'] from orders o", "true"),
        ("select id from orders o order by o", "true"),
        ("select id from orders group by orders, id", "true"),
        ("select count(distinct o) from orders o", "true"),
        ("select {'a': o} from orders o", "true"),
        ("select upper(o -> '$.id') from orders o", "true"),
        ("select list_transform([1], x -> o) from orders o", "true"),
        ("select (select r from (select o as r)) from orders o", "true"),
        ("select id from rates r where exists (select 1 from orders o where o = r)", "true"),
    ])  # fmt: skip
    def test_a_row_as_a_value_has_all_columns(self, query, row_filter):
        found = needs(query, SCHEMAS, dialect="duckdb")["orders"]
        assert (found.columns, str(found.row_filter)) == (None, row_filter)

    def test_but_those_of_the_other_table_are_the_named_ones(self):
        found = needs("select to_json(o), r.day from orders o join rates r on o.id = r.id", SCHEMAS, dialect="duckdb")
        assert found["rates"].columns == ("id", "day")

    def test_an_alias_may_be_used_twice(self):
        """DuckDB and Spark take it, where one of the two is not seen after its join."""
        query = (
            "select o.id from orders o {} rates x on o.id = x.id and x.rate > 1 join orders x on x.day = o.day "
            "where x.day > '2026-01-01'"
        )
        for dialect, join in (("duckdb", "anti join"), ("spark", "left anti join")):
            found = needs(query.format(join), SCHEMAS, dialect=dialect)
            assert (found["rates"].columns, str(found["rates"].row_filter)) == (("id", "rate", "day"), "true")
            assert (found["orders"].columns, str(found["orders"].row_filter)) == (("id", "day"), "true")

    @pytest.mark.parametrize("name", ["ıd", "\u0130D"])
    def test_names_that_an_engine_may_take_for_one(self, name):
        assert of_orders(f"select {name} from orders")[0] == ("id",)


class TestSeveralTexts:
    """A task reads what any of its texts needs."""

    def found(self, *statements):
        need = needs_of_all(statements, SCHEMAS)["orders"]
        return need.columns, str(need.row_filter)

    def statement(self, text, *over, **more):
        return Statement(text=text, dialect="spark", over=over, **more)

    def test_the_union(self):
        query = self.statement("select id from orders where id > 3")
        assert self.found(query, self.statement("select id from orders where day is null")) == (
            ("id", "day"), "id > 3 or day is null",
        )  # fmt: skip
        assert self.found(query, self.statement("select amount from orders")) == (("id", "amount"), "true")
        assert self.found(query, self.statement("select 1 from rates")) == (("id",), "id > 3")
        assert self.found(query, self.statement("selec 1")) == (None, "true")

    def test_expressions(self):
        over = ("target", "source")
        query = self.statement("select id from orders where id > 3")
        texts = ["(select max(amount) from orders where id > :low)", "target.id = source.id", "source.x + 1"]
        expressions = [self.statement(text, *over, params={"low": 2}) for text in texts]
        assert self.found(query, *expressions) == (("id", "amount"), "id > 3 or id > 2")
        assert self.found(query, self.statement("exists (select 1 from orders where id = source.id)", *over)) == (
            ("id",), "true",
        )  # fmt: skip

    @pytest.mark.parametrize(
        "text", ["(table orders)", "id in (table orders)", "id in (select id from (TABLE `orders`))"]
    )
    def test_a_table_as_a_query_is_read_whole(self, text):
        query = self.statement("select id from orders where id > 3")
        assert self.found(query, self.statement(text, "target", "source")) == (None, "true")

    @pytest.mark.parametrize("text", ["1 from orders, (select 2", "1), (2", "1) from target, source where (true"])
    def test_brackets_that_are_not_those_of_the_expression(self, text):
        assert self.found(self.statement("select id from orders"), self.statement(text, "target", "source")) == (
            None, "true",
        )  # fmt: skip

    def test_the_target_of_a_merge(self):
        def found(text, *more):
            return needs_of_all(
                [Statement(text=each, dialect="duckdb", over=("orders", "source")) for each in (text, *more)], SCHEMAS
            )["orders"].columns

        assert found("orders.id = source.id and source.day > 3") == ("id",)
        assert found("status || source.x", "upper(source.orders)") == ("status",)
        assert found("to_json(orders)") is None
        assert found("hash(orders.*)") is None

    def test_a_table_of_a_catalog_of_spark(self):
        for people in (
            "catalog.people",
            "spark_catalog.x.people",
            "parquet.`file:///a b/*.parquet` as people",
            "people",
        ):
            query = (
                f"select orders.id, people.name from orders join {people} on people.id = orders.id where orders.id > 3"
            )
            assert of_orders(query) == (("id",), "id > 3")
        assert of_orders("select orders.id from orders join x.orders as p on p.id = orders.id") == (None, "true")

    def test_a_table_that_is_not_known(self):
        """DuckDB has no others than those of the task; what it calls by another name may be one of them."""
        query = "select 1 from orders, source where orders.id > 3"
        assert str(needs(query, SCHEMAS, dialect="duckdb")["orders"].row_filter) == "true"
        assert str(needs(query, SCHEMAS, dialect="duckdb", others=["source"])["orders"].row_filter) == "id > 3"
        assert str(needs(query, SCHEMAS, dialect="spark")["orders"].row_filter) == "id > 3"


class TestRows:
    """What WHERE asks of one table, as far as rows can be left out before the joins."""

    @pytest.mark.parametrize(("where", "found"), [
        ("status = 'a' and id > 3", "status = 'a' and id > 3"),
        ("day >= '2026-01-02'", "day >= 20455"),
        ("day >= date '2026-01-02' and upper(status) = 'X'", "day >= 20455"),
        ("id = '5' and status <> :text", "id = 5 and status != 'x'"),
        ("status like 'a%' or id in (1, 2)", "startswith(status, 'a') or id in (1, 2)"),
        ("id in (1, 2) or status is null", "id in (1, 2) or status is null"),
        ("who.name = 'x'", "who.name = 'x'"),
        ("amount > 1.5 and not id = 4", "amount > Decimal('1.50') and id != 4"),
        ("day = :day and id = :id", "day = 20454 and id = 7"),
        ("(day = :day and (id = :id)) and upper(status) = 'X'", "day = 20454 and id = 7"),
        ("id in ('1', '-20') and day not in ('2026-01-01')", "id in (-20, 1) and day != 20454"),
    ])  # fmt: skip
    def test_pushed(self, where, found):
        assert of_orders(f"select * from orders where {where}", day=date(2026, 1, 1), id=7, text="x")[1] == found

    @pytest.mark.parametrize("where", [
        "f > 1",  # compared with other precisions
        "id = 9.007199254740993e15",  # as floats, in which the next number is the same
        "id = cast(9007199254740993 as double)",
        "amount > :float",
        "day > '2026-1-2'",
        "day > '2026-01-02 10:00:00'",
        "status like 'a\\\\_b'",
        "status = 5",
        # Engines round such texts, or compare them as floats.
        "id >= '2.5'",
        "id = '1.5'",
        "amount = '1.5'",
        "id = true",
        "status = date '2026-01-01'",
        "status = 'it''s'",  # Spark 3.5 joins the two, Spark 4 does not
        # Spark compares a list with texts as texts.
        "id not in ('01', '2')",
        "id in ('-0')",
        "status in ('a', 5)",
        "id not in (2.0, '3')",
        "day not in (timestamp '2026-01-02', '2026-01-03')",
        "day > timestamp '2026-01-01 10:00:00'",
        "day > :moment",
        "status like :pattern",
        "id <= 9223372036854775808",  # Spark 4.2 finds nulls by it
        "id not in (-9223372036854775809, 1)",
        "amount >= -10000000.00",
        "id = (select max(id) from rates)",
        "id + 1 = 5",
        "rand() > 0.5",
        "id = :unknown",
    ])  # fmt: skip
    def test_not_pushed(self, where):
        assert of_orders(f"select id from orders where {where}", float=1.5, moment=NOON, pattern="a\\_b")[1] == "true"

    @pytest.mark.parametrize(("where", "found"), [
        ("n = '300000000'", "n = 300000000"),
        ("n is not distinct from '3000000000'", "true"),  # the text may be a null for Spark
        ("n in ('3000000000')", "true"),
    ])  # fmt: skip
    def test_texts_of_whole_numbers(self, where, found):
        need = needs(f"select n from numbers where {where}", NUMBERS, dialect="spark")
        assert str(need["numbers"].row_filter) == found

    def test_a_schema_before_a_table(self):
        """`numbers` may be the schema, or the table with a column `orders`."""
        query = "select n from numbers, orders where numbers.orders.id > 3"
        found = needs(query, SCHEMAS | NUMBERS, dialect="duckdb")
        assert (found["orders"].columns, str(found["orders"].row_filter)) == (("id",), "true")
        assert (found["numbers"].columns, str(found["numbers"].row_filter)) == (("n", "orders"), "true")
        found = needs("select main.orders from numbers as main, orders", SCHEMAS | NUMBERS, dialect="duckdb")
        assert found["orders"].columns is None

    @pytest.mark.parametrize(("joined", "found"), [
        ("orders join rates", "id > 3"),
        ("rates join orders", "id > 3"),
        ("orders left join rates", "id > 3"),
        ("orders left semi join rates", "id > 3"),
        ("orders left anti join rates", "id > 3"),
        ("rates left join orders", "true"),
        ("orders right join rates", "true"),
        ("orders full join rates", "true"),
        ("rates full join orders", "true"),
        ("rates left outer join orders", "true"),
        ("rates r left join rates on r.id = rates.id join orders", "id > 3"),
    ])  # fmt: skip
    def test_beside_a_join(self, joined, found):
        assert of_orders(f"select orders.id from {joined} on orders.id = rates.id where orders.id > 3")[1] == found

    def test_an_alias_is_not_the_column(self):
        assert of_orders("select day as status from orders where status = 'x'") == (("status", "day"), "status = 'x'")

    def test_every_reference_counts(self):
        query = "select id from orders where id > 5 union all select id from orders where id < 2"
        assert of_orders(query)[1] == "id > 5 or id < 2"
        assert of_orders("select id from orders where id > 5 union all select id from orders")[1] == "true"


def test_tables():
    assert tables_of("select 1 from A join db.b join (select * from c) on true", dialect="spark") == {"a", "c"}
    assert tables_of("selec 1", dialect="spark") is None


ROWS = {
    "orders": pa.table({
        "id": [1, 2, 3, None, 5], "status": ["a", "b", None, "a", "A"],
        "day": [date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 2), date(2026, 1, 3)],
        "who": [{"name": "x"}, None, {"name": None}, {"name": "y"}, {"name": "x"}],
        "amount": pa.array(
            [Decimal("1.50"), None, Decimal("2.00"), Decimal("-1.00"), Decimal("1.50")], pa.decimal128(9, 2)
        ),
        "f": [1.5, float("nan"), None, 0.0, -0.0],
    }),
    "rates": pa.table({
        "id": [1, 1, 3, None], "rate": [0.5, 1.0, None, 2.0],
        "day": [date(2026, 1, 1), None, date(2026, 1, 2), date(2026, 1, 1)],
    }),
}  # fmt: skip
CONDITIONS = st.sampled_from([
    *("o.id > 1", "o.status = 'a'", "o.status is null", "o.day <= '2026-01-02'", "o.amount = 1.5", "not o.id = 3"),
    *("o.who.name = 'x'", "o.f > 0", "r.id = 1", "r.day is null", "r.rate > 0.7", "o.id = r.id"),
    *("o.status in ('a', 'A')", "coalesce(o.id, 9) = 9", "(o.id = 1 or r.id = 3)", "(o.id = 1 or o.status = 'b')"),
    "o.day between '2026-01-01' and '2026-01-02'",
    "exists (select 1 from rates where rates.id = o.id and rates.rate > 0.6)",
    "o.id not in (select id from rates where id is not null)",
])  # fmt: skip
JOINS = st.sampled_from(["join", "left join", "right join", "full join"])
SELECTS = st.sampled_from(["o.id, r.rate", "o.status, count(*)", "*", "o.*", "count(*)", "max(o.amount), min(r.day)"])


def selected(table, row_filter):
    def read(column):
        array = table[column.path[0]].combine_chunks()
        for name in column.path[1:]:
            array = pc.struct_field(array, name)
        return array

    return table if str(row_filter) == "true" else table.filter(row_mask(row_filter, read))


def answer(query, tables):
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return sorted(map(repr, connection.execute(query).fetchall()))


@pytest.mark.costly
@given(st.lists(CONDITIONS, min_size=1, max_size=3), JOINS, SELECTS, st.booleans())
@examples(400)
def test_the_answer_is_that_over_all_rows_and_columns(conditions, join, select, is_twice):
    """The oracle is DuckDB itself, which gets what the query needs, and then everything."""
    query = f"select {select} from orders o {join} rates r on o.id = r.id where {' and '.join(conditions)}"
    query += " group by o.status" if "status, count" in select else ""
    query = f"{query} union all {query}" if is_twice else query
    found = needs(query, SCHEMAS, dialect="duckdb")
    narrow = {
        name: selected(table, found[name].row_filter).select(found[name].columns or table.column_names)
        for name, table in ROWS.items()
    }
    assert answer(query, narrow) == answer(query, ROWS)


RECURSIVE = (
    "with recursive t as (select id from orders where id = 1 union all "
    "select o.id from orders o join t on o.id = t.id + 1) select * from t"
)


@pytest.mark.parametrize("query", [
    "select o.id, r.rate from orders o asof join rates r on o.id >= r.id where r.rate > 0.7",
    "select o.id, r.rate from orders o positional join rates r where o.id > 1",
    "select columns('i.*') from orders where status = 'a'",
    "select id from orders qualify row_number() over (partition by status order by day desc) = 1",
    "select id from orders where id = 2.0e0",
    RECURSIVE,
    "select id, u from orders, unnest([amount, amount]) as x(u) where id < 3",
    "select id, x.z from orders o, (select o.amount as z) x where id > 1",
])  # fmt: skip
def test_so_it_is_for_queries_of_duckdb_s_own(query):
    found = needs(query, SCHEMAS, dialect="duckdb")
    narrow = {
        name: selected(table, found[name].row_filter).select(found[name].columns or table.column_names)
        for name, table in ROWS.items()
    }
    assert answer(query, narrow) == answer(query, ROWS)


@pytest.mark.parametrize("other", ["r.rate > 1", "o.f > 1", "o.id = r.id"])
@pytest.mark.parametrize("one", ["o.id > 1", "o.day <= '2026-01-02'", "o.status in ('a', 'A')"])
def test_a_part_is_pushed_beside_parts_that_are_not(one, other):
    """The property above would hold if nothing were pushed."""
    query = f"select o.id from orders o join rates r on o.id = r.id where {one} and {other}"
    assert str(needs(query, SCHEMAS, dialect="duckdb")["orders"].row_filter) != "true"
