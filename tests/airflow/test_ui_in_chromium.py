"""The pages in a real browser, alone and in Airflow's own frame: light, dark, narrow, by keyboard; see build/ui."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.models import Connection
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.conftest import CONN_ID, DAY, Lake, operators
from tests.airflow.ui_pages import as_server, token, whole_airflow
from tests.airflow.ui_table import RUN_ID, loaded_by_runs
from tests.services.chromium import Chromium
from tests.support.airflow_home import ROOT, register

pytestmark = [pytest.mark.services, pytest.mark.slow]
PICTURES = ROOT / "build" / "ui"
TABLE = f"/iceberg/connections/{CONN_ID}/table?name=sales.orders"
FRAME = "document.querySelector('iframe').contentDocument"


@pytest.fixture(scope="module")
def address(airflow_db: Path) -> Iterator[str]:
    with as_server(), whole_airflow() as url:
        yield url


@pytest.fixture
def browser(address: str, lake: Lake) -> Iterator[Chromium]:
    with create_session() as session:
        session.merge(Connection(conn_id="lake", conn_type="iceberg_catalog", description="orders and customers"))
    with DAG("load_orders", schedule=None, start_date=DAY) as dag:
        EmptyOperator(task_id="append")
    register(dag)
    loaded_by_runs(lake)
    with Chromium() as running:
        running.call("Network.setCookie", name="_token", value=token("admin"), url=address, httpOnly=True)
        yield running


def test_pages_fit_and_work_by_keyboard_in_airflow_and_alone(
    browser: Chromium, address: str, lake: Lake, new_dag: Any, run_dag: Any
) -> None:
    they_fit(browser, address)
    they_are_a_tab_of_a_task(browser, address, committed(lake, new_dag, run_dag))
    they_work_by_keyboard(browser, address)
    they_follow_the_choice_of_light_and_dark(browser, address)
    they_open_airflows_pages_around_their_frame(browser, address)


def committed(lake: Lake, new_dag: Any, run_dag: Any) -> str:
    """Run a task that commits, and return the path of its page in Airflow."""
    with new_dag() as dag:
        operators(IcebergAppendOperator, task_id="load", spark_conn_id=None, table="sales.web_orders")(
            files=str(lake.write_file("a.parquet", [1, 2, 3]))
        )
    lake.create("sales.web_orders")
    run = run_dag(dag).dag_run
    return f"/dags/{run.dag_id}/runs/{quote(run.run_id, safe='')}/tasks/load"


def they_are_a_tab_of_a_task(browser: Chromium, address: str, task: str) -> None:
    browser.show(scheme="light", width=1280)
    browser.open(f"{address}{task}/plugin/iceberg-task")
    browser.wait_for(f"{FRAME}.querySelector('h1').textContent == 'What this task committed'")
    assert browser.evaluate(f"{FRAME}.querySelector('h2 a').textContent") == "sales.web_orders"
    assert browser.evaluate(f"{FRAME}.querySelectorAll('tbody td.plus').length") == 1
    browser.picture(PICTURES / "task-in-airflow-light-1280.png", whole=False)


def they_fit(browser: Chromium, address: str) -> None:
    pages = {"connections": "/iceberg/", "tables": f"/iceberg/connections/{CONN_ID}", "table": TABLE}
    for scheme, width in (("light", 1280), ("dark", 1280), ("dark", 480)):
        browser.show(scheme=scheme, width=width)
        for name, path in pages.items():
            browser.open(address + path)
            browser.picture(PICTURES / f"{name}-{scheme}-{width}.png")
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
            # No script or style was refused, and nothing else was asked for: it works without the internet.
            assert browser.errors() == []
            assert {url.removeprefix(address) for url in browser.requested()} <= {path, "/favicon.ico"}
            light = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(247, 248, 250)"
            assert light == (scheme == "light")
            assert browser.evaluate("document.querySelectorAll('table:not(:has(caption))').length") == 0


def they_work_by_keyboard(browser: Chromium, address: str) -> None:
    browser.show(width=1280)
    browser.open(address + TABLE)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    browser.press("Enter")
    assert browser.evaluate("document.activeElement.id") == "main"
    for _ in range(60):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.matches('a[href*=snapshot_id]')"):
            break
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.wait_for("location.pathname.endsWith('/snapshot') && document.querySelector('h1')")
    browser.picture(PICTURES / "snapshot-light-1280.png")


def they_follow_the_choice_of_light_and_dark(browser: Chromium, address: str) -> None:
    browser.evaluate("localStorage.setItem('theme', 'dark')")
    browser.open(address + TABLE)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    browser.evaluate("localStorage.removeItem('theme')")


def they_open_airflows_pages_around_their_frame(browser: Chromium, address: str) -> None:
    browser.open(f"{address}/plugin/iceberg")
    browser.wait_for(f"{FRAME}.querySelector('h1').textContent == 'Iceberg catalogs'")
    browser.evaluate(f"void({FRAME}.location = {json.dumps(TABLE)})")
    browser.wait_for(f"{FRAME}.querySelector('a[data-airflow]')")
    browser.picture(PICTURES / "in-airflow-light-1280.png", whole=False)
    browser.evaluate(f"{FRAME}.querySelector('a[data-airflow]').click()")
    run = quote(RUN_ID.format(12), safe="")
    browser.wait_for(f"location.pathname == '/dags/load_orders/runs/{run}/tasks/append'")
    browser.wait_for("!document.querySelector('iframe')")
