"""What the SQL of merges, updates and deletes sees: the sides that a row has, and the columns of their authors."""

import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog

ROWS = {"id": [1, 2, 3], "v": [10, 20, 30], "t": ["a", "b", "c"]}
FEED = {"id": [2, 4, 1], "v": [200, 400, 7], "a1": [1, 1, 2]}
SENT = pa.table({"id": [2, 4], "v": [200, 400]})


def new_table(name: str = "t", **more: str) -> Table:
    schema = {"id": "long", "v": "long", "t": "string"}
    table = Table.create(MemoryCatalog(), f"db.{name}", schema=schema, properties=more)
    table.append(pa.table(ROWS))
    return table


def values(table: Table, column: str = "v") -> dict[int, Any]:
    return {row["id"]: row[column] for row in table.refresh().scan().to_arrow().to_pylist()}


def feed() -> dict[str, Input]:
    table = Table.create(MemoryCatalog(), "db.feed", schema={"id": "long", "v": "long", "a1": "long"})
    table.append(pa.table(FEED))
    return {"feed": Input(open=lambda: table)}


def work_on(table: Table, inputs: dict[str, Input], plans: list[Any] | None = None) -> Work:
    def run(plan):
        if plans is not None:
            plans.append(plan)
        return run_local(plan, table.io, inputs={name: one.open().io for name, one in inputs.items()})

    return Work(table, run=run)


def merge_feed(table: Table, clauses: str, sql: str = "select id from feed where a1 = 1", on: Any = ("id",)) -> Any:
    inputs, plans = feed(), []
    rows = Source.from_sql(sql, dialect="duckdb")
    request = MergeRequest(rows=rows, on=on, clauses=clauses, dialect="duckdb", inputs=inputs)
    merge(work_on(table, inputs, plans), request)
    return plans[0].task.inputs[0]


class TestASideThatARowDoesNotHave:
    """Its columns have no meaning: such a clause is refused, as in Spark, and no row is changed."""

    @pytest.mark.parametrize(
        ("clauses", "column"),
        [
            ("when not matched by source then update set v = source.v", "source.v"),
            ("when not matched then insert (id, v) values (source.id, target.v)", "target.v"),
            ("when not matched by source and source.v is null then delete", "source.v"),
            ("when not matched and target.v is null then insert *", "target.v"),
            (
                "when matched then delete when not matched by source then update set v = length(to_json(source))",
                "source",
            ),
            ("when not matched by source then update set v = (select max(source.v))", "source.v"),
        ],
    )
    def test_it_is_refused_before_a_job(self, clauses, column):
        table, jobs = new_table(), []
        before = table.current_snapshot()
        rows = Source.from_files(["file:///nowhere/*.parquet"])
        request = MergeRequest(rows=rows, on=["id"], clauses=clauses, dialect="duckdb")
        with pytest.raises(InvalidInputError, match=rf"column '{column}' is not known in clause \d, 'when not matched"):
            merge(work_on(table, {}, jobs), request)
        with pytest.raises(InvalidInputError, match="is not known in clause"):
            table.merge(SENT, ["id"], clauses)
        assert (jobs, table.refresh().current_snapshot()) == ([], before)

    def test_sql_that_only_the_engine_understands(self):
        """It sees no more of the sides, so that such a name is an error there."""
        for text in ("v + (source).v", "[x.v for x in [source]][1]", "len([source.v ** 2])"):
            table = new_table()
            with pytest.raises(InvalidInputError):
                table.merge(SENT, ["id"], f"when not matched by source then update set v = {text}")
            assert values(table) == {1: 10, 2: 20, 3: 30}


def test_a_text_that_makes_rows():
    table = new_table()
    before = table.current_snapshot()
    with pytest.raises(InvalidInputError, match=r"unnest\(…\) makes several rows of one"):
        table.merge(SENT, ["id"], "when not matched then insert (id, v) values (unnest([7, 8]), 1)")
    with pytest.raises(InvalidInputError, match=r"unnest\(…\) makes several rows of one"):
        table.update({"v": "unnest([1])"}, "id = 1")
    assert table.refresh().current_snapshot() == before


def test_a_struct_with_the_name_of_the_source():
    table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "v": "long", "source": "struct<v: long>"})
    kind = pa.struct([("v", pa.int64())])
    table.append(pa.table({"id": [1, 2], "v": [1, 2], "source": pa.array([{"v": 5}, {"v": 6}], kind)}))
    table.merge(SENT, ["id"], "when not matched by source then update set v = source.v when matched then delete")
    assert values(table) == {1: 5}


def test_a_column_with_the_name_of_a_function():
    table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "current_date": "string", "unit": "string"})
    table.append(pa.table({"id": [1, 2], "current_date": ["x", "y"], "unit": ["year", "month"]}))
    table.update({"unit": "current_date"}, "id = 1")
    table.update({"current_date": "date_trunc(unit, date '2026-05-05')::date::varchar"}, "id = 2")
    assert values(table, "unit") == {1: "x", 2: "month"}
    assert values(table, "current_date") == {1: "x", 2: "2026-05-01"}


ALL_THREE = (
    "when matched then update set v = 0 when not matched then insert (id, v) values (id, v + 1) "
    "when not matched by source and v = 10 then update set v = id"
)


class TestBareNames:
    """One that has one meaning for the rows of its clause needs no side before it."""

    @pytest.mark.parametrize(
        ("clauses", "expected"),
        [
            ("when not matched then insert (id, v) values (id, v)", {1: 10, 2: 20, 3: 30, 4: 400}),
            ("when not matched and v > 400 then insert (id, v) values (id, v)", {1: 10, 2: 20, 3: 30}),
            ("when not matched by source then update set v = v + 1", {1: 11, 2: 20, 3: 31}),
            ("when not matched by source and v > 10 then delete", {1: 10, 2: 20}),
            ("when not matched by source and id in (select id from source) then delete", {1: 10, 2: 20, 3: 30}),
            ("when matched then update set v = source.v, t = t || '!'", {1: 10, 2: 200, 3: 30}),
            (ALL_THREE, {1: 1, 2: 0, 3: 30, 4: 401}),
        ],
    )
    def test_it(self, clauses, expected):
        table = new_table()
        outcome = table.merge(SENT, ["id"], clauses).outcome
        assert values(table) == expected
        assert outcome == ("nothing" if expected == {1: 10, 2: 20, 3: 30} else "committed")

    def test_two_meanings(self):
        message = r"column 'v' in clause 1, 'when matched …' is one of both sides: write target.v or source.v"
        with pytest.raises(InvalidInputError, match=message):
            new_table().merge(SENT, ["id"], "when matched then update set v = v + 1")


ALL = {"id": 2, "v": 20, "t": "b"}


class TestNothingOfOurs:
    """Whole rows, patterns and numbers of columns have the columns of the author's tables, and no other."""

    @pytest.mark.parametrize(
        "text",
        [
            *["to_json(target)", "(select to_json(target))", "to_json(struct_pack(*columns(*)))"],
            *["to_json(struct_pack(*columns('.*')))", "to_json(struct_pack(*columns(lambda c: true)))"],
            "(select to_json(target) from feed where feed.id = target.id and a1 = 1)",
        ],
    )
    @pytest.mark.parametrize("where", ["id = 2", "id = 2 and target is not null and length(to_json(target)) < 40"])
    def test_of_an_update(self, text, where):
        table, inputs = new_table(), feed() if "feed" in text else {}
        update(work_on(table, inputs), UpdateRequest(set={"t": text}, where=where, dialect="duckdb", inputs=inputs))
        assert json.loads(values(table, "t")[2]) == ALL

    def test_of_each_clause(self):
        table = new_table()
        table.merge(
            SENT,
            "target.id = source.id and length(to_json(target)) + length(to_json(source)) < 60 and target is not null",
            "when matched and hash(target) <> hash(source) "
            "then update set t = to_json([to_json(target.t), to_json(source)]) "
            "when not matched then insert (id, v, t) values (#1, #2, to_json(source)) "
            "when not matched by source and target is not null then update set t = to_json(target), v = #2 + 1",
        )
        found = {key: json.loads(text) for key, text in values(table, "t").items()}
        assert found.pop(2) == ["b", {"id": 2, "v": 200}]
        assert found == {
            1: {"id": 1, "v": 10, "t": "a"},
            3: {"id": 3, "v": 30, "t": "c"},
            4: {"id": 4, "v": 400},
        }
        assert values(table) == {1: 11, 2: 20, 3: 31, 4: 400}

    def test_numbers_and_patterns_end_with_the_columns(self):
        for text in ("#4", "columns('_.*')", "columns('.*pos')", "rowid", "count(*)", "columns('v|id')"):
            table = new_table()
            with pytest.raises(InvalidInputError):
                table.merge(SENT, ["id"], f"when not matched by source then update set v = {text}")
            assert values(table) == {1: 10, 2: 20, 3: 30}

    def test_no_message_advises_it(self):
        with pytest.raises(InvalidInputError) as caught:
            new_table().update({"v": "fil"})
        known = ", ".join(field.name for field in new_table().schema().fields)
        assert str(caught.value) == f"the SQL cannot be run: column 'fil' is not known: 'target' has {known}"
        name = sql.ROW_FILE
        for message, expected in (
            (
                f"no. Did you mean one of the following? [`a`.`b`, `target`.`{name}`]. X",
                "no. Did you mean one of the following? [`a`.`b`]. X",
            ),
            (f"no. Did you mean one of the following? [`{name}`, `target`.`{name}`]", "no"),
            (f'no! Candidate bindings: "v", "{name}"', 'no! Candidate bindings: "v"'),
        ):
            assert sql.shown(message) == expected

    def test_signed_zeros_are_two_rows(self):
        """DuckDB evaluates a subquery once for values that it takes for equal."""
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "d": "double", "t": "string"})
        table.append(pa.table({"id": [1, 1, 1], "d": [0.0, -0.0, 0.0], "t": ["", "", ""]}))
        table.update({"t": "to_json(target.d) || to_json(target)[1:0]"})
        rows = table.refresh().scan().to_arrow().to_pylist()
        assert sorted(row["t"] for row in rows) == ["-0.0", "0.0", "0.0"]

    def test_of_a_delete_and_an_overwrite(self):
        table = new_table()
        for predicate in ("length(to_json(target)) > 100", "'_merge_pos' in to_json(target)"):
            assert delete(work_on(table, {}), DeleteRequest(predicate=predicate, dialect="duckdb")).outcome == "nothing"
        rows = pa.table({"id": [2], "v": [5], "t": ["new"]})
        where = """to_json(target) in ('{"id":2,"v":20,"t":"b"}', '{"id":2,"v":5,"t":"new"}')"""
        overwrite(work_on(table, {}), OverwriteRequest(rows=rows, overwrite_filter=where, dialect="duckdb"))
        assert values(table) == {1: 10, 2: 5, 3: 30}
        with pytest.raises(InvalidInputError, match="does not match"):
            overwrite(
                work_on(table, {}),
                OverwriteRequest(rows=rows, overwrite_filter="length(to_json(target)) = 22", dialect="duckdb"),
            )

    def test_a_value_is_not_evaluated_for_rows_of_another_clause(self):
        table = new_table()
        table.append(pa.table({"id": [5], "v": [50], "t": ["12"]}))
        table.merge(
            SENT,
            ["id"],
            "when not matched by source and t = '12' then update set v = t::bigint + length(to_json(target)) * 0 "
            "when not matched by source then update set v = -1",
        )
        assert values(table) == {1: -1, 2: 20, 3: -1, 5: 12}


class TestInputsOfSeveralTexts:
    """What a job reads of an input is what its query and all other SQL need together."""

    def test_a_subquery_of_a_clause(self):
        table = new_table()
        read = merge_feed(table, "when matched then update set v = (select max(v) from feed where a1 = 2)")
        assert values(table) == {1: 10, 2: 7, 3: 30}
        assert set(read.selected_fields) >= {"id", "v", "a1"}

    @pytest.mark.parametrize(
        ("clauses", "on", "expected"),
        [
            ("when matched then update set v = (select min(id) from feed)", ["id"], {1: 10, 2: 1, 3: 30}),
            ("when matched and exists (select 1 from feed where a1 = 2) then delete", ["id"], {1: 10, 3: 30}),
            (
                "when not matched then insert (id, v) values (id, (select v from feed f where f.a1 = 2))",
                ["id"],
                {1: 10, 2: 20, 3: 30, 4: 7},
            ),
            (
                "when not matched by source and id in (select id from feed) then delete",
                ["id"],
                {2: 20, 3: 30},
            ),
            (
                "when matched then delete",
                "target.id = source.id and 7 in (select feed.v from feed)",
                {1: 10, 3: 30},
            ),
            (
                "when matched then update set v = (select sum(length(to_json(f))) from feed f)",
                ["id"],
                {1: 10, 2: len('{"id":2,"v":200,"a1":1}{"id":4,"v":400,"a1":1}{"id":1,"v":7,"a1":2}'), 3: 30},
            ),
        ],
    )
    def test_each_place_of_a_merge(self, clauses, on, expected):
        table = new_table()
        merge_feed(table, clauses, on=on)
        assert values(table) == expected

    def test_sql_without_a_subquery_widens_nothing(self):
        table = new_table()
        read = merge_feed(table, "when matched then update set v = length(to_json(target)) + source.id")
        assert (str(read.row_filter), set(read.selected_fields)) == ("a1 = 1", {"id", "a1"})

    def test_an_input_of_the_clauses_alone(self):
        table, inputs = new_table(), feed()
        clauses = "when matched then update set v = (select max(v) from feed)"
        for rows in (SENT, Source.from_sql("select 2::bigint as id", dialect="duckdb")):
            request = MergeRequest(rows=rows, on=["id"], clauses=clauses, dialect="duckdb", inputs=inputs)
            merge(work_on(table, inputs), request)
            assert values(table)[2] == 400
            table.update({"v": "0"})
        with pytest.raises(InvalidInputError, match="the rows come from elsewhere"):
            MergeRequest(rows=SENT, on=["id"], clauses="when matched then delete", dialect="duckdb", inputs=inputs)


class TestSubqueriesOverTheSides:
    """They read the whole table, also where rows that cannot match are left out otherwise, and the whole source."""

    @pytest.mark.parametrize(
        ("clauses", "on", "expected"),
        [
            ("when matched then update set v = (select sum(v) from target)", ["id"], 60),
            (
                "when matched then update set v = (select sum(v) from target)",
                "target.id = source.id and target.id = 2",
                60,
            ),
            ("when matched then update set v = (select sum(v) from source)", ["id"], 600),
            (
                "when matched and (select count(*) from target t where t.v < target.v) = 1 then update set v = 1",
                ["id"],
                1,
            ),
            ("when matched then update set v = (select sum(length(to_json(each))) from target each)", ["id"], 69),
        ],
    )
    def test_of_a_merge(self, clauses, on, expected):
        table = new_table()
        table.merge(SENT, on, clauses)
        assert values(table) == {1: 10, 2: expected, 3: 30}

    def test_of_an_update_and_a_delete(self):
        table = new_table()
        table.update({"v": "(select sum(v) from target)"}, where="id = 2 and v < (select max(v) from target)")
        assert values(table) == {1: 10, 2: 60, 3: 30}
        request = DeleteRequest(predicate="v = (select max(v) from target) and id = 2", dialect="duckdb")
        delete(work_on(table, {}), request)
        assert values(table) == {1: 10, 3: 30}

    def test_not_of_an_overwrite_whose_new_rows_are_checked(self):
        table = new_table()
        where, rows = "id = (select max(id) from target)", pa.table({"id": [3], "v": [5], "t": ["new"]})
        with pytest.raises(InvalidInputError, match="a subquery of the filter of an overwrite reads 'target'"):
            overwrite(work_on(table, {}), OverwriteRequest(rows=rows, overwrite_filter=where, dialect="duckdb"))
        assert values(table) == {1: 10, 2: 20, 3: 30}


class TestNamesInMarks:
    """One rule for names: marks around a name are no part of it, wherever it stands."""

    @pytest.mark.parametrize("name", ["v", "V", "`v`", '"v"', "target.v", 'target."v"', "`target`.`v`"])
    def test_in_set(self, name):
        table = new_table()
        table.update({name: '"v" + 1'}, where='"id" = 2')
        assert values(table) == {1: 10, 2: 21, 3: 30}

    @pytest.mark.parametrize("key", ["id", "`id`", '"id"'])
    def test_in_keys(self, key):
        table = new_table()
        table.upsert(pa.table({"id": [2], "v": [5], "t": ["x"]}), [key])
        table.merge(SENT, [key], 'when not matched then insert ("id", "v") values (source."id", "v")')
        assert values(table) == {1: 10, 2: 5, 3: 30, 4: 400}
        for on in (key, f" {key} "):
            with pytest.raises(InvalidInputError, match="expected columns such as"):
                MergeRequest(rows=SENT, on=on, upsert=True, dialect="duckdb")

    def test_names_that_need_them(self):
        table = Table.create(
            MemoryCatalog(), "db.t", schema={"id": "long", "a.b": "long", "s": "struct<`c.d`: long, x: long>"}
        )
        struct = pa.struct([("c.d", pa.int64()), ("x", pa.int64())])
        table.append(pa.table({"id": [1], "a.b": [1], "s": pa.array([{"c.d": 1, "x": 1}], struct)}))
        table.update({"`a.b`": '"a.b" + 1', "s.`c.d`": '5 + s."c.d"'})
        table.update({"a.b": '"a.b" * 10', '"s"."x"': "9"})
        given = pa.table({"id": [1], "n": [3]})
        table.merge(given, ["id"], 'when matched then update set "a.b" = target."a.b" + n, target."s"."c.d" = 7')
        assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "a.b": 23, "s": {"c.d": 7, "x": 9}}]

    def test_a_column_that_is_set_twice(self):
        with pytest.raises(IcebergError, match="twice"):
            new_table().update({"v": "1", "`v`": "2"})
