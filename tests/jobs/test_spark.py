from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import IcebergError, InvalidInputError, StorageError
from airflow_iceberg.expressions.binding import parse
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.protocol.plan import Condition, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import read_changed_files
from airflow_iceberg.jobs.protocol.table_input import read_work
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.changes import consumer_of
from airflow_iceberg.operations.inputs.tables import Input, check_inputs, pin
from airflow_iceberg.operations.row_changes import MERGE_ON_READ, plan_deletion, read_changes, write_delete_plan
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.jobs.builders import IO, data_files, files_below, make_plan, rows_of
from tests.jobs.submissions import HERE, VERSIONS, write_csv_files
from tests.operations.test_delete import make as make_table
from tests.support.builders import new_catalog
from tests.support.data_files import read_file
from tests.support.injections import INJECTIONS
from tests.support.spark_programs import SparkPrograms, is_spark_3
from tests.support.variants import decode, plain

EVERY_TYPE = {"b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "day": "date"}
EVERY_TYPE |= {"ts_tz": "timestamptz", "ts": "timestamp", "s": "string", "bin": "binary", "dec": "decimal(9,2)"}
EVERY_TYPE |= {"tags": "list<string>", "m": "map<string, int>", "p": "struct<x: double, y: list<long>>"}
ABSENT = {"v": "variant", "s": "struct<a: int not null>", "t": "struct<b: struct<u: uuid not null> not null>"}
VARIANTS = {"v": "variant", "l": "list<variant>", "s": "struct<v: variant>"}


def make_cases(root: Path) -> Mapping[str, JobPlan]:
    query = (
        "select id, concat('n', id) as name, date_add(DATE'2026-01-01', int(id % 5)) as day from range(0, 1000, 1, 4)"
    )
    value = "parse_json(if(id = 0, null, concat('{\"a\": [', id, ', null, \"x\"]}')))"
    variants = f"select id, {value} as v, array({value}) as l, named_struct('v', {value}) as s from range(0, 4, 1, 2)"
    wall = root / "wall"
    wall.write_text("a file where a directory should be")
    good = write_csv_files(root / "good")
    cases: dict[str, tuple[Source, dict[str, Any]]] = {
        "files": (good, {}),
        "files_by_day": (good, {"partition_by": ["day"]}),
        "sql": (Source.from_sql(query), {}),
        "sql_by_day": (Source.from_sql(query), {"partition_by": ["day"]}),
        "sql_direct": (Source.from_sql(query), {"partition_by": ["day"], "distribution_mode": "none"}),
        "sql_empty": (Source.from_sql("select 1L as id where 1 = 0"), {"partition_by": ["day"]}),
        "callable": (Source.from_callable("frames:seven"), {}),
        "types": (Source.from_callable("frames:every_type"), {"columns": EVERY_TYPE}),
        "zone": (Source.from_sql("select TIMESTAMP'2026-01-01 00:00:00' as ts"), {"columns": {"ts": "timestamptz"}}),
        "variant": (Source.from_sql(variants), {"columns": {"id": "long", **VARIANTS}, "format_version": 3}),
        "variant_by_id": (
            Source.from_sql(variants),
            {"columns": {"id": "long", **VARIANTS}, "format_version": 3, "partition_by": ["bucket(2, id)"]},
        ),
        "wrong_value": (write_csv_files(root / "wrong", wrong=7), {}),
        "wrong_value_by_day": (Source.from_files(f"{root}/wrong/*.csv"), {"partition_by": ["day"]}),
        "wrong_query_value": (Source.from_sql("select id, double(id) as name from range(9)"), {}),
        "no_text": (Source.from_sql("select id, if(id = 5, cast(X'fffe' as string), 'a') as name from range(9)"), {}),
        "no_text_by_day": (
            Source.from_sql("select 1L as id, cast(X'fffe' as string) as name, date'2026-01-01' as day"),
            {"partition_by": ["day"]},
        ),
        "null": (Source.from_sql("select if(id = 5, null, id) as id from range(9)"), {}),
        "absent_columns": (
            Source.from_sql("select id from range(3)"),
            {"columns": {"id": "long", **ABSENT}, "format_version": 3, "partition_by": ["bucket(2, id)"]},
        ),
        "missing_column": (Source.from_sql("select 'x' as name"), {}),
        "extra_column": (Source.from_sql("select 1L as id, 2 as more"), {}),
        "added_column": (Source.from_sql("select 1L as id, 2 as more"), {"last_column_id": 3}),
        "avro": (
            Source.from_sql("select id, string(id) as name, date '2026-01-01' + int(id % 2) as day from range(9)"),
            {"partition_by": ["day"], "properties": {"write.format.default": "avro"}},
        ),
        "checked_rows": (
            Source.from_sql("select id from range(9)"),
            {"row_check": Condition(text="id < 5", predicate=parse("id < 5"))},
        ),
        "bound": (injected_query(), {}),
        "bound_kinds": (bound_kinds(), {"columns": EVERY_TYPE}),
        "bound_list": (bound_list(), {}),
        "bound_decimals": (
            Source.from_sql("select :n as large, :m as small", {"n": Decimal("1E+5"), "m": Decimal("1E-3")}),
            {"columns": {"large": "decimal(9,2)", "small": "decimal(9,3)"}},
        ),
        "escaped": (Source.from_callable("frames:escaped"), {}),
        "syntax": (Source.from_sql("selec 1"), {}),
        "unknown_table": (Source.from_sql("select * from nowhere"), {}),
        "failing_query": (Source.from_sql("select raise_error('boom') as name, 1L as id"), {}),
        "raises": (Source.from_callable("frames:raises"), {}),
        "no_module": (Source.from_callable("nowhere:f"), {}),
        "no_function": (Source.from_callable("frames:nothing"), {}),
        "no_frame": (Source.from_callable("frames:no_frame"), {}),
        "unwritable": (good, {"data_location": f"file://{wall}/data"}),
        "unwritable_staging": (Source.from_sql(query), {"partition_by": ["day"]}),
    }
    plans = {name: make_plan(root / "tables" / name, source, **more) for name, (source, more) in cases.items()}
    for plan in plans.values():
        IO.create(plan.location, plan.to_json())
    IO.create(exchange.location(plans["unwritable_staging"]), b"a file where a directory should be")
    changes = {"delete": delete_plan(root / "lake"), **merge_plans(root / "merged")}
    return {**plans, **input_plans(root / "inputs"), **changes}


def input_plans(root: Path) -> Mapping[str, JobPlan]:
    """Return the plans of jobs that read tables, each at the snapshot before the last one."""
    root.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog("test", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
    catalog.create_namespace("s")
    columns = {"id": "long", "day": "date", "who": "struct<name: string>"}
    orders = Table.create(catalog, "s.`or.d``ers 5%`", schema=columns, partition_by=["day"])
    for number in range(1, 5):
        day = date(2026, 1, number)
        orders.append(pa.table({"id": [number, 10 + number], "day": [day] * 2, "who": [{"name": f"n{number}"}] * 2}))
    Table.create(catalog, "s.empty", schema={"id": "long"})
    pinned = orders.snapshots()[-2].snapshot_id
    inputs = {
        "orders": Input(open=lambda: Table.load(catalog, orders.name), snapshot_id=pinned),
        "empty": Input(open=lambda: Table.load(catalog, "s.empty")),
    }
    sources = {
        "input_query": Source.from_sql(
            "select o.id, o.who.name as name, o.day from orders o left anti join empty e on o.id = e.id "
            "where o.day >= :first and o.id < 10",
            {"first": date(2026, 1, 2)},
        ),
        "input_twice": Source.from_sql("select a.id from orders a join orders b on a.id = b.id + 10, (select 1) empty"),
        "input_callable": Source.from_callable("frames:without_the_rows_of"),
    }
    plans = {}
    for name, source in sources.items():
        read = {key: inputs[key] for key in (("orders",) if name == "input_twice" else inputs)}
        check_inputs(read, source)
        plans[name] = make_plan(root / name, source, inputs=pin(read, source, consumer_of(Work(orders), "main")))
        IO.create(plans[name].location, plans[name].to_json())
    return plans


def injected_query() -> Source:
    """Return a query that each of many texts would change if it became a part of the SQL; it selects its own texts."""
    texts = [*INJECTIONS, "x", "other", ""]
    each = " or ".join(f"(id = {number} and name = :v{number})" for number in range(len(INJECTIONS)))
    values = {f"v{number}": text for number, text in enumerate(texts)}
    rows = " union all ".join(f"select bigint({number}) as id, :v{number} as name" for number in range(len(texts)))
    return Source.from_sql(f"select * from ({rows}) where {each}", values)


def bound_list() -> Source:
    return Source.from_sql(
        "select bigint(pos) as id, col as name from (select posexplode(:tags))", {"tags": ["a", "b'"]}
    )


def bound_kinds() -> Source:
    """Return a query of values of every kind."""
    values = {"b": True, "l": 2**40, "d": 0.5, "day": date(2026, 1, 1), "s": "ä", "bin": b"\x00'", "none": None}
    values |= {"dec": Decimal("12.34"), "ts": datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))}
    return Source.from_sql(
        "select :b as b, int(:none) as i, :l as l, float(:d) as f, :d as d, :day as day, :ts as ts_tz, :s as s, "
        "cast(:day as timestamp_ntz) as ts, :bin as bin, cast(:dec as decimal(9, 2)) as dec, array(:s) as tags, "
        "map(:s, 1) as m, named_struct('x', :d, 'y', array(:l)) as p",
        values,
    )


def delete_plan(root: Path) -> JobPlan:
    """Return the plan of a delete of three rows of 40 in four files, as vectors."""
    table = make_table(new_catalog(root), 3, MERGE_ON_READ)
    deletion = plan_deletion(table.scan("id in (3, 4, 23)"))
    return write_delete_plan(Work(table), deletion, mode=MERGE_ON_READ)


def merge_plans(root: Path) -> Mapping[str, JobPlan]:
    """Return the plans of a merge, an update and a delete by SQL, of a table of 40 rows in four files."""
    catalog = new_catalog(root)
    table = make_table(
        catalog, 3, MERGE_ON_READ, **dict.fromkeys(("write.merge.mode", "write.update.mode"), MERGE_ON_READ)
    )
    plans: list[JobPlan] = []

    def keep(plan: JobPlan) -> JobResult:
        plans.append(plan)
        raise StorageError("it runs later")

    feed = (
        "select * from values (3L, 'z', 'u'), (4L, 'b', 'd'), (100L, 'new', 'u'), (null, 'x', 'd') as s(ID, part, op)"
    )
    clauses = """when matched and source.op = :gone then delete
        when matched then update set part = upper(source.part), d = target.d * 2
        when not matched and source.op <> 'd' then insert (id, part) values (source.id, source.part)"""
    words = MergeRequest(rows=Source.from_sql(feed), on=["id"], clauses=clauses, params={"gone": "d"})
    new = UpdateRequest(set={"part": "concat(part, :more)"}, where="pmod(id, 20) = 5", params={"more": "!"})
    catalog.create_namespace("s")
    Table.create(catalog, "s.gone", schema={"who": "long"}).append(pa.table({"who": [6, 26, 99]}))
    old = DeleteRequest(
        predicate="exists (select 1 from gone where gone.who = target.id) and length(part) > 0 and id > 10",
        dialect="spark",
        inputs={"gone": Input(open=lambda: Table.load(catalog, "s.gone"))},
    )
    for operation, request in ((merge, words), (update, new), (delete, old)):
        with suppress(StorageError):
            operation(Work(table, run=keep), request)
        IO.create(plans[-1].location, plans[-1].to_json())
    return dict(zip(("merge", "update", "delete_by_sql"), plans, strict=True))


class Ran:
    """All cases, run in one session of a version of Spark."""

    def __init__(self, spark: SparkPrograms, root: Path) -> None:
        self.version, self.plans = spark.version, make_cases(root)
        spark.run(HERE / "spark_program.py", *(plan.location for plan in self.plans.values()))

    def result(self, name: str) -> JobResult:
        plan = self.plans[name]
        return JobResult.from_json(IO.read(plan.result_location), path=plan.result_location)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return rows_of(self.plans[name], self.result(name))

    def partitions(self, name: str) -> Counter[Any]:
        return Counter(file.partition for file in data_files(self.plans[name], self.result(name)))

    def error(self, name: str) -> IcebergError:
        error = self.result(name).error
        assert error is not None
        return error.to_exception()


@pytest.fixture(scope="module", params=VERSIONS)
def ran(request, spark_of, tmp_path_factory):
    return Ran(spark_of(request.param), tmp_path_factory.mktemp(request.param))


class TestChanges:
    """Jobs that change what is there: rows that go, columns that come, rows that are held against a filter."""

    def test_rows_are_deleted(self, ran):
        plan = ran.plans["delete"]
        planned = {unit.file.file_path for item in read_work(IO, plan.task.table) for unit in item.units}
        changes = read_changes(IO, plan, ran.result("delete"), planned)
        assert sum(change.deleted_count for change in changes.changes) == 3
        assert [file.record_count for file in changes.written] == [1, 1, 1]
        assert all(file.is_deletion_vector for file in changes.written)

    def test_a_column_joins_the_schema(self, ran):
        schema = ran.result("added_column").schema
        assert schema is not None
        assert [(field.id, field.name) for field in schema.fields][-1] == (4, "more")
        assert ran.rows("added_column") == [{"id": 1, "name": None, "day": None, "more": 2}]

    def test_avro_files(self, ran):
        files = data_files(ran.plans["avro"], ran.result("avro"))
        assert {file.file_format for file in files} == {"avro"}
        schema = ran.plans["avro"].task.write.schema
        rows = [row for file in files for batch in read_file(IO, file, schema=schema) for row in batch.to_pylist()]
        assert sorted((row["id"], row["name"]) for row in rows) == [(number, str(number)) for number in range(9)]

    def test_rows_that_do_not_match_are_refused(self, ran):
        assert "of the query does not match the overwrite's filter 'id < 5': id is 5" in str(ran.error("checked_rows"))


class TestMerge:
    """Spark says which rows change, and what their new values are; the files are ours."""

    def written(self, ran: Ran, name: str) -> list[tuple[Any, ...]]:
        files = read_changed_files(ran.plans[name], ran.result(name).data_files)
        data = [file.file_path for file in files if file.content is FileContent.DATA]
        tables = [pq.read_table(path.removeprefix("file://"), partitioning=None) for path in data]
        rows = (row for table in tables for row in table.select(["id", "part", "d"]).to_pylist())
        return sorted(tuple(row.values()) for row in rows)

    def counts(self, ran: Ran, name: str) -> tuple[int, int, int]:
        result = ran.result(name)
        result.raise_for_error()
        deleted = sum(change.deleted_count for change in result.changes)
        return result.inserted_count, sum(change.updated_count for change in result.changes), deleted

    def test_a_merge(self, ran):
        assert self.counts(ran, "merge") == (1, 1, 1)
        assert self.written(ran, "merge") == [(3, "Z", 6.0), (100, "new", None)]

    def test_an_update(self, ran):
        assert self.counts(ran, "update") == (0, 2, 0)
        assert self.written(ran, "update") == [(5, "b!", 5.0), (25, "b!", 25.0)]

    def test_a_delete_with_a_subquery(self, ran):
        assert self.counts(ran, "delete_by_sql") == (0, 0, 1)
        assert self.written(ran, "delete_by_sql") == []
        assert str(ran.plans["delete_by_sql"].task.target.row_filter) == "id > 10"


class TestInputs:
    """Tables that a query reads as views, and a callable gets as arguments, at the snapshot of the plan."""

    def test_of_a_query(self, ran):
        rows = sorted(ran.rows("input_query"), key=lambda row: row["id"])
        assert rows == [{"id": n, "name": f"n{n}", "day": date(2026, 1, n)} for n in (2, 3)]
        (orders, _) = ran.plans["input_query"].inputs
        assert (orders.selected_fields, str(orders.row_filter)) == (("id", "day", "who"), "day >= 20455 and id < 10")

    def test_more_than_once(self, ran):
        assert sorted(row["id"] for row in ran.rows("input_twice")) == [11, 12, 13]

    def test_of_a_callable(self, ran):
        assert sorted(row["id"] for row in ran.rows("input_callable")) == [1, 2, 3, 11, 12, 13]


class TestSuccess:
    """A job stages all rows of its source once, whatever the source; the core comes to the workers as a zip."""

    def test_files(self, ran):
        assert sorted(row["id"] for row in ran.rows("files")) == [*range(12), *range(100, 112)]
        assert ran.result("files").source_files == 12
        assert ran.result("files").engine.startswith("spark ")

    @pytest.mark.parametrize("name", ["files_by_day", "sql_by_day"])
    def test_a_partition_is_one_file(self, ran, name):
        assert set(ran.partitions(name).values()) == {1}
        assert len(ran.partitions(name)) == (6 if name == "files_by_day" else 5)

    @pytest.mark.parametrize("name", ["sql", "sql_by_day", "sql_direct"])
    def test_a_query(self, ran, name):
        assert sorted(row["id"] for row in ran.rows(name)) == list(range(1000))
        assert ran.result(name).record_count == 1000

    def test_without_distribution_each_task_writes_its_own_files(self, ran):
        assert set(ran.partitions("sql_direct").values()) == {4}

    def test_the_values_of_a_query_are_values_whatever_is_in_them(self, ran):
        found = sorted((row["id"], row["name"]) for row in ran.rows("bound"))
        assert found == list(enumerate(INJECTIONS))

    def test_values_of_a_query_of_every_kind(self, ran):
        (row,) = ran.rows("bound_kinds")
        assert (row["b"], row["i"], row["l"], row["d"], row["s"]) == (True, None, 2**40, 0.5, "ä")
        assert (row["bin"], row["dec"], row["tags"]) == (b"\x00'", Decimal("12.34"), ["ä"])
        assert (row["day"], row["ts_tz"]) == (date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC))

    def test_a_decimal_is_its_value_however_it_is_written(self, ran):
        assert ran.rows("bound_decimals") == [{"large": Decimal("100000.00"), "small": Decimal("0.001")}]

    def test_a_list_is_an_array_from_spark_4_on(self, ran):
        if is_spark_3(ran.version):
            assert "cannot bind; use Spark 4" in str(ran.error("bound_list"))
        else:
            assert sorted((row["id"], row["name"]) for row in ran.rows("bound_list")) == [(0, "a"), (1, "b'")]

    def test_a_session_that_would_change_a_bound_text_is_refused(self, ran):
        assert "sql_params cannot be bound while spark.sql.parser.escapedStringLiterals" in str(ran.error("escaped"))

    def test_a_query_without_rows_makes_no_files(self, ran):
        assert (ran.result("sql_empty").status, ran.result("sql_empty").data_files) == ("succeeded", ())

    def test_a_callable_gets_the_session_and_its_arguments(self, ran):
        assert sorted(row["name"] for row in ran.rows("callable")) == [f"n{number}" for number in range(7)]

    def test_every_type_comes_through(self, ran):
        full, empty = sorted(ran.rows("types"), key=lambda row: row["i"] is None)
        assert full.pop("d") != full.get("d")
        assert set(empty.values()) == {None}
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        expected = {"b": True, "i": 1, "l": 2, "f": 1.5, "day": date(2026, 1, 1)}
        expected |= {"ts_tz": moment, "ts": moment.replace(tzinfo=None), "s": "ä", "bin": b"\x00\xff"}
        expected |= {"dec": Decimal("12.34"), "tags": ["a", None], "m": [("k", 1)], "p": {"x": 1.5, "y": [1]}}
        assert full == expected

    def test_columns_that_a_query_does_not_have_are_null(self, ran):
        expected = [{"id": number, "v": None, "s": None, "t": None} for number in range(3)]
        assert sorted(ran.rows("absent_columns"), key=lambda row: row["id"]) == expected

    @pytest.mark.parametrize("name", ["variant", "variant_by_id"])
    def test_variants_of_spark_4_come_through_at_every_depth(self, ran, name):
        if is_spark_3(ran.version):
            assert "Spark does not accept the query" in str(ran.error(name))  # it has no variants
            return
        null, *rows = sorted(ran.rows(name), key=lambda row: row["id"])
        assert null == {"id": 0, "v": None, "l": [None], "s": {"v": None}}
        for row in rows:
            assert plain(decode(**row["v"])) == {"a": [row["id"], None, "x"]}
            assert (row["l"], row["s"]) == ([row["v"]], {"v": row["v"]})

    def test_the_time_zone_of_the_cluster_means_nothing(self, ran):
        assert ran.rows("zone") == [{"ts": datetime(2026, 1, 1, tzinfo=UTC)}]

    def test_the_exchange_leaves_nothing(self, ran):
        plan = ran.plans["sql_by_day"]
        assert files_below(plan.staging_location) == [plan.location, plan.result_location]


class TestFailure:
    """A job that fails says so in its result, as one of our errors and in one readable text."""

    @pytest.mark.parametrize("name", ["wrong_value", "wrong_value_by_day"])
    def test_a_wrong_value_names_column_row_and_file(self, ran, name):
        error = ran.error(name)
        assert type(error) is InvalidInputError
        assert str(error).startswith("column 'id', row 2 of /")
        assert "/wrong/07.csv: value 'oops' (string) does not fit long" in str(error)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("wrong_query_value", "column 'name' is double in the query and cannot become string"),
            ("null", "column 'id', row 2 of partition 1 of the query: null, and the column is required (long)"),
            ("missing_column", "required column 'id' (long) is missing in the query, which has name"),
            ("extra_column", "column 'more' of the query is not in the table"),
            ("syntax", "Spark does not accept the query: ParseException: [PARSE_SYNTAX_ERROR]"),
            ("unknown_table", "Spark does not accept the query: AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]"),
            ("no_module", "cannot import nowhere of python callable nowhere:f on the Spark driver"),
            ("no_function", "module frames has no function nothing; python callable frames:nothing"),
            ("no_frame", "python callable frames:no_frame returned int, expected a Spark DataFrame"),
        ],
    )
    def test_what_the_caller_has_to_mend(self, ran, name, message):
        error = ran.error(name)
        assert type(error) is InvalidInputError
        assert message in str(error)

    @pytest.mark.parametrize("name", ["no_text", "no_text_by_day"])
    def test_a_text_that_is_none(self, ran, name):
        """Spark's texts are bytes, which nothing looks at."""
        error = ran.error(name)
        assert type(error) is InvalidInputError
        assert "column 'name', row " in str(error)
        assert "the text b'\\xff\\xfe' is not UTF-8" in str(error)

    def test_a_callable_that_raises(self, ran):
        error = ran.error("raises")
        assert str(error).startswith("python callable frames:raises raised RuntimeError: the lake is dry (frames.py:")

    def test_a_query_that_fails_while_it_runs(self, ran):
        error = ran.error("failing_query")
        assert type(error) is IcebergError
        assert "boom" in str(error)

    @pytest.mark.parametrize("name", ["unwritable", "unwritable_staging"])
    def test_a_location_that_cannot_be_written(self, ran, name):
        error = ran.error(name)
        assert type(error) is StorageError
        assert ("/wall/data" if name == "unwritable" else exchange.location(ran.plans[name])) in str(error)

    def test_no_message_holds_a_stack_trace_or_a_plan(self, ran):
        for name in ran.plans:
            error = ran.result(name).error
            message = error.message if error else ""
            assert not any(part in message for part in ("Traceback", "\tat ", "JVM stacktrace", "'Project"))
