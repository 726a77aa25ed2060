"""The pages beside servers that harm who asks, and tables that are too large: bounded, and the others keep working."""

import gzip
import html
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.ui import opened, snapshots, threads
from tests.airflow.conftest import CONN_ID, Lake, operators
from tests.airflow.ui_pages import Pages, as_server, pages_of, plugins_only
from tests.support.hostile_server import BOMBS, DRIPS, HostileServer

append = operators(IcebergAppendOperator, spark_conn_id=None)


@pytest.fixture(scope="module")
def server(airflow_db):
    with as_server():
        yield plugins_only()


@pytest.fixture
def pages(server, lake: Lake) -> Pages:
    return pages_of(server, "op")


@pytest.fixture
def dead(monkeypatch) -> Iterator[Callable[..., str]]:
    """Makes connections to a server that sends a byte now and then, and never ends its answer."""
    monkeypatch.setattr(threads, "TIMEOUT_S", 0.5)
    with HostileServer(DRIPS["drip of a body"]) as dripping:

        def make(name: str, **extra: Any) -> str:
            connection = {"conn_type": "iceberg_catalog", "host": dripping.uri, "extra": {"type": "rest", **extra}}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
            return name

        yield make
    for _ in range(2_000):  # its answers have ended
        if not threads._threads._places:
            break
        time.sleep(0.01)
    assert threads._threads._places == {}


def until_refused(pages: Pages, conn_id: str) -> Any:
    """Open a page again and again, until its connection is not asked any more."""
    for _ in range(50):
        answer = pages.table(conn_id=conn_id)
        if answer.status_code != 504:
            break
    return answer


class TestDeadConnections:
    """Each holds up its own pages, and is not asked any more when it has not answered a few times."""

    @pytest.mark.costly
    def test_ten_of_them_for_three_users_take_no_page_from_another(self, pages, server, lake, dead, monkeypatch):
        lake.create()
        monkeypatch.setattr(threads, "TIMEOUT_S", 5)
        users = [pages_of(server, "op") for _ in range(3)]
        names = [dead(f"dead_{number}") for number in range(10)]
        asked = [threading.Thread(target=user.table, kwargs={"conn_id": name}) for name in names for user in users]
        for one in asked:
            one.start()
        while len(threads._threads._places) < 10:
            time.sleep(0.01)
        assert [pages.table().status_code for _ in range(3)] == [200] * 3
        for one in asked:
            one.join()
        monkeypatch.setattr(threads, "TIMEOUT_S", 0.3)
        answers = [until_refused(pages, name) for name in names]
        assert {one.status_code for one in answers} == {503}
        for part in (
            "This connection is not asked any more",
            "'dead_0'",
            "4 requests to it have got no answer in time",
        ):
            assert part in html.unescape(answers[0].text)
        monkeypatch.setattr(threads, "TIMEOUT_S", 30)
        assert pages.table().status_code == 200

    @pytest.mark.costly
    def test_a_connection_that_was_corrected_is_asked_again(self, pages, lake, dead, monkeypatch):
        lake.create()
        name = dead("mistyped")
        until_refused(pages, name)
        dead(name, note="no better")
        assert pages.table(conn_id=name).status_code == 504
        monkeypatch.setattr(threads, "TIMEOUT_S", 30)
        monkeypatch.setenv("AIRFLOW_CONN_MISTYPED", json.dumps(lake.connection))
        assert pages.table(conn_id=name).status_code == 200

    @pytest.mark.costly
    def test_what_a_run_committed_elsewhere_is_shown_all_the_same(
        self, pages, lake, dead, new_dag, run_dag, monkeypatch
    ):
        for conn_id in ("other_lake", CONN_ID):
            monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(lake.connection))
        for name in ("s.t", "s.u"):
            lake.create(name)
        files = str(lake.write_file("a.parquet", [1, 2, 3]))
        with new_dag() as dag:
            append(task_id="one", files=files)
            append(task_id="two", table="s.u", files=files, iceberg_conn_id="other_lake")
        run = run_dag(dag).dag_run
        dead("other_lake")
        monkeypatch.setattr(threads, "TIMEOUT_S", 3)
        text = pages.get(f"/dags/{run.dag_id}/committed", run_id=run.run_id).text
        assert str(lake.load().current_snapshot().snapshot_id) in text
        assert "no answer in 3 seconds" in text

    @pytest.mark.costly
    def test_a_catalog_whose_client_is_held_by_a_late_thread_is_opened_anew(self, pages, lake, dead, monkeypatch):
        lake.create()
        is_over, real = threading.Event(), opened._listing
        monkeypatch.setattr(opened, "_listing", lambda *given: (is_over.wait(60), real(*given))[1])
        assert pages.get(f"/connections/{CONN_ID}").status_code == 504
        monkeypatch.setattr(opened, "_listing", real)
        monkeypatch.setattr(threads, "TIMEOUT_S", 30)
        assert pages.get(f"/connections/{CONN_ID}").status_code == 200
        is_over.set()


class TestHostileAnswers:
    """Whatever a server sends, a page ends in time, and others are shown."""

    @pytest.mark.services
    @pytest.mark.parametrize("kind", [*BOMBS, *DRIPS])
    def test_it(self, kind, pages, lake, monkeypatch):
        lake.create()
        with HostileServer({**BOMBS, **DRIPS}[kind]) as hostile:
            connection = {"conn_type": "iceberg_catalog", "host": hostile.uri, "extra": {"type": "rest"}}
            monkeypatch.setenv("AIRFLOW_CONN_HOSTILE", json.dumps(connection))
            began = time.monotonic()
            for path in ("", "/table"):
                query = {"name": "s.t"} if path else {}
                monkeypatch.setattr(threads, "TIMEOUT_S", 2)
                assert pages.get(f"/connections/hostile{path}", **query).status_code in (404, 502, 503, 504)
                monkeypatch.setattr(threads, "TIMEOUT_S", 30)
                assert pages.table().status_code == 200
            assert time.monotonic() - began < 60


@pytest.fixture
def forged(lake: Lake) -> Callable[..., str]:
    """Lets the table `s.t` have metadata that an enemy has written, as the bytes of a file."""

    def make(data: bytes, suffix: str = ".metadata.json") -> str:
        path = lake.folder / "warehouse" / "s" / "t" / "metadata" / f"00009-forged{suffix}"
        path.write_bytes(data)
        (database,) = lake.folder.glob("*.db")
        with closing(sqlite3.connect(database)) as rows, rows:
            rows.execute("update iceberg_tables set metadata_location = ?", (path.as_uri(),))
        return "s.t"

    return make


def document_of(lake: Lake) -> dict[str, Any]:
    lake.create()
    lake.append([1])
    return dict(metadata_json.to_dict(lake.load().metadata))


class TestLargeTables:
    """What is not shown is not worked on, and what was worked out is kept."""

    @pytest.mark.costly
    def test_texts_are_cut_before_secrets_are_looked_for_and_results_are_kept(self, pages, lake, forged, monkeypatch):
        document, looked_at = document_of(lake), list[int]()
        document["properties"] = {f"p{number}": "password=hunter2 " * 5_000 for number in range(350)}
        name = forged(json.dumps(document).encode())
        real = snapshots.hide
        monkeypatch.setattr(snapshots, "hide", lambda key, value: (looked_at.append(len(value)), real(key, value))[1])
        text = pages.html(name)
        assert (len(looked_at), max(looked_at)) == (300, 6_097)
        assert "hunter2" not in text
        looked_at.clear()
        assert pages.html(name) == text
        assert looked_at == []

    @pytest.mark.costly
    @pytest.mark.parametrize("kind", ["stored", "compressed", "values", "wide"])
    def test_metadata_of_more_than_is_read(self, kind, pages, lake, forged):
        document = document_of(lake)
        wide = {**document, "properties": {"a": "x" * (40 << 20) + "\N{GRINNING FACE}"}}
        make: dict[str, Callable[[], bytes]] = {
            "stored": lambda: json.dumps(document).encode() + b" " * (65 << 20),
            "compressed": lambda: b"".join([gzip.compress(b" " * (16 << 20))] * 32),
            "values": lambda: json.dumps({**document, "more": [[]] * 2_000_000}).encode(),
            "wide": lambda: json.dumps(wide, ensure_ascii=False).encode(),
        }
        suffix = ".gz.metadata.json" if kind == "compressed" else ".metadata.json"
        answer = pages.table(forged(make[kind](), suffix))
        assert answer.status_code == 502
        assert "than 67108864 bytes" in answer.text or "bytes of memory" in answer.text

    @pytest.mark.costly
    def test_a_result_that_is_larger_than_a_page_is_not_kept(self):
        kept, made = opened.Kept(2, 1_000), list[int]()
        for text in ("x" * 100, "x" * 2_000):
            for _ in range(2):
                kept.get(text, lambda text=text: made.append(len(text)) or (text,))
        assert made == [100, 2_000, 2_000]


@pytest.mark.costly
def test_a_page_that_was_given_up_stops_at_the_next_file(pages, lake, monkeypatch, dead):
    lake.create()
    for number in range(3):
        lake.append([number])
    read, is_over = list[str](), threading.Event()
    real = type(lake.catalog.io).read

    def slow(io: Any, location: str, **options: Any) -> bytes:
        if location.endswith(".avro"):
            read.append(location)
            is_over.wait(60)
        return bytes(real(io, location, **options))

    with ExitStack() as stack:
        stack.callback(is_over.set)
        monkeypatch.setattr(type(lake.catalog.io), "read", slow)
        # On a busy machine a page takes long to come to its first file.
        monkeypatch.setattr(threads, "TIMEOUT_S", 4)
        assert pages.table().status_code == 504
    while threads._threads._places:
        time.sleep(0.01)
    assert len(read) == 1
