"""Rows that are made from other tables: each is read at one snapshot, and the commit says which."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    TableReplacedError,
    UnsupportedError,
)
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")
DAYS = [date(2026, 1, day) for day in (1, 2, 3)]


@pytest.fixture
def catalog(tmp_path):
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("s")
    columns = {"id": "long", "day": "date", "who": "struct<name: string>"}
    orders = Table.create(catalog, "s.orders", schema=columns, partition_by=["day"])
    for number, day in enumerate(DAYS, 1):
        orders.append(pa.table({"id": [number], "day": [day], "who": [{"name": f"n{number}"}]}))
    Table.create(catalog, "s.t", schema={"id": "long"})
    return catalog


class Writer:
    """Appends what a query gives, and remembers the plan of the job."""

    def __init__(self, catalog, **inputs):
        self.catalog, self.inputs = catalog, inputs
        self.plan: JobPlan | None = None
        self.meanwhile = lambda: None
        self.table = Table.load(catalog, "s.t")

    def run(self, plan):
        self.plan = plan
        self.meanwhile()
        # As a job reads it.
        read = JobPlan.open(self.table.io, plan.location, str(plan.seal))
        assert read == plan
        return run_local(read, self.table.io)

    def work(self, **more):
        return Work(self.table, run=self.run, **more)

    def request(self, query, params=None, kind=AppendRequest, **more):
        rows = Source.from_sql(query, params, dialect="duckdb")
        return kind(rows=rows, inputs={name: self.input(one) for name, one in self.inputs.items()}, **more)

    def input(self, given):
        return given if isinstance(given, Input) else Input(open=lambda: Table.load(self.catalog, given))

    def append(self, query, params=None, **more):
        return append(self.work(**more), self.request(query, params))

    @property
    def read(self):
        """What is read of the only input: its columns and its filter."""
        assert self.plan is not None
        (table,) = self.plan.inputs
        return table.selected_fields, str(table.row_filter)

    def ids(self):
        return sorted(self.table.refresh().scan().to_arrow()["id"].to_pylist())


def orders(catalog, **more):
    return Input(open=lambda: Table.load(catalog, "s.orders"), **more)


class TestRows:
    """A query reads its inputs by their names, and only what it needs of them."""

    @pytest.mark.costly
    def test_of_two_tables(self, catalog):
        writer = Writer(catalog, o="s.orders", t="s.t")
        writer.table.append(pa.table({"id": [2]}))
        writer.append("select o.id + 10 as id from o join t on o.id = t.id")
        assert writer.ids() == [2, 12]

    @pytest.mark.costly
    def test_columns_and_files_that_are_not_needed_are_not_read(self, catalog, monkeypatch):
        writer = Writer(catalog, orders="s.orders")
        writer.append("select id from orders where day = $day", {"day": DAYS[1]})
        assert (writer.ids(), writer.read) == ([2], (("id", "day"), "day = 20455"))

    def test_a_time_without_a_zone_is_a_value(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.append("select id from orders where day >= $m", {"m": datetime.fromisoformat("2026-01-01 12:00")})
        assert writer.ids() == [2, 3]

    @pytest.mark.costly
    @pytest.mark.parametrize("condition", ["{} = $m", "{} > $m", "{} <= $m", "{} in ($m, $m)", "cast({} as date) = $m"])
    def test_times_with_and_without_a_zone_mean_what_they_mean_to_duckdb(self, catalog, condition):
        """The rows are those of the same query over the whole table: what is pushed down means the same."""
        noon, night = datetime.fromisoformat("2026-01-02 12:00"), datetime.fromisoformat("2026-01-02")
        rows = pa.table({
            "id": pa.array(range(4), pa.int64()),
            "ts": pa.array([night, noon, datetime.fromisoformat("2026-01-02 11:00"), None], pa.timestamp("us")),
            "tz": pa.array([night, noon, datetime.fromisoformat("2026-01-02 11:00"), None], pa.timestamp("us", "UTC")),
            "d": pa.array([*DAYS, None], pa.date32()),
        })  # fmt: skip
        schema = {"id": "long", "ts": "timestamp", "tz": "timestamptz", "d": "date"}
        Table.create(catalog, "s.times", schema=schema).append(rows)
        writer, expected = Writer(catalog, times="s.times"), []
        with duckdb.connect() as connection:
            connection.execute("set TimeZone = 'UTC'")
            connection.execute("create table times as select * from rows")
            for column in ("ts", "tz", "d"):
                for moment in (noon, night, noon.replace(tzinfo=timezone(timedelta(hours=1)))):
                    query = f"select id from times where {condition.format(column)}"
                    expected += [found for (found,) in connection.execute(query, {"m": moment}).fetchall()]
                    writer.append(query, {"m": moment})
        assert writer.ids() == sorted(expected)

    def test_whole_numbers_of_duckdb(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.append("select id from orders where id < $most", {"most": 2**100})
        assert writer.ids() == [1, 2, 3]
        with pytest.raises(InvalidInputError, match=r"is 1\.701e\+38, which is no integer of DuckDB's; bind a Decimal"):
            writer.append("select id from orders where id < $most", {"most": 2**127})

    @pytest.mark.costly
    def test_an_input_is_read_as_often_as_the_query_reads_it(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.append("select a.id from orders a, orders b where a.id >= b.id")
        assert writer.ids() == [1, 2, 2, 3, 3, 3]

    @pytest.mark.costly
    def test_what_the_author_chose(self, catalog):
        one = orders(catalog, row_filter="id > :least", predicate_params={"least": 1}, selected_fields=("id", "_pos"))
        writer = Writer(catalog, orders=one)
        writer.append("select id + _pos as id from orders where id < 3")
        assert (writer.ids(), writer.read) == ([2], (("id", "_pos"), "id > 1"))

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "name", ["select", "order", "Main", "temp", "range", "pg_class", "duckdb_tables", "_", "t1"]
    )
    def test_a_name_that_means_something_else(self, catalog, name):
        writer = Writer(catalog, **{name: "s.orders"})
        writer.append(f'select id from "{name}" where id < 3')
        assert writer.ids() == [1, 2]

    @pytest.mark.costly
    def test_a_table_without_rows(self, catalog):
        writer = Writer(catalog, t="s.t")
        assert writer.append("select id from t").outcome == "nothing"

    @pytest.mark.costly
    def test_an_overwrite(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.table.append(pa.table({"id": [3, 4]}))
        request = writer.request("select id from orders", kind=OverwriteRequest, overwrite_filter="id <= 3")
        result = overwrite(writer.work(), request)
        assert (writer.ids(), list(result.inputs)) == ([1, 2, 3, 4], ["orders"])

    @pytest.mark.costly
    def test_of_another_catalog(self, catalog, tmp_path):
        folder = tmp_path / "other"
        folder.mkdir()
        other = load_catalog("other", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
        other.create_namespace("s")
        Table.create(other, "s.fx", schema={"id": "long"}).append(pa.table({"id": [7]}))
        writer = Writer(catalog, fx=Input(open=lambda: Table.load(other, "s.fx")))
        assert writer.append("select id from fx").inputs["fx"]["catalog"] == "other"
        assert writer.ids() == [7]


class TestTheSnapshot:
    """It is chosen when the job is planned; what others write meanwhile is not read."""

    @pytest.mark.costly
    def test_rows_that_come_while_the_job_waits(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.meanwhile = lambda: Table.load(catalog, "s.orders").append(pa.table({"id": [9]}))
        writer.append("select id from orders")
        assert writer.ids() == [1, 2, 3]

    @pytest.mark.costly
    def test_an_empty_table_that_gets_rows(self, catalog):
        Table.create(catalog, "s.empty", schema={"id": "long"})
        writer = Writer(catalog, empty="s.empty")
        writer.meanwhile = lambda: Table.load(catalog, "s.empty").append(pa.table({"id": [9]}))
        assert writer.append("select id from empty").outcome == "nothing"

    @pytest.mark.costly
    def test_a_branch_a_tag_a_snapshot_and_a_time(self, catalog):
        table = Table.load(catalog, "s.orders")
        first, second, _ = table.snapshots()
        table.create_tag("old", snapshot_id=first.snapshot_id)
        table.create_branch("audit", snapshot_id=second.snapshot_id)
        table.append(pa.table({"id": [9]}), branch="audit")
        for chosen, ids in (
            ({"ref": "old"}, [1]),
            ({"ref": "audit"}, [1, 2, 9]),
            ({"snapshot_id": second.snapshot_id}, [1, 2]),
            ({"as_of_ms": second.timestamp_ms}, [1, 2]),
        ):
            writer = Writer(catalog, orders=orders(catalog, **chosen))
            writer.table.delete("true")
            writer.append("select id from orders")
            assert writer.ids() == ids

    @pytest.mark.costly
    def test_the_commit_names_it(self, catalog):
        table = Table.load(catalog, "s.orders")
        writer = Writer(catalog, orders="s.orders")
        result = writer.append("select id from orders", operation_key=KEY, try_number=1)
        named = {
            "catalog": "lake",
            "table": "s.orders",
            "table-uuid": table.metadata.table_uuid,
            "snapshot-id": str(table.current_snapshot().snapshot_id),
        }
        assert result.inputs == result.to_xcom()["inputs"] == {"orders": named}
        assert json.loads(writer.table.refresh().current_snapshot().summary["airflow.inputs"]) == {"orders": named}

    @pytest.mark.costly
    def test_a_retry_that_finds_its_commit_reports_what_was_read_and_reads_nothing(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        first = writer.append("select id from orders", operation_key=KEY, try_number=1)
        Table.load(catalog, "s.orders").append(pa.table({"id": [9]}))
        again = Writer(catalog, orders=Input(open=lambda: pytest.fail("it is read")))
        second = again.append("select id from orders", operation_key=KEY, try_number=2)
        assert (second.outcome, second.inputs) == ("found", first.inputs)
        assert writer.ids() == [1, 2, 3]

    @pytest.mark.costly
    def test_a_cleared_task_reads_again_and_replaces_its_rows(self, catalog):
        Writer(catalog, orders="s.orders").append("select id from orders", operation_key=KEY, try_number=1)
        Table.load(catalog, "s.orders").append(pa.table({"id": [9]}))
        cleared = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=1)
        writer = Writer(catalog, orders="s.orders")
        writer.append("select id from orders", operation_key=cleared, try_number=2)
        assert writer.ids() == [1, 2, 3, 9]

    def test_the_summary_of_another_writer_is_not_believed_to_be_ours(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        for text in ("[", "[1]", "3", "[" * 100_000):
            with pytest.raises(InvalidInputError, match="written by the commit itself"):
                append(
                    writer.work(), writer.request("select id from orders", snapshot_properties={"airflow.inputs": text})
                )


class TestTheTargetAsAnInput:
    """A table may be made from its own rows: they are those of the snapshot that was pinned."""

    @pytest.mark.costly
    def test_an_append(self, catalog):
        writer = Writer(catalog, t="s.t")
        writer.table.append(pa.table({"id": [1, 2]}))
        writer.append("select id + 10 as id from t")
        assert writer.ids() == [1, 2, 11, 12]

    @pytest.mark.costly
    def test_a_cleared_append_reads_the_rows_of_its_earlier_run_unless_it_pins_a_tag(self, catalog):
        for pinned, expected in ((None, [1, 11, 21]), ("before", [1, 11])):
            table = Table.create(catalog, f"s.{pinned}", schema={"id": "long"})
            table.append(pa.table({"id": [1]}))
            table.create_tag("before")
            for epoch in range(2):
                writer = Writer(catalog, t=Input(open=partial(Table.load, catalog, f"s.{pinned}"), ref=pinned))
                writer.table = Table.load(catalog, f"s.{pinned}")
                key = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=epoch)
                writer.append("select id + 10 as id from t", operation_key=key, try_number=epoch + 1)
            assert writer.ids() == expected

    @pytest.mark.costly
    def test_an_overwrite(self, catalog):
        writer = Writer(catalog, t="s.t")
        writer.table.append(pa.table({"id": [1, 2, 20]}))
        overwrite(writer.work(), writer.request(HALVES, kind=OverwriteRequest, overwrite_filter="id <= 9"))
        assert writer.ids() == [2, 4, 20]

    @pytest.mark.costly
    def test_rows_that_come_meanwhile_are_a_conflict_of_an_overwrite(self, catalog):
        writer = Writer(catalog, t="s.t")
        writer.table.append(pa.table({"id": [1, 2]}))
        writer.meanwhile = lambda: Table.load(catalog, "s.t").append(pa.table({"id": [3]}))
        with pytest.raises(StalePlanError):
            overwrite(writer.work(), writer.request(HALVES, kind=OverwriteRequest, overwrite_filter="id <= 9"))
        assert writer.ids() == [1, 2, 3]

    @pytest.mark.costly
    def test_a_retry_reads_what_is_there_then(self, catalog):
        writer = Writer(catalog, t="s.t")
        writer.table.append(pa.table({"id": [1]}))
        request = writer.request(HALVES, kind=OverwriteRequest, overwrite_filter="id <= 9")
        writer.meanwhile = lambda: Table.load(catalog, "s.t").append(pa.table({"id": [3]}))
        with pytest.raises(StalePlanError):
            overwrite(writer.work(operation_key=KEY, try_number=1), request)
        writer.meanwhile, writer.table = (lambda: None), Table.load(catalog, "s.t")
        overwrite(writer.work(operation_key=KEY, try_number=2), request)
        assert writer.ids() == [2, 6]


HALVES = "select id * 2 as id from t where id <= 9"


class TestTypesOfDuckdb:
    """A sum is wider than what it sums; it is cast to the column if every value fits."""

    @pytest.mark.costly
    def test_sums_and_counts(self, catalog):
        Table.create(
            catalog, "s.sums", schema={"n": "int", "ids": "long", "amount": "decimal(9,2)", "at": "timestamptz"}
        )
        writer = Writer(catalog, orders="s.orders")
        writer.table = Table.load(catalog, "s.sums")
        writer.append(
            "select count(*) as n, sum(id) as ids, sum(id * 1.25) as amount, max(day)::timestamptz as at from orders"
        )
        (row,) = writer.table.refresh().scan().to_arrow().to_pylist()
        expected = {"n": 3, "ids": 6, "amount": Decimal("7.50"), "at": datetime(2026, 1, 3, tzinfo=UTC)}
        assert row == expected

    @pytest.mark.costly
    def test_a_value_that_does_not_fit(self, catalog):
        Table.create(catalog, "s.small", schema={"id": "int"})
        writer = Writer(catalog, orders="s.orders")
        writer.table = Table.load(catalog, "s.small")
        with pytest.raises(InvalidInputError, match="id"):
            writer.append("select sum(id) * 1000000000000 as id from orders")


# What a query must not find among the variables of this process.
PRIVATE = pa.table({"id": [1]})


class TestWhatAQueryMayDo:
    """It is one query over its inputs: no file, no network, no extension, no setting, no variable of this process."""

    @pytest.mark.costly
    @pytest.mark.parametrize("query", [
        "select size as id from read_text('/etc/passwd'), orders",
        "select 1 as id from read_blob('/proc/self/environ'), orders",
        "select 1 as id from read_csv('/etc/passwd'), orders",
        "select 1 as id from read_csv('https://example.com/x.csv'), orders",
        "select 1 as id from parquet_metadata('/etc/passwd'), orders",
        "select 1 as id from glob('/*'), orders",
        "select 1 as id from '/etc/passwd', orders",
        "select 1 as id from query('select * from read_text(''/etc/passwd'')'), orders",
        "select 1 as id from duckdb_secrets(), orders",
    ])  # fmt: skip
    def test_no_files(self, catalog, query):
        self.refused(catalog, query, "disabled by configuration|does not exist|sql reads rows of the function")

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["pandas_scan", "Arrow_Scan", "python_map_function", "duckdb_settings"])
    @pytest.mark.parametrize("query", [
        "select 1 as id from {}(null), orders",
        "with x as (from {}(null)) select id from orders where exists (from x)",
        "select id from orders, lateral (from {}(0, 0, 0))",
        "(select id from orders) union all (select 1 as id from {}(null))",
    ])  # fmt: skip
    def test_no_function_that_reads_memory(self, catalog, query, name):
        """A wrong address would end the process."""
        self.refused(
            catalog, query.format(name), rf"sql reads rows of the function {name.lower()}\(\), expected inputs"
        )

    @pytest.mark.costly
    def test_functions_that_make_rows(self, catalog):
        writer = Writer(catalog, orders="s.orders")
        writer.append("select r.range as id from range(5) r, unnest([1]) u, generate_series(1, 1) g, orders limit 1")
        assert writer.table.refresh().scan().to_arrow()["id"].to_pylist() == [0]

    @pytest.mark.costly
    @pytest.mark.parametrize("query", [
        "attach '/tmp/x.db'",
        "copy (select id from orders) to '/tmp/x.csv'",
        "export database '/tmp/x'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset lock_configuration",
        "pragma enable_profiling",
        "create table x as select id from orders",
        "create or replace view orders as select 9 as id; select id from orders",
        "select id from orders; select 9 as id",
        "insert into orders values (9)",
        "delete from orders",
        "drop view orders",
        "explain select id from orders",
        "prepare x as select id from orders",
        "call pragma_version()",
        "begin",
        "-- nothing",
    ])  # fmt: skip
    def test_no_other_statement(self, catalog, query):
        self.refused(catalog, query, "expected one query that returns rows")

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["PRIVATE", "ours", "rows", "task", "settings", "inputs", "statements", "DAYS"])
    def test_no_variables(self, catalog, name):
        ours = PRIVATE
        assert ours
        self.refused(catalog, f"select 1 as id from {name}, orders", "does not exist")

    @pytest.mark.costly
    def test_no_columns(self, catalog):
        self.refused(catalog, "select * exclude (id, day, who) from orders", "SELECT list is empty")

    @pytest.mark.costly
    def test_columns_of_one_name(self, catalog):
        self.refused(catalog, "select id, id from orders", "id")

    def refused(self, catalog, query, message):
        writer = Writer(catalog, orders="s.orders")
        with pytest.raises(InvalidInputError, match=message):
            writer.append(query)
        assert writer.table.refresh().current_snapshot() is None


class TestSecrets:
    """The plan lies in the table's folder."""

    @pytest.mark.costly
    def test_a_secret_in_the_query_is_not_in_the_plan(self, catalog):
        table = Table.load(catalog, "s.t")
        rows = Source.from_sql("select id from orders where who.name <> 'https://u:pw123@host'", dialect="duckdb")
        request = AppendRequest(rows=rows, inputs={"orders": orders(catalog)})
        stored = []

        def run(plan):
            stored.append(table.io.read(plan.location))
            return run_local(plan, table.io)

        append(Work(table, run=run), request)
        assert b"pw123" not in stored[0]
        assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


class TestForgedInputs:
    """Whoever can write below the table of an input gets nothing read outside of its gate."""

    def forge(self, catalog, change):
        """Change the metadata file of the input while the job waits."""
        writer = Writer(catalog, orders="s.orders")

        def replace_metadata():
            table = Table.load(catalog, "s.orders")
            document = json.loads(table.io.read(table.metadata_location))
            change(document)
            Path(table.metadata_location.removeprefix("file://")).write_text(json.dumps(document))

        writer.meanwhile = replace_metadata
        return writer

    def test_a_manifest_list_elsewhere(self, catalog, tmp_path):
        secret = tmp_path / "secret.avro"
        snapshot = Table.load(catalog, "s.orders").current_snapshot()
        secret.write_bytes(Path(snapshot.manifest_list.removeprefix("file://")).read_bytes())

        def change(document):
            document["snapshots"][-1]["manifest-list"] = secret.as_uri()

        writer = self.forge(catalog, change)
        with pytest.raises(InvalidInputError, match=r"input 'orders': cannot read .*secret\.avro: it is outside"):
            writer.append("select id from orders")

    @pytest.mark.costly
    def test_a_location_elsewhere_does_not_widen_the_gate(self, catalog, tmp_path):
        other = load_catalog("o", type="sql", uri=f"sqlite:///{tmp_path}/o.db", warehouse=f"file://{tmp_path}/other")
        other.create_namespace("s")
        theirs = Table.create(other, "s.theirs", schema={"id": "long"})
        theirs.append(pa.table({"id": [666]}))

        def change(document):
            forged = json.loads(theirs.io.read(theirs.metadata_location))
            for kept in ("table-uuid", "current-schema-id", "schemas"):
                forged[kept] = document[kept]
            ours = document["snapshots"][-1]["snapshot-id"]
            forged["snapshots"][-1]["snapshot-id"] = forged["current-snapshot-id"] = ours
            forged["refs"]["main"]["snapshot-id"] = forged["snapshot-log"][-1]["snapshot-id"] = ours
            document.clear()
            document.update(forged)

        writer = self.forge(catalog, change)
        with pytest.raises(InvalidInputError, match=r"input 'orders': cannot read .*other.*: it is outside"):
            writer.append("select id from orders")

    @pytest.mark.costly
    def test_another_table_in_its_place(self, catalog):
        writer = self.forge(catalog, lambda document: document.update({"table-uuid": str(uuid4())}))
        with pytest.raises(TableReplacedError, match=r"input 'orders': table s\.orders was replaced"):
            writer.append("select id from orders")

    def test_a_plan_with_other_inputs_is_refused(self, catalog):
        writer = Writer(catalog, orders="s.orders")

        def change():
            document = json.loads(writer.table.io.read(writer.plan.location))
            (one,) = document["task"]["inputs"]
            one["locations"] = {"allowed": ["file:///"], "own": []}
            Path(writer.plan.location.removeprefix("file://")).write_text(json.dumps(document))

        writer.meanwhile = change
        with pytest.raises(FormatError, match="the job plan is not the one that was written"):
            writer.append("select id from orders")
        assert writer.table.refresh().current_snapshot() is None


class TestWhatGoesWrong:
    """One clear error that names the input, and nothing is committed."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("query", "error", "message"),
        [
            ("select nope from orders", InvalidInputError, "column 'nope' is not known: 'orders' has"),
            ("select id from orders, elsewhere", InvalidInputError, "Table with name elsewhere does not exist"),
            ("select who as id from orders", InvalidInputError, "id"),
            ("select id from read_text('/etc/passwd'), orders", InvalidInputError, "rows of the function read_text"),
            ("select id from orders; drop table orders", InvalidInputError, "sql is select, drop, expected one query"),
        ],
    )
    def test_a_query(self, catalog, query, error, message):
        writer = Writer(catalog, orders="s.orders")
        with pytest.raises(error, match=message):
            writer.append(query)
        assert writer.table.refresh().current_snapshot() is None

    @pytest.mark.parametrize(
        ("chosen", "error", "message"),
        [
            ({"ref": "nope"}, NotFoundError, "input 'orders': .*nope"),
            ({"snapshot_id": 7}, NotFoundError, "input 'orders': snapshot 7 is not in"),
            ({"snapshot_id": 7, "ref": "main"}, InvalidInputError, "input 'orders': a scan reads one point"),
            ({"row_filter": "nope = 1"}, NotFoundError, "input 'orders': .*nope"),
            ({"selected_fields": ("nope",)}, NotFoundError, "input 'orders': .*nope"),
        ],
    )
    def test_an_input(self, catalog, chosen, error, message):
        writer = Writer(catalog, orders=orders(catalog, **chosen))
        with pytest.raises(error, match=message):
            writer.append("select id from orders")
        assert writer.plan is None

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"a b": "s.orders"}, "'a b' cannot be the name of an input"),
            ({"": "s.orders"}, "'' cannot be the name of an input"),
            ({"s.orders": "s.orders"}, "'s.orders' cannot be the name of an input"),
            ({'a"; drop view b; "': "s.orders"}, "cannot be the name of an input"),
            ({"größe": "s.orders"}, "'größe' cannot be the name of an input"),
            ({"orders": "s.orders", "Orders": "s.orders"}, "two inputs have the same name in other letters"),
            ({"orders": "s.orders", "more": "s.orders"}, "inputs has 'more', and the query does not read it"),
        ],
    )
    def test_names(self, catalog, inputs, message):
        with pytest.raises(InvalidInputError, match=message):
            Writer(catalog, **inputs).append("select id from orders")

    def test_a_table_that_is_not_there(self, catalog):
        with pytest.raises(NotFoundError, match=r"input 'orders': there is no table s\.nope"):
            Writer(catalog, orders="s.nope").append("select id from orders")

    def test_files_have_no_inputs(self, catalog):
        with pytest.raises(InvalidInputError, match="inputs are tables that sql or python_callable reads"):
            AppendRequest(rows=Source.from_files("x.parquet"), inputs={"orders": orders(catalog)})

    def test_an_argument_of_the_same_name(self, catalog):
        rows = Source.from_callable("m:f", {"orders": 1})
        with pytest.raises(InvalidInputError, match="'orders' is an input, and one of op_kwargs, too"):
            AppendRequest(rows=rows, inputs={"orders": orders(catalog)})

    def test_spark_s_sql_without_spark(self, catalog):
        writer = Writer(catalog)
        with pytest.raises(UnsupportedError, match="a query in Spark's SQL needs Spark"):
            append(writer.work(), AppendRequest(rows=Source.from_sql("select 1 as id")))

    @pytest.mark.costly
    def test_files_that_expire_while_the_job_waits(self, catalog):
        writer = Writer(catalog, orders="s.orders")

        def drop():
            catalog.drop_table("s.orders", purge=True)

        writer.meanwhile = drop
        with pytest.raises(StalePlanError, match=r"input 'orders': snapshot \d+ of table s\.orders.* is gone"):
            writer.append("select id from orders")
        assert writer.table.refresh().current_snapshot() is None
