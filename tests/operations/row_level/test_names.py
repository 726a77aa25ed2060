"""A name is a path of fields in exact spelling: which column a merge, an update or a query means by it."""

import json
import random

import pyarrow as pa
import pytest

from airflow_iceberg.data.existing.partition import folder_values
from airflow_iceberg.data.existing.target import ExistingFile
from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_catalog
from tests.support.jobs_on_spark import runs
from tests.support.memory import MemoryCatalog
from tests.support.name_cases import OUT, Case, made, names_twins
from tests.support.sampling import SEED, sampled
from tests.support.spark_programs import SPARK_4, SPARK_35

COUNT = sampled(600)


def table_of(catalog, schema, rows, name="db.t", **properties):
    table = Table.create(catalog, name, schema=schema, properties=properties)
    arrow = schema_to_arrow(table.schema(), with_field_ids=False)
    if rows:
        table.append(pa.Table.from_pylist(rows, arrow))
    return table


def rows_of(table):
    return sorted(map(repr, table.refresh().scan().to_arrow().to_pylist()))


def local(table):
    return lambda plan: run_local(plan, table.io)


def done(case: Case, catalog, dialect: str, run=local) -> list[str]:
    """Return the rows after a case."""
    modes = dict.fromkeys(("write.merge.mode", "write.update.mode"), case.mode)
    table = table_of(catalog, case.schema, case.rows, **{"format-version": str(case.version), **modes})
    if case.query is not None:
        out = table_of(catalog, {OUT: "long"}, [], name="db.out")
        request = AppendRequest(
            rows=Source.from_sql(case.query, dialect=dialect), inputs={"src": Input(open=lambda: table)}
        )
        append(Work(out, run=run(out)), request)
        return rows_of(out)
    if case.sets:
        update(Work(table, run=run(table)), UpdateRequest(set=case.sets, where=case.where, dialect=dialect))
    else:
        more = {"upsert": True} if case.upsert else {"clauses": case.clauses}
        merge(Work(table, run=run(table)), MergeRequest(rows=case.given, on=case.on, dialect=dialect, **more))
    return rows_of(table)


def judge(case: Case, catalog, dialect, run=local, *, may_refuse: bool) -> bool:
    """Check a case, and return whether it was done."""
    try:
        found = done(case, catalog, dialect, run)
    except InvalidInputError as error:
        refusal = str(error)
    else:
        assert found == sorted(map(repr, case.expected)), case
        return True
    assert may_refuse, f"{refusal}: {case}"
    # Of an input, Spark itself says so, and names one of them.
    assert names_twins(refusal) or "[AMBIGUOUS_REFERENCE" in refusal, f"{refusal}: {case}"
    return False


@pytest.mark.costly
@pytest.mark.generated
def test_statements_by_duckdb():
    """The rows are those of exact names, or the statement is refused with two names that DuckDB takes for one."""
    count = sum(judge(made(f"{SEED} {n}", "duckdb"), MemoryCatalog(), "duckdb", may_refuse=True) for n in range(COUNT))
    assert count > COUNT / 2


def on_spark(spark, *, is_exact):
    return runs(spark, ("spark.sql.caseSensitive", "true") if is_exact else ())


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.parametrize("is_exact", [True, False], ids=["case-sensitive", "as-it-is"])
@pytest.mark.parametrize("version", [SPARK_4, SPARK_35])
@pytest.mark.parametrize("around", ["{}", "named_struct('s', named_struct({})) as a"])
def test_a_query_on_spark(tmp_path, spark_of, version, is_exact, around):
    columns = "2 as ID, 1 as id, 9 as v" if around == "{}" else "'ID', 2, 'id', 1, 'v', 9"
    source = Source.from_sql(f"select {around.format(columns)}")
    kind = "struct<s: struct<ID: int, id: int, v: int>>"
    schema = {"id": "int", "ID": "int", "v": "int"} if around == "{}" else {"a": kind}
    rows = [{"ID": ID, "id": number, "v": 0} for ID, number in [(2, 7), (7, 1), (1, 2)]]
    table = table_of(new_catalog(tmp_path), schema, [row if around == "{}" else {"a": {"s": row}} for row in rows])
    request = MergeRequest(rows=source, on=["id" if around == "{}" else "a.s.id"], upsert=True)
    work = Work(table, run=on_spark(spark_of(version), is_exact=is_exact)(table))
    if not is_exact:
        with pytest.raises(InvalidInputError) as error:
            merge(work, request)
        assert names_twins(str(error.value))
        return
    merge(work, request)
    found = [row if around == "{}" else row["a"]["s"] for row in table.refresh().scan().to_arrow().to_pylist()]
    found = sorted((row["id"], row["ID"], row["v"]) for row in found)
    assert found == [(1, 2, 9), (2, 1, 0), (7, 2, 0)]


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.generated
@pytest.mark.parametrize("is_exact", [True, False], ids=["case-sensitive", "as-it-is"])
@pytest.mark.parametrize("version", [SPARK_4, SPARK_35])
def test_statements_on_spark(tmp_path, spark_of, version, is_exact):
    """With spark.sql.caseSensitive nothing is refused."""
    run_on = on_spark(spark_of(version), is_exact=is_exact)
    numbers = range(random.Random(f"{SEED} {version} {is_exact}").randrange(1000), 2000)[: COUNT // 30]
    for number in numbers:
        catalog = new_catalog(tmp_path / str(number))
        judge(made(f"{SEED} {number}", "spark"), catalog, "spark", run_on, may_refuse=not is_exact)


# -- examples ----------------------------------------------------------------------------------------------------------

NESTED = {"id": "long", "a": "struct<id: long, b: struct<id: long>>", "v": "long"}
MODES = ["copy-on-write", "merge-on-read"]


def nested(*rows):
    return [{"id": id_, "a": {"id": key, "b": {"id": deep}}, "v": v} for id_, key, deep, v in rows]


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def nested_table(mode, **properties):
    rows = nested((1, 10, 7, 1), (2, 20, 8, 2), (10, 30, 9, 3))
    modes = dict.fromkeys(("write.merge.mode", "write.update.mode"), mode)
    return table_of(MemoryCatalog(), NESTED, rows, **modes, **properties)


def arrow_of(table, rows):
    return pa.Table.from_pylist(rows, schema_to_arrow(table.schema(), with_field_ids=False))


class TestKeysInStructs:
    """A key is a column, or a field of structs: its full name says which, and not its last part."""

    AFTER = nested((10, 30, 9, 3), (2, 20, 8, 2), (5, 10, 6, 50))

    def test_an_upsert(self, mode):
        table = nested_table(mode)
        table.upsert(arrow_of(table, nested((5, 10, 6, 50))), ["a.id"])
        assert rows_of(table) == sorted(map(repr, self.AFTER))

    @pytest.mark.parametrize("name", ["A.Id", '"a"."id"', "`a`.id"])
    def test_its_spelling(self, name):
        table = nested_table(MODES[0])
        table.upsert(arrow_of(table, nested((5, 10, 6, 50))), [name], case_sensitive=False)
        assert rows_of(table) == sorted(map(repr, self.AFTER))
        with pytest.raises(NotFoundError, match=r"no column 'A\.id'"):
            table.upsert(arrow_of(table, nested((5, 10, 6, 50))), ["A.id"])

    def test_two_levels_and_two_keys(self, mode):
        table = nested_table(mode)
        given = nested((5, 10, 7, 50), (6, 10, 8, 60), (10, 40, 9, 70))
        table.upsert(arrow_of(table, given), ["a.b.id", "a.id"])
        expected = nested((2, 20, 8, 2), (10, 30, 9, 3)) + given
        assert rows_of(table) == sorted(map(repr, expected))

    def test_a_key_of_another_type_is_compared_by_an_engine(self, mode):
        table = nested_table(mode)
        kind = pa.struct([("id", pa.int32()), ("b", pa.struct([("id", pa.int64())]))])
        given = pa.table({"id": [5], "a": pa.array([{"id": 10, "b": {"id": 6}}], kind), "v": [50]})
        table.upsert(given, ["a.id"])
        assert rows_of(table) == sorted(map(repr, self.AFTER))

    @pytest.mark.parametrize("on", [["a.id"], "target.a.id = source.a.id", "source.a.id = target.A.ID and true"])
    def test_a_merge(self, mode, on):
        table = nested_table(mode)
        clauses = "when matched then update set * when not matched then insert *"
        table.merge(arrow_of(table, nested((5, 10, 6, 50))), on, clauses)
        assert rows_of(table) == sorted(map(repr, self.AFTER))

    def test_identifier_fields(self, mode):
        schema = {
            "id": "long",
            "a": {"type": "struct<id: long not null>", "required": True},
            "v": "long",
        }
        table = table_of(MemoryCatalog(), schema, [{"id": 1, "a": {"id": 10}, "v": 1}], **{"write.merge.mode": mode})
        table.alter([{"set_identifier_fields": ["a.id"]}])
        table.refresh().upsert(arrow_of(table, [{"id": 7, "a": {"id": 10}, "v": 2}]))
        assert rows_of(table) == [repr({"id": 7, "a": {"id": 10}, "v": 2})]
        before = table.refresh().current_snapshot()
        table.upsert(arrow_of(table, [{"id": 8, "a": {"id": 10}, "v": 3}]))
        changes = table.refresh().changes(from_snapshot_id=before.snapshot_id, mode="changelog", compute_updates=True)
        assert changes.read_all()["_change_type"].to_pylist() == ["update_before", "update_after"]

    def test_a_null_or_repeated_key_is_named(self):
        table = nested_table(MODES[0])
        for rows, message in [
            ([{"id": 1, "a": None, "v": 1}], r"the source has a null key \(a.id = None\)"),
            (nested((1, 10, 1, 1), (2, 10, 2, 2)), r"the source has 2 rows with the same key \(a.id = 10\)"),
        ]:
            with pytest.raises(InvalidInputError, match=message):
                table.upsert(arrow_of(table, rows), ["a.id"])

    def test_several_rows_that_match_one_name_the_key(self):
        table = nested_table(MODES[0])
        given = arrow_of(table, nested((1, 10, 1, 1), (2, 10, 2, 2)))
        with pytest.raises(InvalidInputError, match=r"2 rows of the source match one row .* \(a.id = 10\)"):
            table.merge(given, ["a.id"], "when matched then update set v = source.v")

    def test_only_files_that_can_match_are_read(self):
        table = nested_table(MODES[0])
        table.append(arrow_of(table, nested((3, 100, 1, 1))))
        table.upsert(arrow_of(table, nested((3, 100, 1, 5))), ["a.id"])
        summary = table.refresh().current_snapshot().summary
        assert (summary["deleted-data-files"], summary["added-data-files"]) == ("1", "1")

    @pytest.mark.parametrize("version", ["2", "3"])
    def test_changes(self, mode, version):
        table = nested_table(mode, **{"format-version": version})
        before = table.current_snapshot()
        table.upsert(arrow_of(table, nested((5, 10, 6, 50))), ["a.id"])
        changes = table.refresh().changes(
            from_snapshot_id=before.snapshot_id,
            mode="changelog",
            compute_updates=True,
            identifier_columns=["a.id"],
        )
        found = [(row["_change_type"], row["id"]) for row in changes.read_all().to_pylist()]
        assert found == [("update_before", 1), ("update_after", 5)]

    @pytest.mark.parametrize("name", ["pts.id", "pts.element.id", "m.key", "m.value", "m.value.id"])
    def test_none_lies_below_a_list_or_a_map(self, name):
        schema = {"id": "long", "key": "long", "pts": "list<struct<id: long>>", "m": "map<string, struct<id: long>>"}
        table = table_of(MemoryCatalog(), schema, [{"id": 1, "key": 1, "pts": [{"id": 1}], "m": []}])
        given = arrow_of(table, [{"id": 1, "key": 2, "pts": [{"id": 1}], "m": []}])
        where = f"column '{name}' cannot be a key: it is inside the {'list' if name[0] == 'p' else 'map'} '{name[:1]}"
        for change in (
            lambda: table.upsert(given, [name]),
            lambda: table.merge(given, [name], "when matched then delete"),
            lambda: table.changes(None, mode="changelog", compute_updates=True, identifier_columns=[name]),
        ):
            with pytest.raises(InvalidInputError) as error:
                change()
            assert where in str(error.value)


class TestTwins:
    """Of two names that differ by case alone, the one is meant that is spelled so."""

    def test_in_the_source(self, mode):
        table = table_of(MemoryCatalog(), {"id": "long", "v": "long"}, [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        for names in (["id", "ID", "v"], ["ID", "id", "v"]):
            values = {"id": 1, "ID": 2, "v": 9}
            table.upsert(pa.table({name: [values[name]] for name in names}), ["id"], mode=mode)
            assert rows_of(table) == [repr({"id": 1, "v": 9}), repr({"id": 2, "v": 2})]

    @pytest.mark.parametrize(("one", "other"), [("ID", "id"), ("id", "ID"), ("Ä", "ä")])
    def test_in_the_table(self, mode, one, other):
        rows = [{one: 1, other: 5, "v": 1}, {one: 9, other: 9, "v": 2}]
        table = table_of(MemoryCatalog(), {one: "long", other: "long", "v": "long"}, rows)
        table.upsert(pa.table({other: [7], one: [9], "v": [3]}), [one], mode=mode)
        assert rows_of(table) == sorted(map(repr, [rows[0], {one: 9, other: 7, "v": 3}]))

    def test_that_duckdb_is_not_asked_for(self):
        """Only the columns that a statement names are read for it, in their exact spelling."""
        rows = [{"id": 1, "ID": 2, "v": 0}]
        table = table_of(MemoryCatalog(), {"id": "long", "ID": "long", "v": "long"}, rows)
        table.update({"v": "ID * 10", "id": "7"}, "target.ID = 2")
        assert rows_of(table) == [repr({"id": 7, "ID": 2, "v": 20})]
        table.update({"ID": "5", "id": "4"})
        assert rows_of(table) == [repr({"id": 4, "ID": 5, "v": 20})]
        table.merge(pa.table({"k": [5]}), "target.ID = source.k", "when matched then update set v = source.k")
        assert rows_of(table) == [repr({"id": 4, "ID": 5, "v": 5})]

    @pytest.mark.parametrize("text", ["id + ID", "iD"])
    def test_that_duckdb_cannot_tell_apart(self, text):
        table = table_of(MemoryCatalog(), {"id": "long", "ID": "long", "v": "long"}, [{"id": 1, "ID": 2, "v": 0}])
        with pytest.raises(InvalidInputError, match="'target' has the columns 'id' and 'ID', which are one for DuckDB"):
            table.update({"v": text})

    def test_a_name_that_may_be_either(self):
        table = table_of(MemoryCatalog(), {"Id": "long", "iD": "long", "s": "struct<X: long, x: long>"}, [])
        given = pa.table({"id": [1], "s": pa.array([{"X": 1, "x": 2}])})
        with pytest.raises(InvalidInputError, match="'id' is ambiguous without case: Id, iD"):
            table.upsert(given, ["id"], case_sensitive=False)
        with pytest.raises(InvalidInputError, match="column 'id' may be 'Id' or 'iD' of the table"):
            table.update({"id": "1"})
        other = table_of(MemoryCatalog(), {"id": "long"}, [])
        with pytest.raises(InvalidInputError, match="column 'id' may be 'ID' or 'Id' of the Arrow rows"):
            other.upsert(pa.table({"ID": [1], "Id": [2]}), ["id"])

    @pytest.mark.parametrize("kind", ["struct<x: long, X: long>", "struct<X: long, x: long>"])
    @pytest.mark.parametrize("around", ["{}", "list<{}>", "struct<deep: map<string, {}>>"])
    def test_in_structs(self, kind, around):
        """DuckDB reads one for the other: what it would be shown is refused; whole structs are moved without it."""
        table = table_of(MemoryCatalog(), {"id": "long", "s": around.format(kind), "v": "long"}, [])
        value = {"x": 1, "X": 2}
        value = {"{}": value, "list<{}>": [value]}.get(around, {"deep": [("k", value)]})
        row = {"id": 1, "s": value, "v": 0}
        table.upsert(arrow_of(table, [row]), ["id"])
        before = rows_of(table)
        assert repr(table.scan().to_arrow()["s"][0].as_py()) == repr(arrow_of(table, [row])["s"][0].as_py())
        table.update({"v": "id"})
        assert rows_of(table) == [text.replace("'v': 0", "'v': 1") for text in before]
        for change in (
            lambda: table.update({"v": "length(s::varchar)"}),
            lambda: table.merge(arrow_of(table, [row]), ["id"], "when matched then update set *"),
            lambda: table.merge(pa.table({"k": [1]}), "target.s is not null", "when matched then delete"),
        ):
            with pytest.raises(InvalidInputError) as error:
                change()
            assert names_twins(str(error.value))

    @pytest.mark.parametrize("field", ["x", "X"])
    def test_in_a_struct_that_a_query_reads(self, field):
        rows = [{"id": 1, "s": {"x": 1, "X": 2}}, {"id": 2, "s": {"x": 2, "X": 1}}]
        table = table_of(MemoryCatalog(), {"id": "long", "s": "struct<x: long, X: long>"}, rows)
        out = table_of(MemoryCatalog(), {"id": "long"}, [])

        def load(query):
            source = Source.from_sql(query, dialect="duckdb")
            work = Work(out, run=lambda plan: run_local(plan, out.io, inputs={"src": table.io}))
            append(work, AppendRequest(rows=source, inputs={"src": Input(open=lambda: table)}))

        with pytest.raises(InvalidInputError, match=r"'src' has the columns 's\.x' and 's\.X', which are one"):
            load(f"select id from src where s.{field} = 1")
        load("select id from src where id = 2")
        assert rows_of(out) == [repr({"id": 2})]

    @pytest.mark.parametrize(
        ("folders", "found"),
        [
            ({"id": "1", "ID": "2"}, {1: 1, 2: 2}),
            ({"ID": "2"}, {2: 2}),
        ],
    )
    def test_in_folders_of_existing_files(self, folders, found):
        schema = {"id": "long", "ID": "long", "v": "long"}
        table = Table.create(MemoryCatalog(), "db.t", schema=schema, partition_by=["id", "ID"])
        file = ExistingFile(location="file:///a.parquet", folders=folders)
        assert folder_values(file, table.metadata.spec(), table.schema()) == found
        file = ExistingFile(location="file:///a.parquet", folders={"Id": "3"})
        with pytest.raises(InvalidInputError, match="folder 'Id=3' may be column 'id' or 'ID'"):
            folder_values(file, table.metadata.spec(), table.schema())

    def test_a_key_of_a_struct_type(self, mode):
        table = nested_table(mode)
        table.upsert(arrow_of(table, [{"id": 5, "a": {"id": 10, "b": {"id": 7}}, "v": 50}]), ["a"])
        assert rows_of(table) == sorted(map(repr, nested((5, 10, 7, 50), (2, 20, 8, 2), (10, 30, 9, 3))))

    def test_of_two_files_are_one_column_by_mistake(self, tmp_path):
        import pyarrow.parquet as pq

        table = table_of(MemoryCatalog(), {"id": "long"}, [])
        for name in ("id", "ID"):
            pq.write_table(pa.table({name: [1]}), tmp_path / f"{name}.parquet")
        request = MergeRequest(rows=Source.from_files(f"{tmp_path}/*"), on=["id"], upsert=True, dialect="duckdb")
        with pytest.raises(InvalidInputError, match=r"columns 'ID' and 'id' of .* differ by case alone"):
            merge(Work(table, run=local(table)), request)


class TestNamesThatAreNone:
    """An unknown name is told of with the names that there are, and not in the words of the engine."""

    @pytest.mark.parametrize(
        ("sets", "where", "message"),
        [
            ({"v": "nope"}, None, "column 'nope' is not known: 'target' has id, a, v"),
            ({"v": "1"}, "nope = 1", "column 'nope' is not known: 'target' has id, a, v"),
            ({"v": "a.nope"}, None, "a struct has no field 'nope': 'target' has id, a, v"),
            ({"v": "nope.x"}, None, "neither a table nor a column is called 'nope': 'target' has id, a, v"),
            ({"v": "target.nope"}, None, "column 'target.nope' in the update is not in the target: it has id, a, v"),
            ({"nope": "1"}, None, "column 'nope' of 'update' is not in the table, which has id, a, v"),
        ],
    )
    def test_of_an_update(self, sets, where, message):
        table = nested_table(MODES[0])
        with pytest.raises(InvalidInputError) as error:
            table.update(sets, where)
        assert message in str(error.value)
        assert "Binder" not in str(error.value)

    def test_of_a_merge(self):
        table = nested_table(MODES[0])
        with pytest.raises(InvalidInputError) as error:
            table.merge(pa.table({"id": [1], "k": [1]}), ["id"], "when matched then update set v = nope")
        assert "column 'nope' is not known: 'target' has id, a, v; 'source' has id, k" in str(error.value)


class TestANameTwice:
    """Of two values with one name none is taken."""

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ({"id": 1}, "line 2: an object has the key 'id' twice"),
            ({"id": 1, "s": {"x": 1}}, "line 2: an object has the key 'x' twice"),
            ({"id": 1, "s": {"x": 1}, "more": [{"k": 1}]}, "line 2: an object has the key 'k' twice"),
        ],
    )
    def test_in_a_line_of_json(self, tmp_path, line, message):
        table = table_of(MemoryCatalog(), {"id": "long", "s": "struct<x: long>", "more": "string"}, [])
        name = message.split("'")[1]
        text = json.dumps(line)
        (tmp_path / "1.jsonl").write_text('{"id": 7}\n' + text.replace(f'"{name}": 1', f'"{name}": 1, "{name}": 2'))
        source = Source.from_files(str(tmp_path / "1.jsonl"))
        for run in (
            lambda work: append(work, AppendRequest(rows=source)),
            lambda work: merge(work, MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")),
        ):
            with pytest.raises(FormatError) as error:
                run(Work(table, run=local(table)))
            assert message in str(error.value)
        assert table.refresh().current_snapshot() is None

    def test_in_a_query(self):
        table = table_of(MemoryCatalog(), {"id": "long"}, [])
        source = Source.from_sql("select 1 as id, 2 as id", dialect="duckdb")
        for run in (
            lambda work: append(work, AppendRequest(rows=source)),
            lambda work: merge(work, MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")),
        ):
            with pytest.raises(InvalidInputError, match="column 'id' appears twice in the query"):
                run(Work(table, run=local(table)))

    @pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("x", pa.int64()), ("x", pa.int64())])])
    def test_in_arrow_rows(self, kind):
        table = table_of(MemoryCatalog(), {"id": "long", "s": "struct<x: long>"}, [])
        names = ["id", "id"] if kind == pa.int64() else ["id", "s"]
        given = pa.Table.from_arrays([pa.array([1]), pa.nulls(1, kind)], names=names)
        twice = "id" if kind == pa.int64() else "s.x"
        for change in (
            lambda: table.append(given),
            lambda: table.append(given, schema_evolution="add_columns"),
            lambda: table.overwrite(given),
            lambda: table.upsert(given, ["id"]),
            lambda: table.merge(given, ["id"], "when matched then delete"),
        ):
            with pytest.raises(InvalidInputError, match=f"column '{twice}' appears twice in the Arrow rows"):
                change()


class TestNewColumns:
    """A column is added beside another one of nearly its name only by a change of its own."""

    @pytest.mark.parametrize(
        ("schema", "names"),
        [
            ({"ID": "long"}, ("ID", "id")),
            ({"s": "struct<X: long>"}, ("s.X", "s.x")),
            ({"new": "list<struct<k: long, K: long>>"}, ("new.element.k", "new.element.K")),
        ],
    )
    def test_union_by_name_and_add_columns(self, schema, names):
        table = table_of(MemoryCatalog(), {"id": "long", "s": "struct<x: long>"}, [])
        given = table_of(MemoryCatalog(), schema, []).schema()
        message = f"column '{names[0]}' is not added: the table has '{names[1]}'"
        with pytest.raises(InvalidInputError) as error:
            table.alter([{"union_by_name": given}])
        assert message in str(error.value)
        rows = schema_to_arrow(given, with_field_ids=False).empty_table()
        with pytest.raises(InvalidInputError) as error:
            table.append(rows, schema_evolution="add_columns")
        assert message in str(error.value)
        table.alter([{"add_column": {"name": "ID", "type": "long"}}])
        assert table.refresh().schema().names.keys() >= {"id", "ID"}
