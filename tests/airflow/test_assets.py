"""Tables as assets: their URIs, what a DAG file declares, and the events that commits make."""

import inspect
import itertools
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, chain
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_iceberg import operators as offered
from airflow_iceberg.assets import asset_uri, iceberg_asset, table_of_uri, verb_of
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.operators import (
    Changes,
    IcebergAlterTableOperator,
    IcebergAppendOperator,
    IcebergBranchOperator,
    IcebergCompactOperator,
    IcebergDeleteOperator,
    IcebergExpireSnapshotsOperator,
    IcebergFastForwardOperator,
    IcebergRollbackOperator,
    IcebergSnapshotTableOperator,
    IcebergTagOperator,
    Input,
)
from tests.airflow.conftest import operators
from tests.support.airflow_versions import HookLineageCollector, needs_partitions

_numbers = itertools.count()
CONN = "iceberg_catalog_default"
# They need none; `make test` has the most telling ones of each kind.
WITH_SERVICES = pytest.mark.services


@pytest.fixture
def name() -> str:
    """A table that no other test has: assets stay in Airflow's database."""
    return f"s.t{os.getpid()}_{next(_numbers)}"


OFFERED = [getattr(offered, name) for name in offered.__all__ if re.fullmatch(r"Iceberg\w+Operator", name)]


def verb_of_kind(kind: type[Any]) -> str:
    return verb_of(object.__new__(kind))


append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)


def events_of(asset: Asset) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the events of an asset: partition keys and extras, those without a key first."""
    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        found = session.scalars(query.where(AssetModel.name == asset.name, AssetModel.uri == asset.uri))
        return sorted(
            ((getattr(event, "partition_key", None), event.extra) for event in found), key=lambda one: one[0] or ""
        )


class TestUris:
    """A table has one URI, whoever writes it; every part of it is encoded."""

    @pytest.mark.parametrize(
        ("table", "conn_id", "uri"),
        [
            ("sales.orders", CONN, "iceberg://iceberg_catalog_default/sales/orders"),
            ("a.b.c", "prod", "iceberg://prod/a/b/c"),
            ("s.t@main/x y", "eu:prod@1", "iceberg://eu%3Aprod%401/s/t%40main%2Fx%20y"),
            ("s.größe", "prod", "iceberg://prod/s/gr%C3%B6%C3%9Fe"),
            ("s.`x.t`", "prod", "iceberg://prod/s/x.t"),
            ("`a.b`.c.`d``e`", "prod", "iceberg://prod/a.b/c/d%60e"),
            ("s.`x.t@etl`", "prod", "iceberg://prod/s/x.t%40etl"),
            ("s.` t`", "prod", "iceberg://prod/s/%20t"),
        ],
    )
    def test_there_and_back(self, table, conn_id, uri):
        assert asset_uri(table, conn_id) == uri
        assert table_of_uri(uri) == (conn_id, table)
        # Airflow has called the handler that this provider names.
        assert Asset(uri).uri == Asset(uri.replace("iceberg://", "ICEBERG://") + "/").uri == uri

    def test_two_tables_that_differ_by_a_dot_alone_have_two(self):
        assert asset_uri('s."x.t"', "prod") == asset_uri("s.`x.t`", "prod") != asset_uri("s.x.t", "prod")
        with pytest.raises(ValueError, match="is no name"):
            asset_uri("s.`x.t", "prod")
        assert not IcebergAppendOperator(task_id="t", table="s.`x.t", files="/x").outlets

    def test_a_uri_that_is_spelled_otherwise_becomes_the_same(self):
        assert Asset("iceberg://prod/s/%74").uri == "iceberg://prod/s/t"

    def test_maintenance_is_an_asset_of_its_own(self):
        assert asset_uri("s.t", "prod", maintenance=True) == "iceberg://prod/s/t?event=maintenance"
        assert Asset("iceberg://prod/s/t?event=maintenance") == iceberg_asset("s.t", "prod", maintenance=True)

    @pytest.mark.parametrize(
        ("branch", "query"),
        [("main", ""), ("audit", "?branch=audit"), ("a/b c", "?branch=a%2Fb+c"), ("größe", "?branch=gr%C3%B6%C3%9Fe")],
    )
    def test_another_branch_than_main_is_an_asset_of_its_own(self, branch, query):
        of_branch = iceberg_asset("s.t", "prod", branch=branch)
        assert of_branch.uri == f"iceberg://prod/s/t{query}"
        assert table_of_uri(of_branch.uri) == ("prod", "s.t")
        spelled = f"branch={quote(branch, safe='')}"
        assert Asset(of_branch.uri).uri == Asset(f"iceberg://prod/s/t?{spelled}").uri == of_branch.uri
        maintained = iceberg_asset("s.t", "prod", branch=branch, maintenance=True)
        assert Asset(f"iceberg://prod/s/t?event=maintenance&{spelled}").uri == maintained.uri != of_branch.uri

    @pytest.mark.parametrize(
        "uri",
        [
            *("iceberg://prod", "iceberg://prod/t", "iceberg:///s/t", "iceberg://prod/s/t?x=1"),
            *("iceberg://prod/s/t?event=commit", "iceberg://prod/s/t?branch=a&branch=b"),
        ],
    )
    def test_what_is_no_table_is_refused(self, uri):
        with pytest.raises(ValueError, match=r"is not the URI of a table|has the query"):
            Asset(uri)

    def test_airflow_makes_it_from_a_table(self):
        made = HookLineageCollector().create_asset(
            scheme="iceberg", asset_kwargs={"table": "s.t", "iceberg_conn_id": "prod"}, asset_extra={"a": 1}
        )
        assert (made, made.extra) == (iceberg_asset("s.t", "prod", extra={"a": 1}), {"a": 1})


class TestWhatADagFileDeclares:
    """Outlets and inlets are known when a DAG is parsed, as far as no template names them."""

    def test_the_table_and_the_inputs(self):
        inputs = {
            "a": "s.a",
            "b": Input("s.b", iceberg_conn_id="other"),
            "c": Changes("s.c"),
            "d": {"table": "s.d"},
            "e": "s.{{ ds }}",
            "f": Input("s.a", ref="x"),
        }
        task = append(sql="select 1", inputs=inputs)
        assert task.outlets == [iceberg_asset("s.t")]
        assert task.inlets == [iceberg_asset("s.a"), iceberg_asset("s.b", "other"), *map(iceberg_asset, ("s.c", "s.d"))]

    @pytest.mark.parametrize(
        ("kind", "more"),
        [(IcebergCompactOperator, {}), (IcebergTagOperator, {"tag": "v1"}), (IcebergBranchOperator, {"branch": "b"})],
    )
    def test_maintenance_has_the_other_asset(self, kind, more):
        task = kind(task_id="t", table="s.t", **more)
        assert task.outlets == [iceberg_asset("s.t", maintenance=True)]

    def test_what_moves_a_branch_has_the_asset_of_the_rows(self):
        task = IcebergRollbackOperator(task_id="t", table="s.t", snapshot_id=1)
        assert task.outlets == [iceberg_asset("s.t")]

    @pytest.mark.parametrize("kind", [kind for kind in OFFERED if "branch" in kind.template_fields], ids=verb_of_kind)
    def test_another_branch_is_another_asset(self, kind):
        """Of every operator that has a branch; those of audits read it, and tell of main or nobody."""
        required = {"to": "x", "wap_id": "1", "predicate": "id = 1", "set": {}, "where": "id = 1", "on": ["id"]}
        named = inspect.signature(kind.__init__).parameters
        options = {name: value for name, value in required.items() if name in named}
        verb = verb_of_kind(kind)
        if verb in ("cherry_pick", "publish"):
            options["snapshot_id"] = 1
        if verb == "branch":
            options["action"] = "replace"
        made = kind(task_id="t", table="s.t", branch="audit", **options)
        expected = iceberg_asset("s.t", branch="audit", maintenance=kind.is_maintenance)
        assert made.outlets == {"audit": [], "publish": [iceberg_asset("s.t")]}.get(verb, [expected])
        by_template = kind(task_id="t", table="s.t", branch="{{ ds }}", **options)
        assert by_template.outlets == ([iceberg_asset("s.t")] if verb == "publish" else [])

    @pytest.mark.parametrize(
        ("branch", "action", "asset"),
        [
            ("main", "replace", iceberg_asset("s.t")),
            ("main", "create", iceberg_asset("s.t")),
            ("main", "retention", iceberg_asset("s.t", maintenance=True)),
            ("audit", "replace", iceberg_asset("s.t", branch="audit")),
            ("audit", "create", iceberg_asset("s.t", maintenance=True)),
            ("audit", "drop", iceberg_asset("s.t", maintenance=True)),
        ],
    )
    def test_a_branch_that_is_moved_is_no_maintenance(self, branch, action, asset):
        assert IcebergBranchOperator(task_id="t", table="s.t", branch=branch, action=action).outlets == [asset]

    def test_an_asset_that_the_author_gave_stays_the_only_one(self):
        mine = Asset(name="orders", uri="iceberg://iceberg_catalog_default/s/t")
        assert append(files="/x", outlets=[mine]).outlets == [mine]

    @pytest.mark.parametrize("table", ["s.{{ ds }}", "{% if x %}s.t{% endif %}", "nonsense", ""])
    def test_what_is_not_known_is_not_declared(self, table):
        assert append(table=table, files="/x").outlets == []

    def test_none_if_the_author_does_not_want_it(self):
        task = append(sql="select 1", inputs={"a": "s.a"}, asset_events=False)
        assert (task.outlets, task.inlets) == ([], [])


class TestEventsOfACommit:
    """Each commit has an event that says what was committed; without a commit there is none."""

    @pytest.mark.costly
    def test_of_a_table_without_partitions(self, lake, name, run_task):
        table = lake.create(name)
        lake.append([9], name)
        parent = lake.load(name).current_snapshot()
        result = run_task(append, table=name, files=str(lake.write_file("a.parquet", [1, 2]))).result("append")
        snapshot = lake.load(name).current_snapshot()
        ((key, event),) = events_of(iceberg_asset(name))
        left_out = {"outcome", "done_by_this_try"}
        assert key is None
        assert event == {
            **{field: value for field, value in result.items() if field not in left_out},
            "event_id": f"{table.metadata.table_uuid}/{snapshot.snapshot_id}",
            "table_uuid": table.metadata.table_uuid,
            "snapshot_id": str(snapshot.snapshot_id),
            "parent_snapshot_id": str(parent.snapshot_id),
            "operation": "append",
            "sequence_number": 2,
            "timestamp_ms": snapshot.timestamp_ms,
            "schema_id": 0,
            "partitions": [],
            "partition_count": 0,
            "partitions_cut": False,
        }

    @pytest.mark.costly
    @needs_partitions
    @pytest.mark.sample(2)
    @pytest.mark.parametrize(("kind", "expected"), [("path", ["id=1", "id=2"]), ("value", ["1", "2"])])
    def test_each_partition_that_was_touched_and_one_for_all(self, kind, expected, lake, name, run_task):
        lake.create(name, partition_by=["id"])
        lake.append([7], name)
        files = str(lake.write_file("a.parquet", [1, 1, 2]))
        run_task(append, table=name, files=files, partition_keys=kind)
        found = events_of(iceberg_asset(name))
        assert [key for key, _ in found] == [None, *expected]
        assert {tuple(event["partitions"]) for _, event in found} == {("id=1", "id=2")}

    @needs_partitions
    @WITH_SERVICES
    def test_no_more_than_the_option_allows(self, lake, name, run_task, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.assets.MAX_PARTITION_EVENTS", 3)
        lake.create(name, partition_by=["id"])
        run_task(append, table=name, files=str(lake.write_file("a.parquet", list(range(10)))))
        found = events_of(iceberg_asset(name))
        assert [key for key, _ in found] == [None, "id=0", "id=1", "id=2"]
        assert (found[0][1]["partition_count"], found[0][1]["partitions_cut"]) == (10, True)

    @pytest.mark.costly
    @needs_partitions
    def test_a_retry_that_finds_its_commit_makes_the_same_event(self, lake, name, run_task):
        lake.create(name, partition_by=["id"])
        lake.append([5], name)
        files = str(lake.write_file("a.parquet", [1, 2]))
        told: list[Any] = []

        class Fails(IcebergAppendOperator):
            def execute(self, context: Any) -> Any:
                result = super().execute(context)
                told.append(dict(context["outlet_events"][iceberg_asset(name)].extra))
                if len(told) == 1:
                    lake.append([6], name)
                    lake.load(name).delete("id = 2")
                    raise AirflowException("after the commit")
                return result

        run = run_task(Fails, task_id="append", table=name, spark_conn_id=None, files=files, retries=1)
        assert (run.result("append")["outcome"], told[0]) == ("found", told[1])
        found = events_of(iceberg_asset(name))
        assert [key for key, _ in found] == [None, "id=1", "id=2"]
        assert [event for _, event in found] == [told[0]] * 3

    @pytest.mark.costly
    def test_nothing_committed_makes_no_event(self, lake, name, run_task):
        lake.create(name)
        assert run_task(append, table=name, files=str(lake.write_file("a.parquet", []))).state == "success"
        assert events_of(iceberg_asset(name)) == []

    @pytest.mark.costly
    def test_a_table_that_a_template_names_becomes_an_asset(self, lake, name, run_task):
        lake.create(name)
        files = str(lake.write_file("a.parquet", [1]))
        run_task(append, table="{{ params.table }}", params={"table": name}, files=files)
        ((key, event),) = events_of(iceberg_asset(name))
        assert (key, event["table"], event["added_records"]) == (None, name, 1)

    @WITH_SERVICES
    def test_a_mapped_task_tells_each_table(self, lake, name, new_dag, run_dag):
        names = [f"{name}_{one}" for one in "ab"]
        for one in names:
            lake.create(one)
        files = str(lake.write_file("a.parquet", [1]))
        with new_dag() as dag:
            IcebergAppendOperator.partial(task_id="append", spark_conn_id=None, files=files).expand(table=names)
        assert run_dag(dag).state == "success"
        assert [len(events_of(iceberg_asset(one))) for one in names] == [1, 1]

    @needs_partitions
    @WITH_SERVICES
    def test_the_asset_that_the_author_named(self, lake, name, run_task):
        mine = Asset(name=f"mine {name}", uri=asset_uri(name))
        lake.create(name, partition_by=["id"])
        run_task(append, table=name, files=str(lake.write_file("a.parquet", [1])), outlets=[mine])
        assert [key for key, _ in events_of(mine)] == [None, "id=1"]
        assert events_of(iceberg_asset(name)) == []


class TestTheWordForAnOperation:
    """An event without a snapshot says what was done in the word that the documentation has for it."""

    def test_it_is_in_the_table_of_the_architecture_page(self):
        page = Path(__file__).parents[2] / "docs" / "architecture.md"
        known = set(re.findall(r"^\| (\w+) \| `operators\.", page.read_text(), re.MULTILINE))
        words = {verb_of_kind(kind) for kind in OFFERED}
        assert words - {"restore_orphan_files"} == known
        assert {"rollback", "set_current_snapshot", "tag", "expire_snapshots", "snapshot_table"} < words

    def test_a_derived_class_has_the_word_of_its_operator(self):
        class Mine(IcebergRollbackOperator):
            """Written in a DAG file."""

        assert verb_of(Mine(task_id="t", table="s.t", snapshot_id=1)) == "rollback"


class TestEventsOfMaintenance:
    """What changes no rows is told to those who ask for it, and starts no DAG that waits for rows."""

    def compact(self, run_task: Any, name: str, **options: Any) -> None:
        made = operators(IcebergCompactOperator, task_id="compact", spark_conn_id=None, table=name)
        run_task(made, options={"rewrite-all": True}, **options)

    @pytest.mark.services
    @needs_partitions
    def test_of_a_compaction(self, lake, name, run_task):
        lake.create(name, partition_by=["id"])
        lake.append([1, 2], name)
        self.compact(run_task, name, where="id = 2")
        found = events_of(iceberg_asset(name, maintenance=True))
        assert [key for key, _ in found] == [None, "id=2"]
        snapshot = lake.load(name).current_snapshot()
        assert (found[0][1]["operation"], found[0][1]["snapshot_id"]) == ("replace", str(snapshot.snapshot_id))
        assert events_of(iceberg_asset(name)) == []

    @WITH_SERVICES
    def test_unless_the_author_wants_the_asset_of_the_rows_to_have_it(self, lake, name, run_task):
        lake.create(name)
        lake.append([1, 2], name)
        self.compact(run_task, name, outlets=[iceberg_asset(name)])
        assert [event["operation"] for _, event in events_of(iceberg_asset(name))] == ["replace"]

    @WITH_SERVICES
    def test_of_what_makes_no_snapshot(self, lake, name, run_task):
        lake.create(name)
        lake.append([1], name)
        lake.load(name).overwrite(pa.table({"id": [2]}))
        expire = operators(IcebergExpireSnapshotsOperator, task_id="expire", spark_conn_id=None, table=name)
        run_task(expire, older_than="2100-01-01T00:00:00+00:00")
        alter = operators(IcebergAlterTableOperator, task_id="alter", table=name)
        run_task(alter, changes=[{"add_column": {"name": "x", "type": "long"}}])
        events = [event for _, event in events_of(iceberg_asset(name, maintenance=True))]
        assert sorted(event["operation"] for event in events) == ["alter_table", "expire_snapshots"]
        assert all(event["operation_key"] in event["event_id"] for event in events)


class TestEventsOfBranches:
    """Main's asset tells of the rows of main: not of commits to other branches, but of each move of main."""

    def events(self, name: str, **which: Any) -> list[tuple[str | None, dict[str, Any]]]:
        return events_of(iceberg_asset(name, **which))

    @pytest.mark.services
    @needs_partitions
    def test_until_a_branch_is_published_main_is_told_nothing(self, lake, name, new_dag, run_dag):
        lake.create(name, partition_by=["id"])
        lake.append([9], name)
        start = str(lake.load(name).current_snapshot().snapshot_id)
        files = {one: str(lake.write_file(f"{one}.parquet", [one])) for one in (1, 2, 3)}
        with new_dag(table=name, spark_conn_id=None) as dag:
            steps: list[Any] = [
                IcebergAppendOperator(task_id="one", branch="audit", create_branch=True, files=files[1]),
                IcebergAppendOperator(task_id="two", branch="audit", files=files[2]),
                # One that a template names may have another name in each run.
                IcebergAppendOperator(task_id="three", branch="{{ 'audit' }}", files=files[3]),
                # Who asks for it gets it.
                IcebergAppendOperator(
                    task_id="four", branch="audit", files=files[3], outlets=[Asset("iceberg://other/s/t")]
                ),
            ]
            chain(*steps)
        assert run_dag(dag).state == "success"
        assert self.events(name) == self.events(name, maintenance=True) == []
        found = self.events(name, branch="audit")
        assert [key for key, _ in found] == [None, None, None, "id=1", "id=2", "id=3"]
        assert {event["branch"] for _, event in found} == {"audit"}

        with new_dag(table=name) as dag:
            chain(
                IcebergFastForwardOperator(task_id="publish", to="audit"),
                IcebergRollbackOperator(task_id="back", snapshot_id=start),
                IcebergBranchOperator(task_id="replace", branch="main", action="replace", snapshot_id=start),
                IcebergBranchOperator(
                    task_id="keep", branch="main", action="replace", snapshot_id=start, min_snapshots_to_keep=5
                ),
            )
        assert run_dag(dag).state == "success"
        moves = [(key, event["operation"], event["branch"]) for key, event in self.events(name)]
        of_partitions = [("id=1", "id=2", "id=3")] * 2
        assert sorted(one[1:] for one in moves if one[0] is None) == [("fast_forward", "main"), ("rollback", "main")]
        assert sorted(one[0] for one in moves if one[0]) == sorted(2 * of_partitions[0])
        # What leaves main where it is changes no rows.
        ((_, kept),) = self.events(name, maintenance=True)
        assert (kept["operation"], kept["snapshot_id"]) == ("branch", start)

    @pytest.mark.services
    @needs_partitions
    def test_main_that_is_replaced(self, lake, name, run_task):
        lake.create(name, partition_by=["id"])
        lake.append([1], name)
        first = str(lake.load(name).current_snapshot().snapshot_id)
        lake.append([2], name)
        replace = operators(IcebergBranchOperator, task_id="replace", table=name, branch="main", action="replace")
        run_task(replace, snapshot_id=first)
        assert [key for key, _ in self.events(name)] == [None, "id=2"]
        assert self.events(name, maintenance=True) == []

    @WITH_SERVICES
    def test_of_what_a_function_writes(self, lake, name, run_task):
        lake.create(name)

        def write() -> None:
            table = IcebergHook().task_table(name)
            table.append(pa.table({"id": [1]}), branch="audit", create_branch=True)

        run_task(PythonOperator, task_id="silent", python_callable=write)
        assert self.events(name) == self.events(name, branch="audit") == []
        run_task(PythonOperator, task_id="loud", python_callable=write, outlets=[iceberg_asset(name, branch="audit")])
        assert [event["branch"] for _, event in self.events(name, branch="audit")] == ["audit"]
        assert self.events(name) == []


class TestPartitionsReallyTouched:
    """Partitions of files that were added or removed, of this snapshot alone."""

    @needs_partitions
    @WITH_SERVICES
    def test_of_a_delete_that_reads_metadata_only(self, lake, name, run_task):
        lake.create(name, partition_by=["id"])
        lake.append([1, 2, 3], name)
        delete = operators(IcebergDeleteOperator, task_id="delete", spark_conn_id=None, table=name)
        run_task(delete, predicate="id >= 2")
        assert [key for key, _ in events_of(iceberg_asset(name))] == [None, "id=2", "id=3"]

    @needs_partitions
    @WITH_SERVICES
    def test_of_a_table_that_is_made_of_files(self, lake, name, run_task):
        path = lake.write_file("a.parquet", [1])
        folder = lake.folder / "warehouse" / f"parts of {name}"
        (folder / "day=a").mkdir(parents=True)
        path.rename(folder / "day=a" / "f.parquet")
        made = operators(IcebergSnapshotTableOperator, task_id="make", table=name)
        run_task(made, source=str(folder))
        assert [key for key, _ in events_of(iceberg_asset(name))] == [None, "day=a"]


def test_parsing_a_dag_asks_no_connection(monkeypatch):
    """Not even one that does not exist."""
    monkeypatch.setattr("airflow.sdk.BaseHook.get_connection", lambda *_: pytest.fail("a connection was read"))
    with DAG("parsed", schedule=[iceberg_asset("s.t")]):
        task = append(iceberg_conn_id="none", sql="select 1", inputs={"a": "s.a"})
    assert task.outlets == [iceberg_asset("s.t", "none")]
