"""Each argument of each operator, sensor, decorator and group: what a template, or another task, makes of it.

The cases come from the signatures, so that an argument that is added tomorrow is held to the same rules.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions._internal.mixins import ResolveMixin

from airflow_iceberg import operators, sensors
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.decorators import iceberg as decorators
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.given import CheckedArguments
from airflow_iceberg.hooks.signatures import Argument, arguments_of
from airflow_iceberg.hooks.task_key import as_said
from airflow_iceberg.operations.wap import audits
from airflow_iceberg.operators._inputs import Changes, Input
from airflow_iceberg.operators.wap.branch import CleanUpBranchOperator, StartBranchOperator
from airflow_iceberg.operators.wap.publish import PublishTablesOperator
from airflow_iceberg.triggers.conditions import IcebergConditionTrigger
from tests.airflow.conftest import first_event
from tests.support.airflow_versions import DagSerialization

# What is known when the DAG is parsed: it makes outlets, or decides which process begins.
CONSTANTS = {"asset_events", "deferrable", "start_from_trigger"}
# A decorator's source is its function, and the operator of several tables has no single one.
ABSENT = {*decorators._ELSEWHERE, "python_callable"}
NOTHING = (None, "", "None")


def classes() -> list[type[CheckedArguments]]:
    public = [getattr(module, name) for module in (operators, sensors) for name in module.__all__]
    found = [one for one in public if isinstance(one, type) and issubclass(one, BaseOperator)]
    groups = [StartBranchOperator, CleanUpBranchOperator, PublishTablesOperator]
    functions = [decorators._AppendTask, decorators._OverwriteTask, decorators._MergeTask]
    return [*found, *groups, *functions]


CLASSES = classes()


def absent(kind: type[CheckedArguments]) -> set[str]:
    if issubclass(kind, decorators._FunctionTask):
        return ABSENT
    return {"table", "asset_events"} if kind is PublishTablesOperator else set()


def rendered_of(kind: type[CheckedArguments]) -> Iterator[Argument]:
    yield from (one for one in arguments_of(kind) if one.name not in CONSTANTS | absent(kind))


CASES = [(kind, argument) for kind in CLASSES for argument in rendered_of(kind)]
NAMES = [f"{kind.__name__}-{argument.name}" for kind, argument in CASES]


class Output(ResolveMixin):
    """The value that another task returns."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def iter_references(self) -> Iterator[Any]:
        yield from ()

    def resolve(self, context: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        return self.value


def rows(spark: Any) -> None:
    """The function of a decorated task."""


def made(kind: type[CheckedArguments], *, native: bool = False, **given: Any) -> Any:
    """Make a task with the least that it needs, and what is given."""
    needed: dict[str, Any] = {}
    if issubclass(kind, decorators._FunctionTask):
        needed |= {"python_callable": rows}
    for owner in kind.__mro__:
        if owner.__module__.startswith("airflow_iceberg") and "__init__" in vars(owner):
            for one in inspect.signature(owner.__init__).parameters.values():
                if one.kind is one.KEYWORD_ONLY and one.default is one.empty:
                    kinds = str(one.annotation)
                    needed.setdefault(one.name, "s.t" if "str" in kinds.split("[")[0] or "| str" in kinds else {})
    needed = {name: value for name, value in needed.items() if name not in absent(kind) or name == "python_callable"}
    dag = DAG(
        "arguments", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), render_template_as_native_obj=native
    )
    return kind(task_id="task", dag=dag, **{**needed, **given})


def rendered(task: Any, **context: Any) -> Any:
    """Return the task as it is after Airflow has rendered its templates."""
    copy = task.prepare_for_execution()
    copy.render_template_fields({"ti": SimpleNamespace(), "task": copy, **context})
    return copy


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(AirflowFailException) as caught:
        call()
    return str(caught.value)


class TestWhatIsRendered:
    """Every argument that can be rendered is a template field; the others are few, and known."""

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_it_is_a_template_field(self, kind):
        assert {one.name for one in rendered_of(kind) if one.attribute not in kind.template_fields} == set()

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_a_constant_is_none(self, kind):
        assert CONSTANTS & set(kind.template_fields) == set()

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_each_attribute_is_there(self, kind):
        task = made(kind)
        assert [one.name for one in arguments_of(kind) if not hasattr(task, one.attribute)] == []

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_what_it_may_be_is_known(self, kind):
        unknown = {one.name for one in arguments_of(kind) if Any in one.kinds}
        assert unknown <= {"audits"}  # checked when they are made


class TestGivenButNothing:
    """None, an empty text and the text 'None' are not taken for an argument that was left out."""

    @pytest.mark.parametrize(("kind", "argument"), CASES, ids=NAMES)
    def test_by_the_value_of_another_task(self, kind, argument):
        given = Output(None)
        for value, task in self.tasks(kind, argument, given):
            given.value = value
            self.check(task, argument, value)

    @pytest.mark.sample(6)
    @pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
    @pytest.mark.parametrize(("kind", "argument"), CASES, ids=NAMES)
    def test_by_a_template(self, kind, argument, native):
        for value, task in self.tasks(kind, argument, "{{ it }}", native=native):
            self.check(task, argument, value)

    def tasks(self, kind, argument, given, *, native=False):
        if argument.name not in kind.may_be_nothing | {"op_args", "op_kwargs"}:
            task = made(kind, native=native, **{argument.name: given})
            yield from ((value, task) for value in NOTHING)

    def check(self, task, argument, value):
        text = refusal(lambda: rendered(task, it=value))
        assert text.startswith(f"{argument.name} is "), text
        assert "at run time, although the DAG gives a value" in text

    def test_few_may_be(self):
        declared = {(kind.__name__, name) for kind in CLASSES for name in kind.may_be_nothing}
        assert declared == {
            # Refused in any case, with words about the audit.
            ("IcebergPublishOperator", "snapshot_id"),
            ("CleanUpBranchOperator", "snapshot_id"),
            ("PublishTablesOperator", "published"),
            # A task before that has committed nothing: any snapshot counts.
            ("IcebergSnapshotSensor", "after_snapshot_id"),
            ("PaimonSnapshotSensor", "after_snapshot_id"),
        }

    @pytest.mark.parametrize("empty", [[], {}, ()], ids=repr)
    def test_nor_is_something_empty(self, empty):
        assert "inputs" in refusal(lambda: rendered(made(operators.IcebergAppendOperator, inputs=Output(empty))))
        assert "properties" in refusal(lambda: rendered(made(sensors.IcebergPartitionSensor, properties=Output(empty))))

    def test_files_may_be_none_today(self):
        assert rendered(made(operators.IcebergAppendOperator, files=Output([]))).files == []

    @pytest.mark.parametrize("text", ["", "  ", "None"])
    def test_an_empty_text_is_no_way_to_leave_it_out(self, text):
        task = made(operators.IcebergDeleteOperator, max_rows=text)
        assert refusal(lambda: rendered(task)).startswith(f"max_rows is {text!r}")

    def test_what_was_left_out_is_left_out(self):
        for kind in CLASSES:
            rendered(made(kind))

    def test_a_literal_none_is_left_out(self):
        assert rendered(made(operators.IcebergDeleteOperator, max_rows=None, spark_conn_id=None)).max_rows is None


def given_in_parts() -> Iterator[tuple[str, type[CheckedArguments], Callable[[Any], dict[str, Any]], str]]:
    """Values within values, with the place that the refusal names."""
    read = operators.IcebergAppendOperator
    for options in (Input, Changes):
        for name, parameter in inspect.signature(options).parameters.items():
            if name == "table":
                yield f"{options.__name__}.{name}", read, lambda v, k=options: {"inputs": {"a": k(v)}}, name
            elif parameter.kind is parameter.KEYWORD_ONLY:
                make = lambda v, k=options, n=name: {"inputs": {"a": k("s.o", **{n: v})}}  # noqa: E731
                yield f"{options.__name__}.{name}", read, make, name
                of_dict = lambda v, n=name, k=options: {  # noqa: E731
                    "inputs": {"a": {"table": "s.o", **({"since": "last"} if k is Changes else {}), n: v}}
                }
                yield f"{options.__name__} by dictionary.{name}", read, of_dict, name
    one = [
        ("RowCount.min", lambda v: audits.RowCount(min=v), "min"),
        ("RowCount.max", lambda v: audits.RowCount(min=1, max=v), "max"),
        ("RowCount.row_filter", lambda v: audits.RowCount(min=1, row_filter=v), "row_filter"),
        ("RowCountChange.min", lambda v: audits.RowCountChange(min=v), "min"),
        ("NullShare.max", lambda v: audits.NullShare("c", max=v), "max"),
        ("NullShare.column", lambda v: audits.NullShare(v), "column"),
        ("UniqueShare.min", lambda v: audits.UniqueShare(["c"], min=v), "min"),
        ("UniqueShare.columns", lambda v: audits.UniqueShare(["c", v]), "columns[1]"),
        ("NoRows.sql", lambda v: audits.NoRows(v), "sql"),
    ]
    for name, make_audit, place in one:
        yield name, operators.IcebergAuditOperator, lambda v, m=make_audit: {"audits": [m(v)]}, place
    yield "files", read, lambda v: {"files": ["a.parquet", v]}, "files[1]"
    filters = lambda v: {"source": "f", "partition_filter": {"day": v}}  # noqa: E731
    yield "partition_filter", operators.IcebergAddFilesOperator, filters, "partition_filter['day']"
    yield "set", operators.IcebergUpdateOperator, lambda v: {"set": {"a": v}, "where": "true"}, "set['a']"
    yield "options", operators.IcebergCompactOperator, lambda v: {"options": {"a": v}}, "options['a']"
    conf = lambda v: {"spark_config": {"conf": {"spark.a": v}}}  # noqa: E731
    yield "spark_config", operators.IcebergCompactOperator, conf, "spark_config['conf']['spark.a']"
    yield "partition", sensors.IcebergPartitionSensor, lambda v: {"partition": {"day": v}}, "partition['day']"
    published = lambda v: {"snapshot_ids": [1, v]}  # noqa: E731
    yield "snapshot_ids", operators.IcebergExpireSnapshotsOperator, published, "snapshot_ids[1]"


PARTS = list(given_in_parts())


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "make", "place"), [part[1:] for part in PARTS], ids=[part[0] for part in PARTS])
class TestAtAnyDepth:
    """What is in a list, a dictionary or an option object was given, too."""

    def test_by_the_value_of_another_task(self, kind, make, place):
        for value in NOTHING:
            assert place in refusal(lambda v=value: rendered(made(kind, **make(Output(v))))), value

    def test_by_a_template(self, kind, make, place):
        for value in NOTHING:
            for native in (False, True):
                task = made(kind, native=native, **make("{{ it }}"))
                assert place in refusal(lambda t=task, v=value: rendered(t, it=v)), value


class TestData:
    """The values of placeholders are data: null and the empty text are values of it, a text 'None' is an accident."""

    @pytest.mark.parametrize("name", ["predicate_params", "snapshot_properties"])
    def test_nothing_is_a_value(self, name):
        task = made(operators.IcebergDeleteOperator, **{name: {"a": Output(None), "b": Output("")}})
        assert getattr(rendered(task), name) == {"a": None, "b": ""}

    def test_the_text_that_a_template_makes_of_none_is_none(self):
        task = made(operators.IcebergDeleteOperator, predicate_params={"a": "{{ none }}"})
        assert refusal(lambda: rendered(task)).startswith("predicate_params['a'] is 'None'")

    def test_a_field_of_an_input_is_no_data(self):
        given = {"a": Input("s.t", row_filter="a = :x", predicate_params={"x": Output(None)})}
        task = rendered(made(operators.IcebergAppendOperator, inputs=given))
        assert task.inputs["a"].predicate_params == {"x": None}

    def test_what_the_author_has_in_a_dictionary_is_his(self):
        options = {"file_format": "csv", "format_options": {"null_value": ""}}
        assert rendered(made(operators.IcebergAppendOperator, file_options=options)).file_options == options


WRONG: Mapping[type, tuple[Any, ...]] = {bool: ("False", "{{ x }}", 0, 1, None, Output(True), [])}


class TestConstants:
    """What is no template is checked for its type when the DAG is parsed, given in whichever way."""

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_of_an_operator(self, kind):
        for argument in arguments_of(kind):
            if argument.name in CONSTANTS - absent(kind):
                for value in WRONG[argument.kinds[0]]:
                    with pytest.raises(
                        InvalidInputError, match=f"^{argument.name} (is|are) .*, expected true or false"
                    ):
                        made(kind, **{argument.name: value})

    def test_of_a_mapped_operator(self):
        with pytest.raises(InvalidInputError, match="deferrable is 'False', expected true or false"):
            operators.IcebergAppendOperator.partial(task_id="a", table="s.t", deferrable="False")

    def test_of_default_arguments(self):
        with DAG("a", schedule=None, default_args={"asset_events": "False"}):
            with pytest.raises(InvalidInputError, match="asset_events is 'False', expected true or false"):
                operators.IcebergAppendOperator(task_id="a", table="s.t")

    def test_of_a_derived_class(self):
        class Mine(operators.IcebergAppendOperator):
            def __init__(self, *, more: int = 1, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.more = more

        with pytest.raises(InvalidInputError, match="asset_events is 'no', expected true or false"):
            made(Mine, asset_events="no")
        assert made(Mine, more="text").more == "text"

    @pytest.mark.parametrize("decorate", [decorators.append_task, decorators.overwrite_task, decorators.merge_task])
    def test_of_a_decorator_and_of_override(self, decorate):
        with pytest.raises(InvalidInputError, match="asset_events is 'no', expected true or false"):
            decorate(table="s.t", asset_events="no")(rows)
        with pytest.raises(InvalidInputError, match="deferrable is 1, expected true or false"):
            decorate(table="s.t")(rows).override(deferrable=1)


class TestTheTypeAfterRendering:
    """A truth value that a template made text is the one that it says; anything else is refused."""

    @pytest.mark.sample(6)
    @pytest.mark.parametrize(("kind", "argument"), CASES, ids=NAMES)
    def test_of_a_truth_value(self, kind, argument):
        if bool not in argument.kinds:
            return
        for value in (True, False):
            for given in ("{{ it }}", Output(value), Output(str(value)), str(value)):
                task = rendered(made(kind, **{argument.name: given}), it=value)
                assert getattr(task, argument.attribute) is value, given
        for value in ("yes", "0", 1):
            task = made(kind, **{argument.name: Output(value)})
            assert refusal(lambda t=task: rendered(t)) == f"{argument.name} is {value!r}, expected true or false"

    @pytest.mark.sample(6)
    @pytest.mark.parametrize(("kind", "argument"), CASES, ids=NAMES)
    def test_of_any_other(self, kind, argument):
        if argument.name in ("op_args", "op_kwargs", "published"):
            return  # Airflow's own, and a group's
        values = (object(), 1.5, b"x", 7, True, {"a": 1})
        for value in (one for one in values if not argument.accepts(one)):
            text = refusal(lambda v=value: rendered(made(kind, **{argument.name: Output(v)})))
            assert ", expected " in text
            assert text.startswith(argument.name)

    def test_a_literal_of_another_type_is_refused_then(self):
        assert "spec_id is 0.5" in refusal(
            lambda: rendered(made(operators.IcebergRewriteManifestsOperator, spec_id=0.5))
        )

    @pytest.mark.parametrize("given", [7, "{{ it }}", Output(7)])
    def test_the_key_of_a_part_may_be_a_number(self, given):
        task = rendered(made(operators.IcebergAppendOperator, native=True, write_key=given), it=7)
        assert as_said(OperationKey(dag_id="d", run_id="r", task_id="t"), task.write_key, None).part == "=7"

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_a_connection_has_an_id(self, kind):
        name = next(one.name for one in arguments_of(kind) if one.name in ("iceberg_conn_id", "paimon_conn_id"))
        assert f"{name} is None, expected text" in refusal(lambda: rendered(made(kind, **{name: None})))


class TestWhatAirflowStores:
    """A value whose stored form differs each time the DAG is parsed would make a version of the DAG each time."""

    def test_a_schema_of_arrow(self):
        pa = pytest.importorskip("pyarrow")
        with pytest.raises(InvalidInputError, match=r"schema is a pyarrow\.lib\.Schema, which Airflow cannot store"):
            made(operators.IcebergCreateTableOperator, schema=pa.schema([("id", pa.int64())]))

    def test_an_object_within_a_value(self):
        with pytest.raises(InvalidInputError, match=r"options\['x'\] is a builtins.object"):
            made(operators.IcebergCompactOperator, options={"x": object()})

    def test_the_arguments_of_a_function_may_be_anything(self):
        made(decorators._AppendTask, op_kwargs={"x": object()}, python_callable=lambda x: None)


class TestFiles:
    """Only a query, and the clauses of a merge, may be the name of a `.sql` file."""

    @pytest.fixture
    def beside(self, tmp_path):
        (tmp_path / "load.sql").write_text("select {{ it }}")
        with DAG("files", schedule=None, template_searchpath=str(tmp_path)) as dag:
            yield dag

    def test_a_query_is_one(self, beside):
        task = operators.IcebergAppendOperator(task_id="a", table="s.t", sql="load.sql")
        assert rendered(task, it=7).sql == "select 7"
        beside.resolve_template_files()
        assert task.sql == "select {{ it }}"

    def test_clauses_are_some(self, beside):
        task = operators.IcebergMergeOperator(task_id="a", table="s.t", on=["id"], clauses=["load.sql", "x"])
        assert rendered(task, it=7).clauses == ["select 7", "x"]

    def test_nothing_else_is(self, beside):
        given = {
            "table": "logs.sql",
            "files": ["dump.sql"],
            "sql_params": {"script": "load.sql"},
            "inputs": {"a": "logs.sql", "b": Input("logs.sql")},
            "branch": "x.sql",
        }
        task = operators.IcebergAppendOperator(task_id="a", **given)
        beside.resolve_template_files()
        copy = rendered(task)
        assert {name: getattr(copy, name) for name in given} == given

    def test_what_another_task_has_given_is_no_file_and_no_template(self, beside):
        """Airflow renders no object that a mapped task was given; a new one it would, with connections at hand."""
        evil, named = ["delete {{ secret }}", "load.sql"], Input("{{ secret }}")
        for number, (name, value) in enumerate(
            (("clauses", evil), ("sql", evil[0]), ("sql", "load.sql"), ("inputs", {"a": named}))
        ):
            given = {"on": ["id"], "clauses": ["x"], "sql": "select 1", name: value}
            task = operators.IcebergMergeOperator(task_id=f"of_{number}", table="s.t", **given)
            resolved = {id(value), id(named)}
            task._do_render_template_fields(
                task, task.template_fields, {"secret": "sw0rdfish", "it": 7}, task.get_template_env(), resolved
            )
            assert getattr(task, name) == value, name

    def test_one_that_is_missing_is_named(self, beside):
        task = operators.IcebergAppendOperator(task_id="a", table="s.t", sql="lost.sql")
        beside.resolve_template_files()
        assert "sql is the name of a file, 'lost.sql', and there is no such file" in refusal(lambda: rendered(task))


class TestOtherTasksInOptionObjects:
    """Airflow looks for the values of other tasks in lists and dictionaries only."""

    def test_they_come_before(self):
        with DAG("before", schedule=None):
            first = operators.IcebergAppendOperator(task_id="first", table="s.t", sql="select 1")
            second = operators.IcebergAppendOperator(
                task_id="second", table="s.u", inputs={"a": Input("s.t", snapshot_id=first.output["snapshot_id"])}
            )
        assert second.upstream_task_ids == {"first"}

    def test_they_have_one_stored_form(self):
        with DAG("stored", schedule=None):
            first = operators.IcebergAppendOperator(task_id="first", table="s.t", sql="select 1")
        stored = Input("s.t", snapshot_id=first.output["snapshot_id"]).serialize()
        assert stored["snapshot_id"] is not None
        assert "xcom_pull" in str(stored["snapshot_id"])


class TestASensorThatStartsInTheTriggerer:
    """Its arguments are rendered there, as attributes of its trigger, and the same is refused."""

    def started(self, **given: Any) -> Any:
        found = made(sensors.IcebergRowCountSensor, start_from_trigger=True, **given).start_trigger_args
        return IcebergConditionTrigger(**found.trigger_kwargs)

    @pytest.mark.parametrize("name", ["min_rows", "branch", "table", "iceberg_conn_id", "wait_for_table"])
    @pytest.mark.parametrize("value", NOTHING, ids=repr)
    def test_nothing(self, name, value):
        trigger = self.started(**{"min_rows": 1, name: "{{ it }}"})
        setattr(trigger, name, value)
        event = first_event(trigger)
        assert f"{name} is {value!r}" in str(event)

    def test_a_text_is_the_truth_value_that_it_says(self, lake):
        trigger = self.started(min_rows=1, wait_for_table="{{ it }}")
        trigger.wait_for_table = "False"
        assert "s.t" in str(first_event(trigger))  # it does not wait for the table

    def test_the_value_of_another_task_is_a_template(self):
        with DAG("before", schedule=None):
            first = operators.IcebergAppendOperator(task_id="first", table="s.t", sql="select 1")
            given = {"table": first.output, "min_rows": first.output["added_records"]}
            task = sensors.IcebergRowCountSensor(task_id="second", start_from_trigger=True, **given)
        found = task.start_trigger_args.trigger_kwargs
        assert "xcom_pull" in found["min_rows"]
        assert found["table"].startswith("{{ ")


class TestWhatAirflowKeeps:
    """Airflow 3.1 to 3.3 have no public way to the arguments that an operator was made with."""

    def test_what_was_given(self):
        """Read by `hooks.given` and `hooks.run_tasks`: a digest of an item has these arguments and no others."""
        with DAG("given", schedule=None, default_args={"branch": "audit"}):
            task = operators.IcebergAppendOperator(task_id="t", table="s.t", files="x")
        given = vars(task).get("_BaseOperator__init_kwargs")
        assert given is not None, "this Airflow keeps them elsewhere: change hooks/given.py and hooks/run_tasks.py"
        assert {"table", "files", "branch"} <= given.keys()
        assert "sql" not in given

    def test_whether_it_was_mapped(self):
        """Read by `hooks.given`: values of other tasks are known to have been given."""
        with DAG("mapped", schedule=None):
            task = operators.IcebergAppendOperator(task_id="t", table="s.t", files="x")
        known = "_BaseOperator__from_mapped" in vars(task) or hasattr(type(task), "_BaseOperator__from_mapped")
        assert known, "this Airflow calls it otherwise: change _mapped_names of hooks/given.py"


class TestTheVersionOfADag:
    """A DAG that was not changed has the same stored form each time it is parsed."""

    def parsed(self) -> Any:
        with DAG("version", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
            first = operators.IcebergAppendOperator(task_id="first", table="s.t", sql="select 1")
            read = {"a": Input("s.t", snapshot_id=first.output["snapshot_id"]), "b": Changes("s.t", since=first.output)}
            operators.IcebergMergeOperator(task_id="merge", table="s.u", on=["id"], inputs=read, upsert=first.output)
            operators.IcebergDeleteOperator.partial(task_id="delete", table="s.t", predicate="true").expand(
                max_rows=first.output
            )
            with operators.iceberg_wap(table=first.output, audits=[audits.RowCount(min=first.output)]) as wap:
                decorators.append_task(table="s.t", branch=wap.branch)(rows)()
            sensors.IcebergRowCountSensor(task_id="wait", table="s.t", min_rows=first.output, start_from_trigger=True)
        return json.loads(json.dumps(DagSerialization.serialize_dag(dag), sort_keys=True))

    def test_it_is_the_same(self):
        stored = self.parsed()
        assert stored == self.parsed()
        assert " at 0x" not in json.dumps(stored)
