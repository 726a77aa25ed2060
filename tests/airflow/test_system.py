"""A whole Airflow, from the sensor to the page: API server, scheduler, DAG processor and triggerer, asked by its API.

Its DAGs are in `dags_of_the_system`; they reach the lake by a connection of Airflow's database that is full of secrets.
The last tests look at what all others have left. Tasks that are killed are in `test_killed_tasks`.
"""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from tests.airflow.conftest import Lake, airflow_of
from tests.airflow.live import LiveAirflow, path_of
from tests.airflow.test_masking import setting
from tests.airflow.test_secrets import MARK, PASSWORD, SECRETS
from tests.services.chromium import Chromium
from tests.support.airflow_home import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.services]
CONN_ID = "lake"
ORDERS = "sales.orders"
PICTURES = ROOT / "build" / "ui"
FRAME = "document.querySelector('iframe').contentDocument"
DAGS = {"load_orders", "compact_orders", "react_to_orders", "marked", "careless", "stays", "again"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"))
    for name in ("stays", "again"):
        made.create(f"s.{name}")
        made.write_file(f"{name}.parquet", [1, 2])
    for name in (ORDERS, "sales.marked"):
        made.create(name)
    return made


@pytest.fixture(scope="module")
def airflow(lake: Lake) -> Iterator[LiveAirflow]:
    environment = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES": setting(),
        # The triggers of a triggerer that was killed belong to another one after this time.
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    }
    with airflow_of(lake, "dags_of_the_system", environment) as running:
        running.call("POST", "/api/v2/connections", connection(lake))
        running.wait_for(lambda: known_dags(running) >= DAGS, "the DAGs to be parsed")
        yield running


def connection(lake: Lake) -> dict[str, Any]:
    """Return the lake's connection with a secret of every kind, one of them in the address that SQLite is given."""
    uri = f"sqlite:///file:{lake.folder / 'catalog.db'}?uri=true&password={PASSWORD}-in-uri"
    extra = {**lake.connection["extra"], **SECRETS, "uri": uri}
    return {
        "connection_id": CONN_ID,
        "conn_type": "iceberg_catalog",
        "description": "orders",
        "password": PASSWORD,
        "extra": json.dumps(extra),
    }


def known_dags(airflow: LiveAirflow) -> set[str]:
    broken = airflow.call("GET", "/api/v2/importErrors")["import_errors"]
    assert broken == [], broken
    return {dag["dag_id"] for dag in airflow.call("GET", "/api/v2/dags")["dags"]}


def task_of(airflow: LiveAirflow, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    return next(task for task in airflow.tasks(dag_id, run_id) if task["task_id"] == task_id)


def deferred(airflow: LiveAirflow) -> tuple[str, dict[str, Any]]:
    """Start a run of `load_orders`; return it and its sensor, which a triggerer has taken over."""
    run_id = airflow.trigger("load_orders")

    def found() -> dict[str, Any] | None:
        task = task_of(airflow, "load_orders", run_id, "landed")
        return task if task["state"] == "deferred" and (task["trigger"] or {}).get("triggerer_id") else None

    return run_id, airflow.wait_for(found, "the sensor to be in the triggerer")


def land(lake: Lake, ids: list[int]) -> str:
    return str(lake.append(ids, "sales.landing").snapshot_id)


def loaded(lake: Lake, airflow: LiveAirflow) -> str:
    """Return the id of a run of `load_orders` that has ended; start one if there is none."""
    for run in airflow.runs("load_orders"):
        if run["state"] == "success":
            return str(run["dag_run_id"])
    run_id, _ = deferred(airflow)
    lake.create("sales.landing")
    land(lake, [1, 2])
    return airflow.ended("load_orders", run_id)[0]


def asset_of_watcher(airflow: LiveAirflow) -> int:
    found = airflow.call("GET", "/api/v2/assets?name_pattern=orders")["assets"]
    (asset,) = (asset for asset in found if asset["name"] == "orders")
    return int(asset["id"])


def fired(airflow: LiveAirflow) -> list[dict[str, Any]]:
    """Return what the watcher has fired, the oldest first."""
    path = f"/api/v2/assets/events?asset_id={asset_of_watcher(airflow)}&order_by=timestamp&limit=100"
    events = airflow.call("GET", path)["asset_events"]
    assert all(event["extra"]["from_trigger"] for event in events)
    return [event["extra"]["payload"] for event in events]


def handled(airflow: LiveAirflow) -> list[dict[str, Any]]:
    """Return what the runs of the consumer were told, in their order."""
    runs = [run for run in airflow.runs("react_to_orders") if run["state"] == "success"]
    runs.sort(key=lambda run: str(run["queued_at"]))
    return [one for run in runs for one in airflow.xcom("react_to_orders", run["dag_run_id"], "react")]


def written(lake: Lake) -> list[str]:
    """Return the snapshots of the watched table that have changed its rows."""
    return [str(each.snapshot_id) for each in lake.load(ORDERS).snapshots() if each.operation != "replace"]


def each_is_told_once(lake: Lake, airflow: LiveAirflow) -> list[dict[str, Any]]:
    """Wait until the consumer has handled all that was written; return what it was told."""
    expected = written(lake)
    airflow.wait_for(lambda: {one["snapshot_id"] for one in handled(airflow)} >= set(expected), "the consumer")
    events, told = fired(airflow), handled(airflow)
    assert [event["snapshot_id"] for event in events] == expected
    assert len({event["event_id"] for event in events}) == len(expected)
    assert [one["snapshot_id"] for one in told] == expected
    assert [one["event_id"] for one in told] == [event["event_id"] for event in events]
    return told


class TestASensorInTheTriggerer:
    """It gives its worker back, and resumes when the snapshot is there."""

    def test_waits_for_a_table_that_is_created_and_loaded_later(self, lake, airflow):
        run_id, waiting = deferred(airflow)
        assert waiting["trigger"]["classpath"].startswith("airflow_iceberg.triggers.")
        assert waiting["triggerer_job"]["job_type"] == "TriggererJob"
        lake.create("sales.landing")
        landed = land(lake, [1, 2])
        airflow.ended("load_orders", run_id)
        found = airflow.xcom("load_orders", run_id, "landed")
        assert (found["snapshot_id"], found["added_records"]) == (landed, 2)
        result = airflow.xcom("load_orders", run_id, "append")
        assert (result["outcome"], result["added_records"]) == ("committed", 2)
        assert lake.ids(ORDERS) == [1, 2]

    def test_waits_for_what_earlier_runs_have_not_seen(self, lake, airflow):
        loaded(lake, airflow)
        before = lake.ids(ORDERS)
        run_id, _ = deferred(airflow)
        landed = land(lake, [3])
        airflow.ended("load_orders", run_id)
        assert airflow.xcom("load_orders", run_id, "landed")["snapshot_id"] == landed
        assert lake.ids(ORDERS) == sorted([*before, 3])


class TestAWatcherInTheTriggerer:
    """Each snapshot of the table runs the consumer, whoever has committed it; a compaction does not."""

    def test_one_event_a_snapshot_and_none_for_a_compaction(self, lake, airflow):
        loaded(lake, airflow)
        lake.append([10], ORDERS)
        ended, _ = airflow.ended("compact_orders", airflow.trigger("compact_orders"))
        assert airflow.xcom("compact_orders", ended, "compact")["outcome"] == "committed"
        lake.append([11], ORDERS)  # when this one is told, the compaction was seen
        told = each_is_told_once(lake, airflow)
        assert (told[0]["dag_id"], told[0]["run_id"]) in runs_of(airflow, "load_orders")
        assert (told[-1]["dag_id"], told[-1]["operation"], told[-1]["added_records"]) == (None, "append", 1)
        compactions = [each for each in lake.load(ORDERS).snapshots() if each.operation == "replace"]
        assert len(compactions) == 1

    def test_a_triggerer_that_is_killed_loses_no_event_and_doubles_none(self, lake, airflow):
        loaded(lake, airflow)
        run_id, _ = deferred(airflow)
        lake.append([20], ORDERS)
        airflow.wait_for(lambda: watermark(airflow) == written(lake)[-1], "the watermark to be stored")
        airflow.kill_triggerer()
        while_it_is_down = str(lake.append([21], ORDERS).snapshot_id)
        land(lake, [22])
        airflow.start_triggerer()
        airflow.ended("load_orders", run_id)
        # Of two events within milliseconds, Airflow's scheduler may give a consumer the first one alone.
        each_is_told_once(lake, airflow)
        lake.append([23], ORDERS)
        told = each_is_told_once(lake, airflow)
        assert while_it_is_down in [one["snapshot_id"] for one in told]
        assert {20, 21, 22, 23} <= set(lake.ids(ORDERS))


def runs_of(airflow: LiveAirflow, dag_id: str) -> set[tuple[str, str]]:
    return {(dag_id, run["dag_run_id"]) for run in airflow.runs(dag_id)}


def watermark(airflow: LiveAirflow) -> str | None:
    """Return the snapshot after which the watcher goes on, as it is stored."""
    path = f"/api/v2/assets/{asset_of_watcher(airflow)}/state-store"
    stored = {entry["value"]["snapshot_id"] for entry in airflow.call("GET", path)["asset_state_store"]}
    return stored.pop() if len(stored) == 1 else None


class TestATaskThatIsMarkedFailed:
    """By the API, while its Spark works: its processes end, and it has committed nothing."""

    @pytest.mark.spark
    def test_while_its_job_runs(self, lake, airflow):
        run_id = airflow.trigger("marked")

        def works() -> dict[str, Any] | None:
            task = task_of(airflow, "marked", run_id, "append")
            return task if task["state"] == "running" and "Running task" in airflow.log(task) else None

        task = airflow.wait_for(works, "Spark to work")
        job = processes_of_spark(airflow)
        assert any("org.apache.spark.deploy.SparkSubmit" in one.cmdline() for one in job)
        airflow.mark_failed(task)
        airflow.wait_for(lambda: not any(map(is_alive, job)), "the processes of the job to end")
        airflow.wait_for(lambda: "what to do: " in airflow.log(task), "the log to say what happened")
        ended = task_of(airflow, "marked", run_id, "append")
        assert (ended["state"], ended["try_number"]) == ("failed", 1)
        assert "what happened: the task is being ended from outside: somebody has marked" in airflow.log(ended)
        assert lake.load("sales.marked").snapshots() == ()
        assert processes_of_spark(airflow) == []


def processes_of_spark(airflow: LiveAirflow) -> list[psutil.Process]:
    """Return the JVMs that tasks have started, and what these have started."""
    found: dict[int, psutil.Process] = {}
    for process in airflow.started_by_tasks():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    return list(filter(is_alive, found.values()))


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process works: what is dead may wait to be collected for as long as the machine likes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class TestAClearedTask:
    """It does its work again, and its rows are there once."""

    def test_after_its_commit_while_it_runs(self, lake, airflow):
        begin(airflow, "stays")
        airflow.wait_for(lambda: (lake.folder / "killed-stays").exists(), "the first try to commit")
        lake.write_file("stays.parquet", [3])
        airflow.clear("stays", "one")
        _, (task,) = airflow.ended("stays", "one")
        assert task["try_number"] > 1
        assert lake.ids("s.stays") == [3]
        assert [s.operation for s in lake.load("s.stays").snapshots()] == ["append", "overwrite"]

    def test_of_a_run_that_is_deleted_and_created_again(self, lake, airflow):
        begin(airflow, "again")
        airflow.ended("again", "one")
        lake.load("s.again").delete("true")
        old = {str(snapshot.snapshot_id) for snapshot in lake.load("s.again").snapshots()}
        lake.write_file("again.parquet", [3])
        airflow.call("DELETE", "/api/v2/dags/again/dagRuns/one")
        begin(airflow, "again")
        airflow.ended("again", "one")
        # A commit of its own, and not that of the run before; a retry of the new run may have found it.
        assert str(airflow.xcom("again", "one", "append")["snapshot_id"]) not in old
        assert lake.ids("s.again") == [3]
        assert [s.operation for s in lake.load("s.again").snapshots()] == ["append", "delete", "append"]


def begin(airflow: LiveAirflow, dag_id: str) -> None:
    airflow.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"dag_run_id": "one", "logical_date": None})


class TestThePagesInABrowser:
    """Airflow's own API server serves them, with the table that its DAG runs have written."""

    def test_tell_of_the_runs_and_of_no_secret(self, lake, airflow):
        run_id = loaded(lake, airflow)
        task = f"/dags/load_orders/runs/{quote(run_id, safe='')}/tasks/append"
        snapshot_id = airflow.xcom("load_orders", run_id, "append")["snapshot_id"]
        table = f"/iceberg/connections/{CONN_ID}/table?name={ORDERS}"
        pages = {
            "connections": ("/iceberg/", f"a[href$='/connections/{CONN_ID}']"),
            "tables": (f"/iceberg/connections/{CONN_ID}", f"a[href$='table?name={ORDERS}']"),
            "table": (table, f"a[data-airflow][href^='{task}']"),
            "snapshot": (f"{table.replace('/table?', '/snapshot?')}&snapshot_id={snapshot_id}", "dl"),
        }
        with Chromium() as browser:
            browser.call("Network.setCookie", name="_token", value=airflow.token, url=airflow.url, httpOnly=True)
            for scheme in ("light", "dark"):
                browser.show(scheme=scheme)
                for name, (path, what) in pages.items():
                    browser.open(airflow.url + path)
                    assert browser.evaluate(f"document.querySelectorAll({json.dumps(what)}).length") > 0, name
                    assert browser.errors() == []
                    assert MARK not in browser.evaluate("document.documentElement.outerHTML")
                    browser.picture(PICTURES / f"system-{name}-{scheme}.png")
            browser.show(scheme="light")
            browser.open(f"{airflow.url}{task}/plugin/iceberg-task")
            browser.wait_for(f"{FRAME}.querySelector('h2 a').textContent == '{ORDERS}'")
            assert snapshot_id in browser.evaluate(f"{FRAME}.body.textContent")
            assert MARK not in browser.evaluate(f"{FRAME}.documentElement.outerHTML + document.body.outerHTML")
            browser.picture(PICTURES / "system-task-in-airflow.png", whole=False)


class TestSecrets:
    """Nothing that Airflow shows or keeps of all these runs has one of the connection's secrets in it."""

    def test_are_in_no_log_xcom_rendered_field_page_or_file(self, lake, airflow):
        run_id = loaded(lake, airflow)
        careless = airflow.trigger("careless")
        airflow.wait_for(lambda: ended_badly(airflow, careless), "the careless task to fail")
        shown = self.shown(airflow, run_id)
        log = airflow.log(task_of(airflow, "careless", careless, "show"))
        assert "'s3.secret-access-key': '***'" in log, "it was printed"
        assert [where for where, text in shown.items() if MARK in text] == []
        files = [path for folder in (airflow.home, lake.folder) for path in folder.rglob("*") if path.is_file()]
        # Airflow's scheduler repeats, not masked, what the careless task prints and the error that it raises.
        repeated = airflow.home / "scheduler.log"
        assert [str(path) for path in files if path != repeated and MARK.encode() in path.read_bytes()] == []
        lines = [line for line in repeated.read_text().splitlines() if MARK in line]
        assert [line for line in lines if "dag_id=careless" not in line and "[task.stdout]" not in line] == []
        # Not an empty search: each DAG ran, and each kind of thing was there.
        for kind in ("log of load_orders", "log of careless", "xcom of load_orders", "rendered fields of load_orders"):
            assert any(where.startswith(kind) and len(text) > 2 for where, text in shown.items()), kind

    def shown(self, airflow: LiveAirflow, run_id: str) -> dict[str, str]:
        """Return all that users of the API and of the pages see, by where."""
        texts: dict[str, str] = {}
        runs = "/api/v2/dags/~/dagRuns/~/taskInstances"
        for task in airflow.call("GET", f"{runs}?limit=100")["task_instances"]:
            who = f"{task['dag_id']}.{task['task_id']} in {task['dag_run_id']}"
            for number in range(1, task["try_number"] + 1):
                texts[f"log of {who}, try {number}"] = airflow.log(task, number)
            texts[f"rendered fields of {who}"] = json.dumps(task["rendered_fields"])
            texts[f"task {who}"] = json.dumps(task)
            texts[f"links of {who}"] = json.dumps(airflow.call("GET", f"{path_of(task)}/links"))
        for entry in airflow.call("GET", f"{runs}/~/xcomEntries?limit=100")["xcom_entries"]:
            place = path_of({**entry, "dag_run_id": entry["run_id"]})
            place = f"{place}/xcomEntries/{entry['key']}?map_index={entry['map_index']}"
            texts[f"xcom of {entry['dag_id']}, {place}"] = json.dumps(airflow.call("GET", place))
        asset_id = asset_of_watcher(airflow)
        for path in ("connections", "eventLogs", "importErrors", "assets/events", f"assets/{asset_id}/state-store"):
            texts[path] = json.dumps(airflow.call("GET", f"/api/v2/{path}?limit=100"))
        query = f"name={ORDERS}"
        here = f"/iceberg/connections/{CONN_ID}"
        committed = f"/iceberg/dags/load_orders/committed?run_id={quote(run_id, safe='')}&task_id=append"
        for page in ("/iceberg/", here, f"{here}/table?{query}", f"{here}/table?name=sales.nothing", committed):
            texts[page] = page_text(airflow, page)
        return texts


def ended_badly(airflow: LiveAirflow, run_id: str) -> bool:
    return any(run["dag_run_id"] == run_id and run["state"] == "failed" for run in airflow.runs("careless"))


def page_text(airflow: LiveAirflow, path: str) -> str:
    """Return a page, an error's as well."""
    request = urllib.request.Request(airflow.url + path, headers={"Authorization": f"Bearer {airflow.token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
