"""The links of tasks: each leads somewhere, or there is none."""

import json
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.pages import SparkPages, history_page, pages_told
from airflow_iceberg.backends.spark_output import SparkOutput
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.get_provider_info import get_provider_info
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.paimon import PaimonConfig
from airflow_iceberg.jobs.main import _say_progress
from airflow_iceberg.links import (
    SnapshotLink,
    SparkHistoryLink,
    SparkUiLink,
    StagingLink,
    TableLink,
    pages,
    pages_of,
    paimon_pages,
    tell_application,
)
from airflow_iceberg.operations.staging import new_staging
from airflow_iceberg.operators import IcebergAppendOperator, IcebergCreateTableOperator, IcebergRollbackOperator
from airflow_iceberg.operators._key import installation_id
from airflow_iceberg.sensors import PaimonSnapshotSensor
from airflow_iceberg.ui import committed, render
from airflow_iceberg.ui.opened import connect
from airflow_iceberg.ui.staging import staging_folders
from tests.airflow.conftest import Instance, Lake, operators
from tests.airflow.killed_operator import context_of
from tests.support.airflow_versions import as_the_scheduler_has_it

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)
PAGES = {
    "table-url": "https://lake.example.com/{catalog}/{namespace}/{name}",
    "snapshot-url": "https://lake.example.com/{table}?at={snapshot_id}",
}
UI = "airflow_iceberg: the Spark application is app-1, its page is http://driver:4040"


@pytest.fixture
def with_pages(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose connection names the pages of its tables and snapshots."""
    known = {**lake.connection, "extra": {**lake.connection["extra"], **PAGES}}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(known))
    return lake


def links(task: Any) -> dict[str, str]:
    return {link.name: link.get_link(task, ti_key=SimpleNamespace()) for link in task.operator_extra_links}


class TestTableAndSnapshot:
    """Their pages are those that the connection names."""

    @pytest.mark.services
    def test_under_airflow(self, with_pages, new_dag, run_dag):
        with_pages.create()
        with new_dag() as dag:
            append(files=str(with_pages.write_file("a.parquet", [1])))
        run = run_dag(dag)
        snapshot = with_pages.load().current_snapshot().snapshot_id
        shown = as_the_scheduler_has_it(dag).get_task("append")
        assert {name: shown.get_extra_links(run.task("append"), name) for name in shown.extra_links} == {
            "Iceberg table": "https://lake.example.com/lake/s/t",
            "Iceberg snapshot": f"https://lake.example.com/s.t?at={snapshot}",
            "Spark UI": "",
            "Spark history server": "",
            "Staging folder": "",
        }

    def executed(self, task: Any, **which: int) -> dict[str, str]:
        task.execute(context_of(task, {"try": 1, "epoch": 0, **which}))
        return links(task)

    def test_a_retry_leads_to_the_snapshot_that_it_has_found(self, with_pages):
        with_pages.create()
        files = str(with_pages.write_file("a.parquet", [1]))
        first = self.executed(append(files=files))
        with_pages.append([2])
        assert self.executed(append(files=files), **{"try": 2}) == first

    @pytest.mark.costly
    def test_without_a_snapshot_there_is_no_link_to_one(self, with_pages):
        page = {"Iceberg table": "https://lake.example.com/lake/s/t", "Iceberg snapshot": ""}
        create = IcebergCreateTableOperator(task_id="t", table="s.t", schema={"id": "long"}, asset_events=False)
        assert self.executed(create) == page
        first = with_pages.append([1]).snapshot_id
        with_pages.append([2])
        # A branch was moved to a snapshot that another task has made.
        assert self.executed(IcebergRollbackOperator(task_id="t", table="s.t", snapshot_id=first)) == page
        empty = append(files=str(with_pages.write_file("a.parquet", [])))
        assert self.executed(empty) == {**page, "Spark UI": "", "Spark history server": "", "Staging folder": ""}

    def test_a_task_that_failed_leads_to_its_table(self, with_pages):
        with_pages.create()
        task = append(files="/no/such/file.parquet")
        with pytest.raises(AirflowFailException):
            self.executed(task)
        assert links(task)["Iceberg table"] == "https://lake.example.com/lake/s/t"
        assert links(task)["Iceberg snapshot"] == ""

    def test_of_a_connection_that_names_none_they_are_those_in_airflows_ui(self, lake):
        lake.create()
        found = self.executed(append(files=str(lake.write_file("a.parquet", [1]))))
        snapshot = lake.load().current_snapshot().snapshot_id
        root = "/iceberg/connections/iceberg_catalog_default"
        assert found == {
            "Iceberg table": f"{root}/table?name=s.t",
            "Iceberg snapshot": f"{root}/snapshot?name=s.t&snapshot_id={snapshot}",
            "Spark UI": "",
            "Spark history server": "",
            "Staging folder": "",
        }

    def test_without_a_connection_there_is_no_page(self, lake):
        task = append(files="/no/such/file.parquet", iceberg_conn_id="nowhere")
        with pytest.raises(AirflowFailException):
            self.executed(task)
        assert set(links(task).values()) == {""}

    @pytest.mark.parametrize(
        ("base_url", "root"),
        [
            ("", "/iceberg/"),
            ("/", "/iceberg/"),
            ("https://example.com", "/iceberg/"),
            ("https://example.com/data/airflow/", "/data/airflow/iceberg/"),
            # Never the host of somebody else.
            ("https://example.com//evil.example.com", "/evil.example.com/iceberg/"),
        ],
    )
    def test_below_the_path_of_airflow_and_encoded(self, base_url, root, monkeypatch):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
        config = CatalogConfig(name="lake", properties={"token": "s3cr3t-word"}, pages={})
        task = SimpleNamespace(iceberg_conn_id="../c?x", table="s.a&b=c#d\r\n<")
        key: Any = SimpleNamespace(
            dag_id="d/../e", run_id="manual__2026-01-01T00:00:00+00:00", task_id="t", map_index=3
        )
        address = f"{root}connections/..%2Fc%3Fx/table?name=s.a%26b%3Dc%23d%0D%0A%3C"
        assert pages(task, config, (), key) == {"table-url": address}
        run_id = "manual__2026-01-01T00%3A00%3A00%2B00%3A00"
        assert pages(task, config, (1, 2), key)["snapshot-url"] == (
            f"{root}dags/d%2F..%2Fe/committed?run_id={run_id}&task_id=t&map_index=3"
        )

    def test_the_catalog_does_not_get_them(self, with_pages):
        connection = SimpleNamespace(
            conn_type="iceberg_catalog", host="https://c", port=None, login=None, password=None, conn_id="c"
        )
        config = CatalogConfig.from_connection(connection, {"type": "rest", "properties": PAGES})  # type: ignore[arg-type]
        assert (config.pages, config.properties) == (PAGES, {"type": "rest", "uri": "https://c"})

    def page(self, template: str, table: str = "s.t") -> str | None:
        config = CatalogConfig(name="lake", properties={}, pages={"table-url": template})
        return pages_of(config, table, ()).get("table-url")

    def test_a_table_cannot_change_the_address(self):
        assert self.page("https://h/{table}", 's.a/b?c#d"<é') == "https://h/s.a%2Fb%3Fc%23d%22%3C%C3%A9"
        assert self.page("https://h/{namespace}/{name}", "a.b.c") == "https://h/a.b/c"
        assert self.page("https://h/{namespace}/{name}", "`a.b`.c.`x.t`") == "https://h/%60a.b%60.c/x.t"
        assert self.page("https://h/{table}", "s.`x.t`") == "https://h/s.%60x.t%60"
        assert self.page("https://h/{table}", "s.`x.t") is None

    @pytest.mark.parametrize(
        "template",
        [
            *(
                "javascript:alert('{table}')",
                "file:///lake/{table}",
                "//h/{table}",
                "https://{name}/x",
                "https://h/{x}",
            ),
            *(
                "https://me:s3cr3t-word@h/{table}",
                "https://h/{table}?token=s3cr3t-word-1",
                "https://h/{0}",
                "https://h/{}",
            ),
            *("https://h/{table.__class__}", "https://h/ {table}", "https://h/\n{table}"),
        ],
    )
    def test_what_is_no_address_is_no_link(self, template, caplog):
        assert self.page(template) is None
        assert "no link: the connection's address of a page is unusable" in caplog.text
        assert "s3cr3t" not in caplog.text


class TestSpark:
    """What spark-submit's output tells of the application."""

    def told(self, *lines: str) -> list[SparkPages]:
        found: list[SparkPages] = []
        output = SparkOutput(master="m", tell=found.append)
        assert list(output.watched(f"{line}\n" for line in lines)) == [f"{line}\n" for line in lines]
        return found

    def test_of_a_driver_on_this_machine(self):
        """The first line tells: later ones may be of the job's own code."""
        forged = "airflow_iceberg: the Spark application is app-2, its page is https://evil.example.com"
        assert self.told("INFO before", UI, forged, UI) == [
            SparkPages(application_id="app-1", page="http://driver:4040")
        ]
        assert self.told("airflow_iceberg: the Spark application is local-1") == [SparkPages(application_id="local-1")]

    @pytest.mark.parametrize("page", ["http://driver:4040", None])
    def test_in_the_words_of_the_driver(self, page, capsys):
        log = logging.getLogger("airflow_iceberg.jobs.progress")
        before, level = list(log.handlers), log.level
        try:
            _say_progress(SimpleNamespace(sparkContext=SimpleNamespace(applicationId="local-17", uiWebUrl=page)))
        finally:
            log.handlers[:] = before
            log.setLevel(level)
        lines = capsys.readouterr().out.splitlines()
        assert [found for line in lines if (found := pages_told(line))] == [
            SparkPages(application_id="local-17", page=page)
        ]

    def test_of_a_driver_on_yarn_and_on_kubernetes(self):
        submitted = "26/11/26 00:00:00 INFO Client: Submitted application application_1_0001"
        tracked = "\t tracking URL: https://rm:8090/proxy/application_1_0001/"
        of_another = "\t tracking URL: https://evil/proxy/application_2_0001/"
        page = "https://rm:8090/proxy/application_1_0001/"
        assert self.told(submitted, "\t tracking URL: N/A", of_another, tracked, tracked) == [
            SparkPages(application_id="application_1_0001"),
            SparkPages(application_id="application_1_0001", page=page, is_kept=True),
        ]
        labels = "\t labels: spark-app-name -> a, spark-app-selector -> spark-0a1b, spark-role -> driver"
        assert self.told(labels) == [SparkPages(application_id="spark-0a1b")]

    @pytest.mark.parametrize("link", [SparkUiLink(), SparkHistoryLink()], ids=lambda one: one.name)
    def test_a_task_without_a_job_asks_for_none(self, link, monkeypatch):
        """Airflow logs an error for each value that XCom does not have."""
        monkeypatch.setattr("airflow.sdk.execution_time.xcom.BaseXCom.get_value", Mock(side_effect=AssertionError))
        task = IcebergAppendOperator(task_id="append", table="s.t", files="f.parquet")
        assert link.get_link(task, ti_key=None) == ""

    @pytest.mark.parametrize(
        "page", ["javascript:alert(1)", "http://me:pw@h", "http://h/?token=s3cr3t-word", "http://h/<b>", "http:///x"]
    )
    def test_a_page_that_is_no_address_is_none(self, page):
        told = pages_told(f"airflow_iceberg: the Spark application is app-1, its page is {page}")
        assert told == SparkPages(application_id="app-1")

    def test_the_page_of_a_driver_is_a_link_while_it_runs(self):
        instance = Instance()
        tell_application(instance, SparkPages(application_id="app-1", page="http://driver:4040"))
        assert instance.pushed.pop("spark_application")["application_id"] == "app-1"
        assert instance.pushed == {SparkUiLink().xcom_key: "http://driver:4040"}
        # A job does not fail because a link cannot be stored.
        tell_application(object(), SparkPages(application_id="app-1"))

    def test_the_history_server(self, tmp_path, monkeypatch):
        def page(extra: dict[str, str], attempt: str = "", **conf: str) -> str | None:
            config = SparkConfig(conf={name.replace("_", "."): value for name, value in conf.items()})
            environment = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_HOME": str(tmp_path)}
            return history_page("app-1", extra, config, environment, attempt=attempt)

        field = {"history-server-url": "https://history.example.com/spark/"}
        assert page({}) is None
        assert page(field) == "https://history.example.com/spark/history/app-1/"
        assert page({}, "1", spark_yarn_historyServer_address="h:18080") == "http://h:18080/history/app-1/1/"
        assert page({"history-server-url": "https://me:s3cr3t@h"}) is None
        (tmp_path / "spark-defaults.conf").write_text("spark.yarn.historyServer.address ${hadoopconf-a}:18080\n")
        assert page({}) is None


class TestPaimon:
    """Its sensor leads to the pages that the connection names, and to the Iceberg table that Paimon keeps."""

    MIRROR = "/iceberg/connections/lake/table?name=db.t"

    def found(self, sensor: Any, lake: Any) -> dict[str, str]:
        lake.write("a")
        sensor.poke({"ti": Instance(), "logical_date": None})
        return links(sensor)

    def connect(self, paimon_lake: Any, monkeypatch: Any, **extra: str) -> None:
        known = {**paimon_lake.connection, "extra": {**paimon_lake.connection["extra"], **extra}}
        monkeypatch.setenv("AIRFLOW_CONN_PAIMON_DEFAULT", json.dumps(known))

    @pytest.mark.parametrize("table", ["db.t", "location"])
    def test_pages_of_the_connection_and_the_mirror(self, table, paimon_lake, monkeypatch):
        self.connect(paimon_lake, monkeypatch, **PAGES, **{"iceberg-conn-id": "lake"})
        sensor = PaimonSnapshotSensor(
            task_id="t", table=paimon_lake.location if table == "location" else table, after=""
        )
        assert self.found(sensor, paimon_lake) == {
            "Paimon table": "https://lake.example.com/paimon_default/db/t",
            "Paimon snapshot": "https://lake.example.com/db.t?at=1",
            "Iceberg table": self.MIRROR,
        }

    def test_without_them_there_is_no_link(self, paimon_lake):
        sensor = PaimonSnapshotSensor(task_id="t", table="db.t")
        nothing = {"Paimon table": "", "Paimon snapshot": "", "Iceberg table": ""}
        assert links(sensor) == nothing
        assert self.found(sensor, paimon_lake) == nothing

    def test_after_a_deferral(self, paimon_lake, monkeypatch):
        self.connect(paimon_lake, monkeypatch, **{"snapshot-url": "https://x.example.com/{snapshot_id}"})
        sensor = PaimonSnapshotSensor(task_id="t", table="db.t")
        event = {"table": "t", "snapshot_id": "7", "event": "snapshot", "commit_kind": "APPEND"}
        sensor.execute_complete({"ti": Instance()}, {"status": "found", "seen": None, "event": event})
        assert links(sensor)["Paimon snapshot"] == "https://x.example.com/7"

    def test_a_location_that_is_none_of_a_database(self):
        config = PaimonConfig(conn_id="p", warehouse=None, path="file:///data/t", properties={}, iceberg_conn_id="lake")
        assert paimon_pages(config, None, ()) == {}


class TestStagingFolder:
    """A try that ends deletes its folder; that of a killed one is found on the page of the task."""

    def test_the_link_is_there_from_the_start_of_the_job(self, lake, monkeypatch):
        lake.create()
        task = append(files=str(lake.write_file("a.parquet", [1])))
        context, pushed = context_of(task, {"try": 1, "epoch": 0}), dict[str, Any]()

        def run_plan(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt  # killed

        context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
        monkeypatch.setattr(type(task), "run_job", run_plan)
        with pytest.raises(KeyboardInterrupt):
            task.execute(context)
        monkeypatch.undo()
        address = "/iceberg/dags/killed/committed?run_id=run&task_id=task&map_index=-1"
        assert pushed[StagingLink().xcom_key] == address
        assert links(task)["Staging folder"] == ""

    def test_a_deferred_task_keeps_it(self):
        task = append(files="/x")
        task.leaves_staging = True
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=2)
        address = "/iceberg/dags/d/committed?run_id=r&task_id=t&map_index=2"
        assert StagingLink().get_link(task, ti_key=ti) == address

    def test_the_page_lists_the_folders_of_the_task_alone(self, lake):
        lake.create()
        table = lake.load()
        ids = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
        own, other = (OperationKey(**ids | more, installation=installation_id()) for more in ({}, {"task_id": "u"}))
        for key, try_number, carried in ((own, 1, False), (own, 2, True), (other, 1, False)):
            folder = new_staging(table.metadata, key, try_number, carries_rows=carried)
            table.io.create(f"{folder}/plan.json", b"12345")
        found = staging_folders(table, **ids)
        assert sorted((one.try_number, one.files, one.size_bytes) for one in found) == [(1, 1, 5), (2, 1, 5)]
        assert staging_folders(table, **ids | {"map_index": 3}) == []
        work = committed.Work(dag_id="d", run_id="r", task_id="t", map_index=-1)
        connected = connect("iceberg_catalog_default")
        shown = committed.commits_of(work, connected, "s.t")
        assert list(shown.staging) == found
        assert committed.commits_of(committed.Work(dag_id="d", run_id="r"), connected, "s.t").staging == ()
        page = render.page("committed", {"work": work, "tables": [shown], "dags": set()}).body.decode()
        assert f"{found[0].location}</span>: try" in page
        assert "1 file, 5 bytes" in page


def test_airflow_knows_their_classes():
    named = {name.rpartition(".")[2] for name in get_provider_info()["extra-links"]}
    tasks = (append(files="/x"), PaimonSnapshotSensor(task_id="t"))
    assert named == {type(link).__name__ for task in tasks for link in task.operator_extra_links}
    assert {TableLink.__name__, SnapshotLink.__name__} < named
