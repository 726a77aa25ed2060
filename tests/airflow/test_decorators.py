"""Functions as tasks: `@task.iceberg_append`, `_overwrite` and `_merge` under `dag.test()`."""

import inspect
import weakref
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException
from airflow.sdk import DAG, task

from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import CommitUnknownError
from airflow_iceberg.operations.row_level import changes
from tests.airflow.conftest import Lake

SCHEMA = pa.schema({"id": pa.int64()})


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_batches([batch(*ids)])


class Frame:
    """What another library has: rows by the Arrow PyCapsule interface, and nothing else of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OneBatch:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return batch(1, 2).__arrow_c_array__(requested_schema)


def one_by_one():
    yield batch(1)
    yield batch(2)


def mixed():
    yield rows(1)
    yield Frame(rows(2))
    yield rows()


class Columns:
    """Text as Polars has it."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table = pa.table({"id": pa.array([1, 2], pa.int64()), "name": pa.array(["a", "b"], pa.string_view())})
        return table.__arrow_c_stream__(requested_schema)


# Frames of libraries that may be here.
FRAMES = {
    "pandas": lambda pandas: pandas.DataFrame({"id": [1, 2]}),
    "polars": lambda polars: polars.DataFrame({"id": [1, 2]}),
    "duckdb": lambda duckdb: duckdb.sql("select unnest([1, 2])::bigint as id"),
}
RESULTS = {
    "a table": lambda: rows(1, 2),
    "a batch": lambda: batch(1, 2),
    "a reader": lambda: rows(1, 2).to_reader(),
    "a generator of batches": one_by_one,
    "a generator of tables and frames": mixed,
    "a list of batches": lambda: [batch(1), batch(2)],
    "what has a stream": lambda: Frame(rows(1, 2)),
    "what has an array": OneBatch,
}


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create()
    return lake


@pytest.fixture
def run_function(new_dag, run_dag):
    """Runs a DAG of one decorated function, which takes no arguments."""

    def run(function: Any, verb: str = "append", **options: Any) -> Any:
        def load():
            return function()

        with new_dag() as dag:
            getattr(task, f"iceberg_{verb}")(**{"table": "s.t", **options})(load)()
        return run_dag(dag)

    return run


class TestWhatAFunctionReturns:
    """Anything that gives Arrow rows: as a whole, or a part at a time."""

    @pytest.mark.services
    @pytest.mark.parametrize("kind", RESULTS)
    @pytest.mark.parametrize("verb", ["append", "merge"])
    def test_is_written(self, table, run_function, verb, kind):
        options = {} if verb == "append" else {"on": ["id"], "upsert": True}
        run = run_function(RESULTS[kind], verb, **options)
        assert run.state == "success", run.failures
        assert table.ids() == [1, 2]
        assert run.result("load")["added_records"] == 2
        assert table.staged() == []

    @pytest.mark.services
    @pytest.mark.parametrize("library", FRAMES)
    def test_a_frame_of_another_library(self, table, run_function, library):
        made = FRAMES[library](pytest.importorskip(library))
        for function in (lambda: made, lambda: iter([made])):
            run = run_function(function, "overwrite", replace="table")
            assert run.state == "success", run.failures
            assert table.ids() == [1, 2]

    @pytest.mark.services
    @pytest.mark.parametrize("verb", ["append", "merge"])
    def test_text_as_polars_has_it(self, lake, run_function, verb):
        lake.create(schema={"id": "long", "name": "string"})
        run = run_function(Columns, verb, **({} if verb == "append" else {"on": ["id"], "upsert": True}))
        assert run.state == "success", run.failures
        assert lake.load().scan().to_arrow()["name"].to_pylist() == ["a", "b"]

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda: None, "function 'load' returned None, expected an Arrow table or reader"),
            (lambda: 5, "function 'load' returned a int, expected an Arrow table or reader"),
            (lambda: {"id": [1]}, "function 'load' returned a dict, expected an Arrow table"),
            (lambda: "s.t", "function 'load' returned a str, expected an Arrow table"),
            (lambda: [{"id": 1}], "part 1 of the rows of function 'load' is a dict, expected a record batch"),
            (lambda: iter([rows(1), 7]), "part 2 of the rows of function 'load' is a int, expected a record batch"),
            (lambda: pa.array([1]), "that cannot become an Arrow table"),
            (
                lambda: iter([batch(1), pa.record_batch({"id": ["x"]})]),
                "part 2 of the rows of function 'load' has the columns id string, and the first part has id int64",
            ),
            (lambda: pa.table({"nope": [1]}), "nope"),
        ],
    )
    @pytest.mark.parametrize("verb", ["append", "merge"])
    def test_or_is_named_and_nothing_is_written(self, table, run_function, function, message, verb):
        if verb == "merge" and message == "nope":
            message = "column 'id', by which rows are matched, is not in the rows of function 'load'"
        run = run_function(function, verb, **({} if verb == "append" else {"on": ["id"], "upsert": True}))
        assert message in run.refusal
        assert table.load().current_snapshot() is None
        assert (table.data_files(), table.staged()) == ([], [])

    @pytest.mark.costly
    def test_a_dataframe_of_spark_needs_the_session_of_the_task(self, table, run_function):
        # Its class alone: a real one needs a JVM.
        kind = type("DataFrame", (Frame,), {"__module__": "pyspark.sql.classic.dataframe"})
        run = run_function(lambda: kind(rows(1)))
        assert "returned a Spark DataFrame" in run.refusal
        assert "python_callable='package.module:load'" in run.refusal

    @pytest.mark.parametrize("kind", ["async def", "async generator"])
    def test_an_async_function_is_refused_when_the_file_is_parsed(self, new_dag, kind):
        async def load():
            return rows(1)

        async def load_parts():
            yield rows(1)

        with new_dag(), pytest.raises(TypeError, match=r"@task.iceberg_append takes no async function"):
            task.iceberg_append(table="s.t")(load if kind == "async def" else load_parts)()

    @pytest.mark.services
    @pytest.mark.parametrize("function", [lambda: iter([]), lambda: rows(), lambda: rows().to_reader()])
    @pytest.mark.parametrize(("on_empty", "state"), [("nothing", "success"), ("skip", "success"), ("fail", "failed")])
    def test_no_rows_at_all(self, table, run_function, function, on_empty, state):
        run = run_function(function, on_empty=on_empty)
        assert (run.state, table.load().current_snapshot()) == (state, None)
        assert run.task("load").state == ("skipped" if on_empty == "skip" else state)


class TestTheStream:
    """Rows are written while they are read, so that only few of them are in memory."""

    COUNT, SIZE = 200, 20_000

    def stream(self, alive: list[int]) -> Any:
        """Yield batches, and note each time how many of the earlier ones are still there."""
        known: list[weakref.ref[pa.RecordBatch]] = []
        for number in range(self.COUNT):
            alive.append(sum(one() is not None for one in known))
            made = pa.record_batch({"id": pa.array(range(number * self.SIZE, (number + 1) * self.SIZE), pa.int64())})
            known.append(weakref.ref(made))
            yield made
            del made

    @pytest.mark.services
    @pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
    def test_batches_are_taken_one_by_one(self, lake, run_function, verb):
        lake.create(properties={"write.parquet.row-group-size-bytes": str(1 << 20)})
        alive: list[int] = []
        before = pa.total_allocated_bytes()
        peak: list[int] = []

        def watched():
            for one in self.stream(alive):
                peak.append(pa.total_allocated_bytes() - before)
                yield one

        options = {"append": {}, "overwrite": {"replace": "table"}, "merge": {"on": ["id"], "upsert": True}}[verb]
        run = run_function(watched, verb, **options)
        assert run.state == "success", run.failures
        assert run.result("load")["added_records"] == self.COUNT * self.SIZE
        assert len(alive) == self.COUNT
        # A batch has 160 kB, all of them 32 MB. Rows wait for a row group of 1 MB, in a merge for one of seven batches.
        assert max(alive) <= 10
        assert max(peak) < 16 << 20

    @pytest.mark.services
    @pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
    @pytest.mark.parametrize("error", [RuntimeError("the source is gone"), OSError("the source is gone")])
    def test_an_exception_in_it_leaves_nothing(self, table, run_function, verb, error):
        def breaks():
            yield batch(*range(100_000))
            raise error

        options = {"append": {}, "overwrite": {"replace": "table"}, "merge": {"on": ["id"], "upsert": True}}[verb]
        run = run_function(breaks, verb, **options)
        assert run.state == "failed"
        assert run.failures == [error]
        assert table.load().current_snapshot() is None
        assert (table.data_files(), table.staged()) == ([], [])

    @pytest.mark.costly
    @pytest.mark.parametrize("verb", ["append", "merge"])
    def test_a_skip_in_it_passes(self, table, run_function, verb):
        def skips():
            yield batch(1)
            raise AirflowSkipException("no delivery today")

        run = run_function(skips, verb, **({} if verb == "append" else {"on": ["id"], "upsert": True}))
        assert run.task("load").state == "skipped"
        assert table.load().current_snapshot() is None
        assert (table.data_files(), table.staged()) == ([], [])


class TestArguments:
    """Those of the function come as with `@task`, those of the operator are templates."""

    @pytest.mark.services
    def test_of_the_function(self, table, new_dag, run_dag):
        with new_dag(params={"last": 5}) as dag:

            @task
            def first() -> int:
                return 3

            @task.iceberg_append(table="s.{{ 't' }}", snapshot_properties={"day": "{{ ds }}"})
            def load(start: int, last: str, *, step: int = 1, ds: Any = None, **context: Any) -> pa.Table:
                assert ds == "2026-01-01"
                assert context["ti"].task_id == "load"
                return rows(*range(start, int(last) + 1, step))

            load(first(), "{{ params.last }}")
        run = run_dag(dag)
        assert run.state == "success", run.failures
        assert table.ids() == [3, 4, 5]
        assert table.load().current_snapshot().summary["day"] == "2026-01-01"
        # The result is what an operator returns, and nothing of the rows.
        assert run.result("load")["snapshot_id"] == str(table.load().current_snapshot().snapshot_id)

    @pytest.mark.services
    def test_mapped_tasks_are_told_apart(self, table, new_dag, run_dag, clear):
        calls: list[int] = []
        with new_dag() as dag:

            @task.iceberg_append(table="s.t")
            def load(number: int, base: int) -> pa.Table:
                calls.append(number)
                return rows(base + number + 100 * (len(calls) > 3))

            load.partial(base=10).expand(number=[1, 2, 3])
        run = run_dag(dag)
        assert run.state == "success", run.failures
        assert table.ids() == [11, 12, 13]
        keys = {one.summary["airflow.map-index"] for one in table.load().snapshots()}
        assert keys == {"0", "1", "2"}
        clear(dag, run)
        assert table.ids() == [111, 112, 113]

    @pytest.mark.parametrize("name", ["sql", "files", "inputs", "spark_config"])
    def test_of_another_source_are_refused(self, new_dag, name):
        with new_dag(), pytest.raises(TypeError, match=rf"@task.iceberg_append takes no {name}: its function returns"):
            task.iceberg_append(table="s.t", **{name: "x"})(lambda: rows(1))()

    @pytest.mark.parametrize("name", ["spark_conn_id", "config_kwargs"])
    def test_of_a_session_need_a_function_that_takes_it(self, new_dag, name):
        with new_dag(), pytest.raises(TypeError, match=r"for a function with a parameter 'spark', and '<lambda>' has"):
            task.iceberg_append(table="s.t", **{name: "x"})(lambda: rows(1))()

    def test_multiple_outputs_are_not_offered(self):
        with pytest.raises(TypeError, match="has no multiple_outputs"):
            task.iceberg_merge(table="s.t", on=["id"], upsert=True, multiple_outputs=True)

    @pytest.mark.costly
    def test_override_offers_none_either(self):
        with pytest.raises(TypeError, match=r"^@task\.iceberg_append has no multiple_outputs"):
            task.iceberg_append(table="s.t")(list).override(multiple_outputs=True)
        task.iceberg_append(table="s.t")(list).override(multiple_outputs=False, task_id="x")

    @pytest.mark.parametrize(
        ("function", "args", "kwargs"),
        [
            (lambda spark, day: (spark, day), ("d",), {}),
            (lambda spark, day: (spark, day), (), {"day": "d"}),
            (lambda day, spark: (spark, day), ("d",), {}),
            (lambda spark, sc, day: (spark, day), ("d",), {}),
            (lambda spark, day, sc: (spark, day), ("d",), {}),
            (lambda day, /, spark: (spark, day), ("d",), {}),
            (lambda spark, *days: (spark, *days), ("d",), {}),
            (lambda day, *, spark: (spark, day), ("d",), {}),
            (lambda spark, day="d", **more: (spark, day), (), {}),
            (lambda spark, day, ds=None: (spark, day), ("d",), {}),
        ],
    )
    def test_a_session_has_any_place_among_the_arguments(self, function, args, kwargs):
        before = inspect.signature(function)
        with DAG("places", schedule=None):
            made = task.iceberg_append(table="s.t", task_id="rows")(function)(*args, **kwargs).operator
        made._context = {"ds": "2026-01-01"}
        late = {"spark": "s", **({"sc": "c"} if "sc" in before.parameters else {})}
        assert made._call(**late) == ("s", "d")
        assert inspect.signature(function) == before

    def test_an_argument_that_is_missing_is_missing(self):
        with DAG("places", schedule=None), pytest.raises(TypeError, match="missing a required argument: 'day'"):
            task.iceberg_append(table="s.t", task_id="rows")(lambda spark, day: None)()

    def test_an_annotation_makes_no_multiple_outputs(self, table, new_dag, run_dag):
        with new_dag() as dag:

            @task.iceberg_append(table="s.t")
            def load() -> dict[str, int]:
                return rows(1)  # type: ignore[return-value]

            load()
        assert run_dag(dag).result("load")["outcome"] == "committed"


class TestExactlyOnce:
    """The key is looked up before the function is called; a clear replaces its rows."""

    @pytest.mark.services
    @pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
    @pytest.mark.parametrize("late", [False, True], ids=["after the commit", "lost answer"])
    def test_a_retry_after_the_commit_does_not_call_the_function(self, table, run_function, monkeypatch, verb, late):
        calls: list[int] = []
        real, answers = SqlCatalog.commit, iter([True])

        def lost(*arguments: Any, **options: Any) -> Any:
            done = real(*arguments, **options)
            if next(answers, False):
                if late:
                    table.append([99])
                raise CommitUnknownError("no answer")
            return done

        # The engine asks for its own snapshot after a lost answer; here the process cannot, either.
        monkeypatch.setattr(SqlCatalog, "commit", lost)
        function = lambda: (calls.append(1), rows(1, 2))[1]  # noqa: E731
        options = {"append": {}, "overwrite": {"replace": "table"}, "merge": {"on": ["id"], "upsert": True}}[verb]
        run = run_function(function, verb, retries=2, **options)
        assert run.state == "success", run.failures
        assert len(calls) == 1
        assert table.ids() == ([1, 2, 99] if late else [1, 2])

    @pytest.mark.services
    @pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
    def test_a_try_that_died_after_its_commit(self, table, new_dag, run_dag, verb):
        calls: list[int] = []
        options = {"append": {}, "overwrite": {"replace": "table"}, "merge": {"on": ["id"], "upsert": True}}[verb]

        def dies(context: Any, result: Any) -> None:
            if context["ti"].try_number == 1:
                table.append([7])
                raise AirflowException("after the commit")

        with new_dag() as dag:

            @getattr(task, f"iceberg_{verb}")(table="s.t", retries=1, post_execute=dies, **options)
            def load() -> pa.Table:
                calls.append(1)
                return rows(1, 2)

            load()
        run = run_dag(dag)
        assert run.state == "success", run.failures
        assert (run.result("load")["outcome"], len(calls), table.ids()) == ("found", 1, [1, 2, 7])

    @pytest.mark.services
    def test_a_retry_after_a_broken_stream_calls_it_again(self, table, run_function):
        calls: list[int] = []

        def once():
            calls.append(1)
            yield batch(1)
            if len(calls) == 1:
                raise RuntimeError("the source is gone")

        run = run_function(once, retries=1)
        assert (run.state, len(calls), table.ids()) == ("success", 2, [1])
        assert len(table.data_files()) == 1

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("on_rerun", "ids", "count"), [("replace", [2], 2), ("append", [1, 2], 2), ("skip", [1], 1)]
    )
    def test_a_cleared_task(self, table, new_dag, run_dag, clear, on_rerun, ids, count):
        calls: list[int] = []
        with new_dag() as dag:

            @task.iceberg_append(table="s.t", on_rerun=on_rerun)
            def load() -> Any:
                calls.append(1)
                yield batch(len(calls))

            load()
        run = run_dag(dag)
        assert table.ids() == [1]
        clear(dag, run)
        assert (table.ids(), len(calls)) == (ids, count)

    @pytest.mark.services
    def test_a_merge_that_is_planned_again_does_not_call_the_function_again(self, table, run_function, monkeypatch):
        table.append([1, 2])
        calls, real = [], changes._task

        def meanwhile(*arguments: Any) -> Any:
            made = real(*arguments)
            if len(calls) == 1 and len(table.load().snapshots()) == 1:
                table.load().delete("id = 1")
            return made

        monkeypatch.setattr(changes, "_task", meanwhile)

        def load() -> Any:
            calls.append(1)
            yield batch(1, 3)

        run = run_function(load, "merge", on=["id"], upsert=True)
        assert run.state == "success", run.failures
        assert (table.ids(), len(calls)) == ([1, 2, 3], 1)
        assert table.staged() == []


class TestTheWordsOfTheOperators:
    """What the operators can do with rows, the decorators can."""

    @pytest.mark.services
    def test_a_branch_and_new_columns(self, table, run_function):
        table.append([1])
        table.load().create_branch("audit")
        made = pa.table({"id": pa.array([2], pa.int64()), "name": ["b"]})
        run = run_function(lambda: iter([made]), branch="audit", schema_evolution="add_columns")
        assert run.state == "success", run.failures
        assert (table.ids(), table.ids(ref="audit")) == ([1], [1, 2])
        assert "name" in table.load().schema().names

    @pytest.mark.services
    def test_an_overwrite_of_matching_rows(self, table, run_function):
        table.append([1, 2, 3])
        options = {"overwrite_filter": "id >= :least", "predicate_params": {"least": "{{ 2 }}"}}
        run = run_function(lambda: iter([rows(5)]), "overwrite", **options)
        assert run.state == "success", run.failures
        assert table.ids() == [1, 5]
        run = run_function(lambda: iter([rows(6), rows(0)]), "overwrite", **options)
        assert "id >= " in run.refusal
        assert table.ids() == [1, 5]
        run = run_function(lambda: iter([]), "overwrite", on_empty="delete", **options)
        assert table.ids() == [1]

    @pytest.mark.services
    def test_a_merge_by_clauses(self, lake, run_function):
        lake.create(schema={"id": "long", "n": "long"})
        lake.load().append(pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}))
        run = run_function(
            lambda: iter([pa.table({"id": [1, 2, 4], "op": ["d", "u", "u"]})]),
            "merge",
            on="target.id = source.id",
            clauses=[
                "when matched and source.op = 'd' then delete",
                "when matched then update set n = target.n + $more",
                "when not matched then insert (id, n) values (source.id, 0)",
            ],
            clause_params={"more": 10},
        )
        assert run.state == "success", run.failures
        found = lake.load().scan().to_arrow().sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in found] == [(2, 12), (3, 3), (4, 0)]

    @pytest.mark.services
    def test_a_key_twice_is_an_error(self, table, run_function):
        table.append([1])
        run = run_function(lambda: iter([batch(1), batch(1)]), "merge", on=["id"], upsert=True)
        assert "1" in run.refusal
        assert table.ids() == [1]
        assert table.staged() == []
